"""Rules of time zones that change while the tests run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from zoneinfo import ZoneInfo

from tablemapper.catalogue import zone_rules
from tablemapper.keys import zones


def rules_from(source: Callable[[str], tzinfo], release: str | None = None) -> None:
    """Take the rules of all zones from a function from now on.

    Args:
        source: gives those of a zone.
        release: of the IANA database that they are of; None for that of the system, which only ``ZoneInfo`` has.
    """
    of_system = source is ZoneInfo and release is None
    zones.ZoneInfo = source  # type: ignore[assignment, misc]
    zone_rules.release = zones.release if of_system else lambda zone: release or ""
    for kept in (zones._rules, zones.edges, zones.fingerprint, zones.local_time):
        kept.cache_clear()
