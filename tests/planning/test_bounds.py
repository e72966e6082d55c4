"""Bounds: exactly the keys that match lie between them, whatever the values are."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tablemapper.keys.template import Template
from tablemapper.keys.template_parser import compile_template
from tablemapper.planning.bounds import Bound, reach

from ..keys.test_template import DESCENDING, ORDERED, TEXTS, UTC_TIMES, VALUES, many, named, tuple_template, tuples


def bounded(template: Template, equal: Mapping[str, Any], field: str = "", *compared: tuple[str, Any]) -> Bound:
    """Return the bound of keys with some values known, and one field compared."""
    return reach(template, equal, {field: [op for op, _ in compared]}).bound(equal, compared)


OPS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@many
@given(tuples(ORDERED), st.sampled_from(list(OPS)), st.data())
def test_a_range_holds_exactly_the_keys_that_satisfy_it(case: Any, op: str, data: st.DataObject) -> None:
    template, kinds, a, b = case
    fixed = data.draw(st.integers(0, len(kinds) - 1))
    bound = bounded(template, named(a[:fixed]), f"f{fixed}", (op, a[fixed]))
    assert not reach(template, named(a[:fixed]), {f"f{fixed}": [op]}).inexact
    wanted = b[:fixed] == a[:fixed] and OPS[op](b[fixed], a[fixed])
    assert bound.holds(template.encode(named(b))) == wanted


@many
@given(tuples(ORDERED), st.data())
def test_an_equality_holds_exactly_the_keys_that_satisfy_it(case: Any, data: st.DataObject) -> None:
    template, kinds, a, b = case
    fixed = data.draw(st.integers(0, len(kinds)))
    bound = bounded(template, named(a[:fixed]))
    assert bound.holds(template.encode(named(b))) == (a[:fixed] == b[:fixed])
    assert bound.point == (fixed == len(kinds))


@many
@given(TEXTS, TEXTS, TEXTS, st.booleans())
def test_a_prefix_holds_exactly_the_texts_that_begin_with_it(prefix: str, rest: str, other: str, leads: bool) -> None:
    template = tuple_template([str, str])
    equal = {} if leads else {"f0": "x"}
    bound = bounded(template, equal, "f0" if leads else "f1", ("startswith", prefix))
    for value in (prefix + rest, other):
        key = template.encode(named((value, "z") if leads else ("x", value)))
        assert bound.holds(key) == value.startswith(prefix)


ENDED = ["{a}-{n:03d}", "{a}~{n:03d}", "{a}}}}}{n}", "{a:fold}.{n}", "{a:prefix(2)}-{n}", "{a:prefix(1)}~{n:03d}"]
"""Templates with a text that something follows."""


@many
@given(st.sampled_from(ENDED), TEXTS, TEXTS, TEXTS)
def test_a_prefix_bounds_a_text_that_something_follows_from_outside(
    text: str, prefix: str, rest: str, other: str
) -> None:
    template = compile_template(text, {"a": str, "n": int}, subject="test")
    bound = bounded(template, {}, "a", ("startswith", prefix))
    assert reach(template, {}, {"a": ["startswith"]}).inexact == {"a"}
    assert bound.holds(template.encode({"a": prefix + rest, "n": 7}))
    if prefix and other[:1].isalnum() and prefix[:1].isalnum() and other[0].casefold() != prefix[0].casefold():
        assert not bound.holds(template.encode({"a": other, "n": 7}))


@many
@given(TEXTS, TEXTS, st.sampled_from([*OPS, "startswith"]), st.integers(1, 3))
def test_a_text_behind_its_beginning_is_bounded_exactly(one: str, other: str, op: str, length: int) -> None:
    template = compile_template((f"{{a:prefix({length})}}", "{a}"), {"a": str}, subject="test")
    bound = bounded(template, {}, "a", (op, one))
    assert not reach(template, {}, {"a": [op]}).inexact
    for value in (other, one + other, one):
        wanted = value.startswith(one) if op == "startswith" else OPS[op](value, one)
        assert bound.holds(template.encode({"a": value})) == wanted


@many
@given(VALUES[int], VALUES[int], VALUES[int])
def test_a_two_sided_range_is_one_interval(low: int, high: int, value: int) -> None:
    template = tuple_template([int])
    bound = bounded(template, {}, "f0", (">", low), ("<=", high))
    assert bound.holds(template.encode(named((value,)))) == (low < value <= high)


@many
@given(UTC_TIMES, UTC_TIMES, st.sampled_from(list(OPS)), st.sampled_from(["%Y-%m-%d", "%Y-%m", "%Y%m%d%H%M%S%L"]))
def test_a_time_cut_down_is_bounded_from_outside(at: datetime, other: datetime, op: str, spec: str) -> None:
    template = compile_template(f"{{at:{spec}}}", {"at": datetime}, subject="test")
    bound = bounded(template, {}, "at", (op, at))
    assert reach(template, {}, {"at": [op]}).inexact == {"at"}
    if OPS[op](other, at):
        assert bound.holds(template.encode({"at": other}))


@many
@given(st.sampled_from(DESCENDING), st.sampled_from(list(OPS)), st.data())
def test_a_descending_range_is_mirrored(kind: Any, op: str, data: st.DataObject) -> None:
    template = tuple_template([kind], ["desc"])
    a, b = data.draw(VALUES[kind]), data.draw(VALUES[kind])
    assert bounded(template, {}, "f0", (op, a)).holds(template.encode(named((b,)))) == OPS[op](b, a)


def test_a_component_ends_where_the_next_begins() -> None:
    template = compile_template(("{building}", "{unit}"), {"building": str, "unit": str}, subject="test")
    keys = {b: template.encode({"building": b, "unit": "1"}) for b in ("f34", "f340", "f35", "f3")}
    above = bounded(template, {}, "building", (">", "f34"))
    assert [b for b, key in keys.items() if above.holds(key)] == ["f340", "f35"]
    up_to = bounded(template, {}, "building", ("<=", "f340"))
    assert [b for b, key in keys.items() if up_to.holds(key)] == ["f34", "f340", "f3"]


def test_time_buckets_between_two_times_are_all_of_them_in_order() -> None:
    slot = compile_template("{at:%Y-%m-%d}", {"at": datetime}, subject="test").slots[0]
    low, high = datetime(2026, 2, 27, 23, tzinfo=UTC), datetime(2026, 3, 2, 1, tzinfo=UTC)
    between = [(">=", low), ("<=", high)]
    moments = slot.text.moments_between(between, 10)
    assert [slot.text.encode(one) for one in moments or ()] == ["2026-02-27", "2026-02-28", "2026-03-01", "2026-03-02"]
    assert slot.text.moments_between(between, 3) is None
