"""Threads that make the calls of a synchronous store for the tasks of one event loop.

A call is a whole operation and runs in a thread, in the context (`contextvars`) of its task. So many run at a time;
further ones wait in the order in which they came, and hold no thread while they do. A cancelled task goes on once its
call has ended, within milliseconds. Its write is complete or undone by then, and no thread works on it any more. A call
that no thread has begun is never made.

Waking another thread, twice, is most of the cost of a short call. So a busy thread takes one call after the other. Of
idle threads, the one that was busy last is woken. The event loop is woken once for all calls that have ended by then.
Calls that many tasks make at once wake one thread, after the last of them. That thread makes the brief calls alone, and
wakes the event loop after the last. A timer wakes another thread if a call takes longer than expected.

An interrupt (`KeyboardInterrupt`) may come to the event loop anywhere, and loses the callback that was about to run. So
each wake-up flag has an expiry time. A cancelled task, as asyncio cancels it after an interrupt, looks again.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ..errors import StoreClosed, StoreError, StoreLocked
from ..progress import cancelling
from .cancellation import Cancellation

if TYPE_CHECKING:
    from .cursor import AsyncCursor

T = TypeVar("T")
P = ParamSpec("P")

_BRIEF = 0.002  # seconds for which brief calls that have ended, or wait for the same thread, may be kept waiting
_STUCK = 0.01  # seconds after which the event loop looks whether one of them keeps the others waiting


class Workers:
    """The threads that work for the running event loop. They end when they are closed or dropped.

    Args:
        threads: the most calls at a time.
        cursors: the most open cursors at a time.
        timeout: seconds that a cursor waits for others to end.
    """

    quick_reads = True
    """Whether a brief call takes less time than waking a thread; if not, each call can be cancelled while it runs."""
    clock: staticmethod[[], float] = staticmethod(time.monotonic)
    current_task: staticmethod[[], asyncio.Task[Any] | None] = staticmethod(asyncio.current_task)
    sleep: staticmethod[[float], Coroutine[Any, Any, None]] = staticmethod(asyncio.sleep)

    def __init__(self, *, threads: int, cursors: int, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = _Threads(self._loop, threads, self.clock)
        self.waited: Callable[[], float] = self._threads.waited
        weakref.finalize(self, self._threads.end)
        self._threads.start()  # not before something ends them
        self.cursors: OpenCursors = OpenCursors(self._loop, cursors, timeout)

    @property
    def closed(self) -> bool:
        """Whether no further call is taken."""
        return self._threads.over

    def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Make a call in a thread. The task that asks for it is to await it at once."""
        return self.make(function, args, kwargs)

    def run_until(self, cancellation: Cancellation, function: Callable[[], T]) -> asyncio.Future[T]:
        """Make a call that its task can cancel while it runs."""
        return self.make(function, (), {}, cancellation=cancellation)

    def make(
        self,
        function: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        brief: bool = False,
        cancellation: Cancellation | None = None,
    ) -> asyncio.Future[T]:
        """Make a call in a thread.

        Args:
            function: what is called.
            args: its arguments by position.
            kwargs: its arguments by name.
            brief: it takes less time than waking a thread, so others may wait for it.
            cancellation: is set when the task is cancelled while the call runs.
        """
        loop = self._loop
        if self._threads.over:
            raise StoreClosed("the store is closed; open it again")
        if asyncio.get_running_loop() is not loop:
            raise StoreError("an AsyncStore belongs to the event loop in which it was opened; open another one here")
        context = copy_context()
        if not self.quick_reads:
            brief, cancellation = False, cancellation or Cancellation()
            context.run(cancelling.set, cancellation.check)
        call = _Call(loop=loop)  # without a constructor of its own, which would double what a call costs the loop
        call.cancellation = cancellation
        call.brief = brief
        call.settle = self._threads.settle
        call.work = [(context, function, args, kwargs)]
        self._threads.take(call)
        return call

    def close(self) -> None:
        """End the threads, once they have made the calls that came before. Safe to call twice."""
        self._threads.end()


class _Call(asyncio.Future[Any]):
    """A call, and what its task waits for.

    A task that is cancelled cancels what it waits for. A call agrees to that only while no thread has begun it.
    Otherwise the task waits on, and asyncio raises CancelledError in it once the call has ended.
    """

    __slots__ = ("brief", "cancellation", "settle", "since", "work")

    brief: bool
    cancellation: Cancellation | None
    settle: Callable[[], None]
    since: float
    work: list[_Work]  # the thread takes it out, or the task that is cancelled: one of both

    def begin(self) -> _Work | None:
        """Return the function to call in a thread; None if the call was cancelled before."""
        try:
            return self.work.pop()
        except IndexError:
            return None

    def cancel(self, msg: Any | None = None) -> bool:
        try:
            self.work.pop()
        except IndexError:
            if self.cancellation is not None:
                self.cancellation.set()
            self.get_loop().call_soon(self.settle)  # it may have ended, and the word of it be lost
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
    """The time that a call waited for its thread."""

    seconds = 0.0


