"""Strategies for the values of fields: single ones, and what is nested in lists, dicts and classes."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple, NewType, TypeVar, Union, get_args, get_origin

import attrs
import msgspec
from hypothesis import reject
from hypothesis import strategies as st

from ..entities.fields import FieldModel
from ..limits import check_property_name
from ..type_aliases import unfolded
from ..values.constraints import constraint_of
from ..values.extra import Extra, Int32Value
from ..values.geo import GeoPoint
from ..values.nested import value_type
from ..values.scalars import INT32, SCALARS
from .key_budget import KeyBudget
from .scalar_strategies import Strategy, ValueRange, scalars, texts

_FEW = 5
"""The most elements of a list that is nested, and of a dict."""
_INSIDE = KeyBudget(1000, keyed=False)
"""What a text inside of others has, so that all have room in one property."""
_TIMES = 2
"""How often a class that holds itself stands inside of itself at most."""


class _Endless(Exception):
    """A class stands inside of itself too often."""


class _Member(NamedTuple):
    """A part of a class: its name, the parameter of the constructor, and whether that needs a value."""

    name: str
    parameter: str
    required: bool


def field_values(field: FieldModel, rooms: Mapping[str, KeyBudget], properties: Collection[str]) -> Strategy:
    """Return the strategy for a field, by the rooms and the properties of its class."""
    room = rooms.get(field.name, rooms[""])
    value_range = ValueRange(field.type, room, {} if field.constraint is None else field.constraint.bounds)
    strategy = _Walk(rooms, properties).values(value_range, field.annotation, field.name, ())
    if field.constraint is not None:
        strategy = strategy.filter(field.constraint.holds)
    return st.none() | strategy if field.optional else strategy


@attrs.frozen
class _Walk:
    """The walk through a type and the types inside of it.

    Its functions take the path of a value, ``address.city``, that of a list for its elements, and the classes that the
    value is in. They raise `_Endless` if that has no end.
    """

    rooms: Mapping[str, KeyBudget]
    properties: Collection[str]

    def nested(self, annotation: Any, path: str, within: tuple[Any, ...]) -> Strategy:
        """Return the strategy for a value inside of another."""
        if annotation is Any:
            return _anything()
        kind, optional = value_type(annotation)
        constraint = constraint_of(annotation, kind)
        room = self.rooms.get(path, _INSIDE)
        room = attrs.evolve(room, units=min(room.units, _INSIDE.units))
        value_range = ValueRange(kind, room, {} if constraint is None else constraint.bounds, nested=True)
        try:
            strategy = self.values(value_range, annotation, path, within)
        except _Endless:
            if not optional:
                raise
            return st.none()
        if constraint is not None:
            strategy = strategy.filter(constraint.holds)
        return st.none() | strategy if optional else strategy

    def values(self, value_range: ValueRange, annotation: Any, path: str, within: tuple[Any, ...]) -> Strategy:
        """Return the strategy for values of a type, None apart."""
        if value_range.type.undeclared:
            return self._extra(path)
        if value_range.type.kind is object:
            return self._json(value_range, _bare(annotation), path, within)
        return scalars(value_range)

    def _json(self, value_range: ValueRange, annotation: Any, path: str, within: tuple[Any, ...]) -> Strategy:
        origin, args = get_origin(annotation) or annotation, get_args(annotation)
        if origin is Union or origin is types.UnionType:
            return st.one_of(
                [
                    self._json(value_range, _bare(argument), path, within)
                    for argument in args
                    if argument is not type(None)
                ]
            )
        if annotation is GeoPoint:
            return st.builds(GeoPoint, st.floats(-90, 90), st.floats(-180, 180))
        if (members := _members(origin)) is not None:
            return self._class(annotation, members, path, within)
        if origin is tuple and args and args[-1] is not ...:
            return st.tuples(*[self.nested(argument, path, within) for argument in args])
        for shape, many in _MANY.items():
            if isinstance(origin, type) and issubclass(shape, origin):
                return self._many(value_range, many, args[0] if args else Any, path, within)
        if isinstance(origin, type) and issubclass(dict, origin):
            return self._dict(value_range, args, path, within)
        return st.from_type(annotation)

    def _many(
        self, value_range: ValueRange, many: Callable[..., Strategy], element: Any, path: str, within: tuple[Any, ...]
    ) -> Strategy:
        least, most = value_range.sizes
        if value_range.type.hierarchy and path in self.rooms:  # its levels share a key
            level = attrs.evolve(value_range.room, units=value_range.room.units // _FEW - 2)
            return many(texts(ValueRange(SCALARS[str], level)), max_size=_FEW)
        if most is None and value_range.nested:
            most = max(_FEW, least)
        try:
            elements: Strategy = self.nested(element, path, within)
        except _Endless:
            if least:
                raise
            elements, most = st.nothing(), 0
        return many(elements, min_size=least, max_size=most)

    def _dict(self, value_range: ValueRange, args: tuple[Any, ...], path: str, within: tuple[Any, ...]) -> Strategy:
        key, value = args or (Any, Any)
        least, most = value_range.sizes
        try:
            values = self.nested(value, f"{path}.", within)
            indexed_values = {name: self.nested(value, f"{path}.{name}", within) for name in self._steps(path)}
        except _Endless:
            return st.builds(dict)
        keys = st.text(max_size=20) if key is Any else self.nested(key, f"{path}.", within)
        entries = st.dictionaries(keys, values, min_size=least, max_size=max(_FEW, least) if most is None else most)
        if not indexed_values or most is not None:
            return entries
        return st.builds(
            lambda drawn, indexed: drawn | indexed, entries, st.fixed_dictionaries({}, optional=indexed_values)
        )

    def _extra(self, path: str) -> Strategy:
        kinds = [kind for kind in SCALARS.values() if kind.kind.__name__ in _OF_EXTRA]
        plain = [scalars(ValueRange(kind, _INSIDE)) for kind in kinds] + [
            scalars(ValueRange(INT32, _INSIDE)).map(Int32Value)
        ]
        undeclared = _PROPERTIES.filter(lambda name: name not in self.properties)
        drawn = st.dictionaries(
            undeclared, st.one_of([texts(ValueRange(SCALARS[str], _INSIDE)), *plain]), max_size=_FEW
        )
        indexed_values = {
            name: st.one_of([texts(ValueRange(SCALARS[str], self.rooms[f"{path}.{name}"])), *plain])
            for name in self._steps(path)
        }
        return st.builds(
            lambda drawn, indexed: Extra(drawn | indexed), drawn, st.fixed_dictionaries({}, optional=indexed_values)
        )

    def _steps(self, path: str) -> list[str]:
        """Return the paths inside of a value that indexes name."""
        paths = [room.removeprefix(f"{path}.") for room in self.rooms if room.startswith(f"{path}.")]
        return [step for step in paths if "." not in step]

    def _class(self, kind: Any, members: list[_Member], path: str, within: tuple[Any, ...]) -> Strategy:
        if within.count(kind) == _TIMES:
            raise _Endless
        origin: Any = get_origin(kind) or kind
        hints = typing.get_type_hints(origin, include_extras=True)
        type_arguments: dict[Any, Any] = dict(zip(getattr(origin, "__parameters__", ()), get_args(kind), strict=False))
        required, optional = dict[str, Strategy](), dict[str, Strategy]()
        for member in members:
            hint = hints[member.name]
            try:
                annotation = type_arguments.get(hint, hint) if isinstance(hint, TypeVar) else hint
                strategy = self.nested(annotation, f"{path}.{member.name}", (*within, kind))
            except _Endless:
                if member.required:
                    raise
            else:
                (required if member.required else optional)[member.parameter] = strategy
        make = dict if typing.is_typeddict(origin) else origin
        return st.fixed_dictionaries(required, optional=optional).map(partial(_construct, make))


def _construct(make: Callable[..., Any], values: dict[str, Any]) -> Any:
    try:
        return make(**values)
    except Exception:  # its own validators refuse; they may raise anything
        reject()


def _bare(annotation: Any) -> Any:
    """Return a type without what is said about it, and without None."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return _bare(args[0])
    if origin is Union or origin is types.UnionType:
        arguments = [argument for argument in args if argument is not type(None)]
        return _bare(arguments[0]) if len(arguments) == 1 else annotation
    if isinstance(annotation, NewType):
        return _bare(annotation.__supertype__)
    means = unfolded(annotation)
    return annotation if means is annotation else _bare(means)


