"""The locations of stores, and their engines: the only module that knows which engines there are."""

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
_SECRET = re.compile(r"(AccountKey|SharedAccessSignature|TableEndpoint)\s*=|\bsig=", re.IGNORECASE)
"""What only connection strings and signatures have in them, so no path has it."""
_ASSIGNMENT = re.compile(r"\s*(?:(?:export|set)\s+)?([A-Za-z_]\w*)\s*=(.*)", re.DOTALL)


class StoreLocation(Protocol):
    """The location of a store, which can open it."""

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
    prefix: str | None = None
    """The catalogue that is meant, and what the names of its tables begin with; None: as the text says."""

    def open(
        self,
        schema: Schema | None,
        *,
        durability: str,
        timeout: float | None,
        read_only: bool = False,
        adopt: bool | Sequence[str] = False,
        **options: Any,
    ) -> Engine:
        connection = self._connect(durability, timeout)
        from .azure.engine import AzureEngine
        from .azure.tables.background import Background

        return AzureEngine.open(schema=schema, read_only=read_only, adopt=adopt, background=Background, **connection)

    def remove(self) -> None:
        """Delete the tables of the store."""
        connection = self._connect("full", None)
        from .azure.dropping import remove

        remove(connection["service"], connection["name"], connection["catalogue"], connection["timeout"])

    def migrations(self, *, durability: str, timeout: float | None) -> MigrationEngine:
        connection = self._connect(durability, timeout)
        from .azure.migrations.migrating import AzureMigrations

        return AzureMigrations.open(**connection)

    def _connect(self, durability: str, timeout: float | None) -> dict[str, Any]:
        """Return what an engine is given to send requests to the account."""
        from .azure.tables.accounts import account_of, named_account

        if durability != "full":
            raise ValueError(f"durability={durability!r} is for a file; Azure Tables keeps what it acknowledged")
        name = catalogue = ""
        if not _is_named(self.text):
            account = account_of(self.text, self.credential)
        elif _SECRET.search(self.text):
            raise NotAStore(
                "azure://… has a key or a signature in it, which is no part of a name; pass it as credential="
            )
        else:
            name, _, catalogue = self.text[len("azure:") :].lstrip("/").partition("/")
            if catalogue and (fault := check_table_name(catalogue)) is not None:
                raise NotAStore(f"azure://…/: {fault}")
            account = named_account(name, self.credential)
        if self.prefix is not None:
            if (catalogue or self.prefix).lower() != self.prefix.lower():
                raise ValueError(
                    f"prefix={safe_repr(self.prefix)}, and azure://{name}/{catalogue} names another one; leave out one of them"
                )
            catalogue = self.prefix
        try:
            from .azure.tables.wire import Wire
        except ModuleNotFoundError as error:
            raise StoreError(f"Azure Tables needs urllib3: pip install 'tablemapper[azure]' ({error})") from None
        from .azure.cross_partition.outbox import LOCAL
        from .azure.tables.reserved_names import CATALOGUE

        service = Wire(account)
        return {
            "service": service,
            "monotonic": service.elapsed,
            "name": str(account),
            "catalogue": catalogue or CATALOGUE,
            "timeout": 30.0 if timeout is None else timeout,
            "times": LOCAL if account.is_emulator else None,
        }


def is_account(where: str) -> bool:
    """Return whether a text names an account of Azure, not a file."""
    return _is_named(where) or not is_public(where)


def _is_named(where: str) -> bool:
    return where.lower().startswith("azure:")


def is_public(where: str) -> bool:
    """Return whether a text that names a place has no secret in it, as a connection string has."""
    return _CONNECTION.match(where) is None and _SECRET.search(where) is None


def split_prefix(where: str) -> tuple[str, str | None]:
    """Return a text that names a place, and the prefix that ``env:NAME/Prefix`` has behind that."""
    name, slash, prefix = where.partition("/") if where.startswith("env:") else (where, "", "")
    return name, prefix if slash else None


