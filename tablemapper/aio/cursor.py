"""The cursor behind ``async for`` over a query."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, Self, TypeVar

from ..errors import StoreError

T = TypeVar("T")

_CHUNK = 256  # rows that a cursor fetches at once


class _Cursors(Protocol):
    """The open cursors of a store; see `workers.OpenCursors`."""

    async def enter(self, cursor: AsyncCursor[Any]) -> None: ...
    def leave(self, cursor: AsyncCursor[Any]) -> None: ...


class _Workers(Protocol):
    """A runner of functions in threads; see `workers.Workers`, which imports asyncio."""

    @property
    def cursors(self) -> _Cursors: ...
    def run(self, function: Callable[[], T], /) -> Awaitable[T]: ...


class AsyncCursor(AsyncIterator[T], Generic[T]):
    """An ``async for`` over what a synchronous iterator yields: some rows at a time, never more than are needed.

    It holds a state of the store from its first row until it ends, is closed or is dropped.
    """

    def __init__(self, workers: _Workers, start: Callable[[], Iterator[T]]) -> None:
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
            raise TypeError("an asynchronous iterator needs async for")

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
                await self._workers.cursors.enter(self)
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
        was_ended, self._state = self._state == "ended", "ended"
        self._source = None  # with the last reference goes the state of the store
        if not was_ended:
            self._workers.cursors.leave(self)

    async def aclose(self) -> None:
        """End the loop early. Leaving it and dropping the iterator does the same."""
        self._chunk = iter(())
        self._end()

    def __del__(self) -> None:
        if getattr(self, "_state", "new") not in ("new", "ended"):
            self._end()
