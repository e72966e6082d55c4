"""A store in memory reads no more than a query asks for, as one on a file does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity
from ..touched import Touched

pytestmark = pytest.mark.file

START = datetime(2026, 3, 1, tzinfo=UTC)
ROWS = 3_000


class Reading(tm.Entity, table="Readings"):
    device: tm.Field[str]
    at: tm.Field[datetime]
    value: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str, datetime](partition="{device}", row="{at}")


Device = entity("Device", "Readings", {"device": str}, tm.Key[str](partition="{device}", row="device"))


@pytest.fixture(scope="module")
def store(counting: Touched) -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Reading, Device]) as opened:
        opened.insert_many(Reading(d, START + timedelta(minutes=n), n) for d in "ab" for n in range(ROWS))
        yield opened


ASKED: dict[str, Any] = {
    "first": lambda q: q.first(), "exists": lambda q: q.exists(), "max": lambda q: q.max(Reading.at),
    "one of a loop": lambda q: next(iter(q)), "a few": lambda q: list(q.limit(3)), "a page": lambda q: q.page(3),
    "the first tuple": lambda q: q.select(Reading.value).first(),
    "a few within a budget": lambda q: list(q.limit(3).budget(timeout=60)),
}  # fmt: skip


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("devices", [["a"], ["a", "b"]])
def test_a_condition_that_python_checks_does_not_read_all(
    store: tm.Store, counting: Touched, ask: Any, devices: list[str]
) -> None:
    query = store.query(Reading).where(Reading.device.is_in(devices), Reading.at != START + timedelta(minutes=5))
    assert query.explain().checked != ()
    assert counting(lambda: ask(query))["Readings"] <= 2 * 257 * len(devices)


def test_several_classes_are_read_as_far_as_they_are_asked_for(store: tm.Store, counting: Touched) -> None:
    query = store.query(Reading, Device).where(Reading.device == "a")
    assert counting(lambda: next(iter(query)))["Readings"] <= 2 * 257 + ROWS  # a device is looked for among all rows
    both = store.query(Reading, Device).where(Reading.device == "a", Reading.value >= 0)
    assert counting(lambda: next(iter(both)))["Readings"] <= 257


def test_a_loop_that_writes_reads_one_state() -> None:
    with tm.open(":memory:", models=[Reading, Device]) as store:
        store.insert_many(Reading(d, START + timedelta(minutes=n), n) for d in "ab" for n in range(600))
        queries: list[Any] = [
            store.query(Reading).where(Reading.device == "a"),
            store.query(Reading).where(Reading.device.is_in(["a", "b"])).order_by(Reading.at),
            store.query(Reading).where(Reading.device == "a", Reading.at != START),
            store.query(Reading).where(Reading.device == "a").order_by(Reading.value.desc()),
            store.query(Reading, Device).where(Reading.device == "a"),
        ]
        before = [list(query) for query in queries]
        loops = [iter(query) for query in queries]
        found = [list(islice(loop, 3)) for loop in loops]
        for one in store.query(Reading).where(Reading.device == "a"):
            store.delete(one)
        assert [[*some, *loop] for some, loop in zip(found, loops, strict=True)] == before
        assert store.query(Reading).where(Reading.device == "a").count() == 0
