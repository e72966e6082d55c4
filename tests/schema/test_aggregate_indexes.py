"""Indexes on aggregates: the best shops, kept as the entities' own indexes are."""

from __future__ import annotations

import random
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.schema.maintenance import ChangeSet, Maintenance

from ..classes import grouped
from ..sql import run_sql
from ..stores import sound_store


class Sale(tm.Entity, table="Sales"):
    shop: tm.Field[str]
    n: tm.Field[int]
    amount: tm.Field[int | None] = tm.field(default=None)
    price: tm.Field[Decimal | None] = tm.field(default=None)
    weight: tm.Field[float | None] = tm.field(default=None)
    note: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{shop}", row="{n}")


class Total(tm.Aggregate, of=Sale, table="Totals"):
    shop: tm.Field[str] = tm.group_by(Sale.shop)
    sales: tm.Field[int] = tm.count()
    total: tm.Field[int | None] = tm.sum(Sale.amount)
    mean: tm.Field[float | None] = tm.avg(Sale.amount)
    turnover: tm.Field[Decimal | None] = tm.sum(Sale.price)
    heaviest: tm.Field[float | None] = tm.max(Sale.weight)
    note: tm.Field[str | None] = tm.min(Sale.note)

    key = tm.Key[str](partition="{shop}")
    best = tm.Index[int](partition="all", row="{total:desc}", include=("sales", "mean"))
    by_turnover = tm.Index[Decimal](partition="{turnover}", include="all")
    by_weight = tm.Index[float](partition="all", row="{heaviest}")
    busy = tm.Index[int](partition="all", row="{sales}", where=lambda t: t.sales > 2)
    by_note = tm.Index[str, int](partition="{note}", row="{sales}")


class Ever(tm.Aggregate, of=Sale, table="Evers"):
    shop: tm.Field[str] = tm.group_by(Sale.shop)
    sales: tm.Field[int] = tm.count()
    total: tm.Field[int] = tm.sum(Sale.n)
    most: tm.Field[int | None] = tm.max_ever(Sale.n)

    key = tm.Key[str](partition="{shop}")
    by_total = tm.Index[int, int](partition="{sales}", row="{total}")
    by_sales = tm.Index[int](partition="all", row="{sales}", include=("most",))


class Rank(tm.Aggregate, of=Sale, table="Ranks"):
    shop: tm.Field[str] = tm.group_by(Sale.shop)
    total: tm.Field[int | None] = tm.sum(Sale.amount)

    key = tm.Key[str](partition="{shop}")
    by_total = tm.Index[int](partition="all", row="{total}", unique=True)


MODELS = [Sale, Total, Ever]


def agree(store: tm.Store) -> None:
    """Compare every index with its groups, by queries and by the tables themselves."""
    totals = list(store.query(Total).allow_scan())
    evers = list(store.query(Ever).allow_scan())

    def ranked(groups: list[Any], *fields: str, descending: bool = False) -> list[Any]:
        """Return the groups that have a value of the last field, by those fields and then by shop."""
        held = sorted((one for one in groups if getattr(one, fields[-1]) is not None), key=attrgetter("shop"))
        return sorted(held, key=attrgetter(*fields), reverse=descending)

    for cls, index, wanted in (
        (Total, Total.best(), ranked(totals, "total", descending=True)),
        (Total, Total.by_weight(), ranked(totals, "heaviest")),
        (Total, Total.busy(), ranked([one for one in totals if one.sales > 2], "sales")),
        (Ever, Ever.by_sales(), ranked(evers, "sales")),
        (Ever, Ever.by_total(), ranked(evers, "sales", "total")),
    ):
        assert list(store.query(index)) == wanted, index  # type: ignore[arg-type]
        assert store.query(index).count() == len(wanted)  # type: ignore[arg-type]
        assert cls is index.entity
    for turnover in {t.turnover for t in totals if t.turnover is not None}:
        found = list(store.query(Total.by_turnover(turnover)))
        assert found == sorted([t for t in totals if t.turnover == turnover], key=lambda t: t.shop)
        covered = store.query(Total.by_turnover(turnover)).select(Total.turnover, Total.total, Total.note)
        assert list(map(repr, covered)) == [repr((t.turnover, t.total, t.note)) for t in found]
    assert list(store.query(Total.best()).select(Total.shop, Total.sales, Total.mean, Total.total)) == [
        (t.shop, t.sales, t.mean, t.total) for t in store.query(Total.best())
    ]
    report = store.check()
    assert report.ok, report


