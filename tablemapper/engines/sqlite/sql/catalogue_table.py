"""The catalogue of a file, in a table of its own: read as a whole, and written as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol

import attrs
import msgspec

from ....catalogue.catalogue import Catalogue, CopySpec, JobSpec, Mirror, StagedCatalogue
from ....catalogue.tables import Table, TableSpec
from ....errors import CorruptStore, InvalidModel, TableMapperError
from ....evolution.history import History
from ....evolution.versions import Version, Versions
from ....schema.labels import Label
from ....schema.rows import DAMAGE
from ....schema.specs import AppliedSpec, BuildStateSpec, LinkSpec, ModelSpec, TombstoneSpec
from ...protocol import Note, NoteConflict
from ..driver.timestamps import STATE
from ..file.writer import Writer
from .ddl import ddl

NAME = "tablemapper_catalogue"
COPIES = "tablemapper_copies"
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
READ_NOTE = f"SELECT form FROM {NAME} WHERE name = ?"
_CONTRADICTIONS: tuple[type[Exception], ...] = (*DAMAGE, AssertionError, SyntaxError)
CREATE_CATALOGUE = f"CREATE TABLE {NAME}(name PRIMARY KEY, form) WITHOUT ROWID"


class CatalogueRead(Protocol):
    """Runs a statement on one state of a file, and returns its rows."""

    def __call__(self, sql: str, args: tuple[Any, ...] = ..., /) -> list[tuple[Any, ...]]: ...


class _Tables(msgspec.Struct, forbid_unknown_fields=True):
    entities: dict[str, TableSpec]
    indexes: dict[str, str]
    past: list[str]


class _Staged(msgspec.Struct, forbid_unknown_fields=True):
    migration: str
    models: dict[str, ModelSpec]
    versions: Mapping[str, Sequence[Version]]
    states: dict[str, BuildStateSpec]
    tables: _Tables


class _Twin(msgspec.Struct, forbid_unknown_fields=True):
    migration: str
    links: tuple[LinkSpec, ...]
    writes: bool
    models: dict[str, ModelSpec]
    states: dict[str, BuildStateSpec]
    tables: _Tables


class _Former(msgspec.Struct, forbid_unknown_fields=True):
    models: dict[str, ModelSpec]
    tables: _Tables


_decode_targets = msgspec.json.Decoder(frozenset[str]).decode
_decode_models = msgspec.json.Decoder(dict[str, ModelSpec]).decode
_decode_versions = msgspec.json.Decoder(dict[str, list[Version]]).decode
_decode_states = msgspec.json.Decoder(dict[str, BuildStateSpec]).decode
_decode_tables = msgspec.json.Decoder(_Tables).decode
_decode_staged = msgspec.json.Decoder(_Staged).decode
_decode_twins = msgspec.json.Decoder(tuple[_Twin, ...]).decode
_decode_former = msgspec.json.Decoder(dict[str, _Former]).decode
_decode_history = msgspec.json.Decoder(tuple[AppliedSpec, ...]).decode
_decode_tombstones = msgspec.json.Decoder(tuple[TombstoneSpec, ...]).decode
_decode_frozen = msgspec.json.Decoder(int | None).decode


@contextmanager
def as_corruption() -> Iterator[None]:
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


def read_catalogue(query: CatalogueRead, entries: list[tuple[Any, ...]] | None = None) -> Catalogue:
    """Read the catalogue of a file; an empty one if it is new. ``entries``: of the file's own schema, if they were read."""
    created = {name: sql for _, name, _, sql in entries or query(SCHEMA)}
    if NAME not in created:
        return Catalogue()
    rows = query(
        f"SELECT name, form FROM {NAME} "
        "WHERE name IN ('models', 'tables', 'versions', 'states', 'tombstones', 'staged', 'history', 'twins', 'former', 'frozen')"
    )
    with as_corruption():
        catalogue, statements = _decoded(tuple(rows))
        catalogue = attrs.evolve(catalogue, jobs=_jobs(query, catalogue), copies=_copies(query))
    for name, sql in statements.items():
        if created.get(name) != sql:
            raise mismatch("table", name)
    return catalogue


def read_generation(query: CatalogueRead) -> int:
    """Return the generation of a file's catalogue; 0 if the file is new."""
    rows = query(f"SELECT generation FROM {STATE}")
    return rows[0][0] if rows else 0