def named_place(where: str) -> str:
    """Return the text that names a place: of ``env:NAME`` that of the variable, of an account without quotes around it.

    Raises:
        NotAStore: there is no such variable, or the text sets a variable.
    """
    place = where
    if where.startswith("env:"):
        name = where.removeprefix("env:")
        place = os.environ.get(name, "").strip()
        if not place:
            shown_name = name if is_public(name) else "…"
            raise NotAStore(
                f"env:{shown_name}: there is no environment variable {shown_name}; set it to the file of a store, or an account"
            )
        if place.startswith("env:"):
            raise NotAStore(f"{where}: the variable names another variable; name that, or the place")
    inside = _unquoted(place)
    if inside != place and (place != where or is_account(inside)):
        place = inside  # (Docker's --env-file keeps quotes, and so do many readers of .env files)
    assigned = _ASSIGNMENT.match(place)
    if assigned is not None and not _CONNECTION.match(place):
        name, value = assigned.groups()
        if _is_named(_unquoted(value)) or _CONNECTION.match(_unquoted(value)):
            raise NotAStore(
                f'the place begins with "{name}=", as a variable is set; name the variable, env:{name}, or only what follows'
            )
    return place


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1].strip() if text[:1] in ('"', "'") and text[1:].endswith(text[0]) else text


