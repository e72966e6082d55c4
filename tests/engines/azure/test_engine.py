"""The engine for Azure: what it keeps beside what every engine keeps, over a service of dicts and over the emulator."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import re
import runpy
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import tablemapper as tm
from tablemapper.engines.azure.catalogue.open_classes import CatalogueRefresher
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables.reserved_names import CLAIM
from tablemapper.engines.azure.tables.service import (
    CreateTable,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    RowChange,
)
from tablemapper.schema.model import compile_schema

from ...classes import Other, entity, grouped
from ...stores import repaired, sound_store
from ...threads import at_once
from ..test_contract import Kind, Part, held
from .memory import Memory, Options
from .place import AzurePlace

Plain = entity("Plain", "Plains", {"id": str, "text": (str, tm.field(default=""))}, tm.Key[str](partition="{id}"))


MODELS: list[Any] = [Part, Kind, Plain]


class Counting:
    """A service that counts what is sent, and may fail."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.sent: list[Any] = []
        self.faults: list[Callable[[Any], Any]] = []

    def send(self, request: Any, *wait: float) -> Any:
        self.sent.append(request)
        if self.faults:
            return self.faults.pop(0)(request)
        return self.inner.send(request)

    def close(self) -> None: ...

    def lose_answer(self, request: Any) -> Any:
        self.inner.send(request)
        raise NoResponse("the answer")

    def lose_request(self, request: Any) -> Any:
        raise NoResponse("the request")


@pytest.fixture
def service() -> Counting:
    return Counting(Memory())


@pytest.fixture
def store(service: Counting) -> Iterator[tm.Store]:
    engine = AzureEngine.open(service, "here", compile_schema(MODELS), sleep=lambda seconds: None)
    service.sent.clear()
    with tm.Store(engine) as store:
        yield store


# ------------------------------------------------------------------------------------------ what a verb costs


@pytest.mark.parametrize(
    ("call", "requests"),
    [
        (lambda store: store.insert(Plain("b")), 1),
        (lambda store: store.upsert(Plain("a", "y")), 1),
        (lambda store: store.get(Plain.key("a")), 1),
        (lambda store: store.delete(Plain.key("a")), 1),
        (lambda store: store.merge(Plain.key("a"), text="z"), 1),
        (lambda store: store.merge(Plain.key("a"), text="z", returning=True), 2),
        (lambda store: store.merge(Part.key("a", 1), name="z"), 2),
        (lambda store: store.insert(Part("a", 9, name="x", code="9")), 2),
        (lambda store: store.delete(Part.key("a", 1)), 3),
        (lambda store: list(store.query(Part).where(Part.kind == "a")), 1),
        (lambda store: list(store.query(Part.by_name("a", "n1"))), 2),
        (lambda store: store.query(Part.by_name("a", "n1")).select(Part.weight).page(5), 1),
    ],
)
def test_a_verb_sends_so_many_requests(store: tm.Store, service: Counting, call: Any, requests: int) -> None:
    store.insert(Plain("a", "x"))
    store.insert(Part("a", 1, "n1", 1.0))
    service.sent.clear()
    call(store)
    assert len(service.sent) == requests, service.sent


def test_an_entity_that_was_read_is_replaced_without_reading_it_again(store: tm.Store, service: Counting) -> None:
    store.insert(Plain("a", "x"))
    entity = store[Plain.key("a")]
    service.sent.clear()
    entity.text = "y"
    store.replace(entity)
    store.delete(entity)
    assert [type(one) for one in service.sent] == [GroupTransaction, GroupTransaction]


def test_all_that_follows_from_a_write_is_in_its_transaction(store: tm.Store, service: Counting) -> None:
    store.insert(Part("a", 1, "x", 2.0, "c", ["red", "blue"]))
    (commit,) = [one for one in service.sent if isinstance(one, GroupTransaction)]
    assert [change.row for change in commit.changes] == [
        "part !a1", "total", ' "xKind.by_parts !a1  !total', ' "xPart.by_name !x !a1  !part !a1', ' "xPart.by_code !c  !',
        ' "xPart.by_tag !red  !part !a1', ' "xPart.by_tag !blue  !part !a1',
    ]  # fmt: skip


def test_a_new_engine_of_a_store_that_is_known_reads_its_catalogue_and_which_tables_there_are(
    service: Counting,
) -> None:
    AzureEngine.open(service, "here", compile_schema(MODELS)).close()
    service.sent.clear()
    AzureEngine.open(service, "here", compile_schema(MODELS)).close()
    assert [type(one).__name__ for one in service.sent] == ["QueryEntities", "ListTables"]  # (side by side)


