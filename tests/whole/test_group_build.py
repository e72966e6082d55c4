"""Random aggregates that are built by batches and by slices in any order, beside writers of two versions.

Everything is checked after each step; kills come between steps, and somebody writes while a builder reads or has read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.online import apply_schema
from tablemapper.engines.sqlite.rows import build_steps, group_build, jobs
from tablemapper.engines.sqlite.rows.group_build import SqliteGroupBuild

from .answers import Trial, random_rows
from .deeds import random_deeds, random_writes
from .models import Measure, Model, Record, compiled
from .oracle import State
from .random_models import random_model, with_maintained

REFUSED = (tm.UniqueViolation, tm.InvalidEntity, tm.EntityExists, tm.EntityNotFound, tm.NotReady, tm.PreconditionFailed)
pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")


def random_version(draw: random.Random) -> Model:
    """Return entities, and aggregates or maintained fields over them; few of these need a row for each value."""
    while True:
        model = random_model(draw, local=draw.random() < 0.3)
        if draw.random() < 0.3:
            model = with_maintained(draw, model)
        if any(record.of or record.over for record in model.records):
            break
    return Model(tuple([record if draw.random() < 0.1 else lasting(record) for record in model.records]))


def lasting(record: Record) -> Record:
    """Return an aggregate without extremes of what is there."""

    def one(measure: Measure) -> Measure:
        return attrs.evolve(measure, verb=measure.verb + "_ever") if measure.verb in ("min", "max") else measure

    if record.of is None:
        return record
    return attrs.evolve(record, measures={name: one(measure) for name, measure in record.measures.items()})


class Versions:
    """The classes of a program, of its next version, which has what is maintained, and of one between them."""

    def __init__(self, draw: random.Random) -> None:
        self.new = model = random_version(draw)
        self.old = Model(tuple(record if record.over is None else record.bare for record in model.entities))
        late = draw.choice([record.name for record in model.records if record.of] or [""])
        self.some = Model(tuple(record for record in model.records if record.name != late))


class Program:
    """A process, which writes and builds."""

    def __init__(self, path: Path, model: Model, draw: random.Random) -> None:
        self.model, self.draw = model, draw
        names = compiled(model.source())
        classes = [names[record.name] for record in model.records]
        self.store = tm.open(path, models=classes, durability="relaxed", build=False)
        self.trial = Trial(self.store, names, State(model))
        engine = self.store._engine
        assert isinstance(engine, SqliteEngine)
        self.engine = engine
        self.groups: SqliteGroupBuild | None = None
        self.slices = 0

    def close(self) -> None:
        if self.groups is not None:
            self.groups.close()
        self.store.close()

    def fill(self) -> None:
        for record in self.model.entities:
            with suppress(*REFUSED):
                rows = random_rows(self.draw, record, 30)
                self.store.upsert_many([self.trial.names[record.name](**row) for row in rows])

    def write(self) -> None:
        """Write what may be refused: values that are to be unique may be held twice."""
        plans: Any = self.store._plans
        plans._look_at = 0.0  # what others changed in the catalogue a second ago is known
        with suppress(tm.NotReady):  # (a maintained field)
            self.trial.take_over()
        state = self.trial.state
        for deed in [random_writes(self.draw, state), *random_deeds(self.draw, state)]:
            answer = None if deed is None else self.trial.run(deed.text(self.model))
            if isinstance(answer, Exception) and not isinstance(answer, REFUSED):
                raise answer

    def compare(self) -> None:
        """Compare all that is maintained with what the entities make of it."""
        self.trial.take_over()
        self.trial.compare_all()
        if all(item.state == "ready" for item in self.store.status().objects):
            self.trial.compare_indexes()

    def build(self) -> None:
        """Do the next step of a build."""
        draw = self.draw
        if self.groups is not None and draw.random() < 0.05:
            self.groups.close()
            self.groups = None
        if draw.random() < 0.9:
            self.groups = self.groups or self.engine.group_build(None)
            step = self.groups.step(draw.choice([1, 1, 2, 5]), start=True)
            self.slices += step is not None and not step.entities
            if step is not None:
                return
            self.groups = None
        if draw.random() < 0.5:
            self.engine.build(draw.choice([1, 1, 2, 5]), None)


def run(folder: Path, seed: int, steps: int = 40) -> int:
    """Run programs beside each other; return how many slices were written."""
    draw = random.Random(seed)
    versions = Versions(draw)
    path = folder / f"{seed}.db"
    with ExitStack() as stack:

        def program(model: Model) -> Program:
            started = Program(path, model, draw)
            stack.callback(started.close)
            return started

        programs = [program(versions.old)]
        programs[0].fill()
        programs.append(program(versions.some))
        newest, at, slices = None, 0, 0
        try:
            for _ in range(steps):
                if newest is None and draw.random() < 0.15:
                    newest = program(versions.new)
                    programs.append(newest)
                at = at if draw.random() < 0.75 else draw.randrange(len(programs))  # (else no builder comes far)
                one = programs[at]
                if draw.random() < 0.06 and one is not newest:
                    one.close()
                    programs[at] = program(one.model)
                elif draw.random() < 0.12:
                    draw.choice(programs).write()
                else:
                    one.build()
                assert (newest or programs[1]).store.check().problems == ()
            newest = newest or program(versions.new)
            for one in programs:
                one.groups = None
            slices = sum(one.slices for one in programs)
            newest.store.build(rest=0)
        except tm.InvalidEntity:  # an entity that was there cannot be in a group
            return slices
        assert {item.state for item in newest.store.status().objects} <= {"ready", "violated"}
        assert newest.engine.file.read(f"SELECT * FROM {jobs.BUILDS}") == []
        for one in (newest, *programs):
            one.compare()
        return slices


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every job wait for its steps, however few entities there are, and every step be small."""
    monkeypatch.setattr(apply_schema, "_AT_ONCE", -1)
    monkeypatch.setattr(group_build, "_CHUNK", 3)
    monkeypatch.setattr(group_build, "_LOOK", 0.0)


