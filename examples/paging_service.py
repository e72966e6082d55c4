"""Pages over HTTP, with nothing but the standard library: a WSGI application over a store.

    GET /orders?customer=ada                          the newest orders of a customer, 20 of them, and a token
    GET /orders?status=open&over=50&size=100          those of all customers that are open and dear
    GET /orders?status=open&over=50&token=…           the page after

The answer is ``{"items": […], "token": "…"}``; the token is null on the last page, else it is sent with the same
filters for the next one. ``python examples/paging_service.py orders.db`` serves on port 8000; ``--try`` talks to itself
once and ends.
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from socketserver import ThreadingMixIn
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qsl, urlencode
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import tablemapper as tm


class Order(tm.Entity, table="Orders"):
    """What a customer bought."""

    customer: tm.Field[str]
    placed: tm.Field[datetime]
    number: tm.Field[int]
    total: tm.Field[Decimal]
    status: tm.Field[str] = tm.field(default="open")

    key = tm.Key[str, datetime, int](
        partition="{customer}", row=("{placed:desc}", "{number}")
    )
    by_status = tm.Index[str, datetime](partition="{status}", row="{placed:desc}")


# --8<-- [start:settings]
MOST = 100  # orders on a page
EXAMINED = 5_000  # rows that one request may read
SECONDS = 1.0  # that one request may take

FILTERS: dict[str, Callable[[str], tm.Predicate[Order]]] = {
    "customer": lambda text: Order.customer == text,
    "status": lambda text: Order.status == text,
    "over": lambda text: Order.total > Decimal(text),
}
# --8<-- [end:settings]

STATUS: tuple[tuple[type[Exception], HTTPStatus, str], ...] = (
    (
        tm.InvalidToken,
        HTTPStatus.BAD_REQUEST,
        "this token is not of this list, or no longer valid; begin without one",
    ),
    (tm.ScanRefused, HTTPStatus.BAD_REQUEST, "say customer= or status="),
    (
        tm.QueryStopped,
        HTTPStatus.SERVICE_UNAVAILABLE,
        "too much would be read; say more of what you look for",
    ),
    (tm.StoreLocked, HTTPStatus.SERVICE_UNAVAILABLE, "try again"),
    (
        ValueError,
        HTTPStatus.BAD_REQUEST,
        "size= is a whole number from 1 on, over= a number",
    ),
    (
        ArithmeticError,
        HTTPStatus.BAD_REQUEST,
        "size= is a whole number from 1 on, over= a number",
    ),
)


# --8<-- [start:orders]
def orders(store: tm.Store, parameters: dict[str, str]) -> dict[str, Any]:
    """Return a page of orders, the newest first, and the token of the next."""
    size = min(int(parameters.pop("size", "20")), MOST)
    token = parameters.pop("token", None)
    query = store.query(Order).order_by(Order.placed.desc())
    query = query.budget(timeout=SECONDS, examined=EXAMINED)
    for name, condition in FILTERS.items():  # always in this order: a token belongs to it
        if name in parameters:
            query = query.where(condition(parameters[name]))
    page = query.page(size, token)
    return {"items": [as_json(order) for order in page.items], "token": page.token}


def as_json(order: Order) -> dict[str, Any]:
    """Return an order as clients see it."""
    return {
        "customer": order.customer,
        "number": order.number,
        "status": order.status,
        "total": str(order.total),
    }


# --8<-- [end:orders]


def application(store: tm.Store) -> WSGIApplication:
    """Return the service over a store; any WSGI server can run it, in any number of threads."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        status, body = respond(
            store, environ["PATH_INFO"], dict(parse_qsl(environ.get("QUERY_STRING", "")))
        )
        payload = json.dumps(body).encode()
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(payload))),
        ]
        start(f"{status.value} {status.phrase}", headers)
        return [payload]

    return answer


