"""The connections of a file that read: few are kept, few more are open at once, and a thread that finds none waits.

A thread that holds a reader, because it loops over a query, never waits for another one: it would wait for itself. So
nested loops may open more than that.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

import apsw

from ....errors import StoreLocked
from .connections import DatabaseLocation, quiet_close
from .driver_errors import translated

_PATIENCE = 1.0  # seconds after which a thread that waits looks again without being woken


class _Holder(Protocol):
    @property
    def holder(self) -> int: ...


class _Waiter:
    """A thread that waits, and the reader that it was given."""

    __slots__ = ("reader", "woken")

    def __init__(self, lock: threading.Lock) -> None:
        self.reader: apsw.Connection | None = None
        self.woken = lock
        lock.acquire()

    def wake(self, reader: apsw.Connection | None = None) -> None:
        if reader is not None:
            self.reader = reader
        with suppress(RuntimeError):
            self.woken.release()


class ReaderPool:
    """Lends connections that read.

    Args:
        connections: every connection of the file, the one that writes among them.
        holders: what may hold a reader of this pool.
        keep: how many are kept while nobody uses them.
        most: how many are open at once.
        check_open: raises if the file is closed.
        monotonic: the clock of the timeout, which is that of the location.

    Attributes:
        idle: those that nobody uses.
    """

    def __init__(
        self,
        location: DatabaseLocation,
        connections: weakref.WeakSet[apsw.Connection],
        holders: Callable[[], Iterable[_Holder]],
        *,
        keep: int,
        most: int,
        check_open: Callable[[], None],
        monotonic: Callable[[], float],
        new_lock: Callable[[], threading.Lock],
    ) -> None:
        self.idle: list[apsw.Connection] = []
        self._location = location
        self._connections = connections
        self._holders = holders
        self._keep = keep
        self._most = most
        self._check_open = check_open
        self._monotonic = monotonic
        self._new_lock = new_lock
        self._opening = new_lock()
        self._waiters: deque[_Waiter] = deque()

    def take(self) -> apsw.Connection:
        """Return a reader that nobody else uses.

        Raises:
            StoreLocked: all were in use for longer than the timeout.
        """
        try:
            return self.idle.pop()
        except IndexError:
            return self._open() or self._wait()

    def take_cold(self) -> apsw.Connection:
        """Return a reader that has read nothing yet."""
        self._check_open()
        with self._opening:
            return self._connect()

    def give(self, reader: apsw.Connection) -> None:
        """Take back a reader that holds no state."""
        if self._waiters:
            with suppress(IndexError):
                self._waiters.popleft().wake(reader)
                return
        if len(self.idle) < self._keep:
            self.idle.append(reader)
        else:
            self.drop(reader)
        if self._waiters:  # a thread came to wait between the two looks
            self._wake_first()

    def drop(self, reader: apsw.Connection) -> None:
        """Close a reader that is broken, or one too many."""
        if reader in self._connections:  # in a forked child none is: they are the parent's
            quiet_close(reader)
            self._connections.discard(reader)
        if self._waiters:
            self._wake_first()

    def empty(self) -> None:
        """Close those that nobody uses."""
        with suppress(IndexError):
            while True:
                self.drop(self.idle.pop())

    def close(self) -> None:
        """Lend none any more."""
        self._keep = 0
        self.idle.clear()
        for waiter in list(self._waiters):
            waiter.wake()

    def forked(self) -> None:
        """Forget, in a child, the readers of the parent."""
        self._connections = weakref.WeakSet()
        self._waiters.clear()
        self.close()

    def _open(self) -> apsw.Connection | None:
        """Return a new reader, or None if so many are open that this thread has to wait."""
        self._check_open()
        with self._opening:
            if len(self._connections) > self._most and not self._holds():  # one of them writes
                return None
            return self._connect()

    def _connect(self) -> apsw.Connection:
        try:
            reader = self._location.reader()
        except Exception as error:
            raise translated(error, self._location.path) from error
        self._connections.add(reader)
        return reader

    def _holds(self) -> bool:
        me = threading.get_ident()
        return any(holder.holder == me for holder in self._holders())

    def _wait(self) -> apsw.Connection:
        waiter = _Waiter(self._new_lock())
        until = self._monotonic() + self._location.timeout
        lent = None
        try:
            self._waiters.append(waiter)
            while lent is None:
                try:
                    lent = self.idle.pop()
                except IndexError:
                    lent = self._open()
                if lent is None:
                    remaining = until - self._monotonic()
                    if remaining <= 0:
                        raise self._none_left()
                    waiter.woken.acquire(timeout=min(remaining, _PATIENCE))
                    lent, waiter.reader = waiter.reader, None
            return lent
        finally:
            self._leave(waiter)

    def _leave(self, waiter: _Waiter) -> None:
        """Wait no more, and pass on a reader that came too late."""
        with suppress(ValueError):
            self._waiters.remove(waiter)
        if waiter.reader is not None:
            self.give(waiter.reader)
        elif self._waiters:
            self._wake_first()

    def _wake_first(self) -> None:
        with suppress(IndexError):
            self._waiters[0].wake()

    def _none_left(self) -> StoreLocked:
        return StoreLocked(
            f'"{self._location.path}": all {self._most} connections that read were in use for longer than the timeout of '
            f"{self._location.timeout:g} s; end loops over queries sooner, collect their rows first, or raise timeout="
        )
