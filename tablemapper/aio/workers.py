"""Threads that make the calls of a synchronous store for the tasks of one event loop.

A call is a whole operation and runs in a thread, in the context (`contextvars`) of its task. So many run at a time;
further ones wait in the order in which they came, and hold no thread while they do. A task that is cancelled goes on
once its call has ended, which is a matter of milliseconds: what it wrote is then written or undone, and nothing goes on
behind its back. A call that no thread has begun is never made.

Most of what a short call costs is waking another thread, twice. So a busy thread takes one call after the other, of idle
threads the one that was busy last is woken, and the event loop is woken once for all calls that have ended by then.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ..errors import StoreClosed, StoreError, StoreLocked
from .cancellation import Cancellation

if TYPE_CHECKING:
    from .cursor import AsyncCursor

__all__ = ["OpenCursors", "Workers"]

T = TypeVar("T")
P = ParamSpec("P")


class Workers:
    """The threads that work for the running event loop. They end when they are closed or dropped.

    Args:
        threads: the most calls at a time.
        cursors: the most open cursors at a time.
        timeout: seconds that a cursor waits for others to end.
    """

    clock = staticmethod(time.monotonic)
    current_task = staticmethod(asyncio.current_task)

    def __init__(self, *, threads: int, cursors: int, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = _Threads(self._loop, threads, self.clock)
        self.waited = self._threads.waited
        self._end = weakref.finalize(self, self._threads.end)
        self.cursors = OpenCursors(self._loop, cursors, timeout)

    @property
    def closed(self) -> bool:
        """Whether no further call is taken."""
        return not self._end.alive

    def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Make a call in a thread. The task that asks for it is to await it at once."""
        return self._make(_Call(self._loop, None, function, args, kwargs))

    def run_until(self, cancellation: Cancellation, function: Callable[[], T]) -> asyncio.Future[T]:
        """Make a call that its task can cancel while it runs."""
        return self._make(_Call(self._loop, cancellation, function, (), {}))

    def _make(self, call: _Call) -> _Call:
        if self.closed:
            raise StoreClosed("the store is closed; open it again")
        if asyncio.get_running_loop() is not self._loop:
            raise StoreError("an AsyncStore belongs to the event loop in which it was opened; open another one here")
        self._threads.take(call)
        return call

    def close(self) -> None:
        """End the threads, once they have made the calls that came before. Safe to call twice."""
        self._end()


