"""Changes of rows in other partitions: an intent in the transaction of a write says them, and they are made after it.

An intent is *pending* while unique values are taken, before the transaction; the transaction makes it *committed*.
Whoever finds it pending for long *fences* it: then the transaction cannot succeed any more. All that an intent says can
be done several times, by several at once, and long after it was done, without doing harm.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import attrs
import msgspec

from ....errors import CorruptStore
from ..tables.driver import Effects, ReadClock, pause, within
from ..tables.reserved_names import intent_key
from ..tables.service import (
    ETAG,
    MAX_CHANGES,
    PARTITION,
    ROW,
    Entity,
    ErrorResponse,
    GroupTransaction,
    Members,
    NoResponse,
    RowChange,
    properties,
)
from .named_partitions import FinishedIntent, NamedPartitions, Partition

State: TypeAlias = Literal["P", "C", "X", "D"]
"""Of an intent: pending; committed; fenced, so that it can never be committed; committed and carried out."""
_PIECE = 30_000  # characters of an intent in one property
MAX_INTENT = 450_000  # characters
_ROOM = 450_000  # of the rows of an index in one transaction
_MOST_MARKERS = 48  # that are deleted with a change of a group
_MOST_SPENT = 10_000  # partitions


class PutRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of an index that comes."""

    table: str
    partition: str
    row: str
    members: dict[str, str | int | float | bool]
    index: str


class DeleteRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of an index that goes."""

    table: str
    partition: str
    row: str


class ReserveValue(msgspec.Struct, frozen=True, array_like=True):
    """A unique value that an entity gets."""

    table: str
    partition: str
    row: str
    base: str
    """The row key of the entity."""
    index: str
    was: str | None
    """The write of the entity that gives it up in the same transaction; None if nobody does."""


class ReleaseValue(msgspec.Struct, frozen=True, array_like=True):
    """A unique value that an entity gives up, and the write by which it has it."""

    table: str
    partition: str
    row: str
    op: str


class GroupDelta(msgspec.Struct, frozen=True, array_like=True):
    """A change of a group."""

    label: str
    partition: str
    row: str
    packed: bytes


class Intent(msgspec.Struct, array_like=True):
    """The changes of a write in other partitions, and the place of the write itself."""

    table: str
    partition: str
    op: str
    puts: list[PutRow] = []
    deletes: list[DeleteRow] = []
    takes: list[ReserveValue] = []
    releases: list[ReleaseValue] = []
    deltas: list[GroupDelta] = []

    def __bool__(self) -> bool:
        return bool(self.puts or self.deletes or self.takes or self.releases or self.deltas)

    @property
    def place(self) -> Partition:
        """The table and the partition of the intent."""
        return self.table, self.partition

    @property
    def row(self) -> str:
        """The row key of the intent."""
        return intent_key(self.op)

    def change(self, state: State, etag: str | None = None) -> RowChange:
        """Return the change that writes the intent: it is new, or replaces that of an ETag.

        Raises:
            TooLong: it does not fit into one entity.
        """
        text = msgspec.json.encode(self).decode()
        if len(text) > MAX_INTENT:
            raise IntentTooLarge(len(text))
        members = {f"c{at // _PIECE}": text[at : at + _PIECE] for at in range(0, len(text), _PIECE)} | {"state": state}
        return RowChange("insert" if etag is None else "replace", self.row, members, etag)


_decode_intent = msgspec.json.Decoder(Intent).decode


class IntentTooLarge(Exception):
    """The changes of a write in other partitions do not fit into one entity."""


def intent_of(entity: Entity) -> tuple[Intent, State]:
    """Return an intent that was read, and its state."""
    pieces: list[str] = []
    while (piece := entity.get(f"c{len(pieces)}")) is not None:
        pieces.append(piece)
    try:
        return _decode_intent("".join(pieces)), msgspec.convert(entity["state"], State)
    except (KeyError, TypeError, msgspec.MsgspecError) as error:
        key = entity[PARTITION], entity[ROW]
        raise CorruptStore(f"{key}: what a write has still to do cannot be read: {error}") from error


CLAIMED = "swept"
"""The property of a committed intent that those who sweep carry out: its writer cannot delete it any more."""


def restated(table: str, entity: Entity, state: State) -> GroupTransaction:
    """Return the request that gives an intent, as it was read, another state: ``"X"`` fences it."""
    members: Members = {name: entity[name] for name in properties(entity)} | {"state": state}
    return GroupTransaction(table, entity[PARTITION], (RowChange("replace", entity[ROW], members, entity[ETAG]),))


def _new_op() -> str:
    """Return what stands for one attempt to write: later ones sort behind it."""
    return f"{time.time_ns() // 1000:013x}{secrets.token_hex(6)}"


# ---------------------------------------------------------------------------------------------- sending until an answer


@attrs.frozen
class Timing:
    """Durations, in seconds."""

    look: float = 10.0
    """For which a process believes what it has read of the catalogue."""
    deadline: float = 30.0
    """After which a write, or who finishes it, sends nothing more."""
    lease: float = 60.0
    """For which an intent is left to its writer."""
    grace: float = 600.0
    """For which an intent is kept that may still be in somebody's hands; no request is under way for as long."""
    request: float = 30.0
    """For which the service goes on with a request at most, whether anybody waits for the answer or not."""

    @property
    def settled(self) -> float:
        """Seconds after which no program writes without knowing of a change of the catalogue, unless it stood still."""
        return self.look + self.deadline + self.request


