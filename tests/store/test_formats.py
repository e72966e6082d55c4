"""Files of each format that was released are read, written and migrated, and those of others are left as they are."""

from __future__ import annotations

import shutil
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.driver.connections import FORMAT_VERSION

from ..files import make
from ..files.make import BOOKS, MODELS, NOTES, SCRIPTS, Book, Day, Shelf, first, fourth, second, third
from ..sql import run_sql

pytestmark = pytest.mark.file

FOLDER = Path(make.__file__).parent
FILES = {file.stem: file for file in sorted(FOLDER.glob("format-*.db"))}


@pytest.fixture(params=FILES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copy(FILES[request.param], tmp_path))


def notes(path: Path, cls: Any) -> list[Any]:
    with tm.open(path, models=[cls]) as store:
        assert store.check().ok
        return list(store.partition(cls.author == "ada"))


def test_there_is_a_file_of_each_format() -> None:
    assert list(FILES) == [f"format-{number}" for number in range(1, FORMAT_VERSION + 1)]


def test_everything_in_the_file_is_found(path: Path) -> None:
    with tm.open(path, models=MODELS) as store:
        assert store.check().ok
        assert [*store.partition(Book.shelf == "a"), *store.partition(Book.shelf == "b")] == [
            *BOOKS[:2], store[Shelf.key("a")], BOOKS[2],
        ]  # fmt: skip
        assert (store[Shelf.key("a")].books, store[Shelf.key("a")].dearest) == (2, Decimal("12.50"))
        days = [store[Day.key(date(2026, 3, day))] for day in (1, 2)]
        assert [(day.books, day.novels, day.weight, day.spent) for day in days] == [
            (1, 1, 0.1, Decimal("9.99")), (2, 1, 0.2 + 0.7, Decimal("1012.50")),
        ]  # fmt: skip
        assert (days[1].lightest, days[1].heaviest) == (0.2, 9.5)
        for query in (
            store.query(Book.by_title("Odes")), store.query(Book.by_isbn("2")), store.query(Book.by_city("Rome")),
        ):  # fmt: skip
            assert list(query) == [BOOKS[1]]
        assert list(store.query(Book.by_tag("space"))) == [BOOKS[1], BOOKS[0]]
        assert list(store.query(Shelf.by_books(2))) == [store[Shelf.key("a")]]
        assert list(store.query(Day.by_books(2))) == days[1:]


def test_what_is_written_is_maintained(path: Path) -> None:
    with tm.open(path, models=MODELS) as store:
        store.replace(store[BOOKS[0].key].replace(price=Decimal(70), text="", tags=["sand"]))
        store.move(store[BOOKS[1].key], Book.key("b", 2))
        store.delete(store[BOOKS[2].key])
        with pytest.raises(tm.UniqueViolation):
            store.merge(Book.key("b", 2), isbn="1")
    with tm.open(path, models=MODELS) as store:
        assert store.check().ok
        assert (store[Shelf.key("a")].books, store[Shelf.key("a")].dearest) == (1, Decimal(70))
        assert store[Day.key(date(2026, 3, 2))].heaviest == 9.5


def test_an_etag_that_a_client_kept_is_still_valid(path: Path) -> None:
    ((timestamp,),) = run_sql(path, "SELECT Timestamp FROM Books WHERE PartitionKey = 'a' AND RowKey = 'shelf'")
    with tm.open(path, models=MODELS) as store:
        store.delete(Shelf.key("a"), if_match=f'W/"{timestamp}"')


def test_both_versions_around_a_migration_go_on(path: Path) -> None:
    old = [second.Note(note.author, note.number, note.text, note.state) for note in NOTES]
    assert notes(path, second.Note) == old
    with tm.open(path, models=[second.Note]) as store:
        store.merge(second.Note.key("ada", 1), state="draft")
    assert [note.state for note in notes(path, third.Note)] == ["sent", "draft", "draft"]
    with pytest.raises(tm.SchemaMismatch, match="renamed"):
        tm.open(path, models=[first.Note])


def test_a_migration_that_was_under_way_goes_on_and_can_be_undone(path: Path) -> None:
    report = tm.migrate(path, SCRIPTS)
    assert (report.applied, report.entities) == (("counted",), 2)
    assert [note.words for note in notes(path, fourth.Note)] == [3, 3, 3]
    assert tm.migrate(path, SCRIPTS, to="renamed").done
    assert notes(path, second.Note)[0].state == "draft"


def test_whoever_meets_a_file_of_another_format_leaves_it_as_it_is_and_says_what_to_do(path: Path) -> None:
    place = path.with_name("place.db")
    tm.open(place, models=MODELS).close()
    run_sql(path, f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    before = path.read_bytes(), place.read_bytes()
    for use in (
        lambda: tm.open(path, models=MODELS),
        lambda: tm.status(path),
        lambda: tm.migrate(path, SCRIPTS),
        lambda: tm.migrate(path, SCRIPTS, dry_run=True),
        lambda: tm.restore(path, place, overwrite=True),
    ):
        with pytest.raises(tm.NotAStore, match=f"has format {FORMAT_VERSION + 1}, this .*: upgrade tablemapper"):
            use()
    assert (path.read_bytes(), place.read_bytes()) == before
    assert sorted(one.name for one in path.parent.iterdir()) == sorted(["place.db", path.name])
