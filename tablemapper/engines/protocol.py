"""The protocol of engines: what a store needs of one.

An engine keeps rows (`tablemapper.schema.rows`) and applies operations. Everything about values, keys, limits and
maintenance is decided before or beside it, once for all engines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import attrs

from ..errors import NotReady
from ..keys.composite_times import shown_key
from ..planning.budget import BudgetMeter
from ..planning.capabilities import Capabilities
from ..planning.conditions import AnyPredicate
from ..planning.plan import Plan
from ..planning.projection import RowLayout
from ..planning.query_parts import KeyPosition
from ..planning.ranges import BoundPlan
from ..progress import Meter
from ..schema.aggregate_model import Delta
from ..schema.maintenance import AggregateMaintenance
from ..schema.model import Model, Schema
from ..schema.rows import Row
from .check import CheckReport, RepairReport
from .status import Status

T = TypeVar("T")
Verb: TypeAlias = Literal["insert", "replace", "merge", "upsert", "delete", "require", "build"]
"""*build* changes nothing but what is maintained from the entity and lacks it still; no caller of a store does it."""


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
    moved_from: Operation | None = None
    """The deletion of the entity under its former key: what a program does not know of the entity has to move, too."""
    assigned: Callable[[], Mapping[str, Any] | None] | None = None
    """Of a merge: returns what is stored in each field, if it sets whole fields to values and does nothing else."""
    has_ended: Callable[[Row], bool] | None = None
    """Whether a stored row has ended, and so counts as missing; None: nothing of the class ends."""
    looks: bool = False
    """Of an insert: whether to look for what has ended before, because an insert found its key taken."""
    fresh: bool = False
    """Whether it replaces what has ended, of which nothing goes over; the engine says so."""

    @property
    def key(self) -> tuple[str, str]:
        return self.partition, self.row

    def __str__(self) -> str:
        return f"{self.verb} {shown_key(self.model.name, self.model.declaration.templates, self.key)}"


Part: TypeAlias = tuple[list[Row], int]
"""Rows, and a bound of the characters in each, keys apart: only rows that may be large are looked at one by one."""


RowsBefore: TypeAlias = Sequence[tuple[Row | None, Row | None, int | None]]
"""Of each operation the old row, the new row and the ETag."""


def rows_before(operations: Sequence[Operation]) -> RowsBefore:
    """Return the rows of operations, for `restore_rows`."""
    return [(operation.old, operation.new, operation.etag) for operation in operations]


def restore_rows(operations: Sequence[Operation], rows: RowsBefore) -> None:
    """Give operations their rows from before a write that was undone: it gives them the stored ones."""
    for operation, (old, new, etag) in zip(operations, rows, strict=True):
        operation.old, operation.new, operation.etag = old, new, etag


@attrs.define(eq=False)
class Batch:
    """New entities of one class, and their rows; of columns, what makes rows."""

    model: Model
    entities: list[Any] = attrs.field(factory=list)
    rows: list[Row] = attrs.field(factory=list)
    """As long as the entities, if any; without timestamps until the engine replaces them by what was stored."""
    parts: Callable[[], Iterator[Part]] | None = None
    """Yields the rows of columns, some at a time; each call begins anew. So they are written while they are in the
    processor's cache, and none is kept for Python's garbage collection to look through."""
    made: int = 0
    """How many rows the last call made."""
    has_ended: Callable[[Row], bool] | None = None
    """As `Operation.has_ended`."""

    @property
    def count(self) -> int:
        """The number of entities, once they are written."""
        return len(self.rows) if self.parts is None else self.made

    def operations(self) -> list[Operation]:
        """Return the inserts of its entities, one by one."""
        rows = self.rows if self.parts is None else [row for part, _ in self.parts() for row in part]
        return [Operation("insert", self.model, row[0], row[1], row, has_ended=self.has_ended) for row in rows]

    def take(self, inserts: Iterable[Operation]) -> None:
        """Take the rows that were stored, of its inserts."""
        if self.parts is None:
            self.rows[:] = [insert.new for insert in inserts if insert.new is not None]


@attrs.frozen
class Note:
    """A change of what is noted under a name in a store, beside its entities: JSON, or None for nothing."""

    name: str
    old: str | None
    new: str | None


class NoteConflict(Exception):
    """The note of a store is not what a `Note` says that it was."""


_STATES = {
    "violated": "values are held twice in it",
    "ruled": "it is maintained by other rules of a time zone than this system has",
    "beside": "it must be built again, and nothing is built for an older version",
}


@attrs.frozen
class PendingBuild:
    """An index or an aggregate that cannot be read yet, and why."""

    where: str
    """Its label: ``Product.by_name``, ``Daily``."""
    state: str
    done: int
    """Entities that are in it, of ``total``."""
    total: int
    """0 where nobody counts them."""

    def __str__(self) -> str:
        if self.state == "building":
            progress = (
                f"{100 * self.done // max(self.total, self.done)} %" if self.total else f"{self.done:,} entities so far"
            )
            return f"it is being built ({progress})"
        return _STATES.get(self.state, "it must be built again")

    def error(self) -> NotReady:
        """Return the error of a question that needs it."""
        remedy = {
            "building": "call store.build(), or wait until the process that builds it is done",
            "violated": "change the entities so that they differ; store.build() lists them",
            "ruled": "update the time zones of this system, or call store.repair(), which builds it by the rules of here",
            "beside": "deploy the version that has it as it is now",
        }.get(self.state, "call store.build()")
        return NotReady(f"{self.where}: {self}; {remedy}", where=self.where, done=self.done, total=self.total)


@attrs.frozen
class DuplicateValue:
    """A duplicate under a new unique index."""

    index: str
    """``Product.by_email``"""
    value: tuple[str, str]
    """The partition key and the row key of the index's rows."""
    holders: tuple[tuple[str, str], ...]
    """The keys of the entities."""

    def __str__(self) -> str:
        value = self.value if self.value[1] else self.value[0]
        return f"{self.index}: {value!r} is held by {', '.join(map(str, self.holders))}"


