"""The rules over declarations: a function for each code, and one table of them.

A rule of places looks at a key or an index, a rule of classes at a class. Each returns what it found, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias
from uuid import UUID

import attrs

from ..datetime_types import Builtin
from ..entities.declaration import declaration_of
from ..keys.template import Slot, Template
from ..schema.model import Model, Schema
from ..values.type_names import type_name
from .advice import Advice
from .keys_and_indexes import KeyOrIndex, is_time, parts_of

_FEW = 16  # partitions
_ROWS = 10  # of a write
_WIDE = 200  # properties
_SHARDS = 64
_LIMIT = 100  # entities of a transaction


@attrs.frozen
class RuleFinding:
    """What a rule found."""

    level: Literal["warning", "note"]
    problem: str
    consequence: str
    remedy: str
    declaration: str | None = None
    evidence: Mapping[str, int | float | str] = attrs.field(factory=dict)
    of_key: bool = False
    """Of a class: whether it is about the key."""

    def advice(self, code: str, where: str) -> Advice:
        return Advice(
            code, self.level, f"{where}.key" if self.of_key else where, self.problem, self.consequence, self.remedy,
            self.declaration, self.evidence,
        )  # fmt: skip


ONE_SERVER = "On Azure Tables a partition takes about 2,000 entities a second, and is never split."
SPREAD = "Spread it: queries read the shards side by side, in the order of the rows."


def _mended(place: KeyOrIndex | None, rule: Callable[[KeyOrIndex], RuleFinding | None]) -> str | None:
    """Return the declaration of a mended place, unless the same rule still speaks of it."""
    return None if place is None or rule(place) is not None else place.declaration()


def _or_grouped(remedy: str, place: KeyOrIndex) -> str:
    """Return a remedy with the other one, which spreads entities only as evenly as the values of a field are."""
    field = place.grouping
    return remedy if field is None else f"{remedy} Or put {field} in front, if each query names it."


# ------------------------------------------------------------------------------------------------ of keys and indexes


def one_partition(place: KeyOrIndex) -> RuleFinding | None:
    """TM001: all rows are in one partition."""
    if place.partition.slots or (place.index is None and (place.of_groups or not place.row.slots)):
        return None
    rows = "entity" if place.index is None else "row"
    mend = place.changed(place.shards)
    return RuleFinding(
        "note" if place.of_groups else "warning",
        f"every {rows} is in the partition {place.partition.text!r}",
        ONE_SERVER, _or_grouped(SPREAD, place), None if mend is None else mend.declaration(),
    )  # fmt: skip


def newest_partition(place: KeyOrIndex) -> RuleFinding | None:
    """TM002: what is written now goes to the last partition."""
    slots = place.partition.slots
    if (place.index is None and place.of_groups) or any(slot.buckets for slot in slots) or not slots:
        return None
    if not is_time(slots[0]):
        return _newest_uuid(place)
    alone = {slot.field for slot in slots} == {slots[0].field}
    return _only_time(place) if alone else _time_first(place)


def _only_time(place: KeyOrIndex) -> RuleFinding:
    """All slots of the partition are of one time."""
    own = place.index is None
    name = place.partition.slots[0].field
    made = any(field.name == name and field.factory is not None for field in place.made.fields)
    mend = place.changed((*place.shards, *parts_of(place.partition)))
    remedy = "Put shards in front of it: a query for a time then reads one range for each of them."
    return RuleFinding(
        "warning" if own else "note", f"the partition {place.partition.text!r} is a time",
        f"{'All' if made else f'If {name} is the time of writing, all'} that is written now goes to one partition, and on "
        "Azure Tables to one server, while the others rest.",
        _or_grouped(remedy, place), _mended(mend, newest_partition),
    )  # fmt: skip


def _time_first(place: KeyOrIndex) -> RuleFinding:
    """A time comes first, and other fields behind it."""
    parts = parts_of(place.partition)
    timed = {parts[slot.component] for slot in place.partition.slots if is_time(slot)}
    turned = (*(part for part in parts if part not in timed), *(part for part in parts if part in timed))
    others = any(
        parts[slot.component] not in timed for slot in place.partition.slots
    )  # (a text alone puts nothing before it)
    mend = place.changed(turned) if others else None
    return RuleFinding(
        "note", f"the partition {place.partition.text!r} begins with a time",
        "What is written now goes to partitions that are neighbours, often of one server.",
        "Put the time last.", _mended(mend, newest_partition),
    )  # fmt: skip


def _newest_uuid(place: KeyOrIndex) -> RuleFinding | None:
    slot = place.partition.slots[0]
    field = next((one for one in place.made.fields if one.name == slot.field), None)
    if place.index is not None or field is None or not _made_by(field.factory, "uuid7"):
        return None
    return RuleFinding(
        "note", f"the partition {place.partition.text!r} begins with a UUID of version 7, which begins with the time",
        "New partitions are neighbours of the newest ones: writes go to the last server.",
        "Make the partition of uuid.uuid4, or put the UUID into the row.",
    )  # fmt: skip


def few_partitions(place: KeyOrIndex) -> RuleFinding | None:
    """TM003: there can be few partitions only."""
    number = place.texts_of_partition
    if not place.partition.slots or number is None or number > _FEW or (place.index is None and place.of_groups):
        return None
    if place.index is not None and place.index.where is not None:
        return None
    mend = place.changed((*parts_of(place.partition), *place.shards))
    return RuleFinding(
        "warning" if place.index is None else "note", f"the partition {place.partition.text!r} has {number} values at most",
        ONE_SERVER, SPREAD, _mended(mend, few_partitions),
    )  # fmt: skip


def many_shards(place: KeyOrIndex) -> RuleFinding | None:
    """TM009: a slot has very many shards."""
    number = max([len(slot.buckets) for slot in place.slots], default=0)
    if number <= _SHARDS:
        return None

    def fewer(template: Template) -> str | tuple[str, ...]:
        texts = [text.replace(f"shard({number})", "shard(16)") for text in parts_of(template)]
        return texts[0] if isinstance(template.text, str) else tuple(texts)

    mend = place.changed(fewer(place.partition), fewer(place.row))
    return RuleFinding(
        "note", f"it has {number} shards", f"Each query that does not name one reads {number} ranges.",
        "16 shards take 30,000 entities a second.", _mended(mend, many_shards),
    )  # fmt: skip


def repeated_index(place: KeyOrIndex) -> RuleFinding | None:
    """TM005: the key, or another index, begins with the slots of this one."""
    index, made = place.index, place.made
    if index is None or index.where is not None or index.unique or index.fan_out is not None:
        return None
    if any(slot.buckets for slot in place.slots):
        return None
    mine = _signs(place)
    others = [
        KeyOrIndex(made, None, *made.templates),
        *(KeyOrIndex(made, one, one.partition, one.row) for one in made.indexes),
    ]
    for other in others:
        theirs = _signs(other)
        if other.index is index or theirs[: len(mine)] != mine or not 0 < len(other.partition.slots) <= len(mine):
            continue
        if other.index is not None and not _holds(other.index.name, place, other, later=theirs == mine):
            continue
        return RuleFinding(
            "warning", f"{other.label} begins with the same fields",
            "Each write changes its rows, too, and no query needs them.",
            f"Remove it; query by conditions, which {other.label} serves.",
        )  # fmt: skip
    return None


def _holds(name: str, place: KeyOrIndex, other: KeyOrIndex, *, later: bool) -> bool:
    """Return whether another index can stand for one."""
    one, two = place.index, other.index
    assert one is not None
    assert two is not None
    if two.where is not None or two.fan_out is not None or any(slot.buckets for slot in other.slots):
        return False
    names = [each.name for each in place.made.indexes]
    if later and not two.unique and names.index(one.name) < names.index(name):
        return False  # (of two that are equal the later one goes)
    if not {field.name for field in one.include} <= {field.name for field in two.include}:
        return False
    heads = {slot.field.partition(".")[0] for slot in other.slots} - {
        slot.field.partition(".")[0] for slot in place.slots
    }
    return not any(place.made.field(head).nullable for head in heads) and not any(
        "." in slot.field for slot in other.slots[len(place.slots) :]
    )


def _signs(place: KeyOrIndex) -> list[tuple[str, str, bool]]:
    """Return the slots, without those that repeat one in front."""
    return list(dict.fromkeys([(slot.field, slot.spec, slot.ordered) for slot in place.slots]))


# ------------------------------------------------------------------------------------------------ of classes


def random_rows(model: Model, schema: Schema) -> RuleFinding | None:
    """TM004: rows are in no order, and nothing gives the order of time."""
    made = model.declaration
    first = next(iter(made.row.slots), None)
    if made.of is not None or first is None or first.text.base not in (str, UUID) or first.buckets:
        return None
    fields = {field.name: field for field in made.fields}
    if first.field not in fields or not _made_by((field := fields[first.field]).factory, "uuid4"):
        return None
    indexed = {name for index in made.indexes for name in index.fields} | made.key_fields
    times = [
        one.name for one in made.fields if one.type.kind in (Builtin.date, Builtin.datetime) and one.name not in indexed
    ]
    if not times:
        return None
    kind = type_name(field.type, made.cls)
    options = "tm.uuid7" if first.text.base is UUID else "lambda: str(tm.uuid7())"
    options += "" if field.property == field.name else f', name="{field.property}"'
    line = f"{field.name}: tm.Field[{kind}] = tm.field(factory={options}{', kw_only=True' * field.kw_only})"
    return RuleFinding(
        "note", f"rows are random UUIDs, and {times[0]} is in no key and no index",
        "The newest entities of a partition cannot be read without reading all of it.",
        "UUIDs of version 7 are in the order of time.", None if kind is None else line, of_key=True,
    )  # fmt: skip


def many_rows(model: Model, schema: Schema) -> RuleFinding | None:
    """TM006: a write changes many rows."""
    aggregates = [one for one in schema.aggregates_of(model) if ":" not in one.name]
    rows = 1 + len(model.indexes) + len(aggregates)
    if rows < _ROWS or model.aggregate is not None:
        return None
    return RuleFinding(
        "note", f"each write changes up to {rows} rows: {len(model.indexes)} indexes, {len(aggregates)} aggregates",
        f"On Azure Tables {_LIMIT // rows} entities fit a transaction.", "Remove what no query needs.",
        evidence={"rows": rows, "entities": _LIMIT // rows},
    )  # fmt: skip


def wide(model: Model, schema: Schema) -> RuleFinding | None:
    """TM007: an entity can have very many properties."""
    if len(model.stored) <= _WIDE:
        return None
    return RuleFinding(
        "note", f"it has {len(model.stored)} properties", "An entity may have 252; there is little room for more fields.",
        "Put some into a dict field, or into a second class in the same partition.",
    )  # fmt: skip


def one_group(model: Model, schema: Schema) -> RuleFinding | None:
    """TM008: every write of now changes the same group."""
    made = model.declaration
    if made.of is None or not all(is_time(slot) for template in made.templates for slot in template.slots):
        return None
    source = schema.by_class[made.of].declaration
    return RuleFinding(
        "note", f"all {source.name} entities of one time are in one group",
        "Every write changes the same entity, and on Azure Tables they wait for each other.",
        "Group by a field more; totals over all of them are still answered from the groups.",
        _finer_group(model, source.partition.slots, source.name), of_key=True,
    )  # fmt: skip


def _finer_group(model: Model, slots: tuple[Slot, ...], source: str) -> str | None:
    made = model.declaration
    assert made.of is not None
    for slot in slots:
        field = next((one for one in declaration_of(made.of).fields if one.name == slot.field), None)
        if field is None or slot.buckets or is_time(slot) or field.optional or hasattr(made.cls, field.name):
            continue
        kind = type_name(field.type, made.cls)
        rest = [part for template in made.templates for part in parts_of(template) if part]
        times = [type_name(made.field(name).type, made.cls) for name in made.arguments]
        if kind is None or None in times:
            return None
        texts = [f'"{part}"' for part in rest]
        row = texts[0] if len(texts) == 1 else f"({', '.join(texts)})" if texts else '""'
        types = ", ".join(map(str, (kind, *times)))
        return (
            f"{field.name}: tm.Field[{kind}] = tm.group_by({source}.{field.name})\n"
            f'key = tm.Key[{types}](partition="{{{field.name}}}", row={row})'
        )
    return None


def _made_by(factory: object, name: str) -> bool:
    """Return whether a factory is a function, or calls it, as ``lambda: str(uuid4())`` does."""
    code = getattr(factory, "__code__", None)
    return getattr(factory, "__name__", "") == name or (code is not None and name in code.co_names)


OfPlaces: TypeAlias = Callable[[KeyOrIndex], RuleFinding | None]
OfClasses: TypeAlias = Callable[[Model, Schema], RuleFinding | None]
RULES_OF_PLACES: dict[str, OfPlaces] = {
    "TM001": one_partition,
    "TM002": newest_partition,
    "TM003": few_partitions,
    "TM005": repeated_index,
    "TM009": many_shards,
}
RULES_OF_CLASSES: dict[str, OfClasses] = {
    "TM004": random_rows,
    "TM006": many_rows,
    "TM007": wide,
    "TM008": one_group,
}
