"""Request guards, and the headers that every response carries."""

from __future__ import annotations

import asyncio
import hmac
import threading
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote, urlencode

import attrs
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import QueryStopped
from ..progress import cancelling

LONGEST = 8 * 1024  # bytes of a path and its parameters
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def loopback_names(port: int) -> frozenset[str]:
    """Return the ``Host`` headers of browsers on this machine; a foreign name that leads here is none of them."""
    return frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))


@attrs.frozen
class Guard:
    """Lets through to an application what may see a store.

    Args:
        token: what a visitor has to bring once; None asks for nothing.
        hosts: the names in ``Host`` that are answered; None answers all.
    """

    app: ASGIApp
    token: str | None = attrs.field(default=None, repr=False)
    hosts: Collection[str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._answer(scope) if scope["type"] == "http" else None
        await (answer or self.app)(scope, receive, guarded)

    def _answer(self, scope: Scope) -> Response | None:
        """Return the answer to what does not reach the application."""
        headers = Headers(scope=scope)
        if self.hosts is not None and headers.get("host", "").lower() not in self.hosts:
            return PlainTextResponse("misdirected request", 421)
        if len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"]) > LONGEST:
            return PlainTextResponse("the URL is too long", 414)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("only GET and HEAD are answered", 405, {"Allow": "GET, HEAD"})
        return None if self.token is None else self._visitor(scope, headers, self.token)

    def _visitor(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        port = (scope.get("server") or ("", 0))[1]
        name = f"tablemapper_{port}"
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        presented = next((value for key, value in query if key == "token"), None)
        if presented is None:
            return None if _same(_cookie(headers, name), token) else PlainTextResponse("forbidden", 403)
        if not _same(presented, token):
            return PlainTextResponse("forbidden", 403)
        remaining = urlencode([(key, value) for key, value in query if key != "token"])
        target = "/" + quote(scope["path"].lstrip("/"))  # (two slashes would be a host)
        answer = RedirectResponse(f"{target}?{remaining}" if remaining else target, 303)
        path = quote(scope.get("root_path", "")) or "/"
        answer.set_cookie(name, token, path=path, httponly=True, samesite="strict")
        return answer


@attrs.frozen
class DisconnectGuard:
    """Ends what is done for a client that has left."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        messages = asyncio.Queue[Message]()
        has_left = threading.Event()

        async def listen() -> None:
            while not has_left.is_set():
                message = await receive()
                if message["type"] == "http.disconnect":
                    has_left.set()
                messages.put_nowait(message)

        def check() -> None:
            if has_left.is_set():
                raise QueryStopped("nobody waits for the answer any more")

        listening = asyncio.create_task(listen())
        token = cancelling.set(check)
        try:
            await self.app(scope, messages.get, send)
        finally:
            cancelling.reset(token)
            listening.cancel()


def _cookie(headers: Headers, name: str) -> str:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value


def _same(left: str, right: str) -> bool:
    return hmac.compare_digest(left.encode("utf-8", "replace"), right.encode("utf-8", "replace"))
