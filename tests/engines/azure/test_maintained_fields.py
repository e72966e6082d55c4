"""Fields of an entity that groups of another table keep: read with it, whichever way, and followed by them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.azure.cross_partition.named_partitions import NAMES
from tablemapper.engines.azure.cross_partition.outbox import Intent, PutRow
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables.entity_json import marks_of
from tablemapper.engines.azure.tables.reserved_names import OP, OPS
from tablemapper.engines.azure.tables.service import GetEntity, GroupTransaction, RowChange
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

    def send(self, request: Any, *wait: float) -> Any:
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
            old._engine.current.known.seen = -1e9  # type: ignore[attr-defined]
            old.insert(Novel("x", "a0", 101, 1, Decimal(1)))
        with sound_store(place, models=MODELS) as store:
            assert repaired(store).ok
            assert store[Author.key("x", "a0")].books == 5


def _as_first_written(memory: Memory) -> None:
    """Give all entities their marks in the form that the first accounts have."""
    for name, table in memory.tables.items():
        for key, one in list(table.items()):
            if OPS in one.typed:
                text = " ".join([f"{mark}:{op}" for mark, op in marks_of({OPS: one.typed[OPS][1]}).items()])
                memory.tables[name] = memory.tables[name] | {
                    key: attrs.evolve(one, typed=one.typed | {OPS: ("String", text)})
                }


@pytest.mark.parametrize("marked", [lambda memory: None, _as_first_written], ids=["now", "first"])
@pytest.mark.parametrize("lost", [False, True], ids=["built", "repaired"])
def test_a_field_that_was_built_follows_each_later_write(
    memory: Counted, marked: Callable[[Memory], None], lost: bool
) -> None:
    place: Any = AzurePlace(memory=memory, still=True)
    bare = author()
    with tm.open(place, models=[Novel, bare]) as store:
        store.insert_many([bare("x", f"a{n}") for n in range(2)])
        store.insert_many([Novel("x", "a0", n, n, Decimal(n)) for n in range(6)])
    with sound_store(place, models=MODELS) as store:
        if lost:  # (then all groups are built anew)
            tables = [one.table for one in store._engine._classes.models if ":" in one.name]  # type: ignore[attr-defined]
            memory.tables |= {table: {} for table in tables}
            assert store.repair().ok
        marked(memory)
        store.delete(Novel.key("x", "a0", 0))
        store.merge(Novel.key("x", "a0", 1), pages=10)
        store.replace(store[Novel.key("x", "a0", 5)].replace(pages=4, price=Decimal(7)))
        store.move(store[Novel.key("x", "a0", 2)], Novel.key("x", "a1", 2))
        one, other = store[Author.key("x", "a0")], store[Author.key("x", "a1")]
        assert (one.books, one.longest, one.worth) == (4, 10, Decimal(1 + 3 + 4 + 7))
        assert (other.books, other.longest, other.worth) == (1, 2, Decimal(2))
        store.delete_many([Novel.key("x", "a0", n) for n in (1, 3, 4, 5)])
        one = store[Author.key("x", "a0")]
        assert (one.books, one.longest, one.worth) == (0, None, Decimal(0))


def test_what_two_definitions_left_unfinished_is_carried_out(memory: Counted) -> None:
    place: Any = AzurePlace(memory=memory, still=True)
    bare = author()
    with tm.open(place, models=[bare]) as store:
        store.insert(bare("x", "a", 7))
    _, ((partition, row), held) = memory.tables["AuthorsByBorn"].items()
    op = memory.tables["Authors"]["x", "a"].typed[OP][1]
    memory.tables["AuthorsByBorn"] = {}
    members: dict[str, Any] = {name: value for name, (_, value) in held.typed.items()}
    put = PutRow("AuthorsByBorn", partition, row, members, "by_born")
    twice = Intent("Authors", "x", op, puts=[put, put])
    memory.send(GroupTransaction("Authors", "x", (twice.change("C"),)))
    name = RowChange("upsert", "Authors !x", {"t": "Authors", "p": "x"})
    memory.send(GroupTransaction("TableMapper", f"{NAMES}1", (name,)))  # (its program has ended without closing)
    memory.ahead += 1000
    with sound_store(place, models=[bare]) as store:
        assert store.sweep(full=True) == 1
        assert [one.name for one in store.query(bare.by_born(7))] == ["a"]


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
