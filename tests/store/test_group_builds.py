"""Groups that are written ahead of the cursor: when, what stops it, what is left of it after faults and power cuts."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.online import apply_schema
from tablemapper.engines.sqlite.rows import group_build
from tablemapper.engines.sqlite.rows.jobs import CURSOR
from tablemapper.schema.model import compile_schema
from tablemapper.store import builds

from ..classes import aggregate
from ..stores import sound_store
from ..whole.kills import spawn
from .build_faults import OPERATIONS, Build, cut_the_power, fail_each_call
from .test_builds import part
from .test_drop import drop

pytestmark = pytest.mark.file

COUNT, NAMES = 600, 150


def totals(of: Any, name: str, **measures: Any) -> Any:
    members = {"name": (str, tm.group_by(of.name)), "parts": (int, tm.count()), **measures}
    return aggregate(name, of, members, tm.Key[str](partition="all", row="{name}"))


Part, Box = part(), part("Box")
Boxes = totals(Box, "Boxes")
Names, Numbers = totals(Part, "Names"), totals(Part, "Numbers", sum=(int, tm.sum(Part.number)))
MODELS = [Part, Names]


@pytest.fixture(autouse=True)
def never_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_schema, "_AT_ONCE", -1)
    monkeypatch.setattr(builds, "FIRST", 20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "s.db", models=[Part]) as store:
        store.insert_many(Part("a", number, f"n{number % NAMES}") for number in range(COUNT))
    return tmp_path / "s.db"


class Steps(list[Any]):
    """What each step ahead of a cursor did; after each, something is called with how many there were."""

    def __init__(self) -> None:
        self.then: Callable[[int], object] = lambda number: None

    @property
    def entities(self) -> list[int]:
        return [step.entities for step in self]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    done = Steps()
    real = group_build.SqliteGroupBuild.step

    def step(self: group_build.SqliteGroupBuild, most: int, *, start: bool) -> Any:
        if (built := real(self, most, start=start)) is not None:
            done.append(built)
            done.then(len(done))
        return built

    monkeypatch.setattr(group_build.SqliteGroupBuild, "step", step)
    monkeypatch.setattr(group_build, "_LOOK", 0.0)
    monkeypatch.setattr(group_build, "_CHUNK", 100)
    return done


def build(store: tm.Store, **options: Any) -> builds.BuildReport:
    """Build in transactions that are as small as they get."""
    return builds.build(store._engine, hold=0.0, rest=0.0, **options)


def engine_of(store: tm.Store) -> SqliteEngine:
    assert isinstance(store._engine, SqliteEngine)
    return store._engine


def test_entities_are_read_once_and_then_groups_are_written(path: Path, steps: Steps) -> None:
    shown: list[tm.reports.Progress] = []
    with tm.open(path, models=MODELS, build=False) as store:
        clock = iter([5.0, 7.5])
        report = build(store, progress=shown.append, monotonic=lambda: next(clock))
        assert (report.ok, report.entities, report.built, report.seconds) == (True, COUNT, ("Names",), 2.5)
        assert sum(steps.entities) == COUNT - 20
        assert [done.entities for done in steps[-8:]] == [0] * 8, "groups are written by 20"
        assert (shown[-1].done, shown[-1].total) == (COUNT, COUNT)
        assert {one.parts for one in store.query(Names).allow_scan()} == {COUNT // NAMES}
        assert store.check().problems == ()
        assert engine_of(store).file.read("SELECT * FROM tablemapper_builds") == []


def test_each_job_of_a_build_is_tried(path: Path, steps: Steps) -> None:
    with tm.open(path, models=[Part, Box]) as store:
        store.insert_many(Box("a", number, f"n{number % NAMES}") for number in range(COUNT))
    with sound_store(path, models=[*MODELS, Box, Boxes], build=False) as store:
        report = build(store)
        assert (report.ok, report.entities) == (True, 2 * COUNT)
        assert sorted(step.ended for step in steps if step.ended) == [("Boxes",), ("Names",)]


def test_groups_of_one_key_in_several_aggregates_are_written_together(
    path: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "FIRST", 21)
    with tm.open(path, models=[*MODELS, Numbers], build=False) as store:
        steps.then = lambda _: store.check().problems == () or pytest.fail("a group is there twice, or not whole")
        report = build(store)
        assert (report.ok, report.built) == (True, ("Names", "Numbers"))
        assert steps[-1].ended == ("Names", "Numbers")


@pytest.mark.parametrize("moment", range(1, 15))
@pytest.mark.parametrize("same", [True, False], ids=["this store", "another one"])
def test_a_write_in_between_sends_the_build_back_to_its_batches(
    path: Path, steps: Steps, moment: int, *, same: bool
) -> None:
    with tm.open(path, models=MODELS, build=False) as store, tm.open(path, models=[Part]) as other:
        writer = store if same else other

        def write(number: int) -> None:
            if number == moment:
                writer.delete(Part.key("a", 599))
                writer.merge(Part.key("a", 598), name="n0")
                writer.insert(Part("b", 1, "n149"))
                assert store.check().problems == ()

        steps.then = write
        report = build(store)
        assert (report.ok, report.entities) == (True, COUNT), "what was read in vain is not counted"
        assert [one for one in steps.entities if one < 0] == [-sum(one for one in steps.entities if one > 0)]
        assert len(steps) == moment + 1, "it is not tried again"
        assert store.check().problems == ()
        assert store[Names.key("n0")].parts == COUNT // NAMES + 1


def test_a_writer_that_goes_on_is_noticed_while_entities_are_read(path: Path, steps: Steps) -> None:
    with tm.open(path, models=MODELS, build=False) as store:
        steps.then = lambda number: store.merge(Part.key("a", 5), name=f"n{number}")
        assert build(store).ok
        assert steps.entities == [100, -100]


def test_what_another_thread_learns_as_a_job_begins_is_not_mixed_with_what_was_known(
    path: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, dropped = group_build.SqliteGroupBuild._next_job, list[None]()
    with sound_store(path, models=[*MODELS, Numbers], build=False) as store, tm.open(path, models=[Part]) as other:

        def learn(self: group_build.SqliteGroupBuild, *known: Any) -> Any:
            if (job := real(self, *known)) is not None and not dropped:
                dropped.append(drop(other, "Numbers"))
                engine_of(store).catch_up()
            return job

        monkeypatch.setattr(group_build.SqliteGroupBuild, "_next_job", learn)
        assert build(store, labels=["Names"]).ok


def test_no_more_groups_are_kept_than_fit(path: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_build, "_MOST", 120)
    monkeypatch.setattr(group_build, "_LOOK", 1e9)
    with sound_store(path, models=MODELS, build=False) as store:
        report = build(store)
        assert (report.ok, report.entities, steps) == (True, COUNT, [])


def test_a_build_goes_on_past_an_entity_whose_key_cannot_be_read(path: Path, steps: Steps) -> None:
    with tm.open(path, models=[Part, Numbers], build=False) as store:
        file = engine_of(store).file
        file.write(lambda writer: writer.execute("UPDATE Parts SET RowKey = 'c4zz' WHERE RowKey = 'c400'"))
        assert build(store).ok
        assert [(one.kind, one.key[1]) for one in store.check().problems] == [("damaged", "c4zz")]


def test_what_has_rows_of_each_entity_is_built_by_batches(path: Path, steps: Steps) -> None:
    indexed = part(by_name=tm.Index[str](partition="{name}"))
    extremes = totals(Part, "Extremes", most=(int | None, tm.max(Part.number)))
    for models in ([indexed, totals(indexed, "Names")], [Part, extremes]):
        with sound_store(path, models=models, build=False) as store:
            assert build(store).ok
    assert steps == []


def test_groups_that_the_next_batch_leaves_alone_are_built_by_batches(tmp_path: Path, steps: Steps) -> None:
    with tm.open(tmp_path / "s.db", models=[Part]) as store:
        store.insert_many(Part("a", number, f"n{number // 100}") for number in range(COUNT))
    with tm.open(tmp_path / "s.db", models=MODELS, build=False) as store:
        assert build(store).ok
        assert steps == []


def test_a_build_with_a_limit_reads_no_more(path: Path, steps: Steps) -> None:
    with tm.open(path, models=MODELS, build=False) as store:
        assert build(store, limit=300).entities == 300
        assert steps == []


@pytest.mark.parametrize("within", [False, True], ids=["between two steps", "in a step"])
def test_what_ends_a_build_lets_go_of_the_state_that_is_read(
    path: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch, *, within: bool
) -> None:
    def stop(*_: object) -> None:
        raise RuntimeError("stop")

    with sound_store(path, models=MODELS, build=False) as store:
        with monkeypatch.context() as patch:
            if within:
                steps.then = lambda number: patch.setattr(group_build.SqliteGroupBuild, "_alone", stop)
            else:
                steps.then = stop
            with pytest.raises(RuntimeError, match="stop") as caught:
                build(store)
        steps.then = lambda number: None
        store.compact()  # which no reader lets happen
        assert caught is not None
        assert build(store).ok


# ---------------------------------------------------------------------------------------------- faults


@pytest.fixture
def registered(tmp_path: Path) -> Path:
    """Return a file in which a job has begun."""
    path = tmp_path / "s.db"
    with tm.open(path, models=[Part]) as store:
        store.insert_many(Part("a", number, f"n{number % 50:02}") for number in range(120))
    with tm.open(path, models=MODELS, build=False) as store:
        store.build(limit=10)
    return path


def opened(path: Path, **options: Any) -> SqliteEngine:
    return SqliteEngine.open(path, compile_schema(MODELS), **options)


def slices(engine: SqliteEngine, most: int) -> Iterator[int]:
    """Build ahead, and yield how many groups are written."""
    builder, done = engine.group_build(None), 0
    yield done
    try:
        while (built := builder.step(most, start=True)) is not None and built.entities >= 0:
            done += most * (not built.entities)
            yield done
    finally:
        builder.close()


def reached(store: tm.Store) -> int:
    """Return how many groups the frontier has passed."""
    names = [job.name for job in engine_of(store)._sqlite.all_jobs]
    if not names:
        return 50
    *_, last = engine_of(store).file.get(CURSOR, (names[0],)) or ()
    return 0 if last is None else int(last[1:]) + 1


def check_half(path: Path, allowed: Callable[[int], bool]) -> None:
    """Check what is built so far, also after a write of each kind, and that the build comes to its end from there."""
    with tm.open(path, models=MODELS, durability="relaxed", build=False) as store:
        assert store.check().problems == ()
        assert allowed(reached(store)), reached(store)
        store.insert(Part("b", 1, "n49"))
        store.merge(Part.key("a", 119), name="n00")
        store.delete(Part.key("a", 0))
        assert store.check().problems == ()
        assert store.build(rest=0).ok
        assert store.check().problems == ()
        assert [store[Names.key(name)].parts for name in ("n00", "n49")] == [3, 3]


@pytest.mark.one_python
def test_builders_that_are_killed_leave_whole_slices(tmp_path: Path, *, full_size: bool) -> None:
    path, draw, stages, steps = tmp_path / "s.db", random.Random(1), set[int](), 0

    def build_all() -> None:
        with tm.open(path, models=MODELS, durability="relaxed", build=False) as store:
            builder, connection = engine_of(store).group_build(None), engine_of(store).file._connection
            assert connection is not None
            connection.set_progress_handler(lambda: os.kill(os.getpid(), signal.SIGKILL), steps)
            while builder.step(7, start=True) or store._engine.build(7, None):
                pass

    for _ in range(20 if full_size else 1):
        for place in tmp_path.glob("s.db*"):
            place.unlink()
        with tm.open(path, models=[Part], durability="relaxed") as store:
            store.insert_many(Part("a", number, f"n{number % 700:03}") for number in range(1_400))
        tm.open(path, models=MODELS, build=False).close()
        for number in range(100):
            steps = draw.randrange(1, 2_000)  # of SQLite, on the connection that writes
            os.waitpid(spawn(build_all, tmp_path / "raised"), 0)
            with tm.open(path, models=MODELS, durability="relaxed", build=False) as store:
                assert store.check().problems == ()
                if store.status()["Names"].state == "ready":
                    break
                stages.add(reached(store))
            with tm.open(path, models=[Part], durability="relaxed") as store:
                store.delete(Part.key("a", 10 + number))
                store.merge(Part.key("a", 1_300 - number), name=f"n{draw.randrange(700):03}")
        assert not (tmp_path / "raised").exists()
    assert len(stages) > 5


SLICES = Build(opened, slices, check_half, whole=50)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("op", OPERATIONS)
def test_a_slice_that_meets_a_fault_is_there_or_not(op: str, registered: Path, *, sticky: bool) -> None:
    fail_each_call(SLICES, registered, op, 16, sticky=sticky)


@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_leaves_whole_slices(registered: Path, seed: int, *, full_size: bool) -> None:
    cut_the_power(SLICES, registered, 12, seed, every_moment=full_size)
