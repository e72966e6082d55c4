"""What a field asks of its values beside their type: ``Annotated[int, msgspec.Meta(ge=0)]``."""

from __future__ import annotations

import linecache
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NewType

import msgspec
import pytest
from msgspec import Meta

import tablemapper as tm
from tablemapper.values.scalars import Int32

from ..classes import aggregate, entity

Positive = NewType("Positive", Annotated[int, Meta(gt=0)])  # type: ignore[valid-newtype]


class Part(tm.Entity, table="Parts"):
    box: tm.Field[Annotated[str, Meta(min_length=1, max_length=3)]]
    number: tm.Field[Annotated[int, Meta(ge=0)]]
    stock: tm.Field[Annotated[int, Meta(ge=0, le=10)]] = tm.field(default=1)
    price: tm.Field[Annotated[Decimal, Meta(gt=0)] | None] = tm.field(default=None)
    weight: tm.Field[Annotated[float, Meta(lt=1.5)] | None] = tm.field(default=None)
    code: tm.Field[Annotated[str, Meta(pattern="^[a-z]+$")] | None] = tm.field(default=None)
    pair: tm.Field[Annotated[int, Meta(multiple_of=2), Meta(ge=0)]] = tm.field(default=0)
    tags: tm.Field[Annotated[list[str], Meta(max_length=2)]] = tm.field(factory=list)
    small: tm.Field[Annotated[Int32, Meta(ge=-5)]] = tm.field(default=0)
    blob: tm.Field[Annotated[bytes, Meta(max_length=2)] | None] = tm.field(default=None)
    level: tm.Field[Positive] = tm.field(default=1)
    at: tm.Field[Annotated[datetime, Meta(tz=True, title="when", description="said, not checked")] | None] = tm.field(
        default=None
    )

    key = tm.Key[str, int](partition="{box}", row="{number}")
    by_stock = tm.Index[int](partition="{stock}")