def path_of(where: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path that a user names, where only a file is possible.

    Raises:
        NotAStore: it is no path.
    """
    if isinstance(where, str):
        where = named_place(where)
        _check_path(where)
    elif hasattr(where, "__fspath__") and _SECRET.search(os.fsdecode(where)):  # (what is neither, an engine refuses)
        raise NotAStore("a connection string is not a path; pass it as text, or as env:NAME, not as a path object")
    return where


def place_of(where: Where, credential: Any = None, prefix: str | None = None) -> StoreLocation:
    """Return the place that a user names.

    Raises:
        NotAStore: it is neither a path nor an account.
        ValueError: the prefix is no name of a table, or it is a file.
    """
    if isinstance(where, str):
        where, own_prefix = split_prefix(where)
        if prefix is not None and own_prefix is not None and prefix.lower() != own_prefix.lower():
            raise ValueError(
                f"prefix={safe_repr(prefix)}, and {where}/{own_prefix} names another one; leave out one of them"
            )
        prefix = own_prefix if prefix is None else prefix
        if prefix is not None and (fault := check_table_name(prefix)) is not None:
            raise ValueError(f"prefix=: {fault}")
        if is_account(where := named_place(where)):
            return _Account(where, credential, prefix)
    if prefix is not None:
        raise ValueError("prefix= is for an account of Azure, and this is a file")
    if credential is not None:
        raise NotAStore("credential= is for an account of Azure, and this is a file")
    if isinstance(where, str | os.PathLike) or not hasattr(where, "open"):
        return _File(path_of(cast("str | os.PathLike[str]", where)))  # (what is neither is refused as a path)
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
    prefix: str | None = None,
    adopt: bool | Sequence[str] = False,
) -> Engine:
    """Open the engine that keeps what a user names.

    Args:
        where: the path of a file, ``":memory:"``, an account of Azure, ``"env:NAME"`` for a variable with one of them,
            or a place.
        schema: of the classes that are used; None for those that the place itself knows, with ``read_only``.
        read_only: as for `tablemapper.open`.
        credential: as for `tablemapper.open`.
        durability: as for `tablemapper.open`.
        timeout: as for `tablemapper.open`.
        ways_back: of the migration scripts that are known, so that an older version can be kept in step.
        waited: returns how many seconds of the timeout are over when a write begins; by default none.
        prefix: as for `tablemapper.open`.
        adopt: as for `tablemapper.open`.

    Raises:
        NotAStore: it is neither a path nor an account.
        ValueError: ``":memory:"`` with ``read_only``; what is for an account, with a file.
        StoreError: as the engine raises.
    """
    if read_only and where == ":memory:":
        raise ValueError(
            '":memory:" is a store of its own each time, and empty: read_only=True; name the file of a store'
        )
    account = {name: value for name, value in (("credential", credential), ("prefix", prefix)) if value is not None}
    place = place_of(where, **account)
    reads: dict[str, Any] = {"read_only": True} if read_only else {}  # (a place of one's own need not know it)
    if adopt:
        if isinstance(place, _File):
            raise ValueError("adopt= is for tables of an account of Azure; a file holds what this library wrote")
        reads["adopt"] = adopt
    engine = place.open(schema, durability=durability, timeout=timeout, waited=waited, ways_back=ways_back, **reads)
    for label, reason in engine.schema.lost.items():
        _log.warning("%s cannot be read without its class: %s", label, reason.partition("\n")[0])
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
    backup, place = path_of(backup), path_of(place)
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


def status(place: Where, *, credential: Any = None, timeout: float | None = None, prefix: str | None = None) -> Status:
    """Return what a store maintains, the progress of builds, and its migrations.

    It needs no models, so it works for a store that no program opens any more.

    Args:
        place: the path of a file, or an account of Azure.
        credential: as for `tablemapper.open`.
        timeout: as for `tablemapper.open`.
        prefix: as for `tablemapper.open`.

    Raises:
        StoreError: there is no store in this place, or it cannot be used.
    """
    location = place_of(place, credential, prefix)
    if isinstance(location, _File):
        from .sqlite.online.status import status_of_file

        return status_of_file(location.path, timeout=5.0 if timeout is None else timeout)
    engine = open_engine(location, None, read_only=True, timeout=timeout)
    try:
        return engine.status()
    finally:
        engine.close()


def remove(account: str, prefix: str, *, credential: Any = None) -> None:
    """Delete the tables of a store in an account, its catalogue last.

    Raises:
        NotAStore: it is no account.
        StoreError: the service does not answer, or refuses.
    """
    place = place_of(account, credential, prefix)
    if not isinstance(place, _Account):
        raise NotAStore(f"{safe_repr(account)}: expected an account of Azure")
    place.remove()


def open_migrations(
    where: Where,
    *,
    durability: Literal["full", "relaxed"] = "full",
    timeout: float | None = None,
    credential: Any = None,
    prefix: str | None = None,
) -> MigrationEngine:
    """Open a store for migrations.

    Args:
        where: the path of a file, an account of Azure, or a place.
        durability: as for `tablemapper.open`.
        timeout: as for `tablemapper.open`.
        credential: as for `tablemapper.open`.
        prefix: as for `tablemapper.open`.

    Raises:
        InvalidMigration: it is a place where no migrations run.
        StoreError: there is no store in this place, or it cannot be used.
    """
    place = place_of(where, credential, prefix)
    if (migrations := getattr(place, "migrations", None)) is None:
        raise InvalidMigration(f"{safe_repr(where)}: migrations run in a file, or in an account of Azure")
    engine: MigrationEngine = migrations(durability=durability, timeout=timeout)
    return engine


def _check_path(where: str) -> None:
    if not is_public(where):  # (so it is not repeated)
        raise NotAStore("a connection string is not a path; this call is possible for a file only, such as shop.db")
    if where != ":memory:" and _MEMORY(where):
        raise NotAStore(f'{safe_repr(where)} is no path; write ":memory:" for a store that is never saved')
    if (url := _URL.match(where)) is None:
        return
    scheme, address = url.groups()
    if scheme.startswith(("sqlite", "file")):  # sqlite:///shop.db, sqlite:////home/ann/shop.db, file:shop.db?mode=ro
        path = address[3:] if scheme.startswith("sqlite") else address.removeprefix("//")
        raise NotAStore(
            f"{safe_repr(where)} is a URL; a store is opened by its path: {path.partition('?')[0] or ':memory:'!r}"
        )
    expectation = "that cannot be opened"
    if scheme in ("https", "http"):
        expectation = "an account of Azure is named azure://account, or by its connection string"
        raise NotAStore(f'"{scheme}:…": {expectation}, and a file by its path, as in tm.open("shop.db", models=…)')
    if scheme == "azure":
        expectation = "this call is possible for a file only"
    raise NotAStore(f'"{scheme}:…": {expectation}; name a file, as in tm.open("shop.db", models=…)')
