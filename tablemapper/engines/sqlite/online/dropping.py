"""Indexes, aggregates and classes are dropped or disabled, and their tables are cleared.

A drop removes the definition from the catalogue at once, and leaves a tombstone. In the same transaction the tables get
other names, so that no program reads what nobody maintains; see `fences`. The tables may be large, so short
transactions clear them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import msgspec

from ....entities.aggregates import kept_field
from ....errors import InvalidQuery
from ....evolution.definitions import keepers_of, takes_place_of
from ....evolution.rules import reads
from ....schema.forms import TombstoneForm
from ....schema.labels import Label, is_former, plain_name
from ...protocol import Built
from ..file.writer import Writer
from ..rows.building import states_after
from ..rows.contested import FORGET_INDEX
from ..rows.jobs import BUILDS, END
from ..sql.catalogue import Catalogue, publish_catalogue, read_catalogue, values_label, values_table
from ..sql.fences import names_taken, table_names, with_other_name
from ..sql.tables import EntityTable, fresh_name, quoted

__all__ = [
    "clear_batch",
    "delete_class_rows",
    "delete_rows",
    "disable",
    "drop",
    "drop_former",
    "end_job",
    "finished",
    "tidy",
    "unused",
]

_TARGETS = f"UPDATE {BUILDS} SET targets = ? WHERE name = ?"


def drop(
    writer: Writer,
    catalogue: Catalogue,
    label: str,
    by: str | None = None,
    replacement: str | None = None,
    *,
    with_owner: bool = False,
) -> Catalogue:
    """Return a catalogue without an index, an aggregate or a class, and without the aggregates over it.

    Args:
        writer: the transaction.
        catalogue: the catalogue as it is.
        label: the index, aggregate or class.
        by: the migration that drops it.
        replacement: the label of the index that answers for it, where a program still declares it.
        with_owner: whether the class that keeps it as a maintained field is dropped, too.

    Raises:
        InvalidQuery: the catalogue does not have it, or an index reads it.
    """
    owner, index = Label.of(label)
    form = catalogue.models.get(owner)
    if form is None or (index and index not in form.indexes):
        raise InvalidQuery(f"drop: the store has no {label}")
    if not with_owner and (readers := _indexes_over(catalogue, owner)):
        raise InvalidQuery(f"drop: the index {readers[0]} is over {owner.replace(':', '.')}; drop that first")
    if index:
        labels = {label}
        catalogue, physical = _without_index(catalogue, owner, index)
    else:
        labels = {owner, *(f"{owner}.{name}" for name in form.indexes)}
        keepers = keepers_of(owner, catalogue.models)
        for name in [name for name, other in catalogue.models.items() if other.source == owner or name in keepers]:
            catalogue = drop(writer, catalogue, name, by, with_owner=True)
        catalogue, physical = _without_class(writer, catalogue, owner)
    writer.executemany(FORGET_INDEX, [(each,) for each in labels])
    renamed = _renamed(writer, catalogue, physical)
    definition = msgspec.to_builtins(form.indexes[index] if index else form)
    tombstone = TombstoneForm(label, definition, writer.timestamp, by, replacement, renamed)
    return attrs.evolve(
        _without_jobs(writer, catalogue, labels),
        states={other: state for other, state in catalogue.states.items() if other not in labels},
        past=catalogue.past | {name.lower() for name in (*physical, *renamed)},
        tombstones=(*catalogue.tombstones, tombstone),
    )


def _renamed(writer: Writer, catalogue: Catalogue, names: Iterable[str]) -> list[str]:
    """Rename the tables that exist, so that nobody reads them any more; return their names after that."""
    taken = names_taken(writer, catalogue)
    created = {
        str(name) for (name,) in writer.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    }
    renamed = []
    for name in names:
        if name in created:
            renamed.append(fresh_name(f"{name}_dropped", taken))
            taken.add(renamed[-1].lower())
            writer.execute(f"ALTER TABLE {quoted(name)} RENAME TO {quoted(renamed[-1])}")
    return renamed


def _is_shared(table: EntityTable) -> bool:
    """Return whether several classes have their rows in a table."""
    return len([name for name in table.types if not name.endswith("#")]) > 1


def _without_index(catalogue: Catalogue, owner: str, index: str) -> tuple[Catalogue, list[str]]:
    """Return a catalogue without an index, and the physical name of its table."""
    form = catalogue.models[owner]
    indexes = {name: other for name, other in form.indexes.items() if name != index}
    models = catalogue.models | {owner: msgspec.structs.replace(form, indexes=indexes)}
    index_tables = dict(catalogue.index_tables)
    physical = [index_tables.pop(f"{owner}.{index}")]
    return attrs.evolve(catalogue, models=models, index_tables=index_tables), physical


def _without_class(writer: Writer, catalogue: Catalogue, name: str) -> tuple[Catalogue, list[str]]:
    """Return a catalogue without a class, and the names of its tables; its rows in a shared table are deleted."""
    models, index_tables = dict(catalogue.models), dict(catalogue.index_tables)
    form = models.pop(name)
    physical = [index_tables.pop(label) for label in sorted(f"{name}.{index}" for index in form.indexes)]
    if (values := index_tables.pop(values_label(name), None)) is not None:
        physical.append(values)
    tables = dict(catalogue.tables)
    table = tables[form.table]
    if _is_shared(table):
        _delete_all(writer, table, name)
        types = tuple([f"{other}#" if other == name else other for other in table.types])  # (its number stays taken)
        tables[form.table] = attrs.evolve(table, types=types)
    else:
        del tables[form.table]
        physical += [table.name, *([table.big_name] if table.spills else [])]
    return attrs.evolve(catalogue, models=models, index_tables=index_tables, tables=tables), physical


def drop_former(writer: Writer, catalogue: Catalogue) -> Catalogue:
    """Return a catalogue without the former definitions that no program declares any more."""
    for label in unused(catalogue):
        catalogue = drop(writer, catalogue, label)
    return catalogue


def unused(catalogue: Catalogue) -> list[str]:
    """Return the labels of former definitions that no program declares: all versions in use were opened later."""
    labels = []
    for label, state in catalogue.states.items():
        owner = Label.of(label).bare.owner
        in_use = [version for version in catalogue.versions.live(owner) if version.in_use]
        if is_former(label) and not state.declared and in_use and all(v.since >= state.since for v in in_use):
            labels.append(label)
    return [label for label in labels if Label.of(label).index == "" or Label.of(label).owner not in labels]


def delete_class_rows(
    writer: Writer, catalogue: Catalogue, name: str, after: tuple[str, str], most: int
) -> tuple[str, str] | None:
    """Delete the next rows, at most ``most``, of a class that is about to be dropped, if it shares its table.

    Its indexes and aggregates stay as they are: they are dropped with the class.

    Args:
        writer: the transaction.
        catalogue: the catalogue as it is.
        name: the class.
        after: the last key of the batch before.
        most: rows.

    Returns:
        The last key; None if no row is left, or the class has its table alone.
    """
    form = catalogue.models.get(name)
    table = None if form is None else catalogue.tables[form.table]
    if table is None or not (of_type := table.type_filter(name, "t")):
        return None
    big = '"_big"' if table.spills else "NULL"
    rows: list[Any] = writer.execute(
        f'SELECT "PartitionKey", "RowKey", {big} FROM {quoted(table.name)} t WHERE {of_type} '
        'AND ("PartitionKey", "RowKey") >= (?, ?) ORDER BY 1, 2 LIMIT ?',
        (*after, most),
    ).fetchall()
    if table.spills:
        big_ids = [(row[2],) for row in rows if row[2] is not None]
        writer.executemany(f"DELETE FROM {quoted(table.big_name)} WHERE id = ?", big_ids)
    writer.executemany(
        f'DELETE FROM {quoted(table.name)} WHERE "PartitionKey" = ? AND "RowKey" = ?', [row[:2] for row in rows]
    )
    return rows[-1][:2] if rows else None


def _delete_all(writer: Writer, table: EntityTable, name: str) -> None:
    """Delete the rows of a class from a table that it shares."""
    number = table.type_number(name)
    if table.spills:
        big_ids = f'SELECT "_big" FROM {quoted(table.name)} WHERE "_type" IS ?'
        writer.execute(f"DELETE FROM {quoted(table.big_name)} WHERE id IN ({big_ids})", (number,))
    writer.execute(f'DELETE FROM {quoted(table.name)} WHERE "_type" IS ?', (number,))


def disable(writer: Writer, catalogue: Catalogue, label: str, *, keep_ever: bool = False) -> Catalogue:
    """Return a catalogue in which an index or an aggregate is not maintained until it is built anew.

    It gets empty tables. An aggregate that shares its table loses its rows there.

    Args:
        writer: the transaction.
        catalogue: the catalogue as it is.
        label: the index or the aggregate.
        keep_ever: whether an aggregate with ``_ever`` measures keeps its groups. The build takes over what they hold of
            entities that are gone.

    Raises:
        InvalidQuery: the catalogue does not have it.
    """
    owner, index = Label.of(label)
    form = catalogue.models.get(owner)
    if form is None or label not in catalogue.states:
        raise InvalidQuery(f"disable: the store has no index and no aggregate {label}")
    table = catalogue.tables[form.table]
    index_labels = (
        [label] if index else [*(f"{owner}.{name}" for name in form.indexes), *_indexes_over(catalogue, owner)]
    )
    labels = {label, *index_labels}
    rows = writer.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
    created = {str(name): str(sql) for name, sql in rows}
    taken = names_taken(writer, catalogue)
    replaced: list[str] = []

    def empty_table_like(name: str) -> str:
        fresh = fresh_name(name, taken)
        writer.execute(created[name].replace(quoted(name), quoted(fresh), 1))
        taken.add(fresh.lower())
        replaced.append(name)
        return fresh

    index_tables, tables = dict(catalogue.index_tables), dict(catalogue.tables)
    for each in [*index_labels, *([] if index else [values_label(owner)])]:
        if index_tables.get(each) in created:
            index_tables[each] = empty_table_like(index_tables[each])
    keeps = keep_ever and form.keeps_ever
    if not index and len(table.types) > 1:
        if not keeps:
            _delete_all(writer, table, owner)
        catalogue = with_other_name(writer, catalogue, form.table)
        tables[form.table] = catalogue.tables[form.table]
    elif not index:
        after = tables[form.table] = attrs.evolve(table, name=empty_table_like(table.name))
        if keeps:
            writer.execute(f"INSERT INTO {quoted(after.name)} SELECT * FROM {quoted(table.name)}")
        if table.spills:
            writer.execute(after.create_big)
            replaced.append(table.big_name)
    writer.executemany(FORGET_INDEX, [(each,) for each in labels])
    states = {
        each: msgspec.structs.replace(state, state="disabled", since=writer.timestamp) if each in labels else state
        for each, state in catalogue.states.items()
    }
    definition = msgspec.to_builtins(form.indexes[index] if index else form)
    renamed = _renamed(writer, catalogue, replaced)
    return attrs.evolve(
        _without_jobs(writer, catalogue, labels),
        index_tables=index_tables,
        tables=tables,
        states=states,
        past=catalogue.past | {name.lower() for name in (*replaced, *renamed)},
        tombstones=(*catalogue.tombstones, TombstoneForm(label, definition, writer.timestamp, tables=renamed)),
    )


def _indexes_over(catalogue: Catalogue, name: str) -> list[str]:
    """Return the labels of the indexes that read the maintained field of an aggregate; none if it keeps no field."""
    kept = None if is_former(name) else kept_field(name)
    if kept is None or kept[0] not in catalogue.models:
        return []
    owner, property = kept
    return [f"{owner}.{name}" for name, index in catalogue.models[owner].indexes.items() if reads(index, property)]


def _without_jobs(writer: Writer, catalogue: Catalogue, labels: set[str]) -> Catalogue:
    """Return a catalogue in which some labels are built no more."""
    jobs = []
    for job in catalogue.jobs:
        targets = job.targets - labels
        if targets and job.owner not in labels:
            jobs.append(attrs.evolve(job, targets=targets))
            writer.execute(_TARGETS, (msgspec.json.encode(sorted(targets)).decode(), job.name))
        else:
            writer.execute(END, (job.name,))
    return attrs.evolve(catalogue, jobs=tuple(jobs))


def end_job(writer: Writer, catalogue: Catalogue, built: Built) -> None:
    """Note in the catalogue what is complete, if a job ended."""
    if built.ended:
        publish_catalogue(writer, finished(writer, catalogue, built.ended))


def finished(writer: Writer, catalogue: Catalogue, labels: Iterable[str]) -> Catalogue:
    """Return a catalogue in which some labels are built.

    Where a plain index is ready that replaces a unique one, the unique one is dropped.
    """
    built = frozenset(labels)
    jobs = tuple([job for job in catalogue.jobs if not job.targets <= built])
    catalogue = attrs.evolve(catalogue, states=states_after(writer, catalogue.states, built), jobs=jobs)
    for label in sorted(built):
        owner, index = Label.of(label)
        indexes = catalogue.models[owner].indexes
        for other, form in indexes.items() if index else ():
            if plain_name(other) == plain_name(index) and takes_place_of(indexes[index], form):
                catalogue = drop(writer, catalogue, f"{owner}.{other}", replacement=label)
    return catalogue


def clear_batch(writer: Writer, catalogue: Catalogue, most: int) -> Built | None:
    """Delete the next rows, at most ``most``, of a table that a drop left, or the table; None if there is none."""
    tombstone = next((each for each in catalogue.tombstones if each.tables), None)
    if tombstone is None:
        return None
    name = tombstone.tables[0]
    rows = delete_rows(writer, name, most)
    ended: tuple[str, ...] = ()
    if rows < most:
        writer.execute(f"DROP TABLE {quoted(name)}")
        after = msgspec.structs.replace(tombstone, tables=tombstone.tables[1:])
        tombstones = tuple([after if each is tombstone else each for each in catalogue.tombstones])
        publish_catalogue(writer, attrs.evolve(catalogue, tombstones=tombstones))
        ended = () if after.tables else (tombstone.label,)
    return Built(tombstone.label, rows, rows, 0, ended, clearing=True)


def delete_rows(writer: Writer, table: str, most: int) -> int:
    """Delete rows of a table, at most ``most``; return how many."""
    columns = writer.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
    key = ", ".join(
        [quoted(name) for _, name in sorted((column[5], str(column[1])) for column in columns if column[5])]
    )
    before = writer.total_changes()
    writer.execute(f"DELETE FROM {quoted(table)} WHERE ({key}) IN (SELECT {key} FROM {quoted(table)} LIMIT ?)", (most,))
    return writer.total_changes() - before


def tidy(writer: Writer) -> None:
    """Drop the tables that drops left, and give the others their public names, while no other process is there."""
    catalogue = read_catalogue(writer.read)
    if catalogue.staged is not None:
        return
    for name in [name for tombstone in catalogue.tombstones for name in tombstone.tables]:
        writer.execute(f"DROP TABLE {quoted(name)}")
    tombstones = tuple([msgspec.structs.replace(tombstone, tables=[]) for tombstone in catalogue.tombstones])
    taken = table_names(writer)

    def public(physical: str, name: str) -> str:
        """Rename a table to its public name, if that is free; return the name that it has."""
        if is_former(name) or physical == name or name.lower() in taken - {physical.lower()}:
            return physical
        writer.execute(f"ALTER TABLE {quoted(physical)} RENAME TO {quoted(name)}")
        taken.discard(physical.lower())
        taken.add(name.lower())
        return name

    def table_of(name: str, table: EntityTable) -> EntityTable:
        after = attrs.evolve(table, name=public(table.name, name))
        if table.spills and after.name != table.name:
            public(table.big_name, after.big_name)
        return after

    names = {f"{name}.{i}": index.table for name, form in catalogue.models.items() for i, index in form.indexes.items()}
    names |= {values_label(name): values_table(form.table, name) for name, form in catalogue.models.items()}
    index_tables = {
        label: name if is_former(label) or name.lower() not in taken else public(name, names[label])
        for label, name in catalogue.index_tables.items()
    }
    after = attrs.evolve(
        catalogue,
        tables={name: table_of(name, table) for name, table in catalogue.tables.items()},
        index_tables=index_tables,
        tombstones=tombstones,
        past=frozenset(),
    )
    if after != catalogue:
        publish_catalogue(writer, after)
