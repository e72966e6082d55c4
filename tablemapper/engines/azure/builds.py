"""Builds beside writers: an index or an aggregate over entities that are there already.

It is *announced* first; what is built anew is *disabled* before that, until it is empty. Once every process knows of it,
it is *building*: each write marks its entity, and adds all that it is. When no write is under way any more that does
not, a builder reads all entities in the order of their keys, and does the same to those without the mark, which changes
nothing else of them. At the end it is *ready*.

So an entity is added once, whoever comes first, and a build that ends early goes on where it was: a row of the
catalogue says where. The marks make that exact; where it is old, entities are read once more.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Literal

import attrs
from msgspec.structs import replace

from ...catalogue.actions import ActionPlan
from ...catalogue.catalogue import Catalogue, JobSpec
from ...catalogue.dropping import finished
from ...entities.etag import Stamp
from ...errors import EntityNotFound, OutcomeUnknown, PreconditionFailed, StoreError, UniqueViolation
from ...schema.labels import Label
from ...schema.model import Model
from ...schema.rows import Row
from ..protocol import BuildStep, Operation, StepTiming
from .catalogue.open_classes import CatalogueRefresher, OpenClasses
from .catalogue.publication import StoredCatalogue, changed
from .cross_partition.marks import DUPLICATE, BuildMark, marked, of_writes, parts_of
from .cross_partition.outbox import Deadline, DeadlineExceeded, Outbox
from .group_writer import GroupWriter
from .reading.filters import visible
from .recovery import sweep
from .tables.driver import ATTEMPTS, Effects, ReadClock, Sleep, delay, read, server_time, side_by_side
from .tables.service import (
    ETAG,
    MAX_PAGE,
    PARTITION,
    ROW,
    AllOf,
    AnyOf,
    Comparison,
    Entity,
    EntityPage,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    QueryEntities,
    RowChange,
)
from .writing.batch_writes import in_rounds
from .writing.duplicate_notes import bar, forget, violations

JOBS = "job"
"""The partition of the catalogue with a row for each build that has begun."""
_QUICK = StepTiming(1e-6)
"""No writer waits for a builder: the next step may have more entities, up to a page."""
_WAIT = 1.0  # seconds between two looks at what others do


@attrs.frozen
class BuildProgress:
    """How far a build has come, as its row in the catalogue says."""

    etag: str | None = None
    """None: there is no row."""
    by: str = ""
    """The builder."""
    partition: str | None = None
    row: str = ""
    """The key of the last entity that was looked at; None: of none."""
    done: int = 0
    """Entities that were looked at."""
    over: bool = False
    """Whether that was the last one."""
    trouble: int = 0
    """When something was last left for those who sweep, in µs by the clock of the service; 0: never."""

    def change(self, name: str) -> RowChange:
        """Return the change that notes it for a job."""
        members = {"by": self.by, "row": self.row, "done": self.done, "over": self.over, "trouble": str(self.trouble)}
        members |= {} if self.partition is None else {"partition": self.partition}
        return RowChange("insert" if self.etag is None else "replace", name, members, self.etag)


def _progress_of(found: Entity | None) -> BuildProgress:
    if found is None:
        return BuildProgress()
    where = found.get("partition"), found["row"]
    return BuildProgress(found[ETAG], found["by"], *where, found["done"], found["over"], int(found["trouble"]))


def progress(table: str, names: Sequence[str], timeout: float) -> Effects[list[BuildProgress]]:
    """Return how far some jobs have come."""
    found = yield from side_by_side([read(GetEntity(table, JOBS, name), timeout) for name in names])
    return [_progress_of(one) for one in found]


@attrs.define(eq=False)
class Builder:
    """What one process builds.

    Args:
        table: of the catalogue.
        current: the classes as the process knows them.
        outbox: of the process.
        size: how many new entities of a class a transaction is expected to take.
        timeout: seconds after which to give up, if no answer comes.
        id: of the builder.
    """

    table: str
    current: CatalogueRefresher
    outbox: Outbox
    size: Callable[[OpenClasses, Model], int]
    timeout: float
    id: str = attrs.field(factory=lambda: secrets.token_hex(8))
    _taken_up: bool = False
    """Whether duplicates were looked at since there was last nothing to be built."""
    _trouble: int | None = 0
    """As that of `BuildProgress`, however little of it could be noted; None: something may be left since the last step."""

    def step(self, most: int, labels: Collection[str] | None) -> Effects[BuildStep | None]:
        """Build the next entities, at most so many, or wait for others; None if nothing of some labels is to be built."""
        began: float = yield ReadClock()
        classes = yield from self.current.look()
        job = next((one for one in classes.catalogue.jobs if _is_wanted(one, classes, labels)), None)
        if job is None:
            return (yield from self._take_up(classes, labels))
        states = [classes.catalogue.states[label] for label in sorted(job.targets)]
        now = yield from server_time(self.table, self.timeout)
        left = max(state.since for state in states) / 1e6 + self.outbox.times.settled - now / 1e6
        if left > 0:
            yield Sleep(min(left, _WAIT))
            return BuildStep(f"{job.owner}, once every process knows of it", 0, 0, 0)
        waits = BuildStep(f"{job.owner}, once every process knows of it", 0, 0, 0)
        if any(state.state == "disabled" for state in states):
            patience = Deadline(began + self.outbox.times.deadline)
            overwriter = GroupWriter(classes, self.outbox, patience, self.timeout)
            try:
                for part in parts_of(classes.maintained(classes.schema.by_name[job.owner]).only(job.targets)):
                    yield from overwriter.emptied(part)
            except DeadlineExceeded:
                return waits
            yield from changed(self.table, self.timeout, lambda held: _moved(held, job, "disabled", "announced"))
            return waits
        if any(state.state == "announced" for state in states):
            yield from changed(self.table, self.timeout, lambda held: _moved(held, job, "announced", "building"))
            return waits
        return (yield from self._go_on(classes, job, most, now))

    def _take_up(self, classes: OpenClasses, labels: Collection[str] | None) -> Effects[BuildStep | None]:
        """Look once whether entities can have the values now that others had before them."""
        wanted = [
            label
            for label, state in classes.unready.items()
            if state == "violated" and Label.of(label).owner in classes.schema.by_name
            if labels is None or label in labels
        ]
        self._taken_up = bool(wanted) and not self._taken_up
        if not self._taken_up:
            return None
        ended: list[str] = []
        for label in wanted:
            if not (yield from self._still_violated(classes, label)):
                ended.append(label)
        if ended:
            left = {one.label for one in (yield from violations(self.table, self.timeout))}

            def end(held: StoredCatalogue) -> Catalogue | None:
                states = held.value.states
                over = [one for one in ended if one not in left and one in states and states[one].state == "violated"]
                return finished(_draft(()), held.value, over) if over else None

            yield from changed(self.table, self.timeout, end)
            yield from self.current.look()
        return BuildStep(Label.of(wanted[0]).owner, 0, 0, 0, tuple(ended))

    def _still_violated(self, classes: OpenClasses, label: str) -> Effects[bool]:
        model, name = classes.schema.by_name[Label.of(label).owner], Label.of(label).index
        mark, still = classes.marks.of[classes.index(model, name)].name, False
        for one in (yield from violations(self.table, self.timeout)):
            if one.label != label:
                continue
            for attempt in range(2):
                entity = yield from read(GetEntity(model.table, *one.entity), self.timeout)
                row = None if entity is None else classes.readable(model, entity)
                if row is None or of_writes(row).get(mark) != DUPLICATE:
                    yield from forget(self.table, one)
                    break
                if attempt:
                    still = True
                    break
                # (As if it had no mark: then it takes its values, if they are free.)
                ops = {other: op for other, op in of_writes(row).items() if other != mark}
                old = (*row[:-1], row[-1]._replace(ops=ops))
                what = Operation("build", model, *one.entity, new=row[:-1], old=old, etag=row[2])
                yield from in_rounds(self.current, [what], self.outbox, 1, self.timeout)
        return still

    def _go_on(self, classes: OpenClasses, job: JobSpec, most: int, now: int) -> Effects[BuildStep]:
        """Build the next entities of a job, unless another builder does."""
        (held,) = yield from progress(self.table, [job.name], self.timeout)
        if held.etag is None:  # (who writes entities is named before, so that the next builder looks for what it left)
            yield from self._note(job, attrs.evolve(held, by=self.id))
            return BuildStep(job.owner, 0, 0, 0, pace=_QUICK)
        is_mine = held.by == self.id
        if not is_mine and (now - int(Stamp(held.etag))) / 1e6 <= self.outbox.times.lease:
            yield Sleep(_WAIT)
            return BuildStep(job.owner, 0, held.done, 0)
        if self._trouble is None or not is_mine:  # (a write may be unfinished)
            self._trouble = now
        after = attrs.evolve(held, by=self.id, trouble=max(held.trouble, self._trouble))
        if held.over:
            return (yield from self._end(job, after, now))
        model = classes.schema.by_name[job.owner]
        entities, last, over = yield from self._page(model, held, most)
        trouble, self._trouble = self._trouble, None
        if (yield from self._add(classes, job, model, entities)):
            self._trouble = trouble
        after = attrs.evolve(after, done=held.done + len(entities), over=over)
        if last is not None:
            after = attrs.evolve(after, partition=last[0], row=last[1])
        yield from self._note(job, after)
        return BuildStep(job.owner, len(entities), after.done, 0, pace=_QUICK)

    def _page(
        self, model: Model, held: BuildProgress, most: int
    ) -> Effects[tuple[list[Row], tuple[str, str] | None, bool]]:
        """Read the next entities of a class, the key that was read last, and whether that was the last of all."""
        parts = [visible()]
        if held.partition is not None:
            here = Comparison(PARTITION, "eq", "String", held.partition)
            beyond = AllOf((here, Comparison(ROW, "gt", "String", held.row)))
            parts.append(Comparison(PARTITION, "ge", "String", held.partition))
            parts.append(AnyOf((Comparison(PARTITION, "gt", "String", held.partition), beyond)))
        find = QueryEntities(model.table, AllOf(tuple(parts)), top=min(most, MAX_PAGE))
        page: EntityPage = yield from read(find, self.timeout)
        while not page.entities and page.after is not None:
            page = yield from read(attrs.evolve(find, after=page.after), self.timeout)
        read_now, classes = page.entities, self.current.known
        rows = [row for one in read_now if (row := classes.readable(model, one)) is not None]
        last = (read_now[-1][PARTITION], read_now[-1][ROW]) if read_now else None
        return rows, last, page.after is None

    def _add(self, classes: OpenClasses, job: JobSpec, model: Model, rows: Sequence[Row]) -> Effects[bool]:
        """Add entities that are not marked; return whether nothing of that is left to those who sweep."""
        whole, singly = True, False
        for attempt in range(ATTEMPTS):
            marks = _marks(classes, job, model)
            operations = [
                Operation("build", model, row[0], row[1], new=row[:-1], old=row, etag=row[2])
                for row in rows
                if not marked(marks, row)
            ]
            if not operations:
                return whole
            size = 1 if singly else self.size(classes, model)
            chunks = yield from in_rounds(self.current, operations, self.outbox, size, self.timeout)
            again: list[Operation] = []
            for chunk in chunks:
                whole = whole and chunk.followed
                if chunk.error is None:
                    continue
                if isinstance(chunk.error, UniqueViolation):
                    singly = True  # (to see which entity it is)
                    if len(chunk.operations) == 1:
                        if f"{model.name}.{chunk.error.index}" not in job.targets:
                            continue  # (what another program wrote is in nothing: it stays so, as its value is taken)
                        yield from bar(self.table, classes, chunk.operations[0], chunk.error, self.timeout)
                elif not isinstance(chunk.error, EntityNotFound | PreconditionFailed | OutcomeUnknown | StoreError):
                    raise chunk.error
                whole = whole and not isinstance(chunk.error, OutcomeUnknown | StoreError)
                again += chunk.operations[chunk.written :]
            if again:
                yield delay(attempt // 2)
            gets = [read(GetEntity(model.table, one.partition, one.row), self.timeout) for one in again]
            entities = yield from side_by_side(gets)
            classes = yield from self.current.classes()
            rows = [row for one in entities if one is not None and (row := classes.readable(model, one)) is not None]
        raise StoreError(f"{model.name}: others write the same entities all the time; build again")

    def _end(self, job: JobSpec, held: BuildProgress, now: int) -> Effects[BuildStep]:
        """Have all that was left finished, and publish that something is built."""
        times = self.outbox.times
        if held.trouble:
            left = held.trouble / 1e6 + times.lease + times.deadline - now / 1e6
            if left > 0:
                yield from self._note(job, held)
                yield Sleep(min(left, _WAIT))
                return BuildStep(job.owner, 0, held.done, 0)
            yield from sweep(self.current, self.outbox, self.timeout)
        ended, barred = frozenset[str](), {one.label for one in (yield from violations(self.table, self.timeout))}

        def end(held: StoredCatalogue) -> Catalogue | None:
            nonlocal ended
            if job not in held.value.jobs:
                return None
            ended = job.targets
            return finished(_draft(barred), held.value, job.targets)

        yield from changed(self.table, self.timeout, end)
        self._trouble = 0
        yield from self.current.look()
        with suppress(NoResponse, ErrorResponse):  # (nobody reads it any more)
            yield GroupTransaction(self.table, JOBS, (RowChange("delete", job.name, {}, "*"),))
        return BuildStep(job.owner, 0, held.done, 0, tuple(sorted(ended)))

    def _note(self, job: JobSpec, after: BuildProgress) -> Effects[None]:
        with suppress(NoResponse, ErrorResponse):  # (others go on, or the same entities are looked at again)
            yield GroupTransaction(self.table, JOBS, (after.change(job.name),))


def _is_wanted(job: JobSpec, classes: OpenClasses, labels: Collection[str] | None) -> bool:
    return job.owner in classes.schema.by_name and (labels is None or not job.targets.isdisjoint(labels))


def _marks(classes: OpenClasses, job: JobSpec, model: Model) -> list[BuildMark]:
    duties = classes.maintained(model).only(job.targets)
    return [classes.marks.of[one] for one in parts_of(duties)]


_Step = Literal["disabled", "announced", "building"]


def _moved(held: StoredCatalogue, job: JobSpec, before: _Step, after: _Step) -> Catalogue | None:
    """Return the catalogue in which what a job builds is one step further; None if it is no more, or was already."""
    states = held.value.states
    here = [label for label in sorted(job.targets) if label in states and states[label].state == before]
    if job not in held.value.jobs or not here:
        return None
    moved = {label: replace(states[label], state=after, since=0) for label in here}
    return attrs.evolve(held.value, states=states | moved)


def _draft(violated: Collection[str]) -> ActionPlan:
    """Return a draft of a transition that changes no tables, and happens when it is published."""
    return ActionPlan(0, tuple, is_violated=lambda label: label in violated)
