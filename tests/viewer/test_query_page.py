"""The inspector's page of a question, its files, and the pages of all that a store holds."""

from __future__ import annotations

import ast
import csv
import html
import io
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

import tablemapper as tm
from tablemapper.viewer import query_page, store_pages, views
from tablemapper.viewer.store_pages import TimedCache
from tests.viewer.visits import links, visit

from ..classes import grouped


class Product(tm.Entity, table="Products"):
    category: tm.Field[str]
    number: tm.Field[int]
    name: tm.Field[str] = tm.field(default="")
    price: tm.Field[Decimal | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    at: tm.Field[datetime] = tm.field(default=datetime(2026, 1, 1, tzinfo=UTC))

    key = tm.Key[str, int](partition="{category}", row="{number}")
    by_price = tm.Index[str, Decimal](partition="{category}", row="{price}")
    by_tag = tm.Index[str](partition="{tags}")


Total = grouped("Total", Product, "category", "Totals", number=tm.count())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tm.Store]:
    place = tmp_path / "shop.db"
    with tm.open(place, models=[Product, Total]) as store:
        store.insert_many(
            Product("books", n, f"=b-{n}", price=Decimal(n) / 2, tags=["x", "y, z"][: n % 3]) for n in range(60)
        )
    with tm.open(place, read_only=True) as store:
        yield store


@pytest.fixture
def app(store: tm.Store) -> Any:
    return tm.inspector(store, title="shop.db")


def asked(app: Any, query: str, code: int = 200) -> Any:
    answer = visit(app, f"/query/Product?{query}&format=json")
    assert answer.status_code == code, answer.text
    return answer.json()


def numbers(found: Any) -> list[int]:
    return [row["number"] for row in found["rows"]]


def test_a_question_has_its_plan_its_cost_its_python_and_its_rows(app: Any) -> None:
    query = "where=category==books&where=price<2&order=-price&limit=3"
    found = asked(app, query)
    assert (numbers(found), found["more"]) == ([3, 2, 1], True)
    assert found["explain"]["path"] == "Product.by_price"
    page = visit(app, f"/query/Product?{query}").text
    assert "reads Product.by_price, backwards" in page
    assert "3 of 60 rows are read" in page
    assert "60 of 60 rows are read" in visit(app, "/query/Product?where=category==books&where=name!==x&limit=3").text
    assert "3 shown, there are more" in page
    assert (
        "store.query(Product).where(\n    Product.category == &#34;books&#34;,\n    Product.price &lt; Decimal(&#34;2&#34;),\n"
        ").order_by(Product.price.desc()).limit(3)"
    ) in page


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("number==7", [7]), ("name startswith =b-5", [5, *range(50, 60)]), ("tags contains y, z", list(range(2, 60, 3))),
        ("number in 3,4", [3, 4]), ("price is not null", list(range(60))), ("price is null", []), ("number>=58", [58, 59]),
        ("at==2026-01-01T00:00:00Z", list(range(60))), ("name !==b-0", list(range(1, 60))),
    ],
)  # fmt: skip
def test_what_is_typed_is_read_shown_in_the_form_and_asked_again_the_same(
    app: Any, typed: str, expected: list[int]
) -> None:
    query = str(httpx.QueryParams([("where", "category==books"), ("where", typed), ("limit", "100")]))
    assert numbers(asked(app, query)) == expected
    page = visit(app, f"/query/Product?{query}").text
    form = re.findall(r'<option selected>([^<]*)</option>|name="value"[^>]*value="([^"]*)"', page)
    texts = [html.unescape(one or other) for one, other in form]
    again = [("field", texts[3]), ("op", texts[4]), ("value", texts[5]), ("where", "category==books"), ("limit", "100")]
    assert numbers(asked(app, str(httpx.QueryParams(again)))) == expected


def snippet(page: str, name: str = "python") -> str:
    """Return the Python of a page."""
    return html.unescape(page.split(f'id="{name}">')[1].split("</pre>", maxsplit=1)[0])


def ran(page: str, store: tm.Store, name: str = "python") -> Any:
    """Run the Python of a page; return what its last statement gives."""
    *statements, last = ast.parse(snippet(page, name)).body
    assert isinstance(last, ast.Expr)
    names = {"store": store, "Product": Product}
    exec(compile(ast.Module(statements, []), "<page>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<page>", "eval"), names)


def test_its_python_runs(app: Any) -> None:
    with tm.open(":memory:", models=[Product, Total]) as store:
        store.insert(Product("books", 1, "a", Decimal(3), ["q"]))
        for query in (
            "where=category==books&where=price in 3,4",
            "where=tags contains q",
            "where=name==a&scan=1&order=-number",
        ):
            page = visit(app, f"/query/Product?{query}").text
            assert [one.number for one in ran(page, store)] == [1]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("where=pricee<8", "Product has no field"), ("where=price=8", "the operators are"),
        ("where=price<cheap", "is no Decimal"), ("order=pricee", "has no field"),
    ],
)  # fmt: skip
def test_a_wrong_question_keeps_its_form_and_says_what_is_wrong(app: Any, query: str, said: str) -> None:
    assert said.split(maxsplit=1)[0] in asked(app, query, code=400)["error"]
    page = visit(app, f"/query/Product?{query}")
    assert page.status_code == 400
    assert 'id="fault"' in page.text
    assert 'id="query"' in page.text
    assert visit(app, "/query/Product?limit=0").status_code == 400
    assert 'value="cheap"' in visit(app, "/query/Product?field=price&op=%3C&value=cheap").text


