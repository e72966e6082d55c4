from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict, Union
from uuid import UUID

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.codegen import Names
from tablemapper.entities.fields import FieldModel
from tablemapper.expressions.tree import Attr
from tablemapper.testing.key_budget import KeyBudget
from tablemapper.testing.values import field_values
from tablemapper.values.extra import Extra, Int32Value
from tablemapper.values.geo import GeoPoint
from tablemapper.values.hooks import converter
from tablemapper.values.nested import value_type
from tablemapper.values.scalars import Int32, ValueFault, ValueType

from ..classes import Color
from ..conftest import examples
from ..matching import matcher


class Size(StrEnum):
    SMALL = "s"
    LARGE = "l"


class Rank(IntEnum):
    LOW = 1
    HIGH = 10


@attrs.define
class Address:
    city: str
    floor: Int32 = 0
    since: datetime | None = None


@attrs.define
class Place(Address):
    note: str = ""


class Stop(msgspec.Struct, rename="camel", frozen=True):
    stop_name: str
    at: GeoPoint
    wait: timedelta = timedelta(0)


@dataclasses.dataclass
class Phone:
    number: str
    address: Address | None = None


class Options(TypedDict):
    dark: bool
    scale: NotRequired[float]


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[str]


class Temperature:
    def __init__(self, degrees: float) -> None:
        self.degrees = degrees

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Temperature) and self.degrees == other.degrees

    def __repr__(self) -> str:
        return f"Temperature({self.degrees})"


class Unknown:
    pass


UserId = NewType("UserId", str)
CET = timezone(timedelta(hours=1))


@pytest.fixture(autouse=True, scope="module")
def _hooks() -> Iterator[None]:
    converter().register_unstructure_hook(Temperature, lambda value: {"degrees": value.degrees})
    converter().register_structure_hook(Temperature, lambda stored, _: Temperature(stored["degrees"]))
    yield


def of(annotation: Any) -> ValueType:
    return value_type(annotation)[0]


def refusal(annotation: Any, value: Any) -> str:
    with pytest.raises(ValueFault) as caught:
        of(annotation).check(value)
    return str(caught.value)


# -- what is a type ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "name", "kind", "edm", "fixed"),
    [
        (str, "str", str, "String", None), (int, "int", int, "Int64", 8), (Int32, "int32", int, "Int32", 4),
        (float, "float", float, "Double", 8), (bool, "bool", bool, "Boolean", 1),
        (datetime, "datetime", datetime, "DateTime", 8), (date, "date", date, "String", 24),
        (time, "time", time, "String", 34), (timedelta, "timedelta", timedelta, "Int64", 8),
        (Decimal, "Decimal", Decimal, "String", None), (UUID, "UUID", UUID, "Guid", 16),
        (bytes, "bytes", bytes, "Binary", None), (UserId, "str", str, "String", None),
        (Annotated[str, "note"], "str", str, "String", None),
        (Color, "enum[Color: str RED=red,BLUE=blue]", str, "String", None),
        (Rank, "enum[Rank: int LOW=1,HIGH=10]", int, "Int64", 8),
        (Literal["b", "a"], "literal['a', 'b']", str, "String", None),
        (Literal[1, 2], "literal[1, 2]", int, "Int64", 8), (list[str], "list[str]", object, "String", None),
        (list[Int32], "list[int32]", object, "String", None),
        (list[str | None], "json[list[str | None]]", object, "String", None),
        (list[Address], "json[list[Address]]", object, "String", None),
        (dict[str, int | None], "json[dict[str, int | None]]", object, "String", None),
        (Address, "json[Address]", object, "String", None), (Cat | Dog, "json[Cat | Dog]", object, "String", None),
        (tuple[int, ...], "json[tuple[int, ...]]", object, "String", None),
        (Temperature, "json[Temperature]", object, "String", None), (GeoPoint, "GeoPoint", object, "String", None),
        (Extra, "extra", object, "String", None),
    ],
)  # fmt: skip
def test_each_type_has_a_name_a_kind_an_edm_type_and_a_size(
    annotation: Any, name: str, kind: type, edm: str, fixed: int | None
) -> None:
    form, optional = value_type(annotation)
    assert (form.name, form.kind, form.edm, form.fixed, optional) == (name, kind, edm, fixed, False)


@pytest.mark.parametrize("annotation", [str | None, Optional[str], Union[None, str], Annotated[str | None, "note"]])  # noqa: UP007, UP045
def test_optional_means_that_none_may_stand_for_no_value(annotation: Any) -> None:
    form, optional = value_type(annotation)
    assert (form.name, optional) == ("str", True)


