"""What the type checkers accept and refuse, and what happens at run time where they cannot tell."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from .classes import entity
from .guidance.test_advisor import with_remedies
from .migrations.written import write_scripts
from .typing import accept
from .typing.accept import Product, Reading
from .whole.declarations import declaration

HERE = Path(__file__).parent / "typing"
ROOT = HERE.parent.parent
FILES = ("accept.py", "reject.py")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT, check=False)


def _wrong_lines() -> set[int]:
    lines = (HERE / "reject.py").read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if re.search(r"# type: ignore\[[a-z-, ]+\]$", line)}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A few scripts as `migrations make` writes them; the whole lot is checked with --long by its own test."""
    folder = tmp_path_factory.mktemp("scripts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "modules", {**sys.modules})
        patch.syspath_prepend(str(folder))
        for number in range(4):
            rng = random.Random(number)
            written = write_scripts(folder, f"d{number}", declaration(rng).models, rng)
            for path in (written.back, written.there):
                text = path.read_text(encoding="utf-8")
                (folder / f"{path.parent.name}.py").write_text(f"# pyright: standard\n{text}", encoding="utf-8")
    return sorted(folder.glob("*.py"))


def test_mypy_refuses_exactly_the_marked_lines_and_no_declaration_that_advice_has_pasted(
    tmp_path: Path, scripts: list[Path]
) -> None:
    # An unused ignore is an error in strict mode, so reject.py passes only if every line of it is refused.
    pytest.importorskip("mypy")
    pasted = {f"pasted_{at}.py": case for at, case in enumerate(with_remedies())}
    for name, (source, _) in pasted.items():
        (tmp_path / name).write_text(source, encoding="utf-8")
    files = [str(HERE / name) for name in FILES] + [str(tmp_path / name) for name in pasted]
    files += map(str, scripts)
    done = _run("mypy", "--strict", f"--cache-dir={ROOT / '.mypy_cache' / 'tests'}", *files)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line for line in errors if "pasted_" not in line] == [], done.stdout + done.stderr
    assert len(pasted) > 20
    for error in errors:  # (the lines that stood there before have no parameters, on purpose)
        path, number, *_ = error.split(":")
        source, declaration = pasted[Path(path).name]
        assert source.splitlines()[int(number) - 1].strip() not in declaration, error


def test_pyright_refuses_exactly_the_lines_that_mypy_refuses(tmp_path: Path, scripts: list[Path]) -> None:
    pytest.importorskip("pyright")
    files = [*(HERE / name for name in FILES), *scripts]
    for file in files:
        shutil.copy(file, tmp_path)
    settings = {"extraPaths": [str(ROOT)], "pythonVersion": "3.11", "typeCheckingMode": "basic"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings | {"enableTypeIgnoreComments": False}))
    report = json.loads(_run("pyright", "--pythonpath", sys.executable, "--outputjson", "-p", str(tmp_path)).stdout)
    assert report["summary"]["filesAnalyzed"] == len(files)
    refused: dict[str, dict[int, str]] = {file.name: {} for file in files}
    for one in report["generalDiagnostics"]:
        if one["severity"] == "error":
            refused[Path(one["file"]).name][one["range"]["start"]["line"] + 1] = one["message"]
    wrong = _wrong_lines()
    assert len(wrong) >= 25
    assert [name for name in refused if refused[name]] == ["reject.py"], refused
    assert dict.fromkeys(wrong - set(refused["reject.py"]), "not refused") == {}
    assert {n: message for n, message in refused["reject.py"].items() if n not in wrong} == {}


def test_right_programs_can_be_imported() -> None:
    assert isinstance(accept.Product("books", "b-1", "Dune", Decimal(1)), tm.Entity)


def _class(key: Any, *fields: str, **body: Any) -> Callable[[], Any]:
    """Declare a class of texts."""
    return lambda: entity("Made", "Made", dict.fromkeys(fields, str), key, **body)


INCLUDED = tm.Index[str](partition="{name}", include=("nmae",))
NOT_CATCHABLE: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    (
        "an element of another type: mypy widens the element to object, pyright refuses it",
        lambda: Product.tags.contains(3),  # type: ignore[arg-type, unused-ignore]
        tm.InvalidQuery,
        "expected str",
    ),
    ("a < x < b", lambda: Decimal(1) < Product.price < Decimal(2), TypeError, "between"),
    ("and, where & is meant", lambda: Product.price > Decimal(1) and Product.name == "x", TypeError, "& | ~"),
    ("not, where ~ is meant", lambda: not (Product.price > Decimal(1)), TypeError, "& | ~"),
    ("an int compared with a text: == takes any object", lambda: Product.price == "x", tm.InvalidQuery, "Decimal"),
    ("a text in a template", _class(tm.Key(partition="{b}"), "a"), tm.InvalidModel, "b"),
    (
        "parameters of a Key not of its fields",
        _class(tm.Key[int](partition="{a}"), "a"),
        tm.InvalidModel,
        "is int, but the field is str",
    ),
    (
        "a field that include= misspells",
        _class(tm.Key[str](partition="{name}"), "name", by_name=INCLUDED),
        tm.InvalidModel,
        'did you mean "name"',
    ),
    ("a naive datetime", lambda: Reading("s", accept.datetime(2020, 1, 1), 1.0, 1.0), tm.InvalidEntity, "time zone"),
    ("NaN", lambda: Reading.temperature == float("nan"), tm.InvalidQuery, "nan cannot be stored"),
    (
        "a name in merge(key, name=…) that is no field",
        lambda: _merge(nmae="x"),
        tm.InvalidEntity,
        'did you mean "name"',
    ),
    ("an order of what has none", lambda: accept.User.color > accept.Color.RED, tm.InvalidQuery, "no order"),
]


def _merge(**values: Any) -> None:
    with tm.open(":memory:", models=[Product]) as store:
        store.merge(Product.key("a", "b"), **values)


@pytest.mark.parametrize(
    ("program", "error", "said"), [row[1:] for row in NOT_CATCHABLE], ids=[row[0] for row in NOT_CATCHABLE]
)
def test_what_no_checker_catches_raises(program: Callable[[], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        program()
