"""Two runs over one store at the same time, and a run beside an opening: whatever comes in between, either ends well."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.file.database import File

from ..children import Child
from ..classes import entity
from ..conftest import folder_in_memory
from .runner import migrate_often
from .shapes import OLD, OLD_TOTALS, STOCK, Case, cases, contents, migrate, more_cases, parts, stocks

PARTS = parts(30, random.Random(4))
CASES = {**cases(), **more_cases()}
OLD_ALL = [OLD, OLD_TOTALS, STOCK]
EXTRA = entity("Extra", "Extras", {"number": int}, tm.Key[int](partition="{number}"))
NOTED = entity("Stock", "Stocks", {"shelf": str, "number": int, "pieces": int, "note": str | None},
               tm.Key[str, int](partition="{shelf}", row="{number}"), by_pieces=tm.Index[int](partition="{pieces}"))  # fmt: skip


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of the old version."""
    path = tmp_path_factory.mktemp("old") / "s.db"
    with tm.open(path, models=OLD_ALL, durability="relaxed") as store:
        store.insert_many([*PARTS, *stocks()])
    return path


def behind(monkeypatch: pytest.MonkeyPatch, at: int, other: Callable[[], object], run: Callable[[], object]) -> bool:
    """Do something before the ``at``-th time that a run reads or writes the file; return whether it got so far."""
    touches, done = count(), False

    def touched(touch: Callable[..., Any], *args: Any, **options: Any) -> Any:
        nonlocal done
        if not done and next(touches) == at:
            done = True
            other()
        return touch(*args, **options)

    with monkeypatch.context() as patch:
        for name in ("snapshot", "by_writer", "_read", "seek", "_write"):
            method = getattr(File, name)
            patch.setattr(File, name, lambda *args, _method=method, **options: touched(_method, *args, **options))
        run()
    return done


def at_every_touch(
    monkeypatch: pytest.MonkeyPatch, before: Path, other: Callable[[Path], object], run: Callable[[Path], object],
    judge: Callable[[Path], object], step: int,
) -> None:  # fmt: skip
    """Do something at each ``step``-th time that a run touches its store, and judge each outcome."""
    for at in count(0, step):
        with folder_in_memory() as folder:
            path = Path(folder) / "s.db"
            shutil.copy(before, path)
            in_time = behind(monkeypatch, at, partial(other, path), partial(run, path))
            judge(path)
        if not in_time:
            assert at > 5
            return


def same(case: Case, *, new: bool) -> Callable[[Path], None]:
    """Return a judge of whether a store has what a case makes of it, or what there was before."""
    classes: list[Any] = list(case.new) if new else OLD_ALL
    expected = case.all_made(PARTS)
    if not new:
        expected = sorted([*map(repr, PARTS), *map(repr, stocks())])

    def judge(path: Path) -> None:
        with tm.open(path, models=classes, durability="relaxed") as store:
            assert contents(store, classes) == expected
            assert store.check().ok

    return judge


@pytest.fixture
def step(*, full_size: bool) -> int:
    """Which of the moments something else happens at; a prime, so that cases meet different ones."""
    return 1 if full_size else 13


@pytest.fixture(scope="module")
def new(old: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a store that each case has migrated."""
    paths = {}
    for name in BOTH_WAYS:
        paths[name] = tmp_path_factory.mktemp("new") / "s.db"
        shutil.copy(old, paths[name])
        finish(CASES[name], paths[name])
    return paths


@pytest.fixture(scope="module")
def undone(new: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a store that went forth and back by each case."""
    paths = {}
    for name, migrated in new.items():
        paths[name] = tmp_path_factory.mktemp("undone") / "s.db"
        shutil.copy(migrated, paths[name])
        finish(CASES[name], paths[name], to="")
    return paths


def finish(case: Case, path: Path, **options: Any) -> None:
    """Run a case's scripts to their end."""
    assert migrate(path, *case.scripts, **options).done


BOTH_WAYS = ["convert", "rename", "drop of an aggregate", "two scripts", "two copies", "drop"]


@pytest.mark.parametrize("options", [{}, {"contract": True}], ids=["", "contract"])
@pytest.mark.parametrize("name", [*BOTH_WAYS, "resolve", "drop of a class", "rewrite"])
def test_two_runs_at_once_both_end_well(
    old: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, Any], step: int
) -> None:
    run = partial(finish, CASES[name], **options)
    at_every_touch(monkeypatch, old, run, run, same(CASES[name], new=True), step)


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_two_runs_at_once_both_end_well_though_the_scripts_were_undone_before(
    undone: dict[str, Path], monkeypatch: pytest.MonkeyPatch, name: str, step: int
) -> None:
    run = partial(finish, CASES[name])
    at_every_touch(monkeypatch, undone[name], run, run, same(CASES[name], new=True), step)


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_two_undoings_at_once_both_end_well(
    new: dict[str, Path], monkeypatch: pytest.MonkeyPatch, name: str, step: int
) -> None:
    run = partial(finish, CASES[name], to="")
    at_every_touch(monkeypatch, new[name], run, run, same(CASES[name], new=False), step)


@pytest.mark.parametrize("way", ["forth", "back", "forth again"])
def test_a_run_goes_on_with_what_another_one_has_begun(
    old: Path, new: dict[str, Path], undone: dict[str, Path], monkeypatch: pytest.MonkeyPatch, way: str, step: int
) -> None:
    case, to = CASES["two copies"], "" if way == "back" else None
    before = {"forth": old, "back": new["two copies"], "forth again": undone["two copies"]}[way]
    begin, run = partial(migrate, to=to, limit=5), partial(finish, case, to=to)
    at_every_touch(
        monkeypatch, before, lambda path: begin(path, *case.scripts), run, same(case, new=to is None), min(step, 2)
    )


