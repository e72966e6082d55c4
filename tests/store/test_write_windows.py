"""Streams of entities: how they are cut into windows, and loads that are all or nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.engines.sqlite.rows import atomic_load as sorted_load
from tablemapper.engines.sqlite.rows import writes as operations
from tablemapper.schema.model import compile_schema
from tablemapper.verbs import write_windows as bulk

from ..classes import entity


class Part(tm.Entity, table="Parts"):
    shelf: tm.Field[str]
    number: tm.Field[int]
    kind: tm.Field[str]
    weight: tm.Field[float] = tm.field(default=1.0)
    text: tm.Field[str | None] = tm.field(default=None)
    data: tm.Field[bytes] = tm.field(default=b"")

    key = tm.Key[str, int](partition="{shelf}", row="{number}")
    by_kind = tm.Index[str, float](partition="{kind}", row="{weight}", include=("text",))
    by_text = tm.Index[str](partition="{text}", unique=True)


class Load(tm.Aggregate, of=Part, table="Loads"):
    shelf: tm.Field[str] = tm.group_by(Part.shelf)
    parts: tm.Field[int] = tm.count()
    weight: tm.Field[float | None] = tm.sum(Part.weight)
    heaviest: tm.Field[float | None] = tm.max(Part.weight)

    key = tm.Key[str](partition="{shelf}")


class Note(tm.Entity, table="Notes"):
    number: tm.Field[int]
    text: tm.Field[str]

    key = tm.Key[int](partition="all", row="{number}")


class Reserved(tm.Entity, table="Orders"):
    """Names that are words of SQL."""

    select: tm.Field[str]
    order: tm.Field[int]
    true: tm.Field[str]
    group: tm.Field[int | None] = tm.field(default=None)

    key = tm.Key[str](partition="{select}")
    by_true = tm.Index[str](partition="{true}", include=("group",), table="Table")


class Tagged(tm.Entity, table="Tagged"):
    number: tm.Field[int]
    maker: tm.Field[str | None]
    tags: tm.Field[list[str]]

    key = tm.Key[int](partition="all", row="{number}")
    by_tag = tm.Index[str](partition="{tags}")
    by_maker = tm.Index[str](partition="{maker}")


MODELS = [Part, Load, Note, Reserved, Tagged]


def parts(count: int, shelf: str = "s") -> list[Part]:
    order = [n * 7919 % count for n in range(count)]
    return [Part(f"{shelf}{n % 5}", n, f"k{n % 3}", n / 8, None if n % 4 else f"{shelf}{n}") for n in order]


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tm.Store]:
    path = tmp_path / "p.db" if request.param == "file" else ":memory:"
    with tm.open(path, models=MODELS, durability="relaxed") as store:
        yield store
        assert store.check().ok


def all_of(store: tm.Store) -> list[Any]:
    return [*store.query(Part).allow_scan(), *store.query(Load).allow_scan(), *store.query(Part.by_kind("k1"))]


# ---------------------------------------------------------------------------------------------- windows


def cut(entities: Iterator[Any], clock: Any, write: Any = lambda: None) -> list[int]:
    models = {model.cls: model for model in compile_schema(MODELS).models}
    sizes = []
    operations: Any = SimpleNamespace(writable=models.__getitem__, refuse_reserved=lambda model, rows: None)
    for window in bulk.batches(operations, entities, clock=clock):
        assert all(len(batch.entities) == len(batch.rows) > 0 for batch in window)
        sizes.append(sum(len(batch.rows) for batch in window))
        write()
    return sizes


def test_a_slow_source_is_written_about_once_a_second() -> None:
    now = [0.0]

    def slow() -> Iterator[Part]:
        for part in parts(40):
            now[0] += 0.1
            yield part

    sizes = cut(slow(), lambda: now[0])
    assert sum(sizes) == 40
    assert len(sizes) >= 4
    assert all(8 <= size <= 12 for size in sizes[:-1])


def test_a_window_is_as_large_as_what_was_written_in_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_CHUNK", 10)
    monkeypatch.setattr(bulk, "_ENTITIES", 400)
    now = [0.0]

    def write() -> None:
        now[0] += 4.0

    assert cut(iter(parts(700)), lambda: now[0], write)[:3] == [400, 100, 25]


def test_a_window_has_no_more_characters_than_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_CHARACTERS", 10_000)
    notes = (Note(n, "x" * 1_000) for n in range(60))
    assert max(cut(notes, lambda: 0.0)) < 30


def test_an_entity_becomes_a_row_when_it_comes(store: tm.Store) -> None:
    def one_object() -> Iterator[Note]:
        note = Note(0, "")
        for n in range(10):
            note.number, note.text = n, f"text {n}"
            yield note

    assert store.insert_many(one_object()) == 10
    assert [store[Note.key(n)].text for n in (0, 9)] == ["text 0", "text 9"]


@pytest.mark.needs("one_commit")
def test_entities_of_several_classes_are_written_in_one_window(store: tm.Store) -> None:
    mixed = [one for n, part in enumerate(parts(50)) for one in (part, Note(n, "x"))]
    assert store.insert_many(mixed) == 100
    assert store.check().entities == 100
    assert len({tm.info(one).etag for one in mixed}) == 1


def test_what_is_no_entity_of_the_store_is_refused(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity, match="str"):
        store.insert_many([Note(1, "x"), "y"])  # type: ignore[list-item]
    with pytest.raises(tm.InvalidEntity, match="Part"):
        store.insert_many([Load("s")])
    assert not store.exists(Note.key(1))


@pytest.mark.needs("all_or_none_load")
def test_a_key_of_a_more_special_class_is_refused(tmp_path: Path) -> None:
    Line = entity("Line", "Texts", {"name": str}, tm.Key[str](partition="all", row="{name}"))
    Heading = entity("Heading", "Texts", {"text": str}, tm.Key[()](partition="all", row="Heading"))
    with tm.open(tmp_path / "t.db", models=[Line, Heading]) as store:
        for atomic in (False, True):
            with pytest.raises(tm.InvalidEntity, match="belongs to Heading"):
                store.insert_many([Line("a"), Line("Heading")], atomic=atomic)
        assert store.check().entities == 0


@pytest.mark.parametrize("pages", [0, 1_000_000])
def test_a_window_is_written_the_same_in_pieces_and_whole(
    store: tm.Store, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    monkeypatch.setattr(operations, "_PAGES", pages)
    monkeypatch.setattr(operations, "_CHUNK", 7)
    given = parts(100)
    store.insert_many(given)
    assert [store[part.key] for part in given] == given
    given[3].weight = 99.0
    store.replace(given[3])  # each has its own row
    store.delete(given[4])
    assert store.check().entities == 99


# ---------------------------------------------------------------------------------------------- all or nothing


@pytest.mark.needs("all_or_none_load")
def test_an_atomic_load_stores_what_windows_store(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_load, "_CHUNK", 7)
    monkeypatch.setattr(bulk, "_ENTITIES", 30)
    large = Part("s1", 1000, "k1", 5.0, None, bytes(5_000))
    store.insert_many([*parts(100), large])
    expected = all_of(store)
    store.delete_many(store.query(Part).allow_scan())
    assert store.check().entities == 0
    assert store.insert_many([*parts(100), large], atomic=True) == 101
    assert all_of(store) == expected
    assert store[large.key].data == large.data


@pytest.mark.needs("all_or_none_load")
def test_an_atomic_load_comes_to_what_is_there(store: tm.Store) -> None:
    store.insert_many(parts(20, "a"))
    store.insert_many(parts(30, "b"), atomic=True)
    assert store[Load.key("a1")].parts == 4
    assert store[Load.key("b1")].parts == 6


@pytest.mark.needs("all_or_none_load")
@pytest.mark.parametrize("chunk", [1, 2, 3, 1000])
def test_an_atomic_load_of_one_key_twice_names_it_and_stores_nothing(
    store: tm.Store, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(sorted_load, "_CHUNK", chunk)
    with pytest.raises(tm.EntityExists) as caught:
        store.insert_many([Note(3, "a"), Note(2, "b"), Note(1, "c"), Note(2, "d")], atomic=True)
    assert caught.value.key == ("all", Note.key(2).row)
    assert caught.value.written == 0  # type: ignore[attr-defined]
    assert store.check().entities == 0


@pytest.mark.needs("all_or_none_load")
def test_an_atomic_load_over_what_is_there_names_it_and_stores_nothing(store: tm.Store) -> None:
    store.insert(Note(2, "there"))
    with pytest.raises(tm.EntityExists) as caught:
        store.insert_many([Note(n, "x") for n in (3, 2, 1)], atomic=True)
    assert caught.value.key == ("all", Note.key(2).row)
    assert [note.text for note in store.query(Note)] == ["there"]


@pytest.mark.needs("all_or_none_load")
def test_an_atomic_load_that_would_hold_a_unique_value_twice_stores_nothing(
    store: tm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_load, "_CHUNK", 1)
    with pytest.raises(tm.UniqueViolation) as caught:
        store.insert_many([Part("s", n, "k", 1.0, "same" if n in (2, 7) else None) for n in range(9)], atomic=True)
    assert caught.value.index == "by_text"
    assert store.check().entities == 0


@pytest.mark.needs("all_or_none_load")
def test_a_source_that_breaks_an_atomic_load_leaves_nothing(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_ENTITIES", 10)

    def source() -> Iterator[Part]:
        yield from parts(95)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        store.insert_many(source(), atomic=True)
    assert caught.value.__notes__ == ["insert_many: 0 entities were written before this"]
    assert store.check().entities == 0


@pytest.mark.file
def test_an_atomic_load_writes_each_table_in_its_order(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_load, "_CHUNK", 9)
    written: dict[str, list[Any]] = {}
    rows, put = sorted_load.insert_rows, sorted_load.put_rows

    def insert_rows(statements: Any, writer: Any, some: list[Any]) -> Any:
        written.setdefault(statements.model.name, []).extend(some)
        return rows(statements, writer, some)

    def put_rows(lowered: Any, index: Any, writer: Any, some: list[Any]) -> None:
        written.setdefault(index.model.name, []).extend(some)
        put(lowered, index, writer, some)

    monkeypatch.setattr(sorted_load, "insert_rows", insert_rows)
    monkeypatch.setattr(sorted_load, "put_rows", put_rows)
    store.insert_many(parts(60), atomic=True)
    assert {name: len(some) for name, some in written.items()} == {"Part": 60, "by_kind": 60, "by_text": 15}
    assert all([row[:4] for row in some] == sorted(row[:4] for row in some) for some in written.values())


@pytest.mark.file
def test_an_atomic_load_can_be_proved_after_a_failed_commit(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    writers = []
    real = sorted_load.put_rows

    def put_rows(lowered: Any, index: Any, writer: Any, some: list[Any]) -> None:
        writers.append(writer)
        real(lowered, index, writer, some)

    monkeypatch.setattr(sorted_load, "put_rows", put_rows)
    store.insert_many(parts(10), atomic=True)
    sql, args = writers[0].proof
    assert store._engine.file.get(sql, args) == (1,)  # type: ignore[attr-defined]
    store.delete_many(store.query(Part).allow_scan())
    assert store._engine.file.get(sql, args) is None  # type: ignore[attr-defined]


@pytest.mark.file
def test_nobody_sees_a_part_of_an_atomic_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    with tm.open(tmp_path / "p.db", models=MODELS) as store:

        def put(*args: Any) -> None:
            seen.append((store.check().entities, len(list(store.query(Part.by_kind("k1"))))))
            real(*args)

        real = sorted_load.put_rows
        monkeypatch.setattr(sorted_load, "put_rows", put)
        store.insert_many(parts(60), atomic=True)
        assert seen == [(0, 0)] * len(seen) != []
        assert len(list(store.query(Part.by_kind("k1")))) == 20


@pytest.mark.file
def test_an_atomic_load_that_is_interrupted_leaves_nothing(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sorted_load, "put_rows", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.insert_many(parts(60), atomic=True)
    assert store.check().entities == 0
    store.insert_many(parts(60), atomic=True)


@pytest.mark.file
def test_the_source_of_an_atomic_load_may_read_and_write_the_store(store: tm.Store) -> None:
    def source() -> Iterator[Note]:
        for n in range(3):
            store.insert(Note(100 + n, "beside"))
            yield Note(n, str(len(list(store.query(Note)))))

    store.insert_many(source(), atomic=True)
    assert [note.text for note in store.query(Note)] == ["1", "2", "3", "beside", "beside", "beside"]


@pytest.mark.needs("all_or_none_load")
def test_an_atomic_load_of_nothing_is_nothing(store: tm.Store) -> None:
    assert store.insert_many([], atomic=True) == 0


@pytest.mark.needs("all_or_none_load")
def test_entities_of_an_atomic_load_are_to_be_read_before_they_are_changed(store: tm.Store) -> None:
    note = Note(1, "x")
    store.insert_many([note], atomic=True)
    with pytest.raises(tm.PreconditionFailed):
        store.replace(note)
    store.update(Note.key(1), lambda read: read.replace(text="y"))


@pytest.mark.file
def test_an_atomic_load_tells_its_progress(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablemapper.progress.INTERVAL", math.inf)  # (a machine that is busy would be told more often)
    told: list[tm.reports.Progress] = []
    store.insert_many(parts(10), atomic=True, progress=told.append)
    assert [(one.what, one.done, one.total) for one in told] == [("sorting", 10, None), ("insert_many", 10, 10)]


@pytest.mark.file
def test_a_load_beyond_the_cache_says_by_its_progress_that_it_could_be_faster(
    store: tm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "_CACHED", 5)
    labels: list[str] = []
    for entities in (parts(10), (Note(number, "x") for number in range(10)), parts(4, shelf="b")):
        store.insert_many(entities, progress=lambda progress: labels.append(progress.what))
    assert labels == ["insert_many, which is faster with atomic=True from here", "insert_many", "insert_many"]


# ---------------------------------------------------------------------------------------------- statements, sizes


def test_names_that_are_words_of_sql_are_written_and_read(store: tm.Store) -> None:
    entity = Reserved("a", 1, "b", 2)
    store.insert(entity)
    entity.order, entity.true, entity.group = 5, "c", None
    store.replace(entity)
    assert store[Reserved.key("a")] == entity
    assert [one.group for one in store.query(Reserved.by_true("c"))] == [None]
    store.delete(entity)


def test_values_that_were_moved_aside_are_read_by_every_get(store: tm.Store) -> None:
    large, small = Note(1, "x" * 9_000), Note(2, "y")
    store.insert_many([large, small])
    assert store[Note.key(1)].text == large.text
    found = store.get_many([Note.key(1), Note.key(2), Note.key(3)])
    assert [one and one.text for one in found] == [large.text, "y", None]


@given(st.text(max_size=300), st.text(max_size=40), st.binary(max_size=300), st.none() | st.text(max_size=9))
def test_no_entity_is_larger_than_the_bound_of_its_size(text: str, key: str, data: bytes, maybe: str | None) -> None:
    (model,) = compile_schema([Sized]).models
    try:
        row = model.to_row(Sized(key, text, data, maybe, {"a": key}))
    except tm.InvalidEntity:
        return
    assert model.size(row) <= model.most(row)


class Sized(tm.Entity, table="Sized"):
    name: tm.Field[str]
    text: tm.Field[str]
    data: tm.Field[bytes]
    maybe: tm.Field[str | None]
    nested: tm.Field[dict[str, str]]

    key = tm.Key[str](partition="{name}")


def test_what_only_changes_in_a_projection_is_rewritten(store: tm.Store) -> None:
    store.insert(part := Part("s", 1, "k", 1.0, "before"))
    part.text = "after"
    store.replace(part)
    assert list(store.query(Part.by_kind("k")).select(Part.text)) == [("after",)]


def test_two_entities_can_exchange_their_rows_in_an_index(store: tm.Store) -> None:
    has, lacks = Tagged(1, "x", ["a", "b"]), Tagged(2, None, [])
    store.insert_many([has, lacks])
    has.maker, lacks.maker = lacks.maker, has.maker
    has.tags, lacks.tags = lacks.tags, has.tags
    with store.transaction() as tx:
        tx.replace(has)
        tx.replace(lacks)
    assert [one.number for one in store.query(Tagged.by_tag("b"))] == [2]
    assert [one.number for one in store.query(Tagged.by_maker("x"))] == [2]
