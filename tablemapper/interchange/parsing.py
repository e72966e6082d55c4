"""Conditions, orders and keys as a person types them: ``price<8``, ``-price``, ``books 1``.

``field op value``. A field is a name, and dots lead into nested values. The value follows the first operator, and
the type of the field reads it: text as it stands, or in JSON's quotes. Anything else is JSON, or its own text
(``2026-01-31``). After ``>=`` and ``<`` a date means its begin in UTC, where the field has moments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ..entities.declaration import declaration_of
from ..entities.key import KeyOf
from ..errors import InvalidQuery, did_you_mean, safe_repr
from ..expressions.tree import Assignment, Attr, Order, Predicate
from ..values.precision import TIMES, cut_text
from ..values.scalars import SCALARS, ValueType

OPERATORS: Mapping[str, Callable[[Any, Any], Predicate[Any]]] = {
    "==": lambda attr, value: attr == value,
    "!=": lambda attr, value: attr != value,
    "<=": lambda attr, value: attr <= value,
    ">=": lambda attr, value: attr >= value,
    "<": lambda attr, value: attr < value,
    ">": lambda attr, value: attr > value,
    "startswith": lambda attr, value: attr.startswith(value),
    "contains": lambda attr, value: attr.contains(value),
    "in": lambda attr, values: attr.is_in(values),
    "is not null": lambda attr, _: attr.is_not_null(),
    "is null": lambda attr, _: attr.is_null(),
}
"""What each operator makes of a field and a value."""
_CONDITION = re.compile(
    r"\s*(?P<field>[^\W\d][\w.]*)\s*(?:(?P<sign>==|!=|<=|>=|<|>)|(?<=\s)(?P<word>is\s+not\s+null|is\s+null|startswith|contains|in)(?=\s|$))"
    r"\s*(?P<value>.*)",
    re.DOTALL,
)
_CALL = re.compile(r"\s*(?P<field>[^\W\d]\w*)\.(?P<call>[^\W\d]\w*)\(")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ANOTHER = re.compile(r"\s(?:and|or|&&?|\|\|?)\s+([^\W\d]\w*)[\w.]*\s*(?:==|!=|<|>|\s(?:is|startswith|contains|in)\s)")
_EXAMPLES = {"datetime": "2026-01-31T10:00:00Z; a day is a range, >=2026-01-31 and <2026-02-01", "date": "2026-01-31"}
_NOTHING = object()
_ASSIGNMENT = re.compile(r"(?P<field>[^\W\d][\w.]*)(?P<sign>:?=)(?P<value>.*)", re.DOTALL)
_UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, msgspec.MsgspecError)


def condition(cls: type[Any], text: str, /) -> Predicate[Any]:
    """Return the condition that a text says.

    Raises:
        InvalidQuery: there is no such field or operator, or the value is none of the field's type.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        if (call := _CALL.match(text)) is not None:
            name = call["field"]
            raise InvalidQuery(
                f"{safe_repr(text)}: {call['call']}() is for programs; typed, two conditions say a range: "
                f"{name}>=2026-01-31T00:00:00Z and {name}<2026-02-01T00:00:00Z"
            )
        raise InvalidQuery(
            f"{safe_repr(text)}: expected a field, an operator and a value, as in price<8; the operators are {', '.join(OPERATORS)}"
        )
    attr = field(cls, match["field"])
    another = None if isinstance(_json(match["value"]), str | list) else _ANOTHER.search(match["value"])
    if another is not None and another[1] in _names(cls):
        raise InvalidQuery(
            f"{safe_repr(text)}: this is one condition, with all of it from {safe_repr(match['value'])} as its value; give each "
            "condition by itself, or write a value that is meant so in double quotes"
        )
    operator = match["sign"] or " ".join(match["word"].split())
    value: Any = None
    if operator == "in":
        value = [_value(attr.type, attr, item) for item in _items_of(match["value"])]
    elif operator == "contains" and (element := attr.type.element) is not None:
        value = _value(element, attr, match["value"])
    elif not operator.startswith("is "):
        begin = attr.type.name == "datetime" and operator in (">=", "<") and _DATE.fullmatch(match["value"].strip())
        value = _value(attr.type, attr, f"{begin[0]}T00:00:00Z" if begin else match["value"])
    return OPERATORS[operator](attr, value)


