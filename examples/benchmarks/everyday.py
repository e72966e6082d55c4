"""What a program does all day, one thing at a time, beside the same SQL by hand: one change, one page, a total, four workers.

    python -m examples.benchmarks.everyday                      # about two minutes
    python -m examples.benchmarks.everyday --only workers       # or change, read, total, all
    python -m examples.benchmarks.everyday --entities 1m        # far beyond the cache

*Cold* is the first time that a store which was just opened does something in a place; *warm* is the same again.
"""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import tempfile
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter, process_time
from typing import Any

import apsw
import attrs

from .by_hand import SELECT_ONE, ByHand, connected, row_key
from .by_hand_variants import Rounded
from .data import CUSTOMER, Facts, Workload, make
from .ours import Daily, Order, Ours
from .output import Table, add_options, number, parser_of, progress, publish
from .table import cell

Work = Callable[[Any, Facts], Any]
_CALLS = 400  # of each row and round
_GROUPED = "SELECT status, {} FROM orders WHERE pk = ? GROUP BY status"
_PAGE = "SELECT * FROM orders WHERE pk = ? AND rk > ? ORDER BY rk LIMIT 10"


def key_of(order: Facts) -> Any:
    return Order.key(*order[:3])


def _hand_change(hand: ByHand, sql: str, *values: Any) -> None:
    """Write one row in a transaction of its own, and see that it was there."""
    with hand.db:
        hand.db.execute(sql, (hand.next_version(), *values))
        if hand.db.changes() != 1:
            raise RuntimeError("the order is not there, or was changed since it was read")


def _hand_replace(hand: ByHand, order: Facts) -> None:
    with hand.db:
        pk, rk, old = hand._old(order)
        hand.db.execute(
            "UPDATE orders SET version = ?, sku = ?, status = ?, quantity = ?, total = ?, note = ? "
            "WHERE pk = ? AND rk = ? AND version = ?",
            (hand.next_version(), old.sku, old.status, old.quantity + 1, old.total, old.note, pk, rk, old.version),
        )
        if hand.db.changes() != 1:
            raise RuntimeError("the order was changed since it was read")


def _hand_pages(hand: ByHand, order: Facts) -> int:
    first = hand.db.execute(_PAGE, (order[CUSTOMER], "")).fetchall()
    second = hand.db.execute(_PAGE, (order[CUSTOMER], first[-1][1])).fetchall() if len(first) == 10 else []
    return len([tuple(row) for row in first + second])


def _replace(ours: Ours, order: Facts) -> None:
    found = ours.store[key_of(order)]
    found.quantity += 1
    ours.store.replace(found)


def _replace_all(ours: Ours, order: Facts) -> None:
    found = ours.store[key_of(order)]
    found.status = "back"
    found.total += 1
    ours.store.replace(found)


def _raised(order: Order) -> Order:
    order.quantity += 1
    return order


def _pages(ours: Ours, order: Facts) -> int:
    query = _of(ours, order)
    first = query.page(10)
    return len(first.items) + (0 if first.token is None else len(query.page(10, first.token).items))


def _of(ours: Ours, order: Facts) -> Any:
    return ours.store.query(Order).where(Order.customer == order[CUSTOMER])


def _all(ours: Ours) -> Any:
    return ours.store.query(Order).allow_scan()


def _hand(sql: str) -> Callable[[ByHand, Facts], Any]:
    return lambda hand, order: hand.db.execute(sql, (order[CUSTOMER],)).fetchall()


def _values(sql: str) -> Callable[[ByHand, Facts], Any]:
    return lambda hand, order: dict(hand.db.execute(sql).fetchall())


@attrs.frozen
class Row:
    """One thing that is done, by us and by hand; what both return is compared."""

    part: str
    title: str
    ours: Work
    hand: Work
    target: float
    """What part of the time of by hand ours may take, warm."""
    writes: bool = False
    whole: bool = False
    """Whether one call goes through all orders: the cost is that of one of them."""


