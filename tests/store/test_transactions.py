"""Transactions: buffered, limited, all or nothing, judged on the final state."""

from __future__ import annotations

import contextvars
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta

import tablemapper as tm

from ..classes import Other, entity, grouped
from ..stores import sound_store
from ..threads import at_once


class Order(tm.Entity, table="Orders"):
    customer: tm.Field[str]
    number: tm.Field[int]
    total: tm.Field[Decimal] = tm.field(default=Decimal(0))
    seat: tm.Field[str | None] = tm.field(default=None)
    note: tm.Field[str | None] = tm.field(default=None)
    lines: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{customer}", row=("order", "{number}"))
    by_seat = tm.Index[str](partition="{seat}", unique=True)


class Customer(tm.Entity, table="Orders"):
    customer: tm.Field[str]
    name: tm.Field[str]

    key = tm.Key[str](partition="{customer}", row="customer")


Spent = grouped("Spent", Order, "customer", orders=tm.count(), total=(Decimal, tm.sum(Order.total)))


MODELS: list[type[tm.Record]] = [Order, Customer, Other, Spent]


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[tm.Store]:
    with sound_store(path if request.param == "file" else ":memory:", models=MODELS) as opened:
        yield opened


def test_what_is_in_the_buffer_is_written_at_the_end(store: tm.Store) -> None:
    with store.transaction() as tx:
        tx.insert(Order("c", 1, Decimal(5)))
        tx.insert(Customer("c", "Ann"))
        assert not store.exists(Order.key("c", 1))
    assert store[Customer.key("c")].name == "Ann"
    assert store[Spent.key("c")] == Spent("c", 1, Decimal(5))


def test_all_that_a_transaction_wrote_has_one_etag(store: tm.Store) -> None:
    order, customer = Order("c", 1), Customer("c", "Ann")
    with store.transaction() as tx:
        tx.insert(order)
        tx.insert(customer)
        assert tm.info(order).etag is None
    assert tm.info(order).etag == tm.info(customer).etag is not None


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_block_that_raises_writes_nothing(store: tm.Store, error: type[BaseException]) -> None:
    order = Order("c", 1)
    with pytest.raises(error), store.transaction() as tx:
        tx.insert(order)
        raise error
    assert not store.exists(order.key)
    assert tm.info(order).etag is None
    store.insert(order)


def test_an_empty_transaction_is_fine(store: tm.Store) -> None:
    with store.transaction():
        pass


def test_reads_see_the_buffer_over_what_is_committed(store: tm.Store) -> None:
    store.insert_many([Order("c", 1, Decimal(1)), Order("c", 2, Decimal(2)), Order("c", 3, note="old")])
    with store.transaction() as tx:
        tx.delete(Order.key("c", 1))
        tx.merge(Order.key("c", 2), Order.total.add(Decimal(5)))
        tx.upsert(Order("c", 3, Decimal(3)), merge=True)
        tx.insert(Order("c", 4))
        assert tx.get(Order.key("c", 1)) is None
        with pytest.raises(tm.EntityNotFound):
            tx[Order.key("c", 1)]
        assert tx[Order.key("c", 2)].total == 7
        assert (tx[Order.key("c", 3)].total, tx[Order.key("c", 3)].note) == (3, "old")
        assert tx[Order.key("c", 4)] == Order("c", 4)
        assert tx.exists(Order.key("c", 4))
        assert store[Order.key("c", 2)].total == 2
        assert not tx.exists(Order.key("c", 5))
        assert store[Order.key("c", 2)].total == 2


def test_the_operation_that_failed_is_named(store: tm.Store) -> None:
    store.insert(Order("c", 2))
    orders = [Order("c", number) for number in range(5)]
    named = re.escape("insert Order.key('c', 2)")
    with pytest.raises(tm.EntityExists, match=named) as caught, store.transaction() as tx:
        for order in orders:
            tx.insert(order)
    assert caught.value.key == Order.key("c", 2)[1:]
    assert {tm.info(order).etag for order in orders} == {None}
    assert store.check().entities == 1


