"""The forms of answers that Azure gives and the emulator does not, as they were recorded; the values are made up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import attrs
import pytest
import urllib3

import tablemapper as tm
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables.accounts import account_of
from tablemapper.engines.azure.tables.entity_json import codec_of
from tablemapper.engines.azure.tables.service import (
    CreateTable,
    DeleteTable,
    EntityPage,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    Kind,
    NoResponse,
    QueryEntities,
    Request,
    RowChange,
)
from tablemapper.engines.azure.tables.wire import Wire
from tablemapper.entities.etag import Stamp
from tablemapper.schema.model import compile_schema
from tablemapper.schema.rows import FIRST

from .memory import Memory
from .place import TimedPlace
from .test_wire import Transport, wired

JSON = {"Content-Type": "application/json;odata=minimalmetadata;streaming=true;charset=utf-8"}
SPACED = {"Content-Type": "application/json; odata=minimalmetadata; streaming=true; charset=utf-8"}
XML = {"Content-Type": "application/xml;charset=utf-8"}
NOTHING = {"Content-Length": "0"}
BATCH = {"Content-Type": "multipart/mixed; boundary=batchresponse_1"}
ETAG = "W/\"datetime'2026-03-04T05%3A06%3A07.0123456Z'\""
SHORT = "W/\"datetime'2026-03-04T05%3A06%3A07.01234Z'\""

GET, FIND = GetEntity("Users", "acme", "7"), QueryEntities("Users")
REPLACE = GroupTransaction("Users", "acme", (RowChange("replace", "7", {}, ETAG),))
INSERT = GroupTransaction("Users", "acme", (RowChange("insert", "7"),))
DELETE = GroupTransaction("Users", "acme", (RowChange("delete", "7", {}, "*"),))
THREE = GroupTransaction(
    "Users", "acme", (RowChange("insert", "1"), RowChange("merge", "2", {}, ETAG), RowChange("delete", "3", {}, "*"))
)
TWO = GroupTransaction("Users", "acme", THREE.changes[:2])


def error(code: str, said: str) -> bytes:
    """Return an error as Azure says it: lines of the request's own behind what was wrong."""
    value = f"{said}\nRequestId:00000000-0000-0000-0000-00000000000a\nTime:2026-03-04T05:06:07.0123456Z"
    return json.dumps({"odata.error": {"code": code, "message": {"lang": "en-US", "value": value}}}).encode()


def parts(*answers: str) -> bytes:
    """Return the answer to a transaction: each part with its status, its headers and, behind an empty line, its body."""
    head = "Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 "
    inner = "".join([f"--changesetresponse_2\r\n{head}{one}\r\n" for one in answers])
    return (
        "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_2\r\n\r\n"
        f"{inner}--changesetresponse_2--\r\n--batchresponse_1--\r\n"
    ).encode()


def refused_part(status: str, code: str, said: str) -> bytes:
    headers = f"X-Content-Type-Options: nosniff\r\nDataServiceVersion: 3.0;\r\nContent-Type: {JSON['Content-Type']}"
    return parts(f"{status}\r\n{headers}\r\n\r\n{error(code, said).decode()}")


DONE = "204 No Content\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\nDataServiceVersion: 3.0;\r\n"
INSERTED = DONE.replace("Data", "Preference-Applied: return-no-content\r\nData") + (
    "Location: https://shop.table.core.windows.net/Users(PartitionKey='acme',RowKey='1')\r\n"
    f"DataServiceId: https://shop.table.core.windows.net/Users(PartitionKey='acme',RowKey='1')\r\nETag: {ETAG}\r\n\r\n"
)
NUMBERED = DONE.replace("204 No Content\r\n", "204 No Content\r\nContent-ID: 2\r\n")
SHOWN = (
    f"201 Created\r\nContent-ID: 1\r\nContent-Type: {JSON['Content-Type']}\r\nETag: {ETAG}\r\n\r\n"
    '{"odata.metadata":"https://shop.table.core.windows.net/$metadata#Users/@Element","odata.etag":"W/\\"other\\"",'
    '"PartitionKey":"acme","RowKey":"1"}'
)


