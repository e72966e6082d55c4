"""The example of a web service, asked over a real socket."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tablemapper as tm

# The extra "dev" has them, "test" has not.
pytest.importorskip("fastapi", reason="FastAPI is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

CLIENTS = 20
NUMBERS = count()
WAIT = 30.0  # seconds, for what takes milliseconds: a bound, not an expectation


@pytest.fixture(scope="module")
def service() -> ModuleType:
    spec = spec_from_file_location("service", Path(__file__).parent.parent / "examples" / "service.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["service"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service") / "parts.db"


@pytest.fixture(scope="module")
def root(service: ModuleType, path: Path) -> Iterator[str]:
    with service.serving(path) as url:
        yield url


@pytest.fixture(scope="module")
def client(root: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=root, trust_env=False, timeout=WAIT) as client:
        yield client


@pytest.fixture
def shelf() -> str:
    """A shelf that no other test uses."""
    return f"shelf-{next(NUMBERS)}"


def form(shelf: str, number: str = "m8", **values: Any) -> dict[str, Any]:
    return {"shelf": shelf, "number": number, "name": "Bolt", "price": "0.20", "stock": 0, "tags": [], **values}


def if_match(answer: httpx.Response) -> dict[str, str]:
    return {"If-Match": answer.headers["ETag"]}


def test_what_was_created_is_read_with_its_etag(client: httpx.Client, shelf: str) -> None:
    made = client.post("/parts", json=form(shelf, "a b", tags=["new"]))
    assert (made.status_code, made.json()) == (201, form(shelf, "a b", tags=["new"]))
    read = client.get(f"/parts/{shelf}/a b")
    assert (read.status_code, read.content, read.headers["ETag"]) == (200, made.content, made.headers["ETag"])


def test_a_part_is_created_once(client: httpx.Client, shelf: str) -> None:
    assert client.post("/parts", json=form(shelf)).status_code == 201
    again = client.post("/parts", json=form(shelf, price="5"))
    assert (again.status_code, again.json()["title"]) == (409, "this shelf has a part of this number")
    assert client.get(f"/parts/{shelf}/m8").json()["price"] == "0.20"


def test_a_stale_etag_changes_nothing(client: httpx.Client, shelf: str) -> None:
    url = f"/parts/{shelf}/m8"
    old = client.post("/parts", json=form(shelf))
    new = client.put(url, json=form(shelf, price="1"), headers=if_match(old))
    assert (new.status_code, new.json()["price"]) == (200, "1")
    assert client.put(url, json=form(shelf, price="2"), headers=if_match(old)).status_code == 412
    assert client.patch(url, json={"price": "2"}, headers=if_match(old)).status_code == 412
    assert client.delete(url, headers=if_match(old)).status_code == 412
    assert client.get(url).content == new.content
    assert client.delete(url, headers=if_match(new)).status_code == 204
    assert client.get(url).status_code == 404


def test_to_replace_or_delete_a_part_its_version_is_needed(client: httpx.Client, shelf: str) -> None:
    client.post("/parts", json=form(shelf))
    assert client.put(f"/parts/{shelf}/m8", json=form(shelf)).status_code == 428
    assert client.delete(f"/parts/{shelf}/m8").status_code == 428
    assert client.put(f"/parts/{shelf}/m8", json=form(shelf), headers={"If-Match": "*"}).status_code == 200


def test_a_change_leaves_out_what_stays(client: httpx.Client, shelf: str) -> None:
    made = client.post("/parts", json=form(shelf, stock=3))
    changed = client.patch(f"/parts/{shelf}/m8", json={"price": "0.50", "tags": ["sale"]})
    assert changed.json() == form(shelf, stock=3, price="0.50", tags=["sale"])
    assert changed.headers["ETag"] != made.headers["ETag"]


def test_pages_follow_each_other_by_token(client: httpx.Client, shelf: str) -> None:
    for number in range(7):
        client.post("/parts", json=form(shelf, str(number), price=f"{7 - number}"))
    prices: list[str] = []
    parameters: dict[str, str] = {"size": "3", "under": "7"}
    while True:
        page = client.get(f"/parts/{shelf}", params=parameters).json()
        prices += [item["price"] for item in page["items"]]
        if page["token"] is None:
            break
        parameters["token"] = page["token"]
    assert prices == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "fault"),
    [
        ("GET", "/{shelf}/none", None, 404, ""),
        ("PATCH", "/{shelf}/none", {"price": "1"}, 404, ""),
        ("POST", "/{shelf}/none/taken?count=1", None, 404, ""),
        ("GET", "/{shelf}?size=0", None, 422, "query.size: "),
        ("GET", "/{shelf}?token=x", None, 400, ""),
        ("POST", "", {"shelf": "s", "number": "n", "name": "", "price": "-1"}, 422, "body.name: "),
        ("POST", "", {"shelf": "s", "number": "n", "name": "a", "prise": "1"}, 422, "body.price: it is missing"),
        ("POST", "", {"shelf": "s", "number": "n" * 513, "name": "a", "price": "1"}, 422, ""),
        ("POST", "", {"shelf": "s", "number": "n", "name": "a", "price": "1", "tags": ["x" * 40_000]}, 413, "tags"),
        ("PATCH", "/{shelf}/m8", {"price": "-1"}, 422, "body.price: "),
        ("PATCH", "/{shelf}/m8", {"shelf": "x"}, 422, "body.shelf: it is in the key"),
        ("PATCH", "/{shelf}/m8", {}, 422, "nothing to change"),
        ("PUT", "/{shelf}/m8", {"shelf": "s", "number": "n", "name": "a", "price": "1"}, 422, ""),
        ("PUT", "", None, 405, ""),
    ],
)
def test_what_is_wrong_is_told_as_a_problem(
    client: httpx.Client, shelf: str, method: str, target: str, body: Any, status: int, fault: str
) -> None:
    client.post("/parts", json=form(shelf))
    answer = client.request(method, f"/parts{target.format(shelf=shelf)}", json=body, headers={"If-Match": "*"})
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status)
    assert problem["title"]
    assert any(line.startswith(fault) for line in problem["faults"] or [""])


def test_the_documentation_names_every_field_and_constraint(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    name = {"type": "string", "minLength": 1, "maxLength": 60}
    price = {"type": "string", "format": "decimal", "description": "Decimal >= 0"}
    tags = {"type": "array", "items": {"type": "string"}, "maxItems": 8}
    assert schemas["Part"]["properties"] == {
        "shelf": {"type": "string"}, "number": {"type": "string"}, "name": name, "price": price,
        "stock": {"type": "integer", "minimum": 0, "default": 0}, "tags": tags,
    }  # fmt: skip
    assert schemas["Part"]["required"] == ["shelf", "number", "name", "price"]
    assert schemas["PartPatch"]["properties"] == {
        "name": name,
        "price": price,
        "stock": {"type": "integer", "minimum": 0},
        "tags": tags,
    }
    assert schemas["PartPatch"]["required"] == []
    assert schemas["Parts"]["properties"]["items"]["items"] == {"$ref": "#/components/schemas/Part"}
    answers = document["paths"]["/parts"]["post"]["responses"]
    assert answers["201"]["content"] == {"application/json": {"schema": {"$ref": "#/components/schemas/Part"}}}
    assert list(answers["default"]["content"]["application/problem+json"]["schema"]["properties"]) == [
        "title",
        "status",
        "faults",
    ]


def test_twenty_clients_at_once_lose_nothing(root: str, service: ModuleType, path: Path) -> None:
    """Each creates parts that another one wants too, takes from one stock, and adds its name to a part by ETag."""

    async def work(client: httpx.AsyncClient, name: int) -> dict[str, int]:
        done = {"created": 0, "taken": 0, "tagged": 0}
        for number in range(3):
            part = form("many", f"{(name // 2 * 3 + number):03d}", price=str(number))
            done["created"] += (await client.post("/parts", json=part)).status_code == 201
            taken = await client.post("/parts/one/stock/taken?count=1")
            assert taken.status_code in (200, 409)
            done["taken"] += taken.status_code == 200
        url = f"/parts/one/{name % 4}"  # each of four parts has five who want to write it
        while not done["tagged"]:  # each round one of them can
            read = await client.get(url)
            change = {"tags": [*read.json()["tags"], str(name)]}
            written = await client.patch(url, json=change, headers=if_match(read))
            assert written.status_code in (200, 412)
            done["tagged"] += written.status_code == 200
        return done

    async def all_at_once() -> list[dict[str, int]]:
        limits = httpx.Limits(max_connections=CLIENTS)
        async with httpx.AsyncClient(base_url=root, trust_env=False, timeout=WAIT, limits=limits) as client:
            for number, stock in (("stock", 45), *((str(number), 0) for number in range(4))):
                await client.post("/parts", json=form("one", number, stock=stock))
            return await asyncio.wait_for(asyncio.gather(*[work(client, name) for name in range(CLIENTS)]), WAIT)

    done = asyncio.run(all_at_once())
    assert sum(one["created"] for one in done) == 30  # of each pair one came first
    assert sum(one["taken"] for one in done) == 45  # of sixty that wanted to
    with tm.open(path, models=[service.Part]) as store:
        assert store.query(service.Part).where(service.Part.shelf == "many").count() == 30
        assert store[service.Part.key("one", "stock")].stock == 0
        for number in range(4):
            tags = store[service.Part.key("one", str(number))].tags
            assert sorted(map(int, tags)) == list(range(number, CLIENTS, 4))
        assert store.check().ok
