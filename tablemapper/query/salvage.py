"""Queries that go on where an entity cannot be read, for those who look into a damaged store."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import attrs

from ..engines.protocol import Position
from ..errors import CorruptStore, QueryStopped, TableMapperError
from .pages import Page, TokenSeal
from .query import Query


@attrs.frozen
class UnreadableRow:
    """Stands for an entity that cannot be read."""

    partition: str
    row: str
    fault: str


class _TolerantQuery(Query[Any]):
    __slots__ = ()

    def _limited(self, limit: int | None) -> Iterator[Any]:
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
    pairs, fault = _pairs_before_fault(query, after, limit)
    return [item for _, item in pairs], pairs[-1][0] if len(pairs) == limit else None, fault


def page_within(query: Query[Any], size: int, token: str | None) -> tuple[Page[Any], QueryStopped | None]:
    """Return a page with an `UnreadableRow` for each entity that cannot be read, also where the budget ends it early.

    Then the page has the results so far, and its token leads on behind them.

    Raises:
        InvalidToken: the token was changed, or is that of another query.
    """
    seal = TokenSeal(query._plans, query._form(), lambda: repr(query))  # noqa: SLF001  as its subclass
    after, returned_before = (None, 0) if token is None else seal.open(token)
    pairs, fault = _pairs_before_fault(query, after, size + 1)
    if fault is not None and not isinstance(fault, QueryStopped):
        raise fault
    items = [item for _, item in pairs[:size]]
    leads_on = bool(items) and (fault is not None or len(pairs) > size)
    page = Page(items, seal.token(pairs[len(items) - 1][0], returned_before + len(items)) if leads_on else None)
    return page, fault


def _pairs_before_fault(
    query: Query[Any], after: Position | None, limit: int
) -> tuple[list[tuple[Position, Any]], TableMapperError | None]:
    pairs = list[tuple[Position, Any]]()
    try:
        with closing(tolerant(query)._positioned(after, limit)) as items:  # noqa: SLF001  as its subclass
            for pair in islice(items, limit):
                pairs.append(pair)  # (not extend: those before an error stay)
    except TableMapperError as error:
        return pairs, error
    return pairs, None


def tolerant(query: Query[Any]) -> _TolerantQuery:
    """Return a query that gives an `UnreadableRow` in the place of each entity that cannot be read."""
    return _TolerantQuery(query._plans, query._spec)  # noqa: SLF001  as its subclass
