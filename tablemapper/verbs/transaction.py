"""Entity group transactions: operations that are collected in a ``with`` block, and written together at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from threading import get_ident
from typing import Any, Literal, Never, Self, TypeAlias, TypeVar, overload

from ..engines.current_transaction import TransactionBlock
from ..engines.protocol import Operation
from ..entities.aggregates import Aggregate
from ..entities.entity import Entity, Record, set_row
from ..entities.key import KeyOf
from ..errors import EntityTooLarge, InvalidTransaction
from ..expressions.foreign_names import refuse_foreign_names
from ..expressions.tree import Assignment
from ..limits import MAX_OPERATIONS, MAX_TRANSACTION
from ..schema.model import Model
from ..schema.rows import Row
from .operations import KeyedVerbs, Operations, not_found

_Place: TypeAlias = tuple[str, str, str]
_NOBODY = object()
_entity_of = attrgetter("entity")

A = TypeVar("A", bound=Aggregate)
E = TypeVar("E", bound=Entity)
R = TypeVar("R", bound=Record)


class TransactionBuffer:
    """The operations of a transaction: what that of a store and that of an async store hold.

    Args:
        across: whether the operations may be of several partitions, and as many as there are.
        here: returns the current thread or task, to compare with the one that opened the transaction.
    """

    def __init__(self, operations: Operations, *, across: bool, here: Callable[[], object] = get_ident) -> None:
        if across:
            operations.engine.capabilities.check_across("transaction(across_partitions=True)")
        self.operations = operations
        self.versions: dict[_Place, int | None] = {}
        """The timestamp of each stored entity that was read; None: it was not there."""
        self._pending: dict[_Place, Operation] = {}
        self._entities_read: list[Record] = []
        self._read_back: list[tuple[Record, Row]] = []  # from the buffer, with the row that each was built from
        self._across = across
        self._most = 0
        self._here = here
        self._owner: object = _NOBODY
        self._block: TransactionBlock | None = None
        self._over = False

    def __repr__(self) -> str:
        state = ", over" if self._over else f" of {len(self._pending)} operations" if self._block else ", not begun"
        return f"{state}, {self.operations.engine!r}"

    def begin(self) -> None:
        """Begin the block.

        Raises:
            InvalidTransaction: it was begun before, or another one of the store is open.
        """
        if self._over or self._owner is not _NOBODY:
            raise InvalidTransaction("a transaction is used once; call store.transaction() again")
        self._block = TransactionBlock(self.operations.engine)
        self._owner = self._here()

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Begin the block, and end it if an error is raised; else the caller ends it."""
        self.begin()
        try:
            yield
        except BaseException as error:
            self.end(type(error))
            raise

    def end(self, error: type[BaseException] | None = None) -> list[Operation]:
        """End the block, and return what is to be written: nothing if it ended with an error.

        Raises:
            InvalidTransaction: an entity that was read in the block was changed, and would not be written.
        """
        pending, self._pending = self._pending, {}
        entities, read_back, self._entities_read, self._read_back = self._entities_read, self._read_back, [], []
        self._over = True
        self._owner = _NOBODY
        if self._block is not None:
            self._block.leave()
        if error is not None:
            return []
        if entities:
            written_ids = set(map(id, map(_entity_of, pending.values())))
            if not written_ids.issuperset(
                map(id, entities)
            ):  # (most blocks give back all, and no Python runs for each)
                read_back += [(entity, entity._row) for entity in entities if id(entity) not in written_ids]
        for entity, row in read_back:
            model = self.operations.models[type(entity)]
            _check_written(model, entity, row, pending.get((model.table, row[0], row[1])))
        return list(pending.values())

    def write(self, pending: list[Operation]) -> None:
        """Write what `end` returned."""
        if pending:
            self.operations.write_transaction(pending, across=self._across)

    def check_owner(self) -> None:
        """Refuse a call outside of the block, or by another thread or task.

        Raises:
            InvalidTransaction
        """
        if self._owner != self._here():
            raise InvalidTransaction(
                "the transaction is over; call store.transaction() again"
                if self._over
                else "a transaction is used inside its with block, by the thread (or task) that opened it"
            )

    def get(self, key: KeyOf[R], misplaced: tuple[object, ...] = (), *, handed_out: bool = True) -> R | None:
        """Return an entity as it will be after the operations so far, or None.

        Args:
            handed_out: whether the caller can change it.
        """
        if key.__class__ is not KeyOf or misplaced or (model := self.operations.models.get(key[0])) is None:
            model = self.operations.key(key, misplaced)[0]
        _, partition, row = key
        place = (model.table, partition, row)
        pending = self._pending.get(place) if self._pending else None
        if pending is None or pending.verb == "require":
            old_row = self._read_row(model, place)
            if old_row is None:
                return None
            entity = model.build_one(old_row)
            if handed_out:
                self._entities_read.append(entity)
        else:
            new = pending.new
            if pending.change is not None:
                old_row = self._read_row(model, place)
                new = None if old_row is None and pending.verb == "merge" else pending.change(old_row)
            if new is None:
                return None
            entity = model.build_one(new)
            set_row(entity, None)
            if handed_out:
                self._read_back.append((entity, new))
        return entity  # type: ignore[no-any-return]

    def _read_row(self, model: Model, place: _Place) -> Row | None:
        """Return a row as it is stored, and note its version."""
        row = self.operations.row(model, place[1], place[2])
        self.versions[place] = None if row is None else row[2]
        return row

    def resolve(self, operation: Operation) -> Operation:
        """Return a merge that depends on the version that is stored now, with the entity as it will be stored.

        Raises:
            EntityNotFound: it is not there, and the operation inserts nothing.
        """
        model, change = operation.model, operation.change
        assert change is not None
        old_row = self._read_row(model, (model.table, *operation.key))
        if old_row is None and operation.verb == "merge":
            raise not_found(KeyOf(model.cls, *operation.key))
        new = change(old_row)
        entity = model.build_one(new)
        set_row(entity, None)
        if old_row is None:
            return Operation("insert", model, *operation.key, new, entity=entity)
        etag = old_row[2] if operation.etag is None else operation.etag
        return Operation("merge", model, *operation.key, new, etag=etag, change=lambda _: new, entity=entity)

    def add_resolved(self, operation: Operation) -> Any:
        """Collect what `resolve` returned; return its entity, which may not be changed in the block."""
        self.add(operation)
        self._read_back.append((operation.entity, operation.new))  # type: ignore[arg-type]  # it has a row
        return operation.entity

    def add(self, operation: Operation) -> None:
        """Collect an operation.

        Raises:
            InvalidTransaction: it cannot be of one entity group transaction with the others.
            EntityTooLarge: all of them are more than 4 MiB.
        """
        if self._owner != self._here():
            self.check_owner()
        place = (operation.model.table, operation.partition, operation.row)
        if place in self._pending:
            raise InvalidTransaction(
                f"{operation}: {self._pending[place]} is in the transaction already; each entity can be in it once"
            )
        if not self._across:
            self._check_limits(operation)
        self._pending[place] = operation

    def _check_limits(self, operation: Operation) -> None:
        lifts = "; use store.transaction(across_partitions=True) where that need not run on Azure"
        for first in self._pending.values():
            if (first.model.table, first.partition) != (operation.model.table, operation.partition):
                raise InvalidTransaction(
                    f"{operation} is not in the table and partition of {first} "
                    f"({first.model.table}, {first.partition!r}){lifts}"
                )
            break
        if len(self._pending) >= MAX_OPERATIONS:
            raise InvalidTransaction(f"{operation} would be one more than {MAX_OPERATIONS} operations{lifts}")
        if operation.new is not None:
            self._most += operation.model.most(operation.new)
            if self._most > MAX_TRANSACTION:
                writes = [write for write in (*self._pending.values(), operation) if write.new is not None]
                size = sum(write.model.size(write.new) for write in writes if write.new is not None)
                if size > MAX_TRANSACTION:
                    raise EntityTooLarge(f"{operation}: {size:,} bytes, but a transaction may have {MAX_TRANSACTION:,}")


