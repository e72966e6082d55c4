"""A change of one entity, by the path of its own and by that of several operations: both leave the same file."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.rows import writes

from ...sql import run_sql
from ...whole.stores import opened

LONG = "It was a dark and stormy night. " * 30


class Part(tm.Entity, table="Parts", type="part"):
    shelf: tm.Field[str]
    number: tm.Field[int]
    name: tm.Field[str | None] = tm.field(default=None)
    price: tm.Field[float] = tm.field(default=0.0)
    stock: tm.Field[int] = tm.field(default=0)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    text: tm.Field[str] = tm.field(default="")
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, int](partition="{shelf}", row=("p", "{number}"))
    by_name = tm.Index[str](partition="{name}", unique=True)
    by_price = tm.Index[str, float](
        partition="{shelf}", row="{price}", include=("stock",), where=lambda part: part.stock > 1
    )
    by_tag = tm.Index[str](partition="{tags}", include="all")


class Shelf(tm.Entity, table="Parts", type="shelf"):
    shelf: tm.Field[str]
    room: tm.Field[str] = tm.field(default="")
    parts: tm.Field[int] = tm.count(of=Part)

    key = tm.Key[str](partition="{shelf}", row="shelf")


class ByStock(tm.Aggregate, of=Part, table="ByStock"):
    stock: tm.Field[int] = tm.group_by(Part.stock)
    parts: tm.Field[int] = tm.count()
    total: tm.Field[float] = tm.sum(Part.price)
    least: tm.Field[float | None] = tm.min(Part.price)

    key = tm.Key[int](partition="all", row="{stock}")
    by_parts = tm.Index[int](partition="{parts}")


MODELS = [Part, Shelf, ByStock]
Write = Callable[[tm.Store], object]


def _write(draw: random.Random) -> Write:
    """Return a change of one entity, which may be refused, or a write that makes room for others."""
    shelf, number = draw.choice("ab"), draw.randrange(4)
    key = Part.key(shelf, number)
    values: dict[str, Any] = {
        "name": draw.choice([None, "x", "y", "z"]),
        "price": draw.choice([0.0, -0.0, 1.0, 2.5]),
        "stock": draw.randrange(4),
        "tags": draw.sample(["red", "blue", "green"], draw.randrange(4)),
        "text": draw.choice(["", "short", LONG]),
        "more": tm.Extra(**draw.choice([{}, {"width": 3}, {"width": 3.0, "note": LONG}])),
    }
    some = {name: values[name] for name in draw.sample(sorted(values), draw.randrange(1, 4))}
    room = draw.choice(["hall", "attic"])

    def replace_stale(store: tm.Store) -> None:
        part = store[key]
        store.merge(key, stock=part.stock)
        store.replace(part.replace(**some))

    writes: list[Write] = [
        lambda store: store.insert(Part(shelf, number, **values)),
        lambda store: store.delete(key),
        lambda store: store.merge(key, **some),
        lambda store: store.merge(key, Part.stock.add(1)),
        lambda store: store.merge(key, if_match='W/"1"', **some),
        lambda store: store.update(key, lambda part: part.replace(**some)),
        lambda store: store.replace(store[key].replace(**values)),
        replace_stale,
        lambda store: store.merge(Shelf.key(shelf), room=room),
    ]
    return draw.choice(writes)


def _outcome(write: Write, store: tm.Store) -> str:
    try:
        write(store)
    except tm.TableMapperError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def _tables(path: Path) -> dict[str, list[Any]]:
    names = [name for (name,) in run_sql(path, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    return {name: run_sql(path, f'SELECT * FROM "{name}"') for name in names}


@pytest.mark.parametrize("seed", range(3))
def test_a_change_of_one_entity_leaves_what_a_change_of_several_would(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: dict[str, list[str]] = {}
    for name, verbs in (("single", writes._CHANGES), ("several", frozenset[str]())):
        monkeypatch.setattr(writes, "_CHANGES", verbs)
        draw = random.Random(seed)
        with opened(str(tmp_path / name), MODELS) as store:
            store.insert_many([Shelf("a"), Shelf("b")])
            outcomes[name] = [_outcome(_write(draw), store) for _ in range(300)]
            assert store.check().ok
    assert outcomes["single"] == outcomes["several"]
    kinds = {outcome.partition(":")[0] for outcome in outcomes["single"]}
    assert kinds == {"done", "EntityExists", "EntityNotFound", "PreconditionFailed", "UniqueViolation"}
    single, several = (_tables(tmp_path / name) for name in ("single", "several"))
    for tables in (single, several):
        tables["tablemapper_state"] = [
            row[:-1] for row in tables["tablemapper_state"]
        ]  # the last is the store's own id
    assert single == several
