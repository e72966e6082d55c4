"""Which of a catalogue's definitions a class declares.

An index or an aggregate that is declared in another way is built beside the old one, which older versions of the program go
on to use. The newest definition has the plain name; former ones are ``by_name#1``, ``by_name#2``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from ..schema.forms import FieldForm, Forms, IndexForm, ModelForm

__all__ = [
    "aggregate_in",
    "as_declared",
    "former_name",
    "indexes_in",
    "is_former",
    "plain_name",
    "same_aggregate",
    "takes_place_of",
]


_NONE: Mapping[str, str] = MappingProxyType({})


def plain_name(name: str) -> str:
    """Return the name that a class declares, of a definition that may be a former one."""
    return name.partition("#")[0]


def is_former(name: str) -> bool:
    """Return whether a definition is a former one, which no class declares by this name."""
    return plain_name(name) != name


def former_name(name: str, taken: Collection[str]) -> str:
    """Return the name of a definition that another one takes the place of."""
    number = 1
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"


def as_declared(held: IndexForm, declared: IndexForm) -> bool:
    """Return whether an index of a catalogue is what a class declares, to the letter."""
    return replace(held, include_all=False) == replace(declared, include_all=False)


def _same_index(held: IndexForm, declared: IndexForm) -> bool:
    """Return whether an index can serve for one that a class declares.

    What ``include="all"`` takes in are the fields that there were when the index was built.
    """
    both = held.include_all and declared.include_all
    if not both and sorted(held.include) != sorted(declared.include):
        return False
    return as_declared(replace(held, include=[], table=""), replace(declared, include=[], table=""))


def takes_place_of(plain: IndexForm, unique: IndexForm) -> bool:
    """Return whether an index is another one without the promise that its values differ."""
    return unique.unique and not plain.unique and _same_index(replace(plain, unique=True), unique)


def indexes_in(
    held: Mapping[str, IndexForm], declared: Mapping[str, IndexForm], instead: Mapping[str, str] = _NONE
) -> dict[str, str]:
    """Return the names in a catalogue of the indexes that a class declares; those that are not there have none.

    Args:
        held: those of the catalogue.
        declared: those of the class.
        instead: indexes that are not unique any more, by name, each with the one that has taken the place of it.
    """
    found: dict[str, str] = {}
    for name, form in declared.items():
        # Its own name first, then former definitions of that, then indexes that only have another name.
        for other in sorted(held, key=lambda one: (one != name, plain_name(one) != name)):
            own = plain_name(other) == name
            if _same_index(held[other], form) and (not own or held[other].table == form.table):
                found[name] = other
                break
        else:
            plain = held.get(instead.get(name, ""))
            if plain is not None and takes_place_of(plain, form):
                found[name] = instead[name]
    return found


def same_aggregate(held: ModelForm, declared: ModelForm) -> bool:
    """Return whether an aggregate of a catalogue keeps what a class declares; its indexes may be others."""
    a, b = held.aggregate, declared.aggregate
    if not a or not b:
        return False
    return (
        (a, list(a.measures), held.partition, held.row) == (b, list(b.measures), declared.partition, declared.row)
        and held.fields.keys() == declared.fields.keys()
        and all(_one_kind(held.fields[name], field) for name, field in declared.fields.items())
    )


def _one_kind(a: FieldForm, b: FieldForm) -> bool:
    return a.type == b.type or {a.type, b.type} == {"int32", "int"}


def aggregate_in(catalogue: Forms, name: str, form: ModelForm) -> str | None:
    """Return the name in a catalogue of a class; None if it is an aggregate, and known by other definitions only.

    A former definition is taken with its indexes: with one more it is built anew.
    """
    if not form.aggregate or name not in catalogue or not catalogue[name].aggregate:
        return name
    if same_aggregate(catalogue[name], form) and catalogue[name].table == form.table:
        return name
    former = [one for one in catalogue if one != name and plain_name(one) == name]
    return next(
        (
            one
            for one in former
            if same_aggregate(catalogue[one], form)
            and indexes_in(catalogue[one].indexes, form.indexes).keys() == form.indexes.keys()
        ),
        None,
    )
