"""Spans of time over partitions that are cut down times: no bucket is read that cannot hold a match."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.expressions.tree import And

from ..classes import entity
from ..matching import matcher

DAY, HOUR, TICK = timedelta(days=1), timedelta(hours=1), timedelta(microseconds=1)
START = datetime(2026, 3, 1, tzinfo=UTC)


class Reading(tm.Entity, table="Readings"):
    at: tm.Field[datetime]
    n: tm.Field[int]

    key = tm.Key[datetime, int](partition="{at:%Y-%m-%d}", row="{n}")


Day = entity("Day", "Days", {"day": date, "n": int}, tm.Key[date, int](partition="{day:%Y-%m}", row="{n}"))


Shift = entity("Shift", "Shifts", {"hour": time, "n": int}, tm.Key[time, int](partition="{hour:%H}", row="{n}"))


@pytest.fixture(scope="module")
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Reading, Day, Shift]) as opened:
        opened.insert_many(Reading(START + n * HOUR / 2, n) for n in range(48 * 4))
        opened.insert_many(Day(date(2026, 3, 1) + n * DAY, n) for n in range(100))
        opened.insert_many(Shift(time(n // 4, n % 4 * 15), n) for n in range(96))
        yield opened


at, hour = Reading.at, Shift.hour
CASES: dict[str, tuple[Any, list[Any], list[str]]] = {
    "a day": (Reading, [at >= START, at < START + DAY], ["2026-03-01"]),
    "a day, from outside": (Reading, [at > START - TICK, at <= START + DAY - TICK], ["2026-03-01"]),
    "a day and a moment": (Reading, [at >= START, at <= START + DAY], ["2026-03-01", "2026-03-02"]),
    "what is left of a day": (Reading, [at > START + DAY - TICK, at < START + 2 * DAY], ["2026-03-02"]),
    "several sides": (
        Reading,
        [at >= START, at > START + DAY - TICK, at <= START + 9 * DAY, at < START + 2 * DAY],
        ["2026-03-02"],
    ),
    "a zone": (Reading, [at >= START, at < (START + DAY).astimezone(timezone(HOUR))], ["2026-03-01"]),
    "nothing between": (Reading, [at > START, at < START + TICK], []),
    "nothing at all": (Reading, [at >= START + DAY, at < START], []),
    "before all times": (Reading, [at > START - DAY, at < datetime(1601, 1, 1, tzinfo=UTC)], []),
    "after all times": (Reading, [at > datetime.max.replace(tzinfo=UTC), at < START], []),
    "a month": (Day, [Day.day >= date(2026, 3, 1), Day.day < date(2026, 4, 1)], ["2026-03"]),
    "a month, from outside": (Day, [Day.day > date(2026, 3, 31), Day.day <= date(2026, 4, 30)], ["2026-04"]),
    "an hour": (Shift, [hour >= time(9), hour < time(10)], ["09"]),
    "an hour, from outside": (Shift, [hour > time(8, 59, 59, 999999), hour < time(10)], ["09"]),
    "before midnight": (Shift, [hour >= time(0), hour < time(0)], []),
    "after the last hour": (Shift, [hour > time.max, hour <= time.max], []),
}


@pytest.mark.parametrize(("cls", "conditions", "buckets"), CASES.values(), ids=CASES)
def test_a_bound_on_the_edge_of_a_bucket_leaves_that_bucket_out(
    store: tm.Store, cls: Any, conditions: list[Any], buckets: list[str]
) -> None:
    query = store.query(cls).where(*conditions)
    explained = query.explain()
    assert [one.partition.lo for one in explained.ranges] == buckets
    holds = matcher(And(parts=tuple(conditions)))
    assert sorted(one.n for one in query) == sorted(one.n for one in store.query(cls).allow_scan() if holds(one))
    assert list(query.budget(examined=explained.rows)) == list(query)


LOCAL_MIDNIGHT = START.replace(tzinfo=timezone(HOUR))
EDGES: dict[str, tuple[list[Any], bool]] = {
    "a day": ([at >= START, at < START + DAY], True),
    "a day in another zone": ([at >= START.astimezone(timezone(HOUR)), at < START + DAY], True),
    "from a day on": ([at >= START + DAY], True),
    "before a day": ([at < START + DAY], True),
    "days": ([at >= START, at >= START + DAY, at < START + 3 * DAY], True),
    "more days than are read one by one": ([at >= START + DAY, at < START + 3000 * DAY], True),
    "one of several days": ([(at >= START) & (at < START + DAY) | (at >= START + 2 * DAY)], False),
    "a day and a moment": ([at >= START, at <= START + DAY], False),
    "a day of the zone": ([at >= LOCAL_MIDNIGHT, at < LOCAL_MIDNIGHT + DAY], False),
    "a day and an hour": ([at >= START, at < START + DAY + HOUR], False),
}


@pytest.mark.parametrize(("conditions", "exact"), EDGES.values(), ids=EDGES)
def test_bounds_that_begin_buckets_leave_no_filter(store: tm.Store, conditions: list[Any], exact: bool) -> None:
    query = store.query(Reading).where(*conditions)
    for _ in range(2):
        assert (query.explain().filter == ()) is exact
        holds = matcher(And(parts=tuple(conditions)))
        wanted = sorted(one.n for one in store.query(Reading).allow_scan() if holds(one))
        assert sorted(one.n for one in query) == wanted
        assert query.count() == len(wanted)
        assert store.query(Reading).where(at >= START + HOUR, at < START + DAY).count() == 46  # (the same form)


def test_a_day_examines_its_rows_only(store: tm.Store) -> None:
    assert len(list(store.query(Reading).where(at >= START, at < START + DAY).budget(examined=48))) == 48


def test_bounds_of_one_value_that_hold_rows_of_another_leave_a_range_to_the_filter() -> None:
    members = {"code": bytes, "size": date}
    key = tm.Key[date, bytes](partition="{size}", row="{code}")
    Part = entity("Part", "Parts", members, key, by_code=tm.Index[bytes, date](partition="{code}{size}"))
    with tm.open(":memory:", models=[Part]) as store:
        store.insert(Part(b"\xff", date(2024, 1, 1)))
        late = store.query(Part).where(Part.code.is_in([b"\xff", b""]), Part.size >= date(2025, 1, 1))
        assert late.explain().path == "Part.by_code"
        assert list(late) == []
