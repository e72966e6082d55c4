"""Values in pieces: what is cut comes back, no pair of surrogates is cut, and sizes count each piece."""

from __future__ import annotations

from typing import Any

import pytest

from tablemapper.limits import MAX_ENTITY, MAX_VALUE, binary_size, property_size, string_size, utf16_units
from tablemapper.pieces import MAX_PIECES, SHORT, in_pieces, is_full, join_pieces, piece_name, pieces_of, size_in_pieces

UNITS = MAX_VALUE // 2
TEXTS = {
    f"{name} {count}": (unit * count)[:count]
    for name, unit in {"ascii": "x", "two bytes": "é", "pairs": "😀", "mixed": "x😀", "shifted": "é😀😀"}.items()
    for count in (0, 1, SHORT, SHORT + 1, SHORT + 2, UNITS // 2, UNITS // 2 + 1, UNITS - 1, UNITS, UNITS + 1, 2 * UNITS - 1, 2 * UNITS, 2 * UNITS + 1)
}  # fmt: skip
VALUES: dict[str, Any] = TEXTS | {
    f"bytes {count}": bytes(count) for count in (0, 1, MAX_VALUE - 1, MAX_VALUE, MAX_VALUE + 1, 2 * MAX_VALUE)
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_pieces_make_the_value_and_all_but_the_last_are_full(value: Any) -> None:
    pieces = list(pieces_of(value))
    assert join_pieces(pieces) == value
    assert pieces[0][:0].join(pieces) == value
    assert all(map(is_full, pieces[:-1]))
    for piece in pieces:
        assert (len(piece) if isinstance(piece, bytes) else 2 * utf16_units(piece)) <= MAX_VALUE
        if isinstance(piece, str):
            piece.encode()  # (half a pair has no UTF-8)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_the_size_of_a_value_is_that_of_its_properties(value: Any) -> None:
    edm: Any = "Binary" if isinstance(value, bytes) else "String"
    size = sum(
        property_size(name, edm) + (binary_size(piece) if isinstance(piece, bytes) else string_size(piece))
        for name, _, piece in in_pieces("body", edm, value)
    )
    assert size_in_pieces("body", value) == size


def test_what_follows_a_piece_that_is_not_full_is_of_an_older_value() -> None:
    assert join_pieces(["new", "x" * UNITS, "old"]) == "new"
    assert join_pieces(["x" * UNITS, "", "old"]) == "x" * UNITS
    assert join_pieces([bytes(MAX_VALUE), b"new", bytes(MAX_VALUE)]) == bytes(MAX_VALUE) + b"new"


def test_other_values_are_one_piece() -> None:
    assert [list(pieces_of(value)) for value in (5, None, 1.5)] == [[5], [None], [1.5]]
    assert not any(map(is_full, (5, None, True)))


def test_an_entity_has_no_more_pieces_than_names() -> None:
    assert len(list(pieces_of(bytes(MAX_ENTITY)))) == MAX_PIECES == 16
    assert [piece_name("body", number) for number in (0, 1, 15)] == ["body", "_tm_body_1", "_tm_body_15"]
