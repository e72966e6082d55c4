"""A clock that goes on with each write, and when a test says so."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from ..datetime_types import Builtin
from ..errors import safe_repr
from ..uuids import Uuid7Generator, uuids_from

_START = Builtin.datetime(2026, 1, 1, tzinfo=UTC)
_EPOCH = Builtin.datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock:
    """The time of a store's timestamps and of `tablemapper.uuid7`: 2026-01-01T00:00Z, until a test moves it.

    Timestamps ascend, so a write moves the clock to its timestamp, a microsecond behind the last one. UUIDs come from a
    fixed seed.
    """

    def __init__(self) -> None:
        self._time = _START
        self._last_timestamp = _START - _MICROSECOND  # timestamp

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return self._time

    def tick(self, seconds: float = 1.0) -> None:
        """Let so many seconds go by."""
        self._time += timedelta(seconds=seconds)

    def set(self, moment: datetime) -> None:
        """Set the clock, forwards or back.

        Timestamps never go back: they follow the last one until the clock is beyond it, and do not move the clock.

        Raises:
            ValueError: the moment has no time zone.
        """
        argument: object = moment
        if not isinstance(argument, Builtin.datetime) or moment.tzinfo is None:
            raise ValueError(f"tm_clock.set({safe_repr(moment)}): expected a datetime with a time zone")
        self._time = moment.astimezone(UTC)

    def timestamp(self) -> int:
        """Return the timestamp of a write in µs since 1970, and move the clock to it."""
        if self._time == self._last_timestamp:
            self._time += _MICROSECOND
        self._last_timestamp = max(self._last_timestamp + _MICROSECOND, self._time)
        return self.microseconds()

    def microseconds(self) -> int:
        """Return the time in µs since 1970."""
        return (self._time - _EPOCH) // _MICROSECOND

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Let UUIDs be made by this clock and a fixed seed, and afterwards as before."""
        source = Uuid7Generator(lambda: self.microseconds() * 1000, random.Random(7).getrandbits)
        with uuids_from(source):
            yield
