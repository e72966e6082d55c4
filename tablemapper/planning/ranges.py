"""Key ranges of a plan with values: disjoint, in key order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from math import prod
from typing import Any

import attrs

from ..datetime_types import Builtin
from ..expressions.tree import Parameter
from ..keys.template import Slot
from ..keys.times import UNITS, first_moment
from ..schema.rows import Row
from .bounds import EVERYTHING, Bound, KeyBounds
from .conditions import Comparison, Edge, edges
from .plan import MAX_RANGES, PathBounds, Plan

Values = Sequence[Any]
Keys = tuple[str, str]


class TooManyRanges(Exception):
    """A range of times has more buckets than are read one by one: plan again without."""


@attrs.define  # (not frozen: one is built for each query, three times as fast)
class KeyRange:
    """Rows of a table between two bounds: of one partition, or all those of an interval of partitions."""

    partition: Bound
    row: Bound = EVERYTHING
    entities: tuple[Keys | None, Keys | None] | None = None
    """Of the rows of one key of an index: the entities' keys from the first on, before the second."""
    front: Keys = attrs.field(default=("", ""), eq=False)
    """What both keys of all its rows begin with, as far as a merge leaves it out."""

    @property
    def start(self) -> tuple[str, ...]:
        """The place before which no row is."""
        return (self.partition.lo, self.row.lo, *((self.entities and self.entities[0]) or ()))

    def __str__(self) -> str:
        if not self.partition.point:
            return f"partitions {_interval(self.partition)}"
        row = self.row
        if row == EVERYTHING:
            return f"partition {self.partition.lo!r}"
        text = f"partition {self.partition.lo!r}, " + (f"row {row.lo!r}" if row.point else f"rows {_interval(row)}")
        if self.entities is None:
            return text
        low, high = ("…" if key is None else repr(key) for key in self.entities)
        return f"{text}, entities [{low}, {high})"


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
    whole: tuple[KeyRange, ...] | None = None
    """The ranges of all parts, if these are those of one."""

    def range_of(self, place: Sequence[Any]) -> KeyRange:
        """Return the range in which a row of the path is."""
        return next(keys for keys in self.ranges if keys.partition.holds(place[0]) and keys.row.holds(place[1]))

    def fronts(self) -> dict[Keys, BoundPlan]:
        """Return the ranges that are read one after the other, by what their keys begin with."""
        groups: dict[Keys, list[KeyRange]] = {}
        for keys in self.ranges:
            groups.setdefault(keys.front, []).append(keys)
        return {front: BoundPlan(self.plan, tuple(ranges), self.values, self.whole) for front, ranges in groups.items()}

    def holds(self, entries: Iterable[Row]) -> bool:
        """Return whether one of some rows of the path, which begin with keys, is between the bounds of all parts."""
        ranges = self.ranges if self.whole is None else self.whole
        return any(keys.partition.holds(row[0]) and keys.row.holds(row[1]) for row in entries for keys in ranges)


def bind(plan: Plan, values: Values) -> BoundPlan:
    """Return a plan with values.

    Raises:
        TooManyRanges
    """
    if len(plan.accesses) == 1 and not (access := plan.accesses[0]).several:
        try:
            equal = {name: values[number.number] for name, number in access.equal.items()}
            partition = _compared(access.partition, access, values)
            ranges = tuple(_range(access, equal, partition, _compared(access.row, access, values)))
        except _NoTime:
            ranges = ()
        return BoundPlan(plan, ranges, values)
    fronts: dict[Keys, list[KeyRange]] = {}
    for access in plan.accesses:
        for keys in _ranges(access, values, plan.merged):
            fronts.setdefault(keys.front, []).append(keys)
    disjoint = [keys for front, ranges in fronts.items() for keys in _disjoint(ranges, front)]
    return BoundPlan(plan, tuple(sorted(disjoint, key=lambda keys: (keys.partition.lo, keys.row.lo))), values)


Compared = tuple[str, Any]


