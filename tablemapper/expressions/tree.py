"""Typed expressions: what ``Product.price`` is, and what comparing it gives.

An expression is data. An engine compiles it to SQL, and `expressions.python_source` to Python. Both give the same results,
because predicates are two-valued. A comparison with a missing value is false, ``!=`` too; ``~p`` is true exactly where
``p`` is false; ``x == None`` means ``x.is_null()``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import date, datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Literal, NoReturn, Self, TypeAlias, TypeVar, overload

import attrs

from ..datetime_types import Builtin
from ..errors import InvalidQuery, safe_repr
from ..keys.codec import KeyCodec
from ..keys.truncation import Truncation
from ..values.extra import TEXT, Extra
from ..values.parts import Path, path_text
from ..values.scalars import SCALARS, ValueType
from .arithmetic import Computed, Expr, Kind, Number
from .boolean import And, Junction, Not, Or, Predicate, as_predicate
from .clauses import Assignable, Assignment, Elements, Order
from .elements import ElementAttr, Recorder
from .foreign_names import refuse_foreign_names

__all__ = [
    "TIMESTAMP_NAME",
    "And",
    "Assignment",
    "Attr",
    "Compare",
    "Comparison",
    "Computed",
    "Contains",
    "ElementAttr",
    "ElementOfList",
    "Expr",
    "In",
    "IsNull",
    "Junction",
    "Leaf",
    "Not",
    "Or",
    "Order",
    "Parameter",
    "Predicate",
    "SameText",
    "StartsWith",
    "as_predicate",
    "cut_down",
    "known_as",
]

T = TypeVar("T")
N = TypeVar("N")
_Date: TypeAlias = date  # (an attribute has a method of this name)
U = TypeVar("U")
O = TypeVar("O", contravariant=True)  # noqa: E741, PLC0105  the owner of an attribute: its entity class
O_contra = TypeVar("O_contra", contravariant=True)

TIMESTAMP_NAME = "_timestamp"  # of an attribute; no field begins with an underscore
Comparison: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">="]


@attrs.frozen
class Parameter:
    """Stands in a predicate for a constant that is given later, by its number."""

    number: int

    def __repr__(self) -> str:
        return f"?{self.number}"


@refuse_foreign_names("field", lambda attr: (repr(attr), attr.owner.__name__), "either")
@attrs.frozen(eq=False, repr=False)
class Attr(Assignable[O, T], Number[O, T]):
    """A field of an entity class, a value nested in a field, or a truncated time."""

    owner: type[O]
    name: str
    type: ValueType
    path: Path = ()
    part: Truncation | None = None
    """What a time is cut down to."""
    uncut: ValueType | None = None
    """The type of the time that it is a part of."""

    def __repr__(self) -> str:
        if self.name == TIMESTAMP_NAME:
            return f"tm.timestamp({self.owner.__name__})"
        return f"{self.owner.__name__}.{self.label}"

    @property
    def _kind(self) -> ValueType:
        return self.type

    @property
    def label(self) -> str:
        """The field as a user writes it, without its class: ``taken_at.date()``, ``address.city``."""
        if self.name == TIMESTAMP_NAME:
            return "timestamp()"
        text = self.name + path_text(self.path)
        return text if self.part is None else f"{text}.{self.part}"

    @property
    def number_kind(self) -> Kind | None:
        return self.type.kind if self.type.calculable else None

    @cached_property
    def source(self) -> tuple[str, Path, Truncation | str | None]:
        """The identity of attributes that always have the same value."""
        return self.name, self.path, "text" if self.type is TEXT else self.part

    @property
    def whole(self) -> Attr[O, Any]:
        """The time that this is cut from; else itself."""
        return self if self.uncut is None else attrs.evolve(self, part=None, type=self.uncut, uncut=None)

    def attributes(self) -> Iterator[Attr[Any, Any]]:
        yield self

    @property
    def time_kind(self) -> Kind:
        """The type that this is cut from: datetime, or date."""
        return self.whole.type.kind

    def __hash__(self) -> int:
        return hash(self.source)

    def _compare(self, op: Comparison, other: Any) -> Predicate[O]:
        if other.__class__ is self.type.kind and self.type.ordered:  # the most frequent case
            return Compare(attr=self, op=op, value=self._operand(other, op))
        if other is None:
            if op in ("==", "!="):
                return IsNull(attr=self) if op == "==" else self.is_not_null()
            raise InvalidQuery(f"{self!r} {op} None: a missing value has no order; use .is_null()")
        if op not in ("==", "!=") and not self.type.ordered:
            raise InvalidQuery(f"{self!r} {op} …: {self.type.name} has no order; only == != and .is_in() can be used")
        if isinstance(other, Attr):
            if not self.type.comparable(other.type):
                raise InvalidQuery(
                    f"{self!r} {op} {other!r}: {self.type.name} and {other.type.name} cannot be compared"
                )
            return Compare(attr=self, op=op, value=other)
        value = self._operand(other, op)
        return Compare(attr=known_as(self, value) if op == "==" else self, op=op, value=value)

    def _operand(self, value: object, op: str) -> Any:
        try:
            return self.type.operand(value, op)
        except ValueError as error:
            raise InvalidQuery(f"{self!r} {op} {safe_repr(value)}: {error}") from None

    def __eq__(self, other: T | Expr[T, O] | None, /) -> Predicate[O]:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: T | Expr[T, O] | None, /) -> Predicate[O]:  # type: ignore[override]
        return self._compare("!=", other)

    def __lt__(self, other: T | Expr[T, O], /) -> Predicate[O]:
        return self._compare("<", other)

    def __le__(self, other: T | Expr[T, O], /) -> Predicate[O]:
        return self._compare("<=", other)

    def __gt__(self, other: T | Expr[T, O], /) -> Predicate[O]:
        return self._compare(">", other)

    def __ge__(self, other: T | Expr[T, O], /) -> Predicate[O]:
        return self._compare(">=", other)

    def between(self, low: T, high: T, /) -> Predicate[O]:
        """Hold for values from ``low`` to ``high``, both included.

        Raises:
            InvalidQuery: the field has no order, or a value is of another type.
        """
        return And(parts=(self._compare(">=", low), self._compare("<=", high)))

    def is_in(self, values: Iterable[T], /) -> Predicate[O]:
        """Hold for values that equal one of these.

        Raises:
            InvalidQuery: a value is of another type than the field, or a text is given instead of a list.
        """
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise InvalidQuery(f"{self!r}.is_in({safe_repr(values)}): expected a list of values")
        operands = tuple([self._operand(value, "is in") for value in values])
        return In(attr=known_as(self, *operands), values=operands)

    def is_null(self) -> Predicate[O]:
        """Hold where the field has no value."""
        return IsNull(attr=self)

    def is_not_null(self) -> Predicate[O]:
        """Hold where the field has a value."""
        return Not(part=IsNull(attr=self))

    @overload
    def startswith(self: Attr[O, str] | Attr[O, str | None], prefix: str, /) -> Predicate[O]: ...
    @overload
    def startswith(
        self: Attr[O, tuple[str, ...]] | Attr[O, tuple[str, ...] | None], prefix: tuple[str, ...], /
    ) -> Predicate[O]: ...
    def startswith(self, prefix: Any, /) -> Predicate[Any]:
        """Hold for texts that begin with ``prefix`` (case-sensitive), and for tuples that begin with its texts.

        Raises:
            InvalidQuery: the field or the prefix is neither a text nor a tuple of texts.
        """
        if self.type.hierarchy and isinstance(prefix, tuple):
            return StartsWith(attr=self, text=self._operand(prefix, "begins with"))
        attr = known_as(self, prefix)
        if not attr.type.text or prefix.__class__ is not str:
            raise InvalidQuery(f"{self!r}.startswith({safe_repr(prefix)}): both must be text, or a tuple of texts")
        return StartsWith(attr=attr, text=prefix)

    @overload
    def contains(self: Attr[O, str] | Attr[O, str | None], value: str, /) -> Predicate[O]: ...
    @overload
    def contains(self: Attr[O, list[U]] | Attr[O, list[U] | None], value: U, /) -> Predicate[O]: ...
    def contains(self, value: Any, /) -> Predicate[Any]:
        """Hold for texts that contain ``value`` (case-sensitive), and for lists with this element.

        Raises:
            InvalidQuery: the field is neither a text nor a list, or the value is of another type.
        """
        element = self.type.element
        if element is not None:
            try:
                return Contains(attr=self, value=element.operand(value))
            except ValueError as error:
                raise InvalidQuery(f"{self!r}.contains({safe_repr(value)}): {error}") from None
        attr = known_as(self, value)
        if not attr.type.text or not isinstance(value, str):
            raise InvalidQuery(
                f"{self!r}.contains({safe_repr(value)}): expected a part of a text, or an element of a list"
            )
        return Contains(attr=attr, value=value)

    @overload
    def each(self: Attr[O, list[U]]) -> ElementAttr[O, U]: ...
    @overload
    def each(self: Attr[O, list[U] | None]) -> ElementAttr[O, U]: ...
    def each(self: Any) -> ElementAttr[Any, Any]:
        """Return each element of a list, to group by: ``tm.group_by(Post.tags.each())``.

        Raises:
            InvalidQuery: the field is not a list of values that can be in a key.
        """
        return ElementAttr(self)

    def date(self: Attr[O, datetime] | Attr[O, datetime | None], zone: str = "UTC", /) -> Attr[O, date]:
        """Return the day of a time: in UTC, or in a time zone, ``Reading.at.date("Europe/Oslo")``.

        Raises:
            InvalidQuery: the field is not a datetime, or there is no such zone.
        """
        return cut_down(self, Truncation(Builtin.date, "%Y-%m-%d", zone))

    def truncate(
        self: Attr[O, datetime] | Attr[O, datetime | None] | Attr[O, _Date] | Attr[O, _Date | None],
        format: str,
        zone: str = "UTC",
        /,
    ) -> Attr[O, str]:
        """Return a time or a date as text, cut to a format: ``%Y %m %d %H %M %S %L`` (ms) ``%f`` (µs) and literals.

        Quarters are ``%Y-Q%q``, weeks as ISO 8601 counts them ``%G-W%V``. A time is in UTC, or in a time zone.

        Raises:
            InvalidQuery: the field is not a time, the format has other directives, or there is no such zone.
        """
        return cut_down(self, Truncation(str, format, zone))

    def floor(self: Attr[O, datetime] | Attr[O, datetime | None], step: timedelta, /) -> Attr[O, datetime]:
        """Return the start of the step that contains a time: ``Reading.at.floor(timedelta(minutes=15))``.

        Steps divide each day, from midnight in UTC on.

        Raises:
            InvalidQuery: the field is not a datetime, or the step does not divide a day evenly.
        """
        return cut_down(self, Truncation(Builtin.datetime, step=step))

    @overload
    def at(self: Attr[O, N | None], get: Callable[[N], U], /) -> Attr[O, U | None]: ...
    @overload
    def at(self, get: Callable[[T], U], /) -> Attr[O, U]: ...
    def at(self, get: Callable[[Any], Any], /) -> Attr[Any, Any]:
        """Return a nested value: ``User.home.at(lambda home: home.city)``.

        Raises:
            InvalidQuery: the type of the field has no such value, or the function returns something else.
        """
        recorded = get(Recorder(()))
        if not isinstance(recorded, Recorder) or not recorded.path_:
            raise InvalidQuery(f"{self!r}.at(…): the function must return an attribute of its argument")
        try:
            nested = self.type.nested(recorded.path_)
        except ValueError as error:
            raise InvalidQuery(f"{self!r}.at(…): {error}") from None
        if int in map(type, recorded.path_):
            return ElementOfList(self.owner, self.name, nested, self.path + recorded.path_)
        return attrs.evolve(self, path=self.path + recorded.path_, type=nested)

    @overload
    def __getitem__(self: Attr[O, Extra], name: str, /) -> Attr[O, Any]: ...
    @overload
    def __getitem__(self: Attr[O, dict[str, U]], name: str, /) -> Attr[O, U]: ...
    @overload
    def __getitem__(self: Attr[O, dict[str, U] | None], name: str, /) -> Attr[O, U]: ...
    @overload
    def __getitem__(self: Elements[O, list[U] | tuple[U, ...] | None], place: int, /) -> Attr[O, U]: ...
    def __getitem__(self, name: Any, /) -> Attr[Any, Any]:
        """Return an undeclared property, ``Product.extra["color"]``, an entry of a dict, or an element of a list.

        An element, ``Order.lines[0]`` or ``[-1]``, can be assigned and removed; no condition is on one.

        Raises:
            InvalidQuery: the type of the field has no such value.
        """
        return self.at(lambda value: value[name])  # type: ignore[index]

    def __iter__(self, *_: object) -> NoReturn:
        raise TypeError(f"{self!r} is a field, not its values: write .contains(…) for `in`; it cannot be iterated")

    __contains__ = __iter__

    def asc(self) -> Order[O]:
        """Order by this, the least first."""
        return Order(attr=self, descending=False)

    def desc(self) -> Order[O]:
        """Order by this, the greatest first."""
        return Order(attr=self, descending=True)


def _refusing(method: str) -> Callable[..., NoReturn]:
    """Return a method of conditions and orders, which an element of a list has not."""

    def refuse(self: ElementOfList[Any, Any], *_: object) -> NoReturn:
        raise self._refusal(f".{method}(…)")

    return refuse


class ElementOfList(Attr[O, T]):
    """An element of a list by its place, or a part of it: something to assign, and nothing to ask for."""

    __slots__ = ()

    def _refusal(self, test: str) -> InvalidQuery:
        return InvalidQuery(f"{self!r}{test}: a condition is over all elements, .contains(…)")

    def _compare(self, op: Comparison, other: Any) -> NoReturn:
        raise self._refusal(f" {op} …")

    @property
    def number_kind(self) -> None:
        return None


for _name in [
    "is_in",
    "is_null",
    "is_not_null",
    "startswith",
    "contains",
    "each",
    "date",
    "truncate",
    "floor",
    "asc",
    "desc",
]:
    setattr(ElementOfList, _name, _refusing(_name))


def cut_down(attr: Attr[O, Any], part: Truncation) -> Attr[O, Any]:
    """Return a time that is cut down; raise InvalidQuery if it cannot be."""
    if not attr.type.cuttable or attr.part is not None or (attr.type.kind is Builtin.date and part.kind is not str):
        mend = "; declare a field for the time" if attr.name == TIMESTAMP_NAME else ""
        raise InvalidQuery(f"{attr!r}: only a datetime can be truncated, or a date to a text{mend}")
    if (fault := part.fault(attr.type.kind)) is not None:
        raise InvalidQuery(f"{attr!r}.{part}: {fault}")
    return attrs.evolve(attr, part=part, type=SCALARS[part.kind], uncut=attr.type)


def known_as(attr: Attr[O, Any], *values: Any) -> Attr[O, Any]:
    """Return an undeclared property that is like texts as what it is then, a text: an index can be followed."""
    narrow = attr.type.dynamic and all(value.__class__ is str for value in values)
    return attrs.evolve(attr, type=TEXT) if narrow else attr


# ---------------------------------------------------------------------------------------------- predicates
#
# A new one says here what it reads, what its constants are and how it looks with others; in `expressions.python_source`
# what it means, and in each engine's filters how the engine expresses it.


@attrs.define(eq=False, kw_only=True)
class Leaf(Predicate[O_contra]):
    """A predicate that is made of no others: it tests an attribute."""

    attr: Attr[Any, Any]

    def attributes(self) -> Iterator[Attr[Any, Any]]:
        yield self.attr

    def with_attributes(self, replace: Callable[[Attr[Any, Any]], Attr[Any, Any] | None], /) -> Self | None:
        """Return the same test of other attributes; None if there is none for one of them."""
        attr = replace(self.attr)
        return None if attr is None else attrs.evolve(self, attr=attr)


@attrs.define(eq=False, kw_only=True)  # (not frozen: one is built for each query, three times as fast)
class Compare(Leaf[O_contra]):
    """``attr op value``; the value is an operand or another attribute."""

    op: Comparison
    value: Any

    swapped: ClassVar[dict[str, str]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

    def shape(self, constants: list[Any], /) -> Hashable:
        if self.value.__class__ is Attr:
            return self.op, self.attr.source, self.value.source
        constants.append(self.value)
        return self.op, self.attr.source

    def with_constants(self, constants: Iterator[Any], /) -> Compare[O_contra]:
        return self if self.value.__class__ is Attr else attrs.evolve(self, value=next(constants))

    def attributes(self) -> Iterator[Attr[Any, Any]]:
        yield self.attr
        if self.value.__class__ is Attr:
            yield self.value

    def with_attributes(
        self, replace: Callable[[Attr[Any, Any]], Attr[Any, Any] | None], /
    ) -> Compare[O_contra] | None:
        attr, value = replace(self.attr), replace(self.value) if self.value.__class__ is Attr else self.value
        return None if attr is None or value is None else attrs.evolve(self, attr=attr, value=value)


@attrs.define(eq=False, kw_only=True)
class In(Leaf[O_contra]):
    """``attr`` equals one of the values."""

    values: tuple[Any, ...]

    def shape(self, constants: list[Any], /) -> Hashable:
        constants += self.values
        return "in", self.attr.source, len(self.values)

    def with_constants(self, constants: Iterator[Any], /) -> In[O_contra]:
        return In(attr=self.attr, values=tuple(islice(constants, len(self.values))))


@attrs.define(eq=False, kw_only=True)
class IsNull(Leaf[O_contra]):
    """``attr`` has no value."""

    def shape(self, _: list[Any], /) -> Hashable:
        return "null", self.attr.source

    def with_constants(self, _: Iterator[Any], /) -> IsNull[O_contra]:
        return self


@attrs.define(eq=False, kw_only=True)
class StartsWith(Leaf[O_contra]):
    """The text begins with another."""

    text: Any

    def shape(self, constants: list[Any], /) -> Hashable:
        constants.append(self.text)
        return "startswith", self.attr.source

    def with_constants(self, constants: Iterator[Any], /) -> StartsWith[O_contra]:
        return StartsWith(attr=self.attr, text=next(constants))


@attrs.define(eq=False, kw_only=True)
class Contains(Leaf[O_contra]):
    """The text has a part, or the list an element."""

    value: Any

    def shape(self, constants: list[Any], /) -> Hashable:
        constants.append(self.value)
        return "contains", self.attr.source

    def with_constants(self, constants: Iterator[Any], /) -> Contains[O_contra]:
        return Contains(attr=self.attr, value=next(constants))


@attrs.define(eq=False, kw_only=True)
class SameText(Leaf[O_contra]):
    """The value, or an element of the list, has the same texts in slots of a key as another value."""

    texts: tuple[KeyCodec, ...]
    value: Any

    def shape(self, constants: list[Any], /) -> Hashable:
        constants.append(self.value)
        return "same text", self.attr.source, self.specs

    def with_constants(self, constants: Iterator[Any], /) -> SameText[O_contra]:
        return SameText(attr=self.attr, texts=self.texts, value=next(constants))

    @property
    def specs(self) -> tuple[str, ...]:
        """The formats of the slots."""
        return tuple(text.spec for text in self.texts)

    def holds(self, field_value: Any, value: Any) -> bool:
        """Return whether what the field holds has the texts of a value."""
        texts = [text.encode(value) for text in self.texts]
        elements = [field_value] if self.attr.type.element is None else field_value
        return any(
            [text.encode(element) for text in self.texts] == texts for element in elements if element is not None
        )
