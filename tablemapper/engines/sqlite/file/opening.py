"""A path becomes an open file, or a store in memory."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial

from ....errors import StoreError, check_seconds, safe_repr
from ..driver.connections import BusyHandler, DatabaseLocation, Durability, clean_path
from .database import File
from .memory import MemoryFile
from .restore import BackupReader, restore

_SHARE = 64  # writes that share a commit


def _microseconds() -> int:
    return time.time_ns() // 1_000


def open_file(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Durability = "full",
    timeout: float = 5.0,
    page_size: int = 4096,
    readers: int | None = None,
    most_readers: int = 64,
    clock: Callable[[], int] = _microseconds,
    now: Callable[[], int] | None = None,
    vfs: str | None = None,
    warn_after: float = 30.0,
    refuse_after: float = 300.0,
    monotonic: Callable[[], float] = time.monotonic,
    waited: Callable[[], float] = float,  # 0.0
    sleep: Callable[[float], object] = time.sleep,
    random: Callable[[], float] | None = None,
    lock: Callable[[], threading.Lock] = threading.Lock,
    owner: int | None = None,
    share: int | None = None,
) -> File:
    """Open a file, or make a new one.

    Args:
        path: the file, or ":memory:" for a store that is never saved.
        create: whether a file that is missing or empty becomes a new store.
        read_only: whether nothing is ever written: neither to the file nor to its log.
        durability: "full" survives a power cut; "relaxed" may lose the last commits in one, but stays consistent.
        timeout: seconds to wait for another process that writes.
        page_size: of a new file, in bytes.
        readers: connections that are kept while they are not used; by default one for each core.
        most_readers: connections that read at the same time; a thread that finds all of them in use waits, unless it
            holds one.
        clock: the time in µs since 1970, for timestamps.
        now: the same, for what has ended; by default the clock.
        vfs: the name of the SQLite file layer, by default that of the operating system.
        warn_after: seconds after which an open stream is logged.
        refuse_after: seconds after which it raises ``SnapshotTooOld``.
        monotonic: the clock that measures these.
        waited: how much of the timeout of a write is over when it begins, because its call waited for a thread.
        sleep: how to wait for another process, and how to let other threads go first.
        random: numbers in [0, 1) that decide how long.
        lock: makes the lock that orders the writes of this process.
        owner: a number that no other store object has; random by default.
        share: how many writes of different threads may share a commit.

    Raises:
        NotAStore: the file is something else, or has another format. It was not touched.
        CorruptStore: it is a store, but damaged.
        StoreReadOnly: it cannot be written.
        StoreLocked: another process held it for longer than the timeout.
        StoreError: the path leads to no file.
    """
    if durability not in ("full", "relaxed"):
        raise ValueError(f'durability={safe_repr(durability)}: expected "full" or "relaxed"')
    check_seconds("timeout", timeout)
    if not 512 <= page_size <= 65536 or page_size & (page_size - 1):
        raise ValueError(f"page_size={page_size}: expected a power of two from 512 to 65536")

    location = _location(
        path,
        vfs,
        durability=durability,
        page_size=page_size,
        timeout=timeout,
        monotonic=monotonic,
        sleep=sleep,
        random=random,
    )
    location.read_only = read_only
    create = create and not read_only
    if location.in_memory and not create:
        raise StoreError('":memory:" is a store of its own each time, and empty; name the file of a store')
    file_class = MemoryFile if location.in_memory else File
    if location.in_memory or (share is None and durability == "relaxed"):
        share = 1  # without a sync to wait for, handing writes over costs more than it saves
    return file_class(
        location,
        create=create,
        readers=readers,
        most_readers=most_readers,
        clock=clock,
        now=now or clock,
        monotonic=monotonic,
        waited=waited,
        sleep=sleep,
        lock=lock,
        owner=owner or secrets.randbits(62) | 1,
        share=_SHARE if share is None else share,
        warn_after=warn_after,
        refuse_after=refuse_after,
    )


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse what is not the file of a store, untouched.

    Raises:
        NotAStore: it is empty, or something else.
        StoreError: no path leads to it, or its log is that of another file.
    """
    _location(path, None).prepare(create=False)


def restore_file(
    backup: str | os.PathLike[str],
    place: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    verify: Callable[[BackupReader], object] | None = None,
    vfs: str | None = None,
) -> None:
    """Put a copy of a backup in the place of a file.

    Args:
        verify: is called with a function that reads the copy; raises if that holds no store.
        vfs: the name of the SQLite file layer.

    Raises:
        StoreLocked: the place is open.
        NotAStore, CorruptStore: the backup is none.
        StoreError: the place is taken, or the disk fails. What was there is there.
        OutcomeUnknown: the copy is there, but the disk failed while that was made safe.
    """
    restore(_location(backup, vfs), _location(place, vfs), overwrite=overwrite, verify=verify)


def _location(
    path: str | os.PathLike[str],
    vfs: str | None,
    *,
    durability: Durability = "full",
    page_size: int = 4096,
    timeout: float = 5.0,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
    random: Callable[[], float] | None = None,
) -> DatabaseLocation:
    return DatabaseLocation(
        path=clean_path(path),
        vfs=vfs,
        durability=durability,
        page_size=page_size,
        timeout=timeout,
        busy_handler=partial(
            BusyHandler,
            timeout,
            sleep=sleep,
            random=random or secrets.SystemRandom().random,
            monotonic=monotonic,
        ),
    )
