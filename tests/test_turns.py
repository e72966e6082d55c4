"""Processes that write in turn, and the connections of one process that read."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tablemapper.engines.sqlite.file import ticket_lock as turns_module
from tablemapper.engines.sqlite.file.file import File, Writer
from tablemapper.engines.sqlite.file.ticket_lock import Turns
from tablemapper.errors import StoreClosed, StoreLocked

from . import sqlite_vfs  # noqa: F401  registers the file layers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def place(path: Path) -> Path:
    path.touch()
    return path


def turns_at(path: Path) -> Turns:
    return Turns(str(path), monotonic=time.monotonic, new_lock=threading.Lock)


def soon(seconds: float = 5.0) -> float:
    return time.monotonic() + seconds


def create_table(w: Writer) -> None:
    w.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, who INTEGER)")


def insert(who: int) -> Callable[[Writer], None]:
    return lambda w: w.execute("INSERT INTO t (who) VALUES (?)", (who,)) and None


# Turns


def test_one_has_the_turn_and_the_next_gets_it_when_it_is_given_back(place: Path) -> None:
    first, second = turns_at(place), turns_at(place)
    assert first.take(soon())
    assert not second.take(soon(0.02))
    first.give()
    assert second.take(soon())
    assert not first.take(soon(0))
    second.give()
    second.give()  # nothing is left to give


def drawn(place: Path) -> int:
    """Return how many tickets were drawn."""
    return int.from_bytes(Path(f"{place}-turn").read_bytes(), "little")


def test_who_gives_the_turn_back_does_not_get_it_before_those_that_wait(place: Path) -> None:
    first, second = turns_at(place), turns_at(place)
    assert first.take(soon())
    has, leave = threading.Event(), threading.Event()

    def wait() -> None:
        assert second.take(soon())
        has.set()
        leave.wait(10)
        second.give()

    thread = threading.Thread(target=wait)
    thread.start()
    while drawn(place) < 2:
        time.sleep(0.001)
    first.give()
    assert not first.take(soon(0)), "it was faster than the one that had to wake up"
    assert has.wait(10)
    leave.set()
    thread.join()
    assert first.take(soon())


def test_who_asks_again_at_once_comes_after_all_that_wait(place: Path) -> None:
    clients = [turns_at(place) for _ in range(4)]
    order: list[int] = []
    assert clients[0].take(soon())

    def client(which: int) -> None:
        assert clients[which].take(soon())
        order.append(which)
        clients[which].give()

    for _ in range(10):
        before, threads = drawn(place), []
        for which in (1, 2, 3):
            threads.append(threading.Thread(target=client, args=(which,)))
            threads[-1].start()
            while drawn(place) < before + which:
                time.sleep(0.001)
        clients[0].give()
        assert clients[0].take(soon())
        order.append(0)
        for thread in threads:
            thread.join(10)
    assert order == [1, 2, 3, 0] * 10


def test_where_there_are_no_locks_of_parts_of_a_file_all_get_the_turn(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(turns_module.fcntl, "F_OFD_SETLK")
    all_turns = [turns_at(place) for _ in range(3)]
    inside: list[int] = []

    def client(which: int) -> None:
        for _ in range(5):
            assert all_turns[which].take(soon())
            inside.append(which)
            time.sleep(0.001)
            assert inside.pop() == which
            all_turns[which].give()

    threads = [threading.Thread(target=client, args=(which,)) for which in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not inside


def test_a_turn_that_comes_after_the_timeout_is_given_back(place: Path) -> None:
    first, late, third = turns_at(place), turns_at(place), turns_at(place)
    assert first.take(soon())
    assert not late.take(soon(0.01))
    first.give()
    assert third.take(soon()), "it was kept by one that had given up"
    third.give()
    assert late.take(soon())


def test_who_gave_up_keeps_its_place_for_the_next_time(place: Path) -> None:
    first, second = turns_at(place), turns_at(place)
    before = threading.active_count()
    assert first.take(soon())
    for _ in range(5):
        assert not second.take(soon(0.002))
    assert threading.active_count() <= before + 1
    threading.Timer(0.01, first.give).start()
    assert second.take(soon())


def test_a_process_that_is_killed_gives_its_turn_back(place: Path) -> None:
    program = (
        "import sys, threading, time\n"
        "from tablemapper.engines.sqlite.file.ticket_lock import Turns\n"
        "turns = Turns(sys.argv[1], monotonic=time.monotonic, new_lock=threading.Lock)\n"
        "assert turns.take(time.monotonic() + 5)\n"
        "print('mine', flush=True)\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(place)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child, child.stdout:
        assert child.stdout.readline() == b"mine\n"
        mine = turns_at(place)
        assert not mine.take(soon(0.01))
        child.send_signal(signal.SIGKILL)
        assert mine.take(soon())
        mine.close()


def test_a_forked_child_does_not_keep_the_turn_of_its_parent(path: Path) -> None:
    with File.open(path) as file:
        file.write(create_table)
        assert file._writes.turns.take(soon())
        end, pipe = os.pipe()
        if (child := os.fork()) == 0:
            os.close(end)
            time.sleep(5)
            os._exit(0)
        os.close(pipe)
        os.close(file._writes.turns._file)  # as if the parent died
        other = turns_at(path)
        try:
            assert other.take(soon(2))
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(end)
            other.give()
            file._writes.turns.forked()


def test_where_there_are_no_such_locks_the_store_works_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns_module, "fcntl", None)
    with File.open(path) as file:
        file.write(create_table)
        file.write(insert(1))
        assert not path.with_name("store.db-turn").exists()


def test_a_turn_file_that_can_not_be_opened_is_done_without(path: Path) -> None:
    path.with_name("store.db-turn").mkdir()
    with File.open(path) as file:
        file.write(create_table)
        file.write(insert(1))


def test_who_closes_last_removes_the_turn_file(path: Path) -> None:
    turn = path.with_name("store.db-turn")
    first, second = File.open(path), File.open(path)
    first.write(create_table)
    second.write(insert(1))
    first.close()
    assert turn.exists()
    second.write(insert(2))
    second.close()
    assert not turn.exists()


def test_a_turn_file_that_was_removed_meanwhile_is_made_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fstat
    removed: list[bool] = []

    def fstat(descriptor: int) -> Any:
        if not removed:
            removed.append(True)
            os.unlink(f"{place}-turn")
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", fstat)
    turns = turns_at(place)
    assert turns.take(soon())
    assert os.path.exists(f"{place}-turn")


def test_another_process_that_writes_for_too_long_is_one_clear_error(path: Path) -> None:
    with File.open(path, timeout=0.2) as file, File.open(path) as other:
        file.write(create_table)
        inside, leave = threading.Event(), threading.Event()

        def hold(w: Writer) -> None:
            inside.set()
            leave.wait(10)

        thread = threading.Thread(target=other.write, args=(hold,))
        thread.start()
        inside.wait(10)
        started = time.monotonic()
        outcomes: list[BaseException] = []

        def client() -> None:
            try:
                file.write(insert(1))
            except BaseException as error:
                outcomes.append(error)

        clients = [threading.Thread(target=client) for _ in range(6)]
        for one in clients:
            one.start()
        for one in clients:
            one.join(10)
        assert time.monotonic() - started < 0.9, "each waited for the timeouts of all before it"
        assert [type(error) for error in outcomes] == [StoreLocked] * 6
        first, *_, last = map(str, outcomes)
        assert "held its lock for longer than the timeout; nothing was written: retry, or raise timeout=" in first
        assert "for longer than the timeout of 0.2 s; nothing was written: retry, or raise timeout=" in last
        leave.set()
        thread.join()
        file.write(insert(2))
        assert file.read("SELECT who FROM t") == [(2,)]


def client_process(path: str, which: int, gate: Any, at: Any, results: Any) -> None:
    with File.open(path, vfs="slow", timeout=30.0) as file:
        file.write(insert(which))
        gate.wait()
        time.sleep(max(0.0, at.value - time.monotonic()))
        end, n = at.value + 0.7, 0
        while time.monotonic() < end:
            file.write(insert(which))
            n += 1
    results.put(n)


def test_who_writes_alone_takes_a_turn_once(path: Path) -> None:
    with File.open(path, monotonic=lambda: 0.0) as file:  # however long each takes
        file.write(create_table)
        for _ in range(5):
            file.write(insert(1))
        assert drawn(path) == 1
        with File.open(path, monotonic=lambda: 0.0) as other:
            other.write(insert(2))
            file.write(insert(1))
            other.write(insert(2))
            assert drawn(path) == 3
            file.write(insert(1))
            other.write(insert(2))
            assert drawn(path) == 5


def test_who_writes_for_long_takes_turns_even_alone(path: Path) -> None:
    """Others would seldom find SQLite's lock free between its transactions."""
    now = 0.0
    with File.open(path, monotonic=lambda: now) as file:
        file.write(create_table)
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


