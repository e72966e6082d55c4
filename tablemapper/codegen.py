"""Source to functions: the only place that compiles.

Everything that is known once a class is made is written out as source once, so that no call pays for it again. The
sources stand in ``linecache``, as attrs does it, so that a traceback or a debugger shows the generated line.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count
from types import CodeType
from typing import Any
from weakref import finalize

_serial = count(1)


class _Source:
    """A compiled source, for the next that is equal, such as that of a class which is made again."""

    __slots__ = ("__weakref__", "code")

    def __init__(self, title: str, source: str) -> None:
        filename = f"<tablemapper {next(_serial)}: {title}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        self.code = compile(source, filename, "exec")
        # (Queries come and go, and their sources with them.)
        finalize(self, linecache.cache.pop, filename, None).atexit = False


_compiled = lru_cache(maxsize=256)(_Source)


def compile_functions(title: str, source: str, names: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """Compile generated source and return the functions it defines, by name.

    Args:
        title: what a traceback shows, for example ``Product.from_rows``.
        names: the globals that the source refers to; not changed.
    """
    compiled = _compiled(title, source)
    scope = {**names, "__source__": compiled}  # (which lives as long as one of its functions)
    exec(_copied(compiled.code), scope)
    return {name: value for name, value in scope.items() if callable(value) and name not in names}


def _copied(code: CodeType) -> CodeType:
    """Return code of its own for other globals: Python notes in it where these are."""
    constants = [_copied(constant) if isinstance(constant, CodeType) else constant for constant in code.co_consts]
    return code.replace(co_consts=tuple(constants))


class Names(dict[str, Any]):
    """The globals of a generated source: hands out a fresh name for each object that the source needs."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)
        self._numbers: Iterator[int] = count(1)
        self._names: dict[int, str] = {}

    def name(self, hint: str, value: Any) -> str:
        """Return the name under which the source can use ``value``; the same object gets the same name."""
        if (existing := self._names.get(id(value))) is not None and self.get(existing) is value:
            return existing
        word = "".join([c if c.isalnum() and c.isascii() else "_" for c in hint]) or "x"
        name = f"_{word}_{next(self._numbers)}"
        self[name] = value
        self._names[id(value)] = name
        return name
