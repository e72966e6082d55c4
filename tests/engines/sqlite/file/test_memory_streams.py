"""Reads of a store in memory that take more than one call: row by row, of one state, whatever is written meanwhile."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from tablemapper.engines.sqlite.file.database import File
from tablemapper.errors import StoreClosed, StoreError

from ..table import insert, open_table


@pytest.fixture
def file() -> Iterator[File]:
    with open_table(":memory:") as opened:
        for value in range(10):
            opened.write(insert(value))
        yield opened


ALL = "SELECT v FROM t ORDER BY v"


def values(chunks: Any) -> list[Any]:
    return [value for (value,) in chain.from_iterable(chunks)]


@pytest.mark.usefixtures("little_garbage")
def test_a_stream_reads_as_far_as_it_is_asked(file: File) -> None:
    seen: list[int] = []
    connection = file._writes.connection
    assert connection is not None
    connection.create_scalar_function("seen", lambda value: seen.append(value) or value)
    stream = file.stream("SELECT seen(v) FROM t ORDER BY rowid", chunk=2)
    assert next(stream) == [(0,), (1,)]
    assert len(seen) <= 3
    file.write(insert(10))
    assert seen == list(range(10))  # what was left was read before the write
    assert values(stream) == list(range(2, 10))
    abandoned = file.stream("SELECT seen(v) FROM t ORDER BY rowid", chunk=2)
    next(abandoned)
    del abandoned
    gc.collect()
    seen.clear()
    file.write(insert(11))
    assert seen == []


def test_a_stream_is_of_the_state_in_which_it_was_begun(file: File) -> None:
    untouched, begun = file.stream(ALL, chunk=3), file.stream(ALL, chunk=3)
    found = list(next(begun))
    file.write(lambda w: w.execute("DELETE FROM t WHERE v > 1"))
    later = file.stream(ALL, chunk=3)
    file.write(insert(20))
    assert values([found, *begun]) == values(untouched) == list(range(10))
    assert values(later) == [0, 1]


def test_several_statements_are_of_one_state(file: File) -> None:
    def twice(snapshot: Any) -> Iterator[Any]:
        for _ in range(2):
            yield from snapshot.stream(ALL, chunk=4)

    reading = file.in_one_state(twice)
    first = next(reading)
    file.write(lambda w: w.execute("DELETE FROM t"))
    assert values([first, *reading]) == [*range(10), *range(10)]
    assert values(file.in_one_state(twice)) == []


def test_a_write_that_fails_leaves_a_stream_as_it_was(file: File) -> None:
    stream = file.stream(ALL, chunk=3)
    next(stream)
    with pytest.raises(KeyError):
        file.write(lambda w: (insert(30)(w), {}["missing"]))
    assert values(stream) == list(range(3, 10))


def test_an_error_of_a_stream_is_told_to_who_reads_it_not_to_who_writes(file: File) -> None:
    connection = file._writes.connection
    assert connection is not None
    connection.create_scalar_function("fails", lambda value: value if value < 5 else 1 // 0)
    stream = file.stream("SELECT fails(v) FROM t ORDER BY rowid", chunk=2)
    assert next(stream) == [(0,), (1,)]
    file.write(insert(40))
    assert next(stream) == [(2,), (3,)]
    with pytest.raises(ZeroDivisionError):
        list(stream)
    with pytest.raises(StoreError, match="no such table"):
        list(file.stream("SELECT * FROM missing"))


def test_a_stream_within_a_write_and_within_a_snapshot(file: File) -> None:
    found: list[Any] = []

    def write(writer: Any) -> None:
        stream = file.stream(ALL, chunk=2)
        writer.execute("DELETE FROM t WHERE v > 4")
        found.append(values(stream))

    file.write(write)
    assert found == [list(range(10))]
    with file.snapshot() as snapshot:
        assert values(snapshot.stream(ALL, chunk=2)) == [0, 1, 2, 3, 4]


def test_a_stream_ends_with_its_file(file: File) -> None:
    stream = file.stream(ALL, chunk=2)
    next(stream)
    assert next(stream) == [(2,), (3,)]
    second = file.stream(ALL, chunk=2)
    next(second)
    file.close()
    with pytest.raises(StoreClosed):
        next(second)


def test_streams_of_several_threads_beside_writes(file: File) -> None:
    faults: list[Any] = []

    def read() -> None:
        for _ in range(30):
            found = values(file.stream(ALL, chunk=1))
            if found[:10] != list(range(10)) or found != sorted(found):
                faults.append(found)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for value in range(100, 200):
        file.write(insert(value))
    for thread in threads:
        thread.join()
    assert faults == []
