"""The hook of Hypothesis, which calls it when it is imported, wherever tablemapper is installed.

It stands beside the package, so that `import hypothesis` imports nothing of tablemapper.
"""

from __future__ import annotations

import sys
from typing import Any


def resolve_entity_classes() -> None:
    """Let `from_type` draw entities of a class as `tablemapper.testing.entities` does, in fields of other classes too."""
    from hypothesis.strategies._internal import types

    # Hypothesis resolves the types of numpy and of others in the same way. Without this table it builds entities by
    # their constructor, and knows nothing of constraints. What is public takes one class at a time, and its subclasses no.
    resolvers: dict[str, Any] = getattr(types, "_global_extra_lookup", {})
    resolvers["tablemapper"] = _strategy_of


def _strategy_of(thing: object) -> Any:
    """Return the strategy for a class of entities; None for what is no class of tablemapper."""
    record: Any = getattr(sys.modules["tablemapper"], "Record", None)  # (None while it is being imported)
    if record is None or not isinstance(thing, type) or not issubclass(thing, record):
        return None
    from tablemapper.testing.strategies import entities

    return entities(thing)
