"""Requests of which no answer came, and which are executed later, behind what others have written since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure import recovery
from tablemapper.engines.azure.cross_partition.outbox import Deadline, Intent, ReserveValue
from tablemapper.engines.azure.cross_partition.reservations import Reservations
from tablemapper.engines.azure.tables.driver import Driver
from tablemapper.engines.azure.tables.entity_json import ops_member
from tablemapper.engines.azure.tables.reserved_names import BASE_PARTITION, BASE_ROW, OP
from tablemapper.engines.azure.tables.service import (
    ETAG,
    PARTITION,
    ROW,
    ErrorResponse,
    GroupTransaction,
    NoResponse,
    RowChange,
)

from .memory import Memory
from .test_beyond import Account, Bench, Squad
from .test_engine import Plain


class Late:
    """Holds the first transaction of a table back, and executes it when it is asked to."""

    def __init__(self, bench: Bench, table: str) -> None:
        self.bench, self.table = bench, table
        self.held: list[GroupTransaction] = []
        self._plain = bench.memory.send
        bench.memory.send = self._send  # type: ignore[method-assign]

    def _send(self, request: Any) -> Any:
        if not self.held and isinstance(request, GroupTransaction) and request.table == self.table:
            self.held.append(request)
            raise NoResponse("it is late")
        return self._plain(request)

    def arrive(self) -> bool:
        """Return whether it could be executed."""
        (request,) = self.held
        try:
            self._plain(request)
        except ErrorResponse:
            return False
        return True


# ------------------------------------------------------------------------------------------ rows elsewhere


@pytest.mark.parametrize("table", ["AccountsByTeam", "AccountsByEmail"])
@pytest.mark.parametrize("sweeps", [0, 1])
def test_a_row_elsewhere_that_comes_behind_its_deletion_goes_again(table: str, sweeps: int) -> None:
    bench = Bench([Account, Squad])
    late = Late(bench, table)
    bench.store.insert(Account("acme", "7", "ada@x", "red"))
    account = bench.store[Account.key("acme", "7")]
    account.team, account.email = "blue", "ada@y"
    bench.store.replace(account)
    for _ in range(sweeps):
        bench.now += 120
        bench.store.sweep()
    assert late.arrive()
    assert [problem.kind for problem in bench.store.check().problems if problem.kind == "dangling"] == ["dangling"]
    bench.swept()


def test_the_put_of_who_sweeps_comes_behind_its_own_burying() -> None:
    bench = Bench([Account, Squad])
    bench.service.at, bench.service.way = bench.service.sent + 3, "killed before"  # (behind the commit)
    with pytest.raises(KeyboardInterrupt):
        bench.store.insert(Account("acme", "7", None, "red"))
    bench.store = bench.open()
    bench.store.upsert(Account("acme", "7", None, "blue"))
    late = Late(bench, "AccountsByTeam")
    bench.now += 120
    bench.store.sweep()
    assert late.held[0].partition == "red"
    assert late.arrive()
    bench.swept()


@pytest.mark.parametrize(
    ("owner", "name", "table"), [(recovery, "bury", "AccountsByTeam"), (Reservations, "bury", "AccountsByEmail")]
)
def test_who_does_not_look_once_more_is_caught(
    owner: Any, name: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bury(*_: Any) -> Any:
        return
        yield

    monkeypatch.setattr(owner, name, bury)
    with pytest.raises(AssertionError, match="dangling"):
        test_a_row_elsewhere_that_comes_behind_its_deletion_goes_again(table, 1)


def test_a_value_that_another_write_has_is_not_buried() -> None:
    """An entity has it in what was built since, by a mark that the intent does not name."""
    memory = Memory()
    memory.tables |= {"Accounts": {}, "AccountsByEmail": {}}
    row = {OP: f"{2:025}", BASE_PARTITION: "acme", BASE_ROW: "7"}
    entity = ops_member({"by_email#3": f"{2:025}"})
    memory.send(GroupTransaction("Accounts", "acme", (RowChange("insert", "7", entity),)))
    memory.send(GroupTransaction("AccountsByEmail", "ada@x", (RowChange("insert", "holder", row),)))
    take = ReserveValue("AccountsByEmail", "ada@x", "holder", "7", "by_email#2", None)
    reservations = Reservations(Intent("Accounts", "acme", f"{1:025}"), Deadline(1e18), 60.0)
    Driver(memory, monotonic=lambda: 0.0).run(reservations.bury(take))
    assert memory.tables["AccountsByEmail"]


# ------------------------------------------------------------------------------------------ entities


def _read(store: tm.Store) -> Plain:  # type: ignore[valid-type]
    return store[Plain.key("a")]


def _changed(entity: Any) -> Any:
    entity.text = "late"
    return entity


WITH_AN_ETAG: dict[str, Callable[[tm.Store], object]] = {
    "replace": lambda store: store.replace(_changed(_read(store))),
    "replace whatever is there": lambda store: store.replace(_changed(_read(store)), if_match="*"),
    "upsert of what was read": lambda store: store.upsert(_changed(_read(store))),
    "update": lambda store: store.update(Plain.key("a"), _changed),
    "merge": lambda store: store.merge(Plain.key("a"), text="late", if_match=tm.info(_read(store)).etag),
    "delete": lambda store: store.delete(_read(store)),
    "delete whatever is there": lambda store: store.delete(_read(store), if_match="*"),
}


@pytest.mark.parametrize("name", WITH_AN_ETAG)
def test_what_was_read_is_written_once_however_late_a_request_is(name: str) -> None:
    bench = Bench([Plain])
    bench.store.insert(Plain("a", "first"))
    late = Late(bench, "Plains")
    WITH_AN_ETAG[name](bench.store)
    bench.store.upsert(Plain("a", "second"))
    assert not late.arrive()
    assert bench.store[Plain.key("a")].text == "second"


def test_what_was_read_is_upserted_though_others_have_changed_or_deleted_it() -> None:
    bench = Bench([Plain])
    bench.store.insert(Plain("a", "first"))
    for others in (lambda: bench.store.upsert(Plain("a", "theirs")), lambda: bench.store.delete(Plain.key("a"))):
        mine = _read(bench.store)
        others()
        mine.text = "mine"
        bench.store.upsert(mine)
        assert _read(bench.store) == mine
        mine.text = "again"
        bench.store.replace(mine)


# ------------------------------------------------------------------------------------------ other programs


class Mark(tm.Entity, table="Marks"):
    id: tm.Field[str]
    number: tm.Field[int]
    key = tm.Key[str, int](partition="{id}", row="{number}")


class Note(tm.Entity, table="Notes"):
    """With a maintained field, which no write of it writes, and with something elsewhere."""

    id: tm.Field[str]
    text: tm.Field[str] = tm.field(default="")
    size: tm.Field[int | None] = tm.field(default=None)
    marks: tm.Field[int] = tm.count(of=Mark)
    key = tm.Key[str](partition="{id}")
    by_size = tm.Index[int](partition="{size}")


CHANGES: dict[str, dict[str, Any]] = {
    "a value": {"text": "theirs"},
    "a number": {"size": "8", "size@odata.type": "Edm.Int64"},
    "a property that no class declares": {"color": "red"},
}


def _foreign(bench: Bench, members: dict[str, Any], mode: str, table: str = "Notes", send: Any = None) -> None:
    """Change an entity as another program does, which keeps all properties that it knows nothing of."""
    (entity,) = [one for one in bench.memory.entities(table) if one["RowKey"] == ""]
    all_of_it = {
        name: value for name, value in entity.items() if name not in (ETAG, PARTITION, ROW) and "Timestamp" not in name
    }
    changed = members if mode == "merge" else {**all_of_it, **members}
    change = RowChange("merge" if mode == "merge" else "replace", "", changed, "*")
    (send or bench.memory.send)(GroupTransaction(table, "a", (change,)))


def _required(store: tm.Store, mine: Any) -> None:
    with store.transaction() as tx:
        tx.require(mine)


WRITES: dict[str, Callable[[tm.Store, Any], object]] = {
    "replace": lambda store, mine: store.replace(mine),
    "delete": lambda store, mine: store.delete(mine),
    "require": _required,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("mode", ["merge", "replace"])
def test_a_change_by_another_program_is_not_overwritten_unseen(change: str, write: str, mode: Any) -> None:
    for verb in ("insert", "get", "replace"):
        bench = Bench([Mark, Note])
        mine = Note("a", "mine", 7)
        bench.store.insert(mine)
        if verb != "insert":
            mine = bench.store[Note.key("a")]
        if verb == "replace":
            bench.store.replace(mine)
        _foreign(bench, CHANGES[change], mode)
        before = bench.memory.entities("Notes")
        mine.text = "again"
        with pytest.raises(tm.PreconditionFailed):
            WRITES[write](bench.store, mine)
        assert bench.memory.entities("Notes") == before


def test_what_moves_an_etag_and_changes_no_value_keeps_nobody_from_writing() -> None:
    bench = Bench([Mark, Note])
    bench.store.insert(Note("a", "mine", 7))
    bench.store.insert(Mark("a", 1))
    mine = bench.store[Note.key("a")]
    bench.store.insert(Mark("a", 2))  # (what is maintained from these is another value then)
    _required(bench.store, bench.store[Note.key("a")])
    _foreign(bench, {"text": "mine"}, "merge")
    mine.text = "again"
    bench.store.replace(mine)
    held = bench.store[Note.key("a")]
    assert (held.text, held.size, held.marks) == ("again", 7, 2)


def test_the_etag_of_a_write_without_an_answer_is_not_that_of_another_program() -> None:
    for plain in (True, False):
        bench = Bench([Plain, Mark, Note])
        table = "Plains" if plain else "Notes"
        mine: Any = Plain("a", "mine") if plain else Note("a", "mine", 7)
        plain_send = bench.memory.send
        seen: list[Any] = []

        def send(request: Any, *wait: float) -> Any:
            answer = plain_send(request, *wait)
            if not seen and isinstance(request, GroupTransaction) and request.table == table:
                seen.append(request)
                _foreign(bench, {"text": "theirs"}, "merge", table, send=plain_send)
                raise NoResponse("the answer")
            return answer

        bench.memory.send = send  # type: ignore[method-assign]
        bench.store.insert(mine)
        mine.text = "again"
        with pytest.raises(tm.PreconditionFailed):
            bench.store.replace(mine)
        assert bench.store[type(mine).key("a")].text == "theirs"
