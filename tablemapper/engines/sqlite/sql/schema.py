"""The classes of a store over the tables of one file: their statements, their indexes and aggregates, and jobs that build them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import attrs

from ....entities.aggregates import keeper_name, kept_field
from ....entities.declaration import IndexModel
from ....errors import SchemaMismatch
from ....evolution.definitions import aggregate_in, as_declared, depth_of, indexes_in, is_former
from ....evolution.following import follow, owners_of
from ....evolution.rules import reads
from ....evolution.versions import retirement
from ....schema.forms import LinkForm
from ....schema.maintenance import IndexMaintenance, Maintenance, aggregate_maintenance, index_columns, maintenance
from ....schema.model import Model, Schema
from ...migration import Conversion, WayBack
from .catalogue import Catalogue, CopyForm, Twin, trusted, values_label
from .maintained_tables import IndexTable, Values
from .names import guests, seen_by
from .statements import Statements
from .tables import EntityTable, has_values
from .zone_rules import other_rules, refused_writes, states_here

__all__ = ["ByModel", "Job", "SqliteSchema"]

T = TypeVar("T")


@attrs.frozen(eq=False)
class Job:
    """A job that builds indexes and aggregates of one class, in one pass over its entities; see `jobs`."""

    name: str
    model: Model
    targets: Maintenance
    labels: frozenset[str]
    """The labels that are ready once it ends, with those of indexes on new aggregates, which need no pass of their own."""


class ByModel(dict[Model, T]):
    """A dict by class that raises SchemaMismatch for classes that were retired."""

    def __init__(self, retired: Mapping[str, str]) -> None:
        super().__init__()
        self._retired = retired

    def __missing__(self, model: Model) -> T:
        if (reason := self._retired.get(model.name)) is None:
            raise KeyError(model.name)
        raise SchemaMismatch(model.name, [reason])


class SqliteSchema:
    """A schema over the tables of one file: the statements of every class, and its maintenance.

    Attributes:
        stored: the catalogue of the file.
        catalogue: the same as the opened classes know it: with the names of their versions, and of their twins.
        generation: the generation of the catalogue.
        plain: whether writes concern no job, no copy, no twin, and no followed class.
        followed: the classes of which the file stores or maintains more than their code declares.
        names: the name of each class in the catalogue, which differs for an aggregate of a former definition.
        models: the classes with what they maintain: those that are opened, and unopened aggregates over them.
        lacking: by class and index, the fields that the index should include, and does not: the class got them later.
        jobs: the jobs over each class; what they build is maintained for the entities that they have passed.
        copies: the copies of each class by a migration; an entity that changes before their cursor is queued.
        twins: the twins that writes of each class keep in step.
        guests: the twins whose tables the opened classes use.
        ways_back: the conversions of the scripts that this process knows.
        unkept: the twins of each class that need the functions of a script which this process does not know.
        sides: the links to twins, by class and migration, once they were needed.
        inserts: the functions that insert one entity of a class, once they were needed.
        unready: the indexes and aggregates that cannot be read yet, by label, with their states.
        contested: the unique indexes that may have duplicates, each with whether a new one is noted, or else refused.
        retired: the classes, by name, that cannot be used any more, and why.
    """

    @trusted()
    def __init__(
        self, schema: Schema, catalogue: Catalogue, generation: int = 0, ways_back: Iterable[WayBack] = ()
    ) -> None:
        self.stored = catalogue
        self.ways_back = tuple(ways_back)
        self.guests = guests(catalogue, schema.models)
        catalogue, self._renames = seen_by(catalogue, schema)
        self.retired = _retired(schema, catalogue)
        if self.retired:
            schema = Schema(tuple([model for model in schema.models if model.name not in self.retired]))
        self.schema = schema
        self.catalogue = catalogue
        self.generation = generation
        self.tables = catalogue.tables
        self.names: dict[Model, str] = ByModel(self.retired)
        self.names |= {
            model: aggregate_in(catalogue.models, model.name, model.form) or model.name for model in schema.models
        }
        unopened = tuple(owners_of(schema, catalogue.models))
        self.names |= {model: model.name for model in unopened}
        with_unopened = Schema((*schema.models, *unopened))
        others = other_rules(catalogue)
        refused = refused_writes(catalogue, others)
        self.followed = follow(with_unopened, catalogue.models, catalogue.versions, self.names, refused)
        aggregates = [aggregate for followed in self.followed.values() for aggregate in followed.aggregates]
        self.names |= {model: model.name for model in aggregates}
        self.models = (*[model for model in schema.models if self.names[model] == model.name], *aggregates)
        self.statements: dict[Model, Statements] = ByModel(self.retired)
        self.keepers = {model: keepers for model in self.names if (keepers := self._keepers(model))}
        """The names of the aggregates that keep the maintained fields of classes, by field."""
        self.statements |= {
            model: Statements(self.table_of(model), model, self.followed.get(model), name, self._kept(model))
            for model, name in self.names.items()
        }
        self.maintenance: dict[Model, Maintenance] = ByModel(self.retired)
        """The maintenance of every entity, without that of jobs."""
        self.indexes: dict[IndexModel, IndexTable] = {}
        self.lacking: dict[Model, dict[str, frozenset[str]]] = {}
        all_maintenance = {model: self._maintenance(model) for model in (*self.models, *unopened)}
        self.jobs = _jobs(catalogue, all_maintenance)
        self.copies: dict[Model, tuple[CopyForm, ...]] = {
            model: tuple([copy for copy in catalogue.copies if model.name in copy.sources]) for model in schema.models
        }
        self.copies = {model: copies for model, copies in self.copies.items() if copies}
        self.twins = self._twins()
        self.unkept = self._unkept()
        self.sides: dict[tuple[Model, str], Any] = {}
        self.inserts: dict[Model, Any] = {}
        self.plain = (
            not self.jobs
            and not self.copies
            and not self.twins
            and not any(followed.checked for followed in self.followed.values())
        )
        states = {tombstone.label: "dropping" for tombstone in catalogue.tombstones if tombstone.tables}
        states |= states_here(catalogue, others, self.guests)
        self.unready = {label: state for label, state in states.items() if state != "ready"}
        self.contested: dict[IndexMaintenance, bool] = {}
        for model, maintained in all_maintenance.items():
            self._add_indexes(model, maintained)
            labels = [label for label, state in self.unready.items() if state in ("disabled", "beside")]
            built_by_jobs = [job.targets for job in self.jobs.get(model, ())]
            self.maintenance[model] = maintained.less([maintained.only(labels), *built_by_jobs])
            for index in maintained.indexes:
                if index.model.unique and self.unready.get(index.label) in ("building", "violated"):
                    self.contested[index] = self.unready[index.label] == "building"
        self.owners: dict[str, Model] = {}
        """The classes with an index over a maintained field, by the name of the aggregate that keeps the field."""
        for owner, keepers in self.keepers.items():
            read = {name for index in all_maintenance[owner].indexes for name in _fields_of(index)}
            self.owners |= {keeper: owner for name, keeper in keepers.items() if name in read}
        self.blocked = {
            model: reason for model in self.models if (reason := self._unknown_index(model, all_maintenance))
        }
        """The aggregates that this program cannot maintain, and why."""
        self.values = {model: Values(self.values_table(model)) for model in self.models if has_values(model)}
        """The statements for the live values of aggregates that count them."""

    def _twins(self) -> dict[Model, tuple[Twin, ...]]:
        """Return the twins of each class that have a link for it."""
        twins: dict[Model, tuple[Twin, ...]] = {}
        for twin in self.stored.twins:
            links = [link for link in twin.links if link.new in self.stored.models]
            names = {link.old if twin in self.guests else link.new for link in links}
            for model, name in self.names.items():
                if name in names:
                    twins[model] = (*twins.get(model, ()), twin)
        return twins

    def _unkept(self) -> dict[Model, list[Twin]]:
        """Return the twins of each class that need the functions of a script which this process does not know."""
        unkept: dict[Model, list[Twin]] = {}
        for model, twins in self.twins.items():
            for twin in twins:
                needs_script = any(link.steps and link.new == self.names[model] for link in twin.links)
                if needs_script and twin not in self.guests and self._way_back(twin) is None:
                    unkept.setdefault(model, []).append(twin)
        return unkept

    def _way_back(self, twin: Twin) -> WayBack | None:
        scripts = [entry.script for entry in self.stored.history if entry.id == twin.migration]
        known = [way for way in self.ways_back if [way.migration, way.script] == [twin.migration, *scripts[-1:]]]
        return known[0] if known else None

    def way_back(self, twin: Twin, link: LinkForm) -> Conversion:
        """Return the conversion to the old entities of a link, by a script that this process knows."""
        way = self._way_back(twin)
        assert way is not None
        return way.conversion(link.new, link.old)

    def _unknown_index(self, keeper: Model, all_maintenance: Mapping[Model, Maintenance]) -> str | None:
        """Return why an aggregate cannot keep its maintained field: this program does not know an index over the field."""
        if (kept := kept_field(keeper.name)) is None or is_former(keeper.name) or kept[0] not in self.catalogue.models:
            return None
        owner, property = kept
        maintained = [each for model, each in all_maintenance.items() if model.name == owner]
        known = {index.label for each in maintained for index in each.indexes}
        for name, form in self.catalogue.models[owner].indexes.items():
            if reads(form, property) and f"{owner}.{name}" not in known:
                return f"{owner}.{name} needs a program that opens {owner} as it declares it; nothing was written"
        return None

    def depth(self, model: Model) -> int:
        """Return how long the longest chain of maintained fields is that a class depends on."""
        return depth_of(model.name, self.catalogue.models)

    def _whole(self, model: Model) -> Model:
        return self.followed[model].model if model in self.followed else model

    def _keepers(self, model: Model) -> dict[str, str]:
        found = {field.name: keeper_name(model.name, field.property) for field in self._whole(model).maintained}
        declared = self.schema.by_name
        return {field: self.names[declared[name]] if name in declared else name for field, name in found.items()}

    def _kept(self, model: Model) -> dict[str, tuple[str, str]]:
        """Return the tables and columns of the maintained fields of a class."""
        found = {}
        for field in self._whole(model).maintained:
            table = self.tables[self.catalogue.models[self.keepers[model][field.name]].table]
            found[field.name] = table.name, table.column(field.property)
        return found

    def table_of(self, model: Model) -> EntityTable:
        """Return the table of a class."""
        return self.tables[self.catalogue.models[self.names[model]].table]

    def values_table(self, model: Model) -> str:
        """Return the physical name of the table that an aggregate counts its live values in."""
        return self.catalogue.index_tables[values_label(self.names[model])]

    def label(self, model: Model, index: str | None = None) -> str:
        """Return the label of a class, or of an index that it declares."""
        name = self.names.get(model, model.name)
        if index is None or name not in self.catalogue.models:
            return name if index is None else f"{name}.{index}"
        return f"{name}.{self._stored_names(model).get(index, index)}"

    def _stored_names(self, model: Model) -> dict[str, str]:
        """Return the indexes that a class declares, each with its name in the catalogue."""
        form = self.catalogue.models[self.names[model]]
        return indexes_in(form.indexes, model.form.indexes, self.catalogue.instead(model.name))

    def _add_indexes(self, model: Model, maintained: Maintenance) -> None:
        """Add the tables of a class's indexes, also for classes that declare them by another name or form."""
        tables = {}
        for index in maintained.indexes:
            physical = self.catalogue.index_tables[index.label]
            table = IndexTable(index.owner, index.model, physical, self._renames.get(index.owner.name, {}))
            tables[index.model.name] = self.indexes[index.model] = table
        self._add_declared(model, tables)
        for other in self.schema.models:
            if self.names[other] == model.name and other is not model:
                self._add_declared(other, tables)

    def _add_declared(self, model: Model, tables: Mapping[str, IndexTable]) -> None:
        stored_names = self._stored_names(model)
        for index in model.indexes:
            table = tables[stored_names[index.name]]
            self.indexes.setdefault(index, table)
            properties = {one.property for one in index_columns(model, index)} - table.columns.keys()
            lacking = {field.name for field in model.columns if field.property in properties}
            if lacking:
                self.lacking.setdefault(model, {})[index.name] = frozenset(lacking)

    def _maintenance(self, model: Model) -> Maintenance:
        """Return everything that is maintained from a class, whether its code declares it or not."""
        declared, followed = maintenance(self.schema, model), self.followed.get(model)
        stored = self.catalogue.models[self.names[model]].indexes
        indexes = [
            index
            for index in declared.indexes
            if (name := index.model.name) in stored and as_declared(stored[name], model.form.indexes[name])
        ]
        aggregates = [each for each in declared.aggregates if self.names[each.model] == each.model.name]
        if followed is not None:
            indexes += followed.indexes
            aggregates += [aggregate_maintenance(followed.model, target) for target in followed.aggregates]
        return Maintenance(tuple(indexes), tuple(aggregates))

    def statements_of(self, index: IndexMaintenance) -> Statements:
        """Return the statements of the class that an index is over."""
        known = next((each.known for each in self.followed.values() if each.model is index.owner), index.owner)
        return self.statements[known]

    @property
    def all_jobs(self) -> list[Job]:
        """All jobs, in the order in which they can run: an index over groups or maintained fields comes after these."""
        jobs = [job for several in self.jobs.values() for job in several]
        return sorted(jobs, key=lambda job: (job.model.aggregate is not None, self.depth(job.model)))


