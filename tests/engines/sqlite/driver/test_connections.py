"""What is accepted as a store, and how its connections are set."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tablemapper.engines.sqlite.driver import connections
from tablemapper.engines.sqlite.file.database import File
from tablemapper.engines.sqlite.file.opening import open_file
from tablemapper.errors import CorruptStore, NotAStore, StoreError, StoreReadOnly

from .... import sqlite_vfs  # noqa: F401  registers the file layers
from ....forks import in_child
from ....sql import run_sql
from ..table import Clock, beside, checkpoint, insert, open_table


def test_a_new_file_is_private_and_leaves_nothing_beside_it_once_closed(path: Path) -> None:
    before = os.umask(0)
    try:
        file = open_table(path)
        assert beside(path) == ["store.db-shm", "store.db-turn", "store.db-wal"]
        for name in os.listdir(path.parent):
            assert stat.S_IMODE(os.stat(path.parent / name).st_mode) == 0o600
        file.close()
    finally:
        os.umask(before)
    assert beside(path) == []


def test_what_was_written_is_there_after_reopening_and_the_store_keeps_its_name(path: Path) -> None:
    with open_table(path) as file:
        file.write(insert("x"))
        name = file.store_id()
    with open_file(path, create=False) as file:
        assert file.read("SELECT v FROM t") == [("x",)]
        assert file.get("SELECT v FROM t WHERE k = 9") is None
        assert file.store_id() == name
        assert len(name) == 32


def test_an_empty_file_counts_as_new(path: Path) -> None:
    path.touch()
    with pytest.raises(NotAStore, match="is empty; name the file of a store"):
        open_file(path, create=False)
    open_table(path).close()
    open_file(path, create=False).close()


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "another database": (
        lambda p: run_sql(p, "CREATE TABLE t (a)"),
        "is an SQLite database, but not a tablemapper store",
    ),
    "another database with a log": (
        lambda p: run_sql(p, "PRAGMA journal_mode = WAL", "CREATE TABLE t (a)"),
        "is an SQLite database, but not a tablemapper store",
    ),
    "an empty database": (
        lambda p: run_sql(p, "PRAGMA user_version = 3"),
        "is an SQLite database, but not a tablemapper store",
    ),
    "text": (lambda p: p.write_text("hello\n" * 500), "nor any SQLite database"),
    "a few bytes": (lambda p: p.write_bytes(b"SQLite format 3\x00 and"), "nor any SQLite database"),
    "another format": (
        lambda p: run_sql(p, "PRAGMA application_id = 0x746d6170", "PRAGMA user_version = 3", "CREATE TABLE t (a)"),
        "has format 3, this tablemapper reads format 1; .* upgrade tablemapper",
    ),
    "no format": (
        lambda p: run_sql(p, "PRAGMA application_id = 0x746d6170", "CREATE TABLE t (a)"),
        "has format 0, this tablemapper reads format 1; .* upgrade tablemapper",
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_file_of_someone_else_is_refused_and_not_touched(path: Path, what: str) -> None:
    make, message = FOREIGN[what]
    make(path)
    before, times = path.read_bytes(), os.stat(path).st_mtime_ns
    with pytest.raises(NotAStore, match=message):
        open_file(path)
    assert path.read_bytes() == before
    assert os.stat(path).st_mtime_ns == times
    assert beside(path) == []


def test_a_store_whose_catalogue_is_gone_is_damaged(path: Path) -> None:
    run_sql(path, "PRAGMA application_id = 0x746d6170", "PRAGMA user_version = 1", "CREATE TABLE t (a)")
    before = path.read_bytes()
    with pytest.raises(CorruptStore, match="tablemapper_state is missing"):
        open_file(path)
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
    with open_table(path) as file:
        assert file.integrity() == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is not a path of a store"), ("a\x00b", "contains U\\+0000"), (b"bytes", "as text"),
        (".", "is a directory"), ("missing/store.db", "its directory does not exist"),
        ("plain/store.db", "its directory is a file"), ("link", "is a symbolic link"),
        ("pipe", "is not a regular file"),
    ],
)  # fmt: skip
def test_a_path_that_can_not_be_a_store_is_refused(
    tmp_path: Path, name: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").touch()
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match=message):
        open_file(name)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe", "plain"]


def test_a_directory_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with open_file(tmp_path / "link" / "store.db") as file:
        assert file.path == str(tmp_path / "real" / "store.db")


def test_a_missing_file_is_not_made_unless_asked(path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist; name the file of a store"):
        open_file(path, create=False)
    assert not path.exists()


@pytest.mark.parametrize("wrong", [{"durability": "none"}, {"page_size": 1000}, {"page_size": 256}])
def test_a_wrong_option_is_refused(path: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        open_file(path, **wrong)
    assert not path.exists()


def test_an_sqlite_that_can_corrupt_a_log_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "sqlite_version", lambda: 3_051_002)
    with pytest.raises(StoreError, match="3.51.3 or later is needed"):
        open_file(path)
    assert not path.exists()


def test_a_store_on_a_disk_that_can_not_be_written_is_read_only(path: Path) -> None:
    open_file(path).close()
    before = path.read_bytes()
    with pytest.raises(StoreReadOnly, match="check the permissions"):
        open_file(path, vfs="readonly")
    assert path.read_bytes() == before


def test_the_permissions_of_file_and_directory_are_respected() -> None:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else "/tmp"))  # which nobody may reach
    try:
        os.chmod(folder, 0o755)
        open_file(folder / "store.db").close()
        os.chmod(folder / "store.db", 0o644)

        def as_nobody(path: Path) -> str:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            else:
                os.chmod(folder / "store.db", 0o444)
                os.chmod(folder, 0o555)
            return str(open_file(path))

        assert in_child(lambda: as_nobody(folder / "store.db")) == "StoreReadOnly"
        assert in_child(lambda: as_nobody(folder / "new.db")) == "StoreReadOnly"
        os.chmod(folder, 0o755)
        assert os.listdir(folder) == ["store.db"]
    finally:
        shutil.rmtree(folder)


# A log that is not the file's


def copy(path: Path, to: Path, *ends: str) -> None:
    for end in ends:
        shutil.copyfile(f"{path}{end}", f"{to}{end}")


def later_and_older(path: Path) -> tuple[Path, Path]:
    """Return two copies of a store with their logs, as kills would leave them: the first was written for longer."""
    later, older = path.with_name("later.db"), path.with_name("older.db")
    clock = Clock()
    with open_table(path, clock=clock) as file:
        for copied in (older, later):
            for _ in range(3):
                clock.now += 10_000_000
                file.write(insert("x"))
            checkpoint(file)
            clock.now += 10_000_000
            file.write(insert("y"))
            copy(path, copied, "", "-wal")
    return later, older


def test_the_log_of_a_file_that_was_not_closed_is_used(path: Path) -> None:
    for copied, rows in zip(later_and_older(path), (8, 4), strict=True):
        with open_file(copied) as file:
            assert file.get("SELECT count(*) FROM t") == (rows,)


@pytest.mark.parametrize("of", ["an older copy", "another store"])
def test_the_log_of_another_file_is_refused_and_nothing_is_touched(path: Path, tmp_path: Path, of: str) -> None:
    later, other = later_and_older(path)
    if of == "another store":
        (tmp_path / "other").mkdir()
        other, _ = later_and_older(tmp_path / "other" / "store.db")
    copy(other, later, "-wal")
    before = later.read_bytes(), Path(f"{later}-wal").read_bytes()
    for _ in range(2):
        with pytest.raises(CorruptStore, match="is the log of another file, or of an older copy of this one"):
            open_file(later)
        assert (later.read_bytes(), Path(f"{later}-wal").read_bytes()) == before


def test_a_store_that_was_killed_while_it_gave_up_its_reserved_time_opens(path: Path) -> None:
    clock, copied = Clock(), path.with_name("copied.db")
    with open_table(path, clock=clock) as file:
        for _ in range(30):
            clock.now += 1
            file.write(insert("x"))
        checkpoint(file)
        assert file._connection is not None
        file._writes.hand_back(file._connection)
        copy(path, copied, "", "-wal")
    with open_file(copied) as file:
        assert file.get("SELECT count(*) FROM t") == (30,)


# A file that goes


def take_away(path: Path, how: str) -> None:
    if how == "removed":
        os.unlink(path)
    elif how == "replaced":
        new = path.with_name("new.db")
        open_file(new).close()
        os.replace(new, path)
    else:
        os.rename(path, path.with_name("moved.db"))


GONE = "was removed or replaced while it was open, and writes since then are lost"


@pytest.mark.parametrize("durability", ["full", "relaxed"])
@pytest.mark.parametrize("how", ["removed", "replaced", "moved"])
def test_a_file_that_is_removed_or_replaced_while_it_is_open_is_noticed(path: Path, how: str, durability: Any) -> None:
    clock = Clock(0)
    with open_table(path, durability=durability, readers=0, monotonic=clock) as file:
        file.write(insert("x"))
        assert file.read("SELECT v FROM t") == [("x",)]
        take_away(path, how)
        with pytest.raises(StoreError, match=GONE):
            file.read("SELECT v FROM t")
        clock.now += 1
        for _ in range(3):
            with pytest.raises(StoreError, match=GONE):
                file.write(insert("lost"))
        file._writes.disconnect()
        with pytest.raises(StoreError, match=GONE):
            file.write(insert("lost"))


@pytest.mark.parametrize("how", ["removed", "replaced", "moved"])
def test_a_write_that_was_lost_is_noticed_at_the_latest_when_the_file_is_closed(path: Path, how: str) -> None:
    clock = Clock(0)
    file = open_table(path, monotonic=clock)
    clock.now += 1
    file.write(insert("x"))
    take_away(path, how)
    file.write(insert("lost"))
    with pytest.raises(StoreError, match=GONE):
        file.close()
    assert file.closed
    file.close()


@pytest.mark.parametrize("how", ["removed", "replaced", "moved"])
def test_a_file_that_was_not_written_to_may_go(path: Path, how: str) -> None:
    with open_file(path) as file:
        file.read("SELECT 1")
        take_away(path, how)


WRITER = {
    "journal_mode": "wal", "synchronous": 2, "automatic_index": 0, "cell_size_check": 1, "temp_store": 2,
    "cache_size": -32768, "wal_autocheckpoint": 4000, "journal_size_limit": 64 << 20, "page_size": 4096,
    "query_only": 0, "trusted_schema": 0, "application_id": 0x746D6170, "user_version": 1, "encoding": "UTF-8",
}  # fmt: skip
READER = {
    "journal_mode": "wal", "automatic_index": 0, "cell_size_check": 1, "temp_store": 1, "cache_size": -8192,
    "query_only": 1, "trusted_schema": 0,
}  # fmt: skip
CONFIG = {
    "DEFENSIVE": 1, "TRUSTED_SCHEMA": 0, "ENABLE_TRIGGER": 0, "ENABLE_VIEW": 0, "DQS_DML": 0, "DQS_DDL": 0,
    "ENABLE_LOAD_EXTENSION": 0, "ENABLE_QPSG": 1,
}  # fmt: skip
LIMITS = {
    "ATTACHED": 0, "LENGTH": 8 << 20, "SQL_LENGTH": 1_000_000, "EXPR_DEPTH": 1_000, "LIKE_PATTERN_LENGTH": 50_000,
    "TRIGGER_DEPTH": 1,
}  # fmt: skip


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
    with open_file(path, durability="relaxed", page_size=16384) as file:
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
    open_table(path).close()
    run_sql(path, "CREATE TRIGGER evil AFTER INSERT ON t BEGIN DELETE FROM t; END")
    with open_file(path) as file:
        file.write(insert(1))
        assert file.read("SELECT v FROM t") == [(1,)]
        assert file.read("SELECT name FROM sqlite_schema WHERE type = 'trigger'") == [("evil",)]
