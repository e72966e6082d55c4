"""Reads of one state of a file that take more than one call: streams of rows, and snapshots.

As long as a state of the file is held, its write-ahead log cannot be reused, and grows with each write. So both are
bounded in time: first there is a warning, then the state is let go, by a write if nobody asks for rows. A cold snapshot
is not: a check reads all of one state, however long that takes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol, Self

import apsw

from ....errors import SnapshotTooOld
from .driver_errors import translated

_log = logging.getLogger("tablemapper.sqlite")

Row = tuple[Any, ...]

_RUNS_PER_CHECK = 1_000  # runs of a statement after which the age of the state is looked at


class ReaderSource(Protocol):
    """Lends readers, and takes them back."""

    path: str
    warn_after: float
    refuse_after: float
    monotonic: Callable[[], float]

    def take(self) -> apsw.Connection: ...
    def take_cold(self) -> apsw.Connection: ...
    def give(self, reader: apsw.Connection, /) -> None: ...
    def drop(self, reader: apsw.Connection, /) -> None: ...
    def check_open(self) -> None: ...


class _Held:
    """A state of the file that is held since a known moment."""

    __slots__ = ("__weakref__", "_expired", "_file", "_label", "_lasts", "_reader", "_since", "_thread", "_warn_at")

    def __init__(self, file: ReaderSource, label: str, *, lasts: bool = False) -> None:
        self._file = file
        self._label = label
        self._reader: apsw.Connection | None = None
        self._expired = False
        self._lasts = lasts
        self._thread = threading.get_ident()
        self._since = file.monotonic()
        self._warn_at = self._since + file.warn_after

    @property
    def holder(self) -> int:
        """The thread that keeps a reader of the file in this; 0 if none."""
        return 0 if self._reader is None else self._thread

    def _check_age(self) -> None:
        file = self._file
        file.check_open()
        if self._lasts:
            return
        moment = file.monotonic()
        if moment < self._warn_at and not self._expired:
            return
        age = moment - self._since
        if self._expired or age >= file.refuse_after:
            self._release()
            raise self._too_old(age)
        self._warn_at = self._since + file.refuse_after
        _log.warning(
            '"%s": %s is open for %.0f s and keeps the write-ahead log growing; after %.0f s it is refused',
            file.path,
            self._label,
            age,
            file.refuse_after,
        )

    def _too_old(self, age: float) -> SnapshotTooOld:
        return SnapshotTooOld(
            f'"{self._file.path}": {self._label} was open for {age:.0f} s, at most '
            f"{self._file.refuse_after:.0f} s are allowed; read in pages, or collect the rows first "
            "and work on them afterwards"
        )

    def _failed(self, error: Exception) -> BaseException:
        """Let go of a reader that failed, and return what to raise."""
        expired, age = self._expired, self._file.monotonic() - self._since
        reader, self._reader = self._reader, None
        self._forget()
        if reader is not None:
            self._file.drop(reader)
        if expired:
            return self._too_old(age)
        self._file.check_open()
        return translated(error, self._file.path)

    def expire(self, moment: float) -> None:
        """Let go of the state if it is held for too long; called by a write, maybe in another thread."""
        if self._lasts or moment - self._since < self._file.refuse_after or self._expired:
            return
        self._expired = True
        with contextlib.suppress(apsw.Error):  # it is in use at this moment, and will see that it is expired
            self._let_go()

    def _let_go(self) -> None:
        raise NotImplementedError

    def _forget(self) -> None:
        raise NotImplementedError

    def _release(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Give the reader back."""
        self._release()

    def __del__(self) -> None:
        with suppress(Exception):
            self._release()


