"""One list says what follows from a write, whatever writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.file.writer import Writer
from tablemapper.engines.sqlite.rows import write_hooks
from tablemapper.engines.sqlite.rows.write_hooks import MaintenanceHook, WriteHook, WrittenRows, hooks_of
from tablemapper.engines.sqlite.sql.schema import SqliteSchema
from tablemapper.schema.maintenance import ChangeSet
from tablemapper.schema.model import Model
from tablemapper.schema.rows import Row

from ...classes import entity

Bare = entity("Bare", "Bare", {"id": str, "value": int}, tm.Key[str](partition="{id}"))


class Indexed(tm.Entity, table="Indexed"):
    id: tm.Field[str]
    value: tm.Field[int]

    key = tm.Key[str](partition="{id}")
    by_value = tm.Index[int](partition="{value}")


seen: list[tuple[str, str]] = []


class Feed(WriteHook):
    """Notes what happened to each entity of a class."""

    @staticmethod
    def concerns(sqlite: SqliteSchema, model: Model) -> bool:
        return model.name == "Bare"

    def prepare(
        self, writer: Writer, written: Mapping[Model, WrittenRows], changes: ChangeSet
    ) -> list[tuple[str, str]]:
        (some,) = written.values()
        pairs = [("update", some.updates), ("delete", some.deletes), ("insert", some.inserts)]
        return [(verb, operation.partition) for verb, operations in pairs for operation in operations]

    def finish(self, writer: Writer, written: Mapping[Model, WrittenRows], changes: ChangeSet, before: Any) -> None:
        seen.extend(before)

    def collect_added(self, writer: Writer, model: Model, rows: list[Row], changes: ChangeSet) -> None:
        seen.extend([("new", row[0]) for row in rows])

    def flush(self, writer: Writer, changes: ChangeSet) -> None:
        seen.append(("flush", ""))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(write_hooks, "_KINDS", (*write_hooks._KINDS, Feed))
    seen.clear()
    with tm.open(tmp_path / "s.db", models=[Bare, Indexed], durability="relaxed") as opened:
        yield opened


def test_a_single_insert_and_operations_call_each_follower(store: tm.Store) -> None:
    store.insert(Bare("a", 1))
    with store.transaction(across_partitions=True) as tx:
        tx.upsert(Bare("b", 1))
        tx.merge(Bare.key("a"), value=2)
    store.delete(Bare.key("a"))
    store.insert(Indexed("x", 1))
    assert seen == [("insert", "a"), ("update", "a"), ("insert", "b"), ("delete", "a")]


@pytest.mark.parametrize("atomic", [False, True])
def test_many_new_entities_call_each_follower_whatever_writes_them(store: tm.Store, *, atomic: bool) -> None:
    store.insert_many([Bare("b", 1), Bare("a", 1)], atomic=atomic)
    store.insert_many([Indexed("a", 1)], atomic=atomic)
    assert sorted(seen[:2]) == [("new", "a"), ("new", "b")]
    assert seen[2:] == [("flush", "")]


def test_columns_call_each_follower(store: tm.Store) -> None:
    store.insert_columns(Bare, {"id": ["a", "b"], "value": [1, 2]})
    assert seen == [("new", "a"), ("new", "b"), ("flush", "")]


def test_most_classes_have_no_follower_or_what_is_maintained_alone(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[Bare, Indexed]) as opened:
        sqlite = opened._operations.engine._sqlite  # type: ignore[attr-defined]
        bare, indexed = (next(model for model in sqlite.models if model.name == name) for name in ("Bare", "Indexed"))
        assert hooks_of(sqlite, (bare,), lambda *_: None) == ()
        assert [type(one) for one in hooks_of(sqlite, (indexed,), lambda *_: None)] == [MaintenanceHook]