def test_a_literal_with_none_is_optional() -> None:
    form, optional = value_type(Literal["a", None])
    assert (form.name, optional) == ("literal['a']", True)


def test_united_structs_with_none_are_optional() -> None:
    form, optional = value_type(Cat | Dog | None)
    assert (form.name, optional) == ("json[Cat | Dog]", True)


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (int | str, "one type, optionally with None"), (dict[int, str], "keys of a dict must be str"),
        (Any, "supported are"), (None, "supported are"), (object, "supported are"),
        (complex, "complex cannot be stored"), (Callable[[], int], "supported are"),
        (Unknown, "register_structure_hook"), (list[Unknown], "Unknown cannot be stored"),
        (list[Extra], "Extra cannot be stored"), ("str", "typing.get_type_hints"),
        (Literal["a", 1], "all be str, or all int"), (Literal[True], "all be str, or all int"),
        (Enum("Mixed", {"A": 1, "B": "b"}), "all be str, or all int"), (Enum("Empty", {}), "all be str, or all int"),
        (dict[str, set[Color]], "use a list"),
        (attrs.make_class("Hidden", {"_secret": attrs.field(type=int)}), "_secret"),
    ],
)  # fmt: skip
def test_an_unsupported_annotation_is_refused_with_what_is_supported(annotation: Any, why: str) -> None:
    with pytest.raises(ValueError, match="Product.price: ") as caught:
        value_type(annotation, "Product.price")
    assert why in str(caught.value)


def test_a_class_with_a_structure_hook_alone_is_refused() -> None:
    class Half:
        pass

    converter().register_structure_hook(Half, lambda stored, _: Half())
    with pytest.raises(ValueError, match="register_unstructure_hook"):
        value_type(Half)


def test_only_plain_enums_and_nested_values_have_no_order() -> None:
    unordered = [
        a for a in (str, Decimal, bool, Size, Rank, Color, Literal["a"], list[str], Address) if not of(a).ordered
    ]
    assert unordered == [Color, list[str], Address]


def test_only_decimals_and_what_has_no_order_sort_otherwise_in_sql() -> None:
    types = (str, Decimal, float, UUID, timedelta, Size, Color, list[str])
    assert [a for a in types if not of(a).sql_ordered] == [Decimal, Color, list[str]]


def test_only_what_can_be_long_is_spillable() -> None:
    types = (str, bytes, list[str], Extra, int, Decimal, Color, Literal["a"])
    assert [a for a in types if of(a).spillable] == [str, bytes, list[str], Extra]


def test_nested_values_can_not_be_keys_and_an_enum_is_its_own_key_kind() -> None:
    assert not of(list[str]).keyable
    assert of(str).keyable
    assert (of(str).key_kind, of(Color).key_kind, of(Int32).key_kind) == (str, Color, int)


def test_importing_the_types_does_not_import_cattrs() -> None:
    code = "import sys, tablemapper.values.nested as v; v.value_type(list[str]); sys.exit('cattrs' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- what is refused ---------------------------------------------------------------------------------------------------


