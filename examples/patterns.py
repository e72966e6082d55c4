"""Patterns of data that is modelled by partition key and row key, each in one declaration."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import tablemapper as tm


# --8<-- [start:index-entity]
class Product(tm.Entity, table="Products"):
    """Found by category and number, and by name."""

    category: tm.Field[str]
    number: tm.Field[str]
    name: tm.Field[str]
    price: tm.Field[float]

    key = tm.Key[str, str](partition="{category}", row="{number}")
    by_name = tm.Index[str](partition="{name}")


def find_by_another_field(store: tm.Store) -> None:
    """Keep an index table, and never see it stale."""
    store.insert(Product("tools", "t-1", "hammer", 12.5))
    store.insert(Product("tools", "t-2", "saw", 18.0))
    store.merge(Product.key("tools", "t-1"), Product.name.set("claw hammer"))
    assert not store.query(Product.by_name("hammer")).exists()
    found = store.query(Product.by_name("claw hammer")).one()
    print(f"by name: {found.name} is {found.category}/{found.number}")


# --8<-- [end:index-entity]


# --8<-- [start:write-by-query]
def change_many(store: tm.Store) -> None:
    """Write what a query finds; with a name, a call goes on where a killed one stopped."""
    tools = store.query(Product).where(Product.category == "tools")
    raised = tools.update(Product.price.set(Product.price * 1.1), resume="raise prices")
    dear = tools.where(Product.price > 15).delete()
    print(f"by query: {raised} prices raised, {dear} product taken off")
    assert (raised, dear) == (2, 1)


# --8<-- [end:write-by-query]


# --8<-- [start:several-types]
class Employee(tm.Entity, table="Staff"):
    """One of many in a department's partition."""

    department: tm.Field[str]
    number: tm.Field[int]
    name: tm.Field[str]

    key = tm.Key[str, int](partition="{department}", row=("employee", "{number:06d}"))


class Department(tm.Entity, table="Staff"):
    """In the same partition as its employees, whom the store counts."""

    department: tm.Field[str]
    floor: tm.Field[int]
    employees: tm.Field[int] = tm.count(of=Employee)

    key = tm.Key[str](partition="{department}", row="department")


def several_types_in_a_partition(store: tm.Store) -> None:
    """Read a department and its employees together, in row order, each in its own class."""
    store.insert(Department("Sales", floor=3))
    store.insert_many(
        Employee("Sales", number, name)
        for number, name in enumerate(["Ada", "Bo", "Cy"], 1)
    )
    for row in store.partition(Employee.department == "Sales"):
        match row:
            case Department(floor=floor, employees=count):
                print(f"several types: Sales, on floor {floor}, has {count} employees")
                assert (floor, count) == (3, 3)
            case Employee(name=name):
                print(f"               {name}")


# --8<-- [end:several-types]


# --8<-- [start:compound-key]
class Profile(tm.Entity, table="Users"):
    """The one row of a user that is always there."""

    user: tm.Field[str]
    mail: tm.Field[str]

    key = tm.Key[str](partition="{user}", row="profile")
    by_mail = tm.Index[str](partition="{mail:fold}", unique=True)


class Order(tm.Entity, table="Users"):
    """The orders of the same user, beside the profile."""

    user: tm.Field[str]
    number: tm.Field[int]
    total: tm.Field[float]

    key = tm.Key[str, int](partition="{user}", row="order-{number:08d}")


def profile_and_orders(store: tm.Store) -> None:
    """Write a user's rows together: they share a partition, so they share a transaction."""
    with store.transaction() as tx:
        tx.insert(Profile("ada", "Ada@example.com"))
        tx.insert(Order("ada", 1, 20.0))
        tx.insert(Order("ada", 2, 22.0))
    try:
        store.insert(Profile("eve", "ada@EXAMPLE.com"))
    except tm.UniqueViolation as error:
        print(f"unique: {error.index} is held by {error.holder}")
    orders = store.query(Order).where(Order.user == "ada", Order.number >= 2)
    assert [order.number for order in orders] == [2]


# --8<-- [end:compound-key]


# --8<-- [start:data-series]
class Reading(tm.Entity, table="Readings"):
    """A partition for each device and day, so that none grows for ever."""

    device: tm.Field[str]
    at: tm.Field[datetime]
    value: tm.Field[float]

    key = tm.Key[str, datetime](partition=("{device}", "{at:%Y-%m-%d}"), row="{at}")


