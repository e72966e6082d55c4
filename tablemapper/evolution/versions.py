"""The versions of a class that programs opened: which may still run, and why others may not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import TypeAlias

from msgspec.structs import replace

from ..builtin import Builtin
from ..schema.forms import AppliedForm, VersionForm
from ..schema.model import Model, Schema

__all__ = ["Versions", "ahead", "ended", "names_class", "newest", "retired", "retirement", "revived", "steps_of"]

Versions: TypeAlias = Mapping[str, Sequence[VersionForm]]
"""Every version that was ever opened, by the name of the class."""
_SHOWN = 3  # steps of a migration in a message


def ahead(version: VersionForm, model: Model, schema: Schema, versions: Versions) -> VersionForm:
    """Return a version of an aggregate; contracting does not retire it if its source is opened as the newest class."""
    if model.aggregate is None or version.behind is None or version.beside or version.form != model.form_hash:
        return version
    source = schema.by_class[model.aggregate.source]
    newest = any(
        other.form == source.form_hash and other.until is None and other.behind is None
        for other in versions.get(source.name, ())
    )
    return replace(version, behind=None) if newest else version


def ended(version: VersionForm, now: int) -> VersionForm:
    """Return a version that ends now, unless it ended before."""
    return replace(version, until=now, undone=False) if version.until is None or version.undone else version


def revived(versions: Versions, id: str, by: str) -> dict[str, list[VersionForm]]:
    """Return versions; those that a migration or its undoing retired may be opened again, now that the store is back.

    Args:
        versions: the versions of all classes.
        id: the migration.
        by: what retired them.
    """

    def after(version: VersionForm) -> VersionForm:
        if version.until is None or version.retired_by != by:
            return version
        older = None if version.behind == id else version.behind  # (another migration replaced it, too)
        return replace(version, retired_by=older, undone=older is None, unkept=False)

    return {name: [after(version) for version in opened] for name, opened in versions.items()}


def newest(model: Model, versions: Versions) -> str:
    """Return in words which version knows a value that a class does not know, and what to do."""
    opened = versions.get(model.name, ())
    own = [at for at, version in enumerate(opened) if version.form == model.form_hash]
    last = max((at for at, version in enumerate(opened) if version.in_use), default=-1)
    if not own or last <= own[-1]:
        return f"another version of {model.name} wrote it; declare it as that one does, or write another value with that one"
    return f"a newer version of {model.name} declares it so, which was first opened on {_date(opened[last].since)}; deploy that one"


def retirement(model: Model, versions: Versions, history: Sequence[AppliedForm]) -> str | None:
    """Return why a program with this class cannot use the store, as its form was retired; None if it was not."""
    opened = [version for version in versions.get(model.name, ()) if version.form == model.form_hash]
    return (
        None
        if not opened or any(version.until is None for version in opened)
        else retired(model.name, opened[-1], history)
    )


def steps_of(migration: str, name: str, history: Sequence[AppliedForm]) -> str:
    """Return what a migration changed of a class, or of others, in words; "" if the store does not know it any more."""
    steps = [entry.steps for entry in history if entry.id == migration][-1:]
    words = [str(step) for step in steps[0]] if steps else []
    words = [step for step in words if _is_in(name, step)] or words
    return ", and ".join([*words[:_SHOWN], *([f"{len(words) - _SHOWN} more"] if words[_SHOWN:] else [])])


def names_class(migration: str, name: str, history: Sequence[AppliedForm]) -> bool:
    """Return whether the steps of a migration name a class, or the store does not know its steps any more."""
    steps = [entry.steps for entry in history if entry.id == migration][-1:]
    return not steps or any(_is_in(name, str(step)) for step in steps[0])


def _is_in(name: str, step: str) -> bool:
    return re.search(rf"\b{name}\b", step) is not None


def retired(name: str, version: VersionForm, history: Sequence[AppliedForm]) -> str:
    """Return why a retired version of a class cannot be used: what changed, and what to do."""
    ended = _date(version.until or 0)
    if version.undone:
        return "the migration that replaced this form of the class was undone; open the store again"
    if version.retired_by is None:
        how = f"the class was declared again on {ended}, when it held no entities"
    elif version.unkept:
        how = (
            "a process that opened the store without migrations= wrote what the migration "
            f"{version.retired_by} made of the class, which ended this form of it on {ended}"
        )
    else:
        by = version.retired_by if " " in version.retired_by else f"the migration {version.retired_by}"
        how = f"{by} replaced this form of the class on {ended}"
    *undoing, id = (version.retired_by or "").split(" ")
    if steps := steps_of(id, name, history):
        how += f": {'it took back: ' if undoing else ''}{steps}"
    return f"{how}; deploy the version that declares it as it is now"


def _date(time: int) -> str:
    return str(Builtin.datetime.fromtimestamp(time / 1e6, UTC).date())
