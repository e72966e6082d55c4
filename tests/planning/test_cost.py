"""What a query would cost on Azure: round trips, rows that travel, bytes, a price."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.planning.cost import bytes_text, money_text

from ..classes import entity


class Item(tm.Entity, table="Items"):
    group: tm.Field[str]
    number: tm.Field[int]
    color: tm.Field[str] = tm.field(default="red")
    size: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str, int](partition="{group}", row="{number}")
    by_color = tm.Index[str, int](partition="{color}", row="{size}")
    by_size = tm.Index[int](partition="{size}", include=("color",))
    by_shard = tm.Index[int](partition="{number:shard(4)}", row="{number}")


Other = entity("Other", "Items", {"group": str}, tm.Key[str](partition="{group}", row="other"))


@pytest.fixture(scope="module")
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Item, Other]) as store:
        store.insert_many(Item(f"g{n % 2}", n, "red" if n % 3 else "blue", n % 10) for n in range(3_000))
        store.insert_many(Item("deep", n, "deep") for n in range(11_000))
        yield store


CASES: list[tuple[Any, int, int]] = [
    ((Item.group == "g1", Item.number == 1), 1, 1), ((Item.group == "g1", Item.number == 2), 1, 0),
    ((Item.group == "nothing",), 1, 0), ((Item.group == "g1",), 2, 1_500),
    ((Item.group.is_in(["g0", "g1", "no"]),), 5, 3_000), ((Item.color == "blue", Item.size == 3), 1 + 100, 200),
    ((Item.color == "blue", Item.size == 3, Item.number > 100), 1 + 100, 200), ((Item.number == 7,), 1 + 2, 4),
]  # fmt: skip


@pytest.mark.needs("costs")
@pytest.mark.parametrize(("where", "requests", "entities"), CASES)
def test_requests_are_pages_of_ranges_and_joined_entities(
    store: tm.Store, where: Any, requests: int, entities: int
) -> None:
    cost = store.query(Item).where(*where).explain().cost
    assert (cost.requests, cost.entities, cost.at_least) == (requests, entities, False)


@pytest.mark.needs("costs")
def test_a_covering_index_joins_nothing_where_it_may_be_older_than_its_entities(store: tm.Store) -> None:
    rows = store.query(Item).where(Item.size == 3).select(Item.color)
    strict = rows.explain().cost
    assert (strict.requests, strict.entities) == (301, 600)  # (it lies in other partitions)
    cost = rows.allow_eventual().explain().cost
    assert (cost.requests, cost.entities) == (1, 300)
    assert 300 * 50 < cost.bytes < 300 * 100


@pytest.mark.needs("costs")
def test_a_limit_without_filter_and_sort_reads_no_further(store: tm.Store) -> None:
    red = store.query(Item).where(Item.color == "red", Item.size == 3)
    assert red.limit(5).explain().cost.requests == 1 + 5
    assert store.query(Item).where(Item.group.is_in(["g0", "g1"])).limit(5).explain().cost.requests == 1
    assert red.where(Item.number > 1).limit(5).explain().cost.requests > 6
    assert store.query(Item).where(Item.group == "g1").order_by(Item.color).limit(5).explain().cost.entities == 1_500


@pytest.mark.needs("costs")
def test_bytes_are_those_of_the_entities(store: tm.Store) -> None:
    query = store.query(Item).where(Item.group == "g1", Item.number < 100)
    assert query.explain().cost.bytes == pytest.approx(sum(map(tm.size, query)), abs=1)


@pytest.mark.needs("costs")
def test_counting_stops_at_ten_thousand(store: tm.Store) -> None:
    cost = store.query(Item).where(Item.group == "deep").explain().cost
    assert (cost.requests, cost.entities, cost.at_least) == (10, 10_000, True)
    assert str(cost).startswith("on Azure: at least 10 requests, 10,000 entities, ")


@pytest.mark.needs("costs")
def test_the_text_ends_in_the_cost_and_the_dict_has_it(store: tm.Store) -> None:
    explained = store.query(Item).where(Item.group == "g1").explain()
    assert str(explained).splitlines()[-1] == str(explained.cost)
    assert explained.to_dict()["cost"]["requests"] == 2


@pytest.mark.needs("costs")
def test_a_query_over_several_classes_costs_their_sum(store: tm.Store) -> None:
    mixed = store.query(Item, Other).where(Item.group == "g1", Other.group == "g1").explain()
    assert mixed.cost.requests == sum(one.cost.requests for one in mixed.classes.values()) == 3
    assert str(mixed).splitlines()[-1] == str(mixed.cost)


def test_a_cost_can_be_asked_for_when_the_store_is_closed() -> None:
    with tm.open(":memory:", models=[Item, Other]) as store:
        explained = store.query(Item).where(Item.group == "g1").explain()
    assert (explained.cost.at_least, explained.cost.entities, explained.cost.bytes) == (True, None, None)
    assert "on Azure: at least 1 request; its rows are not counted" in str(explained)
    assert explained.to_dict()["cost"]["entities"] is None


@pytest.mark.needs("costs")
async def test_the_cost_is_counted_in_the_thread_that_explains() -> None:
    async with tm.open_async(":memory:", models=[Item, Other]) as store:
        await store.insert(Item("g1", 1))
        assert (await store.query(Item).where(Item.group == "g1").explain()).cost.entities == 1


def test_prices_are_replaced_one_by_one() -> None:
    prices = tm.Prices(read=2.0, storage=0.5)
    assert tm.reports.Cost(5, 5, 5, at_least=False).price(prices) == 5 * 2.0 / 10_000
    assert prices.of_storage(2**31) == 1.0
    assert prices.write == tm.Prices().write
    assert tm.Prices().source.startswith("https://azure.microsoft.com/")


@pytest.mark.parametrize("wrong", [-1, "1", None, True, float("nan"), float("inf")])
def test_a_price_is_a_number(wrong: Any) -> None:
    with pytest.raises(tm.InvalidQuery, match="Prices: read=.*: expected a number, 0 or more"):
        tm.Prices(read=wrong)


def test_bytes_are_written_with_a_unit() -> None:
    assert [bytes_text(n) for n in (1, 999, 7_900, 231_000_000, 1.2e9)] == [
        "1 bytes", "999 bytes", "7.9 kB", "231.0 MB", "1.2 GB",
    ]  # fmt: skip


def test_a_price_that_is_hardly_any_is_told_so() -> None:
    assert [money_text(price) for price in (0, 0.0004, 0.0126, 1_234.5)] == [
        "0.000",
        "under 0.001",
        "0.013",
        "1,234.500",
    ]
