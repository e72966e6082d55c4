"""UUIDs in the order of time."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from uuid import UUID

import pytest

import tablemapper as tm
from tablemapper.uuids import Uuid7Generator, uuids_from

from .classes import entity

NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture(autouse=True)
def _from_the_start() -> Iterator[None]:
    with uuids_from(Uuid7Generator()):
        yield


def test_a_uuid7_begins_with_the_milliseconds_and_says_its_version() -> None:
    made = tm.uuid7(clock=lambda: NOON * 1_000_000, random=lambda bits: 2**bits - 1)
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == NOON
    assert made.int & (2**62 - 1) == 2**62 - 1


def test_uuid7s_ascend_where_the_clock_stands_still_or_goes_back() -> None:
    times = iter([NOON * 1_000_000] * 5000 + [(NOON - 5) * 1_000_000] * 5)
    made = [tm.uuid7(clock=lambda: next(times)) for _ in range(5005)]
    assert all(one < other for one, other in pairwise(made))
    assert all(one.version == 7 for one in made)


def test_rows_come_in_the_order_in_which_they_were_made() -> None:
    members = {"text": str, "id": (UUID, tm.field(factory=tm.uuid7))}
    Event = entity("Event", "Events", members, tm.Key[UUID](partition="all", row="{id}"))
    with tm.open(":memory:", models=[Event]) as store:
        store.insert_many(Event(str(n)) for n in range(20))
        assert [event.text for event in store.query(Event)] == [str(n) for n in range(20)]
