"""Followers: what follows from a write of entities, in the same transaction. There is one list of them.

All that writes entities takes it from here: operations, a single insert, many new entities, a sorted load. What else is
to follow from a write is one more class in `_KINDS`. Most classes have no follower, or `MaintenanceHook` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import attrs

from ....schema.maintenance import ChangeSet
from ....schema.model import Model
from ....schema.rows import Row
from ...protocol import Operation
from ..file.writer import Writer, sorted_rows
from ..sql.schema import SqliteSchema
from .jobs import ENQUEUE, copied
from .maintenance_writer import Part, collect, with_maintained, write_changes, write_groups, write_indexes
from .mirrors import Apply, FunctionMirror, LinkMirror, Place, sides_of


@attrs.define(eq=False)
class WrittenRows:
    """The operations of a transaction on entities of one class, by what they turned out to do."""

    width: int
    """Of an entity's row. One that an operation brings with it is read again if it has another."""
    inserts: list[Operation]
    updates: list[Operation]
    deletes: list[Operation]

    @property
    def keys(self) -> list[tuple[str, str]]:
        """The keys of all of them."""
        return list(dict.fromkeys(operation.key for operation in (*self.deletes, *self.updates, *self.inserts)))


@attrs.frozen(eq=False)
class WriteHook:
    """A consequence of writes. Operations call `prepare` and `finish` once; new entities `collect_added`, then `flush`."""

    sqlite: SqliteSchema
    apply: Apply
    """Writes operations on the other side of a twin."""

    @staticmethod
    def concerns(sqlite: SqliteSchema, model: Model) -> bool:
        """Return whether anything follows from writes of a class."""
        raise NotImplementedError

    def prepare(self, writer: Writer, written_rows: Mapping[Model, WrittenRows], changes: ChangeSet) -> Any:
        """Take up operations before their rows are written, and return what `finish` is to know.

        Args:
            changes: gets what they change in indexes and aggregates.
        """

    def finish(
        self, writer: Writer, written_rows: Mapping[Model, WrittenRows], changes: ChangeSet, prepared: Any
    ) -> None:
        """Write what follows from operations whose rows are written."""

    def collect_added(self, writer: Writer, model: Model, rows: list[Row], changes: ChangeSet) -> None:
        """Take up new entities of a class, whose rows are written."""

    def flush(self, writer: Writer, changes: ChangeSet) -> None:
        """Write what follows from the new entities that were taken up, as far as that is not done."""


class MaintenanceHook(WriteHook):
    """Indexes and aggregates, with those that jobs build."""

    __slots__ = ()

    @staticmethod
    def concerns(sqlite: SqliteSchema, model: Model) -> bool:
        maintenance = sqlite.maintenance[model]
        return bool(maintenance.indexes or maintenance.aggregates or model in sqlite.jobs or model in sqlite.keepers)

    def prepare(self, writer: Writer, written_rows: Mapping[Model, WrittenRows], changes: ChangeSet) -> bool:
        """Return whether groups are written already: what entities are in indexes may depend on what they come to be."""
        sqlite = self.sqlite
        if not sqlite.keepers or not (dependents := sqlite.keepers.keys() & written_rows.keys()):
            self._collect(writer, written_rows, changes)
            return False
        self._collect(writer, written_rows, changes, attrgetter("of_aggregates"))
        own_keys = {(model, key) for model in dependents for key in written_rows[model].keys}
        write_groups(sqlite, writer, changes, own_keys)
        for model in dependents:
            statements = sqlite.statements[model]
            for operation in (*written_rows[model].updates, *written_rows[model].inserts):
                assert operation.new is not None
                operation.new = with_maintained(statements, writer, operation.new)
        self._collect(writer, written_rows, changes, attrgetter("of_indexes"))
        return True

    def finish(
        self, writer: Writer, written_rows: Mapping[Model, WrittenRows], changes: ChangeSet, prepared: Any
    ) -> None:
        if not prepared:
            write_groups(self.sqlite, writer, changes)
        if changes.indexes:
            write_indexes(self.sqlite, writer, changes)

    def collect_added(self, writer: Writer, model: Model, rows: list[Row], changes: ChangeSet) -> None:
        # In the order of the keys, so that index rows that are equal in their own key have it too.
        collect(self.sqlite, writer, model, changes, inserts=sorted_rows(rows))
        write_indexes(self.sqlite, writer, changes)
        changes.indexes.clear()

    def flush(self, writer: Writer, changes: ChangeSet) -> None:
        write_changes(self.sqlite, writer, changes)

    def _collect(
        self, writer: Writer, written_rows: Mapping[Model, WrittenRows], changes: ChangeSet, part: Part | None = None
    ) -> None:
        """Add to a set what operations change in what is maintained, or in a part of that."""
        for model, class_rows in written_rows.items():
            deletes: Any = [operation.old for operation in class_rows.deletes] if class_rows.deletes else ()
            updates: Any = (
                [(operation.old, operation.new) for operation in class_rows.updates] if class_rows.updates else ()
            )
            inserts: Any = [operation.new for operation in class_rows.inserts] if class_rows.inserts else ()
            collect(self.sqlite, writer, model, changes, deletes, updates, inserts, part)


