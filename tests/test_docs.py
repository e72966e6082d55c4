"""What the documentation shows runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tablemapper import errors

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> list[tuple[int, str]]:
    """Return the Python blocks of a page, each with the line it begins on."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "page"}
    for line, source in blocks(page):
        exec(compile("\n" * line + source, str(page), "exec"), scope)


def test_the_page_about_paging_shows_the_example_as_it_is() -> None:
    shown = next(source for _, source in blocks(DOCS / "how-to" / "paging.md") if "def orders(" in source)
    example = (ROOT / "examples" / "paging_service.py").read_text(encoding="utf-8")
    settings, *functions = shown.split("\n\n\n")[:3]
    assert [part for part in (settings, *functions) if part not in example] == []
    assert len(functions) == 2


def test_every_page_is_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r": (\S+\.md)$", config, re.MULTILINE)) == sorted(
        page.relative_to(DOCS).as_posix() for page in PAGES[1:]
    )


def test_every_error_is_documented() -> None:
    text = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    assert not [
        name for name in errors.__all__ if name[0].isupper() and f"`{name}`" not in text and f".{name}" not in text
    ]
