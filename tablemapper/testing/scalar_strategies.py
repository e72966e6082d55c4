"""Strategies for single values: all that a type, its constraints and the room for it allow."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, TypeAlias
from uuid import UUID

import attrs
from hypothesis import strategies as st

from ..datetime_types import Builtin
from ..limits import MAX_INT32, MAX_INT64, MIN_DATETIME, MIN_INT32, MIN_INT64
from ..values.scalars import SCALARS, ValueType
from .key_budget import WORST, KeyBudget

Strategy: TypeAlias = st.SearchStrategy[Any]
_SELDOM = 8
"""One of so many texts is a long one."""
_FILL = {"a": 1, "é": 1, "\U0001f600": 2}
"""What the longest texts are made of, and its units: characters that no key escapes."""

_SPECIAL = ' !"./~}\x00\x9fßé\uffff\U0001f600'
"""Characters that keys escape, what marks escapes, and some that are odd in other ways: faults hide behind them."""


@attrs.frozen
class ValueRange:
    """The range of a value."""

    type: ValueType
    room: KeyBudget
    bounds: Mapping[str, Any] = {}
    """Those of ``msgspec.Meta``."""
    nested: bool = False

    @property
    def sizes(self) -> tuple[int, int | None]:
        """The least and the greatest length, of a text, of bytes or of a list."""
        return self.bounds.get("min_length") or 0, self.bounds.get("max_length")

    def takes(self, value: Any) -> bool:
        """Return whether a value is of the type."""
        try:
            self.type.check(value)
        except ValueError:
            return False
        return True


def scalars(value_range: ValueRange) -> Strategy:
    """Return the strategy for a value that is none of JSON's."""
    if value_range.type.enum is not None:
        return st.sampled_from(value_range.type.enum)
    if value_range.type.members is not None:
        return st.sampled_from(value_range.type.members)
    if value_range.type.own is not None:
        plain = scalars(attrs.evolve(value_range, type=SCALARS[value_range.type.kind]))
        return plain.map(partial(_loaded, value_range.type)).filter(value_range.takes)
    return _STRATEGIES[value_range.type.kind](value_range)


def _loaded(kind: ValueType, plain: Any) -> Any:
    """Return the value of a class of a user that a scalar stands for; None if it stands for none."""
    try:
        return kind.own and kind.own.load(plain)
    except ValueError:
        return None


def seldom(strategy: Strategy, other: Strategy) -> Strategy:
    """Return a strategy that sometimes draws what another does."""
    return st.integers(0, _SELDOM - 1).flatmap(lambda at: other if at == _SELDOM - 1 else strategy)


