"""A store with a bit of everything, and all that is done with it."""

from __future__ import annotations

import enum
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import apsw
import attrs

import tablemapper as tm


class Kind(enum.Enum):
    A = "a"
    B = "b"


@attrs.define
class Address:
    city: str = ""
    rent: Decimal = Decimal(0)
    rooms: list[int] = attrs.field(factory=list)
    annex: Address | None = None


class Item(tm.Entity, table="Items", type="item"):
    p: tm.Field[str]
    r: tm.Field[str]
    num: tm.Field[int] = tm.field(default=0)
    name: tm.Field[str | None] = tm.field(default=None)
    price: tm.Field[Decimal | None] = tm.field(default=None)
    weight: tm.Field[float | None] = tm.field(default=None)
    at: tm.Field[datetime] = tm.field(default=datetime(2024, 1, 1, tzinfo=UTC))
    span: tm.Field[timedelta | None] = tm.field(default=None)
    day: tm.Field[date | None] = tm.field(default=None)
    clock: tm.Field[time | None] = tm.field(default=None)
    kind: tm.Field[Kind] = tm.field(default=Kind.A)
    code: tm.Field[UUID | None] = tm.field(default=None)
    raw: tm.Field[bytes | None] = tm.field(default=None)
    flag: tm.Field[bool] = tm.field(default=False)
    text: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    home: tm.Field[Address | None] = tm.field(default=None)
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, str](partition="{p}", row="{r}")
    by_name = tm.Index[str, Decimal](partition="{name}", row="{price}", include=("num", "text"))
    by_day = tm.Index[datetime](partition="{at:%Y-%m}", row="{at:desc}")
    by_tag = tm.Index[str](partition="{tags}")
    by_city = tm.Index[str, float](partition="{home.city}", row="{weight}")
    by_code = tm.Index[UUID](partition="{code}", unique=True)
    dear = tm.Index[Kind, timedelta](partition="{kind}", row="{span}", where=lambda i: i.price > Decimal(1))  # type: ignore[type-var]


class Special(tm.Entity, table="Items"):
    p: tm.Field[str]
    number: tm.Field[int]
    num: tm.Field[int] = tm.field(default=1)

    key = tm.Key[str, int](partition="{p}", row=("special", "{number}"))


class Daily(tm.Aggregate, of=Item, table="Days"):
    p: tm.Field[str] = tm.group_by(Item.p)
    day: tm.Field[date] = tm.group_by(Item.at.date())
    items: tm.Field[int] = tm.count()
    dear: tm.Field[int] = tm.count(where=Item.price > Decimal(1))
    total: tm.Field[Decimal | None] = tm.sum(Item.price)
    rent: tm.Field[Decimal | None] = tm.sum(Item.home.at(lambda home: home.rent))  # type: ignore[union-attr]
    mean: tm.Field[float | None] = tm.avg(Item.weight)
    units: tm.Field[int] = tm.sum(Item.num)
    long: tm.Field[timedelta | None] = tm.sum(Item.span)
    least: tm.Field[Decimal | None] = tm.min(Item.price)
    most: tm.Field[float | None] = tm.max(Item.weight)
    first: tm.Field[datetime | None] = tm.min(Item.at)
    ever: tm.Field[str | None] = tm.max_ever(Item.name)

    key = tm.Key[str, date](partition="{p}", row="{day}")


class Monthly(tm.Aggregate, of=Item, table="Months"):
    """Comes later: it is built over what is there."""

    month: tm.Field[str] = tm.group_by(Item.at.truncate("%Y-%m"))
    items: tm.Field[int] = tm.count()
    total: tm.Field[Decimal | None] = tm.sum(Item.price)
    least: tm.Field[str | None] = tm.min(Item.name)

    key = tm.Key[str](partition="{month}")


MODELS: list[type[Any]] = [Item, Special, Daily]
START = datetime(2024, 1, 31, 22, 30, tzinfo=UTC)
COUNT = 6


def item(n: int) -> Item:
    full = n % 4 != 3
    return Item(
        f"p{n % 2}", f"r{n}", n, f"n{n % 3}" if full else None, Decimal(n) / 4 if full else None, n / 8,
        START + timedelta(hours=n), timedelta(seconds=n), date(2024, 1, 1 + n), time(n), Kind.B if n % 2 else Kind.A,
        UUID(int=n) if full else None, bytes([n]), n % 2 == 0, "long " * (200 * (n % 2)), [f"t{n % 3}", "t"],
        Address("Rome" if n % 2 else "Oslo", Decimal("1.5"), [n], Address("x")) if full else None,
        tm.Extra(color="red", size=n, seen=START),
    )  # fmt: skip


def sound(path: str) -> None:
    """Make a store with a bit of everything."""
    with tm.open(path, models=MODELS, durability="relaxed") as store:
        store.insert_many([item(n) for n in range(COUNT)])
        store.insert_many([Special("p0", n, n) for n in range(3)])


