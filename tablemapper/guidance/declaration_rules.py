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
from .keys_and_indexes import KeyOrIndex, is_time, template_parts

_FEW = 16  # partitions
_ROWS = 10  # of a write
_WIDE = 200  # properties
_SHARDS = 64
_LIMIT = 100  # entities of a transaction


@attrs.frozen
class RuleFinding:
    """A finding of a rule."""

    level: Literal["warning", "note"]
    problem: str
    consequence: str
    remedy: str
    declaration: str | None = None
    evidence: Mapping[str, int | float | str] = attrs.field(factory=dict)
    about_key: bool = False
    """Of a class: whether it is about the key."""

    def advice(self, code: str, where: str) -> Advice:
        return Advice(
            code, self.level, f"{where}.key" if self.about_key else where, self.problem, self.consequence, self.remedy,
            self.declaration, self.evidence,
        )  # fmt: skip


ONE_SERVER = "On Azure Tables a partition takes about 2,000 entities a second, and is never split."
SPREAD = "Spread it: queries read the shards side by side, in the order of the rows."


def _fixed(target: KeyOrIndex | None, rule: Callable[[KeyOrIndex], RuleFinding | None]) -> str | None:
    """Return the declaration of a mended place, unless the same rule still speaks of it."""
    return None if target is None or rule(target) is not None else target.declaration()


def _or_grouped(remedy: str, target: KeyOrIndex) -> str:
    """Return a remedy with the other one, which spreads entities only as evenly as the values of a field are."""
    field = target.grouping
    return remedy if field is None else f"{remedy} Or put {field} in front, if each query names it."


# ------------------------------------------------------------------------------------------------ of keys and indexes


def one_partition(target: KeyOrIndex) -> RuleFinding | None:
    """TM001: all rows are in one partition."""
    if target.partition.slots or (target.index is None and (target.is_aggregate or not target.row.slots)):
        return None
    rows = "entity" if target.index is None else "row"
    fix = target.with_templates(target.shards)
    return RuleFinding(
        "note" if target.is_aggregate else "warning",
        f"every {rows} is in the partition {target.partition.text!r}",
        ONE_SERVER, _or_grouped(SPREAD, target), None if fix is None else fix.declaration(),
    )  # fmt: skip


def newest_partition(target: KeyOrIndex) -> RuleFinding | None:
    """TM002: what is written now goes to the last partition."""
    slots = target.partition.slots
    if (target.index is None and target.is_aggregate) or any(slot.buckets for slot in slots) or not slots:
        return None
    if not is_time(slots[0]):
        return _newest_uuid(target)
    is_only_time = {slot.field for slot in slots} == {slots[0].field}
    return _only_time(target) if is_only_time else _time_first(target)


def _only_time(target: KeyOrIndex) -> RuleFinding:
    """All slots of the partition are of one time."""
    is_key = target.index is None
    name = target.partition.slots[0].field
    has_factory = any(field.name == name and field.factory is not None for field in target.owner.fields)
    fix = target.with_templates((*target.shards, *template_parts(target.partition)))
    remedy = "Put shards in front of it: a query for a time then reads one range for each of them."
    return RuleFinding(
        "warning" if is_key else "note", f"the partition {target.partition.text!r} is a time",
        f"{'All' if has_factory else f'If {name} is the time of writing, all'} that is written now goes to one partition, and on "
        "Azure Tables to one server, while the others rest.",
        _or_grouped(remedy, target), _fixed(fix, newest_partition),
    )  # fmt: skip


def _time_first(target: KeyOrIndex) -> RuleFinding:
    """A time comes first, and other fields behind it."""
    parts = template_parts(target.partition)
    timed = {parts[slot.component] for slot in target.partition.slots if is_time(slot)}
    time_last = (*(part for part in parts if part not in timed), *(part for part in parts if part in timed))
    has_other_fields = any(
        parts[slot.component] not in timed for slot in target.partition.slots
    )  # (a text alone puts nothing before it)
    fix = target.with_templates(time_last) if has_other_fields else None
    return RuleFinding(
        "note", f"the partition {target.partition.text!r} begins with a time",
        "What is written now goes to partitions that are neighbours, often of one server.",
        "Put the time last.", _fixed(fix, newest_partition),
    )  # fmt: skip