def respond(
    store: tm.Store, path: str, parameters: dict[str, str]
) -> tuple[HTTPStatus, dict[str, Any]]:
    """Return the status and the body for a request."""
    if path != "/orders":
        return HTTPStatus.NOT_FOUND, {"error": "there is only /orders"}
    if strange := parameters.keys() - FILTERS - {"size", "token"}:
        return HTTPStatus.BAD_REQUEST, {
            "error": f"{', '.join(sorted(strange))}: there is no such filter"
        }
    try:
        return HTTPStatus.OK, orders(store, parameters)
    except Exception as error:
        for kind, status, advice in STATUS:
            if isinstance(error, kind):
                return status, {"error": advice}
        raise


class Server(ThreadingMixIn, WSGIServer):
    """A thread for each request; the store is shared by all of them."""

    daemon_threads = True


class Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


def serve(store: tm.Store, port: int = 0) -> WSGIServer:
    """Return a server on this machine; port 0 takes a free one."""
    return make_server(
        "127.0.0.1", port, application(store), server_class=Server, handler_class=Quiet
    )


# ---------------------------------------------------------------------------------------------- as a client sees it


def call(server: WSGIServer, **parameters: object) -> tuple[int, dict[str, Any]]:
    """Send a request; return the status and the decoded body."""
    query = urlencode(
        {name: value for name, value in parameters.items() if value is not None}
    )
    url = f"http://127.0.0.1:{server.server_port}/orders?{query}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


class Running:
    """A store and a server over it, for as long as a ``with`` lasts."""

    def __init__(self, path: str | Path) -> None:
        self.store = tm.open(path, models=[Order])
        self.server = serve(self.store)
        self.thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        self.store.close()

    def numbers(self, **parameters: object) -> tuple[list[int], str | None]:
        """Ask for a page; return the numbers of its orders and the token."""
        status, page = call(self.server, **parameters)
        assert status == 200, page
        print(
            f"page {[item['number'] for item in page['items']]}",
            "and more" if page["token"] else "the last",
        )
        return [item["number"] for item in page["items"]], page["token"]


def try_it() -> None:
    """Page through a list that changes meanwhile, over a socket and a restart; then make mistakes."""
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "orders.db"
        with Running(path) as run:
            run.store.insert_many(
                Order(
                    ("ada", "bob")[n % 2], noon + timedelta(minutes=n), n, Decimal(n * 10)
                )
                for n in range(10)
            )
            first, token = run.numbers(status="open", over="20", size=3)
            assert first == [9, 8, 7]
            run.store.insert(
                Order("ada", noon + timedelta(hours=1), 10, Decimal(999))
            )  # before the place of the token
            run.store.delete(
                Order.key("bob", noon + timedelta(minutes=7), 7)
            )  # the one that the page ended with
            run.store.insert(
                Order("bob", noon + timedelta(minutes=4, seconds=30), 11, Decimal(50))
            )  # behind it
        with Running(path) as run:  # another process, as far as the token knows
            second, token = run.numbers(over="20", status="open", size=3, token=token)
            assert second == [6, 5, 11]
            third, end = run.numbers(
                status="open", over="20", size=100, token=token
            )  # of another size
            assert (third, end) == ([4, 3], None)

            for parameters in (
                {"status": "open", "token": token},  # of another list
                {"status": "open", "token": "x"},
                {"over": "20"},
                {"status": "open", "size": "many"},
                {"status": "open", "over": "much"},
                {"colour": "red"},
            ):
                status, body = call(run.server, **parameters)
                print(status, body["error"])
                assert status == 400

            run.store.insert_many(
                Order("eve", noon + timedelta(seconds=n), n, Decimal(1), "done")
                for n in range(EXAMINED + 1)
            )
            status, body = call(
                run.server, status="done", over="2"
            )  # nothing matches, all are read to find out
            print(status, body["error"])
            assert status == 503


if __name__ == "__main__":
    if sys.argv[1:] == ["--try"]:
        try_it()
    else:
        with tm.open(
            sys.argv[1] if len(sys.argv) > 1 else "orders.db", models=[Order]
        ) as opened:
            print("listening on http://127.0.0.1:8000; Ctrl-C ends it", flush=True)
            with suppress(KeyboardInterrupt):
                serve(opened, 8000).serve_forever()
