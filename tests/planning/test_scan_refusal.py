"""What a refused query is told: why nothing bounds it, and an index that can be pasted into the class and serves it."""

from __future__ import annotations

import datetime as dt
import re
import sys
import types
from functools import cache
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity

HEAD = """
from __future__ import annotations
import datetime as dt
import typing
from datetime import date, datetime, time, timedelta, UTC
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Literal, NewType
from uuid import UUID
import attrs
import tablemapper as tm

Name = NewType("Name", str)

class Color(Enum):
    RED = "r"
    BLUE = "b"

class Level(IntEnum):
    LOW = 1
    HIGH = 2

@attrs.define
class Home:
    city: str
    rooms: int = 0

"""
BODY = """
class Thing(tm.Entity, table="{table}"):
    p: tm.Field[str]
    n: tm.Field[int]
    a: tm.Field[str] = tm.field(default="")
    i: tm.Field[int] = tm.field(default=0)
    small: tm.Field[tm.Int32] = tm.field(default=0)
    f: tm.Field[float] = tm.field(default=0.0)
    on: tm.Field[bool] = tm.field(default=False)
    at: tm.Field[datetime] = tm.field(default=datetime(2026, 3, 1, tzinfo=UTC))
    moment: tm.Field[dt.datetime | None] = tm.field(default=None)
    day: tm.Field[date] = tm.field(default=date(2026, 3, 1))
    hour: tm.Field[time] = tm.field(default=time(9))
    span: tm.Field[timedelta] = tm.field(default=timedelta(1))
    price: tm.Field[Decimal | None] = tm.field(default=None)
    id: tm.Field[UUID] = tm.field(default=UUID(int=7))
    blob: tm.Field[bytes] = tm.field(default=b"")
    color: tm.Field[Color] = tm.field(default=Color.RED)
    level: tm.Field[Level] = tm.field(default=Level.LOW)
    size: tm.Field[Literal[1, 2]] = tm.field(default=1)
    word: tm.Field[typing.Literal["x", "y"] | None] = tm.field(default=None)
    name: tm.Field[Name] = tm.field(default=Name(""))
    größe: tm.Field[int] = tm.field(default=0)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    marks: tm.Field[list[int]] = tm.field(factory=list)
    home: tm.Field[Home | None] = tm.field(default=None)
    words: tm.Field[dict[str, int]] = tm.field(factory=dict)
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)
    by_taken: tm.Field[int] = tm.field(default=0)

    key = {key}
    by_i = tm.Index[int](partition="{{i}}", where=lambda t: t.f > 100)
    {index}
"""
KEY = 'tm.Key[str, int](partition="{p}", row="{n}")'
COUNT = iter(range(10_000))


@cache
def thing(index: str = "", key: str = KEY, table: str = "Things") -> types.ModuleType:
    """Return a module that holds the class, as a user would write it."""
    name = f"advised_{next(COUNT)}"
    module = sys.modules[name] = types.ModuleType(name)
    exec(
        compile(HEAD + BODY.format(table=table, key=key, index=index), name, "exec", dont_inherit=True), module.__dict__
    )
    return module


def advice(refused: tm.ScanRefused) -> str:
    """Return the declaration that the error proposes."""
    found = re.search(r"this index would serve it:\n    (.+)\n", str(refused))
    assert found, str(refused)
    return found[1]


def ask(module: types.ModuleType, text: str) -> tuple[Any, Any]:
    """Return a store with a few things, which all share who ask of a module, and a query over them."""
    store = filled(module)
    return store, eval(f"store.query(Thing){text}", module.__dict__ | {"store": store})


