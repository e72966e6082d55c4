"""Pictures of two versions over time: each reads and writes in every phase, and the picture shows what came of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

import tablemapper as tm

from .panel import Panel, picture

KEY = tm.Key[str, int](partition="{category}", row="{number}")


def _version(**fields: Any) -> Any:
    """Return a version of the class of products."""
    annotations = {"category": str, "number": int} | fields
    body: dict[str, Any] = {"note": tm.field(default=None)} if "note" in fields else {}
    return type(tm.Entity)(
        "Product",
        (tm.Entity,),
        {
            "__annotations__": {name: tm.Field[kind] for name, kind in annotations.items()},
            "__module__": __name__,
            "key": KEY,
        }
        | body,
        table="Products",
    )


PRICED = _version(price=str)
NOTED = _version(price=str, note=str | None)
COSTING = _version(cost=str)
DECIMAL = _version(price=Decimal)
CENTS = _version(cents=int)


@tm.migration(after=None, old=[PRICED], new=[COSTING])
def rename(m: tm.Migration) -> None:
    """Change a name."""
    m.rename(PRICED.price, COSTING.cost)


@tm.migration(after=None, old=[PRICED], new=[DECIMAL])
def convert_and_back(m: tm.Migration) -> None:
    """Change a type, with a way back that the store knows."""
    m.convert(PRICED.price, DECIMAL.price, Decimal, back=str)


@tm.migration(after=None, old=[PRICED], new=[CENTS])
def convert(m: tm.Migration) -> None:
    """Change a type, with no way back."""
    m.convert(PRICED.price, CENTS.cents, lambda price: int(Decimal(price) * 100))


def deployments() -> str:
    """Return the three kinds of change."""
    return picture(
        "deployments",
        _panel("An addition", NOTED, None),
        _panel("Both directions: rename", COSTING, rename),
        _panel("A function: convert", CENTS, convert),
    )


def migrations() -> str:
    """Return a change of a name, of a type with a way back, and of a type without one."""
    return picture(
        "migrations",
        _panel("rename", COSTING, rename),
        _panel("convert, back=str", DECIMAL, convert_and_back),
        _panel("convert, no way back", CENTS, convert),
    )


_BOX = {
    "read, write": "ab",
    "read": "rr",
    "refused": "xx",
}  # the boxes of the new and the old
_LABEL, _LANE, _TALL = 72, 76, 34


def _panel(title: str, new: Any, script: Any) -> Panel:
    """Draw time downwards: a box lasts as long as a version can do the same."""
    panel = Panel(f"{title}: what each version can do, phase by phase")
    panel.text(2, 14, title, "t")
    phases = list(_phases(new, script))
    for at, (phase, *able) in enumerate(phases):
        panel.line(f"M0 {45.5 + at * _TALL:g} H{_LABEL + 2 * _LANE}")
        panel.text(2, 67 + at * _TALL, phase, "s")
        panel.said.append(
            f"{phase}: version 1: {able[0]}; version 2: {able[1] or 'not started'}."
        )
    for side, name in enumerate(("version 1", "version 2")):
        left = _LABEL + side * _LANE
        panel.text(left + _LANE / 2, 38, name, "s", anchor="middle")
        at = 0
        for can, same in groupby(phase[1 + side] for phase in phases):
            tall = _TALL * len(list(same))
            if can:
                kind = _BOX[can][1 - side]
                panel.box(left + 3, 48 + at, _LANE - 6, tall - 5, kind)
                middle = 50 + at + tall / 2
                panel.text(left + _LANE / 2, middle, can, f"on-{kind}", anchor="middle")
            at += tall
    return panel


def _phases(new: Any, script: Any) -> Iterator[tuple[str, str, str]]:
    """Yield each phase of a deployment, and what the old and the new version can do in it."""
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "shop.db"

        def opened(model: Any) -> tm.Store:
            return stack.enter_context(tm.open(path, models=[model]))

        old = opened(PRICED)
        old.insert_many(PRICED("books", n, f"{n}.50") for n in range(10))

        def both() -> tuple[str, str]:
            return _able(lambda: old, PRICED), _able(lambda: opened(new), new)

        yield "before", _able(lambda: old, PRICED), ""
        if script is None:
            yield "deployed", *both()
            return
        if not tm.migrate(path, [script], limit=3).applied:
            yield "copying", *both()
            tm.migrate(path, [script])
        yield "switched", *both()
        tm.migrate(path, [script], contract=True)
        yield "contracted", *both()


def _able(store: Callable[[], tm.Store], cls: Any) -> str:
    key = cls.key("books", 1)
    can = []
    for name, verb in (
        ("read", lambda one: one[key]),
        ("write", lambda one: one.upsert(one[key])),
    ):
        with suppress(tm.SchemaMismatch):
            verb(store())
            can.append(name)
    return ", ".join(can) or "refused"
