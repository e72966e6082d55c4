"""A backup takes the place of a store: whole or not at all, whatever fails, and whenever the process ends."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tablemapper.engines.sqlite.file import backup, restore
from tablemapper.engines.sqlite.file.opening import open_file, restore_file
from tablemapper.errors import CorruptStore, NotAStore, OutcomeUnknown, StoreError, StoreLocked

from ....forks import in_child
from ....sqlite_vfs import Attempt, die, every, every_call
from ..table import beside, checkpoint, insert, open_table

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # from the failing layer

OPERATIONS = ["xWrite", "xSync", "xRead", "xTruncate", "xOpen", "xDelete", "xFileSize", "xLock"]
SYSTEM = ["open", "fsync", "unlink", "link", "replace", "chown", "chmod", "stat", "lstat", "listdir", "close"]
"""What a restore calls of the operating system by itself."""
OLD, NEW = [("old",)] * 40, [("new",)] * 20


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A backup."""
    with open_table(tmp_path / "new.db") as file:
        file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", NEW))
        file.backup(tmp_path / "copy.db")
    return tmp_path / "copy.db"


def rows(path: Path) -> list[Any]:
    with open_file(path, create=False) as file:
        assert file.integrity() == []
        return file.read("SELECT v FROM t")


def old_store(place: Path) -> None:
    """Leave what a killed process leaves: commits that are in the log only, and the files beside."""

    def killed() -> None:
        file = open_table(place)
        checkpoint(file)
        file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", OLD[1:]))
        for _ in range(2):
            with file.snapshot():
                file.write(lambda w: w.bump_generation())
        file._writes.turns.take(float("inf"))
        file.write(insert("old"))
        os._exit(0)

    in_child(killed)
    assert beside(place) != []


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "live").mkdir()
    old_store(tmp_path / "live" / "store.db")
    return tmp_path / "live" / "store.db"


def test_a_restored_store_is_the_backup_and_goes_on_where_the_old_one_ended(copy: Path, place: Path) -> None:
    with open_file(place) as old, open_file(copy) as new:
        generation = max(old.generation(), new.generation())
        store = new.store_id()
        last = old.write(insert("old"))
    place.chmod(0o640)
    restore_file(copy, place, overwrite=True)
    assert beside(place) == []
    assert stat.S_IMODE(place.stat().st_mode) == 0o640
    with open_file(place) as file:
        assert file.read("SELECT v FROM t") == NEW
        assert file.store_id() == store
        assert file.generation() > generation
    with open_file(place, clock=lambda: 1) as file:
        assert file.write(insert(1)) > last, "a timestamp is never given out twice"
    assert beside(copy) == ["live", "new.db"], "nothing is put beside a backup"


def test_a_restore_to_where_nothing_is_makes_the_store(copy: Path, tmp_path: Path) -> None:
    restore_file(copy, tmp_path / "other.db")
    assert rows(tmp_path / "other.db") == NEW
    assert stat.S_IMODE((tmp_path / "other.db").stat().st_mode) == 0o600


def test_a_store_that_is_there_is_replaced_only_if_that_was_said(copy: Path, place: Path) -> None:
    with pytest.raises(StoreError, match="is there already; pass overwrite=True"):
        restore_file(copy, place)
    assert rows(place) == OLD


def test_a_log_without_its_file_is_not_removed_unsaid(copy: Path, place: Path) -> None:
    place.rename(place.with_name("moved.db"))
    with pytest.raises(StoreError, match="-wal.* is there already; pass overwrite=True"):
        restore_file(copy, place)
    restore_file(copy, place, overwrite=True)
    assert rows(place) == NEW


def test_an_open_store_is_not_replaced(copy: Path, place: Path) -> None:
    with open_file(place) as file:
        for _ in range(2):
            with pytest.raises(StoreLocked, match="is open"):
                restore_file(copy, place, overwrite=True)
        assert in_child(lambda: restore_file(copy, place, overwrite=True)) == "StoreLocked"
        file.write(insert("old"))
    assert rows(place) == [*OLD, ("old",)]
    assert beside(place) == []


def test_a_store_whose_turns_are_in_use_is_not_replaced(copy: Path, place: Path) -> None:
    with open_file(place) as file:
        file._writes.turns.take(float("inf"))
        file._writes.turns.give()
        file._writes.disconnect()  # as after a disk error
        file._readers.close()
        with pytest.raises(StoreLocked, match="is open"):
            restore_file(copy, place, overwrite=True)
        assert file.read("SELECT v FROM t") == OLD