def looped() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("annotation", "value", "why"),
    [
        (str, 5, "expected str, got int 5"), (str, b"x", "expected str, got bytes"), (str, Color, "expected str"),
        (str, Rank.LOW, "expected str"), (str, "a\ud800", "lone surrogate"), (int, True, "expected int, got bool"),
        (int, 1.0, "expected int, got float"), (int, 2**63, "64 bits"), (int, -(2**63) - 1, "64 bits"),
        (Int32, 2**31, "32 bits"), (Int32, True, "expected int32, got bool"),
        (float, True, "expected float, got bool"), (float, 2**53 + 1, "nearest float differs"),
        (float, 10**400, "nearest float differs"), (float, float("nan"), "nan cannot be stored"),
        (float, Decimal(1), "expected float, got Decimal"), (bool, 1, "expected bool, got int"),
        (datetime, datetime(2024, 1, 1), "no time zone"), (datetime, date(2024, 1, 1), "expected datetime, got date"),
        (datetime, datetime(1600, 12, 31, 23, 59, tzinfo=UTC), "1601"),
        (datetime, datetime(1601, 1, 1, tzinfo=CET), "1601"),
        (datetime, datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "1601 to 9999"),
        (date, datetime(2024, 1, 1, tzinfo=UTC), "use .date()"), (date, "2024-01-01", "expected date, got str"),
        (time, time(1, tzinfo=UTC), "time zone"), (timedelta, timedelta.max, "64 bits of microseconds"),
        (timedelta, 5, "expected timedelta"), (Decimal, Decimal("nan"), "not finite"),
        (Decimal, Decimal("inf"), "not finite"), (Decimal, Decimal("sNaN"), "not finite"),
        (Decimal, Decimal("1" * 35), "34 digits"), (Decimal, Decimal("1." + "0" * 34), "34 digits"),
        (Decimal, Decimal("1E+6145"), "34 digits"), (Decimal, Decimal("1E-6144"), "34 digits"),
        (Decimal, 5, "use Decimal('5')"), (Decimal, 0.1, "use Decimal('0.1')"),
        (UUID, "12345678-1234-5678-1234-567812345678", "use UUID("),
        (bytes, "x", "use .encode()"),
        (Color, "red", "expected one of Color.RED, Color.BLUE, got str 'red'; use Color.RED"),
        (Color, "green", "got str 'green'"), (Color, [], "expected one of Color.RED"), (Size, "s", "use Size.SMALL"),
        (Literal["a", "b"], "c", "expected one of 'a', 'b', got str 'c'"),
        (Literal[1, 2], True, "expected one of 1, 2, got bool"), (Literal[1, 2], 1.0, "expected one of 1, 2"),
        (list[str], "ab", "expected list[str], got str"), (list[str], ("a",), "expected list[str], got tuple"),
        (list[int], [1, True], "[1]: expected int, got bool"), (list[float], [float("inf")], "finite"),
        (list[Int32], [2**31], "[0]: 2147483648 does not fit in 32 bits"),
        (list[Color], ["red"], "[0]: expected one of Color.RED"), (list[str | None], [None, 5], "[1]"),
        (dict[str, int], {"a": "x"}, "expected int, got str"),
        (dict[str, Any], {"a": [{"b": float("nan")}]}, ".a[0].b: nan"),
        (dict[str, Any], {"a": float("inf")}, ".a: a nested float must be finite"),
        (dict[str, Any], {"a": 2**64}, ".a: 18446744073709551616 does not fit in 64 bits"),
        (dict[str, Any], {"a": "\udfff"}, ".a: '\\udfff' contains a lone surrogate"),
        (dict[str, Any], {"\udfff": 1}, "lone surrogate"),
        (dict[str, Any], {"a": datetime(2024, 1, 1)}, ".a: datetime.datetime(2024, 1, 1, 0, 0) has no time zone"),
        (dict[str, Any], {"a": date(2024, 1, 1)}, ".a: date datetime.date(2024, 1, 1) would read back as str"),
        (dict[str, Any], {"a": (1, Unknown())}, "cannot be stored"), (dict[str, Any], {"a": deep(100)}, "100 deep"),
        (dict[str, Any], {"a": deep(100_000)}, "100 deep"), (list[Any], looped(), "holds itself"),
        (dict[str, str], {"a": date(2024, 1, 1)}, ".a: date datetime.date(2024, 1, 1) would read back as str"),
        (dict[str, date], {"a": "2024-01-01"}, ".a: str '2024-01-01' would read back as date"),
        (dict[str, Decimal], {"a": 0.1}, ".a: float 0.1 would read back as Decimal"),
        (Address, Address(5), ".city: expected str, got int"),  # type: ignore[arg-type]
        (Address, Address("x", 2**31), ".floor: expected int <= 2147483647"),
        (
            Address,
            Address("x", 0, datetime(2024, 1, 1)),
            ".since: datetime.datetime(2024, 1, 1, 0, 0) has no time zone",
        ),
        (Address, {"city": "x"}, "expected Address, got dict"),
        (Address, Place("x", note="lost"), 'no field "note"'),
        (list[Address], [Address("x"), Address(5)], "[1].city: expected str, got int"),  # type: ignore[arg-type]
        (Options, {"dark": True, "light": 1}, 'no field "light"'),
        (Options, {}, "missing required field dark"),
        (Phone, Phone("1", Address(None)), ".address.city: expected str, got null"),  # type: ignore[arg-type]
        (Cat | Dog, Address("x"), "missing required field type"),
        (tuple[str, int], ("a", "b"), "[1]: expected int, got str"),
        (tuple[str, int], ["a", 1], "expected tuple[str, int], got list"),
        (dict[str, int], {1: 1}, "the keys of a dict must be str, not 1"),
        (dict[str, int], {"1": 1, 1: 2}, "the keys of a dict must be str, not 1"),
        (dict[str, Any], {"a": {"1": 1, 1: 2}}, ".a: the keys of a dict must be str, not 1"),
        (dict[str, Any], {"a": {1, 2}}, ".a: set {1, 2} would read back as list [1, 2]"),
        (dict[str, Any], {"a": {"b", 1}}, ".a: set {"),
        (dict[str, list[int]], {"a": {1, 2}}, ".a: set {1, 2} would read back as list [1, 2]"),
        (dict[str, Any], {"a": [Color.RED]}, ".a[0]: Color <Color.RED: 'red'> would read back as str 'red'"),
        (dict[str, Any], {"a": object()}, "object <object object> cannot be stored"),
        (dict[str, Any], {"a": [{None: 1}]}, ".a[0]: the keys of a dict must be str, not None"),
        (dict[str, Any], {"a": (1, 2)}, ".a: tuple (1, 2) would read back as list [1, 2]"),
        (GeoPoint, (1.0, 2.0), "expected GeoPoint, got tuple"),
        (Temperature, 5, "expected Temperature, got int"),
        (Extra, {"a": date(2024, 1, 1)}, ".a: expected one of Azure's types"),
        (Extra, {"a": [1]}, ".a: expected one of Azure's types"),
        (Extra, {"a": 2**63}, ".a: 9223372036854775808 does not fit"),
        (Extra, {"a": Int32Value(2**31)}, ".a: 2147483648 does not fit in 32 bits"),
        (Extra, {"a b": 1}, "cannot be the name of a property"),
        (Extra, {"RowKey": "x"}, "choose another name"),
        (Extra, {"a" * 256: 1}, "has 256 characters"),
        (Extra, [1], "expected a dict"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_its_path_and_what_was_expected(annotation: Any, value: Any, why: str) -> None:
    assert why in refusal(annotation, value)


def test_a_fault_holds_its_path_apart_from_the_problem() -> None:
    with pytest.raises(ValueFault) as caught:
        of(list[int]).check([1, "x"])
    assert (caught.value.path, caught.value.problem) == ("[1]", "expected int, got str 'x'")


def test_the_values_at_the_limits_are_taken() -> None:
    for annotation, value in [
        (int, 2**63 - 1), (int, -(2**63)), (Int32, 2**31 - 1), (Int32, -(2**31)), (float, float("inf")),
        (datetime, datetime(1601, 1, 1, tzinfo=UTC)), (Decimal, Decimal("9" * 34)), (Decimal, Decimal("9E+6144")),
        (Decimal, Decimal("1E-6143")), (timedelta, timedelta(microseconds=2**63 - 1)),
        (timedelta, timedelta(microseconds=-(2**63))), (list[Any], deep(100)),
    ]:  # fmt: skip
        assert of(annotation).check(value) == value


# -- what is normalised ------------------------------------------------------------------------------------------------


class Text(str):
    pass


class Number(int):
    pass


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (str, Text("x"), "x"), (str, Size.SMALL, "s"), (str, Color.RED, "red"), (int, Number(5), 5),
        (int, Rank.HIGH, 10), (float, 5, 5.0), (float, -0.0, 0.0),
        (datetime, datetime(2024, 1, 1, 1, tzinfo=CET), datetime(2024, 1, 1, tzinfo=UTC)),
        (Decimal, Decimal("9.90"), Decimal("9.90")), (Decimal, Decimal("-0.00"), Decimal("0.00")),
        (bytes, bytearray(b"x"), b"x"), (bytes, memoryview(b"x"), b"x"), (Literal["s"], Size.SMALL, "s"),
        (list[float], [1, -0.0], [1.0, 0.0]), (list[str], [Text("x")], ["x"]),
        (dict[str, Any], {"a": Text("x"), "b": Number(1)}, {"a": "x", "b": 1}),
        (Extra, {"b": True, "a": Number(1)}, Extra(a=1, b=True)), (Extra, {"b": None, "a": 1}, Extra(a=1)),
    ],
)  # fmt: skip
def test_a_value_is_normalised(annotation: Any, value: Any, expected: Any) -> None:
    checked = of(annotation).check(value)
    assert checked.__class__ is expected.__class__
    assert repr(checked) == repr(expected)


