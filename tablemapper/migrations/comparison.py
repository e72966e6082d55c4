"""The changes between an application's classes and the schema.json of their earlier form; they need no store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ..entities.entity import Record
from ..errors import InvalidMigration, shown
from ..evolution.changes import Change
from ..evolution.evolution import form_changes
from ..schema.forms import ModelForm
from ..schema.model import compile_schema

__all__ = ["Since", "changes", "dump_form", "load_form", "schema_form"]

Since: TypeAlias = str | PathLike[str] | Mapping[str, Any]
"""A path of a schema.json, or its content."""


def schema_form(models: Sequence[type[Record]]) -> dict[str, Any]:
    """Return a description of how the store keeps these classes, in builtin types; equal classes give equal results.

    Raises:
        InvalidModel: the classes do not fit together.
    """
    found = sorted(compile_schema(models).models, key=lambda model: model.name)
    form: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({model.name: model.form for model in found}))
    return form


def changes(form: Mapping[str, Any], models: Sequence[type[Record]]) -> tuple[Change, ...]:
    """Return the differences between a form and classes, each with the rule by which a store treats it.

    Args:
        form: a result of `schema_form` for the earlier classes.
        models: all classes as they are now.

    Raises:
        InvalidMigration: the form is not a result of `schema_form`.
        InvalidModel: the classes do not fit together.
    """
    return form_changes(load_form(form), compile_schema(models))


def load_form(since: Since) -> dict[str, ModelForm]:
    """Return the forms that a file holds, or that `schema_form` gave.

    Raises:
        InvalidMigration: the file cannot be read, or holds something else.
    """
    if not isinstance(since, Mapping | str | PathLike):
        raise InvalidMigration("the form", [f"expected a result of tm.schema_form, got {shown(since)}"])
    name = "the form" if isinstance(since, Mapping) else str(since)
    try:
        plain = since if isinstance(since, Mapping) else json.loads(Path(since).read_text(encoding="utf-8"))
        return msgspec.convert(plain, dict[str, ModelForm])
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise InvalidMigration(name, [f"it cannot be read: {error}; it is what tm.schema_form gives"]) from error


def dump_form(models: Sequence[type[Record]]) -> str:
    """Return the text of a schema.json."""
    return json.dumps(schema_form(models), indent=2, ensure_ascii=False) + "\n"
