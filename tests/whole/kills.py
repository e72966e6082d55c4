"""Processes that are killed, or stopped for a while, at random over one store.

They are writers of several versions, openers, builders, runners of migrations, and processes that repair and compact.

Each writer has a partition of its own, and writes to a log what it is about to change, and what was acknowledged. So what
the store must hold is known without it: all that was acknowledged, and of the last change all or nothing. What is found
wrong is compared at the end of a round, when all are killed, and meanwhile by processes that check.

    python -m tests.whole.kills --seconds 3600
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.online import apply_schema, backfill, migration
from tablemapper.engines.sqlite.rows import build_steps, jobs, write_hooks
from tablemapper.migrations import runner
from tablemapper.store import builds

from ..classes import aggregate
from ..migrations.shapes import OLD, OLD_TOTALS, cases, contents, part, texts, totals
from ..stores import repaired

STILL, CHANGED = 250, 60
"""Entities that nobody writes; those of a writer."""
SHELVES = ("a", "w")
"""Of each writer one: copied before the entities that nobody writes, and after them."""
PATIENCE = 60.0  # seconds that a process waits for others, and that a round may take
BARE = part()
UNIQUE = part(
    by_maker=tm.Index[str](partition="{maker}"),
    of_price=tm.Index[str, str](partition="{price}", row="{maker}", unique=True),
)
UNIQUE_TOTALS = totals(UNIQUE, "maker")


def _counted(name: str, field: str, kind: Any) -> Any:
    """Return an aggregate of many groups: nearly each entity changes another one."""
    members = {field: (kind, tm.group_by(getattr(BARE, field))), "parts": (int, tm.count())}
    members["numbers"] = (int, tm.sum(BARE.number))
    return aggregate(name, BARE, members, tm.Key[kind](partition=f"{{{field}}}"))


PRICES, NUMBERS = _counted("Prices", "price", str), _counted("Numbers", "number", int)
CONVERT, REWRITE = cases()["convert"], cases()["rewrite"]
Value = tuple[int, str | None, list[str]]
State = dict[int, Value]


@attrs.frozen
class Scene:
    """What runs beside each other in a round."""

    versions: tuple[Sequence[Any], ...]
    """The classes of writers, each a version of the program."""
    built: Sequence[Any]
    """Those of openers and builders."""
    script: Any = None
    back: bool = False
    """Whether the script is undone at times."""
    new: Sequence[Any] = ()
    """What the script leads to, which no writer knows: writers end with the switch."""
    still: int = STILL
    anew: bool = False
    """Whether builders build again what is built, and writers pause."""

    @property
    def all(self) -> list[Sequence[Any]]:
        """Each version of the program, that which the script leads to included."""
        return [*self.versions, *([self.new] if self.new else [])]


SCENES = {
    "builds": Scene(([BARE], [UNIQUE, UNIQUE_TOTALS]), [UNIQUE, UNIQUE_TOTALS]),
    "groups": Scene(([BARE], [BARE, PRICES], [BARE, PRICES, NUMBERS]), [BARE, PRICES, NUMBERS], still=1_000, anew=True),
    "convert": Scene(([BARE], [OLD, OLD_TOTALS], CONVERT.new), [OLD, OLD_TOTALS], CONVERT.script, back=True),
    "rewrite": Scene(([BARE], [OLD, OLD_TOTALS]), [OLD, OLD_TOTALS], REWRITE.script, new=REWRITE.new),
}


# ---------------------------------------------------------------------------------------------- faults that are put in


def _no_queue() -> None:
    write_hooks.BackfillQueueHook.added = lambda *_: None  # type: ignore[method-assign]


def _no_cursor() -> None:
    jobs.passed_by = lambda *_: lambda _: True


def _no_jobs() -> None:
    jobs.passed_by = lambda *_: lambda _: False


def _cursor_left() -> None:
    """A batch whose cursor is not in its own transaction: a kill comes between at times."""
    build_steps._MOVE += " AND random() % 3"


def _cursor_first() -> None:
    """A batch that is copied in the transaction after that of its cursor: a kill comes between at times."""
    late: dict[Any, list[Any]] = {}

    def copy_next(self: Any, writer: Any, most: int) -> int:
        found = late.copy() or self._read_next(writer, writer.get(backfill._CURSOR, (self._id,)), most)
        if found and not late:
            writer.execute(backfill._MOVE, (*list(found)[-1], len(found), self._id))
            late.update(found)
        else:
            late.clear()
            for key in self._copy_together(writer, found):
                self._copy_key(writer, key, found[key])
        return most if found else 0  # (less would say that this is the end)

    backfill._Copy.copy_next = copy_next  # type: ignore[method-assign]


def _ledger_left() -> None:
    backfill._NOTE = backfill._NOTE.replace("REPLACE", "INSERT OR IGNORE")


def _acknowledged_early() -> None:
    Log.early = True


def _versions_left() -> None:
    migration.SqliteMigrations._retire = lambda *_: True  # type: ignore[method-assign]


FAULTS: dict[str, tuple[str, Callable[[], None]]] = {
    "writers leave the queue alone": ("rewrite", _no_queue),
    "writers leave the cursor alone": ("builds", _no_cursor),
    "writers leave jobs alone": ("builds", _no_jobs),
    "the cursor of a build is not of its batch": ("builds", _cursor_left),
    "the cursor of a copy is not of its batch": ("rewrite", _cursor_first),
    "what was made of an entity is not noted again": ("rewrite", _ledger_left),
    "what a contraction ends goes on": ("convert", _versions_left),
    "a write is acknowledged before its commit": ("builds", _acknowledged_early),
}


# ---------------------------------------------------------------------------------------------- what a writer did


class Log:
    """What a writer is about to do, and has done, in a file that outlives it."""

    early = False

    def __init__(self, folder: Path, slot: int) -> None:
        self.path = folder / f"writer{slot}"
        self._file = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(self, what: str, values: State | dict[int, Value | None] | None = None) -> None:
        os.write(self._file, json.dumps([what, values]).encode() + b"\n")
        if what == "begin" and self.early:
            self.note("done")


def replay(log: Path) -> tuple[int, list[State], list[str]]:
    """Return how often was written, the states that are possible after that, and what is wrong already."""
    state: State = {}
    pending: State | None = None
    wrong: list[str] = []
    done = 0
    for line in log.read_text().splitlines() if log.exists() else ():
        what, values = json.loads(line)
        values = values and {int(n): None if v is None else (v[0], v[1], v[2]) for n, v in values.items()}
        if what == "begin":
            pending = {n: v for n, v in {**state, **values}.items() if v is not None}
        elif what == "refused":
            pending = None
        elif what == "done":
            state, pending, done = state if pending is None else pending, None, done + 1
        else:
            if values not in (state, pending):
                wrong.append(f"{log.name} found {_difference(values, state)} after {done} writes, {pending is None}")
            state, pending = values, None
    return done, [state] if pending is None else [state, pending], wrong


def _difference(values: State, state: State) -> str:
    differing = {n: (values.get(n), state.get(n)) for n in {*values, *state} if values.get(n) != state.get(n)}
    return f"(has, should have) {differing}"


def value(entity: Any) -> Value:
    return int(entity.price), entity.maker, list(entity.tags)


def entity(cls: Any, shelf: str, number: int, of: Value) -> Any:
    price, maker, tags = of
    return cls(shelf, number, price=(Decimal if cls is CONVERT.new[0] else str)(price), maker=maker, tags=tags)


def a_value(draw: random.Random) -> Value:
    tags = [draw.choice("abcd") for _ in range(draw.randrange(3))]
    return draw.randrange(50), draw.choice([None, "m1", "m2", "m3"]), tags


def still(scene: Scene) -> State:
    draw = random.Random(5)
    return {number: a_value(draw) for number in range(scene.still)}


# ---------------------------------------------------------------------------------------------- what is killed


@attrs.frozen
class Round:
    """One store, and the processes that use it."""

    folder: Path
    scene: Scene
    durability: Any

    @property
    def path(self) -> Path:
        return self.folder / "s.db"

    def event(self, what: str) -> None:
        with open(self.folder / "events", "ab", buffering=0) as file:
            file.write(f"{what}\n".encode())

    def opened(self, draw: random.Random, versions: Sequence[Sequence[Any]], **options: Any) -> tm.Store | None:
        """Open the store with some version that it takes."""
        for classes in draw.sample(list(versions), len(versions)):
            with suppress(tm.SchemaMismatch):
                store = tm.open(
                    self.path, models=classes, durability=self.durability, timeout=PATIENCE, build=False, **options
                )
                self.event("open")
                return store
        return None


def write(round: Round, draw: random.Random, slot: int) -> None:
    """Write at random, as long as the store takes it."""
    log, shelf = Log(round.folder, slot), SHELVES[slot]
    while True:
        store = round.opened(draw, round.scene.versions)
        if store is None:
            if round.scene.new and (tm.status(round.path).history or (None,))[-1] is not None:
                return
            continue
        with store:
            (cls,) = (one.cls for one in store._engine.schema.models if one.name == "Part")
            with suppress(tm.SchemaMismatch):  # what the writer before this one began may be done all the same
                state = {one.number: value(one) for one in store.partition(cls.shelf == shelf)}  # type: ignore[attr-defined]
                log.note("seen", state)
                while draw.random() < 0.99:
                    if round.scene.anew and draw.random() < 0.3:
                        time.sleep(draw.uniform(0, 0.2))
                    try:
                        _change(store, cls, shelf, state, log, draw)
                    except tm.UniqueViolation:  # once the index is built
                        log.note("refused")
                    except tm.SchemaMismatch:
                        log.note("refused")
                        raise


def _change(store: tm.Store, cls: Any, shelf: str, state: State, log: Log, draw: random.Random) -> None:
    number, new = draw.randrange(CHANGED), a_value(draw)
    verb = draw.choice(["upsert", "delete", "merge", "several", "many"])
    there = number in state
    after: dict[int, Value | None] = {number: new}
    if verb == "merge":
        after = {number: (*new[:2], state[number][2] if there else new[2])}
    elif verb == "several":
        after = {n: None if draw.random() < 0.3 else a_value(draw) for n in range(number, number + 3)}
    elif verb == "many":
        after = {n: new for n in range(number, number + 4) if n not in state}
    elif verb == "delete":
        after = {number: None}
    log.note("begin", after)
    made = {n: entity(cls, shelf, n, v) for n, v in after.items() if v is not None}
    if verb == "merge" and there:
        store.merge(cls.key(shelf, number), price=made[number].price, maker=new[1])
    elif verb == "delete" and there:
        store.delete(cls.key(shelf, number))
    elif verb == "many":
        store.insert_many(made.values(), atomic=True)
    elif verb == "several":
        with store.transaction() as tx:
            for n in after:
                if n in made:
                    tx.upsert(made[n])
                elif n in state:
                    tx.delete(cls.key(shelf, n))
    elif verb != "delete":
        store.upsert(made[number])
    log.note("done")
    state |= {n: v for n, v in after.items() if v is not None}
    for n in [n for n, v in after.items() if v is None]:
        state.pop(n, None)


def build(round: Round, draw: random.Random, _: int) -> None:
    store = round.opened(draw, [round.scene.built])
    if store is not None:
        with store:
            store.build(hold=draw.choice([0, 0.001]), rest=2)
            round.event("build")
            while round.scene.anew:
                engine = store._engine
                assert isinstance(engine, SqliteEngine)
                for cls in draw.sample(round.scene.built[1:], draw.choice([1, 2])):
                    engine.disable(cls.__name__)
                store.build(hold=0.001, rest=2)
                round.event("build")


def migrate(round: Round, draw: random.Random, _: int) -> None:
    scene = round.scene
    to = "" if scene.back and draw.random() < 0.5 else None
    contract = to is None and draw.random() < 0.1
    try:
        report = tm.migrate(
            round.path, [scene.script], to=to, contract=contract, hold=draw.choice([0, 0.001, 0.02]), rest=draw.choice([0, 2]),
            durability=round.durability, timeout=PATIENCE,
        )  # fmt: skip
    except tm.InvalidMigration as error:
        if not any(reason in str(error) for reason in ("the store differs from old=", "under way", "was contracted")):
            raise
    except tm.SchemaMismatch:  # it was undone meanwhile
        pass
    else:
        if report.applied:
            round.event("undo" if to == "" else "migration")
        if report.contracted:
            round.event("contraction")


def check(round: Round, draw: random.Random, _: int) -> None:
    """Check the store, or a copy of it, or repair it, beside all others."""
    store = round.opened(draw, round.scene.all)
    if store is None:
        return
    with store:
        if draw.random() < 0.3:
            report = repaired(store)
            assert report.repaired == ()  # what others are at is not wrong
            assert report.ok
        elif draw.random() < 0.7:
            assert store.check().problems == ()
        else:
            copy = round.folder / f"copy{os.getpid()}.db"
            store.backup(copy)
            with tm.open(copy, models=[one.cls for one in store._engine.schema.models], build=False) as other:
                assert other.check().problems == ()
    round.event("check")


def compact(round: Round, draw: random.Random, _: int) -> None:
    """Compact the store, when nobody else has it."""
    store = round.opened(draw, round.scene.all)
    assert store is not None
    with store:
        store.compact()
    round.event("compaction")


# ---------------------------------------------------------------------------------------------- a round


def spawn(work: Callable[[], object], report: Path) -> int:
    """Run something in a process of its own, which writes down what it raises; return its id."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            report.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    return child


