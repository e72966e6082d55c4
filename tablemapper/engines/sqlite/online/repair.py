"""The repair of a file: index rows and groups are corrected from the entities, while other programs read and write.

A check finds the problems in one state of the store, and transactions of a few rows correct them. The transaction that
corrects an index row computes it anew from the entity. A group may have too many entities for that. But every write
changes the group and the true totals of its entities by the same amount, so their difference stays what the check
found: the correction, which is added to the group. Two repairs at a time would both add it, so a repair stops when
another one begins.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Self, TypeAlias

import attrs

from ....catalogue.tables import Table
from ....errors import CorruptStore
from ....schema.aggregate_model import Delta
from ....schema.maintenance import AggregateMaintenance, IndexMaintenance, IndexRow
from ....schema.model import Model
from ....schema.rows import UNREADABLE, Row, same_rows
from ....schema.slots import State
from ...check import CheckFinding, ConsistencyCheck, Problem
from ...protocol import Note
from ..file.database import File
from ..file.writer import Writer
from ..rows.check import Rows
from ..rows.duplicate_values import FORGET, delete_contested, put_contested
from ..rows.jobs import duties
from ..rows.maintenance_writer import seek_value
from ..sql.catalogue_table import READ_NOTE, write_note
from ..sql.ddl import quoted
from ..sql.schema import SqliteSchema

# An index or an aggregate with more problems is built anew, if more than 1 in 100 entities have one.
_MANY = 10_000
_CHUNK = 100  # index rows, or groups, that are corrected in a transaction
_NOTE = "repair"  # the name under which a repair notes its token when it begins
_SUPERSEDED = "another repair() has begun since, and goes on with it"


@attrs.frozen(eq=False)
class _Entry:
    """A row of an index."""

    index: IndexMaintenance
    problems: list[Problem]

    @property
    def key(self) -> tuple[Any, ...]:
        return self.problems[0].key


@attrs.frozen(eq=False)
class _Group:
    """A group of an aggregate."""

    aggregate: AggregateMaintenance
    key: tuple[Any, ...]
    problems: list[Problem]
    readable: bool
    """Whether its state can be read; else no program can write to the group."""
    correction: Delta
    values: list[tuple[int, Any, Any, int]]
    """Live values with a wrong count: slot, value, the stored count, the true count."""


@attrs.frozen(eq=False)
class _Large:
    """Large values that belong to no entity."""

    table: Table
    problems: list[Problem]


Fix: TypeAlias = "_Entry | _Group | _Large"


class Repair:
    """One repair of a file; for ``with``.

    Attributes:
        repaired: the problems that were corrected.
    """

    def __init__(self, file: File) -> None:
        self.repaired: dict[Problem, None] = {}
        self._file = file
        self._token = f'"{secrets.token_hex(8)}"'
        self._hopeless: dict[Problem, str] = {}

    # ------------------------------------------------------------------------------------------ one at a time

    def __enter__(self) -> Self:
        """Note this repair's token, which stops a repair that began earlier."""
        self._note(lambda token: Note(_NOTE, token, self._token))
        return self

    def __exit__(self, *_: object) -> None:
        self._note(lambda token: Note(_NOTE, token, None if token == self._token else token))

    def _note(self, change: Callable[[str | None], Note]) -> None:
        """Change the noted token."""

        def apply(writer: Writer) -> None:
            (token,) = writer.get(READ_NOTE, (_NOTE,)) or (None,)
            note = change(token)
            if note.old != note.new:
                writer.proof = write_note(writer, note)

        self._file.write(apply)

    # ------------------------------------------------------------------------------------------ all problems

    def plan(
        self, sqlite: SqliteSchema, check: ConsistencyCheck, findings: Iterable[CheckFinding], rows: Rows
    ) -> list[Fix]:
        """Return the fixes for the findings of a check; ``rows`` reads the state of the store that the check read."""
        fixes: list[Fix] = []
        groups: dict[tuple[AggregateMaintenance, tuple[Any, ...]], list[Problem]] = {}
        for finding in findings:
            problem, subject = finding.problem, finding.of
            if problem in self._hopeless:
                continue
            if isinstance(subject, IndexMaintenance):
                fixes.append(_Entry(subject, [problem]))
            elif isinstance(subject, Table):
                fixes.append(_Large(subject, [problem]))
            elif isinstance(subject, AggregateMaintenance):
                groups.setdefault((subject, problem.key[:2]), []).append(problem)
        fixes += [_group(sqlite, check, *group, problems, rows) for group, problems in groups.items()]
        return fixes

    def to_build_anew(
        self, sqlite: SqliteSchema, check: ConsistencyCheck, findings: Iterable[CheckFinding]
    ) -> dict[str, list[Problem]]:
        """Return the problems of each index and aggregate, by label, that is faster built anew than repaired."""
        problems: dict[str, list[Problem]] = {}
        for finding in findings:
            if (label := _label_to_build(sqlite, finding.of)) is not None:
                problems.setdefault(label, []).append(finding.problem)
        most = max(_MANY, check.entity_count // 100)
        return {label: label_problems for label, label_problems in problems.items() if len(label_problems) > most}

    def unresolved(self, findings: Iterable[CheckFinding], *, untouched: bool) -> Iterator[Problem]:
        """Yield the problems that are left, each with what to do; ``untouched``: the damaged file is as it was."""
        remedy = "restore a backup" if untouched else "it changed while it was repaired: call repair() again"
        for finding in findings:
            problem = finding.problem
            reason = self._hopeless.get(problem) or (finding.remedy if finding.of is None else remedy)
            yield attrs.evolve(problem, detail=f"{problem.detail}; {reason}")

    def run(self, sqlite: SqliteSchema, fixes: Iterable[Fix]) -> None:
        """Correct the problems, as far as possible.

        Raises:
            OtherGeneration: another process has changed the catalogue.
        """
        remaining = iter(fixes)
        while chunk := list(islice(remaining, _CHUNK)):
            outcomes, _, _ = self._file.write_alone(partial(self._apply, sqlite, chunk), generation=sqlite.generation)
            for fix, outcome in zip(chunk, outcomes, strict=True):
                if outcome is None:
                    self.repaired.update(dict.fromkeys(fix.problems))
                elif outcome:
                    self._hopeless.update(dict.fromkeys(fix.problems, outcome))

    def _apply(self, sqlite: SqliteSchema, fixes: list[Fix], writer: Writer) -> list[str | None]:
        """Apply fixes; return None for each that succeeded, why it never can, or "" if a later try may succeed."""
        tables = _Tables(sqlite, writer)
        superseded = writer.get(READ_NOTE, (_NOTE,)) != (self._token,)
        outcomes: list[str | None] = []
        for fix in fixes:
            writer.execute("SAVEPOINT fix")
            try:
                outcome = _SUPERSEDED if superseded and not isinstance(fix, _Entry) else tables.fix(fix)
            except UNREADABLE:
                outcome = ""
            if outcome is not None:
                writer.execute("ROLLBACK TO fix")
            writer.execute("RELEASE fix")
            outcomes.append(outcome)
        return outcomes


class _Tables:
    """The tables of a file, within one transaction."""

    def __init__(self, sqlite: SqliteSchema, writer: Writer) -> None:
        self._sqlite = sqlite
        self._writer = writer
        self._cursor_tests = {
            index: is_passed
            for model in sqlite.jobs
            for part, is_passed in duties(sqlite, writer.get, model)
            for index in part.indexes
            if is_passed is not None
        }

    def fix(self, fix: Fix) -> str | None:
        """Apply one fix; return why that is impossible, None if it succeeded."""
        if isinstance(fix, _Entry):
            return self._fix_entry(fix.index, fix.key)
        if isinstance(fix, _Group):
            return self._fix_group(fix)
        self._writer.execute(f"DELETE FROM {quoted(fix.table.big_name)} WHERE id = ?", fix.problems[0].key)
        return None

    def _fix_entry(self, index: IndexMaintenance, key: tuple[Any, ...]) -> str | None:
        table, get, execute = self._sqlite.indexes[index.model], self._writer.get, self._writer.execute
        expected = self._expected(index, key[2:4])
        row = next((row for row in expected if row[:4] == key), None)
        contested = index in self._sqlite.contested
        if contested:
            execute(FORGET, (index.label, *key))
        if row is None:
            if contested and get(table.get, key) is not None:
                delete_contested(self._sqlite, index, self._writer, [key])  # the next holder moves up
            else:
                execute(table.drop, key)
            return None
        holder = get(table.holder, key[:2]) if index.model.unique else None
        holder_rows = [] if holder is None or holder == key[2:4] else self._expected(index, holder)
        if any(holder_row[:2] == key[:2] for holder_row in holder_rows):
            if contested:
                put_contested(index, table, self._writer, [row])
                return None
            return f"{index.owner.name} {holder} has the same value: change that one, then repair again"
        execute(table.put, row)
        return None

    def _expected(self, index: IndexMaintenance, key: tuple[Any, ...]) -> list[IndexRow]:
        """Return the rows that an entity or a group should have in an index."""
        if index in self._cursor_tests and not self._cursor_tests[index](key):
            return []  # the build of the index has not come to it
        statements = self._sqlite.statements_of(index)
        return index.rows_of(self._writer.get(statements.get, key), statements.model)

    def _fix_group(self, fix: _Group) -> str | None:
        aggregate, key, slots = fix.aggregate, fix.key, fix.aggregate.aggregate
        model, get, execute = aggregate.model, self._writer.get, self._writer.execute
        statements, values = self._sqlite.statements[model], self._sqlite.values.get(model)
        stored_row = get(statements.get_state, key)
        state_before = slots.unpack(stored_row[0]) if stored_row is not None and fix.readable else None
        state = slots.combine(state_before, fix.correction, _no_seek)
        if values is not None:
            for slot, value, stored_count, true_count in fix.values:
                place = (*key, slot, value)
                if stored_count.__class__ is not int:
                    execute(values.drop, place)
                    stored_count = 0
                execute(values.count, (*place, true_count - stored_count))
                execute(values.forget, place)
            if state is not None:
                slots.settle(state, partial(seek_value, self._writer, values, key))
        old = get(statements.get, key)
        owner = self._sqlite.owners.get(model.name)
        owner_row = None if owner is None else get(self._sqlite.statements[owner].get, key)
        new = None if state is None else self._put_group(aggregate, key, state, old)
        if new is None:
            execute(f'DELETE FROM {quoted(statements.table.name)} WHERE "PartitionKey" = ? AND "RowKey" = ?', key)
        self._fix_index_rows(model, key, old, new)
        if owner is not None and owner_row is not None:
            self._fix_index_rows(owner, key, owner_row, get(self._sqlite.statements[owner].get, key))
        return None

    def _fix_index_rows(self, model: Model, key: tuple[Any, ...], *rows: Row | None) -> None:
        """Correct all index rows of some rows of one key: the old row of a group, and the new one."""
        stored_model = self._sqlite.statements[model].model
        for maintenance, is_passed in duties(self._sqlite, self._writer.get, model):
            for index in maintenance.indexes if is_passed is None or is_passed(key) else ():
                for row in rows:
                    for entry in index.rows_of(row, stored_model):
                        self._fix_entry(index, entry[:4])

    def _put_group(self, aggregate: AggregateMaintenance, key: tuple[Any, ...], state: State, old: Row | None) -> Row:
        slots, statements = aggregate.aggregate, self._sqlite.statements[aggregate.model]
        packed = slots.pack(state)
        slots.unpack(packed)  # raises if no entities can add up to it
        row = aggregate.row(key[0], key[1], self._writer.timestamp, state)
        if old is not None and old[2].__class__ is int and same_rows(row[3:], old[3 : len(row)]):
            row = old[: len(row)]  # the public values did not change, so neither does the ETag
        self._writer.execute(statements.put, (*row, packed))
        return row


def _label_to_build(sqlite: SqliteSchema, subject: object) -> str | None:
    """Return the label to build anew for an index or an aggregate; None if it cannot be built anew.

    An index over an aggregate is built with the aggregate.
    """
    if isinstance(subject, IndexMaintenance) and subject.owner.aggregate is None:
        return subject.label
    name = subject.owner.name if isinstance(subject, IndexMaintenance) else ""
    name = subject.model.name if isinstance(subject, AggregateMaintenance) else name
    for model in sqlite.models:
        if model.name == name and model.aggregate is not None:
            # (The entities do not tell an _ever measure: they may have been deleted.)
            special = model.aggregate.keeps_empty or model.name in sqlite.owners
            return None if special or len(sqlite.table_of(model).types) > 1 else name
    return None


def _group(
    sqlite: SqliteSchema,
    check: ConsistencyCheck,
    aggregate: AggregateMaintenance,
    key: tuple[Any, ...],
    problems: list[Problem],
    rows: Rows,
) -> _Group:
    """Return the fix of a group: the difference between its state and its entities, as the check read both."""
    slots, live = aggregate.aggregate, check.live(aggregate, key)
    stored_row = next(rows(sqlite.statements[aggregate.model].get_state, key), None)
    state, readable = None, True
    try:
        state = None if stored_row is None else slots.unpack(stored_row[0])
    except CorruptStore:
        readable = False
    values = sqlite.values.get(aggregate.model)
    stored_counts = {} if values is None else {(slot, value): n for slot, value, n in rows(values.of_group, key)}
    true_counts = {(slot, value): n for slot in slots.counted_slots for value, n in live[slot + 1].items()}
    differing = [
        (place[0], place[1], stored_counts.get(place, 0), true_counts.get(place, 0))
        for place in dict.fromkeys((*stored_counts, *true_counts))
        if place not in stored_counts or place not in true_counts or stored_counts[place] != true_counts[place]
    ]
    return _Group(aggregate, key, problems, readable, slots.correction(live, state), differing)


def _no_seek(slot: int, end: Any) -> Any:
    raise AssertionError("extremes are settled afterwards")
