"""Python functions that SQL can call: for what SQLite cannot compute, such as the order of Decimals."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import apsw

__all__ = ["NAME", "SqlFunction", "install"]

NAME = "tablemapper_value"
_functions: WeakValueDictionary[int, SqlFunction] = WeakValueDictionary()
_numbers = count(1)


class SqlFunction:
    """A function that SQL can call on every connection, as long as this object lives."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.number = next(_numbers)
        _functions[self.number] = self

    def sql(self, *arguments: str) -> str:
        """Return the call as SQL."""
        return f"{NAME}({', '.join([str(self.number), *arguments])})"


def install(connection: apsw.Connection) -> None:
    """Make the functions known to a connection."""
    connection.create_scalar_function(NAME, _call, deterministic=True)


def _call(*arguments: Any) -> Any:
    return _functions[arguments[0]].function(*arguments[1:])
