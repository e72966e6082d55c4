"""Days and times as a zone has them, and steps of a day: groups, conditions, orders, selections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import tablemapper as tm

from ..classes import entity

QUARTER = timedelta(minutes=15)


class Ping(tm.Entity, table="Pings"):
    host: tm.Field[str]
    at: tm.Field[datetime]
    seen: tm.Field[datetime | None] = tm.field(default=None)
    day: tm.Field[date] = tm.field(default=date(2024, 1, 1))

    key = tm.Key[str, datetime](partition="{host}", row="{at}")
    by_day = tm.Index[datetime](partition="{at:%Y-%m-%d}", row="{at}")


class PerDay(tm.Aggregate, of=Ping, table="PerDay"):
    host: tm.Field[str] = tm.group_by(Ping.host)
    day: tm.Field[date] = tm.group_by(Ping.at.date("Europe/Oslo"))
    pings: tm.Field[int] = tm.count()

    key = tm.Key[str, date](partition="{host}", row="{day}")


class PerWeek(tm.Aggregate, of=Ping, table="PerWeek"):
    week: tm.Field[str] = tm.group_by(Ping.at.truncate("%G-W%V", "America/St_Johns"))
    pings: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="all", row="{week}")


class PerQuarter(tm.Aggregate, of=Ping, table="PerQuarter"):
    host: tm.Field[str] = tm.group_by(Ping.host)
    begin: tm.Field[datetime] = tm.group_by(Ping.at.floor(QUARTER))
    pings: tm.Field[int] = tm.count()

    key = tm.Key[str, datetime](partition="{host}", row="{begin}")


def around(*moments: datetime, step: timedelta, hours: int) -> set[datetime]:
    return {
        at + n * step
        for at in moments
        for n in range(-hours * 3600 // int(step.total_seconds()), hours * 3600 // int(step.total_seconds()))
    }


TIMES = sorted(
    around(
        datetime(2024, 3, 31, 1, tzinfo=UTC),  # Oslo: 02:00 becomes 03:00
        datetime(2024, 10, 27, 1, tzinfo=UTC),  # 03:00 becomes 02:00
        datetime(2006, 10, 29, 2, 31, tzinfo=UTC),  # St. John's: 00:01 becomes 23:01 of the day before
        datetime(2011, 12, 30, 10, tzinfo=UTC),  # Apia: the 30th is left out
        datetime(2024, 4, 6, 15, tzinfo=UTC),  # Lord Howe: 02:00 becomes 01:30
        step=timedelta(minutes=30),
        hours=26,
    )
    | {datetime(1601, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)}
    | {datetime(2006, 10, 29, 2, 30, second, tzinfo=UTC) for second in (0, 59)}
)


@pytest.fixture(scope="module")
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Ping, PerDay, PerWeek, PerQuarter]) as opened:
        opened.insert_many(Ping("a", at, at if n % 5 else None) for n, at in enumerate(TIMES))
        yield opened


def local(at: datetime, zone: str) -> datetime:
    try:
        return at.astimezone(ZoneInfo(zone))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def written(at: datetime, format: str) -> str:
    year, week, _ = at.isocalendar()
    text = format.replace("%G", f"{year:04d}").replace("%V", f"{week:02d}").replace("%q", str((at.month + 2) // 3))
    text = text.replace("%Y", f"{at.year:04d}")
    return at.strftime(text) if "%" in text else text


def test_groups_are_those_of_the_local_day(store: tm.Store) -> None:
    days = Counter(local(at, "Europe/Oslo").date() for at in TIMES)
    assert {one.day: one.pings for one in store.query(PerDay).where(PerDay.host == "a")} == days
    assert days[date(2024, 3, 31)] == 23 * 2
    assert days[date(2024, 10, 27)] == 25 * 2
    weeks = Counter(written(local(at, "America/St_Johns"), "%G-W%V") for at in TIMES)
    assert {one.week: one.pings for one in store.query(PerWeek)} == weeks
    assert store.query(Ping).allow_scan().group_by(Ping.at.date("Europe/Oslo")).count() == days
    assert store.check().ok


@pytest.mark.needs("fresh")
def test_groups_are_steps_of_a_day(store: tm.Store) -> None:
    steps = Counter(at - (at - datetime(1970, 1, 1, tzinfo=UTC)) % QUARTER for at in TIMES)
    assert {one.begin: one.pings for one in store.query(PerQuarter).where(PerQuarter.host == "a")} == steps
    of_steps = store.query(Ping).where(Ping.host == "a", Ping.at.floor(QUARTER) >= datetime(2024, 1, 1, tzinfo=UTC))
    assert of_steps.explain().filter == ()
    assert of_steps.group_by(Ping.at.floor(QUARTER)).count() == {at: n for at, n in steps.items() if at.year >= 2024}
    assert "PerQuarter" in str(of_steps.explain())


@pytest.mark.parametrize("op", ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"])
@pytest.mark.parametrize(
    ("zone", "format", "values"),
    [
        ("Europe/Oslo", "", ["2024-03-30", "2024-03-31", "2024-10-27", "2024-10-28", "0001-01-01", "9999-12-31"]),
        ("America/St_Johns", "", ["2006-10-28", "2006-10-29", "2006-10-30"]),
        ("Pacific/Apia", "", ["2011-12-29", "2011-12-30", "2011-12-31"]),
        ("Europe/Oslo", "%Y-%m-%dT%H", ["2024-10-27T02", "2024-10-27T03", "2024-03-31T02", "2024-03-31T03"]),
        ("Europe/Oslo", "%Y-%m-%dT%H:%M", ["2024-10-27T02:15", "2024-10-27T02:59", "2024-10-27T03:00", "2024-03-31T02:30"]),
        ("Australia/Lord_Howe", "%Y-%m-%dT%H:%M", ["2024-04-07T01:30", "2024-04-07T01:45", "2024-04-07T02:00"]),
        ("America/St_Johns", "%G-W%V", ["2006-W43", "2006-W44", "9999-W52", "", "x"]),
        ("America/St_Johns", "%Y-Q%q", ["2006-Q4", "2006-Q3", "2007"]),
        ("Europe/Oslo", "%H", ["02", "23"]),
        ("Asia/Tokyo", "%Y", ["9999", "10000", "1601"]),
        ("America/New_York", "%Y", ["9999", "1600", "1601"]),
    ],
    ids=str,
)  # fmt: skip
def test_a_condition_on_local_time_holds_where_it_says(
    store: tm.Store, zone: str, format: str, values: list[str], op: str
) -> None:
    attr: Any = Ping.at.truncate(format, zone) if format else Ping.at.date(zone)
    for text in values:
        value: Any = text if format else date.fromisoformat(text)
        cuts = [written(local(at, zone), format) if format else local(at, zone).date() for at in TIMES]
        expected = [at for at, cut in zip(TIMES, cuts, strict=True) if getattr(cut, op)(value)]
        for query in (
            store.query(Ping).where(Ping.host == "a", getattr(attr, op)(value)),
            store.query(Ping).where(getattr(attr, op)(value)).allow_scan(),
        ):
            assert [one.at for one in query.order_by(Ping.at).allow_sort()] == expected
            assert query.count() == len(expected)


@pytest.mark.parametrize("op", ["__eq__", "__lt__", "__le__", "__gt__", "__ge__"])
@pytest.mark.parametrize("step", [QUARTER, timedelta(hours=6), timedelta(days=1), timedelta(milliseconds=1)], ids=str)
def test_a_condition_on_a_step_is_a_range(store: tm.Store, step: timedelta, op: str) -> None:
    for value in (datetime(2024, 3, 31, tzinfo=UTC), datetime(2024, 3, 31, 0, 1, tzinfo=UTC), TIMES[-1], TIMES[0]):
        query = store.query(Ping).where(Ping.host == "a", getattr(Ping.at.floor(step), op)(value))
        expected = [at for at in TIMES if getattr(at - (at - datetime(1970, 1, 1, tzinfo=UTC)) % step, op)(value)]
        assert [one.at for one in query] == expected
        assert query.explain().filter == ()


@pytest.mark.needs("estimates")
def test_a_local_day_is_read_and_nothing_else(store: tm.Store) -> None:
    query = store.query(Ping).where(Ping.host == "a", Ping.at.date("Europe/Oslo") == date(2024, 10, 27))
    assert query.explain().filter == ()
    assert query.explain().rows == 50
    assert "PerDay" in str(query.explain())
    days = store.query(Ping).where(Ping.at.date("Europe/Oslo").is_in([date(2024, 10, 27), date(2024, 3, 31)]))
    assert days.explain().path == "Ping.by_day"
    assert days.count() == 96
    assert days.explain().rows == 96


def test_where_local_days_run_backwards_the_rows_around_are_filtered(store: tm.Store) -> None:
    query = store.query(Ping).where(Ping.host == "a", Ping.at.date("America/St_Johns") == date(2006, 10, 28))
    assert query.explain().filter != ()
    found = [one.at for one in query]
    assert (
        datetime(2006, 10, 29, 2, 30, 59, tzinfo=UTC) not in found
    )  # (it is 00:00:59 of the 29th, before 23:01 of the 28th)
    assert datetime(2006, 10, 29, 2, 31, tzinfo=UTC) in found


@pytest.mark.needs("sorts")
def test_orders_and_selections_take_zones_and_steps(store: tm.Store) -> None:
    some = store.query(Ping).where(Ping.host == "a", Ping.at > TIMES[0], Ping.at < TIMES[-1])
    hour, day = Ping.at.truncate("%H:%M", "Europe/Oslo"), Ping.at.date("Pacific/Apia")
    expected = sorted(TIMES[1:-1], key=lambda at: (local(at, "Europe/Oslo").strftime("%H:%M"), at))
    assert [one.at for one in some.order_by(hour, Ping.at)] == expected
    rows = list(some.order_by(day.desc(), Ping.at).select(Ping.at, day, Ping.at.floor(timedelta(hours=6)), hour))
    assert rows == [
        (
            at,
            local(at, "Pacific/Apia").date(),
            at.replace(hour=at.hour // 6 * 6, minute=0, second=0, microsecond=0),
            local(at, "Europe/Oslo").strftime("%H:%M"),
        )
        for at in sorted(TIMES[1:-1], key=lambda at: (-local(at, "Pacific/Apia").toordinal(), at))
    ]
    assert Ping.at.date("UTC").source == Ping.at.date().source


def test_a_missing_time_has_no_local_day(store: tm.Store) -> None:
    some = store.query(Ping).where(Ping.host == "a")
    missing = sum(n % 5 == 0 for n in range(len(TIMES)))
    assert some.where(Ping.seen.date("Europe/Oslo").is_null()).count() == missing
    assert some.where(Ping.seen.floor(QUARTER).is_null()).count() == missing
    assert some.where(Ping.seen.date("Europe/Oslo") == Ping.at.date("Europe/Oslo")).count() == len(TIMES) - missing
    assert some.group_by(Ping.seen.date("Europe/Oslo")).count()[None] == missing  # type: ignore[index]


def test_a_local_day_fixes_no_partition(store: tm.Store) -> None:
    Log = entity("Log", "Logs", {"at": datetime}, tm.Key[datetime](partition="{at:%Y-%m-%d-%H}", row="{at}"))
    with tm.open(":memory:", models=[Log]) as logs:
        logs.insert_many(map(Log, TIMES))
        with pytest.raises(tm.errors.InvalidQuery, match="does not fix"):
            logs.partition(Log.at.date("Europe/Oslo") == date(2024, 3, 31))
        with pytest.raises(tm.errors.InvalidQuery, match="does not fix"):
            logs.partition(Log.at.floor(timedelta(hours=6)) == datetime(2024, 3, 31, tzinfo=UTC))
        with pytest.raises(tm.errors.InvalidQuery, match="is not a span of time"):
            logs.partition(Log.at.floor(QUARTER) == datetime(2024, 3, 31, 0, 1, tzinfo=UTC))
        assert len(list(logs.partition(Log.at.floor(QUARTER) == datetime(2024, 3, 31, tzinfo=UTC)))) == 2
        days = logs.query(Log).where(Log.at.date("Europe/Oslo") == date(2024, 3, 31))
        assert len(days.explain().ranges) == 23
        assert days.explain().filter == ()
        assert days.count() == 23 * 2


@pytest.mark.parametrize(
    ("cut", "fault"),
    [
        (lambda: Ping.at.date("Europe/Olso"), 'Ping.at.date("Europe/Olso"): no time zone is known by this name'),
        (lambda: Ping.at.date(""), 'Ping.at.date(""): no time zone is known'),
        (lambda: Ping.at.date("Europe"), "no time zone is known"),
        (lambda: Ping.at.date("../etc/passwd"), "no time zone is known"),
        (lambda: Ping.at.date(3), "Ping.at.date(3): no time zone is known"),  # type: ignore[arg-type]
        (lambda: Ping.at.date(ZoneInfo("Europe/Oslo")), "no time zone is known"),  # type: ignore[arg-type]
        (lambda: Ping.at.truncate("%Y-%m", "CEST"), 'Ping.at.truncate("%Y-%m", "CEST"): no time zone is known'),
        (lambda: Ping.at.truncate("%Y-W%V", "Europe/Oslo"), "are of two calendars"),
        (lambda: Ping.at.truncate('%Y", "UTC'), 'no time format has \'", "\' in it'),
        (lambda: Ping.at.truncate(3), "Ping.at.truncate(3): a time format is text"),  # type: ignore[arg-type]
        (lambda: Ping.day.truncate("%Y", "Europe/Oslo"), "a date is of no time zone"),
        (lambda: Ping.day.floor(QUARTER), "only a datetime can be truncated"),  # type: ignore[misc]
        (lambda: Ping.host.floor(QUARTER), "only a datetime can be truncated"),  # type: ignore[misc]
        (lambda: Ping.at.date().floor(QUARTER), "only a datetime can be truncated"),  # type: ignore[misc]
        (lambda: Ping.at.floor(QUARTER).floor(QUARTER), "only a datetime can be truncated"),
        (lambda: Ping.at.floor(timedelta(hours=7)), "Ping.at.floor(timedelta(hours=7)): expected a timedelta that divides a day evenly"),
        (lambda: Ping.at.floor(timedelta(days=7)), "Ping.at.floor(timedelta(days=7)): expected a timedelta that divides"),
        (lambda: Ping.at.floor(timedelta()), "expected a timedelta that divides a day evenly"),
        (lambda: Ping.at.floor(-QUARTER), "expected a timedelta that divides a day evenly"),
        (lambda: Ping.at.floor(15), "Ping.at.floor(15): expected a timedelta that divides a day evenly"),  # type: ignore[arg-type]
        (lambda: Ping.at.floor(QUARTER) == "x", "expected datetime"),
    ],
)  # fmt: skip
def test_what_cannot_be_cut_so_is_refused(cut: Any, fault: str) -> None:
    with pytest.raises(tm.errors.InvalidQuery) as refused:
        cut()
    assert fault in str(refused.value)
