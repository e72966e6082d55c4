"""Rules of a time zone that change while a migration runs, and while an older version goes on beside the new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import tablemapper as tm
from tablemapper.evolution import newer_versions, spec_compiler

from ..classes import aggregate, entity
from ..stores import sound_store
from ..zones import rules_from
from .shapes import script

OSLO, HELSINKI = ZoneInfo("Europe/Oslo"), ZoneInfo("Europe/Helsinki")
BEGIN = datetime(2024, 3, 30, 12, tzinfo=UTC)


@pytest.fixture
def new_rules() -> Iterator[Callable[[], None]]:
    """Return a function after which Oslo has other rules, as in a process that begins then."""

    def rules(source: Callable[[str], tzinfo]) -> None:
        rules_from(source)
        spec_compiler._entity_model.cache_clear()
        newer_versions._extended_model.cache_clear()

    yield lambda: rules(lambda name: HELSINKI if name == "Europe/Oslo" else ZoneInfo(name))
    rules(ZoneInfo)


def classes(shards: int) -> list[Any]:
    """Return the classes as a program declares them that begins now."""
    sale = entity(
        "Sale", "Sales", {"shop": str, "at": datetime},
        tm.Key[str, datetime](partition=f"{{shop:shard({shards})}}", row=("{shop}", "{at}")),
        night=tm.Index[str](partition="{shop}", where=lambda s: s.at.truncate("%H", "Europe/Oslo") == "02"),
    )  # fmt: skip
    members = {"day": (date, tm.group_by(sale.at.date("Europe/Oslo"))), "sales": (int, tm.count())}
    return [sale, aggregate("Days", sale, members, tm.Key[date](partition="{day}"))]


def sales(cls: Any, count: int = 150) -> list[Any]:
    return [cls("x", BEGIN + number * timedelta(minutes=20)) for number in range(count)]


CLASSES: list[list[Any]] = []


def steps(m: Any) -> None:
    m.rekey(CLASSES[0][0], CLASSES[1][0])


def begin() -> Any:
    """Return the script as a process has it that begins now."""
    CLASSES[:] = [classes(8), classes(16)]
    return script(CLASSES[1], steps, old=CLASSES[0])


def of_days(store: tm.Store, models: list[Any]) -> dict[date, int]:
    return {one.day: one.sales for one in store.query(models[1]).allow_scan()}


def days(store: tm.Store, models: list[Any], zone: tzinfo = HELSINKI) -> dict[date, int]:
    return Counter(one.at.astimezone(zone).date() for one in store.query(models[0]).allow_scan())


def filled(path: Path) -> Any:
    first = begin()
    with tm.open(path, models=CLASSES[0]) as store:
        store.insert_many(sales(CLASSES[0][0]))
    return first


def test_both_versions_go_on_if_the_rules_of_a_zone_have_changed(place: Path, new_rules: Any) -> None:
    assert tm.migrate(place, [filled(place)]).ok
    new_rules()
    first = begin()
    old, new = CLASSES
    with tm.open(place, models=old) as before, tm.open(place, models=new) as store:
        before.insert(old[0]("y", BEGIN + timedelta(hours=35)))
        store.insert(new[0]("z", BEGIN + timedelta(hours=35, minutes=20)))
        assert of_days(store, new) == days(store, new) != days(store, new, OSLO)
        assert days(before, old) == days(store, new)
        with pytest.raises(
            tm.NotReady, match="Days: it must be built again, and nothing is built for an older version; deploy"
        ):
            of_days(before, old)
        assert before.build().done
        night = before.query(old[0]).where(old[0].shop == "y", old[0].at.truncate("%H", "Europe/Oslo") == "02")
        assert night.allow_scan().count() == 1
        for one in (store, before):
            assert one.check().ok
    assert tm.migrate(place, [first], to="").ok
    with sound_store(place, models=old) as before:
        assert of_days(before, old) == days(before, old)


def test_a_migration_goes_on_if_the_rules_of_a_zone_have_changed(place: Path, new_rules: Any) -> None:
    tm.migrate(place, [filled(place)], limit=100)
    new_rules()
    first = begin()
    old, new = CLASSES
    with tm.open(place, models=old) as before:
        before.query(old[0]).where(old[0].shop == "x").delete()
        before.insert_many(sales(old[0], 120))
        assert of_days(before, old) == days(before, old)
    assert tm.migrate(place, [first]).ok
    with sound_store(place, models=new) as store:
        assert of_days(store, new) == days(store, new)
