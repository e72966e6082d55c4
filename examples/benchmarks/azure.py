"""Tables of an account beside the SDK of Microsoft, on one Azurite: ``python -m examples.benchmarks azure``.

Both do the same work in turn, and the best of some rounds counts. The emulator takes most of the time that passes, so the
processor time of the client stands beside it. A link that is 10 ms slower shows what goes side by side.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from time import perf_counter, process_time
from typing import Any

import attrs
from azure.data.tables import EdmType, EntityProperty, TableServiceClient, __version__

import tablemapper as tm
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables.service import EntityPage, QueryEntities
from tablemapper.schema.model import compile_schema
from tests.engines.azure.azurite import Azurite, start
from tests.engines.azure.memory import Memory

from .link import link
from .measure import Differ, peak
from .output import Table, add_options, parser_of, progress, publish
from .table import cell

MOST_MB = 50
"""That a stream of a million entities may take."""
NINE = datetime(2023, 10, 27, 9, tzinfo=UTC)


class Reading(tm.Entity, table="Readings"):
    """Eight properties, and the key."""

    device: tm.Field[str]
    number: tm.Field[int]
    a: tm.Field[int]
    b: tm.Field[int]
    c: tm.Field[str]
    d: tm.Field[str]
    e: tm.Field[float]
    f: tm.Field[float]
    g: tm.Field[bool]
    h: tm.Field[datetime]

    key = tm.Key[str, int](partition="{device}", row="{number:09d}")


class Person(tm.Entity, table="People"):
    """With an index in other partitions."""

    id: tm.Field[str]
    team: tm.Field[str]
    key = tm.Key[str](partition="{id}")
    by_team = tm.Index[str](partition="{team}")


class Sale(tm.Entity, table="Sales"):
    """One of many that all change one group."""

    id: tm.Field[int]
    shop: tm.Field[str]
    price: tm.Field[int]
    key = tm.Key[int](partition="{id}")


class Shop(tm.Aggregate, of=Sale, table="Shops"):
    """The group, in another partition than they."""

    shop: tm.Field[str] = tm.group_by(Sale.shop)
    sales: tm.Field[int] = tm.count()
    sold: tm.Field[int] = tm.sum(Sale.price)
    key = tm.Key[str](partition="{shop}")


def reading(device: str, number: int) -> Reading:
    return Reading(device, number, 1, 2, "three", "four", 5.5, 6.5, True, NINE)


def entity(device: str, number: int) -> dict[str, Any]:
    """Return the same for the SDK."""
    whole: dict[str, Any] = {
        name: EntityProperty(value, EdmType.INT64) for name, value in (("number", number), ("a", 1), ("b", 2))
    }
    rest = {"c": "three", "d": "four", "e": 5.5, "f": 6.5, "g": True, "h": NINE}
    return {"PartitionKey": device, "RowKey": f"{number:09d}", **whole, **rest}


@attrs.frozen
class Task:
    """Some work, done by both: each returns how many entities it was of."""

    title: str
    target: float
    ours: Callable[[tm.Store], int]
    theirs: Callable[[Any], int]


NUMBERS = itertools.count(1)
PAGE, DEVICES, EACH = "page", [f"device{n}" for n in range(10)], 500


def _one_by_one(count: int, call: Callable[[int], Any]) -> int:
    for _ in range(count):
        call(next(NUMBERS))
    return count


def _many(devices: list[str], each: int) -> Iterator[tuple[str, int]]:
    return ((device, next(NUMBERS)) for device in devices for _ in range(each))


def _submit(client: Any, devices: list[str], each: int) -> int:
    for device in devices:
        for _ in range(each // 99):
            client.submit_transaction([("create", entity(device, next(NUMBERS))) for _ in range(99)])
    return len(devices) * (each // 99) * 99


def _replaced(store: tm.Store, count: int) -> int:
    readings = list(store.query(Reading).where(Reading.device == PAGE).limit(count))
    for one in readings:
        one.a += 1
        store.replace(one)
    return len(readings)


def _their_replaced(client: Any, count: int) -> int:
    pages = client.query_entities(f"PartitionKey eq '{PAGE}'", results_per_page=count).by_page()
    entities = list(next(pages))
    for one in entities:
        one["a"] = EntityProperty(one["a"].value + 1, EdmType.INT64)
        client.update_entity(one, mode="replace", etag=one.metadata["etag"], match_condition=_unmodified())
    return len(entities)


def _unmodified() -> Any:
    from azure.core import MatchConditions

    return MatchConditions.IfNotModified


def _their_partition(client: Any, device: str) -> int:
    return len(list(client.query_entities(f"PartitionKey eq '{device}'")))


def tasks(count: int) -> list[Task]:
    """Return the tasks, so many single requests a round."""
    merged = Reading.device.is_in(DEVICES)
    return [
        Task("insert", 0.5, lambda store: _one_by_one(count, lambda n: store.insert(reading("ins", n))),
             lambda client: _one_by_one(count, lambda n: client.create_entity(entity("ins", n)))),
        Task("get", 0.5, lambda store: _one_by_one(count, lambda n: store[Reading.key(PAGE, n % EACH)]),
             lambda client: _one_by_one(count, lambda n: client.get_entity(PAGE, f"{n % EACH:09d}"))),
        Task("replace", 0.5, lambda store: _replaced(store, count), lambda client: _their_replaced(client, count)),
        Task("insert_many, transactions of 99", 0.4,
             lambda store: store.insert_many(reading(*one) for one in _many(["egt"], 99 * 5)),
             lambda client: _submit(client, ["egt"], 99 * 5)),
        Task("insert_many, ten partitions", 0.4,
             lambda store: store.insert_many(reading(*one) for one in _many([f"to {d}" for d in DEVICES], 99)),
             lambda client: _submit(client, [f"to {d}" for d in DEVICES], 99)),
        Task("a partition", 0.6, lambda store: len(list(store.query(Reading).where(Reading.device == PAGE))),
             lambda client: _their_partition(client, PAGE)),
        Task("the first 100 of a range", 0.6,
             lambda store: len(list(store.query(Reading).where(Reading.device == PAGE, Reading.number >= 50).limit(100))),
             lambda client: len(list(next(client.query_entities(
                 f"PartitionKey eq '{PAGE}' and RowKey ge '{50:09d}'", results_per_page=100).by_page())))),
        Task("ten partitions, merged by number", 0.5,
             lambda store: len(list(store.query(Reading).where(merged).order_by(Reading.number))),
             lambda client: len(sorted((one for device in DEVICES for one in client.query_entities(f"PartitionKey eq '{device}'")),
                                       key=lambda one: str(one["RowKey"])))),
    ]  # fmt: skip


def measured(connection: str, rounds: int, count: int) -> dict[Task, list[tuple[float, float, float, float]]]:
    """Return of each task what it took in each round an entity: ours and theirs, by the clock and of the processor."""
    times: dict[Task, list[tuple[float, float, float, float]]] = {}
    with (
        tm.open(connection, models=[Reading]) as store,
        TableServiceClient.from_connection_string(connection) as service,
    ):
        client = service.get_table_client("Readings")
        store.insert_many(reading(device, number) for device in [PAGE, *DEVICES] for number in range(EACH))
        for task in tasks(count):
            progress(task.title)
            task.ours(store), task.theirs(client)
            for _ in range(rounds):
                (ours, our_cpu, done), (theirs, their_cpu, other) = (
                    _timed(task.ours, store), _timed(task.theirs, client),
                )  # fmt: skip
                if done != other:
                    raise Differ(f"{task.title}: {done} and {other} entities")
                times.setdefault(task, []).append((ours / done, theirs / done, our_cpu / done, their_cpu / done))
    return times


def _timed(call: Callable[[Any], int], *args: Any) -> tuple[float, float, int]:
    began, cpu = perf_counter(), process_time()
    done = call(*args)
    return perf_counter() - began, process_time() - cpu, done


# ---------------------------------------------------------------------------------------------- on a link of 10 ms

WAIT = 0.01


def far(azurite: Azurite, rounds: int) -> list[tuple[str, float, float | None]]:
    """Return what takes how many times as long as what it is compared with, and how many are allowed.

    Ten requests of the HTTP library alone, whose answers nobody reads, say how far the emulator can do them at once.
    """
    connection, models = azurite.connection(), [Reading, Person, Sale, Shop]
    with tm.open(connection, models=models) as store:
        store.insert_many(reading(device, number) for device in DEVICES for number in range(20))
        store.insert_many(Person(f"{number:03}", "red") for number in range(100))
    with link(azurite.port, WAIT) as port:
        connection = connection.replace(f":{azurite.port}/", f":{port}/")
        with tm.open(connection, models=models) as store:
            one = store.query(Reading).where(Reading.device == DEVICES[0])
            several = store.query(Reading).where(Reading.device.is_in(DEVICES)).order_by(Reading.number)
            joined = store.query(Person.by_team("red"))
            range_, ranges, join = (
                min(_timed(lambda query=query: len(list(query)))[0] for _ in range(rounds))  # type: ignore[misc]
                for query in (one, several, joined)
            )
            bare, bares = _bare(store, one, rounds), _bare(store, several, rounds)
            hot = [_into_one_group(store, threads) for threads in (1, 4, 8)]
        gathered = asyncio.run(_gathered(connection, rounds))
    return [
        ("ten ranges : one range", ranges / range_, 1.5),
        ("the same requests of the HTTP library alone", bares / bare, None),
        ("a join of 100, round trips", join / range_, 9.0),
        ("200 gathered gets, of 7 round trips", gathered / (7 * range_), 1.3),
        *[
            (f"inserts a second into one group, threads: {n}", rate, None)
            for n, rate in zip((1, 4, 8), hot, strict=True)
        ],
    ]


def _bare(store: tm.Store, query: Any, rounds: int) -> float:
    """Return what the requests of a query take, sent side by side."""
    pool: Any = store._engine.driver._service._pool  # type: ignore[attr-defined]
    send, sent = pool.urlopen, list[tuple[Any, Any]]()

    def noted(*args: Any, **options: Any) -> Any:
        sent.append((args, options))
        return send(*args, **options)

    pool.urlopen = noted
    list(query)
    pool.urlopen = send
    with ThreadPoolExecutor(len(sent)) as threads:
        return min(
            _timed(lambda: len(list(threads.map(lambda one: send(*one[0], **one[1]).data, sent))))[0]
            for _ in range(1 + rounds)
        )


def _into_one_group(store: tm.Store, threads: int) -> float:
    """Return how many entities a second some threads insert that change one group."""
    with ThreadPoolExecutor(threads) as running:
        inserted = running.map(
            lambda number: store.insert(Sale(number, "one", 5)), itertools.islice(NUMBERS, 25 * threads)
        )
        seconds, _, done = _timed(lambda: len(list(inserted)))
    return done / seconds


async def _gathered(connection: str, rounds: int) -> float:
    times = []
    async with tm.open_async(connection, models=[Reading, Person]) as store:
        for _ in range(1 + rounds):  # (the first makes connections)
            began = perf_counter()
            await asyncio.gather(*(store.get(Reading.key(DEVICES[n % 10], n % 20)) for n in range(200)))
            times.append(perf_counter() - began)
    return min(times[1:])


# ---------------------------------------------------------------------------------------------- in bounded memory


class _Endless(Memory):
    """A service that makes up pages of entities as they are asked for, so many in all."""

    count = 0

    def send(self, request: Any, *wait: float) -> Any:
        if not isinstance(request, QueryEntities) or request.table != "Readings":
            return super().send(request)
        first = 0 if request.after is None else int(request.after[1])
        made = [
            {"odata.etag": "W/\"datetime'2026-01-01T00%3A00%3A00.0000001Z'\"", "PartitionKey": "p", "RowKey": f"{n:09d}",
             "a": "1", "a@odata.type": "Edm.Int64", "b": "2", "b@odata.type": "Edm.Int64", "c": "three", "d": "four",
             "e": 5.5, "f": 6.5, "g": True, "h": "2023-10-27T09:00:00.000000Z", "h@odata.type": "Edm.DateTime"}
            for n in range(first, min(first + 1000, self.count))
        ]  # fmt: skip
        return EntityPage(made, ("p", str(first + 1000)) if first + 1000 < self.count else None)


def grown(count: int) -> float:
    """Return by how many MB this process grows at most that streams so many entities."""
    service = _Endless()
    with tm.Store(AzureEngine.open(service, "endless", compile_schema([Reading]))) as store:
        query = store.query(Reading).where(Reading.device == "p")
        service.count = 1000
        list(query)
        before, service.count = peak(), count
        if sum(1 for _ in query) != count:
            raise Differ("a stream has another number of entities")
        return peak() - before


# ---------------------------------------------------------------------------------------------- the table


def main(given: list[str] | None = None) -> None:
    parser = parser_of("python -m examples.benchmarks azure", __doc__)
    parser.add_argument("--requests", type=int, default=100, help="single requests of a round (default %(default)s)")
    parser.add_argument("--streamed", type=int, default=1_000_000, help="entities in a stream (default %(default)s)")
    parser.add_argument(
        "--link", action=argparse.BooleanOptionalAction, default=True, help="what a link of 10 ms shows"
    )
    add_options(parser, rounds=4)
    options = parser.parse_args(given)
    progress("a stream")
    more = grown(options.streamed)  # (first: what counts is the most memory that the process ever had)
    with contextmanager(start)() as azurite:
        times = measured(azurite.connection(), options.rounds, options.requests)
        links = far(azurite, options.rounds) if options.link else []
    rows: list[list[str]] = []
    plain: dict[str, Any] = {}
    for task, taken in times.items():
        ours, theirs, our_cpu, their_cpu = (min(column) for column in zip(*taken, strict=True))
        ratio = ours / theirs
        shown = cell(f"{ratio:.2f}", "≤", task.target, met=ratio <= task.target)
        each = [f"{one * 1e6:,.0f}" for one in (ours, theirs)]
        rows.append(
            [
                task.title,
                *each,
                shown,
                *[f"{one * 1e6:,.0f}" for one in (our_cpu, their_cpu)],
                f"{our_cpu / their_cpu:.2f}",
            ]
        )
        plain[task.title] = {"seconds": taken, "ratio": ratio, "target": task.target}
    for title, ratio, target in links:
        shown = f"{ratio:.1f}" if target is None else cell(f"{ratio:.1f}", "≤", target, met=ratio <= target)
        rows.append([f"on a link of 10 ms: {title}", "", "", shown, "", "", ""])
        plain[title] = {"ratio": ratio, "target": target}
    rows.append(
        [
            f"{options.streamed:,} entities streamed, MB",
            f"{more:.0f}",
            "",
            cell("", "≤", MOST_MB, met=more <= MOST_MB),
            "",
            "",
            "",
        ]
    )
    plain["streamed"] = {"entities": options.streamed, "MB": more}
    head = [
        ["", "", f"SDK {__version__}", "", "processor", f"SDK {__version__}", ""],
        ["", "µs an entity", "µs an entity", "ratio", "µs an entity", "µs an entity", "ratio"],
    ]
    title = f"Azurite, beside azure-data-tables {__version__}, best of {options.rounds} rounds"
    publish(options, "azure", Table(title, head, rows, {"azure": plain}))


if __name__ == "__main__":
    main()
