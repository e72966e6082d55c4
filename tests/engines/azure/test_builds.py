"""Indexes and aggregates are built over entities that others write, who learn of it late: as it ships, step by step in an
order that is drawn, with kills, lost answers and late requests; then with what a user calls."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.azure import builds
from tablemapper.engines.azure.builds import Builder
from tablemapper.engines.azure.catalogue import open_classes
from tablemapper.engines.azure.catalogue.open_classes import CatalogueRefresher, OpenClasses
from tablemapper.engines.azure.cross_partition import intent_execution
from tablemapper.engines.azure.cross_partition.marks import DUPLICATE, BuildMark, of_writes
from tablemapper.engines.azure.cross_partition.outbox import Deadline, DeleteRow, Intent, Outbox, Timing
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.housekeeping import flush
from tablemapper.engines.azure.recovery import sweep
from tablemapper.engines.azure.tables.driver import Driver, Effects, Sleep, read
from tablemapper.engines.azure.tables.service import GetEntity, GroupTransaction, RowChange
from tablemapper.engines.azure.writing import duplicate_notes, late_writes, writes
from tablemapper.engines.azure.writing.late_writes import write_in_time
from tablemapper.engines.protocol import Operation
from tablemapper.schema.model import Schema, compile_schema
from tablemapper.verbs.operations import Operations

from ...classes import entity
from .memory import Faulty, Memory, Options
from .schedule import Rates, Schedule, played, process_state, sweep_all
from .versions import ADDED, new, old

TIMES = Timing(look=1.0, deadline=1.5, lease=3.0, grace=30.0, request=1.0)
RATES = Rates(crash=0.003, lost=0.03, late=0.02, busy=0.02)
STOPPED = attrs.evolve(RATES, stopped=0.05)
Patch = pytest.MonkeyPatch
SIZES = (0.1, 1e16, -3.5, 2.0)

OLD, NEW = compile_schema(old()), compile_schema(new())


class Clocked(Memory):
    """A service with the clock of a schedule."""

    def __init__(self, seed: int) -> None:
        self.now = 1_700_000_000.0
        self.schedule: Schedule | None = None
        super().__init__(Options(vague=seed % 2 == 0), clock=self._time)

    def _time(self) -> int:
        return int((self.now + (0 if self.schedule is None else self.schedule.now)) * 1e6)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def open(self, schema: Schema, times: Timing = TIMES) -> AzureEngine:
        clock = lambda: self._time() / 1e6  # noqa: E731
        return AzureEngine.open(self, "here", schema, monotonic=clock, sleep=self.pass_by, times=times)


@attrs.define(eq=False)
class Program:
    """A process: what it knows, and what it shares with its writers."""

    current: CatalogueRefresher
    outbox: Outbox
    operations: Operations


class Play:
    """Programs of two versions that write the same entities, and builders, which may end early."""

    def __init__(self, seed: int, rates: Rates = RATES, *, alone: bool = False, killed: float = 0.0) -> None:
        store = self.begun(seed, OLD)
        (item,) = [one for one in OLD.models if one.name == "Item"]
        self.alone = alone
        """Whether one older writer is beside one builder, and no values are to be unique."""
        self.killed = killed
        """How often a request of the builders before the last is their last one."""
        self.shops = "abcdefghijklmnop" if alone else "aab"
        for shop in dict.fromkeys(self.shops):
            some = [
                item.cls(shop, n, self.rng.choice(["red", "blue", None]), SIZES[n % 4], self.code(), self.code())
                for n in range(25 if alone else 5)
            ]
            store.insert_many(some)
        self.schedule = self.memory.schedule = Schedule(self.memory, seed, rates, TIMES.look)
        self.built = False
        for _ in range(1 if alone else 3):
            self.schedule.start(self.program(OLD, 0.0, 1 if alone else 4))
        for at in () if alone else (3.0, 6.0):
            self.schedule.start(self.program(NEW, at * self.rng.random(), 4))
        for _ in range(3 if killed else 0):
            self.schedule.start(self.builder(), Rates(crash=killed))
        for _ in range(1 if alone else 2):
            self.schedule.start(self.builder())
        for _ in range(0 if alone else 2):
            self.schedule.start(self.sweeper())

    def begun(self, seed: int, schema: Schema) -> tm.Store:
        """Return an empty store, over a service of its own."""
        random.seed(seed)  # (of pauses)
        self.rng = random.Random(seed)
        self.memory = Clocked(seed)
        self.ops = itertools.count()
        self.numbers = itertools.count(100)
        self.errors: list[BaseException] = []
        self.first = self.memory.open(schema)
        return tm.Store(self.first)

    def code(self) -> str | None:
        return None if self.alone or self.rng.random() < 0.6 else self.rng.choice("pqrstu")

    def opened(self, schema: Schema) -> Effects[Program]:
        current, outbox = yield from process_state(schema, TIMES, self.ops)
        return Program(current, outbox, Operations(self.memory.open(OLD) if schema is OLD else self.first))

    def program(self, schema: Schema, start: float, writers: int) -> Effects[None]:
        """Write as one process does, whose writers know the catalogue by the same looks."""
        yield Sleep(start)
        program = yield from self.opened(schema)
        for _ in range(writers):
            self.schedule.start(self.writer(program))

    def writer(self, program: Program) -> Effects[None]:
        turns = 0
        while not self.built if self.alone else turns < 14:
            turns += 1
            yield Sleep(self.rng.random() * (0.03 if self.alone else 2.5))
            try:
                known = yield from program.current.classes()
                operation = yield from self.choose(known, program)
                yield from write_in_time(program.current, [operation], program.outbox, timeout=TIMES.deadline)
                yield from flush(program.outbox, TIMES.deadline)
            except (tm.SchemaMismatch, tm.CorruptStore) as error:
                self.errors.append(error)
            except tm.TableMapperError:
                pass

    def choose(self, known: OpenClasses, program: Program) -> Effects[Operation]:
        model = known.schema.by_name["Item"]
        fresh = not self.alone and self.rng.random() < 0.25  # (which nobody writes again, and comes before others)
        shop, number = (
            self.rng.choice(self.shops),
            -next(self.numbers) if fresh else self.rng.randrange(25 if self.alone else 6),
        )
        values = {"color": self.rng.choice(["red", "blue", None]), "size": self.rng.choice(SIZES)}
        values |= {"code": self.code(), "nick": self.code()}
        partition, row = model.cls.key(shop, number)[1:]  # type: ignore[attr-defined]
        drawn = self.rng.random()
        found = yield from read(GetEntity("Items", partition, row), 60.0)
        stored = None if found is None else known.codec(model).row(found)
        new = (partition, row, 0, *[values.get(field.name) for field in model.columns])
        if drawn < 0.15:
            return Operation("delete", model, partition, row)
        if drawn < 0.3 or (stored is None and drawn < 0.7):
            return Operation("upsert", model, partition, row, new)
        if stored is None:
            return Operation("insert", model, partition, row, new)
        if drawn < 0.45:  # (what it was read as, without its own look at it)
            return Operation("replace", model, partition, row, new, etag=stored[2])
        return Operation("replace", model, partition, row, new, old=stored, etag=stored[2])

    def builder(self) -> Effects[None]:
        yield Sleep(self.rng.random() * (1 if self.alone else 12))
        program = yield from self.opened(NEW)
        yield from self.build(program)

    def build(self, program: Program) -> Effects[None]:
        """Build until nothing is left to be built."""
        builder = Builder("TableMapper", program.current, program.outbox, lambda *_: 20 if self.alone else 3, 60.0)
        for _ in range(400):
            try:
                step = yield from builder.step(400 if self.alone else self.rng.randrange(1, 5), None)
                yield from flush(builder.outbox, TIMES.deadline)
                if step is None:
                    self.built = True
                    return
            except tm.TableMapperError as error:
                if isinstance(error, tm.SchemaMismatch | tm.CorruptStore):
                    self.errors.append(error)
            yield Sleep(self.rng.random() * 0.4)

    def sweeper(self) -> Effects[None]:
        program = yield from self.opened(NEW)
        for _ in range(3):
            yield Sleep(self.rng.random() * 12)
            yield from sweep(program.current, program.outbox, 60.0)

    def run(self) -> dict[str, int]:
        self.schedule.run()
        assert not self.errors, self.errors[0]
        engine = self.memory.open(NEW)
        store = tm.Store(engine)
        items, colors, shops = NEW.by_name["Item"].cls, NEW.by_name["Colors"].cls, NEW.by_name["Shop"].cls
        for _ in range(30):
            report = store.build()
            for name in ("code", "nick"):
                self.unique(store, items, name, [one for one in report.violations if one.index == f"Item.by_{name}"])
            if report.ok:
                break
            for one in {violation.holders[1] for violation in report.violations}:
                key = items.key(one[0], NEW.by_name["Item"].declaration.row.decode(one[1])["number"])  # type: ignore[attr-defined]
                if (held := store.get(key)) is not None:
                    store.replace(held.replace(code=None, nick=None))
        assert all(engine.status()[label].state == "ready" for label in ADDED)
        if self.killed:  # (the last builder has looked for what others left, before it said that all is ready)
            found = [one for one in store.check().problems if "call store.sweep()" not in one.detail]
            assert {problem.kind for problem in found} <= {"dangling"}, found
        sweep_all(store, self.memory, self.memory)
        report = store.check()
        assert report.ok, str(report)
        found: list[Any] = list(store.query(items).allow_scan())
        for color in ("red", "blue"):
            mine = [one for one in found if one.color == color]
            by_index = {(one.shop, one.number) for one in store.query(items.by_color(color))}  # type: ignore[attr-defined]
            assert by_index == {(one.shop, one.number) for one in mine}
            group: Any = store.get(colors.key(color))  # type: ignore[attr-defined]
            sizes = [one.size for one in mine]
            told = (0, 0.0, None) if group is None else (group.items, group.total, group.most)
            assert told == (len(mine), math.fsum(sizes), max(sizes, default=None))
        for shop in dict.fromkeys(self.shops):
            whole: Any = store.get(shops.key(shop))  # type: ignore[attr-defined]
            sizes = [one.size for one in found if one.shop == shop]
            assert (0 if whole is None else whole.items) == len(sizes)
            assert whole is None or whole.total == math.fsum(sizes)
        return self.schedule.counts

    def unique(self, store: tm.Store, items: Any, name: str, noted: Sequence[Any]) -> None:
        """Compare the values that are held twice with those that are noted."""
        label = f"Item.by_{name}"
        twice: dict[Any, list[Any]] = {}
        for one in store.query(items).allow_scan():
            if getattr(one, name) is not None:
                scope = (one.shop, one.nick) if name == "nick" else one.code
                twice.setdefault(scope, []).append(one)
        barred = {holder for violation in noted for holder in violation.holders[1:]}
        ready = store._engine.status()[label].state == "ready"
        assert ready == (not barred), (label, barred)
        for value, several in twice.items():
            held = [one for one in several if (one.key.partition, one.key.row) not in barred]
            assert len(held) <= 1, (label, value, several, barred)
            assert not ready or len(several) == 1


def play(seeds: Iterable[int], **options: Any) -> Counter[str]:
    return played(partial(Play, **options), seeds)


@pytest.mark.one_python
@pytest.mark.long
def test_what_is_built_beside_writers_is_complete(full_size: bool) -> None:
    counts = play(range(2_000 if full_size else 6))
    assert min(counts[name] for name in counts if name != "stopped") > 0, counts


@pytest.mark.one_python
@pytest.mark.long
def test_what_is_built_beside_writers_that_stand_still_is_complete(full_size: bool) -> None:
    assert play(range(2_000 if full_size else 2), rates=STOPPED)["stopped"] > 30


def test_a_builder_leaves_no_rows_of_entities_that_were_written_meanwhile() -> None:
    play(range(2, 3), rates=Rates(), alone=True)


def test_a_row_that_another_write_has_still_to_put_is_waited_for_and_then_deleted() -> None:
    memory = Memory()
    memory.tables |= {"Items": {}, "ItemsByColor": {}}
    building, written = Intent("Items", "a", f"{1:025}"), Intent("Items", "a", f"{2:025}")
    gone = DeleteRow("ItemsByColor", "red", f"a !{building.op}")
    memory.send(GroupTransaction("Items", "a", (building.change("C"),)))
    waits: list[float] = []

    def put(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            memory.send(GroupTransaction(gone.table, gone.partition, (RowChange("upsert", gone.row),)))

    work = intent_execution._end(gone, written, patience := Deadline(1e18), 60.0)
    Driver(memory, monotonic=lambda: 0.0, sleep=put).run(work)
    assert (memory.tables["ItemsByColor"], patience.doubt) == ({}, False)
    assert len(waits) >= 2


def test_what_killed_builders_left_is_finished_before_it_is_read() -> None:
    play(range(2), rates=Rates(), alone=True, killed=0.02)


# ---------------------------------------------------------------------------------------------- mutants


def _at_once(patch: Patch) -> None:
    """Entities are marked as soon as it is known what is to be built."""
    patch.setattr(
        open_classes, "BuildMark", lambda name, built, sets, values=None: BuildMark(name, built, True, values)
    )


def _not_once_ready(patch: Patch) -> None:
    """Entities are marked no more once it is ready."""
    plain = OpenClasses._marks

    def marks(self: OpenClasses) -> Any:
        found = plain(self)
        ready = all(state.state == "ready" for state in self.catalogue.states.values())
        of = {one: attrs.evolve(mark, sets=mark.sets and not (mark.built and ready)) for one, mark in found.of.items()}
        built = {
            model: [attrs.evolve(one, sets=one.sets and not ready) for one in some]
            for model, some in found.built.items()
        }
        return attrs.evolve(found, of=of, built=built)

    patch.setattr(OpenClasses, "_marks", marks)


def _builder_too_soon(patch: Patch) -> None:
    """A builder reads entities while writes are under way that mark none."""
    plain = builds.Builder.step

    def step(self: Builder, most: int, labels: Any) -> Any:
        known = yield from self.current.look()
        if any(state.state == "building" for state in known.catalogue.states.values()):
            self.outbox.times = attrs.evolve(TIMES, look=-TIMES.deadline - TIMES.request)
        found = yield from plain(self, most, labels)
        self.outbox.times = TIMES
        return found

    patch.setattr(builds.Builder, "step", step)


def _added_twice(patch: Patch) -> None:
    """A builder adds all that entities are, whether they are marked or not."""
    plain = BuildMark.affected_rows
    patch.setattr(builds, "marked", lambda marks, row: False)
    patch.setattr(
        BuildMark,
        "affected_rows",
        lambda self, old, new: (
            (None, new) if self.built and old and new and old[3:-1] == new[3 : len(old) - 1] else plain(self, old, new)
        ),
    )


def _not_barred(patch: Patch) -> None:
    """An entity whose value another one has counts as if it had it, too."""
    patch.setattr(duplicate_notes, "DUPLICATE", "")


def _taken_over(patch: Patch) -> None:
    """Who is barred gives up the values that others have."""
    plain = BuildMark.affected_rows
    patch.setattr(
        BuildMark,
        "affected_rows",
        lambda self, old, new: (old, new) if of_writes(old).get(self.name) == DUPLICATE else plain(self, old, new),
    )


def _any_entity(patch: Patch) -> None:
    """A builder marks an entity though others have written it since it was read."""
    plain = writes._Transaction._entity

    def entity(self: Any, change: Any) -> Any:
        made = plain(self, change)
        return attrs.evolve(made, if_match="*") if change.operation.verb == "build" else made

    patch.setattr(writes._Transaction, "_entity", entity)


def _no_second_look(patch: Patch) -> None:
    """Who stood still does not look at the catalogue again."""

    def never(self: Any) -> Any:
        return False
        yield

    patch.setattr(late_writes._Mending, "is_late", never)


MUTANTS: dict[str, tuple[Callable[[Patch], None], int, dict[str, Any]]] = {
    "atonce": (_at_once, 6, {}), "ready": (_not_once_ready, 232, {}), "soon": (_builder_too_soon, 13, {}),
    "twice": (_added_twice, 0, {}), "any": (_any_entity, 1, {"rates": Rates(), "alone": True}),
    "barred": (_not_barred, 0, {}), "taken over": (_taken_over, 1, {}),
    "late": (_no_second_look, 0, {"rates": STOPPED}),
}  # fmt: skip
"""Each with a seed at which the search begins that finds it, and how it is played."""


@pytest.mark.one_python
@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate, start, options = MUTANTS[name]
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        play(range(start, start + 300), **options)


# ---------------------------------------------------------------------------------------------- what a user calls


def cls(schema: Schema, name: str) -> Any:
    return schema.by_name[name].cls


def filled(count: int = 150) -> tuple[Clocked, tm.Store]:
    """Return a service, and a store of the old version with entities."""
    memory = Clocked(1)
    store = tm.Store(memory.open(OLD))
    item = cls(OLD, "Item")
    colors = ["red", "green", None]
    store.insert_many([item(f"shop{n % 3}", n, colors[n % 3], n / 8) for n in range(count)])
    return memory, store


def test_what_is_new_is_built_and_read_only_once_it_is_ready() -> None:
    memory, before = filled()
    item, colors = cls(NEW, "Item"), cls(NEW, "Colors")
    store = tm.Store(memory.open(NEW))
    assert {label for label, state in store._engine.unready.items() if state == "building"} == set(ADDED)
    with pytest.raises(tm.NotReady, match=r"Item\.by_color: it is being built \(0 entities so far\)"):
        list(store.query(item.by_color("red")))
    with pytest.raises(tm.NotReady, match="Colors"):
        store.get(colors.key("red"))
    with pytest.raises(tm.NotReady, match="Colors"):
        list(store.query(colors).allow_scan())
    assert "by_color" not in str(
        store.query(item).where(item.color == "red", item.size > 1.0).allow_scan().explain().path
    )
    assert store.check().ok
    report = store.build()
    assert report.done
    assert set(report.built) == set(ADDED)
    assert report.entities == 150
    assert not store._engine.unready
    assert [one.size for one in store.query(item.by_color("red"))] == [n / 8 for n in range(0, 150, 3)]
    assert store.get(colors.key("green")) == colors("green", 50, math.fsum(n / 8 for n in range(1, 150, 3)), 148 / 8)
    assert store.check().ok, str(store.check())
    # The older program follows, and is refused nothing.
    memory.now += 10
    before.insert(cls(OLD, "Item")("shop9", 999, "red", 1e6))
    before.insert_many([cls(OLD, "Item")("shop9", n, "green", 1.0) for n in range(5)])
    one = before[cls(OLD, "Item").key("shop0", 0)]
    one.color = "blue"
    before.replace(one)
    before.delete(cls(OLD, "Item").key("shop1", 1))
    assert store.get(colors.key("red")).items == 50
    assert [one.number for one in store.query(item.by_color("red"))][-1] == 999
    assert store.check().ok, str(store.check())


def test_a_build_waits_until_every_process_knows_of_it() -> None:
    memory, _ = filled(3)
    engine = memory.open(NEW, attrs.evolve(TIMES, look=99.0))  # (the first who opened the store has said how long)
    began = memory.now
    seen: list[str] = []
    while (built := engine.build(200, None)) is not None:
        seen.append(built.owner)
        status = engine.status()["Item.by_color"]
    assert seen[0] == "Item, once every process knows of it"
    assert seen[-1] == "Item"
    assert memory.now - began >= 2 * TIMES.settled
    assert status.state == "ready"


def test_a_write_that_took_too_long_before_its_transaction_is_not_sent() -> None:
    memory, store = filled(3)
    key = cls(OLD, "Item").key("shop0", 0)
    plain, sent = memory.send, len(memory.sent)

    def slow(request: Any, *wait: float) -> Any:
        memory.now += TIMES.deadline * 2 if isinstance(request, GetEntity) and request.table == "Items" else 0.0
        return plain(request)

    memory.send = slow  # type: ignore[method-assign]
    with pytest.raises(tm.StoreError, match="nothing was written"):
        store.merge(key, color="blue")
    assert not [one for one in memory.sent[sent:] if isinstance(one, GroupTransaction) and one.table == "Items"]


def test_a_builder_that_ended_early_is_followed_by_another_one() -> None:
    memory, _ = filled(30)
    first, second = memory.open(NEW), memory.open(NEW)
    while (built := first.build(10, None)) is not None and built.entities == 0:
        pass
    assert second.build(10, None) is not None
    status = second.status()["Item.by_color"]
    assert (status.state, status.done) == ("building", 10)
    assert "10 entities so far" in str(second.status())
    began = memory.now
    store = tm.Store(second)
    assert store.build().entities == 20
    assert memory.now - began >= TIMES.lease
    assert store.check().ok


class Mortal(Clocked, Faulty):
    """A service with a clock, of which one request ends its client."""


@pytest.mark.parametrize("way", ["before", "after", "lost"])
def test_what_a_builder_left_at_any_request_is_finished_before_it_is_read(way: str, *, full_size: bool) -> None:
    item = cls(OLD, "Item")
    for at in itertools.count(1, 1 if full_size else 6):
        memory = Mortal(1)
        before = tm.Store(memory.open(OLD))
        before.insert_many([item("shop0", n, ["red", "green"][n % 2], n / 8, code=f"{n}") for n in range(4)])
        engine = memory.open(NEW)
        memory.number, memory.at, memory.way = 0, at, way
        with suppress(KeyboardInterrupt):
            while engine.build(2, None) is not None:
                pass
        if memory.number < at:
            break
        memory.at = -1
        assert way != "lost" or not engine.unready
        store = tm.Store(memory.open(NEW))
        assert store.build().done
        assert store.check().ok, f"request {at}: {store.check()}"
    assert at > 70


def test_an_entity_that_is_added_by_another_writer_while_it_is_read_is_no_duplicate() -> None:
    memory, _ = filled(1)
    items = cls(NEW, "Item")
    tm.Store(memory.open(OLD)).merge(cls(OLD, "Item").key("shop0", 0), nick="ann")
    builder, store = memory.open(NEW), tm.Store(memory.open(NEW))
    while (
        builder.status()["Item.by_nick"].state != "building"
        or memory.now < builder.classes.catalogue.states["Item.by_nick"].since / 1e6 + TIMES.settled
    ):
        builder.build(200, None)
    plain, writes_of_others = memory.send, iter(["another ETag", "an entity with its mark"])

    def send(request: Any, *wait: float) -> Any:
        first = isinstance(request, GroupTransaction) and request.table == "Items"
        index_row = isinstance(request, GetEntity) and request.row.startswith(' "xItem.by_nick')
        if first or index_row:
            memory.send = plain  # type: ignore[method-assign]
            if first and next(writes_of_others, "") == "another ETag":
                ((key, row),) = [one for one in memory.tables["Items"].items() if one[0][1].startswith("item")]
                memory.tables["Items"] = memory.tables["Items"] | {key: attrs.evolve(row, etag=row.etag[:-3] + '1Z"')}
            elif index_row and next(writes_of_others, ""):
                store.merge(items.key("shop0", 0), size=3.0)
            memory.send = send  # type: ignore[method-assign]
        return plain(request)

    memory.send = send  # type: ignore[method-assign]
    assert tm.Store(builder).build().ok
    assert next(writes_of_others, None) is None
    assert store.query(items.by_nick("shop0", "ann")).one().size == 3.0
    assert store.check().ok


def test_duplicates_of_what_is_to_be_unique_are_listed_and_resolved() -> None:
    memory, before = filled(12)
    was = cls(OLD, "Item")
    for number, code in ((0, "a"), (3, "a"), (6, "a"), (1, "b"), (9, "c")):
        one = before[was.key(f"shop{number % 3}", number)]
        one.code = one.nick = code
        before.replace(one)
    item = cls(NEW, "Item")
    store = tm.Store(memory.open(NEW))
    report = store.build()
    codes = [one for one in report.violations if one.index == "Item.by_code"]
    assert [(one.value, one.holders) for one in codes] == [
        (("a", "holder"), (("shop0", "item !a0"), ("shop0", "item !a3"), ("shop0", "item !a6")))
    ]
    assert {one.index for one in report.violations} == {"Item.by_code", "Item.by_nick"}
    assert (store.status()["Item.by_code"].state, store.status()["Item.by_code"].violations) == ("violated", 1)
    assert store.status()["Item.by_color"].state == "ready"
    with pytest.raises(tm.NotReady, match="held twice"):
        list(store.query(item.by_code("a")))
    with pytest.raises(tm.UniqueViolation):
        store.insert(item("shop1", 77, code="b"))
    with pytest.raises(tm.UniqueViolation):
        store.insert(item("shop1", 77, nick="b"))
    third, sixth = store[item.key("shop0", 3)], store[item.key("shop0", 6)]
    third.size = 9.0
    store.replace(third)  # (which keeps its values)
    third.code, third.nick = "d", "d"
    store.replace(third)
    store.delete(sixth)
    first = store[item.key("shop0", 0)]
    first.size = 1.5
    store.replace(first)
    report = store.build()
    assert report.ok, report
    assert not store._engine.unready
    assert [one.number for one in store.query(item.by_code("a"))] == [0]
    assert [one.number for one in store.query(item.by_code("d"))] == [3]
    assert [one.number for one in store.query(item.by_nick("shop0", "a"))] == [0]
    assert store.check().ok, str(store.check())
    with pytest.raises(tm.UniqueViolation):
        store.insert(item("shop0", 78, nick="a"))
    store.delete(first)
    store.insert(item("shop0", 79, code="a", nick="a"))
    assert store.check().ok, str(store.check())


def test_what_is_known_and_cannot_be_built_is_refused_by_name() -> None:
    def item(**body: Any) -> Any:
        color, size = (str | None, tm.field(default=None)), (float, tm.field(default=0.0))
        members = {"shop": str, "number": int, "color": color, "size": size}
        return entity("Item", "Items", members, tm.Key[str, int](partition="{shop}", row=("item", "{number}")), **body)

    otherwise = item(type="item", by_shade=tm.Index[str, float](partition="{color}", row="{size}"))
    renamed = item(by_tone=tm.Index[str, int](partition="{color}", row="{number}"))
    memory, _ = filled(3)
    sent = len(memory.sent)
    with pytest.raises(tm.SchemaMismatch) as raised:
        memory.open(compile_schema([otherwise]))
    assert "Item.by_shade: two definitions of one name" in str(raised.value)
    assert "Item: a type name cannot be set" in str(raised.value)
    with pytest.raises(tm.SchemaMismatch, match=r"Item\.by_tone: the store has this index as by_shade"):
        memory.open(compile_schema([renamed]))
    assert not [one for one in memory.sent[sent:] if isinstance(one, GroupTransaction)]
