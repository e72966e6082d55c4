"""Migrations of an account: those that rename or drop change its catalogue, and programs of the former version go on.

Those that copy entities are in `table_swap`.
What is dropped goes when the migration is contracted. First the former versions end, then nobody adds anything to it, then its
rows are deleted, and last it leaves the catalogue. Before its rows are deleted, every process knows; each step can be done again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import attrs
from msgspec.structs import replace

from ....catalogue.actions import ActionPlan
from ....catalogue.catalogue import Catalogue
from ....catalogue.dropping import without_jobs
from ....catalogue.migration_states import (
    contracted,
    dropped_classes,
    is_undone,
    retired,
)
from ....catalogue.transitions import Transition
from ....entities.etag import Stamp
from ....errors import NotAStore
from ....evolution.spec_compiler import stored_schema
from ....evolution.versions import Versions
from ....schema.labels import Label
from ....schema.model import Schema
from ....schema.specs import AppliedSpec, Forms
from ...migration_protocol import Batches, ReplacingEngine, StaleScript, TableReplacement
from ..catalogue.open_classes import CatalogueRefresher, OpenClasses
from ..catalogue.opening import open_catalogue
from ..catalogue.placement import check_models
from ..catalogue.publication import StoredCatalogue, changed, names_of, read_catalogue
from ..cross_partition.marks import label_of, parts_of
from ..cross_partition.outbox import Deadline, DeadlineExceeded, Outbox, Timing
from ..dropping import abandoned, deleted_tables
from ..group_writer import GroupWriter
from ..reading.filters import visible
from ..reading.scans import rows_of
from ..recovery import sweep, waited
from ..tables.driver import Driver, Effects, clock, server_time, store_errors
from ..tables.reserved_names import CATALOGUE
from ..tables.service import Service
from .table_swap import AzureReplacement

P = ParamSpec("P")
T = TypeVar("T")


class AzureMigrations(ReplacingEngine):
    """The store of an account, for migrations; `MigrationEngine` says more of each method."""

    def __init__(self, driver: Driver, name: str, catalogue: str, timeout: float, times: Timing) -> None:
        self.timeout = timeout
        self._driver = driver
        self._name = name
        self._table = catalogue
        self._times = times
        self.look()
        driver.names = lambda: names_of(self._catalogue)

    @classmethod
    def open(
        cls,
        service: Service,
        name: str,
        *,
        catalogue: str = CATALOGUE,
        timeout: float = 30.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        times: Timing | None = None,
    ) -> AzureMigrations:
        """Open the store of an account; arguments as for `AzureEngine.open`.

        Raises:
            NotAStore: there is none.
        """
        driver = Driver(service, monotonic=monotonic, sleep=sleep)
        try:
            return cls(driver, name, catalogue, timeout, times or Timing())
        except BaseException:
            driver.close()
            raise

    def close(self) -> None:
        self._driver.close()

    def run(self, work: Effects[T]) -> T:
        with store_errors(self._name):
            return self._driver.run(work)

    # ------------------------------------------------------------------------------------------ the catalogue

    def look(self) -> None:
        self._stored = self._read()
        self._catalogue = self._stored.value

    def _read(self) -> StoredCatalogue:
        catalogue = self.run(read_catalogue(self._table, self.timeout))
        if catalogue is None:
            raise NotAStore(f"there is no store in this account, as it has no catalogue {self._table}")
        return catalogue

    def count(self, name: str) -> int:
        classes = self._classes()
        for model in classes.models:
            if model.name == name:
                rows = rows_of(self, model.table, visible())
                return sum(classes.is_of(model, entity) for entity in rows)
        raise StaleScript  # (it was there, when the caller looked)

    def under_way(self) -> str | None:
        """Return the id of the migration that copies, or has begun to."""
        running = self._catalogue.history.running
        return None if running is None else running.id

    def begin(self, transition: Transition) -> TableReplacement:
        times = self._stored.head.times(self._times)
        run = AzureReplacement(transition, self._stored, self._table, self._name, times, self.timeout, self._driver)
        try:
            run.begin()
        except BaseException:
            run.close()
            raise
        return run

    def discard(self, name: str) -> None:
        running = self._catalogue.history.running
        if running is not None and running.id == name:
            self.run(abandoned(self._table, running.kept, self.timeout))
        self.look()

    def take_over(self, schema: Schema) -> bool:
        check_models(schema, self._table)
        generation = self._stored.head.generation
        self.run(open_catalogue(self._table, schema, self.timeout, self._times))
        self.look()
        return self._stored.head.generation != generation

    def _take(
        self,
        transition: Callable[Concatenate[ActionPlan, Catalogue, P], Catalogue],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        seen, draft, value = self._stored.head.generation, self._draft(), self._catalogue

        def change(catalogue: StoredCatalogue) -> Catalogue | None:
            nonlocal value
            if catalogue.head.generation == seen:
                value = transition(draft, catalogue.value, *args, **kwargs)
                return value
            if (catalogue.value.history, catalogue.value.versions) != (value.history, value.versions):
                raise StaleScript
            return None

        self.run(changed(self._table, self.timeout, change))
        self.look()

    def _draft(self, tables: Collection[str] = ()) -> ActionPlan:
        """Return a draft of a transition, which drops some tables at most, with the time of the service."""
        return ActionPlan(self.run(server_time(self._table, self.timeout)), lambda: tables)

    # ------------------------------------------------------------------------------------------ contracting

    def contract(self, id: str, batches: Batches) -> bool:
        """End the versions before a migration, and delete what it drops; return False if another run undoes that."""
        draft = self._draft()
        self._publish(
            lambda catalogue: catalogue.value if is_undone(catalogue.value, id) else retired(draft, catalogue.value, id)
        )
        if is_undone(self._catalogue, id):
            return False
        entry = self.history().current(id)
        assert entry is not None
        if entry.drops:
            ended_classes = dropped_classes(self._catalogue, id)
            labels, late = _parts(entry.drops, ended_classes, self.forms())
            self._publish(partial(_disabled, labels))
            self._erase(labels, ended_classes)
        else:
            late = set()
        self._delete_kept(lambda entry_of_run: entry_of_run.id == id and entry_of_run.undone is None)
        classes_before, draft = self._classes(), self._draft(entry.kept)
        self._publish(
            lambda catalogue: (
                catalogue.value if is_undone(catalogue.value, id) else contracted(draft, catalogue.value, id, ())
            )
        )
        if late:
            self._erase(late, (), classes_before)
        return True

    def drop_former(self) -> None:
        """Delete the tables of migrations that were undone; a store of an account has no former definitions."""
        if undone := self._delete_kept(lambda applied: applied.undone is not None):

            def without(catalogue: StoredCatalogue) -> Catalogue:
                history = catalogue.value.history
                return attrs.evolve(
                    catalogue.value, history=history.without(*[applied for applied in history if applied in undone])
                )

            self._publish(without)

    def _delete_kept(self, of: Callable[[AppliedSpec], bool]) -> list[AppliedSpec]:
        """Delete the tables that some migrations keep, once every program knows of these; return those that kept some."""
        if any(applied.kept for applied in self.history() if of(applied)):
            self._wait(self._stored.head.times(self._times).settled)
            self.look()  # (another run may have done it meanwhile, and a table may have its name again)
        applied_keeping = [applied for applied in self.history() if of(applied) and applied.kept]
        self.run(deleted_tables([name for applied in applied_keeping for name in applied.kept], self.timeout))
        return applied_keeping

    def _publish(self, change: Callable[[StoredCatalogue], Catalogue]) -> None:
        """Publish what a function makes of the catalogue; of its own result it makes the same."""

        def value_after(catalogue: StoredCatalogue) -> Catalogue | None:
            value = change(catalogue)
            return None if value == catalogue.value else value

        self.run(changed(self._table, self.timeout, value_after))
        self.look()

    def _wait(self, seconds: float) -> None:
        """Wait until the catalogue has been for some time as it was looked at: then every process knows of it."""
        since = int(Stamp(self._stored.head.etag))
        while self.run(waited(self._table, since, seconds, self.timeout)):
            pass

    def _erase(
        self, labels: Collection[str], ended_classes: Collection[str], before: OpenClasses | None = None
    ) -> None:
        """Delete the rows of indexes and of classes, and take all out of groups, once nobody writes them any more.

        Args:
            labels: of indexes and aggregates.
            ended_classes: the classes, and aggregates that nobody reads.
            before: the classes that have them; None: as they are now.
        """
        outbox = Outbox(self._table, self._stored.head.times(self._times))
        times = outbox.times
        self._wait(max(times.settled, times.lease + times.deadline))
        classes = self._classes()
        ever = attrs.evolve(times, look=math.inf)  # (nobody opens what ends any more)
        self.run(
            sweep(CatalogueRefresher(self._table, classes, self.run(clock()), ever, self.timeout), outbox, self.timeout)
        )
        works, classes = list[Callable[[GroupWriter], Effects[None]]](), before or classes
        for model in classes.models:
            if model.name in ended_classes:
                names_in_table = {name for name, form in self.forms().items() if form.table == model.table}
                works.append(partial(GroupWriter.erased, model=model, alone=names_in_table <= set(ended_classes)))
            else:
                parts = [
                    part
                    for part in parts_of(classes.maintained(model))
                    if label_of(part) in {*labels} - {*ended_classes}
                ]
                works += [partial(GroupWriter.emptied, part=part) for part in parts]
        for work in works:
            self._until_done(classes, outbox, work)

    def _until_done(self, classes: OpenClasses, outbox: Outbox, work: Callable[[GroupWriter], Effects[None]]) -> None:
        while True:
            patience = Deadline(self.run(clock()) + outbox.times.deadline)
            try:
                return self.run(work(GroupWriter(classes, outbox, patience, self.timeout)))
            except DeadlineExceeded:  # (what was deleted stays so)
                continue

    def _classes(self) -> OpenClasses:
        """Return all classes of the store, with those that end."""
        catalogue = self._read()
        undeclared = {label for label, state in catalogue.value.states.items() if not state.declared}
        schema = stored_schema(catalogue.value.models, undeclared)
        return OpenClasses(schema, attrs.evolve(catalogue, value=attrs.evolve(catalogue.value, versions=Versions())))


def _parts(drops: Iterable[str], ended_classes: Collection[str], forms: Forms) -> tuple[set[str], set[str]]:
    """Return what is dropped of classes that stay: what is disabled before that, and the indexes on groups that stay.

    Such an index is maintained with its groups, as long as the catalogue has it.
    """
    classes = {name for name in ended_classes if forms[name].source is None}
    labels, on_groups = set[str](), set[str]()
    for owner, index in map(Label.of, drops):
        source = None if owner not in forms else forms[owner].source
        if owner in forms and not {owner, source} & classes and not (index and owner in ended_classes):
            (on_groups if index and source is not None else labels).add(str(Label(owner, index)))
    return labels, on_groups


def _disabled(labels: Collection[str], catalogue: StoredCatalogue) -> Catalogue:
    """Return the catalogue in which nobody adds anything to some indexes and aggregates."""
    value, number = catalogue.value, catalogue.head.generation + 1
    off = {label for label in labels if label in value.states and value.states[label].state != "disabled"}
    states = {label: replace(value.states[label], state="disabled", since=0, number=number) for label in off}
    return attrs.evolve(without_jobs(ActionPlan(0, tuple), value, off), states=value.states | states) if off else value
