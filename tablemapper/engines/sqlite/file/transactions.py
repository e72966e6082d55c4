"""The transactions of a file: begin, run writes, commit, and find out the outcome of a commit that failed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import get_ident
from typing import Any, Final, TypeVar

import apsw

from ....errors import OutcomeUnknown, SchemaMismatch, StoreError
from ..driver.connections import WAL_PAGES, DatabaseLocation, interrupt_behind, quiet_close
from ..driver.driver_errors import DRIVER_ERRORS, poisons_connection, translated
from ..driver.timestamps import FENCE, Timestamps
from .group_commit import CommitQueue, PendingWrite, interrupted
from .ticket_lock import TicketLock
from .writer import Writer

T = TypeVar("T")


class GenerationChanged(SchemaMismatch):
    """The catalogue is of another generation than the one that a write was made for; nothing was written."""


_GATHER = 0.02  # seconds after which a transaction takes up no further writes
_EVER, _NEVER = float("inf"), -float("inf")
_CHECK = 1.0  # seconds between two looks whether the file is where it was: one takes as long as a tenth of a write
_COMPANY = 1.0  # seconds after a write of another process in which turns are taken
_DELAY = 1.5  # of others, by the length of a long write: they sleep when it ends, and SQLite has emptied their caches
_LONG = 0.005  # seconds of a transaction beside which a turn costs nothing
_SLICE = 0.001  # seconds of a turn: a change of process at each write takes three times the time of a write


class Transactions:
    """Runs writes, one transaction at a time, in which those that wait share.

    Attributes:
        connection: the one that writes; None after a disk error, until the next write.
        queue: the writes that wait; its lock is held by the thread that uses the connection.
        turns: the order among processes.
    """

    def __init__(
        self,
        location: DatabaseLocation,
        timestamps: Timestamps,
        queue: CommitQueue,
        *,
        connections: weakref.WeakSet[apsw.Connection],
        check_open: Callable[[], None],
        monotonic: Callable[[], float],
        waited: Callable[[], float],
        new_lock: Callable[[], threading.Lock],
    ) -> None:
        self.connection: apsw.Connection | None = None
        self.queue = queue
        self.turns: Final = TicketLock(
            None if location.in_memory else location.path, is_free=self._is_free, monotonic=monotonic, new_lock=new_lock
        )
        self._was_long = False  # the last transaction
        self._slice_until = _NEVER  # after a turn was taken; by the clock of ``PendingWrite.until``
        self._wrote_last = 0  # the thread
        self._beside_until = _NEVER  # other threads or processes write; by the clock below
        self._in_company_until = _EVER  # by the clock of ``PendingWrite.until``, as is the next one
        self._check_at = _NEVER
        self._copies_later = False  # of the log, see `_copy_log`
        self._unchecked = False  # something was written since it was looked whether the file is there
        self._path = location.path
        self._location = location
        self._timestamps = timestamps
        self._connections = connections
        self._check_open = check_open
        self._monotonic = monotonic
        self._waited = waited
        self._busy = location.busy_handler()

    def run(self, apply: Callable[[Writer], T], generation: int | None, *, exclusive: bool) -> PendingWrite[T]:
        """Run a write, in this thread or in that of a leader, and return what became of it."""
        self._location.check_writable()
        queue = self.queue
        if queue.owner:
            self.check_outside()
        write = PendingWrite(apply, generation, self.deadline() - self._waited(), exclusive)
        if queue.share > 1:
            queue.run(write, self._lead)
            return write
        with queue.lock:
            queue.owner = get_ident()
            try:
                self._commit(write, [], shared=False)
            finally:
                queue.owner = 0
        return write

    def deadline(self) -> float:
        """Return the moment until which a write that begins now waits for other processes."""
        return self._monotonic() + self._location.timeout

    def outside(self, use: Callable[[], T]) -> T:
        """Call a function while no thread writes, and return what it returns."""
        self.check_outside()
        try:
            with self.queue.lock:
                result = use()
                return result  # noqa: RET504  (an interrupt between call and return would keep the lock)
        finally:
            self.queue.wake_next()

    def give_up(self, failed: apsw.Connection | None) -> None:
        """Close the connection, if it is still this one."""

        def close() -> None:
            if self.connection is failed:
                self.disconnect()

        self.outside(close)

    def check_outside(self) -> None:
        """Refuse a call that would wait for the write that this thread is in."""
        if self.queue.is_mine():
            raise StoreError(
                f'"{self._path}": a write within a write, or within a snapshot in memory; use the writer that was '
                "passed in, or write afterwards"
            )

    def _lead(self, first: PendingWrite[Any]) -> None:
        """Commit a write, and those that wait with it."""
        followers: list[PendingWrite[Any]] = []
        try:
            try:
                self._commit(first, followers, shared=self.queue.may_join(first))
            except Exception as error:
                if not followers or isinstance(error, OutcomeUnknown):
                    raise
                # One of them may be what the disk cannot take, and no other is to suffer: each is done alone.
                self.queue.give_back(followers)
                followers = []
                self._commit(first, followers, shared=False)
        except BaseException as error:
            for write in followers:
                write.error = type(error)(str(error)) if isinstance(error, OutcomeUnknown) else interrupted()
            raise
        finally:
            self.queue.finish(followers)

    def _commit(self, first: PendingWrite[Any], followers: list[PendingWrite[Any]], *, shared: bool) -> None:
        """Run a write in a transaction, add to ``followers`` those that joined, and commit."""
        self._busy.until = first.until
        connection = self.connection or self.reconnect()
        timestamps = self._timestamps
        applied = False
        raised: BaseException | None = None
        until, began = first.until, 0.0
        # Until its slice of time is over, this process writes on without another ticket. The owner of the next one finds
        # SQLite's lock free between two of these writes.
        takes_turn = self._was_long or self._slice_until <= first.until < self._in_company_until
        if first.exclusive is not self._copies_later:
            connection.wal_autocheckpoint(2 * WAL_PAGES if first.exclusive else WAL_PAGES)
            self._copies_later = first.exclusive
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")  # an interrupt came between two steps of an earlier write
            if takes_turn:
                self.turns.take(first.until)
                self._slice_until = self.deadline() + _SLICE
            with connection:
                if first.exclusive:
                    began = self._monotonic()
                try:
                    timestamp = timestamps.begin(connection)
                    self._apply(first, timestamp)
                    if shared:
                        self._gather(connection, followers)
                    applied = True
                except BaseException as error:
                    # A disk error may have ended the transaction; apsw then raises that it cannot roll back.
                    raised = error
                    raise
            timestamps.committed(connection)
            # A process that is alone takes no turns, which cost time. Another one that comes gets SQLite's lock once,
            # and from then on both take turns. It would seldom find that lock free between long transactions, so these
            # take turns always: beside them a turn costs nothing.
            until = self.deadline()
            thread = get_ident()
            if timestamps.others_wrote or self._wrote_last not in (0, thread):
                self._beside_until = until + _COMPANY
            self._wrote_last = thread
            if first.exclusive:
                first.seconds = until - self._location.timeout - began
            self._was_long = until - first.until > _LONG
            if timestamps.others_wrote:
                self._in_company_until = until + _COMPANY
            elif self._in_company_until == _EVER:
                self._in_company_until = first.until
        except Exception as error:
            if not applied:
                ours = self._undone(connection, error, raised)
                raise ours from ours.__cause__
            self._settle(error, [first, *followers])
        finally:
            if takes_turn:
                self.turns.give()
        if first.exclusive:
            self._copy_log(connection)
            if until < self._beside_until:
                first.delay = _DELAY * (self._monotonic() - began)
        self._unchecked = True
        if until >= self._check_at:
            self._check_at = until + _CHECK
            self._look(first, *followers)

    def _undone(self, connection: apsw.Connection, error: Exception, raised: BaseException | None) -> Any:
        """Undo a transaction that did not come to its commit; return the error to raise.

        Args:
            raised: what was raised inside it, if anything.
        """
        if isinstance(error, apsw.BusyError):
            self._in_company_until = self.deadline() + _COMPANY
        if poisons_connection(error) or poisons_connection(raised):
            self.disconnect()
        else:
            self.undo(connection)
        return self._outward(raised or error)

    def _look(self, *writes: PendingWrite[Any]) -> None:
        """Look whether the file is still there; if it is not, writes that were committed are lost with it."""
        if self.is_lost():
            self._check_at = _NEVER
            for write in writes:
                write.error = self._location.lost_error()

    def _copy_log(self, connection: apsw.Connection) -> None:
        """Copy the log into the file after a write that was alone, once it is long.

        SQLite does that within COMMIT, while all others wait for the turn: many times as long as a batch of a build
        takes. Here they write on meanwhile. What they write is not copied then, so where none of them copies the whole
        log, it grows; when it is twice as long, SQLite copies it as ever.
        """
        with suppress(apsw.Error):  # it is tried again
            # (In apsw 3.51.3 Connection.wal_checkpoint does not know this mode yet.)
            _, log, copied = connection.execute("PRAGMA wal_checkpoint(NOOP)").get
            if log - copied >= WAL_PAGES:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def is_lost(self) -> bool:
        """Tell whether the file is gone, and with it what was written since the last call."""
        unchecked, self._unchecked = self._unchecked, False
        return unchecked and not self._location.is_there()

    def _is_free(self) -> bool:
        """Tell whether no other process writes at this moment."""
        assert self.connection is not None
        until, self._busy.until = self._busy.until, _NEVER
        try:
            with self.connection:
                pass
        except apsw.BusyError as error:
            if (interrupt := interrupt_behind(error)) is not None:
                raise interrupt from None
            return False
        except apsw.Error:
            pass  # the write will meet it, too
        finally:
            self._busy.until = until
        return True

    def _apply(self, write: PendingWrite[Any], timestamp: int) -> None:
        writer = self._writer
        writer.proof = None
        writer.timestamp = timestamp
        if write.generation is not None and write.generation != self._timestamps.generation:
            raise GenerationChanged(
                f'"{self._path}": another process changed the schema (generation {self._timestamps.generation}, '
                f"this one was opened with {write.generation}); nothing was written: try again"
            )
        write.result = write.apply(writer)
        write.proof = writer.proof

    def _gather(self, connection: apsw.Connection, followers: list[PendingWrite[Any]]) -> None:
        """Run the writes that wait, each in a savepoint of its own."""
        queue, timestamps = self.queue, self._timestamps
        until = self._monotonic() + _GATHER
        while len(followers) + 1 < queue.share and (write := queue.join()) is not None:
            followers.append(write)
            generation = timestamps.generation
            timestamp = timestamps.next(connection)  # before the savepoint, which would undo what the file allows
            try:
                with connection:
                    self._apply(write, timestamp)
            except BaseException as error:
                if poisons_connection(error) or not connection.in_transaction:
                    raise  # the disk failed, and none of them is to be committed
                timestamps.generation = generation
                write.proof = None
                write.error = self._outward(error)
            if self._monotonic() >= until:
                break

    def _outward(self, error: BaseException) -> BaseException:
        """Return the error that the caller is to see for one in a write."""
        if (interrupt := interrupt_behind(error)) is not None:
            return interrupt
        if not isinstance(error, DRIVER_ERRORS):
            return error
        ours = translated(error, self._path)
        if ours is not error:
            ours.__cause__ = error
        return ours

    def _settle(self, error: Exception, writes: Sequence[PendingWrite[Any]]) -> None:
        """Find out what became of a transaction whose COMMIT failed, and make that final.

        After a failed sync this connection sees the old state. The log may hold the new one, and the next process that
        opens the file would use it. So look for the transaction through a new connection, then write something: after
        that, what the log held before is gone for good.
        """
        proof = self._timestamps.proof
        present: bool | None = None
        self.disconnect()
        self._busy.until = None
        try:
            connection = self.reconnect()
            present = _present(connection, writes, proof)
            with connection:
                connection.execute(FENCE)
            final = present is not None
            if present:
                # The system may take pages that it failed to sync for clean: only a copy in the file itself can be
                # trusted.
                log_frames, copied_frames = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                final = log_frames == copied_frames
        except Exception as failure:
            self.disconnect()
            if (interrupt := interrupt_behind(failure)) is not None:
                raise interrupt from None
            # A full disk fails in a write, not in a sync: the frame that commits is safe, or is not there.
            final = present is not None and isinstance(error, apsw.FullError)
        if not final:
            raise OutcomeUnknown(
                f'"{self._path}": the disk failed during COMMIT, and it is not known whether the transaction is stored; '
                "read before you try again"
            ) from error
        if not present:
            raise translated(error, self._path) from error

    # The connection

    def connect(self, *, create: bool = False) -> apsw.Connection:
        """Open the connection that writes."""
        connection = self._location.writer(self._busy, create=create)
        self._connections.add(connection)
        self._timestamps.forget()
        self._writer = Writer(connection, self._timestamps)
        self._copies_later = False
        self.connection = connection
        return connection

    def reconnect(self) -> apsw.Connection:
        """Open the connection again after it was given up."""
        self._check_open()
        try:
            return self.connect()
        except Exception as error:
            raise translated(error, self._path) from error

    def disconnect(self) -> None:
        """Close the connection; in memory it is the store, and stays."""
        self._timestamps.forget()
        if self._location.in_memory:
            return
        connection, self.connection = self.connection, None
        if connection is not None:
            quiet_close(connection)

    def hand_back(self, connection: apsw.Connection) -> None:
        """Give up timestamps that were reserved and not used, if no other process writes just now."""
        self._busy.until = _NEVER
        try:
            self._timestamps.hand_back(connection)
        except apsw.BusyError as error:
            if (interrupt := interrupt_behind(error)) is not None:
                raise interrupt from None

    def undo(self, connection: apsw.Connection) -> None:
        """Leave no transaction open."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except Exception:
            self.disconnect()


def _present(
    connection: apsw.Connection, writes: Sequence[PendingWrite[Any]], proof: tuple[str, Any] | None
) -> bool | None:
    """Tell whether writes that shared a transaction are in the file; None if that cannot be known.

    A later write of the transaction may have changed what an earlier one wrote; nothing changed what the last one
    wrote.
    """
    is_last = True
    for write in reversed(writes):
        if write.proof is not None:
            if connection.execute(*write.proof).fetchone() is not None:
                return True
            if is_last:
                return False
        if write.error is None:
            is_last = False
    return None if proof is None else connection.execute(*proof).fetchone() is not None
