"""The opening of a store at a place that a user names."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, Literal, Never

from ..engines.locations import Where, is_public, open_engine, status
from ..engines.protocol import Engine
from ..entities.aggregates import is_named
from ..entities.entity import Record
from ..errors import CorruptStore, InvalidModel, SchemaMismatch, did_you_mean, safe_repr
from ..events import Event, Observer, observer
from ..evolution.changes import SchemaChange
from ..guidance.advisor import log_advice
from ..progress import ProgressOption
from ..schema.model import Schema, compile_schema
from ..schema.rows import DAMAGE
from ..schema.specs import Forms
from ..scripts.migrations import ScriptsOption, scripts_of, ways_back
from ..scripts.source.text import script_name, script_source
from .builds import build_new
from .instrumentation import ObservedStore
from .store import Store


def open(
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
    **unknown: Never,
) -> Store:
    """Open a store, or create it.

    Args:
        path: a file, or ``":memory:"``; or an account of Azure: ``"azure://account"``, ``"azure://account/Staging"`` with
            a prefix, or a connection string.
        models: the entity and aggregate classes that are used. What else the file maintains from them stays maintained.
            With ``read_only`` they may be left out: `Store.classes` has those that the file's catalogue describes.
        read_only: nothing is written, neither to the file nor to its log, and nothing is built. A store that lacks
            something of the models is refused.
        credential: for an account: an object with ``get_token``, such as those of azure-identity, or the account's key,
            or a shared access signature.
        migrations: the scripts of the application, as for `tablemapper.migrate`. Where one has a ``back=`` function,
            the old version of the program goes on reading what is written here. Without it, the first write ends that
            version.
        durability: ``"full"``: what was acknowledged survives a power cut. ``"relaxed"``: the last transactions may be
            lost in one, all that remains is consistent.
        limits: ``"azure"`` counts the rows of indexes and aggregates in a transaction as Azure Tables would, and logs each
            warning of `advise` once, by the logger ``tablemapper.advice``.
        timeout: seconds to wait for another process that writes a file, 5 by default; for an account that does not answer,
            30 by default.
        progress: shows the building of indexes and aggregates that are new; True for a bar, or a function.
        build: build what is new before this returns, in short transactions beside other writers. False: return at once;
            until `Store.build` was called, here or elsewhere, queries do without what is new.
        observe: is called with an `Event` after each call of the store, in its thread.
        slow: seconds; a call that takes longer is logged as a warning, by the logger ``tablemapper.operations``. At
            level DEBUG, as it is set now, that logs every call.
        prefix: of one of several stores in an account: its catalogue is the table of this name, and the names of its
            tables begin with it.
        adopt: the tables of an account that may hold entities which other programs wrote, by their ``table=``; True:
            those of all models. What is maintained is built from these entities, which stay as they are but for hidden
            properties. With ``read_only`` nothing is written or built.

    Raises:
        InvalidModel: the classes do not fit together, or there are none.
        InvalidMigration: a script is wrong, or their order.
        SchemaMismatch: the file was written with other ones; every difference is listed.
        UniqueViolation: values are held twice in an index that is new and unique; open with ``build=False`` to change
            them.
        NotAStore, CorruptStore, StoreLocked, StoreReadOnly: the file cannot be used; it was left as it is.
        ValueError, TypeError: an option is none of those that are expected; nothing was opened.
    """
    refuse_unknown("open", unknown, open)
    check_limits(limits)
    watch = observer(observe, slow)
    engine = engine_of(
        path,
        models,
        read_only=read_only,
        credential=credential,
        migrations=migrations,
        durability=durability,
        timeout=timeout,
        progress=progress,
        build=build,
        prefix=prefix,
        adopt=adopt,
    )
    if limits == "azure":
        log_advice(engine.schema)
    return new_store(engine, watch, limits=limits)


def refuse_unknown(verb: str, unknown: Iterable[str], function: Callable[..., Any]) -> None:
    """Raise TypeError if a function was called with options that it has not."""
    options = [
        name for name, parameter in signature(function).parameters.items() if parameter.kind is parameter.KEYWORD_ONLY
    ]
    for name in unknown:
        mend = did_you_mean(name, options) or f" ({', '.join(options)})"
        raise TypeError(f"{verb}: {name}= is not an option{mend}")


def engine_of(
    where: Where,
    models: Sequence[type[Record]] | None,
    *,
    read_only: bool,
    migrations: ScriptsOption | None,
    progress: ProgressOption,
    build: bool,
    **options: Any,
) -> Engine:
    """Open an engine as `open` does, and build what is new if that is wanted; ``options``: others of `open_engine`."""
    schema, ways = schema_of(models, read_only=read_only), ways_back(migrations)
    with explaining(where, migrations, options["credential"], options["prefix"]):
        engine = open_engine(where, schema, read_only=read_only, ways_back=ways, **options)
    if build and not read_only:
        try:
            build_new(engine, progress)
        except BaseException:
            engine.close()
            raise
    return engine


def schema_of(models: Sequence[type[Record]] | None, *, read_only: bool) -> Schema | None:
    """Return the schema of some classes; None for those that a store itself knows, which can only be read."""
    if models is None and read_only:
        return None
    if models is None:
        raise InvalidModel(
            "models", ["expected a list of entity classes; without them, a store is only read: read_only=True"]
        )
    schema = compile_schema(models)
    if not read_only and (
        unclear := [
            f"{model.name}.{field.name}" for model in schema.models for field in model.maintained if is_named(field)
        ]
    ):
        raise InvalidModel(
            "models",
            [
                f"{', '.join(unclear)}: a catalogue says that it is maintained, and not all of how; a store that is written needs the program's class"
            ],
        )
    return schema


@contextmanager
def explaining(
    where: Where, migrations: ScriptsOption | None = None, credential: Any = None, prefix: str | None = None
) -> Iterator[None]:
    """Have a `SchemaMismatch` that a script resolves say so.

    It gets the text of a script, and names those of the application's scripts that have not run.
    """
    try:
        yield
    except SchemaMismatch as error:
        if steps := [change for change in error.changes if change.step is not None]:
            error.propose(_script(error.old, error.new, steps), script_name(steps))
        if steps and migrations is not None:
            ran = {
                migration.id
                for migration in status(where, credential=credential, prefix=prefix).history
                if migration.state != "running"
            }
            if pending := [script.id for script in scripts_of(migrations) if script.id not in ran]:
                path = os.fspath(where) if isinstance(where, str | os.PathLike) else "…"
                location = shlex.quote(path if is_public(path) else "env:…")  # (a connection string has a key)
                error.advise(
                    f"{' and '.join(pending)} {'has' if len(pending) == 1 else 'have'} not run over this store: run "
                    f"tablemapper migrate {location}, or tm.migrate"
                )
        raise


def _script(old: Forms, new: Forms, changes: Sequence[SchemaChange]) -> str:
    """Return the text of a script; raise CorruptStore if what the file says of a class makes none."""
    damage: tuple[type[Exception], ...] = (*DAMAGE, AssertionError, SyntaxError)
    try:
        return script_source(old, new, changes)
    except damage as error:
        fault = str(error) if isinstance(error, InvalidModel) else repr(error)
        raise CorruptStore(f"the catalogue cannot be read: {fault}; restore a backup") from error


def new_store(engine: Engine, watch: Observer | None, *, limits: Literal["azure"] | None) -> Store:
    """Return a store over an engine, whose calls are reported if there is an observer."""
    return Store(engine, limits=limits) if watch is None else ObservedStore(engine, watch, limits=limits)


def check_limits(limits: object) -> None:
    """Refuse ``limits=`` of another engine."""
    if limits not in ("azure", None):
        raise ValueError(f'limits={safe_repr(limits)}: expected "azure" or None')
