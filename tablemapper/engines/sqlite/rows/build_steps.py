"""The batches and slices of a job: each adds the next entities, or the next groups, to its targets in a transaction."""

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
from .jobs import BUILDS, CURSOR, END, REACH, left, progress
from .maintenance_writer import collect, write_changes

_MOVE = f"UPDATE {BUILDS} SET pk = ?, rk = ?, done = done + ? WHERE name = ?"
_CHUNK = 256  # entities that are in memory at a time: those that live on are passed again by each search for cycles


def build_batch(sqlite: SqliteSchema, writer: Writer, job: BuildJob, most: int) -> BuildStep:
    """Add the next entities after a job's cursor, at most ``most``; the job ends with the last ones."""
    statements = sqlite.statements[job.model]
    pk, rk, *frontier = writer.get(CURSOR, (job.name,)) or (None, None, None, None)
    done, total = progress(writer.get, job.name)
    after, targets = () if pk is None else (pk, rk), left(job, frontier)
    sql = statements.scan_some(job.targets.places, after=bool(after))
    if pk is None:
        for aggregate in job.targets.aggregates:
            _empty_groups(sqlite, writer, aggregate)
    rows = writer.execute(f"{sql} LIMIT ?", (*after, most))
    changes, count = ChangeSet(), 0
    while chunk := list(islice(rows, _CHUNK)):
        changes.built(targets, chunk)
        count, after = count + len(chunk), chunk[-1][:2]
    groups = changes.group_count
    write_changes(sqlite, writer, changes)
    done += count
    if count < most:
        return _ended(writer, job, count, done)
    writer.execute(_MOVE, (*after, count, job.name))
    return BuildStep(job.model.name, count, done, total, groups=groups)


def build_slice(
    sqlite: SqliteSchema, writer: Writer, job: BuildJob, changes: ChangeSet, until: tuple[str, str] | None, done: int
) -> BuildStep:
    """Add all that the entities after a job's cursor contribute to the next groups after its frontier.

    Args:
        until: the key of the last one; None if there are no others: then the job ends.
        done: the entities that the job has read.
    """
    write_changes(sqlite, writer, changes)
    if until is None:
        return _ended(writer, job, 0, done)
    writer.execute(REACH, (job.name, *until))
    return BuildStep(job.model.name, 0, done, done)


def _ended(writer: Writer, job: BuildJob, count: int, done: int) -> BuildStep:
    writer.execute(END, (job.name,))
    return BuildStep(job.model.name, count, done, done, tuple(sorted(job.labels)))


def _empty_groups(sqlite: SqliteSchema, writer: Writer, aggregate: AggregateMaintenance) -> None:
    """Empty the groups of an aggregate before it is built, but for their ``_ever`` measures."""
    model, slots = aggregate.model, aggregate.aggregate
    if not slots.keeps_empty:
        return
    statements = sqlite.statements[model]
    stored: list[Row] = writer.execute(statements.scan_state).fetchall()
    emptied: list[Row] = []
    for row in stored:
        state = slots.empty()
        with suppress(CorruptStore):  # the ``_ever`` measures of a damaged group are lost
            for number, value in enumerate(slots.unpack(row[-1])):
                if number and slots.slots[number - 1].lasting:
                    state[number] = value
        emptied.append((*aggregate.row(row[0], row[1], writer.timestamp, state), slots.pack(state)))
    writer.executemany(statements.put, emptied)
    changes = ChangeSet()
    collect(sqlite, writer, model, changes, added=[row[:-1] for row in emptied])
    write_changes(sqlite, writer, changes)


def violations(
    sqlite: SqliteSchema, read: Callable[..., list[tuple[str, ...]]], most: int
) -> tuple[DuplicateValue, ...]:
    """Return the duplicates of unique indexes, at most ``most``."""
    duplicates: list[DuplicateValue] = []
    for index in sqlite.contested:
        by_value = holders(sqlite, index, read, most - len(duplicates))
        duplicates += [DuplicateValue(index.label, value, tuple(keys)) for value, keys in by_value.items()]
    return tuple(duplicates)
