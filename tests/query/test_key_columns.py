"""Columns of fields that no property holds: they are taken out of the keys, in stored form."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

import tablemapper as tm

from ..classes import Color

EARLY, LATE = datetime(1601, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
NOON = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)


class Keyed(tm.Entity, table="Keyed"):
    """Keys that hold what stands in the columns, each in another way."""

    color: tm.Field[Color]
    name: tm.Field[str]
    at: tm.Field[datetime]
    day: tm.Field[date]
    clock: tm.Field[time]
    uid: tm.Field[UUID]
    number: tm.Field[int]
    real: tm.Field[float]
    flag: tm.Field[bool]
    span: tm.Field[timedelta]
    price: tm.Field[Decimal]
    cut: tm.Field[datetime] = tm.field(precision="ms")
    back: tm.Field[datetime] = tm.field(default=NOON)
    size: tm.Field[int] = tm.field(default=0)

    key = tm.Key[Color, str, date, datetime, datetime, time, UUID, int, float, bool, timedelta, Decimal, datetime](
        partition=("{color}", "{name}", "{day}", "{cut:%Y-%m-%d}"),
        row=("{at}", "{clock}", "{uid}", "{number}", "{real}", "{flag}", "{span}", "{price}", "{back:desc}",
             "{cut:%H:%M:%S.%L}"),
    )  # fmt: skip
    by_size = tm.Index[int, str](partition="{size}", row="{name}")


@pytest.mark.needs("sorts", when=lambda way: way == "sorted")
@pytest.mark.parametrize("way", ["key", "index", "covered", "sorted"])
def test_what_only_the_key_holds_stands_in_columns_as_in_tuples(way: str) -> None:
    pytest.importorskip("pyarrow")
    entities = [
        Keyed(
            Color.RED if at % 2 else Color.BLUE, name, moment, moment.date(), moment.time(), UUID(int=at * 2**64),
            number, at - 1.5, at % 2 == 0, timedelta(seconds=-at), Decimal(at) / 8, moment, moment, at % 2,
        )
        for at, (name, moment, number) in enumerate(
            [("", EARLY, 0), ("a !b", LATE, 2**63 - 1), ("~}", NOON, -(2**63)), ("é\x00\n", NOON, -1), (" ", NOON, 10**18)]
        )
    ]  # fmt: skip
    with tm.open(":memory:", models=[Keyed]) as store:
        store.insert_many(entities)
        everything = store.query(Keyed).allow_scan()
        fields = [getattr(Keyed, field.name) for field in Keyed.__declaration__.fields]  # type: ignore[attr-defined]
        query: Any = {
            "key": lambda: everything.select(*fields),
            "index": lambda: store.query(Keyed).where(Keyed.size == 1).select(*fields),
            "covered": lambda: store.query(Keyed).where(Keyed.size == 0).select(Keyed.name, Keyed.at, Keyed.size),
            "sorted": lambda: everything.order_by(Keyed.flag.desc()).select(*fields),
        }[way]()
        columns = query.to_arrow(decimals={Keyed.price: 8} if way != "covered" else None).to_pydict()
        if "uid" in columns:
            columns["uid"] = list(map(UUID, columns["uid"]))
            columns["color"] = list(map(Color, columns["color"]))
        assert list(zip(*columns.values(), strict=True)) == list(query)
        assert len(list(query)) > 1


class Track(tm.Entity, table="Tracks"):
    artist: tm.Field[str]
    title: tm.Field[str]
    minute: tm.Field[time]

    key = tm.Key[str, str, time](partition="{title:shard(2)}", row="{artist:hash}{title}:x{minute}")


@pytest.mark.parametrize("title", ["A", "", "A:x", "é"])
def test_a_text_behind_what_has_one_length_is_found_in_the_key(title: str) -> None:
    with tm.open(":memory:", models=[Track]) as store:
        store.insert_many(Track("ann", one, time(12, 45)) for one in (title, "other"))
        found = store.query(Track).where(Track.title == title)
        assert [track.title for track in found] == [title]
        assert found.count() == 1
