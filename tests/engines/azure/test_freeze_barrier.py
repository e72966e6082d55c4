"""An account is frozen beside programs that write it, and learn of it late: in an order that is drawn, with kills, lost
answers and late requests; once that has returned, no entity changes any more."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.azure import freeze_barrier
from tablemapper.engines.azure.catalogue import open_classes
from tablemapper.engines.azure.catalogue.open_classes import CatalogueRefresher
from tablemapper.engines.azure.cross_partition.outbox import Deadline, Outbox, Timing
from tablemapper.engines.azure.housekeeping import flush
from tablemapper.engines.azure.recovery import sweep
from tablemapper.engines.azure.tables.driver import Effects, ReadClock, Sleep, delay
from tablemapper.engines.azure.tables.reserved_names import INTENTS
from tablemapper.engines.azure.tables.service import GroupTransaction, Request
from tablemapper.engines.azure.writing import late_writes
from tablemapper.engines.azure.writing.late_writes import write_in_time
from tablemapper.schema.model import compile_schema

from .crew import Board, Member, drawn_write
from .schedule import Rates, Schedule, noted, played, process_state, sweep_all
from .test_builds import Clocked

TIMES = Timing(look=1.0, deadline=1.5, lease=3.0, grace=30.0, request=1.0)
RATES = Rates(crash=0.004, lost=0.25, late=0.1, busy=0.05)
SCHEMA = compile_schema([Member, Board])


class Play:
    """Writers of several processes, one that freezes, and one that sweeps."""

    def __init__(self, seed: int, settled: float = TIMES.settled, stopped: float = 0.0) -> None:
        random.seed(seed)  # (of pauses)
        self.rng = random.Random(seed)
        self.memory = Clocked(seed)
        self.ops = itertools.count()
        self.settled = settled
        self.stopped = stopped
        """How often a writer stands still before it sends a transaction."""
        self.told: list[Request] = []
        """What writers sent that were told that it is done."""
        self.late: list[Request] = []
        """What changed entities that were to change no more."""
        self.store = tm.Store(self.memory.open(SCHEMA, TIMES))
        self.frozen: list[Any] | None = None
        self.schedule = self.memory.schedule = Schedule(
            self.memory, seed, attrs.evolve(RATES, stopped=stopped), TIMES.look
        )
        self.memory.send = self.noted(self.memory.send)  # type: ignore[method-assign]
        for _ in range(4):
            self.schedule.start(self.program())
        self.schedule.start(self.freezer())

    def program(self) -> Effects[None]:
        current, outbox = yield from process_state(SCHEMA, TIMES, self.ops)
        for _ in range(3):
            self.schedule.start(self.writer(current, outbox))

    def writer(self, current: CatalogueRefresher, outbox: Outbox) -> Effects[None]:
        for _ in range(25 if not self.stopped else 12):
            yield Sleep(self.rng.random() * 0.8)
            operation = drawn_write(SCHEMA, self.rng, "pqrs")
            sent: list[Request] = []
            try:
                yield from noted(write_in_time(current, [operation], outbox, timeout=TIMES.deadline), sent)
                self.told += sent
                yield from flush(outbox, TIMES.deadline)
            except tm.TableMapperError:
                pass

    def noted(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that sends a request, and notes it if it changes a frozen entity."""

        def sends(request: Request, *wait: float) -> Any:
            answer = send(request, *wait)
            changes = request.changes if isinstance(request, GroupTransaction) and request.table == "Members" else ()
            if self.frozen is not None and not all(change.row.startswith(INTENTS[0]) for change in changes):
                self.late.append(request)
            return answer

        return sends

    def freezer(self) -> Effects[None]:
        yield Sleep(self.rng.random() * 6)
        current, outbox = yield from process_state(SCHEMA, TIMES, self.ops)
        yield from freeze_barrier.announce("TableMapper", 60.0)
        while (yield from freeze_barrier.wait("TableMapper", current, self.settled, 60.0)):
            pass
        self.frozen = self.members()
        if not self.stopped:
            yield from sweep(current, outbox, 60.0)

    def members(self) -> list[Any]:
        return list(self.store.query(Member).allow_scan())

    def run(self) -> dict[str, int]:
        self.schedule.run()
        if self.frozen is None:
            return {}
        if self.stopped:
            wrong = [one for one in self.late if any(one is other for other in self.told)]
            assert not wrong, wrong[0]
            return {"frozen": 1, "late": len(self.late)}
        assert self.members() == self.frozen
        sweep_all(self.store, self.memory, self.memory)
        assert self.members() == self.frozen
        report = self.store.check()
        assert report.ok, str(report)
        with pytest.raises(tm.StoreLocked):
            self.store.upsert(Member("a", "p", "red", 1.0))
        self.store.unfreeze()
        self.store.upsert(Member("a", "p", "red", 1.0))
        return {"frozen": 1}


