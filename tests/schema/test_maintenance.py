"""Keys and indexes as they are declared and called, and the schema that they compile to."""

from __future__ import annotations

import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

import tablemapper as tm
from tablemapper.entities.declaration import declaration_of
from tablemapper.schema.model import Schema, compile_schema

from ..classes import entity, grouped


@attrs.frozen
class Home:
    city: str


class Person(tm.Entity, table="People"):
    name: tm.Field[str]
    number: tm.Field[int]
    nick: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    home: tm.Field[Home | None] = tm.field(default=None)
    price: tm.Field[Decimal] = tm.field(default=Decimal(0))

    key = tm.Key[str, int](partition="{name}", row="{number}")
    by_nick_name = tm.Index[str, int](partition="{nick}", row="{number}", include=("price",))
    by_tag = tm.Index[str](partition="{tags}")
    by_city = tm.Index[str](partition="{home.city}", where=lambda p: p.number > 0)
    sharded = tm.Index[int](partition="{name:shard(8)}", row="{number}")
    one = tm.Index[str](partition="{nick}", unique=True, table="OneNick")
    full = tm.Index[Decimal, str](partition="{price}", row=("{name}",), include="all")


def test_a_key_is_called_with_its_fields_in_order_of_first_appearance() -> None:
    key = Person.key("ann", 3)
    assert (key.entity, key.partition, key.row) == (Person, "ann", "a3")
    assert key == Person.key(number=3, name="ann")


def test_a_key_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Person.key("ann", 3))) == Person.key("ann", 3)


def test_an_instance_knows_its_key() -> None:
    assert Person("ann", 3).key == Person.key("ann", 3)


def test_an_index_is_called_with_any_leading_values() -> None:
    assert Person.by_nick_name() == (Person, "by_nick_name", ())
    assert Person.by_nick_name("a").values == ("a",)
    assert Person.by_nick_name("a", 3).values == ("a", 3)


def test_an_index_takes_the_element_of_a_list_and_leaves_out_shards() -> None:
    assert Person.by_tag("x").values == ("x",)
    assert Person.by_city("Delft").values == ("Delft",)
    assert Person.sharded(3).values == (3,)


@pytest.mark.parametrize(
    ("values", "said"),
    [((1,), "nick: expected str"), (("a", "b"), "number: expected int"), (("a", 1, 2), "3 values, but it has 2")],
)
def test_wrong_index_values_are_refused(values: tuple[Any, ...], said: str) -> None:
    with pytest.raises(tm.InvalidQuery, match=said):
        Person.by_nick_name(*values)


@pytest.mark.parametrize(
    ("name", "table"),
    [("by_nick_name", "PeopleByNickName"), ("by_tag", "PeopleByTag"), ("one", "OneNick"), ("sharded", "PeopleSharded")],
)
def test_an_index_table_is_named_after_its_table_and_itself(name: str, table: str) -> None:
    (model,) = compile_schema([Person]).models
    assert model.index(name).table == table


def test_an_index_knows_what_it_holds() -> None:
    made = {index.name: index for index in declaration_of(Person).indexes}
    assert [field.name for field in made["by_nick_name"].include] == ["price"]
    assert [field.name for field in made["full"].include] == [field.name for field in declaration_of(Person).fields]
    assert made["by_tag"].fan_out == "tags"
    assert made["one"].unique
    assert made["by_city"].where is not None


# ---------------------------------------------------------------------------------------------- the schema


def schema(**changes: Any) -> Schema:
    """Return the schema of a class with some of its parts changed."""
    parts: dict[str, Any] = {
        "name": "Thing", "table": "Things", "annotations": {"name": str, "n": int, "x": float | None}, "default": 0,
        "index": {"partition": "{n}"}, "key": {"partition": "{name}"}, "doc": "", "factory": list, "kw_only": False,
        "type": None, "property": None, "stored": False,
    } | changes  # fmt: skip
    body = {
        "__module__": __name__,
        "__qualname__": parts["name"],
        "__doc__": parts["doc"],
        "__annotations__": {
            name: tm.Field[kind] for name, kind in (parts["annotations"] | {"many": list[str]}).items()
        },
        "n": tm.field(default=parts["default"], kw_only=parts["kw_only"], name=parts["property"]),
        "x": tm.field(default=None, stored=parts["stored"]),
        "many": tm.field(factory=parts["factory"]),
        "key": tm.Key(**parts["key"]),
        "by_n": tm.Index(**parts["index"]),
        "method": lambda self: parts["doc"],
    }
    made = type(tm.Entity)(parts["name"], (tm.Entity,), body, table=parts["table"], type=parts["type"])
    return compile_schema([made])


