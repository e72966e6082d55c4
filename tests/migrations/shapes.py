"""Stores that are migrated in tests: their old and new shapes, and what every step should make of them, said once more."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import attrs

import tablemapper as tm
from tablemapper.migrations.script import MigrationFunction


def entity(name: str, table: str, fields: dict[str, Any], key: Any, **body: Any) -> Any:
    """Return an entity class."""
    annotations = {field: tm.Field[kind] for field, kind in fields.items()}
    return type(tm.Entity)(
        name, (tm.Entity,), {"__annotations__": annotations, "__module__": __name__, "key": key, **body}, table=table
    )


def totals(of: Any, field: str) -> Any:
    """Return an aggregate of a class, by its shelf: the number, and the extremes of a field."""
    body = {
        "__annotations__": {"shelf": tm.Field[str], "parts": tm.Field[int], "most": tm.Field[str | None]},
        "__module__": __name__,
        "shelf": tm.group_by(of.shelf),
        "parts": tm.count(),
        "most": tm.max(getattr(of, field)),
        "key": tm.Key[str](partition="{shelf}"),
    }
    return type(tm.Aggregate)("Totals", (tm.Aggregate,), body, of=of, table="Totals")


FIELDS = {"shelf": str, "number": int, "price": str, "maker": str | None, "tags": list[str]}
KEY = tm.Key[str, int](partition="{shelf}", row="{number}")


def part(fields: dict[str, Any] = FIELDS, key: Any = KEY, name: str = "Part", table: str = "Parts", **body: Any) -> Any:
    return entity(name, table, fields, key, **body)


def indexes(maker: str = "maker") -> dict[str, Any]:
    return {"by_maker": tm.Index[str](partition=f"{{{maker}}}"), "by_tag": tm.Index[str](partition="{tags}")}


OLD = part(**indexes())
OLD_TOTALS = totals(OLD, "maker")


@attrs.frozen
class Case:
    """A script, and what it makes of one old entity, as the repr of new ones."""

    script: MigrationFunction
    new: tuple[Any, ...]
    made: Callable[[Any], Iterable[Any]]


def changed(fields: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {name: kind for name, kind in {**fields, **others}.items() if kind is not None}


def script(new: list[Any], function: Callable[[tm.Migration], None], name: str = "first", after: str | None = None,
           old: Iterable[Any] = (OLD, OLD_TOTALS)) -> MigrationFunction:  # fmt: skip
    function.__name__ = name
    return tm.migration(after=after, old=list(old), new=new)(function)


def cases() -> dict[str, Case]:
    priced = part(changed(FIELDS, price=Decimal), **indexes())
    keyed = part(key=tm.Key[str, str, int](partition="{price}", row=("{shelf}", "{number}")), **indexes())
    filled = part(changed(FIELDS, rank=int), **indexes())
    product = part(name="Product", table="Products", **indexes())
    slim = part(changed(FIELDS, tags=None), by_maker=tm.Index[str](partition="{maker}"))
    tag = entity(
        "Tag", "Tags", {"tag": str, "shelf": str, "number": int}, tm.Key[str, str, int](partition="{tag}", row=("{shelf}", "{number}")),
        by_shelf=tm.Index[str](partition="{shelf}"),
    )  # fmt: skip

    def split(e: Any) -> list[Any]:
        bare = slim(e.shelf, e.number, price=e.price, maker=e.maker)
        return [bare, *[tag(one, e.shelf, e.number) for one in dict.fromkeys(e.tags)]]

    def copy(cls: Any, e: Any, **values: Any) -> Any:
        own = {name: getattr(e, name) for name in FIELDS if name in cls.__annotations__}
        return cls(**{**own, **values})

    def odd(e: Any) -> Any:
        return copy(OLD, e) if e.number % 2 else None

    def both(m: tm.Migration) -> None:
        m.rename(OLD.maker, both_new.firm)
        m.convert(OLD.price, both_new.price, Decimal, back=str)
        m.fill(both_new.rank, lambda e: len(e.firm or ""))

    both_new = part(changed(FIELDS, maker=None, firm=str | None, price=Decimal, rank=int), **indexes("firm"))
    same = part(**indexes())
    found = {
        "convert": ([priced, totals(priced, "maker")], lambda m: m.convert(OLD.price, priced.price, Decimal, back=str),
                    lambda e: [copy(priced, e, price=Decimal(e.price))]),
        "convert by a mapping": (
            [same, totals(same, "maker")], lambda m: m.convert(OLD.maker, same.maker, {"m1": "one", "m2": "two"}),
            lambda e: [copy(same, e, maker={"m1": "one", "m2": "two"}.get(e.maker, e.maker))],
        ),
        "fill": ([filled, totals(filled, "maker")], lambda m: m.fill(filled.rank, lambda e: e.number * 2),
                 lambda e: [copy(filled, e, rank=e.number * 2)]),
        "rekey": ([keyed, totals(keyed, "maker")], lambda m: m.rekey(OLD, keyed), lambda e: [copy(keyed, e)]),
        "rename_class": ([product, totals(product, "maker")], lambda m: m.rename_class(OLD, product),
                         lambda e: [copy(product, e)]),
        "drop": ([slim, totals(slim, "maker")], lambda m: m.drop(OLD.tags), lambda e: [copy(slim, e)]),
        "rewrite": ([slim, totals(slim, "maker"), tag], lambda m: m.rewrite(OLD, split, into=[slim, tag]), split),
        "rewrite that drops": ([same, totals(same, "maker")],
                               lambda m: m.rewrite(OLD, lambda e: copy(same, e) if e.number % 2 else None, into=[same]),
                               lambda e: [odd(e)] if e.number % 2 else []),
        "several": ([both_new, totals(both_new, "firm")], both,
                    lambda e: [copy(both_new, e, firm=e.maker, price=Decimal(e.price), rank=len(e.maker or ""))]),
    }  # fmt: skip
    return {
        name: Case(script(new, function), tuple(new), made)  # type: ignore[arg-type]
        for name, (new, function, made) in found.items()
    }


def parts(count: int, draw: random.Random) -> list[Any]:
    """Return old entities."""
    return [a_part(number, draw) for number in range(count)]


def a_part(number: int, draw: random.Random) -> Any:
    maker = draw.choice([None, "m1", "m2", "m3"])
    tags = [draw.choice("abcd") for _ in range(draw.randrange(4))]
    return OLD(draw.choice("xyz"), number, price=str(draw.randrange(50)), maker=maker, tags=tags)


def texts(entities: Iterable[Any]) -> list[str]:
    return sorted(map(repr, entities))


def contents(store: tm.Store, classes: Iterable[Any]) -> list[str]:
    """Return all entities of some classes, aggregates aside."""
    return texts(e for cls in classes if issubclass(cls, tm.Entity) for e in store.query(cls).allow_scan())


def write(store: tm.Store, draw: random.Random, most: int = 40) -> None:
    """Write something with the old classes."""
    number = draw.randrange(most)
    one = a_part(number, draw)
    verb = draw.choice(["upsert", "upsert", "change", "delete", "several", "many"])
    if verb == "upsert":
        store.upsert(one)
    elif verb == "change" and store.exists(one.key):
        store.merge(one.key, maker=one.maker, price=one.price)
    elif verb == "delete" and store.exists(one.key):
        store.delete(one.key)
    elif verb == "several":
        with store.transaction() as tx:
            for at in range(number, number + 3):
                tx.upsert(OLD(one.shelf, at, price="7", maker=one.maker, tags=[]))
    elif verb == "many":
        new = [OLD("new", number * 100 + at, price="1", maker="m1", tags=["a"]) for at in range(3)]
        if not store.exists(new[0].key):
            store.insert_many(new, atomic=draw.random() < 0.5)
