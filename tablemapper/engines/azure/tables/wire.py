"""One request out, one answer in, over pooled connections: `NoResponse` or `ErrorResponse`, and never a second time."""

from __future__ import annotations

import http.client
import json
import logging
import math
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import msgspec
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from . import service
from .accounts import Account
from .elapsed_clock import ElapsedClock, http_time
from .multipart import OPEN, Part, read_batch, refusal, write_batch

_CONNECTIONS = 48
_CONNECT = 5.0  # seconds
_IDLE = 60.0  # seconds after which a connection is not used again: something on the way may have forgotten it
_UNREACHABLE = 2.0  # seconds after which it is said that a service was never reached
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *[
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ],
]
_NEXT = "x-ms-continuation-Next"
_HEADERS = {
    "x-ms-version": "2019-02-02",
    "Accept": "application/json;odata=minimalmetadata",
    "DataServiceVersion": "3.0",
    "MaxDataServiceVersion": "3.0",
}
_OF_PARTS = ("x-ms-version", "DataServiceVersion", "Accept")  # (those that the SDK of Microsoft sends)
_JSON = {"Content-Type": "application/json"}
_OF_NEW = {**_JSON, "Prefer": "return-no-content"}
_METHODS = {"replace": "PUT", "upsert": "PUT", "merge": "PATCH"}
_ETAG = re.compile(r"""W/"datetime'[^']+'\"""")
_SIGNED = re.compile(r"\bsig=[^&\s]*")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode


