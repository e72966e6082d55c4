"""The tables of a file while a take-over or a migration changes them: dropped, renamed, created, extended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
from msgspec.structs import replace

from ..evolution.definitions import aggregate_in
from ..evolution.evolution import Evolution
from ..evolution.history import History
from ..schema.maintenance import index_columns
from ..schema.model import Model, Schema
from ..schema.specs import BuildStateSpec, ModelSpec
from . import actions
from .catalogue import Catalogue, labels_of, values_label, values_table
from .dropping import without_jobs
from .tables import Column, Table, has_values, index_column_names
from .zone_rules import ruled_here


class Layout:
    """The tables of a file while they are changed.

    Attributes:
        tables: the entity tables, by their public names.
    """

    def __init__(self, draft: actions.ActionPlan, catalogue: Catalogue) -> None:
        self.tables: dict[str, Table] = dict(catalogue.tables)
        self._old = catalogue
        self._index_tables = dict(catalogue.index_tables)
        self._draft = draft

    def _labels(self, name: str, form: ModelSpec, properties: set[str] | None = None) -> Iterator[tuple[str, str]]:
        """Yield the label and the table's public name of each index, or of those that hold one of some properties."""
        for index_name, index in form.indexes.items():
            if properties is None or properties & index.fields:
                yield f"{name}.{index_name}", index.table

    def drop(self, names: frozenset[str]) -> None:
        """Drop the tables of classes that hold no rows, and their numbers in tables of several classes."""
        for name in names:
            form = self._old.models[name]
            for label, _ in self._labels(name, form):
                self._drop_table(self._index_tables.pop(label))
            self._drop_table(self._index_tables.pop(values_label(name), ""))
            table = self.tables[form.table]
            types = [
                f"{type_name}#" if type_name == name else type_name for type_name in table.types
            ]  # (its number stays taken)
            if all(type_name.endswith("#") for type_name in types):
                del self.tables[form.table]
                self._drop_table(table.name)
                self._drop_table(table.big_name)
            else:
                self.tables[form.table] = attrs.evolve(table, types=tuple(types))

    def _drop_table(self, name: str) -> None:
        if self._draft.has(name):
            self._draft.do(actions.DropTable(name))

    def widen(self, widened: Sequence[tuple[str, str]]) -> None:
        """Rename the tables or columns of some properties: a program with the old names cannot read new values."""
        for name, property in widened:
            form = self._old.models[name]
            in_key = form.fields[property].in_key
            for label, public in self._labels(name, form, None if in_key else {property}):
                old, new = self._index_tables[label], self._draft.fresh(public)
                self._draft.do(actions.RenameTable(old, new))
                self._index_tables[label] = new
            table = self.tables[form.table]
            if in_key:
                new_table = self._renamed(table, form.table)
            else:
                new_table = table.renamed(property)
                old, new = table.column(property), new_table.column(property)
                for physical in (table.name, *([table.big_name] if table.column(property) in table.spills else [])):
                    self._draft.do(actions.RenameColumn(physical, old, new))
            self.tables[form.table] = new_table

    def _renamed(self, table: Table, public: str) -> Table:
        """Give an entity table another physical name; return it."""
        new_table = attrs.evolve(table, name=self._draft.fresh(public))
        self._draft.rename(table, new_table)
        return new_table

    def rename(self, labels: Mapping[str, str]) -> None:
        """Give former definitions their labels; the physical names of tables stay."""
        for old, new in labels.items():
            if "." not in old:
                form = self._old.models[old]
                table = self.tables.pop(form.table)
                self.tables[form.table + new.removeprefix(old)] = attrs.evolve(table, types=(new,))
                if (values := self._index_tables.pop(values_label(old), None)) is not None:
                    self._index_tables[values_label(new)] = values
            elif old in self._index_tables:
                self._index_tables[new] = self._index_tables.pop(old)
                self._draft.do(actions.Relabel(old, new))

    def extend(self, schema: Schema, forms: Mapping[str, ModelSpec]) -> None:
        """Add the tables and columns that the classes of a schema need.

        Args:
            forms: the catalogue's forms from now on.
        """
        old_tables = dict(self.tables)
        for model in schema.models:
            if aggregate_in(forms, model.name, model.form) != model.name:
                continue  # it uses the table of a former definition
            table = self.tables.get(model.table)
            if table is None:
                table = Table(self._draft.fresh(model.table), (), (), (), ())
            new_table = table.extended(model)
            if model.table in old_tables and "_type" in new_table.has - table.has:
                # A program that knows one class in the table would read the rows of the next as its own.
                old_tables[model.table] = self._renamed(old_tables[model.table], model.table)
                new_table = attrs.evolve(new_table, name=old_tables[model.table].name)
            self.tables[model.table] = new_table
            self._add_indexes(model, forms[model.name])
        for name, table in self.tables.items():
            _extend(self._draft, old_tables.get(name), table)

    def _add_indexes(self, model: Model, form: ModelSpec) -> None:
        """Create the tables of new indexes of a class, and of the live values of a new aggregate."""
        for name, index_form in form.indexes.items():
            if (label := f"{model.name}.{name}") not in self._index_tables:
                index, new = model.index(name), self._draft.fresh(index_form.table)
                columns = index_column_names([field.property for field in index_columns(model, index)])
                self._draft.do(actions.CreateIndex(new, tuple(columns), index.unique))
                self._index_tables[label] = new
        if has_values(model) and (label := values_label(model.name)) not in self._index_tables:
            self._index_tables[label] = new = self._draft.fresh(values_table(model.table, model.name))
            self._draft.do(actions.CreateValueCounts(new))

    def catalogue(self, evolution: Evolution) -> Catalogue:
        """Return the catalogue from now on."""
        renamed, now_us, old = evolution.former, self._draft.now, self._old
        if ended_labels := {label for name in evolution.dropped for label in labels_of(name, old.models[name])}:
            old = without_jobs(self._draft, old, ended_labels)
        states = {renamed.get(label, label): form for label, form in old.states.items() if label not in ended_labels}
        jobs = [
            attrs.evolve(
                job,
                owner=renamed.get(job.owner, job.owner),
                targets=frozenset(renamed.get(label, label) for label in job.targets),
            )
            for job in old.jobs
        ]
        self._draft.do(*(actions.ChangeJob(job) for job in jobs))
        history = History(
            tuple(
                [
                    replace(entry, drops=[renamed.get(label, label) for label in entry.drops])
                    for entry in self._old.history
                ]
            )
        )
        return attrs.evolve(
            self._old,
            models=evolution.models_after,
            versions=evolution.versions_after,
            states=with_new(states, evolution, now_us),
            tables=self.tables,
            index_tables=self._index_tables,
            jobs=tuple(jobs),
            history=history,
        )


