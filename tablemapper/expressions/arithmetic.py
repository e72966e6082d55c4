"""Calculating with fields: which kinds of values can be, what that gives, and how, without silent loss.

An expression such as ``Product.price * 2`` is data. `expressions.python_source` gives the source that calculates it.
"""

# Overloads overlap where None, or an int for a float, is of several kinds: the first one that fits is meant.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterator
from datetime import date, datetime, timedelta
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    Clamped,
    Context,
    Decimal,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
    Subnormal,
)
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, TypeAlias, TypeVar, overload

import attrs

from ..datetime_types import Builtin
from ..errors import InvalidQuery, safe_repr
from ..values.scalars import SCALARS, ValueType
from .foreign_names import verbs_of

T_co = TypeVar("T_co", covariant=True)
if TYPE_CHECKING:
    from typing_extensions import TypeVar as Defaulted

    Owner = Defaulted("Owner", contravariant=True, default=Any)  # noqa: PLC0105
else:
    Owner = TypeVar("Owner", contravariant=True)  # noqa: PLC0105
O = TypeVar("O", contravariant=True)  # noqa: E741, PLC0105  the owner: a field of a class is one of each derived class

Arithmetic: TypeAlias = Literal["+", "-", "*", "/"]

MAX_DEPTH = 250  # of calculations in each other: the sum of all fields that an entity can have
MAX_BITS = 1024  # of an int that is calculated with: no float is larger
NO_TRUTH = (
    "a query expression has no truth value: use & | ~ instead of and/or/not, .between(a, b) instead of a < x < b, and "
    ".is_in([a, b]) instead of in"
)


class AnyOwner:
    """A generic class whose last parameter, an entity class, may be left out: ``Expr[int]``."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> Any:
            return super().__class_getitem__(parameters if isinstance(parameters, tuple) else (parameters, Any))


class Expr(AnyOwner, Generic[T_co, Owner]):
    """An expression that has a value for each entity of a class."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return verbs_of(self)

    def __bool__(self) -> NoReturn:
        raise TypeError(NO_TRUTH)


# ---------------------------------------------------------------------------------------------- what gives what

EXACT = Context(
    # Whatever Decimals of 34 digits between 1E-6143 and 1E+6145 add up to, and most products of products.
    prec=13_000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Clamped, Inexact, InvalidOperation, Overflow, Subnormal]
)  # fmt: skip
_DIVISION = Context(
    prec=28, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Clamped, DivisionByZero, InvalidOperation, Overflow, Subnormal]
)

Kind: TypeAlias = type[Any]
Function: TypeAlias = Callable[[Any, Any], Any]

_RULES: tuple[tuple[str, type, type, type], ...] = (
    ("+-*", int, int, int), ("/", int, int, float),
    ("+-*/", float, float, float), ("+-*/", int, float, float), ("+-*/", float, int, float),
    ("+-*/", Decimal, Decimal, Decimal), ("+-*/", int, Decimal, Decimal), ("+-*/", Decimal, int, Decimal),
    ("+-", timedelta, timedelta, timedelta), ("/", timedelta, timedelta, float),
    ("*/", timedelta, int, timedelta), ("*/", timedelta, float, timedelta),
    ("*", int, timedelta, timedelta), ("*", float, timedelta, timedelta),
    *[
        rule
        for time in (Builtin.datetime, Builtin.date)
        for rule in (("+-", time, timedelta, time), ("+", timedelta, time, time), ("-", time, time, timedelta))
    ],
)  # fmt: skip
"""Operations, the kinds of their operands, and that of the result."""
_PLAIN: dict[str, Function] = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_DECIMAL: dict[str, Function] = {
    "+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply, "/": _DIVISION.divide
}  # fmt: skip
_CALCULATIONS: dict[tuple[str, type, type], tuple[type, Function]] = {
    (op, left, right): (result, (_DECIMAL if result is Decimal else _PLAIN)[op])
    for ops, left, right, result in _RULES
    for op in ops
}
_KINDS = (Builtin.datetime, Builtin.date, timedelta, Decimal, float, int)


def calculation(op: str, left: Any, right: Any) -> tuple[type, Function] | None:
    """Return the kind of what an operation on two operands gives, and its function; None if it means nothing."""
    return _CALCULATIONS.get((op, kind_of(left), kind_of(right)))  # type: ignore[arg-type]


def kind_of(operand: Any) -> type | None:
    """Return the kind of an operand's values; None if it cannot be calculated with."""
    if isinstance(operand, Number):
        return operand.number_kind
    if isinstance(operand, bool):
        return None
    return next((kind for kind in _KINDS if isinstance(operand, kind)), None)


