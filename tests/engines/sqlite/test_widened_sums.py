"""A field that a sum is over can be None from now on: a program without that sum maintains it, and older ones read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ...classes import entity, grouped


class Sale(tm.Entity, table="Sales"):
    shop: tm.Field[str]
    number: tm.Field[int]
    price: tm.Field[int]

    key = tm.Key[str, int](partition="{shop}", row="{number}")


Takings = grouped(
    "Takings", Sale, "shop", total=tm.sum(Sale.price), twice=tm.sum(Sale.price * 2), numbers=tm.sum(Sale.number)
)


def loose() -> Any:
    key = tm.Key[str, int](partition="{shop}", row="{number}")
    return entity("Sale", "Sales", {"shop": str, "number": int, "price": int | None}, key)


def test_a_program_without_a_sum_writes_fields_that_can_be_none_now(tmp_path: Path) -> None:
    new = loose()
    with tm.open(tmp_path / "s.db", models=[Sale, Takings]) as older:
        older.insert(Sale("a", 1, 5))
        with tm.open(tmp_path / "s.db", models=[new]) as newer:
            newer.insert(new("a", 2, 7))
            newer.insert(new("a", 3, None))
            older.insert(Sale("a", 4, 9))
            found = older[Takings.key("a")]
            assert (found.total, found.twice, found.numbers) == (21, 42, 10)
            newer.insert(new("b", 1, None))
            with pytest.raises(tm.SchemaMismatch, match="(total|twice) is None, which this version does not know"):
                older.get(Takings.key("b"))
            assert newer.check().ok
