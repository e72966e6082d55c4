"""The one place that reads the rows of a plan: in chunks, within a budget, from a position on, as items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import attrs

from ..engines.protocol import Position, Reads
from ..planning.budget import BudgetMeter
from ..planning.projection import RowLayout
from ..planning.ranges import BoundPlan
from ..schema.rows import Row
from .prepared import PreparedPlan


@attrs.define(eq=False)
class PlanReader:
    """One read of a plan with its values."""

    reads: Reads
    prepared: PreparedPlan
    bound: BoundPlan
    layout: RowLayout
    spending: BudgetMeter | None = None
    """The budget of this run; None if the query has none."""

    def chunks(
        self,
        after: Position | None = None,
        limit: int | None = None,
        *,
        examined: int | None = None,
        within: Any = None,
    ) -> Iterator[list[Row]]:
        """Yield chunks of rows, which are not yet counted by the budget.

        Args:
            examined: how many rows are needed, whether they are results or not.
            within: the state of the store to read.
        """
        most = limit if self.prepared.whole and examined is None else examined
        return self.reads.rows(self.bound, self.layout, after=after, limit=most, spending=self.spending, within=within)

    def counted(self, chunks: Iterable[Sequence[Row]]) -> Iterator[Sequence[Row]]:
        """Yield chunks of rows; if there is a budget, one row at a time, counted before it is yielded.

        The engine has counted sorted rows before it yields the first one.
        """
        if self.spending is None:
            return iter(chunks)
        rows = chain.from_iterable(chunks)
        return ((row,) for row in (rows if self.prepared.plan.sorted else self.spending.counted(rows)))

    def rows(
        self,
        after: Position | None = None,
        limit: int | None = None,
        *,
        examined: int | None = None,
        within: Any = None,
    ) -> Iterator[Sequence[Row]]:
        """Yield rows, as `chunks` does, within the budget."""
        return self.counted(self.chunks(after, limit, examined=examined, within=within))

    def items_of(self, rows: Iterable[Row]) -> list[Any]:
        """Return the items of rows: entities, or tuples."""
        return self.prepared.items(rows, self.bound, self.layout)

    def items(self, limit: int | None = None) -> Iterator[Any]:
        """Yield items, at most so many."""
        items = chain.from_iterable(map(self.items_of, self.rows(None, limit)))
        return items if limit is None else islice(items, limit)

    def positioned(
        self, after: Position | None, limit: int | None, *, within: Any = None
    ) -> Iterator[tuple[Position, Any]]:
        """Yield items, each with its position; at least so many, if there are."""
        position, layout = self.prepared.position, self.layout
        for rows in self.rows(after, limit, within=within):
            if self.prepared.whole:  # each row is an item, so they can be made together
                yield from zip([position(row, layout) for row in rows], self.items_of(rows), strict=True)
            else:
                for row in rows:
                    for item in self.items_of((row,)):
                        yield position(row, layout), item
