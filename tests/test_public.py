"""The names that users import."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import tablemapper as tm


def _python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_public_names_are_sorted_and_complete() -> None:
    assert tm.__all__ == sorted(tm.__all__)
    public = {k for k, v in vars(tm).items() if not k.startswith("_") and not isinstance(v, ModuleType)}
    assert public - {"annotations"} == set(tm.__all__)


@pytest.mark.parametrize("name", [name for name in tm.__all__ if name != "Int32"])
def test_a_public_object_is_shown_as_users_import_it(name: str) -> None:
    assert getattr(tm, name).__module__ == "tablemapper"


def test_a_public_object_has_a_docstring() -> None:
    assert [name for name in tm.__all__ if not getattr(tm, name).__doc__] == []


def test_importing_loads_nothing_that_is_not_needed_yet() -> None:
    heavy = ["cattrs", "asyncio", "sqlite3", "unittest", "http", "email", "multiprocessing"]
    loaded = _python(f"import sys, tablemapper; print([m for m in {heavy!r} if m in sys.modules])")
    assert loaded.strip() == "[]"
