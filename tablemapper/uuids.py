"""UUIDs in the order of time, as RFC 9562 has them: version 7."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final
from uuid import UUID

_CLASS_SECONDS = 60.0  # seconds between the arguments of a field and the end of its class
_GREGORIAN = 12_219_292_800_000  # ms from 1582, where the time of a UUID of version 1 begins, to 1970


class Uuid7Generator:
    """The source of UUIDs: a clock, randomness, and the last one, below which none comes.

    Args:
        clock: returns the time in nanoseconds since 1970; None: `time.time_ns`, also where a test replaced it.
        random: returns an int with that many random bits.
    """

    def __init__(self, clock: Callable[[], int] | None = None, random: Callable[[int], int] = secrets.randbits) -> None:
        self.clock = clock
        self.random = random
        self.lock: Final = threading.Lock()
        self.last_ticks = 0


_source = Uuid7Generator()


@contextmanager
def uuids_from(source: Uuid7Generator) -> Iterator[None]:
    """Make UUIDs from another source: for tests, one after the other."""
    global _source
    previous, _source = _source, source
    try:
        yield
    finally:
        _source = previous


def uuid7(*, clock: Callable[[], int] | None = None, random: Callable[[int], int] | None = None) -> UUID:
    """Return a UUID that sorts by its time of creation: ``id: tm.Field[UUID] = tm.field(factory=tm.uuid7)``.

    The UUIDs of one process always ascend, even if the clock stops or goes back.

    Args:
        clock: returns the time in nanoseconds since 1970; by default `time.time_ns`, also where a test replaced it.
        random: returns an int with that many random bits; by default `secrets.randbits`.

    Raises:
        ValueError: the clock is past the year 10889, which 48 bits of milliseconds cannot express.
    """
    source = _source
    milliseconds, nanoseconds = divmod((clock or source.clock or time.time_ns)(), 1_000_000)
    ticks = milliseconds << 12 | nanoseconds * 4096 // 1_000_000  # (12 bits below the millisecond: 244 ns)
    with source.lock:
        source.last_ticks = ticks = max(ticks, source.last_ticks + 1)
    bits = (random or source.random)(62)
    return UUID(int=(ticks >> 12) << 80 | 7 << 76 | (ticks & 0xFFF) << 64 | 2 << 62 | bits)


def is_time_of(default: object, moment: datetime) -> bool:
    """Return whether a default is a moment, or a UUID of it: a program meant that of each entity.

    A UUID of version 4 says no time: it may be one that someone chose once, and wrote down.
    """
    if isinstance(default, UUID) and default.version in (1, 7):
        milliseconds = default.int >> 80 if default.version == 7 else default.time // 10_000 - _GREGORIAN
        seconds = milliseconds / 1_000 - moment.timestamp()
    elif isinstance(default, datetime) and default.tzinfo is not None:
        seconds = (default - moment).total_seconds()
    else:
        return False
    return abs(seconds) < _CLASS_SECONDS
