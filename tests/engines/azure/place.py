"""A place whose store is kept by the engine for Azure, over a service of dicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.migrations.migrating import AzureMigrations
from tablemapper.engines.azure.tables.accounts import account_of
from tablemapper.engines.azure.tables.background import Background
from tablemapper.engines.azure.tables.driver import CLOCK
from tablemapper.engines.azure.tables.elapsed_clock import http_time
from tablemapper.engines.azure.tables.reserved_names import CATALOGUE
from tablemapper.engines.azure.tables.service import EntityPage, GroupTransaction, Request
from tablemapper.engines.azure.tables.wire import Wire
from tablemapper.engines.ended import microseconds
from tablemapper.entities.etag import Stamp
from tablemapper.schema.model import Schema

from .memory import Memory, date_of, etag_of

_FASTER = 1000
"""How much more time passes at the service while a client waits: what waits until others know of a change is quick."""
_ACCOUNTS: dict[str, Memory] = {}


class Idle(Background):
    """A thread that there is not: what is left behind writes is done when a test says so."""

    def wake(self) -> None: ...


class AheadWire(Wire):
    """The emulator, whose time goes on as soon as a client waits: in `ahead` seconds, beyond those of its clock."""

    def __init__(self, connection: str) -> None:
        super().__init__(account_of(connection))
        self.ahead = 0.0

    def send(self, request: Request, *wait: float) -> Any:
        answer = super().send(request, *wait)
        match request, answer:
            case GroupTransaction(partition=partition), [str() as etag] if partition == CLOCK:
                return [etag_of(Stamp(etag) + int(1e6 * self.ahead))]
            case _, EntityPage(date=date):
                return attrs.evolve(answer, date=date_of(http_time(date) + self.ahead))
        return answer

    def close(self) -> None:
        """Leave it open for the next store of the test."""


@attrs.frozen
class AzurePlace:
    """A place by the name of a file: opened again, it is the same store. ``":memory:"`` is another one each time."""

    name: str = ":memory:"
    memory: Memory | AheadWire | None = None
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


class TimedPlace(AzurePlace):
    """A place whose programs have the time of the service: nobody waits for anything."""

    def _service(self, clock: Callable[[], int] | None = None) -> dict[str, Any]:
        memory = self.memory
        assert memory is not None

        def sleep(seconds: float) -> None:
            memory.ahead += seconds

        return {**super()._service(clock), "sleep": sleep, "monotonic": lambda: time.monotonic() + memory.ahead}
