"""Whether the old version of a program can go on after a migration, and what a store has to know for that.

A link says which properties of an old and a new class are the same, and which values stand for which, so that a store keeps
both in step without the script. It can be made where each entity of the new class tells the old one, and the old key; if it
also tells the way back, the old version can write, too. The classes of a script follow the weakest of its steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET
from msgspec.structs import replace

from ..entities.declaration import abstract_declaration
from ..entities.entity import Entity
from ..evolution.renames import with_properties
from ..evolution.translation import function_name
from ..schema.forms import FieldForm, LinkForm, ModelForm
from ..schema.model import model_of
from .fields import origins
from .script import Script
from .steps import Convert, Fill, Join, Rewrite

__all__ = ["links_of"]

_Level = Literal["writes", "reads"]


class _Unlinked(Exception):
    """An old class and a new one are not the same entities for whoever knows only the catalogue."""


def links_of(script: Script, pairs: Mapping[Any, Any], affected: frozenset[str]) -> tuple[tuple[LinkForm, ...], _Level]:
    """Return the links from old classes to new ones, and what the old version can do with them; no links if it stops.

    Args:
        script: its steps say.
        pairs: old classes, each with the one that it becomes.
        affected: the old classes that end, by name.
    """
    if any(isinstance(step, Rewrite | Join) for step in script.steps):
        return (), "writes"
    if all(model_of(old).form_hash == model_of(new).form_hash for old, new in pairs.items()):
        return (), "writes"  # nobody could tell the versions apart
    links: list[LinkForm] = []
    level: _Level = "writes"
    for old, new in pairs.items():
        if old.__name__ in affected and issubclass(old, Entity):
            try:
                link, one = _link(script, old, new)
            except _Unlinked:
                return (), "writes"
            links.append(link)
            level = "reads" if one == "reads" else level
    return tuple(links), level


def _link(script: Script, old: Any, new: Any) -> tuple[LinkForm, _Level]:
    before, after = model_of(old), model_of(new)
    source, target = before.form, after.form
    steps = {step.new.name: step for step in script.steps if isinstance(step, Convert | Fill) and step.new.owner is new}
    properties: dict[str, str] = {}
    values: dict[str, list[tuple[Any, Any]]] = {}
    functions: dict[str, str] = {}
    level: _Level = "writes"
    for name, was in origins(script, old, new).items():
        a, b = abstract_declaration(old).field(was), abstract_declaration(new).field(name)
        properties[a.property] = b.property
        one, other, step = source.fields[a.property], target.fields[b.property], steps.get(name)
        if isinstance(step, Convert):
            if not isinstance(step.with_, Mapping) or step.back is not None:
                function = function_name(step.back, other, one)
                if function is None or one.in_key or other.in_key:
                    raise _Unlinked
                functions[b.property] = function
                level = "reads"
                continue
            given = [(a.type.store(x), b.type.store(y)) for x, y in step.with_.items()]
            values[a.property] = _one_to_one(given, one, other)
        elif _plain(one) != _plain(other):
            if not one.optional or _plain(replace(one, optional=False)) != _plain(other):
                raise _Unlinked
            level = "reads"  # it may have None, which the new one cannot
    for property, field in target.fields.items():
        if property not in properties.values() and not _can_lack(field):
            level = "reads"
    if any(isinstance(step, Fill) for step in steps.values()):
        level = "reads"
    gone = {property: field for property, field in source.fields.items() if property not in properties}
    if not all(map(_can_lack, gone.values())):
        raise _Unlinked
    extra = any(field.type == "extra" for field in (*source.fields.values(), *target.fields.values()))
    if extra and (properties.keys() != source.fields.keys() or set(properties.values()) != target.fields.keys()):
        raise _Unlinked  # what one of them declares is among the undeclared properties of the other
    _check_keys(before, after, {old: new for old, new in properties.items() if new not in functions})
    _check_unique(source, target, properties)
    return LinkForm(before.name, after.name, properties, values, functions), level


def _plain(field: FieldForm) -> FieldForm:
    return replace(field, default=None, in_key=False)


def _can_lack(field: FieldForm) -> bool:
    """Return whether a field has something to be where nobody has given it a value."""
    return field.optional or field.default is not None


def _one_to_one(given: list[tuple[Any, Any]], old: FieldForm, new: FieldForm) -> list[tuple[Any, Any]]:
    """Return which value stands for which; each value of either type has exactly one of the other."""
    if old.optional != new.optional or not all(isinstance(one, str | int) for pair in given for one in pair):
        raise _Unlinked
    if old.members is not UNSET and new.members is not UNSET and not old.type.startswith("list["):
        pairs = {one: dict(given).get(one, one) for one in old.members}
        if sorted(pairs.values()) != sorted(new.members):
            raise _Unlinked
        return list(pairs.items())
    if (
        _plain(old) != _plain(new)
        or {a for a, _ in given} != {b for _, b in given}
        or len(dict(given)) != len({b for _, b in given})
    ):
        raise _Unlinked
    return given


def _check_keys(before: Any, after: Any, properties: Mapping[str, str]) -> None:
    """Raise if the key of the one class does not tell the key of the other one."""
    keyed = []
    for model in (before, after):
        lossless = frozenset[str]().union(*[template.lossless_fields for template in model.declaration.templates])
        fields = {slot.field for template in model.declaration.templates for slot in template.slots}
        if fields - lossless:
            raise _Unlinked
        keyed.append({model.declaration.field(name).property for name in fields})
    if {properties.get(one) for one in keyed[0]} != keyed[1]:
        raise _Unlinked


def _check_unique(source: ModelForm, target: ModelForm, properties: Mapping[str, str]) -> None:
    """Raise if values have to differ in the old class that may be alike in the new one."""
    names = {old: new for old, new in properties.items() if old != new}
    for name, index in with_properties(source, names).indexes.items():
        other = target.indexes.get(name)
        if index.unique and (
            other is None or not other.unique or (other.partition, other.row, other.where) != (index.partition, index.row, index.where)
        ):  # fmt: skip
            raise _Unlinked
