"""Entities that end: not there from their moment on, with room for others, until they are deleted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines import locations
from tablemapper.engines.azure.tables.service import GroupTransaction, RowChange
from tablemapper.testing.clock import Clock
from tablemapper.testing.store_fixture import empty_store

from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace
from ..engines.dicts import DictPlace

pytestmark = pytest.mark.file  # (it names its engines itself)

HOUR = timedelta(hours=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Session(tm.Entity, table="Sessions"):
    user: tm.Field[str]
    id: tm.Field[str]
    mail: tm.Field[str | None] = tm.field(default=None)
    n: tm.Field[int] = tm.field(default=0)
    until: tm.Field[datetime | None] = tm.field(default=None, expires=True)

    key = tm.Key[str, str](partition="{user}", row="{id}")
    by_mail = tm.Index[str](partition="{mail}", unique=True)
    by_n = tm.Index[int](partition="all", row="{n}", include=("mail",))
    whole_by_n = tm.Index[int](partition="whole", row="{n}", include=("until",))


class Lock(tm.Entity, table="Sessions"):
    user: tm.Field[str]
    name: tm.Field[str]
    n: tm.Field[int] = tm.field(default=0)
    until: tm.Field[datetime] = tm.field(factory=lambda: START + HOUR, expires=True)

    key = tm.Key[str, str](partition="{user}", row=("lock", "{name}"))


class PerUser(tm.Aggregate, table="PerUser", of=Session):
    user: tm.Field[str] = tm.group_by(Session.user)
    sessions: tm.Field[int] = tm.count()
    most: tm.Field[int | None] = tm.max(Session.n)

    key = tm.Key[str](partition="{user}")


MODELS: list[type[tm.Record]] = [Session, Lock, PerUser]


@attrs.define(eq=False)
class World:
    """A place whose time is that of the test."""

    place: Any
    time: datetime = START

    def microseconds(self) -> int:
        return (self.time - datetime(1970, 1, 1, tzinfo=UTC)) // MICROSECOND

    def open(self, schema: Any, **options: Any) -> Any:
        place: Any = locations.place_of(self.place)
        return place.open(schema, clock=self.microseconds, now=self.microseconds, **options)

    def store(self, *models: type[tm.Record]) -> tm.Store:
        place: Any = self
        return tm.open(place, models=models or MODELS, durability="relaxed")


@pytest.fixture(params=["file", "dicts", "azure"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    lacking = ("backward", "sorts", "across_partitions", "all_or_none_load")
    return World(
        {
            "file": lambda: tmp_path / "sessions.db",
            "dicts": lambda: DictPlace(str(tmp_path), lacking=lacking),
            "azure": lambda: AzurePlace(memory=Memory()),
        }[request.param]()
    )


@pytest.fixture
def store(world: World) -> Iterator[tm.Store]:
    with world.store() as opened:
        yield opened
        report = opened.check()
        assert report.problems == (), str(report)


def ids(found: Any) -> list[str]:
    return [one.id for one in found]


KEY = Session.key("ada", "1")


def ended(world: World, store: tm.Store, **values: Any) -> Session:
    """Return a session, as it was read before it ended; another one of the partition lives."""
    store.insert(Session("ada", "1", until=START + HOUR, **values))
    store.insert(Session("ada", "2", n=2))
    read = store[KEY]
    world.time = START + HOUR
    return read


READS: dict[str, Callable[[tm.Store], bool]] = {
    "get": lambda store: store.get(KEY) is not None,
    "get_many": lambda store: store.get_many([KEY, Session.key("ada", "2")])[0] is not None,
    "exists": lambda store: store.exists(KEY),
    "partition": lambda store: "1" in ids(store.partition(Session.user == "ada")),
    "query of a key": lambda store: list(store.query(Session).where(Session.user == "ada", Session.id == "1")) != [],
    "first of a key": lambda store: store.query(Session).where(Session.user == "ada", Session.id == "1").first() is not None,
    "query of a partition": lambda store: "1" in ids(store.query(Session).where(Session.user == "ada")),
    "first of a partition": lambda store: store.query(Session).where(Session.user == "ada").select(Session.id).first() == ("1",),
    "limit": lambda store: ids(store.query(Session).where(Session.user == "ada").limit(1)) == ["1"],
    "budget": lambda store: "1" in ids(store.query(Session).where(Session.user == "ada").budget(examined=9)),
    "page": lambda store: ids(store.query(Session).where(Session.user == "ada").page(1).items) == ["1"],
    "scan": lambda store: "1" in ids(store.query(Session).allow_scan()),
    "index": lambda store: "1" in ids(store.query(Session).where(Session.n <= 1)),
    "named index": lambda store: "1" in ids(store.query(Session.by_n())),
    "unique index": lambda store: store.query(Session).where(Session.mail == "ada@x").first() is not None,
    "covering index": lambda store: [*store.query(Session.by_n()).select(Session.n)] != [(2,)],
    "covering index with the time": lambda store: [*store.query(Session.whole_by_n()).select(Session.n)] != [(2,)],
    "columns": lambda store: "1" in store.query(Session).where(Session.user == "ada").columns()["id"],
    "count": lambda store: store.query(Session).where(Session.user == "ada").count() == 2,
    "count of an index": lambda store: store.query(Session.by_n()).count() == 2,
    "sum": lambda store: store.query(Session).where(Session.user == "ada").sum(Session.n) == 3,
    "min": lambda store: store.query(Session).where(Session.user == "ada").min(Session.n) == 1,
    "groups": lambda store: store.query(Session).where(Session.user == "ada").group_by(Session.id).count().get("1") == 1,
    "exists of a query": lambda store: store.query(Session).where(Session.mail == "ada@x").exists(),
    "several classes": lambda store: "1" in ids(store.query(Session, Lock).where(Session.user == "ada")),
    "count of several classes": lambda store: store.query(Session, Lock).where(Session.user == "ada").count() == 2,
    "part": lambda store: any("1" in ids(part) for part in store.query(Session).where(Session.user == "ada").split(2)),
}  # fmt: skip
"""Whether the session is there."""


def test_from_its_moment_on_an_entity_is_not_there(world: World, store: tm.Store) -> None:
    ended(world, store, mail="ada@x", n=1)
    world.time = START + HOUR - MICROSECOND
    assert {name for name, read in READS.items() if not read(store)} == set()
    world.time = START + HOUR
    assert {name for name, read in READS.items() if read(store)} == set()
    with pytest.raises(tm.EntityNotFound):
        store[KEY]
    with store.transaction() as tx:
        assert tx.get(KEY) is None
        assert not tx.exists(KEY)
        assert tx.get(Session.key("ada", "2")) is not None


def test_a_required_time_ends_entities_too(world: World, store: tm.Store) -> None:
    store.insert(Lock("ada", "a"))
    store.insert(Lock("ada", "b", until=START + 2 * HOUR))
    assert [lock.name for lock in store.query(Lock).where(Lock.user == "ada")] == ["a", "b"]
    world.time += HOUR
    assert [lock.name for lock in store.query(Lock).where(Lock.user == "ada")] == ["b"]
    assert store.query(Lock).where(Lock.user == "ada", Lock.until < START + 3 * HOUR).count() == 1


CHANGES: dict[str, Callable[[tm.Store, Session], Any]] = {
    "merge": lambda store, read: store.merge(KEY, n=9),
    "merge, returning": lambda store, read: store.merge(KEY, Session.n.add(1), returning=True),
    "merge with its ETag": lambda store, read: store.merge(KEY, n=9, if_match=tm.info(read).etag),
    "update": lambda store, read: store.update(KEY, lambda one: one.replace(n=9)),
    "replace": lambda store, read: store.replace(read.replace(n=9)),
    "replace of any": lambda store, read: store.replace(read.replace(n=9), if_match="*"),
    "replace_many": lambda store, read: store.replace_many([read.replace(n=9)]),
    "delete": lambda store, read: store.delete(read),
    "delete of a key": lambda store, read: store.delete(KEY),
    "delete_many": lambda store, read: store.delete_many([read]),
    "move": lambda store, read: store.move(read, Session.key("ada", "3")),
    "require": lambda store, read: _in_transaction(store, lambda tx: (tx.require(KEY), tx.insert(Session("ada", "9")))),
    "require what was read": lambda store, read: _in_transaction(store, lambda tx: tx.require(read)),
    "tx.merge": lambda store, read: _in_transaction(store, lambda tx: tx.merge(KEY, n=9)),
    "tx.merge, returning": lambda store, read: _in_transaction(store, lambda tx: tx.merge(KEY, n=9, returning=True)),
    "tx.replace": lambda store, read: _in_transaction(store, lambda tx: (tx.insert(Session("ada", "9")), tx.replace(read))),
    "tx.delete": lambda store, read: _in_transaction(store, lambda tx: tx.delete(read)),
}  # fmt: skip


def _in_transaction(store: tm.Store, work: Callable[[tm.Transaction], Any]) -> None:
    with store.transaction() as tx:
        work(tx)


def test_what_changes_an_entity_does_not_find_one_that_has_ended(world: World, store: tm.Store) -> None:
    read = ended(world, store)
    for name, change in CHANGES.items():
        with pytest.raises(tm.EntityNotFound):
            change(store, read)
            pytest.fail(name)
    query = store.query(Session).where(Session.user == "ada")
    assert query.update(n=5) == 1
    assert query.update(lambda one: one.replace(n=6)) == 1
    assert query.delete() == 1
    world.time = START
    assert store[KEY] == read
    assert store.query(Session).where(Session.user == "ada").count() == 1
    world.time = START + HOUR


NEW = Session("ada", "1", n=7)
INSERTS: dict[str, Callable[[tm.Store], Any]] = {
    "insert": lambda store: store.insert(attrs.evolve(NEW)),
    "insert_many": lambda store: store.insert_many([attrs.evolve(NEW), Session("ada", "3")]),
    "insert_columns": lambda store: store.insert_columns(Session, {"user": ["ada", "ada"], "id": ["1", "3"], "n": [7, 0]}),
    "upsert": lambda store: store.upsert(attrs.evolve(NEW)),
    "upsert, merging": lambda store: store.upsert(attrs.evolve(NEW), merge=True),
    "upsert_many": lambda store: store.upsert_many([attrs.evolve(NEW)]),
    "upsert_columns": lambda store: store.upsert_columns(Session, {"user": ["ada"], "id": ["1"], "n": [7]}),
    "or_insert": lambda store: store.merge(KEY, Session.n.add(2), or_insert=Session("ada", "1", n=5)),
    "tx.insert": lambda store: _in_transaction(store, lambda tx: tx.insert(attrs.evolve(NEW))),
    "tx of two": lambda store: _in_transaction(store, lambda tx: (tx.insert(Session("ada", "4")), tx.insert(attrs.evolve(NEW)))),
    "tx.upsert": lambda store: _in_transaction(store, lambda tx: tx.upsert(attrs.evolve(NEW), merge=True)),
    "tx.merge": lambda store: _in_transaction(
        store, lambda tx: tx.merge(KEY, Session.n.add(2), or_insert=Session("ada", "1", n=5), returning=True)
    ),
    "run": lambda store: store.run(lambda tx: tx.insert(attrs.evolve(NEW))),
    "move": lambda store: store.move(_stored(store, Session("ada", "5", n=7)), KEY),
}  # fmt: skip


def _stored(store: tm.Store, entity: Any) -> Any:
    store.insert(entity)
    return entity


@pytest.mark.parametrize("verb", INSERTS)
def test_what_has_ended_makes_room_and_nothing_of_it_goes_over(world: World, store: tm.Store, verb: str) -> None:
    ended(world, store, mail="ada@x", n=50)
    INSERTS[verb](store)
    assert store[KEY] == NEW
    assert store.group(PerUser.key("ada")).most == 7
    assert store.query(Session).where(Session.mail == "ada@x").first() is None
    store.insert(Session("bob", "1", mail="ada@x"))
    with pytest.raises(tm.EntityExists) as caught:
        store.insert(attrs.evolve(NEW))
    assert "it has ended" not in str(caught.value)
    assert store.merge(KEY, n=8, returning=True).n == 8


class Secret(tm.Entity, table="Secrets"):
    """A class of which an older version knows less."""

    id: tm.Field[str]
    n: tm.Field[int] = tm.field(default=0)
    until: tm.Field[datetime | None] = tm.field(default=None, expires=True)
    secret: tm.Field[str | None] = tm.field(default=None)
    key = tm.Key[str](partition="all", row="{id}")


def older() -> Any:
    class Secret(tm.Entity, table="Secrets"):
        id: tm.Field[str]
        n: tm.Field[int] = tm.field(default=0)
        until: tm.Field[datetime | None] = tm.field(default=None, expires=True)
        key = tm.Key[str](partition="all", row="{id}")

    return Secret


FRESH: dict[str, Callable[[tm.Store, Any], Any]] = {
    "insert": lambda store, cls: store.insert(cls("a")),
    "insert_many": lambda store, cls: store.insert_many([cls("a"), cls("b")]),
    "upsert": lambda store, cls: store.upsert(cls("a")),
    "upsert, merging": lambda store, cls: store.upsert(cls("a"), merge=True),
    "or_insert": lambda store, cls: store.merge(cls.key("a"), n=1, or_insert=cls("a")),
    "tx.insert": lambda store, cls: _in_transaction(store, lambda tx: tx.insert(cls("a"))),
}


def test_no_property_goes_over_that_only_a_newer_version_knows(world: World) -> None:
    if isinstance(world.place, DictPlace):
        return  # (it knows no versions)
    cls = older()
    with world.store(Secret) as newer, world.store(cls) as store:
        for verb, insert in FRESH.items():
            newer.upsert(Secret("a", 3, world.time + HOUR, "xyz"))
            world.time += 2 * HOUR
            insert(store, cls)
            assert newer[Secret.key("a")].secret is None, verb
        newer.upsert(Secret("a", 3, world.time + HOUR, "xyz"))
        store.merge(cls.key("a"), n=4)
        assert newer[Secret.key("a")].secret == "xyz"
        assert newer.check().ok


def test_no_property_goes_over_that_nobody_declares() -> None:
    memory = Memory()
    world, cls = World(AzurePlace(memory=memory)), older()
    with world.store(cls) as store:
        for verb, insert in FRESH.items():
            store.upsert(cls("a", 3, world.time + HOUR))
            memory.send(GroupTransaction("Secrets", "all", (RowChange("merge", "a", {"other": "xyz"}, "*"),)))
            world.time += 2 * HOUR
            insert(store, cls)
            (entity,) = [one for one in memory.entities("Secrets") if one["RowKey"] == "a"]
            assert "other" not in entity, verb
            store.delete(cls.key("a"))


TAKES: dict[str, Callable[[tm.Store], Any]] = {
    "insert": lambda store: store.insert(Session("bob", "1", "ada@x")),
    "insert_many": lambda store: store.insert_many([Session("bob", "1", "ada@x"), Session("bob", "2")]),
    "insert_columns": lambda store: store.insert_columns(Session, {"user": ["bob"], "id": ["1"], "mail": ["ada@x"]}),
    "upsert_many": lambda store: store.upsert_many([Session("bob", "1", "ada@x")]),
    "merge": lambda store: store.merge(_stored(store, Session("bob", "1")).key, mail="ada@x"),
    "replace": lambda store: store.replace(_stored(store, Session("bob", "1")).replace(mail="ada@x")),
    "update": lambda store: (
        store.insert(Session("bob", "1")), store.query(Session).where(Session.user == "bob").update(mail="ada@x")
    ),
    "tx.insert": lambda store: _in_transaction(
        store, lambda tx: (tx.insert(Session("bob", "1", "ada@x")), tx.insert(Session("bob", "2")))
    ),
}  # fmt: skip


@pytest.mark.parametrize("verb", TAKES)
def test_a_unique_value_is_free_once_its_holder_has_ended(world: World, store: tm.Store, verb: str) -> None:
    ended(world, store, mail="ada@x")
    TAKES[verb](store)
    assert store[Session.key("bob", "1")].mail == "ada@x"
    with pytest.raises(tm.UniqueViolation):
        store.insert(Session("cid", "1", "ada@x"))
    assert store.group(PerUser.key("ada")).sessions == 1


def test_a_value_passes_on_among_many_from_one_that_is_replaced(world: World, store: tm.Store) -> None:
    for n in range(6):  # (which partition of an account comes first, nobody knows)
        store.insert(Session(f"b{n}", "1", f"{n}@x", until=world.time + HOUR))
        world.time += HOUR
        store.insert_many([Session(f"a{n}", "1", f"{n}@x"), Session(f"b{n}", "1", f"b{n}@x")])
        assert [store[Session.key(f"{user}{n}", "1")].mail for user in "ab"] == [f"{n}@x", f"b{n}@x"]


def test_many_are_inserted_over_many_that_have_ended(world: World, store: tm.Store) -> None:
    store.insert_many([Session("ada", f"{n:02d}", f"{n}@x", n, START + n * HOUR) for n in range(1, 21)])
    world.time = START + 15 * HOUR
    store.insert_many([Session("ada", f"{n:02d}", f"{n + 1}@x", n + 100) for n in range(1, 15)])
    assert sorted(one.n for one in store.query(Session).where(Session.user == "ada")) == [
        *range(16, 21),
        *range(101, 115),
    ]
    with pytest.raises(tm.EntityExists):
        store.insert_many([Session("ada", "15"), Session("ada", "15")])
    with pytest.raises(tm.EntityExists):
        store.insert_many([Session("bob", "1"), Session("ada", "16")])
    assert store.get(Session.key("ada", "15")) is None or isinstance(world.place, AzurePlace)


def test_all_or_none_tells_what_has_ended(tmp_path: Path) -> None:
    world = World(tmp_path / "sessions.db")
    with world.store() as store:
        ended(world, store)
        with pytest.raises(tm.EntityExists, match=r"; it has ended: call store\.expire\(\) first\n"):
            store.insert_many([Session("ada", "1")], atomic=True)
        with pytest.raises(tm.EntityExists, match="merge or upsert it\n"):
            store.insert_many([Session("ada", "2")], atomic=True)
        assert store.expire() == 1
        assert store.insert_many([Session("ada", "1")], atomic=True) == 1


def test_totals_of_queries_are_exact_and_those_of_aggregates_wait(world: World, store: tm.Store) -> None:
    query = store.query(Session).where(Session.user == "ada")
    ended(world, store, n=9)
    assert (query.count(), query.max(Session.n)) == (1, 2)
    assert (query.allow_eventual().count(), query.allow_eventual().max(Session.n)) == (2, 9)
    assert store.group(PerUser.key("ada")).sessions == 2
    text = str(query.explain())
    assert "filters by not expired" in text
    assert "not PerUser: counts what has ended until store.expire()" in text
    assert query.explain().totals == {}
    assert query.allow_eventual().explain().totals["count()"] == "PerUser"
    assert query.allow_eventual().explain().eventual
    assert store.expire(Session) == 1
    assert query.allow_eventual().count() == 1
    assert store.group(PerUser.key("ada")).sessions == 1


class Job(tm.Entity, table="Jobs"):
    id: tm.Field[str]
    until: tm.Field[datetime] = tm.field(expires=True)
    kind: tm.Field[str] = tm.field(default="mail")

    key = tm.Key[str](partition="{id}")
    by_end = tm.Index[str, datetime](partition="{kind}", row="{until}")


def test_a_limit_counts_what_has_not_ended_where_the_index_has_the_time_in_its_key(world: World) -> None:
    with world.store(Job) as store:
        store.insert_many(Job(str(hours), until=START + hours * HOUR) for hours in range(1, 5))
        world.time = START + 2 * HOUR
        query = store.query(Job.by_end("mail"))
        for limited in (query.limit(1), store.query(Job).where(Job.kind == "mail").order_by(Job.until).limit(1)):
            assert [one.id for one in limited] == ["3"]
            assert [*limited.select(Job.id)] == [("3",)]
            assert (limited.min(Job.id), limited.count(), limited.group_by(Job.id).count()) == ("3", 1, {"3": 1})
        assert query.select(Job.id).first() == ("3",)
        assert [*query.select(Job.id)] == [("3",), ("4",)]
        assert [one for page in query.select(Job.id).pages(1) for one in page.items] == [("3",), ("4",)]


def test_a_loop_judges_by_one_moment_and_each_page_by_its_own(world: World, store: tm.Store) -> None:
    store.insert_many([Session("ada", f"{n}", until=START + (1 + n % 2) * HOUR) for n in range(6)])
    query = store.query(Session).where(Session.user == "ada")
    loop = iter(query)
    seen = [next(loop).id]
    page = query.page(2)
    world.time = START + HOUR
    assert [*seen, *ids(loop)] == ["0", "1", "2", "3", "4", "5"]
    assert ids(page.items) == ["0", "1"]
    assert ids(query.page(9, page.token).items) == ["3", "5"]
    assert repr(query) == "<Query Session, user == 'ada'>"


def test_all_classes_of_a_query_are_judged_by_one_moment(
    world: World, store: tm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.insert(Session("ada", "1", until=START + MICROSECOND))
    store.insert(Lock("ada", "a", until=START + MICROSECOND))
    times = itertools.count(world.microseconds())
    monkeypatch.setattr(store._plans, "_now", lambda: next(times))
    assert len(list(store.query(Session, Lock).where(Session.user == "ada"))) == 2
    assert store.query(Session, Lock).where(Session.user == "ada").count() == 0


def test_a_run_over_an_index_passes_by_what_ends_while_it_collects_keys(
    world: World, store: tm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.insert(Session("ada", "1", n=1))
    store.insert(Session("ada", "2", n=1))
    get_many = store._engine.get_many

    def ending(keys: Any) -> Any:
        monkeypatch.setattr(store._engine, "get_many", get_many)
        store.merge(KEY, until=START)
        return get_many(keys)

    monkeypatch.setattr(store._engine, "get_many", ending)
    assert store.query(Session.by_n()).update(n=7) == 1
    world.time -= MICROSECOND
    assert store[KEY].n == 1
    world.time += MICROSECOND


def test_expire_deletes_what_has_ended(world: World, store: tm.Store) -> None:
    store.insert_many([Session("ada", f"{n}", until=START + n * HOUR) for n in range(1, 10)])
    store.insert_many([Session("ada", "never"), Session("bob", "1", until=START + HOUR)])
    store.insert(Lock("ada", "a"))
    assert store.expire() == 0
    world.time = START + 5 * HOUR
    assert store.expire(limit=0) == 0
    assert store.expire(Session, limit=2) == 2
    assert store.expire(limit=1) == 1
    assert store.expire(Session) == 3
    assert store.expire() == 1
    assert store.expire() == 0
    world.time = START
    assert len(list(store.query(Session).allow_scan())) == 5
    assert store.query(Lock).allow_scan().count() == 0


def test_what_is_prolonged_meanwhile_stays(world: World, store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(world, store)
    store.insert(Session("bob", "1", until=START + HOUR))
    apply = store._engine.apply

    def prolonging(operations: Any, **options: Any) -> None:
        monkeypatch.setattr(store._engine, "apply", apply)
        world.time = START
        store.merge(KEY, until=START + 9 * HOUR)
        world.time = START + HOUR
        apply(operations, **options)

    monkeypatch.setattr(store._engine, "apply", prolonging)
    assert store.expire() == 1
    assert store[KEY].until == START + 9 * HOUR


def test_what_expire_refuses(world: World, store: tm.Store) -> None:
    for argument, limit, error in (
        (PerUser, None, tm.InvalidEntity), (int, None, tm.InvalidEntity), (None, -1, tm.InvalidQuery), (None, True, tm.InvalidQuery)
    ):  # fmt: skip
        with pytest.raises(error):
            store.expire(argument, limit=limit)  # type: ignore[arg-type]
    with pytest.raises(tm.InvalidTransaction), store.transaction():
        store.expire()
    with world.store(Secret) if isinstance(world.place, DictPlace) else world.store(*MODELS, Secret) as other:
        assert other.expire() == 0

    class Plain(tm.Entity, table="Plains"):
        id: tm.Field[str]
        key = tm.Key[str](partition="{id}")

    with World(":memory:").store(Plain) as plain:
        assert plain.expire() == 0
        with pytest.raises(tm.InvalidEntity, match=r"Plain: expire: nothing of it ends; declare when"):
            plain.expire(Plain)
    ended(world, store)
    store.freeze()
    with pytest.raises(tm.StoreLocked):
        store.expire()
    store.unfreeze()
    assert store.clear(Session) == 2


def test_a_field_ends_entities_once_its_class_says_so_and_no_more_once_it_does_not(tmp_path: Path) -> None:
    def declared(expires: bool) -> Any:
        class Ticket(tm.Entity, table="Tickets"):
            id: tm.Field[str]
            until: tm.Field[datetime | None] = tm.field(default=None, expires=expires)
            key = tm.Key[str](partition="all", row="{id}")

        return Ticket

    world = World(tmp_path / "tickets.db")
    plain, ending = declared(expires=False), declared(expires=True)
    with world.store(plain) as before:
        before.insert_many([plain("a", START), plain("b", START + HOUR)])
    place: Any = world
    with tm.open(place, models=[ending], build=False) as store, world.store(plain) as older:
        assert ids(store.query(ending).allow_scan()) == ["b"]
        assert [one.id for one in older.query(plain).allow_scan()] == ["a", "b"]
        store.build()
        assert store.expire() == 1
        assert store.check().ok
        older.insert(plain("c", START))
        assert older.merge(plain.key("c"), until=START + HOUR, returning=True).id == "c"
        assert ids(store.query(ending).allow_scan()) == ["b", "c"]
        older.merge(plain.key("c"), until=START)
        assert ids(store.query(ending).allow_scan()) == ["b"]
    with world.store(plain) as after:
        assert [one.id for one in after.query(plain).allow_scan()] == ["b", "c"]
    world = World(tmp_path / "others.db")
    with world.store(ending) as store:
        store.insert(ending("a", START))
    with world.store(plain) as after:
        assert after.exists(plain.key("a"))
        assert "Ticket.expiry  index  ready  not declared" in str(after.status())


def test_expire_waits_for_its_index(tmp_path: Path, never_at_once: None) -> None:
    class Ticket(tm.Entity, table="Tickets"):
        id: tm.Field[str]
        until: tm.Field[datetime | None] = tm.field(default=None)
        key = tm.Key[str](partition="all", row="{id}")

    plain: Any = Ticket

    class Ticket(tm.Entity, table="Tickets"):  # type: ignore[no-redef]
        id: tm.Field[str]
        until: tm.Field[datetime | None] = tm.field(default=None, expires=True)
        key = tm.Key[str](partition="all", row="{id}")

    world = World(tmp_path / "tickets.db")
    place: Any = world
    with world.store(plain) as store:
        store.insert(plain("a", until=START))
    with tm.open(place, models=[Ticket], build=False) as store:
        assert not store.exists(Ticket.key("a"))
        with pytest.raises(tm.NotReady, match=r"Ticket\.expiry: it is being built"):
            store.expire()
        store.build()
        assert store.expire() == 1


def test_asyncio_and_observers_know_it(tmp_path: Path) -> None:
    world, events = World(tmp_path / "sessions.db"), list[tm.Event]()
    place: Any = world

    async def main() -> None:
        async with tm.open_async(place, models=MODELS, observe=events.append) as store:
            await store.insert_many([Session("ada", "1", until=START + HOUR), Session("ada", "2")])
            world.time += HOUR
            assert await store.get(KEY) is None
            assert await store.query(Session).where(Session.user == "ada").count() == 1
            assert [one.id async for one in store.query(Session).where(Session.user == "ada")] == ["2"]
            async with store.transaction() as tx:
                assert await tx.get(KEY) is None
                tx.insert(Session("ada", "1"))
            assert await store.expire() == 0
            world.time -= HOUR
            await store.insert(Session("ada", "3", until=START + HOUR))
            world.time += HOUR
            assert await store.expire(Session, limit=5) == 1

    asyncio.run(main())
    told = [(event.verb, event.model, event.written) for event in events if event.verb == "expire"]
    assert told == [("expire", None, 0), ("expire", "Session", 1)]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"until": datetime, "end": datetime}, "until and end: one expires=True is enough"),
        ({"day": date}, "day: expires=True is for a datetime, not date"),
        ({"expiry": datetime}, "expiry: the class has this attribute already; declare an index over expiry yourself"),
    ],
)
def test_a_class_ends_by_one_time(fields: dict[str, Any], fault: str) -> None:
    annotations = {"id": tm.Field[str], **{name: tm.Field[kind | None] for name, kind in fields.items()}}
    options = {name: tm.field(default=None, expires=True) for name in fields}
    body = {"__annotations__": annotations, "key": tm.Key[str](partition="{id}"), **options}
    with pytest.raises(tm.InvalidModel) as caught:
        type(tm.Entity)("Item", (tm.Entity,), body, table="Items")
    assert list(caught.value.faults) == [fault]


def test_a_time_that_ends_is_not_in_the_key() -> None:
    with pytest.raises(
        tm.InvalidModel, match="until: expires=True cannot be in the key, which stays as it is; add another"
    ):

        class InKey(tm.Entity, table="Items"):
            id: tm.Field[str]
            until: tm.Field[datetime] = tm.field(expires=True)
            key = tm.Key[str, datetime](partition="{id}", row="{until}")

    with pytest.raises(tm.InvalidModel, match="expires=: expected True or False, got 5"):

        class Five(tm.Entity, table="Items"):
            id: tm.Field[str]
            until: tm.Field[datetime] = tm.field(expires=5)  # type: ignore[call-overload]
            key = tm.Key[str](partition="{id}")


def test_the_index_over_the_time_is_added_unless_there_is_one() -> None:
    class Base(tm.Entity):
        until: tm.Field[datetime | None] = tm.field(default=None, expires=True)

    class Row(Base, table="Items"):
        shop: tm.Field[str] = tm.field(kw_only=True)
        id: tm.Field[int] = tm.field(kw_only=True)
        key = tm.Key[str, int](partition="{shop}", row="{id}")

    class Only(Base, table="Items"):
        shop: tm.Field[str] = tm.field(kw_only=True)
        key = tm.Key[str](partition="{shop}")

    class Own(Base, table="Items"):
        shop: tm.Field[str] = tm.field(kw_only=True)
        key = tm.Key[str](partition="{shop}")
        by_end = tm.Index[datetime, str](partition="all", row=("{until}", "{shop}"))
        here = tm.Index[str, datetime](partition="{shop}", row="{until}")

    class Others(Base, table="Items"):
        shop: tm.Field[str] = tm.field(kw_only=True)
        key = tm.Key[str](partition="{shop}")
        here = tm.Index[str, datetime](partition="{shop}", row="{until}")
        some = tm.Index[datetime](partition="all", row="{until}", where=lambda one: one.shop == "a")

    def indexes(cls: Any) -> list[tuple[str, str, str]]:
        return [(i.name, i.partition.text, i.row.text) for i in cls.__declaration__.indexes]

    assert indexes(Row) == [("expiry", "{id:shard(16)}", "{until}")]
    assert indexes(Only) == [("expiry", "{shop:shard(16)}", "{until}")]
    assert [name for name, *_ in indexes(Own)] == ["by_end", "here"]
    assert [name for name, *_ in indexes(Others)] == ["here", "some", "expiry"]
    with World(":memory:").store(Own) as store:
        store.insert_many([Own(shop=shop, until=START) for shop in "ab"])
        assert store.expire(limit=1) == 1
        assert store.expire() == 1


def test_a_time_that_is_set_at_each_write_prolongs_what_has_not_ended(world: World) -> None:
    class Slide(tm.Entity, table="Slides"):
        id: tm.Field[str]
        n: tm.Field[int] = tm.field(default=0)
        until: tm.Field[datetime] = tm.field(on_write=lambda: world.time + HOUR, expires=True)
        key = tm.Key[str](partition="all", row="{id}")

    key = Slide.key("a")
    with world.store(Slide) as store:
        store.insert(Slide("a"))
        for _ in range(3):
            world.time += HOUR - MICROSECOND
            store.merge(key, Slide.n.add(1))
        world.time += HOUR
        with pytest.raises(tm.EntityNotFound):
            store.merge(key, n=9)
        store.insert(Slide("a"))
        assert (store[key].n, store[key].until) == (0, world.time + HOUR)
        assert store.check().ok


@pytest.mark.parametrize("table", ["Tokens", "Passes"])
def test_nothing_goes_over_for_an_older_version_beside_a_migration(tmp_path: Path, table: str) -> None:
    class Token(tm.Entity, table="Tokens"):
        id: tm.Field[str]
        until: tm.Field[datetime | None] = tm.field(default=None, expires=True)
        secret: tm.Field[str | None] = tm.field(default=None)
        key = tm.Key[str](partition="all", row="{id}")

    old: Any = Token
    body = {"__annotations__": {"id": tm.Field[str], "until": tm.Field[datetime | None]}}
    options = {"until": tm.field(default=None, expires=True), "key": tm.Key[str](partition="all", row="{id}")}
    new: Any = type(tm.Entity)("Token" if table == "Tokens" else "Pass", (tm.Entity,), body | options, table=table)

    def first(m: tm.Migration) -> None:
        if new.__name__ != "Token":
            m.rename_class(old, new)
        m.drop(old.secret)

    world = World(tmp_path / "tokens.db")
    with world.store(old) as before:
        before.insert(old("a", START + HOUR, "xyz"))
        tm.migrate(tmp_path / "tokens.db", [tm.migration(after=None, old=[old], new=[new])(first)], rest=0)
        with world.store(new) as store:
            store.merge(new.key("a"), until=START + HOUR - MICROSECOND)
            assert before[old.key("a")].secret == "xyz"
            world.time = START + HOUR
            store.insert(new("a"))
            assert before[old.key("a")].secret is None
            assert store.check().ok


def test_a_kill_amid_expire_leaves_a_store_from_which_it_goes_on(
    world: World, store: tm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.insert_many([Session("ada", f"{n}", f"{n}@x", n, START + HOUR) for n in range(6)])
    world.time = START + HOUR
    monkeypatch.setattr(store._plans, "batch_limits", attrs.evolve(store._plans.batch_limits, batch=2))
    apply, calls = store._engine.apply, itertools.count()

    def killed(*arguments: Any, **options: Any) -> None:
        if next(calls) == 1:
            raise KeyboardInterrupt
        apply(*arguments, **options)

    monkeypatch.setattr(store._engine, "apply", killed)
    with pytest.raises(KeyboardInterrupt) as caught:
        store.expire()
    assert caught.value.written == 2  # type: ignore[attr-defined]
    assert store.check().ok
    assert store.group(PerUser.key("ada")).sessions == 4
    assert store.expire() == 4
    assert store.group(PerUser.key("ada")).sessions == 0


def test_a_copy_has_what_has_ended_too(tmp_path: Path) -> None:
    source, target = World(tmp_path / "a.db"), World(tmp_path / "b.db")
    with source.store() as store, target.store() as other:
        ended(source, store, mail="ada@x")
        target.time = source.time
        other.insert(Session("bob", "1", mail="ada@x", until=START))
        tm.copy(store, other)
        target.time = START
        assert ids(other.query(Session).allow_scan()) == ["1", "2"]
        assert other[KEY].mail == "ada@x"
        assert other.check().ok


def test_the_clock_of_a_test_says_what_has_ended_and_no_read_moves_it() -> None:
    clock = Clock()
    with empty_store(":memory:", MODELS, clock=clock) as store:
        store.insert(Session("ada", "1", until=clock.now + HOUR))
        before = clock.now
        for _ in range(3):
            assert store.exists(KEY)
            assert store.query(Session).where(Session.user == "ada").count() == 1
        assert clock.now == before
        clock.tick(3600)
        assert not store.exists(KEY)
        clock.set(before)
        assert store.exists(KEY)
        clock.tick(3601)
        assert store.expire() == 1
