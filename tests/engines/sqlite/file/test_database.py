"""One open database file: what threads and processes see of it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tablemapper.engines.sqlite.file.database import File
from tablemapper.engines.sqlite.file.opening import open_file
from tablemapper.engines.sqlite.file.writer import Writer
from tablemapper.errors import StoreClosed, StoreError

from .... import sqlite_vfs  # noqa: F401  registers the file layers
from ....forks import in_child
from ..table import beside, insert, open_table

SEEK = "SELECT v FROM t WHERE k = ?"


def test_a_thread_that_arrive_seeks_with_the_connection_that_writes(file: File) -> None:
    file.write(insert("x"))
    assert file.seek(SEEK, (1,)) == ("x",)
    assert file.seek(SEEK, (2,)) is None
    assert len(file._connections) == 1


def test_once_there_are_several_threads_a_seek_waits_for_no_writer(file: File) -> None:
    inside, leave = threading.Event(), threading.Event()

    def write(w: Writer) -> None:
        insert("x")(w)
        inside.set()
        leave.wait(60)

    thread = threading.Thread(target=file.write, args=(write,))
    thread.start()
    assert inside.wait(60)
    assert file.seek(SEEK, (1,)) is None
    leave.set()
    thread.join()
    assert file.seek(SEEK, (1,)) == ("x",)
    assert len(file._connections) == 2
    assert not file._arrive()


def test_a_seek_within_a_write_or_after_one_that_was_left_open_sees_what_was_committed(file: File) -> None:
    def write(w: Writer) -> object:
        insert("x")(w)
        return file.seek(SEEK, (1,))

    assert file.write(write) is None
    connection = file._connection
    assert connection is not None
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM t")
    assert file.seek(SEEK, (1,)) == ("x",)


def test_what_an_interrupt_runs_within_a_seek_may_write_and_close(file: File) -> None:
    """A handler of a signal, or a finaliser."""
    file.write(insert("x"))

    def meanwhile(work: Callable[[], object]) -> Callable[[apsw.Cursor], Any]:
        def fetch(cursor: apsw.Cursor) -> Any:
            work()
            return cursor.fetchone()

        return fetch

    def fails(w: Writer) -> None:
        insert("no")(w)
        raise RuntimeError("undone")

    def write_and_fail() -> None:
        with pytest.raises(RuntimeError):
            file.write(fails)

    assert file.seek(SEEK, (1,), meanwhile(lambda: file.write(insert("y")))) == ("x",)
    assert file.seek(SEEK, (2,), meanwhile(lambda: file.seek(SEEK, (2,)))) == ("y",)
    assert file.seek(SEEK, (2,), meanwhile(write_and_fail)) == ("y",)
    assert file.read("SELECT v FROM t") == [("x",), ("y",)]
    with pytest.raises(StoreClosed):
        file.seek(SEEK, (2,), meanwhile(file.close))


def test_a_seek_that_fails_on_one_connection_is_tried_on_another_and_the_first_is_given_up(file: File) -> None:
    file.write(insert("x"))
    writer = file._connection

    def fetch(cursor: apsw.Cursor) -> Any:
        if cursor.connection is writer:
            raise apsw.CorruptError("a page of its cache")
        return cursor.fetchone()

    assert file.seek(SEEK, (1,), fetch) == ("x",)
    assert file._connection is None
    file.write(insert("y"))
    assert file.seek(SEEK, (2,)) == ("y",)


def test_a_wrong_seek_spoils_nothing(file: File) -> None:
    with pytest.raises(StoreError, match="no such table"):
        file.seek("SELECT v FROM missing")
    file.write(insert("x"))
    assert file.seek(SEEK, (1,)) == ("x",)


def test_eight_threads_read_and_write_and_see_whole_transactions_only(path: Path) -> None:
    failures: list[BaseException] = []
    with open_file(path, durability="relaxed", readers=2) as file:
        file.write(lambda w: [w.execute("CREATE TABLE a (n)"), w.execute("INSERT INTO a VALUES (0), (0)")])
        stop = threading.Event()
        stamps: list[int] = []

        def write() -> None:
            try:
                for _ in range(150):

                    def apply(w: Writer) -> None:
                        w.execute("UPDATE a SET n = n + 1 WHERE rowid = 1")
                        w.execute("UPDATE a SET n = n + 1 WHERE rowid = 2")
                        stamps.append(w.timestamp)

                    file.write(apply)
            except BaseException as error:
                failures.append(error)

        def read() -> None:
            try:
                while not stop.is_set():
                    with file.snapshot() as snapshot:
                        assert snapshot.get("SELECT n FROM a WHERE rowid = 1") == snapshot.get(
                            "SELECT n FROM a WHERE rowid = 2"
                        )
                    assert len(set(file.read("SELECT n FROM a"))) == 1
                    assert len({row for chunk in file.stream("SELECT n FROM a", chunk=1) for row in chunk}) == 1
                    file.get("SELECT n FROM a")
            except BaseException as error:
                failures.append(error)

        writers = [threading.Thread(target=write) for _ in range(4)]
        readers = [threading.Thread(target=read) for _ in range(4)]
        for thread in writers + readers:
            thread.start()
        for thread in writers:
            thread.join()
        stop.set()
        for thread in readers:
            thread.join()
        assert not failures
        assert file.read("SELECT n FROM a") == [(600,), (600,)]
        assert stamps == sorted(set(stamps))
        assert len(file._readers.idle) <= 2


@pytest.mark.usefixtures("little_garbage")
def test_a_forked_child_can_use_nothing_of_the_parent_and_does_it_no_harm(path: Path, file: File) -> None:
    file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [(i,) for i in range(10)]))
    stream = file.stream("SELECT v FROM t", chunk=1)
    next(stream)
    file.read("SELECT 1")
    assert file._readers.idle
    uses: list[Callable[[], object]] = [
        lambda: file.get("SELECT 1"), lambda: file.read("SELECT 1"), lambda: file.write(insert(1)),
        lambda: file.stream("SELECT 1"), lambda: next(stream), lambda: file.snapshot().__enter__(),
        lambda: file.compact(),
    ]  # fmt: skip
    for use in uses:
        assert in_child(use) == "StoreClosed"
    assert in_child(lambda: file.close()) == "None"
    assert in_child(lambda: gc.collect() < 0) == "False"
    assert f"{path.name}-turn" in beside(path), "the child removed the file of the turns"

    def own() -> int:
        with open_file(path) as mine:
            mine.write(insert("child"))
        return 0

    assert in_child(own) == "0"
    assert next(stream) == [(1,)]
    file.write(insert("parent"))
    assert file.read("SELECT v FROM t WHERE k > 10") == [("child",), ("parent",)]
    assert file.integrity() == []


@pytest.mark.usefixtures("little_garbage")
def test_a_forked_child_never_closes_what_is_the_parents(file: File) -> None:
    file.read("SELECT 1")
    connections_of_parent = [weakref.ref(connection) for connection in file._connections]
    assert len(connections_of_parent) == 2

    def forget() -> int:
        file.__dict__.clear()
        gc.collect()
        return sum(reference() is not None for reference in connections_of_parent)

    assert in_child(forget) == "2"


def test_a_fork_while_another_thread_writes_leaves_the_child_able_to_say_no(file: File) -> None:
    inside, leave = threading.Event(), threading.Event()

    def apply(w: Writer) -> None:
        inside.set()
        leave.wait(60)

    thread = threading.Thread(target=lambda: file.write(apply))
    thread.start()
    inside.wait(60)
    assert in_child(lambda: file.write(insert(1))) == "StoreClosed"
    leave.set()
    thread.join()


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_closed_file_refuses_everything(path: Path, where: str) -> None:
    file = open_table(path if where == "file" else ":memory:", range(10))
    stream = file.stream("SELECT v FROM t", chunk=1)
    file.close()
    file.close()
    assert file.closed
    uses: list[Callable[[], object]] = [
        lambda: file.get("SELECT 1"), lambda: file.read("SELECT 1"), lambda: file.write(insert(1)),
        lambda: file.stream("SELECT 1"), lambda: file.snapshot().__enter__(),
        lambda: file.backup(path.with_name("copy.db")), lambda: file.integrity(),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(StoreClosed, match="was closed; open it again"):
            use()
    if where == "file":
        with pytest.raises(StoreClosed):
            next(stream)
        assert beside(path) == []


def test_damage_is_listed(path: Path) -> None:
    with open_table(path) as file:
        file.write(lambda w: w.execute("CREATE INDEX i ON t (v)"))
        file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [("x" * 100 + str(i),) for i in range(500)]))
        assert file.integrity() == []
        (root,) = file.get("SELECT rootpage FROM sqlite_schema WHERE name = 'i'") or (0,)
    data = bytearray(path.read_bytes())
    data[(root - 1) * 4096 : root * 4096] = bytes(4096)
    path.write_bytes(data)
    with open_file(path) as file:
        assert file.integrity()


@pytest.mark.usefixtures("little_garbage")
def test_a_file_that_is_dropped_without_being_closed_leaves_nothing(path: Path) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        file = open_file(path)
        file.write(lambda w: w.execute("CREATE TABLE IF NOT EXISTS t (v)"))
        file.write(insert(1))
        del file
        gc.collect()
        assert beside(path) == []
        assert len(os.listdir("/proc/self/fd")) == before
    with open_file(path) as file:
        assert file.get("SELECT count(*) FROM t") == (5,)


def test_a_program_that_ends_with_an_open_file_says_nothing(path: Path) -> None:
    program = (
        "import sys, threading\n"
        "from tablemapper.engines.sqlite.file.opening import open_file\n"
        "file = open_file(sys.argv[1])\n"
        "file.write(lambda w: w.execute('CREATE TABLE t (v)'))\n"
        "stream = file.stream('SELECT 1 UNION SELECT 2', chunk=1)\n"
        "next(stream)\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    with open_file(path) as file:
        assert file.integrity() == []