ROWS = (
    Row("change", "insert, exact totals by hand", lambda o, f: o.insert(f), lambda h, f: h.insert(f), 1.3, writes=True),
    Row("change", "merge of a constant", lambda o, f: o.store.merge(key_of(f), note="x"),
        lambda h, f: _hand_change(h, "UPDATE orders SET version = ?, note = ? WHERE pk = ? AND rk = ?", "x", f[0], row_key(f)), 1.8, writes=True),
    Row("change", "merge of .add(1)", lambda o, f: o.store.merge(key_of(f), Order.quantity.add(1)),
        lambda h, f: _hand_change(h, "UPDATE orders SET version = ?, quantity = quantity + 1 WHERE pk = ? AND rk = ?", f[0], row_key(f)), 1.8, writes=True),
    Row("change", "update(key, function)", lambda o, f: o.store.update(key_of(f), _raised) and None, _hand_replace, 1.8, writes=True),
    Row("change", "read, replace", _replace, _hand_replace, 1.8, writes=True),
    Row("change", "read, replace: index and total change", _replace_all, lambda h, f: h.update_batch([f], "back"), 1.8, writes=True),
    Row("read", "get", lambda o, f: o.get(f).note, lambda h, f: h.get(f).note, 1.15),
    Row("read", "exists", lambda o, f: o.store.exists(key_of(f)),
        lambda h, f: h.db.execute("SELECT 1 FROM orders WHERE pk = ? AND rk = ?", (f[0], row_key(f))).get is not None, 1.3),
    Row("read", "first of a partition", lambda o, f: _of(o, f).first().order_id,
        lambda h, f: h._list(SELECT_ONE.replace("AND rk = ?", "ORDER BY rk LIMIT 1"), (f[0],))[0].order_id, 2),
    Row("read", "a partition of 20", lambda o, f: len(list(_of(o, f))), lambda h, f: len(h.partition(f[0])), 1.4),
    Row("read", "two fields of a partition", lambda o, f: list(_of(o, f).select(Order.sku, Order.total)),
        _hand("SELECT sku, total FROM orders WHERE pk = ? ORDER BY rk"), 2),
    Row("read", "count of a partition", lambda o, f: _of(o, f).count(),
        lambda h, f: h.db.execute("SELECT count(*) FROM orders WHERE pk = ?", (f[0],)).get, 2),
    Row("read", "two pages of 10, by token", _pages, _hand_pages, 3),
    Row("read", "a group of an aggregate", lambda o, f: o.store[Daily.key(f[1].date())].orders,
        lambda h, f: h.day(f[1].date()).orders, 2),
    Row("total", "sum of ints of a partition", lambda o, f: _of(o, f).sum(Order.quantity),
        lambda h, f: h.db.execute("SELECT sum(quantity) FROM orders WHERE pk = ?", (f[0],)).get, 4),
    Row("total", "count by status of a partition", lambda o, f: _of(o, f).group_by(Order.status).count(),
        lambda h, f: dict(h.db.execute(_GROUPED.format("count(*)"), (f[0],)).fetchall()), 4),
    Row("all", "count by status, a row", lambda o, f: _all(o).group_by(Order.status).count(),
        _values("SELECT status, count(*) FROM orders GROUP BY status"), 1.2, whole=True),
    Row("all", "sum of ints by status, a row", lambda o, f: _all(o).group_by(Order.status).sum(Order.quantity),
        _values("SELECT status, sum(quantity) FROM orders GROUP BY status"), 1.3, whole=True),
    Row("all", "sum of floats by status, exact and rounded, a row",
        lambda o, f: {status: round(total, 2) for status, total in _all(o).group_by(Order.status).sum(Order.total).items()},
        _values("SELECT status, round(sum(total), 2) FROM orders GROUP BY status"), 4, whole=True),
    Row("all", "sum of ints of all, a row", lambda o, f: _all(o).sum(Order.quantity),
        lambda h, f: h.db.execute("SELECT sum(quantity) FROM orders").get, 1.5, whole=True),
    Row("all", "update by query, .add(1), a row", lambda o, f: _all(o).update(Order.quantity.add(1)) and None,
        lambda h, f: _hand_change_all(h), 8, writes=True, whole=True),
    Row("all", "check(), an entity; by hand: five joins, less thorough", lambda o, f: o.store.check().ok or None,
        lambda h, f: _hand_check(h), 5, whole=True),
)  # fmt: skip


def _hand_change_all(hand: ByHand) -> None:
    with hand.db:
        hand.db.execute("UPDATE orders SET version = ?, quantity = quantity + 1", (hand.next_version(),))


