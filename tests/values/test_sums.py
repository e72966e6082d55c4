from __future__ import annotations

import decimal
import math
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablemapper.codegen import Names, compile_functions
from tablemapper.values.sums import DECIMAL, FLOAT, INT, SUMS, TIMEDELTA, ExactSum, State

FLOATS = st.one_of(
    st.floats(allow_nan=False),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 2.2250738585072009e-308, 1.7976931348623157e308, -1e308, 0.1, 1e16]),
)
# the Decimals that an entity may hold: 34 digits, exponents -6143 to 6144; mostly near 0, where they meet
DECIMALS = st.builds(
    lambda sign, digits, exponent: Decimal((sign, tuple(map(int, str(digits))), exponent)),
    st.integers(0, 1),
    st.one_of(st.integers(0, 1000), st.integers(0, 10**34 - 1)),
    st.one_of(st.integers(-4, 4), st.integers(-40, 40), st.sampled_from([-6143, 6111])),
)
DURATIONS = st.timedeltas(min_value=timedelta(days=-(10**6)), max_value=timedelta(days=10**6))


def exact_float_sum(values: Sequence[float]) -> float | None:
    if math.inf in values or -math.inf in values:
        signs = {value for value in values if math.isinf(value)}
        return signs.pop() if len(signs) == 1 else None
    total = sum(map(Fraction, values), Fraction())
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def exact_decimal_sum(values: Sequence[Decimal]) -> Decimal:
    with decimal.localcontext(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN):
        return sum(values, Decimal(0))