@pytest.mark.parametrize("verb", ["delete", "replace"])
@pytest.mark.parametrize("error", [tm.EntityNotFound, tm.PreconditionFailed])
def test_of_several_entities_the_one_that_is_gone_or_changed_is_named(
    store: tm.Store, verb: str, error: type[tm.TableMapperError]
) -> None:
    orders = [Order("c", number) for number in range(5)]
    store.insert_many(orders)
    if error is tm.EntityNotFound:
        store.delete(Order.key("c", 3))
    else:
        store.merge(Order.key("c", 3), note="x")
    left = list(store.query(Order).where(Order.customer == "c"))
    with pytest.raises(error) as caught, store.transaction() as tx:
        for order in orders:
            getattr(tx, verb)(order)
    assert caught.value.key == orders[3].key[1:]  # type: ignore[attr-defined]
    assert list(store.query(Order).where(Order.customer == "c")) == left


def test_a_failed_transaction_leaves_etags_alone(store: tm.Store) -> None:
    first, second = Order("c", 1), Order("c", 2)
    store.insert_many([first, second])
    before = tm.info(first)
    store.merge(Order.key("c", 2), note="x")
    with pytest.raises(tm.PreconditionFailed), store.transaction() as tx:
        tx.replace(first)
        tx.replace(second)
    assert tm.info(first) == before
    store.replace(first)


@pytest.mark.needs("across_partitions")
def test_each_entity_is_in_a_transaction_once(store: tm.Store) -> None:
    key = Order.key("c", 1)
    for again in (lambda tx: tx.merge(key, note="x"), lambda tx: tx.delete(key)):
        for across in (False, True):
            with pytest.raises(tm.InvalidTransaction, match="once"), store.transaction(across_partitions=across) as tx:
                tx.insert(Order("c", 1))
                again(tx)
    assert not store.exists(key)


@pytest.mark.needs("across_partitions")
@pytest.mark.parametrize("other", [Order("d", 1), Other("c")])
def test_a_group_transaction_is_of_one_table_and_partition(store: tm.Store, other: Any) -> None:
    with pytest.raises(tm.InvalidTransaction, match="across_partitions"), store.transaction() as tx:
        tx.insert(Order("c", 1))
        tx.insert(other)
    assert store.check().entities == 0
    with store.transaction(across_partitions=True) as tx:
        tx.insert(Order("c", 1))
        tx.insert(other)
    assert store.check().entities == 2


@pytest.mark.needs("across_partitions")
def test_a_group_transaction_has_at_most_100_operations(store: tm.Store) -> None:
    with store.transaction() as tx:
        for number in range(100):
            tx.insert(Order("c", number))
        with pytest.raises(tm.InvalidTransaction, match="100"):
            tx.insert(Order("c", 100))
    assert store.check().entities == 100
    with store.transaction(across_partitions=True) as tx:
        for number in range(101):
            tx.delete(Order.key("c", number)) if number < 100 else tx.insert(Order("c", number))
    assert store.check().entities == 1


@pytest.mark.needs("across_partitions")
def test_a_group_transaction_has_at_most_4_mib(store: tm.Store) -> None:
    with pytest.raises(tm.EntityTooLarge, match="transaction"), store.transaction() as tx:
        for number in range(100):
            tx.insert(Order("c", number, note="x" * 30_000, seat=None))
    assert store.check().entities == 0
    with store.transaction(across_partitions=True) as tx:
        for number in range(100):
            tx.insert(Order("c", number, note="x" * 30_000))
    assert store.check().entities == 100


@pytest.mark.needs("across_partitions")
def test_rows_that_are_maintained_count_where_azure_would_count_them(path: Path) -> None:
    with tm.open(path, models=MODELS, limits="azure") as store:
        with pytest.raises(tm.InvalidTransaction, match="51 rows of indexes and aggregates"), store.transaction() as tx:
            for number in range(50):  # a row of the index each, and the group
                tx.insert(Order("c", number, seat=f"s{number}"))
        assert store.check().entities == 0
        with store.transaction() as tx:
            for number in range(49):
                tx.insert(Order("c", number, seat=f"s{number}"))
        with store.transaction(across_partitions=True) as tx:
            for number in range(49, 109):
                tx.insert(Order("c", number, seat=f"s{number}"))
        assert store.check().entities == 109


