"""Groups elsewhere that somebody else's tool has damaged are built anew, beside programs that write: step by step in an
order that is drawn, with kills, lost answers and late requests; then as a user calls it."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import pytest
from msgspec import UNSET

import tablemapper as tm
from tablemapper.engines.azure import builds, group_writer, recovery
from tablemapper.engines.azure.builds import Builder
from tablemapper.engines.azure.catalogue import open_classes
from tablemapper.engines.azure.catalogue.opening import given_up
from tablemapper.engines.azure.catalogue.publication import changed
from tablemapper.engines.azure.cross_partition import intent_execution
from tablemapper.engines.azure.cross_partition.marks import BuildMark
from tablemapper.engines.azure.tables.driver import Effects, Sleep
from tablemapper.engines.azure.tables.reserved_names import HIDDEN
from tablemapper.schema.model import compile_schema

from ...classes import aggregate, entity, grouped
from ...store.test_zone_rules import sold
from ...stores import repaired, write_again
from ...zones import rules_from
from .crew import Board, Member
from .memory import Memory, Stored
from .schedule import Rates, Schedule, played
from .test_builds import NEW, RATES, SIZES, TIMES, Clocked, Play, cls

Patch = pytest.MonkeyPatch


def damage(rng: random.Random, memory: Memory, table: str) -> int:
    """Lose some groups of a table, put others in their places, and invent one; return how many were changed."""
    rows = {key: row for key, row in memory.tables[table].items() if not HIDDEN[0] <= key[1] < HIDDEN[1]}
    after, others = dict(memory.tables[table]), list(rows.values())
    for key, row in rows.items():
        if rng.random() < 0.4:
            del after[key]
        elif rng.random() < 0.5:
            after[key] = attrs.evolve(rng.choice(others), etag=row.etag)
    for row in others[:1]:
        after["invented", next(iter(rows))[1]] = row
    changed = sum(after.get(key) != row for key, row in rows.items()) + len(others[:1])
    memory.tables[table] = after
    return changed


class Anew(Play):
    """Programs of one version that write the same entities, and those that build damaged aggregates anew."""

    def __init__(self, seed: int, rates: Rates = RATES) -> None:
        store = self.begun(seed, NEW)
        self.alone = self.built = False
        self.killed = 0.0
        self.shops = "aab"
        items = cls(NEW, "Item")
        for shop in "ab":
            for n in range(5):
                store.upsert(items(shop, n, self.rng.choice(["red", "blue", None]), SIZES[n % 4]))
        for table in ("Colors", "Shades"):
            damage(self.rng, self.memory, table)
        self.schedule = self.memory.schedule = Schedule(self.memory, seed, rates, TIMES.look)
        for _ in range(3):
            self.schedule.start(self.program(NEW, 0.0, 4))
        for _ in range(2):
            self.schedule.start(self.builder())
            self.schedule.start(self.sweeper())

    def builder(self) -> Effects[None]:
        yield Sleep(self.rng.random() * 5)
        labels = ["Colors", "Shades"]
        with_both = self.rng.random() < 0.5
        for some in [labels] if with_both else [[one] for one in labels]:
            yield from changed("TableMapper", 60.0, _once(partial(given_up, labels=some)))
        yield from self.build((yield from self.opened(NEW)))

    def run(self) -> dict[str, int]:
        self.schedule.run()
        states = self.memory.open(NEW)._classes.catalogue.states
        if left := [label for label in ("Colors", "Shades") if states[label].number is UNSET]:  # (a builder was killed)
            self.memory.open(NEW).run(changed("TableMapper", 60.0, partial(given_up, labels=left)))
        return super().run()


def _once(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a change of the catalogue that is done once: a builder that comes later begins once more."""
    tries = iter([change])
    return lambda held: next(tries, lambda _: None)(held)


@pytest.mark.one_python
@pytest.mark.long
def test_what_is_built_anew_beside_writers_is_complete(full_size: bool) -> None:
    counts = played(Anew, range(2_000 if full_size else 6))
    assert min(counts.values()) > 0, counts


def _not_emptied(patch: Patch) -> None:
    """What the groups held before is still in them."""

    def nothing(*_: Any) -> Effects[None]:
        yield from ()

    patch.setattr(group_writer.GroupWriter, "emptied", nothing)


def _emptied_late(patch: Patch) -> None:
    """Others begin to add while a builder may still be emptying."""
    plain = builds._moved
    patch.setattr(
        builds,
        "_moved",
        lambda held, job, before, after: plain(held, job, before, "building" if before == "disabled" else after),
    )
    patch.setattr(Builder, "step", _without_waits(Builder.step, "disabled"))


def _emptied_at_once(patch: Patch) -> None:
    """A builder empties groups while others add to them who do not know of it."""
    patch.setattr(Builder, "step", _without_waits(Builder.step, "disabled"))


