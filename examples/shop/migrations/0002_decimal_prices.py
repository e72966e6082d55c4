"""Change Product."""

from __future__ import annotations

from decimal import Decimal

import tablemapper as tm


class old:
    class Product(tm.Entity, table="Products"):
        category: tm.Field[str]
        number: tm.Field[int]
        name: tm.Field[str]
        price: tm.Field[str]
        manufacturer: tm.Field[str | None] = tm.field(default=None)
        stock: tm.Field[int] = tm.field(default=0)

        key = tm.Key[str, int](partition="{category}", row="{number}")
        by_maker = tm.Index[str](partition="{manufacturer}")


class new:
    class Product(tm.Entity, table="Products"):
        category: tm.Field[str]
        number: tm.Field[int]
        name: tm.Field[str]
        price: tm.Field[Decimal]
        manufacturer: tm.Field[str | None] = tm.field(default=None)
        stock: tm.Field[int] = tm.field(default=0)

        key = tm.Key[str, int](partition="{category}", row="{number}")
        by_maker = tm.Index[str](partition="{manufacturer}")


@tm.migration(after="0001_manufacturer", old=[old.Product], new=[new.Product])
def migrate(m: tm.Migration) -> None:
    m.convert(old.Product.price, new.Product.price, Decimal, back=str)