@cache
def filled(module: types.ModuleType) -> tm.Store:
    space = module.__dict__
    store = tm.open(":memory:", models=[space["Thing"]])
    made = eval('''[Thing("p", n, **more) for n, more in enumerate([
        {}, dict(a="x", i=5, small=5, f=2.5, on=True, at=datetime(2026, 4, 1, tzinfo=UTC), price=Decimal(3),
        moment=datetime(2026, 4, 1, tzinfo=UTC), day=date(2026, 4, 1), hour=time(10), span=timedelta(2), id=UUID(int=9),
        blob=b"x", color=Color.BLUE, level=Level.HIGH, size=2, word="x", name=Name("x"), größe=5, tags=["x", "y"],
        marks=[5, 6], home=Home("Oslo", 5), words={"a b": 5, "plain": 5}, by_taken=5)])]''', space)  # fmt: skip
    store.insert_many(made)
    return store


ASKED = [
    '.where(Thing.a == "x")', '.where(Thing.a.startswith("x"))', '.where(Thing.a.is_in(["x", "z"]))',
    ".where(Thing.i == 5)", ".where(Thing.i > 4)", ".where(Thing.i.between(4, 6)).order_by(Thing.i.desc())",
    ".where(Thing.small == 5)", ".where(Thing.small > 4)", ".where(Thing.f > 2)", ".where(Thing.on == True)",
    ".where(Thing.at > datetime(2026, 3, 2, tzinfo=UTC))", ".where(Thing.moment > datetime(2026, 3, 2, tzinfo=UTC))",
    ".where(Thing.day > date(2026, 3, 2))", ".where(Thing.hour >= time(10))", ".where(Thing.span > timedelta(1))",
    ".where(Thing.price == Decimal(3))", ".where(Thing.price > Decimal(2), Thing.i == 5)", ".where(Thing.id == UUID(int=9))",
    '.where(Thing.blob == b"x")', ".where(Thing.color == Color.BLUE)", ".where(Thing.level > Level.LOW)",
    ".where(Thing.size == 2)", ".where(Thing.size == 2, Thing.i > 4)", '.where(Thing.word == "x")', '.where(Thing.name == "x")',
    ".where(Thing.größe == 5)", ".where(Thing.größe > 4)", '.where(Thing.tags.contains("x"))', ".where(Thing.marks.contains(5))",
    '.where(Thing.tags.contains("x"), Thing.marks.contains(5))', '.where(Thing.tags.contains("x"), Thing.i > 4)',
    '.where(Thing.tags == ["x", "y"], Thing.i == 5)',
    '.where(Thing.home.at(lambda home: home.city) == "Oslo")', ".where(Thing.home.at(lambda home: home.rooms) > 4)",
    '.where(Thing.words["a b"] == 5)', '.where(Thing.words["plain"] == 5, Thing.words["a b"] > 4)',
    '.where(Thing.a == "x").order_by(Thing.i)', '.where(Thing.a == "x").order_by(Thing.price)',
    '.where(Thing.a == "x").order_by(Thing.words["a b"])', '.where(Thing.a == "x").order_by(Thing.home.at(lambda home: home.city))',
    '.where(Thing.a == "x").order_by(Thing.blob, Thing.i)', '.where(Thing.a == "x", Thing.more["b"].is_null())',
    ".where(Thing.by_taken == 5)", '.where(Thing.a == "x", Thing.i == 5, Thing.f > 2, Thing.at > datetime(2026, 3, 2, tzinfo=UTC))',
    ".where(Thing.n > 0)", ".where(Thing.n == 1)", '.where(Thing.p != "x", Thing.i == 5)', ".where((Thing.i == 5) | (Thing.i == 6))",
]  # fmt: skip


@pytest.mark.needs("backward", "sorts", when=lambda text: "order_by" in text)
@pytest.mark.parametrize("text", ASKED)
def test_the_index_that_is_proposed_can_be_pasted_and_serves(text: str) -> None:
    _, query = ask(thing(), text)
    with pytest.raises(tm.ScanRefused) as refused:
        list(query)
    wanted = [one.n for one in query.allow_scan()]
    assert wanted == [1]
    declared = advice(refused.value)
    served_store, served = ask(thing(declared), text)
    assert served.explain().path == f"Thing.{declared.split(' = ')[0]}"
    assert [one.n for one in served] == wanted
    for f in (9.0, 2.5):  # (which is what it was)
        assert served.update(f=f) == 1
    assert served_store.check().ok


