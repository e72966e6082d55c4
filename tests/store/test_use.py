"""Classes are opened in a store that is open: at run time, beside calls that go on; in a file and in an account."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure import clearing
from tablemapper.engines.azure.tables.service import QueryEntities

from ..classes import entity
from ..engines.azure.memory import Faulty, Memory
from ..engines.azure.place import AzurePlace
from .test_drop import Title, Writer

pytestmark = pytest.mark.file  # (and of an account; another engine need not be asked)


class Log(tm.Entity, table="Logs"):
    host: tm.Field[str]
    at: tm.Field[datetime]
    level: tm.Field[str] = tm.field(default="info")
    code: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, datetime](partition="{host}", row="{at}")
    by_level = tm.Index[str, str](partition="{level}", row="{host}")
    by_code = tm.Index[str](partition="{code}", unique=True)


class Hosts(tm.Aggregate, of=Log, table="Hosts"):
    host: tm.Field[str] = tm.group_by(Log.host)
    lines: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="{host}")


class Other(tm.Entity, table="Others"):
    id: tm.Field[str]

    key = tm.Key[str](partition="{id}")


START = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture(params=["file", "memory", "account"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "account":
        return AzurePlace(memory=Memory(), still=True)
    return tmp_path / "store.db" if request.param == "file" else ":memory:"


def fill(store: tm.Store, cls: type[Log], count: int = 6) -> None:
    store.insert_many(cls("a", START + timedelta(seconds=n), ["info", "error"][n % 2], f"c{n}") for n in range(count))


def right(store: tm.Store, cls: Any, count: int = 6) -> None:
    assert len(list(store.query(cls).where(cls.host == "a"))) == count
    assert len(list(store.query(cls).where(Log.host == "a"))) == count  # (as the type says)
    assert len(list(store.query(cls.by_level("error")))) == count // 2
    found = store.query(cls.by_code("c1")).first()
    assert found is None or type(found) is cls
    hosts: Any = Hosts if cls is Log else Hosts.variant(cls.__name__.removeprefix("Log"))
    assert store.group(hosts.key("a")).lines == count
    report = store.check()
    assert report.ok, str(report)


def test_months_come_and_go(place: Any) -> None:
    with tm.open(place, models=[Log, Hosts, Other]) as store:
        fill(store, Log)
        months = ["202611", "202612", "202701"]
        for month in months:
            log = Log.variant(month)
            with pytest.raises(tm.InvalidEntity, match=f"Log{month}: the store was not opened with it"):
                store.insert(log("a", START))
            store.use(log, Hosts.variant(month))
            fill(store, log)
            right(store, log)
            right(store, Log)
        assert [*store.classes] == [
            "Log",
            "Hosts",
            "Other",
            *(f"{name}{month}" for month in months for name in ("Log", "Hosts")),
        ]
        store.drop(Log.variant("202611"))
        with pytest.raises(tm.SchemaMismatch, match="Log202611 was dropped"):
            fill(store, Log.variant("202611"))
        store.use(Log.variant("202612"), Other)  # (what is open is left as it is)
        store.use()
        right(store, Log.variant("202612"))
        store.use(Log.variant("202702"), Hosts.variant("202702"))
        assert store.status()["Log202611"].state.startswith("dropp")
        with pytest.raises(tm.InvalidEntity, match="Log202611: the store was not opened with it"):
            fill(store, Log.variant("202611"))
        store.use(Log.variant("202611"), Hosts.variant("202611"))  # (it is anew)
        right(store, Log.variant("202611"), 0)
        fill(store, Log.variant("202611"))
        right(store, Log.variant("202611"))
    if place == ":memory:":
        return
    with tm.open(place, models=[Log, Hosts, Log.variant("202612"), Hosts.variant("202612")]) as store:
        right(store, Log.variant("202612"))
        with tm.open(place, models=[Other]) as beside:
            beside.use(Log, Hosts)
            right(beside, Log)


def test_calls_that_run_go_on_and_threads_open_classes_at_once(place: Any) -> None:
    with tm.open(place, models=[Log, Hosts, Other]) as store:
        fill(store, Log, 30)
        query = store.query(Log).where(Log.host == "a").order_by(Log.at)
        running = iter(query)
        first = next(running)
        errors: list[BaseException] = []
        threads = 2 if isinstance(place, AzurePlace) else 4  # (whose service has a lock)

        def months(number: int) -> None:
            try:
                for month in range(3):
                    name = f"{number}{month}"
                    store.use(Log.variant(name), Hosts.variant(name))
                    fill(store, Log.variant(name))
                    assert store.get(Log.key("a", START)) is not None
                    assert store.query(Log.variant(name)).where(Log.host == "a").count() == 6
            except BaseException as error:
                errors.append(error)

        workers = [threading.Thread(target=months, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not errors, errors[0]
        assert [first, *running] == list(query)
        assert len(store.classes) == 3 + 2 * 3 * threads
        for name in ("00", "12"):
            right(store, Log.variant(name))


def test_an_index_and_an_aggregate_over_what_is_there_are_built(place: Any) -> None:
    newer = entity(
        "Other", "Others", {"id": str, "size": (int, tm.field(default=1))}, tm.Key[str](partition="{id}"),
        by_size=tm.Index[int](partition="{size}"),
    )  # fmt: skip
    with tm.open(place, models=[Log]) as store:
        fill(store, Log)
        store.use(Hosts)
        assert store[Hosts.key("a")].lines == 6
        assert store.check().ok
        store.use(Other)
        store.insert(Other("x"))
        with pytest.raises(tm.InvalidModel, match="two classes are called Other"):
            store.use(newer)
        assert store.get(Other.key("x")) is not None


def test_what_cannot_be_used_is_refused_and_the_store_goes_on(place: Any) -> None:
    orphan = Hosts.variant("2")
    clash = entity("Third", "Logs", {"id": str, "n": str}, tm.Key[str, str](partition="{id}", row="{n}"))
    with tm.open(place, models=[Log, Other]) as store:
        fill(store, Log)
        wrong: Any
        for wrong, text in (
            (orphan, "Hosts2 is an aggregate of Log2, which is not among them"),
            (clash, "Third and Log share|Log and Third share"),
            (5, "5 is not an entity class"),
            ("Log", "name the class itself"),
            (tm.Entity, "Entity has no table=|is not an entity class"),
        ):
            with pytest.raises(tm.InvalidModel, match=text):
                store.use(wrong)
        with store.transaction() as tx, pytest.raises(tm.InvalidTransaction):
            assert tx.get(Other.key("x")) is None
            store.use(Log.variant("1"))
        assert [*store.classes] == ["Log", "Other"]
        assert len(list(store.query(Log).where(Log.host == "a"))) == 6
        other = entity("Log1", "Logs1", {"id": str}, tm.Key[str](partition="{id}"))
        store.use(other)
        store.insert(other("x"))
    if place == ":memory:":
        return
    with tm.open(place, models=[Other]) as store:
        with pytest.raises(tm.SchemaMismatch):
            store.use(Log.variant("1"))
        store.insert(Other("y"))
        assert [*store.classes] == ["Other"]
    with tm.open(place, models=[Other], read_only=True) as store:
        store.use(Log)
        assert len(list(store.query(Log).where(Log.host == "a"))) == 6
        with pytest.raises((tm.StoreReadOnly, tm.SchemaMismatch)):
            store.use(Log.variant("9"))
        with pytest.raises(tm.StoreReadOnly):
            store.insert(Other("z"))
    with tm.open(place, read_only=True) as store, pytest.raises(tm.InvalidModel, match="the classes of its catalogue"):
        store.use(Other)


def test_a_class_that_another_program_dropped_is_left_out_until_it_is_used(place: Any) -> None:
    if place == ":memory:":
        return
    with tm.open(place, models=[Log, Hosts, Other]) as store, tm.open(place, models=[Log, Hosts, Other]) as beside:
        fill(store, Log)
        beside.drop(Log)
        store.use(Log.variant("3"))
        fill(store, Log.variant("3"))
        assert [*store.classes] == ["Other", "Log3"]
        store.use(Log, Hosts)
        right(store, Log, 0)
        fill(store, Log)
        right(store, Log)


def test_many_variants_are_opened_and_one_is_found(place: Any) -> None:
    names = [str(number) for number in range(80 if place == ":memory:" else 20)]
    with tm.open(place, models=[Other]) as store:
        store.use(*(Log.variant(name) for name in names))
        store.insert_many(Log.variant(name)("a", START, code=name) for name in names)
        assert all(store.query(Log.variant(name).by_code(name)).first() is not None for name in names[::10])
        assert store.check().entities == len(names)


def test_calls_are_reported_and_an_observed_store_has_the_classes() -> None:
    events: list[tm.Event] = []
    with tm.open(":memory:", models=[Other], observe=events.append) as store:
        store.use(Log, Hosts)
        fill(store, Log)
        assert store[Hosts.key("a")].lines == 6
        assert len(list(store.query(Log).where(Log.host == "a"))) == 6
    assert next((one.verb, one.model) for one in events) == ("use", "Log, Hosts")
    assert {one.verb for one in events} == {"use", "insert_many", "get", "query"}


def test_a_maintained_field_of_a_variant_follows_the_class_that_it_names(place: Any) -> None:
    with tm.open(place, models=[Writer, Title]) as store:
        store.insert(Title("ada", "t"))
        variant = Writer.variant("1")
        store.use(variant, Title.variant("1"))
        store.insert_many([variant("ada"), Writer("ada"), Title("ada", "u"), Title.variant("1")("ada", "x")])
        assert store[variant.key("ada")].titles == store[Writer.key("ada")].titles == 2
        assert store.check().ok
        store.drop(variant)
        assert store.check().ok


def test_a_look_at_the_catalogue_that_began_before_takes_no_class_away() -> None:
    class Asked(Memory):
        """A service that is asked for the catalogue, while something else happens."""

        meanwhile: Any = None

        def send(self, request: Any, *wait: float) -> Any:
            if self.meanwhile is not None and isinstance(request, QueryEntities) and request.table == "TableMapper":
                meanwhile, self.meanwhile = self.meanwhile, None
                meanwhile()
            return super().send(request, *wait)

    memory = Asked()
    place: Any = AzurePlace(memory=memory, still=True)
    with tm.open(place, models=[Log]) as store, tm.open(place, models=[Log, Other]):
        memory.meanwhile = lambda: store.use(Log.variant("7"))
        store._engine.catch_up()
        assert memory.meanwhile is None
        fill(store, Log.variant("7"))
        assert store.query(Log.variant("7")).allow_scan().count() == 6


class Stamped(tm.Entity):
    id: tm.Field[str]
    updated: tm.Field[datetime] = tm.field(on_write=lambda: datetime.now(UTC))

    key = tm.Key[str](partition="{id}")
    by_id = tm.Index[str](partition="all", row="{id}")


class Session(Stamped, table="Sessions"):
    until: tm.Field[datetime | None] = tm.field(default=None, expires=True)


def test_a_variant_has_what_a_base_lends_and_what_expires(place: Any) -> None:
    variant = Session.variant("7")
    with tm.open(place, models=[Session]) as store:
        store.use(variant)
        store.insert_many([variant("a"), variant("b", until=START), Session("c")])
        assert [one.id for one in store.query(variant.by_id()).allow_scan()] == ["a"]
        assert store.expire(variant) == 1
        session = store[variant.key("a")]
        written = session.updated
        store.replace(session)
        assert store[variant.key("a")].updated > written
        assert store.check().ok
        store.drop(variant)
        assert store.exists(Session.key("c"))
        assert store.check().ok


def test_advice_on_classes_that_come_is_logged_as_on_those_of_an_open(caplog: pytest.LogCaptureFixture) -> None:
    with tm.open(":memory:", models=[Other], limits="azure") as store:
        caplog.clear()
        store.use(entity("Wide", "Wides", {"id": int}, tm.Key[int](partition="all", row="{id}")))
    assert "Wide" in caplog.text


@pytest.mark.parametrize("way", ["before", "lost"])
def test_who_is_killed_at_any_request_is_followed_by_the_next(way: str) -> None:
    def begun() -> Faulty:
        memory = Faulty()
        with tm.open(AzurePlace(memory=memory, still=True), models=[Log]) as store:  # type: ignore[arg-type]
            fill(store, Log)
        return memory

    whole, log, hosts = begun(), Log.variant("8"), Hosts.variant("8")
    with tm.open(AzurePlace(memory=whole, still=True), models=[Log]) as store:  # type: ignore[arg-type]
        start = whole.number
        store.use(log, hosts)
        end = whole.number
    for at in range(start + 1, end + 1):
        memory = begun()
        memory.at, memory.way = at, way
        with suppress(KeyboardInterrupt), tm.open(AzurePlace(memory=memory, still=True), models=[Log]) as store:  # type: ignore[arg-type]
            store.use(log, hosts)
        memory.at = -1
        with tm.open(AzurePlace(memory=memory, still=True), models=[Log]) as store:  # type: ignore[arg-type]
            store.use(log, hosts)
            fill(store, log)
            right(store, log)


@pytest.mark.parametrize("is_observed", [False, True])
def test_a_stream_that_is_written_opens_the_classes_that_it_needs(*, is_observed: bool) -> None:
    with tm.open(":memory:", models=[Other], observe=(lambda _: None) if is_observed else None) as store:

        def lines() -> Any:
            for number in range(3_000):
                if number % 1_000 == 0:
                    store.use(Log.variant(str(number)))
                yield Log.variant(str(number // 1_000 * 1_000))("a", START + timedelta(seconds=number))

        assert store.insert_many(lines()) == 3_000
        assert store.query(Log.variant("2000")).allow_scan().count() == 1_000


async def test_under_asyncio_too(tmp_path: Path) -> None:
    async with tm.open_async(tmp_path / "store.db", models=[Log, Hosts]) as store:
        await store.use(Log.variant("4"), Hosts.variant("4"))
        log = Log.variant("4")
        await store.insert(log("a", START))

        async def lines() -> Any:
            for number in range(2, 2_000):
                if number == 1_500:
                    await store.use(Log.variant("5"))
                yield Log.variant("4" if number < 1_500 else "5")("b", START + timedelta(seconds=number))

        assert await store.insert_many(lines()) == 1_998
        assert await store.query(Log.variant("5")).allow_scan().count() == 500
        async with store.transaction() as tx:
            tx.insert(log("a", START + timedelta(seconds=1)))
        assert await store.query(log).where(Log.host == "a").count() == 2
        assert [*store.classes] == ["Log", "Hosts", "Log4", "Hosts4", "Log5"]
        await store.drop(log)
        with pytest.raises(tm.SchemaMismatch, match="was dropped"):
            await store.insert(log("a", START))


class World:
    """A store whose classes come and go, and what it should hold."""

    def __init__(self, place: Any, seed: int) -> None:
        self.place, self.rng = place, random.Random(seed)
        self.held: dict[str, dict[int, str]] = {}
        """By variant: the levels of its lines, by number."""
        self.open: set[str] = set()
        self.store = tm.open(place, models=[Other])

    def classes(self, names: Iterable[str]) -> list[Any]:
        return [cls.variant(name) for name in names for cls in (Log, Hosts)]

    def use(self) -> None:
        name = self.rng.choice("1234")
        self.store.use(*self.classes([name]))
        self.open.add(name)
        self.held.setdefault(name, {})

    def reopen(self) -> None:
        self.store.close()
        self.open = {name for name in self.held if self.rng.random() < 0.7}
        self.store = tm.open(self.place, models=[Other, *self.classes(sorted(self.open))])

    def write(self, name: str) -> None:
        numbers = {self.rng.randrange(9): self.rng.choice(["info", "error"]) for _ in range(self.rng.randrange(1, 7))}
        log = Log.variant(name)
        self.store.upsert_many(log("a", START + timedelta(seconds=n), level) for n, level in numbers.items())
        self.held[name] |= numbers

    def delete(self, name: str) -> None:
        log, level = Log.variant(name), self.rng.choice(["info", "error"])
        self.store.query(log).where(log.level == level).delete()
        self.held[name] = {number: other for number, other in self.held[name].items() if other != level}

    def clear(self, name: str) -> None:
        assert self.store.clear(Log.variant(name)) == len(self.held[name])
        self.held[name] = {}

    def drop(self, name: str) -> None:
        self.store.drop(Log.variant(name))
        self.open.discard(name)
        del self.held[name]
        with pytest.raises((tm.SchemaMismatch, tm.InvalidEntity)):
            self.store.insert(Log.variant(name)("a", START))

    def copy(self, name: str) -> None:
        with tm.open(":memory:", models=self.classes([name])) as other:
            assert tm.copy(self.store, other, only=[Log.variant(name)]).inserted == len(self.held[name])
            assert other.check().ok

    def step(self) -> None:
        steps: list[Any] = [self.write, self.write, self.write, self.delete, self.clear, self.drop, self.copy]
        if not self.open or self.rng.random() < 0.2:
            self.rng.choice([self.use, self.use, self.reopen])()
        else:
            self.rng.choice(steps)(self.rng.choice(sorted(self.open)))
        for name in self.open:
            log = Log.variant(name)
            lines = {one.at.second: one.level for one in self.store.query(log).where(log.host == "a")}
            assert lines == self.held[name], name
            errors = [one.at.second for one in self.store.query(log.by_level("error"))]
            assert sorted(errors) == sorted(n for n, level in lines.items() if level == "error")
            assert self.store.group(Hosts.variant(name).key("a")).lines == len(lines)


@pytest.mark.parametrize("engine", ["file", "account"])
def test_classes_that_come_and_go_at_random_hold_what_they_should(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, full_size: bool
) -> None:
    monkeypatch.setattr(clearing, "ROW_BY_ROW", 3)
    for seed in range(100 if full_size else 4):
        place: Any = tmp_path / f"{seed}.db" if engine == "file" else AzurePlace(memory=Memory(), still=True)
        world = World(place, seed)
        for _ in range(40):
            world.step()
        report = world.store.check()
        assert report.ok, str(report)
        world.store.close()
