"""What happens to a file when the disk fails, the process is killed, or a call is interrupted."""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest

from tablemapper.engines.sqlite.driver import timestamps as timestamps_module
from tablemapper.engines.sqlite.file import transactions as transacting_module
from tablemapper.engines.sqlite.file.database import File
from tablemapper.engines.sqlite.file.opening import open_file
from tablemapper.engines.sqlite.file.writer import Writer
from tablemapper.errors import CorruptStore, OutcomeUnknown, StoreError, StoreFull, TableMapperError

from ....sqlite_vfs import Fault, every_call
from ..table import checkpoint

EXPECTED = {"xWrite": 5, "xSync": 2}  # at the least so many points at which a write can fail
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # from the failing layer

OPERATIONS = ["xWrite", "xSync", "xRead", "xTruncate", "xOpen", "xDelete", "xFileSize", "xLock"]


def create_tables(w: Writer) -> None:
    w.execute("CREATE TABLE thing (k INTEGER PRIMARY KEY, v TEXT NOT NULL)")
    w.execute("CREATE TABLE total (one INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
    w.execute("CREATE TABLE done (at INTEGER PRIMARY KEY)")
    w.execute("INSERT INTO total VALUES (1, 0)")


def put(*keys: int, size: int = 600) -> Any:
    def apply(w: Writer) -> int:
        w.executemany("INSERT INTO thing VALUES (?, ?)", [(k, str(k) * size) for k in keys])
        w.execute("UPDATE total SET n = n + ?", (len(keys),))
        w.execute("INSERT INTO done VALUES (?)", (w.timestamp,))
        w.proof = ("SELECT 1 FROM done WHERE at = ?", (w.timestamp,))
        return w.timestamp

    return apply


def keys_in(file: Any) -> set[int]:
    """The keys of a file that agrees with itself."""
    rows = (
        list(file.execute("SELECT k FROM thing"))
        if isinstance(file, apsw.Connection)
        else file.read("SELECT k FROM thing")
    )
    total = (
        file.execute("SELECT n FROM total").fetchone()
        if isinstance(file, apsw.Connection)
        else file.get("SELECT n FROM total")
    )
    assert total == (len(rows),)
    return {k for (k,) in rows}


def after_kill(path: Path) -> set[int]:
    """What a process that is killed at this moment leaves behind, as the next one reads it."""
    image = path.with_name("image.db")
    for end in ("", "-wal", "-journal"):
        if os.path.exists(f"{path}{end}"):
            shutil.copy(f"{path}{end}", f"{image}{end}")
    connection = apsw.Connection(str(image))
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return keys_in(connection)
    finally:
        connection.close()
        for end in ("", "-wal", "-shm", "-journal"):
            if os.path.exists(f"{image}{end}"):
                os.unlink(f"{image}{end}")


def small(file: File) -> None:
    """Make the connection spill and checkpoint all the time."""
    assert file._connection is not None
    file._connection.execute("PRAGMA cache_size = 4")
    file._connection.wal_autocheckpoint(6)


OLD = {0, 1, 2, 3, 4}
NEW = OLD | set(range(10, 18))


def fail_every_call(folder: Path, op: str, *, sticky: bool, readers: bool, error: Any = apsw.IOError) -> Counter[str]:
    """Fail the n-th call of ``op`` in a write, for every n; return how often each outcome was seen."""
    seen: Counter[str] = Counter()
    folder = Path(tempfile.mkdtemp(dir=folder))
    for attempt in every_call(op, sticky=sticky, error=error):
        path = folder / f"{attempt.n}.db"
        file = open_file(path, vfs="faulty", readers=2 if readers else 0)
        file.write(create_tables)
        small(file)
        for k in OLD:
            file.write(put(k))
        if readers:
            assert keys_in(file) == OLD
        with attempt:
            file.write(put(*range(10, 18)))
        outcome, said = attempt.outcome, f"{op} {attempt.n}: said {attempt.outcome!r}"
        assert "report it" not in said or error not in (apsw.IOError, apsw.FullError), "the true error was hidden"
        assert file._connection is None or not file._connection.in_transaction
        killed = after_kill(path)
        now = keys_in(file)
        if outcome is None:
            allowed = [NEW]
        elif isinstance(outcome, OutcomeUnknown):
            allowed = [OLD, NEW]
        else:
            assert isinstance(outcome, StoreError)
            allowed = [OLD]
        assert killed in allowed, f"{said}, but a kill leaves {killed}"
        assert now in allowed, f"{said}, but reads {now}"
        if attempt.fired:
            seen[type(outcome).__name__] += 1
        file.write(put(99))
        assert keys_in(file) == now | {99}
        file.close()
        with open_file(path) as again:
            assert keys_in(again) == now | {99}
            assert again.integrity() == []
    return seen


@pytest.mark.parametrize("readers", [False, True], ids=["alone", "with readers"])
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "sticky"])
@pytest.mark.parametrize("op", OPERATIONS)
def test_a_write_that_meets_a_fault_is_there_or_not_as_it_says(
    tmp_path: Path, op: str, sticky: bool, readers: bool
) -> None:
    seen = fail_every_call(tmp_path, op, sticky=sticky, readers=readers)
    print(dict(seen))
    assert sum(seen.values()) >= EXPECTED.get(op, 0)


