"""Columns out, to Arrow, Polars and pandas too, and in again: types kept, all checked before anything is written."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import attrs
import msgspec
import pytest

import tablemapper as tm
from tablemapper.formats.arrow import ColumnCheck
from tablemapper.schema.model import model_of
from tablemapper.schema.rows import FIRST

from ..classes import Color, entity
from ..stores import sound_store


@attrs.frozen
class Home:
    city: str


class Thing(tm.Entity, table="Things"):
    group: tm.Field[str]
    number: tm.Field[int]
    at: tm.Field[datetime]
    real: tm.Field[float | None]
    flag: tm.Field[bool]
    day: tm.Field[date]
    clock: tm.Field[time]
    span: tm.Field[timedelta]
    price: tm.Field[Decimal]
    uid: tm.Field[UUID]
    blob: tm.Field[bytes]
    color: tm.Field[Color | None]
    choice: tm.Field[Literal["a", "b"]]
    home: tm.Field[Home]
    words: tm.Field[list[str]]
    small: tm.Field[tm.Int32 | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{group}", row="{number}")
    by_color = tm.Index[Color](partition="{color}")


EARLY, LATE = datetime(1601, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
NOON = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)


def thing(number: int, group: str = "g") -> Thing:
    return Thing(
        group, number, NOON + timedelta(seconds=number), None if number % 3 == 0 else number / 2, number % 2 == 0,
        date(2026, 3, 1) + timedelta(days=number), time(1, number % 60, 0, 7), timedelta(seconds=number, microseconds=1),
        Decimal(number) / 4, UUID(int=number), bytes([number % 256]), None if number % 5 == 0 else Color.BLUE,
        "ab"[number % 2],  # type: ignore[arg-type]
        Home(f"c{number}"), ["x"] * (number % 3), number if number % 2 else None,
    )  # fmt: skip


@pytest.fixture
def pa() -> Any:
    return pytest.importorskip("pyarrow")


@pytest.fixture
def things() -> list[Thing]:
    return [thing(number) for number in range(1, 31)]


@pytest.fixture
def store(things: list[Thing]) -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Thing]) as store:
        store.insert_many(things)
        yield store


@pytest.fixture
def query(store: tm.Store) -> tm.Query[Thing]:
    return store.query(Thing).where(Thing.group == "g")


NAMES = [field.name for field in Thing.__declaration__.fields]  # type: ignore[attr-defined]


def lists(things: list[Thing]) -> dict[str, list[Any]]:
    return {name: [getattr(thing, name) for thing in things] for name in NAMES}


def stored(store: tm.Store) -> list[Thing]:
    return list(store.query(Thing).where(Thing.group == "g"))


# -- lists ------------------------------------------------------------------------------------------------------------


def test_columns_are_lists_by_the_names_of_the_fields(query: tm.Query[Thing], things: list[Thing]) -> None:
    assert query.columns() == lists(things)
    assert list(query.columns()) == NAMES


def test_columns_of_a_selection_are_called_as_it_is_written(query: tm.Query[Thing]) -> None:
    columns = query.limit(2).select(Thing.number, Thing.home.at(lambda home: home.city), Thing.at.date()).columns()
    assert columns == {"number": [1, 2], "home.city": ["c1", "c2"], "at.date()": [date(2026, 3, 1)] * 2}


@pytest.mark.needs("sorts")
def test_columns_keep_order_limit_and_what_is_filtered_after_reading(query: tm.Query[Thing]) -> None:
    rows = query.where(Thing.price > Decimal(2), ~Thing.words.contains("x")).order_by(Thing.price.desc()).limit(3)
    assert rows.columns()["number"] == [thing.number for thing in rows] == [30, 27, 24]
    assert rows.budget(examined=1000).columns() == rows.columns()
    with pytest.raises(tm.QueryStopped):
        rows.budget(examined=5).columns()


def test_no_row_gives_empty_columns(store: tm.Store) -> None:
    assert store.query(Thing).where(Thing.group == "?").columns() == {name: [] for name in NAMES}
    assert store.query(Thing).where(Thing.group == "g").limit(0).columns() == {name: [] for name in NAMES}


def test_a_field_that_is_selected_twice_is_refused(query: tm.Query[Thing]) -> None:
    with pytest.raises(tm.InvalidQuery, match="price is selected twice"):
        query.select(Thing.price, Thing.price).columns()


def test_a_scan_is_refused_as_for_rows(store: tm.Store) -> None:
    with pytest.raises(tm.ScanRefused):
        store.query(Thing).columns()


# -- Arrow ------------------------------------------------------------------------------------------------------------


def test_arrow_keeps_types_and_values(pa: Any, query: tm.Query[Thing], things: list[Thing]) -> None:
    table = query.to_arrow()
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == {
        "group": pa.string(), "number": pa.int64(), "at": pa.timestamp("us", "UTC"), "real": pa.float64(),
        "flag": pa.bool_(), "day": pa.date32(), "clock": pa.time64("us"), "span": pa.duration("us"),
        "price": pa.decimal128(3, 2), "uid": pa.string(), "blob": pa.binary(),
        "color": pa.dictionary(pa.int32(), pa.string()), "choice": pa.string(), "home": pa.string(),
        "words": pa.list_(pa.string()), "small": pa.int32(),
    }  # fmt: skip
    columns = table.to_pydict()
    wanted = lists(things)
    for name in set(NAMES) - {"uid", "color", "home"}:
        assert columns[name] == wanted[name], name
    assert columns["uid"] == list(map(str, wanted["uid"]))
    assert columns["color"] == [None if one is None else one.value for one in wanted["color"]]
    assert list(map(json.loads, columns["home"])) == [{"city": home.city} for home in wanted["home"]]


@pytest.mark.needs("sorts", when=lambda way: way == "sorted")
@pytest.mark.parametrize("way", ["index", "residual", "derived", "sorted", "scan", "budget", "limit"])
def test_arrow_has_what_rows_have_whatever_path_they_take(query: tm.Query[Thing], way: str) -> None:
    pytest.importorskip("pyarrow")
    fields = (Thing.number, Thing.at, Thing.price, Thing.flag)
    one = {
        "index": lambda: query.where(Thing.color == Color.BLUE).select(*fields),
        "residual": lambda: query.where(Thing.price > Decimal(3), Thing.home.at(lambda h: h.city).contains("2")).select(
            *fields
        ),
        "derived": lambda: query.select(Thing.at.date(), Thing.home.at(lambda h: h.city), Thing.number, Thing.real),
        "sorted": lambda: query.order_by(Thing.at.desc(), Thing.real).select(*fields),
        "scan": lambda: query.where(Thing.real > 2.0).select(*fields),
        "budget": lambda: query.budget(examined=100).select(*fields),
        "limit": lambda: query.select(*fields).limit(7),
    }[way]()
    assert [tuple(row.values()) for row in one.to_arrow().to_pylist()] == list(one)
    assert len(list(one)) > 3


def test_decimals_get_the_smallest_type_that_holds_them_all(pa: Any) -> None:
    for texts, wanted in (
        (["1", "10.5", "-200.25"], pa.decimal128(5, 2)),
        (["1E+3", "0.001"], pa.decimal128(7, 3)),
        (["1E+40"], pa.decimal256(41, 0)),
        (["0"], pa.decimal128(1, 0)),
        ([], pa.decimal128(1, 0)),
    ):
        with tm.open(":memory:", models=[Priced]) as store:
            store.insert_many(Priced("p", number, Decimal(text)) for number, text in enumerate(texts))
            column = store.query(Priced).where(Priced.group == "p").to_arrow().column("price")
            assert column.type == wanted
            assert column.to_pylist() == [Decimal(text) for text in texts]


class Priced(tm.Entity, table="Priced"):
    group: tm.Field[str]
    number: tm.Field[int]
    price: tm.Field[Decimal]

    key = tm.Key[str, int](partition="{group}", row="{number}")


def test_decimals_that_no_type_of_arrow_holds_are_an_error() -> None:
    pytest.importorskip("pyarrow")
    with tm.open(":memory:", models=[Priced]) as store:
        store.insert_many([Priced("p", 1, Decimal("1E+100")), Priced("p", 2, Decimal("1E-100"))])
        query = store.query(Priced).where(Priced.group == "p")
        with pytest.raises(tm.InvalidQuery, match="price: its values need 201 digits"):
            query.to_arrow()
        assert [b.column("price").to_pylist() for b in query.arrow_batches()] == [["1E+100", "1E-100"]]


def test_the_digits_of_a_decimal_can_be_said(pa: Any, query: tm.Query[Thing]) -> None:
    for table in (query.to_arrow(decimals={Thing.price: 4}), *query.arrow_batches(decimals={Thing.price: 4})):
        assert table.schema.field("price").type == pa.decimal128(38, 4)
        assert table.column("price").to_pylist()[0] == Decimal("0.25")
    with pytest.raises(tm.InvalidQuery, match="price: a value does not fit into decimal128"):
        query.to_arrow(decimals={Thing.price: 1})


@pytest.mark.parametrize(
    "decimals", [{Thing.real: 2}, {"price": 2}, {Thing.price: -1}, {Thing.price: True}, {Thing.price: 39}]
)
def test_digits_of_what_is_no_decimal_are_refused(query: tm.Query[Thing], decimals: Any) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(tm.InvalidQuery, match="decimals="):
        query.to_arrow(decimals=decimals)


def test_batches_have_one_schema_and_at_most_so_many_rows(pa: Any, query: tm.Query[Thing], things: list[Thing]) -> None:
    batches = list(query.arrow_batches(7))
    assert [batch.num_rows for batch in batches] == [7, 7, 7, 7, 2]
    assert pa.Table.from_batches(batches).column("number").to_pylist() == [thing.number for thing in things]
    assert batches[0].schema.field("price").type == pa.string()
    assert batches[0].schema.field("color").type == pa.dictionary(pa.int32(), pa.string())
    with pytest.raises(tm.InvalidQuery, match="1 or more"):
        query.arrow_batches(0)


@pytest.mark.parametrize(("size", "rows"), [(1, [1] * 30), (15, [15, 15]), (13, [13, 13, 4]), (30, [30]), (31, [30])])
def test_a_batch_is_put_together_of_small_reads(
    pa: Any, query: tm.Query[Thing], size: int, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ROWS", "LINES"):
        monkeypatch.setattr(f"tablemapper.query.arrow_batches.{name}", 4)
    batches = list(query.arrow_batches(size))
    assert [batch.num_rows for batch in batches] == rows
    assert pa.Table.from_batches(batches).column("number").to_pylist() == list(range(1, 31))
    assert pa.Table.from_batches(batches).column("color").to_pylist() == query.to_arrow().column("color").to_pylist()


def test_no_row_gives_a_table_with_its_types(pa: Any, store: tm.Store) -> None:
    table = store.query(Thing).where(Thing.group == "?").to_arrow()
    assert table.num_rows == 0
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")


def test_a_field_that_was_added_later_has_its_default_in_its_column(path: Path) -> None:
    pytest.importorskip("pyarrow")
    old = entity("Item", "Items", {"number": int}, tm.Key[int](partition="{number}"))
    with tm.open(path, models=[old]) as store:
        store.insert(old(1))
    later = {"size": (int, tm.field(default=7)), "name": (str | None, tm.field(default=None))}
    new = entity("Item", "Items", {"number": int, **later}, tm.Key[int](partition="{number}"))
    with tm.open(path, models=[new]) as store:
        assert store.query(new).allow_scan().to_arrow().to_pylist() == [{"number": 1, "size": 7, "name": None}]


def test_polars_and_pandas_get_the_same_types(query: tm.Query[Thing], things: list[Thing]) -> None:
    polars = pytest.importorskip("polars")
    frame = query.to_polars()
    assert frame["at"].dtype == polars.Datetime("us", "UTC")
    assert frame["price"].dtype == polars.Decimal(3, 2)
    assert frame["number"].to_list() == [thing.number for thing in things]


def test_pandas_makes_no_float_of_an_int_where_values_are_missing(query: tm.Query[Thing], things: list[Thing]) -> None:
    pytest.importorskip("pandas")
    frame = query.to_pandas()
    assert str(frame["small"].dtype) == "Int32"
    assert [None if value != value else value for value in frame["number"]] == [thing.number for thing in things]
    assert str(frame["at"].dtype) == "datetime64[us, UTC]"
    assert str(frame["color"].dtype) == "category"
    assert str(query.select(Thing.number).to_pandas()["number"].dtype) == "int64"


class Extreme(tm.Entity, table="Extremes"):
    number: tm.Field[int]
    span: tm.Field[timedelta | None] = tm.field(default=None)
    price: tm.Field[Decimal | None] = tm.field(default=None)

    key = tm.Key[int](partition="{number}")


def test_the_least_duration_is_refused_for_pandas_which_would_have_it_missing() -> None:
    pytest.importorskip("pandas")
    least = timedelta(microseconds=-(2**63))
    with tm.open(":memory:", models=[Extreme]) as store:
        store.insert_many([Extreme(0), Extreme(1, least + timedelta(microseconds=1))])
        query = store.query(Extreme).select(Extreme.span).allow_scan()
        assert query.to_pandas()["span"].isna().tolist() == [True, False]
        store.insert(Extreme(2, least))
        with pytest.raises(tm.InvalidQuery, match=r"span: -106751992 days.* is a missing value in pandas"):
            query.to_pandas()
        assert query.to_arrow()["span"].to_pylist()[2] == least


def test_decimals_of_more_digits_than_polars_has_are_refused() -> None:
    pytest.importorskip("polars")
    with tm.open(":memory:", models=[Extreme]) as store:
        store.insert_many([Extreme(0, None, Decimal("1E+20")), Extreme(1, None, Decimal("1E-17"))])
        query = store.query(Extreme).select(Extreme.price).allow_scan()
        assert query.to_polars()["price"].to_list() == [Decimal("1E+20"), Decimal("1E-17")]
        store.insert(Extreme(2, None, Decimal("1E-18")))
        with pytest.raises(tm.InvalidQuery, match="price: its values need 39 digits, and a decimal of Polars has 38"):
            query.to_polars()
        assert query.to_arrow()["price"].to_pylist()[2] == Decimal("1E-18")


@pytest.mark.parametrize("name", ["arrow", "polars", "pandas"])
def test_a_package_that_is_missing_is_named_with_its_extra(
    query: tm.Query[Thing], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("pyarrow", "polars", "pandas"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf'to_{name} needs \w+: pip install "tablemapper\[{name}\]"'):
        getattr(query, f"to_{name}")()


async def test_an_async_query_has_columns_too(things: list[Thing]) -> None:
    async with tm.open_async(":memory:", models=[Thing]) as store:
        assert await store.insert_columns(Thing, lists(things)) == 30
        query = store.query(Thing).where(Thing.group == "g")
        assert await query.columns() == lists(things)
        assert (await query.select(Thing.number).limit(1).columns()) == {"number": [1]}
        try:
            importlib.import_module("pyarrow")
        except ModuleNotFoundError:
            return
        assert (await query.to_arrow()).num_rows == 30
        assert [batch.num_rows async for batch in query.arrow_batches(20)] == [20, 10]


# -- in ---------------------------------------------------------------------------------------------------------------


pytestmark = pytest.mark.tm_store(models=[Thing, Priced])


@pytest.mark.needs("all_or_none_load", when=lambda atomic: atomic)
@pytest.mark.parametrize("atomic", [False, True])
def test_columns_go_in_as_they_come_out(tm_store: tm.Store, things: list[Thing], atomic: bool) -> None:
    assert tm_store.insert_columns(Thing, lists(things), atomic=atomic) == 30
    assert stored(tm_store) == things
    assert tm_store.check().ok


def test_a_column_that_is_left_out_is_its_default(tm_store: tm.Store, things: list[Thing]) -> None:
    columns = lists(things)
    del columns["small"]
    tm_store.insert_columns(Thing, columns)
    assert [thing.small for thing in stored(tm_store)] == [None] * 30


def test_columns_stand_in_any_order(tm_store: tm.Store, things: list[Thing]) -> None:
    tm_store.insert_columns(Thing, dict(reversed(lists(things).items())))
    assert stored(tm_store) == things


@pytest.mark.parametrize("kind", ["table", "arrays", "polars", "pandas", "reader"])
def test_what_arrow_reads_goes_in(pa: Any, store: tm.Store, tm_store: tm.Store, things: list[Thing], kind: str) -> None:
    if kind in ("polars", "pandas"):
        pytest.importorskip(kind)
    query = store.query(Thing).where(Thing.group == "g")
    table = query.to_arrow()
    frame = {
        "table": lambda: table,
        "arrays": lambda: dict(zip(table.column_names, table.columns, strict=True)),
        "reader": lambda: pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        "polars": query.to_polars,
        "pandas": query.to_pandas,
    }[kind]()
    assert tm_store.insert_columns(Thing, frame) == 30
    assert stored(tm_store) == things


def test_arrays_of_numpy_go_in(tm_store: tm.Store, things: list[Thing]) -> None:
    np = pytest.importorskip("numpy")
    columns: dict[str, Any] = lists(things)
    columns["number"] = np.array(columns["number"])
    columns["flag"] = np.array(columns["flag"])
    columns["real"] = np.array([np.nan if value is None else value for value in columns["real"]])
    columns["small"] = np.array([np.nan if value is None else value for value in columns["small"]], dtype=float)
    columns["day"] = np.array(columns["day"], dtype="datetime64[D]")
    columns["span"] = np.array(columns["span"], dtype="timedelta64[us]")
    columns["choice"] = np.array(columns["choice"])
    columns["group"] = [np.str_(value) for value in columns["group"]]
    tm_store.insert_columns(Thing, columns)
    assert stored(tm_store) == things
    fine = np.array(columns["span"], dtype="timedelta64[ns]") + np.timedelta64(1, "ns")
    columns |= {"span": fine, "group": ["fine"] * len(fine)}
    assert tm_store.insert_columns(Thing, columns) == len(things)
    fine_things = tm_store.query(Thing).where(Thing.group == "fine").order_by(Thing.number)
    assert [one.span for one in fine_things] == [one.span for one in sorted(things, key=lambda one: one.number)]


def test_scalars_of_numpy_go_in(tm_store: tm.Store) -> None:
    np = pytest.importorskip("numpy")
    columns = {"group": ["p"], "number": [np.int32(5)], "price": [Decimal(1)]}
    assert tm_store.insert_columns(Priced, columns) == 1
    nothing = np.datetime64("NaT")
    with pytest.raises(tm.InvalidEntity, match="number: row 0: no value"):
        tm_store.insert_columns(Priced, {**columns, "number": [nothing]})


class Sale(tm.Entity, table="Sales"):
    shop: tm.Field[str]
    at: tm.Field[datetime | None]
    day: tm.Field[date | None]
    total: tm.Field[Decimal | None]
    count: tm.Field[Decimal]

    key = tm.Key[str](partition="{shop}")


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("package", ["pandas", "polars", "table", "columns of arrow", "columns of pandas", "numpy"])
def test_a_column_of_another_type_names_the_remedy_of_its_package(package: str, missing: bool) -> None:
    pyarrow, np, polars = (pytest.importorskip(name) for name in ("pyarrow", "numpy", "polars"))
    pytest.importorskip("pandas")
    importlib.import_module("pyarrow.compute")
    noon = datetime(2026, 3, 1, 12)
    held = {"shop": ["a", "b"], "at": [noon, noon], "day": [noon, noon], "total": [1.5, 0.1], "count": [1, 2]}
    if missing and package != "numpy":  # (numpy knows no missing time but NaT)
        held |= {"at": [noon, None], "day": [noon, None], "total": [1.5, None]}
    table = pyarrow.table(held)
    frame: Any = table.to_pandas() if "pandas" in package else polars.from_arrow(table)
    columns: Any = {name: np.array(values) for name, values in held.items()}
    columns["shop"] = held["shop"]
    columns["at"] = columns["at"].astype("datetime64[ns]")
    columns["day"] = columns["day"].astype("datetime64[ns]")
    if "columns of" in package:
        columns = {name: (table if "arrow" in package else frame)[name] for name in held}
    given: Any = {"pandas": frame, "polars": frame, "table": table}.get(package, columns)
    with tm.open(":memory:", models=[Sale]) as store:
        with pytest.raises(tm.InvalidEntity) as caught:
            store.insert_columns(Sale, given)
        names = {
            "frame": given, "table": given, "columns": given, "Decimal": Decimal, "polars": polars,
            "pyarrow": pyarrow,
        }  # fmt: skip
        if "columns of" in package:
            names |= {"table": table, "frame": frame}
        mended = {}
        for fault in caught.value.faults:
            name, problem, remedy = re.fullmatch(r"(\w+): ([^;]*); write (.*?)(?: if they are of UTC)?", fault).groups()  # type: ignore[union-attr]
            assert problem in (
                "its times have no time zone", "its values are times, expected dates", "its values are floats, expected Decimals",
                "its values are ints, expected Decimals",
            )  # fmt: skip
            mended[name] = eval(remedy, names)
        assert list(mended) == ["at", "day", "total", "count"]
        store.insert_columns(Sale, {"shop": held["shop"], **mended})
        first, second = store.query(Sale).allow_scan()
        assert first == Sale("a", noon.replace(tzinfo=UTC), noon.date(), Decimal("1.5"), Decimal(1))
        if missing and package != "numpy":
            assert second == Sale("b", None, None, None, Decimal(2))


@pytest.mark.parametrize("package", ["pandas", "pandas, of objects", "polars", "table", "numpy"])
def test_texts_of_times_name_the_remedy_of_their_package(package: str) -> None:
    pyarrow, np, polars = (pytest.importorskip(name) for name in ("pyarrow", "numpy", "polars"))
    pandas = pytest.importorskip("pandas")
    importlib.import_module("pyarrow.compute")
    held = {"shop": ["a", "b"], "at": ["2026-03-01T12:00:00"] * 2, "day": ["2026-03-01"] * 2}
    table = pyarrow.table(held)
    given: Any = {
        "pandas": table.to_pandas(),
        "pandas, of objects": table.to_pandas().astype(object),
        "polars": polars.from_arrow(table),
        "table": table,
        "numpy": {name: np.array(values) for name, values in held.items()},
    }[package]
    with tm.open(":memory:", models=[Sale]) as store:
        with pytest.raises(tm.InvalidEntity) as caught:
            store.insert_columns(Sale, given)
        names = {
            "frame": given, "table": given, "columns": given, "polars": polars, "pandas": pandas, "pyarrow": pyarrow,
        }  # fmt: skip
        columns: dict[str, Any] = {"shop": held["shop"], "total": [None, None], "count": [Decimal(1)] * 2}
        for fault in caught.value.faults:
            if (
                told := re.fullmatch(
                    r"(at|day): its values are texts, [^;]*; write (.*?)(?: if they are of UTC)?", fault
                )
            ) is not None:
                columns[told[1]] = eval(told[2], names)
        assert store.insert_columns(Sale, columns) == 2
        assert store.get(Sale.key("a")) == Sale(
            "a", datetime(2026, 3, 1, 12, tzinfo=UTC), date(2026, 3, 1), None, Decimal(1)
        )


def test_a_column_without_any_time_has_no_zone_to_name() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"shop": ["a"], "at": pandas.to_datetime([None]), "day": [None], "total": [None]})
    with tm.open(":memory:", models=[Sale]) as store:
        store.insert_columns(Sale, {**{name: frame[name] for name in frame}, "count": [Decimal(1)]})
        assert store.get(Sale.key("a")) == Sale("a", None, None, None, Decimal(1))


def test_the_index_that_pandas_wrote_into_a_file_is_told_as_such(tm_store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity, match=r"Unnamed: 0: no such field .*index_col=0\), or to_csv\(…, index=False"):
        tm_store.insert_columns(Priced, {"Unnamed: 0": [0], "group": ["a"], "number": [1], "price": [Decimal(1)]})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", "int64(5)"),
        ("span", "timedelta64(5, 'us')"),
        ("flag", "bool_(True)"),
        ("real", "float32(0.5)"),
        ("number", "array([5])"),
    ],
)
def test_a_scalar_of_numpy_in_an_entity_names_its_remedy(things: list[Thing], field: str, value: str) -> None:
    np = pytest.importorskip("numpy")
    given = eval(f"np.{value}", {"np": np})
    with pytest.raises(tm.InvalidEntity) as caught:
        things[0].replace(**{field: given})
    assert str(caught.value).endswith("; use .tolist(), which gives Python's own")
    thing = things[0].replace(**{field: given.tolist()} if given.ndim == 0 else {})
    assert getattr(thing, field) == (given if given.ndim == 0 else 1)


def test_every_wrong_column_is_told_with_its_first_row_and_nothing_is_written(
    tm_store: tm.Store, things: list[Thing]
) -> None:
    columns: dict[str, Any] = lists(things)
    columns["prize"] = columns.pop("price")
    columns["number"][3] = "4"
    columns["number"][5] = None
    columns["at"][2] = datetime(2026, 1, 1)
    columns["day"][7] = float("nan")
    columns["words"][9] = ["a", 5]
    columns["flag"] = columns["flag"][:-1]
    with pytest.raises(tm.InvalidEntity) as caught:
        tm_store.insert_columns(Thing, columns)
    assert list(caught.value.faults) == [
        f'prize: no such field (fields: {", ".join(NAMES)}); did you mean "price"?',
        "price: it is missing",
        "number: row 3: expected int, got str '4'; use int('4')",
        "at: row 2: datetime.datetime(2026, 1, 1, 0, 0) has no time zone; datetime.now(UTC) has, and "
        ".replace(tzinfo=…) gives one",
        "day: row 7: no value, but one of type date is required",
        "words: row 9[1]: expected str, got int 5",
        "flag: 29 values, but group has 30",
    ]
    assert tm_store.query(Thing).where(Thing.group == "g").count() == 0


@pytest.mark.parametrize("block", [1, 3, 7, 1_000])
def test_columns_are_checked_by_blocks_and_a_row_is_counted_from_the_first_one(
    tm_store: tm.Store, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablemapper.verbs.column_input._BLOCK", block)
    columns: dict[str, Any] = {
        "group": tuple("abcdefg"),
        "number": [1, 2, 3, 4, "5", 6, "7"],
        "price": [Decimal(at) for at in range(6)] + [0.5],
    }
    with pytest.raises(tm.InvalidEntity) as caught:
        tm_store.insert_columns(Priced, columns)
    assert list(caught.value.faults) == [
        "number: row 4: expected int, got str '5'; use int('5')",
        "price: row 6: expected Decimal, got float 0.5; use Decimal('0.5')",
    ]
    columns["number"], columns["price"] = list(range(7)), [Decimal(at) for at in range(7)]
    assert tm_store.insert_columns(Priced, columns) == 7
    assert tm_store.query(Priced).allow_scan().columns() == {**columns, "group": list("abcdefg")}


def test_constraints_and_validators_are_checked_before_the_first_row_is_written() -> None:
    class Rated(tm.Entity, table="Rated"):
        name: tm.Field[str] = tm.field(validator=attrs.validators.max_len(3))
        stars: tm.Field[Annotated[int, msgspec.Meta(ge=0, le=5)]]

        key = tm.Key[str](partition="{name}")

    with tm.open(":memory:", models=[Rated]) as store:
        with pytest.raises(tm.InvalidEntity, match="stars: row 2: expected int >= 0 and <= 5, got 6"):
            store.insert_columns(Rated, {"name": ["a", "b", "c"], "stars": [1, 5, 6]})
        names = [str(number) for number in range(2000)]
        with pytest.raises(ValueError, match="must be <= 3"):
            store.insert_columns(Rated, {"name": names, "stars": [1] * 2000})
        assert not store.query(Rated).allow_scan().exists()


class Wide(tm.Entity, table="Wides"):
    """What the class above leaves out: types, falsy and extreme values, a factory, undeclared properties."""

    part: tm.Field[str]
    at: tm.Field[datetime]
    number: tm.Field[int]
    real: tm.Field[float | None]
    text: tm.Field[str | None]
    blob: tm.Field[bytes | None]
    maybe: tm.Field[bool | None]
    span: tm.Field[timedelta | None]
    price: tm.Field[Decimal | None]
    cut: tm.Field[datetime] = tm.field(precision="s")
    words: tm.Field[list[str]] = tm.field(factory=list)
    fresh: tm.Field[UUID] = tm.field(factory=lambda: UUID(int=7))
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, datetime, int](partition="{part}", row=("{at}", "{number}"))
    by_number = tm.Index[int](partition="{number}", unique=True)


def wides() -> list[Wide]:
    odd = ["", "a b", "~}", "\x00\x1f", " !", "é", "\U0001f600", "a/b\\c#?", '"', "x" * 70]
    return [
        Wide("", EARLY, 0, None, None, None, None, None, None, NOON),
        Wide("p", LATE, 2**63 - 1, float("inf"), "", b"", False, timedelta.max // 10_000, Decimal("1E+6144"), NOON),
        Wide("p", LATE, -(2**63), float("-inf"), "x", b"\0", True, timedelta(0), Decimal("-0.00"), LATE),
        Wide("p", LATE, -1, 5e-324, "x", b"\0", True, timedelta(0), Decimal(0), LATE, ["", "é"]),
        Wide("p", NOON, 10**18, -0.0, "y" * 20_000, b"z" * 40_000, True, -timedelta(1), Decimal(1), NOON,
             more=tm.Extra({"color": "red", "size": 2**40})),
        *(Wide(text, NOON, at, at / 3, text, text.encode(), None, None, None, NOON) for at, text in enumerate(odd, 1)),
    ]  # fmt: skip


def columns_of(entities: list[Any]) -> dict[str, list[Any]]:
    names = [field.name for field in type(entities[0]).__declaration__.fields]
    return {name: [getattr(entity, name) for entity in entities] for name in names}


@pytest.mark.needs("all_or_none_load", when=lambda atomic: atomic)
@pytest.mark.parametrize("atomic", [False, True])
def test_falsy_extreme_and_large_values_go_in_by_columns_as_they_do_in_entities(atomic: bool) -> None:
    with tm.open(":memory:", models=[Wide]) as rows, sound_store(":memory:", models=[Wide]) as columns:
        rows.insert_many(wides(), atomic=atomic)
        columns.insert_columns(Wide, columns_of(wides()), atomic=atomic)
        one, other = (list(store.query(Wide).allow_scan()) for store in (rows, columns))
        assert one == other
        assert [str(entity.price) for entity in one] == [str(entity.price) for entity in other]
        assert [tm.info(entity)[:2] for entity in one] == [tm.info(entity)[:2] for entity in other]


def test_rows_of_columns_are_those_of_entities() -> None:
    for entities in (wides(), [thing(number) for number in range(1, 9)]):
        model = model_of(type(entities[0]))
        rows: list[Any] = []
        characters, most = model.columns_to_rows(list(columns_of(entities).values()), rows)
        wanted: list[Any] = []
        assert characters == model.to_rows(entities, [], wanted)
        texts = [at for at, field in enumerate(model.columns, FIRST) if field.type.spillable]
        assert most >= max(sum(len(row[at] or "") for at in texts) for row in rows)
        assert rows == wanted
        assert [list(map(type, row)) for row in rows] == [list(map(type, row)) for row in wanted]


def test_a_factory_gives_each_row_that_lacks_the_column_a_value_of_its_own() -> None:
    columns = columns_of(wides()[:2])
    del columns["words"], columns["fresh"], columns["more"]
    with tm.open(":memory:", models=[Wide]) as store:
        store.insert_columns(Wide, columns)
        assert [entity.fresh for entity in store.query(Wide).allow_scan()] == [UUID(int=7)] * 2


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"part": ["x" * 600, "y"]}, "600 UTF-16 units"),
        ({"text": [None, "y" * 40_000]}, "text"),
        ({"more": [tm.Extra(), tm.Extra(text="red")]}, "declared one"),
    ],
)
def test_what_no_row_can_hold_is_refused_as_in_entities(changes: dict[str, Any], fault: str) -> None:
    with tm.open(":memory:", models=[Wide]) as store:
        with pytest.raises(tm.TableMapperError, match=fault):
            store.insert_columns(Wide, columns_of(wides()[:2]) | changes)
        assert not store.query(Wide).allow_scan().exists()


@pytest.mark.file
def test_subclasses_of_plain_types_become_plain_and_what_only_looks_alike_is_refused(tm_store: tm.Store) -> None:
    class Level(IntEnum):
        LOW = 1

    class Text(str):
        __slots__ = ()

    one = {"group": [Text("p")], "number": [Level.LOW], "price": [Decimal(1)]}
    tm_store.insert_columns(Priced, one)
    (found,) = tm_store.query(Priced).where(Priced.group == "p")
    assert (type(found.group), type(found.number)) == (str, int)
    for name, value, fault in (
        ("number", True, "expected int, got bool True"),
        ("number", 2**63, "does not fit in 64 bits"),
        ("number", 1.5, "expected int, got float 1.5"),
        ("group", "\ud800", "lone surrogate"),
        ("group", None, "no value"),
        ("group", 5, "expected str, got int 5"),
    ):
        with pytest.raises(tm.InvalidEntity, match=f"{name}: row 1: .*{fault}"):
            tm_store.insert_columns(
                Priced, {key: [*values, value if key == name else values[0]] for key, values in one.items()}
            )


def test_a_column_that_is_a_generator_has_to_be_as_long_as_the_others(tm_store: tm.Store) -> None:
    columns = {"group": ["p", "p"], "number": (number for number in range(3)), "price": [Decimal(1)] * 2}
    with pytest.raises(tm.InvalidEntity, match="number: 3 values, but group has 2"):
        tm_store.insert_columns(Priced, columns)


@pytest.mark.parametrize("columns", [5, None, [{"group": "g"}], "text"])
def test_what_has_no_columns_is_refused(tm_store: tm.Store, columns: Any) -> None:
    with pytest.raises(tm.InvalidEntity, match="expected a dict of columns"):
        tm_store.insert_columns(Priced, columns)


def test_a_column_that_is_no_sequence_is_refused(tm_store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity, match="number: expected a sequence or an array, got 5"):
        tm_store.insert_columns(Priced, {"group": ["p"], "number": 5, "price": [Decimal(1)]})


@pytest.mark.needs("all_or_none_load")
def test_a_key_that_is_taken_is_told_as_insert_many_does(tm_store: tm.Store) -> None:
    columns = {"group": ["p", "p"], "number": [1, 1], "price": [Decimal(1), Decimal(2)]}
    with pytest.raises(tm.EntityExists):
        tm_store.insert_columns(Priced, columns)
    with pytest.raises(tm.EntityExists):
        tm_store.insert_columns(Priced, columns, atomic=True)


def test_importing_the_package_loads_none_of_these() -> None:
    code = "import tablemapper, sys; print([m for m in ('pyarrow', 'polars', 'pandas', 'numpy') if m in sys.modules])"
    import subprocess

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


class Stamp(tm.Entity, table="Stamps"):
    day: tm.Field[date]
    price: tm.Field[Decimal]
    text: tm.Field[str]

    key = tm.Key[date, Decimal](partition="{day:%Y-%m}", row="{price}")


def test_nothing_of_a_key_is_needed_where_its_fields_are_stored_as_properties_too(things: list[Thing]) -> None:
    pytest.importorskip("pyarrow")
    stamps = [Stamp(date(2026, 3, day), Decimal(day), "x" * day) for day in (1, 2)]
    with tm.open(":memory:", models=[Stamp, Thing]) as store:
        store.insert_many([*stamps, *things])
        assert store.query(Stamp).allow_scan().to_arrow().to_pylist() == [
            {"day": one.day, "price": one.price, "text": one.text} for one in stamps
        ]
        flags = store.query(Thing).where(Thing.group == "g").select(Thing.flag).to_arrow()
        assert flags.column("flag").to_pylist() == [one.flag for one in things]


class Sized(tm.Entity, table="Sized"):
    name: tm.Field[str]
    wide: tm.Field[int]
    small: tm.Field[tm.Int32]
    flag: tm.Field[bool]
    at: tm.Field[datetime]
    maybe: tm.Field[int | None] = tm.field(default=None)
    cut: tm.Field[datetime | None] = tm.field(default=None, precision="s")
    least: tm.Field[Annotated[int, msgspec.Meta(ge=0)]] = tm.field(default=0)

    key = tm.Key[int](partition="all", row="{wide}")


def sized(**changes: Any) -> dict[str, Any]:
    """Return columns of Arrow of which the types prove the values."""
    pa = pytest.importorskip("pyarrow")
    columns = {
        "name": pa.array(["", "é", "x"] * 4),
        "wide": pa.chunked_array([range(-4, 3), range(3, 8)]),
        "small": pa.array([-(2**31), 2**31 - 1, 0] * 4, pa.int32()),
        "flag": pa.array([True, False, True] * 4),
        "at": pa.array([EARLY, LATE, NOON] * 4, pa.timestamp("us", "UTC")),
        "maybe": pa.array([None, 0, 2**62] * 4),
    }
    return columns | changes


@pytest.mark.parametrize("container", ["columns", "table", "numpy"])
def test_columns_of_which_the_types_prove_the_values_are_made_part_by_part(
    pa: Any, monkeypatch: pytest.MonkeyPatch, container: str
) -> None:
    np = pytest.importorskip("numpy")
    monkeypatch.setattr("tablemapper.verbs.write_windows._CHUNK", 5)
    columns = sized()
    wanted = {name: column.to_pylist() for name, column in columns.items()}
    if container == "numpy":
        columns |= {"wide": np.arange(-4, 8, dtype=np.int16), "small": np.array(wanted["small"], np.int32)[:]}
        columns |= {"flag": np.array(wanted["flag"]), "maybe": np.arange(12, dtype=np.uint32)}
        wanted["maybe"] = list(range(12))
    with sound_store(":memory:", models=[Sized]) as store:
        with monkeypatch.context() as patch:
            patch.setattr(ColumnCheck, "values", None)  # nothing is checked value by value
            store.insert_columns(Sized, pa.table(columns) if container == "table" else columns)
        found = list(store.query(Sized).allow_scan())
        assert found == [Sized(**dict(zip(wanted, row, strict=True))) for row in zip(*wanted.values(), strict=True)]
        assert all(entity.at.tzinfo is UTC for entity in found)


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        ("wide", lambda pa, np: pa.array([*range(11), None]), "wide: row 11: no value"),
        ("wide", lambda pa, np: pa.array([*range(11), 2**63], pa.uint64()), "wide: row 11: "),
        ("wide", lambda pa, np: np.array([*range(11), 2**63], np.uint64), "wide: row 11: "),
        ("small", lambda pa, np: pa.array([*range(11), 2**31]), "small: row 11: "),
        ("small", lambda pa, np: pa.array([*range(11), 2**31], pa.uint32()), "small: row 11: "),
        ("small", lambda pa, np: np.array([*range(11), 2**31], np.uint32), "small: row 11: "),
        ("small", lambda pa, np: np.array([True] * 12), "small: row 0: "),
        ("flag", lambda pa, np: np.array([1] * 12), "flag: row 0: "),
        ("name", lambda pa, np: pa.array(range(12)), "name: row 0: "),
        ("wide", lambda pa, np: pa.array(["1"] * 12), "wide: row 0: "),
        ("at", lambda pa, np: pa.array([*[NOON] * 11, EARLY - timedelta(days=1)], pa.timestamp("us", "UTC")), "at: row 11: "),
        ("at", lambda pa, np: pa.array([*[0] * 11, 2**40], pa.timestamp("s", "UTC")), "at: row 11: a time outside of"),
        ("at", lambda pa, np: pa.array([NOON.replace(tzinfo=None)] * 12, pa.timestamp("us")), "at: its times have no time zone"),
        ("least", lambda pa, np: np.array([*range(11), -1]), "least: row 11: "),
        ("least", lambda pa, np: pa.array([*range(11), -1]), "least: row 11: "),
    ],
)  # fmt: skip
def test_what_a_type_does_not_prove_is_checked(name: str, change: Any, fault: str) -> None:
    pa, np = pytest.importorskip("pyarrow"), pytest.importorskip("numpy")
    with tm.open(":memory:", models=[Sized]) as store:
        with pytest.raises(tm.InvalidEntity) as caught:
            store.insert_columns(Sized, sized(**{name: change(pa, np)}))
        assert [told for told in caught.value.faults if told.startswith(fault)], caught.value.faults
        assert not store.query(Sized).allow_scan().exists()


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_times_of_other_units_and_zones_go_in_and_are_cut(pa: Any, unit: str) -> None:
    times = pa.array([NOON.replace(microsecond=0)] * 12, pa.timestamp(unit, "Europe/Oslo"))
    cut = pa.array([NOON] * 11 + [None], pa.timestamp("us", "UTC"))
    with tm.open(":memory:", models=[Sized]) as store:
        store.insert_columns(Sized, sized(at=times, cut=cut))
        found = store.query(Sized).allow_scan().columns()
    assert found["at"] == [NOON.replace(microsecond=0)] * 12
    assert found["cut"] == [NOON.replace(microsecond=0)] * 11 + [None]
