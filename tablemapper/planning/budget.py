"""Query budgets: time, and rows examined."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import attrs

from ..errors import QueryStopped
from ..progress import check_cancelled

T = TypeVar("T")


@attrs.frozen
class Budget:
    """The limits of one run of a query."""

    seconds: float | None = None
    examined: int | None = None
    """Rows read between the bounds, whether they match or not."""
    monotonic: Callable[[], float] = attrs.field(default=time.monotonic, eq=False)

    def start(self, label: str) -> BudgetMeter:
        """Begin a run."""
        return BudgetMeter(self, label, self.monotonic())


@attrs.frozen
class BudgetCounter(Budget):
    """The same limits, or none, for a run of which it is to be known how many rows it examines."""

    runs: list[BudgetMeter] = attrs.field(factory=list, eq=False)

    @classmethod
    def within(cls, budget: Budget | None) -> BudgetCounter:
        """Return the counter of a run with these limits."""
        return cls() if budget is None else cls(budget.seconds, budget.examined, budget.monotonic)

    def start(self, label: str) -> BudgetMeter:
        self.runs.append(spending := super().start(label))
        return spending

    def rows(self) -> int:
        """Return the number of rows that the runs have examined so far."""
        return sum(run.rows for run in self.runs)


def start(budget: Budget | None, query: object) -> BudgetMeter | None:
    """Begin a run of a query, if it has a budget."""
    return None if budget is None else budget.start(repr(query))


@attrs.define(eq=False)
class BudgetMeter:
    """The use of a budget by one run of a query."""

    budget: Budget
    label: str
    since: float
    rows: int = 0
    calls: list[object] = attrs.field(factory=list)
    """What an engine keeps for the run."""

    def row(self, *_: object) -> bool:
        """Count a row that is about to be examined; raise QueryStopped if it is one too many, or too late."""
        most = self.budget.examined
        if most is not None and self.rows >= most:
            raise QueryStopped(
                f"{self.label}: more than {most:,} rows would be examined (examined={most}); {self._advice()}",
                examined=self.rows,
                seconds=self._elapsed(),
            )
        self.rows += 1
        if not self.rows & 63:
            self.check_time()
        return True

    def check_time(self, *_: object) -> bool:
        """Raise QueryStopped if the time is over, or what ends the call if nobody waits for it any more."""
        check_cancelled()
        limit = self.budget.seconds
        if limit is not None and (elapsed := self._elapsed()) > limit:
            raise QueryStopped(
                f"{self.label}: stopped after {elapsed:.2f} s (timeout={limit:g}), {self.rows:,} rows were read; "
                f"{self._advice()}",
                examined=self.rows,
                seconds=elapsed,
            )
        return True

    def counted(self, rows: Iterable[T]) -> Iterator[T]:
        """Yield rows, each counted before it is given out."""
        for row in rows:
            self.row()
            yield row

    def _elapsed(self) -> float:
        return self.budget.monotonic() - self.since

    def _advice(self) -> str:
        return "add conditions that a key or an index bounds (explain() shows them), read in pages, or allow more"
