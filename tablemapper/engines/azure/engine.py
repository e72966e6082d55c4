"""The engine for Azure Table storage: what lies in one partition changes in one transaction.

A store is created by the first who opens it. Its classes follow the catalogue: a process looks at the head of that
before it writes, or reads an index, if it has not for some seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import attrs

from ...entities.declaration import IndexModel
from ...entities.etag import Stamp
from ...errors import CorruptStore, InvalidTransaction, NotReady, StoreClosed, StoreError, StoreReadOnly
from ...keys.codec import key_codec
from ...limits import MAX_KEY_UNITS, utf16_units
from ...planning.capabilities import Capabilities
from ...progress import Meter
from ...schema.groups import Delta
from ...schema.maintenance import AggregateMaintenance
from ...schema.model import Model, Schema, is_local
from ...schema.rows import Row
from ..check import Check, Finding, Problem, RepairReport, Report
from ..protocol import Batch, Built, Note, NoteChanged, Operation, Unready, Violation
from ..status import Item, Status
from .catalogue import Classes, as_it_is, check_models, open_catalogue, read_catalogue, read_head
from .check import held
from .outer.outbox import Outbox
from .reading.filters import visible
from .reading.reads import AzureReads, rows_of
from .repair import Fixes
from .rounds import insert
from .sweep import server_time, sweep, unfinished
from .tables.drive import Driver, Now, Work, read, side_by_side
from .tables.names import BELOW, CATALOGUE
from .tables.rows import shown
from .tables.service import (
    ETAG,
    MAX_CHANGES,
    PARTITION,
    ROW,
    Change,
    Commit,
    Comparison,
    Entity,
    Every,
    Filter,
    Find,
    Get,
    Lost,
    Page,
    Refused,
    Service,
    properties,
)
from .widening import widened
from .writes import write

__all__ = ["AzureEngine"]

T = TypeVar("T")
_PASSES = 5  # of a repair
_TOGETHER = 16  # fixes
_LOOK = 10.0  # seconds for which the head of the catalogue is believed
_PIECE = 30_000  # characters of a note in one property
_NONE: Mapping[str, str] = {}
encode = key_codec(str).encode

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
    """Keeps the rows of a schema in the tables of an account."""

    capabilities = CAPABILITIES
    unready = _NONE

    def __init__(
        self,
        driver: Driver,
        name: str,
        classes: Classes,
        catalogue: str,
        timeout: float,
        *,
        read_only: bool = False,
        own: bool = False,
    ) -> None:
        self.schema: Schema = classes.schema
        self._own_since = classes.catalogue.head.generation if own else None  # the classes are those of the catalogue
        self.store_id = classes.catalogue.head.id
        self.timeout = timeout
        self.read_only = read_only
        self.reads = AzureReads(self)
        self._driver = driver
        self._name = name
        self._table = catalogue
        self._classes = classes
        self._outbox = Outbox(catalogue)
        self._looked = driver.run(_now())
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
        timeout: float = 30.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> AzureEngine:
        """Open the store of an account, or create it.

        Args:
            service: sends requests to the account.
            name: of the account, for messages.
            schema: what is opened; None for what the catalogue says of all classes, which can only be read.
            read_only: whether nothing is ever written, not even the catalogue.
            catalogue: the table of the catalogue.
            timeout: seconds after which to give up, if no answer comes.
            monotonic, sleep: the clock.

        Raises:
            InvalidModel: a class needs more than one partition has.
            SchemaMismatch, NotAStore, StoreError
        """
        if schema is not None:
            check_models(schema, catalogue)
        driver = Driver(service, monotonic=monotonic, sleep=sleep)
        try:
            if read_only:
                return cls(
                    driver,
                    name,
                    _run(driver, name, as_it_is(catalogue, schema, timeout)),
                    catalogue,
                    timeout,
                    read_only=True,
                    own=schema is None,
                )
            assert schema is not None
            return cls(driver, name, _run(driver, name, open_catalogue(catalogue, schema, timeout)), catalogue, timeout)
        except BaseException:
            driver.close()
            raise

    def __repr__(self) -> str:
        return f"Azure Tables {self._name}"

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._closed = True
        self._driver.close()

    def run(self, work: Work[T]) -> T:
        """Return what a work returns."""
        self._check_open()
        return _run(self._driver, self._name, work)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed; open it again")
        if os.getpid() != self._process:
            raise StoreClosed("the store belongs to the parent of this forked process; open it here")

    def begin(self, work: Work[T]) -> Callable[[], T]:
        """Begin a work; return what waits for what it returns."""
        self._check_open()
        return partial(_told, self._name, self._driver.begin(work))

    def is_local(self, model: Model, index: IndexModel) -> bool:
        """Return whether the rows of an index lie in the partitions of the entities."""
        return is_local(model, index)

    # ------------------------------------------------------------------------------------------ following

    @property
    def classes(self) -> Classes:
        """The classes as the catalogue has them, which is looked at from time to time."""
        if self._driver.run(_now()) - self._looked > _LOOK:
            self.catch_up()
        return self._classes

    def catch_up(self) -> None:
        """See what other processes have declared since."""
        now = self._driver.run(_now())
        head = self.run(read_head(self._table, self.timeout))
        if head is not None and head.generation != self._classes.catalogue.head.generation:
            self._classes = self.run(self._followed())
        self._looked = now

    def latest(self) -> AzureEngine:
        """Return an engine with the classes that the catalogue has by now; this one if they are the same.

        The catalogue is looked at as often as by `classes`.
        """
        if self._own_since is None:
            return self
        generation = self._classes.catalogue.head.generation
        if (now := self._driver.run(_now())) - self._looked > _LOOK:
            head = self.run(read_head(self._table, self.timeout))
            generation = self._own_since if head is None else head.generation
            self._looked = now
        if generation == self._own_since:
            return self
        found = self.run(as_it_is(self._table, None, self.timeout, self.schema))
        return AzureEngine(
            self._driver, self._name, found, self._table, self.timeout, read_only=self.read_only, own=True
        )

    def _followed(self) -> Work[Classes]:
        if self.read_only and (found := (yield from read_catalogue(self._table, self.timeout))) is not None:
            return Classes(self.schema, found)
        return (yield from open_catalogue(self._table, self.schema, self.timeout))

    def _check_writable(self) -> None:
        if self.read_only:
            raise StoreReadOnly(f"{self._name} was opened with read_only=True; open it without that to write")

    # ------------------------------------------------------------------------------------------ reading

    def get(self, model: Model, partition: str, row: str) -> Row | None:
        """Return one row, or None."""
        if utf16_units(partition) > MAX_KEY_UNITS or utf16_units(row) > MAX_KEY_UNITS:
            return None  # (the service refuses to look for it)
        found = self.run(read(Get(model.table, partition, row), self.timeout))
        return None if found is None else self._row(model, found)

    def _row(self, model: Model, entity: Entity) -> Row | None:
        """Return the row of an entity, unless it is one of another class of the table, or a group that is not there."""
        if BELOW in entity:
            return None
        claimed = self._classes.claims(model, entity[PARTITION], entity[ROW])
        return self._classes.codec(model).row(entity) if claimed else None

    def get_many(self, wanted: Sequence[tuple[Model, str, str]]) -> list[Row | None]:
        """Return rows, each as it is when it is read."""
        gets = [read(Get(model.table, partition, row), self.timeout) for model, partition, row in wanted]
        found = self.run(side_by_side(gets))
        pairs = zip(wanted, found, strict=True)
        return [None if one is None else self._row(model, one) for (model, _, _), one in pairs]

    def partition(self, table: str, partition: str) -> Iterator[list[tuple[Model | None, Row]]]:
        """Yield every row of a partition with its model, in row order."""
        classes = self.classes
        models = self.schema.tables().get(table, [])
        for entity in rows_of(self, table, Comparison(PARTITION, "eq", "String", partition), visible()):
            if BELOW in entity:
                continue
            key = entity[PARTITION], entity[ROW]
            model = next((one for one in models if classes.claims(one, *key)), None)
            if model is not None:
                yield [(model, classes.codec(model).row(entity))]
            else:
                yield [(None, (*key, Stamp(entity[ETAG]), shown(entity)))]

    def partitions(self, model: Model) -> Iterator[str]:
        """Yield the partition keys of a class in order: a request for each."""
        last: str | None = None
        while True:
            beyond = [] if last is None else [Comparison(PARTITION, "gt", "String", last)]
            page: Page
            find = Find(model.table, _every(*beyond, visible()), (PARTITION, ROW, BELOW), 1)
            page = self.run(read(find, self.timeout))
            while not page.entities and page.after is not None:
                page = self.run(read(Find(find.table, find.where, find.select, 1, page.after), self.timeout))
            if not page.entities:
                return
            partition: str = page.entities[0][PARTITION]
            last = partition
            of_one = Comparison(PARTITION, "eq", "String", partition)
            rows = [page.entities[0]] if self.classes.claims(model, partition, page.entities[0][ROW]) else ()
            if any(
                self.classes.claims(model, partition, one[ROW])
                for one in rows or rows_of(self, model.table, of_one, visible())
            ):
                yield partition

    # ------------------------------------------------------------------------------------------ writing

    def note(self, name: str) -> str | None:
        """Return what is noted under a name."""
        return self.run(self._note(name))[0]

    def _note(self, name: str) -> Work[tuple[str | None, str | None]]:
        found = yield from read(Get(self._table, "note", encode(name)), self.timeout)
        if found is None:
            return None, None
        return "".join(
            [found[f"c{number}"] for number in range(sum(one.startswith("c") for one in properties(found)))]
        ), found[ETAG]

    def together(self, operations: Sequence[Operation]) -> int:
        """Return how many of the first operations one transaction can hold."""
        first = operations[0]
        count, rows = 0, 0
        for one in operations:
            rows += self._most_rows(one.model)
            if (one.model.table, one.partition) != (first.model.table, first.partition) or rows > 100:
                break
            count += 1
        return max(count, 1)

    def _most_rows(self, model: Model) -> int:
        """Return how many rows the write of an entity is expected to have at most."""
        owed = self._classes.maintained(model)
        return 1 + sum(8 if index.model.fan_out else 2 for index in owed.indexes) + 2 * len(owed.aggregates)

    def _most_new(self, classes: Classes, model: Model) -> int:
        """Return how many new entities a transaction may take, if few groups change in their partition."""
        ((owed, _),) = classes.owed(model)
        rows = 1 + sum(4 if index.model.fan_out else 1 for index in owed.indexes)
        return max((MAX_CHANGES - (model in classes.outer) - len(owed.aggregates)) // rows, 1)

    def apply(
        self, operations: Sequence[Operation], *, maintained_limit: int | None = None, notes: Sequence[Note] = ()
    ) -> None:
        """Apply operations of one table and partition in one transaction, with all that is maintained from them."""
        self._check_writable()
        if notes and operations:
            raise InvalidTransaction(
                "a named run is not possible on Azure Tables yet; leave the name out: a run that ended early is begun again"
            )
        for note in notes:
            self.run(self._write_note(note))
        if operations:
            first = operations[0]
            for one in operations:
                if (one.model.table, one.partition) != (first.model.table, first.partition):
                    self.capabilities.check_across(f"{one} with {first}")
            limit = maintained_limit
            self.run(write(self.classes, operations, self._outbox, maintained_limit=limit, timeout=self.timeout))

    def _write_note(self, note: Note) -> Work[None]:
        held, etag = yield from self._note(note.name)
        if held != note.old:
            raise NoteChanged
        row = encode(note.name)
        if note.new is None and etag is None:
            return
        if note.new is None:
            change = Change("delete", row, {}, etag)
        else:
            members = {f"c{at // _PIECE}": note.new[at : at + _PIECE] for at in range(0, len(note.new), _PIECE)}
            change = Change("insert", row, members) if etag is None else Change("replace", row, members, etag)
        try:
            yield Commit(self._table, "note", (change,))
        except Refused:
            raise NoteChanged from None

    def insert(self, batches: Sequence[Batch]) -> None:
        """Insert new entities: each transaction is of one partition, and those of several go side by side.

        An error says as ``written`` how many were written; the rest is not.
        """
        self._check_writable()
        made: list[list[Operation]] = []
        for batch in batches:
            rows = batch.rows if batch.parts is None else [row for part, _ in batch.parts() for row in part]
            made.append([Operation("insert", batch.model, row[0], row[1], row) for row in rows])
        written: list[int] = []
        try:
            for some in made:
                if some:
                    classes = self.classes
                    size = self._most_new(classes, some[0].model)
                    self.run(insert(classes, some, self._outbox, size, self.timeout, written))
        except BaseException as error:
            error.written = sum(written)  # type: ignore[attr-defined]
            raise
        for batch, some in zip(batches, made, strict=True):
            if batch.parts is None:
                batch.rows[:] = [one.new for one in some if one.new is not None]

    def clear(self, model: Model) -> int | None:
        """Return None: entities are deleted partition by partition."""
        return None

    def load(self, windows: Iterable[Sequence[Batch]], meter: Callable[[str, int | None], Meter]) -> int:
        """Refuse to load everything or nothing."""
        self.capabilities.check_load("insert_many")
        raise AssertionError

    # ------------------------------------------------------------------------------------------ what is maintained

    def needed(self, model: Model) -> Sequence[str]:
        """Return nothing: all that is maintained is ready."""
        return ()

    def label(self, model: Model, index: str | None = None) -> str:
        """Return the label of a class, or of an index."""
        return model.name if index is None else f"{model.name}.{index}"

    def lacking(self, model: Model, *, eventual: bool = False) -> Mapping[str, Collection[str]]:
        """Return for each index in other partitions all fields, as its rows may be older than the entities.

        If that may be, those that the rows of unique values do not hold.
        """
        names = [field.name for field in model.declaration.fields]
        outer = [one for one in model.indexes if not is_local(model, one)]
        if not eventual:
            return {one.name: names for one in outer}
        return {one.name: [field.name for field in one.include] for one in outer if one.unique}

    @property
    def eventual(self) -> Collection[str]:
        """The aggregates in other partitions than their entities, by label."""
        return {one.model.name for one in self._classes.outer_aggregates}

    def sweep(self, meter: Meter, *, full: bool = False) -> int:
        """Finish or undo what writers left in other partitions."""
        self._check_writable()
        return self.run(sweep(self.classes, self._outbox, self.timeout, full=full))

    def describe(self, label: str) -> Unready:
        """Fail: nothing is unready."""
        raise NotReady(f"{label} is ready")

    def build(self, most: int, labels: Collection[str] | None) -> Built | None:
        """Return None: nothing is to be built."""
        return None

    def ahead(self, labels: Collection[str] | None) -> _Idle:
        """Return what builds nothing ahead."""
        return _Idle()

    def violations(self, most: int) -> tuple[Violation, ...]:
        """Return none: what is unique is so from the beginning."""
        return ()

    def status(self) -> Status:
        """Return what is maintained."""
        items = []
        catalogue = self.classes.catalogue
        for name, form in catalogue.forms.items():
            items.append(Item(name, "class" if form.source is None else "aggregate", "ready", declared=True))
            items += [Item(f"{name}.{index}", "index", "ready", declared=True) for index in form.indexes]
        return Status(catalogue.head.generation, tuple(items))

    def check(self, meter: Meter) -> Report:
        """Compare everything that is maintained with the entities; what is written meanwhile may be reported."""
        check, findings = self._examined(self.classes, meter)
        return check.report(findings)

    def _examined(self, classes: Classes, meter: Meter) -> tuple[Check, list[Finding]]:
        maintained = {model: [(classes.maintained(model), None)] for model in classes.models}
        stored = held(self, classes)
        check = Check(maintained, stored, None, meter)
        now = None if self.read_only else self.run(server_time(self._table, self.timeout)) if stored.intents else 0
        return check, list(check.findings(unfinished(stored.intents, self._outbox.times, now)))

    def repair(self, meter: Meter) -> RepairReport:
        """Make rows of indexes, and groups in the partitions of their entities, what the entities say."""
        self._check_writable()
        began, classes = self.run(_now()), self.classes
        fixes = Fixes(classes, self.timeout)
        repaired = dict[Problem, None]()
        for _ in range(_PASSES):
            check, findings = self._examined(classes, meter)
            works = list(fixes.of(findings))
            repaired |= dict.fromkeys([one.problem for one in findings])
            for at in range(0, len(works), _TOGETHER):
                self.run(side_by_side(works[at : at + _TOGETHER]))
            if not works:
                break
        else:
            check, findings = self._examined(classes, meter)
        left = tuple(dict.fromkeys([_left(one) for one in findings]))
        still = {one.problem for one in findings}
        done = tuple([problem for problem in repaired if problem not in still])
        return RepairReport(done, left, check.entity_count, self.run(_now()) - began)

    def compact(self, meter: Meter) -> None:
        """Refuse: there is no free space."""
        raise InvalidTransaction("Azure Tables keeps no free space; there is nothing to compact")

    def whole(self, model: Model) -> Model:
        """Return a class with all that is stored of it."""
        return self.classes.stored(model)

    def widen(self, aggregate: AggregateMaintenance, groups: Mapping[tuple[str, str], Delta]) -> None:
        """Let ``_ever`` measures be no less extreme than deltas say."""
        self._check_writable()
        indexes = self.classes.maintained(aggregate.model)
        self.run(side_by_side([widened(aggregate, indexes, key, one, self.timeout) for key, one in groups.items()]))


def _left(finding: Finding) -> Problem:
    """Return a problem that is left, with what to do."""
    problem = finding.problem
    if isinstance(finding.of, AggregateMaintenance):
        remedy = "a group in another partition than its entities; tm.copy the store into another account, which makes it anew"
    else:
        remedy = "write the entity again" if finding.of is not None else finding.remedy
    detail = problem.detail if "call store.sweep()" in problem.detail else f"{problem.detail}; {remedy}"
    return attrs.evolve(problem, detail=detail)


class _Idle:
    """Builds no groups ahead of others."""

    def step(self, most: int, *, start: bool) -> Built | None:
        return None

    def close(self) -> None: ...


def _now() -> Work[float]:
    now: float = yield Now()
    return now


def _every(*parts: Filter) -> Filter:
    return parts[0] if len(parts) == 1 else Every(parts)


def _run(driver: Driver, name: str, work: Work[T]) -> T:
    return _told(name, partial(driver.run, work))


def _told(name: str, call: Callable[[], T]) -> T:
    """Return what a call returns; what the service answers to it becomes an error of the store."""
    try:
        return call()
    except Lost as lost:
        raise StoreError(f"{name}: {lost}") from None
    except Refused as refused:
        if refused.status in (401, 403):
            raise StoreError(f"{name}: the account refuses the key ({refused.code})") from None
        if refused.code == "TableNotFound":
            raise CorruptStore(f"{name}: a table of the store is not there any more") from None
        raise StoreError(f"{name}: {refused}") from None
