"""Opens a store for asyncio: `tablemapper.open_async`."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, Never, NoReturn

from ..engines.protocol import Engine
from ..entities.entity import Record
from ..errors import StoreError
from ..events import Event, Observer, observer
from ..progress import ProgressOption
from ..scripts.migrations import ScriptsOption
from ..store.opening import check_limits, engine_of, refuse_unknown
from .store import AsyncStore

if TYPE_CHECKING:
    import asyncio  # (which takes as long to import as all of this, and without asyncio nobody needs it)

_TOKEN_TIMEOUT = 60.0  # seconds
_CURSORS = 32  # that hold a state of the store at a time; half of the connections that a file reads with


def open_async(
    path: str | os.PathLike[str],
    *,
    models: Sequence[type[Record]] | None = None,
    read_only: bool = False,
    credential: Any = None,
    migrations: ScriptsOption | None = None,
    durability: Literal["full", "relaxed"] = "full",
    limits: Literal["azure"] | None = None,
    timeout: float | None = None,
    progress: ProgressOption = False,
    build: bool = True,
    observe: Callable[[Event], object] | None = None,
    slow: float | None = None,
    prefix: str | None = None,
    adopt: bool | Sequence[str] = False,
    threads: int = 32,
    **unknown: Never,
) -> OpenContext:
    """Open a store for asyncio, or create it: ``async with tm.open_async(…) as store``, or ``store = await …``.

    Args:
        path: as for `tablemapper.open`, as are `models`, `read_only`, `durability`, `limits` and `timeout`.
        models: the classes that the program uses.
        credential: as for `tablemapper.open`; one of azure.identity.aio, too, which is asked in the loop that awaits this.
        migrations: as for `tablemapper.open`.
        durability: ``"full"`` or ``"relaxed"``.
        limits: ``"azure"`` or None.
        timeout: as for `tablemapper.open`; the wait for a free connection counts, from the call on.
        progress: True for a bar, or a function, which is called in another thread.
        build: as for `tablemapper.open`.
        observe: as for `tablemapper.open`; called in the thread that made the call.
        slow: as for `tablemapper.open`; the wait for a thread does not count.
        prefix: as for `tablemapper.open`.
        adopt: as for `tablemapper.open`.
        threads: how many calls run at a time at most; the others wait their turn.

    Raises:
        InvalidModel, InvalidMigration, SchemaMismatch, NotAStore, CorruptStore, StoreLocked, StoreReadOnly: when it is
            awaited, for the reasons of `tablemapper.open`.
    """
    refuse_unknown("open_async", unknown, open_async)
    if threads < 1:
        raise ValueError(f"threads={threads!r}: expected 1 or more")
    check_limits(limits)
    watch = observer(observe, slow)

    is_async = iscoroutinefunction(getattr(credential, "get_token", None))

    def start(waited: Callable[[], float], loop: asyncio.AbstractEventLoop) -> Engine:
        return engine_of(
            path,
            models,
            read_only=read_only,
            credential=_LoopCredential(credential, loop) if is_async else credential,
            migrations=migrations,
            durability=durability,
            timeout=timeout,
            progress=progress,
            build=build,
            prefix=prefix,
            adopt=adopt,
            waited=waited,
        )

    return OpenContext(start, watch, limits=limits, threads=threads, timeout=timeout)


class _LoopCredential:
    """A credential for asyncio, asked from the threads that send requests: its tokens come from the loop of the store."""

    def __init__(self, credential: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._credential = credential
        self._loop = loop

    def get_token(self, *scopes: str) -> Any:
        from asyncio import run_coroutine_threadsafe

        if self._loop.is_closed():
            raise StoreError("the loop that opened the store is closed, so its credential gives no token")
        return run_coroutine_threadsafe(self._credential.get_token(*scopes), self._loop).result(_TOKEN_TIMEOUT)


class OpenContext:
    """A store that is about to be opened: to be awaited, or used in an ``async with``, which closes it too."""

    def __init__(
        self,
        start: Callable[[Callable[[], float], asyncio.AbstractEventLoop], Engine],
        watch: Observer | None = None,
        *,
        limits: Literal["azure"] | None,
        threads: int,
        timeout: float | None,
    ) -> None:
        self._start = start
        self._watch = watch
        self._limits: Literal["azure"] | None = limits
        self._threads = threads
        self._timeout = 5.0 if timeout is None else timeout
        self._store: AsyncStore | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"{name}: the store is not open yet; await tm.open_async(…), or use async with")

        def __enter__(self) -> NoReturn:
            raise TypeError("async with, not with, opens it: async with tm.open_async(…) as store")

        def __exit__(self, *_: object) -> None: ...

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self._open().__await__()

    async def _open(self) -> AsyncStore:
        from asyncio import get_running_loop

        from .workers import Workers

        workers = Workers(threads=self._threads, cursors=_CURSORS, timeout=self._timeout)
        engines: list[Engine] = []
        try:
            loop = get_running_loop()
            await workers.run(lambda: engines.append(self._start(workers.waited, loop)))
        except BaseException:
            for engine in engines:  # it was cancelled too late
                engine.close()
            workers.close()
            raise
        return AsyncStore(engines[0], workers, self._watch, limits=self._limits)

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        if self._store is not None:
            await self._store.close()
