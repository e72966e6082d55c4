"""Conditions as a person types them: the inverse of `tablemapper.interchange.parsing`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import Any

import msgspec

from ..errors import InvalidQuery, TableMapperError
from ..expressions.tree import Attr, Compare, Contains, In, IsNull, Not, Predicate, StartsWith
from ..interchange.parsing import condition
from .cells import plain_text


def parts(predicate: Predicate[Any]) -> tuple[Attr[Any, Any], str, Any]:
    """Return the field, the operator and the value of a condition that was typed."""
    match predicate:
        case Compare(attr=attr, op=op, value=value):
            return attr, op, value
        case StartsWith(attr=attr, text=value):
            return attr, "startswith", value
        case Contains(attr=attr, value=value):
            return attr, "contains", value
        case In(attr=attr, values=values):
            return attr, "in", list(values)
        case IsNull(attr=attr):
            return attr, "is null", None
        case Not(part=IsNull(attr=attr)):
            return attr, "is not null", None
    raise InvalidQuery(f"{predicate!r} cannot be shown")


def line(predicate: Predicate[Any]) -> tuple[str, str, str]:
    """Return a condition as a line of the form, which reads the same again."""
    attr, op, value = parts(predicate)
    name, texts = ".".join((attr.name, *attr.path)), list(_values(op, value))
    readable = [text for text in texts if _reads_as(attr, f"{name} {op} {text}", predicate)]
    return name, op, (readable or texts)[0]


def typed(predicate: Predicate[Any]) -> str | None:
    """Return a condition as one text, which reads the same again; None if none does."""
    text = " ".join([part for part in line(predicate) if part])
    return text if _reads_as(parts(predicate)[0], text, predicate) else None


def equal(attr: Attr[Any, Any], value: Any, *, element: bool = False) -> str | None:
    """Return the text of the condition that a field has a value, or a list has an element; None if none says so."""
    try:
        return typed(attr.is_null() if value is None else attr.contains(value) if element else attr == value)
    except (TableMapperError, ValueError, TypeError):
        return None


def _values(op: str, value: Any) -> Iterator[str]:
    """Yield the texts of a value: as it stands, then in JSON's quotes; items that look like JSON are quoted twice."""
    values = value if op == "in" else [] if value is None else [value]
    texts = [plain_text(item.value if isinstance(item, Enum) else item) for item in values]
    yield ",".join(texts)
    with suppress(UnicodeError):
        yield _json(texts if op == "in" else "".join(texts))
        if op == "in":
            yield _json([_json(text) for text in texts])


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _reads_as(attr: Attr[Any, Any], text: str, predicate: Predicate[Any]) -> bool:
    if any(sign in text for sign in "\0\r\n"):  # (the field of a form keeps none of them)
        return False
    with suppress(TableMapperError, ValueError, TypeError):
        (_, op, value), (_, read_op, read_value) = parts(predicate), parts(condition(attr.owner, text))
        return bool(op == read_op and value == read_value and type(value) is type(read_value))
    return False
