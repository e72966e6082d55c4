"""The order in which the processes that share a file write.

SQLite's own lock is unfair: the process that asks at the moment when it is free gets it. Of processes that write
without a pause, one gets thousands of transactions and another none for seconds. So a thread that is about to write
draws a ticket first, from a counter in a file beside the store. Each ticket is a byte of that file. Its owner keeps
that byte locked until it has written, and waits for the lock of the byte before it. So the turn goes through the
tickets, and a process that asks again at once is last, however much faster it is than the one that has to wake up.

This gives order, and nothing else. SQLite's lock still decides which process may write. A process that dies gives back
what it held. A process that is stopped while it has a ticket holds up the queue for a moment only. Once the queue
stands still while SQLite's lock is free, the next thread writes without its turn and gives its ticket back. So the
queue goes on behind it. Where there are no such locks (a file system without, Windows) there is no order.
"""

from __future__ import annotations

import _thread
import errno
import importlib
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

SUFFIX = "-turn"

_HEADER = struct.Struct("<QQ")  # the last ticket that was drawn, and the last that had its turn
_COUNTER = 0  # the byte that is locked while a ticket is drawn
_FIRST = 1  # the byte of the ticket 0
_MOST = 1 << 62
_PRESENCE = _FIRST + _MOST + 1  # the byte that every store that is open shares a lock of
_FLOCK = "hhqqi"
_LOOK = 0.025  # seconds between two looks at the queue
_ATTEMPTS = 100  # to open the file while another process removes it
_LOOKS = 4  # in which it stands still until SQLite's own lock is tried

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None


def _nothing() -> None:
    pass


class _Tickets:
    """The tickets in an open file. The last reference to go closes it, and the last process to do so removes it.

    Its locks are those of an open file, not of a process. So two stores of one process wait for each other too, and
    closing one file loses no lock of another. Where they cannot be had of parts of a file (macOS) there is no
    order, and the file stays.

    Attributes:
        give: give back all that is locked; without effect if that is nothing. A call that no interrupt can come into.
    """

    def __init__(self, path: str) -> None:
        self._path = path + SUFFIX
        self._descriptor = -1
        self._ordered = hasattr(fcntl, "F_OFD_SETLK")
        mode = os.stat(path).st_mode & 0o666
        for _ in range(_ATTEMPTS):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
            with suppress(PermissionError):  # (of another user, who has set it)
                os.fchmod(self._descriptor, mode)  # as SQLite does for its files, whatever the umask
            with suppress(BlockingIOError):
                if self._ordered:
                    self._lock(_PRESENCE, wait=False, kind=fcntl.F_RDLCK)
                if os.fstat(self._descriptor).st_nlink:
                    break
            self.close()  # the last process to close the store is just removing it
        else:
            raise OSError(errno.EBUSY, "another process removes it, and does not come to an end")
        self.give: Callable[[], object]
        if self._ordered:
            everything = struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, 0, _PRESENCE, 0)
            self.give = partial(fcntl.fcntl, self._descriptor, fcntl.F_OFD_SETLK, everything)
        else:
            self.give = partial(fcntl.flock, self._descriptor, fcntl.LOCK_UN)

    def draw(self, *, wait: bool) -> int:
        """Return the next ticket.

        Raises:
            BlockingIOError: another one is just drawn, and ``wait`` is false.
        """
        if not self._ordered:
            return 0
        self._lock(_COUNTER, wait=wait)
        ticket = self._header()[0] % _MOST + 1
        self._lock(_FIRST + ticket, wait=wait)
        os.pwrite(self._descriptor, ticket.to_bytes(8, "little"), 0)
        self._unlock(_COUNTER)
        return ticket

    def follow(self, ticket: int, *, wait: bool) -> None:
        """Take the turn of a ticket.

        Raises:
            BlockingIOError: the ticket before it was not given back, and ``wait`` is false.
        """
        if not self._ordered:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        self._lock(_FIRST + ticket - 1, wait=wait)
        os.pwrite(self._descriptor, ticket.to_bytes(8, "little"), 8)

    def give_one(self, ticket: int) -> None:
        """Give back one ticket, and its turn; 0, which is no ticket, stands for the counter."""
        if self._ordered:
            self._unlock(_FIRST + ticket - 1, 2)
        else:
            self.give()

    def last_served(self) -> int:
        """Return the last ticket that had its turn."""
        return self._header()[1]

    def passed_over(self, ticket: int) -> bool:
        """Tell whether later tickets have their turns already."""
        drawn, last_served = self._header()
        return 0 < ticket < last_served <= drawn

    def close(self, *, remove: bool = False) -> None:
        """Close the file, and remove it if no other store has it open."""
        if self._descriptor < 0:
            return
        with suppress(OSError):
            if remove and self._ordered:
                self._lock(_PRESENCE, wait=False)
                if os.path.samestat(os.fstat(self._descriptor), os.stat(self._path)):
                    os.unlink(self._path)
        descriptor, self._descriptor = self._descriptor, -1
        with suppress(OSError):
            os.close(descriptor)

    def __del__(self) -> None:
        with suppress(Exception):
            self.close(remove=True)

    def _header(self) -> tuple[int, int]:
        drawn, last_served = _HEADER.unpack(os.pread(self._descriptor, _HEADER.size, 0).ljust(_HEADER.size, b"\0"))
        return drawn, last_served

    def _lock(self, byte: int, *, wait: bool, kind: int | None = None) -> None:
        lock = struct.pack(_FLOCK, fcntl.F_WRLCK if kind is None else kind, os.SEEK_SET, byte, 1, 0)
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, lock)

    def _unlock(self, byte: int, count: int = 1) -> None:
        lock = struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, byte, count, 0)
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, lock)


