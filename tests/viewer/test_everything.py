"""Pages and files over one class with a field of every kind, and over texts and keys that nobody would see."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

import tablemapper as tm
from tablemapper.cli.app import load_models
from tablemapper.interchange.json import field_values, to_dict
from tablemapper.viewer import store_pages

from ..classes import entity
from ..cli import everything
from .visits import links, visit


@pytest.fixture(scope="module")
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=load_models(everything.__name__)) as store:
        store.insert_many(everything.entities())
        yield store


@pytest.fixture
def app(store: tm.Store) -> Any:
    return tm.inspector(store, title="all.db")


def cells(page: str, table: str) -> list[list[str]]:
    """Return the texts of a table's cells, row by row, without its heads."""
    body = page.partition(f'id="{table}"')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in body.split("<tr>")[1:]]
    return [[re.sub("<[^>]*>", "", cell).replace("&#34;", '"') for cell in row] for row in rows]


def test_every_page_shows_a_class_of_every_kind_of_field(app: Any, store: tm.Store) -> None:
    for name in store.classes:
        for page in ("class", "entities", "query", "partitions", "statistics"):
            assert visit(app, f"/{page}/{name}").status_code == 200, (page, name)
    heads = re.findall(r'<th scope="col"[^>]*>(?:<a [^>]*>)?(\w+)(?:</a>)?<br>', visit(app, "/entities/Part").text)
    assert heads.index("more") == 5
    for url, table in (("/entities/Part", "entities"), ("/query/Part?where=bin==a", "rows")):
        rows = [dict(zip(heads, row[2:], strict=True)) for row in cells(visit(app, url).text, table)]
        assert [row["number"] for row in rows] == ["1", "2", "3"]
        assert [row["more"][:15] for row in rows] == ["{}", '{"big@odata.typ', '{"two":"2"}'], url
        assert [row["created"] for row in rows] == ["2026-03-01T12:00:00Z"] * 3
        assert rows[1]["small"] == "3"
    link = next(one for one in links(visit(app, "/entities/Part")) if "r=a2" in one)
    shown = {row[0]: row[-1] for row in cells(visit(app, link).text, "entity")}
    assert shown["more"].startswith('{"big@odata.type":"Edm.Int64"')
    assert (shown["price"], shown["spot"]) == ("7.50", '{"shelf":"s","level":1}')


def test_a_file_of_a_class_of_every_kind_has_all_that_an_entity_holds(app: Any, store: tm.Store) -> None:
    parts = list(store.query(everything.Part).allow_scan())
    rows = list(csv.DictReader(io.StringIO(visit(app, "/export/Part.csv").text, newline="")))
    for part, row in zip(parts, rows, strict=True):
        values = field_values(part)
        assert list(row) == list(values)
        assert json.loads(row["more"] or "{}") == (values["more"] or {})
        assert (row["number"], row["Name"], row["small"] or None) == (
            str(part.number), part.name, None if part.small is None else str(part.small),
        )  # fmt: skip
    lines = visit(app, "/export/Part.jsonl").text.rstrip("\n").split("\n")
    assert [json.loads(line) for line in lines] == [to_dict(part) for part in parts]


def test_a_notebook_and_the_json_of_a_page_show_them_too(app: Any, store: tm.Store) -> None:
    query: Any = store.query(everything.Part).allow_scan()
    shown = query._repr_html_()
    rows = [re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in shown.split("<tr>")[2:]]
    heads = re.findall(r"<th>(.*?)</th>", shown)
    assert [row[heads.index("more")][:20] for row in rows] == ["{}", "{&quot;big@odata.typ", "{&quot;two&quot;:&qu"]
    assert "{&quot;two&quot;:&quot;2&quot;}" in list(query)[2]._repr_html_()
    for url in ("/entities/Part?format=json", "/query/Part?where=bin==a&format=json"):
        answer = json.loads(visit(app, url).text)
        found = answer.get("entities", answer.get("rows"))
        keys = ("PartitionKey", "RowKey")
        assert [{name: row[name] for name in row if name not in keys} for row in found] == [*map(to_dict, query)]


