"""Statistics of random stores are what plain Python counts, and of one state beside a writer."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.counted_statistics import count
from tablemapper.engines.statistics import Sizes
from tablemapper.limits import entity_size
from tablemapper.progress import start_meter
from tablemapper.schema.maintenance import index_columns, index_maintenance
from tablemapper.schema.model import model_of

from ..classes import grouped
from .answers import Trial, random_rows
from .random_models import random_model, with_levels, with_maintained, with_undeclared

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")


def recount(store: tm.Store, cls: Any) -> None:
    """Compare the statistics of a class with what its entities say, and with those of an engine that has none."""
    found = store.statistics(cls, top=2)
    model = model_of(cls)
    with start_meter(False, "") as meter:
        assert attrs.evolve(count(store._engine, model, found.recent, 2, meter), at=found.at) == found
    entities = list(store.query(cls).allow_scan())
    rows = [model.to_row(entity) for entity in entities]
    sizes = [tm.size(entity) for entity in entities]
    assert (found.entities, found.bytes) == (len(entities), sum(sizes))
    _spread(found.sizes, sizes, within=0.12)
    _parts(found.partitions, [(row[0], size) for row, size in zip(rows, sizes, strict=True)])
    times = [tm.info(entity).timestamp for entity in entities]
    assert found.newest == (max(times) if times else None)
    recent = {time for time in times if time >= found.at - timedelta(hours=1)}
    assert found.writes == len(recent)
    assert found.busiest == max(Counter(time.replace(microsecond=0) for time in recent).values(), default=0)
    total = found.bytes
    for name, index in found.indexes.items():
        part = model.index(name)
        columns = index_columns(model, part)
        lines = index_maintenance(model, part).rows(rows)
        of_lines = [_index_size(line, columns) for line in lines]
        assert (index.rows, index.bytes) == (len(lines), sum(of_lines)), name
        _parts(index.partitions, [(line[0], size) for line, size in zip(lines, of_lines, strict=True)])
        if part.fan_out is not None:
            assert index.max_rows == max(Counter(line[2:4] for line in lines).values(), default=0)
        total += index.bytes
    assert found.total_bytes == total


def _index_size(line: tuple[Any, ...], columns: Iterable[Any]) -> int:
    included: list[Any] = []
    for field, value in zip(columns, line[4:], strict=True):
        if value is not None and field.type.undeclared:
            included += [_property(name, one) for name, one in field.type.load(value).items()]
        else:
            included.append((field.property, field.type.edm, value))
    return entity_size(line[0], line[1], [("_pk", "String", line[2]), ("_rk", "String", line[3]), *included])


def _property(name: str, value: Any) -> tuple[str, Any, Any]:
    edm = {str: "String", bytes: "Binary", bool: "Boolean", float: "Double", int: "Int64"}.get(type(value))
    return name, edm or {"Int32Value": "Int32", "UUID": "Guid", "datetime": "DateTime"}[type(value).__name__], value


def _spread(found: tm.reports.Quantiles, numbers: list[int], within: float = 0.0) -> None:
    ordered = sorted(numbers)
    if not ordered:
        assert found == tm.reports.Quantiles()
        return
    assert (found.min, found.max) == (ordered[0], ordered[-1])
    assert found.mean == sum(ordered) / len(ordered)
    for part, one in ((50, found.p50), (95, found.p95), (99, found.p99)):
        assert one == pytest.approx(ordered[-(-len(ordered) * part // 100) - 1], rel=within, abs=0)


def _parts(found: tm.reports.PartitionSummary, rows: list[tuple[str, int]]) -> None:
    numbers = Counter(key for key, _ in rows)
    assert found.number == len(numbers)
    _spread(found.entities, list(numbers.values()))
    assert [one.key for one in found.largest] == sorted(numbers, key=lambda key: (-numbers[key], key))[:2]
    for one in found.largest:
        assert (one.entities, one.bytes) == (numbers[one.key], sum(size for key, size in rows if key == one.key))
    smallest = min(numbers, key=lambda key: (numbers[key], key), default=None)
    assert (found.smallest and found.smallest.key) == smallest


@pytest.mark.needs("kept_indexes", when=lambda part: part % 2)
@pytest.mark.parametrize("part", range(4))
def test_statistics_of_random_stores_are_those_that_python_counts(part: int, full_size: bool) -> None:
    counted = 0
    for seed in range(part * 1_000, part * 1_000 + (200 if full_size else 3)):
        rng = random.Random(seed)
        model = with_undeclared(rng, random_model(rng))
        if part % 2:
            model = with_maintained(rng, with_levels(rng, model))
        rows = tuple((record.name, row) for record in model.entities for row in random_rows(rng, record, 14))
        with Trial.open(model, late=False, rows=rows) as trial:
            for record in model.records:
                cls = trial.names[record.name]
                recount(trial.store, cls)
                counted += 1
    assert counted > 2


class Wide(tm.Entity, table="Wides"):
    group: tm.Field[str]
    name: tm.Field[str]
    text: tm.Field[str | None] = tm.field(default=None)
    blob: tm.Field[bytes | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, str](partition="{group}", row="{name}")
    by_tag = tm.Index[str](partition="{tags}", include="all")


class Narrow(tm.Entity, table="Wides"):
    group: tm.Field[str]
    number: tm.Field[int]

    key = tm.Key[str, int](partition="{group}", row=("narrow", "{number}"))


TEXTS = ["", "a", "é", "\U0001f600", "a\U0001f600é" * 500, "x" * 30_000, "\u0001\u007f"]


def test_texts_of_all_planes_large_values_and_classes_of_one_table(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[Wide, Narrow]) as store:
        for number, text in enumerate(TEXTS):
            extra = tm.Extra(note=text, data=text.encode()[:60_000], part=number)
            store.insert(Wide(f"g{number % 3}é", text[:50], text, text.encode()[:60_000], [text[:9], "all"], extra))
            store.insert(Narrow(f"g{number % 3}é", number))
        recount(store, Wide)
        recount(store, Narrow)
        assert store.statistics(Wide).largest_key == ("g2é", "x" * 50)
        assert store.statistics(Narrow).largest_key is None


def test_an_empty_class_has_zeros(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[Wide, Narrow]) as store:
        found = store.statistics(Wide)
        assert (found.entities, found.bytes, found.total_bytes, found.newest) == (0, 0, 0, None)
        assert (found.partitions, found.sizes) == (tm.reports.PartitionSummary(), tm.reports.Quantiles())
        assert str(found) == "Wide  no entities"
        assert found.price() == 0


@pytest.mark.file
def test_statistics_are_of_one_state_beside_a_writer(tmp_path: Path) -> None:
    ended = threading.Event()
    with tm.open(tmp_path / "s.db", models=[Wide, Narrow], durability="relaxed") as store:

        def write() -> None:
            number = 0
            while not ended.is_set():
                number += 1
                store.upsert(Wide("g", "one", "x" * (number % 50), tags=["a"] * (number % 2)))
                # (So many that a slow count does not let it grow for ever.)
                one, text = str(number % 200), "x" * (number % 7)
                with store.transaction(across_partitions=True) as tx:
                    tx.upsert(Wide("a", one, text, tags=["b"]))
                    tx.upsert(Wide("z", one, text, tags=["b"]))

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(20):
                found = store.statistics(Wide)
                parts = {one.key: one for one in found.partitions.largest}
                if "a" in parts:
                    assert (parts["a"].entities, parts["a"].bytes) == (parts["z"].entities, parts["z"].bytes)
                    assert found.indexes["by_tag"].rows - 2 * parts["a"].entities in (0, 1)
        finally:
            ended.set()
            thread.join()


@pytest.mark.needs("one_commit")
def test_a_partition_has_its_moments_and_a_bulk_load_has_few(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[Narrow, Wide], durability="relaxed") as store:
        store.insert_many(Narrow("bulk", number) for number in range(2_000))
        for number in range(30):
            store.insert(Narrow("single", number))
        found = store.statistics(Narrow)
        assert [one.key for one in found.partitions.hottest] == ["single", "bulk"]
        assert found.partitions.hottest[0].writes == 30
        assert found.partitions.hottest[0].values == {"group": "single"}
        assert found.writes < 40
        assert "single  30 writes in the last hour" in str(found)
        old = store.statistics(Narrow, recent=timedelta(0))
        assert (old.writes, old.busiest, old.partitions.hottest) == (0, 0, ())


def test_sizes_are_counted_within_a_cell_of_an_eighth_of_an_octave() -> None:
    for size in (4, 5, 1_000, 65_535, 65_536, 65_537, 70_001, 2**20, 2**20 - 1, 2**33):
        one, alone = Sizes(), Sizes()
        one.add(1), one.add(size), one.add(2**40), alone.add(size)
        assert one.quantiles(0).p50 == pytest.approx(size, rel=0 if size <= 65_536 else 0.0625, abs=0)
        assert (one.quantiles(0).min, one.quantiles(0).max, one.most) == (1, 2**40, 2**40)
        assert alone.quantiles(size) == tm.reports.Quantiles(size, *[alone.quantiles(size).p50] * 3, size, size)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"recent": 3}, "expected a timedelta, 0 or more"),
        ({"recent": timedelta(-1)}, "expected a timedelta, 0 or more"),
        ({"top": -1}, "expected a number, 0 or more"),
        ({"top": True}, "expected a number, 0 or more"),
    ],
)
def test_wrong_options_are_refused(options: Any, said: str) -> None:
    with tm.open(":memory:", models=[Wide, Narrow]) as store, pytest.raises(tm.InvalidQuery, match=said):
        store.statistics(Wide, **options)


@pytest.mark.file
def test_a_class_that_was_not_opened_and_one_that_is_built_are_refused(tmp_path: Path) -> None:
    Groups = grouped("Groups", Narrow, "group", n=tm.count())
    with tm.open(tmp_path / "s.db", models=[Narrow]) as store:
        store.insert_many(Narrow("a", number) for number in range(2_000))
        with pytest.raises(tm.InvalidEntity, match="Wide"):
            store.statistics(Wide)
    with tm.open(tmp_path / "s.db", models=[Narrow, Groups], build=False) as store:
        with pytest.raises(tm.NotReady, match="Groups"):
            store.statistics(Groups)
        store.build()
        assert store.statistics(Groups).entities == 1