def _retired(schema: Schema, catalogue: Catalogue) -> dict[str, str]:
    """Return why classes cannot be used any more, by name: they, their sources or their keepers were retired or dropped."""
    retired: dict[str, str] = {}
    for model in schema.models:
        source = model if model.aggregate is None else schema.by_class[model.aggregate.source]
        keepers = [schema.by_name[keeper_name(model.name, field.property)] for field in model.maintained]
        keepers += [schema.by_class[keeper.aggregate.source] for keeper in keepers if keeper.aggregate is not None]
        for needed in (source, *keepers, model):
            reason = retirement(needed, catalogue.versions)
            if reason is None and (tombstone := catalogue.gone(needed.name, needed.form)) is not None:
                reason = str(tombstone)
            if reason is not None and needed is not model:
                relation = "keeps a field" if needed in keepers else "it is maintained from"
                reason = f"{needed.name}, which {relation}: {reason}"
            if reason is not None:
                retired[model.name] = reason
    return retired


def _fields_of(index: IndexMaintenance) -> set[str]:
    """Return the fields that the rows of an index depend on."""
    where = () if index.model.where is None else index.model.where.attributes()
    included = {field.name for field in index.model.include}
    return included.union({name.partition(".")[0] for name in index.model.fields}, {attr.name for attr in where})


def _jobs(catalogue: Catalogue, all_maintenance: Mapping[Model, Maintenance]) -> dict[Model, tuple[Job, ...]]:
    """Return the jobs of a catalogue, by class."""
    jobs: dict[Model, tuple[Job, ...]] = {}
    for form in catalogue.jobs:
        for model, maintained in all_maintenance.items():
            if model.name == form.owner:
                job = Job(form.name, model, maintained.only(form.targets), form.targets)
                jobs[model] = (*jobs.get(model, ()), job)
    return jobs
