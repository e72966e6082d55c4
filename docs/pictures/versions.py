"""Pictures of two versions over time: each reads and writes in every phase, and the picture shows what came of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from decimal import Decimal
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
    panel = Panel(f"{title}: what each version can do, phase by phase")
    panel.text(2, 14, title, "t")
    for at, name in enumerate(("version 1", "version 2")):
        panel.text(_LABEL + (at + 0.5) * _LANE, 38, name, "s", anchor="middle")
    for at, (phase, *able) in enumerate(_phases(new, script)):
        top = 46 + at * _TALL
        panel.line(f"M0 {top - 0.5:g} H{_LABEL + 2 * _LANE}")
        panel.text(2, top + 21, phase, "s")
        for side, can in enumerate(able):
            if can:
                x = _LABEL + side * _LANE
                panel.box(x + 3, top + 2, _LANE - 6, _TALL - 5, _BOX[can][1 - side])
                panel.text(
                    x + _LANE / 2,
                    top + 21,
                    can,
                    f"on-{_BOX[can][1 - side]}",
                    anchor="middle",
                )
        panel.said.append(
            f"{phase}: version 1: {able[0]}; version 2: {able[1] or 'not started'}."
        )
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
