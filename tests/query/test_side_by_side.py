"""Partitions that are read side by side come in one order, asked in whatever way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm


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


def test_what_a_limit_chooses_is_the_first_of_all_partitions(store: tm.Store) -> None:
    both = store.query(Reading).where(Reading.device.is_in(["b", "a"])).order_by(Reading.at.desc())
    assert both.limit(1).update(value=7) == 1
    assert both.first() == store[Reading.key("a", START + timedelta(hours=99))]
    assert both.select(Reading.value).first() == (7,)
    assert both.limit(3).delete() == 3
    assert both.select(Reading.at).first() == (START + timedelta(hours=72),)


def test_partitions_of_an_index_without_a_row_are_merged_by_the_entities_keys() -> None:
    class Box(tm.Entity, table="Boxes"):
        name: tm.Field[str]
        kind: tm.Field[str]

        key = tm.Key[str](partition="{name}")
        by_kind = tm.Index[str](partition="{kind}")

    with tm.open(":memory:", models=[Box]) as boxes:
        boxes.insert_many(Box(name, "large" if name in "ace" else "small") for name in "abcdef")
        query = boxes.query(Box).where(Box.kind.is_in(["large", "small"])).order_by(Box.name)
        assert query.explain().plan.merged
        assert [box.name for box in query] == list("abcdef")
        assert [box.name for page in query.pages(2) for box in page.items] == list("abcdef")
        assert [box.name for box in query.order_by(Box.name.desc())] == list("fedcba")
        assert query.order_by(Box.name.desc()).first() == Box("f", "small")
        assert [box.name for box in query.order_by(Box.kind, Box.name)] == list("acebdf")
