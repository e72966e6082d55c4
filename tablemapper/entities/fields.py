"""Fields of class bodies: their types for the checkers, their options for the library.

At run time ``Field[T]`` is ``T`` with a mark. The class takes it off again, so attrs, cattrs and msgspec see plain
annotations. For the checkers it is a descriptor: ``Product.price`` is an `Attr`, ``product.price`` a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NoReturn, Protocol, TypeAlias, TypeVar, overload

import attrs

from ..errors import InvalidModel
from ..expressions.arithmetic import Computed
from ..expressions.tree import Attr, ElementAttr, Expr, Predicate
from ..values.constraints import Constraint
from ..values.extra import Extra
from ..values.scalars import ValueType

T = TypeVar("T")
O = TypeVar("O")  # noqa: E741  the owner of a field

if TYPE_CHECKING:

    class _Entity(Protocol):
        # What an entity has and None has not: mypy says then that a field is of another class.
        def replace(self, *_: Any, **__: Any) -> Any: ...

    class Field(Generic[T]):
        """The annotation of a field: ``price: tm.Field[Decimal]``."""

        @overload
        def __get__(self, obj: None, owner: type[O], /) -> Attr[O, T]: ...
        @overload
        def __get__(self, obj: _Entity, owner: type[Any], /) -> T: ...
        def __get__(self, obj: object | None, owner: type[Any], /) -> Any: ...
        def __set__(self, obj: object, value: T, /) -> None: ...

else:

    class Field:
        """The annotation of a field: ``price: tm.Field[Decimal]``."""

        def __class_getitem__(cls, annotation: Any) -> Any:
            return Annotated[annotation, FIELD]

        def __new__(cls, *_: Any, **__: Any) -> NoReturn:
            raise InvalidModel("tm.Field", ["tm.Field[…] is an annotation; write options after it, as = tm.field(…)"])


class _Mark:
    """Says of an annotation that it was ``tm.Field[…]``."""

    def __repr__(self) -> str:
        return "tm.Field"


FIELD = _Mark()
Validator: TypeAlias = Callable[[Any, Any, Any], Any]
"""Gets the entity, the attrs.Attribute and the value, and raises an exception if that is wrong."""


@attrs.frozen(eq=False)
class FieldOptions:
    """The arguments of `field`."""

    default: Any = attrs.field(factory=lambda: attrs.NOTHING)
    factory: Callable[[], Any] | None = None
    name: str | None = None
    stored: bool = False
    kw_only: bool | None = None
    validator: Validator | Sequence[Validator] | None = None
    precision: str | None = None
    on_write: Callable[[], Any] | None = None
    expires: bool = False
    large: bool | None = False
    """None: only the code of the class knows."""
    unknown: tuple[str, ...] = ()
    """What else it was called with: a fault of the class."""

    @property
    def source(self) -> Callable[[], Any] | None:
        """The function that gives the value where a constructor gets none."""
        return self.factory or self.on_write

    @property
    def by_name(self) -> bool:
        """Whether a constructor takes the value by name only."""
        return bool(self.kw_only) or self.on_write is not None


@overload
def field(
    *,
    name: str | None = None,
    stored: bool = False,
    kw_only: bool | None = None,
    validator: Validator | Sequence[Validator] | None = None,
    precision: Literal["s", "ms", "us"] | None = None,
    expires: bool = False,
    large: bool = False,
) -> Field[Any]: ...
@overload
def field(
    *,
    on_write: Callable[[], T],
    name: str | None = None,
    precision: Literal["s", "ms", "us"] | None = None,
    expires: bool = False,
    large: bool = False,
    init: Literal[False] = False,
) -> Field[T]: ...
@overload
def field(
    *,
    default: T,
    name: str | None = None,
    stored: bool = False,
    kw_only: bool | None = None,
    validator: Validator | Sequence[Validator] | None = None,
    precision: Literal["s", "ms", "us"] | None = None,
    expires: bool = False,
    large: bool = False,
) -> Field[T]: ...
@overload
def field(
    *,
    factory: Callable[[], T],
    name: str | None = None,
    stored: bool = False,
    kw_only: bool | None = None,
    validator: Validator | Sequence[Validator] | None = None,
    precision: Literal["s", "ms", "us"] | None = None,
    expires: bool = False,
    large: bool = False,
) -> Field[T]: ...
def field(
    *,
    default: Any = attrs.NOTHING,
    factory: Callable[[], Any] | None = None,
    name: str | None = None,
    stored: bool = False,
    kw_only: bool | None = None,
    validator: Validator | Sequence[Validator] | None = None,
    precision: Literal["s", "ms", "us"] | None = None,
    on_write: Callable[[], Any] | None = None,
    expires: bool = False,
    large: bool = False,
    **unknown: Any,
) -> Any:
    """Give a field options.

    Args:
        default: the default value: one value, or a tuple or frozenset of such. Rows that are older than the field also
            read as this value.
        factory: a function that returns the default value.
        name: the name of its property, if it differs from the name of the field.
        stored: also store it as a property if the key holds it without loss.
        kw_only: the constructor takes it by name only.
        validator: one function of (entity, attribute, value), or several, as in attrs. They run when an entity is
            built and when the field is set, not for entities that the store reads.
        precision: cut a datetime or a time to seconds, milliseconds or microseconds when it is set, so that a key
            with this precision loses nothing.
        on_write: a function that returns the value at each write, by whichever verb:
            ``updated: tm.Field[datetime] = tm.field(on_write=lambda: datetime.now(UTC))``. Nobody else sets the field,
            and it is no argument of the constructor. Migrations, copies and repairs leave the value as it is.
        expires: whether an entity ends at this datetime: from then on no call finds it, and `Store.expire` deletes it.
        large: whether a text, bytes or a nested value may be as large as an entity, 1 MiB; otherwise it has 64 KiB at
            most. Such a field is in no key, index, order or total.
        unknown: any other argument is a fault of the class.
    """
    if on_write is not None:  # (its overload has an init= for the type checkers)
        unknown.pop("init", None)
    return FieldOptions(
        default, factory, name, stored, kw_only, validator, precision, on_write, expires, large, tuple(unknown)
    )


MeasureKind: TypeAlias = Literal["group", "count", "sum", "avg", "min", "max", "min_ever", "max_ever"]


def _measure(kind: MeasureKind, attr: Any, where: Predicate[Any] | None, name: str | None, of: Any = None) -> Any:
    return Measure(kind, attr, where, name, of)


@attrs.frozen(eq=False)
class Measure:
    """A field of an aggregate: a part of its group, or what is maintained over the group's entities."""

    kind: MeasureKind
    attr: Attr[Any, Any] | Computed[Any, Any] | ElementAttr[Any, Any] | None = None
    """What is measured, or grouped by."""
    where: Predicate[Any] | None = None
    name: str | None = None
    """The property it is stored as, if that is not its own name."""
    of: Any = None
    """The class whose entities it is over, if it is a maintained field of an entity; an aggregate has that itself."""


