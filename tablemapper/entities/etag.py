"""ETags: the text that stands for the time at which an entity was last written."""

from __future__ import annotations

__all__ = ["ETAG_FORM", "NO_ETAG", "etag_text", "etag_timestamp"]

ETAG_FORM = 'W/"1767225600000000"'
"""An example, for messages."""
NO_ETAG = -1
"""What stands for a text that is no ETag; no row has it."""


def etag_text(timestamp: int) -> str:
    """Return the ETag of a row last written at ``timestamp`` (µs since 1970)."""
    return f'W/"{timestamp}"'


def etag_timestamp(etag: str) -> int:
    """Return what `etag_text` was called with, or NO_ETAG for a text of another form."""
    digits = etag[3:-1]
    return int(digits) if etag == f'W/"{digits}"' and digits.isascii() and digits.isdigit() else NO_ETAG