def test_an_index_on_an_aggregate_follows_its_groups() -> None:
    with tm.open(":memory:", models=MODELS) as store:
        store.insert(Sale("Oslo", 1, 10))
        assert [t.shop for t in store.query(Total.best())] == ["Oslo"]
        store.insert(Sale("Rome", 1, 20))
        assert [t.shop for t in store.query(Total.best())] == ["Rome", "Oslo"]
        store.merge(Sale.key("Oslo", 1), amount=30)
        assert [t.shop for t in store.query(Total.best())] == ["Oslo", "Rome"]
        store.delete(Sale.key("Oslo", 1))
        assert [t.shop for t in store.query(Total.best())] == ["Rome"]
        agree(store)


def test_totals_are_answered_through_an_index_on_groups() -> None:
    with tm.open(":memory:", models=MODELS) as store:
        store.insert_many(Sale(shop, n, n * 10) for shop, n in [("Oslo", 1), ("Oslo", 2), ("Rome", 1), ("Bern", 7)])
        assert store.query(Total).where(Total.total >= 30).count() == 2
        assert store.query(Total).where(Total.total > 30).sum(Total.sales) == 1
        query = store.query(Sale).allow_scan().allow_eventual()
        assert (query.count(), query.sum(Sale.amount), query.max(Sale.weight)) == (4, 110, None)
        assert query.explain().totals["sum(amount)"] == "Total"
        assert query.group_by(Sale.shop).sum(Sale.amount) == {"Bern": 70, "Oslo": 30, "Rome": 10}


def test_a_covering_query_reads_the_index_alone() -> None:
    with tm.open(":memory:", models=MODELS) as store:
        store.insert_many(Sale("Oslo", n, n) for n in range(1, 4))
        query = store.query(Total.best()).select(Total.total, Total.sales, Total.mean).allow_eventual()
        assert "which holds all needed fields" in str(query.explain())
        assert list(query) == [(6, 3, 2.0)]


def test_only_the_projection_changes() -> None:
    with tm.open(":memory:", models=MODELS) as store:
        store.insert(Sale("Oslo", 1, 10))
        store.insert(Sale("Oslo", 2, 0))
        assert list(store.query(Total.best()).select(Total.total, Total.sales, Total.mean)) == [(10, 2, 5.0)]
        store.insert(Sale("Oslo", 3))
        assert list(store.query(Total.best()).select(Total.total, Total.sales, Total.mean)) == [(10, 3, 5.0)]
        agree(store)


def test_a_group_without_the_value_has_no_row() -> None:
    with tm.open(":memory:", models=MODELS) as store:
        store.insert(Sale("Oslo", 1))
        assert list(store.query(Total.best())) == []
        store.merge(Sale.key("Oslo", 1), amount=1)
        assert len(list(store.query(Total.best()))) == 1
        store.merge(Sale.key("Oslo", 1), amount=None)
        assert list(store.query(Total.best())) == []
        agree(store)


def test_a_group_that_stays_when_it_is_empty_stays_in_the_index() -> None:
    with tm.open(":memory:", models=MODELS) as store:
        store.insert(Sale("Oslo", 5))
        store.delete(Sale.key("Oslo", 5))
        assert list(store.query(Ever.by_sales(0)).select(Ever.shop, Ever.most)) == [("Oslo", 5)]
        assert [e.total for e in store.query(Ever.by_total())] == [0]  # a sum that is never None
        assert [e.shop for e in store.query(Ever).where(Ever.sales == 0)] == ["Oslo"]
        agree(store)