def test_the_hooks_of_a_class_may_use_keys_of_any_type() -> None:
    class Histogram:
        def __init__(self, counts: dict[int, int]) -> None:
            self.counts = counts

    converter().register_unstructure_hook(Histogram, lambda value: value.counts)
    converter().register_structure_hook(
        Histogram, lambda stored, _: Histogram({int(key): count for key, count in stored.items()})
    )
    (kept,) = of(list[Histogram]).check([Histogram({2: 5, 10: 1})])
    assert kept.counts == {2: 5, 10: 1}


@pytest.mark.parametrize(
    "name", ["", "a b", "1a", "odata", "PartitionKey", "Timestamp", "𠀀abc", "ªx", "x" * 256, "é" * 256, 3]
)
def test_the_name_of_an_undeclared_property_is_that_of_a_property(name: Any) -> None:
    with pytest.raises(ValueError, match="property|choose another|identifier|characters"):
        of(Extra).check({name: 1})


def test_a_time_is_made_utc_itself() -> None:
    assert of(datetime).check(datetime(2024, 1, 1, tzinfo=CET)).tzinfo is timezone.utc  # noqa: UP017
    assert of(datetime).check(datetime(2024, 1, 1, tzinfo=timezone(timedelta(0), "Z"))).tzinfo is UTC


