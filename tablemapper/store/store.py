"""The user's object: verbs over an engine.

A verb turns its arguments into operations, checked whole before anything is written, hands them to the engine, and
stamps the entities with what was stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, Never, NoReturn, Self, TypeVar, overload

import attrs

from ..engines.current_transaction import check_outside
from ..engines.optional_protocols import ClearsClasses, ReopensOnChange, usable_schema
from ..engines.protocol import Engine
from ..entities.aggregates import Aggregate, kept_field
from ..entities.declaration import is_base
from ..entities.entity import Entity, Record, key_of, refusal, set_row, stored_row
from ..entities.index import IndexRange
from ..entities.key import KeyOf
from ..errors import InvalidEntity, InvalidQuery, PreconditionFailed, safe_repr
from ..execution.prepared import PlanCache
from ..expressions.foreign_names import refuse_foreign_names
from ..expressions.tree import Assignment, Predicate
from ..guidance.advisor import log_advice
from ..keys.canonical import is_key
from ..keys.composite_times import decode
from ..planning.query_spec import BEFORE_ALL, QuerySpec
from ..query.mixed import MixedQuery, mixed, over_base
from ..query.partitions import Partition, equalities, partition_key
from ..query.query import Query
from ..query.writing import by_function
from ..values.hooks import HOOK_FAULTS
from ..verbs.bulk_verbs import BulkVerbs
from ..verbs.lost_races import run_transaction
from ..verbs.operations import KeyedVerbs, Operations, not_found
from ..verbs.transaction import Transaction, TransactionBuffer
from .administration import Administration

A = TypeVar("A", bound=Aggregate)
E = TypeVar("E", bound=Entity)
R = TypeVar("R", bound=Record)
R2 = TypeVar("R2", bound=Record)
R3 = TypeVar("R3", bound=Record)
T = TypeVar("T")

_ATTEMPTS = 100
_MOVES = "query.move_to(…) moves what a query finds, which for a moment is in both places"


@attrs.frozen
class UnknownRow:
    """A row of a partition that no opened class claims."""

    partition: str
    row: str
    properties: dict[str, Any]


@refuse_foreign_names("store", lambda _: ("a store", "Product"))
class Store(KeyedVerbs, BulkVerbs, Administration):
    """A store of entities. Threads can share it; it refuses calls after `close` and in a forked child.

    Every verb can raise a `StoreError` of the file itself. A verb that writes raises InvalidTransaction in a thread
    that is inside a transaction of the store.
    """

    def __init__(self, engine: Engine, *, limits: Literal["azure"] | None = None) -> None:
        self._limits: Literal["azure"] | None = limits
        self._use(engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self._engine!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Store cannot be pickled or copied; open it in the other process, by its path")

    def _use(self, engine: Engine) -> None:
        """Answer with an engine from now on."""
        self._engine = engine
        self._operations = Operations(engine, limits=self._limits)
        self._take_classes()

    def _take_classes(self) -> None:
        self._plans = PlanCache(self._engine)
        self._spec = {model.cls: QuerySpec(model) for model in self._engine.schema.models}
        self._models = self._engine.schema.by_class
        self._expiry = self._operations.ended
        self._expiry_places = self._expiry.places

    def _follow(self) -> None:
        """Answer with the classes that the engine has by now; what runs, as a stream that is written, does so, too."""
        self._operations.follow()
        self._take_classes()
        if self._limits == "azure":
            log_advice(self._engine.schema)

    @property
    def classes(self) -> Mapping[str, type[Record]]:
        """The classes that the store was opened with, by name; without models, those of the file's catalogue.

        These follow the catalogue: a class that was changed since is another one here, and the store takes that one from
        then on. Classes that have not changed, and queries that were made, go on.
        """
        engine = self._engine
        if isinstance(engine, ReopensOnChange) and (latest := engine.latest()) is not engine:
            self._use(latest)
        return self._classes()

    def _classes(self) -> Mapping[str, type[Record]]:
        return {model.name: model.cls for model in self._engine.schema.models if kept_field(model.name) is None}

    @property
    def uncompiled(self) -> Mapping[str, str]:
        """The classes that only their code can read, by name, which `classes` lacks: why, and their forms in the catalogue.

        It is empty for a store that was opened with models.
        """
        return self._engine.schema.lost

    def close(self) -> None:
        """Close the files. Safe to call twice.

        Raises:
            StoreError: the file was removed or replaced, and the last writes are lost.
        """
        self._engine.close()

    # ------------------------------------------------------------------------------------------ reading

    def get(self, key: KeyOf[R], /, *misplaced: Never) -> R | None:
        """Return the entity with this key, or None.

        Raises:
            InvalidEntity: it is not a key of a class that the store was opened with.
        """
        if key.__class__ is not KeyOf or misplaced or (model := self._models.get(key[0])) is None:
            model = self._operations.key(key, misplaced)[0]
        row = self._engine.get(model, key[1], key[2])
        if row is None:
            return None
        if self._expiry_places and (at := self._expiry_places.get(model)) is not None and self._expiry.is_past(row[at]):
            return None
        entity: R = model.build_one(row)
        return entity

    def __getitem__(self, key: KeyOf[R], /) -> R:
        """Return the entity with this key.

        Raises:
            EntityNotFound: there is none.
            InvalidEntity: as `get`.
        """
        entity = self.get(key)
        if entity is None:
            raise not_found(key)
        return entity

    def group(self, key: KeyOf[A], /, *misplaced: Never) -> A:
        """Return the group of an aggregate with this key, or an empty one.

        In an empty group counts are 0, and so are sums whose type has no None; all other measures are None.

        Raises:
            InvalidEntity: it is not a key of an aggregate that the store was opened with.
        """
        return self._operations.group(key, misplaced, self.get)

    def get_many(self, keys: Iterable[KeyOf[R]], /) -> list[R | None]:
        """Return the entities with these keys, or None for missing ones, all from one state of the store.

        Raises:
            InvalidEntity: as `get`.
        """
        places = self._operations.keys(keys)
        rows = self._engine.get_many(places)
        if self._expiry_places:
            rows = self._expiry.seen([model for model, _, _ in places], rows)
        return [None if row is None else model.build_one(row) for (model, _, _), row in zip(places, rows, strict=True)]

    def exists(self, key: KeyOf[Any], /) -> bool:
        """Return whether an entity has this key.

        Raises:
            InvalidEntity: as `get`.
        """
        return self._operations.row(*self._operations.key(key)) is not None

    @overload
    def query(self, source: type[R], /) -> Query[R]: ...  # (of a base a mixed query, which refuses what it lacks)
    @overload
    def query(self, source: IndexRange[R], /) -> Query[R]: ...
    @overload
    def query(self, a: type[R], b: type[R2], /) -> MixedQuery[R, R2, R2]: ...
    @overload
    def query(self, a: type[R], b: type[R2], c: type[R3], /) -> MixedQuery[R, R2, R3]: ...
    @overload
    def query(
        self, a: type[Record], b: type[Record], c: type[Record], d: type[Record], /, *classes: type[Record]
    ) -> MixedQuery[Any, Any, Any]: ...
    def query(self, source: Any, /, *classes: Any) -> Any:
        """Return a query over the entities of a class, or over a range of an index: ``Product.by_name("Dune")``.

        Several classes of one table can be queried together: ``store.query(Employee, Department)`` returns the
        entities of both, in row order. A class without ``table=`` stands for all of the store's classes that are derived
        from it, in whatever tables: ``store.query(Animal)`` returns each entity as an object of its own class, in the
        order of the keys. Such a query has no totals, columns or writes.

        Args:
            source: a class, or an index called with its leading values.
            classes: further classes of the same table.

        Raises:
            InvalidQuery: they are not classes, or not of the same table; or the store has no class of the base.
            InvalidEntity: the store was not opened with one of them.
        """
        if isinstance(source, type) and not classes and (spec := self._spec.get(source)) is not None:
            return Query(self._plans, spec)
        if isinstance(source, IndexRange) and not classes:
            return Query(self._plans, QuerySpec(self._operations.model(source.entity), source))
        models = []
        if is_base(source) and not classes:
            return over_base(self._plans, source, usable_schema(self._engine).models)
        for cls in (source, *classes):
            if isinstance(cls, IndexRange):
                raise InvalidQuery(
                    f"query: a range of {cls.name} cannot be queried together with classes; query it alone"
                )
            if not isinstance(cls, type):
                example = self._engine.schema.models[0].name
                mend = f"{example}).where(…" if isinstance(cls, Predicate) else example
                raise InvalidQuery(f"expected an entity class, as in store.query({mend}), got {safe_repr(cls)}")
            if is_base(cls):
                raise InvalidQuery(f"query: {cls.__name__} has no table; query it alone, or name classes that have one")
            models.append(self._operations.model(cls))
        return mixed(self._plans, models)

    def partition(self, *where: Predicate[Any] | type[Record] | Partition[Record]) -> Iterator[Record | UnknownRow]:
        """Yield every entity of one partition, of every class, in row order.

        Args:
            where: equalities that fix the partition of a class: ``store.partition(Employee.department == "Sales")``;
                a truncated time is enough if the key holds no more of it, ``Reading.at.date() == day``. Or the class
                itself, if all its entities are in one partition: ``store.partition(User)``. Or one of `partitions`.

        Raises:
            InvalidQuery: they do not determine one partition.
        """
        conditions: tuple[Any, ...] = where
        if len(where) == 1 and isinstance(where[0], Partition):
            return self._partition(self._operations.model(where[0].cls).table, where[0].key)
        classes = [condition for condition in where if isinstance(condition, type)]
        pairs = equalities([condition for condition in conditions if not isinstance(condition, type)], self._example())
        if not where:
            raise InvalidQuery(f"partition: write which, as in {self._example()} == …")
        model = self._operations.model(classes[-1] if classes else pairs[-1][0].owner)
        return self._partition(model.table, partition_key(model, pairs))

    def partitions(self, cls: type[R], /) -> Iterator[Partition[R]]:
        """Yield the partitions that hold entities of a class, in the order of their keys, without reading the entities.

        Raises:
            InvalidEntity: the store was not opened with the class.
        """
        model = self._operations.model(cls)
        template = model.declaration.partition
        return (Partition(key, template.decode(key, trusted=True), cls) for key in self._engine.partitions(model))

    def _example(self) -> str:
        """Return a field of a partition key."""
        keys = [(model.name, field) for model in self._engine.schema.models for field in model.declaration.arguments]
        return ".".join(keys[0]) if keys else "Product.category"

    def _partition(self, table: str, partition: str) -> Iterator[Record | UnknownRow]:
        moment = self._expiry.moment() if self._expiry_places else ""
        for chunk in self._engine.partition(table, partition):
            for model, row in chunk:
                if model is None:
                    yield UnknownRow(row[0], row[1], row[3])
                elif not moment or not self._expiry.has_ended_by(moment, model, row):
                    yield model.build_one(row)

    # ------------------------------------------------------------------------------------------ writing

    def insert(self, entity: Entity, /) -> None:
        """Store a new entity.

        Raises:
            EntityExists: its key is taken.
            InvalidEntity, EntityTooLarge: it cannot be stored.
            UniqueViolation: another entity holds its value of a unique index.
        """
        self._operations.write([self._operations.insert(entity)])

    def replace(self, entity: Entity, /, *, if_match: str | None = None, **changes: Never) -> None:
        """Replace the stored entity.

        Args:
            entity: what to store.
            if_match: the ETag that the stored entity must have, or ``"*"`` for any; by default the ETag of the
                version that was read.

        Raises:
            EntityNotFound: it is not there.
            PreconditionFailed: someone else wrote it since, or it was never read.
            InvalidEntity, EntityTooLarge, UniqueViolation: as `insert`.
        """
        self._operations.write([self._operations.replace(entity, if_match, changes)])

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
        """Change some fields of an entity, without reading it first.

        Args:
            key: which entity.
            assignments: checked by type: ``Product.name.set("Dune")``, ``Product.stock.add(1)``, or of a part,
                ``Product.extra["color"].set("red")``, ``.remove()``.
            if_match: the ETag that it must have; by default any.
            or_insert: where the entity is missing, store this one, with the assignments applied to it:
                ``store.merge(Counter.key("Oslo"), Counter.last.add(1), or_insert=Counter("Oslo"))``. It is not changed.
            returning: return the entity as it is stored by this call: the next number of a counter, for example.
            values: the same by name: ``name="Dune"``; None removes an optional value.

        Raises:
            EntityNotFound: it is not there.
            PreconditionFailed: it has another ETag.
            InvalidEntity, EntityTooLarge, UniqueViolation: as `insert`.
        """
        operation = self._operations.merge(key, assignments, values, if_match, or_insert)
        if returning:  # (then the whole entity is wanted)
            operation.assigned = None
        self._operations.write([operation])
        if not returning:
            return None
        entity: E = operation.model.build_one(operation.new)  # type: ignore[arg-type]  # it was stored
        return entity

    def upsert(self, entity: Entity, /, *, merge: bool = False, **changes: Never) -> None:
        """Insert an entity, or replace the stored one.

        With ``merge=True``, fields that are None in the new one keep their stored values.

        Raises:
            InvalidEntity, EntityTooLarge, UniqueViolation: as `insert`.
        """
        self._operations.write([self._operations.upsert(entity, changes, merge=merge)])

    def delete(self, target: Entity | KeyOf[Any], /, *, if_match: str | None = None) -> None:
        """Delete an entity, unless someone else wrote it since it was read. With a key, delete any version.

        Args:
            target: the entity, or its key.
            if_match: as for `replace`; for a key, any by default.

        Raises:
            EntityNotFound: it is not there.
            PreconditionFailed: someone else wrote it since it was read.
        """
        self._operations.write([self._operations.delete(target, if_match)])

    def update(self, key: KeyOf[E], change: Callable[[E], E | None] | None = None, /, **changes: Never) -> E:
        """Read an entity, change it, replace it. Start again if someone else wrote it meanwhile.

        Args:
            key: which entity.
            change: gets the entity, and returns the entity to write, which it may have changed in place, or None to
                leave it alone. An entity that equals the stored one is not written.

        Returns:
            The entity as it is stored.

        Raises:
            EntityNotFound: it is not there.
            PreconditionFailed: others wrote it meanwhile, a hundred times.
            InvalidEntity: the function returned something else, or changed the key.
            EntityTooLarge, UniqueViolation: as `insert`.
        """
        check_outside(self._engine, "update")
        operations = self._operations
        model = operations.key(key)[0]
        operations.refuse_changes("update", key, changes)
        work = by_function(operations.writable(model.cls), change)
        for _ in range(_ATTEMPTS):
            entity = self[key]
            row = stored_row(entity)
            operation = work(entity)
            if operation is None:
                return model.build_one(row)  # type: ignore[no-any-return]
            try:
                operations.write([operation])
            except PreconditionFailed:
                continue
            return operation.entity  # type: ignore[no-any-return]
        raise PreconditionFailed(
            f"update of {key.entity.__name__} {key[1:]}: others were faster {_ATTEMPTS} times; write it less often, "
            "or use merge with .add(…)",
            entity=key.entity.__name__,
            key=(key.partition, key.row),
        )

    def move(self, entity: E, new_key: KeyOf[E], /) -> None:
        """Give an entity another key, atomically; the object is the moved entity afterwards.

        Args:
            entity: as it was read.
            new_key: a key of the same class.

        Raises:
            EntityExists: the new key is taken.
            EntityNotFound: the entity is not there.
            PreconditionFailed: someone else wrote it since it was read, or it was never read.
            InvalidEntity: the key is of another class, is its own, or does not fit the entity's other fields.
            InvalidTransaction: it is in another partition, and the engine has no transaction over two.
        """
        check_outside(self._engine, "move")
        operations = self._operations
        model, partition, row = operations.key(new_key)
        if model.cls is not type(entity):
            raise InvalidEntity("move", [f"expected a key of {type(entity).__name__}, got one of {model.name}"])
        deletion = operations.delete(entity, None)
        if not is_key(model.declaration.templates, (partition, row)):
            raise InvalidEntity("move", [f"the new key {new_key[1:]} is no key of {model.name}: no fields make it"])
        values = decode(model.declaration.templates, (partition, row))
        fields = {field.name: getattr(entity, field.name) for field in model.declaration.parameters}
        try:
            moved_entity = model.cls(**(fields | values))
        except HOOK_FAULTS as error:  # a user's rule
            raise refusal(f"{model.name} {new_key[1:]}", error) from error
        if key_of(moved_entity) != new_key:
            raise InvalidEntity("move", [f"the new key {new_key[1:]} does not fit the entity's other fields"])
        deletion.entity = None
        if (read_row := stored_row(entity)) is not None:  # (a long value that it was read with is no new one)
            set_row(moved_entity, (partition, row, *read_row[2:]))
        insertion = operations.insert(moved_entity)
        if deletion.key == insertion.key:
            raise InvalidEntity("move", ["the entity has this key already"])
        if deletion.partition != insertion.partition:
            self._engine.capabilities.check_across("move to another partition", _MOVES)
        insertion.moved_from = deletion
        operations.write([deletion, insertion])
        entity.__setstate__(moved_entity.__getstate__())

    def transaction(self, *, across_partitions: bool = False) -> Transaction:
        """Return an entity group transaction, for ``with store.transaction() as tx:``.

        Its operations are written together at the end of the block, all or none. They must belong to one table and
        partition, be at most 100, and at most 4 MiB; ``across_partitions=True`` lifts these limits if the engine can.

        Raises:
            InvalidTransaction: at the start of the block, if the thread is inside another transaction of the store.
        """
        return Transaction(self._new_buffer(across=across_partitions))

    def _new_buffer(self, *, across: bool) -> TransactionBuffer:
        return TransactionBuffer(self._operations, across=across)

    def run(self, function: Callable[[Transaction], T], /, *, across_partitions: bool = False) -> T:
        """Call a function of a transaction, write what it collects, and return what it returned.

        If another program was faster, so that the write fails, the function is called again with a new transaction, up
        to 100 times. So it does nothing but through the transaction::

            def order(tx: tm.Transaction) -> int:
                number = tx.merge(Counter.key("Oslo"), Counter.last.add(1), returning=True).last
                tx.insert(Invoice("Oslo", number))
                return number

            number = store.run(order)

        Args:
            function: gets the transaction. What it raises ends the call, and nothing is written.
            across_partitions: as for `transaction`.

        Raises:
            PreconditionFailed: others were faster 100 times.
            EntityExists, EntityNotFound, UniqueViolation: as `transaction`, twice though nothing that was read had changed.
            OutcomeUnknown: a write without an answer is not repeated.
            InvalidTransaction: as `transaction`, or the function returns a coroutine.
        """
        return run_transaction(partial(self._new_buffer, across=across_partitions), function, time.sleep)

    def clear(self, cls: type[Entity], /) -> int:
        """Delete all entities of a class, with their index rows and groups; return their number.

        A file empties whole tables in one transaction, so its time does not depend on the number of entities. It deletes in
        batches, like `Query.delete`, while an index or an aggregate of the class is being built, and while a migration
        runs or is not contracted. It does so, too, if an ``_ever`` measure keeps groups.

        On Azure Tables it deletes up to 20,000 entities in batches. Of more, it gives the class empty tables, which takes
        two minutes and a half; during the first half other programs only read the class, and get StoreLocked for writes.
        If it ends early, `sweep` undoes or finishes it, or the next program that opens the store.

        Raises:
            InvalidEntity: it is not a class of entities, or the store was not opened with it.
            InvalidTransaction: the thread is inside a transaction of the store.
            StoreLocked: the store is frozen, or another program clears the class.
            StoreError: another program ended it, or changed the class meanwhile; nothing was deleted.
        """
        model = self._operations.writable(cls)
        check_outside(self._engine, "clear")
        count = self._engine.clear(model) if isinstance(self._engine, ClearsClasses) else None
        if count is not None:
            return count
        return Query[Any](self._plans, QuerySpec(model, scan=True, moment=BEFORE_ALL)).delete()
