"""Migrations as data: what a script says, once it was read, of the catalogue and of the entities of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from ..schema.model import Model, Schema
from ..schema.specs import LinkSpec


@attrs.frozen
class ConversionFault:
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
class FormerEntity:
    """The lookup of the entity from before a migration, for values that only that one has."""

    key: Callable[[Any], tuple[str, str]]
    """From the entity of now to the key that it had before the migration."""
    fields: tuple[str, ...]
    """The fields that get back their values."""
    missing: Callable[[Any], Sequence[str]]
    """From the entity of now to those of its fields that need a value which only the former entity has."""


@attrs.frozen(eq=False)
class Conversion:
    """The conversion of entities of one or more old classes into entities of new ones."""

    sources: tuple[Model, ...]
    """One class, or several; then the entities that have one key are converted together."""
    targets: tuple[Model, ...]
    convert: Callable[[Sequence[Any]], Iterable[Any]]
    """From an entity of each source, or None where it has none, to new entities. It may be called several times."""
    combine: Callable[[Any, Any], Any] | None = None
    """From two new entities that have one key to one, in the order of the old keys; without it that is a fault."""
    back: Conversion | None = None
    """The conversion of a new entity to the old one, or to none, if a twin is kept in step by it."""
    former: FormerEntity | None = None
    """If given, ``convert`` also gets the entity that there was before the migration, or None."""


@attrs.frozen(eq=False)
class BackwardConversion:
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
    links: tuple[LinkSpec, ...] = ()
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
class MetadataChange:
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
