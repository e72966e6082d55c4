"""Writes as they ship, step by step in an order that is drawn: with kills, lost answers, late requests, busy answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.azure.cross_partition.outbox import Outbox
from tablemapper.engines.azure.tables.service import GroupTransaction, Request
from tablemapper.engines.azure.writing import writes
from tablemapper.engines.azure.writing.writes import write
from tablemapper.engines.protocol import Operation
from tablemapper.schema.model import compile_schema
from tablemapper.verbs.operations import Operations

from .memory import Memory, Options
from .place import AzurePlace
from .schedule import Killed, Process, Rates, Schedule, played
from .test_engine import MODELS, Kind, Part

RATES = Rates(crash=0.01, lost=0.05, late=0.03, busy=0.03, cut=0.02)
NUMBERS = range(4)


class History(Memory):
    """A service that keeps every name that an entity ever had."""

    def __init__(self, seed: int) -> None:
        super().__init__(Options(vague=seed % 2 == 0))
        self.names: list[str] = []

    def send(self, request: Request, *wait: float) -> Any:
        answer = super().send(request)
        if isinstance(request, GroupTransaction):
            self.names += [change.members["name"] for change in request.changes if "name" in change.members]
        return answer


@attrs.define(eq=False)
class Token:
    """A write, by the name that it gives its entity."""

    name: str
    process: Process
    names: bool
    """Whether the write gives the name: a deletion does not."""
    inserts: bool


class Play:
    """Some clients that write the same entities."""

    def __init__(self, seed: int, rates: Rates = RATES) -> None:
        random.seed(seed)  # (of pauses)
        self.rng = random.Random(seed)
        self.memory = History(seed)
        self.engine = AzurePlace(memory=self.memory).open(compile_schema(MODELS))
        self.operations = Operations(self.engine)
        self.schedule = Schedule(self.memory, seed, rates)
        self.tokens: list[Token] = []
        for _ in range(12):
            name = f"token{len(self.tokens)}"
            operation = self.operation(name)
            process = self.schedule.start(write(self.engine._classes, [operation], Outbox("TableMapper")))
            self.tokens.append(Token(name, process, operation.verb != "delete", operation.verb in ("insert", "upsert")))

    def operation(self, name: str) -> Operation:
        number, weight = self.rng.choice(NUMBERS), self.rng.choice([None, 0.1, 0.2])
        code = self.rng.choice([None, "x", "y"])
        part = Part("a", number, name, weight, code)
        match self.rng.randrange(5):
            case 0:
                return self.operations.insert(part)
            case 1:
                return self.operations.upsert(part, merge=False)
            case 2:
                return self.operations.merge(Part.key("a", number), (), {"name": name, "weight": weight}, None)
            case 3:
                return self.operations.replace(part, "*")
        return self.operations.delete(Part.key("a", number), None)

    def run(self) -> dict[str, int]:
        self.schedule.run()
        store = tm.Store(self.engine)
        report = store.check()
        assert report.ok, str(report)
        parts = list(store.query(Part).allow_scan())
        assert len({part.code for part in parts if part.code}) == len([part for part in parts if part.code])
        group = store.get(Kind.key("a"))
        assert (0 if group is None else group.parts) == len(parts)
        for token in self.tokens:
            times, error = self.memory.names.count(token.name), token.process.error
            # (An insert that is sent again, or late, finds nothing in its way once others have deleted the entity.)
            assert times <= 1 or token.inserts, token.name
            if error is not None and not isinstance(error, Killed | tm.OutcomeUnknown):
                assert isinstance(error, tm.TableMapperError), repr(error)
                assert times == 0, (token.name, error)
            elif error is None and token.process.ended and token.names:
                assert times >= 1, token.name
        unknown = sum(isinstance(token.process.error, tm.OutcomeUnknown) for token in self.tokens)
        return {**self.schedule.counts, "unknown": unknown}


@pytest.mark.one_python
@pytest.mark.long
def test_writes_are_whole_and_their_outcomes_true_whatever_is_lost(full_size: bool) -> None:
    counts = played(Play, range(3_000 if full_size else 50))
    assert min(counts.values()) > 0, counts


def _no_decision(*_: Any) -> Iterator[Any]:
    return False
    yield


def _always_done(*_: Any) -> Iterator[Any]:
    return True
    yield


@pytest.mark.parametrize(
    ("name", "mutant"), [("_was_done", _no_decision), ("_was_done", _always_done)], ids=["nodecide", "always"]
)
def test_a_mutant_is_caught(name: str, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, name, mutant)
    with pytest.raises(AssertionError):
        played(Play, range(600))


def test_a_group_without_its_etag_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = writes._Transaction._groups

    def unconditional(self: Any, room: int) -> Any:
        some = plain(self, room)
        return [attrs.evolve(one, kind="upsert", if_match=None) if one.kind != "delete" else one for one in some]

    monkeypatch.setattr(writes._Transaction, "_groups", unconditional)
    with pytest.raises(AssertionError):
        played(Play, range(600))
