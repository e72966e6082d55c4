"""A class with very many entities is cleared by new tables, while nobody writes it: kills, writers and older programs beside."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import attrs
import pytest
from msgspec import UNSET
from msgspec.structs import replace

import tablemapper as tm
from tablemapper.engines.azure import clearing
from tablemapper.engines.azure.catalogue.open_classes import CatalogueRefresher
from tablemapper.engines.azure.catalogue.publication import changed
from tablemapper.engines.azure.cross_partition.outbox import Outbox, Timing
from tablemapper.engines.azure.dropping import deleted, dropped
from tablemapper.engines.azure.housekeeping import flush
from tablemapper.engines.azure.recovery import sweep, waited
from tablemapper.engines.azure.tables.driver import Driver, Effects, Parallel, Sleep, Within
from tablemapper.engines.azure.tables.service import (
    GetEntity,
    GroupTransaction,
    QueryEntities,
    Request,
    RowChange,
)
from tablemapper.engines.azure.writing.late_writes import write_in_time
from tablemapper.evolution.history import History
from tablemapper.schema.model import compile_schema

from ...classes import entity
from ...store.test_drop import KEPT, MODELS, Hosts, Log, Other, Title, Writer, fill, right
from .crew import Board, Member, drawn_write
from .memory import Faulty, Memory
from .place import AzurePlace
from .schedule import Rates, Schedule, noted, played, process_state, sweep_all
from .test_builds import Clocked
from .test_claims import owners

TABLES = {"Logs", "LogsByLevel", "LogsByCode", "Hosts", "HostsByLines"}
"""That are replaced; ``within`` has none."""
TIMES = Timing(look=1.0, deadline=1.5, lease=3.0, grace=30.0, request=1.0)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearing, "ROW_BY_ROW", 3)


def opened(memory: Memory, models: Any = MODELS) -> tm.Store:
    return tm.open(AzurePlace(memory=memory, still=True), models=models)  # type: ignore[arg-type]


class Watched(Clocked):
    """A service of whose clients one waits, while something else happens."""

    meanwhile: Callable[[], None] | None = None

    def pass_by(self, seconds: float) -> None:
        super().pass_by(seconds)
        meanwhile, self.meanwhile = self.meanwhile, None  # (what waits in it waits alone)
        if meanwhile is not None:
            meanwhile()
            self.meanwhile = meanwhile


def public(memory: Memory) -> list[str]:
    """Return the tables of the account, without what makes their names others."""
    return sorted([name.split("x")[0] for name in memory.tables if name != "TableMapper"])


def test_a_class_with_many_entities_gets_empty_tables_again_and_again() -> None:
    memory = Memory()
    sizes: list[int] = []
    with opened(memory) as store:
        for count in (6, 40, 12):
            fill(store, count)
            right(store, count)
            sent, began = len(memory.sent), memory.ahead
            assert store.clear(Log) == count
            requests = memory.sent[sent:]
            settled = store._engine._outbox.times.settled  # type: ignore[attr-defined]
            assert memory.ahead - began >= 2 * settled
            assert not [one for one in requests if isinstance(one, GroupTransaction) and one.table in TABLES]
            sizes.append(len(requests))
            right(store, 0)
            assert public(memory) == sorted([*TABLES, "Others", "OthersByName"])
            assert not TABLES & set(memory.tables)
            state = store._engine._classes.catalogue  # type: ignore[attr-defined]
            assert (state.frozen, state.history, state.tombstones) == (None, History(()), ())
        assert len(set(sizes)) == 1  # (a request for a thousand keys)
        fill(store)
        right(store, 6)
    with opened(memory) as store:
        right(store, 6)
        store.drop(Log)
    assert not [name for name in memory.tables if name.startswith(("Log", "Hosts"))]


def test_it_costs_requests_by_tables_and_its_tables_have_the_prefix_and_say_whose_they_are() -> None:
    counts: dict[int, int] = {}
    for models, tables in ((MODELS, 5), ([Log, Other], 3)):
        memory = Memory()
        with tm.open(AzurePlace(memory=memory, still=True, catalogue="Staging"), models=models) as store:  # type: ignore[arg-type]
            fill(store)
            sent = len(memory.sent)
            assert store.clear(Log) == 6
            counts[tables] = len(memory.sent) - sent
        assert {name for name in memory.tables if not name.startswith("Staging")} == set()
        assert owners(memory) == dict.fromkeys(set(memory.tables) - {"Staging"}, "Staging")
    assert counts[5] - counts[3] == 2 * 4  # (three a table, and one for a thousand of its rows)
    assert counts[3] - 3 * 4 <= 25


def test_few_entities_are_deleted_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearing, "ROW_BY_ROW", 6)
    memory = Memory()
    with opened(memory) as store:
        fill(store, 6)
        began = memory.ahead
        assert store.clear(Log) == 6
        assert memory.ahead == began
        right(store, 0)
    assert set(memory.tables) >= TABLES


def put(memory: Memory, table: str, row: str, **members: Any) -> None:
    memory.send(GroupTransaction(table, "x", (RowChange("insert", row, members),)))


@pytest.mark.parametrize("table", sorted(TABLES))
def test_a_table_with_rows_of_other_programs_is_never_replaced(table: str) -> None:
    memory = Memory()
    with opened(memory) as store:
        fill(store)
        put(memory, table, "settings" if table != "Hosts" else ' "q', text="theirs")
        began = memory.ahead
        assert store.clear(Log) == 6
        assert memory.ahead == began
        right(store, 0)
    assert ("x", "settings" if table != "Hosts" else ' "q') in memory.tables[table]


def test_a_field_that_is_maintained_from_the_class_is_empty_and_its_own_entities_stay() -> None:
    memory = Memory()
    with opened(memory, KEPT) as store:
        store.insert_many([Writer("ada"), *(Title("ada", str(number)) for number in range(5))])
        assert store.clear(Title) == 5
        assert store[Writer.key("ada")].titles == 0
        store.insert(Title("ada", "t"))
        assert store[Writer.key("ada")].titles == 1
        assert store.check().ok
    assert "Titles" not in memory.tables
    assert "Writers" in memory.tables


def test_a_table_that_other_programs_write_keeps_its_name() -> None:
    memory = Memory()
    with opened(memory) as store:
        fill(store)
        row = Log.key("a", 77).row
        memory.send(GroupTransaction("Logs", "a", (RowChange("insert", row, {"level": "theirs"}),)))
        began = memory.ahead
        assert store.clear(Log) == 7
        assert memory.ahead == began
        right(store, 0)
    assert "Logs" in memory.tables


def test_what_cannot_be_replaced_is_cleared_row_by_row() -> None:
    class Event(tm.Entity, table="Events"):
        shop: tm.Field[str]
        n: tm.Field[int]

        key = tm.Key[str, int](partition="{shop}", row=("event", "{n}"))

    class Note(tm.Entity, table="Notes"):
        shop: tm.Field[str]
        n: tm.Field[int]

        key = tm.Key[str, int](partition="{shop}", row=("note", "{n}"))

    class Ever(tm.Aggregate, of=Event, table="Evers"):
        shop: tm.Field[str] = tm.group_by(Event.shop)
        most: tm.Field[int | None] = tm.max_ever(Event.n)

        key = tm.Key[str](partition="{shop}")

    class Sign(tm.Entity, table="Notes"):
        shop: tm.Field[str]

        key = tm.Key[str](partition="{shop}", row="sign")

    memory = Memory()
    with opened(memory, [Event, Ever, Note, Sign]) as store:
        store.insert_many([*(Event("a", n) for n in range(5)), *(Note("a", n) for n in range(5)), Sign("a")])
        began = memory.ahead
        assert (store.clear(Event), store.clear(Note)) == (5, 5)
        assert memory.ahead == began
        assert store[Ever.key("a")].most == 4
        assert store.get(Sign.key("a")) is not None
        assert store.check().ok
        store.insert_many(Note("a", n) for n in range(5))
        store.freeze()
        with pytest.raises(tm.StoreLocked, match="the store has been frozen since"):
            store.clear(Note)
        store.unfreeze()
        assert len(list(store.query(Note).where(Note.shop == "a"))) == 5


def test_other_programs_only_read_the_class_meanwhile_and_go_on_with_all_others() -> None:
    """One of them has fewer fields, no index and no aggregate."""
    fewer = entity("Log", "Logs", {"host": str, "number": int, "level": (str, tm.field(default="info"))}, tm.Key[str, int](partition="{host}", row="{number}"))  # fmt: skip
    memory = Watched(1)
    store = tm.Store(memory.open(compile_schema([Log, Hosts, Other]), TIMES))
    beside = tm.Store(memory.open(compile_schema([fewer, Other]), TIMES))
    fill(store)
    acknowledged: dict[int, float] = {}
    refused: list[float] = []
    numbers = itertools.count(100)

    def meanwhile() -> None:
        beside.upsert(Other("o1"))
        assert beside.query(fewer).where(fewer.host == "a").count() in range(6 + len(acknowledged) + 1)
        number = next(numbers)
        try:
            beside.insert(fewer("a", number))
            acknowledged[number] = memory.now
        except tm.StoreLocked as error:
            assert "Log is being cleared, and is only read meanwhile: try again in a minute" in str(error)
            assert beside.status().frozen is None
            with pytest.raises(tm.StoreLocked, match="Log is being cleared"):
                beside.freeze()
            with pytest.raises(tm.StoreLocked, match="Log is being cleared"):
                beside.drop(Other)
            with pytest.raises(tm.StoreLocked, match="Log is being cleared"):
                beside.clear(fewer)
            refused.append(memory.now)

    memory.meanwhile = meanwhile
    began = memory.now
    assert store.clear(Log) == 6
    assert min(acknowledged.values()) < min(refused) < max(refused) < max(acknowledged.values())
    assert max(refused) - began <= TIMES.settled + TIMES.look + 1
    left = {number for number, when in acknowledged.items() if when > max(refused)}
    assert {one.number for one in store.query(Log).where(Log.host == "a")} == left
    assert store[Hosts.key("a")].lines == len(left)
    assert store.check().ok, str(store.check())


def test_a_library_that_knows_of_no_clearing_writes_nothing_meanwhile() -> None:
    """It publishes the catalogue as it reads it: without the class that is cleared."""
    memory = Watched(2)
    store = tm.Store(memory.open(compile_schema(MODELS), TIMES))
    beside = tm.Store(memory.open(compile_schema(MODELS), TIMES))
    fill(store)
    refused: list[str] = []

    def forgotten(stored: Any) -> Any:
        entries = tuple([replace(entry, clears=UNSET) for entry in stored.value.history])
        new = attrs.evolve(stored.value, history=History(entries))
        return None if new == stored.value else new

    def meanwhile() -> None:
        Driver(memory, monotonic=lambda: 0.0).run(changed("TableMapper", 60.0, forgotten))
        beside._engine.catch_up()
        try:
            beside.upsert(Other("o1"))
        except tm.StoreLocked as error:
            refused.append(str(error))

    memory.meanwhile = meanwhile
    assert store.clear(Log) == 6
    assert refused
    assert "the store has been frozen since" in refused[0]
    beside.upsert(Other("o1"))
    right(beside, 0)


@pytest.mark.parametrize("way", ["unfrozen", "migrated", "extended", "dropped"])
def test_a_clearing_that_another_program_ends_deletes_nothing_and_says_so(way: str) -> None:
    newer = entity(
        "Other", "Others", {"id": str, "name": (str, tm.field(default="x"))}, tm.Key[str](partition="{id}"),
        by_name=tm.Index[str](partition="{name}"), by_both=tm.Index[str, str](partition="{name}", row="{id}"),
    )  # fmt: skip
    memory = Watched(3)
    store = tm.Store(memory.open(compile_schema(MODELS), TIMES))
    other = tm.Store(memory.open(compile_schema(MODELS), TIMES))
    fill(store)
    at = itertools.count()

    def meanwhile() -> None:
        if next(at) != 1:
            return
        if way == "unfrozen":
            other._engine.unfreeze()
        elif way == "migrated":  # (which was told to abandon what runs)
            engine = AzurePlace(memory=memory).migrations()
            engine.discard("the clearing of Log")
            engine.close()
        elif way == "dropped":
            del memory.tables["TableMapper"]["store", "head"]
        else:
            memory.open(compile_schema([*MODELS[:2], newer]), TIMES).close()

    memory.meanwhile = meanwhile
    if way == "extended":  # (of another class: that changes nothing of this one)
        assert store.clear(Log) == 6
        return
    with pytest.raises(tm.CorruptStore if way == "dropped" else tm.StoreError) as refusal:
        store.clear(Log)
    if way == "dropped":
        return
    assert "clear: another program ended the clearing of Log" in str(refusal.value)
    assert set(memory.tables) == {*TABLES, "Others", "OthersByName", "TableMapper"}
    right(store, 6)
    store.insert(Log("b", 1))
    assert store.clear(Log) == 7
    right(store, 0)


def test_a_migration_waits_for_a_clearing_or_ends_it_as_it_is_told() -> None:
    less = entity("Other", "Others", {"id": str, "name": (str, tm.field(default="x"))}, tm.Key[str](partition="{id}"))

    @tm.migration(after=None, old=[*MODELS], new=[*MODELS[:2], less])
    def fewer(m: tm.Migration) -> None:
        m.drop(Other.by_name)

    memory, errors = Watched(4), list[str]()
    store = tm.Store(memory.open(compile_schema(MODELS), TIMES))
    fill(store)
    place: Any = AzurePlace(memory=memory, still=True)

    def meanwhile() -> None:
        if not errors:
            with pytest.raises(tm.InvalidMigration, match="the clearing of Log has not finished") as refusal:
                tm.migrate(place, [fewer])
            errors.append(str(refusal.value))
            assert tm.migrate(place, [fewer], to="fewer").applied == ("fewer",)

    memory.meanwhile = meanwhile
    with pytest.raises(tm.StoreError, match="another program ended the clearing of Log"):
        store.clear(Log)
    assert errors
    assert store.query(Log).where(Log.host == "a").count() == 6
    assert store.check().ok


def test_what_a_writer_left_of_the_class_is_not_finished_meanwhile() -> None:
    """Who sweeps would add it to new groups, if the tables were replaced just then."""

    class Ending(Watched):
        """A service whose client ends before it writes a row of an index."""

        ends = False

        def send(self, request: Any, *wait: float) -> Any:
            if self.ends and isinstance(request, GroupTransaction) and request.table == "LogsByLevel":
                raise KeyboardInterrupt
            return super().send(request, *wait)

    memory, swept = Ending(5), list[int]()
    store, other = (tm.Store(memory.open(compile_schema(MODELS), TIMES)) for _ in range(2))
    fill(store)
    memory.ends = True
    with pytest.raises(KeyboardInterrupt):
        other.insert(Log("b", 1))
    memory.ends = False
    memory.now += TIMES.lease + 1

    def meanwhile() -> None:
        if store._engine._classes.cleared_tables:  # type: ignore[attr-defined]
            swept.append(store.sweep(full=True))

    memory.meanwhile = meanwhile
    assert store.clear(Log) == 7
    assert len(swept) >= 3
    assert not any(swept)
    memory.now += 10_000
    assert store.sweep(full=True) == 0
    right(store, 0)


@pytest.mark.parametrize("way", ["before", "lost"])
def test_a_clearing_that_ended_at_any_request_is_undone_or_finished(way: str, *, full_size: bool) -> None:
    """By the next program that opens the store, by a sweep, or by the next clearing."""

    def begun() -> Faulty:
        memory = Faulty()
        with opened(memory) as store:
            fill(store)
        return memory

    whole = begun()
    with opened(whole) as store:
        start = whole.number
        store.clear(Log)
    every = range(start + 1, whole.number + 1)
    for at in every if full_size else {*every[way == "lost" :: 5], every[-1]}:
        memory = begun()
        memory.at, memory.way = at, way
        with suppress(KeyboardInterrupt), opened(memory) as store:
            store.clear(Log)
        memory.at = -1
        with opened(memory) as store:  # (at once: who clears may be going on)
            was_cleared = not list(store.query(Log).where(Log.host == "a"))
            right(store, 0 if was_cleared else 6)
        memory.ahead += 1000
        with opened(memory) as store:
            if at % 2:
                store.sweep()
            store.upsert_many([Log("a", n, ["info", "error"][n % 2], f"c{n}") for n in range(6)])
            right(store, 6)
        assert public(memory) == sorted([*TABLES, "Others", "OthersByName"]), at
        assert was_cleared != (set(memory.tables) >= TABLES)
        with opened(memory) as store:
            assert store.clear(Log) == 6
            right(store, 0)


# ---------------------------------------------------------------------------------------------- writers beside

SCHEMA = compile_schema([Member, Board])
RATES = Rates(crash=0.002, lost=0.04, late=0.02, busy=0.03)


def named(work: Effects[Any], current: CatalogueRefresher) -> Effects[Any]:
    """Do a work of a process, whose requests go to the tables that it knows."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            step = work.send(answer) if error is None else work.throw(error)
        except StopIteration as stop:
            return stop.value
        answer = error = None
        try:
            answer = yield _to_known(step, current)
        except Exception as raised:
            error = raised


