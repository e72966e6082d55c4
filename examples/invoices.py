"""Invoices with numbers that have no gap, written by four processes at once.

    python examples/invoices.py [FILE]        a file that goes, by default

The number of an invoice comes from a counter in the same partition, in the same transaction. A transaction that loses the
race for it is run again, and a process that dies leaves no number behind.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path

import tablemapper as tm

SHOPS = ("Oslo", "Bergen")
PROCESSES, EACH = 4, 50


# --8<-- [start:models]
class Numbers(tm.Entity, table="Invoices"):
    """The last number of a shop."""

    shop: tm.Field[str]
    last: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str](partition="{shop}", row="counter")


class Invoice(tm.Entity, table="Invoices"):
    shop: tm.Field[str]
    number: tm.Field[int]
    total: tm.Field[Decimal]
    writer: tm.Field[str]

    key = tm.Key[str, int](partition="{shop}", row=("invoice", "{number:08d}"))


# --8<-- [end:models]
MODELS: list[type[tm.Entity]] = [Numbers, Invoice]


# --8<-- [start:write]
def write(store: tm.Store, shop: str, total: Decimal, writer: str) -> int:
    """Write an invoice, and return its number."""

    def numbered(tx: tm.Transaction) -> int:
        key, first = Numbers.key(shop), Numbers(shop)
        numbers = tx.merge(key, Numbers.last.add(1), or_insert=first, returning=True)
        tx.insert(Invoice(shop, numbers.last, total, writer))
        return numbers.last

    return store.run(numbered)


# --8<-- [end:write]


def work(path: str, writer: str) -> None:
    """Write invoices of both shops, as one process of several."""
    with tm.open(path, models=MODELS) as store:
        for number in range(EACH):
            shop = SHOPS[number % len(SHOPS)]
            write(store, shop, Decimal(number) / 4, writer)


def main(path: str) -> None:
    processes = multiprocessing.get_context("spawn")
    writers = [
        processes.Process(target=work, args=(path, f"till {number}"))
        for number in range(PROCESSES)
    ]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    with tm.open(path, models=MODELS) as store:
        for shop in SHOPS:
            invoices = list(store.query(Invoice).where(Invoice.shop == shop))
            numbers = [invoice.number for invoice in invoices]
            by_writer = Counter(invoice.writer for invoice in invoices)
            gaps = sorted({*range(1, len(numbers) + 1)} - {*numbers})
            print(
                f"{shop}: {len(numbers)} invoices of {len(by_writer)} writers, gaps {gaps}"
            )
        print(store.check())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if sys.argv[1:] else str(Path(folder, "invoices.db")))
