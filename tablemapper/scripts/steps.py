"""What a migration script can do, as data: one class for each step.

A field is an `Attr` of a class in the old or the new shape, an index is what ``Product.by_name`` is. The shapes are
ordinary entity classes, frozen in the script, so they say all that a runner has to know of both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from ..entities.declaration import abstract_declaration
from ..entities.entity import Record
from ..entities.index import IndexCall
from ..expressions.tree import Attr

__all__ = [
    "AnyStep",
    "Convert",
    "Drop",
    "Fill",
    "Join",
    "Rekey",
    "Rename",
    "RenameClass",
    "Resolve",
    "Restore",
    "Rewrite",
]

_Field: TypeAlias = Attr[Any, Any]
_Class: TypeAlias = type[Record]


@attrs.frozen(eq=False)
class Rename:
    """A field keeps its values and its type, and has another name."""

    old: _Field
    new: _Field

    def __str__(self) -> str:
        return f"rename {self.old!r} to {_beside(self.new, self.old)}"


@attrs.frozen(eq=False)
class RenameClass:
    """A class, its table, or both have another name."""

    old: _Class
    new: _Class

    def __str__(self) -> str:
        if self.old.__name__ != self.new.__name__:
            return f"rename {self.old.__name__} to {self.new.__name__}"
        old, new = (abstract_declaration(cls).table for cls in (self.old, self.new))
        return f'rename the table "{old}" of {self.old.__name__} to "{new}"'


@attrs.frozen(eq=False)
class Rekey:
    """The fields are the same, and the key is made of them in another way."""

    old: _Class
    new: _Class

    def __str__(self) -> str:
        return f"rekey {_classes(self.old, self.new)}"


@attrs.frozen(eq=False)
class Convert:
    """A field has another type."""

    old: _Field
    new: _Field
    with_: Callable[[Any], Any] | Mapping[Any, Any]
    """A function of the old value, or the new values by the old ones; a value that is not in a mapping stays as it is.

    None stays None where the new field can be None, and is handed to the function where it cannot."""
    back: Callable[[Any], Any] | None = None
    """From the new value to the old one. A mapping has its own, if it is one to one."""

    def __str__(self) -> str:
        old, new = (_field(attr).type.name for attr in (self.old, self.new))
        name = "" if self.old.name == self.new.name else f"{_beside(self.new, self.old)}, "
        return f"convert {self.old!r}, {name}{old} to {new}" if old != new else f"convert {self.old!r}"


@attrs.frozen(eq=False)
class Fill:
    """A field gets a value where it has none."""

    new: _Field
    with_: Callable[[Any], Any]
    """Gets the entity in its new shape, the field unset."""

    def __str__(self) -> str:
        return f"fill {self.new!r}"


@attrs.frozen(eq=False)
class Rewrite:
    """Each entity becomes others, of any class, under any key."""

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


@attrs.frozen(eq=False)
class Join:
    """The entities of two classes that have equal keys become others together."""

    a: _Class
    b: _Class
    with_: Callable[[Any, Any], Any]
    """Gets both, or one and None where the other class has no such key."""
    into: tuple[_Class, ...]

    def __str__(self) -> str:
        return f"join {self.a.__name__} and {self.b.__name__} into {_listed(self.into)}"


@attrs.frozen(eq=False)
class Resolve:
    """Entities that hold the same value of a unique index are changed, or dropped."""

    index: IndexCall
    with_: Callable[[list[Any]], Any]
    """Gets the holders in the order of their keys, and gives those to keep, changed so that they differ."""

    def __str__(self) -> str:
        return f"resolve {self.index!r}"


@attrs.frozen(eq=False)
class Drop:
    """A field, an index, an aggregate or a class goes."""

    what: _Field | IndexCall | _Class

    def __str__(self) -> str:
        return f"drop {self.what.__name__ if isinstance(self.what, type) else repr(self.what)}"


@attrs.frozen(eq=False)
class Restore:
    """A field comes back that a migration dropped; only what undoes that one has this step."""

    new: _Field

    def __str__(self) -> str:
        return f"restore {self.new!r}"


AnyStep: TypeAlias = Rename | RenameClass | Rekey | Convert | Fill | Rewrite | Join | Resolve | Drop | Restore


def _field(attr: _Field) -> Any:
    return abstract_declaration(attr.owner).field(attr.name)


def _beside(attr: _Field, other: _Field) -> str:
    """Return a field's name, with its class if that is not the class of another."""
    return attr.name if attr.owner.__name__ == other.owner.__name__ else repr(attr)


def _classes(old: _Class, *new: _Class) -> str:
    names = [cls.__name__ for cls in new]
    return old.__name__ if names == [old.__name__] else f"{old.__name__} into {', '.join(names)}"


def _listed(classes: tuple[_Class, ...]) -> str:
    return ", ".join(cls.__name__ for cls in classes)
