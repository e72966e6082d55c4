"""One direction: an import points to a lower level, or to the left in its own row."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tablemapper

PACKAGE = Path(tablemapper.__file__).parent
LEVELS = [
    ["errors", "codegen", "arithmetic", "expressions", "predicates"],
    [
        "limits", "progress", "sums", "keyforms", "keytext", "keys", "bounds", "overlap", "scalars", "values", "fields", "indexes",
        "declaration", "entity", "aggregates",
    ],
    ["model", "changes", "evolution", "assignments"],
    [
        "check", "budget", "conditions", "advice", "planner", "ranges", "projection", "prepared", "pages",
        "totals", "answers", "groups", "explanation", "results", "query", "mixed", "engine",
    ],
    [
        "engines", "engines.sqlite.faults", "engines.sqlite.calls", "engines.sqlite.timestamps", "engines.sqlite.writing",
        "engines.sqlite.reading", "engines.sqlite.connections", "engines.sqlite.readers", "engines.sqlite.committing",
        "engines.sqlite.turns", "engines.sqlite.transacting", "engines.sqlite.backup", "engines.sqlite.files",
        "engines.sqlite.memory", "engines.sqlite", "engines.sqlite.tables", "engines.sqlite.operations",
        "engines.sqlite.staging", "engines.sqlite.catalogue", "engines.sqlite.scrub", "engines.sqlite.lowering",
        "engines.sqlite.selecting", "engines.sqlite.engine",
    ],
    ["verbs", "bulk", "rewriting", "store", "workers", "aioquery", "aio"],
]  # fmt: skip
PLACE = {module: (level, at) for level, row in enumerate(LEVELS) for at, module in enumerate(row)}
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"
}


def _imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield what is imported when the program runs, inside functions too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for other in node.orelse:
                yield from _imports(other)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        else:
            yield from _imports(node)


def _targets(module: str, path: Path) -> Iterator[str]:
    package = ["tablemapper", *module.split(".")]
    if path.name != "__init__.py":
        package.pop()
    for node in _imports(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            names = [
                f"{base}.{alias.name}" if f"{base}.{alias.name}".removeprefix("tablemapper.") in MODULES else base
                for alias in node.names
            ]
        for name in names:
            if name == "tablemapper" or name.startswith("tablemapper."):
                yield name.removeprefix("tablemapper").lstrip(".")


def test_every_module_has_its_place() -> None:
    assert sorted(PLACE) == sorted(MODULES)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_down_or_to_the_left(module: str) -> None:
    wrong = [target for target in _targets(module, MODULES[module]) if PLACE[target] >= PLACE[module]]
    assert wrong == []


def test_the_walk_over_imports_sees_an_import_that_points_up(tmp_path: Path) -> None:
    path = tmp_path / "errors.py"
    path.write_text("def late():\n    from .store import Store\nfrom . import query\nimport tablemapper.model\n")
    assert list(_targets("errors", path)) == ["store", "query", "model"]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_file_holds_two_ideas(module: str) -> None:
    lines = len(MODULES[module].read_text(encoding="utf-8").splitlines())
    assert lines <= 600