def readings_by_device_and_day(store: tm.Store) -> None:
    """Ask for a span of time, and have just its days read, one after the other."""
    start = datetime(2026, 3, 1, tzinfo=UTC)
    store.insert_many(Reading("d1", start + timedelta(hours=n), n / 2) for n in range(120))
    span = store.query(Reading).where(
        Reading.device == "d1",
        Reading.at >= start + timedelta(hours=20),
        Reading.at < start + timedelta(hours=30),
    )
    assert [r.at.hour for r in span] == [20, 21, 22, 23, 0, 1, 2, 3, 4, 5]
    print("by device and day:\n  " + str(span.explain()).replace("\n", "\n  "))


# --8<-- [end:data-series]


# --8<-- [start:log-tail]
class LogLine(tm.Entity, table="Log"):
    """Kept so that the newest comes first."""

    service: tm.Field[str]
    at: tm.Field[datetime]
    text: tm.Field[str]

    key = tm.Key[str, datetime](partition="{service}", row="{at:desc}")


def newest_first(store: tm.Store) -> None:
    """Read the tail of a log without knowing how long it is."""
    start = datetime(2026, 3, 1, tzinfo=UTC)
    store.insert_many(
        LogLine("web", start + timedelta(seconds=n), f"line {n}") for n in range(1000)
    )
    tail = store.query(LogLine).where(LogLine.service == "web").limit(3)
    assert [line.text for line in tail] == ["line 999", "line 998", "line 997"]
    print("newest first:", ", ".join(line.text for line in tail))


# --8<-- [end:log-tail]


# --8<-- [start:shards]
class Event(tm.Entity, table="Events"):
    """A user with so much data that one partition would be hot: spread over eight."""

    user: tm.Field[str]
    number: tm.Field[int]

    key = tm.Key[str, int](partition=("{user}", "{number:shard(8)}"), row="{number}")


def sharded(store: tm.Store) -> None:
    """Write to eight partitions, and read them side by side, merged in order."""
    store.insert_many(Event("busy", number) for number in range(500))
    events = (
        store.query(Event)
        .where(Event.user == "busy", Event.number >= 490)
        .order_by(Event.number)
    )
    assert [event.number for event in events] == list(range(490, 500))
    print(f"sharded: {len(events.explain().ranges)} partitions, one order")


# --8<-- [end:shards]


# --8<-- [start:totals]
class Sale(tm.Entity, table="Sales"):
    """What is sold."""

    shop: tm.Field[str]
    at: tm.Field[datetime]
    amount: tm.Field[float]

    key = tm.Key[str, datetime](partition="{shop}", row="{at}")


class DailySales(tm.Aggregate, of=Sale, table="DailySales"):
    """What was sold in a day."""

    shop: tm.Field[str] = tm.group_by(Sale.shop)
    day: tm.Field[date] = tm.group_by(Sale.at.date())
    sales: tm.Field[int] = tm.count()
    total: tm.Field[float] = tm.sum(Sale.amount)
    average: tm.Field[float | None] = tm.avg(Sale.amount)
    largest: tm.Field[float | None] = tm.max(Sale.amount)

    key = tm.Key[str, date](partition="{shop}", row="{day}")


def daily_sales(store: tm.Store) -> None:
    """Read a total, never compute one; it follows every change."""
    start = datetime(2026, 3, 1, tzinfo=UTC)
    store.insert_many(
        Sale("Oslo", start + timedelta(minutes=n), 0.1 * n) for n in range(100)
    )
    store.delete(Sale.key("Oslo", start + timedelta(minutes=99)))
    day = store[DailySales.key("Oslo", date(2026, 3, 1))]
    assert (day.sales, day.largest) == (99, 0.1 * 98)
    print(
        f"daily sales: {day.sales} sales, {day.total:.2f} in all, "
        f"{day.average:.2f} on average"
    )


# --8<-- [end:totals]


def main() -> None:
    """Walk them all over one store."""
    models: list[type[tm.Record]] = [
        Product,
        Employee,
        Department,
        Profile,
        Order,
        Reading,
        LogLine,
        Event,
        Sale,
        DailySales,
    ]
    with tm.open(":memory:", models=models) as store:
        find_by_another_field(store)
        change_many(store)
        several_types_in_a_partition(store)
        profile_and_orders(store)
        readings_by_device_and_day(store)
        newest_first(store)
        sharded(store)
        daily_sales(store)
        print(f"check: {store.check()}")


if __name__ == "__main__":
    main()
