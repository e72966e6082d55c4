"""One open database file: one connection that writes, and as many that read as are needed at once.

Nothing here knows about entities. A write is a function of a `Writer`, run in one transaction. A read is a statement,
which sees the state after the last commit.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from threading import get_ident
from typing import Any, Self, TypeVar

import apsw

from ....errors import StoreClosed, StoreError
from ..driver.connections import DatabaseLocation, clean_path, quiet_close, vacuum
from ..driver.driver_errors import DRIVER_ERRORS, translated
from ..driver.reader_pool import ReaderPool
from ..driver.snapshots import Row, Snapshot, Stream
from ..driver.timestamps import STATE, Timestamps
from .backup import copy_store
from .group_commit import CommitQueue, PendingWrite
from .transactions import Transactions
from .writer import Writer

T = TypeVar("T")

_all: Callable[[apsw.Cursor], list[Row]] = apsw.Cursor.fetchall
_first: Callable[[apsw.Cursor], Row | None] = apsw.Cursor.fetchone

_CORES = os.cpu_count() or 1
_files: weakref.WeakSet[File] = weakref.WeakSet()


class File:
    """An open database file. Safe to use from any thread; a snapshot or a stream belongs to the thread that uses it.

    Attributes:
        path: absolute, or ":memory:".
        now: returns the time in µs since 1970.
        warn_after: seconds after which a stream or snapshot that is still open is logged.
        refuse_after: seconds after which it raises :class:`SnapshotTooOld`.
        share: the most writes of different threads that share a commit.
    """

    def __init__(
        self,
        location: DatabaseLocation,
        *,
        create: bool,
        readers: int | None,
        most_readers: int,
        clock: Callable[[], int],
        now: Callable[[], int],
        monotonic: Callable[[], float],
        waited: Callable[[], float],
        sleep: Callable[[float], object],
        lock: Callable[[], threading.Lock],
        owner: int,
        share: int,
        warn_after: float,
        refuse_after: float,
    ) -> None:
        self.path: str = location.path
        self.warn_after = warn_after
        self.refuse_after = refuse_after
        self.monotonic = monotonic
        self.now = now
        self._location = location
        self.share = share
        self._new_queue = partial(CommitQueue, lock, share, sleep)
        self._closed_reason = ""
        self._only = get_ident()  # the thread that uses the file; 0 if there were several
        self._reading = 0  # the thread that reads by the connection that writes
        self._sleep = sleep
        self._connections: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        self._open_reads: weakref.WeakSet[Stream | Snapshot] = weakref.WeakSet()
        self._readers = ReaderPool(
            location,
            self._connections,
            lambda: _members(self._open_reads),
            keep=readers if readers is not None else _CORES,
            most=most_readers,
            check_open=self.check_open,
            monotonic=monotonic,
            new_lock=lock,
        )
        self._look_at = monotonic() + warn_after
        self._timestamps = Timestamps(clock, owner, location.path)
        self._writes = Transactions(
            location,
            self._timestamps,
            self._new_queue(),
            connections=self._connections,
            check_open=self.check_open,
            monotonic=monotonic,
            waited=waited,
            new_lock=lock,
        )
        try:
            location.prepare(create=create)
            self._writes.connect(create=create)
        except Exception as error:
            raise translated(error, location.path, opening=True) from error
        _files.add(self)

    # Lending readers

    def take(self) -> apsw.Connection:
        """Return a reader that nobody else uses; it is to be given back, or to be dropped."""
        return self._readers.take()

    def take_cold(self) -> apsw.Connection:
        """Return a reader that has read nothing yet."""
        return self._readers.take_cold()

    def give(self, reader: apsw.Connection, /) -> None:
        """Take back a reader that holds no state."""
        self._readers.give(reader)

    def drop(self, reader: apsw.Connection, /) -> None:
        """Close a reader that is broken."""
        self._readers.drop(reader)

    # Reading

    def read(self, sql: str, args: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of one statement."""
        return self._read(_all, sql, args)

    def get(self, sql: str, args: Sequence[Any] = ()) -> Row | None:
        """Return the first row of one statement, or None."""
        return self._read(_first, sql, args)

    def read_few(self, sql: str, args: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of one statement that reads few, as it says itself; see `seek`."""
        rows: list[Row] = self.seek(sql, args, _all)
        return rows

    def seek(self, sql: str, args: Sequence[Any] = (), fetch: Callable[[apsw.Cursor], Any] = _first) -> Any:
        """Return the row that one statement finds by its whole key, or None.

        As long as one thread alone uses the file, it reads by the connection that writes. A write empties the caches of
        all others, so only that one has the pages in its cache that were read or written last.

        Args:
            fetch: takes what is wanted from the cursor.
        """
        # No lock is taken: an interrupt may run code in between, a handler of a signal or a finaliser, which may write.
        if self._reading or self._writes.queue.lock.locked():
            return self._read(fetch, sql, args)
        connection = self._writes.connection
        try:
            try:
                me = self._reading = get_ident()
                if connection is not None and (me == self._only or self._arrive()) and not connection.in_transaction:
                    return fetch(connection.execute(sql, args))
            except Exception:
                self._writes.give_up(connection)  # a page that was read wrongly would stay in its cache
            finally:
                self._reading = 0
        finally:
            self._reading = 0  # also if something is raised at the line above: other threads would wait for ever
        return self._read(fetch, sql, args)

    def _read(self, fetch: Callable[[apsw.Cursor], T], sql: str, args: Sequence[Any]) -> T:
        readers = self._readers
        reader = readers.take()
        try:
            result = fetch(reader.execute(sql, args))
        except Exception as error:
            readers.drop(reader)
            self.check_open()
            raise translated(error, self.path) from error
        readers.give(reader)
        return result

    def stream(self, sql: str, args: Sequence[Any] = (), chunk: int = 256) -> Iterator[list[Row]]:
        """Return the rows of one statement in lists of at most ``chunk``; holds a reader until it ends or is closed."""
        stream = Stream(self, sql, args, chunk)
        self._open_reads.add(stream)
        return stream

    def snapshot(self, *, cold: bool = False) -> Snapshot:
        """Return a context manager for several reads of one state.

        Args:
            cold: read by a new connection, which has no page of the file yet: what others hold may not be on the disk.
                The state is held for as long as that takes.
        """
        snapshot = Snapshot(self, cold=cold)
        self._open_reads.add(snapshot)
        return snapshot

    def in_one_state(self, reader: Callable[[Snapshot], Iterator[T]]) -> Iterator[T]:
        """Yield what a function reads of one state; that is held until it ends or is closed."""
        with self.snapshot() as snapshot:
            yield from reader(snapshot)

    def by_writer(self, use: Callable[[Callable[..., list[Row]]], T]) -> T:
        """Call a function with one that reads one state of the file by the connection that writes; return its result.

        So a file can be looked at when it is opened, and no second connection has to learn its schema before one is
        needed.
        """
        return self._outside(lambda: self._by_writer(use))

    def _by_writer(self, use: Callable[[Callable[..., list[Row]]], T]) -> T:
        connection = self._writes.connection or self._writes.reconnect()

        def read(sql: str, args: Sequence[Any] = ()) -> list[Row]:
            try:
                return connection.execute(sql, args).fetchall()
            except Exception as error:
                raise translated(error, self.path) from error

        try:
            read("BEGIN")
            result = use(read)
            read("ROLLBACK")
        except BaseException:
            self._writes.disconnect()  # a page that was read wrongly would stay in its cache
            raise
        return result

    def _arrive(self) -> bool:
        """Note that this thread uses the file; tell whether no other has so far, and it is the one that opened it."""
        me = get_ident()
        if me == self._only:
            return True
        self._only = 0
        while self._reading not in (0, me):  # once, until the thread that was alone has read
            self._sleep(0.0001)
        return False

    def check_open(self) -> None:
        """Raise :class:`StoreClosed` if the file is closed, or the parent's."""
        if self._closed_reason:
            raise StoreClosed(f'"{self.path}" {self._closed_reason}')

    # Writing

    def check_writable(self) -> None:
        """Raise :class:`StoreReadOnly` if the file was opened for reading."""
        self._location.check_writable()

    def write(self, apply: Callable[[Writer], T], *, generation: int | None = None) -> T:
        """Run ``apply`` in a write transaction and return what it returns, once that is safe on the disk.

        Args:
            apply: writes; what it raises undoes all of it. It may not call :meth:`write`. It is called by this thread
                or by another, and again if others in the same transaction broke that.
            generation: the generation of the catalogue that ``apply`` was made for.

        Raises:
            SchemaMismatch: the catalogue has another generation; ``apply`` was not called.
            StoreLocked: another process wrote for longer than the timeout.
            StoreFull: there is no space left.
            OutcomeUnknown: the disk failed in COMMIT, and then again when the outcome was looked up.
            StoreError: the disk failed; nothing was written.
        """
        return self._write(apply, generation, exclusive=False).outcome()

    def write_alone(self, apply: Callable[[Writer], T], *, generation: int | None = None) -> tuple[T, float, float]:
        """Run ``apply`` as `write` does, in a commit of its own: it writes so much that other threads would wait for it.

        Returns:
            The result, and two times in seconds. The first one is from the begin of the transaction to the end of its
            commit. The second one adds the copying of the log; it is 0 if no others wrote within the last second.
        """
        write = self._write(apply, generation, exclusive=True)
        return write.outcome(), write.seconds, write.delay

    def _write(self, apply: Callable[[Writer], T], generation: int | None, *, exclusive: bool) -> PendingWrite[T]:
        if get_ident() != self._only:
            self._arrive()
        write = self._writes.run(apply, generation, exclusive=exclusive)
        if self.monotonic() >= self._look_at:
            self._expire()
        return write

    @property
    def _connection(self) -> apsw.Connection | None:
        return self._writes.connection

    def _expire(self) -> None:
        moment = self.monotonic()
        self._look_at = moment + min(self.warn_after, 1.0)
        for open_read in _members(self._open_reads):
            open_read.expire(moment)

    # The file as a whole

    def store_id(self) -> str:
        """Return the random name of the store, which copies and backups share."""
        row = self.seek(f"SELECT store FROM {STATE}")
        return str(row[0]) if row else ""

    def generation(self) -> int:
        """Return the generation of the catalogue as it is in the file now."""
        row = self.get(f"SELECT generation FROM {STATE}")
        return int(row[0]) if row else 0

    def integrity(self, within: Snapshot | None = None) -> list[str]:
        """Return what SQLite's own check finds wrong with the file: nothing, if it is sound."""
        try:
            lines = [str(line) for (line,) in (within or self).read("PRAGMA integrity_check")]
        except (StoreError, UnicodeError) as error:
            if self._closed_reason:
                raise
            return [str(error)]
        return [] if lines == ["ok"] else lines

    def _outside(self, use: Callable[[], T]) -> T:
        """Use the connection that writes for something else, while nobody writes."""
        self._arrive()
        return self._writes.outside(use)

    def backup(self, path: str | os.PathLike[str], progress: Callable[[int, int], object] | None = None) -> None:
        """Copy one state of the file to a new file while it is in use.

        Args:
            path: where to; refused if anything is there.
            progress: called with (pages done, pages in all).
        """
        self.check_open()
        copy_store(self._backup_source, self.path, clean_path(path), progress)

    def _backup_source(self, copy: Callable[[apsw.Connection], None]) -> None:
        # Within a read transaction: otherwise each write of another connection starts the copy from the beginning.
        reader = self.take()
        try:
            reader.execute("BEGIN")
            reader.execute("SELECT 1 FROM sqlite_schema").fetchall()
            copy(reader)
            reader.execute("ROLLBACK")
        except BaseException:
            self.drop(reader)
            raise
        self.give(reader)

    def compact(
        self, step: Callable[[], object] | None = None, change: Callable[[Writer], object] | None = None
    ) -> None:
        """Write the file anew without the space that is free in it, while nobody else has it open.

        Args:
            step: is called again and again; what it raises ends the work, and leaves the file as it was.
            change: is called first, to write what nobody else may see half done.

        Raises:
            StoreLocked: at once, if somebody has it open, or reads from it here.
        """
        self.check_writable()
        self._outside(lambda: self._compact(step or (lambda: None), change or (lambda writer: None)))

    def _compact(self, step: Callable[[], object], change: Callable[[Writer], object]) -> None:
        self.check_open()
        self._readers.empty()
        self._writes.disconnect()
        stopped: list[BaseException] = []

        def proceed() -> None:
            try:
                step()
            except BaseException as error:
                stopped.append(error)
                raise

        try:
            with closing(self._location.open_exclusive()) as connection:
                with connection:
                    change(Writer(connection, self._timestamps))
                vacuum(connection, proceed)
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except DRIVER_ERRORS as error:
            if error in stopped:
                raise
            raise translated(error, self.path) from error

    @property
    def closed(self) -> bool:
        """Whether the file was closed, or belongs to the parent of this process."""
        return bool(self._closed_reason)

    def close(self) -> None:
        """Close every connection; streams and snapshots that are open end with :class:`StoreClosed`. Twice is once.

        Raises:
            StoreError: the file was removed or replaced, and the last writes are lost.
        """
        self._outside(self._close)

    def _close(self) -> None:
        if self._closed_reason:
            return
        connection, self._writes.connection = self._writes.connection, None
        if connection is not None:
            with suppress(Exception):  # else the allowance stays in the file, and the next timestamp is after it
                self._writes.undo(connection)
                self._writes.hand_back(connection)
        self._closed_reason = "was closed; open it again"
        self._readers.close()
        for reader in _members(self._connections):
            if reader is not connection:
                quiet_close(reader)
        if connection is not None:
            quiet_close(connection)  # last, since a reader could not take the log back into the file
        self._writes.turns.close()
        if self._writes.is_lost():
            raise self._location.lost_error()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forked(self) -> None:
        self._closed_reason = "was opened by the process that this one was forked from; open it again here"
        for connection in _members(self._connections):
            # Never to be closed or freed here: SQLite would act on locks that are the parent's.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._connections = weakref.WeakSet()
        self._readers.forked()
        self._writes.connection = None
        self._writes.turns.forked()
        self._writes.queue = self._new_queue()
        self._reading = 0


def _members(weak: weakref.WeakSet[T]) -> list[T]:
    while True:
        try:
            return list(weak)
        except RuntimeError:  # another thread added one meanwhile
            continue


def _after_fork() -> None:
    for file in _members(_files):
        file._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
