"""Rows of entities that move: what becomes of them, and whether that is stored already."""

from __future__ import annotations

from ..entities.entity import Record, key_of, set_row, stored_row
from ..schema.model import Model
from ..schema.rows import Row


def moved_row(model: Model, entity: Record, row: Row) -> Row:
    """Return the row of an entity under another key of its class; a value of its old row may be as long as it is.

    Raises:
        EntityTooLarge, InvalidEntity: it cannot be stored.
    """
    own_row = stored_row(entity)
    set_row(entity, (*key_of(entity)[1:], *row[2:]))
    try:
        return model.to_written_row(entity)
    finally:
        set_row(entity, own_row)


def is_written(model: Model, entity: Record, row: Row) -> bool:
    """Return whether a row holds an entity, but for what each write sets, and what is maintained."""
    return all(field.read_only for field in model.changed(entity, row))
