"""The protocol between a runner of migrations and an engine, which converts entities beside writers, then switches.

The runner has read the script; the engine gets data: classes, and functions of entities.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Concatenate, ParamSpec, Protocol, TypeAlias

import attrs

from ..catalogue.actions import ActionPlan
from ..catalogue.catalogue import Catalogue
from ..catalogue.migration_states import adopted, dropped_labels, edited
from ..catalogue.transitions import ConversionFault, MetadataChange, Transition
from ..evolution.history import History
from ..schema.model import Model, Schema
from ..schema.specs import Forms
from .protocol import Engine, StepTiming

P = ParamSpec("P")


class StaleScript(Exception):
    """Another program has changed the catalogue since the runner looked at it, so its plan may not fit any more."""


@attrs.frozen
class CopyProgress:
    """The result of one transaction of a migration."""

    entities: int
    done: int
    """Entities that were converted so far, of ``total``."""
    total: int
    pace: StepTiming = attrs.field(factory=StepTiming)
    switched: bool = False
    """Whether it was the last one, and switched."""
    passed: bool = False
    """Whether every entity was converted once; only entities that changed meanwhile are left."""
    stuck: bool = False
    """Whether only entities are left that cannot be converted."""


Batches: TypeAlias = Callable[[Callable[[int], StepTiming | None]], None]
"""Calls what does a transaction of a job, each time with how many rows it may have, until that returns None."""


class MigrationEngine(ABC):
    """A store that is migrated; it needs none of its classes. What its catalogue alone says is here, for every engine.

    The runner looks at the catalogue, plans, and changes it once by that plan. What reads or changes the store for a plan
    raises `StaleScript` if the catalogue is another one by then: `adopt`, `count`, `edit`, `take_over`, and of one that copies
    `irreversible`, `start` and `discard`. The rest goes on by the catalogue that it finds.
    """

    _catalogue: Catalogue
    """As it was looked at last."""

    @abstractmethod
    def look(self) -> None:
        """Read the catalogue as it is now."""

    @abstractmethod
    def _take(
        self,
        transition: Callable[Concatenate[ActionPlan, Catalogue, P], Catalogue],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Change the catalogue by a transition, then look at it again; raise StaleScript if it is another one by now."""

    def forms(self) -> Forms:
        """Return the forms of the classes in its catalogue."""
        return self._catalogue.models

    def history(self) -> History:
        """Return the migrations that were started, in that order."""
        return self._catalogue.history

    def dropped(self, new: Mapping[str, Iterable[Model]]) -> frozenset[str]:
        """Return the labels that scripts must not name any more: what migrations drop, and what had the names before that.

        Args:
            new: by migration, its new classes; what they declare is not dropped any more.
        """
        return dropped_labels(self._catalogue, new)

    @abstractmethod
    def count(self, name: str) -> int:
        """Return the number of entities of a class."""

    def adopt(self, applied: Sequence[tuple[str, str]]) -> None:
        """Note migrations, each with its digest, as done, without running them: the store is younger than they are."""
        self._take(adopted, applied)

    def edit(self, edit: MetadataChange) -> None:
        """Run a migration that copies nothing.

        Raises:
            InvalidMigration: another one is under way.
        """
        self._take(edited, edit)

    @abstractmethod
    def take_over(self, schema: Schema) -> bool:
        """Add to the catalogue what classes declare and no step says, as opening them does, and build nothing.

        Returns:
            Whether anything was added.
        """

    @abstractmethod
    def under_way(self) -> str | None:
        """Return the name of the migration that was started and has not switched; None if there is none."""

    @abstractmethod
    def discard(self, name: str) -> None:
        """Abandon a migration that is under way, and drop the tables that it copied to."""

    @abstractmethod
    def contract(self, id: str, batches: Batches) -> bool:
        """Drop what only the versions before a migration need, and what it drops; it cannot be undone then.

        Args:
            batches: runs what empties a table in short transactions.

        Returns:
            Whether that is done; not if another run has undone the migration meanwhile, or is about to.
        """

    @abstractmethod
    def drop_former(self) -> None:
        """Drop the former definitions of indexes and aggregates that no version in use declares."""

    @abstractmethod
    def close(self) -> None:
        """Close the files, or the connections."""


class TableReplacement(Protocol):
    """A migration that copies entities to new tables, in a store where writers do not note what they change meanwhile.

    So it copies, and copies again what differs while nobody writes.
    """

    @property
    def source(self) -> Engine:
        """The classes that it replaces, as programs write them; other classes are not read."""
        ...

    @property
    def target(self) -> Engine:
        """Their new classes, in tables that nobody else knows."""
        ...

    def alive(self) -> None:
        """Let other runs know from time to time that this one goes on.

        Raises:
            Outdated: another one has begun anew.
        """
        ...

    def freeze(self) -> None:
        """Let no program change entities any more, and wait until each one knows."""
        ...

    def switch(self, entities: int) -> bool:
        """Let the new classes take the place of the old ones, and programs write again.

        Args:
            entities: how many were converted.

        Returns:
            Whether that was done; not if programs have written since `freeze`.

        Raises:
            Outdated: a class is another one by now.
        """
        ...

    def close(self) -> None:
        """Let go of both; unless it has switched, everything is as it was before."""
        ...


class ReplacingEngine(MigrationEngine):
    """One that runs migrations which copy entities by copying twice."""

    @abstractmethod
    def begin(self, transition: Transition) -> TableReplacement:
        """Start a migration, from the beginning.

        Raises:
            Outdated: another run is about it; this may be called again.
            StoreLocked: the store is frozen.
        """


class CopyingEngine(MigrationEngine):
    """One that runs migrations which copy entities beside writers."""

    @abstractmethod
    def building(self) -> frozenset[str]:
        """Return the classes over whose entities something is being built."""

    @abstractmethod
    def start(self, transition: Transition) -> bool:
        """Start a migration, or continue it; return whether anything is to be copied.

        Raises:
            InvalidMigration: another one is under way.
        """

    @abstractmethod
    def irreversible(self, transition: Transition) -> Sequence[ConversionFault]:
        """Return the entities that cannot become again what they were before a migration that is undone; write nothing."""

    @abstractmethod
    def step(self, most: int) -> CopyProgress:
        """Convert the next entities, at most ``most``, in one transaction; that of the last ones switches."""

    @property
    @abstractmethod
    def faults(self) -> Mapping[tuple[str, tuple[str, str]], ConversionFault]:
        """The entities that could not be converted so far."""

    @abstractmethod
    def clear(self, most: int) -> StepTiming | None:
        """Delete the notes of finished migrations in one transaction, at most so many rows; None if there were none."""

    @abstractmethod
    def has_twin(self, id: str) -> bool:
        """Return whether the version before a migration goes on, in tables that are kept in step."""

    @abstractmethod
    def backup(self, path: str) -> None:
        """Write a copy of one state of the store."""
