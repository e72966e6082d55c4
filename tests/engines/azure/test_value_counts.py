"""How often each value of a group is there: in its row, and in pages."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.cross_partition import remote_groups, value_counts
from tablemapper.engines.azure.cross_partition.value_counts import ValueCounts
from tablemapper.engines.azure.tables.entity_json import values_in
from tablemapper.engines.azure.tables.reserved_names import PAGES
from tablemapper.engines.azure.tables.service import GetEntity
from tablemapper.progress import start_meter

from ...classes import aggregate
from ...stores import repaired
from .memory import Memory
from .place import AzurePlace

KEY = ("red", "team")
SLOTS: dict[int, list[Any]] = {0: [n / 4 for n in range(60)], 2: [f"{n:03}" for n in range(40)]}


class Held:
    """The rows of a group, and what it has by a plain count."""

    def __init__(self) -> None:
        self.packed = b""
        self.pages: dict[str, dict[str, Any]] = {}
        self.counts = {slot: Counter[Any]() for slot in SLOTS}
        self.read = 0

    def add(self, more: dict[int, dict[Any, int]], room: int = 50) -> ValueCounts:
        """Add changes as an engine does: only the pages that are needed are read."""
        values = ValueCounts(KEY, self.packed)
        for key, number in values.pages_of(more).items():
            values.take(number, self.pages.get(key))
            self.read += 1
        values.add(more)
        values.settle(room)
        changes = values.changes()
        assert len(changes) <= room
        for one in changes:
            if one.kind == "delete":
                del self.pages[one.row]
            else:
                self.pages[one.row] = dict(one.members)
        self.packed = values.packed()
        for slot, of_slot in more.items():
            self.counts[slot].update(of_slot)
        return values

    def agrees(self) -> None:
        values = ValueCounts(KEY, self.packed)
        for slot, counted in self.counts.items():
            live = [value for value, count in counted.items() if count > 0]
            assert values.end(slot, "min") == min(live, default=None)
            assert values.end(slot, "max") == max(live, default=None)
        assert values.pages.keys() == self.pages.keys()
        for key, number in values.pages.items():
            values.take(number, self.pages[key])
        assert {slot: of for slot, of in values.counts().items() if of} == {
            slot: {value: count for value, count in of.items() if count}
            for slot, of in self.counts.items()
            if any(of.values())
        }


def played(seed: int) -> tuple[int, int]:
    """Add random changes, also such that come before what they take away; return how many pages there were, and were read."""
    draw, held, most = random.Random(seed), Held(), 0
    for step in range(120):
        grows = 0.75 if step < 70 else 0.3
        more: dict[int, dict[Any, int]] = {}
        for _ in range(draw.choice([1, 1, 2, 9])):
            slot = draw.choice(list(SLOTS))
            some = SLOTS[slot]
            live = [value for value, count in held.counts[slot].items() if count > 0]
            if draw.random() < grows or not live:
                value, count = draw.choice(some), draw.choice([1, 1, 2])
            else:
                ends = [min(live), max(live)]
                value, count = draw.choice([*ends, draw.choice(live), draw.choice(some)]), -draw.choice([1, 1, 2])
            of_slot = more.setdefault(slot, {})
            of_slot[value] = of_slot.get(value, 0) + count
        held.add(more, draw.choice([0, 1, 3, 50]))
        held.agrees()
        most = max(most, len(held.pages))
    held.add({slot: {value: -count for value, count in of.items()} for slot, of in held.counts.items()})
    held.agrees()
    return most, held.read


def test_random_changes_give_the_ends_that_a_plain_count_gives(full_size: bool) -> None:
    results = [played(seed) for seed in range(2_000 if full_size else 20)]
    assert max(most for most, _ in results) > 8
    assert min(most for most, _ in results) > 2


def test_changes_find_pages_where_there_is_room_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_ROW", 1_000), ("_PAGE", 2_000)):
        monkeypatch.setattr(value_counts, name, size)
    held, numbers, most = Held(), [n / 3 for n in range(12_000)], 0
    random.Random(1).shuffle(numbers)
    for at in range(0, len(numbers), 60):
        held.add({slot: dict.fromkeys(numbers[at : at + 60], 1) for slot in SLOTS}, 2)
        most = max(most, len(held.packed))
    held.agrees()
    assert len(held.pages) > 50
    assert most < 100_000  # (of some 250,000)


# ---------------------------------------------------------------------------------------------- what a user sees


class Reading(tm.Entity, table="Readings"):
    device: tm.Field[str]
    number: tm.Field[int]
    value: tm.Field[float]
    note: tm.Field[str]

    key = tm.Key[str, int](partition="{device}", row=("reading", "{number}"))


ENDS: dict[str, Any] = {
    "device": (str, tm.group_by(Reading.device)),
    "least": (float | None, tm.min(Reading.value)),
    "most": (float | None, tm.max(Reading.value)),
    "last": (str | None, tm.max(Reading.note)),
}
Device = aggregate("Device", Reading, ENDS, tm.Key[str](partition="{device}", row="device"), "Readings")
"""In the partition of its entities."""
Whole = aggregate("Whole", Reading, ENDS, tm.Key[str](partition="all", row="{device}"), "Wholes")
"""Elsewhere."""
AGGREGATES: list[Any] = [Device, Whole]


class Racing(Memory):
    """A service in which others do something just before a page is read for the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], object] | None = None

    def send(self, request: Any, *wait: float) -> Any:
        if isinstance(request, GetEntity) and request.row.startswith(PAGES[0]) and self.before is not None:
            before, self.before = self.before, None
            before()
        return super().send(request)

    def opened(self, *models: Any) -> tm.Store:
        return tm.open(AzurePlace(memory=self, still=True), models=[Reading, *models])  # type: ignore[arg-type]

    def pages(self) -> list[tuple[str, tuple[str, str]]]:
        found = [(name, key) for name, table in self.tables.items() for key in table]
        return [(name, key) for name, key in found if PAGES[0] <= key[1] < PAGES[1]]


