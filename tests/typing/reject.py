"""Wrong programs, one a line: mypy must report each with its code, and pyright must report the same lines."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

import tablemapper as tm
from tablemapper.testing import Clock, entities, keys

from .accept import (
    Animal,
    Article,
    Basket,
    Bounded,
    Cat,
    DailyClimate,
    Department,
    Dog,
    Employee,
    Headcount,
    Product,
    Reading,
    Slug,
    Traffic,
    User,
    UserId,
    both,
    label,
    labels,
    new,
    now,
    old,
    several,
)


def show(line: str) -> None: ...


class Wrong(tm.Entity, table="Wrong"):
    a: tm.Field[str] = tm.field(default=3)  # type: ignore[arg-type]
    b: tm.Field[list[str]] = tm.field(factory=dict[str, str])  # type: ignore[arg-type]
    c: tm.Field[int] = 3  # type: ignore[assignment]
    d: tm.Field[str] = tm.field("x", kw_only=True)  # type: ignore[call-overload]
    e: tm.Field[str] = tm.field(default="x", factory=str)  # type: ignore[call-overload]
    f: tm.Field[int] = tm.field(default=1, default_factory=int)  # type: ignore[call-overload]
    g: tm.Field[int] = tm.field(default=1, validator=3)  # type: ignore[call-overload]
    h: tm.Field[datetime | None] = tm.field(default=None, expires="until")  # type: ignore[call-overload]
    i: tm.Field[str] = tm.field(default="", large="yes")  # type: ignore[call-overload]

    key = tm.Key[str]("{a}", "{b}")  # type: ignore[call-arg, arg-type]
    by_c = tm.Index[int](partition=3)  # type: ignore[arg-type]
    by_d = tm.Index[int](partition="{c}", unique="yes")  # type: ignore[arg-type]


def is_dear(p: type[Dear]) -> tm.Predicate[Dear]:
    return p.prize > Decimal(10)  # type: ignore[attr-defined, no-any-return]


class Dear(tm.Entity, table="Dear"):
    price: tm.Field[Decimal]
    key = tm.Key[Decimal](partition="{price}")
    by_price = tm.Index[Decimal](partition="{price}", where=is_dear)


class WrongMaintained(tm.Entity, table="WrongMaintained"):
    department: tm.Field[str]
    n: tm.Field[str] = tm.count(of=Employee)  # type: ignore[assignment]
    m: tm.Field[int] = tm.max(Employee.number, of=Employee)  # type: ignore[assignment]
    o: tm.Field[int | None] = tm.max(Employee.number, of="Employee")  # type: ignore[call-overload]
    p: tm.Field[int] = tm.count(of=Employee, init=True)  # type: ignore[call-overload]

    key = tm.Key[str](partition="{department}")


Department("Sales", "Oslo", employees=3)  # type: ignore[call-arg]
Department("Sales", "Oslo", 3, 4)  # type: ignore[call-arg]


class WrongAggregate(tm.Aggregate, of=Reading, table="WrongAggregate"):
    device: tm.Field[int] = tm.group_by(Reading.device_id)  # type: ignore[arg-type]
    place: tm.Field[int] = tm.group_by(Reading.location)  # type: ignore[arg-type]
    day: tm.Field[date] = tm.group_by(Reading.device_id.date())  # type: ignore[misc]
    number: tm.Field[str] = tm.count()  # type: ignore[assignment]
    mean: tm.Field[float | None] = tm.avg(Reading.device_id)  # type: ignore[arg-type, assignment]
    total: tm.Field[str] = tm.sum(Reading.temperature)  # type: ignore[arg-type]
    least: tm.Field[float] = tm.min(Reading.temperature)  # type: ignore[assignment]
    product: tm.Field[str] = tm.sum(Reading.temperature * Reading.temperature)  # type: ignore[arg-type]
    nothing: tm.Field[float] = tm.sum(Reading.temperature * Reading.device_id)  # type: ignore[operator]
    tag: tm.Field[int] = tm.group_by(Product.tags.each())  # type: ignore[arg-type]
    letter: tm.Field[str] = tm.group_by(Product.name.each())  # type: ignore[misc]
    named: tm.Field[int] = tm.count(name=3)  # type: ignore[call-overload]

    key = tm.Key[int, date](partition="{device}", row="{day}")


# ---------------------------------------------------------------------------------- building and setting
Product("a", "b", "c", "d")  # type: ignore[arg-type]
Product("a", "b", "c")  # type: ignore[call-arg]
Product("a", "b", "c", Decimal(1), colour="red")  # type: ignore[call-arg]
Product("a", "b", "c", None)  # type: ignore[arg-type]
User.key("ann")  # type: ignore[arg-type]


def setting(product: Product, reading: Reading, user: User) -> None:
    product.price = 7.99  # type: ignore[assignment]
    product.price = None  # type: ignore[assignment]
    product.prize = Decimal(1)  # type: ignore[attr-defined]
    product.prize  # type: ignore[attr-defined]
    product.tags = ["a", 3]  # type: ignore[list-item]
    user.plan = "gold"  # type: ignore[assignment]
    user.place = (1.0, 2.0)  # type: ignore[assignment]
    Bounded("ann", "3")  # type: ignore[arg-type]
    Bounded("ann").limit = 3  # type: ignore[assignment]
    reading.taken_at = date(2023, 1, 1)  # type: ignore[assignment]
    product.name + 1  # type: ignore[operator]
    product["name"]  # type: ignore[index]
    dict(product)  # type: ignore[call-overload]
    product.replace(Product.name.set(3))  # type: ignore[arg-type]
    product.replace(Reading.count.set(3))  # type: ignore[arg-type]
    product.manufacturer.upper()  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------- keys and indexes
Product.key("a")  # type: ignore[call-arg]
Product.key("a", 3)  # type: ignore[arg-type]
Product.key("a", "b", "c")  # type: ignore[call-arg]
DailyClimate.key("s", "2023-10-27")  # type: ignore[arg-type]
Product.by_maker(3)  # type: ignore[arg-type]
Product.by_maker("Ace", 3.5)  # type: ignore[arg-type]
Product.by_maker("Ace", Decimal(1), "b")  # type: ignore[call-arg]
User.three("a", "b")  # type: ignore[arg-type]
User.six("a", date.min, 7)  # type: ignore[arg-type]

# ---------------------------------------------------------------------------------- predicates
Product.prize  # type: ignore[attr-defined]
Product.price > "x"  # type: ignore[operator]
Product.price.between(1.5, 2.5)  # type: ignore[arg-type]
Product.name.is_in([1, 2])  # type: ignore[list-item]
Product.price.startswith("1")  # type: ignore[misc]
Product.price.contains("1")  # type: ignore[misc]
Product.name.date()  # type: ignore[misc]
Product.name.floor(timedelta(minutes=15))  # type: ignore[misc]
Reading.taken_at.floor(15)  # type: ignore[arg-type]
Reading.taken_at.date(timedelta(hours=1))  # type: ignore[arg-type]
Reading.taken_at.floor(timedelta(minutes=15)) > "2023-01-01T00:00"  # type: ignore[operator]
(Product.price > Decimal(1)) & (Reading.temperature > 2)  # type: ignore[operator]
(Product.price > Decimal(1)) | True  # type: ignore[operator]
User.home.at(lambda home: home.town)  # type: ignore[attr-defined]
User.place.at(lambda place: place.north)  # type: ignore[attr-defined]
Product.price.set("x")  # type: ignore[arg-type]
Product.name.set(None)  # type: ignore[arg-type]
Reading.count.add("1")  # type: ignore[arg-type]
Product.name * 2  # type: ignore[operator]
Product.price * 2.5  # type: ignore[operator]
Product.price - timedelta(1)  # type: ignore[operator]
Product.tags + 1  # type: ignore[operator]
Reading.taken_at + 1  # type: ignore[operator]
Reading.taken_at * 2  # type: ignore[operator]
Reading.taken_at + Reading.taken_at  # type: ignore[operator]
Product.price + (Reading.count * 1)  # type: ignore[operator]
Reading.count.set(Reading.count / 2)  # type: ignore[arg-type]
Product.price.set(Product.name)  # type: ignore[arg-type]
Reading.count.set(Reading.temperature * 2)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------- JSON
tm.to_json(Product)  # type: ignore[arg-type]
tm.to_dict({"a": 1})  # type: ignore[arg-type]
tm.from_json(Decimal, b"{}")  # type: ignore[type-var]
tm.from_json(Product, {"a": 1})  # type: ignore[arg-type]
tm.from_dict(Product, b"{}")  # type: ignore[arg-type]
tm.json_schema(Decimal)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------- the store
def verbs(store: tm.Store, product: Product, climate: DailyClimate) -> None:
    store.insert("x")  # type: ignore[arg-type]
    store.insert(climate)  # type: ignore[arg-type]
    store.replace(product, "*")  # type: ignore[call-arg]
    store.get("books")  # type: ignore[arg-type]
    store.get(Product.key("a", "b"), "c")  # type: ignore[arg-type]
    store.group(Product.key("a", "b"))  # type: ignore[type-var]
    store[Product.by_name("x")]  # type: ignore[index]
    store.get(Product.key("a", "b")).price  # type: ignore[union-attr]
    store.merge(Product.key("a", "b"), Reading.count.add(1))  # type: ignore[misc]
    store.move(product, Reading.key("s", datetime.now()))  # type: ignore[misc]
    store.update(Product.key("a", "b"), lambda p: p.name)  # type: ignore[arg-type, return-value]
    store.partition("books")  # type: ignore[arg-type]
    store.transaction(True)  # type: ignore[call-arg]
    store.insert_many([climate])  # type: ignore[list-item]
    tm.open("shop.db", [Product])  # type: ignore[call-arg]
    tm.open("shop.db", models=[str])  # type: ignore[list-item]
    tm.open("shop.db", models=[Product], durability="none")  # type: ignore[arg-type]
    tm.open("shop.db", models=[Product], observe=show)  # type: ignore[arg-type]
    tm.open("shop.db", models=[Product], slow="1 s")  # type: ignore[arg-type]
    tm.open("shop.db", models=[Product], migrations=[Product])  # type: ignore[list-item]
    tm.open_async("shop.db", models=[Product], migrations=5)  # type: ignore[arg-type]


def queries(store: tm.Store) -> None:
    store.query(Product).where(Reading.temperature > 40)  # type: ignore[arg-type]
    store.query(Product).where(True)  # type: ignore[arg-type]
    store.query(Product).where(name="Dune")  # type: ignore[arg-type]
    store.query(Product).filter(Product.name == "Dune")  # type: ignore[attr-defined]
    store.query(Product).all()  # type: ignore[attr-defined]
    len(store.query(Product))  # type: ignore[arg-type]
    store.query(Product)[0]  # type: ignore[index]
    Product.name.like("D%")  # type: ignore[attr-defined]
    store.query(Product).order_by(Reading.taken_at.desc())  # type: ignore[arg-type]
    store.query(Product).limit("10")  # type: ignore[arg-type]
    store.query(str)  # type: ignore[type-var]
    store.query(Product).page("10")  # type: ignore[arg-type]
    store.query(Product).select("name")  # type: ignore[call-overload]
    store.query(DailyClimate).delete()  # type: ignore[misc]
    store.query(DailyClimate).update(mean=1.0)  # type: ignore[misc]
    store.query(Product).update(Reading.count.add(1))  # type: ignore[arg-type]
    store.query(Product).update(lambda p: p.name)  # type: ignore[arg-type, return-value]
    store.query(Product).update(name="x", resume=3)  # type: ignore[call-overload]
    store.query(Product).select(Product.name).delete()  # type: ignore[attr-defined]
    store.query(Product).first().price  # type: ignore[union-attr]
    for (name,) in store.query(Product).select(Product.name):
        name.real  # type: ignore[attr-defined]
    for reading in store.query(Reading):
        reading.price  # type: ignore[attr-defined]
    UserId(3)  # type: ignore[arg-type]


def columns(store: tm.Store) -> None:
    store.insert_columns(DailyClimate, {})  # type: ignore[type-var]
    store.clear(DailyClimate)  # type: ignore[arg-type]
    store.expire(DailyClimate)  # type: ignore[arg-type]
    store.expire(Product, 10)  # type: ignore[call-arg]
    store.expire(limit="10")  # type: ignore[arg-type]
    store.partitions("Products")  # type: ignore[arg-type]
    store.query(Product).where(next(store.partitions(Reading)))  # type: ignore[arg-type]
    store.insert_columns({}, Product)  # type: ignore[arg-type]
    store.query(Product).to_arrow(decimals={"price": 2})  # type: ignore[dict-item]
    store.query(Product).arrow_batches("x")  # type: ignore[arg-type]


def several_classes(store: tm.Store) -> None:
    both = store.query(Employee, Department)
    both.where(Headcount.employees > 3)  # type: ignore[arg-type]
    both.where(True)  # type: ignore[arg-type]
    both.where((Employee.number > 3) & (Department.city == "Oslo"))  # type: ignore[operator]
    both.order_by(Headcount.employees)  # type: ignore[arg-type]
    both.order_by(Headcount.employees.desc())  # type: ignore[arg-type]
    both.backwards(True)  # type: ignore[call-arg]
    both.one().number  # type: ignore[union-attr]
    store.query(Employee, str)  # type: ignore[type-var]
    store.query(Employee, Employee.by_city("Oslo"))  # type: ignore[call-overload]


def totals(store: tm.Store) -> None:
    store.query(Product).sum("price")  # type: ignore[arg-type]
    store.query(Product).avg(Product.name)  # type: ignore[arg-type]
    store.query(Product).max(3)  # type: ignore[arg-type]
    store.query(Product).group_by("name")  # type: ignore[call-overload]
    store.query(Product).group_by()  # type: ignore[call-overload]
    store.query(Product).group_by(Product.name).sum("price")  # type: ignore[arg-type]
    store.query(Product).group_by(Product.name).count()["x"].upper()  # type: ignore[attr-defined]
    store.query(Product).sum(Product.price) + 1  # type: ignore[operator]
    store.query(Product).budget(3)  # type: ignore[call-arg]
    store.query(Product).budget(timeout="3")  # type: ignore[arg-type]
    store.query(Product).select(Product.name).where(Product.name == "x")  # type: ignore[attr-defined]
    store.query(Product).select(Product.price * 2)  # type: ignore[call-overload]
    store.query(Product).group_by(Product.tags.each())  # type: ignore[call-overload]


def fields_of_another_class(store: tm.Store) -> None:
    products = store.query(Product)
    products.select(Reading.count)  # type: ignore[arg-type]
    products.select(Product.name, Product.price, Reading.count)  # type: ignore[arg-type]
    products.sum(Reading.count)  # type: ignore[arg-type]
    products.sum(Reading.count * 2)  # type: ignore[arg-type]
    products.avg(Reading.temperature)  # type: ignore[arg-type]
    products.min(Reading.taken_at)  # type: ignore[arg-type]
    products.group_by(Reading.device_id)  # type: ignore[arg-type]
    products.group_by(Product.name, Reading.device_id)  # type: ignore[arg-type]
    products.group_by(Product.name).sum(Reading.count)  # type: ignore[arg-type]
    products.group_by(Product.name).avg(Reading.count)  # type: ignore[arg-type]
    products.where(Product.name == Reading.device_id)  # type: ignore[arg-type]
    products.where(Product.name < Reading.device_id)  # type: ignore[arg-type]
    tm.sum(Product.price, of=Employee)  # type: ignore[misc]
    tm.count(of=Employee, where=Product.price > Decimal(1))  # type: ignore[misc]


def caring(store: tm.Store) -> None:
    store.repair().ok = True  # type: ignore[misc]
    store.compact(True)  # type: ignore[call-arg]
    store.repair(True)  # type: ignore[call-arg]
    tm.restore("shop.bak")  # type: ignore[call-arg]
    tm.restore("shop.bak", 3)  # type: ignore[arg-type]
    tm.restore("shop.bak", "shop.db", True)  # type: ignore[call-arg]


async def asynchronously(store: tm.AsyncStore, product: Product, climate: DailyClimate) -> None:
    store.insert(product).upper()  # type: ignore[attr-defined]
    (await store.get(Product.key("a", "b"))).price  # type: ignore[union-attr]
    store[Product.key("a", "b")].price  # type: ignore[attr-defined]
    await store.insert(climate)  # type: ignore[arg-type]
    await store.merge(Product.key("a", "b"), Reading.count.add(1))  # type: ignore[misc]
    await store.update(Product.key("a", "b"), lambda p: p.name)  # type: ignore[arg-type, return-value]
    await store.insert_many([climate])  # type: ignore[list-item]
    store.query(Product).where(Reading.temperature > 40)  # type: ignore[arg-type]
    await store.query(Product).first().price  # type: ignore[attr-defined]
    await store.query(Product).sum("price")  # type: ignore[arg-type]
    await store.query(Product).sum(Reading.count)  # type: ignore[arg-type]
    await store.query(Product).group_by(Product.name).sum(Reading.count)  # type: ignore[arg-type]
    store.query(Product).select(Reading.count)  # type: ignore[arg-type]
    await store.query(Product)  # type: ignore[misc]
    for _ in store.query(Product):  # type: ignore[attr-defined]
        pass
    with store.transaction():  # type: ignore[attr-defined]
        pass
    async with store.transaction() as tx:
        tx.insert(climate)  # type: ignore[arg-type]
    tm.copy(store, store)  # type: ignore[arg-type]
    await tm.open_async("shop.db", models=[str])  # type: ignore[list-item]
    tm.open_async("shop.db", models=[Product]).insert(product)  # type: ignore[attr-defined]


def parts(store: tm.Store) -> None:
    key = Traffic.key("a")
    Traffic.hours["05"].set("x")  # type: ignore[arg-type]
    Traffic.hours[5]  # type: ignore[index]
    Traffic.home.at(lambda home: home.town)  # type: ignore[attr-defined]
    Traffic.home.at(lambda home: home.city).set(3)  # type: ignore[arg-type]
    store.merge(key, Traffic.more["x"].set(1)).id  # type: ignore[attr-defined]
    store.merge(key, returning=1)  # type: ignore[call-overload]
    store.merge(key, or_insert=5)  # type: ignore[call-overload]
    Basket.tags.append(3)  # type: ignore[arg-type]
    Basket.steps.extend(["x"])  # type: ignore[list-item]
    Basket.tags[0].set(3)  # type: ignore[arg-type]
    Basket.colors[0]  # type: ignore[misc]
    store.merge(key, Basket.tags.append("x"))  # type: ignore[misc]
    store.query(Traffic).with_(Basket, by=Basket.id)  # type: ignore[arg-type]
    store.query(Traffic).with_(str, by=Traffic.id)  # type: ignore[type-var]
    for _, basket in store.query(Traffic).with_(Basket, by=Traffic.id):
        basket.id  # type: ignore[union-attr]
    store.query(Traffic).move_to(str)  # type: ignore[arg-type]
    store.query(Traffic).move_to(lambda traffic: traffic.id)  # type: ignore[arg-type]
    patch = tm.patch(Product, "{}")
    tm.patch(Product("a", "b", "c", Decimal(1)), "{}")  # type: ignore[arg-type]
    tm.patch(Product, [1])  # type: ignore[arg-type]
    store.merge(key, *patch)  # type: ignore[misc]
    store.query(Traffic).update(*patch)  # type: ignore[arg-type]
    store.run(5)  # type: ignore[arg-type]
    store.run(lambda: 5)  # type: ignore[arg-type, misc]
    store.query(Traffic.by_color(5))  # type: ignore[arg-type]
    with store.transaction() as tx:
        tx.require("a")  # type: ignore[arg-type]


def written(store: tm.Store, since: datetime) -> None:
    tm.timestamp("Product")  # type: ignore[arg-type]
    tm.timestamp(Product) > 3  # type: ignore[operator]
    store.query(Product).where(tm.timestamp(Reading) > since)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------- migration scripts
@tm.migration(after=3, old=[old.Product], new=[new.Product])  # type: ignore[arg-type]
def migrate(m: tm.Migration) -> None:
    m.rename(old.Product.price, new.Product.price)  # type: ignore[misc]
    m.rename(old.Product.maker, new.Product.maker)  # type: ignore[attr-defined]
    m.convert(old.Product.price, new.Product.price, float)  # type: ignore[arg-type]
    m.convert(old.Product.note, new.Product.note, float)  # type: ignore[arg-type]
    m.convert(old.Product.price, new.Product.price, Decimal, back=float)  # type: ignore[arg-type]
    m.fill(new.Product.rank, lambda p: p.id)  # type: ignore[arg-type, return-value]
    m.fill(new.Product.rank, lambda p: p.size)  # type: ignore[attr-defined]
    m.fill(new.Product, lambda p: 3)  # type: ignore[arg-type]
    m.rekey(old.Product, "Product")  # type: ignore[arg-type]
    m.rewrite(old.Product, lambda p: p.id, into=new.Label)  # type: ignore[call-overload]
    m.rewrite(old.Product, lambda p: p, into=new.Product)  # type: ignore[call-overload]
    m.rewrite(old.Product, label, into=new.Product)  # type: ignore[call-overload]
    m.rewrite(old.Product, several, into=new.Label)  # type: ignore[call-overload]
    m.rewrite(old.Product, lambda p: p.id, into=[new.Label, new.Product])  # type: ignore[arg-type, return-value]
    m.rewrite(old.Product, label, into=[Decimal])  # type: ignore[list-item]
    m.rewrite(old.Product, labels, into=new.Product)  # type: ignore[call-overload]
    m.rewrite(old.Product, lambda p: [p], into=new.Product)  # type: ignore[call-overload]
    m.rewrite(old.Product, label)  # type: ignore[call-overload]
    m.join(old.Product, new.Label, both, into=new.Label)  # type: ignore[call-overload]
    m.join(old.Product, old.Product, both, into=new.Product)  # type: ignore[call-overload]
    m.resolve(new.Product.rank, lambda products: products)  # type: ignore[arg-type]
    m.drop("maker")  # type: ignore[arg-type]


@tm.migration(after=None, old=[], new=[])  # type: ignore[arg-type]
def no_steps() -> None: ...


def parts_of_queries(store: tm.Store) -> None:
    store.query(Product).split()  # type: ignore[call-arg]
    store.query(Product).split("4")  # type: ignore[arg-type]
    store.query(Product).part(4)  # type: ignore[arg-type]
    store.query(Product, Reading).split("4")  # type: ignore[arg-type]
    for product in store.query(Product).split(4):
        product.town  # type: ignore[attr-defined]


class Document(tm.Entity, table="Documents"):
    site: tm.Field[str]
    path: tm.Field[tuple[str, ...]]

    key = tm.Key[str, tuple[str, ...]](partition="{site}", row="{path}")


def hierarchies(store: tm.Store) -> None:
    Document.path.startswith("a")  # type: ignore[arg-type]
    Document.path.startswith((1,))  # type: ignore[arg-type]
    Document.site.startswith(("a",))  # type: ignore[arg-type]
    Document.path > "a"  # type: ignore[operator]
    Document.key("a", "b")  # type: ignore[arg-type]


def own_scalars(store: tm.Store) -> None:
    tm.register(Slug, str, store=lambda slug: slug.name, load=Slug)  # type: ignore[attr-defined]
    tm.register(Slug, int, store=lambda slug: 1, load=Slug)  # type: ignore[arg-type]
    tm.register("Slug", str, store=str, load=str)  # type: ignore[arg-type]
    Article.key("a", "b")  # type: ignore[arg-type]
    store.query(Article).max(Article.slug).name  # type: ignore[union-attr]


def strategies() -> None:
    entities(DailyClimate)  # type: ignore[type-var]
    entities("Product")  # type: ignore[arg-type]
    keys(DailyClimate)  # type: ignore[type-var]
    entities(Product).example().colour  # type: ignore[attr-defined]
    keys(Product).example().name  # type: ignore[attr-defined]


def fixtures(tm_clock: Clock) -> None:
    tm_clock.tick("a minute")  # type: ignore[arg-type]
    tm_clock.now = datetime.now()  # type: ignore[misc]


def accounts() -> None:
    tm.open("azure://shop", models=[Product], prefix=5)  # type: ignore[arg-type]
    tm.open("azure://shop", models=[Product], adopt=5)  # type: ignore[arg-type]
    tm.open("azure://shop", models=[Product], adopt=[Product])  # type: ignore[list-item]
    tm.open_async("azure://shop", models=[Product], adopt={"Products": True})  # type: ignore[arg-type]


def variants(store: tm.Store) -> None:
    Product.variant(202611)  # type: ignore[arg-type]
    Product.variant()  # type: ignore[call-arg]
    store.use([Product])  # type: ignore[arg-type]
    store.use("Product")  # type: ignore[arg-type]
    store.use(models=[Product])  # type: ignore[call-arg]


def copies(store: tm.Store) -> None:
    tm.copy(store, store, only=Product)  # type: ignore[arg-type]
    tm.copy(store, store, only=[DailyClimate])  # type: ignore[list-item]
    tm.copy(store, store, only=["Product"])  # type: ignore[list-item]


def drops(store: tm.Store) -> None:
    store.drop(DailyClimate)  # type: ignore[arg-type]
    store.drop("Product")  # type: ignore[arg-type]
    store.drop(Product, timeout=5)  # type: ignore[call-arg]


def families(store: tm.Store) -> None:
    Dog("Rex", 3, updated=now())  # type: ignore[call-arg]
    Dog("Rex")  # type: ignore[call-arg]
    Dog.key(5)  # type: ignore[arg-type]
    Cat.old("x")  # type: ignore[arg-type]
    store.query(Animal).where(Product.price > Decimal(1))  # type: ignore[arg-type]
    store.query(Animal).first().walks  # type: ignore[union-attr]
    store.get(Animal)  # type: ignore[arg-type]


class Unstamped(tm.Entity):
    at: tm.Field[datetime] = tm.field(on_write=lambda: 5)  # type: ignore[arg-type, return-value]
    by: tm.Field[str] = tm.field(on_write=lambda: "ann", default="x")  # type: ignore[call-overload]
