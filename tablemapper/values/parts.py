"""Parts of nested values: their places, and copies of values in which one part is another."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import msgspec

from .scalars import ValueFault, ValueType

Path: TypeAlias = tuple[Any, ...]
"""The steps to a part: names of members and of entries, and places in lists."""

MISSING = object()
"""Stands for no value: of an entry that is not there, and of one that goes."""
_is_plain = re.compile(r'[^.()\["]+').fullmatch  # (a key of a dict can be any text but one with a quotation mark)


def is_no_value(value: Any) -> bool:
    """Return whether a part is not there: None, or `MISSING`."""
    return value is None or value is MISSING


def path_text(path: Path) -> str:
    """Return a path as a user writes it behind the name of the field: ``.address.city``, ``[0]``."""
    return "".join(
        [f"[{step}]" if step.__class__ is int else f".{step}" if _is_plain(step) else f'["{step}"]' for step in path]
    )


def list_path(path: Path) -> Path:
    """Return the path to the outermost list on the way; else the path."""
    return next((path[:at] for at, step in enumerate(path) if step.__class__ is int), path)


class NoElement(ValueFault):
    """A list has no element at a place."""


def item_type(kind: ValueType) -> ValueType:
    """Return the type of what a list, a tuple or a set holds; raise `ValueFault` if its annotation does not say it."""
    assert kind.member is not None
    return kind.member(0)[0]


def extended(kind: ValueType, items: Sequence[Any]) -> Callable[[Any], Any]:
    """Return the function that adds elements to a list, a tuple or a set; a missing one counts as empty."""
    assert kind.container is not None
    container = kind.container
    return lambda value: container([*(() if is_no_value(value) else value), *items])


def discarded(kind: ValueType, items: Sequence[Any]) -> Callable[[Any], Any]:
    """Return the function that takes out of a list, a tuple or a set what equals one of some elements."""
    assert kind.container is not None
    container = kind.container
    return lambda value: value if is_no_value(value) else container([item for item in value if item not in items])


def altered(kind: ValueType, value: Any, path: Path, alter: Callable[[Any], Any], before: Path = ()) -> Any:
    """Return a copy of a nested value in which a function made one part of what it was.

    Args:
        value: None or `MISSING` for no value.
        alter: gets `MISSING` for an entry that is not there, and returns it for one that goes.
        before: where the value stands in its field.

    Raises:
        ValueFault: there is nothing that it is a part of.
        NoElement: the list ends before it.
    """
    if not path:
        return alter(value)
    step, inner = path[0], path[1:]
    member, before = kind.member_type(step) if inner else kind, (*before, step)
    is_missing = is_no_value(value)
    if step.__class__ is int:
        items = [] if is_missing else [*value]
        if not -len(items) <= step < len(items):
            raise NoElement(f"it has {len(items)} element{'s'[: len(items) != 1]}", path_text(before))
        place = step % len(items)
        part = altered(member, items[place], inner, alter, before)
        items[place : place + 1] = [] if part is MISSING else [part]
        assert kind.container is not None
        return kind.container(items)
    if kind.container is dict:
        entries = {} if is_missing else dict(value)
        part = altered(member, entries.get(step, MISSING), inner, alter, before)
        if part is MISSING:
            return value if entries.pop(step, MISSING) is MISSING else entries
        return entries | {step: part}
    part = altered(member, MISSING if is_missing else getattr(value, step), inner, alter, before)
    if is_missing:
        if part is MISSING:
            return value
        raise ValueFault(f"the value that contains {step} is missing; set the whole value")
    return _with_member(value, step, None if part is MISSING else part)


def _with_member(value: Any, name: str, member: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: member})
    if attrs.has(type(value)):
        return attrs.evolve(value, **{getattr(attrs.fields(type(value)), name).alias: member})
    if dataclasses.is_dataclass(value):
        return dataclasses.replace(value, **{name: member})  # type: ignore[type-var]
    return value.__replace__(**{name: member})


def check_removable(kind: ValueType, path: Path) -> None:
    """Raise `ValueFault` if a part is none that may be missing."""
    *parents, part = path
    for step in parents:
        kind = kind.member_type(step)
    if part.__class__ is not int and kind.container is not dict:
        raise ValueFault(
            f"{part} cannot be removed; an entry of a dict can, an element of a list, and an undeclared property: "
            "use .set(None)"
        )
