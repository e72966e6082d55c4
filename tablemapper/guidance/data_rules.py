"""The rules over what a store holds: a function for each code, and tables of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

from ..engines.statistics import IndexStatistics, PartitionSummary, Statistics
from ..planning.cost import bytes_text
from .declaration_rules import RuleFinding
from .keys_and_indexes import KeyOrIndex, component, first_mend, is_time, parts_of

_MOST = 10_000_000  # entities of a partition
_MANY = 100_000  # entities of a class, from which on it matters how they are spread
_PARTITIONS = 10
_MOMENTS = 1_000  # of recent writes, from which on it matters; and in one second
_SMALL = 10_000  # entities of a class, below which one partition or few are no matter yet
_LARGE, _LARGE_P99 = 512 * 1024, 64 * 1024  # bytes
_ROWS = 50  # of one entity in one index


def _split(place: KeyOrIndex) -> str | None:
    """Return the key with partitions that are divided further: by the time in their rows, or by shards."""
    parts, rows = parts_of(place.partition), place.row.slots
    times = [component(slot.field, "%Y-%m") for slot in rows if is_time(slot)]
    shards = [component(slot.field, "shard(8)") for slot in rows]
    mend = first_mend(place.changed((*parts, one)) for one in (*times, *shards))
    return None if mend is None else mend.declaration()


def large_partition(place: KeyOrIndex, held: Statistics) -> RuleFinding | None:
    """TM101: a partition has very many entities, or most of them."""
    parts = held.partitions
    largest = next(iter(parts.largest), None)
    if largest is None:
        return None
    most_of_them = held.entities >= _MANY and parts.number >= _PARTITIONS and largest.entities * 2 > held.entities
    if largest.entities <= _MOST and not most_of_them:
        return None
    return RuleFinding(
        "warning" if largest.entities > _MOST else "note",
        f"the partition {largest.key!r} has {largest.entities:,} of {held.entities:,} entities",
        "On Azure Tables one server serves a partition; a query of the whole of it takes a request for each 1,000.",
        "Divide it, by time or by shards behind the field: a query then reads a range for each part.",
        _split(place), {"entities": largest.entities, "share": largest.entities / held.entities, "partition": largest.key},
        of_key=True,
    )  # fmt: skip


def hot_partition(place: KeyOrIndex, held: Statistics) -> RuleFinding | None:
    """TM102: most recent writes went to one partition."""
    parts = held.partitions
    hottest = next(iter(parts.hottest), None)
    if hottest is None or held.writes < _MOMENTS or parts.number < _PARTITIONS or hottest.writes * 2 <= held.writes:
        return None
    return RuleFinding(
        "warning" if held.busiest >= _MOMENTS else "note",
        f"the partition {hottest.key!r} got {hottest.writes:,} of {held.writes:,} writes of the last {held.recent}",
        "On Azure Tables a partition takes about 2,000 entities a second, and is never split.",
        "Divide it, by time or by shards behind the field: a query then reads a range for each part.",
        _split(place),
        {"writes": hottest.writes, "share": hottest.writes / held.writes, "busiest": held.busiest, "partition": hottest.key},
        of_key=True,
    )  # fmt: skip


def large_entities(place: KeyOrIndex, held: Statistics) -> RuleFinding | None:
    """TM104: entities are large."""
    sizes = held.sizes
    if sizes.max <= _LARGE and sizes.p99 <= _LARGE_P99:
        return None
    key = {} if held.largest_key is None else {"key": " ".join(held.largest_key)}
    return RuleFinding(
        "note", f"the largest entity has {bytes_text(sizes.max)}, and one of a hundred {bytes_text(sizes.p99)} or more",
        "Each read of an entity takes all of it, and on Azure Tables it may have 1 MiB.",
        "Put the large value into a class of its own, in the same partition, and read it when it is needed.",
        evidence={"bytes": sizes.max, "p99": sizes.p99, **key},
    )  # fmt: skip


def wide_fan_out(place: KeyOrIndex, held: IndexStatistics) -> RuleFinding | None:
    """TM106: an entity has very many rows in an index over the elements of a list."""
    if held.max_rows < _ROWS:
        return None
    key = {} if held.max_rows_key is None else {"key": " ".join(held.max_rows_key)}
    return RuleFinding(
        "note", f"an entity has {held.max_rows:,} rows in it",
        "Each write of the entity compares all of them; on Azure Tables a transaction has at most 100 rows.",
        "Keep fewer elements, or a class with an entity for each of them.", evidence={"most": held.max_rows, **key},
    )  # fmt: skip


def with_numbers(
    code: str, found: RuleFinding, entities: int, parts: PartitionSummary, more: Mapping[str, int]
) -> RuleFinding:
    """Return what a rule over declarations found, with the numbers of the data if they tell how much it matters."""
    if code not in ("TM001", "TM002", "TM003"):
        return found
    level = found.level if entities >= _SMALL or code == "TM002" else "note"
    return attrs.evolve(found, level=level, evidence={"entities": entities, "partitions": parts.number, **more})


OfKeyData: TypeAlias = Callable[[KeyOrIndex, Statistics], RuleFinding | None]
OfIndexData: TypeAlias = Callable[[KeyOrIndex, IndexStatistics], RuleFinding | None]
RULES_OF_KEY_DATA: dict[str, OfKeyData] = {
    "TM101": large_partition,
    "TM102": hot_partition,
    "TM104": large_entities,
}
RULES_OF_INDEX_DATA: dict[str, OfIndexData] = {
    "TM106": wide_fan_out,
}
