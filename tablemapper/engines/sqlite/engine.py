"""The SQLite engine: a schema over one file, everything maintained in the transaction that changes the entities."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal

import attrs

from ...catalogue.actions import ActionPlan
from ...catalogue.catalogue import Catalogue
from ...catalogue.cutover import end_stale_twins
from ...catalogue.dropping import disable, drop_class, finished, tidied
from ...catalogue.freeze import check_thawed, frozen, thawed
from ...catalogue.invariants import contradictions
from ...catalogue.registration import rebuilt, ruled_anew
from ...catalogue.transitions import BackwardConversion
from ...catalogue.zone_rules import outdated
from ...errors import CorruptStore, EntityNotFound, PreconditionFailed, SchemaMismatch, StoreReadOnly
from ...planning.capabilities import Capabilities
from ...progress import Meter
from ...schema.aggregate_model import Delta
from ...schema.maintenance import AggregateMaintenance, ChangeSet
from ...schema.model import Model, Schema
from ...schema.rows import Row
from ..check import CheckFinding, CheckReport, ConsistencyCheck, Problem, RepairReport
from ..ended import insert_over_ended, make_way
from ..protocol import Batch, BuildStep, DuplicateValue, Note, Operation, StepTiming, rows_before
from ..statistics import Statistics
from ..status import Status
from ..write_decision import missing, stale
from .driver.driver_errors import NoSuchName
from .driver.snapshots import Snapshot
from .file.database import File
from .file.opening import open_file
from .file.transactions import GenerationChanged
from .file.writer import Writer
from .online.apply_schema import as_it_is, followed, verify
from .online.dropped_tables import clear_batch
from .online.repair import Repair
from .online.status import read_status
from .online.transition_runner import CatalogueUpdate, change
from .rows.atomic_load import AtomicLoad
from .rows.build_steps import build_batch, violations
from .rows.catalogue_cache import CatalogueCache
from .rows.check import examine, examine_twins
from .rows.duplicate_values import violated
from .rows.maintenance_writer import write_changes
from .rows.mirrors import stale_twins
from .rows.partition_reader import next_partition, partition_rows
from .rows.reads import SqliteReads, retry_refreshed
from .rows.statistics import read_statistics
from .rows.truncate import clear
from .rows.writes import DeleteFoundNothing, insert, transact
from .sql.catalogue_table import READ_NOTE, SCHEMA, read_catalogue, read_generation
from .sql.schema import SqliteSchema

_FOLLOWS = 10  # times that a write follows the catalogue; after that others change it faster than this one writes
_MOST_SHARED = 100  # operations of a transaction that may share a commit: more would keep the others waiting
_BATCH = 1_000  # entities of a transaction that builds anew what could not be repaired row by row
_OUTDATED = (NoSuchName, SchemaMismatch)  # of reads by a catalogue that may not be that of the file any more
_NO_PACE = StepTiming()
_PASSES = 5  # of a repair: the last one finds that nothing is wrong any more


class SqliteEngine:
    """Keeps the rows of a schema in one SQLite file; `protocol.Engine` says what each verb does."""

    capabilities: Capabilities = Capabilities(engine="SQLite", sorts="SQLite, on disk past its cache")
    eventual: Collection[str] = ()

    def __init__(self, file: File, sqlite: SqliteSchema, *, own: bool = False) -> None:
        self.file = file
        self._own_since = sqlite.generation if own else None  # the classes are those of the file's catalogue
        self.schema: Schema = sqlite.schema
        self.store_id: str = file.store_id()
        self._current = current = CatalogueCache(file, sqlite)
        self.reads: Final = SqliteReads(file, current)
        self.catch_up: Final = current.catch_up
        self.describe: Final = current.describe
        self._ends = any(model.declaration.expiry is not None for model in sqlite.schema.models)

    @property
    def _sqlite(self) -> SqliteSchema:
        return self._current.state.sqlite

    @property
    def unready(self) -> Mapping[str, str]:
        return self._current.state.sqlite.unready

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        schema: Schema | None,
        *,
        read_only: bool = False,
        durability: Literal["full", "relaxed"] = "full",
        timeout: float = 5.0,
        ways_back: Sequence[BackwardConversion] = (),
        **options: Any,
    ) -> SqliteEngine:
        """Open a file, and make it follow the schema if that only adds to what it holds.

        Args:
            schema: what is opened; None for what the catalogue says of all classes, which can only be read.
            read_only, durability: as for `tablemapper.open`.
            ways_back: of the scripts that are known.
            options: of `open_file`: the clock, locks and VFS of a test.
        """
        file = open_file(path, read_only=read_only, durability=durability, timeout=timeout, **options)
        try:
            if read_only:
                return cls(file, file.by_writer(partial(as_it_is, schema, ways_back)), own=schema is None)
            assert schema is not None
            return cls(file, followed(file, schema, ways_back))
        except BaseException:
            file.close()
            raise

    def __repr__(self) -> str:
        return f"SQLite {self.file.path!r}"

    def now(self) -> int:
        return self.file.now()

    def close(self) -> None:
        self.file.close()

    def latest(self) -> SqliteEngine:
        if self._own_since is None:
            return self
        with self.file.snapshot() as snapshot:
            if read_generation(snapshot.read) == self._own_since:
                return self
            return SqliteEngine(self.file, as_it_is(None, (), snapshot.read, self.schema), own=True)

    def declared(self) -> Schema | None:
        self.catch_up()
        return self.usable() if self._own_since is None else None

    def usable(self) -> Schema:
        """Return the opened classes that can be used, as far as it knows."""
        return self._sqlite.schema

    def extend(self, schema: Schema) -> None:
        ways_back = self._sqlite.ways_back
        try:
            self.file.check_writable()
        except StoreReadOnly:
            sqlite = self.file.by_writer(partial(as_it_is, schema, ways_back))
        else:
            sqlite = followed(self.file, schema, ways_back)
        self._current.extend(sqlite)
        self.schema = schema

    # ------------------------------------------------------------------------------------------ reading

    def get(self, model: Model, partition: str, row: str) -> Row | None:
        key, seek = (partition, row), self.file.seek
        try:
            get = self._current.state.gets[model]
            sql = get.sql
            fetched: Row | None = seek(sql, key)
            if fetched is None or (fetched[-1] is None and sql is get.lean):
                return fetched
            return get.completed(fetched, sql, seek, key)
        except _OUTDATED:
            return retry_refreshed(self.catch_up, partial(self._get, model, key))

    def _get(self, model: Model, key: tuple[str, str]) -> Row | None:
        get = self._current.state.gets[model]
        fetched: Row | None = self.file.seek(get.sql, key)
        return None if fetched is None else get.completed(fetched, get.sql, self.file.seek, key)

    def get_many(self, wanted: Sequence[tuple[Model, str, str]], *, within: Any = None) -> list[Row | None]:
        if within is not None:
            return self._get_many(wanted, within)
        try:
            return self._get_many(wanted)
        except _OUTDATED:
            return retry_refreshed(self.catch_up, partial(self._get_many, wanted))

    def _get_many(self, requests: Sequence[tuple[Model, str, str]], within: Any = None) -> list[Row | None]:
        keys: dict[Model, list[tuple[str, str]]] = {}
        for model, partition, row_key in requests:
            keys.setdefault(model, []).append((partition, row_key))
        gets = self._current.state.gets
        if len(keys) == 1 and within is None:
            ((model, of_model),) = keys.items()
            if (few := gets[model].few(self.file.read_few, of_model)) is not None:
                return [few.get(key) for key in of_model]
        with self.file.snapshot() if within is None else nullcontext(within) as snapshot:
            rows = {
                model: gets[model].rows(snapshot.read_each, snapshot.get, of_model) for model, of_model in keys.items()
            }
        return [rows[model].get((partition, row_key)) for model, partition, row_key in requests]

    def partition(self, table: str, partition: str) -> Iterator[list[tuple[Model | None, Row]]]:
        models = self.schema.tables()[table]
        try:
            rows = partition_rows(self.file, self._sqlite, models, partition)
        except _OUTDATED:
            rows = retry_refreshed(self.catch_up, lambda: partition_rows(self.file, self._sqlite, models, partition))
        yield from rows

    def partitions(self, model: Model) -> Iterator[str]:
        """Yield the partition keys of a class in order, each found by its place behind the one before."""
        last_row: Row = ()
        while True:
            try:
                next_row = self._next_partition(model, last_row)
            except _OUTDATED:
                next_row = retry_refreshed(self.catch_up, partial(self._next_partition, model, last_row))
            if next_row is None:
                return
            last_row = next_row
            yield last_row[0]

    def _next_partition(self, model: Model, last_row: Row) -> Row | None:
        return next_partition(self.file, self._sqlite, model, last_row)

    # ------------------------------------------------------------------------------------------ writing

    def note(self, name: str) -> str | None:
        row = self.file.get(READ_NOTE, (name,))
        return None if row is None else row[0]

    def together(self, operations: Sequence[Operation]) -> int:
        """Return how many operations a transaction can hold: all."""
        return len(operations)

    def apply(
        self,
        operations: Sequence[Operation],
        *,
        maintained_limit: int | None = None,
        notes: Sequence[Note] = (),
    ) -> None:
        exclusive = bool(notes) or len(operations) > _MOST_SHARED
        states = () if exclusive or self.file.share == 1 else rows_before(operations)
        work = partial(transact, operations, states, notes, maintained_limit)
        try:
            if self._ends:
                make_way(self, operations, partial(self._write, work, exclusive=exclusive, of=operations))
            else:
                self._write(work, exclusive=exclusive, of=operations)
        except DeleteFoundNothing as vanished:
            raise self._culprit(vanished.operations) from None

    def insert(self, batches: Sequence[Batch]) -> None:
        work = partial(self._write, lambda sqlite, writer: insert(sqlite, writer, batches), of=batches)
        insert_over_ended(self, batches, work) if self._ends else work()

    def clear(self, model: Model) -> int | None:
        """Delete all entities of a class at once; return their number, or None if they have to go one by one."""
        count: int | None = None

        def write(sqlite: SqliteSchema, writer: Writer) -> None:
            nonlocal count
            count = clear(sqlite, writer, model)

        self._write(write, of=())
        return count

    def _write(
        self,
        write: Callable[[SqliteSchema, Writer], object],
        *,
        exclusive: bool = True,
        of: Iterable[Operation | Batch] | None = None,
    ) -> StepTiming:
        """Write in one transaction, by what the file holds and maintains then; return its pace if alone.

        ``of``: what changes of entities; None, if that is only what is maintained from them.
        """
        times = 0
        while True:
            sqlite = self._current.state.sqlite
            if of is not None and sqlite.stored.frozen is not None:
                self.catch_up()
                sqlite = self._sqlite
                check_thawed(sqlite.stored)
            if sqlite.stale_twins:
                sqlite = self._without_stale_twins(of or ())
            run = partial(_settled, write) if sqlite.violated else write
            try:
                if exclusive:
                    _, seconds, delay = self.file.write_alone(partial(run, sqlite), generation=sqlite.generation)
                    return StepTiming(seconds, delay)
                self.file.write(partial(run, sqlite), generation=sqlite.generation)
                return _NO_PACE
            except GenerationChanged:
                if times == _FOLLOWS:
                    raise
                times += 1
                self.catch_up()

    def _without_stale_twins(self, writes: Iterable[Operation | Batch]) -> SqliteSchema:
        """Return the schema to write with, once each twin has ended that cannot follow what is written here."""
        while twins := stale_twins(sqlite := self._sqlite, writes):
            end = partial(_end_stale_twins, [twin.migration for twin in twins])
            with suppress(GenerationChanged):  # (then it is looked at again)
                self.file.write_alone(end, generation=sqlite.generation)
            self.catch_up()
        return sqlite

    # ------------------------------------------------------------------------------------------ building

    def label(self, model: Model, index: str | None = None) -> str:
        return self._sqlite.label(model, index)

    def required_labels(self, model: Model) -> Sequence[str]:
        """Return the labels of the aggregates that a read of a class needs: itself, and what keeps its fields."""
        return self._sqlite.required_labels(model)

    def missing_fields(self, model: Model, *, eventual: bool = False) -> Mapping[str, Collection[str] | None]:
        return self._sqlite.missing_fields.get(model, {})

    def build(self, most: int, labels: Collection[str] | None) -> BuildStep | None:
        self.file.check_writable()
        built: BuildStep | None = None

        def write(sqlite: SqliteSchema, writer: Writer) -> None:
            nonlocal built
            jobs = [job for job in sqlite.all_jobs if labels is None or job.labels & set(labels)]
            if not jobs:
                if change(writer, rebuilt, labels):
                    built = BuildStep("", 0, 0, 0)
                elif labels is None:
                    built = clear_batch(writer, sqlite.stored, most)
                return
            built = build_batch(sqlite, writer, jobs[0], most)
            if built.completed:
                change(writer, finished, built.completed)

        pace = self._write(write)
        if built is None:
            return None
        if built.completed:
            self.catch_up()
        return attrs.evolve(built, pace=pace)

    def disable(self, label: str) -> None:
        """Maintain an index or an aggregate no more until `build` makes it anew."""
        self._publish(partial(disable, label=label))

    def violations(self, most: int) -> tuple[DuplicateValue, ...]:
        with self.file.snapshot() as snapshot:
            return violations(self._sqlite, snapshot.read, most)

    def drop(self, model: Model, meter: Meter) -> None:
        """Let a class leave the file; its tables are emptied by `build`, in short transactions."""
        name, opened_names = self._sqlite.names.get(model, model.name), {member.name for member in self.schema.models}

        def transition(draft: ActionPlan, catalogue: Catalogue) -> Catalogue:
            check_thawed(catalogue)
            return drop_class(draft, catalogue, name, opened_names)

        self._publish(transition)

    def load(self, windows: Iterable[Sequence[Batch]], meter: Callable[[str, int | None], Meter]) -> int:
        with AtomicLoad() as rows:
            with meter("sorting", None) as sorting:
                for window in windows:
                    rows.add(window)
                    sorting.advance(sum(batch.count for batch in window))
            with meter("insert_many", rows.count) as writing:
                of = [Batch(model) for model in rows.models]
                self._write(lambda sqlite, writer: rows.write(sqlite, writer, writing), of=of)
            return rows.count

    def _culprit(self, deletes: Sequence[Operation]) -> EntityNotFound | PreconditionFailed:
        """Return the error of the first of some deletes that is not possible."""
        for operation in deletes:
            if (row := self.get(operation.model, *operation.key)) is None:
                return missing(operation)
            if operation.old is not None and row[2] != operation.old[2]:
                return stale(operation, row)
        return missing(deletes[0])

    # ------------------------------------------------------------------------------------------ care

    def _ruled_anew(self) -> set[str]:
        """Give up what is maintained by other rules of a time zone; return the labels of what is to be built."""
        given_up = set[str]()

        def write(sqlite: SqliteSchema, writer: Writer) -> None:
            update = CatalogueUpdate(writer)
            updated = update.take(ruled_anew, newer_too=True)
            if update.publish():
                given_up.update(label for label, form in updated.states.items() if form.state == "disabled")

        catalogue = self._sqlite.stored
        if any(outdated(part, newer_too=True) for part in catalogue.parts):
            self._write(write, exclusive=True)
            self.catch_up()
        return given_up

    def statistics(self, model: Model, recent: timedelta, top: int, meter: Meter) -> Statistics:
        while True:
            with self.file.snapshot(cold=True) as snapshot:
                sqlite = self._sqlite
                if read_generation(snapshot.read) == sqlite.generation:
                    self._current.check_ready(sqlite, model)
                    return read_statistics(sqlite, snapshot, model, recent, top, meter)
            self.catch_up()

    def freeze(self, meter: Meter) -> None:
        self._publish(frozen)

    def unfreeze(self) -> None:
        self._publish(thawed)

    def _publish(self, transition: Callable[[ActionPlan, Catalogue], Catalogue]) -> None:
        self.file.check_writable()
        self._write(lambda sqlite, writer: change(writer, transition))
        self.catch_up()

    def status(self) -> Status:
        with self.file.snapshot() as snapshot:
            return read_status(snapshot.read, self.schema.models)

    def check(self, meter: Meter) -> CheckReport:
        with self.file.snapshot(cold=True) as snapshot:
            sqlite, damage, check, findings = self._examine(snapshot, meter)
            twin_findings, unchecked = examine_twins(sqlite, snapshot.each, damage)
            return attrs.evolve(check.report([*findings, *twin_findings]), unchecked=unchecked)

    def repair(self, meter: Meter) -> RepairReport:
        self.file.check_writable()
        start = time.monotonic()
        to_rebuild = self._ruled_anew()
        with Repair(self.file) as repair:
            passes = 0
            while True:
                passes += 1
                with self.file.snapshot(cold=True) as snapshot:
                    sqlite, damage, check, findings = self._examine(snapshot, meter)
                    fixes = [] if damage else repair.plan(sqlite, check, findings, snapshot.each)
                if not fixes:
                    break
                broken = repair.to_build_anew(sqlite, check, findings)
                if broken and passes < _PASSES and not sqlite.guests:  # (nothing is built in a twin)
                    for label, problems in broken.items():
                        self.disable(label)
                        repair.repaired.update(dict.fromkeys(problems))
                    to_rebuild |= broken.keys()
                    continue
                with suppress(GenerationChanged):  # the next pass is by the catalogue as it is then
                    repair.run(sqlite, fixes)
                if passes == _PASSES:
                    break
        while to_rebuild and self.build(_BATCH, to_rebuild) is not None:
            pass
        unresolved = tuple(dict.fromkeys(repair.unresolved(findings, untouched=bool(damage))))
        still = {(problem.where, problem.key) for problem in unresolved}
        repaired = tuple([problem for problem in repair.repaired if (problem.where, problem.key) not in still])
        return RepairReport(repaired, unresolved, check.entity_count, time.monotonic() - start)

    def _examine(
        self, snapshot: Snapshot, meter: Meter
    ) -> tuple[SqliteSchema, list[str], ConsistencyCheck, list[CheckFinding]]:
        """Return what one state holds, what is wrong with the file, the check of the rest, and what that found."""
        damage = self.file.integrity(snapshot)
        sqlite, until, wrong = self._sqlite, 0, list[str]()
        try:
            generation, until = snapshot.get("SELECT generation, until FROM tablemapper_state") or (0, 0)
            catalogue = read_catalogue(snapshot.read)
            if generation != sqlite.generation:
                sqlite = SqliteSchema(self.schema, catalogue, generation, self._sqlite.ways_back)
            wrong += contradictions(catalogue, verify(snapshot.read(SCHEMA), sqlite, catalogue))
        except CorruptStore as error:
            damage.append(str(error))
        check, findings = examine(sqlite, snapshot.each, damage, until, meter)
        findings += [CheckFinding(Problem("wrong", "catalogue", (), line)) for line in wrong]
        return sqlite, damage, check, findings

    def compact(self, meter: Meter) -> None:
        """Write the file anew without the space that is free in it; nobody else may have it open."""
        self.file.compact(lambda: meter.advance(0), lambda writer: change(writer, tidied))
        self.catch_up()

    def with_stored_fields(self, model: Model) -> Model:
        return self._sqlite.with_stored_fields(model)

    def widen(self, aggregate: AggregateMaintenance, groups: Mapping[tuple[str, str], Delta]) -> None:
        by_key = attrs.evolve(aggregate, key=lambda key: key)

        def write(sqlite: SqliteSchema, writer: Writer) -> None:
            write_changes(sqlite, writer, ChangeSet(groups={by_key: dict(groups)}))

        self._write(write, of=())

    def backup(self, path: str, meter: Meter) -> None:
        reported = 0

        def tell(copied: int, total: int) -> None:
            nonlocal reported
            meter.advance(copied - reported)
            reported = copied

        self.file.backup(path, tell)


def _end_stale_twins(migrations: Collection[str], writer: Writer) -> None:
    """End the twins that this process cannot keep in step with what it is about to write."""
    change(writer, end_stale_twins, migrations)


def _settled(write: Callable[[SqliteSchema, Writer], object], sqlite: SqliteSchema, writer: Writer) -> None:
    """Write, and make violated indexes ready that have no duplicates any more."""
    write(sqlite, writer)
    if settled := [label for label in sqlite.violated if not violated(writer, label)]:
        change(writer, finished, settled)
