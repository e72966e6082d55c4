"""Ranges of keys that touch or overlap are united, and no key at an end is lost or read twice."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from functools import partial
from operator import methodcaller
from typing import Any

import pytest

import tablemapper as tm

KEYS = ["", "a", "aa", "ab", "b", "ba", "c"]


class Cell(tm.Entity, table="Cells"):
    p: tm.Field[str]
    r: tm.Field[str]

    key = tm.Key[str, str](partition="{p}", row="{r}")


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Cell]) as opened:
        opened.insert_many(Cell(p, r) for p in ("a", "b") for r in KEYS)
        yield opened


Range = tuple[Any, Callable[[str], bool]]


def ranges(field: Any) -> list[Range]:
    """Return conditions of each kind that is one range, each with what it says of a key."""
    conditions: list[Range] = []
    for end in ("a", "ab", "b"):
        conditions += [
            (field == end, partial(operator.eq, end)),
            (field.startswith(end), methodcaller("startswith", end)),
            (field < end, partial(operator.gt, end)),
            (field <= end, partial(operator.ge, end)),
            (field > end, partial(operator.lt, end)),
            (field >= end, partial(operator.le, end)),
        ]
    return [
        *conditions,
        ((field > "a") & (field <= "b"), lambda key: "a" < key <= "b"),
        ((field >= "a") & (field < "b"), lambda key: "a" <= key < "b"),
    ]


@pytest.mark.parametrize("several", [2, 3])
def test_ranges_of_a_partition_find_what_python_finds(store: tm.Store, several: int) -> None:
    for some in itertools.combinations(ranges(Cell.r)[:: several - 1], several):
        either = functools.reduce(operator.or_, [condition for condition, _ in some])
        query = store.query(Cell).where(Cell.p == "a", either)
        rows = [key for key in KEYS if any(matches(key) for _, matches in some)]
        assert [cell.r for cell in query] == rows, either
        assert query.count() == len(rows), either


def test_ranges_of_partitions_find_what_python_finds(store: tm.Store) -> None:
    for some in itertools.combinations(ranges(Cell.p), 2):
        query = store.query(Cell).where(some[0][0] | some[1][0]).allow_scan()
        partitions = [key for key in ("a", "b") if any(matches(key) for _, matches in some)]
        assert [(cell.p, cell.r) for cell in query] == [*itertools.product(partitions, KEYS)], query
