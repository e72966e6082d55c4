"""Aggregates that scripts drop, rename or declare in another way, with the classes that they are of."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from .shapes import entity, script

KEY = tm.Key[str, int](partition="{shelf}", row=("part", "{number}"))


def world(*verbs: str, shared: bool = False, name: str = "Total", kind: Any = int, **fields: Any) -> list[Any]:
    """Return a class, and an aggregate of it with some measures: an entity of both, in one table or in two."""
    cls = entity("Part", "Parts", {"shelf": str, "number": int, "size": kind, **fields}, KEY)
    body = {
        "__annotations__": {"shelf": tm.Field[str], "count": tm.Field[int]}
        | dict.fromkeys(verbs, tm.Field[int | None]),
        "__module__": __name__,
        "shelf": tm.group_by(cls.shelf),
        "count": tm.count(),
        "key": tm.Key[str](partition="{shelf}", row="total"),
        **{verb: getattr(tm, verb)(cls.number) for verb in verbs},
    }
    return [cls, type(tm.Aggregate)(name, (tm.Aggregate,), body, of=cls, table="Parts" if shared else "Totals")]


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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"
