"""Other names of properties: what a migration changes in a catalogue, and how an older version sees it after that.

Only the catalogue says what a property is called. A version that knows it by its old name is shown a catalogue with that name,
and everything else follows from it: so both versions read and write the same columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import attrs
from msgspec import UNSET

from ....evolution.renames import with_properties, with_source
from ....schema.forms import ModelForm, VersionForm
from ....schema.model import Model, Schema
from .catalogue import Catalogue, Twin
from .tables import EntityTable

__all__ = ["Names", "composed", "guests", "index_columns_of", "lives_beside", "seen_by", "with_names", "without"]

Names: TypeAlias = Mapping[str, str]
"""Properties, each with its other name."""


def with_names(catalogue: Catalogue, name: str, names: Names) -> Catalogue:
    """Return a catalogue with other names of some properties of a class; tables have both."""
    models = dict(catalogue.models)
    form = models[name]
    models[name] = with_properties(form, names)
    for other, one in catalogue.models.items():
        if one.aggregate is not UNSET and one.aggregate.of == name:
            models[other] = with_source(one, name, names)
    table = catalogue.tables[form.table]
    columns = dict(table.properties)
    columns |= {new: columns[old] for old, new in names.items() if old in columns}
    tables = catalogue.tables | {form.table: attrs.evolve(table, properties=tuple(columns.items()))}
    return attrs.evolve(catalogue, models=models, tables=tables)


def without(table: EntityTable, properties: Iterable[str]) -> EntityTable:
    """Return a table without some names of its columns."""
    gone = set(properties)
    return attrs.evolve(table, properties=tuple([one for one in table.properties if one[0] not in gone]))


def lives_beside(catalogue: Catalogue, model: Model) -> str | None:
    """Return the migration beside which a class goes on, on tables of its own; None if there is none."""
    live = [
        version.beside
        for version in catalogue.versions.get(model.name, ())
        if version.until is None and version.form == model.form_hash
    ]
    return None if None in live else next(iter(live), None)


def guests(catalogue: Catalogue, models: Iterable[Model]) -> tuple[Twin, ...]:
    """Return the twins that classes find where others find those of the file."""
    if not catalogue.twins:
        return ()
    migrations = {lives_beside(catalogue, model) for model in models}
    return tuple([twin for twin in catalogue.twins if twin.migration in migrations])


def seen_by(catalogue: Catalogue, schema: Schema) -> tuple[Catalogue, dict[str, Names]]:
    """Return a catalogue as classes know it, and for each class with other names those that the file has by now."""
    for twin in guests(catalogue, schema.models):
        catalogue = catalogue.without(catalogue.group(twin)).together(twin.catalogue)
    renames: dict[str, Names] = {}
    for model in schema.models:
        for version in catalogue.versions.get(model.name, ()):
            if version.renames and version.until is None and version.form == model.form_hash:
                renames[model.name] = version.renames
    for name, names in renames.items():
        catalogue = with_names(catalogue, name, {new: old for old, new in names.items()})
    return catalogue, renames


def composed(version: VersionForm, names: Names) -> dict[str, str]:
    """Return what the properties of a version are called once they have other names again."""
    renames = {old: names.get(new, new) for old, new in version.renames.items()}
    renames |= {old: new for old, new in names.items() if old not in version.renames.values()}
    return {old: new for old, new in renames.items() if old != new}


def index_columns_of(form: ModelForm, index: str) -> list[str]:
    """Return the properties that have columns in the table of an index."""
    return [one for one in form.indexes[index].include if not form.fields[one].in_key]
