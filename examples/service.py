"""A small HTTP API over a store: typed queries, ETags as If-Match, page tokens.

    GET    /products/books?under=20&size=10&token=…   a page of a category, cheapest first
    GET    /products/books/b-1                        one product, its ETag in the header
    PUT    /products/books/b-1                        insert it, or replace it with If-Match: <etag> (or *)
    DELETE /products/books/b-1                        with If-Match

``python examples/service.py shop.db`` serves on port 8000; ``--try`` talks to itself once and ends.
"""

from __future__ import annotations

import sys
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

import tablemapper as tm


class Product(tm.Entity, table="Products"):
    """A thing on sale."""

    category: tm.Field[str]
    number: tm.Field[str]
    name: tm.Field[str]
    price: tm.Field[Decimal]

    key = tm.Key[str, str](partition="{category}", row="{number}")
    by_price = tm.Index[str, Decimal](partition="{category}", row="{price}")


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """What a client sends of a product; where it is stands in the path."""

    name: str
    price: Decimal


STATUS: tuple[tuple[type[Exception], int], ...] = (
    (tm.EntityNotFound, 404),
    (tm.EntityExists, 409),
    (tm.UniqueViolation, 409),
    (tm.PreconditionFailed, 412),
    (tm.EntityTooLarge, 413),
    (tm.InvalidEntity, 400),
    (tm.InvalidQuery, 400),
    (msgspec.MsgspecError, 400),
    (ValueError, 400),
    (tm.StoreLocked, 503),
)


class Api(BaseHTTPRequestHandler):
    """One request; the store is shared by all threads."""

    store: tm.Store
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_PUT(self) -> None:
        self._answer(self._put)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def _get(self, category: str, number: str | None) -> tuple[int, Any, str | None]:
        if number is not None:
            product = self.store[Product.key(category, number)]
            return 200, product, tm.info(product).etag
        wanted = {
            name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()
        }
        query = (
            self.store.query(Product)
            .where(Product.category == category)
            .order_by(Product.price)
        )
        if "under" in wanted:
            query = query.where(Product.price < msgspec.convert(wanted["under"], Decimal))
        page = query.page(
            msgspec.convert(wanted.get("size", "20"), int, strict=False),
            wanted.get("token"),
        )
        return 200, {"items": page.items, "token": page.token}, None

    def _put(self, category: str, number: str | None) -> tuple[int, Any, str | None]:
        body = msgspec.json.decode(
            self.rfile.read(int(self.headers.get("Content-Length", 0))), type=Body
        )
        product = Product(category, number or "", body.name, body.price)
        match = self.headers.get("If-Match")
        if match is None:
            self.store.insert(product)
        else:
            self.store.replace(product, if_match=match)
        return 201 if match is None else 200, product, tm.info(product).etag

    def _delete(self, category: str, number: str | None) -> tuple[int, Any, str | None]:
        match = self.headers.get("If-Match")
        if match is None:
            return 428, {"error": "say which version in If-Match, or * for any"}, None
        self.store.delete(Product.key(category, number or ""), if_match=match)
        return 204, None, None

    def _answer(self, verb: Any) -> None:
        status: int
        body: Any
        etag: str | None
        try:
            parts = [
                unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")
            ]
            if (
                parts[0] != "products"
                or len(parts) not in (2, 3)
                or (len(parts) == 2 and self.command != "GET")
            ):
                status, body, etag = (
                    404,
                    {"error": "there is only /products/<category>[/<number>]"},
                    None,
                )
            else:
                status, body, etag = verb(parts[1], parts[2] if len(parts) == 3 else None)
        except Exception as error:
            status = next((code for kind, code in STATUS if isinstance(error, kind)), 500)
            body, etag = {"error": str(error)}, None
        payload = b"" if body is None else msgspec.json.encode(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        if etag is not None:
            self.send_header("ETag", etag)
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def serve(store: tm.Store, port: int = 0) -> ThreadingHTTPServer:
    """Return a server on this machine; port 0 takes a free one."""
    return ThreadingHTTPServer(
        ("127.0.0.1", port), type("BoundApi", (Api,), {"store": store})
    )


def call(
    url: str, method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, Any, str | None]:
    """Send a request; return the status, the decoded body and the ETag."""
    data = None if body is None else msgspec.json.encode(body)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=data, method=method, headers=names)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            text, status, etag = answer.read(), answer.status, answer.headers["ETag"]
    except urllib.error.HTTPError as error:
        with error:
            text, status, etag = error.read(), error.code, error.headers["ETag"]
    return status, msgspec.json.decode(text) if text else None, etag


def try_it() -> None:
    """Talk to a server of our own, over a real socket."""
    with tm.open(":memory:", models=[Product]) as store, serve(store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_address[1]}/products/books"
        for number in range(5):
            print(
                "PUT",
                call(
                    f"{root}/b-{number}",
                    "PUT",
                    {"name": f"Book {number}", "price": f"{9 - number}.50"},
                ),
            )
        status, product, etag = call(f"{root}/b-1")
        print("GET", status, product, etag)
        assert etag is not None
        print(
            "PUT with If-Match",
            call(f"{root}/b-1", "PUT", {"name": "Dune", "price": "3.00"}, If_Match=etag),
        )
        print(
            "the same again",
            call(f"{root}/b-1", "PUT", {"name": "Dune", "price": "4.00"}, If_Match=etag),
        )
        token: str | None = ""
        while token is not None:
            status, page, _ = call(
                f"{root}?under=9&size=2" + (f"&token={token}" if token else "")
            )
            print("page", status, [item["price"] for item in page["items"]])
            token = page["token"]
        print(
            "DELETE",
            call(f"{root}/b-1", "DELETE"),
            call(f"{root}/b-1", "DELETE", If_Match="*"),
        )
        server.shutdown()


if __name__ == "__main__":
    if sys.argv[1:] == ["--try"]:
        try_it()
    else:
        with tm.open(
            sys.argv[1] if len(sys.argv) > 1 else "shop.db", models=[Product]
        ) as shop:
            print("listening on http://127.0.0.1:8000; Ctrl-C ends it", flush=True)
            with suppress(KeyboardInterrupt):
                serve(shop, 8000).serve_forever()