def test_all_verbs_write_partition_by_partition(store: tm.Store) -> None:
    parts = [Part(kind, number, f"n{number % 2}", 1.0) for kind in "ab" for number in range(5)]
    store.upsert_many(parts)
    assert store.query(Part).where(Part.name == "n1").allow_scan().update(Part.weight.set(2.0)) == 4
    assert store.query(Part).where(Part.kind == "b", Part.number > 2).delete() == 2
    store.update(Part.key("a", 0), lambda part: part.replace(name="new"))
    store.move(store[Part.key("a", 1)], Part.key("a", 9))
    store.delete_many([Part.key("a", 2), Part.key("b", 0)])
    store.insert_columns(Part, {"kind": ["c", "c"], "number": [1, 2], "name": ["x", None]})
    with pytest.raises(tm.InvalidTransaction, match="not possible on Azure Tables"):
        store.move(store[Part.key("a", 9)], Part.key("b", 9))
    assert [(part.kind, part.number, part.name, part.weight) for part in held(store)] == [
        ("a", 0, "new", 1.0), ("a", 3, "n1", 2.0), ("a", 4, "n0", 1.0), ("a", 9, "n1", 2.0), ("b", 1, "n1", 2.0),
        ("b", 2, "n0", 1.0), ("c", 1, "x", None), ("c", 2, None, None),
    ]  # fmt: skip
    assert store.query(Part).where(Part.kind == "a").sum(Part.weight) == 6.0
    assert store.check().ok


