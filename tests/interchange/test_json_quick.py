"""Members that are in order are read by one generated function; what it makes is what reading them in full makes."""

from __future__ import annotations

import enum
import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

import tablemapper as tm
from tablemapper.interchange.json import json_form


class Color(enum.Enum):
    red = "r"
    blue = "b"


class Level(enum.IntEnum):
    low = 1
    high = 2


class Size(msgspec.Struct):
    wide: float
    note: str = ""


class Thing(tm.Entity, table="Things"):
    name: tm.Field[str]
    at: tm.Field[datetime]
    count: tm.Field[int] = tm.field(default=0)
    small: tm.Field[Annotated[int, msgspec.Meta(ge=0, le=9)]] = tm.field(default=1)
    warmth: tm.Field[float] = tm.field(default=0.5)
    price: tm.Field[Decimal | None] = tm.field(default=None, kw_only=True)
    on: tm.Field[bool] = tm.field(default=True)
    day: tm.Field[date | None] = tm.field(default=None)
    hour: tm.Field[time | None] = tm.field(default=None)
    span: tm.Field[timedelta] = tm.field(default=timedelta())
    code: tm.Field[UUID | None] = tm.field(default=None)
    raw: tm.Field[bytes] = tm.field(default=b"")
    color: tm.Field[Color] = tm.field(default=Color.red)
    level: tm.Field[Level] = tm.field(default=Level.low)
    word: tm.Field[Literal["a", "b"]] = tm.field(default="a")
    tags: tm.Field[list[str]] = tm.field(factory=list)
    size: tm.Field[Size | None] = tm.field(default=None)
    either: tm.Field[dict[str, Decimal] | None] = tm.field(default=None)
    old: tm.Field[str | None] = tm.field(default=None, name="oldName")

    key = tm.Key[str](partition="{name}")


class Ruled(tm.Entity, table="Ruled"):
    low: tm.Field[int]
    high: tm.Field[int]

    key = tm.Key[int](partition="{low}")

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


ODD: list[Any] = [
    None, True, 0, 1, 2, 9, 10, -1, 2**53, 2**53 + 1, 2**63, 2**64, 1.0, 1.5, 1e300, "", "a", "r", "x", "1", "1.50", "inf",
    "2025-01-02", "2025-01-02T03:04:05Z", "2025-01-02T03:04:05.1234567Z", "2025-01-02T03:04:05+02:00", "2025-01-02T03:04:05",
    "03:04:05", "PT1.5S", "aGk=", "12345678-1234-5678-1234-567812345678", "say \"hi\"", "a\\b", "é\0", [], ["a"], ["a", 1], {},
    {"wide": 1}, {"wide": 1.5, "gone": 2}, {"wide": 2**60 + 1}, [[]],
]  # fmt: skip
VALUES: list[Any] = [
    Decimal("1.10"), datetime(2025, 1, 2, tzinfo=UTC), datetime(2025, 1, 2), date(2025, 1, 2), time(1), timedelta(1), b"x",
    UUID(int=5), Color.blue, Level.high, Size(1.0), float("inf"), object,
]  # fmt: skip
GOOD: dict[str, list[Any]] = {
    "name": ["n", "m"], "at": ["2025-01-02T03:04:05Z", "2025-01-02T03:04:05.123456789+01:00"], "count": [1], "small": [3],
    "warmth": [1, 1.5], "price": ["1.50", None], "on": [False], "day": ["2025-01-02"], "hour": ["03:04:05"],
    "span": ["PT1.5S"], "code": ["12345678-1234-5678-1234-567812345678"], "raw": ["aGk="], "color": ["b"], "level": [2],
    "word": ["b"], "tags": [["t"], []], "size": [{"wide": 1.5}], "either": [{"a": "1.5"}, None], "oldName": ["o"],
}  # fmt: skip


def drawn(rng: random.Random, odd: list[Any]) -> dict[str, Any]:
    members = {
        name: rng.choice(values) for name, values in GOOD.items() if name in ("name", "at") or rng.random() < 0.4
    }
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        members[rng.choice([*GOOD, "gone", "odata.etag"])] = rng.choice(odd)
    if rng.random() < 0.1:
        members.pop("name", None)
    return members


def outcome(call: Callable[[], Any]) -> str:
    try:
        return repr(call())
    except (tm.TableMapperError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def test_what_is_read_quickly_is_what_is_read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, quick, read = random.Random(5), 0, json_form(Thing).read

    def counted(members: Any) -> Any:
        nonlocal quick
        made = read(members)
        quick += made is not None
        return made

    for _ in range(1_500):
        members = drawn(rng, ODD)
        text = json.dumps(members, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 1)))
        if rng.random() < 0.1:
            text = f'{text[:-1].rstrip()}, "{rng.choice(list(members))}": {json.dumps(rng.choice(ODD[:20]))}}}'
        text = text.replace('"1.50"', rng.choice(('"1.50"', "1.50000000000000000000000000001")))
        given = drawn(rng, [*ODD, *VALUES])
        calls = [lambda text=text: tm.from_json(Thing, text), lambda given=given: tm.from_dict(Thing, given)]
        for call in calls:
            monkeypatch.setitem(json_form(Thing).__dict__, "read", lambda _: None)
            expected = outcome(call)
            monkeypatch.setitem(json_form(Thing).__dict__, "read", counted)
            assert outcome(call) == expected, (text, given)
    assert quick > 700


def test_a_rule_is_told_as_the_constructor_tells_it() -> None:
    assert tm.from_dict(Ruled, {"low": 1, "high": 2}) == Ruled(1, 2)
    assert outcome(lambda: tm.from_dict(Ruled, {"low": 3, "high": 2})) == outcome(lambda: Ruled(3, 2))