def _members(kind: Any) -> list[_Member] | None:
    """Return the members of a class; None if it does not say."""
    if not isinstance(kind, type):
        return None
    if issubclass(kind, msgspec.Struct):
        return [_Member(member.name, member.name, member.required) for member in msgspec.structs.fields(kind)]
    if attrs.has(kind):
        parameters = [member for member in attrs.fields(kind) if member.init]
        return [
            _Member(member.name, member.alias or member.name, member.default is attrs.NOTHING) for member in parameters
        ]
    if dataclasses.is_dataclass(kind):
        return [
            _Member(member.name, member.name, member.default is member.default_factory is dataclasses.MISSING)
            for member in dataclasses.fields(kind)
            if member.init
        ]
    if typing.is_typeddict(kind):
        required_names: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]
        return [_Member(name, name, name in required_names) for name in kind.__annotations__]
    if issubclass(kind, tuple) and (names := getattr(kind, "_fields", None)) is not None:
        defaults: Mapping[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
        return [_Member(name, name, name not in defaults) for name in names]
    return None


def _anything() -> Strategy:
    """Return the strategy for what is declared as Any: what JSON knows."""
    ints = scalars(ValueRange(SCALARS[int], _INSIDE, nested=True))
    plain = st.none() | st.booleans() | ints | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    containers = lambda element: st.lists(element, max_size=3) | st.dictionaries(st.text(), element, max_size=3)  # noqa: E731
    return st.recursive(plain, containers, max_leaves=8)


_OF_EXTRA = ("bool", "int", "float", "datetime", "UUID", "bytes")
_PROPERTIES = st.from_regex(r"[A-Za-z_\u00c0-\u00d6][A-Za-z0-9_]{0,10}", fullmatch=True).filter(
    lambda name: check_property_name(name) is None
)
_MANY: dict[type, Callable[..., Strategy]] = {
    list: st.lists,
    set: st.sets,
    frozenset: st.frozensets,
    tuple: lambda elements, **sizes: st.lists(elements, **sizes).map(tuple),
}
