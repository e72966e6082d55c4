"""The forms of the classes of the old shape, while the steps of a script change them into those of the new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from ..evolution.renames import with_properties, with_source
from ..expressions.tree import Attr
from ..schema.specs import Forms, ModelSpec
from .arguments import field_of, form_of


class SpecChanges:
    """The forms of the classes of the old shape, changed by one step after the other.

    Args:
        forms: the classes of the old shape.
        targets: those of the new one.
        names: the new names of classes.
    """

    def __init__(self, forms: Forms, targets: Forms, names: Mapping[str, str]) -> None:
        self.forms: dict[str, ModelSpec] = dict(forms)
        """By old name; by new name once the classes have these."""
        self.targets = targets
        self.names = names
        self._old_names = {new: old for old, new in names.items()}

    def change(self, name: str, change: Callable[[ModelSpec], ModelSpec]) -> None:
        """Change a class, if it is there."""
        if name in self.forms:
            self.forms[name] = change(self.forms[name])

    def rename_properties(self, name: str, names: Mapping[str, str]) -> None:
        """Give properties of a class other names at once, as two may swap theirs; in its aggregates, too."""
        self.change(name, lambda form: with_properties(form, names))
        for other_name, form in self.forms.items():
            if form.source == name:
                self.forms[other_name] = with_source(form, name, names)

    def set_field(self, attr: Attr[Any, Any]) -> None:
        """Give a field the type that it has in the new shape, where the key does not hold it."""
        name: str = attr.owner.__name__
        property, form = field_of(attr).property, form_of(attr)

        def change(old: ModelSpec) -> ModelSpec:
            in_key = old.fields[property].in_key if property in old.fields else form.in_key
            return replace(old, fields=old.fields | {property: replace(form, in_key=in_key)})

        self.change(self._old_names.get(name, name), change)

    def rename_classes(self) -> None:
        """Give all classes their new names."""
        forms = {}
        for name, form in self.forms.items():
            if (source := form.source) is not None:
                form = with_source(form, self.names.get(source, source), {})
            forms[self.names.get(name, name)] = form
        self.forms = forms


def without(form: ModelSpec, property: str) -> ModelSpec:
    """Return the form of a class without a property, and without the indexes that hold it."""
    return replace(
        form,
        fields={name: field for name, field in form.fields.items() if name != property},
        indexes={name: index for name, index in form.indexes.items() if property not in index.fields},
    )


def without_index(form: ModelSpec, index: str) -> ModelSpec:
    return replace(form, indexes={name: spec for name, spec in form.indexes.items() if name != index})