@pytest.mark.needs("across_partitions")
@pytest.mark.parametrize("seed", range(8))
def test_an_index_on_groups_agrees_with_them_after_any_changes(seed: int) -> None:
    draw = random.Random(seed)
    held: dict[tuple[str, int], Sale] = {}

    def sale(key: tuple[str, int]) -> Sale:
        return Sale(
            *key, draw.choice([None, 0, 1, -1, 2**63 - 1, -(2**63)]),
            draw.choice([None, Decimal("1.10"), Decimal("1.1"), Decimal(-3), Decimal("1E+5")]),
            draw.choice([None, 0.1, 0.2, -1e300, 1e300, float("inf")]), draw.choice([None, "x", "X", "a/b"]),
        )  # fmt: skip

    with tm.open(":memory:", models=MODELS) as store:
        for step in range(40):
            with store.transaction(across_partitions=True) as tx:
                for key in {(draw.choice("abc"), draw.randrange(4)) for _ in range(draw.randint(1, 5))}:
                    if key not in held:
                        held[key] = sale(key)
                        tx.insert(held[key])
                    elif draw.random() < 0.4:
                        tx.delete(held.pop(key))
                    else:
                        new = sale(key)
                        held[key] = new
                        tx.replace(new, if_match="*")
            if step % 8 == 0:
                agree(store)
        agree(store)


WIDE = [2**63 - 1, 2**63 - 1, 5]


def test_a_sum_beyond_64_bits_has_its_place_in_order() -> None:
    with tm.open(":memory:", models=MODELS) as store:
        for shop, amounts in {"big": WIDE, "small": [-n for n in WIDE], "some": [7]}.items():
            store.insert_many(Sale(shop, n, amount) for n, amount in enumerate(amounts))
        assert [t.shop for t in store.query(Total.best())] == ["big", "some", "small"]
        wanted = [("big", 2**64 + 3), ("some", 7), ("small", -(2**64) - 3)]
        assert list(store.query(Total.best()).select(Total.shop, Total.total)) == wanted
        assert [t.shop for t in store.query(Total).where(Total.total > 2**63 - 1)] == ["big"]
        store.delete(Sale.key("big", 0))
        assert store[Total.key("big")].total == 2**63 + 4
        agree(store)


# ---------------------------------------------------------------------------------------------- unique


def ranks(store: tm.Store) -> list[tuple[str, int | None]]:
    return sorted((r.shop, r.total) for r in store.query(Rank).allow_scan())


@pytest.mark.needs("unique_group_indexes")
def test_a_unique_index_refuses_a_second_holder() -> None:
    with sound_store(":memory:", models=[Sale, Rank]) as store:
        store.insert(Sale("Oslo", 1, 10))
        with pytest.raises(tm.UniqueViolation, match=r"Rank\.by_total") as caught:
            store.insert(Sale("Rome", 1, 10))
        assert (caught.value.index, caught.value.key, caught.value.holder) == ("by_total", ("Rome", ""), ("Oslo", ""))
        assert store.get(Sale.key("Rome", 1)) is None
        assert ranks(store) == [("Oslo", 10)]
        store.insert(Sale("Rome", 1, 11))
        with pytest.raises(tm.UniqueViolation):
            store.merge(Sale.key("Rome", 1), amount=10)
        assert ranks(store) == [("Oslo", 10), ("Rome", 11)]


