"""What the first release wrote is read, written, migrated and checked by every later one: each kind of declaration.

The files and the dumps of accounts are in `tests.files`; each test runs over all of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..files import account, kinds
from ..files.kinds import KINDS, MARK, NOON, Colour, Owner, Plain, Rank, Sorted, Tags, Totals, Value, Weeks
from ..files.make import NOTES, SCRIPTS, second, third
from .azure.place import AzurePlace

FOLDER = Path(kinds.__file__).parent
STORES = sorted([*FOLDER.glob("format-*.db"), *FOLDER.glob("account-*.json")])
ADA = Owner("ada / #1")
pytestmark = pytest.mark.file


@pytest.fixture(params=STORES, ids=lambda path: path.stem)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return where a copy of a store of before can be opened."""
    if request.param.suffix == ".db":
        return Path(shutil.copy(request.param, tmp_path))
    number = int(request.param.stem.rpartition("-")[2])
    return AzurePlace(memory=account.load(request.param), catalogue=account.CATALOGUES[number - 1])


def test_every_kind_of_value_and_key_is_read(place: Any) -> None:
    with tm.open(place, models=KINDS) as store:
        assert store.check().ok
        entities = kinds.entities()
        assert [store[entity.key] for entity in entities] == entities
        assert list(store.query(Value).where(Value.owner == ADA)) == entities[:3]
        low, high = entities[4:6]
        assert list(store.query(Sorted).where(Sorted.bucket == "b1", Sorted.text == "Åre #2")) == [high, low]
        assert list(store.partition(Plain.name == "café")) == [entities[6]]


FINDS: dict[str, Callable[[], tuple[Any, list[int]]]] = {
    "by_text": lambda: (Value.by_text("dune"), [2, 3]), "by_hash": lambda: (Value.by_hash("Dune"), [2]),
    "by_mark": lambda: (Value.by_mark(MARK), [2]), "by_tag": lambda: (Value.by_tag("sea"), [2, 999_999]),
    "by_month": lambda: (Value.at >= datetime(2026, 3, 1, tzinfo=UTC), [2]),
    "by_width": lambda: (Value.by_width(7), [2]), "by_count": lambda: (Value.counts["large"] == 3, [2]),
    "by_more": lambda: (Value.by_more("Oslo"), [2]), "by_owner": lambda: (Value.by_owner(ADA), [1, 2, 3]),
    "by_rank": lambda: (Value.by_rank(Rank.LOW), [3]),
}  # fmt: skip


def test_every_kind_of_index_is_read_and_maintained(place: Any) -> None:
    with tm.open(place, models=KINDS) as store:
        assert FINDS.keys() == {index.name for index in vars(Value)["__declaration__"].indexes}

        def numbers(name: str) -> list[int]:
            what, _ = FINDS[name]()
            query = store.query(what) if isinstance(what, tm.types.IndexRange) else store.query(Value).where(what)
            return [value.number for value in query.allow_eventual()]

        assert {name: numbers(name) for name in FINDS} == {name: find()[1] for name, find in FINDS.items()}
        with pytest.raises(tm.UniqueViolation):
            store.merge(Value.key(ADA, 1), mark=MARK)
        value = store[Value.key(ADA, 2)]
        store.replace(value.replace(text="dUNE", mark=None, tags=["sky"], at=NOON, counts={}, rank=Rank.LOW))
        store.delete(Value.key(Owner("bob"), 999_999))
        store.merge(Value.key(ADA, 1), mark=MARK, weight=9.5, text="Odes")
        store.insert(Value(Owner("eve"), 5, tags=["sea"]))
        store.sweep()
        changed = {
            "by_hash": [], "by_mark": [1], "by_tag": [5], "by_count": [], "by_owner": [2, 3, 1], "by_rank": [2, 3],
        }  # fmt: skip
        assert {name: numbers(name) for name in changed} == changed
        assert store.check().ok


def test_every_kind_of_measure_is_read_and_maintained(place: Any) -> None:
    with tm.open(place, models=KINDS) as store:
        blue = store[Totals.key(ADA, Colour.BLUE)]
        assert blue == Totals(
            ADA, Colour.BLUE, values=2, marked=1, dear=2, numbers=5, weight=0.1 + 0.7, price=Decimal("29.90"),
            span=timedelta(days=1, microseconds=1), mean=(0.1 + 0.7) / 2, mean_price=Decimal("14.95"),
            mean_span=timedelta(hours=12), cheapest=Decimal("9.90"), lightest=0.1, latest=NOON, lowest=2, heaviest=0.7,
        )  # fmt: skip
        store.delete(Value.key(ADA, 2))
        store.insert(Value(ADA, 7, price=Decimal(3), colour=Colour.BLUE, sold=True, at=NOON, tags=["sea"]))
        store.sweep()
        blue = store[Totals.key(ADA, Colour.BLUE)]
        assert (blue.values, blue.price, blue.cheapest, blue.latest) == (2, Decimal("2E+1") + 3, 3, NOON)
        assert (blue.lowest, blue.heaviest, blue.mean) == (2, 0.7, 0.35)
        top = list(store.query(Totals.by_values()).allow_eventual())
        assert [(group.owner, group.values) for group in top] == [(ADA, 2), (ADA, 1), ("bob", 1)]
        assert store[Weeks.key("2026-W13")].values == 1
        assert store.group(Tags.key("sea")).values == 2
        assert store.check().ok


class later:
    class Plain(tm.Entity, table="Plains"):
        name: tm.Field[str]
        path: tm.Field[str]
        seen: tm.Field[date | None] = tm.field(default=None)

        key = tm.Key[str, str](partition="{name:raw}", row="{path:raw}")
        by_seen = tm.Index[date](partition="{seen}")


def test_a_later_version_of_a_class_opens_them(place: Any) -> None:
    with tm.open(place, models=[later.Plain]) as store:
        store.build()
        store.merge(later.Plain.key("café", "x y"), seen=NOON.date())
        assert [plain.path for plain in store.query(later.Plain.by_seen(NOON.date())).allow_eventual()] == ["x y"]
        assert store.check().ok
    with tm.open(place, models=KINDS) as store:
        assert store[Plain.key("café", "x y")].path == "x y"


def test_the_history_of_their_migrations_goes_on(place: Any) -> None:
    assert "renamed" not in tm.migrate(place, SCRIPTS, to="newest_first").applied
    with tm.open(place, models=[third.Note]) as store:
        notes = [third.Note(note.author, note.number, note.text, note.state) for note in reversed(NOTES)]
        assert list(store.partition(third.Note.author == "ada")) == notes
        assert store.check().ok
    tm.migrate(place, SCRIPTS, to="renamed")
    with tm.open(place, models=[second.Note]) as store:
        assert store[second.Note.key("ada", 0)].body == NOTES[0].text
