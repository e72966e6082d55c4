"""Entities read together with those that their fields name."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.query import pairs as module

from ..classes import entity, grouped
from ..stores import sound_store


class Device(tm.Entity, table="Devices"):
    site: tm.Field[str]
    id: tm.Field[str]
    name: tm.Field[str] = tm.field(default="")

    key = tm.Key[str, str](partition="{site}", row="{id}")


class Reading(tm.Entity, table="Readings"):
    site: tm.Field[str]
    at: tm.Field[datetime]
    device: tm.Field[str | None] = tm.field(default=None)
    value: tm.Field[int] = tm.field(default=0)
    note: tm.Field[str] = tm.field(default="x" * 2_000)

    key = tm.Key[str, datetime](partition="{site}", row="{at}")
    by_device = tm.Index[str, datetime](partition="{device}", row="{at}")


class Day(tm.Entity, table="Days"):
    day: tm.Field[date]
    note: tm.Field[str]

    key = tm.Key[date](partition="{day}")


Label = entity("Label", "Labels", {"name": str}, tm.Key[str](partition="{name}"))
Total = grouped("Total", Reading, "site", n=tm.count())
START = datetime(2026, 3, 1, tzinfo=UTC)
MODELS: list[Any] = [Device, Reading, Day, Label, Total]


def filled(store: tm.Store, count: int = 10) -> None:
    store.insert_many([Device("s", "a", "A"), Device("s", "b", "B"), Device("t", "a", "other")])
    devices = ["a", "b", None, "gone", "none"]
    store.insert_many(
        Reading("s", START + timedelta(hours=number), devices[number % 5], number) for number in range(count)
    )
    store.insert(Day(START.date(), "first"))


def names(pairs: Any) -> list[tuple[int, str | None]]:
    return [(reading.value, None if device is None else device.name) for reading, device in pairs]


EXPECTED = [(number, ["A", "B", None, None, None][number % 5]) for number in range(10)]


def test_each_entity_comes_with_the_one_that_its_fields_name_or_none() -> None:
    with sound_store(":memory:", models=MODELS) as store:
        filled(store)
        query = store.query(Reading).where(Reading.site == "s")
        pairs = query.with_(Device, by=(Reading.site, Reading.device))
        assert names(pairs) == EXPECTED
        assert names(pairs) == EXPECTED  # (again, as it reads anew)
        assert (
            names(query.order_by(Reading.at.desc()).allow_sort().with_(Device, by=(Reading.site, Reading.device)))
            == EXPECTED[::-1]
        )
        assert names(query.limit(3).with_(Device, by=(Reading.site, Reading.device))) == EXPECTED[:3]
        assert names(query.limit(0).with_(Device, by=(Reading.site, Reading.device))) == []
        first = pairs.first()
        assert first is not None
        assert names([first]) == EXPECTED[:1]
        assert query.where(Reading.value > 99).with_(Device, by=(Reading.site, Reading.device)).first() is None
        along = store.query(Reading).where(Reading.device == "b").allow_eventual()
        assert names(along.with_(Device, by=(Reading.site, Reading.device))) == [EXPECTED[1], EXPECTED[6]]
        by_range = store.query(Reading.by_device("a")).allow_eventual()
        assert names(by_range.with_(Device, by=(Reading.site, Reading.device))) == [EXPECTED[0], EXPECTED[5]]
        totals = list(query.limit(1).with_(Total, by=Reading.site))
        assert totals[0][1] is not None
        assert totals[0][1].n == 10
        days = list(query.with_(Day, by=Reading.at.date()))
        assert {None if day is None else day.note for _, day in days} == {"first"}
        assert next(iter(query.with_(Label, by=Reading.note)))[1] is None  # (no key can hold it)
        assert repr(pairs) == "<Query Reading, site == 's'>.with_(Device)"


def test_pages_of_pairs_go_on_and_their_tokens_hold_for_them_alone() -> None:
    with sound_store(":memory:", models=MODELS) as store:
        filled(store)
        query = store.query(Reading).where(Reading.site == "s")
        pairs = query.with_(Device, by=(Reading.site, Reading.device))
        page = pairs.page(4)
        assert names(page.items) == EXPECTED[:4]
        assert names(pairs.page(4, page.token).items) == EXPECTED[4:8]
        assert names(pair for page in pairs.pages(3) for pair in page.items) == EXPECTED
        with pytest.raises(tm.InvalidToken):
            query.page(4, page.token)
        with pytest.raises(tm.InvalidQuery, match="several entities match"):
            pairs.one()


def test_each_source_is_read_once_for_many_entities(monkeypatch: pytest.MonkeyPatch) -> None:
    with sound_store(":memory:", models=MODELS) as store:
        filled(store, 600)
        asked: list[int] = []
        get_many = store._engine.get_many

        def counting(wanted: Any, **options: Any) -> Any:
            asked.append(len(wanted))
            return get_many(wanted, **options)

        store._engine.get_many = counting  # type: ignore[method-assign]
        pairs = store.query(Reading).where(Reading.site == "s").with_(Device, by=(Reading.site, Reading.device))
        assert len(list(pairs)) == 600
        assert asked == [4, 4, 4]  # (of 256, 256 and 88)
        assert pairs.first() is not None
        assert asked[3:] == [1]


class Token(tm.Entity, table="Tokens"):
    id: tm.Field[str]
    until: tm.Field[datetime | None] = tm.field(default=None, expires=True)

    key = tm.Key[str](partition="{id}")


def test_one_that_has_ended_is_not_there() -> None:
    with sound_store(":memory:", models=[Token, Device]) as store:
        store.insert_many([Device("s", "a"), Device("s", "b"), Token("a", START - timedelta(days=9_000)), Token("b")])
        pairs = store.query(Device).where(Device.site == "s").with_(Token, by=Device.id)
        assert [(device.id, token) for device, token in pairs] == [("a", None), ("b", Token("b"))]
        back = store.query(Token).allow_scan().with_(Device, by=(Token.id, Token.id))
        assert [token.id for token, _ in back] == ["b"]


@pytest.mark.needs("one_state")
def test_both_are_of_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOGETHER", 2)
    with sound_store(tmp_path / "pairs.db", models=MODELS) as store:
        filled(store)
        pairs = iter(store.query(Reading).where(Reading.site == "s").with_(Device, by=(Reading.site, Reading.device)))
        assert names([next(pairs)]) == EXPECTED[:1]
        store.merge(Device.key("s", "a"), name="new")
        store.delete(Device.key("s", "b"))
        store.merge(Reading.key("s", START + timedelta(hours=9)), value=99)
        assert names(pairs) == EXPECTED[1:]


def test_a_budget_a_scan_and_an_observer_see_pairs_as_the_query() -> None:
    events: list[tm.Event] = []
    with sound_store(":memory:", models=MODELS, observe=events.append) as store:
        filled(store)
        events.clear()
        query = store.query(Reading).where(Reading.site == "s")
        assert names(query.with_(Device, by=(Reading.site, Reading.device))) == EXPECTED
        assert [(event.verb, event.model, event.returned) for event in events] == [("query", "Reading, Device", 10)]
        query.with_(Device, by=(Reading.site, Reading.device)).page(3)
        assert (events[-1].verb, events[-1].returned) == ("query.page", 3)
        with pytest.raises(tm.QueryStopped):
            list(query.budget(examined=4).with_(Device, by=(Reading.site, Reading.device)))
        with pytest.raises(tm.ScanRefused):
            list(store.query(Reading).where(Reading.value == 3).with_(Device, by=(Reading.site, Reading.device)))


def test_what_is_no_key_is_refused_before_anything_is_read() -> None:
    fault = r"with_: by= names the fields of Reading that are the key of Device \(site: str, id: str\)"
    with sound_store(":memory:", models=MODELS) as store:
        query = store.query(Reading)
        for by in (
            Reading.site, (Reading.site,), (Reading.site, Reading.value), (Reading.site, Device.id), (Reading.site, "device"),
            (Reading.site, Reading.device, Reading.value), (Reading.at, Reading.device), (), 5,
        ):  # fmt: skip
            with pytest.raises(tm.InvalidQuery, match=fault):
                query.with_(Device, by=by)  # type: ignore[arg-type]
        with pytest.raises(tm.InvalidQuery, match="with_: expected an entity class, got 5"):
            query.with_(5, by=Reading.site)  # type: ignore[type-var]
        other = entity("Elsewhere", "Elsewhere", {"a": str}, tm.Key[str](partition="{a}"))
        with pytest.raises(tm.InvalidQuery, match=r"with_: the store was not opened with Elsewhere \(models: "):
            query.with_(other, by=Reading.site)
        with pytest.raises(AttributeError, match=r"query.with_\(Other, by=Reading.field\).*there are no other joins"):
            query.join(Device)  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match="select last"):
            query.select(Reading.site).with_(Device, by=Reading.site)  # type: ignore[attr-defined]


@given(
    st.lists(st.tuples(st.sampled_from("st"), st.sampled_from([None, "a", "b", "c"])), max_size=8),
    st.sets(st.tuples(st.sampled_from("st"), st.sampled_from("ab"))),
    st.integers(1, 4),
)
def test_pairs_are_what_a_loop_with_get_gives(
    readings: list[tuple[str, str | None]], devices: set[tuple[str, str]], size: int
) -> None:
    with tm.open(":memory:", models=[Device, Reading]) as store:
        store.insert_many(Device(*key) for key in devices)
        store.insert_many(
            Reading(site, START + timedelta(hours=number), device) for number, (site, device) in enumerate(readings)
        )
        query = store.query(Reading).allow_scan()
        expected = [
            (reading, None if reading.device is None else store.get(Device.key(reading.site, reading.device)))
            for reading in query
        ]
        pairs = query.with_(Device, by=(Reading.site, Reading.device))
        assert list(pairs) == expected
        assert [pair for page in pairs.pages(size) for pair in page.items] == expected
