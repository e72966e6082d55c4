"""ETags: the text that stands for the time at which an entity was last written."""

from __future__ import annotations

import re
from typing import Final

from ..datetime_types import Builtin
from ..values.timestamp import TIMESTAMP

ETAG_FORM = 'W/"1767225600000000"'  # an example, for messages
NO_ETAG = -1  # what stands for a text that is no ETag; no row has it
_COLON = "(?::|%3[Aa])"
_OF_A_SERVICE = re.compile(
    rf"W/\"datetime'(\d{{4}}-\d\d-\d\dT\d\d){_COLON}(\d\d){_COLON}(\d\d)(?:\.(\d*))?Z'\"", re.ASCII
)


class Stamp(int):
    """The time of an entity's last write, in µs, with the ETag that a service gave it: two are equal if their ETags are."""

    etag: str

    def __new__(cls, etag: str) -> Stamp:
        match = _OF_A_SERVICE.fullmatch(etag)
        time = "1970-01-01T00:00:00" if match is None else f"{match[1]}:{match[2]}:{match[3]}.{match[4] or '':0<6.6}"
        self = super().__new__(cls, TIMESTAMP.store(Builtin.datetime.fromisoformat(f"{time}+00:00")))
        self.etag = etag
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stamp) and self.etag == other.etag

    def __ne__(self, other: object) -> bool:
        return object.__ne__(self, other)

    __hash__: Final = int.__hash__

    def __reduce__(self) -> tuple[type[Stamp], tuple[str]]:
        return Stamp, (self.etag,)


def etag_text(timestamp: int) -> str:
    """Return the ETag of a row last written at ``timestamp`` (µs since 1970)."""
    return timestamp.etag if isinstance(timestamp, Stamp) else f'W/"{timestamp}"'


def etag_timestamp(etag: str) -> int:
    """Return what `etag_text` was called with, or NO_ETAG for a text of another form."""
    if etag.startswith("W/\"datetime'"):
        return Stamp(etag) if _OF_A_SERVICE.fullmatch(etag) else NO_ETAG
    digits = etag[3:-1]
    return int(digits) if etag == f'W/"{digits}"' and digits.isascii() and digits.isdigit() else NO_ETAG
