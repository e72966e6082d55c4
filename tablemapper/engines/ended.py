"""Ended entities: their test, and their removal where they are in the way of a write.

An entity of a class with ``expires=True`` is not there from its moment on, although its row is, until `Store.expire`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from ..datetime_types import Builtin
from ..errors import EntityExists, EntityNotFound, PreconditionFailed, UniqueViolation
from ..schema.model import Model
from ..schema.rows import Row
from .optional_protocols import TellsTime
from .protocol import Batch, Engine, Operation, restore_rows, rows_before

_EPOCH = Builtin.datetime(1970, 1, 1, tzinfo=UTC)


def microseconds() -> int:
    """Return the time of this machine in µs since 1970."""
    return time.time_ns() // 1_000


def clock_of(engine: Engine) -> Callable[[], int]:
    """Return the clock of a store, in µs since 1970."""
    return engine.now if isinstance(engine, TellsTime) else microseconds


def moment_of(microseconds: int) -> datetime:
    """Return the time of so many µs since 1970."""
    return _EPOCH + timedelta(microseconds=microseconds)


class _Window(NamedTuple):
    """A second, in µs since 1970, with what the texts of its times begin with, and the least text after these."""

    start: int
    end: int
    text: str
    next_text: str


class EndedRows:
    """Tells which rows have ended, by the clock of a store.

    Attributes:
        places: the places of the time in the rows of the classes that end.
    """

    def __init__(self, engine: Engine) -> None:
        fields = {model: model.declaration.expiry for model in engine.schema.models}
        self.places: Final = {model: model.position[field.name] for model, field in fields.items() if field is not None}
        self._now = clock_of(engine)
        self._window = _Window(0, 0, "", "")

    def moment(self) -> str:
        """Return the time of now in stored form."""
        clock_time = self._now()
        return f"{self._window_of(clock_time)[2]}{clock_time % 1_000_000:06d}Z"

    def _window_of(self, clock_time: int) -> _Window:
        """Return the second of a time, which is kept."""
        window = self._window
        if not window[0] <= clock_time < window[1]:
            second = clock_time // 1_000_000
            begin, end = (f"{moment_of(1_000_000 * at).isoformat()[:19]}." for at in (second, second + 1))
            self._window = window = _Window(1_000_000 * second, 1_000_000 * (second + 1), begin, end)
        return window

    def is_past(self, value: Any) -> bool:
        """Return whether a stored time is not after now."""
        clock_time, window = self._now(), self._window
        if not window[0] <= clock_time < window[1]:
            window = self._window_of(clock_time)
        # (Most values are decided by the second.)
        return value.__class__ is str and value < window[3] and value <= f"{window[2]}{clock_time % 1_000_000:06d}Z"

    def has_ended_by(self, moment: str, model: Model, row: Row) -> bool:
        """Return whether a row has ended by a moment."""
        at = self.places.get(model)
        return at is not None and ends_by(row[at], moment)

    def seen(self, models: Iterable[Model], rows: Iterable[Row | None]) -> list[Row | None]:
        """Return rows, each of a class, with None for those that have ended, all by one moment."""
        moment, pairs = self.moment(), zip(models, rows, strict=True)
        return [None if row is None or self.has_ended_by(moment, model, row) else row for model, row in pairs]

    def judge(self, writes: Iterable[Operation | Batch]) -> None:
        """Say to writes by which moment, that of the first row that is judged, rows have ended."""
        moment: list[str] = []
        for write in writes:
            if (at := self.places.get(write.model)) is not None:
                set_test((write,), partial(self._has_ended_at, moment, at))

    def _has_ended_at(self, moment: list[str], place: int, row: Row) -> bool:
        if not moment:
            moment.append(self.moment())
        return ends_by(row[place], moment[0])


def set_test(writes: Iterable[Operation | Batch], has_ended: Callable[[Row], bool]) -> None:
    """Say to writes of a class by which test rows have ended."""
    for write in writes:
        write.has_ended = has_ended


def ends_by(value: Any, moment: str) -> bool:
    """Return whether a stored time is not after a moment; a missing or damaged one never ends."""
    return value.__class__ is str and value <= moment


def _row_ends_by(place: int, moment: str, row: Row) -> bool:
    return ends_by(row[place], moment)


def ended_by(model: Model, moment: datetime | None) -> Callable[[Row], bool] | None:
    """Return the test whether a row has ended by a moment; None if nothing of its class ends."""
    field = model.declaration.expiry
    if field is None or moment is None:
        return None
    return partial(_row_ends_by, model.position[field.name], field.type.store(moment))


# ---------------------------------------------------------------------------------------------- what is in the way


def make_way(engine: Engine, operations: Sequence[Operation], write: Callable[[], object]) -> None:
    """Write operations by a function; what has ended and is in their way goes before it is called again.

    An insert replaces what has its key if it looks for that, which costs a read, and so only the second attempt does. An
    entity that holds a unique value is deleted in a transaction of its own.
    """
    for operation in operations:
        if operation.has_ended is not None:
            break
    else:
        write()
        return
    rows = rows_before(operations)
    while True:
        try:
            write()
        except EntityExists as error:
            # (Where a read is a request, a write looks for that as soon as it is refused.)
            looks_next = _ended_keys(engine, operations, error) if engine.capabilities.quick_reads else []
            if not looks_next:
                raise
            for operation in looks_next:
                operation.looks = True
        except UniqueViolation as error:
            if not removed_holder(engine, operations, error):
                raise
        else:
            return
        restore_rows(operations, rows)


def _ended_keys(engine: Engine, operations: Sequence[Operation], error: EntityExists) -> list[Operation]:
    """Return the inserts that should look for what has ended, as one of them has its key; none if that is of no use."""
    inserts = [operation for operation in operations if operation.verb == "insert" and operation.has_ended is not None]
    if any(operation.looks for operation in inserts) or _ended_row(engine, inserts, error.entity, error.key) is None:
        return []
    return inserts


def _ended_row(engine: Engine, writes: Iterable[Operation | Batch], name: str | None, key: Any) -> Row | None:
    """Return the row of an entity if it has ended by what writes of its class say."""
    write = next((write for write in writes if write.has_ended is not None and write.model.name == name), None)
    if write is None or write.has_ended is None or key is None:
        return None
    row = engine.get(write.model, *key)
    return row if row is not None and write.has_ended(row) else None


def removed_holder(engine: Engine, writes: Sequence[Operation | Batch], error: UniqueViolation) -> bool:
    """Delete the entity that holds a unique value if it has ended; return whether the write may be tried again."""
    row = _ended_row(engine, writes, error.entity, error.holder)
    if row is None:
        return False
    model = next(write.model for write in writes if write.model.name == error.entity)
    with suppress(PreconditionFailed, EntityNotFound):  # (somebody else was faster)
        engine.apply([Operation("delete", model, row[0], row[1], old=row, etag=row[2])])
    return True


def insert_rest(engine: Engine, inserts: Sequence[Operation], write: Callable[[Sequence[Operation]], object]) -> None:
    """Insert entities by a function that may have written some of them when it fails, and gave these their timestamps."""
    while inserts:
        try:
            write(inserts)
        except UniqueViolation as error:
            remaining = [insert for insert in inserts if insert.new is not None and not insert.new[2]]
            # (What was written may have replaced the holder, which had ended.)
            may_pass = len(remaining) < len(inserts) and inserts[0].has_ended is not None
            if not removed_holder(engine, inserts, error) and not may_pass:
                raise
            inserts = remaining
        else:
            return


def insert_over_ended(engine: Engine, batches: Sequence[Batch], write: Callable[[], object]) -> None:
    """Insert entities by a function; if what has ended has the key of one, by operations that replace it."""
    rows = [[*batch.rows] for batch in batches]
    while True:
        try:
            write()
        except (EntityExists, UniqueViolation) as error:
            for batch, batch_rows in zip(batches, rows, strict=True):
                batch.rows[:] = batch_rows
            if isinstance(error, UniqueViolation):
                if not removed_holder(engine, batches, error):
                    raise
                continue
            if _ended_row(engine, batches, error.entity, error.key) is None or not _replace(engine, batches):
                raise
        return


def _replace(engine: Engine, batches: Sequence[Batch]) -> bool:
    """Insert entities by operations that look for what has ended; return False if two of them have one key."""
    by_batch = [batch.operations() for batch in batches]
    operations = [operation for inserts in by_batch for operation in inserts]
    if len({(operation.model.table, *operation.key) for operation in operations}) < len(operations):
        return False
    for operation in operations:
        operation.looks = operation.has_ended is not None
    engine.apply(operations)
    for batch, inserts in zip(batches, by_batch, strict=True):
        batch.take(inserts)
    return True
