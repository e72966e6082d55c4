"""What is built beside writers: at each commit it is what the entities up to the cursor make it."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.rows import jobs as jobs_module
from tablemapper.engines.sqlite.rows import maintenance_writer as maintained_module
from tablemapper.engines.sqlite.rows.jobs import CURSOR
from tablemapper.engines.sqlite.sql.statements import Statements

from ...classes import aggregate, entity
from ...sql import run_sql

pytestmark = pytest.mark.usefixtures("never_at_once")


def versions() -> tuple[list[Any], list[Any]]:
    """Return the classes of a program, and of its next version, which declares more."""

    def part(**more: Any) -> Any:
        fields = {
            "shelf": str, "number": int, "name": str | None, "size": int | None, "price": float, "tags": list[str],
        }  # fmt: skip
        defaults = {name: tm.field(default=None) for name in ("name", "size", "badge")}
        defaults |= {"price": tm.field(default=0.0), "tags": tm.field(factory=list)}
        key = tm.Key[str, int](partition="{shelf}", row="{number}")
        known = tm.Index[str, int](partition="{shelf}", row="{size}")
        return entity("Part", "Parts", {**fields, "badge": str | None}, key, **defaults, known=known, **more)

    def numbers(of: Any, **indexes: Any) -> Any:
        members = {"number": (int, tm.group_by(of.number)), "parts": (int, tm.count())}
        return aggregate("Number", of, members, tm.Key[int](partition="all", row="{number}"), "Numbers", **indexes)

    old = part()
    new = part(
        by_name=tm.Index[str](partition="{name}", include=("size", "price")),
        by_tag=tm.Index[str](partition="{tags}", include=("name", "tags")),
        large=tm.Index[str, int](partition="{shelf}", row="{size}", where=lambda one: one.size > 5, table="Large"),
        by_badge=tm.Index[str](partition="{badge}", unique=True, include=("name",)),
    )
    members = {
        "shelf": (str, tm.group_by(new.shelf)),
        "parts": (int, tm.count()),
        "price": (float, tm.sum(new.price)),
        "least": (int | None, tm.min(new.size)),
        "most": (int | None, tm.max_ever(new.size)),
    }
    by_parts = {"by_parts": tm.Index[int](partition="{parts}")}
    shelf = aggregate("Shelf", new, members, tm.Key[str](partition="all", row="{shelf}"), "Shelves", **by_parts)
    return [old, numbers(old)], [new, numbers(new, **by_parts), shelf]


OLD, NEW = versions()
Part, Number, Shelf = NEW


class Beside:
    """A store of the old version, and one of the new version, which builds."""

    def __init__(self, path: Path, parts: list[Any]) -> None:
        self.old = tm.open(path, models=OLD, durability="relaxed")
        self.old.insert_many(parts)
        self.new = tm.open(path, models=NEW, durability="relaxed", build=False)
        engine = self.new._engine
        assert isinstance(engine, SqliteEngine)
        self.engine = engine

    def close(self) -> None:
        self.old.close()
        self.new.close()

    @property
    def jobs(self) -> list[Any]:
        self.engine.catch_up()
        return self.engine._sqlite.all_jobs

    def rows(self, table: str) -> list[Any]:
        return self.engine.file.read(f"SELECT * FROM {table}")

    def compare(self) -> None:
        """Compare what is built with what a store maintains of the entities that the cursor has passed."""
        cursors = {job.model.name: (self.engine.file.get(CURSOR, (job.name,)) or ())[:2] for job in self.jobs}
        every = list(self.new.query(Part).allow_scan())
        passed = [one for one in every if _passed(cursors, "Part", one.key[1:])]
        with tm.open(":memory:", models=NEW) as other:
            other.insert_many(
                Part(one.shelf, one.number, one.name, one.size, one.price, one.tags) for one in passed
            )  # (without the badges, of which two may be equal)
            file = other._engine.file  # type: ignore[attr-defined]
            for table in ("PartsByName", "PartsByTag", "Large", "Shelves_Shelf_values"):
                assert _keys(self.rows(table)) == _keys(file.read(f"SELECT * FROM {table}")), table
            columns = "PartitionKey, RowKey, parts, price, least"
            shelves = _keys(file.read(f"SELECT {columns} FROM Shelves"))
        assert _keys(self.engine.file.read(f"SELECT {columns} FROM Shelves WHERE parts > 0")) == shelves
        assert sorted(self.rows("ShelvesByParts")) == _entries(
            self.engine.file.read("SELECT parts, RowKey FROM Shelves")
        )
        numbers = self.engine.file.read("SELECT parts, RowKey FROM Numbers")
        assert sorted(self.rows("NumbersByParts")) == _entries(
            [row for row in numbers if _passed(cursors, "Number", ("all", row[1]))]
        )
        self._compare_badges(passed)

    def _compare_badges(self, parts: list[Any]) -> None:
        holders = defaultdict(set)
        for one in parts:
            if one.badge is not None:
                holders[one.badge].add(one.key[1:])
        held: dict[str, set[Any]] = {row[0]: {row[2:4]} for row in self.rows("PartsByBadge")}
        noted = defaultdict(set)
        for _, badge, _, *key in self.rows("tablemapper_violations"):
            noted[badge].add(tuple(key))
        assert held.keys() == holders.keys()
        assert all(not (noted[badge] & held[badge]) for badge in holders)
        assert {badge: held[badge] | noted[badge] for badge in held} == holders
        names = {one.key[1:]: one.name for one in parts}
        assert all(row[4] == names[row[2:4]] for row in self.rows("PartsByBadge"))


def _entries(groups: list[Any]) -> list[Any]:
    """Return the rows of an index of groups by their counts: keys of ints have a letter for their digits."""
    return sorted(
        [(f"{chr(96 + len(str(parts)))}{parts}", "", "all", row) for parts, row in groups if parts is not None]
    )


def _passed(cursors: dict[str, Any], owner: str, key: tuple[str, str]) -> bool:
    cursor = cursors.get(owner, ("\U0010ffff", ""))
    return cursor != (None, None) and key <= cursor


def _keys(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


class Writer:
    """Writes at random."""

    def __init__(self, store: tm.Store, cls: Any, draw: random.Random) -> None:
        self.store, self.cls, self.draw = store, cls, draw

    def part(self) -> Any:
        draw = self.draw
        return self.cls(
            draw.choice(["", "a", "b", "é"]), draw.choice([-3, 0, 1, 2, 7, 10, 11, 12]),
            draw.choice([None, "", "x", "y"]), draw.choice([None, 0, 5, 6, 9]), draw.choice([0.0, 0.1, 2.5, -1.0]),
            draw.choice([[], ["t"], ["t", "u", "t"], [""]]), draw.choice([None, None, "red", "blue", ""]),
        )  # fmt: skip

    def some(self) -> list[Any]:
        stored = list(self.store.query(self.cls).allow_scan())
        return self.draw.sample(stored, min(len(stored), self.draw.choice([1, 2, 5])))

    def change(self, part: Any) -> Any:
        other = self.part()
        for name in self.draw.sample(["name", "size", "price", "tags", "badge"], 2):
            setattr(part, name, getattr(other, name))
        return part

    def step(self) -> None:
        verb = self.draw.choice(["insert", "many", "atomic", "change", "delete", "mixed", "swap", "upsert"])
        new = {part.key: part for part in (self.part() for _ in range(self.draw.choice([1, 3, 8])))}
        missing = [part for key, part in new.items() if not self.store.exists(key)]
        if verb == "insert" and missing:
            self.store.insert(missing[0])
        elif verb == "many":
            self.store.insert_many(missing)
        elif verb == "atomic":
            self.store.insert_many(missing, atomic=True)
        elif verb == "upsert":
            self.store.upsert(next(iter(new.values())))
        else:
            with self.store.transaction(across_partitions=True) as tx:
                some = self.some()
                for part in some:
                    if verb == "delete" or (verb == "mixed" and self.draw.random() < 0.4):
                        tx.delete(part)
                    elif verb == "swap":
                        part.badge = self.draw.choice(some).badge
                        tx.replace(part)
                    else:
                        tx.replace(self.change(part))
                if verb == "mixed":
                    for part in missing:
                        tx.insert(part)


def run(path: Path, seed: int, steps: int = 30) -> None:
    draw = random.Random(seed)
    first = {part.key: part for part in (Writer(None, OLD[0], draw).part() for _ in range(25))}
    beside = Beside(path, list(first.values()))
    writers = [Writer(beside.old, OLD[0], draw), Writer(beside.new, Part, draw)]
    beside.compare()
    for _ in range(steps):
        for _ in range(draw.choice([0, 1, 3])):
            with suppress(tm.UniqueViolation):  # once the index is built, a further holder is refused
                draw.choice(writers).step()
            beside.compare()
        beside.engine.build(draw.randint(1, 3), None)
        beside.compare()
    assert beside.new.build(rest=0).done
    assert not beside.jobs
    beside.compare()
    beside.close()


@pytest.mark.parametrize("seed", range(3))
def test_at_each_commit_what_is_built_is_what_the_entities_up_to_the_cursor_make_it(tmp_path: Path, seed: int) -> None:
    run(tmp_path / "s.db", seed)


def a_writer_that_knows_no_cursor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(jobs_module, "passed_by", lambda pk, rk: lambda row: True)


def a_writer_that_leaves_jobs_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(jobs_module, "passed_by", lambda pk, rk: lambda row: False)


def a_cursor_that_excludes_its_own_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(jobs_module, "passed_by", lambda pk, rk: lambda row: (row[0], row[1]) < (pk, rk))


def a_holder_that_nobody_follows(patch: pytest.MonkeyPatch) -> None:
    from tablemapper.engines.sqlite.rows import duplicate_values

    patch.setattr(duplicate_values, "_NEXT", duplicate_values._NEXT.replace("WHERE", "WHERE 0 AND"))


def noted_rows_that_are_rewritten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(maintained_module, "is_noted", lambda *_: False)


def a_scan_that_leaves_a_property_out(patch: pytest.MonkeyPatch) -> None:
    scan = Statements.scan_some
    patch.setattr(
        Statements, "scan_some", lambda self, places, *, after: scan(self, frozenset(sorted(places)[1:]), after=after)
    )


@pytest.mark.parametrize(
    "fault",
    [
        a_writer_that_knows_no_cursor, a_writer_that_leaves_jobs_alone, a_cursor_that_excludes_its_own_key,
        a_holder_that_nobody_follows, noted_rows_that_are_rewritten, a_scan_that_leaves_a_property_out,
    ],
    ids=lambda fault: fault.__name__,
)  # fmt: skip
def test_the_comparison_finds(fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, tm.TableMapperError)):
        for seed in range(20):
            run(tmp_path / f"{seed}.db", seed)


def _damage(path: Path, sql: str) -> None:
    assert run_sql(path, sql, "SELECT changes()") != [(0,)]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE tablemapper_builds SET done = 'x'",
        "UPDATE tablemapper_builds SET done = NULL",
        "UPDATE tablemapper_builds SET total = '1'",
        "UPDATE tablemapper_builds SET targets = '[]'",
        """UPDATE tablemapper_builds SET targets = '["Shelf", "Part.nothing"]'""",
        """UPDATE tablemapper_catalogue SET form = replace(form, '"Shelf":', '"Rack":') WHERE name = 'states'""",
    ],
)
def test_a_build_whose_notes_are_damaged_is_corrupt_store(damage: str, path: Path) -> None:
    with tm.open(path, models=OLD) as store:
        store.insert_many(OLD[0]("a", number) for number in range(3))
    tm.open(path, models=NEW, build=False).close()
    _damage(path, damage)
    with pytest.raises(tm.CorruptStore), tm.open(path, models=NEW, build=False) as store:
        for _ in range(10):  # (one of these builds was without end)
            store.build(limit=1)


def test_a_build_of_an_aggregate_that_is_not_there_is_corrupt_store(path: Path) -> None:
    with tm.open(path, models=OLD) as store:
        store.insert_many(OLD[0]("a", number) for number in range(3))
    tm.open(path, models=NEW, build=False).close()
    _damage(path, "UPDATE tablemapper_catalogue SET form = json_remove(form, '$.Shelf') WHERE name = 'models'")
    with pytest.raises(tm.CorruptStore, match='the build "Part'):
        tm.open(path, models=OLD)


def test_a_measure_that_is_no_field_is_corrupt_store(path: Path) -> None:
    tm.open(path, models=NEW).close()
    _damage(
        path, "UPDATE tablemapper_catalogue SET form = json_remove(form, '$.Shelf.fields.price') WHERE name = 'models'"
    )
    with pytest.raises(tm.CorruptStore, match="the measures price of Shelf"):
        tm.open(path, models=OLD)


def test_a_progress_that_is_no_number_is_corrupt_store_for_who_asks_for_what_is_built(path: Path) -> None:
    tm.open(path, models=OLD).close()
    with tm.open(path, models=NEW, build=False) as store:
        _damage(path, "UPDATE tablemapper_builds SET done = 'x'")
        with pytest.raises(tm.CorruptStore, match="the progress"):
            list(store.query(Shelf).allow_scan())


def test_a_key_that_is_no_text_is_damage_while_something_is_built(path: Path) -> None:
    with tm.open(path, models=OLD) as store:
        store.insert_many(OLD[0]("a", number) for number in range(3))
    with tm.open(path, models=NEW, build=False) as store:
        store.build(limit=1)
        _damage(path, "UPDATE Parts SET PartitionKey = 0 WHERE RowKey = 'a2'")
        assert {(one.kind, one.key) for one in store.check().problems} >= {("damaged", (0, "a2"))}


def test_a_disabled_index_of_a_class_that_is_not_there_is_corrupt_store(path: Path) -> None:
    with tm.open(path, models=NEW) as store:
        store._engine.disable("Part.by_name")
    _damage(
        path,
        """UPDATE tablemapper_catalogue SET form = replace(form, '"Part.by_name":', '"Rack.by_name":') WHERE name = 'states'""",
    )
    with pytest.raises(tm.CorruptStore), tm.open(path, models=NEW, build=False) as store:
        store.build()


def test_a_build_reads_no_property_that_it_does_not_need(path: Path) -> None:
    def note(**body: Any) -> Any:
        key = tm.Key[int](partition="note", row="{number}")
        return entity("Note", "Notes", {"number": int, "name": str, "text": str}, key, **body)

    plain, indexed = note(), note(by_name=tm.Index[str](partition="{name}"))
    with tm.open(path, models=[plain]) as store:
        store.insert(plain(1, "a", "long " * 1_000))
    with tm.open(path, models=[indexed], build=False) as store:
        engine = store._engine
        assert isinstance(engine, SqliteEngine)
        (job,) = engine._sqlite.all_jobs
        scan = engine._sqlite.statements[job.model].scan_some(job.targets.places, after=False)
        ((*_, name, text, _),) = engine.file.read(scan)
        assert (name, text) == ("a", None)
        assert store.build().built == ("Note.by_name",)
        assert store.check().ok
        assert len(store.query(indexed.by_name("a")).one().text) == 5_000
