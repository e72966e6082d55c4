"""What aggregates measure and group by: under which names, of what is calculated, by each element of a list."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm


class Sale(tm.Entity, table="Sales"):
    shop: tm.Field[str]
    number: tm.Field[int]
    amount: tm.Field[int]

    key = tm.Key[str, int](partition="{shop}", row="{number}")


class ShopTotal(tm.Aggregate, of=Sale, table="ShopTotals"):
    shop: tm.Field[str] = tm.group_by(Sale.shop, name="Shop")
    total: tm.Field[int] = tm.sum(Sale.amount, name="TotalSales")
    mean: tm.Field[float | None] = tm.avg(Sale.amount, name="Mean")
    least: tm.Field[int | None] = tm.min(Sale.amount, name="Least")
    most: tm.Field[int | None] = tm.max_ever(Sale.amount, name="class")
    sales: tm.Field[int] = tm.count(name="Sales")

    key = tm.Key[str](partition="{shop}")
    best = tm.Index[int](partition="all", row="{total:desc}", include=("sales",))


def totals(store: tm.Store) -> list[tuple[Any, ...]]:
    return [(one.shop, one.total, one.sales, one.least, one.most) for one in store.query(ShopTotal.best())]


def test_a_measure_is_stored_as_the_property_that_it_names(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[Sale, ShopTotal]) as store:
        store.insert_many([Sale("Oslo", 1, 3), Sale("Oslo", 2, 4), Sale("Rome", 1, 9)])
        assert totals(store) == [("Rome", 9, 1, 9, 9), ("Oslo", 7, 2, 3, 4)]
        assert store.check().ok
    with closing(sqlite3.connect(tmp_path / "s.db")) as file:
        columns = {row[1] for row in file.execute("PRAGMA table_info(ShopTotals)")}
    assert {"TotalSales", "Mean", "Least", "class", "Sales"} <= columns
    assert not {"total", "mean", "least", "most"} & columns


def test_an_attribute_of_an_aggregate_can_be_renamed_if_its_property_stays(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[Sale, ShopTotal]) as store:
        store.insert(Sale("Oslo", 1, 3))

    class Renamed(tm.Aggregate, of=Sale, table="ShopTotals"):
        place: tm.Field[str] = tm.group_by(Sale.shop, name="Shop")
        sum: tm.Field[int] = tm.sum(Sale.amount, name="TotalSales")
        mean: tm.Field[float | None] = tm.avg(Sale.amount, name="Mean")
        least: tm.Field[int | None] = tm.min(Sale.amount, name="Least")
        most: tm.Field[int | None] = tm.max_ever(Sale.amount, name="class")
        sales: tm.Field[int] = tm.count(name="Sales")

        key = tm.Key[str](partition="{place}")
        best = tm.Index[int](partition="all", row="{sum:desc}", include=("sales",))

    Renamed.__name__ = "ShopTotal"
    with tm.open(tmp_path / "s.db", models=[Sale, Renamed]) as store:
        store.insert(Sale("Oslo", 2, 4))
        assert [(one.place, one.sum) for one in store.query(Renamed.best())] == [("Oslo", 7)]
        assert store.check().ok


def test_named_measures_are_maintained_by_a_program_that_does_not_declare_them(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[Sale, ShopTotal]) as store:
        store.insert(Sale("Oslo", 1, 3))
    with tm.open(tmp_path / "s.db", models=[Sale]) as store:
        store.insert(Sale("Oslo", 2, 4))
        store.delete(Sale.key("Oslo", 1))
    with tm.open(tmp_path / "s.db", models=[Sale, ShopTotal]) as store:
        assert totals(store) == [("Oslo", 4, 1, 4, 4)]
        assert store.check().ok


@pytest.mark.parametrize(
    ("measure", "fault"),
    [
        (lambda: tm.count(name="2nd"), "2nd"),
        (lambda: tm.count(name=3), "the name of a property is text"),  # type: ignore[arg-type]
        (lambda: tm.count(name="shop"), 'the property "shop" is that of shop already'),
    ],
)
def test_a_wrong_name_of_a_measure_is_refused(measure: Any, fault: str) -> None:
    with pytest.raises(tm.InvalidModel, match=fault):

        class Wrong(tm.Aggregate, of=Sale, table="Wrong"):
            shop: tm.Field[str] = tm.group_by(Sale.shop)
            sales: tm.Field[int] = measure()

            key = tm.Key[str](partition="{shop}")