def test_a_forked_process_opens_its_own_store(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(tm.StoreClosed, match="belongs to the parent"):
        store.get(Plain.key("a"))


# ------------------------------------------------------------------------------------------ lost answers


WRITES: list[Callable[[tm.Store], object]] = [
    lambda store: store.insert(Part("a", 2, "y", 3.0)),
    lambda store: store.merge(Part.key("a", 1), weight=3.0),
    lambda store: store.replace(Part("a", 1, "z"), if_match="*"),
    lambda store: store.upsert(Part("a", 2, "y", 3.0)),
]


@pytest.mark.parametrize("write", WRITES, ids=["insert", "merge", "replace", "upsert"])
@pytest.mark.parametrize("loss", ["lose_answer", "lose_request"])
def test_a_write_whose_answer_is_lost_is_done_once(service: Counting, store: tm.Store, write: Any, loss: str) -> None:
    store.insert(Part("a", 1, "x", 1.0))
    send = service.inner.send

    def lossy(request: Any) -> Any:
        if isinstance(request, GroupTransaction) and not lost:
            lost.append(request)
            return getattr(service, loss)(request)
        return send(request)

    lost: list[Any] = []
    service.faults = [lossy] * 20
    write(store)
    assert lost
    service.faults = []
    expected = tm.Store(AzurePlace().open(compile_schema(MODELS)))
    expected.insert(Part("a", 1, "x", 1.0))
    write(expected)
    assert held(store) == held(expected)
    assert store[Kind.key("a")] == expected[Kind.key("a")]
    assert store.check().ok
    entity = held(store)[-1]
    entity.name = "again"
    store.replace(entity)


def test_what_was_deleted_by_a_send_without_an_answer_is_deleted(store: tm.Store, service: Counting) -> None:
    store.insert(Plain("a"))
    service.faults = [service.lose_answer]
    store.delete(Plain.key("a"))
    assert store.get(Plain.key("a")) is None


def test_a_write_without_any_answer_has_an_unknown_outcome(service: Counting) -> None:
    now = [0.0]
    engine = AzureEngine.open(
        service,
        "here",
        compile_schema(MODELS),
        monotonic=lambda: now[0],
        sleep=lambda s: now.__setitem__(0, now[0] + s),
    )
    service.faults = [service.lose_request] * 500
    with pytest.raises(tm.OutcomeUnknown, match=r"insert Plain\.key\('a'\).*read it"):
        tm.Store(engine).insert(Plain("a"))
    assert 27 < now[0] <= 30
    with pytest.raises(tm.StoreError, match="does not answer"):
        tm.Store(engine).get(Plain.key("a"))


def test_an_insert_whose_entity_was_written_since_has_an_unknown_outcome(store: tm.Store, service: Counting) -> None:
    def executed_then_changed(request: Any) -> Any:
        service.inner.send(request)
        service.inner.send(GroupTransaction("Plains", "a", (RowChange("upsert", "", {"text": "theirs"}),)))
        raise NoResponse("the answer")

    service.faults = [executed_then_changed]
    with pytest.raises(tm.OutcomeUnknown, match="was written since"):
        store.insert(Plain("a"))


def test_the_service_says_how_long_to_wait(service: Counting) -> None:
    slept: list[float] = []
    engine = AzureEngine.open(service, "here", compile_schema(MODELS), sleep=slept.append)

    def busy(request: Any) -> Any:
        raise NoResponse("503", 0.125)

    service.faults = [busy]
    tm.Store(engine).insert(Plain("a"))
    assert sum(slept) == pytest.approx(0.125)


# ------------------------------------------------------------------------------------------ others beside


def test_writers_of_one_group_wait_for_each_other(store: tm.Store) -> None:
    def insert(first: int) -> None:
        for number in range(first, first + 10):
            store.insert(Part("a", number, weight=0.1))

    at_once(*[partial(insert, 10 * at) for at in range(3)])
    assert store[Kind.key("a")].parts == 30
    assert store.check().ok


def test_a_unique_value_that_another_took_meanwhile_is_refused(store: tm.Store, service: Counting) -> None:
    other = tm.Store(AzurePlace(memory=service.inner).open(compile_schema(MODELS)))

    def after_another(request: Any) -> Any:
        other.insert(Part("a", 1, code="x"))
        return service.inner.send(request)

    service.faults = [after_another]
    with pytest.raises(tm.UniqueViolation) as caught:
        store.insert(Part("a", 2, code="x"))
    assert (caught.value.index, caught.value.holder) == ("by_code", Part.key("a", 1)[1:])
    assert [part.number for part in held(store)] == [1]


def test_an_index_row_never_leads_to_an_entity_that_does_not_match(store: tm.Store, service: Counting) -> None:
    store.insert_many([Part("a", 1, "x"), Part("a", 2, "x")])
    other = tm.Store(AzurePlace(memory=service.inner).open(compile_schema(MODELS)))

    def before_the_join(request: Any) -> Any:
        page = service.inner.send(request)
        other.merge(Part.key("a", 1), name="y")
        return page

    service.faults = [before_the_join]
    assert [part.number for part in store.query(Part.by_name("a", "x"))] == [2]


def test_a_row_of_an_index_that_is_lost_keeps_nobody_from_writing(store: tm.Store, service: Counting) -> None:
    store.insert(Part("a", 1, "x"))
    (lost,) = [row for _, row in service.inner.tables["Parts"] if "by_name" in row]
    del service.inner.tables["Parts"]["a", lost]
    assert [problem.kind for problem in store.check().problems] == ["missing"]
    store.merge(Part.key("a", 1), name="y")
    assert store.check().ok


def test_a_condition_disturbs_nobody(store: tm.Store) -> None:
    store.insert_many([Part("a", 1), Part("a", 2)])
    mine = store[Part.key("a", 1)]
    with store.transaction() as tx:
        tx.require(Part.key("a", 1))
        tx.merge(Part.key("a", 2), name="x")
    mine.name = "mine"
    store.replace(mine)
    assert store[Part.key("a", 1)].name == "mine"


def test_a_group_is_required_beside_the_change_of_it(store: tm.Store) -> None:
    store.insert(Part("a", 1))
    group = store[Kind.key("a")]
    with store.transaction() as tx:
        tx.require(group)
        tx.insert(Part("a", 2))
    with pytest.raises(tm.PreconditionFailed), store.transaction() as tx:
        tx.require(group)
        tx.insert(Part("a", 3))
    assert store[Kind.key("a")].parts == 2


# ------------------------------------------------------------------------------------------ properties of others


def test_what_nobody_declares_is_kept_by_a_merge_and_not_erased_by_a_replacement(
    store: tm.Store, service: Counting
) -> None:
    foreign = {"text": "x", "color": "red", "size": "7", "size@odata.type": "Edm.Int64"}
    service.inner.send(GroupTransaction("Plains", "a", (RowChange("insert", "", foreign),)))
    store.merge(Plain.key("a"), text="y")
    entity = service.inner.send(GetEntity("Plains", "a", ""))
    assert (entity["text"], entity["color"], entity["size"], entity["size@odata.type"]) == (
        "y",
        "red",
        "7",
        "Edm.Int64",
    )
    mine = store[Plain.key("a")]
    mine.text = "z"
    with pytest.raises(tm.InvalidEntity, match=r"color, size: this would erase"):
        store.replace(mine)


class Every(tm.Entity, table="Every"):
    id: tm.Field[str]
    whole: tm.Field[int]
    small: tm.Field[tm.Int32]
    real: tm.Field[float]
    yes: tm.Field[bool]
    at: tm.Field[datetime]
    span: tm.Field[timedelta]
    exact: tm.Field[Decimal]
    guid: tm.Field[UUID]
    data: tm.Field[bytes]
    rest: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)
    key = tm.Key[str](partition="{id}")


EVERY = Every(
    "ä 😀", 2**62, -7, 3.0, True, datetime(2026, 1, 2, 3, 4, 5, 678900, UTC), timedelta(days=-1), Decimal("1.50"), UUID(int=7),
    b"\x00\xff", tm.Extra(n=1, s="x", d=1.0, b=False, y=b"z", g=UUID(int=9), t=datetime(2000, 1, 1, tzinfo=UTC)),
)  # fmt: skip


def test_every_type_comes_back() -> None:
    store = tm.Store(AzurePlace().open(compile_schema([Every])))
    store.insert(EVERY)
    assert store[EVERY.key] == EVERY
    store.replace(store[EVERY.key].replace(real=float("inf")))
    assert store[EVERY.key].real == float("inf")


