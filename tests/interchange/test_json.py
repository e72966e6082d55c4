"""Entities as JSON and dicts, and back: one form, whole, with all faults at once."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import attrs
import msgspec
import pytest

import tablemapper as tm
from tablemapper.values.extra import Int32Value

from ..classes import Color, Level, entity, grouped
from ..stores import sound_store


@attrs.frozen
class Address:
    street: str
    city: str = "Oslo"


class Everything(tm.Entity, table="Everything"):
    text: tm.Field[str]
    whole: tm.Field[int]
    small: tm.Field[tm.Int32]
    real: tm.Field[float]
    flag: tm.Field[bool]
    at: tm.Field[datetime]
    day: tm.Field[date]
    clock: tm.Field[time]
    span: tm.Field[timedelta]
    price: tm.Field[Decimal]
    uid: tm.Field[UUID]
    blob: tm.Field[bytes]
    color: tm.Field[Color]
    level: tm.Field[Level]
    choice: tm.Field[Literal["a", "b"]]
    home: tm.Field[Address]
    homes: tm.Field[dict[str, Address]]
    prices: tm.Field[list[Decimal]]
    words: tm.Field[list[str]]
    letters: tm.Field[set[str]]
    place: tm.Field[tm.GeoPoint]
    missing: tm.Field[datetime | None] = tm.field(default=None)
    nick: tm.Field[str] = tm.field(default="x", name="alias")

    key = tm.Key[str](partition="{text}")


class Loose(tm.Entity, table="Loose"):
    name: tm.Field[str]
    size: tm.Field[int] = tm.field(default=3)
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str](partition="{name}")


class Product(tm.Entity, table="Products"):
    """A thing on sale."""

    number: tm.Field[str]
    price: tm.Field[Decimal]
    home: tm.Field[Address | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str](partition="{number}")


Prices = grouped("Prices", Product, "number", products=tm.count(), total=(Decimal | None, tm.sum(Product.price)))


@pytest.fixture
def everything() -> Everything:
    return Everything(
        "é\u2028\"", 2**62, 7, 2.5, True, datetime(2026, 3, 1, 12, tzinfo=UTC), date(2026, 3, 1), time(1, 2),
        timedelta(days=1, microseconds=5), Decimal("9.90"), UUID(int=5), b"\x00\xff", Color.RED, Level.HIGH, "b",
        Address("Storgata"), {"b": Address("x"), "a": Address("y", "Bergen")}, [Decimal("1.10")], ["b", "a"], {"y", "x"},
        tm.GeoPoint(59.9, 10.7),
    )  # fmt: skip


FORM = {
    "text": 'é\u2028"', "whole": 2**62, "small": 7, "real": 2.5, "flag": True, "at": "2026-03-01T12:00:00.000000Z",
    "day": "2026-03-01", "clock": "01:02:00.000000", "span": "P1DT0.000005S", "price": "9.90",
    "uid": "00000000-0000-0000-0000-000000000005", "blob": "AP8=", "color": "red", "level": 2, "choice": "b",
    "home": {"street": "Storgata", "city": "Oslo"},
    "homes": {"b": {"street": "x", "city": "Oslo"}, "a": {"street": "y", "city": "Bergen"}},
    "prices": ["1.10"], "words": ["b", "a"], "letters": ["x", "y"],
    "place": {"type": "Point", "coordinates": [10.7, 59.9]}, "missing": None, "alias": "x",
}  # fmt: skip


def faults(call: Any) -> list[str]:
    with pytest.raises(tm.InvalidEntity) as caught:
        call()
    return list(caught.value.faults)


# -- out and in -------------------------------------------------------------------------------------------------------


def test_every_type_of_value_has_one_json_form_in_the_order_of_the_fields(everything: Everything) -> None:
    assert tm.to_dict(everything) == FORM
    assert json.loads(tm.to_json(everything)) == FORM
    assert list(tm.to_dict(everything)) == list(FORM)


def test_what_to_json_writes_reads_back_as_the_same_entity(everything: Everything) -> None:
    assert tm.from_json(Everything, tm.to_json(everything)) == everything
    assert tm.from_json(Everything, tm.to_json(everything).decode()) == everything
    assert tm.from_dict(Everything, tm.to_dict(everything)) == everything


def test_a_dict_may_hold_python_values_as_they_are(everything: Everything) -> None:
    values = attrs.asdict(everything, recurse=False)
    values["alias"] = values.pop("nick")
    assert tm.from_dict(Everything, values) == everything


def test_the_json_of_a_value_is_the_form_that_its_type_defines(everything: Everything) -> None:
    form = tm.to_dict(everything)
    for f in Everything.__declaration__.fields:  # type: ignore[attr-defined]
        value = getattr(everything, f.name)
        assert value is None or form[f.property] == f.type.to_json(value), f.name


def test_a_time_is_read_in_any_form_of_rfc_3339(everything: Everything) -> None:
    for at in ("2026-03-01T12:00:00Z", "2026-03-01T13:00:00+01:00", "2026-03-01t12:00:00.0z"):
        assert tm.from_dict(Everything, {**FORM, "at": at}) == everything
        assert tm.from_json(Everything, json.dumps({**FORM, "at": at})) == everything
    local = datetime(2026, 3, 1, 13, tzinfo=timezone(timedelta(hours=1)))
    assert tm.from_dict(Everything, {**FORM, "at": local}).at == everything.at


def test_a_number_is_a_decimal_with_every_digit_of_it() -> None:
    product = tm.from_json(Product, b'{"number": "1", "price": 1234567890123456789012345.60}')
    assert str(product.price) == "1234567890123456789012345.60"


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 3.0, 1e300])
def test_a_float_keeps_its_value_an_infinite_one_too(everything: Everything, value: float) -> None:
    everything.real = value
    assert tm.from_json(Everything, tm.to_json(everything)).real == value
    assert tm.from_dict(Everything, {**FORM, "real": value}).real == value
    assert json.loads(tm.to_json(everything))["real"] == (
        str(value) if value in (float("inf"), float("-inf")) else value
    )


def test_a_missing_member_is_the_default_of_its_field() -> None:
    product = tm.from_json(Product, '{"number": "1", "price": "2"}')
    assert (product.home, product.tags) == (None, [])


def test_an_aggregate_is_json_as_an_entity_is() -> None:
    with tm.open(":memory:", models=[Product, Prices]) as store:
        store.insert(Product("1", Decimal("2.50")))
        assert tm.to_dict(store[Prices.key("1")]) == {"number": "1", "products": 1, "total": "2.50"}


def test_an_entity_that_no_constructor_built_is_written_too() -> None:
    product = msgspec.convert({"number": "1", "price": "2"}, Product)
    assert tm.to_dict(product) == {"number": "1", "price": "2", "home": None, "tags": []}


# -- undeclared properties --------------------------------------------------------------------------------------------

UNDECLARED: dict[str, Any] = {
    "at": datetime(2026, 3, 1, tzinfo=UTC), "bytes": b"\x01", "color": "red", "count": 5, "far": float("inf"),
    "flag": False, "small": Int32Value(5), "uid": UUID(int=1), "whole": 3.0,
}  # fmt: skip


def test_undeclared_properties_stand_beside_the_declared_with_their_types_where_json_does_not_show_them() -> None:
    form = tm.to_dict(Loose("n", 3, tm.Extra(UNDECLARED)))
    assert form == {
        "name": "n", "size": 3, "at@odata.type": "Edm.DateTime", "at": "2026-03-01T00:00:00.000000Z",
        "bytes@odata.type": "Edm.Binary", "bytes": "AQ==", "color": "red", "count@odata.type": "Edm.Int64",
        "count": "5", "far@odata.type": "Edm.Double", "far": "inf", "flag": False, "small": 5,
        "uid@odata.type": "Edm.Guid", "uid": "00000000-0000-0000-0000-000000000001", "whole": 3.0,
    }  # fmt: skip


def test_undeclared_properties_keep_their_values_and_types_on_the_way_back() -> None:
    loose = Loose("n", 3, tm.Extra(UNDECLARED))
    for back in (tm.from_json(Loose, tm.to_json(loose)), tm.from_dict(Loose, tm.to_dict(loose))):
        assert back == loose
        assert [type(value) for value in back.more.values()] == [type(value) for value in loose.more.values()]
    assert tm.from_dict(Loose, {"name": "n", **UNDECLARED}) == loose
    assert tm.from_json(Loose, b'{"name": "n", "big": 2147483648, "none": null}').more == {"big": 2**31}


def test_no_undeclared_property_leaves_an_empty_extra() -> None:
    assert tm.to_json(Loose("n")) == b'{"name":"n","size":3}'
    assert tm.from_json(Loose, b'{"name": "n"}') == Loose("n")


def test_every_wrong_undeclared_property_is_told() -> None:
    text = """{"name": "n", "a": [1], "b@odata.type": "Edm.Nonsense", "b": 1, "c@odata.type": "Edm.Guid", "c": "x",
               "d@odata.type": "Edm.Int64", "size@odata.type": "Edm.Int64", "e.f": 1}"""
    assert [fault.partition(":")[0] for fault in faults(lambda: tm.from_json(Loose, text))] == [
        "a", "b", "c", "d@odata.type", "size@odata.type", "e.f",
    ]  # fmt: skip


# -- ETags ------------------------------------------------------------------------------------------------------------


def test_an_etag_travels_and_is_compared_when_the_entity_is_written() -> None:
    with sound_store(":memory:", models=[Product]) as store:
        product = Product("1", Decimal(2))
        assert "odata.etag" not in tm.to_dict(product, etag=True)
        store.insert(product)
        sent = tm.to_json(product, etag=True)
        assert sent.startswith(b'{"odata.etag":"W/')
        assert "odata.etag" not in tm.to_dict(product)
        back = tm.from_json(Product, sent)
        assert tm.info(back) == tm.info(product)
        back.price = Decimal(3)
        store.replace(back)
        assert store[Product.key("1")].price == 3
        for verb in (store.replace, store.delete):
            with pytest.raises(tm.PreconditionFailed):
                verb(tm.from_json(Product, sent))
        with pytest.raises(tm.PreconditionFailed):
            store.delete_many([tm.from_json(Product, sent)])
        store.delete_many([tm.from_dict(Product, tm.to_dict(back, etag=True))])
        assert store.get(Product.key("1")) is None


def test_an_entity_that_came_with_its_etag_maintains_indexes_of_what_is_stored() -> None:
    key = tm.Key[int](partition="{number}")
    Item = entity("Item", "Items", {"number": int, "name": str}, key, by_name=tm.Index[str](partition="{name}"))
    with sound_store(":memory:", models=[Item]) as store:
        item = Item(1, "a")
        store.insert(item)
        sent = {**tm.to_dict(item, etag=True), "name": "b"}
        with store.transaction() as tx:
            tx.replace(tm.from_dict(Item, sent))
        assert [found.name for found in store.query(Item.by_name("b"))] == ["b"]
        assert list(store.query(Item.by_name("a"))) == []


def test_an_entity_that_came_with_its_etag_and_was_spoilt_is_refused_as_any_other() -> None:
    product = tm.from_dict(Product, {"number": "1", "price": "2", "odata.etag": 'W/"5"'})
    product.tags.append(5)  # type: ignore[arg-type]
    with tm.open(":memory:", models=[Product]) as store:
        assert faults(lambda: store.replace(product)) == ["tags[0]: expected str, got int 5"]


@pytest.mark.parametrize("etag", [5, "x", "*", 'W/"-1"', ""])
def test_what_is_no_etag_is_a_fault(etag: object) -> None:
    (fault,) = faults(lambda: tm.from_dict(Product, {"number": "1", "price": "2", "odata.etag": etag}))
    assert fault.startswith("odata.etag: ")


# -- bad input --------------------------------------------------------------------------------------------------------


def test_every_fault_is_told_at_once_with_its_path() -> None:
    text = """{"price": "x", "prise": 1, "home": {"street": 5}, "tags": ["a", 7]}"""
    assert faults(lambda: tm.from_json(Product, text)) == [
        "number: it is missing",
        "price: invalid decimal string",
        "home.street: expected str, got int",
        "tags[1]: expected str, got int",
        'prise: no such field (fields: number, price, home, tags); did you mean "price"?',
    ]
    told = faults(lambda: tm.from_dict(Product, json.loads(text)))
    assert [fault.partition(":")[0] for fault in told] == ["number", "price", "home.street", "tags[1]", "prise"]


def test_an_unknown_member_inside_of_a_value_is_a_fault() -> None:
    text = '{"number": "1", "price": "2", "home": {"street": "x", "cty": "Oslo"}}'
    wanted = ['home.cty: no such field (fields: street, city); did you mean "city"?']
    assert faults(lambda: tm.from_json(Product, text)) == wanted
    assert faults(lambda: tm.from_dict(Product, json.loads(text))) == wanted


def test_a_struct_that_leaves_out_defaults_and_a_union_know_their_members() -> None:
    class Cat(msgspec.Struct, tag="cat", omit_defaults=True):
        lives: int = 9

    class Dog(msgspec.Struct, tag="dog"):
        name: str

    Owner = entity("Owner", "Owners", {"name": str, "pet": Cat | Dog}, tm.Key[str](partition="{name}"))
    assert tm.from_json(Owner, '{"name": "a", "pet": {"type": "cat", "lives": 9}}').pet == Cat()
    text = '{"name": "a", "pet": {"type": "dog", "name": "x", "lives": 9}}'
    assert faults(lambda: tm.from_json(Owner, text)) == ["pet.lives: no such field (fields: name)"]


def test_a_member_that_is_given_twice_is_a_fault_at_any_depth() -> None:
    text = '{"number": "1", "number": "2", "price": "2", "home": {"street": "x", "street": "y"}}'
    assert faults(lambda: tm.from_json(Product, text)) == ["number: it occurs twice", "home.street: it occurs twice"]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'"x"', b"null", b"\xff{}", b'{"number": NaN}', b"[" * 100_000])
def test_what_is_no_json_object_is_one_clear_fault(text: bytes) -> None:
    assert len(faults(lambda: tm.from_json(Product, text))) == 1


@pytest.mark.parametrize("data", [None, 5, "x", [("number", "1")]])
def test_what_is_no_dict_or_text_is_refused(data: Any) -> None:
    assert "expected a dict" in faults(lambda: tm.from_dict(Product, data))[0]
    if data != "x":
        assert "as bytes or str" in faults(lambda: tm.from_json(Product, data))[0]


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("at", "2026-03-01T12:00:00"), ("at", "yesterday"), ("whole", 2**63), ("whole", 5.0), ("whole", True), ("whole", "5"),
        ("small", 2**31), ("real", "5"), ("real", "nan"), ("real", True), ("color", "green"), ("level", 3), ("choice", "c"),
        ("text", None), ("text", 5), ("blob", "%"), ("uid", "x"), ("clock", "25:00"), ("span", "x"), ("price", "NaN"),
        ("place", {"type": "Point"}), ("place", 5), ("letters", [5]), ("homes", {"a": 5}), ("flag", 1),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_its_name_and_both_ways_refuse_it(member: str, value: object) -> None:
    for call in (
        lambda: tm.from_dict(Everything, {**FORM, member: value}),
        lambda: tm.from_json(Everything, json.dumps({**FORM, member: value})),
    ):
        (fault,) = faults(call)
        assert fault.startswith(member)


def test_what_was_changed_in_place_to_a_wrong_value_is_told() -> None:
    product = Product("1", Decimal(2), tags=["a"])
    product.tags.append(object())  # type: ignore[arg-type]
    assert faults(lambda: tm.to_json(product))[0].startswith("tags[1]: expected str, got object")


@pytest.mark.parametrize("wrong", ["x", None, Product, {"a": 1}])
def test_what_is_no_entity_is_refused(wrong: Any) -> None:
    for call in (tm.to_json, tm.to_dict):
        with pytest.raises(tm.InvalidEntity, match="to_json: expected an entity, got .*; call it for each"):
            call(wrong)


def test_what_is_no_class_of_entities_is_refused() -> None:
    for call in (
        lambda: tm.from_json(Address, b"{}"),
        lambda: tm.from_dict(Address, {}),
        lambda: tm.json_schema(Address),
    ):  # type: ignore[type-var]
        with pytest.raises(tm.InvalidModel):
            call()


# -- JSON Schema ------------------------------------------------------------------------------------------------------


def test_a_schema_names_every_member_with_its_type_and_default() -> None:
    assert tm.json_schema(Product) == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Product",
        "description": "A thing on sale.",
        "type": "object",
        "properties": {
            "number": {"type": "string"},
            "price": {"type": "string", "format": "decimal"},
            "home": {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}], "default": None},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["number", "price"],
        "additionalProperties": False,
        "$defs": {
            "Address": {
                "title": "Address",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string", "default": "Oslo"}},
                "required": ["street"],
            }
        },
    }


def test_a_schema_describes_every_type_of_value() -> None:
    properties = tm.json_schema(Everything)["properties"]
    assert list(properties) == list(FORM)
    assert properties["small"] == {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
    assert properties["place"]["required"] == ["type", "coordinates"]
    assert properties["alias"] == {"type": "string", "default": "x"}
    assert properties["at"] == {"type": "string", "format": "date-time"}
    assert properties["missing"]["anyOf"][0] == {"type": "string", "format": "date-time"}
    assert tm.json_schema(Loose)["additionalProperties"] is True
    assert "more" not in tm.json_schema(Loose)["properties"]


def test_a_schema_has_the_etag_if_it_is_asked_for() -> None:
    assert next(iter(tm.json_schema(Product, etag=True)["properties"])) == "odata.etag"


def test_a_class_without_a_docstring_has_no_description() -> None:
    assert "description" not in tm.json_schema(Loose)


def test_a_schema_names_the_bounds_that_msgspec_cannot_check() -> None:
    class Priced(tm.Entity, table="Priced"):
        name: tm.Field[str]
        price: tm.Field[Annotated[Decimal, msgspec.Meta(ge=0, lt=100)]]
        rebate: tm.Field[Annotated[Decimal, msgspec.Meta(gt=0, title="Rebate", description="off the price")] | None]
        level: tm.Field[Annotated[tm.Int32, msgspec.Meta(ge=-5)]]
        count: tm.Field[Annotated[int, msgspec.Meta(le=9)] | None]

        key = tm.Key[str](partition="{name}")

    properties = tm.json_schema(Priced)["properties"]
    price = {"type": "string", "format": "decimal", "description": "Decimal >= 0 and < 100"}  # (text has no minimum)
    assert properties["price"] == price
    assert properties["rebate"]["description"] == "Decimal > 0"
    rebate = {"type": "string", "format": "decimal", "title": "Rebate", "description": "off the price"}
    assert rebate in properties["rebate"]["anyOf"]
    assert properties["level"] == {"type": "integer", "minimum": -5}
    assert set(properties["count"]) == {"anyOf"}  # it stands inside, and not twice


def test_a_schema_names_constraints_and_the_way_in_checks_them() -> None:
    members = {"name": str, "stars": Annotated[int, msgspec.Meta(ge=0, le=5)]}
    Rated = entity("Rated", "Rated", members, tm.Key[str](partition="{name}"))
    assert tm.json_schema(Rated)["properties"]["stars"] == {"type": "integer", "minimum": 0, "maximum": 5}
    for call in (
        lambda: tm.from_json(Rated, '{"name": "a", "stars": 6}'),
        lambda: tm.from_dict(Rated, {"name": "a", "stars": 6}),
    ):
        (fault,) = faults(call)
        assert fault.startswith("stars: expected int")


class Measured(tm.Entity, table="Measured"):
    number: tm.Field[int]
    value: tm.Field[float]
    maybe: tm.Field[float | None] = tm.field(default=None)
    many: tm.Field[list[float]] = tm.field(factory=list)
    named: tm.Field[dict[str, float]] = tm.field(factory=dict)

    key = tm.Key[int](partition="{number}")


WHERE = [
    ("value", "{}", "value"),
    ("maybe", "{}", "maybe"),
    ("many", "[0, {}]", "many[1]"),
    ("named", '{{"a": {}}}', "named.a"),
]


@pytest.mark.parametrize(("name", "form", "path"), WHERE)
@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 12345678901234567890123])
def test_an_int_that_no_float_is_is_refused_wherever_it_stands(name: str, form: str, path: str, number: int) -> None:
    text = json.dumps({"number": 1, "value": 0.0}).removesuffix("}") + f', "{name}": {form.format(number)}}}'
    fault = re.escape(f"{path}: the int {number} is not exact as a float")
    with pytest.raises(tm.InvalidEntity, match=fault):
        tm.from_json(Measured, text.replace('"value": 0.0, ', "") if name == "value" else text)
    with pytest.raises(tm.InvalidEntity, match=fault):
        tm.from_dict(Measured, json.loads(text))


@pytest.mark.parametrize(
    "text", ["9007199254740992", "1152921504606847000", "1e300", "9007199254740993.0", "-18014398509481984"]
)
def test_a_text_of_a_float_is_read_as_javascript_writes_it(text: str) -> None:
    """JSON.stringify(2**60) is 1152921504606847000, the shortest text that leads to that float."""
    assert tm.from_json(Measured, f'{{"number": 1, "value": {text}}}').value == float(text)
