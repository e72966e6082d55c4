"""A whole partition, of entities or of an index, is read without ranges once it is known to be small."""

from __future__ import annotations

import pytest

import tablemapper as tm


class Event(tm.Entity, table="Events"):
    place: tm.Field[str]
    number: tm.Field[int]
    kind: tm.Field[str] = tm.field(default="plain")
    text: tm.Field[str] = tm.field(default="")

    key = tm.Key[str, int](partition="{place}", row="{number}")
    by_kind = tm.Index[str](partition="{kind}")


def test_a_partition_that_grows_past_what_is_read_at_once_is_found_whole() -> None:
    with tm.open(":memory:", models=[Event]) as store:
        in_oslo = store.query(Event).where(Event.place == "Oslo")
        assert list(in_oslo) == []
        for count in (1, 255, 256, 257, 600):
            store.upsert_many(Event("Oslo", number) for number in range(count))
            for _ in range(3):  # the first run learns, the others use it
                assert [event.number for event in in_oslo] == list(range(count))
                assert [event.number for event in store.query(Event.by_kind("plain"))] == list(range(count))


def test_values_that_are_stored_beside_their_row_are_read() -> None:
    with tm.open(":memory:", models=[Event]) as store:
        store.insert(Event("Oslo", 1, text="short"))
        in_oslo = store.query(Event).where(Event.place == "Oslo")
        assert [[event.text for event in in_oslo] for _ in range(3)] == [["short"]] * 3
        store.insert(Event("Oslo", 2, text="long" * 1_000))
        assert [[len(event.text) for event in in_oslo] for _ in range(3)] == [[5, 4_000]] * 3


def test_a_value_that_no_key_can_hold_finds_nothing() -> None:
    with tm.open(":memory:", models=[Event]) as store:
        store.insert(Event("Oslo", 1))
        for place in ("x" * 600, "\U0010ffff", ""):
            assert list(store.query(Event).where(Event.place == place)) == []


@pytest.mark.needs("backward")
def test_the_order_may_be_the_reverse_of_the_rows() -> None:
    with tm.open(":memory:", models=[Event]) as store:
        store.insert_many(Event("Oslo", number) for number in range(5))
        latest = store.query(Event).where(Event.place == "Oslo").order_by(Event.number.desc())
        assert [[event.number for event in latest] for _ in range(3)] == [[4, 3, 2, 1, 0]] * 3


@pytest.mark.file
def test_several_partitions_are_one_statement_and_come_in_order() -> None:
    with tm.open(":memory:", models=[Event]) as store:
        places = ["b", "a", "c/d", "é", "a b", ""]
        store.insert_many(Event(place, number, kind=place) for place in places for number in range(3))
        several = store.query(Event).where(Event.place.is_in([*places[1:], "nowhere"]), Event.number >= 1)
        assert sum("SEARCH" in line for line in several.explain().database) == 1
        expected = [(place, number) for place in sorted(places[1:]) for number in (1, 2)]
        assert [(event.place, event.number) for event in several] == expected
        by_kind = store.query(Event).where(Event.kind.is_in(places[:3]))
        assert [event.place for event in by_kind] == sorted(3 * places[:3])
        assert [event.place for event in several.limit(1)] == [""]
        pages = [item for page in several.pages(3) for item in page.items]
        assert [(event.place, event.number) for event in pages] == expected