def _newest_uuid(target: KeyOrIndex) -> RuleFinding | None:
    slot = target.partition.slots[0]
    field = next((candidate for candidate in target.owner.fields if candidate.name == slot.field), None)
    if target.index is not None or field is None or not _made_by(field.factory, "uuid7"):
        return None
    return RuleFinding(
        "note", f"the partition {target.partition.text!r} begins with a UUID of version 7, which begins with the time",
        "New partitions are neighbours of the newest ones: writes go to the last server.",
        "Make the partition of uuid.uuid4, or put the UUID into the row.",
    )  # fmt: skip


def few_partitions(target: KeyOrIndex) -> RuleFinding | None:
    """TM003: there can be few partitions only."""
    number = target.max_partitions
    if not target.partition.slots or number is None or number > _FEW or (target.index is None and target.is_aggregate):
        return None
    if target.index is not None and target.index.where is not None:
        return None
    fix = target.with_templates((*template_parts(target.partition), *target.shards))
    return RuleFinding(
        "warning" if target.index is None else "note", f"the partition {target.partition.text!r} has {number} values at most",
        ONE_SERVER, SPREAD, _fixed(fix, few_partitions),
    )  # fmt: skip


def many_shards(target: KeyOrIndex) -> RuleFinding | None:
    """TM009: a slot has very many shards."""
    number = max([len(slot.buckets) for slot in target.slots], default=0)
    if number <= _SHARDS:
        return None

    def fewer(template: Template) -> str | tuple[str, ...]:
        texts = [text.replace(f"shard({number})", "shard(16)") for text in template_parts(template)]
        return texts[0] if isinstance(template.text, str) else tuple(texts)

    fix = target.with_templates(fewer(target.partition), fewer(target.row))
    return RuleFinding(
        "note", f"it has {number} shards", f"Each query that does not name one reads {number} ranges.",
        "16 shards take 30,000 entities a second.", _fixed(fix, many_shards),
    )  # fmt: skip


def repeated_index(target: KeyOrIndex) -> RuleFinding | None:
    """TM005: the key, or another index, begins with the slots of this one."""
    index, owner = target.index, target.owner
    if index is None or index.where is not None or index.unique or index.fan_out is not None:
        return None
    if any(slot.buckets for slot in target.slots):
        return None
    mine = _signature(target)
    candidates = [
        KeyOrIndex(owner, None, *owner.templates),
        *(KeyOrIndex(owner, sibling, sibling.partition, sibling.row) for sibling in owner.indexes),
    ]
    for candidate in candidates:
        theirs = _signature(candidate)
        if (
            candidate.index is index
            or theirs[: len(mine)] != mine
            or not 0 < len(candidate.partition.slots) <= len(mine)
        ):
            continue
        if candidate.index is not None and not _can_replace(
            candidate.index.name, target, candidate, is_later=theirs == mine
        ):
            continue
        return RuleFinding(
            "warning", f"{candidate.label} begins with the same fields",
            "Each write changes its rows, too, and no query needs them.",
            f"Remove it; query by conditions, which {candidate.label} serves.",
        )  # fmt: skip
    return None


def _can_replace(name: str, target: KeyOrIndex, candidate: KeyOrIndex, *, is_later: bool) -> bool:
    """Return whether another index can stand for one."""
    index, other_index = target.index, candidate.index
    assert index is not None
    assert other_index is not None
    if (
        other_index.where is not None
        or other_index.fan_out is not None
        or any(slot.buckets for slot in candidate.slots)
    ):
        return False
    names = [sibling.name for sibling in target.owner.indexes]
    if is_later and not other_index.unique and names.index(index.name) < names.index(name):
        return False  # (of two that are equal the later one goes)
    if not {field.name for field in index.include} <= {field.name for field in other_index.include}:
        return False
    heads = {slot.field.partition(".")[0] for slot in candidate.slots} - {
        slot.field.partition(".")[0] for slot in target.slots
    }
    return not any(target.owner.field(head).nullable for head in heads) and not any(
        "." in slot.field for slot in candidate.slots[len(target.slots) :]
    )


