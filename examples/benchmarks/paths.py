"""What each path of its own gains, beside the general one: both are taken in turn.

``python -m examples.benchmarks.paths``: a minute. A path that gains less than a tenth is not worth a second way to say the same.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import process_time
from typing import Any
from unittest import mock

import attrs

import tablemapper as tm
from tablemapper.engines import check
from tablemapper.engines.sqlite.file.database import File
from tablemapper.engines.sqlite.rows import catalogue_cache, reads, writes
from tablemapper.engines.sqlite.sql.select import Select
from tablemapper.execution import prepared
from tablemapper.interchange.json import json_form

from .data import Workload
from .ours import Order, Ours
from .output import Table, add_options, parser_of, progress, publish
from .table import cell

_ENTITIES = 20_000
_CALLS = 400
_BULK = 20_000
LEAST = 1.1


class Plain(tm.Entity, table="Plain"):
    """A class without indexes and aggregates."""

    p: tm.Field[str]
    n: tm.Field[int]
    text: tm.Field[str] = tm.field(default="something")

    key = tm.Key[str, int](partition="{p}", row="{n}")


@attrs.frozen
class Path:
    """A path of its own: how it is left, and work that takes it."""

    title: str
    proof: str
    """The test that holds it to the general way."""
    off: Callable[[], Any]
    work: Callable[[Ours, Workload, int], Any]
    """The work of one lap, whose number it gets."""


def _no(*_: Any) -> bool:
    return False


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _general(sqlite: Any, model: Any) -> Any:
    return lambda writer, operation: writes._apply(sqlite, writer, [operation], None)


def _each(call: Callable[[Ours, Any], Any]) -> Callable[[Ours, Workload, int], None]:
    def work(ours: Ours, workload: Workload, lap: int) -> None:
        for order in workload.some[:_CALLS]:
            call(ours, order)

    return work


def _inserts(ours: Ours, workload: Workload, lap: int) -> None:
    for order in workload._later(_CALLS, 100_000 + lap * _CALLS):
        ours.insert(order)


def _changes(ours: Ours, order: Any) -> None:
    ours.store.merge(Order.key(*order[:3]), Order.quantity.add(1))


def _reads_and_writes(ours: Ours, order: Any) -> None:
    found = ours.store[Order.key(*order[:3])]
    found.quantity += 1
    ours.store.replace(found)


def _of_customer(ours: Ours, order: Any) -> Any:
    return ours.store.query(Order).where(Order.customer == order[0])


def _by_key(ours: Ours, order: Any) -> None:
    list(_of_customer(ours, order).where(Order.placed_at == order[1], Order.order_id == order[2]))


def _bulk(ours: Ours, workload: Workload, lap: int) -> None:
    with tm.open(":memory:", models=[Plain]) as store:
        store.insert_many(Plain(f"p{n % 100}", n) for n in range(_BULK))


def _columns(ours: Ours, workload: Workload, lap: int) -> None:
    ours.store.query(Order).allow_scan().select(Order.sku, Order.quantity).to_arrow()


def _frames(ours: Ours, workload: Workload, lap: int) -> None:
    ours.store.query(Order).allow_scan().to_arrow()


def _late(ours: Ours, order: Any) -> None:
    list(_of_customer(ours, order).where(Order.placed_at >= order[1]).limit(5))


def _several(ours: Ours, workload: Workload, lap: int) -> None:
    keys = [Order.key(*order[:3]) for order in workload.some[:_CALLS]]
    for at in range(len(keys)):
        ours.store.get_many(keys[at : at + 5])


def _members(ours: Ours, workload: Workload, lap: int) -> None:
    for member in [tm.to_dict(Order(*order)) for order in workload.some[:_CALLS]]:
        for _ in range(10):
            tm.from_dict(Order, member)


def _checked(ours: Ours, workload: Workload, lap: int) -> None:
    assert ours.store.check().ok


def _grouped(ours: Ours, workload: Workload, lap: int) -> None:
    ours.store.query(Order).allow_scan().group_by(Order.status).sum(Order.quantity)


PATHS = (
    Path("one insert", "test_write_decision", lambda: mock.patch.object(writes, "_insert_one", _general), _inserts),
    Path("one replace, merge or delete", "test_single_updates", lambda: mock.patch.object(writes, "_update_one", _general), _each(_changes)),
    Path("rows without maintenance in bulk", "test_write_decision", lambda: mock.patch.object(writes, "_is_bare", _no), _bulk),
    Path("a query by key", "test_whole_keys", lambda: mock.patch.object(prepared, "_is_point", _no), _each(_by_key)),
    Path("a whole partition", "test_whole_partitions", lambda: mock.patch.object(prepared, "_is_partition", _no),
         _each(lambda ours, order: _of_customer(ours, order).first())),
    Path("a read by the connection that writes", "test_database", lambda: mock.patch.object(File, "seek", _by_reader), _each(_reads_and_writes)),
    Path("totals by group in SQL", "test_totals_by_engine", lambda: mock.patch.object(reads.SqliteReads, "totals", _nothing), _grouped),
    Path("columns as lines of text", "test_lines", lambda: mock.patch.object(Select, "has_lines", _no), _columns),
    Path("the same, of whole entities", "test_lines", lambda: mock.patch.object(Select, "has_lines", _no), _frames),
    Path("all rows at once, if they are few", "test_query", lambda: mock.patch.object(reads.SqliteReads, "_few", _nothing), _each(_late)),
    Path("five keys by one statement", "test_store", lambda: mock.patch.object(catalogue_cache.RowGetter, "few", _nothing), _several),
    Path("entities in blocks in a check", "test_check", lambda: mock.patch.object(check.ConsistencyCheck, "_adds", _no), _checked),
    Path("members of JSON in order", "test_json_quick", lambda: mock.patch.dict(json_form(Order).__dict__, read=_nothing), _members),
)  # fmt: skip


def _by_reader(self: File, sql: str, args: Any = (), fetch: Any = None) -> Any:
    rows = self.read(sql, args)
    return (rows[0] if rows else None) if fetch is None else rows


def gains(path: Path, workload: Workload, rounds: int) -> Iterator[float]:
    """Yield, for each round, how many times as long the general way takes; each has a store of its own."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stores = {}
        for name in ("on", "off"):
            stores[name] = stack.enter_context(_store(f"{folder}/{name}.db", workload))
        for lap in range(rounds + 1):
            spent = {}
            for name in ("on", "off") if lap % 2 else ("off", "on"):
                with path.off() if name == "off" else ExitStack():
                    began = process_time()
                    path.work(stores[name], workload, lap)
                    spent[name] = process_time() - began
            if lap:  # (the first one compiles)
                yield spent["off"] / spent["on"]


class _store:
    """A store with orders, for ``with``."""

    def __init__(self, path: str, workload: Workload) -> None:
        self.ours = Ours(path, "relaxed")
        for orders in workload.slices():
            self.ours.bulk(orders)

    def __enter__(self) -> Ours:
        return self.ours

    def __exit__(self, *_: object) -> None:
        self.ours.close()


def main(given: list[str] | None = None) -> None:
    parser = parser_of("python -m examples.benchmarks.paths", __doc__)
    add_options(parser, rounds=7)
    options = parser.parse_args(given)
    options.clock = "cpu"
    workload, rows, plain = Workload(_ENTITIES, 0), list[list[str]](), dict[str, list[float]]()
    for path in PATHS:
        progress(path.title)
        found = list(gains(path, workload, options.rounds))
        gain = statistics.median(found)
        plain[path.title] = found
        rows.append([path.title, cell(f"{gain:.2f}", "≥", LEAST, met=gain >= LEAST), path.proof])
    title = f"Paths of their own, medians of {options.rounds} rounds"
    head = [["", "the general way by it", "held to that by"]]
    publish(options, "paths", Table(title, head, rows, {"gains": plain}))


if __name__ == "__main__":
    main()
