"""What opening a store says about the duplicates under a new unique index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity

pytestmark = pytest.mark.file


def part(**indexes: Any) -> Any:
    key = tm.Key[str, int](partition="{shelf}", row="{number}")
    return entity("Part", "Parts", {"shelf": str, "number": int, "size": int}, key, **indexes)


PLAIN = part()
BY_NUMBER = part(a_number=tm.Index[int](partition="{number}", unique=True))
BY_SIZE = part(by_size=tm.Index[int](partition="{size}", unique=True))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "s.db", models=[PLAIN], durability="relaxed") as store:
        store.insert_many(PLAIN(shelf, number, number // 2) for shelf in "ab" for number in range(300))
    return tmp_path / "s.db"


def test_all_are_counted_and_twenty_are_listed(path: Path) -> None:
    with pytest.raises(tm.UniqueViolation) as raised:
        tm.open(path, models=[BY_NUMBER])
    message = str(raised.value)
    assert message.startswith("300 duplicate values: Part.a_number: ")
    assert message.count("is held by") == 20
    assert message.endswith("open with build=False to change them, or resolve them by a migration with m.resolve")


def test_those_of_an_index_that_is_not_declared_hide_none(path: Path) -> None:
    with pytest.raises(tm.UniqueViolation, match="300 duplicate values: Part.a_number"):
        tm.open(path, models=[BY_NUMBER])
    with pytest.raises(tm.UniqueViolation, match="150 duplicate values: Part.by_size: 'a0' is held by"):
        tm.open(path, models=[BY_SIZE])


def test_one_is_one(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[PLAIN]) as store:
        store.insert_many([PLAIN("a", 1, 1), PLAIN("b", 1, 2)])
    with pytest.raises(tm.UniqueViolation, match="1 duplicate value: Part.a_number: 'a1' is held by"):
        tm.open(tmp_path / "s.db", models=[BY_NUMBER])


def test_the_write_that_ends_the_last_one_makes_the_index_ready_at_once(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[PLAIN]) as store:
        store.insert_many([PLAIN("a", 1, 1), PLAIN("b", 1, 2)])
    with tm.open(tmp_path / "s.db", models=[BY_NUMBER], build=False) as store:
        query = store.query(BY_NUMBER.a_number(1))
        with pytest.raises(tm.NotReady, match="held twice"):
            list(query)
        store.delete(BY_NUMBER.key("b", 1))
        assert [one.shelf for one in query] == ["a"]