def test_an_open_file_that_is_damaged_is_not_replaced(copy: Path, place: Path) -> None:
    with open_file(place) as file:
        with open(place, "r+b") as raw:
            raw.write(b"\0" * 4096)
            assert in_child(lambda: restore_file(copy, place, overwrite=True)) == "StoreLocked"
        assert not file.closed


@pytest.mark.parametrize("junk", [b"", b"x" * 5000, None])
def test_a_damaged_store_is_replaced(copy: Path, place: Path, junk: bytes | None) -> None:
    if junk is None:
        whole = bytearray(place.read_bytes())
        whole[100:] = b"\xff" * (len(whole) - 100)
        junk = bytes(whole)
    place.write_bytes(junk)
    restore_file(copy, place, overwrite=True)
    assert rows(place) == NEW
    assert beside(place) == []


def test_a_store_that_is_in_use_can_be_what_is_restored(tmp_path: Path, place: Path) -> None:
    with open_file(place) as file:
        restore_file(place, tmp_path / "other.db")
        file.write(insert("old"))
    assert rows(tmp_path / "other.db") == OLD


def test_what_is_no_backup_is_refused_and_nothing_is_touched(copy: Path, place: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a letter" * 100)
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(copy.read_bytes()[:4096] + b"\xff" * (copy.stat().st_size - 4096))
    cut = tmp_path / "cut.db"
    cut.write_bytes(copy.read_bytes()[:5000])
    page = tmp_path / "page.db"
    page.write_bytes(copy.read_bytes()[:-4096] + b"\xff" * 4096)

    def refuses(reads: Any) -> None:
        assert reads("SELECT count(*) FROM t") == [(20,)]
        raise CorruptStore("not this one")

    cases: list[tuple[Any, type[Exception], str]] = [
        (text, NotAStore, "not a tablemapper store"),
        (damaged, CorruptStore, '^the backup ".*damaged.db" is damaged; nothing was changed: take another one'),
        (cut, CorruptStore, '^the backup ".*cut.db" is damaged; nothing was changed: take another one'),
        (page, CorruptStore, '^the backup ".*page.db" is damaged; nothing was changed: take another one'),
        (tmp_path / "missing.db", StoreError, "does not exist"),
        (tmp_path, StoreError, "is a directory"),
        (place, StoreError, "is the backup itself"),
        (":memory:", StoreError, "needs a file"),
    ]
    for source, error, says in cases:
        with pytest.raises(error, match=says):
            restore_file(source, place, overwrite=True)
    with pytest.raises(CorruptStore, match="not this one"):
        restore_file(copy, place, overwrite=True, verify=refuses)
    assert rows(place) == OLD
    assert beside(place) == []


def test_a_place_that_is_no_file_is_refused(copy: Path, tmp_path: Path, place: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(place)
    for where, says in [
        (link, "not a regular file"),
        (tmp_path / "live", "not a regular file"),
        (tmp_path / "missing" / "x.db", "directory does not exist"),
        (":memory:", "needs a file"),
    ]:
        with pytest.raises(StoreError, match=says):
            restore_file(copy, where, overwrite=True)
    assert rows(place) == OLD


def test_a_file_that_appears_meanwhile_is_left_as_it_is(copy: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"

    def appears(reads: Any) -> None:
        other.write_text("mine")

    with pytest.raises(StoreError, match="has appeared in the meantime"):
        restore_file(copy, other, verify=appears)
    assert other.read_text() == "mine"


def test_a_backup_that_is_written_meanwhile_is_not_trusted(copy: Path, tmp_path: Path) -> None:
    real = restore.copy_pages

    def copy_and_write(source: Any, part: str, **options: Any) -> None:
        def run(reader: Any) -> None:
            with open_file(copy) as file:
                file.write(insert("meanwhile"))

        source(run)
        real(source, part, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restore, "copy_pages", copy_and_write)
        with pytest.raises(StoreError, match="was written while it was copied"):
            restore_file(copy, tmp_path / "other.db")
    assert not (tmp_path / "other.db").exists()


def test_the_old_log_is_gone_for_good_before_the_copy_gets_its_name(
    copy: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def record(name: str) -> None:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            on = os.readlink(f"/proc/self/fd/{args[0]}") if isinstance(args[0], int) else args[0]
            what = os.path.basename(on)
            real(*args, **options)
            steps.append(f"{name} {'part' if what.endswith(backup.PART) else what}")

        monkeypatch.setattr(os, name, call)

    for name in ("fsync", "unlink", "replace"):
        record(name)
    (place.parent / "store.db-journal").touch()
    restore_file(copy, place, overwrite=True)
    assert [step for step in steps if step != "unlink part"] == [
        "unlink store.db-turn",
        "fsync part",
        "unlink store.db-journal",  # (SQLite itself has removed the log)
        "fsync live",
        "replace part",
        "fsync live",
    ]


# ------------------------------------------------------------------------------------------ faults


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A folder with what a killed process left: each fault gets a copy of it."""
    (tmp_path / "left").mkdir()
    old_store(tmp_path / "left" / "store.db")
    return tmp_path / "left"


class SystemAttempt(Attempt):
    """The block of a `with` in which a call of the operating system by a restore fails."""

    def __init__(self, n: int, error: Callable[[], Any]) -> None:
        super().__init__("system", n, error=error)
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        for name in SYSTEM:
            self._patch.setattr(os, name, self._call(name, getattr(os, name)))

    def _call(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self.n:
                if name == "close":
                    real(*args)
                self.error()
            return real(*args, **options)

        return call

    def __exit__(self, *what: Any) -> bool:
        self._patch.undo()
        calls, kept = self.calls, super().__exit__(*what)
        self.calls, self.fired = calls, calls >= self.n
        return kept


def eio() -> None:
    raise OSError(errno.EIO, "failed")


def check_either(place: Path, outcome: BaseException | None) -> None:
    """Check that a place holds the old store or the new one, and the new one only if nothing was said against it."""
    now = rows(place)
    assert now in (OLD, NEW)
    if outcome is None or isinstance(outcome, OutcomeUnknown):
        assert now == NEW
    if now == NEW:
        assert [name for name in beside(place) if not name.endswith(backup.PART)] == []


def lives(left: Path, attempts: Iterable[Attempt]) -> Iterator[tuple[Attempt, Path]]:
    """Yield attempts, each with a place that holds a copy of what was left; check it afterwards."""
    for attempt in attempts:
        live = shutil.copytree(left, left.with_name(f"live{attempt.n}"))
        yield attempt, live / "store.db"
        shutil.rmtree(live)


def each_fault(copy: Path, left: Path, attempts: Iterable[Attempt]) -> list[str]:
    """Restore with the n-th call failing, for every n; return the outcomes."""
    outcomes = []
    for attempt, place in lives(left, attempts):
        with attempt:
            restore_file(copy, place, overwrite=True, vfs="faulty")
        check_either(place, attempt.outcome)
        outcomes.append(type(attempt.outcome).__name__)
    return outcomes


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("op", OPERATIONS)
def test_a_disk_that_fails_at_any_call_leaves_the_old_store_or_the_new_one(
    copy: Path, left: Path, op: str, sticky: bool
) -> None:
    assert len(each_fault(copy, left, every_call(op, sticky=sticky))) > 2 or op in ("xDelete", "xTruncate")


def test_a_system_that_fails_at_any_call_leaves_the_old_store_or_the_new_one(copy: Path, left: Path) -> None:
    outcomes = each_fault(copy, left, every(lambda n: SystemAttempt(n, eio)))
    assert {"StoreError", "OutcomeUnknown", "NoneType"} <= set(outcomes)
    assert len(outcomes) > 20


@pytest.mark.parametrize("op", [*OPERATIONS, "system"])
def test_a_process_that_is_killed_at_any_call_leaves_the_old_store_or_the_new_one(
    copy: Path, left: Path, op: str, *, full_size: bool
) -> None:
    step = 1 if full_size else 2 if op == "system" else 5
    attempts = every(lambda n: SystemAttempt(n, die), step) if op == "system" else every_call(op, step, error=die)
    for attempt, place in lives(left, attempts):

        def killed(attempt: Attempt = attempt, place: Path = place) -> int:
            with attempt:
                restore_file(copy, place, overwrite=True, vfs="faulty")
            return attempt.calls

        calls = in_child(killed)
        attempt.fired, attempt.calls = not calls, int(calls or 0)
        check_either(place, None if calls else StoreError("killed"))
        restore_file(copy, place, overwrite=True)
        assert beside(place) == [], "the next restore removes what a killed one left"
