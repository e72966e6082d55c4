"""Fields whose types are aliases, with parameters and without: each is read as what the alias stands for."""

from __future__ import annotations

import typing
from typing import Annotated, Any, Generic, Literal, TypeVar

import attrs
import msgspec
import pytest

import tablemapper as tm

from ..classes import entity

if hasattr(typing, "TypeAliasType"):
    Alias: Any = typing.TypeAliasType
else:
    Alias = pytest.importorskip("typing_extensions").TypeAliasType
T, U = TypeVar("T"), TypeVar("U")

PLAIN: Any = Alias("PLAIN", int | None)
MAYBE: Any = Alias("MAYBE", T | None, type_params=(T,))
SAME: Any = Alias("SAME", T, type_params=(T,))
TURNED: Any = Alias("TURNED", tuple[U, T], type_params=(T, U))
DEEP: Any = Alias("DEEP", MAYBE[list[T]], type_params=(T,))
ABOVE: Any = Alias("ABOVE", Annotated[T, msgspec.Meta(gt=0)], type_params=(T,))
WORDS: Any = Alias("WORDS", Literal["a", "b"] | None)


@attrs.define
class Box(Generic[T]):
    top: T
    more: list[T] = attrs.field(factory=list)


def field(annotation: Any) -> Any:
    cls = entity("Thing", "Things", {"id": str, "value": annotation}, tm.Key(partition="{id}"))
    return cls.__declaration__.field("value"), cls


ALIASES: list[tuple[Any, Any, list[Any], list[Any]]] = [
    (PLAIN, int | None, [1, None], ["x"]),
    (MAYBE[int], int | None, [1, None], ["x"]),
    (SAME[int], int, [1], [None, "x"]),
    (SAME[MAYBE[str]], str | None, ["x", None], [1]),
    (TURNED[int, str], tuple[str, int], [("x", 1)], [(1, "x")]),
    (DEEP[int], list[int] | None, [[1], None], [["x"], [None]]),
    (ABOVE[int], Annotated[int, msgspec.Meta(gt=0)], [1], [0, None]),
    (MAYBE[ABOVE[int]], Annotated[int, msgspec.Meta(gt=0)] | None, [1, None], [0]),
    (WORDS, Literal["a", "b"] | None, ["a", None], ["c"]),
    (SAME[Box[int]], Box[int], [Box(1, [2])], [Box("x"), None]),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("alias", "means", "values", "wrong"), ALIASES, ids=lambda one: str(one)[:20])
def test_an_alias_is_what_it_stands_for(alias: Any, means: Any, values: list[Any], wrong: list[Any]) -> None:
    (one, cls), (other, _) = field(alias), field(means)
    assert (one.type.name, one.optional) == (other.type.name, other.optional)
    for value in values:
        assert cls("x", value).value == value
    for value in wrong:
        with pytest.raises(tm.InvalidEntity):
            cls("x", value)


def test_a_condition_is_on_what_an_alias_stands_for() -> None:
    _, cls = field(MAYBE[int])
    _, boxed = field(Box[int])
    with tm.open(":memory:", models=[cls]) as store:
        store.insert_many([cls("a", 9), cls("b", 10), cls("c", None)])
        assert [one.id for one in store.query(cls).where(cls.value > 9).allow_scan()] == ["b"]
    with tm.open(":memory:", models=[boxed]) as store:
        store.insert_many([boxed("a", Box(9)), boxed("b", Box(10, [1]))])
        top, more = boxed.value.at(lambda box: box.top), boxed.value.at(lambda box: box.more)
        assert [one.id for one in store.query(boxed).where(top > 9, more.contains(1)).allow_scan()] == ["b"]


REFUSED: list[tuple[Any, str]] = [
    (MAYBE, r"the alias MAYBE\[T\] lacks a type: write MAYBE\[str\]"),
    (T, "T stands for no type here"),
    (list[T], r"list\[T\]: T stands for no type here"),  # type: ignore[valid-type]
    (Alias("MANY", tuple[int, ...], type_params=(typing.ParamSpec("P"),)), "which is no type"),
    (typing.Self, "what a _SpecialForm means as a type is not known"),
]


@pytest.mark.parametrize(("annotation", "fault"), REFUSED, ids=lambda one: str(one)[:20])
def test_an_annotation_that_says_no_type_is_refused_by_name(annotation: Any, fault: str) -> None:
    with pytest.raises(tm.InvalidModel, match=fault):
        field(annotation)


def test_an_alias_that_holds_itself_is_refused_by_name() -> None:
    if not hasattr(typing, "TypeAliasType"):
        pytest.skip("only the statement of Python 3.12 makes one")
    scope: dict[str, Any] = {}
    exec("type Json = None | int | list[Json] | dict[str, Json]", scope)
    with pytest.raises(tm.InvalidModel, match="the alias Json holds itself"):
        field(scope["Json"])
