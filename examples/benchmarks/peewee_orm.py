"""peewee, as its documentation says to use it for speed.

Bulk: ``insert_many`` of tuples, 1,000 at a time. 50 together: ``bulk_create``; ``get``, change, ``save`` of the two fields
that changed; ``delete_instance``. The indexes are SQLite's own, the daily totals an upsert for each day of a transaction.
It does less than ours: no ETag, no exact sums, no validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime
from typing import Any

import peewee

from .contestant import CACHE, CHECKPOINT, Durability
from .data import FIELDS, PLACED_AT, TOTAL, Facts

_ROWS = 1_000  # of one INSERT


class Order(peewee.Model):
    customer = peewee.TextField()
    placed_at = peewee.DateTimeField()
    order_id = peewee.TextField()
    sku = peewee.TextField()
    status = peewee.TextField()
    quantity = peewee.IntegerField()
    total = peewee.FloatField()
    note = peewee.TextField()

    class Meta:
        table_name = "orders"
        primary_key = peewee.CompositeKey("customer", "placed_at", "order_id")
        indexes = ((("status", "placed_at"), False), (("sku",), False))
        without_rowid = True


class Daily(peewee.Model):
    day = peewee.DateField(primary_key=True)
    orders = peewee.IntegerField()
    total = peewee.FloatField()


KEY = (Order.customer, Order.placed_at, Order.order_id)
_FIELDS = [getattr(Order, name) for name in FIELDS]


class Peewee:
    title = "peewee"

    def __init__(self, path: str, durability: Durability) -> None:
        self.database = peewee.SqliteDatabase(
            path,
            pragmas={
                "journal_mode": "wal",
                "synchronous": "full" if durability == "full" else "normal",
                "cache_size": -CACHE,
                "wal_autocheckpoint": CHECKPOINT,
            },
        )
        self.database.bind([Order, Daily])
        self.database.create_tables([Order, Daily])

    def _add(self, orders: Iterable[tuple[datetime, int, float]]) -> None:
        days: dict[date, list[Any]] = {}
        for placed_at, count, total in orders:
            day = days.setdefault(placed_at.date(), [0, 0.0])
            day[0] += count
            day[1] += total
        added = peewee.EXCLUDED
        Daily.insert_many([(day, *sums) for day, sums in days.items()]).on_conflict(
            conflict_target=[Daily.day],
            update={Daily.orders: Daily.orders + added.orders, Daily.total: Daily.total + added.total},
        ).execute()

    def _insert_many(self, orders: list[Facts]) -> None:
        with self.database.atomic("IMMEDIATE"):
            for at in range(0, len(orders), _ROWS):
                Order.insert_many(orders[at : at + _ROWS], _FIELDS).execute()
            self._add((facts[PLACED_AT], 1, facts[TOTAL]) for facts in orders)

    bulk = _insert_many

    def insert(self, order: Facts) -> None:
        with self.database.atomic("IMMEDIATE"):
            Order.create(**dict(zip(FIELDS, order, strict=True)))
            self._add([(order[PLACED_AT], 1, order[TOTAL])])

    def insert_batch(self, orders: list[Facts]) -> None:
        with self.database.atomic("IMMEDIATE"):
            Order.bulk_create([Order(**dict(zip(FIELDS, facts, strict=True))) for facts in orders])
            self._add((facts[PLACED_AT], 1, facts[TOTAL]) for facts in orders)

    def _update(self, orders: Iterable[Any], status: str) -> None:
        days = []
        for order in orders:
            order.status = status
            order.total += 1
            order.save(only=["status", "total"])
            days.append((order.placed_at, 0, 1.0))
        self._add(days)

    def update_batch(self, orders: list[Facts], status: str) -> None:
        with self.database.atomic("IMMEDIATE"):
            self._update(map(self.get, orders), status)

    def update_together(self, orders: list[Facts], status: str) -> None:
        # Without the first condition, SQLite as Python has it reads the whole table.
        customers, keys = [facts[0] for facts in orders], peewee.ValuesList([facts[:3] for facts in orders])
        query = Order.select().where(Order.customer.in_(customers), peewee.Tuple(*KEY).in_(keys))
        with self.database.atomic("IMMEDIATE"):
            self._update(list(query), status)

    def delete_batch(self, orders: list[Facts]) -> None:
        with self.database.atomic("IMMEDIATE"):
            days = []
            for order in map(self.get, orders):
                order.delete_instance()
                days.append((order.placed_at, -1, -order.total))
            self._add(days)
            Daily.delete().where(Daily.orders == 0).execute()

    def get(self, order: Facts) -> Any:
        customer, placed_at, order_id = KEY
        return Order.get_or_none(customer == order[0], placed_at == order[1], order_id == order[2])

    def partition(self, customer: str) -> list[Any]:
        return list(Order.select().where(Order.customer == customer).order_by(Order.placed_at, Order.order_id))

    def by_sku(self, sku: str) -> list[Any]:
        return list(Order.select().where(Order.sku == sku).order_by(*KEY))

    def scan(self, least: float) -> list[Any]:
        return list(Order.select().where(Order.total > least).order_by(*KEY))

    def pages(self, status: str) -> Iterator[list[Any]]:
        steps = (Order.placed_at, Order.customer, Order.order_id)
        query = Order.select().where(Order.status == status).order_by(*steps).limit(100)
        after = query
        while page := list(after):
            yield page
            last = page[-1]
            after = query.where(peewee.Tuple(*steps) > (last.placed_at, last.customer, last.order_id))

    def day(self, day: date) -> Any:
        return Daily.get_or_none(Daily.day == day)

    def everything(self) -> Iterable[Any]:
        return Order.select().order_by(*KEY).iterator()

    def checkpoint(self) -> None:
        self.database.execute_sql("PRAGMA wal_checkpoint").fetchall()

    def close(self) -> None:
        self.database.close()
