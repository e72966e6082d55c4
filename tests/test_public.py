"""The names that users import."""

from __future__ import annotations

import builtins
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import tablemapper as tm


def _python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


MODULES = {name: getattr(tm, name) for name in ("errors", "reports", "types")}
PUBLIC = [name for name in dir(tm) if not name.startswith("_") and name not in MODULES]
"""The names at the top."""
OBJECTS = {name: getattr(tm, name) for name in PUBLIC} | {
    f"{module.__name__.removeprefix('tablemapper.')}.{name}": getattr(module, name)
    for module in (tm.reports, tm.types)
    for name in module.__all__
}
"""All that users import but errors by their module, by the names after ``tm.``."""


def test_the_public_names_are_sorted_and_complete() -> None:
    assert tm.__all__ == sorted(tm.__all__)
    public = {k for k, v in vars(tm).items() if not k.startswith("_") and not isinstance(v, ModuleType)}
    assert public - {"annotations"} == set(PUBLIC)
    for module in (tm.reports, tm.types):
        assert module.__all__ == sorted(module.__all__)
        imported = {name for name, value in vars(module).items() if not name.startswith("_") and name != "annotations"}
        assert imported == set(module.__all__)


def test_the_names_at_the_top_stay_few() -> None:
    assert len(PUBLIC) + len(MODULES) <= 88
    assert MODULES.keys() <= set(dir(tm))


def test_a_result_that_users_read_is_pickled_by_its_public_name() -> None:
    problem = tm.reports.Problem("missing", "Part.by_maker", ("a",), "no row")
    assert pickle.loads(pickle.dumps(problem)) == problem
    assert b"tablemapper.reports" in pickle.dumps(problem, protocol=4)


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
    with pytest.raises(TypeError, match=r"^open\(\) missing 1 required positional argument: 'path'"):
        tm.open()  # type: ignore[call-arg]


@pytest.mark.parametrize("name", [name for name in OBJECTS if name != "Int32"])
def test_a_public_object_is_shown_as_users_import_it(name: str) -> None:
    assert OBJECTS[name].__module__ == f"tablemapper.{name}".rpartition(".")[0]


def test_a_public_object_has_a_docstring() -> None:
    assert [name for name, value in OBJECTS.items() if not value.__doc__] == []


def test_annotations_may_leave_out_the_class_of_an_expression_or_of_groups() -> None:
    assert tm.types.Expr[int] == tm.types.Expr[int, Any]
    assert tm.types.GroupedQuery[tuple[str, int]] == tm.types.GroupedQuery[tuple[str, int], Any]


# A class statement raises what is wrong with a field or measure in it, and `merge` and ``update`` what is with ``set``.
MEASURES = {"avg", "count", "group_by", "max", "max_ever", "min", "min_ever", "sum"}
RAISES_NOTHING = {
    "allow_scan", "allow_sort", "allow_eventual", "asc", "desc", "is_null", "is_not_null", "remove", "set", "to_dict",
    "to_json", "price", "of_storage",
}  # fmt: skip
WALKS = {"attributes", "shape", "with_constants"}


def _verbs() -> Iterator[tuple[str, str]]:
    """Yield each public function and method, and what it says of itself."""
    for path, public in OBJECTS.items():
        name = path.rpartition(".")[2]
        if inspect.isfunction(public):
            if name not in MEASURES | {"field", "converter"}:
                yield name, public.__doc__ or ""
        elif inspect.isclass(public) and not issubclass(public, BaseException):
            for verb, function in inspect.getmembers(public, inspect.isfunction):
                if not verb.startswith("_") and verb not in RAISES_NOTHING | WALKS:
                    yield f"{name}.{verb}", function.__doc__ or ""


def test_a_public_verb_says_what_it_raises_or_which_other_verb_does() -> None:
    verbs = dict(_verbs())

    def complete(text: str) -> bool:
        return "Raises:" in (text if (other := re.search(r"; as `([\w.]+)`", text)) is None else verbs[other[1]])

    assert [verb for verb, text in verbs.items() if not complete(text)] == []
    assert len(verbs) > 100


def test_completion_of_an_expression_offers_verbs_only() -> None:
    class Completed(tm.Entity, table="Completed"):
        code: tm.Field[str]
        price: tm.Field[int]

        key = tm.Key[str](partition="{code}")

    price = Completed.price
    verbs = {
        "add", "append", "asc", "at", "between", "contains", "date", "desc", "discard", "each", "extend", "floor",
        "is_in", "is_not_null", "is_null",
        "remove", "set", "startswith", "truncate",
    }  # fmt: skip
    for expression, offered in (
        (price, verbs),
        (price * 2, set()),
        (price > 2, set()),
        ((price > 2) | (price < 0), set()),
    ):
        assert {name for name in dir(expression) if not name.startswith("_")} == offered
        assert {"__eq__", "__class__"} <= set(dir(expression))


def test_importing_loads_nothing_that_is_not_needed_yet() -> None:
    heavy = ["cattrs", "asyncio", "sqlite3", "unittest", "http", "email", "multiprocessing"]
    loaded = _python(f"import sys, tablemapper; print([m for m in {heavy!r} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_declarations_load_nothing_that_opens_a_store() -> None:
    declared = """
import sys, tablemapper as tm
class Part(tm.Entity, table="Parts"):
    p: tm.Field[str]
    key = tm.Key[str](partition="{p}")
    by_p = tm.Index[str](partition="{p}")
class Number(tm.Aggregate, of=Part, table="Numbers"):
    p: tm.Field[str] = tm.group_by(Part.p)
    parts: tm.Field[int] = tm.count()
    key = tm.Key[str](partition="{p}")
tm.to_json(Part("a"))
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("tablemapper.")}
print(sorted(rooms & {"engines", "store", "query", "planning", "migrations", "scripts", "aio", "viewer", "guidance"}))
print("<table>" in Part("a")._repr_html_(), hasattr(tm, "gone"))
print(tm.open.__module__, tm.reports.Problem.__module__, tm.Query.__module__)
"""
    rooms, *others = _python(declared).splitlines()
    assert rooms == "[]"
    assert others == ["True False", "tablemapper tablemapper.reports tablemapper"]


def test_a_public_name_says_so_wherever_it_is_imported_from() -> None:
    assert (
        _python("from tablemapper.reports import Problem; print(Problem.__module__)").strip() == "tablemapper.reports"
    )
