"""Every row of the table of rules: which rule a change is of, what is said of it, and the step that makes it."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest

import tablemapper as tm

from ..evolution.test_rules import Color, Flat, Home
from .test_validation import OTHER, shape, total

OPTIONAL = {"default": None}


PLAIN = tm.Index(partition="{number}")
UNIQUE = tm.Index(partition="{number}", unique=True)
BASE = shape(a=str)
P, Q = "old.Product", "new.Product"
ROWS: list[tuple[str, Any, Any, str, str, str]] = [
    ("field added, optional", {}, {"a": (str | None, OPTIONAL)}, "open", '"a" is new', ""),
    ("field added, with default", {}, {"a": (int, {"default": 3})}, "open", '"a" is new', ""),
    ("field added, required", {}, {"a": int}, "migration", "no value for it", f"m.fill({Q}.a, ...)  # a function of the entity"),
    ("Extra added", {}, {"a": (tm.Extra, {"factory": tm.Extra})}, "open", '"a" is new', ""),
    ("field removed", {"a": str}, {}, "migration", '"a" (str) is in the file, but not in the class', f"m.drop({P}.a)"),
    ("one removed, one of its type added", {"a": str}, {"b": str}, "migration", '"b" is new',
     f"m.rename({P}.a, {Q}.b)  # or m.drop({P}.a), if they are two things"),
    ("attribute renamed, property kept", {"a": str}, {"b": (str, {"name": "a"})}, "", "", ""),
    ("default changed", {"a": (int, {"default": 1})}, {"a": (int, {"default": 2})}, "", "", ""),
    ("Int32 to int", {"a": tm.Int32}, {"a": int}, "open", "was int32 and is int", ""),
    ("required to optional", {"a": str}, {"a": (str | None, OPTIONAL)}, "open", "may be None", ""),
    ("Enum to str", {"a": Color}, {"a": str}, "open", "was str of 'blue', 'red' and is str", ""),
    ("member added", {"a": Literal["x"]}, {"a": Literal["x", "y"]}, "open", "is str of 'x', 'y'", ""),
    ("nested member with a default added", {"a": Home}, {"a": Flat}, "", "", ""),
    ("int to float", {"a": int}, {"a": float}, "migration", "was int and is float", f"m.convert({P}.a, {Q}.a, float)"),
    ("int to Decimal", {"a": int}, {"a": Decimal}, "migration", "", f"m.convert({P}.a, {Q}.a, Decimal)"),
    ("date to datetime", {"a": date}, {"a": datetime}, "migration", "",
     f"m.convert({P}.a, {Q}.a, lambda x: dt.datetime(x.year, x.month, x.day, tzinfo=dt.UTC))"),
    ("str to UUID", {"a": str}, {"a": UUID}, "migration", "", f"m.convert({P}.a, {Q}.a, UUID, back=str)"),
    ("number to str", {"a": float}, {"a": str}, "migration", "", f"m.convert({P}.a, {Q}.a, str, back=float)"),
    ("optional to required with default", {"a": (int | None, OPTIONAL)}, {"a": (int, {"default": 3})}, "migration",
     "was int | None and is int", f"m.fill({Q}.a, lambda e: 3)"),
    ("optional to required", {"a": (int | None, OPTIONAL)}, {"a": int}, "migration", "was int | None and is int",
     f"m.fill({Q}.a, ...)  # a function of the entity"),
    ("another type", {"a": bool}, {"a": bytes}, "migration", "was bool and is bytes",
     f"m.convert({P}.a, {Q}.a, ...)  # a function of the old value"),
    ("narrowing", {"a": int}, {"a": tm.Int32}, "migration", "was int and is int32",
     f"m.convert({P}.a, {Q}.a, ...)  # a function of the old value"),
    ("member removed", {"a": Literal["x", "y"]}, {"a": Literal["x"]}, "migration", "holds 'y'",
     f"m.convert({P}.a, {Q}.a, ...)  # what becomes of these: {{'y': …}}, or a function"),
    ("nested type changed otherwise", {"a": Flat}, {"a": Home}, "migration", 'its member "floor" (Home) is in the file',
     f"m.convert({P}.a, {Q}.a, ...)  # a function of the old value"),
    ("key template", {}, {"key": tm.Key(partition="{shop}", row="{number:desc}")}, "migration",
     'its row key was "{number}" and is "{number:desc}"', f"m.rekey({P}, {Q})"),
    ("shard(8) to shard(16)", {"key": tm.Key(partition="{shop:shard(8)}", row=("{shop}", "{number}"))},
     {"key": tm.Key(partition="{shop:shard(16)}", row=("{shop}", "{number}"))}, "migration", "shard(16)", f"m.rekey({P}, {Q})"),
    ("a key of a field that is new", {}, {"a": str, "key": tm.Key(partition="{shop}", row=("{number}", "{a}"))}, "migration",
     "its row key", f"m.rewrite({P}, ..., into={Q})"),
    ("stored=True added", {}, {"number": (int, {"stored": True})}, "migration", "stored=", f"m.rekey({P}, {Q})"),
    ("type= added", {}, {"type": "p"}, "open", 'type="p" is new', ""),
    ("type= changed", {"type": "p"}, {"type": "q"}, "migration", 'its type= was "p" and is "q"', f"m.rekey({P}, {Q})"),
    ("index added", {}, {"i": PLAIN}, "build", "the index i is new", ""),
    ("index removed", {"i": PLAIN}, {}, "open", "the store goes on to maintain it", f"m.drop({P}.i)"),
    ("index renamed", {"i": PLAIN}, {"j": PLAIN}, "open", "j is another name of i", ""),
    ("index changed", {"i": PLAIN}, {"i": tm.Index(partition="{shop}")}, "build", "builds the new one beside it", ""),
    ("unique added", {"i": PLAIN}, {"i": UNIQUE}, "build", "it was not unique and is", ""),
    ("unique removed", {"i": UNIQUE}, {"i": PLAIN}, "build", "it was unique and is not", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "rule", "message", "code"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_change_is_of_its_rule_and_has_its_step(old: Any, new: Any, rule: str, message: str, code: str) -> None:
    found = tm.changes(tm.schema_snapshot([shape(**old)]), [shape(**new)])
    if not rule:
        assert found == ()
        return
    strongest = max(found, key=lambda one: ["open", "build", "migration", "refused"].index(one.rule))
    assert (strongest.rule, strongest.code) == (rule, code)
    assert message in strongest.message
    assert "{'text'" not in strongest.message


def test_classes_and_aggregates_have_rules_too() -> None:
    def found(old: Any, new: Any) -> list[tuple[str, str, str]]:
        return [(one.where, one.rule, one.code) for one in tm.changes(tm.schema_snapshot(old), new)]

    renamed, moved, apart = shape("Goods", a=str), shape("Product", "Goods", a=str), shape("Goods", "Wares", a=str)
    daily = total(BASE, BASE.a)
    assert found([BASE], [moved]) == [("Product", "migration", "m.rename_class(old.Product, new.Product)")]
    assert found([BASE], [renamed])[0] == ("Goods", "migration", "m.rename_class(old.Product, new.Goods)")
    assert found([BASE], [apart])[0] == ("Goods", "open", "m.rename_class(old.Product, new.Goods)")
    rekeyed = shape("Goods", "Wares", a=str, key=tm.Key(partition="{shop}", row="{number:desc}"))
    assert found([BASE], [rekeyed])[0] == ("Goods", "open", "")  # two steps, which a person has to write
    assert found([BASE, OTHER], [BASE]) == [("Other", "open", "")]
    assert found([BASE], [BASE, daily]) == [("Total", "build", "")]
    assert found([BASE, daily], [BASE]) == [("Total", "open", "m.drop(old.Total)")]
    assert found([BASE, daily], [BASE, total(BASE, BASE.shop)]) == [("Total", "build", "")]


def test_the_form_of_classes_is_the_same_in_every_order_and_survives_a_file(tmp_path: Path) -> None:
    classes = [BASE, OTHER, total(BASE, BASE.a)]
    form = tm.schema_snapshot(classes)
    assert json.dumps(form) == json.dumps(tm.schema_snapshot(classes[::-1]))
    read = json.loads(json.dumps(form))
    assert read == form
    assert tm.changes(read, classes) == ()


def test_what_is_no_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tm.InvalidMigration, match="the form: it cannot be read"):
        tm.changes({"Product": 3}, [BASE])
    path = tmp_path / "schema.json"
    with pytest.raises(tm.InvalidMigration, match="No such file"):
        tm.Migrations([]).check([BASE], path)
    path.write_text("{")
    with pytest.raises(tm.InvalidMigration, match="tm.schema_snapshot gives"):
        tm.Migrations([]).check([BASE], path)
