"""A script is code of the program: what a store or a schema.json says stands in it as a literal, or not at all."""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import apsw
import attrs
import pytest

import tablemapper as tm
from tablemapper.evolution.changes import ChangeStep, NamedPart, SchemaChange
from tablemapper.scripts.comparison import load_form
from tablemapper.scripts.source.text import script_source

from ..classes import aggregate, entity
from ..hostile.nodes import node_at, nodes
from .test_validation import shape

CODE = "p if __import__('os').system('true') else 1"
TEXTS = (
    CODE, f'"]); {CODE}; (["', f"x\n{CODE}", f'a"""\n{CODE}', f"x.{CODE}", f'x["{CODE}"]', "class", f'%Y"), {CODE}',
    f'at.truncate("x"), {CODE}, ("y")', f"home.city if {CODE} else home",
)  # fmt: skip


@attrs.define
class Home:
    city: str
    kind: Literal["flat", "house"] = "flat"


def models() -> list[Any]:
    fields = {
        "at": datetime, "home": Home, "more": tm.Extra, "tags": list[str],
        "kind": (Literal["x", "y"], {"default": "x"}),
        "by": tm.Index(partition="{home.city}", row="{at:%Y}", include=("kind",), where=lambda e: e.home.at(lambda h: h.city) != "x"),
    }  # fmt: skip
    product = shape(**fields)
    tags = {"tag": (str, tm.group_by(product.tags.each())), "n": (int, tm.sum(product.number * 2))}
    days = {"day": (str, tm.group_by(product.at.truncate("%Y-%m", "Europe/Oslo"))), "n": (int, tm.count())}
    by_tag = aggregate("ByTag", product, tags, tm.Key(partition="{tag}"))
    return [product, by_tag, aggregate("ByMonth", product, days, tm.Key(partition="{day}"))]


def code_in(script: str) -> list[str]:
    """Return what of a script calls or names what no script has."""
    known = {"__import__", "os", "system", "exec", "eval"}
    tree = ast.parse(script)
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in known] + [
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in known
    ]


def tampered(form: Any) -> Iterator[tuple[str, Any]]:
    """Yield copies of a form in which one text, a value or a name, is code."""
    for where in nodes(form):
        if not where:
            continue
        for text in TEXTS:
            changed = copy.deepcopy(form)
            holder = node_at(changed, where[:-1])
            if isinstance(holder[where[-1]], str):
                holder[where[-1]] = text
                yield f"{where} = {text}", changed
            if isinstance(holder, dict):
                changed = copy.deepcopy(form)
                holder = node_at(changed, where[:-1])
                holder[text] = holder.pop(where[-1])
                yield f"{where} renamed {text}", changed


@pytest.mark.long
def test_no_text_of_a_schema_stands_in_a_script_as_code(full_size: bool) -> None:
    whole = tm.schema_snapshot(models())
    written = refused = 0
    for label, form in islice(tampered(whole), 0, None, 1 if full_size else 7):
        try:
            forms = load_form(form)
            steps = [ChangeStep("rekey", (NamedPart("old", name), NamedPart("new", name))) for name in forms]
            script = script_source(
                forms, load_form(whole), [SchemaChange("Product", "migration", "", step) for step in steps]
            )
        except (tm.InvalidMigration, ValueError, LookupError, TypeError, AttributeError):
            refused += 1
            continue
        assert code_in(script) == [], label
        written += 1
    assert min(written, refused) > (100 if full_size else 20)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("part", ["class", "index", "property"])
def test_a_name_in_a_catalogue_that_no_class_gives_is_damage(place: Path, text: str, part: str) -> None:
    tm.open(place, models=[shape(a=str, by=tm.Index(partition="{a}"))]).close()
    connection = apsw.Connection(str(place))
    renamed = {"class": "Product", "index": "by", "property": "a"}[part]
    for name, form in connection.execute("SELECT name, form FROM tablemapper_catalogue").fetchall():
        quoted = json.dumps(text)[1:-1]
        form = form.replace(f'"{renamed}"', f'"{quoted}"').replace(f'"Product.{renamed}"', f'"Product.{quoted}"')
        connection.execute("UPDATE tablemapper_catalogue SET form = ? WHERE name = ?", (form, name))
    connection.close()
    with pytest.raises((tm.CorruptStore, tm.SchemaMismatch)) as caught:
        tm.open(place, models=[shape(a=int)])
    if text == "class" and part == "property":  # (a property may be called so)
        return
    assert isinstance(caught.value, tm.CorruptStore), caught.value
    assert "the catalogue cannot be read" in str(caught.value)


def test_a_name_in_a_schema_that_no_class_gives_is_refused() -> None:
    form = tm.schema_snapshot([shape(a=str)])
    with pytest.raises(tm.InvalidMigration, match="the form: it cannot be read: .* is no name of a class or an index"):
        tm.changes({CODE: form["Product"]}, [shape(a=str)])


@pytest.mark.parametrize("name", ["my class", "class", "ﬁ", ""])
def test_a_class_has_a_name_that_a_script_can_write(name: str) -> None:
    with pytest.raises(tm.InvalidModel, match="is no name of a class in Python"):
        entity(name, "Things", {"a": str}, tm.Key(partition="{a}"))
