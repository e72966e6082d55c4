"""A store that is never saved: one connection, which all threads share in turn."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Self, TypeVar

import apsw

from ..driver.connections import vacuum
from ..driver.driver_errors import translated
from ..driver.snapshots import Row, Snapshot
from .database import File
from .group_commit import CommitQueue, PendingWrite
from .writer import Writer

T = TypeVar("T")


class MemoryFile(File):
    """A database in memory. A read within a write sees what that has written so far."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._started_reads: weakref.WeakSet[_StartedRead[Any]] = weakref.WeakSet()

    def read(self, sql: str, args: Sequence[Any] = ()) -> list[Row]:
        rows: list[Row] = self._exclusive(lambda connection: connection.execute(sql, args).fetchall())
        return rows

    def get(self, sql: str, args: Sequence[Any] = ()) -> Row | None:
        row: Row | None = self.seek(sql, args)
        return row

    def seek(
        self, sql: str, args: Sequence[Any] = (), fetch: Callable[[apsw.Cursor], Any] = apsw.Cursor.fetchone
    ) -> Any:
        return self._exclusive(lambda connection: fetch(connection.execute(sql, args)))

    def stream(self, sql: str, args: Sequence[Any] = (), chunk: int = 256) -> Iterator[list[Row]]:
        return self.in_one_state(lambda snapshot: snapshot.stream(sql, args, chunk))

    def snapshot(self, *, cold: bool = False) -> Snapshot:
        return _MemorySnapshot(self)

    def in_one_state(self, reader: Callable[[Snapshot], Iterator[T]]) -> Iterator[T]:
        with (snapshot := self.snapshot()):
            started = _StartedRead(self, reader(snapshot))
            self._started_reads.add(started)
        if self._within():
            started.finish()
        return started

    def _write(self, apply: Callable[[Writer], T], generation: int | None, *, exclusive: bool) -> PendingWrite[T]:
        def finish_and_apply(writer: Writer) -> T:
            self._finish()
            return apply(writer)

        return super()._write(finish_and_apply, generation, exclusive=exclusive)

    def _compact(self, step: Callable[[], object], change: Callable[[Writer], object]) -> None:
        self._finish()

        def use(connection: apsw.Connection) -> None:
            with connection:
                change(Writer(connection, self._timestamps))
            vacuum(connection, step)

        self._use(use)

    def _finish(self) -> None:
        """Read what is left of every read that was begun."""
        for started in list(self._started_reads):
            started.finish()

    def _within(self) -> bool:
        """Tell whether this thread is in a write, or in a snapshot."""
        return self._writes.queue.is_mine()

    def _exclusive(self, use: Callable[[apsw.Connection], T]) -> T:
        if self._within():
            return self._use(use)
        with self._writes.queue.lock:
            return self._use(use)

    def _use(self, use: Callable[[apsw.Connection], T]) -> T:
        self.check_open()
        assert self._connection is not None
        try:
            return use(self._connection)
        except Exception as error:
            raise translated(error, self.path) from error

    def _backup_source(self, copy: Callable[[apsw.Connection], None]) -> None:
        self._exclusive(copy)


class _MemorySnapshot(Snapshot):
    """Keeps all other threads out while it is open."""

    __slots__ = ("_exclusive", "_memory")

    def __init__(self, file: MemoryFile) -> None:
        super().__init__(file)
        self._memory = file
        self._exclusive: Generator[None] | None = None

    def __enter__(self) -> Self:
        file = self._memory
        file.check_open()
        queue = file._writes.queue
        if queue.owner != threading.get_ident():
            self._exclusive = lock_steps = _hold_lock(queue)
            next(lock_steps)
        return self

    def __exit__(self, *_: object) -> None:
        if self._exclusive is not None:
            self._exclusive.close()

    def read(self, sql: str, args: Sequence[Any] = ()) -> list[Row]:
        return self._memory.read(sql, args)

    def read_each(self, sql: str, arguments: Sequence[Sequence[Any]]) -> list[Row]:
        return self._memory._exclusive(lambda connection: connection.executemany(sql, arguments).fetchall())

    def get(self, sql: str, args: Sequence[Any] = ()) -> Row | None:
        return self._memory.get(sql, args)

    def stream(self, sql: str, args: Sequence[Any] = (), chunk: int = 256) -> Any:
        use = self._memory._use
        cursor = use(lambda connection: connection.execute(sql, args))
        while rows := use(lambda _: list(islice(cursor, chunk))):
            yield rows


def _hold_lock(queue: CommitQueue) -> Generator[None]:
    """Hold the lock from the first step until it is closed or freed: an interrupt between two steps cannot keep it."""
    with queue.lock:
        try:
            queue.owner = threading.get_ident()
            yield
        finally:
            queue.owner = 0


class _StartedRead(Generic[T]):
    """A read that was begun, and goes on as it is asked for more; what is left is read before anything is written."""

    def __init__(self, file: MemoryFile, items: Iterator[T]) -> None:
        self._file = file
        self._items: Iterator[T] | None = items
        self._remaining: deque[T] = deque()
        self._error: BaseException | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._file.snapshot():
            if self._items is not None:
                return next(self._items)
        if self._remaining:
            return self._remaining.popleft()
        if self._error is not None:
            raise self._error
        raise StopIteration

    def finish(self) -> None:
        """Read what is left; an error is raised when more is asked for."""
        items, self._items = self._items, None
        try:
            self._remaining.extend(items or ())
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise
