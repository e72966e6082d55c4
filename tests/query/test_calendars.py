"""Weeks and quarters: what a time, or a date, is cut to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.keys.truncation import Truncation

from ..classes import entity


class Sale(tm.Entity, table="Sales"):
    shop: tm.Field[str]
    at: tm.Field[datetime]
    day: tm.Field[date]
    amount: tm.Field[int] = tm.field(default=1)

    key = tm.Key[str, datetime](partition="{shop}", row="{at}")
    by_week = tm.Index[datetime](partition="{at:%G-W%V}", row="{at}")
    by_day = tm.Index[date](partition="{day:%Y-Q%q}", row="{day}")


class PerWeek(tm.Aggregate, of=Sale, table="PerWeek"):
    shop: tm.Field[str] = tm.group_by(Sale.shop)
    week: tm.Field[str] = tm.group_by(Sale.at.truncate("%G-W%V"))
    amount: tm.Field[int] = tm.sum(Sale.amount)

    key = tm.Key[str, str](partition="{shop}", row="{week}")


class PerQuarter(tm.Aggregate, of=Sale, table="PerQuarter"):
    quarter: tm.Field[str] = tm.group_by(Sale.day.truncate("%Y-Q%q"))
    sales: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="all", row="{quarter}")


START = datetime(2023, 12, 20, 12, tzinfo=UTC)
TIMES = [START + timedelta(days=n) for n in range(400)]


def week(at: date) -> str:
    year, number, _ = at.isocalendar()
    return f"{year}-W{number:02d}"


def quarter(at: date) -> str:
    return f"{at.year}-Q{(at.month + 2) // 3}"


@pytest.fixture(scope="module")
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Sale, PerWeek, PerQuarter]) as opened:
        opened.insert_many(Sale("Oslo", at, at.date()) for at in TIMES)
        yield opened


def test_a_week_belongs_to_the_year_of_its_thursday(store: tm.Store) -> None:
    groups = {one.week: one.amount for one in store.query(PerWeek).where(PerWeek.shop == "Oslo")}
    assert groups == {name: sum(week(at) == name for at in TIMES) for name in map(week, TIMES)}
    assert week(date(2024, 12, 30)) == "2025-W01"
    assert groups["2025-W01"] == 7


def test_quarters_of_a_date_are_groups(store: tm.Store) -> None:
    groups = {one.quarter: one.sales for one in store.query(PerQuarter)}
    assert groups == {name: sum(quarter(at) == name for at in TIMES) for name in map(quarter, TIMES)}
    assert store.check().ok


@pytest.mark.parametrize("op", ["__eq__", "__lt__", "__le__", "__gt__", "__ge__"])
@pytest.mark.parametrize("value", ["2024-W01", "2023-W52", "2025-W01", "2024-W54", "", "2024", "x"])
def test_a_condition_on_a_week_is_a_range_of_the_time(store: tm.Store, op: str, value: str) -> None:
    query = store.query(Sale).where(Sale.shop == "Oslo", getattr(Sale.at.truncate("%G-W%V"), op)(value))
    assert query.explain().filter == ()
    assert query.count() == sum(getattr(week(at), op)(value) for at in TIMES)


@pytest.mark.needs("estimates")
def test_weeks_are_read_week_by_week(store: tm.Store) -> None:
    weeks = store.query(Sale).where(Sale.at.truncate("%G-W%V").between("2024-W52", "2025-W01"))
    assert [one.partition.lo for one in weeks.explain().ranges] == ["2024-W52", "2025-W01"]
    assert weeks.explain().rows == weeks.count() == 14
    assert weeks.explain().filter == ()


@pytest.fixture(scope="module")
def plain() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Sale]) as opened:
        opened.insert_many(Sale("Oslo", at, at.date()) for at in TIMES)
        yield opened


MANY = [START.date() + timedelta(days=n) for n in range(3, 1_203) if n != 7]


def in_oslo(store: tm.Store) -> tm.Query[Sale]:
    return store.query(Sale).where(Sale.shop == "Oslo")


@pytest.mark.parametrize(
    ("narrowed", "holds"),
    [
        (in_oslo, lambda at: True),
        (lambda store: in_oslo(store).where(Sale.at > TIMES[20]), lambda at: at > TIMES[20]),
        (
            lambda store: store.query(Sale).where(Sale.at > TIMES[1], Sale.at < TIMES[9]),
            lambda at: TIMES[1] < at < TIMES[9],
        ),
        (lambda store: store.query(Sale).allow_scan(), lambda at: True),
    ],
    ids=["the key", "the key from a time on", "an index between two times", "all"],
)
def test_a_list_of_more_days_than_a_query_has_ranges_is_a_filter(plain: tm.Store, narrowed: Any, holds: Any) -> None:
    many = narrowed(plain).where(Sale.at.date().is_in(MANY))
    assert [sale.at for sale in many.order_by(Sale.at).allow_sort()] == [
        at for at in TIMES if at.date() in MANY and holds(at)
    ]
    assert len(many.explain().filter) == 1


def test_a_list_of_days_multiplies_with_a_list_of_values(plain: tm.Store) -> None:
    shops = plain.query(Sale).where(Sale.shop.is_in(["Oslo", *map(str, range(30))]))
    few, many = shops.where(Sale.at.date().is_in(MANY[:32])), shops.where(Sale.at.date().is_in(MANY[:33]))
    assert few.explain().filter == ()
    assert len(few.explain().ranges) == 31 * 32
    assert len(many.explain().filter) == 1
    assert (few.count(), many.count()) == (32, 33)


def test_nothing_bounds_a_query_by_too_many_days(plain: tm.Store) -> None:
    with pytest.raises(tm.ScanRefused):
        plain.query(Sale).where(Sale.at.date().is_in(MANY)).first()


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (Sale.day.truncate("%Y-Q%q") == "2024-Q3", lambda day: quarter(day) == "2024-Q3"),
        (Sale.day.truncate("%Y-Q%q").is_in(["2024-Q3", "2024-Q1"]), lambda day: quarter(day) in ("2024-Q3", "2024-Q1")),
        (
            Sale.day.truncate("%Y-%m").between("2024-02", "2024-03"),
            lambda day: (2024, 2) <= (day.year, day.month) < (2024, 4),
        ),
        (Sale.day.truncate("%m-%d") == "02-29", lambda day: (day.month, day.day) == (2, 29)),
        (Sale.day.truncate("%G-W%V") >= "2024-W52", lambda day: week(day) >= "2024-W52"),
    ],
    ids=["a quarter", "some quarters", "months", "a day of each year", "weeks from one on"],
)
def test_a_date_is_cut_as_a_time_is(store: tm.Store, condition: Any, holds: Any) -> None:
    found = store.query(Sale).where(condition).allow_scan().order_by(Sale.day).allow_sort()
    assert [one.day for one in found] == [at.date() for at in TIMES if holds(at.date())]


@pytest.mark.needs("sorts")
def test_orders_and_selections_take_weeks(store: tm.Store) -> None:
    some = store.query(Sale).where(Sale.shop == "Oslo").order_by(Sale.at.truncate("%Y-Q%q").desc(), Sale.at)
    expected = sorted(TIMES, key=lambda at: [-at.year, -((at.month + 2) // 3), at.timestamp()])
    assert [at for at, _ in some.select(Sale.at, Sale.at.truncate("%G-W%V"))] == expected
    assert [name for _, name in some.select(Sale.at, Sale.at.truncate("%G-W%V"))] == list(map(week, expected))


@pytest.mark.parametrize(
    ("attr", "format", "fault"),
    [
        (Sale.at, "%Y-W%V", "%V and %Y are of two calendars, whose years begin on different days; weeks are %G-W%V"),
        (Sale.at, "%G-%m", "%G and %m are of two calendars"),
        (Sale.day, "%Y-%m-%dT%H", "%H: a time format of date has"),
        (Sale.at, "week", "no part of a time is in it"),
        (Sale.amount, "%Y", "only a datetime can be truncated, or a date to a text"),
    ],
    ids=str,
)
def test_what_is_no_format_is_refused(attr: Any, format: str, fault: str) -> None:
    with pytest.raises(tm.errors.InvalidQuery) as refused:
        attr.truncate(format)
    assert fault in str(refused.value)


def test_a_date_has_no_date() -> None:
    day: Any = Sale.day
    with pytest.raises(tm.errors.InvalidQuery, match="only a datetime can be truncated"):
        day.date()


def test_a_key_that_mixes_calendars_is_refused() -> None:
    with pytest.raises(tm.errors.InvalidModel, match="are of two calendars"):
        entity("Bad", "Bad", {"at": datetime}, tm.Key[datetime](partition="{at:%Y-W%V}", row="{at}"))


@pytest.mark.needs("fresh")
def test_a_list_of_days_is_not_looked_at_further_than_tells_that_no_group_has_them_alone(
    store: tm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    exact_edge = Truncation.exact_edge

    def noted(self: Truncation, value: Any, *, end: bool) -> Any:
        seen.append(value)
        return exact_edge(self, value, end=end)

    monkeypatch.setattr(Truncation, "exact_edge", noted)
    assert in_oslo(store).where(Sale.at.date().is_in(MANY[:100])).count() == 100
    assert 0 < len(seen) < 20