@pytest.mark.parametrize("annotation", [list[str], list[Any], dict[str, Any], Address, set[str], Extra])
def test_a_checked_value_is_a_copy(annotation: Any) -> None:
    value: Any = {dict[str, Any]: {"a": 1}, Address: Address("x"), set[str]: {"a"}, Extra: Extra(a=1)}.get(
        annotation, ["a"]
    )
    checked = of(annotation).check(value)
    assert checked == value
    assert checked is not value


def test_storing_a_nested_value_checks_it_again() -> None:
    form = of(Address)
    address = form.check(Address("x"))
    address.city = 5
    with pytest.raises(ValueError, match="city: expected str"):
        form.store(address)


def test_equal_nested_values_have_equal_texts() -> None:
    assert of(set[Color]).store({Color.RED, Color.BLUE}) == '["blue","red"]'
    assert of(dict[str, int]).store({"b": 1, "a": 2}) == of(dict[str, int]).store({"a": 2, "b": 1})
    assert of(dict[str, set[str]]).store({"a": {"y", "x"}}) == '{"a":["x","y"]}'


# -- the stored form ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "value", "stored", "dumped"),
    [
        (bool, True, 1, True),
        (float, float("inf"), float("inf"), "inf"),
        (datetime, datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02T00:00:00.000000Z", "2024-01-02T00:00:00.000000Z"),
        (
            datetime,
            datetime(2024, 1, 2, 3, 4, 5, 60, UTC),
            "2024-01-02T03:04:05.000060Z",
            "2024-01-02T03:04:05.000060Z",
        ),
        (date, date(999, 1, 2), "0999-01-02", "0999-01-02"),
        (time, time(1), "01:00:00.000000", "01:00:00.000000"),
        (timedelta, timedelta(-1, 0, 1), -86399999999, "-PT86399.999999S"),
        (Decimal, Decimal("9.90"), "9.90", "9.90"),
        (UUID, UUID(int=10), "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000a"),
        (bytes, b"x", b"x", "eA=="),
        (Color, Color.RED, "red", "red"),
        (
            list[datetime],
            [datetime(2024, 1, 2, tzinfo=UTC)],
            '["2024-01-02T00:00:00.000000Z"]',
            ["2024-01-02T00:00:00.000000Z"],
        ),
        (
            GeoPoint,
            GeoPoint(48.5, 9),
            '{"coordinates":[9.0,48.5],"type":"Point"}',
            {"type": "Point", "coordinates": [9.0, 48.5]},
        ),
        (
            Extra,
            Extra(b=Int32Value(1), a=2),
            '{"a":["Int64",2],"b":["Int32",1]}',
            {"a": ["Int64", 2], "b": ["Int32", 1]},
        ),
    ],
)
def test_the_stored_and_the_dumped_form(annotation: Any, value: Any, stored: Any, dumped: Any) -> None:
    form = of(annotation)
    assert (form.store(value), form.dump(value)) == (stored, dumped)
    assert form.store(value).__class__ is stored.__class__


def test_an_enum_is_stored_by_its_plain_value() -> None:
    assert of(Size).store(Size.SMALL).__class__ is str
    assert of(Rank).store(Rank.LOW).__class__ is int