def test_unique_values_can_go_round_in_a_circle(store: tm.Store) -> None:
    store.insert_many(Order("c", n, seat=str(n)) for n in range(5))
    with store.transaction() as tx:
        for n in range(4):
            tx.merge(Order.key("c", n), seat=str(n + 1))
        tx.delete(Order.key("c", 4))
        tx.insert(Order("c", 9, seat="0"))


def test_two_entities_of_a_transaction_can_not_share_a_unique_value(store: tm.Store) -> None:
    with pytest.raises(tm.UniqueViolation) as caught, store.transaction() as tx:
        tx.insert(Order("c", 1, seat="A"))
        tx.insert(Order("c", 2, seat="A"))
    assert {caught.value.key, caught.value.holder} == {Order.key("c", n)[1:] for n in (1, 2)}
    assert store.check().entities == 0


def test_a_transaction_is_used_inside_its_block(store: tm.Store) -> None:
    tx = store.transaction()
    with pytest.raises(tm.InvalidTransaction, match="inside its with block"):
        tx.insert(Order("c", 1))
    with tx:
        pass
    with pytest.raises(tm.InvalidTransaction, match="is over"):
        tx.insert(Order("c", 1))
    with pytest.raises(tm.InvalidTransaction, match="used once"), tx:
        pass


def test_a_transaction_belongs_to_one_thread(store: tm.Store) -> None:
    with store.transaction() as tx, pytest.raises(tm.InvalidTransaction):
        at_once(lambda: tx.insert(Order("c", 1)))
    assert store.check().entities == 0


def test_no_lock_is_held_while_the_block_runs(store: tm.Store) -> None:
    with store.transaction() as tx:
        tx.insert(Order("c", 1))
        at_once(lambda: store.insert(Order("c", 2)))
    assert store[Spent.key("c")].orders == 2


WRITES: list[Any] = [
    lambda s: s.insert(Order("c", 2)),
    lambda s: s.replace(s[Order.key("c", 1)]),
    lambda s: s.merge(Order.key("c", 1), note="x"),
    lambda s: s.upsert(Order("c", 2)),
    lambda s: s.delete(Order.key("c", 1)),
    lambda s: s.update(Order.key("c", 1), lambda order: order.replace(note="x")),
    lambda s: s.move(s[Order.key("c", 1)], Order.key("c", 2)),
    lambda s: s.insert_many([Order("c", 2)]),
    pytest.param(
        lambda s: s.insert_many([Order("c", 2)], atomic=True), marks=pytest.mark.needs("all_or_none_load"), id="atomic"
    ),
    lambda s: s.upsert_many([Order("c", 2)]),
    lambda s: s.delete_many([Order.key("c", 1)]),
    lambda s: s.query(Order).where(Order.customer == "c").update(note="x"),
    lambda s: s.query(Order).where(Order.customer == "c").delete(),
    lambda s: s.transaction().__enter__(),
]


@pytest.mark.parametrize("write", WRITES)
def test_the_store_does_not_write_beside_its_transaction(store: tm.Store, write: Callable[[tm.Store], Any]) -> None:
    store.insert(Order("c", 1))
    with store.transaction() as tx:
        with pytest.raises(tm.InvalidTransaction, match=r"tx\.insert"):
            write(store)
        tx.insert(Order("c", 3))
    assert [order.number for order in store.query(Order).where(Order.customer == "c")] == [1, 3]
    write(store)


def test_a_verb_beside_a_transaction_is_refused_by_its_name_before_it_calls_anything(store: tm.Store) -> None:
    store.insert(order := Order("c", 1))
    with store.transaction():
        with pytest.raises(tm.InvalidTransaction, match=r"^update: "):
            store.update(order.key, lambda _: pytest.fail("it was called"))
        with pytest.raises(tm.InvalidTransaction, match=r"^move: "):
            store.move(order, Order.key("c", 2))


