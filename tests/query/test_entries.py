"""Conditions on the entries of a dict: the key is compared whole, and so are the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tablemapper as tm

KEYS = ["a", "a\0b", "a\0", "\0", "a.b", "a]b", "a b", "é", "a'b", "a\\u0000b", "a\\b"]


class Counter(tm.Entity, table="Counters"):
    name: tm.Field[str]
    counts: tm.Field[dict[str, int]] = tm.field(factory=dict)
    texts: tm.Field[dict[str, str] | None] = tm.field(default=None)
    nested: tm.Field[dict[str, dict[str, int]]] = tm.field(factory=dict)

    key = tm.Key[str](partition="all", row="{name}")


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Counter]) as opened:
        for at, key in enumerate(KEYS):
            opened.insert(
                Counter(f"{at:02}", {key: at}, {key: "x\0" if at % 2 else key}, {"a": {key: at}, key: {"a": 3}})
            )
        opened.insert(Counter("both", {"a": 1, "a\0b": 2}, {"a": "v", "a\0b": "w"}, {"a": {"a": 1}}))
        opened.insert(Counter("large", {"a\0b": 1}, {"a\0b": "n" * 9_000, "b": "x\0"}))
        yield opened


CASES: dict[str, Callable[[Any, str], tuple[Any, Callable[[Counter], bool]]]] = {
    "==": lambda cls, key: (cls.counts[key] == 1, lambda e: e.counts.get(key) == 1),
    "!=": lambda cls, key: (cls.counts[key] != 1, lambda e: e.counts.get(key, 1) != 1),
    ">": lambda cls, key: (cls.counts[key] > 0, lambda e: e.counts.get(key, 0) > 0),
    "is_in": lambda cls, key: (cls.counts[key].is_in([1, 2, 3]), lambda e: e.counts.get(key) in (1, 2, 3)),
    "is_null": lambda cls, key: (cls.counts[key].is_null(), lambda e: key not in e.counts),
    "not": lambda cls, key: (~(cls.counts[key] >= 0), lambda e: not e.counts.get(key, -1) >= 0),
    "text": lambda cls, key: (cls.texts[key] == "x\0", lambda e: e.texts.get(key) == "x\0"),
    "startswith": lambda cls, key: (cls.texts[key].startswith("x"), lambda e: e.texts.get(key, "").startswith("x")),
    "nested": lambda cls, key: (cls.nested["a"][key] == 1, lambda e: e.nested.get("a", {}).get(key) == 1),
    "nested behind": lambda cls, key: (cls.nested[key]["a"] == 3, lambda e: e.nested.get(key, {}).get("a") == 3),
}


@pytest.mark.parametrize("case", CASES)
def test_a_key_is_not_the_beginning_of_another(store: tm.Store, case: str) -> None:
    counters = [*store.query(Counter).allow_scan()]
    for key in KEYS:
        condition, matches = CASES[case](Counter, key)
        query = store.query(Counter).where(Counter.name >= "", condition).allow_scan()
        names = [counter.name for counter in counters if matches(counter)]
        assert [counter.name for counter in query] == names, key
        assert query.count() == len(names), key
