"""Pictures of models, as the command ``tablemapper diagram`` draws them."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from typing import Any

from tablemapper.diagrams.markup import text
from tablemapper.diagrams.svg import svg
from tablemapper.diagrams.trees import trees_of

from ..pages import ROOT, blocks


def shop() -> str:
    """Return the classes of the first tutorial."""
    scope: dict[str, Any] = {"__name__": "page"}
    for _, source in blocks(ROOT / "docs/tutorial/shop.md")[:3]:
        exec(source, scope)
    return _model([scope["Product"], scope["Sale"], scope["DailySales"]])


def weather() -> str:
    """Return the classes of the example with the weather."""
    return _model(runpy.run_path(str(ROOT / "examples/weather.py"))["MODELS"])


def _model(classes: Sequence[Any]) -> str:
    trees = trees_of(classes, {})
    label = "The classes, with what is maintained from each. " + " ".join(
        text(trees).split()
    )
    return f'<figure class="picture model" data-search-exclude>\n{svg(trees, label=label)}\n</figure>\n'
