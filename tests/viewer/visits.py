"""Requests to an ASGI application, without a server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import httpx


def visit(
    app: Any,
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    base: str = "http://127.0.0.1:8000",
) -> httpx.Response:
    """Return the answer of an application to one request; redirects are not followed."""

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            return await client.request(method, url, headers=headers)

    return asyncio.run(asked())


def links(page: httpx.Response) -> list[str]:
    """Return where a page leads to."""
    return [one.replace("&amp;", "&") for one in re.findall(r'(?:href|action|src)="([^"]*)"', page.text)]
