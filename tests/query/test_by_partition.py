"""Partitions that are read one by one: their rows the other way than they, or others between them that are passed over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm

from ..conftest import rows_at_most
from ..touched import touching

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


class Line(tm.Entity, table="Lines"):
    """Newest first in each month, months in order."""

    service: tm.Field[str]
    at: tm.Field[datetime]
    level: tm.Field[int]

    key = tm.Key[str, datetime](partition=("{service}", "{at:%Y-%m}"), row="{at:desc}")
    by_level = tm.Index[int, datetime, str](partition=("{level}", "{at:%Y-%m}"), row=("{at:desc}", "{service}"))


class Reading(tm.Entity, table="Readings"):
    """A device's partitions lie among those of devices whose names begin so."""

    device: tm.Field[str]
    at: tm.Field[datetime]
    n: tm.Field[int]

    key = tm.Key[str, datetime](partition="{device}-{at:%Y-%m-%d}", row="{at:%H:%M:%S.%f}")


SERVICES = ["web", "we", "web !x", "a"]
DEVICES = ["sensor", "sensor-1", "sensor-2026", "sensor-2026-01-02", "sensor-abc", "senso", "s"]
LINES = [
    Line(service, START + n * 9 * DAY + timedelta(hours=len(service)), n % 3) for service in SERVICES for n in range(14)
]
READINGS = [
    Reading(device, START + n * timedelta(hours=7), n % 3) for device in DEVICES for n in range(len(device) % 3, 14)
]


@pytest.fixture(scope="module")
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Line, Reading]) as opened:
        opened.insert_many(LINES)
        opened.insert_many(READINGS)
        yield opened


MOMENTS = st.integers(-1, 15).map(lambda n: START + n * 9 * DAY)


@pytest.mark.needs("backward")
@given(
    services=st.lists(st.sampled_from(SERVICES), min_size=1, max_size=3),
    since=st.none() | MOMENTS,
    until=st.none() | MOMENTS,
    level=st.none() | st.integers(0, 2),
    either=st.none() | st.tuples(MOMENTS, MOMENTS),
    down=st.booleans(),
)
def test_newest_first_and_oldest_first_are_what_a_sort_gives(
    store: tm.Store,
    services: list[str],
    since: datetime | None,
    until: datetime | None,
    level: int | None,
    either: tuple[datetime, datetime] | None,
    down: bool,
) -> None:
    query = store.query(Line).where(Line.service.is_in(services))
    lines = [line for line in LINES if line.service in services]
    if since is not None:
        query, lines = query.where(Line.at >= since), [line for line in lines if line.at >= since]
    if until is not None:
        query, lines = query.where(Line.at < until), [line for line in lines if line.at < until]
    if level is not None:
        query, lines = query.where(Line.level == level), [line for line in lines if line.level == level]
    if either is not None:
        query = query.where((Line.at < either[0]) | (Line.at > either[1]))
        lines = [line for line in lines if line.at < either[0] or line.at > either[1]]
    query = query.order_by(Line.at.desc() if down else Line.at)
    wanted = sorted([line.at for line in lines], reverse=down)
    assert query.explain().sort == ()
    whole = list(query)
    assert [line.at for line in whole] == wanted
    assert query.count() == len(wanted)
    assert query.first() == (whole[0] if whole else None)
    assert list(query.limit(3)) == whole[:3]
    assert [line for page in islice(query.pages(2), 99) for line in page.items] == whole
    assert list(query.budget(examined=1000)) == whole
    assert [at for (at,) in query.select(Line.at)] == query.columns()["at"] == wanted


def newest(store: tm.Store) -> Any:
    return store.query(Line).where(Line.service == "web").order_by(Line.at.desc())


@pytest.mark.file
def test_the_newest_of_a_log_are_read_alone() -> None:
    with touching() as touched, tm.open(":memory:", models=[Line]) as store:
        store.insert_many(LINES)
        query = newest(store).limit(3)
        assert touched(lambda: list(query))["Lines"] <= 3 + 4
        assert len(touched.statements) <= 2 * 3
        assert query.explain().sort == ()


@pytest.mark.needs("backward")
def test_an_explanation_says_both_ways(store: tm.Store) -> None:
    explained = newest(store).explain()
    assert str(explained).startswith("reads Line.key, partitions backwards, rows forwards\n")
    assert "\n  partition by partition\n" in str(explained)
    assert not any("TEMP B-TREE" in line for line in explained.database)
    data = explained.to_dict()
    assert (data["descending"], data["rows_descending"], data["by_partition"]) == (True, False, True)
    oldest = store.query(Line).where(Line.service == "web").order_by(Line.at)
    assert str(oldest.explain()).startswith("reads Line.key, partitions forwards, rows backwards\n")


@pytest.mark.needs("backward")
def test_an_index_is_followed_both_ways_as_well(store: tm.Store) -> None:
    query = store.query(Line.by_level(1)).order_by(Line.at.desc())
    assert query.explain().sort == ()
    wanted = sorted([line.at for line in LINES if line.level == 1], reverse=True)
    assert [line.at for line in query] == wanted
    assert [line.at for page in islice(query.pages(3), 99) for line in page.items] == wanted


@pytest.mark.needs("backward")
def test_a_loop_over_partitions_reads_one_state(tmp_path: Any) -> None:
    with tm.open(tmp_path / "s.db", models=[Line]) as store:
        store.insert_many(LINES)
        wanted = list(newest(store))
        reading = iter(newest(store))
        found = [next(reading)]
        store.delete_many(store.query(Line).allow_scan())
        assert found + list(reading) == wanted


