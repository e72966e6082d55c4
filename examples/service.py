"""A stock of parts over HTTP: FastAPI takes entities, returns them, checks them and documents them.

    GET    /parts/bolts?under=2&size=10&token=…   a page of a shelf, the cheapest first
    POST   /parts                                 a new part
    GET    /parts/bolts/m8                        one part, its ETag in the header
    PUT    /parts/bolts/m8                        the whole part, with If-Match: <etag> (or *)
    PATCH  /parts/bolts/m8                        some fields of it, with If-Match if others may not have written it
    POST   /parts/bolts/m8/taken?count=3          three of them are taken, unless there are fewer
    DELETE /parts/bolts/m8                        with If-Match

It needs ``pip install fastapi uvicorn httpx``. ``python examples/service.py parts.db`` serves on port 8000, and describes
itself under ``/docs``; ``--try`` talks to itself once and ends.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import httpx
import msgspec
import uvicorn
from fastapi import (
    APIRouter,
    Body,
    Depends,
    FastAPI,
    Header,
    HTTPException,
    Query,
    Request,
    Response,
)
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException as RoutingError

import tablemapper as tm


# --8<-- [start:entity]
class Part(tm.Entity, table="Parts"):
    """A kind of thing on a shelf."""

    shelf: tm.Field[str]
    number: tm.Field[str]
    name: tm.Field[Annotated[str, msgspec.Meta(min_length=1, max_length=60)]]
    price: tm.Field[Annotated[Decimal, msgspec.Meta(ge=0)]]
    stock: tm.Field[Annotated[int, msgspec.Meta(ge=0)]] = tm.field(default=0)
    tags: tm.Field[Annotated[list[str], msgspec.Meta(max_length=8)]] = tm.field(
        factory=list
    )

    key = tm.Key[str, str](partition="{shelf}", row="{number}")
    by_price = tm.Index[str, Decimal](partition="{shelf}", row="{price}")


# --8<-- [end:entity]


class Parts(BaseModel):
    """A page of parts, and the token of the next one; null on the last."""

    items: list[Part]
    token: str | None


async def opened(request: Request) -> tm.AsyncStore:
    """Return the store that the service opened when it started."""
    store: tm.AsyncStore = request.state.store
    return store


def tagged(part: Part, response: Response) -> Part:
    """Return a stored part, and say which version of it this is."""
    response.headers["ETag"] = tm.info(part).etag or ""
    return part


def version(if_match: Annotated[str | None, Header()] = None) -> str:
    """Return the ETag that a request must give, or ``*``."""
    if if_match is None:
        raise HTTPException(428, "say which version in If-Match, or * for any")
    return if_match


Store = Annotated[tm.AsyncStore, Depends(opened)]
Version = Annotated[str, Depends(version)]
router = APIRouter(prefix="/parts")


# --8<-- [start:verbs]
@router.post("", status_code=201)
async def create(store: Store, part: Annotated[Part, Body()], response: Response) -> Part:
    await store.insert(part)
    return tagged(part, response)


@router.get("/{shelf}/{number}")
async def read(store: Store, shelf: str, number: str, response: Response) -> Part:
    return tagged(await store[Part.key(shelf, number)], response)


@router.put("/{shelf}/{number}")
async def replace(
    store: Store,
    shelf: str,
    number: str,
    part: Annotated[Part, Body()],
    if_match: Version,
    response: Response,
) -> Part:
    if part.key != Part.key(shelf, number):
        raise HTTPException(422, "the body is a part of another shelf or number")
    await store.replace(part, if_match=if_match)
    return tagged(part, response)


@router.patch("/{shelf}/{number}")
async def change(
    store: Store,
    shelf: str,
    number: str,
    changes: tm.Patch[Part],
    response: Response,
    if_match: Annotated[str | None, Header()] = None,
) -> Part:
    part = await store.merge(
        Part.key(shelf, number), *changes, if_match=if_match, returning=True
    )
    return tagged(part, response)


# --8<-- [end:verbs]


@router.post("/{shelf}/{number}/taken")
async def take(
    store: Store,
    shelf: str,
    number: str,
    count: Annotated[int, Query(ge=1)],
    response: Response,
) -> Part:
    """Take some from the stock. Nobody has to read it first, and it never goes below 0."""
    try:
        part = await store.merge(
            Part.key(shelf, number), Part.stock.add(-count), returning=True
        )
    except tm.InvalidEntity:
        raise HTTPException(409, "there are fewer than that") from None
    return tagged(part, response)


@router.delete("/{shelf}/{number}", status_code=204)
async def delete(store: Store, shelf: str, number: str, if_match: Version) -> None:
    await store.delete(Part.key(shelf, number), if_match=if_match)


# --8<-- [start:page]
@router.get("/{shelf}")
async def cheapest(
    store: Store,
    shelf: str,
    under: Decimal | None = None,
    size: Annotated[int, Query(ge=1, le=100)] = 20,
    token: str | None = None,
) -> Parts:
    query = store.query(Part).where(Part.shelf == shelf).order_by(Part.price)
    if under is not None:
        query = query.where(Part.price < under)
    page = await query.page(size, token)
    return Parts(items=page.items, token=page.token)


# --8<-- [end:page]


# --8<-- [start:problems]
class Problem(BaseModel):
    """What every answer holds that is no success (RFC 9457)."""

    title: str
    status: int
    faults: list[str] = []


PROBLEMS: tuple[tuple[type[tm.TableMapperError], int, str], ...] = (
    (tm.EntityNotFound, 404, "there is no such part"),
    (tm.EntityExists, 409, "this shelf has a part of this number"),
    (tm.PreconditionFailed, 412, "it was changed since; read it again"),
    (tm.EntityTooLarge, 413, "it is too large"),
    (tm.InvalidEntity, 422, "a value cannot be stored"),
    (tm.InvalidToken, 400, "this token is not of this list; begin without one"),
    (tm.InvalidQuery, 400, "this cannot be looked for"),
    (tm.StoreLocked, 503, "too much is being written; try again"),
)


def problem(status: int, title: str, faults: tuple[str, ...] = ()) -> Response:
    content = Problem(title=title, status=status, faults=list(faults))
    return JSONResponse(content.model_dump(), status, media_type="application/problem+json")


async def of_the_store(_: Request, error: Exception) -> Response:
    for kind, status, title in PROBLEMS:
        if isinstance(error, kind):
            return problem(status, title, getattr(error, "faults", ()))
    raise error  # the server logs it, and answers 500


async def of_a_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [
        f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
    ]
    return problem(422, "the request is wrong", tuple(faults))


async def of_a_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, RoutingError)
    return problem(error.status_code, str(error.detail))


# --8<-- [end:problems]


# --8<-- [start:app]
def create_app(path: Path | str) -> FastAPI:
    """Return the service over a store, which is open while the service runs."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with tm.open_async(path, models=[Part]) as store:
            yield {"store": store}

    form = {"application/problem+json": {"schema": Problem.model_json_schema()}}
    app = FastAPI(
        title="Parts",
        lifespan=lifespan,
        responses={"default": {"description": "A problem", "content": form}},
    )
    app.include_router(router)
    app.add_exception_handler(tm.TableMapperError, of_the_store)
    app.add_exception_handler(RequestValidationError, of_a_request)
    app.add_exception_handler(RoutingError, of_a_route)
    return app


