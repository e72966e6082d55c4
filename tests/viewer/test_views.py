"""What the pages of the inspector show, over a file that was opened without its models."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.driver.connections import FORMAT_VERSION
from tablemapper.evolution import spec_compiler
from tablemapper.pieces import size_in_pieces
from tests.classes import entity
from tests.engines.azure.memory import Memory
from tests.engines.azure.place import AzurePlace
from tests.viewer.visits import links, visit

from ..classes import grouped


def product(**body: Any) -> Any:
    """Return the class of products, with more fields and indexes."""
    fields = {
        "category": str,
        "number": int,
        "name": (str, tm.field(default="")),
        "price": (Decimal | None, tm.field(default=None)),
    }
    fields |= {"tags": (list[str], tm.field(factory=list)), "cover": (bytes, tm.field(default=b""))}
    fields |= {
        "text": (str, tm.field(default="")),
        **{name: one for name, one in body.items() if isinstance(one, tuple)},
    }
    indexes = {name: one for name, one in body.items() if isinstance(one, tm.Index)}
    return entity("Product", "Products", fields, tm.Key[str, int](partition="{category}", row="{number}"), **indexes)


BY_NAME = {"by_name": tm.Index[str](partition="{name}", unique=True)}
Product = product(**BY_NAME)


Total = grouped("Total", Product, "category", "Totals", number=tm.count())


MODELS = [Product, Total]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "shop.db"
    with tm.open(place, models=MODELS) as store:
        store.insert_many(
            Product("books", n, f"b-{n}", price=Decimal(n), tags=["x", "y"][:n], cover=b"\x00\xff") for n in range(5)
        )
        store.insert(Product("a/b c?&", 1))
    return place


@pytest.fixture
def app(place: Path) -> Iterator[Any]:
    with tm.open(place, read_only=True) as store:
        yield tm.inspector(store, title="shop.db")


def json(app: Any, url: str, code: int = 200) -> Any:
    answer = visit(app, f"{url}{'&' if '?' in url else '?'}format=json")
    assert answer.status_code == code
    assert answer.headers["content-type"].startswith("application/json")
    return answer.json()


def test_the_overview_lists_classes_with_what_they_hold(app: Any) -> None:
    found = json(app, "/")
    assert found["title"] == "shop.db"
    assert found["classes"] == [
        {
            "name": "Product", "kind": "entities", "table": "Products", "entities": 6, "at_least": False,
            "indexes": [{"name": "by_name", "table": "ProductsByName", "state": "ready"}],
        },
        {"name": "Total", "kind": "aggregate", "table": "Totals", "entities": 2, "at_least": False, "indexes": []},
    ]  # fmt: skip
    page = visit(app, "/")
    assert 'id="classes"' in page.text
    assert {"/class/Product", "/entities/Product", "/class/Total"} <= set(links(page))


def test_the_overview_counts_what_the_declarations_are_warned_of(app: Any, tmp_path: Path) -> None:
    class Setting(tm.Entity, table="Settings"):
        name: tm.Field[str]
        key = tm.Key[str](partition="all", row="{name}")

    assert json(app, "/")["warnings"] == 0
    with tm.open(tmp_path / "settings.db", models=[Setting]) as store:
        assert json(tm.inspector(store), "/")["warnings"] == 1
        assert '<a class="run" href="/advice">1</a>' in visit(tm.inspector(store), "/").text


def test_the_overview_says_how_large_the_file_is_and_what_nothing_declares_any_more(app: Any, place: Path) -> None:
    found = json(app, "/")
    assert (found["format"], found["bytes"] % 4096, found["undeclared"]) == (FORMAT_VERSION, 0, [])
    assert found["bytes"] > 4096
    page = visit(app, "/").text
    assert f"in format {FORMAT_VERSION}</dt><dd>" in page
    assert 'id="undeclared"' not in page
    tm.open(place, models=[product()]).close()
    assert json(app, "/")["undeclared"] == ["Product.by_name"]
    assert "Product.by_name" in visit(app, "/").text.split('id="undeclared"')[1]
    assert "Not declared any more: Product.by_name" in visit(app, "/class/Product").text


def test_a_class_that_only_its_code_can_read_is_shown_as_text_and_says_why(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kind = spec_compiler._kind

    def fail(form: Any) -> Any:
        if form.type == "bytes":
            raise ValueError("there is no type <bytes>")
        return kind(form)

    monkeypatch.setattr(spec_compiler, "_kind", fail)
    with tm.open(place, read_only=True) as store:
        assert (list(store.classes), list(store.uncompiled)) == ([], ["Product", "Total"])
        app = tm.inspector(store)
        page = visit(app, "/")
        assert page.status_code == 200
        assert "there is no type &lt;bytes&gt;" in page.text
        assert "&#34;PartitionKey&#34;" in page.text or "&#34;cover&#34;" in page.text
        assert "Product cannot be read" in json(app, "/")["uncompiled"]["Total"]
        missing = visit(app, "/entities/Product")
        assert (missing.status_code, "cannot be read without its class" in missing.text) == (404, True)
        assert visit(app, "/status").status_code == 200
    assert "Product cannot be read without its class: there is no type <bytes>" in caplog.messages


def test_counts_stop(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablemapper.viewer.views.MAX_COUNTED", 3)
    first = json(app, "/")["classes"][0]
    assert (first["entities"], first["at_least"]) == (3, True)
    assert "3 or more" in visit(app, "/").text


def test_a_class_shows_its_declaration(app: Any) -> None:
    found = json(app, "/class/Product")
    assert (found["table"], found["key"], found["aggregates"]) == ("Products", ["{category}", "{number}"], ["Total"])
    assert {one["name"]: one["type"] for one in found["fields"]} == {
        "category": "str", "number": "int", "name": "str", "price": "Decimal | None", "tags": "list[str]", "cover": "bytes",
        "text": "str",
    }  # fmt: skip
    assert [(one["name"], one["unique"], one["state"]) for one in found["indexes"]] == [("by_name", True, "ready")]
    page = visit(app, "/class/Product").text
    assert all(text in page for text in ("ProductsByName", "{category}", 'id="fields"', 'id="indexes"'))
    assert found["write"] == {"rows": 3, "most_rows": 100, "properties": 5, "most_properties": 252}
    assert found["example"] == {"key": ["a/b c?&".replace("/", ".~").replace("?", ">~"), "a1"], "by_name": ["", ""]}
    assert 'by_name = tm.Index[str](partition="{name}", unique=True)' in found["source"]
    assert "group_by(Product.category)" in json(app, "/class/Total")["source"]
    pasted: dict[str, Any] = {"__name__": "pasted"}
    for name in ("Product", "Total"):  # (an aggregate names its class)
        exec(json(app, f"/class/{name}")["source"], pasted)
    assert pasted["Product"].key("a", 1) == (pasted["Product"], "a", "a1")


def test_pages_of_entities_follow_each_other_to_the_end(app: Any) -> None:
    seen, url, pages = [], "/entities/Product?size=4", 0
    while url:
        seen += [(one["PartitionKey"], one["RowKey"]) for one in json(app, url)["entities"]]
        following = [one for one in links(visit(app, url)) if "after=" in one and one.startswith("/")]
        url, pages = (following or [""])[0], pages + 1
    assert pages == 2
    assert len(set(seen)) == len(seen) == 6
    assert seen == sorted(seen)


def test_a_damaged_row_shows_its_fault_and_others_their_values(place: Path) -> None:
    with closing(apsw.Connection(str(place))) as file:
        file.execute("update Products set price = 'x' where PartitionKey = 'books' and RowKey = 'a3'")
    with tm.open(place, read_only=True) as store:
        app = tm.inspector(store)
        first = json(app, "/entities/Product?size=4")
        rest = json(app, f"/entities/Product?size=4&after={first['next']}")
        rows = [*first["entities"], *rest["entities"]]
        assert [row["RowKey"] for row in rows] == ["a1", "a0", "a1", "a2", "a3", "a4"]
        assert "cannot be read" in rows[4]["fault"]
        assert [row.get("number") for row in rows] == [1, 0, 1, 2, None, 4]
        for url in ("/entities/Product", "/query/Product?where=category==books", "/query/Product?where=name==b-3"):
            page = visit(app, url)
            assert page.status_code == 200
            assert "cannot be read" in page.text
        page = visit(app, "/entity/Product?p=books&r=a3")
        assert (page.status_code, "cannot be read" in page.text) == (200, True)
        found = json(app, "/entity/Product?p=books&r=a3")["entity"]
        assert (found["PartitionKey"], found["RowKey"], "('books', 'a3')" in found["fault"]) == ("books", "a3", True)
        assert visit(app, "/entity/Product?p=books&r=a9").status_code == 404
        assert visit(app, "/").status_code == 200
        lines = visit(app, "/export/Product.jsonl?where=category==books").text.splitlines()
        read = [msgspec.json.decode(line) for line in lines]
        assert [one.get("number") for one in read] == [0, 1, 2, None, 4]
        assert (read[3]["PartitionKey"], read[3]["RowKey"]) == ("books", "a3")
        table = visit(app, "/export/Product.csv?where=category==books").text.splitlines()
        assert [line.partition(",")[0] for line in table[:4]] == ["category", "books", "books", "books"]
        assert "the row with the key ('books', 'a3') cannot be read" in table[4]
        assert len(table) == 6


def test_one_partition_is_shown_alone(app: Any) -> None:
    assert {one["category"] for one in json(app, "/entities/Product?partition=books")["entities"]} == {"books"}
    assert json(app, "/entities/Product?partition=none") == {"title": "shop.db", "entities": [], "next": None}
    assert 'id="empty"' in visit(app, "/entities/Product?partition=none").text


def test_values_have_their_looks(app: Any) -> None:
    page = visit(app, "/entities/Product").text
    assert '<span class="tag">x</span><span class="tag">y</span>' in page
    assert '<td class="none">–</td>' in page
    assert '<td class="none">""</td>'.replace('"', "&#34;", 0).replace('""', "&#34;&#34;") in page
    assert '<td class="none">[]</td>' in page
    assert '<td class="k">00 ff</td>' in page
    assert '<td class="n">4</td>' in page


def test_the_link_of_a_row_leads_to_its_entity_whatever_its_key_is(app: Any) -> None:
    found = [one for one in links(visit(app, "/entities/Product")) if one.startswith("/entity/Product?")]
    assert len(found) == 6
    shown = [json(app, one)["entity"] for one in found]
    assert [one["category"] for one in shown] == ["a/b c?&", *["books"] * 5]


def test_an_entity_is_shown_whole_with_types_bytes_and_etag(app: Any, place: Path) -> None:
    with tm.open(place, read_only=True) as store:
        wanted: Any = next(iter(store.query(store.classes["Product"]).allow_scan()))
        size, etag = tm.size(wanted), tm.info(wanted).etag
    url = next(one for one in links(visit(app, "/entities/Product")) if one.startswith("/entity/Product?"))
    found = json(app, url)
    assert (found["size"], found["entity"]["odata.etag"]) == (size, etag)
    page = visit(app, url).text
    assert f"<dd>{size}</dd>" in page
    assert "<td>Binary</td>" in page
    found = json(app, "/entity/Product?p=books&r=a3")
    assert found["indexes"] == [{"index": "by_name", "key": ["b-3", ""], "where": ["name == b-3"]}]
    assert found["groups"] == [{"aggregate": "Total", "key": ["books", ""]}]
    around = links(visit(app, "/entity/Product?p=books&r=a3"))
    assert json(app, next(one for one in around if "where=" in one))["rows"][0]["RowKey"] == "a3"
    assert json(app, next(one for one in around if one.startswith("/entity/Total")))["entity"]["number"] == 5


def test_long_values_are_cut_in_tables_and_not_on_their_own_page(place: Path) -> None:
    with tm.open(place, models=MODELS) as store:
        store.insert(Product("long", 1, "long", text="m" * 30_000))
        app = tm.inspector(store)
        assert "m" * 200 + "… 30,000 characters" in visit(app, "/entities/Product").text
        url = next(
            one for one in links(visit(app, "/entities/Product?partition=long")) if one.startswith("/entity/Product?")
        )
        assert "m" * 30_000 in visit(app, url).text


def test_a_page_has_at_most_two_megabytes(place: Path) -> None:
    with tm.open(place, models=MODELS) as store:
        store.insert_many(Product("long", n, f"long {n}", text="<" * 30_000) for n in range(100))
        app = tm.inspector(store)
        for url in ("/entities/Product?size=200", "/entities/Product?size=200&format=json"):
            answer = visit(app, url)
            assert answer.status_code == 200
            assert len(answer.content) <= 2 * 1024 * 1024


@pytest.mark.parametrize(
    ("url", "code", "text"),
    [
        ("/nothing", 404, "no such page"), ("/class/Nope", 404, "there are Product, Total"),
        ("/entities/Nope", 404, "no class"), ("/entity/Product?p=x&r=y", 404, "has the key"),
        ("/entity/Product", 404, "has the key"), ("/entities/Product?size=0", 400, "expected a number"),
        ("/entities/Product?size=-1", 400, "expected a number"),
        ("/entities/Product?size=ten", 400, "expected a number"),
        ("/entities/Product?size=", 400, "expected a number"), ("/entities/Product?size=²", 400, "expected a number"),
        ("/entities/Product?after=forged", 400, "First page"),
        ("/entities/Product?after=forged", 400, "InvalidToken: &lt;Query Product&gt;"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(app: Any, url: str, code: int, text: str) -> None:
    page = visit(app, url)
    assert page.status_code == code
    assert text in page.text
    assert "error" in json(app, url, code)


def test_the_size_of_a_large_value_is_that_of_all_its_pieces() -> None:
    class Note(tm.Entity, table="Notes"):
        id: tm.Field[str]
        body: tm.Field[str] = tm.field(large=True)
        key = tm.Key[str](partition="{id}")

    with tm.open(":memory:", models=[Note]) as store:
        store.insert(note := Note("a", "x" * 100_000))
        app = tm.inspector(store)
        url = next(one for one in links(visit(app, "/entities/Note")) if one.startswith("/entity/Note?"))
        page = visit(app, url).text.replace("\u202f", "").replace(",", "")
        assert f'<td class="n">{size_in_pieces("body", note.body)}</td>' in page
        assert f"<dd>{tm.size(note)}</dd>" in page


@pytest.mark.parametrize("size", ["201", "1000000", "9" * 3000])
def test_a_size_above_the_most_is_clipped(place: Path, size: str) -> None:
    with tm.open(place, models=MODELS) as store:
        store.insert_many(Product("many", n, f"n{n}") for n in range(250))
        assert len(json(tm.inspector(store), f"/entities/Product?size={size}")["entities"]) == 200


def test_the_status_of_a_build_moves_and_asks_to_be_loaded_again(place: Path, never_at_once: None) -> None:
    priced = product(**BY_NAME, by_price=tm.Index[Decimal](partition="{price}"))
    with tm.open(place, models=[priced], build=False) as store:
        app = tm.inspector(store)
        loads = [visit(app, "/status")]
        store.build(limit=2)
        loads.append(visit(app, "/status"))
        assert [one.headers.get("refresh") for one in loads] == ["2", "2"]
        assert loads[0].text != loads[1].text
        assert "building" in loads[1].text
        store.build()
        done = visit(app, "/status")
        assert "refresh" not in done.headers
        assert "building" not in done.text


def test_the_status_says_that_a_store_is_frozen(place: Path) -> None:
    with tm.open(place, models=MODELS) as store:
        assert json(tm.inspector(store), "/status")["frozen"] is None
        store.freeze()
        assert "Frozen since 20" in visit(tm.inspector(store), "/status").text
        assert json(tm.inspector(store), "/status")["frozen"].startswith("20")
        assert "frozen" in store.status()._repr_html_()  # type: ignore[attr-defined]


class Outline(HTMLParser):
    """What a reader of the screen gets to know of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.within: list[str] = []
        self.labelled = set[str]()
        self.wrapped = set[int]()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if "label" in self.within:
            self.wrapped.add(len(self.tags))
        self.tags.append((tag, dict(attributes)))
        if tag == "label":
            self.within.append(tag)
            self.labelled.add(dict(attributes).get("for") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.within:
            self.within.remove(tag)


@pytest.mark.parametrize(
    "url",
    ["/", "/model", "/status", "/advice", "/class/Product", "/entities/Product", "/entity/Product?p=books&r=a3",
     "/query/Product?where=category==books", "/query/Product?where=x", "/partitions/Product", "/statistics/Product", "/no"],
)  # fmt: skip
def test_a_page_can_be_read_aloud(app: Any, url: str) -> None:
    page = Outline(visit(app, url).text)
    (html,) = [attributes for tag, attributes in page.tags if tag == "html"]
    assert html["lang"] == "en"
    assert "title" in [tag for tag, _ in page.tags]
    levels = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    assert levels.count(1) == 1
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    assert '"></th>' not in visit(app, url).text
    for table in visit(app, url).text.split('<div class="wide"')[1:]:  # (what scrolls can be reached by keyboard)
        assert "<a " in table.partition("</table>")[0] or table.startswith(' tabindex="0" role="region" aria-label="')
    for at, (tag, attributes) in enumerate(page.tags):
        if tag in ("input", "select") and attributes.get("type") != "hidden":
            named = "aria-label" in attributes or attributes.get("id") in page.labelled or at in page.wrapped
            assert named, attributes
        if tag == "svg":
            assert "aria-hidden" in attributes or "aria-label" in attributes


def test_a_page_between_two_states_of_the_catalogue_is_made_again(place: Path) -> None:
    wider = product(more=(str, tm.field(default="")), **BY_NAME)
    with tm.open(place, read_only=True) as store:
        app, query, asked = tm.inspector(store), store.query, list[str]()

        def slowly(cls: Any, /) -> Any:
            if not asked:  # another page looks at the new classes before this one asks for its own
                tm.open(place, models=[wider]).close()
                assert hasattr(store.classes["Product"], "more")
            asked.append(cls.__name__)
            return query(cls)

        store.query = slowly  # type: ignore[method-assign, assignment]
        page = visit(app, "/entities/Product")
        assert (page.status_code, asked) == (200, ["Product", "Product"])
        assert ">more</a><br>" in page.text


def test_links_are_relative_to_where_it_is_mounted(place: Path) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    with tm.open(place, read_only=True) as store:
        outer = Starlette(routes=[Mount("/a/b", tm.inspector(store))])
        for url in ("/a/b/", "/a/b/entities/Product?size=2", "/a/b/class/Product", "/a/b/status", "/a/b/nothing"):
            found = [one for one in links(visit(outer, url)) if not one.startswith("?")]
            assert found
            assert [one for one in found if not one.startswith("/a/b/")] == []
            followed = [one for one in found if "order=" not in one and not one.endswith("/entity/Product")]
            assert {visit(outer, one).status_code for one in followed} == {200}


def test_it_never_writes(place: Path) -> None:
    before = place.read_bytes()
    with tm.open(place, read_only=True) as store:
        app = tm.inspector(store)
        for url in ("/", "/status", "/class/Product", "/entities/Product", "/entities/Total", "/entity/Total?p=books"):
            assert visit(app, url).status_code == 200
    assert place.read_bytes() == before
    assert not any(path.stat().st_size for path in place.parent.iterdir() if path.name.endswith("-wal"))


async def test_a_store_of_asyncio_is_shown_too(place: Path) -> None:
    import httpx

    async with tm.open_async(place, read_only=True) as store:
        transport = httpx.ASGITransport(app=tm.inspector(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            assert len((await client.get("/entities/Product?format=json")).json()["entities"]) == 6


@pytest.mark.parametrize(
    ("given", "error"), [((None, None), TypeError), (("store", 5), TypeError), (("store", ""), ValueError)]
)
def test_what_is_no_store_or_token_is_refused(place: Path, given: Any, error: type[Exception]) -> None:
    with tm.open(place, read_only=True) as store, pytest.raises(error, match="inspector"):
        tm.inspector(store if given[0] else None, token=given[1])


def test_a_missing_package_says_which_extra() -> None:
    program = (
        "import sys; sys.modules['starlette'] = None\nimport tablemapper as tm\n"
        "class A(tm.Entity, table='Aaa'):\n    a: tm.Field[str]\n    key = tm.Key[str](partition='{a}')\n"
        "assert 'jinja2' not in sys.modules\n"
        "try: tm.inspector(tm.open(':memory:', models=[A]))\nexcept ModuleNotFoundError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'tablemapper[inspect]'" in done.stdout


def test_what_the_pages_are_made_of_is_in_the_package() -> None:
    from fnmatch import fnmatch
    from tomllib import loads

    root = Path(__file__).parents[2]
    listed = loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["tablemapper"]
    viewer = root / "tablemapper" / "viewer"
    files = [one for one in viewer.rglob("*") if one.is_file() and one.suffix not in (".py", ".pyc")]
    assert len(files) > 5
    for one in files:
        path = one.relative_to(root / "tablemapper").as_posix()
        assert any(fnmatch(path, pattern) for pattern in listed), path


def test_each_page_of_an_account_of_azure_is_shown_or_says_what_is_not_possible() -> None:
    place: Any = AzurePlace(memory=Memory())
    with tm.open(place, models=MODELS) as store:
        store.insert_many(Product("books", n, f"b-{n}", price=Decimal(n)) for n in range(3))
    with tm.open(place, read_only=True) as store:
        app, seen, left = tm.inspector(store), set[str](), ["/"]
        while left:
            url = left.pop()
            if (path := url.partition("?")[0]) in seen:  # (not in each order of each field)
                continue
            seen.add(path)
            page = visit(app, url)
            assert page.status_code == 200 or "not possible on Azure Tables" in page.text, (url, page.text)
            if "html" in page.headers["content-type"]:
                left += [one for one in links(page) if one.startswith("/")]
        assert {"/entities/Product", "/class/Total", "/status", "/model", "/advice"} <= seen
        assert visit(app, "/entities/Product").text.count("b-2") > 0
