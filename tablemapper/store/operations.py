"""From the arguments of verbs to operations, checked whole before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from ..engines.protocol import Batch, Engine, Operation, Verb
from ..entities.entity import Record, etag_timestamp, key_of, set_row, stored_row
from ..entities.index import KeyOf
from ..errors import EntityNotFound, InvalidEntity, PreconditionFailed, shown
from ..expressions.tree import Assignment
from ..schema.assignments import assignments
from ..schema.model import Model
from ..schema.rows import Row

__all__ = ["Verbs", "not_found", "stamp", "stamp_batch", "tell_written", "writable"]


class Verbs:
    """Turns the arguments of verbs into operations: what a store and a transaction have in common."""

    def __init__(self, engine: Engine, special: dict[type[Any], Callable[[str, str], str | None]]) -> None:
        self._engine = engine
        self._models = engine.schema.by_class
        self._writables = {cls: model for cls, model in self._models.items() if model.aggregate is None}
        self._special = special

    def _model(self, cls: type[Any]) -> Model:
        model = self._models.get(cls)
        if model is None:
            known = ", ".join(sorted(m.name for m in self._engine.schema.models))
            raise InvalidEntity(f"{cls.__name__}", [f"the store was not opened with it (models: {known})"])
        return model

    def _writable(self, cls: type[Any]) -> Model:
        if not issubclass(cls, Record):
            raise InvalidEntity(cls.__name__, ["an entity is needed, an object of one of the store's classes"])
        return writable(self._model(cls))

    def _key(self, key: KeyOf[Any]) -> tuple[Model, str, str]:
        if key.__class__ is not KeyOf:
            raise InvalidEntity("key", [f"Product.key(…) is needed, not {shown(key)}"])
        return self._model(key[0]), key[1], key[2]

    def _checked(self, entity: Any, verb: Verb) -> tuple[Model, Row]:
        """Return the model and the row of an entity that is to be written."""
        model = self._writables.get(entity.__class__)
        if model is None:
            if not isinstance(entity, Record):
                raise InvalidEntity(verb, [f"an entity is needed, not {shown(entity)}"])
            model = self._writable(type(entity))
        row = model.to_row(entity)
        if model.cls in self._special:
            self._not_special(model, (row,))
        return model, row

    def _not_special(self, model: Model, rows: Iterable[Row]) -> None:
        """Refuse rows of a class whose keys belong to a more special one of the same table."""
        special = self._special.get(model.cls)
        if special is not None:
            for row in rows:
                if (other := special(row[0], row[1])) is not None:
                    raise InvalidEntity(
                        f"{model.name} {row[:2]}", [f"this key belongs to {other}; choose other values"]
                    )

    def _inserting(self, entity: Any) -> Operation:
        model, row = self._checked(entity, "insert")
        return Operation("insert", model, row[0], row[1], row, entity=entity)

    def _replacing(self, entity: Any, if_match: str | None) -> Operation:
        model, row = self._checked(entity, "replace")
        read = entity._row
        if if_match is None and read is not None:
            return Operation("replace", model, row[0], row[1], row, read, read[2], None, entity)
        operation = Operation("replace", model, row[0], row[1], row, entity=entity)
        self._condition(operation, entity, if_match)
        return operation

    def _condition(self, operation: Operation, entity: Record, if_match: str | None) -> None:
        read = stored_row(entity)
        if if_match is None:
            if read is None:
                raise PreconditionFailed(
                    f'{operation}: it was not read from the store, so it has no ETag; say if_match="*" to overwrite '
                    "whatever is there, or use upsert",
                    entity=operation.model.name,
                    key=operation.key,
                )
            operation.old, operation.etag = read, read[2]
        elif if_match != "*":
            operation.etag = _etag(if_match)

    def _upserting(self, entity: Any, *, merge: bool) -> Operation:
        model, row = self._checked(entity, "upsert")
        operation = Operation("upsert", model, row[0], row[1], row, entity=entity)
        if merge:
            # What is None in the entity is left as it is.
            def change(old: Row | None) -> Row:
                if old is None:
                    return row
                kept = [mine if mine is not None else theirs for mine, theirs in zip(row, old, strict=False)]
                entity_merged = model.build_one((*kept, *old[len(row) :]))
                return model.to_row(entity_merged)

            operation.change = change
        return operation

    def _merging(
        self, key: KeyOf[Any], given: tuple[Assignment[Any], ...], values: dict[str, Any], if_match: str | None
    ) -> Operation:
        model, partition, row = self._key(key)
        model = self._writable(model.cls)
        changes = assignments(model, "merge", given, values)

        def change(old: Row | None) -> Row:
            assert old is not None
            entity = model.build_one(old)
            changes.apply(entity)
            return model.to_row(entity)

        operation = Operation("merge", model, partition, row, change=change)
        if if_match is not None and if_match != "*":
            operation.etag = _etag(if_match)
        return operation

    def _deleting(self, target: Any, if_match: str | None) -> Operation:
        if isinstance(target, Record):
            model = self._writable(type(target))
            key = key_of(target)
            self._not_special(model, (key[1:],))
            operation = Operation("delete", model, key.partition, key.row, entity=target)
            self._condition(operation, target, if_match)
            return operation
        model, partition, row = self._key(target)
        self._writable(model.cls)
        operation = Operation("delete", model, partition, row)
        if if_match is not None and if_match != "*":
            operation.etag = _etag(if_match)
        return operation


def _etag(text: str) -> int:
    if not isinstance(text, str):
        raise InvalidEntity(
            "if_match", [f'an ETag as tm.info(entity).etag gives it, or "*", is needed, not {shown(text)}']
        )
    return etag_timestamp(text)


def writable(model: Model) -> Model:
    """Return a model of entities; raise InvalidEntity if it is of aggregates, which nobody but the store writes."""
    if model.aggregate is not None:
        source = model.aggregate.source.__name__
        raise InvalidEntity(model.name, [f"it is maintained from {source}; write {source} entities instead"])
    return model


def tell_written(error: BaseException, verb: str, written: int, more: str = "") -> None:
    """Say in an error how many entities were written before it, as a note and as its ``written``."""
    error.add_note(f"{verb}: {written} entities were written before this{more}")
    with suppress(AttributeError):
        error.written = written  # type: ignore[attr-defined]


def stamp(operations: Iterable[Operation]) -> None:
    """Give the entities of committed operations the rows that were stored."""
    for operation in operations:
        if operation.entity is not None:
            if operation.verb == "upsert" and operation.change is not None:
                merged = operation.model.build_one(operation.new)  # type: ignore[arg-type]
                operation.entity.__setstate__(merged.__getstate__())
            else:
                set_row(operation.entity, None if operation.verb == "delete" else operation.new)


def stamp_batch(batch: Batch) -> None:
    """Give the entities of a batch the rows that were stored."""
    for entity, row in zip(batch.entities, batch.rows, strict=True):
        set_row(entity, row)


def not_found(key: KeyOf[Any]) -> EntityNotFound:
    """Return the error of reading what is not there."""
    name = key.entity.__name__
    return EntityNotFound(f"{name} {key[1:]}: there is no such entity", entity=name, key=(key.partition, key.row))
