"""Indexes as they are declared, and what calling one gives.

A declaration is text and names only; it is compiled against the fields when its class is made (`declaration`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Never, TypeVar, TypeVarTuple, overload

import attrs

from ..errors import InvalidQuery
from ..expressions.foreign_names import refuse_foreign_names
from ..expressions.tree import Predicate
from .key import TemplateText, dotted

E = TypeVar("E")
Ts = TypeVarTuple("Ts")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
F = TypeVar("F")
G = TypeVar("G")


@refuse_foreign_names("rows of an index", lambda rows: (f"what {_label(rows)}(…) gives", _label(rows)), "either")
class IndexRange(NamedTuple, Generic[E]):
    """The rows of an index whose leading components have these values; give it to ``store.query``."""

    entity: type[E]
    name: str
    values: tuple[Any, ...]


def _label(rows: IndexRange[Any]) -> str:
    return f"{rows.entity.__name__}.{rows.name}"


class Index(Generic[*Ts]):
    """A table of its own that finds entities by other fields, maintained by the store.

    Args:
        partition: template of the index row's partition key.
        row: template of its row key; the entity's own key follows where that is needed to be unique.
        include: names of fields kept in the index row, or ``"all"``; a query that needs no more never reads the entity.
        where: gives the condition for an entity to be in the index: ``where=lambda p: p.price > 10``. Type checkers know
            ``p`` of a function: ``def is_dear(p: type[Product]) -> tm.Predicate[Product]``.
        unique: no two entities may have the same partition and row; judged at the end of a transaction.
        accept: why advice about it is not followed, by code: ``accept={"TM002": "read once a night"}``.
        table: the name of its table; by default the entity's table and the index's own name, as in ``ProductsByName``.

    A template can name nested values: ``{home.city}``, an entry of a dict ``{sizes[large]}``, and an undeclared
    property ``{more[color]}``, as far as that is a text.

    An entity has no row while a component is None, and a row for each element of a component that is a list.
    """

    def __init__(
        self,
        *misplaced: Never,
        partition: TemplateText,
        row: TemplateText = "",
        include: tuple[str, ...] | str = (),
        where: Callable[[Any], Predicate[Any]] | None = None,
        unique: bool = False,
        table: str | None = None,
        accept: Mapping[str, str] | None = None,
        **unknown: Never,
    ) -> None:
        self.partition: Any = dotted(partition)
        self.row: Any = dotted(row)
        self.include = include
        self.where = where
        self.unique = unique
        self.table = table
        self.accept = accept
        self.misplaced: tuple[object, ...] = misplaced
        self.unknown: Mapping[str, object] = unknown

    if TYPE_CHECKING:

        @overload
        def __get__(self: Index[A], obj: None, owner: type[E], /) -> IndexCall1[E, A]: ...
        @overload
        def __get__(self: Index[A, B], obj: None, owner: type[E], /) -> IndexCall2[E, A, B]: ...
        @overload
        def __get__(self: Index[A, B, C], obj: None, owner: type[E], /) -> IndexCall3[E, A, B, C]: ...
        @overload
        def __get__(self: Index[A, B, C, D], obj: None, owner: type[E], /) -> IndexCall4[E, A, B, C, D]: ...
        @overload
        def __get__(self: Index[A, B, C, D, F], obj: None, owner: type[E], /) -> IndexCall5[E, A, B, C, D, F]: ...
        @overload
        def __get__(self: Index[A, B, C, D, F, G], obj: None, owner: type[E], /) -> IndexCall6[E, A, B, C, D, F, G]: ...
        def __get__(self, obj: Any, owner: Any, /) -> Any: ...


if TYPE_CHECKING:  # (with as many leading values as one likes)

    class IndexCall1(Generic[E, A]):
        def __call__(self, a: A = ..., /) -> IndexRange[E]: ...

    class IndexCall2(Generic[E, A, B]):
        def __call__(self, a: A = ..., b: B = ..., /) -> IndexRange[E]: ...

    class IndexCall3(Generic[E, A, B, C]):
        def __call__(self, a: A = ..., b: B = ..., c: C = ..., /) -> IndexRange[E]: ...

    class IndexCall4(Generic[E, A, B, C, D]):
        def __call__(self, a: A = ..., b: B = ..., c: C = ..., d: D = ..., /) -> IndexRange[E]: ...

    class IndexCall5(Generic[E, A, B, C, D, F]):
        def __call__(self, a: A = ..., b: B = ..., c: C = ..., d: D = ..., f: F = ..., /) -> IndexRange[E]: ...

    class IndexCall6(Generic[E, A, B, C, D, F, G]):
        def __call__(
            self, a: A = ..., b: B = ..., c: C = ..., d: D = ..., f: F = ..., g: G = ..., /
        ) -> IndexRange[E]: ...


@refuse_foreign_names("index", lambda call: (repr(call), repr(call)), "either")
@attrs.frozen
class IndexCall:
    """The run-time value of ``Product.by_name``: called with leading values, it gives an `IndexRange`."""

    entity: type[Any]
    index: str
    arguments: tuple[tuple[str, Callable[[Any], Any]], ...]
    """The fields, each with the check of its type."""

    def __call__(self, *values: Any) -> IndexRange[Any]:
        if len(values) > len(self.arguments):
            argument_names = ", ".join(name for name, _ in self.arguments)
            raise InvalidQuery(f"{self!r}: {len(values)} values, but it has {len(self.arguments)}: {argument_names}")
        checked = []
        for (name, check), value in zip(self.arguments, values, strict=False):
            try:
                checked.append(check(value))
            except ValueError as error:
                raise InvalidQuery(f"{self!r}: {name}: {error}") from None
        return IndexRange(self.entity, self.index, tuple(checked))

    def __repr__(self) -> str:
        return f"{self.entity.__name__}.{self.index}"
