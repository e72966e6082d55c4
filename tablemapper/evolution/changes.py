"""How a file differs from the classes that it is opened with, and what a rule may ask of it."""

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
    """One difference between a catalogue and the classes that a store is opened with."""

    where: str
    """The class, field, index or aggregate: ``Product``, ``Product.price``."""
    rule: Rule
    message: str
    code: str = ""
    """The step of a migration that makes it, as it stands in a script; ``...`` is to be replaced."""
    warning: bool = False
    """Whether a user should know of it, though it is taken over."""

    def __str__(self) -> str:
        return f"{self.where.partition('.')[0]}: {self.message}"

    @property
    def stops(self) -> bool:
        """Whether a store cannot be opened with it."""
        return self.rule in ("migration", "refused")


class Contents(Protocol):
    """What a store holds of the classes of its catalogue, where a rule depends on it."""

    def dropped(self, name: str, form: ModelForm) -> str | None:
        """Return what is to be said of a class that was opened once, and declares what was dropped since; None if it does not."""
        ...

    def count(self, name: str) -> int:
        """Return the number of rows of a class; -1 for some."""
        ...

    def holds_other(self, name: str, property: str, value: Any) -> bool:
        """Return whether a row of a class holds something in a property, and not this stored value."""
        ...

    def holds_one_of(self, name: str, property: str, values: Sequence[Any]) -> bool:
        """Return whether a row of a class holds one of some stored values in a property."""
        ...

    def undeclared(self, name: str, extra: str, property: str) -> tuple[str, str] | None:
        """Return the key of a row that holds a property among those that its class does not declare."""
        ...

    def within(self, name: str, partition: Template, row: Template) -> Sequence[tuple[str, str]]:
        """Return the keys of rows of a class that fall into the range of a more special one."""
        ...


class Anything:
    """The contents of a store that nobody has looked at: whatever a rule may fear is there."""

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
