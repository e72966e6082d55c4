"""A program stands still at one request, for longer than others wait for what it has begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure import recovery
from tablemapper.engines.azure.cross_partition import intent_execution, remote_groups
from tablemapper.engines.azure.recovery import OutboxRecovery
from tablemapper.engines.azure.tables.reserved_names import CLAIM, INTENTS, MARKS
from tablemapper.engines.azure.tables.service import ErrorResponse, GetEntity, GroupTransaction, NoResponse

from ...classes import entity, grouped
from .test_housekeeping import Account, tidy

Thing: Any = entity(
    "Thing",
    "Things",
    {"tenant": str, "id": str, "a": str, "code": (str | None, tm.field(default=None))},
    tm.Key[str, str](partition="{tenant}", row="{id}"),
    by_a=tm.Index[str, str](partition="{a}", row="{id}"),
    by_code=tm.Index[str](partition="{code}", row="holder", unique=True),
)
Kinds: Any = grouped("Kinds", Thing, "a", things=tm.count())
Ranked: Any = grouped(
    "Ranked", Thing, "a", things=tm.count(), by_things=tm.Index[int, str](partition="all", row=("{things}", "{a}"))
)


class Crew(Account):
    """A program that stands still at one request, and another one that goes on."""

    def __init__(self, *models: Any) -> None:
        super().__init__(Thing, *models)
        self.store, self.other = self.open(), self.open()
        self.late: list[GroupTransaction] = []

    def stands_still(self, where: Callable[[Any], bool], meanwhile: Callable[[], object]) -> None:
        """Have something done before the next request of a kind is sent."""

        def fault(request: Any) -> None:
            if where(request):
                self.fault = lambda _: None
                meanwhile()

        self.fault = fault

    def loses(self, table: str) -> None:
        """Have the next transaction of a table come late."""

        def fault(request: Any) -> None:
            if isinstance(request, GroupTransaction) and request.table == table:
                self.late.append(request)
                self.fault = lambda _: None
                raise NoResponse("it is late")

        self.fault = fault

    def arrives(self) -> None:
        for request in self.late:
            try:
                self.memory.send(request)
            except ErrorResponse:
                continue

    def rows(self, table: str) -> list[tuple[str, str]]:
        """Return the keys of a table, but for the row that says whose it is."""
        return [key for key in self.memory.tables[table] if key[1] != CLAIM]

    def swept(self, times: int = 2) -> None:
        for _ in range(times):
            self.now += 10_000
            self.other.sweep(full=True)

    def is_sound(self) -> None:
        """Check that nothing is wrong, and that nothing is left, once those who sweep and tidy were there."""
        for _ in range(2):
            self.now += 1_000
            tidy(self.store)
            self.swept()
        assert (report := self.other.check()).ok, str(report)
        assert not [key for key in self.hidden() if key[1].startswith((INTENTS[0], MARKS[0]))]


def of_table(table: str) -> Callable[[Any], bool]:
    return lambda request: isinstance(request, GroupTransaction) and request.table == table


def deletes_an_intent(request: Any) -> bool:
    return isinstance(request, GroupTransaction) and any(
        one.kind == "delete" and one.row.startswith(INTENTS[0]) for one in request.changes
    )


# ------------------------------------------------------------------------------------------ who deletes


def _deleted_late(crew: Crew, finish: Callable[[Crew], object]) -> None:
    """Let a program stand still before it deletes an intent, of which a sweep has a late request under way."""

    def meanwhile() -> None:
        crew.now += 100
        crew.other.upsert(Thing("t", "1", "y"))
        crew.loses("ThingsByA")
        crew.other.sweep()

    crew.store.insert(Thing("t", "1", "x"))
    crew.stands_still(deletes_an_intent, meanwhile)
    finish(crew)
    assert [one.partition for one in crew.late] == ["x"]
    crew.arrives()
    crew.is_sound()


def _by_itself(crew: Crew) -> None:
    tidy(crew.store)


def _with_a_write(crew: Crew) -> None:
    with pytest.raises(tm.StoreError, match="nothing was written"):
        crew.store.insert(Thing("t", "2", "z"))


@pytest.mark.parametrize("finish", [_by_itself, _with_a_write])
def test_an_intent_that_a_sweep_has_in_its_hands_is_deleted_by_nobody_else(finish: Callable[[Crew], None]) -> None:
    _deleted_late(Crew(), finish)


def test_the_intent_of_a_group_is_deleted_by_nobody_else_either() -> None:
    crew = Crew(Ranked)

    def meanwhile() -> None:
        crew.now += 100
        crew.other.insert(Thing("u", "1", "x"))
        crew.loses("RankedByThings")
        crew.other.sweep()

    crew.store.insert(Thing("t", "1", "x"))
    crew.stands_still(lambda one: deletes_an_intent(one) and one.table == "Ranked", meanwhile)
    tidy(crew.store)
    assert crew.late
    crew.arrives()
    crew.is_sound()


def test_what_its_writer_has_deleted_is_carried_out_by_nobody() -> None:
    crew = Crew(Kinds)
    crew.store.insert(Thing("t", "1", "x"))
    crew.now += 100

    def meanwhile() -> None:
        tidy(crew.store)
        crew.before = len(crew.memory.sent)  # type: ignore[attr-defined]

    crew.stands_still(lambda one: of_table("Things")(one) and not deletes_an_intent(one), meanwhile)
    assert crew.other.sweep() == 0
    sent = crew.memory.sent[crew.before :]  # type: ignore[attr-defined]
    assert [one.table for one in sent if one.table != "TableMapper"] == ["Things"]  # (the refused claim)
    crew.is_sound()


def _deleted_while_it_is_swept() -> None:
    """Let a program delete its intent while the put of a sweep is under way."""
    crew = Crew()
    crew.store.insert(Thing("t", "1", "x"))
    crew.now += 100
    crew.other.upsert(Thing("t", "1", "y"))

    def meanwhile() -> None:
        tidy(crew.store)
        raise NoResponse("it is late")

    def is_put(request: Any) -> bool:
        is_it = of_table("ThingsByA")(request) and request.partition == "x" and request.changes[0].kind == "upsert"
        crew.late += [request] * is_it
        return is_it

    crew.stands_still(is_put, meanwhile)
    crew.other.sweep()
    crew.arrives()
    crew.is_sound()


def test_a_claim_keeps_an_intent_until_what_is_late_is_buried(monkeypatch: pytest.MonkeyPatch) -> None:
    _deleted_while_it_is_swept()

    def claimed(self: Any, table: str, one: Any) -> Any:
        return one
        yield

    monkeypatch.setattr(OutboxRecovery, "_claimed", claimed)
    with pytest.raises(AssertionError, match="dangling"):
        _deleted_while_it_is_swept()


# ------------------------------------------------------------------------------------------ who writes


def _ended_by_others(crew: Crew) -> None:
    """Let others finish what a program has begun, and forget it."""
    crew.now += 100
    crew.other.upsert(Thing("t", "1", "y"))
    crew.swept(3)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_row_that_a_program_puts_when_all_is_over_goes_again(is_late: bool) -> None:
    crew = Crew(Kinds)

    def meanwhile() -> None:
        _ended_by_others(crew)
        if is_late:  # (and its request comes later still)
            crew.loses("ThingsByA")

    crew.stands_still(of_table("ThingsByA"), meanwhile)
    crew.store.insert(Thing("t", "1", "x"))
    crew.arrives()
    crew.is_sound()
    assert crew.other.get(Kinds.key("x")) is None


def test_a_row_that_who_sweeps_puts_when_all_is_over_goes_again() -> None:
    crew = Crew()
    crew.loses("ThingsByA")
    crew.store.insert(Thing("t", "1", "x"))
    crew.now += 100
    third = crew.open()

    def meanwhile() -> None:
        _ended_by_others(crew)
        crew.loses("ThingsByA")

    crew.stands_still(of_table("ThingsByA"), meanwhile)
    third.sweep()
    crew.arrives()
    crew.is_sound()


def _added_late(crew: Crew) -> None:
    crew.stands_still(
        lambda one: isinstance(one, GetEntity) and one.table == "Kinds",
        lambda: (setattr(crew, "now", crew.now + 100), crew.swept(3)),
    )
    crew.store.insert(Thing("t", "1", "x"))
    crew.is_sound()


def test_a_delta_is_added_once_though_its_marker_is_gone_when_a_program_adds_it() -> None:
    _added_late(crew := Crew(Kinds))
    assert crew.other[Kinds.key("x")].things == 1


def test_a_program_that_adds_when_all_is_over_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        return False
        yield

    for room in (remote_groups.Outbox, intent_execution.Outbox):
        monkeypatch.setattr(room, "is_late", never)
    with pytest.raises(AssertionError):
        _added_late(crew := Crew(Kinds))
        assert crew.other[Kinds.key("x")].things == 1


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_marker_is_kept_for_who_read_the_group_before_it_stood_still(
    is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_kept:
        monkeypatch.setattr(recovery, "_KEPT", 600.0)
    crew = Crew(Kinds)
    crew.loses("ThingsByA")  # (so the intent is left to those who sweep, and the delta is added)
    crew.store.insert(Thing("t", "1", "x"))
    crew.now += 100
    third = crew.open()

    def meanwhile() -> None:
        for _ in range(3):
            crew.now += 1_000
            crew.other.sweep(full=True)

    crew.stands_still(of_table("Kinds"), meanwhile)
    third.sweep()
    assert crew.other[Kinds.key("x")].things == (1 if is_kept else 2)


def test_a_write_that_was_done_is_told_so_when_nothing_is_left_of_it() -> None:
    crew = Crew(Kinds)
    crew.store.insert(Thing("t", "1", "x"))
    first = [True]

    def fault(request: Any) -> None:
        if of_table("Things")(request) and first:
            first.clear()
            crew.memory.send(request)
            raise NoResponse("the answer")
        if of_table("Things")(request):
            crew.fault = lambda _: None
            crew.now += 100
            crew.swept(3)

    crew.fault = fault
    crew.store.upsert(Thing("t", "1", "y"))
    assert crew.other[Thing.key("t", "1")].a == "y"
    crew.is_sound()
    assert crew.other[Kinds.key("y")].things == 1


@pytest.mark.parametrize("is_late", [False, True])
def test_a_value_that_is_taken_when_all_is_over_is_given_up(is_late: bool) -> None:
    crew = Crew()

    def meanwhile() -> None:
        crew.now += 100
        crew.swept(2)
        if is_late:
            crew.loses("ThingsByCode")

    crew.stands_still(of_table("ThingsByCode"), meanwhile)
    with pytest.raises(tm.StoreError, match="nothing was written"):
        crew.store.insert(Thing("t", "1", "x", "c"))
    crew.arrives()
    assert crew.rows("ThingsByCode") == [("c", "holder")]
    crew.is_sound()
    assert not crew.rows("ThingsByCode")


def test_a_partition_is_named_though_its_name_was_taken_away_meanwhile() -> None:
    crew = Crew()
    crew.stands_still(
        lambda one: of_table("TableMapper")(one) and one.partition.startswith("work "),
        lambda: (setattr(crew, "now", crew.now + 1_000), tidy(crew.store)),
    )
    with pytest.raises(tm.StoreError, match="nothing was written"):
        crew.store.insert(Thing("t", "1", "x"))
    crew.store.insert(Thing("t", "1", "x"))
    crew.is_sound()


# ------------------------------------------------------------------------------------------ who repairs


@pytest.mark.parametrize("table", ["ThingsByA", "ThingsByCode"])
def test_a_row_that_a_repair_puts_late_goes_again(table: str) -> None:
    crew = Crew()
    crew.store.insert(Thing("t", "1", "x", "c"))
    tidy(crew.store)
    (key,) = crew.rows(table)
    crew.memory.tables[table] = {other: row for other, row in crew.memory.tables[table].items() if other != key}
    crew.loses(table)
    assert crew.other.repair().ok
    assert crew.rows(table) == [key]
    crew.store.upsert(Thing("t", "1", "y", "d"))
    crew.arrives()
    crew.is_sound()


@pytest.mark.parametrize("table", ["ThingsByA", "ThingsByCode"])
def test_a_row_that_a_repair_puts_behind_a_write_goes_again(table: str) -> None:
    crew = Crew()
    crew.store.insert(Thing("t", "1", "x", "c"))
    tidy(crew.store)
    (key,) = crew.rows(table)
    crew.memory.tables[table] = {other: row for other, row in crew.memory.tables[table].items() if other != key}
    crew.stands_still(of_table(table), lambda: crew.store.upsert(Thing("t", "1", "y", "d")))
    assert crew.other.repair().ok
    assert key not in crew.rows(table)
    crew.is_sound()
