"""Migrations that change an aggregate in a table of entities: it is made anew with the copy of these."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import aggregate
from .shapes import FIELDS, begun, changed, part, script

KEY = tm.Key[str, int](partition="{shelf}", row="P-{number}")


def shapes(measure: Any, price: Any = str, key: Any = KEY) -> list[Any]:
    """Return a class, and an aggregate of it in its table."""
    cls = part(changed(FIELDS, price=price), key)
    members = {
        "shelf": (str, tm.group_by(cls.shelf)),
        "parts": (int, tm.count()),
        "extreme": (int | None, measure(cls.number)),
    }
    return [cls, aggregate("Totals", cls, members, tm.Key[str](partition="{shelf}", row="total"), "Parts")]


OLD = shapes(tm.max)
PRICED, SAME = shapes(tm.min, Decimal), shapes(tm.min)
KEYED = shapes(tm.min, key=tm.Key[str, int](partition="{shelf}", row="Q-{number}"))


def drop_and_convert(m: tm.Migration) -> None:
    m.drop(OLD[1])
    m.convert(OLD[0].price, PRICED[0].price, Decimal, back=str)


CASES: dict[str, tuple[list[Any], Callable[[tm.Migration], None]]] = {
    "convert": (PRICED, lambda m: m.convert(OLD[0].price, PRICED[0].price, Decimal, back=str)),
    "drop": (SAME, lambda m: m.drop(OLD[1])),
    "drop and convert": (PRICED, drop_and_convert),
    "rekey": (KEYED, lambda m: m.rekey(OLD[0], KEYED[0])),
}


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Any:
    new, function = CASES[request.param]
    return new, script(new, function, old=OLD)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "s.db", models=OLD, durability="relaxed") as store:
        store.insert_many(OLD[0]("xyz"[n % 3], n, price=str(n), maker=None, tags=[]) for n in range(20))
    return tmp_path / "s.db"


def totals(path: Path, classes: list[Any]) -> dict[str, tuple[int, int]]:
    with tm.open(path, models=classes) as store:
        assert store.check().ok
        return {one.shelf: (one.parts, one.extreme) for one in store.query(classes[1]).allow_scan()}


def expected(path: Path, classes: list[Any], extreme: Callable[[list[int]], int]) -> dict[str, tuple[int, int]]:
    with tm.open(path, models=classes) as store:
        groups: dict[str, list[int]] = {}
        for one in store.query(classes[0]).allow_scan():
            groups.setdefault(one.shelf, []).append(one.number)
    return {shelf: (len(numbers), extreme(numbers)) for shelf, numbers in groups.items()}


def test_an_aggregate_in_the_table_of_entities_is_made_anew_and_is_what_it_was_on_the_way_back(
    path: Path, case: Any
) -> None:
    new, change = case
    for _ in range(2):
        assert tm.migrate(path, [change], rest=0, durability="relaxed").entities in (0, 20)
        assert totals(path, new) == expected(path, new, min)
        assert tm.migrate(path, [change], to="", rest=0, durability="relaxed").ok
        assert totals(path, OLD) == expected(path, OLD, max)
    assert tm.migrate(path, [change], contract=True, rest=0, durability="relaxed").ok
    with tm.open(path, models=new) as store:
        store.insert(new[0]("x", 99, price=store[new[0].key("x", 0)].price, maker=None, tags=[]))  # fmt: skip
        store.delete(new[0].key("y", 1))
        store.compact()
    assert totals(path, new) == expected(path, new, min)


def test_an_aggregate_declared_anew_is_made_of_what_the_old_version_writes_meanwhile_also_if_the_run_is_killed(
    path: Path, case: Any
) -> None:
    new, change = case
    draw = random.Random(2)
    with tm.open(path, models=OLD, durability="relaxed") as store:
        for number in range(100, 200):
            engine = begun(path, change)
            switched = engine.step(4).switched
            engine._file.close()  # all that it knew is gone
            if switched:
                break
            if number < 115:
                store.insert(OLD[0]("xyzw"[number % 4], number, price="1", maker=None, tags=[]))
                one = draw.choice(list(store.query(OLD[0]).allow_scan()))
                store.delete(one.key)
            assert store.check().ok
        else:
            raise AssertionError("it does not end")
    assert totals(path, new) == expected(path, new, min)


def test_a_class_of_the_table_that_is_not_changed_itself_is_told_which_one_is(tmp_path: Path) -> None:
    path, other = tmp_path / "s.db", tm.Key[str, int](partition="{shelf}", row="O-{number}")
    old, new, order = part(key=KEY), part(changed(FIELDS, price=Decimal), KEY), part(key=other, name="Order")
    first = script(
        [new, order], lambda m: m.convert(old.price, new.price, Decimal, back=str), "first", None, [old, order]
    )
    with tm.open(path, models=[old, order], durability="relaxed") as store:
        tm.migrate(path, [first], durability="relaxed")
        for cls, what in ((order, "Part, which this class shares a table with"), (old, "this class")):
            with pytest.raises(tm.SchemaMismatch, match=f"first has changed {what}, and this version can only read it"):
                store.insert(cls("a", 1, price="1", maker=None, tags=[]))