def _jobs(query: CatalogueRead, catalogue: Catalogue) -> tuple[JobSpec, ...]:
    # (A frontier is no job: see `jobs`.)
    rows = query("SELECT name, class, targets FROM tablemapper_builds WHERE name NOT LIKE '% groups' ORDER BY name")
    jobs = [JobSpec(name, owner, _decode_targets(targets)) for name, owner, targets in rows]
    for job in jobs:
        owners = {Label.of(label).owner for label in job.targets}
        if not job.targets or job.targets - catalogue.states.keys() or owners - catalogue.models.keys():
            raise mismatch("build", job.name)
    return tuple(jobs)


def _copies(query: CatalogueRead) -> tuple[CopySpec, ...]:
    rows = query(f"SELECT id, class FROM {COPIES} ORDER BY id")
    return tuple([CopySpec(copy, tuple(sources.split(", "))) for copy, sources in rows])


@lru_cache(maxsize=32)  # a process opens the same file again and again, or follows it from one generation to the next
def _decoded(texts: tuple[tuple[str, str], ...]) -> tuple[Catalogue, dict[str, str]]:
    """Return what the rows of a catalogue say, and what makes its tables; both are shared, and nobody changes them."""
    rows = dict(texts)
    catalogue = _of_forms(
        _decode_models(rows["models"]),
        _decode_versions(rows["versions"]),
        _decode_states(rows["states"]),
        _decode_tables(rows["tables"]),
    )
    staged = None
    if "staged" in rows:
        form = _decode_staged(rows["staged"])
        staged = StagedCatalogue(form.migration, _of_forms(form.models, form.versions, form.states, form.tables))
        staged.catalogue.check()
    twins = []
    for twin_form in _decode_twins(rows.get("twins", "[]")):
        twins.append(
            Mirror(
                twin_form.migration,
                twin_form.links,
                twin_form.writes,
                _of_forms(twin_form.models, {}, twin_form.states, twin_form.tables),
            )
        )
        twins[-1].catalogue.check()
    former_catalogues = {
        id: _of_forms(former_form.models, {}, {}, former_form.tables)
        for id, former_form in _decode_former(rows.get("former", "{}")).items()
    }
    history = History(_decode_history(rows.get("history", "[]")))
    tombstones = _decode_tombstones(rows.get("tombstones", "[]"))
    frozen = _decode_frozen(rows.get("frozen", "null"))
    catalogue = attrs.evolve(
        catalogue,
        staged=staged,
        twins=tuple(twins),
        former=former_catalogues,
        history=history,
        tombstones=tombstones,
        frozen=frozen,
    )
    catalogue.check()
    tables = [table for part in catalogue.parts for table in part.tables.values()]
    return catalogue, {name: sql for table in tables for name, sql in ddl(table).items()}


def _of_forms(
    models: dict[str, ModelSpec],
    versions: Mapping[str, Sequence[Version]],
    states: dict[str, BuildStateSpec],
    tables: _Tables,
) -> Catalogue:
    return Catalogue(
        models=models,
        versions=Versions(versions),
        states=states,
        tables={name: Table.of(name, form) for name, form in tables.entities.items()},
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
        _Twin(twin.migration, twin.links, twin.writes, of.models, of.states, _tables(of))
        for twin in catalogue.twins
        for of in [twin.catalogue]
    ]
    former_forms = {
        id: _Former(former_catalogue.models, _tables(former_catalogue))
        for id, former_catalogue in catalogue.former.items()
    }
    for name, form in (
        ("models", catalogue.models),
        ("versions", catalogue.versions.by_class),
        ("states", catalogue.states),
        ("tombstones", catalogue.tombstones or None),
        ("tables", _tables(catalogue)),
        ("staged", staged),
        ("twins", twins or None),
        ("former", former_forms or None),
        ("history", catalogue.history.entries or None),
        ("frozen", catalogue.frozen),
    ):
        if form is None:
            writer.execute(f"DELETE FROM {NAME} WHERE name = ?", (name,))
        else:
            writer.execute(f"REPLACE INTO {NAME} VALUES(?, ?)", (name, msgspec.json.encode(form).decode()))


def mismatch(kind: str, name: str) -> CorruptStore:
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
        raise NoteConflict
    if note.new is None:
        writer.execute(f"DELETE FROM {NAME} WHERE name = ?", (note.name,))
        return f"SELECT 1 WHERE NOT EXISTS ({READ_NOTE})", (note.name,)
    writer.execute(f"REPLACE INTO {NAME} VALUES(?, ?)", (note.name, note.new))
    return f"{READ_NOTE} AND form = ?", (note.name, note.new)
