"""What large entities cost, beside a plain rowid table with an index on (pk, rk): ``python -m examples.benchmarks.sizes``.

Scattered: 50 entities a transaction, each in a partition of its own; clustered: all in one, a new one. Fewer where they
would be more than 3 MiB. There are no indexes and no aggregates: this is about where the values are.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from itertools import chain
from operator import attrgetter
from types import new_class
from typing import Any

import attrs

import tablemapper as tm
from tablemapper.engines.sqlite.sql.statements import SPILL_ROW

from .by_hand import connected
from .contestant import Durability
from .measure import measure
from .output import Table, add_options, number, parser_of, progress, publish
from .phases import LAPS, Phase, laps
from .table import OURS, Results, cell

Facts = tuple[Any, ...]
"""Partition, row, then the bodies."""

ROWID = "rowid"
_BODY = 64 << 10  # bytes: no property may have more
_LARGEST = (1 << 20) - (4 << 10)  # bytes: an entity of 1 MiB has to hold its keys, too
_LOADED = 48 << 20  # bytes of bodies that there are before anything is measured
_NOISE = random.Random(0).randbytes(4 << 20)
_INLINE = SPILL_ROW  # bytes: up to here values stay in the row, and a clustered table is slow to insert into all over


def bodies(size: int) -> dict[str, int]:
    """Return the bytes of each body of an entity of about so many."""
    size = min(size, _LARGEST)
    return {f"body{at // _BODY:02}": min(_BODY, size - at) for at in range(0, size, _BODY)}


class Ours:
    title = "tablemapper"

    def __init__(self, path: str, size: int, durability: Durability) -> None:
        body = {
            "__module__": __name__,
            "__qualname__": "Large",
            "__annotations__": {
                **dict.fromkeys(("partition", "row"), tm.Field[str]),
                **dict.fromkeys(bodies(size), tm.Field[bytes]),
            },
            "key": tm.Key[str, str](partition="{partition}", row="{row}"),
        }
        self.entity: Any = new_class("Large", (tm.Entity,), {"table": "Larges"}, lambda space: space.update(body))
        self.store = tm.open(path, models=[self.entity], durability=durability)

    def bulk(self, all_facts: list[Facts]) -> None:
        self.store.insert_many(self.entity(*facts) for facts in all_facts)

    def insert(self, batch: list[Facts]) -> None:
        with self.store.transaction(across_partitions=True) as tx:
            for facts in batch:
                tx.insert(self.entity(*facts))

    def get(self, key: Facts) -> list[Any]:
        return [self.store.get(self.entity.key(*key))]

    def partition(self, partition: str) -> list[Any]:
        return list(self.store.query(self.entity).where(self.entity.partition == partition))

    def everything(self) -> Iterable[Any]:
        return self.store.query(self.entity).allow_scan()

    def checkpoint(self) -> None:
        self.store._engine.file._connection.wal_checkpoint()  # type: ignore[attr-defined]

    def close(self) -> None:
        self.store.close()


class Rowid:
    """A plain table, an index on the keys; rows are written sorted with ``executemany``, and read into small objects."""

    title = "rowid table"

    def __init__(self, path: str, size: int, durability: Durability) -> None:
        db = self.db = connected(path, durability)
        names = list(bodies(size))
        listed = ", ".join(["pk", "rk", "version", *names])
        db.execute(f"CREATE TABLE larges(id INTEGER PRIMARY KEY, {listed})")
        db.execute("CREATE UNIQUE INDEX larges_key ON larges(pk, rk)")
        self.add = f"INSERT INTO larges({listed}) VALUES(?, ?, ?{', ?' * len(names)})"
        self.one = f"SELECT {listed} FROM larges WHERE pk = ? AND rk = ?"
        self.of_partition = f"SELECT {listed} FROM larges WHERE pk = ? ORDER BY rk"
        self.all = f"SELECT {listed} FROM larges ORDER BY pk, rk"
        fields = ("partition", "row", "version", *names)
        self.build = attrs.make_class("Large", fields, slots=True, eq=False, order=False)
        self.version = 0

    def bulk(self, all_facts: list[Facts]) -> None:
        with self.db:
            for at in range(0, len(all_facts), 1_000):
                self._insert(all_facts[at : at + 1_000])

    def insert(self, batch: list[Facts]) -> None:
        with self.db:
            self._insert(batch)

    def _insert(self, batch: list[Facts]) -> None:
        version = self.version = max(self.version + 1, time.time_ns() // 1000)
        self.db.executemany(self.add, sorted((pk, rk, version, *values) for pk, rk, *values in batch))

    def get(self, key: Facts) -> list[Any]:
        return [self.build(*self.db.execute(self.one, key).get)]

    def partition(self, partition: str) -> list[Any]:
        build = self.build
        return [build(*row) for row in self.db.execute(self.of_partition, (partition,)).fetchall()]

    def everything(self) -> Iterable[Any]:
        return (self.build(*row) for row in self.db.execute(self.all))

    def checkpoint(self) -> None:
        self.db.wal_checkpoint()

    def close(self) -> None:
        self.db.close()


@attrs.frozen(slots=False)
class Larges:
    """What is written and asked in one round: partitions of 20 entities, loaded in random order."""

    size: int
    loaded: int
    """Bytes of bodies."""
    seed: int

    @property
    def entities(self) -> int:
        return max(40, min(50_000, self.loaded // self.size))

    @property
    def together(self) -> int:
        """Return how many are written in one transaction."""
        return max(2, min(50, (3 << 20) // self.size))

    def _values(self, rnd: random.Random) -> list[bytes]:
        return [_NOISE[(at := rnd.randrange(len(_NOISE) - n)) : at + n] for n in bodies(self.size).values()]

    def _partition(self, number: int) -> str:
        return f"partition{number:06}"

    @cached_property
    def keys(self) -> list[tuple[str, str]]:
        """The keys of those that are loaded, in random order."""
        keys = [(self._partition(n // 20), f"{n:08}") for n in range(self.entities)]
        random.Random(self.seed).shuffle(keys)
        return keys

    def load(self) -> Iterator[list[list[Facts]]]:
        rnd = random.Random(self.seed + 1)
        yield [[(*key, *self._values(rnd)) for key in self.keys]]

    def _batches(self) -> int:
        return max(2, min(200, self.loaded // 2 // self.size // self.together))

    def scattered(self) -> list[list[Facts]]:
        """Return batches of entities that come into partitions which are there, one each."""
        rnd = random.Random(self.seed + 2)
        partitions = range(-(-self.entities // 20))
        return [
            [
                (self._partition(n), f"scattered{batch:06}{place:02}", *self._values(rnd))
                for place, n in enumerate(rnd.choices(partitions, k=self.together))
            ]
            for batch in range(self._batches())
        ]

    def clustered(self) -> list[list[Facts]]:
        """Return batches of entities, each a partition that is new."""
        rnd = random.Random(self.seed + 3)
        return [
            [(f"new{batch * 7919 % 10_000:06}", f"{n:08}", *self._values(rnd)) for n in range(self.together)]
            for batch in range(self._batches())
        ]

    def gets(self) -> list[tuple[str, str]]:
        return self.keys[: min(5_000, max(LAPS, (64 << 20) // self.size))]

    def partitions(self) -> list[str]:
        return list(dict.fromkeys(partition for partition, _ in self.gets()))[: max(LAPS, len(self.gets()) // 10)]

    def seen(self, found: Iterable[Any]) -> list[Any]:
        values = attrgetter("partition", "row", *bodies(self.size))
        return [values(one) for one in found]

    def left(self, contestant: Any) -> Any:
        digest, values = hashlib.blake2b(digest_size=16), attrgetter("partition", "row", *bodies(self.size))
        for one in contestant.everything():
            partition, row, *rest = values(one)
            for part in chain((partition.encode(), row.encode()), rest):
                digest.update(part)
        return digest.hexdigest()


PHASES = (
    Phase("bulk", "bulk", lambda c, facts: c.bulk(facts), lambda w: w.load(), after=()),
    Phase("scattered", "scattered insert", lambda c, b: c.insert(b), lambda w: laps(w.scattered()), 1.2),
    Phase("clustered", "clustered insert", lambda c, b: c.insert(b), lambda w: laps(w.clustered()), 1.2),
    Phase("get", "get", lambda c, key: c.get(key), lambda w: laps(w.gets()), 1.2, reads=True),
    Phase(
        "partition", "partition query",
        lambda c, partition: c.partition(partition),
        lambda w: laps(w.partitions()),
        1.2, reads=True,
    ),
)  # fmt: skip


def target(phase: Phase, size: int) -> float | None:
    """Return how many times the time of a rowid table ours may take."""
    return 2.6 if size <= _INLINE and phase.name == "scattered" else phase.target


def row(size: int, results: Results) -> list[str]:
    """Return the cells of one size."""
    cells = [f"{size:,}"]
    for phase in results.phases:
        value, most = results.ratio(phase, ROWID), target(phase, size)
        cells += [
            f"{results.cost(phase, OURS):,.1f}",
            cell(f"{value:.2f}", "≤", most, met=most is None or value <= most),
        ]
    value = results.size(OURS) / results.size(ROWID)
    return [*cells, cell(f"{value:.2f}", "≤", 1.2, met=value <= 1.2)]


def main(given: list[str] | None = None) -> None:
    parser = parser_of("python -m examples.benchmarks.sizes", __doc__)
    parser.add_argument("--sizes", default="50,100,300,1k,4k,16k,1m", metavar="BYTES,…", help="default %(default)s")
    parser.add_argument("--loaded", default=str(_LOADED), metavar="BYTES", help="of each store (default %(default)s)")
    add_options(parser, rounds=3)
    options = parser.parse_args(given)
    rows, plain = [], {}
    for size in (number(text, binary=True) for text in options.sizes.split(",")):
        makers = {
            name: partial(cls, size=size, durability=options.durability) for name, cls in ((OURS, Ours), (ROWID, Rowid))
        }
        works = [Larges(size, number(options.loaded, binary=True), seed) for seed in range(options.rounds)]
        times = measure(makers, PHASES, works, folder=options.folder, progress=progress)
        results = Results(times, PHASES, {OURS: Ours.title, ROWID: Rowid.title}, options.clock)
        rows.append(row(size, results))
        plain[size] = results.plain()
    head = [
        ["bytes", *(text for phase in PHASES for text in (phase.title, "")), "file"],
        ["", *["µs", "by rowid"] * len(PHASES), "by rowid"],
    ]
    title = f'Entities by their size, medians of {options.rounds} rounds, durability "{options.durability}"'
    publish(options, "sizes", Table(title, head, rows, {"sizes": plain}))


if __name__ == "__main__":
    main()
