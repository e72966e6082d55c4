"""Predicates are two-valued data: they agree with an oracle that shares no code with them."""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.codegen import Names, compile_functions
from tablemapper.expressions.predicates import conjuncts, dump
from tablemapper.expressions.python_source import python_source
from tablemapper.values.extra import Int32Value

from ..classes import Color, Loose, Other
from ..matching import matcher


@attrs.define
class Home:
    city: str
    floor: int = 0


class Thing(tm.Entity, table="Things"):
    name: tm.Field[str]
    n: tm.Field[int | None] = tm.field(default=None)
    m: tm.Field[int | None] = tm.field(default=None)
    text: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str] | None] = tm.field(default=None)
    at: tm.Field[datetime | None] = tm.field(default=None)
    color: tm.Field[Color | None] = tm.field(default=None)
    home: tm.Field[Home | None] = tm.field(default=None)

    key = tm.Key[str](partition="{name}")


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
Case = tuple[Any, Callable[[Thing], bool]]
"""A predicate, and what it should say of a thing."""

small = st.integers(-2, 2)
words = st.sampled_from(["", "a", "ab", "b", "é"])


def compared(op: str, value: int) -> Case:
    holds = OPERATORS[op]
    return holds(Thing.n, value), lambda t: t.n is not None and bool(holds(t.n, value))


def crossed(op: str) -> Case:
    holds = OPERATORS[op]
    return holds(Thing.n, Thing.m), lambda t: t.n is not None and t.m is not None and bool(holds(t.n, t.m))


leaves: st.SearchStrategy[Case] = st.one_of(
    st.builds(compared, st.sampled_from(sorted(OPERATORS)), small),
    st.builds(crossed, st.sampled_from(sorted(OPERATORS))),
    st.builds(
        lambda a, b: (Thing.n.between(a, b), lambda t: t.n is not None and a <= t.n and not t.n > b), small, small
    ),
    st.lists(small).map(lambda v: (Thing.n.is_in(v), lambda t: any(t.n == one for one in v) and t.n is not None)),
    st.just((Thing.n.is_null(), lambda t: t.n is None)),
    st.just((Thing.n.is_not_null(), lambda t: t.n is not None)),
    st.just((Thing.text == None, lambda t: t.text is None)),  # noqa: E711
    st.just((Thing.text != None, lambda t: t.text is not None)),  # noqa: E711
    words.map(lambda w: (Thing.text.startswith(w), lambda t: t.text is not None and t.text[: len(w)] == w)),
    words.map(lambda w: (Thing.text.contains(w), lambda t: t.text is not None and t.text.find(w) >= 0)),
    words.map(lambda w: (Thing.tags.contains(w), lambda t: t.tags is not None and t.tags.count(w) > 0)),
    st.just((Thing.color == Color.RED, lambda t: t.color is Color.RED)),
    words.map(lambda w: (Thing.home.at(lambda h: h.city) == w, lambda t: t.home is not None and t.home.city == w)),  # type: ignore[union-attr]
    st.integers(1, 3).map(
        lambda d: (Thing.at.date() == date(2020, 1, d), lambda t: t.at is not None and t.at.day == d)
    ),
    st.integers(1, 3).map(
        lambda d: (Thing.at.truncate("%d") >= f"{d:02}", lambda t: t.at is not None and t.at.day >= d)
    ),
)
cases: st.SearchStrategy[Case] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: (p[0][0] & p[1][0], lambda t: p[0][1](t) and p[1][1](t))),
        st.tuples(inner, inner).map(lambda p: (p[0][0] | p[1][0], lambda t: p[0][1](t) or p[1][1](t))),
        inner.map(lambda p: (~p[0], lambda t: not p[1](t))),
    ),
    max_leaves=8,
)
things = st.builds(
    Thing, st.just("x"), n=st.none() | small, m=st.none() | small, text=st.none() | words,
    tags=st.none() | st.lists(words, max_size=3),
    at=st.none() | st.integers(1, 3).map(lambda d: datetime(2020, 1, d, 5, tzinfo=UTC)),
    color=st.none() | st.sampled_from(Color), home=st.none() | st.builds(Home, words),
)  # fmt: skip


@given(cases, st.lists(things, min_size=1, max_size=5))
def test_a_matcher_agrees_with_the_oracle(case: Case, found: list[Thing]) -> None:
    predicate, oracle = case
    holds = matcher(predicate)
    assert [holds(thing) for thing in found] == [oracle(thing) for thing in found]


@given(cases, things)
def test_source_over_other_names_says_the_same(case: Case, thing: Thing) -> None:
    predicate, oracle = case
    names = Names()
    source = python_source(predicate, lambda name: f"row[{name!r}]", names)
    holds = compile_functions("test", f"def holds(row):\n    return {source}\n", names)["holds"]
    assert holds(attrs.asdict(thing, recurse=False)) is oracle(thing)


@given(cases, things)
def test_a_predicate_or_its_negation_holds(case: Case, thing: Thing) -> None:
    predicate, _ = case
    assert matcher(predicate)(thing) is not matcher(~predicate)(thing)


@given(cases)
def test_a_dump_is_stable_and_json(case: Case) -> None:

    form = dump(case[0])
    assert json.loads(json.dumps(form)) == form == dump(case[0])
    assert {attr.name for attr in case[0].attributes()} <= {field.name for field in attrs.fields(Thing)}


@given(st.lists(leaves, min_size=1, max_size=5))
def test_nested_ands_dump_as_one(found: list[Case]) -> None:
    left = found[0][0]
    for predicate, _ in found[1:]:
        left = left & predicate
    right = found[-1][0]
    for predicate, _ in reversed(found[:-1]):
        right = predicate & right
    assert dump(left) == dump(right)
    assert len(list(conjuncts([left]))) >= len(found)


