"""Notes of a store under names, beside its entities: rows of the catalogue.

The note of a run that writes entities changes in the transaction of each batch. So it lies in the partition that is written, and
the catalogue says in which. Before the first batch of another partition the catalogue gets the note as it is, and the new place.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress

import attrs

from ....errors import OutcomeUnknown
from ....keys.codec import key_codec
from ....limits import MAX_KEY_UNITS, utf16_units
from ...protocol import Note, NoteConflict
from ..tables.driver import ATTEMPTS, Effects, delay, found, pause, proven, read, side_by_side
from ..tables.reserved_names import NOTES, digest
from ..tables.service import (
    ETAG,
    PARTITION,
    ROW,
    WAIT,
    Comparison,
    Entity,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    QueryEntities,
    RowChange,
)

_NOTES_PARTITION = "note"
_PIECE = 30_000  # characters of a note in one property
_encode = key_codec(str).encode


@attrs.frozen
class _Noted:
    """A note as it was read."""

    text: str | None = None
    """None: nothing is noted."""
    etag: str | None = None
    """Of the row of the catalogue; None: there is none."""
    place: tuple[str, str] | None = None
    """The table and the partition where the note changes with entities; None: in none."""
    id: str = ""
    """Of the run: a row of another one is left over."""
    place_etag: str | None = None
    """The ETag of the row in that place; None: there is none of this run."""


def noted(table: str, name: str, timeout: float) -> Effects[str | None]:
    """Return what is noted under a name; None if nothing is."""
    return (yield from _read(table, _row(name), timeout)).text


def write_notes(table: str, notes: Sequence[Note], timeout: float) -> Effects[None]:
    """Change what is noted under some names, in one transaction, and nothing with it.

    Raises:
        NoteConflict: it is not what it was to be.
        OutcomeUnknown: nobody knows whether it was changed.
    """
    names = ", ".join([note.name for note in notes])
    for attempt in range(ATTEMPTS):
        work = _write_once(table, notes, timeout, attempt)
        if (yield from proven(work, lambda why: _unknown(names, why)) if attempt else work):
            return
    raise _unknown(names, "no answer came")


def _unknown(names: str, why: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"{names}: {why}; what is noted of the run may have changed, or not: call it again later")


def _write_once(table: str, notes: Sequence[Note], timeout: float, attempt: int) -> Effects[bool]:
    """Change what is noted, once; return whether it is as it is to be."""
    stored_notes = yield from side_by_side([_read(table, _row(note.name), timeout) for note in notes])
    texts = [stored_note.text for stored_note in stored_notes]
    if attempt and texts == [note.new for note in notes]:  # (an answer was lost)
        return True
    if texts != [note.old for note in notes]:
        raise NoteConflict
    changes: list[RowChange] = []
    for note, stored_note in zip(notes, stored_notes, strict=True):
        row, etag = _row(note.name), stored_note.etag
        if note.new is not None:
            changes.append(_put(row, _members(note.new), etag))
        elif etag is not None:
            changes.append(RowChange("delete", row, {}, etag))
    if not (yield from _send_changes(table, changes, attempt)):
        return False
    for note, stored_note in zip(notes, stored_notes, strict=True):
        yield from _forgotten(stored_note, _row(note.name))
    return True


def change_of(table: str, note: Note, place: tuple[str, str], timeout: float) -> Effects[RowChange]:
    """Return the change of a note that is sent with entities of a place, its table and partition.

    Raises:
        NoteChanged: it is not what it was to be.
    """
    assert note.new is not None
    row, attempt = _row(note.name), 0
    while True:
        stored_note = yield from _read(table, row, timeout)
        if stored_note.text != note.old:
            raise NoteConflict
        id = stored_note.id or secrets.token_hex(8)
        if stored_note.place == place:
            break
        members = _placed(stored_note.text, place, id)
        if (yield from _send_changes(table, [_put(row, members, stored_note.etag)], attempt)):
            yield from _forgotten(stored_note, row)
        attempt += 1
    etag = stored_note.place_etag
    if etag is None:
        left_row = yield from read(GetEntity(*place, NOTES + row), timeout)
        etag = None if left_row is None else left_row[ETAG]
    return _put(NOTES + row, _members(note.new) | {"id": id}, etag)


def gathered(table: str, timeout: float) -> Effects[None]:
    """Let the catalogue have all notes as they are, while nobody writes: tables in which they change may be replaced."""
    for row in (
        yield from found(QueryEntities(table, Comparison(PARTITION, "eq", "String", _NOTES_PARTITION)), timeout)
    ):
        stored_note = yield from _read(table, row[ROW], timeout)
        if stored_note.place is not None:
            change = _put(row[ROW], _placed(stored_note.text, stored_note.place, stored_note.id), stored_note.etag)
            try:
                yield from read(GroupTransaction(table, _NOTES_PARTITION, (change,)), timeout)
            except ErrorResponse as refusal:
                if refusal.status not in (404, 412):  # (an answer was lost, or the run is over)
                    raise


def _put(row: str, members: Entity, etag: str | None) -> RowChange:
    """Return the change that writes a row: it is new, or replaces that of an ETag."""
    return RowChange("insert", row, members) if etag is None else RowChange("replace", row, members, etag)


def _read(table: str, row: str, timeout: float) -> Effects[_Noted]:
    catalogue_row: Entity | None = yield from read(GetEntity(table, _NOTES_PARTITION, row), timeout)
    if catalogue_row is None:
        return _Noted()
    if "p" not in catalogue_row:
        return _Noted(_text(catalogue_row), catalogue_row[ETAG])
    place, id = (catalogue_row["t"], catalogue_row["p"]), catalogue_row["id"]
    place_row: Entity | None = yield from read(GetEntity(*place, NOTES + row), timeout)
    if place_row is None or place_row.get("id") != id:
        return _Noted(_text(catalogue_row), catalogue_row[ETAG], place, id)
    return _Noted(_text(place_row), catalogue_row[ETAG], place, id, place_row[ETAG])


def _send_changes(table: str, changes: Sequence[RowChange], attempt: int) -> Effects[bool]:
    """Change notes of the catalogue; return whether that is certain, else they are to be read again."""
    try:
        if changes:
            yield GroupTransaction(table, _NOTES_PARTITION, tuple(changes))
    except NoResponse as no_response:
        if attempt == ATTEMPTS:
            raise
        yield pause(WAIT, attempt, no_response) or delay(0)
        return False
    except ErrorResponse as refusal:
        if refusal.status not in (404, 409, 412):
            raise
        raise NoteConflict from None
    return True


def _forgotten(stored_note: _Noted, row: str) -> Effects[None]:
    """Delete the row of a note in the place that it leaves; one that stays is of a run that is no more."""
    if stored_note.place is not None and stored_note.place_etag is not None:
        with suppress(Exception):
            yield GroupTransaction(*stored_note.place, (RowChange("delete", NOTES + row, {}, stored_note.place_etag),))


def _row(name: str) -> str:
    """Return the row key of a note in the catalogue; in the partition that is written, that follows `NOTES`."""
    row = _encode(name)
    return row if utf16_units(NOTES + row) <= MAX_KEY_UNITS else f' "h{digest(name)}'


def _placed(text: str | None, place: tuple[str, str], id: str) -> Entity:
    return _members(text) | {"t": place[0], "p": place[1], "id": id}


def _members(text: str | None) -> Entity:
    return {f"c{at // _PIECE}": text[at : at + _PIECE] for at in range(0, len(text or ""), _PIECE)} if text else {}


def _text(note_row: Entity) -> str | None:
    pieces: list[str] = []
    while (piece := note_row.get(f"c{len(pieces)}")) is not None:
        pieces.append(piece)
    return "".join(pieces) or None
