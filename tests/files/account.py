"""Write the tables of an account with one of each kind of thing: ``python -m tests.files.account tests/files``.

The dump of a layout that was released is never written again: a new layout gets a dump of its own beside it.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import tablemapper as tm

from ..engines.azure.memory import Memory, Stored
from ..engines.azure.place import AzurePlace
from .kinds import KINDS, entities
from .make import NOTES, Genre, first, renamed


class before:
    class Book(tm.Entity, table="Books", type="book"):
        """A book as the first version of its program declared it."""

        shelf: tm.Field[str]
        number: tm.Field[int]
        title: tm.Field[str]
        price: tm.Field[Decimal]
        weight: tm.Field[float]
        bought: tm.Field[datetime]
        tags: tm.Field[list[str]] = tm.field(factory=list)

        key = tm.Key[str, int](partition="{shelf}", row=("b", "{number}"))
        by_title = tm.Index[str](partition="{title}", include=("price",))


class Book(tm.Entity, table="Books", type="book"):
    shelf: tm.Field[str]
    number: tm.Field[int]
    title: tm.Field[str]
    price: tm.Field[Decimal]
    weight: tm.Field[float]
    bought: tm.Field[datetime]
    tags: tm.Field[list[str]] = tm.field(factory=list)
    genre: tm.Field[Genre | None] = tm.field(default=None)
    isbn: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{shelf}", row=("b", "{number}"))
    by_title = tm.Index[str](partition="{title}", include=("price",))
    by_weight = tm.Index[str, float](partition="{shelf}", row="{weight}")
    by_isbn = tm.Index[str](partition="{isbn}", unique=True)
    by_tag = tm.Index[str, Decimal](partition="{tags}", row="{price:desc}")


class Shelf(tm.Entity, table="Books", type="shelf"):
    shelf: tm.Field[str]
    room: tm.Field[str]
    books: tm.Field[int] = tm.count(of=Book)
    dearest: tm.Field[Decimal | None] = tm.max(Book.price, of=Book)

    key = tm.Key[str](partition="{shelf}", row="shelf")


class Day(tm.Aggregate, of=Book, table="Days"):
    day: tm.Field[date] = tm.group_by(Book.bought.date("Europe/Oslo"))
    books: tm.Field[int] = tm.count()
    novels: tm.Field[int] = tm.count(where=Book.genre == Genre.NOVEL)
    weight: tm.Field[float] = tm.sum(Book.weight)
    lightest: tm.Field[float | None] = tm.min(Book.weight)
    heaviest: tm.Field[float | None] = tm.max_ever(Book.weight)

    key = tm.Key[date](partition="days", row="{day}")
    by_books = tm.Index[int](partition="{books}")


MODELS = [Book, Shelf, Day]
MORNING, NIGHT = datetime(2026, 3, 1, 8, 0, tzinfo=UTC), datetime(2026, 3, 1, 23, 0, tzinfo=UTC)
BOOKS = [
    Book("a", 1, "Dune", Decimal("9.99"), 0.1, MORNING),
    Book("a", 2, "Odes / #1", Decimal("12.50"), 0.2, NIGHT, ["sea", "space"], Genre.POEM, "2"),
    Book("b", -1, "Åre", Decimal("1E+3"), 0.7, NIGHT, ["space"], Genre.NOVEL, "3"),
]
"""The first was written before its class had the other fields."""


def dump(memory: Memory) -> dict[str, Any]:
    """Return the tables of an account as JSON knows them."""
    return {
        name: [[*key, row.etag, row.timestamp, row.typed] for key, row in sorted(table.items())]
        for name, table in sorted(memory.tables.items())
    }


def load(path: Path) -> Memory:
    """Return an account with the tables of a dump."""
    memory = Memory()
    for name, rows in json.loads(path.read_text(encoding="utf-8")).items():
        memory.tables[name] = {
            (partition, row): Stored({name: (edm, value) for name, (edm, value) in typed.items()}, etag, timestamp)
            for partition, row, etag, timestamp, typed in rows
        }
    return memory


class Manuscript(tm.Entity, table="Manuscripts"):
    title: tm.Field[str]
    text: tm.Field[str] = tm.field(large=True)

    key = tm.Key[str](partition="{title}")


MANUSCRIPT = Manuscript("Odes", "long " * 7_000 + "😀")
CATALOGUES = ("TableMapper", "Shop", "Shop")
"""The catalogue of each format: from the second one on its name is the prefix of the tables."""


def make(catalogue: str, *, large: bool) -> Memory:
    """Return the account: entities, indexes and groups that were written and built, and a migration.

    Args:
        catalogue: its name.
        large: whether it has a value in pieces, which the third format is for.
    """
    memory = Memory()
    place = AzurePlace(memory=memory, catalogue=catalogue)
    with tm.open(place, models=[first.Note]) as store:
        store.insert_many(NOTES)
    with tm.open(place, models=[before.Book]) as store:
        store.insert(before.Book("a", 1, "Dune", Decimal("9.99"), 0.1, MORNING))
    with tm.open(place, models=MODELS) as store:
        store.build()
        store.insert_many([book.replace() for book in BOOKS[1:]])
        store.insert(Shelf("a", "hall"))
        store.sweep()
    with tm.open(place, models=KINDS) as store:
        for entity in entities():
            store.insert(entity)
        store.sweep()
    if large:
        with tm.open(place, models=[Manuscript]) as store:
            store.insert(MANUSCRIPT)
    tm.migrate(place, [renamed], contract=True)
    return memory


def text(tables: dict[str, Any]) -> str:
    """Return a dump as JSON, a line for each row."""
    lines = [
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]"
        for name, rows in tables.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    for number, catalogue in enumerate(CATALOGUES, 1):
        path = Path(sys.argv[1]) / f"account-{number}.json"
        if not path.exists():
            path.write_text(text(dump(make(catalogue, large=number > 2))), encoding="utf-8")
