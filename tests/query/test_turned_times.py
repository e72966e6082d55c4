"""Ranges of times where a finer part of the key comes before a coarser one."""

from __future__ import annotations

import itertools
import operator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity

MIDNIGHT, DAY, MICROSECOND = datetime(2024, 2, 29, tzinfo=UTC), timedelta(days=1), timedelta(microseconds=1)
MOMENTS = [MIDNIGHT + days * DAY + more for days in range(3) for more in (-MICROSECOND, 0 * DAY, MICROSECOND, DAY / 2)]
LOWER, UPPER = {">=": operator.ge, ">": operator.gt}, {"<=": operator.le, "<": operator.lt}


@pytest.mark.parametrize(
    ("partition", "row"),
    [
        ("{at:%H:%M:%S.%f}x", "{at:%Y-%m-%d}"), ("{at:%M:%S.%f}", ("{at:%Y-%m-%d}", "{at:%H}")),
        ("{at:%H}", ("{at:%Y-%m-%d}", "{at:%M:%S.%f}")), ("{at:%d}", ("{at:%Y-%m}", "{at:%H:%M:%S.%f}")),
        ("{at:%Y-%m-%d}", "{at:%H:%M:%S.%f}"), ("{at:%m}", ("{at:%Y}", "{at:%d}", "{at:%H:%M:%S.%f}")),
        (("{at:%H}", "{at:%Y-%m-%d}"), "{at:%M:%S.%f}"), (("{at:%M}", "{at:%H}"), ("{at:%Y-%m-%d}", "{at:%S.%f}")),
        ("all", ("{at:%H:%M:%S.%f}", "{at:%Y-%m-%d}")),
    ],
)  # fmt: skip
def test_a_range_finds_what_python_finds(partition: str, row: str, *, full_size: bool) -> None:
    cls: Any = entity("Event", "Events", {"at": datetime}, tm.Key[datetime](partition=partition, row=row))
    with tm.open(":memory:", models=[cls]) as store:
        store.insert_many([cls(moment) for moment in MOMENTS])
        ranges = itertools.product(itertools.combinations(MOMENTS, 2), LOWER, UPPER)
        for (low, high), above, below in itertools.islice(ranges, 0, None, 1 if full_size else 5):
            query = store.query(cls).allow_scan().where(LOWER[above](cls.at, low), UPPER[below](cls.at, high))
            expected = [moment for moment in MOMENTS if LOWER[above](moment, low) and UPPER[below](moment, high)]
            assert sorted(event.at for event in query) == sorted(expected), (above, low, below, high)
            assert query.count() == len(expected)