def assignment(cls: type[Any], text: str, /) -> Assignment[Any]:
    """Return the assignment that a text says: ``field=value``, or ``field:=`` and JSON.

    Raises:
        InvalidQuery: there is no such field, or the value is none of its type.
    """
    parts = _ASSIGNMENT.fullmatch(text)
    if parts is None:
        raise InvalidQuery(f"{safe_repr(text)}: expected a field and a value, as in price=8 or note:=null")
    attr, value = field(cls, parts["field"]), parts["value"]
    if parts["sign"] == ":=":
        parsed = _json(value)
        if parsed is _NOTHING:
            raise InvalidQuery(f"{attr!r}: {safe_repr(value)} is no JSON; {parts['field']}=… takes a text as it stands")
        return attr.set(None if parsed is None else _value(attr.type, attr, value))
    as_text = not attr.type.dynamic and attr.type.enum is None and _is_text(attr.type, value)
    return attr.set(_value(attr.type, attr, msgspec.json.encode(value).decode() if as_text else value))


def plain_value(kind: ValueType, text: str) -> Any:
    """Return what a cell of CSV holds, as JSON has it: the text where the type reads that, else the JSON in it."""
    parsed = _NOTHING if _is_text(kind, text) else _json(text)
    return text if parsed is _NOTHING else parsed


def _is_text(kind: ValueType, text: str) -> bool:
    """Return whether a text is a value of a type whose JSON is a text, too."""
    scalar = kind if kind.own is None else SCALARS[kind.kind]
    with suppress(*_UNREADABLE):
        return scalar.text or isinstance(scalar.to_json(scalar.check(scalar.from_json(text))), str)
    return False


def orders(cls: type[Any], text: str, /) -> list[Order[Any]]:
    """Return the orders that a text lists, as in ``-price,name``: a minus for the greatest first."""
    names = [name.strip() for name in text.split(",")]
    return [field(cls, name[1:]).desc() if name.startswith("-") else field(cls, name).asc() for name in names]


def key(cls: type[Any], texts: Iterable[str], /) -> KeyOf[Any]:
    """Return the key of the values that are given as texts, in the order of the arguments of ``key(…)``."""
    names, values = declaration_of(cls).arguments, list(texts)
    if len(names) != len(values):
        raise InvalidQuery(
            f"the key of {cls.__name__} is {', '.join(names)}: expected {len(names)} {'value' if len(names) == 1 else 'values'}, got {len(values)}"
        )
    attrs = [field(cls, name) for name in names]
    entity_key: KeyOf[Any] = cls.key(*(_value(attr.type, attr, text) for attr, text in zip(attrs, values, strict=True)))
    return entity_key


def field(cls: type[Any], path: str, /) -> Attr[Any, Any]:
    """Return the field of a name, or of a property that is called so, or what dots in it lead to within.

    Raises:
        InvalidQuery: there is none.
    """
    name, *within = path.split(".")
    names = _names(cls)
    if name not in names:
        field_list = ", ".join(sorted(set(names.values())))
        raise InvalidQuery(
            f"{cls.__name__} has no field {safe_repr(name)}; it has {field_list}{did_you_mean(name, names)}"
        )
    attr: Attr[Any, Any] = getattr(cls, names[name])
    for part in within:
        attr = attr[part]
    return attr


def _names(cls: type[Any]) -> Mapping[str, str]:
    """Return the names of the fields, also by those of their properties."""
    fields = declaration_of(cls).fields
    return {model.property: model.name for model in fields} | {model.name: model.name for model in fields}


def _items_of(text: str) -> list[Any]:
    """Return the values of a list: in JSON, or separated by commas."""
    parsed = _json(text)
    return parsed if isinstance(parsed, list) else [item.strip() for item in text.split(",")]


def _value(kind: ValueType, attr: Attr[Any, Any], text: Any) -> Any:
    """Return the value that a text stands for."""
    if kind.own is not None:
        return kind.own.load(_value(SCALARS[kind.kind], attr, text))
    parsed = _json(text) if isinstance(text, str) else text
    if kind.enum is not None and text in kind.enum.__members__:
        return kind.enum[text]
    if kind.dynamic:
        return text if parsed is _NOTHING else parsed
    candidates = [parsed, text] if not kind.text or (isinstance(parsed, str) and text[:1] == '"') else [text]
    for candidate in candidates:
        if candidate is not _NOTHING:
            for parse in (
                kind.from_json,
                lambda plain: msgspec.convert(
                    cut_text(plain) if kind.kind in TIMES and isinstance(plain, str) else plain, kind.kind
                ),
            ):  # (a time in any form of RFC 3339)
                with suppress(*_UNREADABLE):
                    return kind.check(parse(candidate))
    like = f", such as {_EXAMPLES[kind.name]}" if kind.name in _EXAMPLES else ""
    members = like if kind.members is None else f": one of {', '.join(map(str, kind.members))}"
    raise InvalidQuery(f"{attr!r}: {safe_repr(text)} is no {kind.name}{members}")


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return _NOTHING
