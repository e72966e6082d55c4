"""A file takes over a schema, in one transaction: it gets the tables and columns, and jobs for the indexes to build.

The catalogue only grows. An index that the opened classes do not declare stays, and stays maintained.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import attrs

from ....catalogue import registration
from ....catalogue.catalogue import Catalogue
from ....catalogue.cutover import ended
from ....catalogue.dropping import finished
from ....catalogue.invariants import meanings
from ....catalogue.property_names import mirror_readers, names_in_use
from ....catalogue.registration import opened, ruled_anew, unmatched_twins
from ....catalogue.tables import Table
from ....catalogue.transitions import BackwardConversion
from ....catalogue.zone_rules import outdated
from ....errors import CorruptStore, SchemaMismatch
from ....evolution.changes import StoredContents
from ....evolution.evolution import Evolution, evolve
from ....evolution.versions import retirement, steps_of
from ....keys.template import Template
from ....schema.model import Model, Schema
from ....schema.specs import ModelSpec
from ..driver.timestamps import STATE
from ..file.database import File
from ..file.writer import Writer
from ..rows.build_steps import build_batch
from ..rows.jobs import CREATE_JOBS, LEDGER, QUEUE, progress
from ..sql.catalogue_table import (
    COPIES,
    CREATE_CATALOGUE,
    NAME,
    SCHEMA,
    CatalogueRead,
    as_corruption,
    mismatch,
    read_catalogue,
    read_generation,
)
from ..sql.ddl import rows_of, value_sql, values_ddl
from ..sql.schema import SqliteSchema
from .transition_runner import CatalogueUpdate, count

_SERVICE_TABLES = {
    **CREATE_JOBS,
    COPIES: f"CREATE TABLE {COPIES}(id PRIMARY KEY, class, pk, rk, state, done, total) WITHOUT ROWID",
    QUEUE: f"CREATE TABLE {QUEUE}(id, pk, rk, PRIMARY KEY(id, pk, rk)) WITHOUT ROWID",
    LEDGER: f"CREATE TABLE {LEDGER}(id, pk, rk, made, PRIMARY KEY(id, pk, rk)) WITHOUT ROWID",
}
"""The tables beside the catalogue: the progress of builds and copies, the duplicates of unique values, the entities
that changed since they were copied, and the entities that each was converted to."""
_COMMON_TABLES = (STATE, "sqlite_sequence", "sqlite_stat1")  # tables that are SQLite's, or of every file
_AT_ONCE = 1_000  # entities over which an index or aggregate is built in the transaction that registers it
_DIFFER = "the models are not those that the file was written with"
_log = logging.getLogger("tablemapper.sqlite")


def evolution_of(catalogue: Catalogue, schema: Schema, query: CatalogueRead, timestamp: int = 0) -> Evolution:
    """Compare a catalogue with a schema; raise SchemaMismatch with all differences if the file cannot take it over."""
    schema = _without_twins(catalogue, schema)
    evolution = evolve(
        catalogue.models, catalogue.versions, schema, _Contents(catalogue, query), catalogue.history, now=timestamp
    )
    if catalogue.staged is not None and (evolution.faults or evolution.dropped or _disturbs(evolution, catalogue)):
        raise _under_way(catalogue, evolution, query)
    if evolution.faults:
        forms = {model.name: model.form for model in schema.models}
        raise SchemaMismatch(_DIFFER, evolution.faults, changes=evolution.stopping, old=catalogue.models, new=forms)
    if faults := tuple(names_in_use(catalogue, evolution)):
        raise SchemaMismatch(_DIFFER, faults)
    return evolution


@as_corruption()
def followed(file: File, schema: Schema, ways_back: Sequence[BackwardConversion]) -> SqliteSchema:
    """Make a file hold what a schema needs; return that schema as the file has it.

    Raises:
        SchemaMismatch: the file holds something else.
    """
    written_generation: int | None = None

    def look(query: CatalogueRead) -> SqliteSchema | None:  # at one state, since others may change the file meanwhile
        with as_corruption():
            entries = query(SCHEMA)
            catalogue, generation = read_catalogue(query, entries), read_generation(query)
            if generation != written_generation and (
                any(map(outdated, catalogue.parts)) or evolution_of(catalogue, schema, query).changed
            ):
                return None
            sqlite = SqliteSchema(schema, catalogue, generation, ways_back)
            verify(entries, sqlite, catalogue)
            return sqlite

    def write(writer: Writer) -> int:
        take_over(writer, schema)
        return writer.generation

    while (sqlite := file.by_writer(look)) is None:
        written_generation = file.write(write)
    return sqlite


def as_it_is(
    schema: Schema | None,
    ways_back: Sequence[BackwardConversion],
    query: CatalogueRead,
    known_schema: Schema | None = None,
) -> SqliteSchema:
    """Return the schema of a file that is not to be changed: that of some classes, or of all that its catalogue has.

    Of these, the ones that are as they were in what is known of it stay the same classes.

    Raises:
        SchemaMismatch: the file would have to be changed for the classes.
    """
    entries = query(SCHEMA)
    catalogue, generation = read_catalogue(query, entries), read_generation(query)
    schema = registration.as_it_is(
        "the file", schema, catalogue, lambda file_schema: evolution_of(catalogue, file_schema, query), known_schema
    )
    sqlite = SqliteSchema(schema, catalogue, generation, ways_back)
    verify(entries, sqlite, catalogue)
    return sqlite


def _without_twins(catalogue: Catalogue, schema: Schema) -> Schema:
    """Return the classes of a schema that do not use the tables of a twin.

    Raises:
        SchemaMismatch: a class uses them and differs from its form there; a twin cannot be changed.
    """
    faults = []
    read_migrations = {twin.migration for twin in mirror_readers(catalogue, schema.models)}
    twins = [(twin, twin.migration in read_migrations or not catalogue.group(twin)) for twin in catalogue.twins]
    models: list[Model] = []
    for model in schema.models:
        names = {model.name, model.name if model.aggregate is None else model.aggregate.source.__name__}
        in_file = names & catalogue.models.keys()
        home = next(
            (twin for twin, uses in twins if names & twin.catalogue.models.keys() and (uses or not in_file)), None
        )
        if home is None:
            models.append(model)
        elif not catalogue.versions.live(model.name, model.form_hash):
            reason = retirement(model, catalogue.versions, catalogue.history) or (
                f"{home.migration} has switched, and nothing can be added to the old form of the class: "
                f"{steps_of(home.migration, model.name, catalogue.history)}; deploy the version that declares it as it is now"
            )
            faults.append(f"{model.name}: {reason}")
        elif tombstone := attrs.evolve(home.catalogue, tombstones=catalogue.tombstones).gone(model.name, model.form):
            faults.append(f"{model.name}: {tombstone}")
    if faults:
        raise SchemaMismatch("the models are those of an older version, and more", faults)
    return schema if len(models) == len(schema.models) else Schema(tuple(models))


def _under_way(catalogue: Catalogue, evolution: Evolution, query: CatalogueRead) -> SchemaMismatch:
    """Return the error for a schema that needs a migration which is still under way."""
    assert catalogue.staged is not None
    copied, total = query(f"SELECT sum(done), sum(total) FROM {COPIES}")[0]
    ((until,),) = query(f"SELECT until FROM {STATE}")
    last_entry = catalogue.history.entries[-1]
    spent = (until - last_entry.started) / 1e6  # until something was last written
    is_estimable = 0 < copied < total and last_entry.switched is None  # (an undoing notes no start)
    time_left = f", about {max(1, spent * (total - copied) / copied):,.0f} s left" if is_estimable else ""
    return SchemaMismatch(
        f"{catalogue.staged.migration} is under way ({100 * copied // max(copied, total, 1)} %{time_left}); it can be opened so once "
        "that has switched", evolution.faults,
    )  # fmt: skip


def _disturbs(evolution: Evolution, catalogue: Catalogue) -> bool:
    """Return whether an evolution changes a class that a migration under way replaces."""
    assert catalogue.staged is not None
    sources = {name for copy in catalogue.copies for name in copy.sources}
    tables = catalogue.staged.catalogue.tables
    return any(
        form != catalogue.models.get(name) and (name in sources or form.table in tables or form.source in sources)
        for name, form in evolution.models_after.items()
    )


class _Contents(StoredContents):
    """The rows of a file, as the rules of evolution read them."""

    def __init__(self, catalogue: Catalogue, query: CatalogueRead) -> None:
        self._catalogue = catalogue
        self._query = query

    def _rows(self, name: str) -> tuple[Table, str]:
        table = self._catalogue.table_of(name)
        return table, rows_of(table, name)

    def dropped(self, name: str, form: ModelSpec) -> str | None:
        tombstone = self._catalogue.gone(name, form)
        return None if tombstone is None else str(tombstone)

    def count(self, name: str) -> int:
        return count(self._query, self._catalogue.table_of(name), name)

    def holds_other(self, name: str, property: str, value: Any) -> bool:
        table, rows = self._rows(name)
        value_column = value_sql(table, property, "t")
        return bool(
            self._query(
                f"SELECT 1 FROM {rows} AND {value_column} IS NOT NULL AND {value_column} IS NOT ? LIMIT 1", (value,)
            )
        )

    def holds_one_of(self, name: str, property: str, values: Sequence[Any]) -> bool:
        field = self._catalogue.models[name].fields[property]
        if field.in_key:  # there is no column to look into
            return self.count(name) > 0
        table, rows = self._rows(name)
        condition, places = value_sql(table, property, "t"), ", ".join("?" * len(values))
        if field.type.startswith("list["):
            condition = f"EXISTS(SELECT 1 FROM json_each({condition}) WHERE value IN ({places}))"
        else:
            condition = f"{condition} IN ({places})"
        return bool(self._query(f"SELECT 1 FROM {rows} AND {condition} LIMIT 1", tuple(values)))

    def undeclared(self, name: str, extra: str, property: str) -> tuple[str, str] | None:
        table, rows = self._rows(name)
        keys = self._query(
            f'SELECT "PartitionKey", "RowKey" FROM {rows} AND json_type({value_sql(table, extra, "t")}, ?) IS NOT NULL LIMIT 1',
            (f'$."{property}"',),
        )
        return keys[0] if keys else None

    def within(self, name: str, partition: Template, row: Template) -> Sequence[tuple[str, str]]:
        keys = self._query(f'SELECT "PartitionKey", "RowKey" FROM {self._rows(name)[1]}')
        return [(pk, rk) for pk, rk in keys if partition.matches_prefix(pk) and row.matches_prefix(rk)]


def verify(entries: list[tuple[Any, ...]], sqlite: SqliteSchema, catalogue: Catalogue) -> set[str]:
    """Compare the tables of a file with those that its catalogue describes; raise CorruptStore if they differ.

    Returns:
        The names of the tables of classes, and of what is maintained from them.

    Args:
        entries: the file's own schema: ``type, name, tbl_name, sql`` of each entry.
    """
    expected = {NAME: CREATE_CATALOGUE, **_SERVICE_TABLES}
    expected |= {index.name: index.create for index in sqlite.indexes.values()}
    expected |= {name: values_ddl(name) for name in map(sqlite.values_table, sqlite.values)}
    for model in sqlite.models:
        if (table := sqlite.table_of(model)) != table.extended(model):
            raise mismatch("table", table.name)
    # (Entity tables were compared when the catalogue was read. Of an index that this program does not know, nobody here knows
    # the statement.)
    unopened = {*meanings(catalogue)} - expected.keys()
    created = set()
    for kind, name, _, sql in entries:
        created.add(name)
        if kind == "table" and (name in unopened or name in _COMMON_TABLES):
            continue
        if kind == "index" and sql is None:  # SQLite's own, of a primary key
            continue
        if kind != "table" or expected.get(name) != sql:
            raise mismatch(kind, name)
    if missing := sorted(set(expected) - created):
        raise CorruptStore(f"the tables {', '.join(missing)} are missing; restore a backup")
    return {name for kind, name, *_ in entries if kind == "table"} - {NAME, *_SERVICE_TABLES, *_COMMON_TABLES}


@as_corruption()
def take_over(writer: Writer, schema: Schema) -> None:
    """Change a file so that it can store and maintain what a schema declares."""
    change, query = CatalogueUpdate(writer), writer.read
    by_other_rules = change.take(ruled_anew) is not change.original
    evolution = evolution_of(change.catalogue, schema, query, writer.timestamp)
    if evolution.changed:
        schema = _without_twins(change.catalogue, schema)
        if not read_generation(query):  # (no classes are in a store, too, from which scripts have dropped all)
            for sql in (CREATE_CATALOGUE, *_SERVICE_TABLES.values()):
                writer.execute(sql)
        for twin in unmatched_twins(change.catalogue, evolution):
            change.take(ended, twin, twin.migration)
            evolution = evolution_of(change.catalogue, schema, query, writer.timestamp)
        change.take(opened, schema, evolution)
        sqlite = SqliteSchema(schema, change.catalogue)
        for job in sqlite.all_jobs:
            _, total = progress(writer.get, job.name)
            if total <= _AT_ONCE:
                change.take(finished, build_batch(sqlite, writer, job, total + 1).completed)
        for schema_change in evolution.changes:
            if schema_change.warning:
                _log.warning("%s", schema_change)
            elif schema_change.rule == "open" and schema_change.code:
                _log.info("%s; a migration can remove it: %s", schema_change, schema_change.code)
    change.publish(extends=evolution.extends or by_other_rules)
