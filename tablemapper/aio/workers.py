"""Calls of a synchronous store, made by the tasks of one event loop.

A call is a whole operation and runs in a thread of its own, in the context (`contextvars`) of its task. A task that is cancelled waits until its call has ended,
which is a matter of milliseconds: what it wrote is then written or undone, and nothing goes on behind its back. So many
calls run at a time; further tasks wait in the order in which they came, and hold no thread while they do.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Self, TypeVar

from ..errors import StoreError, StoreLocked
from ..progress import Progress, ProgressOption

if TYPE_CHECKING:  # a program with a loop has loaded it; others need not pay for it
    import asyncio

__all__ = ["Loop", "Stop", "Workers"]

T = TypeVar("T")
P = ParamSpec("P")

_CHUNK = 256  # rows that a loop fetches at once


class Stop:
    """Ends a long call between two of its steps."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """End the call soon."""
        self._is_set = True

    def check(self) -> None:
        """Raise if the call is to end."""
        if self._is_set:
            raise _Stopped

    def items(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items until the call is to end."""
        for item in items:
            self.check()
            yield item

    def progress(self, progress: ProgressOption) -> ProgressOption:
        """Return a ``progress=`` that ends the call too. (A bar is drawn to its end.)"""
        if progress is True:
            return True

        def tell(done: Progress) -> None:
            self.check()
            if callable(progress):
                progress(done)

        return tell


class _Stopped(Exception):
    """The call was cancelled. Only its thread sees this."""


class _Once(Generic[T]):
    """A call that keeps nothing alive once it was made: the thread would until it has something else to do."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._calls = [call]

    def __call__(self) -> T:
        return self._calls.pop()()


class Workers:
    """The threads that work for one event loop.

    Args:
        threads: the most calls at a time.
        loops: the most loops over queries at a time; a task that has one open does not wait for another.
        timeout: seconds that a loop waits for others to end.
    """

    def __init__(self, *, threads: int, loops: int, timeout: float) -> None:
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        self._asyncio = asyncio
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tablemapper")
        self._free = asyncio.Semaphore(threads)
        self._most_loops = loops
        self._timeout = timeout
        self._loops: weakref.WeakSet[Loop[Any]] = weakref.WeakSet()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call in a thread, and return what it returns."""
        return await self.run_until(None, partial(call, *args, **kwargs))

    async def run_until(self, stop: Stop | None, call: Callable[[], T]) -> T:
        """Make a call that a cancelled task can stop."""
        if self._closed:
            return call()  # which is refused at once
        if self._asyncio.get_running_loop() is not self._loop:
            raise StoreError("an AsyncStore belongs to the event loop in which it was opened; open another one here")
        async with self._free:
            future = self._loop.run_in_executor(self._threads, _Once(partial(copy_context().run, call)))
            del call
            try:
                return await self._asyncio.shield(future)
            except self._asyncio.CancelledError:
                if stop is not None:
                    stop.set()
                await self._ended(future)
                raise

    async def _ended(self, future: asyncio.Future[Any]) -> None:
        """Wait for a call, even if the wait is cancelled."""
        while not future.done():
            try:
                await self._asyncio.wait([future])
            except self._asyncio.CancelledError:
                continue
        if not future.cancelled():
            future.exception()  # marked as seen, so that asyncio logs nothing

    def close(self) -> None:
        """End the threads, once they are idle."""
        self._closed = True
        self._threads.shutdown(wait=False)

    # Loops over queries

    def current_task(self) -> object:
        """Return the task that runs."""
        return self._asyncio.current_task()

    async def open(self, loop: Loop[Any]) -> None:
        """Wait until one more loop may be open."""
        task = self.current_task()
        while len(self._loops) >= self._most_loops and all(other.task is not task for other in self._loops):
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            try:
                async with self._asyncio.timeout(self._timeout):
                    await waiter
            except TimeoutError:
                raise StoreLocked(
                    f"{self._most_loops} loops over queries were open for longer than the timeout of "
                    f"{self._timeout:g} s; end them sooner, collect their rows first, or raise timeout="
                ) from None
            finally:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                elif self._waiting:
                    self._wake()  # what came to one that left is for the next
        loop.task = task
        self._loops.add(loop)

    def ended(self, loop: Loop[Any]) -> None:
        """Let the next loop begin."""
        self._loops.discard(loop)
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


class Loop(AsyncIterator[T], Generic[T]):
    """An ``async for`` over what a synchronous iterator yields: some rows at a time, never more than are needed.

    It holds a state of the store from its first row until it ends, is closed or is dropped.
    """

    def __init__(self, workers: Workers, start: Callable[[], Iterator[T]]) -> None:
        self.task: object = None
        self._workers = workers
        self._start = start
        self._source: Iterator[T] | None = None
        self._chunk: Iterator[T] = iter(())
        self._state = "new"

    def __aiter__(self) -> Self:
        return self

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise TypeError("async for is needed, not for")

    async def __anext__(self) -> T:
        for item in self._chunk:
            return item
        if self._state == "ended":
            raise StopAsyncIteration
        if self._state == "fetching":
            raise StoreError("a loop over a query belongs to one task; start one in each")
        await self._fetch()
        for item in self._chunk:
            return item
        raise StopAsyncIteration

    async def _fetch(self) -> None:
        first = self._state == "new"
        self._state = "fetching"
        try:
            if first:
                await self._workers.open(self)
            rows = await self._workers.run(self._next)
        except BaseException:
            self._end()
            raise
        self._chunk = iter(rows)
        if len(rows) < _CHUNK:
            self._end()
        else:
            self._state = "open"

    def _next(self) -> list[T]:
        if self._source is None:
            self._source = self._start()
        return list(islice(self._source, _CHUNK))

    def _end(self) -> None:
        ended, self._state = self._state == "ended", "ended"
        self._source = None  # with the last reference goes the state of the store
        if not ended:
            self._workers.ended(self)

    async def aclose(self) -> None:
        """End the loop early. Leaving it and dropping the iterator does the same."""
        self._chunk = iter(())
        self._end()

    def __del__(self) -> None:
        if getattr(self, "_state", "new") not in ("new", "ended"):
            self._end()
