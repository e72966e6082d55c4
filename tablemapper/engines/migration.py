"""The protocol between a runner of migrations and an engine, which converts entities beside writers, then switches.

The runner has read the script; the engine gets data: classes, and functions of entities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import attrs

from ..evolution.history import History
from ..schema.forms import Forms, LinkForm
from ..schema.model import Model, Schema
from .protocol import Pace

__all__ = [
    "Batches",
    "Conversion",
    "Copied",
    "Edit",
    "Fault",
    "Former",
    "MigrationEngine",
    "Outdated",
    "Transition",
    "WayBack",
    "name_of",
]


class Outdated(Exception):
    """Another program has changed the catalogue since the runner looked at it, so its plan may not fit any more."""


@attrs.frozen
class Fault:
    """An entity that a migration cannot convert."""

    where: str
    """Its class."""
    key: tuple[str, str]
    """Its partition key and row key."""
    detail: str

    def __str__(self) -> str:
        return f"{self.where} {self.key}: {self.detail}"


def name_of(id: str, *, back: bool) -> str:
    """Return the name of a migration, or of its undoing, while it runs."""
    return f"the undoing of {id}" if back else id


@attrs.frozen
class Former:
    """How an undoing finds the entity that there was before the migration, for the values that only that one has."""

    key: Callable[[Any], tuple[str, str]]
    """From the entity of now to the key that it had before the migration."""
    fields: tuple[str, ...]
    """The fields that get back their values."""
    lacking: Callable[[Any], Sequence[str]]
    """From the entity of now to those of its fields that need a value which only the former entity has."""


@attrs.frozen(eq=False)
class Conversion:
    """How the entities of one or more old classes become entities of new ones."""

    sources: tuple[Model, ...]
    """One class, or several; then the entities that have one key are converted together."""
    targets: tuple[Model, ...]
    convert: Callable[[Sequence[Any]], Iterable[Any]]
    """From an entity of each source, or None where it has none, to new entities. It may be called several times."""
    combine: Callable[[Any, Any], Any] | None = None
    """From two new entities that have one key to one, in the order of the old keys; without it that is a fault."""
    back: Conversion | None = None
    """The conversion of a new entity to the old one, or to none, if a twin is kept in step by it."""
    former: Former | None = None
    """If given, ``convert`` also gets the entity that there was before the migration, or None."""


@attrs.frozen(eq=False)
class WayBack:
    """The conversions of a script from new entities to old ones, where a catalogue alone does not tell the old ones."""

    migration: str
    """The id of the script."""
    script: str
    """32 hex digits of its text."""
    conversion: Callable[[str, str], Conversion]
    """From the names of a new class and of the old one to the conversion between them."""


@attrs.frozen(eq=False)
class Transition:
    """A migration that copies, as an engine runs it: new classes replace old ones."""

    id: str
    script: str
    """32 hex digits of its script."""
    steps: tuple[str, ...]
    old: Schema
    """The classes that are converted, with what is maintained from them."""
    new: Schema
    """The classes that they are converted to, with what is maintained from them; nothing else is in their tables."""
    conversions: tuple[Conversion, ...]
    drops: tuple[str, ...] = ()
    """The labels of the definitions that contracting drops."""
    contested: frozenset[str] = frozenset()
    """The labels of unique indexes that may have duplicates at first."""
    former: frozenset[str] = frozenset()
    """Former definitions of aggregates, which older versions use and no script can name; they end with the classes."""
    links: tuple[LinkForm, ...] = ()
    """The links from old classes to new ones; without links the old version stops at the switch."""
    writes: bool = False
    """Whether the old version can also write after the switch, if there are links."""
    back: bool = False
    """Whether it undoes a migration."""

    @property
    def name(self) -> str:
        """Its name while it runs."""
        return name_of(self.id, back=self.back)

    @property
    def ending(self) -> frozenset[str]:
        """The names of the classes that it replaces."""
        return self.former.union(self.old.by_name)


@attrs.frozen(eq=False)
class Edit:
    """A migration that changes only the catalogue of a store; older versions go on beside it."""

    id: str
    script: str
    """32 hex digits of its script."""
    steps: tuple[str, ...]
    names: Mapping[str, Mapping[str, str]]
    """By class: properties, each with its new name."""
    new: tuple[Model, ...]
    """The classes with renamed properties, as they are from now on, and their aggregates."""
    drops: tuple[str, ...]
    """The labels of the definitions that contracting drops."""
    back: bool = False
    """Whether it undoes a migration."""


@attrs.frozen
class Copied:
    """The result of one transaction of a migration."""

    entities: int
    done: int
    """Entities that were converted so far, of ``total``."""
    total: int
    pace: Pace = attrs.field(factory=Pace)
    switched: bool = False
    """Whether it was the last one, and switched."""
    passed: bool = False
    """Whether every entity was converted once; only entities that changed meanwhile are left."""
    stuck: bool = False
    """Whether only entities are left that cannot be converted."""


Batches: TypeAlias = Callable[[Callable[[int], Pace | None]], None]
"""Calls what does a transaction of a job, each time with how many rows it may have, until that returns None."""


class MigrationEngine(Protocol):
    """A store that is migrated; it needs none of its classes.

    The runner looks at the catalogue, plans, and changes it once by that plan. What reads or changes the store for a plan
    raises `Outdated` if the catalogue is another one by then: `adopt`, `count`, `lacking`, `start`, `discard`, `edit` and
    `take_over`. The rest goes on by the catalogue that it finds.
    """

    def look(self) -> None:
        """Read the catalogue as it is now."""
        ...

    def forms(self) -> Forms:
        """Return the forms of the classes in its catalogue."""
        ...

    def history(self) -> History:
        """Return the migrations that were started, in that order."""
        ...

    def dropped(self, new: Mapping[str, Iterable[Model]]) -> frozenset[str]:
        """Return the labels that scripts must not name any more: what migrations drop, and what had the names before that.

        Args:
            new: by migration, its new classes; what they declare is not dropped any more.
        """
        ...

    def building(self) -> frozenset[str]:
        """Return the classes over whose entities something is being built."""
        ...

    def count(self, name: str) -> int:
        """Return the number of entities of a class."""
        ...

    def adopt(self, applied: Sequence[tuple[str, str]]) -> None:
        """Note migrations, each with its digest, as done, without running them: the store is younger than they are."""
        ...

    def start(self, transition: Transition) -> bool:
        """Start a migration, or continue it; return whether anything is to be copied.

        Raises:
            InvalidMigration: another one is under way.
        """
        ...

    def lacking(self, transition: Transition) -> Sequence[Fault]:
        """Return the entities that cannot become again what they were before a migration that is undone; write nothing.

        Raises:
            InvalidMigration: the store has not kept the former entities.
        """
        ...

    def under_way(self) -> str | None:
        """Return the name of the migration that was started and has not switched; None if there is none."""
        ...

    def discard(self, name: str) -> None:
        """Abandon a migration that is under way, and drop the tables that it copied to."""
        ...

    def edit(self, edit: Edit) -> None:
        """Run a migration that copies nothing, in one transaction; errors as for `start`."""
        ...

    def take_over(self, schema: Schema) -> bool:
        """Add to the catalogue what classes declare and no step says, as opening them does, and build nothing.

        Returns:
            Whether anything was added.
        """
        ...

    def step(self, most: int) -> Copied:
        """Convert the next entities, at most ``most``, in one transaction; that of the last ones switches."""
        ...

    @property
    def faults(self) -> Mapping[tuple[str, tuple[str, str]], Fault]:
        """The entities that could not be converted so far."""
        ...

    def clear(self, most: int) -> Pace | None:
        """Delete the notes of finished migrations in one transaction, at most so many rows; None if there were none."""
        ...

    def has_twin(self, id: str) -> bool:
        """Return whether the version before a migration goes on, in tables that are kept in step."""
        ...

    def contract(self, id: str, batches: Batches) -> bool:
        """Drop the tables of the classes that a migration replaced or drops; it cannot be undone then.

        Args:
            id: of the migration.
            batches: runs what empties a table in short transactions.

        Returns:
            Whether that is done; not if another run has undone the migration meanwhile, or is about to.
        """
        ...

    def drop_former(self) -> None:
        """Drop the former definitions of indexes and aggregates that no version in use declares."""
        ...

    def backup(self, path: str) -> None:
        """Write a copy of one state of the store."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...
