"""Writers of one process that change one group at one time: each delta is added once, whoever of them adds it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.cross_partition.outbox import Deadline, GroupDelta, Intent, Outbox
from tablemapper.engines.azure.cross_partition.remote_groups import add
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables.driver import Parallel, ReadClock
from tablemapper.engines.azure.tables.service import ErrorResponse, GroupTransaction, NoResponse
from tablemapper.schema.model import compile_schema

from .crew import Board, Member
from .memory import Memory

SCHEMA = compile_schema([Member, Board])


def opened(memory: Any) -> tm.Store:
    return tm.Store(AzureEngine.open(memory, "here", SCHEMA))


def boards(memory: Memory, since: int) -> list[GroupTransaction]:
    return [one for one in memory.sent[since:] if isinstance(one, GroupTransaction) and one.table == "Boards"]


def side_by_side(store: tm.Store, threads: int, each: int) -> list[BaseException]:
    errors: list[BaseException] = []
    start = threading.Barrier(threads)

    def write(thread: int) -> None:
        try:
            start.wait()
            for number in range(each):
                store.insert(Member(f"c{thread}", f"m{number}", "red", 1.0))
        except Exception as error:
            errors.append(error)

    running = [threading.Thread(target=write, args=(thread,)) for thread in range(threads)]
    for one in running:
        one.start()
    for one in running:
        one.join(60)
    return errors


class Slow:
    """A service that a change of a group takes a while with, or whose first answers to that are lost."""

    def __init__(self, lost: int = 0) -> None:
        self.memory = Memory()
        self.lost = lost
        self.pause = threading.Event()

    def send(self, request: Any, *wait: float) -> Any:
        if isinstance(request, GroupTransaction) and request.table == "Boards":
            self.pause.wait(0.02)
            if self.lost:
                self.lost -= 1
                if self.lost % 2:
                    self.memory.send(request)
                raise NoResponse("the answer")
        return self.memory.send(request)

    def close(self) -> None: ...


@pytest.mark.parametrize("lost", [0, 9])
def test_writers_of_one_group_share_its_transactions(lost: int) -> None:
    slow = Slow()
    store = opened(slow)
    store.insert(Member("first", "m", "red", 1.0))
    since, slow.lost = len(slow.memory.sent), lost
    assert side_by_side(store, 8, 5) == []
    assert store.get(Board.key("red")) == Board("red", 41, 41.0, 1.0)
    assert len(boards(slow.memory, since)) < 30 + lost
    store.sweep(full=True)
    assert store.check().ok


def test_others_go_on_where_the_first_of_them_fails() -> None:
    slow = Slow()
    store = opened(slow)
    plain, failures = slow.send, iter([True, True])

    def broken(request: Any) -> Any:
        if isinstance(request, GroupTransaction) and request.table == "Boards" and next(failures, False):
            slow.pause.wait(0.05)
            raise RuntimeError("the first of them ends here")
        return plain(request)

    slow.send = broken  # type: ignore[method-assign]
    assert side_by_side(store, 6, 3) == [], "what fails behind a commit is left to the sweep"
    outbox = store._engine._outbox  # type: ignore[attr-defined]
    assert (outbox.led, outbox.waiting) == ({}, {})
    total = store.query(Member).where(Member.crew.is_in([f"c{n}" for n in range(6)])).count()
    missing = sum(1 for table, row in slow.memory.tables["Members"] if row.startswith(' "o'))
    held = store.get(Board.key("red"))
    assert held is not None
    assert total - 2 <= held.members <= total
    assert missing >= 2  # (each that may have been added stays for a sweep)


@pytest.mark.parametrize("status", [409, 412, 404])
def test_who_adds_for_others_needs_no_thread_that_may_wait_for_it(status: int) -> None:
    store = opened(Memory())
    classes: Any = store._engine._classes  # type: ignore[attr-defined]
    board = classes.aggregates["Board"]
    packed = board.aggregate.pack_delta(board.aggregate.zero())
    several = [(Intent("Members", "c", f"{n:025}"), GroupDelta("Board", "red", "", packed)) for n in range(5)]
    work = add(classes.upkeep(board), several, Deadline(1e9), 60.0, Outbox("TableMapper"))
    step, refusals = next(work), 0
    try:
        while True:
            assert not isinstance(step, Parallel)
            if isinstance(step, GroupTransaction):
                refusals += 1
                step = work.throw(ErrorResponse(status, "")) if refusals < 4 else work.send(())
            else:
                step = work.send(0.0 if isinstance(step, ReadClock) else None)
    except StopIteration:
        assert refusals == 4
