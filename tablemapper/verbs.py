"""From the arguments of verbs to operations, checked whole before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from typing import Any

from .declaration import check_value, located
from .engine import Batch, Engine, Operation, Verb
from .entity import Record, etag_timestamp, key_of, set_row
from .errors import EntityNotFound, InvalidEntity, PreconditionFailed, did_you_mean
from .expressions import Assignment
from .fields import FieldModel
from .indexes import KeyOf
from .model import Model, Row

__all__ = ["Verbs", "not_found", "stamp", "stamp_batch"]

_EXACT = Context(prec=13_000)  # the sum of two Decimals of 34 digits between 1E-6143 and 1E+6145


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
        model = self._model(cls)
        if model.aggregate is not None:
            source = model.aggregate.source.__name__
            raise InvalidEntity(model.name, [f"it is maintained from {source}; write {source} entities instead"])
        return model

    def _key(self, key: KeyOf[Any]) -> tuple[Model, str, str]:
        if key.__class__ is not KeyOf:
            raise InvalidEntity("key", [f"Product.key(…) is needed, not {key!r}"])
        return self._model(key[0]), key[1], key[2]

    def _checked(self, entity: Any, verb: Verb) -> tuple[Model, Row]:
        """Return the model and the row of an entity that is to be written."""
        model = self._writables.get(entity.__class__)
        if model is None:
            if not isinstance(entity, Record):
                raise InvalidEntity(verb, [f"an entity is needed, not {entity!r}"])
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
        read = entity._row
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
        self, key: KeyOf[Any], assignments: tuple[Assignment[Any], ...], values: dict[str, Any], if_match: str | None
    ) -> Operation:
        model, partition, row = self._key(key)
        model = self._writable(model.cls)
        changes = _checked_assignments(model, assignments, values)

        def change(old: Row | None) -> Row:
            assert old is not None
            entity = model.build_one(old)
            set_row(entity, None)
            for field, value, adds in changes:
                held = getattr(entity, field.name)
                setattr(entity, field.name, _added(held, value) if adds and held is not None else value)
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
        raise InvalidEntity("if_match", [f'an ETag as tm.info(entity).etag gives it, or "*", is needed, not {text!r}'])
    return etag_timestamp(text)


def _checked_assignments(
    model: Model, assignments: tuple[Assignment[Any], ...], values: dict[str, Any]
) -> list[tuple[FieldModel, Any, bool]]:
    made = model.declaration
    known = [field.name for field in made.fields]
    faults, changes = [], []
    given = []
    for assignment in assignments:
        if not isinstance(assignment, Assignment):
            faults.append(f"Product.name.set(…) or .add(…) is needed, not {assignment!r}")
        elif not issubclass(model.cls, assignment.attr.owner) or assignment.attr.path or assignment.attr.part:
            faults.append(f"{assignment.attr!r} is not a field of {model.name}")
        else:
            given.append((assignment.attr.name, assignment.value, assignment.adds))
    for name, value, adds in [*given, *((name, value, False) for name, value in values.items())]:
        if name not in known:
            faults.append(f'no field "{name}" (fields: {", ".join(known)}){did_you_mean(name, known)}')
            continue
        field = made.field(name)
        if name in made.key_fields:
            faults.append(f"{name}: a key field can not be merged; store.move(entity, new_key) gives another key")
            continue
        try:
            changes.append((field, check_value(field, value), adds))
        except ValueError as error:
            faults.append(located(name, error))
    if not faults and not changes:
        faults.append("nothing to change; give fields, as in name=… or Product.name.set(…)")
    if faults:
        raise InvalidEntity(f"merge of {model.name}", faults)
    return changes


def _added(held: Any, value: Any) -> Any:
    """Add without rounding: what a field can not hold is refused when it is set, whatever the caller's context is."""
    return _EXACT.add(held, value) if isinstance(held, Decimal) else held + value


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