@attrs.frozen
class Row:
    """One answer, and what is made of it."""

    what: str
    request: Request
    status: int
    headers: dict[str, str]
    body: bytes
    result: Any
    """What is returned, or the error."""


def refused(status: int, code: str, index: int | None = None) -> ErrorResponse:
    return ErrorResponse(status, code, index=index)


ROWS = [
    # errors
    Row("an error in XML, in a namespace of its own", REPLACE, 412, XML,
        b'<?xml version="1.0" encoding="utf-8"?><error xmlns="urn:of-errors"><code>UpdateConditionNotSatisfied</code>'
        b'<message xml:lang="en-US">It was changed.\nRequestId:a</message></error>',
        refused(412, "UpdateConditionNotSatisfied", 0)),
    Row("an error in XML with prefixes", FIND, 404, XML,
        b'<?xml version="1.0" encoding="utf-8"?><m:error xmlns:m="urn:of-errors"><m:code>TableNotFound</m:code>'
        b'<m:message xml:lang="en-US">There is none.</m:message></m:error>', refused(404, "TableNotFound")),
    Row("an error in XML over several lines, behind a byte order mark", GET, 403, XML,
        b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8" standalone="yes"?>\r\n<error xmlns="urn:of-errors">\r\n'
        b"  <code>AuthenticationFailed</code>\r\n</error>", refused(403, "AuthenticationFailed")),
    Row("a transaction that is refused before it is read, in XML", TWO, 403, XML,
        b'<m:error xmlns:m="urn:of-errors"><m:code>AuthenticationFailed</m:code></m:error>',
        refused(403, "AuthenticationFailed")),
    Row("a transaction that is refused before it is read, in JSON", TWO, 400, JSON,
        error("InvalidInput", "One of the inputs is wrong."), refused(400, "InvalidInput")),
    Row("a role that does not allow it", INSERT, 403, JSON,
        error("AuthorizationPermissionMismatch", "It is not allowed."),
        refused(403, "AuthorizationPermissionMismatch", 0)),
    Row("an entity that is not there", GET, 404, SPACED, error("ResourceNotFound", "There is none."), None),
    Row("a table that is not there", GET, 404, JSON, error("TableNotFound", "There is none."),
        refused(404, "TableNotFound")),
    Row("a filter that cannot be read", FIND, 400, JSON, error("InvalidInput", "Syntax error at position 7."),
        refused(400, "InvalidInput")),
    Row("too many properties", INSERT, 400, JSON, error("TooManyProperties", "At most 252 are possible."),
        refused(400, "TooManyProperties", 0)),
    Row("an operation that does not exist", FIND, 501, JSON, error("NotImplemented", "It is not possible."),
        refused(501, "NotImplemented")),
    Row("too many requests", FIND, 429, JSON, error("TooManyRequests", "Wait."), NoResponse("")),
    # tables
    Row("a new table, whose answer has a body all the same", CreateTable("Users"), 201, JSON,
        b'{"odata.metadata":"https://shop.table.core.windows.net/$metadata#Tables/@Element","TableName":"Users"}', True),
    Row("a new table", CreateTable("Users"), 204, NOTHING, b"", True),
    Row("a table that is there", CreateTable("Users"), 409, JSON, error("TableAlreadyExists", "There is one."), False),
    Row("a new table whose name is of one that is being deleted", CreateTable("Users"), 409, JSON,
        error("TableBeingDeleted", "Wait until it is deleted."), refused(409, "TableBeingDeleted")),
    Row("no table to delete", DeleteTable("Users"), 404, JSON, error("ResourceNotFound", "There is none."), False),
    Row("a table that is being deleted already", DeleteTable("Users"), 409, JSON,
        error("TableBeingDeleted", "Wait until it is deleted."), False),
    *[Row(f"{kind} in a table that is being deleted", request, 409, JSON,
          error("TableBeingDeleted", "Wait until it is deleted."), refused(404, "TableNotFound"))
      for kind, request in (("an entity", GET), ("a query", FIND), ("a change", REPLACE), ("a transaction", TWO))],
    Row("a change in a table that is being deleted, as a part", TWO, 202, BATCH,
        refused_part("409 Conflict", "TableBeingDeleted", "0:Wait until it is deleted."), refused(404, "TableNotFound")),
    # single changes
    Row("an insert that shows the entity", INSERT, 201, {**JSON, "ETag": ETAG},
        b'{"odata.metadata":"https://shop.table.core.windows.net/$metadata#Users/@Element","odata.etag":"W/\\"other\\""}',
        [ETAG]),
    Row("an insert", INSERT, 204, {**NOTHING, "etag": SHORT, "preference-applied": "return-no-content"}, b"", [SHORT]),
    Row("a delete", DELETE, 204, NOTHING, b"", [None]),
    # transactions
    Row("a transaction, of which only later parts have numbers", THREE, 202, BATCH,
        parts(INSERTED, f"{NUMBERED}ETag: {SHORT}\r\n\r\n", f"{NUMBERED}\r\n"), [ETAG, SHORT, None]),
    Row("a transaction whose insert shows the entity", TWO, 202, BATCH,
        parts(SHOWN, f"{NUMBERED}ETag: {SHORT}\r\n\r\n"), [ETAG, SHORT]),
    Row("a transaction of which one change is not possible", TWO, 202, BATCH,
        refused_part("409 Conflict", "EntityAlreadyExists", "1:It is there."), refused(409, "EntityAlreadyExists", 1)),
    Row("a transaction that does not say which change it was", TWO, 202, BATCH,
        refused_part("412 Precondition Failed", "UpdateConditionNotSatisfied", "It was changed."),
        refused(412, "UpdateConditionNotSatisfied")),
    Row("a transaction with one row twice", TWO, 202, BATCH,
        refused_part("400 Bad Request", "InvalidDuplicateRow", "1:Once only."), refused(400, "InvalidDuplicateRow", 1)),
    Row("a transaction with too many changes", TWO, 202, BATCH,
        refused_part("400 Bad Request", "InvalidInput", "99:At most 100."), refused(400, "InvalidInput", 99)),
    Row("a transaction in a table that is not there", TWO, 202, BATCH,
        refused_part("404 Not Found", "TableNotFound", "0:There is none."), refused(404, "TableNotFound", 0)),
    # pages
    Row("a page, and where the next one begins", FIND, 200,
        {**JSON, "x-ms-continuation-NextPartitionKey": "1!4!YQ--", "x-ms-continuation-NextRowKey": "1!4!Yg--"},
        b'{"odata.metadata":"https://shop.table.core.windows.net/$metadata#Users","value":[{"n":1}]}',
        EntityPage([{"n": 1}], ("1!4!YQ--", "1!4!Yg--"))),
    Row("a page without entities, though more follow", FIND, 200, {**JSON, "x-ms-continuation-nextpartitionkey": "1!4!YQ--"},
        b'{"value":[]}', EntityPage([], ("1!4!YQ--", ""))),
    # what an entity lacks
    Row("a property that was selected and is not there", GetEntity("Users", "acme", "7", ("n", "m")), 200, JSON,
        b'{"odata.etag":"W/\\"1\\"","n":1,"m":null}', {"odata.etag": 'W/"1"', "n": 1}),
    Row("properties that were selected and are not there", QueryEntities("Users", None, ("n", "m")), 200, JSON,
        b'{"value":[{"odata.etag":"W/\\"1\\"","n":null,"m":0},{"n":null,"m":null}]}',
        EntityPage([{"odata.etag": 'W/"1"', "m": 0}, {}])),
]  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=row.what) for row in ROWS])
def test_an_answer_is_understood(row: Row) -> None:
    wire = wired(Transport(row.status, row.headers, row.body))
    if not isinstance(row.result, Exception):
        assert wire.send(row.request) == row.result
        return
    with pytest.raises(type(row.result)) as caught:
        wire.send(row.request)
    if isinstance(row.result, ErrorResponse):
        told: Any = caught.value
        assert (told.status, told.code, told.index) == (row.result.status, row.result.code, row.result.index)


