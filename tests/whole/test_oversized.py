"""Questions that are too deep, too long or too large are answered, or refused by one clear error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import Any
from uuid import UUID

import pytest

import tablemapper as tm

HUGE = 10**5000  # more digits than Python writes out
DEEP: Any = []
for _ in range(2000):
    DEEP = [DEEP]


class Thing(tm.Entity, table="Things"):
    p: tm.Field[str]
    r: tm.Field[str]
    n: tm.Field[int] = tm.field(default=0)
    price: tm.Field[Decimal | None] = tm.field(default=None)
    number: tm.Field[UUID | None] = tm.field(default=None)
    nested: tm.Field[dict[str, Any]] = tm.field(factory=dict)
    text: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, str](partition="{p}", row="{r}")
    by_text = tm.Index[str](partition="{text}")
    by_fold = tm.Index[str, str](partition="{text:fold}", row="{p}")


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many(Thing("p", f"r{n}", n, text="x" * n) for n in range(10))
        yield store


@pytest.mark.parametrize("join", [or_, and_])
def test_conditions_that_are_joined_one_by_one_are_one_condition(store: tm.Store, join: Callable[..., Any]) -> None:
    joined = reduce(join, [Thing.n == 3 if join is or_ else Thing.n != n for n in range(100, 3100)])
    found = store.query(Thing).where(Thing.p == "p", joined)
    assert [thing.n for thing in found] == ([3] if join is or_ else list(range(10)))
    assert len(found.page(3).items) == (1 if join is or_ else 3)
    assert "n == 3" in repr(found) or "n != 100" in repr(found)


def test_not_not_is_what_it_was(store: tm.Store) -> None:
    condition: tm.Predicate[Thing] = Thing.n == 3
    for _ in range(3000):
        condition = ~condition
    assert [thing.n for thing in store.query(Thing).where(Thing.p == "p", condition)] == [3]


@pytest.mark.needs("estimates", when=lambda id: id == "30")
@pytest.mark.parametrize("depth", [30, 5000])
def test_conditions_nested_in_turn_work_or_are_refused(store: tm.Store, depth: int) -> None:
    def nested() -> Any:
        condition: Any = Thing.n == 3
        for n in range(depth):
            condition = ~((condition & (Thing.n != 100 + n)) | (Thing.n == 200 + n))
        return condition

    if depth > 1000:
        with pytest.raises(tm.errors.InvalidQuery, match=r"nested more than \d+ deep"):
            nested()
        return
    query = store.query(Thing).where(Thing.p == "p", nested())
    assert [thing.n for thing in query] == [3]
    assert query.count() == 1
    assert query.explain().rows == 10
    assert query.select(Thing.n).first() == (3,)
    assert query.update(n=3) == 1
    assert query.delete() == 1


VALUES: list[tuple[str, Callable[[], Any]]] = [
    ("a huge int compared", lambda: Thing.n == HUGE),
    ("a huge int in a list", lambda: Thing.n.is_in([1, HUGE])),
    ("a huge int added", lambda: Thing.n.add(HUGE)),
    ("a huge int for a Decimal", lambda: Thing.price == HUGE),  # type: ignore[comparison-overlap]
    ("a huge int for a UUID", lambda: Thing.number == HUGE),  # type: ignore[comparison-overlap]
    ("a huge int calculated with a text", lambda: (Thing.n * HUGE) + "x"),  # type: ignore[operator]
    ("a deep value compared", lambda: Thing.nested == {"x": DEEP}),
    ("a deep value for a number", lambda: Thing.n == DEEP),  # type: ignore[comparison-overlap]
    ("a deep value for a start", lambda: Thing.text.startswith(DEEP)),
    ("a deep value for a part", lambda: Thing.text.contains(DEEP)),
    ("a deep value joined", lambda: (Thing.n == 1) & DEEP),
    ("a deep value for a list", lambda: Thing.n.is_in("x" * 1_000_000)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("ask", [case[1] for case in VALUES], ids=[case[0] for case in VALUES])
def test_a_value_that_can_not_be_shown_is_refused_in_a_short_message(ask: Callable[[], Any]) -> None:
    with pytest.raises(tm.errors.InvalidQuery) as found:
        ask()
    assert len(str(found.value)) < 500


CALLS: list[tuple[str, Callable[[tm.Store], object]]] = [
    ("where", lambda store: store.query(Thing).where(DEEP)),
    ("order_by", lambda store: store.query(Thing).order_by(DEEP)),
    ("select", lambda store: store.query(Thing).select(DEEP)), ("sum", lambda store: store.query(Thing).sum(DEEP)),
    ("limit", lambda store: store.query(Thing).limit(DEEP)),
    ("limit of a huge negative", lambda store: store.query(Thing).limit(-HUGE)),
    ("page", lambda store: store.query(Thing).page(-HUGE)),
    ("budget", lambda store: store.query(Thing).budget(timeout=-HUGE)), ("query", lambda store: store.query(DEEP)),
    ("partition", lambda store: list(store.partition(DEEP))),
    ("partition by a huge int", lambda store: list(store.partition(Thing.n != HUGE))),
    ("get", lambda store: store.get(DEEP)), ("insert", lambda store: store.insert(DEEP)),
    ("delete", lambda store: store.delete(DEEP)), ("merge", lambda store: store.merge(Thing.key("p", "r1"), DEEP)),
    ("merge by name", lambda store: store.merge(Thing.key("p", "r1"), n=HUGE)),
    ("merge of a calculation", lambda store: store.merge(Thing.key("p", "r1"), n=Thing.n * HUGE)),
    ("if_match", lambda store: store.merge(Thing.key("p", "r1"), n=1, if_match=DEEP)),
    ("update", lambda store: store.update(Thing.key("p", "r1"), lambda thing: DEEP)),
    ("update by query", lambda store: store.query(Thing).where(Thing.p == "p").update(lambda thing: DEEP)),
    ("resume", lambda store: store.query(Thing).where(Thing.p == "p").update(n=1, resume=DEEP)),
    ("an index", lambda store: store.query(Thing.by_text(DEEP))), ("a key", lambda store: Thing.key(DEEP, HUGE)),
    ("a value", lambda store: Thing("p", "r", HUGE)),
    ("a key that is too long", lambda store: store.get(Thing.key("p" * 1_000_000, "r"))),
]  # fmt: skip


@pytest.mark.parametrize("call", [case[1] for case in CALLS], ids=[case[0] for case in CALLS])
def test_an_argument_that_can_not_be_shown_is_refused_in_a_short_message(
    store: tm.Store, call: Callable[[tm.Store], object]
) -> None:
    with pytest.raises(tm.TableMapperError) as found:
        call(store)
    assert len(str(found.value)) < 500


@pytest.mark.needs("sorts")
def test_a_limit_beyond_all_numbers_is_none(store: tm.Store) -> None:
    for limit in (2**63 - 1, 2**63, HUGE):
        query = store.query(Thing).where(Thing.p == "p").limit(limit)
        assert len(list(query)) == query.count() == len(query.page(20).items) == 10
        assert len(query.order_by(Thing.n.desc()).page(limit).items) == 10
        assert len(list(store.query(Thing).where(Thing.p == "p").budget(examined=limit))) == 10


@pytest.mark.needs("estimates")
@pytest.mark.parametrize("unit", [" ", "x", "ß", "😀"])
def test_no_key_begins_with_what_is_longer_than_any(store: tm.Store, unit: str) -> None:
    long = unit * 1_000_000
    query = store.query(Thing)
    for found in (
        query.where(Thing.p.startswith(long)),
        query.where(Thing.p == long),
        query.where(Thing.p.is_in([long, "q"])),
        query.where(Thing.p == "p", Thing.r > "s" + long),
        query.where(Thing.p == "p", Thing.r.startswith("r1" + long)),
        query.where(Thing.text.startswith(long)),
        query.where(Thing.text == long),
    ):
        assert list(found) == []
        assert found.explain().rows == 0
    assert query.where(Thing.p == "p", Thing.r < "s" + long).count() == 10
    assert query.where(Thing.p == "p", Thing.r >= "r3" + long).count() == 6
    assert query.where(Thing.p == "p", Thing.r.between("r3" + long, "r5" + long)).count() == 2
