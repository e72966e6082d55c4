"""The bars of the page on performance: the figures of its own table."""

from __future__ import annotations

import re

from ..pages import ROOT
from .panel import Panel, picture

_CUT = 6.0  # times ours; a longer bar is cut, and says so


def performance() -> str:
    """Return the times of four programs for each operation on orders."""
    text = (ROOT / "docs/explanation/performance.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- orders -->.*?(\| .*?)\n\n", text, re.DOTALL)
    operations = []
    for line in table.splitlines()[2:]:
        name, *cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        ours, by_hand, alchemy, peewee = (float(cell.split()[0]) for cell in cells)
        if not name.startswith("file"):
            times = {
                "by hand": 1 / by_hand,
                "ours": 1.0,
                "SQLAlchemy": alchemy,
                "peewee": peewee,
            }
            operations.append((name, ours, times))
    half = (len(operations) + 1) // 2
    return picture("performance", _panel(operations[:half]), _panel(operations[half:]))


def _panel(operations: list[tuple[str, float, dict[str, float]]]) -> Panel:
    panel = Panel("Microseconds an operation; a shorter bar is faster")
    label, unit, high = 82, 34, 17
    y = 0.0
    for name, ours, times in operations:
        panel.text(2, y + 14, name, "t")
        y += 22
        for program, ratio in times.items():
            cut = ratio > _CUT
            long = min(ratio, _CUT) * unit
            panel.text(label - 8, y + 12, program, "s", anchor="end")
            panel.box(label, y + 2, long, high - 5, "a" if program == "ours" else "b")
            if cut:
                panel.line(f"M{label + long - 14} {y + 14} l6 -12 h4 l-6 12 z", "gap")
            value = f"{ours * ratio:.3g}"
            panel.text(label + long + 6, y + 12, value, "s")
            y += high
        panel.said.append(
            f"{name}: "
            + ", ".join(f"{p} {ours * r:.3g} µs" for p, r in times.items())
            + "."
        )
        y += 12
    return panel
