"""The picture of a model as SVG: readable where it stands in a page, and on its own as a file.

Widths are counted, not measured: each letter of the font has about the same width everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from .trees import Line, Tree

_MONO, _TEXT, _SMALL, _BOLD = 7.25, 7.4, 6.5, 7.9  # px of a letter: of keys, of names, of remarks, of classes
_ROW, _BOX, _GAP = 24, 50, 28  # px: of a line, of a box, between trees
_WIDTH = 1000  # up to which all trees share their columns
_KEY, _NOTES, _LINES = 38, 30, 12
_COLUMN = 12  # px between columns

STYLE = (
    ":root{--ink:#1b2422;--soft:#56645f;--tint:#eef4f2;--accent:#00695c;--bar:#4f9c90}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e2e9e6;--soft:#9aaaa4;--tint:#1e2826;--accent:#66c2b4;--bar:#3f8f83}}"
    'text{fill:var(--ink);font:13px system-ui,"Liberation Sans",sans-serif}.s{fill:var(--soft);font-size:12px}'
    '.m{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:12px}'
    ".l{stroke:var(--soft);stroke-opacity:.55;fill:none}.t{fill:var(--tint)}.b{fill:var(--bar)}.a{fill:var(--accent)}"
)
"""The colours and fonts of a file that stands alone; a page has them in its own stylesheet."""


def svg(
    trees: Iterable[Tree], *, standalone: bool = False, label: str = "the classes, with their indexes and aggregates"
) -> str:
    """Return the trees as SVG.

    Args:
        standalone: whether it is a file of its own, with its colours for light and dark; else the page has them.
        label: says what it is to those who do not see it.
    """
    drawn = [_cut(tree) for tree in trees]
    shared = _columns(drawn)
    widths = [shared if sum(shared) <= _WIDTH else _columns([tree]) for tree in drawn]
    parts, top = list[str](), 2.0
    for tree, columns in zip(drawn, widths, strict=True):
        height = float(max(_BOX + 4, _ROW * len(tree.lines) + 6))
        parts.append(f'<g transform="translate(2 {_px(top)})">{"".join(_drawn(tree, columns, height))}</g>')
        top += height + _GAP
    width, height = max(map(sum, widths), default=0.0) + 4, max(top - _GAP, 0.0) + 2
    style = f"<style>{STYLE}</style>" if standalone else ""
    space = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    size = f'viewBox="0 0 {_px(width)} {_px(height)}" width="{_px(width)}" height="{_px(height)}"'
    return f'<svg{space} {size} role="img" aria-label="{escape(label)}">{style}{"".join(parts)}</svg>'


def _cut(tree: Tree) -> Tree:
    """Return a tree with as many lines as are drawn."""
    hidden = len(tree.lines) - _LINES
    if hidden <= 0:
        return tree
    lines = (*tree.lines[:_LINES], Line("index", f"and {hidden} more", "", ""))
    return Tree(tree.name, tree.table, tree.fields, tree.key, lines)


def _columns(trees: Sequence[Tree]) -> tuple[float, float, float, float]:
    """Return the widths of boxes with what leads on, of names, of keys and of what is special."""
    lines = [line for tree in trees for line in tree.lines]
    name = max([len(line.name) * _TEXT + 16 * line.depth for line in lines], default=0.0)
    key = max([min(len(line.key), _KEY) * _MONO for line in lines], default=0.0)
    notes = max([min(len(line.notes), _NOTES) * _SMALL for line in lines], default=0.0)
    return max(map(_box, trees), default=0.0) + 51, name + _COLUMN, key + _COLUMN, notes + _COLUMN


def _box(tree: Tree) -> float:
    head = len(tree.name) * _BOLD + 9 + len(tree.about) * _SMALL
    return max(head, min(len(tree.key), _KEY) * _MONO) + 26


def _drawn(tree: Tree, columns: tuple[float, float, float, float], height: float) -> Iterator[str]:
    box, middle = _box(tree), height / 2
    first, name, key, _ = columns
    yield f'<rect x="1" y="{_px(middle - _BOX / 2)}" width="{_px(box)}" height="{_BOX}" rx="6" class="t"/>'
    yield (
        f'<text x="13" y="{_px(middle - 5)}"><tspan font-weight="650">{escape(tree.name)}</tspan>'
        f'<tspan class="s" dx="9">{escape(tree.about)}</tspan></text>'
    )
    yield _text(13, middle + 14, tree.key, "m", _KEY)
    y = middle - _ROW * (len(tree.lines) - 1) / 2
    for line in tree.lines:
        x, bend = first - 10, first - 32
        yield f'<path d="M{_px(box + 1)} {_px(middle)} H{_px(bend)} V{_px(y)} H{_px(x + 16 * line.depth)}" class="l"/>'
        yield _sign(line, x + 16 * line.depth, y)
        yield _text(first + 16 * line.depth, y + 4.5, line.name, "", 60)
        yield _text(first + name, y + 4.5, line.key, "m", _KEY)
        yield _text(first + name + key, y + 4.5, line.notes, "s", _NOTES)
        y += _ROW


def _sign(line: Line, x: float, y: float) -> str:
    if line.shape == "aggregate":
        return f'<circle cx="{_px(x)}" cy="{_px(y)}" r="4.2" class="a"/>'
    if line.shape == "field":
        return f'<path d="M{_px(x - 5)} {_px(y)} l5 -5 l5 5 l-5 5 z" class="a"/>'
    return f'<rect x="{_px(x - 3.5)}" y="{_px(y - 3.5)}" width="7" height="7" class="b"/>'


def _text(x: float, y: float, text: str, kind: str, most: int) -> str:
    if not text:
        return ""
    title = f"<title>{escape(text)}</title>" if len(text) > most else ""
    visible = text if len(text) <= most else text[: most - 1] + "…"
    css_class = f' class="{kind}"' if kind else ""
    return f'<text x="{_px(x)}" y="{_px(y)}"{css_class}>{title}{escape(visible)}</text>'


def _px(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
