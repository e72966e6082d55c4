from __future__ import annotations

import ast
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablemapper import limits
from tablemapper.limits import (
    MAX_ENTITY,
    MAX_NAME,
    MAX_VALUE,
    binary_size,
    check_property_name,
    check_table_name,
    check_value,
    entity_size,
    fixed_size,
    key_size,
    property_size,
    string_size,
    utf16_units,
)

from .parsed import nodes, parsed

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=[]))


def test_the_limits_are_those_that_azure_publishes() -> None:
    assert {name: getattr(limits, name) for name in limits.__all__ if name.startswith("M")} == {
        "MAX_ENTITY": 1_048_576, "MAX_INDEX_ROW_UNITS": 448, "MAX_INT32": 2_147_483_647,
        "MAX_INT64": 9_223_372_036_854_775_807, "MAX_KEY_UNITS": 512, "MAX_NAME": 255, "MAX_OPERATIONS": 100,
        "MAX_PROPERTIES": 252, "MAX_TRANSACTION": 4_194_304, "MAX_TABLE": 63, "MAX_VALUE": 65_536,
        "MIN_DATETIME": datetime(1601, 1, 1, tzinfo=UTC), "MIN_INT32": -2_147_483_648,
        "MIN_INT64": -9_223_372_036_854_775_808,
    }  # fmt: skip


@given(ANY_TEXT)
def test_units_are_one_a_character_and_two_above_the_basic_plane(text: str) -> None:
    assert utf16_units(text) == sum(2 if character > "\uffff" else 1 for character in text)


def test_a_lone_surrogate_counts_as_one_unit() -> None:
    assert utf16_units("a\ud800") == 2


@pytest.mark.parametrize(
    ("text", "units"),
    [("x" * 32_768, None), ("x" * 32_769, "32,769"), ("é" * 32_768, None), ("é" * 32_769, "32,769")],
    ids=["ascii at", "ascii over", "latin at", "latin over"],
)
def test_a_text_has_at_most_32768_units(text: str, units: str | None) -> None:
    fault = check_value("note", text)
    assert fault == (
        units
        and f"note: a text of {units} UTF-16 units, the most is 32,768 (64 KiB); declare it with tm.field(large=True)"
    )


def test_a_surrogate_pair_counts_twice_in_a_text() -> None:
    assert check_value("note", "😀" * 16_384) is None
    assert check_value("note", "😀" * 16_384 + "x") is not None
    assert check_value("note", "😀" * 16_385) is not None


def test_bytes_are_at_most_64_kib() -> None:
    assert check_value("photo", bytes(MAX_VALUE)) is None
    assert check_value("photo", bytes(MAX_VALUE + 1)) == (
        "photo: 65,537 bytes, the most is 65,536 (64 KiB); declare it with tm.field(large=True)"
    )


@pytest.mark.parametrize("value", [None, 2**63, 1.5, True, ["x"] * 70_000])
def test_other_values_have_no_size_to_check(value: object) -> None:
    assert check_value("any", value) is None


def test_an_entity_has_the_size_of_the_published_formula() -> None:
    # 4 + 2 * len("pkrow") = 14, then 8 + 2 * len(name) + value each
    properties: list[tuple[str, limits.Edm, object]] = [
        ("Address", "String", "Mountain View"),  # 8 + 14 + 30
        ("Age", "Int32", 23),  # 8 + 6 + 4
        ("AmountDue", "Double", 200.23),  # 8 + 18 + 8
        ("BinaryData", "Binary", b"12345"),  # 8 + 20 + 9
        ("CustomerCode", "Guid", uuid.UUID(int=1)),  # 8 + 24 + 16
        ("CustomerSince", "DateTime", datetime(2008, 7, 10, tzinfo=UTC)),  # 8 + 26 + 8
        ("IsActive", "Boolean", True),  # 8 + 16 + 1
        ("NumOfOrders", "Int64", 255),  # 8 + 22 + 8
        ("Missing", "String", None),  # not stored
    ]
    assert entity_size("pk", "row", properties) == 14 + 52 + 18 + 34 + 37 + 48 + 42 + 25 + 38


def test_an_entity_of_a_mebibyte_is_reached_to_the_byte() -> None:
    def texts(last: int) -> list[tuple[str, limits.Edm, object]]:
        return [*((f"p{i:02}", "String", "x" * 30_000) for i in range(17)), ("last", "String", "x" * last)]

    fixed = entity_size("p", "r", texts(0))
    most = (MAX_ENTITY - fixed) // 2
    assert entity_size("p", "r", texts(most)) == MAX_ENTITY
    assert entity_size("p", "r", texts(most + 1)) == MAX_ENTITY + 2


