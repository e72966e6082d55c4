"""Jobs and copies: what a write must do for the indexes and aggregates that are built, and for a migration that copies.

One invariant holds at each commit: an index that is being built has the rows of exactly the entities up to the cursor
of its job. A group of an aggregate that is being built has what these entities contribute; a group up to the frontier
of the job, by its own key, has what all entities contribute. A batch adds the entities after the cursor, in the order
of their keys, and moves the cursor. A slice adds the groups after the frontier, in the order of theirs, and moves the
frontier: see `group_build`. A write maintains everything for an entity up to the cursor, and for one after it the groups up
to the frontier. SQLite has one writer at a time, which reads both in its own transaction.

A copy has a cursor, too. Only its migration knows the conversion, so a write queues the keys up to the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import attrs

from ....schema.aggregate_model import Delta
from ....schema.maintenance import AggregateMaintenance, Groups, Maintenance
from ....schema.model import Model
from ....schema.rows import Row
from ..sql.catalogue_table import COPIES, changed
from ..sql.schema import BuildJob, SqliteSchema
from .duplicate_values import CREATE_VIOLATIONS, VIOLATIONS

BUILDS = "tablemapper_builds"
CREATE_JOBS = {
    BUILDS: f"CREATE TABLE {BUILDS}(name PRIMARY KEY, class, targets, pk, rk, done, total, since) WITHOUT ROWID",
    VIOLATIONS: CREATE_VIOLATIONS,
}
# The cursor of a job that has built nothing is NULL, which is no key ("" is one). The frontier has a row of its own.
_FRONTIER = "|| ' groups'"
_OF_FRONTIER = f"FROM {BUILDS} WHERE name = ?1 {_FRONTIER}"
# (Each write beside a build reads this. A join of the two rows takes 4 µs, subqueries 1.2.)
CURSOR = f"SELECT pk, rk, (SELECT pk {_OF_FRONTIER}), (SELECT rk {_OF_FRONTIER}) FROM {BUILDS} WHERE name = ?1"
_PROGRESS = f"SELECT done, total FROM {BUILDS} WHERE name = ?"
REACH = f"INSERT OR REPLACE INTO {BUILDS}(name, pk, rk, done, total) VALUES(? {_FRONTIER}, ?, ?, 0, 0)"
END = f"DELETE FROM {BUILDS} WHERE name IN (?1, ?1 {_FRONTIER})"

QUEUE = "tablemapper_queue"
LEDGER = "tablemapper_ledger"
ENQUEUE = f"INSERT INTO {QUEUE} VALUES(?, ?, ?) ON CONFLICT DO NOTHING"
_COPIED = f"SELECT pk, rk FROM {COPIES} WHERE id = ?"

Get: TypeAlias = Callable[[str, Sequence[Any]], Any]
"""A function that returns the first row of a statement, or None."""
Passed: TypeAlias = Callable[[Sequence[Any]], bool]
"""A function that returns whether a cursor has passed a row, by the row's first two values."""


def duties(sqlite: SqliteSchema, get: Get, model: Model) -> Sequence[tuple[Maintenance, Passed | None]]:
    """Return the maintenance that a write of a class owes: for each part, which entities it concerns; None: all."""
    of_all = (sqlite.maintenance[model], None)
    return (of_all, *_building(sqlite.jobs[model], get)) if model in sqlite.jobs else (of_all,)


def _building(jobs: Iterable[BuildJob], get: Get) -> Iterator[tuple[Maintenance, Passed]]:
    for job in jobs:
        cursor = get(CURSOR, (job.name,))
        if cursor is not None and cursor[0] is not None:
            passed = passed_by(*cursor[:2])
            yield job.targets, passed
            if cursor[2] is not None:
                yield _of_groups(job.targets, passed_by(*cursor[2:4])), _inverted(passed)


def left(job: BuildJob, frontier: Sequence[Any]) -> Maintenance:
    """Return what a job has to add of the entities after its cursor."""
    return job.targets if frontier[0] is None else _of_groups(job.targets, _inverted(passed_by(*frontier)))


def progress(get: Get, name: str) -> tuple[int, int]:
    """Return how many entities a job has read, and of how many."""
    done, total = get(_PROGRESS, (name,)) or (0, 0)
    if not (isinstance(done, int) and isinstance(total, int)):
        raise changed("progress", name)
    return done, total


def copied(get: Get, copy: str) -> Passed | None:
    """Return the function that tells whether a copy has passed a row; None if it has passed none."""
    cursor = get(_COPIED, (copy,))
    return None if cursor is None or cursor[0] is None else passed_by(*cursor)


def passed_by(pk: Any, rk: Any) -> Passed:
    """Return the function that tells whether a cursor has passed a row."""
    if not (isinstance(pk, str) and isinstance(rk, str)):
        raise changed("cursor", f"{pk!r} {rk!r}")

    def passed(row: Sequence[Any]) -> bool:
        try:
            before: bool = row[0] < pk or (row[0] == pk and row[1] <= rk)
        except TypeError:  # a key that is no text: the row is damaged, and nothing is built from it
            return False
        return before

    return passed


def _inverted(passed: Passed) -> Passed:
    return lambda row: not passed(row)


def _of_groups(maintenance: Maintenance, has: Passed) -> Maintenance:
    """Return the maintenance of some groups of aggregates, by the keys of the groups."""
    parts = []
    for whole in maintenance.aggregates:
        collect = partial(_collect_some, whole, has)
        parts.append(
            _OfGroups(
                whole.model,
                whole.aggregate,
                collect,
                whole.key,
                whole.row,
                whole.advance,
                whole.places,
                whole.keys,
                whole,
            )
        )
    return Maintenance((), tuple(parts), maintenance.whole)


@attrs.frozen(eq=False)
class _OfGroups(AggregateMaintenance):
    """The maintenance of some groups. It is equal to that of all: so a change set has one change of each group."""

    whole: AggregateMaintenance

    def __eq__(self, other: object) -> bool:
        return self.whole is getattr(other, "whole", other)

    def __hash__(self) -> int:
        return hash(self.whole)


def _collect_some(whole: AggregateMaintenance, has: Passed, rows: Iterable[Row], groups: Groups, sign: int) -> None:
    whole.collect(rows, _Met(groups, lambda group: has(whole.key(group))), sign)


class _Met(dict[Any, Delta]):
    """The changes of all groups that entities are in; those of some are in another dict, too, which outlives it."""

    def __init__(self, groups: Groups, has: Callable[[Any], bool]) -> None:
        super().__init__()
        self._groups = groups
        self._has = has

    def get(self, group: Any, default: Any = None) -> Any:
        if group not in self and self._has(group) and group in self._groups:
            super().__setitem__(group, self._groups[group])
        return super().get(group)

    def __setitem__(self, group: Any, delta: Delta) -> None:
        super().__setitem__(group, delta)
        if self._has(group):
            self._groups[group] = delta
