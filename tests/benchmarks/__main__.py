"""What the mapper costs: µs an operation, and the ratio to the same tables and statements written by hand in apsw.

``python -m tests.benchmarks [--entities N] [--rounds R] [--durability full|relaxed] [--json]``. Both sides do the same
logical work (two index tables, one daily aggregate) in one process, phase by phase, in turn; medians of the rounds. At
the end both files must hold the same.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from time import perf_counter
from typing import Any

import apsw

import tablemapper as tm


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


Facts = tuple[str, datetime, str, str, str, int, float, str]


def make(count: int, seed: int) -> list[Facts]:
    """Return orders in random order."""
    rnd = random.Random(seed)
    start = datetime(2025, 1, 1, tzinfo=UTC)
    made = [
        (
            f"c{rnd.randrange(count // 20 + 1):06d}",
            start + timedelta(seconds=rnd.randrange(90 * 86_400), microseconds=n),
            f"o-{seed}-{n:07d}",
            f"sku{rnd.randrange(1000):04d}",
            rnd.choice(("new", "paid", "sent", "done")),
            rnd.randrange(1, 9),
            round(rnd.uniform(1, 500), 2),
            "leave it with the neighbours " * rnd.randrange(3),
        )
        for n in range(count)
    ]
    rnd.shuffle(made)
    return made


class Mapper:
    """Our side."""

    def __init__(self, path: str, durability: Any) -> None:
        self.store = tm.open(path, models=[Order, Daily], durability=durability)

    def insert(self, facts: Facts) -> None:
        self.store.insert(Order(*facts))

    def insert_50(self, batch: list[Facts]) -> None:
        with self.store.transaction(across_partitions=True) as tx:
            for facts in batch:
                tx.insert(Order(*facts))

    def bulk(self, all_facts: list[Facts]) -> None:
        self.store.insert_many(Order(*facts) for facts in all_facts)

    def get(self, facts: Facts) -> Any:
        return self.store.get(Order.key(*facts[:3]))

    def partition(self, customer: str) -> int:
        return len(list(self.store.query(Order).where(Order.customer == customer)))

    def by_sku(self, sku: str) -> int:
        return len(list(self.store.query(Order.by_sku(sku))))

    def scan(self, least: float) -> int:
        return len(list(self.store.query(Order).where(Order.total > least).allow_scan()))

    def update_50(self, batch: list[Facts]) -> None:
        with self.store.transaction(across_partitions=True) as tx:
            for order in self.store.get_many(Order.key(*facts[:3]) for facts in batch):
                assert order is not None
                order.status = "back"
                order.total += 1
                tx.replace(order)

    def delete_50(self, batch: list[Facts]) -> None:
        with self.store.transaction(across_partitions=True) as tx:
            for order in self.store.get_many(Order.key(*facts[:3]) for facts in batch):
                assert order is not None
                tx.delete(order)

    def totals(self) -> tuple[int, float]:
        days = list(self.store.query(Daily))
        return sum(d.orders for d in days), round(sum(d.total for d in days), 2)

    def close(self) -> None:
        assert self.store.check().ok
        self.store.close()


class Row:
    """What a program without a mapper would build of a row."""

    __slots__ = ("customer", "note", "order_id", "placed_at", "quantity", "sku", "status", "total", "version")

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.customer, rk, self.version, self.sku, self.status, self.quantity, self.total, self.note = row
        self.placed_at = datetime.fromisoformat(rk[:27])
        self.order_id = rk[29:]


class ByHand:
    """The same tables and statements, statement by statement."""

    def __init__(self, path: str, durability: str) -> None:
        db = self.db = apsw.Connection(path, statementcachesize=400)
        db.execute("PRAGMA page_size=4096")
        db.execute("PRAGMA journal_mode=WAL").fetchall()
        db.execute(f"PRAGMA synchronous={'FULL' if durability == 'full' else 'NORMAL'}")
        db.execute("PRAGMA cache_size=-32768")
        db.wal_autocheckpoint(4000)
        db.transaction_mode = "IMMEDIATE"
        for sql in (
            "CREATE TABLE orders(pk, rk, ver, sku, status, quantity, total, note, PRIMARY KEY(pk, rk)) WITHOUT ROWID",
            "CREATE TABLE by_status(pk, rk, bpk, brk, total, PRIMARY KEY(pk, rk, bpk, brk)) WITHOUT ROWID",
            "CREATE TABLE by_sku(pk, rk, bpk, brk, PRIMARY KEY(pk, rk, bpk, brk)) WITHOUT ROWID",
            "CREATE TABLE daily(pk, rk, n, total, PRIMARY KEY(pk, rk)) WITHOUT ROWID",
        ):
            db.execute(sql)
        self.version = 0

    def _key(self, facts: Facts) -> tuple[str, str]:
        return facts[0], f"{facts[1]:%Y-%m-%dT%H:%M:%S.%f}Z !{facts[2]}"

    def _insert(self, facts: Facts) -> None:
        run = self.db.execute
        pk, rk = self._key(facts)
        _, _, _, sku, status, quantity, total, note = facts
        self.version += 1
        run("INSERT INTO orders VALUES(?,?,?,?,?,?,?,?)", (pk, rk, self.version, sku, status, quantity, total, note))
        run("INSERT INTO by_status VALUES(?,?,?,?,?)", (status, rk[:27], pk, rk, total))
        run("INSERT INTO by_sku VALUES(?,?,?,?)", (sku, "", pk, rk))
        self._daily(rk[:10], 1, total)

    def _daily(self, day: str, n: int, total: float) -> None:
        self.db.execute(
            "INSERT INTO daily VALUES('all',?,?,?) ON CONFLICT DO UPDATE SET n=n+excluded.n, total=total+excluded.total",
            (day, n, total),
        )

    def insert(self, facts: Facts) -> None:
        with self.db:
            self._insert(facts)

    def insert_50(self, batch: list[Facts]) -> None:
        with self.db:
            for facts in batch:
                self._insert(facts)

    bulk = insert_50

    def get(self, facts: Facts) -> Row | None:
        row = self.db.execute("SELECT * FROM orders WHERE pk=? AND rk=?", self._key(facts)).fetchone()
        return None if row is None else Row(row)

    def partition(self, customer: str) -> int:
        return len([Row(row) for row in self.db.execute("SELECT * FROM orders WHERE pk=? ORDER BY rk", (customer,))])

    def by_sku(self, sku: str) -> int:
        sql = (
            "SELECT o.* FROM by_sku i CROSS JOIN orders o ON o.pk=i.bpk AND o.rk=i.brk WHERE i.pk=? "
            "ORDER BY i.rk, i.bpk, i.brk"
        )
        return len([Row(row) for row in self.db.execute(sql, (sku,))])

    def scan(self, least: float) -> int:
        return len(
            [Row(row) for row in self.db.execute("SELECT * FROM orders WHERE total>? ORDER BY pk, rk", (least,))]
        )

    def update_50(self, batch: list[Facts]) -> None:
        run = self.db.execute
        with self.db:
            for facts in batch:
                old = self.get(facts)
                assert old is not None
                pk, rk = self._key(facts)
                self.version += 1
                total = old.total + 1
                run("UPDATE orders SET ver=?, status='back', total=? WHERE pk=? AND rk=? AND ver=?",
                    (self.version, total, pk, rk, old.version))  # fmt: skip
                run("DELETE FROM by_status WHERE pk=? AND rk=? AND bpk=? AND brk=?", (old.status, rk[:27], pk, rk))
                run("INSERT INTO by_status VALUES('back',?,?,?,?)", (rk[:27], pk, rk, total))
                self._daily(rk[:10], 0, 1)

    def delete_50(self, batch: list[Facts]) -> None:
        run = self.db.execute
        with self.db:
            for facts in batch:
                old = self.get(facts)
                assert old is not None
                pk, rk = self._key(facts)
                run("DELETE FROM orders WHERE pk=? AND rk=? AND ver=?", (pk, rk, old.version))
                run("DELETE FROM by_status WHERE pk=? AND rk=? AND bpk=? AND brk=?", (old.status, rk[:27], pk, rk))
                run("DELETE FROM by_sku WHERE pk=? AND rk='' AND bpk=? AND brk=?", (old.sku, pk, rk))
                self._daily(rk[:10], -1, -old.total)
                run("DELETE FROM daily WHERE pk='all' AND rk=? AND n=0", (rk[:10],))

    def totals(self) -> tuple[int, float]:
        n, total = self.db.execute("SELECT sum(n), sum(total) FROM daily").fetchone()
        return n, round(total, 2)

    def close(self) -> None:
        self.db.close()


def measure(count: int, rounds: int, durability: str) -> dict[str, tuple[float, float, float]]:
    """Return, for each phase, the medians of our µs an operation, of by hand's, and of their ratio."""
    times: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds):
        folder = tempfile.mkdtemp()
        sides = [Mapper(f"{folder}/ours.db", durability), ByHand(f"{folder}/hand.db", durability)]
        facts = make(count, number)
        single, fifty, bulk = facts[: count // 20], facts[count // 20 : count // 4], facts[count // 4 :]
        rnd = random.Random(number)
        some = rnd.sample(bulk, min(len(bulk), 2000))
        batches = [fifty[at : at + 50] for at in range(0, len(fifty), 50)]
        customers = sorted({f[0] for f in some})[:300]
        skus = sorted({f[3] for f in some})[:100]
        operations = {"partition query, a row": 0, "index query, a row": 0, "filtered scan, a row": 0}

        def rows(
            phase: str, run: Callable[[Any, Any], int], arguments: list[Any], counted: dict[str, int]
        ) -> Callable[[Any], None]:
            def loop(side: Any) -> None:
                counted[phase] = sum(run(side, argument) for argument in arguments)

            return loop

        phases: list[tuple[str, int, Callable[[Any], None]]] = [
            ("bulk insert", len(bulk), lambda s: s.bulk(bulk)),
            ("insert, one a transaction", len(single), lambda s: [s.insert(f) for f in single] and None),
            ("insert, 50 a transaction", len(fifty), lambda s: [s.insert_50(b) for b in batches] and None),
            ("point get", len(some), lambda s: [s.get(f) for f in some] and None),
            (
                "partition query, a row",
                0,
                rows("partition query, a row", lambda s, c: s.partition(c), customers, operations),
            ),
            ("index query, a row", 0, rows("index query, a row", lambda s, k: s.by_sku(k), skus, operations)),
            ("filtered scan, a row", 0, rows("filtered scan, a row", lambda s, x: s.scan(x), [250.0], operations)),
            ("update, 50 a transaction", len(fifty), lambda s: [s.update_50(b) for b in batches] and None),
            ("delete, 50 a transaction", len(fifty), lambda s: [s.delete_50(b) for b in batches] and None),
        ]
        for name, size, run in phases:
            taken: dict[int, float] = {}
            for at in rnd.sample((0, 1), 2):
                start = perf_counter()
                run(sides[at])
                taken[at] = (perf_counter() - start) * 1e6 / (size or operations[name])
            times.setdefault(name, []).append((taken[0], taken[1]))
        if sides[0].totals() != sides[1].totals():
            raise AssertionError(f"the two sides differ: {sides[0].totals()} and {sides[1].totals()}")
        for side in sides:
            side.close()
        shutil.rmtree(folder)
    return {
        name: (
            statistics.median(ours for ours, _ in pairs),
            statistics.median(hand for _, hand in pairs),
            statistics.median(ours / hand for ours, hand in pairs),
        )
        for name, pairs in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("--entities", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--durability", choices=("full", "relaxed"), default="relaxed")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.entities, given.rounds, given.durability)
    if given.json:
        print(json.dumps(found))
        return
    print(f"Python {platform.python_version()}, apsw {apsw.apsw_version()}, {given.entities:,} entities, "
          f"{given.rounds} rounds, durability {given.durability}")  # fmt: skip
    print(f"{'':28}{'ours µs':>10}{'by hand':>10}{'ratio':>8}")
    for name, (ours, hand, ratio) in found.items():
        print(f"{name:28}{ours:10.2f}{hand:10.2f}{ratio:8.2f}")


if __name__ == "__main__":
    main()
