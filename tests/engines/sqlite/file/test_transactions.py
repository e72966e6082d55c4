"""Writes of one store object, beside those of others."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from tablemapper.engines.sqlite.file import transactions
from tablemapper.engines.sqlite.file.database import File
from tablemapper.engines.sqlite.file.opening import open_file
from tablemapper.engines.sqlite.file.writer import Writer
from tablemapper.errors import InvalidEntity, SchemaMismatch, StoreError, StoreLocked

from .... import sqlite_vfs  # noqa: F401  registers the file layers
from ....interrupts import places, strike
from ..table import Clock, create_table, drawn, eventually, insert, open_table


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
    with pytest.raises(InvalidEntity, match="cannot be stored"):
        file.write(insert(value))
    with pytest.raises(InvalidEntity, match="cannot be stored"):
        file.get("SELECT ?", (value,))


def test_a_write_within_a_write_is_refused_instead_of_waiting_for_itself(file: File) -> None:
    with pytest.raises(StoreError, match="a write within a write"):
        file.write(lambda w: file.write(insert(1)))
    for use in (file.compact, file.close):
        with pytest.raises(StoreError, match="a write within a write"):
            file.write(lambda w, use=use: use())  # type: ignore[misc]
    file.write(insert(2))


def test_a_transaction_that_was_left_open_is_undone_by_the_next(file: File) -> None:
    assert file._connection is not None
    file._connection.execute("BEGIN IMMEDIATE")
    file._connection.execute("INSERT INTO t (v) VALUES ('lost')")
    file.write(insert("kept"))
    assert file.read("SELECT v FROM t") == [("kept",)]


def test_a_changed_catalogue_is_noticed_before_anything_is_done(path: Path, file: File) -> None:
    called = []
    with open_file(path) as other:
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


# Waiting for another process


@pytest.fixture
def locked(path: Path, file: File) -> Iterator[apsw.Connection]:
    """Another program, which holds SQLite's lock."""
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    yield other
    other.close()


def test_another_writer_is_waited_for(path: Path, locked: apsw.Connection) -> None:
    def sleep(seconds: float) -> None:
        if locked.in_transaction:
            locked.execute("COMMIT")

    with open_file(path, sleep=sleep) as file:
        file.write(insert(1))
        assert file.read("SELECT v FROM t") == [(1,)]


def test_another_writer_that_takes_longer_than_the_timeout_is_one_clear_error(
    path: Path, locked: apsw.Connection
) -> None:
    clock = Clock(0)
    with open_file(path, timeout=0.5, monotonic=clock, sleep=clock.sleep) as file:
        with pytest.raises(StoreLocked, match="locked it for longer than timeout=; nothing was written: try again, or"):
            file.write(insert(1))
        assert 0.5 <= clock.now < 0.51
        locked.execute("COMMIT")
        file.write(insert(2))
        assert file.read("SELECT v FROM t") == [(2,)]


@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_the_timeouts_of_threads_do_not_add_up(path: Path, locked: apsw.Connection, durability: Any) -> None:
    clock, asked = Clock(0), set[int]()

    def monotonic() -> float:
        asked.add(threading.get_ident())
        return float(clock.now)

    def sleep(seconds: float) -> None:
        eventually(lambda: len(asked) == 8)  # time stands still until all of them have come
        clock.sleep(seconds)

    with open_file(path, timeout=1.0, durability=durability, monotonic=monotonic, sleep=sleep) as file:
        asked.clear()
        with ThreadPoolExecutor(8) as threads:
            for future in [threads.submit(file.write, insert(n)) for n in range(8)]:
                assert isinstance(future.exception(60), StoreLocked)
        assert clock.now < 1.1, "some waited for the timeouts of others, too"


def test_what_a_call_waited_before_it_writes_counts_for_its_timeout(path: Path, locked: apsw.Connection) -> None:
    clock = Clock(0)
    with open_file(path, timeout=1.0, monotonic=clock, sleep=clock.sleep, waited=lambda: 0.7) as file:
        with pytest.raises(StoreLocked):
            file.write(insert(1))
        assert 0.3 <= clock.now < 0.31


INTERRUPTS = [KeyboardInterrupt(), TimeoutError("an alarm"), ValueError("a handler of an application")]