def play(
    folder: Path, name: str, durability: str, seed: int, kills: int, fault: str = ""
) -> tuple[Counter[str], list[str]]:
    """Kill processes over a new store; return what happened, and what is wrong."""
    draw = random.Random(f"{name} {durability} {seed}")
    round = Round(folder, SCENES[name], durability)
    counts: Counter[str] = Counter()
    wrong: list[str] = []

    def task(work: Callable[..., object], *args: Any) -> int:
        seed = draw.random()

        def process() -> None:
            apply_schema._AT_ONCE, builds._LEAST, builds.FIRST, runner.FIRST = -1, 5, 20, 20  # type: ignore[attr-defined]
            if fault:
                FAULTS[fault][1]()
            work(round, random.Random(seed), *args)

        return spawn(process, folder / f"raised{draw.random()}")

    def begin(round: Round, _: random.Random) -> None:
        with tm.open(round.path, models=[BARE], durability="relaxed") as store:
            store.insert_many([entity(BARE, "still", number, of) for number, of in still(round.scene).items()])

    begun = time.monotonic()
    os.waitpid(task(begin), 0)
    pause = draw.choice([1, 5]) * (time.monotonic() - begun)  # (the longer, the more comes to its end, on any machine)
    others = [build, check, *([migrate] * 3 if round.scene.script else [build])]
    running: dict[int, tuple[Callable[..., object], int]] = {}
    stopped: dict[int, float] = {}

    def start(work: Callable[..., object], slot: int) -> None:
        running[task(work, slot)] = (work, slot)

    for slot in range(len(SHELVES)):
        start(write, slot)
    start(migrate if round.scene.script and draw.random() < 0.8 else build, -1)
    ending = time.monotonic() + PATIENCE
    while counts["kill"] < kills and time.monotonic() < ending:
        time.sleep(draw.uniform(0.01, pause))
        for child in [child for child, until in stopped.items() if time.monotonic() > until]:
            del stopped[child]
            os.kill(child, signal.SIGCONT)
        for child in list(running):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                work, slot = running.pop(child)
                stopped.pop(child, None)
                if status == 0 and work is not write:
                    start(draw.choice(others), slot)
        if wrong := raised(folder):
            break
        if not running:
            break
        victims = [child for child, (work, _) in running.items() if work is not write or draw.random() < 0.3]
        victim = (victims or [*running])[-1] if draw.random() < 0.5 else draw.choice(victims or [*running])
        if draw.random() < 0.2:
            os.kill(victim, signal.SIGSTOP)
            stopped[victim] = time.monotonic() + draw.uniform(0.1, 1)
            counts[f"stop of {running[victim][0].__name__}"] += 1
            continue
        work, slot = running.pop(victim)
        stopped.pop(victim, None)
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        counts["kill"] += 1
        counts[f"kill of {work.__name__}"] += 1
        start(work if work is write else draw.choice(others), slot)
    for child in running:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if draw.random() < 0.5:
        child = task(compact, -1)
        time.sleep(draw.uniform(0, 0.5))
        os.kill(child, signal.SIGKILL)
        counts["kill of compact"] += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    os.waitpid(task(compare), 0)
    counts["round"] += 1
    if (folder / "events").exists():
        for line in (folder / "events").read_text().splitlines():
            what, _, count = line.partition(" ")
            counts[what] += int(count or 1)
    return counts, wrong or raised(folder)


