"""Migration steps as data: one class for each step, which answers all questions about it.

A field is an `Attr` of a class in the old or the new shape, an index is what ``Product.by_name`` is. The shapes are
ordinary entity classes, frozen in the script, so they say all that a runner has to know of both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, TypeAlias

import attrs
from msgspec import UNSET
from msgspec.structs import replace

from ..entities.aggregates import Aggregate
from ..entities.declaration import abstract_declaration, declaration_of
from ..entities.entity import Entity, Record
from ..entities.index import IndexCall
from ..errors import safe_repr
from ..evolution.renames import rename_in_place, with_table
from ..expressions.tree import Attr
from ..schema.model import model_of
from .arguments import (
    ScriptModels,
    class_faults,
    field_faults,
    field_of,
    form_of,
    function_faults,
    index_faults,
    is_unique,
    type_name,
)
from .spec_changes import SpecChanges, without, without_index
from .step_base import ClassStep, FieldStep, Sides, Step

_Field: TypeAlias = Attr[Any, Any]
_Class: TypeAlias = type[Record]


def _filled_from(attr: _Field, shapes: ScriptModels) -> tuple[Any, ...]:
    """Return the old class of the entities that get a field; that is on the old side if the step is undone."""
    return next(((old,) for old, new in pairs(shapes).items() if attr.owner in (old, new)), ())


@attrs.frozen(eq=False)
class Rename(FieldStep):
    """A field keeps its values and its type, and has another name."""

    method = "rename"

    def __str__(self) -> str:
        return f"rename {self.old!r} to {_relative_name(self.new, self.old)}"

    def faults(self, shapes: ScriptModels) -> Iterator[str]:
        first = yield from field_faults("old", self.old, shapes)
        second = yield from field_faults("new", self.new, shapes)
        if first and second and form_of(self.old).values != form_of(self.new).values:
            old_type, new_type = type_name(field_of(self.old)), type_name(field_of(self.new))
            yield (
                f"{self.old!r} is {old_type} and {self.new!r} is {new_type}; m.convert gives a field another type, and another name"
            )

    def is_edit(self, shapes: ScriptModels) -> bool:
        return True

    def undone(self, shapes: ScriptModels) -> Iterator[AnyStep]:
        yield Rename(self.new, self.old)


@attrs.frozen(eq=False)
class RenameClass(ClassStep):
    """A class, its table, or both have another name."""

    method = "rename_class"

    def __str__(self) -> str:
        if self.old.__name__ != self.new.__name__:
            return f"rename {self.old.__name__} to {self.new.__name__}"
        old, new = (abstract_declaration(cls).table for cls in (self.old, self.new))
        return f'rename the table "{old}" of {self.old.__name__} to "{new}"'

    def apply_to_class(self, shape: SpecChanges) -> Iterator[str]:
        name = self.new.__name__
        shape.forms[name] = with_table(shape.forms[name], declaration_of(self.new).table)
        yield from ()


@attrs.frozen(eq=False)
class Rekey(ClassStep):
    """The fields are the same, and the key is made of them in another way."""

    method = "rekey"

    def __str__(self) -> str:
        return f"rekey {_classes(self.old, self.new)}"

    def apply_to_class(self, shape: SpecChanges) -> Iterator[str]:
        name = self.new.__name__
        old, new = shape.forms[name], shape.targets[name]
        missing = new.key_fields - old.fields.keys()
        for property in sorted(missing):
            yield (
                f"the new key needs {property}, which old.{self.old.__name__} does not have; m.rewrite makes entities with it"
            )
        fields = {
            property: replace(field, in_key=new.fields[property].in_key) if property in new.fields else field
            for property, field in old.fields.items()
        }
        fields |= {property: new.fields[property] for property in missing}
        shape.forms[name] = replace(old, partition=new.partition, row=new.row, type=new.type, fields=fields)


@attrs.frozen(eq=False)
class Convert(FieldStep):
    """A field has another type."""

    method = "convert"
    takes_function = True
    with_: Callable[[Any], Any] | Mapping[Any, Any]
    """A function of the old value, or the new values by the old ones; a value that is not in a mapping stays as it is.

    None stays None where the new field can be None, and is handed to the function where it cannot."""
    back: Callable[[Any], Any] | None = None
    """From the new value to the old one. A mapping has its own, if it is one to one."""

    def __str__(self) -> str:
        old, new = (field_of(attr).type.name for attr in (self.old, self.new))
        name = "" if self.old.name == self.new.name else f"{_relative_name(self.new, self.old)}, "
        return f"convert {self.old!r}, {name}{old} to {new}" if old != new else f"convert {self.old!r}"

    def faults(self, shapes: ScriptModels) -> Iterator[str]:
        yield from field_faults("old", self.old, shapes)
        yield from field_faults("new", self.new, shapes)
        if not (callable(self.with_) or isinstance(self.with_, Mapping) or self.with_ is ...):
            yield f"expected a function, or a dict of values, got {safe_repr(self.with_)}"
        yield from function_faults(back=self.back)

    def _retype(self, shape: SpecChanges) -> None:
        shape.set_field(self.new)

    def is_reversible(self, shapes: ScriptModels) -> bool:
        return self.back is not None or (isinstance(self.with_, Mapping) and self._is_one_to_one(self.with_))

    def _is_one_to_one(self, values: Mapping[Any, Any]) -> bool:
        """Return whether a mapping gives each value of the old type another value of the new one."""
        old, new = field_of(self.old), field_of(self.new)
        new_values = {old.type.store(a): new.type.store(b) for a, b in values.items()}
        owner: Any = self.old.owner
        members = model_of(owner).form.fields[old.property].members
        results = [new_values.get(value, value) for value in (new_values if members is UNSET else members)]
        return len(set(results)) == len(results)

    @property
    def irreversible_reason(self) -> str:
        return " (it has no back=)"

    def undone(self, shapes: ScriptModels) -> Iterator[AnyStep]:
        with_, reverse = self.with_, self.back
        inverse = {b: a for a, b in with_.items()} if reverse is None and isinstance(with_, Mapping) else reverse
        assert inverse is not None
        yield Convert(self.new, self.old, inverse, with_ if callable(with_) else with_.__getitem__)


@attrs.frozen(eq=False)
class Fill(Step):
    """A field gets a value where it has none."""

    method = "fill"
    sides: ClassVar[Sides] = (("new", "new"),)
    takes_function = True
    rank = 1
    new: _Field
    with_: Callable[[Any], Any]
    """Gets the entity in its new shape, the field unset."""

    def __str__(self) -> str:
        return f"fill {self.new!r}"

    def sources(self, shapes: ScriptModels) -> tuple[Any, ...]:
        return _filled_from(self.new, shapes)

    def faults(self, shapes: ScriptModels) -> Iterator[str]:
        yield from field_faults("new", self.new, shapes)
        yield from function_faults(with_=self.with_)

    def apply(self, shape: SpecChanges) -> Iterator[str]:
        shape.set_field(self.new)
        yield from ()

    def undone(self, shapes: ScriptModels) -> Iterator[AnyStep]:
        yield self  # (`Fields` undoes a fill of its old class)


@attrs.frozen(eq=False)
class Rewrite(Step):
    """Each entity becomes others, of any class, under any key."""

    method = "rewrite"
    sides: ClassVar[Sides] = (("old", "old"),)
    takes_function = True
    old: _Class
    with_: Callable[[Any], Any]
    """Gives an entity, several, or None, which drops it."""
    into: tuple[_Class, ...]
    back: Callable[[Any], Any] | None = None
    """From a new entity to the old one, or None where that is made of another one."""
    combine: Callable[[Any, Any], Any] | None = None
    """Makes one of two new entities that have the same key, in the order of the old keys."""

    def __str__(self) -> str:
        return f"rewrite {_classes(self.old, *self.into)}"

    @property
    def ended_classes(self) -> tuple[Any, ...]:
        return (self.old,)

    @property
    def targets(self) -> tuple[_Class, ...]:
        return self.into

    def faults(self, shapes: ScriptModels) -> Iterator[str]:
        yield from class_faults("old", self.old, shapes, Entity)
        for cls in self.into:
            yield from class_faults("new", cls, shapes, Entity)
        if not self.into:
            yield "into= is empty; m.drop removes a class"
        yield from function_faults(with_=self.with_, back=self.back, combine=self.combine)
        if self.back is not None and self.combine is not None:
            yield "a combination cannot be reversed; leave out back="

    def is_reversible(self, shapes: ScriptModels) -> bool:
        return self.back is not None

    @property
    def irreversible_reason(self) -> str:
        return " (it has no back=)" if self.combine is None else " (it combines entities)"

    def undone(self, shapes: ScriptModels) -> Iterator[AnyStep]:
        assert self.back is not None
        yield from [Rewrite(cls, self.back, (self.old,)) for cls in self.into]


@attrs.frozen(eq=False)
class Join(Step):
    """The entities of two classes that have equal keys become others together."""

    method = "join"
    sides: ClassVar[Sides] = (("a", "old"), ("b", "old"))
    takes_function = True
    combine: ClassVar[None] = None
    a: _Class
    b: _Class
    with_: Callable[[Any, Any], Any]
    """Gets both, or one and None where the other class has no such key."""
    into: tuple[_Class, ...]

    def __str__(self) -> str:
        into = ", ".join([cls.__name__ for cls in self.into])
        return f"join {self.a.__name__} and {self.b.__name__} into {into}"

    @property
    def ended_classes(self) -> tuple[Any, ...]:
        return self.a, self.b

    @property
    def targets(self) -> tuple[_Class, ...]:
        return self.into

    def faults(self, shapes: ScriptModels) -> Iterator[str]:
        for cls in (self.a, self.b):
            yield from class_faults("old", cls, shapes, Entity)
        for cls in self.into:
            yield from class_faults("new", cls, shapes, Entity)
        if self.a is self.b:
            yield "give two classes"
        yield from function_faults(with_=self.with_)

    def is_reversible(self, shapes: ScriptModels) -> bool:
        return False


@attrs.frozen(eq=False)
class Resolve(Step):
    """Entities that hold the same value of a unique index are changed, or dropped."""

    method = "resolve"
    sides: ClassVar[Sides] = (("index", "new"),)
    takes_function = True
    index: IndexCall
    with_: Callable[[list[Any]], Any]
    """Gets the holders in the order of their keys, and gives those to keep, changed so that they differ."""

    def __str__(self) -> str:
        return f"resolve {self.index!r}"

    def faults(self, shapes: ScriptModels) -> Iterator[str]:
        if (yield from index_faults("new", self.index, shapes)) and not is_unique(self.index):
            yield f"new.{self.index!r} is not unique, so it has no duplicates"
        yield from function_faults(with_=self.with_)

    def is_reversible(self, shapes: ScriptModels) -> bool:
        return False


@attrs.frozen(eq=False)
class Drop(Step):
    """A field, an index, an aggregate or a class goes."""

    method = "drop"
    sides: ClassVar[Sides] = (("what", "old"),)
    what: _Field | IndexCall | _Class

    def __str__(self) -> str:
        return f"drop {self.what.__name__ if isinstance(self.what, type) else repr(self.what)}"

    @property
    def owner(self) -> Any:
        """The class: itself, or that of the field or the index."""
        if isinstance(self.what, Attr):
            return self.what.owner
        return self.what if isinstance(self.what, type) else self.what.entity

    @property
    def ended_classes(self) -> tuple[Any, ...]:
        return (self.what,) if isinstance(self.what, type) else ()

    def sources(self, shapes: ScriptModels) -> tuple[Any, ...]:
        if isinstance(self.what, Attr):
            return (self.what.owner,)
        return (self.what,) if _is_anew(shapes, self.what) else ()

    def faults(self, shapes: ScriptModels) -> Iterator[str]:
        target = self.what
        if isinstance(target, Attr):
            yield from field_faults("old", target, shapes)
            if target.owner in shapes.old and issubclass(target.owner, Aggregate):
                yield f"{target!r} is maintained; write m.drop(old.{target.owner.__name__}), and declare the aggregate again"
        else:
            yield from (index_faults if isinstance(target, IndexCall) else class_faults)("old", target, shapes)

    def apply(self, shape: SpecChanges) -> Iterator[str]:
        if isinstance(self.what, Attr):
            shape.change(self.what.owner.__name__, partial(without, property=field_of(self.what).property))
        elif isinstance(self.what, IndexCall):
            shape.change(self.what.entity.__name__, partial(without_index, index=self.what.index))
        yield from ()

    def is_edit(self, shapes: ScriptModels) -> bool:
        return not isinstance(self.what, Attr) and not _is_anew(shapes, self.what)

    def is_reversible(self, shapes: ScriptModels) -> bool:
        target = self.what
        if isinstance(target, Attr):  # (the key that an entity had is lost with a field of it)
            return target.name not in {
                slot.field for template in declaration_of(target.owner).templates for slot in template.slots
            }
        # (It stays until the migration is contracted, unless the migration copies.)
        return not isinstance(target, type) or not issubclass(target, Entity) or is_edit(shapes)

    def undone(self, shapes: ScriptModels) -> Iterator[AnyStep]:
        if isinstance(self.what, Attr):
            yield Restore(self.what)
        elif isinstance(self.what, type) and _is_anew(shapes, self.what):
            yield from [Drop(cls) for cls in shapes.new if cls.__name__ == self.what.__name__]


@attrs.frozen(eq=False)
class Restore(Step):
    """A field comes back that a migration dropped; only what undoes that one has this step."""

    new: _Field

    def __str__(self) -> str:
        return f"restore {self.new!r}"

    def sources(self, shapes: ScriptModels) -> tuple[Any, ...]:
        return _filled_from(self.new, shapes)


AnyStep: TypeAlias = Rename | RenameClass | Rekey | Convert | Fill | Rewrite | Join | Resolve | Drop | Restore


def pairs(script: ScriptModels) -> dict[Any, Any]:
    """Return the old classes whose entities become one new entity each, each with its new class."""
    names: dict[str, Any] = {cls.__name__: cls for cls in script.new}
    successors: dict[Any, Any] = {cls: names[cls.__name__] for cls in script.old if cls.__name__ in names}
    for step in script.steps:
        successors |= step.successors
    ended_classes = {cls for step in script.steps for cls in step.ended_classes}
    return {old: new for old, new in successors.items() if old not in ended_classes}


def names_of(script: ScriptModels) -> dict[str, dict[str, str]]:
    """Return the properties that a script renames, each with its new name, by class."""
    renames: dict[str, dict[str, str]] = {}
    for step in script.steps:
        if step.moved_fields is not None:
            old, new = (field_of(attr).property for attr in step.moved_fields)
            if old != new:
                renames.setdefault(step.moved_fields[0].owner.__name__, {})[old] = new
    return renames


def is_edit(script: ScriptModels) -> bool:
    """Return whether a script only changes the catalogue: it renames properties, or drops indexes and classes."""
    if not all(step.is_edit(script) for step in script.steps):
        return False
    renames = names_of(script)
    old, new = ({cls.__name__: model_of(cls).form for cls in side} for side in (script.old, script.new))
    if script.undoes:  # (what it undoes took no column from another property, so its way back does not either)
        renames = {
            name: {new_name: old_name for old_name, new_name in names.items()} for name, names in renames.items()
        }
        old, new = new, old
    return rename_in_place(renames, old, new)


def _is_anew(script: ScriptModels, target: Any) -> bool:
    """Return whether an aggregate is dropped and declared anew in a shared table, so that its classes are copied."""
    if not isinstance(target, type) or abstract_declaration(target).of is None:
        return False
    tables = [abstract_declaration(cls).table for cls in script.old]
    return tables.count(abstract_declaration(target).table) > 1 and target.__name__ in {
        cls.__name__ for cls in script.new
    }


def _relative_name(attr: _Field, other: _Field) -> str:
    """Return a field's name, with its class if that is not the class of another."""
    return attr.name if attr.owner.__name__ == other.owner.__name__ else repr(attr)


def _classes(old: _Class, *new: _Class) -> str:
    names = [cls.__name__ for cls in new]
    return old.__name__ if names == [old.__name__] else f"{old.__name__} into {', '.join(names)}"
