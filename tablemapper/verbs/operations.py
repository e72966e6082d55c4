"""Operations from the arguments of verbs, checked whole before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from ..edits.assignments import assignments
from ..engines.current_transaction import check_outside
from ..engines.ended import EndedRows
from ..engines.protocol import Batch, Engine, Operation, Verb
from ..entities.aggregates import Aggregate
from ..entities.declaration import declaration_of
from ..entities.entity import Record, key_of, set_maintained, set_row, stored_row
from ..entities.etag import etag_timestamp
from ..entities.key import KeyOf
from ..errors import CorruptStore, EntityNotFound, InvalidEntity, PreconditionFailed, safe_repr
from ..expressions.tree import Assignment
from ..keys.composite_times import shown_key
from ..limits import MAX_OPERATIONS
from ..schema.maintenance import aggregate_maintenance
from ..schema.model import Model, reserved_keys, writable
from ..schema.rows import Row

A = TypeVar("A", bound=Aggregate)


class KeyedVerbs:
    """Verbs by key in brackets, without iteration: Python would take the store for a sequence and count from 0."""

    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            raise TypeError(
                f"with, not async with, is for a {type(self).__name__}; to await it, tm.open_async opens it"
            )

        async def __aexit__(self, *_: object) -> None: ...

        def __iter__(self) -> NoReturn:
            raise TypeError(f"{type(self).__name__}: all entities of a class are store.query(Model).allow_scan()")

        def __contains__(self, _: object) -> NoReturn:
            raise TypeError(f"{type(self).__name__}: whether a key is there is .exists(key)")


class Operations:
    """Turns the arguments of verbs into operations: what a store, its transactions and an async store hold.

    Args:
        limits: ``"azure"``: the rows of indexes and aggregates count in a transaction.
    """

    def __init__(self, engine: Engine, *, limits: Literal["azure"] | None = None) -> None:
        self.engine = engine
        self._maintained_limit = MAX_OPERATIONS if limits == "azure" else None
        self.follow()

    def follow(self) -> None:
        """Take over the classes that the engine has by now."""
        schema = self.engine.schema
        self._reserved = {
            cls: test for members in schema.tables().values() for cls, test in reserved_keys(members).items()
        }
        self._writables = {model.cls: model for model in schema.models if model.aggregate is None}
        self.models: dict[type[Any], Model] = schema.by_class
        self.ended: EndedRows = EndedRows(self.engine)

    # ------------------------------------------------------------------------------------------ classes and keys

    def model(self, cls: Any) -> Model:
        """Return the model of a class.

        Raises:
            InvalidEntity: the store was not opened with it.
        """
        model = self.models.get(cls)
        if model is None:
            if not isinstance(cls, type):
                raise InvalidEntity(safe_repr(cls), ["expected a class"])
            by_name = self.engine.schema.by_name
            if cls.__name__ in by_name:
                fault = (
                    "the store was opened with another class of this name; a class that is defined again (by a cell of a "
                    "notebook, by a reload) is a new one: open the store again; if it is of store.classes, take it from "
                    "there again"
                )
            else:
                fault = f"the store was not opened with it (models: {', '.join(sorted(by_name))})"
            raise InvalidEntity(cls.__name__, [fault])
        return model

    def writable(self, cls: Any) -> Model:
        """Return the model of a class of entities; raise InvalidEntity if it is none that users write."""
        if not isinstance(cls, type) or not issubclass(cls, Record):
            fault = f"expected an entity of one of the store's classes{self._entity_mend(cls)}"
            raise InvalidEntity(getattr(cls, "__name__", safe_repr(cls)), [fault])
        return writable(self.model(cls))

    def ending(self, cls: Any) -> Model:
        """Return the model of a class whose entities end; raise InvalidEntity if it is another one."""
        model = self.writable(cls)
        if model not in self.ended.places:
            fault = "nothing of it ends; declare when, as in until: tm.Field[datetime] = tm.field(expires=True)"
            raise InvalidEntity(model.name, [f"expire: {fault}"])
        return model

    def key(self, key: KeyOf[Any], misplaced: tuple[object, ...] = ()) -> tuple[Model, str, str]:
        """Return the model, the partition key and the row key of a key.

        Args:
            misplaced: what was given besides.
        """
        if key.__class__ is not KeyOf or misplaced:
            raise InvalidEntity("key", [self._key_fault(key, misplaced)])
        return self.model(key[0]), key[1], key[2]

    def keys(self, keys: Iterable[KeyOf[Any]]) -> list[tuple[Model, str, str]]:
        """Return the model, the partition key and the row key of each key."""
        if isinstance(keys, KeyOf):
            key_text = f"the key {keys.entity.__name__} {keys[1:]}"
            raise InvalidEntity("get_many", [f"expected a list of keys, got {key_text}; store.get takes one"])
        return [self.key(key) for key in keys]

    def group(self, key: KeyOf[A], misplaced: tuple[object, ...], get: Callable[[Any], Any]) -> A:
        """Return a group of an aggregate, or an empty one; sums are 0 where their type has no None."""
        model, partition, row = self.key(key, misplaced)
        aggregate = model.aggregate
        if aggregate is None:
            raise InvalidEntity(model.name, ["it is not an aggregate, and has no groups; read an entity with get(key)"])
        group: Any = get(key)
        if group is None:
            maintained = aggregate_maintenance(self.models[aggregate.source], model)
            group = model.build_one(maintained.row(partition, row, 0, aggregate.empty()))
            set_row(group, None)
        return group  # type: ignore[no-any-return]

    def row(self, model: Model, partition: str, row: str) -> Row | None:
        """Return the row of an entity that is stored and has not ended, or None."""
        stored = self.engine.get(model, partition, row)
        at = self.ended.places.get(model)
        return None if stored is None or (at is not None and self.ended.is_past(stored[at])) else stored

    def _key_fault(self, argument: object, misplaced: tuple[object, ...]) -> str:
        if isinstance(argument, Record):
            return f"expected a key, got an entity; {type(argument).__name__} entities have one as .key"
        if isinstance(argument, KeyOf):
            return f"expected one key, got {1 + len(misplaced)} arguments; get_many takes a list of keys"
        # As other libraries have it: get(Product, "books", "b-1"), store[Product, "books", "b-1"].
        owner, *values = argument if isinstance(argument, tuple) and argument else (argument, *misplaced)
        classes = [model.cls for model in self.engine.schema.models]
        name = (owner if owner in classes else classes[0]).__name__
        if owner in classes and len(values) == 1 and isinstance(values[0], tuple):
            values = [*values[0]]  # (the values of a key in a tuple)
        arguments = ", ".join(map(safe_repr, values)) if owner in classes and values else "…"
        return f"expected {name}.key({arguments}), got {safe_repr(argument)}"

    def _entity_mend(self, cls: object) -> str:
        """Return what to write where an object of a class was given for an entity."""
        example = next((model.name for model in self.engine.schema.models if model.aggregate is None), "Product")
        if not isinstance(cls, type):
            return ""
        if issubclass(cls, list | tuple | set | frozenset) and not issubclass(cls, KeyOf):
            return "; store.insert_many, upsert_many, replace_many and delete_many take several"
        if issubclass(cls, Mapping):
            return f"; tm.from_dict({example}, …) makes one of a dict, and store.insert_columns({example}, …) takes columns"
        return f"; store.merge({example}.key(…), field=value) changes fields" if issubclass(cls, KeyOf) else ""

    def refuse_changes(self, verb: str, key: Any, changes: Mapping[str, Any]) -> None:
        """Refuse values of fields, which other libraries take with a key, if there are some."""
        if not changes:
            return
        name = key.entity.__name__ if isinstance(key, KeyOf) else type(key).__name__
        arguments = ", ".join(f"{field}=…" for field in changes)
        raise InvalidEntity(verb, [f"it takes no values of fields; write store.merge({name}.key(…), {arguments})"])

    def refuse_reserved(self, model: Model, rows: Iterable[Row]) -> None:
        """Refuse rows of a class with keys that belong to a more special one of the same table."""
        reserved = self._reserved.get(model.cls)
        if reserved is not None:
            for row in rows:
                if (owner := reserved(row[0], row[1])) is not None:
                    raise InvalidEntity(
                        f"{model.name} {row[:2]}", [f"this key belongs to {owner}; choose other values"]
                    )

    # ------------------------------------------------------------------------------------------ verbs

    def insert(self, entity: Any, verb: Verb = "insert") -> Operation:
        """Return the insert of an entity, or another write of it as it is."""
        model = self._writables.get(entity.__class__)
        if model is None:
            if not isinstance(entity, Record):
                mend = self._entity_mend(type(entity))
                raise InvalidEntity(verb, [f"expected an entity, got {safe_repr(entity)}{mend}"])
            model = self.writable(type(entity))
        row = model.to_written_row(entity)
        if model.cls in self._reserved:
            self.refuse_reserved(model, (row,))
        return Operation(verb, model, row[0], row[1], row, None, None, None, entity)

    def replace(self, entity: Any, if_match: str | None, changes: Mapping[str, Any] | None = None) -> Operation:
        """Return the replacement of what is stored under an entity's key."""
        if changes is not None:
            self.refuse_changes("replace", entity, changes)
        operation = self.insert(entity, "replace")
        read_row = entity._row
        if if_match is None and read_row is not None:
            operation.old, operation.etag = read_row, read_row[2]
        else:
            self._condition(operation, entity, if_match)
        return operation

    def _condition(self, operation: Operation, entity: Record, if_match: str | None) -> None:
        read_row = stored_row(entity)
        if if_match is None:
            if read_row is None:
                raise PreconditionFailed(
                    f"{operation}: it has no ETag, because it was not read from the store, or was deleted since, or is a "
                    "copy with another key; store.move(entity, new_key) gives an entity another key, "
                    'if_match="*" overwrites whatever is there, as upsert does',
                    entity=operation.model.name,
                    key=operation.key,
                )
            operation.old, operation.etag = read_row, read_row[2]
        elif if_match != "*":
            operation.etag = _etag(if_match)

    def upsert(self, entity: Any, changes: Mapping[str, Any] | None = None, *, merge: bool) -> Operation:
        """Return the insert of an entity, or what it does to the one that is stored."""
        if changes is not None:
            self.refuse_changes("upsert", entity, changes)
        operation = self.insert(entity, "upsert")
        if merge:
            model, row = operation.model, operation.new
            assert row is not None

            # What is None in the entity is left as it is.
            def change(old: Row | None) -> Row:
                if old is None:
                    return row
                values = [mine if mine is not None else theirs for mine, theirs in zip(row, old, strict=False)]
                for at in model.places_on_write:
                    values[at] = row[at]
                try:
                    return model.to_row(model.build_one((*values, *old[len(row) :])))
                except CorruptStore:  # (what stays damaged stays as it is)
                    return tuple(values)

            operation.change = change
        return operation

    def merge(
        self,
        key: KeyOf[Any],
        assigned: tuple[Assignment[Any], ...],
        values: dict[str, Any],
        if_match: str | None,
        or_insert: Any = None,
    ) -> Operation:
        """Return the change of some fields of the entity with a key, or of one that is inserted where it is missing."""
        model = self._writables.get(key[0]) if key.__class__ is KeyOf else None
        if model is None:
            model = self.writable(self.key(key)[0].cls)
        changes = assignments(model, "merge", assigned, values).at_write()
        missing = None if or_insert is None else self._or_insert(model, key, or_insert, if_match)

        def change(old: Row | None) -> Row:
            old = missing if old is None else old
            assert old is not None
            return changes.applied(old)

        if missing is not None:
            new = missing
            with suppress(InvalidEntity):  # (which counts where there is nothing: `change` raises it then)
                new = change(None)
            return Operation("upsert", model, key[1], key[2], new, change=change)
        operation = Operation("merge", model, key[1], key[2], change=change, assigned=changes.constants)
        if if_match is not None and if_match != "*":
            operation.etag = _etag(if_match)
        return operation

    def _or_insert(self, model: Model, key: KeyOf[Any], entity: Any, if_match: str | None) -> Row:
        """Return the row of the entity that a merge inserts where its key is missing."""
        if if_match is not None:
            fault = "or_insert= is for an entity that may be missing, if_match= for one that is there; give one"
            raise InvalidEntity("merge", [fault])
        if not isinstance(entity, model.cls) or key_of(entity)[1:] != key[1:]:
            raise InvalidEntity(
                "merge", [f"or_insert=: expected a {model.name} with the key {key[1:]}, got {safe_repr(entity)}"]
            )
        row = model.to_row(entity)
        self.refuse_reserved(model, (row,))
        return row

    def delete(self, target: Any, if_match: str | None) -> Operation:
        """Return the deletion of an entity, or of the one with a key."""
        if isinstance(target, Record):
            model = self._writables.get(target.__class__) or self.writable(type(target))
            read_row = stored_row(target)
            if if_match is None and read_row is not None:  # (no row that was read has a key of another class)
                return Operation("delete", model, read_row[0], read_row[1], None, read_row, read_row[2], None, target)
            key = key_of(target)
            self.refuse_reserved(model, (key[1:],))
            operation = Operation("delete", model, key.partition, key.row, entity=target)
            self._condition(operation, target, if_match)
            return operation
        model, partition, row = self.key(target)
        self.writable(model.cls)
        operation = Operation("delete", model, partition, row)
        if if_match is not None and if_match != "*":
            operation.etag = _etag(if_match)
        return operation

    def require(self, target: Any) -> Operation:
        """Return the condition that an entity is as it was read, or that the one with a key is there."""
        if not isinstance(target, Record):
            model, partition, row = self.key(target)
            return Operation("require", self._ready(model), partition, row)
        key, read_row = key_of(target), stored_row(target)
        operation = Operation("require", self._ready(self.model(type(target))), key.partition, key.row)
        if read_row is None:
            raise PreconditionFailed(
                f"{operation}: it has no ETag, as it was not read from the store, or was deleted since; require its key, "
                "if it only has to be there",
                entity=operation.model.name,
                key=operation.key,
            )
        operation.etag = read_row[2]
        return operation

    def _ready(self, model: Model) -> Model:
        """Return a model whose rows can be relied on; raise NotReady if it is of an aggregate that is being built."""
        if model.aggregate is not None and (label := self.engine.label(model)) in self.engine.unready:
            raise self.engine.describe(label).error()
        return model

    # ------------------------------------------------------------------------------------------ writing

    def write(self, operations: list[Operation]) -> None:
        """Apply operations in one transaction, and stamp their entities with what was stored.

        Raises:
            InvalidTransaction: the thread or task is inside of another transaction of the store.
        """
        check_outside(self.engine, operations[0].verb)
        if self.ended.places:
            self.ended.judge(operations)
        self.engine.apply(operations)
        stamp(operations)

    def write_transaction(self, operations: list[Operation], *, across: bool) -> None:
        """Apply the operations of a user's transaction, which may count what is maintained from them."""
        if self.ended.places:
            self.ended.judge(operations)
        self.engine.apply(operations, maintained_limit=None if across else self._maintained_limit)
        stamp(operations)


