"""Events: a report of each call of a store, given to a function and written to a log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import attrs

from .errors import check_seconds, safe_repr

T = TypeVar("T")
_log = logging.getLogger("tablemapper.operations")


@attrs.frozen
class Event:
    """A finished call of a store. It holds names and numbers only, no values of entities."""

    verb: str
    """``get``, ``insert``, ``transaction`` …; of a query ``query`` for a loop, ``query.first``, ``query.count`` …"""
    model: str | None
    """The entity class, or several, with commas; None where the call is about the whole store."""
    path: str | None
    """What was followed: ``Product.key``, ``Product.by_name``, an aggregate; ``scan``: a whole table; None: nothing."""
    returned: int
    """Entities, tuples or groups that the call gave; of a total, entities that were counted or added up for it."""
    written: int
    """Entities that were written or deleted, also before an error."""
    seconds: float
    """Spent in the store: without the body of a loop, and without the block of a transaction."""
    outcome: str
    """``ok``, or the name of the error's class."""
    shape: str | None = None
    """The query shape, ``?`` for values: ``Product where maker == ? order by price``. None but for queries."""
    examined: int | None = None
    """Rows between the bounds that were read, whether they match or not. Where the database filters or sorts them, they
    are counted at the 1st, 2nd, 4th, 8th … query of a shape only, which filter more slowly. None: not counted."""
    _shape_data: Mapping[str, Any] | None = attrs.field(default=None, repr=False)

    def __str__(self) -> str:
        about = " ".join(filter(None, (self.verb, self.model, self.path and f"by {self.path}")))
        return f"{about}: read {self.returned}, written {self.written}, {self.seconds:.6f} s, {self.outcome}"


def shape_data(event: Event) -> Mapping[str, Any] | None:
    """Return the query shape of an event as data, for a `Workload`; None but for queries."""
    return event._shape_data


class Observer:
    """Gives events to a function, and to the log.

    Args:
        observe: is called with each event, in the thread of the call. What it raises is logged, since the call is over.
        slow: seconds; a call that took longer is logged as a warning.
        clock: of seconds.
    """

    def __init__(
        self,
        observe: Callable[[Event], object] | None = None,
        slow: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.clock = clock
        self._observe = observe
        self._slow = slow

    def call(self, verb: str, model: str | None = None, path: str | None = None) -> Call:
        """Return a call that begins."""
        return Call(self, verb, model, path)

    def report(self, event: Event) -> None:
        """Give out an event."""
        slow = self._slow is not None and event.seconds > self._slow
        _log.log(logging.WARNING if slow else logging.DEBUG, "%s", event)
        if self._observe is not None:
            try:
                self._observe(event)
            except Exception:
                _log.exception("the function given as observe= raised an error for %s", event)


@attrs.define(eq=False)
class Call:
    """A call that is going on. Each ``with`` block adds to its seconds; `end` makes an event of it."""

    observer: Observer
    verb: str
    model: str | None = None
    path: str | None = None
    returned: int = 0
    written: int = 0
    seconds: float = 0.0
    outcome: str = "ok"
    shape: str | None = None
    shape_data: Mapping[str, Any] | None = None
    examined: Callable[[], int] | None = None
    """Returns the rows that were examined, once the call has ended."""
    _began: float = 0.0

    def __enter__(self) -> None:
        self._began = self.observer.clock()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.seconds += self.observer.clock() - self._began
        if kind is not None and kind is not StopIteration:
            self.outcome = kind.__name__
            self.written = getattr(error, "written", None) or 0

    def end(self) -> None:
        """Report it."""
        examined = None if self.examined is None else self.examined()
        about = self.verb, self.model, self.path, self.returned, self.written, self.seconds, self.outcome
        self.observer.report(Event(*about, self.shape, examined, self.shape_data))

    def run(self, work: Callable[[Call], T]) -> T:
        """Do the whole of it: a function that gets the call, to note what it read and wrote."""
        try:
            with self:
                return work(self)
        finally:
            self.end()

    def iterate(self, start: Callable[[], Iterator[T]]) -> Iterator[T]:
        """Begin an iteration, and return it; the call ends with it."""
        try:
            with self:
                items = start()
        except BaseException:
            self.end()
            raise
        return self._rest(items)

    def _rest(self, items: Iterator[T]) -> Iterator[T]:
        try:
            while True:
                try:
                    with self:
                        item = next(items)
                except StopIteration:
                    return
                self.returned += 1
                yield item
        finally:
            self.end()


def observer(observe: Callable[[Event], object] | None, slow: float | None) -> Observer | None:
    """Return the observer of the calls of a store; None if nobody listens.

    Raises:
        TypeError, ValueError: it cannot be called, or is no number of seconds.
    """
    function: object = observe
    if function is not None and not callable(function):
        raise TypeError(f"observe={safe_repr(observe)}: expected a function that takes a tm.Event")
    if slow is not None:
        check_seconds("slow", slow)
    if observe is None and slow is None and not _log.isEnabledFor(logging.DEBUG):
        return None
    return Observer(observe, slow)
