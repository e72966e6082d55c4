"""Time formats, such as ``%Y-%m``: the one definition of what each directive gives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta

import attrs

from .forms import MICROSECOND

__all__ = [
    "UNITS",
    "UNITS_OF",
    "first_moment",
    "from_coarse_to_fine",
    "next_moment",
    "plain_cut",
    "split_format",
    "time_format_fault",
    "time_pattern",
]


@attrs.frozen
class Unit:
    """What a directive gives.

    Attributes:
        source: the attribute of a time.
        width: how many digits it has.
        place: where they stand in the plain text of a datetime, in which each has its own place.
        step: how long it is, if it is always as long.
    """

    source: str
    width: int
    place: int
    step: timedelta | None = None


UNITS: dict[str, Unit] = {
    "%Y": Unit("year", 4, 0),
    "%m": Unit("month", 2, 5),
    "%d": Unit("day", 2, 8, timedelta(days=1)),
    "%H": Unit("hour", 2, 11, timedelta(hours=1)),
    "%M": Unit("minute", 2, 14, timedelta(minutes=1)),
    "%S": Unit("second", 2, 17, timedelta(seconds=1)),
    "%L": Unit("microsecond // 1000", 3, 20, timedelta(milliseconds=1)),
    "%f": Unit("microsecond", 6, 20, MICROSECOND),
}
"""By directive, from coarse to fine."""
_ALL = tuple(UNITS)
UNITS_OF: dict[type, tuple[str, ...]] = {datetime: _ALL, date: _ALL[:3], time: _ALL[3:]}
"""The directives of each type."""

_PLAIN = {datetime: "%Y-%m-%dT%H:%M:%S.%fZ", date: "%Y-%m-%d", time: "%H:%M:%S.%f"}


split_format = re.compile(r"%.|[^%]+|%").findall
"""Splits a format into directives and literals."""


def time_format_fault(base: type, format: str) -> str | None:
    """Say why a text is no time format of datetimes, dates or times; None if it is one."""
    codes = UNITS_OF[base]
    directives = [part for part in split_format(format) if part[0] == "%"]
    if directives and all(part in codes for part in directives):
        return None
    strange = ", ".join(part for part in directives if part not in codes) or "no part of a time is in it"
    return f"{strange}: a time format of {base.__name__} has {' '.join(codes)} and literals"


def time_pattern(format: str, name: str) -> tuple[str, str]:
    """Return a pattern for Python's ``%``, and the source of the tuple that fills it from the time with a name.

    (strftime writes the year 999 as ``999`` and knows no milliseconds.)
    """
    split = split_format(format)
    text = "".join([f"%0{UNITS[part].width}d" if part in UNITS else part for part in split])
    return text, f"({''.join([f'{name}.{UNITS[part].source}, ' for part in split if part in UNITS])})"


def plain_cut(base: type, format: str) -> int:
    """Return how much of the plain text of a time a format gives, if that begins with what it gives; else 0."""
    if not _PLAIN[base].startswith(format):
        return 0
    return sum([UNITS[part].width if part in UNITS else len(part) for part in split_format(format)])


def from_coarse_to_fine(codes: Iterable[str], units: Sequence[str]) -> bool:
    """Return whether texts of these codes sort as the times do: each code has all that is coarser in front of it."""
    seen: set[str] = set()
    for code in codes:
        coarser = {unit for unit in units[: units.index(code)] if unit != "%L"}
        if not coarser <= seen:
            return False
        seen.add(code)
    return True


def first_moment(moment: datetime, unit: str) -> datetime:
    """Return the first moment of the year, month, day … that holds this one."""
    if unit == "%L":
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    least = {code: (UNITS[code].source, int(code in ("%m", "%d"))) for code in _ALL if code != "%L"}
    return moment.replace(**dict(least[code] for code in _ALL[_ALL.index(unit) + 1 :] if code in least))  # type: ignore[arg-type]


def next_moment(moment: datetime, unit: str) -> datetime:
    """Return the first moment of the next year, month, day …, of the first of one; OverflowError past the last."""
    if (step := UNITS[unit].step) is not None:
        return moment + step
    months = moment.year * 12 + moment.month - 1 + (12 if unit == "%Y" else 1)
    if months >= 120_000:
        raise OverflowError
    return moment.replace(year=months // 12, month=months % 12 + 1)