def _without_waits(plain: Any, state: str) -> Any:
    def step(self: Builder, most: int, labels: Any) -> Any:
        known = yield from self.current.look()
        times = self.outbox.times
        if any(one.state == state for one in known.catalogue.states.values()):
            self.outbox.times = attrs.evolve(times, look=-times.deadline - times.request)  # (nothing is waited for)
        try:
            return (yield from plain(self, most, labels))
        finally:
            self.outbox.times = times

    return step


def _added_to_what_is_past(patch: Patch) -> None:
    """What an intent adds to an earlier build is added to the one of now."""
    plain = intent_execution.carry_out

    def carry_out(intents: Any, known: Any, *rest: Any) -> Any:
        now = {intent_execution.number_of(name)[0]: name for name in known.aggregates}
        for intent in intents:
            intent.deltas = [
                type(one)(now.get(intent_execution.number_of(one.label)[0], one.label), *_rest(one))
                for one in intent.deltas
            ]
        return plain(intents, known, *rest)

    for room in (intent_execution, recovery):
        patch.setattr(room, "carry_out", carry_out)


def _rest(one: Any) -> tuple[Any, ...]:
    return one.partition, one.row, one.packed


def _one_mark_for_all(patch: Patch) -> None:
    """An entity that was in an earlier build counts as if it were in the one of now."""
    patch.setattr(
        open_classes,
        "BuildMark",
        lambda name, built, sets, values=None: BuildMark(name.partition("#")[0], built, sets, values),
    )


MUTANTS = {
    one.__name__: one
    for one in (_not_emptied, _emptied_late, _emptied_at_once, _added_to_what_is_past, _one_mark_for_all)
}


@pytest.mark.one_python
@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises(AssertionError):
        played(Anew, range(300))


# ---------------------------------------------------------------------------------------------- what a user calls


def crew() -> tuple[Clocked, tm.Store]:
    memory = Clocked(1)
    store = tm.Store(memory.open(compile_schema([Member, Board])))
    store.insert_many([Member("a", f"m{n}", ["red", "blue"][n % 2], float(n)) for n in range(20)])
    return memory, store


def lose(memory: Memory, table: str, key: tuple[str, str]) -> Stored:
    memory.tables[table] = dict(memory.tables[table])
    return memory.tables[table].pop(key)


def test_groups_elsewhere_are_built_anew_by_a_repair() -> None:
    memory, store = crew()
    lost = lose(memory, "Boards", ("red", ""))
    memory.tables["Boards"]["green", ""] = lost
    assert len(store.check().problems) >= 2
    report = repaired(store)
    assert report.ok, report
    assert {(one.kind, one.key) for one in report.repaired if not one.key[2:]} == {
        ("missing", ("red", "")),
        ("dangling", ("green", "")),
    }
    assert store.check().ok
    assert store.get(Board.key("red")) == Board("red", 10, 90.0, 18.0)
    assert store.get(Board.key("green")) is None
    store.insert(Member("a", "new", "red", 100.0))
    store.delete(Member.key("a", "m0"))
    assert store.get(Board.key("red")) == Board("red", 10, 190.0, 100.0)
    assert store.check().ok


def test_a_repair_of_what_is_right_gives_nothing_up() -> None:
    memory, store = crew()
    sent = len(memory.sent)
    assert store.repair().repaired == ()
    assert len(memory.sent) - sent < 10
    write_again(store)
    assert store.check().ok


def test_groups_are_not_read_while_they_are_built_anew_by_a_program_that_only_reads_them() -> None:
    memory, store = crew()
    reader = tm.Store(memory.open(compile_schema([Member, Board])))
    assert reader.get(Board.key("red")) is not None
    lose(memory, "Boards", ("red", ""))
    store._engine.run(changed("TableMapper", 60.0, partial(given_up, labels=["Board"])))
    memory.now += TIMES.look + 0.1
    with pytest.raises(tm.NotReady, match=r"Board: it must be built again; call store\.build\(\)"):
        reader.get(Board.key("red"))
    states = {(one.where, one.state) for one in reader.status().objects if one.state != "ready"}
    assert states == {("Board", "disabled"), ("Board.by_members", "disabled")}
    assert reader.query(Member).where(Member.crew == "a").count() == 20
    assert set(reader.build().built) == {"Board", "Board.by_members"}  # (whoever builds goes on with it)
    assert reader.get(Board.key("red")) == store.get(Board.key("red")) == Board("red", 10, 90.0, 18.0)
    assert store.check().ok