def test_the_store_reads_beside_its_transaction(store: tm.Store) -> None:
    store.insert(Order("c", 1))
    with store.transaction() as tx:
        tx.insert(Order("c", 2))
        assert store[Order.key("c", 1)] == Order("c", 1)
        assert store.query(Order).where(Order.customer == "c").count() == 1
        assert store.check().ok


def test_another_store_writes_inside_of_a_transaction(store: tm.Store) -> None:
    with tm.open(":memory:", models=MODELS) as other, store.transaction() as tx:
        other.insert(Order("c", 1))
        with other.transaction() as inner:
            inner.insert(Order("c", 2))
        tx.insert(Order("c", 3))
    assert store[Spent.key("c")].orders == 1


def test_a_transaction_that_fails_lets_the_store_write_again(store: tm.Store) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction():
        raise ZeroDivisionError
    store.insert(Order("c", 1))


def test_a_block_that_ends_in_another_context_lets_the_store_write_again(store: tm.Store) -> None:
    tx = store.transaction()
    tx.__enter__()
    contextvars.Context().run(tx.__exit__, None, None, None)
    store.insert(Order("c", 1))


@pytest.mark.parametrize(
    "call",
    [
        lambda tx: tx.insert(Spent("c", 1, Decimal(1))),
        lambda tx: tx.insert("order"),
        lambda tx: tx.merge(Order.key("c", 1), nothing=1),
        lambda tx: tx.merge(Order.key("c", 1)),
        lambda tx: tx.delete("order"),
        lambda tx: tx.replace(Order("c", 1)),
    ],
)
def test_what_can_be_judged_at_once_is_refused_at_the_call(store: tm.Store, call: Callable[[Any], None]) -> None:
    with store.transaction() as tx:
        tx.insert(Order("c", 9))
        with pytest.raises((tm.InvalidEntity, tm.PreconditionFailed)):
            call(tx)
    assert store.exists(Order.key("c", 9)), "the block caught it, and what is valid is written"


def test_an_entity_that_changes_after_the_call_is_stored_as_it_was_then(store: tm.Store) -> None:
    order = Order("c", 1, note="then", lines=["a"])
    with store.transaction() as tx:
        tx.insert(order)
        order.note = "later"
        order.lines.append("b")
    assert store[Order.key("c", 1)].note == "then"
    assert store[Order.key("c", 1)].lines == ["a"]


