"""The engine for Azure Table storage: what lies in one partition changes in one transaction.

A store is created by the first who opens it. Its classes follow the catalogue: a process looks at the head of that
before it writes, or reads an index, if it has not for some seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from ...catalogue.freeze import check_thawed
from ...catalogue.zone_rules import outdated
from ...entities.key_and_indexes import IndexModel
from ...errors import StoreClosed, StoreReadOnly
from ...limits import MAX_KEY_UNITS, utf16_units
from ...planning.capabilities import Capabilities
from ...progress import Meter
from ...schema.aggregate_model import Delta
from ...schema.maintenance import AggregateMaintenance
from ...schema.model import Model, Schema, is_local
from ...schema.rows import Row
from ..check import CheckFinding, CheckReport, ConsistencyCheck, Problem, RepairReport
from ..ended import insert_rest, make_way, microseconds
from ..protocol import Batch, BuildStep, DuplicateValue, Note, Operation, PendingBuild
from ..status import Status, status_of
from .builds import Builder, BuildProgress, progress
from .catalogue.adoption import Adopted, check_adopted
from .catalogue.notes import change_of, noted, write_notes
from .catalogue.open_classes import CatalogueRefresher, OpenClasses
from .catalogue.opening import as_it_is, given_up, open_catalogue
from .catalogue.placement import check_models
from .catalogue.publication import changed
from .check import AzureCheckView, Group, held
from .clearing import cleared
from .cross_partition.outbox import Deadline, Outbox, Timing
from .dropping import deleted, dropped, erased
from .freeze_barrier import announce, unfreeze, wait
from .group_writer import GroupWriter
from .housekeeping import Housekeeper
from .partition_reader import partitions_of, rows_with_models
from .reading.reads import AzureReads
from .recovery import sweep, unfinished, waited
from .repair import ConditionalRepair, add_uncounted, left_of
from .tables.background import Background
from .tables.driver import Driver, Effects, clock, in_batches, read, server_time, side_by_side, store_errors
from .tables.reserved_names import CATALOGUE
from .tables.service import (
    MAX_CHANGES,
    MAX_PAGE,
    Entity,
    GetEntity,
    Service,
)
from .writing.batch_writes import insert
from .writing.duplicate_notes import by_value, violations
from .writing.late_writes import write_in_time

T = TypeVar("T")
_PASSES = 6  # of a repair; the last one only looks

CAPABILITIES = Capabilities(
    engine="Azure Tables",
    backward=False,
    sorts="",
    across_partitions=False,
    all_or_none_load=False,
    join_costs=True,
    quick_reads=False,
)


class AzureEngine:
    """Keeps the rows of a schema in the tables of an account; `protocol.Engine` says what each verb does."""

    capabilities = CAPABILITIES

    def __init__(
        self,
        driver: Driver,
        name: str,
        classes: OpenClasses,
        catalogue: str,
        timeout: float,
        times: Timing,
        *,
        read_only: bool = False,
        own: bool = False,
        background: type[Background] | None = None,
        now: Callable[[], int] = microseconds,
    ) -> None:
        self.schema: Schema = classes.schema
        self._own_since = classes.head.generation if own else None  # the classes are those of the catalogue
        self.store_id: str = classes.head.id
        self.timeout = timeout
        self.read_only = read_only
        self._now = now
        self.reads: Final = AzureReads(self)
        self.driver: Final = driver
        outbox, began = Outbox(catalogue, classes.head.times(times)), driver.run(clock())
        self._name, self._table, self._outbox = name, catalogue, outbox
        self.current: Final = CatalogueRefresher(catalogue, classes, began, outbox.times, timeout, read_only=read_only)
        driver.names = lambda: self.current.known.names
        self._look = lambda table: self.driver.run(self.current.look()).check_dropped(table)
        self._builder = Builder(catalogue, self.current, self._outbox, OpenClasses.most_new, timeout)
        self._housekeeper = Housekeeper(self._run, self.current, self._outbox, timeout, background=background)
        self._closed = False
        self._process = os.getpid()

    @classmethod
    def open(
        cls,
        service: Service,
        name: str,
        schema: Schema | None,
        *,
        read_only: bool = False,
        catalogue: str = CATALOGUE,
        adopt: Adopted = False,
        timeout: float = 30.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        times: Timing | None = None,
        background: type[Background] | None = None,
        now: Callable[[], int] = microseconds,
    ) -> AzureEngine:
        """Open the store of an account, or create it.

        Args:
            service: sends requests to the account.
            name: of the account, for messages.
            schema: what is opened; None for what the catalogue says of all classes, which can only be read.
            read_only: whether nothing is ever written, not even the catalogue.
            catalogue: the table of the catalogue; where it has a name of its own, new tables begin with that.
            adopt: the tables that may hold rows already, by ``table=``; True: all.
            timeout: seconds after which to give up, if no answer comes.
            monotonic, sleep, now: the clocks; the last one, in µs since 1970, says what has ended.
            times: how long things last; for how long the catalogue is believed says who opened the store first.
            background: what does soon what is left behind writes; None: a write does it before it returns.

        Raises:
            InvalidModel: a class needs more than one partition has.
            SchemaMismatch, NotAStore, StoreError
            ValueError: no class has a table that is to be adopted.
        """
        prefix = "" if catalogue.lower() == CATALOGUE.lower() else catalogue
        if schema is not None:
            check_models(schema, catalogue)
            check_adopted(schema, adopt)
        driver = Driver(service, monotonic=monotonic, sleep=sleep)
        times = times or Timing()
        try:
            with store_errors(name):
                if read_only:
                    compiled, published = driver.run(as_it_is(catalogue, schema, timeout, prefix=prefix, adopt=adopt))
                    classes, is_own = OpenClasses(compiled, published), schema is None
                    return cls(driver, name, classes, catalogue, timeout, times, read_only=True, own=is_own, now=now)
                assert schema is not None
                published = driver.run(open_catalogue(catalogue, schema, timeout, times, prefix=prefix, adopt=adopt))
                classes = OpenClasses(schema, published)
                engine = cls(driver, name, classes, catalogue, timeout, times, background=background, now=now)
                driver.run(erased(catalogue, published.value, engine._outbox.times, timeout))
                if adopt and "disabled" in classes.unready.values():  # (of a catalogue that was lost)
                    driver.run(sweep(engine.current, engine._outbox, timeout, full=True))
                return engine
        except BaseException:
            driver.close()
            raise

    def __repr__(self) -> str:
        prefix = self.current.known.head.prefix
        return f"Azure Tables {self._name}{prefix and f' {prefix}…'}"

    def now(self) -> int:
        return self._now()

    def close(self) -> None:
        """Delete the intents of what is written, and close the connections. Safe to call twice."""
        if not self._closed and os.getpid() == self._process:
            self._housekeeper.close()
        self._closed = True
        self.driver.close()

    def run(self, work: Effects[T]) -> T:
        self._check_open()
        with self._housekeeper.behind():
            return self._run(work)

    def _run(self, work: Effects[T]) -> T:
        with store_errors(self._name, self._look):
            return self.driver.run(work)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed; open it again")
        if os.getpid() != self._process:
            raise StoreClosed("the store belongs to the parent of this forked process; open it here")

    def begin(self, work: Effects[T]) -> Callable[[], T]:
        self._check_open()
        result = self.driver.begin(work)

        def wait() -> T:
            with store_errors(self._name, self._look):
                return result()

        return wait

    def is_local(self, model: Model, index: IndexModel) -> bool:
        return is_local(model, index)

    # ------------------------------------------------------------------------------------------ following

    @property
    def classes(self) -> OpenClasses:
        """The classes as the catalogue has them, which is looked at from time to time."""
        return self.run(self.current.classes())

    @property
    def _classes(self) -> OpenClasses:
        """The classes as they were known last, for what does not depend on what others change."""
        return self.current.known

    @property
    def table_names(self) -> Mapping[str, str]:
        return self._classes.names

    @property
    def unready(self) -> Mapping[str, str]:
        """The indexes and aggregates that cannot be read yet, as the catalogue has them."""
        return self.classes.unready

    def catch_up(self) -> None:
        self.run(self.current.look())

    def latest(self) -> AzureEngine:
        """Return an engine with the classes that the catalogue has by now; this one if they are the same.

        The catalogue is looked at as often as by `classes`.
        """
        if self._own_since is None or self.classes.head.generation == self._own_since:
            return self
        compiled, published = self.run(as_it_is(self._table, None, self.timeout, self.schema))
        classes, times = OpenClasses(compiled, published), self._outbox.times
        place = self.driver, self._name, classes, self._table, self.timeout, times
        return AzureEngine(*place, read_only=self.read_only, own=True, now=self._now)

    def declared(self) -> Schema | None:
        return self.run(self.current.look()).schema if self._own_since is None else None

    def usable(self) -> Schema:
        """Return the opened classes that can be used, as far as it knows."""
        return self._classes.schema

    def extend(self, schema: Schema) -> None:
        check_models(schema, self._table)
        self.run(self.current.extend(schema))
        self.schema = schema

    def _check_writable(self) -> None:
        if self.read_only:
            raise StoreReadOnly(f"{self._name} was opened with read_only=True; open it without that to write")

    # ------------------------------------------------------------------------------------------ reading

    def get(self, model: Model, partition: str, row: str) -> Row | None:
        if utf16_units(partition) > MAX_KEY_UNITS or utf16_units(row) > MAX_KEY_UNITS:
            return None  # (the service refuses to look for it)
        return self.get_many([(model, partition, row)])[0]

    def _check_ready(self, model: Model, classes: OpenClasses) -> None:
        """Refuse to read groups that are not complete, and the fields that these keep."""
        labels = classes.required_labels(model)
        if labels and not classes.unready.keys().isdisjoint(labels):  # (it may be built anew since)
            self.catch_up()
            for label in labels:
                if label in self._classes.unready:
                    raise self.describe(label).error()

    def _row(self, model: Model, entity: Entity) -> Row | None:
        """Return the row of an entity, unless it is one of another class or program, or a group that is not there."""
        classes = self._classes
        return classes.codec(model).read(entity) if classes.is_of(model, entity) else None

    def get_many(self, wanted: Sequence[tuple[Model, str, str]], *, within: Any = None) -> list[Row | None]:
        """Return rows, each as it is when it is read."""
        classes = self.run(self.current.for_keys())  # (a migration may have replaced their tables)
        for model in dict.fromkeys([model for model, _, _ in wanted]):
            self._check_ready(model, classes)
        gets = [read(GetEntity(model.table, partition, row), self.timeout) for model, partition, row in wanted]
        keepers = [(at, keeper) for at, (model, *_) in enumerate(wanted) for keeper in classes.keepers(model)]
        gets += [read(GetEntity(keeper.table, *wanted[at][1:]), self.timeout) for at, keeper in keepers]
        entities = self.run(side_by_side(gets))
        for (at, keeper), group in zip(keepers, entities[len(wanted) :], strict=True):
            if entities[at] is not None:
                entities[at] = {**entities[at], **keeper.members(group)}
        pairs = zip(wanted, entities, strict=False)
        return [None if entity is None else self._row(model, entity) for (model, _, _), entity in pairs]

    def partition(self, table: str, partition: str) -> Iterator[list[tuple[Model | None, Row]]]:
        classes, members = self.classes, self.schema.tables().get(table, [])
        for cls in [cls for cls in members if cls.aggregate is None]:
            self._check_ready(cls, classes)
        yield from rows_with_models(self, classes, members, table, partition)

    def partitions(self, model: Model) -> Iterator[str]:
        """Yield the partition keys of a class in order: a request for each."""
        return partitions_of(self, lambda: self.classes, model)

    # ------------------------------------------------------------------------------------------ writing

    def note(self, name: str) -> str | None:
        return self.run(noted(self._table, name, self.timeout))

    def together(self, operations: Sequence[Operation]) -> int:
        first = operations[0]
        count, rows = 0, 1 + self._classes.has_intent(first.model)  # (a note, and an intent)
        for op in operations:
            rows += self._classes.most_rows(op.model)
            if (op.model.table, op.partition) != (first.model.table, first.partition) or rows > MAX_CHANGES:
                break
            count += 1
        return max(count, 1)

    def apply(
        self, operations: Sequence[Operation], *, maintained_limit: int | None = None, notes: Sequence[Note] = ()
    ) -> None:
        """Apply operations of one table and partition in one transaction, with all that is maintained from them."""
        self._check_writable()
        if notes:
            check_thawed(self.classes.catalogue, [operation.model.name for operation in operations])
            if not operations:
                self.run(write_notes(self._table, notes, self.timeout))
        if operations:
            first = operations[0]
            for operation in operations:
                if (operation.model.table, operation.partition) != (first.model.table, first.partition):
                    self.capabilities.check_across(f"{operation} with {first}")
            place, timeout, limit = (first.model.table, first.partition), self.timeout, maintained_limit
            note_changes = [partial(change_of, self._table, note, place, timeout) for note in notes]
            options: Any = {"maintained_limit": limit, "timeout": timeout, "beside": note_changes}
            work = partial(write_in_time, self.current, operations, self._outbox, **options)
            make_way(self, operations, lambda: self.run(self.current.by_newest(lambda _: work())))

    def insert(self, batches: Sequence[Batch]) -> None:
        """Insert new entities: each transaction is of one partition, and those of several go side by side.

        An error says as ``written`` how many were written; the rest is not.
        """
        self._check_writable()
        all_operations = [batch.operations() for batch in batches]
        counts: list[int] = []
        try:
            for batch, operations in zip(batches, all_operations, strict=True):
                options = self._outbox, self.classes.most_new(batch.model), self.timeout, counts
                insert_rest(self, operations, partial(self._insert, options))
        except BaseException as error:
            error.written = sum(counts)  # type: ignore[attr-defined]
            raise
        for batch, operations in zip(batches, all_operations, strict=True):
            batch.take(operations)

    def _insert(self, options: tuple[Any, ...], operations: Sequence[Operation]) -> None:
        self.run(insert(self.current, operations, *options))

    def clear(self, model: Model) -> int | None:
        """Replace the tables of a class with very many entities; return None if these are to be deleted one by one."""
        self._check_writable()
        return self.run(cleared(self.current, self._outbox, model.name, self.timeout))

    def drop(self, model: Model, meter: Meter) -> None:
        """Let a class leave the store, and delete its tables once every program knows."""
        self._check_writable()
        since = self.run(dropped(self._table, model.name, self.schema.by_name, self.timeout))
        self.catch_up()
        while self.run(waited(self._table, since, self._outbox.times.settled, self.timeout)):
            meter.advance(0)
        self.run(deleted(self._table, model.name, self.classes.catalogue, self.timeout))

    # ------------------------------------------------------------------------------------------ what is maintained

    def required_labels(self, model: Model) -> Sequence[str]:
        """Return the labels of what has to be ready for a class to be read: an aggregate itself, and what keeps fields."""
        return self._classes.required_labels(model)

    def label(self, model: Model, index: str | None = None) -> str:
        return model.name if index is None else f"{model.name}.{index}"

    def missing_fields(self, model: Model, *, eventual: bool = False) -> Mapping[str, Collection[str] | None]:
        return self._classes.missing_fields(model, eventual=eventual)

    @property
    def eventual(self) -> Collection[str]:
        """The aggregates in other partitions than their entities, by label."""
        return {aggregate.model.name for aggregate in self._classes.outer_aggregates}

    def sweep(self, meter: Meter, *, full: bool = False) -> int:
        """Finish or undo what writers left in other partitions."""
        self._check_writable()
        self.run(erased(self._table, self._classes.catalogue, self._outbox.times, self.timeout))
        return self.run(sweep(self.current, self._outbox, self.timeout, full=full))

    def describe(self, label: str) -> PendingBuild:
        state = self._classes.unready.get(label, "ready")
        return PendingBuild(label, state, self._build_counts().get(label, 0), 0)

    def _build_counts(self) -> dict[str, int]:
        """Return how many entities were looked at for what is being built, by label."""
        jobs = self._classes.catalogue.jobs
        states: list[BuildProgress] = self.run(progress(self._table, [job.name for job in jobs], self.timeout))
        return {label: state.done for job, state in zip(jobs, states, strict=True) for label in job.targets}

    def build(self, most: int, labels: Collection[str] | None) -> BuildStep | None:
        """Build the next entities of a job, at most ``most``, or wait for other processes; None if nothing is to be built."""
        self._check_writable()
        return self.run(self._builder.step(most, labels))

    def violations(self, most: int) -> tuple[DuplicateValue, ...]:
        duplicates = self.run(violations(self._table, self.timeout)) if "violated" in self.unready.values() else []
        return tuple(by_value(duplicates)[:most])

    def freeze(self, meter: Meter) -> None:
        """Let no program change entities any more, and wait until each one knows."""
        self._check_writable()
        self.run(announce(self._table, self.timeout))
        while self.run(wait(self._table, self.current, self._outbox.times.settled, self.timeout)):
            meter.advance(0)

    def unfreeze(self) -> None:
        self._check_writable()
        self.run(unfreeze(self._table, self.timeout))
        self.catch_up()

    def status(self) -> Status:
        catalogue, duplicate_counts = self.classes.catalogue, dict[str, int]()
        if "violated" in self._classes.unready.values():
            for duplicate in by_value(self.run(violations(self._table, self.timeout))):
                duplicate_counts[duplicate.index] = duplicate_counts.get(duplicate.index, 0) + 1
        built = {label: (count, 0) for label, count in self._build_counts().items()}
        return status_of(catalogue, self._classes.head.generation, built, duplicate_counts)

    def check(self, meter: Meter) -> CheckReport:
        """Compare everything that is maintained with the entities; what is written meanwhile may be reported."""
        check, findings, view = self._examined(meter)
        return check.report(findings, view.foreign())

    def _examined(self, meter: Meter) -> tuple[ConsistencyCheck, list[CheckFinding], AzureCheckView]:
        classes = self.classes
        self._housekeeper.flush()
        maintained = {model: [(classes.ready(model), None)] for model in classes.models}
        view = held(self, classes)
        check = ConsistencyCheck(maintained, view, None, meter, view.is_counted)
        server_now = None if self.read_only else self.run(server_time(self._table, self.timeout)) if view.intents else 0
        own_findings = [*view.damaged, *unfinished(view.intents, self._outbox.times, server_now)]
        return check, list(check.findings(own_findings)), view

    def repair(self, meter: Meter) -> RepairReport:
        """Make everything that is maintained what the entities say, by the rules of time zones that are here.

        A group in another partition than its entities may be behind them while others write. So it counts as wrong if it
        still is some time later, and nobody has written it. Then its aggregate is built anew.
        """
        self._check_writable()
        began, repaired, refusals = self.run(clock()), dict[Problem, None](), dict[Problem, str]()
        if ruled := outdated(self.classes.catalogue, newer_too=True):
            self._build_anew(ruled, meter)
        passes_left, wrong = _PASSES, dict[Group, Any]()
        while True:
            passes_left -= 1
            check, findings, view = self._examined(meter)
            works = list(ConditionalRepair(view.classes, self._outbox, self.timeout).of(findings))
            prior, wrong = wrong, view.wrong(findings)
            problems = dict.fromkeys([finding.problem for finding in findings])
            uncounted = [missed for missed in problems if missed.kind == "uncounted" and missed not in refusals]
            if not passes_left or not (works or wrong or uncounted):
                break
            repaired |= problems
            if uncounted:
                refusals |= self.run(add_uncounted(self.current, uncounted, self._outbox, self.timeout))
                continue
            self.run(in_batches(works))
            if broken := {agg.model.name for (agg, key), etag in wrong.items() if prior.get((agg, key), 0) == etag}:
                self._build_anew(broken, meter)
            elif wrong:
                since, seconds = self.run(server_time(self._table, self.timeout)), self._outbox.times.deadline
                while self.run(waited(self._table, since, seconds, self.timeout)):
                    meter.advance(0)
        still = {finding.problem for finding in findings}
        repaired_problems = tuple([problem for problem in repaired if problem not in still])
        remaining = tuple(dict.fromkeys([left_of(finding, view.classes, refusals) for finding in findings]))
        return RepairReport(repaired_problems, remaining, check.entity_count, self.run(clock()) - began)

    def _build_anew(self, labels: Collection[str], meter: Meter) -> None:
        self.run(changed(self._table, self.timeout, partial(given_up, labels=labels)))
        while self.build(MAX_PAGE, labels) is not None:
            meter.advance(0)

    def with_stored_fields(self, model: Model) -> Model:
        return self.classes.stored(model)

    def widen(self, aggregate: AggregateMaintenance, groups: Mapping[tuple[str, str], Delta]) -> None:
        self._check_writable()
        check_thawed(self.classes.catalogue)
        patience = Deadline(self.run(clock()) + min(self.timeout, self._outbox.times.deadline))
        overwriter = GroupWriter(self.classes, self._outbox, patience, self.timeout)
        upkeep = self.classes.upkeep(aggregate)
        self.run(side_by_side([overwriter.widened(upkeep, key, delta) for key, delta in groups.items()]))
