"""What a query visits, row by row: no more than its result, or what explain() says that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.sql import select

from ..classes import grouped
from ..touched import Touched


class Parcel(tm.Entity, table="Parcels"):
    depot: tm.Field[str]
    shelf: tm.Field[str]
    number: tm.Field[int]
    weight: tm.Field[int]
    sent: tm.Field[datetime]
    owner: tm.Field[str | None] = tm.field(default=None)
    note: tm.Field[str] = tm.field(default="")
    kind: tm.Field[str] = tm.field(default="box")
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, str, int](partition="{depot}", row=("{shelf}", "{number}"))
    by_owner = tm.Index[str, int](partition="{owner}", row="{weight}", include=("sent",))
    by_day = tm.Index[datetime](partition="{sent:%Y-%m-%d}", row="{sent}")
    by_kind = tm.Index[str](partition="{kind}")
    by_tag = tm.Index[str, int](partition="{tags}", row="{number}")


class Depot(tm.Entity, table="Parcels"):
    depot: tm.Field[str]
    note: tm.Field[str] = tm.field(default="")

    key = tm.Key[str](partition="{depot}", row="about")


Load = grouped("Load", Parcel, "depot", "Parcels", row="load", weight=tm.sum(Parcel.weight))


MODELS = [Parcel, Depot, Load]
START = datetime(2026, 3, 1, tzinfo=UTC)
ENTITIES, INDEX = "Parcels", "ParcelsByOwner"


@pytest.fixture(scope="module")
def store(counting: Touched, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tm.Store]:
    with tm.open(tmp_path_factory.mktemp("t") / "t.db", models=MODELS, durability="relaxed") as opened:
        opened.insert_many(
            Parcel(
                depot, shelf, n, n, START + timedelta(hours=n), "Ann" if n % 2 else "Bob", "",
                "bag" if n % 3 else "box", ["a", "b"][: n % 3],
            )
            for depot in "xyz"
            for shelf in "fgh"
            for n in range(100)
        )  # fmt: skip
        opened.insert_many(Depot(depot) for depot in "xyz")
        yield opened


@pytest.fixture
def parcels(store: tm.Store) -> tm.Query[Parcel]:
    return store.query(Parcel)


# ---------------------------------------------------------------------------------------------- by key


def test_a_point_is_one_row(store: tm.Store, parcels: tm.Query[Parcel], counting: Touched) -> None:
    one = parcels.where(Parcel.depot == "x", Parcel.shelf == "f", Parcel.number == 7)
    for run in (one.one, one.first, one.exists, one.count, lambda: list(one), lambda: store[Parcel.key("x", "f", 7)]):
        assert counting(run) == {ENTITIES: 1}


def test_a_point_that_is_missing_is_no_row(parcels: tm.Query[Parcel], counting: Touched) -> None:
    none = parcels.where(Parcel.depot == "x", Parcel.shelf == "f", Parcel.number == 700)
    assert counting(lambda: list(none)) == {}


def test_a_range_is_its_rows(parcels: tm.Query[Parcel], counting: Touched) -> None:
    some = parcels.where(Parcel.depot == "x", Parcel.shelf == "g", Parcel.number >= 10, Parcel.number < 40)
    assert counting(lambda: list(some)) == {ENTITIES: 30}
    assert counting(some.count) == {ENTITIES: 30}
    assert counting(lambda: list(some.order_by(Parcel.number.desc()))) == {ENTITIES: 30}


def test_several_ranges_are_the_rows_of_each(parcels: tm.Query[Parcel], counting: Touched) -> None:
    some = parcels.where(Parcel.depot.is_in(["x", "z", "?"]), Parcel.shelf == "g", Parcel.number < 20)
    assert counting(lambda: list(some)) == {ENTITIES: 40}
    assert counting(some.count) == {ENTITIES: 40}
    either = parcels.where(Parcel.depot == "x", (Parcel.shelf == "f") | (Parcel.shelf == "g") & (Parcel.number == 3))
    assert counting(lambda: list(either)) == {ENTITIES: 101}


def test_a_filter_is_asked_of_every_row_between_the_bounds(parcels: tm.Query[Parcel], counting: Touched) -> None:
    none = parcels.where(Parcel.depot == "x", Parcel.shelf == "g", Parcel.note == "no such note")
    assert counting(lambda: list(none)) == {ENTITIES: 100}


def test_a_sort_reads_what_it_sorts(parcels: tm.Query[Parcel], counting: Touched) -> None:
    heaviest = parcels.where(Parcel.depot == "x", Parcel.shelf == "g").order_by(Parcel.weight.desc()).limit(3)
    assert counting(lambda: list(heaviest)) == {ENTITIES: 100}
    assert counting(heaviest.exists) == {ENTITIES: 1}


def test_a_budget_counts_each_row_once_sorted_or_not_whether_it_matches_or_not(parcels: tm.Query[Parcel]) -> None:
    shelf = parcels.where(Parcel.depot == "x", Parcel.shelf == "g")
    for query in (shelf, shelf.order_by(Parcel.weight), shelf.where(Parcel.note == "no such note")):
        found = list(query)
        assert list(query.budget(examined=100)) == found
        assert query.budget(examined=100).page(1_000).items == found
        with pytest.raises(tm.QueryStopped, match=r"examined=99"):
            list(query.budget(examined=99))


def test_explain_counts_the_rows_of_other_classes_that_are_stepped_over(store: tm.Store, counting: Touched) -> None:
    for query in (
        store.query(Depot).where(Depot.depot >= "y"),
        store.query(Load).where(Load.depot >= "y", Load.weight > 0),
        store.query(Parcel).where(Parcel.depot == "x"),
        store.query(Depot).allow_scan(),
    ):
        for _ in range(2):  # whether a scan is to be warned of is looked up at the first, the second, the fourth …
            list(query)  # type: ignore[call-overload]
        assert query.explain().rows == counting(lambda query=query: list(query))[ENTITIES]  # type: ignore[misc]


# ---------------------------------------------------------------------------------------------- the first ones


def test_the_first_one_is_one_row(parcels: tm.Query[Parcel], counting: Touched) -> None:
    shelf = parcels.where(Parcel.depot == "x", Parcel.shelf == "g")
    for run in (shelf.first, shelf.exists, shelf.order_by(Parcel.number.desc()).first):
        assert counting(run) == {ENTITIES: 1}
    assert counting(shelf.limit(1).one) == {ENTITIES: 1}


def test_the_first_of_several_ranges_is_one_row(parcels: tm.Query[Parcel], counting: Touched) -> None:
    several = parcels.where(Parcel.depot.is_in(["x", "y", "z"]), Parcel.shelf == "g")
    for run in (several.first, several.exists):
        assert counting(run) == {ENTITIES: 1}


def test_a_limit_is_about_so_many_rows(parcels: tm.Query[Parcel], counting: Touched) -> None:
    shelf = parcels.where(Parcel.depot == "x", Parcel.shelf == "g")
    assert counting(lambda: list(shelf.limit(12))) == {ENTITIES: 12}
    merged = parcels.where(Parcel.depot.is_in(["x", "y"])).order_by(Parcel.shelf, Parcel.number).limit(12)
    assert counting(lambda: list(merged)) == {ENTITIES: 26}  # (so many of each, behind a row of the depot)


PAGED: dict[str, Callable[[tm.Query[Parcel]], tm.Query[Parcel]]] = {
    "a partition": lambda q: q.where(Parcel.depot == "x"),
    "rows of a partition": lambda q: q.where(Parcel.depot == "x", Parcel.shelf == "g"),
    "the rows up to one": lambda q: q.where(Parcel.depot == "x", Parcel.shelf == "g", Parcel.number < 90),
    "rows backwards": lambda q: q.where(Parcel.depot == "x", Parcel.shelf == "g", Parcel.number < 90).order_by(
        Parcel.number.desc()
    ),
    "several ranges": lambda q: q.where(Parcel.depot.is_in(["x", "y", "z"]), Parcel.shelf == "g"),
    "several ranges of a partition": lambda q: q.where(Parcel.depot == "x", Parcel.shelf.is_in(["f", "h"])),
    "several ranges of a partition backwards": lambda q: q.where(
        Parcel.depot == "x", Parcel.shelf.is_in(["f", "h"]), Parcel.number < 30
    ).order_by(Parcel.shelf.desc(), Parcel.number.desc()),
    "the whole table": lambda q: q.allow_scan(),
    "the whole table backwards": lambda q: q.allow_scan().order_by(
        Parcel.depot.desc(), Parcel.shelf.desc(), Parcel.number.desc()
    ),
    "a range of an index": lambda q: q.where(Parcel.owner == "Ann", Parcel.weight > 20),
    "a range of an index backwards": lambda q: q.where(Parcel.owner == "Ann", Parcel.weight > 20).order_by(
        Parcel.weight.desc()
    ),
    "one place in an index": lambda q: q.where(Parcel.kind == "bag"),
    "one place in an index backwards": lambda q: q.where(Parcel.kind == "bag").order_by(
        Parcel.depot.desc(), Parcel.shelf.desc(), Parcel.number.desc()
    ),
}


@pytest.mark.parametrize("ask", PAGED.values(), ids=PAGED)
def test_a_page_does_not_read_the_pages_before_it(
    parcels: tm.Query[Parcel], counting: Touched, ask: Callable[[tm.Query[Parcel]], tm.Query[Parcel]]
) -> None:
    query, token, found = ask(parcels), None, []
    whole = list(query)
    while len(found) < min(130, len(whole)):
        pages: list[tm.Page[Parcel]] = []
        visits = counting(lambda: pages.append(query.page(17, token)))
        # The page, the row that shows that there is a next one, and rows of the other classes of the table; where a
        # page goes on in another range, that one is asked for a whole page.
        assert max(visits.values()) <= (17 + 1) * len(counting.statements) + 6, visits
        assert len(counting.statements) <= 2
        found += pages[0].items
        token = pages[0].token
    assert found == whole[: len(found)]


def test_pages_side_by_side_read_a_page_of_each_partition(parcels: tm.Query[Parcel], counting: Touched) -> None:
    for query in (
        parcels.where(Parcel.depot.is_in(["x", "y", "z"])).order_by(Parcel.shelf, Parcel.number),
        parcels.where(Parcel.kind.is_in(["box", "bag"])).order_by(Parcel.depot, Parcel.shelf, Parcel.number),
    ):
        assert query.explain().plan.merged
        token, found = None, []
        for _ in range(5):
            pages: list[tm.Page[Parcel]] = []
            visits = counting(lambda: pages.append(query.page(17, token)))
            assert max(visits.values()) <= (17 + 1 + 3) * 3, visits
            found += pages[0].items
            token = pages[0].token
        assert found == list(query)[:85]


# ---------------------------------------------------------------------------------------------- by index


def test_an_index_is_read_with_as_many_entities(parcels: tm.Query[Parcel], counting: Touched) -> None:
    heavy = parcels.where(Parcel.owner == "Ann", Parcel.weight > 90)
    assert heavy.count() == 45
    assert counting(lambda: list(heavy)) == {INDEX: 45, ENTITIES: 45}
    assert counting(heavy.first) == {INDEX: 1, ENTITIES: 1}
    assert counting(lambda: list(heavy.limit(5))) == {INDEX: 5, ENTITIES: 5}


def test_an_index_that_holds_all_is_read_alone(parcels: tm.Query[Parcel], counting: Touched) -> None:
    heavy = parcels.where(Parcel.owner == "Ann", Parcel.weight > 90)
    rows = heavy.select(Parcel.number, Parcel.weight, Parcel.sent)
    for run in (lambda: list(rows), heavy.count, rows.count):
        assert counting(run) == {INDEX: 45}
        assert counting.opened == {INDEX}
    for run in (heavy.exists, rows.first):
        assert counting(run) == {INDEX: 1}
        assert counting.opened == {INDEX}


def test_what_the_index_does_not_hold_is_read_of_the_entities(parcels: tm.Query[Parcel], counting: Touched) -> None:
    rows = parcels.where(Parcel.owner == "Ann", Parcel.weight > 90).select(Parcel.number, Parcel.note)
    assert counting(lambda: list(rows)) == {INDEX: 45, ENTITIES: 45}
    assert ENTITIES in counting.opened


def test_a_day_is_one_range_of_its_index(parcels: tm.Query[Parcel], counting: Touched) -> None:
    days = parcels.where(Parcel.sent >= START + timedelta(days=1), Parcel.sent < START + timedelta(days=2, hours=6))
    assert counting(days.count) == {"ParcelsByDay": 30 * 9}
    assert len(counting.statements) == 2


def test_an_element_of_a_list_is_one_range_of_its_index(parcels: tm.Query[Parcel], counting: Touched) -> None:
    tagged = parcels.where(Parcel.tags.contains("b"), Parcel.number < 10)
    assert counting(lambda: list(tagged)) == {"ParcelsByTag": 27, ENTITIES: 27}


# ---------------------------------------------------------------------------------------------- several classes


def test_several_classes_are_read_where_they_stand(store: tm.Store, counting: Touched) -> None:
    both = store.query(Depot, Load).where(Depot.depot == "x")
    assert counting(lambda: list(both)) == {ENTITIES: 2}
    assert counting(both.count) == {ENTITIES: 2}
    assert counting(both.exists) == {ENTITIES: 1}
    every = store.query(Parcel, Depot).where(Parcel.depot == "x", Parcel.shelf == "g")
    assert counting(lambda: list(every)) == {ENTITIES: 100}  # a depot has no shelf, so it is not looked for
    assert counting(every.backwards().limit(7).count) == {ENTITIES: 100}
    assert counting(lambda: list(every.backwards().limit(7))) == {ENTITIES: 7}


def test_a_page_of_several_classes_does_not_read_the_pages_before_it(store: tm.Store, counting: Touched) -> None:
    query = store.query(Parcel, Depot, Load).where(Parcel.depot.is_in(["x", "y"]))
    token = query.page(280).token
    assert token is not None
    assert counting(lambda: query.page(10, token))[ENTITIES] <= 12 + 2 * 2  # (the one depot and load of x, and of y)


def test_a_partition_is_read_once(store: tm.Store, counting: Touched) -> None:
    assert counting(lambda: list(store.partition(Parcel.depot == "x"))) == {ENTITIES: 302}


def test_many_rows_are_begun_twice_only_where_the_query_met_few_before(
    parcels: tm.Query[Parcel], counting: Touched
) -> None:
    def above(number: int) -> tm.Query[Parcel]:
        return parcels.where(Parcel.depot == "x", Parcel.shelf >= "a", Parcel.number > number, Parcel.weight >= 0)

    assert len(list(above(10_000))) == 0
    whole = len(list(above(-1)))
    assert whole > 257
    assert counting(lambda: list(above(-1)))[ENTITIES] <= 302
    list(above(10_000))
    assert counting(lambda: list(above(-1)))[ENTITIES] <= 302 + 258


# ---------------------------------------------------------------------------------------------- the test of the test


def test_a_bound_that_is_lost_is_seen(
    parcels: tm.Query[Parcel], counting: Touched, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = select.bounds_sql

    def partitions_only(one: select.KeyRange, at: str) -> tuple[str, list[object]]:
        sql, args = real(one, at)
        return sql.split(" AND ")[0], args[:1]

    monkeypatch.setattr(select, "bounds_sql", partitions_only)
    some = parcels.where(Parcel.depot == "x", Parcel.shelf == "g", Parcel.number >= 11, Parcel.number < 23)
    assert counting(lambda: list(some))[ENTITIES] >= 302
