"""Jobs and copies: what a write must do for the indexes and aggregates that are built, and for a migration that copies.

One invariant holds at each commit: what is being built has the rows, or the contributions, of exactly the entities up to
the cursor of its job. A batch adds the entities after the cursor, in the order of their keys, and moves the cursor. A write
maintains everything for an entity up to the cursor. SQLite has one writer at a time, which reads the cursor in its own
transaction.

A copy has a cursor, too. Only its migration knows the conversion, so a write queues the keys up to the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from ....schema.maintenance import Maintenance
from ....schema.model import Model
from ..sql.catalogue_table import COPIES, mismatch
from ..sql.schema import BuildJob, SqliteSchema
from .duplicate_values import CREATE_VIOLATIONS, VIOLATIONS

BUILDS = "tablemapper_builds"
CREATE_JOBS = {
    BUILDS: f"CREATE TABLE {BUILDS}(name PRIMARY KEY, class, targets, pk, rk, done, total, since) WITHOUT ROWID",
    VIOLATIONS: CREATE_VIOLATIONS,
}
# The cursor of a job that has built nothing is NULL, which is no key ("" is one).
CURSOR = f"SELECT pk, rk FROM {BUILDS} WHERE name = ?"
_PROGRESS = f"SELECT done, total FROM {BUILDS} WHERE name = ?"
END = f"DELETE FROM {BUILDS} WHERE name = ?"
FRONTIER = f"SELECT name FROM {BUILDS} WHERE name = ? || ' groups'"
"""Selects the row by which an earlier version built groups ahead of a cursor."""
RESTART = f"UPDATE {BUILDS} SET pk = NULL, rk = NULL, done = 0 WHERE name = ?"

QUEUE = "tablemapper_queue"
LEDGER = "tablemapper_ledger"
ENQUEUE = f"INSERT INTO {QUEUE} VALUES(?, ?, ?) ON CONFLICT DO NOTHING"
_COPIED = f"SELECT pk, rk FROM {COPIES} WHERE id = ?"

Get: TypeAlias = Callable[[str, Sequence[Any]], Any]
"""A function that returns the first row of a statement, or None."""
CursorTest: TypeAlias = Callable[[Sequence[Any]], bool]
"""A function that returns whether a cursor has passed a row, by the row's first two values."""


def duties(sqlite: SqliteSchema, get: Get, model: Model) -> Sequence[tuple[Maintenance, CursorTest | None]]:
    """Return the maintenance that a write of a class owes: for each part, which entities it concerns; None: all."""
    of_all = (sqlite.maintenance[model], None)
    return (of_all, *_building(sqlite.jobs[model], get)) if model in sqlite.jobs else (of_all,)


def _building(jobs: Iterable[BuildJob], get: Get) -> Iterator[tuple[Maintenance, CursorTest]]:
    for job in jobs:
        cursor = get(CURSOR, (job.name,))
        if cursor is not None and cursor[0] is not None:
            yield job.targets, passed_by(*cursor)


def progress(get: Get, name: str) -> tuple[int, int]:
    """Return how many entities a job has read, and of how many."""
    processed, total = get(_PROGRESS, (name,)) or (0, 0)
    if not (isinstance(processed, int) and isinstance(total, int)):
        raise mismatch("progress", name)
    return processed, total


def copied(get: Get, copy: str) -> CursorTest | None:
    """Return the function that tells whether a copy has passed a row; None if it has passed none."""
    cursor = get(_COPIED, (copy,))
    return None if cursor is None or cursor[0] is None else passed_by(*cursor)


def passed_by(pk: Any, rk: Any) -> CursorTest:
    """Return the function that tells whether a cursor has passed a row."""
    if not (isinstance(pk, str) and isinstance(rk, str)):
        raise mismatch("cursor", f"{pk!r} {rk!r}")

    def is_passed(row: Sequence[Any]) -> bool:
        try:
            is_behind: bool = row[0] < pk or (row[0] == pk and row[1] <= rk)
        except TypeError:  # a key that is no text: the row is damaged, and nothing is built from it
            return False
        return is_behind

    return is_passed