def _fault(constant: Any) -> str | None:
    """Return the reason why no calculation takes a constant, though it takes its kind."""
    if isinstance(constant, Decimal) and not constant.is_finite():
        return f"{safe_repr(constant)} is not finite"
    if isinstance(constant, int) and constant.bit_length() > MAX_BITS:
        return f"{safe_repr(constant)} has more than {MAX_BITS} bits"
    if isinstance(constant, float) and math.isnan(constant):
        return "nan is not a number"
    if isinstance(constant, datetime) and constant.utcoffset() is None:
        return f"{safe_repr(constant)} has no time zone"
    return None


def calculation_fault(error: Exception) -> str:
    """Return the reason why a calculation fails, for the error that it raised."""
    if isinstance(error, ZeroDivisionError) or "DivisionByZero" in str(error):
        return "a division by zero"
    if isinstance(error, ValueError):
        return str(error)
    return f"it cannot be calculated ({type(error).__name__})"


# ---------------------------------------------------------------------------------------------- expressions


class Number(Expr[T_co, O], Generic[O, T_co]):
    """An operand of calculations, if its values are numbers or times; a missing value gives a missing value."""

    __slots__ = ()

    @property
    def number_kind(self) -> Kind | None:
        """The kind of its values; None if they cannot be calculated with."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The text that a user writes, without the class."""
        raise NotImplementedError

    @cached_property
    def source(self) -> Hashable:
        """The identity of operands that always have the same value."""
        raise NotImplementedError

    def attributes(self) -> Iterator[Any]:
        """Yield every attribute that it reads."""
        raise NotImplementedError

    @overload
    def __add__(self: _Int[O], other: int | _Int[O], /) -> Computed[O, int]: ...
    @overload
    def __add__(self: _Float[O], other: float | _Float[O], /) -> Computed[O, float]: ...
    @overload
    def __add__(self: _Decimal[O], other: int | Decimal | _Int[O] | _Decimal[O], /) -> Computed[O, Decimal]: ...
    @overload
    def __add__(self: _Int[O], other: Decimal | _Decimal[O], /) -> Computed[O, Decimal]: ...
    @overload
    def __add__(self: _Span[O], other: timedelta | _Span[O], /) -> Computed[O, timedelta]: ...
    @overload
    def __add__(self: _Time[O], other: timedelta | _Span[O], /) -> Computed[O, datetime]: ...
    @overload
    def __add__(self: _Date[O], other: timedelta | _Span[O], /) -> Computed[O, date]: ...
    @overload
    def __add__(self: _Span[O], other: datetime | _Time[O], /) -> Computed[O, datetime]: ...
    @overload
    def __add__(self: _Span[O], other: date | _Date[O], /) -> Computed[O, date]: ...
    def __add__(self, other: Any, /) -> Computed[Any, Any]:
        return Computed("+", self, other)

    @overload
    def __radd__(self: _Int[O], other: int, /) -> Computed[O, int]: ...
    @overload
    def __radd__(self: _Float[O], other: float, /) -> Computed[O, float]: ...
    @overload
    def __radd__(self: _Decimal[O], other: int | Decimal, /) -> Computed[O, Decimal]: ...
    @overload
    def __radd__(self: _Int[O], other: Decimal, /) -> Computed[O, Decimal]: ...
    @overload
    def __radd__(self: _Span[O], other: timedelta, /) -> Computed[O, timedelta]: ...
    @overload
    def __radd__(self: _Time[O], other: timedelta, /) -> Computed[O, datetime]: ...
    @overload
    def __radd__(self: _Date[O], other: timedelta, /) -> Computed[O, date]: ...
    @overload
    def __radd__(self: _Span[O], other: datetime, /) -> Computed[O, datetime]: ...
    @overload
    def __radd__(self: _Span[O], other: date, /) -> Computed[O, date]: ...
    def __radd__(self, other: Any, /) -> Computed[Any, Any]:
        return Computed("+", other, self)

    @overload
    def __sub__(self: _Int[O], other: int | _Int[O], /) -> Computed[O, int]: ...
    @overload
    def __sub__(self: _Float[O], other: float | _Float[O], /) -> Computed[O, float]: ...
    @overload
    def __sub__(self: _Decimal[O], other: int | Decimal | _Int[O] | _Decimal[O], /) -> Computed[O, Decimal]: ...
    @overload
    def __sub__(self: _Int[O], other: Decimal | _Decimal[O], /) -> Computed[O, Decimal]: ...
    @overload
    def __sub__(self: _Span[O], other: timedelta | _Span[O], /) -> Computed[O, timedelta]: ...
    @overload
    def __sub__(self: _Time[O], other: timedelta | _Span[O], /) -> Computed[O, datetime]: ...
    @overload
    def __sub__(self: _Date[O], other: timedelta | _Span[O], /) -> Computed[O, date]: ...
    @overload
    def __sub__(self: _Time[O], other: datetime | _Time[O], /) -> Computed[O, timedelta]: ...
    @overload
    def __sub__(self: _Date[O], other: date | _Date[O], /) -> Computed[O, timedelta]: ...
    def __sub__(self, other: Any, /) -> Computed[Any, Any]:
        return Computed("-", self, other)

    @overload
    def __rsub__(self: _Int[O], other: int, /) -> Computed[O, int]: ...
    @overload
    def __rsub__(self: _Float[O], other: float, /) -> Computed[O, float]: ...
    @overload
    def __rsub__(self: _Decimal[O], other: int | Decimal, /) -> Computed[O, Decimal]: ...
    @overload
    def __rsub__(self: _Int[O], other: Decimal, /) -> Computed[O, Decimal]: ...
    @overload
    def __rsub__(self: _Span[O], other: timedelta, /) -> Computed[O, timedelta]: ...
    @overload
    def __rsub__(self: _Span[O], other: datetime, /) -> Computed[O, datetime]: ...
    @overload
    def __rsub__(self: _Span[O], other: date, /) -> Computed[O, date]: ...
    @overload
    def __rsub__(self: _Time[O], other: datetime, /) -> Computed[O, timedelta]: ...
    @overload
    def __rsub__(self: _Date[O], other: date, /) -> Computed[O, timedelta]: ...
    def __rsub__(self, other: Any, /) -> Computed[Any, Any]:
        return Computed("-", other, self)

    @overload
    def __mul__(self: _Int[O], other: int | _Int[O], /) -> Computed[O, int]: ...
    @overload
    def __mul__(self: _Float[O], other: float | _Float[O], /) -> Computed[O, float]: ...
    @overload
    def __mul__(self: _Decimal[O], other: int | Decimal | _Int[O] | _Decimal[O], /) -> Computed[O, Decimal]: ...
    @overload
    def __mul__(self: _Int[O], other: Decimal | _Decimal[O], /) -> Computed[O, Decimal]: ...
    @overload
    def __mul__(self: _Span[O], other: float | _Float[O], /) -> Computed[O, timedelta]: ...
    @overload
    def __mul__(self: _Float[O], other: timedelta | _Span[O], /) -> Computed[O, timedelta]: ...
    def __mul__(self, other: Any, /) -> Computed[Any, Any]:
        return Computed("*", self, other)

    @overload
    def __rmul__(self: _Int[O], other: int, /) -> Computed[O, int]: ...
    @overload
    def __rmul__(self: _Float[O], other: float, /) -> Computed[O, float]: ...
    @overload
    def __rmul__(self: _Decimal[O], other: int | Decimal, /) -> Computed[O, Decimal]: ...
    @overload
    def __rmul__(self: _Int[O], other: Decimal, /) -> Computed[O, Decimal]: ...
    @overload
    def __rmul__(self: _Span[O], other: float, /) -> Computed[O, timedelta]: ...
    @overload
    def __rmul__(self: _Float[O], other: timedelta, /) -> Computed[O, timedelta]: ...
    def __rmul__(self, other: Any, /) -> Computed[Any, Any]:
        return Computed("*", other, self)

    @overload
    def __truediv__(self: _Float[O], other: float | _Float[O], /) -> Computed[O, float]: ...
    @overload
    def __truediv__(self: _Decimal[O], other: int | Decimal | _Int[O] | _Decimal[O], /) -> Computed[O, Decimal]: ...
    @overload
    def __truediv__(self: _Int[O], other: Decimal | _Decimal[O], /) -> Computed[O, Decimal]: ...
    @overload
    def __truediv__(self: _Span[O], other: float | _Float[O], /) -> Computed[O, timedelta]: ...
    @overload
    def __truediv__(self: _Span[O], other: timedelta | _Span[O], /) -> Computed[O, float]: ...
    def __truediv__(self, other: Any, /) -> Computed[Any, Any]:
        return Computed("/", self, other)

    @overload
    def __rtruediv__(self: _Float[O], other: float, /) -> Computed[O, float]: ...
    @overload
    def __rtruediv__(self: _Decimal[O], other: int | Decimal, /) -> Computed[O, Decimal]: ...
    @overload
    def __rtruediv__(self: _Int[O], other: Decimal, /) -> Computed[O, Decimal]: ...
    @overload
    def __rtruediv__(self: _Float[O], other: timedelta, /) -> Computed[O, timedelta]: ...
    @overload
    def __rtruediv__(self: _Span[O], other: timedelta, /) -> Computed[O, float]: ...
    def __rtruediv__(self, other: Any, /) -> Computed[Any, Any]:
        return Computed("/", other, self)

    @overload
    def __neg__(self: _Int[O], /) -> Computed[O, int]: ...
    @overload
    def __neg__(self: _Float[O], /) -> Computed[O, float]: ...
    @overload
    def __neg__(self: _Decimal[O], /) -> Computed[O, Decimal]: ...
    @overload
    def __neg__(self: _Span[O], /) -> Computed[O, timedelta]: ...
    def __neg__(self) -> Computed[Any, Any]:
        return Computed("*", self, -1)


