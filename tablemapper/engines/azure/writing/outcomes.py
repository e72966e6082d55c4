"""Outcomes of a write, one place for each rule: no answer, a refusal, and what fails after a commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ....errors import CorruptStore, InvalidEntity, OutcomeUnknown, StoreError
from ...protocol import Operation
from ..cross_partition.intent_execution import UnknownAggregate
from ..cross_partition.outbox import Deadline, DeadlineExceeded
from ..tables.driver import EXPECTED, Effects, proven
from ..tables.service import ErrorResponse, GroupTransaction, NoResponse

LEFT = "what follows from it in other partitions is left to sweep()"
"""What the log says where not all was done after a commit."""
T = TypeVar("T")
_EXPECTED = (*EXPECTED, DeadlineExceeded, UnknownAggregate)
_log = logging.getLogger("tablemapper.azure")


def unknown(operation: Operation, why: str) -> OutcomeUnknown:
    """Return the error of an operation of which nobody knows whether it was done."""
    message = f"{operation}: {why}; it may have been written, or not: read it before you write it again"
    return OutcomeUnknown(message, entity=operation.model.name, key=operation.key)


def outcome(
    transaction: GroupTransaction,
    operation: Operation,
    patience: Deadline,
    was_done: Callable[[ErrorResponse], Effects[bool]],
) -> Effects[Sequence[str | None] | None]:
    """Send a transaction until it is known what came of it.

    After a request without an answer only a proof counts: anything else that comes leaves the outcome unknown.

    Args:
        transaction: is sent again while no answer comes.
        operation: the operation, for errors.
        patience: up to when it is sent.
        was_done: finds out, after a refusal, whether a send before it was executed, of which no answer came.

    Returns:
        The ETags; none if it was executed without an answer; None if it was refused, and nothing was written.

    Raises:
        OutcomeUnknown: nobody knows whether it was executed.
        CorruptStore, StoreError, InvalidEntity: nothing was written, for a reason that no reading explains.
    """
    attempt = 0
    while True:
        try:
            etags = yield from patience.once(transaction)
        except ErrorResponse as refusal:
            if attempt and (yield from proven(was_done(refusal), partial(unknown, operation))):
                return []
            judge(refusal, operation)
            return None
        except NoResponse as no_response:
            yield from proven(patience.again(attempt, no_response), partial(unknown, operation), str(no_response))
            attempt += 1
        except Exception as error:
            raise unknown(operation, f"{type(error).__name__}: {error}") from error
        else:
            return etags


def afterwards(says: str, work: Effects[T], otherwise: T) -> Effects[T]:
    """Do what follows once it is known what was written: whatever fails is logged, and left to who sweeps.

    Args:
        says: what was written, and what is left, for the log.
        work: is done.
        otherwise: is returned if it fails.
    """
    try:
        return (yield from work)
    except Exception as error:
        _log.warning("%s: %s", says, error, exc_info=not isinstance(error, _EXPECTED))
        return otherwise


def judge(refusal: ErrorResponse, operation: Operation) -> None:
    """Raise for a refusal that no reading explains."""
    if refusal.code == "TableNotFound":
        raise CorruptStore(f"{operation}: {refusal.gone}") from refusal
    if refusal.denial:
        raise StoreError(f"{operation}: {refusal.denial}")
    if refusal.status not in (404, 409, 412):
        raise InvalidEntity(str(operation), [f"the service refuses it: {refusal}"])