def _hand_check(hand: ByHand) -> Any:
    """Count what differs between orders, indexes and totals, which round."""
    for sql in (
        "SELECT count(*) FROM orders o LEFT JOIN by_sku i ON i.pk = o.sku AND i.rk = '' AND i.bpk = o.pk AND i.brk = o.rk WHERE i.pk IS NULL",
        "SELECT count(*) FROM orders o LEFT JOIN by_status i ON i.pk = o.status AND i.rk = substr(o.rk, 1, 27) AND i.bpk = o.pk AND i.brk = o.rk "
        "WHERE i.total IS NOT o.total",
        "SELECT count(*) FROM by_sku i LEFT JOIN orders o ON o.pk = i.bpk AND o.rk = i.brk WHERE o.sku IS NOT i.pk",
        "SELECT count(*) FROM by_status i LEFT JOIN orders o ON o.pk = i.bpk AND o.rk = i.brk WHERE o.status IS NOT i.pk",
        "SELECT count(*) FROM (SELECT substr(rk, 1, 10) AS day, count(*) AS n FROM orders GROUP BY day) LEFT JOIN daily d ON d.rk = day "
        "WHERE d.orders IS NOT n",
    ):  # fmt: skip
        if hand.db.execute(sql).get:
            raise AssertionError(sql)
    return True


def timed(row: Row, subject: Any, orders: Sequence[Facts], work: Work) -> tuple[float, float, list[Any]]:
    """Return seconds by the clock, and of the processor, and what was returned."""
    gc.collect()
    cpu, wall = process_time(), perf_counter()
    found = [work(subject, order) for order in orders]
    return perf_counter() - wall, process_time() - cpu, found


def measured(options: Any, rows: Sequence[Row], entities: int) -> dict[str, dict[str, list[float]]]:
    """Return, for each row, the µs of each round: ours and by hand, cold and warm."""
    taken: dict[str, dict[str, list[float]]] = {}
    clock = options.clock == "cpu"
    for round_ in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            work = Workload(entities, round_)
            makers = {
                "ours": lambda: Ours(f"{folder}/ours.db", options.durability),
                "hand": lambda: ByHand(f"{folder}/hand.db", options.durability),
                "rounded": lambda: Rounded(f"{folder}/rounded.db", options.durability),
            }
            subjects: dict[str, Any] = {name: maker() for name, maker in makers.items()}
            for orders in work.slices():
                for subject in subjects.values():
                    subject.bulk(orders)
            places = work.some[:_CALLS]
            later = [work._later(_CALLS, 50_000 + lap * _CALLS) for lap in range(2)]
            for row in rows:
                progress(f"round {round_ + 1} of {options.rounds}: {row.title}")
                names = ["ours", "hand", *(["rounded"] if row.title.startswith("insert") else [])]
                for name in names:
                    subjects[name].close()
                    subjects[name] = _opened(makers[name], f"{folder}/{name}.db", options.durability)
                for state in ("cold", "warm"):
                    calls = (
                        places[:1]
                        if row.whole
                        else later[state == "warm"]
                        if row.title.startswith("insert")
                        else places
                    )
                    outcomes = []
                    for name in names if round_ % 2 else reversed(names):
                        wall, cpu, found = timed(row, subjects[name], calls, row.ours if name == "ours" else row.hand)
                        number_ = entities if row.whole else len(calls)
                        taken.setdefault(row.title, {}).setdefault(f"{name} {state}", []).append(
                            (cpu if clock else wall) * 1e6 / number_
                        )
                        outcomes.append(found)
                    if not row.writes and any(found != outcomes[0] for found in outcomes):
                        raise AssertionError(f"{row.title}: {outcomes!r:.500}")
            for subject in subjects.values():
                subject.close()
    return taken


def _opened(maker: Callable[[], Any], path: str, durability: Any) -> Any:
    """Return what was closed, opened again; by hand the tables are there already."""
    if path.endswith("ours.db"):
        return maker()
    hand: Any = object.__new__(Rounded if path.endswith("rounded.db") else ByHand)
    hand.db, hand.version = connected(path, durability), 0
    hand.db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return hand


# ---------------------------------------------------------------------------------------------- workers


