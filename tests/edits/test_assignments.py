"""What is assigned and calculated: by type, exact, or one clear error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.edits import assignments as module
from tablemapper.edits.assignments import assignments
from tablemapper.schema.model import compile_schema

from ..classes import entity
from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace


@attrs.define
class Part:
    count: int | None = None
    cost: Decimal | None = None


class Thing(tm.Entity, table="Things"):
    name: tm.Field[str]
    n: tm.Field[int] = tm.field(default=7)
    small: tm.Field[tm.Int32] = tm.field(default=3)
    other: tm.Field[int | None] = tm.field(default=None)
    x: tm.Field[float] = tm.field(default=1.5)
    y: tm.Field[float | None] = tm.field(default=None)
    price: tm.Field[Decimal] = tm.field(default=Decimal("9.99"))
    cost: tm.Field[Decimal | None] = tm.field(default=None)
    at: tm.Field[datetime] = tm.field(default=datetime(2026, 3, 1, 12, tzinfo=UTC))
    day: tm.Field[date] = tm.field(default=date(2026, 3, 1))
    span: tm.Field[timedelta] = tm.field(default=timedelta(hours=36))
    rest: tm.Field[timedelta | None] = tm.field(default=None)
    text: tm.Field[str | None] = tm.field(default="t")
    flag: tm.Field[bool] = tm.field(default=True)
    part: tm.Field[Part | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    extra: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str](partition="{name}")


MODEL = compile_schema([Thing]).models[0]
KEY = Thing.key("a")


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Thing]) as opened:
        opened.insert(Thing("a"))
        yield opened


def calculated(field: str, value: Any, **fields: Any) -> Any:
    """Return what a field of a thing becomes."""
    thing = Thing("a", **fields)
    assignments(MODEL, "merge", (), {field: value}).apply(thing)
    return getattr(thing, field)


CASES: list[tuple[str, Any, Any]] = [
    ("n", Thing.n * 2 + 1, 15), ("n", 100 - Thing.n - Thing.small, 90), ("n", -Thing.n, -7),
    ("small", Thing.small * Thing.n, 21), ("x", Thing.n / 2, 3.5), ("x", Thing.n * 2, 14.0),
    ("x", 1 / Thing.x - 0.5, 1 / 1.5 - 0.5), ("x", Thing.x * Thing.n + Thing.small, 13.5),
    ("x", Thing.span / timedelta(hours=1), 36.0), ("price", Thing.price * 2, Decimal("19.98")),
    ("price", Thing.price * Thing.n - 1, Decimal("68.93")), ("price", Thing.price / 3, Decimal("3.33")),
    ("price", Decimal(1) / (Thing.price + Decimal("0.01")), Decimal("0.1")),
    ("price", Decimal(7) / Thing.n / 3, Context(prec=28).divide(1, Decimal(3))),
    ("price", (Thing.n - 3) / (Thing.price - Decimal("2.99")), Context(prec=28).divide(4, Decimal(7))),
    ("at", Thing.at + timedelta(hours=1), datetime(2026, 3, 1, 13, tzinfo=UTC)),
    ("at", timedelta(days=1) + Thing.at - Thing.span, datetime(2026, 3, 1, tzinfo=UTC)),
    ("day", Thing.day + timedelta(days=1), date(2026, 3, 2)),
    ("day", Thing.at.date() - timedelta(days=1), date(2026, 2, 28)),
    ("span", Thing.at - datetime(2026, 3, 1, tzinfo=UTC), timedelta(hours=12)),
    ("span", Thing.day - date(2026, 2, 28), timedelta(days=1)),
    ("span", date(2026, 3, 2) - Thing.day, timedelta(days=1)),
    ("span", Thing.span * 2 - timedelta(hours=1), timedelta(hours=71)),
    ("span", 1.5 * Thing.span, timedelta(hours=54)), ("span", Thing.span / 3, timedelta(hours=12)),
    ("span", -Thing.span, timedelta(hours=-36)), ("text", Thing.name, "a"),
    ("text", Thing.at.truncate("%Y-%m"), "2026-03"), ("n", Thing.small, 3), ("x", Thing.n, 7.0),
    ("other", Thing.other + 1, None), ("cost", Thing.price * (Thing.cost + 1), None), ("y", Thing.y, None),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "becomes"), CASES, ids=[f"{c[0]}={c[1]!r}" for c in CASES])
def test_an_expression_gives_what_python_gives(field: str, value: Any, becomes: Any) -> None:
    found = calculated(field, value)
    assert found == becomes
    assert found.__class__ is becomes.__class__


def test_nested_and_undeclared_values_can_be_calculated_with_or_taken() -> None:
    part = Part(3, Decimal("1.5"))
    assert calculated("n", Thing.part.at(lambda p: p.count) * 2, part=part) == 6
    assert calculated("cost", Thing.part.at(lambda p: p.cost) + 1, part=part) == Decimal("2.5")
    assert calculated("cost", Thing.part.at(lambda p: p.cost) + 1) is None
    assert calculated("n", Thing.extra["size"], extra=tm.Extra(size=5)) == 5
    with pytest.raises(tm.InvalidEntity, match=r"n = Thing.extra.size: expected int, got str"):
        calculated("n", Thing.extra["size"], extra=tm.Extra(size="L"))


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: Thing.text * 2, "Thing.text cannot be part of a calculation"),
    (lambda: Thing.flag + 1, "Thing.flag cannot be part of a calculation"),
    (lambda: Thing.n + True, "True cannot be part of a calculation"),
    (lambda: Thing.extra["size"] + 1, "cannot be part of a calculation"),
    (lambda: Thing.price + 1.5, r"\(Thing.price \+ 1.5\): cannot calculate Decimal \+ float"),
    (lambda: Thing.at + Thing.at, r"cannot calculate datetime \+ datetime"),
    (lambda: Thing.at * 2, r"cannot calculate datetime \* int"),
    (lambda: timedelta(1) - Thing.at, r"cannot calculate timedelta - datetime"),
    (lambda: Thing.price * Decimal("nan"), "is not finite"),
    (lambda: Thing.x + float("nan"), "nan is not a number"),
    (lambda: Thing.at - datetime(2026, 1, 1), "has no time zone"),
]


@pytest.mark.parametrize(("make", "says"), WRONG, ids=[case[1] for case in WRONG])
def test_what_means_nothing_is_refused_where_it_is_written(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(tm.InvalidQuery, match=says):
        make()


UNFIT: list[tuple[str, Any, str]] = [
    ("n", Thing.n / 2, r"n: \(Thing.n / 2\) is float, but the field is int"),
    ("price", Thing.n * 2, "is int, but the field is Decimal"),
    ("n", Thing.x, "Thing.x is float, but the field is int"),
    ("text", Thing.n * 2, "is int, but the field is str"),
    ("day", Thing.at + timedelta(1), "is datetime, but the field is date"),
    ("tags", Thing.text, r"Thing.text is str, but the field is"),
]


@pytest.mark.parametrize(("field", "value", "says"), UNFIT, ids=[case[2] for case in UNFIT])
def test_an_expression_of_another_type_is_refused_before_any_entity(field: str, value: Any, says: str) -> None:
    with pytest.raises(tm.InvalidEntity, match=says):
        assignments(MODEL, "merge", (), {field: value})


FAULTS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("x", Thing.n / Thing.small, {"small": 0}, "x = (Thing.n / Thing.small): a division by zero"),
    ("price", Thing.price / Thing.n, {"n": 0}, "price = (Thing.price / Thing.n): a division by zero"),
    ("n", Thing.n * 2, {"n": 2**62}, "n = (Thing.n * 2): 9223372036854775808 does not fit in 64 bits; Decimal holds more"),
    ("small", Thing.n + 0, {"n": 2**31}, "small = (Thing.n + 0): 2147483648 does not fit in 32 bits; int holds more"),
    ("x", Thing.n + 0, {"n": 2**53 + 1}, "x = (Thing.n + 0): the int 9007199254740993 is not exact as a float: the nearest float differs"),
    ("x", Thing.n * Thing.x - Thing.n * Thing.x, {"x": 1e308}, "nan cannot be stored"),
    ("x", (Thing.n * Thing.n * Thing.n * Thing.n * Thing.n) * 1.0, {"n": 2**62}, ""),
    ("price", Thing.price * Thing.price, {"price": Decimal("1.234567890123456789")}, "34 digits"),
    ("price", Thing.price + Decimal("1E-6143"), {"price": Decimal("1E+6144")}, "34 digits"),
    ("at", Thing.at + timedelta(days=4_000_000), {}, "at = (Thing.at + "),
    ("at", Thing.at - timedelta(days=365 * 500), {}, "is before 1601-01-01"),
    ("span", Thing.span * 10**9, {"span": timedelta(days=10**6)}, "it cannot be calculated (OverflowError)"),
    ("n", Thing.other + 1, {}, "n = (Thing.other + 1): None, but a value of type int is required"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "fields", "says"), FAULTS, ids=[f"{c[0]}={c[1]!r}" for c in FAULTS])
def test_what_can_not_be_calculated_names_the_entity_and_the_expression(
    store: tm.Store, field: str, value: Any, fields: dict[str, Any], says: str
) -> None:
    store.upsert(Thing("a", **fields))
    before = store[KEY]
    if not says:
        store.merge(KEY, **{field: value})
        assert store[KEY].x == float(2**310)
        return
    with pytest.raises(tm.InvalidEntity) as raised:
        store.merge(KEY, **{field: value})
    assert str(raised.value).startswith("Thing ('a', ''): ")
    assert says in str(raised.value)
    assert store[KEY] == before


DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9)


@given(a=DECIMALS, b=DECIMALS, c=DECIMALS, n=st.integers(-(10**6), 10**6))
def test_decimals_are_exact_whatever_the_context_is(a: Decimal, b: Decimal, c: Decimal, n: int) -> None:
    expected = Fraction(a) * n - Fraction(b) + Fraction(c)
    with localcontext(Context(prec=2)):
        found = calculated("price", Thing.price * n - b + Thing.cost, price=a, cost=c)
    assert Fraction(found) == expected


TREES: st.SearchStrategy[tuple[Any, Callable[[int, int], int]]] = st.recursive(
    st.one_of(
        st.just((Thing.n, lambda n, m: n)),
        st.just((Thing.other, lambda n, m: m)),
        st.integers(-9, 9).map(lambda k: (k, lambda n, m: k)),
    ),
    lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner).map(
        lambda t: (_apply(t[0], t[1][0], t[2][0]), lambda n, m: _apply(t[0], t[1][1](n, m), t[2][1](n, m)))
    ),
    max_leaves=8,
)


def _apply(op: str, a: Any, b: Any) -> Any:
    return a + b if op == "+" else a - b if op == "-" else a * b


@given(tree=TREES, n=st.integers(-50, 50), m=st.integers(-50, 50))
def test_any_tree_is_calculated_as_python_does(tree: tuple[Any, Callable[[int, int], int]], n: int, m: int) -> None:
    assert calculated("n", tree[0], n=n, other=m) == tree[1](n, m)


def test_expressions_that_differ_in_constants_share_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    compiled = module._compiled
    monkeypatch.setattr(module, "_functions", {})
    monkeypatch.setattr(module, "_compiled", lambda value: (made.append(value), compiled(value))[1])
    assert [calculated("n", (Thing.n + k) * 2) for k in range(5)] == [14, 16, 18, 20, 22]
    assert len(made) == 1
    assert calculated("x", (Thing.x + 1) * 2) == 5.0
    assert calculated("price", (Thing.price + 1) * 2) == Decimal("21.98")
    assert calculated("n", (1 + Thing.n) * 2) == 16
    assert len(made) == 4


def test_fields_of_one_name_and_several_types_are_calculated_each_in_its_own_way() -> None:
    Exact = entity("Exact", "Exacts", {"name": str, "n": Decimal}, tm.Key[str](partition="{name}"))
    exact = Exact("a", Decimal("1.1111111111111111111111111111111"))
    assert calculated("n", Thing.n * 3 + 1) == 22
    assignments(compile_schema([Exact]).models[0], "merge", (), {"n": Exact.n * 3 + 1}).apply(exact)
    assert exact.n == Decimal("4.3333333333333333333333333333333")


def test_everything_is_calculated_from_the_entity_as_it_was(store: tm.Store) -> None:
    store.merge(KEY, Thing.n.set(Thing.small), Thing.small.set(Thing.n), Thing.other.set(Thing.n * Thing.small))
    thing = store[KEY]
    assert (thing.n, thing.small, thing.other) == (3, 7, 21)


def test_merge_calculates_within_the_transaction(store: tm.Store) -> None:
    store.merge(KEY, Thing.price.set(Thing.price * 2), n=Thing.n + 1)
    with store.transaction() as tx:
        tx.merge(KEY, Thing.price.set(Thing.price - 1), Thing.small.add(2))
        assert (tx[KEY].price, tx[KEY].small) == (Decimal("18.98"), 5)
    thing = store[KEY]
    assert (thing.price, thing.n, thing.small) == (Decimal("18.98"), 8, 5)
    etag = tm.info(thing).etag
    store.merge(KEY, n=Thing.n * 2, if_match=etag)
    with pytest.raises(tm.PreconditionFailed):
        store.merge(KEY, n=Thing.n * 2, if_match=etag)
    assert store[KEY].n == 16


def test_all_faults_of_an_entity_are_named_at_once(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity) as raised:
        store.merge(KEY, x=Thing.n / (Thing.n - 7), n=Thing.other * 2)
    assert raised.value.faults == (
        "x = (Thing.n / (Thing.n - 7)): a division by zero",
        "n = (Thing.other * 2): None, but a value of type int is required (Field[… | None] would allow it)",
    )


@pytest.mark.parametrize("place", [":memory:", "account"])
def test_a_constant_that_is_too_long_is_refused_with_the_key(place: Any) -> None:
    with tm.open(AzurePlace(memory=Memory()) if place == "account" else place, models=[Thing]) as store:
        store.insert(Thing("a"))
        for write in (
            lambda: store.merge(Thing.key("a"), text="é" * 32_769),
            lambda: store.query(Thing).allow_scan().update(text="é" * 32_769),
        ):
            with pytest.raises(tm.EntityTooLarge, match=r"Thing \('a', ''\): text: a text of 32,769 UTF-16 units"):
                write()
        assert store[Thing.key("a")].text == "t"
