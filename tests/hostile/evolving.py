"""A store in the middle of its migrations, and all that is done with it."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import tablemapper as tm

from ..migrations.shapes import FIELDS, changed, indexes, part, totals
from .operations import Try, migrate, opened

FIRST = part(**indexes(), of_price=tm.Index[str](partition="{price}"))
SECOND = part(**indexes())
THIRD = part(changed(FIELDS, price=Decimal), **indexes())
FOURTH = part(changed(FIELDS, price=Decimal), tm.Key[str, int](partition="{shelf}!", row="{number}"), **indexes())
VERSIONS: list[list[Any]] = [[one, totals(one, "maker")] for one in (FIRST, SECOND, THIRD, FOURTH)]


@tm.migration(after=None, old=VERSIONS[0], new=VERSIONS[1])
def drop(m: tm.Migration) -> None:
    m.drop(FIRST.of_price)


@tm.migration(after="drop", old=VERSIONS[1], new=VERSIONS[2])
def convert(m: tm.Migration) -> None:
    m.convert(SECOND.price, THIRD.price, Decimal, back=str)


@tm.migration(after="convert", old=VERSIONS[2], new=VERSIONS[3])
def rekey(m: tm.Migration) -> None:
    m.rekey(THIRD, FOURTH)


SCRIPTS = [drop, convert, rekey]
COUNT = 8
run = partial(migrate, scripts=SCRIPTS)


def evolving(path: str) -> None:
    """Make a store of which one migration is contracted, one can be undone, and one copies."""
    with tm.open(path, models=VERSIONS[0], durability="relaxed") as store:
        store.insert_many([FIRST("xyz"[n % 3], n, price=str(n), maker=f"m{n % 3}", tags=["a"]) for n in range(COUNT)])
    run(path, to="drop", contract=True)
    run(path, to="convert")
    run(path, limit=COUNT // 2)


def use(path: str, folder: str, attempt: Try, rnd: random.Random) -> None:
    """Open a file as every version of the program, and run, undo and end its migrations, in any order."""

    def version(models: list[Any], **options: Any) -> None:
        if (store := opened(path, attempt, models, **options)) is None:
            return
        cls = models[0]
        price: Any = "1" if cls in (FIRST, SECOND) else Decimal(1)
        verbs: list[tuple[str, Callable[[], object]]] = [
            ("scan", lambda: repr(list(store.query(cls).allow_scan()))),
            ("groups", lambda: repr(list(store.query(models[1]).allow_scan()))),
            ("index", lambda: repr(list(store.query(cls.by_maker("m1"))))),
            ("delete", lambda: store.query(cls).where(cls.maker == "m2").delete()),
            ("merge", lambda: store.query(cls).allow_scan().update(maker="m4")),
            ("insert", lambda: store.insert(cls("x", 100, price=price, maker=None, tags=["a"]))),
            ("status", lambda: str(store.status())),
            ("check", lambda: str(store.check())),
            ("repair", lambda: str(store.repair())),
            ("build", lambda: store.build(hold=0.0, rest=0.0)),
        ]  # fmt: skip
        for name, operation in verbs:
            if rnd.random() < 0.6:
                attempt(name, operation)
        attempt("close", store.close)

    deeds: list[tuple[str, Callable[[], object]]] = [
        ("migrate", lambda: run(path)),
        ("dry run", lambda: run(path, dry_run=True)),
        ("back", lambda: run(path, to="drop")),
        ("contract", lambda: run(path, to="convert", contract=True)),
        ("plan", lambda: str(tm.Migrations(SCRIPTS).check(VERSIONS[3]))),
        ("restore", lambda: tm.restore(path, f"{folder}/restored.db", overwrite=True)),
    ]
    for models in VERSIONS:
        version(models, **({"migrations": SCRIPTS} if rnd.random() < 0.5 else {}))
        attempt(*rnd.choice(deeds))
