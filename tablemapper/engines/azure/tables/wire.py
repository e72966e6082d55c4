"""One request out, one answer in, over pooled connections: `NoResponse` or `ErrorResponse`, and never a second time."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate, parsedate_to_datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec
import urllib3

from .accounts import Account
from .multipart import OPEN, Part, read_batch, refusal, write_batch
from .service import (
    PARTITION,
    ROW,
    CreateTable,
    DeleteTable,
    Entity,
    EntityPage,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    QueryEntities,
    Request,
    RowChange,
    filter_text,
)

_CONNECTIONS = 48
_CONNECT, _READ = 5.0, 10.0  # seconds, the latter without a byte
_NEXT = "x-ms-continuation-Next"
_HEADERS = {
    "x-ms-version": "2019-02-02",
    "Accept": "application/json;odata=minimalmetadata",
    "DataServiceVersion": "3.0",
    "MaxDataServiceVersion": "3.0",
}
_JSON = {"Content-Type": "application/json"}
_OF_NEW = {**_JSON, "Prefer": "return-no-content"}
_METHODS = {"replace": "PUT", "upsert": "PUT", "merge": "PATCH"}
_SIGNED = re.compile(r"\bsig=[^&\s]*")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode


class Wire:
    """A Table service over HTTP."""

    def __init__(
        self, account: Account, *, pool: Any = None, clock: Callable[[], float] = time.time, boundary: Any = uuid4
    ) -> None:
        self._account = account
        self._clock = clock
        self._boundary = boundary
        self._encode = _encode_ascii if account.is_emulator else _encode
        if account.signature.query:
            logging.getLogger("urllib3.connectionpool").addFilter(_without_signature)
        kind = urllib3.HTTPSConnectionPool if account.scheme == "https" else urllib3.HTTPConnectionPool
        self._pool = pool or kind(
            account.host, account.port, maxsize=_CONNECTIONS, timeout=urllib3.Timeout(connect=_CONNECT, read=_READ)
        )

    def __repr__(self) -> str:
        return f"<Wire to {self._account}>"

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def send(self, request: Request) -> Any:
        """Return the answer to a request, which is sent once.

        Raises:
            Lost, Refused
        """
        try:
            return self._send(request)
        except ErrorResponse as refused:
            if refused.code != "TableBeingDeleted" or isinstance(request, CreateTable):
                raise
            if isinstance(request, DeleteTable):
                return False
            raise ErrorResponse(404, "TableNotFound", "it is being deleted") from None

    def _send(self, request: Request) -> Any:
        match request:
            case GetEntity(table=table, partition=partition, row=row, select=select):
                query = f"$select={_quoted(','.join(select))}" if select else ""
                status, _, body = self._call("GET", _path(table, partition, row), query)
                try:
                    return _held(_read(status, body))
                except ErrorResponse as refused:
                    if refused.status == 404 and refused.code != "TableNotFound":
                        return None
                    raise
            case QueryEntities():
                return self._find(request)
            case GroupTransaction(table=table, partition=partition, changes=changes):
                send = self._change if len(changes) == 1 else self._transaction
                return send(table, partition, changes)
            case CreateTable(name=name):
                status, _, body = self._call("POST", "/Tables", "", _encode({"TableName": name}), _OF_NEW)
                try:
                    _check(status, body)
                except ErrorResponse as refused:
                    if refused.code == "TableAlreadyExists":
                        return False
                    raise
                return True
            case DeleteTable(name=name):
                status, _, body = self._call("DELETE", f"/Tables('{name}')")
                if status == 404:
                    return False
                _check(status, body)
                return True

    def _find(self, request: QueryEntities) -> EntityPage:
        query = {}
        if request.where is not None:
            query["$filter"] = filter_text(request.where)
        if request.select:
            query["$select"] = ",".join(request.select)
        if request.top is not None:
            query["$top"] = str(request.top)
        if request.after is not None:
            query |= zip(("NextPartitionKey", "NextRowKey"), request.after, strict=True)
        text = "&".join([f"{name}={_quoted(value)}" for name, value in query.items()])
        status, headers, body = self._call("GET", f"/{request.table}()", text)
        members = _read(status, body)
        partition, row = headers.get(f"{_NEXT}PartitionKey"), headers.get(f"{_NEXT}RowKey")
        after = None if partition is None and row is None else (partition or "", row or "")
        try:
            entities = members["value"]
            return EntityPage([_held(one) for one in entities] if request.select else entities, after)
        except (KeyError, TypeError, AttributeError):
            raise NoResponse("the answer to a query is none") from None

    def _change(self, table: str, partition: str, changes: Sequence[RowChange]) -> list[str | None]:
        method, path, headers, body = _part(table, partition, changes[0], self._encode)
        status, answered, content = self._call(method, path, "", body or None, headers)
        try:
            _check(status, content)
        except ErrorResponse as refused:
            raise ErrorResponse(refused.status, refused.code, "", 0) from None
        return [answered.get("ETag")]

    def _transaction(self, table: str, partition: str, changes: Sequence[RowChange]) -> list[str | None]:
        boundary = str(self._boundary())
        parts = [_part(table, partition, change, self._encode, self._account.url) for change in changes]
        headers = {"Content-Type": f"multipart/mixed; boundary=batch_{boundary}"}
        status, answered, body = self._call("POST", "/$batch", "", write_batch(parts, boundary), headers)
        _check(status, body)
        return read_batch(answered.get("Content-Type", ""), body, len(changes))

    def _call(
        self, method: str, path: str, query: str = "", body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> tuple[int, Mapping[str, str], bytes]:
        account = self._account
        path = account.path + path
        date = formatdate(self._clock(), usegmt=True)
        query = "&".join(filter(None, [query, account.signature.query]))
        head = {**_HEADERS, "x-ms-date": date, **headers, **account.signature.headers(path, date)}
        url = f"{path}?{query}" if query else path
        try:
            answer = self._pool.urlopen(method, url, body=body, headers=head, redirect=False, retries=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:  # (whose text has the query, and so a signature)
            raise NoResponse(f"{account}: {type(error).__name__}") from None
        if answer.status in OPEN:
            raise NoResponse(f"{account}: {answer.status}", self._retry_after(answer.headers), answer.status)
        return answer.status, answer.headers, answer.data or b""

    def _retry_after(self, headers: Mapping[str, str]) -> float | None:
        """Return the seconds that the service asks to wait, in either of the two ways."""
        try:
            if (milliseconds := headers.get("x-ms-retry-after-ms")) is not None:
                return max(float(milliseconds) / 1000, 0.0)
            text = headers.get("Retry-After")
            if text is None:
                return None
            if text.strip().isdigit():
                return float(text)
            return max(parsedate_to_datetime(text).timestamp() - self._clock(), 0.0)
        except ValueError:
            return None


def _without_signature(record: logging.LogRecord) -> bool:
    """Take signatures out of what urllib3 logs of each request at level DEBUG."""
    if isinstance(record.args, tuple):
        record.args = tuple([_SIGNED.sub("sig=…", one) if isinstance(one, str) else one for one in record.args])
    return True


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _path(table: str, partition: str, row: str) -> str:
    keys = [_quoted(key.replace("'", "''")) for key in (partition, row)]
    return f"/{table}(PartitionKey='{keys[0]}',RowKey='{keys[1]}')"


def _encode_ascii(members: Any) -> bytes:
    """Return JSON without a character above U+007F: the emulator corrupts such ones where two chunks of a body meet."""
    text = _encode(members).decode()
    return _BEYOND_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text).encode()


def _part(table: str, partition: str, change: RowChange, encode: Callable[[Any], bytes], url: str = "") -> Part:
    headers = {"Accept": _HEADERS["Accept"]}
    if change.if_match is not None:
        headers["If-Match"] = change.if_match
    if change.kind == "delete":
        return "DELETE", url + _path(table, partition, change.row), headers, b""
    body = encode({PARTITION: partition, ROW: change.row, **change.members})
    if change.kind == "insert":
        return "POST", f"{url}/{table}", headers | _OF_NEW, body
    return _METHODS[change.kind], url + _path(table, partition, change.row), headers | _JSON, body


def _held(entity: Entity) -> Entity:
    """Return an entity without what it lacks: for properties that were selected, Azure answers null."""
    return {name: value for name, value in entity.items() if value is not None}


def _check(status: int, body: bytes) -> None:
    if not 200 <= status < 300:
        raise refusal(status, body)


def _read(status: int, body: bytes) -> Any:
    _check(status, body)
    try:
        return _decode(body)
    except msgspec.DecodeError:
        raise NoResponse("the answer is cut, or is no JSON") from None