LOCAL = Timing(look=1.0, deadline=10.0, request=1.0)
"""Of a store that is created on this machine, on an emulator."""


class DeadlineExceeded(Exception):
    """The deadline is over: what is left is for `sweep`."""


@attrs.define(eq=False)
class Deadline:
    """Sends requests until answers come, up to a deadline."""

    until: float
    """At the latest `Timing.deadline` after it began: then others do not go on with it before `Timing.lease` is over."""
    doubt: bool = False
    """Whether an answer was lost, so that a request may still be executed later."""

    def check(self) -> Effects[float]:
        """Return the seconds that are left: a write sends its transaction up to then only.

        Raises:
            DeadlineExceeded: there are none.
        """
        seconds_left = self.until - cast(float, (yield ReadClock()))
        if seconds_left < 0:
            raise DeadlineExceeded("the deadline is over")
        return seconds_left

    def again(self, attempt: int, no_response: NoResponse | None = None) -> Effects[None]:
        """Wait before another attempt.

        Raises:
            DeadlineExceeded: there is no time left.
        """
        self.doubt |= no_response is not None
        step = pause((yield from self.check()), attempt, no_response)
        if step is None:
            raise DeadlineExceeded("the deadline is over")
        yield step

    def once(self, request: GroupTransaction) -> Effects[list[str | None]]:
        """Send a request, and wait for its answer no longer than there is time."""
        clock_now: float = yield ReadClock()
        answer: list[str | None] = yield within(request, self.until - clock_now)
        return answer

    def send(self, table: str, partition: str, *changes: RowChange) -> Effects[bool]:
        """Send changes that may be made twice; return whether all that they need was there, and as it was to be.

        Raises:
            Late, Refused
        """
        attempt = 0
        while True:
            try:
                yield from self.once(GroupTransaction(table, partition, changes))
            except NoResponse as no_response:
                yield from self.again(attempt, no_response)
                attempt += 1
            except ErrorResponse as refusal:
                if refusal.status in (404, 412) and refusal.code != "TableNotFound":
                    return False
                raise
            else:
                return True


def put_works(patience: Deadline, puts: Sequence[PutRow]) -> Iterable[Effects[bool]]:
    """Yield the works that put rows: those of one partition together."""
    places: dict[tuple[str, str], dict[str, RowChange]] = {}
    for row_put in puts:  # (an intent may name a row twice, of an index that was once maintained by two definitions)
        places.setdefault((row_put.table, row_put.partition), {})[row_put.row] = RowChange(
            "upsert", row_put.row, row_put.members
        )
    for (table, partition), changes in places.items():
        batch: list[RowChange] = []
        room = _ROOM
        for change in changes.values():
            length = sum(len(value) for value in change.members.values() if isinstance(value, str))
            if batch and (len(batch) == MAX_CHANGES or length > room):
                yield patience.send(table, partition, *batch)
                batch, room = [], _ROOM
            batch.append(change)
            room -= length
        yield patience.send(table, partition, *batch)