def test_the_error_of_a_request_is_one_line() -> None:
    body = error("InvalidInput", "Syntax error at position 7.")
    with pytest.raises(ErrorResponse, match=r"^400 InvalidInput: Syntax error at position 7\.$"):
        wired(Transport(400, JSON, body)).send(FIND)


def test_a_store_whose_table_is_being_deleted_says_so() -> None:
    class Deleting(Memory):
        def send(self, request: Request, *wait: float) -> Any:
            if isinstance(request, CreateTable):
                raise ErrorResponse(409, "TableBeingDeleted", "Wait until it is deleted.")
            return super().send(request)

    with pytest.raises(tm.StoreError, match="the table TableMapper is being deleted"):
        tm.open(TimedPlace(memory=Deleting()), models=[Sale])  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------ entities


class Visit(tm.Entity, table="Visits"):
    """A field of each type that entities of Azure have."""

    user: tm.Field[str]
    number: tm.Field[int]
    at: tm.Field[datetime | None] = tm.field(default=None)
    uid: tm.Field[UUID | None] = tm.field(default=None)
    mass: tm.Field[float | None] = tm.field(default=None)
    data: tm.Field[bytes | None] = tm.field(default=None)
    seen: tm.Field[bool | None] = tm.field(default=None)
    size: tm.Field[int | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{user}", row="{number}")


SCHEMA = compile_schema([Visit])
MOMENT, WHOLE = "2026-03-04T05:06:07", datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "members", "stored"),
    [
        *[
            ("at", {"at": f"{MOMENT}{fraction}Z", "at@odata.type": "Edm.DateTime"}, f"{MOMENT}.{six}Z")
            for fraction, six in (
                ("", "000000"), (".1", "100000"), (".12", "120000"), (".283", "283000"), (".0001", "000100"),
                (".00001", "000010"), (".123456", "123456"), (".1234567", "123456"),
            )
        ],
        ("mass", {"mass": 5.0}, 5.0),
        ("mass", {"mass": 1.5e300}, 1.5e300),
        ("mass", {"mass": "-Infinity", "mass@odata.type": "Edm.Double"}, float("-inf")),
        ("uid", {"uid": "0f8fad5b-d9cb-469f-a165-70867728950e", "uid@odata.type": "Edm.Guid"}, "0f8fad5b-d9cb-469f-a165-70867728950e"),
        ("data", {"data": "AAE=", "data@odata.type": "Edm.Binary"}, b"\x00\x01"),
        ("seen", {"seen": False}, 0),
        ("seen", {"seen": None}, None),
        ("size", {"size": "7", "size@odata.type": "Edm.Int64"}, 7),
    ],
)  # fmt: skip
def test_a_property_is_read_in_each_form(name: str, members: dict[str, Any], stored: Any) -> None:
    """A time has no zeros at its end, a number with a point or an exponent has no type, nor has the time of the write."""
    entity = {
        "odata.metadata": "https://shop.table.core.windows.net/$metadata#Visits/@Element", "odata.etag": SHORT,
        "PartitionKey": "ann", "RowKey": "7", "Timestamp": f"{MOMENT}.01234Z", **members,
    }  # fmt: skip
    read = wired(Transport(200, JSON, json.dumps(entity).encode())).send(GET)
    model = SCHEMA.models[0]
    row = codec_of(model).row(read)
    assert row[FIRST + [field.property for field in model.columns].index(name)] == stored
    assert row[-1].undeclared == {}


