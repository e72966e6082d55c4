"""Statistics of a class in a store: of its entities, its partitions and its indexes."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar, runtime_checkable

import attrs

from ..datetime_types import Builtin
from ..keys.template import Template
from ..planning.cost import Prices, bytes_text, money_text
from ..progress import Meter
from ..schema.model import Model

T = TypeVar("T")
_EPOCH = Builtin.datetime(1970, 1, 1, tzinfo=UTC)
_SMALL = 65_537  # sizes that are counted exactly are below
_SHOWN_PARTITIONS = 3  # partitions of a line
_SAMPLE = 1_024  # partitions
_TIMES, _TIMES_OF_DAYS, _DAYS = 1_000, 30, 7 * 86_400_000_000  # of writes; µs


@attrs.frozen
class Quantiles:
    """The spread of numbers: half of them are at most ``p50``, 95 % at most ``p95``. All 0 if there are none."""

    min: int = 0
    p50: int = 0
    p95: int = 0
    p99: int = 0
    max: int = 0
    mean: float = 0.0


@attrs.frozen
class PartitionStatistics:
    """One partition."""

    key: str
    """The partition key, as it is stored."""
    values: dict[str, Any]
    """The fields that the key gives back."""
    entities: int
    bytes: int
    writes: int
    """Moments of recent writes, see `Statistics`."""
    newest: datetime | None
    """The last write; None for the rows of an index, which have no time of their own."""


@attrs.frozen
class PartitionSummary:
    """The partitions of a class or an index."""

    number: int = 0
    entities: Quantiles = Quantiles()
    """How many a partition has, exactly."""
    largest: tuple[PartitionStatistics, ...] = ()
    """Those with the most entities; of equal ones the first by key."""
    smallest: PartitionStatistics | None = None
    hottest: tuple[PartitionStatistics, ...] = ()
    """Those with the most recent writes, if there are any."""
    write_order: float | None = None
    """How far the last writes of partitions are in the order of their keys: 1 in order, 0 in none, -1 in reverse.

    None if it cannot be told: it takes partitions written at 1,000 different times, or at 30 in seven days or more."""


@attrs.frozen
class IndexStatistics:
    """The rows of an index, and their partitions, of which no writes are known."""

    rows: int = 0
    bytes: int = 0
    """Keys, the entity's key, included properties."""
    partitions: PartitionSummary = PartitionSummary()
    max_rows: int = 0
    """The most rows of one entity, in an index over the elements of a list."""
    max_rows_key: tuple[str, str] | None = None
    """The key of that entity."""


