"""Time zones: the local time of a moment, and the moments of a local time.

A zone is an offset for each moment, and nothing else is asked of its rules, wherever they come from. Local time runs
backwards where the offset shrinks: then one local time is that of two moments. Moments are counted in µs from the year
1.
"""

from __future__ import annotations

import hashlib
import re
import zoneinfo
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

from ..datetime_types import Builtin
from .encodings import MICROSECOND

_FIRST = Builtin.datetime.min.replace(tzinfo=UTC)
_LAST = (Builtin.datetime.max.replace(tzinfo=UTC) - _FIRST) // MICROSECOND
_LOCAL_LAST = Builtin.datetime.max.replace(tzinfo=UTC)  # (a local time, of whatever zone)
_HOUR = timedelta(hours=1) // MICROSECOND
_DAY = 24 * _HOUR
_EARLY, _LATE = [(Builtin.datetime(year, 1, 1, tzinfo=UTC) - _FIRST) // MICROSECOND for year in (1800, 2100)]
"""Between these years every change of an offset is looked at. Earlier there is none, and later ones are as the last."""

_RELEASE = re.compile(r"\b\d{4}[a-z]+\b")
_NAMED_IN = ("tzdata.zi", "+VERSION")
"""Files in which a folder of zones says of which release they are."""


def release(zone: str) -> str:
    """Return the release of the IANA database that the rules of a zone are of, as 2025b; empty if nothing says it."""
    for folder in map(Path, zoneinfo.TZPATH):
        if (folder / zone).is_file():
            return next(filter(None, [_release_in(folder / name) for name in _NAMED_IN]), "")
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except (ImportError, AttributeError):
        return ""


def _release_in(path: Path) -> str:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            match = _RELEASE.search(file.readline(100))
    except OSError:
        return ""
    return match[0] if match else ""


def zone_fault(name: object) -> str | None:
    """Say why a value names no time zone; None if it names one."""
    try:
        if isinstance(name, str):
            _rules(name)
            return None
    except (LookupError, ValueError, OSError):
        pass
    return 'no time zone is known by this name; the names are those of IANA, as "Europe/Oslo" (pip install tzdata brings them all)'


@cache
def _rules(name: str) -> tzinfo:
    return ZoneInfo(name)


@cache
def local_time(zone: str) -> Callable[[datetime | None], datetime | None]:
    """Return a function from a moment to its local time in a zone; past the last year, that is its last moment."""
    rules = _rules(zone)

    def local(moment: datetime | None) -> datetime | None:
        try:
            return None if moment is None else moment.astimezone(rules)
        except OverflowError:
            return _LOCAL_LAST

    return local


def _moment(number: int) -> datetime:
    return _FIRST + min(max(number, 0), _LAST) * MICROSECOND


def _offset(rules: tzinfo, number: int) -> int:
    at = _moment(min(max(number, 2 * _DAY), _LAST - 2 * _DAY)).astimezone(rules)  # (further out it has no local time)
    return (at.utcoffset() or timedelta()) // MICROSECOND


def _changes(rules: tzinfo, low: int, high: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield the first number with its offset, then each at which the offset changes; two changes are a step apart."""
    at, offset = low, _offset(rules, low)
    yield at, offset
    while at < high:
        end = min(at + step, high)
        new_offset = _offset(rules, end)
        if new_offset != offset:
            last_unchanged, first = at, end
            while first - last_unchanged > 1:
                middle = (last_unchanged + first) // 2
                if _offset(rules, middle) == offset:
                    last_unchanged = middle
                else:
                    first = middle
            yield first, new_offset
            offset = new_offset
        at = end


@lru_cache(maxsize=4096)
def edges(zone: str, local: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the first moment whose local time is not below one, and the first from which on none is below it.

    They differ where local time runs backwards over it. None is after all moments.
    """
    local_moment = (local.replace(tzinfo=UTC) - _FIRST) // MICROSECOND
    low, high = max(local_moment - _DAY, 0), min(local_moment + _DAY, _LAST)
    first, last_end = None, low
    pieces = list(_changes(_rules(zone), low, high, _HOUR))
    for (start, offset), (end, _) in zip(pieces, [*pieces[1:], (high + 1, 0)], strict=True):
        if start < local_moment - offset:
            last_end = min(end, local_moment - offset)
        if first is None and (at := max(start, local_moment - offset)) < end:
            first = at
    return None if first is None else _moment(first), None if last_end > _LAST else _moment(last_end)


@lru_cache(maxsize=64)
def _all_changes(rules: tzinfo) -> tuple[tuple[int, int], ...]:
    return tuple(_changes(rules, _EARLY, _LATE, 3 * _DAY))


def crosses_back(zone: str, first_of: Callable[[datetime], datetime]) -> bool:
    """Return whether local time ever runs back into an earlier bucket, of which a function gives the first moment."""
    changes = _all_changes(_rules(zone))
    for (_, old_offset), (at, new_offset) in pairwise(changes):
        if new_offset < old_offset and first_of(_moment(at - 1 + old_offset)) > first_of(_moment(at + new_offset)):
            return True
    return False


@cache
def fingerprint(zone: str) -> str:
    """Return 32 hex digits that differ if the rules of a zone do, whatever form these have."""
    return hashlib.blake2b(repr(_all_changes(_rules(zone))).encode(), digest_size=16).hexdigest()
