"""What the documentation shows runs as it stands, and what it lists is what there is."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tablemapper
from docs.pages import ROOT, blocks, expanded
from tablemapper import errors, limits
from tablemapper.guidance.call_rules import CODES_OF_CALLS, CODES_OF_IDLE
from tablemapper.guidance.data_rules import INDEX_DATA_RULES, KEY_DATA_RULES
from tablemapper.guidance.declaration_rules import CLASS_RULES, KEY_RULES

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
COLUMNS = 92  # of a code block: what fits beside both menus of the site

_FENCED = re.compile(r"^ *```[^\n]+\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"::\n\n((?: {4}.*\n|\n)+)")
_OUTPUT = re.compile(r'^```text title="Output"\n(.*?)^```', re.MULTILINE | re.DOTALL)
_OPTIONAL = re.compile(r"^ *import (fastapi|numpy|pandas|polars|pyarrow|time_machine)\b", re.MULTILINE)


def rows(page: Path, head: str) -> list[list[str]]:
    """Return the cells of a page's table whose first heading is ``head``, row by row."""
    lines = page.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"| {head} |"))
    table = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return table


def warnings_of(scope: Mapping[str, object]) -> list[str]:
    """Return what `advise` warns of in the classes that a program leaves behind."""
    found = []
    for cls in [one for one in scope.values() if isinstance(one, type) and "__declaration__" in vars(one)]:
        made: Any = vars(cls)["__declaration__"]
        if made.table is not None:
            sources = [made.of, *(field.measure.of for field in made.maintained)]
            models = [*dict.fromkeys(one for one in sources if isinstance(one, type)), cls]
            found += [str(one) for one in tablemapper.advise(models) if one.level == "warning"]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "page", "__file__": str(ROOT / "examples" / "page.py")}
    for line, source in blocks(page):
        if any(find_spec(name) is None for name in _OPTIONAL.findall(source)):
            continue  # what comes after such a block does without it
        exec(compile("\n" * line + source, str(page), "exec", dont_inherit=True), scope)
    printed = capsys.readouterr().out
    for output in _OUTPUT.findall(page.read_text(encoding="utf-8")):
        assert output in printed
    if page.name != "advice.md":
        assert warnings_of(scope) == []
    # It leaves no file, so that it can be pasted again, and into the folder where another page was pasted.
    assert list(tmp_path.iterdir()) == []


def test_no_line_of_code_on_a_page_is_wider_than_its_column() -> None:
    wide = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in PAGES[1:]
        for block in _FENCED.findall(page.read_text(encoding="utf-8"))
        for line in expanded(block).splitlines()
        if len(line) > COLUMNS
    ]
    assert wide == []


def test_no_line_of_code_in_a_public_docstring_is_wider_than_its_column() -> None:
    texts = {name: inspect.getdoc(getattr(tablemapper, name)) or "" for name in tablemapper.__all__}
    code = {name: "".join(_INDENTED.findall(text + "\n")) for name, text in texts.items()}
    assert code["Entity"]  # the pattern finds an example
    assert [name for name, lines in code.items() if any(len(line) - 4 > COLUMNS for line in lines.splitlines())] == []


def test_every_page_is_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r"(\S+\.md)$", config, re.MULTILINE)) == sorted(
        page.relative_to(DOCS).as_posix() for page in PAGES[1:]
    )


def test_the_reference_has_every_public_name_once() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference" / "api").glob("*.md"))
    names = {name for name in dir(tablemapper) if not name.startswith("_")} - {"errors", "reports", "types"}
    names |= {f"{module}.{name}" for module in ("reports", "types") for name in getattr(tablemapper, module).__all__}
    assert sorted(re.findall(r"^::: tablemapper\.([\w.]+)$", text, re.MULTILINE)) == sorted(names)


def test_the_table_of_errors_is_the_tree_of_exceptions() -> None:
    table = {row[0].strip("`"): re.findall(r"\w+", row[1]) for row in rows(DOCS / "reference" / "errors.md", "error")}
    tree = {}
    for name in errors.__all__:
        error = getattr(errors, name)
        if isinstance(error, type) and error is not errors.TableMapperError:
            public = [base for base in error.__mro__[1:] if base.__name__ in errors.__all__]
            own = [public[0].__name__] if public[0] is not errors.TableMapperError else []
            builtin = [base.__name__ for base in error.__bases__ if hasattr(builtins, base.__name__)]
            tree[name] = own + builtin
    assert table == tree


def test_the_numbers_on_the_page_of_limits_are_those_of_the_library() -> None:
    table = {row[0]: row[1] for row in rows(DOCS / "reference" / "limits.md", "limit")}
    numbers = {
        "properties": limits.MAX_PROPERTIES, "length of a name": limits.MAX_NAME, "size of a value": limits.MAX_VALUE,
        "size of an entity": limits.MAX_ENTITY, "size of a transaction": limits.MAX_TRANSACTION,
        "operations": limits.MAX_OPERATIONS, "length of a key": limits.MAX_KEY_UNITS,
        "length of a key in an index": limits.MAX_INDEX_ROW_UNITS,
    }  # fmt: skip
    assert {name: table[name] for name in numbers} == {name: f"{number:,}" for name, number in numbers.items()}
    assert table["first moment"] == f"{limits.MIN_DATETIME:%Y-%m-%d}"


def test_the_rooms_and_modules_that_the_pages_for_contributors_name_are_there() -> None:
    package = Path(tablemapper.__file__).parent
    folders = {path.parent.relative_to(package) for path in package.rglob("__init__.py")} - {Path()}
    rooms = {path.as_posix() for path in folders if "autoload" not in path.parts}
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "contributing").iterdir())
    named = {name for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)+)/?`", pages) if name.split("/")[0] in rooms}
    assert sorted(name for name in named if not any((package / f"{name}{end}").exists() for end in ("", ".py"))) == []
    drawn = re.findall(r'class="name"[^>]*>(\w+)<', pages)
    ground = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    assert sorted(drawn) == sorted(ground | {room for room in rooms if "/" not in room})
    assert sorted(room for room in rooms if f"| `{room}` |" not in pages) == []


def test_the_page_of_advice_has_every_code_and_its_level() -> None:
    page = DOCS / "reference" / "advice.md"
    rules = {
        *CLASS_RULES, *KEY_RULES, "TM010", *KEY_DATA_RULES, *INDEX_DATA_RULES, *CODES_OF_CALLS, *CODES_OF_IDLE,
    }  # fmt: skip
    table = {re.findall(r"TM\d+", row[0])[0]: row[1] for row in rows(page, "code")}
    assert table.keys() == rules
    assert re.findall(r"^### (TM\d+)$", page.read_text(encoding="utf-8"), re.MULTILINE) == sorted(rules)
    assert {code for code, level in table.items() if level == "warning"} == {
        "TM001", "TM002", "TM003", "TM005", "TM201", "TM202",
    }  # fmt: skip
