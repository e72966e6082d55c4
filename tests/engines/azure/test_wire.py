"""One request out, one answer in: what is sent, and what is made of every answer that may come."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.engines.azure.tables.accounts import account_of
from tablemapper.engines.azure.tables.multipart import read_batch, refusal
from tablemapper.engines.azure.tables.service import (
    ETAG,
    AllOf,
    AnyOf,
    Comparison,
    CreateTable,
    DeleteTable,
    EntityPage,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    QueryEntities,
    Request,
    RowChange,
    edm_of,
    filter_text,
    properties,
)
from tablemapper.engines.azure.tables.wire import Wire

from .azurite import Azurite
from .http_answers import answer_of, received
from .memory import Memory, Options

Answer = tuple[int, dict[str, str], bytes]


class Transport:
    """A pool of connections that gives one answer."""

    def __init__(self, status: int = 200, headers: dict[str, str] | None = None, body: bytes = b"{}") -> None:
        self.answer: Any = urllib3.HTTPResponse(
            body, urllib3.HTTPHeaderDict(headers or {}), status, preload_content=True
        )
        self.sent: list[tuple[str, str, Any, Any]] = []

    def urlopen(
        self, method: str, url: str, *, body: Any, headers: Any, redirect: bool, retries: bool, timeout: Any
    ) -> Any:
        assert not redirect
        assert not retries
        self.sent.append((method, url, body, headers))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self) -> None: ...


def wired(transport: Transport, clock: Callable[[], float] = time.time) -> Wire:
    return Wire(account_of("AccountName=shop;AccountKey=c2VjcmV0"), pool=transport, clock=clock, boundary=lambda: "b")


GET = GetEntity("Users", "acme", "it's 7")
COMMIT = GroupTransaction("Users", "acme", (RowChange("insert", "1", {"n": 1}), RowChange("delete", "2", if_match="*")))
BATCH = (
    b"--batchresponse_x\r\nContent-Type: multipart/mixed; boundary=changesetresponse_y\r\n\r\n"
    b"--changesetresponse_y\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    b"HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\nETag: W/\"datetime'1'\"\r\n\r\n\r\n"
    b"--changesetresponse_y\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    b"HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\n\r\n\r\n"
    b"--changesetresponse_y--\r\n--batchresponse_x--\r\n"
)
REFUSED = (
    b"--batchresponse_x\r\nContent-Type: multipart/mixed; boundary=changesetresponse_y\r\n\r\n"
    b"--changesetresponse_y\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    b"HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\n\r\n"
    b'{"odata.error":{"code":"EntityAlreadyExists","message":{"lang":"en-US","value":"1:It exists.\\nRequestId:1"}}}\r\n'
    b"--changesetresponse_y--\r\n--batchresponse_x--\r\n"
)
TYPE = "multipart/mixed; boundary=batchresponse_x"


# ------------------------------------------------------------------------------------------ what is sent


def test_a_key_is_quoted_whole_in_the_path() -> None:
    transport = Transport()
    wired(transport).send(GET)
    ((method, url, body, headers),) = transport.sent
    assert (method, body) == ("GET", None)
    assert url == ("/Users(PartitionKey='acme',RowKey='it%27%27s%207')")
    assert headers["Authorization"].startswith("SharedKeyLite shop:")


def test_a_transaction_is_one_message() -> None:
    transport = Transport(202, {"Content-Type": TYPE}, BATCH)
    assert wired(transport).send(COMMIT) == ["W/\"datetime'1'\"", None]
    ((method, url, body, headers),) = transport.sent
    assert (method, url) == ("POST", "/$batch")
    assert headers["Content-Type"] == "multipart/mixed; boundary=batch_b"
    text = body.decode()
    assert text.startswith("--batch_b\r\nContent-Type: multipart/mixed; boundary=changeset_b\r\n\r\n--changeset_b\r\n")
    assert "Prefer: return-no-content\r\n" in text
    assert '\r\n\r\n{"PartitionKey":"acme","RowKey":"1","n":1}\r\n--changeset_b\r\n' in text
    assert "DELETE https://shop.table.core.windows.net/Users(PartitionKey='acme',RowKey='2') HTTP/1.1\r\n" in text
    assert "If-Match: *\r\n" in text
    assert text.endswith("\r\n--changeset_b--\r\n--batch_b--\r\n")


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (Comparison("n", "eq", "Int64", 5), "n eq 5L"),
        (Comparison("s", "lt", "String", "it's"), "s lt 'it''s'"),
        (Comparison("b", "eq", "Boolean", True), "b eq true"),
        (Comparison("d", "gt", "Double", 21.5), "d gt 21.5"),
        (Comparison("g", "eq", "Guid", "0-1"), "g eq guid'0-1'"),
        (
            Comparison("t", "ge", "DateTime", "2026-01-01T00:00:00.000000Z"),
            "t ge datetime'2026-01-01T00:00:00.000000Z'",
        ),
        (
            AllOf(
                (
                    Comparison("a", "eq", "Int32", 1),
                    AnyOf((Comparison("b", "eq", "Int32", 2), Comparison("c", "eq", "Int32", 3))),
                )
            ),
            "a eq 1 and (b eq 2 or c eq 3)",
        ),
        (
            AnyOf(
                (
                    Comparison("a", "eq", "Int32", 1),
                    AllOf((Comparison("b", "eq", "Int32", 2), Comparison("c", "eq", "Int32", 3))),
                )
            ),
            "a eq 1 or (b eq 2 and c eq 3)",
        ),
    ],
)
def test_a_filter_is_written_as_odata(where: Any, text: str) -> None:
    assert filter_text(where) == text


def test_a_page_goes_on_after_the_last_one_even_if_that_was_empty() -> None:
    headers = {"x-ms-continuation-NextPartitionKey": "1!8!eA--"}
    transport = Transport(200, headers, b'{"value":[]}')
    page = wired(transport).send(QueryEntities("Users", Comparison("RowKey", "ge", "String", "a"), ("n",), 10))
    assert page == EntityPage([], ("1!8!eA--", ""))
    wired(transport).send(QueryEntities("Users", after=page.after))
    assert transport.sent[0][1].endswith("/Users()?$filter=RowKey%20ge%20%27a%27&$select=n&$top=10")
    assert transport.sent[1][1].endswith("/Users()?NextPartitionKey=1%218%21eA--&NextRowKey=")


# ------------------------------------------------------------------------------------------ what is made of answers


@pytest.mark.parametrize(
    ("keys", "ascends"),
    [
        ([("a", "1"), ("a", "2"), ("b", "0")], True),
        ([("a", "\U0001f600"), ("a", "\ue000")], True),  # (as UTF-16 sorts)
        ([("a", "2"), ("a", "1")], False),
        ([("b", "1"), ("a", "2")], False),
        ([("a", "1"), ("a", "1")], False),
    ],
)
def test_a_page_that_does_not_ascend_is_of_another_service(keys: list[tuple[str, str]], ascends: bool) -> None:
    """The order of Cosmos DB is another one, and behind a domain of one's own nothing else shows it."""
    entities = [{"PartitionKey": partition, "RowKey": row, ETAG: "W/1"} for partition, row in keys]
    wire = wired(Transport(200, {}, json.dumps({"value": entities}).encode()))
    if ascends:
        assert len(wire.send(QueryEntities("Users")).entities) == len(keys)
    else:
        with pytest.raises(tm.StoreError, match="another order than that of their keys.* not Azure Table storage"):
            wire.send(QueryEntities("Users"))


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_what_may_have_been_executed_is_lost(status: int) -> None:
    for request in (GET, COMMIT, CreateTable("Users"), DeleteTable("Users")):
        with pytest.raises(NoResponse):
            wired(Transport(status, {}, b"busy")).send(request)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": formatdate(1_000_012, usegmt=True)}, 12.0),
        ({"Retry-After": formatdate(999_000, usegmt=True)}, 0.0),
        ({"x-ms-retry-after-ms": "250"}, 0.25),
        ({"Retry-After": "soon"}, None),
        ({}, None),
    ],
)
def test_the_service_says_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    with pytest.raises(NoResponse) as caught:
        wired(Transport(503, headers), clock=lambda: 1_000_000.0).send(GET)
    assert caught.value.retry_after == seconds


