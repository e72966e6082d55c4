"""Change Product."""

from __future__ import annotations

from decimal import Decimal

import tablemapper as tm


class old_entities:
    class Product(tm.Entity, table="Products"):
        category: tm.Field[str]
        number: tm.Field[int]
        name: tm.Field[str]
        price: tm.Field[Decimal]
        manufacturer: tm.Field[str | None] = tm.field(default=None)
        stock: tm.Field[int] = tm.field(default=0)

        key = tm.Key[str, int](partition="{category}", row="{number}")
        by_maker = tm.Index[str](partition="{manufacturer}")


class old(old_entities):
    class Assortment(tm.Aggregate, of=old_entities.Product, table="Assortments"):
        category: tm.Field[str] = tm.group_by(old_entities.Product.category)
        products: tm.Field[int] = tm.count()
        prices: tm.Field[Decimal] = tm.sum(old_entities.Product.price)

        key = tm.Key[str](partition="{category}")


class new_entities:
    class Product(tm.Entity, table="Products"):
        category: tm.Field[str]
        number: tm.Field[int]
        name: tm.Field[str]
        price: tm.Field[Decimal]
        manufacturer: tm.Field[str | None] = tm.field(default=None)
        stock: tm.Field[int] = tm.field(default=0)

        key = tm.Key[str, str, int](partition="{category}", row=("{name}", "{number}"))
        by_maker = tm.Index[str](partition="{manufacturer}")


class new(new_entities):
    class Assortment(tm.Aggregate, of=new_entities.Product, table="Assortments"):
        category: tm.Field[str] = tm.group_by(new_entities.Product.category)
        products: tm.Field[int] = tm.count()
        prices: tm.Field[Decimal] = tm.sum(new_entities.Product.price)

        key = tm.Key[str](partition="{category}")


@tm.migration(
    after="0002_decimal_prices",
    old=[old.Assortment, old.Product],
    new=[new.Product, new.Assortment],
)
def migrate(m: tm.Migration) -> None:
    m.rekey(old.Product, new.Product)
