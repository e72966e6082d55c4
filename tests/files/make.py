"""Write a small store with one of each kind of thing in it: ``python -m tests.files.make tests/files/format-1.db``.

A file of a format that was released is never written again. A new format gets a file of its own beside it. So what stands
here may grow with the next format, but what it already says of entities and scripts has to stay as the files have it.
"""

from __future__ import annotations

import enum
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import attrs

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.schema.model import compile_schema

from .kinds import KINDS, entities

LONG = "It was a dark and stormy night. " * 20
"""Text that is kept apart from its row."""


class Genre(enum.Enum):
    NOVEL = "novel"
    POEM = "poem"


@attrs.frozen
class Origin:
    city: str
    year: int = 0


class Book(tm.Entity, table="Books", type="book"):
    shelf: tm.Field[str]
    number: tm.Field[int]
    title: tm.Field[str]
    genre: tm.Field[Genre]
    price: tm.Field[Decimal]
    weight: tm.Field[float]
    bought: tm.Field[datetime]
    origin: tm.Field[Origin]
    isbn: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    cover: tm.Field[bytes] = tm.field(default=b"")
    text: tm.Field[str] = tm.field(default="")
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, int](partition="{shelf}", row=("b", "{number}"))
    by_title = tm.Index[str](partition="{title}", include=("price",))
    by_isbn = tm.Index[str](partition="{isbn}", unique=True)
    by_tag = tm.Index[str, Decimal](partition="{tags}", row="{price:desc}")
    by_city = tm.Index[str](partition="{origin.city}", where=lambda book: book.price > Decimal(10))


class Shelf(tm.Entity, table="Books", type="shelf"):
    shelf: tm.Field[str]
    room: tm.Field[str]
    books: tm.Field[int] = tm.count(of=Book)
    dearest: tm.Field[Decimal | None] = tm.max(Book.price, of=Book)

    key = tm.Key[str](partition="{shelf}", row="shelf")
    by_books = tm.Index[int](partition="{books}")


class Day(tm.Aggregate, of=Book, table="Days"):
    day: tm.Field[date] = tm.group_by(Book.bought.date("Europe/Oslo"))
    books: tm.Field[int] = tm.count()
    novels: tm.Field[int] = tm.count(where=Book.genre == Genre.NOVEL)
    weight: tm.Field[float] = tm.sum(Book.weight)
    spent: tm.Field[Decimal] = tm.sum(Book.price)
    mean: tm.Field[float | None] = tm.avg(Book.weight)
    lightest: tm.Field[float | None] = tm.min(Book.weight)
    heaviest: tm.Field[float | None] = tm.max_ever(Book.weight)

    key = tm.Key[date](partition="days", row="{day}")
    by_books = tm.Index[int](partition="{books}")


class first:
    class Note(tm.Entity, table="Notes"):
        author: tm.Field[str]
        number: tm.Field[int]
        text: tm.Field[str]
        state: tm.Field[str]

        key = tm.Key[str, int](partition="{author}", row="{number}")
        by_text = tm.Index[str](partition="{text}")


class second:
    class Note(tm.Entity, table="Notes"):
        author: tm.Field[str]
        number: tm.Field[int]
        body: tm.Field[str]
        state: tm.Field[str]

        key = tm.Key[str, int](partition="{author}", row="{number}")


class third:
    class Note(tm.Entity, table="Notes"):
        author: tm.Field[str]
        number: tm.Field[int]
        body: tm.Field[str]
        state: tm.Field[str]

        key = tm.Key[str, int](partition="{author}", row="{number:desc}")


class fourth:
    class Note(tm.Entity, table="Notes"):
        author: tm.Field[str]
        number: tm.Field[int]
        body: tm.Field[str]
        words: tm.Field[int]

        key = tm.Key[str, int](partition="{author}", row="{number:desc}")


# (The store has a hash of the text of each: even another line break would be another script.)


@tm.migration(after=None, old=[first.Note], new=[second.Note])
def renamed(m: tm.Migration) -> None:
    m.rename(first.Note.text, second.Note.body)
    m.drop(first.Note.by_text)


@tm.migration(after="renamed", old=[second.Note], new=[third.Note])
def newest_first(m: tm.Migration) -> None:
    m.rekey(second.Note, third.Note)


@tm.migration(after="newest_first", old=[third.Note], new=[fourth.Note])
def counted(m: tm.Migration) -> None:
    m.drop(third.Note.state)
    m.fill(fourth.Note.words, lambda note: len(note.body.split()))


MODELS = [Book, Shelf, Day]
SCRIPTS = [renamed, newest_first, counted]
"""Of these the first is contracted, the older version goes on beside the second, and the third is under way."""

BOOKS = [
    Book("a", 1, "Dune", Genre.NOVEL, Decimal("9.99"), 0.1, datetime(2026, 3, 1, 22, 59, tzinfo=UTC), Origin("Oslo", 1965),
         isbn="1", tags=["sand", "space"], text=LONG),
    Book("a", 2, "Odes", Genre.POEM, Decimal("12.50"), 0.2, datetime(2026, 3, 1, 23, 0, tzinfo=UTC), Origin("Rome"),
         isbn="2", tags=["space"], cover=b"\x00\xff", more=tm.Extra(pages=90, rating=4.5, signed=True)),
    Book("b", -1, "", Genre.NOVEL, Decimal("1E+3"), 0.7, datetime(2026, 3, 2, 12, 0, tzinfo=UTC), Origin("Åre / #1")),
]  # fmt: skip
NOTES = [first.Note("ada", number, f"note number {number}", "sent" if number else "draft") for number in range(3)]


def make(path: Path) -> None:
    """Write the store."""
    for models in ([first.Note], MODELS):
        # (With small pages the file is small, and a value takes several of them.)
        SqliteEngine.open(path, compile_schema(models), page_size=512).close()
    with tm.open(path, models=[first.Note]) as store:
        store.insert_many(NOTES)
    with tm.open(path, models=MODELS) as store:
        store.insert_many([book.replace() for book in BOOKS])
        store.insert(Shelf("a", "hall"))
        store.insert(Book("b", 7, "Lost", Genre.POEM, Decimal(1), 9.5, BOOKS[2].bought, Origin("Bern")))
        store.delete(Book.key("b", 7))  # the heaviest that there ever was
    with tm.open(path, models=KINDS) as store:
        for entity in entities():
            store.insert(entity)
    tm.migrate(path, SCRIPTS, to="renamed", contract=True)
    tm.migrate(path, SCRIPTS, to="newest_first")
    tm.migrate(path, SCRIPTS, limit=1)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
