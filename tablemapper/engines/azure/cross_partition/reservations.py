"""Unique values over partitions: one row for each value says which write of which entity has it.

A value is taken before the transaction of a write, and given up after it. It belongs to the entity whose rows in the
index are of the write that stands in the row. Who wants a value that is taken looks at the intents of its holders
first, and then at the entities. What was neither pending nor live in that order never will be.
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

TakeResult: TypeAlias = Literal["taken", "again"] | tuple[str, str]
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

    def take(self, value: ReserveValue) -> Effects[TakeResult]:
        """Take a value, from whoever does not have it any more."""
        if value.was is not None:
            return (yield from self._pass_on(value, value.was))
        intent = self.intent
        ours = {OP: intent.op, BASE_PARTITION: intent.partition, BASE_ROW: value.base}
        new = GroupTransaction(value.table, value.partition, (RowChange("insert", value.row, ours),))
        for attempt in range(_ATTEMPTS):
            try:
                yield new
                return "taken"
            except NoResponse as no_response:
                yield from self.patience.again(attempt, no_response)
            except ErrorResponse as refusal:
                if refusal.status != 409:
                    raise
            reservation = yield from self._row(value)
            if reservation is None:
                continue
            if OP not in reservation:
                key = value.partition, value.row
                raise CorruptStore(
                    f"{value.table} {key}: a row of another program has the key of this value; delete it"
                )
            if reservation[OP] == intent.op:
                return "taken"
            holders = _holders(reservation)
            intents, entities = yield from self._look(holders)
            for (partition, row, op), entity in zip(holders, entities, strict=True):
                if holds(entity, value.index, op):
                    return partition, row
            pending = [intent_row for intent_row in intents if intent_row is not None and intent_row["state"] == "P"]
            if pending:
                yield from self._settle(pending, [op for _, _, op in holders], attempt)
                continue
            if (yield from self._send(value, RowChange("replace", value.row, ours, reservation[ETAG]), attempt)):
                return "taken"
        return "again"

    def _look(
        self, holders: Sequence[tuple[str, str, str]]
    ) -> Effects[tuple[list[Entity | None], list[Entity | None]]]:
        """Return the intents and the entities of holders: what is in neither now never will be, in this order."""
        intents = yield from side_by_side([self._get(partition, intent_key(op)) for partition, _, op in holders])
        entities = yield from side_by_side([self._get(partition, row) for partition, row, _ in holders])
        return intents, entities

    def _pass_on(self, value: ReserveValue, was: str) -> Effects[TakeResult]:
        """Note beside the holder who comes after it."""
        op = self.intent.op
        for attempt in range(_ATTEMPTS):
            reservation = yield from self._row(value)
            if reservation is None or reservation.get(OP) != was:
                return "again"
            next_op = reservation.get(NEXT_OP)
            if next_op == op:
                return "taken"
            if next_op is not None:
                intent_row = yield from self._get(reservation[BASE_PARTITION], intent_key(next_op))
                if intent_row is not None and intent_row["state"] == "C":
                    return "again"
                if intent_row is not None and intent_row["state"] == "P":
                    yield from self._settle([intent_row], [next_op], attempt)
                    continue
                entity = yield from self._get(reservation[BASE_PARTITION], reservation[NEXT_ROW])
                if holds(entity, value.index, next_op):
                    return "again"
            both_holders = _holder(reservation) | {NEXT_OP: op, NEXT_ROW: value.base}
            if (
                yield from self._send(value, RowChange("replace", value.row, both_holders, reservation[ETAG]), attempt)
            ):
                return "taken"
        return "again"

    def _settle(self, pending: list[Entity], ops: list[str], attempt: int) -> Effects[None]:
        """Wait for those who want the same, or fence them: the earlier write goes first."""
        if self.intent.op > min(ops) and attempt < _POLITE:
            yield from self.patience.again(attempt)
            return
        for intent_row in pending:
            with suppress(NoResponse, ErrorResponse):  # (it is looked at again)
                yield restated(self.intent.table, intent_row, "X")

    def _send(self, value: ReserveValue | ReleaseValue, change: RowChange, attempt: int) -> Effects[bool]:
        """Send a change of a row as it was read; return whether it was certainly made, else the row is looked at again."""
        try:
            yield GroupTransaction(value.table, value.partition, (change,))
        except NoResponse as no_response:
            yield from self.patience.again(attempt, no_response)
        except ErrorResponse:
            return False
        else:
            return True
        return False

    def end(self, value: ReserveValue, *, is_done: bool) -> Effects[None]:
        """Make the holder of a value that was passed on the only one, or take back what was not done."""
        if value.was is None:
            if not is_done:
                yield from self.release(ReleaseValue(value.table, value.partition, value.row, self.intent.op))
            return
        attempt = 0
        while True:
            reservation = yield from self._row(value)
            if reservation is None or reservation.get(NEXT_OP) != self.intent.op:
                return
            next_one = {
                OP: self.intent.op,
                BASE_PARTITION: reservation[BASE_PARTITION],
                BASE_ROW: reservation[NEXT_ROW],
            }
            only = RowChange("replace", value.row, next_one if is_done else _holder(reservation), reservation[ETAG])
            if (yield from self._send(value, only, attempt)):
                return
            attempt += 1

    def release(self, value: ReleaseValue) -> Effects[None]:
        """Give a value up, if the write still has it."""
        attempt = 0
        while True:
            reservation = yield from self._row(value)
            if reservation is None or reservation.get(OP) != value.op:
                return
            if (yield from self._send(value, RowChange("delete", value.row, {}, reservation[ETAG]), attempt)):
                return
            attempt += 1

    def bury(self, value: ReserveValue) -> Effects[None]:
        """Give up a value that a late request took for the entity once more, after that had given it up."""
        attempt = 0
        while True:
            reservation = yield from self._row(value)
            if (
                reservation is None or OP not in reservation or NEXT_OP in reservation
            ):  # (who comes next makes itself the only one)
                return
            partition, row, op = reservation[BASE_PARTITION], reservation[BASE_ROW], str(reservation[OP])
            if (partition, row) != (self.intent.partition, value.base) or not (op == self.intent.op or op == value.was):
                return
            if op != self.intent.op and (yield from self._get(partition, intent_key(op))) is not None:
                return
            if holds((yield from self._get(partition, row)), value.index, op):
                return
            if (yield from self._send(value, RowChange("delete", value.row, {}, reservation[ETAG]), attempt)):
                return
            attempt += 1

    def _row(self, value: ReserveValue | ReleaseValue) -> Effects[Entity | None]:
        reservation: Entity | None = yield from read(GetEntity(value.table, value.partition, value.row), self.timeout)
        return reservation

    def _get(self, partition: str, row: str) -> Effects[Entity | None]:
        """Return an entity or an intent of the table that is written."""
        entity: Entity | None = yield from read(GetEntity(self.intent.table, partition, row), self.timeout)
        return entity


def _holders(reservation: Entity) -> list[tuple[str, str, str]]:
    """Return the keys of the entities that may have a value, each with the write that it has it by."""
    first = (reservation[BASE_PARTITION], reservation[BASE_ROW], reservation[OP])
    return [first, (first[0], reservation[NEXT_ROW], reservation[NEXT_OP])] if NEXT_OP in reservation else [first]


def _holder(reservation: Entity) -> Entity:
    return {name: reservation[name] for name in (OP, BASE_PARTITION, BASE_ROW)}
