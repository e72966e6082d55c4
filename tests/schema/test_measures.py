"""What aggregates measure and group by: under which names, of what is calculated, by each element of a list."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tablemapper as tm
from tablemapper.evolution.renames import with_source
from tablemapper.expressions.predicates import dump_value, load_value
from tablemapper.schema.model import model_of

from ..classes import aggregate
from ..sql import run_sql
from ..stores import sound_store


class Sale(tm.Entity, table="Sales"):
    shop: tm.Field[str]
    number: tm.Field[int]
    amount: tm.Field[int]

    key = tm.Key[str, int](partition="{shop}", row="{number}")


class ShopTotal(tm.Aggregate, of=Sale, table="ShopTotals"):
    shop: tm.Field[str] = tm.group_by(Sale.shop, name="Shop")
    total: tm.Field[int] = tm.sum(Sale.amount, name="TotalSales")
    mean: tm.Field[float | None] = tm.avg(Sale.amount, name="Mean")
    least: tm.Field[int | None] = tm.min(Sale.amount, name="Least")
    most: tm.Field[int | None] = tm.max_ever(Sale.amount, name="class")
    sales: tm.Field[int] = tm.count(name="Sales")

    key = tm.Key[str](partition="{shop}")
    best = tm.Index[int](partition="all", row="{total:desc}", include=("sales",))


def totals(store: tm.Store) -> list[tuple[Any, ...]]:
    return [(one.shop, one.total, one.sales, one.least, one.most) for one in store.query(ShopTotal.best())]


@pytest.mark.file
def test_a_measure_is_stored_as_the_property_that_it_names(tmp_path: Path) -> None:
    with sound_store(tmp_path / "s.db", models=[Sale, ShopTotal]) as store:
        store.insert_many([Sale("Oslo", 1, 3), Sale("Oslo", 2, 4), Sale("Rome", 1, 9)])
        assert totals(store) == [("Rome", 9, 1, 9, 9), ("Oslo", 7, 2, 3, 4)]
    columns = {row[1] for row in run_sql(tmp_path / "s.db", "PRAGMA table_info(ShopTotals)")}
    assert {"TotalSales", "Mean", "Least", "class", "Sales"} <= columns
    assert not {"total", "mean", "least", "most"} & columns


def test_an_attribute_of_an_aggregate_can_be_renamed_if_its_property_stays(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[Sale, ShopTotal]) as store:
        store.insert(Sale("Oslo", 1, 3))

    class Renamed(tm.Aggregate, of=Sale, table="ShopTotals"):
        place: tm.Field[str] = tm.group_by(Sale.shop, name="Shop")
        sum: tm.Field[int] = tm.sum(Sale.amount, name="TotalSales")
        mean: tm.Field[float | None] = tm.avg(Sale.amount, name="Mean")
        least: tm.Field[int | None] = tm.min(Sale.amount, name="Least")
        most: tm.Field[int | None] = tm.max_ever(Sale.amount, name="class")
        sales: tm.Field[int] = tm.count(name="Sales")

        key = tm.Key[str](partition="{place}")
        best = tm.Index[int](partition="all", row="{sum:desc}", include=("sales",))

    Renamed.__name__ = "ShopTotal"
    with sound_store(tmp_path / "s.db", models=[Sale, Renamed]) as store:
        store.insert(Sale("Oslo", 2, 4))
        assert [(one.place, one.sum) for one in store.query(Renamed.best())] == [("Oslo", 7)]


def test_named_measures_are_maintained_by_a_program_that_does_not_declare_them(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[Sale, ShopTotal]) as store:
        store.insert(Sale("Oslo", 1, 3))
    with tm.open(tmp_path / "s.db", models=[Sale]) as store:
        store.insert(Sale("Oslo", 2, 4))
        store.delete(Sale.key("Oslo", 1))
    with sound_store(tmp_path / "s.db", models=[Sale, ShopTotal]) as store:
        assert totals(store) == [("Oslo", 4, 1, 4, 4)]


# ---------------------------------------------------------------------------------------------- calculations


class Line(tm.Entity, table="Lines"):
    order: tm.Field[str]
    number: tm.Field[int]
    price: tm.Field[Decimal]
    quantity: tm.Field[int]
    weight: tm.Field[float | None] = tm.field(default=None)
    start: tm.Field[datetime] = tm.field(default=datetime(2026, 1, 1, tzinfo=UTC))
    end: tm.Field[datetime | None] = tm.field(default=None)
    size: tm.Field[tm.Int32] = tm.field(default=1, name="Size")
    sizes: tm.Field[dict[str, int]] = tm.field(factory=dict)

    key = tm.Key[str, int](partition="{order}", row="{number}")


class Bill(tm.Aggregate, of=Line, table="Bills"):
    order: tm.Field[str] = tm.group_by(Line.order)
    total: tm.Field[Decimal] = tm.sum(Line.price * Line.quantity)
    reduced: tm.Field[Decimal] = tm.sum(Line.price * Decimal("0.90") - 1)
    mean: tm.Field[Decimal | None] = tm.avg(Line.price * Line.quantity)
    dearest: tm.Field[Decimal | None] = tm.max(Line.price * Line.quantity, where=Line.quantity < 100)
    ever: tm.Field[Decimal | None] = tm.max_ever(Line.price * Line.quantity)
    weight: tm.Field[float | None] = tm.sum(Line.weight * Line.quantity * 0.1)
    heavy: tm.Field[int] = tm.count(Line.weight * Line.quantity)
    ratio: tm.Field[float | None] = tm.sum(2**70 / Line.weight)
    time: tm.Field[timedelta | None] = tm.sum(Line.end - Line.start)
    longest: tm.Field[timedelta | None] = tm.max(Line.end - datetime(2026, 1, 1, tzinfo=UTC))
    latest: tm.Field[datetime | None] = tm.max(Line.start + timedelta(hours=1))
    volume: tm.Field[int] = tm.sum(Line.size * Line.quantity)
    wide: tm.Field[int | None] = tm.sum(Line.sizes["a"] * 2, where=Line.quantity > 0)

    key = tm.Key[str](partition="{order}")


DAY = datetime(2026, 1, 2, tzinfo=UTC)


def bill(lines: list[Line]) -> dict[str, Any]:
    """Return what a bill has, in plain Python."""
    exact = Context(prec=200)
    products = [exact.multiply(one.price, one.quantity) for one in lines]
    some = [product for one, product in zip(lines, products, strict=True) if one.quantity < 100]
    weights = [one.weight * one.quantity * 0.1 for one in lines if one.weight is not None]
    ratios = [2**70 / one.weight for one in lines if one.weight is not None]
    times = [one.end - one.start for one in lines if one.end is not None]
    ends = [one.end - DAY + timedelta(days=1) for one in lines if one.end is not None]
    sizes = [one.sizes["a"] * 2 for one in lines if "a" in one.sizes and one.quantity > 0]
    total = reduced = Decimal(0)
    for one, product in zip(lines, products, strict=True):
        total = exact.add(total, product)
        reduced = exact.add(reduced, exact.subtract(exact.multiply(one.price, Decimal("0.90")), 1))
    return {
        "total": total, "reduced": reduced, "mean": Context(prec=28).divide(total, len(lines)),
        "dearest": max(some, default=None), "weight": math.fsum(weights) if weights else None, "heavy": len(weights),
        "ratio": math.fsum(ratios) if ratios else None, "time": sum(times, timedelta()) if times else None,
        "longest": max(ends, default=None), "latest": max(one.start for one in lines) + timedelta(hours=1),
        "volume": sum(one.size * one.quantity for one in lines), "wide": sum(sizes) if sizes else None,
    }  # fmt: skip


def random_line(rnd: random.Random, order: str, number: int) -> Line:
    return Line(
        order, number, Decimal(rnd.randrange(-(10 ** rnd.randrange(1, 26)), 10**25)).scaleb(-rnd.randrange(9)),
        rnd.choice((1, 2, 3, 17, 100, -5, 2**20)),
        rnd.choice((None, 0.1, 1e300, -3.3, 5e-324, rnd.random())),
        DAY + timedelta(microseconds=rnd.randrange(10**12)),
        rnd.choice((None, DAY, DAY + timedelta(microseconds=rnd.randrange(10**12)))),
        rnd.randrange(-(2**31), 2**31), rnd.choice(({}, {"a": 2**62}, {"b": 1})),
    )  # fmt: skip


@pytest.mark.needs("across_partitions")
def test_sums_of_calculations_are_those_of_python_after_many_writes(tmp_path: Path, full_size: bool) -> None:
    rnd = random.Random(7)
    live: dict[tuple[str, int], Line] = {}
    writes, left = 0, 100_000 if full_size else 3_000
    with sound_store(tmp_path / "s.db", models=[Line, Bill], durability="relaxed") as store:
        while writes < left:
            with store.transaction(across_partitions=True) as tx:
                for key in {(f"o{rnd.randrange(6)}", rnd.randrange(400)) for _ in range(300)}:
                    writes += 1
                    if key in live and rnd.random() < 0.4:
                        tx.delete(Line.key(*key))
                        del live[key]
                        continue
                    line = random_line(rnd, *key)
                    if key in live and rnd.random() < 0.5:
                        tx.merge(Line.key(*key), quantity=line.quantity, weight=line.weight, end=line.end)
                        live[key] = live[key].replace(quantity=line.quantity, weight=line.weight, end=line.end)
                    else:
                        tx.upsert(line)
                        live[key] = line
        by_order: dict[str, list[Line]] = defaultdict(list)
        for (order, _), line in live.items():
            by_order[order].append(line)
        for order, lines in by_order.items():
            found = store[Bill.key(order)]
            for name, expected in bill(lines).items():
                assert repr(getattr(found, name)) == repr(expected) or name == "dearest", (order, name)
                assert getattr(found, name) == expected, (order, name)
            query = store.query(Line).where(Line.order == order)
            assert query.sum(Line.price * Line.quantity) == found.total
            assert query.explain().totals["sum(price * quantity)"] == "Bill"


def test_a_total_of_a_calculation_needs_no_aggregate() -> None:
    with tm.open(":memory:", models=[Line]) as store:
        lines = [random_line(random.Random(n), f"o{n % 3}", n) for n in range(40)]
        store.insert_many(lines)
        query = store.query(Line).allow_scan()
        products = [Context(prec=200).multiply(one.price, one.quantity) for one in lines]
        total = Decimal(0)
        for product in products:
            total = Context(prec=200).add(total, product)
        assert query.sum(Line.price * Line.quantity) == total
        assert query.max(Line.price * Line.quantity) == max(products)
        found = query.group_by(Line.order).sum(Line.size * Line.size)
        assert found == {f"o{k}": sum(one.size**2 for one in lines if one.order == f"o{k}") for k in range(3)}
        assert query.avg(Line.weight * 2) is not None
        assert query.sum(Line.sizes["a"] + Line.size) == sum(
            one.sizes["a"] + one.size for one in lines if "a" in one.sizes
        )
        with pytest.raises(tm.InvalidQuery, match="weight / 0: a division by zero"):
            query.sum(Line.weight / 0)
        with pytest.raises(tm.InvalidQuery, match="is not a field of Line"):
            query.sum(Line.size * Sale.amount)


def test_calculations_are_maintained_by_a_program_that_does_not_declare_them(tmp_path: Path) -> None:
    lines = [random_line(random.Random(n), "o", n) for n in range(30)]
    with tm.open(tmp_path / "s.db", models=[Line, Bill]) as store:
        store.insert_many(lines[:10])
    with tm.open(tmp_path / "s.db", models=[Line]) as store:
        store.insert_many(lines[10:])
        store.delete(Line.key("o", 3))
    with sound_store(tmp_path / "s.db", models=[Line, Bill]) as store:
        found = store[Bill.key("o")]
        expected = bill([one for one in lines if one.number != 3])
        assert {name: getattr(found, name) for name in expected} == expected


def test_an_aggregate_of_a_calculation_is_built_over_what_is_there(tmp_path: Path) -> None:
    lines = [random_line(random.Random(n), "o", n) for n in range(30)]
    with tm.open(tmp_path / "s.db", models=[Line]) as store:
        store.insert_many(lines)
    with sound_store(tmp_path / "s.db", models=[Line, Bill]) as store:
        assert store[Bill.key("o")].total == bill(lines)["total"]


class Rate(tm.Entity, table="Rates"):
    name: tm.Field[str]
    up: tm.Field[float]
    down: tm.Field[float]
    big: tm.Field[int] = tm.field(default=1)
    exact: tm.Field[Decimal] = tm.field(default=Decimal(1))

    key = tm.Key[str](partition="{name}")


class Rates(tm.Aggregate, of=Rate, table="RatesByName"):
    name: tm.Field[str] = tm.group_by(Rate.name)
    ratio: tm.Field[float] = tm.sum(Rate.up / Rate.down)
    cube: tm.Field[int] = tm.sum(Rate.big * Rate.big * Rate.big)
    most: tm.Field[int | None] = tm.max(Rate.big * 4)
    power: tm.Field[Decimal] = tm.sum(Rate.exact * Rate.exact * Rate.exact)
    largest: tm.Field[Decimal | None] = tm.max(Rate.exact * Rate.exact)

    key = tm.Key[str](partition="{name}")


@pytest.mark.needs("all_or_none_load")
@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"down": 0.0}, r"Rates: up / down: a division by zero"),
        ({"up": math.inf, "down": math.inf}, "Rates: up / down: nan is not a number"),
        ({"big": 2**62}, r"Rates: big \* 4: .*64"),
        ({"exact": Decimal("1E+5000")}, r"Rates: \(exact \* exact\) \* exact: .* exponent beyond"),
        ({"exact": Decimal("1.234567890123456789")}, r"Rates: exact \* exact: .*34"),
    ],
)
@pytest.mark.parametrize("declared", [True, False])
def test_what_cannot_be_calculated_is_not_written(
    values: dict[str, Any], fault: str, declared: bool, tmp_path: Path
) -> None:
    with tm.open(tmp_path / "s.db", models=[Rate, Rates]) as store:
        store.insert(Rate("a", 1.0, 2.0))
    with sound_store(tmp_path / "s.db", models=[Rate, Rates] if declared else [Rate]) as store:
        for write in (
            lambda: store.insert(Rate("b", **{"up": 1.0, "down": 1.0, **values})),
            lambda: store.merge(Rate.key("a"), **values),
            lambda: store.insert_many(
                [Rate("c", 1.0, 1.0), Rate("b", **{"up": 1.0, "down": 1.0, **values})], atomic=True
            ),
        ):
            with pytest.raises(tm.InvalidEntity, match=fault):
                write()
        assert [one.name for one in store.query(Rate).allow_scan()] == ["a"]


def test_what_cannot_be_calculated_of_what_is_there_stops_the_build_with_its_reason(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[Rate]) as store:
        store.insert(Rate("a", 1.0, 0.0))
    with pytest.raises(tm.TableMapperError, match=r"Rate \('a', ''\).*up / down: a division by zero"):
        tm.open(tmp_path / "s.db", models=[Rate, Rates])
    with tm.open(tmp_path / "s.db", models=[Rate]) as store:
        assert store[Rate.key("a")].up == 1.0


VALUES = [
    Line.price * Line.quantity, 1 - Line.weight * 1.5, -Line.size, Line.price + Decimal("-1.50E+3"),
    Line.weight * math.inf, 2**1000 / Line.weight,
    Line.end - datetime(2020, 1, 1, 5, tzinfo=timezone(timedelta(hours=2))),
    Line.start + timedelta(days=-3, microseconds=7), Line.sizes["a b"] * 2,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_calculation_is_read_as_it_was_written(value: Any) -> None:
    form = msgspec.json.decode(msgspec.json.encode(dump_value(value)))
    read = load_value(form, lambda name: getattr(Line, name))
    assert read.source == value.source
    assert (repr(read), read.label) == (repr(value), value.label)


@pytest.mark.parametrize(
    "form", [1, ["*"], ["%", "size", "size"], {"int": 2}, ["*", {"str": "x"}, "size"], ["*", {}, "size"]]
)
def test_what_is_no_calculation_cannot_be_read(form: Any) -> None:
    with pytest.raises(ValueError, match="is no"):
        load_value(form, lambda name: getattr(Line, name))


# ---------------------------------------------------------------------------------------------- groups without a row


class DayTotal(tm.Aggregate, of=Line, table="DayTotals"):
    day: tm.Field[date] = tm.group_by(Line.start.date())
    order: tm.Field[str] = tm.group_by(Line.order)
    lines: tm.Field[int] = tm.count()
    heavy: tm.Field[int] = tm.count(where=Line.weight > 3)
    volume: tm.Field[int] = tm.sum(Line.size * Line.quantity)
    price: tm.Field[Decimal] = tm.sum(Line.price)
    weight: tm.Field[float | None] = tm.sum(Line.weight)
    mean: tm.Field[float | None] = tm.avg(Line.size)
    most: tm.Field[int | None] = tm.max_ever(Line.size)

    key = tm.Key[date, str](partition="{day:%Y-%m}", row=("{day:desc}", "{order}"))


EMPTY = DayTotal(date(2026, 1, 2), "o", lines=0, heavy=0, volume=0, price=Decimal(0), weight=None, mean=None, most=None)


def test_a_group_without_a_row_is_an_empty_one() -> None:
    key = DayTotal.key(date(2026, 1, 2), "o")
    with tm.open(":memory:", models=[Line, DayTotal, Bill]) as store:
        assert store.group(key) == EMPTY
        assert (type(store.group(key).volume), type(store.group(key).price)) == (int, Decimal)
        assert tm.info(store.group(key)).etag is None
        assert store.get(key) is None
        with store.transaction() as tx:
            assert tx.group(key) == EMPTY
        store.insert(Line("o", 1, Decimal("1.5"), 2, start=DAY, size=3))
        assert (
            store.group(key) == store[key] == EMPTY.replace(lines=1, volume=6, price=Decimal("1.5"), mean=3.0, most=3)
        )
        store.delete(Line.key("o", 1))
        assert store.group(key) == EMPTY.replace(most=3)
        assert store.group(Bill.key("x")).total == Decimal(0)
        for wrong in (Line.key("o", 1), "x"):
            with pytest.raises(tm.InvalidEntity, match="is not an aggregate|expected"):
                store.group(wrong)  # type: ignore[arg-type, type-var]


async def test_an_async_store_gives_groups_too() -> None:
    key = DayTotal.key(date(2026, 1, 2), "o")
    async with tm.open_async(":memory:", models=[Line, DayTotal]) as store, store.transaction() as tx:
        assert [await store.group(key), await tx.group(key)] == [EMPTY, EMPTY]


# ---------------------------------------------------------------------------------------------- elements of lists


class Post(tm.Entity, table="Posts"):
    author: tm.Field[str]
    number: tm.Field[int]
    tags: tm.Field[list[str]] = tm.field(factory=list)
    scores: tm.Field[list[Decimal] | None] = tm.field(default=None)
    likes: tm.Field[int] = tm.field(default=1)

    key = tm.Key[str, int](partition="{author}", row="{number}")
    by_tag = tm.Index[str](partition="{tags}")


class Tag(tm.Aggregate, of=Post, table="Tags"):
    tag: tm.Field[str] = tm.group_by(Post.tags.each())
    author: tm.Field[str] = tm.group_by(Post.author)
    posts: tm.Field[int] = tm.count()
    likes: tm.Field[int] = tm.sum(Post.likes * 2)
    most: tm.Field[int | None] = tm.max(Post.likes, where=Post.number > 0)

    key = tm.Key[str, str](partition="{tag}", row="{author}")
    best = tm.Index[int](partition="all", row="{posts:desc}")


class Score(tm.Aggregate, of=Post, table="Scores"):
    score: tm.Field[Decimal] = tm.group_by(Post.scores.each())
    posts: tm.Field[int] = tm.count()

    key = tm.Key[Decimal](partition="all", row="{score}")


POSTS = [
    Post("ann", 1, ["a", "b", "a"], [Decimal("1.0"), Decimal("1.00"), Decimal(2)], 3),
    Post("ann", 2, ["b"], None, 5),
    Post("bob", 1, [], [], 7),
    Post("bob", 2, ["a", ""], [Decimal(1)], 9),
]


def tags(store: tm.Store) -> dict[tuple[str, str], tuple[Any, ...]]:
    return {(one.tag, one.author): (one.posts, one.likes, one.most) for one in store.query(Tag).allow_scan()}


def scores(store: tm.Store) -> dict[Decimal, int]:
    return {one.score: one.posts for one in store.query(Score)}


def test_an_entity_is_in_the_group_of_each_element_once() -> None:
    with sound_store(":memory:", models=[Post, Tag, Score]) as store:
        store.insert_many(POSTS)
        assert tags(store) == {
            ("a", "ann"): (1, 6, 3), ("b", "ann"): (2, 16, 5), ("a", "bob"): (1, 18, 9), ("", "bob"): (1, 18, 9),
        }  # fmt: skip
        assert scores(store) == {Decimal(1): 2, Decimal(2): 1}
        assert all(
            len(list(store.query(Post.by_tag(tag)))) == sum(v[0] for (t, _), v in tags(store).items() if t == tag)
            for tag in "ab"
        )
        store.merge(Post.key("ann", 1), tags=["b", "c"], scores=None)
        store.delete(Post.key("bob", 2))
        assert tags(store) == {("b", "ann"): (2, 16, 5), ("c", "ann"): (1, 6, 3)}
        assert scores(store) == {}


def test_no_total_is_answered_from_groups_of_elements() -> None:
    with tm.open(":memory:", models=[Post, Tag, Score]) as store:
        store.insert_many(POSTS)
        ann = store.query(Post).where(Post.author == "ann")
        assert (ann.count(), ann.sum(Post.likes * 2), ann.group_by(Post.author).count()) == (2, 16, {"ann": 2})
        assert ann.where(Post.tags.contains("a")).count() == 1
        assert not ann.explain().totals


def test_groups_of_elements_are_maintained_by_a_program_that_does_not_declare_them(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[Post]) as store:
        store.insert(POSTS[0])
    with tm.open(tmp_path / "s.db", models=[Post, Tag, Score]) as store:
        assert tags(store) == {("a", "ann"): (1, 6, 3), ("b", "ann"): (1, 6, 3)}
    with tm.open(tmp_path / "s.db", models=[Post]) as store:
        store.insert_many(POSTS[1:])
        store.delete(Post.key("ann", 1))
    with sound_store(tmp_path / "s.db", models=[Post, Tag, Score]) as store:
        assert tags(store) == {("b", "ann"): (1, 10, 5), ("a", "bob"): (1, 18, 9), ("", "bob"): (1, 18, 9)}
        assert scores(store) == {Decimal(1): 1}


def test_an_entity_is_in_a_thousand_groups_at_most() -> None:
    with tm.open(":memory:", models=[Post, Score]) as store:
        store.insert(Post("ann", 1, scores=[Decimal(n) for n in range(1000)]))
        with pytest.raises(tm.InvalidEntity, match="Score: 1001 elements"):
            store.insert(Post("ann", 2, scores=[Decimal(n) for n in range(1001)]))
        assert len(scores(store)) == 1000


def wrong(of: Any, kind: Any, measure: Any) -> Any:
    """Declare an aggregate with one measure."""
    shop = {"shop": (str, tm.group_by(of.shop))} if of is Sale else {}
    order = {"order": (str, tm.group_by(of.order))} if of is Line else {}
    members = {**shop, **order, "x": (kind, measure)}
    return aggregate("Wrong", of, members, tm.Key(partition=f"{{{next(iter(members))}}}"))


WRONG: list[tuple[Any, type[tm.TableMapperError], str]] = [
    (lambda: wrong(Sale, int, tm.count(name="2nd")), tm.InvalidModel, "2nd"),
    (lambda: wrong(Sale, int, tm.count(name=3)), tm.InvalidModel, "the name of a property is text"),  # type: ignore[arg-type]
    (lambda: wrong(Sale, int, tm.count(name="shop")), tm.InvalidModel, 'the property "shop" is that of shop already'),
    (lambda: wrong(Line, int, tm.sum(Line.price * Line.quantity)), tm.InvalidModel, "is Decimal, but the field is int"),
    (lambda: wrong(Line, float, tm.sum(Line.weight * 2)), tm.InvalidModel, r"make it Field\[float \| None\]"),
    (lambda: wrong(Line, int, tm.sum(Sale.amount * 2)), tm.InvalidModel, "Sale.amount is not a field of Line"),
    (lambda: wrong(Line, str, tm.group_by(Line.size * 2)), tm.InvalidModel, r"\(Line.size \* 2\) is calculated; group by a field"),
    (lambda: wrong(Line, datetime, tm.sum(Line.start + timedelta(1))), tm.InvalidModel, "have a sum"),
    (lambda: wrong(Post, int, tm.group_by(Post.tags.each())), tm.InvalidModel, "is str, but the field is int"),
    (lambda: wrong(Post, list[str], tm.group_by(Post.tags)), tm.InvalidModel, r"group by a scalar field, or by Post.tags.each\(\)"),
    (lambda: wrong(Post, int, tm.count(Post.tags.each())), tm.InvalidModel, "cannot be measured"),
    (lambda: wrong(Post, str, tm.group_by(Post.author.each())), tm.InvalidQuery, "expected a list of scalar values, got str"),
    (lambda: wrong(Post, str, tm.count(where=Post.tags.each() == "a")), tm.InvalidQuery, r"Post.tags.contains\("),
]  # fmt: skip


@pytest.mark.parametrize(("declare", "error", "fault"), WRONG)
def test_a_wrong_measure_is_named(declare: Any, error: type[Exception], fault: str) -> None:
    with pytest.raises(error, match=fault):
        declare()


def test_an_aggregate_groups_by_the_elements_of_one_list() -> None:
    members = {"tag": (str, tm.group_by(Post.tags.each())), "score": (Decimal, tm.group_by(Post.scores.each()))}
    with pytest.raises(tm.InvalidModel, match="tag and score are elements of lists"):
        aggregate("Wrong", Post, members, tm.Key[str, Decimal](partition="{tag}", row="{score}"))


def test_a_renamed_property_is_renamed_in_what_is_calculated_and_grouped_by() -> None:
    with tm.open(":memory:", models=[Post, Tag]):
        form = model_of(Tag).form
    aggregate = with_source(form, "Text", {"tags": "words", "likes": "hearts"}).aggregate
    assert aggregate.groups == {"tag": "words.each()", "author": "author"}
    assert aggregate.measures["likes"] == ("sum", ["*", "hearts", {"int": "2"}], None)
    assert aggregate.measures["most"][1] == "hearts"
