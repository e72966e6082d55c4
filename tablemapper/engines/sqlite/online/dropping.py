"""What is not maintained any more: indexes, aggregates and classes that were dropped, and their tables.

A drop takes the definition out of the catalogue at once, and leaves a tombstone. The tables are cleared in short
transactions afterwards, as they may be large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import msgspec

from ....entities.aggregates import kept_field
from ....errors import InvalidQuery
from ....evolution.definitions import is_former, plain_name, takes_place_of
from ....evolution.rules import reads
from ....schema.forms import TombstoneForm
from ...protocol import Built
from ..file.writer import Writer
from ..rows.building import states_after
from ..rows.contested import VIOLATIONS
from ..rows.jobs import BUILDS
from ..sql.catalogue import Catalogue, read_catalogue, values_label, write_catalogue
from ..sql.tables import EntityTable, fresh_name, quoted

__all__ = ["clear_batch", "delete_some", "disable", "drop", "drop_former", "finished", "tidy", "unused"]

_END = f"DELETE FROM {BUILDS} WHERE name = ?"
_TARGETS = f"UPDATE {BUILDS} SET targets = ? WHERE name = ?"
_FORGET = f'DELETE FROM {VIOLATIONS} WHERE "index" = ?'


def drop(
    writer: Writer,
    catalogue: Catalogue,
    label: str,
    by: str | None = None,
    instead: str | None = None,
    *,
    whole: bool = False,
) -> Catalogue:
    """Take an index, an aggregate or a class, with all that is maintained from it, out of a catalogue; return it without.

    Args:
        writer: of the transaction.
        catalogue: as it is.
        label: of what is dropped.
        by: the migration that drops it.
        instead: the label of the index that answers those who declare it.
        whole: whether the class goes that has it, too.

    Raises:
        InvalidQuery: the catalogue does not have it.
    """
    owner, _, index = label.partition(".")
    form = catalogue.models.get(owner)
    if form is None or (index and index not in form.indexes):
        raise InvalidQuery(f"drop: the store has no {label}")
    if not whole and (over := _indexes_over(catalogue, owner)):
        raise InvalidQuery(f"drop: the index {over[0]} is over {owner.replace(':', '.')}; drop that first")
    models, index_tables, tables = dict(catalogue.models), dict(catalogue.index_tables), dict(catalogue.tables)
    gone = {label}
    physical: list[str] = []
    if index:
        models[owner] = msgspec.structs.replace(
            form, indexes={name: one for name, one in form.indexes.items() if name != index}
        )
        physical.append(index_tables.pop(label))
    else:
        maintained = [
            name
            for name, one in catalogue.models.items()
            if one.aggregate and (one.aggregate.of == owner or (kept_field(name) or ("",))[0] == owner)
        ]
        for name in maintained:
            catalogue = drop(writer, catalogue, name, by, whole=True)
        models, index_tables, tables = dict(catalogue.models), dict(catalogue.index_tables), dict(catalogue.tables)
        gone |= {f"{owner}.{name}" for name in form.indexes}
        del models[owner]
        physical += [index_tables.pop(one) for one in sorted(gone - {owner})]
        if (values := index_tables.pop(values_label(owner), None)) is not None:
            physical.append(values)
        table = tables[form.table]
        if len([name for name in table.types if not name.endswith("#")]) > 1:
            _delete_all(writer, table, owner)
            left = tuple([f"{name}#" if name == owner else name for name in table.types])
            tables[form.table] = attrs.evolve(table, types=left)  # (nobody has rows of that number any more)
        else:
            del tables[form.table]
            physical += [table.name, *([table.big_name] if table.spills else [])]
    writer.executemany(_FORGET, [(each,) for each in gone])
    here = {name for (name,) in writer.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()}
    stone = TombstoneForm(
        label,
        msgspec.to_builtins(form.indexes[index] if index else form),
        writer.timestamp,
        by,
        instead,
        [name for name in physical if name in here],
    )
    return attrs.evolve(
        _without(writer, catalogue, gone),
        models=models,
        index_tables=index_tables,
        tables=tables,
        states={one: state for one, state in catalogue.states.items() if one not in gone},
        past=catalogue.past | {name.lower() for name in physical},
        tombstones=(*catalogue.tombstones, stone),
    )


def drop_former(writer: Writer, catalogue: Catalogue) -> Catalogue:
    """Take former definitions out of a catalogue that no class can declare any more; return it without."""
    for label in unused(catalogue):
        catalogue = drop(writer, catalogue, label)
    return catalogue


def unused(catalogue: Catalogue) -> list[str]:
    """Return the labels of former definitions that no class can declare: all that are in use were opened later."""
    found = []
    for label, state in catalogue.states.items():
        owner = plain_name(label.partition(".")[0])
        live = [one for one in catalogue.versions.get(owner, ()) if one.until is None and one.beside is None]
        if is_former(label) and not state.declared and live and all(one.since >= state.since for one in live):
            found.append(label)
    return [label for label in found if label.partition(".")[2] == "" or label.partition(".")[0] not in found]


def delete_some(
    writer: Writer, catalogue: Catalogue, name: str, after: tuple[str, str], most: int
) -> tuple[str, str] | None:
    """Delete the next rows of a class that nobody uses any more, at most ``most``, if it shares its table.

    Nothing that is maintained from them is changed: it goes with the class.

    Args:
        writer: of the transaction.
        catalogue: as it is.
        name: of the class.
        after: the last key of the batch before.
        most: rows.

    Returns:
        The last key; None if no row is left, or the table goes with the class.
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
        moved = [(row[2],) for row in rows if row[2] is not None]
        writer.executemany(f"DELETE FROM {quoted(table.big_name)} WHERE id = ?", moved)
    writer.executemany(
        f'DELETE FROM {quoted(table.name)} WHERE "PartitionKey" = ? AND "RowKey" = ?', [row[:2] for row in rows]
    )
    return rows[-1][:2] if rows else None


