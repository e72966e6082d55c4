"""A store in which versions have ended, an aggregate is dropped, and others are being built, and all that is done with it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any
from unittest.mock import patch

import tablemapper as tm
from tablemapper.engines.sqlite.online import apply_schema

from ..classes import aggregate
from ..migrations.shapes import FIELDS, KEY, changed, entity, indexes, part, totals
from .operations import Try, migrate, opened

NOTE = entity(
    "Note", "Parts", {"shelf": str, "note": int}, tm.Key[str, int](partition="{shelf}", row=("note", "{note}"))
)
BOX_FIELDS = {"shelf": str, "number": int, "size": int}
PLACED = entity("Box", "Boxes", BOX_FIELDS, KEY, by_place=tm.Index[int, str](partition="{number}", row="{shelf}"))
BOX = entity("Box", "Boxes", BOX_FIELDS, KEY)
SIZED = entity("Box", "Boxes", BOX_FIELDS, KEY, by_size=tm.Index[int](partition="{size}", unique=True))
FIRST = part(**indexes(), of_price=tm.Index[str](partition="{price}"))
SECOND = part(changed(FIELDS, price=Decimal), **indexes())


def _grouped(name: str, field: str, kind: Any, **measures: Any) -> Any:
    members = {"value": (kind, tm.group_by(getattr(SECOND, field))), "parts": (int, tm.count()), **measures}
    return aggregate(name, SECOND, members, tm.Key[kind](partition="{value}"))


MAKERS = _grouped(
    "Makers", "maker", str, sum=(int, tm.sum(SECOND.number)), ever=(int | None, tm.max_ever(SECOND.number))
)
PRICES = _grouped("Prices", "price", Decimal)
VERSIONS: list[list[Any]] = [
    [FIRST, NOTE, totals(FIRST, "maker"), PLACED],
    [FIRST, NOTE, totals(FIRST, "maker"), BOX],
    [SECOND, NOTE, totals(SECOND, "maker"), BOX],
    [SECOND, BOX],
    [SECOND, SIZED, MAKERS, PRICES],
]


@tm.migration(after=None, old=VERSIONS[0], new=VERSIONS[1])
def unplace(m: tm.Migration) -> None:
    m.drop(PLACED.by_place)


@tm.migration(after="unplace", old=VERSIONS[1], new=VERSIONS[2])
def convert(m: tm.Migration) -> None:
    m.drop(FIRST.of_price)
    m.convert(FIRST.price, SECOND.price, Decimal)


@tm.migration(after="convert", old=VERSIONS[2], new=VERSIONS[3])
def drop(m: tm.Migration) -> None:
    m.drop(VERSIONS[2][2])
    m.drop(NOTE)


SCRIPTS = [unplace, convert, drop]
COUNT = 24
run = partial(migrate, scripts=SCRIPTS)


def building(path: str) -> None:
    """Make a store with versions that have ended, drops that are not contracted, and builds that stand in the middle."""
    with tm.open(path, models=VERSIONS[0], durability="relaxed") as store:
        store.insert_many(
            [FIRST("xyz"[n % 3], n, price=str(n % 9), maker=f"m{n % 7}", tags=["a"]) for n in range(COUNT)]
        )
        store.insert_many([NOTE("x", n) for n in range(3)])
        store.insert_many([PLACED("x", n, n) for n in range(COUNT)])
    run(path, to="unplace", contract=True)  # (the fence at the end of a version: the table of boxes gets another name)
    run(path, to="convert")
    run(path, to="drop")
    with (
        patch.object(apply_schema, "_AT_ONCE", -1),
        tm.open(path, models=VERSIONS[4], durability="relaxed", build=False) as store,
    ):
        engine = store._engine
        for labels in (["Box.by_size"], ["Makers", "Prices"]):
            engine.build(COUNT // 3, labels)
        store.delete(SECOND.key("x", 0))
        store.merge(SECOND.key("z", COUNT - 1), maker="m0")
        engine.disable("Part.by_tag")  # (its old table is to be cleared)


def use(path: str, folder: str, attempt: Try, rnd: random.Random) -> None:
    """Open a file as every version of the program, write, build and check, and run and end its migrations, in any order."""

    def version(models: list[Any], **options: Any) -> None:
        if (store := opened(path, attempt, models, **options)) is None:
            return
        cls, box = models[0], models[-3 if models is VERSIONS[4] else -1]
        price: Any = "1" if cls is FIRST else Decimal(1)
        aggregates = [one for one in models if issubclass(one, tm.Aggregate)]
        verbs: list[tuple[str, Callable[[], object]]] = [
            ("scan", lambda: repr(list(store.query(cls).allow_scan()))),
            ("boxes", lambda: repr(list(store.query(box).allow_scan()))),
            *[("groups", lambda one=one: repr(list(store.query(one).allow_scan()))) for one in aggregates],
            ("index", lambda: repr(list(store.query(cls.by_maker("m1"))))),
            ("partition", lambda: repr(list(store.partition(cls.shelf == "x")))),
            ("delete", lambda: store.query(cls).where(cls.maker == "m2").delete()),
            ("merge", lambda: store.merge(cls.key("y", 4), maker="m6")),
            ("merge of many", lambda: store.query(cls).where(cls.maker == "m3").allow_scan().update(maker="m4")),
            ("insert", lambda: store.insert(cls("x", 100, price=price, maker="a", tags=["a"]))),
            ("insert of a box", lambda: store.insert(box("x", 100, 3))),
            ("clear", lambda: store.clear(box)),
            ("status", lambda: str(store.status())),
            ("check", lambda: str(store.check())),
            ("a batch", lambda: store.build(limit=5, hold=0.0, rest=0.0)),
            ("compare", lambda: compare(store, models)),
            ("repair", lambda: str(store.repair())),
            ("build", lambda: store.build(hold=0.0, rest=0.0)),
            ("compare at the end", lambda: compare(store, models)),
        ]  # fmt: skip
        for name, operation in verbs:
            if rnd.random() < 0.6 or name.startswith("compare"):
                attempt(name, operation)
        attempt("close", store.close)

    deeds: list[tuple[str, Callable[[], object]]] = [
        ("migrate", lambda: run(path)),
        ("back", lambda: run(path, to="convert")),
        ("contract", lambda: run(path, contract=True)),
        ("plan", lambda: run(path, dry_run=True)),
        ("restore", lambda: tm.restore(path, f"{folder}/restored.db", overwrite=True)),
    ]
    for models in sorted(VERSIONS, key=lambda _: rnd.random()):
        options = {"migrations": SCRIPTS} if rnd.random() < 0.5 else {}
        version(models, **options, **({"build": False} if rnd.random() < 0.7 else {}))
        if rnd.random() < 0.4:
            attempt(*rnd.choice(deeds))


def compare(store: tm.Store, models: list[Any]) -> None:
    """Compare groups with their entities; a check that finds nothing wrong says that they agree."""
    if not store.check().ok:
        return
    entities = list(store.query(models[0]).allow_scan())
    for cls in models:
        if issubclass(cls, tm.Aggregate):
            field = {"Totals": "shelf", "Makers": "maker", "Prices": "price"}[cls.__name__]
            counted = Counter(value for one in entities if (value := getattr(one, field)) is not None)
            groups = list(store.query(cls).allow_scan())
            name = field if cls.__name__ == "Totals" else "value"
            found = {getattr(group, name): group.parts for group in groups if group.parts}
            assert found == dict(counted), f"{cls.__name__}: {found}, not {dict(counted)}"
