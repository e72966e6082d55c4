"""What a process does behind its writes, and what that spares: requests are counted, by a clock of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.cross_partition.named_partitions import NamedPartitions
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables import background
from tablemapper.engines.azure.tables.background import Background
from tablemapper.engines.azure.tables.driver import CLOCK
from tablemapper.engines.azure.tables.reserved_names import INTENTS, MARKS
from tablemapper.engines.azure.tables.service import ErrorResponse, GroupTransaction, NoResponse, RowChange
from tablemapper.schema.model import compile_schema

from ...classes import entity, grouped
from .memory import Memory
from .place import Idle

FIELDS = {"tenant": str, "id": str, "a": str, "b": (str, ""), "c": (str, "")}
KEY = tm.Key[str, str](partition="{tenant}", row="{id}")


def thing(indexes: int) -> Any:
    """Return a class with some indexes in other partitions."""
    fields = {
        name: (kind, tm.field(default=kind[1])) if isinstance(kind, tuple) else kind for name, kind in FIELDS.items()
    }
    fields |= {name: (kind[0][0], kind[1]) for name, kind in fields.items() if isinstance(kind, tuple)}
    named = {f"by_{name}": tm.Index[str, str](partition=f"{{{name}}}", row="{id}") for name in "abc"[:indexes]}
    return entity("Thing", "Things", fields, KEY, **named)


Thing = thing(1)
Kinds = grouped("Kinds", Thing, "a", things=tm.count())


class Account:
    """An account and its processes, who share a clock."""

    def __init__(self, *models: Any) -> None:
        self.now = 1_700_000_000.0
        self.memory = Memory(clock=lambda: int(self.now * 1e6))
        self.models = models
        self.fault: Callable[[Any], None] = lambda _: None

    def send(self, request: Any, *wait: float) -> Any:
        self.fault(request)
        return self.memory.send(request)

    def close(self) -> None: ...

    def open(self) -> tm.Store:
        def sleep(seconds: float) -> None:
            self.now += seconds

        schema = compile_schema(self.models)
        return tm.Store(
            AzureEngine.open(self, "here", schema, monotonic=lambda: self.now, sleep=sleep, background=Idle)
        )

    def sent(self, call: Callable[[], object]) -> list[Any]:
        before = len(self.memory.sent)
        call()
        return self.memory.sent[before:]

    def hidden(self) -> list[tuple[str, str]]:
        """Return the keys of intents, markers and names."""
        rows = [key for table in self.memory.tables.values() for key in table]
        return [key for key in rows if key[1].startswith((INTENTS[0], MARKS[0])) or key[0].startswith("work ")]


def tidy(store: tm.Store) -> float | None:
    engine: Any = store._engine
    left: float | None = engine._housekeeper.tidy()
    return left


# ------------------------------------------------------------------------------------------ requests


@pytest.mark.parametrize("indexes", range(4))
def test_an_insert_is_a_request_more_than_it_has_indexes_elsewhere(indexes: int) -> None:
    cls = thing(indexes)
    account = Account(cls)
    stores = [account.open() for _ in range(3)]
    named = indexes > 0  # (the partition, by each process once an hour)
    for number, store in enumerate(stores):
        new = lambda at, number=number: cls("t", f"{number} {at}", "x", "y", "z")  # noqa: E731
        store.get(cls.key("t", "0"))  # (and looks at the catalogue)
        assert len(account.sent(lambda: store.insert(new(0)))) == indexes + 1 + named
        for at in range(1, 4):
            assert len(account.sent(lambda at=at: store.insert(new(at)))) == indexes + 1
        account.now += 3_500
        store.get(cls.key("t", "0"))
        assert len(account.sent(lambda: store.insert(new(4)))) == indexes + 1
        account.now += 200
        store.get(cls.key("t", "0"))
        assert len(account.sent(lambda: store.insert(new(5)))) == indexes + 1 + named
    for store in stores:
        tidy(store)
        assert store.check().ok


def test_a_sweep_of_400_clean_partitions_asks_for_none_of_them() -> None:
    account = Account(Thing)
    first, second = account.open(), account.open()
    for store, name in ((first, "a"), (second, "b")):
        store.insert_many([Thing(f"{name}{number}", "1", "x") for number in range(400)])
        tidy(store)
    for seconds in (0.0, 45.0, 14.0):
        account.now += seconds
        assert len(account.sent(first.sweep)) == 1
    account.now += 2.0  # (who does not write somewhere any more takes its name away)
    assert len(account.sent(lambda: tidy(second))) <= 10
    assert len(account.sent(first.sweep)) <= 10
    account.now += 1_000
    assert len(account.sent(first.sweep)) <= 10
    first.close()
    assert account.hidden() == []


def test_the_intents_of_400_partitions_are_deleted_by_who_sweeps_and_by_who_closes() -> None:
    account = Account(Thing)
    with account.open() as store:
        store.insert_many([Thing(f"{number}", "1", "x") for number in range(20)])
        assert len(account.hidden()) == 40
        store.sweep()
        assert len(account.hidden()) == 20
        store.insert(Thing("5", "2", "x"))
        assert len(account.hidden()) == 21
    assert account.hidden() == []


def test_an_intent_goes_with_the_next_transaction_of_its_partition() -> None:
    account = Account(Thing, Kinds)
    store = account.open()
    for number in range(5):
        (*_, commit), count = [
            one for one in account.sent(lambda number=number: store.insert(Thing("t", f"{number}", "x"))) if getattr(one, "table", "") == "Things"
        ], len([key for key in account.hidden() if key[1].startswith(INTENTS[0])])  # fmt: skip
        assert [one.kind for one in commit.changes] == ["insert", "insert"] + ["delete"] * (number > 0)
        assert count == 1
    assert store[Kinds.key("x")].things == 5
    store.insert(Thing("u", "1", "x"))  # (in another partition)
    assert len([key for key in account.hidden() if key[1].startswith(INTENTS[0])]) == 2
    tidy(store)
    assert not [key for key in account.hidden() if key[1].startswith(INTENTS[0])]


def test_an_intent_that_who_sweeps_has_deleted_keeps_nobody_from_writing() -> None:
    account = Account(Thing, Kinds)
    store = account.open()
    store.insert(Thing("t", "1", "x"))
    (intent,) = [key for key in account.memory.tables["Things"] if key[1].startswith(INTENTS[0])]
    account.memory.send(GroupTransaction("Things", "t", (RowChange("delete", intent[1], {}, "*"),)))
    store.insert(Thing("t", "2", "x"))
    store.insert(Thing("t", "3", "x"))
    assert store[Kinds.key("x")].things == 3
    account.now += 1_000  # (as long as nobody knows who deleted it, others look at the partition, too)
    tidy(store)
    store.close()
    assert not [key for key in account.hidden() if not key[1].startswith(MARKS[0])]
    assert account.open().check().ok


@pytest.mark.parametrize("way", ["the answer", "the request"])
def test_what_earlier_writes_left_goes_once_whatever_is_lost(way: str) -> None:
    account = Account(Thing, Kinds)
    store = account.open()
    store.insert(Thing("t", "1", "x"))
    lost = [True]

    def fault(request: Any) -> None:
        if isinstance(request, GroupTransaction) and request.table == "Things" and lost:
            lost.clear()
            if way == "the answer":
                account.memory.send(request)
            raise NoResponse(way)

    account.fault = fault
    store.insert(Thing("t", "2", "x"))
    store.insert(Thing("t", "3", "x"))
    assert store[Kinds.key("x")].things == 3
    for _ in range(3):
        account.now += 10_000
        store.sweep(full=True)
    store.close()
    assert account.hidden() == []
    assert account.open().check().ok


def test_no_row_is_written_by_all() -> None:
    """The time of the service comes with what it answers."""
    account = Account(Thing, Kinds)
    stores = [account.open() for _ in range(3)]
    before = len(account.memory.sent)
    for store in stores:
        store.insert(Thing("t", f"{id(store)}", "x"))
        account.now += 100
        tidy(store)
        store.sweep(full=True)
        store.close()
    assert not [one for one in account.memory.sent[before:] if getattr(one, "partition", "") == CLOCK]
    names = [one for one in account.memory.sent[before:] if getattr(one, "partition", "").startswith("work ")]
    assert len({one.partition for one in names}) == len(stores)


# ------------------------------------------------------------------------------------------ what was left


def test_who_could_not_finish_a_write_does_it_by_itself() -> None:
    account = Account(Thing, Kinds)
    store = account.open()

    def refuse(request: Any) -> None:
        if isinstance(request, GroupTransaction) and request.table == "Kinds":
            raise NoResponse("busy", None, 503)

    account.fault = refuse
    store.insert(Thing("t", "1", "x"))
    account.fault = lambda _: None
    assert store.get(Kinds.key("x")) is None
    while (left := tidy(store)) is not None and store.get(Kinds.key("x")) is None:
        account.now += max(left, 1.0)
    assert store[Kinds.key("x")].things == 1
    assert account.now < 1_700_000_000 + 200
    rounds = 0
    while (left := tidy(store)) is not None:  # (it stays while requests may be under way; then its name goes, too)
        account.now += max(left, 1.0)
        rounds += 1
    assert rounds < 20
    assert [key for key in account.hidden() if not key[1].startswith(MARKS[0])] == []


def test_a_name_stays_while_a_request_may_be_under_way() -> None:
    """The transaction arrives long after its writer was told that nobody knows."""
    account = Account(Thing)
    store, late = account.open(), list[Any]()

    def lose(request: Any) -> None:
        if isinstance(request, GroupTransaction) and request.table == "Things":
            late.append(request)
            raise NoResponse("the request")

    account.fault = lose
    with pytest.raises(tm.OutcomeUnknown):
        store.insert(Thing("t", "1", "x"))
    account.fault = lambda _: None
    for _ in range(20):
        account.now += 20
        tidy(store)
    account.memory.send(late[0])
    assert store.query(Thing.by_a("x")).first() is None
    other = account.open()
    account.now += 100
    assert other.sweep() == 1
    assert store.query(Thing.by_a("x")).first() == Thing("t", "1", "x")


def test_a_name_is_taken_away_by_nobody_who_did_not_write_it() -> None:
    account = Account(Thing)
    store, other = account.open(), account.open()
    store.insert(Thing("t", "1", "x"))
    other.insert(Thing("t", "2", "x"))
    other.close()
    assert [key[0].startswith("work ") for key in account.hidden()].count(True) == 1
    for seconds in (1, 61):
        account.now += seconds
        tidy(store)
    assert account.hidden() == []
    assert len(account.sent(lambda: store.insert(Thing("t", "3", "x")))) == 4  # (and a look at the catalogue)


def test_a_close_without_answers_ends() -> None:
    account = Account(Thing)
    store = account.open()
    store.insert(Thing("t", "1", "x"))

    def refuse(request: Any) -> None:
        raise NoResponse("cut") if request.table == "Things" else ErrorResponse(403, "AuthorizationFailure")

    account.fault, began = refuse, account.now
    store.close()
    assert account.now - began <= 6
    account.fault = lambda _: None
    account.now += 100
    assert account.open().sweep() == 1


def test_without_a_thread_a_write_leaves_no_intent() -> None:
    account = Account(Thing, Kinds)
    engine = AzureEngine.open(account, "here", compile_schema(account.models))
    store = tm.Store(engine)
    store.insert(Thing("t", "1", "x"))
    store.insert_many([Thing(f"t{number}", "1", "x") for number in range(3)])
    assert not [key for key in account.hidden() if key[1].startswith(INTENTS[0])]


# ------------------------------------------------------------------------------------------ the thread


def test_a_thread_does_what_is_due_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_SOON", 0.001)
    ran, again = list[str](), [0.0, 0.0, None, None]
    done = threading.Event()

    def work() -> float | None:
        ran.append(threading.current_thread().name)
        left = again.pop(0)
        if left is None:
            done.set()
        return left

    thread = Background(work)
    for count in (3, 4):
        thread.wake()
        assert done.wait(10)
        while thread._thread is not None and thread._thread.is_alive():
            pass
        assert len(ran) == count
        done.clear()
    assert set(ran) == {"tablemapper-background"}
    thread.stop()
    thread.wake()
    assert thread._thread is None


def test_a_thread_that_waits_is_stopped_at_once() -> None:
    thread = Background(lambda: 1e6)
    thread.wake()
    thread.stop()
    assert thread._thread is None or not thread._thread.is_alive()


def test_a_name_stays_while_an_intent_may_be_left_there() -> None:
    names, place = NamedPartitions(600.0, 60.0), ("Things", "a")
    name = names.begin(place, "op", 0.0)
    assert name is not None
    names.named(place, "op", 0.0, '"1"')
    assert list(names.withdrawn(10_000.0, everything=True)) == []
    names.forget(place, ["op"])
    assert list(names.withdrawn(10_000.0, everything=True)) == [(name, '"1"')]
