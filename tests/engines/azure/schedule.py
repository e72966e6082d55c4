"""Runs generators that send requests, step by step, in an order that is drawn: with kills, lost answers and late requests."""

from __future__ import annotations

import itertools
import math
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol
from unittest import mock
from uuid import UUID

import attrs

from tablemapper import Store
from tablemapper.engines.azure.catalogue import opening
from tablemapper.engines.azure.catalogue.open_classes import CatalogueRefresher, OpenClasses
from tablemapper.engines.azure.cross_partition.outbox import DeadlineExceeded, Outbox, Timing
from tablemapper.engines.azure.tables.driver import Effects, Parallel, ReadClock, Sleep, Step, Within
from tablemapper.engines.azure.tables.reserved_names import INTENTS, MARKS
from tablemapper.engines.azure.tables.service import ErrorResponse, GroupTransaction, NoResponse, Request
from tablemapper.errors import TableMapperError
from tablemapper.schema.model import Schema

from .http_answers import answer_of, received
from .memory import Memory

Work = Generator[Step, Any, Any]

_MOST_STEPS = 300_000  # of all clients; they take some thousands


class Killed(Exception):
    """The process ended here."""


_EXPECTED = (type(None), Killed, DeadlineExceeded, NoResponse, ErrorResponse, TableMapperError)
"""What a process may end with; anything else is a fault of the code, or of a test."""


@attrs.define
class Rates:
    """How often something goes wrong at a request, of 1."""

    crash: float = 0.0
    lost: float = 0.0
    """The request, or its answer."""
    late: float = 0.0
    """The request is executed some time after its sender was told that there is no answer."""
    busy: float = 0.0
    """The service says that it is busy, and may have executed the request."""
    stopped: float = 0.0
    """The process stands still before it sends a transaction."""
    cut: float = 0.0
    """The connection ends within the answer to a transaction."""


@attrs.define(eq=False)
class Process:
    """A generator, and those that it waits for."""

    work: Work
    rates: Rates
    parent: Process | None = None
    answer: Any = None
    error: BaseException | None = None
    waits: int = 0
    results: list[Any] = attrs.field(factory=list)
    place: int = 0
    sweeps: bool = False
    ready_at: float = 0.0
    held: Request | None = None
    """What it sends as soon as it goes on."""
    result: Any = None
    ended: bool = False

    @property
    def root(self) -> Process:
        return self if self.parent is None else self.parent.root


class Schedule:
    """A service whose clients take turns by chance."""

    def __init__(
        self, memory: Memory, seed: int, rates: Rates | None = None, late_by: float = 5.0, away: float = 60.0
    ) -> None:
        self.memory = memory
        self.rng = random.Random(seed)
        self.rates = rates or Rates()
        self.now = 0.0
        self.counts = Counter(dict.fromkeys(["requests", "killed", "lost", "late", "busy"], 0))
        self._processes: list[Process] = []
        self._late: list[tuple[float, Request]] = []
        self.late_by = late_by
        self.away = away
        """Seconds for which a process stands still at most."""

    def start(self, work: Work, rates: Rates | None = None, *, sweeps: bool = False) -> Process:
        """Add a client, with rates of its own or those of all; or one that sweeps."""
        process = Process(work, rates or self.rates, sweeps=sweeps)
        self._processes.append(process)
        return process

    def run(self) -> None:
        """Let all clients end, and late requests arrive."""
        steps = 0
        while self._processes or self._late:
            steps += 1
            assert steps < _MOST_STEPS, "the clients do not end"
            due = [one for one in self._late if one[0] <= self.now]
            if due or (self._late and (not self._processes or self.rng.random() < 0.02)):
                late = due[0] if due else self.rng.choice(self._late)
                self._late.remove(late)
                self._deliver(late[1])
                continue
            able = [one for one in self._processes if not one.waits and one.ready_at <= self.now]
            if not able:
                ready = [one.ready_at for one in self._processes if not one.waits]
                self.now = min(*ready, *[at for at, _ in self._late], math.inf)
                continue
            self._step(self.rng.choice(able))

    def _step(self, process: Process) -> None:
        self.now += 0.001
        if process.held is not None:
            held, process.held = process.held, None
            self._answer(process, held)
            return
        try:
            error, process.error = process.error, None
            step = process.work.throw(error) if error is not None else process.work.send(process.answer)
        except StopIteration as stop:
            self._end(process, stop.value, None)
            return
        except Exception as error:
            self._end(process, None, error)
            return
        process.answer = None
        match step:
            case ReadClock():
                process.answer = self.now
            case Sleep(seconds=seconds):
                process.ready_at = self.now + seconds
            case Parallel(works=works):
                process.waits, process.results = len(works), [None] * len(works)
                self._processes += [Process(work, process.rates, process, place=at) for at, work in enumerate(works)]
            case Within(request=request):
                self._send(process, request)
            case _:
                self._send(process, step)

    def _send(self, process: Process, request: Request) -> None:
        self.counts["requests"] += 1
        drawn = self.rng.random()
        rates = process.root.rates
        if drawn < rates.crash:
            if self.rng.random() < 0.5:
                self._deliver(request)
            self._kill(process.root)
            return
        drawn -= rates.crash
        if drawn < rates.late and isinstance(request, GroupTransaction):
            self.counts["late sweeps" if process.root.sweeps else "late"] += 1
            self._late.append((self.now + self.rng.random() * self.late_by, request))
            process.error = NoResponse("the request is late")
            return
        drawn -= rates.late
        if drawn < rates.stopped and isinstance(request, GroupTransaction):
            self.counts["stopped"] += 1
            process.held, process.ready_at = request, self.now + self.rng.random() * self.away
            process.root.rates = attrs.evolve(process.root.rates, crash=0.0)  # (else nobody mends what it writes late)
            return
        drawn -= rates.stopped
        if drawn < rates.lost + rates.busy:
            name = "lost" if drawn < rates.lost else "busy"
            self.counts[name] += 1
            if self.rng.random() < 0.5:
                self._deliver(request)
            process.error = NoResponse(name, 0.02 if name == "busy" else None)
            return
        drawn -= rates.lost + rates.busy
        self._answer(process, request, cut=drawn < rates.cut and isinstance(request, GroupTransaction))

    def _answer(self, process: Process, request: Request, *, cut: bool = False) -> None:
        try:
            process.answer = self.memory.send(request)
        except (NoResponse, ErrorResponse) as error:
            process.error = error
        if cut:
            assert isinstance(request, GroupTransaction)
            self.counts["cut"] += 1
            whole: Any = process.error or process.answer
            sent = answer_of(request, whole)
            part = sent[: self.rng.randrange(len(sent))]
            try:
                heard = received(request, part)
            except (NoResponse, ErrorResponse) as error:
                heard = error
            assert isinstance(heard, NoResponse) or repr(heard) == repr(whole), f"{part!r} is taken for {heard!r}"
            if isinstance(heard, NoResponse):
                process.answer, process.error = None, heard

    def _deliver(self, request: Request) -> None:
        with suppress(ErrorResponse):
            self.memory.send(request)

    def _kill(self, root: Process) -> None:
        self.counts["killed"] += 1
        for one in [one for one in self._processes if one.root is root]:
            one.work.close()
            self._processes.remove(one)
        root.error, root.ended = Killed(), True

    def _end(self, process: Process, result: Any, error: BaseException | None) -> None:
        self._processes.remove(process)
        process.result, process.error, process.ended = result, error, True
        parent = process.parent
        if parent is None and not isinstance(error, _EXPECTED):
            raise error
        if parent is not None:
            parent.results[process.place] = result
            parent.waits -= 1
            parent.error = parent.error or error
            if not parent.waits and parent.error is None:
                parent.answer = parent.results


