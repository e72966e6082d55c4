"""Clauses of queries and writes over a field: orders, assignments, and what makes assignments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Literal, TypeAlias, TypeVar, overload

import attrs

from ..errors import InvalidQuery, safe_repr
from ..values.scalars import ValueType
from .arithmetic import Number

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
O = TypeVar("O", contravariant=True)  # noqa: E741, PLC0105  the owner of the field: its entity class


_ListOf: TypeAlias = list[U] | tuple[U, ...] | None
_SetOf: TypeAlias = set[U] | frozenset[U] | None


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
    action: Literal["set", "add", "remove", "extend", "discard"] = "set"


class Elements(Generic[O, T_co]):
    """A field, or a part of one, whose elements `merge` and ``update`` can change, if it is a list, a tuple or a set."""

    __slots__ = ()

    @property
    def _kind(self) -> ValueType:
        """The type of its values."""
        raise NotImplementedError

    def append(self: Elements[O, _ListOf[U]], value: U, /) -> Assignment[O]:
        """Add an element at the end of a list or a tuple; a missing one counts as empty: ``Post.tags.append("new")``.

        Raises:
            InvalidQuery: the field is no list.
        """
        self._check_container("append", list, tuple)
        return Assignment(self, (value,), "extend")

    @overload
    def extend(self: Elements[O, _ListOf[U]], values: Iterable[U], /) -> Assignment[O]: ...
    @overload
    def extend(self: Elements[O, _SetOf[U]], values: Iterable[U], /) -> Assignment[O]: ...
    def extend(self, values: Any, /) -> Assignment[Any]:
        """Add elements to a list, a tuple or a set; a missing one counts as empty.

        Raises:
            InvalidQuery: the field is neither a list nor a set, or a text is given instead of elements.
        """
        self._check_container("extend", list, tuple, set, frozenset)
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InvalidQuery(f"{self!r}.extend({safe_repr(values)}): expected elements, as in a list")
        return Assignment(self, (*values,), "extend")

    @overload
    def discard(self: Elements[O, _ListOf[U]], value: U, /) -> Assignment[O]: ...
    @overload
    def discard(self: Elements[O, _SetOf[U]], value: U, /) -> Assignment[O]: ...
    def discard(self, value: Any, /) -> Assignment[Any]:
        """Take every element that equals a value out of a list, a tuple or a set; that there is none is no error.

        Raises:
            InvalidQuery: the field is neither a list nor a set.
        """
        self._check_container("discard", list, tuple, set, frozenset)
        return Assignment(self, (value,), "discard")

    def _check_container(self, verb: str, *containers: type) -> None:
        """Raise InvalidQuery if the field is none of some containers."""
        kind = self._kind
        if kind.container not in containers:
            fault = f"{kind.name} is no list{' and no set' * (set in containers)}"
            if kind.container in (set, frozenset):
                fault = "a set has no order; use .add(…)"
            raise InvalidQuery(f"{self!r}.{verb}(…): {fault}")


class Assignable(Elements[O, T], Generic[O, T]):
    """A field, or a part of one, that `merge` and ``update`` can change."""

    __slots__ = ()

    def _operand(self, value: object, op: str) -> Any:
        """Return a value as it is compared and added; raise InvalidQuery if it is of another type."""
        raise NotImplementedError

    def set(self, value: T | Number[O, T], /) -> Assignment[O]:
        """Set the field: to a value, a field or a calculation, as in ``Product.price.set(Product.cost * 2)``."""
        return Assignment(self, value)

    @overload
    def add(self: Elements[O, _SetOf[U]], value: U, /) -> Assignment[O]: ...
    @overload
    def add(self, value: T, /) -> Assignment[O]: ...
    def add(self, value: Any, /) -> Assignment[Any]:
        """Add to the stored value; a missing value counts as zero. Of a set, add an element: ``Post.tags.add("new")``.

        Raises:
            InvalidQuery: the field cannot be added to, or the value is of another type.
        """
        kind = self._kind
        if kind.container in (set, frozenset):
            return Assignment(self, (value,), "extend")
        if not kind.summable and not (kind.dynamic and type(value) in (int, float)):
            mend = "; for an element of a list write .append(…)" if kind.container in (list, tuple) else ""
            raise InvalidQuery(f"{self!r}.add(…): {kind.name} cannot be added to{mend}")
        return Assignment(self, self._operand(value, "add"), "add")

    def remove(self) -> Assignment[O]:
        """Remove a value: of a field, of an entry of a dict, of a place in a list, or an undeclared property.

        As in ``Device.more["x"].remove()`` and ``Order.lines[-1].remove()``.
        """
        return Assignment(self, None, "remove")
