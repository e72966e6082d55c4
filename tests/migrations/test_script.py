"""A script's steps are data: what its function names, in order, with both shapes beside the application's own classes."""

from __future__ import annotations

from decimal import Decimal

import tablemapper as tm
from tablemapper.scripts.script import load_script
from tablemapper.scripts.steps import Convert, Fill, Rename


class Product(tm.Entity, table="Products"):
    id: tm.Field[str]
    price: tm.Field[Decimal]
    rank: tm.Field[int]
    manufacturer: tm.Field[str]

    key = tm.Key[str](partition="{id}")


class old:
    class Product(tm.Entity, table="Products"):
        id: tm.Field[str]
        price: tm.Field[str]
        maker: tm.Field[str]

        key = tm.Key[str](partition="{id}")


class new:
    class Product(tm.Entity, table="Products"):
        id: tm.Field[str]
        price: tm.Field[Decimal]
        rank: tm.Field[int]
        manufacturer: tm.Field[str]

        key = tm.Key[str](partition="{id}")


@tm.migration(after=None, old=[old.Product], new=[new.Product])
def prices(m: tm.Migration) -> None:
    """Prices are decimals.

    And makers are manufacturers.
    """
    m.rename(old.Product.maker, new.Product.manufacturer)
    m.convert(old.Product.price, new.Product.price, Decimal, back=str)
    m.fill(new.Product.rank, lambda p: len(p.id))


def test_a_script_has_the_steps_of_its_function_in_order() -> None:
    script = load_script("0001_prices", prices)
    assert [type(step) for step in script.steps] == [Rename, Convert, Fill]
    assert [str(step) for step in script.steps] == [
        "rename Product.maker to manufacturer",
        "convert Product.price, str to Decimal",
        "fill Product.rank",
    ]
    assert (script.id, script.after, script.doc) == ("0001_prices", None, "Prices are decimals.")
    assert (script.old, script.new) == ((old.Product,), (new.Product,))


def test_the_shapes_of_a_script_stand_beside_the_classes_of_the_application() -> None:
    with tm.open(":memory:", models=[Product]) as store:
        store.insert(Product("a", Decimal(1), 1, "Ace"))
        assert isinstance(store[Product.key("a")], Product)
    assert not isinstance(Product("a", Decimal(1), 1, "Ace"), new.Product)
