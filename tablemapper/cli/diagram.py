"""The command that draws a model."""

from __future__ import annotations

import sys
from typing import Literal

from ..diagrams.markup import mermaid, text
from ..diagrams.svg import svg
from ..diagrams.trees import trees_of
from ..errors import InvalidModel
from .app import Models, StoreArgument, load_models
from .output import Exit, is_unicode, show
from .store_reader import open_for_reading


def diagram(
    place: StoreArgument | None = None,
    /,
    *,
    models: Models | None = None,
    format: Literal["svg", "mermaid", "text"] = "svg",
) -> Exit:
    """Draw the classes of a store or of a module, with what is maintained from each, on the standard output."""
    if place is not None:
        with open_for_reading(place, models) as store:
            states = {item.where: item.state for item in store.status().objects if item.state != "ready"}
            classes = list(store.classes.values())
    elif models is not None:
        classes, states = load_models(models), {}
    else:
        raise InvalidModel("name the models, as in --models shop.models, or a store")
    trees = trees_of(classes, states)
    if format == "svg":
        picture = svg(trees, standalone=True) + "\n"  # which is UTF-8, where nothing says otherwise
        sys.stdout.write(picture if is_unicode() else picture.encode("ascii", "xmlcharrefreplace").decode())
        return Exit.OK
    return show(None, {"mermaid": mermaid, "text": text}[format](trees).removesuffix("\n"), json=False)