def test_a_broken_connection_is_lost_and_shows_no_signature() -> None:
    transport = Transport()
    transport.answer = urllib3.exceptions.MaxRetryError(None, "/?sig=secret", None)  # type: ignore[arg-type]
    with pytest.raises(NoResponse) as caught:
        wired(transport).send(GET)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("request_", [GET, QueryEntities("Users")], ids=["get", "find"])
def test_an_answer_that_is_cut_anywhere_is_lost(request_: Request) -> None:
    body = b'{"value":[{"odata.etag":"W/\\"1\\"","PartitionKey":"a","RowKey":"b"}]}'
    assert wired(Transport(200, {}, body)).send(request_)
    for end in range(len(body)):
        with pytest.raises(NoResponse):
            wired(Transport(200, {}, body[:end])).send(request_)


@pytest.mark.parametrize("body", [BATCH, REFUSED], ids=["done", "refused"])
def test_the_answer_to_a_transaction_that_is_cut_anywhere_is_lost(body: bytes) -> None:
    for end in range(len(body) - 2):  # (what follows the last boundary says nothing)
        with pytest.raises(NoResponse):
            wired(Transport(202, {"Content-Type": TYPE}, body[:end])).send(COMMIT)


ONE = GroupTransaction("Users", "acme", (RowChange("insert", "1", {"n": 1}),))
GONE = GroupTransaction("Users", "acme", (RowChange("delete", "1", {}, "*"),))
_ETAG = "W/\"datetime'2026-03-04T05%3A06%3A07.0123456Z'\""


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (ONE, [_ETAG]), (ONE, ErrorResponse(409, "EntityAlreadyExists", "", 0)), (GONE, [None]),
        (COMMIT, [_ETAG, None]), (COMMIT, ErrorResponse(412, "UpdateConditionNotSatisfied", "", 1)),
        (GET, {ETAG: _ETAG, "PartitionKey": "acme", "RowKey": "it's 7"}), (GET, None),
        (GET, ErrorResponse(404, "TableNotFound")),
    ],
    ids=["change", "refused", "deleted", "transaction", "transaction refused", "entity", "no entity", "no table"],
)  # fmt: skip
def test_an_answer_whose_head_or_body_is_cut_at_any_byte_is_none(request_: Request, answer: Any) -> None:
    sent = answer_of(request_, answer)
    if isinstance(answer, ErrorResponse):
        with pytest.raises(ErrorResponse) as caught:
            received(request_, sent)
        assert (caught.value.status, caught.value.code) == (answer.status, answer.code)
    else:
        assert received(request_, sent) == answer
    last = len(sent) if sent.endswith(b"\r\n\r\n") else len(sent) - 2  # (what follows the last boundary says nothing)
    for end in range(last if b"multipart" in sent else len(sent)):
        with pytest.raises(NoResponse):
            received(request_, sent[:end])


