"""A class leaves the store with its tables: the catalogue says so, and once every program knows, the tables are deleted."""

from __future__ import annotations

from collections.abc import Collection

import attrs
from msgspec.structs import replace

from ...catalogue.actions import ActionPlan
from ...catalogue.catalogue import Catalogue
from ...catalogue.dropping import drop_class
from ...catalogue.freeze import check_thawed
from ...entities.etag import Stamp
from ...schema.labels import Label
from .catalogue.publication import StoredCatalogue, changed, tables_in
from .cross_partition.outbox import Timing
from .tables.driver import Effects, read, server_time, side_by_side
from .tables.service import DeleteTable
from .writing.duplicate_notes import forget, violations

_TOGETHER = 16


def dropped(table: str, name: str, declared: Collection[str], timeout: float) -> Effects[int]:
    """Let a class leave a catalogue; return when, in µs by the clock of the service.

    Args:
        table: of the catalogue.
        name: of the class.
        declared: the classes and aggregates that the program knows, by name.
        timeout: seconds after which to give up, if no answer comes.

    Raises:
        InvalidQuery: it cannot go.
        StoreLocked: the store is frozen.
    """
    now = yield from server_time(table, timeout)

    def after(held: StoredCatalogue) -> Catalogue | None:
        if _pending(held.value, name, now):  # (the answer was lost)
            return None
        check_thawed(held.value)
        without = drop_class(ActionPlan(now, tuple), held.value, name, declared)
        before, stays = tables_in(held.value), set(tables_in(without).values())
        names = sorted(set(before.values()) - stays)
        stones = [
            replace(one, tables=names) if one.since == now and one.label == name else one for one in without.tombstones
        ]
        return attrs.evolve(without, tombstones=tuple(stones))

    held = yield from changed(table, timeout, after)
    return int(Stamp(held.head.etag))


def _pending(value: Catalogue, name: str, since: int) -> bool:
    return any(one.label == name and one.since == since for one in value.tombstones)


def erased(table: str, value: Catalogue, times: Timing, timeout: float) -> Effects[None]:
    """Delete the tables of classes that were dropped so long ago that no program writes them: who dropped them has ended.

    Args:
        table: of the catalogue.
        value: the catalogue, as it is known.
        times: how long things last.
        timeout: seconds after which to give up, if no answer comes.
    """
    stones = [one for one in value.tombstones if one.tables]
    now = (yield from server_time(table, timeout)) if stones else 0
    for one in stones:  # (it may have been published as late as a request can be)
        if (now - one.since) / 1e6 > times.settled + times.deadline:
            yield from deleted(table, one.label, value, timeout)


def deleted(table: str, name: str, value: Catalogue, timeout: float) -> Effects[None]:
    """Delete the tables of a class that was dropped, and note that in the catalogue."""
    stones = [one for one in value.tombstones if one.label == name and one.tables]
    tables = [one for stone in stones for one in stone.tables]
    for at in range(0, len(tables), _TOGETHER):
        yield from side_by_side([read(DeleteTable(one), timeout) for one in tables[at : at + _TOGETHER]])
    for note in (yield from violations(table, timeout)):
        if Label.of(note.label).owner == name:
            yield from forget(table, note)
    since = [one.since for one in stones]

    def without(held: StoredCatalogue) -> Catalogue | None:
        before = held.value.tombstones
        after = [replace(one, tables=[]) if one.label == name and one.since in since else one for one in before]
        return None if tuple(after) == before else attrs.evolve(held.value, tombstones=tuple(after))

    yield from changed(table, timeout, without)
