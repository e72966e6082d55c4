"""Which texts are keys of a class: the definition against values, and the fast tests against the definition."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tablemapper.keys.canonical import KeyTest, is_key
from tablemapper.keys.composite_times import Pair, composed
from tablemapper.keys.template_parser import compile_template


class Color(enum.Enum):
    RED = "red"
    DARK_RED = "red "
    BLUE = "b/lue"


LETTERS = 'aZ0 9!"#./>[~}?\\é\x7f\U0001f600-_:,T%'


def text(rng: random.Random) -> str:
    return "".join(rng.choices(LETTERS if rng.random() < 0.4 else "abcXYZ019-_", k=rng.randrange(6)))


def moment(rng: random.Random) -> datetime:
    return datetime(
        rng.choice([1, 999, 2004, 2024, 9999]), rng.randint(1, 12), rng.randint(1, 28), tzinfo=UTC
    ) + timedelta(microseconds=rng.choice([0, 1, 86_399_999_999, rng.randrange(86_400_000_000)]))


VALUES: dict[Any, Callable[[random.Random], Any]] = {
    str: text, int: lambda rng: rng.choice([0, 7, 10, -1, -10, -99, rng.randrange(10**6), -rng.randrange(10**9)]),
    float: lambda rng: rng.choice([0.0, -1.5, 1e300, float("inf"), rng.uniform(-9, 9)]),
    bool: lambda rng: rng.random() < 0.5, Decimal: lambda rng: Decimal(rng.randrange(-999, 999)) / 100,
    datetime: moment, date: lambda rng: moment(rng).date(), time: lambda rng: moment(rng).time(),
    timedelta: lambda rng: timedelta(microseconds=rng.randrange(-(10**12), 10**12)),
    UUID: lambda rng: UUID(int=rng.getrandbits(128)), bytes: lambda rng: rng.randbytes(rng.randrange(4)),
    Color: lambda rng: rng.choice(list(Color)), tuple: lambda rng: tuple(text(rng) for _ in range(rng.randrange(3))),
}  # fmt: skip
SPECS: dict[Any, list[str]] = {
    str: ["", "", "fold", "hash", "prefix(2)"],
    int: ["", "05d", "desc", "012d"],
    float: ["", "desc"],
    datetime: ["", "desc", "%Y-%m", "%Y-%m-%d", "%G-W%V", "%Y-%q", "%H:%M:%S.%L", "%m-%d"],
    date: ["", "desc", "%Y-%m", "%G"],
    time: ["", "%H:%M"],
}
CHOSEN: list[tuple[Any, Any, dict[str, Any]]] = [
    ("{a}", "{b}", {"a": str, "b": str}), ("{a}", "{b:raw}", {"a": str, "b": str}),
    ("{a}", "{n:05d}", {"a": str, "n": int}), ("{a}", "v1-{n:05d}", {"a": str, "n": int}),
    ("{a}-{at:%Y-%m}", "{at}", {"a": str, "at": datetime}),
    ("{a}-{at:%Y-%m-%d}", "{at:%H:%M:%S.%fZ}", {"a": str, "at": datetime}),
    (("{a}", "{at:%Y}"), ("{at}", "{n}"), {"a": str, "at": datetime, "n": int}),
    ("{at:%G-W%V}", "{at}", {"at": datetime}), ("{at:%Y-%m}", "{at:%d %H}", {"at": datetime}),
    ("{at:%G-W%V}", "{at:%d}", {"at": datetime}), ("{id:shard(4)}", "{id}", {"id": str}),
    ("{id:shard(4)}", ("x", "{id}"), {"id": int}), ("{id:prefix(1)}", "{id}", {"id": str}),
    ("{a}", ("{a}", "{b}"), {"a": str, "b": str}), (("emp", "{n}"), "", {"n": int}),
    ("p", ("emp", "{n}"), {"n": int}), ("{kind}", "{kind}-{n:03d}", {"kind": Color, "n": int}),
    ("{a}", "{path}", {"a": str, "path": tuple}),
]  # fmt: skip


def pair(partition: Any, row: Any, kinds: dict[str, Any]) -> Pair:
    first, second = (compile_template(one, kinds, subject="test") for one in (partition, row))
    return composed(first, second, lambda _: "")


def random_pair(rng: random.Random) -> tuple[Pair, dict[str, Any]]:
    kinds = {f"f{at}": rng.choice([kind for kind in VALUES if kind is not tuple]) for at in range(rng.randint(1, 4))}

    def slot(field: str) -> str:
        spec = rng.choice(SPECS.get(kinds[field], [""]))
        return f"{{{field}:{spec}}}" if spec else f"{{{field}}}"

    fields = list(kinds)
    cut = rng.randrange(len(fields))
    parts = [tuple(map(slot, fields[:cut])) or ("all",), tuple(map(slot, fields[cut:]))]
    if rng.random() < 0.3:
        parts[1] = ("row9", *parts[1])
    if rng.random() < 0.3:  # (a bucket of what stands in the row)
        field = rng.choice(fields)
        spec = rng.choice(["shard(8)", *([one for one in SPECS.get(kinds[field], []) if "%" in one])])
        parts[0] = (*parts[0], f"{{{field}:{spec}}}")
        if not any(part == f"{{{field}}}" for part in parts[1]):
            parts[1] = (*parts[1], f"{{{field}}}")
    return pair(parts[0], parts[1], kinds), kinds


def values_of(rng: random.Random, kinds: dict[str, Any]) -> dict[str, Any]:
    return {name: VALUES.get(kind, VALUES[tuple])(rng) for name, kind in kinds.items()}


def mutated(rng: random.Random, key: str) -> str:
    """Return a text that is nearly a key."""
    at = rng.randrange(len(key) + 1)
    match rng.randrange(7):
        case 0:
            return key[:at] + key[at + 1 :]
        case 1:
            return key[:at] + rng.choice(LETTERS) + key[at:]
        case 2:
            return key[:at] + rng.choice("0123456789abcdefZ") + key[at + 1 :]
        case 3:
            return key.replace(rng.choice("01-aT"), rng.choice("39é."), 1)
        case 4:
            return key.swapcase()
        case 5:
            return key[:at] + key[at : at + 2][::-1] + key[at + 2 :]
    return key + key[-2:]


def expected(templates: Pair, key: tuple[str, str], kinds: dict[str, Any]) -> bool | None:
    """Return whether a key is what its values make; None where it does not give them all back."""
    first, second = templates
    try:
        values = first.decode(key[0], trusted=True) | second.decode(key[1], trusted=True)
        if values.keys() != kinds.keys():
            return None
        return (first.encode(values), second.encode(values)) == key
    except (ValueError, LookupError, ArithmeticError):
        return False


@pytest.mark.parametrize("part", range(2))
def test_each_text_is_told_as_its_values_say(part: int, full_size: bool) -> None:
    rng = random.Random(part)
    judged = refused = vouched = 0
    for number in range(4_000 if full_size else 250):
        if number < len(CHOSEN) and not part:
            (*texts, kinds) = CHOSEN[number]
            templates = pair(*texts, kinds)
        else:
            try:
                templates, kinds = random_pair(rng)
            except Exception as error:
                assert type(error).__name__ == "InvalidModel", error
                continue
        test, keys = KeyTest(templates), list[tuple[str, str]]()
        for _ in range(12):
            try:
                values = values_of(rng, kinds)
                key = templates[0].encode(values), templates[1].encode(values)
            except ValueError:
                continue
            keys.append(key)
            assert is_key(templates, key), (templates, key)
            assert test.has(*key), (templates, key)
            other = (mutated(rng, key[0]), key[1]) if rng.random() < 0.4 else (key[0], mutated(rng, key[1]))
            says = is_key(templates, other)
            assert test.has(*other) == says, (templates, other)
            if (whole := expected(templates, other, kinds)) is not None:
                assert says == whole, (templates, other)
                judged += 1
            refused += not says
            keys.append(other)
        keys.sort()
        for at in range(len(keys)):
            some = keys[at : at + rng.choice([1, 2, 24])]
            if test.has_all([one[0] for one in some], [one[1] for one in some]):
                vouched += len(some)
                assert all(is_key(templates, one) for one in some), (templates, some)
    assert min(judged, refused) > 300
    assert vouched > 500


@pytest.mark.parametrize(
    ("partition", "row", "kinds", "ours", "others"),
    [
        ("{a}", "{n:05d}", {"a": str, "n": int}, [("a", "00001")], [("a", "1"), ("a", "000001"), ("a", "settings")]),
        ("{a}", "v1-{n:05d}", {"a": str, "n": int}, [("a", "v1-00001")], [("a", "v2-00001"), ("a", "v1-0000a")]),
        ("p", ("emp", "{n}"), {"n": int}, [("p", "emp !a1")], [("p", "emp !a1 !x"), ("p", "emp !77"), ("q", "emp !a1")]),
        (
            "{at:%Y-%m}", "{at}", {"at": datetime},
            [("2024-01", "2024-01-15T00:00:00.000000Z"), ("2024-02", "2024-02-29T00:00:00.000000Z")],
            [
                ("2024-02", "2024-01-15T00:00:00.000000Z"), ("2024-01", "2024-01-15T00:00:00Z"),
                ("2024-01", "2024-02-15T00:00:00.000000Z"),
                ("2024-01", "2024-01-15T00:00:00.0000000Z"), ("2024-02", "2024-02-30T00:00:00.000000Z"),
            ],
        ),
        ("{at:%Y-%m}", "{at:%d}", {"at": date}, [("2024-02", "29")], [("2023-02", "29"), ("2024-13", "01"), ("0000-01", "01")]),
        ("{at:%G-W%V}", "x", {"at": date}, [("2020-W53", "x")], [("2021-W53", "x"), ("2021-W00", "x")]),
        ("{at:%Y-Q%q}", "{at:%d}", {"at": date}, [("2021-Q2", "31")], [("2021-Q5", "01"), ("2021-Q1", "32")]),
        ("{id:shard(4)}", "{id}", {"id": str}, [("3", "a")], [("1", "a"), ("7", "a")]),
        ("{a:fold}", "{b:prefix(2)}", {"a": str, "b": str}, [("straße".casefold(), "ab")], [("Ab", "ab"), ("a", "abc")]),
    ],
)  # fmt: skip
def test_these_are_keys_and_those_are_not(partition: Any, row: Any, kinds: Any, ours: Any, others: Any) -> None:
    templates = pair(partition, row, kinds)
    test = KeyTest(templates)
    assert [test.has(*one) for one in ours + others] == [True] * len(ours) + [False] * len(others)
    assert [is_key(templates, one) for one in ours + others] == [True] * len(ours) + [False] * len(others)
    for page in [*[[one] for one in others], *[sorted([*ours, one]) for one in others]]:
        assert not test.has_all([one[0] for one in page], [one[1] for one in page])
