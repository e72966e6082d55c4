"""The batches of a job: each adds the next entities to what is being built, in one transaction."""

from __future__ import annotations

import attrs

from ...schema.maintenance import ChangeSet
from .file.writer import Writer
from .jobs import BUILDS, CURSOR
from .maintained import write_changes
from .statements import Job, SqliteSchema

__all__ = ["Batch", "build_batch"]

_MOVE = f"UPDATE {BUILDS} SET pk = ?, rk = ?, done = done + ? WHERE name = ?"
_END = f"DELETE FROM {BUILDS} WHERE name = ?"


@attrs.frozen
class Batch:
    """What a transaction of a job did: how many entities it added, and whether they were the last ones."""

    entities: int
    last: bool


def build_batch(sqlite: SqliteSchema, writer: Writer, job: Job, most: int) -> Batch:
    """Build the next entities behind a job's cursor, at most ``most``; the job ends with the last ones."""
    statements = sqlite.statements[job.model]
    pk, rk = writer.get(CURSOR, (job.name,)) or (None, None)
    after = () if pk is None else (pk, rk)
    sql = statements.scan_after if after else statements.scan
    rows = writer.execute(f"{sql} LIMIT ?", (*after, most)).fetchall()
    changes = ChangeSet()
    changes.added(job.targets, rows)
    write_changes(sqlite, writer, changes)
    if len(rows) < most:
        writer.execute(_END, (job.name,))
        return Batch(len(rows), last=True)
    writer.execute(_MOVE, (*rows[-1][:2], len(rows), job.name))
    return Batch(len(rows), last=False)