class _Threads:
    """Threads that take calls, and give what came of them to the event loop.

    An idle thread waits for a lock of its own. A new call wakes one, unless a thread is about to look for calls anyway.
    A thread that leaves calls to others wakes the next; brief ones it makes itself, and gives what came of them to the
    event loop after the last. Nothing here is locked: a thread says that it is idle, and then looks once more. So the
    thread or the event loop sees a call that comes meanwhile. At worst a thread is woken for nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._clock = clock
        self._wait = _Wait()
        self._calls: deque[_Call] = deque()
        self._idle: list[threading.Lock] = []  # the last one belongs to the thread that was busy last
        self._waking = 0.0  # until when a thread that was woken, and has not looked for calls yet, is trusted to
        self._looking = False  # a thread is done with its call, and has not looked for another yet
        self._gathering = 0.0  # until when the event loop is trusted to look for calls that came together
        self._has_many = False  # when it last looked, several had come
        self._guarded = 0.0  # until when a timer is trusted to look whether calls are kept waiting
        self._outcomes: deque[tuple[_Call, _Outcome]] = deque()
        self._settling = 0.0  # until when the event loop, which was woken, is trusted to look for calls that have ended
        self.over = False
        self._names = iter([f"tablemapper-{number}" for number in range(1, most + 1)])

    def start(self) -> None:
        """Start the first thread: one is enough, if the system gives no more."""
        self._start(next(self._names))

    def take(self, call: _Call) -> None:
        """Have a call made by a thread."""
        if not call.brief:
            call.since = self._clock()
        self._calls.append(call)
        if self._gathering and self._clock() < self._gathering:
            return
        if self._has_many or len(self._calls) > 1:
            self._loop.call_soon(self._gather)
            self._gathering = self._clock() + _STUCK
        else:
            self._wake_unless_looking()

    def _gather(self) -> None:
        """Wake a thread for the calls of all tasks that have asked by now."""
        self._gathering = 0.0
        self._has_many = len(self._calls) > 1
        if not self._guarded or self._guarded <= self._clock():
            self._guard()
        self._wake_unless_looking()

    def _guard(self) -> None:
        """Look later whether a call that was to be brief keeps others waiting."""
        self._loop.call_later(_STUCK, self._relieve)
        self._guarded = self._clock() + 2 * _STUCK

    def _relieve(self) -> None:
        self._guarded = 0.0
        self.settle()
        if self._calls:
            self._guard()
            self._wake()

    def _wake_unless_looking(self) -> None:
        if self._calls and not (self._looking or (self._waking and self._clock() < self._waking)):
            self._wake()

    def end(self) -> None:
        """Let every thread end that finds no further call. Safe to call twice."""
        self.over = True
        for wake in tuple(self._idle):
            with suppress(RuntimeError):  # it was woken already
                wake.release()

    def _wake(self) -> None:
        self._waking = self._clock() + _STUCK
        try:
            # The thread itself takes it out: were it taken out here, an interrupt could come before it is released.
            self._idle[-1].release()
        except IndexError:
            try:
                self._start(next(self._names))
            except (StopIteration, RuntimeError):  # all are busy, and look for calls when they are not
                self._waking = 0.0
        except RuntimeError:  # it was woken already, and has not come so far yet
            pass

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
        calls, clock = self._calls, self._clock
        while True:
            self._waking = 0.0
            last_begun = announced = clock()
            while True:
                try:
                    call = calls.popleft()
                except IndexError:
                    break
                self._looking = False
                time = clock()
                brief = call.brief
                if calls and not self._waking and (not brief or time - last_begun > _BRIEF):
                    self._wake()
                if not (brief and self._guarded) or time - announced > _BRIEF:
                    self._announce()
                    announced = time
                last_begun = time
                work = call.begin()
                if not brief:
                    self._wait.seconds = clock() - call.since
                outcome = None if work is None else _outcome(*work)
                del work  # its task may want to be the last that holds it
                self._looking = True
                if outcome is not None:
                    self._outcomes.append((call, outcome))
                    if not brief:
                        self._announce()
                del call, outcome  # the next call may be far
            self._announce()
            self._looking = False
            if self.over:
                return
            self._idle.append(wake)
            wake.acquire(blocking=not (self._calls or self.over))  # what came meanwhile may have woken another one
            self._idle.remove(wake)
            wake.acquire(blocking=False)  # by now nobody wakes it any more

    def _announce(self) -> None:
        """Wake the event loop for the calls that have ended."""
        if self._outcomes and not (self._settling and self._clock() < self._settling):
            self._settling = self._clock() + _STUCK
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self.settle)

    # In the event loop

    def settle(self) -> None:
        """Give the calls that have ended what came of them."""
        try:
            self._settling = 0.0
            while self._outcomes:
                call, (result, error) = self._outcomes[0]
                if not call.done():  # an interrupt came before it was taken out
                    if error is None:
                        call.set_result(result)
                    else:
                        call.set_exception(error)
                self._outcomes.popleft()
        except BaseException:
            self._loop.call_soon(self.settle)
            raise


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
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def enter(self, cursor: AsyncCursor[Any]) -> None:
        """Wait until one more cursor may be open."""
        task = asyncio.current_task()
        while len(self._open) >= self._most and all(open_cursor.task is not task for open_cursor in self._open):
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout(self._timeout):
                    await waiter
            except TimeoutError:
                raise StoreLocked(
                    f"{self._most} loops over queries were open for longer than the timeout of "
                    f"{self._timeout:g} s; end them sooner, collect their rows first, or raise timeout="
                ) from None
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                elif self._waiters:
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
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
