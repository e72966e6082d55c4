"""The catalogue: what a file holds and maintains, whoever opens it.

What is maintained is what the catalogue says, not what one process opened: each write transaction compares the
generation first, and a store that was opened with an older one follows before it writes.

A *physical name* is that of a table or a column in the file. It never gets a second meaning: statements of a program
that knows an older one fail, and it reads the catalogue again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol

import attrs
import msgspec
from msgspec import UNSET

from ....errors import CorruptStore, InvalidModel, TableMapperError
from ....evolution.definitions import aggregate_in, indexes_in
from ....evolution.history import History
from ....evolution.versions import Version, Versions
from ....schema.forms import (
    AppliedForm,
    LinkForm,
    ModelForm,
    StateForm,
    TombstoneForm,
    check_names,
)
from ....schema.labels import Label
from ....schema.rows import DAMAGE
from ...migration import name_of
from ...protocol import Note, NoteChanged
from ..driver.timestamps import STATE
from ..file.writer import Writer
from .tables import EntityTable, TableForm

__all__ = [
    "COPIES",
    "CREATE_CATALOGUE",
    "NAME",
    "READ_NOTE",
    "SCHEMA",
    "Catalogue",
    "CopyForm",
    "Read",
    "Staged",
    "Twin",
    "changed",
    "labels_of",
    "publish_catalogue",
    "read_catalogue",
    "read_generation",
    "read_states",
    "trusted",
    "values_label",
    "values_table",
    "write_catalogue",
    "write_note",
    "write_states",
]  # fmt: skip

NAME = "tablemapper_catalogue"
COPIES = "tablemapper_copies"
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
READ_NOTE = f"SELECT form FROM {NAME} WHERE name = ?"
_CONTRADICTIONS: tuple[type[Exception], ...] = (*DAMAGE, AssertionError, SyntaxError)
CREATE_CATALOGUE = f"CREATE TABLE {NAME}(name PRIMARY KEY, form) WITHOUT ROWID"


class Read(Protocol):
    """Runs a statement on one state of a file, and returns its rows."""

    def __call__(self, sql: str, args: tuple[Any, ...] = ..., /) -> list[tuple[Any, ...]]: ...


class _Tables(msgspec.Struct, forbid_unknown_fields=True):
    entities: dict[str, TableForm]
    indexes: dict[str, str]
    past: list[str]


@attrs.frozen
class JobForm:
    """What is being built of one class, in one pass over its entities."""

    name: str
    owner: str
    """The class."""
    targets: frozenset[str]
    """The labels of indexes and aggregates."""


@attrs.frozen
class CopyForm:
    """What a migration copies, in one pass over the entities of a class, or of several by equal keys."""

    id: str
    sources: tuple[str, ...]
    """The classes, by name."""


class _Staged(msgspec.Struct, forbid_unknown_fields=True):
    migration: str
    models: dict[str, ModelForm]
    versions: Mapping[str, Sequence[Version]]
    states: dict[str, StateForm]
    tables: _Tables


@attrs.frozen
class Staged:
    """What a migration that runs writes beside what everybody reads, until it switches."""

    migration: str
    catalogue: Catalogue
    """Of that alone."""


class _Twin(msgspec.Struct, forbid_unknown_fields=True):
    migration: str
    links: tuple[LinkForm, ...]
    writes: bool
    models: dict[str, ModelForm]
    states: dict[str, StateForm]
    tables: _Tables


@attrs.frozen(eq=False)
class Twin:
    """Classes as they were before a migration, in tables that are kept in step; see `twins`."""

    migration: str
    links: tuple[LinkForm, ...]
    """From them to the classes of the file."""
    writes: bool
    """Whether they can be written, too."""
    catalogue: Catalogue
    """Of them alone."""


class _Former(msgspec.Struct, forbid_unknown_fields=True):
    models: dict[str, ModelForm]
    tables: _Tables


@attrs.frozen
class Catalogue:
    """What the file says: the forms of its classes, and the layout of its tables."""

    models: dict[str, ModelForm] = attrs.field(factory=dict)
    """The union of all forms of each class that were ever opened."""
    versions: Versions = attrs.field(factory=Versions)
    """All of these."""
    states: dict[str, StateForm] = attrs.field(factory=dict)
    """By the label of an index or an aggregate: ``Product.by_name``, ``DailyClimate``."""
    tables: dict[str, EntityTable] = attrs.field(factory=dict)
    """Entity tables, by their public name."""
    index_tables: dict[str, str] = attrs.field(factory=dict)
    """The physical names of the tables of indexes, by label, and of those with the live values of aggregates."""
    past: frozenset[str] = frozenset()
    """Physical names, in lower case, that once had a meaning."""
    jobs: tuple[JobForm, ...] = ()
    """What is being built."""
    copies: tuple[CopyForm, ...] = ()
    """What a migration copies."""
    staged: Staged | None = None
    twins: tuple[Twin, ...] = ()
    former: dict[str, Catalogue] = attrs.field(factory=dict)
    """By migration: the classes that it ended, in tables that nobody writes any more, and only its undoing reads."""
    history: History = attrs.field(factory=History)
    """The migrations that were begun, in that order."""
    tombstones: tuple[TombstoneForm, ...] = ()
    """What was dropped, in that order."""

    @property
    def beside(self) -> list[Catalogue]:
        """What lies beside the classes of the file: what a migration writes, and the twins."""
        return [one.catalogue for one in (self.staged, *self.twins) if one is not None]

    def table_of(self, name: str) -> EntityTable:
        """Return the table of a class, or of an aggregate."""
        return self.tables[self.models[name].table]

    def gone(self, name: str, form: ModelForm) -> TombstoneForm | None:
        """Return the tombstone of a class that was opened once, or of an index that it declares; None if it has all."""
        if not self.tombstones:
            return None
        held = aggregate_in(self.models, name, form)
        if held is None or held not in self.models:
            labels = {name}
        else:
            known = indexes_in(self.models[held].indexes, form.indexes, self.instead(name))
            labels = {f"{name}.{index}" for index in form.indexes if index not in known}
        # (Beside another definition, what no program declared any more may come back, unlike what a migration dropped.)
        stones = [
            one
            for one in self.tombstones
            if str(one.bare) in labels and one.may_be_of(form) and (held is not None or one.by is not None)
        ]
        return stones[-1] if stones else None

    def instead(self, name: str) -> dict[str, str]:
        """Return the indexes of a class that others answer for, by name, each with the name of that."""
        return {
            one.bare.index: Label.of(one.instead).index
            for one in self.tombstones
            if one.instead is not None and one.bare.owner == name
        }

    def group(self, twin: Twin) -> frozenset[str]:
        """Return the classes, by name, that took the place of those of a twin, with all that belongs to them."""
        names = {link.new for link in twin.links} & self.models.keys()
        while True:
            tables = {self.models[name].table for name in names}
            more = {name for name, form in self.models.items() if form.table in tables}
            aggregates = {name: form.aggregate.of for name, form in self.models.items() if form.aggregate is not UNSET}
            more |= {name for name, of in aggregates.items() if of in more}
            more |= {of for name, of in aggregates.items() if name in more}
            if more <= names:
                return frozenset(names)
            names |= more

    def part(self, names: Collection[str]) -> Catalogue:
        """Return what there is of some classes, with nothing that is being built or copied."""
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
        gone = self.part(names)
        labels = {label for name, form in gone.models.items() for label in labels_of(name, form)}
        return attrs.evolve(
            self,
            models={name: form for name, form in self.models.items() if name not in names},
            states={label: form for label, form in self.states.items() if label not in labels},
            tables={name: table for name, table in self.tables.items() if name not in gone.tables},
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
            held = dict(table.properties)
            if name not in table.types or any(p not in held for p, f in form.fields.items() if not f.in_key):
                raise ValueError(f'the table "{table.name}" has no place for {name}')
            if lost := [index for index in form.indexes if f"{name}.{index}" not in self.index_tables]:
                raise ValueError(f"the indexes {', '.join(lost)} of {name} have no table")
            if form.aggregate and (unheld := form.aggregate.measures.keys() - form.fields.keys()):
                raise ValueError(f"the measures {', '.join(sorted(unheld))} of {name} are no fields")
        running = {name_of(one.id, back=back) for one in self.history if one.undone is None for back in (False, True)}
        unknown = {one.migration for one in self.twins} - {one.id for one in self.history}
        if self.staged is not None:
            unknown |= {self.staged.migration} - running
        if unknown:
            raise ValueError(f"the history lacks {', '.join(sorted(unknown))}")


@contextmanager
def trusted() -> Iterator[None]:
    """Raise CorruptStore for an error in what is computed from a catalogue: it contradicts itself.

    A catalogue is JSON that any program can change, and each part of it can be wrong for each other part. What compiles
    a catalogue relies on it instead of checking it all first.
    """
    try:
        yield
    except (
        InvalidModel
    ) as error:  # of a class that is compiled from the catalogue; those of the program are compiled before
        raise CorruptStore(f"the catalogue cannot be read: {error}; restore a backup") from error
    except TableMapperError:
        raise
    except _CONTRADICTIONS as error:
        raise CorruptStore(f"the catalogue cannot be read: {error!r}; restore a backup") from error


def read_catalogue(read: Read) -> Catalogue:
    """Read the catalogue of a file; an empty one if it is new."""
    created = {name: sql for _, name, _, sql in read(SCHEMA)}
    if NAME not in created:
        return Catalogue()
    rows = read(
        f"SELECT name, form FROM {NAME} "
        "WHERE name IN ('models', 'tables', 'versions', 'states', 'tombstones', 'staged', 'history', 'twins', 'former')"
    )
    with trusted():
        catalogue = _decoded(tuple(rows))
        catalogue = attrs.evolve(catalogue, jobs=_jobs(read, catalogue), copies=_copies(read))
        others = [table for part in catalogue.beside for table in part.tables.values()]
    for table in (*catalogue.tables.values(), *others):
        for name, sql in table.ddl().items():
            if created.get(name) != sql:
                raise changed("table", name)
    return catalogue


def read_generation(read: Read) -> int:
    """Return the generation of a file's catalogue; 0 if the file is new."""
    rows = read(f"SELECT generation FROM {STATE}")
    return rows[0][0] if rows else 0


