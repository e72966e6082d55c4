"""The stores of tests: empty, by a clock of the test, and whole at its end."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NoReturn
from unittest.mock import patch

from ..engines import locations
from ..engines.protocol import Engine
from ..entities.entity import Record
from ..errors import ScanRefused, StoreClosed
from ..events import Event
from ..query.mixed import MixedQuery
from ..query.query import Query
from ..schema.model import Schema
from ..store.opening import open as open_store
from ..store.store import Store
from .clock import Clock

EMULATOR = "UseDevelopmentStorage=true"


class _Place:
    """A place whose timestamps come from a clock of the test, if there is one."""

    def __init__(self, path: str | os.PathLike[str], clock: Clock | None) -> None:
        self._path = path
        self._clock = {} if clock is None else {"clock": clock.timestamp, "now": clock.microseconds}

    def open(self, schema: Schema | None, **options: Any) -> Engine:
        place: Any = locations.place_of(self._path)
        engine: Engine = place.open(schema, **self._clock, **options)
        return engine


def empty_store(
    path: str | os.PathLike[str],
    models: Sequence[type[Record]],
    *,
    limits: Literal["azure"] | None = None,
    clock: Clock | None = None,
    events: list[Event] | None = None,
) -> Store:
    """Open a store for a test; a power cut would take its last transactions.

    Raises:
        InvalidModel, ValueError: as `tablemapper.open` does.
    """
    place: Any = _Place(path, clock)
    observe = None if events is None else events.append
    return open_store(place, models=models, durability="relaxed", limits=limits, observe=observe)


@contextmanager
def account_store(
    models: Sequence[type[Record]],
    account: str = EMULATOR,
    *,
    prefix: str | None = None,
    credential: Any = None,
    limits: Literal["azure"] | None = None,
    events: list[Event] | None = None,
) -> Iterator[Store]:
    """Open an empty store in an account for a test; at its end, whatever came of it, its tables are deleted.

    Args:
        models: the classes.
        account: as for `tablemapper.open`; the emulator by default.
        prefix: what the names of its tables begin with; by default a text that no other test has.
        credential: as for `tablemapper.open`.
        limits: as for `tablemapper.open`.
        events: gets a report of each call.

    Raises:
        InvalidModel, NotAStore, StoreError, ValueError: as `tablemapper.open` does.
    """
    place: dict[str, Any] = {"prefix": prefix or f"t{secrets.token_hex(8)}", "credential": credential}
    observe = None if events is None else events.append
    try:
        with open_store(account, models=models, limits=limits, observe=observe, **place) as store:
            yield store
    finally:
        locations.remove(account, **place)


def faults_of(store: Store) -> str:
    """Return the findings of `check()` as text; nothing if there are none, or the test closed the store."""
    try:
        report = store.check()
    except StoreClosed:
        return ""
    return "" if report.ok else str(report)


@contextmanager
def no_scans() -> Iterator[None]:
    """Refuse each query that is allowed to scan, of any store."""

    def allow_scan(query: Any) -> NoReturn:
        raise ScanRefused(f"{query!r}: the test forbids scans: @pytest.mark.tm_store(scans=False)")

    with patch.object(Query, "allow_scan", allow_scan), patch.object(MixedQuery, "allow_scan", allow_scan):
        yield
