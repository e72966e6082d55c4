"""The migration scripts of an application, as users hold them: in their order, and compared with the classes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType

from ..errors import InvalidMigration, shown
from .chain import load_functions, load_package
from .script import MigrationFunction, Script

__all__ = ["Migrations"]


class Migrations:
    """The migration scripts of an application.

    Args:
        scripts: the name of a package, each module of which is a script, or a list of decorated functions, which are
            then called as their functions.

    Raises:
        InvalidMigration: everything that is wrong with a script, or with their order.
    """

    def __init__(self, scripts: str | ModuleType | Sequence[MigrationFunction]) -> None:
        self._package: ModuleType | None = None
        if isinstance(scripts, list | tuple):
            self.scripts: tuple[Script, ...] = load_functions(scripts)
            """The scripts, in order of ``after``."""
            return
        self._package = _imported(scripts)
        self.scripts = load_package(self._package)

    @property
    def ids(self) -> tuple[str, ...]:
        """The names of the scripts, in order of ``after``."""
        return tuple([script.id for script in self.scripts])

    def __repr__(self) -> str:
        return f"<Migrations {', '.join(self.ids) or 'none'}>"


def _imported(package: object) -> ModuleType:
    """Return a package by its name."""
    if isinstance(package, str):
        try:
            package = importlib.import_module(package)
        except ImportError as error:
            raise InvalidMigration(f"migrations {package!r}", [f"the package cannot be imported: {error}"]) from error
    if not isinstance(package, ModuleType):
        raise InvalidMigration(
            "migrations", [f"the name of a package, or a list of functions, is needed, not {shown(package)}"]
        )
    if not hasattr(package, "__path__"):
        raise InvalidMigration(f"migrations {package.__name__!r}", ["it is a module, and a package is needed"])
    return package
