"""By hand: what a careful person writes in apsw for exactly this program, with the tables that ours has.

It is the measure, so nothing in it is slower than it has to be: statements are prepared once, rows are written table by
table and in the order of their keys (``executemany``), times are formatted in the fastest way, columns that this
program does not need are left out, the totals of a day are written once a transaction. It does the same work: the ETag
is tested, old values are read before an update, sums are exact. It checks no value and no limit, escapes no key, and
knows nothing but orders: what that costs is ours to pay.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from math import frexp, ldexp
from operator import itemgetter
from typing import Any

import apsw

from .contestant import CACHE, CHECKPOINT, Durability
from .data import CUSTOMER, ORDER_ID, PLACED_AT, SKU, STATUS, TOTAL, Facts

CHUNK = 1_000  # rows that are held and sorted before they are written

INSERT_ORDER = "INSERT INTO orders VALUES(?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_STATUS = "INSERT INTO by_status VALUES(?, ?, ?, ?, ?)"
INSERT_SKU = "INSERT INTO by_sku VALUES(?, '', ?, ?)"
UPDATE_ORDER = "UPDATE orders SET version = ?, status = ?, total = ? WHERE pk = ? AND rk = ? AND version = ?"
DELETE_ORDER = "DELETE FROM orders WHERE pk = ? AND rk = ? AND version = ?"
DELETE_STATUS = "DELETE FROM by_status WHERE pk = ? AND rk = ? AND bpk = ? AND brk = ?"
DELETE_SKU = "DELETE FROM by_sku WHERE pk = ? AND rk = '' AND bpk = ? AND brk = ?"
PUT_DAY = (
    "INSERT INTO daily VALUES('all', ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
    "version = excluded.version, orders = excluded.orders, total = excluded.total, state = excluded.state"
)

_LISTED = ", ".join(f"o.{name}" for name in ("pk", "rk", "version", "sku", "status", "quantity", "total", "note"))
_JOINED = "CROSS JOIN orders o ON o.pk = i.bpk AND o.rk = i.brk WHERE i.pk = ?"
SELECT_ONE = f"SELECT {_LISTED} FROM orders o WHERE pk = ? AND rk = ?"
SELECT_PARTITION = f"SELECT {_LISTED} FROM orders o WHERE pk = ? ORDER BY rk"
SELECT_OVER = f"SELECT {_LISTED} FROM orders o WHERE total > ? ORDER BY pk, rk"
SELECT_SKU = f"SELECT {_LISTED} FROM by_sku i {_JOINED} ORDER BY i.rk, i.bpk, i.brk"
SELECT_PAGE = (
    f"SELECT {_LISTED} FROM by_status i {_JOINED} AND (i.rk, i.bpk, i.brk) > (?, ?, ?) "
    "ORDER BY i.rk, i.bpk, i.brk LIMIT 100"
)


def units(value: float) -> int:
    """Return a float, exactly, in units of 2**-1074: every float is a whole number of them."""
    fraction, exponent = frexp(value)
    return int(fraction * (1 << 53)) << exponent + 1074 >> 53


def pack(total: int) -> tuple[float, bytes]:
    """Return a sum rounded, and exactly, as few bytes: how many zero bits it ends in, then the rest."""
    zeros = (total & -total).bit_length() - 1 if total else 0
    total >>= zeros
    packed = zeros.to_bytes(2, "big") + total.to_bytes(total.bit_length() // 8 + 1, "big", signed=True)
    return ldexp(total, zeros - 1074), packed


def unpack(blob: bytes) -> int:
    """Return the sum that was packed."""
    return int.from_bytes(blob[2:], "big", signed=True) << int.from_bytes(blob[:2], "big")


def row_key(order: Facts) -> str:
    """Return time and number as one text that sorts as they do."""
    at = order[PLACED_AT]
    return "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ !%s" % (
        at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, order[ORDER_ID]
    )  # fmt: skip


class Order:
    """What a program without a mapper would build of a row."""

    __slots__ = ("customer", "note", "order_id", "placed_at", "quantity", "sku", "status", "total", "version")

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.customer, key, self.version, self.sku, self.status, self.quantity, self.total, self.note = row
        self.placed_at = datetime.fromisoformat(key[:27])
        self.order_id = key[29:]


class Daily:
    """The orders of a day."""

    __slots__ = ("day", "orders", "total")

    def __init__(self, row: tuple[Any, ...]) -> None:
        day, self.orders, self.total = row
        self.day = date.fromisoformat(day)


Days = dict[str, list[int]]
"""For each day: how many orders came, and their total in units; less what went."""


def connected(path: str, durability: Durability) -> apsw.Connection:
    """Return a connection that is set as the library sets its own."""
    db = apsw.Connection(path, statementcachesize=400)
    db.execute("PRAGMA page_size = 4096")
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
    db.execute(f"PRAGMA cache_size = -{CACHE}")
    db.wal_autocheckpoint(CHECKPOINT)
    db.transaction_mode = "IMMEDIATE"
    return db


class ByHand:
    """Rows are made first, then written table by table, sorted."""

    title = "by hand"

    def __init__(self, path: str, durability: Durability) -> None:
        db = self.db = connected(path, durability)
        db.config(
            apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1
        )  # without it each new value has a SELECT with ORDER BY compiled anew
        for sql in (
            "CREATE TABLE orders(pk, rk, version, sku, status, quantity, total, note, PRIMARY KEY(pk, rk)) "
            "WITHOUT ROWID",
            "CREATE TABLE by_status(pk, rk, bpk, brk, total, PRIMARY KEY(pk, rk, bpk, brk)) WITHOUT ROWID",
            "CREATE TABLE by_sku(pk, rk, bpk, brk, PRIMARY KEY(pk, rk, bpk, brk)) WITHOUT ROWID",
            "CREATE TABLE daily(pk, rk, version, orders, total, state, PRIMARY KEY(pk, rk)) WITHOUT ROWID",
        ):
            db.execute(sql)
        self.version = 0

    def next_version(self) -> int:
        """Return the time in µs, more than ever before: the ETag of what a transaction writes."""
        self.version = max(self.version + 1, time.time_ns() // 1000)
        return self.version

    # writing

    def insert(self, order: Facts) -> None:
        with self.db:
            version, days = self.next_version(), Days()
            self._insert(order, version, days)
            self._add(days, version)

    def bulk(self, orders: list[Facts]) -> None:
        with self.db:
            version, days = self.next_version(), Days()
            for at in range(0, len(orders), CHUNK):
                self._insert_many(orders[at : at + CHUNK], version, days)
            self._add(days, version)

    def insert_batch(self, orders: list[Facts]) -> None:
        with self.db:
            version, days = self.next_version(), Days()
            self._insert_many(orders, version, days)
            self._add(days, version)

    def _insert(self, order: Facts, version: int, days: Days) -> None:
        run = self.db.execute
        pk, rk, total = order[CUSTOMER], row_key(order), order[TOTAL]
        run(INSERT_ORDER, (pk, rk, version, *order[3:]))
        run(INSERT_STATUS, (order[STATUS], rk[:27], pk, rk, total))
        run(INSERT_SKU, (order[SKU], pk, rk))
        self._count(days, rk[:10], 1, total)

    def _insert_many(self, orders: list[Facts], version: int, days: Days) -> None:
        rows, by_status, by_sku = [], [], []
        for order in orders:
            pk, rk, total = order[CUSTOMER], row_key(order), order[TOTAL]
            rows.append((pk, rk, version, *order[3:]))
            by_status.append((order[STATUS], rk[:27], pk, rk, total))
            by_sku.append((order[SKU], pk, rk))
            self._count(days, rk[:10], 1, total)
        self._write((INSERT_ORDER, sorted(rows)), (INSERT_STATUS, sorted(by_status)), (INSERT_SKU, sorted(by_sku)))

    def update_batch(self, orders: list[Facts], status: str) -> None:
        with self.db:
            version, days = self.next_version(), Days()
            rows, gone, come = [], [], []
            for order in orders:
                pk, rk, old = self._old(order)
                total = old.total + 1
                rows.append((version, status, total, pk, rk, old.version))
                gone.append((old.status, rk[:27], pk, rk))
                come.append((status, rk[:27], pk, rk, total))
                self._count(days, rk[:10], 0, total, -old.total)
            self._change(UPDATE_ORDER, sorted(rows, key=itemgetter(3, 4)))
            self._write((DELETE_STATUS, sorted(gone)), (INSERT_STATUS, sorted(come)))
            self._add(days, version)

    update_together = update_batch  # each SELECT is a call within the process: nothing is gained by asking at once

    def delete_batch(self, orders: list[Facts]) -> None:
        with self.db:
            version, days = self.next_version(), Days()
            rows, by_status, by_sku = [], [], []
            for order in orders:
                pk, rk, old = self._old(order)
                rows.append((pk, rk, old.version))
                by_status.append((old.status, rk[:27], pk, rk))
                by_sku.append((old.sku, pk, rk))
                self._count(days, rk[:10], -1, -old.total)
            self._change(DELETE_ORDER, sorted(rows))
            self._write((DELETE_STATUS, sorted(by_status)), (DELETE_SKU, sorted(by_sku)))
            self._add(days, version)

    def _old(self, order: Facts) -> tuple[str, str, Order]:
        pk, rk = order[CUSTOMER], row_key(order)
        return pk, rk, Order(self.db.execute(SELECT_ONE, (pk, rk)).get)

    def _write(self, *tables: tuple[str, Sequence[tuple[Any, ...]]]) -> None:
        for sql, rows in tables:
            self.db.executemany(sql, rows)

    def _change(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        before = self.db.total_changes()
        self.db.executemany(sql, rows)
        if self.db.total_changes() - before != len(rows):
            raise RuntimeError("an order was changed since it was read")

    def _count(self, days: Days, day: str, orders: int, *totals: float) -> None:
        found = days.get(day)
        if found is None:
            found = days[day] = [0, 0]
        found[0] += orders
        for total in totals:
            found[1] += units(total)

    def _add(self, days: Days, version: int) -> None:
        run = self.db.execute
        for day, (orders, total) in days.items():
            old = run("SELECT orders, state FROM daily WHERE pk = 'all' AND rk = ?", (day,)).get
            if old is not None:
                orders += old[0]
                total += unpack(old[1])
            if orders:
                run(PUT_DAY, (day, version, orders, *pack(total)))
            else:
                run("DELETE FROM daily WHERE pk = 'all' AND rk = ?", (day,))

    # reading

    def get(self, order: Facts) -> Any:
        row = self.db.execute(SELECT_ONE, (order[CUSTOMER], row_key(order))).get
        return None if row is None else Order(row)

    def _list(self, sql: str, args: tuple[Any, ...]) -> list[Any]:
        return list(map(Order, self.db.execute(sql, args).fetchall()))

    def partition(self, customer: str) -> list[Any]:
        return self._list(SELECT_PARTITION, (customer,))

    def by_sku(self, sku: str) -> list[Any]:
        return self._list(SELECT_SKU, (sku,))

    def scan(self, least: float) -> list[Any]:
        return self._list(SELECT_OVER, (least,))

    def pages(self, status: str) -> Iterator[list[Any]]:
        after: tuple[str, ...] = ("", "", "")
        while page := self._list(SELECT_PAGE, (status, *after)):
            yield page
            key = row_key((page[-1].customer, page[-1].placed_at, page[-1].order_id))
            after = (key[:27], page[-1].customer, key)

    def day(self, day: date) -> Any:
        row = self.db.execute("SELECT rk, orders, total FROM daily WHERE pk = 'all' AND rk = ?", (day.isoformat(),)).get
        return None if row is None else Daily(row)

    def everything(self) -> Iterable[Any]:
        return map(Order, self.db.execute(SELECT_OVER, (-1.0,)))

    def checkpoint(self) -> None:
        self.db.wal_checkpoint()

    def close(self) -> None:
        self.db.close()
