"""A transition of the catalogue is carried out: its facts are read, and its actions are run, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import msgspec

from ..catalogue.actions import (
    Action,
    AddColumn,
    ChangeJob,
    CopyRows,
    Create,
    CreateBig,
    CreateLike,
    DeleteClass,
    Draft,
    Drop,
    EndCopies,
    EndJob,
    Forget,
    Relabel,
    Rename,
    RenameColumn,
)
from ..file.writer import Writer
from ..rows.contested import FORGET_INDEX, VIOLATIONS, violated
from ..rows.jobs import BUILDS, END, LEDGER, QUEUE
from ..sql.catalogue import COPIES, Catalogue
from ..sql.tables import quoted

__all__ = ["carry_out"]


def carry_out(
    writer: Writer, catalogue: Catalogue, transition: Callable[[Draft], Catalogue], labels: Iterable[str] = ()
) -> Catalogue:
    """Compute a transition and run its actions; return the catalogue after it, which is not written.

    Args:
        writer: the transaction.
        catalogue: the catalogue as it is.
        transition: computes the catalogue after it.
        labels: of the indexes that the transition makes ready.
    """
    names = [name for (name,) in writer.read("SELECT name FROM sqlite_schema")]
    draft = Draft(
        writer.timestamp, names, catalogue.past, frozenset(label for label in labels if violated(writer, label))
    )
    after = transition(draft)
    for action in draft.actions:
        _run(writer, action)
    return after if draft.past == after.past else attrs.evolve(after, past=frozenset(draft.past))


def _run(writer: Writer, action: Action) -> None:
    do = writer.execute
    match action:
        case Rename(old, new):
            do(f"ALTER TABLE {quoted(old)} RENAME TO {quoted(new)}")
        case RenameColumn(table, old, new):
            do(f"ALTER TABLE {quoted(table)} RENAME COLUMN {quoted(old)} TO {quoted(new)}")
        case Create(entities):
            for sql in entities.ddl().values():
                do(sql)
        case CreateBig(entities):
            do(entities.create_big)
        case CreateLike(name, other):
            ((sql,),) = writer.read("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (other,))
            do(sql.replace(quoted(other), quoted(name), 1))
        case AddColumn(table, column):
            do(f"ALTER TABLE {quoted(table)} ADD COLUMN {column.sql}")
        case CopyRows(source, target):
            do(f"INSERT INTO {quoted(target)} SELECT * FROM {quoted(source)}")
        case Drop(name):
            do(f"DROP TABLE {quoted(name)}")
        case DeleteClass(entities, name):
            number = (entities.type_number(name),)
            if entities.spills:
                big_ids = f'SELECT "_big" FROM {quoted(entities.name)} WHERE "_type" IS ?'
                do(f"DELETE FROM {quoted(entities.big_name)} WHERE id IN ({big_ids})", number)
            do(f'DELETE FROM {quoted(entities.name)} WHERE "_type" IS ?', number)
        case Forget(label):
            do(FORGET_INDEX, (label,))
        case Relabel(old, new):
            do(f'UPDATE {VIOLATIONS} SET "index" = ? WHERE "index" = ?', (new, old))
        case EndJob(name):
            do(END, (name,))
        case ChangeJob(name, owner, targets):
            form = msgspec.json.encode(sorted(targets)).decode()
            do(f"UPDATE {BUILDS} SET class = ?, targets = ? WHERE name = ?", (owner, form, name))
        case EndCopies(notes):
            for table in (COPIES, QUEUE, LEDGER) if notes else (COPIES,):
                do(f"DELETE FROM {table}")
