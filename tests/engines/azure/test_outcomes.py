"""What a caller is told of a write of which any request may fail, in any way, after a lost answer or without one."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.azure.cross_partition.named_partitions import NamedPartitions
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables import accounts
from tablemapper.engines.azure.tables.service import (
    ErrorResponse,
    GroupTransaction,
    NoResponse,
    Request,
    RequestNotSent,
)
from tablemapper.engines.azure.tables.wire import Wire
from tablemapper.schema.model import compile_schema

from .memory import Memory
from .schedule import sweep_all
from .test_beyond import Account, Squad
from .test_engine import Plain

FAULTS: dict[str, Callable[[], BaseException]] = {
    "401": lambda: ErrorResponse(401, "AuthenticationFailed"),
    "403": lambda: ErrorResponse(403, "AuthorizationPermissionMismatch"),
    "no table": lambda: ErrorResponse(404, "TableNotFound"),
    "400": lambda: ErrorResponse(400, "InvalidInput"),
    "413": lambda: ErrorResponse(413, "RequestBodyTooLarge"),
    "500": lambda: NoResponse("500 InternalError", status=500),
    "a fault of the code": lambda: TypeError("a fault of the code"),
    "the credential": lambda: RequestNotSent("the credential gives no token: OSError: no route"),
    "an interrupt": KeyboardInterrupt,
}


class Failing:
    """A service of which one request fails, and those after it, or it alone; the one before it may lose its answer."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.number = 0
        self.at = -1
        self.fault: Callable[[], BaseException] = KeyboardInterrupt
        self.loss = ""
        self.goes_on = False
        self.ended: GroupTransaction | None = None

    def send(self, request: Request, *wait: float) -> Any:
        self.number += 1
        if self.at < 0 or self.number <= self.at - bool(self.loss):
            return self.memory.send(request, *wait)
        if self.loss and self.number == self.at and isinstance(request, GroupTransaction):
            if self.loss == "executed":
                with suppress(ErrorResponse):  # (so it was not)
                    self.memory.send(request, *wait)
            raise NoResponse("the answer")
        if self.number == self.at + 1 or (self.goes_on and self.number > self.at):
            raise self.fault()
        return self.memory.send(request, *wait)

    def close(self) -> None: ...


def _plain(store: tm.Store) -> Any:
    return store[Plain.key("a")]


def _account(store: tm.Store) -> Account:
    return store[Account.key("acme", "7")]


def _changed(account: Account) -> Account:
    account.email, account.team, account.score = "ada@y", "blue", 3.5
    return account


def _transaction(store: tm.Store) -> None:
    with store.transaction() as tx:
        tx.replace(_changed(_account(store)))
        tx.insert(Account("acme", "8", "eve@x", "red", 1.0))


def _text(entity: Any) -> Any:
    entity.text = "y"
    return entity


VERBS: dict[str, Callable[[tm.Store], object]] = {
    "insert, nothing elsewhere": lambda store: store.insert(Plain("b")),
    "upsert, nothing elsewhere": lambda store: store.upsert(Plain("a", "y")),
    "replace, nothing elsewhere": lambda store: store.replace(_text(_plain(store))),
    "delete, nothing elsewhere": lambda store: store.delete(_plain(store)),
    "delete by key, nothing elsewhere": lambda store: store.delete(Plain.key("a")),
    "merge of constants": lambda store: store.merge(Plain.key("a"), text="y"),
    "insert": lambda store: store.insert(Account("acme", "8", "eve@x", "red", 1.0)),
    "upsert": lambda store: store.upsert(Account("acme", "7", "ada@y", "blue", 1.0)),
    "replace": lambda store: store.replace(_changed(_account(store))),
    "merge": lambda store: store.merge(Account.key("acme", "7"), team="blue", email="ada@y"),
    "update": lambda store: store.update(Account.key("acme", "7"), _changed),
    "delete": lambda store: store.delete(Account.key("acme", "7")),
    "transaction": _transaction,
    "insert_many": lambda store: store.insert_many([Account(f"t{n}", "1", f"{n}@x", "red", 1.0) for n in range(3)]),
}
State = frozenset[tuple[str, str, str, str]]