@pytest.mark.parametrize("etag", [None, "", "W/\"datetime'2026-03-04T05%3A06%3A"])
def test_a_change_without_a_whole_etag_may_have_been_made(etag: str | None) -> None:
    with pytest.raises(NoResponse):
        wired(Transport(204, {} if etag is None else {"ETag": etag})).send(ONE)


def test_a_transaction_is_refused_with_the_number_of_its_change_if_the_service_says_it() -> None:
    with pytest.raises(ErrorResponse) as caught:
        wired(Transport(202, {"Content-Type": TYPE}, REFUSED)).send(COMMIT)
    assert (caught.value.status, caught.value.code, caught.value.index) == (409, "EntityAlreadyExists", 1)
    with pytest.raises(ErrorResponse) as caught:
        read_batch(TYPE, REFUSED.replace(b"1:It", b"It"), 2)
    assert caught.value.index is None


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/html"}])
def test_an_answer_that_is_no_multipart_is_lost(headers: dict[str, str]) -> None:
    with pytest.raises(NoResponse):
        wired(Transport(202, headers, BATCH)).send(COMMIT)


def test_a_part_that_says_busy_leaves_the_transaction_open() -> None:
    body = REFUSED.replace(b"409 Conflict", b"503 Service Unavailable")
    with pytest.raises(NoResponse):
        wired(Transport(202, {"Content-Type": TYPE}, body)).send(COMMIT)


