"""The names that users import."""

from __future__ import annotations

import builtins
import inspect
import re
import subprocess
import sys
from types import ModuleType

import pytest

import tablemapper as tm


def _python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


PUBLIC = [name for name in dir(tm) if not name.startswith("_")]


def test_the_public_names_are_sorted_and_complete() -> None:
    assert tm.__all__ == sorted(tm.__all__)
    public = {k for k, v in vars(tm).items() if not k.startswith("_") and not isinstance(v, ModuleType)}
    assert public - {"annotations"} == set(PUBLIC)


def test_a_star_import_replaces_nothing_of_python() -> None:
    scope: dict[str, object] = {}
    exec("from tablemapper import *", scope)
    assert scope["Entity"] is tm.Entity
    assert [name for name in dir(builtins) if not name.startswith("_") and name in scope] == []
    assert set(PUBLIC) - scope.keys() == set(PUBLIC) & set(dir(builtins)) == {"max", "min", "open", "sum"}


def test_the_version_is_that_of_the_package() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", tm.__version__)
    assert "__version__" in dir(tm)


def test_an_error_of_python_names_what_the_user_called() -> None:
    with pytest.raises(TypeError, match=r"^open\(\) missing 1 required keyword-only argument: 'models'"):
        tm.open("shop.db")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "Int32"])
def test_a_public_object_is_shown_as_users_import_it(name: str) -> None:
    assert getattr(tm, name).__module__ == "tablemapper"


def test_a_public_object_has_a_docstring() -> None:
    assert [name for name in PUBLIC if not getattr(tm, name).__doc__] == []


@pytest.mark.parametrize("cls", [tm.Store, tm.Transaction, tm.AsyncStore, tm.AsyncTransaction])
def test_a_verb_says_what_it_raises(cls: type) -> None:
    verbs = {name: verb.__doc__ for name, verb in inspect.getmembers(cls, inspect.isfunction) if name[0] != "_"}
    verbs.pop("close", None)
    assert [
        name for name, text in verbs.items() if "Raises:" not in text and not re.search("as `(Store|Trans)", text)
    ] == []


def test_importing_loads_nothing_that_is_not_needed_yet() -> None:
    heavy = ["cattrs", "asyncio", "sqlite3", "unittest", "http", "email", "multiprocessing"]
    loaded = _python(f"import sys, tablemapper; print([m for m in {heavy!r} if m in sys.modules])")
    assert loaded.strip() == "[]"
