"""The examples run, and say what they should."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest

import tablemapper as tm

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *args], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_year_of_weather_is_loaded_asked_corrected_and_proved() -> None:
    out = run("weather.py")
    assert "26,115 readings loaded" in out
    assert "26,115 entities, 30,991 index rows, 1,128 groups: ok" in out
    assert "1,128 groups recomputed from the readings: equal, bit for bit" in out


def test_pages_go_on_over_writes_and_a_restart() -> None:
    out = run("paging_service.py", "--try").splitlines()
    assert out[:3] == ["page [9, 8, 7] and more", "page [6, 5, 11] and more", "page [4, 3] the last"]
    assert [line.split()[0] for line in out[3:]] == ["400"] * 6 + ["503"]


def test_a_shop_goes_through_six_versions_beside_the_service_of_the_one_before() -> None:
    out = run("shop_versions.py")
    assert "products, none lost" in out
    assert out.count("and then ended:") == 2  # a type and a key
    assert re.search(r"1 groups: ok$", out, re.MULTILINE)


def test_the_patterns_hold() -> None:
    assert "ok" in run("patterns.py").splitlines()[-1]


def test_the_asyncio_service_stores_what_many_devices_send_at_once() -> None:
    out = run("async_service.py", "--try")
    assert "1200 readings stored" in out
    assert "d-7 on 2024-01-01: 24 readings, mean 21.92" in out
    assert "check: ok" in out


def test_the_service_answers_requests() -> None:
    assert run("service.py", "--try").splitlines()[-1].endswith("(204, None, None)")


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    assert [example.name for example in EXAMPLES.glob("*.py") if f'run("{example.name}"' not in here] == []


@pytest.fixture(scope="module")
def service() -> ModuleType:
    spec = spec_from_file_location("service", EXAMPLES / "service.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["service"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def root(service: ModuleType) -> Iterator[str]:
    with tm.open(":memory:", models=[service.Product]) as store, service.serve(store) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/products"
        server.shutdown()
        thread.join()


def test_what_was_put_is_got_with_its_etag(service: ModuleType, root: str) -> None:
    status, _, etag = service.call(f"{root}/books/b%2F1", "PUT", {"name": "Dune", "price": "9.99"})
    assert status == 201
    assert service.call(f"{root}/books/b%2F1") == (
        200,
        {"category": "books", "number": "b/1", "name": "Dune", "price": "9.99"},
        etag,
    )


def test_a_second_put_without_if_match_is_a_conflict(service: ModuleType, root: str) -> None:
    service.call(f"{root}/books/b", "PUT", {"name": "Dune", "price": "9.99"})
    assert service.call(f"{root}/books/b", "PUT", {"name": "Dune", "price": "9.99"})[0] == 409


def test_a_stale_etag_fails_its_precondition(service: ModuleType, root: str) -> None:
    _, _, old = service.call(f"{root}/books/b", "PUT", {"name": "Dune", "price": "9.99"})
    status, _, new = service.call(f"{root}/books/b", "PUT", {"name": "Dune", "price": "1"}, If_Match=old)
    assert status == 200
    assert service.call(f"{root}/books/b", "PUT", {"name": "Dune", "price": "2"}, If_Match=old)[0] == 412
    assert service.call(f"{root}/books/b", "DELETE", If_Match=old)[0] == 412
    assert service.call(f"{root}/books/b", "DELETE", If_Match=new)[0] == 204


def test_a_delete_must_say_which_version(service: ModuleType, root: str) -> None:
    service.call(f"{root}/books/b", "PUT", {"name": "Dune", "price": "9.99"})
    assert service.call(f"{root}/books/b", "DELETE")[0] == 428


def test_pages_follow_each_other_by_token(service: ModuleType, root: str) -> None:
    for number in range(7):
        service.call(f"{root}/books/b-{number}", "PUT", {"name": "x", "price": str(7 - number)})
    prices: list[str] = []
    token = ""
    while token is not None:
        status, page, _ = service.call(f"{root}/books?size=3" + (f"&token={token}" if token else ""))
        assert status == 200
        prices += [item["price"] for item in page["items"]]
        token = page["token"]
    assert prices == ["1", "2", "3", "4", "5", "6", "7"]


@pytest.mark.parametrize(
    ("path", "method", "body", "status"),
    [
        ("/books/none", "GET", None, 404),
        ("", "GET", None, 404),
        ("/books?size=0", "GET", None, 400),
        ("/books?size=x", "GET", None, 400),
        ("/books?token=x", "GET", None, 400),
        ("/books/b", "PUT", {"name": "x"}, 400),
        ("/books/b", "PUT", {"name": 1, "price": "1"}, 400),
        ("/books/" + "b" * 513, "PUT", {"name": "x", "price": "1"}, 400),
        ("/books/b", "PUT", {"name": "x" * 40_000, "price": "1"}, 413),
    ],
)
def test_bad_requests_have_a_status_of_their_own(
    service: ModuleType, root: str, path: str, method: str, body: object, status: int
) -> None:
    answer, message, _ = service.call(root + path, method, body)
    assert answer == status
    assert message["error"]
