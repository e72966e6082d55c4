"""Columns that Arrow reads from lines of JSON: the same as those of rows, whatever the values are and the plan is."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from threading import Event, current_thread
from typing import Any, Literal
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.engines.sqlite.driver.functions import json_keeps_reals
from tablemapper.execution import column_reader
from tablemapper.query import arrow_batches
from tests.conftest import examples

from ..sql import run_sql

pa = pytest.importorskip("pyarrow")


class Color(Enum):
    RED = "red"
    NULL = "null"


class Level(IntEnum):
    LOW = 0
    HIGH = -5


@attrs.frozen
class Home:
    city: str


class Thing(tm.Entity, table="Things"):
    part: tm.Field[str]
    number: tm.Field[int]
    at: tm.Field[datetime]
    tag: tm.Field[str]
    cut: tm.Field[datetime] = tm.field(precision="ms")
    whole: tm.Field[int | None]
    small: tm.Field[tm.Int32 | None]
    real: tm.Field[float | None]
    flag: tm.Field[bool | None]
    text: tm.Field[str | None]
    day: tm.Field[date | None]
    clock: tm.Field[time | None]
    span: tm.Field[timedelta | None]
    price: tm.Field[Decimal | None]
    uid: tm.Field[UUID | None]
    color: tm.Field[Color | None]
    level: tm.Field[Level | None]
    choice: tm.Field[Literal["null", "b"] | None]
    home: tm.Field[Home | None]
    words: tm.Field[list[str]]
    sizes: tm.Field[list[int]]
    blob: tm.Field[bytes | None]
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, int, datetime, datetime](
        partition="{part}", row=("{number}", "{at}", "{cut:%Y-%m-%d}", "{cut:%H:%M:%S.%L}")
    )
    by_tag = tm.Index[str, int](partition="{tag}", row="{number}")
    covering = tm.Index[str, int](partition="{tag}", row=("{number:desc}",), include=("text", "real", "uid", "flag"))


FIELDS = [getattr(Thing, field.name) for field in Thing.__declaration__.fields]  # type: ignore[attr-defined]
PARTS = ["", "a", "b !c", 'q"', "\\", "null"]
TAGS = ["t", "~}", "é\n"]
_odd = st.sampled_from(
    ["", "null", '"', "\\", "\n", "\r\n", "\x00", "\x7f", ",", "[1,2]", " !", "0]\n[0", "é", "\U0001f600", "\ufeff", "x" * 65,
     "y" * 401, "z" * 2_000, "\x01" * 300, "1", "1.5", "true"]
)  # fmt: skip
_plain = st.text("abc ,'", max_size=4)
_times = st.datetimes(datetime(1601, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), timezones=st.just(UTC))
_int = st.one_of(st.sampled_from([0, -1, 2**63 - 1, -(2**63), 2**53 + 1]), st.integers(-(2**63), 2**63 - 1))


@st.composite
def _entities(draw: st.DrawFn) -> list[Any]:
    texts = draw(st.sampled_from([_plain, _odd, st.one_of(_plain, _plain, _plain, _odd)]))
    maybe: Callable[[Any], Any] = lambda values: st.one_of(st.none(), values)  # noqa: E731
    one = st.builds(
        Thing, part=st.sampled_from(PARTS), number=_int, at=_times, tag=st.sampled_from(TAGS), cut=_times,
        whole=maybe(_int), small=maybe(st.integers(-(2**31), 2**31 - 1)),
        real=maybe(st.floats(allow_nan=False)), flag=maybe(st.booleans()), text=maybe(texts), day=maybe(st.dates()),
        clock=maybe(st.times()), span=maybe(st.timedeltas(timedelta(days=-10**8), timedelta(days=10**8))),
        price=maybe(st.decimals(-(10**9), 10**9, places=3)), uid=maybe(st.uuids()), color=maybe(st.sampled_from(Color)),
        level=maybe(st.sampled_from(Level)), choice=maybe(st.sampled_from(["null", "b"])),
        home=maybe(st.builds(Home, texts)), words=st.lists(texts, max_size=2), sizes=st.lists(_int, max_size=2),
        blob=maybe(st.binary(max_size=70)),
    )  # fmt: skip
    found = draw(st.lists(one, max_size=14))
    return list({(one.part, one.number, one.at, one.cut): one for one in found}.values())


_WHERE: dict[str, Callable[[tm.Query[Any]], tm.Query[Any]]] = {
    "scan": lambda query: query.allow_scan(),
    "partition": lambda query: query.where(Thing.part == "a"),
    "range": lambda query: query.where(Thing.part == "", Thing.number >= 0),
    "partitions": lambda query: query.where(Thing.part.is_in(["", "a", "null", "?"])),
    "or": lambda query: query.where((Thing.part == "a") | ((Thing.part == "") & (Thing.number > 0))),
    "index": lambda query: query.where(Thing.tag == "t"),
    "indexes": lambda query: query.where(Thing.tag.is_in(TAGS)),
    "filter": lambda query: query.allow_scan().where(Thing.whole > 0),
    "residual": lambda query: query.allow_scan().where(Thing.price >= Decimal(0)),
}
_ORDER: dict[str, Callable[[Any], Any]] = {
    "": lambda query: query,
    "sorted": lambda query: query.order_by(Thing.whole.desc(), Thing.text),
    "number": lambda query: query.order_by(Thing.number),
    "backwards": lambda query: query.order_by(Thing.part.desc(), Thing.number.desc()),
}
_COVERED = [Thing.tag, Thing.number, Thing.text, Thing.real, Thing.uid, Thing.flag, Thing.part, Thing.at]
_PICKED = st.one_of(
    st.just(_COVERED),
    st.lists(
        st.sampled_from([one for one in FIELDS if one.name != "blob"]), min_size=1, unique_by=lambda one: one.name
    ),
    st.just([one for one in FIELDS if one.name not in ("cut", "blob")]),
    st.just([*FIELDS, Thing.at.date()]),
)


@contextmanager
def _read_by(lines: bool, size: int) -> Iterator[list[str]]:
    """Let columns be read by lines wherever that is possible, so many at once, or never; tell how chunks came."""
    came: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_batches, "ROWS", size)
        patch.setattr(arrow_batches, "LINES", size)
        patch.setattr(column_reader, "FEW", 1)
        parsed, reader = arrow_batches._LineBatches._parsed, column_reader.ColumnReader.lines
        patch.setattr(
            arrow_batches._LineBatches, "_parsed", lambda self, text: (came.append("text"), parsed(self, text))[1]
        )
        patch.setattr(column_reader.ColumnReader, "lines", reader if lines else lambda self, size: None)
        yield came


def _bits(table: Any) -> list[list[Any]]:
    """Return the values of a table, floats by their bits."""
    return [
        [struct.pack("<d", value) if value.__class__ is float else value for value in column.to_pylist()]
        for column in table.columns
    ]


def _picked(store: tm.Store, where: str, order: str, picked: list[Any], limit: int | None) -> Any:
    rows = _ORDER[order](_WHERE[where](store.query(Thing))).select(*picked)
    return rows if limit is None else rows.limit(limit)


@pytest.mark.needs("backward", "sorts")
@examples(30, long=600)
@given(
    _entities(), st.sampled_from(sorted(_WHERE)), st.sampled_from(sorted(_ORDER)), _PICKED,
    st.one_of(st.none(), st.integers(0, 9)), st.sampled_from([1, 2, 3, 5, 100]),
)  # fmt: skip
def test_lines_give_the_columns_of_rows(
    entities: list[Any], where: str, order: str, picked: list[Any], limit: int | None, size: int
) -> None:
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many(entities)
        rows = _picked(store, where, order, picked, limit)
        with _read_by(True, size):
            by_lines, streamed = rows.to_arrow(), list(rows.arrow_batches(4))
        with _read_by(False, size):
            by_rows, wanted = rows.to_arrow(), list(rows.arrow_batches(4))
        assert by_lines.schema == by_rows.schema
        assert _bits(by_lines) == _bits(by_rows)
        assert [batch.num_rows for batch in streamed] == [batch.num_rows for batch in wanted]
        assert streamed == wanted
        assert by_lines.num_rows == len(list(rows))


def _thing(number: int, **values: Any) -> Any:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    empty = dict.fromkeys(
        ["whole", "small", "real", "flag", "text", "day", "clock", "span", "price", "uid", "color", "level", "choice",
         "home", "blob"]
    )  # fmt: skip
    given: dict[str, Any] = {**empty, "words": [], "sizes": [], "part": "a", "tag": "t", **values}
    return Thing(number=number, at=moment, cut=moment, **given)


@pytest.mark.file
@pytest.mark.parametrize(
    ("where", "order", "picked"),
    [
        ("scan", "", _COVERED), ("scan", "", [one for one in FIELDS if one.name not in ("cut", "blob")]),
        ("scan", "backwards", _COVERED), ("partition", "", [Thing.number]), ("range", "", _COVERED),
        ("partitions", "", _COVERED), ("index", "", _COVERED), ("index", "", [Thing.day, Thing.part]),
        ("indexes", "", [Thing.day]), ("filter", "", _COVERED),
    ],
)  # fmt: skip
def test_these_plans_are_read_by_lines(where: str, order: str, picked: list[Any]) -> None:
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many(
            _thing(at, part=part, whole=at, text=str(at)) for at in range(1, 8) for part in ("a", "", "null")
        )
        rows = _picked(store, where, order, picked, None)
        with _read_by(True, 4) as came:
            table = rows.to_arrow()
        assert came == ["text"] * math.ceil(table.num_rows / 4)
        assert table.num_rows >= 7
        with _read_by(False, 4):
            assert rows.to_arrow() == table


@pytest.mark.needs("sorts", when=lambda order: order == "sorted")
@pytest.mark.parametrize(
    ("where", "order", "picked"),
    [
        ("scan", "sorted", _COVERED), ("residual", "", _COVERED), ("or", "", _COVERED),
        ("indexes", "number", [Thing.day]), ("scan", "", [Thing.blob]), ("scan", "", [Thing.cut]),
        ("scan", "", [Thing.at.date()]),
    ],
)  # fmt: skip
def test_other_plans_are_read_by_rows(where: str, order: str, picked: list[Any]) -> None:
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many(_thing(at, price=Decimal(at)) for at in range(5))
        with _read_by(True, 4) as came:
            assert _picked(store, where, order, picked, None).to_arrow().num_rows == 5
        assert not came


def test_functions_are_compiled_once_for_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many(_thing(at) for at in range(5))

        def rows(number: int) -> Any:
            return store.query(Thing).where(Thing.part == "a", Thing.number >= number).select(Thing.number, Thing.at)

        rows(0).to_arrow()
        rows(1).columns()
        compiled: list[str] = []
        monkeypatch.setattr(
            "tablemapper.planning.projection.compile_functions", lambda title, *_: compiled.append(title)
        )
        assert rows(2).to_arrow().column("number").to_pylist() == rows(2).columns()["number"] == [2, 3, 4]
        assert not compiled


@pytest.mark.file
def test_few_rows_and_a_budget_are_read_by_rows() -> None:
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many(_thing(at) for at in range(5))
        everything = store.query(Thing).allow_scan().select(Thing.number)
        with _read_by(True, 8) as came:
            assert everything.budget(examined=100).to_arrow().num_rows == 5
            assert came == []
            assert [everything.to_arrow().num_rows for _ in range(2)] == [5, 5]
        assert came == ["text"]  # the second one knew that they are few


@pytest.mark.file
@pytest.mark.parametrize("value", ["y" * 3_000, "\x01" * 350])
def test_a_chunk_with_a_value_that_no_line_holds_is_read_as_rows_and_the_others_are_not(value: str) -> None:
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many(_thing(at, text=value if at == 5 else str(at)) for at in range(20))
        rows = store.query(Thing).allow_scan().select(Thing.number, Thing.text)
        with _read_by(True, 4) as came:
            table = rows.to_arrow()
        assert table.column("text").to_pylist() == [value if at == 5 else str(at) for at in range(20)]
        assert table.column("number").to_pylist() == list(range(20))
        assert came == ["text"] * 4


@pytest.mark.file
def test_a_text_with_a_backslash_is_read_from_its_line() -> None:
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many(_thing(at, text='"' if at == 5 else str(at), real=math.inf) for at in range(20))
        rows = store.query(Thing).allow_scan().select(Thing.number, Thing.text, Thing.real)
        with _read_by(True, 4) as came:
            table = rows.to_arrow()
        assert table.column("text").to_pylist() == ['"' if at == 5 else str(at) for at in range(20)]
        assert table.column("real").to_pylist() == [math.inf] * 20
        assert came == ["text"] * 4


@pytest.mark.file
def test_the_text_null_is_no_missing_value() -> None:
    texts = ["null", None, "", "NULL", "0]\u20280", "a,b", " "]
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many(_thing(at, text=text, choice="null" if text else None) for at, text in enumerate(texts))
        with _read_by(True, 100) as came:
            table = store.query(Thing).allow_scan().select(Thing.text, Thing.choice).to_arrow()
        assert table.to_pydict() == {"text": texts, "choice": ["null" if text else None for text in texts]}
        assert came == ["text"]


def test_floats_come_back_to_the_last_bit(tmp_path: Any) -> None:
    reals = [
        0.1 + 0.2, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -math.inf, math.inf, 1e22, 2.0**53 + 2,
        -1.0,
    ]  # fmt: skip
    reals += [number / 7 for number in range(2_000)]
    with tm.open(tmp_path / "reals.db", models=[Thing], durability="relaxed") as store:
        store.insert_many(_thing(at, real=real) for at, real in enumerate(reals))
        table = store.query(Thing).allow_scan().select(Thing.real).to_arrow()
    assert _bits(table) == [[struct.pack("<d", real) for real in reals]]


@pytest.mark.file
def test_where_sqlite_writes_floats_with_a_loss_they_are_read_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json_keeps_reals()
    monkeypatch.setattr("tablemapper.engines.sqlite.sql.select.json_keeps_reals", lambda: False)
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many(_thing(at, real=at / 3) for at in range(5))
        with _read_by(True, 4) as came:
            everything = store.query(Thing).allow_scan()
            assert everything.select(Thing.real).to_arrow().column("real").to_pylist() == [at / 3 for at in range(5)]
            assert not came
            everything.select(Thing.number).to_arrow()
            assert came


def test_all_lines_are_of_one_state(tmp_path: Any) -> None:
    with tm.open(tmp_path / "state.db", models=[Thing]) as store:
        store.insert_many(_thing(at, whole=0) for at in range(20))
        with _read_by(True, 4):
            streamed = store.query(Thing).allow_scan().select(Thing.number, Thing.whole).arrow_batches(4)
            first = next(streamed)
            store.query(Thing).allow_scan().update(whole=1)
            store.insert(_thing(100))
            assert [first, *streamed] == pa.Table.from_batches([first]).to_batches() + [
                pa.RecordBatch.from_pydict({"number": list(range(at, at + 4)), "whole": [0] * 4}, schema=first.schema)
                for at in range(4, 20, 4)
            ]


@pytest.mark.needs("free_space")
def test_a_stream_that_is_left_holds_no_state(tmp_path: Any) -> None:
    with tm.open(tmp_path / "left.db", models=[Thing]) as store:
        store.insert_many(_thing(at) for at in range(20))
        with _read_by(True, 4):
            streamed = store.query(Thing).allow_scan().select(Thing.number).arrow_batches(4)
            next(streamed)
            streamed.close()
        store.compact()


@pytest.mark.file
@pytest.mark.parametrize("damage", ["'x'", "CAST(X'ff' AS TEXT)"])
def test_what_is_damaged_is_told_as_for_rows(path: Any, damage: str) -> None:
    with tm.open(path, models=[Thing]) as store:
        store.insert_many(_thing(at, whole=at, text="x") for at in range(20))
    column = "text" if "ff" in damage else "whole"
    run_sql(path, f'UPDATE "Things" SET "{column}" = {damage} WHERE "whole" = 9')
    with tm.open(path, models=[Thing]) as store:
        rows = store.query(Thing).allow_scan().select(Thing.number, Thing.whole, Thing.text)
        told = []
        for lines in (True, False):
            with _read_by(lines, 4), pytest.raises(Exception) as caught:
                rows.to_arrow()
            told.append(type(caught.value))
        assert told[0] == told[1]


def _damaged(path: Any, assignment: str) -> None:
    """Write twenty entities to a file, and let another program change one of them."""
    with tm.open(path, models=[Thing]) as store:
        store.insert_many(_thing(at, whole=at) for at in range(20))
    run_sql(path, f'UPDATE "Things" SET {assignment} WHERE "whole" = 9')


@pytest.mark.file
def test_bytes_where_none_are_stored_are_damage(path: Any) -> None:
    _damaged(path, """"whole" = X'ff'""")
    with tm.open(path, models=[Thing]) as store, _read_by(True, 4), pytest.raises(tm.CorruptStore, match="bytes stand"):
        store.query(Thing).allow_scan().select(Thing.number, Thing.whole).to_arrow()


@pytest.mark.file
def test_a_text_that_is_no_decimal_is_damage(path: Any) -> None:
    _damaged(path, """"price" = 'cheap'""")
    for lines in (True, False):
        with tm.open(path, models=[Thing]) as store, _read_by(lines, 4), pytest.raises(tm.CorruptStore, match="cheap"):
            store.query(Thing).allow_scan().select(Thing.number, Thing.price).to_arrow()


@pytest.mark.file
def test_lines_are_json() -> None:
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many(_thing(at, text="é") for at in range(3))
        rows = store.query(Thing).allow_scan().select(Thing.text, Thing.flag)
        with _read_by(True, 2):
            chunks = list(rows._reader().lines(2) or ())
        assert [[json.loads(line)[-3:] for line in chunk.split(b"\n")] for chunk in chunks] == [
            [["é", None, 0]] * 2,
            [["é", None, 0]],
        ]


class Numbered(tm.Entity, table="Numbered"):
    plain: tm.Field[int]
    padded: tm.Field[int]
    small: tm.Field[tm.Int32]
    level: tm.Field[Level]
    down: tm.Field[int]

    key = tm.Key[int, int, tm.Int32, Level, int](
        partition=("{plain}", "{padded:08d}"), row=("{small}", "{level}", "{down:desc}")
    )


@pytest.mark.file
@pytest.mark.parametrize(
    ("numbers", "by_arrow"),
    [([0, 9, 10, 2**31 - 1, 10**18, 2**63 - 1], True), ([0, 3, 10**7], True), ([5, -1, 7], False), ([-(2**63)], False)],
)
def test_arrow_reads_numbers_of_keys_of_which_none_is_negative(
    monkeypatch: pytest.MonkeyPatch, numbers: list[int], by_arrow: bool
) -> None:
    with tm.open(":memory:", models=[Numbered]) as store:
        store.insert_many(
            Numbered(
                plain=one, padded=abs(one) % 10**8, small=max(min(one, 2**31 - 1), -(2**31)), level=level, down=one
            )
            for one in numbers
            for level in Level
        )
        rows = store.query(Numbered).allow_scan()
        given: list[Any] = []
        numbers_of = arrow_batches._LineBatches._numbers
        monkeypatch.setattr(
            arrow_batches._LineBatches,
            "_numbers",
            lambda self, *text: (given.append(numbers_of(self, *text)), given[-1])[1],
        )
        with _read_by(True, 100) as came:
            table = rows.to_arrow()
        with _read_by(False, 100):
            assert rows.to_arrow() == table
    assert came == ["text"]
    assert [one is not None for one in given] == [by_arrow, True, by_arrow]  # plain, padded, small


def _blocked(wrong: int | None = None) -> tuple[Callable[[bytes], int], list[int]]:
    """Return a function of texts by number that waits in another thread till three were made in this one; and their numbers."""
    here, go_on, main = list[int](), Event(), current_thread()

    def make(item: bytes) -> int:
        number = item[0]
        if current_thread() is main:
            here.append(number)
            if len(here) == 3:
                go_on.set()
        else:
            assert go_on.wait(60)
        if number == wrong:
            raise ValueError(number)
        return number

    return make, here


def test_texts_are_read_here_where_the_other_thread_is_behind_and_come_in_order() -> None:
    make, here = _blocked()
    texts = [bytes([number]) * arrow_batches._SHORT for number in range(5)]
    assert list(arrow_batches._made_ahead(make, iter(texts))) == [0, 1, 2, 3, 4]
    assert here == [2, 3, 4]


def test_what_cannot_be_read_is_told_after_what_came_before_it() -> None:
    make, here = _blocked(wrong=3)
    texts = [bytes([number]) * arrow_batches._SHORT for number in range(5)]
    found = arrow_batches._made_ahead(make, iter(texts))
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="3"):
        next(found)
    assert here == [2, 3, 4]


def test_no_more_than_some_batches_wait_for_their_reader() -> None:
    read: list[int] = []

    def texts() -> Iterator[bytes]:
        for number in range(20):
            read.append(number)
            yield bytes([number]) * arrow_batches._SHORT

    for number in arrow_batches._made_ahead(lambda item: item[0], texts()):
        assert len(read) <= number + arrow_batches._MAX_READY + 1


def test_a_short_text_is_worth_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_batches, "ThreadPoolExecutor", None)
    assert list(arrow_batches._made_ahead(len, iter([b"x"]))) == [1]
    assert list(arrow_batches._made_ahead(len, iter([]))) == []