def values_label(name: str) -> str:
    """Return the label of the table that an aggregate counts its live values in."""
    return f"{name} values"


def values_table(table: str, name: str) -> str:
    """Return the public name of this table, for an aggregate whose groups are in a table."""
    return f"{table}_{name}_values"


def labels_of(name: str, form: ModelForm) -> Iterator[str]:
    """Yield the labels of a class: its own, that of its live values, and those of its indexes."""
    yield from (name, values_label(name), *(f"{name}.{index}" for index in form.indexes))


def _jobs(read: Read, catalogue: Catalogue) -> tuple[JobForm, ...]:
    # (A frontier is no job: see `jobs`.)
    rows = read("SELECT name, class, targets FROM tablemapper_builds WHERE name NOT LIKE '% groups' ORDER BY name")
    jobs = [JobForm(name, owner, msgspec.json.decode(targets, type=frozenset[str])) for name, owner, targets in rows]
    for job in jobs:
        owners = {Label.of(label).owner for label in job.targets}
        if not job.targets or job.targets - catalogue.states.keys() or owners - catalogue.models.keys():
            raise changed("build", job.name)
    return tuple(jobs)


def _copies(read: Read) -> tuple[CopyForm, ...]:
    rows = read(f"SELECT id, class FROM {COPIES} ORDER BY id")
    return tuple([CopyForm(copy, tuple(sources.split(", "))) for copy, sources in rows])


