"""An index asked by name finds what has the same text in its slots, and nothing else, however far its bounds reach."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest

import tablemapper as tm

DAY = date(2026, 3, 1)


class Note(tm.Entity, table="Notes"):
    p: tm.Field[str]
    n: tm.Field[str]
    d: tm.Field[date] = tm.field(default=DAY)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    size: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str](partition="{p}")
    text = tm.Index[str, date](partition="all", row="{n}-{d}")
    wide = tm.Index[str, date](partition="{n}{d}")
    shard = tm.Index[str](partition="all", row=("{p:shard(4)}", "{n}"))
    fold = tm.Index[str](partition="all", row=("{p:shard(4)}", "{n:fold}"))
    fold_text = tm.Index[str, date](partition="{n:fold}-{d}")
    hashed = tm.Index[str](partition="all", row=("{p:shard(4)}", "{n:hash}"))
    tag = tm.Index[str](partition="all", row=("{p:shard(4)}", "{tags}"))
    tag_text = tm.Index[str, date](partition="all", row="{tags}-{d}")
    tag_fold = tm.Index[str](partition="all", row=("{p:shard(4)}", "{tags:fold}"))
    covering = tm.Index[str, date](partition="all", row="{n}-{d}", include="all")


NAMES = {"a": "x", "b": "x-y", "c": "xyz", "d": "q", "e": "X"}


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Note]) as opened:
        opened.insert_many(Note(p, n, tags=[n, n + "-z", n.upper()]) for p, n in NAMES.items())
        yield opened


ASKED: dict[str, tuple[Any, str]] = {
    "a text cut from the right": (Note.text("x"), "a"), "a partition cut from the right": (Note.wide("x"), "a"),
    "both values": (Note.wide("x", DAY), "a"), "behind a shard": (Note.shard("x"), "a"),
    "folded, behind a shard": (Note.fold("x"), "ae"), "folded, cut from the right": (Note.fold_text("X"), "ae"),
    "hashed, behind a shard": (Note.hashed("x"), "a"), "an element behind a shard": (Note.tag("x"), "a"),
    "an element cut from the right": (Note.tag_text("x"), "a"), "an element, folded": (Note.tag_fold("x"), "ae"),
    "an index that holds all": (Note.covering("x"), "a"), "nothing": (Note.text("y"), ""),
}  # fmt: skip


@pytest.mark.needs("backward", "sorts")
@pytest.mark.parametrize(("index", "names"), ASKED.values(), ids=ASKED)
def test_an_index_by_name_finds_the_same_texts_only(store: tm.Store, index: Any, names: str) -> None:
    query = store.query(index)
    found = [note.p for note in query]
    assert sorted(found) == list(names)
    assert query.count() == len(names)
    assert query.exists() == bool(names)
    first = query.first()
    assert ([] if first is None else [first.p]) == found[:1]
    assert [note.p for page in query.pages(1) for note in page.items] == found
    assert [note.p for note in query.budget(examined=100)] == found
    assert sorted(query.select(Note.p)) == [(name,) for name in names]
    assert query.group_by(Note.p).count() == dict.fromkeys(names, 1)
    assert [note.p for note in query.order_by(Note.p.desc())] == list(names[::-1])
    assert [note.p for note in query.where(Note.p == "a")] == list(names[:1])
    assert query.update(Note.size.add(1)) == len(names)
    assert sum(note.size for note in store.query(Note).allow_scan()) == len(names)
    assert query.where(Note.size == 1).delete() == len(names)
    assert store.query(Note).allow_scan().count() == len(NAMES) - len(names)


def test_an_index_by_name_has_no_filter_where_its_bounds_say_all(store: tm.Store) -> None:
    for index in (Note.wide("x", DAY), Note.covering("x", DAY), Note.text("x", DAY)):
        assert store.query(index).explain().filter == ()
    assert store.query(Note.text("x")).explain().filter == ("n == 'x'",)
    assert store.query(Note.tag("x")).explain().filter == ("tags contains 'x'",)
    assert store.query(Note.fold("x")).explain().checked == ("n:fold is that of 'x'",)


# ---------------------------------------------------------------------------------------------- lossy slots


class Event(tm.Entity, table="Events"):
    p: tm.Field[str]
    at: tm.Field[datetime]
    name: tm.Field[str] = tm.field(default="")

    key = tm.Key[str](partition="{p}")
    by_month = tm.Index[datetime](partition="{at:%Y-%m}")
    by_month_and_name = tm.Index[datetime, str](partition="{at:%Y-%m}", row="{name}")
    by_fold = tm.Index[str](partition="{name:fold}")
    by_time = tm.Index[datetime](partition="{at:%Y-%m}", row="{at}")


def march(day: int) -> datetime:
    return datetime(2026, 3, day, tzinfo=UTC)


@pytest.fixture
def events() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Event]) as opened:
        opened.insert_many(
            Event(p, march(day), name) for p, day, name in (("a", 1, "Ann"), ("b", 2, "ann"), ("c", 3, "ANN"))
        )
        yield opened


def test_an_index_by_name_finds_the_month_of_a_time_and_what_folds_alike(events: tm.Store) -> None:
    assert [event.p for event in events.query(Event.by_month(march(9)))] == list("abc")
    assert [event.p for event in events.query(Event.by_fold("aNN"))] == list("abc")
    assert [event.p for event in events.query(Event.by_time(march(2)))] == ["b"]
    assert events.query(Event.by_month(march(9))).explain().filter == ()


@pytest.mark.needs("backward", "sorts")
@pytest.mark.parametrize("index", [Event.by_month(march(9)), Event.by_month_and_name(march(9)), Event.by_fold("ann")])
def test_an_order_by_a_field_of_which_a_lossy_slot_is_fixed_counts(events: tm.Store, index: Any) -> None:
    query = events.query(index)
    for step, names in (
        (Event.at.desc(), "cba"), (Event.at, "abc"), (Event.name, "cab"), (Event.name.desc(), "bac"), (Event.p.desc(), "cba"),
    ):  # fmt: skip
        assert [event.p for event in query.order_by(step)] == list(names)
        assert query.order_by(step).first().p == names[0]
        assert [event.p for page in query.order_by(step).pages(1) for event in page.items] == list(names)
    assert (query.min(Event.at), query.max(Event.at)) == (march(1), march(3))


def test_a_lossy_slot_that_is_fixed_does_not_hide_the_order_behind_it(events: tm.Store) -> None:
    query = events.query(Event.by_month_and_name(march(9))).order_by(Event.name, Event.p)
    assert query.explain().sort == ()
    assert [event.p for event in query] == ["c", "a", "b"]


@pytest.mark.needs("sorts")
def test_a_condition_beside_the_name_holds_too(events: tm.Store) -> None:
    query = events.query(Event.by_month(march(9)))
    assert [event.p for event in query.where(Event.at == march(2))] == ["b"]
    assert [event.p for event in query.where(Event.at > march(1)).order_by(Event.at.desc())] == ["c", "b"]
    assert list(query.where(Event.at == datetime(2026, 4, 1, tzinfo=UTC))) == []
    assert [event.p for event in events.query(Event.by_fold("ann")).where(Event.name == "ANN")] == ["c"]
    assert list(events.query(Event.by_fold("ann")).where(Event.name == "Bo")) == []
