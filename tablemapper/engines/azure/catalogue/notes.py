"""What is noted in a store under names, beside its entities: rows of the catalogue."""

from __future__ import annotations

from ....keys.codec import key_codec
from ...protocol import Note, NoteChanged
from ..tables.drive import Work, read
from ..tables.service import ETAG, Change, Commit, Get, Refused, properties

__all__ = ["noted", "write_note"]

_PIECE = 30_000  # characters of a note in one property
_encode = key_codec(str).encode


def noted(table: str, name: str, timeout: float) -> Work[tuple[str | None, str | None]]:
    """Return what is noted under a name, and the ETag of that; None if nothing is."""
    found = yield from read(Get(table, "note", _encode(name)), timeout)
    if found is None:
        return None, None
    return "".join(
        [found[f"c{number}"] for number in range(sum(one.startswith("c") for one in properties(found)))]
    ), found[ETAG]


def write_note(table: str, note: Note, timeout: float) -> Work[None]:
    """Change what is noted under a name.

    Raises:
        NoteChanged: it is not what it was to be, or nobody knows.
    """
    held, etag = yield from noted(table, note.name, timeout)
    if held != note.old:
        raise NoteChanged
    row = _encode(note.name)
    if note.new is None and etag is None:
        return
    if note.new is None:
        change = Change("delete", row, {}, etag)
    else:
        members = {f"c{at // _PIECE}": note.new[at : at + _PIECE] for at in range(0, len(note.new), _PIECE)}
        change = Change("insert", row, members) if etag is None else Change("replace", row, members, etag)
    try:
        yield Commit(table, "note", (change,))
    except Refused:
        raise NoteChanged from None
