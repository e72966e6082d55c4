"""Writes of several threads share one commit.

A durable commit waits for the disk, which takes as long for fifty transactions as for one. A thread that finds nobody
writing writes by itself, at no further cost. The threads that come meanwhile wait in a queue. The first of them leads
next: it runs all the writes that wait, one after the other, and commits once. No thread exists for that alone, and no
write waits for others to come.

A leader wakes the next thread after it let go of the lock, and a thread that comes tries the lock after it is in the
queue: so there is always a leader. Only the thread that holds the lock takes writes from the queue, and it finishes or
gives back what it took. The main thread, the only one that signals interrupt, never runs the writes of others. The lock
is taken and given back by one ``with`` statement, between whose parts no interrupt comes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from ....errors import OutcomeUnknown
from .writer import Writer

T = TypeVar("T")

_PATIENCE = 1.0  # seconds after which a thread that waits looks again without being woken
_COURTESY = 1e-5  # seconds for which a leader lets the threads go first that it wrote for


class PendingWrite(Generic[T]):
    """One write, and what became of it.

    Attributes:
        apply: writes, within a transaction.
        generation: the generation of the catalogue that ``apply`` was made for.
        until: the moment after which it waits for no other process.
        exclusive: it shares no commit: it is large, or was given back by a group that failed.
        proof: a query that finds a row if and only if the write was committed.
        is_done: its outcome is known, and in ``result`` or ``error``.
        seconds: from the begin of its transaction to the end of its commit, if it was alone.
        delay: by how many seconds it delays others; 0 if none wrote within the last second.
    """

    proof: tuple[str, Sequence[Any]] | None = None
    is_done = False
    error: BaseException | None = None
    result: Any = None
    seconds: float = 0.0
    delay: float = 0.0
    _ready: threading.Lock | None = None  # held until its thread is woken

    def __init__(self, apply: Callable[[Writer], T], generation: int | None, until: float, exclusive: bool) -> None:  # noqa: FBT001
        self.apply = apply
        self.generation = generation
        self.until = until
        self.exclusive = exclusive

    def outcome(self) -> T:
        """Return the result of the write, or raise its error."""
        error = self.error
        if error is not None:
            self.error = None  # a traceback that leads to itself would be a cycle
            raise error
        value: T = self.result
        return value

    @property
    def waits(self) -> bool:
        """Whether its thread waits, or did."""
        return self._ready is not None

    def wait(self, new_lock: Callable[[], threading.Lock]) -> threading.Lock:
        """Return a lock that is held until `wake`."""
        self._ready = ready = new_lock()
        ready.acquire()
        return ready

    def wake(self) -> None:
        """Wake its thread: it looks whether the write is done, and tries to lead if it is not."""
        if self._ready is not None:
            with suppress(RuntimeError):  # it was woken already
                self._ready.release()


class CommitQueue:
    """The writes of one store object that wait for each other.

    Args:
        share: the most writes that share a commit; 1 if none do.
        pause: waits for so many seconds.

    Attributes:
        lock: held by the thread that writes.
        owner: that thread, 0 if there is none.
    """

    def __init__(self, new_lock: Callable[[], threading.Lock], share: int, pause: Callable[[float], object]) -> None:
        self.lock: Final = new_lock()
        self.owner: int = 0
        self.share = share
        self._new_lock = new_lock
        self._pause = pause
        self._shared = False  # the last leader wrote for other threads, too
        self._main = threading.main_thread().ident
        self._pending: deque[PendingWrite[Any]] = deque()

    def run(self, write: PendingWrite[T], lead: Callable[[PendingWrite[T]], object]) -> T:
        """Do a write, in this thread or in that of a leader; return what it returned.

        Args:
            lead: does a write, and those that `join` it; called with the lock held.
        """
        if self._pending or not self._try(write, lead):
            self._wait(write, lead)
        return write.outcome()

    def is_mine(self) -> bool:
        """Tell whether this thread is the one that writes."""
        return self.owner == threading.get_ident() and self.lock.locked()

    def wake_next(self) -> None:
        """Wake the thread that waits longest; to be called by each that held the lock."""
        if self._pending:
            with suppress(IndexError):  # a leader took it, or an interrupt did
                self._pending[0].wake()

    def _try(self, write: PendingWrite[Any], lead: Callable[[PendingWrite[Any]], object]) -> bool:
        """Lead, if no other thread does; tell whether the write is done."""
        if self.lock.locked():
            return False
        try:
            with self.lock:  # another thread may be faster: this one waits for it then, and may find the write done
                self._shared = False
                self._lead(write, lead)
                shared = self._shared
        finally:
            self.wake_next()
        if shared:
            # A leader need not be woken. Its next write would come before those of the threads that it wrote for: two
            # threads of eight had most of the commits.
            self._pause(_COURTESY)
        return True

    def _lead(self, write: PendingWrite[Any], lead: Callable[[PendingWrite[Any]], object]) -> None:
        if write.is_done:  # by the leader before
            return
        try:
            if write.waits:
                self._take(write)
            self.owner = threading.get_ident()
            lead(write)
        finally:
            write.is_done = True
            self.owner = 0

    def _wait(self, write: PendingWrite[Any], lead: Callable[[PendingWrite[Any]], object]) -> None:
        ready = write.wait(self._new_lock)
        try:
            self._pending.append(write)
            while True:  # Python 3.12 and 3.13 let an interrupt out of a try where they jump back to a condition
                if write.is_done or (self._is_next(write) and self._try(write, lead)):
                    return
                ready.acquire(timeout=_PATIENCE)
        except BaseException:
            self._withdraw(write, ready)
            raise

    def _is_next(self, write: PendingWrite[Any]) -> bool:
        """Tell whether no other write came before this one.

        Else the leader could be the one that came last, and wait for another process longer than the others want to.
        """
        try:
            return self._pending[0] is write
        except IndexError:
            return True

    def _withdraw(self, write: PendingWrite[Any], ready: threading.Lock) -> None:
        """Leave the queue because of an interrupt; if a leader runs the write already, wait for its outcome."""
        try:
            self._pending.remove(write)
        except ValueError:
            while not write.is_done and self.lock.locked():
                ready.acquire(timeout=_PATIENCE)
        self.wake_next()

    def _take(self, write: PendingWrite[Any]) -> None:
        try:
            self._pending.remove(write)
        except ValueError:
            raise interrupted() from None

    # What a leader calls

    def may_join(self, first: PendingWrite[Any]) -> bool:
        """Tell whether other writes may share the commit of one."""
        return not first.exclusive and self.owner != self._main

    def join(self) -> PendingWrite[Any] | None:
        """Take the next write that shares the commit, None if there is none."""
        try:
            write = self._pending.popleft()
        except IndexError:
            return None
        if write.exclusive:
            self._pending.appendleft(write)
            return None
        return write

    def finish(self, writes: Sequence[PendingWrite[Any]]) -> None:
        """Wake the threads whose writes a leader has done."""
        for write in writes:
            self._shared = True
            write.is_done = True
            write.wake()

    def give_back(self, writes: Sequence[PendingWrite[Any]]) -> None:
        """Put writes back to the head of the queue, each to be done alone."""
        for write in reversed(writes):
            write.exclusive = True
            write.error = None
            self._pending.appendleft(write)


def interrupted() -> OutcomeUnknown:
    """Return the error of a write whose leader was interrupted, so that its outcome is unknown."""
    return OutcomeUnknown(
        "the thread that committed this write with its own was interrupted, and it is not known whether the write is stored; "
        "read before you try again"
    )
