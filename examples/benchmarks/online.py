"""Changes of a model while the store is in use: ``python -m examples.benchmarks.online``.

Online builds beside builds in one transaction, writers beside builds, copies and their switches. What is compared is taken in
turn in each round, over copies of one file. All of it takes some minutes. ``--only copy open --into PAGE`` measures these parts,
and keeps the other rows of the page.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any, Literal
from unittest import mock

import attrs

import tablemapper as tm
from tablemapper.engines.sqlite.online.migration import SqliteMigrations
from tablemapper.engines.sqlite.sql import catalogue_table
from tablemapper.evolution import newer_versions as followed
from tablemapper.store.builds import build

from .measure import Differ, peak
from .output import Table, add_options, number, parser_of, progress, publish

SHOPS = 50
NAMES = 5_000
KINDS = 200
HOLDS = (0.005, 0.01, 0.05)
_CHUNK = 50  # writes after which the other store has its turn


FIELDS: dict[str, Any] = {
    "shop": str, "number": int, "name": str, "kind": str, "price": str, "sold": int, "note": str,
}  # fmt: skip
KEY = tm.Key[str, int](partition="{shop}", row="{number}")


def shape(key: Any = KEY, price: type = str, **body: Any) -> Any:
    """Return a version of the class of items."""
    annotations = {name: tm.Field[kind] for name, kind in (FIELDS | {"price": price}).items()}
    body |= {"note": tm.field(default="a note that makes the row as long as rows are")}
    own = {"__annotations__": annotations, "__module__": __name__, "key": key}
    return type(tm.Entity)("Item", (tm.Entity,), own | body, table="Items")


def sales(of: Any, by: str = "kind") -> Any:
    """Return an aggregate of a version."""

    class Sales(tm.Aggregate, of=of, table="Sales"):
        group: tm.Field[str] = tm.group_by(getattr(of, by))
        items: tm.Field[int] = tm.count()
        sold: tm.Field[int] = tm.sum(of.sold)

        key = tm.Key[str](partition="{group}")

    return Sales


OLD = shape()
INDEXED = shape(by_name=tm.Index[str, int](partition="{name}", row="{sold}", include=["price"]))
PLAIN = shape()
PRICED = shape(price=Decimal)
KEYED = shape(tm.Key[int, str](partition="{number}", row="{shop}"))
MODELS: dict[str, list[Any]] = {
    "an index": [INDEXED],
    f"an aggregate of {KINDS} groups": [PLAIN, sales(PLAIN)],
    f"an aggregate of {NAMES:,} groups": [PLAIN, sales(PLAIN, "name")],
    "an index and an aggregate": [INDEXED, sales(INDEXED)],
}
BOTH = MODELS["an index and an aggregate"]


class Name(tm.Entity, table="Names"):
    name: tm.Field[str]
    items: tm.Field[int]
    sold: tm.Field[int]

    key = tm.Key[str](partition="{name}")


@tm.migration(after=None, old=[OLD], new=[PRICED])
def decimals(m: tm.Migration) -> None:
    m.convert(OLD.price, PRICED.price, Decimal)


@tm.migration(after=None, old=[OLD], new=[KEYED])
def rekey(m: tm.Migration) -> None:
    m.rekey(OLD, KEYED)


@tm.migration(after=None, old=[OLD], new=[Name])
def combine(m: tm.Migration) -> None:
    def one(item: Any) -> Name:
        return Name(item.name, 1, item.sold)

    def together(a: Name, b: Name) -> Name:
        return Name(a.name, a.items + b.items, a.sold + b.sold)

    m.rewrite(OLD, one, into=[Name], combine=together)


def items(count: int, seed: int = 0) -> Iterator[Any]:
    """Yield so many items in the order of their keys."""
    draw = random.Random(seed)
    for at in range(count):
        shop, n = divmod(at, -(-count // SHOPS))
        name, kind = f"name {draw.randrange(NAMES)}", f"kind {draw.randrange(KINDS)}"
        yield OLD(f"shop{shop:04}", n, name, kind, f"{draw.randrange(9999) / 100}", draw.randrange(1000))


@attrs.frozen
class Figure:
    """One line of the table."""

    name: str
    title: str
    values: Sequence[float]
    """Of each round."""
    goal: float | None = None
    sign: Literal["≤", "≥"] = "≤"
    unit: str = ""
    beside: str = ""
    """What it was taken of, in words."""

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool:
        return self.goal is None or (self.value <= self.goal if self.sign == "≤" else self.value >= self.goal)

    def row(self) -> list[str]:
        text = f"{self.value:,.0f}" if abs(self.value) >= 100 else f"{self.value:.2f}"
        goal = None if self.goal is None else f"{self.goal:,g}"
        shown = text + self.unit + ("" if goal is None else f" ({self.sign} {goal})") + ("" if self.met else " !")
        return [self.title, shown, self.beside]


class Bench:
    """The files of a run."""

    def __init__(self, options: argparse.Namespace, folder: str) -> None:
        self.options = options
        self._folder = folder
        self._copies = 0

    def base(self, count: int) -> str:
        """Return a store of so many items, which nobody is to change."""
        path = os.path.join(self._folder, f"{count}.db")
        if not os.path.exists(path):
            progress(f"filling {count:,}")
            with tm.open(path, models=[OLD], durability="relaxed") as store:
                store.insert_many(items(count))
        return path

    @contextmanager
    def store(self, count: int) -> Iterator[str]:
        """Give a copy of such a store."""
        self._copies += 1
        path = os.path.join(self._folder, f"copy{self._copies}.db")
        shutil.copyfile(self.base(count), path)
        try:
            yield path
        finally:
            for end in ("", "-wal", "-shm", "-turn"):
                if os.path.exists(path + end):
                    os.unlink(path + end)

    def open(self, path: str, *models: Any, **options: Any) -> tm.Store:
        return tm.open(path, models=models, **{"durability": self.options.durability, "timeout": 60.0, **options})

    def rounds(self, what: str) -> Iterator[int]:
        """Yield the numbers of the rounds: no further one begins when those before took as long as one figure may."""
        until = time.perf_counter() + self.options.bound
        for at in range(self.options.rounds):
            if at and time.perf_counter() > until:
                return
            progress(f"{what}, round {at + 1} of {self.options.rounds}")
            gc.collect()
            yield at

    @property
    def now(self) -> Callable[[], float]:
        return time.perf_counter if self.options.clock == "wall" else time.process_time

    @contextmanager
    def unready(self, count: int, models: Sequence[Any]) -> Iterator[tm.Store]:
        """Give a store of so many items in which nothing of some models is built, and whose batches take this clock."""
        with self.store(count) as path, self.open(path, *models, build=False) as store:
            engine: Any = store._engine
            engine.file._writes._monotonic = self.now
            yield store


@contextmanager
def noted(cls: Any, name: str) -> Iterator[list[Any]]:
    """Give a list of what a method returns from now on."""
    results: list[Any] = []
    method = getattr(cls, name)

    def call(*args: Any, **options: Any) -> Any:
        result = method(*args, **options)
        results.append(result)
        return result

    with mock.patch.object(cls, name, call):
        yield results


def p95(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


# ------------------------------------------------------------------------------------------------ builds


def builds(bench: Bench) -> Iterator[Figure]:
    """Yield how fast a build in short transactions is, beside one transaction; nobody else writes."""
    count = number(bench.options.entities)
    for what, models in MODELS.items():
        ratios, speeds = [], {True: list[float](), False: list[float]()}
        for at in bench.rounds(f"build of {what}"):
            taken = {}
            for online in (True, False) if at % 2 else (False, True):
                with bench.unready(count, models) as store:
                    start = bench.now()
                    done = build(store._engine) if online else store._engine.build(count + 1, None)
                    taken[online] = bench.now() - start
                    if done is None or done.entities != count:
                        raise Differ(f"a build read other entities than the {count} that there are")
                    _check(store)
                speeds[online].append(count / taken[online])
            ratios.append(taken[False] / taken[True])
        speed, whole = (statistics.median(speeds[online]) for online in (True, False))
        beside = f"{speed:,.0f} entities/s, {whole:,.0f} in one transaction"
        yield Figure(
            f"build {what}", f"build of {what}, its speed by that in one transaction", ratios, 0.5, "≥", "", beside
        )


def _check(store: tm.Store) -> None:
    """Raise Differ if something is not built, or not what the entities make it."""
    if not store.build(rest=0).done or not store.check().ok:
        raise Differ("what was built is not what the entities make it")


def batches(bench: Bench) -> Iterator[Figure]:
    """Yield how long a transaction of a build takes, from begin to commit, at some holds."""
    count = number(bench.options.entities)
    for hold in HOLDS:
        values, middle = [], []
        for _ in bench.rounds(f"batches of {hold * 1000:g} ms"):
            with bench.unready(count, BOTH) as store:
                engine: Any = store._engine
                with noted(type(engine), "build") as built:
                    build(engine, hold=hold, rest=0)
            taken = [one.pace.seconds for one in built if one is not None]
            values.append(p95(taken) / hold)
            middle.append(statistics.median(taken))
        beside = (
            f"median {statistics.median(middle) * 1000:.1f} ms, p95 {statistics.median(values) * hold * 1000:.1f} ms"
        )
        yield Figure(
            f"batch {hold * 1000:g}", f"p95 of a batch, by hold={hold * 1000:g} ms", values, 2.0, "≤", "", beside
        )


class _Enough(Exception):
    """A build has been watched for long enough."""


def writers(bench: Bench) -> Iterator[Figure]:
    """Yield what writers of the old version get done beside a build, by what they do once all is built."""
    options = bench.options
    failures = list[float]()
    for durability in ("relaxed", "full"):
        for rest in options.rests:
            title = f"writers beside a build, rest={rest:g}, {durability}: their speed by that once it is ready"
            ratios, speeds = [], []
            for _ in bench.rounds(title):
                with bench.store(number(options.entities)) as path:
                    before, after, held, failed = _beside(bench, path, durability, rest)
                ratios.append(before / after)
                speeds.append((before, after, held))
                failures.append(failed)
            during, ready, held = (statistics.median(column) for column in zip(*speeds, strict=True))
            beside = f"{during:,.0f}/s, then {ready:,.0f}/s; the build held the file for {held:.0%} of the time"
            yield Figure(f"writers {durability} {rest:g}", title, ratios, 0.5, "≥", "", beside)
    title = "writes of the old version that failed because of a build"
    yield Figure("failed", title, [sum(failures)], 0)


def _beside(bench: Bench, path: str, durability: str, rest: float) -> tuple[float, float, float, int]:
    spawn = multiprocessing.get_context("spawn")
    seconds, count = bench.options.seconds, bench.options.writers
    counts, stop, errors = spawn.Array("q", count), spawn.Event(), spawn.SimpleQueue()
    each = number(bench.options.entities) // SHOPS
    tasks = [
        spawn.Process(target=write_on, args=(path, which, each, durability, counts, stop, errors))
        for which in range(count)
    ]
    for task in tasks:
        task.start()
    try:
        while not all(counts):
            time.sleep(0.01)
            if not all(task.is_alive() for task in tasks):
                raise RuntimeError(errors.get())

        def speed(work: Callable[[float], object]) -> tuple[float, float]:
            start, begun = time.perf_counter(), sum(counts)
            work(start + seconds)
            taken = time.perf_counter() - start
            return (sum(counts) - begun) / taken, taken

        with bench.open(path, *BOTH, build=False, durability=durability) as store:

            def building(until: float) -> None:
                def sleep(taken: float) -> None:
                    time.sleep(taken)
                    if time.perf_counter() > until:
                        raise _Enough

                with suppress(_Enough):
                    build(store._engine, rest=rest, sleep=sleep)

            with noted(type(store._engine), "build") as built:
                during, taken = speed(building)
            held = sum(one.pace.seconds for one in built if one is not None) / taken
            _check(store)
        after, _ = speed(lambda until: time.sleep(until - time.perf_counter()))
    finally:
        stop.set()
        for task in tasks:
            task.join()
    failed = 0
    while not errors.empty():
        failed += 1
        print(errors.get(), file=sys.stderr)
    with bench.open(path, *BOTH) as store:
        _check(store)
    return during, after, held, failed


def write_on(path: str, which: int, each: int, durability: Any, counts: Any, stop: Any, errors: Any) -> None:
    """Write to a store as its old version does, without a pause, until an event is set."""
    draw = random.Random(which)
    with tm.open(path, models=[OLD], durability=durability, timeout=60.0) as store:
        while not stop.is_set():
            try:
                change(store, draw, each)
            except Exception as error:
                errors.put(repr(error))
                return
            counts[which] += 1


def change(store: tm.Store, draw: random.Random, each: int, shops: tuple[int, int] = (0, SHOPS)) -> None:
    """Change any item of some shops, so that everything that is maintained of it changes."""
    at = f"shop{draw.randrange(*shops):04}", draw.randrange(each)
    store.merge(OLD.key(*at), name=f"name {draw.randrange(NAMES)}", kind=f"kind {draw.randrange(KINDS)}")


# ------------------------------------------------------------------------------------------------ one write


def writes(bench: Bench) -> Iterator[Figure]:
    """Yield what a write costs beside a build that stands still, by what it costs without."""
    count = number(bench.options.entities)
    each = count // SHOPS
    early, late = (0, SHOPS // 2 - 1), (SHOPS // 2 + 1, SHOPS)
    with bench.store(count) as plain, bench.store(count) as halved, bench.store(count) as ready:
        with bench.open(halved, *BOTH, build=False) as store:
            store.build(limit=count // 2)
        bench.open(ready, *BOTH).close()
        with bench.open(plain, OLD) as without, bench.open(halved, OLD) as beside, bench.open(ready, OLD) as after:
            yield _compared(
                bench, "write before", "a write beside a build that has not come to it, by one without",
                (beside, late), (without, late), each, 1.1,
            )  # fmt: skip
            yield _compared(
                bench, "write behind", "a write of what a build has passed, by one once it is ready",
                (beside, early), (after, early), each, 1.1,
            )  # fmt: skip


def twins(bench: Bench) -> Iterator[Figure]:
    """Yield what a write costs that is kept in step in the tables of another version."""
    count = number(bench.options.entities)
    each = count // SHOPS
    with bench.store(count) as plain, bench.store(count) as other:
        tm.migrate(other, [rekey], rest=0, durability="relaxed")
        with bench.open(plain, OLD) as without, bench.open(other, OLD) as beside:
            title = "a write of the old version after a rekey, which has a twin, by one without"
            yield _compared(bench, "twin", title, (beside, (0, SHOPS)), (without, (0, SHOPS)), each, None)


def _compared(
    bench: Bench,
    name: str,
    title: str,
    ours: tuple[tm.Store, Any],
    theirs: tuple[tm.Store, Any],
    each: int,
    goal: float | None,
) -> Figure:
    ratios, costs = [], []
    for at in bench.rounds(title):
        taken = [0.0, 0.0]
        for chunk in range(bench.options.writes // _CHUNK):
            for which, (store, shops) in sorted(enumerate((ours, theirs)), reverse=bool(chunk % 2)):
                draw = random.Random(f"{at} {chunk}")
                start = bench.now()
                for _ in range(_CHUNK):
                    change(store, draw, each, shops)
                taken[which] += bench.now() - start
        ratios.append(taken[0] / taken[1])
        costs.append([one / bench.options.writes * 1e6 for one in taken])
    first, second = (statistics.median(column) for column in zip(*costs, strict=True))
    return Figure(name, title, ratios, goal, "≤", "", f"{first:.0f} µs by {second:.0f}")


def following(bench: Bench) -> Iterator[Figure]:
    """Yield how much longer the first write of an old version takes after another process changed the catalogue."""
    count = 2_000
    first, then = [], []
    for at in bench.rounds("following"):
        draw = random.Random(at)

        def timed(store: tm.Store, draw: random.Random = draw) -> float:
            start = bench.now()
            change(store, draw, count // SHOPS)
            return bench.now() - start

        with bench.store(count) as path, bench.open(path, OLD) as store:
            plain = statistics.median(timed(store) for _ in range(50))
            with bench.open(path, *BOTH) as other:
                catalogue_table._decoded.cache_clear()  # (another process would have opened it)
                followed._extended_model.cache_clear()
                first.append((timed(store) - plain) * 1000)
                bumps = []
                for _ in range(20):
                    other._engine.file.write(lambda writer: writer.bump_generation())  # type: ignore[attr-defined]
                    bumps.append(timed(store) - plain)
            then.append(statistics.median(bumps) * 1000)
    yield Figure(
        "follow first", "the first write of an old version once an index and an aggregate came", first, 50, "≤", " ms"
    )
    yield Figure("follow then", "the first write after the catalogue changed again", then, 1, "≤", " ms")


def opening(bench: Bench) -> Iterator[Figure]:
    """Yield what it costs to open a store whose classes have grown and were migrated."""
    count = 2_000
    with bench.store(count) as grown, bench.store(count) as plain:
        bench.open(grown, INDEXED).close()
        bench.open(grown, *BOTH).close()
        os.unlink(plain)
        with bench.open(plain, *BOTH) as store:
            store.insert_many(INDEXED(*_values(one)) for one in items(count))
        ratios, costs = [], []
        for _ in bench.rounds("opening"):
            taken = {path: list[float]() for path in (grown, plain)}
            for _ in range(10):
                for path, found in taken.items():
                    start = bench.now()
                    bench.open(path, *BOTH).close()
                    found.append(bench.now() - start)
            ours, theirs = (statistics.median(found) for found in taken.values())
            ratios.append(ours / theirs)
            costs.append((ours, theirs))
        first, second = (statistics.median(column) * 1000 for column in zip(*costs, strict=True))
    title = "opening a store whose classes have grown, by one that was made so"
    yield Figure("open", title, ratios, beside=f"{first:.2f} ms by {second:.2f}")


def _values(item: Any) -> tuple[Any, ...]:
    return item.shop, item.number, item.name, item.kind, item.price, item.sold


# ------------------------------------------------------------------------------------------------ copies


def copies(bench: Bench) -> Iterator[Figure]:
    """Yield how fast entities are copied, and how long the switch takes."""
    for name, what, script, size, goal in (
        ("copy", "one to one", decimals, bench.options.copied, 20_000),
        ("combine", "by combine=", combine, bench.options.entities, None),
    ):
        count = number(size)
        speeds, switches, taken = [], [], list[float]()
        for _ in bench.rounds(f"copy {what}"):
            with bench.store(count) as path, noted(SqliteMigrations, "step") as steps:
                start = bench.now()
                report = tm.migrate(path, [script], rest=0, durability=bench.options.durability, timeout=60.0)
                speeds.append(count / (bench.now() - start))
                if not report.done or report.entities != count:
                    raise Differ(f"{report.entities} of {count} entities were copied {what}")
            switches += [one.pace.seconds * 1000 for one in steps if one.switched]
            taken += [one.pace.seconds for one in steps]
        beside = f"{size} entities; p95 of a batch {p95(taken) * 1000:.1f} ms"
        yield Figure(name, f"entities copied {what}, a second", speeds, goal, "≥", "", beside)
        yield Figure(
            f"switch {name}", f"the transaction that switches, {what}", switches, 20, "≤", " ms", f"{size} entities"
        )


def rehearsals(bench: Bench) -> Iterator[Figure]:
    """Yield how long a dry run takes."""
    count = number(bench.options.copied)
    seconds = []
    for _ in bench.rounds("dry run"):
        with bench.store(count) as path:
            start = bench.now()
            ok = tm.migrate(path, [decimals], dry_run=True).ok
            seconds.append((bench.now() - start) / count * 1e6)
            if not ok:
                raise Differ("the dry run found faults")
    yield Figure(
        "dry run", "a dry run over a million entities", seconds, 60, "≤", " s", f"of {bench.options.copied} entities"
    )


def memory(bench: Bench) -> Iterator[Figure]:
    """Yield by how much a process grows that builds an index and an aggregate over many entities."""
    count = number(bench.options.most)
    progress(f"a build over {bench.options.most}")
    path = bench.base(count)
    code = f"from examples.benchmarks.online import grown; print(grown({path!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    os.unlink(path)
    title = f"MB by which a process grows that builds over {bench.options.most} entities"
    yield Figure("memory", title, [float(done.stdout)], 100)


def grown(path: str) -> float:
    """Return by how many MB this process grows while it builds."""
    with tm.open(path, models=BOTH, build=False, durability="relaxed") as store:
        before = peak()
        assert store.build(rest=0).done
        return peak() - before


PARTS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "build": builds,
    "batch": batches,
    "writers": writers,
    "write": writes,
    "twin": twins,
    "follow": following,
    "open": opening,
    "copy": copies,
    "dry": rehearsals,
    "memory": memory,
}
_QUICK = {"entities": "20k", "copied": "20k", "most": "100k", "rounds": 1, "seconds": 1.0, "writes": 500}


def main(given: list[str] | None = None) -> None:
    parser = parser_of("python -m examples.benchmarks.online", __doc__)
    add = parser.add_argument
    add("--entities", default="200k", help="of a store (default %(default)s)")
    add("--copied", default="200k", help="entities of a copy, a switch and a dry run (default %(default)s)")
    add("--most", default="1m", help="entities of the build whose memory is measured (default %(default)s)")
    add("--seconds", type=float, default=3.0, help="that writers are watched for (default %(default)s)")
    add("--bound", type=float, default=15.0, help="seconds after which no further round begins (default %(default)s)")
    add("--writers", type=int, default=4, help="processes beside a build (default %(default)s)")
    add("--rests", type=float, nargs="*", default=[1.0], help="of builds beside writers (default %(default)s)")
    add("--writes", type=int, default=2_000, help="that are compared in a round (default %(default)s)")
    add("--only", nargs="*", choices=PARTS, default=list(PARTS), metavar="WHAT", help=f"of {', '.join(PARTS)}")
    add("--quick", action="store_true", help="small stores, one round: a minute or so")
    add_options(parser, rounds=5)
    if "--quick" in (sys.argv[1:] if given is None else given):
        parser.set_defaults(**_QUICK)
    options = parser.parse_args(given)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench = Bench(options, folder)
        for name in options.only:
            figures += PARTS[name](bench)
    title = f"Changes of a model in use, {options.entities} items, medians of up to {options.rounds} rounds"
    plain = {one.name: {**attrs.asdict(one), "value": one.value, "met": one.met} for one in figures}
    head = [["", "", "measured"]]
    part = "" if set(options.only) == set(PARTS) else ", ".join(options.only)
    publish(options, "online", Table(title, head, [one.row() for one in figures], {"figures": plain}), part)


if __name__ == "__main__":
    main()
