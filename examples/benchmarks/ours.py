"""Ours: what a user writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime
from typing import Any

import tablemapper as tm

from .contestant import Durability
from .data import Facts


class Order(tm.Entity, table="Orders"):
    customer: tm.Field[str]
    placed_at: tm.Field[datetime]
    order_id: tm.Field[str]
    sku: tm.Field[str]
    status: tm.Field[str]
    quantity: tm.Field[int]
    total: tm.Field[float]
    note: tm.Field[str]

    key = tm.Key[str, datetime, str](partition="{customer}", row=("{placed_at}", "{order_id}"))
    by_status = tm.Index[str, datetime](partition="{status}", row="{placed_at}", include=("total",))
    by_sku = tm.Index[str](partition="{sku}")


class Daily(tm.Aggregate, of=Order, table="Daily"):
    day: tm.Field[date] = tm.group_by(Order.placed_at.date())
    orders: tm.Field[int] = tm.count()
    total: tm.Field[float] = tm.sum(Order.total)

    key = tm.Key[date](partition="all", row="{day}")


class Ours:
    """Entities are built and validated, read and written with their ETags, one verb for each thing that is done."""

    title = "tablemapper"

    def __init__(self, path: str, durability: Durability) -> None:
        self.store = tm.open(path, models=[Order, Daily], durability=durability)

    def bulk(self, orders: list[Facts]) -> None:
        self.store.insert_many(Order(*facts) for facts in orders)

    def insert(self, order: Facts) -> None:
        self.store.insert(Order(*order))

    def insert_batch(self, orders: list[Facts]) -> None:
        with self.store.transaction(across_partitions=True) as tx:
            for facts in orders:
                tx.insert(Order(*facts))

    def update_batch(self, orders: list[Facts], status: str) -> None:
        with self.store.transaction(across_partitions=True) as tx:
            for facts in orders:
                order = tx[Order.key(*facts[:3])]
                order.status = status
                order.total += 1
                tx.replace(order)

    def update_together(self, orders: list[Facts], status: str) -> None:
        with self.store.transaction(across_partitions=True) as tx:
            for order in self.store.get_many(Order.key(*facts[:3]) for facts in orders):
                assert order is not None
                order.status = status
                order.total += 1
                tx.replace(order)

    def delete_batch(self, orders: list[Facts]) -> None:
        with self.store.transaction(across_partitions=True) as tx:
            for facts in orders:
                tx.delete(tx[Order.key(*facts[:3])])

    def get(self, order: Facts) -> Any:
        return self.store.get(Order.key(*order[:3]))

    def partition(self, customer: str) -> list[Any]:
        return list(self.store.query(Order).where(Order.customer == customer))

    def by_sku(self, sku: str) -> list[Any]:
        return list(self.store.query(Order.by_sku(sku)))

    def scan(self, least: float) -> list[Any]:
        return list(self.store.query(Order).where(Order.total > least).allow_scan())

    def pages(self, status: str) -> Iterator[list[Any]]:
        return (page.items for page in self.store.query(Order.by_status(status)).pages(100))

    def day(self, day: date) -> Any:
        return self.store.get(Daily.key(day))

    def everything(self) -> Iterable[Any]:
        return self.store.query(Order).allow_scan()

    def checkpoint(self) -> None:
        self.store._engine.file._connection.wal_checkpoint()  # type: ignore[attr-defined]

    def close(self) -> None:
        self.store.close()
