"""Types that annotations name: of attributes, conditions, queries and partitions. Programs never build them."""

from __future__ import annotations

from .aio.query import AsyncMixedQuery, AsyncPairs, AsyncQuery, AsyncRows
from .attributes import publish as _publish
from .entities.index import IndexRange
from .execution.totals import GroupedQuery
from .expressions.tree import Attr, Expr
from .query.class_results import Rows
from .query.mixed import MixedQuery
from .query.pairs import Pairs
from .query.partitions import Partition

__all__ = [
    "AsyncMixedQuery",
    "AsyncPairs",
    "AsyncQuery",
    "AsyncRows",
    "Attr",
    "Expr",
    "GroupedQuery",
    "IndexRange",
    "MixedQuery",
    "Pairs",
    "Partition",
    "Rows",
]

_publish(__name__, globals(), __all__)
