"""What a time zone means is part of a definition: what other rules made is built anew when a store is opened."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

import tablemapper as tm
from tablemapper.keys.zones import fingerprint, release

from ..classes import aggregate, entity
from ..stores import repaired, sound_store
from ..zones import rules_from

pytestmark = pytest.mark.file

OSLO, HELSINKI = ZoneInfo("Europe/Oslo"), ZoneInfo("Europe/Helsinki")


@pytest.fixture
def new_rules() -> Iterator[Callable[..., None]]:
    """Return a function after which Oslo has other rules, of a release."""
    yield lambda release=None: rules_from(lambda name: HELSINKI if name == "Europe/Oslo" else ZoneInfo(name), release)
    rules_from(ZoneInfo)


KEY = tm.Key[str, datetime](partition="{shop}", row="{at}")


def sold(fields: Mapping[str, Any] = {}, key: Any = KEY, **indexes: Any) -> Any:
    """Return the class of what is sold, with more fields and indexes."""
    return entity("Sale", "Sales", {"shop": str, "at": datetime, **fields}, key, **indexes)


def daily(of: Any, table: str, measures: Mapping[str, Any] = {}, **indexes: Any) -> Any:
    """Return the aggregate by local day, with more measures and indexes."""
    members = {"shop": (str, tm.group_by(of.shop)), "day": (date, tm.group_by(of.at.date("Europe/Oslo")))}
    key = tm.Key[str, date](partition="{shop}", row="{day}")
    by_sales = tm.Index[int](partition="{sales}")
    return aggregate(
        "PerDay", of, {**members, "sales": (int, tm.count()), **measures}, key, table, by_sales=by_sales, **indexes
    )


def classes(*, index: bool = False, more: bool = False, shared: str = "PerDay") -> Any:
    """Return the classes as a program declares them that begins now."""
    night = tm.Index[str](partition="{shop}", where=lambda s: s.at.truncate("%H", "Europe/Oslo") == "02")
    sale = sold({"note": (str | None, tm.field(default=None))}, **({"night": night} if index else {}))
    months = {"month": (str, tm.group_by(sale.at.truncate("%Y-%m", "Asia/Tokyo"))), "sales": (int, tm.count())}
    key = tm.Key[str](partition=("by", "month"), row="{month}")
    return sale, daily(sale, shared), aggregate("PerMonth", sale, months, key, shared if more else "PerMonth")


BEGIN = datetime(2024, 3, 30, 12, tzinfo=UTC)
TIMES = [BEGIN + n * timedelta(minutes=20) for n in range(150)]


def filled(path: Path, **options: Any) -> Any:
    models = classes(**options)
    with tm.open(path, models=models) as store:
        store.insert_many(models[0]("x", at) for at in TIMES)
    return models


def days_of(store: tm.Store, per_day: Any) -> dict[date, int]:
    return {one.day: one.sales for one in store.query(per_day).where(per_day.shop == "x")}


def days(zone: tzinfo) -> dict[date, int]:
    return Counter(at.astimezone(zone).date() for at in TIMES)


def test_an_aggregate_by_local_day_is_built_anew_if_the_rules_of_its_zone_have_changed(
    path: Path, new_rules: Any
) -> None:
    filled(path)
    new_rules()
    models = classes()
    assert days(HELSINKI) != days(OSLO)
    with sound_store(path, models=models) as store:
        assert days_of(store, models[1]) == days(HELSINKI)
        store.insert(models[0]("x", BEGIN - timedelta(days=400)))
    with tm.open(path, models=classes()) as store:
        assert store.check().ok
        assert {one.state for one in store.status().objects if one.where in ("PerDay", "PerMonth")} == {"ready"}
        assert store.build().entities == 0


def test_what_is_counted_by_a_condition_on_local_time_is_built_anew(path: Path, new_rules: Any) -> None:
    def declared() -> Any:
        sale, key = sold(), tm.Key[str](partition="{shop}")
        on_saturday = sale.at.date("Europe/Oslo") == date(2024, 3, 30)
        members = {"shop": str, "saturday": (int, tm.count(of=sale, where=on_saturday))}
        shop = entity("Shop", "Shops", members, key, by_saturday=tm.Index[int](partition="{saturday}"))
        groups = {"shop": (str, tm.group_by(sale.shop)), "saturday": (int, tm.count(where=on_saturday))}
        return sale, shop, aggregate("PerShop", sale, groups, key)

    with tm.open(path, models=(models := declared())) as store:
        store.insert_many(models[0]("x", at) for at in TIMES)
        store.insert(models[1]("x"))
    new_rules()
    sale, shop, per_shop = declared()
    with sound_store(path, models=[sale, shop, per_shop]) as store:
        saturday = days(HELSINKI)[date(2024, 3, 30)]
        assert saturday != days(OSLO)[date(2024, 3, 30)]
        assert store[shop.key("x")].saturday == store[per_shop.key("x")].saturday == saturday
        assert [one.shop for one in store.query(shop.by_saturday(saturday))] == ["x"]


def test_what_has_the_same_rules_is_left_as_it_is(path: Path, new_rules: Any) -> None:
    models = filled(path)
    with tm.open(path, models=models) as store:
        before = store.status()
    with tm.open(path, models=classes()) as store:
        assert store.status() == before
    new_rules()
    with tm.open(path, models=classes(), build=False) as store:
        states = {one.where: one.state for one in store.status().objects}
    assert (states["PerDay"], states["PerDay.by_sales"], states["PerMonth"]) == ("disabled", "disabled", "ready")


def test_an_index_by_local_time_is_built_anew(path: Path, new_rules: Any) -> None:
    filled(path, index=True)
    new_rules()
    models = classes(index=True)
    sale = models[0]
    with tm.open(path, models=models) as store:
        assert store.check().ok
        night = store.query(sale).where(sale.shop == "x", sale.at.truncate("%H", "Europe/Oslo") == "02")
        assert night.count() == sum(at.astimezone(HELSINKI).hour == 2 for at in TIMES) > 0


def test_a_program_with_the_old_rules_neither_reads_nor_writes_what_the_new_ones_made(
    path: Path, new_rules: Any
) -> None:
    models = filled(path)
    sale, per_day, per_month = models
    with tm.open(path, models=models) as old:
        new_rules()
        with tm.open(path, models=classes()):
            pass
        rules_from(ZoneInfo)
        with pytest.raises(
            tm.SchemaMismatch, match="PerDay is maintained by other rules of Europe/Oslo than this system has"
        ):
            old.insert(sale("x", BEGIN - timedelta(days=1)))
        with pytest.raises(tm.NotReady, match="maintained by other rules of a time zone"):
            old.get(per_day.key("x", BEGIN.date()))
        assert old.query(sale).where(sale.shop == "x").group_by(sale.at.date("Europe/Oslo")).count() == days(OSLO)
        assert old.query(per_month).count() > 0
    with tm.open(path, models=classes()) as store:
        assert store.check().ok


def test_an_aggregate_that_is_not_opened_waits_until_it_is(path: Path, new_rules: Any) -> None:
    filled(path)
    new_rules()
    sale, _, per_month = classes()
    with tm.open(path, models=[sale, per_month]) as store:
        store.insert(sale("x", BEGIN - timedelta(days=1)))
    models = classes()
    with tm.open(path, models=models) as store:
        assert store.check().ok
        assert days_of(store, models[1])[date(2024, 3, 29)] == 1


def test_a_system_without_the_zone_leaves_what_others_maintain_alone(path: Path) -> None:
    def none(name: str) -> tzinfo:
        raise ZoneInfoNotFoundError(name)

    filled(path)
    sale, *_ = classes()
    rules_from(none)
    try:
        with (
            tm.open(path, models=[sale]) as store,
            pytest.raises(tm.SchemaMismatch, match=r"PerDay.*Europe/Oslo.*nothing was written"),
        ):
            store.insert(sale("x", BEGIN - timedelta(days=1)))
        with pytest.raises(tm.errors.InvalidQuery, match="pip install tzdata"):
            sale.at.date("Europe/Oslo")
    finally:
        rules_from(ZoneInfo)
    models = classes()
    with tm.open(path, models=models) as store:
        assert {one.state for one in store.status().objects} == {"ready"}
        assert days_of(store, models[1]) == days(OSLO)


def test_an_aggregate_that_shares_its_table_is_built_anew(path: Path, new_rules: Any) -> None:
    filled(path, shared="Sales")
    new_rules()
    models = classes(shared="Sales")
    sale, per_day, _ = models
    with sound_store(path, models=models) as store:
        assert store.query(sale).where(sale.shop == "x").count() == len(TIMES)
        assert {one.day: one.sales for one in store.query(per_day).allow_scan()} == days(HELSINKI) != days(OSLO)
        assert store.query(per_day.by_sales(69)).count() == list(days(HELSINKI).values()).count(69) > 0
        store.insert(sale("x", BEGIN - timedelta(days=400)))


def test_of_two_aggregates_in_one_table_that_is_built_anew_whose_rules_have_changed(path: Path, new_rules: Any) -> None:
    filled(path, more=True)
    new_rules()
    models = classes(more=True)
    with sound_store(path, models=models, build=False) as store:
        assert {one.where: one.state for one in store.status().objects if one.where != "Sale"} == {
            "PerDay": "disabled", "PerDay.by_sales": "disabled", "PerMonth": "ready"
        }  # fmt: skip
        assert store.query(models[2]).count() > 0
        assert store.build().done
        assert days_of(store, models[1]) == days(HELSINKI)


# ---------------------------------------------------------------------------------------------- two systems


def of_oslo(store: tm.Store) -> set[str]:
    return {one.state for one in store.status().objects if one.where.startswith("PerDay")}


def test_older_rules_leave_what_newer_ones_made_alone(path: Path, new_rules: Any) -> None:
    new_rules("2031b")
    filled(path)
    rules_from(ZoneInfo, "2031a")
    models = classes()
    sale, per_day, per_month = models
    for _ in range(2):
        with tm.open(path, models=models) as older:
            with pytest.raises(
                tm.SchemaMismatch,
                match=r"PerDay is maintained by newer \(2031b\) rules of Europe/Oslo than this system has",
            ):
                older.insert(sale("x", BEGIN - timedelta(days=1)))
            with pytest.raises(tm.NotReady, match="update the time zones of this system, or call store.repair()"):
                older.get(per_day.key("x", BEGIN.date()))
            assert older.query(sale).where(sale.shop == "x").count() == len(TIMES)
            assert older.query(per_month).count() > 0
            assert of_oslo(older) == {"ready"}
    new_rules("2031b")
    models = classes()
    with sound_store(path, models=models, build=False) as newer:
        assert of_oslo(newer) == {"ready"}  # (nobody has touched it)
        assert days_of(newer, models[1]) == days(HELSINKI)
        newer.insert(models[0]("x", BEGIN - timedelta(days=1)))


def test_repair_gives_up_what_newer_rules_made(path: Path, new_rules: Any) -> None:
    new_rules("2031b")
    filled(path)
    rules_from(ZoneInfo, "2031a")
    models = classes()
    with sound_store(path, models=models) as store:
        assert repaired(store).ok
        assert days_of(store, models[1]) == days(OSLO)
        store.insert(models[0]("x", BEGIN - timedelta(days=1)))
    new_rules("2031b")
    models = classes()
    with tm.open(path, models=models) as store:
        assert days_of(store, models[1])[date(2024, 3, 30)] == days(HELSINKI)[date(2024, 3, 30)]


@pytest.mark.parametrize(("before", "now"), [("2031a", "2031b"), ("2031a", "2031a"), ("2031b", ""), ("", "2031a")])
def test_what_is_opened_last_builds_if_its_release_is_not_known_to_be_older(
    path: Path, new_rules: Any, before: str, now: str
) -> None:
    rules_from(ZoneInfo, before)
    filled(path)
    new_rules(now)
    models = classes()
    with sound_store(path, models=models) as store:
        assert days_of(store, models[1]) == days(HELSINKI)


def test_a_release_is_that_of_the_folder_that_has_the_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    for folder, zone in ((first, "Europe/Oslo"), (second, "Europe/Paris"), (third, "Asia/Tokyo")):
        (folder / zone).parent.mkdir(parents=True)
        (folder / zone).touch()
    (first / "tzdata.zi").write_text("# version 2024a-dirty\n")
    (second / "+VERSION").write_text("2025b\n")
    monkeypatch.setattr("zoneinfo.TZPATH", (str(first), str(second), str(third)))
    monkeypatch.setitem(sys.modules, "tzdata", SimpleNamespace(IANA_VERSION="2023c"))
    releases = [release(zone) for zone in ("Europe/Oslo", "Europe/Paris", "Asia/Tokyo", "Asia/Seoul")]
    assert releases == ["2024a", "2025b", "", "2023c"]
    monkeypatch.setitem(sys.modules, "tzdata", None)
    assert release("Asia/Seoul") == ""


def test_a_fingerprint_differs_only_if_an_offset_does(new_rules: Any) -> None:
    assert fingerprint("Europe/Oslo") != fingerprint("Africa/Cairo")
    assert fingerprint("Etc/GMT-1") != fingerprint("Etc/GMT-2")
    assert fingerprint("Etc/UTC") == fingerprint("Etc/GMT")
    oslo, tokyo = fingerprint("Europe/Oslo"), fingerprint("Asia/Tokyo")
    rules_from(lambda name: ZoneInfo.no_cache(name))
    assert fingerprint("Europe/Oslo") == oslo
    new_rules()
    assert (fingerprint("Europe/Oslo") == oslo, fingerprint("Asia/Tokyo") == tokyo) == (False, True)


def test_a_class_that_holds_nothing_may_have_another_zone(path: Path) -> None:
    models = classes()
    tm.open(path, models=models).close()

    def other(zone: str) -> Any:
        sale = sold(key=tm.Key[str](partition="{shop}"))
        members = {"day": (date, tm.group_by(sale.at.date(zone))), "sales": (int, tm.count())}
        return sale, aggregate("PerDay", sale, members, tm.Key[date](partition="{day}"))

    for zone in ("Asia/Tokyo", "Europe/Oslo", "America/Lima"):
        sale, per_day = other(zone)
        with sound_store(path, models=[sale, per_day]) as store:
            store.insert(sale(zone, BEGIN))
            assert store.query(per_day).allow_scan().count() == 1


# ---------------------------------------------------------------------------------------------- what is gone


def ever(shared: str) -> Any:
    """Return classes with measures that hold values of deleted entities."""
    sale = sold({"price": int})
    measures = {"total": (int, tm.sum(sale.price)), "top": (int | None, tm.max(sale.price))}
    measures["top_ever"] = int | None, tm.max_ever(sale.price)
    by_top = tm.Index[str, int](partition="{shop}", row="{top_ever}")
    at_two = tm.max_ever(sale.price, of=sale, where=sale.at.truncate("%H", "Europe/Oslo") == "02")
    members, key = {"shop": str, "at_two": (int | None, at_two)}, tm.Key[str](partition="{shop}")
    shop = entity("Shop", "Shops", members, key, by_two=tm.Index[int](partition="{at_two}"))
    return sale, daily(sale, shared, measures, by_top=by_top), shop


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("shared", ["PerDay", "Sales"])
def test_what_ever_measures_hold_of_entities_that_are_gone_outlives_new_rules(
    path: Path, new_rules: Any, shared: str, at_once: bool
) -> None:
    sale, per_day, shop = models = ever(shared)
    night = datetime(2024, 3, 29, 1, 30, tzinfo=UTC)  # 02:30 in Oslo
    with tm.open(path, models=models) as store:
        store.insert_many(sale("x", at, 5) for at in TIMES)
        gone = {night: 77, TIMES[80] + timedelta(seconds=1): 99}
        store.insert_many([shop("x"), *[sale("x", at, price) for at, price in gone.items()]])
        store.delete_many(sale.key("x", at) for at in gone)
        before = {one.day: one.top_ever for one in store.query(per_day).where(per_day.shop == "x")}
        assert sorted(before.values())[-2:] == [77, 99]
        assert store[shop.key("x")].at_two == 77
    new_rules()
    models = sale, per_day, shop = ever(shared)
    with sound_store(path, models=models, build=at_once) as store:
        if not at_once:
            assert store.check().ok, store.check()
            store.insert(sale("x", TIMES[-1] + timedelta(hours=1), 5))
            while not store.build(limit=40).done:
                store.insert(sale("x", BEGIN - timedelta(days=1, seconds=store.check().entities), 3))
                assert store.check().ok, store.check()
        found = {one.day: one for one in store.query(per_day).where(per_day.shop == "x")}
        live = Counter(one.at.astimezone(HELSINKI).date() for one in store.query(sale).where(sale.shop == "x"))
        assert {day: one.sales for day, one in found.items() if one.sales} == live
        assert {day: found[day].top_ever for day in before} == before
        assert [one.top_ever for one in store.query(per_day.by_top("x"))][-2:] == [77, 99]
        assert store[shop.key("x")].at_two == 77
        assert [one.shop for one in store.query(shop.by_two(77))] == ["x"]
