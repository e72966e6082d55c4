"""Multipart messages: an entity group transaction as the service reads it, and its answer, read back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from .service import ErrorResponse, NoResponse

Part = tuple[str, str, dict[str, str], bytes]
"""The method, the URL, the headers and the body of one change."""

OPEN = frozenset({408, 429, 500, 502, 503, 504})
"""The statuses that leave open whether a request was executed."""
_STATUS = re.compile(rb"\n\r?\nHTTP/1\.1 (\d{3})")
_ETAG = re.compile(rb"\r\netag: *([^\r\n]+)\r\n", re.IGNORECASE)
_CODE = re.compile(rb"<(?:\w+:)?[Cc]ode>(\w+)</")
_NUMBER = re.compile(r"(\d+):")


def write_batch(parts: Iterable[Part], boundary: str) -> bytes:
    """Return the body of a transaction, whose boundaries hold a text that is nowhere in it."""
    lines = [f"--batch_{boundary}\r\nContent-Type: multipart/mixed; boundary=changeset_{boundary}\r\n\r\n".encode()]
    for number, (method, url, headers, body) in enumerate(parts):
        head = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        lines.append(
            f"--changeset_{boundary}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n"
            f"Content-ID: {number}\r\n\r\n{method} {url} HTTP/1.1\r\n{length}{head}\r\n".encode()
        )
        lines += [body, b"\r\n"]
    lines.append(f"--changeset_{boundary}--\r\n--batch_{boundary}--\r\n".encode())
    return b"".join(lines)


def read_batch(content_type: str, body: bytes, count: int) -> list[str | None]:
    """Return the ETags of the changes of a transaction, None where there is none.

    Args:
        content_type: of the answer.
        body: the answer.
        count: how many changes there were.

    Raises:
        Lost: the answer is not whole.
        Refused: the transaction was.
    """
    boundary = content_type.partition("boundary=")[2].strip().strip('"').encode()
    if not boundary or not body.rstrip().endswith(b"--" + boundary + b"--"):
        raise NoResponse("the answer to a transaction is not whole")
    matches = list(_STATUS.finditer(body))
    ends = [*[match.start() for match in matches], len(body)][1:]
    answers = [(int(match[1]), body[match.end() : end]) for match, end in zip(matches, ends, strict=True)]
    for status, answer in answers:
        if status >= 400:
            raise refusal(status, answer.partition(b"\r\n\r\n")[2].partition(b"\r\n--")[0])
    if len(answers) != count:
        raise NoResponse(f"the answer to a transaction of {count} changes is for {len(answers)}")
    etags = [_ETAG.search(answer) for _, answer in answers]
    return [None if etag is None else etag[1].decode() for etag in etags]


def refusal(status: int, body: bytes) -> NoResponse | ErrorResponse:
    """Return the error that an answer stands for."""
    code, message = _code_and_message(body)
    if status in OPEN:
        return NoResponse(f"{status} {code}".rstrip())
    number = _NUMBER.match(message)
    return ErrorResponse(status, code, message.partition("\n")[0], None if number is None else int(number[1]))


def _code_and_message(body: bytes) -> Sequence[str]:
    try:
        error_body = msgspec.json.decode(body)["odata.error"]
        return str(error_body["code"]), str(error_body["message"]["value"])
    except (msgspec.DecodeError, KeyError, TypeError):
        code = _CODE.search(body)  # (who is refused at the door gets XML)
        return ("" if code is None else code[1].decode()), ""
