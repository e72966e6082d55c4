"""Writes that wait for each other share one commit: the line in which they wait, and who leads it.

A durable commit is a wait for the disk, and the disk takes as long for one transaction as for fifty. So whoever finds
nobody before it writes by itself, at no further cost; whoever comes meanwhile stands in line, and who writes next runs
all that wait, one after the other, in its own thread, and commits once. No thread is needed for that, and nobody waits
for others to come.

Who has written wakes the first in line after it let go of the lock, and who comes tries the lock after it is in line:
so there is always one who leads. Only who holds the lock takes from the line, and it finishes or gives back what it
took. The main thread, the only one that is interrupted, never runs the writes of others; and the lock is taken and
given back by one ``with`` statement, between whose parts no interrupt comes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from ....errors import OutcomeUnknown
from .writer import Writer

__all__ = ["Line", "Write", "interrupted"]

T = TypeVar("T")

_PATIENCE = 1.0  # seconds after which who waits no longer relies on being woken
_COURTESY = 1e-5  # seconds that a leader leaves to those that it wrote with


class Write(Generic[T]):
    """One write, and what became of it.

    Attributes:
        apply: what is to be written.
        generation: the generation of the catalogue that it was made for.
        until: when its thread no longer wants to wait for another process.
        alone: it shares no commit: it is large, or was given back by a group that failed.
        proof: a query that finds a row if and only if it was committed.
        done: it is decided; ``result`` and ``error`` say how.
    """

    __slots__ = ("_ready", "alone", "apply", "done", "error", "generation", "proof", "result", "until")

    def __init__(self, apply: Callable[[Writer], T], generation: int | None, *, until: float, alone: bool) -> None:
        self.apply = apply
        self.generation = generation
        self.until = until
        self.alone = alone
        self.proof: tuple[str, Sequence[Any]] | None = None
        self.done = False
        self.error: BaseException | None = None
        self.result: Any = None
        self._ready: threading.Lock | None = None  # held until its thread has something to look at

    def outcome(self) -> T:
        """Return what the write returned, or raise what it raised."""
        error, self.error = self.error, None  # a traceback that leads to itself would be a cycle
        if error is not None:
            raise error
        value: T = self.result
        return value

    @property
    def waits(self) -> bool:
        """Whether it stands in line."""
        return self._ready is not None

    def wait(self, new_lock: Callable[[], threading.Lock]) -> threading.Lock:
        """Return the lock that its thread waits for."""
        self._ready = ready = new_lock()
        ready.acquire()
        return ready

    def wake(self) -> None:
        """Let its thread look whether it is done, and try to lead if it is not."""
        if self._ready is not None:
            with suppress(RuntimeError):  # it was woken already
                self._ready.release()


class Line:
    """Where the writes of a process stand one behind the other.

    Args:
        new_lock: makes locks.
        share: the most writes that share a commit; 1 if none do.
        pause: waits for so many seconds.

    Attributes:
        lock: held by who writes.
        owner: the thread that does.
    """

    def __init__(self, new_lock: Callable[[], threading.Lock], share: int, pause: Callable[[float], object]) -> None:
        self.lock = new_lock()
        self.owner = 0
        self.share = share
        self._new_lock = new_lock
        self._pause = pause
        self._shared = False  # who leads wrote for others, too
        self._main = threading.main_thread().ident
        self._waiting: deque[Write[Any]] = deque()

    def run(self, write: Write[T], lead: Callable[[Write[T]], object]) -> T:
        """Have a write done, by this thread or by one that writes already; return what it returned.

        Args:
            write: what is to be done.
            lead: does a write and those that `join`; called with the lock held.
        """
        if self._waiting or not self._try(write, lead):
            self._wait(write, lead)
        return write.outcome()

    def wake_next(self) -> None:
        """Let who waits longest try; for whoever held the lock."""
        if self._waiting:
            with suppress(IndexError):  # a leader takes, an interrupt removes
                self._waiting[0].wake()

    def _try(self, write: Write[Any], lead: Callable[[Write[Any]], object]) -> bool:
        """Have a write done by this thread if nobody writes; tell whether it is done."""
        if self.lock.locked():
            return False
        try:
            with self.lock:  # another may be faster: then this waits for it, and may find the write done
                self._shared = False
                self._lead(write, lead)
                shared = self._shared
        finally:
            self.wake_next()
        if shared:
            # A leader need not be woken, and would have its next write in before those it wrote with are back: two
            # threads of eight had most of the commits.
            self._pause(_COURTESY)
        return True

    def _lead(self, write: Write[Any], lead: Callable[[Write[Any]], object]) -> None:
        if write.done:  # by who had the lock before
            return
        try:
            if write.waits:
                self._take(write)
            self.owner = threading.get_ident()
            lead(write)
        finally:
            write.done = True
            self.owner = 0

    def _wait(self, write: Write[Any], lead: Callable[[Write[Any]], object]) -> None:
        ready = write.wait(self._new_lock)
        try:
            self._waiting.append(write)
            while not write.done and not (self._is_next(write) and self._try(write, lead)):
                ready.acquire(timeout=_PATIENCE)
        except BaseException:
            self._withdraw(write, ready)
            raise

    def _is_next(self, write: Write[Any]) -> bool:
        """Tell whether no other write came before this one.

        Else the leader could be the one that came last, and wait for another process longer than the others want to.
        """
        try:
            return self._waiting[0] is write
        except IndexError:
            return True

    def _withdraw(self, write: Write[Any], ready: threading.Lock) -> None:
        """Leave the line because of an interrupt; if another thread runs the write already, wait what becomes of it."""
        try:
            self._waiting.remove(write)
        except ValueError:
            while not write.done and self.lock.locked():
                ready.acquire(timeout=_PATIENCE)
        self.wake_next()

    def _take(self, write: Write[Any]) -> None:
        try:
            self._waiting.remove(write)
        except ValueError:
            raise interrupted() from None

    # For the leader

    def may_join(self, first: Write[Any]) -> bool:
        """Tell whether other writes may share the commit of one."""
        return not first.alone and self.owner != self._main

    def join(self) -> Write[Any] | None:
        """Take the next write that shares the commit, None if there is none."""
        try:
            write = self._waiting.popleft()
        except IndexError:
            return None
        if write.alone:
            self._waiting.appendleft(write)
            return None
        return write

    def finish(self, writes: Sequence[Write[Any]]) -> None:
        """Tell others what became of their writes."""
        for write in writes:
            self._shared = True
            write.done = True
            write.wake()

    def give_back(self, writes: Sequence[Write[Any]]) -> None:
        """Put writes back to the head of the line, each to be done alone."""
        for write in reversed(writes):
            write.alone = True
            write.error = None
            self._waiting.appendleft(write)


def interrupted() -> OutcomeUnknown:
    """Return what a write raises whose leader ended without saying what became of it."""
    return OutcomeUnknown(
        "the thread that committed this write with its own was interrupted, and it is not known whether it was written; "
        "read what it wrote before you try again"
    )
