"""Values that are larger than a property: the properties that an entity of an account holds their pieces in.

``body`` is followed by ``_tm_body_1`` to ``_tm_body_15``. A piece that is not full is the last one, so nothing says how many
there are: what another program writes into ``body`` alone is read right. A pair of surrogates is never cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from .limits import MAX_ENTITY, MAX_VALUE, Edm, binary_size, property_size, string_size, utf16_units

MAX_PIECES = MAX_ENTITY // MAX_VALUE
_NAME = re.compile("_tm_(.+)_[1-9][0-9]?").fullmatch
_UNITS = MAX_VALUE // 2
SHORT = _UNITS // 2 - 1
"""Characters, or bytes, that are less than a piece, whatever they are."""


def piece_name(property: str, number: int) -> str:
    """Return the name of the property that holds a piece of the value of another one, whose own is the number 0."""
    return f"_tm_{property}_{number}" if number else property


def property_of(name: str) -> str:
    """Return the property that a piece of this name belongs to; a name that no piece has is returned as it is."""
    match = _NAME(name)
    return name if match is None else match[1]


def pieces_of(value: Any) -> Iterator[Any]:
    """Yield the pieces of a text or of bytes; any other value is one."""
    if value.__class__ is bytes:
        yield from (value[at : at + MAX_VALUE] for at in range(0, len(value) or 1, MAX_VALUE))
    elif value.__class__ is not str or len(value) <= SHORT:
        yield value
    elif value.isascii():
        yield from (value[at : at + _UNITS] for at in range(0, len(value), _UNITS))
    else:
        data, at = value.encode("utf-16-le", "surrogatepass"), 0
        while at < len(data):
            end = at + MAX_VALUE
            end -= 2 if end < len(data) and 0xD8 <= data[end - 1] < 0xDC else 0  # (the first half of a pair)
            yield data[at:end].decode("utf-16-le", "surrogatepass")
            at = end


def is_full(piece: Any) -> bool:
    """Return whether another piece may follow a piece."""
    if piece.__class__ is bytes:
        return len(piece) >= MAX_VALUE
    return piece.__class__ is str and len(piece) > SHORT and utf16_units(piece) >= _UNITS - 1


def until_last(pieces: Iterable[Any]) -> Iterator[Any]:
    """Yield the pieces of a value; what follows one that is not full is of an older value."""
    for piece in pieces:
        yield piece
        if not is_full(piece):
            return


def join_pieces(pieces: Iterable[Any]) -> Any:
    """Return the value that pieces are of."""
    parts = list(until_last(pieces))
    return parts[0] if len(parts) == 1 else parts[0][:0].join(parts)


def in_pieces(property: str, edm: Edm, value: Any) -> Iterator[tuple[str, Edm, Any]]:
    """Yield a property as an entity of an account has it: name, EDM type, value."""
    for number, piece in enumerate(pieces_of(value)):
        yield piece_name(property, number), edm, piece


def size_in_pieces(property: str, value: Any) -> int:
    """Return the bytes of a String or a Binary property, in as many pieces as it has."""
    size = 0
    for name, edm, piece in in_pieces(property, "String", value):
        size += property_size(name, edm) + (string_size(piece) if isinstance(piece, str) else binary_size(piece))
    return size