def _delete_all(writer: Writer, table: EntityTable, name: str) -> None:
    """Delete the rows of a class from a table that it shares."""
    number = table.type_number(name)
    if table.spills:
        large = f'SELECT "_big" FROM {quoted(table.name)} WHERE "_type" IS ?'
        writer.execute(f"DELETE FROM {quoted(table.big_name)} WHERE id IN ({large})", (number,))
    writer.execute(f'DELETE FROM {quoted(table.name)} WHERE "_type" IS ?', (number,))


def disable(writer: Writer, catalogue: Catalogue, label: str) -> Catalogue:
    """Maintain an index or an aggregate no more until it is built anew; return the catalogue after that.

    It gets empty tables. An aggregate that shares its table stays there, without rows.

    Raises:
        InvalidQuery: the catalogue does not have it.
    """
    owner, _, index = label.partition(".")
    form = catalogue.models.get(owner)
    table = None if form is None else catalogue.tables[form.table]
    if form is None or label not in catalogue.states:
        raise InvalidQuery(f"disable: the store has no index and no aggregate {label}")
    own = [f"{owner}.{name}" for name in form.indexes]
    labels = [label] if index else [label, *own, *_indexes_over(catalogue, owner)]
    rows = writer.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
    created = {str(name): str(sql) for name, sql in rows}
    taken = {name.lower() for name in created} | catalogue.past
    old: list[str] = []

    def anew(name: str) -> str:
        fresh = fresh_name(name, taken)
        writer.execute(created[name].replace(quoted(name), quoted(fresh), 1))
        taken.add(fresh.lower())
        old.append(name)
        return fresh

    index_tables, tables = dict(catalogue.index_tables), dict(catalogue.tables)
    for one in [*labels[bool(not index) :], *([] if index else [values_label(owner)])]:
        if index_tables.get(one) in created:
            index_tables[one] = anew(index_tables[one])
    if not index and table is not None and len(table.types) > 1:
        _delete_all(writer, table, owner)
    elif not index and table is not None:
        after = tables[form.table] = attrs.evolve(table, name=anew(table.name))
        if table.spills:
            writer.execute(after.create_big)
            old.append(table.big_name)
    writer.executemany(_FORGET, [(one,) for one in labels])
    states = {
        one: msgspec.structs.replace(state, state="disabled", since=writer.timestamp) if one in labels else state
        for one, state in catalogue.states.items()
    }
    definition = msgspec.to_builtins(form.indexes[index] if index else form)
    return attrs.evolve(
        _without(writer, catalogue, set(labels)),
        index_tables=index_tables, tables=tables, states=states, past=catalogue.past | {name.lower() for name in old},
        tombstones=(*catalogue.tombstones, TombstoneForm(label, definition, writer.timestamp, tables=old)),
    )  # fmt: skip


def _indexes_over(catalogue: Catalogue, name: str) -> list[str]:
    """Return the labels of the indexes over a maintained field that an aggregate keeps; none if it keeps none."""
    kept = None if is_former(name) else kept_field(name)
    if kept is None or kept[0] not in catalogue.models:
        return []
    return [f"{kept[0]}.{index}" for index, one in catalogue.models[kept[0]].indexes.items() if reads(one, kept[1])]


