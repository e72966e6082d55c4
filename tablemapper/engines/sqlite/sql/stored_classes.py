"""The classes of a store as one file has them: their names in its catalogue, their tables and their statements.

A program can open a class by an older form than that of the catalogue, and without the aggregates over it. Then the
catalogue says what the rows hold and what is maintained, and the class says what the program reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from ....catalogue.catalogue import Catalogue, values_label
from ....catalogue.property_names import catalogue_view, mirror_readers
from ....catalogue.tables import Table, has_values
from ....catalogue.zone_rules import other_rules, refused_writes
from ....entities.aggregates import keeper_name
from ....errors import SchemaMismatch
from ....evolution.definitions import aggregate_in, depth_of, indexes_in
from ....evolution.newer_versions import ExtendedModel, follow, owners_of
from ....evolution.versions import retirement
from ....schema.maintenance import IndexMaintenance
from ....schema.model import Model, Schema
from .index_tables import ValuesTable
from .statements import Statements

T = TypeVar("T")
_ANOTHER = "the store has another class of this name by now: take it from store.classes again"


class ModelDict(dict[Model, T]):
    """A dict by class that raises SchemaMismatch for classes that were retired."""

    def __init__(self, retired: Mapping[str, str], items: Mapping[Model, T]) -> None:
        super().__init__(items)
        self._retired = retired

    def __missing__(self, model: Model) -> T:
        raise SchemaMismatch(model.name, [self._retired.get(model.name, _ANOTHER)])


class StoredClasses:
    """The classes of a store as one file has them.

    Attributes:
        stored: the catalogue of the file.
        catalogue: the same as the opened classes know it: with the names of their versions, and of their twins.
        guests: the twins whose tables the opened classes use.
        schema: the opened classes, without those that cannot be used any more.
        names: the name of each class in the catalogue, which differs for an aggregate of a former definition.
        extended: the classes of which the file stores or maintains more than their code declares.
        models: the opened classes, without aggregates of a former definition, and the unopened aggregates over them.
        keepers: the names of the aggregates that keep the maintained fields of classes, by field.
        statements: the statements of each class over its table.
        values: the statements for the live values of aggregates that count them.
    """

    def __init__(self, schema: Schema, catalogue: Catalogue) -> None:
        self.stored = catalogue
        self.guests: Final = mirror_readers(catalogue, schema.models)
        view, self._renames = catalogue_view(catalogue, schema)
        self.catalogue: Final = view
        self._retired = _retired(schema, self.catalogue)
        self.schema: Schema = _without(schema, self._retired)
        self._other_rules = other_rules(self.catalogue)
        forms = self.catalogue.models
        self._unopened = tuple(owners_of(self.schema, forms))
        names = {model: aggregate_in(forms, model.name, model.form) or model.name for model in self.schema.models}
        names |= {model: model.name for model in self._unopened}
        refusals = refused_writes(self.catalogue, self._other_rules)
        self.extended: dict[Model, ExtendedModel] = follow(
            Schema(tuple(names)), forms, self.catalogue.versions, names, refusals
        )
        aggregates = [aggregate for extended in self.extended.values() for aggregate in extended.aggregates]
        names |= {model: model.name for model in aggregates}
        self.names: ModelDict[str] = ModelDict(self._retired, names)
        self.models: tuple[Model, ...] = (
            *[model for model in self.schema.models if names[model] == model.name],
            *aggregates,
        )
        self.keepers: dict[Model, dict[str, str]] = {
            model: keepers for model in names if (keepers := self._keepers(model))
        }
        statements = {
            model: Statements(self.table_of(model), model, self.extended.get(model), name, self._group_columns(model))
            for model, name in names.items()
        }
        self.statements: ModelDict[Statements] = ModelDict(self._retired, statements)
        self.values: dict[Model, ValuesTable] = {
            model: ValuesTable(self.values_table(model)) for model in self.models if has_values(model)
        }

    def with_stored_fields(self, model: Model) -> Model:
        """Return a class with the properties that only the catalogue knows."""
        return self.extended[model].model if model in self.extended else model

    def _keepers(self, model: Model) -> dict[str, str]:
        models_by_name = self.schema.by_name
        keepers = {
            field.name: keeper_name(model.name, field.property) for field in self.with_stored_fields(model).maintained
        }
        return {
            field: self.names[models_by_name[name]] if name in models_by_name else name
            for field, name in keepers.items()
        }

    def _group_columns(self, model: Model) -> dict[str, tuple[str, str]]:
        """Return the tables and columns of the maintained fields of a class."""
        group_columns = {}
        for field in self.with_stored_fields(model).maintained:
            table = self.catalogue.table_of(self.keepers[model][field.name])
            group_columns[field.name] = table.name, table.column(field.property)
        return group_columns

    def table_of(self, model: Model) -> Table:
        """Return the table of a class."""
        return self.catalogue.table_of(self.names[model])

    def values_table(self, model: Model) -> str:
        """Return the physical name of the table that an aggregate counts its live values in."""
        return self.catalogue.index_tables[values_label(self.names[model])]

    def label(self, model: Model, index: str | None = None) -> str:
        """Return the label of a class, or of an index that it declares."""
        name = self.names.get(model, model.name)
        if index is None:
            return name
        stored_names = self.stored_names(model) if name in self.catalogue.models else {}
        return f"{name}.{stored_names.get(index, index)}"

    def required_labels(self, model: Model) -> list[str]:
        """Return the labels of the aggregates that a read of a class needs: itself, and what keeps its fields."""
        keepers = self.keepers.get(model, {})
        own_labels = [] if model.aggregate is None else [self.label(model)]
        return [*own_labels, *(keepers[field.name] for field in model.maintained)]

    def stored_names(self, model: Model) -> dict[str, str]:
        """Return the indexes that a class declares, each with its name in the catalogue."""
        form = self.catalogue.models[self.names[model]]
        return indexes_in(form.indexes, model.form.indexes, self.catalogue.instead(model.name))

    def depth(self, model: Model) -> int:
        """Return how long the longest chain of maintained fields is that a class depends on."""
        return depth_of(model.name, self.catalogue.models)

    def statements_of(self, index: IndexMaintenance) -> Statements:
        """Return the statements of the class that an index is over."""
        declared_model = next(
            (extended.known for extended in self.extended.values() if extended.model is index.owner), index.owner
        )
        return self.statements[declared_model]


def _without(schema: Schema, retired: Mapping[str, str]) -> Schema:
    return Schema(tuple([model for model in schema.models if model.name not in retired])) if retired else schema


def _retired(schema: Schema, catalogue: Catalogue) -> dict[str, str]:
    """Return why classes cannot be used any more, by name: they, their sources or keepers were retired or dropped."""
    retired: dict[str, str] = {}
    for model in schema.models:
        source = model if model.aggregate is None else schema.by_class[model.aggregate.source]
        names = [keeper_name(model.name, field.property) for field in model.maintained]
        keepers = [schema.by_name[name] for name in names if name in schema.by_name]  # (others are those of a twin)
        keepers += [schema.by_class[keeper.aggregate.source] for keeper in keepers if keeper.aggregate is not None]
        for dependency in (source, *keepers, model):
            reason = retirement(dependency, catalogue.versions, catalogue.history)
            if reason is None and (tombstone := catalogue.gone(dependency.name, dependency.form)):
                reason = str(tombstone)
            if reason is not None and dependency is not model:
                relation = "keeps a field" if dependency in keepers else "it is maintained from"
                reason = f"{dependency.name}, which {relation}: {reason}"
            if reason is not None:
                retired[model.name] = reason
    return retired
