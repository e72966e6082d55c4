"""Writing by query: update or delete the results of a query, in batches that are each atomic.

A run goes through the entities in the order of their keys, which no assignment changes. If the path of the query is the
key, it reads page after page. Else, for an index or a limit, it first collects the keys from one state of the store. So
it writes no entity twice, and misses none that matches throughout, whatever this run or others write meanwhile. It
writes an entity only if that has the ETag that was read. If another program wrote it since, the run reads and tests it
again.

A run with a name keeps its place in the store, in the transaction of each batch, so that it can continue after a kill.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final, TypeAlias, TypeVar

import attrs
import msgspec

from ..codegen import Names, compile_functions
from ..edits.assignments import Assignments, assignments
from ..engines.current_transaction import check_outside
from ..engines.ended import ended_by, set_test
from ..engines.protocol import Engine, NoteConflict, Operation, restore_rows, rows_before
from ..entities.entity import key_of
from ..errors import (
    CorruptStore,
    EntityNotFound,
    InvalidEntity,
    PreconditionFailed,
    UniqueViolation,
    note_written,
    safe_repr,
)
from ..execution.plan_reader import PlanReader
from ..execution.prepared import MAX_PLANS, PlanCache, PreparedPlan
from ..expressions.python_source import python_source
from ..expressions.tree import And
from ..planning.budget import BudgetMeter
from ..planning.projection import ENTITIES
from ..planning.query_spec import BEFORE_ALL, QuerySpec, query_form
from ..planning.ranges import BoundPlan
from ..progress import Meter, ProgressOption, start_meter
from ..schema.maintenance import maintenance
from ..schema.model import Model, writable
from ..schema.rows import Row
from .checkpoint import Checkpoint, check_name
from .pages import query_identity

T = TypeVar("T")
Key: TypeAlias = tuple[str, str]
Work: TypeAlias = Callable[[Any], Operation | None]
"""A function from an entity to the operation on it; None leaves it alone."""

_EXAMINED = 20  # times as many rows as a batch are read at once, where Python checks the conditions
_ATTEMPTS = 100
_MOST_TOGETHER = 100_000  # entities that pass unique values on to each other
_decode_keys = msgspec.msgpack.Decoder(list[Key]).decode
_SPOOL = 1 << 20  # bytes in memory of what goes to a file


class WriteByQuery:
    """Writes by query over the plans of a store."""

    def __init__(self, plans: PlanCache) -> None:
        self.plans = plans
        self.engine: Engine = plans.engine
        self.batch_limits: Final = plans.batch_limits

    def delete(self, spec: QuerySpec, query_text: str, *, progress: ProgressOption, resume: str | None) -> int:
        """Delete what a query finds; return the number of entities."""
        return self._run(spec, query_text, "delete()", _deletion(writable(spec.model)), progress, resume)

    def expire(self, spec: QuerySpec, query_text: str, *, progress: ProgressOption) -> int:
        """Delete what a query finds, which has ended; return the number of entities."""
        return self._run(
            attrs.evolve(spec, moment=BEFORE_ALL), query_text, "expire()", _deletion(spec.model), progress, None
        )

    def update(
        self,
        spec: QuerySpec,
        query_text: str,
        assigned: tuple[Any, ...],
        values: dict[str, Any],
        *,
        progress: ProgressOption,
        resume: str | None,
    ) -> int:
        """Change what a query finds, by assignments or by one function; return the number of entities."""
        model, by_row = writable(spec.model), None
        if len(assigned) == 1 and callable(assigned[0]) and not values:
            work, text = by_function(model, assigned[0]), "a function"
        elif any(map(callable, assigned)):
            raise InvalidEntity(f"update of {model.name}", ["give one function, or assignments, not both"])
        else:
            changes = assignments(model, "update", assigned, values)
            work, text = _by_assignments(changes), str(changes)
            by_row = _by_rows(changes)
        return self._run(spec, query_text, f"update({text})", work, progress, resume, by_row)

    def _run(
        self,
        spec: QuerySpec,
        query_text: str,
        doing: str,
        work: Work,
        progress: ProgressOption,
        resume: str | None,
        by_row: Work | None = None,
    ) -> int:
        """Write by a query; return the number of entities.

        Args:
            query_text: the query as text.
            doing: the call as text, as ``delete()``.
            resume: the name of the run, if it has one.
            by_row: the same work on rows, if it needs no entities.
        """
        verb = doing.partition("(")[0]
        check_outside(self.engine, verb)
        if spec.moment is None and spec.model.declaration.expiry is not None:
            spec = attrs.evolve(spec, moment=self.plans.moment())
        if spec.limit is None:
            spec = spec.unordered  # (an order matters only with a limit)
        prepared, bound = self.plans.find(spec, None)
        self.plans.warn_of_scan(prepared, bound, lambda: query_text, spec.limit)
        checkpoint = None
        if resume is not None:
            form = msgspec.json.encode([doing, query_identity(self.plans, spec)], order="deterministic")
            digest = hashlib.blake2b(form, digest_size=16).hexdigest()
            checkpoint = Checkpoint(self.engine, check_name(resume, spec), digest, f"{query_text}.{doing}")
        if spec.limit == 0:
            return 0
        spending = None if spec.budget is None else spec.budget.start(query_text)
        with start_meter(progress, verb) as meter:
            run = self._run_of(self, spec, self._test(spec, bound), work, checkpoint, spending, meter)
            try:
                if prepared.plan.index is None and spec.limit is None and not run.gathers_keys:
                    run.by_page(prepared, bound, by_row if prepared.whole and prepared.layout is ENTITIES else None)
                else:
                    run.by_key()
            except BaseException as error:
                note_written(error, verb, run.written, "" if checkpoint is None else "; the same call continues there")
                raise
        return run.written

    def _run_of(self, *arguments: Any) -> BatchRun:
        return BatchRun(*arguments)

    def _test(self, spec: QuerySpec, bound: BoundPlan) -> Callable[[Any], bool]:
        """Return a function that tells whether a query finds an entity."""
        (form, _), values = spec.parts(), bound.values
        tests = self.plans.tests
        test = tests.get(form)
        if test is None:
            if len(tests) >= MAX_PLANS:
                tests.clear()
            names = Names()
            shape = query_form(spec, None)
            conditions = shape.where if shape.unended is None else (*shape.where, shape.unended)
            source = python_source(And(parts=conditions), lambda name: f"e.{name}", names)
            functions = compile_functions("what a query finds", f"def holds(e, v):\n    return {source}\n", names)
            test = tests[form] = functions["holds"]
        holds = test
        if spec.range is None:
            return lambda entity: holds(entity, values)
        indexes = maintenance(self.engine.schema, spec.model).indexes
        index = next(index for index in indexes if index.model is bound.plan.index)
        return lambda entity: bound.holds(index.rows((entity._row,))) and holds(entity, values)


# ---------------------------------------------------------------------------------------------- one run


class BatchRun:
    """One write by query, from its first batch to its last."""

    gathers_keys: bool = False
    """Whether the keys are always collected before the first entity is written."""

    def __init__(
        self,
        writing: WriteByQuery,
        spec: QuerySpec,
        test: Callable[[Any], bool],
        work: Work,
        checkpoint: Checkpoint | None,
        spending: BudgetMeter | None,
        meter: Meter,
    ) -> None:
        self._engine = writing.engine
        self._writing = writing
        self._spec = spec
        self._model = spec.model
        self._test = test
        self._work = work
        self._checkpoint = checkpoint
        self._spending = spending
        self._meter = meter
        self._has_ended = ended_by(self._model, spec.moment)
        self._postponed: list[Operation] = []
        """What was not written yet, as an entity that the run has still to come to holds a unique value that it takes."""
        self._enough = 0
        """How many of these are tried again: twice as many as the last time."""
        self.written: int = 0 if checkpoint is None else checkpoint.written
        self._meter.advance(self.written)

    def by_page(self, prepared: PreparedPlan, bound: BoundPlan, by_row: Work | None) -> None:
        """Go through the entities along the key, or through their rows, if the work can be done on these."""
        last_key = None if self._checkpoint is None else self._checkpoint.position
        has_more = True
        while has_more:
            entities, last_key, has_more = self._page(prepared, bound, last_key, by_row)
            self._batch(entities)
        self._end()

    def _page(
        self, prepared: PreparedPlan, bound: BoundPlan, last_key: Key | None, by_row: Work | None
    ) -> tuple[list[Any], Key | None, bool]:
        """Return the next entities, or operations on them, the last key that was read, and whether there may be more."""
        batch, spending = self._writing.batch_limits.batch, self._spending
        run = PlanReader(self._engine.reads, prepared, bound, prepared.layout, spending)
        most = batch if prepared.whole else batch * _EXAMINED
        entities: list[Any] = []
        examined = 0
        for rows in run.rows(last_key, examined=most):
            examined += len(rows)
            last_key = rows[-1][:2]
            entities += self._entities(rows, run.items_of) if by_row is None else self._row_operations(rows, by_row)
            if len(entities) >= batch or examined >= most:
                return entities, last_key, True
        return entities, last_key, False

    def _entities(self, rows: Sequence[Row], make: Callable[[Sequence[Row]], list[Any]]) -> list[Any]:
        """Return the entities of rows; of one that is damaged in what the query does not ask for, what can be read."""
        try:
            return make(rows)
        except CorruptStore:
            pass
        entities: list[Any] = []
        for row in rows:
            try:
                entities += make((row,))
            except CorruptStore as error:
                salvaged = self._model.salvaged(row)
                try:
                    entities += [salvaged] if self._test(salvaged) else []
                except AttributeError:  # (a field that it does not have)
                    raise error from None
        return entities

    def _row_operations(self, rows: Sequence[Row], by_row: Work) -> Iterator[Any]:
        """Yield the operations on entities, or the entity of a row that is not enough for that."""
        for row in rows:
            operation = by_row(row)
            yield from self._entities((row,), self._model.build) if operation is None else (operation,)

    def by_key(self) -> None:
        """Go through the entities by their keys, which are collected before the first one is written."""
        checkpoint, batch = self._checkpoint, self._writing.batch_limits.batch
        with SpooledTemporaryFile(_SPOOL) as file:
            if checkpoint is None or self._spec.limit is None:
                # (Of an index that is read by several requests, an entity that others write can be found twice.)
                keys: Iterator[Key] = map(
                    itemgetter(0), groupby(_in_order(self._keys(), file, self._writing.batch_limits.in_memory))
                )
            else:
                keys = iter(checkpoint.chosen(lambda: sorted({*self._keys()})))
            if checkpoint is not None and (position := checkpoint.position) is not None:
                keys = (key for key in keys if key > position)
            for batch_keys in _lists(keys, batch):
                rows = self._engine.get_many([(self._model, *key) for key in batch_keys])
                entities = self._entities([row for row in rows if row is not None], self._model.build)
                self._batch([entity for entity in entities if self._test(entity)])
        self._end()

    def _keys(self) -> Iterator[Key]:
        """Yield the keys of the results in the order of the query, from one state of the store."""
        limit = self._spec.limit
        # Each entity is read and tested later, so older rows of an index will do, and hide none that moves meanwhile.
        # A limit counts what matches.
        spec = attrs.evolve(self._spec, eventual=True) if limit is None else self._spec
        prepared, bound = self._writing.plans.find(spec, ())
        run = PlanReader(self._engine.reads, prepared, bound, prepared.placed, self._spending)
        return (position[-2:] for position, _ in islice(run.positioned(None, limit), limit))

    def _batch(self, entities: Sequence[Any]) -> None:
        """Work on some entities, or take the operations on them, and write, in several batches if the work takes long."""
        if self._spending is not None:
            self._spending.check_time()
        clock, seconds = self._writing.batch_limits.monotonic, self._writing.batch_limits.seconds
        operations: list[Operation] = []
        since = clock()
        for entity in entities:
            operation = entity if entity.__class__ is Operation else self._work(entity)
            if operation is not None:
                operations.append(operation)
            if clock() - since > seconds or len(operations) >= self._writing.batch_limits.batch:
                self._write(operations)
                operations, since = [], clock()
        self._write(operations)

    def _write(self, operations: list[Operation], *, is_last: bool = False) -> None:
        """Write a batch; if another program wrote one of the entities since, read and test the batch again.

        A batch whose unique values entities hold that come later waits for these, unless it is the last.
        """
        operations, self._postponed = [*self._postponed, *operations], []
        if len(operations) < self._enough and not is_last:
            self._postponed = operations
            return
        tries = 0
        while operations:
            # The more often others are faster, the smaller the batch.
            part = operations[: max(len(operations) >> max(tries - 2, 0), 1)]
            part = part[: self._fitting(part)]
            written_so_far = self.written + len(part)
            rows = rows_before(part)
            if self._has_ended is not None:
                set_test(part, self._has_ended)
            try:
                self._apply(part, written_so_far)
            except (PreconditionFailed, EntityNotFound):
                restore_rows(part, rows)
                tries += 1
                if tries > _ATTEMPTS:
                    raise
                operations = self._retried(operations)
            except UniqueViolation as error:
                restore_rows(part, rows)
                if not self._comes_later(error, operations, len(part), is_last=is_last):
                    raise
                if len(part) == len(operations):
                    self._postponed, self._enough = operations, 2 * len(operations)
                    return
                if self._fitting(operations) < len(operations):
                    raise _too_many(error, len(part)) from None
                tries = 0
            except NoteConflict:
                assert self._checkpoint is not None
                raise self._checkpoint.conflict() from None
            else:
                if self._checkpoint is not None:
                    self._checkpoint.arrived()
                self.written = written_so_far
                self._meter.advance(len(part))
                operations = operations[len(part) :]
        self._enough = 0

    def _fitting(self, operations: Sequence[Any]) -> int:
        return self._engine.together(operations)

    def _apply(self, part: Sequence[Any], total: int) -> None:
        """Write a part of a batch; with it so many entities are written."""
        checkpoint = self._checkpoint
        self._engine.apply(part, notes=() if checkpoint is None else checkpoint.advanced(part[-1].key, total))

    def _comes_later(
        self, error: UniqueViolation, operations: Sequence[Operation], attempted: int, *, is_last: bool
    ) -> bool:
        """Return whether the run may still write the entity that holds a unique value, together with these operations."""
        if error.holder is None or error.entity != self._model.name or len(operations) >= _MOST_TOGETHER:
            return False
        ordered = self._engine.reads.ordered
        is_among = any(operation.key == error.holder for operation in operations[attempted:])
        return is_among or (not is_last and ordered(error.holder) > ordered(operations[-1].key))

    def _retried(self, operations: list[Operation]) -> list[Operation]:
        """Return the operations on the entities of a batch as they are now; an unchanged one keeps its operation."""
        rows = self._engine.get_many(
            [(operation.model, operation.partition, operation.row) for operation in operations]
        )
        retried: list[Operation | None] = []
        for operation, row in zip(operations, rows, strict=True):
            if row is not None and operation.old is not None and row[2] == operation.old[2]:
                retried.append(operation)
            elif row is not None:
                retried += [
                    self._work(entity) for entity in self._entities([row], self._model.build) if self._test(entity)
                ]
        return [operation for operation in retried if operation is not None]

    def _end(self) -> None:
        self._write([], is_last=True)
        if self._checkpoint is not None:
            self._checkpoint.leave()


def _too_many(error: UniqueViolation, most: int) -> UniqueViolation:
    """Return the error of unique values that entities pass on, which the engine cannot write together."""
    return UniqueViolation(
        f"{error}; the account writes {most} entities together: shift fewer, or leave gaps",
        entity=error.entity, key=error.key, index=error.index, holder=error.holder,
    )  # fmt: skip


def _lists(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while block := list(islice(items, size)):
        yield block


def _deletion(model: Model) -> Work:
    def work(entity: Any) -> Operation:
        row = entity._row
        return Operation("delete", model, row[0], row[1], old=row, etag=row[2])

    return work


def _by_assignments(changes: Assignments) -> Work:
    def work(entity: Any) -> Operation:
        model, row = changes.model, entity._row
        if type(entity) is model.cls:
            changes.at_write().apply(entity)
            return _replacing(model, row, model.to_row(entity), entity)
        new = changes.at_write().applied(row)
        return Operation("replace", model, row[0], row[1], new=new, old=row, etag=row[2])

    return work


def _by_rows(changes: Assignments) -> Work | None:
    model, changed_row = changes.model, changes.of_rows()
    if changed_row is None:
        return None

    def by_row(row: Row) -> Operation | None:
        new = changed_row(row)
        return None if new is None else Operation("replace", model, row[0], row[1], new=new, old=row, etag=row[2])

    return by_row


def by_function(model: Model, change: Callable[[Any], Any] | None) -> Work:
    """Return the work of a user's function on an entity: it returns what is to be written, or None to leave it alone.

    What it returns is stored over what was read, whatever ETag it has; nothing is written if it would be the same.

    Raises:
        InvalidEntity: it is no function.
    """
    if not callable(change):
        raise InvalidEntity(model.name, [f"update: expected a function of the entity, got {safe_repr(change)}"])

    def work(entity: Any) -> Operation | None:
        row = entity._row
        new_entity = change(entity if type(entity) is model.cls else model.build_one(row))  # (which raises)
        fault = None
        if new_entity is None:
            if not model.changed(entity, row):
                return None
            fault = "the function changed it and returned None, which means to leave it alone; return the entity"
        elif type(new_entity) is not model.cls:
            fault = f"the function must return a {model.name} or None, not {safe_repr(new_entity)}"
        elif key_of(new_entity)[1:] != row[:2]:
            fault = f"the function changed its key to {key_of(new_entity)[1:]}; store.move(entity, new_key) does that"
        if fault is not None:
            raise InvalidEntity(f"{model.name} {row[:2]}", [fault])
        new = model.to_written_row(new_entity)
        return None if model.same(new, row) else _replacing(model, row, new, new_entity)

    return work


def _replacing(model: Model, row: Row, new: Row, entity: Any) -> Operation:
    return Operation("replace", model, row[0], row[1], new=new, old=row, etag=row[2], entity=entity)


# ---------------------------------------------------------------------------------------------- keys in order


def _in_order(keys: Iterator[Key], file: IO[bytes], most: int) -> Iterator[Key]:
    """Return keys in order; at most ``most`` are in memory, the others in a file, in sorted runs."""
    runs: list[tuple[int, int]] = []
    while len(run := sorted(islice(keys, most))) == most:
        start = file.tell()
        for block in _lists(iter(run), 1_000):
            text = msgspec.msgpack.encode(block)
            file.write(len(text).to_bytes(8) + text)
        runs.append((start, file.tell()))
    return heapq.merge(run, *(_read_run(file, start, end) for start, end in runs))


def _read_run(file: IO[bytes], start: int, end: int) -> Iterator[Key]:
    while start < end:
        file.seek(start)
        text = file.read(int.from_bytes(file.read(8)))
        start = file.tell()
        yield from _decode_keys(text)
