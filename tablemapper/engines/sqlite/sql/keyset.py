"""The condition that a row comes after a position in an order, as SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from ....planning.bounds import Bound
from ....planning.plan import Plan
from ....planning.ranges import KeyRange
from ...protocol import Position


@attrs.frozen
class SortStep:
    """A value to sort by, as SQL."""

    sql: str
    descending: bool


@attrs.frozen
class KeysetCondition:
    """The rows of a range that come after a position."""

    range: KeyRange
    """Without the bound that the position replaces: SQLite would begin at that one, if it finds it first."""
    condition: str = ""
    args: Sequence[Any] = ()


def rest_of(
    key_range: KeyRange,
    after: Position,
    plan: Plan,
    places: Sequence[str],
    inclusive: bool,  # noqa: FBT001
) -> KeysetCondition | None:
    """Return the rows of a range that come after a position; None if none does.

    The condition names only the columns that have more than one value in the range. They follow the columns that the
    range fixes, in the order of the table, so SQLite begins at the position.
    """
    bounds = (key_range.partition, key_range.row)
    fixed = {place: bound.lo for place, bound in zip(places, bounds, strict=False) if bound.point}
    columns: list[tuple[str, Any]] = []
    ties_follow = inclusive  # whether a row that equals the position in these columns comes after it
    for place, value in zip(places, after, strict=True):
        if place not in fixed:
            columns.append((place, value))
        elif fixed[place] != value:
            down = plan.descending if place == places[0] else plan.rows_descending
            ties_follow = (fixed[place] < value) if down else (fixed[place] > value)
            break
    if not columns:
        return KeysetCondition(key_range) if ties_follow else None
    down = plan.rows_descending  # (if it is turned, the range is one of a partition)
    first, value = columns[0]
    side = "partition" if first == places[0] else "row" if first == places[1] else ""
    if side:
        bound: Bound = getattr(key_range, side)
        above = bound.hi is not None and value >= bound.hi
        below = value < bound.lo
        if above if down else below:
            return KeysetCondition(key_range)
        if below if down else above:
            return None
        change: dict[str, Any] = {side: Bound(bound.lo, None) if down else Bound("", bound.hi)}
        key_range = attrs.evolve(key_range, **change)
    op = ("<" if down else ">") + ("=" if ties_follow else "")
    names, args = zip(*columns, strict=True)
    return KeysetCondition(key_range, f"({', '.join(names)}) {op} ({', '.join('?' * len(names))})", args)


def after_sql(steps: list[SortStep], missing: tuple[bool, ...], ties: list[str], tie_op: str, at: int = 0) -> str:
    """Return the condition that a row comes after a position in the sort order; a value that is missing sorts first."""
    if at == len(steps):
        return f"({', '.join(ties)}) {tie_op} (?, ?)"
    column = f"s{at}"
    if missing[at]:
        follows = "FALSE" if steps[at].descending else f"{column} IS NOT NULL"
        equal = f"{column} IS NULL"
    else:
        follows = f"{column} < ? OR {column} IS NULL" if steps[at].descending else f"{column} > ?"
        equal = f"{column} = ?"
    return f"({follows} OR ({equal} AND {after_sql(steps, missing, ties, tie_op, at + 1)}))"


def after_arguments(after: Position, steps: int) -> list[Any]:
    """Return the arguments of `after_sql`: each sort value that is not missing twice, then the entity's key."""
    return [*(value for value in after[:steps] if value is not None for _ in range(2)), *after[-2:]]
