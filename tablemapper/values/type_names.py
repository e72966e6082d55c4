"""The names of types in the module of a class, for declarations to paste into its body."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

from .scalars import ValueType


def type_name(type: ValueType, cls: Any) -> str | None:
    """Return a type as the body of a class can name it; None if its module has no name for it.

    A module can have a type under a name of its own (``from datetime import datetime as at``), or inside of another
    module that it imports (``import datetime as dt``).
    """
    if type.name == "int32":
        return "tm.Int32"
    if type.hierarchy:
        return "tuple[str, ...]"
    if type.enum is None and type.members is not None:
        return _literal_name(type.members, cls)
    plain = type.uncut or type
    if type.enum is None and type.own is None and plain.name != plain.kind.__name__:
        return None
    kind: Any = plain.kind if type.own is None else type.own.cls
    kind = type.enum or kind
    return _name(kind, kind.__qualname__, cls)


def _literal_name(members: list[Any], cls: Any) -> str | None:
    for alias, value in _scope(cls).items():
        if get_origin(value) is Literal and {*get_args(value)} == {*members} and alias not in vars(cls):
            return alias
    name = _name(Literal, "Literal", cls)
    return name and f"{name}[{', '.join(map(repr, members))}]"


def _name(kind: Any, own_name: str, cls: Any) -> str | None:
    body, nested = vars(cls), own_name.removeprefix(f"{cls.__qualname__}.")
    if nested != own_name and _inside(body, nested) is kind:
        return nested
    return next((name for name in _names(kind, own_name, cls) if name.partition(".")[0] not in body), None)


def _names(kind: Any, own_name: str, cls: Any) -> Iterator[str]:
    """Yield the names of an object in the module of a class."""
    scope = _scope(cls)
    if _inside(scope, own_name) is kind or getattr(builtins, own_name, None) is kind:
        yield own_name
    yield from (name for name, value in scope.items() if value is kind)
    for name, value in scope.items():
        if isinstance(value, ModuleType) and _inside(vars(value), own_name) is kind:
            yield f"{name}.{own_name}"


def _scope(cls: Any) -> Mapping[str, Any]:
    module = sys.modules.get(cls.__module__)
    return {} if module is None else vars(module)


def _inside(scope: Mapping[str, Any], path: str) -> Any:
    first, *steps = path.split(".")
    value = scope.get(first)
    for step in steps:
        value = getattr(value, step, None)
    return value
