"""What a contestant has to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, Protocol

from .data import Facts

Durability = Literal["full", "relaxed"]
CACHE = 32 << 10  # KiB, of the connection that writes
CHECKPOINT = 4_000  # pages of the write-ahead log


class Contestant(Protocol):
    """Keeps orders, found by customer, by status and by article, and the number and total of every day, in one file.

    Every write leaves all of them agreeing, in one transaction. What is read is an object with the attributes of an
    order; lists are in the order of what they are found by. Nobody may cache what was read: another process may have
    changed it.
    """

    title: ClassVar[str]

    def __init__(self, path: str, durability: Durability) -> None: ...

    def bulk(self, orders: list[Facts]) -> None:
        """Insert many orders, in the fastest way that there is."""

    def insert(self, order: Facts) -> None:
        """Insert one order, in a transaction of its own."""

    def insert_batch(self, orders: list[Facts]) -> None:
        """Insert orders in one transaction."""

    def update_batch(self, orders: list[Facts], status: str) -> None:
        """Read orders one by one, change their status, add 1 to their totals, write them, in one transaction."""

    def update_together(self, orders: list[Facts], status: str) -> None:
        """Read orders at once, change them likewise, write them, in one transaction."""

    def delete_batch(self, orders: list[Facts]) -> None:
        """Read orders one by one and delete them, in one transaction; a day without orders has no row."""

    def get(self, order: Facts) -> Any:
        """Return an order by customer, time and number."""

    def partition(self, customer: str) -> list[Any]:
        """Return the orders of a customer, by time."""

    def by_sku(self, sku: str) -> list[Any]:
        """Return the orders of an article, by customer and time."""

    def scan(self, least: float) -> list[Any]:
        """Return the orders with a total above this one, by customer and time, without an index."""

    def pages(self, status: str) -> Iterator[list[Any]]:
        """Yield the orders of a status, by time, 100 at a time; each page could be asked for by another process."""

    def day(self, day: date) -> Any:
        """Return an object with the number of orders of a day, ``orders``, and their total, ``total``."""

    def everything(self) -> Iterable[Any]:
        """Return every order, by customer and time; not timed."""

    def checkpoint(self) -> None:
        """Copy what is in the write-ahead log into the file."""

    def close(self) -> None: ...


PEERS = {
    "by_hand": ("by_hand", "ByHand", "apsw"),
    "by_row": ("by_hand_variants", "RowByRow", "apsw"),
    "rounded": ("by_hand_variants", "Rounded", "apsw"),
    "sqlalchemy": ("sqlalchemy_orm", "SqlAlchemy", "sqlalchemy"),
    "peewee": ("peewee_orm", "Peewee", "peewee"),
}
"""Where each is: its module, its class, and the package that it needs."""

USUAL = ("by_hand", "sqlalchemy", "peewee")
"""Those that are compared unless others are asked for."""


def load(name: str) -> type[Contestant] | None:
    """Return a contestant, None if its package is not installed."""
    module, cls, package = PEERS.get(name) or (name, "Ours", "tablemapper")
    if find_spec(package) is None:
        return None
    found: type[Contestant] = getattr(import_module(f"{__package__}.{module}"), cls)
    return found
