"""Key budgets: the room that keys leave for the texts and other values of a field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import attrs

from ..entities.aggregates import Aggregate
from ..entities.declaration import Declaration, declaration_of
from ..entities.entity import Entity
from ..expressions.tree import Attr, ElementAttr
from ..keys.template import Slot, Template
from ..limits import MAX_ENTITY, MAX_INDEX_ROW_UNITS, MAX_INT64, MAX_KEY_UNITS, MAX_VALUE, MIN_INT64, utf16_units

WORST = 4
"""The most units of a key that a character of a text takes."""
_WIDTHS = {"int": 1 + 26, "timedelta": 1 + 26, "Decimal": 2 + 5 + 34}
_FREE = ("str", "bytes", "tuple")


@attrs.frozen
class KeyBudget:
    """The values that fit into all keys that they are part of."""

    units: int
    """The UTF-16 units of a key, or of a property, that there are for it."""
    least: int = MIN_INT64
    most: int = MAX_INT64
    raw: bool = False
    """Whether it stands in a key as it is, without escapes."""
    keyed: bool = True
    """Whether a key has it, which may escape it."""

    def intersected(self, other: KeyBudget) -> KeyBudget:
        """Return the intersection of two budgets."""
        return KeyBudget(
            min(self.units, other.units),
            max(self.least, other.least),
            min(self.most, other.most),
            self.raw or other.raw,
        )


def rooms_of(declaration: Declaration) -> dict[str, KeyBudget]:
    """Return the rooms of a class by field; of nested values by their path. ``""`` is that of every other field."""
    rooms: dict[str, KeyBudget] = {}
    for template, limit, names in _templates(declaration):
        free = [slot for slot in template.slots if slot.text.fixed is None and _width(slot) is None]
        fixed_width = sum([len(part) if isinstance(part, str) else _width(part) or 0 for part in template.parts])
        for slot in template.slots:
            if (name := names.get(slot.field)) is None:
                continue
            room = KeyBudget(
                (limit - fixed_width) // len(free) if slot in free else MAX_VALUE // 2, raw=slot.spec == "raw"
            )
            if slot.text.base is int and slot.spec.startswith("0"):
                room = attrs.evolve(room, least=0, most=10**slot.text.fixed - 1 if slot.text.fixed else MAX_INT64)
            rooms[name] = rooms[name].intersected(room) if name in rooms else room
    long = [f for f in declaration.parameters if f.type.spillable and f.name not in declaration.key_fields]
    # Keys, and names of properties, take the rest; nested values are never as long.
    share = (MAX_ENTITY * 3 // 4) // max(1, len(long))
    return rooms | {"": KeyBudget(min(MAX_VALUE, share) // 2, keyed=False)}


def aggregates_of(cls: type[Any]) -> Iterator[Any]:
    """Yield the aggregates that are maintained from a class."""
    for aggregate in _declarations(Aggregate):
        if aggregate.of is cls:
            yield aggregate.cls


def _templates(declaration: Declaration) -> Iterator[tuple[Template, int, Mapping[str, str]]]:
    """Yield each template that a value of the class can come into, its limit, and the class's fields by its own."""
    yield from _of(declaration, {field: field for field in _paths(declaration)})
    for aggregate in map(declaration_of, aggregates_of(declaration.cls)):
        yield from _of(aggregate, dict(_sources(aggregate)))
    for owner in _declarations(Entity):
        if any(field.measure is not None and field.measure.of is declaration.cls for field in owner.maintained):
            names = {name: name for name in owner.arguments} | dict(_sources(owner))
            yield from _of(owner, names)


def _of(declaration: Declaration, names: Mapping[str, str]) -> Iterator[tuple[Template, int, Mapping[str, str]]]:
    for template in declaration.templates:
        yield template, MAX_KEY_UNITS, names
    for index in declaration.indexes:
        yield index.partition, MAX_KEY_UNITS, names
        yield index.row, MAX_INDEX_ROW_UNITS, names


def _paths(declaration: Declaration) -> Iterator[str]:
    yield from declaration.arguments
    for index in declaration.indexes:
        yield from index.fields


def _sources(declaration: Declaration) -> Iterator[tuple[str, str]]:
    """Yield the fields that hold values of another class as they are, each with that class's field."""
    for field in declaration.fields:
        attr = None if field.measure is None else field.measure.attr
        if isinstance(attr, ElementAttr):
            attr = attr.list
        if isinstance(attr, Attr) and not attr.part:
            yield field.name, ".".join((attr.name, *attr.path))


def _declarations(base: type[Any]) -> Iterator[Declaration]:
    for cls in base.__subclasses__():
        if isinstance(vars(cls).get("__declaration__"), Declaration):
            yield declaration_of(cls)
        yield from _declarations(cls)


def _width(slot: Slot) -> int | None:
    """Return the most units that the text of a slot takes; None if a value can be of any length."""
    text = slot.text
    if text.fixed is not None:
        return text.fixed
    if isinstance(text.kind, type) and issubclass(text.kind, Enum):
        return max([utf16_units(slot.written(member)) for member in text.kind])
    if text.base.__name__ in _FREE:
        return text.head * WORST or None
    return _WIDTHS[text.base.__name__]
