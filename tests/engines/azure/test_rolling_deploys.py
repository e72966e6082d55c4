"""Programs of two versions at once: what one refuses by classes that the catalogue has otherwise by now, it looks at again."""

from __future__ import annotations

from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.service import GetEntity, GroupTransaction, RowChange

from ...classes import entity
from .memory import Memory
from .place import AzurePlace

KEY = tm.Key[str](partition="{id}")
Old = entity("Thing", "Things", {"id": str, "text": str}, KEY)
New = entity("Thing", "Things", {"id": str, "text": str, "color": (str | None, tm.field(default=None))}, KEY)


def opened(memory: Memory, model: Any) -> tm.Store:
    place: Any = AzurePlace(memory=memory, still=True)
    return tm.open(place, models=[model], build=False)


def test_a_field_that_is_seconds_old_is_kept_by_a_program_that_does_not_declare_it() -> None:
    memory = Memory()
    old = opened(memory, Old)
    old.insert(Old("a", "x"))
    new = opened(memory, New)
    new.upsert(New("a", "x", "red"))
    thing = old[Old.key("a")]
    thing.text = "y"
    old.replace(thing)
    old.upsert(Old("a", "z"))
    assert new[New.key("a")] == New("a", "z", "red")


def test_what_nobody_declares_is_not_erased_and_the_catalogue_is_asked_once() -> None:
    memory = Memory()
    store = opened(memory, Old)
    memory.send(GroupTransaction("Things", "a", (RowChange("insert", "", {"text": "x", "color": "red"}),)))
    thing, before = store[Old.key("a")], len(memory.sent)
    with pytest.raises(tm.InvalidEntity, match="color: this would erase"):
        store.replace(thing)
    heads = [one for one in memory.sent[before:] if isinstance(one, GetEntity) and one.table == "TableMapper"]
    assert len(heads) == 1


def test_a_store_that_another_program_lets_write_is_written_at_once() -> None:
    memory = Memory()
    one, other = opened(memory, Old), opened(memory, Old)
    one.freeze()
    with pytest.raises(tm.StoreLocked, match="frozen since"):
        one.insert(Old("a", "x"))
    other.unfreeze()
    one.insert(Old("a", "x"))
    assert other[Old.key("a")] == Old("a", "x")