def _worker(path: str, by_hand: bool, which: int, seconds: float, gate: Any, results: Any) -> None:
    """Write one field of an order of its own without pause."""
    order = next(make(1, which, of=20))
    if by_hand:
        subject: Any = _opened(lambda: None, f"{path}/hand.db", "relaxed")
        subject.db.set_busy_timeout(30_000)
        row: Row = ROWS[1]
    else:
        subject, row = Ours(f"{path}/ours.db", "relaxed"), ROWS[1]
    work = row.hand if by_hand else row.ours
    gate.wait()
    end, now, count, longest, began = monotonic() + seconds, monotonic(), 0, 0.0, process_time()
    while now < end:
        work(subject, order)
        count, then, now = count + 1, now, monotonic()
        longest = max(longest, now - then)
    results.put((count, longest, process_time() - began))
    subject.close()


def workers(count: int, seconds: float, *, by_hand: bool, folder: str | None) -> tuple[float, float, float, float]:
    """Return writes a second, the CPU of a write in µs, the share of the least served, and the longest wait in ms."""
    spawn = multiprocessing.get_context("spawn")
    gate, results = spawn.Barrier(count), spawn.Queue()
    with tempfile.TemporaryDirectory(dir=folder) as path:
        subject: Any = ByHand(f"{path}/hand.db", "relaxed") if by_hand else Ours(f"{path}/ours.db", "relaxed")
        for which in range(count):
            subject.insert(next(make(1, which, of=20)))
        subject.close()
        started = [
            spawn.Process(target=_worker, args=(path, by_hand, which, seconds, gate, results)) for which in range(count)
        ]
        for one in started:
            one.start()
        found = [results.get(timeout=120 + 2 * seconds) for _ in started]
        for one in started:
            one.join()
    done = [number_ for number_, _, _ in found]
    return (
        sum(done) / seconds,
        sum(cpu for *_, cpu in found) * 1e6 / sum(done),
        min(done) / max(done),
        max(slow for _, slow, _ in found) * 1e3,
    )


def main(given: list[str] | None = None) -> None:
    parser = parser_of("python -m examples.benchmarks.everyday", __doc__)
    parts = ("change", "read", "total", "all", "workers")
    parser.add_argument("--only", choices=parts, help="one part")
    parser.add_argument("--entities", default="20k", metavar="N", help="how many are loaded (default 20k)")
    parser.add_argument("--seconds", type=float, default=2.0, help="for which workers write")
    add_options(parser, rounds=5)
    options = parser.parse_args(given)
    chosen = [row for row in ROWS if options.only in (None, row.part)]
    entities = number(options.entities)
    taken = measured(options, chosen, entities) if chosen else {}
    rows = []
    for row in chosen:
        lines = {"hand": row.title} | (
            {"rounded": "insert, rounded totals by hand"} if row.title.startswith("insert") else {}
        )
        for rival, title in lines.items():
            cells = []
            for state in ("cold", "warm"):
                ours, others = taken[row.title][f"ours {state}"], taken[row.title][f"{rival} {state}"]
                ratio = statistics.median(a / b for a, b in zip(ours, others, strict=True))
                target = row.target if state == "warm" and rival == "hand" else None
                cells += [
                    f"{statistics.median(ours):.2f}",
                    cell(f"{ratio:.2f}", "≤", target, met=target is None or ratio <= target),
                ]
            rows.append([title, *cells])
    for count in (1, 2, 4) if options.only in (None, "workers") else ():
        for by_hand in (False, True):
            progress(f"{count} workers")
            runs = [
                workers(count, options.seconds, by_hand=by_hand, folder=options.folder)
                for _ in range(min(options.rounds, 3))
            ]
            rate, cpu, fair, longest = (statistics.median(column) for column in zip(*runs, strict=True))
            taken.setdefault("workers", {})[f"{count} {'by hand' if by_hand else 'ours'}"] = [rate, cpu, fair, longest]
            title = f"{count} {'workers write' if count > 1 else 'worker writes'} one field each{', by hand' if by_hand else ''}"
            rows.append(
                [
                    title,
                    f"{rate:,.0f}/s",
                    f"{cpu:.0f} µs of CPU each",
                    f"least by most {fair:.2f}",
                    f"longest wait {longest:.0f} ms",
                ]
            )
    head = [
        ["", "ours, cold", "by hand, cold", "ours, warm", "by hand, warm"],
        ["", "µs", "ours by it", "µs", "ours by it"],
    ]
    title = f'Everyday work, {entities:,} orders, medians of {options.rounds} rounds, durability "{options.durability}"'
    publish(options, "everyday", Table(title, head, rows, {"µs": taken}), options.only or "")


if __name__ == "__main__":
    main()