def raised(folder: Path) -> list[str]:
    return [one.read_text() for one in folder.glob("raised*")]


def compare(round: Round, draw: random.Random) -> None:
    """Compare a store that nobody uses with what was written to it; then let all come to its end, and compare again."""
    scene = round.scene
    expected = {"still": [still(scene)]}
    for slot, shelf in enumerate(SHELVES):
        done, states, wrong = replay(round.folder / f"writer{slot}")
        assert wrong == []
        round.event(f"write {done}")
        expected[shelf] = states
    store = round.opened(draw, scene.versions) or round.opened(draw, [scene.new])
    assert store is not None
    with store:
        assert store.check().problems == ()
        (cls,) = (one.cls for one in store._engine.schema.models if one.name == "Part")
        if not scene.new:
            _compare_parts(store, cls, expected)
    store = round.opened(draw, [scene.built])
    if store is not None:
        with store:
            store.build(rest=0)
    if scene.script is not None:
        contract = draw.random() < 0.5
        assert tm.migrate(round.path, [scene.script], contract=contract, rest=0, durability="relaxed").ok
        if contract:
            assert round.opened(draw, scene.versions[:2]) is None
            assert {one.state for one in tm.status(round.path).history} == {"contracted"}
    classes: Any = scene.built if scene.script is None else scene.new or scene.versions[-1]
    with tm.open(round.path, models=classes, durability="relaxed", build=False) as store:
        assert store.check().problems == ()
        if scene.new:
            assert contents(store, classes) in [
                texts(new for one in old for new in REWRITE.made(one)) for old in _possible(expected)
            ]
        else:
            _compare_parts(store, classes[0], expected)
            (_compare_counted if scene.anew else _compare_maintained)(store, *classes)
    round.event("comparison")


