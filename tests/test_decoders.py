"""Decoders of msgspec are made at import: it completes what it knows of a class at the first use, and a second thread that
meets a class of which that is not done ends the process."""

from __future__ import annotations

import ast
from pathlib import Path

import tablemapper

from .parsed import parsed

PACKAGE = Path(tablemapper.__file__).parent


def _lazy(tree: ast.AST) -> list[int]:
    """Return the lines of functions that give a type to a decoding call."""
    return [
        call.lineno
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute | ast.Name)
        and (call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id) == "decode"
        and any(keyword.arg == "type" for keyword in call.keywords)
    ]


def test_no_function_gives_msgspec_a_type_to_decode() -> None:
    paths = [path for path in PACKAGE.rglob("*.py") if "decode(" in path.read_text(encoding="utf-8")]
    lazy = {str(path.relative_to(PACKAGE)): lines for path in paths if (lines := _lazy(parsed(path)))}
    assert lazy == {}
    assert _lazy(ast.parse("def f(x):\n    return msgspec.json.decode(x, type=A)")) == [2]