@pytest.mark.parametrize(
    ("key", "shards"),
    [
        ('tm.Key(partition="{n}")', '"{n:shard(16)}"'),
        ('tm.Key(partition="{i:shard(4)}", row=("{p}", "{i}", "{n}"))', '("{p:shard(4)}", "{n:shard(4)}")'),
        ('tm.Key(partition=("{day}", "{p}"), row="{n}")', '("{p:shard(4)}", "{n:shard(4)}")'),
        ('tm.Key(partition="{p:fold}", row=("{p}", "{n}"))', '("{p:shard(4)}", "{n:shard(4)}")'),
    ],
)
def test_a_range_alone_is_served_in_shards_of_the_key(key: str, shards: str) -> None:
    for text in (".where(Thing.f > 2)", '.where(Thing.a > "a").order_by(Thing.a)'):
        _, query = ask(thing(key=key), text)
        with pytest.raises(tm.ScanRefused) as refused:
            list(query)
        declared = advice(refused.value)
        assert f"(partition={shards}, " in declared
        _, served = ask(thing(declared, key=key), text)
        assert (served.explain().path, served.explain().sort) == (f"Thing.{declared.split(' = ')[0]}", ())
        assert [one.n for one in served] == [1]


def test_a_table_with_a_long_name_gets_an_index_with_another() -> None:
    table = "T" * 60
    _, query = ask(thing(table=table), ".where(Thing.i == 5, Thing.f > 2)")
    with pytest.raises(tm.ScanRefused) as refused:
        list(query)
    _, served = ask(thing(advice(refused.value), table=table), ".where(Thing.i == 5, Thing.f > 2)")
    assert [one.n for one in served] == [1]


