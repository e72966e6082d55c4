"""Totals that SQLite adds up: what is added up in Python, whatever is stored."""

from __future__ import annotations

import enum
import logging
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.rows.reads import SqliteReads

from ..sql import run_sql

pytestmark = pytest.mark.file


class Kind(enum.StrEnum):
    new = "new"
    old = "old"


class Size(enum.Enum):
    small = 1
    large = 2


class Part(tm.Entity, table="Parts"):
    p: tm.Field[str]
    r: tm.Field[int]
    text: tm.Field[str]
    note: tm.Field[str | None] = tm.field(default=None)
    kind: tm.Field[Kind] = tm.field(default=Kind.new)
    size: tm.Field[Size] = tm.field(default=Size.small)
    level: tm.Field[Literal["a", "b"]] = tm.field(default="a")
    on: tm.Field[bool] = tm.field(default=True)
    number: tm.Field[int] = tm.field(default=0)
    spare: tm.Field[int | None] = tm.field(default=None)
    span: tm.Field[timedelta] = tm.field(default=timedelta())
    price: tm.Field[Decimal] = tm.field(default=Decimal(0))
    warmth: tm.Field[float] = tm.field(default=0.0)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{p}", row="{r}")
    by_note = tm.Index[str](partition="{note}", include=("number", "kind"))
    by_tag = tm.Index[str](partition="{tags}")


GROUPS = (Part.p, Part.text, Part.note, Part.kind, Part.size, Part.level, Part.on, Part.number, Part.price, Part.warmth, Part.span)  # fmt: skip
NUMBERS = (0, 1, -1, 7, 2**63 - 1, -(2**63), 2**32, -(2**32) - 1, 2**62)
SUMMED = (Part.number, Part.spare, Part.span, Part.warmth, Part.price)
ORDERED = (*SUMMED, Part.text, Part.note, Part.kind, Part.level, Part.r)
DAMAGE = ("3.0", "3", "'3'", "X'33'", "NULL", "'new'", "1e300", "'zz'")
COLUMNS = ("text", "note", "kind", "size", "level", "on", "number", "spare", "span", "warmth")


def made(rng: random.Random, number: int) -> Part:
    return Part(
        rng.choice("ab"), number, rng.choice(("x", "y", "z" * 700)), rng.choice((None, "m", "n")), rng.choice(list(Kind)),
        rng.choice(list(Size)), rng.choice(("a", "b")), rng.random() < 0.5, rng.choice(NUMBERS),
        rng.choice((None, *NUMBERS)), timedelta(microseconds=rng.choice(NUMBERS[:4])), Decimal(rng.choice(("1", "1.0", "2"))),
        rng.choice((0.1, -0.0, 0.0, 1e300)), rng.sample("uvw", rng.randrange(3)),
    )  # fmt: skip


def outcome(call: Callable[[], Any]) -> str:
    try:
        return repr(call())
    except tm.TableMapperError as error:
        return f"{type(error).__name__}: {error}"


def asked(rng: random.Random, store: tm.Store) -> Callable[[], Any]:
    """Draw a total of a query."""
    queries = [
        store.query(Part), store.query(Part).where(Part.p == "a"),
        store.query(Part).where(Part.p.is_in(["a", "b"]), Part.r.between(2, 30)),
        store.query(Part).where(Part.number > 0), store.query(Part).where(Part.price > Decimal(1)),
        store.query(Part.by_note("m")), store.query(Part).where(Part.note.is_in(["m", "n"])),
        store.query(Part).where(Part.tags.contains("u")), store.query(Part).limit(5),
        rng.choice(store.query(Part).allow_scan().split(3)),
    ]  # fmt: skip
    query: Any = rng.choice(queries).allow_scan()
    if by := rng.sample(GROUPS, rng.choice((0, 1, 1, 1, 2))):
        query = query.group_by(*by)
    verb = rng.choice(("count", "sum", "avg", "min", "max"))
    if verb == "count":
        return query.count  # type: ignore[no-any-return]
    field = rng.choice(SUMMED if verb in ("sum", "avg") else ORDERED)
    return lambda: getattr(query, verb)(field)


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.getLogger("tablemapper.query").setLevel(logging.ERROR)
    yield
    logging.getLogger("tablemapper.query").setLevel(logging.NOTSET)


@pytest.mark.parametrize("damaged", [False, True])
def test_sql_gives_the_totals_that_python_gives(
    damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: None, full_size: bool
) -> None:
    by_sql, totals = 0, SqliteReads.totals

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal by_sql
        rows = totals(*args, **options)
        by_sql += rows is not None
        return rows

    for seed in range(200 if full_size else 3):
        rng = random.Random(seed)
        path = tmp_path / f"{seed}.db"
        with tm.open(path, models=[Part], durability="relaxed") as store:
            store.insert_many(made(rng, number) for number in range(40))
        for _ in range(rng.randrange(1, 4) if damaged else 0):
            column, value, row = rng.choice(COLUMNS), rng.choice(DAMAGE), Part.key("a", rng.randrange(40))
            run_sql(path, f'UPDATE Parts SET "{column}" = {value} WHERE "RowKey" = ?', values=[row[2]])
        with tm.open(path, models=[Part]) as store:
            for _ in range(80):
                call = asked(rng, store)
                monkeypatch.setattr(SqliteReads, "totals", lambda *_, **__: None)
                expected = outcome(call)
                monkeypatch.setattr(SqliteReads, "totals", counted)
                assert outcome(call) == expected, (seed, call)
    assert by_sql > 60
