"""Whose turn it is to write, among the processes that share a file.

SQLite's own lock is taken by whoever happens to ask when it is free: of processes that write without a pause, one gets
thousands of transactions and another none for seconds. So whoever is about to write draws a ticket first, from a counter
in a file beside the store. Each ticket is a byte of that file, which its owner keeps locked until it has written; whoever
has the next one waits for that lock. So the turn goes through the tickets, and who asks again at once is last, however
much faster it is than the one that has to wake up.

This gives order, and nothing else. SQLite's lock still decides who may write, a process that dies gives back what it
held, and where there are no such locks (a file system without, Windows) things are as they were.
"""

from __future__ import annotations

import _thread
import importlib
import os
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

__all__ = ["SUFFIX", "Turns"]

SUFFIX = "-turn"

_COUNTER = 0  # the byte that is locked by who draws
_FIRST = 1  # the byte of the ticket 0
_MOST = 1 << 62
_FLOCK = "hhqqi"

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None


def _nothing() -> None:
    pass


class _Tickets:
    """The tickets at one descriptor.

    Its locks are those of an open file, not of a process, so that two stores of one process wait for each other too, and
    closing one file loses no lock of another. Where they can not be had of parts of a file (macOS) there is no order.

    Attributes:
        give: give back all that is locked; without effect if that is nothing. A call that no interrupt can come into.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._ordered = hasattr(fcntl, "F_OFD_SETLK")
        self.give: Callable[[], object]
        if self._ordered:
            everything = struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)
            self.give = partial(fcntl.fcntl, descriptor, fcntl.F_OFD_SETLK, everything)
        else:
            self.give = partial(fcntl.flock, descriptor, fcntl.LOCK_UN)

    def draw(self, *, wait: bool) -> int:
        """Take the next ticket, and return the one before it, which is to be awaited.

        Raises:
            BlockingIOError: another draws one just now, and ``wait`` is false.
        """
        if not self._ordered:
            return 0
        self._lock(_COUNTER, wait=wait)
        before = int.from_bytes(os.pread(self._descriptor, 8, 0), "little") % _MOST
        self._lock(_FIRST + before + 1, wait=wait)
        os.pwrite(self._descriptor, (before + 1).to_bytes(8, "little"), 0)
        self._lock(_COUNTER, kind=fcntl.F_UNLCK)
        return before

    def follow(self, before: int, *, wait: bool) -> None:
        """Take the turn after the owner of a ticket.

        Raises:
            BlockingIOError: it has not given it back, and ``wait`` is false.
        """
        if self._ordered:
            self._lock(_FIRST + before, wait=wait)
        else:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _lock(self, byte: int, *, wait: bool = False, kind: int | None = None) -> None:
        lock = struct.pack(_FLOCK, fcntl.F_WRLCK if kind is None else kind, os.SEEK_SET, byte, 1, 0)
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, lock)


class Turns:
    """The turns of one process at one file.

    Args:
        path: the store; None for one that no other process can see.
        monotonic: the clock of deadlines.
        new_lock: makes locks.

    Attributes:
        give: give the turn back; without effect if there is none to give. A call that no interrupt can come into, so
            that ``try: take() … finally: give()`` never keeps a turn.
    """

    def __init__(
        self, path: str | None, *, monotonic: Callable[[], float], new_lock: Callable[[], threading.Lock]
    ) -> None:
        self.give: Callable[[], object] = _nothing
        self._path = path
        self._monotonic = monotonic
        self._new_lock = new_lock
        self._file = -1
        self._tickets: _Tickets | None = None
        self._place: _Place | None = None

    def take(self, until: float) -> bool:
        """Wait for the turn, until a moment of the clock; tell whether it came. For one thread at a time."""
        if self._path is None or fcntl is None:
            return True
        try:
            tickets = self._tickets or self._begin(self._path)
            self.give = tickets.give
            while True:
                place = self._place  # there is one already if this process gave up waiting before
                if place is None or place.ended:
                    place = self._place = self._ask(tickets)
                if place is None or place.wait(max(until - self._monotonic(), 0.0)):
                    self._place = None
                    return True
                if not place.ended:
                    self.give = _nothing  # the ticket is kept
                    return False
        except (OSError, RuntimeError):  # there are no such locks here, or no thread can be started
            self._close()
            self._path = None  # from now on it is done without
            return True

    def _ask(self, tickets: _Tickets) -> _Place | None:
        """Take the turn, or a place among those that wait for it."""
        before = None
        try:
            before = tickets.draw(wait=False)
            tickets.follow(before, wait=False)
        except BlockingIOError:
            return _Place(self._file, tickets, before, self._new_lock)
        return None

    def _begin(self, path: str) -> _Tickets:
        """Open the file of the tickets."""
        while True:
            mode = os.stat(path).st_mode & 0o666
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(path + SUFFIX, flags, mode)
            if os.fstat(self._file).st_nlink:
                break
            os.close(self._file)  # who closed the store last removed it just now
        self._tickets = _Tickets(self._file)
        return self._tickets

    def close(self) -> None:
        """Forget the turns; the last to do so removes the file."""
        if self._tickets is None or self._path is None:
            return
        with suppress(OSError):
            self._tickets.follow(self._tickets.draw(wait=False), wait=False)
            if not os.path.exists(self._path + "-shm"):  # nobody else has the store open
                os.unlink(self._path + SUFFIX)
        self._close()

    def _close(self) -> None:
        descriptor, self._file = self._file, -1
        place, self._place = self._place, None
        self.give = _nothing
        self._tickets = None
        if descriptor >= 0 and (place is None or not place.leave_open()):
            with suppress(OSError):
                os.close(descriptor)

    def forked(self) -> None:
        """Forget, in a child, the turns of the parent: a copy of the descriptor would keep them if the parent died."""
        self._place = None
        self._close()


class _Place:
    """A place among the processes that wait.

    A thread stands in it, since no lock of files knows a timeout; it ends with the turn. If nobody wants the turn any
    more when it comes, the thread gives it back.

    Args:
        before: the ticket before the own one; None if there is none yet.
    """

    def __init__(
        self, descriptor: int, tickets: _Tickets, before: int | None, new_lock: Callable[[], threading.Lock]
    ) -> None:
        self.ended = False
        self._tickets = tickets
        self._before = before
        self._descriptor = descriptor
        self._wanted = False
        self._closes = False
        self._deciding = new_lock()
        self._came = new_lock()
        self._came.acquire()
        _thread.start_new_thread(self._stand, ())

    def _stand(self) -> None:
        with suppress(OSError):
            before = self._tickets.draw(wait=True) if self._before is None else self._before
            self._tickets.follow(before, wait=True)
        with self._deciding:
            self.ended = True
            with suppress(OSError):
                if not self._wanted:
                    self._tickets.give()
                if self._closes:
                    os.close(self._descriptor)
            self._came.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the turn, and tell whether it came; the place is kept if it did not, unless it ended before."""
        came = False
        try:
            with self._deciding:
                self._wanted = not self.ended
            came = self._wanted and self._came.acquire(timeout=seconds)
        finally:
            if not came:
                with self._deciding:
                    came = self._wanted and self.ended
                    self._wanted = False
        return came

    def leave_open(self) -> bool:
        """Have the thread close the descriptor; tell whether it will, which it does not if it ended."""
        with self._deciding:
            self._wanted = False
            self._closes = True
            return not self.ended
