"""Groups by local day over changes of the clocks, through a long life: bit for bit those of the live values."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import tablemapper as tm

STEP = timedelta(minutes=15)
OSLO, NEWFOUNDLAND = ZoneInfo("Europe/Oslo"), ZoneInfo("America/St_Johns")


class Meter(tm.Entity, table="Meters"):
    house: tm.Field[str]
    number: tm.Field[int]
    at: tm.Field[datetime]
    power: tm.Field[float | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{house}", row="{number}")
    night = tm.Index[str, datetime](
        partition="{house}", row="{at}", where=lambda m: m.at.truncate("%H", "Europe/Oslo") == "02"
    )


class OfDay(tm.Aggregate, of=Meter, table="OfDay"):
    house: tm.Field[str] = tm.group_by(Meter.house)
    day: tm.Field[date] = tm.group_by(Meter.at.date("Europe/Oslo"))
    total: tm.Field[float | None] = tm.sum(Meter.power)
    mean: tm.Field[float | None] = tm.avg(Meter.power)
    last: tm.Field[str | None] = tm.max(Meter.at.truncate("%H:%M", "Europe/Oslo"))

    key = tm.Key[str, date](partition="{house}", row="{day}")
    by_last = tm.Index[str](partition="{last}")


class OfHour(tm.Aggregate, of=Meter, table="OfHour"):
    hour: tm.Field[str] = tm.group_by(Meter.at.truncate("%Y-%m-%d %H", "America/St_Johns"))
    total: tm.Field[float | None] = tm.sum(Meter.power)

    key = tm.Key[str](partition="all", row="{hour}")


class OfStep(tm.Aggregate, of=Meter, table="OfStep"):
    begin: tm.Field[datetime] = tm.group_by(Meter.at.floor(STEP))
    total: tm.Field[float | None] = tm.sum(Meter.power, where=Meter.at.date("Europe/Oslo") != date(2006, 10, 29))

    key = tm.Key[datetime](partition="{begin:%Y-%m-%d}", row="{begin}")


CHANGES = [datetime(2006, 3, 26, 1, tzinfo=UTC), datetime(2006, 4, 2, 3, 31, tzinfo=UTC), datetime(2006, 10, 29, 1, tzinfo=UTC),
           datetime(2006, 10, 29, 2, 31, tzinfo=UTC)]  # fmt: skip


def drawn(rnd: random.Random) -> dict[str, Any]:
    """Return the fields of an entity: a time around a change of the clocks, mostly."""
    hours = 60 if rnd.random() < 0.3 else 3
    at = rnd.choice(CHANGES) + timedelta(minutes=rnd.randrange(-hours * 60, hours * 60))
    power = None if rnd.random() < 0.1 else rnd.choice((0.1, -0.0, 1e300, -1e300, 5e-324, rnd.uniform(-1, 1)))
    return {"at": at, "power": power}


def sums(live: list[dict[str, Any]], group: Callable[[dict[str, Any]], Any]) -> dict[Any, list[float]]:
    found: dict[Any, list[float]] = defaultdict(list)
    for one in live:
        found[group(one)] += [] if one["power"] is None else [one["power"]]
    return found


def total(values: list[float]) -> str:
    return repr(math.fsum(values) if values else None)


@pytest.mark.needs("across_partitions")
def test_groups_by_local_day_are_those_of_the_live_values_after_mixed_writes(tmp_path: Path, full_size: bool) -> None:
    rnd = random.Random(12)
    most = 100_000 if full_size else 3_000
    live: dict[tuple[str, int], dict[str, Any]] = {}
    writes = 0
    models = [Meter, OfDay, OfHour, OfStep]
    with tm.open(tmp_path / "days.db", models=models, durability="relaxed") as store:
        while writes < most:
            with store.transaction(across_partitions=True) as tx:
                keys = {(f"h{rnd.randrange(3)}", rnd.randrange(most // 20)) for _ in range(300)}
                for key in sorted(keys):
                    writes += 1
                    fields = drawn(rnd)
                    match rnd.choice(("delete", "merge", "replace", "merge")) if key in live else "insert":
                        case "delete":
                            tx.delete(Meter.key(*key))
                            del live[key]
                        case "merge":
                            some = {name: fields[name] for name in rnd.sample(sorted(fields), 1)}
                            tx.merge(Meter.key(*key), **some)
                            live[key] |= some
                        case _:
                            tx.upsert(Meter(*key, **fields))
                            live[key] = fields
        values = [{"house": house, **fields} for (house, _), fields in live.items()]
        days = sums(values, lambda one: (one["house"], one["at"].astimezone(OSLO).date()))
        lasts = {
            key: max(
                one["at"].astimezone(OSLO).strftime("%H:%M")
                for one in values if (one["house"], one["at"].astimezone(OSLO).date()) == key
            )
            for key in days
        }  # fmt: skip
        held = list(store.query(OfDay).allow_scan())
        assert {(one.house, one.day): repr(one.total) for one in held} == {key: total(of) for key, of in days.items()}
        assert {(one.house, one.day): one.mean for one in held if one.mean} == {
            key: mean for key, of in days.items() if of and (mean := math.fsum(of) / len(of))
        }
        assert {(one.house, one.day): one.last for one in held} == lasts
        assert store.query(OfDay).where(OfDay.last == "23:59").count() == list(lasts.values()).count("23:59")
        hours = sums(values, lambda one: f"{(at := one['at'].astimezone(NEWFOUNDLAND)).date()} {at.hour:02d}")
        assert {one.hour: repr(one.total) for one in store.query(OfHour)} == {
            key: total(of) for key, of in hours.items()
        }
        steps = sums(
            [one for one in values if one["at"].astimezone(OSLO).date() != date(2006, 10, 29)],
            lambda one: one["at"].replace(minute=one["at"].minute // 15 * 15),
        )
        begins = {one["at"].replace(minute=one["at"].minute // 15 * 15) for one in values}
        assert {one.begin: repr(one.total) for one in store.query(OfStep).allow_scan()} == {
            begin: total(steps.get(begin, [])) for begin in begins
        }
        for house in ("h0", "h1", "h2"):
            night = store.query(Meter).where(Meter.house == house, Meter.at.truncate("%H", "Europe/Oslo") == "02")
            assert night.count() == sum(
                one["house"] == house and one["at"].astimezone(OSLO).hour == 2 for one in values
            )
        assert store.check().ok