@given(st.text(), st.text(), st.text(), st.binary(), st.booleans())
def test_the_parts_of_a_size_add_up_to_the_whole(pk: str, rk: str, text: str, data: bytes, there: bool) -> None:
    whole = entity_size(pk, rk, [("n", "Int64", 1), ("tèxt", "String", text), ("b", "Binary", data if there else None)])
    parts = fixed_size([("n", "Int64"), ("tèxt", "String")]) + key_size(pk, rk) + string_size(text)
    assert whole == parts + (property_size("b", "Binary") + binary_size(data) if there else 0)


@given(st.text(), st.text(), st.text())
def test_four_bytes_a_character_is_never_too_little(pk: str, rk: str, text: str) -> None:
    roughly = fixed_size([("t", "String")]) + 4 + 4 * (len(pk) + len(rk) + len(text))
    assert entity_size(pk, rk, [("t", "String", text)]) <= roughly


def test_a_size_of_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="n: int is not the value of a String"):
        entity_size("p", "r", [("n", "String", 3)])


@pytest.mark.parametrize(
    "name",
    ["a", "_", "_x", "ProductName", "x9", "größe", "Ελλάδα", "名前", "class", "__init__", "e\u0301", "a\u203fb",
     "partitionkey", "odata_url", "timestamp", "Odata"],
)  # fmt: skip
def test_a_csharp_identifier_is_a_property_name_and_its_case_counts(name: str) -> None:
    assert check_property_name(name) is None


@pytest.mark.parametrize(
    "name",
    ["", "9x", "a b", "a-b", "a.b", "a@odata.type", "a$b", 'a"b', "a\nb", "a\n", "x\x00", "@a", "\u0301a", "\ue000",
     "😀", "𝐱", "a\ud800", "ªb", "²", "x²"],
)  # fmt: skip
def test_what_is_no_csharp_identifier_or_no_xml_name_is_no_property_name(name: str) -> None:
    fault = check_property_name(name)
    assert fault is not None
    assert "cannot be the name of a property" in fault


def test_a_property_name_has_at_most_255_units() -> None:
    assert check_property_name("n" * MAX_NAME) is None
    assert check_property_name("n" * (MAX_NAME + 1)) == '"nnnnnnnnnnnnnnnnnnnn…" has 256 characters, the most is 255'
    assert check_property_name("é" * MAX_NAME) is None
    assert check_property_name("é" * (MAX_NAME + 1)) is not None


@pytest.mark.parametrize("name", ["PartitionKey", "RowKey", "Timestamp", "odata", "odata.etag"])
def test_names_that_azure_uses_itself_are_refused(name: str) -> None:
    fault = check_property_name(name)
    assert fault is not None
    assert "choose another name" in fault


@pytest.mark.parametrize("name", ["abc", "A12", "a" * 63])
def test_three_to_63_letters_and_digits_are_a_table_name(name: str) -> None:
    assert check_table_name(name) is None


@pytest.mark.parametrize("name", ["", "ab", "a" * 64, "1ab", "a_b", "a-b", "abc\n", "äbc", "ab٣"])
def test_anything_else_is_no_table_name(name: str) -> None:
    fault = check_table_name(name)
    assert fault is not None
    assert "is not a table name" in fault


@pytest.mark.parametrize("name", ["tables", "Tables"])
def test_the_name_of_the_list_of_tables_is_reserved(name: str) -> None:
    assert check_table_name(name) == f'"{name}" is a name that Azure reserves; choose another'


def test_no_other_module_states_a_limit_again() -> None:
    stated = {1601, 252, 448, 2**31 - 1, 2**63 - 1}
    again = []
    package = Path(limits.__file__).parent
    for path in package.rglob("*.py"):
        for node in nodes(parsed(path)):
            if isinstance(node, ast.Constant) and node.value in stated and node.value is not True:
                again.append((path.relative_to(package), node.lineno))
            if (
                isinstance(node, ast.BinOp)
                and isinstance(node.op, ast.Pow)
                and ast.unparse(node) in ("2 ** 31", "2 ** 63")
            ):
                again.append((path.relative_to(package), node.lineno))
    assert {str(path) for path, _ in again} == {"limits.py"}, again
