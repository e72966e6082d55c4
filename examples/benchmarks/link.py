"""A slow link: hands bytes on to a port of this machine, those to the service so many seconds later.

It is a process of its own, so that the client does not share a processor's time with it, and looks into nothing.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


async def _hand_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, wait: float) -> None:
    loop = asyncio.get_running_loop()
    while data := await source.read(1 << 16):
        loop.call_later(wait, target.write, data)  # (what comes next does not wait for this)
    loop.call_later(wait, target.close)


async def _serve(port: int, wait: float) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            far, to = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_hand_on(reader, to, wait), _hand_on(far, writer, 0))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def link(port: int, wait: float) -> Iterator[int]:
    """Yield the port of a link to another port of this machine, whose requests take `wait` seconds more."""
    with subprocess.Popen([sys.executable, "-m", __name__, str(port), str(wait)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
