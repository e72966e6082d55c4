"""A place whose store is kept by the engine for Azure, over a service of dicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.migrations.migrating import AzureMigrations
from tablemapper.engines.azure.tables.background import Background
from tablemapper.engines.azure.tables.reserved_names import CATALOGUE
from tablemapper.engines.ended import microseconds
from tablemapper.schema.model import Schema

from .memory import Memory

_FASTER = 1000
"""How much more time passes at the service while a client waits: what waits until others know of a change is quick."""
_ACCOUNTS: dict[str, Memory] = {}


class Idle(Background):
    """A thread that there is not: what is left behind writes is done when a test says so."""

    def wake(self) -> None: ...


@attrs.frozen
class AzurePlace:
    """A place by the name of a file: opened again, it is the same store. ``":memory:"`` is another one each time."""

    name: str = ":memory:"
    memory: Memory | None = None
    still: bool = False
    """Whether nobody waits: only the time of the service goes on."""
    catalogue: str = CATALOGUE

    def open(
        self,
        schema: Schema,
        *,
        clock: Callable[[], int] | None = None,
        now: Callable[[], int] | None = None,
        read_only: bool = False,
        adopt: bool | Sequence[str] = False,
        **_: Any,
    ) -> AzureEngine:
        return AzureEngine.open(
            schema=schema, read_only=read_only, adopt=adopt, now=now or clock or microseconds, **self._service(clock)
        )

    def migrations(self, **_: Any) -> AzureMigrations:
        return AzureMigrations.open(**self._service())

    def _service(self, clock: Callable[[], int] | None = None) -> dict[str, Any]:
        memory = self.memory
        if memory is None:
            new = Memory() if clock is None else Memory(clock=clock)
            memory = new if self.name == ":memory:" else _ACCOUNTS.setdefault(self.name, new)

        def sleep(seconds: float) -> None:
            if clock is None and not self.still:  # (else time stands still but for this)
                time.sleep(seconds / 20)
            memory.ahead += _FASTER * seconds

        return {"service": memory, "name": "in memory", "sleep": sleep, "catalogue": self.catalogue}