@pytest.fixture
def racing(monkeypatch: pytest.MonkeyPatch) -> Racing:
    for name, size in (("_ROW", 300), ("_PAGE", 400)):
        monkeypatch.setattr(value_counts, name, size)
    return Racing()


def some_readings(count: int, seed: int = 0) -> list[Reading]:
    numbers = list(range(count))
    random.Random(seed).shuffle(numbers)
    return [Reading("a", at, number / 3, f"{number:04}") for at, number in enumerate(numbers)]


def agrees(store: tm.Store, cls: Any, left: Sequence[Reading]) -> None:
    group = store.get(cls.key("a"))
    if not left:
        assert group is None
        return
    values = [one.value for one in left]
    assert (group.least, group.most, group.last) == (min(values), max(values), max(one.note for one in left))


@pytest.mark.parametrize("cls", AGGREGATES)
def test_a_group_of_many_values_shows_the_ends_of_those_that_are_there(racing: Racing, cls: Any) -> None:
    store, draw, left = racing.opened(cls), random.Random(1), some_readings(400)
    store.insert_many(left)
    agrees(store, cls, left)
    assert len(racing.pages()) > 20
    while left:
        ends = [min(left, key=lambda one: one.value), max(left, key=lambda one: one.note)]
        for gone in {one.number: one for one in [*ends, *draw.sample(left, min(len(left), 5))]}.values():
            left.remove(gone)
            store.delete(Reading.key("a", gone.number))
        if left and draw.random() < 0.3:
            changed = draw.choice(left)
            changed.value = draw.choice([-1.0, 2.0, 1e6])
            store.upsert(changed)
        agrees(store, cls, left)
    assert store.check().ok
    assert racing.pages() == []