pytestmark = pytest.mark.tm_store(models=[Part])
WRONG: list[tuple[str, Any, str]] = [
    ("stock", -1, "stock: expected int >= 0 and <= 10, got -1"),
    ("stock", 11, "stock: expected int >= 0 and <= 10, got 11"),
    ("stock", "x", "stock: expected int, got str 'x'"),
    ("price", Decimal(0), "price: expected Decimal > 0, got Decimal('0')"),
    ("weight", 1.5, "weight: expected float < 1.5, got 1.5"),
    ("weight", 2, "weight: expected float < 1.5, got 2.0"),
    ("code", "a1", "code: expected str that matches '^[a-z]+$', got 'a1'"),
    ("pair", 3, "pair: expected int that is a multiple of 2 and >= 0, got 3"),
    ("tags", ["a", "b", "c"], "tags: expected list[str] of length <= 2, got ['a', 'b', 'c']"),
    ("small", -6, "small: expected int32 >= -5, got -6"),
    ("blob", b"abc", "blob: expected bytes of length <= 2, got b'abc'"),
    ("level", 0, "level: expected int > 0, got 0"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_a_value_that_is_asked_to_be_otherwise_is_refused_when_built_set_and_merged(
    tm_store: tm.Store, name: str, value: Any, message: str
) -> None:
    part = Part("a", 1)
    tm_store.insert(part)
    fault = message.partition(": ")[2]
    with pytest.raises(tm.InvalidEntity) as built:
        Part("a", 1, **{name: value})
    assert message in str(built.value)
    with pytest.raises(tm.InvalidEntity) as assigned:
        setattr(part, name, value)
    assert fault in str(assigned.value)
    with pytest.raises(tm.InvalidEntity) as merged:
        tm_store.merge(part.key, **{name: value})
    assert fault in str(merged.value)
    with pytest.raises(tm.InvalidEntity):
        tm_store.query(Part).where(Part.box == "a").update(**{name: value})
    assert tm_store[part.key] == Part("a", 1)


def test_what_is_asked_holds_at_its_bounds_and_of_no_missing_value() -> None:
    part = Part("abc", 0, 10, Decimal("0.01"), 1.4, "abc", 2, ["a", "b"], -5, b"ab", 1)
    part.stock = 0
    part.price = part.weight = part.code = part.blob = None
    assert part.stock == 0


def test_all_faults_come_at_once() -> None:
    with pytest.raises(tm.InvalidEntity) as raised:
        Part("", -1, 11)
    assert [fault.partition(":")[0] for fault in raised.value.faults] == ["box", "number", "stock"]


def test_what_is_calculated_is_checked_before_anything_is_written(tm_store: tm.Store) -> None:
    tm_store.insert(Part("a", 1, 9))
    with pytest.raises(tm.InvalidEntity, match=r"stock = Part.stock \+ 5: expected int >= 0 and <= 10, got 14"):
        tm_store.merge(Part.key("a", 1), Part.stock.add(5))
    with pytest.raises(tm.InvalidEntity, match="got 18"):
        tm_store.merge(Part.key("a", 1), Part.stock.set(Part.stock * 2))
    assert tm_store[Part.key("a", 1)].stock == 9


def test_what_is_added_may_be_beyond_what_is_asked_of_the_sum(tm_store: tm.Store) -> None:
    part = Part("a", 1, 9, pair=4)
    tm_store.insert(part)
    tm_store.merge(part.key, Part.stock.add(-3), Part.pair.add(-2))
    assert (tm_store[part.key].stock, tm_store[part.key].pair) == (6, 2)
    with pytest.raises(tm.InvalidEntity, match=r"stock = Part.stock \+ -7: expected int >= 0 and <= 10, got -1"):
        tm_store.merge(part.key, Part.stock.add(-7))
    with pytest.raises(tm.InvalidEntity, match="price = .*expected Decimal > 0"):
        tm_store.merge(part.key, Part.price.add(Decimal(-1)))  # it begins at nothing


def test_a_list_that_was_changed_in_place_is_checked_when_it_is_written(tm_store: tm.Store) -> None:
    part = Part("a", 1)
    tm_store.insert(part)
    part.tags += ["a", "b"]
    part.tags.append("c")
    with pytest.raises(tm.InvalidEntity, match="tags: expected list"):
        tm_store.replace(part)
    assert tm_store[part.key].tags == []


def test_an_entity_that_no_constructor_built_is_checked(tm_store: tm.Store) -> None:
    part = msgspec.convert({"box": "a", "number": 1, "stock": 3}, Part)
    tm_store.insert(part)
    part = object.__new__(Part)
    for field, value in zip(Part.__match_args__, ("a", 2, 99, None, None, None, 0, [], 0, None, 1, None), strict=True):
        Part.__dict__[field].__set__(part, value)
    with pytest.raises(tm.InvalidEntity, match="stock: expected int"):
        tm_store.insert(part)


def test_a_key_or_a_condition_may_be_beyond_what_is_asked(tm_store: tm.Store) -> None:
    tm_store.insert(Part("a", 1))
    assert tm_store.get(Part.key("too long", -1)) is None
    assert list(tm_store.query(Part.by_stock(-1))) == []
    assert tm_store.query(Part).where(Part.box == "a", Part.stock > -1, Part.number < 99).count() == 1


def test_what_was_stored_before_is_read_and_left_alone(tmp_path: Path) -> None:
    def declared(kind: Any) -> Any:
        members = {"a": str, "n": kind, "other": (int, tm.field(default=0))}
        return entity("Old", "Olds", members, tm.Key[str](partition="{a}"))

    Free, Bound = declared(int), declared(Annotated[int, Meta(ge=0)])
    with tm.open(tmp_path / "x.db", models=[Free]) as store:
        store.insert(Free("a", -1))
    with tm.open(tmp_path / "x.db", models=[Bound]) as store:
        old = store[Bound.key("a")]
        assert old.n == -1
        store.merge(old.key, other=5)
        with pytest.raises(tm.InvalidEntity, match="expected int >= 0, got -2"):
            store.merge(old.key, n=-2)
        assert store.check().ok


def source(cls: Any) -> list[str]:
    """Return the generated code of a class, without what only its own name is."""
    return linecache.getlines(cls.__init__.__code__.co_filename)


def test_a_class_that_asks_nothing_pays_nothing() -> None:
    def declared(name: str, a: Any = str, n: Any = int) -> Any:
        return entity(name, f"{name}s", {"a": a, "n": n}, tm.Key[str](partition="{a}"))

    Plain = declared("Plain")
    Titled = declared("Titled", Annotated[str, Meta(description="said, not checked")])
    Bound = declared("Bound", n=Annotated[int, Meta(ge=0)])
    plain, bound = source(Plain), source(Bound)
    assert [line.replace("Titled", "Plain") for line in source(Titled)] == plain
    assert "bound" not in "".join(plain)
    assert len(bound) == len(plain)
    assert [number for number, lines in enumerate(zip(plain, bound, strict=True)) if "bound" in lines[1]] == [
        number for number, line in enumerate(plain) if line.startswith("    if not (") and "int" in line
    ]


def declaration(annotation: Any, **options: Any) -> Any:
    return entity("Wrong", "Wrongs", {"a": str, "n": (annotation, tm.field(**options))}, tm.Key[str](partition="{a}"))


@pytest.mark.parametrize(
    ("annotation", "options", "message"),
    [
        (Annotated[str, Meta(ge=0)], {}, r"n: msgspec.Meta\(ge=0\) cannot apply to str"),
        (Annotated[int, Meta(max_length=3)], {}, r"n: msgspec.Meta\(max_length=3\) cannot apply to int"),
        (Annotated[bool, Meta(ge=0)], {}, r"n: msgspec.Meta\(ge=0\) cannot apply to bool"),
        (Annotated[Decimal, Meta(multiple_of=2)], {}, "cannot apply to Decimal"),
        (Annotated[datetime, Meta(tz=False)], {}, r"msgspec.Meta\(tz=False\) cannot apply to datetime"),
        (Annotated[list[int], Meta(ge=0)], {}, "n: msgspec.Meta: Can only set ge on a numeric type"),
        (Annotated[tm.Extra, Meta(max_length=1)], {}, "n: msgspec.Meta: Can only set max_length"),
        (Annotated[int | None, Meta(ge=0)], {"default": None}, "n: msgspec.Meta: None cannot have constraints"),
        (Annotated[int, Meta(ge=0)], {"default": -1}, "n: its default: expected int >= 0, got -1"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_of_a_type_is_refused(annotation: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(tm.InvalidModel, match=message):
        declaration(annotation, **options)


def test_nothing_can_be_asked_of_what_the_store_maintains() -> None:
    members = {"box": (str, tm.group_by(Part.box)), "n": (Annotated[int, Meta(ge=0)], tm.count())}
    with pytest.raises(tm.InvalidModel, match="n: the store computes the value, so it cannot have constraints"):
        aggregate("Counts", Part, members, tm.Key[str](partition="{box}"))


def test_elements_are_checked_too() -> None:
    kind = declaration(list[Annotated[int, Meta(ge=0)]], factory=list)
    assert kind("a", [0, 1]).n == [0, 1]
    with pytest.raises(tm.InvalidEntity, match=r"n\[1\]: expected int >= 0"):
        kind("a", [0, -1])