# --8<-- [end:app]


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


async def talk(url: str) -> None:
    """Show what a client sees."""
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=10) as client:

        async def call(method: str, target: str, **sent: Any) -> httpx.Response:
            answer = await client.request(method, target, **sent)
            print(f"{method} {target}: {answer.status_code} {answer.text}")
            return answer

        form = {"shelf": "bolts", "number": "m8", "name": "Bolt", "price": "0.20"}
        tag = (await call("POST", "/parts", json=form)).headers["ETag"]
        await call("POST", "/parts", json={**form, "price": "-1", "colour": "red"})
        await call("POST", "/parts", json={**form, "number": "m10", "price": "0.35"})
        await call(
            "PATCH", "/parts/bolts/m8", json={"price": "0.25"}, headers={"If-Match": tag}
        )
        await call("PUT", "/parts/bolts/m8", json=form, headers={"If-Match": tag})
        await call(
            "PUT", "/parts/bolts/m8", json={**form, "stock": 5}, headers={"If-Match": "*"}
        )
        await call("POST", "/parts/bolts/m8/taken?count=3")
        await call("POST", "/parts/bolts/m8/taken?count=3")
        first = await call("GET", "/parts/bolts?size=1")
        await call("GET", f"/parts/bolts?size=1&token={first.json()['token']}")
        await call("DELETE", "/parts/bolts/m8", headers={"If-Match": "*"})
        await call("GET", "/parts/bolts/m8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--try"]:
        with TemporaryDirectory() as folder, serving(Path(folder) / "parts.db") as root:
            asyncio.run(talk(root))
    else:
        file = sys.argv[1] if len(sys.argv) > 1 else "parts.db"
        uvicorn.run(create_app(file), host="127.0.0.1", port=8000)
