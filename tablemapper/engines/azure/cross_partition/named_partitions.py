"""The partitions in which a process has intents: each is named to those who sweep, until nothing of the process is left there.

A name is a row of the catalogue in a partition of the process, so nobody else takes it away while it is believed in.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

import attrs

from ....keys.encodings import SEPARATOR
from ....limits import MAX_KEY_UNITS, utf16_units
from ..tables.reserved_names import digest

NAMES = "work "
"""How the partitions of the catalogue begin that name partitions in which there are intents."""
_HOUR = 3600.0  # seconds for which a name is believed in
_MANY = 10_000  # names; of so many none waits until its partition is idle

Partition: TypeAlias = tuple[str, str]
"""A table, and a partition key."""


@attrs.frozen
class FinishedIntent:
    """An intent that is carried out, so it can be deleted."""

    row: str
    etag: str
    """As its transaction left it: under another one who sweeps has it."""
    markers: Sequence[tuple[str, str, str]] = ()
    """The table, the partition and the row of each marker that nobody needs once the intent is gone."""


@attrs.define(eq=False)
class _Entry:
    """The state of a partition that a process has named."""

    name: str
    named: float = -math.inf
    used_at: float = -math.inf
    etag: str | None = None
    pending: dict[str, float] = attrs.field(factory=dict)
    """By the row of an intent that may be there: when its write began."""
    finished: list[FinishedIntent] = attrs.field(factory=list)
    look_at: float = math.inf
    """When to look what became of intents that were not finished."""


class NamedPartitions:
    """The partitions that a process has named, and what may be left of its intents in each.

    Args:
        lease: seconds for which an intent is left to its writer.
        grace: seconds for which a request may be under way.
    """

    def __init__(self, lease: float, grace: float) -> None:
        self.owner: str = NAMES + secrets.token_hex(8)
        """The partition of the catalogue with the names that this process gave."""
        self.has_news: bool = False
        """Whether something was written, or finished, that nobody was told of who does what is left."""
        self.finished: int = 0
        """How many intents are to be deleted."""
        self._is_new = False
        """Whether one was named since somebody looked whether others have named it, too."""
        self._look_at = -math.inf
        self._lease = lease
        self._grace = grace
        self._lock = threading.Lock()
        self._entries: dict[Partition, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, place: object) -> bool:
        return place in self._entries

    def begin(self, place: Partition, intent: str, clock_now: float) -> str | None:
        """Note that an intent may be in a partition from now on; return the row of a name that is to be written before."""
        with self._lock:
            if (entry := self._entries.get(place)) is None:
                entry = self._entries[place] = _Entry(_row(*place))
            entry.pending[intent] = entry.used_at = clock_now
            self.has_news = True
            entry.look_at = min(entry.look_at, clock_now + self._lease)
            return entry.name if entry.named <= clock_now - _HOUR else None

    def named(self, place: Partition, intent: str, clock_now: float, etag: str | None) -> None:
        """Note that a name was written for an intent, and its ETag."""
        with self._lock:
            if (entry := self._entries.get(place)) is None:  # (it took so long that the name before was taken away)
                entry = self._entries[place] = _Entry(_row(*place), used_at=clock_now, look_at=clock_now + self._lease)
            entry.pending[intent] = clock_now
            entry.named, entry.etag = clock_now, etag
            self._is_new = True

    def forget(self, place: Partition, intents: Collection[str]) -> None:
        """Take it that some intents are not in a partition, and never will be."""
        with self._lock:
            if (entry := self._entries.get(place)) is not None:
                for intent in intents:
                    entry.pending.pop(intent, None)
                if not entry.pending:
                    entry.look_at = math.inf

    def finish(self, place: Partition, *finished: FinishedIntent) -> None:
        """Have intents deleted that are carried out: with the next transaction of their partition, or by who tidies."""
        with self._lock:
            if (entry := self._entries.get(place)) is None:
                entry = self._entries[place] = _Entry(_row(*place))
            entry.finished += finished
            self.finished += len(finished)
            self.has_news = True

    def take(self, place: Partition, most: int) -> list[FinishedIntent]:
        """Return some intents of a partition that are to be deleted: `forget` them then, or `finish` them once more."""
        with self._lock:
            if (entry := self._entries.get(place)) is None:
                return []
            intents, entry.finished = entry.finished[:most], entry.finished[most:]
            self.finished -= len(intents)
            return intents

    def to_delete(self) -> list[Partition]:
        """Return the partitions in which there are intents that are carried out."""
        with self._lock:
            return [place for place, entry in self._entries.items() if entry.finished]

    def to_look_at(self, clock_now: float) -> list[Partition]:
        """Return the partitions in which an intent was not finished for as long as its writer has it to itself."""
        with self._lock:
            return [place for place, entry in self._entries.items() if entry.look_at <= clock_now]

    def looked_at(self, place: Partition, clock_now: float, *, is_clean: bool) -> None:
        """Note what there was of the intents of a partition: a request that was lost may still bring one for a while."""
        with self._lock:
            entry = self._entries[place]
            if is_clean:
                entry.pending = {row: since for row, since in entry.pending.items() if clock_now - since <= self._grace}
            oldest = min(entry.pending.values(), default=math.inf)
            entry.look_at = max(oldest + self._lease, clock_now + self._lease)

    def may_be_shared(self, clock_now: float) -> bool:
        """Return whether to look for the names of others now, who may have left something: once in a while."""
        if not self._is_new or clock_now < self._look_at:
            return False
        self._is_new, self._look_at = False, clock_now + self._lease
        return True

    def withdrawn(self, clock_now: float, *, everything: bool = False) -> Iterator[tuple[str, str]]:
        """Yield the names, each with its ETag, of partitions with nothing of this process, if it has not written there lately."""
        idle = 0.0 if everything or len(self._entries) > _MANY else self._lease
        for place in list(self._entries):
            with self._lock:
                entry = self._entries[place]
                if entry.pending or entry.finished or clock_now - entry.used_at < idle:
                    continue
                del self._entries[place]
            if entry.etag is not None:
                yield entry.name, entry.etag

    def is_clean(self, place: Partition) -> bool:
        """Return whether nothing of this process is in a partition, as far as it knows."""
        entry = self._entries.get(place)
        return entry is not None and not entry.pending

    def due(self, clock_now: float) -> float | None:
        """Return in how many seconds there is something to be done; None: never."""
        with self._lock:
            if self.finished:
                return 0.0
            times = [
                entry.look_at if entry.pending else entry.used_at + self._lease for entry in self._entries.values()
            ]
            times += [self._look_at] if self._is_new else []
            return max(min(times) - clock_now, 0.0) if times else None


def _row(table: str, partition: str) -> str:
    """Return the row key of a name."""
    row = f"{table}{SEPARATOR}{partition}"
    return row if utf16_units(row) <= MAX_KEY_UNITS else f'{table}{SEPARATOR} "h{digest(partition)}'
