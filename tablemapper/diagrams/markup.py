"""The picture of a model as text, and as Mermaid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .trees import Tree

_SIGNS = {"index": "▪", "aggregate": "●", "field": "◆"}
_ENDS = {"index": ("[", "]"), "aggregate": ("([", "])"), "field": ("{{", "}}")}
_WIDEST = 40
_CODED = re.compile(r'[{}"#;<>&\n]')


def text(trees: Iterable[Tree]) -> str:
    """Return the trees as lines of text."""
    trees = tuple(trees)
    lines = [line for tree in trees for line in tree.lines]
    name = _width(len(line.name) + 2 * line.depth for line in lines)
    key, notes = _width(len(line.key) for line in lines), _width(len(line.notes) for line in lines)
    return "\n\n".join("\n".join(_lines(tree, name, key, notes)) for tree in trees) + "\n" * bool(trees)


def _width(lengths: Iterable[int]) -> int:
    """Return the width of a column; a text beyond it moves what follows on its own line alone."""
    return max([length for length in lengths if length <= _WIDEST], default=0)


def _lines(tree: Tree, name: int, key: int, notes: int) -> Iterator[str]:
    yield f"{tree.name}  ({tree.about})  {tree.key}"
    for line in tree.lines:
        label = f"{'  ' * line.depth}{_SIGNS[line.shape]} {line.name}"
        yield f"  {label:{name + 2}}  {line.key:{key}}  {line.notes:{notes}}  {line.table}".rstrip()


def mermaid(trees: Iterable[Tree]) -> str:
    """Return the trees as a flowchart of Mermaid."""
    lines = ["flowchart LR"]
    for number, tree in enumerate(trees):
        lines.append(f'  c{number}["{_coded(tree.name, tree.about, tree.key)}"]')
        parent = f"c{number}"
        for at, line in enumerate(tree.lines):
            node, (begin, end) = f"c{number}_{at}", _ENDS[line.shape]
            text = _coded(line.name, line.key, line.notes)
            lines.append(f'  {parent if line.depth else f"c{number}"} --> {node}{begin}"{text}"{end}')
            parent = node if line.shape == "aggregate" else parent
    return "\n".join(lines) + "\n"


def _coded(*texts: str) -> str:
    return "<br>".join(_CODED.sub(lambda match: f"#{ord(match[0])};", text) for text in texts if text)
