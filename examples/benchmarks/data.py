"""What is written and asked: the same for every contestant, and the same again for the same seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from operator import attrgetter
from typing import Any

import attrs

Facts = tuple[Any, ...]
"""One order: its `FIELDS`, in order."""

FIELDS = ("customer", "placed_at", "order_id", "sku", "status", "quantity", "total", "note")
CUSTOMER, PLACED_AT, ORDER_ID, SKU, STATUS, QUANTITY, TOTAL, NOTE = range(8)

SLICE = 50_000  # orders that are written by one bulk insert
STATUSES = ("new", "paid", "sent", "done")

START = datetime(2025, 1, 1, tzinfo=UTC)
DAYS = 90


_values = attrgetter(*FIELDS)


def facts_of(order: Any) -> Facts:
    """Return what an object of any contestant holds, times as UTC whatever the contestant does with them."""
    customer, placed_at, *others = _values(order)
    return (customer, placed_at.replace(tzinfo=UTC), *others)


def make(count: int, seed: int, *, of: int, first: int = 0) -> Iterator[Facts]:
    """Yield orders in an order that has nothing to do with their keys.

    Args:
        count: how many.
        of: how many there will be in all: a customer has 20 orders and an article is in 50, however many there are.
        first: the number of the first one, so that no two calls make the same.
    """
    rnd = random.Random(f"{seed} {first}")
    for n in range(first, first + count):
        yield (
            f"c{rnd.randrange(of // 20 + 1):07d}",
            START + timedelta(seconds=rnd.randrange(DAYS * 86_400), microseconds=n % 1_000_000),
            f"o-{n:08d}",
            f"sku{rnd.randrange(of // 50 + 1):06d}",
            rnd.choice(STATUSES),
            rnd.randrange(1, 9),
            round(rnd.uniform(1, 500), 2),
            "leave it with the neighbours " * rnd.randrange(3),
        )


@attrs.frozen
class Workload:
    """The orders and the questions of one round.

    Bulk loads make the store ``entities`` large, in slices that are made when they are needed: ten million orders would
    not fit into memory. Everything after that takes as many operations whatever the store's size, so that the costs of
    one can be compared between sizes.
    """

    entities: int
    seed: int

    def slices(self) -> Iterator[list[Facts]]:
        """Yield the orders of the bulk load, as many as are written at once."""
        for first in range(0, self.entities, SLICE):
            count = min(SLICE, self.entities - first)
            yield list(make(count, self.seed, of=self.entities, first=first))

    def _later(self, count: int, first: int) -> list[Facts]:
        return list(make(count, self.seed, of=self.entities, first=self.entities + first))

    @cached_property
    def singles(self) -> list[Facts]:
        """Orders that are inserted one by one."""
        return self._later(min(2_000, self.entities // 10), 0)

    @cached_property
    def batches(self) -> list[list[Facts]]:
        """Orders that are inserted, updated and deleted 50 at a time, scattered over the customers."""
        orders = self._later(min(10_000, self.entities // 5), 10_000)
        return [orders[at : at + 50] for at in range(0, len(orders), 50)]

    @cached_property
    def some(self) -> list[Facts]:
        """Orders of the bulk load, from its first slice, in random order."""
        first = make(min(SLICE, self.entities), self.seed, of=self.entities)
        return random.Random(self.seed).sample(list(first), min(2_000, self.entities))

    @property
    def customers(self) -> list[str]:
        return list(dict.fromkeys(order[CUSTOMER] for order in self.some))[:300]

    @property
    def skus(self) -> list[str]:
        return list(dict.fromkeys(order[SKU] for order in self.some))[:150]

    @property
    def all_days(self) -> list[date]:
        return [(START + timedelta(days=number)).date() for number in range(DAYS)]

    @property
    def days(self) -> list[date]:
        return list(dict.fromkeys(order[PLACED_AT].date() for order in self.some))

    @property
    def totals(self) -> list[float]:
        """Lower bounds of totals: each keeps about half of all orders."""
        return [240.0, 250.0, 260.0] if self.entities <= 200_000 else [250.0]

    # what is compared

    def seen(self, found: Iterable[Any]) -> list[Any]:
        """Return what was found as plain values."""
        return [facts_of(one) if hasattr(one, "order_id") else (one.orders, round(one.total, 2)) for one in found]

    def left(self, contestant: Any) -> Any:
        """Return all that a contestant's file holds: orders (their number and a digest), and each day."""
        count, digest = 0, hashlib.blake2b(digest_size=16)
        for order in contestant.everything():
            digest.update(repr(facts_of(order)).encode())
            count += 1
        return count, digest.hexdigest(), [self._day(contestant.day(day)) for day in self.all_days]

    def _day(self, day: Any) -> tuple[int, float]:
        return (0, 0.0) if day is None else (day.orders, round(day.total, 2))
