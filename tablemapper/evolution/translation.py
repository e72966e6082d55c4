"""From the rows of one class to those of another that holds the same entities, by the catalogue alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from msgspec import UNSET

from ..keys.forms import check_key
from ..keys.template import Template
from ..schema.forms import FieldForm, LinkForm, ModelForm, stored_default
from ..schema.model import Model
from ..schema.rows import FIRST, Row

__all__ = ["FUNCTIONS", "Translation", "function_name"]

FUNCTIONS: MappingProxyType[str, Callable[[Any], Any]] = MappingProxyType(
    {"str": str, "float": float, "int": int, "Decimal": Decimal, "isoformat": date.isoformat}
)
"""What a catalogue can name, by that name: functions that nobody needs a script for."""
_TOTAL = {
    ("str", "str"): frozenset({"int", "int32", "float", "Decimal", "UUID", "bool", "date"}),
    ("float", "float"): frozenset({"int", "int32"}),
    ("Decimal", "Decimal"): frozenset({"int", "int32"}),
    ("int", "int"): frozenset({"int32", "bool"}),
    ("isoformat", "str"): frozenset({"date"}),
}
"""By such a function, and the type that it gives: the types of which it takes every value."""


def function_name(function: Any, source: FieldForm, target: FieldForm) -> str | None:
    """Return the name of a function that makes a value of one field of each value of another; None if it has none."""
    name = next((name for name, one in FUNCTIONS.items() if one is function or one == function), None)
    plain = source.members is UNSET and target.members is UNSET and (target.optional or not source.optional)
    return name if name and plain and source.type in _TOTAL.get((name, target.type), ()) else None


class Translation:
    """The way from one class to another.

    Args:
        source: the class, made of its form.
        target: the other one, made of its form.
        form: of the other class.
        link: from the one to the other.
    """

    def __init__(self, source: Model, target: Model, form: ModelForm, link: LinkForm) -> None:
        self._source, self._target = source, target
        self._properties = {new: old for old, new in link.properties.items()}
        self._values = {link.properties[name]: dict(pairs) for name, pairs in link.values.items()}
        self._functions = {name: FUNCTIONS[one] for name, one in link.functions.items()}
        self._fields = {field.property: field for field in source.declaration.fields}
        self._places = {field.property: at for at, field in enumerate(source.columns, FIRST)}
        self._defaults = [stored_default(form.fields[field.property]) for field in target.columns]

    def key(self, partition: str, row: str) -> tuple[str, str]:
        """Return the key that an entity has there; raise InvalidEntity if it is too long."""
        values = self._key_values(partition, row)
        name = f"what {self._source.name} {(partition, row)} is as {self._target.name}"
        first, second = (
            check_key(self._encoded(template, values), what=name) for template in self._target.declaration.templates
        )
        return first, second

    def row(self, row: Row, other: Row | None) -> Row:
        """Return the row that an entity has there.

        Args:
            row: of the entity here.
            other: what is stored of it there: what only the other class has stays as it is.
        """
        keyed = self._key_values(row[0], row[1])
        values: list[Any] = []
        for at, (field, default) in enumerate(zip(self._target.columns, self._defaults, strict=True), FIRST):
            property = self._properties.get(field.property)
            if property is None:
                values.append(default if other is None else other[at])
                continue
            place = self._places.get(property)
            value = self._stored(property, keyed) if place is None else row[place]
            if value is not None and (function := self._functions.get(property)) is not None:
                value = field.type.store(function(self._fields[property].type.load(value)))
            values.append(self._mapped(field.property, value))
        return (*self.key(row[0], row[1]), 0, *values)

    def _key_values(self, partition: str, row: str) -> dict[str, Any]:
        """Return the values that a key holds, by their fields."""
        first, second = self._source.declaration.templates
        return first.decode(partition, trusted=True) | second.decode(row, trusted=True)

    def _stored(self, property: str, keyed: dict[str, Any]) -> Any:
        field = self._fields[property]
        return field.type.store(keyed[field.name])

    def _mapped(self, property: str, value: Any) -> Any:
        values = self._values.get(property)
        return value if values is None else values.get(value, value)

    def _encoded(self, template: Template, keyed: dict[str, Any]) -> str:
        values = {}
        for name in dict.fromkeys(slot.field for slot in template.slots):
            field = self._target.declaration.field(name)
            stored = self._stored(self._properties[field.property], keyed)
            values[name] = field.type.load(self._mapped(field.property, stored))
        return template.encode(values)
