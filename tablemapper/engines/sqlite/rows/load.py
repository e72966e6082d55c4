"""A load that is all or nothing: rows are sorted in a temporary file first, and then written in one transaction.

Each table and each index is gone through once, in its own order, however many rows there are; rows that come in windows
touch most of its pages once a window. Nobody sees any of it before all of it is there, and nothing is left of a load
that broke: the temporary file has no name, so it goes with its process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Self

import apsw

from ....progress import Meter
from ....schema.maintenance import ChangeSet, IndexChanges, IndexMaintenance, Maintenance
from ....schema.model import Model
from ....schema.rows import Row
from ...protocol import Batch
from ..driver.driver_errors import DRIVER_ERRORS, translated
from ..file.writer import Writer
from ..sql.schema import SqliteSchema
from .jobs import owed, queue
from .maintained import delete_rows, put_rows, write_groups
from .writes import completed_rows, insert_rows, keep_in_step

__all__ = ["SortedLoad"]

_CHUNK = 5_000  # rows that are in memory at a time
_CACHE = 32 << 10  # KiB that are sorted before a part goes to the disk


class SortedLoad:
    """The rows of a load, before any of them is written; for ``with``."""

    def __init__(self) -> None:
        self.count = 0
        self._numbers: dict[Model | IndexMaintenance, int] = {}
        self._connection = apsw.Connection("")
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE}"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        self._connection.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def models(self) -> list[Model]:
        """The classes of which there are rows."""
        return [one for one in self._numbers if isinstance(one, Model)]

    def add(self, batches: Sequence[Batch]) -> None:
        """Keep entities."""
        try:
            for batch in batches:
                for rows, _ in [(batch.rows, 0)] if batch.parts is None else batch.parts():
                    self._keep(batch.model, rows)
                    self.count += len(rows)
        except DRIVER_ERRORS as error:
            raise translated(error, "the temporary file of a load") from error

    def write(self, sqlite: SqliteSchema, writer: Writer, meter: Meter) -> None:
        """Write everything, and what the file maintains from it by now: that may have changed while entities came.

        Raises:
            EntityExists, UniqueViolation: the caller rolls back.
        """
        self._sqlite = sqlite
        for model in sorted(self.models, key=sqlite.depth):  # what maintained fields are made of comes before them
            for rows in self._sorted(model, 2):
                stored = insert_rows(sqlite.statements[model], writer, completed_rows(sqlite, writer, model, rows))
                writer.proof = sqlite.statements[model].there, stored[0][:3]
                for index in sqlite.maintenance[model].indexes:
                    self._keep(index, index.rows(stored))
                self._maintain(model, writer, stored)
                queue(sqlite, writer, model, stored)
                keep_in_step(sqlite, writer, model, stored)
                meter.advance(len(stored))
        for index in [one for one in self._numbers if isinstance(one, IndexMaintenance)]:
            for rows in self._sorted(index, 4):
                put_rows(sqlite, index, writer, rows)

    def _maintain(self, model: Model, writer: Writer, rows: list[Row]) -> None:
        """Write what entities add to aggregates, and to what is being built of them.

        That is done by chunks, so that no more groups are in memory than entities.
        """
        changes = ChangeSet()
        for kept, passed in owed(self._sqlite, writer.get, model):
            if passed is None:
                changes.added(Maintenance((), kept.aggregates), rows)  # (the rows of its indexes are sorted already)
            else:
                changes.added(kept, list(filter(passed, rows)))
        write_groups(self._sqlite, writer, changes)
        for index, change in changes.indexes.items():
            self._hold_back(index, change, writer)

    def _hold_back(self, index: IndexMaintenance, change: IndexChanges, writer: Writer) -> None:
        """Keep the rows that groups come to have in an index until every group is what it will be.

        A unique value can be another group's until then.
        """
        gone = [*change.deletes, *change.rewrites]
        if index in self._numbers:
            gone = [row for row in gone if not self._taken_back(index, row)]
        if gone:
            delete_rows(self._sqlite, index, writer, gone)
        self._keep(index, [*change.puts, *change.rewrites])

    def _taken_back(self, index: IndexMaintenance, row: Row) -> bool:
        """Drop a row of a group, or of an entity with maintained fields, that is held back, if there is one."""
        self._connection.execute(
            f"DELETE FROM t{self._numbers[index]} WHERE c2 = ? AND c3 = ? AND c0 = ? AND c1 = ?", (*row[2:4], *row[:2])
        )
        return bool(self._connection.changes())

    def _keep(self, what: Model | IndexMaintenance, rows: list[Row]) -> None:
        if not rows:
            return
        number = self._numbers.get(what)
        if number is None:
            number = self._numbers[what] = len(self._numbers)
            self._connection.execute(f"CREATE TABLE t{number}({', '.join(f'c{at}' for at in range(len(rows[0])))})")
            if isinstance(what, IndexMaintenance) and (what.owner.aggregate is not None or what.owner.maintained):
                self._connection.execute(f"CREATE INDEX i{number} ON t{number}(c2, c3)")
        self._connection.executemany(f"INSERT INTO t{number} VALUES({', '.join('?' * len(rows[0]))})", rows)

    def _sorted(self, what: Model | IndexMaintenance, places: int) -> Iterator[list[Row]]:
        """Yield rows in the order of their first values, in chunks."""
        order = ", ".join(f"c{at}" for at in range(places))
        cursor = self._connection.execute(f"SELECT * FROM t{self._numbers[what]} ORDER BY {order}")
        while rows := list(islice(cursor, _CHUNK)):
            yield rows
