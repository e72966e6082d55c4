"""The migration scripts of an application in their order: their check against its classes, and the next one."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from ..catalogue.transitions import BackwardConversion
from ..entities.entity import Record
from ..errors import InvalidMigration, safe_repr
from ..evolution.changes import SchemaChange
from ..evolution.evolution import form_changes
from ..schema.model import Model, Schema, compile_schema, model_of
from ..schema.rows import DAMAGE
from ..schema.specs import ModelSpec
from .chain import load_functions, load_package
from .comparison import SchemaSnapshot, Since, dump_snapshot, load_form, load_snapshot
from .links import way_back
from .preflight import gaps, try_script
from .script import MigrationFunction, Script
from .source.text import script_source


class Migrations:
    """The migration scripts of an application.

    Args:
        scripts: the name of a package with a module for each script, or a list of decorated functions, whose names are
            then the ids of the scripts.

    Raises:
        InvalidMigration: everything that is wrong with a script, or with their order.
    """

    def __init__(self, scripts: str | ModuleType | Sequence[MigrationFunction]) -> None:
        self._package: ModuleType | None = None
        if isinstance(scripts, list | tuple):
            self.scripts: tuple[Script, ...] = load_functions(scripts)
            """The scripts, in order of ``after``."""
            return
        self._package = _imported(scripts)
        self.scripts = load_package(self._package)

    @property
    def ids(self) -> tuple[str, ...]:
        """The names of the scripts, in order of ``after``."""
        return tuple([script.id for script in self.scripts])

    def check(self, models: Sequence[type[Record]], since: Since | None = None) -> tuple[SchemaChange, ...]:
        """Return the changes that need a migration and have none. It is empty if the scripts and the classes agree.

        Args:
            models: all classes of the application.
            since: the classes as they were: the path of a schema.json, or a result of `tablemapper.schema_snapshot`. By
                default, the schema.json of the package.

        Raises:
            InvalidMigration: the earlier classes cannot be read, or there is neither a schema.json nor a script. Or the
                script that schema.json belongs to is missing, or a script does not name a class that it affects.
            InvalidModel: the classes do not fit together.
        """
        schema = compile_schema(models)
        forms = self._forms(schema, since)
        if not forms and since is None and self._package is not None:
            missing = "it has no schema.json and no script to compare with; run: tablemapper migrations make first"
            raise InvalidMigration(f"migrations {self._package.__name__!r}", [missing])
        if (snapshot := self._snapshot()) is not None and (faults := gaps(self.scripts, snapshot)):
            raise InvalidMigration("migrations", faults)
        return tuple([change for change in form_changes(forms, schema) if change.stops])

    def write(self, models: Sequence[type[Record]], name: str) -> Path:
        """Write the next script, and store a description of the classes in schema.json beside it.

        It tries the script first: it imports the script, compares it with both shapes, and checks it as
        `tablemapper.migrate` would.

        Where only you can write a function, the script contains ``...``. You cannot load it until you replace that.

        Args:
            models: all classes of the application.
            name: the name of the script, without its number.

        Returns:
            The path of the script, or that of schema.json if no change needs one.

        Raises:
            InvalidMigration: the scripts are not a package, or its schema.json cannot be read, or the script that this
                belongs to is missing. Or no script can make a change, or the script would not run. Nothing is written
                then.
            InvalidModel: the classes do not fit together.
        """
        folder = self._folder
        if folder is None:
            raise InvalidMigration("migrations", ["a script is written into a package; give the name of one"])
        schema = compile_schema(models)
        forms = self._forms(schema, None)
        changes = form_changes(forms, schema)
        if refusals := [str(change) for change in changes if change.stops and change.step is None]:
            raise InvalidMigration("no script can make these changes", refusals)
        steps = [change for change in changes if change.step is not None]
        snapshot = self._snapshot()
        last_id = self.ids[-1] if self.ids else None
        path = schema_path = folder / "schema.json"
        texts: dict[Path, str] = {}
        earlier: Sequence[str] | None = list(forms)
        if steps:
            new = {model.name: model.form for model in schema.models}
            path = folder / f"{self._next_id(name)}.py"
            try:
                texts[path] = script_source(forms, new, steps, after=last_id)
            except DAMAGE as error:
                fault = f"it cannot be read: {error!r}; it is what tm.schema_snapshot gives"
                raise InvalidMigration(str(schema_path), [fault]) from error
            try_script(texts[path], f"{self._package_name}.{path.stem}", path, forms, schema)
            last_id = path.stem
        elif snapshot is not None:
            keeps_snapshot = snapshot.script == last_id or snapshot.before is None
            earlier = snapshot.before if keeps_snapshot else list(snapshot.classes)
        _put({**texts, schema_path: dump_snapshot(models, last_id, earlier)})
        return path

    def _snapshot(self) -> SchemaSnapshot | None:
        """Return the contents of schema.json; None if there is none.

        Raises:
            InvalidMigration: the script that it belongs to is missing.
        """
        path = None if self._folder is None else self._folder / "schema.json"
        if path is None or not path.exists():
            return None
        snapshot = load_snapshot(path)
        if snapshot.script is not None and snapshot.script not in self.ids:
            missing = (
                f"it belongs to {snapshot.script}.py, which is missing: get that back; to write the script anew, get back the "
                f"schema.json from before it, as with git checkout HEAD~1 -- {path.name}, and run: tablemapper migrations make"
            )
            raise InvalidMigration(str(path), [missing])
        return snapshot

    @property
    def _package_name(self) -> str:
        return "" if self._package is None else self._package.__name__

    @property
    def _folder(self) -> Path | None:
        return None if self._package is None else Path(self._package.__path__[0])

    def _next_id(self, name: str) -> str:
        highest = max([int(match[0]) for id in self.ids if (match := re.match(r"\d+", id))], default=0)
        return f"{highest + 1:04}_{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_') or 'changes'}"

    def _forms(self, schema: Schema, since: Since | None) -> dict[str, ModelSpec]:
        """Return the forms of the classes in schema.json, after the scripts that were written by hand since."""
        if since is None:
            snapshot = self._snapshot()
            forms = {} if snapshot is None else dict(snapshot.classes)
            known_since = snapshot is not None
        else:
            forms, known_since = load_form(since), True
        last_forms: dict[str, ModelSpec | None] = {}
        """The form of each class after the last script that names it; None if that ends it."""
        known_properties: dict[str, set[str]] = {}
        """The properties of each class that scripts name."""
        for script in self.scripts:
            last_forms |= dict.fromkeys([cls.__name__ for cls in script.old])
            last_forms |= {cls.__name__: _form(cls) for cls in script.new}
            for cls in (*script.old, *script.new):
                known_properties.setdefault(cls.__name__, set()).update(_form(cls).fields)
        for name, form in last_forms.items():
            model = schema.by_name.get(name)
            if form is None:
                if model is None:
                    forms.pop(name, None)
            elif not known_since or (
                model is not None and _is_last(form, forms.get(name), known_properties[name], model)
            ):
                forms[name] = form
        return forms

    def __repr__(self) -> str:
        return f"<Migrations {', '.join(self.ids) or 'none'}>"


ScriptsOption: TypeAlias = Migrations | str | Sequence[MigrationFunction]
"""Scripts, as an argument of users: a `Migrations`, or what it takes."""


def scripts_of(migrations: ScriptsOption) -> tuple[Script, ...]:
    """Return the scripts of a `Migrations`, or of what makes one."""
    return (migrations if isinstance(migrations, Migrations) else Migrations(migrations)).scripts


def ways_back(migrations: ScriptsOption | None) -> tuple[BackwardConversion, ...]:
    """Return the functions by which a store keeps the mirrors of scripts in step with new entities."""
    return () if migrations is None else tuple(map(_way_back, scripts_of(migrations)))


def _way_back(script: Script) -> BackwardConversion:
    classes = {cls.__name__: cls for cls in script.old}, {cls.__name__: cls for cls in script.new}
    return BackwardConversion(
        script.id, script.digest, lambda new, old: way_back(script, classes[0][old], classes[1][new])
    )


def _put(texts: Mapping[Path, str]) -> None:
    """Write files one after the other, each whole or not at all."""
    for path, text in texts.items():
        part = path.with_name(".part")
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, path)
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        finally:
            part.unlink(missing_ok=True)


def _is_last(form: ModelSpec, snapshot_form: ModelSpec | None, known_properties: Set[str], model: Model) -> bool:
    """Return whether a class is as the scripts leave it, or as schema.json holds it, which may be older or newer.

    Args:
        form: the class after the last script that names it.
        snapshot_form: the class in schema.json.
        known_properties: the properties of the class in all scripts.
        model: the class of the application.
    """
    if snapshot_form is None:
        return True
    if _differs(form, model):  # the script leads elsewhere, unless the class has changed since both
        return not _differs(snapshot_form, model)
    return snapshot_form.fields.keys() <= known_properties  # a property that no script knows was added after them


def _differs(form: ModelSpec, model: Model) -> bool:
    """Return whether a class cannot follow a form without a migration."""
    return any(change.stops for change in form_changes({model.name: form}, Schema((model,))))


def _form(cls: type[Record]) -> ModelSpec:
    compiled: Any = model_of
    form: ModelSpec = compiled(cls).form
    return form


def _imported(package: object) -> ModuleType:
    """Return a package by its name."""
    if isinstance(package, str):
        if package.startswith("."):
            raise InvalidMigration(f"migrations {package!r}", ["name the package as in shop.migrations"])
        try:
            package = importlib.import_module(package)
        except Exception as error:  # whatever a package raises
            is_named = isinstance(error, ImportError | ValueError)
            fault = f"the package cannot be imported: {error if is_named else f'{type(error).__name__}: {error}'}"
            if isinstance(error, ModuleNotFoundError) and error.name == package:
                fault += "; this creates it: tablemapper migrations make first"
            raise InvalidMigration(f"migrations {package!r}", [fault]) from error
    if not isinstance(package, ModuleType):
        raise InvalidMigration(
            "migrations", [f"expected the name of a package, or a list of functions, got {safe_repr(package)}"]
        )
    if not hasattr(package, "__path__"):
        raise InvalidMigration(f"migrations {package.__name__!r}", ["it is a module; name a package"])
    return package
