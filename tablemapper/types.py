"""Types that annotations name: of attributes, conditions, queries and partitions. Programs never build them."""

from __future__ import annotations

from .aio.query import AsyncMixedQuery, AsyncQuery, AsyncRows
from .attributes import publish as _publish
from .entities.index import IndexRange
from .execution.totals import GroupedQuery
from .expressions.tree import Attr, Expr
from .query.mixed import MixedQuery
from .query.partitions import Partition
from .query.query import Rows

__all__ = [
    "AsyncMixedQuery",
    "AsyncQuery",
    "AsyncRows",
    "Attr",
    "Expr",
    "GroupedQuery",
    "IndexRange",
    "MixedQuery",
    "Partition",
    "Rows",
]

_publish(__name__, globals(), __all__)
