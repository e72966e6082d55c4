"""Aggregates: what a declaration may say, with every fault of it reported."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.schema.model import compile_schema

from ..classes import Other, aggregate, entity
from ..stores import sound_store


class Reading(tm.Entity, table="Readings"):
    device: tm.Field[str]
    at: tm.Field[datetime]
    value: tm.Field[float]
    size: tm.Field[tm.Int32] = tm.field(default=1)
    price: tm.Field[Decimal | None] = tm.field(default=None)
    span: tm.Field[timedelta] = tm.field(default=timedelta(1))
    note: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    on: tm.Field[bool] = tm.field(default=True)

    key = tm.Key[str, datetime](partition="{device}", row="{at}")


class Abstract(tm.Entity):
    name: tm.Field[str]


class Daily(tm.Aggregate, of=Reading, table="Daily", where=lambda r: r.on == True):  # noqa: E712
    device: tm.Field[str] = tm.group_by(Reading.device)
    day: tm.Field[date] = tm.group_by(Reading.at.date())
    n: tm.Field[int] = tm.count()
    noted: tm.Field[int] = tm.count(Reading.note)
    high: tm.Field[int] = tm.count(where=Reading.value > 2)
    total: tm.Field[float] = tm.sum(Reading.value)
    mean: tm.Field[float | None] = tm.avg(Reading.value)
    least: tm.Field[float | None] = tm.min(Reading.value)
    most: tm.Field[float | None] = tm.max(Reading.value)
    ever: tm.Field[float | None] = tm.max_ever(Reading.value)
    price: tm.Field[Decimal | None] = tm.sum(Reading.price)
    span: tm.Field[timedelta] = tm.sum(Reading.span)
    sizes: tm.Field[int] = tm.sum(Reading.size)
    smallest: tm.Field[int | None] = tm.min(Reading.size)

    key = tm.Key[str, date](partition="{device}", row="{day}")


def faults(fields: dict[str, tuple[Any, Any]], *, key: Any = None, of: Any = Reading, where: Any = None) -> list[str]:
    body = {
        "__module__": __name__,
        "__qualname__": "Made",
        "__annotations__": {"device": tm.Field[str], **{name: tm.Field[kind] for name, (kind, _) in fields.items()}},
        "device": tm.group_by(Reading.device),
        **{name: measure for name, (_, measure) in fields.items() if measure is not None},
        "key": tm.Key(partition="{device}") if key is None else key,
    }
    with pytest.raises(tm.InvalidModel) as caught:
        type(tm.Aggregate)("Made", (tm.Aggregate,), body, table="MadeTable", of=of, where=where)
    return list(caught.value.faults)


WRONG: list[tuple[str, Any, Any, str]] = [
    ("a field that measures nothing", int, None, "group_by(…), count()"),
    ("a field with options", int, tm.field(default=1), "group_by(…), count()"),
    ("a count that is no int", str, tm.count(), "a count is an int"),
    ("the sum of a text", str, tm.sum(Reading.note), "have a sum"),
    ("the sum of another type", int, tm.sum(Reading.value), "is float, but the field is int"),
    ("the sum of what may be missing", Decimal, tm.sum(Reading.price), "| None"),
    ("a sum that may have no value", float, tm.sum(Reading.value, where=Reading.on == True), "| None"),  # noqa: E712
    ("the mean of ints as int", int | None, tm.avg(Reading.size), "is float"),
    ("a mean that is never None", float, tm.avg(Reading.value), "| None"),
    ("the mean of a text", str | None, tm.avg(Reading.note), "have a sum"),  # type: ignore[arg-type, call-overload, unused-ignore]
    ("the least of a list", list[str] | None, tm.min(Reading.tags), "no order"),
    ("a least that is never None", float, tm.min(Reading.value), "| None"),
    ("the greatest of another type", int | None, tm.max(Reading.value), "is float"),
    ("a group of a list", list[str], tm.group_by(Reading.tags), "scalar"),
    ("a group that may be None", str | None, tm.group_by(Reading.note), "never None"),
    ("a group of another type", int, tm.group_by(Reading.at.date()), "is date, but the field is int"),
    ("a field of another class", str, tm.group_by(Other.name), "is not a field of Reading"),
    ("a condition on another class", int, tm.count(where=Other.name == "x"), "is not a field of Reading"),
    ("a condition that is none", int, tm.count(where=True), "expected a condition"),  # type: ignore[arg-type]
    ("a measure of no field", int, tm.count(3), "expected a field"),  # type: ignore[arg-type]
    ("a group of no field", str, tm.group_by("device"), "expected a field"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("annotation", "measure", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_measure_is_named(annotation: Any, measure: Any, said: str) -> None:
    found = faults({"x": (annotation, measure)})
    assert [fault for fault in found if fault.startswith("x") and said in fault], found


def test_all_faults_are_reported_together() -> None:
    found = faults({"x": (str, tm.count()), "y": (int, tm.sum(Reading.value)), "_z": (int, tm.count())})
    assert {fault.partition(":")[0].strip('"') for fault in found} >= {"x", "y", "_z"}


@pytest.mark.parametrize(
    ("of", "said"),
    [(None, "of= must name"), (int, "of= must name"), (Abstract, "has no table"), (Daily, "aggregate of an aggregate")],
)
def test_of_must_be_an_entity_class_with_a_table(of: Any, said: str) -> None:
    assert any(said in fault for fault in faults({"x": (int, tm.count())}, of=of))


def test_the_key_is_made_of_exactly_the_groups() -> None:
    found = faults({"day": (date, tm.group_by(Reading.at.date()))})
    assert any("exactly the group_by fields" in fault and "day, device" in fault for fault in found)
    found = faults({"n": (int, tm.count())}, key=tm.Key(partition="{device}", row="{n}"))
    assert any("exactly the group_by fields" in fault for fault in found)


def test_the_key_holds_the_groups_without_loss() -> None:
    assert any("without loss" in fault for fault in faults({}, key=tm.Key(partition="{device:fold}")))


def test_where_is_a_condition_on_the_source() -> None:
    assert any("where=" in fault for fault in faults({}, where=lambda r: True))
    assert any("Other.name" in fault for fault in faults({}, where=lambda r: Other.name == "x"))
    assert any("where=" in fault and "vlaue" in fault for fault in faults({}, where=lambda r: r.vlaue > 1))


def test_an_aggregate_is_read_only() -> None:
    with tm.open(":memory:", models=[Reading, Daily]) as store:
        for verb in (store.insert, store.upsert, store.delete):
            with pytest.raises(tm.InvalidEntity, match="write Reading entities instead"):
                verb(Daily("d", date(2020, 1, 1)))  # type: ignore[arg-type]


def test_what_is_maintained_is_what_was_declared() -> None:
    at = datetime(2020, 1, 1, tzinfo=UTC)
    values = [1.0, 2.0, 4.0, 8.0]
    with sound_store(":memory:", models=[Reading, Daily]) as store:
        for hour, value in enumerate(values):
            store.insert(Reading("d", at + timedelta(hours=hour), value, size=hour, note="x" if hour else None))
        store.insert(Reading("d", at + timedelta(hours=9), 100.0, on=False))
        found = store[Daily.key("d", date(2020, 1, 1))]
        assert found == Daily(
            "d", date(2020, 1, 1), n=4, noted=3, high=2, total=15.0, mean=3.75, least=1.0, most=8.0, ever=8.0,
            price=None, span=timedelta(4), sizes=6, smallest=0,
        )  # fmt: skip
        store.delete(Reading.key("d", at + timedelta(hours=3)))
        found = store[Daily.key("d", date(2020, 1, 1))]
        assert (found.most, found.ever, found.total) == (4.0, 8.0, 7.0)


class Ever(tm.Aggregate, of=Reading, table="EverReadings"):
    device: tm.Field[str] = tm.group_by(Reading.device)
    n: tm.Field[int] = tm.count()
    total: tm.Field[float] = tm.sum(Reading.value)
    span: tm.Field[timedelta] = tm.sum(Reading.span)
    sizes: tm.Field[int] = tm.sum(Reading.size)
    price: tm.Field[Decimal | None] = tm.sum(Reading.price)
    most: tm.Field[float | None] = tm.max_ever(Reading.value)

    key = tm.Key[str](partition="{device}")
    by_sizes = tm.Index[int](partition="{sizes}")
    by_total = tm.Index[float](partition="all", row="{total}")


def test_sums_that_are_never_none_are_0_in_a_row_that_outlives_its_entities() -> None:
    reading = Reading("d", datetime(2020, 1, 1, tzinfo=UTC), 2.5, size=3)
    with sound_store(":memory:", models=[Reading, Ever]) as store:
        store.insert(reading)
        store.delete(reading)
        empty = Ever("d", n=0, total=0.0, span=timedelta(0), sizes=0, price=None, most=2.5)
        assert store[Ever.key("d")] == store.group(Ever.key("d")) == empty
        assert list(store.query(Ever).where(Ever.device == "d", Ever.total == 0)) == [empty]
        assert list(store.query(Ever.by_sizes(0))) == [empty]
        assert store.group(Ever.key("e")).span == timedelta(0)


def test_a_sum_of_both_infinities_is_none_and_not_0_and_in_no_index() -> None:
    at = datetime(2020, 1, 1, tzinfo=UTC)
    with sound_store(":memory:", models=[Reading, Ever]) as store:
        store.insert_many(Reading("d", at + timedelta(hours=n), inf) for n, inf in enumerate([math.inf, -math.inf]))
        assert store[Ever.key("d")].total is None
        assert store.group(Ever.key("d")).total is None
        assert not store.query(Ever.by_total()).exists()
        store.delete(Reading.key("d", at))
        assert [one.total for one in store.query(Ever.by_total())] == [-math.inf]


@attrs.define
class Span:
    raw: bytes
    time: timedelta


class Run(tm.Entity, table="Runs"):
    device: tm.Field[str]
    number: tm.Field[int]
    span: tm.Field[Span]

    key = tm.Key[str, int](partition="{device}", row="{number}")


class Spans(tm.Aggregate, of=Run, table="Spans"):
    device: tm.Field[str] = tm.group_by(Run.device)
    low: tm.Field[bytes | None] = tm.min(Run.span.at(lambda one: one.raw))
    top: tm.Field[bytes | None] = tm.max(Run.span.at(lambda one: one.raw))
    longest: tm.Field[timedelta | None] = tm.max_ever(Run.span.at(lambda one: one.time))

    key = tm.Key[str](partition="{device}")


@pytest.mark.needs("sorts")
def test_nested_bytes_and_durations_are_ordered_as_values_and_not_as_their_json() -> None:
    raw = [b"", b"\xff", b"\x00", b"a", b"ab", b"\xfb"]
    times = [timedelta(days=number * 7 - 20) for number in range(6)]
    with sound_store(":memory:", models=[Run, Spans]) as store:
        for number, values in enumerate(zip(raw, times, strict=True)):
            store.insert(Run("d", number, Span(*values)))
        assert (group := store[Spans.key("d")]).low == b""
        assert (group.top, group.longest) == (b"\xff", max(times))
        query = store.query(Run).where(Run.device == "d")
        assert [one.span.raw for one in query.order_by(Run.span.at(lambda one: one.raw))] == sorted(raw)
        assert [one.span.time for one in query.order_by(Run.span.at(lambda one: one.time))] == sorted(times)
        assert query.where(Run.number > 1).max(Run.span.at(lambda one: one.raw)) == b"\xfb"
        store.delete(Run.key("d", 1))
        store.delete(Run.key("d", 5))
        assert (group := store[Spans.key("d")]).top == b"ab"
        assert group.longest == max(times)


def test_every_difference_changes_the_fingerprint() -> None:
    def made(**measures: Any) -> str:
        members = {"device": (str, tm.group_by(Reading.device))}
        members |= {name: (float | None, measure) for name, measure in measures.items()}
        cls = aggregate("Made", Reading, members, tm.Key(partition="{device}"), "MadeTable")
        return compile_schema([Reading, cls]).fingerprint

    variants = [
        made(x=tm.max(Reading.value)),
        made(x=tm.min(Reading.value)),
        made(x=tm.max_ever(Reading.value)),
        made(x=tm.avg(Reading.value)),
        made(x=tm.max(Reading.value, where=Reading.value > 1)),
        made(x=tm.max(Reading.value, where=Reading.value > 2)),
        made(x=tm.max(Reading.value), y=tm.min(Reading.value)),
    ]
    assert len(set(variants)) == len(variants)
    assert made(x=tm.max(Reading.value)) == variants[0]


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (("größe",), "größe: the store keeps it in a table that is named after it, .* none; choose another name"),
        (("n" * 60,), "n+: the store keeps it in a table that is named after it, .* 63 letters"),
        (
            ("a_b", "aB"),
            'aB: the store would keep it in the table "ShelvesShelfAB", as it keeps a_b; choose another name',
        ),
    ],
    ids=["not ASCII", "long", "alike"],
)
def test_a_maintained_field_whose_name_makes_no_table_is_refused_by_its_name(
    names: tuple[str, ...], fault: str
) -> None:
    book = entity("Book", "Books", {"shelf": str}, tm.Key(partition="{shelf}"))
    fields = {name: (int, tm.count(of=book)) for name in names}
    shelf = entity("Shelf", "Shelves", {"shelf": str, **fields}, tm.Key(partition="{shelf}"))
    with pytest.raises(tm.InvalidModel, match=rf"Shelf\.{fault}"):
        tm.open(":memory:", models=[book, shelf])


@pytest.mark.parametrize("name", ["sqlite", "SQLite"])
def test_a_table_beside_which_sqlite_takes_no_other_is_refused(name: str) -> None:
    indexed = {"by_text": tm.Index(partition="{text}", table=name)}
    for table, index in ((name, {}), ("Rows", indexed)):
        row = entity("Row", table, {"id": str, "text": str}, tm.Key(partition="{id}"), **index)
        with pytest.raises(tm.InvalidModel, match=f'the table "{name}" would have others beside it'):
            compile_schema([row])