def _compared(reach: KeyBounds | None, access: PathBounds, values: Values) -> list[Compared]:
    if reach is None or not reach.ops or reach.slot is None:
        return []
    return list(_with_values(access.compared[reach.slot.field], values))


def _with_values(compared: Iterable[Comparison], values: Values) -> Iterator[Compared]:
    """Yield comparisons with their values."""
    for op, number in compared:
        if not isinstance(number, Edge):
            yield op, values[number.number]
        elif (moment := number.moment(values)) is not None:
            yield op, moment
        elif op == "<":  # (after all times)
            yield "<=", _LATEST
        else:
            raise _NoTime


_LATEST = Builtin.datetime.max.replace(tzinfo=UTC)


class _NoTime(Exception):
    """No time satisfies a comparison."""


def _ranges(access: PathBounds, values: Values, merged: int) -> Iterator[KeyRange]:
    """Yield a range for each combination of alternatives, shards and time buckets."""
    equal = {name: values[number.number] for name, number in access.equal.items()}
    names = [name for name, _ in access.among]
    among = [list(dict.fromkeys(_values(numbers, values))) for _, numbers in access.among]
    windows = [
        [
            (name, part, kind, number)
            for number in {values[parameter.number]: parameter for parameter in numbers}.values()
        ]
        for name, part, kind, numbers in access.windows
    ]
    limit = MAX_RANGES // max(prod(map(len, (*among, *windows))), 1)
    for buckets in product(*windows):
        steps = {name: list(comparisons) for name, comparisons in access.compared.items()}
        for name, part, kind, number in buckets:
            steps.setdefault(name, []).extend(edges("==", part, number, kind))
        try:
            compared = {name: list(_with_values(comparisons, values)) for name, comparisons in steps.items()}
        except _NoTime:
            continue
        first, second = (
            [] if reach is None or reach.range_field is None else compared[reach.range_field]
            for reach in (access.partition, access.row)
        )
        spreads = list(_texts(access.spread, compared, limit))
        for combination in product(*among):
            assigned = {**equal, **dict(zip(names, combination, strict=True))}
            for texts in spreads:
                within = second if not texts else list(_within(access, second, texts))
                for keys in _range(access, assigned, first, within, texts):
                    if merged:
                        keys.front = access.front(merged, keys.partition, assigned, texts)
                    yield keys


def _within(access: PathBounds, compared: list[Compared], texts: Mapping[int, str]) -> Iterator[Compared]:
    """Yield the comparisons that tell the times of one bucket apart: it is the one that the value is in."""
    slot = None if access.row is None else access.row.slot
    if slot is None or not slot.continues:
        yield from compared
        return
    front = [spread_slot for spread_slot in access.spread if spread_slot.field == slot.field]
    for op, value in compared:
        if _begins(op, value, front[-1]):
            continue  # (the bucket begins with it, or is a later one)
        if all(texts[spread_slot.index] == spread_slot.text.encode(value) for spread_slot in front):
            yield op, value


def _values(numbers: tuple[Parameter, ...], values: Values) -> list[Any]:
    return [values[number.number] for number in numbers]


def _range(
    access: PathBounds,
    equal: Mapping[str, Any],
    first: list[Compared],
    second: list[Compared],
    texts: Mapping[int, str] | None = None,
) -> Iterable[KeyRange]:
    partition = access.partition.bound(equal, first, texts)
    if access.edge is not None and not partition.empty:
        return _with_edges(access, access.edge, partition, equal, first, texts)
    row = EVERYTHING if access.row is None else access.row.bound(equal, second)
    return () if partition.empty or row.empty else (KeyRange(partition, row),)


