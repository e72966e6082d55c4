"""Rows of other programs in the tables of a store: nobody's, wherever entities are read, written, counted and built."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.service import EntityPage, GroupTransaction, QueryEntities, RowChange
from tablemapper.progress import start_meter
from tablemapper.schema.model import compile_schema
from tests.whole.models import compiled

from .memory import Memory
from .place import AzurePlace


class Visit(tm.Entity, table="Visits"):
    site: tm.Field[str]
    number: tm.Field[int]
    page: tm.Field[str] = tm.field(default="front")
    code: tm.Field[str | None] = tm.field(default=None)
    size: tm.Field[int] = tm.field(default=1)

    key = tm.Key[str, int](partition="{site}", row="{number:05d}")
    by_page = tm.Index[str, int](partition="{page}", row="{number}")
    by_code = tm.Index[str](partition="{code}", unique=True)
    by_size = tm.Index[str, int](partition="{site}", row="{size}")


class Site(tm.Aggregate, of=Visit, table="Sites"):
    site: tm.Field[str] = tm.group_by(Visit.site)
    visits: tm.Field[int] = tm.count()
    most: tm.Field[int | None] = tm.max(Visit.size)

    key = tm.Key[str](partition="{site}")
    by_visits = tm.Index[int](partition="all", row="{visits}")


class Reading(tm.Entity, table="Readings"):
    sensor: tm.Field[str]
    at: tm.Field[datetime]
    value: tm.Field[float] = tm.field(default=0.0)

    key = tm.Key[str, datetime](partition="{sensor}-{at:%Y-%m}", row="{at}")


MODELS = [Visit, Site, Reading]


def newer() -> list[Any]:
    """Return classes with an index and an aggregate that are built over what is there."""

    class Visit(tm.Entity, table="Visits"):
        site: tm.Field[str]
        number: tm.Field[int]
        page: tm.Field[str] = tm.field(default="front")
        code: tm.Field[str | None] = tm.field(default=None)
        size: tm.Field[int] = tm.field(default=1)

        key = tm.Key[str, int](partition="{site}", row="{number:05d}")
        by_both = tm.Index[int, str](partition="{size}", row="{site}")

    class Page(tm.Aggregate, of=Visit, table="Pages"):
        page: tm.Field[str] = tm.group_by(Visit.page)
        visits: tm.Field[int] = tm.count()

        key = tm.Key[str](partition="{page}")

    return [Visit, Page]


NOBODYS = [
    ("Visits", "a", "1"),
    ("Visits", "a", "000003"),
    ("Visits", "a", "settings"),
    ("Visits", "b", ""),
    ("Visits", "a ", "00001"),  # (a partition key that would be escaped)
    ("Visits", "a", ' "o123'), ("Visits", "a", ' "vxyz'), ("Visits", "a", ' "y'),
    ("Visits", "a", ' "w?'.replace("?", "q")), ("Visits", "a", ' "xVisit.by_size !b10  !zz'), ("Sites", "a", "x"),
    ("Sites", "lonely", ""), ("Sites", "a", ' "v0'), ("Sites", "a", ' "yq'), ("SitesByVisits", "all", "b10  x"),
    ("VisitsByPage", "front", "a1"), ("VisitsByPage", "front", "a1  a  00001"), ("VisitsByCode", "x", ""),
    ("Readings", "s-2024-01", "2024-02-01T00:00:00.000000Z"), ("Readings", "s-2024-01", "2024-01-01T00:00:00Z"),
    ("Readings", "s-2024-02", "2024-02-30T00:00:00.000000Z"),
]  # fmt: skip


class World:
    """A store whose tables hold rows of another program."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory or Memory()
        self.store = tm.Store(AzurePlace(memory=self.memory).open(compile_schema(MODELS)))
        self.store.insert_many([Visit("a", number, code=f"c{number}", size=number) for number in (1, 2, 3)])
        self.store.insert(Reading("s", datetime(2024, 1, 1, tzinfo=UTC)))
        self.bodies = dict[tuple[str, str, str], Any]()

    def put(self, table: str, partition: str, row: str, **members: Any) -> None:
        self.memory.send(GroupTransaction(table, partition, (RowChange("upsert", row, members),)))
        self.bodies[table, partition, row] = self.memory.tables[table][partition, row]

    def invade(self) -> None:
        for place in NOBODYS:
            self.put(*place, size="many", visits=7, state=3)

    def untouched(self) -> bool:
        tables = self.memory.tables
        return all(tables[table].get((partition, row)) is body for (table, partition, row), body in self.bodies.items())

    def answers(self) -> list[Any]:
        """Return what each verb that reads says of the store."""
        store = self.store
        visits = store.query(Visit)
        return [
            sorted(one.number for one in visits.allow_scan()),
            [one.number for one in visits.where(Visit.site == "a")],
            [one.number for one in visits.where(Visit.site == "a", Visit.number.between(0, 9)).order_by(Visit.number)],
            [one.number for one in visits.where(Visit.page == "front").order_by(Visit.number)],
            [one.number for one in visits.where(Visit.site == "a").order_by(Visit.size)],
            [one.number for one in store.query(Visit.by_code("c2"))],
            list(visits.where(Visit.site == "a").select(Visit.number)), visits.allow_scan().count(),
            visits.where(Visit.site == "a").exists(), visits.where(Visit.site == "b").exists(),
            visits.allow_scan().sum(Visit.size), len(visits.where(Visit.site == "a").page(2).items),
            sorted((one.site, one.visits, one.most) for one in store.query(Site).allow_scan()),
            list(store.query(Site).allow_scan().select(Site.site, Site.visits)),
            [one.site for one in store.query(Site.by_visits(3))], store.get(Site.key("lonely")),
            store.group(Site.key("a")).visits, [one.at for one in store.query(Reading).allow_scan()],
            [one.at for one in store.query(Reading).where(Reading.sensor == "s", Reading.at >= datetime(2024, 1, 1, tzinfo=UTC), Reading.at < datetime(2024, 3, 9, tzinfo=UTC))],
            store.get_many([Visit.key("a", 1), tm.KeyOf(Visit, "a", "1")])[1],
            [one.key for one in store.partitions(Visit)],
        ]  # fmt: skip


