"""Protocols of what an engine need not have: a store asks for each by type, once where it matters, and does without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ..planning.cost import ReadEstimate
from ..planning.plan import Plan
from ..planning.projection import RowLayout
from ..planning.ranges import BoundPlan
from ..progress import Meter
from ..schema.model import Model, Schema
from ..schema.rows import Row
from .protocol import Batch, Engine

PartitionReader: TypeAlias = Callable[[str, int | None, Sequence[Any]], list[Row] | None]
"""Gets a partition key, the most rows that are needed, and the values of the query."""


@runtime_checkable
class CountsRows(Protocol):
    """Reads that count rows, and add them up, where they lie."""

    def count(self, bound: BoundPlan, *, within: Any = None) -> int | None:
        """Return the number of entities; None if that has to be found out in Python."""
        ...

    def totals(
        self, bound: BoundPlan, by: Sequence[str], measured: str | None, *, summed: bool
    ) -> Iterable[Row] | None:
        """Return totals by groups of fields that are stored alike; None if they have to be found out in Python.

        Each row has the stored values of the fields, without repetitions, of one entity of the group, then the number
        of its entities. Of the measured field it has the number of values and their sum, or the least and the greatest.
        A group can come several times. A damaged value of one of the fields has to be found in Python.
        """
        ...

    def between_bounds(self, bound: BoundPlan, most: int) -> int | None:
        """Return the number of rows between the bounds, before any filter, at most ``most``; None if that costs a read."""
        ...

    def footprint(self, bound: BoundPlan, most: int) -> ReadEstimate | None:
        """Return what a plan reads, counted up to ``most`` rows; None if that costs a read."""
        ...


@runtime_checkable
class ReadsLines(Protocol):
    """Reads that give rows as text."""

    def lines(
        self, bound: BoundPlan, layout: RowLayout, size: int, limit: int | None
    ) -> Iterator[bytes | list[Row]] | None:
        """Return rows in chunks of at most so many, as text: each is a line of JSON, an array with a 0 at both ends.

        A chunk that such lines do not hold comes as rows; where no chunk would be faster as text, None is returned. All
        are of one state of the store, in the order of the plan.
        """
        ...


@runtime_checkable
class ReadsPartitions(Protocol):
    """Reads with a shorter way to one partition."""

    def partition_rows(self, plan: Plan, layout: RowLayout) -> PartitionReader:
        """Return a function that reads the first rows of one partition of a path, or all; None if they may be many."""
        ...


@runtime_checkable
class ClearsClasses(Protocol):
    """An engine that can empty the tables of a class."""

    def clear(self, model: Model) -> int | None:
        """Delete all entities of a class, and what is maintained from them, at once; return their number.

        None, and nothing is done, if they have to be deleted one by one.
        """
        ...


@runtime_checkable
class LoadsAtOnce(Protocol):
    """An engine that can load a stream in one transaction; its capabilities say so, too."""

    def load(self, windows: Iterable[Sequence[Batch]], meter: Callable[[str, int | None], Meter]) -> int:
        """Insert new entities, all of them at once or none, and return their number; their batches do not change.

        Args:
            windows: the entities, as many as are in memory at a time.
            meter: starts a report of what is done, of a number if that is known.
        """
        ...


@runtime_checkable
class RecoversWrites(Protocol):
    """An engine whose writers may leave something when they end early."""

    def sweep(self, meter: Meter, *, full: bool = False) -> int:
        """Finish or undo what writers left that ended early, and return how many writes."""
        ...


@runtime_checkable
class CompactsStore(Protocol):
    """An engine that keeps space that is free."""

    def compact(self, meter: Meter) -> None:
        """Give back the space that is free in the store; nobody else may have it open."""
        ...


@runtime_checkable
class ReopensOnChange(Protocol):
    """An engine that can be opened with the classes that its catalogue has."""

    def latest(self) -> Engine:
        """Return an engine with the classes that the catalogue has by now.

        It is this one if they are the same, or if it was opened with others. Classes that have not changed stay the same
        ones; this engine goes on with those that it has.
        """
        ...


@runtime_checkable
class SupportsBackup(Protocol):
    """An engine that can copy itself, as it is."""

    def backup(self, path: str, meter: Meter) -> None:
        """Write a copy of one state of the store to a new file."""
        ...


@runtime_checkable
class ExtendsSchema(Protocol):
    """An engine that takes more classes while it is open."""

    def declared(self) -> Schema | None:
        """Return the opened classes, without those that were dropped since; None if they are those of the catalogue."""
        ...

    def usable(self) -> Schema:
        """Return the opened classes, without those that it knows to be dropped or retired."""
        ...

    def extend(self, schema: Schema) -> None:
        """Go on with further classes, which are opened; what runs goes on.

        Raises:
            SchemaMismatch: the store holds something else.
        """
        ...


def usable_schema(engine: Engine) -> Schema:
    """Return the classes of an engine for what is about all of them: those that were dropped since are none."""
    return engine.usable() if isinstance(engine, ExtendsSchema) else engine.schema


@runtime_checkable
class TellsTime(Protocol):
    """An engine that has a clock of its own; that of this machine stands in where it has none."""

    def now(self) -> int:
        """Return the time by the clock of the store, in µs since 1970."""
        ...


@runtime_checkable
class DropsClasses(Protocol):
    """An engine that can let a class go with all that it holds."""

    def drop(self, model: Model, meter: Meter) -> None:
        """Let a class and what is maintained from it leave the store, with their tables.

        Raises:
            InvalidQuery: others need it.
            StoreLocked: the store is frozen.
        """
        ...
