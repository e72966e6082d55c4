"""UUIDs in the order of time, as RFC 9562 has them: version 7."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from uuid import UUID

__all__ = ["uuid7"]

_lock = threading.Lock()
_last = 0


def uuid7(*, clock: Callable[[], int] | None = None, random: Callable[[int], int] = secrets.randbits) -> UUID:
    """Return a UUID that sorts by its time of creation: ``id: tm.Field[UUID] = tm.field(factory=tm.uuid7)``.

    The UUIDs of one process always ascend, even if the clock stops or goes back.

    Args:
        clock: returns the time in nanoseconds since 1970; by default `time.time_ns`, also where a test replaced it.
        random: returns an int with that many random bits.

    Raises:
        ValueError: the clock is past the year 10889, which 48 bits of milliseconds cannot express.
    """
    global _last
    milliseconds, rest = divmod((clock or time.time_ns)(), 1_000_000)
    ticks = milliseconds << 12 | rest * 4096 // 1_000_000  # (12 bits below the millisecond: 244 ns)
    with _lock:
        _last = ticks = max(ticks, _last + 1)
    return UUID(int=(ticks >> 12) << 80 | 7 << 76 | (ticks & 0xFFF) << 64 | 2 << 62 | random(62))