class _Lines:
    """The lines of an answer's head."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def readline(self, limit: int) -> bytes:
        """Return the next line; raise IncompleteRead where the connection ended in it."""
        line: bytes = self._answer.readline(limit)
        if not line.endswith(b"\n") and len(line) < limit:
            raise http.client.IncompleteRead(line)
        return line


class WholeHead(http.client.HTTPResponse):
    """An answer that is none unless its head has come to its end: http.client takes one that is cut for a whole one."""

    fp: Any

    def begin(self) -> None:
        answer, self.fp = self.fp, _Lines(self.fp)
        try:
            super().begin()
        finally:
            self.fp = answer


class _Fresh:
    """A connection that is closed where nobody has used it for long, and whose answers are whole, or none."""

    response_class: Any = WholeHead
    monotonic: Final = staticmethod(time.monotonic)
    _used_at = 0.0

    def request(self, *args: Any, **options: Any) -> None:
        self._used_at = self.monotonic()
        super().request(*args, **options)  # type: ignore[misc]

    @property
    def is_connected(self) -> bool:
        return super().is_connected and self.monotonic() - self._used_at < _IDLE  # type: ignore[misc]


class Connection(_Fresh, HTTPConnection): ...


class SecureConnection(_Fresh, HTTPSConnection): ...


class Pool(urllib3.HTTPConnectionPool):
    ConnectionCls: Any = Connection


class SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls: Any = SecureConnection


class Wire:
    """A Table service over HTTP.

    Attributes:
        elapsed: the clock that its answers keep right.
    """

    def __init__(
        self, account: Account, *, pool: Any = None, clock: Callable[[], float] = time.time, boundary: Any = uuid4
    ) -> None:
        self._is_reached = False
        self._account = account
        self._clock = clock
        self._boundary = boundary
        self.elapsed: Final = ElapsedClock()
        self._encode = _encode_ascii if account.is_emulator else _encode
        if account.signature.query:
            logging.getLogger("urllib3.connectionpool").addFilter(_without_signature)
        kind = SecurePool if account.scheme == "https" else Pool
        defaults: Any = HTTPConnection.default_socket_options  # (a Final, of which pyright knows no type)
        options = [*defaults, *_KEEPALIVE]
        self._pool = pool or kind(account.host, account.port, maxsize=_CONNECTIONS, socket_options=options)

    def __repr__(self) -> str:
        return f"<Wire to {self._account}>"

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def send(self, request: service.Request, wait: float = service.WAIT) -> Any:
        """Return the answer to a request, which is sent once, and waited for so many seconds.

        Raises:
            NoResponse, ErrorResponse
            StoreError: the answer is not that of a Table service.
        """
        try:
            return self._send(request, wait)
        except service.ErrorResponse as error:
            if error.code != "TableBeingDeleted" or isinstance(request, service.CreateTable):
                raise
            if isinstance(request, service.DeleteTable):
                return False
            raise service.ErrorResponse(404, "TableNotFound", "it is being deleted") from None

    def _send(self, request: service.Request, wait: float) -> Any:
        match request:
            case service.GetEntity(table=table, partition=partition, row=row, select=select):
                query = f"$select={_quoted(','.join(select))}" if select else ""
                status, _, body = self._call("GET", _path(table, partition, row), query, wait=wait)
                try:
                    return _without_nulls(_read(status, body))
                except service.ErrorResponse as error:
                    if error.status == 404 and error.code != "TableNotFound":
                        return None
                    raise
            case service.QueryEntities():
                return self._find(request, wait)
            case service.ListTables():
                return self._tables(request, wait)
            case service.GroupTransaction(table=table, partition=partition, changes=changes):
                send = self._change if len(changes) == 1 else self._transaction
                etags = send(table, partition, changes, wait)
                for change, etag in zip(changes, etags, strict=True):
                    if change.kind != "delete" and (etag is None or _ETAG.fullmatch(etag) is None):
                        raise service.NoResponse("the answer to a change has no ETag")
                return etags
            case service.CreateTable(name=name):
                status, _, body = self._call("POST", "/Tables", "", _encode({"TableName": name}), _OF_NEW, wait=wait)
                try:
                    _check(status, body)
                except service.ErrorResponse as error:
                    if error.code == "TableAlreadyExists":
                        return False
                    raise
                return True
            case service.DeleteTable(name=name):
                status, _, body = self._call("DELETE", f"/Tables('{name}')", wait=wait)
                if status == 404:
                    return False
                _check(status, body)
                return True

    def _find(self, request: service.QueryEntities, wait: float) -> service.EntityPage:
        query = {}
        if request.where is not None:
            query["$filter"] = service.filter_text(request.where)
        if request.select:
            query["$select"] = ",".join(request.select)
        if request.top is not None:
            query["$top"] = str(request.top)
        if request.after is not None:
            query |= zip(("NextPartitionKey", "NextRowKey"), request.after, strict=True)
        text = "&".join([f"{name}={_quoted(value)}" for name, value in query.items()])
        status, headers, body = self._call("GET", f"/{request.table}()", text, wait=wait)
        members = _read(status, body)
        partition, row = headers.get(f"{_NEXT}PartitionKey"), headers.get(f"{_NEXT}RowKey")
        continuation = None if partition is None and row is None else (partition or "", row or "")
        try:
            entities = members["value"]
            service.check_ascending(entities)
            entities = [_without_nulls(entity) for entity in entities] if request.select else entities
            return service.EntityPage(entities, continuation, headers.get("Date", ""))
        except (KeyError, TypeError, AttributeError):
            raise service.NoResponse("the answer to a query is none") from None

    def _tables(self, request: service.ListTables, wait: float) -> service.EntityPage:
        name = "TableName"
        first = service.Comparison(name, "ge", "String", request.first)
        end = service.Comparison(name, "lt", "String", request.end)
        query = {"$filter": service.filter_text(service.AllOf((first, end)))}
        query |= {} if request.after is None else {"NextTableName": request.after}
        text = "&".join([f"{key}={_quoted(value)}" for key, value in query.items()])
        status, headers, body = self._call("GET", "/Tables", text, wait=wait)
        try:
            tables = [{name: str(row[name])} for row in _read(status, body)["value"]]
            return service.EntityPage(tables, headers.get(f"{_NEXT}TableName"), headers.get("Date", ""))
        except (KeyError, TypeError):
            raise service.NoResponse("the answer to a list of tables is none") from None

    def _change(
        self, table: str, partition: str, changes: Sequence[service.RowChange], wait: float
    ) -> list[str | None]:
        method, path, headers, body = _part(table, partition, changes[0], self._encode)
        status, answered, content = self._call(method, path, "", body or None, headers, wait=wait)
        try:
            _check(status, content)
        except service.ErrorResponse as error:
            raise service.ErrorResponse(error.status, error.code, "", 0) from None
        return [answered.get("ETag")]

    def _transaction(
        self, table: str, partition: str, changes: Sequence[service.RowChange], wait: float
    ) -> list[str | None]:
        boundary = str(self._boundary())
        date = _http_date(int(self._clock()))
        of_each = {name: _HEADERS[name] for name in _OF_PARTS} | {"x-ms-date": date, "Date": date}
        parts = [_part(table, partition, change, self._encode, self._account.url, of_each) for change in changes]
        headers = {"Content-Type": f"multipart/mixed; boundary=batch_{boundary}"}
        status, answered, body = self._call("POST", "/$batch", "", write_batch(parts, boundary), headers, wait=wait)
        _check(status, body)
        return read_batch(answered.get("Content-Type", ""), body, len(changes))

    def _call(
        self,
        method: str,
        path: str,
        query: str = "",
        body: bytes | None = None,
        headers: Mapping[str, str] = {},
        *,
        wait: float,
    ) -> tuple[int, Mapping[str, str], bytes]:
        account = self._account
        path = account.path + path
        date = _http_date(int(self._clock()))
        query = "&".join(filter(None, [query, account.signature.query]))
        try:
            signed = account.signature.headers(path, date)
        except Exception as error:
            raise service.RequestNotSent(f"the credential gives no token: {type(error).__name__}: {error}") from error
        head = {**_HEADERS, "x-ms-date": date, **headers, **signed}
        url = f"{path}?{query}" if query else path
        try:
            timeout = urllib3.Timeout(connect=min(_CONNECT, wait), read=wait)
            answer = self._pool.urlopen(
                method, url, body=body, headers=head, redirect=False, retries=False, timeout=timeout
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:  # (whose text has the query, and so a signature)
            raise self._unanswered(error) from None
        self.elapsed.heard(answer.headers.get("Date"))
        self._is_reached = True
        if answer.status in OPEN:
            raise service.NoResponse(f"{account}: {answer.status}", self._retry_after(answer.headers), answer.status)
        return answer.status, answer.headers, answer.data or b""

    def _unanswered(self, error: Exception) -> service.NoResponse:
        """Return the error of a request without an answer: with the reason, where the service cannot be reached at all."""
        account, reason, patience = self._account, type(error).__name__, math.inf
        if isinstance(error, urllib3.exceptions.NameResolutionError):
            reason, patience = "there is no such host; look at the name of the account", _UNREACHABLE
        elif isinstance(error, urllib3.exceptions.NewConnectionError):
            reason, patience = "nobody listens there", _UNREACHABLE
            reason += "; start the emulator Azurite" if account.is_emulator else ""
        elif isinstance(error, urllib3.exceptions.SSLError) and isinstance(error.args[0], ssl.SSLCertVerificationError):
            reason, patience = f"its certificate is not trusted: {error.args[0].verify_message}", 0.0
            reason += "; a certificate of your network goes into the file that SSL_CERT_FILE names"
        no_response = service.NoResponse(f"{account}: {reason}")
        no_response.patience = math.inf if self._is_reached else patience
        return no_response

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
            return max(http_time(text) - self._clock(), 0.0)
        except ValueError:
            return None


@lru_cache(maxsize=8)  # (many requests go out within a second)
def _http_date(seconds: int) -> str:
    """Return the date that the head of a request has."""
    return formatdate(seconds, usegmt=True)


def _without_signature(record: logging.LogRecord) -> bool:
    """Take signatures out of what urllib3 logs of each request at level DEBUG."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            [_SIGNED.sub("sig=…", argument) if isinstance(argument, str) else argument for argument in record.args]
        )
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


def _part(
    table: str,
    partition: str,
    change: service.RowChange,
    encode: Callable[[Any], bytes],
    url: str = "",
    of_each: Mapping[str, str] = _HEADERS,
) -> Part:
    headers = dict(of_each)
    if change.if_match is not None:
        headers["If-Match"] = change.if_match
    if change.kind == "delete":
        return "DELETE", url + _path(table, partition, change.row), headers, b""
    body = encode({service.PARTITION: partition, service.ROW: change.row, **change.members})
    if change.kind == "insert":
        return "POST", f"{url}/{table}", headers | _OF_NEW, body
    return _METHODS[change.kind], url + _path(table, partition, change.row), headers | _JSON, body


def _without_nulls(entity: service.Entity) -> service.Entity:
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
        raise service.NoResponse("the answer is cut, or is no JSON") from None
