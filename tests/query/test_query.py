"""Queries: every plan gives what a plain filter gives, in order, by page and as a whole."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.engines.protocol import Engine
from tablemapper.engines.sqlite.driver.snapshots import Snapshot
from tablemapper.engines.sqlite.file.database import File
from tablemapper.execution.prepared import PlanCache, PreparedPlan
from tablemapper.expressions.tree import Attr
from tablemapper.planning.planner import candidates
from tablemapper.planning.query_spec import QuerySpec, query_form
from tablemapper.query.query import Query

from ..classes import Other, entity
from ..conftest import examples

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")


class Unit(tm.Entity, table="Units"):
    city: tm.Field[str]
    building: tm.Field[str]
    number: tm.Field[int]
    owner: tm.Field[str | None] = tm.field(default=None)
    rent: tm.Field[Decimal | None] = tm.field(default=None)
    size: tm.Field[float] = tm.field(default=1.0)
    built: tm.Field[datetime] = tm.field(default=datetime(2020, 1, 1, tzinfo=UTC))
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, str, int](partition="{city}", row=("{building}", "{number}"))
    by_owner = tm.Index[str, Decimal](partition="{owner}", row="{rent}")
    by_size = tm.Index[str, float](partition="{city}", row="{size:desc}")
    by_day = tm.Index[datetime](partition="{built:%Y-%m-%d}", row="{built}")
    by_tag = tm.Index[str, int](partition="{tags}", row="{number}")
    large = tm.Index[str, float](partition="{city}", row="{size}", where=lambda u: u.size > 2)
    folded = tm.Index[str](partition="{owner:fold}")
    spread = tm.Index[int](partition="{number:shard(3)}", row="{number}")


CITIES = ["x", "y", ""]
BUILDINGS = ["f34", "f340", "f3", "f35", "a/b", "a.b"]
OWNERS = [None, "Ann", "ann", "Bob", ""]
RENTS = [None, Decimal("1.0"), Decimal("1.00"), Decimal(-2), Decimal(10)]
SIZES = [1.0, 2.5, 3.0, -1.0]
TIMES = [datetime(2020, 1, day, hour, tzinfo=UTC) for day in (1, 2, 3) for hour in (0, 12)]

UNITS = st.builds(
    Unit,
    st.sampled_from(CITIES), st.sampled_from(BUILDINGS), st.integers(-2, 3), st.sampled_from(OWNERS),
    st.sampled_from(RENTS), st.sampled_from(SIZES), st.sampled_from(TIMES),
    st.lists(st.sampled_from(["a", "b"]), max_size=2),
)  # fmt: skip

Test = tuple[Any, Callable[[Unit], bool]]


def comparisons(name: str, values: list[Any], *, ordered: bool = True) -> st.SearchStrategy[Test]:
    attr = getattr(Unit, name)

    def get(unit: Unit) -> Any:
        return getattr(unit, name)

    def compare(op: str, value: Any) -> Test:
        run: dict[str, Callable[[Any], bool]] = {
            "==": lambda v: v == value, "!=": lambda v: v != value, "<": lambda v: v < value, "<=": lambda v: v <= value,
            ">": lambda v: v > value, ">=": lambda v: v >= value,
        }  # fmt: skip
        made = attr._compare(op, value)
        return made, lambda unit: get(unit) is not None and run[op](get(unit))

    present = [value for value in values if value is not None]
    ops = ["==", "==", "==", "!=", *(["<", "<=", ">", ">="] if ordered else [])]
    plain = st.builds(compare, st.sampled_from(ops), st.sampled_from(present))
    among = st.lists(st.sampled_from(present), max_size=3).map(
        lambda some: (attr.is_in(some), lambda unit: get(unit) in some)
    )
    null = st.just((attr.is_null(), lambda unit: get(unit) is None))
    return st.one_of(plain, plain, among, null) if None in values else st.one_of(plain, plain, among)


CITY = st.sampled_from(CITIES).map(lambda v: (Unit.city == v, lambda u: u.city == v))
BUILDING = comparisons("building", BUILDINGS)
OWNER = comparisons("owner", OWNERS)
RENT = comparisons("rent", RENTS)
NUMBER = comparisons("number", [-2, -1, 0, 1, 3])
STARTS = st.sampled_from(["f", "f34", "a", ""]).map(
    lambda t: (Unit.building.startswith(t), lambda u: u.building.startswith(t))
)
LARGE = st.just((Unit.size > 2, lambda u: u.size > 2))
TAGGED = st.just((Unit.tags.contains("a") | Unit.tags.contains("b"), lambda u: bool(u.tags)))
DAYS = st.tuples(st.sampled_from(TIMES), st.sampled_from(TIMES)).map(
    lambda t: ((Unit.built >= t[0]) & (Unit.built < t[1]), lambda u: t[0] <= u.built < t[1])
)
EITHER = st.tuples(st.sampled_from(BUILDINGS), st.sampled_from(BUILDINGS)).map(
    lambda t: ((Unit.building < t[0]) | (Unit.building >= t[1]), lambda u: u.building < t[0] or u.building >= t[1])
)
LEAVES: st.SearchStrategy[Test] = st.one_of(
    CITY, comparisons("city", CITIES), BUILDING, NUMBER, OWNER, RENT, STARTS, LARGE, TAGGED, DAYS, EITHER,
    comparisons("size", SIZES), comparisons("built", TIMES),
    st.sampled_from(["a", "b", "c"]).map(lambda t: (Unit.tags.contains(t), lambda u: t in u.tags)),
    st.sampled_from(["n", ""]).map(lambda t: (Unit.owner.contains(t), lambda u: u.owner is not None and t in u.owner)),
    st.just((Unit.size == Unit.number, lambda u: u.size == u.number)),
)  # fmt: skip


def combined(leaves: st.SearchStrategy[Test]) -> st.SearchStrategy[Test]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(lambda t: (~t[0], lambda u: not t[1](u))),
            st.tuples(inner, inner).map(lambda p: (p[0][0] & p[1][0], lambda u: p[0][1](u) and p[1][1](u))),
            st.tuples(inner, inner).map(lambda p: (p[0][0] | p[1][0], lambda u: p[0][1](u) or p[1][1](u))),
        ),
        max_leaves=3,
    )


ORDERS = st.lists(
    st.tuples(st.sampled_from(["city", "building", "number", "owner", "rent", "size", "built"]), st.booleans()),
    max_size=2,
    unique_by=lambda step: step[0],
)
FEW = examples(50, long=400)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tm.Store]:
    with tm.open(tmp_path_factory.mktemp("q") / "q.db", models=[Unit], durability="relaxed") as opened:
        yield opened


@pytest.fixture
def other(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[tm.Store]:
    """The same file, opened once more; loops over queries of both read one row at a time."""
    for owner in (File, Snapshot):
        real = owner.stream
        monkeypatch.setattr(owner, "stream", lambda self, sql, args=(), real=real: real(self, sql, args, 1))
    path = store._engine.file.path  # type: ignore[attr-defined]
    with tm.open(path, models=[Unit], durability="relaxed") as opened:
        yield opened


class ImpossiblePath(Exception):
    """A path that gives no plan of a query."""


class Forced(PlanCache):
    """Answers with the plan of one path, if that gives one."""

    def __init__(self, engine: Engine, path: str) -> None:
        super().__init__(engine)
        self.path = path
        self.made: dict[Any, PreparedPlan] = {}

    def prepared(
        self, asked: QuerySpec, wanted: tuple[Attr[Any, Any], ...] | None, *, state: bool = False, by_time: bool = True
    ) -> tuple[PreparedPlan, list[Any]]:
        if not self.path.startswith(f"{asked.model.name}."):  # an aggregate that answers
            return super().prepared(asked, wanted, state=state, by_time=by_time)
        form, values = asked.parts()
        if asked.model.declaration.expiry is not None:
            values.append(asked.moment or self.moment())
        key = form, wanted, by_time
        if key not in self.made:
            lacking = self.engine.missing_fields(asked.model, eventual=asked.eventual)
            plans, _ = candidates(query_form(asked, wanted, by_time=by_time, missing_fields=lacking))
            plan = next((plan for plan in plans if str(plan.path) == self.path), None)
            if plan is None:
                raise ImpossiblePath(self.path)
            self.made[key] = PreparedPlan(self.engine, plan, wanted, filtering=asked.budget is None)
        return self.made[key], values


def forced(query: Query[Any]) -> Iterator[Query[Any]]:
    """Yield the query with each of its plans, chosen or not."""
    plans, _ = candidates(query_form(query._spec, query._wanted))
    for plan in plans:
        yield Query(Forced(query._plans.engine, str(plan.path)), query._spec)


def place(unit: Unit) -> tuple[str, str, int]:
    return unit.city, unit.building, unit.number


def sort(units: list[Unit], order: list[tuple[str, bool]]) -> list[tuple[Any, ...]]:
    """Return the values that an order compares, in that order."""
    rows = [tuple(getattr(unit, name) for name, _ in order) for unit in units]
    for at, (_, descending) in reversed(list(enumerate(order))):
        rows.sort(key=lambda row: (row[at] is not None, row[at]), reverse=descending)
    return rows


EVERY_PLAN = given(units=st.lists(UNITS, max_size=25), tests=st.lists(combined(LEAVES), max_size=3), order=ORDERS)


@FEW
@EVERY_PLAN
def test_every_plan_gives_what_a_filter_gives(
    store: tm.Store, units: list[Unit], tests: list[Test], order: list[tuple[str, bool]]
) -> None:
    store.delete_many(store.query(Unit).allow_scan())
    store.upsert_many(units)
    held = {place(unit): unit for unit in units}
    wanted = [unit for unit in held.values() if all(test(unit) for _, test in tests)]
    steps = [getattr(Unit, name).desc() if descending else getattr(Unit, name).asc() for name, descending in order]
    query = store.query(Unit).where(*(predicate for predicate, _ in tests)).order_by(*steps).allow_scan()
    for one in forced(query):
        explained = one.explain()
        found = list(one)
        assert sorted(map(place, found)) == sorted(map(place, wanted)), explained
        assert [tuple(getattr(unit, name) for name, _ in order) for unit in found] == sort(wanted, order), explained
        assert one.count() == len(wanted), explained
        paged = [unit for page in islice(one.pages(3), 20) for unit in page.items]
        assert list(map(place, paged)) == list(map(place, found)), explained
        assert list(map(place, one.budget(examined=1000, timeout=60))) == list(map(place, found)), explained
        spending = [unit for page in islice(one.budget(examined=1000).pages(7), 20) for unit in page.items]
        assert list(map(place, spending)) == list(map(place, found)), explained
        rows = one.select(Unit.owner, Unit.number, Unit.city, Unit.rent, Unit.building)
        tuples = [(unit.owner, unit.number, unit.city, unit.rent, unit.building) for unit in found]
        assert sorted(map(repr, rows)) == sorted(map(repr, tuples)), explained
        if explained.sort or not rows.explain().covering:
            assert list(map(repr, rows)) == list(map(repr, tuples)), explained


SIDE_BY_SIDE = given(
    units=st.lists(UNITS, max_size=25), cities=st.lists(st.sampled_from(CITIES), min_size=2), descending=st.booleans()
)


@pytest.mark.needs("backward")
@FEW
@SIDE_BY_SIDE
def test_partitions_side_by_side_come_in_one_order(
    store: tm.Store, units: list[Unit], cities: list[str], descending: bool
) -> None:
    store.delete_many(store.query(Unit).allow_scan())
    store.upsert_many(units)
    wanted = sorted({(unit.building, unit.number) for unit in units if unit.city in cities}, reverse=descending)
    steps = [step.desc() if descending else step.asc() for step in (Unit.building, Unit.number)]
    query = store.query(Unit).where(Unit.city.is_in(cities)).order_by(*steps)
    assert query.explain().sort == ()
    whole = list(query)
    assert list(dict.fromkeys((unit.building, unit.number) for unit in whole)) == wanted
    assert len(whole) == len({place(unit) for unit in units if unit.city in cities})
    assert [place(unit) for page in islice(query.pages(2), 20) for unit in page.items] == list(map(place, whole))


@pytest.mark.needs("backward")
@FEW
@given(units=st.lists(UNITS, min_size=1, max_size=25))
def test_the_opposite_order_gives_the_rows_reversed(store: tm.Store, units: list[Unit]) -> None:
    store.delete_many(store.query(Unit).allow_scan())
    store.upsert_many(units)
    rows = store.query(Unit).where(Unit.city == units[0].city)
    forwards = list(map(place, rows.order_by(Unit.building, Unit.number)))
    assert list(map(place, rows.order_by(Unit.building.desc(), Unit.number.desc()))) == forwards[::-1]
    assert list(map(place, rows)) == forwards


@pytest.mark.file
@given(
    units=st.lists(UNITS, min_size=4, max_size=12),
    later=st.lists(UNITS, min_size=1, max_size=6),
    tests=st.lists(combined(LEAVES), max_size=2),
    order=ORDERS,
    seen=st.integers(0, 4),
)
def test_a_plan_that_is_read_while_another_store_writes_gives_one_state(
    store: tm.Store,
    other: tm.Store,
    units: list[Unit],
    later: list[Unit],
    tests: list[Test],
    order: list[tuple[str, bool]],
    seen: int,
) -> None:
    store.delete_many(store.query(Unit).allow_scan())
    store.upsert_many(units)
    steps = [getattr(Unit, name).desc() if descending else getattr(Unit, name).asc() for name, descending in order]
    query = store.query(Unit).where(*(predicate for predicate, _ in tests)).order_by(*steps).allow_scan()
    for one in forced(query):
        before = list(map(repr, one))
        reading = iter(one)
        found = list(map(repr, islice(reading, seen)))
        other.delete_many(list(other.query(Unit).allow_scan())[::2])
        other.upsert_many(later)
        found += map(repr, reading)
        assert found in (before, list(map(repr, one))), one.explain()
        store.delete_many(store.query(Unit).allow_scan())
        store.upsert_many(units)


# ---------------------------------------------------------------------------------------------- one by one


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[tm.Store]:
    with tm.open(tmp_path / "f.db", models=[Unit], durability="relaxed") as opened:
        opened.insert_many(
            Unit("x", building, number, owner="Ann" if number % 2 else None, rent=Decimal(number), size=number / 2)
            for building in BUILDINGS
            for number in range(20)
        )
        yield opened


def test_a_comparison_of_a_component_stays_with_the_component(filled: tm.Store) -> None:
    above = filled.query(Unit).where(Unit.city == "x", Unit.building > "f34", Unit.building <= "f340")
    assert {unit.building for unit in above} == {"f340"}
    assert above.explain().filter == ()


def test_a_condition_behind_an_unbound_component_is_a_filter(filled: tm.Store) -> None:
    query = filled.query(Unit).where(Unit.city == "x", Unit.number == 3)
    assert query.count() == len(BUILDINGS)
    by_key = next(one for one in forced(query) if one.explain().path == "Unit.key")
    assert by_key.explain().filter == ("number == 3",)
    assert list(map(place, by_key)) == sorted(map(place, query))


def test_a_sparse_index_serves_only_what_is_surely_in_it(filled: tm.Store) -> None:
    query = filled.query(Unit).where(Unit.owner == "Ann")
    assert query.explain().path == "Unit.folded"  # by_owner lacks what has no rent
    query = query.where(Unit.rent >= Decimal(3))
    assert query.explain().path == "Unit.by_owner"


class Task(tm.Entity, table="Tasks"):
    user: tm.Field[str]
    number: tm.Field[int]
    done: tm.Field[bool] = tm.field(default=False)

    key = tm.Key[str, int](partition="{user}", row="{number}")
    open_ones = tm.Index[str](partition="{user}", where=lambda task: task.done == False)  # noqa: E712


class Device(tm.Entity, table="Devices"):
    name: tm.Field[str]
    kind: tm.Field[str]
    gone: tm.Field[bool] = tm.field(default=False)

    key = tm.Key[str](partition="{name}")
    by_kind = tm.Index[str](partition="{kind}")
    here = tm.Index[str](partition="{name}", where=lambda device: device.gone == False)  # noqa: E712


@pytest.mark.needs("near_joins", "estimates")
def test_a_partial_index_comes_before_the_whole_partition() -> None:
    with tm.open(":memory:", models=[Task]) as store:
        store.insert_many(Task("ann", n, n > 2) for n in range(100))
        query = store.query(Task).where(Task.user == "ann", Task.done == False)  # noqa: E712
        assert (query.explain().path, query.explain().rows, query.explain().filter) == ("Task.open_ones", 3, ())
        why = "Task.key: bounds as many fields as Task.open_ones, which holds only entities that satisfy its condition"
        assert why in query.explain().reasons
        assert sorted(task.number for task in query) == [0, 1, 2]
        assert query.order_by(Task.number).explain().path == "Task.open_ones"
        assert query.where(Task.number > 3).explain().path == "Task.key"
        assert store.query(Task).where(Task.user == "ann").explain().path == "Task.key"


@pytest.mark.parametrize("condition", [Device.kind == "x", Device.gone == False])  # noqa: E712
def test_a_whole_key_comes_before_every_index(condition: Any) -> None:
    with tm.open(":memory:", models=[Device]) as store:
        assert store.query(Device).where(Device.name == "a", condition).explain().path == "Device.key"


def test_a_partial_index_serves_only_what_implies_it(filled: tm.Store) -> None:
    reasons = filled.query(Unit).where(Unit.city == "x", Unit.size > 3).explain().reasons
    assert any("Unit.large: it holds only some entities" in why for why in reasons)
    whole = filled.query(Unit).where(Unit.city == "x", Unit.size > 2).select(Unit.size)
    assert whole.explain().path in ("Unit.by_size", "Unit.large")


@pytest.mark.file
def test_a_query_through_a_covering_bound_touches_its_range_only(filled: tm.Store) -> None:
    explained = filled.query(Unit).where(Unit.city == "x", Unit.building == "f34", Unit.number < 5).explain()
    assert "PartitionKey=? AND RowKey>? AND RowKey<?" in explained.database[0]


@pytest.mark.file
def test_a_point_query_is_a_point(filled: tm.Store) -> None:
    query = filled.query(Unit).where(Unit.city == "x", Unit.building == "f34", Unit.number == 5)
    assert "PartitionKey=? AND RowKey=?" in query.explain().database[0]
    assert query.one().number == 5


def test_what_nothing_bounds_is_refused_with_a_declaration_that_would_serve_it(filled: tm.Store) -> None:
    with pytest.raises(tm.ScanRefused) as refused:
        filled.query(Unit).where(Unit.rent == Decimal(3)).first()
    assert 'by_rent = tm.Index[Decimal](partition="{rent}")' in str(refused.value)


@pytest.mark.parametrize(
    "where",
    [
        lambda c: [c.rent == Decimal(3)], lambda c: [c.rent > Decimal(3)],
        lambda c: [c.rent.between(Decimal(3), Decimal(4)), c.size == 2.0],
        lambda c: [c.owner == "Ann", c.rent == Decimal(3), c.number > 2], lambda c: [c.tags.contains("a")],
        lambda c: [c.tags.contains("a"), c.size > 1.0], lambda c: [c.owner.is_in(["Ann", "Bob"])],
        lambda c: [c.owner.startswith("A")], lambda c: [c.number == 3],
        lambda c: [c.built >= TIMES[0], c.built < TIMES[2]],
    ],
)  # fmt: skip
def test_the_declaration_that_a_refused_scan_names_serves_the_query(where: Callable[[Any], list[Any]]) -> None:
    source = """
