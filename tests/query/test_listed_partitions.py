"""Partitions that a store lists can be read, counted and emptied, whatever their keys leave out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity
from ..conftest import rows_at_most

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Reading(tm.Entity, table="Readings"):
    device: tm.Field[str]
    at: tm.Field[datetime]
    n: tm.Field[int]

    key = tm.Key[str, datetime](partition=("{device}", "{at:%Y-%m-%d}"), row="{at:%H:%M:%S.%f}")
    by_n = tm.Index[int](partition="{n}")


class Note(tm.Entity, table="Readings"):
    device: tm.Field[str]
    at: tm.Field[datetime]
    name: tm.Field[str]

    key = tm.Key[str, datetime, str](partition=("{device}", "{at:%Y-%m-%d}"), row=("note", "{name}"))


class Event(tm.Entity, table="Events"):
    user: tm.Field[str]
    at: tm.Field[datetime]
    number: tm.Field[int]

    key = tm.Key[str, int, datetime](partition=("{user}", "{number:shard(4)}"), row=("{at:desc}", "{number}"))


Name = entity("Name", "Names", {"name": str, "number": int}, tm.Key[str, int](partition="{name:fold}", row="{number}"))


MODELS: list[type[tm.Entity]] = [Reading, Note, Event, Name]


def fill(store: tm.Store) -> None:
    store.insert_many(Reading(device, START + 7 * n * HOUR, n) for device in ("a", "b !") for n in range(10))
    store.insert_many(Note("a", START + 24 * n * HOUR, f"n{n}") for n in range(2))
    store.insert_many(Event("ada", START + n * HOUR, n) for n in range(30))
    store.insert_many(Name(name, n) for n, name in enumerate(["Ann", "ANN", "bob"]))


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=MODELS) as opened:
        fill(opened)
        yield opened


def place(entity: Any) -> tuple[str, str]:
    return tm.info(entity)[:2]


@pytest.mark.parametrize("cls", MODELS)
def test_each_partition_is_read_by_itself(store: tm.Store, cls: type[tm.Entity]) -> None:
    every = list(store.query(cls).allow_scan())
    partitions = list(store.partitions(cls))
    assert len(partitions) > 1
    for one in partitions:
        own = [entity for entity in every if place(entity)[0] == one.key]
        query = store.query(cls).where(one)
        assert list(query) == own
        assert query.count() == len(own)
        assert query.first() == own[0]
        assert [entity for page in islice(query.pages(2), 99) for entity in page.items] == own
        assert [entity for entity in store.partition(one) if isinstance(entity, cls)] == own
        explained = query.explain()
        assert (explained.scan, explained.filter, rows_at_most(query) >= len(own)) == (False, (), True)
        assert len(explained.ranges) == 1
        assert str(explained.ranges[0]).startswith(f"partition {one.key!r}")
    assert sum(store.query(cls).where(one).delete() for one in partitions) == len(every)
    assert list(store.partitions(cls)) == []


@pytest.mark.needs("backward")
def test_further_conditions_and_orders_hold_within_it(store: tm.Store) -> None:
    for one in store.partitions(Reading):
        own = list(store.query(Reading).where(one))
        for conditions, test in (
            ([Reading.at >= START + 20 * HOUR], lambda r: r.at >= START + 20 * HOUR),
            ([Reading.at == START + 7 * HOUR], lambda r: r.at == START + 7 * HOUR),
            ([Reading.at.is_in([START, START + 28 * HOUR])], lambda r: r.at in (START, START + 28 * HOUR)),
            ([Reading.at.date() == START.date()], lambda r: r.at.date() == START.date()),
            ([Reading.device == "a", Reading.n > 1], lambda r: r.device == "a" and r.n > 1),
            ([(Reading.n == 1) | (Reading.at > START + 40 * HOUR)], lambda r: r.n == 1 or r.at > START + 40 * HOUR),
        ):
            found = store.query(Reading).where(one, *conditions)
            assert list(found) == [reading for reading in own if test(reading)]
            assert list(found.order_by(Reading.at.desc())) == [reading for reading in own if test(reading)][::-1]
        assert store.query(Reading).where(one).order_by(Reading.at.desc()).explain().sort == ()


@pytest.mark.needs("estimates")
def test_a_row_range_bounds_what_is_read_of_it(store: tm.Store) -> None:
    shard = next(iter(store.partitions(Event)))
    late = store.query(Event).where(shard, Event.at >= START + 20 * HOUR).order_by(Event.at.desc())
    assert (late.explain().filter, late.explain().sort) == ((), ())
    assert late.explain().rows == late.count() < store.query(Event).where(shard).count()


def test_it_can_be_split_and_its_token_names_it(store: tm.Store) -> None:
    one = next(iter(store.partitions(Event)))
    query = store.query(Event).where(one)
    parts = query.split(3)
    assert [event for part in parts for event in part] == list(query)
    assert list(store.query(Event).part(query.token)) == list(query)
    assert list(store.query(Event).part(parts[1].token)) == list(parts[1])
    halves = store.query(Event).allow_scan().split(2)
    assert [event for half in halves for event in half.where(one)] == list(query)


def test_several_classes_are_read_together(store: tm.Store) -> None:
    one = next(one for one in store.partitions(Note) if one.key == "a !2026-01-01")
    every = list(store.query(Reading, Note).where(one))
    assert every == list(store.partition(one))
    assert {type(entity) for entity in every} == {Reading, Note}


async def test_it_can_be_awaited(tmp_path: Any) -> None:
    async with await tm.open_async(tmp_path / "a.db", models=MODELS) as store:
        await store.insert_many(Event("ada", START + n * HOUR, n) for n in range(30))
        found = 0
        async for one in store.partitions(Event):
            found += await store.query(Event).where(one).count()
            found += len([event async for event in store.partition(one)])
        assert found == 60


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s, one: s.query(Event).where(one), "'a !2026-01-01' is a partition of Reading, not of Event"),
        (lambda s, one: s.query(Reading.by_n(1)).where(one), "follows Reading.by_n, which has other partitions"),
        (lambda s, one: s.query(Reading).where(*s.partitions(Reading)), "nothing is in two partitions"),
        (lambda s, one: s.partition(one, Reading.device == "a"), "expected equalities"),
    ],
)
def test_what_no_partition_can_answer_is_refused(store: tm.Store, ask: Any, message: str) -> None:
    with pytest.raises(tm.InvalidQuery, match=message):
        ask(store, next(iter(store.partitions(Reading))))
