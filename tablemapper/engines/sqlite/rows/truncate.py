"""All entities of a class at once: whole tables are emptied, row by row nothing is read."""

from __future__ import annotations

from ....catalogue.tables import Table
from ....schema.model import Model
from ..file.writer import Writer
from ..sql.ddl import quoted, type_filter
from ..sql.schema import SqliteSchema
from .duplicate_values import FORGET_INDEX


def clear(sqlite: SqliteSchema, writer: Writer, model: Model) -> int | None:
    """Delete the entities of a class, and all that is maintained from them; return their number.

    Do nothing, and return None, where each entity has to be looked at:

    - A migration copies it, or keeps it in step with its counterpart.
    - An index or an aggregate of it is being built.
    - The group of an ``_ever`` measure outlives its entities.
    - An index is over a field that is maintained from them.
    """
    maintenance = sqlite.maintenance[model]
    duties = model in sqlite.copies or model in sqlite.jobs or model in sqlite.twins
    if duties or any(
        aggregate.aggregate.keeps_empty or aggregate.model.name in sqlite.owners for aggregate in maintenance.aggregates
    ):
        return None
    count = _delete_entities(sqlite, writer, model)
    groups = [aggregate.model for aggregate in maintenance.aggregates]
    for group in groups:
        _delete_entities(sqlite, writer, group)
        if group in sqlite.values:
            writer.execute(f"DELETE FROM {quoted(sqlite.values_table(group))}")
    for owner in (model, *groups):
        for index in sqlite.maintenance[owner].indexes:
            writer.execute(f"DELETE FROM {quoted(sqlite.indexes[index.model].name)}")
            writer.execute(FORGET_INDEX, (index.label,))
    return count


def _delete_entities(sqlite: SqliteSchema, writer: Writer, model: Model) -> int:
    return delete_class(writer, sqlite.table_of(model), sqlite.names[model])


def delete_class(writer: Writer, table: Table, name: str) -> int:
    """Delete the rows of a class, which may share its table with others; return their number."""
    of_type = type_filter(table, name)
    where = f" WHERE {of_type}" if of_type else ""
    if table.spills:
        big_ids = f'SELECT t."_big" FROM {quoted(table.name)} t{where}'
        writer.execute(f"DELETE FROM {quoted(table.big_name)}" + (f" WHERE id IN ({big_ids})" if of_type else ""))
    count_before = writer.total_changes()
    writer.execute(f"DELETE FROM {quoted(table.name)} AS t{where}")
    return writer.total_changes() - count_before