@pytest.mark.needs("across_partitions", "unique_group_indexes")
def test_two_groups_can_swap_a_unique_value_in_one_transaction() -> None:
    with sound_store(":memory:", models=[Sale, Rank]) as store:
        store.insert_many([Sale("Oslo", 1, 1), Sale("Rome", 1, 2)])
        with store.transaction(across_partitions=True) as tx:
            tx.merge(Sale.key("Oslo", 1), amount=2)
            tx.merge(Sale.key("Rome", 1), amount=1)
        assert ranks(store) == [("Oslo", 2), ("Rome", 1)]
        assert [r.shop for r in store.query(Rank.by_total())] == ["Rome", "Oslo"]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablemapper.engines.sqlite.rows.atomic_load._CHUNK", 3)
    monkeypatch.setattr("tablemapper.engines.sqlite.online.apply_schema._AT_ONCE", -1)
    monkeypatch.setattr("tablemapper.store.builds.FIRST", 3)


@pytest.mark.needs("all_or_none_load", when=lambda atomic: atomic)
@pytest.mark.needs("unique_group_indexes")
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("atomic", [False, True])
def test_a_load_is_judged_by_what_the_groups_are_in_the_end(atomic: bool) -> None:
    sales = [Sale(shop, n, amount) for n, amount in enumerate([1, 1, 1, 1]) for shop in ("Oslo", "Rome")]
    with sound_store(":memory:", models=[Sale, Rank]) as store:
        store.insert(Sale("Bern", 1, 8))
        store.insert(Sale("Rome", 9, 1))  # as Oslo will have had it meanwhile
        assert store.insert_many([*sales, Sale("Bern", 2, -1)], atomic=atomic) == 9
        assert ranks(store) == [("Bern", 7), ("Oslo", 4), ("Rome", 5)]
        assert [r.shop for r in store.query(Rank.by_total())] == ["Oslo", "Rome", "Bern"]
        assert store.check().ok
        with pytest.raises(tm.UniqueViolation, match=r"Rank\.by_total"):
            store.insert_many([Sale("Nice", n, 1) for n in range(7)], atomic=atomic)
        assert store.get(Sale.key("Nice", 0)) is None


@pytest.mark.needs("all_or_none_load", when=lambda atomic: atomic)
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("atomic", [False, True])
def test_a_load_keeps_every_index(atomic: bool) -> None:
    draw = random.Random(3)
    sales = [
        Sale(draw.choice("abcdefgh"), n, draw.choice([None, 1, 2]), draw.choice([None, Decimal(2)]), 0.5, "x")
        for n in range(60)
    ]
    with tm.open(":memory:", models=MODELS) as store:
        store.insert_many(sales[:20])
        store.insert_many(sales[20:], atomic=atomic)
        agree(store)


# ---------------------------------------------------------------------------------------------- over data


Plain = grouped("Plain", Sale, "shop", "Ranks", total=(int | None, tm.sum(Sale.amount)))


Plain.__name__ = "Rank"


@pytest.mark.needs("unique_group_indexes")
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("before", [[Sale], [Sale, Plain]], ids=["with its aggregate", "on an aggregate that is there"])
def test_an_index_on_groups_is_built_over_data(tmp_path: Path, before: list[Any]) -> None:
    with tm.open(tmp_path / "x.db", models=before) as store:
        store.insert_many(Sale(shop, n, 1) for n in range(7) for shop in "abcdefg"[n:])
    with sound_store(tmp_path / "x.db", models=[Rank, Sale]) as store:
        assert [(r.shop, r.total) for r in store.query(Rank.by_total())] == list(
            zip("abcdefg", range(1, 8), strict=True)
        )


@pytest.mark.needs("unique_group_indexes")
def test_two_groups_that_hold_a_unique_value_are_told_when_it_is_built(tmp_path: Path) -> None:
    with tm.open(tmp_path / "x.db", models=[Sale]) as store:
        store.insert_many([Sale("Oslo", 1, 1), Sale("Rome", 1, 1)])
    with pytest.raises(tm.UniqueViolation, match=r"Rank\.by_total"):
        tm.open(tmp_path / "x.db", models=[Sale, Rank])
    with tm.open(tmp_path / "x.db", models=[Sale]) as store:
        assert store.check().ok


# ---------------------------------------------------------------------------------------------- the check


