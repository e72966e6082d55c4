"""Deeds: calls of a store that write by key, drawn at random, and what is to come of them.

A call is source text. What should be there afterwards is computed from rows, as everything that is compared.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

import tablemapper as tm

from .changes import changed, is_refused, ruled
from .judges import Differs
from .kinds import exact, text_of
from .models import Record, slots_of
from .oracle import Row, State, clean
from .questions import Assignment, random_assignment, random_part

if TYPE_CHECKING:
    from .answers import Trial

__all__ = ["Deed", "random_deeds"]

Outcome: TypeAlias = State | type[Exception]
"""What is there afterwards, or the error."""


@attrs.frozen
class Deed:
    """A call of a store."""

    verb: Literal["merge", "require", "replace_many", "clear"]
    of: str
    """The class."""
    row: Row = attrs.field(factory=dict)
    """Of the entity that it is about, or of its key."""
    assignments: tuple[Assignment, ...] = ()
    how: str = ""
    """What is required: a ``key``, an ``entity``, one that was written ``since``, or one that was ``never`` read."""
    other: Row = attrs.field(factory=dict)
    """Of the entity that is written if the other one is as required."""

    def text(self, record: Record) -> str:
        """Return source of the call."""
        key = _key_text(record, self.row)
        ordered = sorted(self.assignments, key=lambda one: one.named)
        given = ", ".join(one.text(self.of) for one in ordered)
        match self.verb:
            case "merge":
                return f"store.merge({key}, {given}, returning=True)"
            case "require":
                entity = f"{self.of}({', '.join(f'{name}={text_of(one)}' for name, one in self.row.items())})"
                required = {
                    "key": key, "entity": f"store[{key}]", "since": f"outdated(store, {key}, {given})", "never": entity
                }[self.how]  # fmt: skip
                write = f"tx.merge({_key_text(record, self.other)}, {given})"
                return f"if_there(store, {required}, lambda tx: {write})"
            case "replace_many":
                every = f"store.query({self.of}).allow_scan()"
                return f"store.replace_many([one.replace({given}) for one in {every}])"
        return f"store.clear({self.of})"

    def do(self, trial: Trial) -> None:
        """Do it, and compare what it returns and what is there then.

        Raises:
            Differs
        """
        state = trial.state
        record = state.model.record(self.of)
        rows = state.rows(self.of)
        answer = trial.run(self.text(record))
        match self.verb:
            case "merge":
                touched, outcome = [self.row], self._merged(state, self.row)
            case "require" if self.how == "since":
                touched, outcome = [self.row], self._merged(state, self.row)
                if isinstance(outcome, State):
                    trial.settle(outcome, self.of, touched)
                    outcome = tm.PreconditionFailed
            case "require":
                touched, outcome = [self.other], self._required(state)
            case "replace_many":
                touched, outcome = rows, self._all(state, rows)
            case _:
                after = state.copy()
                for row in rows:
                    after.remove(self.of, row)
                touched, outcome = rows, tm.UniqueViolation if after.clashes() else after
        wanted: Any = len(rows)
        if self.verb == "require":
            wanted = None
        elif self.verb == "merge" and isinstance(outcome, State):
            (wanted,) = [row for row in outcome.rows(self.of) if _same(outcome, self.of, row, self.row)]
            if isinstance(answer, tm.Record):
                answer = {field.name: getattr(answer, field.name) for field in record.fields}
        if isinstance(outcome, type):
            if type(answer) is not outcome:
                raise Differs(outcome.__name__, repr(answer))
        elif exact(answer) != exact(wanted):
            raise Differs(repr(wanted), repr(answer))
        trial.settle(outcome if isinstance(outcome, State) else trial.state, self.of, touched)

    def _merged(self, state: State, row: Row) -> Outcome:
        """Return what is there after a merge of a row that is, or is not, there."""
        if self._is_refused(state):
            return tm.InvalidEntity
        there = [one for one in state.rows(self.of) if _same(state, self.of, one, row)]
        if not there:
            return tm.EntityNotFound
        made = dict(there[0])
        for assignment in self.assignments:
            if (after := changed(state.model.record(self.of), there[0], assignment)) is None:
                return tm.InvalidEntity
            made[assignment.field] = after[assignment.field]
        whole = ruled(state.model.record(self.of), made)
        return tm.InvalidEntity if whole is None else self._all(state, there, whole)

    def _is_refused(self, state: State) -> bool:
        return any(is_refused(state.model.record(self.of), one) for one in self.assignments)

    def _required(self, state: State) -> Outcome:
        there = any(_same(state, self.of, one, self.row) for one in state.written(self.of))
        if self.how == "never":
            return tm.PreconditionFailed
        return self._merged(state, self.other) if there or self._is_refused(state) else tm.EntityNotFound

    def _all(self, state: State, rows: Sequence[Row], made: Row | None = None) -> Outcome:
        """Return what is there after rows were replaced."""
        record, after = state.model.record(self.of), state.copy()
        for row in rows:
            if (new := changed(record, row, self.assignments[0]) if made is None else made) is None:
                return tm.InvalidEntity
            after.put(self.of, new)
        return tm.UniqueViolation if after.clashes() else after


def _same(state: State, name: str, one: Row, other: Row) -> bool:
    return state.identity(name, one) == state.identity(name, other)


def _key_text(record: Record, row: Row) -> str:
    names = dict.fromkeys(slot.field for slot in slots_of(record.partition, record.row))
    return f"{record.name}.key({', '.join(text_of(row[name]) for name in names)})" if row else ""


def random_deeds(rng: random.Random, state: State) -> list[Deed]:
    """Return what is done, now and then, with a store between questions."""
    record = rng.choice(state.model.entities)
    rows = state.written(record.name)
    chance = rng.random()
    if not rows or chance < 0.6:
        return []
    if chance < 0.62:
        return [Deed("clear", record.name)]
    assignments = [one for _ in range(rng.choice((1, 1, 2, 3))) if (one := _assignment(rng, record)) is not None]
    by_field = {one.field: one for one in assignments}  # (a field is assigned to once)
    if not by_field:
        return []
    row = rng.choice(rows)
    given = tuple(by_field.values())
    if chance < 0.67:
        plain = [one for one in given if one.verb == "set" and one.part is None]
        return [Deed("replace_many", record.name, assignments=(plain[0],))] if plain else []
    if chance < 0.8:
        other, how = rng.choice(rows), rng.choice(("key", "key", "entity", "since", "never"))
        if how == "key" and rng.random() < 0.5:
            row = _anything(rng, record)
        if _same(state, record.name, row, other):
            return []
        return [Deed("require", record.name, row, given[:1], how, other)]
    return [Deed("merge", record.name, _anything(rng, record) if rng.random() < 0.1 else row, given)]


def _anything(rng: random.Random, record: Record) -> Row:
    """Return a row that is not there, mostly."""
    return {field.name: clean(rng.choice(field.pool), field.kind) for field in record.own}


def _assignment(rng: random.Random, record: Record) -> Assignment | None:
    return random_part(rng, record) if rng.random() < 0.5 else random_assignment(rng, record)