def remove_tickets(path: str) -> bool:
    """Remove the tickets of a store; tell whether that is done: not if a store that is open uses them."""
    try:
        descriptor = os.open(path + SUFFIX, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return True
    try:
        if hasattr(fcntl, "F_OFD_SETLK"):
            lock = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _PRESENCE, 1, 0)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
        os.unlink(path + SUFFIX)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


class TicketLock:
    """The turns of one store object at its file. For one thread at a time.

    Args:
        path: the store; None for one that no other process can see.
        is_free: tells whether SQLite's own lock is free at this moment.

    Attributes:
        give: give the turn back; without effect if there is none to give. A call that no interrupt can come into, so
            that ``try: take() … finally: give()`` never keeps a turn.
    """

    def __init__(
        self,
        path: str | None,
        *,
        is_free: Callable[[], bool],
        monotonic: Callable[[], float],
        new_lock: Callable[[], threading.Lock],
    ) -> None:
        self.give: Callable[[], object] = _nothing
        self._path = path
        self._is_free = is_free
        self._monotonic = monotonic
        self._new_lock = new_lock
        self._tickets: _Tickets | None = None
        self._waiter: _Waiter | None = None

    def take(self, until: float) -> bool:
        """Wait for the turn; tell whether it came.

        It does not if a moment of the clock comes first, or if the queue stands still while SQLite's lock is free.
        """
        if self._path is None or fcntl is None:
            return True
        try:
            tickets = self._tickets = self._tickets or _Tickets(self._path)
            self.give = tickets.give
            while True:
                waiter = self._waiter  # there is one already if the last call was out of time
                if waiter is None or waiter.has_turn:
                    waiter = self._waiter = self._ask(tickets)
                if waiter is None or waiter.wait(self._looks(tickets, waiter, until)):
                    self._waiter = None
                    return True
                if waiter.has_turn:  # nobody wanted the turn when it came
                    continue
                if tickets.passed_over(waiter.ticket):  # it is behind one that is stopped, while others go on
                    tickets.give_one(waiter.ticket)
                    self._waiter = None
                    continue
                if self._monotonic() >= until:
                    self.give = _nothing  # the ticket is kept
                else:
                    self._waiter = None
                return False
        except OSError as error:
            if error.errno is None:
                raise  # not the system's: a handler of a signal raised it, such as TimeoutError
            self._drop()  # there are no such locks here
            self._path = None  # from now on it is done without
            return True

    def _ask(self, tickets: _Tickets) -> _Waiter | None:
        """Take the turn, or a place among those that wait for it."""
        ticket = None
        try:
            ticket = tickets.draw(wait=False)
            tickets.follow(ticket, wait=False)
        except BlockingIOError:
            try:
                return _Waiter(tickets, ticket, self._new_lock)
            except RuntimeError as error:
                raise OSError(errno.EAGAIN, "no thread can be started") from error
        return None

    def _looks(self, tickets: _Tickets, waiter: _Waiter, until: float) -> Iterator[float]:
        """Yield how long to wait until the next look, as long as there is time and the turn may come."""
        turn, still = tickets.last_served(), 0
        while (remaining := until - self._monotonic()) > 0 and not tickets.passed_over(waiter.ticket):
            yield min(remaining, _LOOK)
            turn_before, turn = turn, tickets.last_served()
            still = still + 1 if turn == turn_before else 0
            if still >= _LOOKS and self._is_free():
                return

    def close(self) -> None:
        """Forget the turns."""
        if self._tickets is not None:
            with suppress(OSError):
                self._tickets.give()
        self._drop()

    def _drop(self) -> None:
        self.give = _nothing
        self._waiter = None
        self._tickets = None  # a thread that waits still has them, until its turn comes

    def forked(self) -> None:
        """Forget, in a child, the turns of the parent: a copy of the descriptor would keep them if the parent died."""
        if self._tickets is not None:
            self._tickets.close()
        self._drop()


class _Waiter:
    """Waits for a turn, in a thread of its own, since no lock of a file knows a timeout.

    The thread ends with the turn. If nobody wants the turn any more when it comes, the thread gives it back.

    Args:
        ticket: the own one; None if it is still to be drawn.

    Attributes:
        has_turn: the turn came.
        ticket: the own one; 0 as long as it is not drawn.
    """

    def __init__(self, tickets: _Tickets, ticket: int | None, new_lock: Callable[[], threading.Lock]) -> None:
        self.has_turn = False
        self.ticket = ticket or 0
        self._is_wanted = False
        self._deciding = new_lock()
        self._came = new_lock()
        self._came.acquire()
        _thread.start_new_thread(self._run, (tickets, ticket))

    def _run(self, tickets: _Tickets, ticket: int | None) -> None:
        try:
            with suppress(OSError):
                self.ticket = tickets.draw(wait=True) if ticket is None else ticket
                tickets.follow(self.ticket, wait=True)
        finally:
            with self._deciding:
                self.has_turn = True
                with suppress(OSError):
                    if not self._is_wanted:
                        tickets.give_one(self.ticket)
                self._came.release()

    def wait(self, looks: Iterable[float]) -> bool:
        """Wait for the turn through some looks, and tell whether it came; it is wanted meanwhile, and if it came."""
        came = False
        try:
            with self._deciding:
                self._is_wanted = not self.has_turn
            came = self._is_wanted and any(self._came.acquire(timeout=seconds) for seconds in looks)
        finally:
            if not came:
                with self._deciding:
                    came = self._is_wanted and self.has_turn
                    self._is_wanted = False
        return came
