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
_Deltas: TypeAlias = Sequence[tuple[Intent, GroupDelta]]


@attrs.define(eq=False)
class _Writer:
    """One writer, and what it has to add to a group."""

    deltas: _Deltas
    patience: Deadline
    state: Literal["waiting", "taken", "added"] = "waiting"


def add_with_others(
    upkeep: GroupMaintenance, deltas: _Deltas, patience: Deadline, timeout: float, outbox: Outbox
) -> Effects[CommittedIntent | None]:
    """Add deltas to their group as `remote_groups.add` does, or wait until another writer of the process has added them.

    Returns:
        What is then to be done in other partitions, unless the other writer does it.

    Raises:
        Late, Refused, StoreError: nobody knows whether they were added.
    """
    group = deltas[0][1].label, deltas[0][1].partition, deltas[0][1].row
    mine = _Writer(deltas, patience)
    try:
        while mine.state != "added":
            clock_now: float = yield ReadClock()
            if writers := _next_writers(outbox, group, mine, upkeep.most, clock_now):
                return (yield from _lead(outbox, group, writers, upkeep, timeout))
            yield Sleep(_POLL)
            if mine.state == "waiting":
                yield from patience.check()
        return None
    finally:
        with outbox.lock:
            waiting_writers = [writer for writer in outbox.waiting.pop(group, ()) if writer is not mine]
            if waiting_writers:
                outbox.waiting[group] = waiting_writers


def _next_writers(outbox: Outbox, group: Group, mine: _Writer, room: int, clock_now: float) -> list[_Writer]:
    """Return the writers that one adds for now; none, if somebody else adds to the group, and it waits."""
    with outbox.lock:
        waiting_writers = [writer for writer in outbox.waiting.get(group, ()) if writer is not mine]
        if mine.state == "taken":
            return []
        if outbox.led.get(group, clock_now) > clock_now:
            outbox.waiting[group] = [*waiting_writers, mine]
            return []
        writers = [mine]
        for candidate in waiting_writers:
            if sum(len(writer.deltas) for writer in (*writers, candidate)) <= room:
                writers.append(candidate)
        outbox.waiting[group] = [writer for writer in waiting_writers if writer not in writers]
        for writer in writers:
            writer.state = "taken"
        outbox.led[group] = min(writer.patience.until for writer in writers)
        return writers


def _lead(
    outbox: Outbox, group: Group, writers: Sequence[_Writer], upkeep: GroupMaintenance, timeout: float
) -> Effects[CommittedIntent | None]:
    patience, is_added = Deadline(min(writer.patience.until for writer in writers)), False
    try:
        committed = yield from add(
            upkeep, [delta for writer in writers for delta in writer.deltas], patience, timeout, outbox
        )
        is_added = True
    finally:
        with outbox.lock:
            outbox.led.pop(group, None)
            for writer in writers:
                # (Where it was not done, what was sent may still arrive: each has to leave its intent then.)
                writer.patience.doubt |= patience.doubt or not is_added
                writer.state = "added" if is_added else "waiting"
    return committed
