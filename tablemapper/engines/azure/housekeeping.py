"""Housekeeping of a process behind its writes: it deletes their intents, ends what it left itself, and takes names away."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .catalogue.open_classes import CatalogueRefresher
from .cross_partition.intent_execution import delete_finished
from .cross_partition.outbox import Deadline, DeadlineExceeded, Outbox
from .recovery import OutboxRecovery
from .tables.background import Background
from .tables.driver import PARALLEL, Effects, clock, in_batches, side_by_side
from .tables.service import MAX_CHANGES, PARTITION, ErrorResponse, RowChange

_MOST = 1000  # intents that are to be deleted; with more of them, a write deletes them before it returns
_CLOSE_TIMEOUT = 5.0  # seconds for which a store that is closed waits for answers
_RETRY_AFTER = 60.0  # seconds after which what was not possible is tried again
_log = logging.getLogger("tablemapper.azure")


class Housekeeper:
    """Does what is left behind the writes of an engine.

    Args:
        run: runs works.
        current: the classes as the process knows them.
        outbox: of the process.
        timeout: seconds after which to give up, if no answer comes.
        background: makes what does it soon, as `Background`; None: intents are deleted before a write returns.
    """

    def __init__(
        self,
        run: Callable[[Effects[Any]], Any],
        current: CatalogueRefresher,
        outbox: Outbox,
        timeout: float,
        *,
        background: type[Background] | None,
    ) -> None:
        self._run = run
        self._current = current
        self._outbox = outbox
        self._timeout = timeout
        self._thread = None if background is None else background(self.tidy)

    @contextmanager
    def behind(self) -> Iterator[None]:
        """Return a context manager behind which something is done soon about what is left: after an error, too."""
        try:
            yield
        except Exception:
            self._wrote()
            raise
        self._wrote()

    def _wrote(self) -> None:
        if not self._outbox.places.has_news:
            return
        self._outbox.places.has_news = False
        if self._thread is None or self._outbox.places.finished > _MOST:
            self.flush()
        if self._thread is not None:
            self._thread.wake()

    def flush(self) -> None:
        """Delete the intents that are carried out now."""
        if self._outbox.places.finished:
            self._attempt(flush(self._outbox, self._timeout))

    def tidy(self) -> float | None:
        """Do what is due; return in how many seconds there is more to be done, None if there is nothing."""
        seconds_left: float | None = self._attempt(tidy(self._current, self._outbox, self._timeout), _RETRY_AFTER)
        return seconds_left

    def close(self) -> None:
        """Leave nothing behind, if answers come soon."""
        if self._thread is not None:
            self._thread.stop()
        if len(self._outbox.places):
            self._attempt(close(self._outbox, min(self._timeout, _CLOSE_TIMEOUT)))

    def _attempt(self, work: Effects[Any], otherwise: Any = None) -> Any:
        try:
            return self._run(work)
        except Exception as error:
            _log.warning("what is left behind writes stays, for sweep(): %s: %s", type(error).__name__, error)
            return otherwise


def flush(outbox: Outbox, timeout: float) -> Effects[None]:
    """Delete the intents that are carried out."""
    yield from delete_finished(outbox, Deadline((yield from clock()) + timeout))


def tidy(current: CatalogueRefresher, outbox: Outbox, timeout: float) -> Effects[float | None]:
    """Do what is due; return in how many seconds there is more to be done, None if there is nothing.

    Args:
        current: the classes as the process knows them.
        outbox: of the process.
        timeout: seconds after which to give up, if no answer comes.
    """
    began = yield from clock()
    patience, places = Deadline(began + timeout), outbox.places
    yield from delete_finished(outbox, patience)
    recovery = OutboxRecovery(current, outbox, timeout)
    for at in range(0, len(late := places.to_look_at(began)), PARALLEL):
        batch = late[at : at + PARALLEL]
        counts = yield from side_by_side([recovery.partition(*place) for place in batch])
        for place, (_, intents_left) in zip(batch, counts, strict=True):
            places.looked_at(place, (yield from clock()), is_clean=not intents_left)
    if places.may_be_shared(began):
        names = yield from recovery.names()
        shared = dict.fromkeys([
            (entity["t"], entity["p"]) for entity, _ in names if entity[PARTITION] != places.owner and (entity["t"], entity["p"]) in places
        ])  # fmt: skip
        yield from in_batches([recovery.partition(*place) for place in shared])
    yield from withdraw(outbox, patience, list(places.withdrawn(began)))
    return places.due((yield from clock()))


def close(outbox: Outbox, timeout: float) -> Effects[None]:
    """Delete the intents that are carried out, and all names of partitions with nothing left."""
    clock_now = yield from clock()
    patience = Deadline(clock_now + timeout)
    yield from delete_finished(outbox, patience)
    yield from withdraw(outbox, patience, list(outbox.places.withdrawn(clock_now, everything=True)))


def withdraw(outbox: Outbox, patience: Deadline, names: Sequence[tuple[str, str]]) -> Effects[None]:
    """Delete names, each if it has the ETag that it had; one that stays is for who sweeps."""
    for at in range(0, len(names), MAX_CHANGES):
        deletes = [RowChange("delete", row, {}, etag) for row, etag in names[at : at + MAX_CHANGES]]
        try:
            yield from _deleted(outbox, patience, deletes)
        except DeadlineExceeded:
            return


def _deleted(outbox: Outbox, patience: Deadline, deletes: Sequence[RowChange]) -> Effects[None]:
    try:
        if (yield from patience.send(outbox.catalogue, outbox.places.owner, *deletes)):
            return
    except ErrorResponse as refusal:
        if refusal.status != 412:
            raise
    for change in deletes if deletes[1:] else ():  # (one is not there, or was written since)
        yield from _deleted(outbox, patience, [change])
