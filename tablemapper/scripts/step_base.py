"""The base of migration steps, and those of fields and of classes.

A field is an `Attr` of a class in the old or the new shape, an index is what ``Product.by_name`` is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

import attrs

from ..entities.entity import Record
from ..expressions.tree import Attr
from .arguments import ScriptModels, argument_text, class_faults
from .spec_changes import SpecChanges

_Field: TypeAlias = Attr[Any, Any]
_Class: TypeAlias = type[Record]
_Side: TypeAlias = Literal["old", "new"]
Sides: TypeAlias = tuple[tuple[str, _Side], ...]
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class Step:
    """A migration step; each answer here is that of most steps."""

    __slots__ = ()
    method: ClassVar[str] = ""
    """The method of `Migration` that makes it."""
    sides: ClassVar[Sides] = ()
    """Its arguments that are fields, indexes and classes, by attribute, each with its shape."""
    takes_function: ClassVar[bool] = False
    of_class: ClassVar[bool] = False
    """Whether it changes a class as a whole, and may have steps for its fields beside it."""
    rank: ClassVar[int] = 0
    """Steps of a higher rank are applied after all of a lower one."""

    @property
    def subjects(self) -> list[tuple[_Side, Any]]:
        """Its subjects, each with its shape."""
        return [(side, getattr(self, name)) for name, side in self.sides]

    @property
    def successors(self) -> dict[Any, Any]:
        """Old classes, each with the new class that its entities are of afterwards."""
        return {}

    @property
    def ended_classes(self) -> tuple[Any, ...]:
        """Old classes whose entities become others, or go."""
        return ()

    @property
    def targets(self) -> tuple[_Class, ...]:
        """New classes that its function makes entities of."""
        return ()

    @property
    def class_names(self) -> Mapping[str, str]:
        """The new names of old classes."""
        return _NO_NAMES

    @property
    def moved_fields(self) -> tuple[_Field, _Field] | None:
        """A field, and the new one that its values go to; None if it moves none."""
        return None

    def sources(self, shapes: ScriptModels) -> tuple[Any, ...]:
        """Return the old classes that are copied for it."""
        return (*self.successors, *self.ended_classes)

    def text(self, shapes: ScriptModels) -> str:
        """Return it as it stands in a script."""
        arguments = ", ".join([argument_text(subject, shapes) for _, subject in self.subjects])
        return f"m.{self.method}({arguments}{', …' if self.takes_function else ''})"

    def faults(self, shapes: ScriptModels) -> Iterator[str]:
        """Yield the arguments that have the wrong kind, or stand in the other shape."""
        yield from ()

    def apply(self, shape: SpecChanges) -> Iterator[str]:
        """Change fields and indexes of the old classes, or yield why it cannot."""
        yield from ()

    def apply_to_class(self, shape: SpecChanges) -> Iterator[str]:
        """Change a class that has its new name by now, or yield why it cannot."""
        yield from ()

    def is_edit(self, shapes: ScriptModels) -> bool:
        """Return whether it only changes the catalogue."""
        return False

    def is_reversible(self, shapes: ScriptModels) -> bool:
        """Return whether it can be undone."""
        return True

    @property
    def irreversible_reason(self) -> str:
        """The reason why it cannot be undone, if there is one."""
        return ""

    def undone(self, shapes: ScriptModels) -> Iterator[Any]:
        """Yield the steps that undo it."""
        yield from ()


@attrs.frozen(eq=False)
class FieldStep(Step):
    """A field has another name, or another type."""

    sides: ClassVar[Sides] = (("old", "old"), ("new", "new"))
    old: _Field
    new: _Field

    @property
    def successors(self) -> dict[Any, Any]:
        return {self.old.owner: self.new.owner}

    @property
    def moved_fields(self) -> tuple[_Field, _Field] | None:
        return self.old, self.new

    def apply(self, shape: SpecChanges) -> Iterator[str]:
        old_name, new_name = self.old.owner.__name__, self.new.owner.__name__
        if shape.names.get(old_name, old_name) != new_name:
            yield (
                f"the classes are not the same; m.rename_class(old.{old_name}, new.{new_name}) says that they are, and m.rewrite "
                "makes entities of one from another"
            )
        else:
            self._retype(shape)

    def _retype(self, shape: SpecChanges) -> None:
        """Give the field, which has its new name, its new type."""


@attrs.frozen(eq=False)
class ClassStep(Step):
    """A class has another name, or another key."""

    sides: ClassVar[Sides] = (("old", "old"), ("new", "new"))
    of_class = True
    old: _Class
    new: _Class

    @property
    def successors(self) -> dict[Any, Any]:
        return {self.old: self.new}

    @property
    def class_names(self) -> Mapping[str, str]:
        return {self.old.__name__: self.new.__name__}

    def faults(self, shapes: ScriptModels) -> Iterator[str]:
        yield from class_faults("old", self.old, shapes)
        yield from class_faults("new", self.new, shapes)

    def undone(self, shapes: ScriptModels) -> Iterator[Any]:
        yield type(self)(self.new, self.old)