def test_a_number_that_others_wrote_smaller_is_read_and_a_text_in_its_place_is_not() -> None:
    memory = Memory()
    store = tm.Store(AzurePlace(memory=memory).open(compile_schema([Every])))
    store.insert(EVERY)
    memory.send(GroupTransaction("Every", EVERY.key.partition, (RowChange("merge", "", {"whole": 5, "real": 2}, "*"),)))
    assert (store[EVERY.key].whole, store[EVERY.key].real) == (5, 2.0)
    memory.send(GroupTransaction("Every", EVERY.key.partition, (RowChange("merge", "", {"whole": "5"}, "*"),)))
    with pytest.raises(tm.CorruptStore, match="whole: '5' of the type String is not the stored form of int"):
        store.get(EVERY.key)


def test_constants_are_merged_without_reading(store: tm.Store, service: Counting) -> None:
    store.insert(Plain("a", "x"))
    entity = store[Plain.key("a")]
    service.sent.clear()
    store.merge(Plain.key("a"), text="y")
    (commit,) = service.sent
    assert [(one.kind, one.if_match, one.members["text"]) for one in commit.changes] == [("merge", "*", "y")]
    assert store[Plain.key("a")].text == "y"
    with pytest.raises(tm.EntityNotFound):
        store.merge(Plain.key("b"), text="y")
    with pytest.raises(tm.PreconditionFailed):
        store.merge(Plain.key("a"), text="z", if_match=tm.info(entity).etag)
    store.merge(Plain.key("a"), text="z", if_match=tm.info(store[Plain.key("a")]).etag)
    assert store[Plain.key("a")].text == "z"


@pytest.mark.parametrize("loss", ["lose_answer", "lose_request"])
def test_constants_whose_answer_is_lost_are_merged(store: tm.Store, service: Counting, loss: str) -> None:
    store.insert(Plain("a", "x"))
    etag = tm.info(store[Plain.key("a")]).etag
    service.faults = [getattr(service, loss)]
    store.merge(Plain.key("a"), text="y", if_match=etag)
    assert store[Plain.key("a")].text == "y"


# ------------------------------------------------------------------------------------------ what is refused


UNIQUE = tm.Index[str, int](partition="{kind}", row="{parts}", unique=True)
ELSEWHERE = tm.Index[int, str](partition="{parts}", row="{kind}", unique=True)
FarTotal = grouped("FarTotal", Part, "kind", "Totals", parts=tm.count(), by_parts=UNIQUE)
NearTotal = grouped("NearTotal", Part, "kind", "Parts", row="near", parts=tm.count(), by_parts=ELSEWHERE)
KIND = {"kind": str, "parts": (int, tm.count(of=Part))}
Shelf = entity("Shelf", "Shelves", KIND, tm.Key[str](partition="{kind}"), by_parts=tm.Index[int](partition="{parts}"))
Taken = entity("Taken", "TableMapper", {"id": str}, tm.Key[str](partition="{id}"))


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ([Part, NearTotal], r"NearTotal\.by_parts: a unique index on an aggregate in other partitions .* '\{kind\}'"),
        (
            [Part, FarTotal],
            r"FarTotal\.by_parts: a unique index on an aggregate in another partition .* leave out unique=True",
        ),
        ([Part, Shelf], r"Shelf\.by_parts: an index over parts, which is maintained .* declare an aggregate"),
        ([Taken], 'the table "TableMapper" is that of the catalogue'),
    ],
)
def test_a_class_that_needs_more_than_a_partition_is_refused(
    service: Counting, models: list[type[tm.Record]], said: str
) -> None:
    with pytest.raises(tm.InvalidModel, match=said):
        AzureEngine.open(service, "here", compile_schema(models))
    assert service.sent == []


