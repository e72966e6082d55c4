"""Writes of one store object, beside those of others."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from tablemapper.engines.sqlite.file.file import File, Writer
from tablemapper.errors import (
    InvalidEntity,
    SchemaMismatch,
    StoreError,
    StoreLocked,
)

from .... import sqlite_vfs  # noqa: F401  registers the file layers
from .table import create_table, drawn, insert


def test_a_write_returns_what_it_was_given_and_counts_its_changes(file: File) -> None:
    def apply(w: Writer) -> tuple[int, tuple[Any, ...] | None]:
        before = w.total_changes()
        w.executemany("INSERT INTO t (v) VALUES (?)", [(1,), (2,)])
        return w.total_changes() - before, w.get("SELECT count(*) FROM t")

    assert file.write(apply) == (2, (2,))


def test_an_exception_undoes_all_and_comes_out_unchanged(file: File) -> None:
    error = KeyError("mine")

    def apply(w: Writer) -> None:
        insert(1)(w)
        raise error

    with pytest.raises(KeyError) as raised:
        file.write(apply)
    assert raised.value is error
    assert file.read("SELECT * FROM t") == []
    file.write(insert(2))
    assert file.read("SELECT v FROM t") == [(2,)]


@pytest.mark.parametrize("value", [2**63, "\ud800"])
def test_a_value_that_sqlite_can_not_hold_is_an_error_of_ours(file: File, value: object) -> None:
    with pytest.raises(InvalidEntity, match="can not be stored"):
        file.write(insert(value))
    with pytest.raises(InvalidEntity, match="can not be stored"):
        file.get("SELECT ?", (value,))


def test_a_write_within_a_write_is_refused_instead_of_waiting_for_itself(file: File) -> None:
    with pytest.raises(StoreError, match="a write within a write"):
        file.write(lambda w: file.write(insert(1)))
    for use in (file.vacuum, file.checkpoint, file.close):
        with pytest.raises(StoreError, match="a write within a write"):
            file.write(lambda w, use=use: use())  # type: ignore[misc]
    file.write(insert(2))


def test_a_transaction_that_was_left_open_is_undone_by_the_next(file: File) -> None:
    assert file._connection is not None
    file._connection.execute("BEGIN IMMEDIATE")
    file._connection.execute("INSERT INTO t (v) VALUES ('lost')")
    file.write(insert("kept"))
    assert file.read("SELECT v FROM t") == [("kept",)]


def test_another_writer_is_waited_for_and_then_named(path: Path, file: File) -> None:
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with File.open(path, timeout=0.1) as impatient:
        start = time.monotonic()
        with pytest.raises(StoreLocked, match="raise timeout="):
            impatient.write(insert(1))
        assert 0.1 <= time.monotonic() - start < 2
        assert impatient.read("SELECT * FROM t") == []
        release = threading.Timer(0.05, lambda: other.execute("COMMIT"))
        release.start()
        file.write(insert(2))
        release.join()
    other.close()


def test_a_changed_catalogue_is_noticed_before_anything_is_done(path: Path, file: File) -> None:
    called = []
    with File.open(path) as other:
        generation = other.generation()
        other.write(insert(1), generation=generation)
        assert file.write(lambda w: w.bump_generation()) == generation + 1
        with pytest.raises(SchemaMismatch, match="another process changed the schema"):
            other.write(lambda w: called.append(w), generation=generation)
        other.write(insert(2), generation=generation + 1)
    with pytest.raises(SchemaMismatch):
        file.write(lambda w: called.append(w), generation=generation)
    assert not called


def test_a_bump_that_is_undone_is_forgotten(file: File) -> None:
    def apply(w: Writer) -> None:
        w.bump_generation()
        raise KeyError

    with pytest.raises(KeyError):
        file.write(apply)
    file.write(insert(1), generation=0)
    assert file.generation() == 0


def test_another_process_that_writes_for_too_long_is_one_clear_error(path: Path) -> None:
    with File.open(path, timeout=0.2) as file, File.open(path) as other:
        file.write(create_table)
        inside, leave = threading.Event(), threading.Event()

        def hold(w: Writer) -> None:
            inside.set()
            leave.wait(10)

        thread = threading.Thread(target=other.write, args=(hold,))
        thread.start()
        inside.wait(10)
        started = time.monotonic()
        outcomes: list[BaseException] = []

        def client() -> None:
            try:
                file.write(insert(1))
            except BaseException as error:
                outcomes.append(error)

        clients = [threading.Thread(target=client) for _ in range(6)]
        for one in clients:
            one.start()
        for one in clients:
            one.join(10)
        assert time.monotonic() - started < 0.9, "each waited for the timeouts of all before it"
        assert [type(error) for error in outcomes] == [StoreLocked] * 6
        first, *_, last = map(str, outcomes)
        assert "held its lock for longer than the timeout; nothing was written: retry, or raise timeout=" in first
        assert "for longer than the timeout of 0.2 s; nothing was written: retry, or raise timeout=" in last
        leave.set()
        thread.join()
        file.write(insert(2))
        assert file.read("SELECT v FROM t") == [(2,)]


def test_who_writes_alone_takes_a_turn_once(path: Path) -> None:
    with File.open(path, monotonic=lambda: 0.0) as file:  # however long each takes
        file.write(create_table)
        for _ in range(5):
            file.write(insert(1))
        assert drawn(path) == 1
        with File.open(path, monotonic=lambda: 0.0) as other:
            other.write(insert(2))
            file.write(insert(1))
            other.write(insert(2))
            assert drawn(path) == 3
            file.write(insert(1))
            other.write(insert(2))
            assert drawn(path) == 5


def test_who_writes_for_long_takes_turns_even_alone(path: Path) -> None:
    """Others would seldom find SQLite's lock free between its transactions."""
    now = 0.0
    with File.open(path, monotonic=lambda: now) as file:
        file.write(create_table)
        file.write(insert(1))
        assert drawn(path) == 1

        def slow(w: Writer) -> None:
            nonlocal now
            insert(1)(w)
            now += 0.05

        for before in (1, 2, 3):
            file.write(slow)
            assert drawn(path) == before
        file.write(insert(1))
        assert drawn(path) == 4
        file.write(insert(1))
        assert drawn(path) == 4


def client_process(path: str, which: int, gate: Any, at: Any, results: Any) -> None:
    with File.open(path, vfs="slow", timeout=30.0) as file:
        file.write(insert(which))
        gate.wait()
        time.sleep(max(0.0, at.value - time.monotonic()))
        end, n = at.value + 0.7, 0
        while time.monotonic() < end:
            file.write(insert(which))
            n += 1
    results.put(n)


def test_processes_that_write_without_a_pause_are_served_alike(path: Path) -> None:
    """With SQLite's lock alone one of them gets next to nothing."""
    with File.open(path) as file:
        file.write(create_table)
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    gate, at, results = context.Barrier(5), context.Value("d"), context.Queue()
    started = [context.Process(target=client_process, args=(str(path), which, gate, at, results)) for which in range(4)]
    for process in started:
        process.start()
    while gate.n_waiting < 4:
        time.sleep(0.005)
    at.value = time.monotonic() + 0.1
    gate.wait()
    served = [results.get(timeout=30) for _ in started]
    for process in started:
        process.join()
    assert min(served) > 0.5 * max(served), served
    with File.open(path) as file:
        assert file.get("SELECT count(*) FROM t") == (sum(served) + 4,)
