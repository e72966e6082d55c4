"""Repair of the findings of a check, while programs read and write: rows of indexes, and groups beside entities.

A fix believes no finding. It reads what is there, the row of an index before its entity, and changes it only if it is
still so. That is proven by ETags, or by rows that are of one write for ever, which an intent names while they may come
late. So it may be done at any time, and by several at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from ...errors import CorruptStore, InvalidEntity, TableMapperError, UniqueViolation
from ...keys.composite_times import shown_values
from ...schema.maintenance import AggregateMaintenance, Groups, IndexMaintenance
from ...schema.model import Model
from ...schema.rows import DAMAGE
from ..check import RESTORE, CheckFinding, Problem
from ..protocol import Operation
from .catalogue.open_classes import CatalogueRefresher, OpenClasses
from .cross_partition.intent_builder import put_of
from .cross_partition.intent_execution import bury, kept_behind
from .cross_partition.marks import DUPLICATE, counted, of_writes
from .cross_partition.outbox import CommittedIntent, Deadline, DeadlineExceeded, Intent, Outbox, PutRow, ReserveValue
from .cross_partition.remote_groups import changed, correction, read_group, unread_group
from .group_writer import MOST_PAGES, GroupWriter
from .tables.driver import Effects, ReadClock, found, read, side_by_side
from .tables.entity_json import included, local_key
from .tables.reserved_names import (
    BASE_PARTITION,
    BASE_ROW,
    NEXT_OP,
    OP,
    OP_UNITS,
    STATE,
    intent_key,
    is_page,
    outer_key,
)
from .tables.service import (
    ETAG,
    MAX_CHANGES,
    PARTITION,
    ROW,
    AllOf,
    Comparison,
    Entity,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    QueryEntities,
    RowChange,
)
from .writing.batch_writes import TransactionChunk, in_rounds

Key = Sequence[Any]
_CHUNK = 16  # entities of another program, in one transaction
_FOR_NEXT_PASS: tuple[type[Exception], ...] = (DeadlineExceeded, NoResponse, CorruptStore, *DAMAGE)


class ConditionalRepair:
    """Makes right what was found, but for groups in other partitions than their entities: their aggregates are built anew.

    Args:
        classes: what is maintained.
        outbox: of the process.
        timeout: seconds after which to give up, if no answer comes.
    """

    def __init__(self, classes: OpenClasses, outbox: Outbox, timeout: float) -> None:
        self._classes = classes
        self._outbox = outbox
        self._timeout = timeout
        self._remote_indexes = {index for duties in classes.outer.values() for index in duties.indexes}
        self._sources = {
            aggregate: model
            for model in classes.models
            for duties, _ in classes.duties(model)
            for aggregate in duties.aggregates
        }

    def of(self, findings: Iterable[CheckFinding]) -> Iterator[Effects[None]]:
        """Yield the fixes of findings: none for a group in another partition, and for what nothing says how it should be."""
        groups = dict[tuple[AggregateMaintenance, tuple[str, str]], None]()
        for finding in findings:
            subject, key = finding.of, finding.problem.key
            if isinstance(subject, IndexMaintenance):
                yield _if_possible(self.index(subject, key))
            elif isinstance(subject, AggregateMaintenance) and subject in self._sources:
                groups[subject, (key[0], key[1])] = None
        for aggregate, place in groups:
            yield _if_possible(self.group(aggregate, place))

    # -- rows of indexes

    def index(self, index: IndexMaintenance, key: Key) -> Effects[None]:
        """Make right what an entity, or a group, has in an index under one value: ``(partition, row, its keys)``."""
        if index not in self._remote_indexes:
            yield from self._local(index, key)
        elif index.model.unique:
            yield from self._reserved(index, key)
        else:
            yield from self._elsewhere(index, key)

    def _entity(self, model: Model, key: Key) -> Effects[tuple[Entity | None, Any]]:
        """Read what has the keys of an index row, and its row; None if it is not there, or in nothing maintained."""
        entity = yield from read(GetEntity(model.table, key[2], key[3]), self._timeout)
        if entity is None or not self._classes.is_of(model, entity):
            return entity, None
        row = self._classes.codec(model).row(entity)
        return entity, row if model.aggregate is not None else counted(row)

    def _entry(self, index: IndexMaintenance, row: Any, key: Key) -> Any:
        entries = [] if row is None else index.rows_of(row, self._classes.stored(index.owner))
        return next((entry for entry in entries if entry[:4] == tuple(key[:4])), None)

    def _local(self, index: IndexMaintenance, key: Key) -> Effects[None]:
        table, partition = index.owner.table, key[0]
        place = local_key(index, key)
        index_row = yield from read(GetEntity(table, partition, place), self._timeout)
        entity, row = yield from self._entity(index.owner, key)
        entry = self._entry(index, row, key)
        if entry is None:
            if index_row is not None and index_row[BASE_ROW] == key[3]:
                yield from _tried(
                    GroupTransaction(table, partition, (RowChange("delete", place, {}, index_row[ETAG]),))
                )
            return
        if index_row is not None and index_row[BASE_ROW] != key[3]:
            return  # (a unique value that two have)
        members = {BASE_ROW: key[3], **included(index, entry, self._classes.codec(index.owner).stored)}
        row_change = (
            RowChange("insert", place, members)
            if index_row is None
            else RowChange("replace", place, members, index_row[ETAG])
        )
        assert entity is not None
        yield from _tried(
            GroupTransaction(table, partition, (RowChange("merge", key[3], {}, entity[ETAG]), row_change))
        )

    def _elsewhere(self, index: IndexMaintenance, key: Key) -> Effects[None]:
        """Put the row of the write that the entity names, and delete those of others that are over."""
        front = outer_key(key[1], key[2], key[3], "")
        where = AllOf((
            Comparison(PARTITION, "eq", "String", key[0]),
            Comparison(ROW, "ge", "String", front),
            Comparison(ROW, "lt", "String", f"{front}g"),
        ))  # fmt: skip
        rows = yield from found(QueryEntities(index.model.table, where), self._timeout)
        rows = [
            index_row
            for index_row in rows
            if len(index_row[ROW]) == len(front) + OP_UNITS and self._is_of(index_row, key)
        ]
        under_way = []
        for index_row in rows:
            intent = intent_key(index_row[ROW][-OP_UNITS:])
            if (yield from read(GetEntity(index.owner.table, key[2], intent), self._timeout)) is not None:
                under_way.append(index_row)
        entity, row = yield from self._entity(index.owner, key)
        entry, op = self._entry(index, row, key), self._op_of(row, index)
        for index_row in rows:
            if index_row not in under_way and (entry is None or index_row[ROW][-OP_UNITS:] != op):
                yield from _tried(
                    GroupTransaction(index.model.table, key[0], (RowChange("delete", index_row[ROW], {}, "*"),))
                )
        if entry is not None and op is not None:
            new_row = put_of(index, self._classes.marks, entry, op)
            change = RowChange("upsert", new_row.row, new_row.members)
            yield from _if_possible(self._put(index, key, entity, change, puts=[new_row]))

    def _put(
        self,
        index: IndexMaintenance,
        key: Key,
        entity: Entity | None,
        change: RowChange,
        *,
        puts: Sequence[PutRow] = (),
        takes: Sequence[ReserveValue] = (),
    ) -> Effects[None]:
        """Put the row that an entity has lost in an index elsewhere, if the entity is as it was read.

        As the row may come late, an intent names it as a put, or as a take by the write that the entity has it by.
        """
        assert entity is not None
        outbox, patience = self._outbox, (yield from self._patience())
        intent = Intent(index.owner.table, key[2], outbox.new_op(), [*puts], takes=[*takes])
        changes = RowChange("merge", entity[ROW], {}, entity[ETAG]), intent.change("D")

        def work() -> Effects[None]:
            yield from patience.send(index.model.table, key[0], change)
            yield from bury(intent, patience, self._timeout)

        yield from outbox.name(patience, intent)
        yield from patience.check()
        etags = yield GroupTransaction(intent.table, intent.partition, changes)
        yield from kept_behind(work(), [intent], "D", patience, self._timeout, outbox)
        outbox.finish(CommittedIntent.of(intent, patience, changes, etags))

    def _patience(self) -> Effects[Deadline]:
        return Deadline((yield ReadClock()) + min(self._timeout, self._outbox.times.deadline))

    def _is_of(self, row: Entity, key: Key) -> bool:
        return (row[BASE_PARTITION], row[BASE_ROW]) == (key[2], key[3])

    def _op_of(self, row: Any, index: IndexMaintenance) -> str | None:
        """Return the write that the rows of an entity in an index are of."""
        op = of_writes(row).get(self._classes.marks.of[index].name)
        return None if op in ("", DUPLICATE) else op

    def _reserved(self, index: IndexMaintenance, key: Key) -> Effects[None]:
        table, owner = index.model.table, index.owner
        reservation = yield from read(GetEntity(table, key[0], key[1]), self._timeout)
        if reservation is not None:
            intent = intent_key(reservation[OP])
            waits = yield from read(GetEntity(owner.table, reservation[BASE_PARTITION], intent), self._timeout)
            if waits is not None or NEXT_OP in reservation or not self._is_of(reservation, key):
                return
        entity, row = yield from self._entity(owner, key)
        entry, op = self._entry(index, row, key), self._op_of(row, index)
        if reservation is not None and (entry is None or op != reservation[OP]):
            yield from _tried(GroupTransaction(table, key[0], (RowChange("delete", key[1], {}, reservation[ETAG]),)))
        elif reservation is None and entry is not None and op is not None:
            take = ReserveValue(table, key[0], key[1], key[3], self._classes.marks.of[index].name, op)
            insert = RowChange("insert", key[1], {OP: op, BASE_PARTITION: key[2], BASE_ROW: key[3]})
            yield from _if_possible(self._put(index, key, entity, insert, takes=[take]))

    # -- groups

    def group(self, aggregate: AggregateMaintenance, key: tuple[str, str]) -> Effects[None]:
        """Make a group what the entities of its partition add up to.

        Each write that changes what they add up to writes the group, too: under its ETag they are all of one state.
        """
        table, source = aggregate.model.table, self._sources[aggregate]
        group_row = yield from read(GetEntity(table, *key), self._timeout)
        entities = yield from found(QueryEntities(table, Comparison(PARTITION, "eq", "String", key[0])), self._timeout)
        if group_row is not None and STATE not in group_row:  # (what is no group is not overwritten)
            return
        groups, duties = Groups(), self._classes.maintained(source).alone(aggregate)
        rows = [self._classes.readable(source, entity) for entity in entities if entity.get(OP)]
        for row in [row for row in rows if row is not None]:
            for counting in duties.counting(row).aggregates:
                counting.collect((row,), groups, 1)
        live = next(
            (delta for group, delta in groups.items() if aggregate.key(group) == key), aggregate.aggregate.zero()
        )
        stored_pages = [entity[ROW] for entity in entities if is_page(entity[ROW]) and entity.get(BASE_ROW) == key[1]]
        try:
            loaded = yield from read_group(aggregate, key, group_row, None, self._timeout)
        except CorruptStore:  # (its values; or the group itself, which stays a finding)
            loaded = unread_group(aggregate, key, group_row)
        try:
            change = changed(loaded, [correction(loaded, live)], MOST_PAGES, anyway=True)
        except (CorruptStore, InvalidEntity):
            return
        if change is None or (loaded.row_read or {}).get(ETAG) != (group_row or {}).get(ETAG):
            return
        pages, upkeep = loaded.values.changes(), self._classes.upkeep(aggregate)
        named_pages = {*loaded.values.pages, *[page.row for page in pages]}
        room = MAX_CHANGES - 2 - len(pages) - 2 * len(upkeep.inner.indexes)
        pages += [RowChange("delete", row, {}, "*") for row in stored_pages if row not in named_pages][:room]
        writer = GroupWriter(self._classes, self._outbox, (yield from self._patience()), self._timeout)
        yield from _if_possible(writer.write(upkeep, key, group_row, change, pages))


def add_uncounted(
    current: CatalogueRefresher, problems: Sequence[Problem], outbox: Outbox, timeout: float
) -> Effects[dict[Problem, str]]:
    """Add entities that other programs wrote to what is maintained from them; return why some cannot be, by problem.

    Of them nothing but marks is written. Those that are written meanwhile are left to the next pass.
    """
    refusals: dict[Problem, str] = {}
    for at in range(0, len(problems), MAX_CHANGES):
        classes = yield from current.classes()
        batch = [(uncounted, classes.schema.by_name[uncounted.where]) for uncounted in problems[at : at + MAX_CHANGES]]
        gets = [read(GetEntity(model.table, *uncounted.key), timeout) for uncounted, model in batch]
        of, operations = dict[tuple[Model, Key], Problem](), list[Operation]()
        for (problem, model), entity in zip(batch, (yield from side_by_side(gets)), strict=True):
            row = None if entity is None else classes.readable(model, entity)
            if row is not None and counted(row) is None:
                operations.append(Operation("build", model, row[0], row[1], new=row[:-1], old=row, etag=row[2]))
                of[model, operations[-1].key] = problem
        for size in (_CHUNK, 1):  # (the second time to see which one it is)
            chunks: list[TransactionChunk] = yield from in_rounds(current, operations, outbox, size, timeout)
            operations = [operation for chunk in chunks for operation in chunk.operations[chunk.written_count :]]
        for chunk in chunks:
            if isinstance(chunk.error, InvalidEntity | UniqueViolation):
                (operation,) = chunk.operations
                refusals[of[operation.model, operation.key]] = _refusal(classes, operation, chunk.error)
    return refusals


def _refusal(classes: OpenClasses, operation: Operation, error: TableMapperError) -> str:
    """Return why an entity of another program cannot be in what is maintained from it."""
    if not isinstance(error, UniqueViolation) or error.holder is None:
        return str(error)
    index = classes.index(operation.model, str(error.index))
    entry = index.rows_of(operation.old, classes.stored(operation.model))[0]
    value = shown_values((index.model.partition, index.model.row), entry) or repr(entry[:2])
    return f"its value {value} of {index.label} is that of {tuple(error.holder)}"


def left_of(finding: CheckFinding, classes: OpenClasses, refusals: Mapping[Problem, str]) -> Problem:
    """Return a problem that is left, with what to do, or why it could not be repaired, where that is known."""
    problem = finding.problem
    if problem in refusals:
        return attrs.evolve(problem, detail=refusals[problem])
    if finding.of in classes.outer_aggregates:
        remedy = "others write this group all the time; call store.freeze(), and then repair"
    elif isinstance(finding.of, AggregateMaintenance):
        remedy = "tm.copy the store into another account, which makes it anew"
    elif finding.of is None and finding.remedy != RESTORE:  # (an account has no backup)
        remedy = finding.remedy
    else:
        remedy = "write the entity again, or merge the property into it: store.merge(key, …)"
    detail = problem.detail if "call store.sweep()" in problem.detail else f"{problem.detail}; {remedy}"
    return attrs.evolve(problem, detail=detail)


def _tried(commit: GroupTransaction) -> Effects[None]:
    """Send what may be refused, or lost."""

    def work() -> Effects[None]:
        yield commit

    yield from _if_possible(work())


def _if_possible(work: Effects[None]) -> Effects[None]:
    """Do what may be refused, or lost, or end too late, or be not readable: the next pass looks again."""
    try:
        yield from work
    except _FOR_NEXT_PASS:
        return
    except ErrorResponse as refusal:
        if refusal.status not in (404, 409, 412) or refusal.code == "TableNotFound":
            raise
