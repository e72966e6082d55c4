"""The same verbs for asyncio: a transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Never, NoReturn, Self, TypeVar, overload

from ..engines.protocol import Operation
from ..entities.aggregates import Aggregate
from ..entities.entity import Entity, Record
from ..entities.key import KeyOf
from ..expressions.foreign_names import refuse_foreign_names
from ..expressions.tree import Assignment
from ..verbs.operations import KeyedVerbs, not_found
from ..verbs.transaction import TransactionBuffer

if TYPE_CHECKING:  # it imports asyncio, which a program without an event loop need not load
    from .workers import Workers

A = TypeVar("A", bound=Aggregate)
M = TypeVar("M", bound=Entity)
R = TypeVar("R", bound=Record)


class _Noted(Awaitable[None]):
    """The result of a verb of a transaction: it is done already, and may be awaited."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_COMPLETED = _Noted()


@refuse_foreign_names("transaction", lambda _: ("a transaction", "Product"), "async")
class AsyncTransaction(KeyedVerbs):
    """Buffered operations, written together at the end of the ``async with`` block; for one task.

    The verbs that write only record an operation: you may await them, but need not. Await those that read.
    """

    def __init__(self, buffer: TransactionBuffer, workers: Workers) -> None:
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

    async def __getitem__(self, key: KeyOf[R], /) -> R:
        """Return an entity as it will be after the operations so far, to be awaited; as `Transaction.__getitem__`."""
        entity = await self.get(key)
        if entity is None:
            raise not_found(key)
        return entity

    async def exists(self, key: KeyOf[Any], /) -> bool:
        """Return whether an entity will have this key after the operations so far; as `Transaction.exists`."""
        self._buffer.check_owner()
        entity: Record | None = await self._run(partial(self._buffer.get, key, handed_out=False))
        return entity is not None

    def insert(self, entity: Entity, /) -> Awaitable[None]:
        """Store a new entity; as `Transaction.insert`."""
        self._buffer.add(self._buffer.operations.insert(entity))
        return _COMPLETED

    def replace(self, entity: Entity, /, *, if_match: str | None = None) -> Awaitable[None]:
        """Replace the stored entity; as `Transaction.replace`."""
        self._buffer.add(self._buffer.operations.replace(entity, if_match))
        return _COMPLETED

    @overload
    def merge(
        self,
        key: KeyOf[M],
        /,
        *assignments: Assignment[M],
        if_match: str | None = None,
        or_insert: M | None = None,
        returning: Literal[False] = False,
        **values: Any,
    ) -> Awaitable[None]: ...
    @overload
    def merge(
        self,
        key: KeyOf[M],
        /,
        *assignments: Assignment[M],
        if_match: str | None = None,
        or_insert: M | None = None,
        returning: Literal[True],
        **values: Any,
    ) -> Awaitable[M]: ...
    def merge(
        self,
        key: KeyOf[M],
        /,
        *assignments: Assignment[M],
        if_match: str | None = None,
        or_insert: M | None = None,
        returning: bool = False,
        **values: Any,
    ) -> Awaitable[Any]:
        """Change some fields of an entity; as `Transaction.merge`. With ``returning=True``, await it."""
        operation = self._buffer.operations.merge(key, assignments, values, if_match, or_insert)
        if returning:
            self._buffer.check_owner()
            return self._merged(operation)
        self._buffer.add(operation)
        return _COMPLETED

    async def _merged(self, operation: Operation) -> Any:
        return self._buffer.add_resolved(await self._run(self._buffer.resolve, operation))

    def upsert(self, entity: Entity, /, *, merge: bool = False) -> Awaitable[None]:
        """Insert an entity, or replace or merge into the stored one; as `Transaction.upsert`."""
        self._buffer.add(self._buffer.operations.upsert(entity, merge=merge))
        return _COMPLETED

    def delete(self, target: Entity | KeyOf[Any], /, *, if_match: str | None = None) -> Awaitable[None]:
        """Delete an entity; as `Transaction.delete`."""
        self._buffer.add(self._buffer.operations.delete(target, if_match))
        return _COMPLETED

    def require(self, target: Entity | KeyOf[Any], /) -> Awaitable[None]:
        """Make the transaction depend on an entity that it only reads; as `Transaction.require`."""
        self._buffer.add(self._buffer.operations.require(target))
        return _COMPLETED
