"""Parts of undeclared texts in conditions: a value that is no text counts as missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tablemapper as tm


class Ball(tm.Entity, table="Balls"):
    box: tm.Field[str]
    number: tm.Field[int]
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, int](partition="{box}", row="{number}")
    by_color = tm.Index[str, str](partition="{box}", row="{more[color]}")
    reddish = tm.Index[str](partition="{box}", where=lambda b: b.more["color"].startswith("re"))


@pytest.fixture(scope="module")
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Ball]) as opened:
        colors: list[dict[str, Any]] = [{"color": "red"}, {"color": "blue"}, {"color": 7}, {}, {"color": "reed"}]
        opened.insert_many(Ball("a", number, tm.Extra(color)) for number, color in enumerate(colors))
        yield opened


COLOR: Any = Ball.more["color"]


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        (COLOR.startswith("re"), {0, 4}),
        (~COLOR.startswith("re"), {1, 2, 3}),
        (COLOR.contains("e"), {0, 1, 4}),
        (~COLOR.contains("e"), {2, 3}),
        (COLOR.contains("e") & ~COLOR.startswith("r"), {1}),
    ],
)
def test_undeclared_texts_are_found_by_their_parts(store: tm.Store, condition: Any, numbers: set[int]) -> None:
    assert {ball.number for ball in store.query(Ball).where(Ball.box == "a", condition)} == numbers


def test_the_beginning_of_an_undeclared_text_follows_an_index(store: tm.Store) -> None:
    query = store.query(Ball).where(Ball.box == "a", COLOR.startswith("re"))
    assert query.explain().path in ("Ball.by_color", "Ball.reddish")
    assert store.check().ok


def test_what_is_no_text_begins_with_nothing() -> None:
    with pytest.raises(tm.InvalidQuery, match="both must be text"):
        COLOR.startswith(5)
