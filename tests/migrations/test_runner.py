"""Scripts that run over stores: what they make, beside whom, and what is left when they are killed."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.migration_protocol import CopyProgress
from tablemapper.engines.protocol import StepTiming
from tablemapper.engines.sqlite.online.migration import SqliteMigrations
from tablemapper.engines.sqlite.rows import jobs, write_hooks
from tablemapper.migrations import runner
from tablemapper.store import builds

from .shapes import OLD, OLD_TOTALS, Case, begin, cases, contents, parts, texts, write

pytestmark = pytest.mark.usefixtures("batches_of_seven")

CASES = cases()
STEERED = builds.steered


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "s.db", models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        store.insert_many(parts(30, random.Random(1)))
    return tmp_path / "s.db"


def migrate(path: Path, case: Case, **options: Any) -> tm.reports.MigrationReport:
    return tm.migrate(path, [case.script], **{"rest": 0, "durability": "relaxed", **options})


def check(path: Path, case: Case, old: list[Any]) -> None:
    """Compare a store that was migrated with what each old entity should have become."""
    with tm.open(path, models=case.new) as store:
        assert contents(store, case.new) == texts(new for one in old for new in case.made(one))
        report = store.check()
        assert report.ok, report


def old_entities(path: Path) -> list[Any]:
    with tm.open(path, models=[OLD, OLD_TOTALS]) as store:
        return list(store.query(OLD).allow_scan())


def paused(path: Path, rest: float) -> list[float]:
    """Run a script to its end; return for how long it paused."""
    pauses: list[float] = []
    scripts = runner.scripts_of([CASES["convert"].script])
    with closing(SqliteMigrations.open(path)) as engine:
        one = runner._Run(engine, scripts, None, False, 0.01, rest, lambda _: (), sleep=pauses.append)
        assert one.to(None).done
    return pauses


@pytest.mark.parametrize("delay", [2.0, 0.0])
def test_a_copy_pauses_for_those_that_write(path: Path, monkeypatch: pytest.MonkeyPatch, delay: float) -> None:
    step = SqliteMigrations.step
    monkeypatch.setattr(
        SqliteMigrations, "step", lambda self, most: attrs.evolve(step(self, most), pace=StepTiming(1.0, delay))
    )
    assert set(paused(path, 1.5)) == ({3.0} if delay else set())


def test_writers_that_never_pause_cannot_hold_up_the_switch(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions get longer, up to ten times, and pauses shorter, until one transaction follows the other."""
    went: list[float] = []
    step = SqliteMigrations.step

    def beside_writers(self: SqliteMigrations, most: int) -> CopyProgress:
        assert len(went) < 200, "it would go on for ever"
        if [one for one in went[-10:] if one < 0.08]:
            went.append(seconds := most / 1000)
            return CopyProgress(most, 0, 0, StepTiming(seconds, seconds), passed=True)
        return step(self, most)

    monkeypatch.setattr(SqliteMigrations, "step", beside_writers)
    monkeypatch.setattr(builds, "steered", STEERED)
    went.append(0.0)
    pauses = paused(path, 1.0)
    assert max(went) <= 0.1  # seconds: ten times what was wanted
    assert pauses[:2] == went[1:3]
    assert len(pauses) < len(went) - 4  # none at the end
    assert pauses[-1] < went[-1] / 2


def test_each_step_makes_of_every_entity_what_it_says(path: Path, case: Case) -> None:
    old = old_entities(path)
    report = migrate(path, case)
    assert report.ok
    assert report.applied == ("first",)
    assert report.entities == 30
    check(path, case, old)
    again = migrate(path, case)
    assert (again.done, again.applied, again.plan) == (True, (), ())


def steps(path: Path, case: Case, between: Callable[[SqliteMigrations], None], most: int = 3) -> None:
    """Migrate in batches of a few entities, and do something after each; at most 1,000."""
    engine = SqliteMigrations.open(path, durability="relaxed")
    try:
        begin(engine, case.script)
        for _ in range(1_000):
            if engine.step(most).switched:
                return
            between(engine)
        raise AssertionError("it does not end")
    finally:
        engine.close()


