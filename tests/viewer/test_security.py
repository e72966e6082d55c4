"""What the inspector refuses, and what each of its answers carries: safe for who started it without reading this."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import tablemapper as tm
from tablemapper.planning.budget import BudgetMeter
from tablemapper.viewer import asgi as viewer
from tablemapper.viewer import security
from tablemapper.viewer.asgi import make_app
from tests.viewer.visits import links, visit

from ..sql import run_sql


class Note(tm.Entity, table="Notes"):
    folder: tm.Field[str]
    title: tm.Field[str]
    text: tm.Field[str | None] = tm.field(default=None)
    words: tm.Field[list[str]] = tm.field(factory=list)
    key = tm.Key[str, str](partition="{folder}", row="{title}")


TOKEN = "a-token-of-this-test"
PAGES = [
    "/", "/status", "/model", "/advice", "/class/Note", "/entities/Note", "/query/Note", "/partitions/Note",
    "/statistics/Note",
]  # fmt: skip
URLS = [*PAGES, "/export/Note.csv", "/export/Note.jsonl", "/static/inspector.css", "/nothing", "/entities/Note?size=0"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tm.Store]:
    with tm.open(tmp_path / "notes.db", models=[Note]) as store:
        store.insert(Note("f", "t"))
        yield store


def test_every_answer_has_the_headers(store: tm.Store) -> None:
    open_app, closed = tm.inspector(store), tm.inspector(store, token=TOKEN)
    answers = [visit(open_app, url) for url in URLS]
    answers += [visit(open_app, "/", method="POST"), visit(open_app, "/?" + "x" * 9_000), visit(closed, "/")]
    answers += [visit(closed, f"/?token={TOKEN}"), visit(make_app(lambda: store, hosts={"localhost:1"}), "/")]
    assert {one.status_code for one in answers} == {200, 303, 400, 403, 404, 405, 414, 421}
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert set(policy.split("; ")) == {
            "default-src 'none'", "style-src 'self'", "img-src 'self'", "form-action 'self'", "frame-ancestors 'none'",
            "base-uri 'none'",
        }  # fmt: skip
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"


def test_other_methods_are_refused(store: tm.Store) -> None:
    app = tm.inspector(store)
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
        for url in ("/", "/entities/Note", "/static/inspector.css", "/nothing"):
            answer = visit(app, url, method=method)
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD"), (method, url)


def test_head_is_answered(store: tm.Store) -> None:
    assert visit(tm.inspector(store), "/", method="HEAD").status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1:9", "localhost", "127.0.0.1.evil:8000", ""]
)
def test_a_foreign_host_is_refused(store: tm.Store, host: str) -> None:
    app = make_app(lambda: store, token=TOKEN, hosts=security.loopback_names(8000))
    answer = visit(app, f"/?token={TOKEN}", headers={"Host": host})
    assert answer.status_code == 421
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000", "[::1]:8000"])
def test_the_names_of_this_machine_are_answered(store: tm.Store, host: str) -> None:
    app = make_app(lambda: store, hosts=security.loopback_names(8000))
    assert visit(app, "/", headers={"Host": host}).status_code == 200


def test_a_mounted_inspector_answers_any_host(store: tm.Store) -> None:
    assert visit(tm.inspector(store), "/", headers={"Host": "shop.example"}).status_code == 200


@pytest.mark.parametrize(
    ("url", "cookie"),
    [
        ("/", None), ("/?token=wrong", None), ("/?token=", None), ("/entities/Note", None), ("/static/inspector.css", None),
        ("/", "tablemapper_8000=wrong"), ("/", "tablemapper_8001=" + TOKEN), ("/", "tablemapper_8000"),
        (f"/?token=wrong&token={TOKEN}", None), ("/?token=wrong", "tablemapper_8000=" + TOKEN), ("/?token=%ff", None),
    ],
)  # fmt: skip
def test_without_the_token_nothing_is_told(store: tm.Store, url: str, cookie: str | None) -> None:
    answer = visit(
        tm.inspector(store, token=TOKEN, title="notes.db"), url, headers={"Cookie": cookie} if cookie else {}
    )
    assert (answer.status_code, answer.text) == (403, "forbidden")
    assert "set-cookie" not in answer.headers


def test_the_token_becomes_a_cookie_and_leaves_the_url(store: tm.Store) -> None:
    app = tm.inspector(store, token=TOKEN)
    first = visit(app, f"/entities/Note?size=5&token={TOKEN}&partition=f%26g")
    assert (first.status_code, first.headers["location"]) == (303, "/entities/Note?size=5&partition=f%26g")
    cookie, *rest = re.split(r"; ?", first.headers["set-cookie"])
    assert cookie == f"tablemapper_8000={TOKEN}"
    assert {one.lower() for one in rest} == {"httponly", "samesite=strict", "path=/"}
    page = visit(app, first.headers["location"], headers={"Cookie": f"other=1; {cookie}"})
    assert page.status_code == 200
    assert TOKEN not in page.text


def test_the_cookie_is_for_the_port(store: tm.Store) -> None:
    first = visit(tm.inspector(store, token=TOKEN), f"/?token={TOKEN}", base="http://127.0.0.1:9001")
    assert first.headers["set-cookie"].startswith(f"tablemapper_9001={TOKEN};")


def test_the_cookie_is_for_the_place_of_the_mount(store: tm.Store) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    outer = Starlette(routes=[Mount("/a/b", tm.inspector(store, token=TOKEN))])
    answer = visit(outer, f"/a/b/status?token={TOKEN}")
    assert answer.headers["location"] == "/a/b/status"
    assert "path=/a/b" in answer.headers["set-cookie"].lower().split("; ")


def test_the_way_back_stays_on_this_host(store: tm.Store) -> None:
    answer = visit(tm.inspector(store, token=TOKEN), f"http://127.0.0.1:8000//evil.example/x?token={TOKEN}")
    assert answer.headers["location"] == "/evil.example/x"


def test_tokens_are_compared_in_constant_time(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr(security.hmac, "compare_digest", compare)
    app = tm.inspector(store, token=TOKEN)
    assert visit(app, f"/?token={TOKEN}").status_code == 403
    assert visit(app, "/", headers={"Cookie": f"tablemapper_8000={TOKEN}"}).status_code == 403
    assert compared == [(TOKEN.encode(), TOKEN.encode())] * 2


def test_the_token_is_in_no_repr(store: tm.Store) -> None:
    assert TOKEN not in repr(tm.inspector(store, token=TOKEN))


def test_a_long_url_is_refused(store: tm.Store) -> None:
    app = tm.inspector(store)
    assert visit(app, "/entities/Note?partition=" + "x" * 8_000).status_code == 200
    for url in ("/entities/Note?partition=" + "x" * 8_200, "/" + "x" * 8_200, "/" + "%61" * 2_800):
        assert visit(app, url).status_code == 414


def test_a_websocket_is_closed(store: tm.Store) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(tm.inspector(store)({"type": "websocket", "path": "/"}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (RuntimeError("secret in /home/x"), 500, "internal error"),
        (
            tm.CorruptStore("/home/some one/notes.db: a page is damaged"),
            500,
            "CorruptStore: notes.db: a page is damaged",
        ),
        (tm.StoreLocked("/home/x/notes.db: another process has it"), 503, "StoreLocked: notes.db: another process"),
        (tm.QueryStopped("it took too long"), 503, "QueryStopped: it took too long"),
    ],
)
def test_an_error_says_no_more_than_it_may(
    store: tm.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, code: int, text: str
) -> None:  # fmt: skip
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(tm.Store, "status", fail)
    for end in ("", "?format=json"):
        answer = visit(tm.inspector(store), f"/status{end}")
        assert answer.status_code == code
        assert text in answer.text
        assert "/home" not in answer.text
        assert "Traceback" not in answer.text
        assert answer.headers.get("refresh") == ("2" if isinstance(error, tm.StoreLocked) else None)
    told = [one.levelno for one in caplog.records if one.name == "tablemapper.viewer"]
    assert told == ([logging.ERROR] * 2 if isinstance(error, RuntimeError) else [])


def test_four_questions_run_at_a_time_and_others_are_told(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    patience = viewer._WAIT
    monkeypatch.setattr(viewer, "_WAIT", 0.01)
    running, free = threading.Semaphore(0), threading.Event()
    most, status = [0], tm.Store.status

    def slow(self: tm.Store) -> tm.reports.Status:
        most[0] += 1
        running.release()
        free.wait(60)
        return status(self)

    monkeypatch.setattr(tm.Store, "status", slow)

    assert patience == 5.0
    refused, *answered = asyncio.run(_crowd(store, "/status", running, free))
    assert (refused.status_code, "busy" in refused.text) == (503, True)
    assert [one.status_code for one in answered] == [200] * 5
    assert most == [5]


async def _crowd(
    store: tm.Store, url: str, running: threading.Semaphore, free: threading.Event
) -> list[httpx.Response]:
    """Ask for a page beside four that run, then let those end; return the answers to it, to them and to one after them."""
    transport = httpx.ASGITransport(app=tm.inspector(store))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        first = [asyncio.create_task(client.get(url)) for _ in range(4)]
        for _ in first:
            await asyncio.to_thread(running.acquire)
        refused = await client.get("/status")
        free.set()
        return [refused, *await asyncio.gather(*first), await client.get("/status")]


class _Paused:
    """A client that asks for a file, reads its first part, and no more until it may."""

    def __init__(self, app: Any, url: str) -> None:
        self.reads, self.body, self._begun = asyncio.Event(), b"", asyncio.Event()
        self._answer = asyncio.create_task(app(scope_of(url), self._receive, self._send))

    async def _receive(self) -> Any:
        await asyncio.Event().wait()

    async def _send(self, message: Any) -> None:
        self.body += message.get("body", b"")
        if self.body:
            self._begun.set()
            await self.reads.wait()

    async def begun(self) -> None:
        await asyncio.wait_for(self._begun.wait(), 60)

    async def ended(self) -> None:
        await asyncio.wait_for(self._answer, 60)


def _is_free(path: Path) -> bool:
    """Return whether nothing reads an older state of a file: its log can be moved into it."""
    return run_sql(path, "PRAGMA wal_checkpoint(TRUNCATE)")[0][0] == 0


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
async def test_a_download_that_pauses_keeps_nobody_waiting_and_no_old_state(
    store: tm.Store, tmp_path: Path, kind: str
) -> None:
    store.insert_many(Note("g", f"{number:04}") for number in range(2_000))
    app = tm.inspector(store)
    clients = [_Paused(app, f"/export/Note.{kind}") for _ in range(8)]  # more than may ask at the same time
    for client in clients:
        await client.begun()
    store.insert_many(Note("h", f"{number:04}") for number in range(2_000))
    assert await asyncio.to_thread(_is_free, tmp_path / "notes.db")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x") as client:
        assert (await client.get("/status")).status_code == 200
    for each in clients:
        each.reads.set()
        await each.ended()
        titles = re.findall(r"(?:g,|\"title\":\")(\d{4})", each.body.decode())
        assert titles[:2_000] == [f"{number:04}" for number in range(2_000)]


async def test_a_download_that_nobody_reads_ends(
    store: tm.Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(viewer, "_UNREAD", 0.01)
    store.insert_many(Note("g", f"{number:04}") for number in range(2_000))
    client = _Paused(tm.inspector(store), "/export/Note.jsonl")
    await client.ended()
    assert 0 < client.body.count(b"\n") < 2_000
    assert await asyncio.to_thread(_is_free, tmp_path / "notes.db")


async def test_of_a_file_only_the_headers_are_asked_for_with_head(store: tm.Store) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    await tm.inspector(store)(scope_of("/export/Note.csv") | {"method": "HEAD"}, receive, send)
    assert [message.get("body") for message in sent] == [None, b""]


def test_a_question_has_a_budget(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    budget = tm.Query.budget

    def noted(self: Any, **limits: Any) -> Any:
        given.append(limits)
        return budget(self, **limits)

    monkeypatch.setattr(tm.Query, "budget", noted)
    for url, limits in (
        ("/entities/Note", {"timeout": 2.0, "examined": 100_000}),
        ("/", {"timeout": 0.5, "examined": 100_000}),
        ("/query/Note", {"timeout": 2.0, "examined": 100_000}),
        ("/export/Note.csv", {"timeout": 60.0, "examined": 100_000}),
    ):
        given.clear()
        assert visit(tm.inspector(store), url).status_code == 200
        assert given[:1] == [limits], url


def scope_of(url: str) -> dict[str, Any]:
    """Return what a server gives an application with a request."""
    path, _, query = url.partition("?")
    names = {"path": path, "raw_path": path.encode(), "query_string": query.encode()}
    return {"type": "http", "method": "GET", "headers": [], "asgi": {"version": "3.0"}, **names}


@pytest.mark.parametrize("url", ["/query/Note?where=text==x&scan=1", "/export/Note.csv?where=text==x&scan=1"])
async def test_a_client_that_leaves_ends_its_question(
    store: tm.Store, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    store.insert_many(Note("g", str(number), "y") for number in range(5_000))
    monkeypatch.setattr("tablemapper.viewer.query_page.SECONDS", 60.0)
    examined, asking, real = [0], asyncio.Event(), BudgetMeter.check_time

    def check(self: BudgetMeter, *given: object) -> bool:
        examined[0] += 1
        if examined[0] == 10:
            loop.call_soon_threadsafe(asking.set)
            until = time.monotonic() + 5
            while time.monotonic() < until:  # until it ends, which takes the loop a moment
                time.sleep(0.005)
                real(self, *given)
        return real(self, *given)

    monkeypatch.setattr(BudgetMeter, "check_time", check)
    asked: list[Any] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        if asked:
            return asked.pop()
        await asking.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None: ...

    loop = asyncio.get_running_loop()
    await tm.inspector(store)(scope_of(url), receive, send)
    assert 10 <= examined[0] < 30


async def test_a_client_that_leaves_ends_what_reads_much(store: tm.Store) -> None:
    store.insert_many(Note(f"f{number}", "t") for number in range(1_000))
    for url in ("/statistics/Note", "/advice"):
        messages: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def send(message: Any, sent: list[Any] = messages) -> None:
            sent.append(message)

        await tm.inspector(store)(scope_of(url), receive, send)
        assert b"nobody waits for the answer any more" in messages[-1]["body"]


# ------------------------------------------------------------------------------------------------------------- hostile

HOSTILE = [
    "<script>alert(1)</script>", '"><svg onload=alert(1)>', "'><img src=x onerror=alert(1)>", "javascript:alert(1)", "{{7*7}}",
    "{% for x in y %}", "</title><script>", "<!--", "]]>", "&lt;b&gt;", "a\0b", "‮evil", "\u2028", "//evil.example", "%00",
    "\r\nSet-Cookie: x=1", "x" * 65, "' onmouseover='x", "<style>*{}</style>", "&#60;script&#62;",
]  # fmt: skip
_PARTS = [
    *HOSTILE, "<", ">", '"', "'", "&", "/", "\\", "=", " onload=", "-->",
    "{{",
    "}}",
    "{#",
    "data:", "\n", "\u202e", "\ud7ff", "é", "­", ";",
]  # fmt: skip
MANY = [*HOSTILE, *("".join(random.Random(seed).choices(_PARTS, k=3)) for seed in range(180))]
"""200 texts."""
_TAGS = """html head meta title link body header strong a nav small main h1 h2 h3 dl div dt dd table thead tbody tr th td span p form
label input button fieldset legend time pre br section details summary select option svg g rect path circle text tspan"""
_ATTRIBUTES = """lang charset name content rel href class id scope aria-[a-z]+ for value datetime colspan tabindex method action type role viewBox
preserveAspectRatio width height x y cx cy r rx d dx transform font-weight"""
_ALLOWED = re.compile(
    rf'</?(?:{"|".join(_TAGS.split())})(?: (?:(?:{"|".join(_ATTRIBUTES.split())})="[^"<>]*"|selected|checked|open))*/?>'
)


def harmless(page: httpx.Response) -> None:
    """Fail if a page holds a tag or an attribute that the templates do not write, or a link that leaves it."""
    body = page.text.removeprefix("<!doctype html>")
    assert "<" not in _ALLOWED.sub("", body), _ALLOWED.sub("", body)
    for link in links(page):
        assert link.startswith(("/", "?"))
        assert not link.startswith("//")
    assert "\0" not in page.text
    assert ">49<" not in page.text


@pytest.mark.long
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_value_is_text_on_every_page(tmp_path: Path, text: str, full_size: bool) -> None:
    with tm.open(tmp_path / "notes.db", models=[Note]) as store:
        store.insert(Note(text, text, text, [text, text]))
        store.insert(Note("f", "long", text * (64 * 1024 // len(text) // 8)))
        app = tm.inspector(store, title=text)
        first = visit(app, "/entities/Note")
        found = [one for one in links(first) if one.startswith("/entity/Note?")]
        assert len(found) == 2
        urls = [*found, *PAGES, "/entities/Note?size=1"]
        word = str(httpx.QueryParams({"x": text})).removeprefix("x=")
        urls += [f"/entities/Note?{name}={word}" for name in ("partition", "size", "after", "format", "x")]
        urls += [
            f"/query/Note?{name}={word}"
            for name in (
                "where", "order", "limit", "scan", "add", "x", "where=text==", "show", "facet", "group", "total",
                "of",
            )
        ]  # fmt: skip
        urls += [f"/query/Note?{name}={word}" for name in ("partition", "top", "after", "total=sum&of", "sort")]
        urls += [
            "/query/Note?facet=text&facet=words",
            "/query/Note?group=folder,text&top=1",
            "/query/Note?total=max&of=text",
        ]
        urls += [
            f"/query/Note?field={word}&op={word}&value={word}",
            f"/query/Note?field=text&op===&value={word}&scan=1",
        ]
        urls += [
            f"/class/{word}", f"/entities/{word}", f"/entity/Note?p={word}&r={word}", f"/entity/Note?p={word}",
            f"/entity/Note?key={word}", f"/entity/Note?key={word}&key={word}", f"/{word}",
        ]  # fmt: skip
        # Each page meets each third text, and each text each third page.
        for url in urls if full_size else urls[HOSTILE.index(text) % 3 :: 3]:
            page = visit(app, url)
            assert page.status_code in (200, 400, 404), url
            harmless(page)
            assert "x=1" not in page.headers.get("set-cookie", "")


def test_many_hostile_values_are_text_side_by_side(tmp_path: Path) -> None:
    assert len(set(MANY)) == 200
    with tm.open(tmp_path / "notes.db", models=[Note]) as store:
        store.insert_many(Note(text[:60], f"n{at}", text * 50, [text, text]) for at, text in enumerate(MANY))
        app = tm.inspector(store)
        listed = visit(app, "/entities/Note?size=200")
        found = [one for one in links(listed) if one.startswith("/entity/Note?")]
        assert len(found) == 200
        asked = (
            "limit=200",
            "facet=folder&facet=text&facet=words",
            "group=folder,text",
            "group=text&total=count&top=1",
        )
        urls = [*found, "/entities/Note?size=200", "/partitions/Note", "/statistics/Note"]
        for url in (*urls, *(f"/query/Note?{question}" for question in asked)):
            page = visit(app, url)
            assert page.status_code == 200, url
            harmless(page)


@pytest.mark.long
def test_hostile_names_of_a_foreign_catalogue_are_text(
    store: tm.Store, monkeypatch: pytest.MonkeyPatch, full_size: bool
) -> None:
    for text in (*(MANY if full_size else MANY[:30]), "N" * 255):
        monkeypatch.setattr(tm.Store, "classes", {text: Note})
        app = tm.inspector(store)
        found = links(visit(app, "/"))
        assert [one for one in found if one.startswith("/class/")]
        often = found if text in HOSTILE else found[:1]
        for url in {one for one in often if not one.startswith("?")} | {"/?format=json"}:
            page = visit(app, url)
            assert page.status_code == 200 or "\n" in text, url
            if page.headers["content-type"].startswith("text/html"):
                harmless(page)


def test_no_page_has_a_script_or_a_style_of_its_own() -> None:
    for path in (Path(viewer.__file__).parent / "templates").iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<script|<style|style=|\son\w+=|\|\s*safe|autoescape|javascript:|https?:", text), path
