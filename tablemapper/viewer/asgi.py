"""The pages as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import (
    InvalidEntity,
    InvalidQuery,
    InvalidToken,
    NotReady,
    QueryStopped,
    SchemaMismatch,
    StoreLocked,
    TableMapperError,
)
from ..guidance.workload import Workload
from ..store.store import Store
from .cells import visible
from .query_page import export, question
from .security import DisconnectGuard, Guard
from .store_pages import TimedCache, advice, model, partitions, picture, statistics
from .views import PAGES, NotFound, PageRequest, PageResponse, public_text

_FOLDER = Path(__file__).parent
_LARGEST = 2 * 1024 * 1024  # bytes of a page
_AT_A_TIME, _WAIT = 4, 5.0  # questions, and seconds that another one waits
_UNREAD = 60.0  # seconds for which a client may leave a part of a file unread
_log = logging.getLogger("tablemapper.viewer")
_encoder = msgspec.json.Encoder(enc_hook=str)


_OTHER_PAGES = {
    "/model": model,
    "/advice": advice,
    "/query/{name:path}": question,
    "/partitions/{name:path}": partitions,
    "/statistics/{name:path}": statistics,
}
_STATIC = {"inspector.css": "text/css", "icon.svg": "image/svg+xml"}
_FILES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}


def make_app(
    store: Callable[[], Store],
    *,
    token: str | None = None,
    title: str = "",
    workload: Workload | None = None,
    hosts: Collection[str] | None = None,
    notes: Callable[[], Mapping[str, str]] = dict,
) -> ASGIApp:
    """Return the application, behind its guard.

    Args:
        store: returns the store that a page shows.
        token, title, workload: as for `tablemapper.inspector`.
        hosts: the names in ``Host`` that are answered; None: all.
        notes: returns what is said of classes on their pages, by name: what their models have and the store lacks.
    """
    site = _Site(store, title or "store", workload, notes)
    routes = [Route(path, site.endpoint(make)) for path, make in {**PAGES, **_OTHER_PAGES}.items()]
    routes += [Route(f"/export/{{name:path}}.{kind}", site.file(kind)) for kind in _FILES]
    routes += [Route(f"/static/{name}", _static(name, kind)) for name, kind in _STATIC.items()]
    pages = Starlette(routes=routes, exception_handlers={HTTPException: site.unknown})
    return Guard(DisconnectGuard(pages), token, hosts)


def _static(name: str, kind: str) -> Callable[[Request], Any]:
    async def static(_: Request) -> Response:
        return Response((_FOLDER / "static" / name).read_bytes(), media_type=kind)

    return static


class _Download(Response):
    """A file that is made while it is sent.

    The next part is made once the client took the one before. While it does not, nothing of the store is held, and
    nobody else has to wait.

    Args:
        parts: makes a part each time it is asked.
        turns: what may read the store at the same time.
    """

    def __init__(self, parts: Iterator[str], turns: asyncio.Semaphore, kind: str, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers, media_type=kind)
        del self.headers["content-length"]
        self._parts, self._turns = parts, turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with suppress(TimeoutError):  # (then the server closes the connection: the file is not whole)
            while scope["method"] != "HEAD" and (part := await self._next()):
                async with asyncio.timeout(_UNREAD):
                    await send(
                        {"type": "http.response.body", "body": part.encode("utf-8", "replace"), "more_body": True}
                    )
            await send({"type": "http.response.body", "body": b""})

    async def _next(self) -> str:
        async with self._turns:
            return await run_in_threadpool(next, self._parts, "")


class _Site:
    """The pages of one store."""

    def __init__(
        self,
        store: Callable[[], Store],
        title: str,
        workload: Workload | None,
        notes: Callable[[], Mapping[str, str]],
    ) -> None:
        self._store, self._title, self._workload, self._notes = store, title, workload, notes
        self._cache = TimedCache()
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._templates = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.filters |= {"number": lambda value: f"{value:,}", "visible": visible}

    def endpoint(self, make: Callable[[PageRequest], PageResponse]) -> Callable[[Request], Any]:
        """Return the endpoint of a page."""
        return self._in_turn(lambda request: self._answer(request, lambda: self._page(request, make)))

    def file(self, kind: str) -> Callable[[Request], Any]:
        """Return the endpoint of a file."""

        def streamed(request: Request) -> Response:
            parts, limit = export(self._ask(request), kind)
            headers = {"X-Limit": str(limit), "Content-Disposition": f'attachment; filename="rows.{kind}"'}
            return _Download(parts, self._turns, _FILES[kind], headers)

        return self._in_turn(lambda request: self._answer(request, lambda: streamed(request)))

    def _in_turn(self, answer: Callable[[Request], Response]) -> Callable[[Request], Any]:
        async def page(request: Request) -> Response:
            try:
                async with asyncio.timeout(_WAIT):
                    await self._turns.acquire()
            except TimeoutError:
                return self._fault(request, 503, "busy: other questions are being answered; load this page again")
            try:
                return await run_in_threadpool(answer, request)
            finally:
                self._turns.release()

        return page

    async def unknown(self, request: Request, error: Exception) -> Response:
        """Answer a path that leads nowhere."""
        code = error.status_code if isinstance(error, HTTPException) else 404
        return self._fault(request, code, "there is no such page")

    def _answer(self, request: Request, make: Callable[[], Response]) -> Response:
        try:
            return make()
        except NotFound as error:
            return self._fault(request, 404, str(error), partition=error.partition)
        except TableMapperError as error:
            waits = isinstance(error, StoreLocked | NotReady)
            code = 400 if isinstance(error, InvalidQuery) else 503 if waits or isinstance(error, QueryStopped) else 500
            return self._fault(request, code, public_text(error), moving=waits, first=isinstance(error, InvalidToken))
        except Exception:
            _log.exception("a page could not be made")
            return self._fault(request, 500, "internal error")

    def _ask(self, request: Request, shrink: int = 1) -> PageRequest:
        params, name = request.query_params, request.path_params.get("name", "")
        return PageRequest(self._store(), params, name, params.multi_items(), self._cache, shrink, self._workload)

    def _page(self, request: Request, make: Callable[[PageRequest], PageResponse]) -> Response:
        shrink = 1
        while True:  # a page that is too large is made again with less on it
            ask = self._ask(request, shrink)
            try:
                answer = make(ask)
            except (InvalidEntity, SchemaMismatch):  # another page took over new classes meanwhile
                ask = self._ask(request, shrink)
                answer = make(ask)
            if request.query_params.get("format") == "json":
                body, kind = _encoder.encode(self._common(ask) | dict(answer.json)), "application/json"
            else:
                shows = self._common(ask) | dict(answer.shows) | {"name": ask.name}
                shows |= {"read": answer.read or self._cache.now(), "fresh": None if answer.read is None else "1"}
                shows["picture"] = partial(_drawn, ask)
                body, kind = self._render(request, answer.template, shows), "text/html"
            if len(body) <= _LARGEST or shrink > 1_000:
                return Response(body, answer.code, media_type=kind, headers=_refresh(moving=answer.moving))
            shrink *= 4

    def _common(self, ask: PageRequest) -> dict[str, Any]:
        """Return the values for every page; those that only the models have, of its class or of all."""
        notes = self._notes()
        differences = {name: text for name, text in notes.items() if ask.name in ("", name)}
        return {"title": self._title} | ({"differs": differences} if differences else {})

    def _fault(self, request: Request, code: int, text: str, *, moving: bool = False, **onward: Any) -> Response:
        """Answer with what is wrong, and with what leads on: the first page (``first``), or a ``partition``."""
        if request.query_params.get("format") == "json":
            body, kind = _encoder.encode({"error": text}), "application/json"
        else:
            shows = {"first": False, "partition": None, "of": request.path_params.get("name", ""), **onward}
            shows |= {"code": code, "text": text, "name": "", "read": None}
            body, kind = self._render(request, "fault.html", shows), "text/html"
        return Response(body, code, media_type=kind, headers=_refresh(moving=moving))

    def _render(self, request: Request, template: str, shows: dict[str, Any]) -> bytes:
        root = quote(request.scope.get("root_path", "").rstrip("/"))

        def url(page: str = "", name: str = "", **params: Any) -> str:
            path = "/".join([root, *filter(None, [page, quote(name, safe="")])]) if page else f"{root}/"
            encoded = urlencode({key: value for key, value in params.items() if value is not None}, doseq=True)
            return f"{path}?{encoded}" if encoded else path

        def changed(plus: Iterable[tuple[str, str]] = (), **changes: Any) -> str:
            """Return the parameters of this page, with others instead of some, or beside them."""
            replaced = {"format", "add", "fresh", *changes}
            pairs = [pair for pair in request.query_params.multi_items() if pair[0] not in replaced]
            new_pairs = [(key, value) for key, value in changes.items() if value is not None]
            return "?" + urlencode([*pairs, *plus, *new_pairs])

        def question(page: str, end: str = "", where: Iterable[str] = (), **changes: Any) -> str:
            """Return the URL of the same query on another page, with further conditions or changed parameters."""
            name = quote(request.path_params.get("name", ""), safe="")
            return f"{root}/{page}/{name}{end}{changed([('where', text) for text in where], after=None, **changes)}"

        shows |= {"url": url, "changed": changed, "question": question, "title": self._title}
        text = self._templates.get_template(template).render(shows, page=template.removesuffix(".html"))
        return text.replace("\0", "␀").encode("utf-8", "replace")


def _drawn(ask: PageRequest) -> Markup:
    return Markup(picture(ask)[0])  # (of which each text is escaped)


def _refresh(*, moving: bool) -> dict[str, str]:
    return {"Refresh": "2"} if moving else {}