class Stream(_Held):
    """The rows of one statement, in lists of at most ``chunk``, all of one state of the file."""

    __slots__ = ("_chunk", "_cursor", "_lent")

    def __init__(
        self,
        file: ReaderSource,
        sql: str,
        args: Sequence[Any] = (),
        chunk: int = 256,
        reader: apsw.Connection | None = None,
        *,
        lasts: bool = False,
    ) -> None:
        self._cursor: apsw.Cursor | None = None
        self._lent = reader is None
        super().__init__(file, "a loop over a query", lasts=lasts)
        self._chunk = chunk
        self._reader = lent_reader = reader if reader is not None else file.take()
        try:
            self._cursor = lent_reader.execute(sql, args)
        except Exception as error:
            raise self._failed(error) from error

    def __iter__(self) -> Iterator[list[Row]]:
        return self

    def __next__(self) -> list[Row]:
        cursor = self._cursor
        if cursor is None:
            raise StopIteration
        self._check_age()
        try:
            rows = list(islice(cursor, self._chunk))
        except Exception as error:
            raise self._failed(error) from error
        if len(rows) < self._chunk:
            self._release()
        if not rows:
            raise StopIteration
        return rows

    def _let_go(self) -> None:
        if (cursor := self._cursor) is not None:
            cursor.close(True)

    def _forget(self) -> None:
        self._cursor = None
        if not self._lent:
            self._reader = None

    def _release(self) -> None:
        cursor, self._cursor = self._cursor, None
        reader, self._reader = self._reader, None
        if cursor is None or reader is None:
            return
        try:
            cursor.close(True)
        except Exception:
            if self._lent:
                self._file.drop(reader)
            return
        if self._lent:
            self._file.give(reader)


class Snapshot(_Held):
    """Several reads of one state of the file; the state is that of the first read."""

    __slots__ = ("_broken", "_cold")

    def __init__(self, file: ReaderSource, *, cold: bool = False) -> None:
        super().__init__(file, "a snapshot", lasts=cold)
        self._cold = cold
        self._broken: BaseException | None = None  # why it cannot be read from any more

    def __enter__(self) -> Self:
        self._reader = reader = self._file.take_cold() if self._cold else self._file.take()
        try:
            reader.execute("BEGIN")
        except Exception as error:
            raise self._failed(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def read(self, sql: str, args: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a statement."""
        reader = self._current()
        try:
            rows: list[Row] = reader.execute(sql, args).fetchall()
        except Exception as error:
            self._broken = self._failed(error)
            raise self._broken from error
        if self._expired:
            self._check_age()
        return rows

    def read_each(self, sql: str, arguments: Sequence[Sequence[Any]]) -> list[Row]:
        """Return the rows of a statement with each of several lists of values, one after the other."""
        rows: list[Row] = []
        for at in range(0, len(arguments), _RUNS_PER_CHECK):
            reader = self._current()
            try:
                rows += reader.executemany(sql, arguments[at : at + _RUNS_PER_CHECK])
            except Exception as error:
                self._broken = self._failed(error)
                raise self._broken from error
        if self._expired:
            self._check_age()
        return rows

    def get(self, sql: str, args: Sequence[Any] = ()) -> Row | None:
        """Return the first row of a statement, or None."""
        reader = self._current()
        try:
            row: Row | None = reader.execute(sql, args).fetchone()
        except Exception as error:
            self._broken = self._failed(error)
            raise self._broken from error
        if self._expired:
            self._check_age()
        return row

    def stream(self, sql: str, args: Sequence[Any] = (), chunk: int = 256) -> Stream:
        """Return the rows of a statement in lists; it ends with the snapshot."""
        return Stream(self._file, sql, args, chunk, self._current(), lasts=self._lasts)

    def each(self, sql: str, args: Sequence[Any] = ()) -> Iterator[Row]:
        """Yield the rows of a statement one by one."""
        for chunk in self.stream(sql, args):
            yield from chunk

    def _current(self) -> apsw.Connection:
        reader = self._reader
        if reader is None:
            self._file.check_open()
            if self._expired:
                raise self._too_old(self._file.monotonic() - self._since)
            if self._broken is not None:
                raise self._broken
            raise RuntimeError("a snapshot is used within its with block only")
        self._check_age()
        return reader

    def _let_go(self) -> None:
        if (reader := self._reader) is not None and reader.in_transaction:
            reader.execute("ROLLBACK")

    def _forget(self) -> None:
        pass

    def _release(self) -> None:
        reader, self._reader = self._reader, None
        if reader is None:
            return
        try:
            if reader.in_transaction:
                reader.execute("ROLLBACK")
        except Exception:
            self._file.drop(reader)
            return
        self._file.give(reader)