class Clock(Protocol):
    """What says the time of a service, in seconds."""

    now: float


def left_over(memory: Memory) -> list[tuple[str, str]]:
    """Return the keys of intents and markers."""
    return [key for rows in memory.tables.values() for key in rows if key[1].startswith((INTENTS[0], MARKS[0]))]


def sweep_all(store: Store, memory: Memory, clock: Clock) -> None:
    """Sweep, hours apart, until nothing is left but what was written: each sweep spends some seconds in a partition."""
    for _ in range(30):
        clock.now += 10_000
        store.sweep(full=True)
        if not (keys := left_over(memory)):
            return
    raise AssertionError(keys)


def process_state(schema: Schema, times: Timing, ops: Iterator[int]) -> Effects[tuple[CatalogueRefresher, Outbox]]:
    """Open a store as a program does; return what it knows of the catalogue, and what is left of its writes.

    Args:
        schema: the classes of the program.
        times: how long things last.
        ops: numbers the writes of all programs.
    """
    now: float = yield ReadClock()
    published = yield from opening.open_catalogue("TableMapper", schema, 60.0, times)
    outbox = Outbox("TableMapper", times, lambda: f"{next(ops):013x}{0:012x}")
    return CatalogueRefresher("TableMapper", OpenClasses(schema, published), now, times, 60.0), outbox


def noted(work: Effects[None], sent: list[Request]) -> Effects[None]:
    """Do a work, and note the transactions that it sends by itself."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            step = work.send(answer) if error is None else work.throw(error)
        except StopIteration:
            return
        request = step.request if isinstance(step, Within) else step
        if isinstance(request, GroupTransaction):
            sent.append(request)
        answer = error = None
        try:
            answer = yield step
        except Exception as raised:
            error = raised


class Play(Protocol):
    """Processes that are drawn, and what has to hold of what they did."""

    def run(self) -> Mapping[str, int]:
        """Let all of them end, look whether it holds, and return how often what happened."""
        ...


@contextmanager
def same_each_time(seed: int) -> Iterator[None]:
    """Let the library draw the same ids, and be told the same times, whenever a seed is played."""
    ids, times = random.Random(seed), itertools.count(1_700_000_000_000_000_000, 1_000)
    uuids = (UUID(bytes=ids.randbytes(16)) for _ in itertools.count())
    with (
        mock.patch.object(secrets, "token_hex", lambda size: ids.randbytes(size).hex()),
        mock.patch.object(opening, "uuid4", partial(next, uuids)),
        mock.patch.object(time, "time_ns", partial(next, times)),
    ):
        yield


def played(play: Callable[[int], Play], seeds: Iterable[int]) -> Counter[str]:
    """Run a play for each seed, and return how often what happened in all of them."""
    counts = Counter[str]()
    for seed in seeds:
        with same_each_time(seed):
            one = play(seed)
            try:
                counts.update(one.run())
            except AssertionError as error:
                error.add_note(f"seed {seed}")
                raise
    return counts
