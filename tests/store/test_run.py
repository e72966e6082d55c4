"""Transactions that begin again after a lost race, and merges that insert or return in a transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.store import store as store_module
from tablemapper.verbs import lost_races

from ..stores import sound_store
from ..threads import at_once


class Counter(tm.Entity, table="Invoices"):
    shop: tm.Field[str]
    last: tm.Field[int] = tm.field(default=0)
    note: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str](partition="{shop}", row="counter")


class Invoice(tm.Entity, table="Invoices"):
    shop: tm.Field[str]
    number: tm.Field[int]
    code: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{shop}", row=("invoice", "{number}"))
    by_code = tm.Index[str](partition="{code}", unique=True)


MODELS = [Counter, Invoice]
KEY = Counter.key("Oslo")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tm.Store]:
    monkeypatch.setattr(store_module.time, "sleep", lambda seconds: None)
    with sound_store(tmp_path / "invoices.db", models=MODELS) as opened:
        yield opened


def invoice(tx: tm.Transaction) -> int:
    number = tx.merge(KEY, Counter.last.add(1), or_insert=Counter("Oslo"), returning=True).last
    tx.insert(Invoice("Oslo", number))
    return number


def test_numbers_of_threads_have_no_gap(store: tm.Store) -> None:
    numbers: list[int] = []
    threads = [
        threading.Thread(target=lambda: numbers.extend([store.run(invoice) for _ in range(20)])) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == [*range(1, 61)]
    assert [found.number for found in store.query(Invoice).where(Invoice.shop == "Oslo")] == [*range(1, 61)]
    assert store[KEY].last == 60


def test_numbers_of_async_stores_have_no_gap(tmp_path: Path) -> None:
    async def task(path: Path) -> list[int]:
        async def numbered(tx: tm.AsyncTransaction) -> int:
            counter = await tx.merge(KEY, Counter.last.add(1), or_insert=Counter("Oslo"), returning=True)
            tx.insert(Invoice("Oslo", counter.last))
            return counter.last

        async with tm.open_async(path, models=MODELS) as store:
            numbers = [await store.run(numbered) for _ in range(5)]
            await store.run(lambda tx: tx.merge(KEY, note="done"))
            return numbers

    async def tasks() -> list[list[int]]:
        path = tmp_path / "invoices.db"
        tm.open(path, models=MODELS).close()
        return await asyncio.gather(*[task(path) for _ in range(3)])

    assert sorted(chain.from_iterable(asyncio.run(tasks()))) == [*range(1, 16)]


Race = tuple[Callable[[tm.Transaction], Any], Callable[[tm.Store], Any]]
RACES: dict[str, Race] = {
    "PreconditionFailed": (lambda tx: tx.replace(tx[KEY].replace(last=5)), lambda store: store.merge(KEY, last=2)),
    "EntityExists": (
        lambda tx: None if tx.exists(Invoice.key("Oslo", 1)) else tx.insert(Invoice("Oslo", 1)),
        lambda store: store.insert(Invoice("Oslo", 1)),
    ),
    "EntityNotFound": (
        lambda tx: tx.merge(KEY, last=5) if tx.exists(KEY) else tx.insert(Counter("Oslo", 5)),
        lambda store: store.delete(KEY),
    ),
    "UniqueViolation": (
        lambda tx: tx.insert(Invoice("Oslo", 2, "x" if tx[KEY].last == 0 else "y")),
        lambda store: (store.insert(Invoice("Rome", 1, "x")), store.merge(KEY, last=1)),
    ),
}


@pytest.mark.parametrize("race", RACES)
def test_each_race_that_is_lost_is_run_again(store: tm.Store, race: str) -> None:
    work, other = RACES[race]
    store.insert(Counter("Oslo"))
    calls = 0

    def function(tx: tm.Transaction) -> int:
        nonlocal calls
        calls += 1
        work(tx)
        if calls == 1:
            at_once(lambda: other(store))
        return calls

    assert store.run(function) == 2


def test_a_plain_duplicate_is_raised_after_two_calls(store: tm.Store) -> None:
    store.insert_many([Counter("Oslo"), Invoice("Oslo", 1, "x")])
    cases: list[tuple[type[Exception], Callable[[tm.Transaction], Any]]] = [
        (tm.EntityExists, lambda tx: tx.insert(Invoice("Oslo", 1))),
        (tm.EntityNotFound, lambda tx: tx.delete(Invoice.key("Oslo", 9))),
        (tm.UniqueViolation, lambda tx: tx.insert(Invoice("Oslo", 2, "x"))),
    ]
    for error, work in cases:
        calls: list[object] = []
        with pytest.raises(error):
            store.run(lambda tx, calls=calls, work=work: (calls.append(tx.get(KEY)), work(tx)))  # type: ignore[misc]
        assert len(calls) == 2, error


def test_a_hundred_lost_races_end_in_the_last_error(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(lost_races.random, "uniform", lambda low, high: high)
    monkeypatch.setattr(store_module.time, "sleep", waits.append)
    store.insert(Counter("Oslo"))
    calls = 0

    def function(tx: tm.Transaction) -> None:
        nonlocal calls
        calls += 1
        counter = tx[KEY]
        at_once(lambda: store.merge(KEY, Counter.last.add(1)))
        tx.replace(counter.replace(note="mine"))

    with pytest.raises(tm.PreconditionFailed) as caught:
        store.run(function)
    assert calls == 100
    assert caught.value.__notes__ == ["run: the function was tried 100 times"]
    assert waits[:4] == [0.0, 0.004, 0.008, 0.016]
    assert max(waits) == 0.1
    assert store[KEY].note is None


def test_what_the_function_raises_ends_the_call(store: tm.Store) -> None:
    calls: list[tm.Transaction] = []

    def function(tx: tm.Transaction) -> None:
        calls.append(tx)
        tx.insert(Counter("Oslo"))
        tx.replace(Counter("Rome"))  # (it was never read: that is no race)

    with pytest.raises(tm.PreconditionFailed, match="no ETag"):
        store.run(function)
    assert len(calls) == 1
    assert not store.exists(KEY)
    store.insert(Counter("Oslo"))  # (the block is over)


def test_what_is_no_race_is_not_run_again(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def apply(operations: Any, **options: Any) -> None:
        calls.append(operations)
        raise tm.OutcomeUnknown("the answer was lost")

    monkeypatch.setattr(store._engine, "apply", apply)
    with pytest.raises(tm.OutcomeUnknown):
        store.run(lambda tx: tx.insert(Counter("Oslo")))
    assert len(calls) == 1


def test_a_call_that_cannot_be_run_writes_nothing(store: tm.Store) -> None:
    async def coroutine(tx: tm.Transaction) -> None:
        tx.insert(Counter("Oslo"))

    for function, fault in (
        (5, "expected a function of a transaction, got 5"),
        (store.transaction(), "expected a function of a transaction, got <Transaction"),
        (coroutine, "the function returned a coroutine; use tm.open_async"),
        (lambda tx: store.run(lambda inner: None), "inside another one of the same store"),
        (lambda tx: (tx.insert(Counter("Oslo")), setattr(tx[KEY], "last", 3)), "last changed in the block"),
    ):
        with pytest.raises(tm.InvalidTransaction, match=fault):
            store.run(function)  # type: ignore[arg-type]
    assert not store.exists(KEY)


async def test_an_async_run_that_is_cancelled_while_it_waits_holds_nothing(path: Path) -> None:
    async with tm.open_async(path, models=MODELS) as store:
        await store.insert(Counter("Oslo"))
        waiting = asyncio.Event()

        async def sleep(seconds: float) -> None:
            waiting.set()
            await asyncio.Event().wait()

        store._workers.sleep = sleep  # type: ignore[method-assign, assignment]

        def function(tx: tm.AsyncTransaction) -> None:
            tx.insert(Counter("Oslo"))

        task = asyncio.create_task(store.run(function))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(tm.InvalidTransaction, match="got 5"):
            await store.run(5)  # type: ignore[arg-type]
        async with store.transaction() as tx:
            tx.merge(KEY, last=1)
        assert (await store[KEY]).last == 1


def test_each_attempt_is_reported_as_a_transaction(path: Path) -> None:
    events: list[tm.Event] = []
    with tm.open(path, models=MODELS, observe=events.append) as store:
        store.insert(Counter("Oslo"))
        events.clear()
        with pytest.raises(tm.EntityExists):
            store.run(lambda tx: tx.insert(Counter("Oslo")))
    assert [(event.verb, event.outcome) for event in events] == [("transaction", "EntityExists")] * 2


# ------------------------------------------------------------------------------------------ merges


def test_a_merge_inserts_what_is_missing_with_the_assignments(store: tm.Store) -> None:
    missing = Counter("Oslo", note="new")
    assert [store.merge(KEY, Counter.last.add(1), or_insert=missing, returning=True).last for _ in range(3)] == [
        1,
        2,
        3,
    ]
    assert (missing.last, tm.info(missing).etag) == (0, None)
    store.merge(KEY, last=7, or_insert=Counter("Oslo", note="newer"))
    assert store[KEY] == Counter("Oslo", 7, "new")
    with store.transaction() as tx:
        tx.merge(Counter.key("Rome"), Counter.last.add(2), or_insert=Counter("Rome", 1))
        assert tx[Counter.key("Rome")].last == 3
    assert store[Counter.key("Rome")].last == 3


def test_where_the_entity_is_there_what_would_be_inserted_is_not_looked_at(store: tm.Store) -> None:
    full = Counter("Oslo", 2**63 - 1)
    assert store.merge(KEY, last=7, or_insert=full, returning=True).last == 7
    assert store.merge(KEY, Counter.last.add(1), or_insert=full, returning=True).last == 8
    with store.transaction() as tx:
        tx.merge(KEY, Counter.last.add(1), or_insert=full)
    assert store.run(lambda tx: tx.merge(KEY, Counter.last.add(1), or_insert=full, returning=True)).last == 10
    store.delete(KEY)
    for write in (
        lambda: store.merge(KEY, Counter.last.add(1), or_insert=full),
        lambda: store.run(lambda tx: tx.merge(KEY, Counter.last.add(1), or_insert=full)),
        lambda: store.run(lambda tx: tx.merge(KEY, Counter.last.add(1), or_insert=full, returning=True)),
    ):
        with pytest.raises(tm.InvalidEntity, match="last"):
            write()
        assert not store.exists(KEY)


def test_a_change_in_a_block_is_not_written_by_what_would_be_inserted(store: tm.Store) -> None:
    store.insert(Counter("Oslo"))
    with pytest.raises(tm.InvalidTransaction, match="note changed in the block"), store.transaction() as tx:
        tx[KEY].note = "x"
        tx.merge(KEY, Counter.last.add(1), or_insert=Counter("Oslo", note="x"))
    assert store[KEY] == Counter("Oslo")


def test_or_insert_that_does_not_fit_is_refused(store: tm.Store) -> None:
    key = r"expected a Counter with the key \('Oslo', 'counter'\), got "
    for entity, fault in ((Counter("Rome"), key), (Invoice("Oslo", 1), key), (5, key)):
        with pytest.raises(tm.InvalidEntity, match=fault):
            store.merge(KEY, last=1, or_insert=entity)  # type: ignore[type-var, misc]
    with pytest.raises(tm.InvalidEntity, match=r"if_match= for one that is there; give one"):
        store.merge(KEY, last=1, or_insert=Counter("Oslo"), if_match="*")
    assert not store.exists(KEY)


def test_what_a_merge_returns_in_a_transaction_is_what_is_stored(store: tm.Store) -> None:
    with store.transaction() as tx:
        first = tx.merge(KEY, Counter.last.add(1), or_insert=Counter("Oslo"), returning=True)
        assert tm.info(first).etag is None
    assert tm.info(first).etag == tm.info(store[KEY]).etag
    with store.transaction() as tx:
        second = tx.merge(KEY, Counter.last.add(1), returning=True)
    assert (first.last, second.last, store[KEY].last) == (1, 2, 2)
    second.note = "later"
    store.replace(second)  # (it has the ETag of what was stored)


def test_what_a_merge_returned_holds_or_the_transaction_fails(store: tm.Store) -> None:
    for error, missing in ((tm.EntityExists, True), (tm.PreconditionFailed, False)):
        with pytest.raises(error), store.transaction() as tx:
            tx.merge(KEY, Counter.last.add(1), or_insert=Counter("Oslo"), returning=True)
            at_once(lambda: store.upsert(Counter("Oslo", 50)))
        assert store[KEY].last == 50, missing
    with pytest.raises(tm.EntityNotFound), store.transaction() as tx:
        tx.merge(Counter.key("Rome"), last=1, returning=True)
    with pytest.raises(tm.PreconditionFailed), store.transaction() as tx:
        tx.merge(KEY, last=1, returning=True, if_match="W/\"datetime'2020-01-01T00%3A00%3A00.0000000Z'\"")
    with pytest.raises(tm.InvalidTransaction, match="note changed in the block"), store.transaction() as tx:
        tx.merge(KEY, last=1, returning=True).note = "lost"
    assert store[KEY] == Counter("Oslo", 50)
