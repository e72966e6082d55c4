"""Conversion of an entity of the old shape to the new one, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..catalogue.transitions import FormerEntity
from ..entities.declaration import abstract_declaration
from ..entities.fields import FieldModel
from ..values.extra import Extra
from .script import Script
from .steps import Convert, Fill, Restore


def origins(script: Script, old: type[Any], new: type[Any]) -> dict[str, str]:
    """Return the fields of a new class that come from fields of an old one, each with its name there."""
    moves = [step.moved_fields for step in script.steps if step.moved_fields is not None]
    moved_from = {target.name: source.name for source, target in moves if target.owner is new}
    names = [field.name for field in abstract_declaration(new).parameters]
    unmoved = {field.name for field in abstract_declaration(old).fields} - set(moved_from.values())
    same = {name: name for name in names if name not in moved_from and name in unmoved}
    return {name: moved_from[name] for name in names if name in moved_from} | same


class FieldConverter:
    """The conversion of entities from an old class to a new one, field by field.

    Attributes:
        former: how an undoing finds the former entity; None if it needs no values of that.
    """

    def __init__(self, script: Script, old: type[Any], new: type[Any]) -> None:
        self._new: Any = new
        self._old = abstract_declaration(old)
        declaration = abstract_declaration(new)
        self._properties = {field.property for field in declaration.fields}
        converted: dict[str, Callable[[Any], Any]] = {}
        self._fills: list[tuple[FieldModel, Callable[[Any], Any]]] = []
        self._undone_fills: dict[str, Callable[[Any], Any]] = {}
        self._restored: list[Any] = []
        for step in script.steps:
            match step:
                case Convert(new=attr, with_=with_) if attr.owner is new:
                    converted[attr.name] = _conversion(with_, optional=declaration.field(attr.name).optional)
                case Fill(new=attr, with_=with_) if attr.owner is new:
                    self._fills.append((declaration.field(attr.name), with_))
                case Fill(new=attr, with_=with_) if attr.owner is old:
                    self._undone_fills = {attr.name: with_, **self._undone_fills}
                case Restore(new=attr) if attr.owner is new:
                    self._restored.append(declaration.field(attr.name))
                case _:
                    pass
        undeclared = any(field.type.undeclared for field in declaration.fields)
        restored_names = tuple([field.name for field in self._restored])
        needs_former = self._restored or (self._undone_fills and undeclared)
        self.former: FormerEntity | None = (
            FormerEntity(self._key, restored_names, self._missing_values) if needs_former else None
        )
        sources = origins(script, old, new)
        for name, source in sources.items():
            if name not in converted and (read_anew := _read_anew(self._old.field(source), declaration.field(name))):
                converted[name] = read_anew
        self._copied = [(name, source) for name, source in sources.items() if name not in converted]
        self._converted = [(name, sources[name], function) for name, function in converted.items()]
        filled = {field.name for field, _ in self._fills}
        # (An entity that lacks an optional field has None there, whatever the default: a copy changes nothing in that.)
        self._empty: dict[str, Any] = {
            field.name: None
            for field in declaration.parameters
            if field.optional and field.name not in sources and field.name not in filled
        }

    def convert(self, entities: Sequence[Any]) -> list[Any]:
        """Return the new entity, in a list.

        Args:
            entities: the old entity; then, if there is `former_entity`, the former entity or None.
        """
        old, *former_entity = entities
        values = self._values(old, *former_entity)
        undeclared = _undeclared(old)
        for field in self._restored:
            if field.property in undeclared:
                values[field.name] = undeclared[field.property]
            elif former_entity[0] is not None:
                values[field.name] = getattr(former_entity[0], field.name)
            elif field.optional or field.missing is not None:
                values[field.name] = field.missing
        return [self._new(**self._empty | values)]

    def _key(self, old: Any) -> tuple[str, str]:
        """Return the key of the new entity."""
        key = _unfinished(self._new, self._values(old)).key
        return key.partition, key.row

    def _missing_values(self, old: Any) -> list[str]:
        """Return the restored fields that need a value, and that the old entity has no value for."""
        undeclared = _undeclared(old)
        return [
            field.name
            for field in self._restored
            if field.required and not field.optional and field.missing is None and field.property not in undeclared
        ]

    def _values(self, old: Any, former_entity: Any = None) -> dict[str, Any]:
        """Return the values of the new entity, without those of restored fields."""
        values = {name: getattr(old, source) for name, source in self._copied}
        name = ""
        try:
            for name, source, function in self._converted:
                values[name] = function(getattr(old, source))
            for field, fill in self._fills:
                if values.get(name := field.name) is None:
                    value = _undeclared_value(field, _undeclared(old))
                    value = fill(_unfinished(self._new, values)) if value is None else value
                    if value is not None or field.required:
                        values[name] = value
        except Exception as error:  # whatever the function of a script raises
            error.add_note(name)  # (it stands in front of the text of the fault)
            raise
        for name, value in values.items():
            if isinstance(value, Extra):
                undeclared = value | self._unfilled(old, former_entity)
                values[name] = Extra({key: item for key, item in undeclared.items() if key not in self._properties})
        return values

    def _unfilled(self, old: Any, former_entity: Any) -> dict[str, Any]:
        """Return the values that the fields of undone fills have as undeclared properties.

        A field that still has the value of its fill gets back what the former entity had; others keep their values.
        """
        unfilled: dict[str, Any] = {}
        fills = self._undone_fills
        properties = {self._old.field(name).property for name in fills}
        other_values = {
            field.name: getattr(old, field.name) for field in self._old.parameters if field.name not in fills
        }
        former_values = (
            {}
            if former_entity is None
            else {key: item for key, item in _undeclared(former_entity).items() if key in properties}
        )
        values = {
            name: Extra(value | former_values) if isinstance(value, Extra) else value
            for name, value in other_values.items()
        }
        for name, fill in fills.items():
            property, value = self._old.field(name).property, getattr(old, name)
            try:
                is_filled = former_entity is not None and bool(fill(_unfinished(type(old), values)) == value)
            except Exception:  # whatever the function of a script raises: then the value is not that of the fill
                is_filled = False
            if not is_filled:
                unfilled[property] = value
            elif property in former_values:
                unfilled[property] = former_values[property]
            values[name] = value
        return unfilled


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


def _undeclared_value(field: FieldModel, undeclared: Mapping[str, Any]) -> Any:
    """Return an undeclared property as the value of a field; None if it is missing, or no such value."""
    if (value := undeclared.get(field.property)) is None:
        return None
    try:
        value = field.type.check(value)
        if field.constraint is not None:
            field.constraint.check(value)
    except ValueError:
        return None
    return value


def _read_anew(old: FieldModel, new: FieldModel) -> Callable[[Any], Any] | None:
    """Return the function that reads a value of a field as one of another, if no step says it and the classes
    differ.

    A store reads the values of an Enum or a nested class with another one, too, if that is as wide.
    """
    if old.type is new.type or old.annotation == new.annotation:
        return None
    return lambda value: None if value is None else new.type.load(old.type.store(value))


def _conversion(with_: Any, *, optional: bool) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = (lambda value: with_.get(value, value)) if isinstance(with_, Mapping) else with_
    return (lambda value: None if value is None else function(value)) if optional else function
