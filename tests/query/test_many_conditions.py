"""Queries with more conditions than SQLite takes, or compiles at once: those beyond that are checked after reading."""

from __future__ import annotations

import functools
import operator
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.sql import select


class Ball(tm.Entity, table="Balls"):
    box: tm.Field[str]
    number: tm.Field[int]
    note: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{box}", row="{number}")


@pytest.mark.parametrize("join", [operator.and_, operator.or_])
def test_a_query_takes_more_conditions_than_sql(join: Any) -> None:
    with tm.open(":memory:", models=[Ball]) as store:
        store.insert_many(Ball("a", number, None if number % 2 else "note") for number in range(4))
        query = store.query(Ball).where(Ball.box == "a", Ball.number < 3)
        many = query.where(functools.reduce(join, [Ball.note.is_null()] * 5_000))
        assert [ball.number for ball in many] == [1]
        assert many.count() == 1


def test_conditions_beyond_the_room_in_sql_are_checked_after_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    with tm.open(":memory:", models=[Ball]) as store:
        store.insert_many(Ball("a", number, str(number)) for number in range(9))
        texts = [str(number) for number in range(0, 9, 2)]
        monkeypatch.setattr(select, "_ROOM", 40)
        query = store.query(Ball).where(Ball.box == "a", *[Ball.note != text for text in texts], Ball.number != 1)
        assert [ball.number for ball in query] == [3, 5, 7]
