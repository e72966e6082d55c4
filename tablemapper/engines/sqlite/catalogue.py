"""The catalogue: what a file maintains, and how a file comes to follow a schema.

What is maintained is what the catalogue says, not what one process opened: each write transaction compares the
generation first, so a store that was compiled from an older catalogue never writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from ...errors import CorruptStore, SchemaMismatch
from ...progress import Meter
from ...schema.evolution import Evolution, evolve
from ...schema.forms import ModelForm
from ...schema.maintenance import ChangeSet, Maintenance
from ...schema.model import Model, Schema
from ...schema.rows import Row
from ..protocol import Note, NoteChanged
from .file.timestamps import STATE
from .file.writer import Writer
from .maintained import write_groups, write_indexes
from .statements import IndexTable, SqliteSchema
from .tables import EntityTable, TableForm, quoted, values_ddl

__all__ = ["CREATE_CATALOGUE", "READ_NOTE", "Catalogue", "read_catalogue", "take_over", "verify", "write_note"]

NAME = "tablemapper_catalogue"
CREATE_CATALOGUE = f"CREATE TABLE {NAME}(name PRIMARY KEY, form) WITHOUT ROWID"
_CHUNK = 1000


class _Reads(Protocol):
    def __call__(self, sql: str, args: tuple[Any, ...] = ..., /) -> list[tuple[Any, ...]]: ...


class Catalogue:
    """What the file says: the forms of its classes, and the layout of its tables."""

    def __init__(self, models: dict[str, ModelForm], tables: dict[str, EntityTable]) -> None:
        self.models = models
        self.tables = tables
        for name, form in models.items():
            table = tables[form.table]
            held = dict(table.properties)
            if name not in table.types or any(p not in held for p, f in form.fields.items() if not f.in_key):
                raise ValueError(f'the table "{table.name}" has no place for {name}')

    def evolution(self, schema: Schema) -> Evolution:
        """Compare with a schema; raise SchemaMismatch, with every difference, where it cannot be followed."""
        evolution = evolve(self.models, schema)
        if evolution.faults:
            raise SchemaMismatch("the models are not those that the file was written with", evolution.faults)
        return evolution


def read_catalogue(read: _Reads) -> Catalogue:
    """Read the catalogue of a file; an empty one if it is new."""
    if not read("SELECT 1 FROM sqlite_schema WHERE name = ?", (NAME,)):
        return Catalogue({}, {})
    rows = dict(read(f"SELECT name, form FROM {NAME} WHERE name IN ('models', 'tables')"))
    try:
        models = msgspec.json.decode(rows["models"], type=dict[str, ModelForm])
        tables = msgspec.json.decode(rows["tables"], type=dict[str, TableForm])
        catalogue = Catalogue(models, {name: EntityTable.of(name, form) for name, form in tables.items()})
    except (ValueError, KeyError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise CorruptStore(f"the catalogue cannot be read: {error}; restore a backup") from error
    created = dict(read("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"))
    for table in catalogue.tables.values():
        for name, sql in table.ddl().items():
            if created.get(name) != sql:
                raise _changed("table", name)
    return catalogue


def _changed(kind: str, name: str) -> CorruptStore:
    return CorruptStore(
        f'the {kind} "{name}" is not what the catalogue says; the file was changed by something else: restore a backup'
    )


READ_NOTE = f"SELECT form FROM {NAME} WHERE name = ?"


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


def verify(found: list[tuple[Any, ...]], sqlite: SqliteSchema, catalogue: Catalogue) -> None:
    """Compare the file's own schema with what we would write; a file that was tampered with is not used.

    Args:
        found: ``type, name, tbl_name, sql`` of each entry.
        sqlite: the opened models.
        catalogue: what the file says of all.
    """
    expected = {NAME: CREATE_CATALOGUE}
    for table in catalogue.tables.values():
        expected |= table.ddl()
    expected |= {name: index.create for name, index in sqlite.indexes.items()}
    for model in sqlite.schema.models:
        expected |= dict(values_ddl(model))
        if (table := sqlite.tables[model.table]) != table.extended(model):
            raise _changed("table", table.name)
    # Tables of classes that are not opened, and of indexes that another process added since: named, but not compared.
    listed = {
        name
        for form_name, form in catalogue.models.items()
        for name in (*(index.table for index in form.indexes.values()), f"{form.table}_{form_name}_values")
    }
    unopened = listed - set(expected)
    here = set()
    for kind, name, _, sql in found:
        here.add(name)
        if kind == "table" and (name in unopened or name in (STATE, "sqlite_sequence", "sqlite_stat1")):
            continue
        if kind == "index" and sql is None:  # SQLite's own, of a primary key
            continue
        if kind != "table" or expected.get(name) != sql:
            raise _changed(kind, name)
    if lost := sorted(set(expected) - here):
        raise CorruptStore(f"the tables {', '.join(lost)} are missing; restore a backup")


def take_over(writer: Writer, schema: Schema, read: _Reads, meter: Callable[[str, int], Meter]) -> Catalogue:
    """Make a file follow a schema, in one transaction: tables, columns, and what is built over rows that are there."""
    catalogue = read_catalogue(read)
    evolution = catalogue.evolution(schema)
    if not evolution.changed:
        return catalogue
    if not catalogue.models:
        writer.execute(CREATE_CATALOGUE)
    tables = dict(catalogue.tables)
    for model in schema.models:
        before = tables.get(model.table)
        tables[model.table] = (before or EntityTable(model.table, (), (), (), ())).extended(model)
    _tables(writer, catalogue.tables, tables)
    after = Catalogue(evolution.catalogue, tables)
    sqlite = SqliteSchema(schema, tables)
    for model, property in evolution.fields:
        _fill(writer, catalogue, sqlite, model, property)
    _build(writer, sqlite, evolution, catalogue, meter)
    for name, form in (
        ("models", after.models),
        ("tables", {name: table.form() for name, table in after.tables.items()}),
    ):
        writer.execute(f"REPLACE INTO {NAME} VALUES(?, ?)", (name, msgspec.json.encode(form).decode()))
    if evolution.extends:
        writer.bump_generation()
    return after


def _tables(writer: Writer, before: dict[str, EntityTable], after: dict[str, EntityTable]) -> None:
    for name, table in after.items():
        old = before.get(name)
        if old == table:
            continue
        if old is None:
            for sql in table.ddl().values():
                writer.execute(sql)
            continue
        for column in table.columns[len(old.columns) :]:
            writer.execute(f"ALTER TABLE {quoted(name)} ADD COLUMN {column.sql}")
        if table.spills and not old.spills:
            writer.execute(table.create_big)
        for spill in table.spills[len(old.spills) :] if old.spills else ():
            writer.execute(f"ALTER TABLE {quoted(table.big_name)} ADD COLUMN {quoted(spill)}")


def _fill(writer: Writer, catalogue: Catalogue, sqlite: SqliteSchema, model: Model, property: str) -> None:
    """Give the rows that are there the default of a new property, where adding its column has not."""
    table = sqlite.tables[model.table]
    old = catalogue.tables[model.table]
    default = model.defaults.get(property)
    if property not in dict(table.properties):
        return  # the key holds it
    statements = sqlite.statements[model]
    condition = statements.type_filter("t") or "TRUE"
    extra = next((field for field in model.columns if field.type.undeclared), None)
    if extra is not None and extra.property in dict(old.properties):
        held = writer.get(
            f'SELECT "PartitionKey", "RowKey" FROM {quoted(table.name)} t '
            f"WHERE {condition} AND json_type({statements.value(extra, 't')}, ?) IS NOT NULL LIMIT 1",
            (f'$."{property}"',),
        )
        if held is not None:
            raise SchemaMismatch(
                model.name,
                [
                    f'the property "{property}" is new, but {held} has one among its undeclared ones; that needs a migration'
                ],
            )
    column = table.column(property)
    added = column not in old.has
    if added and next(c.default for c in table.columns if c.name == column) == default:
        return
    writer.execute(f"UPDATE {quoted(table.name)} AS t SET {quoted(column)} = ? WHERE {condition}", (default,))


def _build(
    writer: Writer,
    sqlite: SqliteSchema,
    evolution: Evolution,
    catalogue: Catalogue,
    meter: Callable[[str, int], Meter],
) -> None:
    new_indexes = {(model.name, name) for model, name in evolution.indexes}
    new_indexes |= {(model.name, index.name) for model in evolution.models for index in model.indexes}
    new_models = set(evolution.models)
    for model in sqlite.schema.models:
        for index in model.indexes:
            if (model.name, index.name) in new_indexes:
                writer.execute(IndexTable(model, index).create)
        if model in new_models:
            for _, sql in values_ddl(model):
                writer.execute(sql)
    # Aggregates last: what their indexes hold is known once every group is.
    for model in sorted(sqlite.schema.models, key=lambda one: one.aggregate is not None):
        if (model.name if model.aggregate is None else model.aggregate.source.__name__) not in catalogue.models:
            continue
        kept = sqlite.maintenance[model]
        wanted = Maintenance(
            tuple(index for index in kept.indexes if (model.name, index.model.name) in new_indexes),
            tuple(aggregate for aggregate in kept.aggregates if aggregate.model in new_models),
        )
        if not wanted.indexes and not wanted.aggregates:
            continue
        table = quoted(model.table)
        (total,) = writer.get(f"SELECT count(*) FROM {table}", ()) or (0,)
        with meter(f"building over {model.name}", total) as progress:
            for rows in _chunks(writer, sqlite, model):
                changes = ChangeSet()
                changes.added(wanted, rows)
                write_indexes(sqlite, writer, changes)
                write_groups(sqlite, writer, changes)
                progress.advance(len(rows))


def _chunks(writer: Writer, sqlite: SqliteSchema, model: Model) -> Iterator[list[Row]]:
    """Yield a class's rows by pages: no cursor stays open over the tables that are written meanwhile."""
    statements = sqlite.statements[model]
    scan = f"{statements.scan_after} LIMIT {_CHUNK}"
    first = statements.scan + f" LIMIT {_CHUNK}"
    rows = writer.execute(first).fetchall()
    while rows:
        yield rows
        rows = writer.execute(scan, rows[-1][:2]).fetchall()