@attrs.frozen
class Statistics:
    """The statistics of a class in a store, at one moment. Sizes are those that Azure Tables counts.

    Writes are counted in moments: an entity keeps the time of its last write only, and all that one transaction writes
    has the same time. Deletes leave none.
    """

    model: str
    at: datetime
    entities: int
    bytes: int
    """The sum of `tablemapper.size` over the entities."""
    total_bytes: int
    """With the rows of its indexes."""
    sizes: Quantiles
    """Of entities in bytes: ``p50`` to ``p99`` within 7 % where they are above 64 KiB, the others exactly."""
    largest_key: tuple[str, str] | None
    """The key of the largest entity, if that has more than 64 KiB."""
    partitions: PartitionSummary
    writes: int
    """Moments within the recent time."""
    busiest: int
    """The most moments in one second of it."""
    newest: datetime | None
    """The last write; None if there is no entity."""
    indexes: Mapping[str, IndexStatistics]
    """Of each index that is ready, by name."""
    recent: timedelta = timedelta(hours=1)
    """What counts as recent: as long before ``at``."""

    def price(self, prices: Prices | None = None) -> float:
        """Return the price of ``total_bytes`` on Azure, a month."""
        return (prices or Prices()).of_storage(self.total_bytes)

    def __str__(self) -> str:
        if not self.entities:
            return f"{self.model}  no entities"
        prices, parts = Prices(), self.partitions
        of_indexes = f", with indexes {bytes_text(self.total_bytes)}" if self.indexes else ""
        number = _partitions(parts.number)
        entities = f"{self.entities:,} entit{'y' if self.entities == 1 else 'ies'}"
        price = f"{money_text(self.price(prices))} {prices.currency} a month on Azure ({prices.as_of})"
        lines = [f"{self.model}  {entities} in {number}, {bytes_text(self.bytes)}{of_indexes}; {price}"]
        lines.append(f"  partitions  {_spread(parts.entities)} entities (min, median, p95, max)")
        largest = "   ".join([f"{part.key}  {part.entities:,}" for part in parts.largest[:_SHOWN_PARTITIONS]])
        lines.append(f"  largest     {largest}{' …' if len(parts.largest) > _SHOWN_PARTITIONS else ''}")
        if parts.hottest:
            within = "hour" if self.recent == timedelta(hours=1) else str(self.recent)
            partition = parts.hottest[0]
            lines.append(
                f"  hottest     {partition.key}  {partition.writes:,} write{'' if partition.writes == 1 else 's'} in the last {within}; {self.busiest:,} in the busiest second of the class"
            )
        lines.append(f"  entities    {_spread(self.sizes)} bytes")
        for name, index in self.indexes.items():
            rows = f"{index.rows:,} row{'' if index.rows == 1 else 's'}"
            lines.append(f"  {name}  {rows} in {_partitions(index.partitions.number)}, {bytes_text(index.bytes)}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as builtin types that JSON can represent; values of partition keys as text."""
        return attrs.asdict(self, value_serializer=_plain)


def _plain(_: object, attribute: Any, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if attribute is not None and attribute.name == "values":
        return {name: item if isinstance(item, str | int | float | bool) else str(item) for name, item in value.items()}
    return value


def _partitions(number: int) -> str:
    return f"{number:,} partition{'' if number == 1 else 's'}"


def _spread(numbers: Quantiles) -> str:
    return f"{numbers.min:,} … {numbers.p50:,} … {numbers.p95:,} … {numbers.max:,}"


@runtime_checkable
class SupportsStatistics(Protocol):
    """An engine that has statistics."""

    def statistics(self, model: Model, recent: timedelta, top: int, meter: Meter) -> Statistics:
        """Return the statistics of a class, all of one state of the store.

        Args:
            recent: how long before now a write is recent.
            top: how many partitions are named.
            meter: counts each entity and each index row.

        Raises:
            NotReady: it is an aggregate that is being built.
        """
        ...


# ---------------------------------------------------------------------------------------------------------- counting


def quantiles(counts: Mapping[int, int]) -> Quantiles:
    """Return how numbers are spread, from how often each is there."""
    number = sum(counts.values())
    if not number:
        return Quantiles()
    ordered = sorted(counts.items())
    total = sum(value * count for value, count in ordered)
    p50, p95, p99 = (_rank(ordered, number, part) for part in (50, 95, 99))
    return Quantiles(ordered[0][0], p50, p95, p99, ordered[-1][0], total / number)


def _rank(ordered: Iterable[tuple[int, int]], number: int, part: int) -> int:
    remaining = math.ceil(number * part / 100)
    return next(value for value, count in ordered if (remaining := remaining - count) <= 0)


class Sizes:
    """Sizes, counted: each below 64 KiB exactly, others in cells of an eighth of an octave."""

    def __init__(self) -> None:
        self._small = [0] * _SMALL
        self._large: Counter[int] = Counter()
        self._least = self._most = 0  # of the large ones

    def add(self, size: int) -> int:
        """Count a size, and return it."""
        try:
            self._small[size] += 1
        except IndexError:
            octave = size.bit_length()
            self._large[(2 * (size << 4 >> octave) + 1) << octave >> 5] += 1  # (the middle of its cell)
            self._most = max(self._most, size)
            self._least = min(self._least or size, size)
        return size

    @property
    def most(self) -> int:
        """The largest; 0 if there is none."""
        return self._most or next((size for size in range(_SMALL - 1, 0, -1) if self._small[size]), 0)

    def quantiles(self, total: int) -> Quantiles:
        """Return how they are spread, from their sum."""
        of_values = quantiles({size: count for size, count in enumerate(self._small) if count} | self._large)
        if not self._large:
            return of_values
        between = {
            name: min(max(getattr(of_values, name), of_values.min), self._most) for name in ("p50", "p95", "p99")
        }
        least = min(of_values.min, self._least) if of_values.min < _SMALL else self._least
        number = sum(self._small) + self._large.total()
        return attrs.evolve(of_values, min=least, max=self._most, mean=total / number, **between)


@attrs.frozen
class PartitionCount:
    """One partition, as an engine counted it."""

    key: str
    entities: int
    bytes: int
    writes: int = 0
    newest: int = 0
    """In µs."""


def recent_since(now: datetime, recent: timedelta) -> int:
    """Return from when on a write is recent, in µs."""
    return max((now - min(recent, now - _EPOCH) - _EPOCH) // timedelta(microseconds=1), 0)


def time_of(moment: int) -> datetime | None:
    """Return the time of a write, given in µs; None for 0."""
    return _EPOCH + timedelta(microseconds=moment) if moment else None


def partitions_of(counts: Iterable[PartitionCount], template: Template, top: int) -> tuple[PartitionSummary, int, int]:
    """Return the partitions of a class, from all of them in the order of their keys, and the sums of entities and bytes.

    Args:
        top: how many are named.
    """

    def statistics_of(partition: PartitionCount) -> PartitionStatistics:
        values = template.decode(partition.key, trusted=True)
        return PartitionStatistics(
            partition.key, values, partition.entities, partition.bytes, partition.writes, time_of(partition.newest)
        )

    spread: Counter[int] = Counter()
    largest, hottest, order = _Most(top), _Most(top), _WriteOrder()
    smallest: PartitionCount | None = None
    size = 0
    for partition in counts:
        spread[partition.entities] += 1
        size += partition.bytes
        largest.add(partition.entities, partition)
        if partition.newest:
            order.add(partition.newest)
        if partition.writes:
            hottest.add(partition.writes, partition)
        if smallest is None or partition.entities < smallest.entities:
            smallest = partition
    entities = sum(value * count for value, count in spread.items())
    parts = PartitionSummary(
        spread.total(), quantiles(spread), tuple(map(statistics_of, largest.sorted())), None if smallest is None else statistics_of(smallest),
        tuple(map(statistics_of, hottest.sorted())), order.value,
    )  # fmt: skip
    return parts, entities, size


class _WriteOrder:
    """The correlation of last writes with the order of keys: Kendall's, by rank, of a sample of partitions."""

    def __init__(self) -> None:
        self._sample: list[int] = []
        self._number = 0
        self._stride = 1  # each partition of so many is in the sample
        self._times = 0  # that differ from the one before
        self._last_time = self._first = self._latest = 0

    def add(self, newest: int) -> None:
        if newest != self._last_time:
            self._times += 1
            self._last_time = newest
            self._first = min(self._first or newest, newest)
            self._latest = max(self._latest, newest)
        if self._number % self._stride == 0:
            self._sample.append(newest)
            if len(self._sample) > _SAMPLE:
                del self._sample[1::2]
                self._stride *= 2
        self._number += 1

    @property
    def value(self) -> float | None:
        long = self._times >= _TIMES_OF_DAYS and self._latest - self._first >= _DAYS
        if self._times < _TIMES and not long:
            return None
        up = down = 0
        earlier: list[int] = []  # (sorted)
        for newest in self._sample:
            at = bisect_left(earlier, newest)
            up += at
            down += len(earlier) - bisect_right(earlier, newest, at)
            earlier.insert(at, newest)
        return (up - down) / (up + down or 1)


class _Most:
    """The few with the highest numbers; of equal ones those that came first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._number = 0
        self._heap: list[tuple[int, int, PartitionCount]] = []

    def add(self, number: int, partition: PartitionCount) -> None:
        self._number -= 1
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, (number, self._number, partition))
        elif self._heap and number > self._heap[0][0]:
            heapq.heapreplace(self._heap, (number, self._number, partition))

    def sorted(self) -> list[PartitionCount]:
        return [partition for *_, partition in sorted(self._heap, key=lambda entry: (-entry[0], -entry[1]))]
