"""What a write transaction is given to write with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apsw

from .timestamps import Timestamps

__all__ = ["Writer"]


class Writer:
    """The write connection within one transaction. ``execute`` and ``executemany`` are apsw's own, at no further cost.

    Attributes:
        execute: run one statement with its values, returns the cursor.
        executemany: run one statement for each sequence of values.
        total_changes: return the number of rows written through this connection so far.
        timestamp: of this transaction, in µs; its ETag too. Strictly increasing in the file, never reused.
        generation: of the catalogue.
        proof: a query, with its values, that finds a row if and only if this transaction was committed. To be set by
            what is applied; asked for only after a COMMIT that failed.
    """

    __slots__ = ("_connection", "_timestamps", "execute", "executemany", "proof", "timestamp", "total_changes")

    def __init__(self, connection: apsw.Connection, timestamps: Timestamps) -> None:
        self._connection = connection
        self._timestamps = timestamps
        self.execute: Callable[..., apsw.Cursor] = connection.execute
        self.executemany: Callable[[str, Iterable[Sequence[Any]]], apsw.Cursor] = connection.executemany
        self.total_changes: Callable[[], int] = connection.total_changes
        self.timestamp = 0
        self.proof: tuple[str, Sequence[Any]] | None = None

    @property
    def generation(self) -> int:
        return self._timestamps.generation

    def get(self, sql: str, args: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a statement, or None."""
        row: tuple[Any, ...] | None = self.execute(sql, args).fetchone()
        return row

    def bump_generation(self) -> int:
        """Say that this transaction changes the catalogue, and return its new generation."""
        return self._timestamps.bump(self._connection)