def _signature(target: KeyOrIndex) -> list[tuple[str, str, bool]]:
    """Return the slots, without those that repeat one in front."""
    return list(dict.fromkeys([(slot.field, slot.spec, slot.ordered) for slot in target.slots]))


# ------------------------------------------------------------------------------------------------ of classes


def random_rows(model: Model, schema: Schema) -> RuleFinding | None:
    """TM004: rows are in no order, and nothing gives the order of time."""
    declaration = model.declaration
    first = next(iter(declaration.row.slots), None)
    if declaration.of is not None or first is None or first.text.base not in (str, UUID) or first.buckets:
        return None
    fields = {field.name: field for field in declaration.fields}
    if first.field not in fields or not _made_by((field := fields[first.field]).factory, "uuid4"):
        return None
    indexed = {name for index in declaration.indexes for name in index.fields} | declaration.key_fields
    times = [
        candidate.name
        for candidate in declaration.fields
        if candidate.type.kind in (Builtin.date, Builtin.datetime) and candidate.name not in indexed
    ]
    if not times:
        return None
    kind = type_name(field.type, declaration.cls)
    options = "tm.uuid7" if first.text.base is UUID else "lambda: str(tm.uuid7())"
    options += "" if field.property == field.name else f', name="{field.property}"'
    line = f"{field.name}: tm.Field[{kind}] = tm.field(factory={options}{', kw_only=True' * field.kw_only})"
    return RuleFinding(
        "note", f"rows are random UUIDs, and {times[0]} is in no key and no index",
        "The newest entities of a partition cannot be read without reading all of it.",
        "UUIDs of version 7 are in the order of time.", None if kind is None else line, about_key=True,
    )  # fmt: skip


def many_rows(model: Model, schema: Schema) -> RuleFinding | None:
    """TM006: a write changes many rows."""
    aggregates = [aggregate for aggregate in schema.aggregates_of(model) if ":" not in aggregate.name]
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
    declaration = model.declaration
    if declaration.of is None or not all(
        is_time(slot) for template in declaration.templates for slot in template.slots
    ):
        return None
    source = schema.by_class[declaration.of].declaration
    return RuleFinding(
        "note", f"all {source.name} entities of one time are in one group",
        "Every write changes the same entity, and on Azure Tables they wait for each other.",
        "Group by a field more; totals over all of them are still answered from the groups.",
        _finer_group(model, source.partition.slots, source.name), about_key=True,
    )  # fmt: skip


def _finer_group(model: Model, slots: tuple[Slot, ...], source: str) -> str | None:
    declaration = model.declaration
    assert declaration.of is not None
    for slot in slots:
        field = next(
            (candidate for candidate in declaration_of(declaration.of).fields if candidate.name == slot.field), None
        )
        if field is None or slot.buckets or is_time(slot) or field.optional or hasattr(declaration.cls, field.name):
            continue
        kind = type_name(field.type, declaration.cls)
        key_parts = [part for template in declaration.templates for part in template_parts(template) if part]
        times = [type_name(declaration.field(name).type, declaration.cls) for name in declaration.arguments]
        if kind is None or None in times:
            return None
        texts = [f'"{part}"' for part in key_parts]
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


KeyRule: TypeAlias = Callable[[KeyOrIndex], RuleFinding | None]
ClassRule: TypeAlias = Callable[[Model, Schema], RuleFinding | None]
KEY_RULES: dict[str, KeyRule] = {
    "TM001": one_partition,
    "TM002": newest_partition,
    "TM003": few_partitions,
    "TM005": repeated_index,
    "TM009": many_shards,
}
CLASS_RULES: dict[str, ClassRule] = {
    "TM004": random_rows,
    "TM006": many_rows,
    "TM007": wide,
    "TM008": one_group,
}
