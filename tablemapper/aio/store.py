"""The same verbs for asyncio: the store.

Each call is that of a `Store`, made in a thread (`tablemapper.workers`), so that the event loop never waits for a disk.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Self, TypeVar, cast, overload

from ..engines.protocol import Engine
from ..entities.entity import Entity, Record
from ..entities.index import IndexRange
from ..entities.key import KeyOf
from ..errors import safe_repr
from ..events import Observer
from ..expressions.foreign_names import refuse_foreign_names
from ..expressions.tree import Assignment, Predicate
from ..progress import ProgressOption, start_meter
from ..query.partitions import Partition
from ..store.administration import copy
from ..store.copy import CopyReport
from ..store.instrumentation import ObservedBuffer, noting
from ..store.opening import new_store
from ..store.store import Store, UnknownRow
from ..verbs.lost_races import RACES, LostRaces, check_function
from ..verbs.operations import KeyedVerbs, Operations
from ..verbs.transaction import TransactionBuffer
from ..verbs.write_windows import WindowPace, write_many
from .awaited import AsyncFacade, awaited
from .cancellation import Cancellation
from .cursor import AsyncCursor
from .query import AsyncMixedQuery, AsyncQuery, AsyncResults
from .transaction import AsyncTransaction

if TYPE_CHECKING:  # it imports asyncio, which a program without an event loop need not load
    from .workers import Workers

M = TypeVar("M", bound=Entity)
R = TypeVar("R", bound=Record)
R2 = TypeVar("R2", bound=Record)
R3 = TypeVar("R3", bound=Record)
T = TypeVar("T")


@refuse_foreign_names("store", lambda _: ("a store", "Product"), "async")
class AsyncStore(AsyncFacade[Store], KeyedVerbs):
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
        quick = self._operations.engine.capabilities.quick_reads  # (else it would keep the event loop waiting)
        return self._sync.classes if quick else self._sync._classes()

    @property
    def uncompiled(self) -> Mapping[str, str]:
        """The classes of the catalogue that `classes` lacks; as `Store.uncompiled`."""
        return self._sync.uncompiled

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

    get: Final = awaited(Store.get, brief=True)
    __getitem__: Final = awaited(Store.__getitem__, brief=True)
    group: Final = awaited(Store.group, brief=True)
    get_many: Final = awaited(Store.get_many)
    exists: Final = awaited(Store.exists, brief=True)

    @overload
    def query(self, source: type[R], /) -> AsyncQuery[R]: ...
    @overload
    def query(self, source: IndexRange[R], /) -> AsyncQuery[R]: ...
    @overload
    def query(self, a: type[R], b: type[R2], /) -> AsyncMixedQuery[R, R2, R2]: ...
    @overload
    def query(self, a: type[R], b: type[R2], c: type[R3], /) -> AsyncMixedQuery[R, R2, R3]: ...
    @overload
    def query(
        self, a: type[Record], b: type[Record], c: type[Record], d: type[Record], /, *classes: type[Record]
    ) -> AsyncMixedQuery[Any, Any, Any]: ...
    def query(self, source: Any, /, *classes: Any) -> Any:
        """Return a query to await, or to loop over; as `Store.query`."""
        query: Any = self._sync.query(source, *classes)
        return AsyncMixedQuery(self._workers, query) if classes else AsyncQuery(self._workers, query)

    def partition(self, *where: Predicate[Any] | type[Record] | Partition[Record]) -> AsyncCursor[Record | UnknownRow]:
        """Return all entities of one partition, of every class, in order, for ``async for``; as `Store.partition`."""
        return AsyncCursor(self._workers, partial(self._sync.partition, *where))

    def partitions(self, cls: type[R], /) -> AsyncCursor[Partition[R]]:
        """Return the partitions that hold entities of a class, for ``async for``; as `Store.partitions`."""
        return AsyncCursor(self._workers, partial(self._sync.partitions, cls))

    # ------------------------------------------------------------------------------------------ writing

    insert: Final = awaited(Store.insert)
    replace: Final = awaited(Store.replace)
    upsert: Final = awaited(Store.upsert)
    delete: Final = awaited(Store.delete)
    update: Final = awaited(Store.update)
    clear: Final = awaited(Store.clear)
    expire: Final = awaited(Store.expire, long=True)
    drop: Final = awaited(Store.drop, long=True)

    async def use(self, *models: type[Record]) -> None:
        """Open further classes in the open store; as `Store.use`."""
        await self._workers.run(partial(self._sync.use, *models))
        self._operations.follow()

    move: Final = awaited(Store.move)
    insert_columns: Final = awaited(Store.insert_columns, long=True)
    upsert_columns: Final = awaited(Store.upsert_columns, long=True)

    @overload
    async def merge(
        self,
        key: KeyOf[M],
        /,
        *assignments: Assignment[M],
        if_match: str | None = None,
        or_insert: M | None = None,
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
        or_insert: M | None = None,
        returning: Literal[True],
        **values: Any,
    ) -> M: ...
    async def merge(
        self,
        key: KeyOf[M],
        /,
        *assignments: Assignment[M],
        if_match: str | None = None,
        or_insert: M | None = None,
        returning: bool = False,
        **values: Any,
    ) -> M | None:
        """Change some fields of an entity, without reading it first; as `Store.merge`."""
        merge: Any = self._sync.merge  # (whose overloads know no bool)
        merged: M | None = await self._workers.run(
            merge, key, *assignments, if_match=if_match, or_insert=or_insert, returning=returning, **values
        )
        return merged

    def transaction(self, *, across_partitions: bool = False) -> AsyncTransaction:
        """Return an entity group transaction, for ``async with store.transaction() as tx:``; as `Store.transaction`."""
        return AsyncTransaction(self._new_buffer(across=across_partitions), self._workers)

    def _new_buffer(self, *, across: bool) -> TransactionBuffer:
        kind = TransactionBuffer if self._watch is None else partial(ObservedBuffer, observer=self._watch)
        return kind(self._operations, across=across, here=self._workers.current_task)

    @overload
    async def run(
        self, function: Callable[[AsyncTransaction], Awaitable[T]], /, *, across_partitions: bool = False
    ) -> T: ...
    @overload
    async def run(self, function: Callable[[AsyncTransaction], T], /, *, across_partitions: bool = False) -> T: ...
    async def run(self, function: Callable[[AsyncTransaction], Any], /, *, across_partitions: bool = False) -> Any:
        """Call a function of a transaction, write what it collects, and return what it returned; as `Store.run`.

        Args:
            function: a coroutine function, or a plain one that only writes.
            across_partitions: as for `transaction`.
        """
        check_function(function)
        races = LostRaces()
        while True:
            buffer = self._new_buffer(across=across_partitions)
            with buffer.collecting():
                result = function(AsyncTransaction(buffer, self._workers))
                if isawaitable(result):
                    result = await result
            try:
                if pending := buffer.end():
                    await self._workers.run(buffer.write, pending)
            except RACES as error:
                await self._workers.sleep(races.delay(error, buffer.versions))
            else:
                return result

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
        written_count = 0

        def write_window(window: Iterable[Any]) -> int:
            window = cancellation.items(window)
            if call is None:
                return write_many(self._operations, verb, window, False, written=written_count)
            with call:
                call.written = write_many(self._operations, verb, noting(call, window), False, written=written_count)
            return call.written

        try:
            with start_meter(progress, name) as meter:
                async for window in _windows(items):
                    total = await self._workers.run_until(cancellation, partial(write_window, window))
                    meter.advance(total - written_count)
                    written_count = total
        finally:
            if call is not None:
                call.end()
        return written_count

    # ------------------------------------------------------------------------------------------ care

    check: Final = awaited(Store.check, long=True)
    status: Final = awaited(Store.status)
    statistics: Final = awaited(Store.statistics, long=True)
    advise: Final = awaited(Store.advise, long=True)
    sweep: Final = awaited(Store.sweep, long=True)
    repair: Final = awaited(Store.repair, long=True)
    compact: Final = awaited(Store.compact, long=True)
    build: Final = awaited(Store.build, long=True)
    freeze: Final = awaited(Store.freeze, long=True)
    unfreeze: Final = awaited(Store.unfreeze)
    backup: Final = awaited(Store.backup, long=True)


async def copy_async(
    source: AsyncStore,
    target: AsyncStore,
    /,
    *,
    only: Sequence[type[Entity]] | None = None,
    progress: ProgressOption = False,
) -> CopyReport:
    """Make the entities of one store those of another, in a thread; as `copy`.

    A task that is cancelled ends it between two steps: what is written stays, and the next call goes on from there.

    Args:
        source: it is only read.
        target: a store with the same classes; what only it has is deleted.
        only: as for `copy`.
        progress: True for a bar, or a function, which is called in another thread.

    Raises:
        SchemaMismatch, InvalidEntity, UniqueViolation, PreconditionFailed: for the reasons of `copy`.
    """
    for store in (source, target):
        if not isinstance(store, AsyncStore):
            raise TypeError(
                f"copy_async: expected two open AsyncStores, got {safe_repr(store)}; of two Stores: tm.copy(source, target)"
            )
    cancellation = Cancellation()
    call = partial(copy, source._sync, target._sync, only=only, progress=cancellation.progress(progress))
    slow = source if target._workers.quick_reads else target  # (what asks an account can end between two requests)
    return await slow._workers.run_until(cancellation, call)


async def _windows(items: AsyncIterable[T]) -> AsyncIterator[list[T]]:
    """Yield the items of a stream, as many as a store writes in one transaction."""
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
