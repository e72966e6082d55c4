"""The deletion of what has ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..entities.expiry import expiry_index
from ..entities.index import IndexRange
from ..execution.prepared import PlanCache
from ..expressions.tree import Attr, Compare, Predicate
from ..planning.query_spec import QuerySpec
from ..progress import ProgressOption
from ..query.pages import counted
from ..query.writing import WriteByQuery
from ..schema.model import Model


def expire(plans: PlanCache, models: Iterable[Model], limit: int | None, progress: ProgressOption) -> int:
    """Delete what has ended of some classes, and return how many entities that were.

    Each class is read along its index over the time, so that what ended first goes first in each of the index's partitions.

    Raises:
        InvalidQuery: the limit is not a number, 0 or more.
        NotReady: an index over the time is being built.
    """
    remaining = None if limit is None else counted("expire: limit=", limit, least=0)
    moment, deleted = plans.moment(), 0
    for model in models:
        field, index = model.declaration.expiry, expiry_index(model.declaration)
        assert field is not None
        assert index is not None
        attr: Attr[Any, Any] = Attr(model.cls, field.name, field.type)
        has_ended: Predicate[Any] = Compare(attr=attr, op="<=", value=moment)
        most = None if remaining is None else remaining - deleted
        spec = QuerySpec(model, IndexRange(model.cls, index.name, ()), (has_ended,), limit=most)
        deleted += WriteByQuery(plans).expire(spec, f"expire of {model.name}", progress=progress)
    return deleted
