"""Typed expressions: what ``Product.price`` is, and what comparing it gives.

An expression is data. It is lowered to SQL by an engine and to Python source by `tablemapper.predicates`, and both say
the same, because predicates are two-valued: a comparison with a missing value is false, ``!=`` too; ``~p`` is true
exactly where ``p`` is false; ``x == None`` means ``x.is_null()``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NoReturn, Protocol, TypeAlias, TypeVar, overload

import attrs

from ..errors import InvalidQuery
from .arithmetic import NO_TRUTH, Computed, Expr, Number

if TYPE_CHECKING:
    from ..values.extra import Extra

__all__ = [
    "And",
    "Assignment",
    "Attr",
    "Compare",
    "Computed",
    "Contains",
    "Expr",
    "In",
    "IsNull",
    "Not",
    "OperandType",
    "Or",
    "Order",
    "Parameter",
    "Predicate",
    "StartsWith",
]

T = TypeVar("T")
U = TypeVar("U")
O = TypeVar("O")  # noqa: E741  the owner of an attribute: its entity class
O_contra = TypeVar("O_contra", contravariant=True)

Comparison: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">="]


class OperandType(Protocol):
    """What an expression needs to know of a field's type; the value types of `tablemapper.values` are such."""

    @property
    def name(self) -> str:
        """Canonical: equal for types whose values compare."""
        ...

    @property
    def ordered(self) -> bool:
        """Whether < and > mean something."""
        ...

    @property
    def kind(self) -> type:
        """The Python class of the values."""
        ...

    @property
    def keyable(self) -> bool:
        """Whether a key can be made of it: it is scalar."""
        ...

    def store(self, value: Any, /) -> Any:
        """Return the stored form of a value."""
        ...

    def load(self, stored: Any, /) -> Any:
        """Return the value of a stored form."""
        ...

    def operand(self, value: Any) -> Any:
        """Return the value as it is compared; raise ValueError if it is of another type."""
        ...

    def dump(self, value: Any) -> Any:
        """Return the value in builtins that JSON knows."""
        ...

    def nested(self, path: tuple[str, ...]) -> OperandType:
        """Return the type of a nested value; raise ValueError if there is none."""
        ...

    @property
    def element(self) -> OperandType | None:
        """The type of a list's elements, if it is a list."""
        ...


class Predicate(Generic[O_contra]):
    """A condition on the entities of a class, or of a class that it lends its fields to."""

    __slots__ = ()

    def __and__(self, other: Predicate[O_contra]) -> Predicate[O_contra]:
        return And(parts=(self, _predicate(other)))

    def __or__(self, other: Predicate[O_contra]) -> Predicate[O_contra]:
        return Or(parts=(self, _predicate(other)))

    def __invert__(self) -> Predicate[O_contra]:
        return Not(part=self)

    def __bool__(self) -> NoReturn:
        raise TypeError(NO_TRUTH)

    def shape(self, constants: list[Any], /) -> Hashable:
        """Return what this has in common with predicates that differ in their constants only, and add the constants."""
        raise NotImplementedError


@attrs.frozen
class Parameter:
    """Stands in a predicate for a constant that is given later, by its number."""

    number: int

    def __repr__(self) -> str:
        return f"?{self.number}"


def _predicate(value: object) -> Predicate[Any]:
    if isinstance(value, Predicate):
        return value
    raise InvalidQuery(f"a predicate is needed, not {value!r}: compare a field, as in Product.price > 10")


