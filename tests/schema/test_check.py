"""The check finds what is wrong, whoever did it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tablemapper as tm
from tablemapper.engines import check
from tablemapper.engines.sqlite.rows.check import _Stored

from ..sql import run_sql

pytestmark = pytest.mark.file


class Item(tm.Entity, table="Items"):
    p: tm.Field[str]
    r: tm.Field[str]
    name: tm.Field[str | None] = tm.field(default=None)
    num: tm.Field[int] = tm.field(default=0)
    text: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, str](partition="{p}", row="{r}")
    by_name = tm.Index[str](partition="{name}", include=("num",))


class Total(tm.Aggregate, of=Item, table="Totals"):
    p: tm.Field[str] = tm.group_by(Item.p)
    items: tm.Field[int] = tm.count()
    most: tm.Field[int | None] = tm.max(Item.num)
    ever: tm.Field[int | None] = tm.max_ever(Item.num)

    key = tm.Key[str](partition="{p}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "x.db", models=[Item, Total]) as store:
        store.insert_many(Item("p", f"r{n}", f"n{n % 3}", n, "x" * 600 if n == 4 else None) for n in range(10))
    return tmp_path / "x.db"


def problems(path: Path, sql: str) -> list[tm.reports.Problem]:
    """Damage a closed file by SQL, and return what a check says of it."""
    run_sql(path, sql)
    with tm.open(path, models=[Item, Total]) as store:
        report = store.check()
    assert not report.ok
    return list(report.problems)


def test_a_clean_store_is_ok(path: Path) -> None:
    with tm.open(path, models=[Item, Total]) as store:
        report = store.check()
    assert report.ok
    assert (report.entities, report.index_rows, report.groups) == (10, 10, 1)


@pytest.mark.parametrize(
    ("sql", "kind", "where"),
    [
        ("DELETE FROM ItemsByName WHERE _rk = 'r3'", "missing", "Item.by_name"),
        ("INSERT INTO ItemsByName VALUES('zz', '', 'p', 'r3', 3)", "dangling", "Item.by_name"),
        ("INSERT INTO ItemsByName VALUES('n0', '', 'p', 'gone', 3)", "dangling", "Item.by_name"),
        ("UPDATE ItemsByName SET num = 99 WHERE _rk = 'r3'", "wrong", "Item.by_name"),
        ("UPDATE ItemsByName SET num = 3.0 WHERE _rk = 'r3'", "wrong", "Item.by_name"),
        ("DELETE FROM Totals", "missing", "Total"),
        ("UPDATE Totals SET items = 11", "wrong", "Total"),
        ("UPDATE Totals SET _state = (SELECT _state FROM Totals) || X'00'", "damaged", "Total"),
        ("UPDATE Totals SET _state = CAST(_state AS TEXT)", "damaged", "Total"),
        ("DELETE FROM Totals_Total_values WHERE value = 3", "missing", "Total values"),
        ("UPDATE Totals_Total_values SET n = 2 WHERE value = 3", "wrong", "Total values"),
        ("UPDATE Items SET num = 77 WHERE RowKey = 'r3'", "wrong", "Item.by_name"),
        ("DELETE FROM Items WHERE RowKey = 'r3'", "dangling", "Item.by_name"),
        ("UPDATE ItemsByName SET num = iif(_rk = 'r3', 6, 3) WHERE _rk IN ('r3', 'r6')", "wrong", "Item.by_name"),
        ("UPDATE Items SET tags = '{' WHERE RowKey = 'r3'", "damaged", "Item"),
        ("UPDATE Items SET num = 'x' WHERE RowKey = 'r3'", "damaged", "Item"),
        ("UPDATE Items SET num = 3.0 WHERE RowKey = 'r3'", "damaged", "Item"),
        ("UPDATE Items SET RowKey = 'a/b' WHERE RowKey = 'r3'", "wrong", "Item"),
        ("UPDATE Items SET Timestamp = Timestamp + 1000000000000 WHERE RowKey = 'r3'", "wrong", "Item"),
        ("DELETE FROM Items_big", "missing", "Items"),
        ("INSERT INTO Items_big(text) VALUES('lost')", "dangling", "Items_big"),
    ],
)
def test_the_check_finds(path: Path, sql: str, kind: str, where: str) -> None:
    found = problems(path, sql)
    assert (kind, where) in [(problem.kind, problem.where) for problem in found], found


def test_index_rows_are_compared_together_and_one_by_one_only_where_they_differ(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    index_row = _Stored.index_row
    monkeypatch.setattr(_Stored, "index_row", lambda self, *key: read.append(key) or index_row(self, *key))
    with tm.open(path, models=[Item, Total]) as store:
        assert store.check().index_rows == 10
        assert not read
    assert [one.kind for one in problems(path, "DELETE FROM ItemsByName WHERE _rk = 'r3'")] == ["missing"]
    assert len(read) == 10


@pytest.mark.parametrize("rows", [1, 3, 10])
def test_a_damaged_entity_hides_none_of_those_it_is_read_with(
    path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_BLOCK", rows)
    run_sql(path, "UPDATE Items SET num = 'x' WHERE RowKey = 'r4'")
    run_sql(path, "UPDATE Items SET num = 70 WHERE RowKey = 'r5'")
    run_sql(path, "UPDATE Items SET Timestamp = -1 WHERE RowKey = 'r6'")
    found = problems(path, "DELETE FROM ItemsByName WHERE _rk = 'r3'")
    assert [(problem.kind, problem.where, problem.key[-1]) for problem in found] == [
        ("damaged", "Item", "r4"), ("wrong", "Item", "r6"), ("missing", "Item.by_name", "r3"),
        ("wrong", "Item.by_name", "r5"), ("dangling", "Item.by_name", "r4"), ("wrong", "Total", ""),
        ("wrong", "Total values", 4), ("wrong", "Total values", 5), ("missing", "Total values", 70),
    ]  # fmt: skip


@pytest.mark.parametrize("sql", ["text = X'00'", "tags = '{'", "text = 5, tags = NULL"])
def test_a_damaged_property_is_no_damage_of_what_does_not_depend_on_it(path: Path, sql: str) -> None:
    found = problems(path, f"UPDATE Items SET {sql} WHERE RowKey = 'r3'")
    assert [(problem.kind, problem.where) for problem in found] == [("damaged", "Item")]


def test_an_ever_that_is_less_extreme_than_the_live_values_is_wrong(path: Path) -> None:
    with tm.open(path, models=[Item, Total]) as store:
        store.delete(Item.key("p", "r9"))
        assert store[Total.key("p")].ever == 9
        assert store.check().ok


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TRIGGER t AFTER UPDATE ON Items BEGIN DELETE FROM Items; END", "CREATE INDEX extra ON Items(num)",
        "CREATE VIEW v AS SELECT * FROM Items",
        "CREATE TRIGGER tablemapper_t AFTER UPDATE ON Items BEGIN DELETE FROM Items; END",
        "CREATE TABLE tablemapper_more(x)", "ALTER TABLE Items ADD COLUMN more", "DROP TABLE ItemsByName",
        "DELETE FROM tablemapper_catalogue WHERE name = 'tables'", "UPDATE tablemapper_catalogue SET form = '[]'",
    ],
)  # fmt: skip
def test_a_schema_that_was_tampered_with_is_refused(path: Path, sql: str) -> None:
    run_sql(path, sql)
    with pytest.raises(tm.CorruptStore):
        tm.open(path, models=[Item, Total])


@pytest.mark.parametrize(
    ("sql", "detail"),
    [
        ("SET form = replace(form, 'ready', 'building') WHERE name = 'states'", "Item.by_name, Total is not built by one job"),
        ("SET form = json_insert(form, '$.Item[#]', form -> '$.Item[0]') WHERE name = 'versions'", "a form of Item is in use twice"),
        ("SET form = json_set(form, '$.Item[0].behind', 'gone') WHERE name = 'versions'", "a version of Item is behind gone, which is unknown"),
        ("SET form = json_set(form, '$.Item[0].unkept', json('true')) WHERE name = 'versions'", "Item: no version is Version("),
        ("""SET name = 'history', form = '[{"id": "gone", "switched": 1, "kept": ["Gone"]}]' WHERE name = 'history'""",
         "the tables gone do not exist"),
    ],
)  # fmt: skip
def test_a_catalogue_that_no_way_leads_to_is_a_problem(path: Path, sql: str, detail: str) -> None:
    run_sql(path, "INSERT INTO tablemapper_catalogue VALUES('history', '[]')")
    (problem,) = problems(path, f"UPDATE tablemapper_catalogue {sql}")
    assert (problem.kind, problem.where) == ("wrong", "catalogue")
    assert problem.detail.startswith(detail)
