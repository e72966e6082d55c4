"""Counts, sums and extremes by query: what plain Python gives, from a declared aggregate and from the rows alike."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.execution.from_aggregates import matching_aggregate
from tablemapper.execution.totals import COUNT
from tablemapper.schema.slots import slot_of

from ..conftest import examples


class Reading(tm.Entity, table="Readings"):
    device: tm.Field[str]
    at: tm.Field[datetime]
    warmth: tm.Field[float] = tm.field(default=0.0)
    cost: tm.Field[Decimal | None] = tm.field(default=None)
    span: tm.Field[timedelta] = tm.field(default=timedelta())
    size: tm.Field[int] = tm.field(default=0)
    place: tm.Field[str | None] = tm.field(default=None)
    on: tm.Field[bool] = tm.field(default=True)

    key = tm.Key[str, datetime](partition="{device}", row="{at}")
    by_place = tm.Index[str, float](partition="{place}", row="{warmth}")


class Daily(tm.Aggregate, of=Reading, table="Daily"):
    device: tm.Field[str] = tm.group_by(Reading.device)
    day: tm.Field[date] = tm.group_by(Reading.at.date())
    n: tm.Field[int] = tm.count()
    warm: tm.Field[int] = tm.count(where=Reading.warmth > 2)
    mean: tm.Field[float | None] = tm.avg(Reading.warmth)
    coldest: tm.Field[float | None] = tm.min(Reading.warmth)
    cost: tm.Field[Decimal | None] = tm.sum(Reading.cost)
    large: tm.Field[int | None] = tm.sum(Reading.size, where=Reading.warmth > 2)
    ever: tm.Field[float | None] = tm.max_ever(Reading.warmth)

    key = tm.Key[str, date](partition="{device}", row="{day}")


class Hourly(tm.Aggregate, of=Reading, table="Hourly", where=lambda r: r.on == True):  # noqa: E712
    place: tm.Field[str] = tm.group_by(Reading.place)
    hour: tm.Field[str] = tm.group_by(Reading.at.truncate("%Y-%m-%d %H"))
    span: tm.Field[timedelta] = tm.sum(Reading.span)
    dearest: tm.Field[Decimal | None] = tm.max(Reading.cost)

    key = tm.Key[str, str](partition="{place}", row="{hour}")


START = datetime(2024, 2, 28, tzinfo=UTC)
TIMES = [START + timedelta(hours=h, minutes=m) for h in (0, 1, 23, 24, 25, 48) for m in (0, 30)]
EDGES = [*TIMES, START + timedelta(hours=24, microseconds=-1), START + timedelta(hours=2)]
READINGS = st.builds(
    Reading,
    st.sampled_from("ab"), st.sampled_from(TIMES), st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 2.5, math.inf, -0.5]),
    st.sampled_from([None, Decimal("0.10"), Decimal("-2"), Decimal("1E+3")]),
    st.sampled_from([timedelta(), timedelta(seconds=1), timedelta(days=-1)]), st.integers(-3, 2**62),
    st.sampled_from([None, "x", "y"]), st.booleans(),
)  # fmt: skip
Test = tuple[Any, Callable[[Reading], bool]]
TESTS: st.SearchStrategy[Test] = st.one_of(
    st.sampled_from("abc").map(lambda v: (Reading.device == v, lambda r: r.device == v)),
    st.sampled_from("abc").map(lambda v: (Reading.device != v, lambda r: r.device != v)),
    st.just((Reading.device.is_in(["a", "b"]), lambda r: True)),
    st.sampled_from("abc").map(lambda v: (~(Reading.device == v), lambda r: r.device != v)),
    st.sampled_from(EDGES).map(lambda t: (~(Reading.at < t), lambda r: r.at >= t)),
    st.sampled_from(["x", "y"]).map(lambda v: (Reading.place == v, lambda r: r.place == v)),
    st.just((~Reading.place.is_null(), lambda r: r.place is not None)),
    st.sampled_from(EDGES).map(lambda t: (Reading.at >= t, lambda r: r.at >= t)),
    st.sampled_from(EDGES).map(lambda t: (Reading.at < t, lambda r: r.at < t)),
    st.sampled_from(EDGES).map(lambda t: (Reading.at <= t, lambda r: r.at <= t)),
    st.sampled_from(EDGES).map(lambda t: (Reading.at > t, lambda r: r.at > t)),
    st.just((Reading.at.date() == date(2024, 2, 29), lambda r: r.at.date() == date(2024, 2, 29))),
    st.just((Reading.on == True, lambda r: r.on)),  # noqa: E712
    st.just((Reading.warmth > 2, lambda r: r.warmth > 2)),
    st.just(((Reading.device == "a") | (Reading.at < TIMES[4]), lambda r: r.device == "a" or r.at < TIMES[4])),
)
GROUPS: list[tuple[tuple[Any, ...], Callable[[Reading], tuple[Any, ...]]]] = [
    ((), lambda r: ()),
    ((Reading.device,), lambda r: (r.device,)),
    ((Reading.place,), lambda r: (r.place,)),
    ((Reading.at.date(),), lambda r: (r.at.date(),)),
    ((Reading.at.date(), Reading.device), lambda r: (r.at.date(), r.device)),
    ((Reading.place, Reading.at.truncate("%Y-%m-%d %H")), lambda r: (r.place, r.at.strftime("%Y-%m-%d %H"))),
]


def fsum(values: list[float]) -> float | None:
    if math.inf in values:
        return math.inf
    return float(sum(map(Fraction, values))) if values else None


def mean(values: list[float]) -> float | None:
    total = fsum(values)
    return None if total is None else total / len(values)


def held(name: str, rows: list[Reading]) -> list[Any]:
    return [value for row in rows if (value := getattr(row, name)) is not None]


MEASURES: list[tuple[Callable[[Any], Any], Callable[[list[Reading]], Any]]] = [
    (lambda q: q.count(), len),
    (lambda q: q.sum(Reading.warmth), lambda rows: fsum(held("warmth", rows))),
    (lambda q: q.avg(Reading.warmth), lambda rows: mean(held("warmth", rows))),
    (lambda q: q.min(Reading.warmth), lambda rows: min(held("warmth", rows), default=None)),
    (lambda q: q.max(Reading.warmth), lambda rows: max(held("warmth", rows), default=None)),
    (lambda q: q.sum(Reading.size), lambda rows: sum(held("size", rows)) if rows else None),
    (lambda q: q.avg(Reading.size), lambda rows: sum(held("size", rows)) / len(rows) if rows else None),
    (lambda q: q.sum(Reading.cost), lambda rows: sum(held("cost", rows)) if held("cost", rows) else None),
    (lambda q: q.max(Reading.cost), lambda rows: max(held("cost", rows), default=None)),
    (lambda q: q.sum(Reading.span), lambda rows: sum(held("span", rows), timedelta()) if rows else None),
    (lambda q: q.min(Reading.at), lambda rows: min(held("at", rows), default=None)),
    (lambda q: q.max(Reading.place), lambda rows: max(held("place", rows), default=None)),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tm.Store]:
    logging.getLogger("tablemapper.query").setLevel(logging.ERROR)
    path = tmp_path_factory.mktemp("t") / "t.db"
    with tm.open(path, models=[Reading, Daily, Hourly], durability="relaxed") as opened:
        yield opened
    logging.getLogger("tablemapper.query").setLevel(logging.NOTSET)


@pytest.mark.parametrize("at", range(len(MEASURES)))
@examples(8, long=100)
@given(
    readings=st.lists(READINGS, max_size=15),
    tests=st.lists(TESTS, max_size=3),
    groups=st.sampled_from(GROUPS),
    limit=st.sampled_from([None, None, 2]),
)
def test_a_total_is_what_python_says(
    store: tm.Store, at: int, readings: list[Reading], tests: list[Test], groups: Any, limit: int | None
) -> None:
    measure, expected = MEASURES[at]
    store.delete_many(store.query(Reading).allow_scan())
    store.upsert_many(readings)
    query = store.query(Reading).where(*(predicate for predicate, _ in tests)).allow_scan()
    found = list(query) if limit is None else list(query.limit(limit))
    live = {(row.device, row.at): row for row in readings}
    assert limit is not None or len(found) == sum(all(test(row) for _, test in tests) for row in live.values())
    if limit is not None:
        query = query.limit(limit)
    by, group_of = groups
    if not by:
        assert measure(query) == expected(found)
        return
    wanted: dict[Any, list[Reading]] = {}
    for row in found:
        group = group_of(row)
        wanted.setdefault(group if len(by) > 1 else group[0], []).append(row)
    made = measure(query.group_by(*by))
    assert made == {group: expected(rows) for group, rows in wanted.items()}
    places = [[(one is not None, one) for one in (key if len(by) > 1 else (key,))] for key in made]
    assert places == sorted(places)


@pytest.mark.needs("fresh")
@given(readings=st.lists(READINGS, max_size=15))
def test_totals_of_an_aggregate_and_of_rows_agree_bit_for_bit(store: tm.Store, readings: list[Reading]) -> None:
    store.delete_many(store.query(Reading).allow_scan())
    store.upsert_many(readings)
    for device in "ab":
        query = store.query(Reading).where(Reading.device == device)
        assert query.explain().totals.get("sum(cost)") == "Daily"
        for measure, _ in MEASURES:
            assert repr(measure(query)) == repr(measure(query.limit(1000)))
            assert repr(measure(query.group_by(Reading.at.date()))) == repr(
                measure(query.limit(1000).group_by(Reading.at.date()))
            )


@pytest.mark.needs("fresh", when=lambda served: served)
@pytest.mark.parametrize(
    ("where", "served"),
    [
        ([Reading.device == "a"], True),
        ([Reading.device == "a", Reading.at >= START], True),
        ([Reading.device == "a", Reading.at < START + timedelta(days=1)], True),
        ([Reading.device == "a", Reading.at <= START + timedelta(hours=24, microseconds=-1)], True),
        ([Reading.device == "a", Reading.at > START + timedelta(hours=24, microseconds=-1)], True),
        ([Reading.device == "a", Reading.at >= START + timedelta(hours=1)], False),
        ([Reading.device == "a", Reading.at <= START], False),
        ([Reading.device == "a", Reading.at > START], False),
        ([Reading.device == "a", Reading.at == START], False),
        ([Reading.device == "a", Reading.warmth > 1], False),
        ([Reading.device == "a", Reading.warmth > 2], True),  # the count of those is kept
        ([Reading.place == "x"], False),  # Hourly is of what is on only
        ([Reading.place == "x", Reading.on == True], True),  # noqa: E712
        ([Reading.place == "x", Reading.on == True, Reading.at < START + timedelta(hours=3)], True),  # noqa: E712
        ([Reading.place.is_null(), Reading.on == True], False),  # what has no place is in no group  # noqa: E712
    ],
)
def test_an_aggregate_answers_what_its_groups_tile(store: tm.Store, where: list[Any], served: bool) -> None:
    query = store.query(Reading).where(*where)
    assert (matching_aggregate(query._plans, query._spec, (), COUNT) is not None) == served


def test_a_measure_that_the_aggregate_lacks_is_computed(store: tm.Store) -> None:
    query = store.query(Reading).where(Reading.device == "a")
    assert matching_aggregate(query._plans, query._spec, (), slot_of("sum", Reading.span)) is None
    assert matching_aggregate(query._plans, query._spec, (Reading.size,), COUNT) is None


@pytest.mark.needs("fresh")
def test_a_total_reads_the_groups_only(store: tm.Store) -> None:
    query = store.query(Reading).where(Reading.device == "a", Reading.at >= START)
    found = matching_aggregate(query._plans, query._spec, (), COUNT)
    assert found is not None
    assert "partition 'a', rows ['2024-02-28', " in str(found.bound.ranges[0])


@pytest.mark.needs("fresh")
def test_explain_names_the_aggregate_that_answers_and_why_another_does_not(store: tm.Store) -> None:
    explained = store.query(Reading).where(Reading.device == "a", Reading.at >= START).explain()
    assert explained.totals.get("max(warmth)") == "Daily"
    assert "count() is answered from Daily" in str(explained)
    assert "not Hourly: entities without place are in none of its groups" in str(explained)
    explained = store.query(Reading).where(Reading.device == "a", Reading.warmth > 3).explain()
    assert explained.totals == {}
    assert explained.to_dict()["reasons"][-2] == "Daily: its groups do not distinguish warmth"


@pytest.mark.needs("backward")
def test_a_least_value_is_the_first_of_an_index(store: tm.Store) -> None:
    end = store.query(Reading).where(Reading.place == "x").order_by(Reading.warmth.desc()).select(Reading.warmth)
    assert end.explain().path == "Reading.by_place"
    assert end.explain().sort == ()


def test_durations_that_are_too_long_in_sum_are_one_clear_error(tmp_path: Any) -> None:
    with tm.open(tmp_path / "x.db", models=[Reading, Daily, Hourly]) as store:
        store.insert_many(Reading("a", time, span=timedelta(days=100_000_000)) for time in TIMES)
        with pytest.raises(tm.InvalidQuery, match=r"Reading\.span adds up to more than a timedelta"):
            store.query(Reading).where(Reading.device == "a").sum(Reading.span)


@pytest.mark.parametrize(
    ("ask", "part"),
    [
        (lambda q: q.sum(Reading.place), "numbers and timedeltas"),
        (lambda q: q.avg(Reading.at), "numbers and timedeltas"),
        (lambda q: q.sum("size"), "expected a field"),
        (lambda q: q.sum(Daily.n), "not a field of Reading"),
        (lambda q: q.min(Daily.n), "not a field of Reading"),
        (lambda q: q.group_by(), "name at least one field"),
        (lambda q: q.group_by(Daily.day), "not a field of Reading"),
        (lambda q: q.group_by(Reading.device).max(Daily.n), "not a field of Reading"),
        (lambda q: q.group_by("device"), "not a field of Reading"),
    ],
)
def test_a_total_that_means_nothing_is_one_clear_error(
    store: tm.Store, ask: Callable[[Any], object], part: str
) -> None:
    with pytest.raises(tm.InvalidQuery, match=part):
        ask(store.query(Reading).where(Reading.device == "a"))


@pytest.mark.needs("fresh")
def test_a_total_of_everything_is_a_scan(store: tm.Store) -> None:
    with pytest.raises(
        tm.ScanRefused, match=r"with \.allow_scan\(\); that reads the groups of Daily, which hold this total$"
    ):
        store.query(Reading).count()
    on = store.query(Reading).where(~Reading.place.is_null(), Reading.on == True)  # noqa: E712
    with pytest.raises(tm.ScanRefused, match="the groups of Hourly, which hold this total"):
        on.count()
    assert on.allow_scan().count() == len(list(on.allow_scan()))
    with pytest.raises(tm.ScanRefused, match=r"with \.allow_scan\(\)$"):
        store.query(Reading).group_by(Reading.place).sum(Reading.size)


@pytest.mark.needs("fresh")
def test_the_groups_that_answer_a_total_are_within_its_budget(tmp_path: Any) -> None:
    with tm.open(tmp_path / "b.db", models=[Reading, Daily, Hourly]) as store:
        store.insert_many(Reading("a", time) for time in TIMES)
        query = store.query(Reading).where(Reading.device == "a")
        assert query.budget(examined=3).count() == len(TIMES)
        with pytest.raises(tm.QueryStopped):
            query.budget(examined=2).count()
        with pytest.raises(tm.QueryStopped):
            query.budget(examined=2).avg(Reading.warmth)


class Sample(tm.Entity, table="Samples"):
    p: tm.Field[int]
    number: tm.Field[int] = tm.field(default=0)
    price: tm.Field[Decimal | None] = tm.field(default=None)
    span: tm.Field[timedelta | None] = tm.field(default=None)
    share: tm.Field[float] = tm.field(default=0.0)
    name: tm.Field[str] = tm.field(default="")
    on: tm.Field[bool] = tm.field(default=False)

    key = tm.Key[int](partition="{p}")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("number", [-1, 0, 2]),
        ("price", [None, Decimal("-1"), Decimal("0.0"), Decimal("2.5")]),
        ("span", [None, timedelta(-1), timedelta(), timedelta(2)]),
        ("share", [-0.5, 0.0, 1.5]),
        ("name", ["", "a", "b"]),
        ("on", [False, True]),
    ],
)
def test_a_group_of_nothing_stands_in_its_place(name: str, values: list[Any]) -> None:
    attr: Any = getattr(Sample, name)
    with tm.open(":memory:", models=[Sample]) as store:
        store.insert_many(Sample(p, **{name: value}) for p, value in enumerate(values))
        query = store.query(Sample).allow_scan()
        assert list(query.group_by(attr).count().items()) == [(value, 1) for value in values]
        assert list(query.group_by(attr, Sample.p).count()) == [(value, p) for p, value in enumerate(values)]
        assert list(query.group_by(attr).max(attr).values()) == values
