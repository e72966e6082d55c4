"""The catalogue: what a store holds and maintains, whoever opens it.

The catalogue says what is maintained, not the classes that one process opened. Each write transaction compares the
generation first. A store that was opened with an older one refreshes its catalogue before it writes.

A *physical name* is that of a table or a column in the store. It never gets a second meaning: statements of a program
that knows an older one fail, and it reads the catalogue again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime

import attrs
from msgspec import UNSET

from ..datetime_types import Builtin
from ..evolution.definitions import aggregate_in, indexes_in
from ..evolution.history import History
from ..evolution.versions import Versions
from ..schema.labels import Label
from ..schema.specs import BuildStateSpec, LinkSpec, ModelSpec, TombstoneSpec, check_names
from .tables import Table
from .transitions import name_of


@attrs.frozen
class JobSpec:
    """The build of indexes and aggregates of one class, in one pass over its entities."""

    name: str
    owner: str
    """The class."""
    targets: frozenset[str]
    """The labels of indexes and aggregates."""


@attrs.frozen
class CopySpec:
    """The copy of a migration, in one pass over the entities of a class, or of several by equal keys."""

    id: str
    sources: tuple[str, ...]
    """The classes, by name."""


@attrs.frozen
class StagedCatalogue:
    """The classes that a running migration writes, until it switches."""

    migration: str
    catalogue: Catalogue
    """Of that alone."""


@attrs.frozen(eq=False)
class Mirror:
    """Classes as they were before a migration, in tables that are kept in step; see `mirrors`."""

    migration: str
    links: tuple[LinkSpec, ...]
    """From them to the classes of the file."""
    writes: bool
    """Whether they can be written, too."""
    catalogue: Catalogue
    """Of them alone."""


@attrs.frozen
class Catalogue:
    """The catalogue of a file: the forms of its classes, and the layout of its tables."""

    models: dict[str, ModelSpec] = attrs.field(factory=dict)
    """The union of all forms of each class that were ever opened."""
    versions: Versions = attrs.field(factory=Versions)
    """All of these."""
    states: dict[str, BuildStateSpec] = attrs.field(factory=dict)
    """By the label of an index or an aggregate: ``Product.by_name``, ``DailyClimate``."""
    tables: dict[str, Table] = attrs.field(factory=dict)
    """Entity tables, by their public name."""
    index_tables: dict[str, str] = attrs.field(factory=dict)
    """The physical names of the tables of indexes, by label, and of those with the live values of aggregates."""
    past: frozenset[str] = frozenset()
    """Physical names, in lower case, that once had a meaning."""
    jobs: tuple[JobSpec, ...] = ()
    """What is being built."""
    copies: tuple[CopySpec, ...] = ()
    """What a migration copies."""
    staged: StagedCatalogue | None = None
    twins: tuple[Mirror, ...] = ()
    former: dict[str, Catalogue] = attrs.field(factory=dict)
    """By migration: the classes that it ended, in tables that nobody writes any more, and only its undoing reads."""
    history: History = attrs.field(factory=History)
    """The migrations that were begun, in that order."""
    tombstones: tuple[TombstoneSpec, ...] = ()
    """What was dropped, in that order."""
    frozen: int | None = None
    """Since when nobody changes entities, in µs since 1970; None: programs write."""

    @property
    def frozen_since(self) -> datetime | None:
        """Since when nobody changes entities, in UTC; None, too, where those of one class alone do not change."""
        return None if self.frozen is None or self.clearing else Builtin.datetime.fromtimestamp(self.frozen / 1e6, UTC)

    @property
    def clearing(self) -> str | None:
        """The class whose entities nobody changes, as empty tables are to take the place of its own; None: there is none."""
        running = None if self.frozen is None else self.history.running
        return None if running is None or running.clears is UNSET else running.clears

    @property
    def parts(self) -> list[Catalogue]:
        """The classes of the file, and what lies beside them: what a migration writes, and the twins."""
        return [self, *(part.catalogue for part in (self.staged, *self.twins) if part is not None)]

    def table_of(self, name: str) -> Table:
        """Return the table of a class, or of an aggregate."""
        return self.tables[self.models[name].table]

    def gone(self, name: str, form: ModelSpec) -> TombstoneSpec | None:
        """Return the tombstone of a class that was opened once, or of an index that it declares; None if it has all."""
        if not self.tombstones:
            return None
        stored_name = aggregate_in(self.models, name, form)
        if stored_name is None or stored_name not in self.models:
            labels = {name}
        else:
            indexes = indexes_in(self.models[stored_name].indexes, form.indexes, self.instead(name))
            labels = {f"{name}.{index}" for index in form.indexes if index not in indexes}
        # (Beside another definition, what no program declared any more may come back, unlike what a migration dropped.)
        stones = [
            stone
            for stone in self.tombstones
            if str(stone.bare) in labels and stone.may_be_of(form) and (stored_name is not None or stone.by is not None)
        ]
        return stones[-1] if stones else None

    def instead(self, name: str) -> dict[str, str]:
        """Return the indexes of a class that others answer for, by name, each with the name of that."""
        return {
            stone.bare.index: Label.of(stone.instead).index
            for stone in self.tombstones
            if stone.instead is not None and stone.bare.owner == name
        }

    def group(self, twin: Mirror) -> frozenset[str]:
        """Return the classes, by name, that took the place of those of a twin, with all that belongs to them."""
        names = {link.new for link in twin.links} & self.models.keys()
        while True:
            tables = {self.models[name].table for name in names}
            extended = {name for name, form in self.models.items() if form.table in tables}
            aggregates = {name: form.aggregate.of for name, form in self.models.items() if form.aggregate is not UNSET}
            extended |= {name for name, of in aggregates.items() if of in extended}
            extended |= {of for name, of in aggregates.items() if name in extended}
            if extended <= names:
                return frozenset(names)
            names |= extended

    def part(self, names: Collection[str]) -> Catalogue:
        """Return the part of the catalogue for some classes, without builds and copies."""
        models = {name: self.models[name] for name in self.models if name in names}
        labels = {label for name, form in models.items() for label in labels_of(name, form)}
        tables = {form.table for form in models.values()}
        return Catalogue(
            models=models,
            states={label: form for label, form in self.states.items() if label in labels},
            tables={name: table for name, table in self.tables.items() if name in tables},
            index_tables={label: name for label, name in self.index_tables.items() if label in labels},
        )

    def without(self, names: Collection[str]) -> Catalogue:
        """Return the catalogue without some classes, of which nothing shares a table with others."""
        removed_part = self.part(names)
        labels = {label for name, form in removed_part.models.items() for label in labels_of(name, form)}
        return attrs.evolve(
            self,
            models={name: form for name, form in self.models.items() if name not in names},
            states={label: form for label, form in self.states.items() if label not in labels},
            tables={name: table for name, table in self.tables.items() if name not in removed_part.tables},
            index_tables={label: name for label, name in self.index_tables.items() if label not in labels},
            jobs=tuple([job for job in self.jobs if job.owner not in names]),
            copies=tuple([copy for copy in self.copies if not set(copy.sources) & set(names)]),
        )

    def together(self, other: Catalogue) -> Catalogue:
        """Return the catalogue with the classes of another one."""
        return attrs.evolve(
            self,
            models=self.models | other.models,
            states=self.states | other.states,
            tables=self.tables | other.tables,
            index_tables=self.index_tables | other.index_tables,
        )

    def check(self) -> None:
        """Raise ValueError if the parts contradict each other."""
        check_names(self.models)
        for name, form in self.models.items():
            table = self.tables[form.table]
            columns = dict(table.properties)
            if name not in table.types or any(p not in columns for p, f in form.fields.items() if not f.in_key):
                raise ValueError(f'the table "{table.name}" has no place for {name}')
            if missing := [index for index in form.indexes if f"{name}.{index}" not in self.index_tables]:
                raise ValueError(f"the indexes {', '.join(missing)} of {name} have no table")
            if form.aggregate and (unheld := form.aggregate.measures.keys() - form.fields.keys()):
                raise ValueError(f"the measures {', '.join(sorted(unheld))} of {name} are no fields")
        running = {
            name_of(entry.id, back=is_undoing)
            for entry in self.history
            if entry.undone is None
            for is_undoing in (False, True)
        }
        unknown = {entry.migration for entry in self.twins} - {entry.id for entry in self.history}
        if self.staged is not None:
            unknown |= {self.staged.migration} - running
        if unknown:
            raise ValueError(f"the history lacks {', '.join(sorted(unknown))}")


def values_label(name: str) -> str:
    """Return the label of the table that an aggregate counts its live values in."""
    return f"{name} values"


def values_table(table: str, name: str) -> str:
    """Return the public name of this table, for an aggregate whose groups are in a table."""
    return f"{table}_{name}_values"


def labels_of(name: str, form: ModelSpec) -> Iterator[str]:
    """Yield the labels of a class: its own, that of its live values, and those of its indexes."""
    yield from (name, values_label(name), *(f"{name}.{index}" for index in form.indexes))
