"""The form in which values are kept that have to sort as they do: those whose least or greatest is asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

from ..codegen import Names
from ..keys.codec import key_codec
from ..values.scalars import SCALARS, ValueType

_BY_KEY = {"Decimal": key_codec(Decimal), "json[tuple[str, ...]]": key_codec(tuple)}
"""Of types whose values sort by their key texts only."""


def _builtin_kind(kind: ValueType) -> ValueType:
    return SCALARS[kind.kind] if kind.kind in (timedelta, bytes) else kind  # (inside JSON these are text)


def sortable(kind: ValueType) -> Callable[[Any], Any]:
    """Return the function that gives values a stored form that sorts in Python and in SQLite as they do."""
    if kind.own is not None:
        form, plain = sortable(SCALARS[kind.kind]), kind.own.plain
        return lambda value: form(plain(value))
    return _BY_KEY[kind.name].encode if kind.name in _BY_KEY else _builtin_kind(kind).store


def sortable_source(kind: ValueType, variable: str, names: Names) -> str:
    """Return source of what `sortable` gives."""
    if kind.name in _BY_KEY or kind.own is not None:
        return f"{names.name('sortable', sortable(kind))}({variable})"
    return _builtin_kind(kind).store_source(variable, names)


def store_sortable(kind: ValueType, value: Any) -> Any:
    """Return one value in its `sortable` form."""
    return sortable(kind)(value)


def load_sortable(kind: ValueType, sort_value: Any) -> Any:
    """Return the value that `store_sortable` was given; a Decimal without trailing zeros."""
    if kind.own is not None:
        return kind.own.load(load_sortable(SCALARS[kind.kind], sort_value))
    if sort_value.__class__ is int and kind.kind is int and kind.enum is None:
        return sort_value  # (one that is a sum can be beyond 64 bits)
    return _BY_KEY[kind.name].parse(sort_value) if kind.name in _BY_KEY else _builtin_kind(kind).load(sort_value)
