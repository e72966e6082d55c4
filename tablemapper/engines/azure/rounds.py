"""Many new entities: transactions of several partitions side by side, and then what follows from all of them together.

Together it is fewer requests: the rows that come into one partition of an index are one transaction, and so are the
changes of one group. Each intent stays until all that follows from its round is done.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ..protocol import Operation
from .catalogue import Classes
from .outer.finishing import carry_out_together
from .outer.outbox import Outbox
from .tables.drive import All, Work
from .writes import Following, TooLarge, write

__all__ = ["insert"]

_TOGETHER = 16  # transactions


@attrs.define(eq=False)
class _Chunk:
    """New entities of one partition, which one transaction may take."""

    operations: Sequence[Operation]
    written: int = 0
    error: BaseException | None = None


def insert(
    classes: Classes, operations: Sequence[Operation], outbox: Outbox, size: int, timeout: float, written: list[int]
) -> Work[None]:
    """Insert entities: each transaction is of one partition, and has as many of them as it takes.

    Args:
        classes: what is maintained.
        operations: of any partitions; they get what was stored.
        outbox: of the process.
        size: how many a transaction is expected to take.
        timeout: as for `write`.
        written: gets numbers of entities that were written.

    Raises:
        EntityExists, UniqueViolation, InvalidTransaction, OutcomeUnknown: of a transaction; others may have been written.
    """
    places: dict[tuple[str, str], list[Operation]] = {}
    for one in operations:
        places.setdefault((one.model.table, one.partition), []).append(one)
    queues = [_chunks(sorted(some, key=lambda one: one.row), size) for some in places.values()]
    while queues:
        # (Those of one partition follow each other: they may change the same groups.)
        some, behind = queues[:_TOGETHER], queues[_TOGETHER:]
        chunks = [queue.pop(0) for queue in some]
        queues = [*behind, *filter(None, some)]
        following: list[Following] = []
        yield All([_inserted(classes, chunk, outbox, timeout, following) for chunk in chunks])
        yield from carry_out_together(following, classes.aggregates, timeout, outbox)
        written += [chunk.written for chunk in chunks]
        for chunk in chunks:
            if chunk.error is not None:
                raise chunk.error


def _chunks(operations: Sequence[Operation], size: int) -> list[_Chunk]:
    return [_Chunk(operations[at : at + size]) for at in range(0, len(operations), size)]


def _inserted(
    classes: Classes, chunk: _Chunk, outbox: Outbox, timeout: float, following: list[Following]
) -> Work[None]:
    """Insert the entities of a chunk, in several transactions if one is too large; keep an error."""
    operations, size = list(chunk.operations), len(chunk.operations)
    while operations:
        some = operations[:size]
        try:
            yield from write(classes, some, outbox, timeout=timeout, following=following)
        except TooLarge as error:
            if size == 1:
                chunk.error = error
                return
            size = (size + 1) // 2
            continue
        except Exception as error:
            chunk.error = error
            return
        chunk.written += len(some)
        operations = operations[len(some) :]