@attrs.frozen
class StepTiming:
    """The duration of a job's transaction."""

    seconds: float = 0.0
    """From the begin of the transaction to the end of its commit, without the time that it waited for others."""
    delay: float = 0.0
    """By how many seconds it delays others, with the copying of the log; 0 if none wrote within the last second."""


@attrs.frozen
class BuildStep:
    """The result of one transaction of a build."""

    owner: str
    """The class whose entities were read."""
    entities: int
    done: int
    """Entities that the job has added so far, of ``total``."""
    total: int
    completed: tuple[str, ...] = ()
    """What is complete with it, by label."""
    pace: StepTiming = attrs.field(factory=StepTiming)
    clearing: bool = False
    """Whether it deleted the rows of something that was dropped."""


Position: TypeAlias = tuple[Any, ...]
"""Where a row stands in the order of its query."""


@attrs.frozen
class DatabasePlan:
    """The plan of a query in the words of the database itself."""

    lines: Sequence[str] = ()
    requests: int | None = None
    """How many requests are sent at least; None where none are."""
    eventual: bool = attrs.field(default=False, kw_only=True)
    """Whether what is found may be older than the entities."""


class Reads(Protocol):
    """The reads of an engine, for the rows of plans."""

    def rows(
        self,
        bound: BoundPlan,
        layout: RowLayout,
        *,
        after: Position | None = None,
        limit: int | None = None,
        spending: BudgetMeter | None = None,
        within: Any = None,
    ) -> Iterator[list[Row]]:
        """Yield rows in chunks, of one state of the store, in the order of the plan, those after one position.

        With ``spending``, rows are not filtered by the engine.
        """
        ...

    def find(self, bound: BoundPlan, layout: RowLayout) -> Row | None:
        """Return the first row."""
        ...

    def divide(self, bound: BoundPlan, parts: int) -> list[KeyPosition]:
        """Return places, in order, that divide the rows between the bounds into parts of about one size, or fewer."""
        ...

    def explain(self, bound: BoundPlan, layout: RowLayout, limit: int | None = None) -> DatabasePlan:
        """Return what the database itself says that it will do."""
        ...

    def ordered(self, key: Sequence[str]) -> Any:
        """Return what sorts as the engine sorts keys: partition key and row key."""
        ...

    def residual(self, plan: Plan) -> tuple[AnyPredicate, ...]:
        """Return the predicates that the engine leaves to be evaluated in Python."""
        ...

    def in_one_state(self, read: Callable[[Any], Iterator[T]]) -> Iterator[T]:
        """Yield what a function reads of one state of the store, as it is asked for."""
        ...


