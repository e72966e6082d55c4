"""The shop knows what it has of each category. That is built while the older version writes, and needs no script."""

from decimal import Decimal

import tablemapper as tm

from .v4 import Product, new_product

__all__ = ["MODELS", "Assortment", "Product", "new_product"]


class Assortment(tm.Aggregate, table="Assortments", of=Product):
    category: tm.Field[str] = tm.group_by(Product.category)
    products: tm.Field[int] = tm.count()
    prices: tm.Field[Decimal] = tm.sum(Product.price)

    key = tm.Key[str](partition="{category}")


MODELS = [Product, Assortment]
