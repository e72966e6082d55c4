"""Answers as a Table service sends them over HTTP, byte by byte, and what a `Wire` makes of them."""

from __future__ import annotations

import json
import socket
from http import HTTPStatus
from typing import Any

from tablemapper.engines.azure.tables import wire
from tablemapper.engines.azure.tables.accounts import account_of
from tablemapper.engines.azure.tables.service import Entity, ErrorResponse, GroupTransaction, Request

_ACCOUNT = account_of("AccountName=shop;AccountKey=c2VjcmV0;TableEndpoint=http://127.0.0.1:1/shop")
_COMMON = [
    "Cache-Control: no-cache",
    "x-ms-request-id: 7",
    "x-ms-version: 2019-02-02",
    "Date: Sat, 28 Nov 2026 12:00:00 GMT",
]


def answer_of(request: Request, answer: Any) -> bytes:
    """Return what a service sends for an answer, or for a refusal, to a transaction or a read of one entity."""
    if not isinstance(request, GroupTransaction):
        return _refusal(answer) if isinstance(answer, ErrorResponse) else _entity(answer)
    if len(request.changes) == 1:
        return _refusal(answer) if isinstance(answer, ErrorResponse) else _head(204, _etag(answer[0]))
    if isinstance(answer, ErrorResponse):
        parts = [_refusal(answer)]
    else:
        parts = [_head(204, ["X-Content-Type-Options: nosniff", *_etag(etag)]) for etag in answer]
    lines = [b"--batchresponse_x\r\nContent-Type: multipart/mixed; boundary=changesetresponse_y\r\n\r\n"]
    for part in parts:
        lines.append(b"--changesetresponse_y\r\nContent-Type: application/http\r\n")
        lines.append(b"Content-Transfer-Encoding: binary\r\n\r\n" + part + b"\r\n")
    body = b"".join([*lines, b"--changesetresponse_y--\r\n--batchresponse_x--\r\n"])
    return (
        _head(202, [f"Content-Length: {len(body)}", "Content-Type: multipart/mixed; boundary=batchresponse_x"]) + body
    )


def _etag(etag: str | None) -> list[str]:
    return [] if etag is None else [f"ETag: {etag}"]


def _head(status: int, headers: list[str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *headers, *_COMMON]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _json(status: int, content: object) -> bytes:
    body = json.dumps(content).encode()
    return _head(status, ["Content-Type: application/json", f"Content-Length: {len(body)}"]) + body


def _entity(entity: Entity | None) -> bytes:
    return _refusal(ErrorResponse(404, "ResourceNotFound")) if entity is None else _json(200, entity)


def _refusal(refused: ErrorResponse) -> bytes:
    place = "" if refused.index is None else f"{refused.index}:"
    message = {"lang": "en-US", "value": f"{place}It is refused.\nRequestId:7"}
    return _json(refused.status, {"odata.error": {"code": refused.code, "message": message}})


def received(request: Request, sent: bytes) -> Any:
    """Return what a `Wire` makes of an answer to a request, of which so many bytes come before the connection ends."""
    ours, theirs = socket.socketpair()
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)

    class Connection(wire.Connection):
        def connect(self) -> None:
            self.sock = ours

    pool = wire.Pool(_ACCOUNT.host, _ACCOUNT.port)
    pool.ConnectionCls = Connection
    over = wire.Wire(_ACCOUNT, pool=pool)
    try:
        return over.send(request)
    finally:
        over.close()
        ours.close()
        theirs.close()
