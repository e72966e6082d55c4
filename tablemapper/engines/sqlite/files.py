"""One open database file: one connection that writes, and as many that read as are needed at once.

Nothing here knows about entities. What is written is a function of a :class:`Writer`, run in one transaction; what is
read is a statement, in the state after the last commit.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Self, TypeVar

import apsw

from ...errors import OutcomeUnknown, SchemaMismatch, StoreClosed, StoreError
from .backup import copy_store
from .connections import APPLICATION_ID, FORMAT_VERSION, Durability, Place, clean_path, patience, quiet_close
from .faults import DRIVER_ERRORS, translated
from .reading import Row, Snapshot, Stream
from .timestamps import FENCE, STATE, Timestamps
from .writing import Writer

__all__ = ["File", "Writer"]

T = TypeVar("T")

_files: weakref.WeakSet[File] = weakref.WeakSet()


def _microseconds() -> int:
    return time.time_ns() // 1_000


class File:
    """An open database file. Safe to use from any thread; a snapshot or a stream belongs to the thread that uses it.

    Attributes:
        path: absolute, or ":memory:".
        warn_after: seconds after which a stream or snapshot that is still open is logged.
        refuse_after: seconds after which it raises :class:`SnapshotTooOld`.
    """

    in_memory: ClassVar[type[File]]
    """What `open` makes of ":memory:"; `memory` says it."""

    def __init__(
        self,
        place: Place,
        *,
        create: bool,
        readers: int | None,
        clock: Callable[[], int],
        monotonic: Callable[[], float],
        lock: Callable[[], threading.Lock],
        owner: int,
        warn_after: float,
        refuse_after: float,
    ) -> None:
        self.path = place.path
        self.warn_after = warn_after
        self.refuse_after = refuse_after
        self.monotonic = monotonic
        self._place = place
        self._new_lock = lock
        self._lock = lock()
        self._owner = 0  # the thread that is in a write
        self._ended = ""
        self._idle: list[apsw.Connection] = []
        self._keep = readers if readers is not None else os.cpu_count() or 1
        self._known: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        self._held: weakref.WeakSet[Stream | Snapshot] = weakref.WeakSet()
        self._look_at = monotonic() + warn_after
        self._timestamps = Timestamps(clock, owner, place.path)
        self._connection: apsw.Connection | None = None
        try:
            place.prepare(create=create)
            self._writer = self._connect_writer(create=create)
        except Exception as error:
            raise translated(error, place.path, opening=True) from error
        _files.add(self)

    @staticmethod
    def open(
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        durability: Durability = "full",
        timeout: float = 5.0,
        page_size: int = 4096,
        readers: int | None = None,
        clock: Callable[[], int] = _microseconds,
        application_id: int = APPLICATION_ID,
        format_version: int = FORMAT_VERSION,
        vfs: str | None = None,
        warn_after: float = 30.0,
        refuse_after: float = 300.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        random: Callable[[], float] | None = None,
        lock: Callable[[], threading.Lock] = threading.Lock,
        owner: int | None = None,
    ) -> File:
        """Open a file, or make a new one.

        Args:
            path: the file, or ":memory:" for a store that is never saved.
            create: whether a file that is missing or empty becomes a new store.
            durability: "full" survives a power cut; "relaxed" may lose the last commits in one, but stays consistent.
            timeout: seconds to wait for another process that writes.
            page_size: of a new file, in bytes.
            readers: connections that are kept while they are not used; by default one for each core.
            clock: the time in µs since 1970.
            application_id: the mark in the header of the file that says that it is ours.
            format_version: the format that this code reads and writes.
            vfs: the name of the SQLite file layer, by default that of the operating system.
            warn_after: seconds after which an open stream is logged.
            refuse_after: seconds after which it raises ``SnapshotTooOld``.
            monotonic: the clock that measures these.
            sleep: how to wait for another process.
            random: numbers in [0, 1) that decide how long.
            lock: makes the lock that orders the writes of this process.
            owner: a number that no other store object has; random by default.

        Raises:
            NotAStore: the file is something else, or was written by a newer format. It was not touched.
            CorruptStore: it is ours, but damaged.
            StoreReadOnly: it can not be written.
            StoreLocked: another process held it for longer than the timeout.
            StoreError: the path leads to no file.
        """
        if durability not in ("full", "relaxed"):
            raise ValueError(f'durability={durability!r}: expected "full" or "relaxed"')
        if not 512 <= page_size <= 65536 or page_size & (page_size - 1):
            raise ValueError(f"page_size={page_size}: expected a power of two from 512 to 65536")

        def waiting(seconds: float) -> Callable[[int], bool]:
            return patience(seconds, sleep=sleep, random=random, monotonic=monotonic)

        place = Place(
            path=clean_path(path),
            vfs=vfs,
            durability=durability,
            page_size=page_size,
            application_id=application_id,
            format_version=format_version,
            timeout=timeout,
            waiting=waiting,
        )
        kind = File.in_memory if place.in_memory else File
        return kind(
            place,
            create=create,
            readers=readers,
            clock=clock,
            monotonic=monotonic,
            lock=lock,
            owner=owner or secrets.randbits(62) | 1,
            warn_after=warn_after,
            refuse_after=refuse_after,
        )

    # Reading

    def read(self, sql: str, args: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of one statement."""
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = self.take()
        try:
            rows: list[Row] = reader.execute(sql, args).fetchall()
        except Exception as error:
            raise self._read_failed(reader, error) from error
        if len(self._idle) < self._keep:
            self._idle.append(reader)
        else:
            self.drop(reader)
        return rows

    def get(self, sql: str, args: Sequence[Any] = ()) -> Row | None:
        """Return the first row of one statement, or None."""
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = self.take()
        try:
            row: Row | None = reader.execute(sql, args).fetchone()
        except Exception as error:
            raise self._read_failed(reader, error) from error
        if len(self._idle) < self._keep:
            self._idle.append(reader)
        else:
            self.drop(reader)
        return row

    def stream(self, sql: str, args: Sequence[Any] = (), chunk: int = 256) -> Iterator[list[Row]]:
        """Return the rows of one statement in lists of at most ``chunk``; holds a reader until it ends or is closed."""
        stream = Stream(self, sql, args, chunk)
        self._held.add(stream)
        return stream

    def snapshot(self) -> Snapshot:
        """Return a context manager for several reads of one state."""
        snapshot = Snapshot(self)
        self._held.add(snapshot)
        return snapshot

    def take(self) -> apsw.Connection:
        """Return a reader that nobody else uses; a new one if all are in use, so that nested loops never wait."""
        try:
            return self._idle.pop()
        except IndexError:
            pass
        self.check_open()
        try:
            reader = self._place.reader()
        except Exception as error:
            raise translated(error, self.path) from error
        self._known.add(reader)
        return reader

    def give(self, reader: apsw.Connection) -> None:
        """Take back a reader that holds no state."""
        if len(self._idle) < self._keep:
            self._idle.append(reader)
        else:
            self.drop(reader)

    def drop(self, reader: apsw.Connection) -> None:
        """Close a reader that is broken, or one too many."""
        if reader in self._known:  # in a forked child none is: they are the parent's
            quiet_close(reader)

    def check_open(self) -> None:
        """Raise :class:`StoreClosed` if the file is closed, or the parent's."""
        if self._ended:
            raise StoreClosed(f'"{self.path}" {self._ended}')

    def _read_failed(self, reader: apsw.Connection, error: Exception) -> BaseException:
        self.drop(reader)
        self.check_open()
        return translated(error, self.path)

    # Writing

    def write(self, apply: Callable[[Writer], T], *, generation: int | None = None) -> T:
        """Run ``apply`` in a write transaction and return what it returns, once that is safe on the disk.

        Args:
            apply: writes; what it raises undoes all of it. It may not call :meth:`write`.
            generation: the generation of the catalogue that ``apply`` was made for.

        Raises:
            SchemaMismatch: the catalogue has another generation; ``apply`` was not called.
            StoreLocked: another process wrote for longer than the timeout.
            StoreFull: there is no space left.
            OutcomeUnknown: the disk failed in COMMIT, and then again when the outcome was looked up.
            StoreError: the disk failed; nothing was written.
        """
        if self._owner == threading.get_ident():
            self._check_outside()
        with self._lock:
            self._owner = threading.get_ident()
            try:
                return self._write(apply, generation)
            finally:
                self._owner = 0

    def _check_outside(self) -> None:
        if self._owner == threading.get_ident() and self._lock.locked():
            raise StoreError(
                f'"{self.path}": a write within a write, or within a snapshot in memory; use the writer that was '
                "passed in, or write afterwards"
            )

    def _write(self, apply: Callable[[Writer], T], generation: int | None) -> T:
        connection = self._connection or self._reconnect()
        writer = self._writer
        timestamps = self._timestamps
        writer.proof = None
        result: Any = None
        applied = False
        raised: BaseException | None = None
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")  # an interrupt came between two steps of an earlier write
            with connection:
                try:
                    writer.timestamp = timestamps.begin(connection)
                    if generation is not None and generation != timestamps.generation:
                        raise self._other_generation(generation)
                    result = apply(writer)
                    applied = True
                except BaseException as error:
                    raised = (
                        error  # a disk error has ended the transaction, and apsw then raises that it can not roll back
                    )
                    raise
            timestamps.committed(connection)
        except Exception as error:
            if applied:
                self._settle(error, writer)
            else:
                self._undo(connection)
                cause = raised or error
                if isinstance(cause, DRIVER_ERRORS):
                    raise translated(cause, self.path) from cause
                raise cause from None
        if self.monotonic() >= self._look_at:
            self._expire()
        value: T = result
        return value

    def _other_generation(self, expected: int) -> SchemaMismatch:
        return SchemaMismatch(
            f'"{self.path}": another process changed the schema (generation {self._timestamps.generation}, '
            f"this one was opened with {expected}); nothing was written: open the store again"
        )

    def _undo(self, connection: apsw.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except Exception:
            self._disconnect()

    def _settle(self, error: Exception, writer: Writer) -> None:
        """Find out what became of a transaction whose COMMIT failed, and make that final.

        After a failed sync this connection sees the old state, while the log may hold the new one and be taken over by
        the next process that opens the file. So: look for the transaction through a new connection, then write
        something, after which what the log held before is gone for good.
        """
        proof = writer.proof or self._timestamps.proof
        found: bool | None = None
        self._disconnect()
        try:
            connection = self._reconnect()
            if proof is not None:
                found = connection.execute(*proof).fetchone() is not None
            with connection:
                connection.execute(FENCE)
            final = found is not None
            if found:
                # What failed to sync may count as clean by now: only a copy of it into the file itself can be trusted.
                behind, done = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                final = behind == done
        except Exception:
            self._disconnect()
            # What found no space failed in a write, not in a sync: the frame that commits is safe, or is not there.
            final = found is not None and isinstance(error, apsw.FullError)
        if not final:
            raise OutcomeUnknown(
                f'"{self.path}": the disk failed while a transaction was committed, and it is not known whether it was '
                "written; read what it wrote before you try again"
            ) from error
        if not found:
            raise translated(error, self.path) from error

    def _connect_writer(self, *, create: bool = False) -> Writer:
        connection = self._place.writer(create=create)
        self._known.add(connection)
        self._timestamps.forget()
        self._writer = Writer(connection, self._timestamps)
        self._connection = connection
        return self._writer

    def _reconnect(self) -> apsw.Connection:
        self.check_open()
        try:
            self._connect_writer()
        except Exception as error:
            raise translated(error, self.path) from error
        assert self._connection is not None
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._timestamps.forget()
        if connection is not None:
            quiet_close(connection)

    def _expire(self) -> None:
        now = self.monotonic()
        self._look_at = now + min(self.warn_after, 1.0)
        for held in _members(self._held):
            held.expire(now)

    # The file as a whole

    def store_id(self) -> str:
        """Return the random name that the file was given when it was made; copies and backups share it."""
        row = self.get(f"SELECT store FROM {STATE}")
        return str(row[0]) if row else ""

    def generation(self) -> int:
        """Return the generation of the catalogue as it is in the file now."""
        row = self.get(f"SELECT generation FROM {STATE}")
        return int(row[0]) if row else 0

    def schema(self) -> list[Row]:
        """Return (type, name, tbl_name, sql) of all that is in the schema, sorted, to be compared."""
        return self.read("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")

    def integrity(self) -> list[str]:
        """Return what SQLite's own check finds wrong with the file: nothing, if it is sound."""
        try:
            lines = [str(line) for (line,) in self.read("PRAGMA integrity_check")]
        except (StoreError, UnicodeError) as error:
            if self._ended:
                raise
            return [str(error)]
        return [] if lines == ["ok"] else lines

    def vacuum(self) -> None:
        """Rewrite the file without its gaps. Nobody else can write meanwhile."""
        self._check_outside()
        with self._lock:
            connection = self._connection or self._reconnect()
            try:
                self._undo(connection)
                connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 1)  # VACUUM attaches the copy that it writes
                try:
                    connection.execute("VACUUM")
                finally:
                    connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
                self._timestamps.forget()
                if not self._place.in_memory:
                    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except Exception as error:
                raise translated(error, self.path) from error

    def checkpoint(self) -> bool:
        """Copy the write-ahead log into the file, as far as no reader needs it; whether all of it was."""
        self._check_outside()
        with self._lock:
            connection = self._connection or self._reconnect()
            try:
                log, done = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except Exception as error:
                raise translated(error, self.path) from error
            return log == done

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

    @property
    def closed(self) -> bool:
        """Whether the file was closed, or belongs to the parent of this process."""
        return bool(self._ended)

    def close(self) -> None:
        """Close every connection; streams and snapshots that are open end with :class:`StoreClosed`. Twice is once."""
        self._check_outside()
        with self._lock:
            if self._ended:
                return
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(Exception):  # else the allowance stays in the file, and the next timestamp is after it
                    self._undo(connection)
                    self._timestamps.hand_back(connection)
            self._ended = "was closed; open it again"
            self._keep = 0
            self._idle.clear()
            for known in _members(self._known):
                if known is not connection:
                    quiet_close(known)
            if connection is not None:
                quiet_close(connection)  # last, since a reader could not take the log back into the file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forked(self) -> None:
        self._ended = "was opened by the process that this one was forked from; open it again here"
        self._keep = 0
        for known in _members(self._known):
            # Never to be closed or freed here: SQLite would act on locks that are the parent's.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(known))
        self._known = weakref.WeakSet()
        self._idle.clear()
        self._connection = None
        self._lock = self._new_lock()
        self._owner = 0


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