def with_new(states: Mapping[str, BuildStateSpec], evolution: Evolution, now_us: int) -> dict[str, BuildStateSpec]:
    """Return states with those of what an evolution adds, which is ready, and with what is declared from now on."""
    new_states, new = dict(states), {model.name for model in evolution.models}
    for name, form in evolution.models_after.items():
        for label in (*(f"{name}.{index}" for index in form.indexes), *([name] if form.aggregate else [])):
            if label not in new_states or name in new:
                state = new_states.get(label, BuildStateSpec("ready", now_us))
                new_states[label] = ruled_here(evolution.models_after, label, state)
            if (is_declared := evolution.declared.get(label, new_states[label].declared)) != new_states[label].declared:
                new_states[label] = replace(new_states[label], declared=is_declared, since=now_us)
    return new_states


def _extend(draft: actions.ActionPlan, old: Table | None, table: Table) -> None:
    """Create a table, or add the columns that it lacks."""
    if old is None:
        draft.do(actions.CreateEntityTable(table))
        return
    draft.do(*(actions.AddColumn(table.name, column) for column in table.columns[len(old.columns) :]))
    if table.spills and not old.spills:
        draft.do(actions.CreateOverflowTable(table))
    elif table.spills:
        draft.do(*(actions.AddColumn(table.big_name, Column(spill)) for spill in table.spills[len(old.spills) :]))
