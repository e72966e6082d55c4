"""Processes that write in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tablemapper.engines.sqlite.file import ticket_lock as turns_module
from tablemapper.engines.sqlite.file.file import File
from tablemapper.engines.sqlite.file.ticket_lock import Turns

from .... import sqlite_vfs  # noqa: F401  registers the file layers
from .table import create_table, drawn, insert


@pytest.fixture
def place(path: Path) -> Path:
    path.touch()
    return path


def turns_at(path: Path) -> Turns:
    return Turns(str(path), monotonic=time.monotonic, new_lock=threading.Lock)


def soon(seconds: float = 5.0) -> float:
    return time.monotonic() + seconds


def test_one_has_the_turn_and_the_next_gets_it_when_it_is_given_back(place: Path) -> None:
    first, second = turns_at(place), turns_at(place)
    assert first.take(soon())
    assert not second.take(soon(0.02))
    first.give()
    assert second.take(soon())
    assert not first.take(soon(0))
    second.give()
    second.give()  # nothing is left to give


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
