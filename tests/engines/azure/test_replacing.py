"""Migrations of an account that copy entities: into new tables, which take the place of the old ones while nobody writes."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.service import Find, Lost, Refused

from ...classes import entity
from .memory import Memory, Options
from .place import AzurePlace


def _old() -> Any:
    class User(tm.Entity, table="Users"):
        tenant: tm.Field[str]
        number: tm.Field[int]
        name: tm.Field[str]
        age: tm.Field[str | None]

        key = tm.Key[str, int](partition="{tenant}", row="{number}")
        by_name = tm.Index[str](partition="{name}", include=("age",))
        by_age = tm.Index[str, str](partition="{tenant}", row="{age}")

    class Team(tm.Aggregate, of=User, table="Teams"):
        tenant: tm.Field[str] = tm.group_by(User.tenant)
        users: tm.Field[int] = tm.count()
        key = tm.Key[str](partition="{tenant}")

    class Note(tm.Entity, table="Notes"):
        id: tm.Field[str]
        text: tm.Field[str]
        key = tm.Key[str](partition="{id}")
        by_text = tm.Index[str](partition="{text}")

    return SimpleNamespace(User=User, Team=Team, Note=Note, ALL=[User, Team, Note])


def _new() -> Any:
    class User(tm.Entity, table="Users"):
        tenant: tm.Field[str]
        number: tm.Field[int]
        name: tm.Field[str]
        age: tm.Field[int | None]

        key = tm.Key[str, str, int](partition="{tenant}", row=("{name}", "{number}"))
        by_name = tm.Index[str](partition="{name}", include=("age",))
        by_age = tm.Index[str, int](partition="{tenant}", row="{age}")

    class Team(tm.Aggregate, of=User, table="Teams"):
        tenant: tm.Field[str] = tm.group_by(User.tenant)
        users: tm.Field[int] = tm.count()
        years: tm.Field[int | None] = tm.sum(User.age)
        key = tm.Key[str](partition="{tenant}")

    return SimpleNamespace(User=User, Team=Team, Note=Old.Note, ALL=[User, Team, Old.Note])


Old = _old()
New = _new()


@tm.migration(after=None, old=Old.ALL, new=New.ALL)
def ages(m: tm.Migration) -> None:
    m.rekey(Old.User, New.User)
    m.convert(Old.User.age, New.User.age, lambda age: None if age is None else int(age))


def user(number: int) -> Any:
    return Old.User("abc"[number % 3], number, f"n{number % 7}", str(20 + number % 5) if number % 4 else None)


@pytest.fixture
def place() -> Any:
    place = AzurePlace(memory=Memory(), still=True)
    with tm.open(place, models=Old.ALL) as store:
        store.insert_many(map(user, range(30)))
        store.insert_many([Old.Note(f"n{n}", f"t{n % 3}") for n in range(5)])
    return place


def seen(place: Any) -> Any:
    """Return what the new classes hold, after everything is found right."""
    with tm.open(place, models=New.ALL) as store:
        users = list(store.query(New.User).allow_scan())
        assert [report for report in [store.check()] if not report.ok] == []
        for one in users:
            assert store[one.key] == one
            assert one in list(store.query(New.User.by_name(one.name)))
            if one.age is not None:
                assert one in list(store.query(New.User.by_age(one.tenant, one.age)))
        teams = {one.tenant: (one.users, one.years) for one in store.query(New.Team).allow_scan()}
        assert teams == {
            tenant: (len(some), sum(ages) if (ages := [one.age for one in some if one.age is not None]) else None)
            for tenant in "abc"
            if (some := [one for one in users if one.tenant == tenant])
        }
        assert store.query(New.Note).allow_scan().count() == 5
        return sorted((one.tenant, one.number, one.name, one.age) for one in users)


def converted(users: Any) -> Any:
    return sorted((one.tenant, one.number, one.name, None if one.age is None else int(one.age)) for one in users)


def test_entities_are_converted_and_the_old_version_ends(place: Any) -> None:
    with tm.open(place, models=Old.ALL) as old:
        report = tm.migrate(place, [ages])
        assert (report.applied, report.entities, report.ok) == (("ages",), 30, True)
        assert {(step.old_version, step.reversible) for step in report.plan} == {("stops", False)}
        old._engine.current._looked = -1e9  # type: ignore[attr-defined]
        with pytest.raises(tm.SchemaMismatch, match="ages"):
            old.insert(user(50))
    assert seen(place) == converted(map(user, range(30)))
    assert tm.migrate(place, [ages]).applied == ()
    with pytest.raises(tm.SchemaMismatch, match="ages"):
        tm.open(place, models=Old.ALL)


# ---------------------------------------------------------------------------------------------- beside writers


class Watched(Memory):
    """A service that calls a function before each request of a run; what that sends itself is not counted."""

    number = 0
    each: Callable[[int, Any], None] | None = None

    def send(self, request: Any) -> Any:
        each, self.each = self.each, None
        if each is not None:
            self.number += 1
            try:
                each(self.number, request)
            finally:
                self.each = self.each or each
        return super().send(request)


class Timed(AzurePlace):
    """A place whose programs have the time of the service."""

    def _service(self, clock: Callable[[], int] | None = None) -> dict[str, Any]:
        memory = self.memory
        assert memory is not None

        def sleep(seconds: float) -> None:
            memory.ahead += seconds

        return {**super()._service(clock), "sleep": sleep, "monotonic": lambda: time.monotonic() + memory.ahead}


def filled(memory: Memory, users: int = 12, kind: Any = AzurePlace) -> Any:
    place: Any = kind(memory=memory, still=True)
    with tm.open(place, models=Old.ALL) as store:
        store.insert_many(map(user, range(users)))
        store.insert_many([Old.Note(f"n{n}", f"t{n % 3}") for n in range(5)])
    return place


@pytest.mark.parametrize("seed", range(5))
def test_what_programs_write_until_they_may_only_read_is_converted_too(seed: int) -> None:
    rng, held = random.Random(seed), {number: user(number) for number in range(12)}
    memory, refused, written = Watched(), 0, 0
    place = filled(memory, kind=Timed)
    with tm.open(place, models=Old.ALL) as old:

        def write(number: int, request: object) -> None:
            nonlocal refused, written
            key, one = rng.randrange(20), user(rng.randrange(20) * 100 + rng.randrange(20))
            one = Old.User("abc"[key % 3], key, one.name, one.age)
            try:
                match rng.randrange(3):
                    case 0:
                        old.upsert(one)
                        held[key] = one
                    case 1 if key in held:
                        old.delete(held[key].key)
                        del held[key]
                    case 2 if key in held:
                        old.merge(one.key, age=one.age)
                        held[key] = Old.User(one.tenant, key, held[key].name, one.age)
                    case _:
                        return
                written += 1
            except tm.StoreLocked:
                refused += 1
            except tm.SchemaMismatch as error:
                assert "ages" in str(error)

        memory.each = write
        assert tm.migrate(place, [ages]).ok
        memory.each = None
    assert written > 20
    assert refused > 5
    assert seen(place) == converted(held.values())


def coded(age: type[Any], *, unique: bool = True) -> Any:
    by_code = tm.Index[str](partition="{code}", unique=unique)
    return entity("Item", "Items", {"id": int, "code": str, "age": age}, tm.Key[int](partition="{id}"), by_code=by_code)


@pytest.mark.parametrize("seed", range(4))
def test_unique_values_may_move_all_the_time(seed: int) -> None:
    old, new = coded(str), coded(int)

    @tm.migration(after=None, old=[old], new=[new])
    def go(m: tm.Migration) -> None:
        m.convert(old.age, new.age, int)

    rng, memory, refused = random.Random(seed), Watched(Options(pages=2)), 0
    codes = {number: f"c{number}" for number in range(8)}
    place: Any = Timed(memory=memory, still=True)
    with tm.open(place, models=[old]) as store:
        store.insert_many([old(number, code, "7") for number, code in codes.items()])

        def move(number: int, request: object) -> None:
            nonlocal refused
            for _ in range(4):
                one = rng.randrange(8)
                (free,) = {f"c{number}" for number in range(9)} - {*codes.values()}
                try:
                    store.merge(old.key(one), code=free)
                    codes[one] = free
                except (tm.StoreLocked, tm.SchemaMismatch):
                    refused += 1
                    return

        memory.each = move
        assert tm.migrate(place, [go]).ok
        memory.each = None
    assert refused
    with tm.open(place, models=[new]) as store:
        assert store.check().ok
        assert {one.id: one.code for one in store.query(new).allow_scan()} == codes


def leftovers(memory: Memory) -> list[str]:
    """Return the tables that a run made, and that the catalogue does not have."""
    with tm.open(AzurePlace(memory=memory, still=True), models=None, read_only=True) as store:  # type: ignore[arg-type]
        known = store._engine.current.known  # type: ignore[attr-defined]
    names = {*known.names.values(), *(name for entry in known.catalogue.history for name in entry.kept)}
    return [name for name in memory.tables if re.search("x[0-9a-f]{8}$", name) and name not in names]


class Ended(Exception):
    """The process ended."""


@pytest.mark.parametrize("executed", [False, True])
def test_a_run_that_ended_at_any_request_is_begun_anew(executed: bool, full_size: bool) -> None:
    for at in range(1 + executed, 10_000, 1 if full_size else 11):
        memory = Watched()
        place = filled(memory)
        count = 0

        def end(number: int, request: Any, at: int = at, memory: Watched = memory) -> None:
            nonlocal count
            count = number
            if number == at and executed:
                Memory.send(memory, request)
            if number >= at:
                raise KeyboardInterrupt

        memory.each = end
        try:
            tm.migrate(place, [ages])
        except KeyboardInterrupt:
            memory.each = None
            memory.ahead += 61.0  # (until then it may go on)
            assert tm.migrate(place, [ages]).ok
        memory.each = None
        assert tm.status(place).frozen is None
        assert seen(place) == converted(map(user, range(12)))
        assert leftovers(memory) == []
        if count < at:
            assert at > 80
            return
    raise AssertionError


def test_a_run_that_ended_once_it_had_switched_leaves_nothing_after_it_is_contracted() -> None:
    memory = Watched()
    place = filled(memory)

    def end(number: int, request: Any) -> None:
        if [one.state for one in tm.status(place).history] == ["switched"]:
            raise KeyboardInterrupt

    memory.each = end
    with pytest.raises(KeyboardInterrupt):
        tm.migrate(place, [ages])
    memory.each = None
    assert tm.migrate(place, [ages], contract=True).contracted == ("ages",)
    assert leftovers(memory) == []
    assert seen(place) == converted(map(user, range(12)))


def test_an_answer_that_is_lost_changes_nothing(full_size: bool) -> None:
    for at in range(3, 10_000, 1 if full_size else 17):
        memory = Watched()
        place = filled(memory, 6)
        count = 0

        def lose(number: int, request: Any, at: int = at, memory: Watched = memory) -> None:
            nonlocal count
            count = number
            if number == at:
                Memory.send(memory, request)
                raise Lost("cut")

        memory.each = lose
        assert tm.migrate(place, [ages]).ok
        memory.each = None
        assert seen(place) == converted(map(user, range(6)))
        assert leftovers(memory) == []
        if count < at:
            assert at > 80
            return
    raise AssertionError


def test_of_two_runs_at_once_the_second_waits_for_the_first(place: Any) -> None:
    memory = Watched()
    place = filled(memory, kind=Timed)

    def begin(number: int, request: Any) -> None:
        if number == 60:  # (it is about it)
            sent = len(memory.sent)
            with pytest.raises(Ended):
                tm.migrate(waiting, [ages])
            assert slept == 3
            assert len([one for one in memory.sent[sent:] if isinstance(one, Find) and one.table == "Users"]) == 1

    slept = 0

    def wait(seconds: float) -> None:
        nonlocal slept
        slept += 1
        if slept == 3:
            raise Ended

    class Waiting(Timed):
        def migrations(self, **_: Any) -> Any:
            engine = Timed.migrations(self)
            engine._driver._sleep = wait
            return engine

    waiting: Any = Waiting(memory=memory, still=True)
    memory.each = begin
    assert tm.migrate(place, [ages]).applied == ("ages",)
    memory.each = None
    assert slept == 3
    assert tm.migrate(waiting, [ages]).applied == ()
    assert seen(place) == converted(map(user, range(12)))


def test_a_run_that_another_one_took_for_ended_ends(place: Any) -> None:
    memory = Watched()
    place = filled(memory, kind=Timed)
    reports = []

    def begin_too(number: int, request: Any) -> None:
        if number == 40:
            memory.ahead += 61.0  # (it has stood still for a minute)
            reports.append(tm.migrate(place, [ages]))

    memory.each = begin_too
    reports.append(tm.migrate(place, [ages]))
    memory.each = None
    assert [report.applied for report in reports] == [("ages",), ()]
    assert all(report.ok for report in reports)
    assert seen(place) == converted(map(user, range(12)))
    assert leftovers(memory) == []


def test_programs_that_are_let_write_too_early_lose_nothing() -> None:
    memory = Watched()
    place = filled(memory)
    thawed = 0
    with tm.open(place, models=Old.ALL) as old:

        def thaw(number: int, request: Any) -> None:
            nonlocal thawed
            if thawed < 2 and tm.status(place).frozen is not None and number % 5 == 0:
                thawed += 1
                old.unfreeze()
                old.insert(user(100 + thawed))

        memory.each = thaw
        assert tm.migrate(place, [ages]).ok
        memory.each = None
    assert thawed == 2
    assert seen(place) == converted(map(user, [*range(12), 101, 102]))


def test_pairs_that_programs_write_while_they_are_copied_do_not_stop_it() -> None:
    key = tm.Key[str, int](partition="{p}", row="{id}")
    name = entity("Name", "Names", {"p": str, "id": int, "name": str}, key)
    size = entity("Size", "Sizes", {"p": str, "id": int, "size": int}, tm.Key[str, int](partition="{p}", row="{id}"))
    members = {"p": str, "id": int, "name": str, "size": int}
    both = entity("Both", "Boths", members, tm.Key[str, int](partition="{p}", row="{id}"))

    @tm.migration(after=None, old=[name, size], new=[both])
    def go(m: tm.Migration) -> None:
        m.join(name, size, lambda a, b: both(a.p, a.id, a.name, b.size), into=both)

    memory, written = Watched(), 0
    place: Any = Timed(memory=memory, still=True)
    with tm.open(place, models=[name, size]) as store:

        def write(number: int, request: object) -> None:
            nonlocal written
            with suppress(tm.StoreLocked, tm.SchemaMismatch):
                store.insert(name("a", written, "n"))
                store.insert(size("a", written, written))
                written += 1

        memory.each = write
        assert tm.migrate(place, [go]).ok
        memory.each = None
    with tm.open(place, models=[both]) as store:
        assert store.query(both).allow_scan().count() == written > 20


@pytest.mark.parametrize("contract", [False, True])
def test_a_program_whose_classes_stay_the_same_reads_the_new_tables(contract: bool) -> None:
    before, after = coded(str), coded(str)

    @tm.migration(after=None, old=[before], new=[after])
    def go(m: tm.Migration) -> None:
        m.convert(before.age, after.age, lambda age: age + "0")

    memory = Watched()
    place: Any = Timed(memory=memory, still=True)
    with tm.open(place, models=[before]) as store, tm.open(place, models=[before]) as other:
        store.insert(before(1, "c1", "7"))

        def read(number: int, request: Any) -> None:
            assert other[before.key(1)].age in ("7", "70")

        memory.each = read
        tm.migrate(place, [go], contract=contract)
        memory.each = None
        memory.ahead += 11.0
        assert other[before.key(1)].age == "70"


# ---------------------------------------------------------------------------------------------- what stops it, and afterwards


def test_entities_that_cannot_be_converted_stop_it_and_nothing_has_changed(place: Any) -> None:
    with tm.open(place, models=Old.ALL) as old:
        old.insert(Old.User("a", 90, "n", "old"))
        with pytest.raises(tm.MigrationStopped, match="1 entity cannot be converted") as caught:
            tm.migrate(place, [ages])
        assert [(fault.where, fault.key) for fault in caught.value.report.faults] == [("User", ("a", "b90"))]
        assert caught.value.report.applied == ()
        assert leftovers(place.memory) == []
        status = tm.status(place)
        assert (status.history, status.frozen) == ((), None)
        old.merge(Old.User.key("a", 90), age="90")
        assert tm.migrate(place, [ages], dry_run=True).ok
    assert tm.migrate(place, [ages]).ok
    assert seen(place) == converted([*map(user, range(30)), Old.User("a", 90, "n", "90")])


def test_what_stops_it_is_told_though_the_service_is_gone_by_then(place: Any) -> None:
    memory, fails = Watched(), True
    place = filled(memory)

    def refuse(number: int, request: Any) -> None:
        raise Refused(403, "AuthorizationFailure")

    def years(age: Any) -> Any:
        if fails:
            memory.each = refuse
            raise KeyboardInterrupt
        return None if age is None else int(age)

    @tm.migration(after=None, old=Old.ALL, new=New.ALL)
    def ages(m: tm.Migration) -> None:
        m.rekey(Old.User, New.User)
        m.convert(Old.User.age, New.User.age, years)

    with pytest.raises(KeyboardInterrupt) as caught:
        tm.migrate(place, [ages])
    assert "the store may be frozen until ages runs again" in caught.value.__notes__[0]
    memory.each, fails = None, False
    memory.ahead += 61.0
    assert tm.migrate(place, [ages]).ok
    assert leftovers(memory) == []


def test_duplicates_of_a_unique_index_stop_a_script_unless_it_resolves_them() -> None:
    old, new = coded(str), coded(int)

    @tm.migration(after=None, old=[old], new=[new])
    def go(m: tm.Migration) -> None:
        m.convert(old.age, new.age, int)

    @tm.migration(after=None, old=[old], new=[new])
    def first(m: tm.Migration) -> None:
        m.convert(old.age, new.age, int)
        m.resolve(new.by_code, lambda some: some[:1])

    memory = Memory()
    place: Any = Timed(memory=memory, still=True)
    bare = entity("Item", "Items", {"id": int, "code": str, "age": str}, tm.Key[int](partition="{id}"))
    with tm.open(place, models=[bare]) as store:
        store.insert_many([bare(number, f"c{number // 2}", "7") for number in range(8)])
    with pytest.raises(tm.UniqueViolation, match="4 duplicate values"):
        tm.open(place, models=[old])
    began = memory.ahead
    with pytest.raises(tm.MigrationStopped, match="4 entities cannot be converted"):
        tm.migrate(place, [go])
    assert memory.ahead - began < 20.0  # (else it froze the store, and waited until every program knew)
    assert len(tm.migrate(place, [go], dry_run=True).faults) == 4
    assert tm.migrate(place, [first], dry_run=True).ok
    assert tm.migrate(place, [first]).ok
    with tm.open(place, models=[new]) as store:
        assert [one.id for one in store.query(new).allow_scan()] == [0, 2, 4, 6]
        assert store.check().ok


def test_duplicates_are_resolved() -> None:
    old, new = coded(str, unique=False), coded(int)

    @tm.migration(after=None, old=[old], new=[new])
    def go(m: tm.Migration) -> None:
        m.convert(old.age, new.age, int)
        m.resolve(new.by_code, lambda some: some[:1])

    place: Any = AzurePlace(memory=Memory(), still=True)
    with tm.open(place, models=[old]) as store:
        store.insert_many([old(number, f"c{number // 2}", "7") for number in range(8)])
    assert tm.migrate(place, [go], dry_run=True).ok
    assert tm.migrate(place, [go]).ok
    with tm.open(place, models=[new]) as store:
        assert store.check().ok
        assert [one.id for one in store.query(new).allow_scan()] == [0, 2, 4, 6]


def test_a_dry_run_reads_the_account_with_the_timeout(place: Any) -> None:
    given = []

    class Noting(AzurePlace):
        def open(self, schema: Any, **options: Any) -> Any:
            given.append(options["timeout"])
            return AzurePlace.open(self, schema, **options)

    noting: Any = Noting(memory=place.memory, still=True)
    assert tm.migrate(noting, [ages], dry_run=True, timeout=7.0).ok
    assert given == [7.0]


def test_the_old_tables_go_when_it_is_contracted(place: Any) -> None:
    with tm.open(place, models=Old.ALL) as old:
        tm.migrate(place, [ages])
        assert place.memory.entities("Users")
        report = tm.migrate(place, [ages], contract=True)
        assert report.contracted == ("ages",)
        assert not {"Users", "Teams", "UsersByName"} & place.memory.tables.keys()
        with pytest.raises(tm.SchemaMismatch, match="ages"):
            old.get(Old.User.key("a", 0))
        with pytest.raises(tm.SchemaMismatch, match="ages"):
            list(old.query(Old.User).where(Old.User.tenant == "a"))
    assert tm.migrate(place, [ages], contract=True).contracted == ()
    assert seen(place) == converted(map(user, range(30)))


def test_a_table_that_was_replaced_is_not_taken_for_another_class(place: Any) -> None:
    class Person(tm.Entity, table="People"):
        id: tm.Field[str]
        text: tm.Field[str]
        key = tm.Key[str](partition="{id}")

    class Other(tm.Entity, table="Notes"):
        id: tm.Field[str]
        key = tm.Key[str](partition="{id}")

    @tm.migration(after=None, old=[Old.Note], new=[Person])
    def people(m: tm.Migration) -> None:
        m.rename_class(Old.Note, Person)

    models = [Old.User, Old.Team, Person]
    tm.migrate(place, [people])
    with tm.open(place, models=models) as store:
        assert {one.text for one in store.query(Person).allow_scan()} == {"t0", "t1", "t2"}
    with pytest.raises(tm.SchemaMismatch, match='the table "Notes" has what people replaced: contract that first'):
        tm.open(place, models=[*models, Other])
    tm.migrate(place, [people], contract=True)
    with tm.open(place, models=[*models, Other]) as store:
        store.insert(Other("a"))
        tm.migrate(place, [people], contract=True)
        assert store[Other.key("a")] == Other("a")
        assert store.check().ok


def test_what_was_dropped_before_goes_with_the_tables_that_are_replaced(place: Any) -> None:
    class User(tm.Entity, table="Users"):
        tenant: tm.Field[str]
        number: tm.Field[int]
        name: tm.Field[str]
        age: tm.Field[str | None]
        key = tm.Key[str, int](partition="{tenant}", row="{number}")

    @tm.migration(after=None, old=Old.ALL, new=[User, Old.Note])
    def fewer(m: tm.Migration) -> None:
        m.drop(Old.User.by_name)
        m.drop(Old.User.by_age)
        m.drop(Old.Team)

    @tm.migration(after="fewer", old=[User, Old.Note], new=New.ALL)
    def years(m: tm.Migration) -> None:
        m.rekey(User, New.User)
        m.convert(User.age, New.User.age, lambda age: None if age is None else int(age))

    tm.migrate(place, [fewer, years])
    assert seen(place) == converted(map(user, range(30)))
    tm.migrate(place, [fewer, years], contract=True)
    assert not {"Users", "Teams", "UsersByName"} & place.memory.tables.keys()
    assert seen(place) == converted(map(user, range(30)))


def test_what_is_not_possible_is_refused_before_anything_is_sent(place: Any) -> None:
    with pytest.raises(tm.InvalidMigration, match="all at once on Azure Tables: leave out limit="):
        tm.migrate(place, [ages], limit=5)
    with tm.open(place, models=Old.ALL) as old:
        old.freeze()
        with pytest.raises(tm.StoreLocked, match="frozen"):
            tm.migrate(place, [ages])
        old.unfreeze()
    assert leftovers(place.memory) == []


def test_a_script_that_copied_is_not_undone(place: Any) -> None:
    class Note(tm.Entity, table="Notes"):
        id: tm.Field[str]
        text: tm.Field[str]
        key = tm.Key[str](partition="all", row="{id}")

    @tm.migration(after=None, old=[Old.Note], new=[Note])
    def together(m: tm.Migration) -> None:
        m.rekey(Old.Note, Note)

    tm.migrate(place, [together])
    with pytest.raises(
        tm.InvalidMigration, match="cannot be undone on Azure Tables yet: write a script that leads back"
    ):
        tm.migrate(place, [together], to="")


def test_a_store_is_not_frozen_by_two_at_once() -> None:
    memory = Watched()
    place = filled(memory)
    with tm.open(place, models=Old.ALL) as old:

        def freeze(number: int, request: Any) -> None:
            if number == 60:
                with pytest.raises(tm.StoreError, match="ages copies entities, and freezes the store itself"):
                    old.freeze()

        memory.each = freeze
        assert tm.migrate(place, [ages]).ok
        memory.each = None
    assert tm.status(place).frozen is None


def test_a_run_that_ended_is_abandoned_by_naming_where_to_go(place: Any) -> None:
    memory = Watched()
    place = filled(memory)

    def end(number: int, request: Any) -> None:
        if tm.status(place).frozen is not None:
            raise KeyboardInterrupt

    memory.each = end
    with pytest.raises(KeyboardInterrupt):
        tm.migrate(place, [ages])
    memory.each = None
    assert [one.state for one in tm.status(place).history] == ["running"]
    assert tm.migrate(place, [ages], to="").ok
    assert leftovers(memory) == []
    assert (tm.status(place).history, tm.status(place).frozen) == ((), None)
    with tm.open(place, models=Old.ALL) as old:
        old.insert(user(50))
        assert old.check().ok


def test_a_run_that_switches_while_it_is_abandoned_loses_nothing(place: Any) -> None:
    engines: list[Any] = []

    class Looking(AzurePlace):
        def migrations(self, **_: Any) -> Any:
            engines.append(AzurePlace.migrations(self))
            return engines[-1]

    memory = Watched()
    filled(memory)
    looking: Any = Looking(memory=memory, still=True)

    def look(number: int, request: Any) -> None:
        if number == 40:  # (it is under way)
            engines.append(AzurePlace.migrations(looking))

    memory.each = look
    assert tm.migrate(looking, [ages]).ok
    memory.each = None
    assert engines[-1].under_way() == "ages"
    engines[-1].discard("ages")
    assert seen(looking) == converted(map(user, range(12)))
    assert leftovers(memory) == []


@pytest.mark.parametrize("length", [40, 52, 56])
def test_each_table_has_a_new_one_of_its_own_however_long_its_name_is(length: int) -> None:
    def item(age: type[Any]) -> Any:
        members = {"id": str, "name": str, "age": age}
        indexes = {"by_name": tm.Index[str](partition="{name}"), "by_age": tm.Index[age](partition="{age}")}
        return entity("Item", "L" * length, members, tm.Key[str](partition="{id}"), **indexes)

    old, new = item(str), item(int)

    @tm.migration(after=None, old=[old], new=[new])
    def go(m: tm.Migration) -> None:
        m.convert(old.age, new.age, int)

    place: Any = AzurePlace(memory=Memory(), still=True)
    with tm.open(place, models=[old]) as store:
        store.insert_many([old(str(n), f"n{n}", str(n)) for n in range(5)])
    assert tm.migrate(place, [go]).ok
    with tm.open(place, models=[new]) as store:
        assert store.check().ok
        assert [one.id for one in store.query(new.by_age(3))] == ["3"]
        assert [one.id for one in store.query(new.by_name("n4"))] == ["4"]


def test_the_emulator_has_new_tables_after_it(connection: str) -> None:
    with tm.open(connection, models=Old.ALL) as old:
        old.insert_many(map(user, range(30)))
        old.insert_many([Old.Note(f"n{n}", f"t{n % 3}") for n in range(5)])
    report = tm.migrate(connection, [ages], contract=True)
    assert (report.applied, report.contracted, report.entities) == (("ages",), ("ages",), 30)
    assert seen(connection) == converted(map(user, range(30)))
