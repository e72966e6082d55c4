"""Commands about migration scripts: to write them, to compare them with the models, and to run them over a store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any

from cyclopts import App, Parameter

from ..errors import MigrationStopped, notes_of
from ..migrations.runner import migrate as run_migrations
from ..scripts.migrations import Migrations
from ..store.builds import HOLD, REST
from .administration_commands import Hold, Rest
from .app import Json, Models, Scripts, StoreArgument, existing, import_from_here, load_models
from .output import Exit, show, table

migrations_app: App = App(name="migrations", help="Migration scripts: write them, and compare them with the models.")
_PARTS = ("where", "rule", "message", "code", "warning")  # of a change


def _load(package: str) -> Migrations:
    import_from_here()
    return Migrations(package)


@contextmanager
def _package(name: str) -> Iterator[None]:
    """Create the package of the scripts if it is missing, in its parent, which has to be there; keep it if all goes well."""
    folder = _create_package(name)
    try:
        yield
    except BaseException:
        if folder is not None:
            rmtree(folder)
            sys.modules.pop(name, None)
        raise


def _create_package(name: str) -> Path | None:
    """Return the folder of a package that was missing, and is made."""
    import_from_here()
    parent, _, leaf = name.rpartition(".")
    try:
        if not leaf.isidentifier() or find_spec(name) is not None:
            return None
    except (ImportError, ValueError):  # its parent is missing or no package: importing it says so
        return None
    folder = (Path(import_module(parent).__path__[0]) if parent else Path()) / leaf
    if folder.exists():  # and is no package: importing it says that there is no package
        return None
    folder.mkdir()
    (folder / "__init__.py").touch()
    invalidate_caches()
    return folder


def migrate(
    place: StoreArgument,
    /,
    *,
    scripts: Scripts,
    to: str | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    contract: Annotated[bool, Parameter(negative="")] = False,
    limit: int | None = None,
    hold: Hold = HOLD,
    rest: Rest = REST,
    json: Json = False,
) -> Exit:
    """Run the migration scripts that have not run on a store, while other programs read and write.

    Ends with 1 if some entities cannot be converted, or if work remains.

    Args:
        to: the last script to run. If the store is past it, the scripts after it are undone. "" undoes all.
        dry_run: run every function over every entity, in a copy of the store, and change nothing.
        contract: also drop what only the old classes need. The scripts cannot be undone then.
        limit: how many entities this call copies at most.
    """
    where: dict[str, Any] = existing(place)
    path, migrations = where.pop("path"), _load(scripts)
    options = where | {"to": to, "dry_run": dry_run, "contract": contract, "limit": limit, "hold": hold, "rest": rest}
    try:
        report = run_migrations(path, migrations, progress=not json, **options)
        ending = "" if report.ok or dry_run else "not finished: run it again to continue"
    except MigrationStopped as stopped:
        report, ending = stopped.report, "\n".join([str(stopped).partition("\n")[0], *notes_of(stopped)])
    return show(report, str(report), *filter(None, [ending]), json=json, ok=report.ok)


@migrations_app.command
def plan(place: StoreArgument, /, *, scripts: Scripts, json: Json = False) -> Exit:
    """Show what `migrate` would do to a store, without running a function."""
    where = existing(place)
    return show(run_migrations(where.pop("path"), _load(scripts), dry_run=True, limit=0, **where), json=json)


@migrations_app.command
def make(name: str, /, models: Models, scripts: Scripts, *, json: Json = False) -> Exit:
    """Write the script that leads from the shapes in schema.json to the models, and bring schema.json up to date.

    If the package of the scripts is missing, it is created.

    Args:
        name: a word for what it does, such as price.
    """
    classes = load_models(models)
    with _package(scripts):
        path = _load(scripts).write(classes, name)
    text = str(path) if path.suffix == ".py" else f"no change needs a script; the next one starts from {path}"
    return show({"ok": True, "path": str(path)}, text, json=json)


@migrations_app.command
def check(models: Models, scripts: Scripts, *, json: Json = False) -> Exit:
    """Compare the models with schema.json beside the scripts, without a store: for CI.

    Ends with 1 if there are changes that need a script and have none.
    """
    changes = _load(scripts).check(load_models(models))
    rows = [(change.where, change.rule, change.message, change.code) for change in changes]
    shapes = [table("", ("where", "rule", "change", "step"), rows)] if rows else ["the models and the scripts agree"]
    members = {"ok": not changes, "changes": [{part: getattr(change, part) for part in _PARTS} for change in changes]}
    return show(members, *shapes, json=json, ok=not changes)