def _possible(expected: dict[str, list[State]]) -> Iterator[list[Any]]:
    """Yield the entities of each combination of states that are possible."""
    combined: list[list[Any]] = [[]]
    for shelf, states in expected.items():
        combined = [
            [*before, *[entity(OLD, shelf, n, v) for n, v in state.items()]] for before in combined for state in states
        ]
    yield from combined


def _compare_parts(store: tm.Store, cls: Any, expected: dict[str, list[State]]) -> None:
    for shelf, states in expected.items():
        here = {one.number: value(one) for one in store.partition(cls.shelf == shelf)}  # type: ignore[attr-defined]
        assert here in states, f"{shelf}: {_difference(here, states[-1])}"


def _compare_maintained(store: tm.Store, cls: Any, group: Any) -> None:
    """Compare an index, an aggregate and values that are held twice with a count of the entities."""
    entities = list(store.query(cls).allow_scan())
    makers = Counter(one.maker for one in entities if one.maker is not None)
    assert {maker: len(list(store.query(cls.by_maker(maker)))) for maker in makers} == makers
    assert {one.shelf: one.parts for one in store.query(group).allow_scan()} == Counter(one.shelf for one in entities)
    if cls is UNIQUE:
        prices = Counter((str(one.price), one.maker) for one in entities if one.maker is not None)
        twice = {value: count for value, count in prices.items() if count > 1}
        assert {tuple(one.value): len(one.holders) for one in store._engine.violations(10_000)} == twice  # type: ignore[attr-defined]