@attrs.frozen(eq=False)
class CommittedIntent:
    """An intent as its transaction has left it."""

    intent: Intent
    until: float
    """When its writer has to be done with it."""
    etag: str | None
    """None: an answer was lost, so that a request may still be executed later. The intent has to be there then."""

    @classmethod
    def of(
        cls, intent: Intent, patience: Deadline, changes: Sequence[RowChange], etags: Sequence[str | None]
    ) -> CommittedIntent:
        """Return the intent of a transaction that was sent, with the ETags of its changes, if they are known."""
        known_etags = () if patience.doubt else zip(changes, etags, strict=False)
        return cls(
            intent, patience.until, next((etag for change, etag in known_etags if change.row == intent.row), None)
        )


# ---------------------------------------------------------------------------------------------- what writes share


Group: TypeAlias = tuple[str, str, str]
"""What intents call an aggregate, and the key of a group."""


class Outbox:
    """The state that the writes of a process share: the partitions that it has named to those who sweep, and markers.

    Args:
        catalogue: the table of the catalogue.
        times: how long things last.
        new_op: gives what stands for one attempt to write.
    """

    def __init__(self, catalogue: str, times: Timing | None = None, new_op: Callable[[], str] | None = None) -> None:
        self.catalogue = catalogue
        self.new_op: Final = new_op or _new_op
        self.times: Timing = times or Timing()
        self.full: set[tuple[str, str, str]] = set()
        """Groups in which there may be no room for more values."""
        self.lock: Final = threading.Lock()
        self.led: dict[Group, float] = {}
        """Groups that a writer adds to just now, each with the time at which that is over."""
        self.waiting: dict[Group, list[Any]] = {}
        """The other writers that have something for a group."""
        self.places: Final = NamedPartitions(self.times.lease, self.times.grace)
        self._spent: dict[tuple[str, str], list[str]] = {}

    def spend(self, table: str, partition: str, marks: Sequence[str]) -> None:
        """Have markers deleted that nobody needs any more, with the next change of a group beside them."""
        if len(self._spent) < _MOST_SPENT:
            self._spent.setdefault((table, partition), []).extend(marks)

    def spent(self, table: str, partition: str) -> list[str]:
        """Return such markers, which are to be deleted or to be given back."""
        marks = self._spent.pop((table, partition), [])
        if marks[_MOST_MARKERS:]:
            self._spent[table, partition] = marks[_MOST_MARKERS:]
        return marks[:_MOST_MARKERS]

    def name(self, patience: Deadline, intent: Intent) -> Effects[None]:
        """Name the partition of an intent before it is there, and again each hour.

        Raises:
            DeadlineExceeded, ErrorResponse
        """
        clock_now = cast(float, (yield ReadClock()))
        if (row := self.places.begin(intent.place, intent.row, clock_now)) is None:
            return
        members: Members = {"t": intent.table, "p": intent.partition}
        upsert = GroupTransaction(self.catalogue, self.places.owner, (RowChange("upsert", row, members),))
        attempt, doubt = 0, patience.doubt
        while True:
            try:
                (etag,) = yield from patience.once(upsert)
            except NoResponse as no_response:
                yield from patience.again(attempt, no_response)
                attempt += 1
            else:
                break
        patience.doubt = doubt  # (a name that is written once more does no harm)
        self.places.named(intent.place, intent.row, clock_now, etag)

    def is_late(self, patience: Deadline) -> Effects[bool]:
        """Return whether others may have ended what was begun: this process stood still for as long as it had it to itself."""
        clock_now: float = yield ReadClock()
        if not self.times.lease:  # (nobody else is there, as in tables that no program knows yet)
            return False
        return clock_now > patience.until + self.times.lease - self.times.deadline

    def check(self, patience: Deadline) -> Effects[None]:
        """Raise DeadlineExceeded if others may have ended what was begun."""
        if (yield from self.is_late(patience)):
            raise DeadlineExceeded("this process stood still")

    def finish(self, committed: CommittedIntent, markers: Sequence[tuple[str, str, str]] = ()) -> None:
        """Have an intent deleted that is carried out, and then the markers that kept its deltas from being added twice."""
        if committed.etag is not None:
            intent = committed.intent
            self.places.finish(intent.place, FinishedIntent(intent.row, committed.etag, markers))

    def deleted(self, place: Partition, finished: Sequence[FinishedIntent]) -> None:
        """Note that intents are gone which nobody else has carried out, so that nobody needs their markers."""
        self.places.forget(place, [intent.row for intent in finished])
        for intent in finished:
            for table, partition, mark in intent.markers:
                self.spend(table, partition, [mark])