def ints(least: int, most: int) -> st.SearchStrategy[int]:
    """Return the strategy for ints: of each number of bits as often, and often those at both ends.

    Of a great range, Hypothesis by itself draws little but what is near 0.
    """
    start = max(least, min(most, 0))
    bits = (most - least).bit_length()
    lengths = st.integers(0, bits + bits // 3 + 1)  # (what is too long becomes an end)

    @st.composite
    def number(draw: st.DrawFn) -> int:
        length = draw(lengths)
        size = draw(_of_length(length)) if length else 0
        down = least < start and (start == most or draw(_SIGNS))
        return max(least, start - size) if down else min(most, start + size)

    return number()


_SIGNS = st.booleans()


@lru_cache(maxsize=None)
def _of_length(bits: int) -> st.SearchStrategy[int]:
    return st.integers(1 << (bits - 1), (1 << bits) - 1)


def texts(value_range: ValueRange) -> st.SearchStrategy[str]:
    least, most = value_range.sizes
    room = value_range.room
    if "pattern" in value_range.bounds:
        return st.from_regex(value_range.bounds["pattern"])
    alphabet: st.SearchStrategy[str] = st.characters(codec="utf-8") | st.sampled_from(_SPECIAL)
    safe = room.units // (WORST if room.keyed else 2)
    if room.raw:
        alphabet = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters='/\\#?"')
    if least > safe:  # only if nothing needs an escape
        alphabet, safe = st.sampled_from("abc"), room.units
    most = room.units if most is None else most
    counts = [(char, min(most, room.units // units)) for char, units in _FILL.items()]
    full = [ints(least, count).map(partial(operator.mul, char)) for char, count in counts if count >= least]
    return seldom(st.text(alphabet, min_size=least, max_size=max(least, min(safe, most))), st.one_of(full))


def _bytes(value_range: ValueRange) -> Strategy:
    least, most = value_range.sizes
    room = value_range.room.units // 2 if value_range.room.keyed else value_range.room.units * 2
    longest = max(least, room if most is None else min(room, most))
    full = [ints(least, longest).map(partial(operator.mul, byte)) for byte in (b"\x00", b"\xff")]
    return seldom(st.binary(min_size=least, max_size=longest), st.one_of(full))


def _ints(value_range: ValueRange) -> Strategy:
    bounds, room = value_range.bounds, value_range.room
    small = value_range.type.edm == "Int32"
    lows, highs = [room.least, MIN_INT32 if small else MIN_INT64], [room.most, MAX_INT32 if small else MAX_INT64]
    lows += [math.ceil(bounds["ge"])] if "ge" in bounds else []
    lows += [math.floor(bounds["gt"]) + 1] if "gt" in bounds else []
    highs += [math.floor(bounds["le"])] if "le" in bounds else []
    highs += [math.ceil(bounds["lt"]) - 1] if "lt" in bounds else []
    step = int(bounds.get("multiple_of", 1))
    counts = ints(-(-max(lows) // step), min(highs) // step)
    return counts if step == 1 else counts.map(lambda count: count * step)


def _floats(value_range: ValueRange) -> Strategy:
    bounds = value_range.bounds
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if step := bounds.get("multiple_of"):
        counts = st.integers(*(None if end is None else int(end / step) for end in (low, high)))
        return counts.map(lambda count: float(count * step))
    return st.floats(
        low,
        high,
        exclude_min=low is not None and "ge" not in bounds,
        exclude_max=high is not None and "le" not in bounds,
        allow_nan=False,
        allow_infinity=False if value_range.nested else None,
    )


def _decimals(value_range: ValueRange) -> Strategy:
    bounds = value_range.bounds
    if not bounds:
        usual = st.builds(lambda n, places: Decimal(n).scaleb(-places), st.integers(-(10**9), 10**9), st.integers(0, 4))
        return usual | st.builds(_decimal, ints(1 - 10**34, 10**34 - 1), ints(-6143, 6144))
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    ends = [Decimal(str(end)) for end in (low, high) if end is not None]
    between = st.decimals(low, high, allow_nan=False, allow_infinity=False) if ends else st.decimals(-1e9, 1e9)
    return (between | st.sampled_from(ends) if ends else between).filter(value_range.takes)


def _decimal(coefficient: int, power: int) -> Decimal:
    """Return a Decimal whose first digit stands for this power of ten."""
    digits = tuple(map(int, str(abs(coefficient))))
    return Decimal((int(coefficient < 0), digits, power - len(digits) + 1))


def _unfolded(moment: Any) -> Any:
    return moment.replace(fold=0)  # (in UTC, and of a time of day, it says nothing, and nothing keeps it)


_MICROSECOND = timedelta(microseconds=1)
_NEW = Builtin.datetime(2000, 1, 1, tzinfo=UTC)
_LATEST = Builtin.datetime.max.replace(tzinfo=UTC)
_MOMENTS = st.datetimes(MIN_DATETIME.replace(tzinfo=None), timezones=st.just(UTC)).map(_unfolded) | ints(
    (MIN_DATETIME - _NEW) // _MICROSECOND, (_LATEST - _NEW) // _MICROSECOND
).map(lambda count: _NEW + count * _MICROSECOND)
_DAY = _NEW.toordinal()
_DAYS = st.dates() | ints(1 - _DAY, _LATEST.toordinal() - _DAY).map(lambda days: Builtin.date.fromordinal(_DAY + days))
_TIMES = ints(0, 24 * 3600 * 10**6 - 1).map(lambda count: (_NEW + count * _MICROSECOND).time())
_STRATEGIES: dict[Any, Callable[[ValueRange], Strategy]] = {
    str: texts,
    bytes: _bytes,
    int: _ints,
    float: _floats,
    Decimal: _decimals,
    bool: lambda _: st.booleans(),
    Builtin.datetime: lambda _: _MOMENTS,
    Builtin.date: lambda _: _DAYS,
    time: lambda _: _TIMES,
    timedelta: lambda _: ints(MIN_INT64, MAX_INT64).map(lambda count: count * _MICROSECOND),
    UUID: lambda _: ints(0, 2**128 - 1).map(lambda number: UUID(int=number)),
}
