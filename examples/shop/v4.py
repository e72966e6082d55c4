"""Prices are decimals."""

from decimal import Decimal

import tablemapper as tm


class Product(tm.Entity, table="Products"):
    category: tm.Field[str]
    number: tm.Field[int]
    name: tm.Field[str]
    price: tm.Field[Decimal]
    manufacturer: tm.Field[str | None] = tm.field(default=None)
    stock: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str, int](partition="{category}", row="{number}")
    by_maker = tm.Index[str](partition="{manufacturer}")


MODELS = [Product]


def new_product(number: int) -> Product:
    return Product(
        "lamps",
        number,
        f"Lamp {number % 7}",
        Decimal(f"{number % 50}.50"),
        manufacturer="Ace",
        stock=5,
    )