@pytest.mark.file
def test_what_is_built_is_right_after_each_step(tmp_path: Path, *, full_size: bool) -> None:
    slices = sum(run(tmp_path, seed) for seed in range(600 if full_size else 15))
    assert slices > 15


def slices_beside_others(patch: pytest.MonkeyPatch) -> None:
    def write(self: Any, sqlite: Any, write: Any) -> Any:
        results = []
        pace = self._write(lambda now, writer: results.append(write(writer)))
        return results[0], pace

    patch.setattr(SqliteGroupBuild, "_alone", write)


def batches_that_know_no_frontier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(build_steps, "left", lambda job, frontier: job.targets)


def slices_that_know_no_frontier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group_build, "left", lambda job, frontier: job.targets)


def batches_that_exclude_the_frontier_only(patch: pytest.MonkeyPatch) -> None:
    def left(job: Any, frontier: Any) -> Any:
        if frontier[0] is None:
            return job.targets
        return jobs._of_groups(job.targets, lambda key: tuple(key) >= tuple(frontier))

    patch.setattr(build_steps, "left", left)


def writers_that_know_no_frontier(patch: pytest.MonkeyPatch) -> None:
    real = jobs._building
    patch.setattr(jobs, "_building", lambda some, get: [one for one in real(some, get) if not _ahead(one[0])])


def writers_that_maintain_all_groups(patch: pytest.MonkeyPatch) -> None:
    real = jobs._of_groups
    patch.setattr(jobs, "_of_groups", lambda targets, has: real(targets, lambda _: True))


def parts_that_are_apart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(jobs._OfGroups, "__eq__", object.__eq__)
    patch.setattr(jobs._OfGroups, "__hash__", object.__hash__)


def a_frontier_that_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(build_steps, "END", build_steps.END.replace("?1 || ' groups'", "?1"))


def _ahead(targets: Any) -> bool:
    return any(isinstance(one, jobs._OfGroups) for one in targets.aggregates)


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    slices_beside_others: 0,
    batches_that_know_no_frontier: 22,
    slices_that_know_no_frontier: 6,
    batches_that_exclude_the_frontier_only: 22,
    writers_that_know_no_frontier: 6,
    writers_that_maintain_all_groups: 6,
    parts_that_are_apart: 6,
    a_frontier_that_stays: 6,
}
"""Each with a seed that finds it; those behind it are tried, too."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_random_steps_find(
    fault: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, tm.TableMapperError)):
        for seed in range(FAULTS[fault], 400):
            run(tmp_path, seed)
