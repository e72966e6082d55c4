"""Columns that are inserted: how they are cut into windows, and the ways that their rows go into a table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.rows import writes
from tablemapper.schema.model import model_of
from tablemapper.verbs import write_windows
from tablemapper.verbs.column_input import values_of

from ..classes import entity, grouped
from ..sql import run_sql
from ..stores import sound_store


class Note(tm.Entity, table="Notes"):
    shelf: tm.Field[str]
    number: tm.Field[int]
    text: tm.Field[str | None]
    size: tm.Field[int | None]

    key = tm.Key[str, int](partition="{shelf}", row="{number}")


class Book(tm.Entity, table="Books"):
    shelf: tm.Field[str]
    number: tm.Field[int]
    text: tm.Field[str | None]
    size: tm.Field[int | None]

    key = tm.Key[str, int](partition="{shelf}", row="{number}")
    by_size = tm.Index[int](partition="{size}")


Shelf = grouped("Shelf", Book, "shelf", "Shelves", books=tm.count(), sizes=(int | None, tm.sum(Book.size)))


Bare = entity("Bare", "Bares", {"shelf": str, "number": int}, tm.Key[str, int](partition="{shelf}", row="{number}"))


Config = entity("Config", "Notes", {"shelf": str, "value": int}, tm.Key[str](partition="{shelf}", row="config"))


@pytest.fixture(params=[(False, 3, 1), (False, 7, 1), (False, 7, 10**6), (True, 7, 1)])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let a window be of ten rows, some of which are made at a time, in a file that fits the cache, or not; whether all or none."""
    atomic, chunk, pages = request.param
    monkeypatch.setattr(write_windows, "_ENTITIES", 10)
    monkeypatch.setattr(write_windows, "_CHUNK", chunk)
    monkeypatch.setattr(writes, "_PAGES", pages * 8_000 if pages == 1 else 0)
    return bool(atomic)


def columns_of(cls: Any, rows: int) -> dict[str, list[Any]]:
    rnd = random.Random(rows)
    numbers = rnd.sample(range(-rows, rows), rows)
    columns = {"shelf": [rnd.choice("abc") for _ in numbers], "number": numbers}
    if cls is not Bare:
        texts = [None, "", "é", "x" * 300, "y" * 401, "z" * 30_000]
        columns["text"] = [rnd.choice(texts[:3] if at < 15 else texts) for at in range(rows)]
        columns["size"] = [rnd.choice([None, 0, 2**31, -5]) for _ in numbers]
    return columns  # type: ignore[return-value]


@pytest.mark.file
@pytest.mark.parametrize("cls", [Note, Book, Bare])
def test_columns_leave_what_their_entities_leave(ways: bool, cls: Any) -> None:
    columns = columns_of(cls, 40)
    with (
        tm.open(":memory:", models=[Note, Book, Shelf, Bare]) as one,
        tm.open(":memory:", models=[Note, Book, Shelf, Bare]) as other,
    ):
        assert one.insert_columns(cls, columns, atomic=ways) == 40
        other.insert_many(cls(*values) for values in zip(*columns.values(), strict=True))
        for store in (one, other):
            assert store.check().ok
        for model in (cls, Shelf):
            assert list(one.query(model).allow_scan()) == list(other.query(model).allow_scan())
        assert len({tm.info(entity).timestamp for entity in one.query(cls).allow_scan()}) == (1 if ways else 4)


@pytest.mark.file
@pytest.mark.parametrize("cls", [Note, Book])
def test_long_values_are_moved_aside_as_those_of_entities(ways: bool, cls: Any, tmp_path: Path) -> None:
    columns = columns_of(cls, 40)
    moved = []
    for name in ("columns", "entities"):
        with tm.open(tmp_path / name, models=[Note, Book, Shelf]) as store:
            if name == "columns":
                store.insert_columns(cls, columns, atomic=ways)
            else:
                store.insert_many([cls(*values) for values in zip(*columns.values(), strict=True)], atomic=ways)
        moved.append(run_sql(tmp_path / name, f'SELECT RowKey, _big IS NOT NULL FROM "{cls.__name__}s"'))
    assert moved[0] == moved[1]
    assert 0 < sum(is_moved for _, is_moved in moved[0]) < 40


