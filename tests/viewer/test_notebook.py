"""What a notebook shows: tables of HTML, within limits, and never more than text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.viewer import notebook

from ..classes import entity

pytestmark = pytest.mark.needs("sorts")


class Part(tm.Entity, table="Parts"):
    bin: tm.Field[str]
    number: tm.Field[int]
    name: tm.Field[str] = tm.field(default="")
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{bin}", row="{number}")
    by_name = tm.Index[str](partition="{name}")


class Note(tm.Entity, table="Parts"):
    bin: tm.Field[str]
    text: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str](partition="{bin}", row="Note")


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Part, Note]) as store:
        store.insert_many([*(Part("a", n, f"n{n % 3}", ["x", "y"][: n % 3]) for n in range(25)), Note("a")])
        yield store


def html(shown: object) -> str:
    text = shown._repr_html_()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def cells(shown: object) -> list[list[str]]:
    """Return the texts of the table's rows."""
    return [
        re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", html(shown), re.DOTALL)
    ]


def test_an_entity_is_a_table_of_its_fields(store: tm.Store) -> None:
    assert cells(store[Part.key("a", 2)])[1:] == [
        ["PartitionKey", "a"], ["RowKey", "a2"], ["bin", "a"], ["number", "2"], ["name", "n2"], ["tags", "x, y"],
    ]  # fmt: skip
    assert ["text", "–"] in cells(store[Note.key("a")])


def test_a_query_shows_its_first_rows(store: tm.Store) -> None:
    parts = store.query(Part).where(Part.bin == "a")
    assert len(cells(parts)) == 1 + 20
    assert html(parts).endswith("<p>… and more</p>")
    assert cells(parts.limit(2))[1:] == [["a", "0", "n0", "[]"], ["a", "1", "n1", "x"]]
    assert "and more" not in html(parts.limit(20))
    assert cells(parts.select(Part.number, Part.name).limit(1))[1:] == [["0", "n0"]]
    assert "<th>number</th><th>name</th>" in html(parts.select(Part.number, Part.name).limit(0))
    assert "<p>none</p>" in html(store.query(Part).where(Part.bin == "b"))


def test_several_classes_and_pages_are_tables_too(store: tm.Store) -> None:
    assert ["Note", "a", "Note"] in [row[:3] for row in cells(store.query(Note, Part).where(Note.bin == "a"))]
    page = store.query(Part).where(Part.bin == "a").page(3)
    assert len(cells(page)) == 4
    assert "there are more" in html(page)


def test_a_refused_scan_and_a_query_that_reads_too_much_say_so(
    store: tm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert html(store.query(Part).where(Part.number == 3)).startswith("<pre>ScanRefused: Part: no key or index")
    monkeypatch.setattr(notebook, "_EXAMINED", 10)
    rare = store.query(Part).where(Part.bin == "a", Part.number > 3, Part.name == "n1")
    assert len(cells(rare)) < 1 + 8
    assert "rows would be examined" in html(rare)


def test_reports_are_text_and_a_store_is_its_classes(store: tm.Store) -> None:
    parts = store.query(Part).where(Part.bin == "a")
    for one in (parts.explain(), store.check(), store.statistics(Part), *tm.advise([Setting])):
        assert html(one).startswith("<pre>")
    assert ["Part.by_name", "index", "ready", ""] in cells(store.status())
    assert cells(store)[1] == ["Part", "Parts", "{bin} / {number}", "by_name (ready)", "ready"]
    store.close()
    assert html(store).startswith("<pre>StoreClosed")
    assert html(parts).startswith("<pre>StoreClosed")


Setting = entity("Setting", "Settings", {"name": str}, tm.Key[str](partition="all", row="{name}"))


HOSTILE = ["<script>alert(1)</script>", '"><svg onload=x>', "{{7*7}}", "a\0b", "javascript:x", "&lt;", "x" * 65_000]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_value_is_text(store: tm.Store, text: str) -> None:
    part = Part(text[:50], 1, text[:200], [text[:100], text[:20_000]])
    store.insert(part)
    query = store.query(Part).where(Part.bin == text[:50])
    asks: list[Callable[[], Any]] = [
        lambda: part, lambda: query, lambda: query.select(Part.name, Part.tags), lambda: query.page(1), query.explain,
        lambda: store.query(Note, Part).where(Note.bin == text[:50], Part.bin == text[:50]),
    ]  # fmt: skip
    for ask in asks:
        shown = html(ask())
        assert set(re.findall(r"</?(\w+)", shown)) <= {"table", "thead", "tbody", "tr", "th", "td", "p", "pre"}
        assert not re.search(r"<\w+ ", shown)  # (no attribute at all)
        assert "\0" not in shown
        assert len(shown) < 20_000


def test_a_repr_reads_nothing_and_the_class_itself_has_no_picture(store: tm.Store) -> None:
    events: list[tm.Event] = []
    with tm.open(":memory:", models=[Part], observe=events.append) as watched:
        repr(watched.query(Part).where(Part.bin == "a"))
        assert events == []
    assert repr(Part("a", 1)) == "Part(bin='a', number=1, name='', tags=[])"
