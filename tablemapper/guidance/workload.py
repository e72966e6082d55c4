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
from ..events import Event, shape_data

_FORMAT, _VERSION = "tablemapper workload", 1
_MAX_SHAPES = 1_000


@attrs.frozen
class CallStatistics:
    """Calls that ask the same, but for values: numbers of calls, entities, rows and seconds, added up."""

    verb: str
    """As in an `Event`: ``query``, ``insert`` …"""
    model: str
    """The class, or several, with commas; empty for calls about the whole store."""
    text: str
    """The query shape: ``Product where maker == ?``; empty if it is no query."""
    path: str
    """What was followed: ``Product.by_maker``, ``scan``; empty if nothing."""
    calls: int = 0
    returned: int = 0
    """Entities, tuples or groups that the calls gave."""
    examined: int = 0
    """Rows that were read for it. A call that was not counted is taken for as large as the last one that was."""
    written: int = 0
    seconds: float = 0.0
    _shape_data: Mapping[str, Any] | None = attrs.field(default=None, repr=False, eq=False)


def shape_of(row: CallStatistics) -> Mapping[str, Any] | None:
    """Return the query shape as data; None if the calls were no queries."""
    return row._shape_data


class _Saved(msgspec.Struct):
    """The statistics of a query shape in a file; the file says the names of its first version."""

    verb: str
    model: str
    text: str
    path: str
    calls: int
    returned: int = msgspec.field(name="read")
    examined: int
    written: int
    seconds: float
    shape_data: dict[str, Any] | None = msgspec.field(name="words")


@attrs.define
class _Sums:
    """The sums of a query shape."""

    calls: int = 0
    returned: int = 0
    examined: int = 0
    written: int = 0
    seconds: float = 0.0
    last_examined: int | None = None
    shape_data: Mapping[str, Any] | None = None


class Workload:
    """The calls of a store by query shape, for `Store.advise`; give it as ``observe=``. It holds no values of entities.

    Threads can share it. It keeps at most 1,000 shapes, and drops the rarest.

    Attributes:
        dropped_shapes: how many shapes were dropped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[tuple[str, str, str, str], _Sums] = {}
        self.dropped_shapes: int = 0

    def __repr__(self) -> str:
        return f"<Workload of {len(self._sums)} shapes>"

    def __call__(self, event: Event, /) -> None:
        """Add a call."""
        key = event.verb, event.model or "", event.shape or "", event.path or ""
        with self._lock:
            sums = self._of(key)
            if event.examined is not None:
                sums.last_examined = event.examined
            sums.calls += 1
            sums.returned += event.returned
            sums.examined += event.returned if sums.last_examined is None else sums.last_examined
            sums.written += event.written
            sums.seconds += event.seconds
            sums.shape_data = sums.shape_data or shape_data(event)

    @property
    def statistics(self) -> tuple[CallStatistics, ...]:
        """The statistics of each query shape and verb, those that examined most first."""
        with self._lock:
            rows = [
                CallStatistics(
                    *key, sums.calls, sums.returned, sums.examined, sums.written, sums.seconds, sums.shape_data
                )
                for key, sums in self._sums.items()
            ]
        return tuple(sorted(rows, key=lambda row: (-row.examined, -row.calls, row.verb, row.model, row.text, row.path)))

    def merge(self, other: Workload, /) -> None:
        """Add the calls of another workload, for example of another process.

        Raises:
            TypeError: it is none.
        """
        argument: object = other
        if not isinstance(argument, Workload):
            raise TypeError(f"merge: expected a Workload, got {safe_repr(other)}")
        self._add(other.statistics, other.dropped_shapes)

    def save(self, path: str | os.PathLike[str], /) -> None:
        """Write it to a file, which holds no values of entities.

        Raises:
            OSError: the file cannot be written.
        """
        rows = [_Saved(*attrs.astuple(row, recurse=False)) for row in self.statistics]
        document = {"format": _FORMAT, "version": _VERSION, "dropped": self.dropped_shapes, "forms": rows}
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))

    @classmethod
    def load(cls, path: str | os.PathLike[str], /) -> Workload:
        """Read what `save` wrote.

        Raises:
            OSError: the file cannot be read.
            InvalidQuery: it is no workload, or that of a newer version.
        """
        try:
            document = msgspec.json.decode(Path(path).read_bytes())
            if document["format"] != _FORMAT:
                raise ValueError
            version = document["version"]
            if version > _VERSION:
                raise InvalidQuery(
                    f"{os.fspath(path)}: a workload of version {version}, written by a newer tablemapper; this one reads "
                    f"version {_VERSION}: update it"
                )
            rows = [
                CallStatistics(*msgspec.structs.astuple(row))
                for row in msgspec.convert(document["forms"], list[_Saved])
            ]
            dropped_shapes = msgspec.convert(document["dropped"], int)
        except InvalidQuery:
            raise
        except (ValueError, TypeError, LookupError, msgspec.MsgspecError):
            raise InvalidQuery(
                f"{os.fspath(path)}: this is no workload; write one with tm.Workload().save(…)"
            ) from None
        workload = cls()
        workload._add(rows, dropped_shapes)
        return workload

    def _add(self, rows: Iterable[CallStatistics], dropped_shapes: int) -> None:
        with self._lock:
            self.dropped_shapes += dropped_shapes
            for row in rows:
                sums = self._of((row.verb, row.model, row.text, row.path))
                sums.calls += row.calls
                sums.returned += row.returned
                sums.examined += row.examined
                sums.written += row.written
                sums.seconds += row.seconds
                sums.last_examined = row.examined // max(row.calls, 1)
                sums.shape_data = sums.shape_data or row._shape_data

    def _of(self, key: tuple[str, str, str, str]) -> _Sums:
        """Return the sums of a shape; the lock is held."""
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) >= _MAX_SHAPES:
                del self._sums[min(self._sums, key=lambda candidate: self._sums[candidate].calls)]
                self.dropped_shapes += 1
            sums = self._sums[key] = _Sums()
        return sums