@pytest.mark.needs("one_commit", when=lambda ways: not ways[0])
@pytest.mark.needs("all_or_none_load", when=lambda ways: ways[0])
@pytest.mark.parametrize("cls", [Note, Book])
def test_a_key_that_is_taken_is_named_and_the_windows_before_it_are_written(ways: bool, cls: Any) -> None:
    columns = columns_of(cls, 40)
    columns["shelf"][24], columns["number"][24] = columns["shelf"][21], columns["number"][21]
    with tm.open(":memory:", models=[Note, Book, Shelf]) as store:
        with pytest.raises(tm.EntityExists) as caught:
            store.insert_columns(cls, columns, atomic=ways)
        assert caught.value.key == cls.key(columns["shelf"][24], columns["number"][24])[1:]
        assert caught.value.written == (0 if ways else 20)
        assert store.query(cls).allow_scan().count() == (0 if ways else 20)
        assert store.check().ok


@pytest.mark.needs("all_or_none_load", when=lambda ways: ways[0])
def test_a_key_of_a_more_special_class_is_refused_and_its_window_is_not_written(ways: bool) -> None:
    members = {"shelf": str, "name": str}
    Anything = entity("Anything", "Notes", members, tm.Key[str, str](partition="{shelf}", row="{name}"))
    columns = {"shelf": ["a"] * 15, "name": [f"n{at}" for at in range(15)]}
    columns["name"][12] = "config"
    with tm.open(":memory:", models=[Anything, Config]) as store:
        with pytest.raises(tm.InvalidEntity, match="belongs to Config"):
            store.insert_columns(Anything, columns, atomic=ways)
        assert store.query(Anything).allow_scan().count() == (0 if ways else 10)


def test_a_window_ends_after_a_second_or_with_many_characters() -> None:
    columns = list(columns_of(Note, 30).values())
    columns[2] = ["x" * 100] * 30
    operations: Any = SimpleNamespace(refuse_reserved=lambda model, rows: None)

    def sizes(clock: Iterator[float]) -> list[int]:
        made = []
        for (batch,) in write_windows._column_windows(operations, model_of(Note), columns, lambda: next(clock)):
            for _ in range(2):  # a write can be tried again, and begins with the first row
                rows = [row for part, _ in batch.parts() for row in part]
                assert len(rows) == batch.made == batch.count
                assert rows[0][0] == columns[0][sum(made)]
            made.append(batch.made)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_windows, "_CHUNK", 4)
        assert sizes(iter(lambda: 0.0, 1.0)) == [30]
        assert sizes(count(0, 0.3)) == [12, 12, 6]
        patch.setattr(write_windows, "_CHARACTERS", 1_000)
        assert sizes(iter(lambda: 0.0, 1.0)) == [12, 12, 6]


def test_columns_are_not_copied_where_values_are_stored_as_they_are() -> None:
    class Size(int, Enum):
        SMALL = 1

    columns = columns_of(Note, 10)
    values = values_of(model_of(Note), columns)
    assert all(value is given for value, given in zip(values, columns.values(), strict=True))
    columns["number"][7] = Size.SMALL
    values = values_of(model_of(Note), columns)
    assert [value is given for value, given in zip(values, columns.values(), strict=True)] == [True, False, True, True]
    assert values[1][7].__class__ is int
    assert columns["number"][7] is Size.SMALL


def test_columns_are_upserted_and_the_last_row_of_a_key_wins(tmp_path: Path) -> None:
    Cell = entity("Cell", "Cells", {"row": str, "n": int}, tm.Key[str](partition="{row}"))
    with sound_store(tmp_path / "s.db", models=[Cell]) as store:
        store.insert(Cell("a", 1))
        assert store.upsert_columns(Cell, {"row": ["a", "b", "a"], "n": [2, 3, 4]}) == 3
        assert [cell.n for cell in store.query(Cell).allow_scan()] == [4, 3]
        with pytest.raises(tm.InvalidEntity, match="n"):
            store.upsert_columns(Cell, {"row": ["c"], "n": ["x"]})