def in_one(store: tm.Store, entities: list[Any]) -> None:
    with store.transaction() as tx:
        for one in entities:
            tx.insert(one)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda store: list(store.query(Part).where(Part.kind == "a").order_by(Part.weight)), tm.InvalidQuery, "sorts nothing"),
        (lambda store: list(store.query(Part).where(Part.kind == "a").order_by(Part.number.desc())), tm.InvalidQuery, "backwards"),
        (lambda store: store.transaction(across_partitions=True), tm.InvalidTransaction, "of one table and partition"),
        (lambda store: store.insert_many([Part("a", 1)], atomic=True), tm.InvalidTransaction, "leave atomic out"),
        (lambda store: store.compact(), tm.InvalidTransaction, "nothing to compact"),
        (lambda store: list(store.query(Part).where(Part.name == "x")), tm.ScanRefused, "allow_scan"),
        (lambda store: store.insert_columns(Plain, {"id": ["a"]}, atomic=True), tm.InvalidTransaction, "leave atomic out"),
        (lambda store: store.insert(Plain("a", "x" * 40_000)), tm.TableMapperError, "32,768|65,536|64 KiB"),
        (lambda store: store.insert(Plain("a" * 513)), tm.InvalidEntity, "513 UTF-16 units"),
        (lambda store: store.insert(Plain("\ud800")), tm.InvalidEntity, "lone surrogate"),
        (lambda store: in_one(store, [Plain("a"), Plain("b")]), tm.InvalidTransaction, "partition"),
        (lambda store: in_one(store, [Part("a", n) for n in range(101)]), tm.InvalidTransaction, "100"),
        (
            lambda store: in_one(store, [Part("a", n, tags=["x" * 30_000]) for n in range(80)]),
            tm.EntityTooLarge,
            "a transaction may have 4,194,304",
        ),
    ],
)  # fmt: skip
def test_what_is_not_possible_is_refused_before_anything_is_sent(
    store: tm.Store, service: Counting, call: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        call(store)
    assert service.sent == []


def test_a_transaction_with_too_many_rows_is_refused_before_it_is_sent(store: tm.Store, service: Counting) -> None:
    with (
        pytest.raises(tm.InvalidTransaction, match="more than 100 in one entity group transaction"),
        store.transaction() as tx,
    ):
        for number in range(60):
            tx.insert(Part("a", number, "x"))
    assert not [one for one in service.sent if isinstance(one, GroupTransaction)]


def test_a_stream_of_many_is_cut_into_transactions(store: tm.Store, service: Counting) -> None:
    store.insert_many(Part(kind, number, "x", tags=list("abcd")) for number in range(60) for kind in "ab")
    assert store.check().entities == 120
    assert store.check().ok
    assert [kind.parts for kind in store.query(Kind).allow_scan()] == [60, 60]


def test_an_error_says_how_many_of_a_stream_were_written(store: tm.Store) -> None:
    store.insert(Plain("c"))
    with pytest.raises(tm.EntityExists) as caught:
        store.insert_many([Plain("a"), Plain("b"), Plain("c")])
    assert caught.value.written == len(list(store.query(Plain).allow_scan())) - 1  # type: ignore[attr-defined]


def test_tables_of_others_are_left_alone(service: Counting) -> None:
    service.send(CreateTable("Plains"))
    service.send(GroupTransaction("Plains", "a", (RowChange("insert", "b"),)))
    with pytest.raises(tm.NotAStore, match="holds entities, and the catalogue TableMapper does not know it"):
        AzureEngine.open(service, "here", compile_schema([Plain]))
    service.send(CreateTable("Mine"))
    service.send(GroupTransaction("Mine", "a", (RowChange("insert", "b"),)))
    with pytest.raises(tm.NotAStore, match="not that of a store"):
        AzureEngine.open(service, "here", compile_schema([Part]), catalogue="Mine")


def test_an_entity_moves_within_its_partition_only(store: tm.Store, service: Counting) -> None:
    store.insert(Part("a", 1, code="x"))
    part = store[Part.key("a", 1)]
    service.sent.clear()
    with pytest.raises(tm.InvalidTransaction, match=r"query.move_to\(…\) moves what a query finds"):
        store.move(part, Part.key("b", 1))
    assert service.sent == []
    store.move(part, Part.key("a", 2))
    assert [one.number for one in held(store)] == [2]


def test_a_table_that_is_gone_is_said_and_a_service_that_does_not_answer(store: tm.Store, service: Counting) -> None:
    del service.inner.tables["Plains"]
    for call in (
        lambda: store.get(Plain.key("a")),
        lambda: list(store.query(Plain).allow_scan()),
        lambda: store.insert(Plain("a")),
    ):
        with pytest.raises(tm.CorruptStore, match="table"):
            call()
    now, service = itertools.count(0, 5), Counting(Memory())
    engine = AzureEngine.open(
        service, "here", compile_schema([Plain]), monotonic=lambda: next(now), sleep=lambda seconds: None
    )
    store = tm.Store(engine)
    service.faults = [service.lose_request] * 100
    with pytest.raises(tm.StoreError, match="does not answer"):
        store.get(Plain.key("a"))
    service.faults = [lambda request: service.inner.send(request), *[service.lose_request] * 100]  # (it reads the head)
    with pytest.raises(tm.OutcomeUnknown) as caught:
        store.insert(Plain("a"))
    assert (caught.value.entity, caught.value.key) == ("Plain", ("a", ""))


def test_a_wrong_key_is_said(service: Counting) -> None:
    def refuse(request: Any) -> Any:
        raise ErrorResponse(403, "AuthorizationFailure")

    service.faults = [refuse]
    with pytest.raises(tm.StoreError, match="the account refuses the key"):
        AzureEngine.open(service, "here", compile_schema([Plain]))


# ------------------------------------------------------------------------------------------ following


def test_an_older_process_keeps_the_fields_that_a_newer_one_added() -> None:
    members = {"id": str, "text": (str, tm.field(default="")), "more": (int | None, tm.field(default=None))}
    newer = entity("Plain", "Plains", members, tm.Key[str](partition="{id}"))
    memory = Memory()
    old = tm.Store(AzureEngine.open(memory, "old", compile_schema([Plain]), monotonic=lambda: 0.0))
    new = tm.Store(AzurePlace(memory=memory).open(compile_schema([newer])))
    new.insert(newer(id="a", text="x", more=7))
    plain = old[Plain.key("a")]
    plain.text = "y"
    old.replace(plain)  # (by what the catalogue was, that would erase it: so it is looked at first)
    assert new[newer.key("a")].more == 7


def test_a_process_without_the_aggregate_maintains_it() -> None:
    memory = Memory()
    whole = tm.Store(AzurePlace(memory=memory).open(compile_schema(MODELS)))
    part = tm.Store(AzurePlace(memory=memory).open(compile_schema([Part])))
    part.insert(Part("a", 1, weight=2.0))
    assert whole[Kind.key("a")] == Kind("a", 1, 2.0, 2.0)
    assert [one.number for one in part.query(Part).where(Part.kind == "a")] == [1]
    assert part.check().ok


def test_two_that_open_a_new_store_at_once_agree() -> None:
    memory = Memory()
    found = at_once(*[lambda: AzurePlace(memory=memory).open(compile_schema(MODELS)).store_id] * 4)
    assert len(set(found)) == 1


def test_a_catalogue_that_another_program_is_just_creating_is_not_taken_for_somebody_elses() -> None:
    memory = Memory()
    memory.send(CreateTable("TableMapper"))
    memory.send(GroupTransaction("TableMapper", "clock", (RowChange("upsert", "", {}),)))
    assert AzurePlace(memory=memory).open(compile_schema(MODELS)).store_id
    memory = Memory()
    memory.send(CreateTable("TableMapper"))
    memory.send(
        GroupTransaction("TableMapper", "clock", (RowChange("upsert", "", {}), RowChange("upsert", "other", {})))
    )
    with pytest.raises(tm.NotAStore, match="is not that of a store"):
        AzurePlace(memory=memory).open(compile_schema(MODELS))


class Special(tm.Entity, table="Mixed"):
    team: tm.Field[str]
    size: tm.Field[int] = tm.field(default=0)
    key = tm.Key[str](partition="{team}", row="Special")


class Member(tm.Entity, table="Mixed"):
    team: tm.Field[str]
    name: tm.Field[str]
    size: tm.Field[int | None] = tm.field(default=None)
    key = tm.Key[str, str](partition="{team}", row="{name}")
    large = tm.Index[str, str](partition="{team}", row="{name}", where=lambda member: member.size > 10)


def test_classes_of_one_table_are_told_apart() -> None:
    store = tm.Store(AzurePlace().open(compile_schema([Special, Member])))
    store.insert(Special("red", 1))
    store.insert_many([Member("red", "ann"), Member("red", "zoe", 20), Member("blue", "bob")])
    assert store.get(Member.key("red", "Special")) is None
    assert store.get_many([Special.key("red"), Member.key("red", "Special")]) == [Special("red", 1), None]
    with pytest.raises(tm.EntityNotFound):
        store.merge(Member.key("red", "Special"), size=2)
    assert [one.name for one in store.query(Member).where(Member.team == "red")] == ["ann", "zoe"]
    assert [type(one) for one in store.partition(Member.team == "red")] == [Special, Member, Member]
    assert [one.key for one in store.partitions(Special)] == ["red"]
    assert [one.key for one in store.partitions(Member)] == ["blue", "red"]
    assert [type(one) for one in store.query(Special, Member).where(Member.team == "red")] == [Special, Member, Member]
    assert store.check().ok


def test_of_two_paths_that_bound_as_much_the_one_without_a_join_is_followed() -> None:
    for place, path in ((AzurePlace(), "Member.key"), (":memory:", "Member.large")):
        store = tm.open(place, models=[Special, Member])  # type: ignore[arg-type]
        assert store.query(Member).where(Member.team == "red", Member.size > 10).explain().path == path


# ------------------------------------------------------------------------------------------ queries by chance


def _random_parts(rng: random.Random) -> list[Part]:
    names = ["", "a", "a b", "b", "\ue000", "😀", "ä", "a!", "z "]
    return [
        Part(
            rng.choice(["k", "k 1", "😀", "\ue000"]), number, rng.choice([None, *names]), rng.choice([None, 1.5, -2.0])
        )
        for number in range(-20, 20)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_every_plan_equals_a_scan(seed: int) -> None:
    rng = random.Random(seed)
    memory = Memory(Options(pages=7, short=random.Random(seed), milliseconds=True))
    store = tm.Store(AzurePlace(memory=memory).open(compile_schema(MODELS)))
    parts = _random_parts(rng)
    oracle = tm.open(":memory:", models=MODELS)
    for one in (store, oracle):
        one.insert_many(part.replace() for part in parts)
    names = sorted({part.name for part in parts if part.name is not None})
    for _ in range(60):
        kind, name, number = rng.choice(parts).kind, rng.choice(names), rng.randrange(-20, 20)
        conditions = rng.choice(
            [
                (Part.kind == kind, Part.number >= number),
                (Part.kind == kind, Part.name == name),
                (Part.kind == kind, Part.name > name),
                (Part.kind == kind, Part.name <= name, Part.number < number),
                (Part.kind.is_in([kind, "k"]), Part.number < number),
                (Part.kind == kind, Part.name.startswith(name[:1])),
                (Part.kind > kind,),
                (Part.kind == kind, Part.weight > 0.0),
            ]
        )
        query = store.query(Part).where(*conditions)
        expected = {part.number for part in oracle.query(Part).where(*conditions)}
        found = [part.number for part in query]
        assert set(found) == expected, (conditions, query.explain())
        assert len(found) == len(expected)
        paged, token = [], None
        while True:
            page = query.page(3, token)
            paged += [part.number for part in page.items]
            if (token := page.token) is None:
                break
        assert paged == found, conditions
        assert query.count() == len(expected)


# ------------------------------------------------------------------------------------------ the emulator


def test_the_sample_on_the_emulator(connection: str) -> None:
    with sound_store(connection, models=MODELS) as store:
        store.insert_many(Part("a", number, f"n{number % 3}", 0.5 * number, f"c{number}") for number in range(30))
        assert store[Kind.key("a")] == Kind("a", 30, sum(0.5 * number for number in range(30)), 14.5)
        assert [part.number for part in store.query(Part.by_name("a", "n1"))] == list(range(1, 30, 3))
        with store.transaction() as tx:
            tx.delete(Part.key("a", 29))
            tx.merge(Part.key("a", 28), code="c29")
        with pytest.raises(tm.UniqueViolation):
            store.merge(Part.key("a", 1), code="c29")
        entity = store[Part.key("a", 1)]
        store.merge(Part.key("a", 1), name="theirs")
        with pytest.raises(tm.PreconditionFailed):
            store.replace(entity)
        assert store[Kind.key("a")].heaviest == 14.0
    with tm.open(connection, models=MODELS) as store:
        assert store.query(Part).where(Part.kind == "a").count() == 29
        assert "secret" not in f"{store!r} {store._engine!r}"


@pytest.mark.one_python
def test_the_sdk_reads_every_type(connection: str) -> None:
    from azure.data.tables import EdmType, TableServiceClient

    with tm.open(connection, models=[Every]) as store:
        store.insert(EVERY)
        assert store[EVERY.key] == EVERY
    with TableServiceClient.from_connection_string(connection) as client:
        entity = client.get_table_client("Every").get_entity(EVERY.key.partition, EVERY.key.row)
    assert (entity["whole"].value, entity["whole"].edm_type) == (2**62, EdmType.INT64)
    assert (entity["small"], entity["real"], entity["yes"], entity["data"]) == (-7, 3.0, True, b"\x00\xff")
    assert (entity["at"], entity["guid"], entity["exact"]) == (EVERY.at, EVERY.guid, "1.50")


def test_a_store_without_models_follows_the_catalogue_which_it_looks_at_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = Memory()
    place: Any = AzurePlace(memory=memory)
    tm.open(place, models=MODELS).close()
    with tm.open(place, read_only=True) as store:
        before = dict(store.classes)
        tm.open(place, models=[*MODELS, Other]).close()
        sent = len(memory.sent)
        assert dict(store.classes) == before
        assert len(memory.sent) == sent
        monkeypatch.setattr(CatalogueRefresher, "classes", CatalogueRefresher.look)
        assert set(store.classes) == {*before, "Other"}
        assert store.classes["Part"] is before["Part"]
        assert store.query(store.classes["Other"]).allow_scan().count() == 0


def test_a_store_on_the_emulator_is_read_without_models_and_copied(connection: str, tmp_path: Path) -> None:
    with tm.open(connection, models=MODELS) as store:
        store.insert_many(Part("a", n, "x", 1.0, str(n)) for n in range(9))
        store.backup(tmp_path / "copy.db")
    with tm.open(connection, read_only=True) as store:
        assert store.query(store.classes["Part"]).allow_scan().count() == 9
    assert tm.status(connection)["Part.by_code"].state == "ready"
    with tm.open(tmp_path / "copy.db", models=MODELS) as copy, sound_store(connection, models=MODELS) as store:
        copy.merge(Part.key("a", 3), name="y")
        copy.delete(Part.key("a", 4))
        copy.insert(Part("b", 4, code="4"))
        assert tm.copy(copy, store).changed == 3
        assert held(store) == held(copy)


@pytest.mark.long
def test_the_example_with_the_weather_takes_the_emulator_for_its_file(
    connection: str, full_size: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "weather.py"))
    every = example["read_csv"]
    days = range(366) if full_size else range(182, 187)  # (the first days of July)

    def some() -> Iterator[Any]:
        return (one for one in every() if one.at.timetuple().tm_yday in days)

    example["main"].__globals__["read_csv"] = some
    example["main"](connection)
    out = capsys.readouterr().out
    assert "groups recomputed from the readings: equal, bit for bit" in out
    assert re.search("26,115 entities, 30,991 index rows, 1,128 groups: ok" if full_size else "groups: ok", out)


def test_a_wrong_key_shows_no_secret(connection: str) -> None:
    with pytest.raises(tm.StoreError, match="the account refuses the key") as caught:
        tm.open(connection.replace("c2VjcmV0", "d3Jvbmch"), models=[Plain])
    assert "d3Jvbmch" not in str(caught.value)


# ------------------------------------------------------------------------------------------ async


async def test_a_cancelled_call_ends_within_a_pause() -> None:
    memory = Memory()
    AzurePlace(memory=memory).open(compile_schema([Plain])).close()

    class Busy(Counting):
        def send(self, request: Any, *wait: float) -> Any:
            if isinstance(request, GroupTransaction):
                self.sent.append(request)
                raise NoResponse("busy", 20.0)
            return memory.send(request)

    busy = Busy(memory)

    class Place:
        def open(self, schema: Any, **_: Any) -> AzureEngine:
            return AzureEngine.open(busy, "here", schema)

    async with tm.open_async(Place(), models=[Plain]) as store:  # type: ignore[arg-type]
        assert await store.get(Plain.key("a")) is None
        task = asyncio.create_task(store.insert(Plain("a")))
        while not busy.sent:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 30  # (of 60)
    assert len(busy.sent) == 1


def test_a_lost_transaction_of_deletions_is_not_done_as_one_of_them_is_gone() -> None:
    class Losing(Memory):
        then: Any = None

        def send(self, request: Any, *wait: float) -> Any:
            if self.then is not None and isinstance(request, GroupTransaction):
                then, self.then = self.then, None
                then()
                raise NoResponse("the request")
            return super().send(request)

    memory = Losing()
    store, other = [tm.Store(AzureEngine.open(memory, "here", compile_schema([Part]))) for _ in range(2)]
    store.insert_many([Part("a", n) for n in range(3)])
    memory.then = lambda: other.delete(Part.key("a", 0))
    with contextlib.suppress(tm.EntityNotFound):  # (of the first one: then nothing was deleted)
        store.delete_many([Part.key("a", n) for n in range(3)])
        assert store.query(Part).allow_scan().count() == 0
    assert store.query(Part).allow_scan().count() in (0, 2)


class Piece(tm.Entity, table="Pieces"):
    p: tm.Field[str]
    n: tm.Field[int]
    z: tm.Field[int | None] = tm.field(default=None)
    key = tm.Key[str, int](partition="{p}", row=("piece", "{n}"))


class Size(tm.Aggregate, of=Piece, table="Pieces"):
    p: tm.Field[str] = tm.group_by(Piece.p)
    n: tm.Field[int] = tm.group_by(Piece.n)
    z: tm.Field[int | None] = tm.sum(Piece.z)
    key = tm.Key[str, int](partition="{p}", row=("size", "{n}"))
    by_z = tm.Index[str, int](partition="{p}", row="{z}")
    by_all = tm.Index[int](partition="all", row="{z}")


def test_a_write_by_query_fits_whatever_lies_beside_its_groups(service: Counting) -> None:
    store = tm.Store(AzureEngine.open(service, "here", compile_schema([Piece, Size])))
    store.insert_many([Piece("x", n, n) for n in range(60)])
    for name in (None, "r"):
        assert store.query(Piece).where(Piece.p == "x").update(z=Piece.z + 1_000, resume=name) == 60
    assert store.query(Size.by_all()).count() == 60
    assert store.check().ok


def test_a_program_checks_and_repairs_indexes_that_it_does_not_declare() -> None:
    def piece(**indexes: Any) -> Any:
        return entity("Bit", "Bits", {"p": str, "n": int}, tm.Key[str, int](partition="{p}", row="{n}"), **indexes)

    whole = piece(
        by_n=tm.Index[int](partition="{n}", unique=True),
        by_all=tm.Index[int](partition="all", row="{n}"),
        by_here=tm.Index[str, int](partition="{p}", row="{n}"),
    )
    memory, bare = Memory(), piece()
    with tm.open(AzurePlace(memory=memory), models=[whole]) as store:  # type: ignore[arg-type]
        store.insert_many([whole("x", n) for n in range(4)])
    with sound_store(AzurePlace(memory=memory), models=[bare]) as store:
        store.insert(bare("y", 9))
        assert store.check().ok
        lost = next(key for key in memory.tables["BitsByAll"] if key != (CLAIM, CLAIM))
        memory.tables["BitsByAll"] = {key: row for key, row in memory.tables["BitsByAll"].items() if key != lost}
        assert [problem.kind for problem in store.check().problems] == ["missing"]
        assert repaired(store).ok
