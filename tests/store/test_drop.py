"""A class leaves the store with all that it holds, and may come back, empty: in a file and in an account."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.service import CreateTable, DeleteTable, GroupTransaction

from ..classes import aggregate, entity
from ..engines.azure.memory import Faulty, Memory
from ..engines.azure.place import AzurePlace

pytestmark = pytest.mark.file  # (and of an account; another engine need not be asked)


class Log(tm.Entity, table="Logs"):
    host: tm.Field[str]
    number: tm.Field[int]
    level: tm.Field[str] = tm.field(default="info")
    code: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{host}", row="{number}")
    by_level = tm.Index[str](partition="{level}")
    by_code = tm.Index[str](partition="{code}", unique=True)
    within = tm.Index[str, str](partition="{host}", row="{level}")


class Hosts(tm.Aggregate, of=Log, table="Hosts"):
    host: tm.Field[str] = tm.group_by(Log.host)
    lines: tm.Field[int] = tm.count()
    most: tm.Field[int | None] = tm.max(Log.number)

    key = tm.Key[str](partition="{host}")
    by_lines = tm.Index[int](partition="{lines}")


class Here(tm.Aggregate, of=Log, table="Logs"):
    host: tm.Field[str] = tm.group_by(Log.host)
    lines: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="{host}", row=("total", ""))


class Other(tm.Entity, table="Others"):
    id: tm.Field[str]
    name: tm.Field[str] = tm.field(default="x")

    key = tm.Key[str](partition="{id}")
    by_name = tm.Index[str](partition="{name}")


MODELS: list[Any] = [Log, Hosts, Other]
Place = Any


@pytest.fixture(params=["file", "account"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return tmp_path / "store.db" if request.param == "file" else AzurePlace(memory=Memory(), still=True)


def fill(store: tm.Store, count: int = 6) -> None:
    store.insert_many([Log("a", n, ["info", "error"][n % 2], f"c{n}") for n in range(count)])
    store.upsert_many([Other(f"o{n}") for n in range(3)])


def right(store: tm.Store, count: int) -> None:
    assert [one.number for one in store.query(Log).where(Log.host == "a")] == list(range(count))
    assert len(list(store.query(Log.by_level("error")))) == count // 2
    assert len(list(store.query(Log.by_code("c1")))) == min(count, 1)
    group = store.get(Hosts.key("a"))
    assert (0 if group is None else group.lines) == count
    assert len(list(store.query(Other.by_name("x")))) == 3
    report = store.check()
    assert report.ok, str(report)


class Stamped(tm.Entity):
    id: tm.Field[str]
    until: tm.Field[datetime | None] = tm.field(default=None, expires=True)

    key = tm.Key[str](partition="{id}")


class Session(Stamped, table="Sessions"): ...


class Lock(Stamped, table="Locks"): ...


def test_what_is_about_all_classes_passes_by_one_that_was_dropped(place: Place) -> None:
    """Here, and in another program that has it open."""
    ended = datetime(2020, 1, 1, tzinfo=UTC)
    models: list[Any] = [Session, Lock]
    with tm.open(place, models=models) as store, tm.open(place, models=models) as beside:
        store.insert_many([Session("a"), Session("b", ended), Lock("c", ended)])
        store.drop(Lock)
        for one in (store, beside):
            assert one.expire() == (1 if one is store else 0)
            assert [entity.id for entity in one.query(Stamped).allow_scan().allow_sort()] == ["a"]
            one.advise()
            with tm.open(":memory:", models=[Session]) as other:
                assert tm.copy(one, other).inserted == 1


def tables_of(place: Place) -> set[str]:
    """Return the tables that there are in a place."""
    if isinstance(place, AzurePlace):
        assert place.memory is not None
        return set(place.memory.tables) - {"TableMapper"}
    with closing(sqlite3.connect(place)) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {name for (name,) in names if not name.endswith("_big") and name[:3] in ("Log", "Hos", "Oth")}


def test_a_class_goes_with_all_that_is_its_and_comes_back_empty(place: Place) -> None:
    with tm.open(place, models=MODELS) as store:
        fill(store)
        store.drop(Log)
        store.build()
        for call in (
            lambda: store.get(Log.key("a", 1)),
            lambda: list(store.query(Log).where(Log.host == "a")),
            lambda: list(store.query(Log.by_level("info"))),
            lambda: list(store.partition(Log.host == "a")),
            lambda: store.insert(Log("a", 99)),
            lambda: store.merge(Log.key("a", 1), level="x"),
            lambda: store.delete(Log.key("a", 1)),
            lambda: store.get(Hosts.key("a")),
        ):
            with pytest.raises(
                tm.SchemaMismatch, match="was dropped on .*; open the store again to have it anew, empty"
            ):
                call()
        assert len(list(store.query(Other.by_name("x")))) == 3
        store.insert(Other("new", "y"))
        store.delete(Other.key("new"))
        assert store.check().ok
    assert tables_of(place) == {"Others", "OthersByName"}
    with tm.open(place, models=[Other]) as store:
        assert store.check().ok
    with tm.open(place, models=MODELS) as store:
        right(store, 0)
        fill(store)
        right(store, 6)
        assert store.status()["Log"].state == "ready"


def test_a_class_is_dropped_again_and_again(place: Place) -> None:
    for cycle in range(4):
        with tm.open(place, models=MODELS) as store:
            fill(store, 2 + cycle)
            right(store, 2 + cycle)
            store.drop(Log)
            store.build()
        assert tables_of(place) == {"Others", "OthersByName"}
    with tm.open(place, models=MODELS) as store:
        right(store, 0)
        assert len([one for one in store.status().objects if one.state == "dropped"]) == 0
        store.drop(Log)
        assert (
            len([one for one in store.status().objects if one.state.startswith("dropp")]) == 2
        )  # (the last time alone)


def test_another_form_of_the_class_may_come_back(place: Place) -> None:
    other = entity(
        "Log",
        "Logs",
        {"id": str, "host": int},
        tm.Key[str](partition="{id}"),
        by_host=tm.Index[int](partition="{host}"),
    )
    with tm.open(place, models=MODELS) as store:
        fill(store)
        store.drop(Log)
    with tm.open(place, models=[other, Other]) as store:
        store.insert(other("x", 5))
        assert [one.id for one in store.query(other.by_host(5))] == ["x"]
        assert store.check().ok


def test_an_aggregate_in_the_table_of_its_class_goes_with_it(place: Place) -> None:
    with tm.open(place, models=[Log, Here, Other]) as store:
        fill(store)
        assert store[Here.key("a")].lines == 6
        store.drop(Log)
        store.build()
    assert tables_of(place) == {"Others", "OthersByName"}
    with tm.open(place, models=[Log, Here, Other]) as store:
        assert store.get(Here.key("a")) is None
        assert store.check().ok


def test_what_cannot_go_is_refused_and_stays(place: Place) -> None:
    invoice = entity(
        "Invoice", "Invoices", {"shop": str, "n": int}, tm.Key[str, int](partition="{shop}", row=("i", "{n}"))
    )
    counter = entity(
        "Counter",
        "Invoices",
        {"shop": str, "last": (int, tm.field(default=0))},
        tm.Key[str](partition="{shop}", row="counter"),
    )
    room = entity("Room", "Rooms", {"name": str}, tm.Key[str](partition="{name}", row="room"))
    book = entity("Book", "Books", {"room": str, "id": str}, tm.Key[str, str](partition="{room}", row="{id}"))
    shelf = aggregate(
        "Shelf",
        book,
        {"room": (str, tm.group_by(book.room)), "books": (int, tm.count())},
        tm.Key[str](partition="{room}", row="shelf"),
        "Rooms",
    )
    with tm.open(place, models=[*MODELS, invoice, counter, room, book, shelf]) as store:
        fill(store)
        store.insert(counter("a", 1))
        for cls, text in {
            counter: r'drop: Counter shares "Invoices" with Invoice; delete its entities with store\.clear\(Counter\)',
            book: 'drop: Shelf, which is maintained from Book, shares "Rooms" with Room; drop Shelf with a script first',
        }.items():
            with pytest.raises(tm.InvalidQuery, match=text):
                store.drop(cls)
        for wrong in (Hosts, "Log", int):
            with pytest.raises(tm.InvalidEntity):
                store.drop(wrong)  # type: ignore[arg-type]
        with store.transaction() as tx, pytest.raises(tm.InvalidTransaction):
            assert tx.get(Other.key("o1")) is not None
            store.drop(Log)
        right(store, 6)
    text = "drop: Hosts is maintained from Log; open the store with it, too"
    with tm.open(place, models=[Log, Other]) as store, pytest.raises(tm.InvalidQuery, match=text):
        store.drop(Log)
    with tm.open(place, models=MODELS) as store:
        store.freeze()
        with pytest.raises(tm.StoreLocked):
            store.drop(Log)
        store.unfreeze()
        right(store, 6)
    with tm.open(place, models=MODELS, read_only=True) as store, pytest.raises(tm.StoreReadOnly):
        store.drop(Log)


def test_a_class_that_keeps_a_field_of_another_stays(place: Place) -> None:
    with tm.open(place, models=KEPT) as store:
        store.insert(Title("ada", "t"))
        with pytest.raises(tm.InvalidQuery, match=r"drop: Title keeps Writer\.titles; remove that field first"):
            store.drop(Title)
        assert store.check().ok


class Title(tm.Entity, table="Titles"):
    name: tm.Field[str]
    id: tm.Field[str]

    key = tm.Key[str, str](partition="{name}", row="{id}")


class Writer(tm.Entity, table="Writers"):
    name: tm.Field[str]
    titles: tm.Field[int] = tm.count(of=Title)

    key = tm.Key[str](partition="{name}")


KEPT = [Title, Writer]


def test_programs_that_have_it_open_are_refused_for_it_alone(place: Place) -> None:
    with tm.open(place, models=MODELS) as store, tm.open(place, models=MODELS) as beside:
        fill(store)
        right(beside, 6)
        store.drop(Log)
        for call in (lambda: beside.insert(Log("a", 50)), lambda: list(beside.query(Log.by_level("info")))):
            with pytest.raises(tm.SchemaMismatch, match="Log.* was dropped"):
                call()
        beside.insert(Other("more"))
        assert len(list(beside.query(Other.by_name("x")))) == 4
        assert beside.check().ok
        with tm.open(place, models=MODELS) as again:
            again.insert(Log("a", 0, "info", "c0"))
            if isinstance(place, AzurePlace) and place.memory is not None:
                place.memory.ahead += 100
                beside._engine.catch_up()
            assert [one.number for one in beside.query(Log).where(Log.host == "a")] == [0]  # (it is there again)


@pytest.mark.parametrize("call", [
    lambda store: store.get(Log.key("a", 1)), lambda store: list(store.query(Log.by_level("info"))),
    lambda store: list(store.query(Log).where(Log.host == "a")), lambda store: list(store.partition(Log.host == "a")),
    lambda store: store.get(Hosts.key("a")), lambda store: store.merge(Log.key("a", 1), level="x"),
    lambda store: store.insert(Log("a", 77)), lambda store: store.insert_many([Log("a", 77)]),
])  # fmt: skip
def test_the_first_call_that_meets_it_elsewhere_says_so(place: Place, call: Any) -> None:
    for _ in range(2):
        with tm.open(place, models=MODELS) as store, tm.open(place, models=MODELS) as beside:
            fill(store)
            store.drop(Log)
            with pytest.raises(tm.SchemaMismatch, match="was dropped on"):
                call(beside)
            assert beside.check().ok


def test_in_an_account_its_new_tables_have_new_names_at_once() -> None:
    class Deleting(Memory):
        """A service that goes on with the name of a table that was deleted."""

        def __init__(self) -> None:
            super().__init__()
            self.gone: set[str] = set()

        def send(self, request: Any, *wait: float) -> Any:
            if isinstance(request, DeleteTable):
                self.gone.add(request.name)
            if isinstance(request, CreateTable) and request.name in self.gone:
                raise AssertionError(f"{request.name} is being deleted")
            return super().send(request, *wait)

    memory = Deleting()
    place: Any = AzurePlace(memory=memory, still=True)
    with tm.open(place, models=MODELS) as store:
        fill(store)
        sent, began = len(memory.sent), memory.ahead
        store.drop(Log)
        assert memory.ahead - began >= store._engine._outbox.times.settled  # type: ignore[attr-defined]
    drops = memory.sent[sent:]
    assert {one.name for one in drops if isinstance(one, DeleteTable)} == {
        "Logs", "LogsByLevel", "LogsByCode", "Hosts", "HostsByLines",
    }  # fmt: skip
    assert not [one for one in drops if isinstance(one, GroupTransaction) and one.table != "TableMapper"]
    with tm.open(place, models=MODELS) as store:
        fill(store)
        right(store, 6)
    assert {name[:5] for name in tables_of(place)} == {"Logsx", "LogsB", "Hosts", "Other"}
    assert not tables_of(place) & memory.gone


@pytest.mark.parametrize("way", ["before", "lost"])
def test_a_drop_that_ended_at_any_request_is_finished_by_a_sweep_or_the_next_open(way: str, *, full_size: bool) -> None:
    def begun() -> Faulty:
        memory = Faulty()
        with tm.open(AzurePlace(memory=memory, still=True), models=MODELS) as store:  # type: ignore[arg-type]
            fill(store)
        return memory

    whole = begun()
    with tm.open(AzurePlace(memory=whole, still=True), models=MODELS) as store:  # type: ignore[arg-type]
        start = whole.number
        store.drop(Log)
    every = range(start + 1, whole.number + 1)
    for at in every if full_size else {*every[way == "lost" :: 3], every[-1]}:
        memory = begun()
        place: Any = AzurePlace(memory=memory, still=True)
        memory.at, memory.way = at, way
        with suppress(KeyboardInterrupt), tm.open(place, models=MODELS) as store:
            store.drop(Log)
        memory.at = -1
        sent = len(memory.sent)
        with tm.open(place, models=[Other]) as store:
            store.sweep()
            is_settled = memory.ahead >= store._engine._outbox.times.settled  # type: ignore[attr-defined]
        assert is_settled or not [one for one in memory.sent[sent:] if isinstance(one, DeleteTable)]
        memory.ahead += 1000
        with tm.open(place, models=[Other]) as store:
            assert at % 2 or store.sweep() == 0
        tables = tables_of(place)
        with tm.open(place, models=MODELS) as store:
            was_dropped = tables == {"Others", "OthersByName"}
            right(store, 0 if was_dropped else 6)
            assert was_dropped or "Logs" in tables
            store.upsert_many([Log("a", n, ["info", "error"][n % 2], f"c{n}") for n in range(6)])
            right(store, 6)


async def test_under_asyncio_too(tmp_path: Path) -> None:
    async with tm.open_async(tmp_path / "store.db", models=MODELS) as store:
        await store.insert(Log("a", 1))
        await store.drop(Log)
        with pytest.raises(tm.SchemaMismatch, match="was dropped"):
            await store.get(Log.key("a", 1))
    async with tm.open_async(tmp_path / "store.db", models=MODELS) as store:
        assert await store.get(Log.key("a", 1)) is None


def test_calls_are_reported() -> None:
    events: list[tm.Event] = []
    with tm.open(":memory:", models=MODELS, observe=events.append) as store:
        store.drop(Log)
    assert [one.verb for one in events] == ["drop"]
