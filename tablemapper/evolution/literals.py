"""Python source of values and names. What was a text of a store is a literal here, or a name that Python takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from msgspec import UNSET, convert

from ..entities.entity import Record
from ..limits import is_name
from ..schema.specs import FieldSpec, annotation
from ..values.geo import GeoPoint
from ..values.json_schema import type_of
from ..values.nested import value_type

_OF_SCRIPTS = frozenset({
    "key", "tm", "dt", "attrs", "msgspec", "old", "new", "Any", "Annotated", "Literal", "Decimal", "UUID", "str", "int",
    "float", "bool", "bytes", "list", "dict", "set", "frozenset", "tuple",
})  # fmt: skip
"""What the names of attributes would hide in a class body."""


def attribute_name(property: str) -> str:
    """Return the name that a property has as an attribute of a frozen class; no two have the same."""
    is_reserved = property in _OF_SCRIPTS or hasattr(Record, property) or property.startswith(("_", "property_"))
    if is_name(property) and not is_reserved:
        return property
    plain = is_name(f"property_{property}")
    return f"property_{property if plain else re.sub('[^A-Za-z0-9_]', lambda sign: f'_{ord(sign[0]):x}_', property)}"


def text_source(text: str) -> str:
    """Return a text as Python writes it."""
    return _double_quoted(repr(text))


def _double_quoted(literal: str) -> str:
    """Return a literal with double quotation marks, if it needs no escapes for that, as a formatter writes it."""
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in literal else literal


def texts_source(text: str | Sequence[str]) -> str:
    """Return a text, or several as a tuple, as Python writes it."""
    return text_source(text) if isinstance(text, str) else value_source(tuple(text))


def value_source(value: Any, special_source: Callable[[Any], str | None] = lambda _: None) -> str:
    """Return a value of a field as Python writes it: a scalar, or several in a list, a tuple, a set or a dict.

    Args:
        value: the value.
        special_source: returns the source of values that are written otherwise, here or in others; None of all the rest.

    Raises:
        ValueError: a value has no source.
    """
    if (source := special_source(value)) is not None:
        return source
    if isinstance(value, str):
        return text_source(value)
    if isinstance(value, bytes):
        return f"b{_double_quoted(repr(value)[1:])}"
    if isinstance(value, datetime):
        value = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return f"{_moment(value)[:-1]}, tzinfo=dt.UTC)"
    if isinstance(value, date | time | timedelta):
        return _moment(value)
    if isinstance(value, Decimal | UUID):
        return f"{type(value).__name__}({text_source(str(value))})"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f"float({text_source(str(value))})"
    if isinstance(value, dict):
        pairs = [[value_source(one, special_source) for one in pair] for pair in value.items()]
        return f"{{{', '.join(map(': '.join, pairs))}}}"
    if isinstance(value, list | tuple | set | frozenset):
        items = ", ".join([value_source(item, special_source) for item in value])
        if isinstance(value, frozenset):
            return f"frozenset({{{items}}})" if value else "frozenset()"
        if isinstance(value, set):
            return f"{{{items}}}" if value else "set()"
        return f"[{items}]" if isinstance(value, list) else f"({items}{',' if len(value) == 1 else ''})"
    if isinstance(value, GeoPoint):
        return f"tm.{value!r}"
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return str(int(value))
    raise ValueError(f"{type(value).__name__} has no source")


def default_source(form: FieldSpec) -> str:
    """Return the default of a field as Python writes it."""
    if isinstance(form.default, list) and form.json is not UNSET:  # of a tuple or a frozenset: no other has one
        items = [value_source(item) for item in convert(form.default, type_of(form.json))]
        text = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        return f"frozenset({text})" if "uniqueItems" in form.json else text
    kind, _ = value_type(annotation(form))
    return value_source(kind.undump(form.default))


def _moment(value: Any) -> str:
    return repr(value).replace("datetime.", "dt.", 1)
