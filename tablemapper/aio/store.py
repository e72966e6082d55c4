"""The same verbs for asyncio: `tablemapper.open_async`.

Each call is that of a `Store`, made in a thread (`tablemapper.workers`), so that the event loop never waits for a disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Never, NoReturn, Self, TypeVar, cast, overload

from ..engines.check import RepairReport, Report
from ..engines.opening import open_engine
from ..engines.protocol import Engine
from ..engines.statistics import Statistics
from ..engines.status import Status
from ..entities.aggregates import Aggregate
from ..entities.entity import Entity, Record
from ..entities.index import IndexRange
from ..entities.key import KeyOf
from ..events import Event, Observer, observer
from ..expressions.habits import STORE_HABITS, TRANSACTION_HABITS, refuse_habits
from ..expressions.tree import Assignment, Predicate
from ..planning.partitions import Partition
from ..progress import ProgressOption, start_meter
from ..scripts.migrations import ScriptsOption, ways_back
from ..store.builds import HOLD, REST, BuildReport, build_declared
from ..store.observation import ObservedBuffer, noting
from ..store.opening import check_limits, explaining, new_store, schema_of
from ..store.operations import ByKey, Operations, not_found
from ..store.store import Store, Unknown
from ..store.transaction import Buffer
from ..store.windows import WindowPace, write_many
from .awaited import Face, awaited
from .cancellation import Cancellation
from .cursor import AsyncCursor
from .query import AsyncMixedQuery, AsyncQuery, AsyncResults

if TYPE_CHECKING:  # it imports asyncio, which a program without an event loop need not load
    from .workers import Workers

__all__ = ["AsyncStore", "AsyncTransaction", "Opening", "open_async"]

A = TypeVar("A", bound=Aggregate)
M = TypeVar("M", bound=Entity)
R = TypeVar("R", bound=Record)
R2 = TypeVar("R2", bound=Record)
R3 = TypeVar("R3", bound=Record)
R4 = TypeVar("R4", bound=Record)
R5 = TypeVar("R5", bound=Record)
T = TypeVar("T")

_CURSORS = 32  # that hold a state of the store at a time; half of the connections that a file reads with


def open_async(
    path: str | os.PathLike[str],
    *,
    models: Sequence[type[Record]] | None = None,
    read_only: bool = False,
    credential: Any = None,
    migrations: ScriptsOption | None = None,
    durability: Literal["full", "relaxed"] = "full",
    limits: Literal["azure"] | None = None,
    timeout: float | None = None,
    progress: ProgressOption = False,
    build: bool = True,
    observe: Callable[[Event], object] | None = None,
    slow: float | None = None,
    threads: int = 32,
) -> Opening:
    """Open a store for asyncio, or create it: ``async with tm.open_async(…) as store``, or ``store = await …``.

    Args:
        path: as for `tablemapper.open`, as are `models`, `read_only`, `durability`, `limits` and `timeout`.
        models: the classes that the program uses.
        credential: as for `tablemapper.open`.
        migrations: as for `tablemapper.open`.
        durability: ``"full"`` or ``"relaxed"``.
        limits: ``"azure"`` or None.
        timeout: as for `tablemapper.open`; the wait for a free connection counts, from the call on.
        progress: True for a bar, or a function, which is called in another thread.
        build: as for `tablemapper.open`.
        observe: as for `tablemapper.open`; called in the thread that made the call.
        slow: as for `tablemapper.open`; the wait for a thread does not count.
        threads: how many calls run at a time at most; the others wait their turn.

    Raises:
        InvalidModel, InvalidMigration, SchemaMismatch, NotAStore, CorruptStore, StoreLocked, StoreReadOnly: when it is
            awaited, for the reasons of `tablemapper.open`.
    """
    if threads < 1:
        raise ValueError(f"threads={threads!r}: expected 1 or more")
    check_limits(limits)
    watch = observer(observe, slow)

    def start(waited: Callable[[], float]) -> Engine:
        schema = schema_of(models, read_only=read_only)
        ways = ways_back(migrations)
        with explaining(path, migrations):
            engine = open_engine(
                path,
                schema,
                read_only=read_only,
                credential=credential,
                durability=durability,
                timeout=timeout,
                waited=waited,
                ways_back=ways,
            )
        if build and not read_only:
            build_declared(engine, progress)
        return engine

    return Opening(start, watch, limits=limits, threads=threads, timeout=timeout)


class Opening:
    """A store that is about to be opened: to be awaited, or used in an ``async with``, which closes it too."""

    def __init__(
        self,
        start: Callable[[Callable[[], float]], Engine],
        watch: Observer | None = None,
        *,
        limits: Literal["azure"] | None,
        threads: int,
        timeout: float | None,
    ) -> None:
        self._start = start
        self._watch = watch
        self._limits: Literal["azure"] | None = limits
        self._threads = threads
        self._timeout = 5.0 if timeout is None else timeout
        self._store: AsyncStore | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"{name}: the store is not open yet; await tm.open_async(…), or use async with")

        def __enter__(self) -> NoReturn:
            raise TypeError("async with, not with, opens it: async with tm.open_async(…) as store")

        def __exit__(self, *_: object) -> None: ...

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self._open().__await__()

    async def _open(self) -> AsyncStore:
        from .workers import Workers

        workers = Workers(threads=self._threads, cursors=_CURSORS, timeout=self._timeout)
        opened: list[Engine] = []
        try:
            await workers.run(lambda: opened.append(self._start(workers.waited)))
        except BaseException:
            for engine in opened:  # it was cancelled too late
                engine.close()
            workers.close()
            raise
        return AsyncStore(opened[0], workers, self._watch, limits=self._limits)

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        if self._store is not None:
            await self._store.close()


@refuse_habits(STORE_HABITS, lambda _: ("a store", "Product"))
class AsyncStore(Face[Store], ByKey):
    """A `Store` whose verbs are awaited, for the tasks of one event loop; `open_async` opens it.

    A cancelled call ends when its outcome is certain: its write is complete or has not happened.
    """

    def __init__(
        self, engine: Engine, workers: Workers, watch: Observer | None = None, *, limits: Literal["azure"] | None = None
    ) -> None:
        super().__init__(workers, new_store(engine, watch, limits=limits))
        workers.quick_reads = engine.capabilities.quick_reads
        self._operations = Operations(engine, limits=limits)
        self._watch = watch

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise TypeError("async with, not with, opens it: async with tm.open_async(…) as store")

        def __exit__(self, *_: object) -> None: ...

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AsyncStore cannot be pickled or copied; open it in the other process, by its path")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def classes(self) -> Mapping[str, type[Record]]:
        """The classes that the store was opened with, by name; without models, those of the file's catalogue."""
        return self._sync.classes

    def __repr__(self) -> str:
        return f"<AsyncStore {self._operations.engine!r}>"

    async def close(self) -> None:
        """Close the files. Safe to call twice; as `Store.close`."""
        if not self._workers.closed:
            try:
                await self._workers.run(self._sync.close)
            finally:
                self._workers.close()

    # ------------------------------------------------------------------------------------------ reading

    get = awaited(Store.get, brief=True)
    __getitem__ = awaited(Store.__getitem__, brief=True)
    group = awaited(Store.group, brief=True)
    get_many = awaited(Store.get_many)
    exists = awaited(Store.exists, brief=True)

    @overload
    def query(self, what: type[R], /) -> AsyncQuery[R]: ...
    @overload
    def query(self, what: IndexRange[R], /) -> AsyncQuery[R]: ...
    @overload
    def query(self, a: type[R], b: type[R2], /) -> AsyncMixedQuery[R, R2, R2, R2, R2]: ...
    @overload
    def query(self, a: type[R], b: type[R2], c: type[R3], /) -> AsyncMixedQuery[R, R2, R3, R3, R3]: ...
    @overload
    def query(self, a: type[R], b: type[R2], c: type[R3], d: type[R4], /) -> AsyncMixedQuery[R, R2, R3, R4, R4]: ...
    @overload
    def query(
        self, a: type[R], b: type[R2], c: type[R3], d: type[R4], e: type[R5], /
    ) -> AsyncMixedQuery[R, R2, R3, R4, R5]: ...
    def query(self, what: Any, /, *others: Any) -> Any:
        """Return a query to await, or to loop over; as `Store.query`."""
        query: Any = self._sync.query(what, *others)
        return AsyncMixedQuery(self._workers, query) if others else AsyncQuery(self._workers, query)

    def partition(self, *where: Predicate[Any] | type[Record] | Partition[Record]) -> AsyncCursor[Record | Unknown]:
        """Return all entities of one partition, of every class, in order, for ``async for``; as `Store.partition`."""
        return AsyncCursor(self._workers, partial(self._sync.partition, *where))

    def partitions(self, cls: type[R], /) -> AsyncCursor[Partition[R]]:
        """Return the partitions that hold entities of a class, for ``async for``; as `Store.partitions`."""
        return AsyncCursor(self._workers, partial(self._sync.partitions, cls))

    # ------------------------------------------------------------------------------------------ writing

    insert = awaited(Store.insert)
    replace = awaited(Store.replace)
    upsert = awaited(Store.upsert)
    delete = awaited(Store.delete)
    update = awaited(Store.update)
    clear = awaited(Store.clear)
    move = awaited(Store.move)

    @overload
    async def merge(
        self,
        key: KeyOf[M],
        /,
        *assignments: Assignment[M],
        if_match: str | None = None,
        returning: Literal[False] = False,
        **values: Any,
    ) -> None: ...
    @overload
    async def merge(
        self,
        key: KeyOf[M],
        /,
        *assignments: Assignment[M],
        if_match: str | None = None,
        returning: Literal[True],
        **values: Any,
    ) -> M: ...
    async def merge(
        self,
        key: KeyOf[M],
        /,
        *assignments: Assignment[M],
        if_match: str | None = None,
        returning: bool = False,
        **values: Any,
    ) -> M | None:
        """Change some fields of an entity, without reading it first; as `Store.merge`."""
        merge: Any = self._sync.merge  # (whose overloads know no bool)
        merged: M | None = await self._workers.run(
            merge, key, *assignments, if_match=if_match, returning=returning, **values
        )
        return merged

    def transaction(self, *, across_partitions: bool = False) -> AsyncTransaction:
        """Return an entity group transaction, for ``async with store.transaction() as tx:``; as `Store.transaction`."""
        kind = Buffer if self._watch is None else partial(ObservedBuffer, observer=self._watch)
        buffer = kind(self._operations, across=across_partitions, here=self._workers.current_task)
        return AsyncTransaction(buffer, self._workers)

    async def insert_many(
        self,
        entities: Iterable[Entity] | AsyncIterable[Entity],
        /,
        *,
        atomic: bool = False,
        progress: ProgressOption = False,
    ) -> int:
        """Insert a stream of entities in bounded memory; as `Store.insert_many`.

        A synchronous iterable is iterated in another thread. A call that is cancelled leaves whole windows written;
        with ``atomic=True``, which takes a synchronous iterable or a query, all or nothing.
        """
        if isinstance(entities, AsyncResults):
            entities = cast(Iterable[Entity], entities._sync)
        if not isinstance(entities, AsyncIterable):
            cancellation = Cancellation()
            insert = partial(self._sync.insert_many, atomic=atomic, progress=cancellation.progress(progress))
            return await self._workers.run_until(cancellation, partial(insert, cancellation.items(entities)))
        if atomic:
            raise TypeError(
                "insert_many: atomic=True takes an iterable or a query, not an asynchronous iterable; collect it first, "
                "or write it in windows"
            )
        return await self._stream("insert", entities, progress)

    async def insert_columns(
        self, cls: type[M], columns: Any, /, *, atomic: bool = False, progress: ProgressOption = False
    ) -> int:
        """Insert the rows of columns; as `Store.insert_columns`."""
        cancellation = Cancellation()
        insert = partial(self._sync.insert_columns, cls, columns, atomic=atomic)
        return await self._workers.run_until(cancellation, partial(insert, progress=cancellation.progress(progress)))

    async def upsert_many(
        self, entities: Iterable[Entity] | AsyncIterable[Entity], /, *, progress: ProgressOption = False
    ) -> int:
        """Insert or replace a stream of entities; as `Store.upsert_many`."""
        return await self._stream("upsert", entities, progress)

    async def replace_many(
        self, entities: Iterable[Entity] | AsyncIterable[Entity], /, *, progress: ProgressOption = False
    ) -> int:
        """Replace the stored entities by a stream of entities; as `Store.replace_many`."""
        return await self._stream("replace", entities, progress)

    async def delete_many(
        self,
        targets: Iterable[Entity | KeyOf[Any]] | AsyncIterable[Entity | KeyOf[Any]],
        /,
        *,
        progress: ProgressOption = False,
    ) -> int:
        """Delete a stream of entities or keys, or what a query finds; as `Store.delete_many`."""
        return await self._stream("delete", targets, progress)

    async def _stream(
        self, verb: Literal["insert", "upsert", "replace", "delete"], items: Any, progress: ProgressOption
    ) -> int:
        cancellation = Cancellation()
        name = f"{verb}_many"
        if isinstance(items, AsyncResults):  # it is read where it is written
            items = items._sync
        if not isinstance(items, AsyncIterable):
            write = partial(getattr(self._sync, name), progress=cancellation.progress(progress))
            return await self._workers.run_until(cancellation, partial(write, cancellation.items(items)))
        call = None if self._watch is None else self._watch.call(name)
        written = 0

        def write_window(window: Iterable[Any]) -> int:
            window = cancellation.items(window)
            if call is None:
                return write_many(self._operations, verb, window, False, written=written)
            with call:
                call.written = write_many(self._operations, verb, noting(call, window), False, written=written)
            return call.written

        try:
            with start_meter(progress, name) as meter:
                async for window in _windows(items):
                    done = await self._workers.run_until(cancellation, partial(write_window, window))
                    meter.advance(done - written)
                    written = done
        finally:
            if call is not None:
                call.end()
        return written

    # ------------------------------------------------------------------------------------------ care

    async def check(self, *, progress: ProgressOption = False) -> Report:
        """Recompute index rows and aggregates from the entities, and report the differences; as `Store.check`."""
        cancellation = Cancellation()
        return await self._workers.run_until(
            cancellation, partial(self._sync.check, progress=cancellation.progress(progress))
        )

    async def status(self) -> Status:
        """Return what the store maintains, the progress of builds, and its migrations; as `Store.status`."""
        return await self._workers.run(self._sync.status)

    async def statistics(
        self,
        cls: type[Record],
        /,
        *,
        recent: timedelta = timedelta(hours=1),
        top: int = 10,
        progress: ProgressOption = False,
    ) -> Statistics:
        """Count the entities, partitions and index rows of a class, and their bytes; as `Store.statistics`."""
        cancellation = Cancellation()
        return await self._workers.run_until(
            cancellation,
            partial(self._sync.statistics, cls, recent=recent, top=top, progress=cancellation.progress(progress)),
        )

    async def sweep(self, *, full: bool = False, progress: ProgressOption = False) -> int:
        """Finish or undo what writers left that ended early; as `Store.sweep`."""
        cancellation = Cancellation()
        return await self._workers.run_until(
            cancellation, partial(self._sync.sweep, full=full, progress=cancellation.progress(progress))
        )

    async def repair(self, *, progress: ProgressOption = False) -> RepairReport:
        """Correct every index row and every aggregate from the entities; as `Store.repair`."""
        cancellation = Cancellation()
        return await self._workers.run_until(
            cancellation, partial(self._sync.repair, progress=cancellation.progress(progress))
        )

    async def compact(self, *, progress: ProgressOption = False) -> None:
        """Rewrite the file in order, without the space that deleted entities left; as `Store.compact`."""
        cancellation = Cancellation()
        await self._workers.run_until(
            cancellation, partial(self._sync.compact, progress=cancellation.progress(progress))
        )

    async def build(
        self, *, limit: int | None = None, progress: ProgressOption = False, hold: float = HOLD, rest: float = REST
    ) -> BuildReport:
        """Build new indexes and aggregates beside other writers; as `Store.build`."""
        cancellation = Cancellation()
        return await self._workers.run_until(
            cancellation,
            partial(self._sync.build, limit=limit, progress=cancellation.progress(progress), hold=hold, rest=rest),
        )

    async def backup(self, path: str | os.PathLike[str], /, *, progress: ProgressOption = False) -> None:
        """Write a copy of the current state to a new file, while the store is in use; as `Store.backup`."""
        cancellation = Cancellation()
        await self._workers.run_until(
            cancellation, partial(self._sync.backup, path, progress=cancellation.progress(progress))
        )


