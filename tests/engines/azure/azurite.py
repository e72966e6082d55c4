"""The emulator of Microsoft, once for all tests of a run: in memory, with an account for each test."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tablemapper.engines import locations
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables.background import Background

VERSION = "3.37.0"
FOLDER = Path(os.environ.get("AZURITE_FOLDER", Path.home() / ".cache" / "tablemapper" / "azurite"))
INSTALL = f"npm install --prefix {FOLDER} azurite@{VERSION}"
KEY = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U="
_ACCOUNTS = 1000
_PLACE_OF = locations.place_of  # (before a run has another engine instead)
_RUNNING: list[Azurite] = []
_CONNECTIONS: dict[str, str] = {}


class AzuritePlace:
    """A place in an account of its own: opened again, it is the same store. ``":memory:"`` is another one each time."""

    def __init__(self, name: str) -> None:
        if name == ":memory:" or name not in _CONNECTIONS:
            _CONNECTIONS[name] = _connection()
        self._place = _PLACE_OF(_CONNECTIONS[name])

    def open(
        self, schema: Any, *, read_only: bool = False, now: Callable[[], int] | None = None, **_: Any
    ) -> AzureEngine:
        """Open it; with a clock, by which entities end."""
        clock: Any = {} if now is None else {"now": now}
        connection = self._place._connect("full", None)
        return AzureEngine.open(schema=schema, read_only=read_only, background=Background, **connection, **clock)


def _connection() -> str:
    """Return the connection string of an account that nobody has used, of an emulator that runs to the end of the process."""
    with suppress(IndexError, StopIteration):
        return _RUNNING[-1].connection()
    running = start()  # (there is none yet, or it has no account left)
    _RUNNING.append(next(running))
    atexit.register(running.close)
    return _RUNNING[-1].connection()


class Azurite:
    """A running emulator."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._free = iter(range(_ACCOUNTS))

    def connection(self) -> str:
        """Return the connection string of an account that nobody has used."""
        name = f"a{next(self._free)}"
        return (
            f"DefaultEndpointsProtocol=http;AccountName={name};AccountKey={KEY};"
            f"TableEndpoint=http://127.0.0.1:{self.port}/{name};"
        )


def start() -> Iterator[Azurite]:
    """Start the emulator, and stop it at the end; without it, skip what needs it, but on CI fail."""
    main = FOLDER / "node_modules" / "azurite" / "dist" / "src" / "table" / "main.js"
    node = shutil.which("node")
    if node is None or not main.exists():
        if "CI" in os.environ:
            pytest.fail(f"Azurite is missing: {INSTALL}")
        pytest.skip(f"Azurite is missing: {INSTALL}")
    with _running(node, main) as azurite:
        yield azurite


@contextmanager
def _running(node: str, main: Path) -> Iterator[Azurite]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    accounts = ";".join([f"a{number}:{KEY}" for number in range(_ACCOUNTS)])
    options = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--tableHost", "127.0.0.1"]
    process = subprocess.Popen(
        [node, str(main), *options, "--tablePort", str(port)],
        env={**os.environ, "AZURITE_ACCOUNTS": accounts},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, "Azurite ended"
                assert time.monotonic() < until, "Azurite does not answer"
                time.sleep(0.05)
        yield Azurite(port)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
