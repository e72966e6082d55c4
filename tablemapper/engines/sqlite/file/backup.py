"""A copy of a store that is whole, or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import apsw

from ....errors import CorruptStore, StoreError
from ..driver.connections import quiet_close
from ..driver.driver_errors import translated
from .ticket_lock import fcntl

PART = ".tablemapper-part"
SIDE_FILES = ("-wal", "-shm", "-journal")
"""What SQLite keeps beside a file."""
_PAGES = 1_000


def copy_store(
    source: Callable[[Callable[[apsw.Connection], None]], None],
    name: str,
    target: str,
    progress: Callable[[int, int], object] | None,
) -> None:
    """Write a copy beside the target, check it, and only then give it its name.

    Args:
        source: calls a function with a connection that holds one state of it.
        target: an absolute path where nothing is.
        progress: called with (pages done, pages in all).
    """
    if target == ":memory:":
        raise StoreError('a backup needs a file; ":memory:" is none')
    for suffix in ("", *SIDE_FILES):
        if os.path.lexists(target + suffix):
            raise StoreError(
                f'"{target}{suffix}" is there already; a backup never overwrites: move it away, or choose another path'
            )
    directory = os.path.dirname(target)
    try:
        sweep(directory)
        with new_part(target) as part:
            try:
                copy_pages(source, part, progress)
            except CorruptStore as damage:
                raise CorruptStore(
                    f"the copy is damaged ({damage}), so the store may be damaged, too: call check()"
                ) from None
            with suppress(OSError):  # (a store in memory has no file: its copy stays private)
                os.chmod(part, os.stat(name).st_mode & 0o666)  # whoever reads the store may read the copy
            sync(part)
            give_name(part, target)
        sync(directory)
    except FileExistsError:
        raise StoreError(f'"{target}" is there already; a backup never overwrites: choose another path') from None
    except (apsw.Error, OSError) as error:
        raise translated(error, target if isinstance(error, OSError | apsw.FullError) else name) from error


@contextmanager
def new_part(target: str) -> Iterator[str]:
    """Make an empty file beside the target, and remove it at the end; a lock says meanwhile that it is in use."""
    while True:
        part = f"{target}.{secrets.token_hex(4)}{PART}"
        descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            with suppress(OSError):  # where a file cannot be locked, nothing is swept either
                _lock(descriptor)
            if os.path.lexists(part):  # else another backup has just swept it
                yield part
                return
        finally:
            os.close(descriptor)  # not sooner: that would end the locks that SQLite has on the file
            _remove(part)


def sweep(directory: str) -> None:
    """Remove what backups left that were killed."""
    for name in os.listdir(directory):
        if name.endswith(PART):
            with suppress(OSError):
                _sweep_part(os.path.join(directory, name))


def _sweep_part(part: str) -> None:
    if fcntl is None:
        _remove(part)  # Windows refuses that while it is open
        return
    descriptor = os.open(part, os.O_RDWR | os.O_NOFOLLOW)
    try:
        _lock(descriptor)
        _remove(part)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove(part: str) -> None:
    for suffix in (*SIDE_FILES, ""):
        if os.path.lexists(part + suffix):
            os.unlink(part + suffix)


def copy_pages(
    source: Callable[[Callable[[apsw.Connection], None]], None],
    part: str,
    progress: Callable[[int, int], object] | None = None,
    vfs: str | None = None,
) -> None:
    """Copy all pages into an empty file.

    Raises:
        CorruptStore: they are damaged; it says no more than how.
    """
    copy = apsw.Connection(part, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW, vfs=vfs)
    try:

        def run(reader: apsw.Connection) -> None:
            backup = copy.backup("main", reader, "main")
            try:
                while not backup.done:
                    backup.step(_PAGES)
                    if progress is not None:
                        progress(backup.page_count - backup.remaining, backup.page_count)
                backup.finish()
            except BaseException:
                # With an error of the disk on its way, the driver's object raises SystemError, or leaves an error
                # behind that the next call to C raises so. No call comes before what was raised takes its place.
                try:  # noqa: SIM105
                    backup.close(True)
                except SystemError:
                    pass
                raise

        source(run)
        verdict = copy.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != ("ok",):
            raise CorruptStore(" ".join(str(verdict and verdict[0]).split()))
    finally:
        quiet_close(copy)


def give_name(part: str, target: str) -> None:
    """Give a file its name; FileExistsError if something else has it."""
    try:
        os.link(part, target)  # unlike a rename it refuses a file that appeared meanwhile
    except FileExistsError:
        raise
    except OSError:
        os.rename(part, target)  # a file system without links


def sync(path: str) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
