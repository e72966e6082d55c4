"""Parts of a query: the rows of one path from one place on, up to another one.

The places are texts of keys, so every row is in one part, whoever writes it and when.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import attrs

from .bounds import Bound
from .ranges import BoundPlan, KeyRange

KeyPosition: TypeAlias = tuple[str, ...]
"""The keys of a row of a path: those of the path, and of an index those of the entity too."""


@attrs.frozen
class QueryPart:
    """The rows of a path from one place on, before another one."""

    index: str | None
    """The index that is followed; None for the key."""
    low: KeyPosition | None = None
    high: KeyPosition | None = None
    partition: str | None = None
    """The key of the one partition that it is in, if that is given."""

    @classmethod
    def of(cls, form: Sequence[Any]) -> QueryPart:
        """Return the part of which a token has the four."""
        index, low, high, partition = form
        return cls(index, low and tuple(low), high and tuple(high), partition)

    @property
    def form(self) -> tuple[str | None, bool]:
        """The shape of a part, on which its plan depends: the index, and whether the partition is given."""
        return self.index, self.partition is not None

    def __str__(self) -> str:
        if self.partition is not None and self.low is self.high is None:
            return f"partition {self.partition!r}"
        low, high = ("…" if place is None else repr(place) for place in (self.low, self.high))
        return f"part [{low}, {high})"


def narrowed(bound: BoundPlan, part: QueryPart) -> BoundPlan:
    """Return a plan that reads of its ranges what is in a part."""
    ranges: Iterable[KeyRange] = bound.ranges
    if part.partition is not None:  # (of which the plan has the rows)
        ranges = [attrs.evolve(keys, partition=Bound(part.partition, None, True)) for keys in ranges]
    if part.low is not None:
        ranges = [piece for keys in ranges for piece in _split(keys, part.low) if piece.start >= part.low]
    if part.high is not None:
        ranges = [piece for keys in ranges for piece in _split(keys, part.high) if piece.start < part.high]
    return attrs.evolve(bound, ranges=tuple(ranges), whole=bound.ranges)


def _split(keys: KeyRange, place: KeyPosition) -> Iterator[KeyRange]:
    """Yield the rows of a range in pieces: each is before a place, or from there on."""
    partition, row, *entity = place
    for at in _cut(keys.partition, partition):
        if not at.point or at.lo != partition:
            yield attrs.evolve(keys, partition=at)
            continue
        for rows in _cut(keys.row, row):
            if not entity or not rows.point or rows.lo != row:
                yield attrs.evolve(keys, partition=at, row=rows)
                continue
            low, high = keys.entities or (None, None)
            middle: Any = tuple(entity)
            inside = (low is None or low < middle) and (high is None or middle < high)
            for entities in ((low, middle), (middle, high)) if inside else ((low, high),):
                yield attrs.evolve(keys, partition=at, row=rows, entities=entities)


def _cut(bound: Bound, key: str) -> Iterator[Bound]:
    """Yield a bound in pieces: what is below a key, the key itself, and what is above it."""
    if bound.point or not bound.holds(key):
        yield bound
        return
    if bound.lo < key:
        yield Bound(bound.lo, key)
    yield Bound(key, None, True)
    if bound.hi is None or key + " " < bound.hi:
        yield Bound(key + " ", bound.hi)
