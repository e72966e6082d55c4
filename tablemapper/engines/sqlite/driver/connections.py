"""Connections to a file: it is recognised before it is touched, and hardened before it is used."""

from __future__ import annotations

import os
import secrets
import stat
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Literal
from urllib.parse import quote

import apsw
import attrs

from ....errors import CorruptStore, NotAStore, StoreError, StoreLocked, StoreReadOnly
from .driver_errors import DRIVER_ERRORS, translated
from .functions import install
from .timestamps import CREATE_STATE, INSERT_STATE, READ_IDENTITY, STATE, may_follow

MEMORY = ":memory:"
_APPLICATION_ID = 0x746D6170  # "tmap"
FORMAT_VERSION = 1
Durability = Literal["full", "relaxed"]

_MAGIC = b"SQLite format 3\x00"
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_WAL_IS_SOUND = (
    3_051_003  # before it, a writer and a checkpoint could corrupt the file: sqlite.org/wal.html#walresetbug
)
WAL_PAGES = 4_000  # of the log, once so many are not in the file yet, they are copied there
_WAL_BYTES = 64 << 20
_WRITER_CACHE = 32 << 10  # KiB
_READER_CACHE = 8 << 10
_STATEMENTS = 400
_STEPS = 1_000  # of SQLite's machine between two looks whether to go on

