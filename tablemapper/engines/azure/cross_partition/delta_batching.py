"""Writers of one process that change one group at one time: one of them adds the deltas of all.

A group is one row, and each change of it needs the ETag of the one before. So writers of one process need not get into
each other's way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs

from ..tables.driver import Effects, ReadClock, Sleep
from .outbox import CommittedIntent, Deadline, Group, GroupDelta, Intent, Outbox
from .remote_groups import GroupMaintenance, add

_POLL = 0.003  # seconds
_Several: TypeAlias = Sequence[tuple[Intent, GroupDelta]]


@attrs.define(eq=False)
class _Writer:
    """One writer, and what it has to add to a group."""

    several: _Several
    patience: Deadline
    state: Literal["waiting", "taken", "added"] = "waiting"


def add_with_others(
    upkeep: GroupMaintenance, several: _Several, patience: Deadline, timeout: float, outbox: Outbox
) -> Effects[CommittedIntent | None]:
    """Add deltas to their group as `remote_groups.add` does, or wait until another writer of the process has added them.

    Returns:
        What is then to be done in other partitions, unless the other writer does it.

    Raises:
        Late, Refused, StoreError: nobody knows whether they were added.
    """
    group = several[0][1].label, several[0][1].partition, several[0][1].row
    mine = _Writer(several, patience)
    try:
        while mine.state != "added":
            now: float = yield ReadClock()
            if some := _taken(outbox, group, mine, upkeep.most, now):
                return (yield from _lead(outbox, group, some, upkeep, timeout))
            yield Sleep(_POLL)
            if mine.state == "waiting":
                yield from patience.check()
        return None
    finally:
        with outbox.lock:
            left = [one for one in outbox.waiting.pop(group, ()) if one is not mine]
            if left:
                outbox.waiting[group] = left


def _taken(outbox: Outbox, group: Group, mine: _Writer, room: int, now: float) -> list[_Writer]:
    """Return the writers that one adds for now; none, if somebody else adds to the group, and it waits."""
    with outbox.lock:
        waiting = [one for one in outbox.waiting.get(group, ()) if one is not mine]
        if mine.state == "taken":
            return []
        if outbox.led.get(group, now) > now:
            outbox.waiting[group] = [*waiting, mine]
            return []
        some = [mine]
        for other in waiting:
            if sum(len(one.several) for one in (*some, other)) <= room:
                some.append(other)
        outbox.waiting[group] = [one for one in waiting if one not in some]
        for one in some:
            one.state = "taken"
        outbox.led[group] = min(one.patience.until for one in some)
        return some


def _lead(
    outbox: Outbox, group: Group, some: Sequence[_Writer], upkeep: GroupMaintenance, timeout: float
) -> Effects[CommittedIntent | None]:
    patience, done = Deadline(min(one.patience.until for one in some)), False
    try:
        left = yield from add(upkeep, [each for one in some for each in one.several], patience, timeout, outbox)
        done = True
    finally:
        with outbox.lock:
            outbox.led.pop(group, None)
            for one in some:
                # (Where it was not done, what was sent may still arrive: each has to leave its intent then.)
                one.patience.doubt |= patience.doubt or not done
                one.state = "added" if done else "waiting"
    return left