class _Noted(Awaitable[None]):
    """What a verb of a transaction returns: it is done already, and may be awaited."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_NOTED = _Noted()


@refuse_habits(TRANSACTION_HABITS, lambda _: ("a transaction", "Product"))
class AsyncTransaction(ByKey):
    """Buffered operations, written together at the end of the ``async with`` block; for one task.

    The verbs that write only record an operation: you may await them, but need not. Await those that read.
    """

    def __init__(self, buffer: Buffer, workers: Workers) -> None:
        self._buffer = buffer
        self._run = workers.run

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise TypeError("async with, not with, opens it: async with store.transaction() as tx")

        def __exit__(self, *_: object) -> None: ...

    def __repr__(self) -> str:
        return f"<AsyncTransaction{self._buffer!r}>"

    def __reduce__(self) -> Never:
        raise TypeError("a transaction cannot be pickled or copied; it belongs to its store, and to one block")

    async def __aenter__(self) -> Self:
        self._buffer.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if pending := self._buffer.end(kind):
            await self._run(self._buffer.write, pending)

    async def get(self, key: KeyOf[R], /, *misplaced: Never) -> R | None:
        """Return an entity as it will be after the operations so far, or None; as `Transaction.get`."""
        self._buffer.check_owner()
        entity: R | None = await self._run(self._buffer.get, key, misplaced)
        return entity

    async def group(self, key: KeyOf[A], /, *misplaced: Never) -> A:
        """Return the group of an aggregate with this key, or an empty one; as `Transaction.group`."""
        self._buffer.check_owner()
        group: A = await self._run(self._buffer.operations.group, key, misplaced, self._buffer.get)
        return group

    async def _existing(self, key: KeyOf[R]) -> R:
        entity = await self.get(key)
        if entity is None:
            raise not_found(key)
        return entity

    def __getitem__(self, key: KeyOf[R], /) -> Coroutine[Any, Any, R]:
        """Return an entity as it will be after the operations so far, to be awaited; as `Transaction.__getitem__`."""
        return self._existing(key)

    async def exists(self, key: KeyOf[Any], /) -> bool:
        """Return whether an entity will have this key after the operations so far; as `Transaction.exists`."""
        self._buffer.check_owner()
        entity: Record | None = await self._run(partial(self._buffer.get, key, handed_out=False))
        return entity is not None

    def insert(self, entity: Entity, /) -> Awaitable[None]:
        """Store a new entity; as `Transaction.insert`."""
        self._buffer.add(self._buffer.operations.insert(entity))
        return _NOTED

    def replace(self, entity: Entity, /, *, if_match: str | None = None) -> Awaitable[None]:
        """Replace the stored entity; as `Transaction.replace`."""
        self._buffer.add(self._buffer.operations.replace(entity, if_match))
        return _NOTED

    def merge(
        self, key: KeyOf[M], /, *assignments: Assignment[M], if_match: str | None = None, **values: Any
    ) -> Awaitable[None]:
        """Change some fields of an entity; as `Transaction.merge`."""
        self._buffer.add(self._buffer.operations.merge(key, assignments, values, if_match))
        return _NOTED

    def upsert(self, entity: Entity, /, *, merge: bool = False) -> Awaitable[None]:
        """Insert an entity, or replace or merge into the stored one; as `Transaction.upsert`."""
        self._buffer.add(self._buffer.operations.upsert(entity, merge=merge))
        return _NOTED

    def delete(self, target: Entity | KeyOf[Any], /, *, if_match: str | None = None) -> Awaitable[None]:
        """Delete an entity; as `Transaction.delete`."""
        self._buffer.add(self._buffer.operations.delete(target, if_match))
        return _NOTED

    def require(self, target: Entity | KeyOf[Any], /) -> Awaitable[None]:
        """Make the transaction depend on an entity that it only reads; as `Transaction.require`."""
        self._buffer.add(self._buffer.operations.require(target))
        return _NOTED


async def _windows(items: AsyncIterable[T]) -> AsyncIterator[list[T]]:
    """Yield what comes, as much as a store writes in one transaction."""
    pace = WindowPace(time.monotonic)
    window: list[T] = []
    async for item in items:
        window.append(item)
        if pace.took(1, 0):
            yield window
            pace.begin()
            window = []
    if window:
        yield window
