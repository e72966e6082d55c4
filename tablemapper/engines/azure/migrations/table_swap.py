"""A migration that copies entities: into new tables of the account, which take the place of the old ones while nobody writes.

Until then they are a store of their own, with a catalogue that nobody else knows. The entry of the migration in the history of
the store names all these tables, so whoever finds that a run has ended early deletes them, and begins anew.
"""

from __future__ import annotations

import secrets
from typing import TypeVar

import attrs

from ....catalogue.actions import ActionPlan
from ....catalogue.catalogue import Catalogue, StagedCatalogue
from ....catalogue.cutover import switched
from ....catalogue.freeze import check_thawed
from ....catalogue.transitions import Transition
from ....entities.etag import Stamp
from ....schema.model import Schema
from ....schema.specs import AppliedSpec, ModelSpec
from ...migration_protocol import StaleScript
from ..catalogue.adoption import tables_of
from ..catalogue.notes import gathered
from ..catalogue.open_classes import OpenClasses
from ..catalogue.opening import open_catalogue
from ..catalogue.placement import check_models
from ..catalogue.publication import StoredCatalogue, changed, read_catalogue, tables_in
from ..cross_partition.outbox import Outbox, Timing
from ..dropping import abandoned, deleted_tables
from ..engine import AzureEngine
from ..recovery import sweep, waited
from ..tables.driver import Driver, Effects, clock, read, server_time, store_errors
from ..tables.reserved_names import fresh_table
from ..tables.service import ETAG, Entity, ErrorResponse, GetEntity, GroupTransaction, RowChange

T = TypeVar("T")
_RUNS = "migration"
_BEAT = 10.0  # seconds after which a run says again that it goes on


