"""Exact sums that values can be added to and taken from, in any order.

A maintained sum sees each value twice, once when it comes and once when it goes, so an error of rounding would stay
for ever. Here nothing is rounded before it is shown: every total is a Python int.

======== =========================================================================================================
kind     state
======== =========================================================================================================
float    ``[n, total in units of 2**-1074, how many are +inf, how many are -inf]``; every float is a whole number of
         these units, so the sum shown is ``math.fsum`` of the live values, bit for bit
int      ``[n, total]``
Decimal  ``[n, {exponent: [how many, total of the coefficients]}]``, for the exponent of a sum is the smallest of its
         terms, and comes back when that term leaves
duration ``[n, total in microseconds]``
======== =========================================================================================================

``state[0]`` is always the number of values; None is not a value and is not added. A *delta* is a state that was not
merged yet: what a transaction added less what it removed. Its numbers may be negative.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

import attrs

from ..codegen import Names
from ..errors import safe_repr
from ..limits import MAX_INT64, MIN_INT64

V = TypeVar("V")
State: TypeAlias = list[Any]
Number: TypeAlias = Callable[[object], int]

_UNITS_OF_ONE = 1 << 1074  # of 2**-1074, the smallest float above zero
_MOST_TRAILING_ZEROS = 1074 + 1024 + 64  # 2**64 times the largest float: no sum of ours ends in more
_MOST_BYTES = 300  # of a total: the largest is of floats, and has 2,162 bits
_MOST_INT_BITS = 1023  # of an int that was calculated: the mean of such is a float
_MOST_DIGITS = 500  # of a Decimal that was calculated: what 2**64 of them add up to has not _MOST_BYTES
_MOST_CALCULATED_EXPONENT = 13_000  # of one: a product of any two that are stored has less
_MOST_EXPONENT = 20_000  # of a Decimal that is summed, be it a sum itself; any larger, and 10 to its power has no end
_EXACT = decimal.Context(
    prec=decimal.MAX_PREC, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[decimal.InvalidOperation]
)
_RATIO = decimal.Context(
    prec=28,
    rounding=decimal.ROUND_HALF_EVEN,
    Emin=decimal.MIN_EMIN,
    Emax=decimal.MAX_EMAX,
    traps=[decimal.InvalidOperation],
)


@attrs.frozen
class ExactSum(Generic[V]):
    """The sum of the values of one kind. Its fields are plain functions, for generated loops to bind and call."""

    zero: Callable[[], State]
    """Make the state of no values."""
    add: Callable[[State, V, int], None]
    """Change a state in place: ``add(state, value, 1)`` adds a value, ``add(state, value, -1)`` removes one."""
    merge: Callable[[State, State], State]
    """Return the state that a delta leads to; neither argument changes."""
    shown: Callable[[State], V | None]
    """Return the sum, or None: there are no values, or infinities of both signs.

    Raises:
        OverflowError: durations that add up to more than ``timedelta.max``.
    """
    mean: Callable[[State], Any]
    """Return the sum as shown, divided by the number of values as Python divides them; None where the sum is.

    Decimals take 28 digits, half even, whatever the caller's context is.
    """
    pack: Callable[[State], list[Any]]
    """Return the state as a short list of ints of 64 bits and bytes. Equal states give equal lists."""
    unpack: Callable[..., State]
    """Return the state that was packed, or the delta, if ``read_signed`` is given as the function that reads numbers.

    Raises:
        ValueError, TypeError: this is not what ``pack`` returned.
    """
    check: Callable[[V], V] = lambda value: value
    """Return a value that was calculated, and not read from a field; raise ValueError if it cannot be summed."""
    inline: str = ""
    """What ``add`` does, as source: for loops that call nothing. It may use the name s."""

    def add_source(self, state: str, value: str, names: Names) -> list[str]:
        """Return statements that do what ``add`` does, with the variables ``state``, ``value`` and ``sign``."""
        call = f"{names.name('add', self.add)}({state}, {value}, sign)"
        return self.inline.format(state=state, value=value).splitlines() if self.inline else [call]


def _pack_int(number: int) -> int | bytes:
    if MIN_INT64 <= number <= MAX_INT64:
        return number
    return number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)


def _unpack_int(packed: object) -> int:
    if type(packed) is int:  # (True and False are none)
        return packed
    if isinstance(packed, bytes) and len(packed) <= _MOST_BYTES:
        return int.from_bytes(packed, "little", signed=True)
    raise ValueError(f"{safe_repr(packed)} is not the total of a sum")


def read_number(packed: object) -> int:
    """Return how many values there are, as it is stored; ValueError if it is something else."""
    if type(packed) is int and packed >= 0:
        return packed
    raise ValueError(f"{safe_repr(packed)} is no number of values")


def read_signed(packed: object) -> int:
    """Return how many values more there are, or fewer, as it is stored; ValueError if it is something else."""
    if type(packed) is int:
        return packed
    raise ValueError(f"{safe_repr(packed)} is no change of a number of values")


def negated(state: Any) -> Any:
    """Return the delta that takes a state back: it has every number with the other sign."""
    if isinstance(state, dict):
        return {exponent: negated(entry) for exponent, entry in state.items()}
    return [negated(entry) for entry in state] if isinstance(state, list) else -state


# ------------------------------------------------------------------------------------------------------------- float


def _zero_float() -> State:
    return [0, 0, 0, 0]


def _add_float(state: State, value: float, sign: int) -> None:
    try:
        numerator, denominator = value.as_integer_ratio()
    except OverflowError:
        state[2 if value > 0 else 3] += sign
    else:  # the denominator is a power of two
        state[1] += sign * numerator << 1075 - denominator.bit_length()
    state[0] += sign


def _merge_float(state: State, delta: State) -> State:
    return [state[0] + delta[0], state[1] + delta[1], state[2] + delta[2], state[3] + delta[3]]


def _show_float(state: State) -> float | None:
    n, units, plus, minus = state
    if not n or (plus and minus):
        return None
    if plus or minus:
        return math.inf if plus else -math.inf
    zeros = (units & -units).bit_length() - 1 if units else 0
    try:  # it is rounded once, as a float: a sum that is no normal one has so few bits that nothing is
        return math.ldexp(units >> zeros, zeros - 1074)
    except OverflowError:
        return _show_long_float(units)


def _show_long_float(units: int) -> float:
    try:
        return units / _UNITS_OF_ONE  # the quotient of two ints is rounded once, and correctly; but that takes long
    except OverflowError:
        return math.inf if units > 0 else -math.inf


def _mean_float(state: State) -> float | None:
    total = _show_float(state)
    return None if total is None else total / state[0]


def _pack_float(state: State) -> list[Any]:
    n, units, plus, minus = state
    zeros = (units & -units).bit_length() - 1 if units else 0
    units >>= zeros
    packed = units if MIN_INT64 <= units <= MAX_INT64 else _pack_int(units)
    return [n, zeros, packed, plus, minus] if plus or minus else [n, zeros, packed]


def _unpack_float(packed: list[Any], number: Number = read_number) -> State:
    n, zeros, units, plus, minus = packed if len(packed) > 3 else (*packed, 0, 0)
    if zeros.__class__ is not int or not 0 <= zeros <= _MOST_TRAILING_ZEROS:
        raise ValueError(f"no sum of floats ends in {zeros} zero bits")
    return [number(n), _unpack_int(units) << zeros, number(plus), number(minus)]


# ----------------------------------------------------------------------------------------------------- int, timedelta


def _zero_int() -> State:
    return [0, 0]


def _add_int(state: State, value: int, sign: int) -> None:
    state[0] += sign
    state[1] += sign * value


def _merge_int(state: State, delta: State) -> State:
    return [state[0] + delta[0], state[1] + delta[1]]


def _show_int(state: State) -> int | None:
    return state[1] if state[0] else None


def _mean_int(state: State) -> float | None:
    return state[1] / state[0] if state[0] else None


def _pack_total(state: State) -> list[Any]:
    return [state[0], _pack_int(state[1])]


def _unpack_total(packed: list[Any], number: Number = read_number) -> State:
    n, total = packed
    return [number(n), _unpack_int(total)]


def _add_timedelta(state: State, value: timedelta, sign: int) -> None:
    state[0] += sign
    state[1] += sign * ((value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds)


def _show_timedelta(state: State) -> timedelta | None:
    return timedelta(microseconds=state[1]) if state[0] else None


def _mean_timedelta(state: State) -> timedelta | None:
    total = _show_timedelta(state)
    return None if total is None else total / state[0]


# ----------------------------------------------------------------------------------------------------------- Decimal


def _zero_decimal() -> State:
    return [0, {}]


def _add_decimal(state: State, value: Decimal, sign: int) -> None:
    integral, _, part = str(value).partition(".")
    try:  # three times as fast as as_tuple()
        coefficient = int(integral + part)
        exponent = -len(part)
    except ValueError:  # in scientific notation
        exponent, coefficient = _split(value)
    count_and_total = state[1].get(exponent)
    if count_and_total is None:
        state[1][exponent] = [sign, sign * coefficient]
    else:
        count_and_total[0] += sign
        count_and_total[1] += sign * coefficient
    state[0] += sign


def _split(value: Decimal) -> tuple[int, int]:
    if not value.is_finite() or abs(value.adjusted()) > _MOST_EXPONENT:
        raise ValueError(f"{safe_repr(value)} cannot be summed: expected a finite Decimal")
    sign, digits, exponent = value.as_tuple()
    return _exponent(exponent), int(Decimal((sign, digits, 0)))


def _exponent(exponent: object) -> int:
    if type(exponent) is int and abs(exponent) <= _MOST_EXPONENT:
        return exponent
    raise ValueError(f"{safe_repr(exponent)} is not the exponent of a Decimal that can be summed")


def _merge_decimal(state: State, delta: State) -> State:
    merged = dict(state[1])
    for exponent, (count, total) in delta[1].items():
        old_count, old_total = merged.get(exponent, (0, 0))
        merged[exponent] = [old_count + count, old_total + total]
    # in a delta, no values on balance can still be a change: 1.00 went and 2.00 came
    return [state[0] + delta[0], {exponent: entry for exponent, entry in merged.items() if entry != [0, 0]}]


def _show_decimal(state: State) -> Decimal | None:
    n, by_exponent = state
    if not n:
        return None
    # Python's sum() starts at the int 0, so no exponent is above 0
    smallest = min(0, min((exponent for exponent, (count, _) in by_exponent.items() if count), default=0))
    total = sum(total * 10 ** (exponent - smallest) for exponent, (count, total) in by_exponent.items() if count)
    return Decimal(total).scaleb(smallest, _EXACT)


def _mean_decimal(state: State) -> Decimal | None:
    total = _show_decimal(state)
    return None if total is None else _RATIO.divide(total, state[0])


def _pack_decimal(state: State) -> list[Any]:
    return [
        part
        for exponent, (count, total) in sorted(state[1].items())
        if count or total
        for part in (exponent, count, _pack_int(total))
    ]


def _unpack_decimal(packed: list[Any], number: Number = read_number) -> State:
    by_exponent = {
        _exponent(exponent): [number(count), _unpack_int(total)]
        for exponent, count, total in zip(packed[::3], packed[1::3], packed[2::3], strict=True)
    }
    return [sum(count for count, _ in by_exponent.values()), by_exponent]


def _check_float(value: float) -> float:
    if math.isnan(value):
        raise ValueError("nan is not a number")
    return value


def _check_int(value: int) -> int:
    if value.bit_length() > _MOST_INT_BITS:
        raise ValueError(f"{safe_repr(value)} has more than {_MOST_INT_BITS:,} bits")
    return value


def _check_decimal(value: Decimal) -> Decimal:
    digits = len(value.as_tuple().digits)
    if digits > _MOST_DIGITS or abs(value.adjusted()) > _MOST_CALCULATED_EXPONENT:
        raise ValueError(
            f"{safe_repr(value)} has more than {_MOST_DIGITS} digits, or an exponent beyond ±{_MOST_CALCULATED_EXPONENT:,}"
        )
    return value


_INLINE_INT = """\
s = {state}
s[0] += sign; s[1] += sign * {value}
"""

FLOAT: ExactSum[float] = ExactSum(
    _zero_float,
    _add_float,
    _merge_float,
    _show_float,
    _mean_float,
    _pack_float,
    _unpack_float,
    _check_float,
)
INT: ExactSum[int] = ExactSum(
    _zero_int, _add_int, _merge_int, _show_int, _mean_int, _pack_total, _unpack_total, _check_int, _INLINE_INT
)
TIMEDELTA: ExactSum[timedelta] = ExactSum(
    _zero_int, _add_timedelta, _merge_int, _show_timedelta, _mean_timedelta, _pack_total, _unpack_total
)
DECIMAL: ExactSum[Decimal] = ExactSum(
    _zero_decimal,
    _add_decimal,
    _merge_decimal,
    _show_decimal,
    _mean_decimal,
    _pack_decimal,
    _unpack_decimal,
    _check_decimal,
)

SUMS: Mapping[type, ExactSum[Any]] = MappingProxyType({float: FLOAT, int: INT, Decimal: DECIMAL, timedelta: TIMEDELTA})
"""The types that can be summed."""
