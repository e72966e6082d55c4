"""Properties with the names that SQLite has for the number of a row, of which each table of large values has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.catalogue import tables

from ...classes import entity

NAMES = ["rowid", "oid", "_rowid_", "ROWID", "id", "Oid"]
LARGE = "x" * 9_000


def model(name: str | None, kind: Any = str | None, row: str = "") -> Any:
    """Return a class with a large text, and a property of a name."""
    fields, key = {"p": str, "note": str}, tm.Key(partition="{p}", row=row)
    if name is None:
        return entity(f"M{row}", "Mains", fields, key)
    return entity(f"M{row}", "Mains", {**fields, "more": kind}, key, more=tm.field(default=None, name=name))


def keeps(path: Path, *classes: Any) -> None:
    """Write and read an entity of each class."""
    with tm.open(path, models=list(classes), durability="relaxed") as store:
        for cls in classes:
            value = 5 if cls.__name__ == "Mnumber" else LARGE
            store.upsert(cls("a", LARGE, more=value))
            assert store[cls.key("a")].more == value
            assert store.query(cls).where(cls.more == value).allow_scan().count() == 1
        assert store.check().ok


@pytest.mark.parametrize("name", NAMES)
def test_a_text_of_such_a_name_is_added_to_a_class_with_another_text(tmp_path: Path, name: str) -> None:
    plain = model(None)
    with tm.open(tmp_path / "s.db", models=[plain], durability="relaxed") as store:
        store.insert(plain("b", LARGE))
    keeps(tmp_path / "s.db", model(name))
    keeps(tmp_path / "new.db", model(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("first", [0, 1])
def test_a_text_and_a_number_of_such_a_name_share_a_table(tmp_path: Path, name: str, first: int) -> None:
    both = [model(name, int | None, "number"), model(name, str | None, "text")]
    keeps(tmp_path / "s.db", both[first])
    keeps(tmp_path / "s.db", *both)


@pytest.mark.parametrize("name", NAMES[:4])
def test_a_file_in_which_a_text_has_a_column_of_such_a_name_is_written_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tables, "_NUMBERS", frozenset({"id"}))  # as they were created once
        keeps(tmp_path / "s.db", model(name))
    keeps(tmp_path / "s.db", model(name))