@pytest.mark.file
@pytest.mark.parametrize(
    ("sql", "kind", "where"),
    [
        ("DELETE FROM TotalsBest WHERE _pk = 'Oslo'", "missing", "Total.best"),
        ("INSERT INTO TotalsBest VALUES('all', 'b77', 'Oslo', '', 1, 1.0)", "dangling", "Total.best"),
        ("INSERT INTO TotalsBest VALUES('all', 'b77', 'gone', '', 1, 1.0)", "dangling", "Total.best"),
        ("UPDATE TotalsBest SET sales = 9", "wrong", "Total.best"),
        ("UPDATE TotalsBest SET RowKey = 'b77'", "dangling", "Total.best"),
        ("UPDATE Totals SET total = 'x'", "damaged", "Total"),
    ],
)
def test_the_check_finds(tmp_path: Path, sql: str, kind: str, where: str) -> None:
    with tm.open(tmp_path / "x.db", models=MODELS) as store:
        store.insert(Sale("Oslo", 1, 10))
        assert store.check().index_rows == 3
    run_sql(tmp_path / "x.db", sql)
    with tm.open(tmp_path / "x.db", models=MODELS) as store:
        problems = store.check().problems
    assert (kind, where) in [(problem.kind, problem.where) for problem in problems], problems


@pytest.mark.file
@pytest.mark.parametrize("verb", ["removed", "changed", "added"])
def test_the_check_finds_what_was_not_maintained(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(ChangeSet, verb)

    def skip_groups(self: ChangeSet, kept: Maintenance, rows: Any) -> None:
        if not any(index.owner.aggregate for index in kept.indexes):
            real(self, kept, rows)

    with tm.open(":memory:", models=MODELS) as store:
        store.insert_many([Sale("Oslo", 1, 10), Sale("Rome", 1, 10)])
        monkeypatch.setattr(ChangeSet, verb, skip_groups)
        store.delete(Sale.key("Oslo", 1))
        store.merge(Sale.key("Rome", 1), amount=20)
        store.insert(Sale("Bern", 1, 30))
        kinds = {problem.kind for problem in store.check().problems if problem.where == "Total.best"}
    assert kinds == {"removed": {"dangling"}, "changed": {"dangling", "missing"}, "added": {"missing"}}[verb]


@pytest.mark.file
def test_an_index_row_that_is_missing_is_told_when_its_group_changes(tmp_path: Path) -> None:
    with tm.open(tmp_path / "x.db", models=MODELS) as store:
        store.insert(Sale("Oslo", 1, 10))
    run_sql(tmp_path / "x.db", "DELETE FROM TotalsBest")
    with tm.open(tmp_path / "x.db", models=MODELS) as store, pytest.raises(tm.CorruptStore, match=r"Total\.best"):
        store.delete(Sale.key("Oslo", 1))


@pytest.mark.needs("unique_group_indexes")
def test_its_rows_count_against_azures_limit() -> None:
    with tm.open(":memory:", models=[Sale, Rank], limits="azure") as store:
        with store.transaction() as tx:
            for n in range(97):
                tx.insert(Sale("Oslo", n, 1))  # with the group and its index row
        with pytest.raises(tm.InvalidTransaction, match="3 rows of indexes and aggregates"), store.transaction() as tx:
            for n in range(97, 195):
                tx.insert(Sale("Oslo", n, 1))  # the index row moves
        assert ranks(store) == [("Oslo", 97)]


@pytest.mark.needs("one_commit")  # (else the entity is there, and its group is not shown)
def test_an_index_key_that_would_be_too_long_refuses_the_entity() -> None:
    with tm.open(":memory:", models=MODELS) as store:
        with pytest.raises(tm.InvalidEntity, match=r"Total\.by_note: its partition key"):
            store.insert(Sale("Oslo", 1, note="x" * 600))
        assert store.get(Sale.key("Oslo", 1)) is None
        assert store.get(Total.key("Oslo")) is None
