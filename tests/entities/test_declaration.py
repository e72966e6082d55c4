"""Every fault of a declaration is found when the class is made, all together, each with what was expected."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

import msgspec
import pytest

import tablemapper as tm
from tablemapper.entities.declaration import declaration_of
from tablemapper.schema.model import compile_schema


class Customer(tm.Entity, table="Customers"):
    name: tm.Field[str]
    born: tm.Field[datetime]
    city: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str](partition="{name}")


def faults(make: Callable[[], Any]) -> list[str]:
    with pytest.raises(tm.InvalidModel) as caught:
        make()
    return list(caught.value.faults)


def made(
    annotations: dict[str, Any], *, table: str | None = "Made", base: Any = tm.Entity, of: Any = None, **body: Any
) -> Any:
    fields = {name: kind if isinstance(kind, str) else tm.Field[kind] for name, kind in annotations.items()}
    content = {"__module__": __name__, "__qualname__": "Made", "__annotations__": fields, **body}
    options = {} if of is None else {"of": of}
    return type(base)("Made", (base,), content, table=table, **options)


KEY = {"key": tm.Key(partition="{name}")}
AB = {"name": str, "age": int}


def by_age(**options: Any) -> dict[str, Any]:
    """Return the body of a class with an index."""
    return {**KEY, "by_age": tm.Index(partition="{age}", **options)}


WRONG: list[tuple[str, dict[str, Any], dict[str, Any], str, list[str]]] = [
    ("a template names no field", AB, {"key": tm.Key(partition="{nmae}")}, "key", ["nmae", 'did you mean "name"']),
    ("no key", AB, {}, "key", ['declare exactly one key, named "key"']),
    ("a key of another name", AB, {"primary": tm.Key(partition="{name}")}, "key", ["not primary"]),
    ("two keys", AB, {**KEY, "other": tm.Key(partition="{age}")}, "key", ["not other"]),
    ("an optional key field", {"name": str | None}, KEY, "key", ["{name} is optional", "tm.Field[str]"]),
    (
        "parameters of another type",
        AB,
        {"key": tm.Key[int](partition="{name}")},
        "key",
        ["is int, but the field is str"],
    ),
    (
        "too many parameters",
        AB,
        {"key": tm.Key[str, int](partition="{name}")},
        "key",
        ["2 type parameters", "1 fields"],
    ),
    (
        "an index's parameters",
        AB,
        {**KEY, "by_age": tm.Index[str](partition="{age}")},
        "by_age",
        ["but the field is int"],
    ),
    ("raw in an index", AB, {**KEY, "by_name": tm.Index(partition="{name:raw}")}, "by_name", ["raw"]),
    ("an unknown spec", AB, {"key": tm.Key(partition="{name:wat}")}, "key", ["wat"]),
    (
        "an index over two lists",
        {**AB, "a": list[str], "b": list[int]},
        {**KEY, "by_both": tm.Index(partition="{a}", row="{b}")},
        "by_both",
        ["a and b are lists", "one"],
    ),
    ("include of no field", AB, by_age(include=("nmae",)), "by_age", ["nmae", 'did you mean "name"']),
    ("include as text", AB, by_age(include="name"), "by_age", ["a tuple", '"all"']),
    ("an index table's name", AB, by_age(table="a b"), "by_age", ["a b"]),
    ("where= of no predicate", AB, by_age(where=lambda p: True), "by_age", ["where="]),
    ("where= of no field", AB, by_age(where=lambda p: p.aeg > 1), "by_age", ["where=", "aeg"]),
    (
        "where= of another class",
        AB,
        by_age(where=lambda p: Customer.name == "x"),
        "by_age",
        ["Customer.name", "is not a field of Made"],
    ),
    ("where= of another type", AB, by_age(where=lambda p: p.age > "x"), "by_age", ["where=", "expected int"]),
    ("a name with an underscore", {**AB, "_x": int}, KEY, "_x", ["underscore"]),
    ("a field called key", {**AB, "key": int}, {"primary": tm.Key(partition="{name}")}, "key", ["taken"]),
    ("a field called replace", {**AB, "replace": int}, KEY, "replace", ["taken"]),
    ("a property of the store", {**AB, "Timestamp": int}, KEY, "Timestamp", ["Timestamp"]),
    (
        "a property of the store, mapped",
        AB | {"b": int},
        {**KEY, "b": tm.field(name="PartitionKey")},
        "b",
        ["PartitionKey"],
    ),
    ("two fields, one property", AB | {"b": int}, {**KEY, "b": tm.field(name="age")}, "b", ["age"]),
    ("a property name", AB | {"b": int}, {**KEY, "b": tm.field(name="a-b")}, "b", ["a-b"]),
    (
        "a required field after a default",
        {"name": str, "a": int, "b": int},
        {**KEY, "a": tm.field(default=1)},
        "b",
        ["no default", "a"],
    ),
    ("a default of another type", AB, {**KEY, "age": tm.field(default="x")}, "age", ["default", "expected int"]),
    ("a default of None", AB, {**KEY, "age": tm.field(default=None)}, "age", ["None"]),
    ("a shared default", {"name": str, "a": list[str]}, {**KEY, "a": tm.field(default=[])}, "a", ["factory"]),
    ("a default by =", AB, {**KEY, "age": 3}, "age", ["tm.field(default=…)"]),
    ("a field without annotation", {"name": str}, {**KEY, "age": tm.field(default=3)}, "age", ["annotate"]),
    ("a method called as a field", AB, {**KEY, "age": property(lambda self: 1)}, "age", ["tm.field(default=…)"]),
    ("an index called as a field", AB, {**KEY, "age": tm.Index(partition="{age}")}, "age", ["already"]),
    ("a constructor", AB, {**KEY, "__init__": lambda self: None}, "__init__", ["classmethod"]),
    ("a measure in an entity", AB, {**KEY, "age": tm.count()}, "age", ["belongs in an Aggregate"]),
    ("no type for a field", {"name": str, "a": object}, KEY, "a", ["cannot be stored"]),
    ("a union", {"name": str, "a": int | str}, KEY, "a", ["a field has one type"]),
    (
        "an annotation that is no name",
        {"name": "tm.Field[str]", "a": "tm.Field[Decimla]"},
        KEY,
        "a",
        ["Decimla", 'did you mean "Decimal"'],
    ),
    ("an annotation with a fault", {"name": "tm.Field[str]", "a": "tm.Feild[int]"}, KEY, "a", ["Feild"]),
    ("a template that is no text", AB, {"key": tm.Key(partition=3)}, "key", ["partition=", "got 3"]),
    ("a row that is no text", AB, {"key": tm.Key(partition=("{name}", 4))}, "key", ["partition=", "tuple of texts"]),
    ("an include of no names", AB, by_age(include=3), "by_age", ["include="]),
    ("a where= that is no function", AB, by_age(where=3), "by_age", ["where="]),
    ("a where= that is text", AB, by_age(where="x"), "by_age: where='x'", ["expected a function"]),
    (
        "a where= that gives nothing",
        AB,
        by_age(where=lambda c: None),
        "by_age: where=: expected a condition",
        ["got None"],
    ),
    (
        "a where= that gives a function",
        AB,
        by_age(where=lambda c: print),
        "by_age: where=",
        ["got <built-in function print>"],
    ),
    ("an include of a number", AB, by_age(include=(1,)), "by_age include=", ["tuple of field names"]),
    ("an index table that is no text", AB, by_age(table=3), "by_age table=", ["is text"]),
    ("an index table of no name", AB, by_age(table=""), "by_age: its table ''", ["3 to 63"]),
    ("unique= that is text", AB, by_age(unique="yes"), "by_age unique=", ["True or False"]),
    ("a property without a name", AB, {**KEY, "age": tm.field(name="")}, "age", ["cannot be the name of a property"]),
    ("a Literal of nothing", {"name": str, "a": Literal[None]}, KEY, "a", ["besides None"]),
    ("a key with a long literal", AB, {"key": tm.Key(partition="{name}", row="x" * 513)}, "key row=", ["513", "512"]),
    (
        "a key with long literals",
        AB,
        {"key": tm.Key(partition="x" * 260 + "{name}-" + "😀" * 130)},
        "key partition=",
        ["521"],
    ),
    ("an index with a long literal", AB, by_age(row="x" * 449), "by_age row=", ["449", "448"]),
    ("a property name that is no text", AB, {**KEY, "age": tm.field(name=3)}, "age", ["name=3"]),
    ("a factory that is none", AB, {**KEY, "age": tm.field(factory=3)}, "age", ["factory=3"]),
    ("a default and a factory", AB, {**KEY, "age": tm.field(default=3, factory=int)}, "age", ["not both"]),
    ("two Extra", {"name": str, "a": tm.Extra, "b": tm.Extra}, KEY, "a", ["one Extra"]),
]


@pytest.mark.parametrize(
    ("annotations", "body", "member", "said"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_a_fault_names_the_member_and_what_was_expected(
    annotations: dict[str, Any], body: dict[str, Any], member: str, said: list[str]
) -> None:
    found = faults(lambda: made(annotations, **body))
    assert [f for f in found if member in f and all(text in f for text in said)], found


def test_all_faults_are_reported_together() -> None:
    annotations = {"name": str, "_x": int, "a": "tm.Field[Decimla]", "b": int | str, "replace": int}
    body = {"key": tm.Key(partition="{nmae}"), "by_b": tm.Index(partition="{naem}", include=("c",))}
    found = faults(lambda: made(annotations, **body))
    for text in ("_x", "Decimla", "a field has one type", "replace", "nmae", "naem", '"c"'):
        assert any(text in fault for fault in found), (text, found)


@pytest.mark.parametrize("table", ["", "ab", "1abc", "a_b", "a b", "x" * 64, "tables", 3])
def test_a_table_name_is_as_azure_takes_it(table: Any) -> None:
    assert any("table=" in fault for fault in faults(lambda: made(AB, table=table, **KEY)))


def test_a_class_without_table_is_opened_by_no_store() -> None:
    cls = made(AB, table=None, **KEY)
    way = f'{cls.__name__} has no table=: write class {cls.__name__}(…, table="…"), or leave it out'
    assert way in faults(lambda: tm.open(":memory:", models=[cls]))[0]


def test_a_class_with_a_table_has_no_subclasses() -> None:
    found = faults(lambda: made({"x": int, "_y": int}, base=Customer, table="Sub"))
    assert any("Customer has a table" in fault for fault in found)


def test_the_faults_name_the_class() -> None:
    with pytest.raises(tm.InvalidModel, match=r"^Made: "):
        made({"name": str})


def test_a_constant_row_may_be_left_out() -> None:
    assert declaration_of(Customer).arguments == ("name",)
    assert Customer.key("ann").row == ""


def test_annotations_are_read_where_the_class_is_written() -> None:
    class Local(msgspec.Struct, frozen=True):
        pass

    class Place(tm.Entity, table="Places"):
        class Inner(msgspec.Struct, frozen=True):
            pass

        name: tm.Field[str]
        at: tm.Field[Local | None] = tm.field(default=None)
        of: tm.Field[Inner | None] = tm.field(default=None)

        key = tm.Key[str](partition="{name}")

    place = Place("x", Local(), Place.Inner())
    assert (type(place.at), type(place.of)) == (Local, Place.Inner)
    with pytest.raises(tm.InvalidEntity, match="Local"):
        place.at = Place.Inner()  # type: ignore[assignment]


def test_abstract_classes_lend_their_fields_in_order() -> None:
    class Named(tm.Entity):
        name: tm.Field[str]
        note: tm.Field[str | None] = tm.field(default=None, kw_only=True)

        def shout(self) -> str:
            return self.name.upper()

    class Priced(tm.Entity):
        price: tm.Field[Decimal] = tm.field(default=Decimal(1), kw_only=True)

    class Thing(Named, Priced, table="Things"):
        size: tm.Field[int] = tm.field(default=3)

        key = tm.Key[str](partition="{name}")

        def shout(self) -> str:
            return super().shout() + "!"

    thing = Thing("x", 4, note="n", price=Decimal(2))
    assert (thing.name, thing.size, thing.note, thing.price) == ("x", 4, "n", Decimal(2))
    assert thing.shout() == "X!"
    assert {f.name for f in declaration_of(Thing).fields} == {"name", "note", "price", "size"}


# ---------------------------------------------------------------------------------------------- between classes


def entity(name: str, table: str, partition: Any = "{name}", row: Any = "{age}", **body: Any) -> Any:
    content = {
        "__module__": __name__,
        "__qualname__": name,
        "__annotations__": {name: tm.Field[kind] for name, kind in AB.items()},
        **body,
    }
    return type(tm.Entity)(name, (tm.Entity,), {**content, "key": tm.Key(partition=partition, row=row)}, table=table)


INDEXED = entity("A", "Things", by_age=tm.Index(partition="{age}"))
TWICE_INDEXED = entity(
    "A", "Things", a=tm.Index(partition="{age}", table="Same"), b=tm.Index(partition="{age}", table="same")
)
APART: list[tuple[str, list[Any], list[str]]] = [
    ("tables that differ in case only", [entity("A", "Things"), entity("B", "THINGS")], ["differ only in case"]),
    ("an index table that is a table", [INDEXED, entity("B", "ThingsByAge")], ["A.by_age", "write table="]),
    ("two index tables of one name", [TWICE_INDEXED], ["A.b", "A.a"]),
    ("two types of equal keys", [entity("A", "Things"), entity("B", "Things")], ["A and B share the table", "literal"]),
    ("two classes of one name", [entity("A", "One"), entity("A", "Two")], ["two classes are called A"]),
]


@pytest.mark.parametrize(("classes", "said"), [row[1:] for row in APART], ids=[row[0] for row in APART])
def test_classes_that_cannot_be_together_are_named(classes: list[Any], said: list[str]) -> None:
    assert any(all(text in fault for text in said) for fault in faults(lambda: compile_schema(classes)))


def test_two_types_told_apart_by_a_literal() -> None:
    first, second = entity("A", "Things", row=("a", "{age}")), entity("B", "Things", row=("b", "{age}"))
    assert len(compile_schema([first, second]).tables()["Things"]) == 2


def test_an_aggregate_without_its_source() -> None:
    class Towns(tm.Aggregate, of=Customer, table="Towns"):
        name: tm.Field[str] = tm.group_by(Customer.name)
        n: tm.Field[int] = tm.count()

        key = tm.Key[str](partition="{name}")

    assert any("aggregate of Customer" in fault for fault in faults(lambda: compile_schema([Towns])))


def test_something_that_is_no_entity_class() -> None:
    assert len(faults(lambda: compile_schema([str, tm.Entity, 3]))) == 3  # type: ignore[list-item]


def test_a_key_field_under_shard_only_would_make_a_bucket_one_entity() -> None:
    with pytest.raises(tm.InvalidModel, match=r"user is in it under shard only.*add \{user\} to row"):
        made({"user": str}, key=tm.Key[str](partition="{user:shard(2)}", row="profile"))


def test_a_literal_that_just_fits_is_no_fault() -> None:
    thing = made(AB, key=tm.Key(partition="{name}", row="x" * 512), i=tm.Index(partition="{age}", row="x" * 448))
    with tm.open(":memory:", models=[thing]) as store:
        store.insert(thing("a", 1))
        assert store.query(thing.i(1)).count() == 1


@pytest.mark.parametrize("where", ["x", lambda c: None, lambda c: lambda: 1])
def test_a_condition_of_an_aggregate_that_is_none_is_named_once(where: Any) -> None:
    def declare() -> None:
        class Towns(tm.Aggregate, of=Customer, table="Towns", where=where):
            name: tm.Field[str] = tm.group_by(Customer.name)
            n: tm.Field[int] = tm.count(where=where)

            key = tm.Key[str](partition="{name}")

    found = faults(declare)
    assert [fault.count("where=") for fault in found if "where" in fault] == [1 + (where == "x"), 1], found
    assert not any(" at 0x" in fault for fault in found)