def readings(store: tm.Store) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield everything that reads."""
    keys = [Item.key(f"p{n % 2}", f"r{n}") for n in range(COUNT)]
    groups = [Daily.key(p, day) for p in ("p0", "p1") for day in (date(2024, 1, 31), date(2024, 2, 1))]
    scan, p0 = store.query(Item).allow_scan(), store.query(Item).where(Item.p == "p0")
    days = store.query(Daily).allow_scan()
    for key in (*keys, *groups, Special.key("p0", 1)):
        yield "get", lambda key=key: repr(store.get(key))  # type: ignore[misc]
    yield "get_many", lambda: store.get_many(keys)
    yield "exists", lambda: [store.exists(key) for key in keys]
    yield "scan", lambda: repr(list(scan))
    yield "scan of another class", lambda: repr(list(store.query(Special).allow_scan()))
    yield "scan of groups", lambda: repr(list(days))
    yield "partition", lambda: repr(list(store.partition(Item.p == "p0")))
    yield "mixed", lambda: repr(list(store.query(Item, Special).where(Item.p == "p0").order_by(Item.p, Item.num)))  # type: ignore[type-var]
    conditions = (
        Item.price > Decimal(1), Item.price == Decimal("1.5"), Item.weight > 0.5, Item.span > timedelta(seconds=3),
        Item.at.date() == date(2024, 2, 1), Item.day > date(2024, 1, 3), Item.clock > time(3), Item.kind == Kind.A,
        Item.code == UUID(int=4), Item.raw == b"\x01", ~(Item.flag == True), Item.text.contains("long"),  # noqa: E712
        Item.name.startswith("n"), Item.tags.contains("t1"), Item.home.at(lambda h: h.city) == "Rome",  # type: ignore[union-attr]
        Item.home.at(lambda h: h.rent) > Decimal(1), Item.more["color"] == "red", Item.more["size"] > 3, Item.num < Item.weight,  # type: ignore[union-attr, type-var]
    )  # fmt: skip
    for number, condition in enumerate(conditions):
        yield f"condition {number}", lambda condition=condition: repr(list(scan.where(condition)))  # type: ignore[misc]
        yield f"counted {number}", lambda condition=condition: scan.where(condition).count()  # type: ignore[misc]
    for name in ("num", "name", "price", "weight", "at", "span", "kind", "day", "clock", "code"):
        attr = getattr(Item, name)
        yield f"order by {name}", lambda attr=attr: scan.order_by(attr.desc()).page(5)  # type: ignore[misc]
        yield f"group by {name}", lambda attr=attr: p0.group_by(attr).count()  # type: ignore[misc]
        yield f"least {name}", lambda attr=attr: (p0.min(attr), p0.group_by(Item.kind).max(attr))  # type: ignore[misc]
    for name in ("num", "price", "weight", "span"):
        attr = getattr(Item, name)
        yield f"sum of {name}", lambda attr=attr: (scan.where(Item.num > 2).sum(attr), p0.avg(attr))  # type: ignore[misc]
        yield f"sums of {name}", lambda attr=attr: scan.group_by(Item.p, Item.at.date()).sum(attr)  # type: ignore[misc]
    yield "nested sum", lambda: scan.sum(Item.home.at(lambda h: h.rent))  # type: ignore[union-attr]
    for name in ("items", "total", "mean", "units", "long", "least", "most", "first", "ever"):
        attr = getattr(Daily, name)
        yield f"groups by {name}", lambda attr=attr: repr(list(days.order_by(attr.desc())))  # type: ignore[misc]
        yield f"greatest {name}", lambda attr=attr: days.max(attr)  # type: ignore[misc]
    yield (
        "sum of sums",
        lambda: (days.sum(Daily.total), days.sum(Daily.units), days.sum(Daily.long), days.avg(Daily.mean)),
    )
    yield "select", lambda: list(scan.select(Item.price, Item.home.at(lambda h: h.city), Item.at.date(), Item.tags))  # type: ignore[union-attr]
    for found in (
        Item.by_name("n1"), Item.by_tag("t1"), Item.by_city("Rome"), Item.by_code(UUID(int=4)), Item.dear(Kind.A),  # type: ignore[arg-type]
    ):  # fmt: skip
        yield f"index {found.name}", lambda found=found: repr(list(store.query(found)))  # type: ignore[misc]
        yield f"keys of {found.name}", lambda found=found: list(store.query(found).select(Item.p, Item.r, Item.num))  # type: ignore[misc]
    yield "times", lambda: list(scan.where(Item.at >= START, Item.at < START + timedelta(hours=5)))
    yield "pages", lambda: [page.items for page in scan.order_by(Item.price).pages(4)]
    yield "budget", lambda: list(scan.where(Item.price > Decimal(1)).budget(examined=1000))
    yield "explain", lambda: str(p0.where(Item.price > Decimal(1)).explain())
    yield "check", lambda: str(store.check())


def writings(store: tm.Store, folder: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield everything that writes."""
    keys = [Item.key(f"p{n % 2}", f"r{n}") for n in range(COUNT)]

    def replace(key: Any) -> None:
        entity = store.get(key)
        if entity is not None:
            store.replace(entity)

    def change(key: Any) -> None:
        def by_one(entity: Any) -> Any:
            entity.num = 7
            return entity

        store.update(key, by_one)

    def move(key: Any) -> None:
        entity = store.get(key)
        if entity is not None:
            store.move(entity, Item.key(key.partition, f"{key.row}-moved"))

    def together() -> None:
        with store.transaction() as tx:
            tx.merge(keys[0], price=Decimal(2))
            tx.upsert(item(2))
            tx.delete(keys[3])

    p0 = store.query(Item).where(Item.p == "p0")
    yield "insert", lambda: store.insert(Item("p0", "new", 3, "n1", Decimal(1), 0.25, tags=["t1"]))
    yield "insert another", lambda: store.insert(Special("p0", 9))
    yield (
        "insert_many",
        lambda: store.insert_many([Item(p, f"more{n}", n, f"n{n}") for n in range(3) for p in ("p0", "p1")]),
    )
    yield "insert_many atomic", lambda: store.insert_many([Item("p1", f"all{n}", n) for n in range(3)], atomic=True)
    for key in keys:
        yield "merge", lambda key=key: store.merge(key, price=Decimal(3), weight=0.75, name="n0", tags=["t", "u"])  # type: ignore[misc]
        yield "add", lambda key=key: store.merge(key, Item.num.add(1))  # type: ignore[misc]
        yield "merge a time", lambda key=key: store.merge(key, at=START, home=Address("Bonn"))  # type: ignore[misc]
        yield "replace", lambda key=key: replace(key)  # type: ignore[misc]
        yield "update", lambda key=key: change(key)  # type: ignore[misc]
    yield "transaction", together
    yield "move", lambda: move(keys[1])
    yield "upsert", lambda: store.upsert(item(3))
    yield "upsert and merge", lambda: store.upsert(Item("p1", "r5", 5), merge=True)
    yield "upsert_many", lambda: store.upsert_many([item(n) for n in range(COUNT)])
    yield "update by query", lambda: p0.where(Item.price > Decimal(0)).update(price=Item.price * 2)  # type: ignore[operator]
    yield "update by function", lambda: p0.update(lambda entity: entity.replace(weight=None))
    yield "update by name", lambda: p0.update(Item.num.add(1), resume="run")
    yield "delete", lambda: [store.delete(key) for key in keys[4:]]
    yield "delete an entity", lambda: [store.delete(entity) for entity in store.query(Item).where(Item.p == "p1")]
    yield "delete by query", lambda: p0.delete()
    yield "delete_many", lambda: store.delete_many(keys[:3])
    yield "check after", lambda: str(store.check())
    yield "backup", lambda: store.backup(f"{folder}/copy.db")