GAVE_WAY = "another run gave it up while this one copied|the undoing of first has not finished|it was contracted"


def try_to(case: Case, path: Path, **options: Any) -> None:
    """Run a case's scripts, unless another run wants the contrary just now."""
    with suppress_matching(GAVE_WAY):
        migrate(path, *case.scripts, **options)


@contextmanager
def suppress_matching(text: str) -> Iterator[None]:
    try:
        yield
    except tm.InvalidMigration as error:
        assert re.search(text, str(error)), error


@pytest.mark.parametrize("name", ["convert", "rename", "two copies", "drop"])
def test_of_a_run_and_an_undoing_at_once_either_ends_well_or_says_that_it_gave_way(
    old: Path, new: dict[str, Path], monkeypatch: pytest.MonkeyPatch, name: str, step: int
) -> None:
    case = CASES[name]

    def judge(path: Path) -> None:
        if tm.status(path).history and all(one.state == "switched" for one in tm.status(path).history):
            same(case, new=True)(path)
        finish(case, path, to="")
        same(case, new=False)(path)

    run, undo = partial(try_to, case), partial(try_to, case, to="")
    at_every_touch(monkeypatch, old, undo, run, judge, step)
    at_every_touch(monkeypatch, new[name], run, undo, judge, step)


@pytest.mark.parametrize("limit", [5, None], ids=["begun", "whole"])
@pytest.mark.parametrize("name", ["convert", "drop", "rename"])
def test_of_a_run_that_contracts_and_an_undoing_at_once_the_first_wins(
    new: dict[str, Path], monkeypatch: pytest.MonkeyPatch, name: str, limit: int | None, step: int
) -> None:
    case = CASES[name]

    def judge(path: Path) -> None:
        contracted = any(one.state == "contracted" for one in tm.status(path).history)
        if contracted:
            finish(case, path)  # (nothing is left of an undoing)
        else:
            finish(case, path, to="")
        same(case, new=contracted)(path)

    undo, contract = partial(try_to, case, to="", limit=limit), partial(try_to, case, contract=True)
    at_every_touch(monkeypatch, new[name], undo, contract, judge, step)
    at_every_touch(monkeypatch, new[name], contract, undo, judge, step)


@pytest.mark.parametrize("name", ["convert", "rename", "two scripts"])
def test_a_run_ends_well_beside_programs_that_open_the_store(
    old: Path, monkeypatch: pytest.MonkeyPatch, name: str, step: int
) -> None:
    case = CASES[name]

    def open_it(path: Path) -> None:
        tm.open(path, models=[EXTRA], durability="relaxed").close()
        with suppress(tm.SchemaMismatch):
            tm.open(path, models=[NOTED], durability="relaxed").close()
        with suppress(tm.SchemaMismatch):
            tm.open(path, models=OLD_ALL, durability="relaxed").close()

    at_every_touch(monkeypatch, old, open_it, partial(finish, case), same(case, new=True), step)


@pytest.mark.parametrize("name", ["convert", "rename", "two copies"])
def test_two_programs_that_migrate_when_they_start_both_start(
    old: Path, monkeypatch: pytest.MonkeyPatch, name: str, step: int
) -> None:
    case = CASES[name]

    def start(path: Path) -> None:
        finish(case, path)
        with tm.open(path, models=case.new, durability="relaxed") as store:
            assert contents(store, case.new) == case.all_made(PARTS)

    at_every_touch(monkeypatch, old, start, start, same(case, new=True), step)


def test_a_run_ends_well_though_a_newer_one_goes_on_beside_it(
    old: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    case = CASES["two copies"]

    def run(path: Path) -> None:
        with suppress_matching("second ran over this store, and is not among the scripts"):
            assert migrate(path, case.script).done

    def judge(path: Path) -> None:
        finish(case, path)
        same(case, new=True)(path)

    at_every_touch(monkeypatch, old, partial(finish, case), run, judge, step)


def test_two_runs_over_a_store_of_the_newest_version_note_each_script_once(
    old: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: int
) -> None:
    case = CASES["two scripts"]
    tm.open(tmp_path / "new.db", models=case.new).close()

    def judge(path: Path) -> None:
        assert [one.id for one in tm.status(path).history] == ["first", "second"]

    run = partial(finish, case)
    at_every_touch(monkeypatch, tmp_path / "new.db", run, run, judge, 1)


@pytest.mark.long
@pytest.mark.parametrize("name", ["convert", "rename", "two copies"])
def test_two_processes_that_run_a_script_forth_and_back_at_once_both_end_well_each_time(
    old: Path, tmp_path: Path, name: str, *, full_size: bool
) -> None:
    case = CASES[name]
    for store in range(25 if full_size else 1):  # the history grows with each round, and a run with the history
        path = tmp_path / f"{store}.db"
        shutil.copy(old, path)
        runners = [Child(migrate_often, path, name) for _ in range(2)]
        for round in range(20 if full_size else 2):
            for way in ("forth", "back"):
                for runner in runners:
                    runner.say(way)
                assert [runner.hear() for runner in runners] == ["done", "done"], f"store {store}, round {round}, {way}"
        for runner in runners:
            runner.end()
        same(case, new=False)(path)