@attrs.frozen(eq=False, repr=False)
class Attr(Number[O, T]):
    """A field of an entity class, a value nested in one, or a time cut down to a part of it."""

    owner: type[O]
    name: str
    type: OperandType
    path: tuple[str, ...] = ()
    part: str = ""
    """Empty, ``date``, or a time format such as ``%Y-%m``."""

    def __repr__(self) -> str:
        return f"{self.owner.__name__}.{self.label}"

    @property
    def label(self) -> str:
        """The field as a user writes it, without its class: ``taken_at.date()``, ``address.city``."""
        text = ".".join((self.name, *self.path))
        return f"{text}.date()" if self.part == "date" else f'{text}.truncate("{self.part}")' if self.part else text

    @cached_property
    def source(self) -> tuple[str, tuple[str, ...], str]:
        """What two attributes have in common if they always have the same value."""
        return self.name, self.path, self.part

    def __hash__(self) -> int:
        return hash(self.source)

    def _compare(self, op: Comparison, other: Any) -> Predicate[O]:
        if other.__class__ is self.type.kind and self.type.ordered:  # what queries ask all day
            return Compare(attr=self, op=op, value=self._operand(other, op))
        if other is None:
            if op == "==":
                return IsNull(attr=self)
            if op == "!=":
                return Not(part=IsNull(attr=self))
            raise InvalidQuery(f"{self!r} {op} None: a missing value has no order; use .is_null()")
        if op not in ("==", "!=") and not self.type.ordered:
            raise InvalidQuery(f"{self!r} {op} …: {self.type.name} has no order; only == != and .is_in() can be used")
        if isinstance(other, Attr):
            names = {self.type.name, other.type.name}
            if len(names) > 1 and "any" not in names and names - {"int", "int32", "float"}:
                raise InvalidQuery(f"{self!r} {op} {other!r}: {self.type.name} and {other.type.name} do not compare")
            return Compare(attr=self, op=op, value=other)
        return Compare(attr=self, op=op, value=self._operand(other, op))

    def _operand(self, value: object, op: str) -> Any:
        try:
            return self.type.operand(value)
        except ValueError as error:
            raise InvalidQuery(f"{self!r} {op} {value!r}: {error}") from None

    def __eq__(self, other: T | Expr[T] | None, /) -> Predicate[O]:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: T | Expr[T] | None, /) -> Predicate[O]:  # type: ignore[override]
        return self._compare("!=", other)

    def __lt__(self, other: T | Expr[T], /) -> Predicate[O]:
        return self._compare("<", other)

    def __le__(self, other: T | Expr[T], /) -> Predicate[O]:
        return self._compare("<=", other)

    def __gt__(self, other: T | Expr[T], /) -> Predicate[O]:
        return self._compare(">", other)

    def __ge__(self, other: T | Expr[T], /) -> Predicate[O]:
        return self._compare(">=", other)

    def between(self, low: T, high: T, /) -> Predicate[O]:
        """Hold for values from ``low`` to ``high``, both included."""
        return And(parts=(self._compare(">=", low), self._compare("<=", high)))

    def is_in(self, values: Iterable[T], /) -> Predicate[O]:
        """Hold for values that equal one of these."""
        if isinstance(values, (str, bytes)):
            raise InvalidQuery(f"{self!r}.is_in({values!r}): a list of values is needed")
        return In(attr=self, values=tuple([self._operand(value, "is in") for value in values]))

    def is_null(self) -> Predicate[O]:
        """Hold where the field has no value."""
        return IsNull(attr=self)

    def startswith(self: Attr[O, str] | Attr[O, str | None], prefix: str, /) -> Predicate[O]:
        """Hold for texts that begin with ``prefix``, case-sensitive."""
        if self.type.name != "str" or prefix.__class__ is not str:
            raise InvalidQuery(f"{self!r}.startswith({prefix!r}): both must be text")
        return StartsWith(attr=self, text=prefix)

    @overload
    def contains(self: Attr[O, str] | Attr[O, str | None], value: str, /) -> Predicate[O]: ...
    @overload
    def contains(self: Attr[O, list[U]] | Attr[O, list[U] | None], value: U, /) -> Predicate[O]: ...
    def contains(self, value: Any, /) -> Predicate[O]:
        """Hold for texts that ``value`` is a part of (case-sensitive), and for lists that it is an element of."""
        element = self.type.element
        if element is not None:
            try:
                return Contains(attr=self, value=element.operand(value))
            except ValueError as error:
                raise InvalidQuery(f"{self!r}.contains({value!r}): {error}") from None
        if self.type.name != "str" or not isinstance(value, str):
            raise InvalidQuery(f"{self!r}.contains({value!r}): a part of a text, or an element of a list, is needed")
        return Contains(attr=self, value=value)

    def date(self: Attr[O, datetime] | Attr[O, datetime | None]) -> Attr[O, date]:
        """Return the (UTC) day of a time."""
        return self._truncated("date")

    def truncate(self: Attr[O, datetime] | Attr[O, datetime | None], format: str, /) -> Attr[O, str]:
        """Return the (UTC) time as text, cut down: ``%Y %m %d %H %M %S %L`` (ms) ``%f`` (µs) and literals."""
        return self._truncated(format)

    def _truncated(self, part: str) -> Attr[O, Any]:
        if self.type.name != "datetime" or self.part:
            raise InvalidQuery(f"{self!r}: only a datetime can be cut down to a part")
        return attrs.evolve(self, part=part, type=self.type.nested((part,)))

    def at(self, get: Callable[[T], U], /) -> Attr[O, U]:
        """Return a nested value: ``User.home.at(lambda home: home.city)``."""
        recorded = get(_Recorder(()))  # type: ignore[arg-type]
        if not isinstance(recorded, _Recorder) or not recorded.path_:
            raise InvalidQuery(f"{self!r}.at(…): the function must return an attribute of its argument")
        try:
            nested = self.type.nested(recorded.path_)
        except ValueError as error:
            raise InvalidQuery(f"{self!r}.at(…): {error}") from None
        return attrs.evolve(self, path=self.path + recorded.path_, type=nested)  # type: ignore[return-value]

    @overload
    def __getitem__(self: Attr[O, Extra], name: str, /) -> Attr[O, Any]: ...
    @overload
    def __getitem__(self: Attr[O, dict[str, U]] | Attr[O, dict[str, U] | None], name: str, /) -> Attr[O, U]: ...
    def __getitem__(self, name: str, /) -> Attr[O, Any]:
        """Return a value by its name: an undeclared property, ``Product.extra["color"]``, or an entry of a dict."""
        return self.at(lambda value: value[name])  # type: ignore[index]

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self!r} is a field, not its values: it can not be iterated")

    def asc(self) -> Order[O]:
        """Order by this, the least first."""
        return Order(attr=self, descending=False)

    def desc(self) -> Order[O]:
        """Order by this, the greatest first."""
        return Order(attr=self, descending=True)

    def set(self, value: T | Number[O, T], /) -> Assignment[O]:
        """Say what is written, type-checked: a value, a field, or what to calculate: ``Product.price.set(Product.cost * 2)``."""
        return Assignment(attr=self, value=value)

    def add(self, value: T, /) -> Assignment[O]:
        """Say that `merge` adds to what is stored; a missing value counts as nothing."""
        if self.type.name not in ("int", "int32", "float", "Decimal", "timedelta"):
            raise InvalidQuery(f"{self!r}.add(…): {self.type.name} can not be added to")
        return Assignment(attr=self, value=self._operand(value, "add"), adds=True)


