"""Python functions that SQL can call: for what SQLite can not compute, such as the order of Decimals."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import apsw

__all__ = ["NAME", "Call", "install"]

NAME = "tablemapper_value"
_calls: WeakValueDictionary[int, Call] = WeakValueDictionary()
_numbers = count(1)


class Call:
    """A function as SQL; usable as long as this lives, on every connection that it was installed on."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.number = next(_numbers)
        _calls[self.number] = self

    def sql(self, *arguments: str) -> str:
        """Return the call as SQL."""
        return f"{NAME}({', '.join([str(self.number), *arguments])})"


def install(connection: apsw.Connection) -> None:
    """Make the functions known to a connection."""
    connection.create_scalar_function(NAME, _call, deterministic=True)


def _call(*arguments: Any) -> Any:
    return _calls[arguments[0]].function(*arguments[1:])
