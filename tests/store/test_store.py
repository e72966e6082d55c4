"""The verbs of a store, one behaviour at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.store import windows as bulk

from ..engines.sqlite.table import in_child
from ..threads import at_once


class Item(tm.Entity, table="Items"):
    p: tm.Field[str]
    r: tm.Field[str]
    num: tm.Field[int | None] = tm.field(default=0)
    text: tm.Field[str] = tm.field(default="")
    badge: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, str](partition="{p}", row="{r}")
    by_num = tm.Index[int](partition="{num}")
    by_badge = tm.Index[str](partition="{badge}", unique=True)


class Total(tm.Aggregate, of=Item, table="Totals"):
    p: tm.Field[str] = tm.group_by(Item.p)
    items: tm.Field[int] = tm.count()
    total: tm.Field[int | None] = tm.sum(Item.num)

    key = tm.Key[str](partition="{p}")


MODELS: list[type[tm.Record]] = [Item, Total]


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tm.Store]:
    with tm.open(tmp_path / "x.db" if request.param == "file" else ":memory:", models=MODELS) as opened:
        yield opened
        assert opened.check().ok


# ---------------------------------------------------------------------------------------------- verbs


def test_an_entity_without_an_etag_is_not_replaced_or_deleted(store: tm.Store) -> None:
    store.insert(Item("p", "r"))
    with pytest.raises(tm.PreconditionFailed, match="if_match"):
        store.replace(Item("p", "r", 1))
    with pytest.raises(tm.PreconditionFailed, match="if_match"):
        store.delete(Item("p", "r"))
    store.replace(Item("p", "r", 1), if_match="*")
    assert store[Item.key("p", "r")].num == 1


def test_an_etag_that_is_newer_than_the_stored_one_is_said_to_be_of_another_store(store: tm.Store) -> None:
    store.insert(Item("p", "r"))
    with tm.open(":memory:", models=[Item]) as other:
        other.insert(item := Item("p", "r"))
        item = other[item.key]
    with pytest.raises(
        tm.PreconditionFailed, match="its ETag is newer than the stored one, as if it came from another"
    ):
        store.replace(item)


def test_an_etag_by_hand_is_compared(store: tm.Store) -> None:
    item = Item("p", "r")
    store.insert(item)
    etag = tm.info(item).etag
    store.merge(Item.key("p", "r"), num=1, if_match=etag)
    with pytest.raises(tm.PreconditionFailed):
        store.merge(Item.key("p", "r"), num=2, if_match=etag)
    with pytest.raises(tm.PreconditionFailed, match="it was written since it was read"):
        store.merge(Item.key("p", "r"), num=2, if_match=etag)
    looks = r'if_match= is no ETag: pass tm\.info\(entity\)\.etag, which looks like W/"\d{16}", or "\*" for any$'
    for wrong in ("nonsense", "", '"1767225600000000"', "1767225600000000"):
        with pytest.raises(tm.PreconditionFailed, match=looks):
            store.delete(Item.key("p", "r"), if_match=wrong)
    with pytest.raises(tm.PreconditionFailed, match=looks):
        store.replace(item, if_match="nonsense")
    with pytest.raises(tm.PreconditionFailed, match=looks), store.transaction() as tx:
        tx.merge(Item.key("p", "r"), num=2, if_match="nonsense")
    assert store[Item.key("p", "r")].num == 1


def test_an_entity_inserted_again_is_not_the_one_that_was_read(store: tm.Store) -> None:
    store.insert(Item("p", "r", 1))
    read = store[Item.key("p", "r")]
    store.delete(Item.key("p", "r"))
    store.insert(Item("p", "r", 1))
    with pytest.raises(tm.PreconditionFailed):
        store.replace(read)


def test_merge_adds_sets_and_removes(store: tm.Store) -> None:
    store.insert(Item("p", "r", None, "a", "b"))
    store.merge(Item.key("p", "r"), Item.num.add(5), text="t", badge=None)
    store.merge(Item.key("p", "r"), Item.num.add(5))
    assert store[Item.key("p", "r")] == Item("p", "r", 10, "t", None)


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"nmu": 1}, 'did you mean "num"'),
        ({"num": "x"}, "int"),
        ({"r": "y"}, "move"),
        ({}, "nothing"),
        ({"text": None}, "None"),
    ],
)
def test_a_wrong_merge_is_one_error_before_anything_is_written(
    store: tm.Store, values: dict[str, Any], part: str
) -> None:
    store.insert(Item("p", "r"))
    with pytest.raises(tm.InvalidEntity, match=part):
        store.merge(Item.key("p", "r"), **values)


def test_a_merge_beyond_64_bits_writes_nothing(store: tm.Store) -> None:
    store.insert(Item("p", "r", 2**63 - 1))
    with pytest.raises(tm.InvalidEntity):
        store.merge(Item.key("p", "r"), Item.num.add(1))
    assert store[Item.key("p", "r")].num == 2**63 - 1


def test_sums_of_ints_go_beyond_64_bits(store: tm.Store) -> None:
    store.insert_many(Item("p", str(n), 2**63 - 1) for n in range(4))
    assert store[Total.key("p")].total == 4 * (2**63 - 1)


def test_upsert_with_merge_leaves_what_is_none(store: tm.Store) -> None:
    store.insert(Item("p", "r", 1, "old", "b"))
    item = Item("p", "r", None, "new", None)
    store.upsert(item, merge=True)
    assert item == store[Item.key("p", "r")] == Item("p", "r", 1, "new", "b")


def test_update_starts_again_when_someone_was_faster(store: tm.Store) -> None:
    store.insert(Item("p", "r"))
    calls = 0

    def change(item: Item) -> Item:
        nonlocal calls
        calls += 1
        if calls == 1:
            store.merge(Item.key("p", "r"), Item.num.add(10))
        return item.replace(num=(item.num or 0) + 1)

    assert store.update(Item.key("p", "r"), change).num == 11
    assert calls == 2


def test_an_aggregate_is_not_written_by_users(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity, match="maintained from Item"):
        store.insert(Total("p", 1, 1))  # type: ignore[arg-type]


def test_a_class_that_was_not_opened_is_named(store: tm.Store) -> None:
    class Stranger(tm.Entity, table="Strangers"):
        a: tm.Field[str]

        key = tm.Key[str](partition="{a}")

    with pytest.raises(tm.InvalidEntity, match=r"models: Item, Total"):
        store.insert(Stranger("x"))


@pytest.mark.parametrize("key", ["x" * 513, "é" * 513, "😀" * 257])
def test_a_key_that_is_too_long_is_refused_before_any_write(store: tm.Store, key: str) -> None:
    with pytest.raises(tm.InvalidEntity, match="512"):
        store.insert(Item(key, "r"))
    with pytest.raises(tm.InvalidEntity, match="512"):
        store.get(Item.key("p", key))


def test_a_value_that_is_too_long_is_refused_before_any_write(store: tm.Store) -> None:
    store.insert(Item("p", "fits", text="x" * 32_768))
    with pytest.raises(tm.EntityTooLarge, match="text"):
        store.insert(Item("p", "r", text="x" * 32_769))
    with pytest.raises(tm.InvalidEntity, match="by_badge"):
        store.insert(Item("p", "r", badge="x" * 600))
    assert not store.exists(Item.key("p", "r"))


# ---------------------------------------------------------------------------------------------- transactions


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_of_any_kind_leaves_nothing_behind(store: tm.Store, error: type[BaseException]) -> None:
    with pytest.raises(error), store.transaction() as tx:
        tx.insert(Item("p", "r"))
        raise error
    assert not store.exists(Item.key("p", "r"))
    store.insert(Item("p", "r"))


@pytest.mark.needs("across_partitions")
def test_a_transaction_is_of_one_partition_and_each_entity_once(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidTransaction, match="partition"), store.transaction() as tx:
        tx.insert(Item("p", "r"))
        tx.insert(Item("q", "r"))
    with pytest.raises(tm.InvalidTransaction, match="once"), store.transaction(across_partitions=True) as tx:
        tx.insert(Item("p", "r"))
        tx.delete(Item.key("p", "r"))
    assert not store.exists(Item.key("p", "r"))


@pytest.mark.needs("across_partitions")
def test_a_transaction_has_at_most_100_operations(store: tm.Store) -> None:
    with store.transaction() as tx:
        for n in range(100):
            tx.insert(Item("p", str(n)))
    with pytest.raises(tm.InvalidTransaction, match="100"), store.transaction() as tx:
        for n in range(101):
            tx.upsert(Item("p", str(n), 7))
    assert store.query(Item.by_num(7)).count() == 0
    with store.transaction(across_partitions=True) as tx:
        for n in range(150):
            tx.upsert(Item(str(n % 3), str(n), 7))
    assert store.query(Item.by_num(7)).count() == 150


def test_a_transaction_has_at_most_4_mib(store: tm.Store) -> None:
    with pytest.raises(tm.EntityTooLarge, match="transaction"), store.transaction() as tx:
        for n in range(100):
            tx.insert(Item("p", str(n), text="x" * 30_000))


def test_the_error_names_the_operation_that_failed(store: tm.Store) -> None:
    store.insert(Item("p", "b"))
    with pytest.raises(tm.EntityExists, match=r"insert Item \('p', 'b'\)") as found, store.transaction() as tx:
        for row in "abc":
            tx.insert(Item("p", row))
    assert found.value.key == ("p", "b")
    assert not store.exists(Item.key("p", "a"))


def test_reads_in_a_transaction_see_its_own_writes(store: tm.Store) -> None:
    store.insert(Item("p", "a", 1))
    with store.transaction() as tx:
        tx.merge(Item.key("p", "a"), Item.num.add(1))
        tx.insert(Item("p", "b", 5))
        assert tx[Item.key("p", "a")].num == 2
        assert tx[Item.key("p", "b")].num == 5
        assert not tx.exists(Item.key("p", "c"))
        assert store[Item.key("p", "a")].num == 1
    with store.transaction() as tx:
        tx.delete(Item.key("p", "a"))
        assert tx.get(Item.key("p", "a")) is None


def test_a_transaction_is_used_once_in_its_block_and_by_its_thread(store: tm.Store) -> None:
    tx = store.transaction()
    with pytest.raises(tm.InvalidTransaction):
        tx.insert(Item("p", "r"))
    with tx, pytest.raises(tm.InvalidTransaction):
        at_once(lambda: tx.insert(Item("p", "r")))
    with pytest.raises(tm.InvalidTransaction), tx:
        pass


def test_entities_are_stamped_after_the_commit_only(store: tm.Store) -> None:
    item, other = Item("p", "a"), Item("p", "a")
    with store.transaction() as tx:
        tx.insert(item)
        assert tm.info(item).etag is None
    assert tm.info(item).etag is not None
    with pytest.raises(tm.EntityExists), store.transaction() as tx:
        tx.insert(other)
    assert tm.info(other).etag is None


@pytest.mark.needs("one_commit")
def test_limits_of_azure_count_what_is_maintained(tmp_path: Path) -> None:
    with tm.open(tmp_path / "a.db", models=MODELS, limits="azure") as store:
        with store.transaction() as tx:
            for n in range(49):
                tx.insert(Item("p", str(n), n))  # an index row each, and the group
        with pytest.raises(tm.InvalidTransaction, match="100"), store.transaction() as tx:
            for n in range(50):
                tx.insert(Item("q", str(n), n))
        assert store.get(Total.key("q")) is None


# ---------------------------------------------------------------------------------------------- many, threads


def test_a_stream_that_breaks_says_what_was_written(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_ENTITIES", 2_000)

    def items() -> Iterator[Item]:
        yield from (Item("p", f"{n:06d}") for n in range(2_500))
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError) as found:
        store.insert_many(items())
    assert found.value.__notes__ == [
        f"insert_many: {(written := store[Total.key('p')].items)} entities were written before this"
    ]
    assert 2_000 <= written < 2_500


def test_of_equal_keys_the_last_one_wins_in_upsert_many(store: tm.Store) -> None:
    items = [Item("p", "r", n) for n in range(3)]
    assert store.upsert_many(items) == 3
    assert store[Item.key("p", "r")].num == 2
    assert [tm.info(item).etag is None for item in items] == [True, True, False]


def test_a_stream_may_read_the_store_that_it_is_written_to(store: tm.Store) -> None:
    store.insert_many(Item("p", str(n), n) for n in range(10))
    store.insert_many(Item("q", item.r, item.num) for item in store.query(Item).where(Item.p == "p"))
    assert store[Total.key("q")].total == 45


@pytest.mark.file
@pytest.mark.parametrize(
    "loop",
    [
        lambda store: store.query(Item).where(Item.p == "p"),
        lambda store: store.query(Item).allow_scan(),
        lambda store: store.query(Item).where(Item.p == "p").select(Item.r),
        lambda store: store.partition(Item.p == "p"),
    ],
    ids=["query", "scan", "columns", "partition"],
)
def test_a_loop_that_was_begun_before_a_fork_ends_in_the_child_and_goes_on_in_the_parent(
    store: tm.Store, loop: Callable[[tm.Store], Any]
) -> None:
    store.insert_many(Item("p", f"{n:04}", n) for n in range(1_000))
    begun = iter(loop(store))
    next(begun)
    assert in_child(lambda: len(list(begun))) == "StoreClosed"
    assert len(list(begun)) == 999


def test_progress_is_told_to_a_function(store: tm.Store) -> None:
    told: list[tm.Progress] = []
    store.insert_many((Item("p", str(n)) for n in range(10)), progress=told.append)
    assert told[-1].done == 10


def test_threads_share_a_store(tmp_path: Path) -> None:
    with tm.open(tmp_path / "t.db", models=MODELS, durability="relaxed") as store:
        store.insert(Item("p", "r"))

        def work(name: str) -> None:
            for n in range(25):
                store.merge(Item.key("p", "r"), Item.num.add(1))
                store.update(Item.key("p", "r"), lambda item: item.replace(num=(item.num or 0) + 1))
                store.insert(Item(name, str(n)))
                assert store[Total.key(name)].items == n + 1

        at_once(*[partial(work, f"t{n}") for n in range(6)])
        assert store[Item.key("p", "r")].num == 6 * 25 * 2
        assert store.check().ok


def test_timestamps_are_of_now_and_only_grow(store: tm.Store) -> None:
    before = datetime.now(UTC)
    item = Item("p", "r")
    store.insert(item)
    first = tm.info(item).timestamp
    store.replace(item)
    second = tm.info(item).timestamp
    assert first is not None
    assert second is not None
    assert before - timedelta(seconds=1) < first < second < datetime.now(UTC) + timedelta(seconds=2)


@pytest.mark.parametrize("models", [Item, [], "Item", [Item, 3]])
def test_models_that_are_no_list_of_classes_are_refused(models: Any) -> None:
    with pytest.raises(tm.InvalidModel, match="entity class"):
        tm.open(":memory:", models=models)


def test_limits_that_are_not_known_are_refused() -> None:
    with pytest.raises(ValueError, match="azure"):
        tm.open(":memory:", models=MODELS, limits="other")  # type: ignore[arg-type]


def test_an_update_must_return_the_entity(store: tm.Store) -> None:
    store.insert(Item("p", "r"))
    with pytest.raises(tm.InvalidEntity, match="return a Item"):
        store.update(Item.key("p", "r"), lambda item: "no")  # type: ignore[arg-type, return-value]


def test_an_extremum_of_an_enum_is_a_member() -> None:
    class Priority(IntEnum):
        LOW = 1
        HIGH = 10

    class Task(tm.Entity, table="Tasks"):
        owner: tm.Field[str]
        number: tm.Field[int]
        priority: tm.Field[Priority]

        key = tm.Key[str, int](partition="{owner}", row="{number}")

    class Owner(tm.Aggregate, of=Task, table="Owners"):
        owner: tm.Field[str] = tm.group_by(Task.owner)
        most: tm.Field[Priority | None] = tm.max(Task.priority)

        key = tm.Key[str](partition="{owner}")

    with tm.open(":memory:", models=[Task, Owner]) as store:
        store.insert_many([Task("a", 1, Priority.LOW), Task("a", 2, Priority.HIGH)])
        assert store[Owner.key("a")].most is Priority.HIGH
        store.delete(Task.key("a", 2))
        assert store[Owner.key("a")].most is Priority.LOW
        assert store.check().ok


def test_a_closed_store_says_so(store: tm.Store) -> None:
    with tm.open(":memory:", models=MODELS) as other:
        other.close()
        for use in (lambda: other.get(Item.key("p", "r")), lambda: other.insert(Item("p", "r")), other.check):
            with pytest.raises(tm.StoreClosed):
                use()


@pytest.mark.file
def test_a_backup_is_a_store_of_its_own(tmp_path: Path) -> None:
    with tm.open(tmp_path / "a.db", models=MODELS) as store:
        store.insert_many(Item("p", str(n)) for n in range(100))
        store.backup(tmp_path / "b.db")
        store.delete(Item.key("p", "1"))
    with tm.open(tmp_path / "b.db", models=MODELS) as copy:
        assert copy[Total.key("p")].items == 100
        assert copy.check().ok


def test_two_types_of_a_table_and_a_group_that_refills() -> None:
    class Reading(tm.Entity, table="Readings"):
        device: tm.Field[str]
        number: tm.Field[int]
        value: tm.Field[Decimal | None] = tm.field(default=None)

        key = tm.Key[str, int](partition="{device}", row=("r", "{number}"))

    class Peak(tm.Aggregate, of=Reading, table="Readings"):
        device: tm.Field[str] = tm.group_by(Reading.device)
        readings: tm.Field[int] = tm.count()
        now: tm.Field[Decimal | None] = tm.max(Reading.value)
        ever: tm.Field[Decimal | None] = tm.max_ever(Reading.value)

        key = tm.Key[str](partition="{device}", row="peak")

    with tm.open(":memory:", models=[Reading, Peak]) as store:
        store.insert(Reading("d", 1, Decimal(9)))
        store.delete(Reading.key("d", 1))
        assert store[Peak.key("d")] == Peak("d", 0, None, Decimal(9))
        store.insert(Reading("d", 2, Decimal(3)))
        assert store[Peak.key("d")] == Peak("d", 1, Decimal(3), Decimal(9))
        assert [type(row) for row in store.partition(Reading.device == "d")] == [Peak, Reading]
        assert store.check().ok


def test_two_types_can_use_one_name_for_text_and_for_numbers() -> None:
    class Text(tm.Entity, table="Shared"):
        p: tm.Field[str]
        value: tm.Field[str] = tm.field(default="")

        key = tm.Key[str](partition="{p}", row="text")

    class Number(tm.Entity, table="Shared"):
        p: tm.Field[str]
        value: tm.Field[int] = tm.field(default=0)

        key = tm.Key[str](partition="{p}", row="number")

    with tm.open(":memory:", models=[Text, Number]) as store:
        store.insert_many([Text("a", "long " * 200), Number("a", 7)])
        store.merge(Number.key("a"), Number.value.add(1))
        assert list(store.partition(Text.p == "a")) == [Number("a", 8), Text("a", "long " * 200)]
        assert store.check().ok


@pytest.mark.needs("one_commit")
def test_a_sum_of_durations_beyond_64_bits_names_its_group() -> None:
    class Span(tm.Entity, table="Spans"):
        p: tm.Field[str]
        number: tm.Field[int]
        time: tm.Field[timedelta]

        key = tm.Key[str, int](partition="{p}", row="{number}")

    class Whole(tm.Aggregate, of=Span, table="Wholes"):
        p: tm.Field[str] = tm.group_by(Span.p)
        time: tm.Field[timedelta] = tm.sum(Span.time)

        key = tm.Key[str](partition="{p}")

    with tm.open(":memory:", models=[Span, Whole]) as store:
        store.insert(Span("a", 1, timedelta(days=100_000_000)))
        with pytest.raises(tm.InvalidEntity, match="Whole"):
            store.insert(Span("a", 2, timedelta(days=100_000_000)))
        assert not store.exists(Span.key("a", 2))
        assert store.check().ok


class Clerk(tm.Entity, table="Staff"):
    department: tm.Field[str]
    number: tm.Field[str]
    name: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, str](partition="{department}", row="{number}")


class Office(tm.Entity, table="Staff"):
    department: tm.Field[str]
    boss: tm.Field[str] = tm.field(default="Ann")

    key = tm.Key[str](partition="{department}", row="Department")


@pytest.mark.parametrize("path", [":memory:", "file"])
def test_the_key_of_a_more_special_class_is_no_key_of_the_general_one(path: str, tmp_path: Path) -> None:
    with tm.open(path if path != "file" else tmp_path / "s.db", models=[Clerk, Office]) as store:
        office = Office("Sales")
        store.insert(office)
        key = Clerk.key("Sales", "Department")
        assert store.get(key) is None
        assert not store.exists(key)
        assert store.get_many([key, Office.key("Sales")]) == [None, office]
        query = store.query(Clerk).where(Clerk.department == "Sales", Clerk.number == "Department")
        assert query.first() is None
        assert list(query) == []
        with pytest.raises(tm.EntityNotFound):
            store.delete(key)
        with pytest.raises(tm.EntityNotFound):
            store.merge(key, name="x")
        with store.transaction() as tx:
            assert tx.get(key) is None
        assert store.delete_many([]) == 0
        with pytest.raises(tm.EntityNotFound):
            store.delete_many([key])
        assert list(store.partition(Office.department == "Sales")) == [office]
        assert store.check().ok


class Mail(tm.Entity, table="Mails"):
    address: tm.Field[str]
    text: tm.Field[str] = tm.field(default="")

    key = tm.Key[str](partition="{address:fold}")


@pytest.mark.needs("all_or_none_load", when=lambda atomic: atomic)
@pytest.mark.parametrize("atomic", [None, False, True])
def test_a_key_that_is_taken_by_another_value_names_the_holder(
    atomic: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablemapper.engines.sqlite.rows.writes._CHUNK", 2)
    monkeypatch.setattr("tablemapper.engines.sqlite.rows.load._CHUNK", 2)
    with tm.open(":memory:", models=[Mail]) as store:
        store.insert(Mail("Ada@x", "x" * 500))
        with pytest.raises(tm.EntityExists, match=r"\{address:fold\} makes one key of 'ADA@x' and the stored 'Ada@x'"):
            if atomic is None:
                store.insert(Mail("ADA@x"))
            else:
                store.insert_many(map(Mail, ["a", "b", "c", "ADA@x", "d", "e"]), atomic=atomic)
        with pytest.raises(tm.EntityExists, match="Mail .*: the entity exists already; replace"):
            store.insert(Mail("Ada@x"))


@pytest.mark.needs("all_or_none_load", when=lambda atomic: atomic)
@pytest.mark.parametrize("atomic", [False, True])
def test_twins_that_come_far_apart_are_named(atomic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablemapper.engines.sqlite.rows.writes._CHUNK", 2)
    monkeypatch.setattr("tablemapper.engines.sqlite.rows.load._CHUNK", 2)
    with tm.open(":memory:", models=[Mail]) as store:
        with pytest.raises(tm.EntityExists, match="'Twin' and the stored 'twin'") as caught:
            store.insert_many(map(Mail, ["twin", "a", "b", "c", "Twin", "d", "e"]), atomic=atomic)
        assert caught.value.key == ("twin", "")
