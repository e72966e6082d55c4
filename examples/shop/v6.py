"""The products of a category stand in the order of their names."""

from decimal import Decimal

import tablemapper as tm


class Product(tm.Entity, table="Products"):
    category: tm.Field[str]
    number: tm.Field[int]
    name: tm.Field[str]
    price: tm.Field[Decimal]
    manufacturer: tm.Field[str | None] = tm.field(default=None)
    stock: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str, str, int](partition="{category}", row=("{name}", "{number}"))
    by_maker = tm.Index[str](partition="{manufacturer}")


class Assortment(tm.Aggregate, table="Assortments", of=Product):
    category: tm.Field[str] = tm.group_by(Product.category)
    products: tm.Field[int] = tm.count()
    prices: tm.Field[Decimal] = tm.sum(Product.price)

    key = tm.Key[str](partition="{category}")


MODELS = [Product, Assortment]


def new_product(number: int) -> Product:
    return Product(
        "lamps",
        number,
        f"Lamp {number % 7}",
        Decimal(f"{number % 50}.50"),
        manufacturer="Ace",
        stock=5,
    )
