"""The errors of SQLite, apsw and the operating system, as errors of this library.

apsw raises a class for each result code of SQLite. The operating system raises ``OSError``, and a damaged file shows as
``UnicodeDecodeError`` too. :func:`translated` is called in ``except`` clauses only, so calls that succeed pay nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import apsw

from ....errors import (
    CorruptStore,
    EntityTooLarge,
    InvalidEntity,
    NotAStore,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    TableMapperError,
)

#: What the driver raises by itself; it never means a mistake in the code of the caller.
DRIVER_ERRORS: tuple[type[Exception], ...] = (apsw.Error, OSError, UnicodeError, OverflowError, MemoryError)


_REFUSALS = (apsw.BusyError, apsw.ConstraintError, apsw.MismatchError, apsw.SQLError, apsw.TooBigError)


class NoSuchName(StoreError):
    """A statement names a table or a column that is not in the file: another process may have given it another name."""


_DAMAGED = "it is damaged; check() lists the damage, and a backup is the safe way back"

_SAYS: tuple[tuple[tuple[type[Exception], ...], Callable[[str], TableMapperError], str], ...] = (
    (
        (apsw.BusyError, apsw.LockedError, apsw.ProtocolError),
        StoreLocked,
        "another connection locked it for longer than timeout=; nothing was written: try again, or raise timeout=",
    ),
    (
        (apsw.ReadOnlyError,),
        StoreReadOnly,
        "it cannot be written; check the permissions of the file and of its directory",
    ),
    (
        (apsw.FullError,),
        StoreFull,
        "the disk is full; nothing was written, and reads still work: free some space and write again",
    ),
    ((apsw.CorruptError, apsw.NotADBError, apsw.FormatError), CorruptStore, _DAMAGED),
    (
        (apsw.CantOpenError,),
        StoreError,
        "it, or a file beside it (-wal, -shm), cannot be opened; check its directory and the limit of open files",
    ),
    (
        (apsw.PermissionsError, apsw.AuthError),
        StoreReadOnly,
        "permission was refused; check the permissions of the file and of its directory",
    ),
    ((apsw.ConnectionClosedError, apsw.CursorClosedError), StoreClosed, "it was closed in the meantime; open it again"),
    ((apsw.TooBigError,), EntityTooLarge, "a value or a row is larger than a store takes"),
    (
        (apsw.NoMemError, MemoryError),
        StoreError,
        "there was not enough memory; nothing was written: try a smaller piece",
    ),
    (
        (apsw.IOError,),
        StoreError,
        "the operating system could not read or write it; nothing was written: check the disk, then try again",
    ),
    ((apsw.InterruptError, apsw.AbortError), StoreError, "the statement was interrupted; nothing was written"),
    (
        (apsw.ThreadingViolationError,),
        StoreError,
        "a reader was used by two threads at once; give each thread its own query or snapshot",
    ),
)

_ERRNO: dict[int, type[Exception]] = {
    errno.ENOSPC: apsw.FullError,
    errno.EDQUOT: apsw.FullError,
    errno.EROFS: apsw.ReadOnlyError,
    errno.EACCES: apsw.PermissionsError,
    errno.EPERM: apsw.PermissionsError,
    errno.EMFILE: apsw.CantOpenError,
    errno.ENFILE: apsw.CantOpenError,
}


def translated(error: BaseException, path: str, *, opening: bool = False) -> BaseException:
    """Return the error of this library that says what ``error`` means for the store at ``path``.

    An error that is no fault of the store is returned as it is.

    Raise the result ``from`` the error: its cause holds SQLite's own words, which are repeated in brackets.

    Args:
        opening: the file is not known to be a store yet, so one that is no database is :class:`NotAStore`.
    """
    if isinstance(error, TableMapperError):
        return error
    if isinstance(error, UnicodeDecodeError):
        return CorruptStore(f'"{path}": a text in it is not UTF-8: {_DAMAGED}')
    if isinstance(error, (UnicodeEncodeError, OverflowError)):
        return InvalidEntity(
            f'"{path}"',
            [f"a value cannot be stored: {error}; expected text without lone surrogates, and integers of 64 bits"],
        )
    kind: type[BaseException] = type(error)
    if isinstance(error, OSError):
        if error.errno is None:  # not the system's: a handler of a signal raised it, such as TimeoutError
            return error
        kind = _ERRNO.get(error.errno, apsw.IOError)
    elif isinstance(error, apsw.NotADBError) and opening:
        return NotAStore(f'"{path}" is not a tablemapper store ({error}); it was left as it is: choose another path')
    for kinds, ours, says in _SAYS:
        if issubclass(kind, kinds):
            return ours(f'"{path}": {says} ({_words(error)})')
    if isinstance(error, apsw.SQLError) and str(error).startswith(("no such table", "no such column")):
        return NoSuchName(f'"{path}": it changed while it was read ({error}); read again')
    if isinstance(error, apsw.SQLError) and "cannot hold BLOB" in str(error):  # of columns that are written as JSON
        return CorruptStore(f'"{path}": bytes stand where none are stored: {_DAMAGED}')
    if isinstance(error, apsw.Error):
        return StoreError(
            f'"{path}": SQLite refused a statement ({_words(error)}); please report it with the traceback'
        )
    return error


def poisons_connection(error: BaseException | None) -> bool:
    """Tell whether a connection may hold pages that are not those of the file, after an error in its transaction.

    To undo, SQLite reads pages anew. Where it cannot, ROLLBACK does not say so, and a later COMMIT writes what was
    to be undone. It is safe only where the error is an IOERR, or the disk is full.
    """
    ours = isinstance(error, (TableMapperError, *_REFUSALS))
    return isinstance(error, (apsw.Error, OSError, MemoryError)) and not ours


def _words(error: BaseException) -> str:
    extended = getattr(error, "extendedresult", 0)
    name = apsw.mapping_extended_result_codes.get(extended) or apsw.mapping_result_codes.get(extended)
    text = f"{type(error).__name__}: {error}"
    return f"{text}, {name}" if isinstance(name, str) else text
