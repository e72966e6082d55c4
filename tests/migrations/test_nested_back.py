"""Nested values of a class whose old version goes on reading by a function of the script."""

from __future__ import annotations

from pathlib import Path

import attrs

import tablemapper as tm

from .shapes import entity, script

KEY = tm.Key[int](partition="{number}")


@attrs.define
class Box:
    wide: int
    names: list[str] = attrs.field(factory=list)


OLD = entity("Part", "Parts", {"number": int, "price": str, "box": Box | None}, KEY)
NEW = entity("Part", "Parts", {"number": int, "price": int, "box": Box | None}, KEY)


def to_text(price: int) -> str:
    return f"{price:03}"


TO_INT = script([NEW], lambda m: m.convert(OLD.price, NEW.price, int, back=to_text), "first", None, [OLD])


def test_a_nested_value_changes_for_the_old_version_too(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with tm.open(path, models=[OLD], durability="relaxed") as old:
        old.insert_many(OLD(number, "007", Box(number, ["a"])) for number in range(3))
        assert tm.migrate(path, [TO_INT]).plan[0].old_version == "reads"
        with tm.open(path, models=[NEW], migrations=[TO_INT], durability="relaxed") as store:
            store.merge(NEW.key(0), box=Box(2**40, ["b"]))
            store.merge(NEW.key(1), box=None)
            store.upsert(NEW(2, 8, Box(5)))
            assert store.check().ok
        assert [old[OLD.key(number)].box for number in range(3)] == [Box(2**40, ["b"]), None, Box(5)]
        assert old[OLD.key(2)].price == "008"
