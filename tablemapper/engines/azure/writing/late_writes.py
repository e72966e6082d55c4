"""Writes of programs that stood still between their last look at a clock and their transaction.

A program that is suspended, or whose machine sleeps, may write by a catalogue that nobody believes any more. What it
inserted then lacks what was built meanwhile, and gets it here. What cannot be made right is told as unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import attrs

from ....entities.etag import Stamp
from ....errors import EntityNotFound, OutcomeUnknown, PreconditionFailed, StoreError, TableMapperError, UniqueViolation
from ...protocol import Operation
from ..catalogue.open_classes import CatalogueRefresher, OpenClasses
from ..catalogue.opening import given_up
from ..catalogue.publication import changed
from ..cross_partition.intent_execution import carry_out_together
from ..cross_partition.marks import label_of, marked, parts_of
from ..cross_partition.outbox import CommittedIntent, Outbox
from ..tables.driver import Effects, ReadClock, delay, read
from ..tables.service import ErrorResponse, GetEntity, NoResponse, RowChange
from .duplicate_notes import bar
from .outcomes import LEFT, afterwards, unknown
from .writes import write

_ATTEMPTS = 8  # to add an entity, each as long as a write
_log = logging.getLogger("tablemapper.azure")


def write_in_time(
    current: CatalogueRefresher,
    operations: Sequence[Operation],
    outbox: Outbox,
    *,
    timeout: float,
    following: list[CommittedIntent] | None = None,
    maintained_limit: int | None = None,
    beside: Sequence[Callable[[], Effects[RowChange]]] = (),
) -> Effects[None]:
    """Apply operations as `write` does, by the catalogue as it is known; what was written by an old one is mended.

    Args:
        current: the classes as the process knows them.
        operations, outbox, timeout, maintained_limit, beside: as for `write`.
        following: gets what is still to be done in other partitions; None: it is done here.

    Raises:
        OutcomeUnknown: nobody knows whether they were written, or whether what was written counts.
    """
    classes, committed = (yield from current.classes()), list[CommittedIntent]()
    mend = _Mending(current, classes, operations, outbox, timeout, committed)
    try:
        committed += yield from write(
            classes, operations, outbox, maintained_limit=maintained_limit, timeout=timeout, beside=beside
        )
    except OutcomeUnknown as error:
        if (yield from mend.is_late()):
            try:
                yield from mend.run()
                if committed:
                    yield from carry_out_together(committed, current.known, timeout, outbox)
            except Exception as second_error:
                raise error from second_error
        raise
    if (yield from mend.is_late()):
        yield from mend.run()
    if following is not None:
        following += committed
    elif committed:
        work = carry_out_together(committed, current.known, timeout, outbox)
        yield from afterwards(f"{operations[0]} is written; {LEFT}", work, None)


@attrs.define(eq=False)
class _Mending:
    """A write that was sent by some classes, and what it gets where these were not those of the catalogue any more."""

    _current: CatalogueRefresher
    _classes: OpenClasses
    """By which it was sent."""
    _operations: Sequence[Operation]
    _outbox: Outbox
    _timeout: float
    _committed: list[CommittedIntent]
    """Gets what is still to be done in other partitions."""
    _doubtful: set[str] = attrs.field(factory=set)
    """The labels of what is to be built anew."""
    _duplicate: UniqueViolation | None = None

    def is_late(self) -> Effects[bool]:
        """Return whether others may have relied on it by now that nobody writes by these classes."""
        clock_now: float = yield ReadClock()
        return clock_now - self._classes.seen > self._outbox.times.settled

    def run(self) -> Effects[None]:
        """Look at the catalogue, and give what was written all that it lacks.

        Raises:
            OutcomeUnknown: that is not possible.
        """
        why = "this program stood still while it wrote, and meanwhile"
        try:
            classes = yield from self._current.look()
            if classes.head.generation == self._classes.head.generation:
                return
            if classes.catalogue.frozen is not None or classes.names != self._classes.names:
                raise self._unknown(f"{why} the store was frozen, or a migration has copied it")
            self._overwritten(classes)
            for operation in self._operations:
                if operation.old is None and operation.verb not in ("delete", "require", "build"):
                    yield from self._add_entity(classes, operation)
            yield from self._built_anew()
            if self._duplicate is not None:
                raise self._duplicate
        except OutcomeUnknown:
            raise
        except (NoResponse, ErrorResponse, TableMapperError) as error:
            raise self._unknown(
                f"{why} indexes or aggregates were added, in which it may be missing: {error}"
            ) from error

    def _unknown(self, why: str) -> OutcomeUnknown:
        return unknown(self._operations[0], why)

    def _add_entity(self, classes: OpenClasses, operation: Operation) -> Effects[None]:
        """Add an entity to what was built meanwhile, as a builder does that comes to it: unless others have done so."""
        model = operation.model
        for attempt in range(_ATTEMPTS):
            entity = yield from read(GetEntity(model.table, *operation.key), self._timeout)
            row = None if entity is None else classes.codec(model).row(entity)
            if row is None or marked(classes.marks.built.get(model, ()), row):
                return
            build = Operation("build", model, *operation.key, new=row[:-1], old=row, etag=row[2])
            try:
                self._committed += yield from write(classes, [build], self._outbox, timeout=self._timeout)
            except UniqueViolation as error:  # (it is added to the rest, and that index is built anew)
                self._duplicate = error
                self._doubtful.add(f"{model.name}.{error.index}")
                yield from bar(self._outbox.catalogue, classes, build, error, self._timeout)
            except (EntityNotFound, PreconditionFailed, StoreError):
                if attempt == _ATTEMPTS - 1:
                    raise
                yield delay(attempt)
            else:
                return

    def _overwritten(self, classes: OpenClasses) -> None:
        """Doubt all of which nobody knows what it has of entities that were overwritten unread.

        By the former classes nothing was maintained from these, so all of it was built since.
        """
        unread = {
            operation.model
            for operation in self._operations
            if not (
                self._classes.needs_row(operation.model)
                or operation.verb in ("insert", "require")
                or isinstance(operation.etag, Stamp)
            )
            if operation.change is None or operation.assigned is not None
        }
        self._doubtful |= {label_of(part) for model in unread for part in parts_of(classes.maintained(model))}

    def _built_anew(self) -> Effects[None]:
        if labels := sorted(self._doubtful):
            _log.warning(
                "%s was written by a program that stood still, while %s was built: call store.build()",
                self._operations[0],
                ", ".join(labels),
            )
            table = self._outbox.catalogue
            yield from changed(table, self._timeout, partial(given_up, labels=labels, while_built=True))
