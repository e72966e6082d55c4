"""The schema of a store over the tables of one file: what writes maintain, and what jobs and copies add to that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import attrs

from ....catalogue.catalogue import Catalogue, CopySpec, Mirror
from ....catalogue.transitions import BackwardConversion, Conversion
from ....catalogue.zone_rules import states_here
from ....entities.aggregates import kept_field
from ....entities.key_and_indexes import IndexModel
from ....evolution.newer_versions import missing_fields, stored_maintenance
from ....evolution.rules import reads
from ....schema.labels import is_former
from ....schema.maintenance import IndexMaintenance, Maintenance
from ....schema.model import Model, Schema
from ....schema.specs import LinkSpec
from .catalogue_table import as_corruption
from .index_tables import IndexTable
from .stored_classes import ModelDict, StoredClasses


@attrs.frozen(eq=False)
class BuildJob:
    """A job that builds indexes and aggregates of one class, in one pass over its entities; see `jobs`."""

    name: str
    model: Model
    targets: Maintenance
    labels: frozenset[str]
    """The labels that are ready once it ends; indexes on new aggregates among them need no pass of their own."""


class SqliteSchema(StoredClasses):
    """The schema of a store over the tables of one file: its classes, and what is maintained from them.

    Attributes:
        generation: the generation of the catalogue.
        ways_back: the conversions of the scripts that this process knows.
        jobs: the jobs over each class; what they build is maintained for the entities that they have passed.
        unready: the indexes and aggregates that cannot be read yet, by label, with their states.
        maintenance: what is maintained from every entity of a class: neither what jobs build, nor what is disabled.
        contested: the unique indexes that may have duplicates, each with whether a new one is noted, or else refused.
        violated: the labels of all unique indexes of the file that have some, whoever opens them.
        indexes: the tables of indexes.
        missing_fields: by class and index, the fields that the index should include, and does not: the class got them later.
        owners: the classes with an index over a maintained field, by the name of the aggregate that keeps the field.
        blocked: the aggregates that this program cannot maintain, and why.
        copies: the copies of each class by a migration; an entity that changes before their cursor is queued.
        twins: the twins that writes of each class keep in step.
        stale_twins: the twins of each class that need the functions of a script which this process does not know.
        sides: the links to twins, by class and migration, once they were needed.
        followers: the hooks of writes of some classes, once they were needed, see `rows.write_hooks`.
        inserts: the functions that insert one entity of a class, once they were needed.
        updates: the functions that change one entity of a class, once they were needed.
    """

    @as_corruption()
    def __init__(
        self, schema: Schema, catalogue: Catalogue, generation: int = 0, ways_back: Iterable[BackwardConversion] = ()
    ) -> None:
        super().__init__(schema, catalogue)
        self.generation = generation
        self.ways_back: tuple[BackwardConversion, ...] = tuple(ways_back)
        everything = {
            model: stored_maintenance(self.schema, model, self.catalogue.models, self.names, self.extended.get(model))
            for model in (*self.models, *self._unopened)
        }
        self.jobs: dict[Model, tuple[BuildJob, ...]] = _jobs(self.catalogue, everything)
        states = states_here(self.catalogue, self._other_rules, self.guests)
        self.unready: dict[str, str] = {label: state for label, state in states.items() if state != "ready"}
        disabled = [label for label, state in self.unready.items() if state in ("disabled", "beside")]
        by_writes = {
            model: maintained.less([maintained.only(disabled), *[job.targets for job in self.jobs.get(model, ())]])
            for model, maintained in everything.items()
        }
        self.maintenance: ModelDict[Maintenance] = ModelDict(self._retired, by_writes)
        indexes = [index for maintained in everything.values() for index in maintained.indexes]
        self.contested: dict[IndexMaintenance, bool] = {
            index: state == "building"
            for index in indexes
            if index.model.unique and (state := self.unready.get(index.label)) in ("building", "violated")
        }
        self.violated: list[str] = [label for label, form in self.stored.states.items() if form.state == "violated"]
        self.indexes: dict[IndexModel, IndexTable] = {}
        self.missing_fields: dict[Model, dict[str, frozenset[str]]] = {}
        for model, maintained in everything.items():
            self._add_indexes(model, maintained)
        self.owners: dict[str, Model] = self._owners(everything)
        self.dependents: set[Model] = {
            model
            for model, maintained in by_writes.items()
            if maintained.indexes or model in self.jobs or model.name in self.owners
        }
        labels = {index.label for index in indexes}
        self.blocked: dict[Model, str] = {
            model: reason for model in self.models if (reason := self._unknown_index(model, labels))
        }
        self.copies: dict[Model, tuple[CopySpec, ...]] = _copies(self.catalogue, self.schema)
        self.twins: dict[Model, tuple[Mirror, ...]] = self._twins()
        self.stale_twins: dict[Model, list[Mirror]] = self._stale_twins()
        self.sides: dict[tuple[Model, str], Any] = {}
        self.followers: dict[tuple[Model, ...], tuple[Any, ...]] = {}
        self.inserts: dict[Model, Any] = {}
        self.updates: dict[Model, Any] = {}

    # ------------------------------------------------------------------------------------------ what is maintained

    def _add_indexes(self, model: Model, maintained: Maintenance) -> None:
        """Add the tables of a class's indexes, also for classes that declare them by another name or form."""
        tables = {}
        for index in maintained.indexes:
            physical = self.catalogue.index_tables[index.label]
            table = IndexTable(index.owner, index.model, physical, self._renames.get(index.owner.name, {}))
            tables[index.model.name] = self.indexes[index.model] = table
        self._add_declared(model, tables)
        for alias in self.schema.models:
            if self.names[alias] == model.name and alias is not model:
                self._add_declared(alias, tables)

    def _add_declared(self, model: Model, tables: Mapping[str, IndexTable]) -> None:
        stored_names = self.stored_names(model)
        for index in model.indexes:
            self.indexes.setdefault(index, tables[stored_names[index.name]])
        if late := missing_fields(model, self.catalogue.models[self.names[model]], stored_names):
            self.missing_fields[model] = late

    def _owners(self, everything: Mapping[Model, Maintenance]) -> dict[str, Model]:
        owners: dict[str, Model] = {}
        for owner, keepers in self.keepers.items():
            fields = {name for index in everything[owner].indexes for name in _fields_of(index)}
            owners |= {keeper: owner for name, keeper in keepers.items() if name in fields}
        return owners

    def _unknown_index(self, keeper: Model, labels: Collection[str]) -> str | None:
        """Return why an aggregate cannot keep its maintained field: this program does not know an index over the field.

        Args:
            labels: the labels of the indexes that this program maintains.
        """
        if (
            (maintained_field := kept_field(keeper.name)) is None
            or is_former(keeper.name)
            or maintained_field[0] not in self.catalogue.models
        ):
            return None
        owner, property = maintained_field
        for name, form in self.catalogue.models[owner].indexes.items():
            if reads(form, property) and f"{owner}.{name}" not in labels:
                return f"{owner}.{name} needs a program that opens {owner} as it declares it; nothing was written"
        return None

    @property
    def all_jobs(self) -> list[BuildJob]:
        """All jobs, in the order in which they can run: an index over groups or maintained fields comes after these."""
        jobs = [job for class_jobs in self.jobs.values() for job in class_jobs]
        return sorted(jobs, key=lambda job: (job.model.aggregate is not None, self.depth(job.model)))

    # ------------------------------------------------------------------------------------------ twins

    def _twins(self) -> dict[Model, tuple[Mirror, ...]]:
        """Return the twins of each class that have a link for it."""
        twins: dict[Model, tuple[Mirror, ...]] = {}
        for twin in self.stored.twins:
            links = [link for link in twin.links if link.new in self.stored.models]
            names = {link.old if twin in self.guests else link.new for link in links}
            for model, name in self.names.items():
                if name in names:
                    twins[model] = (*twins.get(model, ()), twin)
        return twins

    def _stale_twins(self) -> dict[Model, list[Mirror]]:
        stale_twins: dict[Model, list[Mirror]] = {}
        for model, twins in self.twins.items():
            for twin in twins:
                needs_script = any(link.steps and link.new == self.names[model] for link in twin.links)
                if needs_script and twin not in self.guests and self._way_back(twin) is None:
                    stale_twins.setdefault(model, []).append(twin)
        return stale_twins

    def _way_back(self, twin: Mirror) -> BackwardConversion | None:
        """Return the way back to a twin; None if this process does not know the script that ran."""
        scripts = {entry.id: entry.script for entry in self.stored.history}
        candidates = (way for way in self.ways_back if way.migration == twin.migration)
        return next((way for way in candidates if way.script == scripts.get(way.migration)), None)

    def way_back(self, twin: Mirror, link: LinkSpec) -> Conversion:
        """Return the conversion to the old entities of a link, by a script that this process knows."""
        way = self._way_back(twin)
        assert way is not None
        return way.conversion(link.new, link.old)


def _fields_of(index: IndexMaintenance) -> set[str]:
    """Return the fields that the rows of an index depend on."""
    where = () if index.model.where is None else index.model.where.attributes()
    included = {field.name for field in index.model.include}
    return included.union({name.partition(".")[0] for name in index.model.fields}, {attr.name for attr in where})


def _copies(catalogue: Catalogue, schema: Schema) -> dict[Model, tuple[CopySpec, ...]]:
    """Return the copies that read each class."""
    copies = {
        model: tuple([copy for copy in catalogue.copies if model.name in copy.sources]) for model in schema.models
    }
    return {model: class_copies for model, class_copies in copies.items() if class_copies}


def _jobs(catalogue: Catalogue, everything: Mapping[Model, Maintenance]) -> dict[Model, tuple[BuildJob, ...]]:
    """Return the jobs of a catalogue, by class."""
    jobs: dict[Model, tuple[BuildJob, ...]] = {}
    for form in catalogue.jobs:
        for model, maintained in everything.items():
            if model.name == form.owner:
                job = BuildJob(form.name, model, maintained.only(form.targets), form.targets)
                jobs[model] = (*jobs.get(model, ()), job)
    return jobs
