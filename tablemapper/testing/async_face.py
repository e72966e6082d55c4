"""The store of a test for asyncio, in whichever event loop runs the test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..aio.store import AsyncStore
from ..aio.workers import Workers
from ..store.instrumentation import ObservedStore
from ..store.store import Store

_THREADS, _CURSORS, _TIMEOUT = 32, 32, 5.0


class _LoopWorkers:
    """The `Workers` of the event loop that is running: a fixture is made before the loop of its test may be."""

    quick_reads = True
    closed = False

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._workers: Workers | None = None

    def __getattr__(self, name: str) -> Any:
        loop = asyncio.get_running_loop()
        if self._workers is None or self._loop is not loop:
            self.close()
            self._loop, self._workers = loop, Workers(threads=_THREADS, cursors=_CURSORS, timeout=_TIMEOUT)
            self._workers.quick_reads = self.quick_reads
        return getattr(self._workers, name)

    def close(self) -> None:
        """End the threads."""
        if self._workers is not None:
            self._workers.close()


@contextmanager
def async_face(store: Store) -> Iterator[AsyncStore]:
    """Let tasks use a store, which stays open afterwards."""
    workers: Any = _LoopWorkers()
    observer = store._observer if isinstance(store, ObservedStore) else None
    try:
        yield AsyncStore(store._engine, workers, observer, limits=store._limits)
    finally:
        workers.close()