class Trial:
    """An account, and a store over it whose requests can fail."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        self.memory = Memory(clock=lambda: int(self.now * 1_000_000))
        self.service = Failing(self.memory)
        engine = AzureEngine.open(
            self.service,
            "here",
            compile_schema([Account, Squad, Plain]),
            monotonic=lambda: self.now,
            sleep=self._sleep,
        )
        self.store = tm.Store(engine)
        self.box: Any = engine._outbox
        self.store.insert(Account("acme", "7", "ada@x", "red", 2.5))
        self.store.insert(Plain("a", "x"))
        self.tables = dict(self.memory.tables)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def begin(self, at: int, fault: str, loss: str, *, goes_on: bool) -> None:
        """Let the account be as it was, and a request fail from now on."""
        self.memory.tables = dict(self.tables)
        for some in (self.box._spent, self.box.full):
            some.clear()
        self.box.places = NamedPartitions(self.box.times.lease, self.box.times.grace)
        self.service.number, self.service.at, self.service.fault = 0, at, FAULTS[fault]
        self.service.loss, self.service.goes_on = loss, goes_on

    def states(self) -> dict[tuple[str, str, str], tuple[Any, ...]]:
        """Return what is stored of each entity."""
        found = {}
        for table, names in (("Accounts", ("email", "team", "score")), ("Plains", ("text",))):
            for (partition, row), stored in self.memory.tables[table].items():
                if not row.startswith(' "'):
                    found[table, partition, row] = tuple([stored.typed.get(name) for name in names])
        return found

    def after(self, verb: str) -> dict[tuple[str, str, str], tuple[Any, ...]]:
        """Return what is stored once a verb is done, and end there."""
        self.begin(-1, "401", "", goes_on=False)
        VERBS[verb](self.store)
        return self.states()

    def told(self, verb: str) -> BaseException | None:
        """Return what a verb ends with; then requests come through again."""
        try:
            VERBS[verb](self.store)
        except BaseException as error:
            return error
        finally:
            self.service.at = -1
        return None

    def swept(self) -> None:
        """Let all that was left be done; then nothing may be wrong."""
        sweep_all(self.store, self.memory, self)
        report = self.store.check()
        assert report.ok, str(report)


def cases(requests: int) -> Iterator[tuple[int, str, str, bool]]:
    """Yield which request fails, how, whether the one before it loses its answer, and whether those after it fail, too."""
    return itertools.product(range(requests), FAULTS, ("", "executed", "not executed"), (True, False))


@pytest.mark.parametrize("verb", VERBS)
def test_no_write_that_was_done_is_called_a_failure(
    verb: str, full_size: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    trial = Trial()
    before = trial.states()
    after = trial.after(verb)
    requests, outcomes = trial.service.number, set[str]()
    for number, (at, fault, loss, goes_on) in enumerate(cases(requests + 1)):
        if not full_size and number % 11 and at > 1:
            continue
        trial.begin(at, fault, loss, goes_on=goes_on)
        error, case = trial.told(verb), (at, fault, loss, goes_on)
        state = trial.states()
        assert not trial.box.led, (
            case
        )  # (else who holds a lock could have to end this write, whose end waits for the lock)
        outcomes.add(type(error).__name__)
        assert all(state.get(key) in (before.get(key), after.get(key)) for key in before | after), case
        if error is None:
            assert state == after, case
        elif not isinstance(error, tm.OutcomeUnknown | KeyboardInterrupt):
            written = sum(state.get(key) != before.get(key) for key in before | after)
            assert written == getattr(error, "written", 0), (case, error)
            assert isinstance(error, tm.StoreError | tm.InvalidEntity | TypeError), (case, error)
        if number % 7 == 0 or full_size:
            trial.swept()
    assert {"NoneType", "OutcomeUnknown", "StoreError"} <= outcomes


class _Gone(Exception):
    """As a credential raises that is none of ours."""


@attrs.define
class _Credential:
    """Gives tokens, until it does not."""

    fails: bool = False

    def get_token(self, *scopes: str) -> Any:
        if self.fails:
            raise _Gone("the identity is not there")
        return attrs.make_class("Token", ["token", "expires_on"])("secret", 0)


def test_a_credential_that_fails_sends_nothing_and_is_an_error_of_the_store() -> None:
    credential = _Credential(fails=True)

    class Nowhere:
        sent = 0

        def urlopen(self, *_: Any, **__: Any) -> Any:
            raise AssertionError

        def close(self) -> None: ...

    over = Wire(accounts.named_account("shop", credential), pool=Nowhere())
    with pytest.raises(RequestNotSent, match="_Gone: the identity is not there"):
        over.send(GroupTransaction("Plains", "a", ()))
    with pytest.raises(tm.StoreError, match="the credential gives no token: _Gone: the identity is not there"):
        AzureEngine.open(over, "shop", compile_schema([Plain]))