@pytest.mark.parametrize("body", [BATCH, REFUSED], ids=["done", "refused"])
def test_the_heads_of_parts_may_end_their_lines_otherwise(body: bytes) -> None:
    other = body.replace(b"application/http\r\n", b"application/http\n").replace(b"binary\r\n\r\n", b"binary\n\n")
    answers = [wired(Transport(202, {"Content-Type": TYPE}, one)) for one in (body, other)]
    if body is BATCH:
        assert answers[0].send(COMMIT) == answers[1].send(COMMIT)
    else:
        with pytest.raises(ErrorResponse, match="EntityAlreadyExists"):
            answers[1].send(COMMIT)


def test_an_answer_for_fewer_changes_is_lost() -> None:
    with pytest.raises(NoResponse, match="of 2 changes is for 0"):
        read_batch(TYPE, BATCH.replace(b"HTTP/1.1", b"HTTP/2"), 2)
    with pytest.raises(NoResponse, match="of 3 changes is for 2"):
        read_batch(TYPE, BATCH, 3)


def test_who_is_refused_at_the_door_gets_a_code_too() -> None:
    told = refusal(403, b'<?xml version="1.0"?><Error><Code>AuthorizationFailure</Code></Error>')
    assert isinstance(told, ErrorResponse)
    assert told.code == "AuthorizationFailure"


def test_an_emulator_gets_ascii_and_azure_what_is_shorter() -> None:
    """The emulator decodes each chunk of a body by itself, so a character that lies in two of them is lost."""
    text = "grüße 😀 \u2028 \x7f"
    changes = RowChange("insert", "ä", {"s": text}), RowChange("upsert", "b", {"s": text})
    for connection, is_ascii in (("AccountName=shop;AccountKey=c2VjcmV0", False), ("UseDevelopmentStorage=true", True)):
        transport = Transport(204, {"ETag": _ETAG})
        Wire(account_of(connection), pool=transport).send(GroupTransaction("Users", "acme", changes[:1]))
        done = BATCH.replace(b"datetime'1'", b"datetime'2026-03-04T05%3A06%3A07.0123456Z'")
        done = done.replace(b"nosniff\r\n\r\n\r\n", f"nosniff\r\nETag: {_ETAG}\r\n\r\n\r\n".encode())
        transport.answer = urllib3.HTTPResponse(done, urllib3.HTTPHeaderDict({"Content-Type": TYPE}), 202)
        Wire(account_of(connection), pool=transport).send(GroupTransaction("Users", "acme", changes))
        for _, _, body, _ in transport.sent:
            assert body.isascii() == is_ascii
            assert json.loads(body[body.index(b"{") : body.index(b"}") + 1]) == {
                "PartitionKey": "acme", "RowKey": "ä", "s": text,
            }  # fmt: skip


# ------------------------------------------------------------------------------------------ a live service


VALUES = {
    "s": "grüße 😀 \u2028'", "b": True, "i": 7, "l": str(2**62), "l@odata.type": "Edm.Int64", "d": 3.0,
    "d@odata.type": "Edm.Double", "f": "Infinity", "f@odata.type": "Edm.Double", "g": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "g@odata.type": "Edm.Guid", "t": "2026-01-02T03:04:05.123456Z", "t@odata.type": "Edm.DateTime", "y": "AAE=",
    "y@odata.type": "Edm.Binary",
}  # fmt: skip


