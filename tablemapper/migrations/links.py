"""Whether the old version of a program can go on after a migration, and what a store has to know for that.

A link says which properties of an old and a new class are the same, and which values stand for which, so that a store keeps
both in step without the script. It can be made where each entity of the new class tells the old one, and the old key; if it
also tells the way back, the old version can write, too. The classes of a script follow the weakest of its steps.

Where only a function of the script tells the old entity, the link names the step, and whoever writes needs the script. Then
the old entity is what an undoing would make of the new one, so the whole script has to be one that can be undone. Whether
that leads to the old entities again, each from one new one, is seen while they are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET
from msgspec.structs import replace

from ..engines.migration import Conversion
from ..entities.declaration import abstract_declaration
from ..entities.entity import Entity, Record
from ..evolution.following import entity_model
from ..evolution.renames import with_properties
from ..evolution.translation import function_name
from ..schema.forms import FieldForm, LinkForm, ModelForm, form_hash
from ..schema.model import model_of
from .fields import Fields, origins
from .script import Script
from .steps import Convert, Fill, Join, Rewrite
from .undoing import is_reversible, undoing

__all__ = ["links_of", "several", "way_back"]

_Level = Literal["writes", "reads"]


class _Unlinked(Exception):
    """An old class and a new one are not the same entities for whoever knows only the catalogue."""


def links_of(
    script: Script, pairs: Mapping[Any, Any], affected: frozenset[str], *, back: bool = False
) -> tuple[tuple[LinkForm, ...], _Level]:
    """Return the links from old classes to new ones, and what the old version can do with them; no links if it stops.

    Args:
        script: its steps say.
        pairs: old classes, each with the one that it becomes.
        affected: the old classes that end, by name.
        back: whether it undoes a migration. Then nobody has its functions: what programs know is the script that it undoes.
    """
    rewrites = [step for step in script.steps if isinstance(step, Rewrite)]
    if any(isinstance(step, Join) for step in script.steps):
        return (), "writes"
    if not rewrites and all(
        old.__name__ == new.__name__ and model_of(old).form_hash == model_of(new).form_hash
        for old, new in pairs.items()
    ):
        return (), "writes"  # nobody could tell the versions apart
    links: list[LinkForm] = []
    level: _Level = "reads" if rewrites else "writes"
    made = [cls for step in rewrites for cls in step.into]
    for step in rewrites:
        if not _leads_back(script, step) or any(cls in pairs.values() or made.count(cls) > 1 for cls in step.into):
            return (), "writes"
        links.append(LinkForm(step.old.__name__, step.into[0].__name__, {}, steps=[str(step)]))
    for old, new in pairs.items():
        if old.__name__ in affected and issubclass(old, Entity):
            try:
                link, one = _link(script, old, new)
            except _Unlinked:
                return (), "writes"
            links.append(link)
            level = "reads" if one == "reads" else level
    if back and any(link.steps for link in links):
        return (), "writes"
    return tuple(links), level


def _link(script: Script, old: Any, new: Any) -> tuple[LinkForm, _Level]:
    before, after = model_of(old), model_of(new)
    source, target = before.form, after.form
    steps = {step.new.name: step for step in script.steps if isinstance(step, Convert | Fill) and step.new.owner is new}
    properties: dict[str, str] = {}
    values: dict[str, list[tuple[Any, Any]]] = {}
    functions: dict[str, str] = {}
    made: list[str] = []
    level: _Level = "writes"
    for name, was in origins(script, old, new).items():
        a, b = abstract_declaration(old).field(was), abstract_declaration(new).field(name)
        properties[a.property] = b.property
        one, other, step = source.fields[a.property], target.fields[b.property], steps.get(name)
        if isinstance(step, Convert):
            if not isinstance(step.with_, Mapping) or step.back is not None:
                function = function_name(step.back, other, one)
                if function is None or one.in_key or other.in_key:
                    if step.back is None:
                        raise _Unlinked
                    made.append(str(step))
                    continue
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
    if not all(map(_can_lack, gone.values())) or (made and gone):
        raise _Unlinked  # (the functions of a script make whole entities, and only these tables have what is gone)
    extra = any(field.type == "extra" for field in (*source.fields.values(), *target.fields.values()))
    if extra and (properties.keys() != source.fields.keys() or set(properties.values()) != target.fields.keys()):
        raise _Unlinked  # what one of them declares is among the undeclared properties of the other
    _check_unique(source, target, properties)
    if made:
        if not (
            all(is_reversible(step, script) for step in script.steps)
            and _is_known(before.name, source)
            and _is_known(after.name, target)
        ):
            raise _Unlinked
        return LinkForm(before.name, after.name, {}, steps=made), "reads"
    _check_keys(before, after, {old: new for old, new in properties.items() if new not in functions})
    return LinkForm(before.name, after.name, properties, values, functions), level


def _leads_back(script: Script, step: Rewrite) -> bool:
    """Return whether the function of a step may tell the old entity of each new one."""
    if len(step.into) != 1 or step.back is None or not all(is_reversible(one, script) for one in script.steps):
        return False
    old, new = model_of(step.old).form, model_of(step.into[0]).form
    if step.old.__name__ == step.into[0].__name__ and form_hash(old) == form_hash(new):
        return False  # nobody could tell the versions apart
    if any(index.unique for index in old.indexes.values()) or model_of(step.into[0]).maintained:
        return False  # values may be alike in the new class; what is maintained changes without a write of the entity
    return _is_known(step.old.__name__, old) and _is_known(step.into[0].__name__, new)


def _is_known(name: str, form: ModelForm) -> bool:
    """Return whether the rows of a class can be read and written by its form alone."""
    try:
        entity_model(name, form)
    except (TypeError, ValueError, LookupError):
        return False
    return True


def way_back(script: Script, old: Any, new: Any) -> Conversion:
    """Return what makes the old entity of a new one, or none, as the functions of a script say."""
    for step in script.steps:
        if isinstance(step, Rewrite) and step.old is old:
            assert step.back is not None
            return Conversion((model_of(new),), (model_of(old),), several(step.back))
    return Conversion((model_of(new),), (model_of(old),), Fields(undoing(script), new, old).convert)


def several(function: Callable[..., Any]) -> Callable[[Sequence[Any]], Iterable[Any]]:
    """Return a function of entities that gives all that one gives: none, one or several."""

    def convert(entities: Sequence[Any]) -> Iterable[Any]:
        made = function(*entities)
        if made is None:
            return ()
        return (made,) if isinstance(made, Record) or not isinstance(made, Iterable) else made

    return convert


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