@pytest.mark.parametrize(
    ("fraction", "micro"), [("", 0), (".1", 100_000), (".01234", 12_340), (".012345", 12_345), (".0123456", 12_345)]
)
def test_an_etag_has_a_time_without_zeros_at_its_end(fraction: str, micro: int) -> None:
    stamp = Stamp(f"W/\"datetime'2026-03-04T05%3A06%3A07{fraction}Z'\"")
    assert int(stamp) == int(WHOLE.timestamp()) * 1_000_000 + micro


# ------------------------------------------------------------------------------------------ what is sent


KINDS: list[tuple[Kind, str | None, str]] = [
    ("insert", None, "Content-Type Prefer"),
    ("upsert", None, "Content-Type"),
    ("replace", ETAG, "Content-Type If-Match"),
    ("merge", "*", "Content-Type If-Match"),
    ("delete", "*", "If-Match"),
]


@pytest.mark.parametrize(("kind", "if_match", "headers"), KINDS)
def test_a_change_has_the_headers_that_azure_was_seen_to_take(kind: Kind, if_match: str | None, headers: str) -> None:
    """The `Prefer` of an insert alone, and no type of a body that is not there; alone, and as a part."""
    transport = Transport(204, {} if kind == "delete" else {"ETag": ETAG})
    wired(transport).send(GroupTransaction("Users", "acme", (RowChange(kind, "7", {}, if_match),)))
    of_all = {"x-ms-version", "x-ms-date", "Accept", "DataServiceVersion", "MaxDataServiceVersion", "Authorization"}
    assert sorted(transport.sent[0][3].keys() - of_all) == headers.split()
    done = f"{DONE}\r\n" if kind == "delete" else f"{DONE}ETag: {ETAG}\r\n\r\n"
    transport = Transport(202, BATCH, parts(done, f"{DONE}\r\n"))
    wired(transport).send(
        GroupTransaction("Users", "acme", (RowChange(kind, "7", {}, if_match), RowChange("delete", "8", {}, "*")))
    )
    before, part = transport.sent[0][2].decode().split("HTTP/1.1\r\n")[:2]
    assert before.split("\r\n")[-3] == "Content-ID: 0"
    of_parts = ["Accept", "DataServiceVersion", "Date", "x-ms-date", "x-ms-version"]  # (those of the SDK's own parts)
    length = ["Content-Length"] if kind != "delete" else []
    assert sorted(line.partition(":")[0] for line in part.partition("\r\n\r\n")[0].split("\r\n")) == sorted(
        [*of_parts, *length, *headers.split()]
    )


