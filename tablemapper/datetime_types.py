"""The classes of times that Python has, also while a test puts others in their place.

freezegun replaces ``datetime`` and ``date`` in every module. What it gives instead is a subclass: msgspec encodes no
instance of it, and ``kind is datetime`` is false of what was declared before. It does not look into classes. So the
modules of this package import the names for annotations and isinstance, and take everything else from here.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final, TypeVar

T = TypeVar("T", bound=dt.date)


def _builtin(cls: type[T]) -> type[T]:
    """Return Python's own class, also if this module is imported while another one stands in its place."""
    return next(base for base in cls.__mro__ if base.__module__ == "datetime")


class Builtin:
    """Python's classes of times that a test may replace."""

    datetime: Final = _builtin(dt.datetime)
    date: Final = _builtin(dt.date)


def builtin_time(kind: Any) -> Any:
    """Return the class of Python that another one stands in for; what stands in for none is returned as it is.

    One that stands in claims to be the same: each is a subclass of the other.
    """
    for builtin in (Builtin.datetime, Builtin.date):
        if isinstance(kind, type) and issubclass(kind, builtin) and issubclass(builtin, kind):
            return builtin
    return kind