ORACLES: list[tuple[ExactSum[Any], st.SearchStrategy[Any], Callable[[Sequence[Any]], Any]]] = [
    (FLOAT, FLOATS, exact_float_sum),
    (INT, st.one_of(st.integers(), st.integers(-(2**63), 2**63 - 1)), sum),
    (DECIMAL, DECIMALS, exact_decimal_sum),
    (TIMEDELTA, DURATIONS, lambda values: sum(values, timedelta())),
]
every_kind = pytest.mark.parametrize(
    ("sums", "values", "oracle"), ORACLES, ids=["float", "int", "Decimal", "timedelta"]
)


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are one, down to the sign of a zero and the exponent of a Decimal."""
    return type(a) is type(b) and repr(a) == repr(b)


def state_of(sums: ExactSum[Any], values: Sequence[Any]) -> State:
    state = sums.zero()
    for value in values:
        sums.add(state, value, 1)
    return state


def churn(
    sums: ExactSum[Any],
    oracle: Callable[[Sequence[Any]], Any],
    coming: Sequence[Any],
    rng: random.Random,
    *,
    transaction: int = 5,
    look_every: int = 1,
) -> None:
    """Add and remove at random, in transactions, through the stored form; compare with the live values."""
    live: list[Any] = []
    stored = sums.pack(sums.zero())
    todo = list(coming)
    turns = 0
    while todo or live:
        delta = sums.zero()
        for _ in range(rng.randint(1, transaction)):
            if todo and (not live or rng.random() < 0.6):
                value = todo.pop()
                live.append(value)
                sums.add(delta, value, 1)
            elif live:
                at = rng.randrange(len(live))
                live[at], live[-1] = live[-1], live[at]
                sums.add(delta, live.pop(), -1)
        merged = sums.merge(sums.unpack(stored), delta)
        packed = sums.pack(merged)
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode(packed))
        turns += 1
        if turns % look_every == 0 or not (todo or live):
            state = sums.unpack(stored)
            assert state[0] == len(live)
            assert same(sums.shown(state), oracle(live) if live else None)
    assert stored == sums.pack(sums.zero())


@every_kind
@given(data=st.data())
def test_a_sum_equals_that_of_the_live_values_after_any_adds_and_removes(
    sums: ExactSum[Any], values: st.SearchStrategy[Any], oracle: Callable[[Sequence[Any]], Any], data: st.DataObject
) -> None:
    churn(sums, oracle, data.draw(st.lists(values, max_size=30)), data.draw(st.randoms(use_true_random=False)))


@every_kind
@given(data=st.data())
def test_states_do_not_depend_on_the_order_of_the_values(
    sums: ExactSum[Any], values: st.SearchStrategy[Any], oracle: Callable[[Sequence[Any]], Any], data: st.DataObject
) -> None:
    live = data.draw(st.lists(values, max_size=30))
    shuffled = data.draw(st.permutations(live))
    assert sums.pack(state_of(sums, live)) == sums.pack(state_of(sums, shuffled))


@every_kind
@given(data=st.data())
def test_merging_leaves_both_states_as_they_were(
    sums: ExactSum[Any], values: st.SearchStrategy[Any], oracle: Callable[[Sequence[Any]], Any], data: st.DataObject
) -> None:
    left, right = data.draw(st.lists(values, max_size=5)), data.draw(st.lists(values, max_size=5))
    state, delta = state_of(sums, left), state_of(sums, right)
    merged = sums.merge(state, delta)
    for value in right:
        sums.add(merged, value, 1)
    assert state == state_of(sums, left)
    assert delta == state_of(sums, right)


@every_kind
def test_no_values_have_neither_sum_nor_mean(
    sums: ExactSum[Any], values: st.SearchStrategy[Any], oracle: Callable[[Sequence[Any]], Any]
) -> None:
    assert sums.shown(sums.zero()) is None
    assert sums.mean(sums.zero()) is None


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_a_sum_of_floats_is_fsum_bit_for_bit(values: list[float]) -> None:
    try:
        expected = math.fsum(values)
    except OverflowError:  # fsum gives up at some sums that do have a value
        return
    assert same(FLOAT.shown(state_of(FLOAT, values)), expected)
    assert same(FLOAT.mean(state_of(FLOAT, values)), expected / len(values))


def test_a_sum_of_floats_past_the_largest_is_infinite_until_it_is_not() -> None:
    state = state_of(FLOAT, [1e308, 1e308])
    assert FLOAT.shown(state) == math.inf
    FLOAT.add(state, 1e308, -1)
    assert FLOAT.shown(state) == 1e308
    assert FLOAT.shown(state_of(FLOAT, [-1e308, -1e308])) == -math.inf


def test_infinities_of_both_signs_have_no_sum_until_one_sign_leaves() -> None:
    state = state_of(FLOAT, [math.inf, -math.inf, 1.5])
    assert FLOAT.shown(state) is None
    assert FLOAT.mean(state) is None
    FLOAT.add(state, -math.inf, -1)
    assert FLOAT.shown(state) == math.inf
    FLOAT.add(state, math.inf, -1)
    assert FLOAT.shown(state) == 1.5


@pytest.mark.parametrize(("sums", "value"), [(FLOAT, math.nan), (DECIMAL, Decimal("NaN")), (DECIMAL, Decimal("Inf"))])
def test_what_has_no_place_in_a_sum_is_refused_and_changes_nothing(sums: ExactSum[Any], value: Any) -> None:
    state = sums.zero()
    with pytest.raises(ValueError):
        sums.add(state, value, 1)
    assert state == sums.zero()


def test_the_exponent_of_a_decimal_sum_comes_back_when_its_term_leaves() -> None:
    state = state_of(DECIMAL, [Decimal("1.5"), Decimal("0.500")])
    assert str(DECIMAL.shown(state)) == "2.000"
    DECIMAL.add(state, Decimal("0.500"), -1)
    assert str(DECIMAL.shown(state)) == "1.5"


def test_a_decimal_that_changes_within_a_transaction_changes_the_sum() -> None:
    delta = DECIMAL.zero()
    DECIMAL.add(delta, Decimal("1.00"), -1)
    DECIMAL.add(delta, Decimal("2.00"), 1)
    merged = DECIMAL.merge(state_of(DECIMAL, [Decimal("1.00")]), delta)
    assert str(DECIMAL.shown(merged)) == "2.00"


@given(st.lists(DECIMALS, min_size=1, max_size=8))
def test_decimals_do_not_depend_on_the_context_of_the_caller(values: list[Decimal]) -> None:
    def look() -> tuple[str, str]:
        state = state_of(DECIMAL, values)
        with decimal.localcontext(decimal.Context(prec=50)):
            return str(DECIMAL.shown(state)), str(DECIMAL.mean(state))

    expected = look()
    with decimal.localcontext(decimal.Context(prec=1, Emax=1, Emin=-1, capitals=0, rounding=decimal.ROUND_UP)):
        state = state_of(DECIMAL, values)
        shown, mean = DECIMAL.shown(state), DECIMAL.mean(state)
    assert (str(shown), str(mean)) == expected


def test_means_are_what_python_divides_to() -> None:
    assert same(INT.mean(state_of(INT, [1, 2])), 1.5)
    assert same(INT.mean(state_of(INT, [2**63 - 1, 2**63 - 1])), float(2**63 - 1))
    assert same(TIMEDELTA.mean(state_of(TIMEDELTA, [timedelta(microseconds=1), timedelta(0)])), timedelta(0))
    assert same(DECIMAL.mean(state_of(DECIMAL, [Decimal(1), Decimal(0), Decimal(0)])), Decimal("0." + "3" * 28))
    assert same(DECIMAL.mean(state_of(DECIMAL, [Decimal("1.00"), Decimal("2.00")])), Decimal("1.50"))


def test_ints_past_64_bits_are_packed_as_bytes_and_come_back() -> None:
    for total in (2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**64, 10**30, -(10**30)):
        packed = INT.pack(state_of(INT, [total]))
        assert isinstance(packed[1], bytes) is not (-(2**63) <= total < 2**63)
        assert INT.unpack(packed) == [1, total]


def test_a_sum_of_prices_packs_into_twenty_bytes() -> None:
    rng = random.Random(7)
    packed = FLOAT.pack(state_of(FLOAT, [rng.randrange(1, 100_000) / 100 for _ in range(1000)]))
    assert len(msgspec.msgpack.encode(packed)) <= 20


@every_kind
@given(data=st.data())
def test_a_loop_adds_what_the_function_adds(
    sums: ExactSum[Any], values: st.SearchStrategy[Any], oracle: Callable[[Sequence[Any]], Any], data: st.DataObject
) -> None:
    value, sign = data.draw(values), data.draw(st.sampled_from([1, -1]))
    names = Names()
    lines = [f"    {line}" for line in sums.add_source("state", "value", names)]
    loop = compile_functions("loop", "\n".join(["def add(state, value, sign):", *lines]), names)["add"]
    expected, state = sums.zero(), sums.zero()
    sums.add(expected, value, sign)
    loop(state, value, sign)
    assert state == expected


@pytest.mark.parametrize(
    ("sums", "packed"),
    [
        (FLOAT, []), (FLOAT, [1, 0]), (FLOAT, [1, -1, 1]), (FLOAT, [1, 10**9, 1]), (FLOAT, [1, 0, "1"]), (INT, [1]),
        (INT, [1, None]), (DECIMAL, [1, 2]), (TIMEDELTA, [1, 2, 3]),
    ],
)  # fmt: skip
def test_a_damaged_state_is_refused(sums: ExactSum[Any], packed: list[Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        sums.unpack(packed)


def test_every_kind_is_found_by_the_type_of_its_values() -> None:
    assert dict(SUMS) == {float: FLOAT, int: INT, Decimal: DECIMAL, timedelta: TIMEDELTA}


def mixed_floats(rng: random.Random, n: int) -> list[float]:
    return [rng.choice([rng.random(), rng.uniform(-1, 1) * 10.0 ** rng.randint(-300, 300), 5e-324]) for _ in range(n)]


def mixed_decimals(rng: random.Random, n: int) -> list[Decimal]:
    return [Decimal((rng.randint(0, 1), (rng.randint(1, 9), rng.randint(0, 9)), rng.randint(-9, 9))) for _ in range(n)]


@pytest.mark.parametrize(
    ("sums", "make", "oracle"), [(FLOAT, mixed_floats, math.fsum), (DECIMAL, mixed_decimals, exact_decimal_sum)]
)
def test_a_hundred_thousand_mixed_operations_leave_no_error(
    sums: ExactSum[Any], make: Callable[[random.Random, int], list[Any]], oracle: Callable[[Sequence[Any]], Any]
) -> None:
    rng = random.Random(11)
    churn(sums, oracle, make(rng, 50_000), rng, transaction=100, look_every=50)


def naive_add(state: State, value: float, sign: int) -> None:
    state[0] += sign
    state[1] += sign * value


NAIVE: ExactSum[Any] = attrs.evolve(
    FLOAT,
    add=naive_add,
    shown=lambda state: float(state[1]) if state[0] else None,
    pack=lambda state: state,
    unpack=lambda packed: packed,
)
WEAKENED: dict[str, tuple[ExactSum[Any], Callable[[random.Random, int], list[Any]], Callable[[Sequence[Any]], Any]]] = {
    "naive float sum": (NAIVE, mixed_floats, exact_float_sum),
    "lost count": (
        attrs.evolve(FLOAT, merge=lambda state, delta: [max(state[0], delta[0]), *FLOAT.merge(state, delta)[1:]]),
        mixed_floats,
        exact_float_sum,
    ),
    "low bits dropped": (
        attrs.evolve(FLOAT, pack=lambda state: FLOAT.pack([state[0], state[1] >> 8 << 8, *state[2:]])),
        mixed_floats,
        exact_float_sum,
    ),
    "exponents never come back": (
        attrs.evolve(
            DECIMAL, shown=lambda state: None if not state[0] else (DECIMAL.shown(state) or 0) + Decimal("0E-9")
        ),
        mixed_decimals,
        exact_decimal_sum,
    ),
    "balanced exponents dropped from a delta": (
        attrs.evolve(
            DECIMAL,
            merge=lambda state, delta: DECIMAL.merge(state, [delta[0], {e: c for e, c in delta[1].items() if c[0]}]),
        ),
        mixed_decimals,
        exact_decimal_sum,
    ),
}


@pytest.mark.parametrize("weakness", WEAKENED)
def test_a_weakened_sum_is_caught(weakness: str) -> None:
    sums, make, oracle = WEAKENED[weakness]
    rng = random.Random(3)
    values = make(rng, 500)
    with pytest.raises(AssertionError):
        churn(sums, oracle, values, rng)