DIFFERENT: dict[str, dict[str, Any]] = {
    "the class": {"name": "Other"}, "the table": {"table": "Others"}, "type=": {"type": "t"},
    "a default": {"default": 1}, "a property": {"property": "N"},
    "a type": {"annotations": {"name": str, "n": int, "x": int | None}},
    "a new field": {"annotations": {"y": str, "name": str, "n": int, "x": float | None}},
    "the key": {"key": {"partition": "a-{name}"}}, "the row key": {"key": {"partition": "{name}", "row": "row"}},
    "an index's partition": {"index": {"partition": "{name}"}},
    "an index's row": {"index": {"partition": "{n}", "row": "{name}"}},
    "an index's table": {"index": {"partition": "{n}", "table": "Elsewhere"}},
    "include": {"index": {"partition": "{n}", "include": ("x",)}},
    "unique": {"index": {"partition": "{n}", "unique": True}},
    "where": {"index": {"partition": "{n}", "where": lambda p: p.n > 1}},
    "a constant of where": {"index": {"partition": "{n}", "where": lambda p: p.n > 2}},
}  # fmt: skip
SAME: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a docstring": {"doc": "A thing."},
    "a factory": {"factory": lambda: ["a"]},
    "the order of the constructor": {"kw_only": True},
    "the order of fields": {"annotations": {"name": str, "x": float | None, "n": int}},
}


def test_every_difference_in_what_is_stored_or_maintained_changes_the_fingerprint() -> None:
    found = {name: schema(**changes).fingerprint for name, changes in DIFFERENT.items()}
    found["none"] = schema().fingerprint
    assert len(set(found.values())) == len(found), found


@pytest.mark.parametrize("changes", SAME.values(), ids=SAME)
def test_what_is_neither_stored_nor_maintained_does_not_change_the_fingerprint(changes: dict[str, Any]) -> None:
    assert schema(**changes).fingerprint == schema().fingerprint
    assert len(schema().fingerprint) == 32


def test_equal_conditions_give_equal_fingerprints() -> None:
    first = schema(index={"partition": "{n}", "where": lambda p: p.n > 1}).fingerprint
    assert schema(index={"partition": "{n}", "where": lambda q: q.n > 1}).fingerprint == first


@pytest.mark.parametrize("changes", [*DIFFERENT.values(), {}], ids=[*DIFFERENT, "none"])
def test_the_json_form_survives_json(changes: dict[str, Any]) -> None:
    form = schema(**changes).to_json()
    assert msgspec.json.decode(msgspec.json.encode(form)) == form


def test_a_schema_and_its_parts_can_not_be_changed() -> None:
    compiled = compile_schema([Person])
    (model,) = compiled.models
    parts: list[tuple[Any, str]] = [
        (compiled, "models"), (model, "columns"), (model.declaration, "fields"), (model.declaration.fields[0], "name"),
        (model.indexes[0], "unique"), (model.declaration.templates[0], "text"),
    ]  # fmt: skip
    for part, name in parts:
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(part, name, None)


def test_what_the_key_holds_is_not_a_column() -> None:
    (model,) = compile_schema([Person]).models
    assert [field.name for field in model.columns] == ["nick", "tags", "home", "price"]


def test_a_row_becomes_the_entity_again() -> None:
    (model,) = compile_schema([Person]).models
    person = Person("ann", 3, "x", ["a"], Home("Delft"), Decimal("1.50"))
    row = model.to_row(person)
    assert row[:3] == ("ann", "a3", 0)
    assert model.build_one(row) == person
    assert str(model.build_one(row).price) == "1.50"


def test_a_row_that_can_not_be_read_is_named() -> None:
    (model,) = compile_schema([Person]).models
    with pytest.raises(tm.CorruptStore, match="ann"):
        model.build_one(("ann", "a3", 7, None, "[]", None, "x"))


@pytest.mark.needs("one_commit")
def test_a_group_keeps_its_etag_while_nothing_that_is_shown_of_it_changes(tmp_path: Path) -> None:
    members = {"device": str, "number": int}
    Reading = entity("Reading", "Readings", members, tm.Key[str, int](partition="{device}", row="{number}"))
    Peak = grouped("Peak", Reading, "device", "Peaks", highest=(int | None, tm.max(Reading.number)))
    with tm.open(tmp_path / "peaks.db", models=[Reading, Peak]) as store:
        store.insert(Reading("a", 5))
        etag = tm.info(store[Peak.key("a")]).etag
        store.insert(Reading("a", 3))
        assert tm.info(store[Peak.key("a")]).etag == etag
        store.insert(Reading("a", 7))
        assert tm.info(store[Peak.key("a")]).etag != etag
