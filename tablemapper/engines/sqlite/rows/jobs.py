"""Jobs: indexes and aggregates that are built beside writers, copies of entities, and what each write owes to them.

One invariant holds at each commit: what a job builds is exactly what the entities up to its cursor make it. A batch adds
the entities behind the cursor, in the order of their keys, and moves it. A write adds what it changes of an entity up to the
cursor, and nothing of one behind it. SQLite has one writer at a time, which reads the cursor in its own transaction. A copy
has a cursor too; what it makes of an entity only its migration knows, so a write just queues the keys that it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from ....schema.maintenance import Maintenance
from ....schema.model import Model
from ..file.writer import Writer
from ..sql.catalogue import COPIES, changed
from ..sql.schema import Job, SqliteSchema
from .contested import CREATE_VIOLATIONS, VIOLATIONS

__all__ = ["BUILDS", "CREATE_JOBS", "CURSOR", "ENQUEUE", "LEDGER", "QUEUE", "Passed", "owed", "passed_by", "queue"]

BUILDS = "tablemapper_builds"
CREATE_JOBS = {
    BUILDS: f"CREATE TABLE {BUILDS}(name PRIMARY KEY, class, targets, pk, rk, done, total, since) WITHOUT ROWID",
    VIOLATIONS: CREATE_VIOLATIONS,
}
# No key is NULL: a job that has built nothing has that for its cursor ("" is a key).
CURSOR = f"SELECT pk, rk FROM {BUILDS} WHERE name = ?"

QUEUE = "tablemapper_queue"
LEDGER = "tablemapper_ledger"
ENQUEUE = f"INSERT INTO {QUEUE} VALUES(?, ?, ?) ON CONFLICT DO NOTHING"
_COPIED = f"SELECT pk, rk FROM {COPIES} WHERE id = ?"

Get: TypeAlias = Callable[[str, Sequence[Any]], Any]
"""Returns the first row of a statement, or None."""
Passed: TypeAlias = Callable[[Sequence[Any]], bool]
"""Whether a cursor has passed a row, by its first two values."""


def owed(sqlite: SqliteSchema, get: Get, model: Model) -> Sequence[tuple[Maintenance, Passed | None]]:
    """Return what a write of a class has to maintain, each with the entities that it is maintained for; None: for all."""
    whole = (sqlite.maintenance[model], None)
    return (whole, *_building(sqlite.jobs[model], get)) if model in sqlite.jobs else (whole,)


def _building(jobs: Iterable[Job], get: Get) -> Iterator[tuple[Maintenance, Passed]]:
    for job in jobs:
        cursor = get(CURSOR, (job.name,))
        if cursor is not None and cursor[0] is not None:
            yield job.targets, passed_by(*cursor)


def queue(sqlite: SqliteSchema, writer: Writer, model: Model, keys: Iterable[Sequence[Any]]) -> None:
    """Note for the migration that copies a class which entities changed since they were copied.

    Args:
        sqlite: the schema.
        writer: the transaction that changes them.
        model: the class.
        keys: of the entities: the first two values of each.
    """
    for copy in sqlite.copies.get(model, ()):
        cursor = writer.get(_COPIED, (copy.id,))
        if cursor is not None and cursor[0] is not None:
            passed = passed_by(*cursor)
            if behind := [(copy.id, *key[:2]) for key in keys if passed(key)]:
                writer.executemany(ENQUEUE, behind)


def passed_by(pk: Any, rk: Any) -> Passed:
    """Return the test of a cursor."""
    if not (isinstance(pk, str) and isinstance(rk, str)):
        raise changed("cursor", f"{pk!r} {rk!r}")
    return lambda row: row[0] < pk or (row[0] == pk and row[1] <= rk)
