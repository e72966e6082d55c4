"""From what a user names to an engine: the only place that knows which engines there are."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, cast

import attrs

from ..catalogue.transitions import BackwardConversion
from ..errors import InvalidMigration, NotAStore, StoreError, safe_repr
from ..limits import check_table_name
from ..schema.model import Schema
from .migration_protocol import MigrationEngine
from .protocol import Engine
from .status import Status

_log = logging.getLogger("tablemapper.catalogue")
_URL = re.compile(r"(file(?=:)|[a-z][a-z0-9+.-]+(?=://)):(.*)", re.DOTALL)
_MEMORY = re.compile(r"\s*:.*|\s*mem(ory)?:\s*", re.IGNORECASE | re.DOTALL).fullmatch
_CONNECTION = re.compile(
    r"\s*(DefaultEndpointsProtocol|AccountName|AccountKey|TableEndpoint|SharedAccessSignature|UseDevelopmentStorage)\s*=",
    re.IGNORECASE,
)


class StoreLocation(Protocol):
    """Where a store is kept: what a user names, as what can open it."""

    def open(
        self,
        schema: Any,
        *,
        durability: Literal["full", "relaxed"],
        timeout: float | None,
        waited: Callable[[], float],
        ways_back: Sequence[BackwardConversion],
        **reads: Any,
    ) -> Engine:
        """Open the engine that keeps a schema in it; see `open_engine`."""
        ...


Where: TypeAlias = str | os.PathLike[str] | StoreLocation


@attrs.frozen
class _File:
    """A SQLite file."""

    path: str | os.PathLike[str]

    def open(self, schema: Schema | None, *, timeout: float | None = None, **options: Any) -> Engine:
        from .sqlite.engine import SqliteEngine

        return SqliteEngine.open(self.path, schema, timeout=5.0 if timeout is None else timeout, **options)

    def migrations(self, *, durability: Literal["full", "relaxed"], timeout: float | None) -> MigrationEngine:
        from .sqlite.online.migration import SqliteMigrations

        return SqliteMigrations.open(self.path, durability=durability, timeout=5.0 if timeout is None else timeout)


@attrs.frozen
class _Account:
    """The tables of an account."""

    text: str = attrs.field(repr=False)
    credential: Any = attrs.field(repr=False)

    def open(
        self, schema: Schema | None, *, durability: str, timeout: float | None, read_only: bool = False, **options: Any
    ) -> Engine:
        given = self._connect(durability, timeout)
        from .azure.engine import AzureEngine

        return AzureEngine.open(schema=schema, read_only=read_only, **given)

    def migrations(self, *, durability: str, timeout: float | None) -> MigrationEngine:
        given = self._connect(durability, timeout)
        from .azure.migrations.migrating import AzureMigrations

        return AzureMigrations.open(**given)

    def _connect(self, durability: str, timeout: float | None) -> dict[str, Any]:
        """Return what an engine is given to send requests to the account."""
        from .azure.tables.accounts import account_of, named_account

        if durability != "full":
            raise ValueError(f"durability={durability!r} is for a file; Azure Tables keeps what it acknowledged")
        name, catalogue = "", ""
        if not _CONNECTION.match(self.text):
            name, _, catalogue = self.text[len("azure:") :].lstrip("/").partition("/")
            if catalogue and (fault := check_table_name(catalogue)) is not None:
                raise NotAStore(f"azure://{name}/…: {fault}")
        is_text = _CONNECTION.match(self.text)
        account = account_of(self.text, self.credential) if is_text else named_account(name, self.credential)
        try:
            from .azure.tables.wire import Wire
        except ModuleNotFoundError as error:
            raise StoreError(f"Azure Tables needs urllib3: pip install 'tablemapper[azure]' ({error})") from None
        from .azure.cross_partition.outbox import LOCAL
        from .azure.tables.reserved_names import CATALOGUE

        return {
            "service": Wire(account),
            "name": str(account),
            "catalogue": catalogue or CATALOGUE,
            "timeout": 30.0 if timeout is None else timeout,
            "times": LOCAL if account.is_local else None,
        }


def is_account(where: str) -> bool:
    """Return whether a text names an account of Azure, not a file."""
    return _CONNECTION.match(where) is not None or where.lower().startswith("azure:")


def is_public(where: str) -> bool:
    """Return whether a text that names a place has no secret in it, as a connection string has."""
    return _CONNECTION.match(where) is None


def place_of(where: Where, credential: Any = None) -> StoreLocation:
    """Return the place that a user names.

    Raises:
        NotAStore: it is neither a path nor an account.
    """
    if isinstance(where, str):
        if is_account(where):
            return _Account(where, credential)
        _check_path(where)
    if credential is not None:
        raise NotAStore("credential= is for an account of Azure, and this is a file")
    if isinstance(where, str | os.PathLike) or not hasattr(where, "open"):
        return _File(cast("str | os.PathLike[str]", where))  # (what is neither is refused as a path)
    return where


def open_engine(
    where: Where,
    schema: Schema | None,
    *,
    read_only: bool = False,
    credential: Any = None,
    durability: Literal["full", "relaxed"] = "full",
    timeout: float | None = None,
    waited: Callable[[], float] = float,
    ways_back: Sequence[BackwardConversion] = (),
) -> Engine:
    """Open the engine that keeps what a user names.

    Args:
        where: the path of a file, ``":memory:"``, an account of Azure, or a place.
        schema: of the classes that are used; None for those that the place itself knows, with ``read_only``.
        read_only: as for `tablemapper.open`.
        credential: as for `tablemapper.open`.
        durability: as for `tablemapper.open`.
        timeout: as for `tablemapper.open`.
        ways_back: of the migration scripts that are known, so that an older version can be kept in step.
        waited: returns how many seconds of the timeout are over when a write begins; by default none.

    Raises:
        NotAStore: it is neither a path nor an account.
        ValueError: ``":memory:"`` with ``read_only``.
        StoreError: as the engine raises.
    """
    if read_only and where == ":memory:":
        raise ValueError(
            '":memory:" is a store of its own each time, and empty: read_only=True; name the file of a store'
        )
    place = place_of(where) if credential is None else place_of(where, credential)
    reads = {"read_only": True} if read_only else {}  # (a place of one's own need not know it)
    engine = place.open(schema, durability=durability, timeout=timeout, waited=waited, ways_back=ways_back, **reads)
    for label, told in engine.schema.lost.items():
        _log.warning("%s cannot be read without its class: %s", label, told.partition("\n")[0])
    return engine


def restore(backup: str | os.PathLike[str], place: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Put a copy of a backup in the place of a store that no program has open.

    It makes and verifies the copy beside the place, and then renames it in one step. Whatever fails, you have either
    the old store or the restored one. It removes files that SQLite left beside the old one.

    Args:
        backup: what `Store.backup` wrote, or the file of any store; it is only read.
        place: the path of the restored store.
        overwrite: replace an existing file, damaged or not.

    Raises:
        StoreLocked: the store in this place is open, in this process or in another.
        NotAStore, CorruptStore: the backup is not a store, or is damaged.
        StoreError: the file exists and ``overwrite`` is false, or the disk failed. Nothing was changed.
        OutcomeUnknown: the store is restored, but a power cut may undo that, since the disk failed at the end.
    """
    for where in (backup, place):
        if isinstance(where, str):
            _check_path(where)
    from .sqlite.file.opening import restore_file
    from .sqlite.sql.catalogue_table import read_catalogue

    restore_file(backup, place, overwrite=overwrite, verify=read_catalogue)


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse the path of anything but the file of a store, without opening it.

    Raises:
        NotAStore: the file is empty, or something else.
        StoreError: no path leads to it, or its log is that of another file.
    """
    from .sqlite.file.opening import check_file

    check_file(path)


def status(place: Where, *, credential: Any = None, timeout: float | None = None) -> Status:
    """Return what a store maintains, the progress of builds, and its migrations.

    It needs no models, so it works for a store that no program opens any more.

    Args:
        place: the path of a file, or an account of Azure.
        credential: as for `tablemapper.open`.
        timeout: as for `tablemapper.open`.

    Raises:
        StoreError: there is no store in this place, or it cannot be used.
    """
    named = place_of(place, credential)
    if isinstance(named, _File):
        from .sqlite.online.status import status_of_file

        return status_of_file(named.path, timeout=5.0 if timeout is None else timeout)
    engine = open_engine(named, None, read_only=True, timeout=timeout)
    try:
        return engine.status()
    finally:
        engine.close()


def open_migrations(
    where: Where,
    *,
    durability: Literal["full", "relaxed"] = "full",
    timeout: float | None = None,
    credential: Any = None,
) -> MigrationEngine:
    """Open a store for migrations.

    Args:
        where: the path of a file, an account of Azure, or a place.
        durability: as for `tablemapper.open`.
        timeout: as for `tablemapper.open`.
        credential: as for `tablemapper.open`.

    Raises:
        InvalidMigration: it is a place where no migrations run.
        StoreError: there is no store in this place, or it cannot be used.
    """
    place = place_of(where, credential)
    if (migrations := getattr(place, "migrations", None)) is None:
        raise InvalidMigration(f"{safe_repr(where)}: migrations run in a file, or in an account of Azure")
    engine: MigrationEngine = migrations(durability=durability, timeout=timeout)
    return engine


def _check_path(where: str) -> None:
    if _CONNECTION.match(where):  # which holds a secret, so it is not repeated
        raise NotAStore("a connection string is not a path; this call is possible for a file only, such as shop.db")
    if where != ":memory:" and _MEMORY(where):
        raise NotAStore(f'{safe_repr(where)} is no path; write ":memory:" for a store that is never saved')
    if (url := _URL.match(where)) is None:
        return
    scheme, rest = url.groups()
    if scheme.startswith(("sqlite", "file")):  # sqlite:///shop.db, sqlite:////home/ann/shop.db, file:shop.db?mode=ro
        path = rest[3:] if scheme.startswith("sqlite") else rest.removeprefix("//")
        raise NotAStore(
            f"{safe_repr(where)} is a URL; a store is opened by its path: {path.partition('?')[0] or ':memory:'!r}"
        )
    what = "that cannot be opened"
    if scheme in ("https", "http"):
        what = "an account of Azure is named azure://account, or by its connection string"
        raise NotAStore(f'"{scheme}:…": {what}, and a file by its path, as in tm.open("shop.db", models=…)')
    if scheme == "azure":
        what = "this call is possible for a file only"
    raise NotAStore(f'"{scheme}:…": {what}; name a file, as in tm.open("shop.db", models=…)')
