"""Unique values over partitions: one row for each value says which write of which entity has it.

A value is taken before the transaction of a write, and given up after it. It belongs to the entity whose rows in the
index are of the write that stands in the row. Who wants a value that is taken looks at the intents of its holders
first, and then at the entities: what was neither pending nor live in that order never will be.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, TypeAlias

import attrs

from ..tables.drive import Work, read, side_by_side
from ..tables.names import BASE_PARTITION, BASE_ROW, NEXT_OP, NEXT_ROW, OP, intent_key
from ..tables.rows import holds
from ..tables.service import ETAG, Change, Commit, Entity, Get, Lost, Refused
from .outbox import Intent, Patience, Release, Take, restated

Taken: TypeAlias = Literal["taken", "again"] | tuple[str, str]
"""What came of an attempt to take a value; the key of an entity: that one has it."""
_ATTEMPTS = 10
_POLITE = 2  # attempts for which an earlier write may go on


@attrs.define(eq=False)
class Reservations:
    """The unique values that one write takes, passes on and gives up.

    Args:
        intent: of the write.
        patience: sends.
        timeout: seconds after which to give up reading.
    """

    intent: Intent
    patience: Patience
    timeout: float

    def take(self, one: Take) -> Work[Taken]:
        """Take a value, from whoever does not have it any more."""
        if one.was is not None:
            return (yield from self._pass_on(one, one.was))
        intent = self.intent
        ours = {OP: intent.op, BASE_PARTITION: intent.partition, BASE_ROW: one.base}
        new = Commit(one.table, one.partition, (Change("insert", one.row, ours),))
        for attempt in range(_ATTEMPTS):
            try:
                yield new
                return "taken"
            except Lost as lost:
                yield from self.patience.again(attempt, lost)
            except Refused as refused:
                if refused.status != 409:
                    raise
            found = yield from self._row(one)
            if found is None:
                continue
            if found[OP] == intent.op:
                return "taken"
            holders = _holders(found)
            intents, entities = yield from self._look(holders)
            for (partition, row, op), entity in zip(holders, entities, strict=True):
                if holds(entity, one.index, op):
                    return partition, row
            pending = [held for held in intents if held is not None and held["state"] == "P"]
            if pending:
                yield from self._settle(pending, [op for _, _, op in holders], attempt)
                continue
            if (yield from self._sent(one, Change("replace", one.row, ours, found[ETAG]), attempt)):
                return "taken"
        return "again"

    def _look(self, holders: Sequence[tuple[str, str, str]]) -> Work[tuple[list[Entity | None], list[Entity | None]]]:
        """Return the intents and the entities of holders: what is in neither now never will be, in this order."""
        intents = yield from side_by_side([self._get(partition, intent_key(op)) for partition, _, op in holders])
        entities = yield from side_by_side([self._get(partition, row) for partition, row, _ in holders])
        return intents, entities

    def _pass_on(self, one: Take, was: str) -> Work[Taken]:
        """Note beside the holder who comes after it."""
        op = self.intent.op
        for attempt in range(_ATTEMPTS):
            found = yield from self._row(one)
            if found is None or found[OP] != was:
                return "again"
            other = found.get(NEXT_OP)
            if other == op:
                return "taken"
            if other is not None:
                held = yield from self._get(found[BASE_PARTITION], intent_key(other))
                if held is not None and held["state"] == "C":
                    return "again"
                if held is not None and held["state"] == "P":
                    yield from self._settle([held], [other], attempt)
                    continue
                entity = yield from self._get(found[BASE_PARTITION], found[NEXT_ROW])
                if holds(entity, one.index, other):
                    return "again"
            both = _holder(found) | {NEXT_OP: op, NEXT_ROW: one.base}
            if (yield from self._sent(one, Change("replace", one.row, both, found[ETAG]), attempt)):
                return "taken"
        return "again"

    def _settle(self, pending: list[Entity], ops: list[str], attempt: int) -> Work[None]:
        """Wait for those who want the same, or fence them: the earlier write goes first."""
        if self.intent.op > min(ops) and attempt < _POLITE:
            yield from self.patience.again(attempt)
            return
        for held in pending:
            with suppress(Lost, Refused):  # (it is looked at again)
                yield restated(self.intent.table, held, "X")

    def _sent(self, one: Take | Release, change: Change, attempt: int) -> Work[bool]:
        """Send a change of a row as it was read; return whether it was certainly made, else the row is looked at again."""
        try:
            yield Commit(one.table, one.partition, (change,))
        except Lost as lost:
            yield from self.patience.again(attempt, lost)
        except Refused:
            return False
        else:
            return True
        return False

    def end(self, one: Take, *, done: bool) -> Work[None]:
        """Make the holder of a value that was passed on the only one, or take back what was not done."""
        if one.was is None:
            if not done:
                yield from self.release(Release(one.table, one.partition, one.row, self.intent.op))
            return
        attempt = 0
        while True:
            found = yield from self._row(one)
            if found is None or found.get(NEXT_OP) != self.intent.op:
                return
            next_one = {OP: self.intent.op, BASE_PARTITION: found[BASE_PARTITION], BASE_ROW: found[NEXT_ROW]}
            only = Change("replace", one.row, next_one if done else _holder(found), found[ETAG])
            if (yield from self._sent(one, only, attempt)):
                return
            attempt += 1

    def release(self, one: Release) -> Work[None]:
        """Give a value up, if the write still has it."""
        attempt = 0
        while True:
            found = yield from self._row(one)
            if found is None or found[OP] != one.op:
                return
            if (yield from self._sent(one, Change("delete", one.row, {}, found[ETAG]), attempt)):
                return
            attempt += 1

    def _row(self, one: Take | Release) -> Work[Entity | None]:
        found: Entity | None = yield from read(Get(one.table, one.partition, one.row), self.timeout)
        return found

    def _get(self, partition: str, row: str) -> Work[Entity | None]:
        """Return an entity or an intent of the table that is written."""
        found: Entity | None = yield from read(Get(self.intent.table, partition, row), self.timeout)
        return found


def _holders(found: Entity) -> list[tuple[str, str, str]]:
    """Return the keys of the entities that may have a value, each with the write that it has it by."""
    first = (found[BASE_PARTITION], found[BASE_ROW], found[OP])
    return [first, (first[0], found[NEXT_ROW], found[NEXT_OP])] if NEXT_OP in found else [first]


def _holder(found: Entity) -> Entity:
    return {name: found[name] for name in (OP, BASE_PARTITION, BASE_ROW)}