@pytest.mark.parametrize(
    ("annotation", "stored"),
    [
        (str, 5), (str, None), (int, "5"), (int, 5.0), (Int32, 2**31), (float, "x"), (float, 5), (bool, 2),
        (bool, 1.0), (bool, "x"), (datetime, "2024-01-02"), (datetime, "2024-01-02T00:00:00"),
        (datetime, "2024-01-02T00:00:00+00:00"), (datetime, "x"), (datetime, 5), (date, "20240102"),
        (date, b"2024-01-02"), (time, "01:00"), (timedelta, "5"), (timedelta, 2**80), (timedelta, 1.5),
        (Decimal, "x"), (Decimal, 5), (Decimal, "1_0"), (UUID, "x"), (UUID, "A" * 32), (UUID, None), (bytes, "x"),
        (Color, "green"), (Color, []), (Rank, 1.0), (Literal["a"], "b"), (Literal[1], True), (list[str], "x"),
        (list[str], "[1]"), (list[str], None),
        (list[Any], "[" * 100_000),
        (Address, "{}"), (Address, 5), (GeoPoint, "{}"), (GeoPoint, '{"type":"Point","coordinates":[500,0]}'),
        (Temperature, "[]"), (Extra, "[]"), (Extra, '{"a":["Int16",1]}'), (Extra, '{"a":["Int32",9999999999]}'),
        (Extra, '{"a":["Int64","5"]}'), (Extra, '{"a":["DateTime",5]}'), (Extra, '{"a":["Double","x"]}'),
        (Extra, '{"a":["Boolean",1]}'),
    ],
)  # fmt: skip
def test_a_damaged_stored_form_is_a_value_error(annotation: Any, stored: Any) -> None:
    with pytest.raises(ValueError, match="is not the stored form of"):
        of(annotation).load(stored)


# -- Hypothesis --------------------------------------------------------------------------------------------------------

st.register_type_strategy(Temperature, st.builds(Temperature, st.floats(allow_nan=False, allow_infinity=False)))


def drawn(annotation: Any) -> st.SearchStrategy[Any]:
    """Return the strategy that users have for a field of a type."""
    kind, optional = value_type(annotation)
    field = FieldModel(
        name="value", property="value", type=kind, annotation=annotation, optional=optional, constraint=None,
        default=attrs.NOTHING, factory=None, stored=True, kw_only=True, validator=None, measure=None,
    )  # fmt: skip
    return field_values(field, {"": KeyBudget(1000)}, ())


def later(annotation: Any) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: drawn(annotation))  # (the hooks are not registered yet)


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    annotation: later(annotation)
    for annotation in (
        str, int, Int32, float, bool, datetime, date, time, timedelta, Decimal, UUID, bytes, Color, Size, Rank,
        Literal["a", "b"], Literal[1, 2], UserId, list[str], list[bytes], list[timedelta], list[Decimal], list[datetime],
        list[bool], list[Color], list[int | None], list[Any], set[UUID], frozenset[int], tuple[str, float], dict[str, Any],
        dict[str, Decimal], dict[str, timedelta], dict[str, time], Address, list[Address], Stop, set[Stop], Phone, Options,
        Cat | Dog, GeoPoint, Temperature, list[Temperature], Extra,
    )
}  # fmt: skip
VALUES[float] |= st.integers(-(2**53), 2**53)
VALUES[datetime] |= st.datetimes(datetime(1601, 1, 2), datetime(9999, 12, 30), timezones=st.just(CET))
TYPES = pytest.mark.parametrize("annotation", VALUES, ids=str)
few = examples(12, long=100)
"""Examples of each type."""


@TYPES
@few
@given(data=st.data())
def test_what_is_stored_is_read_back_by_functions_and_by_their_sources_alike(
    annotation: Any, data: st.DataObject
) -> None:
    form = of(annotation)
    value = data.draw(VALUES[annotation])
    checked = form.check(value)
    loaded = form.load(form.store(checked))
    assert checked == value
    assert loaded == checked
    assert loaded.__class__ is checked.__class__
    assert repr(loaded) == repr(checked) or annotation in (
        set[UUID], frozenset[int], set[Stop], dict[str, Any], list[Any],
    )  # fmt: skip
    assert form.store(form.check(checked)) == form.store(checked)
    names = Names()
    written = eval(form.store_source("v", names), {**names, "v": checked})
    assert written == form.store(checked)
    assert written.__class__ is form.store(checked).__class__
    read = eval(form.load_source("v", names), {**names, "v": written})
    assert read == form.load(written)
    assert read.__class__ is form.load(written).__class__


OBJECTS = st.one_of(
    *VALUES.values(), st.none(), st.integers(), st.floats(), st.text(), st.decimals(), st.datetimes(), st.fractions(),
    st.timedeltas(), st.times(timezones=st.just(UTC)), st.builds(Text, st.text()), st.builds(Number, st.integers()),
    st.datetimes(timezones=st.just(UTC)), st.binary().map(bytearray), st.just(Unknown()),
)  # fmt: skip


