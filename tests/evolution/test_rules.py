"""The rules of what may follow what, one by one: no store is needed for them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import attrs
import pytest

import tablemapper as tm
from tablemapper.evolution.evolution import Evolution, evolve
from tablemapper.evolution.versions import Version, Versions
from tablemapper.schema.model import compile_schema

from ..classes import Color, aggregate, entity


@attrs.define
class Holds:
    """What a store holds."""

    rows: int = 1
    others: bool = True
    undeclared_key: tuple[str, str] | None = None
    keys: Sequence[tuple[str, str]] = ()

    def dropped(self, name: str, form: Any) -> str | None:
        return None

    def count(self, name: str) -> int:
        return self.rows

    def holds_other(self, name: str, property: str, value: Any) -> bool:
        return self.others

    def holds_one_of(self, name: str, property: str, values: Sequence[Any]) -> bool:
        return self.others

    def undeclared(self, name: str, extra: str, property: str) -> tuple[str, str] | None:
        return self.undeclared_key

    def within(self, name: str, partition: Any, row: Any) -> Sequence[tuple[str, str]]:
        return self.keys


def product(name: str = "Product", table: str = "Products", /, **body: Any) -> Any:
    """Return a class: ``field=annotation``, ``field=(annotation, default)``, an index, or None to leave one out."""
    key = body.pop("key", tm.Key(partition="{shop}", row="{number}"))
    others = {name: body.pop(name) for name in [*body] if name == "type" or isinstance(body[name], tm.Index)}
    fields = {name: one if isinstance(one, tuple) else (one, tm.field(kw_only=True)) for name, one in body.items()}
    return entity(name, table, {"shop": str, "number": int, **fields}, key, **others)


def default(value: Any) -> Any:
    return tm.field(default=value, kw_only=True)


def change(old: Sequence[Any], new: Sequence[Any], holds: Holds | None = None) -> Evolution:
    """Compare what a store was opened with first with what it is opened with next."""
    first = evolve({}, Versions(), compile_schema(old), Holds(0))
    return evolve(first.models_after, first.versions_after, compile_schema(new), holds or Holds())


class Hue(enum.Enum):
    BLUE = "blue"
    RED = "red"


@attrs.define
class Home:
    city: str = ""


@attrs.define
class Flat:
    city: str = ""
    floor: int = 0


FACTORY = tm.field(factory=list, kw_only=True)
EXTRA = tm.Extra, tm.field(factory=tm.Extra, kw_only=True)
INDEX = tm.Index(partition="{number}")
OTHER = tm.Index(partition="{number}", row="{shop}")

OPEN: list[tuple[str, Any, Any, Holds]] = [
    ("optional field added", {}, {"a": str | None}, Holds()),
    ("field with a default added", {}, {"a": (str, default("x"))}, Holds()),
    ("undeclared properties added", {}, {"more": EXTRA}, Holds()),
    ("field removed that holds nothing", {"a": str | None}, {}, Holds(others=False)),
    ("field removed that holds nothing, one of another type added", {"a": str | None}, {"b": int | None}, Holds(others=False)),
    ("field renamed, without rows", {"a": str | None}, {"b": str | None}, Holds(0)),
    ("attribute renamed", {"a": str}, {"b": (str, tm.field(name="a"))}, Holds()),
    ("default changed", {"a": (int, default(1))}, {"a": (int, default(2))}, Holds()),
    ("Int32 to int", {"a": tm.Int32}, {"a": int}, Holds()),
    ("list of Int32 to list of int", {"a": list[tm.Int32]}, {"a": list[int]}, Holds()),
    ("required to optional", {"a": str}, {"a": str | None}, Holds()),
    ("Enum to str", {"a": Color}, {"a": str}, Holds()),
    ("Literal to str", {"a": Literal["x"]}, {"a": str}, Holds()),
    ("member added", {"a": Literal["x"]}, {"a": Literal["x", "y"]}, Holds()),
    ("member of a list added", {"a": list[Literal["x"]]}, {"a": list[Literal["x", "y"]]}, Holds()),
    ("Enum renamed and reordered", {"a": Color}, {"a": Hue}, Holds()),
    ("member removed that no row holds", {"a": Literal["x", "y"]}, {"a": Literal["x"]}, Holds(others=False)),
    ("nested member with a default added", {"a": Home}, {"a": Flat}, Holds()),
    ("index removed", {"i": INDEX}, {}, Holds()),
    ("type= added", {}, {"type": "p"}, Holds()),
    ("anything, without rows", {"a": str}, {"a": int, "key": tm.Key(partition="{number}", row="{shop}")}, Holds(0)),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "holds"), [case[1:] for case in OPEN], ids=[case[0] for case in OPEN])
def test_what_stays_readable_is_taken_over(old: Any, new: Any, holds: Holds) -> None:
    evolution = change([product(**old)], [product(**new)], holds)
    assert evolution.faults == ()
    assert {one.rule for one in evolution.changes} <= {"open"}


MIGRATIONS: list[tuple[str, Any, Any, Holds, str, str]] = [
    ("required field added", {}, {"a": str}, Holds(), "no value", "m.fill(new.Product.a, ...)"),
    ("field with a factory added", {}, {"a": (list[str], FACTORY)}, Holds(), "factory", "m.fill(new.Product.a, "),
    ("field added that rows hold undeclared", {"more": EXTRA}, {"more": EXTRA, "a": str | None},
     Holds(undeclared_key=("s", "1")), "('s', '1') has one", "m.fill(new.Product.a, lambda e: None)"),
    ("field with a default added that rows hold undeclared", {"more": EXTRA}, {"more": EXTRA, "a": (int, default(0))},
     Holds(undeclared_key=("s", "1")), "", "m.fill(new.Product.a, lambda e: 0)"),
    ("required field added that rows hold undeclared", {"more": EXTRA}, {"more": EXTRA, "a": str},
     Holds(undeclared_key=("s", "1")), "", 'm.fill(new.Product.a, lambda e: e.more["a"])'),
    ("field removed", {"a": str}, {}, Holds(), '"a" (str) is in the file', "m.drop(old.Product.a)"),
    ("field removed, one of its type added", {"a": str | None}, {"b": str | None}, Holds(), "",
     "m.rename(old.Product.a, new.Product.b)  # or m.drop(old.Product.a), if they are two things"),
    ("field removed that holds nothing, one of its type added", {"a": str | None}, {"b": str | None}, Holds(others=False),
     'and "b" is new', "m.rename(old.Product.a, new.Product.b)"),
    ("field removed that holds its default, one of its type added", {"a": (bool, default(True))}, {"b": (bool, default(True))},
     Holds(others=False), 'and "b" is new', "m.rename(old.Product.a, new.Product.b)"),
    ("field removed that holds nothing, two of its type added", {"a": str | None}, {"b": str | None, "c": str | None},
     Holds(others=False), 'and "b" is new', "m.drop(old.Product.a)  # or m.rename(old.Product.a, new.Product.b), if they are one"),
    ("int to float", {"a": int}, {"a": float}, Holds(), "was int and is float", "m.convert(old.Product.a, new.Product.a, float)"),
    ("int to Decimal", {"a": int}, {"a": Decimal}, Holds(), "", "new.Product.a, Decimal)"),
    ("optional Literal to Decimal", {"a": Literal[1, 2] | None}, {"a": Decimal | None}, Holds(), "", "new.Product.a, ...)"),
    ("optional Literal to str", {"a": Literal[1, 2] | None}, {"a": str | None}, Holds(), "", "new.Product.a, str)"),
    ("Literal to Decimal", {"a": Literal[1, 2]}, {"a": Decimal}, Holds(), "", "new.Product.a, Decimal)"),
    ("str to UUID", {"a": str}, {"a": UUID}, Holds(), "", "new.Product.a, UUID, back=str)"),
    ("float to str", {"a": float}, {"a": str}, Holds(), "", "new.Product.a, str, back=float)"),
    ("date to datetime", {"a": date}, {"a": datetime}, Holds(), "was date and is datetime", "lambda x: dt.datetime(x.year, "),
    ("int to Int32", {"a": int}, {"a": tm.Int32}, Holds(), "was int and is int32", "m.convert(old.Product.a, new.Product.a, "),
    ("optional to required with a default", {"a": int | None}, {"a": (int, default(3))}, Holds(), "was int | None and is int",
     "m.fill(new.Product.a, lambda e: 3)"),
    ("optional to required", {"a": int | None}, {"a": int}, Holds(), "", "m.fill(new.Product.a, ...)"),
    ("member removed", {"a": Literal["x", "y"]}, {"a": Literal["x"]}, Holds(), "holds 'y'",
     "m.convert(old.Product.a, new.Product.a, ...)  # what becomes of these: {'y': …}, or a function"),
    ("nested member removed", {"a": Flat}, {"a": Home}, Holds(), '"floor"', "m.convert(old.Product.a, new.Product.a, "),
    ("key changed", {}, {"key": tm.Key(partition="{shop}", row="{number:desc}")}, Holds(),
     'its row key was "{number}" and is "{number:desc}"', "m.rekey(old.Product, new.Product)"),
    ("stored=True", {}, {"number": (int, tm.field(stored=True, kw_only=True))}, Holds(), "stored=", "m.rekey("),
    ("type= changed", {"type": "a"}, {"type": "b"}, Holds(), 'was "a" and is "b"', "m.rekey("),
    ("type= removed", {"type": "a"}, {}, Holds(), 'was "a" and is none', "m.rekey("),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "holds", "message", "code"), [case[1:] for case in MIGRATIONS], ids=[case[0] for case in MIGRATIONS]
)
def test_what_would_be_lost_or_misread_needs_a_migration(
    old: Any, new: Any, holds: Holds, message: str, code: str
) -> None:
    evolution = change([product(**old)], [product(**new)], holds)
    (found,) = [one for one in evolution.changes if one.rule != "open"]
    assert found.rule == "migration"
    assert message in found.message
    assert code in found.code
    (fault,) = evolution.faults
    assert fault == f"Product: {found.message}"
    assert "{'" not in found.message  # (no raw form)


def total(of: Any, **measures: Any) -> Any:
    members = {"shop": (str, tm.group_by(of.shop)), **measures}
    return aggregate("Total", of, members, tm.Key(partition="{shop}"), "Totals")


def test_a_table_that_is_renamed_needs_a_migration() -> None:
    evolution = change([product()], [product("Product", "Goods")])
    assert evolution.faults == ('Product: its table was "Products" and is "Goods"',)
    assert [one.code for one in evolution.changes] == ["m.rename_class(old.Product, new.Product)"]


def test_an_index_or_an_aggregate_that_changed_is_to_be_built_beside_the_old_one() -> None:
    old, new = product(i=INDEX), product(i=OTHER)
    (found,) = (one for one in change([old], [new]).changes if one.rule != "open")
    assert (found.rule, found.where) == ("build", "Product.i")
    assert 'its row was "" and is "{shop}"' in found.message
    first = total(old, n=(int, tm.count()))
    second = total(old, n=(int, tm.count(where=old.number > 1)))
    (found,) = (one for one in change([old, first], [old, second]).changes if one.rule != "open")
    assert (found.rule, found.where) == ("build", "Total")
    assert "built beside them" in found.message
    assert not change([old, first], [old, second]).faults
    assert not change([old, first], [old]).faults
    assert not change([old], [old, first]).faults


def test_measures_in_another_order_are_built_beside_as_their_states_would_be_misread() -> None:
    cls = product()
    measures = {"n": (int, tm.count(where=cls.number > 1)), "m": (int, tm.sum(cls.number))}
    other = dict(reversed(measures.items()))
    (found,) = (
        one for one in change([cls, total(cls, **measures)], [cls, total(cls, **other)]).changes if one.rule != "open"
    )
    assert found.rule == "build"


def test_an_aggregate_that_shares_its_table_cannot_be_built_beside_itself() -> None:
    cls = product()
    members = {"number": (int, tm.group_by(cls.number)), "n": (int, tm.count())}
    other = aggregate("Other", cls, members, tm.Key(partition="n", row=("all", "{number}")), "Shared")

    def beside(where: Any) -> Any:
        shops = {"shop": (str, tm.group_by(cls.shop)), "n": (int, tm.count(where=where))}
        return aggregate("Total", cls, shops, tm.Key(partition="t", row=("each", "{shop}")), "Shared")

    first, second = beside(cls.number > 1), beside(cls.number > 2)
    (fault,) = change([cls, first, other], [cls, second, other]).faults
    assert "shares its table with Other" in fault


def test_an_index_that_holds_all_fields_is_the_same_with_one_more() -> None:
    old, new = product(i=tm.Index(partition="{number}", include="all")), product(a=str | None, i=tm.Index(partition="{number}", include="all"))  # fmt: skip
    evolution = change([old], [new])
    assert {one.rule for one in evolution.changes} == {"open"}
    assert evolution.indexes == ()


def test_an_index_with_another_name_is_the_same() -> None:
    evolution = change([product(i=INDEX)], [product(j=INDEX)])
    assert evolution.indexes == ()
    assert "the index j is another name of i" in {one.message for one in evolution.changes}
    assert evolution.declared == {"Product.i": True}


def test_a_form_that_was_opened_before_is_always_opened_again() -> None:
    old, new = product(a=str), product(a=str, b=(int, default(1)))
    first = evolve({}, Versions(), compile_schema([old]), Holds(0), now=1)
    second = evolve(first.models_after, first.versions_after, compile_schema([new]), Holds(), now=2)
    again = evolve(second.models_after, second.versions_after, compile_schema([old]), Holds(), now=3)
    assert (again.changes, again.changed, again.extends) == ((), False, False)
    assert [version.since for version in second.versions_after.of("Product")] == [1, 2]
    assert second.extends


def test_a_form_that_was_retired_is_refused_with_the_migration_that_did_it() -> None:
    cls = product(a=str)
    first = evolve({}, Versions(), compile_schema([cls]), Holds(0))
    (version,) = first.versions_after.of("Product")
    until = 1_700_000_000_000_000
    versions = Versions({"Product": [Version(version.form, 1, until, "0003_price")]})
    (fault,) = evolve(first.models_after, versions, compile_schema([cls]), Holds()).faults
    assert "0003_price replaced this form of the class on 2023-11-14; deploy the version that declares it" in fault


def test_what_changes_nothing_that_is_stored_extends_nothing() -> None:
    for old, new in (({"a": Color}, {"a": Hue}), ({"a": (int, default(1))}, {"a": (int, default(2))}), ({"a": Color}, {"a": Literal["red", "blue"]})):  # fmt: skip
        assert not change([product(**old)], [product(**new)]).extends


def test_only_what_others_cannot_read_is_given_another_name() -> None:
    def widened(old: Any, new: Any) -> Any:
        return change([product(a=old)], [product(a=new)]).widened

    for old, new in ((Literal["x"], Literal["x", "y"]), (str, str | None), (tm.Int32, int), (Color, str)):
        assert widened(old, new) == (("Product", "a"),)
    for old, new in ((Color, Hue), (Home, Flat), (str | None, str | None)):
        assert widened(old, new) == ()


def test_a_class_among_the_rows_of_another_needs_a_migration() -> None:
    general = product("Staff", "People", name=str, key=tm.Key(partition="{shop}", row="{name}"))
    special = product("Head", "People", key=tm.Key(partition="{shop}", row="head"))
    (fault,) = change([general], [general, special], Holds(keys=[("s", "head"), ("t", "head")])).faults
    assert "2 rows of Staff have keys of Head, as ('s', 'head')" in fault
    assert not change([general], [general, special]).faults
    assert not change([general], [special]).faults
    (fault,) = change(
        [general], [product("Other", "People", name=str, age=int, key=tm.Key(partition="{shop}", row="{name}"))]
    ).faults
    assert "their keys can be equal" in fault


def test_a_class_that_is_renamed_in_its_table_needs_a_migration() -> None:
    (found,) = change([product(a=str)], [product("Goods", a=str)]).changes
    assert (found.rule, found.code) == ("migration", "m.rename_class(old.Product, new.Goods)")
    assert found.message == "its entities are in the file as those of Product"


def test_all_differences_of_a_class_are_told_at_once() -> None:
    assert len(change([product(a=str, b=int)], [product(a=int, b=str, c=int)]).faults) == 3


def test_a_former_aggregate_that_is_no_version_any_more_has_the_table_that_it_had() -> None:
    cls = product()
    first, second = total(cls, n=(int, tm.count())), total(cls, n=(int, tm.count(where=cls.number > 1)))
    both = change([cls, first], [cls, second])
    again = evolve(
        both.models_after,
        Versions({"Product": both.versions_after.of("Product")}),
        compile_schema([cls, first]),
        Holds(),
    )
    assert again.faults == ()
    assert again.models_after == both.models_after
