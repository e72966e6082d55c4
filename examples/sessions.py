"""Sessions over HTTP that end an hour after the last write: FastAPI, partial bodies, and entities that expire.

    POST   /sessions          a new session, with a token that nobody guesses
    GET    /sessions/{token}  the session, or 404 once it has ended
    PATCH  /sessions/{token}  some fields of it; each write prolongs it
    DELETE /sessions/{token}  the user leaves

It needs ``pip install fastapi uvicorn httpx``. ``python examples/sessions.py sessions.db`` serves on port 8000; ``--try``
talks to itself once and ends.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import httpx
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request

import tablemapper as tm

LASTS = timedelta(hours=1)


# --8<-- [start:entity]
class Session(tm.Entity, table="Sessions"):
    """What a service knows of a user who is there."""

    user: tm.Field[str]
    theme: tm.Field[str] = tm.field(default="light")
    cart: tm.Field[list[str]] = tm.field(factory=list)
    token: tm.Field[str] = tm.field(factory=lambda: secrets.token_urlsafe(16))
    until: tm.Field[datetime] = tm.field(
        on_write=lambda: datetime.now(UTC) + LASTS, expires=True
    )

    key = tm.Key[str](partition="{token}")
    by_user = tm.Index[str](partition="{user}")


# --8<-- [end:entity]


async def opened(request: Request) -> tm.AsyncStore:
    """Return the store that the service opened when it started."""
    store: tm.AsyncStore = request.state.store
    return store


Store = Annotated[tm.AsyncStore, Depends(opened)]


# --8<-- [start:timer]
async def expire_now_and_then(store: tm.AsyncStore, seconds: float = 60.0) -> None:
    """Delete what has ended, until the service ends: nobody sees it any more."""
    while True:
        await asyncio.sleep(seconds)
        await store.expire(limit=10_000)


def create_app(path: Path | str) -> FastAPI:
    """Return the service over a store, which is open while the service runs."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with tm.open_async(path, models=[Session]) as store:
            timer = asyncio.create_task(expire_now_and_then(store))
            yield {"store": store}
            timer.cancel()
            with suppress(asyncio.CancelledError):
                await timer

    app = FastAPI(title="Sessions", lifespan=lifespan)
    app.post("/sessions", status_code=201)(begin)
    app.get("/sessions/{token}")(read)
    app.patch("/sessions/{token}")(change)
    app.delete("/sessions/{token}", status_code=204)(leave)
    return app


# --8<-- [end:timer]


# --8<-- [start:verbs]
async def begin(store: Store, user: str) -> Session:
    session = Session(user)
    await store.insert(session)
    return session


async def read(store: Store, token: str) -> Session:
    session = await store.get(Session.key(token))
    if session is None:
        raise HTTPException(404, "there is no such session, or it has ended")
    return session


async def change(store: Store, token: str, changes: tm.Patch[Session]) -> Session:
    try:
        return await store.merge(Session.key(token), *changes, returning=True)
    except tm.EntityNotFound:
        raise HTTPException(404, "there is no such session, or it has ended") from None


async def leave(store: Store, token: str) -> None:
    with suppress(tm.EntityNotFound):
        await store.delete(Session.key(token))


# --8<-- [end:verbs]


@contextmanager
def serving(path: Path | str) -> Iterator[str]:
    """Serve from a thread, on a free port of this machine; the block has the URL."""
    server = uvicorn.Server(uvicorn.Config(create_app(path), log_level="warning"))
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)


def talk(url: str) -> None:
    """Show what a client sees."""
    global LASTS
    with httpx.Client(base_url=url, trust_env=False, timeout=10) as client:

        def call(method: str, target: str, **sent: Any) -> Any:
            answer = client.request(method, target, **sent)
            print(f"{method}: {answer.status_code}")
            return answer.json()

        session = call("POST", "/sessions?user=ada")
        target = f"/sessions/{session['token']}"
        later = call("PATCH", target, json={"theme": "dark", "cart": ["b-1"]})
        assert later["until"] > session["until"]
        assert call("GET", target) == later
        call("PATCH", target, json={"token": "x"})
        LASTS = timedelta(0)  # so the next write ends it
        call("PATCH", target, json={"cart": []})
        call("GET", target)
        call("PATCH", target, json={"theme": "light"})


if __name__ == "__main__":
    if sys.argv[1:] == ["--try"]:
        with TemporaryDirectory() as folder:
            place = Path(folder) / "sessions.db"
            with serving(place) as root:
                talk(root)
            with tm.open(place, models=[Session]) as ended:
                print(f"{ended.expire()} deleted, check: {ended.check().ok}")
    else:
        file = sys.argv[1] if len(sys.argv) > 1 else "sessions.db"
        uvicorn.run(create_app(file), host="127.0.0.1", port=8000)
