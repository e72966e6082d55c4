"""The picture of a model as text, and as Mermaid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .trees import Line, Tree

_SIGNS = {"index": "▪", "aggregate": "●", "field": "◆"}
_ENDS = {"index": ("[", "]"), "aggregate": ("([", "])"), "field": ("{{", "}}")}
_CODED = re.compile(r'[{}"#;<>&\n]')


def text(trees: Iterable[Tree]) -> str:
    """Return the trees as lines of text."""
    trees = tuple(trees)
    lines = [line for tree in trees for line in tree.lines]
    name = max([len(line.name) + 2 * line.depth for line in lines], default=0)
    key = max([len(line.key) for line in lines], default=0)
    notes = max([len(line.notes) for line in lines], default=0)
    return "\n\n".join("\n".join(_lines(tree, name, key, notes)) for tree in trees) + "\n" * bool(trees)


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
            lines.append(f'  {parent if line.depth else f"c{number}"} --> {node}{begin}"{_node(line)}"{end}')
            parent = node if line.shape == "aggregate" else parent
    return "\n".join(lines) + "\n"


def _node(line: Line) -> str:
    return _coded(line.name, line.key, line.notes)


def _coded(*texts: str) -> str:
    return "<br>".join(_CODED.sub(lambda match: f"#{ord(match[0])};", text) for text in texts if text)
