"""What goes when a migration is contracted, and what stays: also where former definitions are still in use."""

from __future__ import annotations

import random
from contextlib import ExitStack, closing
from itertools import count
from operator import methodcaller as step
from pathlib import Path
from typing import Any

import apsw
import pytest

import tablemapper as tm
from tablemapper.cli.app import run as command
from tablemapper.engines.sqlite.online.migration import SqliteMigrations
from tablemapper.migrations import runner
from tablemapper.store import builds

from ..classes import aggregate, entity
from ..stores import sound_store
from .shapes import (
    FIELDS,
    OLD,
    OLD_TOTALS,
    PRICED,
    STOCK,
    TO_DECIMAL,
    cases,
    contents,
    held,
    insert,
    made,
    migrate,
    more_cases,
    opened,
    part,
    parts,
    stocks,
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def tables(path: Path) -> list[str]:
    with closing(SqliteMigrations.open(path)) as engine:
        return [name for (name,) in engine._file.read("SELECT name FROM sqlite_schema")]


def test_contract_drops_what_is_left_and_there_is_no_way_back(bare: Path) -> None:
    migrate(bare, TO_DECIMAL)
    with opened(bare, PRICED) as store:  # without the script, so the old version ends
        store.upsert(store[PRICED.key("a", 1)])
    assert any("_before_first" in name for name in tables(bare))
    report = migrate(bare, TO_DECIMAL, contract=True)
    assert report.done
    assert report.contracted == ("first",)
    assert str(report) == "nothing to migrate\ncontracted first"
    assert migrate(bare, TO_DECIMAL, contract=True).contracted == ()
    assert not any("_before_first" in name for name in tables(bare))
    assert tm.status(bare).history[0].state == "contracted"
    with pytest.raises(tm.InvalidMigration, match="first: it was contracted: the old tables are gone"):
        migrate(bare, TO_DECIMAL, to="")
    assert held(bare, PRICED)[7].price == 7


@pytest.mark.parametrize("name", ["convert", "rewrite", "drop of an index", "drop of a class", "two scripts"])
def test_two_runs_contract_a_migration_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    case, write, old = {**cases(), **more_cases()}[name], SqliteMigrations._paced, parts(20, random.Random(4))
    for at in count():
        path = tmp_path / f"{at}.db"
        insert(path, *old, *stocks(), also=[OLD_TOTALS])
        migrate(path, *case.scripts)
        with opened(path, *case.new) as store:
            before = contents(store, case.new)
        writes = count()

        def behind_another_run(self: Any, write_it: Any, path: Path = path, writes: Any = writes, at: int = at) -> Any:
            if next(writes) == at:
                assert migrate(path, *case.scripts, contract=True).ok
            return write(self, write_it)

        monkeypatch.setattr(SqliteMigrations, "_paced", behind_another_run)
        assert migrate(path, *case.scripts, contract=True).ok
        monkeypatch.undo()
        with opened(path, *case.new) as store:
            assert contents(store, case.new) == before
            assert store.check().ok
        assert not any("_before_" in name for name in tables(path))
        if next(writes) <= at:
            break
    assert at > 0


def test_a_contraction_deletes_and_pauses_as_hold_and_rest_say(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases()["convert"]
    insert(path, *parts(100, random.Random(4)), also=[OLD_TOTALS])
    migrate(path, case.script)
    left, paces, in_batches = list[int](), list[tuple[float, float]](), runner.in_batches

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

    monkeypatch.setattr(runner, "in_batches", noted)
    monkeypatch.setattr(builds, "FIRST", 7)
    monkeypatch.setattr(builds, "steered", lambda most, *_: most + 10)
    assert migrate(path, case.script, contract=True, hold=0.25, rest=3.0).ok
    assert set(paces) == {(0.25, 3.0)}
    assert [count for count in dict.fromkeys(left) if count < 200] == [193, 176, 149, 112]


def test_a_run_that_contracts_deletes_no_rows_of_a_class_that_has_the_name_since(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = SqliteMigrations._paced
    own, others = [tm.Key[str, int](partition="{shelf}", row=(name, "{number}")) for name in ("part", "other")]
    before, again, other = part(key=own), part(FIELDS | {"price": int}, own), part(key=others, name="Other")
    one = made(other, [before, other], step("drop", before))
    insert(path, before("a", 1, price="1", maker=None, tags=[]), also=[other])
    migrate(path, one)

    def behind_others(self: Any, write_it: Any) -> Any:
        if write_it.func.__name__ == "_delete_rows":
            monkeypatch.undo()
            assert migrate(path, one, contract=True).ok
            insert(path, again("b", 2, price=2, maker=None, tags=[]), also=[other])
        return write(self, write_it)

    monkeypatch.setattr(SqliteMigrations, "_paced", behind_others)
    assert migrate(path, one, contract=True).ok
    assert len(held(path, again, other)) == 1


def test_a_run_does_not_contract_what_another_one_has_undone_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, contract = cases()["convert"], SqliteMigrations.contract
    insert(path, *parts(20, random.Random(4)), also=[OLD_TOTALS])
    before = held(path, OLD, OLD_TOTALS)
    migrate(path, case.script)

    def behind_an_undoing(*args: Any) -> bool:
        assert migrate(path, case.script, to="").applied == ("first",)
        return contract(*args)

    monkeypatch.setattr(SqliteMigrations, "contract", behind_an_undoing)
    assert migrate(path, case.script, contract=True).contracted == ()
    assert tm.status(path).history == ()
    monkeypatch.undo()
    assert held(path, OLD, OLD_TOTALS) == before
    assert migrate(path, case.script, contract=True).contracted == ("first",)


@pytest.mark.parametrize("compact", [False, True], ids=["", "compact"])
def test_a_store_whose_last_class_is_gone_is_opened_with_another(path: Path, *, compact: bool) -> None:
    only = part(by_maker=tm.Index[str](partition="{maker}"))
    insert(path, only("a", 1, price="1", maker="m", tags=[]))
    assert migrate(path, made([], only, step("drop", only)), contract=True).contracted == ("first",)
    assert [one.state for one in tm.status(path).history] == ["contracted"]
    if compact:
        assert command(["compact", str(path)]) == 0
    insert(path, *stocks())
    with pytest.raises(tm.SchemaMismatch, match="first"):
        tm.open(path, models=[only])
    with tm.open(path, models=[STOCK]) as store:
        assert store.check().ok
        assert contents(store, [STOCK]) == sorted(map(repr, stocks()))


# ---------------------------------------------------------------------------------------------- former definitions


def version(by: str, measure: Any, color: str = "color", kind: Any = int, *, more: bool = False) -> list[Any]:
    """Return a version of the classes, by what its index and its aggregate are of."""
    fields = {"shelf": str, "number": int, color: kind} | ({"more": int | None} if more else {})
    key = tm.Key[str, int](partition="{shelf}", row="{number}")
    cls = entity("Part", "Parts", fields, key, by=tm.Index(partition=by))
    members = {"shelf": (str, tm.group_by(cls.shelf)), "extreme": (int | None, measure(cls.number))}
    indexes = {"by_extreme": tm.Index(partition="{extreme}")} if more else {}
    return [cls, aggregate("Extremes", cls, members, tm.Key[str](partition="{shelf}"), **indexes)]


OLDEST, FORMER = version("{number}", tm.max), version("{color}", tm.min)
TINT = version("{tint}", tm.min, color="tint")


def tint(new: list[Any], old: list[Any] = FORMER) -> Any:
    return made(new, old, step("rename", old[0].color, new[0].tint), name="tint")


@pytest.fixture
def filled(path: Path) -> Path:
    insert(path, *[OLDEST[0]("a", number, number % 3) for number in range(9)], also=OLDEST)
    return path


@pytest.fixture
def former(filled: Path) -> Path:
    """Return a store of two versions, each with an index and an aggregate of the same name."""
    with tm.open(filled, models=FORMER) as store:
        assert store.status()["Part.by#1"].state == store.status()["Extremes#1"].state == "ready"
    return filled


def labels(path: Path) -> list[str]:
    return [item.where for item in tm.status(path).objects if item.state not in ("dropping", "dropped")]


def test_former_definitions_end_with_the_class_that_is_copied(former: Path) -> None:
    new = version("{color}", tm.min, kind=str)
    text = made(new, FORMER, step("convert", FORMER[0].color, new[0].color, lambda color: str(color), back=int))
    for _ in range(2):
        assert migrate(former, text).entities == 9
        assert [item.where for item in tm.status(former).objects] == ["Part", "Part.by", "Extremes"]
        assert {one.color for one in held(former, *new).values()} == {"0", "1", "2"}
        assert migrate(former, text, to="").ok
        assert held(former, *FORMER)
    assert migrate(former, text, contract=True).ok
    with sound_store(former, models=new) as store:
        store.compact()


def test_all_versions_go_on_when_a_field_that_both_definitions_have_is_renamed(former: Path) -> None:
    with ExitStack() as stack:
        running = [(stack.enter_context(tm.open(former, models=models)), models) for models in (OLDEST, FORMER)]
        assert migrate(former, tint(TINT)).ok
        running.append((stack.enter_context(tm.open(former, models=TINT)), TINT))
        for number, (store, models) in enumerate(running, 20):
            store.insert(models[0]("b", number, number))
            assert store.check().ok
        assert [store[models[1].key("b")].extreme for store, models in running] == [22, 20, 20]
        for store, models in running:
            assert [one.number for one in store.query(models[0].by(21))] == [21]


def test_contract_drops_former_definitions_that_no_version_in_use_has(former: Path) -> None:
    assert migrate(former, tint(TINT)).ok
    assert labels(former) == ["Part", "Part.by#1", "Part.by", "Extremes", "Extremes#1"]
    assert migrate(former, tint(TINT), contract=True).ok
    with tm.open(former, models=TINT) as store:
        assert store.check().ok
        store.insert(TINT[0]("b", 20, 20))
    assert labels(former) == ["Part", "Part.by", "Extremes"]
    with pytest.raises(tm.SchemaMismatch, match="migration tint replaced this form"):
        tm.open(former, models=OLDEST)
    again = version("{number}", tm.max, color="tint", more=True)
    with sound_store(former, models=again) as store:  # as anything that is declared anew
        assert store[again[1].key("b")].extreme == 20
        assert [one.tint for one in store.query(again[0].by(20))] == [20]
        assert store.check().ok
        store.compact()


def test_former_definitions_stay_while_a_version_in_use_may_have_them(former: Path) -> None:
    assert migrate(former, tint(TINT), contract=True).ok
    assert not any("#" in label for label in labels(former))
    newer, newest = (version("{number}", tm.max, color="tint", more=True), version("{shelf}", tm.sum, color="tint"))
    for models in (newer, newest):
        tm.open(former, models=models).close()
        assert migrate(former, tint(TINT), contract=True).ok
    for models in (TINT, newer, newest):
        assert held(former, *models)
    assert [label for label in labels(former) if "#" in label] == [
        "Part.by#1", "Part.by#2", "Extremes#1", "Extremes#2", "Extremes#2.by_extreme",
    ]  # fmt: skip


def test_a_former_index_that_is_declared_again_and_then_no_more_stays_for_those_who_have_it(former: Path) -> None:
    assert migrate(former, tint(TINT)).ok
    again = version("{number}", tm.min, color="tint")
    with tm.open(former, models=again) as store:
        assert store.status()["Part.by#1"].declared
    newest = version("{tint}", tm.min, color="tint", more=True)
    tm.open(former, models=newest).close()
    assert migrate(former, tint(TINT), contract=True).ok
    for models in (TINT, again, newest):
        with sound_store(former, models=models) as store:
            assert [one.number for one in store.query(models[0].by(1))] in ([1], [1, 4, 7])
    assert [label for label in labels(former) if "#" in label] == ["Part.by#1"]


def test_a_former_index_that_the_newest_version_declares_again_stays(former: Path) -> None:
    new = version("{number}", tm.min, color="tint")
    for _ in range(2):
        assert migrate(former, tint(new), contract=True).ok
    with sound_store(former, models=new) as store:
        assert [one.number for one in store.query(new[0].by(7))] == [7]
    assert labels(former) == ["Part", "Part.by#1", "Part.by", "Extremes"]


def test_an_aggregate_that_goes_back_to_a_former_definition_with_one_more_index_is_built(former: Path) -> None:
    cls, extremes = version("{color}", tm.max, more=True)
    with sound_store(former, models=[cls, extremes]) as store, sound_store(former, models=OLDEST) as oldest:
        assert [one.shelf for one in store.query(extremes.by_extreme(8))] == ["a"]
        oldest.insert(OLDEST[0]("b", 20, 1))
        assert [one.shelf for one in store.query(extremes.by_extreme(20))] == ["b"]


@pytest.mark.parametrize("before", [True, False], ids=["opened before", "opened after"])
def test_an_aggregate_that_a_rename_does_not_touch_stays_when_that_is_contracted(former: Path, *, before: bool) -> None:
    back = version("{tint}", tm.max, color="tint")
    assert migrate(former, tint(TINT)).ok
    with ExitStack() as stack:
        store = stack.enter_context(tm.open(former, models=back)) if before else None
        assert migrate(former, tint(TINT), contract=True).ok
        store = store or stack.enter_context(tm.open(former, models=back))
        store.insert(back[0]("b", 20, 20))
        assert [store[back[1].key(shelf)].extreme for shelf in "ab"] == [8, 20]
        assert store.check().ok
    with tm.open(former, models=TINT) as store:
        assert [store[TINT[1].key(shelf)].extreme for shelf in "ab"] == [0, 20]
    for models in (FORMER, OLDEST):
        with pytest.raises(tm.SchemaMismatch, match="migration tint replaced this form"):
            tm.open(former, models=models)


def extreme(path: Path, models: list[Any]) -> int:
    """Return the extreme of a shelf, from a store without problems."""
    with tm.open(path, models=models) as store:
        assert store.check().ok
        return int(store[models[1].key("a")].extreme)


def test_an_aggregate_that_a_rename_changed_comes_back_with_the_way_back(filled: Path) -> None:
    new = version("{number}", tm.min, color="tint")
    for _ in range(2):
        assert migrate(filled, tint(new, OLDEST)).ok
        assert extreme(filled, new) == 0
        assert migrate(filled, tint(new, OLDEST), to="").ok
        assert extreme(filled, OLDEST) == 8


def test_a_definition_stays_at_contract_for_the_version_that_came_back_with_the_way_back(filled: Path) -> None:
    new = version("{number}", tm.min, color="tint")
    for to in (None, ""):
        assert migrate(filled, tint(new, OLDEST), to=to).ok
        tm.open(filled, models=new).close()  # it goes on, too, once it is undone
    assert migrate(filled, tint(new, OLDEST), to="", contract=True).ok
    assert extreme(filled, OLDEST) == 8


def test_an_index_is_dropped_and_declared_in_another_way(former: Path) -> None:
    new = version("{shelf}", tm.min)
    change = made(new, FORMER, step("drop", FORMER[0].by), name="change")

    def found(models: list[Any], value: Any) -> int:
        with tm.open(former, models=models) as store:
            assert store.check().ok
            return len(list(store.query(models[0].by(value))))

    for _ in range(2):
        assert migrate(former, change).ok
        assert found(new, "a") == 9
        assert migrate(former, change, to="").ok
        assert found(FORMER, 1) == 3
    assert migrate(former, change, contract=True).ok
    assert found(new, "a") == 9
    with pytest.raises(tm.SchemaMismatch, match="by was dropped by change"):
        tm.open(former, models=FORMER)
