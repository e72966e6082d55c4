"""What a store needs of an engine.

An engine keeps rows (`tablemapper.model`) and applies operations. Everything about values, keys, limits and maintenance
is decided before or beside it, once for all engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import attrs

from ..progress import Meter
from ..query.prepared import Reader
from ..schema.check import Report
from ..schema.model import Model, Schema
from ..schema.rows import Row

__all__ = ["Batch", "Engine", "Note", "NoteChanged", "Operation", "Verb"]

Verb: TypeAlias = Literal["insert", "replace", "merge", "upsert", "delete"]


@attrs.define(eq=False)
class Operation:
    """One operation of a transaction, on one entity."""

    verb: Verb
    model: Model
    partition: str
    row: str
    new: Row | None = None
    """What is to be stored, its timestamp left open; the engine replaces it by what was stored."""
    old: Row | None = None
    """The row that the entity was read as, where the operation is conditional on it."""
    etag: int | None = None
    """The timestamp that the stored row must have; None: whatever is there."""
    change: Callable[[Row | None], Row] | None = None
    """Makes the new row of a merge from the stored one."""
    entity: Any = None
    """What is stamped with the row once it is stored."""

    @property
    def key(self) -> tuple[str, str]:
        return self.partition, self.row

    def __str__(self) -> str:
        return f"{self.verb} {self.model.name} {self.key}"


@attrs.define(eq=False)
class Batch:
    """New entities of one class, and their rows."""

    model: Model
    entities: list[Any] = attrs.field(factory=list)
    rows: list[Row] = attrs.field(factory=list)
    """As long as the entities; their timestamp is left open until the engine replaces them by what was stored."""


@attrs.frozen
class Note:
    """A change of what is noted under a name in a store, beside its entities: JSON, or None for nothing."""

    name: str
    old: str | None
    new: str | None


class NoteChanged(Exception):
    """What is noted is not what a `Note` says that it was."""


class Engine(Reader, Protocol):
    """Keeps the rows of a schema, in one place."""

    schema: Schema

    def get(self, model: Model, partition: str, row: str) -> Row | None:
        """Return one row, or None."""
        ...

    def get_many(self, wanted: Sequence[tuple[Model, str, str]]) -> list[Row | None]:
        """Return rows, all of one state of the store."""
        ...

    def partition(self, table: str, partition: str) -> Iterator[list[tuple[Model | None, Row]]]:
        """Yield every row of a partition with its model, in row order, in chunks."""
        ...

    def note(self, name: str) -> str | None:
        """Return what is noted under a name."""
        ...

    def apply(
        self,
        operations: Sequence[Operation],
        *,
        maintained_limit: int | None = None,
        notes: Sequence[Note] = (),
    ) -> None:
        """Apply operations in one transaction, with what is maintained from them and what is to be noted.

        Raises:
            EntityExists, EntityNotFound, PreconditionFailed, UniqueViolation: of the first operation that failed;
                nothing was written.
            NoteChanged: nothing was written.
        """
        ...

    def insert(self, batches: Sequence[Batch]) -> None:
        """Insert new entities in one transaction, and what is maintained from them.

        Raises:
            EntityExists, UniqueViolation: of one that was not possible; nothing was written.
        """
        ...

    def load(self, windows: Iterable[Sequence[Batch]], meter: Callable[[str, int | None], Meter]) -> int:
        """Insert new entities, all of them at once or none, and return their number; their batches do not change.

        Args:
            windows: the entities, as many as are in memory at a time.
            meter: starts a report of what is done, of a number if that is known.
        """
        ...

    def check(self, meter: Meter) -> Report:
        """Compare everything that is maintained with what the entities say that it should be."""
        ...

    def backup(self, path: str, meter: Meter) -> None:
        """Write a copy of one state of the store."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...