def test_a_new_index_on_groups_is_there_once_they_are_built_anew() -> None:
    def models(*, indexed: bool) -> Any:
        members = {"crew": str, "id": int}
        Member = entity("Member", "Members", members, tm.Key[str, int](partition="{crew}", row=("member", "{id}")))
        here = {"by_members": tm.Index[str, int](partition="{crew}", row="{members}")} if indexed else {}
        Crew = grouped("Crew", Member, "crew", "Members", row="total", members=tm.count(), **here)
        there = {"by_last": tm.Index[int](partition="crews", row="{last}")} if indexed else {}
        lasts = {"crew": (str, tm.group_by(Member.crew)), "last": (int | None, tm.max(Member.id))}
        return (
            Member,
            Crew,
            aggregate("Last", Member, lasts, tm.Key[str](partition="crews", row="{crew}"), "Lasts", **there),
        )

    memory = Clocked(1)
    older_models = models(indexed=False)
    older = tm.Store(memory.open(compile_schema(older_models)))
    older.insert_many([older_models[0](crew, n) for crew in "ab" for n in range(5 if crew == "a" else 9)])
    newer_models = models(indexed=True)
    _, crews, lasts = newer_models
    newer = tm.Store(memory.open(compile_schema(newer_models)))
    older.insert(older_models[0]("b", 20))  # (it does not know yet)
    with pytest.raises(tm.NotReady, match="Last"):
        list(newer.query(lasts.by_last()))
    assert set(newer.build().built) == {"Crew", "Crew.by_members", "Last", "Last.by_last"}
    older.delete(older_models[0].key("a", 4))
    assert [(one.crew, one.last) for one in newer.query(lasts.by_last())] == [("a", 3), ("b", 20)]
    assert [one.members for one in newer.query(crews.by_members("b"))] == [10]
    assert older.get(older_models[2].key("a")).last == 3
    assert newer.check().ok


def test_what_ever_was_stays() -> None:
    Highest = grouped("Highest", Member, "team", members=tm.count(), most=(float | None, tm.max_ever(Member.score)))
    memory = Clocked(1)
    store = tm.Store(memory.open(compile_schema([Member, Highest])))
    store.insert_many([Member("a", f"m{n}", "red", float(n)) for n in range(5)])
    store.insert(Member("a", "x", "blue", 7.0))
    store.delete(Member.key("a", "m4"))
    store.delete(Member.key("a", "x"))
    before = [store.get(Highest.key(team)) for team in ("red", "blue")]
    assert before == [Highest("red", 4, 4.0), Highest("blue", 0, 7.0)]
    store._engine.run(changed("TableMapper", 60.0, partial(given_up, labels=["Highest"])))
    assert store.build().done
    assert [store.get(Highest.key(team)) for team in ("red", "blue")] == before
    assert store.check().ok


def test_a_group_that_others_write_all_the_time_is_left() -> None:
    memory, store = crew()
    lose(memory, "Boards", ("red", ""))
    engine = memory.open(compile_schema([Member, Board]))
    numbers, pass_by = itertools.count(), memory.pass_by

    def write(seconds: float) -> None:
        pass_by(seconds)
        store.insert(Member("b", f"n{next(numbers)}", "red", 1.0))

    engine.driver._sleep = write  # type: ignore[attr-defined]
    report = tm.Store(engine).repair()
    assert {one.key[:2] for one in report.remaining} == {("red", "")}
    assert "call store.freeze(), and then repair" in report.remaining[0].detail
    store.freeze()
    assert repaired(store).ok
    store.unfreeze()
    assert store.check().ok


def test_a_new_index_has_the_groups_of_which_only_what_ever_was_is_left() -> None:
    def best(**indexes: Any) -> Any:
        members = {"crew": (str, tm.group_by(Member.crew)), "ever": (float | None, tm.max_ever(Member.score))}
        return aggregate("Best", Member, members, tm.Key[str](partition="{crew}"), "Bests", **indexes)

    memory = Clocked(0.0)
    store = tm.Store(memory.open(compile_schema([Member, best()])))
    store.insert_many([Member("a", "1", "red", 5.0), Member("b", "1", "red", 1.0)])
    store.delete(Member.key("b", "1"))
    here, there = tm.Index[str, float](partition="{crew}", row="{ever}"), tm.Index[float](partition="all", row="{ever}")
    after = best(by_here=here, by_there=there)
    store = tm.Store(memory.open(compile_schema([Member, after])))
    store.build()
    assert [one.crew for one in store.query(after).where(after.ever >= 0).order_by(after.ever)] == ["b", "a"]
    assert store.query(after.by_here("b", 1.0)).count() == 1
    assert store.check().ok


def test_marks_of_builds_that_are_no_more_go_with_the_next_write() -> None:
    memory, store = crew()
    for _ in range(3):
        store._engine.run(changed("TableMapper", 60.0, partial(given_up, labels=["Board"])))
        assert store.build().done
    store.merge(Member.key("a", "m0"), score=5.0)
    texts = [str(row.typed) for key, row in memory.tables["Members"].items() if key[1] == "m0"]
    assert texts[0].count("=Board#") == 1
    assert store.check().ok