def test_processes_that_write_without_a_pause_are_served_alike(path: Path) -> None:
    """With SQLite's lock alone one of them gets next to nothing."""
    with File.open(path) as file:
        file.write(create_table)
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    gate, at, results = context.Barrier(5), context.Value("d"), context.Queue()
    started = [context.Process(target=client_process, args=(str(path), which, gate, at, results)) for which in range(4)]
    for process in started:
        process.start()
    while gate.n_waiting < 4:
        time.sleep(0.005)
    at.value = time.monotonic() + 0.1
    gate.wait()
    served = [results.get(timeout=30) for _ in started]
    for process in started:
        process.join()
    assert min(served) > 0.5 * max(served), served
    with File.open(path) as file:
        assert file.get("SELECT count(*) FROM t") == (sum(served) + 4,)


# Readers


@pytest.fixture
def file(path: Path) -> Iterator[File]:
    with File.open(path, readers=1, most_readers=2, timeout=5.0) as file:
        file.write(create_table)
        file.write(lambda w: w.executemany("INSERT INTO t (who) VALUES (?)", [(n,) for n in range(1_000)]))
        yield file


def elsewhere(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start ``work`` in another thread; return that, and where its result or error will be."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def waiting(file: File, count: int) -> None:
    end = soon()
    while len(file._readers._waiting) < count:
        assert time.monotonic() < end
        time.sleep(0.0005)


READ = "SELECT who FROM t"


def test_no_more_readers_are_open_than_were_allowed_and_who_finds_none_waits(file: File) -> None:
    streams = [file.stream(READ, chunk=10) for _ in range(2)]
    others = [elsewhere(lambda: len(file.read(READ))) for _ in range(5)]
    waiting(file, 5)
    assert len(file._known) == 3  # one of them writes
    streams[0].close()
    for thread, results in others:
        thread.join(10)
        assert results == [1_000]
    assert len(file._known) <= 3
    assert next(streams[1])


def test_a_stream_that_is_dropped_lets_the_next_one_read(file: File) -> None:
    streams = [file.stream(READ, chunk=10) for _ in range(2)]
    thread, results = elsewhere(lambda: file.get(READ))
    waiting(file, 1)
    del streams
    thread.join(10)
    assert results == [(0,)]


def test_a_thread_that_holds_a_reader_never_waits_for_another(file: File) -> None:
    streams = [file.stream(READ, chunk=10) for _ in range(10)]
    assert len(file._known) == 11
    del streams
    assert len(file._known) == 2


def test_waiting_for_a_reader_ends_in_one_clear_error(path: Path) -> None:
    with File.open(path, most_readers=1, timeout=0.02) as file:
        file.write(create_table)
        file.write(insert(1))
        with file.snapshot():
            thread, results = elsewhere(lambda: file.read(READ))
            thread.join(10)
        assert isinstance(results[0], StoreLocked)
        assert "all 1 connections that read were in use for longer than the timeout of 0.02 s" in str(results[0])
        assert not file._readers._waiting
        assert file.read(READ) == [(1,)]


def test_a_store_that_is_closed_sends_those_away_that_wait_for_a_reader(file: File) -> None:
    streams = [file.stream(READ, chunk=10) for _ in range(2)]
    thread, results = elsewhere(lambda: file.read(READ))
    waiting(file, 1)
    file.close()
    thread.join(1)
    assert isinstance(results[0], StoreClosed)
    assert streams


def test_a_reader_that_breaks_makes_room_for_another(file: File) -> None:
    streams = [file.stream(READ, chunk=10) for _ in range(2)]
    thread, results = elsewhere(lambda: file.get(READ))
    waiting(file, 1)
    file.drop(streams[0]._reader)  # type: ignore[attr-defined]
    thread.join(10)
    assert results == [(0,)]


def test_many_threads_share_few_readers_and_lose_none(file: File) -> None:
    def client() -> int:
        seen = 0
        for turn in range(30):
            for chunk in file.stream(READ, chunk=100):
                seen += len(chunk)
                if turn % 3 == 0:
                    break
            file.get(READ)
        return seen

    others = [elsewhere(client) for _ in range(8)]
    for thread, results in others:
        thread.join(20)
        assert results == [10 * 100 + 20 * 1_000]
    assert not file._readers._waiting
    assert len(file._known) <= 3
