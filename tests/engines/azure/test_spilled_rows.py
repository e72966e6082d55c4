"""Rows in memory and in a file answer as a dict does."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablemapper.engines.azure.reading import spilled_rows
from tablemapper.engines.azure.reading.spilled_rows import SpilledRows

PARTS = st.sampled_from(["", "a", "b", "ab", "ä", "😀", "\ue000", " !x"])
STEPS = st.lists(st.tuples(st.tuples(PARTS, PARTS, PARTS), st.integers()), max_size=40)


@given(STEPS, st.lists(st.sampled_from(["items", "first", "length", "get"]), max_size=5))
def test_rows_are_those_of_a_dict(steps: list[tuple[Any, int]], looks: list[str]) -> None:
    rows, expected = SpilledRows[tuple[int]](), dict[Any, tuple[int]]()
    for at, (key, value) in enumerate(steps):
        rows[key] = expected[key] = (value,)
        look = looks[at] if at < len(looks) else "get"
        if look == "items":
            assert dict(rows.items()) == expected
        elif look == "first":
            found = rows.first_behind(*key[:2])
            assert found in expected
            assert found is not None
            assert found[:2] == key[:2]
        elif look == "length":
            assert len(rows) == len(expected)
        assert rows.get(key) == (value,)
    assert rows.get(("none", "", "")) is None
    assert rows.first_behind("none") is None
    assert sorted(rows.values()) == sorted(expected.values())
    assert len(rows) == len(expected)


def test_many_rows_take_no_more_memory_than_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_rows, "_MOST", 500)
    rows = SpilledRows[tuple[str, ...]]()
    tracemalloc.start()
    try:
        for number in range(20_000):
            rows["p", f"{number:06}"] = ("text" * 20, f"{number}", "more")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2_000_000
    assert len(rows) == 20_000
