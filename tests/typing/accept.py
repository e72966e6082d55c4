"""Right programs: nothing here is executed; both checkers must agree with every `assert_type`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, assert_type
from uuid import UUID

import attrs
import msgspec
from hypothesis.strategies import SearchStrategy, just

import tablemapper as tm
from tablemapper.testing import Clock, account_store, entities, keys

UserId = NewType("UserId", str)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Address:
    street: str
    city: str


class Named(tm.Entity):
    """An abstract class lends its fields."""

    name: tm.Field[str]

    def shout(self) -> str:
        return self.name.upper()


class Product(tm.Entity, table="Products"):
    category_id: tm.Field[str]
    product_id: tm.Field[str]
    name: tm.Field[str]
    price: tm.Field[Decimal]
    manufacturer: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, str](partition="{category_id}", row="{product_id}")
    by_name = tm.Index[str, str](partition="{name}", row="{product_id}", include=("price",))
    by_maker = tm.Index[str, Decimal](partition="{manufacturer}", row="{price}")
    by_tag = tm.Index[str](partition="{tags}", where=lambda p: p.price > Decimal(1))


class Bounded(tm.Entity, table="Bounded"):
    name: tm.Field[Annotated[str, msgspec.Meta(max_length=10)]]
    balance: tm.Field[Annotated[int, msgspec.Meta(ge=0)]] = tm.field(default=0)
    limit: tm.Field[Annotated[Decimal, msgspec.Meta(le=1000)] | None] = tm.field(default=None)

    key = tm.Key[str](partition="{name}")


def bounded(account: Bounded) -> None:
    assert_type(account.balance, int)
    assert_type(account.limit, Decimal | None)
    assert_type(Bounded.name.startswith("a"), tm.Predicate[Bounded])
    account.balance += 1
    Bounded("ann", 3, Decimal(7))


class Ending(tm.Entity, table="Endings"):
    name: tm.Field[str]
    until: tm.Field[datetime | None] = tm.field(default=None, expires=True)

    key = tm.Key[str](partition="{name}")


class Lease(tm.Entity, table="Leases"):
    name: tm.Field[str]
    until: tm.Field[datetime] = tm.field(factory=datetime.now, expires=True)
    text: tm.Field[str] = tm.field(default="", large=True)
    photo: tm.Field[bytes | None] = tm.field(default=None, large=True)

    key = tm.Key[str](partition="{name}")


class Sliding(tm.Entity, table="Slidings"):
    name: tm.Field[str]
    until: tm.Field[datetime] = tm.field(on_write=datetime.now, expires=True)

    key = tm.Key[str](partition="{name}")


def ending(store: tm.Store, end: datetime) -> None:
    assert_type(Sliding("a").until, datetime)
    store.insert(Ending("a"))
    store.insert(Ending("a", until=end))
    store.insert(Lease("a"))
    assert_type(Lease("a").until, datetime)
    assert_type(store.expire(Ending), int)


class Reading(tm.Entity, table="SensorReadings"):
    device_id: tm.Field[str]
    taken_at: tm.Field[datetime]
    temperature: tm.Field[float]
    humidity: tm.Field[float]
    location: tm.Field[str | None] = tm.field(default=None)
    count: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str, datetime](partition="{device_id}", row="{taken_at}")


def is_dear(p: type[Dear]) -> tm.Predicate[Dear]:
    return p.price > Decimal(10)


class Dear(tm.Entity, table="Dear"):
    price: tm.Field[Decimal]
    key = tm.Key[Decimal](partition="{price}")
    by_price = tm.Index[Decimal](partition="{price}", where=is_dear)


class DailyClimate(tm.Aggregate, of=Reading, table="DailyClimate", where=lambda r: r.temperature > -100.0):
    device_id: tm.Field[str] = tm.group_by(Reading.device_id)
    day: tm.Field[date] = tm.group_by(Reading.taken_at.date(), name="Day")
    readings: tm.Field[int] = tm.count()
    located: tm.Field[int] = tm.count(Reading.location)
    total: tm.Field[float] = tm.sum(Reading.temperature)
    hot: tm.Field[int] = tm.count(where=Reading.temperature > 30, name="Hot")
    mean: tm.Field[float | None] = tm.avg(Reading.temperature)
    hottest: tm.Field[float | None] = tm.max(Reading.temperature)
    coldest: tm.Field[float | None] = tm.min(Reading.temperature)
    record: tm.Field[float | None] = tm.max_ever(Reading.temperature)
    frost: tm.Field[float | None] = tm.min_ever(Reading.temperature)
    mean_count: tm.Field[float | None] = tm.avg(Reading.count)
    counted: tm.Field[int] = tm.sum(Reading.count * 2)
    weighted: tm.Field[float | None] = tm.avg(Reading.temperature * Reading.count)
    warmest: tm.Field[float | None] = tm.max(Reading.temperature + Reading.count, name="Warmest")

    key = tm.Key[str, date](partition="{device_id}", row="{day}")


class Makers(tm.Aggregate, of=Product, table="Makers"):
    manufacturer: tm.Field[str] = tm.group_by(Product.manufacturer)  # an entity without one is in no group
    tag: tm.Field[str] = tm.group_by(Product.tags.each())
    products: tm.Field[int] = tm.count()

    key = tm.Key[str, str](partition="{manufacturer}", row="{tag}")


class Limited(tm.Entity, table="Limited"):
    name: tm.Field[str] = tm.field(validator=attrs.validators.max_len(100))
    size: tm.Field[int] = tm.field(default=1, validator=[attrs.validators.ge(0), lambda entity, attribute, value: None])
    tags: tm.Field[list[str]] = tm.field(factory=list, validator=attrs.validators.min_len(1))

    key = tm.Key[str](partition="{name}")

    def __attrs_post_init__(self) -> None:
        self.size += 1


class User(Named, table="Users"):
    user_id: tm.Field[UserId]
    age: tm.Field[tm.Int32]
    born: tm.Field[date]
    joined: tm.Field[datetime]
    wakes: tm.Field[time]
    sleeps: tm.Field[timedelta]
    token: tm.Field[UUID]
    photo: tm.Field[bytes]
    active: tm.Field[bool]
    color: tm.Field[Color]
    plan: tm.Field[Literal["free", "paid"]]
    home: tm.Field[Address]
    rating: tm.Field[float]
    friends: tm.Field[dict[str, int]] = tm.field(factory=dict[str, int])
    place: tm.Field[tm.GeoPoint | None] = tm.field(default=None, kw_only=True)
    balance: tm.Field[Decimal] = tm.field(default=Decimal(0), kw_only=True, name="Balance")
    extra: tm.Field[tm.Extra] = tm.field(factory=tm.Extra, kw_only=True)

    key = tm.Key[UserId](partition="{user_id}")
    by_city = tm.Index[str](partition="{home.city}")
    one = tm.Index[str](partition="{name}", unique=True)
    two = tm.Index[str, date](partition="{name}", row="{born}")
    three = tm.Index[str, date, UUID](partition="{name}", row=("{born}", "{token}"))
    four = tm.Index[str, date, UUID, bool](partition="{name}", row=("{born}", "{token}", "{active}"))
    five = tm.Index[str, date, UUID, bool, float](partition="{name}", row=("{born}", "{token}", "{active}", "{rating}"))
    six = tm.Index[str, date, UUID, bool, float, Decimal](
        partition="{name}", row=("{born}", "{token}", "{active}", "{rating}", "{balance}"), include="all"
    )


class Employee(tm.Entity, table="Staff"):
    department: tm.Field[str]
    number: tm.Field[int]
    city: tm.Field[str]

    key = tm.Key[str, int](partition="{department}", row=("employee", "{number}"))
    by_city = tm.Index[str](partition="{city}")


class Department(tm.Entity, table="Staff"):
    department: tm.Field[str]
    city: tm.Field[str]
    employees: tm.Field[int] = tm.count(of=Employee)
    numbers: tm.Field[int | None] = tm.sum(Employee.number, of=Employee, where=Employee.city == "Oslo", name="Numbers")
    mean: tm.Field[float | None] = tm.avg(Employee.number, of=Employee)
    first: tm.Field[str | None] = tm.min(Employee.city, of=Employee)
    last: tm.Field[str | None] = tm.max_ever(Employee.city, of=Employee)
    floor: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str](partition="{department}", row="department")


sales = Department("Sales", "Oslo", 3)
assert_type(sales.employees, int)
assert_type(sales.mean, float | None)
by_size = Department.employees > 3


class Headcount(tm.Aggregate, of=Employee, table="Staff"):
    department: tm.Field[str] = tm.group_by(Employee.department)
    employees: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="{department}", row="headcount")


class Ledger(tm.Aggregate, of=User, table="Ledger"):
    color: tm.Field[Color] = tm.group_by(User.color)
    month: tm.Field[str] = tm.group_by(User.joined.truncate("%Y-%m", "Europe/Oslo"))
    balance: tm.Field[Decimal] = tm.sum(User.balance)
    mean: tm.Field[Decimal | None] = tm.avg(User.balance)
    rest: tm.Field[timedelta | None] = tm.avg(User.sleeps)
    slept: tm.Field[timedelta] = tm.sum(User.sleeps)
    youngest: tm.Field[int | None] = tm.min(User.age)
    first: tm.Field[date | None] = tm.min_ever(User.born)

    key = tm.Key[Color, str](partition="{color}", row="{month}")


# ---------------------------------------------------------------------------------- on the class: expressions

assert_type(Product.price, tm.types.Attr[Product, Decimal])
assert_type(Product.manufacturer, tm.types.Attr[Product, str | None])
assert_type(User.plan, tm.types.Attr[User, Literal["free", "paid"]])
assert_type(User.name, tm.types.Attr[User, str])
assert_type(User.user_id, tm.types.Attr[User, UserId])
assert_type(User.age, tm.types.Attr[User, int])
assert_type(Product.price > Decimal(1), tm.Predicate[Product])
assert_type(Product.price == Decimal(1), tm.Predicate[Product])
assert_type(Product.manufacturer == None, tm.Predicate[Product])
assert_type(Product.manufacturer == "Ace", tm.Predicate[Product])
assert_type(Product.price != Decimal(1), tm.Predicate[Product])
assert_type(Product.price.between(Decimal(1), Decimal(2)), tm.Predicate[Product])
assert_type(Product.name.is_in(["a", "b"]), tm.Predicate[Product])
assert_type(Product.manufacturer.is_null(), tm.Predicate[Product])
assert_type(Product.name.startswith("D"), tm.Predicate[Product])
assert_type(Product.manufacturer.startswith("D"), tm.Predicate[Product])
assert_type(Product.name.contains("un"), tm.Predicate[Product])
assert_type(Product.tags.contains("scifi"), tm.Predicate[Product])
assert_type((Product.price > Decimal(1)) & ~(Product.name == "Dune") | Product.name.is_null(), tm.Predicate[Product])
assert_type(Reading.taken_at.date(), tm.types.Attr[Reading, date])
assert_type(Reading.taken_at.truncate("%Y"), tm.types.Attr[Reading, str])
assert_type(Reading.taken_at.date() == date(2023, 1, 1), tm.Predicate[Reading])
assert_type(Reading.taken_at.date("Europe/Oslo"), tm.types.Attr[Reading, date])
assert_type(Reading.taken_at.truncate("%G-W%V", "Europe/Oslo"), tm.types.Attr[Reading, str])
assert_type(Reading.taken_at.floor(timedelta(minutes=15)), tm.types.Attr[Reading, datetime])
assert_type(Reading.taken_at.floor(timedelta(minutes=15)) < datetime(2023, 1, 1, tzinfo=UTC), tm.Predicate[Reading])
assert_type(Reading.temperature > 40, tm.Predicate[Reading])
assert_type(Reading.temperature > Reading.humidity, tm.Predicate[Reading])
assert_type(User.home.at(lambda home: home.city), tm.types.Attr[User, str])
assert_type(User.home.at(lambda home: home.city) == "Delft", tm.Predicate[User])
assert_type(User.place.at(lambda place: place.latitude), tm.types.Attr[User, float | None])
assert_type(User.place.at(lambda place: place.latitude) > 59, tm.Predicate[User])
assert_type(User.place.at(lambda place: place.latitude).set(59.9), tm.Assignment[User])
assert_type(Product.manufacturer.is_not_null(), tm.Predicate[Product])
assert_type(Product.price.desc(), tm.Order[Product])
assert_type(Product.price.asc(), tm.Order[Product])
assert_type(Product.name.set("x"), tm.Assignment[Product])
assert_type(Product.manufacturer.set(None), tm.Assignment[Product])
assert_type(Reading.count.add(1), tm.Assignment[Reading])
assert_type(Product.price.set(Product.price * 2), tm.Assignment[Product])
assert_type(Product.price.set(-(Product.price + Decimal(1)) / 3 - Product.price), tm.Assignment[Product])
assert_type(Product.price.set(Decimal(100) / (2 * Product.price)), tm.Assignment[Product])
assert_type(Product.manufacturer.set(Product.name), tm.Assignment[Product])
assert_type(Reading.count.set(1 + Reading.count * Reading.count - 2), tm.Assignment[Reading])
assert_type(Reading.temperature.set(Reading.count / 2), tm.Assignment[Reading])
assert_type(Reading.temperature.set(Reading.temperature * Reading.count + 1), tm.Assignment[Reading])
assert_type(Reading.temperature.set(1.5 - Reading.temperature), tm.Assignment[Reading])
assert_type(Reading.taken_at.set(Reading.taken_at + timedelta(hours=1)), tm.Assignment[Reading])
assert_type(User.joined.set(User.joined - User.sleeps), tm.Assignment[User])
assert_type(User.sleeps.set(User.joined - User.joined), tm.Assignment[User])
assert_type(User.sleeps.set((User.sleeps * 2 + timedelta(1)) / 1.5), tm.Assignment[User])
assert_type(User.born.set(User.born + timedelta(days=1)), tm.Assignment[User])
assert_type(User.rating.set(User.sleeps / timedelta(hours=1)), tm.Assignment[User])
assert_type(User.balance.set(User.balance * User.age), tm.Assignment[User])

# ---------------------------------------------------------------------------------- keys and indexes

assert_type(Product.key("books", "b-1"), tm.KeyOf[Product])
assert_type(DailyClimate.key("s", date(2023, 10, 27)), tm.KeyOf[DailyClimate])
assert_type(User.key(UserId("ann")), tm.KeyOf[User])
assert_type(Product.by_name(), tm.types.IndexRange[Product])
assert_type(Product.by_name("Dune"), tm.types.IndexRange[Product])
assert_type(Product.by_name("Dune", "b-1"), tm.types.IndexRange[Product])
assert_type(Product.by_maker("Ace", Decimal(1)), tm.types.IndexRange[Product])
assert_type(Product.by_tag("scifi"), tm.types.IndexRange[Product])
assert_type(User.one("a"), tm.types.IndexRange[User])
assert_type(User.two("a", date.min), tm.types.IndexRange[User])
assert_type(User.three("a", date.min, UUID(int=0)), tm.types.IndexRange[User])
assert_type(User.four("a", date.min, UUID(int=0), True), tm.types.IndexRange[User])
assert_type(User.five("a", date.min, UUID(int=0), True, 1.0), tm.types.IndexRange[User])
assert_type(User.six("a", date.min, UUID(int=0), True, 1.0, Decimal(1)), tm.types.IndexRange[User])
assert_type(User.six("a", date.min), tm.types.IndexRange[User])
assert_type(User.six(), tm.types.IndexRange[User])


# ---------------------------------------------------------------------------------- on an instance: values


def instances(product: Product, user: User, climate: DailyClimate, ledger: Ledger) -> None:
    assert_type(product.price, Decimal)
    assert_type(product.manufacturer, str | None)
    assert_type(product.tags, list[str])
    assert_type(product.key, tm.KeyOf[Product])
    assert_type(product.replace(price=Decimal(1)), Product)
    assert_type(product.replace(Product.price.set(Decimal(1)), Product.name.set("x"), manufacturer=None), Product)
    assert_type(user.user_id, UserId)
    assert_type(user.age, int)
    assert_type(user.color, Color)
    assert_type(user.plan, Literal["free", "paid"])
    assert_type(user.home.city, str)
    assert_type(user.shout(), str)
    assert_type(user.extra, tm.Extra)
    assert_type(climate.mean, float | None)
    assert_type(climate.readings, int)
    assert_type(climate.key, tm.KeyOf[DailyClimate])
    assert_type(ledger.mean, Decimal | None)
    assert_type(ledger.youngest, int | None)
    assert_type(tm.info(product).etag, str | None)
    assert_type(tm.info(climate).timestamp, datetime | None)
    product.price = Decimal("7.99")
    product.manufacturer = None
    assert_type(msgspec.json.encode(product), bytes)
    match product:
        case Product(name="Dune", price=price):
            assert_type(price, Decimal)
        case _:
            pass


def constructors() -> None:
    assert_type(Product("books", "b-1", "Dune", Decimal("9.99"), "Ace"), Product)
    Product("books", "b-1", name="Dune", price=Decimal(1), tags=["a"])
    Reading("s", datetime.now(), 1, 2.5)
    User(
        "Ann", UserId("ann"), 33, date.min, datetime.now(), time.min, timedelta(1), UUID(int=0), b"", True, Color.RED, "free",
        Address("x", "y"), 1.0, {"bob": 1}, place=None, balance=Decimal(2),
    )  # fmt: skip


# ---------------------------------------------------------------------------------- the store


def verbs(store: tm.Store, readings: list[Reading], change: Callable[[Product], Product | None]) -> None:
    key = Product.key("books", "b-1")
    assert_type(store[key], Product)
    assert_type(store.get(key), Product | None)
    assert_type(store.get(DailyClimate.key("s", date.min)), DailyClimate | None)
    assert_type(store.group(DailyClimate.key("s", date.min)), DailyClimate)
    assert_type(store.get_many([key]), list[Product | None])
    assert_type(store.exists(key), bool)
    assert_type(store.update(key, lambda p: p.replace(price=p.price * 2)), Product)
    assert_type(store.update(key, change), Product)
    store.insert(store[key])
    store.replace(store[key], if_match="*")
    store.merge(key, name="Dune (1965)")
    store.merge(key, Product.name.set("Dune"), Product.manufacturer.set(None))
    store.merge(Reading.key("s", datetime.now()), Reading.count.add(1))
    store.merge(User.key(UserId("ann")), User.name.set("Ann"))
    store.upsert(store[key], merge=True)
    store.delete(key)
    store.delete(store[key])
    store.move(store[key], Product.key("games", "g-1"))
    assert_type(store.insert_many(readings, progress=True), int)
    assert_type(store.upsert_many(iter(readings)), int)
    assert_type(store.delete_many(store.query(Reading).where(Reading.device_id == "s")), int)
    assert_type(store.check(), tm.reports.CheckReport)
    assert_type(store.check().ok, bool)
    assert_type(store.repair(progress=True), tm.reports.RepairReport)
    assert_type(store.build(limit=1, hold=0.1), tm.reports.BuildReport)
    assert_type(tm.copy(store, store, progress=True), tm.reports.CopyReport)
    assert_type(store.build().violations, tuple[tm.reports.DuplicateValue, ...])
    assert_type(store.repair().remaining, tuple[tm.reports.Problem, ...])
    store.compact(progress=lambda progress: None)
    tm.restore("shop.bak", Path("shop.db"), overwrite=True)
    with store.transaction() as tx:
        tx.insert(store[key])
        tx.delete(key)
        assert_type(tx.get(key), Product | None)
        assert_type(tx[key], Product)
    store.partition(Product)
    for entity in store.partition(Product.category_id == "books"):
        assert_type(entity, tm.Record | tm.UnknownRow)
        match entity:
            case Product(name=name):
                assert_type(name, str)
            case _:
                pass


def queries(store: tm.Store, nine: datetime) -> None:
    assert_type(store.query(Product), tm.Query[Product])
    assert_type(store.query(Product.by_tag("scifi")), tm.Query[Product])
    warm = (
        store.query(Reading)
        .where(Reading.device_id == "sensor-abc-123", Reading.taken_at >= nine, Reading.temperature > 21.5)
        .order_by(Reading.taken_at.desc(), Reading.humidity)
        .limit(10)
    )
    assert_type(warm, tm.Query[Reading])
    for reading in warm:
        assert_type(reading, Reading)
    page = warm.page(100, token=None)
    assert_type(page, tm.Page[Reading])
    assert_type(page.items, list[Reading])
    assert_type(page.token, str | None)
    assert_type(warm.first(), Reading | None)
    assert_type(warm.one(), Reading)
    assert_type(warm.count(), int)
    assert_type(warm.allow_scan(), tm.Query[Reading])
    assert_type(warm.allow_sort().allow_eventual(), tm.Query[Reading])
    # A condition on an abstract class holds for the classes that it lends its fields to.
    assert_type(store.query(User).where(Named.name == "Ann"), tm.Query[User])
    for product_id, price in (
        store.query(Product).where(Product.name == "Dune").select(Product.product_id, Product.price)
    ):
        assert_type(product_id, str)
        assert_type(price, Decimal)
    dear = store.query(Product).where(Product.price > Decimal(100))
    assert_type(dear.update(price=Product.price * 2, name="x"), int)
    assert_type(dear.update(Product.price.set(Product.price * 2), Product.name.set("x"), resume="dear"), int)
    assert_type(dear.order_by(Product.price).limit(3).update(lambda p: p.replace(price=p.price / 2)), int)
    assert_type(dear.update(lambda p: None if p.name == "x" else p, progress=True), int)
    assert_type(dear.delete(progress=True, resume="dear"), int)
    store.merge(Product.key("a", "b"), Product.price.set(Product.price * 2))
    for (maker,) in store.query(Product).select(Product.manufacturer):
        assert_type(maker, str | None)


def of_any_class(groups: tm.types.GroupedQuery[Color], value: tm.types.Expr[Decimal]) -> dict[Color, Decimal | None]:
    return groups.sum(value)


def totals(store: tm.Store) -> None:
    products, users, readings = store.query(Product), store.query(User), store.query(Reading)
    assert_type(products.count(), int)
    assert_type(products.sum(Product.price), Decimal | None)
    assert_type(readings.sum(Reading.count), int | None)
    assert_type(users.sum(User.sleeps), timedelta | None)
    assert_type(products.avg(Product.price), Decimal | None)
    assert_type(readings.avg(Reading.temperature), float | None)
    assert_type(readings.avg(Reading.count), float | None)
    assert_type(users.avg(User.sleeps), timedelta | None)
    assert_type(products.min(Product.manufacturer), str | None)
    assert_type(readings.max(Reading.taken_at), datetime | None)
    assert_type(products.group_by(Product.manufacturer).count(), dict[str | None, int])
    assert_type(readings.group_by(Reading.taken_at.date()).avg(Reading.temperature), dict[date, float | None])
    assert_type(
        readings.group_by(Reading.device_id, Reading.taken_at.truncate("%Y-%m")).max(Reading.temperature),
        dict[tuple[str, str], float | None],
    )
    assert_type(users.group_by(User.color).sum(User.balance), dict[Color, Decimal | None])
    assert_type(users.group_by(User.color), tm.types.GroupedQuery[Color, User])
    assert_type(of_any_class(users.group_by(User.color), User.balance), dict[Color, Decimal | None])
    assert_type(products.budget(timeout=1.5, examined=1000), tm.Query[Product])
    assert_type(products.explain(), tm.reports.Explanation)
    assert_type(products.explain().totals["count()"], str)


def several_classes(store: tm.Store) -> None:
    both = store.query(Employee, Department)
    assert_type(both.first(), Employee | Department | None)
    sales = (
        both.where(Employee.department == "Sales", Department.city != "Oslo")
        .backwards()
        .limit(10)
        .allow_scan()
        .allow_sort()
    )
    for one in sales:
        assert_type(one, Employee | Department)
        match one:
            case Employee(number=number):
                assert_type(number, int)
            case Department(city=city):
                assert_type(city, str)
    assert_type(sales.one(), Employee | Department)
    assert_type(sales.one_or_none(), Employee | Department | None)
    assert_type(sales.page(3).items, list[Employee | Department])
    assert_type(both.order_by(Employee.city.desc(), Department.department).count(), int)
    assert_type(both.explain(), tm.reports.MixedExplanation)
    three = store.query(Employee, Department, Headcount).where(Headcount.employees > 3)
    assert_type(three.first(), Employee | Department | Headcount | None)
    assert_type(store.query(Employee, Department, Headcount, Product).first(), Any | None)


def json_forms(product: Product, climate: DailyClimate) -> None:
    assert_type(tm.to_json(product), bytes)
    assert_type(tm.to_dict(climate, etag=True), dict[str, Any])
    assert_type(tm.from_json(Product, b"{}"), Product)
    assert_type(tm.from_json(Product, "{}"), Product)
    assert_type(tm.from_dict(Product, {"name": "Dune"}), Product)
    assert_type(tm.json_schema(DailyClimate), dict[str, Any])


def columns(store: tm.Store, frame: object) -> None:
    query = store.query(Product)
    assert_type(query.columns(), dict[str, list[Any]])
    assert_type(query.select(Product.name).columns(), dict[str, list[Any]])
    query.to_arrow(decimals={Product.price: 2})
    for batch in query.arrow_batches(100):
        batch.num_rows
    assert_type(store.insert_columns(Product, {"name": ["Dune"]}, atomic=True), int)
    assert_type(store.insert_columns(Product, frame), int)
    assert_type(store.clear(Product), int)
    assert_type(store.expire(), int)
    assert_type(store.expire(Product, limit=10, progress=True), int)
    assert_type(store.replace_many(query), int)
    for partition in store.partitions(DailyClimate):
        assert_type(partition, tm.types.Partition[DailyClimate])
        assert_type(partition.values, dict[str, Any])
        assert_type(store.query(DailyClimate).where(partition).count(), int)
        assert_type(list(store.partition(partition)), list[tm.Record | tm.UnknownRow])
    p = Product
    assert_type(
        query.select(p.name, p.price, p.name, p.price, p.name, p.price, p.name).first(),
        tuple[str, Decimal, str, Decimal, str, Decimal, str] | None,
    )
    assert_type(
        query.select(p.name, p.price, p.name, p.price, p.name, p.price, p.tags, p.manufacturer).first(),
        tuple[str, Decimal, str, Decimal, str, Decimal, list[str], str | None] | None,
    )
    many = query.select(p.name, p.name, p.name, p.name, p.name, p.name, p.name, p.name, p.name)
    assert_type(many.first(), tuple[Any, ...] | None)


def opening() -> None:
    with tm.open("shop.db", models=[Product, Reading, DailyClimate], durability="relaxed", progress=True) as store:
        assert_type(store, tm.Store)
    assert_type(attrs.asdict(Product("a", "b", "c", Decimal(1))), dict[str, Any])
    assert_type(tm.GeoPoint(latitude=52.0, longitude=4.4), tm.GeoPoint)


async def asynchronously(product: Product) -> None:
    async with tm.open_async("shop.db", models=[Product, Reading, DailyClimate], threads=8) as store:
        assert_type(store, tm.AsyncStore)
        assert_type(await store[Product.key("books", "b-1")], Product)
        assert_type(await store.get(Product.key("books", "b-2")), Product | None)
        assert_type(await store.group(DailyClimate.key("s", date.min)), DailyClimate)
        assert_type(await store.get_many([Product.key("books", "b-2")]), list[Product | None])
        assert_type(await store.exists(Product.key("books", "b-2")), bool)
        await store.insert(product)
        await store.replace(product, if_match="*")
        await store.merge(Product.key("books", "b-1"), Product.name.set("Dune"), price=Decimal(1))
        assert_type(await store.update(Product.key("books", "b-1"), lambda p: p.replace(name="x")), Product)
        assert_type(await store.insert_many([product]), int)
        assert_type(await store.upsert_many(store.query(Product)), int)
        assert_type(await store.delete_many(store.query(Product).where(Product.price > Decimal(1))), int)
        async with store.transaction() as tx:
            assert_type(tx, tm.AsyncTransaction)
            tx.insert(product)
            await tx.insert(product)
            await tx.merge(Product.key("books", "b-1"), Product.name.set("x"))
            assert_type(await tx[Product.key("books", "b-1")], Product)
            assert_type(await tx.get(Product.key("books", "b-1")), Product | None)
        query = store.query(Product).where(Product.name == "Dune").order_by(Product.price.desc()).limit(3)
        assert_type(query, tm.types.AsyncQuery[Product])
        async for one in query:
            assert_type(one, Product)
        assert_type(await query.list(), list[Product])
        assert_type(await query.first(), Product | None)
        assert_type(await query.one(), Product)
        assert_type(await query.count(), int)
        assert_type(await query.page(10), tm.Page[Product])
        async for page in query.pages(10):
            assert_type(page.items, list[Product])
        async for name, price in query.select(Product.name, Product.price):
            assert_type(name, str)
            assert_type(price, Decimal)
        assert_type(await query.select(Product.manufacturer).first(), tuple[str | None] | None)
        assert_type(await query.sum(Product.price), Decimal | None)
        assert_type(await query.avg(Product.price), Decimal | None)
        assert_type(await query.group_by(Product.name).count(), dict[str, int])
        assert_type(
            await query.group_by(Product.name, Product.tags).max(Product.price),
            dict[tuple[str, list[str]], Decimal | None],
        )
        async for two in store.query(Product, Reading):
            assert_type(two, Product | Reading)
        assert_type(await query.columns(), dict[str, list[Any]])
        assert_type(await store.insert_columns(Product, {}), int)
        assert_type(await store.clear(Product), int)
        assert_type(await store.expire(), int)
        assert_type(await store.expire(Product, limit=10), int)
        assert_type(await store.replace_many([product]), int)
        async for partition in store.partitions(Product):
            assert_type(partition, tm.types.Partition[Product])
            assert_type(await store.query(Product).where(partition, Product.name == "x").count(), int)
            assert_type([one async for one in store.partition(partition)], list[tm.Record | tm.UnknownRow])
        assert_type(await query.update(Product.name.set("x"), price=Decimal(1)), int)
        assert_type(await query.delete(resume="clean"), int)
        async for row in store.partition(Product.category_id == "books"):
            assert_type(row, tm.Record | tm.UnknownRow)
        assert_type(await store.check(), tm.reports.CheckReport)
        assert_type(await store.repair(), tm.reports.RepairReport)
        await store.compact()
        assert_type(await store.build(rest=0), tm.reports.BuildReport)
        assert_type(await tm.copy_async(store, store, progress=True), tm.reports.CopyReport)
    assert_type(await tm.open_async("shop.db", models=[Product]), tm.AsyncStore)


def observe(event: tm.Event) -> float:
    assert_type(event.model, str | None)
    assert_type(event.returned, int)
    return event.seconds


def observing() -> None:
    tm.open("shop.db", models=[Product], observe=observe, slow=0.5)
    tm.open_async("shop.db", models=[Product], observe=lambda event: print(event.outcome))


class Traffic(tm.Entity, table="Traffic"):
    id: tm.Field[str]
    home: tm.Field[Address]
    hours: tm.Field[dict[str, int]] = tm.field(factory=dict)
    days: tm.Field[dict[str, int] | None] = tm.field(default=None)
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str](partition="{id}")
    by_color = tm.Index[str](partition="{more[color]}")


def parts(store: tm.Store, traffic: Traffic) -> None:
    key = Traffic.key("a")
    assert_type(Traffic.hours["05"].add(1), tm.Assignment[Traffic])
    assert_type(Traffic.hours["05"], tm.types.Attr[Traffic, int])
    assert_type(Traffic.days["05"], tm.types.Attr[Traffic, int])
    assert_type(Traffic.more["size"].remove(), tm.Assignment[Traffic])
    assert_type(Traffic.home.at(lambda home: home.city).set("Oslo"), tm.Assignment[Traffic])
    assert_type(store.merge(key, Traffic.hours["05"].add(1), Traffic.more["size"].set(3), returning=True), Traffic)
    store.merge(key, Traffic.hours["05"].set(Traffic.hours["06"] + 1))
    store.merge(key, Traffic.hours["05"].add(1), or_insert=traffic)
    store.query(Traffic).update(Traffic.more["size"].remove())
    store.query(Traffic.by_color("red"))
    with store.transaction() as tx:
        tx.require(traffic)
        tx.require(key)
        assert_type(tx.merge(key, id="a", or_insert=traffic, returning=True), Traffic)

    def work(tx: tm.Transaction) -> int:
        return tx.merge(key, Traffic.hours["05"].add(1), returning=True).hours["05"]

    assert_type(store.run(work), int)
    assert_type(store.run(lambda tx: tx.insert(traffic)), None)


def patches(store: tm.Store, body: bytes, etag: str) -> None:
    patch = tm.patch(Traffic, body)
    assert_type(patch, tm.Patch[Traffic])
    assert_type(patch[0], tm.Assignment[Traffic])
    assert_type(tm.patch(Traffic, {"id": "a"}), tm.Patch[Traffic])
    store.merge(Traffic.key("a"), *patch, if_match=etag)
    store.query(Traffic).update(*patch, Traffic.more["size"].remove())
    with store.transaction() as tx:
        tx.merge(Traffic.key("a"), *patch)
    tm.json_schema(Traffic, patch=True)


async def change(store: tm.AsyncStore, id: str, body: tm.Patch[Traffic]) -> Traffic:
    await store.query(Traffic).update(*body)
    return await store.merge(Traffic.key(id), *body, returning=True)


class Basket(tm.Entity, table="Baskets"):
    id: tm.Field[str]
    tags: tm.Field[list[str]]
    more: tm.Field[list[int] | None] = tm.field(default=None)
    steps: tm.Field[tuple[int, ...]] = tm.field(default=())
    colors: tm.Field[set[str]] = tm.field(factory=set)
    sizes: tm.Field[frozenset[int] | None] = tm.field(default=None)
    homes: tm.Field[list[Address]] = tm.field(factory=list)
    by: tm.Field[dict[str, list[int]]] = tm.field(factory=dict)

    key = tm.Key[str](partition="{id}")


def elements(store: tm.Store) -> None:
    key = Basket.key("a")
    assert_type(Basket.tags.append("x"), tm.Assignment[Basket])
    assert_type(Basket.tags.extend({"x": 1}), tm.Assignment[Basket])
    assert_type(Basket.colors.add("x"), tm.Assignment[Basket])
    assert_type(Basket.sizes.add(3), tm.Assignment[Basket])
    assert_type(Basket.sizes.discard(3), tm.Assignment[Basket])
    assert_type(Basket.tags[0], tm.types.Attr[Basket, str])
    assert_type(Basket.more[-1], tm.types.Attr[Basket, int])
    assert_type(Basket.steps[0], tm.types.Attr[Basket, int])
    assert_type(Basket.homes[0].at(lambda home: home.city), tm.types.Attr[Basket, str])
    store.merge(key, Basket.more.append(3), Basket.steps.extend((1, 2)), Basket.by["x"].append(1))
    store.merge(key, Basket.tags[0].set("x"), Basket.homes[-1].remove(), Basket.steps[0].add(2))
    store.query(Basket).update(Basket.tags.discard("x"), Basket.sizes.extend([1]))
    with store.transaction() as tx:
        tx.merge(key, Basket.more.extend(range(3)))


class Archive(tm.Entity, table="Archive"):
    id: tm.Field[str]

    key = tm.Key[str](partition="{id}")


def together(store: tm.Store) -> None:
    pairs = store.query(Traffic).with_(Basket, by=Traffic.id)
    assert_type(pairs, tm.types.Pairs[Traffic, Basket])
    for traffic, basket in pairs:
        assert_type(traffic, Traffic)
        assert_type(basket, Basket | None)
    assert_type(pairs.first(), tuple[Traffic, Basket | None] | None)
    assert_type(pairs.page(10).items, list[tuple[Traffic, Basket | None]])
    store.query(Traffic).where(Traffic.id == "a").with_(Basket, by=(Traffic.id,))
    assert_type(store.query(Traffic).move_to(Archive), int)
    assert_type(
        store.query(Traffic).move_to(lambda traffic: Archive(traffic.id) if traffic.id else None, progress=True), int
    )


async def together_asynchronously(store: tm.AsyncStore) -> None:
    pairs = store.query(Traffic).with_(Basket, by=Traffic.id)
    assert_type(pairs, tm.types.AsyncPairs[Traffic, Basket])
    async for traffic, basket in pairs:
        assert_type(traffic, Traffic)
        assert_type(basket, Basket | None)
    assert_type(await pairs.first(), tuple[Traffic, Basket | None] | None)
    assert_type((await pairs.page(10)).items, list[tuple[Traffic, Basket | None]])
    assert_type(await pairs.list(), list[tuple[Traffic, Basket | None]])
    assert_type(await store.query(Traffic).move_to(Archive), int)
    await store.query(Traffic).move_to(lambda traffic: Archive(traffic.id))


async def parts_asynchronously(store: tm.AsyncStore, traffic: Traffic) -> None:
    assert_type(await store.merge(traffic.key, Traffic.hours["05"].add(1), returning=True), Traffic)
    await store.merge(traffic.key, id="a")
    async with store.transaction() as tx:
        tx.require(traffic)
        assert_type(await tx.merge(traffic.key, id="a", returning=True), Traffic)

    async def work(tx: tm.AsyncTransaction) -> int:
        return (await tx.merge(traffic.key, id="a", returning=True)).hours["05"]

    assert_type(await store.run(work), int)


def written(store: tm.Store, since: datetime) -> None:
    assert_type(tm.timestamp(Product), tm.types.Attr[Product, datetime])
    recent = store.query(Product).where(Product.category_id == "books", tm.timestamp(Product) > since)
    assert_type(recent.order_by(tm.timestamp(Product).desc()), tm.Query[Product])
    assert_type(recent.max(tm.timestamp(Product)), datetime | None)


# ---------------------------------------------------------------------------------- migration scripts
class old:
    class Product(tm.Entity, table="Products"):
        id: tm.Field[str]
        price: tm.Field[str]
        kind: tm.Field[Literal["a", "b", "c"]]
        note: tm.Field[str | None] = tm.field(default=None)
        maker: tm.Field[str | None] = tm.field(default=None)

        key = tm.Key[str](partition="{id}")
        by_price = tm.Index[str](partition="{price}")


class new:
    class Product(tm.Entity, table="Products"):
        id: tm.Field[str]
        price: tm.Field[Decimal]
        kind: tm.Field[Literal["a", "b"]]
        rank: tm.Field[int]
        note: tm.Field[int | None] = tm.field(default=None)
        manufacturer: tm.Field[str | None] = tm.field(default=None)

        key = tm.Key[str](partition="{id}")
        by_rank = tm.Index[int](partition="{rank}", unique=True)

    class Label(tm.Entity, table="Labels"):
        id: tm.Field[str]

        key = tm.Key[str](partition="{id}")


def label(product: old.Product) -> new.Label | None:
    return new.Label(product.id) if product.note else None


def several(product: old.Product) -> new.Label | old.Product:
    return product if product.note else new.Label(product.id)


def labels(product: old.Product) -> Iterator[new.Label]:
    yield new.Label(product.id)


def both(a: old.Product | None, b: old.Product | None) -> list[new.Label]:
    return [new.Label(one.id) for one in (a, b) if one is not None]


@tm.migration(after="0002_tags", old=[old.Product], new=[new.Product, new.Label])
def migrate(m: tm.Migration) -> None:
    m.rename(old.Product.maker, new.Product.manufacturer)
    m.rename_class(old.Product, new.Product)
    m.rekey(old.Product, new.Product)
    m.convert(old.Product.price, new.Product.price, Decimal, back=str)
    m.convert(old.Product.kind, new.Product.kind, {"c": "a"})
    m.convert(old.Product.note, new.Product.note, int, back=str)
    m.convert(old.Product.note, new.Product.price, lambda x: Decimal(0) if x is None else Decimal(x))
    m.convert(old.Product.note, new.Product.price, ...)
    m.fill(new.Product.rank, lambda p: len(p.id))
    m.fill(new.Product.rank, ...)
    m.rewrite(old.Product, label, into=new.Label)
    m.rewrite(old.Product, lambda p: [new.Label(p.id)], into=new.Label, combine=lambda a, b: a)
    m.rewrite(old.Product, ..., into=(new.Product, new.Label))
    m.rewrite(old.Product, labels, into=new.Label)
    m.rewrite(old.Product, several, into=(old.Product, new.Label))
    m.rewrite(old.Product, several, into=[old.Product, new.Label])
    m.rewrite(old.Product, labels, into=[new.Label])
    m.rewrite(old.Product, ..., into=[new.Product, new.Label])
    m.rewrite(old.Product, lambda p: [new.Label(p.id)], into=(new.Product, new.Label))
    m.join(old.Product, old.Product, both, into=new.Label)
    m.join(old.Product, old.Product, lambda a, b: new.Label(a.id) if a else None, into=new.Label)
    m.join(old.Product, old.Product, both, into=(new.Label, new.Product))
    m.join(old.Product, old.Product, both, into=[new.Label, new.Product])
    m.resolve(new.Product.by_rank, lambda products: products[:1])
    m.drop(old.Product.note)
    m.drop(old.Product.by_price)
    m.drop(old.Product)


def scripts() -> None:
    migrations = tm.Migrations("shop.migrations")
    with tm.open("shop.db", models=[new.Product], migrations=migrations) as store:
        assert_type(store, tm.Store)
    tm.open("shop.db", models=[new.Product], migrations="shop.migrations")
    tm.open_async("shop.db", models=[new.Product], migrations=[migrate])
    assert_type(migrations.ids, tuple[str, ...])
    assert_type(migrations.check([Product, DailyClimate], "schema.json"), tuple[tm.reports.SchemaChange, ...])
    assert_type(tm.changes(tm.schema_snapshot([Product]), [Product]), tuple[tm.reports.SchemaChange, ...])


async def parts_of_queries(store: tm.Store, tasks: tm.AsyncStore) -> None:
    query = store.query(Product).where(Product.name == "x")
    assert_type(query.split(4), list[tm.Query[Product]])
    assert_type(query.split(4)[0].token, str)
    mixed = store.query(Product, Reading)
    assert_type([one for part in mixed.split(4) for one in mixed.part(part.token)], list[Product | Reading])
    assert_type(query.part("x").first(), Product | None)
    assert_type([row for part in query.select(Product.name).split(2) for row in part], list[tuple[str]])
    assert_type(await (await tasks.query(Product).split(2))[0].first(), Product | None)
    assert_type(await tasks.query(Product).part("x").list(), list[Product])


def fields_of_the_class_that_lends_them(store: tm.Store) -> None:
    users, name = store.query(User), Named.name
    assert_type(users.where(Named.name == "Ann").order_by(name, name.desc()), tm.Query[User])
    assert_type(users.select(name, User.age).first(), tuple[str, int] | None)
    assert_type(users.group_by(name).max(name), dict[str, str | None])
    assert_type(users.update(name.set("Ann")), int)


class Document(tm.Entity, table="Documents"):
    site: tm.Field[str]
    path: tm.Field[tuple[str, ...]]

    key = tm.Key[str, tuple[str, ...]](partition="{site}", row="{path}")


def hierarchies(store: tm.Store) -> None:
    documents = store.query(Document).where(Document.site == "a", Document.path.startswith(("a", "b")))
    assert_type(documents.where(Document.path > ("a",)).order_by(Document.path.desc()).first(), Document | None)
    assert_type(store[Document.key("a", ("b", "c"))].path, tuple[str, ...])
    assert_type(documents.max(Document.path), tuple[str, ...] | None)


@attrs.frozen
class Slug:
    text: str


def slug(text: str) -> Slug:
    return Slug(text)


tm.register(Slug, str, store=lambda slug: slug.text, load=Slug)


def own_scalars() -> None:
    assert_type(tm.register(Slug, str, store=lambda slug: slug.text, load=slug), None)


class Article(tm.Entity, table="Articles"):
    site: tm.Field[str]
    slug: tm.Field[Slug]

    key = tm.Key[str, Slug](partition="{site}", row="{slug}")


def own_scalars_in_queries(store: tm.Store) -> None:
    articles = store.query(Article).where(Article.slug == Slug("a"), Article.slug.is_in([Slug("b")]))
    assert_type(articles.max(Article.slug), Slug | None)
    assert_type(store[Article.key("a", Slug("b"))].slug, Slug)


def strategies() -> None:
    assert_type(entities(Product), SearchStrategy[Product])
    assert_type(entities(Product, category_id="books", price=just(Decimal(1))), SearchStrategy[Product])
    assert_type(keys(Product), SearchStrategy[tm.KeyOf[Product]])


def stores_of_tests() -> None:
    with account_store([Product], prefix="Mine") as store:
        assert_type(store, tm.Store)


def fixtures(tm_store: tm.Store, tm_events: list[tm.Event], tm_clock: Clock) -> None:
    assert_type(tm_clock.now, datetime)
    tm_clock.tick(0.5)
    tm_clock.set(tm_clock.now + timedelta(days=1))
    assert_type([event.verb for event in tm_events], list[str])


def accounts() -> None:
    with tm.open("azure://shop", models=[Product], prefix="Staging", adopt=["Products"]) as store:
        assert_type(store, tm.Store)
    tm.open("azure://shop", models=[Product], adopt=("Products", "Orders"))
    tm.open_async("azure://shop", models=[Product], prefix="Staging", adopt=True)
    assert_type(tm.status("azure://shop", prefix="Staging").frozen, datetime | None)


async def variants(store: tm.Store, other: tm.AsyncStore) -> None:
    monthly = Product.variant("202611")
    assert_type(monthly, type[Product])
    store.use(monthly, DailyClimate.variant("202611"))
    await other.use(monthly)
    assert_type(store.query(monthly).where(Product.name == "Dune", monthly.name == "x").first(), Product | None)
    assert_type(store[monthly.key("books", "b-1")], Product)
    store.drop(monthly)


async def copies(store: tm.Store, other: tm.AsyncStore) -> None:
    assert_type(tm.copy(store, store, only=[Product, Product.variant("1")]), tm.reports.CopyReport)
    assert_type(await tm.copy_async(other, other, only=(Product,), progress=True), tm.reports.CopyReport)


async def drops(store: tm.Store, other: tm.AsyncStore) -> None:
    store.drop(Product)
    await other.drop(Product, progress=True)


def now() -> datetime:
    return datetime.now(UTC)


class Stamped(tm.Entity):
    updated: tm.Field[datetime] = tm.field(on_write=now)
    by: tm.Field[str | None] = tm.field(on_write=lambda: "ann", name="UpdatedBy", init=False)


class Animal(Stamped):
    id: tm.Field[str]
    age: tm.Field[int]

    key = tm.Key[str](partition="{id}")
    old = tm.Index[int, datetime](partition="{age}", row="{updated}", where=lambda a: a.age >= 10)


class Dog(Animal, table="Dogs"):
    walks: tm.Field[int] = tm.field(default=2)


class Cat(Animal, table="Cats"): ...


async def families(store: tm.Store, tasks: tm.AsyncStore) -> None:
    assert_type(Dog("Rex", 3, 2).updated, datetime)
    assert_type(Dog("Rex", 3).by, str | None)
    assert_type(Dog.key("Rex"), tm.KeyOf[Dog])
    assert_type(store[Dog.key("Rex")], Dog)
    assert_type(Cat.old(10), tm.types.IndexRange[Cat])
    assert_type(store.query(Cat.old(10, now())).first(), Cat | None)
    animals = store.query(Animal).where(Animal.age > 3, Animal.updated < now()).order_by(Animal.age.desc())
    assert_type(animals, tm.Query[Animal])
    for animal in animals:
        assert_type(animal, Animal)
        assert_type(animal.age, int)
        if isinstance(animal, Dog):
            assert_type(animal.walks, int)
    assert_type(animals.page(10).items, list[Animal])
    assert_type(tasks.query(Animal).where(Animal.age > 3), tm.types.AsyncQuery[Animal])
    assert_type(await tasks.query(Animal).list(), list[Animal])
    assert_type(store.merge(Dog.key("Rex"), age=4, returning=True), Dog)
