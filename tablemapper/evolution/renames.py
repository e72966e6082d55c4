"""The form of a class after a rename: of some of its properties, of the class that it aggregates, or of its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from ..entities.fields import MeasureKind
from ..entities.key_and_indexes import index_table
from ..schema.specs import AggregateSpec, Forms, IndexSpec, ModelSpec, TemplateSpec


def rename_in_place(renames: Mapping[str, Mapping[str, str]], old: Forms, new: Forms) -> bool:
    """Return whether renames change only the catalogue, as no name stands for two properties of a table.

    Args:
        renames: by class, the properties with their new names.
        old: the classes before.
        new: the same classes afterwards.
    """
    pairs: dict[str, set[tuple[str, str]]] = {}
    for name, names in renames.items():
        if not _differ([*names, *names.values()]):
            return False
        pairs.setdefault(old[name].table, set()).update(
            [pair for pair in names.items() if not old[name].fields[pair[0]].in_key]
        )
    for table, renamed in pairs.items():
        new_names = {new_name for _, new_name in renamed}
        if not _differ([name for pair in renamed for name in pair]):
            return False
        if any(new_names & _columns(form) for form in old.values() if form.table == table):
            return False
        if any(_columns(form).issuperset(pair) for form in new.values() if form.table == table for pair in renamed):
            return False
    return True


def _differ(names: Sequence[str]) -> bool:
    return len(set(names)) == len(names)


def _columns(form: ModelSpec) -> set[str]:
    """Return the properties of a class that are stored beside its key."""
    return {name for name, field in form.fields.items() if not field.in_key}


def with_properties(form: ModelSpec, names: Mapping[str, str]) -> ModelSpec:
    """Return the form of a class with new names of some properties, given by the old ones."""
    return replace(
        form,
        partition=_template(form.partition, names),
        row=_template(form.row, names),
        fields={names.get(name, name): field for name, field in form.fields.items()},
        indexes={name: _index(index, names) for name, index in form.indexes.items()},
    )


def with_source(form: ModelSpec, source: str, names: Mapping[str, str]) -> ModelSpec:
    """Return the form of an aggregate with a new name of its source, and of some properties of that."""
    shape = form.aggregate
    if shape is UNSET:
        return form
    measures: dict[str, tuple[MeasureKind, Any, Any]] = {
        name: (kind, _value(label, names), _condition(where, names))
        for name, (kind, label, where) in shape.measures.items()
    }
    groups = {name: _label(label, names) for name, label in shape.groups.items()}
    return replace(form, aggregate=AggregateSpec(source, _condition(shape.where, names), groups, measures))


def with_table(form: ModelSpec, table: str) -> ModelSpec:
    """Return the form of a class with another table; the tables of indexes that are named after it are renamed, too."""
    indexes = {
        name: replace(index, table=index_table(table, name)) if index.table == index_table(form.table, name) else index
        for name, index in form.indexes.items()
    }
    return replace(form, table=table, indexes=indexes)


def _template(form: TemplateSpec, names: Mapping[str, str]) -> TemplateSpec:
    slots = [(_label(field, names), spec, kind) for field, spec, kind in form.slots]
    return TemplateSpec(form.renamed_text(names), slots)


def _index(form: IndexSpec, names: Mapping[str, str]) -> IndexSpec:
    return replace(
        form,
        partition=_template(form.partition, names),
        row=_template(form.row, names),
        include=[names.get(name, name) for name in form.include],
        where=_condition(form.where, names),
    )


def _label(label: str, names: Mapping[str, str]) -> str:
    """Return a label, ``home.city`` or ``taken_at.date()``, with the new name of its property."""
    end = min([at for at in (label.find("."), label.find("[")) if at >= 0], default=len(label))
    return names.get(label[:end], label[:end]) + label[end:]


def _value(form: Any, names: Mapping[str, str]) -> Any:
    """Return the form of a measured field or calculation with the new names."""
    if isinstance(form, list):
        return [form[0], *[_value(part, names) for part in form[1:]]]
    return _label(form, names) if isinstance(form, str) else form


def _condition(form: Any, names: Mapping[str, str]) -> Any:
    """Return the form of a condition with the new names."""
    if form is None:
        return None
    op, *operands = form
    if op in ("and", "or", "not"):
        return [op, *[_condition(part, names) for part in operands]]
    if op != "in" and len(operands) == 2 and isinstance(operands[1], dict) and operands[1].keys() == {"field"}:
        operands[1] = {"field": _label(operands[1]["field"], names)}
    return [op, _label(operands[0], names), *operands[1:]]
