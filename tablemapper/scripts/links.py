"""Links: whether the old version of a program can go on after a migration, and how the store keeps it in step.

A link says which properties of an old and a new class correspond, and which values, so that a store keeps both in step
without the script. There is a link if each new entity determines the old one, and its key. If each old entity also
determines the new one, the old version can write, too. The weakest step of a script decides for all of its classes.

If only a function of the script determines the old entity, the link names the step, and a process that writes needs the
script. Then the old entity is the result of undoing the script for the new one, so all of its steps must be reversible.
The copy checks that this leads to each old entity again, from exactly one new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET
from msgspec.structs import replace

from ..catalogue.transitions import Conversion
from ..entities.declaration import abstract_declaration
from ..entities.entity import Entity, Record
from ..entities.fields import FieldModel
from ..evolution.renames import with_properties
from ..evolution.spec_compiler import entity_model
from ..evolution.translation import function_name
from ..schema.model import model_of
from ..schema.specs import FieldSpec, IndexSpec, LinkSpec, ModelSpec
from .field_converter import FieldConverter, origins
from .script import Script, undoing
from .steps import Convert, Fill, Join, Rewrite

_Level = Literal["writes", "reads"]


class _Unlinked(Exception):
    """The error of an old class that no link can lead from."""


def links_of(
    script: Script, pairs: Mapping[Any, Any], affected: frozenset[str], *, is_undoing: bool = False
) -> tuple[tuple[LinkSpec, ...], _Level]:
    """Return the links from old classes to new ones, and whether the old version goes on; no links if it stops.

    Args:
        pairs: the old classes, each with the new class that replaces it.
        affected: the names of the old classes that end.
        is_undoing: whether the script undoes a migration. Then no process has its functions: programs have the script that it
            undoes.
    """
    try:
        rewrites = _rewrite_links(script, pairs)
        replaced = [(old, new) for old, new in pairs.items() if old.__name__ in affected and issubclass(old, Entity)]
        correspondences = [_Correspondence(script, old, new) for old, new in replaced]
        links = (*rewrites, *[correspondence.link() for correspondence in correspondences])
    except _Unlinked:
        return (), "writes"
    if is_undoing and any(link.steps for link in links):
        return (), "writes"
    return links, "writes" if not rewrites and all(
        correspondence.writes for correspondence in correspondences
    ) else "reads"


def _rewrite_links(script: Script, pairs: Mapping[Any, Any]) -> list[LinkSpec]:
    """Return the links of the classes that a script rewrites; raise _Unlinked if no class can have one."""
    if any(isinstance(step, Join) for step in script.steps):
        raise _Unlinked
    rewrites = [step for step in script.steps if isinstance(step, Rewrite)]
    if not rewrites and all(_same_version(old, new) for old, new in pairs.items()):
        raise _Unlinked
    targets = [*pairs.values(), *[cls for step in rewrites for cls in step.into]]
    for step in rewrites:
        has_others = any(targets.count(cls) > 1 for cls in step.into)
        if has_others or not _leads_back(script, step):
            raise _Unlinked
    return [LinkSpec(step.old.__name__, step.into[0].__name__, {}, steps=[str(step)]) for step in rewrites]


def _same_version(old: Any, new: Any) -> bool:
    """Return whether the catalogue could not tell two classes apart."""
    return bool(old.__name__ == new.__name__ and model_of(old).form_hash == model_of(new).form_hash)


class _Correspondence:
    """The corresponding fields of an old class and the new one that replaces it.

    Attributes:
        writes: whether the old version can write; else it can only read.

    Raises:
        _Unlinked: a field of the old class is not determined by the new one.
    """

    def __init__(self, script: Script, old: Any, new: Any) -> None:
        self._script = script
        self._old, self._new = model_of(old), model_of(new)
        self._properties: dict[str, str] = {}
        self._values: dict[str, list[tuple[Any, Any]]] = {}
        self._functions: dict[str, str] = {}
        self._steps: list[str] = []
        steps = {
            step.new.name: step for step in script.steps if isinstance(step, Convert | Fill) and step.new.owner is new
        }
        self.writes = not any(isinstance(step, Fill) for step in steps.values())
        for name, old_name in origins(script, old, new).items():
            old_field, new_field = abstract_declaration(old).field(old_name), abstract_declaration(new).field(name)
            self._properties[old_field.property] = new_field.property
            step = steps.get(name)
            if isinstance(step, Convert):
                self._add_converted(old_field, new_field, step)
            else:
                self._add_same(old_field, new_field)

    def _forms(self, old: FieldModel, new: FieldModel) -> tuple[FieldSpec, FieldSpec]:
        return self._old.form.fields[old.property], self._new.form.fields[new.property]

    def _add_same(self, old: FieldModel, new: FieldModel) -> None:
        old_form, new_form = self._forms(old, new)
        if old_form.values == new_form.values:
            return
        if not old_form.optional or replace(old_form.values, optional=False) != new_form.values:
            raise _Unlinked
        self.writes = False  # the old field may be None, and the new one cannot

    def _add_converted(self, old: FieldModel, new: FieldModel, step: Convert) -> None:
        old_form, new_form = self._forms(old, new)
        if isinstance(step.with_, Mapping) and step.back is None:
            pairs = [(old.type.store(x), new.type.store(y)) for x, y in step.with_.items()]
            self._values[old.property] = _one_to_one(pairs, old_form, new_form)
            return
        if step.back is None:
            raise _Unlinked
        self.writes = False
        function = function_name(step.back, new_form, old_form)
        if function is None or old_form.in_key or new_form.in_key:
            self._steps.append(str(step))
        else:
            self._functions[new.property] = function

    def link(self) -> LinkSpec:
        """Return the link; raise _Unlinked if the new class does not determine the old one."""
        source, target = self._old.form, self._new.form
        removed_fields = [field for property, field in source.fields.items() if property not in self._properties]
        added_fields = [field for property, field in target.fields.items() if property not in self._properties.values()]
        if not all(field.may_lack for field in removed_fields):
            raise _Unlinked
        if not all(field.may_lack for field in added_fields):
            self.writes = False
        if (removed_fields or added_fields) and (_keeps_undeclared(source) or _keeps_undeclared(target)):
            raise _Unlinked  # a property that one class declares is among the undeclared ones of the other
        _check_unique(source, target, self._properties)
        _check_keys(self._old, self._new, self._properties, exact=not self._steps)
        if self._steps:
            if removed_fields or not self._is_undone_by_script():
                raise _Unlinked  # (a function of a script returns whole old entities, and has no value for a removed field)
            return LinkSpec(self._old.name, self._new.name, {}, steps=self._steps)
        return LinkSpec(self._old.name, self._new.name, self._properties, self._values, self._functions)

    def _is_undone_by_script(self) -> bool:
        return (
            all(step.is_reversible(self._script) for step in self._script.steps)
            and _is_known(self._old.name, self._old.form)
            and _is_known(self._new.name, self._new.form)
        )


def _leads_back(script: Script, step: Rewrite) -> bool:
    """Return whether ``back=`` of a step may determine the old entity of each new one."""
    if (
        len(step.into) != 1
        or step.back is None
        or not all(other_step.is_reversible(script) for other_step in script.steps)
    ):
        return False
    old, new = model_of(step.old).form, model_of(step.into[0]).form
    if _same_version(step.old, step.into[0]):
        return False
    if any(index.unique for index in old.indexes.values()) or model_of(step.into[0]).maintained:
        return False  # the new class may have duplicates; a maintained field changes without a write of its entity
    return _is_known(step.old.__name__, old) and _is_known(step.into[0].__name__, new)


def _is_known(name: str, form: ModelSpec) -> bool:
    """Return whether the form of a class suffices to read and write its rows."""
    try:
        entity_model(name, form)
    except (TypeError, ValueError, LookupError):
        return False
    return True


def way_back(script: Script, old: Any, new: Any) -> Conversion:
    """Return the conversion of a new entity to the old one, or to none, by the functions of a script."""
    for step in script.steps:
        if isinstance(step, Rewrite) and step.old is old:
            assert step.back is not None
            return Conversion((model_of(new),), (model_of(old),), as_iterable(step.back))
    return Conversion((model_of(new),), (model_of(old),), FieldConverter(undoing(script), new, old).convert)


def as_iterable(function: Callable[..., Any]) -> Callable[[Sequence[Any]], Iterable[Any]]:
    """Return a function that always gives an iterable, where the given one may give an entity, several, or None."""

    def convert(entities: Sequence[Any]) -> Iterable[Any]:
        result = function(*entities)
        if result is None:
            return ()
        return (result,) if isinstance(result, Record) or not isinstance(result, Iterable) else result

    return convert


def _keeps_undeclared(form: ModelSpec) -> bool:
    return any(field.type == "extra" for field in form.fields.values())


def _one_to_one(pairs: list[tuple[Any, Any]], old: FieldSpec, new: FieldSpec) -> list[tuple[Any, Any]]:
    """Return pairs of an old and a new value; raise _Unlinked unless each value of either type is in exactly one pair.

    A value that is in no given pair stays as it is.
    """
    if old.optional != new.optional or not all(isinstance(value, str | int) for pair in pairs for value in pair):
        raise _Unlinked
    if old.members is not UNSET and new.members is not UNSET and not old.type.startswith("list["):
        new_values = {value: dict(pairs).get(value, value) for value in old.members}
        if sorted(new_values.values()) != sorted(new.members):
            raise _Unlinked
        return list(new_values.items())
    changed_values, results = {a for a, _ in pairs}, {b for _, b in pairs}
    if old.values != new.values or changed_values != results:
        raise _Unlinked
    return pairs


def _check_keys(before: Any, after: Any, properties: Mapping[str, str], *, exact: bool) -> None:
    """Raise _Unlinked if the keys have other fields: then two entities of one class may be one of the other.

    Args:
        properties: of the old class, each with that of the new one.
        exact: whether each key has to determine the other without the script, so that no field may lose something in
            it.
    """
    key_properties = []
    for model in (before, after):
        fields = {slot.field for template in model.declaration.templates for slot in template.slots}
        if exact and fields - model.declaration.lossless_fields:
            raise _Unlinked
        key_properties.append({model.declaration.field(name).property for name in fields})
    if {properties.get(property) for property in key_properties[0]} != key_properties[1]:
        raise _Unlinked


def _check_unique(source: ModelSpec, target: ModelSpec, properties: Mapping[str, str]) -> None:
    """Raise _Unlinked if an index of the old class is unique, and the new class does not have it as unique."""
    names = {old: new for old, new in properties.items() if old != new}
    for name, index in with_properties(source, names).indexes.items():
        if index.unique and _unique_values(target.indexes.get(name)) != _unique_values(index):
            raise _Unlinked


def _unique_values(index: IndexSpec | None) -> tuple[Any, ...] | None:
    """Return the fields that determine the values that an index keeps unique; None if there are none."""
    return (index.partition, index.row, index.where) if index is not None and index.unique else None