def test_undeclared_properties_that_are_called_as_their_field_stay_apart() -> None:
    Loose = entity("Loose", "Looses", {"name": str, "more": (tm.Extra, tm.field(factory=tm.Extra)), "n": (int, tm.field(default=1))}, tm.Key[str](partition="{name}"))  # fmt: skip
    with tm.open(":memory:", models=[Loose]) as store:
        store.insert_many([Loose("a", tm.Extra(o="x")), Loose("b")])
        first, second = (field_values(one) for one in store.query(Loose).allow_scan())
    assert list(first) == ["name", "more", "n"]
    assert (first["more"], second["more"], first["n"]) == ({"o": "x"}, None, 1)


def test_a_key_that_nobody_would_see_is_a_link_that_one_can() -> None:
    Thing = entity("Thing", "Things", {"a": str, "b": str, "text": str}, tm.Key[str, str](partition="{a}", row="{b}"))
    odd = ["", " ", "  ", "\u200b", "\u2028", "\ufeff\u2060", "x"]
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many([Thing(one, one, one) for one in odd])
        page = visit(tm.inspector(store), "/entities/Thing").text
    rows = cells(page, "entities")
    names = sorted(['""', '" "', '"  "', "\\u200b", '"\\u2028"', "\\ufeff\\u2060", "x"])
    assert [sorted(row[2 + at] for row in rows) for at in range(3)] == [names] * 3
    assert len(re.findall(r'<a href="/entity/Thing\?[^"]*">[^<]+</a>', page)) == len(odd)


def test_each_page_says_of_when_it_is_and_can_be_read_again(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [datetime(2026, 3, 1, 14, 5, 7, tzinfo=UTC)]
    monkeypatch.setattr(store_pages.TimedCache.__init__, "__defaults__", (lambda: now[0],))
    app = tm.inspector(store)
    for url in ("/advice", "/partitions/Part", "/statistics/Part"):
        begin = now[0]
        for seconds, time in ((0, 0), (30, 0), (60, 0), (61, 61), (62, 61)):
            now[0] = begin + timedelta(seconds=seconds)
            page = visit(app, url)
            assert f"of {begin + timedelta(seconds=time):%H:%M:%S} UTC" in heard(page)
        (again,) = [one for one in links(page) if "fresh=1" in one]
        assert f"of {now[0]:%H:%M:%S} UTC" in heard(visit(app, url + again))
        now[0] -= timedelta(hours=1)  # (a clock that was put back)
        assert f"of {now[0]:%H:%M:%S} UTC" in heard(visit(app, url))
    for url in ("/", "/status", "/class/Part", "/entities/Part?size=2", "/query/Part?where=bin==a&limit=2"):
        now[0] += timedelta(seconds=1)
        page = visit(app, url)
        assert f"of {now[0]:%H:%M:%S} UTC" in heard(page)
        (again,) = re.findall(r'<a href="([^"]*)">Read again', page.text)
        assert (
            httpx.URL(f"http://x{url.partition('?')[0]}{html.unescape(again)}").params
            == httpx.URL(f"http://x{url}").params
        )


def heard(page: httpx.Response) -> str:
    """Return the text of a page."""
    return html.unescape(re.sub("<[^>]*>", "", page.text))


def test_a_bar_is_drawn_only_where_all_rows_are_counted(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "/query/Part?where=bin==a&where=number<3"
    page = visit(app, url).text
    assert ("2 of 3 rows are read" in page, 'class="share"' in page) == (True, True)
    monkeypatch.setattr("tablemapper.viewer.query_page.MAX_COUNTED", 3)
    page = visit(app, url).text
    assert ("2 of 3 or more rows are read" in page, 'class="share"' in page) == (True, False)


def test_enter_in_the_form_asks(app: Any) -> None:
    form = visit(app, "/query/Part").text.partition('<form id="query"')[2].partition("</form>")[0]
    assert re.findall(r"<button[^>]*>([^<]*)", form) == ["Ask", "Add a line", "Ask with these"]


def test_the_picture_as_text_names_the_table_of_an_index(app: Any) -> None:
    assert "PartsByColor" in json.loads(visit(app, "/model?format=json").text)["text"]