@attrs.define(eq=False)
class AzureReplacement:
    """One run of such a migration; `TableReplacement` says more of each method."""

    transition: Transition
    held: StoredCatalogue
    """The catalogue as it was when the run began."""
    table: str
    """Of the catalogue."""
    name: str
    times: Timing
    timeout: float
    driver: Driver
    source: AzureEngine = attrs.field(init=False)
    target: AzureEngine = attrs.field(init=False)
    _token: str = attrs.field(factory=lambda: secrets.token_hex(4))
    _engines: list[AzureEngine] = attrs.field(factory=list)
    _entry: AppliedSpec | None = None
    """In the history, once it has begun; that of an undoing is there until it switches."""
    _frozen: int | None = None
    _beat: float = 0.0
    _etag: str | None = None

    def begin(self) -> None:
        check_models(self.transition.new, self.table)
        run_before = self.held.value.history.running
        if run_before is None:
            check_thawed(self.held.value)
        elif run_before.id != self.transition.name or self.run(self._goes_on()):
            raise StaleScript
        prefix = self.held.head.prefix
        names = {public: self._fresh(prefix + public) for public in tables_of(self.transition.new)}
        started = self.run(server_time(self.table, self.timeout))
        entry = AppliedSpec(
            self.transition.name,
            self.transition.script,
            list(self.transition.steps),
            started,
            kept=[self._catalogue, *names.values()],
        )

        def announced(catalogue: StoredCatalogue) -> Catalogue | None:
            history = catalogue.value.history
            if self._is_mine(catalogue):
                return None
            if history != self.held.value.history or self._models(catalogue.value) != self._models(self.held.value):
                raise StaleScript
            return attrs.evolve(catalogue.value, history=history.without(history.running).and_(entry))

        self._entry = entry
        self.run(changed(self.table, self.timeout, announced))
        if run_before is not None:
            self.run(deleted_tables(run_before.kept, self.timeout))
        self.run(self._say_alive())
        self.source = self._engine(self.table, self.transition.old, self.held, read_only=True)
        new = self.run(
            open_catalogue(
                self._catalogue, self.transition.new, self.timeout, self.times, names=names, owner=self.table
            )
        )
        self.target = self._engine(self._catalogue, self.transition.new, new, read_only=False)

    def run(self, work: Effects[T]) -> T:
        with store_errors(self.name):
            return self.driver.run(work)

    def _models(self, value: Catalogue) -> dict[str, ModelSpec]:
        return value.part(self.transition.ending).models

    def _engine(self, catalogue: str, schema: Schema, published: StoredCatalogue, *, read_only: bool) -> AzureEngine:
        driver, classes = self.driver.beside(), OpenClasses(schema, published)
        engine = AzureEngine(driver, self.name, classes, catalogue, self.timeout, self.times, read_only=read_only)
        self._engines.append(engine)
        return engine

    @property
    def _catalogue(self) -> str:
        return self._fresh(self.table)

    def _fresh(self, name: str) -> str:
        return fresh_table(name, self._token)

    def _is_mine(self, catalogue: StoredCatalogue) -> bool:
        running = catalogue.value.history.running
        return running is not None and self._entry is not None and running.kept == self._entry.kept

    # -- which run goes on

    def _goes_on(self) -> Effects[bool]:
        """Return whether another run of the migration said a short time ago that it goes on; then wait a second."""
        run: Entity | None = yield from read(GetEntity(self.table, _RUNS, self.transition.id), self.timeout)
        if run is None:
            return False
        return (yield from waited(self.table, int(Stamp(run[ETAG])), self.times.lease, self.timeout))

    def _say_alive(self) -> Effects[None]:
        kind = "upsert" if self._etag is None else "replace"
        change = RowChange(kind, self.transition.id, {"run": self._token}, self._etag)  # type: ignore[arg-type]
        try:
            (self._etag,) = yield from read(GroupTransaction(self.table, _RUNS, (change,)), self.timeout)
        except ErrorResponse as refusal:
            if refusal.status not in (404, 412):
                raise
            run: Entity | None = yield from read(GetEntity(self.table, _RUNS, self.transition.id), self.timeout)
            if run is None or run.get("run") != self._token:  # (else the answer to the first attempt was lost)
                raise StaleScript from None
            self._etag = run[ETAG]
        self._beat = yield from clock()

    def alive(self) -> None:
        if self.run(clock()) - self._beat > _BEAT:
            self.run(self._say_alive())

    # -- the switch

    def freeze(self) -> None:
        def frozen(catalogue: StoredCatalogue) -> Catalogue | None:
            if not self._is_mine(catalogue):
                raise StaleScript
            return None if catalogue.value.frozen is not None else attrs.evolve(catalogue.value, frozen=0)

        catalogue = self.run(changed(self.table, self.timeout, frozen))
        self._frozen = since = catalogue.value.frozen
        assert since is not None
        while self.run(waited(self.table, since, self.times.settled, self.timeout)):
            self.alive()

    def switch(self, entities: int) -> bool:
        self._settle()
        self.run(gathered(self.table, self.timeout))
        new = self.run(read_catalogue(self._catalogue, self.timeout))
        if new is None:
            raise StaleScript
        transition = attrs.evolve(self.transition, links=(), writes=False)  # (no version goes on beside the new one)
        server_now, staged = (
            self.run(server_time(self.table, self.timeout)),
            StagedCatalogue(transition.name, new.value),
        )

        def value_after(catalogue: StoredCatalogue) -> Catalogue | None:
            value = catalogue.value
            if self._has_switched(value) or (self._is_mine(catalogue) and value.frozen != self._frozen):
                return None
            if not self._is_mine(catalogue) or self._models(value) != self._models(self.held.value):
                raise StaleScript
            history, running, applied = value.history, value.history.running, value.history.current(transition.id)
            if transition.back and applied is not None:
                history = history.without(running).with_(applied, kept=[*applied.kept, self._catalogue])
            else:
                history = history.with_(running, kept=[self._catalogue])
            # (Among the classes that end are those that earlier scripts dropped, which no class declares any more.)
            ended_tables = tables_in(value.part(self.transition.ending)).values()
            draft = ActionPlan(server_now, lambda: ended_tables, renames=False)
            return switched(
                draft, attrs.evolve(value, frozen=None, staged=staged, history=history), transition, entities
            )

        applied_before = self.held.value.history.current(self.transition.id)
        catalogue = self.run(changed(self.table, self.timeout, value_after))
        if has_switched := self._has_switched(catalogue.value):
            # (What a migration that is undone had replaced is out of date, and no program has read it since that.)
            self.run(deleted_tables([] if applied_before is None else applied_before.kept, self.timeout))
        return has_switched

    def _settle(self) -> None:
        """Finish what is left of writes into the new tables, and let no request be under way any more."""
        target, since = self.target, self.run(server_time(self.table, self.timeout))
        if target.driver.has_lost:
            while self.run(waited(self.table, since, self.times.request, self.timeout)):
                self.alive()
        times = attrs.evolve(self.times, lease=0.0, grace=0.0)
        target.run(sweep(target.current, Outbox(self._catalogue, times), self.timeout))

    def _has_switched(self, value: Catalogue) -> bool:
        """Return whether this run has switched."""
        assert self._entry is not None
        last_entry = value.history.last(self.transition.id)
        if self.transition.back:
            return last_entry is not None and last_entry.undone is not None
        return last_entry is not None and last_entry.switched is not None and last_entry.started == self._entry.started

    def close(self) -> None:
        for engine in self._engines:
            engine.close()
        if self._entry is None:
            return
        self.run(abandoned(self.table, self._entry.kept, self.timeout))