class _Call(asyncio.Future[Any]):
    """A call, and what its task waits for.

    A task that is cancelled cancels what it waits for. A call agrees to that only while no thread has begun it.
    Otherwise the task waits on, and asyncio raises CancelledError in it once the call has ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cancellation: Cancellation | None,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        super().__init__(loop=loop)
        self.since = 0.0
        self._cancellation = cancellation
        self._work = [
            (copy_context(), function, args, kwargs)
        ]  # the thread takes it out, or the task that is cancelled: one of both

    def begin(self) -> _Work | None:
        """Return what is to be called, in a thread; None if the call was cancelled before."""
        try:
            return self._work.pop()
        except IndexError:
            return None

    def cancel(self, msg: Any | None = None) -> bool:
        try:
            self._work.pop()
        except IndexError:
            if self._cancellation is not None:
                self._cancellation.set()
            return False
        return super().cancel(msg)


_Work = tuple[Context, Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_Outcome = tuple[Any, BaseException | None]
"""What a call returned, and None; or None, and what it raised."""


def _outcome(context: Context, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Outcome:
    # An error keeps the frames that it went through: the call, which keeps the error, may not be in one of them.
    try:
        return context.run(function, *args, **kwargs), None
    except StopIteration as error:  # in a coroutine it would mean something else
        replaced = RuntimeError("a function that was called in a thread raised StopIteration")
        replaced.__cause__ = error
        return None, replaced
    except BaseException as error:
        return None, error


class _Wait(threading.local):
    """For how long the call that a thread makes waited for it."""

    seconds = 0.0


class _Threads:
    """Threads that take calls, and give what came of them to the event loop.

    An idle thread waits for a lock of its own. A new call wakes one, unless a thread is about to look for calls anyway.
    A thread that leaves calls to others wakes the next. Nothing here is locked: a thread says that it is idle and then
    looks once more, so a call that comes meanwhile is seen by one of both; at worst a thread is woken for nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._clock = clock
        self._wait = _Wait()
        self._calls: deque[_Call] = deque()
        self._idle: list[threading.Lock] = []
        self._waking = False  # a thread was woken, and has not looked for calls yet
        self._looking = False  # a thread is done with its call, and has not looked for another yet
        self._ended: deque[tuple[_Call, _Outcome]] = deque()
        self._settling = False  # the event loop was woken, and has not looked for calls that have ended yet
        self._over = False
        self._unused = [f"tablemapper-{number}" for number in range(most, 0, -1)]
        self._start(self._unused.pop())  # one is enough, if the system gives no more

    def take(self, call: _Call) -> None:
        """Have a call made by a thread."""
        call.since = self._clock()
        self._calls.append(call)
        if not (self._looking or self._waking):
            self._wake()

    def end(self) -> None:
        """Let every thread end that finds no further call."""
        self._over = True
        with suppress(IndexError):
            while True:
                self._idle.pop().release()

    def _wake(self) -> None:
        self._waking = True
        try:
            self._idle.pop().release()
        except IndexError:
            try:
                self._start(self._unused.pop())
            except (IndexError, RuntimeError):  # all are busy, and look for calls when they are not
                self._waking = False

    def _start(self, name: str) -> None:
        threading.Thread(target=self._work, name=name, daemon=True).start()

    # In a thread

    def waited(self) -> float:
        """Return the seconds for which the call that this thread makes waited for it; once, then 0.

        Of a call that writes several times, only the first write is as late as that.
        """
        wait = self._wait
        seconds, wait.seconds = wait.seconds, 0.0
        return seconds

    def _work(self) -> None:
        wake = threading.Lock()
        wake.acquire()
        while True:
            self._waking = False
            for call in iter(self._next, None):
                self._looking = False
                if self._calls and not self._waking:
                    self._wake()
                work = call.begin()
                self._wait.seconds = self._clock() - call.since
                outcome = None if work is None else _outcome(*work)
                del work  # its task may want to be the last that holds it
                self._looking = True
                if outcome is not None:
                    self._deliver(call, outcome)
                del call, outcome  # the next call may be far
            self._looking = False
            if self._over:
                return
            self._idle.append(wake)
            if not (self._calls or self._over) or not self._withdraw(wake):
                wake.acquire()

    def _next(self) -> _Call | None:
        try:
            return self._calls.popleft()
        except IndexError:
            return None

    def _withdraw(self, wake: threading.Lock) -> bool:
        """Be idle no longer, for what came meanwhile; tell whether nobody was faster and wakes this thread."""
        try:
            self._idle.remove(wake)
        except ValueError:
            return False
        return True

    def _deliver(self, call: _Call, outcome: _Outcome) -> None:
        self._ended.append((call, outcome))
        if not self._settling:
            self._settling = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._settle)

    # In the event loop

    def _settle(self) -> None:
        self._settling = False
        while self._ended:
            call, (result, error) = self._ended.popleft()
            if error is None:
                call.set_result(result)
            else:
                call.set_exception(error)


class OpenCursors:
    """The cursors of an async store that hold a state of it: so many at a time, the others wait their turn.

    A task that has one open does not wait for another.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int, timeout: float) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._most = most
        self._timeout = timeout
        self._open: weakref.WeakSet[AsyncCursor[Any]] = weakref.WeakSet()
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self, cursor: AsyncCursor[Any]) -> None:
        """Wait until one more cursor may be open."""
        task = asyncio.current_task()
        while len(self._open) >= self._most and all(other.task is not task for other in self._open):
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            try:
                async with asyncio.timeout(self._timeout):
                    await waiter
            except TimeoutError:
                raise StoreLocked(
                    f"{self._most} loops over queries were open for longer than the timeout of "
                    f"{self._timeout:g} s; end them sooner, collect their rows first, or raise timeout="
                ) from None
            finally:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                elif self._waiting:
                    self._wake()  # what came to one that left is for the next
        cursor.task = task
        self._open.add(cursor)

    def leave(self, cursor: AsyncCursor[Any]) -> None:
        """Let the next cursor open."""
        self._open.discard(cursor)
        if threading.get_ident() == self._thread:
            self._wake()
        elif not self._loop.is_closed():  # the garbage collector ran in another thread
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
