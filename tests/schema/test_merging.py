"""Deltas of groups that come in any order."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import pytest

import tablemapper as tm
from tablemapper.schema.aggregate_model import Delta
from tablemapper.schema.maintenance import AggregateMaintenance, Groups, aggregate_maintenance
from tablemapper.schema.model import compile_schema
from tablemapper.schema.slots import State

from .test_aggregate_model import Daily, Reading

SCHEMA = compile_schema([Reading, Daily])
MODEL = SCHEMA.by_class[Reading]
DAILY: AggregateMaintenance = aggregate_maintenance(MODEL, SCHEMA.by_class[Daily])
GROUPS = DAILY.aggregate
VALUES = (0.1, 1e16, -3.5, math.inf, 5e-324)
PRICES = (None, Decimal("1.10"), Decimal("2E+3"))


def reading(rng: random.Random, number: int) -> Reading:
    at = datetime(2026, 1, 1, 0, number, tzinfo=UTC)
    note = rng.choice([None, "x"])
    return Reading("a", at, rng.choice(VALUES), rng.choice([1, 2]), rng.choice(PRICES), timedelta(number), note)


def delta(old: Reading | None, new: Reading | None) -> Delta:
    groups: Groups = {}
    for entity, sign in ((old, -1), (new, 1)):
        if entity is not None:
            DAILY.collect((MODEL.to_row(entity),), groups, sign)
    (only,) = groups.values()
    return only


class Kept:
    """A group as it is kept: its state, and how often each value is there."""

    def __init__(self) -> None:
        self.state: State | None = None
        self.counts: dict[int, dict[Any, int]] = {}

    def merge(self, change: Delta) -> None:
        change = GROUPS.unpack_delta(GROUPS.pack_delta(change))
        for slot in GROUPS.counted_slots:
            counts = self.counts.setdefault(slot, {})
            for value, more in change[slot + 1].items():
                counts[value] = counts.get(value, 0) + more
        state = None if self.state is None else GROUPS.unpack_signed(GROUPS.pack(self.state))
        self.state = GROUPS.merge(state, change, self.seek)

    def seek(self, slot: int, end: Literal["min", "max"]) -> Any:
        live = [value for value, count in self.counts[slot].items() if count > 0]
        return (min if end == "min" else max)(live, default=None)


@pytest.mark.parametrize("seed", range(50))
def test_deltas_lead_to_the_same_state_in_each_order(seed: int) -> None:
    rng = random.Random(seed)
    changes, live = [], dict[int, Reading]()
    for _ in range(12):
        number = rng.randrange(4)
        new = None if number in live and rng.random() < 0.4 else reading(rng, number)
        changes.append(delta(live.pop(number, None), new))
        if new is not None:
            live[number] = new
    expected: State | None = None
    counts: dict[int, dict[Any, int]] = {slot: {} for slot in GROUPS.counted_slots}

    def seek(slot: int, end: Literal["min", "max"]) -> Any:
        values = [value for value, count in counts[slot].items() if count > 0]
        return (min if end == "min" else max)(values, default=None)

    for change in changes:
        for slot, of_slot in counts.items():
            for value, more in change[slot + 1].items():
                of_slot[value] = of_slot.get(value, 0) + more
        expected = GROUPS.combine(expected, change, seek)
    for _ in range(5):
        kept = Kept()
        for change in rng.sample(changes, len(changes)):
            kept.merge(change)
        assert kept.state == (GROUPS.empty() if expected is None else expected)


def test_a_group_that_is_at_zero_for_a_while_loses_nothing() -> None:
    one = Reading("a", datetime(2026, 1, 1, tzinfo=UTC), 0.5)
    kept = Kept()
    kept.merge(delta(one, one.replace(value=2.5)))  # (the change arrives before the insertion)
    assert kept.state is not None
    assert kept.state[0] == 0
    assert kept.state != GROUPS.empty()
    kept.merge(delta(None, one))
    assert DAILY.row("a", "2026-01-01", 1, kept.state)[3:] == DAILY.row("a", "2026-01-01", 1, _alone(2.5))[3:]


def _alone(value: float) -> State:
    kept = Kept()
    kept.merge(delta(None, Reading("a", datetime(2026, 1, 1, tzinfo=UTC), value)))
    assert kept.state is not None
    return kept.state


@pytest.mark.parametrize("blob", [b"", b"\x91\xc3", b"\x00", b"\xff" * 9])
def test_a_damaged_delta_is_said(blob: bytes) -> None:
    for unpack in (GROUPS.unpack_delta, GROUPS.unpack_signed):
        with pytest.raises(tm.CorruptStore, match="Daily"):
            unpack(blob)
