"""The user's object: verbs over an engine.

A verb turns its arguments into operations, checked whole before anything is written, hands them to the engine, and
stamps the entities with what was stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Literal, Self, TypeVar, overload

import attrs

from ..engines.protocol import Engine, Operation, Verb
from ..engines.sqlite.engine import SqliteEngine
from ..entities.entity import Entity, Record, key_of, set_row
from ..entities.index import IndexRange, KeyOf
from ..errors import (
    EntityTooLarge,
    InvalidEntity,
    InvalidQuery,
    InvalidTransaction,
    PreconditionFailed,
    shown,
)
from ..expressions.predicates import conjuncts
from ..expressions.tree import Assignment, Compare, Predicate
from ..limits import MAX_OPERATIONS, MAX_TRANSACTION
from ..progress import Meter, ProgressOption, start_meter
from ..query.mixed import MixedQuery, mixed
from ..query.prepared import Asked, Plans
from ..query.query import Query
from ..query.writing import Rewriting
from ..schema.check import Report
from ..schema.model import compile_schema, reserved_keys
from .operations import Verbs, not_found, stamp, stamp_batch, tell_written
from .windows import windows

__all__ = ["Store", "Transaction", "Unknown", "open_store"]

E = TypeVar("E", bound=Entity)
R = TypeVar("R", bound=Record)
R2 = TypeVar("R2", bound=Record)
R3 = TypeVar("R3", bound=Record)
R4 = TypeVar("R4", bound=Record)
R5 = TypeVar("R5", bound=Record)

_WINDOW = 20_000  # entities that a bulk verb converts before it takes the lock, and writes in one transaction
_ATTEMPTS = 100


@attrs.frozen
class Unknown:
    """A row of a partition that no opened class claims."""

    partition: str
    row: str
    properties: dict[str, Any]


def open_store(
    path: str | os.PathLike[str],
    *,
    models: Sequence[type[Record]],
    durability: Literal["full", "relaxed"] = "full",
    limits: Literal["azure"] | None = None,
    timeout: float = 5.0,
    progress: ProgressOption = False,
) -> Store:
    """Open a store, or create it.

    Args:
        path: a file, or ``":memory:"``.
        models: the entity and aggregate classes that are used; every index and aggregate that the file maintains from
            an entity class must be among them.
        durability: ``"full"``: what was acknowledged survives a power cut. ``"relaxed"``: the last transactions may be
            lost in one, all that remains is consistent.
        limits: ``"azure"`` counts the rows of indexes and aggregates in a transaction as Azure Tables would.
        timeout: seconds to wait for another process that writes.
        progress: shows the building of indexes and aggregates that are new; True for a bar, or a function.

    Raises:
        InvalidModel: the classes do not fit together.
        SchemaMismatch: the file was written with other ones; every difference is listed.
        NotAStore, CorruptStore, StoreLocked, StoreReadOnly: the file can not be used; it was left as it is.
    """
    if limits not in ("azure", None):
        raise ValueError(f'limits={shown(limits)}: expected "azure" or None')
    schema = compile_schema(models)
    engine = SqliteEngine.open(path, schema, durability=durability, timeout=timeout, progress=progress)
    return Store(engine, limits=limits)


class Store(Verbs):
    """Entities in one place. Safe to share between threads; refuses use after `close` and in a forked child."""

    def __init__(self, engine: Engine, *, limits: Literal["azure"] | None = None) -> None:
        special = {
            cls: test for members in engine.schema.tables().values() for cls, test in reserved_keys(members).items()
        }
        super().__init__(engine, special)
        self._maintained_limit = MAX_OPERATIONS if limits == "azure" else None
        self._plans = Plans(engine, Rewriting(engine))
        self._asked = {model.cls: Asked(model) for model in engine.schema.models}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self._engine!r}>"

    def close(self) -> None:
        """Close the files. Safe to call twice."""
        self._engine.close()

    # ------------------------------------------------------------------------------------------ reading

    def get(self, key: KeyOf[R], /) -> R | None:
        """Return the entity with this key, or None."""
        if key.__class__ is not KeyOf or (model := self._models.get(key[0])) is None:
            model = self._key(key)[0]
        stored = self._engine.get(model, key[1], key[2])
        found: R | None = None if stored is None else model.build_one(stored)
        return found

    def __getitem__(self, key: KeyOf[R], /) -> R:
        """Return the entity with this key, or raise EntityNotFound."""
        found = self.get(key)
        if found is None:
            raise not_found(key)
        return found

    def get_many(self, keys: Iterable[KeyOf[R]], /) -> list[R | None]:
        """Return the entities with these keys, None where there is none, all of one state of the store."""
        wanted = [self._key(key) for key in keys]
        rows = self._engine.get_many(wanted)
        return [None if row is None else model.build_one(row) for (model, _, _), row in zip(wanted, rows, strict=True)]

    def exists(self, key: KeyOf[Any], /) -> bool:
        """Tell whether an entity has this key."""
        return self._engine.get(*self._key(key)) is not None

    @overload
    def query(self, what: type[R], /) -> Query[R]: ...
    @overload
    def query(self, what: IndexRange[R], /) -> Query[R]: ...
    @overload
    def query(self, a: type[R], b: type[R2], /) -> MixedQuery[R, R2, R2, R2, R2]: ...
    @overload
    def query(self, a: type[R], b: type[R2], c: type[R3], /) -> MixedQuery[R, R2, R3, R3, R3]: ...
    @overload
    def query(self, a: type[R], b: type[R2], c: type[R3], d: type[R4], /) -> MixedQuery[R, R2, R3, R4, R4]: ...
    @overload
    def query(
        self, a: type[R], b: type[R2], c: type[R3], d: type[R4], e: type[R5], /
    ) -> MixedQuery[R, R2, R3, R4, R5]: ...
    def query(self, what: Any, /, *others: Any) -> Any:
        """Return a query over the entities of a class, or over a range of an index: ``Product.by_name("Dune")``.

        Several classes of one table can be asked together: ``store.query(Employee, Department)`` gives the entities of
        both, in row order.
        """
        if isinstance(what, type) and not others and (asked := self._asked.get(what)) is not None:
            return Query(self._plans, asked)
        if isinstance(what, IndexRange) and not others:
            return Query(self._plans, Asked(self._model(what.entity), what))
        models = []
        for one in (what, *others):
            if isinstance(one, IndexRange):
                raise InvalidQuery(f"query: a range of {one.name} can not be asked together with classes; ask it alone")
            if not isinstance(one, type):
                raise InvalidQuery(f"an entity class or Product.by_name(…) is needed, not {shown(one)}")
            models.append(self._model(one))
        return mixed(self._plans, models)

    def partition(self, *where: Predicate[Any]) -> Iterator[Record | Unknown]:
        """Yield every entity of one partition, of every type, in row order.

        Args:
            where: equalities that fix the partition of a class: ``store.partition(Employee.department == "Sales")``.
        """
        values: dict[str, Any] = {}
        owner: Any = None
        for predicate in conjuncts(where):
            if not isinstance(predicate, Compare) or predicate.op != "==" or predicate.attr.part or predicate.attr.path:
                raise InvalidQuery(
                    f"partition: equalities are needed, as in Employee.department == …, not {shown(predicate)}"
                )
            owner = predicate.attr.owner
            values[predicate.attr.name] = predicate.value
        if owner is None:
            raise InvalidQuery("partition: say which, as in Employee.department == …")
        model = self._model(owner)
        template = model.declaration.templates[0]
        if set(template.fields) != set(values):
            raise InvalidQuery(
                f"partition: the partition key of {model.name} is made of {', '.join(template.fields) or 'no field'}; "
                f"{', '.join(values)} was given"
            )
        return self._partition(model.table, template.encode(values))

    def _partition(self, table: str, partition: str) -> Iterator[Record | Unknown]:
        for chunk in self._engine.partition(table, partition):
            for model, row in chunk:
                if model is None:
                    yield Unknown(row[0], row[1], row[3])
                else:
                    yield model.build_one(row)

    # ------------------------------------------------------------------------------------------ writing

    def insert(self, entity: Entity, /) -> None:
        """Store a new entity.

        Raises:
            EntityExists: its key is taken.
            InvalidEntity, EntityTooLarge: it can not be stored.
            UniqueViolation: a unique index holds its value for another entity.
        """
        self._apply([self._inserting(entity)])

    def replace(self, entity: Entity, /, *, if_match: str | None = None) -> None:
        """Store an entity over what is there.

        Args:
            entity: what to store.
            if_match: an ETag that what is there must have; ``"*"`` for whatever is there; by default the ETag that the
                entity was read with.

        Raises:
            EntityNotFound: it is not there.
            PreconditionFailed: someone else wrote it since, or it was never read.
        """
        self._apply([self._replacing(entity, if_match)])

    def merge(self, key: KeyOf[E], /, *assignments: Assignment[E], if_match: str | None = None, **values: Any) -> None:
        """Change some fields of an entity, without reading it first.

        Args:
            key: whose.
            assignments: checked by type: ``Product.name.set("Dune")``, ``Product.stock.add(1)``.
            if_match: an ETag that it must have; by default whatever is there is changed.
            values: the same by name: ``name="Dune"``; None removes an optional value.
        """
        self._apply([self._merging(key, assignments, values, if_match)])

    def upsert(self, entity: Entity, /, *, merge: bool = False) -> None:
        """Insert an entity, or replace what is there; with ``merge=True`` what is None in it is left as it is."""
        self._apply([self._upserting(entity, merge=merge)])

    def delete(self, target: Entity | KeyOf[Any], /, *, if_match: str | None = None) -> None:
        """Delete an entity, if it is still as it was read; or by its key, as it is.

        Raises:
            EntityNotFound: it is not there.
            PreconditionFailed: someone else wrote it since it was read.
        """
        self._apply([self._deleting(target, if_match)])

    def update(self, key: KeyOf[E], change: Callable[[E], E | None], /) -> E:
        """Read an entity, change it, replace it; again from the start if someone else was faster.

        Args:
            key: which entity.
            change: gets the entity and returns it changed, or changes it in place and returns None.

        Returns:
            The entity as it was stored.
        """
        for _ in range(_ATTEMPTS):
            entity = self[key]
            changed = change(entity)
            entity = entity if changed is None else changed
            if type(entity) is not key.entity:
                raise InvalidEntity(
                    "update", [f"the function must return a {key.entity.__name__} or None, not {shown(changed)}"]
                )
            if key_of(entity) != key:
                raise InvalidEntity("update", [f"the key may not change; store.move does that ({key[1:]})"])
            try:
                self.replace(entity)
            except PreconditionFailed:
                continue
            return entity
        raise PreconditionFailed(
            f"update of {key.entity.__name__} {key[1:]}: others were faster {_ATTEMPTS} times; write it less often, "
            "or use merge with .add(…)",
            entity=key.entity.__name__,
            key=(key.partition, key.row),
        )

    def move(self, entity: E, new_key: KeyOf[E], /) -> None:
        """Give an entity another key, atomically; the object is the moved entity afterwards."""
        model, partition, row = self._key(new_key)
        if model.cls is not type(entity):
            raise InvalidEntity("move", [f"a key of {type(entity).__name__} is needed, not of {model.name}"])
        deleting = self._deleting(entity, None)
        first, second = model.declaration.templates
        values = first.decode(partition, trusted=True) | second.decode(row, trusted=True)
        fields = {field.name: getattr(entity, field.name) for field in model.declaration.fields}
        moved = model.cls(**(fields | values))
        if key_of(moved) != new_key:
            raise InvalidEntity("move", [f"the new key {new_key[1:]} can not be made of the entity's other fields"])
        deleting.entity = None
        inserting = self._inserting(moved)
        if deleting.key == inserting.key:
            raise InvalidEntity("move", ["the entity has this key already"])
        self._apply([deleting, inserting])
        entity.__setstate__(moved.__getstate__())

    def transaction(self, *, across_partitions: bool = False) -> Transaction:
        """Return an entity group transaction, for ``with store.transaction() as tx:``.

        Its operations are sent together at the end of the block, all or none. They must be of one table and partition,
        at most 100 and 4 MiB; ``across_partitions=True`` lifts that where the engine can.
        """
        return Transaction(self._engine, self._special, self._maintained_limit, across=across_partitions)

    def insert_many(
        self, entities: Iterable[Entity], /, *, atomic: bool = False, progress: ProgressOption = False
    ) -> int:
        """Insert a stream of entities in bounded memory; return their number.

        Atomic by window, not as a whole: an error names its entity, and its ``written`` and a note say how many
        entities were stored before. A window is what comes within about a second, at most 50,000 entities.

        Args:
            entities: any iterable; no lock is held while it is asked for more.
            atomic: whether all are stored or none. They are sorted in a temporary file first, and written in one
                transaction, each table and index in its order: much faster for a load that is larger than memory. The
                entities do not get their ETags; to change one, read it.
            progress: True for a bar, or a function.
        """
        if atomic:
            with _telling("insert_many", None):
                found = windows(entities, self._writable, self._not_special)
                return self._engine.load(found, lambda what, total: start_meter(progress, what, total=total))
        with start_meter(progress, "insert_many") as meter, _telling("insert_many", meter):
            for window in windows(entities, self._writable, self._not_special):
                self._engine.insert(window)
                for batch in window:
                    stamp_batch(batch)
                    meter.advance(len(batch.rows))
        return meter.done

    def upsert_many(self, entities: Iterable[Entity], /, *, progress: ProgressOption = False) -> int:
        """Insert or replace a stream of entities, as `insert_many` does; of equal keys the last one wins."""
        return self._stream("upsert", (self._upserting(entity, merge=False) for entity in entities), progress)

    def delete_many(self, targets: Iterable[Entity | KeyOf[Any]], /, *, progress: ProgressOption = False) -> int:
        """Delete a stream of entities or keys, or what a query finds, as `insert_many` inserts; return the number."""
        return self._stream("delete", (self._deleting(target, None) for target in targets), progress)

    def _stream(
        self, verb: Verb, operations: Iterator[Operation], progress: ProgressOption, *, written: int = 0
    ) -> int:
        window: dict[tuple[str, str, str], Operation] = {}
        twins: list[Operation] = []
        with start_meter(progress, f"{verb}_many") as meter, _telling(f"{verb}_many", meter, written):
            for operation in operations:
                place = (operation.model.table, operation.partition, operation.row)
                if place in window or len(window) >= _WINDOW:
                    if verb == "upsert" and place in window and len(twins) < _WINDOW:
                        twins.append(window.pop(place))
                    else:
                        self._window(window, twins, meter)
                window[place] = operation
            self._window(window, twins, meter)
        return written + meter.done

    def _window(self, window: dict[Any, Operation], twins: list[Operation], meter: Meter) -> None:
        if not window:
            return
        count = len(window) + len(twins)
        self._apply(list(window.values()))
        kept = {id(operation.entity) for operation in window.values()} if twins else set()
        for twin in twins:  # overwritten within the window: it is what was there for a moment, and is no more
            if id(twin.entity) not in kept:
                set_row(twin.entity, None)
        window.clear()
        twins.clear()
        meter.advance(count)

    def _apply(self, operations: list[Operation]) -> None:
        self._engine.apply(operations)
        stamp(operations)

    # ------------------------------------------------------------------------------------------ care

    def check(self, *, progress: ProgressOption = False) -> Report:
        """Recompute every index row and every aggregate from the entities, and report what differs."""
        with start_meter(progress, "check") as meter:
            return self._engine.check(meter)

    def backup(self, path: str | os.PathLike[str], /, *, progress: ProgressOption = False) -> None:
        """Write a copy of the store as it is now to a new file, while it is in use."""
        with start_meter(progress, "backup") as meter:
            self._engine.backup(os.fspath(path), meter)


@contextmanager
def _telling(verb: str, meter: Meter | None, before: int = 0) -> Iterator[None]:
    """Let an error say how many entities were written before it."""
    try:
        yield
    except BaseException as error:
        tell_written(error, verb, before + (0 if meter is None else meter.done))
        raise


class Buffer(Verbs):
    """Operations that are sent together later on: what the transactions of a store and of an async store share.

    Args:
        here: tells which thread, or task, asks: the one that opened the transaction, or another.
    """

    def __init__(
        self,
        engine: Engine,
        special: dict[type[Any], Callable[[str, str], str | None]],
        maintained_limit: int | None,
        *,
        across: bool,
        here: Callable[[], object] = get_ident,
    ) -> None:
        super().__init__(engine, special)
        self._operations: dict[tuple[str, str, str], Operation] = {}
        self._maintained_limit = None if across else maintained_limit
        self._across = across
        self._most = 0
        self._here = here
        self._owner: object = None
        self._over = False

    def _begin(self) -> None:
        if self._owner is not None:
            raise InvalidTransaction("a transaction is used once; call store.transaction() again")
        self._owner = self._here()

    def _take(self) -> list[Operation]:
        """End the transaction, and return what it is to write."""
        operations, self._operations = list(self._operations.values()), {}
        self._over = True
        return operations

    def _send(self, operations: list[Operation]) -> None:
        if operations:
            self._engine.apply(operations, maintained_limit=self._maintained_limit)
            stamp(operations)

    def insert(self, entity: Entity, /) -> None:
        """Store a new entity; as `Store.insert`."""
        self._admit(self._inserting(entity))

    def replace(self, entity: Entity, /, *, if_match: str | None = None) -> None:
        """Store an entity over what is there; as `Store.replace`."""
        self._admit(self._replacing(entity, if_match))

    def merge(self, key: KeyOf[E], /, *assignments: Assignment[E], if_match: str | None = None, **values: Any) -> None:
        """Change some fields of an entity; as `Store.merge`."""
        self._admit(self._merging(key, assignments, values, if_match))

    def upsert(self, entity: Entity, /, *, merge: bool = False) -> None:
        """Insert an entity, or replace or merge into what is there; as `Store.upsert`."""
        self._admit(self._upserting(entity, merge=merge))

    def delete(self, target: Entity | KeyOf[Any], /, *, if_match: str | None = None) -> None:
        """Delete an entity; as `Store.delete`."""
        self._admit(self._deleting(target, if_match))

    def _get(self, key: KeyOf[R]) -> R | None:
        if key.__class__ is not KeyOf or (model := self._models.get(key[0])) is None:
            model = self._key(key)[0]
        _, partition, row = key
        pending = self._operations.get((model.table, partition, row))
        if pending is None:
            stored = self._engine.get(model, partition, row)
            return None if stored is None else model.build_one(stored)
        if pending.verb == "delete":
            return None
        new = pending.new
        if pending.change is not None:
            stored = self._engine.get(model, partition, row)
            if stored is None and pending.verb != "upsert":
                return None
            new = pending.change(stored)
        entity = model.build_one(new)  # type: ignore[arg-type]
        set_row(entity, None)
        return entity  # type: ignore[no-any-return]

    def _owned(self) -> None:
        if self._over:
            raise InvalidTransaction("the transaction is over; call store.transaction() again")
        if self._owner is None or self._owner != self._here():
            raise InvalidTransaction(
                "a transaction is used inside its with block, by the thread (or task) that opened it"
            )

    def _admit(self, operation: Operation) -> None:
        self._owned()
        place = (operation.model.table, operation.partition, operation.row)
        if place in self._operations:
            raise InvalidTransaction(
                f"{operation}: {self._operations[place]} is in the transaction already; each entity can be in it once"
            )
        if not self._across:
            self._limits(operation)
        self._operations[place] = operation

    def _limits(self, operation: Operation) -> None:
        lifts = "; use store.transaction(across_partitions=True) where that need not run on Azure"
        for first in self._operations.values():
            if (first.model.table, first.partition) != (operation.model.table, operation.partition):
                raise InvalidTransaction(
                    f"{operation} is not in the table and partition of {first} "
                    f"({first.model.table}, {first.partition!r}){lifts}"
                )
            break
        if len(self._operations) >= MAX_OPERATIONS:
            raise InvalidTransaction(f"{operation} would be one more than {MAX_OPERATIONS} operations{lifts}")
        if operation.new is not None:
            self._most += operation.model.most(operation.new)
            if self._most > MAX_TRANSACTION:
                written = [one for one in (*self._operations.values(), operation) if one.new is not None]
                size = sum(one.model.size(one.new) for one in written if one.new is not None)
                if size > MAX_TRANSACTION:
                    raise EntityTooLarge(f"{operation}: {size:,} bytes, but a transaction may have {MAX_TRANSACTION:,}")


class Transaction(Buffer):
    """Buffered operations, sent together at the end of the ``with`` block; for one thread."""

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        operations = self._take()
        if kind is None:
            self._send(operations)

    def get(self, key: KeyOf[R], /) -> R | None:
        """Return an entity as it will be after the operations so far, or None."""
        self._owned()
        return self._get(key)

    def __getitem__(self, key: KeyOf[R], /) -> R:
        """Return an entity as it will be after the operations so far, or raise EntityNotFound."""
        found = self.get(key)
        if found is None:
            raise not_found(key)
        return found

    def exists(self, key: KeyOf[Any], /) -> bool:
        """Tell whether an entity will have this key after the operations so far."""
        return self.get(key) is not None
