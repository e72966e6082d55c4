"""Processes that write in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tablemapper.engines.sqlite.file import ticket_lock
from tablemapper.engines.sqlite.file.opening import open_file
from tablemapper.engines.sqlite.file.ticket_lock import TicketLock

from ....threads import at_once
from ..table import create_table, drawn, eventually, insert, open_table


@pytest.fixture
def place(path: Path) -> Path:
    path.touch()
    return path


class Client(TicketLock):
    """A store object that takes turns.

    Attributes:
        waits: set as soon as it has a ticket, and waits for the turn of it.
    """

    def __init__(self, place: Path, *, is_free: Callable[[], bool] = lambda: False) -> None:
        self.waits = threading.Event()
        super().__init__(str(place), is_free=is_free, monotonic=time.monotonic, new_lock=self._new_lock_of_waiter)

    def _new_lock_of_waiter(self) -> threading.Lock:
        self.waits.set()
        return threading.Lock()

    def take_soon(self) -> bool:
        """Wait for the turn as long as a test may take."""
        return self.take(time.monotonic() + 60)

    def take_now(self) -> bool:
        return self.take(time.monotonic())

    def take_elsewhere(self, then: Callable[[], object] = lambda: None) -> threading.Thread:
        """Take the turn in a thread, and give it back after a call; return once that has the turn or waits for it."""
        self.waits.clear()

        def run() -> None:
            came = self.take_soon()
            self.waits.set()
            assert came
            then()
            self.give()

        thread = threading.Thread(target=run)
        thread.start()
        assert self.waits.wait(60)
        return thread


class Stopped(Client):
    """A process that was stopped while it waits: it has a ticket, and does not take its turn when that comes."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._tickets = ticket_lock._Tickets(str(place))
        self._tickets.draw(wait=False)


def test_one_has_the_turn_and_the_next_gets_it_when_it_is_given_back(place: Path) -> None:
    first, second = Client(place), Client(place)
    assert first.take_soon()
    assert not second.take_now()
    first.give()
    assert second.take_soon()
    assert not first.take_now()
    second.give()
    second.give()  # nothing is left to give


def test_the_one_that_gives_the_turn_back_does_not_get_it_before_those_that_wait(place: Path) -> None:
    first, second = Client(place), Client(place)
    assert first.take_soon()
    has, leave = threading.Event(), threading.Event()
    thread = second.take_elsewhere(lambda: has.set() or leave.wait(60))
    first.give()
    assert not first.take_now(), "it was faster than the one that had to wake up"
    assert has.wait(60)
    leave.set()
    thread.join(60)
    assert first.take_soon()


def test_the_one_that_asks_again_at_once_comes_after_all_that_wait(place: Path) -> None:
    clients = [Client(place) for _ in range(4)]
    order: list[int] = []
    assert clients[0].take_soon()
    for _ in range(10):
        threads = [clients[which].take_elsewhere(lambda which=which: order.append(which)) for which in (1, 2, 3)]  # type: ignore[misc]
        clients[0].give()
        assert clients[0].take_soon()
        order.append(0)
        for thread in threads:
            thread.join(60)
    assert order == [1, 2, 3, 0] * 10


