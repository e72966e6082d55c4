"""From an entity of the old shape to the same entity of the new one, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..engines.migration import Former
from ..entities.declaration import abstract_declaration
from ..entities.fields import FieldModel
from ..values.extra import Extra
from .script import Script
from .steps import Convert, Fill, Rename, Restore

__all__ = ["Fields", "origins"]


def origins(script: Script, old: type[Any], new: type[Any]) -> dict[str, str]:
    """Return the fields of a new class that an old one has, too, each with its name there."""
    moved = {
        step.new.name: step.old.name
        for step in script.steps
        if isinstance(step, Rename | Convert) and step.new.owner is new
    }
    names = [field.name for field in abstract_declaration(new).parameters]
    own = {field.name for field in abstract_declaration(old).fields} - set(moved.values())
    same = {name: name for name in names if name not in moved and name in own}
    return {name: moved[name] for name in names if name in moved} | same


class Fields:
    """What becomes of the fields of a class.

    Args:
        script: its steps say.
        old: the class.
        new: the class that it becomes.

    Attributes:
        former: what comes back of an entity as it was before the migration that is undone; None if nothing does.
    """

    def __init__(self, script: Script, old: type[Any], new: type[Any]) -> None:
        self._new: Any = new
        made = abstract_declaration(new)
        self._properties = {field.property for field in made.fields}
        before = abstract_declaration(old)
        moved = origins(script, old, new)
        converted: dict[str, Callable[[Any], Any]] = {}
        self._fills: list[tuple[FieldModel, Callable[[Any], Any]]] = []
        self._filled: dict[str, Callable[[Any], Any]] = {}
        self._restored: list[Any] = []
        for step in script.steps:
            match step:
                case Convert(new=attr, with_=with_) if attr.owner is new:
                    converted[attr.name] = _conversion(with_, optional=made.field(attr.name).optional)
                case Fill(new=attr, with_=with_) if attr.owner is new:
                    self._fills.append((made.field(attr.name), with_))
                case Fill(new=attr, with_=with_) if attr.owner is old:  # that is undone
                    self._filled = {attr.name: with_, **self._filled}
                case Restore(new=attr) if attr.owner is new:
                    self._restored.append(made.field(attr.name))
                case _:
                    pass
        self._old = before
        known = self._restored or (self._filled and any(field.type.undeclared for field in made.fields))
        fields = tuple([field.name for field in self._restored])
        self.former = Former(self._key, fields, self._lacking) if known else None
        self._plain = [(name, was) for name, was in moved.items() if name not in converted]
        self._converted = [(n, moved[n], function) for n, function in converted.items()]

    def convert(self, entities: Sequence[Any]) -> list[Any]:
        """Return the new entity, alone.

        Args:
            entities: the old one; and what the new one was before, or None, if something comes back of it.
        """
        old, *former = entities
        values = self._values(old, *former)
        undeclared = _undeclared(old)
        for field in self._restored:
            if field.property in undeclared:
                values[field.name] = undeclared[field.property]
            elif former[0] is not None:
                values[field.name] = getattr(former[0], field.name)
            elif field.optional or field.missing is not None:
                values[field.name] = field.missing
        return [self._new(**values)]

    def _key(self, old: Any) -> tuple[str, str]:
        """Return the key of the new entity."""
        key = _unfinished(self._new, self._values(old)).key
        return key.partition, key.row

    def _lacking(self, old: Any) -> list[str]:
        """Return the fields that come back and cannot lack a value, and the old entity has none for."""
        undeclared = _undeclared(old)
        return [
            field.name
            for field in self._restored
            if field.required and not field.optional and field.missing is None and field.property not in undeclared
        ]

    def _values(self, old: Any, former: Any = None) -> dict[str, Any]:
        """Return the values of the new entity, those that come back aside."""
        values = {name: getattr(old, was) for name, was in self._plain}
        for name, was, function in self._converted:
            values[name] = function(getattr(old, was))
        for field, fill in self._fills:
            if values.get(field.name) is None:
                value = _declared(field, _undeclared(old))
                value = fill(_unfinished(self._new, values)) if value is None else value
                if value is not None or field.required:
                    values[field.name] = value
        for name, value in values.items():
            if isinstance(value, Extra):
                rest = value | self._unfilled(old, former)
                values[name] = Extra({one: item for one, item in rest.items() if one not in self._properties})
        return values

    def _unfilled(self, old: Any, former: Any) -> dict[str, Any]:
        """Return what the fields that were filled are as undeclared properties.

        They are what they were before, where they still have the value that the fill gives; else what they are now.
        """
        found: dict[str, Any] = {}
        properties = {self._old.field(name).property for name in self._filled}
        known = {
            field.name: getattr(old, field.name) for field in self._old.parameters if field.name not in self._filled
        }
        before = {} if former is None else {one: was for one, was in _undeclared(former).items() if one in properties}
        unset = {name: Extra(value | before) if isinstance(value, Extra) else value for name, value in known.items()}
        for name, fill in self._filled.items():
            property, value = self._old.field(name).property, getattr(old, name)
            try:
                filled = former is not None and bool(fill(_unfinished(type(old), unset)) == value)
            except Exception:  # whatever the function of a script raises: it is not known then
                filled = False
            if not filled:
                found[property] = value
            elif property in before:
                found[property] = before[property]
            unset[name] = value
        return found


def _unfinished(cls: Any, values: Mapping[str, Any]) -> Any:
    """Return an entity without the fields that have no value yet."""
    entity = cls.__raw__()
    entity._row = None
    for name, value in values.items():
        setattr(entity, name, value)
    entity.__class__ = cls
    return entity


def _undeclared(entity: Any) -> Mapping[str, Any]:
    """Return the properties of an entity that its class does not declare."""
    fields = abstract_declaration(type(entity)).fields
    return next((getattr(entity, field.name) or {} for field in fields if field.type.undeclared), {})


def _declared(field: FieldModel, undeclared: Mapping[str, Any]) -> Any:
    """Return what an undeclared property is as a field; None if it is not there, or none of its values."""
    if (value := undeclared.get(field.property)) is None:
        return None
    try:
        value = field.type.check(value)
        if field.constraint is not None:
            field.constraint.check(value)
    except ValueError:
        return None
    return value


def _conversion(with_: Any, *, optional: bool) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = (lambda value: with_.get(value, value)) if isinstance(with_, Mapping) else with_
    return (lambda value: None if value is None else function(value)) if optional else function
