"""The script that undoes another one, and which scripts only change the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
from msgspec import UNSET

from ..entities.declaration import abstract_declaration, declaration_of
from ..entities.entity import Entity
from ..errors import InvalidMigration
from ..expressions.tree import Attr
from ..schema.model import model_of
from .script import Script
from .steps import AnyStep, Convert, Drop, Fill, Rekey, Rename, RenameClass, Resolve, Restore, Rewrite

__all__ = ["is_anew", "is_edit", "is_reversible", "names_of", "undoing"]


def undoing(script: Script) -> Script:
    """Return the script that undoes another one.

    Raises:
        InvalidMigration: one of its steps cannot be undone.
    """
    faults = [
        f"it cannot be undone: {step}" + _wanted(step) for step in script.steps if not is_reversible(step, script)
    ]
    if faults:
        raise InvalidMigration(script.id, faults)
    steps = [one for step in reversed(script.steps) for one in _undone(step, script)]
    return attrs.evolve(script, old=script.new, new=script.old, steps=tuple(steps))


def is_reversible(step: AnyStep, script: Script) -> bool:
    """Return whether a step can be undone."""
    match step:
        case Rename() | RenameClass() | Rekey() | Fill() | Restore():
            return True
        case Resolve():
            return False
        case Convert(with_=with_, back=back):
            return back is not None or (isinstance(with_, Mapping) and _is_one_to_one(step))
        case Rewrite(back=back):
            return back is not None
        case Drop(what=Attr() as attr):
            # (The key that an entity had is lost with a field of it.)
            return attr.name not in {slot.field for one in declaration_of(attr.owner).templates for slot in one.slots}
        case Drop(what=what):
            # (It stays until the migration is contracted, unless the migration copies.)
            return not isinstance(what, type) or not issubclass(what, Entity) or is_edit(script)
        case _:
            return False


def _is_one_to_one(step: Convert) -> bool:
    """Return whether a mapping gives each value of the old type another value of the new one."""
    assert isinstance(step.with_, Mapping)
    old, new = (abstract_declaration(attr.owner).field(attr.name) for attr in (step.old, step.new))
    new_values = {old.type.store(a): new.type.store(b) for a, b in step.with_.items()}
    owner: Any = step.old.owner
    members = model_of(owner).form.fields[old.property].members
    results = [new_values.get(value, value) for value in (new_values if members is UNSET else members)]
    return len(set(results)) == len(results)


def _wanted(step: AnyStep) -> str:
    if isinstance(step, Rewrite) and step.combine is not None:
        return " (it combines entities)"
    return " (it has no back=)" if isinstance(step, Convert | Rewrite) else ""


def _undone(step: AnyStep, script: Script) -> Iterator[AnyStep]:
    match step:
        case Rename(old=old, new=new):
            yield Rename(new, old)
        case RenameClass(old=old, new=new):
            yield RenameClass(new, old)
        case Rekey(old=old, new=new):
            yield Rekey(new, old)
        case Convert(old=old, new=new, with_=with_, back=back):
            other = {b: a for a, b in with_.items()} if back is None and isinstance(with_, Mapping) else back
            assert other is not None
            yield Convert(new, old, other, with_ if callable(with_) else with_.__getitem__)
        case Rewrite(old=old, into=into, back=back):
            assert back is not None
            yield from (Rewrite(cls, back, (old,)) for cls in into)
        case Fill():
            yield step  # (`Fields` undoes a fill of its old class)
        case Drop(what=Attr() as attr):
            yield Restore(attr)
        case Drop(what=what) if is_anew(script, what):
            yield from [Drop(cls) for cls in script.new if cls.__name__ == what.__name__]  # type: ignore[union-attr]
        case _:
            pass


def is_edit(script: Script) -> bool:
    """Return whether a script only changes the catalogue: it renames properties, or drops indexes and classes."""
    names = [name for renames in names_of(script).values() for name in (*renames, *renames.values())]
    return len(names) == len(set(names)) and all(
        isinstance(step, Rename)
        or (isinstance(step, Drop) and not isinstance(step.what, Attr) and not is_anew(script, step.what))
        for step in script.steps
    )


def is_anew(script: Script, what: Any) -> bool:
    """Return whether an aggregate is dropped and declared anew in a shared table, so that its classes are copied."""
    if not isinstance(what, type) or abstract_declaration(what).of is None:
        return False
    tables = [abstract_declaration(cls).table for cls in script.old]
    return tables.count(abstract_declaration(what).table) > 1 and what.__name__ in {cls.__name__ for cls in script.new}


def names_of(script: Script) -> dict[str, dict[str, str]]:
    """Return the properties that a script renames, each with its new name, by class."""
    renames: dict[str, dict[str, str]] = {}
    for step in script.steps:
        if isinstance(step, Rename):
            old, new = (abstract_declaration(attr.owner).field(attr.name).property for attr in (step.old, step.new))
            if old != new:
                renames.setdefault(step.old.owner.__name__, {})[old] = new
    return renames
