"""Skips from partition to partition: each follows the one before in key order, and some are passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

import attrs

from ..keys.encodings import SEPARATOR, raise_last
from .bounds import Bound
from .ranges import BoundPlan


@attrs.frozen
class SkipScan:
    """The partitions of a plan, in the order in which they are read."""

    backwards: bool
    front: int = 0
    """How many characters of the keys are fixed."""
    end: int | None = None
    """Where the component ends that these end in. If another one ends elsewhere, it holds other values."""

    @classmethod
    def of(cls, bound: BoundPlan) -> Self:
        """Return the walk of a plan with values."""
        access = bound.plan.accesses[0]
        if (tail_length := access.partition.rest) is None:
            return cls(bound.plan.descending)
        equal = {name: bound.values[number.number] for name, number in access.equal.items()}
        front = len(access.partition.front(equal, None))
        return cls(bound.plan.descending, front, front + tail_length)

    def partitions(self, bound: Bound, find: Callable[[Bound], str | None]) -> Iterator[str]:
        """Yield the partition keys in a bound.

        Args:
            find: returns the first key in a bound, or the last one if that is the direction.
        """
        while (key := find(bound)) is not None:
            beyond: str | None
            if is_match := self.holds(key):
                yield key
            if self.backwards:
                # (Keys that hold our values, and begin as this one does, go on with a separator or not at all.)
                beyond = key if is_match else min(key, key[: self.end] + SEPARATOR[0] + '"')
                bound = Bound(bound.lo, beyond)
            else:
                beyond = key + " " if is_match or len(key) <= (self.end or 0) else raise_last(key[: self.end])
                if beyond is None:
                    return
                bound = Bound(beyond, bound.hi)

    def holds(self, key: str) -> bool:
        """Return whether a partition in the bounds is one of the plan's own."""
        if self.end is None:
            return True
        at = key.find(SEPARATOR, self.front)
        return self.end == (len(key) if at < 0 else at)


@attrs.frozen(order=False)
class Descending:
    """A value that sorts in the opposite order."""

    value: Any

    def __lt__(self, other: Descending) -> bool:
        return bool(other.value < self.value)
