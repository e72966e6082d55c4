"""A load that is all or nothing: rows are sorted in a temporary file first, and then written in one transaction.

Each table and each index is gone through once, in its own order, however many rows there are. Rows that come in windows
touch most of its pages once a window. Nobody sees any of it before all of it is there. Nothing is left of a load that
broke: the temporary file has no name, so it goes with its process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Self

import apsw
import attrs

from ....progress import Meter
from ....schema.maintenance import ChangeSet, IndexMaintenance
from ....schema.model import Model
from ....schema.rows import Row
from ...protocol import Batch
from ..driver.driver_errors import DRIVER_ERRORS, translated
from ..file.writer import Writer
from ..sql.schema import SqliteSchema
from .jobs import duties
from .maintenance_writer import delete_rows, put_rows, write_groups
from .write_hooks import MaintenanceHook, hooks_of
from .writes import apply, completed_rows, insert_rows

_CHUNK = 5_000  # rows that are in memory at a time
_CACHE = 32 << 10  # KiB that are sorted before a part goes to the disk


class AtomicLoad:
    """The rows of a load, before any of them is written; for ``with``."""

    def __init__(self) -> None:
        self.count: int = 0
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
        return [subject for subject in self._numbers if isinstance(subject, Model)]

    def add(self, batches: Sequence[Batch]) -> None:
        """Keep entities."""
        try:
            for batch in batches:
                for rows, _ in [(batch.rows, 0)] if batch.parts is None else batch.parts():
                    self.keep(batch.model, rows)
                    self.count += len(rows)
        except DRIVER_ERRORS as error:
            raise translated(error, "the temporary file of a load") from error

    def write(self, sqlite: SqliteSchema, writer: Writer, meter: Meter) -> None:
        """Write everything, and what the file maintains from it by now: that may have changed while entities came.

        Raises:
            EntityExists, UniqueViolation: the caller rolls back.
        """
        for model in sorted(self.models, key=sqlite.depth):  # what maintained fields are made of comes before them
            followers = [
                _HeldBack(sqlite, apply, self) if isinstance(hook, MaintenanceHook) else hook
                for hook in hooks_of(sqlite, (model,), apply)
            ]
            for rows in self._sorted(model, 2):
                stamped = insert_rows(sqlite.statements[model], writer, completed_rows(sqlite, writer, model, rows))
                writer.proof = sqlite.statements[model].row_exists, stamped[0][:3]
                changes = ChangeSet()
                for follower in followers:
                    follower.collect_added(writer, model, stamped, changes)
                    follower.flush(writer, changes)
                meter.advance(len(stamped))
        for index in [subject for subject in self._numbers if isinstance(subject, IndexMaintenance)]:
            for rows in self._sorted(index, 4):
                put_rows(sqlite, index, writer, rows)

    def taken_back(self, index: IndexMaintenance, row: Row) -> bool:
        """Drop a row of a group, or of an entity with maintained fields, that is held back, if there is one."""
        if index not in self._numbers:
            return False
        self._connection.execute(
            f"DELETE FROM t{self._numbers[index]} WHERE c2 = ? AND c3 = ? AND c0 = ? AND c1 = ?", (*row[2:4], *row[:2])
        )
        return bool(self._connection.changes())

    def keep(self, subject: Model | IndexMaintenance, rows: list[Row]) -> None:
        """Keep rows of a class, or of an index."""
        if not rows:
            return
        number = self._numbers.get(subject)
        if number is None:
            number = self._numbers[subject] = len(self._numbers)
            self._connection.execute(f"CREATE TABLE t{number}({', '.join(f'c{at}' for at in range(len(rows[0])))})")
            if isinstance(subject, IndexMaintenance) and (
                subject.owner.aggregate is not None or subject.owner.maintained
            ):
                self._connection.execute(f"CREATE INDEX i{number} ON t{number}(c2, c3)")
        self._connection.executemany(f"INSERT INTO t{number} VALUES({', '.join('?' * len(rows[0]))})", rows)

    def _sorted(self, subject: Model | IndexMaintenance, places: int) -> Iterator[list[Row]]:
        """Yield rows in the order of their first values, in chunks."""
        order = ", ".join(f"c{at}" for at in range(places))
        cursor = self._connection.execute(f"SELECT * FROM t{self._numbers[subject]} ORDER BY {order}")
        while rows := list(islice(cursor, _CHUNK)):
            yield rows


@attrs.frozen(eq=False)
class _HeldBack(MaintenanceHook):
    """The maintenance of a load; the rows of indexes are held back until every group is written.

    A unique value can be another group's until then. Groups are written by chunks of entities, so that no more of them
    are in memory.
    """

    load: AtomicLoad

    def collect_added(self, writer: Writer, model: Model, rows: list[Row], changes: ChangeSet) -> None:
        for maintenance, is_passed in duties(self.sqlite, writer.get, model):
            if is_passed is None:
                for index in maintenance.indexes:
                    self.load.keep(index, index.rows(rows))
                changes.added(maintenance.of_aggregates, rows)
            else:
                changes.added(maintenance, list(filter(is_passed, rows)))

    def flush(self, writer: Writer, changes: ChangeSet) -> None:
        write_groups(self.sqlite, writer, changes)
        for index, change in changes.indexes.items():
            deletes = [row for row in (*change.deletes, *change.rewrites) if not self.load.taken_back(index, row)]
            if deletes:
                delete_rows(self.sqlite, index, writer, deletes)
            self.load.keep(index, [*change.puts, *change.rewrites])
