"""ETags: the text that stands for the time at which an entity was last written."""

from __future__ import annotations

__all__ = ["etag_text", "etag_timestamp"]


def etag_text(timestamp: int) -> str:
    """Return the ETag of a row last written at ``timestamp`` (µs since 1970)."""
    return f'W/"{timestamp}"'


def etag_timestamp(etag: str) -> int:
    """Return what `etag_text` was called with, or -1, which no row has, for a text of another form."""
    digits = etag[3:-1]
    return int(digits) if etag == f'W/"{digits}"' and digits.isascii() and digits.isdigit() else -1
