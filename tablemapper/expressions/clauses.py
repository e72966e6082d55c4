"""Clauses of queries and writes over a field: orders and assignments."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import attrs

O = TypeVar("O", contravariant=True)  # noqa: E741, PLC0105  the owner of the field: its entity class


@attrs.frozen(eq=False)
class Order(Generic[O]):
    """One step of an order: a field, and its direction."""

    attr: Any
    descending: bool
    wide: bool = False
    """Whether there may be ints beyond 64 bits, so that all are compared by a text."""


@attrs.frozen(eq=False)
class Assignment(Generic[O]):
    """A change of one field, or of a part of it, by `merge` or ``update``: set it, add to it, or remove it."""

    attr: Any
    value: Any
    adds: bool = False
    removes: bool = False