def test_no_read_gives_a_row_that_is_nobodys() -> None:
    world = World()
    before = world.answers()
    world.invade()
    assert world.answers() == before
    named = [one for one in world.store.partition(Visit.site == "a") if isinstance(one, tm.UnknownRow)]
    assert {one.row for one in named} == {"1", "000003", "settings"}
    assert len([one for one in world.store.partition(Visit.site == "a") if isinstance(one, Visit)]) == 3
    assert world.untouched()


WRITES: dict[str, Callable[[tm.Store], Any]] = {
    "update": lambda store: store.query(Visit).allow_scan().update(page="/new"),
    "delete": lambda store: store.query(Visit).allow_scan().delete(),
    "clear": lambda store: store.clear(Visit),
    "sweep": lambda store: store.sweep(full=True),
    "merge and delete": lambda store: (store.merge(Visit.key("a", 2), size=9), store.delete(Visit.key("a", 3))),
    "repair": lambda store: store.repair(),
}


@pytest.mark.parametrize("verb", WRITES)
def test_no_write_touches_a_row_that_is_nobodys(verb: str) -> None:
    world, other = World(), World()
    world.invade()
    WRITES[verb](world.store)
    WRITES[verb](other.store)
    assert world.answers() == other.answers()
    assert world.untouched()


def test_a_copy_and_a_build_leave_out_what_is_nobodys() -> None:
    world = World()
    world.invade()
    copied = tm.Store(AzurePlace(memory=Memory()).open(compile_schema(MODELS)))
    tm.copy(world.store, copied)
    assert copied.check().ok
    assert copied.query(Visit).allow_scan().count() == 3

    world.store.close()
    models = newer()
    store = tm.open(AzurePlace(memory=world.memory), models=models)
    assert [one.number for one in store.query(models[0].by_both(2, "a"))] == [2]
    assert store.group(models[1].key("front")).visits == 3
    assert world.untouched()


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("1", r"\('a', '1'\) is no key of Visit: its fields make \('a', '00001'\)"),
        ("x", r"\('a', 'x'\) is no key of Visit"),
    ],
)
def test_a_key_that_fields_do_not_make_is_no_key(row: str, text: str) -> None:
    world = World()
    world.invade()
    store, key = world.store, tm.KeyOf(Visit, "a", row)
    assert store.get(key) is None
    assert not store.exists(key)
    with pytest.raises(tm.EntityNotFound):
        store.update(key, lambda one: one.replace(page="/x"))
    writes: list[Callable[[], Any]] = [
        lambda: store.merge(key, page="/x"),
        lambda: store.delete(key),
    ]
    for write in writes:
        with pytest.raises(tm.InvalidEntity, match=text):
            write()
    with pytest.raises(tm.InvalidEntity, match="move: the new key"):
        store.move(store[Visit.key("a", 1)], key)
    assert world.untouched()


