"""What an operation costs as a store grows: ``python -m examples.benchmarks.scale``.

Stores of all sizes are open at the same time, and take turns. They are filled in the order of their keys, so that ten
million entities are there in ten minutes or so; what is measured then goes to random places. Every round works on the same
stores, which grow by what it inserts.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import starmap
from typing import Any

import attrs

from .data import DAYS, START, STATUSES, Facts
from .measure import Taken, file_size, lap
from .ours import Order, Ours
from .output import Table, add_options, number, parser_of, progress, publish
from .phases import PHASES, Phase, laps
from .table import cell

EACH = 2_500  # operations of a round, in each store
_PAGE = 4096
_MOST = 1.6  # times the cost in the smallest store that an operation may have in the largest
_RUN = time.time_ns() // 1000  # no two runs insert the same, if they work on the same stores
_SHOWN = ("get", "partition", "index", "aggregate", "insert", "insert50", "update50", "delete50")


@attrs.frozen
class Grown:
    """Orders that were placed one after the other, and questions about any of them.

    Customers, articles and times all rise with the number of the order: each table is filled from one end to the other.
    """

    entities: int

    def order(self, at: int) -> Facts:
        """Return the order of a number."""
        rnd = random.Random(at)
        placed = START + timedelta(microseconds=DAYS * 86_400_000_000 * at // self.entities)
        return self._order(rnd, f"o-{at:08}", at // 20, placed, at // 50)

    def _order(self, rnd: random.Random, order_id: str, customer: int, placed: Any, sku: int) -> Facts:
        return (
            f"c{customer:07}", placed, order_id, f"sku{sku:06}", rnd.choice(STATUSES), rnd.randrange(1, 9),
            round(rnd.uniform(1, 500), 2), "leave it with the neighbours " * rnd.randrange(3),
        )  # fmt: skip

    def all(self) -> Iterator[Facts]:
        return map(self.order, range(self.entities))

    def later(self, count: int, seed: str) -> list[Facts]:
        """Return new orders, anywhere among those that are there."""
        rnd, last = random.Random(seed), self.entities - 1
        return [
            self._order(
                rnd,
                f"n-{_RUN}-{seed}-{n:05}",
                rnd.randint(0, last) // 20,
                START + timedelta(microseconds=rnd.randrange(DAYS * 86_400_000_000)),
                rnd.randint(0, last) // 50,
            )
            for n in range(count)
        ]

    def some(self, count: int, seed: int) -> list[Facts]:
        """Return orders that are there, anywhere."""
        rnd = random.Random(seed)
        return [self.order(rnd.randrange(self.entities)) for _ in range(count)]

    def calls(self, phase: Phase, seed: int) -> list[Any]:
        """Return the arguments of a phase's calls."""
        if phase.name == "insert":
            return self.later(EACH, f"{seed:02}")
        if phase.name.endswith("50"):
            orders = self.later(EACH, f"{seed:02}-50")  # which are inserted, then changed, then deleted
            return [orders[at : at + 50] for at in range(0, len(orders), 50)]
        some = self.some(EACH if phase.name in ("get", "aggregate") else EACH // 10, seed)
        return [_ARGUMENTS.get(phase.name, lambda order: order)(order) for order in some]


_ARGUMENTS: dict[str, Any] = {
    "partition": lambda order: order[0],
    "index": lambda order: order[3],
    "aggregate": lambda order: order[1].date(),
}


def opened(size: int, directory: str, durability: Any) -> Ours:
    """Return a store of a size: the one that is there, or a new one."""
    ours = Ours(os.path.join(directory, f"{size}.db"), durability)
    if next(iter(ours.everything()), None) is None:
        progress(f"filling {size:,}")
        ours.store.insert_many(starmap(Order, Grown(size).all()))
    return ours


def forget(path: str) -> None:
    """Drop a file that was just filled from the system's page cache, which holds it in large pieces; see `warm`."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def warm(path: str) -> None:
    """Have a file in the system's page cache: what is measured is the store, not the disk.

    It is read page by page, with the advice that reads are random, as a store reads it. A file that is read through is
    cached in large pieces, and each later write of a page costs the system five times as much.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        for at in range(0, os.fstat(file).st_size, _PAGE):
            os.pread(file, _PAGE, at)
    finally:
        os.close(file)


def take(phase: Phase, made: dict[int, Ours], seed: int) -> dict[int, Taken]:
    """Return what an operation takes in each store."""
    parts = {size: laps(Grown(size).calls(phase, seed)) for size in made}
    gc.collect()
    gc.freeze()
    taken: dict[int, list[tuple[float, float, int]]] = {size: [] for size in made}
    order = list(made)
    for at in range(max(map(len, parts.values()))):
        random.shuffle(order)
        for size in order:
            if at < len(parts[size]):
                taken[size].append(lap(phase, made[size], parts[size][at]))
    gc.unfreeze()
    sums = {size: [sum(column) for column in zip(*found, strict=True)] for size, found in taken.items()}
    return {size: Taken(wall * 1e6 / done, cpu * 1e6 / done) for size, (wall, cpu, done) in sums.items()}


def table(title: str, clock: str, times: dict[str, dict[int, list[Taken]]], each: dict[int, float]) -> Table:
    """Return a row for each phase, and the bytes of each order."""
    sizes = list(each)
    rows, plain = [], {}
    for phase in PHASES:
        if phase.name not in times:
            continue
        rounds = {size: [getattr(one, clock) for one in found] for size, found in times[phase.name].items()}
        pairs = zip(rounds[sizes[-1]], rounds[sizes[0]], strict=True)
        growth = statistics.median(last / first for last, first in pairs)
        costs = [f"{statistics.median(rounds[size]):.1f}" for size in sizes]
        rows.append([phase.title, *costs, cell(f"{growth:.2f}", "≤", _MOST, met=growth <= _MOST)])
        both = {size: [attrs.asdict(one) for one in found] for size, found in times[phase.name].items()}
        plain[phase.name] = {"µs": both, "growth": growth}
    rows.append(["file, bytes an entity", *(f"{each[size]:.0f}" for size in sizes), ""])
    head = [["", *(f"{size:,}" for size in sizes), "last by first"], ["", *["µs"] * len(sizes), ""]]
    return Table(title, head, rows, {"phases": plain, "bytes an entity": each})


def main(given: list[str] | None = None) -> None:
    parser = parser_of("python -m examples.benchmarks.scale", __doc__)
    parser.add_argument("--entities", default="100k,1m,10m", metavar="N,…", help="default %(default)s")
    parser.add_argument("--keep", metavar="FOLDER", help="where the stores stay, and are found by the next run")
    add_options(parser, rounds=7)
    options = parser.parse_args(given)
    sizes = [number(text) for text in options.entities.split(",")]
    times: dict[str, dict[int, list[Taken]]] = {}
    with contextlib.ExitStack() as stack:
        directory = options.keep or stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder))
        made = {size: opened(size, directory, options.durability) for size in sizes}
        paths = {size: os.path.join(directory, f"{size}.db") for size in sizes}
        each = {size: file_size(path) / size for size, path in paths.items()}
        for path in paths.values():
            forget(path)
        for seed in range(options.rounds + 1):
            for phase in PHASES:
                if phase.name not in _SHOWN:
                    continue
                progress(f"round {seed} of {options.rounds}: {phase.title}")
                for path in paths.values():
                    warm(path)
                taken = take(phase, made, seed)
                if seed:  # the first round only warms up
                    for size, one in taken.items():
                        times.setdefault(phase.name, {}).setdefault(size, []).append(one)
        for ours in made.values():
            ours.close()
    title = f"Stores of {', '.join(f'{size:,}' for size in sizes)} orders, medians of {options.rounds} rounds"
    publish(options, "scale", table(f'{title}, durability "{options.durability}"', options.clock, times, each))


if __name__ == "__main__":
    main()