@lru_cache(maxsize=32)  # a process opens the same file again and again, or follows it from one generation to the next
def _decoded(texts: tuple[tuple[str, str], ...]) -> Catalogue:
    """Return what the rows of a catalogue say; it is shared, and nobody changes it."""
    rows, decode = dict(texts), msgspec.json.decode
    catalogue = _of_forms(
        decode(rows["models"], type=dict[str, ModelForm]),
        decode(rows["versions"], type=dict[str, list[Version]]),
        decode(rows["states"], type=dict[str, StateForm]),
        decode(rows["tables"], type=_Tables),
    )
    staged = None
    if "staged" in rows:
        form = decode(rows["staged"], type=_Staged)
        staged = Staged(form.migration, _of_forms(form.models, form.versions, form.states, form.tables))
        staged.catalogue.check()
    twins = []
    for one in decode(rows.get("twins", "[]"), type=tuple[_Twin, ...]):
        twins.append(Twin(one.migration, one.links, one.writes, _of_forms(one.models, {}, one.states, one.tables)))
        twins[-1].catalogue.check()
    former = {
        id: _of_forms(one.models, {}, {}, one.tables)
        for id, one in decode(rows.get("former", "{}"), type=dict[str, _Former]).items()
    }
    history = History(decode(rows.get("history", "[]"), type=tuple[AppliedForm, ...]))
    tombstones = decode(rows.get("tombstones", "[]"), type=tuple[TombstoneForm, ...])
    catalogue = attrs.evolve(
        catalogue, staged=staged, twins=tuple(twins), former=former, history=history, tombstones=tombstones
    )
    catalogue.check()
    return catalogue