Try = Callable[[str, Callable[[], object]], bool]


def opened(path: str, attempt: Try, models: list[type[Any]], **options: Any) -> tm.Store | None:
    """Return a store over a file, if that can be opened."""
    stores: list[tm.Store] = []
    options |= {"models": models, "durability": "relaxed", "timeout": 0.2}
    return stores[0] if attempt("open", lambda: stores.append(tm.open(path, **options))) else None


def migrate(path: str, scripts: list[Any], **options: Any) -> tm.reports.MigrationReport:
    """Run migrations, and let nobody else have a turn."""
    return tm.migrate(path, scripts, hold=0.0, rest=0.0, durability="relaxed", timeout=0.2, **options)


def use(path: str, folder: str, attempt: Try, rnd: random.Random, spoil: Callable[[], object] | None = None) -> None:
    """Try on a file half of all that can be done, whichever that is.

    Args:
        path: the file.
        folder: for a backup.
        attempt: tries one operation, and tells whether it succeeded.
        rnd: decides which half.
        spoil: damages the file once it is open.
    """
    if (store := opened(path, attempt, [*MODELS, Monthly] if rnd.random() < 0.2 else MODELS)) is not None:
        if spoil is not None:
            list(store.query(Item).allow_scan())
            spoil()
        for name, operation in (*readings(store), *writings(store, folder)):
            if rnd.random() < 0.5 or name in ("check", "insert", "backup"):
                attempt(name, operation)
        attempt("close", store.close)


def raw(path: str, attempt: Try) -> None:
    """Do without the library what it does with a file: the control, which must see what is wrong."""

    def read() -> None:
        db = apsw.Connection(path)
        try:
            for (table,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
                rows = db.execute(f'SELECT * FROM "{table}"').fetchall()
                if table == "Items":
                    assert [Decimal(row[6] or 0) + 1 for row in rows]
            for _, form in db.execute("SELECT name, form FROM tablemapper_catalogue"):
                json.loads(form)
        finally:
            db.close()

    attempt("read", read)
