"""Python functions that SQL can call: for what SQLite cannot compute, such as the order of Decimals."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import apsw

NAME = "tablemapper_value"
_functions: WeakValueDictionary[int, SqlFunction] = WeakValueDictionary()
_numbers = count(1)


class SqlFunction:
    """A function that SQL can call on every connection, as long as this object lives."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.number: int = next(_numbers)
        _functions[self.number] = self

    def sql(self, *arguments: str) -> str:
        """Return the call as SQL."""
        return f"{NAME}({', '.join([str(self.number), *arguments])})"


def install(connection: apsw.Connection) -> None:
    """Make the functions known to a connection."""
    connection.create_scalar_function(NAME, _call, deterministic=True)


@cache
def json_keeps_reals() -> bool:
    """Return whether this SQLite writes floats in JSON with all of their digits; some versions write 15."""
    rnd = random.Random(17)
    reals = [*struct.unpack("<500d", rnd.randbytes(4_000)), *(rnd.random() for _ in range(500)), 0.1 + 0.2, 5e-324]
    connection = apsw.Connection(":memory:")
    try:
        texts = connection.executemany("SELECT json_array(?)", [(real,) for real in reals if math.isfinite(real)])
        return all(float(text[1:-1]) == real for (text,), real in zip(texts, filter(math.isfinite, reals), strict=True))
    finally:
        connection.close()


def _call(*arguments: Any) -> Any:
    return _functions[arguments[0]].function(*arguments[1:])
