"""Entities that pass unique values on to each other are written together, however many they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..engines.azure.place import AzurePlace
from ..engines.dicts import DictPlace


class Item(tm.Entity, table="Items"):
    board: tm.Field[str]
    number: tm.Field[int]
    position: tm.Field[int]
    odd: tm.Field[bool] = tm.field(default=False)
    note: tm.Field[str] = tm.field(default="")

    key = tm.Key[str, int](partition="{board}", row="{number}")
    by_position = tm.Index[str, int](partition="{board}", row="{position}", unique=True)
    by_odd = tm.Index[str, bool](partition="{board}", row="{odd}")


def up(item: Item) -> Item:
    item.position += 1
    return item


CALLS: dict[str, Callable[[tm.Query[Item]], int]] = {
    "an expression": lambda query: query.update(position=Item.position + 1),
    "a function": lambda query: query.update(up),
    "with a name": lambda query: query.update(position=Item.position + 1, resume="run"),
}
of_board = Item.board == "b"


def positions(store: tm.Store) -> list[int]:
    return sorted(item.position for item in store.query(Item).where(of_board))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tm.Store]:
    with tm.open(tmp_path / "x.db", models=[Item], durability="relaxed") as opened:
        yield opened


@pytest.mark.file  # (an account writes fewer together)
@pytest.mark.parametrize(("name", "count"), [("an expression", 1_000), *((name, 1_001) for name in CALLS)])
def test_positions_move_up_by_one(store: tm.Store, name: str, count: int) -> None:
    call = CALLS[name]
    store.insert_many(Item("b", number, number, odd=True) for number in range(count))
    assert call(store.query(Item).where(of_board)) == count
    assert positions(store) == list(range(1, count + 1))
    assert call(store.query(Item).where(of_board, Item.odd == True)) == count  # noqa: E712  (along an index)
    assert positions(store) == list(range(2, count + 2))
    assert store.check().ok


@pytest.mark.file
def test_positions_turn_round(store: tm.Store) -> None:
    """The first takes the value of the last: nothing can be written before all has been read."""
    store.insert_many(Item("b", number, number) for number in range(1_100))
    assert store.query(Item).where(of_board).update(lambda item: item.replace(position=1_099 - item.position)) == 1_100
    assert [item.position for item in store.query(Item).where(of_board, Item.number < 2)] == [1_099, 1_098]


@pytest.mark.file
def test_a_holder_that_the_query_does_not_find_is_a_violation(store: tm.Store) -> None:
    store.insert_many(Item("b", number, number, odd=number == 1_100) for number in range(1_300))
    query = store.query(Item).where(of_board, Item.odd == False)  # noqa: E712
    with pytest.raises(tm.UniqueViolation) as caught:
        query.update(position=Item.position + 1)
    assert caught.value.holder == tuple(Item.key("b", 1_100))[1:]
    assert positions(store) == list(range(1_300))


@pytest.mark.parametrize(
    ("place", "most"),
    [
        (AzurePlace(still=True), 19),
        (DictPlace(lacking=("across_partitions",)), 100),
    ],  # (an account counts index rows, too)
    ids=["account", "bare"],
)
def test_an_engine_that_writes_few_together_says_how_many(place: Any, most: int) -> None:
    with tm.open(place, models=[Item]) as store:
        store.insert_many(Item("b", number, number) for number in range(most))
        assert store.query(Item).where(of_board).update(position=Item.position + 1) == most
        assert positions(store) == list(range(1, most + 1))
        store.insert_many(Item("b", number, number + 1) for number in range(most, 250))
        with pytest.raises(
            tm.UniqueViolation, match=f"the account writes {most} entities together: shift fewer, or leave gaps"
        ):
            store.query(Item).where(of_board).update(position=Item.position + 1)
        assert positions(store) == list(range(1, 251))


def test_two_that_take_one_value_are_a_violation_and_nothing_is_lost(store: tm.Store) -> None:
    store.insert_many(Item("b", number, number) for number in range(3))
    with pytest.raises(tm.UniqueViolation):
        store.query(Item).where(of_board).update(position=9)
    assert positions(store) == [0, 1, 2]
