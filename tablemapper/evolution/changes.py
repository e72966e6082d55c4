"""One difference between a catalogue and the opened classes, its step, and the questions of a rule about stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import attrs

from ..keys.template import Template
from ..schema.specs import ModelSpec

Rule: TypeAlias = Literal["open", "build", "migration", "refused"]


@attrs.frozen
class NamedPart:
    """A class of one side of a script, or a field or an index of that class."""

    side: Literal["old", "new"]
    cls: str
    part: str = ""
    """The attribute of the field or the index; empty for the class."""

    def __str__(self) -> str:
        return f"{self.side}.{self.cls}{self.part and '.'}{self.part}"


@attrs.frozen
class ChangeStep:
    """The step of a migration that makes a change."""

    kind: Literal["rename", "rename_class", "rekey", "convert", "fill", "rewrite", "drop"]
    """The method of `Migration`."""
    names: tuple[NamedPart, ...]
    """Its first arguments."""
    functions: tuple[str, ...] = ()
    """Its further arguments, as Python; ``...`` is to be replaced."""
    into: tuple[NamedPart, ...] = ()
    hint: str = ""
    """What to write for ``...``, or when to write another step."""
    instead: ChangeStep | None = None
    """Another step that may be meant."""

    @property
    def arguments(self) -> list[str]:
        """All arguments, as Python."""
        into = ", ".join(map(str, self.into))
        target = [f"into={into if len(self.into) == 1 else f'[{into}]'}"] if self.into else []
        return [*map(str, self.names), *self.functions, *target]

    @property
    def comment(self) -> str:
        """The hint, with the other step."""
        return self.hint if self.instead is None else f"or {self.instead}, {self.hint}"

    @property
    def classes(self) -> set[NamedPart]:
        """The classes that it names."""
        return {NamedPart(name.side, name.cls) for name in (*self.names, *self.into)}

    @property
    def possible_classes(self) -> set[NamedPart]:
        """The classes that it or the other step names."""
        return self.classes if self.instead is None else self.classes | self.instead.classes

    def __str__(self) -> str:
        return f"m.{self.kind}({', '.join(self.arguments)})"


@attrs.frozen
class SchemaChange:
    """One difference between a catalogue and the opened classes."""

    where: str
    """The class, field, index or aggregate: ``Product``, ``Product.price``."""
    rule: Rule
    message: str
    step: ChangeStep | None = None
    """The step of a migration that makes it."""
    warning: bool = False
    """Whether a log should tell it, though the store takes it over."""

    def __str__(self) -> str:
        return f"{self.where.partition('.')[0]}: {self.message}"

    @property
    def code(self) -> str:
        """The step as it stands in a script, with a comment; ``...`` is to be replaced. Empty if there is none."""
        if self.step is None:
            return ""
        return f"{self.step}  # {self.step.comment}" if self.step.comment else str(self.step)

    @property
    def stops(self) -> bool:
        """Whether a store cannot be opened with it."""
        return self.rule in ("migration", "refused")


class StoredContents:
    """The stored rows of a catalogue's classes, as far as a rule depends on them.

    Here of a store that cannot be read: each answer is the one that makes a rule stricter.
    """

    def dropped(self, name: str, form: ModelSpec) -> str | None:
        """Return a message if a class declares an index, an aggregate or a class that was dropped; else None."""
        return None

    def count(self, name: str) -> int:
        """Return the number of rows of a class; -1 if it is unknown, but may be more than 0."""
        return -1

    def holds_other(self, name: str, property: str, value: Any) -> bool:
        """Return whether a row of a class has a value of a property that is not this stored value."""
        return True

    def holds_one_of(self, name: str, property: str, values: Sequence[Any]) -> bool:
        """Return whether a row of a class has one of these stored values of a property."""
        return True

    def undeclared(self, name: str, extra: str, property: str) -> tuple[str, str] | None:
        """Return the key of a row that has a property of this name in its field of undeclared properties, ``extra``."""
        return None

    def within(self, name: str, partition: Template, row: Template) -> Sequence[tuple[str, str]]:
        """Return the keys of the rows of a class that begin as two templates of another class do."""
        return ()


Anything = StoredContents
"""What may be in a store that cannot be read."""
