"""Rows that others than writes change: a copy takes over what ever was, a repair corrects a group, a build begins anew."""

from __future__ import annotations

from typing import Any

import attrs

from ...errors import CorruptStore, StoreError
from ...schema.groups import Delta
from ...schema.maintenance import AggregateMaintenance, ChangeSet, IndexMaintenance, Maintenance
from ...schema.model import is_local
from .catalogue.classes import Classes
from .known import local_key
from .outer.finishing import changed, deleted, values_of
from .outer.marks import Part
from .outer.outbox import Patience
from .reading.filters import text, visible
from .tables.drive import Now, Work, delay, read, side_by_side
from .tables.names import BASE_ROW, BELOW, index_prefix
from .tables.rows import Hidden, codec_of, included
from .tables.service import ETAG, PARTITION, ROW, Change, Commit, Entity, Every, Find, Get, Lost, Page, Refused

__all__ = ["correction", "emptied", "index_changes", "widened"]

_TOGETHER = 16  # groups


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


def correction(aggregate: AggregateMaintenance, live: Delta, found: Entity | None) -> Delta:
    """Return the delta that leads from a group, as it was read, to what live entities add up to.

    Raises:
        CorruptStore: what the group holds cannot be read.
    """
    hidden = Hidden() if found is None else codec_of(aggregate.model).row(found)[-1]
    state = None if hidden.state is None else aggregate.aggregate.unpack_signed(hidden.state)
    delta = aggregate.aggregate.correction(live, state)
    counts = values_of(hidden.values)
    for slot in aggregate.aggregate.counted_slots:
        wanted, stored = live[slot + 1], counts.get(slot, {})
        delta[slot + 1] = {
            value: wanted.get(value, 0) - stored.get(value, 0) for value in dict.fromkeys([*wanted, *stored])
        }
    return delta


def emptied(part: Part, classes: Classes, patience: Patience, timeout: float) -> Work[None]:
    """Delete the rows of an index, or take all entities out of the groups of an aggregate; what ever was stays.

    Args:
        part: to which nobody adds anything meanwhile.
        classes: what is maintained.
        patience: until when something is sent.
        timeout: seconds after which to give up, if no answer comes.

    Raises:
        Late: not all is done.
    """
    if isinstance(part, IndexMaintenance):
        local, front = is_local(part.owner, part.model), index_prefix(part.label)
        rows = Every((text(ROW, "ge", front), text(ROW, "lt", f"{front[:-1]}{chr(ord(front[-1]) + 1)}")))
        find = Find(part.owner.table, rows) if local else Find(part.model.table)
    else:
        find = Find(part.model.table, visible())
    while True:
        page: Page = yield from read(find, timeout)
        yield from patience.check()
        if isinstance(part, IndexMaintenance):
            places: dict[str, list[Change]] = {}
            for one in page.entities:
                places.setdefault(one[PARTITION], []).append(Change("delete", one[ROW], {}, "*"))
            works = [deleted(patience, find.table, partition, changes) for partition, changes in places.items()]
        else:
            groups = [one for one in page.entities if classes.claims(part.model, one[PARTITION], one[ROW])]
            works = [_emptied(part, classes, one, patience, timeout) for one in groups]
        for at in range(0, len(works), _TOGETHER):
            yield from side_by_side(works[at : at + _TOGETHER])
        if page.after is None:
            return
        find = attrs.evolve(find, after=page.after)


def _emptied(
    aggregate: AggregateMaintenance, classes: Classes, found: Entity | None, patience: Patience, timeout: float
) -> Work[None]:
    attempt, owed = 0, classes.maintained(aggregate.model)
    while found is not None:
        key, changes = (found[PARTITION], found[ROW]), list[Change]()
        try:
            nothing = correction(aggregate, aggregate.aggregate.zero(), found)
            if (change := changed(aggregate, key, found, [nothing])) is None:
                return
            changes = [change]
            for one in index_changes(aggregate, owed, key, found, change):
                if one.kind != "delete" or (yield from read(Get(aggregate.model.table, key[0], one.row), timeout)):
                    changes.append(one)
        except CorruptStore:
            changes = [Change("delete", key[1], {}, found[ETAG])]
        yield from patience.check()
        try:
            yield Commit(aggregate.model.table, key[0], tuple(changes))
        except Lost as lost:
            yield from patience.again(attempt, lost)
        except Refused as refused:
            if refused.status not in (404, 409, 412) or refused.code == "TableNotFound":
                raise
            yield from patience.again(attempt)
        else:
            return
        attempt += 1
        found = yield from read(Get(aggregate.model.table, *key), timeout)
