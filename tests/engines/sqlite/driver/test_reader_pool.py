"""The connections of one process that read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tablemapper.engines.sqlite.file.database import File
from tablemapper.errors import StoreClosed, StoreLocked

from .... import sqlite_vfs  # noqa: F401  registers the file layers
from ....threads import at_once, elsewhere
from ..table import eventually, insert, open_table


@pytest.fixture
def file(path: Path) -> Iterator[File]:
    with open_table(path, range(1_000), readers=1, most_readers=2, timeout=60.0) as file:
        yield file


def waiting(file: File, count: int) -> None:
    eventually(lambda: len(file._readers._waiters) >= count)


READ = "SELECT v FROM t"


def test_no_more_readers_are_open_than_were_allowed_and_a_thread_that_finds_none_waits(file: File) -> None:
    streams = [file.stream(READ, chunk=10) for _ in range(2)]
    others = [elsewhere(lambda: len(file.read(READ))) for _ in range(5)]
    waiting(file, 5)
    assert len(file._connections) == 3  # one of them writes
    streams[0].close()
    for thread, results in others:
        thread.join(60)
        assert results == [1_000]
    assert len(file._connections) <= 3
    assert next(streams[1])


@pytest.mark.parametrize("broken", [False, True])
def test_a_stream_that_is_dropped_or_whose_reader_breaks_lets_the_next_one_read(file: File, broken: bool) -> None:
    streams = [file.stream(READ, chunk=10) for _ in range(2)]
    thread, results = elsewhere(lambda: file.get(READ))
    waiting(file, 1)
    if broken:
        file.drop(streams[0]._reader)  # type: ignore[attr-defined]
    else:
        del streams
    thread.join(60)
    assert results == [(0,)]


def test_a_thread_that_holds_a_reader_never_waits_for_another(file: File) -> None:
    streams = [file.stream(READ, chunk=10) for _ in range(10)]
    assert len(file._connections) == 11
    del streams
    assert len(file._connections) == 2


def test_waiting_for_a_reader_ends_in_one_clear_error(path: Path) -> None:
    with open_table(path, most_readers=1, timeout=0.02) as file:
        file.write(insert(1))
        with file.snapshot():
            thread, results = elsewhere(lambda: file.read(READ))
            thread.join(60)
        assert isinstance(results[0], StoreLocked)
        assert "all 1 connections that read were in use for longer than the timeout of 0.02 s" in str(results[0])
        assert not file._readers._waiters
        assert file.read(READ) == [(1,)]


def test_a_store_that_is_closed_sends_those_away_that_wait_for_a_reader(file: File) -> None:
    streams = [file.stream(READ, chunk=10) for _ in range(2)]
    thread, results = elsewhere(lambda: file.read(READ))
    waiting(file, 1)
    file.close()
    thread.join(60)
    assert isinstance(results[0], StoreClosed)
    assert streams


def test_many_threads_share_few_readers_and_lose_none(file: File) -> None:
    def client() -> int:
        seen = 0
        for turn in range(30):
            for chunk in file.stream(READ, chunk=100):
                seen += len(chunk)
                if turn % 3 == 0:
                    break
            file.get(READ)
        return seen

    others = [elsewhere(client) for _ in range(8)]
    for thread, results in others:
        thread.join(60)
        assert results == [10 * 100 + 20 * 1_000]
    assert not file._readers._waiters
    assert len(file._connections) <= 3


@pytest.mark.usefixtures("little_garbage")
def test_nested_loops_never_wait_for_each_other_and_few_readers_are_kept(path: Path) -> None:
    with open_table(path, range(3), readers=2) as file:
        streams = [file.stream("SELECT * FROM t", chunk=1) for _ in range(30)]
        assert [next(stream) for stream in streams] == [[(1, 0)]] * 30
        del streams
        assert len(file._readers.idle) <= 2
        gc.collect()
        assert len(file._connections) <= 3


def test_readers_of_threads_that_ended_are_used_again(file: File) -> None:
    for _ in range(20):
        at_once(lambda: file.read("SELECT 1"))
    assert len(file._connections) <= 2
