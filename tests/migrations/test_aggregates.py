"""Aggregates that scripts drop, rename or declare in another way, with the classes that they are of."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import aggregate, entity
from .shapes import made, script, step

KEY = tm.Key[str, int](partition="{shelf}", row=("part", "{number}"))


def world(
    *verbs: str,
    of: Any = None,
    shared: bool = False,
    name: str = "Total",
    kind: Any = int,
    more: Any = None,
    **fields: Any,
) -> list[Any]:
    """Return a class, and an aggregate of it with some measures: an entity of both, in one table or in two."""
    cls = of or entity("Part", "Parts", {"shelf": str, "number": int, "size": kind, **fields}, KEY)
    members = {
        "shelf": (str, tm.group_by(cls.shelf)),
        "count": (int, tm.count()),
        **{verb: (int | None, getattr(tm, verb)(cls.number)) for verb in verbs},
    }
    key = tm.Key[str](partition="{shelf}", row="total")
    return [cls, aggregate(name, cls, members, key, "Parts" if shared else "Totals", **(more or {}))]


def filled(path: Path, models: list[Any]) -> None:
    with tm.open(path, models=models) as store:
        store.insert_many(models[0](shelf, number, 3) for shelf in "ab" for number in range(5))


def found(path: Path, models: list[Any]) -> tuple[Any, ...]:
    with tm.open(path, models=models) as store:
        assert store.check().problems == ()
        total = store[models[1].key("a")]
        return tuple(getattr(total, name) for name in type(total).__annotations__ if name != "shelf")


def back_and_forth(path: Path, change: Any, old: tuple[list[Any], Any], new: tuple[list[Any], Any]) -> None:
    """Run a script, undo it, run it again and contract it; compare what the versions find."""
    for _ in range(2):
        assert tm.migrate(path, [change], rest=0).ok
        assert found(path, new[0]) == new[1]
        assert tm.migrate(path, [change], to="", rest=0).ok
        assert found(path, old[0]) == old[1]
    assert tm.migrate(path, [change], contract=True, rest=0).ok
    assert found(path, new[0]) == new[1]
    with tm.open(path, models=new[0]) as store:
        store.compact()
    assert found(path, new[0]) == new[1]


@pytest.mark.parametrize("shared", [False, True], ids=["in its own table", "in the table of its class"])
@pytest.mark.parametrize("verbs", [((), ("max",)), (("max",), ()), (("min",), ("max",))], ids=str)
def test_an_aggregate_is_dropped_and_declared_in_another_way(path: Path, verbs: Any, *, shared: bool) -> None:
    old, new = (world(*some, shared=shared) for some in verbs)
    filled(path, old)
    results = [(5, *({"max": 4, "min": 0}[verb] for verb in some)) for some in verbs]
    change = script(new, lambda m: m.drop(old[1]), old=old)
    back_and_forth(path, change, (old, results[0]), (new, results[1]))


@pytest.mark.parametrize("back", [None, int], ids=["the old version ends", "the old version goes on"])
@pytest.mark.parametrize("shared", [False, True], ids=["in its own table", "in the table of its class"])
def test_an_aggregate_has_an_extreme_after_its_class_was_copied(path: Path, back: Any, *, shared: bool) -> None:
    old, new = world(shared=shared), world("max", shared=shared, kind=Decimal)
    filled(path, old)
    change = script(new, lambda m: m.convert(old[0].size, new[0].size, Decimal, back=back), old=old)
    assert tm.migrate(path, [change], rest=0).ok
    assert found(path, new) == (5, 4)
    if back is not None:
        assert found(path, old) == (5,)
        assert tm.migrate(path, [change], to="", rest=0).ok
        assert found(path, old) == (5,)
        assert tm.migrate(path, [change], rest=0).ok
    assert tm.migrate(path, [change], contract=True, rest=0).ok
    assert found(path, new) == (5, 4)


def test_a_version_with_what_was_dropped_for_good_is_refused_beside_another_definition(path: Path) -> None:
    old, new, last = world("min"), world("max"), world("min", "max")
    filled(path, old)
    change = script(new, lambda m: m.drop(old[1]), old=old)
    assert tm.migrate(path, [change], contract=True, rest=0).ok
    assert found(path, new) == (5, 4)
    assert found(path, last) == (5, 0, 4)
    for _ in range(2):
        with pytest.raises(tm.SchemaMismatch, match="Total was dropped by first"):
            tm.open(path, models=old)
        assert found(path, new) == (5, 4)
    assert [item.where for item in tm.status(path).objects] == ["Part", "Total", "Total#1"]


def test_a_drop_is_not_of_a_definition_that_came_after_a_copy(path: Path) -> None:
    old, new = world("min", note=str), world("max", note=str)
    last = world("max")
    with tm.open(path, models=old) as store:
        store.insert_many(old[0]("a", number, 3, "n") for number in range(5))
    first = script(new, lambda m: m.drop(old[1]), old=old)
    second = script(last, lambda m: m.drop(new[0].note), "second", "first", new)
    assert tm.migrate(path, [first, second], rest=0).ok
    assert found(path, last) == (5, 4)
    assert tm.migrate(path, [first, second], to="first", rest=0).ok
    assert found(path, old) == (5, 0)
    assert tm.migrate(path, [first, second], to="first", rest=0, contract=True).ok
    assert found(path, new) == (5, 4)
    assert tm.migrate(path, [first, second], rest=0).ok


def test_what_a_script_drops_and_an_older_version_brings_back_goes_when_it_is_contracted(path: Path) -> None:
    old, last = world("min", note=str), world()[:1]
    new = world("min", note=str)[:1]
    with tm.open(path, models=old) as store:
        store.insert_many(old[0]("a", number, 3, "n") for number in range(5))
    first = script(new, lambda m: m.drop(old[1]), old=old)
    second = script(last, lambda m: m.drop(new[0].note), "second", "first", new)
    assert tm.migrate(path, [first, second], rest=0).ok
    assert tm.migrate(path, [first, second], to="first", rest=0).ok
    assert found(path, old) == (5, 0)
    assert tm.migrate(path, [first, second], to="first", rest=0, contract=True).ok
    with pytest.raises(tm.SchemaMismatch, match="Total was dropped by first"):
        tm.open(path, models=old)
    assert tm.migrate(path, [first, second], rest=0).ok


@pytest.mark.parametrize("back", [None, int], ids=["the old version ends", "the old version goes on"])
@pytest.mark.parametrize("contract", [False, True], ids=["in use", "contracted"])
def test_what_an_older_version_has_of_a_name_that_a_script_dropped_ends_with_its_class(
    path: Path, *, contract: bool, back: Any
) -> None:
    def indexed(index: str, *verbs: str, **more: Any) -> list[Any]:
        fields = {"shelf": str, "number": int, "size": int, "note": int}
        return world(*verbs, of=entity("Part", "Parts", fields, KEY, by=tm.Index[int](partition=index)), more=more)

    named, other = indexed("{number}", "max"), indexed("{note}", "min")
    bare, last = world(note=int)[:1], world(note=int, kind=Decimal)[:1]
    with tm.open(path, models=named) as store:
        store.insert_many(named[0]("a", number, 3, 4) for number in range(5))
    drops = step("drop", named[1]), step("drop", named[0].by)
    scripts = [
        made(bare, named, *drops),
        script(last, lambda m: m.convert(bare[0].size, last[0].size, Decimal, back=back), "second", "first", bare),
    ]
    for index in ({}, {"by_count": tm.Index[int](partition="{count}")}, {"by_min": tm.Index[int](partition="{min}")}):
        assert found(path, indexed("{note}", "min", **index)) == (5, 0)
    assert tm.migrate(path, scripts, to="first", rest=0, contract=contract).ok
    assert found(path, other) == (5, 0)
    for _ in range(2):
        assert tm.migrate(path, scripts, rest=0).ok
        assert [item.where for item in tm.status(path).objects if item.state == "ready"] == ["Part"]
        if back is None:
            with pytest.raises(tm.SchemaMismatch, match="the migration second replaced this form"):
                tm.open(path, models=other)
            break
        assert found(path, other) == (5, 0)
        assert tm.migrate(path, scripts, to="first", rest=0).ok
        assert found(path, other) == (5, 0)
    assert tm.migrate(path, scripts, rest=0, contract=True).ok
    with pytest.raises(tm.SchemaMismatch, match="the migration second replaced this form"):
        tm.open(path, models=other)
    with tm.open(path, models=last) as store:
        store.compact()
        assert store.check().problems == ()
        assert [one.size for one in store.query(last[0]).where(last[0].shelf == "a")] == [3] * 5


@pytest.mark.parametrize("late", ["before the drop", "after it", "last"])
@pytest.mark.parametrize("contract", [False, True], ids=["in use", "contracted"])
def test_what_an_ended_version_brings_back_of_a_name_that_a_script_dropped_ends_with_its_class(
    path: Path, late: str, *, contract: bool
) -> None:
    old, new, bare, last = world("min"), world("max"), world()[:1], world(kind=Decimal)[:1]
    filled(path, old)
    scripts = [
        script(new, lambda m: m.convert(old[0].size, new[0].size, lambda size: size + 1), "first", None, old),
        script(bare, lambda m: m.drop(new[1]), "second", "first", new),
        script(last, lambda m: m.convert(bare[0].size, last[0].size, Decimal), "third", "second", bare),
    ]

    def opened(when: str) -> None:
        """Open the store with the oldest version, which nothing but its aggregate tells apart."""
        assert late != when or found(path, old) == (5, 0)

    assert tm.migrate(path, scripts, to="first", rest=0, contract=True).ok
    opened("before the drop")
    assert tm.migrate(path, scripts, to="second", rest=0).ok
    opened("after it")
    assert tm.migrate(path, scripts, to="second", rest=0, contract=contract).ok
    opened("last")
    assert tm.migrate(path, scripts, rest=0).ok
    assert [item.where for item in tm.status(path).objects if item.state == "ready"] == ["Part"]
    for models in (old, new):
        with pytest.raises(tm.SchemaMismatch, match="the migration third replaced this form"):
            tm.open(path, models=models)
    with tm.open(path, models=last) as store:
        assert [one.size for one in store.query(last[0]).where(last[0].shelf == "a")] == [4] * 5
        store.compact()
        assert store.check().problems == ()


def test_a_copy_goes_on_that_declares_in_another_way_what_an_older_version_has_of_a_dropped_name(path: Path) -> None:
    named, other, bare, last = world("max"), world("min"), world()[:1], world("max", kind=Decimal)
    filled(path, named)
    scripts = [
        script(bare, lambda m: m.drop(named[1]), "first", None, named),
        script(last, lambda m: m.convert(bare[0].size, last[0].size, Decimal), "second", "first", bare),
    ]
    assert found(path, other) == (5, 0)
    assert tm.migrate(path, scripts, to="first", rest=0, contract=True).ok
    assert not tm.migrate(path, scripts, rest=0, limit=3).done
    assert tm.migrate(path, scripts, rest=0).done
    assert found(path, last) == (5, 4)


@pytest.mark.parametrize("contract", [False, True], ids=["in use", "contracted"])
def test_a_program_that_declares_anew_what_a_script_dropped_keeps_it(path: Path, *, contract: bool) -> None:
    old, bare, ahead, newest = world("max"), world()[:1], world("min"), world("min", kind=Decimal)
    filled(path, old)
    first = script(bare, lambda m: m.drop(old[1]), "first", None, old)
    steps = lambda m: m.convert(ahead[0].size, newest[0].size, Decimal)  # noqa: E731
    assert tm.migrate(path, [first], rest=0, contract=contract).ok
    for _ in range(2):
        assert found(path, ahead) == (5, 0)
        assert tm.migrate(path, [first], rest=0, contract=contract).ok
    assert tm.migrate(path, [first, script(newest, steps, "second", "first", ahead)], rest=0, contract=contract).ok
    assert found(path, newest) == (5, 0)


def test_a_script_names_what_an_earlier_one_declared_in_the_place_of_what_it_dropped(path: Path) -> None:
    old, new, last = world("min"), world("max"), world(kind=Decimal)[:1]
    filled(path, old)
    first = script(new, lambda m: m.drop(old[1]), "first", None, old)
    steps = lambda m: m.convert(new[0].size, last[0].size, Decimal)  # noqa: E731
    second = script(last, steps, "second", "first", new[:1])
    assert found(path, new) == (5, 4)
    assert tm.migrate(path, [first], rest=0, contract=True).ok
    assert found(path, new) == (5, 4)
    with pytest.raises(tm.InvalidMigration, match="Total is maintained from what is migrated: name it in old="):
        tm.migrate(path, [first, second], rest=0)


def test_a_script_names_a_field_that_has_the_name_of_an_index_which_an_earlier_one_dropped(path: Path) -> None:
    old = world(
        of=entity("Part", "Parts", {"shelf": str, "number": int, "size": int}, KEY, by=tm.Index(partition="{number}"))
    )
    new, more, last = world(), world(by=int | None), world(kind=Decimal)
    filled(path, old)
    first = script(new, lambda m: m.drop(old[0].by), "first", None, old)
    assert tm.migrate(path, [first], rest=0, contract=True).ok
    assert found(path, more) == (5,)
    steps = lambda m: m.convert(new[0].size, last[0].size, Decimal)  # noqa: E731
    with pytest.raises(tm.InvalidMigration, match="Part.by: the field is in the store, and not in old"):
        tm.migrate(path, [first, script(last, steps, "second", "first", new)], rest=0)


def test_an_aggregate_with_an_index_is_renamed_beside_a_former_definition(path: Path) -> None:
    plain = {"by_count": tm.Index[int](partition="{count}")}
    oldest, old = world("min", more=plain), world("max", more=plain)
    new, last = (world("max", name=name, more=plain) for name in ("Sums", "Sizes"))
    filled(path, oldest)
    assert found(path, old) == (5, 4)
    scripts = [
        script(new, lambda m: m.rename_class(old[1], new[1]), "first", None, old),
        script(last, lambda m: m.rename_class(new[1], last[1]), "second", "first", new),
    ]
    assert tm.migrate(path, scripts, to="first", rest=0).ok
    assert found(path, world("min", name="Sums", more=plain)) == (5, 0)
    assert tm.migrate(path, scripts, rest=0).ok
    assert found(path, last) == (5, 4)


def test_a_version_does_not_take_the_place_of_what_a_script_made_over_an_empty_class(path: Path) -> None:
    old, new = world("min", shared=True), world("max", shared=True)
    with tm.open(path, models=old):
        pass
    assert tm.migrate(path, [script(new, lambda m: m.drop(old[1]), old=old)], rest=0).ok
    with pytest.raises(tm.SchemaMismatch, match="Total: the migration first replaced this form"):
        tm.open(path, models=old)
    filled(path, new)
    assert found(path, new) == (5, 4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def test_a_class_that_has_the_form_of_an_older_version_again_is_not_taken_for_that_version(path: Path) -> None:
    def box(name: str, table: str) -> Any:
        return entity(name, table, {"id": str}, tm.Key[str](partition="{id}", row="1"))

    def indexed() -> list[Any]:
        cls = entity(
            "Part", "Parts", {"shelf": str, "number": int, "size": int}, KEY, by=tm.Index[int](partition="{size}")
        )
        return [cls, *world("max", name="Sums", of=cls)[1:], box("Crate", "Boxes")]

    old, new = [*world("max"), box("Box", "Boxes")], indexed()
    last = [*world("max", name="Sums"), box("Crate", "Boxes")]

    def rename(m: tm.Migration) -> None:
        m.rename_class(old[1], new[1])
        m.rename_class(old[2], new[2])

    filled(path, old)
    scripts = [
        script(new, rename, "first", None, old),
        script(last, lambda m: m.drop(new[0].by), "second", "first", new),
    ]
    assert tm.migrate(path, scripts, rest=0).ok
    for _ in range(2):
        assert found(path, last) == found(path, old) == (5, 4)
        with tm.open(path, models=last) as store:
            store.upsert(last[2]("x"))
        with tm.open(path, models=old) as store:
            assert [one.id for one in store.query(old[2]).allow_scan()] == ["x"]


def test_a_version_that_renamed_an_index_goes_on_when_an_aggregate_in_its_table_is_renamed(path: Path) -> None:
    def named(index: str, total: str) -> list[Any]:
        cls = entity(
            "Part",
            "Parts",
            {"shelf": str, "number": int, "size": int},
            KEY,
            **{index: tm.Index[int](partition="{size}")},
        )
        return world("max", of=cls, name=total, shared=True)

    oldest, old, new = named("by_size", "Total"), named("by_width", "Total"), named("by_width", "Sums")
    filled(path, oldest)
    assert found(path, old) == (5, 4)
    change = script(new, lambda m: m.rename_class(old[1], new[1]), old=old)
    assert tm.migrate(path, [change], rest=0).ok
    for _ in range(2):
        assert found(path, new) == found(path, old) == (5, 4)
        with tm.open(path, models=old) as store:
            assert len(list(store.query(old[0].by_width(3)))) == 10


def test_an_older_version_adds_to_one_class_while_a_twin_keeps_the_fields_of_another(path: Path) -> None:
    def models(total: str, **indexes: Any) -> list[Any]:
        part, made = world("max", name=total)
        shelf = entity(
            "Shelf",
            "Shelves",
            {"shelf": str, "parts": int},
            tm.Key[str](partition="{shelf}", row="1"),
            parts=tm.count(of=part),
        )
        box = entity("Box", "Boxes", {"id": str}, tm.Key[str](partition="{id}", row="1"), **indexes)
        return [part, made, shelf, box]

    old, new = models("Total"), models("Sums")
    more = models("Total", by_id=tm.Index[str](partition="{id}"))
    filled(path, old)
    with tm.open(path, models=old) as store:
        store.insert(old[2]("a"))
    assert tm.migrate(path, [script(new, lambda m: m.rename_class(old[1], new[1]), old=old)], rest=0).ok
    assert found(path, more) == (5, 4)
    with tm.open(path, models=more) as store:
        store.insert(more[0]("a", 9, 3))
        store.insert(more[3]("x"))
        assert [one.id for one in store.query(more[3].by_id("x"))] == ["x"]
        assert store[more[2].key("a")].parts == 6
    with tm.open(path, models=new) as store:
        assert store.check().problems == ()
        assert store[new[2].key("a")].parts == 6
