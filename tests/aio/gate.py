"""A gate that holds up a thread until a task opens it."""

from __future__ import annotations

import asyncio
import threading


class Gate:
    """Holds up a thread until a task lets it go on: no clock decides which comes first."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._open = threading.Event()

    def pass_through(self, *_: object) -> None:
        self._reached.set()
        assert self._open.wait(60), "the event loop stood still"

    async def reached(self) -> None:
        while not self._reached.is_set():
            await asyncio.sleep(0.001)

    def open(self) -> None:
        self._open.set()
