"""What a file answers, and the engine for Azure once did not: found by the tests of queries and verbs, run over it."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.service import Request

from ...classes import Span, Whole, entity
from .memory import Memory
from .place import AzurePlace


class Clerk(tm.Entity, table="Staff"):
    department: tm.Field[str]
    number: tm.Field[str]
    age: tm.Field[int] = tm.field(default=0)
    more: tm.Field[tm.Extra | None] = tm.field(default=None)

    key = tm.Key[str, str](partition="{department}", row="{number}")


Office = entity("Office", "Staff", {"department": str}, tm.Key[str](partition="{department}", row="Department"))


class Document(tm.Entity, table="Documents"):
    site: tm.Field[str]
    path: tm.Field[tuple[str, ...]]

    key = tm.Key[str, tuple[str, ...]](partition="{site}", row="{path}")


def opened(*models: type[tm.Record], memory: Memory | None = None) -> tm.Store:
    return tm.open(AzurePlace(memory=memory or Memory()), models=list(models))


def sent(memory: Memory, call: Any) -> list[Request]:
    before = len(memory.sent)
    call()
    return memory.sent[before:]


@pytest.mark.parametrize(
    "write",
    [
        lambda store, key: store.delete(key),
        lambda store, key: store.merge(key, age=3),
        lambda store, key: store.delete_many([key]),
    ],
    ids=["delete", "merge", "delete_many"],
)
def test_the_row_of_a_more_special_class_is_not_written_by_a_key_of_the_general_one(write: Any) -> None:
    store = opened(Clerk, Office)
    store.insert(office := Office("Sales"))
    with pytest.raises(tm.EntityNotFound):
        write(store, Clerk.key("Sales", "Department"))
    assert store.get(Office.key("Sales")) == office


def test_a_row_of_a_class_that_was_not_opened_has_its_values_and_nothing_of_ours() -> None:
    memory = Memory()
    opened(Clerk, Office, memory=memory).insert(Clerk("Sales", "1", 30))
    (unknown,) = opened(Office, memory=memory).partition(Office.department == "Sales")
    assert isinstance(unknown, tm.UnknownRow)
    assert unknown.properties == {"age": 30}


def test_undeclared_properties_may_be_none() -> None:
    store = opened(Clerk)
    store.insert_many([Clerk("a", "1"), Clerk("a", "2", more=tm.Extra(x=1))])
    assert [one.more for one in store.query(Clerk).where(Clerk.department == "a")] == [None, tm.Extra(x=1)]


def test_a_beginning_of_levels_is_no_text_to_send() -> None:
    store = opened(Document)
    paths = [("a",), ("a", "b"), ("c",)]
    store.insert_many(Document("s", path) for path in paths)
    query = store.query(Document).where(
        Document.site == "s", Document.path.startswith(("a",)) | (Document.path > ("b",))
    )
    assert [one.path for one in query] == paths


def test_a_key_that_no_key_can_be_is_not_asked_for() -> None:
    memory = Memory()
    store = opened(Document, memory=memory)
    long = store.query(Document).where(Document.site == "s", Document.path == ("a" * 600,))
    assert sent(memory, lambda: list(long)) == []
    assert list(long) == []


def test_a_group_that_cannot_be_shown_stops_nobody_and_is_shown_again_when_it_can_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, long = opened(Span, Whole), timedelta(days=100_000_000)
    store.insert(Span("a", 1, long))
    with caplog.at_level(logging.WARNING, "tablemapper.azure"):
        store.insert(Span("a", 2, long))
    assert "more microseconds than 64 bits hold; sum them as int; the group is not shown" in " ".join(
        caplog.messages[0].split()
    )
    assert store.get(Whole.key("a")) is None
    assert [one.kind for one in store.check().problems] == ["missing"]
    store.delete(Span.key("a", 1))
    assert store[Whole.key("a")].time == long
    assert store.check().ok
