"""A newer version adds a class to the table of another one: a program of the older version never reads its rows as its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ...sql import run_sql


class Employee(tm.Entity, table="Staff"):
    department: tm.Field[str]
    name: tm.Field[str]
    number: tm.Field[int] = tm.field(default=0)
    notes: tm.Field[str] = tm.field(default="")

    key = tm.Key[str, str](partition="{department}", row=("employee", "{name}"))


class Room(tm.Entity, table="Staff"):
    department: tm.Field[str]
    name: tm.Field[str]
    number: tm.Field[str]

    key = tm.Key[str, str](partition="{department}", row=("room", "{name}"))


class Size(tm.Aggregate, of=Employee, table="Staff"):
    department: tm.Field[str] = tm.group_by(Employee.department)
    employees: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="{department}", row="size")


ANN = Employee("sales", "Ann", 7, "x" * 3_000)

READS: dict[str, Callable[[tm.Store], Any]] = {
    "a scan": lambda store: list(store.query(Employee).allow_scan()),
    "a page": lambda store: list(store.query(Employee).allow_scan().page(10).items),
    "a partition": lambda store: [
        one for one in store.partition(Employee.department == "sales") if type(one) is Employee
    ],
    "one column": lambda store: [
        ANN.replace(number=number) for (number,) in store.query(Employee).allow_scan().select(Employee.number)
    ],
}


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
@pytest.mark.parametrize(
    "added", [Room("sales", "A", "12"), Room("a", "A", "12"), Size("sales", 1)], ids=["beside", "apart", "a group"]
)
def test_the_rows_of_a_new_class_in_its_table_are_none_of_an_older_program(
    tmp_path: Path, read: Callable[[tm.Store], Any], added: Room | Size
) -> None:
    with tm.open(tmp_path / "staff.db", models=[Employee]) as older:
        older.insert(ANN)
        assert read(older) == [ANN]
        with tm.open(tmp_path / "staff.db", models=[Employee, type(added)]) as newer:
            if isinstance(added, Room):
                newer.insert(added)
            assert read(older) == [ANN]
            assert newer[added.key] == added


def test_the_table_has_its_plain_name_again_once_it_is_compacted(path: Path) -> None:
    for models in ([Employee], [Employee, Room]):
        with tm.open(path, models=models) as store:
            store.upsert(ANN)
            store.compact()
    names = [name for (name,) in run_sql(path, "SELECT name FROM sqlite_schema WHERE name LIKE 'Staff%'")]
    assert sorted(names) == ["Staff", "Staff_big"]


class first:
    class Employee(tm.Entity, table="Staff"):
        department: tm.Field[str]
        name: tm.Field[str]

        key = tm.Key[str, str](partition="{department}", row=("employee", "{name}"))


def test_a_class_gets_fields_together_with_a_second_class_in_its_table(tmp_path: Path) -> None:
    with tm.open(tmp_path / "staff.db", models=[first.Employee]) as store:
        store.insert(first.Employee("sales", "Ann"))
    for _ in range(2):
        with tm.open(tmp_path / "staff.db", models=[Employee, Size]) as store:
            assert store[Employee.key("sales", "Ann")].number == 0
            assert store.check().ok
