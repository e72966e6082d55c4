"""Python source of values, names and calls. What was a text of a store is a literal here, or a name that Python takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from ..entities.entity import Record
from ..limits import is_name
from ..values.geo import GeoPoint

__all__ = ["attribute_name", "call", "imports_of", "text_source", "texts_source", "value_source"]

WIDTH = 88
_IMPORTS = (
    (r"\bdt\.", "import datetime as dt"),
    (r"\bDecimal\b", "from decimal import Decimal"),
    (r"\bAny\b|\bAnnotated\b|\bLiteral\b|\bNotRequired\b|\bTypedDict\b", "from typing import {}"),
    (r"\bUUID\b", "from uuid import UUID"),
    (r"\battrs\.", "import attrs"),
    (r"\bmsgspec\.", "import msgspec"),
)
_OF_SCRIPTS = frozenset({
    "key", "tm", "dt", "attrs", "msgspec", "old", "new", "Any", "Annotated", "Literal", "Decimal", "UUID", "str", "int",
    "float", "bool", "bytes", "list", "dict", "set", "frozenset", "tuple",
})  # fmt: skip
"""What the names of attributes would hide in a class body."""


def attribute_name(property: str) -> str:
    """Return the name that a property has as an attribute of a frozen class; no two have the same."""
    taken = property in _OF_SCRIPTS or hasattr(Record, property) or property.startswith(("_", "property_"))
    if is_name(property) and not taken:
        return property
    plain = is_name(f"property_{property}")
    return f"property_{property if plain else re.sub('[^A-Za-z0-9_]', lambda sign: f'_{ord(sign[0]):x}_', property)}"


def imports_of(source: str) -> list[str]:
    """Return the lines of imports for a source, without that of ``tm``, in groups with an empty line between them."""
    code = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', '""', source)
    groups: list[list[str]] = [[], []]
    for pattern, line in _IMPORTS:
        if names := sorted(set(re.findall(pattern, code))):
            groups[line in ("import attrs", "import msgspec")].append(line.format(", ".join(names)))
    return [*groups[0], *([""] if groups[0] else []), *groups[1]]


def call(head: str, arguments: Sequence[str], tail: str = "", indent: int = 0) -> list[str]:
    """Return the lines of a call, broken as a formatter breaks them."""
    line = f"{' ' * indent}{head}({', '.join(arguments)}){tail}"
    if len(line) <= WIDTH or not arguments:
        return [line]
    inner = [line for argument in arguments for line in _broken(argument, indent + 4)]
    return [f"{' ' * indent}{head}(", *inner, f"{' ' * indent}){tail}"]


def _broken(argument: str, indent: int) -> Iterator[str]:
    """Yield the lines of an argument; a condition that is too long has a line for each part."""
    start = " " * indent
    if len(start + argument) < WIDTH:
        yield f"{start}{argument},"
        return
    head, function, condition = argument.partition("lambda e: ")
    if function:
        yield f"{start}{head}{function}("
        yield from _broken_condition(condition, " " * (indent + 4))
        yield f"{start}),"
    else:
        *most, last = _broken_condition(argument, start)
        yield from [*most, f"{last},"]


def _broken_condition(condition: str, start: str) -> Iterator[str]:
    """Yield a condition, broken before each of its operators that stands outside of parentheses."""
    if len(start + condition) <= WIDTH:
        yield start + condition
        return
    depth = begin = 0
    for at, sign in enumerate(condition):
        depth += (sign in "([{") - (sign in ")]}")
        if not depth and condition[at : at + 3] in (" & ", " | "):
            yield start + condition[begin:at].strip()
            begin = at
    yield start + condition[begin:].strip()


def text_source(text: str) -> str:
    """Return a text as Python writes it."""
    return _double_quoted(repr(text))


def _double_quoted(literal: str) -> str:
    """Return a literal with double quotation marks, if it needs no escapes for that, as a formatter writes it."""
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in literal else literal


def texts_source(text: str | Sequence[str]) -> str:
    """Return a text, or several as a tuple, as Python writes it."""
    return text_source(text) if isinstance(text, str) else value_source(tuple(text))


def value_source(value: Any) -> str:
    """Return a value of a field as Python writes it: a scalar, or several in a list, a tuple, a set or a dict."""
    if isinstance(value, str):
        return text_source(value)
    if isinstance(value, bytes):
        return f"b{_double_quoted(repr(value)[1:])}"
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
        return f"{_moment(value)[:-1]}, tzinfo=dt.UTC)"
    if isinstance(value, date | time | timedelta):
        return _moment(value)
    if isinstance(value, Decimal | UUID):
        return f"{type(value).__name__}({text_source(str(value))})"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f"float({text_source(str(value))})"
    if isinstance(value, dict):
        return f"{{{', '.join([f'{value_source(name)}: {value_source(one)}' for name, one in value.items()])}}}"
    if isinstance(value, list | tuple | set):
        listed = ", ".join(map(value_source, value))
        if isinstance(value, set):
            return f"{{{listed}}}" if value else "set()"
        return f"[{listed}]" if isinstance(value, list) else f"({listed}{',' if len(value) == 1 else ''})"
    if isinstance(value, GeoPoint):
        return f"tm.{value!r}"
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return str(int(value))
    raise ValueError(f"{type(value).__name__} has no source")


def _moment(value: Any) -> str:
    return repr(value).replace("datetime.", "dt.", 1)
