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

from ....errors import CorruptStore
from ..tables.driver import Effects, read, side_by_side
from ..tables.entity_json import holds
from ..tables.reserved_names import BASE_PARTITION, BASE_ROW, NEXT_OP, NEXT_ROW, OP, intent_key
from ..tables.service import ETAG, Entity, ErrorResponse, GetEntity, GroupTransaction, NoResponse, RowChange
from .outbox import Deadline, Intent, ReleaseValue, ReserveValue, restated

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
    patience: Deadline
    timeout: float

    def take(self, one: ReserveValue) -> Effects[Taken]:
        """Take a value, from whoever does not have it any more."""
        if one.was is not None:
            return (yield from self._pass_on(one, one.was))
        intent = self.intent
        ours = {OP: intent.op, BASE_PARTITION: intent.partition, BASE_ROW: one.base}
        new = GroupTransaction(one.table, one.partition, (RowChange("insert", one.row, ours),))
        for attempt in range(_ATTEMPTS):
            try:
                yield new
                return "taken"
            except NoResponse as lost:
                yield from self.patience.again(attempt, lost)
            except ErrorResponse as refused:
                if refused.status != 409:
                    raise
            found = yield from self._row(one)
            if found is None:
                continue
            if OP not in found:
                key = one.partition, one.row
                raise CorruptStore(f"{one.table} {key}: a row of another program has the key of this value; delete it")
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
            if (yield from self._sent(one, RowChange("replace", one.row, ours, found[ETAG]), attempt)):
                return "taken"
        return "again"

    def _look(
        self, holders: Sequence[tuple[str, str, str]]
    ) -> Effects[tuple[list[Entity | None], list[Entity | None]]]:
        """Return the intents and the entities of holders: what is in neither now never will be, in this order."""
        intents = yield from side_by_side([self._get(partition, intent_key(op)) for partition, _, op in holders])
        entities = yield from side_by_side([self._get(partition, row) for partition, row, _ in holders])
        return intents, entities

    def _pass_on(self, one: ReserveValue, was: str) -> Effects[Taken]:
        """Note beside the holder who comes after it."""
        op = self.intent.op
        for attempt in range(_ATTEMPTS):
            found = yield from self._row(one)
            if found is None or found.get(OP) != was:
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
            if (yield from self._sent(one, RowChange("replace", one.row, both, found[ETAG]), attempt)):
                return "taken"
        return "again"

    def _settle(self, pending: list[Entity], ops: list[str], attempt: int) -> Effects[None]:
        """Wait for those who want the same, or fence them: the earlier write goes first."""
        if self.intent.op > min(ops) and attempt < _POLITE:
            yield from self.patience.again(attempt)
            return
        for held in pending:
            with suppress(NoResponse, ErrorResponse):  # (it is looked at again)
                yield restated(self.intent.table, held, "X")

    def _sent(self, one: ReserveValue | ReleaseValue, change: RowChange, attempt: int) -> Effects[bool]:
        """Send a change of a row as it was read; return whether it was certainly made, else the row is looked at again."""
        try:
            yield GroupTransaction(one.table, one.partition, (change,))
        except NoResponse as lost:
            yield from self.patience.again(attempt, lost)
        except ErrorResponse:
            return False
        else:
            return True
        return False

    def end(self, one: ReserveValue, *, done: bool) -> Effects[None]:
        """Make the holder of a value that was passed on the only one, or take back what was not done."""
        if one.was is None:
            if not done:
                yield from self.release(ReleaseValue(one.table, one.partition, one.row, self.intent.op))
            return
        attempt = 0
        while True:
            found = yield from self._row(one)
            if found is None or found.get(NEXT_OP) != self.intent.op:
                return
            next_one = {OP: self.intent.op, BASE_PARTITION: found[BASE_PARTITION], BASE_ROW: found[NEXT_ROW]}
            only = RowChange("replace", one.row, next_one if done else _holder(found), found[ETAG])
            if (yield from self._sent(one, only, attempt)):
                return
            attempt += 1

    def release(self, one: ReleaseValue) -> Effects[None]:
        """Give a value up, if the write still has it."""
        attempt = 0
        while True:
            found = yield from self._row(one)
            if found is None or found.get(OP) != one.op:
                return
            if (yield from self._sent(one, RowChange("delete", one.row, {}, found[ETAG]), attempt)):
                return
            attempt += 1

    def bury(self, one: ReserveValue) -> Effects[None]:
        """Give up a value that a late request took for the entity once more, after that had given it up."""
        attempt = 0
        while True:
            found = yield from self._row(one)
            if found is None or OP not in found or NEXT_OP in found:  # (who comes next makes itself the only one)
                return
            partition, row, op = found[BASE_PARTITION], found[BASE_ROW], str(found[OP])
            if (partition, row) != (self.intent.partition, one.base) or not (op == self.intent.op or op == one.was):
                return
            if op != self.intent.op and (yield from self._get(partition, intent_key(op))) is not None:
                return
            if holds((yield from self._get(partition, row)), one.index, op):
                return
            if (yield from self._sent(one, RowChange("delete", one.row, {}, found[ETAG]), attempt)):
                return
            attempt += 1

    def _row(self, one: ReserveValue | ReleaseValue) -> Effects[Entity | None]:
        found: Entity | None = yield from read(GetEntity(one.table, one.partition, one.row), self.timeout)
        return found

    def _get(self, partition: str, row: str) -> Effects[Entity | None]:
        """Return an entity or an intent of the table that is written."""
        found: Entity | None = yield from read(GetEntity(self.intent.table, partition, row), self.timeout)
        return found


def _holders(found: Entity) -> list[tuple[str, str, str]]:
    """Return the keys of the entities that may have a value, each with the write that it has it by."""
    first = (found[BASE_PARTITION], found[BASE_ROW], found[OP])
    return [first, (first[0], found[NEXT_ROW], found[NEXT_OP])] if NEXT_OP in found else [first]


def _holder(found: Entity) -> Entity:
    return {name: found[name] for name in (OP, BASE_PARTITION, BASE_ROW)}