class Disordered(Memory):
    """A service of dicts that turns its pages round, or gives some rows twice."""

    twice = False

    def send(self, request: Any, *wait: float) -> Any:
        answer = super().send(request, *wait)
        if isinstance(request, QueryEntities) and request.table == "Visits" and answer.after is None and self.twice:
            return EntityPage(answer.entities, (answer.entities[0]["PartitionKey"], ""), answer.date)
        return answer


def test_a_page_that_does_not_go_on_behind_the_last_one_ends_the_query() -> None:
    memory = Disordered()
    world = World(memory)
    memory.twice = True
    reads: list[Callable[[], Any]] = [
        lambda: list(world.store.query(Visit).allow_scan()),
        lambda: list(world.store.partition(Visit.site == "a")),
        lambda: world.store.check(),
    ]
    for read in reads:
        with pytest.raises(tm.StoreError, match="another order than that of their keys.* not Azure Table storage"):
            read()


@pytest.mark.parametrize("declared", ["Int32", "Double", "Int64"])
def test_an_integer_of_another_width_is_the_number_if_it_fits(declared: str) -> None:
    kind: Any = {"Int32": tm.Int32, "Int64": int, "Double": float}[declared]

    class Thing(tm.Entity, table="Things"):
        id: tm.Field[str]
        size: tm.Field[kind]
        key = tm.Key[str](partition="{id}")

    memory = Memory()
    store = tm.Store(AzurePlace(memory=memory).open(compile_schema([Thing])))

    def put(row: str, value: Any, edm: str) -> None:
        body = {"size": value, "size@odata.type": f"Edm.{edm}"}
        memory.send(GroupTransaction("Things", row, (RowChange("upsert", "", body),)))

    put("a", 5, "Int32")
    put("b", "5", "Int64")
    for query in (Thing.size == 5, Thing.size > 4, Thing.size < 5.5 if kind is float else Thing.size <= 5):
        assert [one.id for one in store.query(Thing).where(query).allow_scan()] == ["a", "b"]
    assert all(isinstance(one.size, float if kind is float else int) for one in store.query(Thing).allow_scan())
    if declared == "Int32":
        put("c", str(2**31), "Int64")
        with pytest.raises(tm.CorruptStore, match="size.*2147483648"):
            store.get(Thing.key("c"))
        assert [one.kind for one in store.check().problems] == ["damaged"]
        store.merge(Thing.key("c"), size=7)
        assert store[Thing.key("c")].size == 7


# ---------------------------------------------------------------------------------------------- check, repair


def test_a_check_names_rows_that_are_nobodys_and_finds_nothing_wrong() -> None:
    world = World()
    world.invade()
    report = world.store.check()
    assert report.ok, str(report)
    assert report.foreign == (
        "Visits: 10 rows that no class claims, as ('a', ' \"o123')",
        "Sites: 4 rows that no class claims, as ('a', ' \"v0')",
        "Readings: 3 rows that no class claims, as ('s-2024-01', '2024-01-01T00:00:00Z')",
        "VisitsByPage: 2 rows that no class claims, as ('front', 'a1')",
        "VisitsByCode: 1 row that no class claims, as ('x', '')",
        "SitesByVisits: 1 row that no class claims, as ('all', 'b10  x')",
    )
    assert all(f"foreign: {line}" in str(report) for line in report.foreign)
    assert world.store.repair().ok
    assert world.untouched()


