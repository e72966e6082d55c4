"""Transactions that begin again after a lost race."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any, NoReturn, TypeVar

from ..errors import (
    EntityExists,
    EntityNotFound,
    InvalidTransaction,
    PreconditionFailed,
    TableMapperError,
    UniqueViolation,
    safe_repr,
)
from .transaction import Transaction, TransactionBuffer

T = TypeVar("T")
RACES = (PreconditionFailed, EntityExists, EntityNotFound, UniqueViolation)
"""What a write raises if another one came first."""
MAX_CALLS = 100
_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.1  # seconds


class LostRaces:
    """The failed attempts of one call of `run`."""

    def __init__(self) -> None:
        self._failures = 0
        self._last_failure: tuple[object, ...] | None = None

    def delay(self, error: TableMapperError, versions: Mapping[Any, int | None]) -> float:
        """Return how many seconds to wait before the next attempt.

        Args:
            error: what the write raised.
            versions: of what the function read, by its place; None: it was not there.

        Raises:
            TableMapperError: the error, if another attempt would fail as well, or if there were enough.
        """
        self._failures += 1
        index = getattr(error, "index", None)
        failure = (type(error), error.entity, error.key, index, dict(versions))  # type: ignore[attr-defined]  # of RACES
        if failure == self._last_failure and not isinstance(error, PreconditionFailed):
            raise error  # Nothing that the function saw has changed.
        self._last_failure = failure
        if self._failures == MAX_CALLS:
            error.add_note(f"run: the function was tried {MAX_CALLS} times")
            raise error
        if self._failures == 1:
            return 0.0
        return random.uniform(0, min(_FIRST_WAIT * 2**self._failures, _LONGEST_WAIT))


def check_function(function: object) -> None:
    """Refuse what is no function of a transaction.

    Raises:
        InvalidTransaction
    """
    if not callable(function):
        raise InvalidTransaction(f"run: expected a function of a transaction, got {safe_repr(function)}")


def run_transaction(
    new_buffer: Callable[[], TransactionBuffer], function: Callable[[Transaction], T], wait: Callable[[float], Any]
) -> T:
    """Return what a function of a transaction returns, once what it collects is written."""
    check_function(function)
    races = LostRaces()
    while True:
        buffer = new_buffer()
        with buffer.collecting():
            result = function(Transaction(buffer))
            if isawaitable(result):
                _refuse_awaitable(result)
        try:
            buffer.write(buffer.end())
        except RACES as error:
            wait(races.delay(error, buffer.versions))
        else:
            return result


def _refuse_awaitable(result: Any) -> NoReturn:
    close = getattr(result, "close", None)
    if close is not None:
        close()  # Else Python warns that it was never awaited.
    raise InvalidTransaction("run: the function returned a coroutine; use tm.open_async")
