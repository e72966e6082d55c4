"""Entities that are equal under an order: they come in the order of the path that is read, then by key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tablemapper as tm


class Match(tm.Entity, table="Matches"):
    town: tm.Field[str]
    number: tm.Field[int]
    goals: tm.Field[int]
    guests: tm.Field[int]

    key = tm.Key[str, int](partition="{town}", row="{number}")
    by_goals = tm.Index[str, int, int](partition="{town}", row=("{goals}", "{guests}"))


@pytest.fixture(scope="module")
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Match]) as opened:
        opened.insert_many(Match("Oslo", n, n % 2, 9 - n // 2 % 3) for n in range(12))
        yield opened


@pytest.mark.needs("backward")
def test_ties_come_in_the_order_of_the_path_then_by_key(store: tm.Store) -> None:
    query = store.query(Match).where(Match.town == "Oslo").order_by(Match.goals)
    assert (query.explain().path, query.explain().sort) == ("Match.by_goals", ())
    found = list(query)
    assert found == sorted(found, key=lambda m: (m.goals, m.guests, m.number))
    assert [m for page in query.pages(5) for m in page.items] == found
    assert list(query.order_by(Match.goals.desc())) == found[::-1]


@pytest.mark.needs("sorts")
def test_ties_of_what_sqlite_sorts_come_by_key(store: tm.Store) -> None:
    query = store.query(Match).where(Match.town == "Oslo").order_by(Match.guests)
    assert query.explain().sort == ("guests",)
    found = list(query)
    assert found == sorted(found, key=lambda m: (m.guests, m.number))
    assert [m for page in query.pages(5) for m in page.items] == found


@pytest.mark.needs("sorts")
def test_further_fields_fix_the_order_of_ties(store: tm.Store) -> None:
    query = store.query(Match).where(Match.town == "Oslo").order_by(Match.goals, Match.number)
    found = list(query)
    assert found == sorted(found, key=lambda m: (m.goals, m.number))
    assert query.limit(1).one() == found[0]
