"""Whether two values are the same is asked of what is stored, never of Python's ``==``."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

import tablemapper as tm

from ..sql import run_sql


@attrs.define
class Size:
    width: int
    unit: str = attrs.field(default="cm", eq=False)


@attrs.define(eq=False)
class Part:
    name: str


@dataclasses.dataclass
class Label:
    text: str
    colour: str = dataclasses.field(default="red", compare=False)


class Number(msgspec.Struct, eq=False):
    value: int = 0


class Mood(StrEnum):
    GOOD = "good"
    BAD = "bad"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mood)

    __hash__ = StrEnum.__hash__


class Thing(tm.Entity, table="Things"):
    name: tm.Field[str]
    n: tm.Field[int] = tm.field(default=0)
    price: tm.Field[Decimal] = tm.field(default=Decimal("2"))
    flags: tm.Field[dict[str, Any]] = tm.field(factory=lambda: {"on": 1, "off": 0, "share": 5.0, "deep": {"list": [1]}})
    more: tm.Field[tm.Extra] = tm.field(factory=lambda: tm.Extra(on=1))
    size: tm.Field[Size] = tm.field(factory=lambda: Size(1))
    sizes: tm.Field[list[Size] | None] = tm.field(factory=lambda: [Size(1)])
    part: tm.Field[Part] = tm.field(factory=lambda: Part("a"))
    label: tm.Field[Label] = tm.field(factory=lambda: Label("a"))
    struct: tm.Field[Number] = tm.field(factory=Number)
    mood: tm.Field[Mood] = tm.field(default=Mood.GOOD)

    key = tm.Key[str](partition="{name}")


KEY = Thing.key("a")


def assigned(**values: Any) -> Callable[[Thing], None]:
    def change(thing: Thing) -> None:
        for name, value in values.items():
            setattr(thing, name, value)

    return change


def into(field: str, name: str, value: Any) -> Callable[[Thing], None]:
    def change(thing: Thing) -> None:
        held = getattr(thing, field)
        if isinstance(held, dict):
            held[name] = value
        else:
            setattr(held, name, value)

    return change


CHANGES: dict[str, Callable[[Thing], Any]] = {
    "1 to true": into("flags", "on", True), "0 to false": into("flags", "off", False),
    "5.0 to 5": into("flags", "share", 5),
    "1 to 1.0, deep inside": lambda thing: thing.flags["deep"]["list"].__setitem__(0, 1.0),
    "1 to true, assigned": assigned(flags={"on": True, "off": 0, "share": 5.0, "deep": {"list": [1]}}),
    "an undeclared property": into("more", "on", True), "an undeclared property's type": into("more", "on", 1.0),
    "the zeros of a Decimal": assigned(price=Decimal("2.00")),
    "a member that is not compared": into("size", "unit", "mm"),
    "one in a list": lambda thing: setattr(thing.sizes[0], "unit", "mm"),
    "of a class that compares nothing": into("part", "name", "b"), "of a dataclass": into("label", "colour", "blue"),
    "of a Struct": into("struct", "value", 1), "to what cannot be stored": into("label", "colour", 5),
    "an Enum that says it is equal": assigned(mood=Mood.BAD), "a list to nothing": assigned(sizes=None),
}  # fmt: skip


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Thing]) as opened:
        opened.insert(Thing("a"))
        yield opened


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_guard_takes_a_change_for_none(store: tm.Store, change: Callable[[Thing], Any]) -> None:
    before = store[KEY]

    def forgets(thing: Thing) -> None:
        change(thing)

    with pytest.raises(tm.InvalidTransaction, match="changed in the block"), store.transaction() as tx:
        change(tx[KEY])
    with pytest.raises(tm.InvalidTransaction, match="changed in the block"), store.transaction() as tx:
        change(tx[KEY])
        tx.merge(KEY, n=5)
    for update in (lambda: store.update(KEY, forgets), lambda: store.query(Thing).allow_scan().update(forgets)):
        with pytest.raises(tm.InvalidEntity, match="returned None"):
            update()
    assert tm.info(store[KEY]).etag == tm.info(before).etag


def test_what_was_read_and_not_changed_needs_no_write(store: tm.Store) -> None:
    with store.transaction() as tx:
        thing = tx[KEY]
        thing.flags["on"] = True
        thing.flags["on"] = 1
        thing.flags = {"deep": {"list": [1]}, "share": 5.0, "off": 0, "on": 1}  # another order
        thing.price = Decimal("2")
    store.update(KEY, lambda thing: None)


def test_a_block_of_an_async_store_loses_no_such_change(tmp_path: Path) -> None:
    async def main() -> None:
        async with tm.open_async(tmp_path / "a.db", models=[Thing]) as store:
            await store.insert(Thing("a"))
            with pytest.raises(tm.InvalidTransaction, match="flags changed in the block"):
                async with store.transaction() as tx:
                    (await tx.get(KEY)).flags["on"] = True  # type: ignore[union-attr]

    asyncio.run(main())


def test_a_copy_writes_what_is_equal_and_of_another_class(tmp_path: Path) -> None:
    """What a foreign program stored as 3.0 in a field of ints is not the 3 that it equals."""
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    with tm.open(path, models=[Thing]) as store, tm.open(other, models=[Thing]) as target:
        store.insert(Thing("a", 3))
        tm.copy(store, target)
    run_sql(path, "UPDATE Things SET n = 3.0")
    with tm.open(path, models=[Thing]) as store, tm.open(other, models=[Thing]) as target:
        assert tm.copy(target, store).replaced == 1
        assert store.check().ok
