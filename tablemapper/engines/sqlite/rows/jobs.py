"""Jobs and copies: what a write must do for the indexes and aggregates that are being built, and for a migration that copies.

One invariant holds at each commit: an index or aggregate that is being built has the rows of exactly the entities up to the
cursor of its job. A batch adds the entities after the cursor, in the order of their keys, and moves the cursor. A write maintains
the index for an entity up to the cursor, and not for one after it. SQLite has one writer at a time, which reads the cursor in its
own transaction. A copy has a cursor, too. Only its migration knows the conversion, so a write queues the keys up to the cursor.
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
# The cursor of a job that has built nothing is NULL, which is no key ("" is one).
CURSOR = f"SELECT pk, rk FROM {BUILDS} WHERE name = ?"

QUEUE = "tablemapper_queue"
LEDGER = "tablemapper_ledger"
ENQUEUE = f"INSERT INTO {QUEUE} VALUES(?, ?, ?) ON CONFLICT DO NOTHING"
_COPIED = f"SELECT pk, rk FROM {COPIES} WHERE id = ?"

Get: TypeAlias = Callable[[str, Sequence[Any]], Any]
"""A function that returns the first row of a statement, or None."""
Passed: TypeAlias = Callable[[Sequence[Any]], bool]
"""A function that returns whether a cursor has passed a row, by the row's first two values."""


def owed(sqlite: SqliteSchema, get: Get, model: Model) -> Sequence[tuple[Maintenance, Passed | None]]:
    """Return the maintenance that a write of a class owes: for each part, which entities it concerns; None: all."""
    of_all = (sqlite.maintenance[model], None)
    return (of_all, *_building(sqlite.jobs[model], get)) if model in sqlite.jobs else (of_all,)


def _building(jobs: Iterable[Job], get: Get) -> Iterator[tuple[Maintenance, Passed]]:
    for job in jobs:
        cursor = get(CURSOR, (job.name,))
        if cursor is not None and cursor[0] is not None:
            yield job.targets, passed_by(*cursor)


def queue(sqlite: SqliteSchema, writer: Writer, model: Model, keys: Iterable[Sequence[Any]]) -> None:
    """Queue the entities that changed after a migration copied them.

    Args:
        sqlite: the schema.
        writer: the transaction that changes them.
        model: the class.
        keys: the entities: keys, or rows that begin with them.
    """
    for copy in sqlite.copies.get(model, ()):
        cursor = writer.get(_COPIED, (copy.id,))
        if cursor is not None and cursor[0] is not None:
            passed = passed_by(*cursor)
            if behind := [(copy.id, *key[:2]) for key in keys if passed(key)]:
                writer.executemany(ENQUEUE, behind)


def passed_by(pk: Any, rk: Any) -> Passed:
    """Return the function that tells whether a cursor has passed a row."""
    if not (isinstance(pk, str) and isinstance(rk, str)):
        raise changed("cursor", f"{pk!r} {rk!r}")
    return lambda row: row[0] < pk or (row[0] == pk and row[1] <= rk)