UNSERVED = [
    '.order_by(Thing.words["a b"])',
    ".order_by(Thing.home.at(lambda home: home.city))",
    '.where(Thing.more["c"] == 1)',
]
"""What no index would serve."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (".where(Thing.i == 5)", "Thing.key: no condition on p\n"),
        ('.where(Thing.p != "x")', "Thing.key: the condition on p does not bound it"),
        ('.where(Thing.p.contains("x"))', "Thing.key: the condition on p does not bound it"),
        ('.where(~(Thing.p == "x"), Thing.i == 5)', "Thing.key: the condition on p does not bound it"),
        (".where(Thing.p == Thing.a)", "Thing.key: the condition on p does not bound it"),
        (".where(Thing.i != 5)", "Thing.by_i: "),
        *[(text, "add conditions, or read it all with .allow_scan()") for text in UNSERVED],
    ],
)
def test_a_refusal_says_what_each_path_lacks(text: str, said: str) -> None:
    _, query = ask(thing(), text)
    with pytest.raises(tm.ScanRefused, match=re.escape(said)):
        list(query)


def test_an_order_by_an_index_that_lacks_entities_says_the_condition() -> None:
    declared = 'by_moment = tm.Index[dt.datetime](partition="all", row="{moment}")'
    _, query = ask(thing(declared), ".order_by(Thing.moment)")
    with pytest.raises(tm.ScanRefused) as refused:
        list(query)
    (condition,) = re.findall(r"entities without moment are not in it; add (.*)", str(refused.value))
    _, served = ask(thing(declared), f"{condition}.order_by(Thing.moment)")
    assert served.explain().path == "Thing.by_moment"


def test_a_time_cut_down_is_told_to_be_asked_for_itself() -> None:
    members = {"at": dt.datetime, "value": int}
    key = tm.Key[dt.datetime](partition="{at:%Y-%m-%d}", row="{at}")
    Reading = entity("Reading", "Readings", members, key, by_at=tm.Index[dt.datetime](partition="{at}"))
    with tm.open(":memory:", models=[Reading]) as store:
        for condition in (Reading.at.truncate("%H") == "07", Reading.at.truncate("%m-%Y") > "03-2026"):
            with pytest.raises(tm.ScanRefused) as refused:
                store.query(Reading).where(condition).first()
            for path in ("Reading.key", "Reading.by_at"):
                assert f"{path}: the condition on at does not bound it; compare at itself: at >= …, at < …" in str(
                    refused.value
                )


def test_a_list_that_is_too_long_to_bound_anything_is_named_and_no_index_is_proposed_for_it() -> None:
    members = {"group": str, "rank": int, "size": int}
    key = tm.Key[str, int](partition="{group}", row="{size}")
    Note = entity("Note", "Notes", members, key, by_rank=tm.Index[int](partition="{rank}"))
    with tm.open(":memory:", models=[Note]) as store:
        long = [str(number) for number in range(1001)]
        assert store.query(Note).where(Note.group.is_in(long[1:])).count() == 0
        for condition, why in (
            (Note.group.is_in(long), "  Note.key: a list of 1,001 values does not bound group\n"),
            (Note.rank.is_in(range(1001)), "  Note.by_rank: a list of 1,001 values does not bound rank\n"),
            (Note.size.is_in(range(1001)), "  Note.key: no condition on group\n"),
        ):
            with pytest.raises(tm.ScanRefused) as refused:
                store.query(Note).where(condition).first()
            message = str(refused.value)
            assert why in message
            assert "a query for each 1,000 values of a list could be bounded" in message
            assert "tm.Index" not in message
            with pytest.raises(tm.ScanRefused, match="by_size = tm.Index"):
                store.query(Note).where(condition, Note.size == 3).first()


def test_the_index_that_is_proposed_has_a_name_that_no_other_one_has() -> None:
    class Thing(tm.Entity, table="Things"):
        shop: tm.Field[str]
        number: tm.Field[int]

        key = tm.Key[str](partition="{shop}")
        by_number = tm.Index[int](partition="{number}", where=lambda t: t.shop == "a")

    with tm.open(":memory:", models=[Thing]) as store, pytest.raises(tm.ScanRefused) as refused:
        list(store.query(Thing).where(Thing.number == 1))
    assert 'by_number2 = tm.Index[int](partition="{number}")' in str(refused.value)


def refused(query: Any) -> str:
    with pytest.raises(tm.ScanRefused) as error:
        list(query)
    return str(error.value)


def proposals(text: str) -> list[str]:
    return re.findall(r"^    (by_\w+ = tm\.Index.+)$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("left", "right", "count"),
    [
        ("Thing.i == 5", "Thing.f > 2", 2),
        ('Thing.a == "x"', 'Thing.tags.contains("x")', 2),
        ('(Thing.a == "x") & (Thing.f > 2)', "Thing.on == True", 2),
        ('(Thing.p == "p") & (Thing.n == 1)', "Thing.f > 2", 1),
    ],
)
def test_the_sides_of_an_or_are_asked_one_by_one_with_an_index_for_each_that_nothing_bounds(
    left: str, right: str, count: int
) -> None:
    message = refused(ask(thing(), f".where(({left}) | ({right}))")[1])
    assert "ask a query for each" in message
    declared = proposals(message)
    assert len(declared) == count
    module = thing("\n    ".join(declared))
    for side in (left, right):
        assert [one.n for one in ask(module, f".where({side})")[1]] == [1]


@pytest.mark.parametrize(
    "where",
    ["(Thing.f > 2) | (Thing.f == -1)", "(Thing.i == 5) & (Thing.f > 2) | (Thing.i == 7)", '(Thing.a == "x") | (Thing.a > "w")'],
)  # fmt: skip
def test_one_index_serves_an_or_whose_sides_are_of_one_field(where: str) -> None:
    text = f".where({where})"
    declared = advice_of(refused(ask(thing(), text)[1]))
    assert [one.n for one in ask(thing(declared), text)[1]] == [1]


def advice_of(message: str) -> str:
    (declared,) = proposals(message)
    return declared


@pytest.mark.parametrize(
    ("key", "index", "text", "more"),
    [
        (KEY, "", ".where(Thing.n > 0)", ".where(Thing.p == …)"),
        ('tm.Key(partition=("{p}", "{a}"), row="{n}")', "", ".where(Thing.n == 1)", ".where(Thing.p == …, Thing.a == …)"),
        (KEY, 'by_a = tm.Index(partition="{a}", row="{f}")', ".where(Thing.f > 2)", ".where(Thing.a == …)"),
        ('tm.Key(partition="{day:%Y-%m}", row="{n}")', "", ".where(Thing.n == 1)", ".where(Thing.day >= …, Thing.day < …)"),
    ],
)  # fmt: skip
def test_conditions_on_the_partition_are_named_first_where_those_on_rows_are_there(
    key: str, index: str, text: str, more: str
) -> None:
    module = thing(index, key=key)
    message = refused(ask(module, text)[1])
    assert f"too: {more}" in message
    values = {
        "Thing.p == …": 'Thing.p == "p"', "Thing.a == …": 'Thing.a == "x"',
        "Thing.day >= …": "Thing.day >= date(2026, 4, 1)", "Thing.day < …": "Thing.day < date(2026, 5, 1)",
    }  # fmt: skip
    for condition, filled in values.items():
        more = more.replace(condition, filled)
    assert [one.n for one in ask(module, text + more)[1]] == [1]
    assert [one.n for one in ask(thing(f"{index}\n    {advice_of(message)}", key=key), text)[1]] == [1]


@pytest.mark.parametrize(
    ("index", "order", "first"),
    [
        ("", "Thing.f", 0),
        ("", "Thing.f.desc()", 1),
        ("", "Thing.f, Thing.i", 0),
        ("", "Thing.f.desc(), Thing.i.desc()", 1),
        ('by_all = tm.Index(partition="{p:shard(4)}", row="{f}")', "Thing.f", 0),
        ('by_all = tm.Index(partition="{f}")', "Thing.f.desc()", 1),
    ],
)
@pytest.mark.needs("backward", "sorts", when=lambda order: "desc" in order)
def test_an_order_without_conditions_is_had_from_an_index_by_its_name(index: str, order: str, first: int) -> None:
    message = refused(ask(thing(index), f".order_by({order}).limit(1)")[1])
    declared = proposals(message)
    assert len(declared) == (not index)
    (line,) = re.findall(r"^    store\.query\(Thing\)?(.+)$", message, re.MULTILINE)
    module = thing("\n    ".join([index, *declared]))
    store, _ = ask(module, "")
    query = eval(f"store.query(Thing{line}.limit(1)", module.__dict__ | {"store": store})
    assert [one.n for one in query] == [first]
    assert query.explain().sort == ()


@pytest.mark.parametrize(
    "text", [".where(Thing.a != 'x')", ".where(Thing.a.contains('x'))", ".where(Thing.moment.is_null())"]
)
def test_what_no_index_can_serve_is_said_in_plain_words(text: str) -> None:
    message = refused(ask(thing(), text)[1])
    assert "no index can serve these conditions; it could serve a bool field" in message
    assert not proposals(message)


def test_a_path_that_is_spread_by_shards_names_the_field_of_its_rows() -> None:
    module = thing(
        'by_f = tm.Index(partition="{p:shard(4)}", row="{f}")',
        key='tm.Key(partition="{n:shard(4)}", row=("{a}", "{n}"))',
    )
    message = refused(ask(module, ".where(Thing.i == 5)")[1])
    assert "Thing.key: no condition on a\n" in message
    assert "Thing.by_f: no condition on f\n" in message
