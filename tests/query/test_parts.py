"""Parts of a query: together they are the query, whoever reads them and where, and they are about as large as each other."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import grouped
from ..forks import in_child

START = datetime(2024, 2, 28, tzinfo=UTC)


class Reading(tm.Entity, table="Readings"):
    device: tm.Field[str]
    at: tm.Field[datetime]
    value: tm.Field[int] = tm.field(default=0)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    note: tm.Field[str] = tm.field(default="")

    key = tm.Key[str, datetime](partition="{device}", row="{at}")
    by_value = tm.Index[int](partition="{value}")
    by_tag = tm.Index[str](partition="{tags}")
    by_day = tm.Index[datetime, str](partition="{at:%Y-%m-%d}", row="{device}")
    alone = tm.Index[str, datetime](partition="{device}", row="{at:desc}", unique=True)


Total = grouped("Total", Reading, "device", "Totals", readings=tm.count())


def readings(count: int, *, note: str = "") -> Iterator[Reading]:
    rng = random.Random(count)
    for number in range(count):
        tags = sorted({f"t{rng.randrange(9)}" for _ in range(rng.randrange(4))})
        device = f"d{min(rng.randrange(40), 9):02d}"  # (three in four are of one device)
        yield Reading(device, START + timedelta(seconds=number), rng.randrange(5), tags, note)


@pytest.fixture(scope="module")
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Reading, Total]) as opened:
        opened.insert_many(readings(700))
        yield opened


def _queries(store: tm.Store) -> dict[str, tm.Query[Reading]]:
    every = store.query(Reading)
    return {
        "a scan": every.allow_scan(),
        "a filtered scan": every.where(Reading.value > 2).allow_scan(),
        "a partition": every.where(Reading.device == "d09"),
        "rows of a partition": every.where(Reading.device == "d09", Reading.at > START + timedelta(seconds=100)),
        "partitions": every.where(Reading.device.is_in(["d01", "d03", "d09", "d10"])),
        "an or": every.where((Reading.device == "d01") | ((Reading.device >= "d08") & (Reading.value == 3))),
        "days": every.where(Reading.at < START + timedelta(days=2)),
        "an index with one value": every.where(Reading.value == 4),
        "an index by name": store.query(Reading.by_value(2)),
        "an index from an edge on": store.query(Reading.by_value()).where(Reading.value > 1),
        "elements": every.where(Reading.tags.contains("t3")),
        "several elements": store.query(Reading.by_tag()).allow_scan(),
        "a unique index": store.query(Reading.alone("d09")),
        "one entity": every.where(
            Reading.device == "d09", Reading.at == next(iter(every.where(Reading.device == "d09"))).at
        ),
        "nothing": every.where(Reading.device == "none"),
    }


@pytest.mark.parametrize("count", [1, 2, 3, 8, 50])
def test_parts_are_together_the_query(store: tm.Store, count: int) -> None:
    for name, query in _queries(store).items():
        parts = query.split(count)
        assert len(parts) == count, name
        found = [(one.device, one.at) for part in parts for one in part]
        assert sorted(found) == sorted((one.device, one.at) for one in query), name
        assert len(found) == len(set(found)), name
        assert sum(part.count() for part in parts) == len(found), name


@pytest.mark.needs("backward", "sorts")
def test_a_part_is_read_in_every_way(store: tm.Store) -> None:
    for name, query in _queries(store).items():
        for part in query.split(3):
            held = list(part)
            assert part.exists() == bool(held), name
            assert part.first() == (held[0] if held else None), name
            assert sorted(part.select(Reading.at)) == sorted((one.at,) for one in held), name
            assert [one for page in part.pages(7) for one in page.items] == held, name
            assert [one.at for one in part.order_by(Reading.at.desc())] == sorted(
                (one.at for one in held), reverse=True
            )
            assert [one.at for one in part.where(Reading.value == 2)] == [one.at for one in held if one.value == 2]
            assert part.sum(Reading.value) == (sum(one.value for one in held) if held else None), name
            assert part.max(Reading.at) == max((one.at for one in held), default=None), name
            assert part.group_by(Reading.device).count() == {
                device: sum(one.device == device for one in held) for device in {one.device for one in held}
            }, name
            assert [*part.limit(2)] == held[:2]
            assert part.columns()["at"] == [one.at for one in held]
            assert len(list(part.budget(examined=10_000))) == len(held)


def test_a_part_is_split_further(store: tm.Store) -> None:
    for name, query in _queries(store).items():
        for part in query.split(3):
            smaller = [one.at for some in part.split(4) for one in some]
            assert sorted(smaller) == sorted(one.at for one in part), name
            assert len(part.split(4)) == 4


def test_what_one_key_of_an_index_leads_to_is_split_by_the_entities(store: tm.Store) -> None:
    sizes = [part.count() for part in store.query(Reading).where(Reading.value == 4).split(5)]
    assert min(sizes) > 0
    assert max(sizes) - min(sizes) <= 1
    part = store.query(Reading).where(Reading.value == 4).split(5)[2]
    assert "entities [('d0" in str(part.explain().ranges[0])


def test_tuples_are_split_as_entities_are(store: tm.Store) -> None:
    rows = store.query(Reading).where(Reading.value == 4).select(Reading.at, Reading.value)
    parts = rows.split(4)
    assert sorted(row for part in parts for row in part) == sorted(rows)


@pytest.mark.needs("fresh")
def test_a_total_of_a_part_is_of_the_part(store: tm.Store) -> None:
    query = store.query(Reading).allow_scan()
    assert dict(query.explain().totals) == {"count()": "Total"}
    part = query.split(2)[0]
    assert part.count() == len(list(part)) < query.count()
    assert part.explain().unfit == ("Total: this is a part of a query",)


def test_parts_say_which_rows_they_are_of(store: tm.Store) -> None:
    parts = store.query(Reading).where(Reading.device == "d09").split(2)
    assert re.fullmatch(r"<Query Reading, device == 'd09', part \[…, \('d09', '2024.*'\)\)>", repr(parts[0]))


# ---------------------------------------------------------------------------------------------- writers


def test_a_row_that_is_written_meanwhile_is_in_one_part() -> None:
    with tm.open(":memory:", models=[Reading]) as store:
        store.insert_many(readings(100))
        parts = store.query(Reading).allow_scan().split(4)
        new = [Reading(device, START - timedelta(days=1)) for device in ("", "a", "d05", "d09", "z", "\U0010ffff")]
        store.insert_many(new)
        store.delete_many(store.query(Reading).where(Reading.device == "d03"))
        found = [(one.device, one.at) for part in parts for one in part]
        assert sorted(found) == sorted((one.device, one.at) for one in store.query(Reading).allow_scan())


def test_a_part_is_updated_and_deleted_alone() -> None:
    with tm.open(":memory:", models=[Reading, Total]) as store:
        store.insert_many(readings(200))
        for query in (store.query(Reading).allow_scan(), store.query(Reading).where(Reading.value == 2)):
            first, second, third = query.split(3)
            others = {(one.device, one.at) for part in (first, third) for one in part}
            assert second.update(note="x") == second.count() > 0
            assert not any(one.note for part in (first, third) for one in part)
            assert second.delete() > 0
            assert {(one.device, one.at) for one in query} == others
            store.query(Reading).allow_scan().update(note="")
        assert store.check().ok


# ---------------------------------------------------------------------------------------------- balance


class Line(tm.Entity, table="Lines"):
    log: tm.Field[str]
    number: tm.Field[int]
    level: tm.Field[int]
    text: tm.Field[str]

    key = tm.Key[str, int](partition="{log}", row="{number}")
    by_level = tm.Index[int](partition="{level}")


MANY = 6_000


def lines(width: int) -> Iterator[Line]:
    for number in range(MANY):
        yield Line(f"log {max(number % 12 - 8, 0)}", number, number % 7, "n" * width)


@pytest.mark.needs("all_or_none_load")
@pytest.mark.parametrize("width", [0, 400, 3_000], ids=["short rows", "long rows", "rows moved aside"])
def test_parts_of_many_rows_are_as_large_as_each_other(tmp_path: Path, width: int) -> None:
    with tm.open(tmp_path / "t.db", models=[Line], durability="relaxed") as store:
        store.insert_many(lines(width), atomic=True)
        for query in (
            store.query(Line).allow_scan(),
            store.query(Line).where(Line.log == "log 0"),
            store.query(Line).where(Line.log.is_in(["log 0", "log 2", "log 3"]), Line.number > 100),
            store.query(Line).where(Line.level <= 3),
        ):
            for count in (2, 3, 7):
                sizes = [part.count() for part in query.split(count)]
                assert sum(sizes) == query.count()
                assert max(sizes) - min(sizes) <= 1, sizes


# ---------------------------------------------------------------------------------------------- workers


def _read(path: Path, token: str) -> str:
    with tm.open(path, models=[Reading, Total]) as store:
        return "\n".join(f"{one.device} {one.at}" for one in store.query(Reading).where(Reading.value <= 3).part(token))


@pytest.mark.file
def test_each_of_several_processes_reads_its_part(path: Path) -> None:
    with tm.open(path, models=[Reading, Total]) as store:
        store.insert_many(readings(2_000))
        query = store.query(Reading).where(Reading.value <= 3)
        expected = sorted(f"{one.device} {one.at}" for one in query)
        tokens = [part.token for part in query.split(2)]
    results = [in_child(lambda token=token: _read(path, token)).splitlines() for token in tokens]  # type: ignore[misc]
    assert all(results)
    assert sorted(itertools.chain(*results)) == expected


def test_a_token_is_good_for_its_query_only(store: tm.Store) -> None:
    query = store.query(Reading).where(Reading.value == 4)
    part = query.split(3)[1]
    assert list(query.part(part.token)) == list(part)
    assert list(part.part(query.split(3)[0].token)) == list(query.split(3)[0])
    page = query.page(2).token
    assert page is not None
    for other, token in (
        (store.query(Reading).where(Reading.value == 3), part.token),
        (query.select(Reading.at), part.token),
        (query, part.token[:-3] + "abc"),
        (query, page),
        (query, "x"),
    ):
        with pytest.raises(tm.InvalidToken):
            other.part(token)
    with pytest.raises(tm.InvalidToken, match="another query"):
        part.page(1, page)


def test_a_query_says_how_it_is_given_to_another_process(store: tm.Store) -> None:
    import pickle

    with pytest.raises(TypeError, match=r"to share the parts .* with another process, pass part\.token"):
        pickle.dumps(store.query(Reading))


async def test_tasks_split_queries_too(tmp_path: Path) -> None:
    async with await tm.open_async(tmp_path / "t.db", models=[Reading]) as store:
        await store.insert_many(list(readings(50)))
        query = store.query(Reading).allow_scan()
        parts = await query.split(3)
        assert sum([await part.count() for part in parts]) == 50
        assert await query.part(parts[1].token).list() == await parts[1].list()
        rows = await query.select(Reading.at).split(2)
        assert sum([len(await part.list()) for part in rows]) == 50


# ---------------------------------------------------------------------------------------------- several classes


class Order(tm.Entity, table="Orders"):
    customer: tm.Field[str]
    number: tm.Field[int]
    city: tm.Field[str]

    key = tm.Key[str, int](partition="{customer}", row=("order", "{number}"))
    by_city = tm.Index[str](partition="{city}")


class Draft(tm.Entity, table="Orders"):
    customer: tm.Field[str]
    title: tm.Field[str]

    key = tm.Key[str, str](partition="{customer}", row=("draft", "{title}"))


@pytest.fixture
def orders() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Order, Draft]) as opened:
        opened.insert_many(Order(f"c{n % 7}", n, "xyz"[n % 3]) for n in range(100))
        opened.insert_many(Draft(f"c{n % 5}", f"t{n}") for n in range(30))
        yield opened


@pytest.mark.parametrize("count", [1, 2, 5, 200])
@pytest.mark.parametrize(
    "query",
    [
        lambda both: both.allow_scan(),
        lambda both: both.where(Order.customer == "c3"),
        pytest.param(
            lambda both: both.where(Order.customer == "c3").backwards(), marks=pytest.mark.needs("backward"), id="back"
        ),
        pytest.param(  # along an index; no draft has one
            lambda both: both.where(Order.city == "x"), marks=pytest.mark.needs("sorts"), id="along an index"
        ),
        lambda both: both.where(Draft.title == "t7").allow_scan(),
        lambda both: both.where(Order.city == "x", Draft.title == "t7"),  # of no class
    ],
)
def test_parts_of_several_classes_are_each_result_once(orders: tm.Store, query: Any, count: int) -> None:
    whole = query(orders.query(Order, Draft))
    parts = whole.split(count)
    assert len(parts) == count
    expected = sorted(tm.info(one)[:2] for one in whole)
    assert sorted(tm.info(one)[:2] for part in parts for one in part) == expected
    assert sum(part.count() for part in parts) == whole.count() == len(expected)
    for part in parts:
        keys = [tm.info(one)[:2] for one in part]
        assert keys == sorted(keys, reverse="backwards" in query.__code__.co_names)
        assert [tm.info(one)[:2] for one in whole.part(part.token)] == keys
        assert [tm.info(one)[:2] for page in part.pages(3) for one in page.items] == keys


def test_a_part_of_several_classes_is_a_query_like_any_other(orders: tm.Store) -> None:
    whole = orders.query(Order, Draft).allow_scan()
    first, second = whole.split(2)
    assert {type(one) for part in (first, second) for one in part} == {Order, Draft}
    assert sum(part.where(Order.city == "x").count() for part in (first, second)) == 34
    assert [len(list(part)) for part in first.split(2)] != [0, 0]
    for wrong in (
        first.token[:-4],
        first.where(Order.customer == "c1").token,
        orders.query(Order).allow_scan().split(1)[0].token,
    ):
        with pytest.raises(tm.InvalidToken):
            whole.part(wrong)


def test_what_several_classes_have_no_parts_of_is_refused(orders: tm.Store) -> None:
    both = orders.query(Order, Draft).allow_scan()
    with pytest.raises(tm.InvalidQuery, match="split: expected a whole number, 1 or more, got 0"):
        both.split(0)
    with pytest.raises(tm.InvalidQuery, match="split: parts have no common limit"):
        both.limit(3).split(2)
    with pytest.raises(tm.InvalidQuery, match="split: parts have no common order"):
        both.order_by(Order.customer).split(2)
    with pytest.raises(tm.InvalidQuery, match=r"this is a whole query; split\(count\) returns parts"):
        _ = both.token
    with pytest.raises(tm.ScanRefused):
        orders.query(Order, Draft).split(2)


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "4", None])
def test_a_number_of_parts_that_is_none_is_refused(store: tm.Store, count: Any) -> None:
    with pytest.raises(tm.InvalidQuery, match=r"split: expected a whole number, 1 or more, got"):
        store.query(Reading).allow_scan().split(count)


def test_a_limit_and_an_order_have_no_parts(store: tm.Store) -> None:
    query = store.query(Reading).allow_scan()
    with pytest.raises(tm.InvalidQuery, match="split: parts have no common limit; split a query without a limit"):
        query.limit(3).split(2)
    with pytest.raises(tm.InvalidQuery, match="split: parts have no common order; split a query without an order"):
        query.order_by(Reading.value).split(2)


def test_a_scan_that_is_not_allowed_is_not_split(store: tm.Store) -> None:
    with pytest.raises(tm.ScanRefused):
        store.query(Reading).where(Reading.note == "x").split(2)


def test_a_whole_query_has_no_token(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidQuery, match=r"this is a whole query; split\(count\) returns parts"):
        _ = store.query(Reading).allow_scan().token
