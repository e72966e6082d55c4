"""Migrations of an account that copy entities: into new tables, which take the place of the old ones while nobody writes."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.reserved_names import CATALOGUE
from tablemapper.engines.azure.tables.service import ErrorResponse, GroupTransaction, NoResponse, QueryEntities

from ...classes import aggregate, entity
from ...migrations.shapes import made, step
from .memory import Memory, Options
from .place import AheadWire, AzurePlace, TimedPlace


def user_of(age: Any, key: Any, **indexes: Any) -> Any:
    return entity("User", "Users", {"tenant": str, "number": int, "name": str, "age": age | None}, key, **indexes)


def team_of(users: Any, **measures: Any) -> Any:
    members = {"tenant": (str, tm.group_by(users.tenant)), "users": (int, tm.count()), **measures}
    return aggregate("Team", users, members, tm.Key[str](partition="{tenant}"), "Teams")


KEY = tm.Key[str, int](partition="{tenant}", row="{number}")
BY_NAME = tm.Index[str](partition="{name}", include=("age",))


def _old() -> Any:
    User = user_of(str, KEY, by_name=BY_NAME, by_age=tm.Index[str, str](partition="{tenant}", row="{age}"))
    Team = team_of(User)
    members = {"id": str, "text": str}
    Note = entity("Note", "Notes", members, tm.Key[str](partition="{id}"), by_text=tm.Index[str](partition="{text}"))
    return SimpleNamespace(User=User, Team=Team, Note=Note, ALL=[User, Team, Note])


def _new() -> Any:
    key = tm.Key[str, str, int](partition="{tenant}", row=("{name}", "{number}"))
    User = user_of(int, key, by_name=BY_NAME, by_age=tm.Index[str, int](partition="{tenant}", row="{age}"))
    Team = team_of(User, years=(int | None, tm.sum(User.age)))
    return SimpleNamespace(User=User, Team=Team, Note=Old.Note, ALL=[User, Team, Old.Note])


Old = _old()
New = _new()


def of(kind: Any) -> Callable[[Any], Any]:
    """Return the conversion of an age, if there is one."""
    return lambda age: None if age is None else kind(age)


@tm.migration(after=None, old=Old.ALL, new=New.ALL)
def ages(m: tm.Migration) -> None:
    m.rekey(Old.User, New.User)
    m.convert(Old.User.age, New.User.age, of(int), back=of(str))


def user(number: int) -> Any:
    return Old.User("abc"[number % 3], number, f"n{number % 7}", str(20 + number % 5) if number % 4 else None)


@attrs.frozen
class Way:
    """One way of the migration: forth, or back."""

    old: Any
    new: Any
    to: str | None

    def begin(self, place: Any, users: int) -> None:
        """Write some entities with the classes from which it leads."""
        with tm.open(place, models=Old.ALL) as store:
            store.insert_many(map(user, range(users)))
            store.insert_many([Old.Note(f"n{n}", f"t{n % 3}") for n in range(5)])
        if self.to is not None:
            assert tm.migrate(place, [ages]).ok

    def go(self, place: Any, **options: Any) -> tm.reports.MigrationReport:
        return tm.migrate(place, [ages], to=self.to, **options)

    def before(self, number: int) -> Any:
        """Return a user, of the class from which it leads."""
        return self._as(self.old, user(number))

    def after(self, users: Iterable[Any]) -> Any:
        """Return users in the form in which `seen` gives them."""
        return sorted(map(_values, [self._as(self.new, one) for one in users]))

    def _as(self, classes: Any, one: Any) -> Any:
        return classes.User(one.tenant, one.number, one.name, of(str if classes is Old else int)(one.age))

    def seen(self, place: Any) -> Any:
        """Return what the classes to which it leads hold, after everything is found right."""
        cls, team = self.new.User, self.new.Team
        with tm.open(place, models=self.new.ALL) as store:
            users = list(store.query(cls).allow_scan())
            assert [report for report in [store.check()] if not report.ok] == []
            for one in users:
                assert store[one.key] == one
                assert one in list(store.query(cls.by_name(one.name)))
                if one.age is not None:
                    assert one in list(store.query(cls.by_age(one.tenant, one.age)))
            assert {one.tenant: one.users for one in store.query(team).allow_scan()} == Counter(u.tenant for u in users)
            if team is New.Team:
                years = {one.tenant: one.years for one in store.query(team).allow_scan()}
                ages = {tenant: [u.age for u in users if u.tenant == tenant and u.age is not None] for tenant in years}
                assert years == {tenant: sum(some) if some else None for tenant, some in ages.items()}
            assert store.query(Old.Note).allow_scan().count() == 5
            return sorted(map(_values, users))


def _values(one: Any) -> Any:
    return one.tenant, one.number, one.name, "" if one.age is None else one.age


FORTH, BACK = Way(Old, New, None), Way(New, Old, "")
both_ways = pytest.mark.parametrize("way", [FORTH, BACK], ids=["forth", "back"])


@pytest.fixture
def place() -> Any:
    place = AzurePlace(memory=Memory(), still=True)
    FORTH.begin(place, 30)
    return place


def test_entities_are_converted_and_the_old_version_ends(place: Any) -> None:
    with tm.open(place, models=Old.ALL) as old:
        report = tm.migrate(place, [ages])
        assert (report.applied, report.entities, report.ok) == (("ages",), 30, True)
        assert {(step.old_version, step.reversible) for step in report.plan} == {("stops", True)}
        assert {step.entities for step in report.plan} == {30}
        old._engine.current.known.seen = -1e9  # type: ignore[attr-defined]
        with pytest.raises(tm.SchemaMismatch, match="ages"):
            old.insert(user(50))
    assert FORTH.seen(place) == FORTH.after(map(user, range(30)))
    assert tm.migrate(place, [ages]).applied == ()
    with pytest.raises(tm.SchemaMismatch, match="ages"):
        tm.open(place, models=Old.ALL)


# ---------------------------------------------------------------------------------------------- beside writers


class Watched(Memory):
    """A service that calls a function before each request of a run; what that sends itself is not counted."""

    number = 0
    each: Callable[[int, Any], None] | None = None

    def send(self, request: Any, *wait: float) -> Any:
        each, self.each = self.each, None
        if each is not None:
            self.number += 1
            try:
                each(self.number, request)
            finally:
                self.each = self.each or each
        return super().send(request)

    def end_once(self, holds: Callable[[], bool]) -> None:
        """Execute no request any more once something holds after a change of the catalogue."""
        ended = False

        def end(number: int, request: Any) -> None:
            nonlocal ended
            last = self.sent[-1]
            ended = ended or (isinstance(last, GroupTransaction) and last.table == CATALOGUE and holds())
            if ended:
                raise KeyboardInterrupt

        self.each = end

    @contextmanager
    def before_each(self, function: Callable[[int, Any], None]) -> Iterator[None]:
        self.each = function
        try:
            yield
        finally:
            self.each = None


def watched(users: int = 12, kind: Any = AzurePlace, way: Way = FORTH) -> tuple[Watched, Any]:
    """Return a service, and a place in it with some users."""
    memory = Watched()
    place: Any = kind(memory=memory, still=True)
    way.begin(place, users)
    return memory, place


@both_ways
@pytest.mark.parametrize("seed", range(2))
def test_what_programs_write_until_they_may_only_read_is_converted_too(seed: int, way: Way) -> None:
    rng, held = random.Random(seed), {number: way.before(number) for number in range(12)}
    memory, place = watched(kind=TimedPlace, way=way)
    refused = written = 0
    with tm.open(place, models=way.old.ALL) as old:

        def write(number: int, request: object) -> None:
            nonlocal refused, written
            key = rng.randrange(20)
            one = attrs.evolve(way.before(key), age=way.before(rng.randrange(20)).age)
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
                        held[key] = one
                    case _:
                        return
                written += 1
            except tm.StoreLocked:
                refused += 1
            except tm.SchemaMismatch as error:
                assert "ages" in str(error)

        with memory.before_each(write):
            assert way.go(place).ok
    assert written > 20
    assert refused > 5
    assert way.seen(place) == way.after(held.values())


def coded(age: type[Any], *, unique: bool = True) -> Any:
    by_code = tm.Index[str](partition="{code}", unique=unique)
    return entity("Item", "Items", {"id": int, "code": str, "age": age}, tm.Key[int](partition="{id}"), by_code=by_code)


@pytest.mark.parametrize("seed", range(2))
def test_unique_values_may_move_all_the_time(seed: int) -> None:
    old, new = coded(str), coded(int)

    go = made(new, old, step("convert", old.age, new.age, int), name="go")
    rng, memory, refused = random.Random(seed), Watched(Options(pages=2)), 0
    codes = {number: f"c{number}" for number in range(8)}
    place: Any = TimedPlace(memory=memory, still=True)
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

        with memory.before_each(move):
            assert tm.migrate(place, [go]).ok
    assert refused
    with tm.open(place, models=[new]) as store:
        assert store.check().ok
        assert {one.id: one.code for one in store.query(new).allow_scan()} == codes


def leftovers(memory: Memory) -> list[str]:
    """Return the tables that a run made, and that no catalogue has."""
    engine = AzurePlace(memory=memory, still=True).migrations()
    known = {*engine._driver.names().values(), *(name for one in engine.history() for name in one.kept)}
    return [name for name in memory.tables if re.search("x[0-9a-f]{8}$", name) and name not in known]


class Ended(Exception):
    """The process ended."""


@both_ways
@pytest.mark.parametrize("executed", [False, True])
def test_a_run_that_ended_at_any_request_is_begun_anew(executed: bool, way: Way, full_size: bool) -> None:
    for at in range(1 + executed + 8 * (way is BACK), 10_000, 1 if full_size else 17):
        memory, place = watched(way=way)
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
            way.go(place)
        except KeyboardInterrupt:
            memory.each = None
            memory.ahead += 61.0  # (until then it may go on)
            assert way.go(place).ok
        memory.each = None
        assert tm.status(place).frozen is None
        assert way.seen(place) == way.after(map(user, range(12)))
        assert leftovers(memory) == []
        if count < at:
            assert at > 60
            return
    raise AssertionError


def test_a_run_that_ended_once_it_had_switched_leaves_nothing_after_it_is_contracted() -> None:
    memory, place = watched()

    memory.end_once(lambda: [one.state for one in tm.status(place).history] == ["switched"])
    with pytest.raises(KeyboardInterrupt):
        tm.migrate(place, [ages])
    memory.each = None
    assert tm.migrate(place, [ages], contract=True).contracted == ("ages",)
    assert leftovers(memory) == []
    assert FORTH.seen(place) == FORTH.after(map(user, range(12)))


@both_ways
def test_an_answer_that_is_lost_changes_nothing(way: Way, full_size: bool) -> None:
    for at in range(3 - (way is BACK), 10_000, 1 if full_size else 13):
        memory, place = watched(6, way=way)
        count = 0

        def lose(number: int, request: Any, at: int = at, memory: Watched = memory) -> None:
            nonlocal count
            count = number
            if number == at:
                Memory.send(memory, request)
                raise NoResponse("cut")

        with memory.before_each(lose):
            assert way.go(place).ok
        assert way.seen(place) == way.after(map(user, range(6)))
        assert leftovers(memory) == []
        if count < at:
            assert at > 60
            return
    raise AssertionError


def test_of_two_runs_at_once_the_second_waits_for_the_first(place: Any) -> None:
    memory, place = watched(kind=TimedPlace)

    def begin(number: int, request: Any) -> None:
        if number == 45:  # (it is about it)
            sent = len(memory.sent)
            with pytest.raises(Ended):
                tm.migrate(waiting, [ages])
            assert slept == 3
            assert (
                len([one for one in memory.sent[sent:] if isinstance(one, QueryEntities) and one.table == "Users"]) == 1
            )

    slept = 0

    def wait(seconds: float) -> None:
        nonlocal slept
        slept += 1
        if slept == 3:
            raise Ended

    class Waiting(TimedPlace):
        def migrations(self, **_: Any) -> Any:
            engine = TimedPlace.migrations(self)
            engine._driver._sleep = wait
            return engine

    waiting: Any = Waiting(memory=memory, still=True)
    with memory.before_each(begin):
        assert tm.migrate(place, [ages]).applied == ("ages",)
    assert slept == 3
    assert tm.migrate(waiting, [ages]).applied == ()
    assert FORTH.seen(place) == FORTH.after(map(user, range(12)))


def test_a_run_that_another_one_took_for_ended_ends(place: Any) -> None:
    memory, place = watched(kind=TimedPlace)
    reports = []

    def begin_too(number: int, request: Any) -> None:
        if number == 40:
            memory.ahead += 61.0  # (it has stood still for a minute)
            reports.append(tm.migrate(place, [ages]))

    with memory.before_each(begin_too):
        reports.append(tm.migrate(place, [ages]))
    assert [report.applied for report in reports] == [("ages",), ()]
    assert all(report.ok for report in reports)
    assert FORTH.seen(place) == FORTH.after(map(user, range(12)))
    assert leftovers(memory) == []


def test_programs_that_are_let_write_too_early_lose_nothing() -> None:
    memory, place = watched()
    thawed = 0
    with tm.open(place, models=Old.ALL) as old:

        def thaw(number: int, request: Any) -> None:
            nonlocal thawed
            if thawed < 2 and number % 5 == 0 and tm.status(place).frozen is not None:
                thawed += 1
                old.unfreeze()
                old.insert(user(100 + thawed))

        with memory.before_each(thaw):
            assert tm.migrate(place, [ages]).ok
    assert thawed == 2
    assert FORTH.seen(place) == FORTH.after(map(user, [*range(12), 101, 102]))


def test_pairs_that_programs_write_while_they_are_copied_do_not_stop_it() -> None:
    key = tm.Key[str, int](partition="{p}", row="{id}")
    name = entity("Name", "Names", {"p": str, "id": int, "name": str}, key)
    size = entity("Size", "Sizes", {"p": str, "id": int, "size": int}, tm.Key[str, int](partition="{p}", row="{id}"))
    members = {"p": str, "id": int, "name": str, "size": int}
    both = entity("Both", "Boths", members, tm.Key[str, int](partition="{p}", row="{id}"))

    go = made(both, [name, size], step("join", name, size, lambda a, b: both(a.p, a.id, a.name, b.size), into=both))
    memory, written = Watched(), 0
    place: Any = TimedPlace(memory=memory, still=True)
    with tm.open(place, models=[name, size]) as store:

        def write(number: int, request: object) -> None:
            nonlocal written
            with suppress(tm.StoreLocked, tm.SchemaMismatch):
                store.insert(name("a", written, "n"))
                store.insert(size("a", written, written))
                written += 1

        with memory.before_each(write):
            assert tm.migrate(place, [go]).ok
    with tm.open(place, models=[both]) as store:
        assert store.query(both).allow_scan().count() == written > 20


@pytest.mark.parametrize("contract", [False, True])
def test_a_program_whose_classes_stay_the_same_reads_the_new_tables(contract: bool) -> None:
    before, after = coded(str), coded(str)

    go = made(after, before, step("convert", before.age, after.age, lambda age: age + "0"))
    memory = Watched()
    place: Any = TimedPlace(memory=memory, still=True)
    with tm.open(place, models=[before]) as store, tm.open(place, models=[before]) as other:
        store.insert(before(1, "c1", "7"))

        def read(number: int, request: Any) -> None:
            assert other[before.key(1)].age in ("7", "70")

        with memory.before_each(read):
            tm.migrate(place, [go], contract=contract)
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
    assert FORTH.seen(place) == FORTH.after([*map(user, range(30)), Old.User("a", 90, "n", "90")])


def test_what_stops_it_is_told_though_the_service_is_gone_by_then(place: Any) -> None:
    memory, place = watched()
    fails = True

    def refuse(number: int, request: Any) -> None:
        raise ErrorResponse(403, "AuthorizationFailure")

    def years(age: Any) -> Any:
        if fails:
            memory.each = refuse
            raise KeyboardInterrupt
        return None if age is None else int(age)

    steps = step("rekey", Old.User, New.User), step("convert", Old.User.age, New.User.age, years)
    ages = made(New.ALL, Old.ALL, *steps, name="ages")
    with pytest.raises(KeyboardInterrupt) as caught:
        tm.migrate(place, [ages])
    assert "the store may be frozen until ages runs again" in caught.value.__notes__[0]
    memory.each, fails = None, False
    memory.ahead += 61.0
    assert tm.migrate(place, [ages]).ok
    assert leftovers(memory) == []


def test_duplicates_of_a_unique_index_stop_a_script_unless_it_resolves_them() -> None:
    old, new = coded(str), coded(int)

    go = made(new, old, step("convert", old.age, new.age, int), name="go")
    keep_first = step("resolve", new.by_code, lambda some: some[:1])
    first = made(new, old, step("convert", old.age, new.age, int), keep_first)

    memory = Memory()
    place: Any = TimedPlace(memory=memory, still=True)
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

    keep_first = step("resolve", new.by_code, lambda some: some[:1])
    go = made(new, old, step("convert", old.age, new.age, int), keep_first)
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
        assert tm.migrate(place, [ages], contract=True).contracted == ("ages",)
        assert not {"Users", "Teams", "UsersByName"} & place.memory.tables.keys()
        with pytest.raises(tm.SchemaMismatch, match="ages"):
            old.get(Old.User.key("a", 0))
        with pytest.raises(tm.SchemaMismatch, match="ages"):
            list(old.query(Old.User).where(Old.User.tenant == "a"))
    assert tm.migrate(place, [ages], contract=True).contracted == ()
    assert FORTH.seen(place) == FORTH.after(map(user, range(30)))


def test_a_table_that_was_replaced_is_not_taken_for_another_class(place: Any) -> None:
    Person = entity("Person", "People", {"id": str, "text": str}, tm.Key[str](partition="{id}"))
    Other = entity("Other", "Notes", {"id": str}, tm.Key[str](partition="{id}"))

    people = made(Person, Old.Note, step("rename_class", Old.Note, Person), name="people")
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


def test_of_two_that_contract_the_later_deletes_no_table_that_has_its_name_again() -> None:
    person = entity("Person", "People", {"id": str, "text": str}, tm.Key[str](partition="{id}"))
    other = entity("Other", "Notes", {"id": str}, tm.Key[str](partition="{id}"))

    people = made(person, Old.Note, step("rename_class", Old.Note, person), name="people")
    memory, waited = Watched(), 0
    place: Any = TimedPlace(memory=memory, still=True)
    with tm.open(place, models=[Old.Note]) as store:
        store.insert(Old.Note("a", "t"))
    tm.migrate(place, [people])

    def contract_too(number: int, request: Any) -> None:
        nonlocal waited
        waited += [one.state for one in tm.status(place).history] == ["contracted"]
        if waited == 10:  # (the other one waits until every program knows)
            tm.migrate(place, [people], contract=True)
            with tm.open(place, models=[person, other]) as store:
                store.insert(other("new"))

    with memory.before_each(contract_too):
        tm.migrate(place, [people], contract=True)
    assert waited > 10
    with tm.open(place, models=[person, other]) as store:
        assert store[other.key("new")] == other("new")


def test_what_was_dropped_before_goes_with_the_tables_that_are_replaced(place: Any) -> None:
    User = user_of(str, KEY)
    drops = [step("drop", one) for one in (Old.User.by_name, Old.User.by_age, Old.Team)]
    fewer = made([User, Old.Note], Old.ALL, *drops, name="fewer")
    steps = step("rekey", User, New.User), step("convert", User.age, New.User.age, of(int))
    years = made(New.ALL, [User, Old.Note], *steps, name="years", after="fewer")
    tm.migrate(place, [fewer, years])
    assert FORTH.seen(place) == FORTH.after(map(user, range(30)))
    tm.migrate(place, [fewer, years], contract=True)
    assert not {"Users", "Teams", "UsersByName"} & place.memory.tables.keys()
    assert FORTH.seen(place) == FORTH.after(map(user, range(30)))


def test_what_is_not_possible_is_refused_before_anything_is_sent(place: Any) -> None:
    with pytest.raises(tm.InvalidMigration, match="all at once on Azure Tables: leave out limit="):
        tm.migrate(place, [ages], limit=5)
    assert tm.migrate(place, [ages], dry_run=True, limit=0).plan  # (which copies nothing)
    with tm.open(place, models=Old.ALL) as old:
        old.freeze()
        with pytest.raises(tm.StoreLocked, match="frozen"):
            tm.migrate(place, [ages])
        old.unfreeze()
    assert leftovers(place.memory) == []


def test_a_script_that_lacks_what_the_store_could_not_take_says_why() -> None:
    def parts(price: tuple[str, type], **indexes: Any) -> Any:
        fields = {"id": str, "maker": str, price[0]: price[1]}
        return entity("Part", "Parts", fields, tm.Key[str](partition="{id}"), **indexes)

    place: Any = AzurePlace(memory=Memory(), still=True)
    by_maker = tm.Index[str](partition="{maker}")
    first, bare, whole = parts(("price", float), by_maker=by_maker), parts(("price", float)), parts(("price", int))
    again, last = parts(("cost", int), by_maker=by_maker), parts(("cost", int))
    scripts = [
        made(bare, first, lambda m: m.drop(first.by_maker), name="one"),
        made(whole, bare, lambda m: m.convert(bare.price, whole.price, int, back=float), name="two", after="one"),
        made(again, whole, lambda m: m.rename(whole.price, again.cost), name="three", after="two"),
        made(last, again, lambda m: m.drop(again.by_maker), name="four", after="three"),
    ]
    with tm.open(place, models=[first]) as store:
        store.insert(first("1", "m", 2.0))
    with pytest.raises(tm.InvalidMigration, match=r"Part\.by_maker: the index is not in the store") as caught:
        tm.migrate(place, scripts)
    (note,) = caught.value.__notes__
    assert 'the table "PartsByMaker" has what two replaced: contract that first' in note
    assert tm.migrate(place, scripts[:3], contract=True).ok
    tm.open(place, models=[again]).close()
    assert tm.migrate(place, scripts).applied == ("four",)


def test_a_script_that_copied_is_undone_and_done_again(place: Any) -> None:
    tm.migrate(place, [ages])
    with tm.open(place, models=New.ALL) as new:
        new.insert(New.User("a", 90, "n", 9))
        assert tm.migrate(place, [ages], to="", dry_run=True).ok
        report = BACK.go(place)
        assert (report.applied, report.entities, {step.old_version for step in report.plan}) == (
            ("ages",),
            31,
            {"stops"},
        )
        new._engine.current.known.seen = -1e9  # type: ignore[attr-defined]
        with pytest.raises(tm.SchemaMismatch, match="the undoing of ages"):
            new.insert(New.User("a", 91, "n", 9))
    users = [*map(user, range(30)), Old.User("a", 90, "n", "9")]
    assert BACK.seen(place) == BACK.after(users)
    assert tm.status(place).history == ()
    assert "Users" not in place.memory.tables  # (what it was made of is out of date)
    with tm.open(place, models=Old.ALL) as old:
        old.insert(Old.User("b", 92, "n", "7"))
    assert tm.migrate(place, [ages], to="", contract=True).ok
    assert len([name for name in place.memory.tables if name.startswith("Users")]) == 2  # (itself, and its index)
    assert tm.migrate(place, [ages], contract=True).contracted == ("ages",)
    assert FORTH.seen(place) == FORTH.after([*users, Old.User("b", 92, "n", "7")])
    for dry_run in (True, False):
        with pytest.raises(tm.InvalidMigration, match="it was contracted"):
            BACK.go(place, dry_run=dry_run)


def test_a_version_ends_with_its_migration_though_the_clock_of_its_program_is_behind(place: Any) -> None:
    place.memory.ahead += 1_000.0
    tm.migrate(place, [ages])
    BACK.go(place)
    with pytest.raises(tm.SchemaMismatch, match="the undoing of ages replaced"):
        tm.open(place, models=New.ALL)


def test_what_is_lost_on_the_way_back_keeps_a_script_from_being_undone(place: Any) -> None:
    Note = entity("Note", "Notes", {"id": str}, tm.Key[str](partition="all", row="{id}"))

    together = made(Note, Old.Note, step("rekey", Old.Note, Note), step("drop", Old.Note.text))
    assert {step.reversible for step in tm.migrate(place, [together]).plan} == {False}
    for dry_run in (True, False):
        with pytest.raises(tm.InvalidMigration, match="keep no value of a field that is dropped or filled"):
            tm.migrate(place, [together], to="", dry_run=dry_run)


def test_a_migration_whose_undoing_has_begun_is_not_contracted(place: Any) -> None:
    memory, place = watched(way=BACK)
    reports = []

    def contract(number: int, request: Any) -> None:
        if number == 45:
            engine = AzurePlace.migrations(place)
            assert engine.under_way() == "the undoing of ages"
            reports.append(engine.contract("ages", lambda step: None))

    with memory.before_each(contract):
        assert BACK.go(place).ok
    assert reports == [False]
    assert BACK.seen(place) == BACK.after(map(user, range(12)))


def test_a_store_is_not_frozen_by_two_at_once() -> None:
    memory, place = watched()
    with tm.open(place, models=Old.ALL) as old:

        def freeze(number: int, request: Any) -> None:
            if number == 45:
                with pytest.raises(tm.StoreError, match="ages copies entities, and freezes the store itself"):
                    old.freeze()

        with memory.before_each(freeze):
            assert tm.migrate(place, [ages]).ok
    assert tm.status(place).frozen is None


def test_a_run_that_ended_is_abandoned_by_naming_where_to_go(place: Any) -> None:
    memory, place = watched()

    memory.end_once(lambda: tm.status(place).frozen is not None)
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

    memory, _ = watched()
    looking: Any = Looking(memory=memory, still=True)

    def look(number: int, request: Any) -> None:
        if number == 40:  # (it is under way)
            engines.append(AzurePlace.migrations(looking))

    with memory.before_each(look):
        assert tm.migrate(looking, [ages]).ok
    assert engines[-1].under_way() == "ages"
    engines[-1].discard("ages")
    assert FORTH.seen(looking) == FORTH.after(map(user, range(12)))
    assert leftovers(memory) == []


@pytest.mark.parametrize("length", [40, 52, 56])
def test_each_table_has_a_new_one_of_its_own_however_long_its_name_is(length: int) -> None:
    def item(age: type[Any]) -> Any:
        members = {"id": str, "name": str, "age": age}
        indexes = {"by_name": tm.Index[str](partition="{name}"), "by_age": tm.Index[age](partition="{age}")}
        return entity("Item", "L" * length, members, tm.Key[str](partition="{id}"), **indexes)

    old, new = item(str), item(int)

    go = made(new, old, step("convert", old.age, new.age, int), name="go")
    place: Any = AzurePlace(memory=Memory(), still=True)
    with tm.open(place, models=[old]) as store:
        store.insert_many([old(str(n), f"n{n}", str(n)) for n in range(5)])
    assert tm.migrate(place, [go]).ok
    with tm.open(place, models=[new]) as store:
        assert store.check().ok
        assert [one.id for one in store.query(new.by_age(3))] == ["3"]
        assert [one.id for one in store.query(new.by_name("n4"))] == ["4"]


def test_the_emulator_has_new_tables_after_it(connection: str) -> None:
    place: Any = TimedPlace(memory=AheadWire(connection), still=True)
    FORTH.begin(place, 30)
    report = tm.migrate(place, [ages], contract=True)
    assert (report.applied, report.contracted, report.entities) == (("ages",), ("ages",), 30)
    assert FORTH.seen(place) == FORTH.after(map(user, range(30)))
