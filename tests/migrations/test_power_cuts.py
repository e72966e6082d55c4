"""The power is cut while a migration copies, switches, is undone, given up or contracted: what was acknowledged holds, and it goes on."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.online.migration import SqliteMigrations
from tablemapper.schema.model import compile_schema
from tablemapper.store.store import Store

from .. import sqlite_vfs  # noqa: F401  registers the file layers
from ..sqlite_vfs import Power
from .shapes import OLD, OLD_TOTALS, Case, a_part, batches_of, begun, cases, contents, parts, texts

ENTITIES = 24
CASE = cases()["rewrite"]
Done = list[tuple[int, str]]
"""What was acknowledged, each with the number of calls that the disk had seen by then."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "power"
    folder.mkdir()
    with tm.open(tmp_path / "s.db", models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        store.insert_many(parts(ENTITIES, random.Random(1)))
    shutil.copy(tmp_path / "s.db", folder / "s.db")
    return folder / "s.db"


def _run(path: Path, durability: Any, script: Any, *, back: bool) -> Done:
    """Migrate, in small steps."""
    done: Done = [(0, "new" if back else "old")]
    engine = begun(path, script, back=back, durability=durability, vfs="power")
    while not engine.step(7).switched:
        pass
    done.append((Power.events, "old" if back else "new"))
    engine.close()
    return done


def _state(image: Path) -> str:
    history = tm.status(image).history
    return "new" if history and history[-1].state != "running" else "old"


def _read(image: Path, classes: Any) -> list[str]:
    with tm.open(image, models=list(classes), durability="relaxed") as store:
        assert store.check().ok
        return contents(store, classes)


def _moments(draw: random.Random, *, full_size: bool) -> list[int]:
    return list(range(Power.events)) if full_size else sorted(draw.sample(range(Power.events), 8))


def _cut(path: Path, moment: int, draw: random.Random) -> Path:
    image = path.with_name(f"{moment}.db")
    Power.cut(moment, draw, image)
    return image


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_leaves_the_old_classes_or_the_new_ones(path: Path, seed: int, *, full_size: bool) -> None:
    draw = random.Random(seed)
    before = _read(path, [OLD, OLD_TOTALS])
    old = parts(ENTITIES, random.Random(1))
    after = texts(new for one in {e.key: e for e in old}.values() for new in CASE.made(one))
    Power.start(path)
    done = _run(path, "full", CASE.script, back=False)
    assert Power.events > 30
    for moment in _moments(draw, full_size=full_size):
        image = _cut(path, moment, draw)
        state = _state(image)
        if state == "old":
            assert moment < done[-1][0], "a switch that was acknowledged is lost"
            assert _read(image, [OLD, OLD_TOTALS]) == before
            assert tm.migrate(image, [CASE.script], rest=0, durability="relaxed").ok
        assert _read(image, CASE.new) == after


@pytest.mark.long
def test_a_power_cut_while_a_migration_is_undone_leaves_the_one_or_the_other(path: Path, *, full_size: bool) -> None:
    draw = random.Random(7)
    case: Case = cases()["convert"]
    before = _read(path, [OLD, OLD_TOTALS])
    assert tm.migrate(path, [case.script], rest=0).ok
    Power.start(path)
    done = _run(path, "full", case.script, back=True)
    for moment in _moments(draw, full_size=full_size):
        image = _cut(path, moment, draw)
        if tm.status(image).history:
            assert moment < done[-1][0], "what was undone is there again"
            assert len(_read(image, case.new)) == len(before)
            assert tm.migrate(image, [case.script], to="", rest=0, durability="relaxed").ok
        assert _read(image, [OLD, OLD_TOTALS]) == before


def _with_vfs(path: Path, classes: Any) -> tm.Store:
    engine = SqliteEngine.open(path, compile_schema(classes), durability="full", vfs="power")
    return Store(engine)


def test_a_power_cut_while_both_versions_write_leaves_them_in_step(path: Path, *, full_size: bool) -> None:
    draw = random.Random(4)
    case: Case = cases()["rename_class"]
    assert tm.migrate(path, [case.script], rest=0).ok
    Power.start(path)
    done: list[tuple[int, list[str]]] = []
    with _with_vfs(path, [OLD, OLD_TOTALS]) as old, _with_vfs(path, case.new) as new:
        for number in range(12):
            one = a_part(number, draw)
            (old.upsert(one) if number % 2 else new.upsert(*case.made(one)))
            done.append((Power.events, _made(case, old)))
    for moment in _moments(draw, full_size=full_size):
        image = _cut(path, moment, draw)
        with tm.open(image, models=[OLD, OLD_TOTALS], durability="relaxed") as old:
            assert old.check().ok
            left = _made(case, old)
        assert _read(image, case.new) == left
        acknowledged = [at for at, (events, _) in enumerate(done) if events <= moment]
        assert left in [texts for _, texts in done[max(acknowledged, default=0) :]] or not acknowledged


@pytest.mark.long
@pytest.mark.parametrize("name", ["rewrite", "convert"])
def test_a_power_cut_while_a_migration_is_contracted_leaves_the_new_classes(
    path: Path, name: str, *, full_size: bool
) -> None:
    draw = random.Random(5)
    case = cases()[name]
    assert tm.migrate(path, [case.script], rest=0).ok
    after = _read(path, case.new)
    Power.start(path)
    engine = SqliteMigrations.open(path, durability="full", vfs="power")
    engine.contract("first", batches_of(7))
    acknowledged = Power.events
    engine.close()
    assert acknowledged > 30
    tables = _tables(path)
    for moment in _moments(draw, full_size=full_size):
        image = _cut(path, moment, draw)
        assert _read(image, case.new) == after
        (applied,) = tm.status(image).history
        assert applied.state == "contracted" or moment < acknowledged, "a contract that was acknowledged is lost"
        if applied.state == "contracted":
            with pytest.raises(tm.SchemaMismatch, match="first"):
                tm.open(image, models=[OLD, OLD_TOTALS])
        assert tm.migrate(image, [case.script], contract=True, rest=0, durability="relaxed").ok
        assert _read(image, case.new) == after
        assert _tables(image) == tables


@pytest.mark.long
def test_a_power_cut_while_a_copy_is_given_up_leaves_it_or_nothing_of_it(path: Path, *, full_size: bool) -> None:
    draw = random.Random(6)
    before, tables = _read(path, [OLD, OLD_TOTALS]), _tables(path)
    old = parts(ENTITIES, random.Random(1))
    after = texts(new for one in {e.key: e for e in old}.values() for new in CASE.made(one))
    engine = begun(path, CASE.script)
    engine.step(7)
    engine.close()
    half = _tables(path)
    Power.start(path)
    engine = SqliteMigrations.open(path, durability="full", vfs="power")
    engine.discard("first")
    acknowledged = Power.events
    engine.close()
    assert acknowledged > 10
    for moment in _moments(draw, full_size=full_size):
        image = _cut(path, moment, draw)
        assert _read(image, [OLD, OLD_TOTALS]) == before
        if tm.status(image).history:
            assert moment < acknowledged, "a copy that was given up is there again"
            assert _tables(image) == half
        else:
            assert _tables(image) == tables
        assert tm.migrate(image, [CASE.script], rest=0, durability="relaxed").ok
        assert _read(image, CASE.new) == after


def _tables(image: Path) -> list[str]:
    with apsw.Connection(str(image)) as connection:
        return [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema ORDER BY 1")]


def _made(case: Case, store: tm.Store) -> list[str]:
    """Return what the new version should have of what the old one has."""
    return texts(new for one in store.query(OLD).allow_scan() for new in case.made(one))


def test_the_power_cuts_find_a_switch_that_is_not_synced(path: Path) -> None:
    """The control: a relaxed store may lose what it acknowledged."""
    Power.start(path)
    done = _run(path, "relaxed", CASE.script, back=False)
    image = path.with_name("cut.db")
    Power.cut(done[-1][0], random.Random(3), image, lost=1.0)
    assert _state(image) == "old"
    assert len(_read(image, [OLD, OLD_TOTALS])) > 0
