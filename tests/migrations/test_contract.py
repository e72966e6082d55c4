"""Two runs contract a migration at once: each finds what the other one has left."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest

import tablemapper as tm
from tablemapper.cli import stores  # noqa: F401  its commands
from tablemapper.cli.app import run as command
from tablemapper.engines.sqlite.online.migration import SqliteMigrations
from tablemapper.migrations import run
from tablemapper.store import builds

from .shapes import FIELDS, OLD, OLD_TOTALS, STOCK, cases, contents, migrate, more_cases, part, parts, script, stocks
from .test_back import tables


@pytest.mark.parametrize("name", ["convert", "rewrite", "drop of an index", "drop of a class", "two scripts"])
def test_two_runs_contract_a_migration_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    case, write, old = {**cases(), **more_cases()}[name], SqliteMigrations._paced, parts(20, random.Random(4))
    for at in count():
        path = tmp_path / f"{at}.db"
        with tm.open(path, models=[OLD, OLD_TOTALS, STOCK], durability="relaxed") as store:
            store.insert_many([*old, *stocks()])
        migrate(path, *case.scripts)
        with tm.open(path, models=case.new, durability="relaxed") as store:
            before = contents(store, case.new)
        writes = count()

        def behind_another_run(self: Any, write_it: Any, path: Path = path, writes: Any = writes, at: int = at) -> Any:
            if next(writes) == at:
                assert migrate(path, *case.scripts, contract=True).ok
            return write(self, write_it)

        monkeypatch.setattr(SqliteMigrations, "_paced", behind_another_run)
        assert migrate(path, *case.scripts, contract=True).ok
        monkeypatch.undo()
        with tm.open(path, models=case.new, durability="relaxed") as store:
            assert contents(store, case.new) == before
            assert store.check().ok
        assert not any("_before_" in name for name in tables(path))
        if next(writes) <= at:
            break
    assert at > 0


def test_a_contraction_deletes_and_pauses_as_hold_and_rest_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, case = tmp_path / "s.db", cases()["convert"]
    with tm.open(path, models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        store.insert_many(parts(100, random.Random(4)))
    migrate(path, case.script)
    left, paces, in_batches = list[int](), list[tuple[float, float]](), run.in_batches

    def noted(step: Any, *, hold: float, rest: float, **options: Any) -> None:
        def counted(most: int) -> Any:
            pace = step(most)
            names = [name for name in tables(path) if name.startswith("Parts") and not name.startswith("PartsBy")]
            with apsw.Connection(str(path)) as db:
                left.append(sum(db.execute(f'SELECT count(*) FROM "{name}"').get for name in names))
            db.close()
            return pace

        paces.append((hold, rest))
        in_batches(counted, hold=hold, rest=rest, **options)

    monkeypatch.setattr(run, "in_batches", noted)
    monkeypatch.setattr(builds, "FIRST", 7)
    monkeypatch.setattr(builds, "steered", lambda most, *_: most + 10)
    assert migrate(path, case.script, contract=True, hold=0.25, rest=3.0).ok
    assert set(paces) == {(0.25, 3.0)}
    assert [count for count in dict.fromkeys(left) if count < 200] == [193, 176, 149, 112]


def test_a_run_that_contracts_deletes_no_rows_of_a_class_that_has_the_name_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "s.db", SqliteMigrations._paced
    own, others = [tm.Key[str, int](partition="{shelf}", row=(name, "{number}")) for name in ("part", "other")]
    bare, again, other = part(key=own), part(FIELDS | {"price": int}, own), part(key=others, name="Other")
    one = script([other], lambda m: m.drop(bare), "first", None, [bare, other])
    with tm.open(path, models=[bare, other], durability="relaxed") as store:
        store.insert(bare("a", 1, price="1", maker=None, tags=[]))
    migrate(path, one)

    def behind_others(self: Any, write_it: Any) -> Any:
        if write_it.func.__name__ == "_delete_rows":
            monkeypatch.undo()
            assert migrate(path, one, contract=True).ok
            with tm.open(path, models=[other, again], durability="relaxed") as store:
                store.insert(again("b", 2, price=2, maker=None, tags=[]))
        return write(self, write_it)

    monkeypatch.setattr(SqliteMigrations, "_paced", behind_others)
    assert migrate(path, one, contract=True).ok
    with tm.open(path, models=[other, again], durability="relaxed") as store:
        assert store.query(again).allow_scan().count() == 1
        assert store.check().ok


def test_a_run_does_not_contract_what_another_one_has_undone_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, case, contract = tmp_path / "s.db", cases()["convert"], SqliteMigrations.contract
    with tm.open(path, models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        store.insert_many(parts(20, random.Random(4)))
        before = contents(store, [OLD])
    migrate(path, case.script)

    def behind_an_undoing(*args: Any) -> bool:
        assert migrate(path, case.script, to="").applied == ("first",)
        return contract(*args)

    monkeypatch.setattr(SqliteMigrations, "contract", behind_an_undoing)
    assert migrate(path, case.script, contract=True).contracted == ()
    assert tm.status(path).history == ()
    monkeypatch.undo()
    with tm.open(path, models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        assert contents(store, [OLD]) == before
        assert store.check().ok
    assert migrate(path, case.script, contract=True).contracted == ("first",)


@pytest.mark.parametrize("compact", [False, True], ids=["", "compact"])
def test_a_store_whose_last_class_is_gone_is_opened_with_another(tmp_path: Path, *, compact: bool) -> None:
    path, only = tmp_path / "s.db", part(by_maker=tm.Index[str](partition="{maker}"))
    with tm.open(path, models=[only], durability="relaxed") as store:
        store.insert(only("a", 1, price="1", maker="m", tags=[]))
    drop = script([], lambda m: m.drop(only), "first", None, [only])
    assert migrate(path, drop, contract=True).contracted == ("first",)
    assert [one.state for one in tm.status(path).history] == ["contracted"]
    if compact:
        assert command(["compact", str(path)]) == 0
    with tm.open(path, models=[STOCK], durability="relaxed") as store:
        store.insert_many(stocks())
        assert store.check().ok
    with pytest.raises(tm.SchemaMismatch, match="first"):
        tm.open(path, models=[only])
    with tm.open(path, models=[STOCK]) as store:
        assert contents(store, [STOCK]) == sorted(map(repr, stocks()))