if TYPE_CHECKING:
    _Int: TypeAlias = Number[O, int | None]
    _Float: TypeAlias = Number[O, float | None]
    _Decimal: TypeAlias = Number[O, Decimal | None]
    _Span: TypeAlias = Number[O, timedelta | None]
    _Time: TypeAlias = Number[O, datetime | None]
    _Date: TypeAlias = Number[O, date | None]


class Incomparable:
    """An operand that no condition compares: a comparison raises its error."""

    __slots__ = ()

    def _refusal(self) -> InvalidQuery:
        raise NotImplementedError

    def __eq__(self, _: object, /) -> NoReturn:
        raise self._refusal()

    def __ne__(self, _: object, /) -> NoReturn:
        raise self._refusal()

    def __lt__(self, _: object, /) -> NoReturn:
        raise self._refusal()

    __le__: Final = __lt__
    __gt__: Final = __lt__
    __ge__: Final = __lt__

    def __hash__(self) -> int:
        return object.__hash__(self)


@attrs.frozen(eq=False, repr=False)
class Computed(Incomparable, Number[O, T_co]):
    """A value that is calculated from fields, as in ``Product.price * 2``.

    Ints are exact, and so are Decimals but for ``/``, which rounds to 28 digits, half to even; the rest is as in
    Python.
    """

    op: Arithmetic
    left: Any
    right: Any
    kind: type = attrs.field(init=False)
    """The kind of its values."""
    depth: int = attrs.field(init=False)
    """How many calculations stand in each other, at most."""

    @property
    def number_kind(self) -> Kind:
        return self.kind

    @property
    def type(self) -> ValueType:
        """The type of its values."""
        return SCALARS[self.kind]

    @property
    def label(self) -> str:
        return " ".join([_label(self.left), self.op, _label(self.right)])

    @cached_property
    def source(self) -> Hashable:
        return self.op, _source(self.left), _source(self.right)

    def attributes(self) -> Iterator[Any]:
        for operand in (self.left, self.right):
            if isinstance(operand, Number):
                yield from operand.attributes()

    def __attrs_post_init__(self) -> None:
        for operand in (self.left, self.right):
            if kind_of(operand) is None:
                raise InvalidQuery(
                    f"{safe_repr(self)}: {safe_repr(operand)} cannot be part of a calculation; use numbers and times"
                )
            if (fault := _fault(operand)) is not None:
                raise InvalidQuery(f"{safe_repr(self)}: {fault}")
        result = calculation(self.op, self.left, self.right)
        if result is None:
            kinds = [kind.__name__ for kind in (kind_of(self.left), kind_of(self.right)) if kind is not None]
            raise InvalidQuery(f"{safe_repr(self)}: cannot calculate {f' {self.op} '.join(kinds)}")
        depth = 1 + max(operand.depth if isinstance(operand, Computed) else 0 for operand in (self.left, self.right))
        if depth > MAX_DEPTH:
            raise InvalidQuery(f"calculations are nested more than {MAX_DEPTH} deep; do that in a function")
        object.__setattr__(self, "kind", result[0])
        object.__setattr__(self, "depth", depth)

    def __repr__(self) -> str:
        return f"({self.left!r} {self.op} {self.right!r})"

    def _refusal(self) -> InvalidQuery:
        return InvalidQuery(
            f"{safe_repr(self)}: a query can compare fields, but not calculations; compare the field itself"
        )


def _label(operand: Any) -> str:
    if isinstance(operand, Computed):
        return f"({operand.label})"
    return operand.label if isinstance(operand, Number) else repr(operand)


def _source(operand: Any) -> Hashable:
    return operand.source if isinstance(operand, Number) else (operand.__class__, repr(operand))
