"""The file of a store is written anew."""

from __future__ import annotations

from pathlib import Path

import pytest

import tablemapper as tm

from ..classes import grouped
from ..stores import sound_store

pytestmark = pytest.mark.file


class Note(tm.Entity, table="Notes"):
    author: tm.Field[str]
    number: tm.Field[int]
    text: tm.Field[str] = tm.field(default="x" * 600)

    key = tm.Key[str, int](partition="{author}", row="{number}")
    by_number = tm.Index[int](partition="{number}")


Notes = grouped("Notes", Note, "author", "NotesByAuthor", most=(int | None, tm.max(Note.number)))


@pytest.mark.parametrize("where", ["notes.db", ":memory:"])
def test_a_store_goes_on_as_it_was(where: str, tmp_path: Path) -> None:
    path = where if where == ":memory:" else str(tmp_path / where)
    with sound_store(path, models=[Note, Notes]) as store:
        store.insert_many(Note("ada", n) for n in range(300))
        query = store.query(Note).where(Note.author == "ada")
        page = query.page(3)
        kept = store[Note.key("ada", 299)]
        store.delete_many(query.where(Note.number >= 5, Note.number < 290))
        before = sum(one.stat().st_size for one in tmp_path.iterdir())
        done: list[tm.reports.Progress] = []
        store.compact(progress=done.append)
        assert done
        assert path == ":memory:" or sum(one.stat().st_size for one in tmp_path.iterdir()) < before / 2
        assert [note.number for note in query.page(3, page.token).items] == [3, 4, 290]
        store.replace(kept.replace(text="new"))
        assert store[Notes.key("ada")].most == 299


def test_a_store_in_use_is_not_compacted(tmp_path: Path) -> None:
    with sound_store(tmp_path / "x.db", models=[Note]) as store:
        store.insert_many(Note("ada", n) for n in range(600))
        with tm.open(tmp_path / "x.db", models=[Note]), pytest.raises(tm.StoreLocked, match="is open"):
            store.compact()
        notes = iter(store.query(Note).where(Note.author == "ada"))
        assert next(notes).number == 0
        with pytest.raises(tm.StoreLocked):
            store.compact()
        assert len(list(notes)) == 599
        with store.transaction() as tx:
            tx.insert(Note("ada", 600))
            with pytest.raises(tm.InvalidTransaction, match="compact"):
                store.compact()
        store.compact()
