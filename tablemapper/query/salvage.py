"""Queries that go on where an entity cannot be read, for those who look into a damaged store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import attrs

from ..engines.protocol import Position
from ..errors import CorruptStore
from .query import Query


@attrs.frozen
class UnreadableRow:
    """Stands for an entity that cannot be read."""

    partition: str
    row: str
    fault: str


class _TolerantQuery(Query[Any]):
    __slots__ = ()

    def _taken(self, limit: int | None) -> Iterator[Any]:
        return (item for _, item in islice(self._positioned(None, limit), limit))

    def _positioned(self, after: Position | None, limit: int | None) -> Iterator[tuple[Position, Any]]:
        run = self._run(*self._find(most=limit))
        run.layout = run.prepared.placed
        for rows in run.rows(after, limit):
            for row in rows:
                place = run.prepared.position(row, run.layout)
                try:
                    items = run.items_of((row,))
                except CorruptStore as error:
                    items = [UnreadableRow(str(place[-2]), str(place[-1]), str(error))]
                for item in items:
                    yield place, item


def tolerant(query: Query[Any]) -> Query[Any]:
    """Return a query that gives an `UnreadableRow` in the place of each entity that cannot be read."""
    return _TolerantQuery(query._plans, query._spec)  # noqa: SLF001  as its subclass