@TYPES
@few
@given(data=st.data())
def test_a_check_returns_or_raises_a_fault_and_changes_nothing_that_the_fast_source_lets_through(
    annotation: Any, data: st.DataObject
) -> None:
    form, names = of(annotation), Names()
    value = data.draw(VALUES[annotation] | OBJECTS)
    fast = eval(form.fast_source("v", names), {**names, "v": value})
    try:
        checked = form.check(value)
    except ValueFault:
        assert not fast
        return
    assert form.load(form.store(checked)) == checked
    if fast:
        assert checked == value
        assert checked.__class__ is value.__class__
        assert repr(checked) == repr(value) or getattr(value, "fold", 0)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, "x"), (str, "é"), (int, 5), (Int32, 5), (float, 5.5), (float, float("inf")), (bool, False),
        (date, date(2024, 1, 1)), (datetime, datetime(2024, 1, 1, tzinfo=UTC)), (time, time(1)),
        (timedelta, timedelta(1)), (UUID, UUID(int=1)), (bytes, b""), (Color, Color.RED), (Literal["a"], "a"),
    ],
)  # fmt: skip
def test_the_fast_source_lets_ordinary_values_through(annotation: Any, value: Any) -> None:
    names = Names()
    assert eval(of(annotation).fast_source("v", names), {**names, "v": value})


@pytest.mark.parametrize(
    "annotation", [str, int, float, bool, datetime, date, time, timedelta, UUID, bytes, Size, Rank, Literal[1, 2]]
)
@given(data=st.data())
def test_stored_forms_sort_as_the_values_do(annotation: Any, data: st.DataObject) -> None:
    form = of(annotation)
    a, b = (form.check(data.draw(VALUES[annotation])) for _ in range(2))
    assert (a < b) == (form.store(a) < form.store(b))


@given(st.fractions())
def test_a_fraction_is_no_value_of_any_type(value: Fraction) -> None:
    assert "expected Decimal" in refusal(Decimal, value)


# -- expressions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "path", "name"),
    [
        (Address, ("city",), "str"), (Address, ("floor",), "int32"), (Phone, ("address", "since"), "datetime"),
        (dict[str, Address], ("home", "city"), "str"), (Stop, ("stop_name",), "str"),
        (Stop, ("at", "latitude"), "float"), (Options, ("scale",), "float"), (GeoPoint, ("longitude",), "float"),
    ],
)  # fmt: skip
def test_a_nested_value_has_a_type(annotation: Any, path: tuple[str, ...], name: str) -> None:
    assert of(annotation).nested(path).name == name


@pytest.mark.parametrize(
    ("annotation", "path", "why"),
    [
        (Address, ("citi",), 'Address has no field "citi" (fields: city, floor, since); did you mean "city"?'),
        (str, ("x",), "str has no nested values"),
        (list[str], ("x",), "no nested values"),
        (dict[str, int], ('"',), "quotation mark"),
        (dict[str, int], (1,), "expected the name of a nested value, got 1"),
        (Extra, (None,), "expected the name of a nested value, got None"),
        (dict[str, Any], ("x",), '"x" is Any, which says nothing of its values: declare their type'),
    ],
)
def test_a_nested_value_that_is_not_there_is_refused(annotation: Any, path: tuple[str, ...], why: str) -> None:
    with pytest.raises(ValueError) as caught:
        of(annotation).nested(path)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "path", "expected"),
    [
        (Address, ("city",), '$."city"'),
        (Stop, ("stop_name",), '$."stopName"'),
        (Stop, ("at", "latitude"), '$."at".coordinates[1]'),
        (dict[str, Address], ("a.b", "city"), '$."a.b"."city"'),
    ],
)
def test_the_json_path_is_by_the_stored_names(annotation: Any, path: tuple[str, ...], expected: str) -> None:
    assert of(annotation).json_path(path) == expected


@pytest.mark.parametrize(
    "annotation", [list[timedelta], list[bytes], list[datetime], list[Decimal], list[Color], list[bool]]
)
@given(data=st.data())
def test_an_element_is_stored_as_it_is_inside_the_json(annotation: Any, data: st.DataObject) -> None:
    form = of(annotation)
    values = form.check(data.draw(VALUES[annotation]))
    element = form.element
    assert element is not None
    assert msgspec.json.decode(form.store(values)) == [element.store(value) for value in values]
    assert [element.load(element.store(value)) for value in values] == values
    names = Names()
    for value in values:
        stored = eval(element.store_source("v", names), {**names, "v": value})
        assert stored == element.store(value)
        assert eval(element.load_source("v", names), {**names, "v": stored}) == value


def test_only_lists_sets_and_tuples_of_scalars_have_elements() -> None:
    types = (
        list[str], set[int], frozenset[str], tuple[str, ...], list[Address], list[str | None], tuple[str, int], list,
    )  # fmt: skip
    assert [of(a).element is not None for a in types] == [True] * 4 + [False] * 4


