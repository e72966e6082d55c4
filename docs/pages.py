"""The programs that the pages show."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent

_BLOCK = re.compile(
    r"^( *)```(?:python|\{\.python\})\n(.*?)^\1```", re.MULTILINE | re.DOTALL
)  # (ruff formats the former)
_INCLUDED = re.compile(r'^ *--8<-- "([^":]+)(?::([\w-]+))?"$', re.MULTILINE)


def _section(match: re.Match[str]) -> str:
    text = (ROOT / match[1]).read_text(encoding="utf-8")
    if match[2]:
        start, end = (rf"^ *# --8<-- \[{edge}:{match[2]}\]\n" for edge in ("start", "end"))
        (text,) = re.findall(f"{start}(.*?){end}", text, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(text)


def expanded(text: str) -> str:
    """Return a text with the files, or the sections of them, behind lines ``--8<-- "file:section"``."""
    return _INCLUDED.sub(_section, text)


def blocks(page: Path) -> list[tuple[int, str]]:
    """Return the Python blocks of a page, each with the line it begins on."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start(2)), expanded(textwrap.dedent(match[2])))
        for match in _BLOCK.finditer(text)
    ]
