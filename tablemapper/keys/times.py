"""Time formats, such as ``%Y-%m``: the one definition of what each directive gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final

import attrs

from ..datetime_types import Builtin
from .encodings import MICROSECOND


@attrs.frozen
class Unit:
    """The part of a time that a directive gives.

    Attributes:
        source: the attribute of a time.
        width: how many digits it has.
        place: where they stand in the plain text of a datetime, if they stand there.
        needs: what has to stand in front for texts to sort as times do.
        fills: the units whose buckets are made up of buckets of this one.
        step: how long it is, if it is always as long.
    """

    source: str
    width: int
    place: int | None
    needs: str
    fills: str
    step: timedelta | None = None


UNITS: dict[str, Unit] = {
    "%Y": Unit("year", 4, 0, "", "Y"),
    "%G": Unit("isocalendar()[0]", 4, None, "", "G"),
    "%q": Unit("month * 3 // 10 + 1", 1, None, "Y", "Yq"),
    "%m": Unit("month", 2, 5, "Y", "Yqm"),
    "%V": Unit("isocalendar()[1]", 2, None, "G", "GV", timedelta(days=7)),
    "%d": Unit("day", 2, 8, "Ym", "YqmGVd", timedelta(days=1)),
    "%H": Unit("hour", 2, 11, "Ymd", "YqmGVdH", timedelta(hours=1)),
    "%M": Unit("minute", 2, 14, "YmdH", "YqmGVdHM", timedelta(minutes=1)),
    "%S": Unit("second", 2, 17, "YmdHM", "YqmGVdHMS", timedelta(seconds=1)),
    "%L": Unit("microsecond // 1000", 3, 20, "YmdHMS", "YqmGVdHMSL", timedelta(milliseconds=1)),
    "%f": Unit("microsecond", 6, 20, "YmdHMS", "YqmGVdHMSLf", MICROSECOND),
}
"""By directive, from coarse to fine; ``%G`` and ``%V`` are the year and the week of ISO 8601, ``%q`` the quarter."""
_ALL = tuple(UNITS)
_DATES = _ALL.index("%H")
UNITS_OF: dict[type, tuple[str, ...]] = {Builtin.datetime: _ALL, Builtin.date: _ALL[:_DATES], time: _ALL[_DATES:]}
"""The directives of each type."""

_PLAIN = {Builtin.datetime: "%Y-%m-%dT%H:%M:%S.%fZ", Builtin.date: "%Y-%m-%d", time: "%H:%M:%S.%f"}


split_format: Final = re.compile(r"%.|[^%]+|%").findall
"""Splits a format into directives and literals."""


def time_format_fault(base: type, format: str) -> str | None:
    """Say why a text is no time format of datetimes, dates or times; None if it is one."""
    codes = UNITS_OF[base]
    directives = [part for part in split_format(format) if part[0] == "%"]
    if directives and all(part in codes for part in directives):
        weeks, calendar_codes = {"%G", "%V"}.intersection(directives), {"%Y", "%q", "%m", "%d"}.intersection(directives)
        if not weeks or not calendar_codes:
            return None
        mixed = " and ".join(sorted(weeks) + sorted(calendar_codes))
        return f"{mixed} are of two calendars, whose years begin on different days; weeks are %G-W%V"
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


def from_coarse_to_fine(codes: Iterable[str], units: Sequence[str], front: Iterable[str] = ()) -> bool:
    """Return whether texts of these codes sort as the times do: each code has all that is coarser in front of it.

    Args:
        front: the directives of texts that are equal in front of these.
    """
    seen = set(front)
    for code in codes:
        if not {f"%{letter}" for letter in UNITS[code].needs}.intersection(units) <= seen:
            return False
        seen.add(code)
    return True


def finest_unit(codes: Iterable[str]) -> str:
    """Return the finest of some directives."""
    return max(codes, key=_ALL.index)


def is_within(coarse: str, fine: str) -> bool:
    """Return whether each bucket of a unit is made up of buckets of another one; nothing is no unit."""
    return bool(coarse and fine) and coarse[1] in UNITS[fine].fills


def ordered_unit(format: str) -> str:
    """Return the finest unit of a format of datetimes whose texts sort as the times do; else nothing."""
    codes = [part for part in split_format(format) if part in UNITS]
    return finest_unit(codes) if from_coarse_to_fine(codes, _ALL) else ""


def bucket_edge(format: str, text: str, *, end: bool) -> datetime | None:
    """Return the first moment whose text is not below a text, or is above it; None if there is none.

    Args:
        format: of texts that sort as the times do.
        text: any text; no moment need have it.
        end: whether a moment above the text is wanted.
    """
    pattern, values = time_pattern(format, "moment")
    write = _writer(pattern, values)
    parts, at = {}, 0
    for code in split_format(format):
        width = UNITS[code].width if code in UNITS else len(code)
        if code in UNITS:
            parts[code] = text[at : at + width]
        at += width
    try:
        if any(UNITS[code].place is None for code in parts):
            raise ValueError  # (sought below)
        fields = {UNITS[code].source: int(digits) for code, digits in parts.items() if code != "%L"}
        if "%L" in parts:
            fields["microsecond"] = int(parts["%L"]) * 1000
        moment = Builtin.datetime(**{"year": 1, "month": 1, "day": 1} | fields, tzinfo=UTC)
        if write(moment) == text:
            return next_moment(first_moment(moment, finest_unit(parts)), finest_unit(parts)) if end else moment
    except (ValueError, OverflowError) as error:
        if isinstance(error, OverflowError):
            return None
    low, high = 0, (_LAST - _FIRST) // MICROSECOND + 1  # (between two that have texts)
    while low < high:
        middle = (low + high) // 2
        moment_text = write(_FIRST + middle * MICROSECOND)
        low, high = (middle + 1, high) if moment_text < text or (end and moment_text == text) else (low, middle)
    return _FIRST + low * MICROSECOND if low <= (_LAST - _FIRST) // MICROSECOND else None


_FIRST, _LAST = Builtin.datetime.min.replace(tzinfo=UTC), Builtin.datetime.max.replace(tzinfo=UTC)


@lru_cache(maxsize=256)
def _writer(pattern: str, values: str) -> Callable[[datetime], str]:
    write: Callable[[datetime], str] = eval(f"lambda moment: {pattern!r} % {values}")
    return write


_FRACTIONS = {"s": frozenset[str](), "ms": frozenset({"%L", "%f"}), "us": frozenset({"%f"})}


def has_all(base: type, codes: Collection[str], precision: str) -> bool:
    """Return whether directives hold all of a time that is cut to a precision; without one to microseconds."""
    units = {unit for unit in ("%Y", "%m", "%d", "%H", "%M", "%S") if unit in UNITS_OF[base]}
    fraction = frozenset[str]() if base is Builtin.date else _FRACTIONS[precision or "us"]
    return units <= set(codes) and (not fraction or not fraction.isdisjoint(codes))


_MONTHS = {"1": 1, "2": 5, "3": 7, "4": 10}
"""By quarter, a month of 31 days."""
_LONG = 2004
"""A year that has 366 days and 53 weeks."""


def moment_with(base: type, parts: Mapping[str, str]) -> datetime | date | time | None:
    """Return a time whose parts have these digits, by directive; None if they do not say on which day to look.

    Raises:
        ValueError, LookupError: No time has them.
    """
    numbers = {code: int(digits) for code, digits in parts.items()}
    day = Builtin.date(_LONG, 1, 1)
    if not {"%G", "%V"}.isdisjoint(parts) and not {"%Y", "%m", "%d"} <= parts.keys():
        if not {"%Y", "%q", "%m", "%d"}.isdisjoint(parts):
            return None
        day = Builtin.date.fromisocalendar(numbers.get("%G", _LONG), numbers.get("%V", 1), 1)
    elif base is not time:
        month = numbers["%m"] if "%m" in parts else _MONTHS[parts.get("%q", "1")]
        day = Builtin.date(numbers.get("%Y", _LONG), month, numbers.get("%d", 1))
    if base is Builtin.date:
        return day
    fraction = numbers.get("%f", numbers.get("%L", 0) * 1000)
    of_day = time(numbers.get("%H", 0), numbers.get("%M", 0), numbers.get("%S", 0), fraction)
    return of_day if base is time else Builtin.datetime.combine(day, of_day, UTC)


def first_moment(moment: datetime, unit: str) -> datetime:
    """Return the first moment of the year, month, day … that holds this one."""
    if unit == "%L":
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    finer = _PLAIN_UNITS[len(UNITS[unit].needs) + 1 :] if unit in _PLAIN_UNITS else _PLAIN_UNITS[3:]
    moment = moment.replace(**{UNITS[code].source: int(code in ("%m", "%d")) for code in finer})  # type: ignore[arg-type]
    if unit == "%q":
        return moment.replace(month=(moment.month - 1) // 3 * 3 + 1, day=1)
    if unit in ("%G", "%V"):
        year, week, _ = moment.isocalendar()
        return _day(Builtin.date.fromisocalendar(year, 1 if unit == "%G" else week, 1))
    return moment


_PLAIN_UNITS = ("%Y", "%m", "%d", "%H", "%M", "%S", "%f")


def _day(day: date) -> datetime:
    return Builtin.datetime(day.year, day.month, day.day, tzinfo=UTC)


def next_moment(moment: datetime, unit: str) -> datetime:
    """Return the first moment of the next year, month, day …, of the first of one; OverflowError past the last."""
    if (step := UNITS[unit].step) is not None:
        return moment + step
    if unit == "%G":
        if moment.year >= 9999:
            raise OverflowError
        return _day(Builtin.date.fromisocalendar(moment.isocalendar()[0] + 1, 1, 1))
    months = moment.year * 12 + moment.month - 1 + {"%Y": 12, "%q": 3, "%m": 1}[unit]
    if months >= 120_000:
        raise OverflowError
    return moment.replace(year=months // 12, month=months % 12 + 1)