def test_an_attribute_compares_nested_values() -> None:
    city: Attr[Any, str] = Attr(owner=Phone, name="address", type=of(Address)).at(lambda address: address.city)
    assert matcher(city == "Ulm")(Phone("1", Address("Ulm")))
    assert not matcher(city == "Ulm")(Phone("1", None))


# -- GeoPoint and Extra ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latitude", "longitude"), [(91, 0), (-91, 0), (0, 181), (0, -181), (float("nan"), 0), (True, 0)]
)
def test_a_point_is_on_the_earth(latitude: float, longitude: float) -> None:
    with pytest.raises(ValueError):
        GeoPoint(latitude, longitude)


def test_a_point_can_not_be_changed() -> None:
    point = GeoPoint(1, 2)
    with pytest.raises(AttributeError, match="make a new one"):
        point.latitude = 5
    with pytest.raises(AttributeError):
        del point.latitude
    assert repr(point) == "GeoPoint(latitude=1.0, longitude=2.0)"


def test_points_compare_hash_copy_and_pickle_by_value() -> None:
    point = GeoPoint(1, 2)
    assert point == copy.deepcopy(point) == pickle.loads(pickle.dumps(point))
    assert len({point, GeoPoint(1.0, 2.0)}) == 1
    assert point != GeoPoint(2, 1)
    assert point != (1, 2)


def test_extra_keeps_the_type_of_each_property() -> None:
    loaded = of(Extra).load(of(Extra).store(Extra(a=Int32Value(5), b=5, c=5.0, d=True, e="5", f=b"5", g=UUID(int=5))))
    assert [type(value) for value in loaded.values()] == [Int32Value, int, float, bool, str, bytes, UUID]
    assert type(loaded) is Extra
    assert repr(loaded).startswith("Extra({'a': Int32Value(5), 'b': 5")


def test_hooks_that_would_not_be_used_are_refused() -> None:
    @attrs.define
    class Place:
        x: int

    @dataclasses.dataclass
    class Spot:
        x: int

    class Kind(Enum):
        ONE = "one"

    Secret = NewType("Secret", str)
    for kind in (Place, Spot, Kind, Secret):
        converter().register_unstructure_hook(kind, str)
        for annotation in (kind, kind | None, list[kind], dict[str, kind]):  # type: ignore[valid-type]
            with pytest.raises(
                ValueError, match=f"^{kind.__name__} has hooks on tablemapper.converter.*use tm.register"
            ):
                value_type(annotation)


def test_the_schema_of_a_class_with_hooks_is_that_of_any_value() -> None:
    class Weather(tm.Entity, table="Weathers"):
        id: tm.Field[int]
        warmth: tm.Field[Temperature]
        all: tm.Field[list[Temperature]] = tm.field(factory=list)

        key = tm.Key[int](partition="{id}")

    properties = tm.json_schema(Weather)["properties"]
    assert (properties["warmth"], properties["all"]["items"]) == ({}, {})
    assert json.loads(json.dumps(properties)) == json.loads(msgspec.json.encode(properties)) == properties


def _named_in_a_function(kind: str) -> Any:
    """Return a class whose annotations are text, with a name that only a function knows."""

    class Row:
        n: int

    body: dict[str, Any] = {"__annotations__": {"n": "int", "rows": "list[Row]"}, "__module__": __name__}
    makers: dict[str, Callable[[], Any]] = {
        "attrs": lambda: attrs.define(type("Sheet", (), body)),
        "dataclass": lambda: dataclasses.dataclass(type("Sheet", (), body)),
        "Struct": lambda: type(msgspec.Struct)("Sheet", (msgspec.Struct,), body),
        "TypedDict": lambda: TypedDict("Sheet", {"n": int, "rows": "list[Row]"}),  # type: ignore[operator, misc]
    }
    return makers[kind]()


@pytest.mark.parametrize("kind", ["attrs", "dataclass", "Struct", "TypedDict"])
@pytest.mark.parametrize("around", ["itself", "a list", "None", "a class"])
def test_a_name_that_only_a_function_knows_is_told_with_its_class_and_field(kind: str, around: str) -> None:
    sheet = _named_in_a_function(kind)
    outer = attrs.define(type("Outer", (), {"__annotations__": {"sheet": sheet}, "__module__": __name__}))
    annotation = {"itself": sheet, "a list": list[sheet], "None": sheet | None, "a class": outer}[around]
    with pytest.raises(
        ValueFault, match=r"^Sheet\.rows: name 'Row' is not defined; .* define the name there"
    ) as caught:
        value_type(annotation)
    assert "TYPE_CHECKING" in str(caught.value)
