"""Migrations of classes whose indexes and aggregates have former definitions, which older versions use."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from .shapes import entity


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def version(by: str, measure: Any, color: str = "color", kind: Any = int, *, more: bool = False) -> list[Any]:
    """Return a version of the classes, by what its index and its aggregate are of."""
    fields = {"shelf": str, "number": int, color: kind}
    fields |= {"more": int | None} if more else {}
    key = tm.Key[str, int](partition="{shelf}", row="{number}")
    part = entity("Part", "Parts", fields, key, by=tm.Index(partition=by))
    body = {
        "__annotations__": {"shelf": tm.Field[str], "extreme": tm.Field[int | None]},
        "__module__": __name__,
        "shelf": tm.group_by(part.shelf),
        "extreme": measure(part.number),
        "key": tm.Key[str](partition="{shelf}"),
        **({"by_extreme": tm.Index(partition="{extreme}")} if more else {}),
    }
    return [part, type(tm.Aggregate)("Extremes", (tm.Aggregate,), body, of=part, table="Extremes")]


OLDEST = version("{number}", tm.max)
OLD = version("{color}", tm.min)


def filled(path: Path) -> None:
    with tm.open(path, models=OLDEST) as store:
        store.insert_many(OLDEST[0]("a", number, number % 3) for number in range(9))
    with tm.open(path, models=OLD) as store:
        assert store.status()["Part.by#1"].state == store.status()["Extremes#1"].state == "ready"


def test_former_definitions_end_with_the_class_that_is_copied(path: Path) -> None:
    filled(path)
    new = version("{color}", tm.min, kind=str)

    @tm.migration(after=None, old=OLD, new=new)
    def text(m: tm.Migration) -> None:
        m.convert(OLD[0].color, new[0].color, lambda color: str(color), back=int)

    for _ in range(2):
        assert tm.migrate(path, [text]).entities == 9
        with tm.open(path, models=new) as store:
            assert [item.where for item in store.status().items] == ["Part", "Part.by", "Extremes"]
            assert store.check().ok
            assert {part.color for part in store.query(new[0]).where(new[0].shelf == "a")} == {"0", "1", "2"}
        assert tm.migrate(path, [text], to="").ok
        with tm.open(path, models=OLD) as store:
            assert store.check().ok
    assert tm.migrate(path, [text], contract=True).ok
    with tm.open(path, models=new) as store:
        store.compact()
        assert store.check().ok


def test_all_versions_go_on_when_a_field_that_both_definitions_have_is_renamed(path: Path) -> None:
    filled(path)
    new = version("{tint}", tm.min, color="tint")

    @tm.migration(after=None, old=OLD, new=new)
    def tint(m: tm.Migration) -> None:
        m.rename(OLD[0].color, new[0].tint)

    with ExitStack() as stack:
        running = [(stack.enter_context(tm.open(path, models=models)), models) for models in (OLDEST, OLD)]
        assert tm.migrate(path, [tint]).ok
        running.append((stack.enter_context(tm.open(path, models=new)), new))
        for number, (store, models) in enumerate(running, 20):
            store.insert(models[0]("b", number, number))
            assert store.check().ok
        extremes = [store[models[1].key("b")].extreme for store, models in running]
        assert extremes == [22, 20, 20]
        assert [part.number for part in running[0][0].query(OLDEST[0].by(21))] == [21]
        for store, models in running[1:]:
            assert [part.number for part in store.query(models[0].by(21))] == [21]


def tint(new: list[Any], old: list[Any] = OLD) -> Any:
    @tm.migration(after=None, old=old, new=new)
    def tint(m: tm.Migration) -> None:
        m.rename(old[0].color, new[0].tint)

    return tint


def labels(path: Path) -> list[str]:
    return [item.where for item in tm.status(path).items if item.state not in ("dropping", "dropped")]


def test_contract_drops_former_definitions_that_no_version_in_use_has(path: Path) -> None:
    filled(path)
    new = version("{tint}", tm.min, color="tint")
    assert tm.migrate(path, [tint(new)]).ok
    assert labels(path) == ["Part", "Part.by#1", "Part.by", "Extremes", "Extremes#1"]
    assert tm.migrate(path, [tint(new)], contract=True).ok
    with tm.open(path, models=new) as store:
        assert store.check().ok
        store.insert(new[0]("b", 20, 20))
    assert labels(path) == ["Part", "Part.by", "Extremes"]
    with pytest.raises(tm.SchemaMismatch, match="migration tint replaced this form"):
        tm.open(path, models=OLDEST)
    again = version("{number}", tm.max, color="tint", more=True)
    with tm.open(path, models=again) as store:  # as anything that is declared anew
        assert store[again[1].key("b")].extreme == 20
        assert [part.tint for part in store.query(again[0].by(20))] == [20]
        assert store.check().ok
        store.compact()
        assert store.check().ok


def test_former_definitions_stay_while_a_version_in_use_may_have_them(path: Path) -> None:
    filled(path)
    new = version("{tint}", tm.min, color="tint")
    assert tm.migrate(path, [tint(new)], contract=True).ok
    assert not any("#" in label for label in labels(path))
    newer, newest = (version("{number}", tm.max, color="tint", more=True), version("{shelf}", tm.sum, color="tint"))
    for models in (newer, newest):
        tm.open(path, models=models).close()
        assert tm.migrate(path, [tint(new)], contract=True).ok
    for models in (new, newer, newest):
        with tm.open(path, models=models) as store:
            assert store.check().ok
    assert [label for label in labels(path) if "#" in label] == [
        "Part.by#1", "Part.by#2", "Extremes#1", "Extremes#2", "Extremes#2.by_extreme",
    ]  # fmt: skip


def test_a_former_index_that_is_declared_again_and_then_no_more_stays_for_those_who_have_it(path: Path) -> None:
    filled(path)
    new = version("{tint}", tm.min, color="tint")
    assert tm.migrate(path, [tint(new)]).ok
    again = version("{number}", tm.min, color="tint")
    with tm.open(path, models=again) as store:
        assert store.status()["Part.by#1"].declared
    newest = version("{tint}", tm.min, color="tint", more=True)
    tm.open(path, models=newest).close()
    assert tm.migrate(path, [tint(new)], contract=True).ok
    for models in (new, again, newest):
        with tm.open(path, models=models) as store:
            assert [part.number for part in store.query(models[0].by(1))] in ([1], [1, 4, 7])
            assert store.check().ok
    assert [label for label in labels(path) if "#" in label] == ["Part.by#1"]


def test_a_former_index_that_the_newest_version_declares_again_stays(path: Path) -> None:
    filled(path)
    new = version("{number}", tm.min, color="tint")
    for _ in range(2):
        assert tm.migrate(path, [tint(new)], contract=True).ok
    with tm.open(path, models=new) as store:
        assert [part.number for part in store.query(new[0].by(7))] == [7]
        assert store.check().ok
    assert labels(path) == ["Part", "Part.by#1", "Part.by", "Extremes"]


def test_an_aggregate_that_goes_back_to_a_former_definition_with_one_more_index_is_built(path: Path) -> None:
    filled(path)
    part, extremes = version("{color}", tm.max, more=True)
    with tm.open(path, models=[part, extremes]) as store, tm.open(path, models=OLDEST) as oldest:
        assert [one.shelf for one in store.query(extremes.by_extreme(8))] == ["a"]
        oldest.insert(OLDEST[0]("b", 20, 1))
        assert [one.shelf for one in store.query(extremes.by_extreme(20))] == ["b"]
        assert store.check().ok
        assert oldest.check().ok


@pytest.mark.parametrize("opened", [True, False], ids=["opened before", "opened after"])
def test_an_aggregate_that_a_rename_does_not_touch_stays_when_that_is_contracted(path: Path, *, opened: bool) -> None:
    filled(path)
    new, back = version("{tint}", tm.min, color="tint"), version("{tint}", tm.max, color="tint")
    assert tm.migrate(path, [tint(new)]).ok
    with ExitStack() as stack:
        store = stack.enter_context(tm.open(path, models=back)) if opened else None
        assert tm.migrate(path, [tint(new)], contract=True).ok
        store = store or stack.enter_context(tm.open(path, models=back))
        store.insert(back[0]("b", 20, 20))
        assert [store[back[1].key(shelf)].extreme for shelf in "ab"] == [8, 20]
        assert store.check().ok
    with tm.open(path, models=new) as store:
        assert [store[new[1].key(shelf)].extreme for shelf in "ab"] == [0, 20]
    for models in (OLD, OLDEST):
        with pytest.raises(tm.SchemaMismatch, match="migration tint replaced this form"):
            tm.open(path, models=models)


def test_an_aggregate_that_a_rename_changed_comes_back_with_the_way_back(path: Path) -> None:
    with tm.open(path, models=OLDEST) as store:
        store.insert_many(OLDEST[0]("a", number, number % 3) for number in range(9))
    new = version("{number}", tm.min, color="tint")
    script = tint(new, OLDEST)
    for _ in range(2):
        assert tm.migrate(path, [script]).ok
        with tm.open(path, models=new) as store:
            assert store[new[1].key("a")].extreme == 0
            assert store.check().ok
        assert tm.migrate(path, [script], to="").ok
        with tm.open(path, models=OLDEST) as store:
            assert store[OLDEST[1].key("a")].extreme == 8
            assert store.check().ok


def test_a_definition_stays_at_contract_for_the_version_that_came_back_with_the_way_back(path: Path) -> None:
    with tm.open(path, models=OLDEST) as store:
        store.insert_many(OLDEST[0]("a", number, number % 3) for number in range(9))
    new = version("{number}", tm.min, color="tint")
    script = tint(new, OLDEST)
    assert tm.migrate(path, [script]).ok
    tm.open(path, models=new).close()
    assert tm.migrate(path, [script], to="").ok
    tm.open(path, models=new).close()  # it goes on, too
    assert tm.migrate(path, [script], to="", contract=True).ok
    with tm.open(path, models=OLDEST) as store:
        assert store[OLDEST[1].key("a")].extreme == 8
        assert store.check().ok


def test_an_index_is_dropped_and_declared_in_another_way(path: Path) -> None:
    filled(path)
    new = version("{shelf}", tm.min)

    @tm.migration(after=None, old=OLD, new=new)
    def change(m: tm.Migration) -> None:
        m.drop(OLD[0].by)

    for _ in range(2):
        assert tm.migrate(path, [change]).ok
        with tm.open(path, models=new) as store:
            assert len(list(store.query(new[0].by("a")))) == 9
        assert tm.migrate(path, [change], to="").ok
        with tm.open(path, models=OLD) as store:
            assert len(list(store.query(OLD[0].by(1)))) == 3
    assert tm.migrate(path, [change], contract=True).ok
    with tm.open(path, models=new) as store:
        assert len(list(store.query(new[0].by("a")))) == 9
        assert store.check().ok
    with pytest.raises(tm.SchemaMismatch, match="by was dropped by change"):
        tm.open(path, models=OLD)