class Engine(Protocol):
    """Keeps the rows of a schema, in one place."""

    capabilities: Capabilities
    schema: Schema
    store_id: str

    @property
    def unready(self) -> Mapping[str, str]:
        """The indexes and aggregates that cannot be read yet: their states, by label; another object after a change."""
        ...

    @property
    def reads(self) -> Reads:
        """The reader of the rows of plans."""
        ...

    def get(self, model: Model, partition: str, row: str) -> Row | None:
        """Return one row, or None."""
        ...

    def get_many(self, wanted: Sequence[tuple[Model, str, str]], *, within: Any = None) -> list[Row | None]:
        """Return rows, all of one state of the store: of one that `Reads.in_one_state` gave, or of the latest."""
        ...

    def partition(self, table: str, partition: str) -> Iterator[list[tuple[Model | None, Row]]]:
        """Yield every row of a partition with its model, in row order, in chunks."""
        ...

    def partitions(self, model: Model) -> Iterator[str]:
        """Yield the partition keys that entities of a class have, in order."""
        ...

    def note(self, name: str) -> str | None:
        """Return what is noted under a name."""
        ...

    def together(self, operations: Sequence[Operation]) -> int:
        """Return how many of the first operations, which is at least one, a transaction can hold."""
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

    def catch_up(self) -> None:
        """See what other processes have built or declared since."""
        ...

    def required_labels(self, model: Model) -> Sequence[str]:
        """Return the labels of what has to be ready for a class to be read, as they stand in what is unready."""
        ...

    def label(self, model: Model, index: str | None = None) -> str:
        """Return the label of a class, or of an index that it declares, in what is unready."""
        ...

    def missing_fields(self, model: Model, *, eventual: bool = False) -> Mapping[str, Collection[str] | None]:
        """Return the fields that indexes of a class are declared to hold, and do not, by the name of the index.

        None stands for an index whose rows may be older than their entities, and so answer nothing alone, unless that may
        be ``eventual``.
        """
        ...

    def describe(self, label: str) -> PendingBuild:
        """Return how far something that is not ready has come."""
        ...

    def build(self, most: int, labels: Collection[str] | None) -> BuildStep | None:
        """Build the next entities of a job, at most ``most``, in one transaction; None if nothing is to be built.

        Args:
            labels: what is wanted; None for everything.
        """
        ...

    def violations(self, most: int) -> tuple[DuplicateValue, ...]:
        """Return values that are held twice in indexes that are to be unique."""
        ...

    def status(self) -> Status:
        """Return what is maintained, and how far that is."""
        ...

    def check(self, meter: Meter) -> CheckReport:
        """Compare everything that is maintained with what the entities say that it should be."""
        ...

    @property
    def eventual(self) -> Collection[str]:
        """The aggregates that may be older than their entities, by label: they answer no totals of these."""
        ...

    def repair(self, meter: Meter) -> RepairReport:
        """Make everything that is maintained what the entities say that it should be, beside readers and writers."""
        ...

    def with_stored_fields(self, model: Model) -> Model:
        """Return a class with all that is stored of it, which may be more than its code declares."""
        ...

    def freeze(self, meter: Meter) -> None:
        """Let no program change entities any more; once it returns, none does. What is maintained is still built and repaired."""
        ...

    def unfreeze(self) -> None:
        """Let programs change entities again."""
        ...

    def widen(self, aggregate: AggregateMaintenance, groups: Mapping[tuple[str, str], Delta]) -> None:
        """Let ``_ever`` measures be no less extreme than deltas say, which change nothing else, by the key of the group."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...