def play(seeds: Iterable[int], **options: Any) -> Counter[str]:
    return played(partial(Play, **options), seeds)


@pytest.mark.one_python
@pytest.mark.long
def test_no_writer_that_stood_still_is_told_that_it_changed_a_frozen_entity(full_size: bool) -> None:
    seeds = 1_000 if full_size else 20
    counts = play(range(seeds), stopped=0.05)
    assert counts["frozen"] > seeds * 0.8
    assert counts["late"] > seeds / 40


@pytest.mark.one_python
def test_writers_that_do_not_look_again_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: Any) -> Any:
        return False
        yield

    monkeypatch.setattr(late_writes._Mending, "is_late", never)
    with pytest.raises(AssertionError):
        play(range(50), stopped=0.05)


@pytest.mark.one_python
@pytest.mark.long
def test_no_entity_changes_once_a_store_is_frozen(full_size: bool) -> None:
    seeds = 3_000 if full_size else 20
    assert play(range(seeds))["frozen"] > seeds * 0.8


@pytest.mark.one_python
@pytest.mark.long
@pytest.mark.parametrize(
    ("settled", "first"),
    [
        pytest.param(0.0, 0, id="it does not wait"),
        pytest.param(TIMES.look, 0, id="it waits as long as programs believe the catalogue"),
        pytest.param(TIMES.look + TIMES.deadline / 5, 100, id="it waits for a fifth of what a write may last"),
    ],
)
def test_a_shorter_wait_is_caught(settled: float, first: int) -> None:
    with pytest.raises(AssertionError):
        play(range(first, first + 300), settled=settled)


@pytest.mark.one_python
def test_writers_that_do_not_ask_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_classes, "check_thawed", lambda catalogue, classes: None)
    with pytest.raises(AssertionError):
        play(range(10))


def test_nothing_is_sent_again_after_the_deadline() -> None:
    def elapsed(patience: Deadline, now: float) -> float | None:
        work = patience.again(9)
        assert next(work) == ReadClock()
        try:
            step = work.send(now)
        except Exception:
            return None
        assert isinstance(step, Sleep)
        return step.seconds

    for _ in range(100):
        waited = elapsed(Deadline(10.0), 8.5)
        assert waited is None or waited <= 1.5
    assert delay(9).seconds >= 1.0


# ---------------------------------------------------------------------------------------------- what a user calls


def opened() -> tuple[Clocked, tm.Store]:
    memory = Clocked(1)
    return memory, tm.Store(memory.open(SCHEMA, TIMES))


def test_a_store_is_frozen_once_every_program_knows_of_it() -> None:
    memory, store = opened()
    store.insert(Member("a", "p", "red", 1.0))
    began = memory.now
    store.freeze()
    assert TIMES.settled <= memory.now - began < TIMES.settled + 1
    with pytest.raises(tm.StoreLocked, match="frozen since 2023-11-14"):
        store.insert(Member("a", "q", "red", 1.0))
    store.freeze()  # (it is at once, as everybody knows)
    assert memory.now - began < TIMES.settled + 1


def test_a_freeze_says_when_somebody_else_lets_programs_write() -> None:
    memory, other = opened()

    wait = memory.pass_by

    def thaw(seconds: float) -> None:
        wait(seconds)
        other.unfreeze()

    memory.pass_by = thaw  # type: ignore[method-assign]
    store = tm.Store(memory.open(SCHEMA, TIMES))
    with pytest.raises(tm.StoreError, match="another program let programs write again"):
        store.freeze()
    store.insert(Member("a", "p", "red", 1.0))
