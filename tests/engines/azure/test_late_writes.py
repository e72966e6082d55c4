"""A program stands still between its look at the catalogue and its send, while another one builds or freezes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.azure.cross_partition.outbox import Deadline
from tablemapper.engines.azure.group_writer import GroupWriter
from tablemapper.engines.azure.tables.service import GroupTransaction, NoResponse, QueryEntities
from tablemapper.engines.azure.writing import late_writes
from tablemapper.schema.model import Schema, compile_schema

from ...classes import entity, grouped
from .test_builds import TIMES, Clocked

AWAY = 3600.0  # seconds


def users(**indexes: Any) -> Any:
    members = {"p": str, "r": str, "team": (str, tm.field(default="red")), "mail": (str | None, tm.field(default=None))}
    return entity("User", "Users", members, tm.Key[str, str](partition="{p}", row=("u", "{r}")), **indexes)


def plain() -> Schema:
    return compile_schema([users()])


def indexed() -> Schema:
    return compile_schema([users(by_mail=tm.Index[str](partition="{mail}"))])


def newer(**more: Any) -> Schema:
    by_team = tm.Index[str](partition="{team}")
    by_mail = tm.Index[str](partition="{mail}")
    own = tm.Index[str, str](partition="{p}", row="{team}")
    user = users(**{"by_team": by_team, "by_mail": by_mail, "own": own} | more)
    return compile_schema([user, grouped("Teams", user, "team", users=tm.count()), inner(user)])


def inner(user: Any) -> Any:
    return grouped("Total", user, "p", "Users", row="total", users=tm.count())


class Program:
    """A store with some users, and a program of an older version whose next transaction of users is sent late."""

    def __init__(self, old: Schema) -> None:
        self.memory = Clocked(1)
        self.user = old.by_name["User"].cls
        self.store = tm.Store(self.memory.open(old, TIMES))
        self.store.insert_many([self.user("a", f"{n}", "red", f"m{n}") for n in range(3)])

    def stands_still(self, meanwhile: Callable[[], object], *, lost: bool = False) -> None:
        plain = self.memory.send

        def send(request: Any, *wait: float) -> Any:
            if not (isinstance(request, GroupTransaction) and request.table == "Users"):
                return plain(request, *wait)
            self.memory.send = plain  # type: ignore[method-assign]
            self.memory.now += AWAY
            meanwhile()
            answer = plain(request, *wait)
            if lost:
                raise NoResponse("the answer")
            return answer

        self.memory.send = send  # type: ignore[method-assign]

    def build(self, **more: Any) -> tm.Store:
        store = tm.Store(self.memory.open(newer(**more), TIMES))
        assert store.build().done
        return store


def merged(one: Program) -> None:
    one.store.merge(one.user.key("a", "1"), team="blue")


def inserted(one: Program) -> None:
    one.store.insert(one.user("a", "9", "blue", "m9"))


WRITES: dict[str, Callable[[Program], object]] = {
    "insert": inserted,
    "insert_many": lambda one: one.store.insert_many([one.user("a", f"9{n}", "blue", f"n{n}") for n in range(3)]),
    "upsert of what is not there": lambda one: one.store.upsert(one.user("a", "9", "blue")),
    "upsert": lambda one: one.store.upsert(one.user("a", "1", "blue")),
    "upsert with merge": lambda one: one.store.upsert(one.user("a", "1", "blue"), merge=True),
    "merge": merged,
    "delete": lambda one: one.store.delete(one.user.key("a", "1")),
    "replace": lambda one: one.store.replace(one.user("a", "1", "blue"), if_match="*"),
}


@pytest.mark.parametrize("old", [plain, indexed])
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("lost", [False, True], ids=["", "lost"])
def test_a_write_that_was_sent_late_is_in_what_was_built_meanwhile(
    old: Callable[[], Schema], name: str, lost: bool
) -> None:
    one = Program(old())
    built: list[tm.Store] = []
    one.stands_still(lambda: built.append(one.build()), lost=lost)
    try:
        WRITES[name](one)
    except (tm.OutcomeUnknown, tm.StoreError) as error:
        assert lost or "nothing was written" in str(error), error
    (store,) = built
    store.build()
    one.memory.now += 3600
    store.sweep()
    assert store.check().ok, str(store.check())


def test_what_was_overwritten_unread_is_built_anew_and_not_read_before() -> None:
    one = Program(plain())
    built: list[tm.Store] = []
    one.stands_still(lambda: built.append(one.build()))
    merged(one)
    (store,) = built
    teams: Any = store._engine.schema.by_name["Teams"].cls
    one.memory.now += 2 * TIMES.look
    with pytest.raises(tm.NotReady, match="Teams"):
        store.get(teams.key("red"))
    assert store.build().done
    assert store[teams.key("blue")].users == 1
    assert store.check().ok, str(store.check())


def test_what_is_just_being_built_is_built_anew_if_an_entity_was_overwritten_unread() -> None:
    one = Program(plain())
    engine = one.memory.open(newer(), TIMES)

    def begin() -> None:
        while (step := engine.build(2, None)) is not None and step.done < 2:
            pass

    one.stands_still(begin)
    merged(one)
    assert {engine.status()[label].state for label in ("User.by_team", "Teams")} == {"building"}
    one.memory.now += 3600
    store = tm.Store(engine)
    assert store.build().done
    assert store.check().ok, str(store.check())


def test_a_value_that_became_unique_meanwhile_and_is_held_twice_is_told() -> None:
    one = Program(plain())
    one.stands_still(lambda: one.build(by_mail=tm.Index[str](partition="{mail}", unique=True)))
    with pytest.raises(tm.OutcomeUnknown, match=r"stood still .* indexes or aggregates were added.*'m1'"):
        one.store.insert(one.user("a", "9", "blue", "m1"))
    store = tm.Store(one.memory.open(newer(by_mail=tm.Index[str](partition="{mail}", unique=True)), TIMES))
    (twice,) = store.build().violations
    assert twice.value[0] == "m1"


@pytest.mark.parametrize("name", WRITES)
def test_a_write_into_a_frozen_store_is_not_told_as_done(name: str) -> None:
    one = Program(plain())
    one.stands_still(lambda: tm.Store(one.memory.open(plain(), TIMES)).freeze())
    with pytest.raises(tm.OutcomeUnknown, match="the store was frozen"):
        WRITES[name](one)


def test_nobody_looks_again_who_did_not_stand_still() -> None:
    one = Program(plain())
    sent = len(one.memory.sent)
    inserted(one)
    assert len(one.memory.sent) == sent + 1


def test_what_was_written_late_is_told_as_unknown_where_the_catalogue_cannot_be_read() -> None:
    one = Program(plain())
    sends = one.memory.send

    def send(request: Any, *wait: float) -> Any:
        if request.table == "TableMapper":
            one.memory.now += AWAY
            raise NoResponse("the head")
        one.memory.now += AWAY
        return sends(request, *wait)

    one.memory.send = send  # type: ignore[method-assign]
    with pytest.raises(tm.OutcomeUnknown, match="stood still"):
        inserted(one)


def test_who_empties_an_index_and_stood_still_deletes_no_row_that_came_since() -> None:
    one = Program(newer())
    engine: Any = one.store._engine
    model = engine.schema.by_name["User"]
    writer = GroupWriter(engine.classes, engine._outbox, Deadline(1e18), 60.0)
    plain = one.memory.send

    def send(request: Any, *wait: float) -> Any:
        answer = plain(request, *wait)
        if isinstance(request, QueryEntities):
            one.memory.send = plain  # type: ignore[method-assign]
            held = one.store[one.user.key("a", "1")]
            one.store.replace(held.replace(team="blue"))
            one.store.replace(held.replace(team="red"), if_match="*")
        return answer

    one.memory.send = send  # type: ignore[method-assign]
    engine.run(writer.emptied(engine.classes.index(model, "own")))
    assert [each.r for each in one.store.query(one.user.own("a", "red"))] == ["1"]


def test_writers_that_do_not_look_again_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: Any) -> Any:
        return False
        yield

    monkeypatch.setattr(late_writes._Mending, "is_late", never)
    one = Program(plain())
    one.stands_still(one.build)
    inserted(one)
    store = tm.Store(one.memory.open(newer(), TIMES))
    assert {problem.where for problem in store.check().problems} == {
        "User.by_team", "User.by_mail", "User.own", "Teams", "Total",
    }  # fmt: skip
    store.repair()
    assert store.build().done
    assert store.check().ok, str(store.check())


def test_a_request_of_the_service_counts_for_how_long_a_write_may_be_under_way() -> None:
    assert attrs.evolve(TIMES, request=30.0).settled == TIMES.look + TIMES.deadline + 30.0