def _without(writer: Writer, catalogue: Catalogue, gone: set[str]) -> Catalogue:
    """Build some labels no more; return the catalogue without that."""
    jobs = []
    for job in catalogue.jobs:
        targets = job.targets - gone
        if targets and job.owner not in gone:
            jobs.append(attrs.evolve(job, targets=targets))
            writer.execute(_TARGETS, (msgspec.json.encode(sorted(targets)).decode(), job.name))
        else:
            writer.execute(_END, (job.name,))
    return attrs.evolve(catalogue, jobs=tuple(jobs))


def finished(writer: Writer, catalogue: Catalogue, labels: Iterable[str]) -> Catalogue:
    """Return a catalogue once some labels are built.

    A unique index goes when the same one without that promise is ready, which answers for it from then on.
    """
    done = frozenset(labels)
    jobs = tuple([job for job in catalogue.jobs if not job.targets <= done])
    catalogue = attrs.evolve(catalogue, states=states_after(writer, catalogue.states, done), jobs=jobs)
    for label in sorted(done):
        owner, _, index = label.partition(".")
        indexes = catalogue.models[owner].indexes
        for other, form in indexes.items() if index else ():
            if plain_name(other) == plain_name(index) and takes_place_of(indexes[index], form):
                catalogue = drop(writer, catalogue, f"{owner}.{other}", instead=label)
    return catalogue


def clear_batch(writer: Writer, catalogue: Catalogue, most: int) -> Built | None:
    """Delete the next rows of what was dropped, at most ``most``; a table that is empty goes. None if there is none."""
    stone = next((one for one in catalogue.tombstones if one.tables), None)
    if stone is None:
        return None
    name = stone.tables[0]
    key = ", ".join(map(quoted, _key(writer, name)))
    before = writer.total_changes()
    writer.execute(f"DELETE FROM {quoted(name)} WHERE ({key}) IN (SELECT {key} FROM {quoted(name)} LIMIT ?)", (most,))
    rows = writer.total_changes() - before
    ended: tuple[str, ...] = ()
    if rows < most:
        writer.execute(f"DROP TABLE {quoted(name)}")
        left = msgspec.structs.replace(stone, tables=stone.tables[1:])
        stones = tuple([left if one is stone else one for one in catalogue.tombstones])
        write_catalogue(writer, attrs.evolve(catalogue, tombstones=stones))
        writer.bump_generation()
        ended = () if left.tables else (stone.label,)
    return Built(stone.label, rows, rows, 0, ended, clearing=True)


def _key(writer: Writer, table: str) -> Iterator[str]:
    """Yield the columns of a table's primary key."""
    columns = writer.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
    for _, name in sorted((column[5], str(column[1])) for column in columns if column[5]):
        yield name


def tidy(writer: Writer) -> None:
    """Drop the tables of what was dropped, and give all others their public names, while nobody else has the file open."""

    def read(sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return writer.execute(sql, args).fetchall()

    catalogue = read_catalogue(read)
    if not catalogue.models or catalogue.first_format or catalogue.staged is not None:
        return
    for name in [name for stone in catalogue.tombstones for name in stone.tables]:
        writer.execute(f"DROP TABLE {quoted(name)}")
    stones = tuple([msgspec.structs.replace(stone, tables=[]) for stone in catalogue.tombstones])
    taken = {str(name).lower() for (name,) in read("SELECT name FROM sqlite_schema")}

    def public(held: str, name: str) -> str:
        """Give a table the public name, if no other has it; return the name that it has."""
        if is_former(name) or held == name or name.lower() in taken - {held.lower()}:
            return held
        writer.execute(f"ALTER TABLE {quoted(held)} RENAME TO {quoted(name)}")
        taken.discard(held.lower())
        taken.add(name.lower())
        return name

    def table_of(name: str, table: EntityTable) -> EntityTable:
        after = attrs.evolve(table, name=public(table.name, name))
        if table.spills and after.name != table.name:
            public(table.big_name, after.big_name)
        return after

    forms = {f"{name}.{i}": one.table for name, form in catalogue.models.items() for i, one in form.indexes.items()}
    forms |= {values_label(name): f"{form.table}_{name}_values" for name, form in catalogue.models.items()}
    former = [label for label in catalogue.index_tables if is_former(label)]
    index_tables = {
        label: held if label in former else public(held, forms[label]) if held.lower() in taken else held
        for label, held in catalogue.index_tables.items()
    }
    after = attrs.evolve(
        catalogue,
        tables={name: table_of(name, table) for name, table in catalogue.tables.items()},
        index_tables=index_tables,
        tombstones=stones,
        past=frozenset(),
    )
    if after != catalogue:
        write_catalogue(writer, after)
        writer.bump_generation()