def _etag(text: str) -> int:
    if not isinstance(text, str):
        raise InvalidEntity(
            "if_match", [f'expected an ETag as tm.info(entity).etag returns it, or "*", got {safe_repr(text)}']
        )
    return etag_timestamp(text)


def stamp(operations: Iterable[Operation]) -> None:
    """Give the entities of committed operations the rows that were stored."""
    for operation in operations:
        entity = operation.entity
        if entity is None:
            continue
        if operation.verb == "delete":
            set_row(entity, None)
        elif operation.change is not None:
            merged = operation.model.build_one(operation.new)  # type: ignore[arg-type]
            entity.__setstate__(merged.__getstate__())
        elif operation.model.maintained:
            _stamp(operation.model, entity, operation.new)
        else:
            set_row(entity, operation.new)


def stamp_batch(batch: Batch) -> None:
    """Give the entities of a batch, if it has them, the rows that were stored."""
    if not batch.entities:
        return
    for entity, row in zip(batch.entities, batch.rows, strict=True):
        _stamp(batch.model, entity, row)


def _stamp(model: Model, entity: Any, row: Row | None) -> None:
    set_row(entity, row)
    if model.maintained and row is not None:
        set_maintained(entity, model.maintained, model.build_one(row))


def not_found(key: KeyOf[Any]) -> EntityNotFound:
    """Return the error of reading what is not there."""
    name = key.entity.__name__
    label = shown_key(name, declaration_of(key.entity).templates, key[1:])
    kind, hint = "entity", ".get(key) returns None"
    if issubclass(key.entity, Aggregate):
        kind, hint = "group", "store.group(key) returns an empty one"
    message = f"{label}: there is no such {kind}; {hint}"
    return EntityNotFound(message, entity=name, key=(key.partition, key.row))
