"""Fields of an entity that groups of another table keep: read with it, whichever way, and followed by them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables.service import GetEntity
from tablemapper.schema.model import compile_schema

from ...classes import entity
from ...stores import repaired, sound_store
from .memory import Memory
from .place import AzurePlace


class Book(tm.Entity, table="Books"):
    id: tm.Field[str]
    author: tm.Field[str]
    pages: tm.Field[int]
    price: tm.Field[Decimal]

    key = tm.Key[str](partition="{id}")


def author(**fields: Any) -> Any:
    """Return a class with some of the fields that are maintained, and with indexes."""
    kinds = {"books": int, "longest": int | None, "worth": Decimal}
    kept = {name: (kind, fields.pop(name)) for name, kind in kinds.items() if name in fields}
    indexes = {
        "by_born": tm.Index[int](partition="{born}", include=("name",)),
        "by_name": tm.Index[str, str](partition="{shelf}", row="{name}"),
    }
    members = {"shelf": str, "name": str, "born": (int, tm.field(default=0)), **kept}
    return entity("Author", "Authors", members, tm.Key[str, str](partition="{shelf}", row="{name}"), **indexes | fields)


class Novel(tm.Entity, table="Novels"):
    shelf: tm.Field[str]
    name: tm.Field[str]
    number: tm.Field[int]
    pages: tm.Field[int]
    price: tm.Field[Decimal]

    key = tm.Key[str, str, int](partition="{shelf}", row=("{name}", "{number}"))


BOOKS: dict[str, Any] = {
    "books": tm.count(of=Novel),
    "longest": tm.max(Novel.pages, of=Novel),
    "worth": tm.sum(Novel.price, of=Novel),
}
Author = author(**BOOKS)
MODELS = [Novel, Author]


class Counted(Memory):
    number = 0

    def send(self, request: Any) -> Any:
        self.number += 1
        return super().send(request)


@pytest.fixture
def memory() -> Counted:
    return Counted()


@pytest.fixture
def store(memory: Counted) -> tm.Store:
    store = tm.Store(AzureEngine.open(memory, "here", compile_schema(MODELS)))
    for shelf in "xy":
        store.insert_many([Author(shelf, f"a{n}", n % 3) for n in range(9)])
        store.insert_many([Novel(shelf, f"a{n % 7}", n, 10 * n, Decimal(n)) for n in range(30)])
    return store


def right(one: Any) -> bool:
    novels = [n for n in range(30) if f"a{n % 7}" == one.name]
    worth = Decimal(sum(novels))
    return (one.books, one.longest, one.worth) == (len(novels), max([10 * n for n in novels], default=None), worth)


def test_each_way_of_reading_gives_the_fields_with_few_requests_more(store: tm.Store, memory: Counted) -> None:
    def sent(call: Any) -> tuple[list[Any], int]:
        before = memory.number
        return list(call()), memory.number - before

    found, requests = sent(lambda: [store[Author.key("x", "a3")]])
    assert (all(map(right, found)), requests) == (True, 1 + 3)
    found, requests = sent(lambda: store.query(Author).where(Author.shelf == "x"))
    assert (all(map(right, found)), len(found), requests) == (
        True,
        9,
        2 + 3,
    )  # (before and behind the rows of an index)
    found, requests = sent(lambda: store.partition(Author.shelf == "x"))
    assert (all(map(right, found)), len(found), requests) == (True, 9, 1 + 3)
    found, requests = sent(lambda: store.get_many([Author.key("x", f"a{n}") for n in (0, 8)]))
    assert (all(map(right, found)), requests) == (True, 2 * (1 + 3))
    found, requests = sent(lambda: store.query(Author.by_born(1)))
    assert (all(map(right, found)), len(found), requests) == (True, 6, 1 + 6 + 2 * 3)
    found, requests = sent(lambda: store.query(Author).where(Author.shelf == "y").select(Author.name))
    assert (len(found), requests) == (9, 2)  # (nothing of the fields is asked for)
    found, requests = sent(lambda: store.query(Author).where(Author.shelf == "y", Author.books > 4).select(Author.name))
    assert ([name for (name,) in found], requests) == (["a0", "a1"], 2 + 3)
    found = list(store.query(Author).where(Author.shelf == "y").order_by(Author.worth.desc()).allow_sort())
    assert [one.worth for one in found] == sorted([one.worth for one in found], reverse=True)
    assert all(map(right, store.query(Author).allow_scan()))
    items, token = list[Any](), None
    while not items or token is not None:
        page = store.query(Author).where(Author.shelf == "x").page(4, token=token)
        items, token = [*items, *page.items], page.token
    assert [one.name for one in items] == [f"a{n}" for n in range(9)]
    assert all(map(right, items))
    said = str(store.query(Author).where(Author.shelf == "x").explain())
    assert "books, longest, worth: a request more for each, in each partition" in said


def test_they_follow_each_write_and_move_no_etag(store: tm.Store, memory: Counted) -> None:
    one = store[Author.key("x", "a3")]
    store.insert(Novel("x", "a3", 100, 5_000, Decimal("0.5")))
    store.delete(Novel.key("x", "a3", 3))
    one.born = 7
    store.replace(one)  # (as it was read, it is written, and the fields are not)
    after = store[Author.key("x", "a3")]
    assert (after.books, after.longest, after.worth) == (4, 5_000, Decimal(10 + 17 + 24) + Decimal("0.5"))
    assert store.merge(Author.key("x", "a3"), born=8, returning=True).longest == 5_000
    assert not {"books", "longest", "worth"} & memory.tables["Authors"]["x", "a3"].typed.keys()
    assert store.check().ok
    assert not repaired(store).repaired


def test_a_new_field_is_built_beside_a_program_that_does_not_know_it(memory: Counted) -> None:
    place: Any = AzurePlace(memory=memory, still=True)
    bare = author()
    with tm.open(place, models=[Novel, bare]) as old:
        old.insert_many([bare("x", f"a{n}") for n in range(3)])
        old.insert_many([Novel("x", f"a{n % 3}", n, n, Decimal(n)) for n in range(9)])
        with tm.open(place, models=MODELS, build=False) as early:
            with pytest.raises(tm.NotReady, match="Author:"):
                early.get(Author.key("x", "a0"))
            with pytest.raises(tm.NotReady):
                list(early.query(Author).where(Author.shelf == "x"))
            with pytest.raises(tm.NotReady):
                list(early.partition(Author.shelf == "x"))
            early.build()
            assert early[Author.key("x", "a0")].books == 3
            old.insert(Novel("x", "a0", 100, 1, Decimal(1)))
            old.merge(bare.key("x", "a0"), born=5)
            assert early[Author.key("x", "a0")].books in (3, 4)  # (the old program knows of it within its look)
            old._engine.current._looked = -1e9  # type: ignore[attr-defined]
            old.insert(Novel("x", "a0", 101, 1, Decimal(1)))
        with sound_store(place, models=MODELS) as store:
            assert repaired(store).ok
            assert store[Author.key("x", "a0")].books == 5


@pytest.mark.parametrize(
    "index", [tm.Index[int](partition="{books}"), tm.Index[int](partition="{born}", where=lambda one: one.books > 3)]
)
def test_an_index_over_such_a_field_is_refused_before_anything_is_sent(memory: Counted, index: Any) -> None:
    indexed = author(**BOOKS, by_books=index)
    with pytest.raises(tm.InvalidModel, match=r"Author\.by_books: an index over books, .* declare an aggregate"):
        tm.open(AzurePlace(memory=memory), models=[Novel, indexed])  # type: ignore[arg-type]
    assert memory.number == 0


def test_a_store_with_such_fields_is_copied_both_ways(store: tm.Store, tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=MODELS) as file:
        tm.copy(store, file)
        assert all(map(right, file.query(Author).allow_scan()))
        other: Any = AzurePlace(memory=Memory(), still=True)
        with sound_store(other, models=MODELS) as back:
            tm.copy(file, back)
            assert all(map(right, back.query(Author).allow_scan()))
    store.backup(tmp_path / "backup.db")
    with tm.open(tmp_path / "backup.db", models=MODELS) as backup:
        assert all(map(right, backup.query(Author).allow_scan()))


def test_a_group_of_which_an_answer_is_lost_has_nothing_to_say(store: tm.Store, memory: Counted) -> None:
    """What is below zero is not there for readers."""
    tables = {one.name: one.table for one in store._engine._classes.models if ":" in one.name}  # type: ignore[attr-defined]
    table = tables["Author:books"]
    memory.send(GetEntity(table, "x", "a3"))
    held = memory.tables[table]["x", "a3"]
    memory.tables[table] = {
        **memory.tables[table],
        ("x", "a3"): type(held)({**held.typed, "_tm_below": ("Boolean", True)}, held.etag, held.timestamp),
    }
    one = store[Author.key("x", "a3")]
    assert (one.books, one.longest) == (0, 240)