def _of_forms(
    models: dict[str, ModelForm],
    versions: Mapping[str, Sequence[Version]],
    states: dict[str, StateForm],
    tables: _Tables,
) -> Catalogue:
    return Catalogue(
        models=models,
        versions=Versions(versions),
        states=states,
        tables={name: EntityTable.of(name, form) for name, form in tables.entities.items()},
        index_tables=tables.indexes,
        past=frozenset(tables.past),
    )


def _tables(catalogue: Catalogue) -> _Tables:
    entities = {name: table.form() for name, table in catalogue.tables.items()}
    return _Tables(entities, catalogue.index_tables, sorted(catalogue.past))


def write_catalogue(writer: Writer, catalogue: Catalogue) -> None:
    """Write a catalogue over the one that is there."""
    staged = None
    if catalogue.staged is not None:
        of = catalogue.staged.catalogue
        staged = _Staged(catalogue.staged.migration, of.models, of.versions.by_class, of.states, _tables(of))
    twins = [
        _Twin(one.migration, one.links, one.writes, of.models, of.states, _tables(of))
        for one in catalogue.twins
        for of in [one.catalogue]
    ]
    former = {id: _Former(one.models, _tables(one)) for id, one in catalogue.former.items()}
    for name, form in (
        ("models", catalogue.models),
        ("versions", catalogue.versions.by_class),
        ("states", catalogue.states),
        ("tombstones", catalogue.tombstones or None),
        ("tables", _tables(catalogue)),
        ("staged", staged),
        ("twins", twins or None),
        ("former", former or None),
        ("history", catalogue.history.entries or None),
    ):
        if form is None:
            writer.execute(f"DELETE FROM {NAME} WHERE name = ?", (name,))
        else:
            writer.execute(f"REPLACE INTO {NAME} VALUES(?, ?)", (name, msgspec.json.encode(form).decode()))


def publish_catalogue(writer: Writer, catalogue: Catalogue) -> None:
    """Write another catalogue, which each process that has the file open has to follow."""
    write_catalogue(writer, catalogue)
    writer.bump_generation()


def read_states(writer: Writer) -> dict[str, StateForm]:
    """Return the states of indexes and aggregates, by label."""
    (form,) = writer.get(READ_NOTE, ("states",)) or ("{}",)
    return msgspec.json.decode(form, type=dict[str, StateForm])


def write_states(writer: Writer, states: dict[str, StateForm]) -> None:
    """Write other states, which each process that has the file open has to follow."""
    writer.execute(f"REPLACE INTO {NAME} VALUES(?, ?)", ("states", msgspec.json.encode(states).decode()))
    writer.bump_generation()


def changed(kind: str, name: str) -> CorruptStore:
    """Return the error of something in the file that is not what the catalogue says."""
    return CorruptStore(
        f'the {kind} "{name}" differs from the catalogue, because another program changed the file; restore a backup'
    )


def write_note(writer: Writer, note: Note) -> tuple[str, tuple[Any, ...]]:
    """Change what is noted under a name, and return a query that finds a row only if that was committed.

    Raises:
        NoteChanged: it is not what it should have been.
    """
    if (writer.get(READ_NOTE, (note.name,)) or (None,)) != (note.old,):
        raise NoteChanged
    if note.new is None:
        writer.execute(f"DELETE FROM {NAME} WHERE name = ?", (note.name,))
        return f"SELECT 1 WHERE NOT EXISTS ({READ_NOTE})", (note.name,)
    writer.execute(f"REPLACE INTO {NAME} VALUES(?, ?)", (note.name, note.new))
    return f"{READ_NOTE} AND form = ?", (note.name, note.new)
