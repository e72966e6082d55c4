"""The batches of a job: each adds the next entities to its targets, in a transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from ....errors import CorruptStore
from ....schema.maintenance import AggregateMaintenance, ChangeSet
from ....schema.rows import Row
from ...protocol import BuildStep, DuplicateValue
from ..file.writer import Writer
from ..sql.schema import BuildJob, SqliteSchema
from .duplicate_values import holders
from .jobs import BUILDS, CURSOR, END, FRONTIER, RESTART, progress
from .maintenance_writer import collect, write_changes

_MOVE = f"UPDATE {BUILDS} SET pk = ?, rk = ?, done = done + ? WHERE name = ?"
_CHUNK = 256  # entities that are in memory at a time: those that live on are passed again by each search for cycles


def build_batch(sqlite: SqliteSchema, writer: Writer, job: BuildJob, most: int) -> BuildStep:
    """Add the next entities after a job's cursor, at most ``most``; the job ends with the last ones."""
    statements = sqlite.statements[job.model]
    if (frontier := writer.get(FRONTIER, (job.name,))) is not None:
        _restart(sqlite, writer, job, frontier[0])
    pk, rk = writer.get(CURSOR, (job.name,)) or (None, None)
    processed, total = progress(writer.get, job.name)
    last_key = () if pk is None else (pk, rk)
    sql = statements.scan_some(job.targets.places, after=bool(last_key))
    if pk is None:
        for aggregate in job.targets.aggregates:
            _empty_groups(sqlite, writer, aggregate)
    rows = writer.execute(f"{sql} LIMIT ?", (*last_key, most))
    changes, count = ChangeSet(), 0
    while chunk := list(islice(rows, _CHUNK)):
        changes.built(job.targets, chunk)
        count, last_key = count + len(chunk), chunk[-1][:2]
    write_changes(sqlite, writer, changes)
    processed += count
    if count < most:
        writer.execute(END, (job.name,))
        return BuildStep(job.model.name, count, processed, processed, tuple(sorted(job.labels)))
    writer.execute(_MOVE, (*last_key, count, job.name))
    return BuildStep(job.model.name, count, processed, total)


def _restart(sqlite: SqliteSchema, writer: Writer, job: BuildJob, frontier: str) -> None:
    """Begin a job anew whose groups have more than the entities up to its cursor contribute."""
    writer.execute(END, (frontier,))
    writer.execute(RESTART, (job.name,))
    for aggregate in job.targets.aggregates:
        statements = sqlite.statements[aggregate.model]
        group_rows: list[Row] = writer.execute(statements.scan_state).fetchall()
        changes = ChangeSet()
        collect(sqlite, writer, aggregate.model, changes, deletes=[row[:-1] for row in group_rows])
        write_changes(sqlite, writer, changes)
        if not aggregate.aggregate.keeps_empty:
            writer.run(statements.delete, [row[:3] for row in group_rows])


def _empty_groups(sqlite: SqliteSchema, writer: Writer, aggregate: AggregateMaintenance) -> None:
    """Empty the groups of an aggregate before it is built, but for their ``_ever`` measures."""
    model, slots = aggregate.model, aggregate.aggregate
    if not slots.keeps_empty:
        return
    statements = sqlite.statements[model]
    group_rows: list[Row] = writer.execute(statements.scan_state).fetchall()
    emptied: list[Row] = []
    for row in group_rows:
        state = slots.empty()
        with suppress(CorruptStore):  # the ``_ever`` measures of a damaged group are lost
            for number, value in enumerate(slots.unpack(row[-1])):
                if number and slots.slots[number - 1].lasting:
                    state[number] = value
        emptied.append((*aggregate.row(row[0], row[1], writer.timestamp, state), slots.pack(state)))
    writer.executemany(statements.put, emptied)
    changes = ChangeSet()
    collect(sqlite, writer, model, changes, inserts=[row[:-1] for row in emptied])
    write_changes(sqlite, writer, changes)


def violations(
    sqlite: SqliteSchema, query: Callable[..., list[tuple[str, ...]]], most: int
) -> tuple[DuplicateValue, ...]:
    """Return the duplicates of unique indexes, at most ``most``."""
    duplicates: list[DuplicateValue] = []
    for index in sqlite.contested:
        by_value = holders(sqlite, index, query, most - len(duplicates))
        duplicates += [DuplicateValue(index.label, value, tuple(keys)) for value, keys in by_value.items()]
    return tuple(duplicates)
