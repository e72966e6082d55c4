"""Rows that others than writes change: a copy takes over what ever was, a repair corrects a group, a build begins anew."""

from __future__ import annotations

from typing import Any

import attrs

from ...errors import CorruptStore, StoreError
from ...schema.groups import Delta
from ...schema.maintenance import AggregateMaintenance, IndexMaintenance, Maintenance
from ...schema.model import is_local
from .catalogue.classes import Classes
from .outer.finishing import deleted
from .outer.groups import changed, correction, index_changes, there
from .outer.marks import Part
from .outer.outbox import Patience
from .reading.filters import text, visible
from .tables.drive import Now, Work, delay, read, side_by_side
from .tables.names import index_prefix
from .tables.service import ETAG, PARTITION, ROW, Change, Commit, Entity, Every, Find, Get, Lost, Page, Refused

__all__ = ["emptied", "widened"]

_TOGETHER = 16  # groups


def widened(
    aggregate: AggregateMaintenance, duties: Maintenance, key: tuple[str, str], delta: Delta, timeout: float
) -> Work[None]:
    """Add a delta of ``_ever`` measures to a group; it may be added many times.

    Args:
        aggregate: of the group.
        duties: the indexes on its groups, which lie in their partitions.
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
            yield Commit(aggregate.model.table, key[0], (change, *index_changes(aggregate, duties, key, found, change)))
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
    attempt, duties = 0, classes.maintained(aggregate.model)
    while found is not None:
        key, changes = (found[PARTITION], found[ROW]), list[Change]()
        try:
            nothing = correction(aggregate, aggregate.aggregate.zero(), found)
            if (change := changed(aggregate, key, found, [nothing])) is None:
                return
            rows = index_changes(aggregate, duties, key, found, change)
            changes = [change, *(yield from there(aggregate.model.table, key[0], rows, timeout))]
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
