"""The repair of a file: what is maintained becomes what the entities say, beside all who read and write.

What is wrong is found in one state of the store, and made right in transactions of a few rows. What an index should hold of an
entity is computed anew in the transaction that writes it. What a group should hold is not, since its entities may be many. But
each write adds the same to a group as to what its entities add up to, so the difference of the two stays what it was found to
be, and that is what is added. Two repairs at a time would both add it: the one that has begun first stops.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Self, TypeAlias

import attrs

from ....errors import CorruptStore, TableMapperError
from ....schema.check import Check, Finding, Problem, same
from ....schema.groups import Delta, State
from ....schema.maintenance import AggregateMaintenance, IndexMaintenance, IndexRow
from ....schema.model import Model
from ....schema.rows import DAMAGE, Row
from ...protocol import Note
from ..file.file import File
from ..file.writer import Writer
from ..rows.check import Rows
from ..rows.contested import FORGET, delete_contested, put_contested
from ..rows.jobs import owed
from ..rows.maintained import seek_value
from ..sql.catalogue import READ_NOTE, write_note
from ..sql.schema import SqliteSchema
from ..sql.tables import EntityTable, quoted

__all__ = ["Repair"]

_MANY = (
    10_000  # problems of an index or an aggregate above which it is built anew, if more than 1 in 100 entities have one
)
_CHUNK = 100  # rows of indexes, or groups, that are made right in a transaction
_NOTE = "repair"  # under which the repair that has begun last notes its token
_UNREADABLE: tuple[type[Exception], ...] = (TableMapperError, *DAMAGE)
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
    """Whether its state is; else nobody can write to the group."""
    correction: Delta
    values: list[tuple[int, Any, Any, int]]
    """Slot, value, how often it is counted, and how often it is there."""


@attrs.frozen(eq=False)
class _Large:
    """Large values of no entity."""

    table: EntityTable
    problems: list[Problem]


Fix: TypeAlias = "_Entry | _Group | _Large"


class Repair:
    """One repair of a file; for ``with``.

    Attributes:
        repaired: what was made right.
    """

    def __init__(self, file: File) -> None:
        self.repaired: dict[Problem, None] = {}
        self._file = file
        self._token = f'"{secrets.token_hex(8)}"'
        self._hopeless: dict[Problem, str] = {}

    # ------------------------------------------------------------------------------------------ one at a time

    def __enter__(self) -> Self:
        """Stop a repair that has begun before: what is found from now on is this one's."""
        self._note(lambda held: Note(_NOTE, held, self._token))
        return self

    def __exit__(self, *_: object) -> None:
        self._note(lambda held: Note(_NOTE, held, None if held == self._token else held))

    def _note(self, change: Callable[[str | None], Note]) -> None:
        def apply(writer: Writer) -> None:
            (held,) = writer.get(READ_NOTE, (_NOTE,)) or (None,)
            note = change(held)
            if note.old != note.new:
                writer.proof = write_note(writer, note)

        self._file.write(apply)

    # ------------------------------------------------------------------------------------------ what to do

    def plan(self, sqlite: SqliteSchema, check: Check, findings: Iterable[Finding], rows: Rows) -> list[Fix]:
        """Return what to do about findings, within the state of the store that they are of."""
        fixes: list[Fix] = []
        groups: dict[tuple[AggregateMaintenance, tuple[Any, ...]], list[Problem]] = {}
        for finding in findings:
            problem, of = finding.problem, finding.of
            if problem in self._hopeless:
                continue
            if isinstance(of, IndexMaintenance):
                fixes.append(_Entry(of, [problem]))
            elif isinstance(of, EntityTable):
                fixes.append(_Large(of, [problem]))
            elif isinstance(of, AggregateMaintenance):
                groups.setdefault((of, problem.key[:2]), []).append(problem)
        fixes += [_group(sqlite, check, *of, problems, rows) for of, problems in groups.items()]
        return fixes

    def to_build_anew(
        self, sqlite: SqliteSchema, check: Check, findings: Iterable[Finding]
    ) -> dict[str, list[Problem]]:
        """Return the indexes and aggregates, by label, of which so much is wrong that they are built anew sooner."""
        problems: dict[str, list[Problem]] = {}
        for finding in findings:
            if (label := _built_anew(sqlite, finding.of)) is not None:
                problems.setdefault(label, []).append(finding.problem)
        most = max(_MANY, check.entity_count // 100)
        return {label: found for label, found in problems.items() if len(found) > most}

    def left(self, findings: Iterable[Finding], *, untouched: bool) -> Iterator[Problem]:
        """Yield what is wrong all the same, each with what can be done; ``untouched``: the file itself is damaged."""
        again = "restore a backup" if untouched else "it changed while it was repaired: call repair() again"
        for finding in findings:
            problem = finding.problem
            why = self._hopeless.get(problem) or (finding.remedy if finding.of is None else again)
            yield attrs.evolve(problem, detail=f"{problem.detail}; {why}")

    def run(self, sqlite: SqliteSchema, fixes: Iterable[Fix]) -> None:
        """Make right what can be.

        Raises:
            OtherGeneration: the catalogue is not that of the models any more.
        """
        rest = iter(fixes)
        while some := list(islice(rest, _CHUNK)):
            outcomes, _, _ = self._file.write_alone(partial(self._apply, sqlite, some), generation=sqlite.generation)
            for fix, outcome in zip(some, outcomes, strict=True):
                if outcome is None:
                    self.repaired.update(dict.fromkeys(fix.problems))
                elif outcome:
                    self._hopeless.update(dict.fromkeys(fix.problems, outcome))

    def _apply(self, sqlite: SqliteSchema, fixes: list[Fix], writer: Writer) -> list[str | None]:
        """Make things right; return of each why it cannot be, "" if that can be another time, None if it is."""
        tables = _Tables(sqlite, writer)
        superseded = writer.get(READ_NOTE, (_NOTE,)) != (self._token,)
        outcomes: list[str | None] = []
        for fix in fixes:
            writer.execute("SAVEPOINT fix")
            try:
                outcome = _SUPERSEDED if superseded and not isinstance(fix, _Entry) else tables.fix(fix)
            except _UNREADABLE:
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
        self._passed = {
            index: passed
            for model in sqlite.jobs
            for part, passed in owed(sqlite, writer.get, model)
            for index in part.indexes
            if passed is not None
        }

    def fix(self, fix: Fix) -> str | None:
        """Make one thing right; return why it cannot be."""
        if isinstance(fix, _Entry):
            return self._fix_entry(fix.index, fix.key)
        if isinstance(fix, _Group):
            return self._fix_group(fix)
        self._writer.execute(f"DELETE FROM {quoted(fix.table.big_name)} WHERE id = ?", fix.problems[0].key)
        return None

    def _fix_entry(self, index: IndexMaintenance, key: tuple[Any, ...]) -> str | None:
        table, get, execute = self._sqlite.indexes[index.model], self._writer.get, self._writer.execute
        expected = self._expected(index, key[2:4])
        if expected is None:
            return f"{index.owner.name} {key[2:4]} cannot be read: restore a backup"
        wanted = next((one for one in expected if one[:4] == key), None)
        contested = index in self._sqlite.contested
        if contested:
            execute(FORGET, (index.label, *key))
        if wanted is None:
            if contested and get(table.get, key) is not None:
                delete_contested(self._sqlite, index, self._writer, [key])  # the next holder moves up
            else:
                execute(table.drop, key)
            return None
        holder = get(table.holder, key[:2]) if index.model.unique else None
        if holder is not None and holder != key[2:4]:
            theirs = self._expected(index, holder)
            if theirs is None or any(one[:2] == key[:2] for one in theirs):
                if contested:
                    put_contested(index, table, self._writer, [wanted])
                    return None
                return f"{index.owner.name} {holder} has the same value: change that one, then repair again"
        execute(table.put, wanted)
        return None

    def _expected(self, index: IndexMaintenance, key: tuple[Any, ...]) -> list[IndexRow] | None:
        """Return the rows that an entity or a group should have in an index; None if nobody knows them."""
        if index in self._passed and not self._passed[index](key):
            return []  # it is not built so far
        statements = self._sqlite.statements_of(index)
        return index.rows_of(self._writer.get(statements.get, key), statements.model)

    def _fix_group(self, fix: _Group) -> str | None:
        aggregate, key, slots = fix.aggregate, fix.key, fix.aggregate.aggregate
        model, get, execute = aggregate.model, self._writer.get, self._writer.execute
        statements, values = self._sqlite.statements[model], self._sqlite.values.get(model)
        stored = get(statements.get_state, key)
        before = slots.unpack(stored[0]) if stored is not None and fix.readable else None
        state = slots.combine(before, fix.correction, _no_seek)
        if values is not None:
            for slot, value, counted, there in fix.values:
                place = (*key, slot, value)
                if counted.__class__ is not int:
                    execute(values.drop, place)
                    counted = 0
                execute(values.count, (*place, there - counted))
                execute(values.forget, place)
            if state is not None:
                slots.settle(state, partial(seek_value, self._writer, values, key))
        old = get(statements.get, key)
        owner = self._sqlite.owners.get(model.name)
        owned = None if owner is None else get(self._sqlite.statements[owner].get, key)
        new = None if state is None else self._put_group(aggregate, key, state, old)
        if new is None:
            execute(f'DELETE FROM {quoted(statements.table.name)} WHERE "PartitionKey" = ? AND "RowKey" = ?', key)
        self._follow(model, key, old, new)
        if owner is not None and owned is not None:
            self._follow(owner, key, owned, get(self._sqlite.statements[owner].get, key))
        return None

    def _follow(self, model: Model, key: tuple[Any, ...], *rows: Row | None) -> None:
        """Make right the rows that a group, or an entity with maintained fields, had in indexes, and those that it has."""
        whole = self._sqlite.statements[model].model
        for maintenance, passed in owed(self._sqlite, self._writer.get, model):
            for index in maintenance.indexes if passed is None or passed(key) else ():
                for row in rows:
                    for entry in index.rows_of(row, whole) or ():
                        self._fix_entry(index, entry[:4])

    def _put_group(self, aggregate: AggregateMaintenance, key: tuple[Any, ...], state: State, old: Row | None) -> Row:
        slots, statements = aggregate.aggregate, self._sqlite.statements[aggregate.model]
        packed = slots.pack(state)
        slots.unpack(packed)  # raises if it cannot be what entities add up to
        row = aggregate.row(key[0], key[1], self._writer.timestamp, state)
        if old is not None and old[2].__class__ is int and same(row[3:], old[3 : len(row)]):
            row = old[: len(row)]  # what is shown did not change, so neither does its ETag
        self._writer.execute(statements.put, (*row, packed))
        return row


def _built_anew(sqlite: SqliteSchema, of: object) -> str | None:
    """Return the label of an index or an aggregate that can be built anew; an index on an aggregate is built with that."""
    if isinstance(of, IndexMaintenance) and of.owner.aggregate is None:
        return of.label
    name = of.owner.name if isinstance(of, IndexMaintenance) else ""
    name = of.model.name if isinstance(of, AggregateMaintenance) else name
    for model in sqlite.models:
        if model.name == name and model.aggregate is not None:
            # (What was once the most extreme is known from nothing else.)
            special = model.aggregate.keeps_empty or model.name in sqlite.owners
            return None if special or len(sqlite.table_of(model).types) > 1 else name
    return None


def _group(
    sqlite: SqliteSchema,
    check: Check,
    aggregate: AggregateMaintenance,
    key: tuple[Any, ...],
    problems: list[Problem],
    rows: Rows,
) -> _Group:
    """Return what to add to a group, within the state of the store that the check is of."""
    slots, live = aggregate.aggregate, check.live(aggregate, key)
    stored = next(rows(sqlite.statements[aggregate.model].get_state, key), None)
    state, readable = None, True
    try:
        state = None if stored is None else slots.unpack(stored[0])
    except CorruptStore:
        readable = False
    values = sqlite.values.get(aggregate.model)
    counted = {} if values is None else {(slot, value): n for slot, value, n in rows(values.of_group, key)}
    wanted = {(slot, value): n for slot in slots.counted_slots for value, n in live[slot + 1].items()}
    differing = [
        (place[0], place[1], counted.get(place, 0), wanted.get(place, 0))
        for place in dict.fromkeys((*counted, *wanted))
        if place not in counted or place not in wanted or counted[place] != wanted[place]
    ]
    return _Group(aggregate, key, problems, readable, slots.correction(live, state), differing)


def _no_seek(slot: int, end: Any) -> Any:
    raise AssertionError("extremes are settled afterwards")
