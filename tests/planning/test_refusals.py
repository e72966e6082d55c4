"""What is refused is refused however it is asked, and whatever the limit is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity

Item = entity("Item", "Items", {"name": str, "size": (int, tm.field(default=0))}, tm.Key[str](partition="{name}"))


class Part(tm.Entity, table="Items"):
    name: tm.Field[str]
    size: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str](partition="{name}", row="part")


class Moment(tm.Entity, table="Moments"):
    at: tm.Field[datetime]

    key = tm.Key[datetime](partition="{at:%d.%m.%Y}", row="{at}")  # its texts do not sort as times do


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Item, Part, Moment]) as opened:
        opened.insert_many([Item("a", 1), Part("a", 2)])
        yield opened


ONE: dict[str, Callable[[Any], object]] = {
    "loop": list, "first": lambda q: q.first(), "one or none": lambda q: q.one_or_none(),
    "exists": lambda q: q.exists(), "count": lambda q: q.count(), "page": lambda q: q.page(5),
    "pages": lambda q: list(q.pages(5)), "explain": lambda q: q.explain(),
}  # fmt: skip
ENTITIES: dict[str, Callable[[Any], object]] = {
    "sum": lambda q: q.sum(Item.size),
    "min": lambda q: q.min(Item.size),
    "groups": lambda q: q.group_by(Item.name).count(),
    "update": lambda q: q.update(size=9),
    "delete": lambda q: q.delete(),
    "select": lambda q: list(q.select(Item.size)),
    "the first tuple": lambda q: q.select(Item.size).first(),
}


@pytest.mark.parametrize("limit", [None, 0, 1])
@pytest.mark.parametrize("budget", [None, 10])
@pytest.mark.parametrize("ask", [*ONE.values(), *ENTITIES.values()], ids=[*ONE, *ENTITIES])
def test_a_refusal_does_not_depend_on_the_limit(
    store: tm.Store, ask: Callable[[Any], object], budget: int | None, limit: int | None
) -> None:
    queries: list[Any] = [store.query(Item).where(Item.size == 1)]
    if ask in ONE.values():
        queries.append(store.query(Item, Part).where(Item.size == 1))
    for query in queries:
        some = query if limit is None else query.limit(limit)
        some = some if budget is None else some.budget(examined=budget)
        with pytest.raises(tm.ScanRefused):
            ask(some)
    assert store[Item.key("a")].size == 1


@pytest.mark.parametrize("limit", [0, 1])
def test_a_refusal_of_too_many_days_does_not_depend_on_the_limit(store: tm.Store, limit: int) -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    query = store.query(Moment).where(Moment.at >= start).limit(limit)
    assert list(query.where(Moment.at < start + timedelta(days=9))) == []
    with pytest.raises(tm.ScanRefused):
        list(query.where(Moment.at < start + timedelta(days=9_000)))


def test_a_limit_of_nothing_gives_nothing(store: tm.Store) -> None:
    for query in (
        store.query(Item).where(Item.name == "a").limit(0),
        store.query(Item).where(Item.name >= "a").limit(0),
        store.query(Item).allow_scan().limit(0),
        store.query(Item, Part).where(Item.name == "a").limit(0),
        store.query(Item).where(Item.name == "a").limit(0).budget(examined=0),
    ):
        assert (list(query), query.first(), query.exists(), query.count()) == ([], None, False, 0)
        assert (query.page(3).items, query.page(3).token) == ([], None)