@pytest.mark.one_python
def test_a_part_has_each_header_that_the_sdk_of_microsoft_sends() -> None:
    from azure.core.credentials import AzureNamedKeyCredential
    from azure.core.pipeline.transport import RequestsTransport
    from azure.data.tables import TableClient

    class Sent(Exception): ...

    class NoTransport(RequestsTransport):
        def send(self, request: Any, **_: Any) -> Any:
            raise Sent(request.body)

    entities = [{"PartitionKey": "p", "RowKey": str(number)} for number in range(3)]
    client = TableClient(
        "https://shop.table.core.windows.net", "Users", credential=AzureNamedKeyCredential("shop", "c2VjcmV0"),
        transport=NoTransport(),
    )  # fmt: skip
    with pytest.raises(Sent) as caught:
        client.submit_transaction(
            [("create", entities[0]), ("update", entities[1], {"mode": "merge"}), ("delete", entities[2])]
        )
    transport = Transport(202, BATCH, parts(INSERTED, f"{DONE}ETag: {ETAG}\r\n\r\n", f"{DONE}\r\n"))
    kinds: list[tuple[Kind, str | None]] = [("insert", None), ("merge", "*"), ("delete", "*")]
    changes = [RowChange(kind, str(number), {}, etag) for number, (kind, etag) in enumerate(kinds)]
    wired(transport).send(GroupTransaction("Users", "p", tuple(changes)))
    theirs, ours = [
        [
            {line.partition(":")[0] for line in part.split("\r\n") if ":" in line}
            for part in body.decode().split("--changeset_")
        ]
        for body in (caught.value.args[0], transport.sent[0][2])
    ]
    assert len(theirs) == len(ours)
    for one, other in zip(theirs[1:4], ours[1:4], strict=True):
        assert {name for name in one if '"' not in name and "https" not in name} <= other


