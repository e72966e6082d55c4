"""What a catalogue keeps of each class, typed: whatever else stands in one was not written by this library."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

__all__ = ["AggregateForm", "FieldForm", "IndexForm", "ModelForm", "TemplateForm"]


class _Form(msgspec.Struct, forbid_unknown_fields=True):
    pass


class TemplateForm(_Form):
    """A template of keys, as `Template.to_json` gives it."""

    text: str | list[str]
    slots: list[tuple[str, str, str]]
    """Field, spec, name of the scalar type."""

    def __str__(self) -> str:
        texts = [self.text] if isinstance(self.text, str) else self.text
        shown = ", ".join(f'"{text}"' for text in texts)
        return shown if isinstance(self.text, str) else f"({shown})"


class FieldForm(_Form):
    """A field, by its property."""

    type: str
    optional: bool
    in_key: bool
    default: Any
    """What rows read as that lack the property."""
    json: dict[str, Any] | UnsetType = UNSET
    """The JSON schema of a nested value; files that were written before there was one have none."""


class IndexForm(_Form):
    """An index, as `IndexModel.to_json` gives it."""

    table: str
    partition: TemplateForm
    row: TemplateForm
    include: list[str]
    unique: bool
    where: Any


class AggregateForm(_Form):
    """What a class maintains over the entities of another, as `AggregateModel.to_json` gives it."""

    of: str
    where: Any
    groups: dict[str, str]
    measures: dict[str, tuple[str, str | None, Any]]


class ModelForm(_Form):
    """Everything that decides what is stored and maintained of a class."""

    table: str
    type: str | None
    partition: TemplateForm
    row: TemplateForm
    fields: dict[str, FieldForm]
    indexes: dict[str, IndexForm]
    aggregate: AggregateForm | UnsetType = UNSET
