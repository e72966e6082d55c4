"""Runs what generators say: requests, several works side by side, pauses.

A work is a generator that yields requests and is sent their answers; `NoResponse` and `ErrorResponse` are raised where it stands.
So the same work runs over a network, and step by step under a schedule that loses answers.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeAlias, TypeVar, cast

import attrs

from ....entities.etag import Stamp
from ....errors import CorruptStore, OutcomeUnknown, StoreError, TableMapperError
from ....progress import check_cancelled
from ...protocol import NoteConflict
from .elapsed_clock import http_time
from .service import (
    WAIT,
    Entity,
    EntityPage,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    QueryEntities,
    Request,
    RowChange,
    Service,
)

T = TypeVar("T")

CLOCK = "clock"
"""The partition of a catalogue whose one row is written for the time of that."""
_THREADS = 16
_LEAST = 1.0  # seconds for which an answer is waited for, if so many are left
_BRIEF = 0.25  # seconds before the end of a timeout after which nothing is sent any more
_SLICE = 0.05  # seconds of a pause, after which a cancellation is seen
ATTEMPTS = 30  # of a work that others are faster than
PARALLEL = 16  # works that run side by side, where they may be many
EXPECTED = (NoResponse, ErrorResponse, TableMapperError)
"""What a work may end with without a fault of the code; of anything else the traceback is kept."""


@attrs.frozen
class Parallel:
    """Several works, side by side; answered by what each returned."""

    works: Sequence[Effects[Any]]


@attrs.frozen
class Sleep:
    """So many seconds."""

    seconds: float


@attrs.frozen
class ReadClock:
    """The time in seconds of a clock that never goes back."""


@attrs.frozen
class Within:
    """A request whose answer is waited for only so many seconds."""

    request: Request
    seconds: float


Step: TypeAlias = Request | Within | Parallel | Sleep | ReadClock
Effects: TypeAlias = Generator[Step, Any, T]


def clock() -> Effects[float]:
    """Return the time of a clock that never goes back, in seconds."""
    clock_now: float = yield ReadClock()
    return clock_now


def delay(attempt: int, no_response: NoResponse | None = None) -> Sleep:
    """Return how long to wait before another attempt: as the service asked, else ever longer, up to 2 s."""
    if no_response is not None and no_response.retry_after is not None:
        return Sleep(no_response.retry_after)
    return Sleep(min(0.05 * 2 ** min(attempt, 6), 2.0) * (0.5 + random.random()))


def within(request: Request, seconds_left: float) -> Request | Within:
    """Return a request as it is sent while so many seconds are left: where there is time, it can be sent once more."""
    wait = max(seconds_left / 2, min(seconds_left, _LEAST), _BRIEF)
    return request if wait >= WAIT else Within(request, wait)


def pause(seconds_left: float, attempt: int, no_response: NoResponse | None = None) -> Sleep | None:
    """Return how long to wait before another attempt while so many seconds are left; None if there is to be none."""
    return None if seconds_left <= _BRIEF else Sleep(min(delay(attempt, no_response).seconds, seconds_left / 2))


def read(request: Request, timeout: float, final: Collection[int] = ()) -> Effects[Any]:
    """Send a request that changes nothing, or may be repeated, until an answer comes.

    Args:
        request: what is sent.
        timeout: seconds after which to give up.
        final: statuses at which it is not sent again.

    Raises:
        StoreError: no answer came.
        NoResponse: one with such a status.
        ErrorResponse
    """
    began = clock_now = cast(float, (yield ReadClock()))
    attempt = 0
    while True:
        try:
            return (yield within(request, began + timeout - clock_now))
        except NoResponse as no_response:
            if no_response.status in final:
                raise
            clock_now = yield ReadClock()
            step = pause(began + min(timeout, no_response.patience) - clock_now, attempt, no_response)
            if step is None:
                raise StoreError(f"the service does not answer: {no_response}") from None
            yield step
            clock_now = yield ReadClock()
            attempt += 1


def proven(work: Effects[T], unknown: Callable[[str], OutcomeUnknown], why: str | None = None) -> Effects[T]:
    """Return what a work finds out after a request without an answer.

    Args:
        work: looks what came of the request.
        unknown: makes an error of a reason.
        why: the reason; None: what the work ends with.

    Raises:
        OutcomeUnknown: the work ended with something that is no proof.
        NoteConflict: what is noted is another thing.
    """
    try:
        return (yield from work)
    except (OutcomeUnknown, NoteConflict):
        raise
    except Exception as error:
        raise unknown(why or str(error)) from (None if isinstance(error, EXPECTED) else error)


def server_time(catalogue: str, timeout: float) -> Effects[int]:
    """Return the clock of the service in µs: that of a row that is written for it."""
    (etag,) = yield from read(GroupTransaction(catalogue, CLOCK, (RowChange("upsert", "", {}),)), timeout)
    return int(Stamp(etag))


def found(find: QueryEntities, timeout: float) -> Effects[list[Entity]]:
    """Read all entities of a request."""
    return (yield from found_with_date(find, timeout))[0]


def found_with_date(find: QueryEntities, timeout: float) -> Effects[tuple[list[Entity], str]]:
    """Read all entities of a request; return them, and when they were read by the clock of the service."""
    page: EntityPage = yield from read(find, timeout)
    entities, date = list(page.entities), page.date
    while page.after is not None:
        page = yield from read(attrs.evolve(find, after=page.after), timeout)
        entities += page.entities
    return entities, date


def time_of(date: str) -> int | None:
    """Return the µs of a date as HTTP has it; None if it is none."""
    try:
        return int(http_time(date)) * 1_000_000
    except ValueError:
        return None


def side_by_side(works: Sequence[Effects[T]]) -> Effects[list[T]]:
    """Run works, one alone without further ado."""
    if len(works) == 1:
        return [(yield from works[0])]
    results: list[T] = (yield Parallel(works)) if works else []
    return results


def in_batches(works: Sequence[Effects[T]], size: int = PARALLEL) -> Effects[list[T]]:
    """Run works, some side by side, the next ones after them."""
    results: list[T] = []
    for at in range(0, len(works), size):
        results += yield from side_by_side(works[at : at + size])
    return results


class Driver:
    """Runs works over a service.

    Args:
        service: sends the requests.
        monotonic, sleep: the clock.

    Attributes:
        names: the tables that are called otherwise in the account, by their public names: those that a migration made. What
            creates and deletes tables calls them as the account does.
        has_lost: whether the answer to a request was lost, so that it may be executed later.
    """

    def __init__(
        self,
        service: Service,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.names: Callable[[], Mapping[str, str]] = dict
        self.has_lost: bool = False
        self._service = service
        self._monotonic = monotonic
        self._sleep = sleep
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tablemapper-azure")
        self._inside = threading.local()

    def run(self, work: Effects[T]) -> T:
        """Return what a work returns."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = work.send(answer) if error is None else work.throw(error)
            except StopIteration as stop:
                value: T = stop.value
                return value
            answer = error = None
            try:
                answer = self._answer(step)
            except Exception as raised:
                error = raised
            except BaseException:
                work.close()  # (here: what it gives back needs locks, which a thread may hold that collects garbage)
                raise

    def _answer(self, step: Step) -> Any:
        match step:
            case ReadClock():
                return self._monotonic()
            case Sleep(seconds=seconds):
                return self._pause(seconds)
            case Parallel(works=works):
                return self._all(works)
            case Within(request=request, seconds=seconds):
                return self._send(request, seconds)
        return self._send(step)

    def _send(self, request: Request, *wait: float) -> Any:
        check_cancelled()
        table = ""
        if isinstance(request, GetEntity | QueryEntities | GroupTransaction):
            table = self.names().get(request.table, request.table)
            if table != request.table:
                request = attrs.evolve(request, table=table)
        try:
            return self._service.send(request, *wait)
        except NoResponse:
            self.has_lost = True
            raise
        except ErrorResponse as refusal:
            refusal.table = table
            raise

    def _pause(self, seconds: float) -> None:
        while seconds > 0:
            check_cancelled()
            self._sleep(min(seconds, _SLICE))
            seconds -= _SLICE

    def _all(self, works: Sequence[Effects[Any]]) -> list[Any]:
        if getattr(self._inside, "pool", False) or len(works) == 1:  # (no pool inside of the pool)
            return [self.run(work) for work in works]
        futures = [self._pool.submit(copy_context().run, self._one, work) for work in works]
        errors = [error for future in futures if (error := future.exception()) is not None]  # (all have ended then)
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def begin(self, work: Effects[T]) -> Callable[[], T]:
        """Begin a work in another thread; return what waits for its end, and returns what it returned."""
        if getattr(self._inside, "pool", False):
            return lambda: self.run(work)
        return self._pool.submit(copy_context().run, self._one, work).result

    def _one(self, work: Effects[T]) -> T:
        self._inside.pool = True
        return self.run(work)

    def beside(self) -> Driver:
        """Return a driver over the same service, with names of its own for tables; close it first."""
        return Driver(_Shared(self._service), monotonic=self._monotonic, sleep=self._sleep)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False)
        self._service.close()


@attrs.frozen
class _Shared:
    """A service that another driver closes."""

    _service: Service

    def send(self, request: Request, *wait: float) -> Any:
        return self._service.send(request, *wait)

    def close(self) -> None: ...


@contextmanager
def store_errors(name: str, look: Callable[[str], object] = lambda _: None) -> Iterator[None]:
    """Return a context manager in which what the service of an account answers becomes an error of the store.

    Args:
        name: of the account.
        look: is called with the name of a table that is not there, and raises if a migration has replaced it, or it was dropped.
    """
    try:
        yield
    except NoResponse as no_response:
        raise StoreError(f"{name}: {no_response}") from None
    except CorruptStore as error:
        if isinstance(error.__cause__, ErrorResponse):  # (of a write)
            look(error.__cause__.table)
        raise
    except ErrorResponse as refusal:
        if refusal.denial:
            raise StoreError(f"{name}: {refusal.denial}") from None
        if refusal.code == "TableNotFound":
            look(refusal.table)
            raise CorruptStore(f"{name}: {refusal.gone}") from None
        raise StoreError(f"{name}: {refusal}") from None
