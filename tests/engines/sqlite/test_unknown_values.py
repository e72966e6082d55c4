"""Values that an older version does not know, in keys and in indexes: they are told as such, never as damage."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ...classes import entity


def version(*members: str, in_key: bool) -> tuple[Any, Any]:
    state = enum.Enum("State", {member.upper(): member for member in members})  # type: ignore[misc]
    return state, entity(
        "Order",
        "Orders",
        {"shop": str, "number": int, "state": state, "price": int},
        tm.Key(partition="{shop}", row=("{state}", "{number}") if in_key else "{number}"),
        price=tm.field(default=0),
        by_price=tm.Index(partition="{price}"),
        by_number=tm.Index(partition=("{number}", "{state}"), include=("price",)),
    )


@pytest.fixture(params=[True, False], ids=["in the key", "in an index"])
def stores(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    (old_state, old), (new_state, new) = (
        version(*members, in_key=request.param) for members in (("new", "sold"), ("new", "sold", "lost"))
    )
    with ExitStack() as stack:
        running = stack.enter_context(tm.open(tmp_path / "x.db", models=[old]))
        running.insert(old("a", 1, old_state.NEW))
        newer = stack.enter_context(tm.open(tmp_path / "x.db", models=[new]))
        newer.insert(new("a", 2, new_state.LOST))
        yield running, old, old_state, newer


READS: dict[str, Callable[[tm.Store, Any], object]] = {
    "a scan": lambda store, cls: list(store.query(cls).allow_scan()),
    "a query": lambda store, cls: list(store.query(cls).where(cls.shop == "a")),
    "a sorted query": lambda store, cls: list(store.query(cls).where(cls.shop == "a").order_by(cls.price.desc())),
    "a partition": lambda store, cls: list(store.partition(cls.shop == "a")),
    "a page": lambda store, cls: store.query(cls).where(cls.shop == "a").page(5),
    "an index": lambda store, cls: list(store.query(cls.by_price(0))),
    "a covering index": lambda store, cls: list(store.query(cls.by_number(2)).select(cls.state, cls.price)),
    "a write by query": lambda store, cls: store.query(cls).where(cls.shop == "a").update(price=3),
}


@pytest.mark.parametrize("read", READS)
def test_a_member_that_a_version_does_not_know_is_told_as_such(read: str, stores: Any) -> None:
    running, old, _, _ = stores
    with pytest.raises(tm.SchemaMismatch, match=r"lost'.*, which this version does not know"):
        READS[read](running, old)


def test_all_else_is_read_and_written(stores: Any) -> None:
    running, old, state, newer = stores
    running.insert(old("b", 3, state.SOLD))
    assert [one.number for one in running.query(old).where(old.shop == "b")] == [3]
    assert running.query(old).where(old.shop == "a").count() == 2
    assert [one.state for one in running.query(old).where(old.shop == "b").order_by(old.price)] == [state.SOLD]
    assert list(running.query(old.by_number(3)).select(old.state)) == [(state.SOLD,)]
    assert newer.check().ok
