"""A repair makes indexes and aggregates what the entities say, beside readers and writers, and leaves entities alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite import engine as engine_module
from tablemapper.engines.sqlite.online import repair as repairing

from ..classes import Other, aggregate, entity
from ..forks import Forked
from ..sql import run_sql
from ..stores import repaired, sound_store, write_again

pytestmark = pytest.mark.file


class Item(tm.Entity, table="Items"):
    p: tm.Field[str]
    r: tm.Field[str]
    name: tm.Field[str | None] = tm.field(default=None)
    num: tm.Field[int] = tm.field(default=0)
    code: tm.Field[str | None] = tm.field(default=None)
    text: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    price: tm.Field[Decimal | None] = tm.field(default=None)
    weight: tm.Field[float] = tm.field(default=1.5)
    span: tm.Field[timedelta] = tm.field(default=timedelta(seconds=1))

    key = tm.Key[str, str](partition="{p}", row="{r}")
    by_name = tm.Index[str](partition="{name}", include=("num",))
    by_code = tm.Index[str](partition="{code}", unique=True)
    by_tag = tm.Index[str](partition="{tags}")


class Total(tm.Aggregate, of=Item, table="Totals"):
    p: tm.Field[str] = tm.group_by(Item.p)
    items: tm.Field[int] = tm.count()
    named: tm.Field[int] = tm.count(Item.name)
    nums: tm.Field[int] = tm.sum(Item.num)
    prices: tm.Field[Decimal | None] = tm.sum(Item.price)
    weights: tm.Field[float] = tm.sum(Item.weight)
    spans: tm.Field[timedelta] = tm.sum(Item.span)
    least: tm.Field[int | None] = tm.min(Item.num)
    most: tm.Field[Decimal | None] = tm.max(Item.price)

    key = tm.Key[str](partition="{p}")
    by_items = tm.Index[int](partition="{items}")


class Ever(tm.Aggregate, of=Item, table="Evers"):
    p: tm.Field[str] = tm.group_by(Item.p)
    items: tm.Field[int] = tm.count()
    least: tm.Field[int | None] = tm.min_ever(Item.num)
    most: tm.Field[int | None] = tm.max_ever(Item.num)

    key = tm.Key[str](partition="{p}")


MODELS = [Item, Total, Ever]


def item(n: int) -> Item:
    text = "x" * 600 if n == 4 else None
    return Item(f"p{n % 2}", f"r{n}", f"n{n % 3}", n, f"c{n}", text, [f"t{n % 2}", "all"], Decimal(n) / 4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "x.db", models=MODELS, durability="relaxed") as store:
        store.insert_many(item(n) for n in range(10))
    return tmp_path / "x.db"


def entities(path: Path) -> list[Any]:
    return run_sql(path, "SELECT * FROM Items ORDER BY 1, 2")


def rows_of(path: Path, table: str) -> list[Any]:
    return run_sql(path, f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4")


def maintained(path: Path) -> list[Any]:
    """Return all that is maintained, but the timestamps of groups."""
    tables = ["ItemsByName", "ItemsByCode", "ItemsByTag", "TotalsByItems", "Totals", "Totals_Total_values", "Evers"]
    rows = [rows_of(path, table) for table in tables]
    rows[4:5] = [[(*row[:2], *row[3:]) for row in rows[4]]]
    rows[6:7] = [[(*row[:2], *row[3:]) for row in rows[6]]]
    return rows


REPAIRABLE = {
    "a row of an index is gone": "DELETE FROM ItemsByName WHERE _rk = 'r3'",
    "all rows of an index are gone": "DELETE FROM ItemsByTag",
    "a row of an index is of another value": "INSERT INTO ItemsByName VALUES('zz', '', 'p1', 'r3', 3)",
    "a row of an index is of no entity": "INSERT INTO ItemsByName VALUES('n0', '', 'p0', 'gone', 3)",
    "a row of an index has no key": "INSERT INTO ItemsByName VALUES(X'00', 7, 'p0', 2.5, 3)",
    "a projection is wrong": "UPDATE ItemsByName SET num = 99 WHERE _rk = 'r3'",
    "a projection has another class": "UPDATE ItemsByName SET num = 3.0 WHERE _rk = 'r3'",
    "a unique row is gone": "DELETE FROM ItemsByCode WHERE _rk = 'r3'",
    "a unique row has another holder": "UPDATE ItemsByCode SET _rk = 'r5' WHERE _rk = 'r3'",
    "a unique row is held by nobody": "UPDATE ItemsByCode SET _pk = NULL, _rk = NULL WHERE _rk = 'r3'",
    "a unique row is of no entity": "INSERT INTO ItemsByCode VALUES('c99', '', 'p1', 'r99')",
    "groups are gone": "DELETE FROM Totals",
    "a group shows something else": "UPDATE Totals SET items = 11",
    "a group shows another class": "UPDATE Totals SET nums = 'x', weights = NULL",
    "a group is of no entity": "INSERT INTO Totals SELECT 'p9', RowKey, Timestamp, items, named, nums, prices, weights, spans, "
    "least, most, _state FROM Totals WHERE PartitionKey = 'p0'",
    "a state is another group's": "UPDATE Totals SET _state = (SELECT _state FROM Totals WHERE PartitionKey = 'p0')",
    "a state cannot be read": "UPDATE Totals SET _state = X'93' WHERE PartitionKey = 'p0'",
    "a state is missing": "UPDATE Totals SET _state = NULL WHERE PartitionKey = 'p0'",
    "a state is no UTF-8": "UPDATE Totals SET _state = _state || X'00'",
    "a state is text": "UPDATE Totals SET _state = CAST(_state AS TEXT)",
    "a live value is gone": "DELETE FROM Totals_Total_values WHERE value = 3",
    "all live values are gone": "DELETE FROM Totals_Total_values",
    "a live value is counted twice": "UPDATE Totals_Total_values SET n = 2 WHERE value = 3",
    "a live value is counted no number of times": "UPDATE Totals_Total_values SET n = 'x' WHERE value = 3",
    "a live value is counted nothing": "UPDATE Totals_Total_values SET n = NULL WHERE value > 2",
    "a live value is counted, and not there": "INSERT INTO Totals_Total_values VALUES('p0', '', 6, 77, 0)",
    "a live value is of no entity": "INSERT INTO Totals_Total_values VALUES('p0', '', 6, 77, 1)",
    "a live value is of no group": "INSERT INTO Totals_Total_values VALUES('p7', '', 6, 77, 1)",
    "an entity was changed": "UPDATE Items SET num = 77, name = 'new', price = '9' WHERE RowKey = 'r3'",
    "an entity was deleted": "DELETE FROM Items WHERE RowKey = 'r3'",
    "all entities were deleted": "DELETE FROM Items",
    "an entity was inserted": "INSERT INTO Items SELECT 'p5', 'r55', Timestamp, name, num, NULL, NULL, tags, price, weight, "
    "span, NULL FROM Items WHERE RowKey = 'r3'",
    "large values are of no entity": "INSERT INTO Items_big(text) VALUES('lost')",
    "an index of groups has a wrong row": "UPDATE TotalsByItems SET PartitionKey = 'b9' WHERE _pk = 'p0'",
    "an index of groups lacks a row": "DELETE FROM TotalsByItems",
    "an ever is less extreme": "UPDATE Evers SET most = 3, _state = X'92059203' || X'05'",
    "a group with an ever is gone": "DELETE FROM Evers",
}


@pytest.mark.parametrize("sql", REPAIRABLE.values(), ids=REPAIRABLE.keys())
def test_what_entities_say_is_repaired(path: Path, sql: str) -> None:
    run_sql(path, sql)
    before = entities(path)
    with sound_store(path, models=MODELS, durability="relaxed") as store:
        found = store.check()
        assert not found.ok
        report = store.repair()
        assert report.ok, report
        assert {(problem.where, problem.key) for problem in report.repaired} >= {
            (problem.where, problem.key) for problem in found.problems
        }
        assert report.entities == found.entities
    assert entities(path) == before
    with sound_store(path, models=MODELS, durability="relaxed") as store:
        write_again(store)
    with (
        tm.open(path, models=MODELS, durability="relaxed") as store,
        sound_store(path.with_name("anew.db"), models=MODELS, durability="relaxed") as anew,
    ):
        anew.insert_many(store.query(Item).allow_scan())
    if "Ever" not in sql:
        mine, others = maintained(path), maintained(path.with_name("anew.db"))
        assert mine[:6] == others[:6]


LEFT = {
    "UPDATE Items SET tags = '{' WHERE RowKey = 'r3'": ("Item", "restore a backup"),
    "UPDATE Items SET num = 'x' WHERE RowKey = 'r3'": ("Item", "restore a backup"),
    "UPDATE Items SET num = 3.0 WHERE RowKey = 'r3'": ("Item", "restore a backup"),
    "UPDATE Items SET name = X'00', tags = 5, num = NULL WHERE RowKey = 'r3'": ("Item", "restore a backup"),
    "UPDATE Items SET RowKey = 'a/b' WHERE RowKey = 'r3'": (
        "Item",
        "delete it: store.delete(tm.KeyOf(Item, 'p1', 'a/b'))",
    ),
    "UPDATE Items SET Timestamp = Timestamp + 1000000000000 WHERE RowKey = 'r3'": ("Item", "write the entity again"),
    "DELETE FROM Items_big": ("Items", "restore a backup"),
    "UPDATE Items SET code = 'c5' WHERE RowKey = 'r3'": ("Item.by_code", "change that one"),
    "UPDATE Items SET name = CAST(x'61eda08062' AS TEXT) WHERE RowKey = 'r3'": ("file", "restore a backup"),
}


@pytest.mark.parametrize(
    "also", [None, "DELETE FROM ItemsByName", "UPDATE Totals SET _state = X'00'", "DELETE FROM Totals"]
)
@pytest.mark.parametrize("sql", LEFT)
def test_what_nothing_says_is_left_with_a_remedy_and_the_rest_is_repaired(
    path: Path, sql: str, also: str | None
) -> None:
    run_sql(path, sql, *([also] if also else []))
    before = entities(path) if "CAST" not in sql else None
    with tm.open(path, models=MODELS, durability="relaxed") as store:
        report = repaired(store)
        assert not report.ok
        where, remedy = LEFT[sql]
        assert [problem.where for problem in report.remaining] == [where], report
        assert remedy in report.remaining[0].detail
        assert [problem.where for problem in store.check().problems] == [where]
        if where == "Item.by_code":
            store.merge(Item.key("p1", "r5"), code="c55")
            assert repaired(store).ok
            assert store.check().ok
    assert before is None or before == entities(path) or "code" in sql


def test_a_clean_store_is_read_once_and_left_as_it_is(path: Path) -> None:
    with tm.open(path, models=MODELS) as store:
        etag = tm.info(store[Total.key("p0")]).etag
        done: list[tm.reports.Progress] = []
        report = store.repair(progress=done.append)
        assert (report.ok, report.repaired, report.remaining, report.entities) == (True, (), (), 10)
        assert report.seconds >= 0
        assert done[-1].done == 10
        assert tm.info(store[Total.key("p0")]).etag == etag
        assert "0 problems repaired, 0 left" in str(report)


def test_an_ever_keeps_what_is_more_extreme_than_the_entities(path: Path) -> None:
    with tm.open(path, models=MODELS) as store:
        store.delete(Item.key("p1", "r9"))
    run_sql(path, "UPDATE Evers SET items = 50")
    with tm.open(path, models=MODELS) as store:
        assert repaired(store).ok
        ever = store[Ever.key("p1")]
        assert (ever.items, ever.least, ever.most) == (4, 1, 9)


def test_the_error_of_a_write_that_meets_damage_names_the_remedy_and_that_helps(path: Path) -> None:
    run_sql(
        path, "DELETE FROM ItemsByName WHERE _rk = 'r3'", "UPDATE Totals SET _state = X'00' WHERE PartitionKey = 'p0'"
    )
    with sound_store(path, models=MODELS) as store:
        for write in (lambda: store.delete(Item.key("p1", "r3")), lambda: store.merge(Item.key("p0", "r4"), num=5)):
            with pytest.raises(tm.CorruptStore, match=r"store\.repair\(\)"):
                write()
        assert repaired(store).ok
        store.delete(Item.key("p1", "r3"))
        store.merge(Item.key("p0", "r4"), num=5)


def test_a_repair_is_no_part_of_a_transaction(path: Path) -> None:
    with tm.open(path, models=MODELS) as store, store.transaction() as tx:
        tx.insert(item(20))
        with pytest.raises(tm.InvalidTransaction, match="repair"):
            repaired(store)


def test_a_store_in_memory_is_repaired() -> None:
    with sound_store(":memory:", models=MODELS) as store:
        store.insert_many(item(n) for n in range(10))
        engine: Any = store._engine
        engine.file.write(lambda w: w.execute("DELETE FROM ItemsByName") and None)
        assert len(repaired(store).repaired) == 10


def test_a_file_that_is_damaged_itself_is_not_written(path: Path) -> None:
    run_sql(path, "DELETE FROM ItemsByName")
    whole = bytearray(path.read_bytes())
    at = whole.rindex(b"p1r9")
    whole[at - 8 : at] = b"\xff" * 8
    with tm.open(path, models=MODELS) as store:
        path.write_bytes(whole)
        if (report := repaired(store)).ok:
            pytest.skip("SQLite did not see it")
        assert report.repaired == ()
        assert any("restore a backup" in problem.detail for problem in report.remaining)


def write_at_random(path: Path, seed: int, lines: Iterable[str], answer: Callable[[str], object]) -> None:
    """Write twenty times for each line, as another process."""
    draw = random.Random(seed)
    with tm.open(path, models=MODELS, durability="relaxed", timeout=30) as store:
        answer("open")
        for _ in lines:
            refused = 0
            for _ in range(20):
                n = draw.randrange(60)
                try:
                    if draw.random() < 0.4:
                        store.upsert(item(n).replace(num=draw.randrange(100)))
                    elif draw.random() < 0.5:
                        store.delete(Item.key(f"p{n % 2}", f"r{n}"))
                    else:
                        key = Item.key(f"p{n % 2}", f"r{n}")
                        store.merge(key, num=draw.randrange(100), tags=[f"t{draw.randrange(3)}"])
                except (tm.EntityNotFound, tm.CorruptStore, tm.UniqueViolation):
                    refused += 1
            answer(str(refused))


HOT = [
    "UPDATE Totals SET _state = (SELECT _state FROM Totals WHERE PartitionKey = 'p0')",
    "DELETE FROM ItemsByTag WHERE _rk > 'r4'",
    "DELETE FROM Totals_Total_values WHERE value > 5",
    "INSERT INTO Items_big(text) VALUES('lost')",
]


@pytest.mark.parametrize("seed", range(2))
def test_another_process_that_writes_meanwhile_changes_nothing(
    path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sql(path, *HOT)
    monkeypatch.setattr(repairing, "_CHUNK", 2)
    other = Forked(lambda lines, answer: write_at_random(path, seed, lines, answer))
    assert other.heard() == "open"
    between(monkeypatch, lambda: other("go"))
    with sound_store(path, models=MODELS, durability="relaxed") as store:
        report = repaired(store)
        assert report.ok, report
        assert len(report.repaired) > 5
        other.stop()


def between(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> None:
    """Call a function before each transaction of a repair, and within each state that it reads."""
    real_plan, real_run = repairing.Repair.plan, repairing.Repair.run

    def plan(self: Any, *args: Any) -> Any:
        write()
        return real_plan(self, *args)

    def run(self: Any, sqlite: Any, fixes: Any) -> None:
        rest = list(fixes)
        while rest:
            write()
            real_run(self, sqlite, rest[: repairing._CHUNK])
            del rest[: repairing._CHUNK]

    monkeypatch.setattr(repairing.Repair, "plan", plan)
    monkeypatch.setattr(repairing.Repair, "run", run)


def test_what_cannot_be_made_right_at_the_moment_is_left_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_sql(path, "DELETE FROM Totals_Total_values WHERE value > 5", "DELETE FROM ItemsByTag WHERE _rk = 'r4'")

    def fail(*_: object) -> None:  # once the live values of the group are written
        raise tm.CorruptStore("a group cannot be what its entities add up to")

    before, entries = rows_of(path, "Totals_Total_values"), rows_of(path, "ItemsByTag")
    monkeypatch.setattr(engine_module, "_PASSES", 1)
    monkeypatch.setattr("tablemapper.engines.sqlite.online.repair._Tables._put_group", fail)
    with tm.open(path, models=MODELS) as store:
        assert not repaired(store).ok
    assert rows_of(path, "Totals_Total_values") == before
    assert len(rows_of(path, "ItemsByTag")) == len(entries) + 2


def test_what_is_wrong_in_most_places_is_built_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_sql(path, "DELETE FROM ItemsByTag", "UPDATE Totals SET items = 99", "DELETE FROM ItemsByName WHERE _rk = 'r3'")
    monkeypatch.setattr(repairing, "_MANY", 1)
    with tm.open(path, models=MODELS) as store:
        found = store.check().problems
        report = repaired(store)
        assert report.ok
        assert set(found) <= set(report.repaired)
        assert store.check().ok
        file = store._engine.file  # type: ignore[attr-defined]
        tables = {name for (name,) in file.read("SELECT name FROM sqlite_schema")}
        assert {"ItemsByTag_2", "Totals_2", "ItemsByName"} <= tables
        assert len(list(store.query(Item.by_tag("all")))) > 5


def scribble(store: tm.Store, rnd: random.Random, times: int) -> Iterator[str]:
    """Write at random; yield what was refused."""
    for _ in range(times):
        n = rnd.randrange(14)
        try:
            if rnd.random() < 0.5:
                store.upsert(item(n).replace(num=rnd.randrange(20)))
            else:
                store.delete(Item.key(f"p{n % 2}", f"r{n}"))
        except (tm.EntityNotFound, tm.CorruptStore, tm.UniqueViolation) as error:
            yield str(error)


@pytest.mark.parametrize("seed", range(16))
def test_random_damage_is_repaired_beside_random_writes(path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rnd = random.Random(seed)
    run_sql(path, *rnd.sample([sql for sql in REPAIRABLE.values() if "INTO Items" not in sql], 3))
    monkeypatch.setattr(repairing, "_CHUNK", rnd.choice([1, 2, 5]))
    with sound_store(path, models=MODELS, durability="relaxed") as store:
        between(monkeypatch, lambda: list(scribble(store, rnd, rnd.randrange(4))))
        first = repaired(store)
        between(monkeypatch, lambda: None)
        assert all("call repair() again" in problem.detail for problem in first.remaining), first
        assert repaired(store).ok


def test_a_thread_that_writes_all_the_time_is_never_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_sql(
        path,
        "UPDATE Totals SET nums = 11",
        "DELETE FROM Totals_Total_values WHERE value = 3",
        "UPDATE Evers SET items = 7",
    )
    monkeypatch.setattr(repairing, "_CHUNK", 1)
    errors: list[Exception] = []
    stop = threading.Event()
    with sound_store(path, models=MODELS, durability="relaxed") as store:

        def write() -> None:
            n = 100
            while not stop.is_set():
                try:
                    store.insert(item(n))
                except Exception as error:
                    errors.append(error)
                n += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            report = repaired(store)
        finally:
            stop.set()
            thread.join()
        assert errors == []
        assert report.ok, report


def test_of_two_repairs_the_one_that_began_last_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_sql(path, "UPDATE Totals SET _state = (SELECT _state FROM Totals WHERE PartitionKey = 'p0')", HOT[3])
    with tm.open(path, models=MODELS) as store, tm.open(path, models=MODELS) as other:
        real = repairing.Repair.run
        reports: list[tm.reports.RepairReport] = []

        def run(self: Any, sqlite: Any, fixes: Any) -> None:
            if not reports:
                monkeypatch.setattr(repairing.Repair, "run", real)
                reports.append(other.repair())
            real(self, sqlite, fixes)

        monkeypatch.setattr(repairing.Repair, "run", run)
        first = repaired(store)
        assert reports[0].ok
        assert len(reports[0].repaired) > 1
        assert first.repaired == ()
        assert first.ok, "what it found next is what the other has left"
        assert store.check().ok
        engine: Any = store._engine
        assert engine.note("repair") is None


def test_what_only_a_newer_version_declares_is_repaired_by_an_older_one(place: Path) -> None:
    def classes(*, new: bool) -> list[Any]:
        members: dict[str, Any] = {"p": str, "r": str, "num": (int, tm.field(default=0))}
        key = tm.Key[str, str](partition="{p}", row="{r}")
        if not new:
            return [entity("Book", "Books", members, key)]
        members["size"] = int, tm.field(default=7)
        book = entity("Book", "Books", members, key, by_size=tm.Index[int](partition="{size}"))
        groups = {"p": (str, tm.group_by(book.p)), "nums": (int | None, tm.max(book.num))}
        return [book, aggregate("Shelf", book, groups, tm.Key[str](partition="{p}"), "Shelves")]

    for new in (False, True):
        models = classes(new=new)
        with tm.open(place, models=models) as store:
            store.insert_many(models[0]("p", f"r{n}{new}", n) for n in range(3))
    run_sql(
        place,
        "DELETE FROM BooksBySize WHERE _rk = 'r1True'",
        "INSERT INTO BooksBySize VALUES('b99', '', 'p', 'r1True')",
    )
    run_sql(place, "UPDATE Shelves SET nums = 99", "UPDATE Books SET size = 'x' WHERE RowKey = 'r2True'")
    with tm.open(place, models=classes(new=False)) as store:
        found = store.check()
        report = repaired(store)
        assert {problem.where for problem in report.repaired} == {"Book.by_size", "Shelf"}, found
        assert [(problem.where, problem.key) for problem in report.remaining] == [("Book", ("p", "r2True"))]
    with tm.open(place, models=classes(new=True)) as store:
        assert [problem.key for problem in store.check().problems] == [("p", "r2True")]


def test_a_catalogue_that_grows_meanwhile_is_followed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_sql(path, *HOT)
    grown: list[bool] = []

    def grow() -> None:
        if len(grown) < 2:
            with tm.open(path, models=[Other] if grown else [*MODELS, Other]):
                grown.append(True)

    between(monkeypatch, grow)
    with sound_store(path, models=MODELS) as store:
        assert repaired(store).ok


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM PiecesByCode",
        "DELETE FROM tablemapper_violations WHERE _rk = 'b'",
        "DELETE FROM Pieces WHERE RowKey = 'a'",
        "UPDATE Pieces SET code = 'other' WHERE RowKey = 'a'",
        "INSERT INTO PiecesByCode VALUES('zz', '', 'p', 'a')",
        "INSERT INTO tablemapper_violations VALUES('Piece.by_code', 'zz', '', 'p', 'a')",
        "INSERT INTO tablemapper_violations VALUES('Piece.by_code', 'c', '', 'p', 'gone')",
        "INSERT INTO tablemapper_violations VALUES('Piece.by_code', 'c', '', 'p', 'a')",
        "INSERT OR IGNORE INTO tablemapper_violations SELECT 'Piece.by_code', * FROM PiecesByCode; DELETE FROM PiecesByCode",
    ],
)
def test_a_unique_index_whose_values_are_held_twice_is_repaired_and_stays_so(place: Path, sql: str) -> None:
    def piece(**indexes: Any) -> Any:
        members = {"p": str, "r": str, "code": (str, tm.field(default="c"))}
        return entity("Piece", "Pieces", members, tm.Key[str, str](partition="{p}", row="{r}"), **indexes)

    old, new = piece(), piece(by_code=tm.Index[str](partition="{code}", unique=True))
    with tm.open(place, models=[old]) as store:
        store.insert_many(old("p", r) for r in "abc")
    with sound_store(place, models=[new], build=False) as store:
        assert not store.build().ok
    run_sql(place, sql)
    with sound_store(place, models=[new], build=False) as store:
        assert not store.check().ok
        report = store.repair()
        assert report.ok, report
        assert store.check().ok
        for r in "abc":
            if store.exists(new.key("p", r)):
                store.merge(new.key("p", r), code=f"c{r}")


@pytest.mark.parametrize(
    "sql",
    ["SELECT 1", "DELETE FROM PartsByCode WHERE _rk = 'r3'", "UPDATE PartTotals SET n = 99", "DELETE FROM PartTotals"],
)
def test_what_is_being_built_is_repaired_up_to_where_it_is(place: Path, sql: str, never_at_once: None) -> None:
    def part(**indexes: Any) -> Any:
        members = {"p": str, "r": str, "code": (int, tm.field(default=0))}
        return entity("Part", "Parts", members, tm.Key[str, str](partition="{p}", row="{r}"), **indexes)

    old, new = part(), part(by_code=tm.Index[int](partition="{code}"))
    members = {"p": (str, tm.group_by(new.p)), "n": (int, tm.count())}
    both = [new, aggregate("PartTotal", new, members, tm.Key[str](partition="{p}"), "PartTotals")]
    with tm.open(place, models=[old]) as store:
        store.insert_many(old("p", f"r{n}", n) for n in range(10))
    with sound_store(place, models=both, build=False) as store:
        store.build(limit=6)
    run_sql(place, sql, "INSERT INTO PartsByCode VALUES('a9', '', 'p', 'r9')")
    with tm.open(place, models=both, build=False) as store:
        assert not store.check().ok
        assert repaired(store).ok
        assert store.check().ok
        assert store.build().ok
        assert store.check().ok
        assert store[both[1].key("p")].n == 10
