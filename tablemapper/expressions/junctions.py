"""How many predicates are joined one by one: in as many steps, whatever is joined already.

Few parts are copied with each that is joined to them. Of many it is noted only what was joined, and the parts are found
when they are asked for.
"""

from __future__ import annotations

from typing import Any

__all__ = ["joined", "taken_apart"]

_MANY = 50


def joined(kind: Any, left: Any, right: Any) -> Any:
    """Return a predicate of a kind that has two others for parts, or their parts where they are of that kind."""
    parts: tuple[Any, ...] = ()
    depth, many = 0, False
    for one in (left, right):
        if not isinstance(one, kind):
            depth = max(depth, one.depth + 1)
            parts += (one,)
            continue
        depth = max(depth, one.depth)
        if one.joined or len(one.parts) > _MANY:
            many = True
        else:
            parts += one.parts
    predicate = kind(parts=parts, depth=depth)
    if many:
        object.__setattr__(predicate, "joined", (left, right))
        object.__delattr__(predicate, "parts")
    return predicate


def taken_apart(kind: Any, both: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the parts of what was joined."""
    parts: list[Any] = []
    rest = [*reversed(both)]
    while rest:
        one = rest.pop()
        if isinstance(one, kind):
            rest += reversed(one.joined or one.parts)
        else:
            parts.append(one)
    return tuple(parts)