_CONFIG: tuple[tuple[int, int], ...] = (
    (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
    (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
    (apsw.SQLITE_DBCONFIG_DQS_DML, 0),
    (apsw.SQLITE_DBCONFIG_DQS_DDL, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1),  # no statement is compiled anew because it was bound to other values
)
_LIMITS: tuple[tuple[int, int], ...] = (
    (apsw.SQLITE_LIMIT_ATTACHED, 0),
    (apsw.SQLITE_LIMIT_LENGTH, 8 << 20),
    (apsw.SQLITE_LIMIT_SQL_LENGTH, 1_000_000),
    (apsw.SQLITE_LIMIT_EXPR_DEPTH, 1_000),
    (apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50_000),
    (apsw.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (apsw.SQLITE_LIMIT_WORKER_THREADS, 0),
)

# An empty file is created and looked at under this lock: closing a descriptor that SQLite does not know of would drop
# the locks that the process holds on the same file.
_creating = threading.Lock()


def clean_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of the file; its directory may be reached through links, it may not be one itself."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise StoreError(f"a store needs its path as text, got {type(text).__name__}; decode it with os.fsdecode()")
    if text == MEMORY:
        return text
    if not text:
        raise StoreError(f'"" is not a path of a store; name a file, or "{MEMORY}" for a store that is never saved')
    if "\x00" in text:
        raise StoreError(f"{text!r} is not a path of a store: it contains U+0000; name a file without it")
    directory, name = os.path.split(os.path.abspath(text))
    return os.path.join(os.path.realpath(directory), name)


class BusyHandler:
    """The handler that SQLite calls while another connection has a lock: it sleeps, with jitter, until a deadline.

    SQLite's own handler backs off up to 100 ms, so that a process that waited for long waits longer still.

    Args:
        timeout: seconds that a wait takes where no deadline is set.

    Attributes:
        until: the deadline of all waits; None if each has the whole timeout.
    """

    def __init__(
        self,
        timeout: float,
        *,
        sleep: Callable[[float], object],
        random: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.until: float | None = None
        self._timeout = timeout
        self._sleep = sleep
        self._random = random
        self._monotonic = monotonic
        self._deadline = 0.0

    def __call__(self, calls: int) -> bool:
        """Wait a moment; tell whether SQLite is to try again."""
        moment = self._monotonic()
        if calls == 0:
            self._deadline = moment + self._timeout if self.until is None else self.until
        if moment >= self._deadline:
            return False
        self._sleep(0.0001 + 0.0009 * self._random())
        return True


def interrupt_behind(error: BaseException) -> BaseException | None:
    """Return what a handler of a signal raised while SQLite waited, if that is why SQLite says that it is busy.

    Where a ``with`` of apsw waits, it raises only the latter, in the context of the former.
    """
    interrupt = error.__context__ if isinstance(error, apsw.BusyError) else None
    came_from = (
        None if interrupt is None or interrupt.__traceback__ is None else interrupt.__traceback__.tb_frame.f_code
    )
    return interrupt if came_from is BusyHandler.__call__.__code__ else None  # else the caller handles an error


@attrs.define(kw_only=True)
class DatabaseLocation:
    """The path of a store with the options of its connections, which it opens."""

    path: str
    vfs: str | None
    durability: Durability
    page_size: int
    timeout: float
    busy_handler: Callable[[], BusyHandler]
    read_only: bool = False
    """Whether no connection may write: then the file and its log stay as they are."""
    _immutable: bool = attrs.field(default=False, init=False)
    _identity: tuple[int, int] | None = attrs.field(default=None, init=False)

    @property
    def in_memory(self) -> bool:
        return self.path == MEMORY

    def is_there(self) -> bool:
        """Tell whether the file is still where it was opened."""
        if self._identity is None:
            return True
        try:
            return self._find() == self._identity
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # no way to know

    def _find(self) -> tuple[int, int]:
        status = os.stat(self.path)
        return status.st_dev, status.st_ino

    def lost_error(self) -> StoreError:
        """Return the error of a file that is not there any more."""
        return StoreError(
            f'"{self.path}" was removed or replaced while it was open, and writes since then are lost: '
            "close the store, and open it again"
        )

    # Recognising

    def prepare(self, *, create: bool) -> None:
        """Create the file if it is not there; refuse it, untouched, if it is neither empty nor a store."""
        if sqlite_version() < _WAL_IS_SOUND:
            raise StoreError(
                f"SQLite {apsw.sqlite_lib_version()} can corrupt a file in WAL mode; 3.51.3 or later is needed: "
                "pip install --upgrade apsw"
            )
        if self.in_memory:
            return
        if not self._make(create=create):
            self._recognise(create=create)
            self._check_log()
        self._identity = self._find()

    def _make(self, *, create: bool) -> bool:
        """Create the file if it is not there, and tell whether it was not."""
        with _creating:
            try:
                mode = os.lstat(self.path).st_mode
            except FileNotFoundError:
                if not create:
                    raise StoreError(f'"{self.path}" does not exist; name the file of a store') from None
                self._create()
                return True
            except NotADirectoryError:
                raise StoreError(f'"{self.path}": its directory is a file; choose another path') from None
        if stat.S_ISLNK(mode):
            raise StoreError(
                f'"{self.path}" is a symbolic link, which a store does not follow; name the file that it leads to'
            )
        if stat.S_ISDIR(mode):
            raise StoreError(f'"{self.path}" is a directory; name a file in it')
        if not stat.S_ISREG(mode):
            raise NotAStore(f'"{self.path}" is not a regular file; choose another path')
        return False

    def _create(self) -> None:
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except FileExistsError:
            return  # another process was faster
        except FileNotFoundError:
            raise StoreError(f'"{self.path}": its directory does not exist; create that first') from None
        os.close(descriptor)

    def _recognise(self, *, create: bool) -> None:
        # Through SQLite's own file layer, which knows what other connections of this process have locked.
        file = apsw.VFSFile(self.vfs or "", self.path, [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
        try:
            size = file.xFileSize()
            header = file.xRead(min(size, 100), 0) if size else b""
        finally:
            file.xClose()
        if not size or self._half_created(size):
            if not create:
                raise NotAStore(f'"{self.path}" is empty; name the file of a store')
            if size:  # by a connection of its own, which keeps what it read in the header of such a file
                with closing(self._connect(apsw.SQLITE_OPEN_READWRITE, self.busy_handler())) as connection:
                    connection.execute("SELECT 1 FROM sqlite_schema").fetchall()
            return
        if header[:16] != _MAGIC or len(header) < 100:
            raise NotAStore(
                f'"{self.path}" is not a tablemapper store, nor any SQLite database; it was left as it is: '
                "choose another path"
            )
        self.check_format(int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big"))

    def _half_created(self, size: int) -> bool:
        # The power failed while an empty file became a store: whatever its two pages say, SQLite makes it empty again.
        try:
            with open(self.path + "-journal", "rb") as journal:
                header = journal.read(28)
        except OSError:
            return False
        pages, page_size = header[16:20], int.from_bytes(header[24:28], "big")
        return header[:8] == _JOURNAL_MAGIC and pages == bytes(4) and size <= 2 * page_size

    def check_format(self, application_id: int, version: int) -> None:
        if application_id != _APPLICATION_ID:
            raise NotAStore(
                f'"{self.path}" is an SQLite database, but not a tablemapper store (application id '
                f"{application_id:#010x}, expected {_APPLICATION_ID:#010x}); it was left as it is: "
                "choose another path"
            )
        if version != FORMAT_VERSION:
            raise NotAStore(
                f'"{self.path}" has format {version}, this tablemapper reads format {FORMAT_VERSION}; it was left '
                "as it is: upgrade tablemapper to the version that wrote it, or to a newer one"
            )

    def _check_log(self) -> None:
        """Refuse a write-ahead log of another file, or of an older copy of this one: SQLite would apply it silently.

        It is refused only where the file proves what it says of itself without the log. After a power cut the log alone
        has what was being copied, and a file that lost it would be lost with it.
        """
        # Twice, since another process may copy the log into the file just while this is read.
        if self._has_log() and all(self._log_is_foreign() for _ in range(2)):
            raise CorruptStore(
                f'"{self.path}-wal" is the log of another file, or of an older copy of this one; both were left as they '
                "are: put back the log that belongs to the file; only if there is none, move this one away, and keep it"
            )

    def _has_log(self) -> bool:
        try:
            return os.path.getsize(self.path + "-wal") > 0
        except OSError:
            return False

    def _log_is_foreign(self) -> bool:
        without_log = self._state("?immutable=1")
        return (
            without_log is not None and (logged := self._state("")) is not None and not may_follow(logged, without_log)
        )

    def _state(self, options: str) -> tuple[Any, ...] | None:
        """Return what the file says of itself, with its log or without."""
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        try:
            connection = self._connect(flags, self.busy_handler(), path=f"file:{quote(self.path)}{options}")
        except apsw.Error:
            return None
        try:
            self._harden(connection, cache=_READER_CACHE)
            return connection.execute(READ_IDENTITY).fetchone()
        except DRIVER_ERRORS:
            return None  # opening the file says what is wrong
        finally:
            quiet_close(connection)

    # Connecting

    def writer(self, busy: BusyHandler, *, create: bool = False) -> apsw.Connection:
        """Open the connection that writes, or that stands in its place where none may."""
        if self.read_only:
            return self._watcher()
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if self.in_memory else 0)
        connection = self._connect(flags, busy)
        try:
            if connection.readonly("main"):
                raise StoreReadOnly(
                    f'"{self.path}" cannot be written; check the permissions of the file and of its directory, or open it '
                    "with read_only=True to read"
                )
            self._harden(connection, cache=_WRITER_CACHE)
            if (create or self.in_memory) and not _value(connection, "SELECT count(*) FROM sqlite_schema"):
                self._initialise(connection)
            self.check_format(
                _value(connection, "PRAGMA application_id") & 0xFFFFFFFF, _value(connection, "PRAGMA user_version")
            )
            self._check_state(connection)
            if not self.in_memory:
                self._use_wal(connection, busy)
            connection.execute(f"PRAGMA synchronous = {'FULL' if self.durability == 'full' else 'NORMAL'}")
            connection.wal_autocheckpoint(WAL_PAGES)
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}").fetchall()
            connection.transaction_mode = "IMMEDIATE"
        except BaseException:
            quiet_close(connection)
            raise
        return connection

    def _watcher(self) -> apsw.Connection:
        """Open a connection that reads, and find out how that is possible."""
        try:
            connection = self.reader()
            try:
                connection.execute("SELECT 1 FROM sqlite_schema").fetchall()
            except BaseException:
                quiet_close(connection)
                raise
        except (apsw.ReadOnlyError, apsw.CantOpenError) as error:
            # Beside a file with a log SQLite keeps another one, which this place does not take.
            if self._has_log():
                raise StoreReadOnly(
                    f'"{self.path}" has a log that must be read with it, in a place that cannot be written: copy both files '
                    "to one that can"
                ) from error
            self._immutable = True
            connection = self.reader()
        try:
            self.check_format(
                _value(connection, "PRAGMA application_id") & 0xFFFFFFFF, _value(connection, "PRAGMA user_version")
            )
            self._check_state(connection)
        except BaseException:
            quiet_close(connection)
            raise
        return connection

    def check_writable(self) -> None:
        """Refuse a write to a store that was opened for reading."""
        if self.read_only:
            raise StoreReadOnly(f'"{self.path}" was opened with read_only=True; open it without that to write')

    def open_exclusive(self) -> apsw.Connection:
        """Open a connection that keeps all others out of the file for as long as it is open.

        Raises:
            StoreLocked: at once, if the file is open elsewhere.
            CorruptStore, NotAStore: it is no store that could be opened.
        """
        try:
            connection = self._connect(apsw.SQLITE_OPEN_READWRITE, None)
            try:
                self._harden(connection, cache=_WRITER_CACHE)
                connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
                connection.execute("BEGIN EXCLUSIVE")
                connection.execute("COMMIT")
                self._check_state(connection)
            except BaseException:
                quiet_close(connection)
                raise
        except apsw.BusyError as error:
            raise self.in_use() from error
        except apsw.Error as error:
            raise translated(error, self.path, opening=True) from error
        return connection

    def in_use(self) -> StoreLocked:
        """Return the error of a file that somebody else has open."""
        return StoreLocked(
            f'"{self.path}" is open, in this process or in another; nothing was changed: close it everywhere first'
        )

    def reader(self, *, immutable: bool = False) -> apsw.Connection:
        """Open a connection that can only read.

        Args:
            immutable: nobody writes the file meanwhile: so it is not locked, and nothing is put beside it.
        """
        flags, path = apsw.SQLITE_OPEN_READONLY, None
        if immutable or self._immutable:
            flags, path = flags | apsw.SQLITE_OPEN_URI, f"file:{quote(self.path)}?immutable=1"
        connection = self._connect(flags, self.busy_handler(), path=path)
        try:
            self._harden(connection, cache=_READER_CACHE)
            connection.execute("PRAGMA query_only = 1")
            connection.execute("PRAGMA temp_store = FILE")  # a sort may be larger than memory
        except BaseException:
            quiet_close(connection)
            raise
        return connection

    def _connect(self, flags: int, busy: BusyHandler | None, *, path: str | None = None) -> apsw.Connection:
        flags |= apsw.SQLITE_OPEN_NOFOLLOW
        try:
            connection = apsw.Connection(path or self.path, flags=flags, vfs=self.vfs, statementcachesize=_STATEMENTS)
        finally:
            if not self.is_there():
                raise self.lost_error()
        connection.set_busy_handler(busy)
        install(connection)
        return connection

    def _harden(self, connection: apsw.Connection, *, cache: int) -> None:
        for setting, value in _CONFIG:
            connection.config(setting, value)
        for limit, value in _LIMITS:
            connection.limit(limit, value)
        # (automatic_index: a plan says by what it is read; an index that SQLite makes for one statement reads the table first.
        # mmap_size is last: apsw stops after the first statement of a call that returns a row.)
        connection.execute(
            "PRAGMA cell_size_check = 1; PRAGMA automatic_index = 0; PRAGMA temp_store = MEMORY; "
            f"PRAGMA cache_size = -{cache}; PRAGMA mmap_size = 0"
        ).fetchall()

    def _initialise(self, connection: apsw.Connection) -> None:
        # In a rollback journal: so the header of the file itself, which is all that is read before a file is opened,
        # says what the file is as soon as it says anything.
        connection.execute(f"PRAGMA page_size = {self.page_size}")
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("BEGIN EXCLUSIVE")
        try:
            if not _value(connection, "SELECT count(*) FROM sqlite_schema"):
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
                connection.execute(CREATE_STATE)
                connection.execute(INSERT_STATE, (secrets.token_hex(16),))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _check_state(self, connection: apsw.Connection) -> None:
        row = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (STATE,)).fetchone()
        if row is None or row[0] != CREATE_STATE:
            raise CorruptStore(f'"{self.path}": its table {STATE} is missing or wrong; restore a backup')

    def _use_wal(self, connection: apsw.Connection, busy: BusyHandler) -> None:
        calls = 0
        while True:
            try:
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            except apsw.BusyError:
                # Another process opens the same new file; SQLite does not call the busy handler for this lock.
                if not busy(calls):
                    raise StoreLocked(
                        f'"{self.path}": another process locked it for longer than timeout= while this one opened it; try again'
                    ) from None
                calls += 1
                continue
            if mode != ("wal",):
                raise StoreError(
                    f'"{self.path}": its file system cannot share memory, which a store needs; put it on a local disk'
                )
            return


def sqlite_version() -> int:
    """Return the version of the SQLite that apsw runs, as 3054001."""
    major, minor, patch = (int(part) for part in apsw.sqlite_lib_version().split(".")[:3])
    return major * 1_000_000 + minor * 1_000 + patch


def quiet_close(connection: apsw.Connection) -> None:
    """Close a connection, whatever state it is in."""
    with suppress(Exception):
        connection.close(True)


def vacuum(connection: apsw.Connection, step: Callable[[], object]) -> None:
    """Write a database anew, without the space that is free in it.

    Args:
        connection: has it for itself.
        step: is called again and again; what it raises ends the work, and leaves all as it was.
    """

    def proceed() -> bool:
        step()
        return False

    connection.execute("PRAGMA temp_store = FILE")  # where the new one is made first
    connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 1)  # that one
    connection.set_progress_handler(proceed, _STEPS)
    try:
        connection.execute("VACUUM")
    finally:
        connection.set_progress_handler(None)
        connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)


def _value(connection: apsw.Connection, sql: str) -> Any:
    row = connection.execute(sql).fetchone()
    return row[0] if row else None
