"""Advice from what a store holds: who gets it, who does not, what is pasted, and what silences it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.cli.app import Exit, run
from tablemapper.engines.statistics import PartitionStatistics, PartitionSummary, Quantiles, Statistics
from tablemapper.guidance import data_rules
from tablemapper.guidance.advisor import advise_schema
from tablemapper.schema.model import compile_schema

from ..classes import grouped
from .test_advisor import GOOD, classes, entity

pytestmark = pytest.mark.file


def part(key: str, entities: int, writes: int = 0) -> PartitionStatistics:
    return PartitionStatistics(key, {"name": key}, entities, entities * 100, writes, None)


def held(
    *parts: PartitionStatistics,
    number: int = 10,
    busiest: int = 0,
    order: float | None = None,
    sizes: Quantiles | None = None,
) -> Statistics:
    """Return statistics of a class with these partitions, and small ones beside them."""
    entities, writes = sum(one.entities for one in parts), sum(one.writes for one in parts)
    found = PartitionSummary(number, Quantiles(), parts, parts[0], tuple([one for one in parts if one.writes]), order)
    return Statistics(
        "Thing", datetime(2026, 1, 1), entities, entities * 100, entities * 100, sizes or Quantiles(), ("a", "1"), found, writes,
        busiest, None, {},
    )  # fmt: skip


CASES: list[tuple[str, str, Statistics, Statistics]] = [
    ("TM101", "note", held(part("a", 60_000), part("b", 40_000)), held(part("a", 50_000), part("b", 50_000))),
    ("TM101", "note", held(part("a", 60_000), part("b", 40_000)), held(part("a", 60_000), part("b", 40_000), number=9)),
    ("TM101", "warning", held(part("a", 10_000_001), number=1), held(part("a", 10_000_000), number=1)),
    ("TM102", "note", held(part("a", 9, 600), part("b", 9, 400)), held(part("a", 9, 500), part("b", 9, 500))),
    ("TM102", "note", held(part("a", 9, 600), part("b", 9, 400)), held(part("a", 9, 600), part("b", 9, 399))),
    ("TM102", "warning", held(part("a", 9, 3_000), busiest=1_000), held(part("a", 9, 3_000), busiest=999)),
    ("TM102", "warning", held(part("a", 9, 3_000), busiest=1_000, number=9), held(part("a", 9, 3_000), busiest=999, number=9)),
    ("TM002", "note", held(part("a", 9), order=0.8), held(part("a", 9), order=0.79)),
    ("TM002", "note", held(part("a", 9), order=-0.8), held(part("a", 9), order=-0.79)),
    ("TM003", "warning", held(part("a", 100_000), number=9), held(part("a", 99_999), number=9)),
    ("TM003", "warning", held(part("a", 100_000), number=1), held(part("a", 50_000), part("b", 50_000), number=10)),
    ("TM104", "note", held(part("a", 9), sizes=Quantiles(max=524_289)), held(part("a", 9), sizes=Quantiles(max=524_288))),
    ("TM104", "note", held(part("a", 9), sizes=Quantiles(p99=65_537)), held(part("a", 9), sizes=Quantiles(p99=65_536))),
]  # fmt: skip


@pytest.mark.parametrize(("code", "level", "gets", "neighbour"), CASES)
def test_a_store_gets_it_its_neighbour_does_not_and_what_is_pasted_compiles(
    code: str, level: str, gets: Statistics, neighbour: Statistics
) -> None:
    schema = compile_schema(classes(entity()))
    assert [one for one in advise_schema(schema, lambda _: neighbour) if one.code == code and one.level == level] == []
    (one,) = [one for one in advise_schema(schema, lambda _: gets) if one.code == code]
    assert (one.level, one.where) == (level, "Thing" if code == "TM104" else "Thing.key")
    assert one.evidence
    if one.declaration is not None:
        (better,) = classes(entity(one.declaration))
        assert "n" in better.key("n", 5)[1]
    accepting = compile_schema(classes(entity(accept=f', accept={{"{code}": "so be it"}}')))
    assert [one for one in advise_schema(accepting, lambda _: gets) if one.code == code] == []


def test_a_time_in_the_rows_divides_a_partition() -> None:
    schema = compile_schema(classes(entity('key = tm.Key(partition="{name}", row=("{at}", "{number}"))')))
    (one,) = advise_schema(schema, lambda _: held(part("a", 10_000_001)))
    assert one.declaration is not None
    assert 'partition=("{name}", "{at:%Y-%m}")' in one.declaration
    classes(entity(one.declaration))


class Thing(tm.Entity, table="Things"):
    name: tm.Field[str]
    number: tm.Field[int]
    tags: tm.Field[list[int]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="all", row=("{name}", "{number}"))
    by_tag = tm.Index[int](partition="{tags}")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "things.py").write_text(
        "import tablemapper as tm\n\nclass Thing(tm.Entity, table='Things'):\n    name: tm.Field[str]\n"
        "    number: tm.Field[int]\n    tags: tm.Field[list[int]] = tm.field(factory=list)\n"
        "    key = tm.Key[str, int](partition='all', row=('{name}', '{number}'))\n"
        "    by_tag = tm.Index[int](partition='{tags}', accept={'TM106': 'few'})\n"
    )
    with tm.open("things.db", models=[Thing]) as store:
        store.insert_many(Thing("a", number, list(range(number))) for number in range(51))
    return "things.db"


def test_the_numbers_of_the_store_stand_in_the_advice(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tm.open(place, models=[Thing]) as store:
        one, two = store.advise()
        assert (one.code, one.level, one.where) == ("TM001", "note", "Thing.key")  # (it is small)
        assert one.evidence["entities"] == 51
        assert "  entities: 51, partitions: 1, writes of late: 1" in str(one)
        assert (two.code, two.where, two.evidence) == ("TM106", "Thing.by_tag", {"most": 50, "key": "all a !b50"})  # fmt: skip
        monkeypatch.setattr(data_rules, "_SMALL", 51)
        assert [one.level for one in store.advise() if one.code == "TM001"] == ["warning"]


def test_a_partition_of_the_newest_gets_the_numbers_too_and_stays_a_warning() -> None:
    schema = compile_schema(classes(entity('key = tm.Key(partition="{day}", row="{number}")')))
    (one,) = advise_schema(schema, lambda _: held(part("a", 30), number=1))
    assert (one.code, one.level) == ("TM002", "warning")
    assert one.evidence == {"entities": 30, "partitions": 1, "writes": 0, "busiest": 0}


def test_the_line_behind_the_code_is_about_what_is_pasted() -> None:
    def last(where: str, declaration: str) -> str:
        one = tm.reports.Advice("TM001", "note", where, "a", "b", "c", declaration)
        return str(one).splitlines()[-2]

    assert "needs a migration" in last("Thing.key", 'key = tm.Key[str](partition="{name}")')
    assert "is built while" in last("Thing", 'by_on = tm.Index[bool](partition="{on}")')
    assert last("Thing.key", "id: tm.Field[UUID] = tm.field(factory=tm.uuid7)").startswith("      id: ")


async def advice_of(place: str) -> tuple[tm.reports.Advice, ...]:
    async with tm.open_async(place, models=[Thing]) as store:
        return await store.advise()


def test_it_is_the_same_without_models_observed_and_under_asyncio(place: str) -> None:
    import asyncio

    events: list[tm.Event] = []
    with tm.open(place, models=[Thing], observe=events.append) as store:
        wanted = store.advise()
    assert [event.verb for event in events] == ["advise"]
    with tm.open(place, read_only=True) as store:
        assert store.advise() == wanted
    assert asyncio.run(advice_of(place)) == wanted


def test_an_aggregate_and_a_class_that_is_not_ready_are_left_out(place: str) -> None:
    Total = grouped("Total", Thing, "name", "Totals", n=tm.count())
    with tm.open(place, models=[Thing, Total], build=False) as store:
        assert [one.code for one in store.advise()] == ["TM001", "TM106"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: Exit) -> str:
    assert run(arguments) == code, capsys.readouterr()
    return "".join(capsys.readouterr())


def test_the_command_advises_on_models_on_a_store_and_on_both(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    static = printed(capsys, "advise", "--models", "things", code=Exit.FINDINGS)
    assert static.startswith("TM001 warning  Thing.key: every entity")
    of_file = printed(capsys, "advise", place, code=Exit.OK)
    assert of_file.startswith("judged without the models: ")
    assert "TM106 note" in of_file
    both = json.loads(printed(capsys, "advise", place, "--models", "things", "--json", code=Exit.OK))
    assert both["ok"] is True
    assert [(one["code"], one["evidence"]["entities"]) for one in both["advice"]] == [("TM001", 51)]
    assert "name the models" in printed(capsys, "advise", code=Exit.USAGE)


def test_the_command_counts_every_class_or_says_all_of_one(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "stats", place, code=Exit.OK).splitlines()
    assert lines[0].split()[:3] == ["class", "entities", "partitions"]
    assert lines[1].split()[:3] == ["Thing", "51", "1"]
    assert "51 entities in 1 partition" in printed(capsys, "stats", place, "Thing", code=Exit.OK)
    told: dict[str, Any] = json.loads(printed(capsys, "stats", place, "--json", code=Exit.OK))
    assert told["statistics"][0]["entities"] == 51
    assert "no class 'Thong' in this store; there are Thing" in printed(
        capsys, "stats", place, "Thong", code=Exit.USAGE
    )


def test_good_classes_get_none() -> None:
    some = held(part("a", 20_000), part("b", 20_000))
    assert advise_schema(compile_schema(classes(entity(GOOD))), lambda _: some) == ()
    assert attrs.evolve(some, recent=timedelta(0)).recent == timedelta(0)
