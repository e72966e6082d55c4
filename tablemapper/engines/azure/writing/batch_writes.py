"""Many entities: transactions of several partitions side by side, and then what follows from all of them together.

Together it is fewer requests: the rows that come into one partition of an index are one transaction, and so are the
changes of one group. Each intent stays until all that follows from its round is done.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ....errors import OutcomeUnknown
from ...protocol import Operation
from ..catalogue.open_classes import CatalogueRefresher
from ..cross_partition.intent_execution import carry_out_together
from ..cross_partition.outbox import CommittedIntent, Outbox
from ..tables.driver import Effects, Parallel
from .late_writes import write_in_time
from .outcomes import LEFT, afterwards
from .writes import TransactionTooLarge

_PARALLEL = 16  # transactions


@attrs.define(eq=False)
class TransactionChunk:
    """Operations in one partition, which one transaction may take."""

    operations: Sequence[Operation]
    written_count: int = 0
    error: BaseException | None = None
    is_followed: bool = True
    """Whether what follows from it was done."""


def insert(
    current: CatalogueRefresher,
    operations: Sequence[Operation],
    outbox: Outbox,
    size: int,
    timeout: float,
    counts: list[int],
) -> Effects[None]:
    """Insert entities: each transaction is of one partition, and has as many of them as it takes.

    Args:
        current: the classes as the process knows them.
        operations: of any partitions; they get what was stored.
        outbox: of the process.
        size: how many a transaction is expected to take.
        timeout: as for `write`.
        counts: gets numbers of entities that were written.

    Raises:
        EntityExists, UniqueViolation, InvalidTransaction, OutcomeUnknown: of a transaction; others may have been written.
    """
    rounds = _rounds(operations, size)
    while rounds:
        chunks = yield from _run_round(current, rounds, outbox, timeout)
        counts += [chunk.written_count for chunk in chunks]
        errors = [chunk.error for chunk in chunks if chunk.error is not None]
        for error in [*[error for error in errors if isinstance(error, OutcomeUnknown)], *errors]:
            raise error  # (of the others it is known that nothing was written)


def in_rounds(
    current: CatalogueRefresher,
    operations: Sequence[Operation],
    outbox: Outbox,
    size: int,
    timeout: float,
) -> Effects[list[TransactionChunk]]:
    """Do operations as `insert` does; return what became of all of them."""
    rounds, chunks = _rounds(operations, size), list[TransactionChunk]()
    while rounds:
        chunks += yield from _run_round(current, rounds, outbox, timeout)
    return chunks


def _rounds(operations: Sequence[Operation], size: int) -> list[list[TransactionChunk]]:
    """Return what is to be done in each partition, one after the other: it may change the same groups."""
    places: dict[tuple[str, str], list[Operation]] = {}
    for operation in operations:
        places.setdefault((operation.model.table, operation.partition), []).append(operation)
    return [
        _chunks(sorted(of_partition, key=lambda operation: operation.row), size) for of_partition in places.values()
    ]


def _chunks(operations: Sequence[Operation], size: int) -> list[TransactionChunk]:
    return [TransactionChunk(operations[at : at + size]) for at in range(0, len(operations), size)]


def _run_round(
    current: CatalogueRefresher, rounds: list[list[TransactionChunk]], outbox: Outbox, timeout: float
) -> Effects[list[TransactionChunk]]:
    """Do the first of what is to be done in some partitions, and return that."""
    queues = rounds[:_PARALLEL]
    chunks = [queue.pop(0) for queue in queues]
    rounds[:] = [*rounds[_PARALLEL:], *filter(None, queues)]
    following: list[CommittedIntent] = []
    yield Parallel([_write_chunk(current, chunk, outbox, timeout, following) for chunk in chunks])
    says = f"{chunks[0].operations[0]} and others are written; {LEFT}"
    if following and not (
        yield from afterwards(says, _follow_up(current, following, timeout, outbox), otherwise=False)
    ):
        for chunk in chunks:
            chunk.is_followed = False
    return chunks


def _follow_up(
    current: CatalogueRefresher, following: list[CommittedIntent], timeout: float, outbox: Outbox
) -> Effects[bool]:
    """Do what follows from the transactions of some chunks."""
    yield from carry_out_together(following, (yield from current.classes()), timeout, outbox)
    return True


def _write_chunk(
    current: CatalogueRefresher,
    chunk: TransactionChunk,
    outbox: Outbox,
    timeout: float,
    following: list[CommittedIntent],
) -> Effects[None]:
    """Do the operations of a chunk, in several transactions if one is too large; keep an error."""
    operations, size = list(chunk.operations), len(chunk.operations)
    while operations:
        batch = operations[:size]
        try:
            yield from write_in_time(current, batch, outbox, timeout=timeout, following=following)
        except TransactionTooLarge as error:
            if size == 1:
                chunk.error = error
                return
            size = (size + 1) // 2
            continue
        except Exception as error:
            chunk.error = error
            return
        chunk.written_count += len(batch)
        operations = operations[len(batch) :]
