"""What comes out where something else is raised than a fault of a value: it is not taken for one, and hides none."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

import pytest

import tablemapper as tm
from tablemapper.interchange import json
from tablemapper.values import nested


class Mood(Enum):
    GOOD = "good"


class Coin:
    def __init__(self, cents: int) -> None:
        self.cents = cents


class CoinError(Exception):
    """What a hook raises of its own."""


def _coin(form: Any, _: Any) -> Coin:
    if form < 0:
        raise CoinError("below zero")
    return Coin(form)


tm.converter().register_unstructure_hook(Coin, lambda coin: coin.cents)
tm.converter().register_structure_hook(Coin, _coin)


class Odd(tm.Entity, table="Odds"):
    id: tm.Field[str]
    n: tm.Field[int | None] = tm.field(default=None)
    real: tm.Field[float | None] = tm.field(default=None)
    is_on: tm.Field[bool | None] = tm.field(default=None)
    price: tm.Field[Decimal | None] = tm.field(default=None)
    at: tm.Field[datetime | None] = tm.field(default=None)
    day: tm.Field[date | None] = tm.field(default=None)
    hour: tm.Field[time | None] = tm.field(default=None)
    span: tm.Field[timedelta | None] = tm.field(default=None)
    uuid: tm.Field[UUID | None] = tm.field(default=None)
    raw: tm.Field[bytes | None] = tm.field(default=None)
    mood: tm.Field[Mood | None] = tm.field(default=None)
    tags: tm.Field[list[str] | None] = tm.field(default=None)
    coin: tm.Field[Coin | None] = tm.field(default=None)
    more: tm.Field[tm.Extra | None] = tm.field(default=None)

    key = tm.Key[str](partition="{id}")


VALUES: dict[str, Any] = {
    "n": 1, "real": 1.5, "is_on": True, "price": Decimal(1), "at": datetime(2026, 1, 1, tzinfo=UTC), "day": date(2026, 1, 1),
    "hour": time(1), "span": timedelta(1), "uuid": uuid4(), "raw": b"x", "mood": Mood.GOOD, "tags": ["a"], "coin": Coin(1),
    "more": tm.Extra(x="y"),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_a_lone_surrogate_is_a_fault_of_every_field(name: str) -> None:
    for call in (
        lambda: Odd("a", **{name: "\ud800"}),
        lambda: setattr(Odd("a"), name, "\ud800"),
        lambda: tm.from_dict(Odd, {"id": "a", name: "\ud800"}),
        lambda: Odd("a").replace(**{name: "\ud800"}),
    ):
        with pytest.raises(tm.InvalidEntity, match=name):
            call()


class Stop(ValueError):
    """What the handler of a signal raises."""


@pytest.mark.parametrize(("module", "function"), [(json, "check_value"), (nested, "_take_apart")])
def test_what_a_handler_of_signals_raises_meanwhile_comes_out(
    monkeypatch: pytest.MonkeyPatch, module: Any, function: str
) -> None:
    class Halt(Exception): ...

    error = Halt if module is nested else Stop

    def strikes(*_: Any, **__: Any) -> Any:
        raise error("now")

    text = tm.to_json(Odd("a", tags=["a"], coin=Coin(1), more=tm.Extra(x="y")))
    monkeypatch.setattr(module, function, strikes)
    with pytest.raises(error, match="^now$"):
        tm.from_json(Odd, text)


def test_what_a_hook_raises_of_its_own_is_a_fault_of_the_value() -> None:
    with pytest.raises(tm.InvalidEntity, match="coin.*CoinError: below zero"):
        Odd("a", coin=Coin(-1))
    with pytest.raises(tm.InvalidEntity, match="coin.*CoinError: below zero"):
        tm.from_json(Odd, b'{"id": "a", "coin": -1}')


def test_a_time_zone_that_raises_is_a_fault_of_the_value() -> None:
    class Far(tzinfo):
        def utcoffset(self, _: datetime | None) -> timedelta:
            return timedelta(days=9)

    with pytest.raises(tm.InvalidEntity, match="at: .*strictly between"):
        Odd("a", at=datetime(2026, 1, 1, tzinfo=Far()))