# ---------------------------------------------------------------------------------------------- rules of time zones

OSLO, HELSINKI = ZoneInfo("Europe/Oslo"), ZoneInfo("Europe/Helsinki")
TIMES_OF_SALES = [datetime(2024, 3, 30, 12, tzinfo=UTC) + n * timedelta(minutes=50) for n in range(60)]


@pytest.fixture
def rules() -> Iterator[Callable[..., None]]:
    """Return a function after which Oslo has the rules of a zone, of a release."""
    yield lambda zone, release: rules_from(lambda name: zone if name == "Europe/Oslo" else ZoneInfo(name), release)
    rules_from(ZoneInfo)


def _at_night(sale: Any) -> Any:
    return sale.at.truncate("%H", "Europe/Oslo") == "02"


def sales() -> Any:
    """Return the classes as a program declares them that begins now: what local times make is in three places."""
    nights = tm.Index[str](partition=("at night", "{shop}"), where=_at_night)
    sale = sold(night=tm.Index[str](partition="{shop}", where=_at_night), nights=nights)
    members = {"day": (date, tm.group_by(sale.at.date("Europe/Oslo"))), "sales": (int, tm.count())}
    per_day = aggregate("PerDay", sale, members, tm.Key[date](partition="{day}"))
    members = {"shop": (str, tm.group_by(sale.shop)), **members}
    key = tm.Key[str, date](partition="{shop}", row=("day", "{day}"))
    by_sales = tm.Index[str, int](partition="{shop}", row="{sales}")
    return sale, per_day, aggregate("PerShop", sale, members, key, "Sales", by_sales=by_sales)


def days(zone: tzinfo) -> dict[date, int]:
    return Counter(at.astimezone(zone).date() for at in TIMES_OF_SALES)


def assert_by_rules_of(zone: tzinfo, store: tm.Store, models: Any) -> None:
    sale, per_day, per_shop = models
    wanted = days(zone)
    assert {one.day: one.sales for one in store.query(per_day).allow_scan()} == wanted
    assert {one.day: one.sales for one in store.query(per_shop).where(per_shop.shop == "x")} == wanted
    assert [one.sales for one in store.query(per_shop.by_sales("x"))] == sorted(wanted.values())
    at_night = [at for at in TIMES_OF_SALES if at.astimezone(zone).hour == 2]
    assert [one.at for one in store.query(sale.night("x"))] == at_night
    assert [one.at for one in store.query(sale.nights("x"))] == at_night
    assert store.check().ok, str(store.check())


def test_what_local_times_make_is_built_anew_by_newer_rules_of_their_zone(rules: Any) -> None:
    memory = Clocked(1)
    rules(OSLO, "2024a")
    models = sales()
    older = tm.Store(memory.open(compile_schema(models)))
    older.insert_many(models[0]("x", at) for at in TIMES_OF_SALES)
    assert_by_rules_of(OSLO, older, models)
    rules(HELSINKI, "2025a")
    newer_models = sales()
    newer = tm.Store(memory.open(compile_schema(newer_models)))
    with pytest.raises(tm.NotReady, match="PerDay"):
        newer.get(newer_models[1].key(date(2024, 3, 30)))
    report = newer.build()
    assert report.done
    assert set(report.built) == {"Sale.night", "Sale.nights", "PerDay", "PerShop", "PerShop.by_sales"}
    assert_by_rules_of(HELSINKI, newer, newer_models)
    # A program with the older rules can read what does not depend on them, and writes nothing.
    rules(OSLO, "2024a")
    memory.now += 10
    older.get(models[0].key("x", TIMES_OF_SALES[0]))
    with pytest.raises(
        tm.SchemaMismatch, match=r"maintained by newer \(2025a\) rules of Europe/Oslo .* update its time zones"
    ):
        older.insert(models[0]("y", TIMES_OF_SALES[0]))
    with pytest.raises(tm.NotReady, match="other rules of a time zone"):
        older.get(models[1].key(date(2024, 3, 30)))
    restarted_models = sales()
    restarted = tm.Store(memory.open(compile_schema(restarted_models)))
    with pytest.raises(tm.SchemaMismatch, match="store.repair"):
        restarted.insert(restarted_models[0]("y", TIMES_OF_SALES[0]))
    assert restarted.repair().ok  # (who asks for it gets the rules of here)
    assert_by_rules_of(OSLO, restarted, restarted_models)


def test_the_same_rules_give_nothing_up(rules: Any) -> None:
    memory = Clocked(1)
    rules(OSLO, "2024a")
    store = tm.Store(memory.open(compile_schema(sales())))
    rules(OSLO, "2025a")
    assert tm.Store(memory.open(compile_schema(sales()))).status().generation == store.status().generation
