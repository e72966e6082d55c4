"""Many writes of all kinds: what is maintained is what a recomputation makes of the entities, bit for bit.

Maintained fields, an index over them, groups by day, of a place where clocks change too, and indexes on those, all at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import tablemapper as tm


class Sale(tm.Entity, table="Sales"):
    shop: tm.Field[str]
    number: tm.Field[int]
    at: tm.Field[datetime]
    price: tm.Field[Decimal]
    quantity: tm.Field[int]
    weight: tm.Field[float | None]

    key = tm.Key[str, int](partition="{shop}", row="{number}")
    by_price = tm.Index[Decimal](partition="{shop:shard(4)}", row="{price}")


class Shop(tm.Entity, table="Shops"):
    shop: tm.Field[str]
    name: tm.Field[str]
    sales: tm.Field[int] = tm.count(of=Sale)
    revenue: tm.Field[Decimal] = tm.sum(Sale.price * Sale.quantity, of=Sale)
    weight: tm.Field[float | None] = tm.sum(Sale.weight, of=Sale)
    dearest: tm.Field[Decimal | None] = tm.max(Sale.price, of=Sale)
    first: tm.Field[datetime | None] = tm.min(Sale.at, of=Sale)
    large: tm.Field[int] = tm.count(of=Sale, where=Sale.quantity > 5)

    key = tm.Key[str](partition="{shop}", row="shop")
    by_sales = tm.Index[int, str](partition="all", row=("{sales}", "{name}"), include=("revenue",))


class Day(tm.Aggregate, of=Sale, table="Days"):
    shop: tm.Field[str] = tm.group_by(Sale.shop)
    day: tm.Field[date] = tm.group_by(Sale.at.date())
    sales: tm.Field[int] = tm.count()
    revenue: tm.Field[Decimal] = tm.sum(Sale.price * Sale.quantity)
    mean: tm.Field[float | None] = tm.avg(Sale.weight)

    key = tm.Key[str, date](partition="{shop}", row="{day}")
    by_sales = tm.Index[int](partition="{sales}")


class OsloDay(tm.Aggregate, of=Sale, table="OsloDays"):
    shop: tm.Field[str] = tm.group_by(Sale.shop)
    day: tm.Field[date] = tm.group_by(Sale.at.date("Europe/Oslo"))
    sales: tm.Field[int] = tm.count()
    revenue: tm.Field[Decimal] = tm.sum(Sale.price * Sale.quantity)
    mean: tm.Field[float | None] = tm.avg(Sale.weight)

    key = tm.Key[str, date](partition="{shop}", row="{day}")
    by_sales = tm.Index[int](partition="{sales}")


OSLO = ZoneInfo("Europe/Oslo")
DAYS: dict[Any, Callable[[datetime], date]] = {
    Day: lambda at: at.date(),
    OsloDay: lambda at: at.astimezone(OSLO).date(),
}
"""Aggregates of the fields of `Day`, each with what its days are."""
SHOPS = [f"shop-{number}" for number in range(8)]
STARTS = datetime(2026, 3, 22, tzinfo=UTC), datetime(2026, 10, 19, tzinfo=UTC)
"""A week before clocks change in Europe."""


def sale(rng: random.Random, shop: str, number: int) -> Sale:
    at = rng.choice(STARTS) + timedelta(hours=rng.randrange(24 * 10), microseconds=rng.randrange(10**9))
    price = Decimal(rng.randrange(1, 10**5)).scaleb(-rng.randrange(4))
    weight = None if rng.random() < 0.2 else rng.choice((1e16, 0.1, -1e16, 1e-9, rng.random()))
    return Sale(shop, number, at, price, rng.randrange(1, 9), weight)


def write(rng: random.Random, store: tm.Store, sales: dict[Any, Sale], shops: dict[str, Shop]) -> int:
    """Do one write of some kind, and note what there is after it; return how many entities it wrote."""
    key = rng.choice(SHOPS), rng.randrange(60)
    new = sale(rng, *key)
    match rng.randrange(9):
        case 0:
            store.upsert(new)
            sales[key] = new
        case 1 if key in sales:
            store.replace(new, if_match="*")
            sales[key] = new
        case 2 if key in sales:
            store.merge(Sale.key(*key), at=new.at, weight=new.weight)
            sales[key] = sales[key].replace(at=new.at, weight=new.weight)
        case 3 if key in sales:
            store.delete(Sale.key(*key))
            del sales[key]
        case 4:
            many = {(shop, number): sale(rng, shop, number) for shop in SHOPS for number in range(60, 70)}
            fresh = [one for place, one in many.items() if place not in sales and rng.random() < 0.5]
            store.insert_many(fresh, atomic=rng.random() < 0.3)
            sales |= {(one.shop, one.number): one for one in fresh}
            return len(fresh)
        case 5:
            shops[key[0]] = Shop(key[0], rng.choice("xyz"))
            store.upsert(shops[key[0]])
        case 6 if key[0] in shops:
            store.delete(Shop.key(key[0]))
            del shops[key[0]]
        case 7:
            gone = [place for place in sales if place[0] == key[0] and place[1] >= 60]
            with store.transaction(across_partitions=True) as tx:
                for place in gone:
                    tx.delete(Sale.key(*place))
                    del sales[place]
                tx.upsert(new)
                sales[key] = new
                if key[0] in shops:
                    tx.merge(Shop.key(key[0]), name="renamed")
            return len(gone) + 1
        case 8:
            query = store.query(Sale).where(Sale.shop == key[0], Sale.quantity == 3)
            count = query.update(Sale.price.set(Sale.price + 1))
            for place, one in sales.items():
                if place[0] == key[0] and one.quantity == 3:
                    sales[place] = one.replace(price=one.price + 1)
            return count
        case _:
            return 0
    return 1


def shop_of(sales: list[Sale]) -> tuple[Any, ...]:
    weights = [one.weight for one in sales if one.weight is not None]
    prices = [one.price for one in sales]
    revenue = sum([one.price * one.quantity for one in sales], Decimal(0))
    times = [one.at for one in sales]
    large = sum(one.quantity > 5 for one in sales)
    dearest = max(prices, default=None)
    return len(sales), revenue, math.fsum(weights) if weights else None, dearest, min(times, default=None), large


def day_of(sales: list[Sale]) -> tuple[Any, ...]:
    weights = [one.weight for one in sales if one.weight is not None]
    revenue = sum([one.price * one.quantity for one in sales], Decimal(0))
    return len(sales), revenue, math.fsum(weights) / len(weights) if weights else None


def assert_maintained(store: tm.Store, sales: dict[Any, Sale], shops: dict[str, Shop]) -> None:
    assert store.check().ok, store.check()
    found = {one.shop: one for one in store.query(Shop).allow_scan()}
    assert found.keys() == shops.keys()
    for name, one in found.items():
        expected = shop_of([each for each in sales.values() if each.shop == name])
        values = (one.sales, one.revenue, one.weight, one.dearest, one.first, one.large)
        assert repr(normal(values)) == repr(normal(expected)), name
        assert one in list(store.query(Shop.by_sales(one.sales, one.name)))
    for aggregate, part in DAYS.items():
        groups: dict[Any, list[Sale]] = {}
        for each in sales.values():
            groups.setdefault((each.shop, part(each.at)), []).append(each)
        rows = {(one.shop, one.day): one for one in store.query(aggregate).allow_scan()}
        assert rows.keys() == groups.keys()
        for place, one in rows.items():
            assert repr((one.sales, one.revenue, one.mean)) == repr(day_of(groups[place])), place
            assert one in list(store.query(aggregate.by_sales(one.sales)))


def normal(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return values without the zeros at the end of a Decimal that is no sum: of equal extremes any may be held."""
    return tuple([value.normalize() if at == 3 and value is not None else value for at, value in enumerate(values)])


@pytest.mark.needs("across_partitions", "kept_indexes")
def test_what_is_maintained_is_what_a_recomputation_makes(tmp_path: Path, full_size: bool) -> None:
    rng = random.Random(20260329)
    sales: dict[Any, Sale] = {}
    shops: dict[str, Shop] = {}
    with tm.open(tmp_path / "store.db", models=[Sale, Shop, *DAYS], durability="relaxed") as store:
        written = 0
        most = 100_000 if full_size else 1_000
        checks = iter(range(most // 3, 2 * most, most // 3))
        check = next(checks)
        while written < most:
            written += write(rng, store, sales, shops)
            if written >= check:
                assert_maintained(store, sales, shops)
                check = next(checks)
        assert_maintained(store, sales, shops)
