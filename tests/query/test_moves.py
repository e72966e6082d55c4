"""Moves by query: to another class, to other keys, beside others, and after a kill."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.execution.prepared import BatchLimits

from ..classes import entity, grouped
from ..engines.azure.memory import Faulty, Memory
from ..engines.azure.place import AzurePlace
from ..stores import sound_store


class Log(tm.Entity, table="Logs"):
    host: tm.Field[str]
    number: tm.Field[int]
    level: tm.Field[str] = tm.field(default="info")
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{host}", row="{number:04d}")
    by_level = tm.Index[str, int](partition="{level}", row="{number}")


class Cold(tm.Entity, table="Cold"):
    host: tm.Field[str]
    number: tm.Field[int]
    level: tm.Field[str] = tm.field(default="info")
    tags: tm.Field[list[str]] = tm.field(factory=list)
    year: tm.Field[int] = tm.field(default=2026)

    key = tm.Key[int, str](partition="{number:04d}", row="{host}")
    by_tag = tm.Index[str](partition="{tags}")


NUMBERS = itertools.count(1)


class User(tm.Entity, table="Users"):
    team: tm.Field[str]
    mail: tm.Field[str]

    key = tm.Key[str, str](partition="{team}", row="{mail}")
    by_mail = tm.Index[str](partition="{mail}", unique=True)


PerHost = grouped("PerHost", Log, "host", n=tm.count())
PerLevel = grouped("PerLevel", Cold, "level", n=tm.count())
MODELS: list[Any] = [Log, Cold, User, PerHost, PerLevel]


def small(store: tm.Store, batch: int = 2) -> None:
    """Make the batches of a store small."""
    store._plans.batch_limits = BatchLimits(batch=batch)


def fill(store: tm.Store, count: int = 7, batch: int = 2) -> None:
    small(store, batch)
    store.insert_many(Log("h", number, "warn" if number % 2 else "info", [f"t{number % 3}"]) for number in range(count))


def logs(store: tm.Store) -> list[int]:
    return sorted(log.number for log in store.query(Log).allow_scan())


def cold(store: tm.Store) -> list[int]:
    return sorted(log.number for log in store.query(Cold).allow_scan())


def test_what_a_query_finds_becomes_another_class_with_all_that_is_maintained() -> None:
    with sound_store(":memory:", models=MODELS) as store:
        fill(store)
        before = store[Log.key("h", 3)]
        assert store.query(Log).where(Log.host == "h", Log.level == "warn").move_to(Cold) == 3
        assert (logs(store), cold(store)) == ([0, 2, 4, 6], [1, 3, 5])
        assert store[Cold.key(3, "h")] == Cold("h", 3, before.level, before.tags)
        assert [one.number for one in store.query(Cold.by_tag("t2")).allow_eventual()] == [5]
        assert store.group(PerLevel.key("warn")).n == 3
        assert store.query(Log).where(Log.host == "h").limit(2).move_to(Cold) == 2
        assert store.query(Log).where(Log.host == "h").limit(0).move_to(Cold) == 0
        assert store.query(Log).where(Log.host == "h", Log.level == "none").move_to(Cold) == 0
        assert (
            store.query(Log.by_level("info")).move_to(lambda log: None if log.number == 6 else Cold("x", log.number))
            == 1
        )
        assert (logs(store), cold(store)) == ([6], [0, 1, 2, 3, 4, 5])


def test_entities_move_to_other_keys_of_their_class_once_each() -> None:
    with sound_store(":memory:", models=MODELS) as store:
        fill(store)
        query = store.query(Log).where(Log.host.startswith("h"))
        assert query.allow_scan().move_to(lambda log: log.replace(host=log.host + "h", number=log.number + 100)) == 7
        assert sorted(log.key[1:] for log in store.query(Log).allow_scan()) == [
            ("hh", f"{number:04d}") for number in range(100, 107)
        ]
        # Each goes where the one before it was, in the order of the keys.
        assert query.where(Log.host == "hh").move_to(lambda log: log.replace(number=log.number - 1)) == 7
        assert logs(store) == list(range(99, 106))


def test_a_target_that_is_taken_is_an_error_and_an_equal_one_counts_as_moved() -> None:
    with sound_store(":memory:", models=MODELS) as store:
        fill(store, 4, batch=4)
        store.insert(Cold("h", 1, "warn", ["t1"]))
        assert store.query(Log).where(Log.host == "h").move_to(Cold) == 4
        assert (logs(store), cold(store)) == ([], [0, 1, 2, 3])
        fill(store, 6, batch=6)
        store.insert(Cold("h", 4, "other"))
        with pytest.raises(tm.EntityExists) as caught:
            store.query(Log).where(Log.host == "h").move_to(Cold)
        assert caught.value.written == 0  # type: ignore[attr-defined]
        assert (logs(store), cold(store)) == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4])
        with pytest.raises(tm.EntityExists):  # (one after the other)
            store.query(Log).where(Log.host == "h").move_to(lambda log: log.replace(number=log.number + 1))
        assert logs(store) == [0, 1, 2, 3, 4, 5]


def test_what_cannot_be_moved_is_refused_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = entity("Bare", "Bare", {"host": str, "number": int}, tm.Key[str, int](partition="{host}", row="{number}"))
    more = entity("More", "More", {"host": str, "number": int, "level": str, "tags": list[str], "why": str}, tm.Key[str, int](partition="{host}", row="{number}"))  # fmt: skip
    typed = entity("Typed", "Typed", {"host": str, "number": int, "level": int, "tags": list[str]}, tm.Key[str, int](partition="{host}", row="{number}"))  # fmt: skip
    closed = entity("Closed", "Closed", {"a": str}, tm.Key[str](partition="{a}"))
    cases: list[tuple[Any, type[Exception], str]] = [
        (bare, tm.InvalidQuery, "move_to: Bare has no field level and tags of Log; give a function"),
        (more, tm.InvalidQuery, "move_to: More needs why, which Log has not; give a function"),
        (typed, tm.InvalidQuery, "move_to: Typed.level is int, and Log.level is str; give a function"),
        (Log, tm.InvalidQuery, "move_to: the query is over Log itself; give a function, which makes entities with other keys"),
        (5, tm.InvalidQuery, "move_to: expected a class of entities, or a function of the entity, got 5"),
        (closed, tm.InvalidEntity, "Closed: the store was not opened with it (models: "),
        (PerHost, tm.InvalidEntity, "PerHost: it is maintained from Log; write Log entities instead"),
        (lambda log: closed("a"), tm.InvalidEntity, "Closed: the store was not opened with it"),
        (lambda log: 5, tm.InvalidEntity, "Log ('h', '0000'): the function must return an entity or None, not 5"),
        (lambda log: log, tm.InvalidEntity, "Log ('h', '0000'): it would stay under its key; query.update(…) changes what has one"),
    ]  # fmt: skip
    with sound_store(":memory:", models=[*MODELS, bare, more, typed]) as store:
        fill(store, 3)
        for to, kind, fault in cases:
            with pytest.raises(kind) as caught:
                store.query(Log).where(Log.host == "h").move_to(to)
            assert fault in str(caught.value), (fault, str(caught.value))
        with pytest.raises(tm.InvalidEntity, match="it is maintained from Log"):
            store.query(PerHost).allow_scan().move_to(Cold)  # type: ignore[misc]
        with pytest.raises(tm.ScanRefused):
            store.query(Log).where(Log.number == 3).move_to(Cold)
        with store.transaction(), pytest.raises(tm.InvalidTransaction):
            store.query(Log).where(Log.host == "h").move_to(Cold)
        assert (logs(store), cold(store)) == ([0, 1, 2], [])


def test_a_move_is_reported_and_shows_its_progress() -> None:
    events: list[tm.Event] = []
    done: list[int] = []
    with sound_store(":memory:", models=MODELS, observe=events.append) as store:
        fill(store, 5)
        query = store.query(Log).where(Log.host == "h")
        assert query.move_to(Cold, progress=lambda progress: done.append(progress.done)) == 5
        assert (events[-1].verb, events[-1].model, events[-1].written) == ("query.move_to", "Log", 5)
        assert done[-1] == 5


@pytest.mark.parametrize("along", ["key", "limit"])
def test_what_someone_else_changed_is_read_and_judged_again(along: str) -> None:
    with sound_store(":memory:", models=MODELS) as store:
        fill(store, 6, batch=6)
        did: set[int] = set()

        def to(log: Log) -> Cold:
            if log.number not in did:  # someone is faster, the first time
                did.add(log.number)
                if log.number == 1:
                    store.merge(log.key, tags=["x"])
                if log.number == 2:
                    store.delete(log.key)
                if log.number == 3:
                    store.merge(log.key, level="out")
            return Cold(log.host, log.number, log.level, log.tags)

        query = store.query(Log).where(Log.host == "h", Log.level != "out")
        assert (query.limit(9) if along == "limit" else query).move_to(to) == 4
        assert (logs(store), cold(store)) == ([3], [0, 1, 4, 5])
        assert store[Cold.key(1, "h")].tags == ["x"]


class Session(tm.Entity, table="Sessions"):
    id: tm.Field[str]
    until: tm.Field[datetime | None] = tm.field(default=None, expires=True)

    key = tm.Key[str](partition="s", row="{id}")


class Closed(tm.Entity, table="ClosedSessions"):
    id: tm.Field[str]
    until: tm.Field[datetime | None] = tm.field(default=None, expires=True)
    moved: tm.Field[int] = tm.field(on_write=lambda: next(NUMBERS))

    key = tm.Key[str](partition="s", row="{id}")


def test_what_has_ended_stays_and_makes_room_and_fields_are_set_at_each_write() -> None:
    past, soon = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
    with sound_store(":memory:", models=[Session, Closed]) as store:
        store.insert_many([Session("ended", past), Session("a", soon), Session("b")])
        store.insert_many(
            [Closed("a", past), Closed("b")]
        )  # (the second one as it would be written, but for its number)
        assert store.query(Session).allow_scan().move_to(Closed) == 2
        assert [session.id for session in store.query(Session).allow_scan()] == []
        closed = list(store.query(Closed).allow_scan())
        assert [(one.id, one.until) for one in closed] == [("a", soon), ("b", None)]
        assert closed[0].moved > closed[1].moved
        assert store.expire() == 1
        assert store.query(Closed).allow_scan().count() == 2


class Host(tm.Entity, table="Hosts"):
    host: tm.Field[str]

    key = tm.Key[str](partition="{host}")


class Machine(tm.Entity, table="Machines"):
    host: tm.Field[str]
    logs: tm.Field[int] = tm.count(of=Log)

    key = tm.Key[str](partition="{host}")


def test_what_is_maintained_in_a_target_is_no_difference() -> None:
    with sound_store(":memory:", models=[Log, Host, Machine]) as store:
        fill(store, 3)
        store.insert_many([Host("h"), Host("i"), Machine("h")])
        assert store.query(Host).allow_scan().move_to(Machine) == 2
        assert [(one.host, one.logs) for one in store.query(Machine).allow_scan()] == [("h", 3), ("i", 0)]
        assert store.query(Machine).allow_scan().move_to(Host) == 2
        assert store.query(Host).allow_scan().count() == 2


# ------------------------------------------------------------------------------------------ kills, on both engines


class Killed(BaseException):
    pass


def _places(tmp_path: Path) -> list[Any]:
    return [tmp_path / "moves.db", AzurePlace(memory=Memory(), still=True)]


@pytest.mark.file
@pytest.mark.parametrize("on", [0, 1], ids=["file", "account"])
@pytest.mark.parametrize("after", [False, True], ids=["before a write", "after it"])
def test_the_same_call_ends_a_move_that_was_killed_at_any_write(tmp_path: Path, on: int, after: bool) -> None:
    kill_at, was_killed = 0, True
    while was_killed:
        kill_at, was_killed = kill_at + 1, False
        place = _places(tmp_path / f"{kill_at}")[on]
        if on == 0:
            place.parent.mkdir()
        with tm.open(place, models=MODELS) as store:
            fill(store, 5)
            apply, left = store._engine.apply, kill_at

            def killing(operations: Any, apply: Callable[..., None] = apply, **more: Any) -> None:
                nonlocal left, was_killed
                left -= 1
                if left or after:
                    apply(operations, **more)
                if not left:
                    was_killed = True
                    raise Killed

            store._engine.apply = killing  # type: ignore[method-assign]
            with suppress(Killed):
                store.query(Log).where(Log.host == "h").move_to(Cold)
            store._engine.apply = apply  # type: ignore[method-assign]
            assert {*logs(store), *cold(store)} == {0, 1, 2, 3, 4}  # none is ever nowhere
            if on == 0:
                assert len(logs(store)) + len(cold(store)) == 5  # and on a file in exactly one place
            rest = len(logs(store))
            assert store.query(Log).where(Log.host == "h").move_to(Cold) == rest
            assert (logs(store), cold(store)) == ([], [0, 1, 2, 3, 4])
            assert store.check().ok
    assert kill_at > 3


@pytest.mark.file
@pytest.mark.parametrize("way", ["before", "after", "lost"])
def test_the_same_call_ends_a_move_that_was_killed_at_any_request(way: str, full_size: bool) -> None:
    at, was_struck = 0, True
    while was_struck:
        at += 1 if full_size else 2
        memory = Faulty()
        with tm.open(AzurePlace(memory=memory, still=True), models=MODELS) as store:  # type: ignore[arg-type]
            fill(store, 3)
            first = memory.number
            memory.at, memory.way = first + at, way
            with suppress(KeyboardInterrupt, tm.StoreError):
                store.query(Log).where(Log.host == "h").move_to(Cold)
            was_struck, memory.at = memory.number >= first + at, -1
        memory.ahead += 100
        with tm.open(AzurePlace(memory=memory, still=True), models=MODELS) as store:  # type: ignore[arg-type]
            assert {*logs(store), *cold(store)} == {0, 1, 2}, at
            store.query(Log).where(Log.host == "h").move_to(Cold)
            assert (logs(store), cold(store)) == ([], [0, 1, 2]), at
            store.sweep()
            assert store.check().ok, at
    assert at > 4


def _version(**fields: Any) -> Any:
    key = tm.Key[str, str](partition="{host}", row="{name}")
    return entity("Kept", "Kept", {"host": str, "name": str, **fields}, key)


@pytest.mark.file
@pytest.mark.parametrize("on", [0, 1], ids=["file", "account"])
def test_what_only_a_newer_version_knows_moves_within_the_class(tmp_path: Path, on: int) -> None:
    old, place = _version(), _places(tmp_path)[on]
    with tm.open(place, models=[old]) as store:
        store.insert(old("h", "a"))
    with (
        tm.open(place, models=[_version(note=(str | None, tm.field(default=None)))]) as newer,
        tm.open(place, models=[old]) as store,
    ):
        newer.insert(newer.classes["Kept"]("h", "b", note="kept"))
        assert store.query(old).where(old.host == "h").move_to(lambda one: one.replace(host="k")) == 2
        cls: Any = newer.classes["Kept"]
        assert [(one.name, one.note) for one in newer.query(cls).where(cls.host == "k")] == [("a", None), ("b", "kept")]


@pytest.mark.file
@pytest.mark.parametrize("on", [0, 1], ids=["file", "account"])
def test_large_values_move_within_a_class_that_does_not_declare_them_so(tmp_path: Path, on: int) -> None:
    place: Any = (tmp_path / "docs.db", AzurePlace(memory=Memory()))[on]
    key = tm.Key[str, str](partition="{site}", row="{id}")
    members: dict[str, Any] = {"site": str, "id": str}
    newer = entity("Doc", "Docs", members | {"body": (str, tm.field(large=True))}, key)
    older = entity("Doc", "Docs", members | {"body": str}, key)
    with sound_store(place, models=[newer]) as store, tm.open(place, models=[older]) as beside:
        for id in "abc":
            store.insert(newer("Oslo", id, id * 70_000))
        beside.move(beside[older.key("Oslo", "a")], older.key("Oslo", "A"))
        query = beside.query(older).where(older.site == "Oslo", older.id >= "b")
        assert query.move_to(lambda doc: doc.replace(site="Rome")) == 2
        bodies = [(doc.site, doc.id, doc.body) for doc in store.query(newer).allow_scan()]
        assert sorted(bodies) == [("Oslo", "A", "a" * 70_000), ("Rome", "b", "b" * 70_000), ("Rome", "c", "c" * 70_000)]
        with pytest.raises(tm.EntityTooLarge, match="declare it with"):
            query = beside.query(older).where(older.site == "Rome")
            query.move_to(lambda doc: doc.replace(site="Oslo", body="y" * 70_000))
        assert len(list(store.query(newer).where(newer.site == "Rome"))) == 2


@pytest.mark.file
def test_on_an_account_a_stale_target_goes_again_and_a_unique_index_is_refused() -> None:
    with tm.open(AzurePlace(memory=Memory(), still=True), models=MODELS) as store:  # type: ignore[arg-type]
        fill(store, 4, batch=4)
        apply, calls = store._engine.apply, 0

        def late(operations: Any, **more: Any) -> None:
            nonlocal calls
            calls += 1
            if operations[0].verb == "delete" and calls == 5:  # (four targets, then the sources)
                store._engine.apply = apply  # type: ignore[method-assign]
                store.merge(Log.key("h", 1), level="late")
                store.delete(Log.key("h", 2))
            apply(operations, **more)

        store._engine.apply = late  # type: ignore[method-assign]
        assert store.query(Log).where(Log.host == "h").move_to(Cold) == 3
        assert (logs(store), cold(store)) == ([], [0, 1, 3])
        assert store[Cold.key(1, "h")].level == "late"
        store.insert_many([User("a", "x"), User("a", "y")])
        with pytest.raises(tm.InvalidQuery, match="move_to: by_mail is unique; on an account move to another class"):
            store.query(User).where(User.team == "a").move_to(lambda user: user.replace(team="b"))
        assert [user.team for user in store.query(User).where(User.team == "a")] == ["a", "a"]
        user = store[User.key("a", "x")]
        with pytest.raises(tm.InvalidTransaction, match=r"query.move_to\(…\) moves what a query finds"):
            store.move(user, User.key("b", "x"))
        assert store.check().ok


@pytest.mark.file
def test_on_a_file_unique_values_move_with_their_entities(tmp_path: Path) -> None:
    with sound_store(tmp_path / "users.db", models=MODELS) as store:
        small(store)
        store.insert_many(User("a", f"{number}") for number in range(5))
        assert store.query(User).where(User.team == "a").move_to(lambda user: user.replace(team="b")) == 5
        assert [user.team for user in store.query(User.by_mail("3"))] == ["b"]


class Seat(tm.Entity, table="Seats"):
    row: tm.Field[str]
    number: tm.Field[int]
    place: tm.Field[int]
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, int](partition="{row}", row="{number}")
    by_place = tm.Index[int](partition="{place}", unique=True)


@pytest.mark.file
def test_on_a_file_unique_values_pass_on_among_what_moves(tmp_path: Path) -> None:
    with sound_store(tmp_path / "seats.db", models=[Seat]) as store:
        small(store, 1)
        store.insert_many(Seat("a", number, number, tm.Extra(v=number)) for number in range(5))
        store.insert(Seat("z", 0, 9))
        query = store.query(Seat).where(Seat.row == "a")
        assert query.move_to(lambda seat: seat.replace(row="b", place=seat.place + 1)) == 5
        seats = [(seat.number, seat.place, seat.more["v"]) for seat in store.query(Seat).where(Seat.row == "b")]
        assert seats == [(number, number + 1, number) for number in range(5)]
        with pytest.raises(tm.UniqueViolation, match=r"which Seat.key\('z', 0\) holds"):
            store.query(Seat).where(Seat.row == "b").move_to(lambda seat: seat.replace(row="a", place=seat.place + 4))
        assert store.query(Seat).where(Seat.row == "b").count() == 5


@pytest.mark.file
def test_readers_see_each_entity_in_exactly_one_place_while_it_moves(tmp_path: Path) -> None:
    with sound_store(tmp_path / "both.db", models=MODELS) as store:
        fill(store, 40, batch=3)
        seen: list[int] = []
        over = threading.Event()

        def read() -> None:
            while not over.is_set():
                keys: list[Any] = [Log.key("h", number) for number in range(40)]
                found = store.get_many([*keys, *(Cold.key(number, "h") for number in range(40))])
                seen.append(sum(one is not None for one in found))

        reader = threading.Thread(target=read)
        reader.start()
        assert store.query(Log).where(Log.host == "h").move_to(Cold) == 40
        over.set()
        reader.join()
        assert set(seen) <= {40}


@settings(max_examples=30)
@given(
    st.dictionaries(st.integers(0, 9), st.sampled_from(["info", "warn"]), max_size=8),
    st.integers(1, 4),
    st.sampled_from(["info", "warn"]),
    st.integers(-3, 3),
)
def test_a_move_does_what_a_loop_does(entities: dict[int, str], batch: int, level: str, shift: int) -> None:
    with sound_store(":memory:", models=[Log, Cold]) as store:
        small(store, batch)
        store.insert_many(Log("h", number, kind) for number, kind in entities.items())
        found = {number for number, kind in entities.items() if kind == level}
        query = store.query(Log).where(Log.host == "h", Log.level == level)
        moved = query.move_to(lambda log: Cold("h", log.number + shift + 3) if log.number % 3 else None)
        expected = {number for number in found if number % 3}
        assert moved == len(expected)
        assert logs(store) == sorted(entities.keys() - expected)
        assert cold(store) == sorted(number + shift + 3 for number in expected)
