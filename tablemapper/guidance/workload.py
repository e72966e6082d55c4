"""The calls of a store, added up by what they ask: what advice from observed calls is made of."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import msgspec

from ..errors import InvalidQuery, safe_repr
from ..events import Event

_FORMAT, _VERSION = "tablemapper workload", 1
_MOST = 1_000  # forms


@attrs.frozen
class CallStatistics:
    """Calls that ask the same, but for values: numbers of calls, entities, rows and seconds, added up."""

    verb: str
    """As in an `Event`: ``query``, ``insert`` …"""
    model: str
    """The class, or several, with commas; empty for calls about the whole store."""
    text: str
    """What a query asks: ``Product where maker == ?``; empty if it is none."""
    path: str
    """What was followed: ``Product.by_maker``, ``scan``; empty if nothing."""
    calls: int = 0
    read: int = 0
    """What the calls gave."""
    examined: int = 0
    """Rows that were read for it. A call that was not counted is taken for as large as the last one that was."""
    written: int = 0
    seconds: float = 0.0
    words: Mapping[str, Any] | None = attrs.field(default=None, repr=False, eq=False)
    """The text as data."""


class _Saved(msgspec.Struct):
    """A form in a file."""

    verb: str
    model: str
    text: str
    path: str
    calls: int
    read: int
    examined: int
    written: int
    seconds: float
    words: dict[str, Any] | None


@attrs.define
class _Sums:
    """What is added up of a form."""

    calls: int = 0
    read: int = 0
    examined: int = 0
    written: int = 0
    seconds: float = 0.0
    last: int | None = None
    words: Mapping[str, Any] | None = None


class Workload:
    """The calls of a store by their forms, for `Store.advise`; give it as ``observe=``. It holds no values of entities.

    Threads can share it. It keeps at most 1,000 forms, and drops the rarest.

    Attributes:
        dropped: how many forms were dropped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[tuple[str, str, str, str], _Sums] = {}
        self.dropped = 0

    def __repr__(self) -> str:
        return f"<Workload of {len(self._sums)} forms>"

    def __call__(self, event: Event, /) -> None:
        """Add a call."""
        key = event.verb, event.model or "", event.form or "", event.path or ""
        with self._lock:
            sums = self._of(key)
            if event.examined is not None:
                sums.last = event.examined
            sums.calls += 1
            sums.read += event.read
            sums.examined += event.read if sums.last is None else sums.last
            sums.written += event.written
            sums.seconds += event.seconds
            sums.words = sums.words or event.words

    @property
    def forms(self) -> tuple[CallStatistics, ...]:
        """The forms, those that examined most first."""
        with self._lock:
            forms = [
                CallStatistics(*key, one.calls, one.read, one.examined, one.written, one.seconds, one.words)
                for key, one in self._sums.items()
            ]
        return tuple(
            sorted(forms, key=lambda one: (-one.examined, -one.calls, one.verb, one.model, one.text, one.path))
        )

    def merge(self, other: Workload, /) -> None:
        """Add the calls of another workload, for example of another process.

        Raises:
            TypeError: it is none.
        """
        given: object = other
        if not isinstance(given, Workload):
            raise TypeError(f"merge: expected a Workload, got {safe_repr(other)}")
        self._add(other.forms, other.dropped)

    def save(self, path: str | os.PathLike[str], /) -> None:
        """Write it to a file, which holds no values of entities.

        Raises:
            OSError: the file cannot be written.
        """
        forms = [attrs.asdict(one, recurse=False) for one in self.forms]
        whole = {"format": _FORMAT, "version": _VERSION, "dropped": self.dropped, "forms": forms}
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=1))

    @classmethod
    def load(cls, path: str | os.PathLike[str], /) -> Workload:
        """Read what `save` wrote.

        Raises:
            OSError: the file cannot be read.
            InvalidQuery: it is no workload, or that of a newer version.
        """
        try:
            whole = msgspec.json.decode(Path(path).read_bytes())
            if whole["format"] != _FORMAT:
                raise ValueError
            version = whole["version"]
            if version > _VERSION:
                raise InvalidQuery(
                    f"{os.fspath(path)}: a workload of version {version}, written by a newer tablemapper; this one reads "
                    f"version {_VERSION}: update it"
                )
            forms = [
                CallStatistics(*msgspec.structs.astuple(one)) for one in msgspec.convert(whole["forms"], list[_Saved])
            ]
            dropped = msgspec.convert(whole["dropped"], int)
        except InvalidQuery:
            raise
        except (ValueError, TypeError, LookupError, msgspec.MsgspecError):
            raise InvalidQuery(
                f"{os.fspath(path)}: this is no workload; write one with tm.Workload().save(…)"
            ) from None
        work = cls()
        work._add(forms, dropped)
        return work

    def _add(self, forms: Iterable[CallStatistics], dropped: int) -> None:
        with self._lock:
            self.dropped += dropped
            for one in forms:
                sums = self._of((one.verb, one.model, one.text, one.path))
                sums.calls += one.calls
                sums.read += one.read
                sums.examined += one.examined
                sums.written += one.written
                sums.seconds += one.seconds
                sums.last = one.examined // max(one.calls, 1)
                sums.words = sums.words or one.words

    def _of(self, key: tuple[str, str, str, str]) -> _Sums:
        """Return the sums of a form; the lock is held."""
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) >= _MOST:
                del self._sums[min(self._sums, key=lambda one: self._sums[one].calls)]
                self.dropped += 1
            sums = self._sums[key] = _Sums()
        return sums
