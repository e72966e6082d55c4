"""Many entities at once: a class cleared, its partitions listed, many replaced; and when a scan is told."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import Other, grouped
from ..stores import sound_store


class Log(tm.Entity, table="Logs"):
    device: tm.Field[str]
    at: tm.Field[datetime]
    level: tm.Field[int]
    text: tm.Field[str] = tm.field(default="")

    key = tm.Key[str, datetime](partition=("{device}", "{at:%Y-%m}"), row="{at}")
    by_level = tm.Index[int](partition="{level}")
    by_text = tm.Index[str](partition="{text}", unique=True, where=lambda log: log.level > 100)


Levels = grouped("Levels", Log, "level", logs=tm.count(), last=(datetime | None, tm.max(Log.at)))


class Device(tm.Entity, table="Logs"):
    device: tm.Field[str]
    text: tm.Field[str] = tm.field(default="")

    key = tm.Key[str](partition="{device}", row="device")


Ever = grouped("Ever", Device, "device", devices=tm.count(), longest=(str | None, tm.max_ever(Device.text)))


MODELS: list[type[tm.Record]] = [Log, Levels, Device, Ever]


def logs(count: int = 30) -> list[Log]:
    return [
        Log(
            f"d{n % 3}",
            datetime(2026, 1 + n % 2, 1, n % 24, n % 60, n // 60, tzinfo=UTC),
            n % 4,
            "x" * 1000 if n % 7 == 0 else "y",
        )
        for n in range(count)
    ]


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=MODELS) as store:
        store.insert_many(logs())
        store.insert_many([Device(f"d{n}", "z" * 900) for n in range(5)])
        yield store


Ranked = grouped("Ranked", Log, "level", logs=tm.count(), by_logs=tm.Index[int](partition="{logs}"))


def test_clear_empties_an_index_on_groups() -> None:
    with sound_store(":memory:", models=[Log, Ranked]) as store:
        store.insert_many(logs())
        assert len(list(store.query(Ranked.by_logs(8)))) == 2
        assert store.clear(Log) == 30
        assert list(store.query(Ranked.by_logs(8))) == []


# -- clear ------------------------------------------------------------------------------------------------------------


def test_clear_empties_a_class_with_its_indexes_and_groups_and_nothing_else(store: tm.Store) -> None:
    assert store.clear(Log) == 30
    assert list(store.query(Log).allow_scan()) == []
    assert list(store.query(Log.by_level(1))) == []
    assert list(store.query(Levels).allow_scan()) == []
    assert [device.text for device in store.query(Device).allow_scan()] == ["z" * 900] * 5
    assert store.check().ok
    assert store.clear(Log) == 0
    store.insert_many(logs())
    assert store.query(Log).allow_scan().count() == 30
    assert store.get(Levels.key(1)) is not None
    assert store.check().ok


def test_clear_leaves_groups_that_outlive_their_entities(store: tm.Store) -> None:
    assert store.clear(Device) == 5
    group = store[Ever.key("d1")]
    assert (group.devices, group.longest) == (0, "z" * 900)
    assert store.query(Log).allow_scan().count() == 30
    assert store.check().ok


def test_clear_reads_no_row(tmp_path: Path) -> None:
    with tm.open(tmp_path / "a.db", models=[Log, Levels]) as store:
        store.insert_many(logs(1000))
        events: list[tm.Event] = []
    with sound_store(tmp_path / "a.db", models=[Log, Levels], observe=events.append) as store:
        assert store.clear(Log) == len({log.key for log in logs(1000)})
        assert [(event.verb, event.model, event.returned) for event in events] == [("clear", "Log", 0)]
    with tm.open(tmp_path / "a.db", models=[Log, Levels]) as store:
        assert not store.query(Log).allow_scan().exists()


def test_clear_while_something_is_built_leaves_it_right(tmp_path: Path) -> None:
    with tm.open(tmp_path / "a.db", models=[Log]) as store:
        store.insert_many(logs())
    with tm.open(tmp_path / "a.db", models=[Log, Levels], build=False) as store:
        store.build(limit=7)
        assert store.clear(Log) == 30
        store.insert_many(logs(10))
        store.build()
        assert store.check().ok
        assert sum(group.logs for group in store.query(Levels).allow_scan()) == 10


def test_an_entity_that_was_read_before_a_clear_cannot_replace_anything(store: tm.Store) -> None:
    log = logs()[3]
    read = store[log.key]
    store.clear(Log)
    with pytest.raises(tm.EntityNotFound):
        store.replace(read)
    store.insert(log)
    with pytest.raises(tm.PreconditionFailed):
        store.replace(read)


def test_clear_takes_classes_of_entities_only(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity, match="it is maintained from Log"):
        store.clear(Levels)  # type: ignore[arg-type]
    for wrong in (Log.key, "Log", logs()[0]):
        with pytest.raises((tm.InvalidEntity, tm.InvalidQuery)):
            store.clear(wrong)  # type: ignore[arg-type]
    with store.transaction(), pytest.raises(tm.InvalidTransaction, match="clear"):
        store.clear(Log)
    assert store.query(Log).allow_scan().count() == 30


# -- partitions -------------------------------------------------------------------------------------------------------


def test_partitions_are_those_of_the_class_with_the_fields_that_their_keys_give_back(store: tm.Store) -> None:
    partitions = list(store.partitions(Log))
    assert [one.key for one in partitions] == sorted({log.key.partition for log in logs()})
    assert [one.values for one in partitions[:2]] == [{"device": "d0"}, {"device": "d0"}]
    assert [one.values for one in store.partitions(Device)] == [{"device": f"d{n}"} for n in range(5)]
    assert [one.values for one in store.partitions(Levels)] == [{"level": n} for n in range(4)]
    store.clear(Log)
    assert list(store.partitions(Log)) == []


@pytest.mark.file
def test_partitions_may_come_and_go_while_they_are_listed(store: tm.Store) -> None:
    listed = store.partitions(Device)
    assert next(listed).values == {"device": "d0"}
    store.delete(Device.key("d1"))
    store.insert(Device("d11"))
    assert [one.values["device"] for one in listed] == ["d11", "d2", "d3", "d4"]


def test_partitions_of_what_is_no_class_of_the_store_are_refused(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity, match="was not opened with it"):
        store.partitions(Other)


# -- replace_many -----------------------------------------------------------------------------------------------------


def test_many_are_replaced_each_by_its_etag(store: tm.Store) -> None:
    read = list(store.query(Log).allow_scan())
    for log in read:
        log.level += 1
    assert store.replace_many(read) == 30
    assert sorted(log.level for log in store.query(Log).allow_scan()) == sorted(n % 4 + 1 for n in range(30))
    assert store.check().ok
    store.merge(read[20].key, text="other")
    with pytest.raises(tm.PreconditionFailed) as caught:
        store.replace_many(read)
    assert caught.value.written == 0  # type: ignore[attr-defined]
    with pytest.raises(tm.PreconditionFailed, match="it has no ETag"):
        store.replace_many(logs())


async def test_an_async_store_does_the_same() -> None:
    async with tm.open_async(":memory:", models=MODELS) as store:
        await store.insert_many(logs())
        read = await store.query(Log).allow_scan().list()
        assert await store.replace_many(read) == 30
        assert {one.values["device"] async for one in store.partitions(Log)} == {"d0", "d1", "d2"}
        assert await store.clear(Log) == 30
        assert await store.query(Log).allow_scan().count() == 0


# -- scans ------------------------------------------------------------------------------------------------------------


@pytest.mark.needs("estimates")
def test_a_scan_is_logged_once_a_form_and_only_where_the_rows_are_many(
    store: tm.Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(call: Any) -> int:
        caplog.clear()
        call()
        return caplog.text.count("reads the whole table Logs")

    scan = store.query(Log).allow_scan()
    with caplog.at_level(logging.WARNING, "tablemapper.query"):
        assert told(lambda: list(scan.where(Log.text == "y"))) == 0
        monkeypatch.setattr("tablemapper.execution.prepared._MANY", 29)
        assert told(lambda: list(scan.where(Log.text == "y"))) == 1
        assert told(lambda: list(scan.where(Log.text == "x"))) == 0
        assert told(scan.first) == 0
        assert told(lambda: list(scan.limit(5))) == 0
        assert told(scan.where(Log.text > "z").first) == 1
        assert told(scan.columns) == 1
        assert told(lambda: list(store.query(Levels).allow_scan())) == 0
        monkeypatch.setattr("tablemapper.execution.prepared._MANY", 35)  # rows of both classes of the table
        assert told(lambda: list(scan)) == 0
