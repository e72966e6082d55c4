"""The examples of the table design guides, with the number of rows that SQLite visits for each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

import tablemapper as tm

from ..stores import sound_store
from ..touched import Touched

pytestmark = pytest.mark.file

START = datetime(2023, 10, 27, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Ticks(tm.Entity, table="Ticks"):
    device: tm.Field[str]
    at: tm.Field[datetime]

    key = tm.Key[str, datetime](partition="{device}", row="{at:%Y-%m-%dT%H:%M:%S.%f0Z}")


class Print(tm.Entity, table="Prints"):
    device: tm.Field[str]
    at: tm.Field[datetime] = tm.field(precision="ms")

    key = tm.Key[str, datetime](partition="{device}", row="{at:%Y-%m-%dT%H:%M:%S.%LZ}")


class Thing(tm.Entity, table="Things"):
    name: tm.Field[str]
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str](partition="thing", row="{name}")
    by_color = tm.Index[str](partition="{more[color]}")


class Line(tm.Entity, table="Lines"):
    shop: tm.Field[str]
    number: tm.Field[int]
    day: tm.Field[date]
    price: tm.Field[Decimal]
    quantity: tm.Field[int]
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{shop}", row="{number}")


class Daily(tm.Aggregate, of=Line, table="DailySales"):
    shop: tm.Field[str] = tm.group_by(Line.shop)
    day: tm.Field[date] = tm.group_by(Line.day)
    total: tm.Field[Decimal] = tm.sum(Line.price * Line.quantity, name="TotalSales")

    key = tm.Key[str, date](partition="{shop}", row="{day}")
    best = tm.Index[date, Decimal](partition="{day}", row="{total:desc}")


class Tagged(tm.Aggregate, of=Line, table="Tagged"):
    tag: tm.Field[str] = tm.group_by(Line.tags.each())
    lines: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="{tag}")


@pytest.fixture(scope="module")
def store(counting: Touched) -> Iterator[tm.Store]:
    with sound_store(":memory:", models=[Ticks, Print, Thing, Line, Daily, Tagged]) as opened:
        for cls in (Ticks, Print):
            opened.insert_many(cls("d", START + n * timedelta(minutes=1)) for n in range(1440))
        opened.insert_many(Thing(f"t{n:03d}", tm.Extra(color=["red", "blue", 7][n % 3], size=n)) for n in range(90))
        opened.insert_many(
            Line(shop, n, date(2023, 10, 1 + n % 30), Decimal("1.10"), n, ["new"] * (n % 2))
            for shop in ("Oslo", "Bergen")
            for n in range(300)
        )
        yield opened


@pytest.mark.parametrize(
    ("cls", "row"), [(Ticks, "2023-10-27T10:00:00.0000000Z"), (Print, "2023-10-27T10:00:00.000Z")], ids=["ticks", "ms"]
)
def test_iso_times_of_seven_and_of_three_digits_are_ranges_and_an_order(
    store: tm.Store, counting: Touched, cls: type[Ticks] | type[Print], row: str
) -> None:
    assert store[cls.key("d", START + 10 * HOUR)].key.row == row
    query = store.query(cls).where(cls.device == "d")
    hours = query.where(cls.at >= START + 9 * HOUR, cls.at < START + 11 * HOUR)
    assert sum(counting(lambda: list(hours)).values()) == 120
    newest = query.order_by(cls.at.desc()).limit(10)
    assert newest.explain().sort == ()
    assert sum(counting(lambda: list(newest)).values()) == 10


def test_a_property_without_a_declaration_is_merged_and_indexed(store: tm.Store, counting: Touched) -> None:
    red = store.query(Thing).where(Thing.more["color"] == "red")
    assert sum(counting(lambda: list(red.select(Thing.name))).values()) == 30
    store.merge(Thing.key("t000"), Thing.more["color"].set("green"), Thing.more["size"].remove())
    assert store[Thing.key("t000")].more == {"color": "green"}
    assert red.count() == 29
    green = store.query(Thing.by_color("green"))
    assert counting(lambda: list(green)) == {"ThingsByColor": 1, "Things": 1}
    store.merge(Thing.key("t000"), Thing.more["color"].set("red"))


def test_the_best_shops_of_a_day_are_read_of_an_index_on_the_aggregate(store: tm.Store, counting: Touched) -> None:
    best = store.query(Daily).where(Daily.day == date(2023, 10, 5)).order_by(Daily.total.desc()).limit(1)
    assert best.explain().sort == ()
    assert counting(lambda: list(best)) == {"DailySalesBest": 1, "DailySales": 1}


def test_a_month_is_the_sum_of_its_days(store: tm.Store, counting: Touched) -> None:
    days = store.query(Daily).where(Daily.shop == "Oslo", Daily.day.between(date(2023, 10, 1), date(2023, 10, 31)))
    assert counting(lambda: days.sum(Daily.total)) == {"DailySales": 30}
    assert days.sum(Daily.total) == sum(Decimal("1.10") * n for n in range(300))


def test_the_lines_of_a_tag_are_counted_in_one_row(store: tm.Store, counting: Touched) -> None:
    assert store[Tagged.key("new")].lines == 300
    groups = store.query(Tagged).where(Tagged.tag == "new")
    assert counting(lambda: list(groups)) == {"Tagged": 1}


# ---------------------------------------------------------------------------------------------- local days, departments


class Sale(tm.Entity, table="Sales"):
    shop: tm.Field[str]
    at: tm.Field[datetime]
    amount: tm.Field[Decimal] = tm.field(default=Decimal("1.50"))

    key = tm.Key[str, datetime](partition="{shop}", row="{at}")


class ByDay(tm.Aggregate, of=Sale, table="SalesByDay"):
    shop: tm.Field[str] = tm.group_by(Sale.shop)
    day: tm.Field[date] = tm.group_by(Sale.at.date("Europe/Oslo"))
    total: tm.Field[Decimal] = tm.sum(Sale.amount, name="TotalSales")

    key = tm.Key[str, date](partition="{shop}", row="{day}")


class ByWeek(tm.Aggregate, of=Sale, table="SalesByWeek"):
    shop: tm.Field[str] = tm.group_by(Sale.shop)
    week: tm.Field[str] = tm.group_by(Sale.at.truncate("%G-W%V", "Europe/Oslo"))
    sales: tm.Field[int] = tm.count()

    key = tm.Key[str, str](partition="{shop}", row="{week}")


class Employee(tm.Entity, table="Company"):
    department: tm.Field[str]
    number: tm.Field[str]

    key = tm.Key[str, str](partition="{department}", row="{number}")


class Department(tm.Entity, table="Company"):
    department: tm.Field[str]
    name: tm.Field[str] = tm.field(name="DepartmentName")
    employees: tm.Field[int] = tm.count(of=Employee, name="EmployeeCount")

    key = tm.Key[str](partition="{department}", row="Department")


@pytest.fixture(scope="module")
def shops(counting: Touched) -> Iterator[tm.Store]:
    with sound_store(":memory:", models=[Sale, ByDay, ByWeek, Employee, Department]) as opened:
        opened.insert_many(Sale("oslo", START + n * timedelta(minutes=5)) for n in range(3 * 288))  # the clocks go back
        opened.insert(Department("sales", "Sales"))
        opened.insert_many(Employee("sales", f"{n:05d}") for n in range(40))
        yield opened


def test_the_day_of_a_shop_is_one_row_and_has_an_hour_more_in_autumn(shops: tm.Store, counting: Touched) -> None:
    sunday = date(2023, 10, 29)
    assert counting(lambda: shops[ByDay.key("oslo", sunday)]) == {"SalesByDay": 1}
    assert shops[ByDay.key("oslo", sunday)].total == Decimal("1.50") * 25 * 12
    sales = shops.query(Sale).where(Sale.shop == "oslo", Sale.at.date("Europe/Oslo") == sunday)
    assert counting(lambda: sales.sum(Sale.amount)) == {"SalesByDay": 1}
    assert counting(lambda: list(sales)) == {"Sales": 25 * 12}


def test_a_week_a_quarter_and_fifteen_minutes_are_ranges(shops: tm.Store, counting: Touched) -> None:
    oslo = shops.query(Sale).where(Sale.shop == "oslo")
    week = Sale.at.truncate("%G-W%V", "Europe/Oslo")
    assert counting(lambda: shops[ByWeek.key("oslo", "2023-W43")]) == {"SalesByWeek": 1}
    assert shops[ByWeek.key("oslo", "2023-W43")].sales == 3 * 288 - 12
    assert counting(lambda: list(oslo.where(week == "2023-W44"))) == {"Sales": 12}
    assert counting(lambda: list(oslo.where(Sale.at.truncate("%Y-Q%q") == "2023-Q3"))) == {}
    assert counting(lambda: list(oslo.where(Sale.at.floor(timedelta(minutes=15)) == START))) == {"Sales": 3}


def test_a_department_counts_its_employees_in_its_own_row(shops: tm.Store, counting: Touched) -> None:
    assert counting(lambda: shops[Department.key("sales")]) == {"Company": 1}
    assert shops[Department.key("sales")].employees == 40
    row = next(one for one in shops.partition(Department.department == "sales") if isinstance(one, Department))
    assert tm.to_dict(row) == {"department": "sales", "DepartmentName": "Sales", "EmployeeCount": 40}
