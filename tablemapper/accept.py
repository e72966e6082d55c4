"""Reasons for accepted advice: ``accept={"TM001": "at most 50 rows"}``, one for each code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .errors import did_you_mean, safe_repr

OF_CLASSES = (
    "TM001",
    "TM002",
    "TM003",
    "TM004",
    "TM006",
    "TM007",
    "TM008",
    "TM009",
    "TM101",
    "TM102",
    "TM104",
    "TM201",
    "TM202",
)
"""The codes that can be about a class or its key."""
OF_INDEXES = ("TM001", "TM002", "TM003", "TM005", "TM009", "TM106", "TM203")
"""Those that can be about an index."""


def accept_faults(accept: object, *, index: bool) -> Iterator[str]:
    """Yield the faults of an ``accept=``."""
    codes = OF_INDEXES if index else OF_CLASSES
    if accept is None:
        return
    if not isinstance(accept, Mapping):
        yield f'accept={safe_repr(accept)}: expected codes with reasons: accept={{"TM001": "at most 50 rows"}}'
        return
    for code, reason in accept.items():
        if code not in codes:
            subject = "an index" if index else "a class"
            is_known = code in OF_CLASSES or code in OF_INDEXES
            why = f"is never about {subject}" if is_known else f"is no code ({', '.join(codes)})"
            yield f"accept=: {safe_repr(code)} {why}{'' if is_known else did_you_mean(str(code), codes)}"
        elif not isinstance(reason, str) or not reason.strip():
            yield f"accept=: {code}: {safe_repr(reason)} is no reason; say in a sentence why it is right here"


def accepted(accept: Any) -> Mapping[str, str]:
    """Return an ``accept=`` as data."""
    return dict(accept) if isinstance(accept, Mapping) else {}