@pytest.mark.parametrize("sticky", [False, True], ids=["once", "sticky"])
@pytest.mark.parametrize(
    "error", [apsw.NoMemError, apsw.CorruptError, apsw.CantOpenError, apsw.PermissionsError, apsw.ReadOnlyError]
)
def test_what_could_not_be_undone_is_never_committed_later(
    tmp_path: Path, error: type[Exception], sticky: bool
) -> None:
    """SQLite's ROLLBACK reads, and tells nobody that a read failed if the error is no IOERR."""
    assert fail_every_call(tmp_path, "xRead", sticky=sticky, readers=False, error=error)


@pytest.mark.parametrize("op", ["xWrite", "xSync"])
def test_a_full_disk_or_an_error_of_the_system_is_no_other_than_an_io_error(tmp_path: Path, op: str) -> None:
    for error in (apsw.FullError, lambda: OSError(5, "gone"), lambda: OSError(28, "full")):
        assert sum(fail_every_call(tmp_path, op, sticky=False, readers=True, error=error).values()) >= 2


def test_a_sync_that_fails_again_when_the_old_state_is_to_be_made_final_is_an_unknown_outcome(tmp_path: Path) -> None:
    with open_file(tmp_path / "sync.db", vfs="faulty") as file:
        file.write(create_tables)
        Fault.arm("xSync", 1, sticky=True)
        with pytest.raises(OutcomeUnknown):
            file.write(put(1))
        Fault.disarm()
        file.write(put(2))
        assert keys_in(file) >= {2}


@pytest.mark.parametrize("readers", [False, True], ids=["alone", "with readers"])
def test_a_disk_that_stays_full_is_never_an_unknown_outcome(tmp_path: Path, readers: bool) -> None:
    seen = fail_every_call(tmp_path, "xWrite", sticky=True, readers=readers, error=apsw.FullError)
    assert set(seen) == {"StoreFull", "NoneType"}


def test_a_commit_that_is_found_is_trusted_only_once_it_is_in_the_file_itself(tmp_path: Path) -> None:
    file = open_file(tmp_path / "found.db", vfs="faulty")
    file.write(create_tables)
    file.write(put(*range(5)))

    def found(w: Writer) -> str:
        w.proof = ("SELECT 1", ())
        w.execute("INSERT INTO thing VALUES (?, '')", (w.timestamp,))
        return "returned"

    Fault.arm("xSync", 1, sticky=False)
    assert file.write(found) == "returned"
    assert Fault.disarm()
    stream = file.stream("SELECT * FROM thing", chunk=1)
    next(stream)
    file.write(put(10))
    Fault.arm("xSync", 1, sticky=False)
    with pytest.raises(OutcomeUnknown, match="is not known whether .* stored; read before you try again"):
        file.write(found)
    assert Fault.disarm()
    file.close()


