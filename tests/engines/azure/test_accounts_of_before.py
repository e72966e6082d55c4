"""The account that the first layout wrote is opened, read, written, checked and repaired."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

import tablemapper as tm
from tablemapper.engines.azure.catalogue.publication import FORMAT

from ...files import account
from ...files.account import BOOKS, MANUSCRIPT, MODELS, Book, Day, Manuscript, Shelf
from ...files.make import NOTES, SCRIPTS, second
from .place import AzurePlace

FOLDER = Path(account.__file__).parent


@pytest.fixture(params=range(1, FORMAT + 1))
def place(request: pytest.FixtureRequest) -> AzurePlace:
    memory = account.load(FOLDER / f"account-{request.param}.json")
    return AzurePlace(memory=memory, catalogue=account.CATALOGUES[request.param - 1])


@pytest.mark.parametrize("path", sorted(FOLDER.glob("account-*.json")), ids=lambda path: path.stem)
def test_a_dump_holds_all_that_the_tables_do(path: Path) -> None:
    assert account.text(account.dump(account.load(path))) == path.read_text(encoding="utf-8")


def test_everything_in_the_account_is_found(place: AzurePlace) -> None:
    with tm.open(place, models=MODELS) as store:
        assert store.check().ok
        shelf = store[Shelf.key("a")]
        assert [*store.partition(Book.shelf == "a"), *store.partition(Book.shelf == "b")] == [
            *BOOKS[:2],
            shelf,
            BOOKS[2],
        ]
        assert (shelf.room, shelf.books, shelf.dearest) == ("hall", 2, Decimal("12.50"))
        days = [store[Day.key(date(2026, 3, day))] for day in (1, 2)]
        assert [(day.books, day.novels, day.weight, day.lightest, day.heaviest) for day in days] == [
            (1, 0, 0.1, 0.1, 0.1), (2, 1, 0.2 + 0.7, 0.2, 0.7),
        ]  # fmt: skip
        assert list(store.query(Book.by_title("Odes / #1"))) == list(store.query(Book.by_isbn("2"))) == [BOOKS[1]]
        assert list(store.query(Book.by_tag("space"))) == [BOOKS[2], BOOKS[1]]
        assert list(store.query(Book.by_weight("a"))) == BOOKS[:2]
        assert list(store.query(Day.by_books(2))) == days[1:]


def test_a_large_value_is_there_from_the_third_format_on(place: AzurePlace) -> None:
    assert place.memory is not None
    is_there = place.memory.tables[place.catalogue]["store", "head"].typed["format"] == ("Int32", 3)
    with tm.open(place, models=[Manuscript]) as store:
        assert store.get(MANUSCRIPT.key) == (MANUSCRIPT if is_there else None)
        head = place.memory.tables[place.catalogue]["store", "head"].typed
        assert (head["format"], head["needs"]) == (("Int32", 3), ("String", '["pieces"]'))
        store.upsert(MANUSCRIPT)
        assert store[MANUSCRIPT.key] == MANUSCRIPT
        assert store.check().ok


def test_what_is_written_there_is_maintained_and_repaired(place: AzurePlace) -> None:
    with tm.open(place, models=MODELS) as store:
        store.replace(store[BOOKS[1].key].replace(price=Decimal(70), tags=["sea"]))
        store.delete(store[BOOKS[2].key])
        with pytest.raises(tm.UniqueViolation):
            store.merge(BOOKS[0].key, isbn="2")
        store.sweep()
        assert store.check().ok
        assert (store[Shelf.key("a")].books, store[Shelf.key("a")].dearest) == (2, Decimal(70))
        assert store[Day.key(date(2026, 3, 2))].heaviest == 0.7
        assert not store.repair().remaining


def test_a_version_behind_the_migration_goes_on(place: AzurePlace) -> None:
    with tm.open(place, models=[second.Note]) as store:
        assert store.check().ok
        notes = [second.Note(note.author, note.number, note.text, note.state) for note in NOTES]
        assert list(store.partition(second.Note.author == "ada")) == notes


def test_there_is_an_account_of_each_format() -> None:
    assert sorted(FOLDER.glob("account-*.json")) == [
        FOLDER / f"account-{number}.json" for number in range(1, FORMAT + 1)
    ]


def test_whoever_meets_an_account_of_another_format_leaves_it_as_it_is_and_says_what_to_do(place: AzurePlace) -> None:
    assert place.memory is not None
    place.memory.tables[place.catalogue]["store", "head"].typed["format"] = ("Int32", FORMAT + 1)
    before = account.dump(place.memory)
    uses: list[Callable[[], object]] = [
        lambda: tm.open(place, models=MODELS),
        lambda: tm.open(place, models=MODELS, read_only=True),
        lambda: tm.status(place),
        lambda: tm.migrate(place, SCRIPTS),
        lambda: tm.migrate(place, SCRIPTS, dry_run=True),
    ]
    for use in uses:
        with pytest.raises(tm.NotAStore, match=f"has format {FORMAT + 1}, this .*: upgrade tablemapper"):
            use()
    assert account.dump(place.memory) == before