def test_an_entity_comes_back_as_it_was_written(wire: Wire) -> None:
    assert wire.send(CreateTable("Users")) is True
    assert wire.send(CreateTable("Users")) is False
    assert wire.send(CreateTable("Others")) is True
    assert [wire.send(DeleteTable("Others")) for _ in range(2)] == [True, False]
    assert wire.send(GET) is None
    (etag,) = wire.send(GroupTransaction("Users", "acme", (RowChange("insert", GET.row, VALUES),)))
    entity = wire.send(GET)
    assert entity[ETAG] == etag
    assert {name: (edm_of(entity, name), entity[name]) for name in properties(entity)} == {
        name: (edm_of(VALUES, name), VALUES[name]) for name in properties(VALUES)
    }
    assert wire.send(GetEntity("Users", "acme", GET.row, ("i",)))["i"] == 7
    with pytest.raises(ErrorResponse) as caught:
        wire.send(GetEntity("Nobody", "a", "b"))
    assert caught.value.code == "TableNotFound"


def test_a_long_text_of_many_bytes_a_character_comes_back(wire: Wire) -> None:
    """It is long enough that it is sent, and read, in several pieces."""
    wire.send(CreateTable("Users"))
    text = "😀ä€" * 8000
    changes = tuple([RowChange("insert", str(n), {"s": text}) for n in range(12)])
    wire.send(GroupTransaction("Users", "acme", changes))
    assert [one["s"] == text for one in wire.send(QueryEntities("Users")).entities] == [True] * 12


@pytest.mark.one_python
def test_the_sdk_of_microsoft_reads_what_is_written_and_the_other_way_round(wire: Wire, connection: str) -> None:
    from azure.data.tables import EdmType, EntityProperty, TableServiceClient

    wire.send(CreateTable("Users"))
    wire.send(GroupTransaction("Users", "acme", tuple([RowChange("insert", str(n), VALUES) for n in range(3)])))
    with TableServiceClient.from_connection_string(connection) as service:
        table = service.get_table_client("Users")
        entity = table.get_entity("acme", "1")
        assert (entity["s"], entity["b"], entity["i"], entity["d"]) == (VALUES["s"], True, 7, 3.0)
        assert entity["l"] == EntityProperty(2**62, EdmType.INT64)
        assert (entity["f"], str(entity["g"]), entity["y"]) == (float("inf"), VALUES["g"], b"\x00\x01")
        assert entity["t"].isoformat() == "2026-01-02T03:04:05.123456+00:00"
        etag = table.upsert_entity({**entity, "RowKey": "9"})["etag"]
        table.submit_transaction([("delete", {"PartitionKey": "acme", "RowKey": "0"})])
    found = wire.send(QueryEntities("Users")).entities
    assert [one["RowKey"] for one in found] == ["1", "2", "9"]
    assert found[2][ETAG] == etag
    assert {name: found[2][name] for name in properties(found[2])} == {n: VALUES[n] for n in properties(VALUES)}


def test_a_key_that_is_wrong_is_refused_on_the_first_request(connection: str) -> None:
    wrong = Wire(account_of(connection.replace("c2VjcmV0", "d3Jvbmch")))
    with pytest.raises(ErrorResponse) as caught:
        wrong.send(GET)
    assert (caught.value.status, caught.value.code) == (403, "AuthorizationFailure")
    wrong.close()


def test_no_log_shows_a_signature(azurite: Azurite, caplog: pytest.LogCaptureFixture) -> None:
    endpoint = f"http://127.0.0.1:{azurite.port}/a0"
    signed = Wire(account_of(f"TableEndpoint={endpoint};SharedAccessSignature=sv=2019-02-02&sig=c2VjcmV0%3D"))
    with caplog.at_level(logging.DEBUG), pytest.raises(ErrorResponse):
        signed.send(GET)
    signed.close()
    assert "sig=…" in caplog.text
    assert "c2VjcmV0" not in caplog.text


def test_pages_go_on_where_the_last_one_ended(wire: Wire) -> None:
    wire.send(CreateTable("Users"))
    for start in range(0, 200, 100):
        changes = tuple([RowChange("insert", f"{n:04}", {"n": n % 5}) for n in range(start, start + 100)])
        wire.send(GroupTransaction("Users", "a", changes))
    found, after = [], None
    while True:
        page = wire.send(QueryEntities("Users", Comparison("n", "eq", "Int32", 3), ("n", "RowKey"), 7, after))
        found += [one["RowKey"] for one in page.entities]
        if (after := page.after) is None:
            break
    assert found == [f"{n:04}" for n in range(200) if n % 5 == 3]


