"""Writes of several threads: they share commits, and share nothing else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.driver import reader_pool
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.file import group_commit, transactions
from tablemapper.engines.sqlite.file.database import File
from tablemapper.engines.sqlite.file.opening import open_file
from tablemapper.engines.sqlite.file.writer import Writer
from tablemapper.errors import EntityExists, OutcomeUnknown, SchemaMismatch, StoreError, StoreFull
from tablemapper.schema.model import compile_schema

from ....classes import grouped
from ....interrupts import places, strike
from ....sqlite_vfs import Fault, Slow
from ....threads import at_once
from ..table import eventually


def create_table(w: Writer) -> None:
    w.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, at INTEGER)")


def insert(k: int) -> Callable[[Writer], int]:
    def apply(w: Writer) -> int:
        w.execute("INSERT INTO t VALUES (?, ?)", (k, w.timestamp))
        w.proof = "SELECT 1 FROM t WHERE k = ? AND at = ?", (k, w.timestamp)
        return k

    return apply


def keys(file: File) -> list[int]:
    return [k for (k,) in file.read("SELECT k FROM t ORDER BY k")]


class Group:
    """Writes that are sure to wait for one and the same leader."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.pool = ThreadPoolExecutor(20)
        self._inside, self._leave = threading.Event(), threading.Event()
        self.count = 0

    def lead(self, apply: Callable[[Writer], Any]) -> Future[Any]:
        def and_wait(w: Writer) -> Any:
            result = apply(w)
            self._inside.set()
            assert self._leave.wait(60)
            return result

        first = self.pool.submit(self.file.write, and_wait)
        assert self._inside.wait(60)
        return first

    def follow(self, apply: Callable[[Writer], Any], *, alone: bool = False, **options: Any) -> Future[Any]:
        future = self.pool.submit(self.file.write_alone if alone else self.file.write, apply, **options)
        self.count += 1
        eventually(lambda: len(self.file._writes.queue._pending) >= self.count)
        return future

    def go(self) -> None:
        self._leave.set()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    with open_file(tmp_path / "store.db", vfs="faulty") as file:
        file.write(create_table)
        yield file


