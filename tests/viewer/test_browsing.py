"""The way through the rows of the inspector: pages, orders, columns, keys, totals, counts, and the Python to copy."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

import tablemapper as tm
from tablemapper.cli.app import load_models
from tablemapper.viewer import query_page, snippets, summaries, typed_conditions
from tests.viewer.visits import links, visit

from ..classes import entity, grouped
from ..cli import everything
from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace


class Product(tm.Entity, table="Products"):
    category: tm.Field[str]
    number: tm.Field[int]
    maker: tm.Field[str | None] = tm.field(default=None)
    price: tm.Field[Decimal] = tm.field(default=Decimal(0))
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{category}", row="{number}")
    by_price = tm.Index[Decimal](partition="{price}")


Total = grouped("Total", Product, "category", "Totals", number=tm.count())
MAKERS = ["Ace", "Bolt & Co", None, ' "quoted" ']
STOCK = [
    Product(category, number, MAKERS[number % 4], Decimal(number % 7), ["x", "y, z"][: number % 3])
    for category in ("books", "games")
    for number in range(30)
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "shop.db", models=[Product, Total]) as store:
        store.insert_many(tm.from_dict(Product, tm.to_dict(product)) for product in STOCK)
    return tmp_path / "shop.db"


@pytest.fixture
def store(place: Path) -> Iterator[tm.Store]:
    with tm.open(place, read_only=True) as store:
        yield store


@pytest.fixture
def app(store: tm.Store) -> Any:
    return tm.inspector(store, title="shop.db")


def url(**params: Any) -> str:
    return f"/query/Product?{httpx.QueryParams(params)}"


def found(app: Any, address: str, code: int = 200) -> Any:
    answer = visit(app, f"{address}&format=json")
    assert answer.status_code == code, answer.text
    return answer.json()


def following(address: str, link: str) -> str:
    """Return where a link of a page leads to."""
    return str(httpx.URL(f"http://x{address}").join(html.unescape(link))).removeprefix("http://x")


def by_text(page: httpx.Response, address: str, text: str) -> str:
    """Return where the only link with a text leads to."""
    (link,) = re.findall(rf'<a [^>]*?href="([^"]*)"[^>]*>{re.escape(text)}', page.text)
    return following(address, link)


@pytest.mark.parametrize(
    "params",
    [
        {"limit": 7}, {"where": "category==books", "limit": 7}, {"where": "category==books", "order": "-price", "limit": 4},
        {"where": "tags contains x", "order": "maker,-number", "scan": 1, "limit": 11}, {"partition": "games", "limit": 200},
        {"order": "price", "scan": 1, "limit": 13, "show": "price"},
    ],
)  # fmt: skip
def test_pages_of_a_question_follow_each_other_to_the_end(app: Any, store: tm.Store, params: dict[str, Any]) -> None:
    whole = found(app, url(**params | {"limit": 200}))["rows"]
    rows, address = [], url(**params)
    while address:
        answer = found(app, address)
        assert 0 < len(answer["rows"]) <= params["limit"]
        rows += answer["rows"]
        page = visit(app, address)
        assert (answer["next"] is not None) == answer["more"] == ("there are more" in page.text)
        address = by_text(page, address, "Next") if answer["more"] else ""
    assert rows == whole
    assert "after=" not in by_text(page, url(**params), "First")


def test_a_page_that_ends_early_leads_on_behind_what_it_read(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_page, "EXAMINED", 10)
    address, numbers, stops = url(where=["category==books", "price==1"], order="number"), [], 0
    address = url(partition="books", where="price<2", limit=8)
    while address:
        answer = found(app, address)
        numbers += [row["number"] for row in answer["rows"]]
        stops += answer["stopped"] is not None
        page = visit(app, address)
        assert ("Go on" in page.text) == bool(answer["stopped"] and answer["next"])
        address = by_text(page, address, "Go on" if answer["stopped"] else "Next") if answer["next"] else ""
    assert numbers == [number for number in range(30) if number % 7 < 2]
    assert stops > 1


def test_the_token_of_another_question_leads_back_to_its_first_page(app: Any) -> None:
    token = found(app, url(partition="books", limit=2))["next"]
    address = url(partition="games", limit=2, after=token)
    page = visit(app, address)
    assert page.status_code == 400
    first = by_text(page, address, "First page")
    assert (first, visit(app, first).status_code) == (url(partition="games", limit=2), 200)


def test_a_head_orders_by_its_column_and_then_the_other_way_round(app: Any) -> None:
    address = url(partition="books", where="number<9", show=["number", "price"], limit=5)
    address = by_text(visit(app, address), address, "price")
    assert "aria-sort" not in visit(app, url(partition="books")).text
    for order, sort, prices in (("price", "ascending", [0, 0, 1, 1, 2]), ("-price", "descending", [6, 5, 4, 3, 2])):
        page = visit(app, address)
        assert httpx.URL(f"http://x{address}").params["order"] == order
        assert re.findall(r'aria-sort="(\w+)"', page.text) == [sort]
        assert [int(row["price"]) for row in found(app, address)["rows"]] == prices
        address = by_text(page, address, "price")
    assert "order=price" in address
    heads = re.findall(r'<th scope="col"[^>]*>(?:<a[^>]*>)?(\w+)', visit(app, "/entities/Product?partition=books").text)
    assert heads == ["PartitionKey", "RowKey", "category", "number", "maker", "price", "tags"]
    link = by_text(visit(app, "/entities/Product?partition=books"), "/entities/Product", "maker")
    assert [row["category"] for row in found(app, link)["rows"]] == ["books"] * 30
    assert "order=tags" not in visit(app, "/entities/Product").text


def test_chosen_columns_are_those_of_the_page_the_program_and_the_files(app: Any) -> None:
    params = {"partition": "books", "where": "number<2", "show": ["price", "maker"]}
    assert found(app, url(**params))["rows"] == [
        {"PartitionKey": "books", "RowKey": f"a{number}", "price": f"{number}", "maker": MAKERS[number]}
        for number in (0, 1)
    ]
    page = visit(app, url(**params))
    assert re.findall(r"<small>([^<]+)</small></th>", page.text) == ["Decimal", "str | None"]
    assert re.findall(r'name="show" value="(\w+)" checked', page.text) == ["maker", "price"]
    files = [link for link in links(page) if "/export/" in link]
    rows = list(csv.reader(io.StringIO(visit(app, files[0]).text)))
    assert rows == [["price", "maker"], ["0", "Ace"], ["1", "Bolt & Co"]]
    lines = visit(app, files[1]).text.splitlines()
    assert [json.loads(one) for one in lines] == [{"price": "0", "maker": "Ace"}, {"price": "1", "maker": "Bolt & Co"}]
    assert "has no field 'nope'" in found(app, url(show="nope"), 400)["error"]
    assert 'id="fault"' in visit(app, url(show="nope")).text


def test_a_key_is_gone_to_by_its_values(app: Any) -> None:
    form = visit(app, "/entities/Product").text.partition('<form class="end" id="go"')[2].partition("</form>")[0]
    assert re.findall(r"<label>(\w+) <input", form) == ["category", "number"]
    assert found(app, "/entity/Product?key=games&key=7")["entity"]["RowKey"] == "a7"
    page = visit(app, "/entity/Product?key=games&key=77")
    assert page.status_code == 404
    assert by_text(page, "/entity/Product", "The entities of this partition") == "/entities/Product?partition=games"
    assert "expected 2 values" in found(app, "/entity/Product?key=games", 400)["error"]
    assert "is no int" in found(app, "/entity/Product?key=games&key=x", 400)["error"]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"total": "count"}, {(): 60}), ({"total": "sum", "of": "price", "partition": "games"}, {(): Decimal(85)}),
        ({"group": "category"}, {("books",): 30, ("games",): 30}), ({"total": "max", "of": "number"}, {(): 29}),
        (
            {"group": "maker", "total": "avg", "of": "number", "partition": "books"},
            {(None,): 14.0, (' "quoted" ',): 15.0, ("Ace",): 14.0, ("Bolt & Co",): 15.0},
        ),
        ({"group": "category, price", "where": "price>=5"}, {(c, Decimal(n)): 4 for c in ("books", "games") for n in (5, 6)}),
    ],
)  # fmt: skip
def test_totals_of_a_question_are_those_of_a_program(
    app: Any, store: tm.Store, params: dict[str, Any], expected: dict[Any, Any]
) -> None:
    address = url(**params | {"scan": 1})
    answer, page = found(app, address), visit(app, address)
    names = params.get("group", "").replace(" ", "").split(",") if "group" in params else []
    groups = {tuple(one["group"][name] for name in names): one["total"] for one in answer["groups"]}
    shown = {tuple(str(v) if isinstance(v, Decimal) else v for v in key): value for key, value in expected.items()}
    assert {key: type(shown[key])(total) for key, total in groups.items()} == shown
    source = html.unescape(page.text.split('id="python">')[1].split("</pre>")[0]).partition("\n\n")[2] or html.unescape(
        page.text.split('id="python">')[1].split("</pre>")[0]
    )
    names_of: dict[str, Any] = {"store": store, "Product": store.classes["Product"], "Decimal": Decimal, "tm": tm}
    total = eval(source, names_of)
    assert (total if names else {(): total}) == {
        key[0] if len(key) == 1 else key: value for key, value in expected.items()
    }
    assert answer["aggregate"] == ("Total" if params in ({"total": "count"}, {"group": "category"}) else None)


def test_a_total_reads_all_rows_that_it_is_of(app: Any) -> None:
    page = visit(app, url(partition="books", total="sum", of="price", limit=7)).text
    assert "30 of 60 rows are read" in page
    assert "7 of 60 rows are read" in visit(app, url(partition="books", limit=7)).text


def test_a_group_leads_to_its_entities(app: Any) -> None:
    address = url(group="maker", partition="books")
    page = visit(app, address)
    leads = [following(address, one) for one in re.findall(r'<a href="([^"]*)" aria-label="show', page.text)]
    counts = [one["total"] for one in found(app, address)["groups"]]
    assert [len(found(app, one)["rows"]) for one in leads] == counts
    assert len(leads) == 4
    assert "group" not in leads[0]
    top = following(address, re.findall(r'<a href="([^"]*top=1[^"]*)"', page.text)[0])
    assert [one["total"] for one in found(app, top)["groups"]] == sorted(counts, reverse=True)
    assert 'aria-sort="descending"' in visit(app, top).text


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"total": "sum"}, "name the field"), ({"total": "sum", "of": "maker"}, "only numbers"), ({"group": "tags"}, "group by a scalar"),
        ({"total": "median", "of": "price"}, "no total 'median'"), ({"group": "nope"}, "has no field"), ({"facet": "nope"}, "has no field"),
    ],
)  # fmt: skip
def test_totals_and_counts_that_there_are_not_are_said(app: Any, params: dict[str, str], said: str) -> None:
    assert said in found(app, url(**params), 400)["error"]
    assert 'id="fault"' in visit(app, url(**params)).text


def test_totals_keep_to_a_budget_and_to_a_number_of_groups(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "MOST_GROUPS", 3)
    monkeypatch.setattr(query_page, "MOST_GROUPS", 3)
    answer = found(app, url(group="number", partition="books"))
    assert (len(answer["groups"]), answer["more"]) == (3, True)
    assert "3 of 30 groups shown" in visit(app, url(group="number", partition="books")).text
    monkeypatch.setattr(query_page, "EXAMINED", 10)
    answer = found(app, url(group="number", partition="books"))
    assert (answer["groups"], "more than 10 rows" in answer["stopped"]) == ([], True)
    assert visit(app, url(where="maker==Ace", group="maker")).status_code == 400


def test_counts_by_value_are_those_of_the_question_and_lead_to_their_entities(app: Any, store: tm.Store) -> None:
    address = url(partition="books", facet=["maker", "tags", "price"])
    facets = found(app, address)["facets"]
    books = [product for product in STOCK if product.category == "books"]
    assert {one["value"]: one["count"] for one in facets["maker"]["values"]} == Counter(book.maker for book in books)
    assert {one["value"]: one["count"] for one in facets["tags"]["values"]} == {"x": 20, "y, z": 10}
    assert (facets["price"]["distinct"], facets["price"]["read"], facets["price"]["stopped"]) == (7, 30, None)
    page = visit(app, address)
    cards = page.text.partition('<div class="facets">')[2].partition('<div class="wide">')[0]
    leads = re.findall(r'<th [^>]*><a href="([^"]*)">.*?</th><td class="n">(\d+)', cards)
    assert len(leads) == 4 + 2 + 7
    for link, count in leads:
        assert len(found(app, following(address, link))["rows"]) == int(count), link


def test_an_entity_counts_once_for_an_element_that_its_list_repeats() -> None:
    with tm.open(":memory:", models=[Product, Total]) as store:
        store.insert_many([Product("books", 1, tags=["x", "x", "y"]), Product("books", 2, tags=["x"])])
        counts = found(tm.inspector(store), url(facet="tags"))["facets"]["tags"]["values"]
    assert counts == [{"value": "x", "count": 2}, {"value": "y", "count": 1}]


def test_counts_by_value_keep_to_a_budget_and_say_so(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_page, "EXAMINED", 12)
    facet = found(app, url(facet="maker", limit=3))["facets"]["maker"]
    assert (facet["read"], "more than 12 rows" in facet["stopped"]) == (12, True)
    assert "in the first 12 entities that were read" in visit(app, url(facet="maker", limit=3)).text


def test_a_question_over_damaged_rows_has_its_pages_and_says_why_there_is_no_total(place: Path) -> None:
    from ..sql import run_sql

    run_sql(place, "update Products set price = 'x' where PartitionKey = 'books' and RowKey = 'a3'")
    with tm.open(place, read_only=True) as store:
        app = tm.inspector(store)
        rows, after = list[Any](), None
        while not rows or after:
            answer = found(app, url(partition="books", limit=2, facet="price", **({"after": after} if after else {})))
            rows, after = [*rows, *answer["rows"]], answer["next"]
            assert "cannot be read" in answer["facets"]["price"]["stopped"]
        assert [row["RowKey"] for row in rows] == [f"{' ab'[len(str(number))]}{number}" for number in range(30)]
        assert "cannot be read" in rows[3]["fault"]
        answer = found(app, url(partition="books", total="sum", of="price"))
        assert (answer["groups"], "cannot be read" in answer["stopped"]) == ([], True)
        assert found(app, url(partition="books", total="count"))["groups"] == [{"group": {}, "total": 30}]


ODD = [
    "", " ", " x", "x ", '"', '"x"', "SEA and maker == UA", "a,b", "[1]", "null", "7", "a\nb", "a\0b", "é\u202e", "'", "==", "x\\", "2026-01-01", "true",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_what_a_page_writes_of_a_condition_reads_the_same_again(text: str) -> None:
    predicates = [
        Product.maker == text, Product.maker != text, Product.maker.startswith(text), Product.tags.contains(text),
        Product.maker.is_in([text, "x"]), Product.maker.is_null(), Product.price >= Decimal("1.50"),
    ]  # fmt: skip
    for predicate in predicates:
        typed = typed_conditions.typed(predicate)
        assert typed is not None
        again = typed_conditions.condition(Product, typed)
        assert typed_conditions.parts(again)[1:] == typed_conditions.parts(predicate)[1:]
        line = " ".join(typed_conditions.line(predicate))
        assert not set(line) & {"\n", "\0"}  # (which a form would lose)
        assert (
            typed_conditions.parts(typed_conditions.condition(Product, line))[1:]
            == typed_conditions.parts(predicate)[1:]
        )


def test_values_that_no_condition_says_have_none() -> None:
    assert typed_conditions.equal(Product.price, object()) is None
    assert typed_conditions.equal(Product.tags, [object()]) is None


@pytest.fixture
def everything_there() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=load_models(everything.__name__)) as store:
        store.insert_many(everything.entities())
        yield store


def pasted(page: str, store: tm.Store, name: str) -> None:
    """Run a write of a page, as a program does that has its own classes."""
    names = {**vars(everything), "store": store}
    exec(html.unescape(page.split(f'id="{name}">')[1].split("</pre>", maxsplit=1)[0]), names)


def test_the_writes_beside_an_entity_run_and_change_nothing_until_they_are_edited(everything_there: tm.Store) -> None:
    store, app = everything_there, tm.inspector(everything_there)
    for cls in store.classes.values():
        for one in list(store.query(cls).allow_scan()):
            key, name = one.key, cls.__name__
            address = f"/entity/{name}?{httpx.QueryParams({'p': key.partition, 'r': key.row})}"
            before = visit(app, address).text
            if issubclass(cls, tm.Aggregate):
                assert 'id="writes"' not in before
                continue
            verbs = re.findall(r'<pre class="copy" id="(\w+)">', before)
            assert verbs[-1] == "delete"
            for verb in verbs[:-1]:
                pasted(visit(app, address).text, store, verb)
                assert tm.to_dict(store[key]) == tm.to_dict(one), (verb, before)
            store.delete(key)
            store.insert(tm.from_dict(cls, tm.to_dict(one)))
            with pytest.raises(tm.PreconditionFailed):  # (the version that the page showed is gone)
                pasted(before, store, "delete")
            pasted(visit(app, address).text, store, "delete")
            assert store.get(key) is None
            store.insert(tm.from_dict(cls, tm.to_dict(one)))


def test_the_writes_beside_a_question_run(place: Path) -> None:
    with tm.open(place, models=[Product, Total]) as store:
        app = tm.inspector(store)
        before = [tm.to_dict(one) for one in store.query(Product).allow_scan()]
        page = visit(app, url(where=["category==books", "price<3"], order="-price", limit=1)).text
        names = {"store": store, "Product": Product}
        for verb, left in (("update", 60), ("delete", 60 - 14)):
            exec(html.unescape(page.split(f'id="{verb}">')[1].split("</pre>")[0]), dict(names))
            rows = [tm.to_dict(one) for one in store.query(Product).allow_scan()]
            assert len(rows) == left
            assert verb == "delete" or rows == before
        exec(
            html.unescape(visit(app, url(partition="games")).text.split('id="delete">')[1].split("</pre>")[0]),
            dict(names),
        )
        assert store.query(Product).where(Product.category == "games").count() == 0
        assert 'id="writes"' not in visit(app, url()).text  # (all that there is: nobody wants that by accident)
        assert 'id="writes"' not in visit(app, "/query/Total?where=category==books").text


class Stamped(tm.Entity, table="Stampeds"):
    id: tm.Field[str]
    at: tm.Field[datetime] = tm.field(on_write=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    colors: tm.Field[set[str]] = tm.field(factory=set)
    sizes: tm.Field[frozenset[int]] = tm.field(default=frozenset())
    place: tm.Field[tm.GeoPoint | None] = tm.field(default=None)

    key = tm.Key[str](partition="all", row="{id}")


def test_what_each_write_sets_is_no_argument_of_a_write() -> None:
    with tm.open(":memory:", models=[Stamped]) as store:
        stamped = Stamped("a", {"p"}, frozenset({1}), tm.GeoPoint(1.0, 2.0))
        store.insert_many([stamped, Stamped("b")])
        names = {"store": store, "Stamped": Stamped}
        address = f"/entity/Stamped?{httpx.QueryParams({'p': stamped.key.partition, 'r': stamped.key.row})}"
        for verb in ("merge", "replace"):
            page = visit(tm.inspector(store), address).text
            exec(html.unescape(page.split(f'id="{verb}">')[1].split("</pre>", maxsplit=1)[0]), dict(names))
            assert store[stamped.key] == stamped
        page = visit(tm.inspector(store), "/query/Stamped?where=id==a").text
        exec(html.unescape(page.split('id="update">')[1].split("</pre>", maxsplit=1)[0]), dict(names))
        assert store.query(Stamped).allow_scan().count() == 2


@pytest.mark.parametrize(
    "value", [float("inf"), -0.0, {"a": [1, {"b": None}]}, (1,), (1, 2), tm.Extra(x=1), b"\0", True, "it's", Decimal("1E+3")]
)  # fmt: skip
def test_a_literal_is_the_value(value: Any) -> None:
    source = snippets.literal(value)
    assert source is not None
    again = eval(source, {"tm": tm, "Decimal": Decimal})
    assert (repr(again), type(again)) == (repr(value), type(value))


def test_what_has_no_literal_is_left_out() -> None:
    assert snippets.literal(object()) is None
    assert snippets.literal([1, object()]) is None
    assert snippets.literal({"a": object()}) is None


def test_an_account_sorts_if_it_is_allowed_to() -> None:
    place: Any = AzurePlace(memory=Memory())
    with tm.open(place, models=[Product, Total]) as store:
        store.insert_many(Product("books", number, price=Decimal(-number)) for number in range(9))
        app = tm.inspector(store)
        address = url(partition="books", order="price", limit=4)
        page = visit(app, address)
        assert page.status_code == 400
        allowed = by_text(page, address, "Read all rows")
        rows, address = [], allowed
        while address:
            rows += found(app, address)["rows"]
            page = visit(app, address)
            address = by_text(page, address, "Next") if "there are more" in page.text else ""
        assert [row["number"] for row in rows] == list(range(8, -1, -1))
        assert ".allow_sort()" in page.text


def test_thousands_of_classes_have_their_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = [
        entity(f"Class{number}", f"Table{number}", {"a": str, "b": str}, tm.Key[str, str](partition="{a}", row="{b}"))
        for number in range(150)
    ]
    with tm.open(tmp_path / "many.db", models=classes) as store:
        app = tm.inspector(store)
        monkeypatch.setattr("tablemapper.viewer.asgi._LARGEST", 100_000)
        page = visit(app, "/")
        assert page.status_code == 200
        assert len(page.content) <= 100_000
        assert "/entities/Class0" in links(page)
        seen, address = set[str](), "/"
        while address:
            page = visit(app, address)
            seen |= {one for one in links(page) if one.startswith("/entities/")}
            address = by_text(page, address, "Next classes") if "Next classes" in page.text else ""
        assert len(seen) == len(classes)
        assert len(visit(app, "/status").content) <= 100_000
        monkeypatch.setattr("tablemapper.viewer.views.SECONDS", -1.0)
        assert "not counted" in visit(app, "/").text