@pytest.mark.parametrize("error", INTERRUPTS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_what_a_signal_raises_while_another_writer_is_awaited_comes_out(
    path: Path, locked: apsw.Connection, error: BaseException, durability: Any
) -> None:
    def sleep(seconds: float) -> None:
        raise error

    with open_file(path, sleep=sleep, durability=durability) as file:
        for _ in range(3):
            with pytest.raises(type(error)) as raised:
                file.write(insert(1))
            assert raised.value is error
        locked.execute("COMMIT")
        file.write(insert(2))
        assert file.read("SELECT v FROM t") == [(2,)]


@pytest.mark.interrupts
@pytest.mark.parametrize("waits", ["a write", "a look at the lock", "a close"])
def test_an_interrupt_anywhere_in_a_wait_comes_out(path: Path, locked: apsw.Connection, waits: str) -> None:
    """SQLite calls Python while it waits, and what is raised where that begins must come out, too."""
    clock, ended = Clock(0), [False]
    with open_file(path, timeout=0.002, monotonic=clock, sleep=clock.sleep) as file:
        locked.execute("COMMIT")
        for number in range(3):
            file.write(insert(number))  # so that there is an allowance to hand back
        locked.execute("BEGIN IMMEDIATE")

        def work() -> None:
            ended[0] = False
            with suppress(StoreLocked):
                if waits == "a write":
                    file.write(insert(1))
                elif waits == "a look at the lock":
                    file._writes._is_free()
                else:
                    assert file._connection is not None
                    file._writes.hand_back(file._connection)
            ended[0] = True

        for at in range(1, places(work) + 1):
            assert not (strike(at, work) and ended[0]), "it was lost"
        locked.execute("COMMIT")
        file.write(insert(2))


def test_what_was_raised_before_is_not_raised_again(path: Path, locked: apsw.Connection) -> None:
    clock = Clock(0)
    raises = [KeyboardInterrupt()]

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if raises:
            raise raises.pop()

    with open_file(path, timeout=0.1, monotonic=clock, sleep=sleep) as file:
        try:
            file.write(insert(1))
        except KeyboardInterrupt:
            with pytest.raises(StoreLocked):
                file.write(insert(1))


@pytest.mark.parametrize("error", INTERRUPTS, ids=lambda error: type(error).__name__)
def test_what_a_signal_raises_while_a_new_file_is_opened_comes_out(path: Path, error: BaseException) -> None:
    other = apsw.Connection(str(path))
    other.execute("BEGIN EXCLUSIVE")

    def sleep(seconds: float) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        open_file(path, sleep=sleep)
    assert raised.value is error
    other.close()
    open_file(path).close()


def test_closing_waits_for_nobody(path: Path, locked: apsw.Connection) -> None:
    clock = Clock(0)
    open_file(path, monotonic=clock, sleep=clock.sleep).close()
    assert clock.now == 0


# Turns


def test_a_process_that_writes_alone_takes_a_turn_once(path: Path) -> None:
    clock = Clock(0)
    with open_table(path, monotonic=clock) as file:
        for clock.now in (0.0, 0.01, 0.02, 0.03, 0.04):
            file.write(insert(1))
        assert drawn(path) == 1
        with open_file(path, monotonic=clock) as other:
            for clock.now, writer in ((0.05, other), (0.06, file), (0.07, other)):
                writer.write(insert(2))
            assert drawn(path) == 3
            for clock.now, writer in ((0.08, file), (0.09, other)):
                writer.write(insert(2))
            assert drawn(path) == 5


def test_a_turn_lasts_a_millisecond_in_which_its_process_draws_no_other_ticket(path: Path) -> None:
    clock = Clock(0)
    with open_table(path, monotonic=clock) as file, open_file(path, monotonic=clock) as other:
        for clock.now, writer in ((0.8, file), (0.9, other), (1.0, file), (1.1, other), (1.2, file)):
            writer.write(insert(1))
        before = drawn(path)
        for clock.now, tickets in ((1.2004, 0), (1.2009, 0), (1.2012, 1), (1.2020, 1), (1.2024, 2)):
            file.write(insert(1))
            assert drawn(path) == before + tickets, clock.now
        other.write(insert(1))
        assert drawn(path) == before + 3, "the slice of one process is none of another"


def test_a_process_that_writes_for_long_takes_turns_even_alone(path: Path) -> None:
    """Others would seldom find SQLite's lock free between its transactions."""
    now = 0.0
    with open_table(path, monotonic=lambda: now) as file:
        file.write(insert(1))
        assert drawn(path) == 1

        def slow(w: Writer) -> None:
            nonlocal now
            insert(1)(w)
            now += 0.05

        for before in (1, 2, 3):
            file.write(slow)
            assert drawn(path) == before
        file.write(insert(1))
        assert drawn(path) == 4
        file.write(insert(1))
        assert drawn(path) == 4


def client_process(path: str, which: int, gate: Any) -> None:
    with open_file(path, vfs="slow", timeout=60.0) as file:
        gate.wait()
        for _ in range(100):
            file.write(insert(which))


def pages(count: int) -> Callable[[Writer], None]:
    """Return a write of so many pages."""
    return lambda writer: [insert("x" * 4096)(writer) for _ in range(count)] and None


def log(file: File) -> tuple[int, int]:
    """Return how many pages are in the log, and how many of these are copied into the file."""
    assert file._connection is not None
    _, length, copied = file._connection.execute("PRAGMA wal_checkpoint(NOOP)").get
    return length, copied


def test_a_long_log_is_copied_when_the_turn_is_given_back(
    path: Path, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "WAL_PAGES", 20)
    monkeypatch.setattr(file._writes, "_was_long", True)
    file.write_alone(pages(1))
    given: list[bool] = []
    give = file._writes.turns.give

    def watched() -> object:
        length, copied = log(file)
        given.append(copied == length)
        return give()

    monkeypatch.setattr(file._writes.turns, "take", lambda until: True)
    monkeypatch.setattr(file._writes.turns, "give", watched)
    for _ in range(5):
        monkeypatch.setattr(file._writes, "_was_long", True)
        file.write_alone(pages(3))
        if log(file)[1]:
            break
    assert len(given) in (2, 3, 4)
    assert not any(given)
    length, copied = log(file)
    assert length == copied >= 20


def test_a_log_that_others_keep_from_being_copied_is_copied_with_the_commit(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "WAL_PAGES", 20)
    monkeypatch.setattr(file._writes, "_copy_log", lambda connection: None)
    longest = 0
    for _ in range(40):
        file.write_alone(pages(3))
        longest = max(longest, log(file)[0])
    assert 40 <= longest < 60


def test_a_write_alone_tells_the_seconds_from_begin_to_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0)
    with open_table(path, monotonic=clock) as file:

        def later(seconds: float) -> Callable[..., None]:
            return lambda *_: clock.sleep(seconds)

        monkeypatch.setattr(file._writes.turns, "take", later(100))
        monkeypatch.setattr(file._writes, "_copy_log", later(10))
        monkeypatch.setattr(file._writes, "_was_long", True)
        assert file.write_alone(later(3)) == (None, 3.0, 0.0)
        monkeypatch.setattr(file._writes, "_beside_until", 1_000.0)  # others wrote
        assert file.write_alone(later(3)) == (None, 3.0, 1.5 * (3.0 + 10.0))


