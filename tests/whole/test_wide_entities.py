"""Entities whose value is in several properties of bytes, as large ones have to be: each has 64 KiB at most."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tablemapper as tm
from tablemapper.catalogue.tables import Table
from tablemapper.engines.sqlite.sql.statements import Statements
from tablemapper.schema.model import compile_schema

from ..classes import entity


class Film(tm.Entity, table="Films"):
    year: tm.Field[int]
    name: tm.Field[str]
    studio: tm.Field[str]
    part0: tm.Field[bytes]
    part1: tm.Field[bytes]
    part2: tm.Field[bytes | None] = tm.field(default=None)
    part3: tm.Field[bytes | None] = tm.field(default=None)
    notes: tm.Field[str] = tm.field(default="")

    key = tm.Key[int, str](partition="{year}", row="{name}")
    by_studio = tm.Index[str](partition="{studio}")
    short = tm.Index[str, str](partition="{studio}", row="{notes}", include=("year",), table="ShortFilms")


LARGE = Film(1999, "large", "Ace", b"0" * 60_000, b"1" * 60_000, None, b"3" * 60_000, "long " * 20)
SMALL = Film(1999, "small", "Ace", b"0", b"", None, b"3")


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Film]) as store:
        store.insert_many([LARGE, SMALL])
        yield store


@pytest.mark.needs("backward")
def test_wide_entities_come_back_whole_whether_their_values_are_moved_aside_or_not(store: tm.Store) -> None:
    assert [store[film.key] for film in (LARGE, SMALL)] == [LARGE, SMALL]
    assert list(store.get_many([SMALL.key, LARGE.key])) == [SMALL, LARGE]
    assert list(store.query(Film).where(Film.year == 1999).order_by(Film.name.desc())) == [SMALL, LARGE]
    assert list(store.query(Film.by_studio("Ace"))) == [LARGE, SMALL]
    assert list(store.query(Film).where(Film.year.is_in([1998, 1999, 2000]))) == [LARGE, SMALL]


def test_parts_that_were_moved_aside_can_be_filtered_and_counted(store: tm.Store) -> None:
    query = store.query(Film).where(Film.year == 1999, Film.part3 == LARGE.part3)
    assert (list(query), query.count()) == ([LARGE], 1)
    assert store.query(Film).where(Film.year == 1999, Film.part2.is_null()).count() == 2


def test_a_part_can_be_changed_and_an_entity_become_small(store: tm.Store) -> None:
    film = store[LARGE.key]
    film.part3 = None
    store.replace(film)
    assert store[LARGE.key].part3 is None
    store.merge(LARGE.key, Film.part0.set(b"short"), Film.part1.set(b""))
    assert store[LARGE.key] == LARGE.replace(part0=b"short", part1=b"", part3=None)
    assert store.check().ok


class Clip(tm.Entity, table="Clips"):
    """One part too few to be wide."""

    id: tm.Field[str]
    part0: tm.Field[bytes]
    part1: tm.Field[bytes]
    part2: tm.Field[bytes]
    notes: tm.Field[str]

    key = tm.Key[str](partition="{id}")


def test_all_parts_of_a_wide_entity_are_read_by_one_cursor() -> None:
    models = compile_schema([Film, Clip]).models
    tables = [Table(model.table, (), (), (), ()).extended(model) for model in models]
    by_class = {model.name: Statements(table, model) for table, model in zip(tables, models, strict=True)}
    wide, narrow = by_class["Film"], by_class["Clip"]
    assert [sql.count("LEFT JOIN") for sql in (wide.get, wide.scan, narrow.get, narrow.scan)] == [1, 1, 0, 0]
    assert "(SELECT" not in wide.get


def test_a_text_that_is_called_id_is_stored_and_moved_aside_like_any_other(tmp_path: Path) -> None:
    Thing = entity("Thing", "Things", {"number": int, "id": str}, tm.Key[int](partition="{number}"))
    with tm.open(tmp_path / "s.db", models=[Thing]) as store:
        store.insert_many([Thing(1, id="short"), Thing(2, id="x" * 3_000)])
    with tm.open(tmp_path / "s.db", models=[Thing]) as store:
        assert [len(one.id) for one in store.query(Thing).where(Thing.id != "").allow_scan()] == [5, 3_000]
        assert store.check().ok
