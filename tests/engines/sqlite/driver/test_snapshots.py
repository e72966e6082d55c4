"""Streams and snapshots: one state, for a bounded time."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tablemapper.engines.sqlite.file.database import File
from tablemapper.errors import SnapshotTooOld, StoreError

from .... import sqlite_vfs  # noqa: F401  registers the file layers
from ..table import Clock, checkpoint, insert, open_table


def test_a_stream_reads_one_state_in_chunks_and_gives_its_reader_back(file: File) -> None:
    file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [(i,) for i in range(10)]))
    chunks = []
    for chunk in file.stream("SELECT v FROM t ORDER BY k", chunk=4):
        file.write(insert("later"))
        chunks.append([v for (v,) in chunk])
    assert chunks == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert checkpoint(file)
    assert list(file.stream("SELECT 1 WHERE 0")) == []


def test_a_stream_that_is_left_lets_its_state_go(file: File) -> None:
    file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [(i,) for i in range(600)]))
    stream = file.stream("SELECT * FROM t")
    next(stream)
    file.write(insert(1))
    assert not checkpoint(file), "the control: the stream holds its state"
    del stream
    assert checkpoint(file)
    closed: Any = file.stream("SELECT * FROM t")
    next(closed)
    file.write(insert(1))
    closed.close()
    assert list(closed) == []
    assert checkpoint(file)


def test_a_snapshot_reads_one_state_in_several_statements(file: File) -> None:
    with file.snapshot() as snapshot:
        assert snapshot.get("SELECT count(*) FROM t") == (0,)
        file.write(insert(1))
        assert snapshot.read("SELECT * FROM t") == []
        assert list(snapshot.stream("SELECT * FROM t")) == []
        assert snapshot.get("SELECT count(*) FROM t") == (0,)
    assert file.get("SELECT count(*) FROM t") == (1,)
    assert checkpoint(file)
    with pytest.raises(RuntimeError, match="within its with block"):
        snapshot.get("SELECT 1")


def test_a_wrong_statement_does_not_spoil_the_reader(file: File) -> None:
    for read in (file.read, file.get, lambda sql: list(file.stream(sql))):
        with pytest.raises(StoreError, match="no such column"):
            read("SELECT nosuch FROM t")
    with file.snapshot() as snapshot, pytest.raises(StoreError, match="no such column"):
        snapshot.get("SELECT nosuch FROM t")
    assert file.read("SELECT 1") == [(1,)]


def test_an_old_stream_is_logged_and_then_refused(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(0)
    with open_table(path, range(10), monotonic=clock) as file:
        stream = file.stream("SELECT v FROM t", chunk=1)
        with file.snapshot() as snapshot, caplog.at_level(logging.WARNING, "tablemapper"):
            clock.now = 29
            next(stream)
            snapshot.get("SELECT 1 FROM t")
            assert not caplog.records
            clock.now = 31
            next(stream)
            next(stream)
            snapshot.get("SELECT 1 FROM t")
            assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
            assert "is open for 31 s" in caplog.messages[0]
            clock.now = 300
            with pytest.raises(SnapshotTooOld, match="at most 300 s are allowed"):
                next(stream)
            with pytest.raises(SnapshotTooOld, match="a snapshot was open"):
                snapshot.get("SELECT 1 FROM t")
        assert list(stream) == []
        file.write(insert(1))
        assert checkpoint(file)


def test_a_cold_snapshot_is_held_for_as_long_as_a_check_takes(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(0)
    with (
        open_table(path, range(10), monotonic=clock) as file,
        file.snapshot(cold=True) as snapshot,
        caplog.at_level(logging.WARNING, "tablemapper"),
    ):
        stream = snapshot.stream("SELECT v FROM t", chunk=5)
        next(stream)
        clock.now = 10_000
        file.write(insert(11))
        next(stream)
        assert snapshot.get("SELECT count(*) FROM t") == (10,)
        assert not caplog.records


def test_a_state_that_nobody_asks_for_any_more_is_let_go_by_a_write(path: Path) -> None:
    clock = Clock(0)
    with open_table(path, range(10), monotonic=clock) as file:
        stream = file.stream("SELECT v FROM t", chunk=1)
        next(stream)
        with file.snapshot() as snapshot:
            snapshot.get("SELECT 1 FROM t")
            file.write(insert(1))
            assert not checkpoint(file)
            clock.now = 301
            file.write(insert(1))
            assert checkpoint(file)
            clock.now = 10
            with pytest.raises(SnapshotTooOld):
                next(stream)
            with pytest.raises(SnapshotTooOld):
                snapshot.get("SELECT 1 FROM t")