def _with_edges(
    access: PathBounds,
    edge: KeyBounds,
    partition: Bound,
    equal: Mapping[str, Any],
    compared: list[Compared],
    texts: Mapping[int, str] | None,
) -> Iterator[KeyRange]:
    """Yield an interval of times, or of texts, as parts of the partitions at its edges, and whole ones between."""
    last_slot = access.partition.run[-1]
    assert isinstance(last_slot, Slot)
    edges: dict[str, list[Compared]] = {}
    for op, value in compared:
        bucket = None if _begins(op, value, last_slot) else access.partition.bucket(equal, value, texts)
        if bucket is not None and partition.holds(bucket):
            edges.setdefault(bucket, []).append((op, value))
    low = partition.lo
    for bucket, comparisons in sorted(edges.items()):
        if low < bucket:
            yield KeyRange(Bound(low, bucket))
        if not (row := edge.bound({}, comparisons)).empty:
            yield KeyRange(Bound(bucket, None, True), row)
        low = bucket + " "  # (the least that is above a key)
    if partition.hi is None or low < partition.hi:
        yield KeyRange(Bound(low, partition.hi))


def _begins(op: str, value: Any, slot: Slot) -> bool:
    """Return whether a comparison leaves nothing out of the bucket of its value: that begins with it."""
    if op == "startswith":
        return len(value) <= slot.text.head
    value = slot.text.plain(value)
    return op == ">=" and isinstance(value, datetime) and first_moment(value, slot.interval) == value


def _texts(spread: tuple[Slot, ...], compared: Mapping[str, list[Compared]], limit: int) -> Iterator[dict[int, str]]:
    """Yield the texts of slots whose field is unknown, but can have few texts."""
    options: list[list[dict[int, str]]] = []
    times: dict[str, list[Slot]] = {}
    for slot in spread:
        if slot.buckets:
            options.append([{slot.index: text} for text in slot.buckets])
        else:
            times.setdefault(slot.field, []).append(slot)
    for field, slots in times.items():
        options.append(_buckets(slots, compared[field], limit))
    if prod(map(len, options)) > limit:
        raise TooManyRanges
    for combination in product(*options):
        yield {index: text for texts in combination for index, text in texts.items()}


def _buckets(slots: list[Slot], compared: list[Compared], limit: int) -> list[dict[int, str]]:
    """Return the texts of the slots of one time, for each bucket that satisfies comparisons."""
    finest = max(slots, key=lambda slot: list(UNITS).index(slot.text.unit))
    moments = finest.text.moments_between(compared, limit)
    if moments is None:
        raise TooManyRanges
    texts = dict.fromkeys(tuple([slot.text.encode(moment) for slot in slots]) for moment in moments)
    return [{slot.index: text for slot, text in zip(slots, slot_texts, strict=True)} for slot_texts in texts]


def _disjoint(ranges: list[KeyRange], front: Keys) -> Iterator[KeyRange]:
    """Yield the same rows in ranges that do not overlap; all their keys begin alike."""
    points: dict[str, list[Bound]] = {}
    spans: list[Bound] = []
    for keys in ranges:
        if keys.partition.point:
            points.setdefault(keys.partition.lo, []).append(keys.row)
        else:
            spans.append(keys.partition)
    wide = list(_united(spans))
    yield from (KeyRange(span, front=front) for span in wide)
    for partition, rows in points.items():
        if not any(span.holds(partition) for span in wide):
            yield from (KeyRange(Bound(partition, None, True), row, front=front) for row in _united(rows))


def _united(bounds: list[Bound]) -> Iterator[Bound]:
    """Yield bounds of the same keys, disjoint and in order."""
    merged: Bound | None = None
    for bound in sorted(bounds, key=lambda bound: (bound.lo, bound.point)):
        if merged is None:
            merged = bound
        elif merged.point:
            if bound.lo != merged.lo:
                yield merged
                merged = bound
            elif not bound.point:
                merged = bound
        elif merged.hi is None or bound.lo < merged.hi:
            if not bound.point and merged.hi is not None and (bound.hi is None or bound.hi > merged.hi):
                merged = attrs.evolve(merged, hi=bound.hi)
        else:
            yield merged
            merged = bound
    if merged is not None:
        yield merged
