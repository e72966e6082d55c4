"""Notes of writes by query that can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from ..engines.protocol import Engine, Note, NoteConflict
from ..errors import CorruptStore, InvalidQuery, PreconditionFailed, safe_repr
from ..execution.prepared import MOST_KEYS
from ..planning.query_spec import QuerySpec
from ..schema.rows import DAMAGE

T = TypeVar("T")
Key: TypeAlias = tuple[str, str]


class _UnderWay(msgspec.Struct, frozen=True):
    """The note in the store of a run that is under way."""

    identity: str
    what: str
    position: Key | None
    written: int


_decode_place = msgspec.json.Decoder(_UnderWay).decode
_decode_keys = msgspec.json.Decoder(list[Key]).decode


class Checkpoint:
    """The place of a run with a name, which the transaction of each batch notes in the store."""

    def __init__(self, engine: Engine, name: str, identity: str, what: str) -> None:
        self._engine = engine
        self._name = name
        self._keys_name = f"{name} keys"
        self._start = _UnderWay(identity, what, None, 0)
        self._current_note = engine.note(name)
        self._next = self._current_note
        place = self._start if self._current_note is None else _decoded(name, self._current_note, _decode_place)
        if place.identity != identity:
            raise InvalidQuery(
                f"{what}: {name} is in use by another query, {place.what}; make that call again to finish it, or "
                "give this one another name"
            )
        self.position: Key | None = place.position
        self.written: int = place.written
        self._has_keys = False

    def chosen(self, choose: Callable[[], list[Key]]) -> list[Key]:
        """Return the keys that were chosen when the run began: a limit would choose others after the first write."""
        self._has_keys = True
        if self._current_note is not None:
            return _decoded(self._keys_name, self._engine.note(self._keys_name), _decode_keys)
        keys = choose()
        self._next = _text(self._start)
        try:
            self._engine.apply([], notes=[Note(self._name, None, self._next), Note(self._keys_name, None, _text(keys))])
        except NoteConflict:
            raise self.conflict() from None
        self.arrived()
        return keys

    def advanced(self, position: Key, written: int) -> Sequence[Note]:
        """Return the note of a batch that ends at a position."""
        self._next = _text(msgspec.structs.replace(self._start, position=position, written=written))
        return [Note(self._name, self._current_note, self._next)]

    def arrived(self) -> None:
        """Go on from a batch that was written."""
        self._current_note = self._next

    def leave(self) -> None:
        """Delete the note: the run is over."""
        if self._current_note is None:
            return
        notes = [Note(self._name, self._current_note, None)]
        if self._has_keys:
            notes.append(Note(self._keys_name, self._engine.note(self._keys_name), None))
        try:
            self._engine.apply([], notes=notes)
        except NoteConflict:
            raise self.conflict() from None

    def conflict(self) -> PreconditionFailed:
        """Return the error of a second run beside this one."""
        return PreconditionFailed(
            f"{self._start.what}: another run writes under the same name, {self._name}; wait for it"
        )


def _decoded(name: str, text: Any, decode: Callable[[Any], T]) -> T:
    """Return the content of a note.

    Raises:
        CorruptStore: it cannot be read.
    """
    try:
        return decode(text)
    except DAMAGE as error:
        raise CorruptStore(f"the progress of the run {name} cannot be read: {error}; use another name") from error


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def check_name(resume: str, spec: QuerySpec) -> str:
    """Return the name of the note of a run.

    Raises:
        InvalidQuery: it is none, or the limit is too large.
    """
    argument: object = resume
    if not isinstance(argument, str) or not resume or len(resume) > 255 or not resume.isprintable():
        raise InvalidQuery(f"resume={safe_repr(resume)}: expected a name of up to 255 printable characters")
    if (spec.limit or 0) > MOST_KEYS:
        raise InvalidQuery(
            f"resume={resume!r}: the store notes the keys that a limit chooses, so it can be at most {MOST_KEYS:,}, not "
            f"{spec.limit:,}; leave out the limit, or the name"
        )
    return f"resume={resume!r}"
