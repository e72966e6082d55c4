"""Remedies that are pasted help, with data whose values are spread badly; and what only the data shows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.statistics import PartitionCount, Statistics, partitions_of
from tablemapper.entities.declaration import declaration_of
from tablemapper.guidance import data_rules

from .test_advisor import advice, classes, entity, pasted

START = datetime(2026, 1, 1, tzinfo=UTC)
MANY = 1_000


def skewed(number: int) -> dict[str, Any]:
    """Return the fields of an entity of one minute: of ten, nine have the same values but for the moment and the number."""
    often = number % 10 != 0
    return {
        "name": "often" if often else f"n{number % 7}",
        "number": 0 if often else number,
        "at": START + timedelta(milliseconds=number),
        "day": date(2026, 1, 1),
        "on": often,
    }


KEYS = [
    # code, key
    ("TM001", 'partition="all", row=("{name}", "{at}")'),
    ("TM001", 'partition="all", row=("{name}", "{on}", "{id}")'),
    ("TM002", 'partition="{at:%Y-%m-%d}", row=("{name}", "{on}", "{at}")'),
    ("TM002", 'partition="{at:%Y-%m-%d}", row=("{at:%H:%M:%S.%L}", "{number:06d}")'),
    ("TM002", 'partition="{day}", row="{at:desc}"'),
    ("TM002", 'partition="{day}", row=("{name}", "{id}")'),
    ("TM003", 'partition="{on}", row=("{name}", "{number}", "{at}")'),
]


def made(thing: Any, fields: dict[str, Any]) -> Any:
    (color, *_) = thing.color.type.enum
    return thing(color=color, size="s", **fields)


def largest_share(source: str, **more: Callable[[int], Any]) -> float:
    """Return how much of the entities the largest partition has."""
    (thing,) = [one for one in classes(source) if one.__name__ == "Thing"]
    with tm.open(":memory:", models=[thing]) as store:
        fields = (skewed(n) | {name: make(n) for name, make in more.items()} for n in range(MANY))
        store.insert_many(made(thing, one) for one in fields)
        found = store.statistics(thing)
        return found.partitions.largest[0].entities / found.entities


@pytest.mark.parametrize(("code", "key"), KEYS)
def test_a_remedy_spreads_data_of_which_most_are_alike(code: str, key: str) -> None:
    source = entity(f"key = tm.Key({key})")
    assert largest_share(source) > 0.85
    (one,) = [one for one in advice(source) if one.code == code]
    assert one.declaration is not None
    assert largest_share(pasted(source, "Thing.key", one.declaration)) < 0.15


@pytest.mark.parametrize("alike", ["name", "number"])
@pytest.mark.parametrize("code", ["TM001", "TM003"])
def test_two_fields_spread_what_one_of_them_does(code: str, alike: str) -> None:
    partition = {"TM001": "all", "TM003": "{on}"}[code]
    source = entity(f'key = tm.Key(partition="{partition}", row=("{{name}}", "{{number}}"))')
    (one,) = [one for one in advice(source) if one.code == code]
    values: dict[str, Callable[[int], Any]] = {"name": lambda n: f"n{n}", "number": lambda n: n, "on": lambda _: True}
    values[alike] = {"name": lambda _: "a", "number": lambda _: 1}[alike]
    assert largest_share(pasted(source, "Thing.key", str(one.declaration)), **values) < 0.35


# ------------------------------------------------------------------------------------------- what only the data shows


class Invoice(tm.Entity, table="Invoices"):
    number: tm.Field[str]

    key = tm.Key[str](partition="{number}")


class SpreadInvoice(tm.Entity, table="Spread"):
    number: tm.Field[str]

    key = tm.Key[str](partition=("{number:shard(16)}", "{number}"))


def ulid(number: int) -> str:
    return f"01JC{number // 20:06d}{random.Random(number).randrange(10**6):06d}"


GROWING: list[tuple[str, Callable[[int], str]]] = [
    ("an int with zeros", lambda n: f"{n:06d}"),
    ("seconds", lambda n: str(1_790_000_000 + n)),
    ("a ULID", ulid),
    ("a day and a number", lambda n: f"2026-{n // 400 + 1:02d}-{n // 40 % 10:02d}-{n % 40:03d}"),
    ("in reverse order", lambda n: f"{10**6 - n}"),
]
OTHERS: list[tuple[str, Callable[[int], str]]] = [
    ("random", lambda n: f"{random.Random(n).random():.12f}"),
    ("of ten customers that take turns", lambda n: f"c{n % 10}-{n:06d}"),
]


def written(make: Callable[[int], str], cls: type[Invoice | SpreadInvoice] = Invoice) -> tuple[Any, Statistics]:
    with tm.open(":memory:", models=[cls]) as store:
        for number in range(1_200):
            store.insert(cls(make(number)))
        for number in range(0, 1_200, 40):  # (some are written again)
            store.upsert(cls(make(number)))
        return store.advise(), store.statistics(cls)


@pytest.mark.parametrize(("name", "make"), GROWING, ids=[name for name, _ in GROWING])
def test_partitions_that_are_written_in_order_are_seen_from_the_data(name: str, make: Callable[[int], str]) -> None:
    (one,), _ = written(make)
    assert (one.code, one.level, one.where) == ("TM002", "note", "Invoice.key")
    assert abs(one.evidence["order"]) > 0.9
    assert ("the first" in one.consequence) == (name == "in reverse order")
    assert one.declaration == 'key = tm.Key[str](partition=("{number:shard(16)}", "{number}"))'
    mended, statistics = written(make, SpreadInvoice)
    assert mended == ()
    assert abs(statistics.partitions.write_order or 0) < 0.2


@pytest.mark.parametrize(("name", "make"), OTHERS, ids=[name for name, _ in OTHERS])
def test_partitions_that_are_written_in_no_order_get_none(name: str, make: Callable[[int], str]) -> None:
    found, statistics = written(make)
    assert found == ()
    assert abs(statistics.partitions.write_order or 0) < 0.3


def test_a_load_in_the_order_of_keys_is_no_growth() -> None:
    with tm.open(":memory:", models=[Invoice]) as store:
        store.insert_many(Invoice(f"{number:06d}") for number in range(3_000))
        assert store.advise() == ()


def test_a_time_that_is_not_that_of_writing_gets_no_advice() -> None:
    (thing,) = classes(entity('key = tm.Key(partition="{day}", row="{number}")'))

    def codes(day: Callable[[int], int]) -> list[str]:
        with tm.open(":memory:", models=[thing]) as store:
            for number in range(1_200):
                fields = skewed(number) | {"day": date(1990, 1, 1) + timedelta(days=day(number)), "number": number}
                store.insert(made(thing, fields))
            return [one.code for one in store.advise() if one.code != "TM004"]

    assert codes(lambda number: random.Random(number).randrange(9_000)) == []
    assert codes(lambda number: number) == ["TM002"]


class User(tm.Entity, table="Users"):
    country: tm.Field[str]
    id: tm.Field[int]
    status: tm.Field[str] = tm.field(default="a")

    key = tm.Key[str, int](partition="{country}", row="{id}")
    by_status = tm.Index[str](partition="{status}")


def test_few_partitions_of_a_text_are_seen_from_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_rules, "_MANY", 2_000)
    monkeypatch.setattr(data_rules, "_MOMENTS", 50)
    with tm.open(":memory:", models=[User]) as store:
        store.insert_many(User("de" if n % 10 else f"c{n % 3}", n, "ab"[n % 2]) for n in range(2_000))
        for number in range(1_000):
            store.upsert(User("de", number))
        hot, index, few = sorted(store.advise(), key=lambda one: (one.code != "TM102", one.where))
    assert (hot.code, hot.where) == ("TM102", "User.key")
    assert (
        hot.declaration
        == few.declaration
        == 'key = tm.Key[str, int](partition=("{country}", "{id:shard(16)}"), row="{id}")'
    )
    assert (few.code, few.level, few.where) == ("TM003", "warning", "User.key")
    assert few.problem.endswith("entities are in 4 partitions")
    assert (index.code, index.level, index.where) == ("TM003", "note", "User.by_status")
    assert (
        index.declaration == 'by_status = tm.Index[str](partition=("{status}", "{country:shard(4)}", "{id:shard(4)}"))'
    )
    assert "partitions: 2, largest share: " in str(index)


# ------------------------------------------------------------------------------------------------------ write order


def write_order(times: Iterator[int]) -> float | None:
    counts = (PartitionCount(f"{at:07d}", 1, 1, newest=time) for at, time in enumerate(times))
    return partitions_of(counts, declaration_of(Invoice).partition, 3)[0].write_order


def test_the_order_of_writes_is_a_rank_correlation() -> None:
    rng = random.Random(1)
    times = [rng.randrange(1, 10**9) if rng.random() < 0.3 else at for at in range(1, 1_001)]
    pairs = [(times[b] > times[a]) - (times[b] < times[a]) for b in range(1_000) for a in range(b)]
    assert write_order(iter(times)) == pytest.approx(sum(pairs) / sum(map(abs, pairs)))
    assert write_order(iter(times[:999])) is None
    assert write_order(iter(range(1, 100_001))) == 1.0
    assert write_order(iter(range(100_000, 0, -1))) == -1.0
    assert abs(write_order(rng.randrange(1, 10**9) for _ in range(50_000)) or 1) < 0.1
    week = 7 * 86_400_000_000
    assert write_order(iter(range(1, week + 31, week // 29 + 1))) == 1.0
    assert write_order(iter(range(1, week - 31, week // 40))) is None
    assert write_order(iter([5] * 2_000)) is None
    assert write_order(iter([0] * 2_000)) is None
