"""Calls and imports as lines of Python, broken as a formatter breaks them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

WIDTH = 88
_IMPORTS = (
    (r"\bdt\.", "import datetime as dt"),
    (r"\bDecimal\b", "from decimal import Decimal"),
    (r"\bAny\b|\bAnnotated\b|\bLiteral\b|\bNotRequired\b|\bTypedDict\b", "from typing import {}"),
    (r"\bUUID\b", "from uuid import UUID"),
    (r"\battrs\.", "import attrs"),
    (r"\bmsgspec\.", "import msgspec"),
)


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
    argument_lines = [line for argument in arguments for line in _broken(argument, indent + 4)]
    return [f"{' ' * indent}{head}(", *argument_lines, f"{' ' * indent}){tail}"]


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
        *most, final = _broken_condition(argument, start)
        yield from [*most, f"{final},"]


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
