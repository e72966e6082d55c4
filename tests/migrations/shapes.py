"""Stores that are migrated in tests: their old and new shapes, and what every step should make of them, said once more."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cache
from operator import methodcaller as step
from pathlib import Path
from typing import Any

import attrs

import tablemapper as tm
from tablemapper.engines.migration_protocol import Batches
from tablemapper.engines.protocol import StepTiming
from tablemapper.engines.sqlite.online.migration import SqliteMigrations
from tablemapper.migrations import runner
from tablemapper.scripts.script import MigrationFunction

from ..classes import aggregate, entity


def totals(of: Any, field: str, name: str = "Totals") -> Any:
    """Return an aggregate of a class, by its shelf: the number, and the extremes of a field."""
    members = {
        "shelf": (str, tm.group_by(of.shelf)),
        "parts": (int, tm.count()),
        "most": (str | None, tm.max(getattr(of, field))),
    }
    return aggregate(name, of, members, tm.Key[str](partition="{shelf}"), "Totals")


FIELDS = {"shelf": str, "number": int, "price": str, "maker": str | None, "tags": list[str]}
KEY = tm.Key[str, int](partition="{shelf}", row="{number}")


def part(fields: dict[str, Any] = FIELDS, key: Any = KEY, name: str = "Part", table: str = "Parts", **body: Any) -> Any:
    return entity(name, table, fields, key, **body)


def indexes(maker: str = "maker") -> dict[str, Any]:
    return {"by_maker": tm.Index[str](partition=f"{{{maker}}}"), "by_tag": tm.Index[str](partition="{tags}")}


OLD = part(**indexes())
OLD_TOTALS = totals(OLD, "maker")


STOCK = entity(
    "Stock", "Stocks", {"shelf": str, "number": int, "pieces": int}, KEY, by_pieces=tm.Index[int](partition="{pieces}")
)


@attrs.frozen
class Case:
    """A script, or several, and what they make of one old entity."""

    script: MigrationFunction
    new: tuple[Any, ...]
    made: Callable[[Any], Iterable[Any]]
    after: Callable[[list[Any]], Iterable[Any]] = list
    """What they make of all new entities together."""
    then: tuple[MigrationFunction, ...] = ()
    """The scripts that follow."""

    @property
    def scripts(self) -> list[MigrationFunction]:
        return [self.script, *self.then]

    def all_made(self, old: Iterable[Any]) -> list[str]:
        """Return what some old entities become."""
        return texts(self.after([new for one in old for new in self.made(one)]))


def changed(fields: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {name: kind for name, kind in {**fields, **others}.items() if kind is not None}


def script(new: list[Any], function: Callable[[tm.Migration], None], name: str = "first", after: str | None = None,
           old: Iterable[Any] = (OLD, OLD_TOTALS)) -> MigrationFunction:  # fmt: skip
    function.__name__ = name
    return tm.migration(after=after, old=list(old), new=new)(function)


def made(
    new: Any, old: Any, *steps: Callable[[tm.Migration], None], name: str = "first", after: str | None = None
) -> Any:
    """Return a script of some steps, each a `step`; ``new`` and ``old``: a class, or several in a list."""

    def record(m: tm.Migration) -> None:
        for one in steps:
            one(m)

    shapes = [given if isinstance(given, list) else [given] for given in (new, old)]
    return script(shapes[0], record, name, after, shapes[1])


BARE = part()
PRICED = part(changed(FIELDS, price=Decimal))
KEYED = part(changed(FIELDS, price=Decimal), key=tm.Key[int, str](partition="{number}", row="{shelf}"))
TO_DECIMAL = made(PRICED, BARE, step("convert", BARE.price, PRICED.price, Decimal, back=lambda price: str(price)))
"""Its way back is a function that only the script knows."""
TO_NUMBER = made(KEYED, PRICED, step("rekey", PRICED, KEYED), name="second", after="first")


def opened(path: Path, *classes: Any, **options: Any) -> tm.Store:
    return tm.open(path, models=classes, durability="relaxed", **options)


def held(path: Path, *classes: Any) -> dict[int, Any]:
    """Return the entities of the first of some classes by number, from a store without problems that has these."""
    with opened(path, *classes) as store:
        assert store.check().ok
        return {one.number: one for one in store.query(classes[0]).allow_scan()}


def insert(path: Path, *entities: Any, also: Iterable[Any] = ()) -> None:
    """Insert entities with their classes, and with others that are only declared."""
    with opened(path, *dict.fromkeys([*map(type, entities), *also])) as store:
        store.insert_many(entities)


@cache
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


def stocks() -> list[Any]:
    """Return entities of a second class: for each third part that there can be, on any shelf."""
    return [STOCK(shelf, number, number * 10) for shelf in "xyz" for number in range(0, 40, 3)]


@cache
def more_cases() -> dict[str, Case]:
    """Return cases of a store that also has `stocks`."""
    same = part(**indexes())
    firm = part(changed(FIELDS, maker=None, firm=str | None), **indexes("firm"))
    untagged = part(by_maker=tm.Index[str](partition="{maker}"))
    single = part(**indexes(), by_price=tm.Index[str](partition="{price}", unique=True))
    counted = part(changed(FIELDS, pieces=int | None), **indexes())
    graded = part(changed(FIELDS, tags=None, price=Decimal), by_maker=tm.Index[str](partition="{maker}"))
    ranked = part(changed(FIELDS, maker=None, firm=str | None, rank=int), **indexes("firm"))
    key = tm.Key[str, int](partition="{shelf:shard(4)}", row=("{shelf}", "{number}"))
    keyed = part(key=key, **indexes())
    product = part(name="Product", table="Products", key=key, **indexes())
    item = entity(
        "Item",
        "Items",
        {"code": str, "price": str, "maker": str | None, "tags": list[str]},
        tm.Key[str](partition="{code}"),
    )
    shelf = entity(
        "Shelf",
        "Shelves",
        {"shelf": str, "tag": str, "prices": list[str]},
        tm.Key[str, str](partition="{shelf}", row="{tag}"),
    )

    def copy(cls: Any, e: Any, **values: Any) -> Any:
        own = {name: getattr(e, name) for name in FIELDS if name in cls.__annotations__}
        return cls(**{**own, **values})

    def as_item(e: Any) -> Any:
        return item(f"{e.shelf}-{e.number}", e.price, e.maker, e.tags)

    def as_part(e: Any) -> Any:
        place, number = e.code.split("-")
        return OLD(place, int(number), e.price, e.maker, e.tags)

    def apart(holders: list[Any]) -> list[Any]:
        """Give all but one of the parts with one price another price; the first of those goes."""
        first, gone, *others = sorted(holders, key=lambda e: e.number)
        for one in others:
            one.price = f"{one.price} {one.shelf}{one.number}"
        return [first, *others] if gone else []

    def resolved(entities: list[Any]) -> list[Any]:
        prices: dict[str, list[Any]] = {}
        for one in entities:
            prices.setdefault(one.price, []).append(one)
        return [one for held in prices.values() for one in (apart(held) if len(held) > 1 else held)]

    def by_tag(e: Any) -> list[Any]:
        return [shelf(e.shelf, tag, [e.price]) for tag in dict.fromkeys(e.tags)]

    def both(a: Any, b: Any) -> Any:
        return shelf(a.shelf, a.tag, sorted([*a.prices, *b.prices]))

    def combined(entities: list[Any]) -> list[Any]:
        found: dict[Any, Any] = {}
        for one in entities:
            key = one.shelf, one.tag
            found[key] = both(found[key], one) if key in found else one
        return list(found.values())

    def joined(p: Any, s: Any) -> Any:
        return None if p is None else copy(counted, p, pieces=None if s is None else s.pieces)

    def as_joined(e: Any) -> Any:
        held = e.shelf in "xyz" and e.number % 3 == 0 and e.number < 40
        return copy(counted, e, pieces=e.number * 10 if held else None)

    def graded_steps(m: tm.Migration) -> None:
        m.drop(OLD.by_tag)
        m.drop(OLD.tags)
        m.convert(OLD.price, graded.price, Decimal)

    firm_all = [firm, totals(firm, "firm")]
    found = {
        "rename": (firm_all, lambda m: m.rename(OLD.maker, firm.firm), lambda e: [copy(firm, e, firm=e.maker)]),
        "drop of an index": ([untagged, totals(untagged, "maker")], lambda m: m.drop(OLD.by_tag), lambda e: [copy(untagged, e)]),
        "drop of an aggregate": ([same], lambda m: m.drop(OLD_TOTALS), lambda e: [copy(same, e)]),
        "convert without back": (
            [graded, totals(graded, "maker")], graded_steps, lambda e: [copy(graded, e, price=Decimal(e.price))]
        ),
        "rewrite with back": (
            [item], lambda m: (m.rewrite(OLD, as_item, into=[item], back=as_part), m.drop(OLD_TOTALS)), lambda e: [as_item(e)]
        ),
    }  # fmt: skip
    cases = {
        name: Case(script(new, function), tuple(new), made)  # type: ignore[arg-type]
        for name, (new, function, made) in found.items()
    }
    halves = [entity(name, f"{name}s", FIELDS, KEY) for name in ("Cheap", "Dear")]

    def half(e: Any) -> Any:
        return copy(halves[int(e.price) >= 25], e)

    def whole(e: Any) -> Any:
        return copy(OLD, e)

    steps = lambda m: (m.rewrite(OLD, half, into=halves, back=whole), m.drop(OLD_TOTALS))  # noqa: E731
    cases["split with back"] = Case(script(halves, steps), tuple(halves), lambda e: [half(e)])
    priced = part(changed(FIELDS, price=list[str]), **indexes())
    new = [priced, totals(priced, "maker")]
    steps = lambda m: m.convert(OLD.price, priced.price, list, back="".join)  # noqa: E731
    cases["convert with its own back"] = Case(
        script(new, steps), tuple(new), lambda e: [copy(priced, e, price=list(e.price))]
    )
    new = [single, totals(single, "maker")]
    cases["resolve"] = Case(
        script(new, lambda m: m.resolve(single.by_price, apart)), tuple(new), lambda e: [copy(single, e)], resolved
    )
    steps = lambda m: (m.rewrite(OLD, by_tag, into=[shelf], combine=both), m.drop(OLD_TOTALS))  # noqa: E731
    cases["rewrite with combine"] = Case(script([shelf], steps), (shelf,), by_tag, combined)
    new = [counted, totals(counted, "maker")]
    joining = script(new, lambda m: m.join(OLD, STOCK, joined, into=[counted]), old=[OLD, OLD_TOTALS, STOCK])
    cases["join"] = Case(joining, tuple(new), lambda e: [as_joined(e)])
    new = [ranked, totals(ranked, "firm")]
    second = script(new, lambda m: m.fill(ranked.rank, lambda e: e.number), "second", "first", firm_all)
    cases["two scripts"] = Case(
        cases["rename"].script, tuple(new), lambda e: [copy(ranked, e, firm=e.maker, rank=e.number)], then=(second,)
    )
    keyed_all, new = [keyed, totals(keyed, "maker")], [product, totals(product, "maker")]
    first = script(keyed_all, lambda m: m.rekey(OLD, keyed))
    second = script(new, lambda m: m.rename_class(keyed, product), "second", "first", keyed_all)
    cases["two copies"] = Case(first, tuple(new), lambda e: [copy(product, e)], then=(second,))
    steps = lambda m: (m.drop(OLD), m.drop(OLD_TOTALS))  # noqa: E731
    cases["drop of a class"] = Case(
        script([STOCK], steps, old=[OLD, OLD_TOTALS, STOCK]), (STOCK,), lambda _: (), lambda _: stocks()
    )
    return cases


def migrate(path: Path, *scripts: MigrationFunction, **options: Any) -> tm.reports.MigrationReport:
    """Run scripts without a rest."""
    return tm.migrate(path, scripts, **{"rest": 0, "durability": "relaxed", **options})


def batches_of(most: int) -> Batches:
    """Return what does a job in transactions of one size."""

    def batches(step: Callable[[int], StepTiming | None]) -> None:
        while step(most) is not None:
            pass

    return batches


def begun(path: Path, script: Any, *, back: bool = False, **options: Any) -> SqliteMigrations:
    """Open a store, and begin a script, or its undoing, as a run does."""
    engine = SqliteMigrations.open(path, **{"durability": "relaxed"} | options)
    begin(engine, script, back=back)
    return engine


def begin(engine: SqliteMigrations, script: Any, *, back: bool = False) -> bool:
    """Begin a script, or its undoing, or go on with it; return whether there is something to copy."""
    (loaded,) = runner.scripts_of([script])
    transition = runner.transition_of(runner.undoing(loaded) if back else loaded, engine.forms(), is_undoing=back)
    assert transition is not None
    return engine.start(transition)


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
