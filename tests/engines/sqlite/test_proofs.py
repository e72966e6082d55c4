"""After a failed commit a query tells whether the transaction is in the file: none before, a row after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

pytestmark = pytest.mark.file


class Part(tm.Entity, table="Parts"):
    group: tm.Field[str]
    number: tm.Field[int]
    text: tm.Field[str] = tm.field(default="")

    key = tm.Key[str, int](partition="{group}", row="{number}")
    by_text = tm.Index[str](partition="{text}")


def several(tx: tm.Transaction, store: tm.Store) -> None:
    tx.delete(Part.key("a", 1))
    tx.merge(Part.key("a", 2), text="m")
    tx.upsert(Part("a", 4))


WRITES: dict[str, Callable[[tm.Transaction, tm.Store], object]] = {
    "insert": lambda tx, store: tx.insert(Part("a", 9)),
    "inserts": lambda tx, store: [tx.insert(Part("a", number)) for number in (9, 8)],
    "replace": lambda tx, store: tx.replace(store[Part.key("a", 1)].replace(text="r")),
    "merge": lambda tx, store: tx.merge(Part.key("a", 2), text="m"),
    "upsert of a new one": lambda tx, store: tx.upsert(Part("a", 4)),
    "upsert": lambda tx, store: tx.upsert(Part("a", 1, "u")),
    "delete": lambda tx, store: tx.delete(Part.key("a", 1)),
    "several": several,
    "delete and require": lambda tx, store: (tx.require(store[Part.key("a", 1)]), tx.delete(Part.key("a", 2))),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tm.Store]:
    with tm.open(tmp_path / "s.db", models=[Part], durability="relaxed") as opened:
        opened.insert_many([Part("a", number, f"t{number}") for number in (1, 2, 3)])
        yield opened


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_transaction_proves_itself(store: tm.Store, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file: Any = store._engine.file  # type: ignore[attr-defined]
    seen: list[Any] = []
    real = file._writes._apply

    def apply(pending: Any, timestamp: int) -> None:
        real(pending, timestamp)
        sql, args = pending.proof
        seen.extend((sql, args, file.get(sql, args)))  # (a reader sees the state before)

    monkeypatch.setattr(type(file._writes), "_apply", lambda self, pending, timestamp: apply(pending, timestamp))
    with store.transaction() as tx:
        write(tx, store)
    sql, args, before = seen
    assert (before, file.get(sql, args)) == (None, (1,))
