"""One open database file: what it accepts, how it is set, what threads and processes see of it."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablemapper.engines.sqlite.file import connections
from tablemapper.engines.sqlite.file.file import File, Writer
from tablemapper.errors import (
    CorruptStore,
    InvalidEntity,
    NotAStore,
    SchemaMismatch,
    SnapshotTooOld,
    StoreClosed,
    StoreError,
    StoreLocked,
    StoreReadOnly,
)

from . import sqlite_vfs  # noqa: F401  registers the file layers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def file(path: Path) -> Iterator[File]:
    with File.open(path) as file:
        file.write(create_table)
        yield file


def create_table(w: Writer) -> None:
    w.execute("CREATE TABLE t (k INTEGER PRIMARY KEY AUTOINCREMENT, v)")


def insert(value: object) -> Callable[[Writer], int]:
    def apply(w: Writer) -> int:
        w.execute("INSERT INTO t (v) VALUES (?)", (value,))
        return w.timestamp

    return apply


def beside(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path.parent) if name != path.name)


def in_child(work: Callable[[], object]) -> str:
    """Run ``work`` in a forked process; return what it returned or raised."""
    end, pipe = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.close(end)
            try:
                said = str(work())
            except BaseException as error:
                said = type(error).__name__
            os.write(pipe, said.encode())
            gc.collect()
        finally:
            os._exit(0)
    os.close(pipe)
    with os.fdopen(end, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return said


# What is accepted


def test_a_new_file_is_private_and_leaves_nothing_beside_it_once_closed(path: Path) -> None:
    before = os.umask(0)
    try:
        file = File.open(path)
        file.write(create_table)
        assert beside(path) == ["store.db-shm", "store.db-turn", "store.db-wal"]
        for name in os.listdir(path.parent):
            assert stat.S_IMODE(os.stat(path.parent / name).st_mode) == 0o600
        file.close()
    finally:
        os.umask(before)
    assert beside(path) == []


def test_what_was_written_is_there_after_reopening_and_the_store_keeps_its_name(path: Path) -> None:
    with File.open(path) as file:
        file.write(create_table)
        file.write(insert("x"))
        name = file.store_id()
    with File.open(path, create=False) as file:
        assert file.read("SELECT v FROM t") == [("x",)]
        assert file.get("SELECT v FROM t WHERE k = 9") is None
        assert file.store_id() == name
        assert len(name) == 32


def test_an_empty_file_counts_as_new(path: Path) -> None:
    path.touch()
    with pytest.raises(NotAStore, match="is empty; pass create=True"):
        File.open(path, create=False)
    with File.open(path) as file:
        file.write(create_table)
    File.open(path, create=False).close()


def sqlite_file(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "another database": (
        lambda p: sqlite_file(p, "CREATE TABLE t (a)"),
        "is an SQLite database, but not a tablemapper store",
    ),
    "another database with a log": (
        lambda p: sqlite_file(p, "PRAGMA journal_mode = WAL", "CREATE TABLE t (a)"),
        "is an SQLite database, but not a tablemapper store",
    ),
    "an empty database": (
        lambda p: sqlite_file(p, "PRAGMA user_version = 3"),
        "is an SQLite database, but not a tablemapper store",
    ),
    "text": (lambda p: p.write_text("hello\n" * 500), "nor any SQLite database"),
    "a few bytes": (lambda p: p.write_bytes(b"SQLite format 3\x00 and"), "nor any SQLite database"),
    "a newer format": (
        lambda p: sqlite_file(p, "PRAGMA application_id = 0x746d6170", "PRAGMA user_version = 2", "CREATE TABLE t (a)"),
        "was written by a newer tablemapper",
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_file_of_someone_else_is_refused_and_not_touched(path: Path, what: str) -> None:
    make, message = FOREIGN[what]
    make(path)
    before, times = path.read_bytes(), os.stat(path).st_mtime_ns
    with pytest.raises(NotAStore, match=message):
        File.open(path)
    assert path.read_bytes() == before
    assert os.stat(path).st_mtime_ns == times
    assert beside(path) == []


def test_a_store_whose_catalogue_is_gone_is_damaged(path: Path) -> None:
    sqlite_file(path, "PRAGMA application_id = 0x746d6170", "PRAGMA user_version = 1", "CREATE TABLE t (a)")
    before = path.read_bytes()
    with pytest.raises(CorruptStore, match="tablemapper_state is missing"):
        File.open(path)
    assert path.read_bytes() == before
    assert beside(path) == []


def test_a_hot_journal_of_a_creation_that_was_cut_short_does_not_make_the_file_foreign(path: Path) -> None:
    path.write_bytes(bytes(4096))
    Path(f"{path}-journal").write_bytes(bytes.fromhex("d9d505f920a163d7") + bytes(12) + bytes(8) + bytes(484))
    Path(f"{path}-journal").write_bytes(
        bytes.fromhex("d9d505f920a163d7")
        + bytes(4)
        + bytes(4)
        + bytes(4)
        + (512).to_bytes(4, "big")
        + (4096).to_bytes(4, "big")
        + bytes(484)
    )
    with File.open(path) as file:
        file.write(create_table)
        assert file.integrity() == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is no path of a store"),
        ("a\x00b", "holds U\\+0000"),
        (b"bytes", "as text"),
        (".", "is a directory"),
        ("missing/store.db", "its directory does not exist"),
        ("plain/store.db", "what should be its directory is a file"),
        ("link", "is a symbolic link"),
        ("pipe", "is no regular file"),
    ],
)
def test_a_path_that_can_not_be_a_store_is_refused(
    tmp_path: Path, name: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").touch()
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match=message):
        File.open(name)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe", "plain"]


def test_a_directory_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with File.open(tmp_path / "link" / "store.db") as file:
        assert file.path == str(tmp_path / "real" / "store.db")


def test_a_missing_file_is_not_made_unless_asked(path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist; pass create=True"):
        File.open(path, create=False)
    assert not path.exists()


@pytest.mark.parametrize("wrong", [{"durability": "none"}, {"page_size": 1000}, {"page_size": 256}])
def test_a_wrong_option_is_refused(path: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        File.open(path, **wrong)
    assert not path.exists()


def test_an_sqlite_that_can_corrupt_a_log_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "sqlite_version", lambda: 3_051_002)
    with pytest.raises(StoreError, match="3.51.3 or later is needed"):
        File.open(path)
    assert not path.exists()


def test_a_store_on_a_disk_that_can_not_be_written_is_read_only(path: Path) -> None:
    File.open(path).close()
    before = path.read_bytes()
    with pytest.raises(StoreReadOnly, match="check the permissions"):
        File.open(path, vfs="readonly")
    assert path.read_bytes() == before


def test_the_permissions_of_file_and_directory_are_respected() -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        os.chmod(folder, 0o755)
        File.open(folder / "store.db").close()
        os.chmod(folder / "store.db", 0o644)

        def as_nobody(path: Path) -> str:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            else:
                os.chmod(folder / "store.db", 0o444)
                os.chmod(folder, 0o555)
            return str(File.open(path))

        assert in_child(lambda: as_nobody(folder / "store.db")) == "StoreReadOnly"
        assert in_child(lambda: as_nobody(folder / "new.db")) == "StoreReadOnly"
        os.chmod(folder, 0o755)
        assert os.listdir(folder) == ["store.db"]
    finally:
        shutil.rmtree(folder)


# How it is set

WRITER = {
    "journal_mode": "wal",
    "synchronous": 2,
    "cell_size_check": 1,
    "temp_store": 2,
    "cache_size": -32768,
    "wal_autocheckpoint": 4000,
    "journal_size_limit": 64 << 20,
    "page_size": 4096,
    "query_only": 0,
    "trusted_schema": 0,
    "application_id": 0x746D6170,
    "user_version": 1,
    "encoding": "UTF-8",
}
READER = {
    "journal_mode": "wal",
    "cell_size_check": 1,
    "temp_store": 1,
    "cache_size": -8192,
    "query_only": 1,
    "trusted_schema": 0,
}
CONFIG = {
    "DEFENSIVE": 1,
    "TRUSTED_SCHEMA": 0,
    "ENABLE_TRIGGER": 0,
    "ENABLE_VIEW": 0,
    "DQS_DML": 0,
    "DQS_DDL": 0,
    "ENABLE_LOAD_EXTENSION": 0,
    "ENABLE_QPSG": 1,
}
LIMITS = {
    "ATTACHED": 0,
    "LENGTH": 8 << 20,
    "SQL_LENGTH": 1_000_000,
    "EXPR_DEPTH": 1_000,
    "LIKE_PATTERN_LENGTH": 50_000,
    "TRIGGER_DEPTH": 1,
}


def check_settings(connection: apsw.Connection, pragmas: dict[str, object]) -> None:
    for name, value in pragmas.items():
        assert connection.execute(f"PRAGMA {name}").fetchone() == (value,), name
    # The library may be built without memory mapping, and then says nothing.
    assert connection.execute("PRAGMA mmap_size").fetchone() in ((0,), None)
    for name, value in CONFIG.items():
        assert connection.config(getattr(apsw, f"SQLITE_DBCONFIG_{name}"), -1) == value, name
    for name, value in LIMITS.items():
        assert connection.limit(getattr(apsw, f"SQLITE_LIMIT_{name}")) == value, name


def test_every_setting_reads_back_on_the_connection_that_writes(file: File) -> None:
    assert file._connection is not None
    check_settings(file._connection, WRITER)
    assert file._connection.transaction_mode == "IMMEDIATE"
    assert file._connection.cache_stats()["size"] == 400
    file._writes.disconnect()
    file.write(insert(1))
    assert file._connection is not None
    check_settings(file._connection, WRITER)


def test_every_setting_reads_back_on_the_connections_that_read(file: File) -> None:
    reader = file.take()
    check_settings(reader, READER)
    assert reader.readonly("main")
    file.give(reader)
    with pytest.raises(StoreReadOnly):
        file.read("DELETE FROM t")


def test_relaxed_durability_is_normal_and_the_page_size_is_that_of_the_new_file(path: Path) -> None:
    with File.open(path, durability="relaxed", page_size=16384) as file:
        assert file._connection is not None
        check_settings(file._connection, WRITER | {"synchronous": 1, "page_size": 16384})


@pytest.mark.parametrize("which", ["writer", "reader"])
def test_a_query_that_ran_before_is_not_compiled_anew_for_other_values(file: File, which: str) -> None:
    sql = "SELECT v FROM t WHERE k > ? ORDER BY k LIMIT ?"
    connection = file._connection if which == "writer" else file.take()
    assert connection is not None
    compiled: list[int] = []  # what the authorizer is asked about while a statement is compiled
    connection.authorizer = lambda *what: compiled.append(1) or apsw.SQLITE_OK
    connection.execute(sql, (0, 5)).fetchall()
    assert compiled
    compiled.clear()
    for at in range(20):
        connection.execute(sql, (at, at + 1)).fetchall()
    assert not compiled


HOSTILE = [
    "ATTACH '/etc/passwd' AS other",
    "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = 'x'",
    "SELECT load_extension('x')",
    'SELECT v FROM t WHERE "nosuch" = 1',
]


@pytest.mark.parametrize("statement", HOSTILE)
def test_what_only_an_attack_needs_is_refused(file: File, statement: str) -> None:
    with pytest.raises(StoreError):
        file.write(lambda w: w.execute(statement))
    with pytest.raises(StoreError):
        file.read(statement)


def test_a_trigger_that_someone_put_into_the_file_does_not_run(path: Path) -> None:
    with File.open(path) as file:
        file.write(create_table)
    sqlite_file(path, "CREATE TRIGGER evil AFTER INSERT ON t BEGIN DELETE FROM t; END")
    with File.open(path) as file:
        file.write(insert(1))
        assert file.read("SELECT v FROM t") == [(1,)]
        assert [row[:2] for row in file.schema() if row[0] == "trigger"] == [("trigger", "evil")]


# Writing


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


# Timestamps


class Clock:
    def __init__(self, now: int = 10**15) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1]),
        st.sampled_from(["write", "write", "write", "many", "fail", "close", "crash"]),
        st.sampled_from([0, 0, 1, 50, 2_000, 3_000_000, -1, -5_000_000, -3_600_000_000]),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_timestamps_increase_strictly_over_objects_restarts_crashes_and_clocks(
    steps: list[tuple[int, str, int]],
) -> None:
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    path = f"{folder}/store.db"
    clocks = [Clock(), Clock()]
    owners = iter(range(1, 1_000))

    def open_file(which: int) -> File:
        return File.open(path, durability="relaxed", clock=clocks[which], owner=next(owners))

    files = [open_file(0), open_file(1)]
    files[0].write(create_table)
    given_out: list[int] = []
    latest = clocks[0].now

    def fail(w: Writer) -> None:
        raise KeyError

    try:
        for which, what, step in steps:
            clocks[which].now += step
            file = files[which]
            for _ in range(20 if what == "many" else 1):
                latest = max(latest, *(clock.now for clock in clocks))
                if what in ("write", "many"):
                    given_out.append(file.write(insert(None)))
                elif what == "fail":
                    with pytest.raises(KeyError):
                        file.write(fail)
                else:
                    if what == "close":
                        file.close()
                    else:  # its readers and its allowance are gone without a word
                        assert file._connection is not None
                        file._connection.close(True)
                        file._writes.connection = None
                    files[which] = open_file(which)
        assert given_out == sorted(set(given_out))
        assert all(stamp <= latest + 1_000_000 + 4 * 20 * len(steps) for stamp in given_out)
    finally:
        for file in files:
            file.close()
        shutil.rmtree(folder)


def test_writers_that_take_turns_push_time_no_further_than_they_use(path: Path) -> None:
    clock = Clock()
    with (
        File.open(path, clock=clock, durability="relaxed") as one,
        File.open(path, clock=clock, durability="relaxed") as two,
    ):
        one.write(create_table)
        for _ in range(800):
            for file in (one, two):
                for _ in range(3):
                    last = file.write(insert(None))
        assert last - clock.now <= 2 * 800 * 2 * 3


def test_a_single_writer_pays_no_statement_for_its_timestamps_after_a_while(file: File) -> None:
    statements: list[str] = []
    for _ in range(50):
        file.write(insert(None))
    assert file._connection is not None
    file._connection.exec_trace = lambda cursor, sql, args: statements.append(sql) or True
    for _ in range(50):
        file.write(insert(None))
    file._connection.exec_trace = None
    others = [sql for sql in statements if "tablemapper_state" in sql]
    assert len(others) <= 2


def test_closing_hands_back_what_was_allowed_and_not_used(path: Path) -> None:
    clock = Clock()
    with File.open(path, clock=clock) as file:
        file.write(create_table)
        for _ in range(20):
            clock.now += 1
            last = file.write(insert(None))
        (until,) = file.get("SELECT until FROM tablemapper_state") or (0,)
        assert until > last
    with File.open(path, clock=clock) as file:
        assert file.get("SELECT until FROM tablemapper_state") == (last,)
        assert file.write(insert(None)) == last + 1


def test_two_processes_never_give_out_the_same_time(path: Path, file: File) -> None:
    def work() -> int:
        with File.open(path, durability="relaxed") as mine:
            for _ in range(400):
                mine.write(lambda w: w.execute("INSERT INTO t (v) VALUES (?)", (w.timestamp,)))
        return 0

    children = []
    for _ in range(2):
        if (child := os.fork()) == 0:
            try:
                work()
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    stamps = [v for (v,) in file.read("SELECT v FROM t ORDER BY k")]
    assert len(stamps) == 800
    assert stamps == sorted(set(stamps))
    assert max(stamps) < time.time_ns() // 1000 + 2_000_000


# Reading


SEEK = "SELECT v FROM t WHERE k = ?"


def test_a_thread_that_arrive_seeks_with_the_connection_that_writes(file: File) -> None:
    file.write(insert("x"))
    assert file.seek(SEEK, (1,)) == ("x",)
    assert file.seek(SEEK, (2,)) is None
    assert len(file._known) == 1


def test_once_there_are_several_threads_a_seek_waits_for_no_writer(file: File) -> None:
    inside, leave = threading.Event(), threading.Event()

    def write(w: Writer) -> None:
        insert("x")(w)
        inside.set()
        leave.wait(10)

    thread = threading.Thread(target=file.write, args=(write,))
    thread.start()
    assert inside.wait(10)
    assert file.seek(SEEK, (1,)) is None
    leave.set()
    thread.join()
    assert file.seek(SEEK, (1,)) == ("x",)
    assert len(file._known) == 2
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

    assert file._read_here(meanwhile(lambda: file.write(insert("y"))), SEEK, (1,)) == ("x",)
    assert file._read_here(meanwhile(lambda: file.seek(SEEK, (2,))), SEEK, (2,)) == ("y",)
    assert file._read_here(meanwhile(write_and_fail), SEEK, (2,)) == ("y",)
    assert file.read("SELECT v FROM t") == [("x",), ("y",)]
    with pytest.raises(StoreClosed):
        file._read_here(meanwhile(file.close), SEEK, (2,))


def test_a_seek_that_fails_on_one_connection_is_tried_on_another_and_the_first_is_given_up(file: File) -> None:
    file.write(insert("x"))
    writer = file._connection

    def fetch(cursor: apsw.Cursor) -> Any:
        if cursor.connection is writer:
            raise apsw.CorruptError("a page of its cache")
        return cursor.fetchone()

    assert file._read_here(fetch, SEEK, (1,)) == ("x",)
    assert file._connection is None
    file.write(insert("y"))
    assert file.seek(SEEK, (2,)) == ("y",)


def test_a_wrong_seek_spoils_nothing(file: File) -> None:
    with pytest.raises(StoreError, match="no such table"):
        file.seek("SELECT v FROM missing")
    file.write(insert("x"))
    assert file.seek(SEEK, (1,)) == ("x",)


def test_a_stream_reads_one_state_in_chunks_and_gives_its_reader_back(file: File) -> None:
    file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [(i,) for i in range(10)]))
    chunks = []
    for chunk in file.stream("SELECT v FROM t ORDER BY k", chunk=4):
        file.write(insert("later"))
        chunks.append([v for (v,) in chunk])
    assert chunks == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert file.checkpoint()
    assert list(file.stream("SELECT 1 WHERE 0")) == []


def test_a_stream_that_is_left_lets_its_state_go(file: File) -> None:
    file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [(i,) for i in range(600)]))
    stream = file.stream("SELECT * FROM t")
    next(stream)
    file.write(insert(1))
    assert not file.checkpoint(), "the control: the stream holds its state"
    del stream
    assert file.checkpoint()
    closed: Any = file.stream("SELECT * FROM t")
    next(closed)
    file.write(insert(1))
    closed.close()
    assert list(closed) == []
    assert file.checkpoint()


def test_nested_loops_never_wait_for_each_other_and_few_readers_are_kept(path: Path) -> None:
    with File.open(path, readers=2) as file:
        file.write(create_table)
        file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [(i,) for i in range(3)]))
        streams = [file.stream("SELECT * FROM t", chunk=1) for _ in range(30)]
        assert [next(stream) for stream in streams] == [[(1, 0)]] * 30
        del streams
        assert len(file._idle) <= 2
        gc.collect()
        assert len(file._known) <= 3


def test_a_snapshot_reads_one_state_in_several_statements(file: File) -> None:
    with file.snapshot() as snapshot:
        assert snapshot.get("SELECT count(*) FROM t") == (0,)
        file.write(insert(1))
        assert snapshot.read("SELECT * FROM t") == []
        assert list(snapshot.stream("SELECT * FROM t")) == []
        assert snapshot.get("SELECT count(*) FROM t") == (0,)
    assert file.get("SELECT count(*) FROM t") == (1,)
    assert file.checkpoint()
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
    with File.open(path, monotonic=clock) as file:
        file.write(create_table)
        file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [(i,) for i in range(10)]))
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
        assert file.checkpoint()


def test_a_state_that_nobody_asks_for_any_more_is_let_go_by_a_write(path: Path) -> None:
    clock = Clock(0)
    with File.open(path, monotonic=clock) as file:
        file.write(create_table)
        file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [(i,) for i in range(10)]))
        stream = file.stream("SELECT v FROM t", chunk=1)
        next(stream)
        with file.snapshot() as snapshot:
            snapshot.get("SELECT 1 FROM t")
            file.write(insert(1))
            assert not file.checkpoint()
            clock.now = 301
            file.write(insert(1))
            assert file.checkpoint()
            clock.now = 10
            with pytest.raises(SnapshotTooOld):
                next(stream)
            with pytest.raises(SnapshotTooOld):
                snapshot.get("SELECT 1 FROM t")


# Threads, processes, the end


def test_eight_threads_read_and_write_and_see_whole_transactions_only(path: Path) -> None:
    failures: list[BaseException] = []
    with File.open(path, durability="relaxed", readers=2) as file:
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
        assert len(file._idle) <= 2


def test_a_forked_child_can_use_nothing_of_the_parent_and_does_it_no_harm(path: Path, file: File) -> None:
    file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [(i,) for i in range(10)]))
    stream = file.stream("SELECT v FROM t", chunk=1)
    next(stream)
    file.read("SELECT 1")
    assert file._idle
    uses: list[Callable[[], object]] = [
        lambda: file.get("SELECT 1"),
        lambda: file.read("SELECT 1"),
        lambda: file.write(insert(1)),
        lambda: file.stream("SELECT 1"),
        lambda: next(stream),
        lambda: file.snapshot().__enter__(),
        lambda: file.vacuum(),
        lambda: file.checkpoint(),
    ]
    for use in uses:
        assert in_child(use) == "StoreClosed"
    assert in_child(lambda: file.close()) == "None"

    def own() -> int:
        with File.open(path) as mine:
            mine.write(insert("child"))
        return 0

    assert in_child(own) == "0"
    assert next(stream) == [(1,)]
    file.write(insert("parent"))
    assert file.read("SELECT v FROM t WHERE k > 10") == [("child",), ("parent",)]
    assert file.integrity() == []


def test_a_forked_child_never_closes_what_is_the_parents(file: File) -> None:
    file.read("SELECT 1")
    connections_of_parent = [weakref.ref(connection) for connection in file._known]
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
        leave.wait(10)

    thread = threading.Thread(target=lambda: file.write(apply))
    thread.start()
    inside.wait(10)
    assert in_child(lambda: file.write(insert(1))) == "StoreClosed"
    leave.set()
    thread.join()


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_closed_file_refuses_everything(path: Path, where: str) -> None:
    file = File.open(path if where == "file" else ":memory:")
    file.write(create_table)
    file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [(i,) for i in range(10)]))
    stream = file.stream("SELECT v FROM t", chunk=1)
    file.close()
    file.close()
    assert file.closed
    uses: list[Callable[[], object]] = [
        lambda: file.get("SELECT 1"),
        lambda: file.read("SELECT 1"),
        lambda: file.write(insert(1)),
        lambda: file.stream("SELECT 1"),
        lambda: file.snapshot().__enter__(),
        lambda: file.backup(path.with_name("copy.db")),
        lambda: file.integrity(),
        lambda: file.vacuum(),
    ]
    for use in uses:
        with pytest.raises(StoreClosed, match="was closed; open it again"):
            use()
    if where == "file":
        with pytest.raises(StoreClosed):
            next(stream)
        assert beside(path) == []


def test_readers_of_threads_that_ended_are_used_again(file: File) -> None:
    for _ in range(20):
        thread = threading.Thread(target=lambda: file.read("SELECT 1"))
        thread.start()
        thread.join()
    assert len(file._known) <= 2


# The file as a whole


def test_a_backup_is_one_state_taken_while_others_write(path: Path, file: File) -> None:
    file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [("x" * 4000,) for _ in range(3_000)]))
    steps: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        steps.append((done, total))
        file.write(insert("meanwhile"))

    copy = path.with_name("copy.db")
    file.backup(copy, progress)
    assert len(steps) >= 3
    assert steps[-1][0] == steps[-1][1]
    assert stat.S_IMODE(os.stat(copy).st_mode) == 0o600
    assert sorted(os.listdir(path.parent)) == ["copy.db", "store.db", "store.db-shm", "store.db-turn", "store.db-wal"]
    with File.open(copy) as other:
        assert other.get("SELECT count(*) FROM t") == (3_000,)
        assert other.store_id() == file.store_id()
        assert other.integrity() == []
        assert other.write(insert(1)) > 0
    assert file.checkpoint()


def test_a_backup_has_its_name_only_once_it_is_on_the_disk(
    path: Path, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = path.with_name("copy.db")
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append((os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")), copy.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    file.backup(copy)
    (part, there), directory = synced
    assert part.startswith("copy.db.")
    assert part.endswith(".part")
    assert not there
    assert directory == (path.parent.name, True)


def test_a_backup_never_overwrites_and_a_failed_one_leaves_nothing(path: Path, file: File) -> None:
    copy = path.with_name("copy.db")
    copy.write_text("mine")
    with pytest.raises(StoreError, match="never overwrites"):
        file.backup(copy)
    assert copy.read_text() == "mine"
    copy.unlink()

    def stop(done: int, total: int) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        file.backup(copy, stop)
    with pytest.raises(StoreError):
        file.backup(path.with_name("missing") / "copy.db")
    assert sorted(os.listdir(path.parent)) == ["store.db", "store.db-shm", "store.db-turn", "store.db-wal"]
    file.write(insert(1))
    assert file.checkpoint()


def test_a_vacuum_makes_the_file_smaller_and_closes_the_door_again(path: Path, file: File) -> None:
    file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [("x" * 4000,) for _ in range(500)]))
    file.checkpoint()
    before = path.stat().st_size
    file.write(lambda w: w.execute("DELETE FROM t"))
    file.vacuum()
    file.checkpoint()
    assert path.stat().st_size < before / 10
    assert file._connection is not None
    assert file._connection.limit(apsw.SQLITE_LIMIT_ATTACHED) == 0
    file.write(insert(1))


def test_damage_is_listed(path: Path) -> None:
    with File.open(path) as file:
        file.write(create_table)
        file.write(lambda w: w.execute("CREATE INDEX i ON t (v)"))
        file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [("x" * 100 + str(i),) for i in range(500)]))
        assert file.integrity() == []
        (root,) = file.get("SELECT rootpage FROM sqlite_schema WHERE name = 'i'") or (0,)
    data = bytearray(path.read_bytes())
    data[(root - 1) * 4096 : root * 4096] = bytes(4096)
    path.write_bytes(data)
    with File.open(path) as file:
        assert file.integrity()


def test_the_schema_is_listed_as_it_was_written(file: File) -> None:
    assert ("table", "t", "t", "CREATE TABLE t (k INTEGER PRIMARY KEY AUTOINCREMENT, v)") in file.schema()


# In memory


def test_a_store_in_memory_does_the_same() -> None:
    with File.open(":memory:") as file:
        file.write(create_table)
        first = file.write(insert("a"))
        assert file.write(insert("b")) > first
        assert file.read("SELECT v FROM t") == [("a",), ("b",)]
        assert [len(chunk) for chunk in file.stream("SELECT v FROM t", chunk=1)] == [1, 1]
        with file.snapshot() as snapshot:
            assert snapshot.get("SELECT count(*) FROM t") == (2,)
            with pytest.raises(StoreError, match="a write within"):
                file.write(insert("c"))
        with pytest.raises(KeyError):
            file.write(lambda w: (insert("c")(w), {}["missing"]))
        assert file.write(lambda w: file.get("SELECT count(*) FROM t")) == (2,)
        with pytest.raises(StoreError, match="no such table"):
            file.read("SELECT * FROM missing")
        file.vacuum()
        assert file.integrity() == []
        file.write(insert("d"), generation=0)


def test_stores_in_memory_are_apart_and_can_be_saved(tmp_path: Path) -> None:
    with File.open(":memory:") as one, File.open(":memory:") as two:
        one.write(create_table)
        one.write(insert("saved"))
        assert len(two.schema()) == 1
        one.backup(tmp_path / "saved.db")
        with File.open(tmp_path / "saved.db", create=False) as saved:
            assert saved.read("SELECT v FROM t") == [("saved",)]


def test_threads_share_a_store_in_memory() -> None:
    with File.open(":memory:") as file:
        file.write(create_table)

        def work() -> None:
            for _ in range(100):
                file.write(insert(1))
                file.get("SELECT count(*) FROM t")
                with file.snapshot() as snapshot:
                    assert snapshot.get("SELECT count(*) FROM t") == snapshot.get("SELECT count(*) FROM t")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert file.get("SELECT count(*) FROM t") == (400,)