def test_the_url_of_a_part_has_no_port_that_goes_without_saying() -> None:
    transport = Transport(202, BATCH, parts(INSERTED, f"{DONE}ETag: {ETAG}\r\n\r\n"))
    wired(transport).send(TWO)
    assert b"POST https://shop.table.core.windows.net/Users HTTP/1.1\r\n" in transport.sent[0][2]


# ------------------------------------------------------------------------------------------ a store


class AsRecorded:
    """Connections to an emulator, whose answers to reads get the forms that those of Azure have."""

    def __init__(self, port: int) -> None:
        self._pool = urllib3.HTTPConnectionPool("127.0.0.1", port)
        self.lacked = 0
        """How many properties were selected that an entity lacks."""

    def urlopen(self, method: str, url: str, **others: Any) -> Any:
        answer = self._pool.urlopen(method, url, **others)
        if method != "GET" or answer.status != 200:
            return answer
        content = json.loads(answer.data)
        selected = parse_qs(urlsplit(url).query).get("$select", [""])[0].split(",")
        for entity in content["value"] if "()" in url else [content]:
            lacking = dict.fromkeys([name for name in filter(None, selected) if name not in entity])
            self.lacked += len(lacking)
            entity.update(lacking)
            entity.pop("Timestamp@odata.type", None)
            for name in [one for one in entity if entity.get(f"{one}@odata.type") == "Edm.DateTime"]:
                head, point, fraction = entity[name].rstrip("Z").partition(".")
                entity[name] = f"{head}{point}{fraction.rstrip('0')}".rstrip(".") + "Z"
        headers = {name: value for name, value in answer.headers.items() if name.lower().startswith("x-ms-")}
        return urllib3.HTTPResponse(json.dumps(content).encode(), headers, 200, preload_content=True)

    def close(self) -> None:
        self._pool.close()


class Sale(tm.Entity, table="Sales"):
    shop: tm.Field[str]
    number: tm.Field[int]
    code: tm.Field[str]
    at: tm.Field[datetime]
    note: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{shop}", row="{number}")
    by_code = tm.Index[str](partition="{code}", row="one", unique=True)
    by_time = tm.Index[str, datetime](partition="{shop}", row="{at}", include=("note",))


class Sales(tm.Aggregate, of=Sale, table="Totals"):
    shop: tm.Field[str] = tm.group_by(Sale.shop)
    sales: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="{shop}")


@attrs.frozen
class _Place:
    connection: str
    pool: AsRecorded

    def open(self, schema: Any, **_: Any) -> AzureEngine:
        return AzureEngine.open(
            service=Wire(account_of(self.connection), pool=self.pool), name="as recorded", schema=schema
        )


@pytest.fixture
def store(connection: str) -> Iterator[tuple[tm.Store, AsRecorded]]:
    pool = AsRecorded(account_of(connection).port)
    with tm.open(_Place(connection, pool), models=[Sale, Sales]) as opened:  # type: ignore[arg-type]
        yield opened, pool


def test_what_entities_lack_is_not_taken_for_something(store: tuple[tm.Store, AsRecorded]) -> None:
    """That a group is hidden is a property that groups mostly lack, and its name is selected."""
    opened, pool = store
    opened.insert_many([Sale("north", n, f"c{n}", WHOLE.replace(microsecond=n * 1000)) for n in range(4)])
    assert list(opened.query(Sales).allow_scan().select(Sales.sales)) == [(4,)]
    assert opened.query(Sales).allow_scan().count() == 1
    assert list(opened.query(Sale.by_time("north")).select(Sale.note, Sale.at)) == [
        (None, WHOLE.replace(microsecond=n * 1000)) for n in range(4)
    ]
    assert [one.number for one in opened.query(Sale.by_code("c2"))] == [2]
    assert opened.check().ok
    assert pool.lacked > 0
