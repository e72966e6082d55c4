"""Scripts for every declaration that the docs show, and for random ones, run as they are written.

Each is imported, has the same shapes, passes both type checkers, and leads a store there and back; check agrees with migrate.
"""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
import traceback
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.store import opening

from ..test_docs import _OPTIONAL, PAGES, ROOT, blocks
from ..whole.declarations import declaration
from .written import run, write_scripts

SHORT, LONG = 5, 200


@pytest.fixture
def folder_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that scripts are imported from."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.endswith(("_back", "_there")) or "_back." in name or "_there." in name:
            del sys.modules[name]
    importlib.invalidate_caches()


def tried(folder: Path, name: str, models: list[Any]) -> str:
    """Write scripts for classes, and run them; return why that fails, or nothing."""
    try:
        rng = random.Random(name)
        written = write_scripts(folder, name, models, rng)
        run(written, folder / f"{name}.db", rng)
    except tm.InvalidMigration as error:
        if "Invoice.total: only your program knows how Money is stored" in str(error):
            return ""
        return f"{name}:\n{traceback.format_exc(limit=-3)}"
    except Exception:
        return f"{name}:\n{traceback.format_exc(limit=-3)}"
    checked = folder / "checked"
    checked.mkdir(exist_ok=True)
    for path in (written.back, written.there):
        (checked / f"{path.parent.name}.py").write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return ""


def check_types(folder: Path) -> None:
    """Assert that mypy --strict and pyright accept all scripts of a folder, one run each."""
    settings = {"include": ["."], "extraPaths": [str(ROOT)], "pythonVersion": "3.11", "enableTypeIgnoreComments": False}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    (folder / "mypy.ini").write_text(f"[mypy]\nstrict = True\nmypy_path = {ROOT}\n")
    for command in (["mypy", "."], ["pyright", "--pythonpath", sys.executable, "-p", "."]):
        pytest.importorskip(command[0])
        done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=folder, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_a_script_for_any_declaration_runs(
    folder_of_packages: Path, no_warnings_of_scans: None, full_size: bool
) -> None:
    drawn = {f"d{seed}": declaration(random.Random(seed)) for seed in range(LONG if full_size else SHORT)}
    faults = [
        f"{fault}\n{one.source}"
        for name, one in drawn.items()
        if (fault := tried(folder_of_packages, name, one.models))
    ]
    assert not faults, "\n\n".join(faults[:5])
    if full_size:
        check_types(folder_of_packages / "checked")


def declarations_of(page: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Yield the classes of each store that the code of a page opens, once."""
    found: dict[str, list[Any]] = {}
    whole = opening.compile_schema

    def noted(models: Any) -> Any:
        schema = whole(models)
        found.setdefault(json.dumps(tm.schema_snapshot(models), sort_keys=True), list(models))
        return schema

    with monkeypatch.context() as patch:
        patch.setattr(opening, "compile_schema", noted)
        scope: dict[str, object] = {"__name__": "page", "__file__": str(ROOT / "examples" / "page.py")}
        for line, source in blocks(page):
            if not any(find_spec(name) is None for name in _OPTIONAL.findall(source)):
                exec(compile("\n" * line + source, str(page), "exec", dont_inherit=True), scope)
    yield from found.values()


@pytest.mark.long
def test_a_script_for_each_declaration_of_the_docs_runs(
    folder_of_packages: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_warnings_of_scans: None,
    full_size: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    faults = []
    pages = (
        PAGES if full_size else [page for page in PAGES if page.stem in ("aggregates", "indexes", "keys", "local-days")]
    )
    for page in pages:
        for number, models in enumerate(declarations_of(page, monkeypatch)):
            name = f"{page.parent.name}_{page.stem}_{number}".replace("-", "_")
            faults += filter(None, [tried(folder_of_packages, name, models)])
    assert not faults, "\n\n".join(faults)
    if full_size:  # (else those of a few are checked beside what else the checkers judge)
        check_types(folder_of_packages / "checked")
