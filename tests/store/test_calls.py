"""How many functions a verb calls: what a class and names alone decide is not looked up again for each call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity, grouped

pytestmark = pytest.mark.file

PACKAGE = str(Path(tm.__file__).parent)


class Sale(tm.Entity, table="Sales"):
    shop: tm.Field[str]
    number: tm.Field[int]
    product: tm.Field[str]
    amount: tm.Field[int]

    key = tm.Key[str, int](partition="{shop}", row="{number}")
    by_product = tm.Index[str](partition="{product}")


Totals = grouped("Totals", Sale, "shop", sales=tm.count(), total=tm.sum(Sale.amount))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tm.Store]:
    with tm.open(tmp_path / "s.db", models=[Sale, Totals], durability="relaxed") as opened:
        yield opened


def called(work: Callable[[], object]) -> int:
    """Return how many functions of the package, and generated ones, a call calls.

    Comprehensions are no calls, as from Python 3.12 on.
    """
    found = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal found
        code = frame.f_code
        if event == "call" and code.co_filename.startswith((PACKAGE, "<")) and not code.co_name.endswith("comp>"):
            found += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


def calls(work: Callable[[], object]) -> int:
    """Return the least that several runs call after the first: now and then one looks at the clock, for example."""
    return min([called(work) for _ in range(5)][1:])


def test_an_insert_calls_few_functions(store: tm.Store) -> None:
    numbers = count()
    assert calls(lambda: store.insert(Sale("a", next(numbers), "x", 3))) <= 45


def test_a_merge_in_a_transaction_calls_few_functions(store: tm.Store) -> None:
    amounts = count()
    store.insert(Sale("a", 1, "x", 3))

    def merge() -> None:
        with store.transaction() as tx:
            tx.merge(Sale.key("a", 1), amount=next(amounts))

    assert calls(merge) <= 85
    assert store.check().ok


def test_opening_with_a_field_and_an_index_more_calls_few_functions(store: tm.Store, tmp_path: Path) -> None:
    Later = entity("Later", "Later", {"shop": str, "number": int}, tm.Key[str, int](partition="{shop}", row="{number}"))
    declared = Later

    class Later(tm.Entity, table="Later"):  # type: ignore[no-redef]
        shop: tm.Field[str]
        number: tm.Field[int]
        product: tm.Field[str | None] = tm.field(default=None)

        key = tm.Key[str, int](partition="{shop}", row="{number}")
        by_product = tm.Index[str](partition="{product}")

    with tm.open(tmp_path / "s.db", models=[Sale, Totals, declared]):
        pass
    opened: list[tm.Store] = []
    assert called(lambda: opened.append(tm.open(tmp_path / "s.db", models=[Sale, Totals, Later]))) <= 2_000
    opened[0].close()
