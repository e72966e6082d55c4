"""A store is restored from a backup of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tablemapper as tm

from ..sql import run_sql

pytestmark = pytest.mark.file


class Note(tm.Entity, table="Notes"):
    author: tm.Field[str]
    number: tm.Field[int]

    key = tm.Key[str, int](partition="{author}", row="{number}")
    by_number = tm.Index[int](partition="{number}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of one note, and a backup from before it had another."""
    path = tmp_path / "notes.db"
    with tm.open(path, models=[Note]) as store:
        store.insert(Note("ada", 1))
        store.backup(tmp_path / "copy.db")
        store.insert(Note("ada", 2))
    return path


def numbers(path: Path) -> list[int]:
    with tm.open(path, models=[Note]) as store:
        assert store.check().ok
        return [note.number for note in store.query(Note).where(Note.author == "ada")]


def test_a_store_is_restored(path: Path) -> None:
    with pytest.raises(tm.StoreError, match="overwrite=True"):
        tm.restore(path.with_name("copy.db"), path)
    with tm.open(path, models=[Note]), pytest.raises(tm.StoreLocked, match="is open"):
        tm.restore(path.with_name("copy.db"), path, overwrite=True)
    assert numbers(path) == [1, 2]
    tm.restore(str(path.with_name("copy.db")), str(path), overwrite=True)
    assert numbers(path) == [1]


def test_an_etag_of_before_matches_no_restored_entity(path: Path) -> None:
    with tm.open(path, models=[Note]) as store:
        store.replace(store[Note.key("ada", 1)])
        before = store[Note.key("ada", 1)]
    tm.restore(path.with_name("copy.db"), path, overwrite=True)
    with tm.open(path, models=[Note]) as store, pytest.raises(tm.PreconditionFailed):
        store.replace(before)


def test_a_backup_whose_catalogue_is_damaged_is_refused(path: Path) -> None:
    copy = path.with_name("copy.db")
    run_sql(copy, "UPDATE tablemapper_catalogue SET form = '[]' WHERE name = 'models'")
    with pytest.raises(tm.CorruptStore, match="the catalogue cannot be read"):
        tm.restore(copy, path, overwrite=True)
    assert numbers(path) == [1, 2]


def test_a_place_is_no_url(path: Path) -> None:
    for where in ("https://account.table.core.windows.net", "file:x.db"):
        with pytest.raises(tm.NotAStore):
            tm.restore(path.with_name("copy.db"), where)
        with pytest.raises(tm.NotAStore):
            tm.restore(where, path, overwrite=True)
