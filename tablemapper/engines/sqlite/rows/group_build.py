"""The groups of aggregates that are being built, written ahead of the cursor of their job while nobody else writes.

A batch changes nearly as many groups as it reads entities, where these are not sorted by what they are grouped by, and
the next batch changes the same groups again. So the entities after the cursor are read in one state of the file,
without its lock. What they contribute is kept in memory, and written in the order of the groups' keys, in slices: each
group is written once.

That is right only as long as nobody else writes, which each transaction here finds out: the last timestamp of the file
must be its own. If it is not, what was kept is dropped, and the batches go on after the cursor. What was written stays:
see `jobs`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

import attrs

from ....schema.maintenance import ChangeSet
from ....schema.rows import UNREADABLE
from ...protocol import BuildStep, StepTiming
from ..file.database import File
from ..file.writer import Writer
from ..sql.schema import BuildJob, SqliteSchema
from .build_steps import build_slice
from .jobs import CURSOR, left, progress

T = TypeVar("T")

_MOST = 100_000  # groups that are in memory; an aggregate of more gains too little
_CHUNK = 256  # entities that are in memory
_LOOK = 0.1  # seconds of reading after which it is looked whether somebody else wrote


class SqliteGroupBuild:
    """The steps of a build that write groups ahead of cursors. Each job is tried once.

    Args:
        schema: returns the schema as this process knows it.
        end: notes in the catalogue, in a transaction, what is complete.
        labels: what is wanted; None for everything.
    """

    def __init__(
        self,
        file: File,
        schema: Callable[[], SqliteSchema],
        write: Callable[[Callable[[SqliteSchema, Writer], None]], StepTiming],
        end: Callable[[Writer, BuildStep], None],
        labels: Collection[str] | None,
    ) -> None:
        self._file = file
        self._schema = schema
        self._write = write
        self._end = end
        self._labels = labels
        self._tried = set[str]()
        self._steps: Generator[BuildStep] | None = None
        self._most = 0
        self._last: int | None = None  # timestamp

    def step(self, most: int, *, start: bool) -> BuildStep | None:
        """Read some entities, or write the next groups, at most ``most``; None if that is not possible.

        Entities that were read in vain are taken back: their number is below 0.
        """
        self._most = most
        if self._steps is None and start and (job := self._next_job(sqlite := self._schema())) is not None:
            self._steps = self._run(sqlite, job)
        step = None if self._steps is None else next(self._steps, None)
        if step is None:
            self._steps = None
        return step

    def close(self) -> None:
        """Let go of the state of the file that is read."""
        if self._steps is not None:
            self._steps.close()

    def _next_job(self, sqlite: SqliteSchema) -> BuildJob | None:
        """Return the job that the next batch would be of, if its groups can be written ahead of it.

        An index has rows of each entity, and so have the live values of an extreme.
        """
        wanted = [job for job in sqlite.all_jobs if self._labels is None or job.labels & set(self._labels)]
        if not wanted or wanted[0].name in self._tried or self._file.path == ":memory:":
            return None
        targets = wanted[0].targets
        rows_of_each = targets.indexes or any(one.aggregate.counted_slots for one in targets.aggregates)
        return None if rows_of_each else wanted[0]

    def _run(self, sqlite: SqliteSchema, job: BuildJob) -> Generator[BuildStep]:
        read, last = 0, BuildStep(job.model.name, 0, 0, 0)
        for last in self._work(sqlite, job):
            read += last.entities
            yield last
        if read and not last.ended:
            yield attrs.evolve(last, entities=-read, done=last.done - read, pace=StepTiming())

    def _work(self, sqlite: SqliteSchema, job: BuildJob) -> Iterator[BuildStep]:
        """Yield what each step did; this ends early if somebody else wrote, or if a batch is to say what is wrong."""
        self._last = None
        begun = self._alone(
            sqlite, lambda writer: (writer.get(CURSOR, (job.name,)) or (None,), progress(writer.get, job.name))
        )
        if begun is None or begun[0][0][0] is None:
            return  # (the first batch empties the groups that an earlier build left)
        self._tried.add(job.name)
        place, (done, total) = begun[0]
        changes = ChangeSet()
        try:
            with closing(self._read(sqlite, job, place, changes)) as counts:
                for count in counts:
                    looked = self._alone(sqlite, lambda _: None)
                    if looked is None or changes.group_count > _MOST:
                        return
                    done += count
                    yield BuildStep(job.model.name, count, done, total, pace=attrs.evolve(looked[1], seconds=0.0))
            found = list(changes.groups.items())
            groups = [(of.key(group), at, group) for at, (of, deltas) in enumerate(found) for group in deltas]
        except UNREADABLE:
            return
        groups.sort(key=itemgetter(0))
        end = 0
        while True:
            start, end = end, min(end + self._most, len(groups))
            while start < end < len(groups) and groups[end][0] == groups[end - 1][0]:  # of several aggregates
                end += 1
            until = groups[end - 1][0] if end < len(groups) else None
            some = ChangeSet()
            for _, at, group in groups[start:end]:
                aggregate, deltas = found[at]
                some.groups.setdefault(aggregate, {})[group] = deltas.pop(group)
            written = self._alone(sqlite, partial(self._slice, sqlite, job, some, until, done))
            if written is None:
                return
            yield attrs.evolve(written[0], pace=written[1])
            if until is None:
                return

    def _slice(
        self,
        sqlite: SqliteSchema,
        job: BuildJob,
        changes: ChangeSet,
        until: tuple[str, str] | None,
        done: int,
        writer: Writer,
    ) -> BuildStep:
        built = build_slice(sqlite, writer, job, changes, until, done)
        self._end(writer, built)
        return built

    def _read(self, sqlite: SqliteSchema, job: BuildJob, place: Sequence[Any], changes: ChangeSet) -> Generator[int]:
        """Read the entities after the cursor, in one state of the file; yield now and then how many were read."""
        targets, count = left(job, place[2:4]), 0
        sql = sqlite.statements[job.model].scan_some(job.targets.places, after=True)
        with self._file.snapshot(cold=True) as snapshot:
            look = self._file.monotonic() + _LOOK
            for rows in snapshot.stream(sql, place[:2], _CHUNK):
                changes.built(targets, rows)
                count += len(rows)
                if self._file.monotonic() >= look or changes.group_count > _MOST:
                    yield count
                    look, count = self._file.monotonic() + _LOOK, 0
        yield count

    def _alone(self, sqlite: SqliteSchema, write: Callable[[Writer], T]) -> tuple[T, StepTiming] | None:
        """Write in a transaction; return what that gave, and its pace, or None if others wrote since the last one."""
        last, results = 0, list[T]()

        def transaction(now: SqliteSchema, writer: Writer) -> None:
            nonlocal last, results
            last = writer.timestamp
            results = [write(writer)] if now is sqlite and self._last in (None, writer.previous) else []

        pace = self._write(transaction)
        self._last = last
        return (results[0], pace) if results else None
