"""The first version."""

import tablemapper as tm


class Product(tm.Entity, table="Products"):
    category: tm.Field[str]
    number: tm.Field[int]
    name: tm.Field[str]
    price: tm.Field[str]
    maker: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{category}", row="{number}")


MODELS = [Product]


def new_product(number: int) -> Product:
    return Product("lamps", number, f"Lamp {number % 7}", f"{number % 50}.50", maker="Ace")