class BackfillQueueHook(WriteHook):
    """The queues of migrations that copy: the entities that change after they were copied."""

    __slots__ = ()

    @staticmethod
    def concerns(sqlite: SqliteSchema, model: Model) -> bool:
        return model in sqlite.copies

    def finish(
        self, writer: Writer, written_rows: Mapping[Model, WrittenRows], changes: ChangeSet, prepared: None
    ) -> None:
        for model, class_rows in written_rows.items():
            self.collect_added(writer, model, class_rows.keys, changes)

    def collect_added(self, writer: Writer, model: Model, rows: Sequence[Sequence[Any]], changes: ChangeSet) -> None:
        for copy in self.sqlite.copies.get(model, ()):
            is_copied = copied(writer.get, copy.id)
            if is_copied is not None and (queued_keys := [(copy.id, *row[:2]) for row in rows if is_copied(row)]):
                writer.executemany(ENQUEUE, queued_keys)


class MirrorHook(WriteHook):
    """The other sides of twins, which hold what was written, translated; see `mirrors`."""

    __slots__ = ()

    @staticmethod
    def concerns(sqlite: SqliteSchema, model: Model) -> bool:
        return model in sqlite.twins

    def prepare(
        self, writer: Writer, written_rows: Mapping[Model, WrittenRows], changes: ChangeSet
    ) -> list[tuple[Model, LinkMirror | FunctionMirror, Collection[Place]]]:
        """Return the sides to write, each with the keys of the counterparts before."""
        return [
            (model, side, side.places(writer, class_rows.keys))
            for model, class_rows in written_rows.items()
            for side in sides_of(self.sqlite, model)
        ]

    def finish(
        self, writer: Writer, written_rows: Mapping[Model, WrittenRows], changes: ChangeSet, prepared: Any
    ) -> None:
        for model, side, places in prepared:
            moves = {
                operation.key: operation.moved_from.key
                for operation in written_rows[model].inserts
                if operation.moved_from is not None
            }
            deleted_keys = {operation.key for operation in written_rows[model].deletes}
            replaced_keys = {operation.key for operation in written_rows[model].inserts} & deleted_keys
            side.write(writer, written_rows[model].keys, places, self.apply, moves, replaced_keys)

    def collect_added(self, writer: Writer, model: Model, rows: list[Row], changes: ChangeSet) -> None:
        for side in sides_of(self.sqlite, model):
            side.write(writer, rows, (), self.apply)


_KINDS: tuple[type[WriteHook], ...] = (MaintenanceHook, BackfillQueueHook, MirrorHook)
"""All followers, in the order in which they write."""


def hooks_of(sqlite: SqliteSchema, models: Iterable[Model], apply: Apply) -> tuple[WriteHook, ...]:
    """Return what follows from a write of some classes.

    Args:
        apply: as for `WriteHook`.
    """
    key = (*models,)
    followers: tuple[WriteHook, ...] | None = sqlite.followers.get(key)
    if followers is None:
        kinds = [kind for kind in _KINDS if any(kind.concerns(sqlite, model) for model in key)]
        followers = sqlite.followers[key] = tuple([kind(sqlite, apply) for kind in kinds])
    return followers
