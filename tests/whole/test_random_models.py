"""Random models, random rows, random queries: every plan that is possible gives what a plain filter gives."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm

from ..conftest import examples
from ..query.test_query import forced

FIELDS = {
    "a": tm.Field[str],
    "b": tm.Field[int],
    "c": tm.Field[datetime],
    "d": tm.Field[str | None],
    "e": tm.Field[Decimal | None],
    "f": tm.Field[float],
    "g": tm.Field[list[str]],
}
KEYS: list[tuple[Any, Any]] = [
    ("{a}", ("{b}", "{c}")),
    (("{a}", "{b}"), "{c}"),
    ("{a:shard(2)}", ("{a}", "{b}", "{c}")),
    ("{c:%Y-%m-%d}", ("{c}", "{a}", "{b}")),
    ("all", ("{a}", "{b}", "{c}")),
    ("{a}", ("{c:desc}", "{b}")),
    ("{b}", ("{a}", "{c}")),
]
INDEXES: list[dict[str, Any]] = [
    {"partition": "{d}", "row": "{e}"},
    {"partition": "{e}", "include": "all"},
    {"partition": "{f}", "row": "{b:desc}"},
    {"partition": "{g}", "row": "{a}"},
    {"partition": "{d:fold}"},
    {"partition": "{d:hash}", "include": ("f",)},
    {"partition": "{b:shard(2)}", "row": ("{b}", "{f}")},
    {"partition": "{c:%Y-%m}", "row": "{c}"},
    {"partition": "{a}", "row": "{f}", "where": lambda e: e.f > 1},
    {"partition": "every", "row": ("{f:desc}", "{a}"), "include": ("d", "e")},
    {"partition": ("{a}", "{d}"), "row": "{c:desc}"},
]
VALUES: dict[str, list[Any]] = {
    "a": ["x", "x/y", "x.y", "", "X"],
    "b": [-1, 0, 1, 12],
    "c": [datetime(2024, 1, 31, tzinfo=UTC) + timedelta(hours=12 * n) for n in range(4)],
    "d": [None, "Ann", "ann", "Bo"],
    "e": [None, Decimal("1.0"), Decimal("1.00"), Decimal("-3"), Decimal("1E+2")],
    "f": [0.5, 1.5, -2.0, math.inf],
}
TAGS = ["t", "u"]

Maker = Callable[[Any], Any]
Test = tuple[Maker, Callable[[Any], bool]]


@st.composite
def models(draw: st.DrawFn) -> tuple[type[tm.Entity], type[tm.Aggregate] | None]:
    partition, row = draw(st.sampled_from(KEYS))
    chosen = draw(st.lists(st.integers(0, len(INDEXES) - 1), max_size=4, unique=True))
    body: dict[str, Any] = {
        "__module__": __name__,
        "__qualname__": "Thing",
        "__annotations__": FIELDS,
        "d": tm.field(default=None),
        "e": tm.field(default=None),
        "f": tm.field(default=0.5),
        "g": tm.field(factory=list),
        "key": tm.Key(partition=partition, row=row),
    }
    body |= {f"index{number}": tm.Index(**INDEXES[number]) for number in chosen}
    thing: Any = type(tm.Entity)("Thing", (tm.Entity,), body, table="Things")
    groups = draw(st.sampled_from([None, ("a",), ("a", "day"), ("d",)]))
    if groups is None:
        return thing, None
    by = {"a": (str, thing.a), "day": (date, thing.c.date()), "d": (str, thing.d)}
    annotations: dict[str, Any] = {name: tm.Field[by[name][0]] for name in groups}  # type: ignore[misc]
    annotations |= {"n": tm.Field[int], "total": tm.Field[float | None], "least": tm.Field[Decimal | None]}
    body = {
        "__module__": __name__,
        "__qualname__": "Total",
        "__annotations__": annotations,
        **{name: tm.group_by(by[name][1]) for name in groups},
        "n": tm.count(),
        "total": tm.sum(thing.f),
        "least": tm.min(thing.e),
        "key": tm.Key(partition=f"{{{groups[0]}}}", row=tuple(f"{{{name}}}" for name in groups[1:]) or "all"),
        "by_total": tm.Index(partition="all", row="{total}", include=("least",)),
    }
    made: Any = type(tm.Aggregate)("Total", (tm.Aggregate,), body, of=thing, table="Totals")
    return thing, made


def comparison(name: str) -> st.SearchStrategy[Test]:
    present = [value for value in VALUES[name] if value is not None]

    def compare(op: str, value: Any) -> Test:
        run: dict[str, Callable[[Any], bool]] = {
            "==": lambda v: v == value, "!=": lambda v: v != value, "<": lambda v: v < value, ">=": lambda v: v >= value,
        }  # fmt: skip

        def holds(e: Any) -> bool:
            held = getattr(e, name)
            return held is not None and run[op](held)

        return lambda cls: getattr(cls, name)._compare(op, value), holds

    return st.one_of(
        st.builds(compare, st.sampled_from(["==", "==", "!=", "<", ">="]), st.sampled_from(present)),
        st.lists(st.sampled_from(present), max_size=3).map(
            lambda some: (lambda cls: getattr(cls, name).is_in(some), lambda e: getattr(e, name) in some)
        ),
        st.just((lambda cls: getattr(cls, name).is_null(), lambda e: getattr(e, name) is None)),
    )


LEAVES: st.SearchStrategy[Test] = st.one_of(
    *[comparison(name) for name in VALUES],
    st.sampled_from(TAGS).map(lambda tag: (lambda cls: cls.g.contains(tag), lambda e: tag in e.g)),
    st.just((lambda cls: cls.g.contains("t") | cls.g.contains("u"), lambda e: bool(e.g))),
    st.sampled_from(["x", ""]).map(lambda t: (lambda cls: cls.a.startswith(t), lambda e: e.a.startswith(t))),
    st.just((lambda cls: cls.f > 1, lambda e: e.f > 1)),
    st.just((lambda cls: cls.f > cls.b, lambda e: e.f > e.b)),
    st.just((lambda cls: cls.c.date() == date(2024, 1, 31), lambda e: e.c.date() == date(2024, 1, 31))),
    st.tuples(st.sampled_from(VALUES["c"]), st.sampled_from(VALUES["c"])).map(
        lambda t: (lambda cls: cls.c.between(*t), lambda e: t[0] <= e.c <= t[1])
    ),
)
TESTS: st.SearchStrategy[Test] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda t: (lambda cls: ~t[0](cls), lambda e: not t[1](e))),
        st.tuples(inner, inner).map(
            lambda p: (lambda cls: p[0][0](cls) | p[1][0](cls), lambda e: p[0][1](e) or p[1][1](e))
        ),
    ),
    max_leaves=3,
)
ROWS = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()}) | st.none()
QUERIES = st.tuples(
    st.lists(TESTS, max_size=3),
    st.lists(st.tuples(st.sampled_from(sorted(VALUES)), st.booleans()), max_size=2, unique_by=lambda step: step[0]),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("tablemapper.query").setLevel(logging.ERROR)
    yield
    logging.getLogger("tablemapper.query").setLevel(logging.NOTSET)


def place(thing: Any) -> tuple[Any, ...]:
    return thing.a, thing.b, thing.c


def in_order(things: list[Any], order: list[tuple[str, bool]]) -> list[tuple[Any, ...]]:
    rows = [tuple(getattr(thing, name) for name, _ in order) for thing in things]
    for at, (_, descending) in reversed(list(enumerate(order))):
        rows.sort(key=lambda row: (row[at] is not None, row[at]), reverse=descending)
    return rows


@examples(30, long=60)
@given(
    made=models(),
    rows=st.lists(st.tuples(ROWS, st.lists(st.sampled_from(TAGS), max_size=2)), max_size=15),
    queries=st.lists(QUERIES, min_size=1, max_size=4),
)
def test_every_plan_of_every_model_gives_what_a_filter_gives(made: Any, rows: list[Any], queries: list[Any]) -> None:
    thing, total = made
    things = [thing(**row, g=tags) for row, tags in rows if row is not None]
    held = {place(one): one for one in things}
    with tm.open(":memory:", models=[thing] if total is None else [thing, total]) as store:
        store.upsert_many(things)
        for tests, order in queries:
            wanted = [one for one in held.values() if all(holds(one) for _, holds in tests)]
            steps = [getattr(thing, name).desc() if down else getattr(thing, name).asc() for name, down in order]
            query = store.query(thing).where(*(maker(thing) for maker, _ in tests)).order_by(*steps).allow_scan()
            for one in forced(query):
                explained = str(one.explain())
                found = list(one)
                assert sorted(map(place, found)) == sorted(map(place, wanted)), explained
                assert [tuple(getattr(e, name) for name, _ in order) for e in found] == in_order(wanted, order), (
                    explained
                )
                assert [one.g for one in found] == [held[place(one)].g for one in found], explained
                paged = [e for page in islice(one.pages(4), 10) for e in page.items]
                assert list(map(place, paged)) == list(map(place, found)), explained
                pairs = list(one.select(thing.d, thing.f, thing.a))
                assert sorted(map(repr, pairs)) == sorted(repr((e.d, e.f, e.a)) for e in wanted), explained
                assert one.count() == len(wanted), explained
            assert query.count() == len(wanted)
            assert query.sum(thing.f) == (sum(e.f for e in wanted) if wanted else None)
            assert query.min(thing.e) == min((e.e for e in wanted if e.e is not None), default=None)
            counted: dict[Any, int] = {}
            for e in wanted:
                counted[e.a] = counted.get(e.a, 0) + 1
            assert query.group_by(thing.a).count() == counted
        assert store.check().ok