class _Recorder:
    """What a function given to `Attr.at` gets: it remembers which attributes were read."""

    __slots__ = ("path_",)

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path_ = path

    def __getattr__(self, name: str) -> _Recorder:
        return _Recorder((*self.path_, name))

    def __getitem__(self, name: str) -> _Recorder:
        return _Recorder((*self.path_, name))


@attrs.frozen(eq=False)
class Order(Generic[O]):
    """One step of an order: a field, and its direction."""

    attr: Attr[O, Any]
    descending: bool


@attrs.frozen(eq=False)
class Assignment(Generic[O]):
    """What `merge` and ``update`` do to one field: set it, or add to it."""

    attr: Attr[O, Any]
    value: Any
    adds: bool = False


@attrs.frozen(eq=False, kw_only=True)
class Compare(Predicate[O_contra]):
    """``attr op value``; the value is an operand or another attribute."""

    attr: Attr[Any, Any]
    op: Comparison
    value: Any

    swapped: ClassVar[dict[str, str]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

    def shape(self, constants: list[Any], /) -> Hashable:
        if self.value.__class__ is Attr:
            return self.op, self.attr.source, self.value.source
        constants.append(self.value)
        return self.op, self.attr.source


@attrs.frozen(eq=False, kw_only=True)
class In(Predicate[O_contra]):
    """``attr`` equals one of the values."""

    attr: Attr[Any, Any]
    values: tuple[Any, ...]

    def shape(self, constants: list[Any], /) -> Hashable:
        constants += self.values
        return "in", self.attr.source, len(self.values)


@attrs.frozen(eq=False, kw_only=True)
class IsNull(Predicate[O_contra]):
    """``attr`` has no value."""

    attr: Attr[Any, Any]

    def shape(self, _: list[Any], /) -> Hashable:
        return "null", self.attr.source


@attrs.frozen(eq=False, kw_only=True)
class StartsWith(Predicate[O_contra]):
    """The text begins with another."""

    attr: Attr[Any, Any]
    text: Any

    def shape(self, constants: list[Any], /) -> Hashable:
        constants.append(self.text)
        return "startswith", self.attr.source


@attrs.frozen(eq=False, kw_only=True)
class Contains(Predicate[O_contra]):
    """The text has a part, or the list an element."""

    attr: Attr[Any, Any]
    value: Any

    def shape(self, constants: list[Any], /) -> Hashable:
        constants.append(self.value)
        return "contains", self.attr.source


@attrs.frozen(eq=False, kw_only=True)
class And(Predicate[O_contra]):
    """All parts hold."""

    parts: tuple[Predicate[Any], ...]

    def shape(self, constants: list[Any], /) -> Hashable:
        return "and", *[part.shape(constants) for part in self.parts]


@attrs.frozen(eq=False, kw_only=True)
class Or(Predicate[O_contra]):
    """One part holds."""

    parts: tuple[Predicate[Any], ...]

    def shape(self, constants: list[Any], /) -> Hashable:
        return "or", *[part.shape(constants) for part in self.parts]


@attrs.frozen(eq=False, kw_only=True)
class Not(Predicate[O_contra]):
    """The part does not hold."""

    part: Predicate[Any]

    def shape(self, constants: list[Any], /) -> Hashable:
        return "not", self.part.shape(constants)
