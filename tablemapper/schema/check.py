"""What a check of a store reports."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs

from .groups import AggregateModel, Delta, State

__all__ = ["Problem", "ProblemKind", "Report", "expected_state"]

ProblemKind: TypeAlias = Literal["missing", "dangling", "wrong", "damaged"]


@attrs.frozen
class Problem:
    """One thing that is not as it should be."""

    kind: ProblemKind
    """``missing``: a row that should be there; ``dangling``: one that should not; ``wrong``: one that holds something
    else; ``damaged``: the file itself."""
    where: str
    """The index, aggregate or class, as in ``Product.by_name``."""
    key: tuple[Any, ...]
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} {self.where} {self.key}: {self.detail}"


@attrs.frozen
class Report:
    """The outcome of a check."""

    entities: int
    index_rows: int
    groups: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        found = f"{self.entities:,} entities, {self.index_rows:,} index rows, {self.groups:,} groups: "
        return "\n".join(
            [found + (f"{len(self.problems)} problems" if self.problems else "ok"), *map(str, self.problems)]
        )


def expected_state(aggregate: AggregateModel, delta: Delta, stored: State | None) -> State | None:
    """Return the state of a group that ``delta`` adds up to.

    What ``_ever`` measures hold cannot be recomputed: it is taken from what is stored, if that is no less extreme than
    the live values.
    """

    def seek(slot: int, end: Literal["min", "max"]) -> Any:
        values = [value for value, count in delta[slot + 1].items() if count > 0]
        return (min if end == "min" else max)(values, default=None)

    state = aggregate.combine(None, delta, seek)
    if state is not None and stored is not None:
        for at, slot in enumerate(aggregate.slots, 1):
            state[at] = slot.expected(state[at], stored[at])
    return state
