"""Building what is new, beside what is there: states, questions, values that are held twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.protocol import StepTiming
from tablemapper.engines.sqlite.online import apply_schema
from tablemapper.store import builds

from ..classes import aggregate, entity
from ..stores import sound_store

pytestmark = pytest.mark.file


def part(name: str = "Part", /, **body: Any) -> Any:
    key = tm.Key[str, int](partition="{shelf}", row="{number}")
    return entity(name, f"{name}s", {"shelf": str, "number": int, "name": str}, key, **body)


def names(of: Any, measures: Mapping[str, Any] = {}, **body: Any) -> Any:
    """Return an aggregate by name: the number of parts, and more measures that can be None."""
    members = {"name": (str, tm.group_by(of.name)), "parts": (int, tm.count())}
    members |= {field: (int | None, measure) for field, measure in measures.items()}
    return aggregate("Names", of, members, tm.Key[str](partition="all", row="{name}"), **body)


OLD = part()
NEW = part(by_name=tm.Index[str](partition="{name}"))
NAMES = names(NEW)
UNIQUE = part(by_name=tm.Index[str](partition="{name}", unique=True))


@pytest.fixture(autouse=True)
def never_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_schema, "_AT_ONCE", -1)
    monkeypatch.setattr(builds, "REST", 0.0)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    with tm.open(tmp_path / "s.db", models=[OLD]) as store:
        store.insert_many(OLD("a", number, f"n{number % 7}") for number in range(30))
    yield tmp_path / "s.db"


def test_open_builds_what_is_new_before_it_returns(path: Path) -> None:
    with sound_store(path, models=[NEW, NAMES]) as store:
        assert len(list(store.query(NEW.by_name("n1")))) == 5
        assert store[NAMES.key("n1")].parts == 5


def test_until_an_index_is_built_queries_do_without_it(path: Path) -> None:
    with tm.open(path, models=[NEW, NAMES], build=False) as store:
        with pytest.raises(tm.NotReady, match=r"Part.by_name: it is being built \(0 %\); call store.build") as caught:
            list(store.query(NEW.by_name("n1")))
        assert (caught.value.where, caught.value.done, caught.value.total) == ("Part.by_name", 0, 30)
        for read in (
            lambda: store.get(NAMES.key("n1")),
            lambda: store.get_many([NAMES.key("n1")]),
            lambda: list(store.query(NAMES)),
        ):
            with pytest.raises(tm.NotReady, match="Names: it is being built"):
                read()
        with pytest.raises(tm.ScanRefused, match=r"Part.by_name: it is being built \(0 %\)") as refused:
            list(store.query(NEW).where(NEW.name == "n1"))
        assert "Part.by_name would serve it once it is built: call store.build(), or wait" in str(refused.value)
        assert "tm.Index" not in str(refused.value)
        assert len(list(store.query(NEW).where(NEW.name == "n1").allow_scan())) == 5
        assert store.query(NEW).where(NEW.shelf == "a").count() == 30
        report = store.build(limit=12, rest=0)
        assert (report.done, report.entities, report.built) == (False, 12, ())
        with pytest.raises(tm.NotReady, match=r"it is being built \(40 %\)"):
            list(store.query(NEW.by_name("n1")))
        store.insert(NEW("", 0, "n1"))
        store.insert(NEW("b", 0, "n1"))
        report = store.build(rest=0)
        assert (report.ok, report.built) == (True, ("Names", "Part.by_name"))
        assert report.entities == 30 - 12 + 1, "what came before the cursor was built by its writer"
        assert len(list(store.query(NEW.by_name("n1")))) == 7
        assert len(list(store.query(NEW).where(NEW.name == "n1"))) == 7
        assert store[NAMES.key("n1")].parts == 7
        assert store.check().ok
        assert store.build().entities == 0


def test_a_store_that_waits_sees_what_another_one_built(path: Path) -> None:
    with (
        tm.open(path, models=[NEW, NAMES], build=False) as store,
        tm.open(path, models=[NEW, NAMES], build=False) as other,
    ):
        query = store.query(NEW.by_name("n1"))
        with pytest.raises(tm.NotReady):
            list(query)
        other.build(rest=0)
        store._plans._look_at = 0.0  # a second later
        assert len(list(query)) == 5
        assert store[NAMES.key("n1")].parts == 5


def test_a_version_that_does_not_declare_it_neither_builds_nor_waits(path: Path) -> None:
    tm.open(path, models=[NEW, NAMES], build=False).close()
    with tm.open(path, models=[OLD]) as store:
        store.insert(OLD("b", 1, "n1"))
        assert store._engine.unready == {"Part.by_name": "building", "Names": "building"}
    with sound_store(path, models=[NEW, NAMES]) as store:
        assert len(list(store.query(NEW.by_name("n1")))) == 6


def test_values_that_are_held_twice_are_listed_and_can_be_changed(path: Path) -> None:
    with pytest.raises(tm.UniqueViolation, match=r"7 duplicate values: Part.by_name: 'n0' is held by .*build=False"):
        tm.open(path, models=[UNIQUE])
    with sound_store(path, models=[UNIQUE], build=False) as store:
        report = store.build()
        assert report.done
        assert not report.ok
        assert report.violations[1].value == ("n1", "")
        assert report.violations[1].holders == tuple(("a", key) for key in ("a1", "a8", "b15", "b22", "b29"))
        with pytest.raises(tm.NotReady, match="values are held twice"):
            list(store.query(UNIQUE.by_name("n1")))
        with pytest.raises(tm.UniqueViolation):
            store.insert(UNIQUE("b", 0, "n1"))
        assert store.check().ok
        for one in list(store.query(UNIQUE).where(UNIQUE.shelf == "a"))[7:]:
            one.name = f"m{one.number}"
            store.replace(one)
        assert store.build().ok
        assert [one.number for one in store.query(UNIQUE.by_name("n1"))] == [1]
        assert [one.number for one in store.query(UNIQUE.by_name("m29"))] == [29]


def test_the_first_holder_is_followed_by_the_next(path: Path) -> None:
    with sound_store(path, models=[UNIQUE], build=False) as store:
        store.build()
        for number in (1, 8, 15, 22):
            store.delete(UNIQUE.key("a", number))
        rows = store._engine.file.read("SELECT * FROM PartsByName WHERE PartitionKey = 'n1'")  # type: ignore[attr-defined]
        assert rows == [("n1", "", "a", "b29")]


def test_transactions_take_as_long_as_they_are_to_hold_the_file(path: Path) -> None:
    with tm.open(path, models=[NEW, NAMES], build=False) as store:
        store.insert_many(NEW("z", number, "z") for number in range(3_000))
        now, pauses, sizes = 0.0, [], []
        real = store._engine.build

        def slow(most: int, labels: Any) -> Any:
            batch = real(most, labels)
            if batch is None:
                return None
            sizes.append(batch.entities)
            return attrs.evolve(batch, pace=StepTiming(batch.entities * 1e-4, batch.entities * 1e-4))

        store._engine.build = slow  # type: ignore[method-assign]
        report = builds.build(store._engine, hold=0.03, rest=2.0, monotonic=lambda: now, sleep=pauses.append)
        assert report.ok
        assert sum(sizes) == report.entities == 3_030
        assert sizes[2:-1]
        assert all(250 <= size <= 320 for size in sizes[2:-1])
        assert pauses[3] == pytest.approx(2.0 * 0.03, rel=0.2)


def test_a_build_pauses_for_those_that_write(path: Path) -> None:
    pauses: list[float] = []
    with (
        tm.open(path, models=[NEW, NAMES], build=False) as store,
        tm.open(path, models=[NEW, NAMES], build=False) as other,
    ):
        store.insert_many(NEW("z", number, "z") for number in range(3_000))
        builds.build(store._engine, limit=1_000, hold=0, sleep=pauses.append)
        assert pauses == []
        other.insert(NEW("y", 1, "z"))
        batch = store._engine.build(100, None)
        assert batch is not None
        assert batch.pace.delay >= 1.5 * batch.pace.seconds > 0
        builds.build(store._engine, limit=100, hold=0, sleep=pauses.append)
        assert pauses


@pytest.mark.parametrize(
    ("argument", "given"),
    [("limit", -1), ("limit", 1.5), ("hold", -0.1), ("hold", "1"), ("rest", float("nan")), ("rest", True)],
)
def test_a_pace_that_is_no_number_from_0_on_is_refused(path: Path, argument: str, given: Any) -> None:
    with tm.open(path, models=[NEW], build=False) as store:
        with pytest.raises(tm.InvalidQuery, match=f"build: {argument}="):
            store.build(**{argument: given})
        assert store._engine.unready == {"Part.by_name": "building"}


def test_a_load_that_ends_the_last_violation_makes_the_index_ready(tmp_path: Path) -> None:
    groups = names(OLD, by_parts=tm.Index[int](partition="{parts}", unique=True))
    with tm.open(tmp_path / "s.db", models=[OLD]) as store:
        store.insert_many([OLD("a", 1, "x"), OLD("a", 2, "y")])
    with sound_store(tmp_path / "s.db", models=[OLD, groups], build=False) as store:
        assert len(store.build().violations) == 1
        store.insert_many([OLD("a", 3, "x")], atomic=True)
        assert [one.name for one in store.query(groups.by_parts(2))] == ["x"]


@pytest.mark.parametrize("value", ["NULL", "5", "x'00ff'"])
def test_a_build_goes_on_past_a_damaged_value_that_entities_are_grouped_by(path: Path, value: str) -> None:
    with tm.open(path, models=[OLD]) as store:
        engine: Any = store._engine
        engine.file.write(lambda writer: writer.execute(f"UPDATE Parts SET name = {value} WHERE RowKey LIKE '%3'"))
    with tm.open(path, models=[OLD, names(OLD)]) as store:
        assert {problem.kind for problem in store.check().problems} == {"damaged"}


@pytest.mark.parametrize("ever", [False, True])
def test_a_build_that_wrote_groups_ahead_of_its_cursor_begins_anew(path: Path, tmp_path: Path, *, ever: bool) -> None:
    """Of an earlier version a job can have a second row: up to that key, groups have what all entities contribute."""
    measures = {"most": tm.max_ever(OLD.number)} if ever else {}
    Groups = names(OLD, measures, by_parts=tm.Index[int](partition="{parts}"))
    with tm.open(path, models=[OLD, Groups], build=False) as store:
        report = store.build(limit=12, hold=0, rest=0)
        assert (report.done, report.entities) == (False, 12)
        engine: Any = store._engine
        ((job,),) = engine.file.read("SELECT name FROM tablemapper_builds")
        store.backup(tmp_path / "whole.db")
    with tm.open(tmp_path / "whole.db", models=[OLD, Groups]) as store:
        engine = store._engine
        ahead = {
            table: engine.file.read(f"SELECT * FROM {table} WHERE {key} <= 'n3' ORDER BY {key}")
            for table, key in (("Names", "RowKey"), ("NamesByParts", "_rk"))
        }
    with tm.open(path, models=[OLD, Groups], build=False) as store:
        engine = store._engine

        def write_ahead(writer: Any) -> None:
            writer.execute("DELETE FROM NamesByParts WHERE _rk <= 'n3'")
            for table, rows in ahead.items():
                writer.executemany(f"INSERT OR REPLACE INTO {table} VALUES({', '.join('?' * len(rows[0]))})", rows)
            frontier = (f"{job} groups", *ahead["Names"][-1][:2])
            writer.execute("INSERT INTO tablemapper_builds(name, pk, rk, done, total) VALUES(?, ?, ?, 0, 0)", frontier)

        engine.file.write(write_ahead)
    with sound_store(path, models=[OLD, Groups], build=False) as store:
        store.insert(OLD("b", 1, "n1"))
        assert store.build().ok
        assert store[Groups.key("n1")].parts == 6
        assert len(list(store.query(Groups.by_parts(6)))) == 1
        engine = store._engine
        assert engine.file.read("SELECT * FROM tablemapper_builds") == []


def test_a_job_in_batches_takes_as_long_as_wanted_and_pauses_after_what_delays_others() -> None:
    paces = iter([StepTiming(0.02, 0.03), StepTiming(0.01), StepTiming(0.005, 0.01), None])
    sizes, pauses = list[int](), list[float]()

    def step(most: int) -> StepTiming | None:
        sizes.append(most)
        return next(paces)

    builds.in_batches(step, hold=0.01, rest=2.0, sleep=pauses.append)
    assert sizes == [200, 100, 100, 200]
    assert pauses == [0.06, 0.02]
