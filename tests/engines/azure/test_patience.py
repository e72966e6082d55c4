"""How long a call waits for a service that is slow, busy or not there: no longer than `timeout=`, by a clock of the test."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
import urllib3

import tablemapper as tm
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables import wire as wire_module
from tablemapper.engines.azure.tables.accounts import account_of
from tablemapper.engines.azure.tables.service import ErrorResponse, GetEntity, GroupTransaction, NoResponse
from tablemapper.engines.azure.tables.wire import Wire
from tablemapper.schema.model import compile_schema

from .memory import Memory

WAIT = 10.0


class Plain(tm.Entity, table="Plains"):
    id: tm.Field[str]
    text: tm.Field[str] = tm.field(default="")
    key = tm.Key[str](partition="{id}")


@attrs.define(eq=False)
class Slow:
    """A service and a clock: each answer takes its time, of which a client waits for some."""

    inner: Any = attrs.field(factory=Memory)
    now: float = 0.0
    answer: Callable[[Any], float | NoResponse] = lambda _: 0.0
    """For a request, the seconds that its answer takes; or what comes instead."""
    sent: list[Any] = attrs.field(factory=list)

    def send(self, request: Any, wait: float = WAIT) -> Any:
        self.sent.append(request)
        takes = self.answer(request)
        if isinstance(takes, NoResponse):
            raise takes
        self.now += min(takes, wait)
        if takes > wait:
            raise NoResponse("ReadTimeoutError")
        return self.inner.send(request)

    def close(self) -> None: ...

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def open(self, timeout: float) -> tm.Store:
        schema = compile_schema([Plain])
        return tm.Store(
            AzureEngine.open(self, "here", schema, timeout=timeout, monotonic=lambda: self.now, sleep=self.sleep)
        )


def busy(seconds: float | None, status: int = 503) -> NoResponse:
    return NoResponse(f"{status}", seconds, status)


CALLS: dict[str, Callable[[tm.Store], object]] = {
    "get": lambda store: store.get(Plain.key("a")),
    "query": lambda store: list(store.query(Plain).where(Plain.id == "a")),
    "insert": lambda store: store.insert(Plain("b")),
    "upsert": lambda store: store.upsert(Plain("a", "x")),
    "merge": lambda store: store.merge(Plain.key("a"), text="y"),
    "build": lambda store: store.freeze(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("timeout", [2.0, 10.0, 30.0])
def test_a_call_ends_when_its_time_is_over(call: str, timeout: float) -> None:
    refusals = iter([busy(None), busy(0.3)] * 1000)
    for answer in (
        lambda _: 1e9, lambda _: busy(8), lambda _: busy(3600), lambda _: busy(None), lambda _: NoResponse("cut"),
        lambda _: next(refusals),
    ):  # fmt: skip
        service = Slow()
        store = service.open(timeout)
        store.insert(Plain("a"))
        service.answer, began = answer, service.now
        with pytest.raises((tm.StoreError, tm.OutcomeUnknown)):
            CALLS[call](store)
        assert timeout / 2 - 1 <= service.now - began <= timeout + 0.01, service.sent


@pytest.mark.parametrize("call", ["get", "insert", "upsert", "merge"])
def test_a_call_goes_on_while_it_has_time(call: str) -> None:
    """A service that asks for more time than there is, and then answers; one that hangs once."""
    for takes in (busy(8), busy(3600), 1e9):
        service = Slow()
        store = service.open(2.0)
        store.insert(Plain("a"))
        first: list[Any] = [takes]
        service.answer, began = (lambda _: first.pop() if first else 0.0), service.now
        CALLS[call](store)
        assert service.now - began <= 2.0


def test_a_send_that_hangs_is_repeated_on_an_emulator() -> None:
    """Its writes end after ten seconds, which is for how long an answer is waited for at most."""
    service = Slow()
    store = service.open(10.0)
    first = [1e9]
    service.answer, count = (lambda _: first.pop() if first else 0.0), len(service.sent)
    store.insert(Plain("a"))
    assert len(service.sent) == count + 2


def test_a_catalogue_that_cannot_be_published_ends_the_opening() -> None:
    service = Slow(answer=lambda one: busy(8) if isinstance(one, GroupTransaction) else 0.0)
    with pytest.raises(tm.StoreError, match="does not answer"):
        service.open(2.0)
    assert service.now <= 4.01  # (the tables are made before that, and the time is asked for)


@pytest.mark.parametrize("way", ["hangs", "busy", "refused"])
def test_keys_are_read_while_the_catalogue_cannot_be_had(way: str, caplog: pytest.LogCaptureFixture) -> None:
    service = Slow()
    store = service.open(30.0)
    store.insert(Plain("a", "x"))

    def answer(request: Any) -> float | NoResponse:
        if getattr(request, "table", "") != "TableMapper":
            return 0.0
        if way == "refused":
            raise ErrorResponse(500, "OperationTimedOut")
        return 1e9 if way == "hangs" else busy(8)

    service.answer = answer
    service.now += 1_000
    began = service.now
    for _ in range(50):
        assert store[Plain.key("a")].text == "x"
    assert service.now - began <= 1.01
    assert caplog.text.count("the catalogue cannot be read") == 1
    service.now += 11
    assert store.get_many([Plain.key("a"), Plain.key("b")])
    assert service.now - began <= 13.02
    with pytest.raises(tm.StoreError):
        store.insert(Plain("b"))  # (what is written, and by which rules, is not to be guessed)
    service.answer = lambda _: 0.0
    store.insert(Plain("b"))


# ------------------------------------------------------------------------------------------ first contact


class Unreachable:
    """A pool of connections that makes none."""

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error

    def urlopen(self, *_: Any, **__: Any) -> Any:
        if self.error is not None:
            raise self.error
        return urllib3.HTTPResponse(b"{}", urllib3.HTTPHeaderDict(), 200, preload_content=True)

    def close(self) -> None: ...


UNTRUSTED = ssl.SSLCertVerificationError(1, "certificate verify failed")
UNTRUSTED.verify_message = "self-signed certificate"
FIRST = [
    (urllib3.exceptions.NewConnectionError(None, "refused"), "nobody listens there", 2.0),  # type: ignore[arg-type]
    (urllib3.exceptions.NameResolutionError("host", None, None), "there is no such host; look at the name", 2.0),  # type: ignore[arg-type]
    (urllib3.exceptions.SSLError(UNTRUSTED), "its certificate is not trusted: self-signed certificate", 0.0),
    (urllib3.exceptions.SSLError("EOF"), "SSLError", 30.0),
    (urllib3.exceptions.ProtocolError("cut"), "ProtocolError", 30.0),
]  # fmt: skip


@pytest.mark.parametrize(("error", "said", "seconds"), FIRST, ids=[said[:12] for _, said, _ in FIRST])
def test_a_service_that_was_never_reached_is_given_up_soon(error: Exception, said: str, seconds: float) -> None:
    connection = "AccountName=shop;AccountKey=c2VjcmV0"
    pool = Unreachable(error)
    service = Slow(Wire(account_of(connection), pool=pool))  # type: ignore[arg-type]
    with pytest.raises(tm.StoreError) as caught:
        service.open(30.0)
    assert f"https://shop.table.core.windows.net: {said}" in str(caught.value)
    assert seconds / 2 - 1 <= service.now <= min(seconds, 30.0) + 0.01
    pool.error = None
    service.inner.send(GetEntity("T", "", ""))  # (from then on it may be a disturbance)
    pool.error = error
    with pytest.raises(NoResponse) as lost:
        service.inner.send(GetEntity("T", "", ""))
    assert lost.value.patience > 30


def test_an_emulator_that_does_not_run_says_so() -> None:
    with pytest.raises(tm.StoreError, match="nobody listens there; start the emulator Azurite"):
        Slow(Wire(account_of("TableEndpoint=http://127.0.0.1:1/a;AccountKey=YQ=="))).open(0.3)


# ------------------------------------------------------------------------------------------ idle connections


@pytest.fixture
def connections() -> Iterator[tuple[int, list[object]]]:
    """A server that answers every request, and its connections."""
    made: list[object] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            made.append(self.client_address)
            super().setup()

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1], made
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_connection_that_was_idle_for_long_is_not_used_again(
    connections: tuple[int, list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, made = connections
    now = [0.0]
    monkeypatch.setattr(wire_module._Fresh, "monotonic", staticmethod(lambda: now[0]))
    wire = Wire(account_of(f"TableEndpoint=http://127.0.0.1:{port}/a;AccountKey=YQ=="))
    for now[0], count in ((0.0, 1), (59.0, 1), (118.0, 1), (179.0, 2), (180.0, 2)):
        wire.send(GetEntity("T", "", ""))
        assert len(made) == count, now
    wire.close()
