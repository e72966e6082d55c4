"""Several types in one table: whether their keys can be equal."""

from __future__ import annotations

from typing import Literal

from .template import Parts, Template

_Pair = tuple[Template, Template]


def disjoint(a: _Pair, b: _Pair) -> Literal["disjoint", "carve a", "carve b", "overlap"]:
    """Return how the keys of two types of one table differ.

    Each pair is the templates of partition key and row key. "disjoint": no key can be of both. "carve a": the keys of
    ``a`` are those that match its row's literals (`Template.matches_prefix`), and ``b`` has to refuse them; "carve b":
    the reverse. "overlap": they can be equal.
    """
    if any(_are_disjoint(left, right) for left, right in zip(a, b, strict=True)):
        return "disjoint"
    row, other_row = a[1], b[1]
    if row.constant != other_row.constant:
        return "carve a" if row.constant else "carve b"
    if row.constant or any(slot.spec == "raw" for slot in row.slots + other_row.slots):
        return "overlap"
    mine, theirs = len(row.literal_prefix), len(other_row.literal_prefix)
    return "carve a" if mine > theirs else "carve b" if mine < theirs else "overlap"


def _are_disjoint(a: Template, b: Template) -> bool:
    """Return whether no text can be of both templates."""
    if any(slot.spec == "raw" or slot.open_ended for slot in a.slots + b.slots):  # it may hold a separator
        return _differ(a.parts, b.parts)
    if len(a.components) != len(b.components):
        return True
    return any(map(_differ, a.components, b.components))


_Places = tuple[list[frozenset[str]], frozenset[str] | None]


def _differ(a: Parts, b: Parts) -> bool:
    """Return whether some place cannot hold the same character in both."""
    (head, tail), (other_head, other_tail) = _places(a), _places(b)
    for place in range(max(len(head), len(other_head))):
        mine = head[place] if place < len(head) else tail
        theirs = other_head[place] if place < len(other_head) else other_tail
        if mine is not None and theirs is not None and not mine & theirs:
            return True
    return False


def _places(parts: Parts) -> _Places:
    """Return which characters may stand in each of the first places, and in all after those (None: any)."""
    head: list[frozenset[str]] = []
    repeated: list[frozenset[str] | None] = []
    for part in parts:
        shape = [frozenset(char) for char in part] if isinstance(part, str) else list(part.text.shape)
        tail = frozenset[str]() if isinstance(part, str) else part.text.tail
        if repeated:
            repeated += [*shape, tail]
        else:
            head += shape
            repeated = [tail] if tail is None or tail else []
    return head, None if None in repeated else frozenset[str]().union(
        *(characters for characters in repeated if characters is not None)
    )
