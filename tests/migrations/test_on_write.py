"""Migrations of classes whose fields each write sets: what they make keeps the values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity
from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace
from .shapes import script

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
asked = 0


def now() -> datetime:
    global asked
    asked += 1
    return BEGIN + timedelta(seconds=asked)


FIELDS = {"shelf": str, "number": int, "price": str}
KEY = tm.Key[str, int](partition="{shelf}", row="{number}")


def part(name: str = "Part", table: str = "Parts", key: Any = KEY, stamp: str = "updated", **members: Any) -> Any:
    fields = {name: kind for name, kind in {**FIELDS, **members}.items() if kind is not None}
    index = tm.Index[datetime](partition="all", row=f"{{{stamp}}}")
    return entity(name, table, {**fields, stamp: (datetime, tm.field(on_write=now))}, key, by_stamp=index)


OLD = part()
RENAMED = part("Piece", "Pieces")
REKEYED = part(key=tm.Key[str, int](partition="{shelf:shard(4)}", row=("{shelf}", "{number}")))
MOVED = part(price=None, cost=str)
STAMPED = part(stamp="written")
PRICED = part(price=int)
SLIM = part(price=None)
FILLED = part(grade=int)
REWRITTEN = part("Item", "Items", price=int)
STEPS: dict[str, tuple[Any, Callable[[tm.Migration], None]]] = {
    "rename_class": (RENAMED, lambda m: m.rename_class(OLD, RENAMED)),
    "rekey": (REKEYED, lambda m: m.rekey(OLD, REKEYED)),
    "rename": (MOVED, lambda m: m.rename(OLD.price, MOVED.cost)),
    "rename of the field": (STAMPED, lambda m: m.rename(OLD.updated, STAMPED.written)),
    "convert": (PRICED, lambda m: m.convert(OLD.price, PRICED.price, int, back=str)),
    "drop": (SLIM, lambda m: m.drop(OLD.price)),
    "fill": (FILLED, lambda m: m.fill(FILLED.grade, lambda old: 3)),
    "rewrite": (
        REWRITTEN,
        lambda m: m.rewrite(
            OLD,
            lambda old: REWRITTEN(old.shelf, old.number, int(old.price), updated=old.updated),
            into=REWRITTEN,
            back=lambda new: OLD(new.shelf, new.number, str(new.price), updated=new.updated),
        ),
    ),
}


def stamps(store: tm.Store, cls: Any, stamp: str) -> dict[tuple[str, int], datetime]:
    return {(one.shelf, one.number): getattr(one, stamp) for one in store.query(cls).allow_scan()}


@pytest.mark.parametrize("kind", ["file", "account"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.usefixtures("no_warnings_of_scans")
def test_each_kind_of_step_keeps_what_writes_have_set(tmp_path: Path, step: str, kind: str) -> None:
    new, steps = STEPS[step]
    stamp = "written" if new is STAMPED else "updated"
    memory = Memory()

    def place() -> Any:
        return tmp_path / "parts.db" if kind == "file" else AzurePlace(memory=memory, still=True)

    with tm.open(place(), models=[OLD]) as store:
        store.insert_many([OLD("a", number, "5") for number in range(5)])
        before = stamps(store, OLD, "updated")
    migration = script([new], steps, old=[OLD])
    tm.migrate(place(), [migration], rest=0)
    with tm.open(place(), models=[new]) as store:
        assert stamps(store, new, stamp) == before
        assert len(list(store.query(new.by_stamp()))) == 5
        assert store.check().ok
        last = now()
        store.replace(store.query(new).allow_scan().where(new.number == 1).one())
        changed = stamps(store, new, stamp)
        assert changed.pop(("a", 1)) > last
        assert changed == {key: at for key, at in before.items() if key[1] != 1}


def test_as_a_new_required_field_it_needs_a_value_for_rows_that_are_there(tmp_path: Path) -> None:
    plain = entity("Part", "Parts", FIELDS, KEY)
    path = tmp_path / "parts.db"
    with tm.open(path, models=[plain]) as store:
        store.insert(plain("a", 1, "5"))
    with pytest.raises(tm.SchemaMismatch, match='the property "updated" is new, and existing rows have no value'):
        tm.open(path, models=[OLD])
    tm.migrate(path, [script([OLD], lambda m: m.fill(OLD.updated, lambda old: BEGIN), old=[plain])], rest=0)
    with tm.open(path, models=[OLD]) as store:
        assert [one.updated for one in store.query(OLD.by_stamp())] == [BEGIN]
