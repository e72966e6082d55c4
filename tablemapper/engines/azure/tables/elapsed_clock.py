"""A clock of what has gone by, also while this machine slept, or stood still."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from functools import lru_cache

_STEP = 5.0  # seconds: a service says no fractions, and its servers may differ by some
_SLEEPING = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""The clock that goes on while the system sleeps, where it has one."""


def _monotonic() -> float:
    return time.monotonic() if _SLEEPING is None else time.clock_gettime(_SLEEPING)


@lru_cache(maxsize=8)  # (many answers come within a second)
def http_time(date: str) -> float:
    """Return the seconds since 1970 of a date in the head of an answer; raise ValueError if it is none."""
    return parsedate_to_datetime(date).timestamp()


class ElapsedClock:
    """Gives seconds that never go back.

    The clocks of a virtual machine that is paused stand still with it. The times in the answers of a service say for how long.

    Args:
        monotonic: the clock of this machine.
    """

    def __init__(self, monotonic: Callable[[], float] = _monotonic) -> None:
        self._monotonic = monotonic
        self._stood = 0.0
        self._offset: float | None = None
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self._monotonic() + self._stood

    def heard(self, date: str | None) -> None:
        """Take note of the time in an answer that has just come."""
        try:
            difference = http_time(date or "") - self._monotonic()
        except ValueError:
            return
        with self._lock:
            if self._offset is None:
                self._offset = difference
            elif difference > self._offset + _STEP:
                self._stood += difference - self._offset
                self._offset = difference
