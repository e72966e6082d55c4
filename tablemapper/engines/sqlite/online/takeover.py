"""How a file comes to hold what a schema needs, in one transaction: tables, columns, and jobs for what is to be built.

The catalogue only grows here. What the opened classes lack stays, and stays maintained.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ....entities.declaration import IndexModel
from ....errors import CorruptStore, SchemaMismatch
from ....evolution.definitions import aggregate_in
from ....evolution.evolution import Evolution, evolve
from ....evolution.scripts import script_name, script_source
from ....keys.template import Template
from ....schema.forms import ModelForm, StateForm
from ....schema.model import Model, Schema
from ..driver.connections import FORMAT_VERSION
from ..driver.timestamps import STATE
from ..file.writer import Writer
from ..rows.building import PROGRESS, build_batch
from ..rows.contested import VIOLATIONS
from ..rows.jobs import BUILDS, CREATE_JOBS, LEDGER, QUEUE
from ..sql.catalogue import (
    COPIES,
    CREATE_CATALOGUE,
    NAME,
    Catalogue,
    JobForm,
    Read,
    changed,
    read_catalogue,
    values_label,
    write_catalogue,
)
from ..sql.names import guests
from ..sql.schema import SqliteSchema
from ..sql.tables import EntityTable, fresh_name, quoted, values_ddl
from ..sql.zone_rules import outdated, ruled_here
from .dropping import disable, finished
from .switch import ended

__all__ = ["BESIDE", "build_disabled", "evolution_of", "stage", "take_format", "take_over", "verify"]

BESIDE = {
    **CREATE_JOBS,
    COPIES: f"CREATE TABLE {COPIES}(id PRIMARY KEY, class, pk, rk, state, done, total) WITHOUT ROWID",
    QUEUE: f"CREATE TABLE {QUEUE}(id, pk, rk, PRIMARY KEY(id, pk, rk)) WITHOUT ROWID",
    LEDGER: f"CREATE TABLE {LEDGER}(id, pk, rk, made, PRIMARY KEY(id, pk, rk)) WITHOUT ROWID",
}
"""The tables beside the catalogue, for what is being built or copied: how far that is, which values are held twice, which
entities changed since they were copied, and what each was turned into."""
_RENAME_JOB = f"UPDATE {BUILDS} SET class = ?, targets = ? WHERE name = ?"
_AT_ONCE = 1_000  # entities over which something new is built in the transaction that registers it
_log = logging.getLogger("tablemapper.sqlite")


def evolution_of(catalogue: Catalogue, schema: Schema, read: Read, now: int = 0) -> Evolution:
    """Compare a catalogue with a schema; raise SchemaMismatch, with every difference, where that cannot be taken over."""
    schema = _residents(catalogue, schema)
    evolution = evolve(catalogue.models, catalogue.versions, schema, _Contents(catalogue, read), now=now)
    if catalogue.staged is not None and (evolution.faults or evolution.dropped or _disturbs(evolution, catalogue)):
        raise _under_way(catalogue, evolution, read)
    if evolution.faults:
        raise _mismatch(catalogue, schema, evolution)
    if faults := tuple(_names_in_use(evolution, catalogue)):
        raise SchemaMismatch("the models are not those that the file was written with", faults)
    return evolution


def _residents(catalogue: Catalogue, schema: Schema) -> Schema:
    """Return the classes of a schema but those that live in a twin.

    Raises:
        SchemaMismatch: one of these is not as it was; nothing can be added there.
    """
    faults = []
    homes = {twin.migration: twin for twin in guests(catalogue, schema.models)}
    twins = [(twin, twin.migration in homes or not catalogue.group(twin)) for twin in catalogue.twins]
    left: list[Model] = []
    for model in schema.models:
        source = model.name if model.aggregate is None else model.aggregate.source.__name__
        for twin, lives_there in twins:
            if {model.name, source} & twin.catalogue.models.keys() and (
                lives_there or not {model.name, source} & catalogue.models.keys()
            ):
                if not any(
                    v.until is None and v.form == model.form_hash for v in catalogue.versions.get(model.name, ())
                ):
                    faults.append(
                        f"{model.name}: {twin.migration} has switched, and nothing can be added to the old form of the class; "
                        "deploy the version that declares it as it is now"
                    )
                elif stone := attrs.evolve(twin.catalogue, tombstones=catalogue.tombstones).gone(
                    model.name, model.form
                ):
                    faults.append(f"{model.name}: {stone}")
                break
        else:
            left.append(model)
    if faults:
        raise SchemaMismatch("the models are those of an older version, and more", faults)
    return schema if len(left) == len(schema.models) else Schema(tuple(left))


def _under_way(catalogue: Catalogue, evolution: Evolution, read: Read) -> SchemaMismatch:
    """Return the error of a store that is opened with what a migration is still making."""
    assert catalogue.staged is not None
    done, total = read(f"SELECT sum(done), sum(total) FROM {COPIES}")[0]
    ((now,),) = read(f"SELECT until FROM {STATE}")
    spent = (now - catalogue.history[-1].started) / 1e6  # until something was last written
    known = 0 < done < total and catalogue.history[-1].switched is None  # (an undoing notes no start)
    left = f", about {max(1, spent * (total - done) / done):,.0f} s left" if known else ""
    return SchemaMismatch(
        f"{catalogue.staged.migration} is under way ({100 * done // max(done, total, 1)} %{left}); it can be opened so once "
        "that has switched", evolution.faults,
    )  # fmt: skip


def _names_in_use(evolution: Evolution, catalogue: Catalogue) -> Iterator[str]:
    """Yield the new properties that older versions know as others."""
    for model, property in evolution.fields:
        for version in catalogue.versions.get(model.name, ()):
            if version.until is None and property in version.renames:
                yield (
                    f'{model.name}: "{property}" is what "{version.renames[property]}" was called before {version.behind}: '
                    "contract that first, or choose another name"
                )


def _disturbs(evolution: Evolution, catalogue: Catalogue) -> bool:
    """Return whether more would be stored of what a migration ends."""
    assert catalogue.staged is not None
    sources = {name for copy in catalogue.copies for name in copy.sources}
    tables = catalogue.staged.catalogue.tables
    return any(
        form != catalogue.models.get(name)
        and (name in sources or form.table in tables or (form.aggregate is not UNSET and form.aggregate.of in sources))
        for name, form in evolution.models_after.items()
    )


def _mismatch(catalogue: Catalogue, schema: Schema, evolution: Evolution) -> SchemaMismatch:
    steps = [change for change in evolution.stopping if change.code]
    if not steps:
        return SchemaMismatch("the models are not those that the file was written with", evolution.faults)
    script = script_source(catalogue.models, {model.name: model.form for model in schema.models}, steps)
    return SchemaMismatch("the models", evolution.faults, script=script, name=script_name(steps))


class _Contents:
    """What a file holds, as rules ask for it."""

    def __init__(self, catalogue: Catalogue, read: Read) -> None:
        self._catalogue = catalogue
        self._read = read

    def _rows(self, name: str) -> tuple[EntityTable, str]:
        table = self._catalogue.tables[self._catalogue.models[name].table]
        return table, f"{quoted(table.name)} t WHERE {table.type_filter(name, 't') or 'TRUE'}"

    def dropped(self, name: str, form: ModelForm) -> str | None:
        stone = self._catalogue.gone(name, form)
        return None if stone is None else str(stone)

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
        if field.in_key:  # no column says so
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
        found = self._read(
            f'SELECT "PartitionKey", "RowKey" FROM {rows} AND json_type({table.value(extra, "t")}, ?) IS NOT NULL LIMIT 1',
            (f'$."{property}"',),
        )
        return found[0] if found else None

    def within(self, name: str, partition: Template, row: Template) -> Sequence[tuple[str, str]]:
        keys = self._read(f'SELECT "PartitionKey", "RowKey" FROM {self._rows(name)[1]}')
        return [(pk, rk) for pk, rk in keys if partition.matches_prefix(pk) and row.matches_prefix(rk)]


def verify(found: list[tuple[Any, ...]], sqlite: SqliteSchema, catalogue: Catalogue) -> None:
    """Compare the file's own schema with what we would write; a file that was tampered with is not used.

    Args:
        found: ``type, name, tbl_name, sql`` of each entry.
        sqlite: the opened models.
        catalogue: what the file says of all.
    """
    expected = {NAME: CREATE_CATALOGUE, **BESIDE}
    for table in catalogue.tables.values():
        expected |= table.ddl()
    expected |= {index.name: index.create for index in sqlite.indexes.values()}
    expected |= _values_tables(sqlite)
    for model in sqlite.models:
        if (table := sqlite.table_of(model)) != table.extended(model):
            raise changed("table", table.name)
    # Tables of classes that are not opened, and of indexes that another process added since: named, but not compared.
    named = {*catalogue.index_tables.values(), *(name for one in catalogue.history for name in one.kept)}
    for part in catalogue.beside:
        for table in part.tables.values():
            expected |= table.ddl()
        named |= {*part.index_tables.values()}
    named |= {name for stone in catalogue.tombstones for name in stone.tables}
    unopened = named - set(expected)
    here = set()
    for kind, name, _, sql in found:
        here.add(name)
        if kind == "table" and (name in unopened or name in (STATE, "sqlite_sequence", "sqlite_stat1")):
            continue
        if kind == "index" and sql is None:  # SQLite's own, of a primary key
            continue
        if kind != "table" or expected.get(name) != sql:
            raise changed(kind, name)
    if lost := sorted(set(expected) - here):
        raise CorruptStore(f"the tables {', '.join(lost)} are missing; restore a backup")


def _values_tables(sqlite: SqliteSchema) -> dict[str, str]:
    """Return the statements for the tables of live values, by name."""
    names = [sqlite.values_table(model) for model in sqlite.values]
    return {name: values_ddl(name) for name in names}


def by_rules_of_here(writer: Writer, catalogue: Catalogue, *, newer_too: bool = False) -> Catalogue:
    """Disable what is maintained by other rules of a time zone, so that it is built anew; return the catalogue after that.

    What lies beside the classes of the file is built once it takes their place.

    Args:
        writer: of the transaction.
        catalogue: as it is.
        newer_too: whether the rules of a newer release are given up; else what they made is left as it is.
    """
    after = _without_other_rules(writer, catalogue, newer_too=newer_too)

    def beside(part: Catalogue) -> Catalogue:
        nonlocal after
        known = attrs.evolve(part, past=after.past)
        if (left := _without_other_rules(writer, known, newer_too=newer_too)) is known:
            return part
        after = attrs.evolve(after, past=left.past, tombstones=(*after.tombstones, *left.tombstones))
        return attrs.evolve(left, past=frozenset(), tombstones=())

    twins = tuple([attrs.evolve(twin, catalogue=beside(twin.catalogue)) for twin in catalogue.twins])
    staged = catalogue.staged and attrs.evolve(catalogue.staged, catalogue=beside(catalogue.staged.catalogue))
    if after is catalogue:
        return catalogue
    after = attrs.evolve(after, twins=twins, staged=staged)
    write_catalogue(writer, after)
    writer.bump_generation()
    return after


def _without_other_rules(writer: Writer, catalogue: Catalogue, *, newer_too: bool) -> Catalogue:
    labels = outdated(catalogue, newer_too=newer_too)
    for label in labels:
        if catalogue.states[label].state != "disabled":  # (else with its aggregate)
            catalogue = disable(writer, catalogue, label)
    states = {label: ruled_here(catalogue.models, label, catalogue.states[label]) for label in labels}
    return attrs.evolve(catalogue, states=catalogue.states | states) if labels else catalogue


def take_over(writer: Writer, schema: Schema, read: Read) -> Catalogue:
    """Make a file hold what a schema needs; return its catalogue."""
    catalogue = by_rules_of_here(writer, read_catalogue(read))
    evolution = evolution_of(catalogue, schema, read, writer.timestamp)
    schema = _residents(catalogue, schema)
    if not evolution.changed and not catalogue.first_format:
        return catalogue
    if not catalogue.models:
        writer.execute(CREATE_CATALOGUE)
    if not catalogue.models or catalogue.first_format:
        take_format(writer, catalogue)
    wider = {*evolution.widened, *((name, None) for name in evolution.dropped)}
    for twin in catalogue.twins:  # what it is kept in step with can hold more by now
        properties = {(link.new, one) for link in twin.links for one in (None, *link.properties.values())}
        made = {link.new for link in twin.links if link.steps}
        if properties & wider or made & {name for name, _ in wider}:
            catalogue = ended(writer, catalogue, twin, twin.migration)
            evolution = evolution_of(catalogue, schema, read, writer.timestamp)
    layout = _Layout(writer, catalogue, {str(name).lower() for (name,) in read("SELECT name FROM sqlite_schema")})
    layout.drop(evolution.dropped)
    layout.widen(evolution.widened)
    layout.rename(evolution.former)
    known = dict(layout.tables)
    layout.extend(schema, evolution.models_after)
    after = layout.catalogue(evolution, writer.timestamp)
    for job in after.jobs:
        writer.execute(_RENAME_JOB, (job.owner, msgspec.json.encode(sorted(job.targets)).decode(), job.name))
    targets = _targets(
        schema, evolution, {name: form for name, form in catalogue.models.items() if name not in evolution.dropped}
    )
    after = _register(writer, after, targets, _Contents(after, read))
    sqlite = SqliteSchema(schema, after)
    for model, property in evolution.fields:
        _fill(writer, known[after.models[sqlite.names[model]].table], sqlite, model, property)
    for model in evolution.typed:
        table = sqlite.table_of(model)
        condition = table.type_filter(model.name, "t") or "TRUE"
        writer.execute(
            f'UPDATE {quoted(table.name)} AS t SET "EntityType" = ? WHERE {condition}', (model.declaration.type_name,)
        )
    _create(writer, sqlite, evolution)
    after = _build_small(writer, sqlite, after)
    for change in evolution.changes:
        if change.warning:
            _log.warning("%s", change)
    write_catalogue(writer, after)
    if evolution.extends or catalogue.first_format:
        writer.bump_generation()
    return after


def stage(writer: Writer, schema: Schema, past: frozenset[str], read: Read) -> Catalogue:
    """Make new tables for all classes of a schema, beside those that are there; return the catalogue of them alone."""
    evolution = evolve({}, {}, schema, _Contents(Catalogue(), read), now=writer.timestamp)
    layout = _Layout(
        writer, Catalogue(past=past), {str(name).lower() for (name,) in read("SELECT name FROM sqlite_schema")}
    )
    layout.extend(schema, evolution.models_after)
    staged = attrs.evolve(layout.catalogue(evolution, writer.timestamp), past=frozenset())
    _create(writer, SqliteSchema(schema, staged), evolution)
    return staged


def take_format(writer: Writer, catalogue: Catalogue) -> None:
    """Make the tables beside the catalogue, which the first format of files did not have."""
    for sql in (*BESIDE.values(), f"PRAGMA user_version = {FORMAT_VERSION}"):
        writer.execute(sql)
    write_catalogue(writer, catalogue)


class _Layout:
    """The tables of a file, as they change."""

    def __init__(self, writer: Writer, catalogue: Catalogue, taken: set[str]) -> None:
        self.tables = dict(catalogue.tables)
        self._before = catalogue
        self._index_tables = dict(catalogue.index_tables)
        self._past = set(catalogue.past)
        self._taken = taken
        self._writer = writer

    def _fresh(self, name: str) -> str:
        """Return a physical name that never had a meaning."""
        name = fresh_name(name, self._taken | self._past)
        self._taken.add(name.lower())
        return name

    def _labels(self, name: str, form: ModelForm, properties: set[str] | None = None) -> Iterator[tuple[str, str]]:
        """Yield the indexes of a class that hold one of some properties: label, public name of the table."""
        for index, one in form.indexes.items():
            if properties is None or properties & one.fields:
                yield f"{name}.{index}", one.table

    def drop(self, names: frozenset[str]) -> None:
        """Drop the tables of classes that hold nothing, and their places in tables of several classes."""
        for name in names:
            form = self._before.models[name]
            for label, _ in self._labels(name, form):
                self._drop_table(self._index_tables.pop(label))
            self._drop_table(self._index_tables.pop(values_label(name), ""))
            table = self.tables[form.table]
            left = [f"{one}#" if one == name else one for one in table.types]
            if all(one.endswith("#") for one in left):
                del self.tables[form.table]
                self._drop_table(table.name)
                self._drop_table(table.big_name)
            else:  # (nobody has rows of the number that the class had there)
                self.tables[form.table] = attrs.evolve(table, types=tuple(left))

    def _drop_table(self, name: str) -> None:
        if name.lower() in self._taken:
            self._writer.execute(f"DROP TABLE {quoted(name)}")
            self._past.add(name.lower())

    def widen(self, widened: Sequence[tuple[str, str]]) -> None:
        """Give what holds a property another name: those who know the old one must not read what it can hold now."""
        for name, property in widened:
            form = self._before.models[name]
            in_key = form.fields[property].in_key
            for label, public in self._labels(name, form, None if in_key else {property}):
                old, new = self._index_tables[label], self._fresh(public)
                self._rename(old, new)
                self._index_tables[label] = new
            table = self.tables[form.table]
            if in_key:
                after = attrs.evolve(table, name=self._fresh(form.table))
                self._rename(table.name, after.name)
                if table.spills:
                    self._rename(table.big_name, after.big_name)
            else:
                after = table.renamed(property)
                old, new = quoted(table.column(property)), quoted(after.column(property))
                for one in (table.name, *([table.big_name] if table.column(property) in table.spills else [])):
                    self._writer.execute(f"ALTER TABLE {quoted(one)} RENAME COLUMN {old} TO {new}")
            self.tables[form.table] = after

    def _rename(self, old: str, new: str) -> None:
        self._writer.execute(f"ALTER TABLE {quoted(old)} RENAME TO {quoted(new)}")
        self._past.add(old.lower())

    def rename(self, labels: Mapping[str, str]) -> None:
        """Give definitions that others take the place of their labels; physical names stay."""
        for old, new in labels.items():
            if "." not in old:
                form = self._before.models[old]
                table = self.tables.pop(form.table)
                self.tables[form.table + new.removeprefix(old)] = attrs.evolve(table, types=(new,))
                if (values := self._index_tables.pop(values_label(old), None)) is not None:
                    self._index_tables[values_label(new)] = values
            elif old in self._index_tables:
                self._index_tables[new] = self._index_tables.pop(old)
                self._writer.execute(f'UPDATE {VIOLATIONS} SET "index" = ? WHERE "index" = ?', (new, old))

    def extend(self, schema: Schema, forms: Mapping[str, ModelForm]) -> None:
        """Add the tables and columns that the classes of a schema need.

        Args:
            schema: the classes.
            forms: of the catalogue, as they are from now on.
        """
        before = dict(self.tables)
        for model in schema.models:
            if aggregate_in(forms, model.name, model.form) != model.name:
                continue  # it has the table of a former definition
            table = self.tables.get(model.table)
            if table is None:
                table = EntityTable(self._fresh(model.table), (), (), (), ())
            self.tables[model.table] = table.extended(model)
            tables = {f"{model.name}.{name}": form.table for name, form in forms[model.name].indexes.items()}
            if model.aggregate is not None:
                tables[values_label(model.name)] = f"{model.table}_{model.name}_values"
            for label, public in tables.items():
                if label not in self._index_tables:
                    self._index_tables[label] = self._fresh(public)
        for name, table in self.tables.items():
            _make(self._writer, before.get(name), table)

    def catalogue(self, evolution: Evolution, now: int) -> Catalogue:
        """Return what the catalogue says from now on."""
        moved = evolution.former
        states = {moved.get(label, label): form for label, form in self._before.states.items()}
        jobs = [
            attrs.evolve(
                job,
                owner=moved.get(job.owner, job.owner),
                targets=frozenset(moved.get(label, label) for label in job.targets),
            )
            for job in self._before.jobs
        ]
        new = {model.name for model in evolution.models}
        for name, form in evolution.models_after.items():
            for label in (*(f"{name}.{index}" for index in form.indexes), *([name] if form.aggregate else [])):
                if label not in states or name in new:
                    state = states.get(label, StateForm("ready", now))
                    states[label] = ruled_here(evolution.models_after, label, state)
                if (declared := evolution.declared.get(label, states[label].declared)) != states[label].declared:
                    states[label] = replace(states[label], declared=declared, since=now)
        return attrs.evolve(
            self._before,
            models=evolution.models_after,
            versions=evolution.versions_after,
            states=states,
            tables=self.tables,
            index_tables=self._index_tables,
            past=frozenset(self._past),
            jobs=tuple(jobs),
            first_format=False,
        )


def _make(writer: Writer, old: EntityTable | None, table: EntityTable) -> None:
    """Make a table, or what it lacks."""
    if old is None:
        for sql in table.ddl().values():
            writer.execute(sql)
        return
    for column in table.columns[len(old.columns) :]:
        writer.execute(f"ALTER TABLE {quoted(table.name)} ADD COLUMN {column.sql}")
    if table.spills and not old.spills:
        writer.execute(table.create_big)
    for spill in table.spills[len(old.spills) :] if old.spills else ():
        writer.execute(f"ALTER TABLE {quoted(table.big_name)} ADD COLUMN {quoted(spill)}")


def _fill(writer: Writer, old: EntityTable, sqlite: SqliteSchema, model: Model, property: str) -> None:
    """Give the rows that are there the default of a new property, where adding its column has not."""
    table = sqlite.table_of(model)
    if property not in dict(table.properties):
        return  # the key holds it
    default = model.defaults.get(property)
    column = table.column(property)
    added = column not in old.has
    if added and next(c.default for c in table.columns if c.name == column) == default:
        return
    condition = table.type_filter(model.name, "t") or "TRUE"
    writer.execute(f"UPDATE {quoted(table.name)} AS t SET {quoted(column)} = ? WHERE {condition}", (default,))


def _create(writer: Writer, sqlite: SqliteSchema, evolution: Evolution) -> None:
    """Create the tables of what is new beside those of entities."""
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


def _targets(schema: Schema, evolution: Evolution, known: Mapping[str, ModelForm]) -> dict[str, set[str]]:
    """Return the labels of what is to be built over entities or groups that are there, by their class."""
    targets: dict[str, set[str]] = {}
    for model, name in evolution.indexes:
        targets.setdefault(model.name, set()).add(f"{model.name}.{name}")
    for model in evolution.models:
        source = model.name if model.aggregate is None else model.aggregate.source.__name__
        if model.aggregate is not None and source in known:
            targets.setdefault(source, set()).update(
                {model.name, *(f"{model.name}.{one.name}" for one in model.indexes)}
            )
    return {owner: labels for owner, labels in targets.items() if owner in known}


def build_disabled(writer: Writer, catalogue: Catalogue, labels: Collection[str] | None) -> Catalogue | None:
    """Register what is disabled, some labels of it or all; return the catalogue with that, None if there is nothing."""
    disabled = [label for label, form in catalogue.states.items() if form.state == "disabled"]
    targets: dict[str, set[str]] = {}
    for label in (
        disabled if labels is None else [one for one in disabled if {one, one.partition(".")[0]} & set(labels)]
    ):
        name = label.partition(".")[0]
        aggregate = catalogue.models[name].aggregate
        of = aggregate.of if aggregate and name in disabled else name  # (an index on groups is built with them)
        targets.setdefault(of, set()).add(label)

    def read(sql: str, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return writer.execute(sql, args).fetchall()

    return _register(writer, catalogue, targets, _Contents(catalogue, read)) if targets else None


def _register(writer: Writer, catalogue: Catalogue, targets: dict[str, set[str]], contents: _Contents) -> Catalogue:
    """Note what is to be built; return the catalogue with it."""
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
    """Build at once what takes no longer than to register it; return the catalogue after that."""
    for job in sqlite.all_jobs:
        (_, total) = writer.get(PROGRESS, (job.name,)) or (0, 0)
        if total <= _AT_ONCE:
            catalogue = finished(writer, catalogue, build_batch(sqlite, writer, job, total + 1).ended)
    return catalogue
