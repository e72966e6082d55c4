"""What `merge` gives back, and what a transaction depends on beside what it writes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import grouped
from ..threads import at_once


class Account(tm.Entity, table="Accounts"):
    bank: tm.Field[str]
    number: tm.Field[int]
    balance: tm.Field[int] = tm.field(default=0)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{bank}", row="{number}")
    by_balance = tm.Index[int](partition="{balance}")


Totals = grouped("Totals", Account, "bank", balance=tm.sum(Account.balance))


ONE, TWO = Account.key("b", 1), Account.key("b", 2)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tm.Store]:
    place = ":memory:" if request.param == "memory" else tmp_path / "bank.db"
    with tm.open(place, models=[Account, Totals]) as store:
        store.insert_many([Account("b", 1, 10), Account("b", 2, 20)])
        yield store
        assert store.check().ok


# ---------------------------------------------------------------------------------------------- what merge gives back


def test_merge_returns_the_entity_as_it_is_stored(store: tm.Store) -> None:
    account = store.merge(ONE, Account.balance.add(5), tags=["new"], returning=True)
    assert account == Account("b", 1, 15, ["new"])
    assert tm.info(account) == tm.info(store[ONE])
    account.balance = 16
    store.replace(account)
    assert store.merge(ONE, balance=1) is None  # type: ignore[func-returns-value]


def test_a_merge_that_changes_nothing_returns_the_entity_too(store: tm.Store) -> None:
    assert tm.info(store.merge(ONE, balance=10, returning=True)) == tm.info(store[ONE])


def test_a_counter_gives_each_number_once(store: tm.Store) -> None:
    def count() -> list[int]:
        return [store.merge(ONE, Account.balance.add(1), returning=True).balance for _ in range(25)]

    assert sorted(chain(*at_once(*[count] * 4))) == list(range(11, 111))
    assert store.check().ok


def test_a_merge_of_what_is_not_there_returns_nothing_but_its_error(store: tm.Store) -> None:
    with pytest.raises(tm.EntityNotFound):
        store.merge(Account.key("b", 9), Account.balance.add(1), returning=True)


async def test_merge_returns_the_entity_when_it_is_awaited() -> None:
    async with tm.open_async(":memory:", models=[Account, Totals]) as store:
        await store.insert(Account("b", 1, 10))
        assert await store.merge(ONE, Account.balance.add(5), returning=True) == Account("b", 1, 15)
        assert await store.merge(ONE, Account.balance.add(5)) is None  # type: ignore[func-returns-value]


# ---------------------------------------------------------------------------------------------- what is required


@pytest.mark.needs("one_commit")
def test_a_transaction_is_written_if_what_it_read_is_as_it_was(store: tm.Store) -> None:
    one = store[ONE]
    with store.transaction() as tx:
        tx.require(one)
        tx.merge(TWO, balance=one.balance)
        assert tx[ONE] == one
    assert store[TWO].balance == 10
    assert tm.info(store[ONE]) == tm.info(one)  # it was read, not written


@pytest.mark.parametrize("how", ["merge", "delete", "delete and insert"])
def test_a_transaction_fails_if_what_it_read_was_written_since(store: tm.Store, how: str) -> None:
    one = store[ONE]
    if how == "merge":
        store.merge(ONE, balance=10)
    else:
        store.delete(ONE)
        if how != "delete":
            store.insert(Account("b", 1, 10))
    error = tm.EntityNotFound if how == "delete" else tm.PreconditionFailed
    with pytest.raises(error, match=r"require Account\.key\('b', 1\): it was (written|deleted) since it was read"), \
            store.transaction() as tx:  # fmt: skip
        tx.merge(TWO, balance=0)
        tx.require(one)
        tx.insert(Account("b", 3))
    assert store[TWO].balance == 20
    assert not store.exists(Account.key("b", 3))


def test_a_key_that_is_required_has_to_be_there(store: tm.Store) -> None:
    with store.transaction() as tx:
        tx.require(ONE)
        tx.delete(TWO)
    with pytest.raises(tm.EntityNotFound, match="require Account"), store.transaction() as tx:
        tx.insert(Account("b", 3))
        tx.require(TWO)
    assert not store.exists(Account.key("b", 3))


@pytest.mark.needs("one_commit")
def test_a_transaction_that_only_requires_writes_nothing(store: tm.Store) -> None:
    one = store[ONE]
    with store.transaction() as tx:
        tx.require(one)
        tx.require(TWO)
    assert tm.info(store[ONE]) == tm.info(one)
    store.delete(ONE)
    with pytest.raises(tm.EntityNotFound), store.transaction() as tx:
        tx.require(one)


@pytest.mark.needs("across_partitions")
def test_what_is_required_can_be_in_another_partition(store: tm.Store) -> None:
    store.insert(Account("other", 1))
    with store.transaction(across_partitions=True) as tx:
        tx.require(store[ONE])
        tx.delete(Account.key("other", 1))
    assert not store.exists(Account.key("other", 1))


def test_two_who_read_both_and_write_one_each_cannot_both_be_right(store: tm.Store) -> None:
    """Each takes the sum of both to be enough, and takes from one: only one of them may."""
    first, second = (store[ONE], store[TWO]), (store[ONE], store[TWO])

    def take(read: tuple[Account, Account], at: int) -> None:
        with store.transaction() as tx:
            tx.require(read[1 - at])
            tx.replace(read[at].replace(balance=read[at].balance - 15))

    take(first, 0)
    with pytest.raises(tm.PreconditionFailed):
        take(second, 1)
    total = store.get(Totals.key("b"))
    assert total is not None
    assert total.balance == 15


@pytest.mark.file
def test_a_transaction_depends_on_a_group_as_it_was_before_its_own_writes(store: tm.Store) -> None:
    total, late = store[Totals.key("b")], store[Totals.key("b")]
    with store.transaction(across_partitions=True) as tx:
        tx.insert(Account("b", 3, 100 - total.balance))
        tx.require(total)
    assert store[Totals.key("b")].balance == 100
    with pytest.raises(tm.PreconditionFailed, match="require Totals.*: it was written since it was read"), \
            store.transaction(across_partitions=True) as tx:  # fmt: skip
        tx.require(late)
        tx.insert(Account("b", 4, 100 - late.balance))
    assert store[Totals.key("b")].balance == 100
    store.merge(ONE, tags=["x"])  # (no value of the group changes)
    again = store[Totals.key("b")]
    store.merge(ONE, tags=["y"])
    with store.transaction(across_partitions=True) as tx:
        tx.require(again)
        tx.merge(TWO, tags=["z"])


@pytest.mark.file
def test_a_group_that_is_required_by_its_key_has_to_be_there(store: tm.Store) -> None:
    with store.transaction(across_partitions=True) as tx:
        tx.require(Totals.key("b"))
        tx.insert(Account("c", 1))
    with pytest.raises(tm.EntityNotFound, match="require Totals"), store.transaction(across_partitions=True) as tx:
        tx.insert(Account("d", 1))
        tx.require(Totals.key("d"))
    assert not store.exists(Account.key("d", 1))
    gone = store[Totals.key("c")]
    store.delete(Account.key("c", 1))
    with (
        pytest.raises(tm.EntityNotFound, match="it was deleted since"),
        store.transaction(across_partitions=True) as tx,
    ):
        tx.require(gone)


@pytest.mark.file
def test_what_is_read_of_a_group_beside_it_is_as_it_was(store: tm.Store) -> None:
    with store.transaction(across_partitions=True) as tx:
        tx.require(Totals.key("b"))
        assert tx[Totals.key("b")].balance == 30


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda tx: tx.require(Account("b", 1)), tm.PreconditionFailed, "require its key"),
        (lambda tx: tx.require(3), tm.InvalidEntity, "got 3"),
        (lambda tx: tx.require(Totals.key("b")), tm.InvalidTransaction, "is not in the table and partition"),
        (lambda tx: tx.require(Account.key("other", 1)), tm.InvalidTransaction, "is not in the table and partition"),
        (lambda tx: (tx.require(ONE), tx.merge(ONE, balance=1)), tm.InvalidTransaction, "can be in it once"),
    ],
)
def test_what_cannot_be_required_is_refused_at_the_call(store: tm.Store, ask: Any, error: Any, message: str) -> None:
    with store.transaction() as tx:
        tx.delete(TWO)
        with pytest.raises(error, match=message):
            ask(tx)


def test_what_is_required_is_no_write_of_an_event(tmp_path: Path) -> None:
    events: list[tm.Event] = []
    with tm.open(":memory:", models=[Account], observe=events.append) as store:
        store.insert(Account("b", 1))
        with store.transaction() as tx:
            tx.require(ONE)
            tx.insert(Account("b", 2))
    assert [(event.verb, event.written) for event in events] == [("insert", 1), ("transaction", 1)]


async def test_an_async_transaction_requires_too() -> None:
    async with tm.open_async(":memory:", models=[Account]) as store:
        await store.insert(Account("b", 1))
        one = await store[ONE]
        await store.merge(ONE, balance=5)
        with pytest.raises(tm.PreconditionFailed):
            async with store.transaction() as tx:
                tx.require(one)
                await tx.insert(Account("b", 2))
        assert not await store.exists(TWO)
