"""The definitions of a catalogue, by name: which a class declares, which are former, which aggregates keep its fields."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from ..entities.aggregates import kept_field
from ..schema.labels import plain_name
from ..schema.specs import FieldSpec, Forms, IndexSpec, ModelSpec

_NO_REPLACEMENTS: Mapping[str, str] = MappingProxyType({})


def as_declared(catalogue_spec: IndexSpec, class_spec: IndexSpec) -> bool:
    """Return whether an index of a catalogue is exactly the one that a class declares."""
    return catalogue_spec == class_spec or replace(catalogue_spec, include_all=False) == replace(
        class_spec, include_all=False
    )


def _serves_for(catalogue_spec: IndexSpec, class_spec: IndexSpec) -> bool:
    """Return whether an index of a catalogue can answer queries over an index that a class declares.

    ``include="all"`` includes the fields that the class had when the index was built.
    """
    both_include_all = catalogue_spec.include_all and class_spec.include_all
    if not both_include_all and sorted(catalogue_spec.include) != sorted(class_spec.include):
        return False
    return as_declared(replace(catalogue_spec, include=[], table=""), replace(class_spec, include=[], table=""))


def takes_place_of(plain: IndexSpec, unique: IndexSpec) -> bool:
    """Return whether two indexes differ only in that the second one is unique, and the first one is not."""
    return unique.unique and not plain.unique and _serves_for(replace(plain, unique=True), unique)


def indexes_in(
    catalogue_specs: Mapping[str, IndexSpec],
    class_specs: Mapping[str, IndexSpec],
    replacements: Mapping[str, str] = _NO_REPLACEMENTS,
) -> dict[str, str]:
    """Return the indexes that a class declares, by name, each with its name in the catalogue; the missing are left out.

    Args:
        replacements: unique indexes that were dropped, each with the plain index that replaced it.
    """
    stored_names: dict[str, str] = {}
    for name, form in class_specs.items():
        if catalogue_specs.get(name) == form:
            stored_names[name] = name
            continue
        # Its own name first, then former definitions of that, then indexes that only have another name.
        for candidate in sorted(catalogue_specs, key=lambda other: (other != name, plain_name(other) != name)):
            same_name = plain_name(candidate) == name
            if _serves_for(catalogue_specs[candidate], form) and (
                not same_name or catalogue_specs[candidate].table == form.table
            ):
                stored_names[name] = candidate
                break
        else:
            plain = catalogue_specs.get(replacements.get(name, ""))
            if plain is not None and takes_place_of(plain, form):
                stored_names[name] = replacements[name]
    return stored_names


def _same_aggregate(catalogue_spec: ModelSpec, class_spec: ModelSpec) -> bool:
    """Return whether an aggregate of a catalogue maintains what a class declares; their indexes may differ."""
    a, b = catalogue_spec.aggregate, class_spec.aggregate
    if not a or not b:
        return False
    return (
        (a, list(a.measures), catalogue_spec.partition, catalogue_spec.row)
        == (b, list(b.measures), class_spec.partition, class_spec.row)
        and catalogue_spec.fields.keys() == class_spec.fields.keys()
        and (
            catalogue_spec.fields == class_spec.fields
            or all(_same_type(catalogue_spec.fields[name], field) for name, field in class_spec.fields.items())
        )
    )


def _same_type(a: FieldSpec, b: FieldSpec) -> bool:
    return a.type == b.type or {a.type, b.type} == {"int32", "int"}


def aggregate_in(catalogue: Forms, name: str, form: ModelSpec) -> str | None:
    """Return the name that a class has in a catalogue; None for an aggregate of which it has other definitions only.

    A former definition serves only if it has all indexes that the class declares; else the aggregate is built anew.
    """
    if not form.aggregate or name not in catalogue or not catalogue[name].aggregate:
        return name
    if _same_aggregate(catalogue[name], form) and catalogue[name].table == form.table:
        return name
    for candidate, candidate_form in catalogue.items():
        if candidate == name or plain_name(candidate) != name or not _same_aggregate(candidate_form, form):
            continue
        if indexes_in(candidate_form.indexes, form.indexes).keys() == form.indexes.keys():
            return candidate
    return None


def holds_all(catalogue_spec: ModelSpec, class_spec: ModelSpec) -> bool:
    """Return whether a class of a catalogue has all that a class declares, as it does, by whatever index names."""
    declared_fields = {name: replace(field, default=None) for name, field in class_spec.fields.items()}
    stored_fields = {name: replace(field, default=None) for name, field in catalogue_spec.fields.items()}
    return (
        declared_fields.items() <= stored_fields.items()
        and (class_spec.partition, class_spec.row) == (catalogue_spec.partition, catalogue_spec.row)
        and class_spec.type in (None, catalogue_spec.type)
        and indexes_in(catalogue_spec.indexes, class_spec.indexes).keys() == class_spec.indexes.keys()
        and class_spec.aggregate == catalogue_spec.aggregate
    )


def has_names_of(catalogue_spec: ModelSpec, class_spec: ModelSpec) -> bool:
    """Return whether the indexes of a class have the names in a catalogue by which the class declares them."""
    return all(
        name == catalogue_name
        for name, catalogue_name in indexes_in(catalogue_spec.indexes, class_spec.indexes).items()
    )


def keepers_of(name: str, forms: Forms) -> dict[str, str]:
    """Return the aggregates that keep the maintained fields of a class, by name, each with the field's property."""
    fields = {keeper: kept_field(keeper) for keeper in forms}
    return {keeper: field[1] for keeper, field in fields.items() if field is not None and field[0] == name}


def depth_of(name: str, forms: Forms) -> int:
    """Return the length of the longest chain of maintained fields that a class depends on; 0 if it has none.

    A class whose maintained field is computed from another class is one deeper than that one.
    """
    sources = [source for keeper in keepers_of(name, forms) if (source := forms[keeper].source) is not None]
    return max([1 + depth_of(source, forms) for source in sources], default=0)
