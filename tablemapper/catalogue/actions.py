"""Actions: what a transition of the catalogue asks of the store. They are values, which `online.transition_runner` runs in their order.

Each names tables as they are called just then: rows are copied or deleted before their table is renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import msgspec

from .catalogue import CopySpec, JobSpec
from .tables import Column, Table, fresh_name


class Action(msgspec.Struct, frozen=True):
    """An action that a transition asks of the store."""


class RenameTable(Action, frozen=True):
    """Give a table another name."""

    old: str
    new: str


class RenameColumn(Action, frozen=True):
    """Give a column another name."""

    table: str
    old: str
    new: str


class CreateEntityTable(Action, frozen=True):
    """Create an entity table, and the one beside it for large values."""

    table: Table


class CreateOverflowTable(Action, frozen=True):
    """Create the table for large values alone."""

    table: Table


class CreateIndex(Action, frozen=True):
    """Create the table of an index."""

    name: str
    columns: tuple[str, ...]
    """Of the properties that it includes."""
    unique: bool


class CreateValueCounts(Action, frozen=True):
    """Create the table of the live values of an aggregate's extremes."""

    name: str


class CreateLike(Action, frozen=True):
    """Create an empty table with the columns of another one."""

    name: str
    other: str


class AddColumn(Action, frozen=True):
    """Add a column to a table."""

    table: str
    column: Column


class CopyRows(Action, frozen=True):
    """Copy all rows of a table to one with the same columns."""

    source: str
    target: str


class DropTable(Action, frozen=True):
    """Drop a table."""

    name: str


class DeleteClass(Action, frozen=True):
    """Delete the rows of a class from a table that it shares."""

    table: Table
    name: str


class SetColumn(Action, frozen=True):
    """Set a column in all rows of a class."""

    table: Table
    name: str
    """The class."""
    column: str
    value: Any


class ForgetIndex(Action, frozen=True):
    """Delete the noted duplicates of an index."""

    label: str


class Relabel(Action, frozen=True):
    """Note the duplicates of an index under another label."""

    old: str
    new: str


class StartJob(Action, frozen=True):
    """Build something over the entities of a class, which are in a table."""

    job: JobSpec
    table: Table


class EndJob(Action, frozen=True):
    """Give up a job."""

    name: str


class ChangeJob(Action, frozen=True):
    """Let the job of this name build something else."""

    job: JobSpec


class StartCopy(Action, frozen=True):
    """Copy the entities of classes, which are in tables."""

    copy: CopySpec
    tables: tuple[Table, ...]


class EndCopies(Action, frozen=True):
    """Copy nothing more; ``notes``: and delete at once what was noted for it."""

    notes: bool = False


class ActionPlan:
    """One transition while it is computed: its actions, and the names of tables after them.

    Attributes:
        now: the time of the transaction, in µs since 1970.
        generation: the generation of the catalogue.
        is_violated: whether a unique index has noted duplicates, by its label.
        past: the names, in lower case, that once had a meaning: what it renames or drops is among them.
        actions: in their order.
        renames: whether the store gives tables other names.
    """

    def __init__(
        self,
        now: int,
        names: Callable[[], Iterable[str]],
        past: Iterable[str] = (),
        is_violated: Callable[[str], bool] = lambda label: False,
        generation: int = 0,
        *,
        renames: bool = True,
    ) -> None:
        self.renames = renames
        self.now = now
        self.generation = generation
        self.is_violated = is_violated
        self.past: set[str] = set(past)
        self.actions: list[Action] = []
        self._read_names = names
        self._issued = set[str]()

    @cached_property
    def names(self) -> set[str]:
        """The names of the tables that exist after the actions so far, in lower case."""
        return {name.lower() for name in self._read_names()}

    def has(self, name: str) -> bool:
        """Return whether a table exists."""
        return name.lower() in self.names

    def is_free(self, name: str) -> bool:
        """Return whether no table has or had a name."""
        return name.lower() not in self.names | self.past | self._issued

    def fresh(self, name: str) -> str:
        """Return a name that no table has or had, and that is given once."""
        fresh = fresh_name(name, self.names | self.past | self._issued)
        self._issued.add(fresh.lower())
        return fresh

    def do(self, *actions: Action) -> None:
        """Add actions."""
        for action in actions:
            match action:
                case RenameTable(old, new):
                    self._remove(old)
                    self._add(new)
                    self.past.add(new.lower())
                case CreateEntityTable(table):
                    self._add(*table.names)
                case CreateOverflowTable(table):
                    self._add(table.big_name)
                case CreateLike(name) | CreateIndex(name) | CreateValueCounts(name):
                    self._add(name)
                case DropTable(name):
                    self._remove(name)
                case _:
                    pass
            self.actions.append(action)

    def _add(self, *names: str) -> None:
        for name in names:
            assert not self.has(name), f"{name} exists"
            self.names.add(name.lower())

    def _remove(self, name: str) -> None:
        assert self.has(name), f"{name} does not exist"
        self.names.remove(name.lower())
        self.past.add(name.lower())

    def rename(self, before: Table, after: Table) -> None:
        """Give an entity table, and the one beside it, the names of another one."""
        self.do(*(RenameTable(old, new) for old, new in zip(before.names, after.names, strict=True)))
