"""The batches of a job: each adds the next entities to what is being built, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Literal

from msgspec.structs import replace

from ....errors import CorruptStore
from ....schema.forms import StateForm
from ....schema.maintenance import AggregateMaintenance, ChangeSet
from ....schema.rows import Row
from ...protocol import Built, Violation
from ..file.writer import Writer
from ..sql.catalogue import read_states, write_states
from ..sql.schema import Job, SqliteSchema
from .contested import holders, violated
from .jobs import BUILDS, owed
from .maintained import write_changes

__all__ = ["PROGRESS", "build_batch", "settle", "states_after", "violations"]

_MOVE = f"UPDATE {BUILDS} SET pk = ?, rk = ?, done = done + ? WHERE name = ?"
_END = f"DELETE FROM {BUILDS} WHERE name = ?"
_STATE = f"SELECT pk, rk, done, total FROM {BUILDS} WHERE name = ?"
_CHUNK = 256  # entities that are in memory at a time: those that live on are passed again by each search for cycles
PROGRESS = f"SELECT done, total FROM {BUILDS} WHERE name = ?"


def build_batch(sqlite: SqliteSchema, writer: Writer, job: Job, most: int) -> Built:
    """Build the next entities behind a job's cursor, at most ``most``; the job ends with the last ones."""
    statements = sqlite.statements[job.model]
    pk, rk, done, total = writer.get(_STATE, (job.name,)) or (None, None, 0, 0)
    after = () if pk is None else (pk, rk)
    sql = statements.scan_some(job.targets.places, after=bool(after))
    if pk is None:
        for aggregate in job.targets.aggregates:
            _empty_groups(sqlite, writer, aggregate)
    rows = writer.execute(f"{sql} LIMIT ?", (*after, most))
    changes, count = ChangeSet(), 0
    while chunk := list(islice(rows, _CHUNK)):
        changes.added(job.targets, chunk)
        count, after = count + len(chunk), chunk[-1][:2]
    write_changes(sqlite, writer, changes)
    done += count
    if count < most:
        writer.execute(_END, (job.name,))
        return Built(job.model.name, count, done, done, tuple(sorted(job.labels)))
    writer.execute(_MOVE, (*after, count, job.name))
    return Built(job.model.name, count, done, total)


def _empty_groups(sqlite: SqliteSchema, writer: Writer, aggregate: AggregateMaintenance) -> None:
    """Take everything out of groups that are there before a build but what their ``_ever`` measures hold."""
    model, slots = aggregate.model, aggregate.aggregate
    if not slots.keeps_empty:
        return
    statements = sqlite.statements[model]
    stored: list[Row] = writer.execute(statements.scan_state).fetchall()
    emptied: list[Row] = []
    for row in stored:
        state = slots.empty()
        with suppress(CorruptStore):  # nobody knows what it held
            for number, held in enumerate(slots.unpack(row[-1])):
                if number and slots.slots[number - 1].lasting:
                    state[number] = held
        emptied.append((*aggregate.row(row[0], row[1], writer.timestamp, state), slots.pack(state)))
    writer.executemany(statements.put, emptied)
    changes = ChangeSet()
    for maintenance, passed in owed(sqlite, writer.get, model):
        new = [row[:-1] for row in emptied]
        changes.added(maintenance, new if passed is None else list(filter(passed, new)))
    write_changes(sqlite, writer, changes)


def states_after(writer: Writer, states: dict[str, StateForm], labels: Iterable[str]) -> dict[str, StateForm]:
    """Return the states once some labels are built: ready, or violated if a value is held twice."""
    after: dict[str, StateForm] = {}
    for label in labels:
        state: Literal["violated", "ready"] = "violated" if violated(writer, label) else "ready"
        after[label] = replace(states[label], state=state, since=writer.timestamp, by=None)
    return states | after


def settle(sqlite: SqliteSchema, writer: Writer) -> None:
    """Make indexes ready in which no value is held twice any more."""
    kept = [index.label for index, noted in sqlite.contested.items() if not noted]
    if mended := [label for label in kept if not violated(writer, label)]:
        write_states(writer, states_after(writer, read_states(writer), mended))


def violations(sqlite: SqliteSchema, read: Callable[..., list[tuple[str, ...]]], most: int) -> tuple[Violation, ...]:
    """Return values that are held twice."""
    found: list[Violation] = []
    for index in sqlite.contested:
        held = holders(sqlite, index, read, most - len(found))
        found += [Violation(index.label, value, tuple(keys)) for value, keys in held.items()]
    return tuple(found)
