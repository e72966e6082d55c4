"""The rows of one version of a class, translated to those of another version, by the catalogue's link between them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from msgspec import UNSET

from ..datetime_types import Builtin
from ..keys.composite_times import decode
from ..keys.encodings import check_key
from ..keys.template import Template
from ..schema.model import Model
from ..schema.rows import FIRST, Row
from ..schema.specs import FieldSpec, LinkSpec, ModelSpec, stored_default

FUNCTIONS: MappingProxyType[str, Callable[[Any], Any]] = MappingProxyType(
    {"str": str, "float": float, "int": int, "Decimal": Decimal, "isoformat": Builtin.date.isoformat}
)
"""The functions that a link can name, by name: they need no migration script."""
_TOTAL = {
    ("str", "str"): frozenset({"int", "int32", "float", "Decimal", "UUID", "bool", "date"}),
    ("float", "float"): frozenset({"int", "int32"}),
    ("Decimal", "Decimal"): frozenset({"int", "int32"}),
    ("int", "int"): frozenset({"int32", "bool"}),
    ("isoformat", "str"): frozenset({"date"}),
}
"""By the name of a function and the type of its result: the types of which it converts every value."""


def function_name(function: Any, source: FieldSpec, target: FieldSpec) -> str | None:
    """Return the name of a function in `FUNCTIONS`; None if it is not there, or cannot convert every value."""
    name = next((name for name, candidate in FUNCTIONS.items() if candidate is function or candidate == function), None)
    plain = source.members is UNSET and target.members is UNSET and (target.optional or not source.optional)
    return name if name and plain and source.type in _TOTAL.get((name, target.type), ()) else None


class Translation:
    """The translation of rows from one class to another.

    Args:
        source: the class that the rows are of, compiled from its form.
        target: the other class, compiled from its form.
    """

    def __init__(self, source: Model, target: Model, form: ModelSpec, link: LinkSpec) -> None:
        self._source, self._target = source, target
        self._properties = {new: old for old, new in link.properties.items()}
        self._values = {link.properties[name]: dict(pairs) for name, pairs in link.values.items()}
        self._functions = {name: FUNCTIONS[function] for name, function in link.functions.items()}
        self._fields = {field.property: field for field in source.declaration.fields}
        if unknown := sorted(link.properties.keys() - self._fields.keys()):
            raise ValueError(f"{source.name} lacks {', '.join(unknown)}")
        self._places = {field.property: at for at, field in enumerate(source.columns, FIRST)}
        self._defaults = [stored_default(form.fields[field.property]) for field in target.columns]

    def key(self, partition: str, row: str) -> tuple[str, str]:
        """Return the key in the target of an entity of the source; raise InvalidEntity if it is too long."""
        values = self._key_values(partition, row)
        name = f"what {self._source.name} {(partition, row)} is as {self._target.name}"
        first, second = (
            check_key(self._encoded(template, values), what=name) for template in self._target.declaration.templates
        )
        return first, second

    def row(self, row: Row, other: Row | None) -> Row:
        """Return the row of the target for a row of the source.

        Args:
            other: the row that the target has so far; properties that only the target has keep their values.
        """
        keyed = self._key_values(row[0], row[1])
        values: list[Any] = []
        for at, (field, default) in enumerate(zip(self._target.columns, self._defaults, strict=True), FIRST):
            property = self._properties.get(field.property)
            if property is None:
                values.append(default if other is None else other[at])
                continue
            place = self._places.get(property)
            value = self._stored_value(property, keyed) if place is None else row[place]
            if value is not None and (function := self._functions.get(property)) is not None:
                value = field.type.store(function(self._fields[property].type.load(value)))
            values.append(self._mapped(field.property, value))
        return (*self.key(row[0], row[1]), 0, *values)

    def _key_values(self, partition: str, row: str) -> dict[str, Any]:
        """Return the values in a key of the source, by field."""
        return decode(self._source.declaration.templates, (partition, row))

    def _stored_value(self, property: str, keyed: dict[str, Any]) -> Any:
        field = self._fields[property]
        return field.type.store(keyed[field.name])

    def _mapped(self, property: str, value: Any) -> Any:
        values = self._values.get(property)
        return value if values is None else values.get(value, value)

    def _encoded(self, template: Template, keyed: dict[str, Any]) -> str:
        values = {}
        for name in dict.fromkeys(slot.field for slot in template.slots):
            field = self._target.declaration.field(name)
            stored_value = self._stored_value(self._properties[field.property], keyed)
            values[name] = field.type.load(self._mapped(field.property, stored_value))
        return template.encode(values)