@pytest.mark.needs("backward")
async def test_it_can_be_awaited(store: tm.Store, tmp_path: Any) -> None:
    async with await tm.open_async(tmp_path / "a.db", models=[Line]) as other:
        await other.insert_many(LINES)
        query = other.query(Line).where(Line.service == "web").order_by(Line.at.desc())
        assert [line async for line in query.limit(5)] == list(newest(store).limit(5))


# ---------------------------------------------------------------------------------------------- others between


@pytest.mark.needs("backward")
@given(
    device=st.sampled_from(DEVICES),
    since=st.none() | st.integers(-1, 15),
    n=st.none() | st.integers(0, 2),
    down=st.none() | st.booleans(),
    parts=st.integers(1, 4),
)
def test_what_lies_between_partitions_is_passed_over(
    store: tm.Store, device: str, since: int | None, n: int | None, down: bool | None, parts: int
) -> None:
    query = store.query(Reading).where(Reading.device == device)
    wanted = [one for one in READINGS if one.device == device]
    if since is not None:
        moment = START + since * timedelta(hours=7)
        query, wanted = query.where(Reading.at >= moment), [one for one in wanted if one.at >= moment]
    if n is not None:
        query, wanted = query.where(Reading.n == n), [one for one in wanted if one.n == n]
    assert not any("device" in one for one in query.explain().filter)
    assert sorted([one.at for part in query.split(parts) for one in part]) == [one.at for one in wanted]
    if down is not None:
        query = query.order_by(Reading.at.desc() if down else Reading.at)
    assert query.explain().sort == ()
    whole = list(query)
    assert [one.at for one in whole] == sorted([one.at for one in wanted], reverse=bool(down))
    assert query.count() == len(wanted) <= rows_at_most(query)
    assert query.exists() is bool(wanted)
    assert [one for page in islice(query.pages(2), 99) for one in page.items] == whole
    assert query.columns()["at"] == [one.at for one in whole]


@pytest.mark.file
@pytest.mark.parametrize("down", [False, True])
def test_rows_of_others_are_not_read(down: bool) -> None:
    with touching() as touched, tm.open(":memory:", models=[Reading]) as store:
        store.insert_many(READINGS)
        for n in range(50):
            store.insert_many(Reading(f"sensor-{n}", START + m * timedelta(minutes=1), m) for m in range(100))
        query = store.query(Reading).where(Reading.device == "sensor").order_by(*[Reading.at.desc()] * down)
        assert touched(lambda: list(query))["Readings"] <= 14 + 4 * 60
        assert query.explain().rows == 14
        touched(lambda: list(query.limit(3)))
        assert touched.visits["Readings"] <= 3 + 3 * 60


class Fault(tm.Entity, table="Readings"):
    device: tm.Field[str]
    at: tm.Field[datetime]
    text: tm.Field[str]

    key = tm.Key[str, datetime, str](partition="{device}-{at:%Y-%m-%d}", row=("fault", "{text}"))


@pytest.mark.needs("backward", when=lambda backwards: backwards)
@pytest.mark.parametrize("backwards", [False, True])
def test_several_classes_pass_over_the_same(backwards: bool) -> None:
    with tm.open(":memory:", models=[Reading, Fault]) as store:
        store.insert_many(READINGS)
        store.insert_many(Fault(device, START + n * DAY, "x") for device in DEVICES for n in range(3))
        query = store.query(Reading, Fault).where(Reading.device == "sensor")
        query = query.backwards() if backwards else query
        whole = list(query)
        assert {one.device for one in whole} == {"sensor"}
        assert len(whole) == query.count() == 3 + sum(one.device == "sensor" for one in READINGS)
        keys = [tm.info(one)[:2] for one in whole]
        assert keys == sorted(keys, reverse=backwards)
        assert [one for page in islice(query.pages(2), 99) for one in page.items] == whole
        assert sorted([tm.info(one)[:2] for part in query.split(3) for one in part]) == sorted(keys)


@pytest.mark.needs("backward")
def test_an_entity_with_several_rows_comes_once_where_rows_are_turned() -> None:
    class Post(tm.Entity, table="Posts"):
        number: tm.Field[int]
        at: tm.Field[datetime]
        tags: tm.Field[list[str]]

        key = tm.Key[int](partition="{number}")
        by_tag = tm.Index[datetime, str](partition="{at:%Y-%m}", row=("{at:desc}", "{tags}"))

    with tm.open(":memory:", models=[Post]) as store:
        store.insert_many(Post(n, START + n * 9 * DAY, ["a", "b", "c"][: n % 4]) for n in range(12))
        query = store.query(Post.by_tag()).order_by(Post.at.desc())
        assert query.explain().plan.turned
        wanted = [n for n in reversed(range(12)) if n % 4]
        assert [post.number for post in query] == wanted
        assert [post.number for page in islice(query.pages(2), 99) for post in page.items] == wanted


@pytest.mark.needs("sorts")
def test_a_sort_leaves_out_what_lies_between(store: tm.Store) -> None:
    query = store.query(Reading).where(Reading.device == "sensor").order_by(Reading.n.desc())
    assert query.explain().sort == ("n descending",)
    own = [one.n for one in READINGS if one.device == "sensor"]
    assert [one.n for one in query] == sorted(own, reverse=True)
    assert query.limit(3).count() == 3
    assert store.query(Reading).where(Reading.device == "senso").min(Reading.n) == 0


def test_several_devices_are_filtered(store: tm.Store) -> None:
    query = store.query(Reading).where(Reading.device.is_in(["sensor", "sensor-2026"]))
    assert len(list(query)) == sum(one.device in ("sensor", "sensor-2026") for one in READINGS)
    assert "sensor" in "".join(query.explain().filter)