KEYS = st.sampled_from(["a", "b", "a b", "ä", "\ue000", "😀", "it's", ""])
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "s": st.sampled_from(["", "x", "y"]),
        "i": st.integers(0, 3),
        "t": st.sampled_from([f"2026-01-02T03:04:05.{ms}Z" for ms in ("123000", "123456", "124000")]),
    },
).map(lambda members: {**members, **({"t@odata.type": "Edm.DateTime"} if "t" in members else {})})
CHANGES = st.builds(RowChange, st.sampled_from(["insert", "upsert"]), KEYS, MEMBERS) | st.builds(
    RowChange, st.sampled_from(["replace", "merge", "delete"]), KEYS, MEMBERS, st.sampled_from(["*", "old", "new"])
)
TESTS = (
    st.builds(Comparison, st.just("i"), st.sampled_from(["eq", "lt", "le", "gt", "ge"]), st.just("Int32"), st.integers(0, 3))
    | st.builds(Comparison, st.just("s"), st.sampled_from(["eq", "lt", "ge"]), st.just("String"), st.sampled_from(["x", "y"]))
    | st.builds(Comparison, st.just("t"), st.sampled_from(["lt", "ge"]), st.just("DateTime"), st.just("2026-01-02T03:04:05.123456Z"))
    | st.builds(Comparison, st.just("RowKey"), st.sampled_from(["eq", "lt", "ge"]), st.just("String"), KEYS.filter(bool))
)  # fmt: skip
REQUESTS = (
    st.builds(GroupTransaction, st.just("Users"), KEYS, st.lists(CHANGES, min_size=1, max_size=4).map(tuple))
    | st.builds(GetEntity, st.just("Users"), KEYS, KEYS)
    | st.builds(QueryEntities, st.just("Users"), st.none() | TESTS | st.builds(AllOf, st.tuples(TESTS, TESTS)) | st.builds(AnyOf, st.tuples(TESTS, TESTS)))
)  # fmt: skip


@given(st.lists(REQUESTS, min_size=5, max_size=25))
def test_the_service_of_dicts_answers_as_the_emulator_does(azurite: Any, requests: list[Request]) -> None:
    wire = Wire(account_of(azurite.connection()))
    sides: list[tuple[Any, dict[Any, list[str]]]] = [(wire, {}), (Memory(Options(milliseconds=True, echo=True)), {})]
    for service, _ in sides:
        service.send(CreateTable("Users"))
    for request in requests:
        one, other = (_outcome(service, etags, request) for service, etags in sides)
        assert one == other, request
    wire.close()


def _outcome(service: Any, etags: dict[Any, list[str]], request: Request) -> Any:
    """Return what came of a request, with ETags as whether the entity had them once.

    The emulator may give those of one transaction different times, so each is compared with others of its entity alone.
    """
    if isinstance(request, GroupTransaction):
        changes = []
        for one in request.changes:
            seen = etags.get((request.partition, one.row), ["*"])
            matches = {"*": "*", "old": seen[0], "new": seen[-1], None: None}
            changes.append(RowChange(one.kind, one.row, one.members, matches[one.if_match]))
        request = GroupTransaction(request.table, request.partition, tuple(changes))
    try:
        answer = service.send(request)
    except ErrorResponse as refused:
        return refused.status, refused.code
    if isinstance(request, GroupTransaction):
        for change, etag in zip(request.changes, answer, strict=True):
            if etag is not None:
                etags.setdefault((request.partition, change.row), []).append(etag)
        return [etag is None for etag in answer]
    found = answer.entities if isinstance(answer, EntityPage) else [answer]
    return [
        None if one is None else (
            one[ETAG] in etags[one["PartitionKey"], one["RowKey"]],
            json.dumps({n: (edm_of(one, n), one[n]) for n in properties(one)}, sort_keys=True),
        )
        for one in found
    ]  # fmt: skip