class Bare(tm.Entity, table="Bare"):
    city: tm.Field[str]
    number: tm.Field[int]
    owner: tm.Field[str | None] = tm.field(default=None)
    rent: tm.Field[Decimal | None] = tm.field(default=None)
    size: tm.Field[float] = tm.field(default=1.0)
    built: tm.Field[datetime] = tm.field(default=datetime(2020, 1, 1, tzinfo=UTC))
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{city}", row="{number}")
"""
    scope = {"tm": tm, "Decimal": Decimal, "datetime": datetime, "UTC": UTC, "__name__": __name__}
    exec(source, scope)
    bare: Any = scope["Bare"]
    with tm.open(":memory:", models=[bare]) as store, pytest.raises(tm.ScanRefused) as refused:
        store.query(bare).where(*where(bare)).first()
    line = next(line for line in str(refused.value).splitlines() if "tm.Index" in line)
    exec(source + line, scope)
    served: Any = scope["Bare"]
    with tm.open(":memory:", models=[served]) as store:
        query = store.query(served).where(*where(served))
        assert query.explain().path == "Bare." + line.split()[0]
        assert query.first() is None


@pytest.mark.needs("near_joins")
def test_an_index_by_another_field_comes_before_a_whole_partition(filled: tm.Store) -> None:
    query = filled.query(Unit).where(Unit.city == "x", Unit.owner == "Ann")
    assert query.explain().path == "Unit.folded"
    assert "Unit.key: bounds as many fields as Unit.folded, but only to whole partitions" in query.explain().reasons
    assert filled.query(Unit).where(Unit.city == "x").explain().path == "Unit.key"
    assert filled.query(Unit).where(Unit.city == "x", Unit.building == "f3").explain().path == "Unit.key"


class Log(tm.Entity, table="Logs"):
    device: tm.Field[str]
    at: tm.Field[datetime]

    key = tm.Key[str, datetime](partition=("{device}", "{at:%Y-%m-%d}"), row="{at}")


@pytest.mark.needs("backward")
def test_ranges_over_partitions_are_merged_behind_what_each_of_them_begins_with() -> None:
    with tm.open(":memory:", models=[Log]) as store:
        store.insert_many(Log(device, time) for device in ("a", "b") for time in TIMES)
        query = store.query(Log).where(Log.device.is_in(["a", "b"])).order_by(Log.at.desc())
        assert query.explain().sort == ()
        assert "side by side, merged in the order of what follows device in their keys" in str(query.explain())
        assert [log.at for log in query] == sorted([*TIMES, *TIMES], reverse=True)
        days = query.where(Log.at >= TIMES[0], Log.at <= TIMES[-1])
        assert days.explain().sort == ()
        assert not any("TEMP B-TREE" in line for line in days.explain().database)
        assert [log.at for log in days] == sorted([*TIMES, *TIMES], reverse=True)


@pytest.mark.parametrize("ask", [bool, lambda query: query or 1, lambda query: not query.select(Unit.city)])
def test_a_query_has_no_truth(filled: tm.Store, ask: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match=r"write query\.exists\(\)"):
        ask(filled.query(Unit).where(Unit.city == "x"))
    with pytest.raises(TypeError, match=r"write query\.exists\(\)"):
        bool(filled.query(Unit).where(Unit.city == "x").select(Unit.city))


@pytest.mark.parametrize("compare", [lambda c: c > 3, lambda c: c == 3, lambda c: c != 3, lambda c: c >= 3])
def test_what_is_calculated_is_not_compared(compare: Callable[[Any], object]) -> None:
    with pytest.raises(tm.InvalidQuery, match="compare the field itself"):
        compare(Unit.number * 2)


def test_an_allowed_scan_is_logged(
    filled: tm.Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablemapper.execution.prepared._MANY", 1)
    with caplog.at_level(logging.WARNING, logger="tablemapper.query"):
        filled.query(Unit).where(Unit.rent == Decimal(3)).allow_scan().first()
    assert "reads the whole table" in caplog.text


def test_a_loop_reads_one_state_while_others_write(filled: tm.Store) -> None:
    seen = 0
    for unit in filled.query(Unit).where(Unit.city == "x"):
        filled.delete(unit)
        seen += 1
    assert seen == 20 * len(BUILDINGS)
    assert not filled.query(Unit).where(Unit.city == "x").exists()


def test_a_page_neither_skips_nor_repeats_what_stands_still(filled: tm.Store) -> None:
    query = filled.query(Unit).where(Unit.city == "x")
    first = query.page(50)
    filled.delete(first.items[0])
    filled.insert(Unit("x", "aaa", 1))
    second = query.page(1000, first.token)
    assert len(first.items) + len(second.items) == 20 * len(BUILDINGS)
    assert second.token is None


def test_a_token_survives_a_restart_and_is_refused_elsewhere(filled: tm.Store, tmp_path: Path) -> None:
    token = filled.query(Unit).where(Unit.city == "x").page(5).token
    filled.close()
    with tm.open(tmp_path / "f.db", models=[Unit]) as again:
        query = again.query(Unit).where(Unit.city == "x")
        assert len(query.page(5, token).items) == 5
        for wrong in (query.where(Unit.number > 1), again.query(Unit).where(Unit.city == "y"), query.limit(7)):
            with pytest.raises(tm.InvalidToken):
                wrong.page(5, token)
        assert token is not None
        for tampered in ("", "x", token[:-1], token[:-2] + "AA", "é", token + "x"):
            with pytest.raises(tm.InvalidToken):
                query.page(5, tampered)
    with tm.open(tmp_path / "g.db", models=[Unit]) as other, pytest.raises(tm.InvalidToken):
        other.query(Unit).where(Unit.city == "x").page(5, token)


class Note(tm.Entity, table="Notes"):
    topic: tm.Field[str]
    number: tm.Field[int]
    text: tm.Field[str] = tm.field(default="")

    key = tm.Key[str, int](partition="{topic}", row="{number}")
    by_number = tm.Index[int](partition="{number}")


def test_large_values_are_read_by_a_form_of_query_that_met_small_ones_only(tmp_path: Path) -> None:
    with tm.open(tmp_path / "n.db", models=[Note], durability="relaxed") as store:
        query = store.query(Note).where(Note.topic == "a")
        held = [Note("a", number, "small") for number in range(3)]
        store.insert_many(held)
        for large in (0, 2):
            for _ in range(3):
                assert list(query) == held
                assert query.first() == held[0]
                assert query.where(Note.number > 0).first() == held[1]
                assert list(store.query(Note.by_number(2))) == held[2:3]
                assert [store.get(Note.key("a", number)) for number in (0, 1, 2, 0, 3)] == [*held, held[0], None]
                assert store.get_many([Note.key("a", number) for number in (2, 1, 0)]) == held[::-1]
            held[large].text = "large " * 1000
            store.replace(held[large])
        held += [Note("a", number, "large " * (number % 7 * 50)) for number in range(3, 700)]
        store.insert_many(held[3:])
        for count in (300, 700, 256, 257, 2):
            for _ in range(3):
                assert list(query.where(Note.number < count)) == held[:count]


@pytest.mark.parametrize(
    ("ask", "part"),
    [
        (lambda q: q.where(True), "condition"), (lambda q: q.where(Other.name == "x"), "Other.name"),
        (lambda q: q.order_by(Other.name), "Other.name"), (lambda q: q.order_by("city"), "expected a field"),
        (lambda q: q.order_by(Unit.tags), "no order"), (lambda q: q.limit(-1), "-1"), (lambda q: q.limit(1.5), "1.5"),
        (lambda q: q.page(0), "page"), (lambda q: q.where(Unit.number == "x"), "int"),
        (lambda q: q.where(Unit.built > datetime(2020, 1, 1)), "time zone"),
        (lambda q: q.where(Unit.tags > ["a"]), "no order"), (lambda q: q.where(Unit.number.startswith("1")), "text"),
        (lambda q: q.where(Unit.owner.is_in("Ann")), "list"), (lambda q: q.where(Unit.rent > None), "is_null"),
        (lambda q: q.select(), "at least one field"),
    ],
)  # fmt: skip
def test_a_query_that_means_nothing_is_one_clear_error(
    filled: tm.Store, ask: Callable[[Query[Unit]], object], part: str
) -> None:
    with pytest.raises(tm.InvalidQuery, match=part):
        ask(filled.query(Unit))


@pytest.mark.parametrize(
    "ask", [lambda: Unit.size > 1 and Unit.size < 2, lambda: not Unit.size, lambda: 1 < Unit.size < 2]
)
def test_a_predicate_has_no_truth(ask: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="& | ~"):
        ask()


def test_a_span_of_days_is_read_day_by_day(filled: tm.Store) -> None:
    start = TIMES[0]
    query = filled.query(Unit).where(Unit.built >= start, Unit.built < start + timedelta(days=2))
    assert query.explain().path == "Unit.by_day"
    assert len(query.explain().ranges) == 2
    assert query.count() == 20 * len(BUILDINGS)


@pytest.mark.needs("backward")
def test_explain_is_text_and_json(filled: tm.Store) -> None:
    explained = filled.query(Unit).where(Unit.city == "x").order_by(Unit.building.desc()).explain()
    assert str(explained).startswith("reads Unit.key, backwards")
    assert explained.to_dict()["path"] == "Unit.key"
    assert json.loads(explained.to_json()) == explained.to_dict()


class Sale(tm.Entity, table="Sales"):
    at: tm.Field[datetime]
    price: tm.Field[Decimal]
    number: tm.Field[int]

    key = tm.Key[datetime, Decimal, int](partition="{at:%Y-%m-%d}", row=("{price}", "{number}"))


@pytest.mark.parametrize("days", [10, 3_000])
def test_the_first_of_more_days_than_are_read_one_by_one_satisfies_all(days: int) -> None:
    """Many of them are planned again, and then prices are looked at row by row."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    with tm.open(":memory:", models=[Sale]) as store:
        query = store.query(Sale).where(
            Sale.at >= start, Sale.at < start + timedelta(days=days), Sale.price >= Decimal(5)
        )
        store.insert(Sale(start, Decimal("4.99999999999999999999999"), 1))
        assert query.allow_scan().first() is None
        assert not query.allow_scan().exists()
        store.insert(Sale(start + timedelta(days=1), Decimal("5"), 2))
        assert query.allow_scan().one().number == 2
        assert query.allow_scan().first() == query.allow_scan().one()


@pytest.mark.needs("sorts")
@pytest.mark.parametrize(
    "name", ["a\\b", "a\\", "\\u0041", "\0", "a\0b", "\n", "a'b", "a.b", "", " ", "[0]", "é", "\u2028", "😀", "$"]
)
def test_an_entry_of_a_dict_is_found_whatever_its_key_holds(name: str) -> None:
    Box = entity("Box", "Boxes", {"number": int, "sizes": dict[str, int]}, tm.Key[int](partition="{number}"))
    with tm.open(":memory:", models=[Box]) as store:
        store.insert_many([Box(0, {}), Box(1, {name: 5}), Box(2, {name: 7, "A": 1}), Box(3, {"A": 5})])
        query = store.query(Box).allow_scan()
        size = Box.sizes[name]
        assert {one.number for one in query.where(size == 5)} == {1}
        assert {one.number for one in query.where(size > 5)} == {2}
        assert {one.number for one in query.where(size.is_null())} == {0, 3}
        assert [one.number for one in query.order_by(size.desc())][:2] == [2, 1]
