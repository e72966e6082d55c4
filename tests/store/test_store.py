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

from ..classes import Other, Span, Whole, entity, grouped
from ..forks import in_child
from ..stores import sound_store
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


Total = grouped("Total", Item, "p", "Totals", items=tm.count(), total=(int | None, tm.sum(Item.num)))


MODELS: list[type[tm.Record]] = [Item, Total]


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tm.Store]:
    with sound_store(tmp_path / "x.db" if request.param == "file" else ":memory:", models=MODELS) as opened:
        yield opened


# ---------------------------------------------------------------------------------------------- verbs


def test_an_etag_that_is_newer_than_the_stored_one_is_said_to_be_of_another_store(store: tm.Store) -> None:
    store.insert(Item("p", "r"))
    with tm.open(":memory:", models=[Item]) as other:
        other.insert(item := Item("p", "r"))
        item = other[item.key]
    with pytest.raises(
        tm.PreconditionFailed, match="its ETag is newer than the stored one, as if it came from another"
    ):
        store.replace(item)


def test_sums_of_ints_go_beyond_64_bits(store: tm.Store) -> None:
    store.insert_many(Item("p", str(n), 2**63 - 1) for n in range(4))
    assert store[Total.key("p")].total == 4 * (2**63 - 1)


def test_a_class_that_was_not_opened_is_named(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity, match=r"models: Item, Total"):
        store.insert(Other("x"))


def test_a_value_that_is_too_long_is_refused_before_any_write(store: tm.Store) -> None:
    store.insert(Item("p", "fits", text="x" * 32_768))
    with pytest.raises(tm.EntityTooLarge, match="text"):
        store.insert(Item("p", "r", text="x" * 32_769))
    with pytest.raises(tm.InvalidEntity, match="by_badge"):
        store.insert(Item("p", "r", badge="x" * 600))
    assert not store.exists(Item.key("p", "r"))


# ---------------------------------------------------------------------------------------------- many, threads


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


def test_threads_share_a_store(store: tm.Store) -> None:
    store.insert(Item("p", "r"))

    def work(name: str) -> None:
        for n in range(25):
            store.merge(Item.key("p", "r"), Item.num.add(1))
            store.update(Item.key("p", "r"), lambda item: item.replace(num=(item.num or 0) + 1))
            store.insert(Item(name, str(n)))
            assert store[Total.key(name)].items == n + 1

    at_once(*[partial(work, f"t{n}") for n in range(6)])
    assert store[Item.key("p", "r")].num == 6 * 25 * 2


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


def test_an_extremum_of_an_enum_is_a_member() -> None:
    class Priority(IntEnum):
        LOW = 1
        HIGH = 10

    members = {"owner": str, "number": int, "priority": Priority}
    Task = entity("Task", "Tasks", members, tm.Key[str, int](partition="{owner}", row="{number}"))
    Owner = grouped("Owner", Task, "owner", "Owners", most=(Priority | None, tm.max(Task.priority)))
    with sound_store(":memory:", models=[Task, Owner]) as store:
        store.insert_many([Task("a", 1, Priority.LOW), Task("a", 2, Priority.HIGH)])
        assert store[Owner.key("a")].most is Priority.HIGH
        store.delete(Task.key("a", 2))
        assert store[Owner.key("a")].most is Priority.LOW


def test_two_types_of_a_table_and_a_group_that_refills() -> None:
    members = {"device": str, "number": int, "value": (Decimal | None, tm.field(default=None))}
    Reading = entity("Reading", "Readings", members, tm.Key[str, int](partition="{device}", row=("r", "{number}")))

    class Peak(tm.Aggregate, of=Reading, table="Readings"):
        device: tm.Field[str] = tm.group_by(Reading.device)
        readings: tm.Field[int] = tm.count()
        now: tm.Field[Decimal | None] = tm.max(Reading.value)
        ever: tm.Field[Decimal | None] = tm.max_ever(Reading.value)

        key = tm.Key[str](partition="{device}", row="peak")

    with sound_store(":memory:", models=[Reading, Peak]) as store:
        store.insert(Reading("d", 1, Decimal(9)))
        store.delete(Reading.key("d", 1))
        assert store[Peak.key("d")] == Peak("d", 0, None, Decimal(9))
        store.insert(Reading("d", 2, Decimal(3)))
        assert store[Peak.key("d")] == Peak("d", 1, Decimal(3), Decimal(9))
        assert [type(row) for row in store.partition(Reading.device == "d")] == [Peak, Reading]


def test_two_types_can_use_one_name_for_text_and_for_numbers() -> None:
    members = {"p": str, "value": (str, tm.field(default=""))}
    Text = entity("Text", "Shared", members, tm.Key[str](partition="{p}", row="text"))
    members = {"p": str, "value": (int, tm.field(default=0))}
    Number = entity("Number", "Shared", members, tm.Key[str](partition="{p}", row="number"))
    with sound_store(":memory:", models=[Text, Number]) as store:
        store.insert_many([Text("a", "long " * 200), Number("a", 7)])
        store.merge(Number.key("a"), Number.value.add(1))
        assert list(store.partition(Text.p == "a")) == [Number("a", 8), Text("a", "long " * 200)]


@pytest.mark.needs("one_commit")
def test_a_sum_of_durations_beyond_64_bits_names_its_group() -> None:
    with sound_store(":memory:", models=[Span, Whole]) as store:
        store.insert(Span("a", 1, timedelta(days=100_000_000)))
        with pytest.raises(tm.InvalidEntity, match="Whole"):
            store.insert(Span("a", 2, timedelta(days=100_000_000)))
        assert not store.exists(Span.key("a", 2))


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
    with sound_store(path if path != "file" else tmp_path / "s.db", models=[Clerk, Office]) as store:
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
    monkeypatch.setattr("tablemapper.engines.sqlite.rows.atomic_load._CHUNK", 2)
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
    monkeypatch.setattr("tablemapper.engines.sqlite.rows.atomic_load._CHUNK", 2)
    with tm.open(":memory:", models=[Mail]) as store:
        with pytest.raises(tm.EntityExists, match="'Twin' and the stored 'twin'") as caught:
            store.insert_many(map(Mail, ["twin", "a", "b", "c", "Twin", "d", "e"]), atomic=atomic)
        assert caught.value.key == ("twin", "")
