"""What has ended and what each write sets, where a query reads entities together or moves them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tablemapper as tm

from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace
from ..stores import sound_store

WRITES = iter(range(1_000_000))


class Device(tm.Entity, table="Devices"):
    id: tm.Field[str]
    until: tm.Field[datetime | None] = tm.field(default=None, expires=True)
    key = tm.Key[str](partition="{id}")


class Reading(tm.Entity, table="Readings"):
    device: tm.Field[str]
    number: tm.Field[int]
    key = tm.Key[str, int](partition="{device}", row="{number}")


class Kept(tm.Entity, table="Kept"):
    id: tm.Field[str]
    until: tm.Field[datetime | None] = tm.field(default=None, expires=True)
    write: tm.Field[int] = tm.field(on_write=lambda: next(WRITES))
    key = tm.Key[str](partition="{id}")


MODELS = [Device, Reading, Kept]
PAST, FUTURE = datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + timedelta(days=1)


@pytest.fixture(params=["file", "account"])
def store(request: pytest.FixtureRequest) -> Iterator[tm.Store]:
    place: Any = ":memory:" if request.param == "file" else AzurePlace(memory=Memory())
    with sound_store(place, models=MODELS) as store:
        yield store


def test_what_has_ended_is_nobody_in_a_pair(store: tm.Store) -> None:
    store.insert_many([Device("a", PAST), Device("b", FUTURE), Device("c")])
    store.insert_many([Reading(device, 1) for device in "abcd"])
    pairs = store.query(Reading).allow_scan().with_(Device, by=Reading.device)
    assert {reading.device: device is not None for reading, device in pairs} == {
        "a": False, "b": True, "c": True, "d": False
    }  # fmt: skip


def test_what_has_ended_makes_room_for_what_is_moved(store: tm.Store) -> None:
    store.insert_many([Kept("a", PAST), Device("a", FUTURE), Device("b", PAST)])
    assert store.query(Device).allow_scan().move_to(lambda device: Kept(device.id, device.until)) == 1
    assert store[Kept.key("a")].until == FUTURE
    assert store.get(Device.key("a")) is None
    assert store.check().ok


def test_a_target_that_differs_in_what_a_write_sets_counts_as_moved(store: tm.Store) -> None:
    store.insert(Device("a", FUTURE))
    store.insert(Kept("a", FUTURE))  # (as a move leaves it that is killed before it deletes its source)
    written = store[Kept.key("a")].write
    assert store.query(Device).allow_scan().move_to(lambda device: Kept(device.id, device.until)) == 1
    assert store[Kept.key("a")].write == written
    assert store.query(Device).allow_scan().count() == 0
