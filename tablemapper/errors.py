"""The exceptions of tablemapper, one tree.

Every error that the library raises by itself is in it. Each is also the builtin that it mirrors, so code that never
heard of tablemapper still catches it. Only what is wrong in every run of a program is a plain TypeError or ValueError:
a wrong option of `tablemapper.open`, ``len()`` of a query::

    TableMapperError
    ├── InvalidModel         TypeError     a declaration is wrong (all faults of a class together)
    ├── InvalidMigration     TypeError     migration scripts are wrong, or out of order (all faults together)
    ├── InvalidEntity        ValueError    400: a value, a key or an entity cannot be written
    │   └── EntityTooLarge                 400, 413: … because an entity, or a transaction, is too large
    ├── InvalidTransaction   ValueError    400: not an entity group transaction
    ├── InvalidQuery         ValueError    400: a query that means nothing
    │   ├── ScanRefused                    … that would read what no key or index bounds
    │   └── InvalidToken                   … with a page token from elsewhere
    ├── EntityExists         KeyError      409: insert of a key that is taken
    ├── EntityNotFound       KeyError      404: no entity has this key
    ├── PreconditionFailed   ValueError    412: someone else wrote the entity since it was read
    ├── UniqueViolation      ValueError    409: a unique index holds this value for another entity
    ├── SchemaMismatch       ValueError    the models are not those that the file was written with
    ├── MigrationStopped     ValueError    entities cannot be converted; everything else was, and nothing was switched
    ├── NotReady             RuntimeError  an index or an aggregate is still being built
    ├── SnapshotTooOld       TimeoutError  a loop held its state of the store for too long
    ├── QueryStopped         TimeoutError  a query took longer, or read more, than its budget allows
    └── StoreError           OSError       the file itself
        ├── StoreClosed                    used after close(), or in a forked child
        ├── StoreLocked                    another process writes for longer than the timeout, or the store is frozen
        ├── StoreReadOnly                  the file or its directory cannot be written
        ├── StoreFull                      no space left
        ├── NotAStore                      the file is something else; it was left untouched
        ├── CorruptStore                   the file is damaged, or its rows contradict each other
        └── OutcomeUnknown                 COMMIT failed: the transaction may be there or not

The text of an error says what is wrong, what was expected and what to do next; the same facts stand in its attributes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

__all__ = [
    "CorruptStore",
    "EntityExists",
    "EntityNotFound",
    "EntityTooLarge",
    "InvalidEntity",
    "InvalidMigration",
    "InvalidModel",
    "InvalidQuery",
    "InvalidToken",
    "InvalidTransaction",
    "MigrationStopped",
    "NotAStore",
    "NotReady",
    "OutcomeUnknown",
    "PreconditionFailed",
    "QueryStopped",
    "ScanRefused",
    "SchemaMismatch",
    "SnapshotTooOld",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreReadOnly",
    "TableMapperError",
    "UniqueViolation",
    "check_seconds",
    "did_you_mean",
    "note_written",
    "notes_of",
    "safe_repr",
]


class TableMapperError(Exception):
    """The root of every error of this library."""

    def __init__(self, message: str, /) -> None:
        super().__init__(message)
        self.message: str = message

    def __str__(self) -> str:  # KeyError would show the repr
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.__dict__)


def _rebuild(kind: type[TableMapperError], message: str, state: dict[str, Any]) -> TableMapperError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


_MAX_FAULTS = 50  # faults in a message


class _Faults(TableMapperError):
    """An error that reports everything wrong at once; ``faults`` holds one line each."""

    def __init__(self, subject: str, faults: Sequence[str] = (), /) -> None:
        self.subject = subject
        self.faults: tuple[str, ...] = tuple(faults)
        if len(self.faults) == 1:
            message = f"{subject}: {self.faults[0]}"
        elif self.faults:
            lines = [f"{subject}: {len(self.faults)} faults", *(f"  - {fault}" for fault in self.faults[:_MAX_FAULTS])]
            if (hidden := len(self.faults) - _MAX_FAULTS) > 0:
                lines.append(f"  - and {hidden} more, which the attribute faults has")
            message = "\n".join(lines)
        else:
            message = subject
        super().__init__(message)


class InvalidModel(_Faults, TypeError):
    """A declaration is wrong. ``faults`` has a line for each fault."""


class InvalidMigration(_Faults, TypeError):
    """Migration scripts are wrong, or do not follow each other. ``faults`` has a line for each fault."""


class InvalidEntity(_Faults, ValueError):
    """An entity, a key or a value cannot be stored. ``faults`` lists everything that is wrong, each with its path."""


class EntityTooLarge(InvalidEntity):
    """An entity, or a transaction, is over the size that Azure Table storage takes (1 MiB, 4 MiB)."""


class InvalidTransaction(TableMapperError, ValueError):
    """The operations are not an entity group transaction: one table and partition, at most 100 entities, each once.

    Or the block does not write what it changed of an entity that it read.
    """


class InvalidQuery(TableMapperError, ValueError):
    """A query makes no sense: a field of another class, a negative limit, an order by a field that has no order."""


class ScanRefused(InvalidQuery):
    """No key or index bounds the query, and ``.allow_scan()`` was not called."""


class InvalidToken(InvalidQuery):
    """A page token comes from another query, another schema or another store, or was changed."""


class MigrationStopped(TableMapperError, ValueError):
    """A migration cannot convert some entities, so the store has not switched.

    Correct them or the script, and run it again.

    ``report`` is the `MigrationReport` of the completed work; ``faults`` lists the entities, each with the reason.
    """

    def __init__(self, message: str, /, *, report: Any = None) -> None:
        super().__init__(message)
        self.report = report

    @property
    def faults(self) -> tuple[Any, ...]:
        return () if self.report is None else self.report.faults


class NotReady(TableMapperError, RuntimeError):
    """An index or an aggregate cannot be read yet.

    ``where`` is its name, as in ``Product.by_name``; ``done`` of ``total`` entities are in it.
    """

    def __init__(self, message: str, /, *, where: str = "", done: int = 0, total: int = 0) -> None:
        super().__init__(message)
        self.where = where
        self.done = done
        self.total = total


class _Named(TableMapperError):
    """An error about one entity. ``entity`` is its class name, ``key`` its (partition key, row key) as stored."""

    def __init__(self, message: str, /, *, entity: str = "", key: tuple[str, str] | None = None) -> None:
        super().__init__(message)
        self.entity = entity
        self.key = key


class EntityExists(_Named, KeyError):
    """An entity with this key exists already."""


class EntityNotFound(_Named, KeyError):
    """No entity has this key."""


class PreconditionFailed(_Named, ValueError):
    """Someone else wrote the entity since it was read, or it was never read from this store.

    ``etag`` is that of the stored entity, if the store read it.
    """

    def __init__(
        self, message: str, /, *, entity: str = "", key: tuple[str, str] | None = None, etag: str | None = None
    ) -> None:
        super().__init__(message, entity=entity, key=key)
        self.etag = etag


class UniqueViolation(_Named, ValueError):
    """Another entity holds this value of a unique index. ``index`` names it, ``holder`` is the other entity's key."""

    def __init__(
        self,
        message: str,
        /,
        *,
        entity: str = "",
        key: tuple[str, str] | None = None,
        index: str = "",
        holder: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(message, entity=entity, key=key)
        self.index = index
        self.holder = holder


class SchemaMismatch(_Faults, ValueError):
    """The models differ from the file's catalogue in a way that `tablemapper.open` cannot take over.

    ``faults`` lists it.

    ``script`` is the text of a migration script that makes the changes, if a script can; ``...`` in it stands for
    functions that you have to write. ``changes`` are what keeps the store from being opened, each a `Change`, between the
    classes in the file, ``old``, and those of the program, ``new``: their forms, by name.
    """

    def __init__(
        self,
        subject: str,
        faults: Sequence[str] = (),
        /,
        *,
        changes: Sequence[Any] = (),
        old: Mapping[str, Any] | None = None,
        new: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(subject, faults)
        self.changes: tuple[Any, ...] = tuple(changes)
        self.old: Mapping[str, Any] = old or {}
        self.new: Mapping[str, Any] = new or {}
        self.script: str | None = None

    def propose(self, script: str, name: str, /) -> None:
        """Give the error the text of a script that makes the changes, and say how to get one of this name."""
        self.script = script
        self.advise(
            "This needs a migration. If its script is written, run: tablemapper migrate PLACE. If not, run: tablemapper "
            f"migrations make {name}, or write migrations/NNNN_{name}.py: the attribute script of this error is its text"
        )

    def advise(self, remedy: str, /) -> None:
        """Say what to do about the differences."""
        self.message: str = "\n".join([*self.faults, remedy])
        self.args: tuple[Any, ...] = (self.message,)


class SnapshotTooOld(TableMapperError, TimeoutError):
    """A loop over a query was open for longer than the store keeps its state."""


class QueryStopped(TableMapperError, TimeoutError):
    """A query used up its budget. ``examined`` rows were read in ``seconds``."""

    def __init__(self, message: str, /, *, examined: int = 0, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.examined = examined
        self.seconds = seconds


class StoreError(TableMapperError, OSError):
    """The file that holds the store cannot be used."""


class StoreClosed(StoreError):
    """The store was closed, or belongs to the parent of this forked process."""


class StoreLocked(StoreError):
    """Others wrote, or used all connections, for longer than the timeout; or the store is frozen, or a class is being cleared.

    Nothing was written.
    """


class StoreReadOnly(StoreError):
    """The file, or the directory that holds it, cannot be written."""


class StoreFull(StoreError):
    """The disk is full. Nothing was written."""


class NotAStore(StoreError):
    """The file is not a tablemapper store, or has a format that this version does not read. It was left as it is."""


class CorruptStore(StoreError):
    """The file is damaged, or its rows contradict each other; ``check()`` lists what is wrong.

    `Store.repair` corrects indexes and aggregates; for other damage, restore a backup.
    """


class OutcomeUnknown(_Named, StoreError):
    """COMMIT failed, and it is uncertain whether the transaction is in the file. Read the data before you retry.

    On Azure Tables ``entity`` and ``key`` are those of the first operation.
    """


def note_written(error: BaseException, verb: str, count: int, hint: str = "") -> None:
    """Write into an error how many entities were written before it, as a note and as its ``written``."""
    error.add_note(f"{verb}: {count} entities were written before this{hint}")
    with suppress(AttributeError):
        error.written = count  # type: ignore[attr-defined]


def notes_of(error: BaseException) -> tuple[str, ...]:
    """Return the notes that were added to an error."""
    return tuple(getattr(error, "__notes__", ()))


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return ``; did you mean "x"?`` for the nearest of the known names, or nothing."""
    near = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f'; did you mean "{near[0]}"?' if near else ""


_ADDRESS = re.compile(" at 0x[0-9A-Fa-f]+")


def check_seconds(option: str, value: object) -> None:
    """Raise ValueError if an option is no number of seconds, 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError(f"{option}={safe_repr(value)}: expected a number of seconds, 0 or more")


def safe_repr(value: object, most: int = 60) -> str:
    """Return a value as text for a message: never long, without addresses, and no error, whatever its repr is."""
    try:
        text = repr(value)
    except Exception:  # such as a RecursionError, or ValueError for an int of very many digits
        return "…"
    if not isinstance(value, str | bytes):
        text = _ADDRESS.sub("", text)
    return text if len(text) <= most else f"{text[: most - 1]}…"
