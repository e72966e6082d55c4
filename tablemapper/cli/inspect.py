"""The command that serves the inspector on this machine."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from ..errors import InvalidQuery, StoreLocked, TableMapperError, safe_repr
from ..store.store import Store
from .app import Json, Models, StoreArgument, existing, located, title_of
from .output import Exit, note
from .store_reader import opened_with_notes

_LEAVING = 2  # seconds for which Ctrl-C waits for those who still read an answer
_PATIENCE = 5  # seconds that another program may keep the file
Host = Annotated[str, Parameter(help="the address to listen at, one of this machine's own")]
Port = Annotated[int, Parameter(help="the port; 0 for a free one")]
Open = Annotated[bool, Parameter(name="--open", negative="", help="open the page in a browser")]


def inspect(
    place: StoreArgument,
    /,
    *,
    models: Models | None = None,
    host: Host = "127.0.0.1",
    port: Port = 0,
    open: Open = False,
    json: Json = False,
) -> Exit:
    """Show what is in a store as pages for a browser on this machine, until Ctrl-C; it only reads."""
    try:
        import uvicorn

        from ..viewer.asgi import make_app
        from ..viewer.security import loopback_names
    except ModuleNotFoundError as error:
        raise InvalidQuery(f"the inspector needs {error.name}: pip install 'tablemapper[inspect]'") from None
    with _listening(host, port) as listener:
        number = listener.getsockname()[1]
        token = secrets.token_urlsafe(32)
        if isinstance(located(place)["path"], str):
            note(f"asking {title_of(place)}, which may take a while to answer")
        with closing(_FollowedStore(place, models)) as source:
            with suppress(StoreLocked):  # (the first page says so, and looks again)
                source.store()
            pages = make_app(
                source.store,
                token=token,
                title=title_of(place),
                hosts=loopback_names(number),
                notes=lambda: source.notes,
            )
            url = f"http://{f'[{host}]' if ':' in host else host}:{number}/?token={token}"
            config = uvicorn.Config(
                pages,
                log_level="warning",
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=_LEAVING,
            )
            server = uvicorn.Server(config)
            # Whom it leaves behind at the end is no error of who ended it.
            logging.getLogger("uvicorn.error").addFilter(lambda _: not server.should_exit)
            with suppress(KeyboardInterrupt):
                sys.stdout.write(f"{msgspec.json.encode({'ok': True, 'url': url}).decode() if json else url}\n")
                sys.stdout.flush()
                if open:
                    webbrowser.open(url)
                server.run([listener])
    return Exit.OK


class _FollowedStore:
    """The store of a place, opened anew where its file was replaced, or its classes have changed."""

    def __init__(self, place: str, models: str | None) -> None:
        self._open = partial(opened_with_notes, place, models, timeout=_PATIENCE)
        self.notes: Mapping[str, str] = {}  # by class, what is only in the models
        self._path = existing(place)["path"]
        self._lock = threading.Lock()
        self._stores: list[tuple[Any, Store]] = []  # the last one, and the one before: pages may still read that

    def store(self) -> Store:
        """Return the store.

        Raises:
            StoreLocked: another program keeps the file to itself.
        """
        with self._lock:
            state = self._state()
            if state is None or not self._stores or self._stores[-1][0] != state:
                store, self.notes = self._open()
                for _, old in self._stores[:-1]:
                    old.close()
                self._stores = [*self._stores[-1:], (None, store)]
                self._stores[-1] = self._state(), store
            return self._stores[-1][1]

    def _state(self) -> Any:
        """Return a value that changes if the store must be opened again; None if it cannot be read."""
        if not self._stores:
            return None
        try:
            status = self._path.stat() if isinstance(self._path, Path) else None
            file = None if status is None else (status.st_dev, status.st_ino)
            return file, self._stores[-1][1].status().generation
        except (OSError, TableMapperError):
            return None

    def close(self) -> None:
        """Close what is open."""
        for _, store in self._stores:
            store.close()


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address of this machine alone.

    Raises:
        InvalidQuery: the address is another one, or it is taken.
    """
    address = "127.0.0.1" if host == "localhost" else host
    try:
        loopback = ipaddress.ip_address(address)
    except ValueError:
        loopback = None
    if loopback is None or str(loopback) not in ("127.0.0.1", "::1"):
        raise InvalidQuery(
            f"--host {safe_repr(host)}: it listens at 127.0.0.1 or ::1 only; for others, mount tm.inspector(…) in an application of yours, behind its login"
        )
    if not 0 <= port < 2**16:
        raise InvalidQuery(f"--port {port}: expected 0 to 65535")
    listener = socket.socket(socket.AF_INET6 if loopback.version == 6 else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise InvalidQuery(f"--port {port}: {error.strerror}; choose another one, or 0 for a free one") from None
    return listener
