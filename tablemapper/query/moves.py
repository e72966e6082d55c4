"""Moves by query: what a query finds becomes entities of another class, or of other keys.

Where one transaction can be of two tables, each entity is in exactly one of them at every commit. Elsewhere the target is
written first, and the source deleted under its ETag then: for a moment both are there. A target that equals what would be
written counts as moved, so after a kill the same call ends the move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import attrs

from ..engines.ended import EndedRows
from ..engines.protocol import Operation, restore_rows, rows_before
from ..entities.entity import Record, key_of, set_row, stored_row
from ..errors import (
    EntityExists,
    EntityNotFound,
    InvalidEntity,
    InvalidQuery,
    PreconditionFailed,
    TableMapperError,
    UniqueViolation,
    safe_repr,
)
from ..planning.query_spec import QuerySpec
from ..progress import ProgressOption
from ..schema.model import Model, reserved_keys, writable
from ..schema.rows import Row
from .writing import BatchRun, Work, WriteByQuery


@attrs.define(eq=False)
class Move(Operation):
    """The deletion of an entity, and the insert of what it becomes."""

    target: Operation = attrs.field(kw_only=True)
    entity_after: Record = attrs.field(kw_only=True)
    """The entity that is inserted."""


class MoveByQuery(WriteByQuery):
    """Moves over the plans of a store."""

    def move(self, spec: QuerySpec, query_text: str, to: Any, *, progress: ProgressOption) -> int:
        """Move what a query finds to a class, or to what a function makes; return the number of entities."""
        model = writable(spec.model)
        is_class = isinstance(to, type)
        if not is_class and not callable(to):
            raise InvalidQuery(
                f"move_to: expected a class of entities, or a function of the entity, got {safe_repr(to)}"
            )
        work = self._work(model, self._copying(model, to) if is_class else to)
        doing = f"move_to({to.__name__ if is_class else 'a function'})"
        return self._run(spec, query_text, doing, work, progress, None)

    def _run_of(self, *arguments: Any) -> BatchRun:
        return _MoveRun(*arguments)

    def _target(self, cls: Any) -> Model:
        """Return the model of the class of a target; raise InvalidEntity if entities cannot be moved there."""
        schema = self.engine.schema
        if (model := schema.by_class.get(cls)) is None:
            names = ", ".join(sorted(schema.by_name))
            raise InvalidEntity(
                getattr(cls, "__name__", safe_repr(cls)), [f"the store was not opened with it (models: {names})"]
            )
        return writable(model)

    def _copying(self, model: Model, cls: type[Any]) -> Callable[[Any], Any]:
        """Return the function that makes an entity of another class with the same fields."""
        target = self._target(cls)
        if target is model:
            raise InvalidQuery(
                f"move_to: the query is over {model.name} itself; give a function, which makes entities with other keys"
            )
        fields = {field.name: field for field in target.declaration.parameters}
        names = [field.name for field in model.declaration.parameters]
        if absent := [name for name in names if name not in fields]:
            raise InvalidQuery(
                f"move_to: {target.name} has no field {' and '.join(absent)} of {model.name}; give a function"
            )
        if required := [name for name, field in fields.items() if field.required and name not in names]:
            raise InvalidQuery(
                f"move_to: {target.name} needs {' and '.join(required)}, which {model.name} has not; give a function"
            )
        for field in model.declaration.parameters:
            if not fields[field.name].type.takes(field.type):
                raise InvalidQuery(
                    f"move_to: {target.name}.{field.name} is {fields[field.name].type.name}, and {model.name}.{field.name} "
                    f"is {field.type.name}; give a function"
                )
        return lambda entity: cls(**{name: getattr(entity, name) for name in names})

    def _work(self, model: Model, make: Callable[[Any], Any]) -> Work:
        across = self.engine.capabilities.across_partitions
        unique = None if across else next((index.name for index in model.indexes if index.unique), None)
        tables = self.engine.schema.tables().values()
        reserved = {cls: test for models in tables for cls, test in reserved_keys(models).items()}

        def work(entity: Any) -> Move | None:
            row = entity._row
            entity_after = make(entity if type(entity) is model.cls else model.build_one(row))  # (which raises)
            if entity_after is None:
                return None
            if not isinstance(entity_after, Record):
                fault = f"the function must return an entity or None, not {safe_repr(entity_after)}"
                raise InvalidEntity(f"{model.name} {row[:2]}", [fault])
            target = self._target(type(entity_after))
            new = _written_row(target, entity_after, row if target is model else None)
            test = reserved.get(target.cls)
            if test is not None and (owner := test(new[0], new[1])) is not None:
                fault = f"this key belongs to {owner}; choose other values"
                raise InvalidEntity(f"{target.name} {new[:2]}", [fault])
            if (target.table, *new[:2]) == (model.table, *row[:2]):
                fault = "it would stay under its key; query.update(…) changes what has one"
                raise InvalidEntity(f"{model.name} {row[:2]}", [fault])
            if target is model and unique is not None:
                raise InvalidQuery(f"move_to: {unique} is unique; on an account move to another class")
            insertion = Operation("insert", target, new[0], new[1], new)
            move = Move(
                "delete", model, row[0], row[1], old=row, etag=row[2], target=insertion, entity_after=entity_after
            )
            insertion.moved_from = move if target is model else None  # (what a program does not know moves, too)
            return move

        return work


class _MoveRun(BatchRun):
    """One move by query."""

    gathers_keys: bool = True  # (so that none is moved twice, within a class)

    @cached_property
    def _ended_rows(self) -> EndedRows:
        """Targets take the place of rows that have ended."""
        return EndedRows(self._engine)

    def _fitting(self, operations: Sequence[Any]) -> int:
        """Return how many of the first moves are made together: no target is where one of their sources is."""
        most, sources, targets = self._engine.together(operations), set[object](), set[object]()
        for count, move in enumerate(operations[:most]):
            source, target = (move.model.table, *move.key), (move.target.model.table, *move.target.key)
            sources.add(source)
            targets.add(target)
            if count and not sources.isdisjoint(targets):
                return count
        return most

    def _apply(self, part: Sequence[Any], total: int) -> None:
        targets = [move.target for move in part]
        rows = rows_before(targets)
        try:
            self._move(part)
        except TableMapperError:
            restore_rows(targets, rows)
            raise

    def _move(self, part: Sequence[Any]) -> None:
        self._ended_rows.judge([move.target for move in part])
        if self._engine.capabilities.across_partitions:
            self._insert([move.target for move in part], lambda targets: self._engine.apply([*part, *targets]), part)
            return
        versions: dict[int, tuple[Any, bool]] = {}
        pending = sorted(part, key=lambda move: (move.target.model.table, *move.target.key))
        try:
            while pending:
                group = pending[: self._engine.together([move.target for move in pending])]
                self._insert([move.target for move in group], self._apply_some, group, versions)
                pending = pending[len(group) :]
        except (EntityExists, UniqueViolation):
            self._withdraw([move for move in part if versions.get(id(move), (None, False))[1]], versions)
            raise
        try:
            self._engine.apply(part)
        except (PreconditionFailed, EntityNotFound):
            rows = self._engine.get_many([(move.model, *move.key) for move in part])
            outdated = [move for move, row in zip(part, rows, strict=True) if row is None or row[2] != move.etag]
            self._withdraw(outdated, versions)
            raise

    def _apply_some(self, operations: Sequence[Operation]) -> None:
        if operations:
            self._engine.apply(operations)

    def _insert(
        self,
        targets: list[Operation],
        apply: Callable[[list[Operation]], None],
        moves: Sequence[Move],
        versions: dict[int, tuple[Any, bool]] | None = None,
    ) -> None:
        """Write targets, but for those that are there as they are to be; note the version of each, and whether it is new."""
        operations = [*moves, *targets]
        rows = rows_before(operations)
        equal = [False] * len(targets)
        target_rows: list[Row | None] = [None] * len(targets)
        try:
            apply(targets)
        except EntityExists:
            restore_rows(operations, rows)
            target_rows = self._engine.get_many([(target.model, *target.key) for target in targets])
            equal = [
                row is not None and _is_written(target.model, move.entity_after, row)
                for move, target, row in zip(moves, targets, target_rows, strict=True)
            ]
            if not any(equal):
                raise
            missing = [target for target, is_there in zip(targets, equal, strict=True) if not is_there]
            apply(missing)
        if versions is not None:
            for move, target, row, is_there in zip(moves, targets, target_rows, equal, strict=True):
                new = row if is_there else target.new
                assert new is not None
                versions[id(move)] = new[2], not is_there

    def _withdraw(self, moves: Sequence[Move], versions: dict[int, tuple[Any, bool]]) -> None:
        """Delete the targets of moves that are not made, unless others wrote them since."""
        for move in moves:
            version, _ = versions[id(move)]
            with suppress(EntityNotFound, PreconditionFailed):
                self._engine.apply([Operation("delete", move.target.model, *move.target.key, etag=version)])


def _is_written(model: Model, entity: Record, row: Row) -> bool:
    """Return whether a row holds an entity, but for what each write sets, and what is maintained."""
    return all(field.read_only for field in model.changed(entity, row))


def _written_row(model: Model, entity: Record, row: Row | None) -> Row:
    """Return the row of an entity to write; a value of the row that it was made of may be as long as it is."""
    if row is None:
        return model.to_written_row(entity)
    own_row = stored_row(entity)
    set_row(entity, (*key_of(entity)[1:], *row[2:]))
    try:
        return model.to_written_row(entity)
    finally:
        set_row(entity, own_row)
