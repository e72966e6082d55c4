"""Elements of lists, and paths into nested values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import attrs

from ..errors import InvalidQuery
from ..values.parts import Path
from ..values.scalars import ValueType
from .arithmetic import Expr, Incomparable

O = TypeVar("O", contravariant=True)  # noqa: E741, PLC0105  the owner of a list: its entity class
U_co = TypeVar("U_co", covariant=True)


@attrs.frozen(eq=False, repr=False)
class ElementAttr(Incomparable, Expr[U_co, O], Generic[O, U_co]):
    """Each element of a list, once: an entity is in the group of each."""

    list: Any

    def __attrs_post_init__(self) -> None:
        kind: ValueType = self.list.type
        if kind.element is None or not kind.element.keyable:
            raise InvalidQuery(f"{self!r}: expected a list of scalar values, got {kind.name}")

    def __repr__(self) -> str:
        return f"{self.list!r}.each()"

    @property
    def label(self) -> str:
        """The element as a user writes it, without its class: ``tags.each()``."""
        return f"{self.list.label}.each()"

    @property
    def type(self) -> ValueType:
        """The type of the elements."""
        element: ValueType = self.list.type.element
        return element

    def attributes(self) -> Iterator[Any]:
        """Yield the list."""
        yield self.list

    def _refusal(self) -> InvalidQuery:
        return InvalidQuery(
            f"{self!r} is for the groups of an aggregate; for a condition write {self.list!r}.contains(…)"
        )


class Recorder:
    """The argument of a function given to `Attr.at`: it remembers which attributes were read."""

    __slots__ = ("path_",)

    def __init__(self, path: Path) -> None:
        self.path_: Path = path

    def __getattr__(self, name: str) -> Recorder:
        return Recorder((*self.path_, name))

    def __getitem__(self, name: str | int) -> Recorder:
        return Recorder((*self.path_, name))