def _lost(order: Order) -> None:
    order.note = "changed"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_lost, id="assigned"),
        pytest.param(lambda order: order.lines.append("b"), id="in place"),
        pytest.param(lambda order: order.lines.append(1), id="in place, to what cannot be stored"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("read", [lambda tx, key: tx[key], lambda tx, key: tx.get(key)])
def test_an_entity_that_a_block_reads_and_changes_but_does_not_write_is_refused(
    store: tm.Store, read: Callable[[Any, Any], Order], change: Callable[[Order], object]
) -> None:
    store.insert(Order("c", 1, lines=["a"]))
    refused = (
        r"Order \('c', 'order !a1'\): (note|lines) changed in the block, but nothing writes that.*tx\.replace\(p\)"
    )
    with pytest.raises(tm.InvalidTransaction, match=refused), store.transaction() as tx:
        tx.insert(Order("c", 2))
        change(read(tx, Order.key("c", 1)))
    assert store[Order.key("c", 1)] == Order("c", 1, lines=["a"])
    assert not store.exists(Order.key("c", 2))
    store.insert(Order("c", 3))


@pytest.mark.parametrize(
    "write",
    [
        lambda tx, order: tx.replace(order), lambda tx, order: tx.upsert(order),
        lambda tx, order: tx.upsert(order, merge=True), lambda tx, order: tx.delete(order),
        lambda tx, order: tx.delete(order.key), lambda tx, order: tx.replace(order.replace(total=Decimal(3))),
        lambda tx, order: tx.merge(order.key, note=order.note), lambda tx, order: setattr(order, "note", None),
    ],
    ids=[
        "replace", "upsert", "upsert and merge", "delete", "delete by key", "a copy", "merge of the same",
        "back again",
    ],
)  # fmt: skip
def test_a_change_that_the_block_writes_or_takes_back_is_none_that_is_lost(
    store: tm.Store, write: Callable[[Any, Order], object]
) -> None:
    store.insert(Order("c", 1))
    with store.transaction() as tx:
        order = tx[Order.key("c", 1)]
        order.note = "changed"
        write(tx, order)


@pytest.mark.parametrize(
    "write",
    [
        lambda tx, order: tx.merge(order.key, total=Decimal(3)),
        lambda tx, order: tx.replace(tx[order.key]),
        lambda tx, order: tx.require(order),
    ],
    ids=["merge of another field", "another object of the same entity", "require"],
)
def test_a_change_that_another_write_of_the_entity_would_lose_is_refused(
    store: tm.Store, write: Callable[[Any, Order], object]
) -> None:
    store.insert(Order("c", 1))
    with pytest.raises(tm.InvalidTransaction, match="note changed in the block"), store.transaction() as tx:
        order = tx[Order.key("c", 1)]
        order.note = "changed"
        write(tx, order)
    assert store[Order.key("c", 1)] == Order("c", 1)


def test_a_change_of_what_was_read_out_of_the_buffer_is_refused(store: tm.Store) -> None:
    refused = "note changed in the block, but nothing writes that, so nothing was written: insert Order.key.* does not write that"
    with pytest.raises(tm.InvalidTransaction, match=refused), store.transaction() as tx:
        tx.insert(Order("c", 1))
        tx[Order.key("c", 1)].note = "changed"
    assert not store.exists(Order.key("c", 1))


def test_a_block_that_fails_says_why_and_nothing_of_what_it_changed(store: tm.Store) -> None:
    store.insert(Order("c", 1))
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:
        tx[Order.key("c", 1)].note = "changed"
        raise ZeroDivisionError


def test_a_copy_and_what_a_block_only_asks_for_can_be_changed(store: tm.Store) -> None:
    store.insert(Order("c", 1, Decimal(1)))
    with store.transaction() as tx:
        assert tx.exists(Order.key("c", 1))
        assert tx[Order.key("c", 1)].replace(total=Decimal(9)).total == 9
        tx.group(Spent.key("c"))


def test_what_was_stored_before_a_constraint_came_can_be_read_in_a_block(tmp_path: Path) -> None:
    def declared(kind: Any) -> Any:
        return entity("Old", "Olds", {"a": str, "tags": kind}, tm.Key[str](partition="{a}"))

    Free, Bound = declared(list[str]), declared(Annotated[list[str], Meta(max_length=1)])
    with tm.open(tmp_path / "x.db", models=[Free]) as old:
        old.insert(Free("a", ["x", "y"]))
    with tm.open(tmp_path / "x.db", models=[Bound]) as new:
        with new.transaction() as tx:
            assert tx[Bound.key("a")].tags == ["x", "y"]
        with pytest.raises(tm.InvalidTransaction, match="tags changed"), new.transaction() as tx:
            tx[Bound.key("a")].tags.pop()


class Money:
    """Has no equality of its own: two objects of one amount differ."""

    def __init__(self, cents: int) -> None:
        self.cents = cents


def test_values_without_an_equality_of_their_own_are_compared_as_they_are_stored() -> None:
    tm.converter().register_unstructure_hook(Money, lambda money: money.cents)
    tm.converter().register_structure_hook(Money, lambda cents, _: Money(cents))
    Purse = entity("Purse", "Purses", {"owner": str, "money": Money}, tm.Key[str](partition="{owner}"))
    with tm.open(":memory:", models=[Purse]) as store:
        store.insert(Purse("ann", Money(5)))
        with store.transaction() as tx:
            assert tx[Purse.key("ann")].money.cents == 5
        assert store.update(Purse.key("ann"), lambda purse: None).money.cents == 5
        with pytest.raises(tm.InvalidTransaction, match="money changed"), store.transaction() as tx:
            tx[Purse.key("ann")].money.cents += 1


def test_returning_is_said_to_be_for_merge(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity, match="returning= is for merge"):
        store.query(Order).where(Order.customer == "c").update(note="x", returning=True)
