"""A copy of a backup takes the place of a store: whole, or not at all.

The copy is made and verified beside the place, under another name. What was there is kept locked meanwhile, and all of
it is brought into the one file before its log is removed. So at each moment the place holds the old store or the new
one, and a rename is what lies between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import apsw
import attrs

from ....errors import CorruptStore, NotAStore, OutcomeUnknown, StoreError
from ..driver.connections import DatabaseLocation, quiet_close
from ..driver.driver_errors import translated
from ..driver.timestamps import SET_PROGRESS, read_state
from .backup import SIDE_FILES, copy_pages, give_name, new_part, sweep, sync
from .ticket_lock import remove_tickets

_DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
_LOGS = ("-wal", "-journal")  # which can hold what the file itself does not
_LOCK_SHARED, _LOCK_EXCLUSIVE = apsw.SQLITE_LOCK_SHARED, apsw.SQLITE_LOCK_EXCLUSIVE


class BackupReader(Protocol):
    """Runs a statement and returns its rows."""

    def __call__(self, sql: str, args: Sequence[Any] = ..., /) -> list[tuple[Any, ...]]: ...


def restore(
    backup: DatabaseLocation,
    place: DatabaseLocation,
    *,
    overwrite: bool,
    verify: Callable[[BackupReader], object] | None = None,
) -> None:
    """Put a copy of a backup in a place; see `opening.restore_file`."""
    for location, role in ((backup, "a backup"), (place, "what is restored")):
        if location.in_memory:
            raise StoreError(f'{role} needs a file; ":memory:" is none')
    target = place.path
    try:
        is_occupied = _look(place, overwrite=overwrite)
        backup.prepare(create=False)
        if is_occupied and os.path.samefile(backup.path, target):
            raise StoreError(f'"{target}" is the backup itself; nothing was changed: name another place')
        directory = os.path.dirname(target)
        sweep(directory)
        with ExitStack() as stack, new_part(target) as part:
            old = _keep_out(place, stack) if is_occupied else None
            if not remove_tickets(target):
                raise place.in_use()
            try:
                copy_pages(partial(_read, backup), part, vfs=backup.vfs)
                _adopt(attrs.evolve(backup, path=part), old, verify)
            except (CorruptStore, *_DAMAGE) as damage:  # not of the place, which is the one that is left
                raise CorruptStore(
                    f'the backup "{backup.path}" is damaged; nothing was changed: take another one ({damage})'
                ) from damage
            if is_occupied:
                _take_access(part, target)
            sync(part)
            if old is not None:
                old.settle()
            for suffix in SIDE_FILES:
                with suppress(FileNotFoundError):
                    os.unlink(target + suffix)
            sync(directory)  # else a power cut could bring the old log back beside the new file
            if is_occupied:
                os.replace(part, target)
            else:
                give_name(part, target)
            _make_safe(target, directory)
    except FileExistsError:
        raise StoreError(
            f'"{target}" has appeared in the meantime, and was left as it is: restore again, with overwrite=True'
        ) from None
    except (apsw.Error, OSError) as error:
        raise translated(error, target) from error


def _look(place: DatabaseLocation, *, overwrite: bool) -> bool:
    """Tell whether something is in a place, and refuse what is not to be replaced."""
    present = [end for end in ("", *_LOGS) if _is_there(place.path + end)]
    if present and not overwrite:
        raise StoreError(
            f'"{place.path}{present[0]}" is there already; pass overwrite=True to replace it, or name another place'
        )
    if "" in present and not stat.S_ISREG(os.lstat(place.path).st_mode):
        raise StoreError(f'"{place.path}" is not a regular file, and was left as it is: name the file itself')
    if not os.path.isdir(os.path.dirname(place.path)):
        raise StoreError(f'"{place.path}": its directory does not exist; create that first')
    return "" in present


def _is_there(path: str) -> bool:
    # Not os.path.lexists, which takes a disk that fails for a name that is free.
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@attrs.frozen
class _Old:
    """The store that is replaced."""

    connection: apsw.Connection
    generation: int
    until: int

    def settle(self) -> None:
        """Bring all of it into its file."""
        with suppress(*_DAMAGE):  # it could not be opened as a store any more
            _use_journal(self.connection)


def _keep_out(place: DatabaseLocation, stack: ExitStack) -> _Old | None:
    """Keep all others out of the file that is replaced, until the stack ends; return it, if it can be opened.

    Raises:
        StoreLocked: at once, if it is open.
    """
    try:
        place.prepare(create=False)
        connection = place.open_exclusive()
    except (NotAStore, CorruptStore):
        stack.enter_context(_locked(place))
        return None
    stack.callback(quiet_close, connection)
    try:
        generation, until, _ = read_state(connection, place.path)
    except (CorruptStore, *_DAMAGE):
        generation = until = 0
    return _Old(connection, generation, until)


@contextmanager
def _locked(place: DatabaseLocation) -> Iterator[None]:
    """Hold SQLite's own lock of a file, whatever is in it."""
    file = apsw.VFSFile(place.vfs or "", place.path, [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        try:
            file.xLock(_LOCK_SHARED)
            file.xLock(_LOCK_EXCLUSIVE)
        except apsw.BusyError as error:
            raise place.in_use() from error
        yield
    finally:
        with suppress(apsw.Error):
            file.xUnlock(apsw.SQLITE_LOCK_NONE)
        file.xClose()


def _read(backup: DatabaseLocation, copy: Callable[[apsw.Connection], None]) -> None:
    """Read one state of a backup, and put no file beside it unless one is there."""
    at_rest = not any(_is_there(backup.path + end) for end in _LOGS)
    status_before = os.stat(backup.path)
    with closing(backup.reader(immutable=at_rest)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT 1 FROM sqlite_schema").fetchall()
        copy(reader)
    status_after = os.stat(backup.path)
    if at_rest and (status_before.st_size, status_before.st_mtime_ns) != (
        status_after.st_size,
        status_after.st_mtime_ns,
    ):
        raise StoreError(f'"{backup.path}" was written while it was copied; nothing was changed: restore again')


def _adopt(copy: DatabaseLocation, old: _Old | None, verify: Callable[[BackupReader], object] | None) -> None:
    """Make a copy a store that goes on where the other one ended, in one file, and verify it."""
    with closing(copy.open_exclusive()) as new:
        _use_journal(new)
        generation, until, _ = read_state(new, copy.path)
        if old is not None:
            generation, until = max(generation, old.generation), max(until, old.until)
        with new:
            new.execute(SET_PROGRESS, (generation + 1, until))
        damage = new.execute("PRAGMA integrity_check(1)").fetchone()
        if damage != ("ok",):
            raise CorruptStore(" ".join(str(damage and damage[0]).split()))  # (it has several lines)
        if verify is not None:
            verify(lambda sql, args=(): new.execute(sql, args).fetchall())
        new.execute("PRAGMA journal_mode = WAL").fetchall()  # as the backup was, and nothing is in the log


def _use_journal(connection: apsw.Connection) -> None:
    """Bring all of a store into its file, so that it needs no log."""
    if connection.execute("PRAGMA journal_mode = DELETE").fetchone() != ("delete",):
        raise StoreError(f'"{connection.filename}": its log could not be brought into the file; nothing was changed')


def _take_access(part: str, target: str) -> None:
    """Give the copy the permissions of the file that it replaces."""
    if hasattr(os, "chown"):
        replaced = os.stat(target)
        with suppress(PermissionError):
            os.chown(part, replaced.st_uid, replaced.st_gid)
        os.chmod(part, stat.S_IMODE(replaced.st_mode))


def _make_safe(target: str, directory: str) -> None:
    try:
        sync(directory)
    except OSError as error:
        raise OutcomeUnknown(
            f'"{target}" is restored, but the disk failed to sync it: a power cut may bring back the old file; '
            "check the disk, and restore again"
        ) from error
