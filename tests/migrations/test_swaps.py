"""Undoing and doing again, where both versions go on: each class is found in the tables of its version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.online import takeover

from . import shapes
from .shapes import OLD, OLD_TOTALS, cases, entity, script

KEY = tm.Key[int](partition="{number}")


def part(maker: str = "maker") -> Any:
    return entity("Part", "Parts", {"number": int, maker: str}, KEY)


def stock(**body: Any) -> Any:
    return entity("Stock", "Stocks", {"number": int, "state": str}, KEY, **body)


def migrate(path: Path, *scripts: Any, **options: Any) -> tm.MigrationReport:
    return tm.migrate(path, scripts, **{"rest": 0, "durability": "relaxed", **options})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def test_a_class_that_has_one_form_in_both_versions_stays_where_it_is_with_an_index_that_was_dropped(
    path: Path,
) -> None:
    indexed, bare, other, old, new = (
        stock(by_state=tm.Index[str](partition="{state}")),
        stock(),
        stock(),
        part(),
        part("firm"),
    )

    def swap(m: tm.Migration) -> None:
        m.convert(bare.state, other.state, {"new": "sold", "sold": "new"})
        m.rename(old.maker, new.firm)

    scripts = [
        script([bare], lambda m: m.drop(indexed.by_state), "first", None, [indexed]),
        script([other, new], swap, "second", "first", [bare, old]),
    ]
    with tm.open(path, models=[old, indexed], durability="relaxed") as store:
        store.insert(old(1, "m"))
        store.insert(indexed(1, "new"))
    for _ in range(2):
        assert migrate(path, *scripts).plan[-1].old_version == "writes"
        with tm.open(path, models=[new, other], durability="relaxed") as store:
            assert (store[new.key(1)].firm, store[other.key(1)].state) == ("m", "sold")
            assert store.check().ok
        migrate(path, *scripts, to="first")
        with tm.open(path, models=[old, bare], durability="relaxed") as store:
            assert (store[old.key(1)].maker, store[bare.key(1)].state) == ("m", "new")
            assert store.check().ok


def test_a_plan_says_of_an_undoing_that_the_new_version_stops_where_the_old_one_could_only_read(path: Path) -> None:
    old, new = part(), entity("Part", "Parts", {"number": int, "maker": str, "rank": int}, KEY)
    first = script([new], lambda m: m.fill(new.rank, lambda e: e.number), "first", None, [old])
    with tm.open(path, models=[old], durability="relaxed") as store:
        store.insert(old(1, "m"))
    assert [step.old_version for step in migrate(path, first).plan] == ["reads"]
    for dry_run in (True, False):
        report = migrate(path, first, to="", dry_run=dry_run)
        assert [step.old_version for step in report.plan] == ["stops"]
    with pytest.raises(tm.SchemaMismatch, match="the undoing of first replaced this form"):
        tm.open(path, models=[new])


def test_what_was_half_built_before_a_switch_is_built_anew_after_it_is_undone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "_AT_ONCE", -1)
    bare = shapes.part()
    with tm.open(path, models=[bare]) as store:
        store.insert_many([bare("a", n, price=str(n), maker="m1", tags=["x"]) for n in range(50)])
    with tm.open(path, models=[OLD, OLD_TOTALS], build=False) as store:
        store.build(limit=20)
    convert = cases()["convert"].script
    assert migrate(path, convert).ok
    migrate(path, convert, to="")
    with tm.open(path, models=[OLD, OLD_TOTALS]) as store:
        assert store.check().problems == ()
        assert len(list(store.query(OLD.by_maker("m1")))) == 50
