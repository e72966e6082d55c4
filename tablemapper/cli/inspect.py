"""The command that serves the inspector on this machine."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import sys
import webbrowser
from contextlib import suppress
from typing import Annotated

import msgspec
from cyclopts import Parameter

from ..errors import InvalidQuery, shown
from ..store.opening import open as open_store
from .app import Exit, Json, Models, Place, app, existing, load_models, title_of

Host = Annotated[str, Parameter(help="the address to listen at, one of this machine's own")]
Port = Annotated[int, Parameter(help="the port; 0 for a free one")]
Open = Annotated[bool, Parameter(name="--open", negative="", help="open the page in a browser")]


@app.command
def inspect(
    place: Place,
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

        from ..viewer.app import make_app
        from ..viewer.security import loopback_names
    except ModuleNotFoundError as error:
        raise InvalidQuery(f"the inspector needs {error.name}: pip install 'tablemapper[inspect]'") from None
    with _listening(host, port) as listener:
        number = listener.getsockname()[1]
        token = secrets.token_urlsafe(32)
        store = open_store(
            **existing(place), models=None if models is None else load_models(models), read_only=True, timeout=5
        )
        with store:
            pages = make_app(store, token=token, title=title_of(place), hosts=loopback_names(number))
            url = f"http://{f'[{host}]' if ':' in host else host}:{number}/?token={token}"
            sys.stdout.write(f"{msgspec.json.encode({'ok': True, 'url': url}).decode() if json else url}\n")
            sys.stdout.flush()
            if open:
                webbrowser.open(url)
            config = uvicorn.Config(pages, log_level="warning", access_log=False, lifespan="off", server_header=False)
            with suppress(KeyboardInterrupt):
                uvicorn.Server(config).run([listener])
    return Exit.OK


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
            f"--host {shown(host)}: it listens at 127.0.0.1 or ::1 only; for others, mount tm.inspector(…) in an application of yours, behind its login"
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
