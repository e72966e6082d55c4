"""What a runner of migrations needs of an engine: to turn entities into others beside writers, and to switch to these.

What a script says is decided before; here it is data: classes, and functions of entities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from ..schema.forms import AppliedForm, Forms, LinkForm
from ..schema.model import Model, Schema
from .protocol import Pace

__all__ = ["Conversion", "Copied", "Edit", "Fault", "Former", "MigrationEngine", "Transition", "WayBack", "name_of"]


@attrs.frozen
class Fault:
    """What keeps a migration from coming to its end."""

    where: str
    """The class of an entity."""
    key: tuple[str, str]
    """Its partition key and row key."""
    detail: str

    def __str__(self) -> str:
        return f"{self.where} {self.key}: {self.detail}"


def name_of(id: str, *, back: bool) -> str:
    """Return what a migration is called while it runs."""
    return f"the undoing of {id}" if back else id


@attrs.frozen
class Former:
    """What is to be known of an entity as it was before a migration that is undone."""

    key: Callable[[Any], tuple[str, str]]
    """Its key then, by the entity as it is now."""
    fields: tuple[str, ...]
    """Those of which the values come back."""
    lacking: Callable[[Any], Sequence[str]]
    """By the entity as it is now: the fields that it needs, and only the former entity has values for."""


@attrs.frozen(eq=False)
class Conversion:
    """What entities are turned into."""

    sources: tuple[Model, ...]
    """One class, or several whose entities of equal keys are turned into others together."""
    targets: tuple[Model, ...]
    convert: Callable[[Sequence[Any]], Iterable[Any]]
    """From an entity of each source, or None where it has none, to new entities. It may be called several times."""
    combine: Callable[[Any, Any], Any] | None = None
    """Makes one of two new entities that have one key, in the order of the old keys; without it that is a fault."""
    back: Conversion | None = None
    """Makes the old entity of a new one, or none, where the old version goes on by that alone."""
    former: Former | None = None
    """If there is one, ``convert`` also gets the entity as it was before, or None."""


@attrs.frozen(eq=False)
class WayBack:
    """What a script says of how two versions are the same, and a catalogue cannot."""

    migration: str
    """The id of the script."""
    script: str
    """32 hex digits of it."""
    conversion: Callable[[str, str], Conversion]
    """By the names of a new class and of the old one: what makes the old entity of a new one, or none."""


@attrs.frozen(eq=False)
class Transition:
    """A migration, as an engine runs it: some classes end, and others take their place."""

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
    """The labels of what goes when it is contracted."""
    contested: frozenset[str] = frozenset()
    """The labels of unique indexes that values may be held twice in at first."""
    former: frozenset[str] = frozenset()
    """Former definitions of aggregates, which older versions use and no script can name; they end with the classes."""
    links: tuple[LinkForm, ...] = ()
    """How each class that ends is the same as one that takes its place; none: the old version stops at the switch."""
    writes: bool = False
    """Whether the old version can write after the switch, too, if there are links."""
    back: bool = False
    """Whether it undoes a migration."""

    @property
    def name(self) -> str:
        """What it is called while it runs."""
        return name_of(self.id, back=self.back)

    @property
    def ending(self) -> frozenset[str]:
        """The classes that end, by name."""
        return self.former.union(self.old.by_name)


@attrs.frozen(eq=False)
class Edit:
    """A migration that only the catalogue of a store has to know: older versions go on beside it."""

    id: str
    script: str
    """32 hex digits of its script."""
    steps: tuple[str, ...]
    names: Mapping[str, Mapping[str, str]]
    """By class: properties, each with its new name."""
    new: tuple[Model, ...]
    """The classes that have other names, as they are from then on, and the aggregates of them."""
    drops: tuple[str, ...]
    """The labels of what goes when it is contracted."""
    back: bool = False
    """Whether it undoes a migration."""


@attrs.frozen
class Copied:
    """What one transaction of a migration did."""

    entities: int
    done: int
    """Entities that were turned into others so far, of ``total``."""
    total: int
    pace: Pace = attrs.field(factory=Pace)
    switched: bool = False
    """Whether it was the last one: everybody reads what was written."""
    passed: bool = False
    """Whether every entity was read; only those are left that change meanwhile."""
    stuck: bool = False
    """Whether only entities are left that cannot be turned into others."""


class MigrationEngine(Protocol):
    """A store whose classes are not known."""

    def forms(self) -> Forms:
        """Return the forms of its classes."""
        ...

    def history(self) -> tuple[AppliedForm, ...]:
        """Return the migrations that were begun, in that order."""
        ...

    def count(self, name: str) -> int:
        """Return the number of entities of a class."""
        ...

    def adopt(self, applied: Sequence[tuple[str, str]]) -> None:
        """Note migrations, each with its digest, as done: the store was never as they find it."""
        ...

    def start(self, transition: Transition, check: Callable[[Forms], None]) -> bool:
        """Begin a migration, or go on with it; return whether anything is to be copied.

        Args:
            transition: what is to be done.
            check: raises if these forms of the store's classes are not those that it starts from.

        Raises:
            InvalidMigration: another one is under way.
        """
        ...

    def lacking(self, transition: Transition) -> Sequence[Fault]:
        """Return the entities that cannot be what they were before a migration that is undone; nothing is written.

        Raises:
            InvalidMigration: the store does not know what they were.
        """
        ...

    def under_way(self) -> str | None:
        """Return what the migration is called that was begun and has not switched."""
        ...

    def discard(self, name: str) -> None:
        """Give up a migration that is under way: what was copied for it goes."""
        ...

    def edit(self, edit: Edit, check: Callable[[Forms], None]) -> None:
        """Do a migration that copies nothing, in one transaction; as `start`."""
        ...

    def take_over(self, schema: Schema) -> None:
        """Add what classes declare and no step says, as when they are opened; it is not built yet."""
        ...

    def step(self, most: int) -> Copied:
        """Turn the next entities into others, at most ``most``, in one transaction; switch with the last ones."""
        ...

    @property
    def faults(self) -> Mapping[tuple[str, tuple[str, str]], Fault]:
        """What could not be turned into others so far."""
        ...

    def clear(self, most: int) -> int:
        """Delete what migrations leave behind that are done, at most so many rows in one transaction; return how many."""
        ...

    def has_twin(self, id: str) -> bool:
        """Return whether a version of before a migration goes on, in tables that are kept in step."""
        ...

    def contract(self, id: str) -> None:
        """Drop what a migration left of the classes that it ended; it cannot be undone then."""
        ...

    def drop_former(self) -> None:
        """Drop former definitions of indexes and aggregates that no version of a class in use can declare."""
        ...

    def backup(self, path: str) -> None:
        """Write a copy of one state of the store."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...
