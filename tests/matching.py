"""Conditions as functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tablemapper.codegen import Names, compile_functions
from tablemapper.expressions.python_source import python_source
from tablemapper.expressions.tree import Predicate


def matcher(predicate: Predicate[Any]) -> Callable[[Any], bool]:
    """Return a function from an entity to whether a predicate holds for it."""
    names = Names()
    source = python_source(predicate, lambda name: f"e.{name}", names)
    return compile_functions("predicate", f"def holds(e):\n    return {source}\n", names)["holds"]
