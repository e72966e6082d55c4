"""The plain calls that turn a value of another type into what a field expects, for messages."""

from __future__ import annotations

from .errors import safe_repr


def conversion(expected: str, value: object) -> str:
    """Return the call that makes what is expected of a value; nothing if no plain one does."""
    if type(value).__module__ == "numpy":
        return "use .tolist(), which gives Python's own"
    if isinstance(value, list | tuple | set | frozenset):
        kind = expected.partition("[")[0]
        return f"use {kind}(…)" if kind in ("list", "tuple", "set", "frozenset") else ""
    kind = expected.removesuffix("32")
    if kind not in ("int", "float") or not isinstance(value, str):
        return ""
    try:
        (int if kind == "int" else float)(value)
    except ValueError:
        return ""
    return f"use {kind}({safe_repr(value)})"
