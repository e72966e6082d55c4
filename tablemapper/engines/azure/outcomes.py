"""What a refusal means that no reading explains, and what is said where nobody knows whether something was written."""

from __future__ import annotations

from typing import TypeVar

from ...errors import CorruptStore, InvalidEntity, OutcomeUnknown, StoreError
from ..protocol import Operation
from .tables.driver import Effects
from .tables.service import ErrorResponse

T = TypeVar("T")


def unknown(what: Operation, why: str) -> OutcomeUnknown:
    """Return the error of an operation of which nobody knows whether it was done."""
    message = f"{what}: {why}; it may have been written, or not: read it before you write it again"
    return OutcomeUnknown(message, entity=what.model.name, key=what.key)


def in_doubt(what: Operation, work: Effects[T]) -> Effects[T]:
    """Return what a work finds out of a transaction that may have been executed.

    Raises:
        OutcomeUnknown: it finds nothing out, as no answer comes.
    """
    try:
        return (yield from work)
    except OutcomeUnknown:
        raise
    except StoreError as error:
        raise unknown(what, str(error)) from None


def judge(refused: ErrorResponse, what: Operation) -> None:
    """Raise for a refusal that no reading explains."""
    if refused.code == "TableNotFound":
        raise CorruptStore(f"{what}: its table is not there any more")
    if refused.status in (401, 403):
        raise StoreError(f"{what}: the account refuses the key ({refused.code})")
    if refused.status not in (404, 409, 412):
        raise InvalidEntity(str(what), [f"the service refuses it: {refused}"])
