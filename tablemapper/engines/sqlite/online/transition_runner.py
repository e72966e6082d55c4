"""A transition of the catalogue is carried out: its facts are read, and its actions are run, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Concatenate, Final, ParamSpec

import attrs
import msgspec

from ....catalogue import actions
from ....catalogue.catalogue import Catalogue, JobSpec
from ....catalogue.fences import rename_fence
from ....catalogue.tables import Table
from ..file.writer import Writer
from ..rows.duplicate_values import FORGET_INDEX, VIOLATIONS, violated
from ..rows.jobs import BUILDS, END, LEDGER, QUEUE
from ..rows.truncate import delete_class
from ..sql.catalogue_table import COPIES, CatalogueRead, as_corruption, read_catalogue, write_catalogue
from ..sql.ddl import column_sql, ddl, quoted, rows_of, type_filter, values_ddl
from ..sql.index_tables import index_ddl

P = ParamSpec("P")


class CatalogueUpdate:
    """The change of the catalogue by one transaction: transitions in order, which are published once, last.

    Attributes:
        original: the catalogue as the transaction finds it.
        catalogue: as it is after the transitions so far.
    """

    def __init__(self, writer: Writer) -> None:
        # (Not as the caller knows it: a version that opens a store and adds nothing is noted, and nobody follows that.)
        self.original: Final = read_catalogue(writer.read)
        self.catalogue: Catalogue = self.original
        self._writer = writer

    def take(
        self,
        transition: Callable[Concatenate[actions.ActionPlan, Catalogue, P], Catalogue],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Catalogue:
        """Compute a transition, and run its actions; return the catalogue after it, which is not written."""
        writer = self._writer

        def names() -> Iterable[str]:
            return [name for (name,) in writer.read("SELECT name FROM sqlite_schema")]

        draft = actions.ActionPlan(
            writer.timestamp, names, self.catalogue.past, partial(violated, writer), writer.generation
        )
        with as_corruption():
            updated = transition(draft, self.catalogue, *args, **kwargs)
        for action in draft.actions:
            _run(writer, action)
        self.catalogue = updated if draft.past == updated.past else attrs.evolve(updated, past=frozenset(draft.past))
        return self.catalogue

    def publish(self, *, extends: bool = True) -> bool:
        """Write the catalogue, after a fence for the versions that have ended; return whether it is another one.

        Args:
            extends: whether each process that has the file open has to follow.
        """
        if self.catalogue == self.original:
            return False
        write_catalogue(self._writer, self.take(rename_fence, self.original))
        if extends:
            self._writer.bump_generation()
        return True


def change(
    writer: Writer,
    transition: Callable[Concatenate[actions.ActionPlan, Catalogue, P], Catalogue],
    *args: P.args,
    **kwargs: P.kwargs,
) -> bool:
    """Take one transition, and publish what it makes of the catalogue; return whether that is another one."""
    update = CatalogueUpdate(writer)
    update.take(transition, *args, **kwargs)
    return update.publish()


def count(query: CatalogueRead, table: Table, name: str) -> int:
    """Return the number of entities of a class."""
    ((number,),) = query(f"SELECT count(*) FROM {rows_of(table, name)}")
    return int(number)


def _targets(job: JobSpec) -> str:
    return msgspec.json.encode(sorted(job.targets)).decode()


def _run(writer: Writer, action: actions.Action) -> None:
    do = writer.execute
    match action:
        case actions.RenameTable(old, new):
            do(f"ALTER TABLE {quoted(old)} RENAME TO {quoted(new)}")
        case actions.RenameColumn(table, old, new):
            do(f"ALTER TABLE {quoted(table)} RENAME COLUMN {quoted(old)} TO {quoted(new)}")
        case actions.CreateEntityTable(entities):
            for sql in ddl(entities).values():
                do(sql)
        case actions.CreateOverflowTable(entities):
            do(ddl(entities)[entities.big_name])
        case actions.CreateIndex(name, columns, unique):
            do(index_ddl(name, columns, unique=unique))
        case actions.CreateValueCounts(name):
            do(values_ddl(name))
        case actions.CreateLike(name, template):
            ((sql,),) = writer.read("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (template,))
            do(sql.replace(quoted(template), quoted(name), 1))
        case actions.AddColumn(table, column):
            do(f"ALTER TABLE {quoted(table)} ADD COLUMN {column_sql(column)}")
        case actions.CopyRows(source, target):
            do(f"INSERT INTO {quoted(target)} SELECT * FROM {quoted(source)}")
        case actions.DropTable(name):
            do(f"DROP TABLE {quoted(name)}")
        case actions.DeleteClass(entities, name):
            delete_class(writer, entities, name)
        case actions.SetColumn(entities, name, column, value):
            condition = type_filter(entities, name) or "TRUE"
            do(f"UPDATE {quoted(entities.name)} AS t SET {quoted(column)} = ? WHERE {condition}", (value,))
        case actions.ForgetIndex(label):
            do(FORGET_INDEX, (label,))
        case actions.Relabel(old, new):
            do(f'UPDATE {VIOLATIONS} SET "index" = ? WHERE "index" = ?', (new, old))
        case actions.EndJob(name):
            do(END, (name,))
        case actions.StartJob(job, entities):
            total = count(writer.read, entities, job.owner)
            start = f"INSERT INTO {BUILDS} VALUES(?, ?, ?, NULL, NULL, 0, ?, ?)"
            do(start, (job.name, job.owner, _targets(job), total, writer.timestamp))
        case actions.ChangeJob(job):
            do(f"UPDATE {BUILDS} SET class = ?, targets = ? WHERE name = ?", (job.owner, _targets(job), job.name))
        case actions.StartCopy(copy, tables):
            total = sum(count(writer.read, *source) for source in zip(tables, copy.sources, strict=True))
            start = f"INSERT INTO {COPIES} VALUES(?, ?, NULL, NULL, 'copying', 0, ?)"
            do(start, (copy.id, ", ".join(copy.sources), total))
        case actions.EndCopies(notes):
            for table in (COPIES, QUEUE, LEDGER) if notes else (COPIES,):
                do(f"DELETE FROM {table}")
