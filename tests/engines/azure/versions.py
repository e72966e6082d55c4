"""Two versions of a program, the newer of which has an index and totals more."""

from __future__ import annotations

from typing import Any

import tablemapper as tm

from ...classes import aggregate, entity

Kinds = list[type[tm.Record]]


def items(**indexes: Any) -> list[Any]:
    """Return what both versions have, and more indexes."""
    members = {
        "shop": str,
        "number": int,
        "color": (str | None, tm.field(default=None)),
        "size": (float, tm.field(default=0.0)),
        "code": (str | None, tm.field(default=None)),
        "nick": (str | None, tm.field(default=None)),
    }
    key = tm.Key[str, int](partition="{shop}", row=("item", "{number}"))
    by_shade = tm.Index[str, int](partition="{color}", row="{number}")
    item = entity("Item", "Items", members, key, by_shade=by_shade, **indexes)
    shades = {"color": (str, tm.group_by(item.color)), "items": (int, tm.count())}
    return [item, aggregate("Shades", item, shades, tm.Key[str](partition="{color}"))]


def old() -> Kinds:
    """Return the classes of the older version."""
    return items()


def new() -> Kinds:
    """Return the classes of the newer version."""
    Item, Shades = items(
        by_color=tm.Index[str, float](partition="{color}", row="{size}", include=("size",)),
        by_size=tm.Index[str, float](partition="{shop}", row="{size}", include=("color",)),
        by_code=tm.Index[str](partition="{code}", row="holder", unique=True),
        by_nick=tm.Index[str, str](partition="{shop}", row="{nick}", unique=True),
    )

    class Colors(tm.Aggregate, of=Item, table="Colors"):
        color: tm.Field[str] = tm.group_by(Item.color)
        items: tm.Field[int] = tm.count()
        total: tm.Field[float] = tm.sum(Item.size)
        most: tm.Field[float | None] = tm.max(Item.size)

        key = tm.Key[str](partition="{color}")

    class Shop(tm.Aggregate, of=Item, table="Items"):
        shop: tm.Field[str] = tm.group_by(Item.shop)
        items: tm.Field[int] = tm.count()
        total: tm.Field[float] = tm.sum(Item.size)

        key = tm.Key[str](partition="{shop}", row="total")
        by_items = tm.Index[str, int](partition="{shop}", row="{items}")

    return [Item, Shades, Colors, Shop]


ADDED = ("Item.by_color", "Item.by_size", "Item.by_code", "Item.by_nick", "Colors", "Shop", "Shop.by_items")
"""What the newer version has more."""