def test_where_there_are_no_locks_of_parts_of_a_file_all_get_the_turn(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(ticket_lock.fcntl, "F_OFD_SETLK")
    inside: list[int] = []

    def client(which: int) -> None:
        turns = Client(place)
        for _ in range(20):
            assert turns.take_soon()
            inside.append(which)
            os.sched_yield()
            assert inside.pop() == which
            turns.give()

    at_once(*[partial(client, which) for which in range(3)])
    assert not inside


def test_a_turn_that_comes_when_nobody_wants_it_any_more_is_given_back(place: Path) -> None:
    first, late, third = Client(place), Client(place), Client(place)
    assert first.take_soon()
    assert not late.take_now()
    first.give()
    assert third.take_soon(), "it was kept by one that had given up"
    third.give()
    assert late.take_soon()


def test_the_one_that_gave_up_keeps_its_place_for_the_next_time(place: Path) -> None:
    first = Client(place)
    second = Client(place, is_free=lambda: first.give() is None)  # which it asks once it has waited for a moment
    before = threading.active_count()
    assert first.take_soon()
    for _ in range(5):
        assert not second.take_now()
    assert threading.active_count() <= before + 1
    assert second.take_soon()
    assert drawn(place) == 2


# What holds up the queue


def test_a_queue_that_stands_still_while_sqlite_is_locked_keeps_its_order(place: Path) -> None:
    first, asked = Client(place), threading.Event()
    assert first.take_soon()
    order: list[str] = []
    second = Client(place, is_free=lambda: asked.set() or False)
    threads = [second.take_elsewhere(lambda: order.append("second"))]
    assert asked.wait(60)
    threads.append(Client(place).take_elsewhere(lambda: order.append("third")))
    first.give()
    for thread in threads:
        thread.join(60)
    assert order == ["second", "third"]


def test_one_that_is_stopped_with_a_ticket_holds_up_the_next_for_a_moment_and_the_others_not_at_all(
    place: Path,
) -> None:
    first = Client(place)
    assert first.take_soon()
    stopped = Stopped(place)
    behind, last = Client(place, is_free=lambda: True), Client(place)
    assert not behind.take_now()
    thread = last.take_elsewhere()
    first.give()
    assert not behind.take_soon(), "the turn of the stopped one came to another"
    behind.give()
    thread.join(60)
    assert not thread.is_alive(), "its turn did not come after the write of the one before it"
    assert first.take_soon(), "the queue did not go on behind it"
    first.give()
    stopped.close()
    assert behind.take_soon()


def test_one_that_waits_behind_a_stopped_one_while_others_write_takes_a_new_ticket(place: Path) -> None:
    first = Client(place)
    assert first.take_soon()
    stopped = Stopped(place)
    behind, other, last = Client(place), Client(place, is_free=lambda: True), Client(place)
    thread = behind.take_elsewhere()
    assert not other.take_now()
    assert not last.take_now()
    first.give()
    assert not other.take_soon()
    other.give()
    assert last.take_soon()
    last.give()
    thread.join(60)
    assert not thread.is_alive()
    stopped.close()


def nobody_draws(place: Path) -> bool:
    tickets = ticket_lock._Tickets(str(place))
    try:
        tickets._lock(ticket_lock._COUNTER, wait=False)
    except BlockingIOError:
        return False
    finally:
        tickets.close()
    return True


STOPPED = """
import sys
from tablemapper.engines.sqlite.file.opening import open_file
with open_file(sys.argv[1], timeout=600) as file:
    file.write(lambda w: w.execute("INSERT INTO t (v) VALUES ('stopped')"))
"""


def test_a_process_that_is_stopped_while_it_waits_stops_no_other(path: Path) -> None:
    with open_file(path, timeout=60) as file, open_file(path, timeout=60) as other:
        file.write(create_table)
        other.write(insert("other"))
        turns = Client(path)
        assert turns.take_soon()
        before = drawn(path)
        with subprocess.Popen([sys.executable, "-c", STOPPED, str(path)]) as child:
            eventually(lambda: drawn(path) > before and nobody_draws(path))
            os.kill(child.pid, signal.SIGSTOP)
            try:
                assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
                turns.give()
                for _ in range(10):
                    file.write(insert("file"))
                    other.write(insert("other"))
                assert drawn(path) > before + 1, "the control: they draw tickets"
                assert file.read("SELECT v FROM t WHERE v = 'stopped'") == []
            finally:
                os.kill(child.pid, signal.SIGCONT)
        assert child.returncode == 0
        assert file.read("SELECT v FROM t WHERE v = 'stopped'") == [("stopped",)]
        turns.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("step", ["draw", "follow"])
def test_a_thread_that_dies_while_it_waits_gives_its_ticket_back(
    place: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    first, second, third = Client(place), Client(place), Client(place)
    real = getattr(ticket_lock._Tickets, step)
    dead: list[int] = []

    def dies(self: Any, *args: Any, wait: bool) -> Any:
        if wait:
            dead.append(threading.get_ident())
            if step == "draw":
                self._lock(ticket_lock._COUNTER, wait=True)
            raise MemoryError
        if step == "draw":
            raise BlockingIOError
        return real(self, *args, wait=wait)

    assert first.take_soon()
    monkeypatch.setattr(ticket_lock._Tickets, step, dies)
    second.take_now()
    eventually(lambda: dead and dead[0] not in sys._current_frames())
    monkeypatch.undo()
    second.give()
    first.give()
    assert third.take_soon()


def test_what_a_signal_raises_while_the_turn_is_awaited_comes_out(place: Path) -> None:
    first, error = Client(place), TimeoutError("a handler of SIGALRM")
    assert first.take_soon()

    def look() -> bool:
        raise error

    second = Client(place, is_free=look)
    with pytest.raises(TimeoutError) as raised:
        second.take_soon()
    assert raised.value is error
    first.give()
    second.give()
    assert second.take_soon()
    assert drawn(place) > 1, "it goes on without order from now on"


def test_a_process_that_is_killed_gives_its_turn_back(place: Path) -> None:
    program = (
        "import sys, threading, time\n"
        "from tablemapper.engines.sqlite.file.ticket_lock import TicketLock\n"
        "turns = TicketLock(\n"
        "    sys.argv[1], is_free=lambda: False, monotonic=time.monotonic, new_lock=threading.Lock\n"
        ")\n"
        "assert turns.take(time.monotonic() + 60)\n"
        "print('mine', flush=True)\n"
        "threading.Event().wait()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(place)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child, child.stdout:
        assert child.stdout.readline() == b"mine\n"
        mine = Client(place)
        assert not mine.take_now()
        child.send_signal(signal.SIGKILL)
        assert mine.take_soon()
        mine.close()


def test_a_forked_child_does_not_keep_the_turn_of_its_parent(path: Path) -> None:
    with open_table(path) as file:
        turns = file._writes.turns
        assert turns.take(time.monotonic() + 60)
        end, pipe = os.pipe()
        if (child := os.fork()) == 0:
            os.close(end)
            signal.pause()
        os.close(pipe)
        assert turns._tickets is not None
        turns._tickets.close()  # as if the parent died
        other = Client(path)
        try:
            assert other.take_soon()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(end)
            other.give()
            turns.forked()


# The file


def test_where_there_are_no_such_locks_the_store_works_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticket_lock, "fcntl", None)
    with open_table(path) as file:
        file.write(insert(1))
        assert not path.with_name("store.db-turn").exists()


def test_a_turn_file_that_can_not_be_opened_is_done_without(path: Path) -> None:
    path.with_name("store.db-turn").mkdir()
    with open_table(path) as file:
        file.write(insert(1))


def test_the_last_to_close_removes_the_turn_file(path: Path) -> None:
    turn = path.with_name("store.db-turn")
    first, second = open_file(path), open_file(path)
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
    turns = Client(place)
    assert turns.take_soon()
    assert os.path.exists(f"{place}-turn")


def test_turns_that_are_dropped_close_their_file(place: Path) -> None:
    def descriptors() -> int:
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return sum(os.path.exists(link) and os.readlink(link) == f"{place}-turn" for link in links)

    turns = TicketLock(str(place), is_free=lambda: False, monotonic=time.monotonic, new_lock=threading.Lock)
    assert turns.take(time.monotonic() + 60)
    assert descriptors() == 1
    del turns
    assert descriptors() == 0


@pytest.mark.parametrize("tries", [5, 100_000])
def test_a_turn_file_that_another_process_just_removes_is_waited_for_but_not_for_ever(
    place: Path, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    first = Client(place)
    assert first.take_soon()
    first.give()
    assert first._tickets is not None
    first._tickets._lock(ticket_lock._PRESENCE, wait=False)  # as a store does that is the last to close
    opened: list[int] = []

    def attempt(self: Any, byte: int, *, wait: bool, kind: int | None = None) -> None:
        opened.append(byte)
        if len(opened) == tries:
            first.close()
        real(self, byte, wait=wait, kind=kind)

    real = ticket_lock._Tickets._lock
    monkeypatch.setattr(ticket_lock._Tickets, "_lock", attempt)
    second = Client(place)
    assert second.take_soon()
    assert (second._tickets is not None) == (tries == 5)
    second.give()
    second.close()
    first.close()
