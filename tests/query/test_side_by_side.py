"""Partitions that are read side by side come in one order, asked in whatever way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import islice
from operator import and_, or_
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm

from ..classes import entity
from ..conftest import examples
from ..matching import matcher


class Reading(tm.Entity, table="Readings"):
    device: tm.Field[str]
    at: tm.Field[datetime]
    value: tm.Field[int]
    note: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, datetime](partition="{device}", row="{at}")
    by_value = tm.Index[int](partition="{device:shard(4)}", row="{value}")
    by_day = tm.Index[datetime, int](partition="{at:%Y-%m-%d}", row="{value}")


START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tm.Store]:
    with tm.open(":memory:" if request.param == "memory" else tmp_path / "s.db", models=[Reading]) as opened:
        # The later a reading is, the less its value; "a" has the later ones.
        opened.insert_many(
            Reading("ba"[n % 2], START + timedelta(hours=9 * n), 100 - n, ["odd"] if n % 2 else []) for n in range(12)
        )
        yield opened


ASKED: dict[str, Any] = {
    "a list of partitions": (Reading.device.is_in(["a", "b"]), Reading.at),
    "the same backwards": (Reading.device.is_in(["a", "b"]), Reading.at.desc()),
    "shards": (Reading.value > 0, Reading.value),
    "shards backwards": (Reading.value > 0, Reading.value.desc()),
    "days": (Reading.at.between(START, START + timedelta(days=9)), Reading.value),
    "days backwards": (Reading.at.between(START, START + timedelta(days=9)), Reading.value.desc()),
}


@pytest.mark.needs("backward", when=lambda id: "backwards" in id)
@pytest.mark.parametrize(("condition", "step"), ASKED.values(), ids=ASKED)
def test_the_first_one_is_the_first_of_all_partitions(store: tm.Store, condition: Any, step: Any) -> None:
    query = store.query(Reading).where(condition).order_by(step)
    assert query.explain().plan.merged
    whole = list(query)
    assert len(whole) == 12
    odd = [reading for reading in whole if reading.note]
    for _ in range(2):
        assert query.first() == query.limit(1).one() == query.page(1).items[0] == whole[0]
        assert query.select(Reading.value).first() == (whole[0].value,)
        assert query.select(Reading.value).limit(1).one() == (whole[0].value,)
        assert query.budget(examined=100).first() == whole[0]
        assert query.where(Reading.note.contains("odd")).first() == odd[0]
        assert query.where(Reading.note == ["odd"]).first() == odd[0]
        assert query.exists()


def test_the_least_and_the_greatest_are_those_of_all_partitions(store: tm.Store) -> None:
    both = store.query(Reading).where(Reading.device.is_in(["b", "a"]))
    assert (both.min(Reading.at), both.max(Reading.at)) == (START, START + timedelta(hours=99))
    days = store.query(Reading).where(Reading.at.between(START, START + timedelta(days=9)))
    assert (days.min(Reading.value), days.max(Reading.value)) == (89, 100)


@pytest.mark.needs("backward")
def test_what_a_limit_chooses_is_the_first_of_all_partitions(store: tm.Store) -> None:
    both = store.query(Reading).where(Reading.device.is_in(["b", "a"])).order_by(Reading.at.desc())
    assert both.limit(1).update(value=7) == 1
    assert both.first() == store[Reading.key("a", START + timedelta(hours=99))]
    assert both.select(Reading.value).first() == (7,)
    assert both.limit(3).delete() == 3
    assert both.select(Reading.at).first() == (START + timedelta(hours=72),)


@pytest.mark.needs("backward")
def test_partitions_of_an_index_without_a_row_are_merged_by_the_entities_keys() -> None:
    members = {"name": str, "kind": str}
    Box = entity("Box", "Boxes", members, tm.Key[str](partition="{name}"), by_kind=tm.Index[str](partition="{kind}"))
    with tm.open(":memory:", models=[Box]) as boxes:
        boxes.insert_many(Box(name, "large" if name in "ace" else "small") for name in "abcdef")
        query = boxes.query(Box).where(Box.kind.is_in(["large", "small"])).order_by(Box.name)
        assert query.explain().plan.merged
        assert [box.name for box in query] == list("abcdef")
        assert [box.name for page in query.pages(2) for box in page.items] == list("abcdef")
        assert [box.name for box in query.order_by(Box.name.desc())] == list("fedcba")
        assert query.order_by(Box.name.desc()).first() == Box("f", "small")
        assert [box.name for box in query.order_by(Box.kind, Box.name)] == list("acebdf")


# ---------------------------------------------------------------------------------------------- ranges that begin alike


class Event(tm.Entity, table="Events"):
    site: tm.Field[str]
    at: tm.Field[datetime]
    kind: tm.Field[str]
    number: tm.Field[int]

    key = tm.Key[str, datetime, str, int](partition=("{site}", "{at:%Y-%m-%d}"), row=("{at}", "{kind}", "{number}"))
    by_kind = tm.Index[str, str, int](partition="all", row=("{site}", "{kind}", "{number}"))
    by_site = tm.Index[str, str, datetime](partition="{site}", row=("{kind}", "{at:desc}"), include=("number",))


SITES = ["a", "ab", "a!", "a b", "", "b"]
KINDS = ["x", "xy", "x/"]
EVENTS = [
    Event(site, START + timedelta(hours=9 * n), kind, number)
    for site in SITES
    for n in range(5)
    for kind in KINDS
    for number in (-2, 1, 12)
    if (n + len(site + kind) + number) % 3
]
SOME_SITES = st.lists(st.sampled_from(SITES), min_size=1, max_size=4).map(Event.site.is_in)
SOME_KINDS = st.lists(st.sampled_from(KINDS), min_size=1, max_size=3).map(Event.kind.is_in)
TIMES = st.tuples(st.sampled_from(["__ge__", "__lt__"]), st.integers(0, 5)).map(
    lambda two: getattr(Event.at, two[0])(START + timedelta(hours=7 * two[1]))
)
NUMBERS = st.sampled_from([-2, 1]).map(Event.number.__gt__)
MORE = st.lists(st.one_of(SOME_KINDS, TIMES, NUMBERS), max_size=2)


@pytest.fixture(scope="module")
def events() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Event]) as opened:
        opened.insert_many(EVENTS)
        yield opened


@pytest.mark.needs("backward", "sorts")
@examples(40, long=200)
@given(
    ways=st.lists(st.tuples(SOME_SITES, MORE), min_size=1, max_size=2),
    order=st.lists(st.sampled_from([Event.at, Event.kind, Event.number, Event.site]), min_size=1, max_size=3),
    descending=st.booleans(),
    source=st.sampled_from([Event, Event.by_kind(), Event.by_site()]),
)
def test_ranges_that_begin_alike_come_in_the_order_of_python(
    events: tm.Store, ways: Any, order: list[tm.types.Attr[Event, Any]], descending: bool, source: Any
) -> None:
    condition = reduce(or_, [reduce(and_, more, sites) for sites, more in ways])
    steps = [attr.desc() if descending else attr.asc() for attr in order]
    query: tm.Query[Event] = events.query(source).where(condition).order_by(*steps)

    def values(event: Event) -> tuple[Any, ...]:
        return tuple(getattr(event, attr.name) for attr in order)

    wanted = sorted(filter(matcher(condition), EVENTS), key=values, reverse=descending)
    found, explained = list(query), query.explain()
    assert sorted(map(str, found)) == sorted(map(str, wanted)), explained
    assert list(map(values, found)) == list(map(values, wanted)), explained
    for size in (1, 4):
        paged = [event for page in islice(query.pages(size), 20) for event in page.items]
        assert paged == found[: 20 * size], explained
    assert query.first() == (found[0] if found else None), explained
    assert list(query.limit(2)) == found[:2], explained
    assert list(query.budget(examined=1000)) == found, explained
    if not explained.sort:
        rows = query.select(Event.number, Event.site).limit(3)
        assert list(rows) == [(event.number, event.site) for event in found[:3]], explained


MERGED: dict[str, Any] = {
    "days of several sites": (Event.site.is_in(["a", "b"]), (Event.at,), "key", "site"),
    "since a time": (Event.site.is_in(["a", "b"]) & (Event.at >= START), (Event.at.desc(),), "key", "site"),
    "several sites of one partition": (Event.site.is_in(["a", "b"]), (Event.kind, Event.number), "by_kind", "site"),
    "several kinds of several sites": (
        Event.site.is_in(["a", "b"]) & Event.kind.is_in(["x", "xy"]), (Event.number.desc(),), "by_kind", "kind"),
    "several kinds of a partition": ((Event.site == "a") & Event.kind.is_in(["x", "xy"]), (Event.at,), "by_site", "kind"),
    "alternatives": (
        ((Event.site == "a") & (Event.kind == "x")) | ((Event.site == "b") & (Event.kind == "xy")),
        (Event.number,), "by_kind", "kind"),
}  # fmt: skip


@pytest.mark.needs("backward", when=lambda id: id.startswith(("since", "several kinds")))
@pytest.mark.parametrize(("condition", "steps", "path", "behind"), MERGED.values(), ids=MERGED)
def test_ranges_that_begin_alike_are_not_sorted(condition: Any, steps: Any, path: str, behind: str) -> None:
    with tm.open(":memory:", models=[Event]) as store:
        store.insert_many(
            Event(site, START + timedelta(hours=n), kind, n)
            for site in "abc"
            for kind in ("x", "xy")
            for n in range(50)
        )
        query = store.query(Event) if path == "key" else store.query(getattr(Event, path)())
        query = query.where(condition).order_by(*steps)
        explained = query.explain()
        assert (explained.path, explained.sort) == (f"Event.{path}", ())
        assert f"merged in the order of what follows {behind} in their keys" in str(explained)
        assert explained.to_dict()["merged"] is True
        first = list(query.limit(10).budget(examined=10))
        assert [event for page in islice(query.pages(1), 10) for event in page.items] == first == list(query)[:10]
