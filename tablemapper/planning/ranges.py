"""From a plan and values to the ranges of keys that are read: disjoint, in key order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import attrs

from ..expressions.tree import Parameter
from ..keys.template import Slot
from ..schema.rows import Row
from .bounds import EVERYTHING, Bound, Reach
from .plan import MAX_RANGES, Access, Plan

__all__ = ["BoundPlan", "KeyRange", "TooManyRanges", "bind"]

Values = Sequence[Any]


class TooManyRanges(Exception):
    """A range of times has more buckets than are read one by one: plan again without."""


@attrs.define  # (not frozen: one is built for each query, three times as fast)
class KeyRange:
    """Rows of a table between two bounds: of one partition, or all those of an interval of partitions."""

    partition: Bound
    row: Bound = EVERYTHING

    def __str__(self) -> str:
        if not self.partition.point:
            return f"partitions {_interval(self.partition)}"
        row = self.row
        if row == EVERYTHING:
            return f"partition {self.partition.lo!r}"
        return f"partition {self.partition.lo!r}, " + (f"row {row.lo!r}" if row.point else f"rows {_interval(row)}")


def _interval(bound: Bound) -> str:
    return f"[{repr(bound.lo) if bound.lo else '…'}, {'…' if bound.hi is None else repr(bound.hi)})"


@attrs.define(eq=False)  # (not frozen, as key ranges)
class BoundPlan:
    """A plan with the values of one query."""

    plan: Plan
    ranges: tuple[KeyRange, ...]
    """Disjoint, in key order."""
    values: Values
    """Of the parameters."""

    def holds(self, entries: Iterable[Row]) -> bool:
        """Return whether one of some rows of the path, which begin with its keys, is between the bounds."""
        return any(one.partition.holds(row[0]) and one.row.holds(row[1]) for row in entries for one in self.ranges)


def bind(plan: Plan, values: Values) -> BoundPlan:
    """Return a plan with values.

    Raises:
        TooManyRanges
    """
    if len(plan.accesses) == 1 and not (access := plan.accesses[0]).several:
        one = _range(access, *_known(access, values))
        return BoundPlan(plan, () if one is None else (one,), values)
    ranges = [one for access in plan.accesses for one in _ranges(access, values)]
    return BoundPlan(plan, tuple(_disjoint(ranges)), values)


Known = tuple[dict[str, Any], list[tuple[str, Any]], list[tuple[str, Any]]]


def _known(access: Access, values: Values) -> Known:
    """Return the values of fields, and what the next slots of the partition and of the row are compared with."""
    known = {name: values[number.number] for name, number in access.equal.items()}
    return known, _compared(access.partition, access, values), _compared(access.row, access, values)


def _compared(reach: Reach | None, access: Access, values: Values) -> list[tuple[str, Any]]:
    if reach is None or not reach.ops or reach.slot is None:
        return []
    return [(op, values[number.number]) for op, number in access.compared[reach.slot.field]]


def _ranges(access: Access, values: Values) -> Iterator[KeyRange]:
    """Yield a range for each combination of alternatives, shards and time buckets."""
    known, first, second = _known(access, values)
    names = [name for name, _ in access.among]
    count = 1
    for _, numbers in access.among:
        count *= len(numbers)
    compared = {name: [(op, values[number.number]) for op, number in steps] for name, steps in access.compared.items()}
    spreads = list(_texts(access.spread, compared, MAX_RANGES // max(count, 1)))
    for some in product(*(dict.fromkeys(_values(numbers, values)) for _, numbers in access.among)):
        every = {**known, **dict(zip(names, some, strict=True))}
        for texts in spreads:
            if (one := _range(access, every, first, second, texts)) is not None:
                yield one


def _values(numbers: tuple[Parameter, ...], values: Values) -> list[Any]:
    return [values[number.number] for number in numbers]


def _range(
    access: Access,
    known: Mapping[str, Any],
    first: list[tuple[str, Any]],
    second: list[tuple[str, Any]],
    texts: Mapping[int, str] | None = None,
) -> KeyRange | None:
    partition = access.partition.bound(known, first, texts)
    row = EVERYTHING if access.row is None else access.row.bound(known, second)
    return None if partition.empty or row.empty else KeyRange(partition, row)


def _texts(
    spread: tuple[Slot, ...], compared: Mapping[str, list[tuple[str, Any]]], limit: int
) -> Iterator[dict[int, str]]:
    """Yield what stands in the slots of which the field is unknown, but not many texts are possible."""
    options: list[Sequence[str]] = []
    for slot in spread:
        texts: Sequence[str] | None = slot.buckets
        if not texts:
            texts = slot.buckets_between(compared[slot.field], limit)
        if texts is None or (limit := limit // max(len(texts), 1)) < 1:
            raise TooManyRanges
        options.append(texts)
    for some in product(*options):
        yield {slot.index: text for slot, text in zip(spread, some, strict=True)}


def _disjoint(ranges: list[KeyRange]) -> Iterator[KeyRange]:
    """Yield the same rows in ranges that do not overlap, in key order."""
    points: dict[str, list[Bound]] = {}
    spans: list[Bound] = []
    for one in ranges:
        if one.partition.point:
            points.setdefault(one.partition.lo, []).append(one.row)
        else:
            spans.append(one.partition)
    wide = list(_united(spans))
    parts = [KeyRange(span) for span in wide]
    for partition, rows in points.items():
        if not any(span.holds(partition) for span in wide):
            parts += [KeyRange(Bound(partition, None, True), row) for row in _united(rows)]
    yield from sorted(parts, key=lambda one: (one.partition.lo, one.row.lo))


def _united(bounds: list[Bound]) -> Iterator[Bound]:
    """Yield bounds of the same keys, disjoint and in order."""
    held: Bound | None = None
    for one in sorted(bounds, key=lambda bound: (bound.lo, bound.point)):
        if held is None:
            held = one
        elif held.point:
            if one.lo != held.lo:
                yield held
                held = one
            elif not one.point:
                held = one
        elif held.hi is None or one.lo < held.hi:
            if not one.point and held.hi is not None and (one.hi is None or one.hi > held.hi):
                held = attrs.evolve(held, hi=one.hi)
        else:
            yield held
            held = one
    if held is not None:
        yield held