@pytest.fixture
def group(file: File, monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    monkeypatch.setattr(transactions, "_GATHER", 3600.0)  # however slow the machine is, all that wait are taken up
    group = Group(file)
    yield group
    group.go()
    group.pool.shutdown()


def syncs(work: Callable[[], object]) -> int:
    """Return how often the log was synced meanwhile."""
    Fault.arm("xSync", 0, sticky=False)
    try:
        work()
        return Fault.count
    finally:
        Fault.disarm()


def test_writes_that_wait_share_one_sync_and_each_returns_its_own_result(file: File, group: Group) -> None:
    first = group.lead(insert(0))
    others = [group.follow(insert(k)) for k in range(1, 11)]

    def work() -> None:
        group.go()
        assert [future.result(60) for future in [first, *others]] == list(range(11))

    assert syncs(work) == 1
    assert keys(file) == list(range(11))
    stamps = [at for (at,) in file.read("SELECT at FROM t ORDER BY k")]
    assert stamps == sorted(set(stamps))


def test_a_leader_lets_those_go_first_that_it_wrote_for(tmp_path: Path) -> None:
    paused: list[float] = []
    with open_file(tmp_path / "store.db", sleep=paused.append) as file:
        file.write(create_table)
        group = Group(file)
        first = group.lead(insert(0))
        other = group.follow(insert(1))
        assert not paused
        group.go()
        assert [first.result(60), other.result(60)] == [0, 1]
        assert len(paused) == 1
        assert group.pool.submit(file.write, insert(2)).result(60) == 2
        assert len(paused) == 1
        group.pool.shutdown()


def test_writes_that_came_during_a_checkpoint_are_woken_after_it(
    file: File, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_PATIENCE", 90.0)
    waiting = file._writes.outside(lambda: group.follow(insert(1)))
    assert waiting.result(60) == 1


def test_a_write_that_comes_later_does_not_lead_before_those_that_wait(
    file: File, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for another process until its own deadline, while theirs are over."""
    monkeypatch.setattr(group_commit, "_PATIENCE", 90.0)
    wake, woken = group_commit.PendingWrite.wake, list[group_commit.PendingWrite[Any]]()
    order: list[int] = []

    def noted(k: int) -> Callable[[Writer], None]:
        return lambda w: order.append(k)

    first = group.lead(noted(0))
    group.follow(noted(1), alone=True)
    monkeypatch.setattr(
        group_commit.PendingWrite, "wake", lambda write: woken.append(write)
    )  # the thread that waits is slow to wake up
    group.go()
    first.result(60)
    later = group.follow(noted(2), alone=True)
    monkeypatch.undo()
    wake(woken[0])
    later.result(60)
    assert order == [0, 1, 2]


def test_a_write_that_fails_is_undone_alone(file: File, group: Group) -> None:
    def half(w: Writer) -> None:
        insert(100)(w)
        insert(1)(w)  # taken by another of the group

    def raises(w: Writer) -> None:
        insert(101)(w)
        raise ValueError("mine")

    first = group.lead(insert(0))
    futures = [group.follow(apply) for apply in (insert(1), half, insert(2), raises, insert(3))]

    def work() -> None:
        group.go()
        assert first.result(60) == 0
        assert [futures[at].result(60) for at in (0, 2, 4)] == [1, 2, 3]

    assert syncs(work) == 1
    with pytest.raises(tm.StoreError, match="UNIQUE constraint"):
        futures[1].result()
    with pytest.raises(ValueError, match="mine"):
        futures[3].result()
    assert keys(file) == [0, 1, 2, 3]


def test_the_leader_may_fail_and_the_others_are_written_by_one_of_them(file: File, group: Group) -> None:
    def fail(w: Writer) -> None:
        insert(100)(w)
        raise ValueError("mine")

    inside, leave = threading.Event(), threading.Event()

    def first_fails(w: Writer) -> None:
        inside.set()
        assert leave.wait(60)
        fail(w)

    first = group.pool.submit(file.write, first_fails)
    assert inside.wait(60)
    others = [group.follow(insert(k)) for k in range(5)]
    leave.set()
    assert [future.result(60) for future in others] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="mine"):
        first.result(60)
    assert keys(file) == [0, 1, 2, 3, 4]


def test_an_unknown_outcome_is_told_to_every_member(file: File, group: Group) -> None:
    first = group.lead(insert(0))
    others = [group.follow(insert(k)) for k in (1, 2, 3)]
    Fault.arm("xSync", 1, sticky=True)
    try:
        group.go()
        for future in [first, *others]:
            with pytest.raises(OutcomeUnknown, match="is not known whether .* stored; read before you try again"):
                future.result(60)
    finally:
        Fault.disarm()
    errors = {id(future.exception()) for future in [first, *others]}
    assert len(errors) == 4, "a traceback grows with each thread that raises the same error"
    assert keys(file) in ([], [0, 1, 2, 3])
    assert file.write(insert(9)) == 9


def test_a_sync_that_fails_once_is_settled_for_every_member(file: File, group: Group) -> None:
    first = group.lead(insert(0))
    others = [group.follow(insert(k)) for k in (1, 2, 3)]
    Fault.arm("xSync", 1, sticky=False)
    try:
        group.go()
        outcomes = [future.exception(60) for future in [first, *others]]
    finally:
        assert Fault.disarm() == 1
    known = keys(file)
    assert known in ([], [0, 1, 2, 3])
    assert [error is None for error in outcomes] == [k in known for k in range(4)], outcomes


@pytest.mark.parametrize("full", [True, False], ids=["a full disk", "a read that fails"])
def test_what_breaks_a_group_harms_only_the_write_that_did_it(file: File, group: Group, full: bool) -> None:
    """A full disk ends the whole transaction, and what cannot be undone must; the others are run again, one by one."""
    runs: list[int] = []

    def counted(k: int) -> Callable[[Writer], int]:
        def apply(w: Writer) -> int:
            runs.append(k)
            return insert(k)(w)

        return apply

    def breaks(w: Writer) -> None:
        if not full:
            insert(3)(w)
            raise apsw.NoMemError("a page that was to be undone")
        pages = w.execute("PRAGMA page_count").get
        w.execute(f"PRAGMA max_page_count = {pages + 2}")
        try:
            w.execute("CREATE TABLE big (v)")
            w.execute("INSERT INTO big VALUES (zeroblob(1000000))")
        finally:
            w.execute("PRAGMA max_page_count = 1000000")

    first = group.lead(counted(0))
    futures = [group.follow(apply) for apply in (counted(1), breaks, counted(2))]
    group.go()
    assert [first.result(60), futures[0].result(60), futures[2].result(60)] == [0, 1, 2]
    with pytest.raises(StoreFull if full else StoreError):
        futures[1].result(60)
    assert keys(file) == [0, 1, 2]
    assert sorted(runs) == [0, 0, 1, 1, 2], "the group was not broken"
    assert file.integrity() == []


def test_a_write_of_an_older_schema_is_refused_after_one_that_changes_it(file: File, group: Group) -> None:
    generation = file.generation()
    first = group.lead(insert(0))
    bump = group.follow(lambda w: w.bump_generation())
    late = group.follow(insert(1), generation=generation)
    group.go()
    assert first.result(60) == 0
    assert bump.result(60) == generation + 1
    with pytest.raises(SchemaMismatch):
        late.result(60)
    assert keys(file) == [0]


def test_a_change_of_the_schema_that_is_undone_is_not_held_against_the_next(file: File, group: Group) -> None:
    generation = file.generation()

    def fail(w: Writer) -> None:
        w.bump_generation()
        raise ValueError

    first = group.lead(insert(0))
    group.follow(fail)
    late = group.follow(insert(1), generation=generation)
    group.go()
    assert first.result(60) == 0
    assert late.result(60) == 1


def test_a_large_write_shares_its_commit_with_nobody(file: File, group: Group) -> None:
    first = group.lead(insert(0))
    small = group.follow(insert(1))
    large = group.follow(insert(2), alone=True)
    last = group.follow(insert(3))

    def work() -> None:
        group.go()
        assert [future.result(60) for future in (first, small, last)] == [0, 1, 3]
        assert large.result(60)[0] == 2

    assert syncs(work) >= 3


def test_one_client_writes_in_its_own_thread(file: File) -> None:
    assert [file.write(lambda w: threading.get_ident()) for _ in range(3)] == [threading.get_ident()] * 3


def test_the_main_thread_never_runs_the_writes_of_others(file: File) -> None:
    """It is the one that is interrupted."""
    pool = ThreadPoolExecutor(4)
    ran_by: list[int] = []
    futures: list[Future[Any]] = []

    def other(k: int) -> Callable[[Writer], int]:
        def apply(w: Writer) -> int:
            ran_by.append(threading.get_ident())
            return insert(k)(w)

        return apply

    def mine(w: Writer) -> None:
        futures.extend(pool.submit(file.write, other(k)) for k in range(4))
        eventually(lambda: len(file._writes.queue._pending) == 4)

    file.write(mine)
    assert [future.result(60) for future in futures] == [0, 1, 2, 3]
    assert threading.get_ident() not in ran_by
    pool.shutdown()


def test_many_threads_share_commits_and_are_served_alike(tmp_path: Path) -> None:
    served = [0] * 16
    when_the_first_is_done: list[list[int]] = []
    with open_file(tmp_path / "many.db", vfs="slow") as file:
        file.write(create_table)
        before = Slow.syncs
        gate = threading.Barrier(16)

        def client(which: int) -> None:
            gate.wait()
            for n in range(40):
                file.write(insert(which * 100_000 + n))
                served[which] += 1
            when_the_first_is_done.append(list(served))

        at_once(*[partial(client, which) for which in range(16)])
        assert len(keys(file)) == 16 * 40
        assert 3 * (Slow.syncs - before) < 16 * 40
        assert min(when_the_first_is_done[0]) > 10, when_the_first_is_done[0]


class Counter(tm.Entity, table="Counters"):
    name: tm.Field[str]
    value: tm.Field[int] = tm.field(default=0)
    text: tm.Field[str] = tm.field(default="")

    key = tm.Key[str](partition="{name}")
    by_value = tm.Index[int](partition="{value}")


Total = grouped("Total", Counter, "text", "Totals", counters=tm.count(), sum=tm.sum(Counter.value))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tm.Store]:
    with tm.Store(SqliteEngine.open(tmp_path / "store.db", compile_schema([Counter, Total]), vfs="slow")) as store:
        yield store


def test_additions_of_many_threads_add_up_in_entities_indexes_and_aggregates(store: tm.Store) -> None:
    store.insert_many([Counter(f"c{which}") for which in range(3)])
    refused = []

    def client(which: int) -> None:
        for n in range(20):
            store.merge(Counter.key(f"c{(which + n) % 3}"), Counter.value.add(1))
            try:
                store.insert(Counter("c0"))
            except EntityExists:
                refused.append(which)

    at_once(*[partial(client, which) for which in range(8)])
    assert len(refused) == 160
    assert sum(counter.value for counter in store.query(Counter).allow_scan()) == 160
    assert store[Total.key("")].sum == 160
    assert store.check().ok


def test_an_operation_that_is_run_again_reads_again(store: tm.Store) -> None:
    """What it found in a transaction that was undone because of others was never there."""
    engine: Any = store._engine
    store.insert(Counter("a", 5))
    write = engine.file.write

    class Undone(Exception):
        pass

    def twice(apply: Callable[[Writer], Any], **options: Any) -> Any:
        def in_vain(w: Writer) -> None:
            apply(w)
            raise Undone

        with pytest.raises(Undone):
            write(in_vain)
        engine.file.write = write
        store.merge(Counter.key("a"), Counter.value.add(10))
        return write(apply, **options)

    for verb in (
        lambda: store.merge(Counter.key("a"), Counter.value.add(1)),
        lambda: store.upsert(Counter("a", text="x"), merge=True),
        lambda: store.upsert(Counter("b", 3)),
        lambda: store.delete(Counter.key("a")),
    ):
        engine.file.write = twice
        verb()
        if store.exists(Counter.key("a")):
            found = store[Counter.key("a")]
    assert (found.value, found.text) == (10, "x")
    assert not store.exists(Counter.key("a"))
    assert store.check().ok


def test_nobody_is_forgotten_however_threads_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_size: bool
) -> None:
    """A thread that waits looks again after a second; here only after an hour, so that a lost wake-up would show."""
    monkeypatch.setattr(group_commit, "_PATIENCE", 90.0)
    monkeypatch.setattr(reader_pool, "_PATIENCE", 90.0)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    count = 5_000 if full_size else 60
    try:
        with open_file(tmp_path / "race.db", vfs="faulty", most_readers=2, readers=1, timeout=3600) as file:
            file.write(create_table)

            def client(which: int) -> None:
                for n in range(count):
                    k = which * 100_000 + n
                    if n % 7 == 3:
                        with pytest.raises(ZeroDivisionError):
                            file.write(lambda w: [insert(10_000_000 + which)(w), 1 // 0])
                    (file.write_alone if n % 11 == 5 else file.write)(insert(k))
                    assert file.get("SELECT k FROM t WHERE k = ?", (k,)) == (k,)

            threads = [threading.Thread(target=client, args=(which,)) for which in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(600)
            assert not any(thread.is_alive() for thread in threads)
            assert len(keys(file)) == 6 * count
    finally:
        sys.setswitchinterval(before)


@pytest.mark.interrupts
def test_an_interrupted_thread_leaves_the_queue_wherever_it_waits() -> None:
    """Woken for nothing, it looks again: from Python 3.12 on, a jump back may be outside of what its loop is in."""

    class Ready:
        """A lock that gives up at once, and whose third waiter finds the leader gone."""

        def __init__(self) -> None:
            self.count = 0

        def acquire(self, timeout: float | None = None) -> bool:
            self.count += timeout is not None
            if self.count == 3 and queue.lock.locked():
                queue.lock.release()
            return False

        def release(self) -> None: ...

    def work() -> None:
        nonlocal queue
        locks: list[Any] = [threading.Lock(), Ready()]
        queue = group_commit.CommitQueue(lambda: locks.pop(0), 1, lambda _: None)
        queue.lock.acquire()
        write = group_commit.PendingWrite(lambda _: None, None, 0.0, exclusive=True)
        queue.run(write, lambda write: None)

    queue: group_commit.CommitQueue
    total = places(work)
    assert total > 20
    for at in range(1, total + 1):
        assert strike(at, work) or strike(at, work)  # Python 3.13.0 sees no instructions after an interrupt
        assert not queue._pending