class SourceName(str):
    """Stands for the source of a maintained field in a class that is made of a catalogue's form."""

    __slots__ = ()


def group_by(attr: Expr[T | None, Any], /, *, name: str | None = None) -> Field[T]:
    """Group the entities by a field, or by a truncated time: ``tm.group_by(Reading.taken_at.date())``.

    An entity without this value belongs to no group. With ``Post.tags.each()`` it belongs to one group for each
    distinct element of a list. ``name=`` names the property that stores the group; all measures take it, too.
    """
    return _measure("group", attr, None, name)  # type: ignore[no-any-return]


@overload
def count(
    attr: Expr[Any, Any] | None = None, /, *, where: Predicate[Any] | None = None, name: str | None = None
) -> Field[int]: ...
@overload
def count(
    attr: Expr[Any, O] | None = None,
    /,
    *,
    of: type[O],
    where: Predicate[O] | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Field[int]: ...
def count(
    attr: Expr[Any, Any] | None = None,
    /,
    *,
    of: type[Any] | None = None,
    where: Predicate[Any] | None = None,
    name: str | None = None,
    init: bool = False,
) -> Any:
    """Count the entities of the group, or those that have a value in a field.

    The arguments are those of all measures.

    Args:
        attr: a field, or a calculation from fields: ``tm.sum(Line.price * Line.quantity)``.
        of: the class to measure, for a maintained field of an ordinary entity:
            ``employees: tm.Field[int] = tm.count(of=Employee)``.
        where: a condition; the measure excludes entities that do not satisfy it.
        name: the name of its property, if it differs from the name of the field.
        init: for type checkers only: a maintained field is not an argument of the constructor.
    """
    return _measure("count", attr, where, name, of)


@overload
def sum(attr: Expr[T, Any], /, *, where: Predicate[Any] | None = None, name: str | None = None) -> Field[T]: ...
@overload
def sum(
    attr: Expr[T, O],
    /,
    *,
    of: type[O],
    where: Predicate[O] | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Field[T]: ...
def sum(
    attr: Expr[Any, Any],
    /,
    *,
    of: type[Any] | None = None,
    where: Predicate[Any] | None = None,
    name: str | None = None,
    init: bool = False,
) -> Any:
    """Add up a field, exactly: floats as ``math.fsum``, integers without overflow, Decimals without rounding.

    Arguments as for `count`.
    """
    return _measure("sum", attr, where, name, of)


@overload
def avg(  # pyright: ignore[reportOverlappingOverload]
    attr: Expr[Decimal | None, Any], /, *, where: Predicate[Any] | None = None, name: str | None = None
) -> Field[Decimal | None]: ...
@overload
def avg(
    attr: Expr[timedelta | None, Any], /, *, where: Predicate[Any] | None = None, name: str | None = None
) -> Field[timedelta | None]: ...
@overload
def avg(
    attr: Expr[float | None, Any], /, *, where: Predicate[Any] | None = None, name: str | None = None
) -> Field[float | None]: ...
@overload
def avg(  # type: ignore[overload-overlap]
    attr: Expr[Decimal | None, O],
    /,
    *,
    of: type[O],
    where: Predicate[O] | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Field[Decimal | None]: ...
@overload
def avg(  # type: ignore[overload-overlap]
    attr: Expr[timedelta | None, O],
    /,
    *,
    of: type[O],
    where: Predicate[O] | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Field[timedelta | None]: ...
@overload
def avg(
    attr: Expr[float | None, O],
    /,
    *,
    of: type[O],
    where: Predicate[O] | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Field[float | None]: ...
def avg(
    attr: Expr[Any, Any],
    /,
    *,
    of: type[Any] | None = None,
    where: Predicate[Any] | None = None,
    name: str | None = None,
    init: bool = False,
) -> Any:
    """Divide the sum of a field by the number of its values.

    Arguments as for `count`.
    """
    return _measure("avg", attr, where, name, of)


@overload
def min(
    attr: Expr[T | None, Any], /, *, where: Predicate[Any] | None = None, name: str | None = None
) -> Field[T | None]: ...
@overload
def min(
    attr: Expr[T | None, O],
    /,
    *,
    of: type[O],
    where: Predicate[O] | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Field[T | None]: ...
def min(
    attr: Expr[Any, Any],
    /,
    *,
    of: type[Any] | None = None,
    where: Predicate[Any] | None = None,
    name: str | None = None,
    init: bool = False,
) -> Any:
    """Keep the least value of a field, also when the entity that held it goes."""
    return _measure("min", attr, where, name, of)


@overload
def max(
    attr: Expr[T | None, Any], /, *, where: Predicate[Any] | None = None, name: str | None = None
) -> Field[T | None]: ...
@overload
def max(
    attr: Expr[T | None, O],
    /,
    *,
    of: type[O],
    where: Predicate[O] | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Field[T | None]: ...
def max(
    attr: Expr[Any, Any],
    /,
    *,
    of: type[Any] | None = None,
    where: Predicate[Any] | None = None,
    name: str | None = None,
    init: bool = False,
) -> Any:
    """Keep the greatest value of a field, also when the entity that held it goes."""
    return _measure("max", attr, where, name, of)


@overload
def min_ever(
    attr: Expr[T | None, Any], /, *, where: Predicate[Any] | None = None, name: str | None = None
) -> Field[T | None]: ...
@overload
def min_ever(
    attr: Expr[T | None, O],
    /,
    *,
    of: type[O],
    where: Predicate[O] | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Field[T | None]: ...
def min_ever(
    attr: Expr[Any, Any],
    /,
    *,
    of: type[Any] | None = None,
    where: Predicate[Any] | None = None,
    name: str | None = None,
    init: bool = False,
) -> Any:
    """Keep the least value that a field ever had in the group; cheaper than `min` if you only add data.

    Arguments as for `count`.
    """
    return _measure("min_ever", attr, where, name, of)


@overload
def max_ever(
    attr: Expr[T | None, Any], /, *, where: Predicate[Any] | None = None, name: str | None = None
) -> Field[T | None]: ...
@overload
def max_ever(
    attr: Expr[T | None, O],
    /,
    *,
    of: type[O],
    where: Predicate[O] | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Field[T | None]: ...
def max_ever(
    attr: Expr[Any, Any],
    /,
    *,
    of: type[Any] | None = None,
    where: Predicate[Any] | None = None,
    name: str | None = None,
    init: bool = False,
) -> Any:
    """Keep the greatest value that a field ever had in the group; cheaper than `max` if you only add data.

    Arguments as for `count`.
    """
    return _measure("max_ever", attr, where, name, of)


_property = property  # a field model has an attribute of this name


@attrs.frozen(eq=False, kw_only=True)
class FieldModel:
    """A field, compiled: its name, the property it is stored as, and its type."""

    name: str
    property: str
    type: ValueType
    annotation: Any
    """The type as it was declared, evaluated."""
    optional: bool
    constraint: Constraint | None
    """What is asked of its values beside their type."""
    default: Any
    factory: Callable[[], Any] | None
    stored: bool
    kw_only: bool
    validator: Validator | Sequence[Validator] | None
    measure: Measure | None
    on_write: Callable[[], Any] | None = None
    """Gives the value at each write."""
    expires: bool = False
    """Whether an entity ends at this time."""
    large: bool | None = False
    """Whether its values may be larger than a property of Azure; None: only the code of the class knows."""

    @_property
    def required(self) -> bool:
        """Whether the constructor needs a value."""
        return self.default is attrs.NOTHING and self.factory is None

    @_property
    def maintained(self) -> bool:
        """Whether it is a field of an entity that the store maintains."""
        return self.measure is not None and self.measure.of is not None

    @_property
    def removal_fault(self) -> str:
        """The fault of removing its value where it is not optional."""
        return f"it cannot be removed, as it is not optional (Field[{self.type.name} | None] would be)"

    @_property
    def read_only(self) -> bool:
        """Whether nobody assigns it, as the store maintains it, or each write sets it."""
        return self.maintained or self.on_write is not None

    @_property
    def missing(self) -> Any:
        """The value of the field where no property is stored: None if it is optional, else its default."""
        if self.type.undeclared and not self.optional:
            return Extra()
        return None if self.optional or self.default is attrs.NOTHING else self.default

    @_property
    def nullable(self) -> bool:
        """Whether rows can lack it: an optional field, and a sum of floats, for inf and -inf have none."""
        return self.optional or (self.measure is not None and self.measure.kind == "sum" and self.type.kind is float)

    @_property
    def wide(self) -> bool:
        """Whether it is a sum of ints, which is stored as text beyond 64 bits."""
        return self.measure is not None and self.measure.kind == "sum" and self.type.kind is int
