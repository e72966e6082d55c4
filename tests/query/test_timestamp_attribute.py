"""When an entity was last written, in conditions and orders: ``tm.timestamp(Product)``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tablemapper as tm

from ..classes import aggregate, entity, grouped
from ..parts import Note


class Part(tm.Entity, table="Parts"):
    box: tm.Field[str]
    number: tm.Field[int]
    color: tm.Field[str] = tm.field(default="red")
    due: tm.Field[datetime] = tm.field(default=datetime(2020, 1, 1, tzinfo=UTC))

    key = tm.Key[str, int](partition="{box}", row="{number}")
    by_color = tm.Index[str](partition="{color}", include="all")


Colors = grouped("Colors", Part, "color", n=tm.count())


written = tm.timestamp(Part)


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Part, Note, Colors]) as store:
        for number in (3, 1, 2, 0):  # each write has a timestamp of its own
            store.insert(Part("a", number, "blue" if number % 2 else "red"))
        yield store


def times(store: tm.Store) -> dict[int, datetime]:
    found = {part.number: tm.info(part).timestamp for part in store.query(Part).where(Part.box == "a")}
    return {number: at for number, at in found.items() if at is not None}


def numbers(query: Any) -> list[int]:
    return [part.number for part in query]


def test_what_was_written_since_is_found(store: tm.Store) -> None:
    at = times(store)
    in_a = store.query(Part).where(Part.box == "a")
    assert numbers(in_a.where(written > at[1])) == [0, 2]
    assert numbers(in_a.where(written >= at[1])) == [0, 1, 2]
    assert numbers(in_a.where(at[1] == written)) == [1]
    assert numbers(in_a.where(written.between(at[1], at[2]))) == [1, 2]
    assert numbers(in_a.where(written.is_in([at[3], at[0]]))) == [0, 3]
    assert numbers(in_a.where(~(written > at[1]))) == [1, 3]
    assert numbers(in_a.where(written.is_null())) == []
    assert in_a.where(at[2] > written).count() == 2
    store.merge(Part.key("a", 3), color="green")
    assert numbers(in_a.where(written > at[0])) == [3]


@pytest.mark.needs("sorts")
def test_the_newest_come_first_on_every_path(store: tm.Store) -> None:
    in_a = store.query(Part).where(Part.box == "a")
    assert numbers(in_a.order_by(written)) == [3, 1, 2, 0]
    assert numbers(in_a.order_by(written.desc()).limit(2)) == [0, 2]
    pages = in_a.order_by(written.desc()).pages(1)
    assert [part.number for page in pages for part in page.items] == [0, 2, 1, 3]
    assert numbers(store.query(Part.by_color("blue")).order_by(written)) == [3, 1]
    assert numbers(store.query(Part.by_color("blue")).where(times(store)[3] < written)) == [1]
    assert numbers(store.query(Part).order_by(written.desc()).allow_scan().limit(1)) == [0]


@pytest.mark.needs("sorts")
def test_a_timestamp_is_selected_and_totalled(store: tm.Store) -> None:
    at = times(store)
    in_a = store.query(Part).where(Part.box == "a")
    assert list(in_a.select(Part.number, written)) == sorted(at.items())
    assert list(store.query(Part).where(Part.color == "blue").order_by(written).select(written)) == [(at[3],), (at[1],)]
    assert in_a.max(written) == at[0]
    assert in_a.group_by(Part.color).min(written) == {"blue": at[3], "red": at[2]}


def test_a_timestamp_compares_with_a_field(store: tm.Store) -> None:
    store.merge(Part.key("a", 1), due=datetime(2999, 1, 1, tzinfo=UTC))
    in_a = store.query(Part).where(Part.box == "a")
    assert numbers(in_a.where(Part.due < written)) == [0, 2, 3]
    assert numbers(in_a.where(Part.due > written)) == [1]
    assert numbers(in_a.where(written == written)) == [0, 1, 2, 3]


def test_every_plan_equals_a_filter_in_python(store: tm.Store) -> None:
    at = times(store)
    moments = [*at.values(), at[1] + timedelta(microseconds=1), datetime(1999, 1, 1, tzinfo=UTC)]
    parts = [store[Part.key("a", number)] for number in at]
    tests: list[Any] = [
        lambda a, t: a < t, lambda a, t: a <= t, lambda a, t: a > t, lambda a, t: a >= t, lambda a, t: a == t,
        lambda a, t: a != t,
    ]  # fmt: skip
    paths: list[tuple[Any, Any]] = [
        (Part.box == "a", lambda p: True),
        (Part.color == "blue", lambda p: p.color == "blue"),
        (Part.number == 1, lambda p: p.number == 1),
    ]
    for test, moment, (where, holds) in itertools.product(tests, moments, paths):
        found = store.query(Part).where(where, test(written, moment)).allow_scan()
        expected = sorted(p.number for p in parts if holds(p) and test(tm.info(p).timestamp, moment))
        assert sorted(numbers(found)) == expected
        assert found.count() == len(expected)


def test_what_was_not_touched_for_long_is_deleted(store: tm.Store) -> None:
    before = times(store)[2]
    assert store.query(Part).where(Part.box == "a", before > written).delete() == 2
    assert store.query(Part).where(Part.box == "a", written >= before).update(color="old") == 2
    assert sorted(times(store)) == [0, 2]
    assert min(times(store).values()) > before


def test_what_is_assigned_can_be_when_it_was_written(store: tm.Store) -> None:
    before = times(store)[1]
    assert store.merge(Part.key("a", 1), Part.due.set(written), returning=True).due == before


@pytest.mark.needs("sorts")
def test_several_classes_are_asked_together(store: tm.Store) -> None:
    since = max(times(store).values())
    store.insert(Note("a", "new"))
    both = store.query(Part, Note).where(Part.box == "a")
    assert [type(one) for one in both.where(written > since)] == [Note]
    assert [type(one) for one in both.where(tm.timestamp(Note) >= since)] == [Note, Part]
    assert isinstance(next(iter(both.order_by(written.desc()))), Note)


@pytest.mark.needs("one_commit")
def test_groups_have_timestamps(store: tm.Store) -> None:
    at = times(store)
    changed = store.query(Colors).where(tm.timestamp(Colors) > at[1]).allow_scan()
    assert [group.color for group in changed] == ["red"]


def test_a_question_without_bounds_is_refused_without_an_index_that_cannot_be(store: tm.Store) -> None:
    with pytest.raises(tm.ScanRefused) as refused:
        list(store.query(Part).where(written > datetime(2020, 1, 1, tzinfo=UTC)))
    assert "tm.Index" not in str(refused.value)
    plan = store.query(Part).where(Part.box == "a", written > datetime(2020, 1, 1, tzinfo=UTC)).explain()
    assert plan.filter == ("timestamp() > '2020-01-01T00:00:00.000000Z'",)


def test_nothing_is_maintained_by_a_timestamp() -> None:
    key, where = tm.Key[str](partition="{a}"), lambda w: tm.timestamp(w) > datetime(2020, 1, 1, tzinfo=UTC)
    with pytest.raises(tm.InvalidModel, match=r"by_a: where=: tm.timestamp\(Wrong\) changes with each write"):
        entity("Wrong", "Wrongs", {"a": str}, key, by_a=tm.Index[str](partition="{a}", where=where))
    members = {"box": (str, tm.group_by(Part.box)), "newest": (datetime | None, tm.max(written))}
    with pytest.raises(tm.InvalidModel, match=r"newest: tm.timestamp\(Part\) changes with each write"):
        aggregate("Newest", Part, members, tm.Key[str](partition="{box}"), "Newests")
    with pytest.raises(tm.InvalidModel):
        entity("Slot", "Slots", {"a": str}, key, by_time=tm.Index(partition="{_timestamp}"))


def test_what_cannot_be_done_with_it_is_refused(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidQuery, match="expected an entity class, as in"):
        tm.timestamp(3)  # type: ignore[arg-type]
    with pytest.raises(tm.InvalidEntity, match=r"tm.timestamp\(Part\) is not a field of Part"):
        store.merge(Part.key("a", 1), written.set(datetime(2020, 1, 1, tzinfo=UTC)))
    with pytest.raises(tm.InvalidEntity, match=r"tm.timestamp\(Part\) is not a field of Part"):
        Part("a", 1).replace(written.set(datetime(2020, 1, 1, tzinfo=UTC)))
    with pytest.raises(tm.InvalidQuery, match=r"tm.timestamp\(Part\) > datetime.*has no time zone"):
        store.query(Part).where(datetime(2020, 1, 1) < written)
    with pytest.raises(tm.InvalidQuery, match="expected datetime"):
        store.query(Part).where(written > 3)  # type: ignore[operator]
    with pytest.raises(tm.InvalidQuery, match="is not a field of Note"):
        store.query(Note).where(written > datetime(2020, 1, 1, tzinfo=UTC))  # type: ignore[arg-type]
    with pytest.raises(tm.InvalidQuery, match="can be truncated.*; declare a field for the time"):
        written.date()
    with pytest.raises(tm.InvalidQuery, match="is no field; group by a scalar field"):
        store.query(Part).where(Part.box == "a").group_by(written)


def test_timestamps_are_a_column_of_arrow(store: tm.Store) -> None:
    pa = pytest.importorskip("pyarrow")
    table = store.query(Part).where(Part.box == "a").select(Part.number, written).to_arrow()
    assert table.schema.types == [pa.int64(), pa.timestamp("us", "UTC")]
    assert dict(zip(*(column.to_pylist() for column in table.columns), strict=True)) == times(store)
