"""The rules over what a store holds: a function for each code, and tables of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from ..engines.statistics import IndexStatistics, Statistics
from ..planning.cost import bytes_text
from ..planning.shards import spreading
from .declaration_rules import ONE_SERVER, SPREAD, RuleFinding, newest_partition, one_partition
from .keys_and_indexes import KeyOrIndex, is_time, template_parts

_MOST = 10_000_000  # entities of a partition
_MANY = 100_000  # entities of a class, from which on it matters how they are spread
_PARTITIONS = 10
_IN_ORDER, _IN_NO_ORDER = 0.8, 0.4  # of partitions, by the times of their last writes
_MOMENTS = 1_000  # of recent writes, from which on it matters; and in one second
_SMALL = 10_000  # entities of a class, below which one partition or few are no matter yet
_LARGE, _LARGE_P99 = 512 * 1024, 64 * 1024  # bytes
_ROWS = 50  # of one entity in one index


def _split(target: KeyOrIndex, *, by_time: bool) -> str | None:
    """Return the key with partitions that are divided further: by the time in their rows, or by shards.

    All that is written now is of one time, so times only divide what is large, not what is hot.
    """
    parts = template_parts(target.partition)
    times = [slot.field for slot in target.row.slots if is_time(slot)] if by_time else []
    for parts_behind in (*[(f"{{{time}:%Y-%m}}",) for time in times], target.shards):
        if (fix := target.with_templates((*parts, *parts_behind))) is not None:
            return fix.declaration()
    return None


def large_partition(target: KeyOrIndex, statistics: Statistics) -> RuleFinding | None:
    """TM101: a partition has very many entities, or most of them."""
    parts = statistics.partitions
    largest = next(iter(parts.largest), None)
    if largest is None:
        return None
    most_of_them = (
        statistics.entities >= _MANY and parts.number >= _PARTITIONS and largest.entities * 2 > statistics.entities
    )
    if largest.entities <= _MOST and not most_of_them:
        return None
    return RuleFinding(
        "warning" if largest.entities > _MOST else "note",
        f"the partition {largest.key!r} has {largest.entities:,} of {statistics.entities:,} entities",
        "On Azure Tables one server serves a partition; a query of the whole of it takes a request for each 1,000.",
        "Divide it, by time or by shards behind the field: a query then reads a range for each part.",
        _split(target, by_time=True), {"entities": largest.entities, "share": largest.entities / statistics.entities, "partition": largest.key},
        about_key=True,
    )  # fmt: skip


def hot_partition(target: KeyOrIndex, statistics: Statistics) -> RuleFinding | None:
    """TM102: most recent writes went to one partition."""
    parts = statistics.partitions
    hottest = next(iter(parts.hottest), None)
    if hottest is None or statistics.writes < _MOMENTS or hottest.writes * 2 <= statistics.writes:
        return None
    if parts.number < _PARTITIONS and (
        statistics.busiest < _MOMENTS or one_partition(target) or newest_partition(target)
    ):
        return None  # (of few, one always gets many; and TM001 and TM002 have the same numbers)
    return RuleFinding(
        "warning" if statistics.busiest >= _MOMENTS else "note",
        f"the partition {hottest.key!r} got {hottest.writes:,} of {statistics.writes:,} writes of the last {statistics.recent}",
        ONE_SERVER, "Divide it, by shards behind the field: a query then reads a range for each part.",
        _split(target, by_time=False),
        {"writes": hottest.writes, "share": hottest.writes / statistics.writes, "busiest": statistics.busiest, "partition": hottest.key},
        about_key=True,
    )  # fmt: skip


def written_in_order(target: KeyOrIndex, statistics: Statistics) -> RuleFinding | None:
    """TM002, of partitions whose type does not say it: numbers and texts that only grow."""
    order, slots = statistics.partitions.write_order, target.partition.slots
    if order is None or abs(order) < _IN_ORDER or any(slot.buckets for slot in slots):
        return None
    fix = target.with_templates((*spreading(slots, target.owner), *template_parts(target.partition)))
    return RuleFinding(
        "note", f"the partitions {target.partition.text!r} were written in the order of their keys",
        f"What is written now goes to the {'last' if order > 0 else 'first'} partitions, and on Azure Tables to one server.",
        "Put shards in front of it: a query for a range then reads one range for each of them, and a key still one.",
        None if fix is None else fix.declaration(),
        {"partitions": statistics.partitions.number, "order": round(order, 3)}, about_key=True,
    )  # fmt: skip


def few_partitions_of_many(target: KeyOrIndex, statistics: Statistics | IndexStatistics) -> RuleFinding | None:
    """TM003, of partitions whose type does not say it: a country, a status as text."""
    parts, rows = statistics.partitions, statistics.entities if isinstance(statistics, Statistics) else statistics.rows
    slots = target.partition.slots
    if rows < _MANY or parts.number >= _PARTITIONS or not slots or any(slot.buckets for slot in slots):
        return None
    noun = "entities" if target.index is None else "rows"
    largest = parts.largest[0]
    fix = target.with_templates((*template_parts(target.partition), *target.shards))
    return RuleFinding(
        "warning" if target.index is None else "note",
        f"{rows:,} {noun} are in {parts.number} partition{'s' * (parts.number > 1)}", ONE_SERVER, SPREAD,
        None if fix is None else fix.declaration(),
        {"entities": rows, "partitions": parts.number, "share": largest.entities / rows, "partition": largest.key},
        about_key=target.index is None,
    )  # fmt: skip


def large_entities(target: KeyOrIndex, statistics: Statistics) -> RuleFinding | None:
    """TM104: entities are large."""
    sizes = statistics.sizes
    if sizes.max <= _LARGE and sizes.p99 <= _LARGE_P99:
        return None
    key = {} if statistics.largest_key is None else {"key": " ".join(statistics.largest_key)}
    return RuleFinding(
        "note", f"the largest entity has {bytes_text(sizes.max)}, and one of a hundred {bytes_text(sizes.p99)} or more",
        "Each read of an entity takes all of it, and on Azure Tables it may have 1 MiB.",
        "Put the large value into a class of its own, in the same partition, and read it when it is needed.",
        evidence={"bytes": sizes.max, "p99": sizes.p99, **key},
    )  # fmt: skip


def wide_fan_out(target: KeyOrIndex, statistics: IndexStatistics) -> RuleFinding | None:
    """TM106: an entity has very many rows in an index over the elements of a list."""
    if statistics.max_rows < _ROWS:
        return None
    key = {} if statistics.max_rows_key is None else {"key": " ".join(statistics.max_rows_key)}
    return RuleFinding(
        "note", f"an entity has {statistics.max_rows:,} rows in it",
        "Each write of the entity compares all of them; on Azure Tables a transaction has at most 100 rows.",
        "Keep fewer elements, or a class with an entity for each of them.", evidence={"most": statistics.max_rows, **key},
    )  # fmt: skip


def judged(code: str, finding: RuleFinding, statistics: Statistics | IndexStatistics) -> RuleFinding | None:
    """Return the finding of a rule over declarations with the numbers of the data; None if the data denies it."""
    if code not in ("TM001", "TM002", "TM003"):
        return finding
    parts = statistics.partitions
    entities = statistics.entities if isinstance(statistics, Statistics) else statistics.rows
    if code == "TM002" and parts.write_order is not None and abs(parts.write_order) < _IN_NO_ORDER:
        return None  # (the time is none of writing: of a birthday, of the end of a lease)
    writes = {"writes": statistics.writes, "busiest": statistics.busiest} if isinstance(statistics, Statistics) else {}
    level = finding.level if entities >= _SMALL or code == "TM002" else "note"
    return attrs.evolve(finding, level=level, evidence={"entities": entities, "partitions": parts.number, **writes})


OfData: TypeAlias = Callable[[KeyOrIndex, Any], RuleFinding | None]
KEY_DATA_RULES: dict[str, OfData] = {
    "TM002": written_in_order,
    "TM003": few_partitions_of_many,
    "TM101": large_partition,
    "TM102": hot_partition,
    "TM104": large_entities,
}
"""They take the statistics of the class; of the codes of declarations, what those did not find."""
INDEX_DATA_RULES: dict[str, OfData] = {
    "TM003": few_partitions_of_many,
    "TM106": wide_fan_out,
}
