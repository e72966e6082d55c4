"""``_ever`` measures of groups are made no less extreme than others were: those of the store that this one is a copy of."""

from __future__ import annotations

from typing import Any

from ...errors import StoreError
from ...schema.groups import Delta
from ...schema.maintenance import AggregateMaintenance, ChangeSet, Maintenance
from .known import local_key
from .outer.finishing import changed
from .tables.drive import Now, Work, delay, read
from .tables.names import BASE_ROW, BELOW
from .tables.rows import codec_of, included
from .tables.service import ETAG, PARTITION, ROW, Change, Commit, Entity, Get, Lost, Refused

__all__ = ["index_changes", "widened"]


def widened(
    aggregate: AggregateMaintenance, owed: Maintenance, key: tuple[str, str], delta: Delta, timeout: float
) -> Work[None]:
    """Add a delta of ``_ever`` measures to a group; it may be added many times.

    Args:
        aggregate: of the group.
        owed: the indexes on its groups, which lie in their partitions.
        key: of the group.
        delta: what it adds.
        timeout: seconds after which to give up.

    Raises:
        StoreError: no answer came.
    """
    began: float = yield Now()
    attempt = 0
    while True:
        found = yield from read(Get(aggregate.model.table, *key), timeout)
        change = changed(aggregate, key, found, [delta])
        if change is None:
            return
        try:
            yield Commit(aggregate.model.table, key[0], (change, *index_changes(aggregate, owed, key, found, change)))
            return
        except Lost as lost:
            why: Any = lost
        except Refused as refused:
            if refused.status not in (404, 409, 412) or refused.code == "TableNotFound":
                raise
            why = refused
        if (yield Now()) - began > timeout:
            raise StoreError(
                f"{aggregate.model.name} {key}: others write this group all the time, or {why}; copy again"
            )
        yield delay(min(attempt, 3))
        attempt += 1


def index_changes(
    aggregate: AggregateMaintenance, owed: Maintenance, key: tuple[str, str], found: Entity | None, change: Change
) -> list[Change]:
    """Return the changes of the rows that indexes on the groups have of one."""
    if not owed.indexes:
        return []
    codec = codec_of(aggregate.model)
    old, new = found, None
    if change.kind != "delete":
        new = {ETAG: "", PARTITION: key[0], ROW: key[1], **change.members}
    before, after = [None if one is None or BELOW in one else codec.row(one)[:-1] for one in (old, new)]
    changes = ChangeSet()
    if before is not None and after is not None:
        changes.changed(owed, [(before, after)])
    elif after is not None:
        changes.added(owed, [after])
    elif before is not None:
        changes.removed(owed, [before])
    made = []
    for index, rows in changes.indexes.items():
        made += [Change("delete", local_key(index, row), {}, "*") for row in rows.deletes]
        made += [
            Change("upsert", local_key(index, row), {BASE_ROW: row[3], **included(index, row)})
            for row in (*rows.puts, *rows.rewrites)
        ]
    return made
