"""What is dropped: not maintained any more, cleared in short transactions, and its name may come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.catalogue import dropping
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.online import apply_schema
from tablemapper.engines.sqlite.online.transition_runner import change
from tablemapper.store import builds

from ..classes import Other, entity
from ..stores import repaired
from .test_beside import fill, found, totals, write
from .test_builds import part

pytestmark = pytest.mark.file

BY_NAME = tm.Index[str](partition="{name}")
PLAIN, OLD = part(), part(by_name=BY_NAME)
NAMES = totals(OLD, least=tm.min(OLD.number), by=True)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(apply_schema, "_AT_ONCE", -1)
    monkeypatch.setattr(builds, "REST", 0.0)
    with tm.open(tmp_path / "s.db", models=[OLD, NAMES], durability="relaxed") as store:
        fill(store, OLD)
    with tm.open(tmp_path / "s.db", models=[PLAIN], durability="relaxed"):
        yield tmp_path / "s.db"


def relaxed(path: Path, *models: Any, **options: Any) -> tm.Store:
    return tm.open(path, models=models, durability="relaxed", **options)


def tables(store: tm.Store) -> set[str]:
    return {row[0] for row in store._engine.file.read("SELECT name FROM sqlite_schema WHERE type = 'table'")}  # type: ignore[attr-defined]


def drop(store: tm.Store, label: str, by: str | None = None) -> None:
    """Drop an index, an aggregate or a class, as contracting a migration does."""
    engine = store._engine
    assert isinstance(engine, SqliteEngine)
    engine._write(lambda sqlite, writer: change(writer, dropping.drop, label, by))
    engine.catch_up()


def state(store: tm.Store, label: str) -> str:
    return store.status()[label].state


def test_an_index_is_dropped_cleared_in_batches_and_gone(path: Path) -> None:
    with relaxed(path, PLAIN) as store:
        drop(store, "Part.by_name", "0004_drop")
        assert state(store, "Part.by_name") == "dropping"
        write(store, PLAIN, "b")
        assert len(store._engine.file.read("SELECT * FROM PartsByName_dropped")) == 30  # type: ignore[attr-defined]
        for report in (store.check(), repaired(store)):
            assert report.ok
        batch = store._engine.build(12, None)
        assert batch is not None
        assert (batch.clearing, batch.entities) == (True, 12)
        assert len(store._engine.file.read("SELECT * FROM PartsByName_dropped")) == 18  # type: ignore[attr-defined]
    with relaxed(path, PLAIN) as store:
        assert state(store, "Part.by_name") == "dropping"
        report = store.build(rest=0)
        assert (report.done, report.entities, report.built) == (True, 0, ())
        assert state(store, "Part.by_name") == "dropped"
        assert "PartsByName" not in tables(store)
        assert store.check().ok
        assert store.build().done
    assert tm.status(path)["Part.by_name"].state == "dropped"


def test_an_aggregate_is_dropped_with_its_indexes(path: Path) -> None:
    with relaxed(path, PLAIN) as store:
        drop(store, "Names", "0004_drop")
        write(store, PLAIN, "b")
        store.build(rest=0)
        assert tables(store) & {"Names", "Names_Names_values", "NamesByParts"} == set()
        assert [one.where for one in store.status().objects] == ["Part", "Part.by_name", "Names"]
        assert store.check().ok
        with pytest.raises(tm.InvalidQuery, match="the store has no Names"):
            drop(store, "Names")


def test_a_class_is_dropped_with_all_that_is_maintained_from_it(path: Path) -> None:
    with relaxed(path, Other) as store:
        drop(store, "Part")
        store.build(rest=0)
        assert not any(name.startswith(("Part", "Names")) for name in tables(store))
        assert store.check().ok
    with relaxed(path, part(size=tm.Index[int](partition="{number}"))) as store:
        assert "Parts_2" in tables(store)


def test_a_version_that_declares_what_was_dropped_is_refused(path: Path) -> None:
    with relaxed(path, OLD) as running, relaxed(path, PLAIN) as store, relaxed(path, OLD, NAMES) as both:
        drop(store, "Part.by_name", "0004_drop")
        refused = r"by_name was dropped by 0004_drop; declare it under another name, or delete it here"
        with pytest.raises(tm.SchemaMismatch, match=refused):
            running.insert(OLD("z", 1, "N1"))
        with pytest.raises(tm.SchemaMismatch, match=refused):
            list(running.query(OLD.by_name("N1")))
        with pytest.raises(tm.SchemaMismatch, match=refused):
            both.insert(OLD("z", 1, "N1"))
        with pytest.raises(tm.SchemaMismatch, match=refused):
            relaxed(path, OLD)
        store.insert(PLAIN("z", 1, "N1"))
        drop(store, "Names")
        with pytest.raises(tm.SchemaMismatch, match=r"Names was dropped on \d{4}-"):
            relaxed(path, PLAIN, totals(PLAIN, least=tm.min(PLAIN.number), by=True))


def test_a_dropped_name_comes_back_with_any_definition(path: Path) -> None:
    again = part(by_name=tm.Index[str, int](partition="{name}", row="{number}"))
    same = part(by_name=BY_NAME, by_shelf=tm.Index[str](partition="{shelf}"))
    with relaxed(path, PLAIN) as store:
        drop(store, "Part.by_name", "0004_drop")
        with relaxed(path, again) as newer:
            assert len(found(newer, again, "N1")) == 5
            assert "PartsByName_2" in tables(newer)
            assert state(newer, "Part.by_name") == "ready"
        with pytest.raises(tm.SchemaMismatch, match="was dropped by 0004_drop"):
            relaxed(path, OLD)
        drop(store, "Part.by_name")
        with relaxed(path, same) as newer:
            assert len(found(newer, same, "N1")) == 5
            assert "PartsByName_3" in tables(newer)
            newer.build(rest=0)
            assert tables(newer) & {"PartsByName", "PartsByName_2"} == set()
            assert newer.check().ok
        relaxed(path, OLD).close()  # its index is there again


def test_what_is_being_built_can_be_dropped(path: Path) -> None:
    wider = part(
        by_name=BY_NAME, by_number=tm.Index[int](partition="{number}"), by_shelf=tm.Index[str](partition="{shelf}")
    )
    with relaxed(path, wider, build=False) as store:
        store.build(limit=10)
        drop(store, "Part.by_number")
        with relaxed(path, PLAIN) as plain:
            plain.build(rest=0)
            assert state(plain, "Part.by_shelf") == "ready"
            assert plain.check().ok


def test_large_values_go_with_a_class_that_shares_its_table(tmp_path: Path) -> None:
    Report = entity("Report", "Files", {"id": int, "text": str}, tm.Key[int](partition="reports", row="{id}"))
    Photo = entity("Photo", "Files", {"id": int, "data": bytes}, tm.Key[int](partition="photos", row="{id}"))
    with relaxed(tmp_path / "s.db", Report, Photo) as store:
        store.insert_many(Report(number, "x" * 30_000) for number in range(3))
        store.insert_many(Photo(number, b"x" * 30_000) for number in range(2))
        drop(store, "Report")
    with relaxed(tmp_path / "s.db", Photo) as store:
        assert len(store._engine.file.read("SELECT id FROM Files_2_big")) == 2  # type: ignore[attr-defined]
        assert store[Photo.key(1)].data == b"x" * 30_000
        assert store.check().ok


def test_what_is_disabled_is_not_maintained_and_built_anew(path: Path) -> None:
    with relaxed(path, OLD, NAMES) as store, relaxed(path, PLAIN) as other:
        for label in ("Part.by_name", "Names"):
            store._engine.disable(label)  # type: ignore[attr-defined]
        with pytest.raises(tm.NotReady, match="Part.by_name: it must be built again; call store.build"):
            found(store, OLD, "N1")
        with pytest.raises(tm.NotReady):
            store.get(NAMES.key("N1"))
        for writer, shelf in ((store, "b"), (other, "c")):
            write(writer, OLD if writer is store else PLAIN, shelf)
        assert {one.where: one.state for one in store.status().objects} == {
            "Part": "ready", "Part.by_name": "disabled", "Names": "disabled", "Names.by_parts": "disabled"
        }  # fmt: skip
        assert store.check().problems == ()
        assert repaired(store).repaired == ()
        assert not store.build(limit=8, rest=0).done
        assert state(store, "Part.by_name") == "building"
        write(other, PLAIN, "d")
        assert store.build(rest=0).done
        assert store.build(rest=0).built == ()
        assert len(found(store, OLD, "N1")) == 5 + 3 * 4
        assert store[NAMES.key("N1")].parts == 5 + 3 * 4
        assert [one.name for one in store.query(NAMES.by_parts(17))] == ["N1"]
        assert store.check().problems == ()
        assert {"PartsByName_2", "Names_2"} <= tables(store)
        assert not {"PartsByName", "Names"} & tables(store)
    with relaxed(path, OLD, NAMES) as store:
        assert store.check().ok


def test_a_definition_that_is_superseded_while_it_is_built_stays_undeclared(path: Path) -> None:
    second, third = (part(by_number=tm.Index[int, str](partition="{number}", row=row)) for row in ("{name}", "{shelf}"))
    relaxed(path, second, build=False).close()
    with relaxed(path, third, build=False) as store, relaxed(path, second, build=False) as older:
        store.build(rest=0)
        assert [(one.where, one.declared) for one in store.status().objects if "by_number" in one.where] == [
            ("Part.by_number#1", False), ("Part.by_number", True)
        ]  # fmt: skip
        assert len(list(older.query(second.by_number(3)))) == len(list(store.query(third.by_number(3)))) == 1
        assert store.check().ok


def test_compact_removes_what_was_dropped_and_gives_public_names_back(tmp_path: Path) -> None:
    again = part(by_name=tm.Index[str, int](partition="{name}", row="{number}"))
    second = totals(again, most=tm.max(again.number))
    with relaxed(tmp_path / "s.db", OLD, NAMES) as store:
        fill(store, OLD)
    with relaxed(tmp_path / "s.db", again, second) as store:
        before = tables(store)
        assert {"PartsByName_2", "Names_2", "Names_Names_values_2"} <= before
        with relaxed(tmp_path / "s.db", OLD), pytest.raises(tm.StoreLocked):
            store.compact()
        store.compact()
        assert tables(store) == before, "older versions still use the old ones"
        drop(store, "Part.by_name#1")
        drop(store, "Names#1")
        store.compact()
        assert {"PartsByName", "Names", "Names_Names_values"} <= tables(store)
        assert not any("_2" in name for name in tables(store))
        write(store, again, "b")
        assert len(found(store, again, "N1")) == 9
        assert store[second.key("N1")].parts == 9
        assert store.check().ok
        assert store.build().done
        assert state(store, "Names#1") == "dropped"
    with relaxed(tmp_path / "s.db", again, second) as store:
        assert store.check().ok


@pytest.mark.parametrize("at_once", [False, True])
def test_a_unique_index_goes_when_the_same_one_without_that_promise_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, at_once: bool
) -> None:
    if not at_once:
        monkeypatch.setattr(apply_schema, "_AT_ONCE", -1)
    old_class = part(by_name=tm.Index[str](partition="{name}", unique=True))
    new_class = part(by_name=tm.Index[str](partition="{name}"))
    with relaxed(tmp_path / "s.db", old_class) as old:
        old.insert_many(old_class("a", number, f"N{number}") for number in range(30))
        with relaxed(tmp_path / "s.db", new_class, build=False) as new:
            if not at_once:
                with pytest.raises(tm.UniqueViolation):
                    new.insert(new_class("b", 1, "N1"))
                assert [one.number for one in old.query(old_class.by_name("N3"))] == [3]
            new.build(rest=0)
            new.insert(new_class("b", 1, "N1"))
            old.insert(old_class("b", 2, "N1"))
            assert found(old, old_class, "N1") == found(new, new_class, "N1") == [("a", 1), ("b", 1), ("b", 2)]
            for store in (old, new):
                assert store.check().ok
            assert "PartsByName" not in tables(new)
        with relaxed(tmp_path / "s.db", old_class) as again:
            assert len(found(again, old_class, "N1")) == 3
            assert again.check().ok
        assert [(one.where, one.state) for one in tm.status(tmp_path / "s.db").objects] == [
            ("Part", "ready"), ("Part.by_name", "ready"), ("Part.by_name#1", "dropped")
        ]  # fmt: skip


READS: dict[str, Callable[[tm.Store, Any, Any], object]] = {
    "an index by name": lambda store, cls, names: list(store.query(cls.by_name("N1"))),
    "an index": lambda store, cls, names: list(store.query(cls).where(cls.name == "N1")),
    "an aggregate": lambda store, cls, names: store.get(names.key("N1")),
    "some of an aggregate": lambda store, cls, names: list(store.query(names).where(names.name == "N1")),
    "an index of an aggregate": lambda store, cls, names: list(store.query(names.by_parts(5))),
}


@pytest.mark.parametrize("read", READS)
def test_nobody_reads_what_was_dropped_or_disabled_and_is_not_maintained_any_more(path: Path, read: str) -> None:
    label = "Names" if "aggregate" in read else "Part.by_name"
    with relaxed(path, OLD, NAMES) as running, relaxed(path, OLD, NAMES) as other, relaxed(path, PLAIN) as store:
        assert READS[read](running, OLD, NAMES)
        assert READS[read](other, OLD, NAMES)
        store._engine.disable(label)  # type: ignore[attr-defined]
        store.insert(PLAIN("z", 1, "N1"))
        with pytest.raises((tm.NotReady, tm.ScanRefused), match="it must be built again"):
            READS[read](other, OLD, NAMES)
        drop(store, label, "0004_drop")
        with pytest.raises(tm.SchemaMismatch, match="was dropped by 0004_drop"):
            READS[read](running, OLD, NAMES)


@pytest.mark.parametrize("shared", [False, True])
def test_nobody_reads_a_class_that_was_dropped(tmp_path: Path, *, shared: bool) -> None:
    def numbered(name: str, table: str) -> Any:
        return entity(name, table, {"number": int}, tm.Key[int](partition=name, row="{number}"))

    kept, gone = numbered("Kept", "Things"), numbered("Gone", "Things" if shared else "Others")
    with relaxed(tmp_path / "s.db", kept, gone) as running, relaxed(tmp_path / "s.db", kept) as store:
        running.insert_many([kept(1), gone(1)])
        assert running.get(gone.key(1)) is not None
        drop(store, "Gone", "0004_drop")
        with pytest.raises(tm.SchemaMismatch, match="Gone was dropped by 0004_drop"):
            running.get(gone.key(1))
        assert [running.get(kept.key(1)), store.get(kept.key(1))] == [kept(1), kept(1)]
        assert store.check().ok
