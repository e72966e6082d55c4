"""Whose turn it is to write, among the processes that share a file.

SQLite's own lock is taken by whoever happens to ask when it is free: of processes that write without a pause, one gets
thousands of transactions and another none for seconds. So whoever is about to write takes locks of a file beside the
store first, whose waiters the operating system wakes in the order in which they came. There are two of them, the line
and the turn: who is first in line holds the line until it has the turn. Without it, who gives the turn back and asks
again at once would be faster than who has to wake up.

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

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None


def _nothing() -> None:
    pass


class _Locks:
    """The two locks of one descriptor, each a call that no interrupt can come into.

    They are locks of an open file, not of a process, so that two stores of one process wait for each other too, and
    closing one file loses no lock of another. Where they can not be had of parts of a file (macOS) there is the turn only.

    Attributes:
        take_both: raises BlockingIOError if either is taken.
        await_line, await_turn: wait as long as it takes.
        leave_line: give back the line.
        give: give back both; without effect if there is nothing to give.
    """

    def __init__(self, descriptor: int) -> None:
        def lock(command: int, kind: int, start: int, length: int) -> Callable[[], object]:
            return partial(fcntl.fcntl, descriptor, command, struct.pack("hhqqi", kind, os.SEEK_SET, start, length, 0))

        self.take_both: Callable[[], object]
        self.await_line: Callable[[], object] = _nothing
        self.leave_line: Callable[[], object] = _nothing
        if hasattr(fcntl, "F_OFD_SETLK"):
            self.take_both = lock(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, 0, 2)
            self.await_line = lock(fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, 0, 1)
            self.await_turn = lock(fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, 1, 1)
            self.leave_line = lock(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, 0, 1)
            self.give = lock(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, 0, 2)
        else:
            self.take_both = partial(fcntl.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.await_turn = partial(fcntl.flock, descriptor, fcntl.LOCK_EX)
            self.give = partial(fcntl.flock, descriptor, fcntl.LOCK_UN)


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
        self._place: _Place | None = None
        self._take_both: Callable[[], object] = self._begin if path is not None and fcntl is not None else _nothing
        self._leave_line: Callable[[], object] = _nothing

    def take(self, until: float) -> bool:
        """Wait for the turn, until a moment of the clock; tell whether it came. For one thread at a time."""
        if self._place is None:
            try:
                self._take_both()
                self._leave_line()
                return True
            except BlockingIOError:
                pass
            except OSError:
                self._close()  # and do without from now on
                return True
        return self._wait(until)

    def _wait(self, until: float) -> bool:
        place = self._place  # there is one already if this process gave up waiting before
        if place is not None and place.ended:
            self._place = None
            return self.take(until)
        if place is None:
            place = self._place = _Place(self._file, self._locks, self._new_lock)
        came = place.wait(max(until - self._monotonic(), 0.0))
        if came:
            self._place = None
        return came

    def _begin(self) -> None:
        """Open the file of the locks, and take them."""
        assert self._path is not None
        while True:
            mode = os.stat(self._path).st_mode & 0o666
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self._path + SUFFIX, flags, mode)
            if os.fstat(self._file).st_nlink:
                break
            os.close(self._file)  # who closed the store last removed it just now
        self._locks = locks = _Locks(self._file)
        self.give, self._take_both, self._leave_line = locks.give, locks.take_both, locks.leave_line
        locks.take_both()

    def close(self) -> None:
        """Forget the turns; the last to do so removes the file."""
        if self._file < 0 or self._path is None:
            return
        with suppress(OSError):
            self._take_both()
            if not os.path.exists(self._path + "-shm"):  # nobody else has the store open
                os.unlink(self._path + SUFFIX)
        self._close()

    def _close(self) -> None:
        descriptor, self._file = self._file, -1
        place, self._place = self._place, None
        self.give = self._take_both = self._leave_line = _nothing
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
    """

    def __init__(self, descriptor: int, locks: _Locks, new_lock: Callable[[], threading.Lock]) -> None:
        self.ended = False
        self._locks = locks
        self._descriptor = descriptor
        self._wanted = True
        self._closes = False
        self._deciding = new_lock()
        self._came = new_lock()
        self._came.acquire()
        _thread.start_new_thread(self._stand, ())

    def _stand(self) -> None:
        with suppress(OSError):
            self._locks.await_line()
            self._locks.await_turn()
            self._locks.leave_line()
        with self._deciding:
            self.ended = True
            with suppress(OSError):
                if not self._wanted:
                    self._locks.give()
                if self._closes:
                    os.close(self._descriptor)
            self._came.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the turn, and tell whether it came; the place is kept if it did not."""
        with self._deciding:
            self._wanted = True
        came = False
        try:
            came = self._came.acquire(timeout=seconds)
        finally:
            if not came:
                with self._deciding:
                    self._wanted = False
                    came = self.ended
        return came

    def leave_open(self) -> bool:
        """Have the thread close the descriptor; tell whether it will, which it does not if it ended."""
        with self._deciding:
            self._wanted = False
            self._closes = True
            return not self.ended
