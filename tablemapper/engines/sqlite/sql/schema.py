"""The classes of a store over the tables of one file: their statements, what is maintained of them, what is being built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
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
    """What is being built of one class, in one pass over its entities; see `jobs`."""

    name: str
    model: Model
    targets: Maintenance
    labels: frozenset[str]
    """All that is ready once it ends: the indexes on new aggregates, too, which need no pass of their own."""


class ByModel(dict[Model, T]):
    """Something for each class; none for those that were retired.

    Raises SchemaMismatch for these.
    """

    def __init__(self, retired: Mapping[str, str]) -> None:
        super().__init__()
        self._retired = retired

    def __missing__(self, model: Model) -> T:
        if (reason := self._retired.get(model.name)) is None:
            raise KeyError(model.name)
        raise SchemaMismatch(model.name, [reason])


class SqliteSchema:
    """A schema over the tables of one file: the statements of every model, and what is maintained from it.

    Attributes:
        stored: the catalogue of the file.
        catalogue: the same as the classes know it, which may have other names.
        generation: of the catalogue that says so.
        plain: whether rows are written as the classes make them, and nothing is being built.
        followed: the classes that are more in the file than in the code.
        names: the names of the classes in the catalogue: another one for an aggregate of a former definition.
        models: what is maintained: the classes, and the aggregates of them that are not opened.
        lacking: by class and index, the fields that the index does not hold, though it is declared to: later ones.
        jobs: what is being built of each class; it is maintained for the entities that its job has passed.
        copies: what a migration copies of each class; entities that change behind its cursor are queued for it.
        twins: of each class, what it was or is on the other side of a migration; that is kept in step.
        guests: those in whose tables the classes are that are opened.
        ways_back: of the scripts that are known.
        unkept: those of them that only a script could keep in step that is not known here.
        sides: what is kept in step, as it was made for the first write.
        inserts: what inserts one entity of a class, as it was made for the first one.
        unready: the indexes and aggregates that cannot be read yet, by label, with their states.
        contested: the unique indexes that values may be held twice in; whether a further holder is noted (else refused).
        retired: the classes, by name, that cannot go on as they are, and why.
    """

    @trusted()
    def __init__(
        self, schema: Schema, catalogue: Catalogue, generation: int = 0, ways_back: Iterable[WayBack] = ()
    ) -> None:
        self.stored = catalogue
        self.ways_back = tuple(ways_back)
        self.guests = guests(catalogue, schema.models)
        catalogue, self._renames = seen_by(catalogue, schema)
        self.retired: dict[str, str] = {}
        for model in schema.models:
            of = model if model.aggregate is None else schema.by_class[model.aggregate.source]
            kept_by = [schema.by_name[keeper_name(model.name, field.property)] for field in model.maintained]
            kept_by += [schema.by_class[one.aggregate.source] for one in kept_by if one.aggregate is not None]
            for one in (of, *kept_by, model):
                reason = retirement(one, catalogue.versions) or self._dropped(catalogue, one)
                if reason is not None:
                    self.retired[model.name] = (
                        reason
                        if one is model
                        else f"{one.name}, which {'keeps a field' if one in kept_by else 'it is maintained from'}: {reason}"
                    )
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
        known = Schema((*schema.models, *unopened))
        others = other_rules(catalogue)
        refused = refused_writes(catalogue, others)
        self.followed = follow(known, catalogue.models, catalogue.versions, self.names, refused)
        aggregates = [one for followed in self.followed.values() for one in followed.aggregates]
        self.names |= {model: model.name for model in aggregates}
        self.models = (*[one for one in schema.models if self.names[one] == one.name], *aggregates)
        self.statements: dict[Model, Statements] = ByModel(self.retired)
        self.keepers = {model: keepers for model in self.names if (keepers := self._keepers(model))}
        """The names of the aggregates that keep the maintained fields of classes, by field."""
        self.statements |= {
            model: Statements(self.table_of(model), model, self.followed.get(model), name, self._kept(model))
            for model, name in self.names.items()
        }
        self.maintenance: dict[Model, Maintenance] = ByModel(self.retired)
        """For every entity; what is being built is left to its jobs."""
        self.indexes: dict[IndexModel, IndexTable] = {}
        self.lacking: dict[Model, dict[str, frozenset[str]]] = {}
        whole = {model: self._maintenance(model) for model in (*self.models, *unopened)}
        self.jobs = _jobs(catalogue, whole)
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
        states = {one.label: "dropping" for one in catalogue.tombstones if one.tables}
        states |= states_here(catalogue, others, self.guests)
        self.unready = {label: state for label, state in states.items() if state != "ready"}
        self.contested: dict[IndexMaintenance, bool] = {}
        for model, kept in whole.items():
            self._add_indexes(model, kept)
            disabled = kept.only([label for label, state in self.unready.items() if state in ("disabled", "beside")])
            self.maintenance[model] = kept.less([disabled, *(job.targets for job in self.jobs.get(model, ()))])
            for index in kept.indexes:
                if index.model.unique and self.unready.get(index.label) in ("building", "violated"):
                    self.contested[index] = self.unready[index.label] == "building"
        self.owners: dict[str, Model] = {}
        """The classes that have an index over a field which an aggregate keeps, by the name of that."""
        for owner, keepers in self.keepers.items():
            read = {name for index in whole[owner].indexes for name in _read_by(index)}
            self.owners |= {keeper: owner for name, keeper in keepers.items() if name in read}
        self.blocked = {model: reason for model in self.models if (reason := self._unknown_index(model, whole))}
        """Aggregates that cannot be maintained here, and why."""
        self.values = {model: Values(self.values_table(model)) for model in self.models if has_values(model)}
        """Those of the aggregates that count their live values."""

    def _twins(self) -> dict[Model, tuple[Twin, ...]]:
        """Return the twins of each class that one of their links is for."""
        found: dict[Model, tuple[Twin, ...]] = {}
        for twin in self.stored.twins:
            links = [link for link in twin.links if link.new in self.stored.models]
            names = {link.old if twin in self.guests else link.new for link in links}
            for model, name in self.names.items():
                if name in names:
                    found[model] = (*found.get(model, ()), twin)
        return found

    def _unkept(self) -> dict[Model, list[Twin]]:
        """Return the twins of each class that the functions of a script are needed for, and these are not known."""
        found: dict[Model, list[Twin]] = {}
        for model, twins in self.twins.items():
            for twin in twins:
                needed = any(link.steps and link.new == self.names[model] for link in twin.links)
                if needed and twin not in self.guests and self._way_back(twin) is None:
                    found.setdefault(model, []).append(twin)
        return found

    def _way_back(self, twin: Twin) -> WayBack | None:
        scripts = [one.script for one in self.stored.history if one.id == twin.migration]
        known = [way for way in self.ways_back if [way.migration, way.script] == [twin.migration, *scripts[-1:]]]
        return known[0] if known else None

    def way_back(self, twin: Twin, link: LinkForm) -> Conversion:
        """Return what makes the old entities of a link; it is known."""
        way = self._way_back(twin)
        assert way is not None
        return way.conversion(link.new, link.old)

    def _unknown_index(self, keeper: Model, whole: Mapping[Model, Maintenance]) -> str | None:
        """Return which index over a field that an aggregate keeps is not known here, so that it cannot follow it."""
        if (kept := kept_field(keeper.name)) is None or is_former(keeper.name) or kept[0] not in self.catalogue.models:
            return None
        owner, property = kept
        known = {index.label for model, one in whole.items() if model.name == owner for index in one.indexes}
        for name, form in self.catalogue.models[owner].indexes.items():
            if reads(form, property) and f"{owner}.{name}" not in known:
                return f"{owner}.{name} needs a program that opens {owner} as it declares it; nothing was written"
        return None

    def depth(self, model: Model) -> int:
        """Return how many classes stand between a class and one that its maintained fields are made of in the end."""
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

    @staticmethod
    def _dropped(catalogue: Catalogue, model: Model) -> str | None:
        stone = catalogue.gone(model.name, model.form)
        return None if stone is None else str(stone)

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
        return f"{name}.{self._known(model).get(index, index)}"

    def _known(self, model: Model) -> dict[str, str]:
        """Return the names in the catalogue of the indexes that a class declares."""
        form = self.catalogue.models[self.names[model]]
        return indexes_in(form.indexes, model.form.indexes, self.catalogue.instead(model.name))

    def _add_indexes(self, model: Model, kept: Maintenance) -> None:
        """Add the tables of what is maintained of a class, also for the indexes that it declares by another name or form."""
        tables = {}
        for index in kept.indexes:
            physical = self.catalogue.index_tables[index.label]
            table = IndexTable(index.owner, index.model, physical, self._renames.get(index.owner.name, {}))
            tables[index.model.name] = self.indexes[index.model] = table
        self._add_declared(model, tables)
        for other in self.schema.models:
            if self.names[other] == model.name and other is not model:
                self._add_declared(other, tables)

    def _add_declared(self, model: Model, tables: Mapping[str, IndexTable]) -> None:
        held = self._known(model)
        for index in model.indexes:
            table = tables[held[index.name]]
            self.indexes.setdefault(index, table)
            properties = {one.property for one in index_columns(model, index)} - table.columns.keys()
            lacking = {field.name for field in model.columns if field.property in properties}
            if lacking:
                self.lacking.setdefault(model, {})[index.name] = frozenset(lacking)

    def _maintenance(self, model: Model) -> Maintenance:
        kept, followed = maintenance(self.schema, model), self.followed.get(model)
        form = self.catalogue.models[self.names[model]]
        own = model.form.indexes
        kept = Maintenance(
            tuple(
                [
                    one
                    for one in kept.indexes
                    if one.model.name in form.indexes and as_declared(form.indexes[one.model.name], own[one.model.name])
                ]
            ),
            tuple([one for one in kept.aggregates if self.names[one.model] == one.model.name]),
        )
        if followed is None:
            return kept
        aggregates = [aggregate_maintenance(followed.model, target) for target in followed.aggregates]
        return Maintenance((*kept.indexes, *followed.indexes), (*kept.aggregates, *aggregates))

    def statements_of(self, index: IndexMaintenance) -> Statements:
        """Return the statements of the class that has an index, maybe by a later version of the program only."""
        known = next((one.known for one in self.followed.values() if one.model is index.owner), index.owner)
        return self.statements[known]

    @property
    def all_jobs(self) -> list[Job]:
        """What is being built: an index on groups, and one over maintained fields, comes once they are built."""
        jobs = [job for several in self.jobs.values() for job in several]
        return sorted(jobs, key=lambda job: (job.model.aggregate is not None, self.depth(job.model)))

    @cached_property
    def by_table(self) -> dict[str, list[Model]]:
        return self.schema.tables()


def _read_by(index: IndexMaintenance) -> set[str]:
    """Return the fields that an index's rows are made of."""
    where = () if index.model.where is None else index.model.where.attributes()
    included = {field.name for field in index.model.include}
    return included.union({name.partition(".")[0] for name in index.model.fields}, {attr.name for attr in where})


def _jobs(catalogue: Catalogue, whole: Mapping[Model, Maintenance]) -> dict[Model, tuple[Job, ...]]:
    """Return what is being built, by class."""
    jobs: dict[Model, tuple[Job, ...]] = {}
    for form in catalogue.jobs:
        for model, kept in whole.items():
            if model.name == form.owner:
                jobs[model] = (*jobs.get(model, ()), Job(form.name, model, kept.only(form.targets), form.targets))
    return jobs