def test_a_write_alone_tells_whether_others_wrote_within_a_second(path: Path) -> None:
    clock = Clock(0)
    with (
        open_file(path, monotonic=clock) as file,
        open_file(path, monotonic=clock) as other,
        ThreadPoolExecutor(1) as thread,
    ):

        def in_company() -> bool:
            return file.write_alone(lambda writer: (clock.sleep(1e-3), insert(1)(writer)))[2] > 0

        file.write(create_table)
        assert not in_company()
        for write in (lambda: other.write(insert(2)), lambda: thread.submit(file.write, insert(3)).result()):
            write()
            assert in_company()
            clock.sleep(0.9)
            assert in_company()
            clock.sleep(0.2)
            assert not in_company()


def test_processes_that_write_without_a_pause_are_served_alike(path: Path) -> None:
    """With SQLite's lock alone one of them gets next to nothing."""
    open_table(path).close()
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    gate = context.Barrier(4)
    processes = [context.Process(target=client_process, args=(str(path), which, gate)) for which in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    with open_file(path) as file:
        order = [which for (which,) in file.read("SELECT v FROM t ORDER BY k")]
    assert Counter(order) == dict.fromkeys(range(4), 100)
    last = {which: 399 - order[::-1].index(which) for which in range(4)}
    served = Counter(order[: min(last.values()) + 1])
    assert min(served[which] for which in range(4)) > 40, served
