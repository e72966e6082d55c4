"""Change Product."""

from __future__ import annotations

import tablemapper as tm


class old:
    class Product(tm.Entity, table="Products"):
        category: tm.Field[str]
        number: tm.Field[int]
        name: tm.Field[str]
        price: tm.Field[str]
        maker: tm.Field[str | None] = tm.field(default=None)
        stock: tm.Field[int] = tm.field(default=0)

        key = tm.Key[str, int](partition="{category}", row="{number}")
        by_maker = tm.Index[str](partition="{maker}")


class new:
    class Product(tm.Entity, table="Products"):
        category: tm.Field[str]
        number: tm.Field[int]
        name: tm.Field[str]
        price: tm.Field[str]
        manufacturer: tm.Field[str | None] = tm.field(default=None)
        stock: tm.Field[int] = tm.field(default=0)

        key = tm.Key[str, int](partition="{category}", row="{number}")
        by_maker = tm.Index[str](partition="{manufacturer}")


@tm.migration(after=None, old=[old.Product], new=[new.Product])
def migrate(m: tm.Migration) -> None:
    # or m.drop(old.Product.maker), if they are two things
    m.rename(old.Product.maker, new.Product.manufacturer)
