"""The fixtures for tests of users, used as they use them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import tablemapper as tm

from ..classes import entity

if TYPE_CHECKING:
    from tablemapper.testing.clock import Clock

START = datetime(2026, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
pytestmark = [pytest.mark.file, pytest.mark.tm_store(scans=False)]


class Note(tm.Entity, table="Notes"):
    folder: tm.Field[str]
    id: tm.Field[uuid.UUID] = tm.field(factory=tm.uuid7)
    text: tm.Field[str] = tm.field(default="")

    key = tm.Key[str, uuid.UUID](partition="{folder}", row="{id}")
    by_text = tm.Index[str](partition="{text}")


Other = entity("Other", "Notes", {"id": str}, tm.Key[str](partition="{id}", row="other"))


@pytest.fixture
def tm_models() -> list[type[tm.Record]]:
    return [Note]


@pytest.fixture
def written(tm_store: tm.Store) -> Callable[[], Note]:
    def write() -> Note:
        note = Note("f")
        tm_store.insert(note)
        return note

    return write


@pytest.mark.tm_store(scans=True)
@pytest.mark.parametrize("_", range(2))
def test_each_test_gets_an_empty_store_of_its_own(tm_store: tm.Store, written: Callable[[], Note], _: int) -> None:
    assert tm_store.query(Note).allow_scan().count() == 0
    written()
    assert "memory" in repr(tm_store)


@pytest.mark.tm_store(models=[Other])
def test_a_test_can_have_other_classes(tm_store: tm.Store) -> None:
    assert list(tm_store.classes) == ["Other"]


@pytest.mark.tm_store(limits="azure")
def test_a_test_can_have_the_limits_of_azure(tm_store: tm.Store) -> None:
    with pytest.raises(tm.InvalidTransaction), tm_store.transaction() as tx:
        for _ in range(60):
            tx.insert(Note("f", text="x"))


@pytest.mark.tm_store(models=[Note, Other])
def test_a_test_can_forbid_scans(tm_store: tm.Store) -> None:
    for query in (tm_store.query(Note), tm_store.query(Note, Other)):
        with pytest.raises(tm.ScanRefused, match="the test forbids scans"):
            query.allow_scan()


@pytest.mark.parametrize("_", range(2))
def test_events_are_those_of_the_store(
    tm_store: tm.Store, tm_events: list[tm.Event], written: Callable[[], Note], _: int
) -> None:
    written()
    assert [event.verb for event in tm_events] == ["insert"]


IDS: list[uuid.UUID] = []


@pytest.mark.parametrize("_", range(2))
def test_a_write_moves_the_clock_and_uuids_go_by_it(tm_clock: Clock, written: Callable[[], Note], _: int) -> None:
    assert tm_clock.now == START
    one, two = written(), written()
    assert [tm.info(each).timestamp for each in (one, two)] == [START + MICROSECOND, START + 2 * MICROSECOND]
    assert tm_clock.now == START + 2 * MICROSECOND
    assert one.id < two.id
    assert one.id.int >> 80 == START.timestamp() * 1000
    IDS.append(two.id)


def test_the_clock_goes_on_from_the_last_write_and_can_be_set_back(
    tm_clock: Clock, written: Callable[[], Note]
) -> None:
    one = written()
    tm_clock.tick(60)
    assert moment(written()) - moment(one) == timedelta(seconds=60)
    later = datetime(2027, 5, 1, tzinfo=UTC)
    tm_clock.set(later)
    two = written()
    assert moment(two) == later
    tm_clock.set(START)
    back = [written(), written()]
    assert [moment(note) for note in back] == [later + MICROSECOND, later + 2 * MICROSECOND]
    assert tm_clock.now == START
    assert back[0].id > two.id
    tm_clock.set(later + 2 * MICROSECOND)
    assert moment(written()) == tm_clock.now == later + 3 * MICROSECOND
    with pytest.raises(ValueError, match="time zone"):
        tm_clock.set(datetime(2027, 5, 1))


def moment(note: Note) -> datetime:
    timestamp = tm.info(note).timestamp
    assert timestamp is not None
    return timestamp


def test_without_the_clock_time_is_real(written: Callable[[], Note]) -> None:
    note = written()
    timestamp = tm.info(note).timestamp
    assert timestamp is not None
    assert abs(timestamp - datetime.now(UTC)) < timedelta(hours=1)
    assert note.id not in IDS
    assert len(set(IDS)) <= 1  # from one seed
