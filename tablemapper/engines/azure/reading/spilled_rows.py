"""Rows by their keys, of which a temporary file holds those that are too many for memory."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator
from typing import Generic, TypeVar

Key = tuple[str, ...]
T = TypeVar("T")
_MOST = 20_000  # rows in memory, of each collection


class SpilledRows(Generic[T]):
    """Rows by their keys: those put last in memory, the others in a file that is gone with the collection."""

    def __init__(self) -> None:
        self._in_memory: dict[Key, T] = {}
        self._file: sqlite3.Connection | None = None

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def __setitem__(self, key: Key, row: T) -> None:
        self._in_memory[key] = row
        if len(self._in_memory) > _MOST:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # (a temporary file)
            self._file.execute("CREATE TABLE rows (key BLOB PRIMARY KEY, row BLOB) WITHOUT ROWID")
        packed = [(_packed(key), pickle.dumps(row, pickle.HIGHEST_PROTOCOL)) for key, row in self._in_memory.items()]
        self._file.execute("BEGIN")
        self._file.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", packed)
        self._file.execute("COMMIT")
        self._in_memory.clear()

    def get(self, key: Key) -> T | None:
        """Return a row, or None."""
        if (row := self._in_memory.get(key)) is not None or self._file is None:
            return row
        spilled = self._file.execute("SELECT row FROM rows WHERE key = ?", [_packed(key)]).fetchone()
        return None if spilled is None else pickle.loads(spilled[0])

    def items(self) -> Iterator[tuple[Key, T]]:
        """Yield keys and rows; none is put meanwhile."""
        if self._file is None:
            yield from self._in_memory.items()
            return
        if self._in_memory:
            self._spill()
        for key, row in self._file.execute("SELECT key, row FROM rows ORDER BY key"):
            yield _unpacked(key), pickle.loads(row)

    def values(self) -> Iterator[T]:
        """Yield rows."""
        return (row for _, row in self.items())

    def first_behind(self, *parts: str) -> Key | None:
        """Return the first key that begins with some parts."""
        if self._file is None:
            return next((key for key in self._in_memory if key[: len(parts)] == parts), None)
        if self._in_memory:
            self._spill()
        front = _packed(parts) + b"\0"
        spilled = self._file.execute(
            "SELECT key FROM rows WHERE key > ? AND key < ? LIMIT 1", [front, front[:-1] + b"\1"]
        )
        return next((_unpacked(key) for (key,) in spilled), None)

    def __len__(self) -> int:
        if self._file is None:
            return len(self._in_memory)
        if self._in_memory:
            self._spill()
        count: int = self._file.execute("SELECT count(*) FROM rows").fetchone()[0]
        return count


def _packed(key: Key) -> bytes:
    return "\0".join(key).encode("utf-8", "surrogatepass")  # (a key has no control characters)


def _unpacked(key: bytes) -> Key:
    return tuple(key.decode("utf-8", "surrogatepass").split("\0"))