@pytest.mark.parametrize("seed", range(3))
def test_the_old_version_writes_on_until_the_switch(path: Path, case: Case, seed: int) -> None:
    draw = random.Random(seed)
    with tm.open(path, models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        old: list[Any] = []
        left = 40

        def between(_: SqliteMigrations) -> None:
            nonlocal left
            for _ in range(draw.randrange(4) if left else 0):
                write(store, draw)
                left = max(0, left - 1)
            old[:] = store.query(OLD).allow_scan()

        plan = migrate(path, case, dry_run=True).plan
        steps(path, case, between)
        if plan[0].old_version == "reads":
            assert texts(store.query(OLD).allow_scan()) == texts(old)
            with pytest.raises(tm.SchemaMismatch, match="can only read it"):
                store.insert(OLD("x", 1_000, price="1", maker=None, tags=[]))
        elif plan[0].old_version == "writes":
            store.insert(OLD("x", 1_000, price="1", maker=None, tags=[]))
            store.delete(OLD.key("x", 1_000))
        else:
            refused(store)
    check(path, case, old)


def refused(store: tm.Store) -> None:
    with pytest.raises(tm.SchemaMismatch, match="migration first replaced this form"):
        store.insert(OLD("x", 1_000, price="1", maker=None, tags=[]))
    with pytest.raises(tm.SchemaMismatch, match="migration first replaced this form"):
        store.get(OLD.key("x", 1))
    with pytest.raises(tm.SchemaMismatch, match="migration first replaced this form"):
        list(store.query(OLD).allow_scan())


def test_without_the_queue_something_is_lost(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_hooks.BackfillQueueHook, "collect_added", lambda *_: None)
    with pytest.raises(AssertionError):
        test_the_old_version_writes_on_until_the_switch(path, CASES["rewrite"], 1)


def test_a_limit_ends_a_call_and_the_next_one_goes_on(path: Path) -> None:
    case, old = CASES["several"], old_entities(path)
    for done in (False, False, True):
        report = migrate(path, case, limit=12)
        assert report.done is done
        assert report.entities == (6 if done else 12)
    check(path, case, old)
    assert jobs.LEDGER


def test_new_classes_cannot_be_opened_before_the_switch(path: Path) -> None:
    migrate(path, CASES["several"], limit=12)
    with pytest.raises(
        tm.SchemaMismatch,
        match=r"first is under way \(40 %, about \d+ s left\); it can be opened so once that has switched",
    ):
        tm.open(path, models=CASES["several"].new)
    assert tm.status(path).history[0].state == "running"


def test_a_dry_run_finds_every_fault_and_writes_nothing(path: Path) -> None:
    before = path.read_bytes()
    report = migrate(path, CASES["convert"], dry_run=True)
    assert (report.ok, report.applied, report.entities) == (True, (), 30)
    assert path.read_bytes() == before
    with tm.open(path, models=[OLD, OLD_TOTALS]) as store:
        store.merge(OLD.key("bad", 1)) if store.exists(OLD.key("bad", 1)) else None
        store.insert(OLD("bad", 1, price="cheap", maker=None, tags=[]))
        store.insert(OLD("bad", 2, price="dear", maker=None, tags=[]))
    report = migrate(path, CASES["convert"], dry_run=True)
    assert not report.ok
    assert [(fault.where, fault.key[0]) for fault in report.faults] == [("Part", "bad"), ("Part", "bad")]
    assert "ConversionSyntax" in report.faults[0].detail
    assert tm.status(path).history == ()


def test_a_store_that_was_frozen_under_way_switches_once_it_is_thawed(path: Path) -> None:
    old = old_entities(path)
    case = CASES["several"]
    assert not migrate(path, case, limit=12).done
    with tm.open(path, models=[OLD, OLD_TOTALS]) as store:
        store.freeze()
        with pytest.raises(tm.StoreLocked, match=r"frozen since .* store\.unfreeze"):
            migrate(path, case)
        assert len(list(store.query(OLD).allow_scan())) == 30
        store.unfreeze()
    assert migrate(path, case).done
    check(path, case, old)


def test_a_migration_of_a_frozen_store_is_only_tried(path: Path) -> None:
    with tm.open(path, models=[OLD, OLD_TOTALS]) as store:
        store.freeze()
    with pytest.raises(tm.StoreLocked, match="frozen"):
        migrate(path, CASES["convert"])
    assert migrate(path, CASES["convert"], dry_run=True).ok
    status = tm.status(path)
    assert (status.history, status.frozen is None) == ((), False)
