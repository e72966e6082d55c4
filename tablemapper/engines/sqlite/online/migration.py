"""Migrations of one file: each is started, copies in short transactions, switches, and is contracted later.

`MigrationEngine` says more of each method. No class need be opened: the catalogue has the forms of all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import attrs

from ....catalogue.actions import ActionPlan
from ....catalogue.catalogue import Catalogue
from ....catalogue.cutover import switched
from ....catalogue.dropping import drop_former, unused
from ....catalogue.migration_states import (
    contracted,
    discarded,
    dropped_classes,
    is_undone,
    retired,
    started,
)
from ....catalogue.transitions import ConversionFault, Transition
from ....errors import InvalidMigration
from ....evolution.versions import Versions
from ....schema.model import Schema
from ...migration_protocol import Batches, CopyingEngine, CopyProgress, StaleScript
from ...protocol import StepTiming
from ..driver.snapshots import Snapshot
from ..file.database import File
from ..file.opening import open_file
from ..file.transactions import GenerationChanged
from ..file.writer import Writer
from ..rows.jobs import LEDGER
from ..sql.catalogue_table import COPIES, as_corruption, read_catalogue, read_generation
from ..sql.ddl import quoted
from ..sql.schema import SqliteSchema
from .apply_schema import take_over
from .backfill import OF, Backfill, Key, is_one_way
from .dropped_tables import delete_class_rows, delete_rows
from .transition_runner import CatalogueUpdate, change, count

P = ParamSpec("P")
T = TypeVar("T")
_FOLLOWS = 10  # times that a write follows the catalogue; after that others change it faster than this one writes
_COPY = f"substr(id, 1, instr(id || '{OF}', '{OF}') - 1)"
_LEFTOVERS = f"SELECT id, pk, rk FROM {LEDGER} WHERE {_COPY} NOT IN (SELECT id FROM {COPIES}) LIMIT ?"
_FORGET = f"DELETE FROM {LEDGER} WHERE id = ? AND pk = ? AND rk = ?"


class SqliteMigrations(CopyingEngine):
    """One file, for migrations."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._copying: Backfill | None = None
        self._transition: Transition | None = None
        self._started = 0  # when that was started
        self.look()

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, durability: Any = "full", timeout: float = 5.0, **options: Any
    ) -> SqliteMigrations:
        """Open an existing file.

        Args:
            durability: as for `tablemapper.open`.
            options: of `open_file`: the clock, locks and VFS of a test.
        """
        file = open_file(path, create=False, durability=durability, timeout=timeout, **options)
        try:
            return cls(file)
        except BaseException:
            file.close()
            raise

    def close(self) -> None:
        self._file.close()

    # ------------------------------------------------------------------------------------------ the catalogue

    def look(self) -> None:
        """Read the catalogue as it is now; a copy that is under way goes on by it."""
        with self._file.snapshot() as snapshot:
            self._catalogue = read_catalogue(snapshot.read)
            self._generation = read_generation(snapshot.read)
        transition, staged = self._transition, self._catalogue.staged
        if transition is None or self._copying is None or staged is None or staged.migration != transition.name:
            return
        self._copying.use(
            self._schema(transition.old, self._catalogue),
            self._schema(transition.new, staged.catalogue),
            self._former_schema(transition),
        )

    def _schema(self, schema: Schema, catalogue: Catalogue) -> SqliteSchema:
        # (Without versions, as these refuse a form that was retired, and a migration may declare it again.)
        return SqliteSchema(schema, attrs.evolve(catalogue, versions=Versions()), self._generation)

    def _former_schema(self, transition: Transition) -> SqliteSchema:
        """Return the classes as they were before a migration that is undone; none if the migration set none aside."""
        former_catalogue = self._catalogue.former.get(transition.id, Catalogue())
        models = [model for model in transition.new.models if transition.back and model.name in former_catalogue.models]
        return self._schema(Schema(tuple(models)), former_catalogue)

    def building(self) -> frozenset[str]:
        return frozenset([job.owner for job in self._catalogue.jobs])

    def count(self, name: str) -> int:
        with self._unchanged() as snapshot:
            if name not in self._catalogue.models:  # (it was, when the caller looked)
                raise StaleScript
            return count(snapshot.read, self._catalogue.table_of(name), name)

    @contextmanager
    def _unchanged(self) -> Iterator[Snapshot]:
        """Return a context manager for reads of one state, in which the catalogue is still the one that was looked at."""
        with self._file.snapshot() as snapshot:
            if read_generation(snapshot.read) != self._generation:
                raise StaleScript
            yield snapshot

    @property
    def faults(self) -> Mapping[tuple[str, Key], ConversionFault]:
        return {} if self._copying is None else self._copying.faults

    # ------------------------------------------------------------------------------------------ running one

    def _write(self, write: Callable[[Writer], T]) -> T:
        return self._paced(write)[0]

    def _paced(self, write: Callable[[Writer], T]) -> tuple[T, StepTiming]:
        """Write by the catalogue as it is in that transaction; return the result and the pace of the transaction."""
        follow_count = 0
        while True:
            try:
                result, seconds, delay = self._file.write_alone(write, generation=self._generation)
                return result, StepTiming(seconds, delay)
            except GenerationChanged:
                if follow_count == _FOLLOWS:
                    raise
                follow_count += 1
                self.look()

    def _change(self, write: Callable[[Writer], T]) -> T:
        """Write by the catalogue that was looked at, then look at it again; return what ``write`` returns.

        Raises:
            Outdated: it is another one by now, and nothing was written.
        """
        try:
            result, _, _ = self._file.write_alone(write, generation=self._generation)
        except GenerationChanged as error:
            raise StaleScript from error
        self.look()
        return result

    def _take(
        self,
        transition: Callable[Concatenate[ActionPlan, Catalogue, P], Catalogue],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        self._change(lambda writer: change(writer, transition, *args, **kwargs))

    def start(self, transition: Transition) -> bool:
        """Start a migration, or continue it; return whether anything is to be copied: not if a twin has the result."""

        def write(writer: Writer) -> bool:
            update = CatalogueUpdate(writer)
            catalogue = update.take(started, transition)
            update.publish()
            if catalogue.staged is not None:
                last_entry = catalogue.history.last(transition.id)
                assert last_entry is not None
                self._started = last_entry.started
            return catalogue.staged is not None

        self._transition, self._copying = transition, Backfill(transition)
        return self._change(write)

    def irreversible(self, transition: Transition) -> Sequence[ConversionFault]:
        if self._catalogue.staged is not None or self.has_twin(transition.id):
            return ()
        copying = Backfill(transition)
        source = self._schema(transition.old, self._catalogue)
        copying.use(source, source, self._former_schema(transition))
        with self._unchanged() as snapshot:
            return copying.irreversible(snapshot)

    def under_way(self) -> str | None:
        return None if self._catalogue.staged is None else self._catalogue.staged.migration

    def discard(self, name: str) -> None:

        def write(writer: Writer) -> None:
            if self.under_way() == name:
                change(writer, discarded)

        self._change(write)

    def take_over(self, schema: Schema) -> bool:
        generation_before = self._generation
        self._change(lambda writer: take_over(writer, schema))
        return self._generation != generation_before

    def step(self, most: int) -> CopyProgress:
        transition, copying = self._transition, self._copying
        assert transition is not None
        assert copying is not None
        read_count, copied, total, at_end = 0, 0, 0, False

        @as_corruption()
        def write(writer: Writer) -> None:
            nonlocal read_count, copied, total, at_end
            staged = self._catalogue.staged
            if staged is None or staged.migration != transition.name:  # another run has switched
                if not self._is_done(transition):
                    raise InvalidMigration(
                        transition.id,
                        ["another run gave it up while this one copied; run the one that is wanted again"],
                    )
                read_count, at_end = 0, True
                return
            read_count, at_end = copying.batch(writer, most), copying.at_end
            copied, total = writer.get(f"SELECT sum(done), sum(total) FROM {COPIES}") or (0, 0)
            total = max(total, copied)
            if at_end:  # (and where the way back does not lead to some old entity, the old version ends, too)
                links = () if is_one_way(writer) else transition.links
                change(writer, switched, attrs.evolve(transition, links=links), copied)

        _, pace = self._paced(write)
        if at_end:
            self.look()
        return CopyProgress(read_count, copied, total, pace, at_end, copying.past_cursors, copying.stuck)

    def _is_done(self, transition: Transition) -> bool:
        """Return whether another run has switched, though a third one may have gone back since."""
        history, id = self._catalogue.history, transition.id
        entry = next((entry for entry in history if (entry.id, entry.started) == (id, self._started)), None)
        if transition.back:
            return entry is None or entry.undone is not None
        return entry is not None and entry.switched is not None

    # ------------------------------------------------------------------------------------------ after the switch

    def clear(self, most: int) -> StepTiming | None:

        def write(writer: Writer) -> None:
            writer.executemany(_FORGET, writer.execute(_LEFTOVERS, (most,)).fetchall())

        return self._paced(write)[1] if self._file.read(_LEFTOVERS, (1,)) else None

    def has_twin(self, id: str) -> bool:
        return any(twin.migration == id for twin in self._catalogue.twins)

    def contract(self, id: str, batches: Batches) -> bool:
        """Drop the tables of the classes that a migration replaced or drops; return False if another run undoes that."""
        # After the first transaction the migration cannot be undone, and no program uses the tables: they can be
        # emptied in short transactions. Another run may do the same, so each of them looks at what is left.
        if not self._write(partial(self._retire, id)):
            return False
        self.look()
        for name in dropped_classes(self._catalogue, id):
            self._delete_class(id, name, batches)
        entries = [entry for entry in self._catalogue.history if entry.id == id or entry.undone is not None]
        tables = {name for entry in entries for name in entry.kept}
        for name in sorted(tables):
            batches(partial(self._shrink, name))
        self._write(lambda writer: change(writer, contracted, id, tables))
        self.look()
        return True

    def _delete_class(self, id: str, name: str, batches: Batches) -> None:
        """Delete all rows of a class that a migration drops, if it shares its table."""
        last_key: tuple[str, str] | None = ("", "")

        def delete(most: int) -> StepTiming | None:
            nonlocal last_key
            if last_key is None:
                return None
            last_key, pace = self._paced(partial(self._delete_rows, id, name, last_key, most))
            return pace

        batches(delete)

    def _shrink(self, table: str, most: int) -> StepTiming | None:
        """Delete some rows of a table that is too large to be dropped in a short transaction; None if it is not."""
        large, pace = self._paced(partial(_shrink, table, most))
        return pace if large else None

    def _delete_rows(
        self, id: str, name: str, after: tuple[str, str], most: int, writer: Writer
    ) -> tuple[str, str] | None:
        """Delete some rows of a class that a migration drops; return the last key, or None if that was all."""
        if name not in dropped_classes(self._catalogue, id):  # (another class may have its name by now)
            return None
        return delete_class_rows(writer, self._catalogue, name, after, most)

    def _retire(self, id: str, writer: Writer) -> bool:
        """Retire the versions that go on beside a migration, or declare a class that it drops; not if that is undone."""
        if is_undone(self._catalogue, id):
            return False
        change(writer, retired, id)
        return True

    def drop_former(self) -> None:
        if unused(self._catalogue) and self._catalogue.staged is None:
            self._write(lambda writer: change(writer, drop_former))
            self.look()

    def backup(self, path: str) -> None:
        self._file.backup(path)


def _shrink(table: str, most: int, writer: Writer) -> bool:
    """Delete some rows of a table that is too large to be dropped in a short transaction; return whether it is."""
    if writer.get("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)) is None:
        return False
    if writer.get(f"SELECT 1 FROM {quoted(table)} LIMIT 1 OFFSET ?", (most,)) is None:
        return False
    delete_rows(writer, table, most)
    return True
