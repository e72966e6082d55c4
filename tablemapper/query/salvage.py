"""Queries that go on where an entity cannot be read, for those who look into a damaged store."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import attrs

from ..engines.protocol import Position
from ..errors import CorruptStore, TableMapperError
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

    def _positioned(self, after: Position | None, limit: int | None) -> Generator[tuple[Position, Any], None, None]:
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


def read_some(
    query: Query[Any], after: Position | None, limit: int
) -> tuple[list[Any], Position | None, TableMapperError | None]:
    """Read some results, and hold nothing afterwards: a slow reader asks for the next ones with the position.

    Returns:
        The results after a position, with an `UnreadableRow` for each that cannot be read. Then the position of the last
        one, None if there are no more; and the error that ended it early.
    """
    results, place = list[Any](), after
    try:
        with closing(tolerant(query)._positioned(after, limit)) as items:  # noqa: SLF001  as its subclass
            for place, item in islice(items, limit):  # noqa: B007  the last one is returned
                results.append(item)
    except TableMapperError as error:
        return results, None, error
    return results, place if len(results) == limit else None, None


def tolerant(query: Query[Any]) -> _TolerantQuery:
    """Return a query that gives an `UnreadableRow` in the place of each entity that cannot be read."""
    return _TolerantQuery(query._plans, query._spec)  # noqa: SLF001  as its subclass
