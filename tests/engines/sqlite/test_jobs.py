"""What is built beside writers: at each commit it is what the entities up to the cursor make it."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite import jobs as jobs_module
from tablemapper.engines.sqlite import maintained as maintained_module
from tablemapper.engines.sqlite.building import Batch, build_batch
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.jobs import BUILDS, CURSOR
from tablemapper.engines.sqlite.statements import Job, SqliteSchema
from tablemapper.schema.maintenance import Maintenance, maintenance


class Part(tm.Entity, table="Parts"):
    shelf: tm.Field[str]
    number: tm.Field[int]
    name: tm.Field[str | None] = tm.field(default=None)
    size: tm.Field[int | None] = tm.field(default=None)
    price: tm.Field[float] = tm.field(default=0.0)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    badge: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{shelf}", row="{number}")
    known = tm.Index[str, int](partition="{shelf}", row="{size}")
    by_name = tm.Index[str](partition="{name}", include=("size", "price"))
    by_tag = tm.Index[str](partition="{tags}", include=("name", "tags"))
    large = tm.Index[str, int](partition="{shelf}", row="{size}", where=lambda one: one.size > 5, table="Large")
    by_badge = tm.Index[str](partition="{badge}", unique=True, include=("name",))


class Shelf(tm.Aggregate, of=Part, table="Shelves"):
    shelf: tm.Field[str] = tm.group_by(Part.shelf)
    parts: tm.Field[int] = tm.count()
    price: tm.Field[float] = tm.sum(Part.price)
    least: tm.Field[int | None] = tm.min(Part.size)
    most: tm.Field[int | None] = tm.max_ever(Part.size)

    key = tm.Key[str](partition="all", row="{shelf}")
    by_parts = tm.Index[int](partition="{parts}")


class Known(tm.Aggregate, of=Part, table="Known"):
    number: tm.Field[int] = tm.group_by(Part.number)
    parts: tm.Field[int] = tm.count()

    key = tm.Key[int](partition="all", row="{number}")
    by_parts = tm.Index[int](partition="{parts}")


MODELS = [Part, Shelf, Known]
TABLES = [
    "PartsByName", "PartsByTag", "Large", "PartsByBadge", "Shelves", "Shelves_Shelf_values", "ShelvesByParts",
    "KnownByParts",
]  # fmt: skip
BUILT = {"by_name", "by_tag", "large", "by_badge", "Shelf"}


class Beside:
    """A store in which most of what is maintained is being built, and one of the entities up to the cursor."""

    def __init__(self, path: Path) -> None:
        self.store = tm.open(path, models=MODELS, durability="relaxed")
        engine = self.store._engine
        assert isinstance(engine, SqliteEngine)
        self.engine = engine
        self.sqlite = engine._sqlite
        self.jobs: list[Job] = []

    def begin(self) -> None:
        """Register two jobs: over the parts, and over the groups of an aggregate that is there."""
        engine, schema = self.engine, self.engine.schema
        part, known = schema.by_class[Part], schema.by_class[Known]
        kept, of_known = maintenance(schema, part), maintenance(schema, known)
        targets = Maintenance(
            tuple([index for index in kept.indexes if index.model.name in BUILT]),
            tuple([one for one in kept.aggregates if one.model.name in BUILT]),
        )
        self.jobs = [Job("Part 1", part, targets), Job("Known 1", known, Maintenance(of_known.indexes, ()))]
        self.badges = next(index for index in kept.indexes if index.model.unique)

        def register(writer: Any) -> None:
            for table in TABLES:
                writer.execute(f"DELETE FROM {table}")
            for job in self.jobs:
                writer.execute(f"INSERT INTO {BUILDS} VALUES(?, '', '', NULL, NULL, 0, 0, 0)", (job.name,))

        engine.file.write(register)
        self.use(self.jobs, noted=True)

    def use(self, jobs: list[Job], *, noted: bool) -> None:
        by_model = {job.model: (job,) for job in jobs}
        sqlite = self.sqlite
        self.engine._sqlite = SqliteSchema(
            sqlite.schema, sqlite.catalogue, sqlite.generation, jobs=by_model, contested={self.badges: noted}
        )

    def build(self, most: int) -> None:
        for job in list(self.jobs):
            batch: Batch = self.engine.file.write(
                lambda writer, job=job: build_batch(self.engine._sqlite, writer, job, most)
            )
            if batch.last:
                self.jobs.remove(job)
                self.use(self.jobs, noted=True)

    def rows(self, table: str) -> list[Any]:
        return self.engine.file.read(f"SELECT * FROM {table}")

    def compare(self) -> None:
        """Compare what is built with what a store maintains of the entities that the cursor has passed."""
        cursors = {job.name: self.engine.file.get(CURSOR, (job.name,)) for job in self.jobs}
        passed = [one for one in self.store.query(Part).allow_scan() if _passed(cursors, "Part 1", one.key[1:])]
        with tm.open(":memory:", models=MODELS) as other:
            other.insert_many(
                Part(one.shelf, one.number, one.name, one.size, one.price, one.tags) for one in passed
            )  # (without the badges, of which two may be equal)
            file = other._engine.file  # type: ignore[attr-defined]
            for table in ("PartsByName", "PartsByTag", "Large"):
                assert _keys(self.rows(table)) == _keys(file.read(f"SELECT * FROM {table}")), table
            shelves = {one.shelf: (one.parts, one.price, one.least) for one in other.query(Shelf)}
        assert {one.shelf: (one.parts, one.price, one.least) for one in self.store.query(Shelf) if one.parts} == shelves
        assert sorted(row[0::3] for row in self.rows("ShelvesByParts")) == sorted(
            (row[0], row[3]) for row in self._entries(Shelf, self.store.query(Shelf))
        )
        known = [one for one in self.store.query(Known) if _passed(cursors, "Known 1", one.key[1:])]
        assert sorted(self.rows("KnownByParts")) == sorted(self._entries(Known, known))
        self._compare_badges(passed)

    def _entries(self, cls: Any, groups: Any) -> list[Any]:
        schema = self.engine.schema
        (index,) = maintenance(schema, schema.by_class[cls]).indexes
        return index.rows([one._row for one in groups])

    def _compare_badges(self, parts: list[Part]) -> None:
        holders = defaultdict(set)
        for one in parts:
            if one.badge is not None:
                holders[one.badge].add(one.key[1:])
        held: dict[str, set[Any]] = {row[0]: {row[2:4]} for row in self.rows("PartsByBadge")}
        noted = defaultdict(set)
        for _, badge, _, *key in self.rows("tablemapper_violations"):
            noted[badge].add(tuple(key))
        assert all(not (noted[badge] & held.get(badge, set())) for badge in holders)
        assert held.keys() == holders.keys()
        assert {badge: held.get(badge, set()) | noted[badge] for badge in {*held, *noted}} == holders
        names = {one.key[1:]: one.name for one in parts}
        assert all(row[4] == names[row[2:4]] for row in self.rows("PartsByBadge"))


def _passed(cursors: dict[str, Any], job: str, key: tuple[str, str]) -> bool:
    cursor = cursors.get(job, ("\U0010ffff", ""))
    return cursor != (None, None) and key <= cursor


def _keys(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


class Writer:
    """Writes at random."""

    def __init__(self, store: tm.Store, draw: random.Random) -> None:
        self.store, self.draw = store, draw

    def part(self) -> Part:
        draw = self.draw
        return Part(
            draw.choice(["", "a", "b", "é"]),
            draw.choice([-3, 0, 1, 2, 7, 10, 11, 12]),
            draw.choice([None, "", "x", "y"]),
            draw.choice([None, 0, 5, 6, 9]),
            draw.choice([0.0, 0.1, 2.5, -1.0]),
            draw.choice([[], ["t"], ["t", "u", "t"], [""]]),
            draw.choice([None, None, "red", "blue", ""]),
        )

    def some(self) -> list[Part]:
        stored = list(self.store.query(Part).allow_scan())
        return self.draw.sample(stored, min(len(stored), self.draw.choice([1, 2, 5])))

    def change(self, part: Part) -> Part:
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


def run(path: Path, seed: int, steps: int = 40) -> Beside:
    draw = random.Random(seed)
    beside = Beside(path)
    writer = Writer(beside.store, draw)
    parts = {part.key: part for part in (writer.part() for _ in range(25))}
    badges: set[str | None] = {None}
    for part in parts.values():
        part.badge = None if part.badge in badges else part.badge
        badges.add(part.badge)
    beside.store.insert_many(parts.values())
    beside.begin()
    beside.compare()
    for _ in range(steps):
        for _ in range(draw.choice([0, 1, 3])):
            writer.step()
            beside.compare()
        beside.build(draw.randint(1, 3))
        beside.compare()
    while beside.jobs:
        beside.build(2)
    beside.compare()
    return beside


@pytest.mark.parametrize("seed", range(6))
def test_at_each_commit_what_is_built_is_what_the_entities_up_to_the_cursor_make_it(tmp_path: Path, seed: int) -> None:
    run(tmp_path / "s.db", seed).store.close()


def a_writer_that_knows_no_cursor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(jobs_module, "passed_by", lambda pk, rk: lambda row: True)


def a_writer_that_leaves_jobs_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(jobs_module, "passed_by", lambda pk, rk: lambda row: False)


def a_cursor_that_excludes_its_own_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(jobs_module, "passed_by", lambda pk, rk: lambda row: (row[0], row[1]) < (pk, rk))


def a_holder_that_nobody_follows(patch: pytest.MonkeyPatch) -> None:
    from tablemapper.engines.sqlite import contested

    patch.setattr(contested, "_NEXT", contested._NEXT.replace("WHERE", "WHERE 0 AND"))


def noted_rows_that_are_rewritten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(maintained_module, "is_noted", lambda *_: False)


@pytest.mark.parametrize(
    "fault",
    [
        a_writer_that_knows_no_cursor,
        a_writer_that_leaves_jobs_alone,
        a_cursor_that_excludes_its_own_key,
        a_holder_that_nobody_follows,
        noted_rows_that_are_rewritten,
    ],
    ids=lambda fault: fault.__name__,
)
def test_the_comparison_finds(fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, tm.TableMapperError)):
        for seed in range(20):
            run(tmp_path / f"{seed}.db", seed)
