"""Sessions that end by themselves, behind FastAPI: who is idle for half an hour signs in again.

    POST   /sessions {"user": "ada"}    sign in; the answer has the token
    GET    /me                          the session, with Authorization: Bearer ada.<token>
    PATCH  /me {"theme": "dark"}        change settings
    GET    /mine                        all sessions of the user
    DELETE /me                          sign out

Each use prolongs a session. It needs ``pip install fastapi uvicorn httpx``. ``python examples/sessions.py sessions.db`` serves
on port 8000; ``--try`` talks to itself once, and ends.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

import httpx
import uvicorn
from fastapi import APIRouter, Body, Depends, FastAPI, Header, Request, Response
from fastapi.responses import JSONResponse

import tablemapper as tm

IDLE = timedelta(minutes=30)


# --8<-- [start:session]
def end() -> datetime:
    """Return when a session ends that is used now."""
    return datetime.now(UTC) + IDLE


class Session(tm.Entity, table="Sessions"):
    """A session of a user. Each write of it prolongs it."""

    user: tm.Field[str]
    token: tm.Field[str] = tm.field(factory=lambda: uuid4().hex)
    theme: tm.Field[Literal["light", "dark"]] = tm.field(default="light")
    page: tm.Field[str | None] = tm.field(default=None)
    until: tm.Field[datetime] = tm.field(on_write=end, expires=True)

    key = tm.Key[str, str](partition="{user}", row="{token}")


# --8<-- [end:session]


async def store_of(request: Request) -> tm.AsyncStore:
    """Return the store that the service opened when it started."""
    store: tm.AsyncStore = request.state.store
    return store


def key_of(authorization: Annotated[str, Header()]) -> tm.KeyOf[Session]:
    """Return the key of the session that a request says it is of."""
    user, _, token = authorization.removeprefix("Bearer ").rpartition(".")
    return Session.key(user, token)


Store = Annotated[tm.AsyncStore, Depends(store_of)]
Key = Annotated[tm.KeyOf[Session], Depends(key_of)]
router = APIRouter()


# --8<-- [start:verbs]
@router.post("/sessions", status_code=201)
async def sign_in(store: Store, user: Annotated[str, Body(embed=True)]) -> Session:
    session = Session(user)
    await store.insert(session)
    return session


@router.get("/me")
async def me(store: Store, key: Key) -> Session:
    session = await store[key]
    await store.replace(session)  # which prolongs it
    return session


@router.patch("/me")
async def change(store: Store, key: Key, patch: tm.Patch[Session]) -> Session:
    return await store.merge(key, *patch, returning=True)


@router.get("/mine")
async def mine(store: Store, key: Key) -> list[Session]:
    session = await store[key]
    return [
        other async for other in store.query(Session).where(Session.user == session.user)
    ]


@router.delete("/me", status_code=204)
async def sign_out(store: Store, key: Key) -> None:
    await store.delete(key)


# --8<-- [end:verbs]


async def signed_out(request: Request, error: Exception) -> Response:
    """Answer a request of a session that has ended, or never was."""
    return JSONResponse({"detail": "sign in first"}, 401)


async def delete_ended(store: tm.AsyncStore) -> None:
    """Delete the sessions that have ended, once a minute."""
    while True:
        await store.expire(limit=10_000)
        await asyncio.sleep(60)


def application(path: str) -> FastAPI:
    """Return the service over a store."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, tm.AsyncStore]]:
        async with tm.open_async(path, models=[Session]) as store:
            timer = asyncio.create_task(delete_ended(store))
            yield {"store": store}
            timer.cancel()

    app = FastAPI(title="Sessions", lifespan=lifespan)
    app.include_router(router)
    app.add_exception_handler(tm.EntityNotFound, signed_out)
    return app


async def talk(url: str) -> None:
    """Sign in, change a setting, and come back too late."""
    global IDLE
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=10) as client:

        async def call(method: str, target: str, session: Any = None, **sent: Any) -> Any:
            bearer = session and f"Bearer {session['user']}.{session['token']}"
            headers = {"Authorization": bearer} if session else {}
            answer = await client.request(method, target, headers=headers, **sent)
            print(f"{method} {target}: {answer.status_code} {answer.text}")
            return answer.json() if answer.text else None

        session = await call("POST", "/sessions", json={"user": "ada"})
        await call("PATCH", "/me", session, json={"theme": "dark", "page": "/news"})
        await call("PATCH", "/me", session, json={"theme": "green", "until": None})
        await call("GET", "/me", session)
        IDLE = timedelta(0)  # what is used now ends at once
        late = await call("POST", "/sessions", json={"user": "ada"})
        await call("GET", "/me", late)
        await call("GET", "/mine", session)
        await call("DELETE", "/me", session)
        await call("GET", "/me", session)


async def try_out(app: FastAPI) -> None:
    """Serve on a free port of this machine, and talk to the service."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        serving = asyncio.create_task(server.serve([listening]))
        await talk(f"http://127.0.0.1:{listening.getsockname()[1]}")
        server.should_exit = True
        await serving


def main(arguments: list[str]) -> None:
    if "--try" in arguments:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(try_out(application(str(Path(folder, "sessions.db")))))
    else:
        uvicorn.run(application(arguments[0] if arguments else "sessions.db"), port=8000)


if __name__ == "__main__":
    main(sys.argv[1:])
