"""Panels: parts of a picture that stand side by side, and below each other on a phone. site.css has their colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Self

import attrs

WIDEST = 346  # px: what a phone shows without scrolling
LINE = 23  # px: a row of a table
_MONO, _SANS = 7.9, 7.2  # px a character of 13 px, in wide fonts


@attrs.define
class Panel:
    """An SVG of its own, with all it says as the text for those who cannot see it."""

    title: str
    width: float = 0
    height: float = 0
    shapes: list[str] = attrs.field(factory=list)
    said: list[str] = attrs.field(factory=list)

    def text(
        self, x: float, y: float, text: str, *classes: str, anchor: str = "start"
    ) -> Self:
        """Add a text whose baseline begins, or ends, at a point."""
        width = len(text) * (_MONO if "m" in classes else _SANS)
        left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
        assert left >= 0, f"{text!r} begins left of the picture"
        self._reach(left + width, y + 6)
        named = f' class="{" ".join(classes)}"' if classes else ""
        at = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.shapes.append(f'<text x="{x:g}" y="{y:g}"{at}{named}>{escape(text)}</text>')
        return self

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> Self:
        """Add a rectangle."""
        self._reach(x + width, y + height)
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" class="{kind}"/>'
        )
        return self

    def line(self, path: str, kind: str = "l") -> Self:
        """Add a path, whose room others take."""
        self.shapes.append(f'<path d="{path}" class="{kind}"/>')
        return self

    def table(
        self,
        name: str,
        note: str,
        heads: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        marks: Sequence[str] = (),
        widths: Sequence[float] = (),
    ) -> Self:
        """Add a table below what is there.

        Args:
            name: its title.
            note: what stands at the right of the title.
            heads: of the columns.
            rows: the cells.
            marks: the class of the box behind each row, or "".
            widths: at least, in pixels, so that tables below each other agree.
        """
        cells = [list(map(str, row)) for row in rows]
        wide = [
            max(_SANS * len(head), *(_MONO * len(row[at]) for row in cells)) + 14
            for at, head in enumerate(heads)
        ]
        wide = [
            max(pair) for pair in zip(wide, [*widths, *[0.0] * len(wide)], strict=False)
        ]
        top = self.height + (22 if self.height else 4)
        end = max(sum(wide), self.width)
        self.text(2, top + 14, name, "t")
        if note:
            self.text(end, top + 14, note, "s", anchor="end")
        starts = [sum(wide[:at]) + 7 for at in range(len(wide))]
        for x, head in zip(starts, heads, strict=True):
            self.text(x, top + 38, head, "s")
        self.line(f"M0 {top + 45.5:g} H{end:g}")
        for at, row in enumerate(cells):
            y = top + 46 + at * LINE
            if at < len(marks) and marks[at]:
                self.box(0, y, end, LINE - 1, marks[at])
            for x, cell in zip(starts, row, strict=True):
                self.text(x, y + 16, cell, "m")
            self.line(f"M0 {y + LINE - 0.5:g} H{end:g}")
        self._reach(end, top + 46 + len(cells) * LINE)
        self.said.append(
            f"{name}{', ' + note if note else ''}: "
            + "; ".join(
                ", ".join(f"{h} {c}".strip() for h, c in zip(heads, row, strict=True) if c)
                + _MARKS.get(marks[at] if at < len(marks) else "", "")
                for at, row in enumerate(cells)
            )
            + "."
        )
        return self

    def svg(self, name: str) -> str:
        """Return the panel as an element; the name makes its ids unique on a page."""
        assert self.width <= WIDEST, (
            f"{self.title}: {self.width:.0f} px are too wide for a phone"
        )
        width, height = round(self.width) + 2, round(self.height) + 2
        return (
            f'<svg role="img" aria-labelledby="{name}-title {name}-desc" width="{width}" '
            f'height="{height}" viewBox="-1 -1 {width} {height}">\n'
            f'<title id="{name}-title">{escape(self.title)}</title>\n'
            f'<desc id="{name}-desc">{escape(" ".join(self.said))}</desc>\n'
            + "\n".join(self.shapes)
            + "\n</svg>\n"
        )

    def _reach(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)


_MARKS = {"hi": " (changed)", "read": " (read)", "found": " (read and returned)"}


def picture(name: str, *panels: Panel) -> str:
    """Return panels as one element of a page."""
    inner = "".join(panel.svg(f"{name}-{at}") for at, panel in enumerate(panels))
    return f'<figure class="picture" data-search-exclude>\n{inner}</figure>\n'