def _to_known(step: Any, current: CatalogueRefresher) -> Any:
    if isinstance(step, Parallel):
        return attrs.evolve(step, works=[named(work, current) for work in step.works])
    if isinstance(step, Within):
        request = _to_known(step.request, current)
        return step if request is step.request else attrs.evolve(step, request=request)
    if isinstance(step, GetEntity | QueryEntities | GroupTransaction) and step.table in current.known.names:
        return attrs.evolve(step, table=current.known.names[step.table])
    return step


class Play:
    """Writers of several processes, those that sweep, and one that clears."""

    def __init__(self, seed: int) -> None:
        random.seed(seed)  # (of pauses)
        self.rng = random.Random(seed)
        self.memory = Clocked(seed)
        self.ops = itertools.count()
        self.store = tm.Store(self.memory.open(SCHEMA, TIMES))
        self.store.insert_many([Member(crew, f"m{n}", "red", float(n)) for crew in "ab" for n in range(6)])
        self.told: list[Request] = []
        self.late: list[Request] = []
        """What changed an entity in the old table after one in the new one."""
        self.has_begun = self.is_cleared = False
        self.schedule = self.memory.schedule = Schedule(self.memory, seed, RATES, TIMES.look)
        self.memory.send = self.noted(self.memory.send)  # type: ignore[method-assign]
        for _ in range(3):
            self.schedule.start(self.program())
        for _ in range(2):
            self.schedule.start(self.sweeper())
        self.schedule.start(self.clearer(), Rates(lost=0.02, busy=0.03))

    def noted(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def sends(request: Request, *wait: float) -> Any:
            answer = send(request, *wait)
            changes = request.changes if isinstance(request, GroupTransaction) else ()
            if isinstance(request, GroupTransaction) and not all(change.row.startswith(" ") for change in changes):
                self.has_begun = self.has_begun or request.table.startswith("Membersx")
                if self.has_begun and request.table == "Members":
                    self.late.append(request)
            return answer

        return sends

    def program(self) -> Effects[None]:
        current, outbox = yield from process_state(SCHEMA, TIMES, self.ops)
        for _ in range(2):
            self.schedule.start(named(self.writer(current, outbox), current))

    def writer(self, current: CatalogueRefresher, outbox: Outbox) -> Effects[None]:
        for _ in range(16):
            yield Sleep(self.rng.random())
            operation, sent = drawn_write(SCHEMA, self.rng, ["p", "q", "m1", "m2"]), list[Request]()
            write = write_in_time(current, [operation], outbox, timeout=TIMES.deadline)
            try:
                yield from noted(named(write, current), sent)
                self.told += sent
                yield from flush(outbox, TIMES.deadline)
            except tm.TableMapperError:
                pass

    def sweeper(self) -> Effects[None]:
        current, outbox = yield from process_state(SCHEMA, TIMES, self.ops)
        for _ in range(5):
            yield Sleep(self.rng.random() * 4)
            with suppress(tm.TableMapperError):
                yield from named(sweep(current, outbox, 60.0), current)

    def clearer(self) -> Effects[None]:
        yield Sleep(self.rng.random() * 4)
        current, outbox = yield from process_state(SCHEMA, TIMES, self.ops)
        with suppress(tm.StoreError):
            self.is_cleared = (yield from named(clearing.cleared(current, outbox, "Member", 60.0), current)) is not None

    def run(self) -> dict[str, int]:
        self.schedule.run()
        wrong = [one for one in self.late if any(one is other for other in self.told)]
        assert not wrong, wrong[0]
        sweep_all(self.store, self.memory, self.memory)
        report = self.store.check()
        assert report.ok, str(report)
        names = [name for name in self.memory.tables if name.startswith("Members")]
        assert len(names) == 3, names
        self.store.upsert(Member("a", "last", "red", 1.0))
        return {"cleared": self.is_cleared, "written since": self.has_begun}


@pytest.mark.one_python
def test_no_acknowledged_write_is_lost_beside_a_clearing(full_size: bool) -> None:
    seeds = 600 if full_size else 6
    counts = played(Play, range(seeds))
    assert counts["cleared"] > seeds * 0.5
    assert counts["written since"] > seeds * 0.4


@pytest.mark.one_python
def test_a_clearing_that_does_not_wait_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    wait, started = clearing.waited, set[int]()

    def hasty(catalogue: str, since: int, seconds: float, timeout: float) -> Effects[bool]:
        is_first = not started
        started.add(since)
        return False if is_first or since == min(started) else (yield from wait(catalogue, since, seconds, timeout))

    def fresh(seed: int) -> Play:
        started.clear()
        return Play(seed)

    monkeypatch.setattr(clearing, "waited", hasty)
    with pytest.raises(AssertionError):
        played(fresh, range(30))


class DropPlay(Play):
    """The same with one that drops the class, which then comes back."""

    def clearer(self) -> Effects[None]:
        yield Sleep(self.rng.random() * 4)
        current, outbox = yield from process_state(SCHEMA, TIMES, self.ops)
        since = yield from dropped("TableMapper", "Member", ["Member", "Board"], 60.0)
        while (yield from waited("TableMapper", since, outbox.times.settled, 60.0)):
            pass
        yield from deleted("TableMapper", "Member", (yield from current.look()).catalogue, 60.0)
        self.is_cleared = True

    def run(self) -> dict[str, int]:
        self.schedule.run()
        self.memory.now += 10_000
        self.store.sweep(full=True)
        assert [name for name in self.memory.tables if name.startswith(("Members", "Boards"))] == []
        with pytest.raises(tm.SchemaMismatch, match="Member was dropped"):
            self.store.upsert(Member("a", "last", "red", 1.0))
        self.store.use(Member, Board)
        assert not self.store.query(Member).allow_scan().exists()
        self.store.upsert(Member("a", "last", "red", 1.0))
        assert self.store[Board.key("red")].members == 1
        report = self.store.check()
        assert report.ok, str(report)
        return {"dropped": self.is_cleared}


@pytest.mark.one_python
def test_a_drop_beside_writers_leaves_nothing_and_the_class_comes_back_empty(full_size: bool) -> None:
    seeds = 200 if full_size else 4
    assert played(DropPlay, range(seeds))["dropped"] == seeds
