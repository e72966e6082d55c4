"""A proxy before a Table service, that does what networks and busy services do: says 503, loses answers and requests,
is cut off for a while, executes requests late or twice, cuts answers, or takes its time."""

from __future__ import annotations

import http.client
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import attrs

_EMPTY = b'{"odata.metadata":"","value":[]}'
_KEPT = {"connection", "transfer-encoding", "keep-alive", "content-length"}  # headers of one hop


@attrs.define
class Faults:
    """How often what goes wrong; changed while the proxy runs."""

    busy: float = 0.0
    """Requests that are answered 503 and not executed."""
    lost_requests: float = 0.0
    """Requests that do not come through."""
    lost_answers: float = 0.0
    """Requests that are executed, though nobody learns of it."""
    cut_answers: float = 0.0
    """Answers of which half the body comes."""
    late: float = 0.0
    """Writes that are executed up to `late_by` seconds after their sender was cut off."""
    late_by: float = 0.8
    doubled: float = 0.0
    """Writes that are executed twice."""
    empty: float = 0.0
    """Queries that are answered by a page without entities, behind which the others are."""
    wait: float = 0.0
    """Seconds that each request takes more."""
    cut: bool = False
    """Whether nothing comes through at all."""


class Proxy(ThreadingHTTPServer):
    """Hands requests on to a service on another port of this machine."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, to: int, faults: Faults, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.to = to
        self.faults = faults
        self.requests = 0
        self.counts = Counter[str]()
        self._draw = random.Random(seed)
        self._lock = threading.Lock()
        self._asked: dict[str, str] = {}
        """The queries that were answered by an empty page, by what stands for them."""
        self._local = threading.local()

    def fault(self, method: str, path: str) -> str:
        """Say what goes wrong with the next request, "" if nothing does."""
        with self._lock:
            self.requests += 1
            drawn = self._draw.random()
        faults, writes = self.faults, method != "GET"
        if faults.cut:
            return "lost"
        for name, share in (
            ("busy", faults.busy),
            ("lost", faults.lost_requests),
            ("answer", faults.lost_answers),
            ("half", faults.cut_answers),
            ("late", faults.late if writes else 0.0),
            ("doubled", faults.doubled if writes else 0.0),
            ("empty", faults.empty if "()" in path and not writes else 0.0),
        ):
            if drawn < share:
                self.counts[name] += 1
                return name
            drawn -= share
        return ""

    def emptied(self, path: str) -> str:
        """Return what stands for a query whose answer is a page without entities."""
        with self._lock:
            name = f"proxy{len(self._asked)}"
            self._asked[name] = path
        return name

    def asked(self, path: str) -> str:
        """Return a path as the service is to be asked."""
        name = re.search(r"NextPartitionKey=(proxy\d+)", path)
        return path if name is None else self._asked[name[1]]

    def later(self, *request: Any) -> None:
        """Hand a request on some time later, when nobody waits for the answer."""

        def send() -> None:
            with suppress(OSError):
                self.hand_on(*request)
            self.leave()

        with self._lock:
            seconds = self.faults.late_by * self._draw.random()
        timer = threading.Timer(seconds, send)
        timer.daemon = True
        timer.start()

    def hand_on(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any, bytes]:
        """Return status, headers and body of the service's answer."""
        for attempt in range(2):
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = http.client.HTTPConnection("127.0.0.1", self.to, timeout=30)
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            except http.client.RemoteDisconnected:  # it was idle for too long; nothing was executed
                connection.close()
                if attempt:
                    raise
        raise AssertionError

    def leave(self) -> None:
        """Close the connection of this thread."""
        if connection := getattr(self._local, "connection", None):
            connection.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients are killed here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def _answer(self) -> None:
        here = cast(Proxy, self.server)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if here.faults.wait:
            time.sleep(here.faults.wait)
        fault, path = here.fault(self.command, self.path), here.asked(self.path)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _KEPT}
        if fault == "busy":
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if (
            fault == "empty" and here.hand_on(self.command, path, body, headers)[0] == 200
        ):  # (not of a table that is not there)
            self.send_response_only(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("x-ms-continuation-NextPartitionKey", here.emptied(path))
            self.send_header("Content-Length", str(len(_EMPTY)))
            self.end_headers()
            self.wfile.write(_EMPTY)
            return
        if fault == "late":
            here.later(self.command, path, body, headers)
        elif fault != "lost":
            status, answered, content = here.hand_on(self.command, path, body, headers)
            if fault == "doubled":
                here.hand_on(self.command, path, body, headers)
        if fault in ("lost", "answer", "late") or here.faults.cut:
            self.close_connection = True
            return
        self.send_response_only(status)
        for name, value in answered:
            if name.lower() not in _KEPT:
                self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = fault == "half" and bool(content)
        self.wfile.write(content[: len(content) // 2] if half else content)
        self.close_connection |= half

    def finish(self) -> None:
        super().finish()
        cast(Proxy, self.server).leave()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_MERGE = _answer

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def proxy(to: int, faults: Faults | None = None, seed: int = 1) -> Iterator[Proxy]:
    """Run a proxy before the service on a port of this machine."""
    server = Proxy(to, faults or Faults(), seed)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
