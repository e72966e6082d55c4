"""A store that is never saved: one connection, which all threads share in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeVar

import apsw

from .driver_errors import translated
from .file import File
from .snapshots import Row, Snapshot

__all__ = ["MemoryFile"]


T = TypeVar("T")


class MemoryFile(File):
    """A database in memory. Rows are read at once; a read within a write sees what that has written so far."""

    def read(self, sql: str, args: Sequence[Any] = ()) -> list[Row]:
        rows: list[Row] = self._alone(lambda connection: connection.execute(sql, args).fetchall())
        return rows

    def get(self, sql: str, args: Sequence[Any] = ()) -> Row | None:
        row: Row | None = self._alone(lambda connection: connection.execute(sql, args).fetchone())
        return row

    read_few, seek = read, get

    def stream(self, sql: str, args: Sequence[Any] = (), chunk: int = 256) -> Iterator[list[Row]]:
        rows = self.read(sql, args)
        return iter([rows[at : at + chunk] for at in range(0, len(rows), chunk)])

    def snapshot(self, *, cold: bool = False) -> Snapshot:
        return _MemorySnapshot(self)

    def _alone(self, use: Callable[[apsw.Connection], T]) -> T:
        line = self._writes.line
        if line.owner == threading.get_ident() and line.lock.locked():
            return self._use(use)
        with line.lock:
            return self._use(use)

    def _use(self, use: Callable[[apsw.Connection], T]) -> T:
        self.check_open()
        assert self._connection is not None
        try:
            return use(self._connection)
        except Exception as error:
            raise translated(error, self.path) from error

    def _backup_source(self, copy: Callable[[apsw.Connection], None]) -> None:
        self._alone(copy)


class _MemorySnapshot(Snapshot):
    """Keeps all other threads out while it is open."""

    __slots__ = ("_entered", "_memory")
    exclusive = True

    def __init__(self, file: MemoryFile) -> None:
        super().__init__(file)
        self._memory = file
        self._entered = False

    def __enter__(self) -> Self:
        file = self._memory
        file.check_open()
        line = file._writes.line
        if line.owner != threading.get_ident():
            line.lock.acquire()
            self._entered = True
            line.owner = threading.get_ident()
        return self

    def __exit__(self, *_: object) -> None:
        if self._entered:
            self._entered = False
            line = self._memory._writes.line
            line.owner = 0
            line.lock.release()

    def read(self, sql: str, args: Sequence[Any] = ()) -> list[Row]:
        return self._memory.read(sql, args)

    def get(self, sql: str, args: Sequence[Any] = ()) -> Row | None:
        return self._memory.get(sql, args)

    def stream(self, sql: str, args: Sequence[Any] = (), chunk: int = 256) -> Any:
        return self._memory.stream(sql, args, chunk)


File.in_memory = MemoryFile