def test_without_the_fencing_write_a_failed_sync_would_break_the_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the harness finds the fault that the fence is there for."""
    monkeypatch.setattr(transacting_module, "FENCE", "SELECT 1")
    with pytest.raises(AssertionError, match="but a kill leaves"):
        fail_every_call(tmp_path, "xSync", sticky=False, readers=True)


@pytest.mark.parametrize("op", OPERATIONS)
def test_a_file_that_could_not_be_opened_opens_once_the_fault_is_gone(tmp_path: Path, op: str) -> None:
    for fresh in (True, False):
        for attempt in every_call(op, sticky=True):
            path = tmp_path / f"{op}{attempt.n}{fresh}.db"
            if not fresh:
                with open_file(path) as file:
                    file.write(create_tables)
                    file.write(put(1))
            with attempt:
                open_file(path, vfs="faulty", timeout=0.01).close()
            with open_file(path, vfs="faulty") as file:
                if fresh:
                    file.write(create_tables)
                    file.write(put(1))
                assert keys_in(file) == {1}


def test_a_read_that_meets_a_fault_raises_ours_and_the_next_one_works(path: Path) -> None:
    with open_file(path) as file:
        file.write(create_tables)
        file.write(put(*range(200)))
    failed = 0
    for attempt in every_call("xRead", sticky=True):
        file = open_file(path, vfs="faulty")
        with attempt:
            for way in ("read", "stream", "snapshot"):
                try:
                    if way == "read":
                        file.read("SELECT * FROM thing")
                    elif way == "stream":
                        for _ in file.stream("SELECT * FROM thing", chunk=7):
                            pass
                    else:
                        with file.snapshot() as snapshot:
                            snapshot.read("SELECT * FROM thing")
                except StoreError:
                    failed += 1
        assert keys_in(file) == set(range(200))
        assert sum(map(len, file.stream("SELECT * FROM thing"))) == 200
        file.close()
    assert failed > 50


def test_a_store_that_is_full_reads_on_and_writes_again_once_there_is_space(tmp_path: Path) -> None:
    with open_file(tmp_path / "full.db") as file:
        file.write(create_tables)
        assert file._connection is not None
        file._connection.execute("PRAGMA max_page_count = 20").fetchall()
        with pytest.raises(StoreFull, match="the disk is full"):
            file.write(put(*range(1000)))
        assert keys_in(file) == set()
        file.write(put(1))
        file._connection.execute("PRAGMA max_page_count = 1000000").fetchall()
        file.write(put(2))
        assert keys_in(file) == {1, 2}


def test_without_a_proof_a_failed_commit_is_settled_by_the_row_of_the_timestamps_or_is_unknown(tmp_path: Path) -> None:
    file = open_file(tmp_path / "proof.db", vfs="faulty", clock=lambda: 10**15)
    file.write(create_tables)

    def apply(w: Writer) -> None:
        w.execute("INSERT INTO done VALUES (?)", (w.timestamp,))

    kinds: set[type[BaseException]] = set()
    for _ in range(40):
        before = file.read("SELECT * FROM done")
        Fault.arm("xSync", 1, sticky=False)
        with pytest.raises(StoreError) as raised:
            file.write(apply)
        Fault.disarm()
        kinds.add(type(raised.value))
        assert file.read("SELECT * FROM done") == before
        file.write(apply)
        file.write(apply)
    assert kinds == {StoreError, OutcomeUnknown}
    file.close()


def writer_process(path: str, pipe: int, first: int) -> None:
    try:
        file = open_file(path)
        small(file)
        k = first
        while True:
            stamp = file.write(put(k, size=200))
            os.write(pipe, struct.pack("<QQ", k, stamp))
            k += 1
    finally:
        os._exit(1)


def test_a_killed_process_loses_nothing_that_was_acknowledged_and_leaves_no_half(
    path: Path, *, full_size: bool
) -> None:
    with open_file(path) as file:
        file.write(create_tables)
    draw = random.Random(7)
    known: set[int] = set()
    last = unacknowledged = commits = 0
    for _ in range(100 if full_size else 25):
        end, pipe = os.pipe()
        if (child := os.fork()) == 0:
            os.close(end)
            writer_process(str(path), pipe, max(known, default=-1) + 1)
        os.close(pipe)
        with os.fdopen(end, "rb") as acks:
            data = acks.read(16 * draw.randrange(8))
            time.sleep(draw.uniform(0, 0.005))
            os.kill(child, signal.SIGKILL)
            data += acks.read()
        os.waitpid(child, 0)
        acked = list(struct.iter_unpack("<QQ", data[: len(data) // 16 * 16]))
        stamps = [stamp for _, stamp in acked]
        assert stamps == sorted(set(stamps))
        assert not stamps or stamps[0] > last
        last = stamps[-1] if stamps else last
        with open_file(path) as file:
            found = keys_in(file)
            assert found >= known | {k for k, _ in acked}
            assert len(found) <= len(known) + len(acked) + 1
            (highest,) = file.get("SELECT max(at) FROM done") or (0,)
            last = max(last, highest or 0)
            unacknowledged += len(found) - len(known) - len(acked)
            commits += len(acked)
            known = found
    assert commits > 25


def seconds_of(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interrupt(rounds: int, work: Any, after: Any) -> int:
    """Run ``work`` with an interrupt at a random moment, ``rounds`` times; return how often it came in time."""

    armed = False

    def raise_it(*_: object) -> None:
        nonlocal armed
        if armed:
            armed = False  # however late a signal is, it must not come into what follows
            raise KeyboardInterrupt

    draw = random.Random(3)
    fastest = min(seconds_of(work) for _ in range(20))  # a machine may take a tenth of the time of another
    before = signal.signal(signal.SIGALRM, raise_it)
    hit = 0
    try:
        for _ in range(rounds):
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, fastest))
                work()
                armed = False
            except KeyboardInterrupt:
                hit += 1
            after()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # else it may end the process
        signal.signal(signal.SIGALRM, before)
    return hit


@pytest.mark.interrupts
def test_an_interrupt_leaves_no_transaction_open_and_no_lock_held(tmp_path: Path) -> None:
    with open_file(tmp_path / "ki.db", durability="relaxed") as file:
        file.write(create_tables)
        numbers = iter(range(1_000_000))

        def work() -> None:
            file.write(put(next(numbers), size=1))
            file.get("SELECT n FROM total")
            for _ in file.stream("SELECT * FROM total"):
                pass
            with file.snapshot() as snapshot:
                snapshot.get("SELECT n FROM total")

        def after() -> None:
            assert file._connection is not None
            assert not file._connection.in_transaction
            assert not file._writes.queue.lock.locked()
            assert all(not reader.in_transaction for reader in file._readers.idle)

        assert interrupt(2_000, work, after) > 1_000
        file.write(put(-1))
        assert -1 in keys_in(file)
        assert checkpoint(file), "a reader was left in a transaction"
        assert len(file._connections) < 10


@pytest.mark.interrupts
def test_a_transaction_written_in_python_would_be_left_open(tmp_path: Path) -> None:
    """The control: the interrupts do come at the moments that matter."""
    connection = apsw.Connection(str(tmp_path / "control.db"))
    connection.execute("CREATE TABLE t (a)")
    left = 0

    def work() -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("INSERT INTO t VALUES (1)")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def after() -> None:
        nonlocal left
        if connection.in_transaction:
            left += 1
            connection.execute("ROLLBACK")

    connection.execute("PRAGMA synchronous = OFF")
    for _ in range(20):
        interrupt(1_000, work, after)
        if left:
            break
    connection.close()
    assert left


def mutate(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    kind = draw.choice(["flip", "flip", "eight", "page", "cut", "zero", "header", "state"])
    if kind == "flip":
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    elif kind == "eight":
        for _ in range(8):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    elif kind == "page":
        to, of = (draw.randrange(len(changed) // 1024) * 1024 for _ in range(2))
        changed[to : to + 1024] = changed[of : of + 1024]
    elif kind == "cut":
        del changed[draw.randrange(len(changed)) :]
    elif kind == "zero":
        at = draw.randrange(len(changed) // 512) * 512
        changed[at : at + 512] = bytes(512)
    elif kind == "header":
        changed[draw.randrange(100)] = draw.randrange(256)
    else:  # the catalogue's own pages
        changed[100 + draw.randrange(2 * 1024 - 100)] = draw.randrange(256)
    return bytes(changed)


def test_a_damaged_file_raises_ours_and_nothing_else(path: Path, *, full_size: bool) -> None:
    with open_file(path, page_size=1024) as file:
        file.write(create_tables)
        file.write(put(*range(60), size=40))
    sound = path.read_bytes()
    draw = random.Random(11)
    raised: Counter[str] = Counter()

    def attempt(what: Any) -> Any:
        try:
            return what()
        except TableMapperError as error:
            raised[type(error).__name__] += 1
            return None

    for _ in range(2_000 if full_size else 600):
        data = mutate(sound, draw)
        path.write_bytes(data)
        file = attempt(lambda: open_file(path, durability="relaxed", timeout=0.02))
        if file is None:
            assert path.read_bytes() == data or data[18:20] != b"\x02\x02"
            assert not os.path.exists(f"{path}-wal") or not os.path.getsize(f"{path}-wal")
        else:
            attempt(lambda: file.read("SELECT * FROM thing"))
            attempt(lambda: sum(map(len, file.stream("SELECT * FROM thing", chunk=9))))
            attempt(lambda: file.get("SELECT * FROM total"))
            attempt(file.integrity)
            attempt(file.store_id)
            attempt(lambda: file.write(put(1_000, 1_001)))
            file.close()
        for end in ("-wal", "-shm", "-journal"):
            if os.path.exists(f"{path}{end}"):
                os.unlink(f"{path}{end}")
    assert raised["CorruptStore"] > 60
    assert raised["NotAStore"] > 6


def test_an_impossible_time_in_the_file_is_damage(path: Path) -> None:
    with open_file(path) as file:
        file.write(lambda w: w.execute(f"UPDATE {timestamps_module.STATE} SET until = ?, owner = 5", (2**62,)))
    with open_file(path) as file, pytest.raises(CorruptStore, match="what was never written there"):
        file.write(create_tables)
