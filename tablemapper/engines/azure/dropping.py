"""Tables that leave the account: a class is dropped or cleared, a run ended early, or a store goes as a whole.

The catalogue says so first. Once every program knows, the tables are deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import attrs
from msgspec import UNSET
from msgspec.structs import replace

from ...catalogue.actions import ActionPlan
from ...catalogue.catalogue import Catalogue
from ...catalogue.dropping import drop_class
from ...catalogue.freeze import check_thawed
from ...entities.etag import Stamp
from ...schema.labels import Label
from ...schema.specs import TombstoneSpec
from .catalogue.publication import StoredCatalogue, changed, every_table, names_of, read_catalogue, tables_in
from .cross_partition.outbox import Timing
from .tables.driver import Driver, Effects, in_batches, read, server_time, store_errors
from .tables.service import DeleteTable, Service
from .writing.duplicate_notes import forget, violations


def dropped(table: str, name: str, known_names: Collection[str], timeout: float) -> Effects[int]:
    """Let a class leave a catalogue; return when, in µs by the clock of the service.

    Args:
        table: of the catalogue.
        name: of the class.
        known_names: the classes and aggregates that the program knows, by name.
        timeout: seconds after which to give up, if no answer comes.

    Raises:
        InvalidQuery: it cannot go.
        StoreLocked: the store is frozen.
    """
    server_now = yield from server_time(table, timeout)

    def is_own(stone: TombstoneSpec) -> bool:
        return stone.label == name and stone.since == server_now

    def without_class(catalogue: StoredCatalogue) -> Catalogue | None:
        if any(map(is_own, catalogue.value.tombstones)):  # (the answer was lost)
            return None
        check_thawed(catalogue.value)
        without = drop_class(ActionPlan(server_now, tuple), catalogue.value, name, known_names)
        tables_before, stays = tables_in(catalogue.value), set(tables_in(without).values())
        names = sorted(set(tables_before.values()) - stays)
        stones = [replace(stone, tables=names) if is_own(stone) else stone for stone in without.tombstones]
        return attrs.evolve(without, tombstones=tuple(stones))

    catalogue = yield from changed(table, timeout, without_class)
    return int(Stamp(catalogue.head.etag))


def erased(table: str, value: Catalogue, times: Timing, timeout: float) -> Effects[None]:
    """Delete the tables of classes that were dropped or cleared so long ago that no program uses them: who did so has ended.

    If a class has been about to be cleared for as long, that ends, and programs write it again.

    Args:
        table: of the catalogue.
        value: the catalogue, as it is known.
        times: how long things last.
        timeout: seconds after which to give up, if no answer comes.
    """
    stones = [stone for stone in value.tombstones if stone.tables]
    clearing = [entry for entry in value.history if entry.clears is not UNSET]
    server_now = (yield from server_time(table, timeout)) if stones or clearing else 0

    def is_over(since: int) -> bool:  # (it may have been published as late as a request can be)
        return (server_now - since) / 1e6 > times.settled + times.deadline

    for stone in stones:
        if is_over(stone.since):
            yield from deleted(table, stone.label, value, timeout)
    for entry in clearing:
        if is_over(entry.started):
            yield from abandoned(table, entry.kept, timeout)


def deleted(table: str, name: str, value: Catalogue, timeout: float) -> Effects[None]:
    """Delete the tables of a class that was dropped, and note that in the catalogue."""
    stones = [stone for stone in value.tombstones if stone.label == name and stone.tables]
    tables = [table_name for stone in stones for table_name in stone.tables]
    yield from in_batches([read(DeleteTable(table_name), timeout) for table_name in tables])
    for note in (yield from violations(table, timeout)):
        if Label.of(note.label).owner == name:
            yield from forget(table, note)
    since = [stone.since for stone in stones]

    def without(catalogue: StoredCatalogue) -> Catalogue | None:
        stones_before = catalogue.value.tombstones
        stones_after = [
            replace(stone, tables=[]) if stone.label == name and stone.since in since else stone
            for stone in stones_before
            if not (stone.since in since and stone.by == clearing_of(name))  # (of a class that stays it says no more)
        ]
        return (
            None
            if tuple(stones_after) == stones_before
            else attrs.evolve(catalogue.value, tombstones=tuple(stones_after))
        )

    yield from changed(table, timeout, without)


def clearing_of(name: str) -> str:
    """Return what the history calls it that a class is cleared, as long as that lasts."""
    return f"the clearing of {name}"


def abandoned(table: str, kept_tables: Sequence[str], timeout: float) -> Effects[None]:
    """End a run that made some tables, unless it is over, and let programs write again; delete those that the store has not.

    Args:
        table: of the catalogue.
        kept_tables: the tables; if the first is that of a catalogue, it is nobody's afterwards.
        timeout: seconds after which to give up, if no answer comes.
    """

    def without(catalogue: StoredCatalogue) -> Catalogue | None:
        history = catalogue.value.history
        if history.running is None or history.running.kept != kept_tables:
            return None
        return attrs.evolve(catalogue.value, history=history.without(history.running), frozen=None)

    catalogue = yield from changed(table, timeout, without)
    # (It may have switched, and another one may have replaced its tables since.)
    kept_names = [name for entry in catalogue.value.history for name in entry.kept if name != kept_tables[0]]
    yield from deleted_tables(
        [name for name in kept_tables if name not in {*names_of(catalogue.value).values(), *kept_names}], timeout
    )


def deleted_tables(names: Iterable[str], timeout: float) -> Effects[None]:
    """Delete tables, as far as they are there."""
    for name in names:
        yield from read(DeleteTable(name), timeout)


def remove(service: Service, name: str, catalogue: str, timeout: float) -> None:
    """Delete all tables of a store that nobody uses any more, its catalogue last.

    Args:
        service: sends requests to the account.
        name: of the account, for messages.
        catalogue: its table.
        timeout: seconds after which to give up, if no answer comes.
    """
    driver = Driver(service)
    try:
        with store_errors(name):
            driver.run(_delete_tables(catalogue, timeout))
    finally:
        driver.close()


def _delete_tables(catalogue: str, timeout: float) -> Effects[None]:
    stored_catalogue = yield from read_catalogue(catalogue, timeout)
    tables = set[str]() if stored_catalogue is None else every_table(stored_catalogue.value)
    yield from in_batches([read(DeleteTable(name), timeout) for name in sorted(tables)])
    yield from read(DeleteTable(catalogue), timeout)
