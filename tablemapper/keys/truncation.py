"""Truncations of times: to a day, a text, or the moment at which a step began; in UTC, or as a zone has it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import attrs

from ..codegen import Names, compile_functions
from ..datetime_types import Builtin
from ..errors import safe_repr
from .encodings import MICROSECOND
from .times import bucket_edge, finest_unit, first_moment, ordered_unit, time_format_fault, time_pattern
from .zones import crosses_back, edges, local_time, zone_fault

_DAY = timedelta(days=1)
_EPOCH = Builtin.datetime(1970, 1, 1, tzinfo=UTC)
_STEPS = {
    "days": ("%d", _DAY), "hours": ("%H", timedelta(hours=1)), "minutes": ("%M", timedelta(minutes=1)),
    "seconds": ("%S", timedelta(seconds=1)), "milliseconds": ("%L", timedelta(milliseconds=1)),
    "microseconds": ("%f", MICROSECOND),
}  # fmt: skip
_ZONE = r'"([\w+\-/]+)"'
CUT = re.compile(
    rf'\.(?:date\((?:{_ZONE})?\)|truncate\("(.*?)"(?:, {_ZONE})?\)|floor\(timedelta\((\w+)=(\d+)\)\))$', re.DOTALL
)
"""The end of the label of a time that is cut."""


@attrs.frozen(cache_hash=True, slots=False)
class Truncation:
    """A way to cut a time."""

    kind: type
    """What it gives: date, str or datetime."""
    format: str = ""
    zone: str = "UTC"
    step: timedelta = timedelta()

    @property
    def is_local(self) -> bool:
        """Whether it is in another time than UTC."""
        return self.zone != "UTC"

    def __str__(self) -> str:
        """Return it as a user writes it."""
        if self.kind is Builtin.datetime:
            return f"floor({_step_text(self.step)})"
        arguments: list[Any] = [self.format] * (self.kind is str) + [self.zone] * self.is_local
        argument_text = ", ".join(
            [f'"{argument}"' if isinstance(argument, str) else safe_repr(argument) for argument in arguments]
        )
        return f"{'date' if self.kind is Builtin.date else 'truncate'}({argument_text})"

    def fault(self, base: type) -> str | None:
        """Say why datetimes, or dates, cannot be cut so; None if they can."""
        time_format: Any = self.format
        if self.kind is Builtin.datetime:
            step: Any = self.step
            if isinstance(step, timedelta) and step > timedelta() and not _DAY % step:
                return None
            return "expected a timedelta that divides a day evenly, such as timedelta(minutes=15); for longer steps use .truncate(…)"
        if not isinstance(time_format, str):
            return "a time format is text"
        if '", "' in time_format:
            return "no time format has '\", \"' in it"
        if (fault := time_format_fault(base, time_format)) is not None or not self.is_local:
            return fault
        return "a date is of no time zone" if base is Builtin.date else zone_fault(self.zone)

    def source(self, time: str, names: Names) -> str:
        """Return Python source of what a time is cut to; None where that is None."""
        if self.is_local:
            time = f"{names.name('local', local_time(self.zone))}({time})"
        if self.step:
            cut = f"time - (time - {names.name('epoch', _EPOCH)}) % {names.name('step', self.step)}"
        elif self.kind is Builtin.date:
            cut = "time.date()"
        else:
            pattern, values = time_pattern(self.format, "time")
            cut = f"{pattern!r} % {values}"
        return f"(None if (time := {time}) is None else {cut})"

    @cached_property
    def of(self) -> Callable[[Any], Any]:
        """Return what a time is cut to."""
        names = Names()
        return compile_functions("cut", f"def cut(given):\n    return {self.source('given', names)}\n", names)["cut"]

    @property
    def plain_format(self) -> str:
        """The format, if what it gives is cut from the text of the time itself; else nothing."""
        return "" if self.is_local else self.format

    @cached_property
    def ordered(self) -> bool:
        """Whether times sort as what they are cut to, but where local time runs backwards."""
        return bool(self.step or ordered_unit(self.format))

    @cached_property
    def holder(self) -> str:
        """A unit that has all times of a bucket in one of its own; nothing if there is none."""
        if self.step:
            return next(code for code, unit in reversed(_STEPS.values()) if not unit % self.step)
        return "" if self.is_local else ordered_unit(self.format)

    @cached_property
    def edge_unit(self) -> str:
        """The unit at whose edges all buckets begin and end; nothing if they are no spans of time."""
        if self.step:
            return next(code for code, unit in _STEPS.values() if not self.step % unit)
        unit = ordered_unit(self.format)
        if not unit or not self.is_local:
            return unit
        return "" if crosses_back(self.zone, lambda moment: first_moment(moment, unit)) else finest_unit(("%S", unit))

    def edge(self, value: Any, base: type, *, end: bool, for_good: bool = False) -> Any:
        """Return the first datetime, or date, whose cut is not below a value, or is above it; None if there is none.

        Args:
            base: the type of the times: datetime, or date.
            end: whether the cut is to be above the value.
            for_good: whether those of all later times have to be so too.
        """
        if self.step:
            first = self.of(value)
            try:
                return first if first == value and not end else first + self.step
            except OverflowError:
                return None
        moment = bucket_edge(self.format, value.isoformat() if self.kind is Builtin.date else value, end=end)
        if moment is None:
            return None
        if base is Builtin.date:
            return moment.date()
        return edges(self.zone, moment)[for_good] if self.is_local else moment

    def exact_edge(self, value: Any, *, end: bool) -> datetime | None:
        """Return the edge if it parts all times by their cuts; else None."""
        first: datetime | None = self.edge(value, Builtin.datetime, end=end)
        return first if first == self.edge(value, Builtin.datetime, end=end, for_good=True) else None


def _step_text(step: object) -> str:
    if not isinstance(step, timedelta):
        return safe_repr(step)
    name, unit = next((name, unit) for name, (_, unit) in _STEPS.items() if not step % unit)
    return f"timedelta({name}={step // unit})"


def cut_of(label: re.Match[str]) -> Truncation:
    """Return the cut that the end of a label says; raise ValueError if there is none."""
    day_zone, format, zone, name, number = label.groups()
    if name is not None:
        return Truncation(Builtin.datetime, step=timedelta(**{name: int(number)}))
    return (
        Truncation(str, format, zone or "UTC")
        if format is not None
        else Truncation(Builtin.date, "%Y-%m-%d", day_zone or "UTC")
    )
