"""A file takes over a schema, in one transaction: it gets the tables and columns, and jobs for the indexes to build.

The catalogue only grows. An index that the opened classes do not declare stays, and stays maintained.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence, Set
from functools import partial
from typing import Any

import attrs
import msgspec
from msgspec.structs import replace

from ....entities.declaration import IndexModel
from ....errors import CorruptStore, SchemaMismatch
from ....evolution.evolution import Evolution, evolve
from ....evolution.versions import Versions, retirement, steps_of
from ....keys.template import Template
from ....schema.forms import ModelForm
from ....schema.labels import Label
from ....schema.model import Model, Schema
from ..catalogue.actions import Draft
from ..catalogue.dropping import disable, finished
from ..catalogue.fences import fenced
from ..catalogue.layout import Layout
from ..catalogue.switching import ended
from ..driver.timestamps import STATE
from ..file.writer import Writer
from ..rows.building import build_batch
from ..rows.jobs import BUILDS, CREATE_JOBS, LEDGER, QUEUE, progress
from ..sql.catalogue import (
    COPIES,
    CREATE_CATALOGUE,
    NAME,
    Catalogue,
    JobForm,
    Read,
    Twin,
    changed,
    publish_catalogue,
    read_catalogue,
    read_generation,
    trusted,
    write_catalogue,
)
from ..sql.names import guests
from ..sql.schema import SqliteSchema
from ..sql.tables import EntityTable, quoted, values_ddl
from ..sql.zone_rules import outdated, ruled_here
from .run import carry_out

__all__ = ["build_disabled", "evolution_of", "stage", "take_over", "verify"]

_BESIDE = {
    **CREATE_JOBS,
    COPIES: f"CREATE TABLE {COPIES}(id PRIMARY KEY, class, pk, rk, state, done, total) WITHOUT ROWID",
    QUEUE: f"CREATE TABLE {QUEUE}(id, pk, rk, PRIMARY KEY(id, pk, rk)) WITHOUT ROWID",
    LEDGER: f"CREATE TABLE {LEDGER}(id, pk, rk, made, PRIMARY KEY(id, pk, rk)) WITHOUT ROWID",
}
"""The tables beside the catalogue: the progress of builds and copies, the duplicates of unique values, the entities
that changed since they were copied, and the entities that each was converted to."""
_AT_ONCE = 1_000  # entities over which an index or aggregate is built in the transaction that registers it
_DIFFER = "the models are not those that the file was written with"
_log = logging.getLogger("tablemapper.sqlite")


def evolution_of(catalogue: Catalogue, schema: Schema, read: Read, now: int = 0) -> Evolution:
    """Compare a catalogue with a schema; raise SchemaMismatch with all differences if the file cannot take it over."""
    schema = _without_twins(catalogue, schema)
    evolution = evolve(
        catalogue.models, catalogue.versions, schema, _Contents(catalogue, read), catalogue.history, now=now
    )
    if catalogue.staged is not None and (evolution.faults or evolution.dropped or _disturbs(evolution, catalogue)):
        raise _under_way(catalogue, evolution, read)
    if evolution.faults:
        forms = {model.name: model.form for model in schema.models}
        raise SchemaMismatch(_DIFFER, evolution.faults, changes=evolution.stopping, old=catalogue.models, new=forms)
    if faults := tuple(_names_in_use(evolution, catalogue)):
        raise SchemaMismatch(_DIFFER, faults)
    return evolution


def _without_twins(catalogue: Catalogue, schema: Schema) -> Schema:
    """Return the classes of a schema that do not use the tables of a twin.

    Raises:
        SchemaMismatch: a class uses them and differs from its form there; a twin cannot be changed.
    """
    faults = []
    used = {twin.migration for twin in guests(catalogue, schema.models)}
    twins = [(twin, twin.migration in used or not catalogue.group(twin)) for twin in catalogue.twins]
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


def _under_way(catalogue: Catalogue, evolution: Evolution, read: Read) -> SchemaMismatch:
    """Return the error for a schema that needs a migration which is still under way."""
    assert catalogue.staged is not None
    done, total = read(f"SELECT sum(done), sum(total) FROM {COPIES}")[0]
    ((now,),) = read(f"SELECT until FROM {STATE}")
    last = catalogue.history.entries[-1]
    spent = (now - last.started) / 1e6  # until something was last written
    known = 0 < done < total and last.switched is None  # (an undoing notes no start)
    left = f", about {max(1, spent * (total - done) / done):,.0f} s left" if known else ""
    return SchemaMismatch(
        f"{catalogue.staged.migration} is under way ({100 * done // max(done, total, 1)} %{left}); it can be opened so once "
        "that has switched", evolution.faults,
    )  # fmt: skip


def _names_in_use(evolution: Evolution, catalogue: Catalogue) -> Iterator[str]:
    """Yield the new properties whose names older versions use for other properties."""
    for model, property in evolution.fields:
        for version in catalogue.versions.live(model.name):
            if property in version.renames:
                yield (
                    f'{model.name}: "{property}" is what "{version.renames[property]}" was called before {version.behind}: '
                    "contract that first, or choose another name"
                )


def _disturbs(evolution: Evolution, catalogue: Catalogue) -> bool:
    """Return whether an evolution changes a class that a migration under way replaces."""
    assert catalogue.staged is not None
    sources = {name for copy in catalogue.copies for name in copy.sources}
    tables = catalogue.staged.catalogue.tables
    return any(
        form != catalogue.models.get(name) and (name in sources or form.table in tables or form.source in sources)
        for name, form in evolution.models_after.items()
    )


class _Contents:
    """The rows of a file, as the rules of evolution read them; see `Contents`."""

    def __init__(self, catalogue: Catalogue, read: Read) -> None:
        self._catalogue = catalogue
        self._read = read

    def _rows(self, name: str) -> tuple[EntityTable, str]:
        table = self._catalogue.table_of(name)
        return table, f"{quoted(table.name)} t WHERE {table.type_filter(name, 't') or 'TRUE'}"

    def dropped(self, name: str, form: ModelForm) -> str | None:
        tombstone = self._catalogue.gone(name, form)
        return None if tombstone is None else str(tombstone)

    def count(self, name: str) -> int:
        ((count,),) = self._read(f"SELECT count(*) FROM {self._rows(name)[1]}")
        return int(count)

    def holds_other(self, name: str, property: str, value: Any) -> bool:
        table, rows = self._rows(name)
        stored = table.value(property, "t")
        return bool(
            self._read(f"SELECT 1 FROM {rows} AND {stored} IS NOT NULL AND {stored} IS NOT ? LIMIT 1", (value,))
        )

    def holds_one_of(self, name: str, property: str, values: Sequence[Any]) -> bool:
        field = self._catalogue.models[name].fields[property]
        if field.in_key:  # there is no column to look into
            return self.count(name) > 0
        table, rows = self._rows(name)
        stored, places = table.value(property, "t"), ", ".join("?" * len(values))
        if field.type.startswith("list["):
            stored = f"EXISTS(SELECT 1 FROM json_each({stored}) WHERE value IN ({places}))"
        else:
            stored = f"{stored} IN ({places})"
        return bool(self._read(f"SELECT 1 FROM {rows} AND {stored} LIMIT 1", tuple(values)))

    def undeclared(self, name: str, extra: str, property: str) -> tuple[str, str] | None:
        table, rows = self._rows(name)
        keys = self._read(
            f'SELECT "PartitionKey", "RowKey" FROM {rows} AND json_type({table.value(extra, "t")}, ?) IS NOT NULL LIMIT 1',
            (f'$."{property}"',),
        )
        return keys[0] if keys else None

    def within(self, name: str, partition: Template, row: Template) -> Sequence[tuple[str, str]]:
        keys = self._read(f'SELECT "PartitionKey", "RowKey" FROM {self._rows(name)[1]}')
        return [(pk, rk) for pk, rk in keys if partition.matches_prefix(pk) and row.matches_prefix(rk)]


def verify(entries: list[tuple[Any, ...]], sqlite: SqliteSchema, catalogue: Catalogue) -> None:
    """Compare the tables of a file with those that its catalogue describes; raise CorruptStore if they differ.

    Args:
        entries: the file's own schema: ``type, name, tbl_name, sql`` of each entry.
        sqlite: the opened classes.
        catalogue: the catalogue of the file.
    """
    expected = {NAME: CREATE_CATALOGUE, **_BESIDE}
    for table in catalogue.tables.values():
        expected |= table.ddl()
    expected |= {index.name: index.create for index in sqlite.indexes.values()}
    expected |= _values_tables(sqlite)
    for model in sqlite.models:
        if (table := sqlite.table_of(model)) != table.extended(model):
            raise changed("table", table.name)
    # The tables of indexes that this program does not know may exist; their statements are unknown.
    known = {*catalogue.index_tables.values(), *(name for entry in catalogue.history for name in entry.kept)}
    for part in catalogue.beside:
        for table in part.tables.values():
            expected |= table.ddl()
        known |= {*part.index_tables.values()}
    known |= {name for tombstone in catalogue.tombstones for name in tombstone.tables}
    unopened = known - set(expected)
    created = set()
    for kind, name, _, sql in entries:
        created.add(name)
        if kind == "table" and (name in unopened or name in (STATE, "sqlite_sequence", "sqlite_stat1")):
            continue
        if kind == "index" and sql is None:  # SQLite's own, of a primary key
            continue
        if kind != "table" or expected.get(name) != sql:
            raise changed(kind, name)
    if missing := sorted(set(expected) - created):
        raise CorruptStore(f"the tables {', '.join(missing)} are missing; restore a backup")


def _values_tables(sqlite: SqliteSchema) -> dict[str, str]:
    """Return the statements for the tables of live values, by name."""
    names = [sqlite.values_table(model) for model in sqlite.values]
    return {name: values_ddl(name) for name in names}


def by_rules_of_here(writer: Writer, catalogue: Catalogue, *, newer_too: bool = False) -> Catalogue:
    """Return a catalogue without what was maintained by other rules of a time zone, which is disabled and built anew.

    In a twin or a staged catalogue, it is built once that replaces the classes of the file.

    Args:
        writer: the transaction.
        catalogue: the catalogue as it is.
        newer_too: whether to disable also what was maintained by the rules of a newer release.
    """
    after = carry_out(writer, catalogue, partial(_ruled_anew, catalogue=catalogue, newer_too=newer_too))
    if after is not catalogue:
        publish_catalogue(writer, after)
    return after


def _ruled_anew(draft: Draft, catalogue: Catalogue, *, newer_too: bool) -> Catalogue:
    after = _without_other_rules(draft, catalogue, newer_too=newer_too)

    def without_other_rules(part: Catalogue) -> Catalogue:
        """Do the same in a twin or a staged catalogue; its tombstones belong to the file."""
        nonlocal after
        changed = _without_other_rules(draft, part, newer_too=newer_too)
        after = (
            attrs.evolve(after, tombstones=(*after.tombstones, *changed.tombstones)) if changed is not part else after
        )
        return attrs.evolve(changed, tombstones=())

    twins = tuple([attrs.evolve(twin, catalogue=without_other_rules(twin.catalogue)) for twin in catalogue.twins])
    staged = catalogue.staged
    if staged is not None:
        staged = attrs.evolve(staged, catalogue=without_other_rules(staged.catalogue))
    return catalogue if after is catalogue else attrs.evolve(after, twins=twins, staged=staged)


def _without_other_rules(draft: Draft, catalogue: Catalogue, *, newer_too: bool) -> Catalogue:
    labels = outdated(catalogue, newer_too=newer_too)
    for label in labels:
        if catalogue.states[label].state != "disabled":  # (an index over an aggregate is disabled with it)
            catalogue = disable(draft, catalogue, label, keep_ever=True)
    states = {label: ruled_here(catalogue.models, label, catalogue.states[label]) for label in labels}
    return attrs.evolve(catalogue, states=catalogue.states | states) if labels else catalogue


def take_over(writer: Writer, schema: Schema, read: Read) -> Catalogue:
    """Change a file so that it can store and maintain what a schema declares; return its catalogue."""
    catalogue = before = by_rules_of_here(writer, read_catalogue(read))
    evolution = evolution_of(catalogue, schema, read, writer.timestamp)
    schema = _without_twins(catalogue, schema)
    if not evolution.changed:
        return catalogue
    if not read_generation(read):  # (no classes are in a store, too, from which scripts have dropped all)
        for sql in (CREATE_CATALOGUE, *_BESIDE.values()):
            writer.execute(sql)
    for twin in _unmatched_twins(catalogue, evolution):
        catalogue = carry_out(writer, catalogue, partial(ended, catalogue=catalogue, twin=twin, by=twin.migration))
        evolution = evolution_of(catalogue, schema, read, writer.timestamp)
    old_tables: dict[str, EntityTable] = {}

    def with_classes(draft: Draft) -> Catalogue:
        layout = Layout(draft, catalogue)
        layout.drop(evolution.dropped)
        layout.widen(evolution.widened)
        layout.rename(evolution.former)
        old_tables.update(layout.tables)
        layout.extend(schema, evolution.models_after)
        return layout.catalogue(evolution)

    after = carry_out(writer, catalogue, with_classes)
    targets = _targets(evolution, catalogue.models.keys() - evolution.dropped)
    after = _register(writer, after, targets, _Contents(after, read))
    sqlite = SqliteSchema(schema, after)
    for model, property in evolution.fields:
        _fill(writer, old_tables[after.models[sqlite.names[model]].table], sqlite, model, property)
    for model in evolution.typed:
        _set_column(writer, sqlite.table_of(model), model, "EntityType", model.declaration.type_name)
    _create(writer, sqlite, evolution)
    after = _build_small(writer, sqlite, after)
    after = carry_out(writer, after, partial(fenced, before=before, after=after))
    write = publish_catalogue if evolution.extends else write_catalogue
    write(writer, after)
    _log_changes(evolution)
    return after


def _log_changes(evolution: Evolution) -> None:
    for change in evolution.changes:
        if change.warning:
            _log.warning("%s", change)
        elif change.rule == "open" and change.code:
            _log.info("%s; a migration can remove it: %s", change, change.code)


def _unmatched_twins(catalogue: Catalogue, evolution: Evolution) -> list[Twin]:
    """Return the twins that cannot be kept in step any more: a class that they link can hold more, or was dropped."""
    classes = {name for name, _ in evolution.widened} | evolution.dropped
    twins = []
    for twin in catalogue.twins:
        linked = {(link.new, property) for link in twin.links for property in link.properties.values()}
        by_script = {link.new for link in twin.links if link.steps}
        new = {link.new for link in twin.links}
        if linked & {*evolution.widened} or new & evolution.dropped or by_script & classes:
            twins.append(twin)
    return twins


def stage(writer: Writer, schema: Schema, past: frozenset[str], read: Read) -> Catalogue:
    """Create tables for all classes of a schema, beside those of the file; return the catalogue of these alone."""
    evolution = evolve({}, Versions(), schema, _Contents(Catalogue(), read), now=writer.timestamp)

    def with_classes(draft: Draft) -> Catalogue:
        layout = Layout(draft, Catalogue(past=past))
        layout.extend(schema, evolution.models_after)
        return layout.catalogue(evolution)

    staged = attrs.evolve(carry_out(writer, Catalogue(past=past), with_classes), past=frozenset())
    _create(writer, SqliteSchema(schema, staged), evolution)
    return staged


def _fill(writer: Writer, old: EntityTable, sqlite: SqliteSchema, model: Model, property: str) -> None:
    """Set a new property to its default in all rows, unless the default of its new column does that."""
    table = sqlite.table_of(model)
    if property not in dict(table.properties):
        return  # the key holds it
    default = model.defaults.get(property)
    column = table.column(property)
    is_new = column not in old.has
    if is_new and next(each.default for each in table.columns if each.name == column) == default:
        return
    _set_column(writer, table, model, column, default)


def _set_column(writer: Writer, table: EntityTable, model: Model, column: str, value: Any) -> None:
    """Set a column in all rows of a class."""
    condition = table.type_filter(model.name, "t") or "TRUE"
    writer.execute(f"UPDATE {quoted(table.name)} AS t SET {quoted(column)} = ? WHERE {condition}", (value,))


def _create(writer: Writer, sqlite: SqliteSchema, evolution: Evolution) -> None:
    """Create the tables of new indexes, and of the live values of new aggregates."""
    new_indexes: set[IndexModel] = {model.index(name) for model, name in evolution.indexes}
    new_indexes |= {index for model in evolution.models for index in model.indexes}
    for model in sqlite.schema.models:
        for index in model.indexes:
            if index in new_indexes:
                writer.execute(sqlite.indexes[index].create)
    tables = _values_tables(sqlite)
    for model in sqlite.values:
        if model in evolution.models:
            writer.execute(tables[sqlite.values_table(model)])


def _targets(evolution: Evolution, known: Set[str]) -> dict[str, set[str]]:
    """Return the labels of the new indexes and aggregates over known classes, which may have rows, by class."""
    targets: dict[str, set[str]] = {}
    for model, name in evolution.indexes:
        targets.setdefault(model.name, set()).add(f"{model.name}.{name}")
    for model in evolution.models:
        source = model.name if model.aggregate is None else model.aggregate.source.__name__
        if model.aggregate is not None and source in known:
            targets.setdefault(source, set()).update(
                {model.name, *(f"{model.name}.{index.name}" for index in model.indexes)}
            )
    return {owner: labels for owner, labels in targets.items() if owner in known}


@trusted()
def build_disabled(writer: Writer, catalogue: Catalogue, labels: Collection[str] | None) -> Catalogue | None:
    """Return a catalogue with jobs for what is disabled, all of it or some labels; None if nothing is."""
    disabled = [label for label, form in catalogue.states.items() if form.state == "disabled"]
    targets: dict[str, set[str]] = {}
    for label in disabled:
        name = Label.of(label).owner
        if labels is None or {label, name} & set(labels):
            source = catalogue.models[name].source if name in disabled else None
            targets.setdefault(source or name, set()).add(label)  # (an index is built with its aggregate)
    return _register(writer, catalogue, targets, _Contents(catalogue, writer.read)) if targets else None


def _register(writer: Writer, catalogue: Catalogue, targets: dict[str, set[str]], contents: _Contents) -> Catalogue:
    """Return a catalogue with a job for each class that something is to be built over."""
    generation = writer.generation + 1
    jobs = [JobForm(f"{owner} {generation}", owner, frozenset(labels)) for owner, labels in targets.items()]
    for job in jobs:
        total = contents.count(job.owner)
        writer.execute(
            f"INSERT INTO {BUILDS} VALUES(?, ?, ?, NULL, NULL, 0, ?, ?)",
            (job.name, job.owner, msgspec.json.encode(sorted(job.targets)).decode(), total, writer.timestamp),
        )
    building = {
        label: replace(catalogue.states[label], state="building", since=writer.timestamp)
        for job in jobs
        for label in job.targets
    }
    return attrs.evolve(catalogue, states=catalogue.states | building, jobs=(*catalogue.jobs, *jobs))


def _build_small(writer: Writer, sqlite: SqliteSchema, catalogue: Catalogue) -> Catalogue:
    """Run the jobs over few entities at once, which takes no longer than to register them; return the catalogue."""
    for job in sqlite.all_jobs:
        _, total = progress(writer.get, job.name)
        if total <= _AT_ONCE:
            labels = build_batch(sqlite, writer, job, total + 1).ended
            catalogue = carry_out(writer, catalogue, partial(finished, catalogue=catalogue, labels=labels), labels)
    return catalogue
