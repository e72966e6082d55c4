"""Renamed properties, and classes with twins: the catalogue as an older version of a program sees it.

Only the catalogue has the names of properties. An older version sees a catalogue with the old names, and the same
columns. So both versions read and write the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import attrs

from ..evolution.definitions import holds_all
from ..evolution.evolution import Evolution
from ..evolution.renames import with_properties, with_source
from ..evolution.versions import Version
from ..schema.model import Model, Schema
from .catalogue import Catalogue, Mirror
from .tables import Table

Names: TypeAlias = Mapping[str, str]
"""Properties, each with its new name."""


def with_names(catalogue: Catalogue, name: str, names: Names) -> Catalogue:
    """Return a catalogue with new names of some properties of a class; its table knows the columns by both names."""
    models = dict(catalogue.models)
    form = models[name]
    models[name] = with_properties(form, names)
    for aggregate_name, aggregate in catalogue.models.items():
        if aggregate.source == name:
            models[aggregate_name] = with_source(aggregate, name, names)
    table = catalogue.tables[form.table]
    columns = dict(table.properties)
    columns |= {new: columns[old] for old, new in names.items() if old in columns}
    tables = catalogue.tables | {form.table: attrs.evolve(table, properties=tuple(columns.items()))}
    return attrs.evolve(catalogue, models=models, tables=tables)


def without(table: Table, properties: Iterable[str]) -> Table:
    """Return a table that does not know its columns by some properties any more."""
    removed_names = set(properties)
    return attrs.evolve(table, properties=tuple([pair for pair in table.properties if pair[0] not in removed_names]))


def _lives_beside(catalogue: Catalogue, model: Model) -> str | None:
    """Return the migration whose twin a class uses; None if it uses the tables of the file."""
    live = [version.beside for version in catalogue.versions.live(model.name, model.form_hash)]
    return None if None in live else next(iter(live), None)


def mirror_readers(catalogue: Catalogue, models: Iterable[Model]) -> tuple[Mirror, ...]:
    """Return the twins that some classes use in place of the tables of the file."""
    if not catalogue.twins:
        return ()
    classes = tuple(models)
    migrations = {_lives_beside(catalogue, model) for model in classes}
    return tuple(
        [
            twin
            for twin in catalogue.twins
            if twin.migration in migrations and not any(_replaces(catalogue, twin, model) for model in classes)
        ]
    )


def _replaces(catalogue: Catalogue, twin: Mirror, model: Model) -> bool:
    """Return whether a class took the place of a twin's: another class with it may have its old form again."""
    if model.name not in catalogue.group(twin):
        return False
    older = twin.catalogue.models.get(model.name)
    in_use = any(version.in_use for version in catalogue.versions.live(model.name, model.form_hash))
    return in_use and model.aggregate is None and (older is None or not holds_all(older, model.form))


def catalogue_view(catalogue: Catalogue, schema: Schema) -> tuple[Catalogue, dict[str, Names]]:
    """Return a catalogue as some classes know it, and the new names of their properties, by class."""
    for twin in mirror_readers(catalogue, schema.models):
        catalogue = catalogue.without(catalogue.group(twin)).together(twin.catalogue)
    renames: dict[str, Names] = {}
    for model in schema.models:
        for version in catalogue.versions.live(model.name, model.form_hash):
            if version.renames:
                renames[model.name] = version.renames
    for name, names in renames.items():
        catalogue = with_names(catalogue, name, {new: old for old, new in names.items()})
    return catalogue, renames


def names_in_use(catalogue: Catalogue, evolution: Evolution) -> Iterator[str]:
    """Yield the new properties whose names older versions, or other classes of the table, use for other properties."""
    new = [*evolution.fields, *[(model, name) for model in evolution.models for name in model.form.fields]]
    for model, property in new:
        for name, form in catalogue.models.items():
            for version in catalogue.versions.live(name) if form.table == model.table else ():
                if property in version.renames:
                    current_name = (
                        version.renames[property] if name == model.name else f"{name}.{version.renames[property]}"
                    )
                    yield (
                        f'{model.name}: "{property}" is what "{current_name}" was called before {version.behind}: contract that first, or '
                        "choose another name"
                    )
    for name, form in evolution.models_after.items():
        columns, seen = (
            dict(catalogue.tables[form.table].properties) if form.table in catalogue.tables else {},
            dict[str, str](),
        )
        for property, field in form.fields.items():
            if (
                not field.in_key
                and property in columns
                and (first := seen.setdefault(columns[property], property)) != property
            ):
                yield (
                    f'{name}: "{property}" and "{first}" are one property in the table {form.table}, as another class there was '
                    "renamed: choose another name, or another table"
                )


def composed(version: Version, names: Names) -> dict[str, str]:
    """Return the names of a version's properties after a further rename."""
    renames = {old: names.get(new, new) for old, new in version.renames.items()}
    renames |= {old: new for old, new in names.items() if old not in version.renames.values()}
    return {old: new for old, new in renames.items() if old != new}