def test_a_row_that_cannot_be_read_is_named_and_ends_nothing() -> None:
    world = World()
    world.put("Visits", "a", "00009", page="back", size="many")
    world.put("Visits", "a", "00010", page="back", _tm_op="x", _tm_ix="{")
    world.put("Visits", "a", ' "o77', state="C", c0="{")
    world.put("VisitsByPage", "front", "a1  a  00001  0", _pk=7, _rk="00001")
    world.put("Sites", "z", "", _tm_state="!")
    world.store.merge(Visit.key("a", 1), page="other")
    report = world.store.check()
    kinds = {(one.kind, one.where, one.key) for one in report.problems}
    assert kinds == {
        ("uncounted", "Visit", ("a", "00009")),
        ("damaged", "Visit", ("a", "00009")),
        ("damaged", "Visit", ("a", "00010")),
        ("damaged", "Visits", ("a", ' "o77')),
        ("damaged", "Visit.by_page", ("front", "a1  a  00001  0")),
        ("damaged", "Site", ("z", "")),
    }
    assert report.entities == 5
    left = world.store.repair()
    assert {one.kind for one in left.remaining} == {"damaged"}
    assert not any("backup" in one.detail for one in left.remaining)
    assert "store.merge(key, …)" in str(left)
    assert world.store.group(Site.key("a")).visits == 3  # (the aggregate reads its size)
    assert list(world.store.query(Visit).where(Visit.page == "back").select(Visit.number)) == [(9,)]


def test_what_is_built_anew_is_emptied_of_its_own_rows_alone() -> None:
    world = World()
    world.invade()
    engine: Any = world.store._engine
    engine._build_anew(["Visit.by_page", "Visit.by_size", "Site"], start_meter(False, "").__enter__())
    assert world.untouched()
    assert world.answers() == World().answers()
    assert world.store.check().ok


def test_a_sweep_by_another_program_passes_by_what_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.invade()
    world.memory.ahead += 10_000
    with tm.Store(AzurePlace(memory=world.memory).open(compile_schema(MODELS))) as other:
        other.sweep(full=True)
        assert other.check().ok
    assert not caplog.records
    assert world.untouched()


def test_a_group_whose_key_another_program_has_taken_waits_for_it_to_go(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.put("Sites", "new", "", visits=7)
    world.store.insert(Visit("new", 1))
    assert "a row of another program has the key of the group; delete it" in caplog.text
    engine: Any = world.store._engine
    (aggregate,) = engine._classes.outer_aggregates
    with pytest.raises(tm.CorruptStore, match="another program"):
        engine.widen(aggregate, {("new", ""): aggregate.aggregate.zero()})
    assert not world.store.repair().ok
    assert world.store.get(Site.key("new")) is None
    assert world.untouched()
    world.memory.send(GroupTransaction("Sites", "new", (RowChange("delete", "", {}, "*"),)))
    world.memory.ahead += 10_000
    assert world.store.sweep() == 1
    assert world.store.group(Site.key("new")).visits == 1
    world.memory.ahead += 10_000
    world.store.sweep()
    assert world.store.check().ok


def test_a_unique_value_whose_key_another_program_has_taken_is_refused() -> None:
    world = World()
    world.put("VisitsByCode", "zz", "", visits=7)
    with pytest.raises(
        tm.CorruptStore, match=r"VisitsByCode \('zz', ''\): a row of another program has the key of this value"
    ):
        world.store.insert(Visit("a", 9, code="zz"))
    assert world.store.get(Visit.key("a", 9)) is None
    assert world.untouched()
    world.memory.send(GroupTransaction("VisitsByCode", "zz", (RowChange("delete", "", {}, "*"),)))
    world.store.insert(Visit("a", 9, code="zz"))
    assert [one.number for one in world.store.query(Visit.by_code("zz"))] == [9]


VERSION = """
import enum
import tablemapper as tm

Kind = enum.Enum("Kind", {members})


class Product(tm.Entity, table="Products"):
    shop: tm.Field[str]
    kind: tm.Field[Kind]

    key = tm.Key[str, Kind](partition="{{shop}}", row="{{kind}}")
"""


def test_a_key_with_a_value_that_only_a_newer_version_knows_is_no_row_of_another_program() -> None:
    old, new = (
        compiled(VERSION.format(members={one.upper(): one for one in each})) for each in (["toy"], ["toy", "game"])
    )
    memory, shop = Memory(), old["Product"].shop == "s"
    with (
        tm.open(AzurePlace(memory=memory), models=[old["Product"]]) as running,
        tm.open(AzurePlace(memory=memory), models=[new["Product"]]) as newer,
    ):
        newer.insert_many([new["Product"]("s", one) for one in new["Kind"]])
        running._engine.catch_up()
        assert running[old["Product"].key("s", old["Kind"].TOY)].shop == "s"
        with pytest.raises(tm.SchemaMismatch, match="does not know"):
            list(running.query(old["Product"]).where(shop))
        assert not newer.check().foreign
