"""Cancellation of a long call that runs in a thread: it ends between two steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ..progress import Progress, ProgressOption

T = TypeVar("T")


class Cancellation:
    """Ends a long call between two of its steps."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """End the call soon."""
        self._is_set = True

    def check(self) -> None:
        """Raise if the call is to end."""
        if self._is_set:
            raise _Cancelled

    def items(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items until the call is to end."""
        for item in items:
            self.check()
            yield item

    def progress(self, progress: ProgressOption) -> ProgressOption:
        """Return a ``progress=`` that ends the call too. (A bar is drawn to its end.)"""
        if progress is True:
            return True

        def tell(state: Progress) -> None:
            self.check()
            if callable(progress):
                progress(state)

        return tell


class _Cancelled(Exception):
    """The call was cancelled. Only its thread sees this."""