def test_a_refused_scan_shows_what_would_serve_it_and_can_be_allowed(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = visit(app, "/query/Product?where=name==%3Db-7")
    assert page.status_code == 400
    assert "by_name = tm.Index[str]" in page.text
    (allow,) = [one for one in links(page) if "scan=1" in one]
    assert "b-7" in visit(app, allow).text
    assert numbers(asked(app, "where=name==%3Db-7&scan=1")) == [7]
    monkeypatch.setattr(query_page, "EXAMINED", 10)
    assert asked(app, "where=name==%3Db-7&scan=1")["stopped"]
    assert 'id="stopped"' in visit(app, "/query/Product?where=name==%3Db-7&scan=1").text


def test_rows_come_as_a_file(app: Any) -> None:
    answer = visit(app, "/export/Product.csv?where=category==books&where=number<3")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["x-limit"] == "10000"
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0] == ["category", "number", "name", "price", "tags", "at"]
    assert rows[3] == ["books", "2", "'=b-2", "1", '["x","y, z"]', "2026-01-01T00:00:00.000000Z"]  # (no formula)
    lines = visit(app, "/export/Product.jsonl?where=category==books&limit=2").text.splitlines()
    assert [json.loads(one)["number"] for one in lines] == [0, 1]
    assert visit(app, "/export/Product.csv?limit=1000000").headers["x-limit"] == "100000"
    assert visit(app, "/export/Product.csv?where=name==x").status_code == 400
    assert visit(app, "/export/Nothing.csv").status_code == 404
    page = visit(app, "/query/Product?where=category==books")
    assert "/export/Product.csv?where=category%3D%3Dbooks" in links(page)


def test_a_file_that_ends_early_says_why_at_its_end(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_page, "_MOST_EXPORTED", 10)
    rows = list(
        csv.reader(
            io.StringIO(visit(app, "/export/Product.csv?where=category==books&where=name startswith %3Db-1").text)
        )
    )
    assert [row[1] for row in rows[1:-1]] == ["1"]
    assert rows[-1][0].startswith("QueryStopped: ")
    lines = visit(app, "/export/Product.jsonl?where=category==books&where=name startswith %3Db-1").text.splitlines()
    assert len(lines) == 2
    assert json.loads(lines[-1])["fault"].startswith("QueryStopped: ")


def test_the_model_is_drawn_and_written(app: Any) -> None:
    for url in ("/", "/model"):
        page = visit(app, url).text
        assert '<svg viewBox="' in page
        assert "by_tag" in page
    assert "● Total" in visit(app, "/model?format=json").json()["text"]


def test_partitions_and_statistics_are_those_of_the_store(app: Any, store: tm.Store) -> None:
    assert visit(app, "/partitions/Product?format=json").json()["partitions"]["largest"][0]["entities"] == 60
    assert "/entities/Product?partition=books" in links(visit(app, "/partitions/Product"))
    sizes = visit(app, "/statistics/Product?format=json").json()
    assert sizes["bytes"] == store.statistics(store.classes["Product"]).bytes
    text = visit(app, "/statistics/Product").text
    assert "by_price" in text
    assert "60" in text
    assert visit(app, "/statistics/Total").status_code == 200
    assert visit(app, "/partitions/Nothing").status_code == 404


def test_advice_is_that_of_the_store(app: Any, store: tm.Store) -> None:
    wanted = [one.code for one in store.advise()]
    assert [one["code"] for one in visit(app, "/advice?format=json").json()["advice"]] == wanted
    assert visit(app, "/advice").status_code == 200


def test_advice_judges_the_calls_of_the_program(tmp_path: Path) -> None:
    work = tm.Workload()
    with tm.open(tmp_path / "calls.db", models=[Product], observe=work) as store:
        for _ in range(10):
            store.query(Product).where(Product.number == 3).allow_scan().first()
        assert visit(tm.inspector(store), "/advice?format=json").json()["advice"] == []
        (one,) = visit(tm.inspector(store, workload=work), "/advice?format=json").json()["advice"]
        assert (one["code"], one["where"]) == ("TM201", "Product")


def test_an_empty_class_has_all_pages(tmp_path: Path) -> None:
    with tm.open(tmp_path / "x.db", models=[Product, Total]) as store:
        app = tm.inspector(store)
        for page in ("query", "partitions", "statistics", "entities"):
            for name in ("Product", "Total"):
                assert visit(app, f"/{page}/{name}").status_code == 200


def test_no_page_of_a_question_has_more_than_200_rows(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_page, "_MOST_ROWS", 20)
    assert len(numbers(asked(app, "limit=1000000"))) == 20
    monkeypatch.undo()
    assert query_page._MOST_ROWS == 200


def test_what_reads_much_is_made_by_one_request_at_a_time() -> None:
    kept, going, free = TimedCache(), [0, 0], threading.Event()

    def make() -> str:
        going[0] += 1
        going[1] = max(going)
        free.wait(0.1)
        going[0] -= 1
        return "made"

    with ThreadPoolExecutor(4) as pool:
        assert [value for value, _ in pool.map(lambda name: kept.get(name, make), "abcd")] == ["made"] * 4
    assert going == [0, 1]


def test_what_keeps_others_waiting_ends(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_pages, "_LONGEST", -1.0)
    for url in ("/advice", "/statistics/Product"):
        page = visit(app, url)
        assert (page.status_code, "from a shell: tablemapper" in page.text) == (503, True)


def test_statistics_are_kept_for_a_minute(app: Any, store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = visit(app, "/statistics/Product?format=json").json()["at"]
    assert visit(app, "/partitions/Product?format=json").json()["at"] == first
    first = visit(app, "/advice?format=json").json()
    monkeypatch.setattr(tm.Store, "advise", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(tm.Store, "statistics", lambda *_, **__: 1 / 0)
    assert visit(app, "/advice?format=json").json() == first
    assert visit(app, "/statistics/Product").status_code == 200
    assert views.SECONDS == 2.0
