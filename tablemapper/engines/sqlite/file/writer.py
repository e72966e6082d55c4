"""The writer of a transaction: its connection, its timestamp, and rows in the order that suits a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import apsw

from ..driver.timestamps import Timestamps

R = TypeVar("R", bound=tuple[Any, ...])

_first, _second = itemgetter(0), itemgetter(1)


def sorted_rows(rows: list[R]) -> list[R]:
    """Return rows in the order of their first two values; rows that are equal there stay in the order they have."""
    if len(rows) < 2:
        return rows
    rows = sorted(rows, key=_second)  # twice by one text takes half as long as once by two
    rows.sort(key=_first)
    return rows


class Writer:
    """The write connection within one transaction. ``execute`` and ``executemany`` are apsw's own, at no further cost.

    Attributes:
        execute: run one statement with its values, returns the cursor.
        executemany: run one statement for each sequence of values.
        total_changes: return the number of rows written through this connection so far.
        timestamp: of this transaction, in µs; its ETag too. Strictly increasing in the file, never reused.
        generation: of the catalogue.
        proof: a query, with its values, that finds a row if and only if this transaction was committed. To be set by
            the write; run only after a COMMIT that failed.
    """

    __slots__ = ("_connection", "_timestamps", "execute", "executemany", "proof", "timestamp", "total_changes")

    def __init__(self, connection: apsw.Connection, timestamps: Timestamps) -> None:
        self._connection = connection
        self._timestamps = timestamps
        self.execute: Callable[..., apsw.Cursor] = connection.execute
        self.executemany: Callable[[str, Iterable[Sequence[Any]]], apsw.Cursor] = connection.executemany
        self.total_changes: Callable[[], int] = connection.total_changes
        self.timestamp: int = 0
        self.proof: tuple[str, Sequence[Any]] | None = None

    @property
    def generation(self) -> int:
        return self._timestamps.generation

    @property
    def previous(self) -> int:
        """The last timestamp before this transaction: equal to an earlier one only if nobody wrote since."""
        return self._timestamps.previous

    def get(self, sql: str, args: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a statement, or None."""
        row: tuple[Any, ...] | None = self.execute(sql, args).fetchone()
        return row

    def read(self, sql: str, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        rows: list[tuple[Any, ...]] = self.execute(sql, args).fetchall()
        return rows

    def run(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row."""
        if len(rows) == 1:
            self.execute(sql, rows[0])
        else:
            self.executemany(sql, rows)

    def bump_generation(self) -> int:
        """Say that this transaction changes the catalogue, and return its new generation."""
        return self._timestamps.bump(self._connection)
