"""The changes between an application's classes and the schema.json of their earlier form; they need no store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import msgspec

from ..entities.entity import Record
from ..errors import InvalidMigration, safe_repr
from ..evolution.changes import SchemaChange
from ..evolution.evolution import form_changes
from ..schema.model import compile_schema
from ..schema.specs import ModelSpec, check_names

Since: TypeAlias = str | PathLike[str] | Mapping[str, Any]
"""A path of a schema.json, or its content."""


def schema_snapshot(models: Sequence[type[Record]]) -> dict[str, Any]:
    """Return a description of how the store keeps these classes, in builtin types; equal classes give equal results.

    Raises:
        InvalidModel: the classes do not fit together.
    """
    compiled = sorted(compile_schema(models).models, key=lambda model: model.name)
    form: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({model.name: model.form for model in compiled}))
    return form


def changes(form: Mapping[str, Any], models: Sequence[type[Record]]) -> tuple[SchemaChange, ...]:
    """Return the differences between a form and classes, each with the rule by which a store treats it.

    Args:
        form: a result of `schema_snapshot` for the earlier classes.
        models: all classes as they are now.

    Raises:
        InvalidMigration: the form is not a result of `schema_snapshot`.
        InvalidModel: the classes do not fit together.
    """
    return form_changes(load_form(form), compile_schema(models))


@attrs.frozen
class SchemaSnapshot:
    """The contents of a schema.json: the classes of an application, and the script that led to them."""

    classes: dict[str, ModelSpec]
    script: str | None = None
    before: Sequence[str] | None = None
    """The names of the classes that there were before the script; None if the file has classes only."""


def load_form(since: Since) -> dict[str, ModelSpec]:
    """Return the forms that a file holds, or that `schema_snapshot` gave; errors as `load_snapshot` has them."""
    return load_snapshot(since).classes


def load_snapshot(since: Since) -> SchemaSnapshot:
    """Return the contents of a file; of the result of `schema_snapshot`, the classes.

    Raises:
        InvalidMigration: the file cannot be read, or holds something else.
    """
    if not isinstance(since, Mapping | str | PathLike):
        raise InvalidMigration("the form", [f"expected a result of tm.schema_snapshot, got {safe_repr(since)}"])
    name = "the form" if isinstance(since, Mapping) else str(since)
    try:
        plain = since if isinstance(since, Mapping) else json.loads(Path(since).read_text(encoding="utf-8"))
        is_whole = isinstance(plain, Mapping) and set(plain) == {"script", "before", "classes"}
        snapshot = msgspec.convert(plain if is_whole else {"classes": plain}, SchemaSnapshot)
        check_names(snapshot.classes)
        return snapshot
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise InvalidMigration(name, [f"it cannot be read: {error}; it is what tm.schema_snapshot gives"]) from error


def dump_snapshot(models: Sequence[type[Record]], script: str | None, before: Iterable[str] | None) -> str:
    """Return the text of a schema.json."""
    plain = {"script": script, "before": None if before is None else sorted(before), "classes": schema_snapshot(models)}
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
