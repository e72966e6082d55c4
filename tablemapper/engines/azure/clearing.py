"""A class with very many entities is cleared: empty tables take the place of its own, while nobody writes it.

Meanwhile the history of the catalogue has an entry with the names of the new tables, and the store counts as frozen. So a library
that knows of no clearing writes nothing. All others go on with every other class. Whoever finds that it has ended early
undoes it: see `dropping.erased`.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from contextlib import suppress

import attrs

from ...catalogue.catalogue import Catalogue
from ...catalogue.freeze import check_thawed
from ...errors import StoreError
from ...schema.model import Model
from ...schema.specs import AppliedSpec, TombstoneSpec
from .catalogue.claims import claimed, made
from .catalogue.open_classes import CatalogueRefresher, OpenClasses
from .catalogue.publication import StoredCatalogue, changed, index_tables, names_of, tables_in
from .cross_partition.outbox import Outbox
from .dropping import abandoned, clearing_of, deleted, erased
from .reading.scans import is_index_row
from .recovery import waited
from .tables.driver import Effects, read, server_time, side_by_side
from .tables.reserved_names import (
    BASE_PARTITION,
    BASE_ROW,
    CLAIM,
    HIDDEN,
    HIDDEN_PREFIX,
    OP,
    STATE,
    fresh_table,
    is_known,
)
from .tables.service import PARTITION, ROW, Entity, EntityPage, QueryEntities

ROW_BY_ROW = 20_000
"""So many entities are deleted in less time than all programs need to know of a change."""
_SELECTED = (PARTITION, ROW, HIDDEN_PREFIX, OP, STATE, BASE_PARTITION, BASE_ROW, "state", "op")
"""What tells the rows of this library from those of others."""


def cleared(current: CatalogueRefresher, outbox: Outbox, name: str, timeout: float) -> Effects[int | None]:
    """Give a class empty tables, and return how many entities it had; None: its entities have to be deleted one by one.

    Args:
        current: the classes as the process knows them.
        outbox: of the process.
        name: of the class.
        timeout: seconds after which to give up, if no answer comes.

    Raises:
        StoreLocked: the store is frozen, or another program clears the class.
        StoreError: another program ended it, or changed what is maintained from the class.
    """
    table, times = outbox.catalogue, outbox.times
    yield from erased(table, (yield from current.look()).catalogue, times, timeout)
    classes = yield from current.look()
    check_thawed(classes.catalogue, [name])
    tables = replaceable(classes.catalogue, name)
    count = None if tables is None else (yield from _counted(classes, tables, name, timeout))
    if tables is None or count is None or count <= ROW_BY_ROW:
        return None
    token, started = secrets.token_hex(4), (yield from server_time(table, timeout))
    new_tables = {public: fresh_table(classes.head.prefix + public, token) for public in tables}
    run = _Run(table, name, tables, new_tables, started, timeout)
    try:
        frozen_since = yield from run.announced()
        yield from current.look()
        yield from side_by_side([_made(new_name, table, timeout) for new_name in new_tables.values()])
        while (yield from waited(table, frozen_since, times.settled, timeout)):
            pass
        switched_at = yield from run.switched(frozen_since)
    except Exception:
        with suppress(Exception):  # (else a sweep does it, or the next program that opens the store)
            yield from abandoned(table, run.entry.kept, timeout)
        raise
    yield from current.look()
    while (
        yield from waited(table, switched_at, times.settled, timeout)
    ):  # (others may read the old tables until then)
        pass
    yield from deleted(table, name, (yield from current.look()).catalogue, timeout)
    yield from current.look()
    return count


def replaceable(value: Catalogue, name: str) -> dict[str, str] | None:
    """Return the tables of a class and of all that is maintained from it, by their public names; None: they have to stay.

    They stay if they hold more than that, or what is not made of entities that are there; or if something is built or copied.
    """
    if name not in value.models:
        return None
    members = {name, *(aggregate for aggregate, form in value.models.items() if form.source == name)}
    forms = [value.models[member] for member in members]
    labels = {*members, *(f"{member}.{index}" for member in members for index in value.models[member].indexes)}
    tables = {form.table for form in forms}
    sharing = [other for other, form in value.models.items() if form.table in tables]
    is_busy = any(job.owner == name for job in value.jobs) or any(
        state.state != "ready" for label, state in value.states.items() if label in labels
    )
    if (
        is_busy
        or value.history.running is not None
        or not members.issuperset(sharing)
        or any(form.keeps_ever for form in forms)
    ):
        return None
    return tables_in(value.part(members))


def _made(name: str, catalogue: str, timeout: float) -> Effects[None]:
    yield from made(name, timeout)
    yield from claimed(name, catalogue, timeout)


# ---------------------------------------------------------------------------------------------- what is there


def _counted(classes: OpenClasses, tables: Collection[str], name: str, timeout: float) -> Effects[int | None]:
    """Return the number of entities of a class; None if one of the tables has rows of other programs, or it is small."""
    model = classes.schema.by_name[name]
    count = yield from _counted_in(classes, model.table, model, timeout)
    if count is None or count <= ROW_BY_ROW:
        return count
    works = [_counted_in(classes, table, model, timeout) for table in tables if table != model.table]
    return None if None in (yield from side_by_side(works)) else count


def _counted_in(classes: OpenClasses, table: str, model: Model, timeout: float) -> Effects[int | None]:
    """Return how many entities of a class are in a table; None if it has rows, or entities, that other programs wrote.

    These call the table by its name, which the new one has not.
    """
    find, count = QueryEntities(table, select=_SELECTED), 0
    models = [sharing for sharing in classes.models if sharing.table == table]
    while True:
        page: EntityPage = yield from read(find, timeout)
        for entity in page.entities:
            if model in models and OP in entity and classes.is_of(model, entity):
                count += 1
            elif not _is_ours(classes, models, entity):
                return None
        if page.after is None:
            return count
        find = attrs.evolve(find, after=page.after)


def _is_ours(classes: OpenClasses, models: Collection[Model], entity: Entity) -> bool:
    """Return whether a row is one of this library: of the classes of a table, or, where there are none, of an index."""
    if entity[PARTITION] == CLAIM:
        return True
    if not models:
        return is_index_row(entity, remote=True)
    if HIDDEN[0] <= entity[ROW] < HIDDEN[1]:
        return is_known(entity)
    aggregates = [model for model in models if model.aggregate is not None]
    return HIDDEN_PREFIX in entity or any(classes.is_of(model, entity) for model in aggregates)


# ---------------------------------------------------------------------------------------------- what is published


@attrs.frozen
class _Run:
    """One clearing of a class.

    Args:
        catalogue: its table.
        name: of the class.
        tables: that are replaced, by their public names.
        new_tables: that take their place.
        started: when it began, in µs by the clock of the service.
        timeout: seconds after which to give up, if no answer comes.
    """

    catalogue: str
    name: str
    tables: dict[str, str]
    new_tables: dict[str, str]
    started: int
    timeout: float

    @property
    def entry(self) -> AppliedSpec:
        """The entry of the history, which stands there until it ends."""
        new_names = [*self.new_tables.values()]
        return AppliedSpec(clearing_of(self.name), started=self.started, kept=new_names, clears=self.name)

    def _is_under_way(self, value: Catalogue) -> bool:
        running = value.history.running
        return running is not None and running.kept == self.entry.kept

    def announced(self) -> Effects[int]:
        """Let no program change the class any more; return since when."""

        def with_entry(catalogue: StoredCatalogue) -> Catalogue | None:
            value = catalogue.value
            if self._is_under_way(value):
                return None
            check_thawed(value)
            if replaceable(value, self.name) != self.tables:
                raise self._ended()
            return attrs.evolve(value, history=value.history.and_(self.entry), frozen=0)

        frozen_since = (yield from changed(self.catalogue, self.timeout, with_entry)).value.frozen
        if frozen_since is None:
            raise self._ended()
        return frozen_since

    def switched(self, frozen_since: int) -> Effects[int]:
        """Let the new tables take the place of the old ones, and programs write again; return when."""
        server_now = yield from server_time(self.catalogue, self.timeout)

        def with_new_tables(catalogue: StoredCatalogue) -> Catalogue | None:
            value = catalogue.value
            if not self._is_under_way(value):
                return None
            frozen = None if value.frozen == frozen_since else value.frozen
            ended = attrs.evolve(value, history=value.history.without(value.history.running), frozen=frozen)
            is_valid = value.frozen == frozen_since and replaceable(ended, self.name) == self.tables
            return self._emptied(ended, server_now) if is_valid else ended

        tables = tables_in((yield from changed(self.catalogue, self.timeout, with_new_tables)).value)
        if any(tables.get(public) != name for public, name in self.new_tables.items()):
            raise self._ended()
        return server_now

    def _emptied(self, value: Catalogue, server_now: int) -> Catalogue:
        """Return a catalogue in which the class has its new tables, and a tombstone the old ones."""
        by, names = clearing_of(self.name), names_of(value) | self.new_tables
        stone = TombstoneSpec(self.name, {}, server_now, by, tables=[*self.tables.values()])
        stones = [tombstone for tombstone in value.tombstones if tombstone.tables or tombstone.by != by]
        tables = {
            public: attrs.evolve(table, name=names.get(public, table.name)) for public, table in value.tables.items()
        }
        return attrs.evolve(
            value, tables=tables, index_tables=index_tables(value.models, names), tombstones=(*stones, stone)
        )

    def _ended(self) -> StoreError:
        return StoreError(
            f"clear: another program ended the clearing of {self.name}, or changed the classes meanwhile; nothing was deleted: "
            "try again"
        )
