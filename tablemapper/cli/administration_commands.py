"""Commands that look after one store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from ..engines.check import Problem
from ..engines.locations import open_engine
from ..engines.locations import restore as restore_store
from ..engines.locations import status as status_of
from ..errors import InvalidModel, NotAStore, StoreReadOnly, TableMapperError
from ..schema.model import Schema
from ..store.administration import copy as copy_stores
from ..store.builds import HOLD, REST
from ..store.opening import open as open_store
from ..store.store import Store
from .app import (
    Json,
    Models,
    Scripts,
    StoreArgument,
    existing,
    find_class,
    load_models,
    located,
    title_of,
)
from .output import Exit, show, table

Hold = Annotated[float, Parameter(help="the length of a transaction in seconds; other writers wait no longer")]
Rest = Annotated[
    float, Parameter(help="the pause after a transaction that delays others, as a multiple of their delay")
]
Limit = Annotated[int | None, Parameter(help="how many entities this call reads at most")]


def _open(place: StoreArgument, models: str, scripts: str | None = None) -> Store:
    return open_store(**existing(place), models=load_models(models), migrations=scripts, build=False)


def _open_to_compare(place: StoreArgument, models: str, scripts: str | None) -> Store:
    """Open a store as its program does; one that cannot be written, such as a backup on a read-only mount, to read."""
    try:
        return _open(place, models, scripts)
    except StoreReadOnly:
        return open_store(**existing(place), models=load_models(models), migrations=scripts, read_only=True)


def _without_models(where: dict[str, Any]) -> Store:
    """Open a store for what needs none of its classes."""
    return Store(open_engine(where.pop("path"), Schema(()), **where))


def _problems(title: str, problems: Iterable[Problem]) -> list[Table | str]:
    rows = [(problem.kind, problem.where, problem.key, problem.detail) for problem in problems]
    return [table(title, ("kind", "where", "key", "detail"), rows)] if rows else []


def status(place: StoreArgument, /, *, json: Json = False) -> Exit:
    """Show what a store holds, the progress of builds, and the migrations that have run."""
    where = existing(place)
    return show(status_of(where.pop("path"), **where), json=json)


def build(
    place: StoreArgument,
    /,
    *,
    models: Models,
    limit: Limit = None,
    hold: Hold = HOLD,
    rest: Rest = REST,
    json: Json = False,
) -> Exit:
    """Build new indexes and aggregates while other programs write.

    Ends with 1 if some remain to be built, or if two entities hold the same value of a new unique index.
    """
    with _open(place, models) as store:
        report = store.build(limit=limit, hold=hold, rest=rest, progress=not json)
    return show(report, json=json, ok=report.ok)


def check(place: StoreArgument, /, *, models: Models, scripts: Scripts | None = None, json: Json = False) -> Exit:
    """Compare every index row and every aggregate with the entities; end with 1 if something differs.

    With the scripts, also compare what an older version reads where functions of the scripts compute it.
    """
    with _open_to_compare(place, models, scripts) as store:
        report = store.check(progress=not json)
    summary = str(report).partition("\n")[0]
    beside = [f"foreign: {label}" for label in report.foreign] + [
        f"not compared: {label}" for label in report.unchecked
    ]
    return show(report, summary, *_problems("", report.problems), *beside, json=json, ok=report.ok)


def adopt(
    place: StoreArgument,
    /,
    *,
    models: Models,
    table: Annotated[
        list[str] | None,
        Parameter(help="a table that may hold entities already; without it, each of the models", negative=""),
    ] = None,
    json: Json = False,
) -> Exit:
    """Open tables of an account that hold entities of other programs, and build what is maintained from them.

    Ends with 1 if two entities hold the same value of a unique index.
    """
    where = located(place)
    if isinstance(where["path"], Path):
        raise NotAStore("this command is for tables of an account of Azure; a file holds what this library wrote")
    classes = load_models(models)
    try:
        store = open_store(**where, models=classes, adopt=table or True, build=False)
    except ValueError as error:
        if isinstance(error, TableMapperError):
            raise
        raise InvalidModel(str(error).replace("adopt=", "--table", 1)) from None  # (no class has the table)
    with store:
        ok = store.build(progress=not json).ok
        report = store.status()
    return show(report, json=json, ok=ok)


def sweep(place: StoreArgument, /, *, models: Models, full: bool = False, json: Json = False) -> Exit:
    """Finish or undo what writers left that ended early, in the tables of an account; a file has nothing of that.

    Args:
        full: also remove what is not needed any more to finish writes.
    """
    with _open(place, models) as store:
        write_count = store.sweep(full=full, progress=not json)
    return show({"ok": True, "writes": write_count}, f"{write_count:,} writes finished or undone", json=json)


def repair(place: StoreArgument, /, *, models: Models, json: Json = False) -> Exit:
    """Correct every index row and every aggregate from the entities; end with 1 if a problem remains."""
    with _open(place, models) as store:
        report = store.repair(progress=not json)
    summary = str(report).partition("\n")[0]
    shapes = [*_problems("repaired", report.repaired), *_problems("left", report.remaining)]
    return show(report, summary, *shapes, json=json, ok=report.ok)


def compact(place: StoreArgument, /, *, json: Json = False) -> Exit:
    """Rewrite the file without the space of deleted entities; no other program may have it open."""
    path = existing(place)["path"]
    if not isinstance(path, Path):
        raise NotAStore("this command is possible for the file of a store only, and this is an account of Azure")
    old_size = path.stat().st_size
    with _without_models({"path": path}) as store:
        store.compact(progress=not json)
    new_size = path.stat().st_size
    return show(
        {"ok": True, "before": old_size, "after": new_size}, f"{path}: {old_size:,} bytes, now {new_size:,}", json=json
    )


def freeze(place: StoreArgument, /, *, json: Json = False) -> Exit:
    """Stop all programs from changing entities, so that the store can move; once it returns, none does."""
    with _without_models(existing(place)) as store:
        store.freeze(progress=not json)
        since = store.status().frozen
    return show({"ok": True, "frozen": since}, f"{title_of(place)}: frozen, and only read", json=json)


def unfreeze(place: StoreArgument, /, *, json: Json = False) -> Exit:
    """Let programs change entities again."""
    with _without_models(existing(place)) as store:
        store.unfreeze()
    return show({"ok": True, "frozen": None}, f"{title_of(place)}: programs write again", json=json)


def backup(place: StoreArgument, copy: Path, /, *, models: Models | None = None, json: Json = False) -> Exit:
    """Write a copy of the store as it is now, while it is in use; of an account, with the models.

    Args:
        copy: the file that is written; there must be none.
    """
    where = existing(place)
    if isinstance(where["path"], str) and models is None:
        raise InvalidModel("a backup of an account needs the models, as in --models shop.models")
    with _without_models(where) if isinstance(where["path"], Path) else _open(place, models or "") as store:
        store.backup(copy, progress=not json)
    return show({"ok": True, "copy": str(copy)}, f"{copy}: a copy of {title_of(place)}", json=json)


def copy(
    source: StoreArgument,
    target: StoreArgument,
    /,
    *,
    models: Models,
    only: Annotated[
        list[str] | None,
        Parameter(
            name="--class", help="a class that is copied, with what is maintained from it; without it, all", negative=""
        ),
    ] = None,
    json: Json = False,
) -> Exit:
    """Make the entities of one store those of another, which is created if there is none: a file or an account, either way.

    It writes only what differs, and deletes what only the target has.
    """
    with (
        _open(source, models) as source_store,
        open_store(**located(target), models=load_models(models)) as target_store,
    ):
        classes = None if only is None else [find_class(source_store, name) for name in only]
        report = copy_stores(source_store, target_store, only=classes, progress=not json)
    return show(report, json=json)


def restore(copy: Path, place: Path, /, *, overwrite: bool = False, json: Json = False) -> Exit:
    """Put a copy of a backup in the place of a store that no program has open.

    Args:
        copy: what `tablemapper backup` wrote.
        place: the file that is written.
        overwrite: replace what is there.
    """
    restore_store(copy, place, overwrite=overwrite)
    return show({"ok": True, "place": str(place)}, f"{place}: restored from {copy}", json=json)
