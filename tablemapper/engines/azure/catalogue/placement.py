"""The partitions of index rows and groups: those of the entities, or others; what is not possible there."""

from __future__ import annotations

from collections.abc import Iterator

from ....errors import InvalidModel
from ....evolution.rules import reads
from ....expressions.tree import Attr
from ....schema.model import Model, Schema, is_local, parts_of

MAX_PROPERTIES = 250  # of an entity: two more are hidden


def check_models(schema: Schema, catalogue: str) -> None:
    """Refuse classes that need more than one partition has, each with what to declare instead.

    Raises:
        InvalidModel
    """
    faults = [fault for model in schema.models for fault in _faults(model, schema, catalogue)]
    if faults:
        raise InvalidModel("Azure Tables", faults)


def _faults(model: Model, schema: Schema, catalogue: str) -> Iterator[str]:
    own_partition = model.declaration.templates[0]
    if model.table.lower() == catalogue.lower():
        yield f'{model.name}: the table "{model.table}" is that of the catalogue; choose another table='
    if len(model.columns) > MAX_PROPERTIES:
        yield f"{model.name}: {len(model.columns)} properties, of which Azure Tables takes {MAX_PROPERTIES} beside what is hidden"
    maintained = [field.property for field in model.maintained]
    for name, form in model.form.indexes.items():
        if maintained_reads := [property for property in maintained if reads(form, property)]:
            yield (
                f"{model.name}.{name}: an index over {maintained_reads[0]}, which is maintained from other entities, is not possible on Azure "
                "Tables, as these lie elsewhere; declare an aggregate of these with the index"
            )
    if ":" in model.name:  # (what keeps such a field)
        return
    if model.aggregate is None:
        return
    of = schema.by_class[model.aggregate.source]
    for index in model.indexes:
        if index.unique and not is_inner(model, of):
            yield (
                f"{model.name}.{index.name}: a unique index on an aggregate in another partition than its entities is not "
                f"possible on Azure Tables, as their writes cannot be refused for it; leave out unique=True"
            )
        elif index.unique and not is_local(model, index):
            yield (
                f"{model.name}.{index.name}: a unique index on an aggregate in other partitions than its groups' is not "
                f"possible on Azure Tables yet; give it the partition of the key, {own_partition.text!r}, or leave out unique=True"
            )


def is_inner(model: Model, source: Model) -> bool:
    """Return whether the groups of an aggregate lie in the partitions of the entities."""
    assert model.aggregate is not None
    if model.table != source.table:
        return False
    names = {}
    for name, attr in model.aggregate.groups.items():
        is_field = isinstance(attr, Attr) and attr.part is None and not attr.path
        names[name] = attr.name if is_field and isinstance(attr, Attr) else f"{name} of its own"
    return parts_of(model.declaration.templates[0], names) == parts_of(source.declaration.templates[0], {})