@pytest.mark.parametrize(
    "program",
    [
        lambda: bool(Thing.n > 1), lambda: bool(Thing.n), lambda: Thing.n > 1 and Thing.m > 1,
        lambda: Thing.n > 1 or Thing.m > 1, lambda: not Thing.n, lambda: 1 < Thing.n < 3, lambda: Thing.n in [1, 2],
        lambda: [thing for thing in [1] if Thing.n == thing],
    ],
)  # fmt: skip
def test_an_expression_has_no_truth(program: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match=r"& \| ~"):
        program()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (lambda: Thing.n > None, "no order"),
        (lambda: Thing.n == "x", "expected int"),
        (lambda: Thing.n == True, "expected int"),  # noqa: E712
        (lambda: Thing.color > Color.RED, "no order"), (lambda: Thing.tags > ["a"], "no order"),
        (lambda: Thing.n == Thing.text, "cannot be compared"), (lambda: Thing.n.is_in("12"), "a list of values"),
        (lambda: Thing.n.is_in([1, "x"]), "expected int"), (lambda: Thing.n.is_in([1, None]), "expected int"),
        (lambda: Thing.n.startswith("1"), "must be text"), (lambda: Thing.n.contains("1"), "part of a text"),
        (lambda: Thing.tags.contains(1), "expected str"), (lambda: Thing.n.date(), "only a datetime"),
        (lambda: Thing.at.date().date(), "only a datetime"), (lambda: Thing.home.at(lambda h: h.town), "town"),
        (lambda: Thing.home.at(lambda h: 3), "must return an attribute"),
        (lambda: Thing.n.at(lambda h: h.x), "has no nested values"),
        (lambda: Thing.text.add("x"), "cannot be added to"), (lambda: Thing.n.add("x"), "expected int"),
        (lambda: (Thing.n > 1) & True, "expected a condition"),
        (lambda: (Thing.n > 1) | Thing.m, "expected a condition"),
        (lambda: Thing.at == datetime(2020, 1, 1), "time zone"),
    ],
)  # fmt: skip
def test_a_wrong_operand_is_refused_at_once(program: Callable[[], Any], said: str) -> None:
    with pytest.raises(tm.InvalidQuery) as caught:
        program()
    assert said in str(caught.value)
    assert "Thing" in str(caught.value) or "condition" in str(caught.value)


def test_attributes_of_two_classes_with_one_name_are_not_one() -> None:
    assert dump(Thing.name == "x") == dump(Other.name == "x")
    assert next((Thing.name == "x").attributes()).owner is not next((Other.name == "x").attributes()).owner


def test_a_value_is_dumped_as_it_is_stored() -> None:
    assert dump(Thing.at > datetime(2020, 1, 1, tzinfo=UTC)) == [">", "at", "2020-01-01T00:00:00.000000Z"]
    assert dump(Thing.color == Color.RED) == ["==", "color", "red"]
    assert dump(Thing.home.at(lambda h: h.city) == "x") == ["==", "home.city", "x"]  # type: ignore[union-attr]
    assert dump(Thing.at.date() == date(2020, 1, 1)) == ["==", "at.date()", "2020-01-01"]


@pytest.mark.parametrize(
    ("format", "why"),
    [
        ("%y-%j", "%y, %j: a time format of datetime has %Y %G %q %m %V %d %H %M %S %L %f and literals"),
        ("%Y-W%V", "%V and %Y are of two calendars, whose years begin on different days; weeks are %G-W%V"),
        ("%G-%m", "%G and %m are of two calendars"), ("%Y-%j", "%j: "), ("%Y%", "%: "), ("%%Y", "%%: "),
        ("week", "no part of a time is in it: "), ("date", "no part of a time is in it: "),
        ("", "no part of a time is in it: "), (3, "a time format is text"), (None, "a time format is text"),
    ],
)  # fmt: skip
def test_a_time_is_cut_down_by_the_parts_that_there_are_only(format: Any, why: str) -> None:
    with pytest.raises(tm.InvalidQuery, match=re.escape(why)):
        Thing.at.truncate(format)


def test_undeclared_numbers_compare_as_numbers_and_with_nothing_else() -> None:
    values = {"float": 2.5, "int": 1, "int32": Int32Value(2), "bool": True, "text": "2", "none": None}
    w = Loose.more["w"]
    with tm.open(":memory:", models=[Loose]) as store:
        store.insert_many(Loose(name, tm.Extra(w=value)) for name, value in values.items())

        def found(condition: Any) -> set[str]:
            return {one.name for one in store.query(Loose).allow_scan().where(condition)}

        assert found(w > -7) == found(w > -7.5) == {"float", "int", "int32"}
        assert found(w >= 2) == {"float", "int32"}
        assert found(w == 1.0) == found(w == 1) == {"int"}
        assert found(w.is_in([2.0, "2"])) == {"int32", "text"}
        assert found(w == True) == {"bool"}  # noqa: E712
        assert found(w > "1") == {"text"}


@pytest.mark.parametrize("join", [operator.and_, operator.or_])
def test_many_predicates_that_are_joined_one_by_one_are_parts_of_one(join: Any) -> None:
    few = [Thing.n == number for number in range(3)]
    many = [Thing.n == number for number in range(20_000)]
    kind = type(join(*few[:2]))
    joined = functools.reduce(join, many)
    assert joined.depth == 2
    assert joined.parts == tuple(many)
    assert join(few[0], join(joined, joined)).parts == (few[0], *many, *many)
    assert repr(functools.reduce(join, many[:200])) == repr(kind(parts=tuple(many[:200])))
