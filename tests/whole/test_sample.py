"""The code that the project promises its users, as it is written there."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

import tablemapper as tm


class Product(tm.Entity, table="Products"):
    """A thing on sale."""

    category_id: tm.Field[str]
    product_id: tm.Field[str]
    name: tm.Field[str]
    price: tm.Field[Decimal]
    manufacturer: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, str](partition="{category_id}", row="{product_id}")
    by_name = tm.Index[str, str](partition="{name}", row="{product_id}", include=("price",))
    by_maker = tm.Index[str, Decimal](partition="{manufacturer}", row="{price}")  # sparse: no maker, no row
    by_tag = tm.Index[str](partition="{tags}")  # a row for each element


class Reading(tm.Entity, table="SensorReadings"):
    device_id: tm.Field[str]
    taken_at: tm.Field[datetime]
    temperature: tm.Field[float]
    humidity: tm.Field[float]
    location: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, datetime](partition="{device_id}", row="{taken_at}")


class DailyClimate(tm.Aggregate, of=Reading, table="DailyClimate"):
    device_id: tm.Field[str] = tm.group_by(Reading.device_id)
    day: tm.Field[date] = tm.group_by(Reading.taken_at.date())
    readings: tm.Field[int] = tm.count()
    mean: tm.Field[float | None] = tm.avg(Reading.temperature)
    hottest: tm.Field[float | None] = tm.max(Reading.temperature)

    key = tm.Key[str, date](partition="{device_id}", row="{day}")


class Customer(tm.Entity, table="Customers"):
    customer_id: tm.Field[str]
    name: tm.Field[str]

    key = tm.Key[str](partition="{customer_id}", row="profile")


class Order(tm.Entity, table="Customers"):
    customer_id: tm.Field[str]
    number: tm.Field[int]
    total: tm.Field[Decimal]

    key = tm.Key[str, int](partition="{customer_id}", row="order-{number:08d}")


class Employee(tm.Entity, table="Staff"):
    department: tm.Field[str]
    number: tm.Field[int]

    key = tm.Key[str, int](partition="{department}", row="{number}")


NINE = datetime(2023, 10, 27, 9, tzinfo=UTC)
ELEVEN = NINE + timedelta(hours=2)


@pytest.mark.needs("backward")
def test_the_sample_of_the_design_runs_as_written(tmp_path: Path) -> None:
    readings = [Reading("sensor-abc-123", NINE + timedelta(minutes=n), 21.0 + n / 100, 40.0) for n in range(300)]
    nine, eleven = NINE, ELEVEN
    models = [Product, Reading, DailyClimate, Customer, Order, Employee]
    with tm.open(tmp_path / "shop.db", models=models) as store:
        store.insert(Product("books", "b-1", "Dune", Decimal("9.99"), "Ace"))
        book = store[Product.key("books", "b-1")]
        assert store.get(Product.key("books", "b-2")) is None
        book.price = Decimal("7.99")
        store.replace(book)
        store.merge(Product.key("books", "b-1"), name="Dune (1965)")
        store.merge(Product.key("books", "b-1"), Product.name.set("Dune"))
        store.update(Product.key("books", "b-1"), lambda p: p.replace(price=p.price * 2))
        assert store[Product.key("books", "b-1")].price == Decimal("15.98")
        assert store.insert_many(readings, progress=True) == 300

        customer, order, draft = Customer("c1", "Ada"), Order("c1", 2, Decimal(5)), Order("c1", 1, Decimal(4))
        store.insert(customer)
        store.insert(draft)
        with store.transaction() as tx:
            tx.insert(order)
            tx.replace(customer)
            tx.delete(draft)
        assert [type(row).__name__ for row in store.partition(Order.customer_id == "c1")] == ["Order", "Customer"]

        warm = (
            store.query(Reading)
            .where(
                Reading.device_id == "sensor-abc-123",
                Reading.taken_at >= nine,
                Reading.taken_at < eleven,
                Reading.temperature > 21.5,
            )
            .order_by(Reading.taken_at.desc())
            .limit(10)
        )
        expected = [r for r in reversed(readings) if nine <= r.taken_at < eleven and r.temperature > 21.5][:10]
        assert list(warm) == expected
        assert "Reading.key, backwards" in str(warm.explain())
        assert warm.page(100, token=None).items == expected
        rows = list(store.query(Product).where(Product.name == "Dune").select(Product.product_id, Product.price))
        assert rows == [("b-1", Decimal("15.98"))]
        assert list(store.query(Product.by_tag("scifi"))) == []
        with pytest.raises(tm.ScanRefused, match=r"allow_scan\(\)"):
            list(store.query(Reading).where(Reading.temperature > 40))
        climate = store.get(DailyClimate.key("sensor-abc-123", date(2023, 10, 27)))
        assert climate is not None
        assert climate.readings == 300
        assert climate.hottest == max(r.temperature for r in readings)
        store.insert(Employee("Sales", 1))
        assert list(store.partition(Employee.department == "Sales")) == [Employee("Sales", 1)]
        assert store.check().ok
