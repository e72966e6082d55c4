"""A copy while others write."""

from __future__ import annotations

import errno
import os
import signal
import stat
from pathlib import Path

import apsw
import pytest

from tablemapper.engines.sqlite.file import backup
from tablemapper.engines.sqlite.file.database import File
from tablemapper.engines.sqlite.file.opening import open_file
from tablemapper.errors import StoreError, StoreFull

from .... import sqlite_vfs  # noqa: F401  registers the file layers
from ....forks import in_child
from ..table import beside, checkpoint, insert, open_table


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o660, 0o664])
def test_what_lies_beside_a_file_and_its_copies_have_the_mode_of_the_file(path: Path, mode: int) -> None:
    open_file(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(mode)
    before = os.umask(0o077)
    try:
        with open_table(path) as file:
            file.write(insert(1))
            file.backup(path.with_name("copy.db"))
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["copy.db", "store.db", "store.db-shm", "store.db-turn", "store.db-wal"], mode)


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
    with open_file(copy) as other:
        assert other.get("SELECT count(*) FROM t") == (3_000,)
        assert other.store_id() == file.store_id()
        assert other.integrity() == []
        assert other.write(insert(1)) > 0
    assert checkpoint(file)


def test_a_disk_that_the_copy_fills_is_that_of_the_copy(
    path: Path, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object) -> None:
        raise apsw.FullError("database or disk is full")

    monkeypatch.setattr(backup, "copy_pages", fill)
    with pytest.raises(StoreFull, match=f'^"{path.parent}/far/copy.db": the disk is full'):
        (path.parent / "far").mkdir()
        file.backup(path.parent / "far" / "copy.db")
    assert os.listdir(path.parent / "far") == []


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
    assert part.endswith(backup.PART)
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
    assert checkpoint(file)


def test_what_a_killed_backup_left_is_swept_by_the_next_one(path: Path, file: File) -> None:
    file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [("x" * 4000,) for _ in range(3_000)]))

    def killed() -> None:
        with open_file(path) as mine:
            mine.backup(path.with_name("killed.db"), lambda done, total: os.kill(os.getpid(), signal.SIGKILL))

    in_child(killed)
    assert [name for name in beside(path) if name.endswith(backup.PART)]
    path.with_name("mine.part").write_text("of another program")
    seen: list[list[str]] = []

    def another(done: int, total: int) -> None:
        if not seen:
            file.backup(path.with_name("second.db"))
            seen.append([name for name in beside(path) if name.endswith(backup.PART)])

    file.backup(path.with_name("first.db"), another)
    assert [name.split(".")[0] for name in seen[0]] == ["first"], "one that is being written was swept"
    assert beside(path) == ["first.db", "mine.part", "second.db", "store.db-shm", "store.db-turn", "store.db-wal"]


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EWOULDBLOCK])
def test_where_files_can_not_be_locked_a_backup_is_made_all_the_same(
    path: Path, file: File, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    left = path.with_name(f"killed.db.1234{backup.PART}")
    left.touch()

    def fails(*_: object) -> None:
        raise OSError(error, "no locks")

    monkeypatch.setattr(backup.fcntl, "flock", fails)
    file.backup(path.with_name("copy.db"))
    assert left.exists()
    open_file(path.with_name("copy.db")).close()
