"""Builds beside writers: an index or an aggregate over entities that are there already.

It is *announced* first; what is built anew is *disabled* before that, until it is empty. Once every process knows of it,
it is *building*: each write marks its entity, and adds all that it is. When no write is under way any more that does
not, a builder reads all entities in the order of their keys. It does the same to those without the mark, and changes
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
from .tables import service
from .tables.driver import ATTEMPTS, Effects, ReadClock, Sleep, delay, read, server_time, side_by_side
from .tables.service import ETAG, MAX_PAGE, PARTITION, ROW, Entity
from .writing.batch_writes import in_rounds
from .writing.duplicate_notes import bar, forget, violations

JOBS = "job"
"""The partition of the catalogue with a row for each build that has begun."""
_QUICK = StepTiming(1e-6)
"""No writer waits for a builder: the next step may have more entities, up to a page."""
_WAIT = 1.0  # seconds between two looks at what others do


@attrs.frozen
class BuildProgress:
    """The progress of a build, as its row in the catalogue says."""

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

    def change(self, name: str) -> service.RowChange:
        """Return the change that notes it for a job."""
        members = {"by": self.by, "row": self.row, "done": self.done, "over": self.over, "trouble": str(self.trouble)}
        members |= {} if self.partition is None else {"partition": self.partition}
        return service.RowChange("insert" if self.etag is None else "replace", name, members, self.etag)


def _progress_of(entity: Entity | None) -> BuildProgress:
    if entity is None:
        return BuildProgress()
    where = entity.get("partition"), entity["row"]
    return BuildProgress(entity[ETAG], entity["by"], *where, entity["done"], entity["over"], int(entity["trouble"]))


def progress(table: str, names: Sequence[str], timeout: float) -> Effects[list[BuildProgress]]:
    """Return how far some jobs have come."""
    entities = yield from side_by_side([read(service.GetEntity(table, JOBS, name), timeout) for name in names])
    return [_progress_of(entity) for entity in entities]


@attrs.define(eq=False)
class Builder:
    """The builds of one process.

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
        job = next((job_spec for job_spec in classes.catalogue.jobs if _is_wanted(job_spec, classes, labels)), None)
        if job is None:
            return (yield from self._take_up(classes, labels))
        states = [classes.catalogue.states[label] for label in sorted(job.targets)]
        server_now = yield from server_time(self.table, self.timeout)
        seconds_left = max(state.since for state in states) / 1e6 + self.outbox.times.settled - server_now / 1e6
        if seconds_left > 0:
            yield Sleep(min(seconds_left, _WAIT))
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
            yield from changed(
                self.table, self.timeout, lambda catalogue: _moved(catalogue, job, "disabled", "announced")
            )
            return waits
        if any(state.state == "announced" for state in states):
            yield from changed(
                self.table, self.timeout, lambda catalogue: _moved(catalogue, job, "announced", "building")
            )
            return waits
        return (yield from self._go_on(classes, job, most, server_now))

    def _take_up(self, classes: OpenClasses, labels: Collection[str] | None) -> Effects[BuildStep | None]:
        """Look once whether entities can have the values now that others had before them."""
        labels_violated = [
            label
            for label, state in classes.unready.items()
            if state == "violated" and Label.of(label).owner in classes.schema.by_name
            if labels is None or label in labels
        ]
        self._taken_up = bool(labels_violated) and not self._taken_up
        if not self._taken_up:
            return None
        freed: list[str] = []
        for label in labels_violated:
            if not (yield from self._still_violated(classes, label)):
                freed.append(label)
        if freed:
            still_barred = {duplicate.label for duplicate in (yield from violations(self.table, self.timeout))}

            def end(catalogue: StoredCatalogue) -> Catalogue | None:
                states = catalogue.value.states
                over = [
                    violated
                    for violated in freed
                    if violated not in still_barred and violated in states and states[violated].state == "violated"
                ]
                return finished(_draft(()), catalogue.value, over) if over else None

            yield from changed(self.table, self.timeout, end)
            yield from self.current.look()
        return BuildStep(Label.of(labels_violated[0]).owner, 0, 0, 0, tuple(freed))

    def _still_violated(self, classes: OpenClasses, label: str) -> Effects[bool]:
        model, name = classes.schema.by_name[Label.of(label).owner], Label.of(label).index
        mark, still = classes.marks.of[classes.index(model, name)].name, False
        for duplicate in (yield from violations(self.table, self.timeout)):
            if duplicate.label != label:
                continue
            for attempt in range(2):
                entity = yield from read(service.GetEntity(model.table, *duplicate.entity), self.timeout)
                row = None if entity is None else classes.readable(model, entity)
                if row is None or of_writes(row).get(mark) != DUPLICATE:
                    yield from forget(self.table, duplicate)
                    break
                if attempt:
                    still = True
                    break
                # (As if it had no mark: then it takes its values, if they are free.)
                ops = {other_mark: op for other_mark, op in of_writes(row).items() if other_mark != mark}
                old = (*row[:-1], row[-1]._replace(ops=ops))
                operation = Operation("build", model, *duplicate.entity, new=row[:-1], old=old, etag=row[2])
                yield from in_rounds(self.current, [operation], self.outbox, 1, self.timeout)
        return still

    def _go_on(self, classes: OpenClasses, job: JobSpec, most: int, server_now: int) -> Effects[BuildStep]:
        """Build the next entities of a job, unless another builder does."""
        (job_state,) = yield from progress(self.table, [job.name], self.timeout)
        if (
            job_state.etag is None
        ):  # (who writes entities is named before, so that the next builder looks for what it left)
            yield from self._note(job, attrs.evolve(job_state, by=self.id))
            return BuildStep(job.owner, 0, 0, 0, pace=_QUICK)
        is_mine = job_state.by == self.id
        if not is_mine and (server_now - int(Stamp(job_state.etag))) / 1e6 <= self.outbox.times.lease:
            yield Sleep(_WAIT)
            return BuildStep(job.owner, 0, job_state.done, 0)
        if self._trouble is None or not is_mine:  # (a write may be unfinished)
            self._trouble = server_now
        next_state = attrs.evolve(job_state, by=self.id, trouble=max(job_state.trouble, self._trouble))
        if job_state.over:
            return (yield from self._end(job, next_state, server_now))
        model = classes.schema.by_name[job.owner]
        entities, last_key, over = yield from self._page(model, job_state, most)
        trouble, self._trouble = self._trouble, None
        if (yield from self._add(classes, job, model, entities)):
            self._trouble = trouble
        next_state = attrs.evolve(next_state, done=job_state.done + len(entities), over=over)
        if last_key is not None:
            next_state = attrs.evolve(next_state, partition=last_key[0], row=last_key[1])
        yield from self._note(job, next_state)
        return BuildStep(job.owner, len(entities), next_state.done, 0, pace=_QUICK)

    def _page(
        self, model: Model, job_state: BuildProgress, most: int
    ) -> Effects[tuple[list[Row], tuple[str, str] | None, bool]]:
        """Read the next entities of a class, the key that was read last, and whether that was the last of all."""
        parts = [visible()]
        if job_state.partition is not None:
            in_partition = service.Comparison(PARTITION, "eq", "String", job_state.partition)
            beyond = service.AllOf((in_partition, service.Comparison(ROW, "gt", "String", job_state.row)))
            parts.append(service.Comparison(PARTITION, "ge", "String", job_state.partition))
            parts.append(service.AnyOf((service.Comparison(PARTITION, "gt", "String", job_state.partition), beyond)))
        find = service.QueryEntities(model.table, service.AllOf(tuple(parts)), top=min(most, MAX_PAGE))
        page: service.EntityPage = yield from read(find, self.timeout)
        while not page.entities and page.after is not None:
            page = yield from read(attrs.evolve(find, after=page.after), self.timeout)
        read_now, classes = page.entities, self.current.known
        rows = [row for entity in read_now if (row := classes.readable(model, entity)) is not None]
        last_key = (read_now[-1][PARTITION], read_now[-1][ROW]) if read_now else None
        return rows, last_key, page.after is None

    def _add(self, classes: OpenClasses, job: JobSpec, model: Model, rows: Sequence[Row]) -> Effects[bool]:
        """Add entities that are not marked; return whether nothing of that is left to those who sweep."""
        is_complete, singly = True, False
        for attempt in range(ATTEMPTS):
            marks = _marks(classes, job, model)
            operations = [
                Operation("build", model, row[0], row[1], new=row[:-1], old=row, etag=row[2])
                for row in rows
                if not marked(marks, row)
            ]
            if not operations:
                return is_complete
            size = 1 if singly else self.size(classes, model)
            chunks = yield from in_rounds(self.current, operations, self.outbox, size, self.timeout)
            pending: list[Operation] = []
            for chunk in chunks:
                is_complete = is_complete and chunk.is_followed
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
                is_complete = is_complete and not isinstance(chunk.error, OutcomeUnknown | StoreError)
                pending += chunk.operations[chunk.written_count :]
            if pending:
                yield delay(attempt // 2)
            gets = [
                read(service.GetEntity(model.table, operation.partition, operation.row), self.timeout)
                for operation in pending
            ]
            entities = yield from side_by_side(gets)
            classes = yield from self.current.classes()
            rows = [
                row
                for entity in entities
                if entity is not None and (row := classes.readable(model, entity)) is not None
            ]
        raise StoreError(f"{model.name}: others write the same entities all the time; build again")

    def _end(self, job: JobSpec, job_state: BuildProgress, server_now: int) -> Effects[BuildStep]:
        """Have all that was left finished, and publish that something is built."""
        times = self.outbox.times
        if job_state.trouble:
            seconds_left = job_state.trouble / 1e6 + times.lease + times.deadline - server_now / 1e6
            if seconds_left > 0:
                yield from self._note(job, job_state)
                yield Sleep(min(seconds_left, _WAIT))
                return BuildStep(job.owner, 0, job_state.done, 0)
            yield from sweep(self.current, self.outbox, self.timeout)
        finished_labels, barred = (
            frozenset[str](),
            {duplicate.label for duplicate in (yield from violations(self.table, self.timeout))},
        )

        def end(catalogue: StoredCatalogue) -> Catalogue | None:
            nonlocal finished_labels
            if job not in catalogue.value.jobs:
                return None
            finished_labels = job.targets
            return finished(_draft(barred), catalogue.value, job.targets)

        yield from changed(self.table, self.timeout, end)
        self._trouble = 0
        yield from self.current.look()
        with suppress(service.NoResponse, service.ErrorResponse):  # (nobody reads it any more)
            yield service.GroupTransaction(self.table, JOBS, (service.RowChange("delete", job.name, {}, "*"),))
        return BuildStep(job.owner, 0, job_state.done, 0, tuple(sorted(finished_labels)))

    def _note(self, job: JobSpec, after: BuildProgress) -> Effects[None]:
        with suppress(service.NoResponse, service.ErrorResponse):  # (others go on, or look at the same entities again)
            yield service.GroupTransaction(self.table, JOBS, (after.change(job.name),))


def _is_wanted(job: JobSpec, classes: OpenClasses, labels: Collection[str] | None) -> bool:
    return job.owner in classes.schema.by_name and (labels is None or not job.targets.isdisjoint(labels))


def _marks(classes: OpenClasses, job: JobSpec, model: Model) -> list[BuildMark]:
    duties = classes.maintained(model).only(job.targets)
    return [classes.marks.of[part] for part in parts_of(duties)]


_Step = Literal["disabled", "announced", "building"]


def _moved(catalogue: StoredCatalogue, job: JobSpec, before: _Step, after: _Step) -> Catalogue | None:
    """Return the catalogue in which what a job builds is one step further; None if it is no more, or was already."""
    states = catalogue.value.states
    labels = [label for label in sorted(job.targets) if label in states and states[label].state == before]
    if job not in catalogue.value.jobs or not labels:
        return None
    moved_states = {label: replace(states[label], state=after, since=0) for label in labels}
    return attrs.evolve(catalogue.value, states=states | moved_states)


def _draft(violated: Collection[str]) -> ActionPlan:
    """Return a draft of a transition that changes no tables, and happens when it is published."""
    return ActionPlan(0, tuple, is_violated=lambda label: label in violated)
