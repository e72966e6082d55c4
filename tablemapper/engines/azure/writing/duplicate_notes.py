"""Values that are held twice in an index that is to be unique, found while it is built: noted in the catalogue.

The entity that came first has the value. The others are barred: they hold nothing, as long as they keep their values.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import attrs

from ....errors import UniqueViolation
from ...protocol import DuplicateValue, Operation
from ..catalogue.open_classes import OpenClasses
from ..cross_partition.marks import DUPLICATE, of_writes
from ..tables.driver import Effects, found, read
from ..tables.entity_json import ops_member
from ..tables.reserved_names import digest
from ..tables.service import (
    ETAG,
    ROW,
    Comparison,
    ErrorResponse,
    GroupTransaction,
    NoResponse,
    QueryEntities,
    RowChange,
)

_NOTES_PARTITION = "violation"


@attrs.frozen
class DuplicateNote:
    """An entity whose value another one has."""

    label: str
    entity: tuple[str, str]
    value: tuple[str, str]
    """The partition key and the row key of the index's row."""
    holder: tuple[str, str]
    """The entity that had it, when this one was looked at."""
    name: str
    etag: str


def by_value(notes: Iterable[DuplicateNote]) -> list[DuplicateValue]:
    """Return the values that are held twice, each with the entities that hold it."""
    holders: dict[tuple[str, tuple[str, str]], dict[tuple[str, str], None]] = {}
    for note in notes:
        holders.setdefault((note.label, note.value), {}).update(dict.fromkeys([note.holder, note.entity]))
    return [DuplicateValue(label, value, tuple(keys)) for (label, value), keys in holders.items()]


def violations(table: str, timeout: float) -> Effects[list[DuplicateNote]]:
    """Return all that are noted in a catalogue."""
    notes = yield from found(
        QueryEntities(table, Comparison("PartitionKey", "eq", "String", _NOTES_PARTITION)), timeout
    )
    return [
        DuplicateNote(
            row["label"],
            (row["p"], row["r"]),
            (row["vp"], row["vr"]),
            (row["hp"], row["hr"]),
            row[ROW],
            row[ETAG],
        )
        for row in notes
    ]


def bar(
    table: str, classes: OpenClasses, operation: Operation, error: UniqueViolation, timeout: float
) -> Effects[None]:
    """Note that an entity cannot have a value, and bar it, if it is as it was read.

    Raises:
        StoreError: no answer came.
    """
    index = classes.index(operation.model, str(error.index))
    mark = classes.marks.of[index].name
    assert operation.old is not None
    assert error.holder is not None
    value = index.rows((operation.old,))[0][:2]
    note = {"label": index.label, "p": operation.partition, "r": operation.row, "vp": value[0], "vr": value[1]}
    note |= {"hp": error.holder[0], "hr": error.holder[1]}
    name = digest(chr(0).join((index.label, *operation.key)))
    yield from read(GroupTransaction(table, _NOTES_PARTITION, (RowChange("upsert", name, note),)), timeout)
    ops = {**of_writes(operation.old), mark: DUPLICATE}
    etag = operation.old[2].etag
    with suppress(NoResponse, ErrorResponse):  # (it is looked at again)
        yield GroupTransaction(
            operation.model.table, operation.partition, (RowChange("merge", operation.row, ops_member(ops), etag),)
        )


def forget(table: str, note: DuplicateNote) -> Effects[None]:
    """Note an entity no more."""
    with suppress(NoResponse, ErrorResponse):
        yield GroupTransaction(table, _NOTES_PARTITION, (RowChange("delete", note.name, {}, note.etag),))
