"""A proxy before a Table service, that does what networks and busy services do: says 503, loses answers and requests,
is cut off for a while, or takes its time."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import attrs

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
        self._draw = random.Random(seed)
        self._lock = threading.Lock()
        self._local = threading.local()

    def fault(self) -> str:
        """Say what goes wrong with the next request, "" if nothing does."""
        with self._lock:
            self.requests += 1
            drawn = self._draw.random()
        if self.faults.cut:
            return "lost"
        for name, share in (
            ("busy", self.faults.busy),
            ("lost", self.faults.lost_requests),
            ("answer", self.faults.lost_answers),
        ):
            if drawn < share:
                return name
            drawn -= share
        return ""

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
        fault = here.fault()
        if fault == "busy":
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if fault != "lost":
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _KEPT}
            status, answered, content = here.hand_on(self.command, self.path, body, headers)
        if fault or here.faults.cut:
            self.close_connection = True
            return
        self.send_response_only(status)
        for name, value in answered:
            if name.lower() not in _KEPT:
                self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

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
