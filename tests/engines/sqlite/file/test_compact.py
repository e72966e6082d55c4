"""A process that has a file alone writes it anew; the file is whole whatever comes."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from tablemapper.engines.sqlite.driver import connections
from tablemapper.engines.sqlite.file import database as file_module
from tablemapper.engines.sqlite.file.database import File
from tablemapper.engines.sqlite.file.opening import open_file
from tablemapper.errors import StoreError, StoreLocked

from ....forks import in_child
from ....sqlite_vfs import Attempt, die, every_call
from ..table import beside, insert, open_table

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # from the failing layer

OPERATIONS = ["xWrite", "xSync", "xRead", "xTruncate", "xOpen", "xDelete", "xFileSize", "xLock"]
ROWS = [(n, f"{n}" * 40) for n in range(0, 400, 8)]


def fill(path: Path) -> None:
    """Leave a file with much free space."""
    with open_table(path, durability="relaxed") as file:
        file.write(lambda w: w.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"{n}" * 40) for n in range(400)]))
        file.write(lambda w: w.execute("DELETE FROM t WHERE k % 8") and None)


def rows(path: Path) -> list[Any]:
    with open_file(path, create=False) as file:
        assert file.integrity() == []
        return file.read("SELECT k, v FROM t")


def test_the_space_of_what_was_deleted_is_given_back(path: Path) -> None:
    fill(path)
    before = path.stat().st_size
    with open_file(path) as file:
        last = file.write(insert("x"))
        file.compact()
        assert path.stat().st_size < before / 2
        assert file.read("SELECT k, v FROM t WHERE v <> 'x'") == ROWS
        assert file.write(insert("y")) > last
        assert file.seek("SELECT count(*) FROM t") == (len(ROWS) + 2,)
        file.compact()
    assert beside(path) == []
    assert len(rows(path)) == len(ROWS) + 2


def test_a_file_that_another_process_has_open_is_left_as_it_is(path: Path) -> None:
    fill(path)
    with open_file(path) as file:

        def other() -> None:
            with open_file(path) as mine:
                mine.compact()

        before = path.stat().st_size
        assert in_child(other) == "StoreLocked"
        with open_file(path) as mine, pytest.raises(StoreLocked, match="is open"):
            mine.compact()
        assert path.stat().st_size == before
        file.write(insert("x"))
        file.compact()
        assert path.stat().st_size < before


def test_a_loop_that_reads_keeps_its_state(path: Path) -> None:
    fill(path)
    with open_file(path) as file:
        stream = file.stream("SELECT k, v FROM t", chunk=10)
        first = next(stream)
        with pytest.raises(StoreLocked):
            file.compact()
        assert [*first, *(row for chunk in stream for row in chunk)] == ROWS
        file.compact()


def test_threads_that_write_wait_for_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path)
    monkeypatch.setattr(connections, "_STEPS", 10)
    with open_file(path) as file:
        writer = threading.Thread(target=lambda: file.write(insert("meanwhile")))
        started: list[int] = []

        def step() -> None:
            if not started:
                started.append(1)
                writer.start()

        file.compact(step)
        writer.join()
        assert started
        assert file.get("SELECT count(*) FROM t") == (len(ROWS) + 1,)


@pytest.mark.parametrize("error", [KeyError("enough"), OSError(28, "enough")])
def test_what_is_raised_meanwhile_ends_the_compaction(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fill(path)
    monkeypatch.setattr(connections, "_STEPS", 10)
    before = path.stat().st_size
    with open_file(path) as file:

        def stop() -> None:
            raise error

        with pytest.raises(type(error), match="enough"):
            file.compact(stop)
        file.write(insert("x"))
        assert path.stat().st_size >= before
    assert len(rows(path)) == len(ROWS) + 1


def test_what_the_system_refuses_meanwhile_is_an_error_of_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path)

    def refused(*_: object) -> None:
        raise OSError(errno.EIO, "gone")  # as a layer for files that is written in Python does

    with open_file(path) as file:
        with monkeypatch.context() as patch:
            patch.setattr(file_module, "vacuum", refused)
            with pytest.raises(StoreError, match="the operating system could not read or write it"):
                file.compact()
        file.write(insert("x"))
    assert len(rows(path)) == len(ROWS) + 1


def test_a_store_in_memory_is_compacted_too() -> None:
    with open_table(":memory:") as file:
        file.write(lambda w: w.executemany("INSERT INTO t VALUES (?, ?)", ROWS))
        file.write(lambda w: w.execute("DELETE FROM t WHERE k > 100") and None)
        pages = file.get("PRAGMA page_count")
        file.compact()
        assert pages is not None
        assert (file.get("PRAGMA page_count") or pages) < pages


def test_a_file_that_is_closed_is_not_compacted(file: File) -> None:
    file.close()
    with pytest.raises(StoreError, match="was closed"):
        file.compact()


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("op", OPERATIONS)
def test_a_disk_that_fails_at_any_call_leaves_all_rows(path: Path, op: str, sticky: bool) -> None:
    for attempt in every_call(op, sticky=sticky):
        fill(place := path.with_name(f"{attempt.n}.db"))
        file = open_file(place, vfs="faulty")
        with attempt:
            file.compact()
        assert file.read("SELECT k, v FROM t") == ROWS
        file.close()
        assert rows(place) == ROWS


@pytest.mark.parametrize("op", ["xWrite", "xSync", "xTruncate", "xDelete"])
def test_a_process_that_is_killed_at_any_call_leaves_all_rows(path: Path, op: str, *, full_size: bool) -> None:
    for attempt in every_call(op, 1 if full_size else 4, error=die):
        fill(place := path.with_name(f"{attempt.n}.db"))

        def work(attempt: Attempt = attempt, place: Path = place) -> int:
            file = open_file(place, vfs="faulty")
            with attempt:
                file.compact()
            return attempt.calls

        calls = in_child(work)
        attempt.fired, attempt.calls = not calls, int(calls or 0)
        assert rows(place) == ROWS
    assert attempt.n > (1 if op in ("xWrite", "xSync") else 0)
