"""One difference between a catalogue and the opened classes, and the questions of a rule about stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import attrs

from ..keys.template import Template
from ..schema.forms import ModelForm

__all__ = ["Anything", "Change", "Contents"]

Rule: TypeAlias = Literal["open", "build", "migration", "refused"]


@attrs.frozen
class Change:
    """One difference between a catalogue and the opened classes."""

    where: str
    """The class, field, index or aggregate: ``Product``, ``Product.price``."""
    rule: Rule
    message: str
    code: str = ""
    """The step of a migration that makes it, as it stands in a script; ``...`` is to be replaced."""
    warning: bool = False
    """Whether a log should tell it, though the store takes it over."""

    def __str__(self) -> str:
        return f"{self.where.partition('.')[0]}: {self.message}"

    @property
    def stops(self) -> bool:
        """Whether a store cannot be opened with it."""
        return self.rule in ("migration", "refused")


class Contents(Protocol):
    """The stored rows of a catalogue's classes, as far as a rule depends on them."""

    def dropped(self, name: str, form: ModelForm) -> str | None:
        """Return a message if a class declares an index, an aggregate or a class that was dropped; else None."""
        ...

    def count(self, name: str) -> int:
        """Return the number of rows of a class; -1 if it is unknown, but may be more than 0."""
        ...

    def holds_other(self, name: str, property: str, value: Any) -> bool:
        """Return whether a row of a class has a value of a property that is not this stored value."""
        ...

    def holds_one_of(self, name: str, property: str, values: Sequence[Any]) -> bool:
        """Return whether a row of a class has one of these stored values of a property."""
        ...

    def undeclared(self, name: str, extra: str, property: str) -> tuple[str, str] | None:
        """Return the key of a row that has a property of this name in its field of undeclared properties, ``extra``."""
        ...

    def within(self, name: str, partition: Template, row: Template) -> Sequence[tuple[str, str]]:
        """Return the keys of the rows of a class that begin as two templates of another class do."""
        ...


class Anything:
    """The contents of a store that cannot be read: each answer is the one that makes a rule stricter."""

    def dropped(self, name: str, form: ModelForm) -> str | None:
        return None

    def count(self, name: str) -> int:
        return -1

    def holds_other(self, name: str, property: str, value: Any) -> bool:
        return True

    def holds_one_of(self, name: str, property: str, values: Sequence[Any]) -> bool:
        return True

    def undeclared(self, name: str, extra: str, property: str) -> tuple[str, str] | None:
        return None

    def within(self, name: str, partition: Template, row: Template) -> Sequence[tuple[str, str]]:
        return ()
