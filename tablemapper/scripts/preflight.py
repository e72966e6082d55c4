"""A script is tried before it is stored: it is imported, compared with both shapes and checked as a run would check it.

And the scripts of an application are tried against what was known of its classes when they were written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from ..errors import InvalidMigration
from ..evolution.evolution import form_changes
from ..schema.model import Schema, model_of
from ..schema.specs import Forms, ModelSpec
from .comparison import SchemaSnapshot
from .conversion_plan import check_old, transition_of
from .script import MigrationFunction, Script, load_script
from .source.nested_classes import own_types
from .validation import script_faults


def try_script(source: str, name: str, path: Path, old: Forms, new: Schema) -> None:
    """Raise InvalidMigration if a script would not lead from the old classes to the new ones.

    Args:
        source: its text, in which functions may be missing.
        name: that of its module.
        path: where it will stand.
        old: the forms of all old classes.
        new: all new classes.
    """
    forms = [*old.items(), *[(model.name, model.form) for model in new.models]]
    if own_type_faults := [
        f"{name}.{property}: only your program knows how {kind} is stored; write the script by hand, and import {kind} there"
        for name, form in forms
        for property, field in form.fields.items()
        if f" {name}(" in source
        for kind in own_types(field.json)
    ]:
        raise InvalidMigration(path.stem, list(dict.fromkeys(own_type_faults)))
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
        (function,) = [value for value in vars(module).values() if isinstance(value, MigrationFunction)]
        faults = list(_faults(load_script(path.stem, function, module=module, source=source), old, new))
    except InvalidMigration as error:
        faults = list(error.faults)
    except Exception as error:  # whatever the script raises
        faults = [f"{type(error).__name__}: {error}"]
    finally:
        del sys.modules[name]
    if faults:
        raise InvalidMigration(
            f"{path.stem}: this script would not run, so it was not written; please report that, and write it by hand",
            faults,
        )


def _faults(script: Script, old: Forms, new: Schema) -> Iterator[str]:
    """Yield the reasons why a script does not lead from the old classes to the new ones."""
    faults = script_faults(script, unwritten=True)
    yield from faults
    if faults:
        return
    check_old(script, old)
    new_forms = {model.name: model.form for model in map(model_of, script.new)}
    named_schema = Schema(tuple([model for model in new.models if model.name in new_forms]))
    yield from map(str, form_changes(new_forms, named_schema))
    old_names = {cls.__name__ for cls in script.old}
    all_forms = {name: form for name, form in old.items() if name not in old_names} | new_forms
    yield from [str(change) for change in form_changes(all_forms, new) if change.stops]
    transition_of(_complete(script), old)


def _complete(script: Script) -> Script:
    """Return a script with a function where one is missing."""
    steps: list[Any] = list(script.steps)
    for at, step in enumerate(steps):
        if getattr(step, "with_", None) is ...:
            steps[at] = attrs.evolve(step, with_=lambda *_: None)
    return attrs.evolve(script, steps=tuple(steps))


def gaps(scripts: Sequence[Script], snapshot: SchemaSnapshot) -> list[str]:
    """Return the classes that scripts should name and do not, from the one on that a schema.json belongs to."""
    if snapshot.before is None:
        return []
    faults: list[str] = []
    forms: dict[str, ModelSpec] = dict(snapshot.classes)
    started = snapshot.script is None
    for script in scripts:
        if script.id == snapshot.script:
            started = True
            forms = {name: form for name, form in forms.items() if name in snapshot.before}
        if not started:
            continue
        forms |= {cls.__name__: model_of(cls).form for cls in script.old}
        try:
            transition_of(script, forms)
        except InvalidMigration as error:
            faults += [f"{script.id}: {fault}" for fault in error.faults]
        old_names = {cls.__name__ for cls in script.old}
        forms = {name: form for name, form in forms.items() if name not in old_names}
        forms |= {cls.__name__: model_of(cls).form for cls in script.new}
        if script.id == snapshot.script:
            forms = {**snapshot.classes, **forms}
    return faults
