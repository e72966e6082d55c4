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
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import apsw

from ....errors import StoreClosed, StoreError, shown
from .backup import copy_store
from .connections import APPLICATION_ID, FORMAT_VERSION, BusyHandler, Durability, Place, clean_path, quiet_close
from .driver_errors import translated
from .group_commit import Line
from .reader_pool import Readers
from .snapshots import Row, Snapshot, Stream
from .timestamps import STATE, Timestamps
from .transactions import Transactions
from .writer import Writer

__all__ = ["File", "Writer"]

T = TypeVar("T")

_all: Callable[[apsw.Cursor], list[Row]] = apsw.Cursor.fetchall
_first: Callable[[apsw.Cursor], Row | None] = apsw.Cursor.fetchone

_SHARE = 64  # writes that share a commit

_files: weakref.WeakSet[File] = weakref.WeakSet()


def _microseconds() -> int:
    return time.time_ns() // 1_000


class File:
    """An open database file. Safe to use from any thread; a snapshot or a stream belongs to the thread that uses it.

    Attributes:
        path: absolute, or ":memory:".
        warn_after: seconds after which a stream or snapshot that is still open is logged.
        refuse_after: seconds after which it raises :class:`SnapshotTooOld`.
        share: the most writes of different threads that share a commit.
    """

    in_memory: ClassVar[type[File]]
    """What `open` makes of ":memory:"; `memory` says it."""

    def __init__(
        self,
        place: Place,
        *,
        create: bool,
        readers: int | None,
        most_readers: int,
        clock: Callable[[], int],
        monotonic: Callable[[], float],
        sleep: Callable[[float], object],
        lock: Callable[[], threading.Lock],
        owner: int,
        share: int,
        warn_after: float,
        refuse_after: float,
    ) -> None:
        self.path = place.path
        self.warn_after = warn_after
        self.refuse_after = refuse_after
        self.monotonic = monotonic
        self._place = place
        self.share = share
        self._new_line = partial(Line, lock, share, sleep)
        self._ended = ""
        self._only = threading.get_ident()  # the thread that uses the file; 0 if there were several
        self._reading = 0  # the thread that reads by the connection that writes
        self._sleep = sleep
        self._known: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        self._held: weakref.WeakSet[Stream | Snapshot] = weakref.WeakSet()
        self._readers = pool = Readers(
            place,
            self._known,
            lambda: _members(self._held),
            keep=readers if readers is not None else os.cpu_count() or 1,
            most=most_readers,
            check_open=self.check_open,
            monotonic=monotonic,
            new_lock=lock,
        )
        self._idle, self.take, self.give, self.drop = pool.idle, pool.take, pool.give, pool.drop
        self.take_cold = pool.take_cold
        self._look_at = monotonic() + warn_after
        self._timestamps = Timestamps(clock, owner, place.path)
        self._writes = Transactions(
            place,
            self._timestamps,
            self._new_line(),
            known=self._known,
            check_open=self.check_open,
            monotonic=monotonic,
            new_lock=lock,
        )
        try:
            place.prepare(create=create)
            self._writes.connect(create=create)
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
        most_readers: int = 64,
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
        share: int | None = None,
    ) -> File:
        """Open a file, or make a new one.

        Args:
            path: the file, or ":memory:" for a store that is never saved.
            create: whether a file that is missing or empty becomes a new store.
            durability: "full" survives a power cut; "relaxed" may lose the last commits in one, but stays consistent.
            timeout: seconds to wait for another process that writes.
            page_size: of a new file, in bytes.
            readers: connections that are kept while they are not used; by default one for each core.
            most_readers: connections that read at the same time; who finds all of them in use waits, unless it holds one.
            clock: the time in µs since 1970.
            application_id: the mark in the header of the file that says that it is ours.
            format_version: the format that this code reads and writes.
            vfs: the name of the SQLite file layer, by default that of the operating system.
            warn_after: seconds after which an open stream is logged.
            refuse_after: seconds after which it raises ``SnapshotTooOld``.
            monotonic: the clock that measures these.
            sleep: how to wait for another process, and how to let other threads go first.
            random: numbers in [0, 1) that decide how long.
            lock: makes the lock that orders the writes of this process.
            owner: a number that no other store object has; random by default.
            share: how many writes of different threads may share a commit.

        Raises:
            NotAStore: the file is something else, or was written by a newer format. It was not touched.
            CorruptStore: it is ours, but damaged.
            StoreReadOnly: it can not be written.
            StoreLocked: another process held it for longer than the timeout.
            StoreError: the path leads to no file.
        """
        if durability not in ("full", "relaxed"):
            raise ValueError(f'durability={shown(durability)}: expected "full" or "relaxed"')
        if not 512 <= page_size <= 65536 or page_size & (page_size - 1):
            raise ValueError(f"page_size={page_size}: expected a power of two from 512 to 65536")

        draw = random or secrets.SystemRandom().random

        place = Place(
            path=clean_path(path),
            vfs=vfs,
            durability=durability,
            page_size=page_size,
            application_id=application_id,
            format_version=format_version,
            timeout=timeout,
            busy_handler=partial(BusyHandler, timeout, sleep=sleep, random=draw, monotonic=monotonic),
        )
        kind = File.in_memory if place.in_memory else File
        return kind(
            place,
            create=create,
            readers=readers,
            most_readers=most_readers,
            clock=clock,
            monotonic=monotonic,
            sleep=sleep,
            lock=lock,
            owner=owner or secrets.randbits(62) | 1,
            # (Without a sync to wait for, handing writes over costs more than it saves.)
            share=1 if place.in_memory else (_SHARE if durability == "full" else 1) if share is None else share,
            warn_after=warn_after,
            refuse_after=refuse_after,
        )

    # Reading

    def read(self, sql: str, args: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of one statement."""
        return self._read(_all, sql, args)

    def get(self, sql: str, args: Sequence[Any] = ()) -> Row | None:
        """Return the first row of one statement, or None."""
        return self._read(_first, sql, args)

    def read_few(self, sql: str, args: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of one statement that reads few, as it says itself; see `seek`."""
        return self._read_here(_all, sql, args)

    def seek(self, sql: str, args: Sequence[Any] = ()) -> Row | None:
        """Return the row that one statement finds by its whole key, or None.

        As long as one thread alone uses the file, the connection that writes is asked: a write empties the caches of all
        others, so only there are the pages at hand that were read or written last.
        """
        return self._read_here(_first, sql, args)

    def _read(self, fetch: Callable[[apsw.Cursor], T], sql: str, args: Sequence[Any]) -> T:
        try:
            reader = self._idle.pop()
        except IndexError:
            reader = self.take()
        try:
            found = fetch(reader.execute(sql, args))
        except Exception as error:
            self.drop(reader)
            self.check_open()
            raise translated(error, self.path) from error
        self.give(reader)
        return found

    def _read_here(self, fetch: Callable[[apsw.Cursor], T], sql: str, args: Sequence[Any]) -> T:
        # No lock is taken: what an interrupt runs in between, a signal's handler or a finaliser, may write, too.
        if self._reading or self._writes.line.lock.locked():
            return self._read(fetch, sql, args)
        connection = self._writes.connection
        try:
            self._reading = threading.get_ident()
            if connection is not None and self._arrive() and not connection.in_transaction:
                return fetch(connection.execute(sql, args))
        except Exception:
            self._writes.give_up(connection)  # a page that was read damaged would stay in its cache
        finally:
            self._reading = 0
        return self._read(fetch, sql, args)

    def stream(self, sql: str, args: Sequence[Any] = (), chunk: int = 256) -> Iterator[list[Row]]:
        """Return the rows of one statement in lists of at most ``chunk``; holds a reader until it ends or is closed."""
        stream = Stream(self, sql, args, chunk)
        self._held.add(stream)
        return stream

    def snapshot(self, *, cold: bool = False) -> Snapshot:
        """Return a context manager for several reads of one state.

        Args:
            cold: read by a new connection, which has no page of the file yet: what others hold may not be on the disk.
        """
        snapshot = Snapshot(self, cold=cold)
        self._held.add(snapshot)
        return snapshot

    def in_one_state(self, read: Callable[[Snapshot], Iterator[T]]) -> Iterator[T]:
        """Yield what a function reads of one state; that is held until it ends or is closed."""
        with self.snapshot() as snapshot:
            yield from read(snapshot)

    def _arrive(self) -> bool:
        """Note that this thread uses the file; tell whether no other has so far, and it is the one that opened it."""
        me = threading.get_ident()
        if me == self._only:
            return True
        self._only = 0
        while self._reading not in (0, me):  # once: who was alone until now is to be done first
            self._sleep(0.0001)
        return False

    def check_open(self) -> None:
        """Raise :class:`StoreClosed` if the file is closed, or the parent's."""
        if self._ended:
            raise StoreClosed(f'"{self.path}" {self._ended}')

    # Writing

    def write(self, apply: Callable[[Writer], T], *, generation: int | None = None, alone: bool = False) -> T:
        """Run ``apply`` in a write transaction and return what it returns, once that is safe on the disk.

        Args:
            apply: writes; what it raises undoes all of it. It may not call :meth:`write`. It is called by this thread or
                by another, and again if others in the same transaction broke that.
            generation: the generation of the catalogue that ``apply`` was made for.
            alone: share no commit with other threads, because it writes so much that they would wait for it.

        Raises:
            SchemaMismatch: the catalogue has another generation; ``apply`` was not called.
            StoreLocked: another process wrote for longer than the timeout.
            StoreFull: there is no space left.
            OutcomeUnknown: the disk failed in COMMIT, and then again when the outcome was looked up.
            StoreError: the disk failed; nothing was written.
        """
        self._arrive()
        value: T = self._writes.run(apply, generation, alone=alone)
        if self.monotonic() >= self._look_at:
            self._expire()
        return value

    @property
    def _connection(self) -> apsw.Connection | None:
        return self._writes.connection

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

    def integrity(self, within: Snapshot | None = None) -> list[str]:
        """Return what SQLite's own check finds wrong with the file: nothing, if it is sound."""
        try:
            lines = [str(line) for (line,) in (within or self).read("PRAGMA integrity_check")]
        except (StoreError, UnicodeError) as error:
            if self._ended:
                raise
            return [str(error)]
        return [] if lines == ["ok"] else lines

    def checkpoint(self) -> bool:
        """Copy the write-ahead log into the file, as far as no reader needs it; whether all of it was."""
        return self._outside(self._checkpoint)

    def _checkpoint(self) -> bool:
        connection = self._writes.connection or self._writes.reconnect()
        try:
            log, done = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except Exception as error:
            raise translated(error, self.path) from error
        return log == done

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

    @property
    def closed(self) -> bool:
        """Whether the file was closed, or belongs to the parent of this process."""
        return bool(self._ended)

    def close(self) -> None:
        """Close every connection; streams and snapshots that are open end with :class:`StoreClosed`. Twice is once."""
        self._outside(self._close)

    def _close(self) -> None:
        if self._ended:
            return
        connection, self._writes.connection = self._writes.connection, None
        if connection is not None:
            with suppress(Exception):  # else the allowance stays in the file, and the next timestamp is after it
                self._writes.undo(connection)
                self._writes.hand_back(connection)
        self._ended = "was closed; open it again"
        self._readers.close()
        for known in _members(self._known):
            if known is not connection:
                quiet_close(known)
        if connection is not None:
            quiet_close(connection)  # last, since a reader could not take the log back into the file
        self._writes.turns.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forked(self) -> None:
        self._ended = "was opened by the process that this one was forked from; open it again here"
        for known in _members(self._known):
            # Never to be closed or freed here: SQLite would act on locks that are the parent's.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(known))
        self._known = weakref.WeakSet()
        self._readers.forked()
        self._writes.connection = None
        self._writes.turns.forked()
        self._writes.line = self._new_line()
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