def _check_written(model: Model, entity: Record, row: Row, operation: Operation | None) -> None:
    """Refuse to end a block that read an entity and changed it, but does not write what it changed.

    Args:
        entity: as it is at the end of the block.
        row: what it was built from.
        operation: what is written under its key.
    """
    if model.aggregate is not None or (operation is not None and operation.verb == "delete"):
        return
    unwritten = model.changed(entity, row)
    mend = "tx.replace(p) writes it"
    if unwritten and operation is not None and operation.verb != "require":
        new = operation.new if operation.change is None else operation.change(row)
        unwritten = [field for field in unwritten if field in model.changed(entity, new)]  # type: ignore[arg-type]
        mend = f"{operation} does not write that; change it first, then give it to tx once, as tx.replace(p)"
    if unwritten:
        raise InvalidTransaction(
            f"{model.name} {row[:2]}: {' and '.join(field.name for field in unwritten)} changed in the block, but nothing writes "
            f"that, so nothing was written: {mend}. To calculate only, change a copy: p.replace(…)"
        )


@refuse_foreign_names("transaction", lambda _: ("a transaction", "Product"))
class Transaction(KeyedVerbs):
    """Buffered operations, written together at the end of the ``with`` block; for one thread.

    A verb checks its arguments, and the limits of an entity group transaction. The end of the block raises the errors
    that depend on the store: EntityExists, EntityNotFound, PreconditionFailed or UniqueViolation of the first operation
    that fails; then nothing was written. It raises InvalidTransaction for an entity that was read in the block and
    changed, but not given back by `replace`, `upsert` or `delete`.
    """

    def __init__(self, buffer: TransactionBuffer) -> None:
        self._buffer = buffer

    def __repr__(self) -> str:
        return f"<Transaction{self._buffer!r}>"

    def __reduce__(self) -> Never:
        raise TypeError("a transaction cannot be pickled or copied; it belongs to its store, and to one block")

    def __enter__(self) -> Self:
        self._buffer.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._buffer.write(self._buffer.end(kind))

    def get(self, key: KeyOf[R], /, *misplaced: Never) -> R | None:
        """Return an entity as it will be after the operations so far, or None.

        Raises:
            InvalidTransaction: it is called outside the block, or by another thread.
        """
        self._buffer.check_owner()
        return self._buffer.get(key, misplaced)

    def group(self, key: KeyOf[A], /, *misplaced: Never) -> A:
        """Return the group of an aggregate with this key, or an empty one.

        In an empty group counts are 0, and so are sums whose type has no None; all other measures are None.

        Raises:
            InvalidEntity: it is not a key of an aggregate that the store was opened with.
            InvalidTransaction: as `get`.
        """
        self._buffer.check_owner()
        return self._buffer.operations.group(key, misplaced, self._buffer.get)

    def __getitem__(self, key: KeyOf[R], /) -> R:
        """Return an entity as it will be after the operations so far.

        Raises:
            EntityNotFound: there will be none.
            InvalidTransaction: as `get`.
        """
        self._buffer.check_owner()
        entity = self._buffer.get(key)
        if entity is None:
            raise not_found(key)
        return entity

    def exists(self, key: KeyOf[Any], /) -> bool:
        """Return whether an entity will have this key after the operations so far.

        Raises:
            InvalidTransaction: as `get`.
        """
        self._buffer.check_owner()
        return self._buffer.get(key, handed_out=False) is not None

    def insert(self, entity: Entity, /) -> None:
        """Store a new entity; as `Store.insert`.

        Raises:
            InvalidTransaction: it cannot be in the same entity group transaction as the others.
            InvalidEntity, EntityTooLarge: it cannot be stored.
        """
        self._buffer.add(self._buffer.operations.insert(entity))

    def replace(self, entity: Entity, /, *, if_match: str | None = None) -> None:
        """Replace the stored entity; as `Store.replace`.

        Raises:
            PreconditionFailed: it has no ETag.
            InvalidTransaction, InvalidEntity, EntityTooLarge: as `insert`.
        """
        self._buffer.add(self._buffer.operations.replace(entity, if_match))

    @overload
    def merge(
        self,
        key: KeyOf[E],
        /,
        *assignments: Assignment[E],
        if_match: str | None = None,
        or_insert: E | None = None,
        returning: Literal[False] = False,
        **values: Any,
    ) -> None: ...
    @overload
    def merge(
        self,
        key: KeyOf[E],
        /,
        *assignments: Assignment[E],
        if_match: str | None = None,
        or_insert: E | None = None,
        returning: Literal[True],
        **values: Any,
    ) -> E: ...
    def merge(
        self,
        key: KeyOf[E],
        /,
        *assignments: Assignment[E],
        if_match: str | None = None,
        or_insert: E | None = None,
        returning: bool = False,
        **values: Any,
    ) -> E | None:
        """Change some fields of an entity; as `Store.merge`.

        Args:
            returning: read the entity now, and return it as it will be stored. The end of the block fails if others wrote
                it meanwhile; `Store.run` begins again then.

        Raises:
            EntityNotFound: with ``returning=True``, it is not there.
            InvalidTransaction, InvalidEntity: as `insert`.
        """
        operation = self._buffer.operations.merge(key, assignments, values, if_match, or_insert)
        if not returning:
            self._buffer.add(operation)
            return None
        self._buffer.check_owner()
        entity: E = self._buffer.add_resolved(self._buffer.resolve(operation))
        return entity

    def upsert(self, entity: Entity, /, *, merge: bool = False) -> None:
        """Insert an entity, or replace or merge into the stored one; as `Store.upsert`.

        Raises:
            InvalidTransaction, InvalidEntity, EntityTooLarge: as `insert`.
        """
        self._buffer.add(self._buffer.operations.upsert(entity, merge=merge))

    def delete(self, target: Entity | KeyOf[Any], /, *, if_match: str | None = None) -> None:
        """Delete an entity; as `Store.delete`.

        Raises:
            PreconditionFailed: it has no ETag.
            InvalidTransaction, InvalidEntity: as `insert`.
        """
        self._buffer.add(self._buffer.operations.delete(target, if_match))

    def require(self, target: Entity | KeyOf[Any], /) -> None:
        """Fail the transaction if an entity was written since it was read, or if no entity has a key.

        It counts as an operation, and the transaction cannot write the same entity. A group of an aggregate can be
        required too; the transaction's own writes do not count for it.

        Raises:
            PreconditionFailed: the entity has no ETag.
            InvalidTransaction, InvalidEntity: as `insert`.
        """
        self._buffer.add(self._buffer.operations.require(target))