@pytest.mark.parametrize("cls", AGGREGATES)
def test_what_takes_away_no_end_reads_and_writes_the_row_alone(racing: Racing, cls: Any) -> None:
    store, readings = racing.opened(cls), some_readings(200)
    store.insert(Reading("b", 0, 1.0, "b"))
    before = len(racing.sent)
    store.insert(Reading("b", 1, 2.0, "b"))
    few = len(racing.sent) - before
    store.insert_many(readings)
    counts = Counter[int]()
    for at in range(20):
        before = len(racing.sent)
        store.insert(Reading("a", 1000 + at, 20.5 + at / 7, "0100"))
        counts[len(racing.sent) - before - few] += 1
    assert counts[0] > 10
    assert max(counts) <= 3 * 16


@pytest.mark.parametrize("cls", AGGREGATES)
def test_a_page_that_others_drop_meanwhile_is_no_fault(racing: Racing, cls: Any) -> None:
    store, other, left = racing.opened(cls), racing.opened(cls), some_readings(120)
    store.insert_many(left)

    def drop() -> None:
        for one in left:
            other.delete(Reading.key("a", one.number))
        assert racing.pages() == []

    racing.before = drop
    while racing.before is not None:  # (until what has changed is much, so that it goes to pages)
        one = Reading("a", len(left), 20.5 + len(left) / 7, "0100")
        store.insert(one)
        left.append(one)
    agrees(store, cls, left[-1:])
    assert store.check().ok


@pytest.mark.parametrize("cls", AGGREGATES)
def test_a_page_that_is_lost_is_found_and_made_again(
    racing: Racing, cls: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store, left = racing.opened(cls), some_readings(120)
    store.insert_many(left)
    left.sort(key=lambda one: one.value)
    for table, key in racing.pages():
        del racing.tables[table][key]
    if cls is Device:
        with pytest.raises(tm.CorruptStore, match=r"a page of the values of a group is not there; call store\.repair"):
            store.delete(Reading.key("a", left[0].number))
        assert store.get(Reading.key("a", left[0].number)) is not None
    else:
        store.delete(Reading.key("a", left.pop(0).number))
        assert "is left to sweep(): ('all', 'a'): a page of the values of a group is not there" in caplog.text
    assert any(problem.where == f"{cls.__name__} values" for problem in store.check().problems)
    report = repaired(store)
    assert all("call store.sweep()" in problem.detail for problem in report.remaining), str(report)
    racing.ahead += 120
    store.sweep()
    agrees(store, cls, left)
    assert store.check().ok


@pytest.mark.parametrize("cls", AGGREGATES)
def test_a_large_group_is_made_again(racing: Racing, cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_VALUES", "_MOST_VALUES"):
        monkeypatch.setattr(remote_groups, limit, 16_000)  # (of which the values would take more)
    store, left = racing.opened(cls), some_readings(500 if cls is Device else 1_500)
    store.insert_many(left)
    assert len(racing.pages()) > 30
    engine: Any = store._engine
    if cls is Device:
        table, key = racing.pages()[3]
        del racing.tables[table][key]
        assert not store.check().ok
        assert repaired(store).ok
    else:
        engine._build_anew({"Whole"}, start_meter(False, ""))
    agrees(store, cls, left)
    assert store.check().ok
    rows = [row for one in racing.tables for row in racing.entities(one) if values_in(row)]
    (group,) = [row for row in rows if not PAGES[0] <= row["RowKey"] < PAGES[1]]
    named = ValueCounts((group["PartitionKey"], group["RowKey"]), values_in(group)).pages
    assert {key[1] for _, key in racing.pages()} == named.keys()


def test_a_transaction_without_room_for_pages_is_written_all_the_same(racing: Racing) -> None:
    store, readings = racing.opened(Device), some_readings(98)
    with store.transaction() as tx:
        for one in readings:
            tx.insert(one)
    assert racing.pages() == []
    agrees(store, Device, readings)
    store.insert(Reading("a", 1000, -1.0, ""))
    assert len(racing.pages()) > 3
    agrees(store, Device, [*readings, Reading("a", 1000, -1.0, "")])
    assert store.check().ok
