"""The rows of a class in the order of their keys, of any engine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ..planning.planner import plan_by_key
from ..planning.projection import ENTITIES, RowLayout
from ..planning.ranges import bind
from ..schema.model import Model
from ..schema.rows import Row
from .protocol import Engine

_CHUNK = 1_000  # rows that are read at a time: no state of a store is held while somebody writes


def rows_by_key(engine: Engine, model: Model, layout: RowLayout = ENTITIES) -> Iterator[Row]:
    """Yield the rows of a class in the order of keys, some of one state at a time."""
    bound = bind(plan_by_key(model), ())
    last_key: tuple[str, str] | None = None
    while True:
        rows = list(chain.from_iterable(engine.reads.rows(bound, layout, after=last_key, limit=_CHUNK)))
        yield from rows
        if len(rows) < _CHUNK:
            return
        last_key = rows[-1][0], rows[-1][1]