def _compare_counted(store: tm.Store, cls: Any, *groups: Any) -> None:
    entities = list(store.query(cls).allow_scan())
    for group, field in zip(groups, ("price", "number"), strict=True):
        parts, numbers = Counter[Any](), Counter[Any]()
        for one in entities:
            parts[getattr(one, field)] += 1
            numbers[getattr(one, field)] += one.number
        stored = {getattr(one, field): (one.parts, one.numbers) for one in store.query(group).allow_scan()}
        assert stored == {value: (count, numbers[value]) for value, count in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kills", type=int, default=40, help="in a round")
    parser.add_argument("--scene", choices=SCENES, action="append")
    parser.add_argument("--durability", choices=["full", "relaxed"], action="append")
    parser.add_argument("--fault", choices=FAULTS, default="")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    scenes = [FAULTS[options.fault][0]] if options.fault else options.scene or list(SCENES)
    totals: dict[str, Counter[str]] = {name: Counter() for name in scenes}
    start = noted = time.monotonic()
    seed = options.seed
    while time.monotonic() < start + options.seconds:
        for name in scenes:
            for durability in options.durability or ["relaxed", "full"]:
                with tempfile.TemporaryDirectory(prefix="kills") as place:
                    folder = Path(place)
                    counts, wrong = play(folder, name, durability, seed, options.kills, options.fault)
                    totals[name] += counts
                    if wrong:
                        kept = shutil.copytree(folder, tempfile.mkdtemp(prefix="kills-wrong"), dirs_exist_ok=True)
                        print(f"{name} {durability} {seed} in {kept}: {totals}\n" + "\n".join(wrong), flush=True)
                        sys.exit(1)
        seed += 1
        if time.monotonic() > noted + 60 or seed == options.seed + 1:
            noted = time.monotonic()
            print(f"{noted - start:.0f} s: {sum(totals.values(), Counter[str]())}, no difference", flush=True)
    for name, counts in totals.items():
        print(f"{name}: {dict(sorted(counts.items()))}")
    print(f"{time.monotonic() - start:.0f} s, no difference", flush=True)


if __name__ == "__main__":
    main()
