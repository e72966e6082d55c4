"""Commands that draw a model, and say how a store is filled and what is unwise; they only read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ..diagrams.markup import mermaid, text
from ..diagrams.svg import svg
from ..diagrams.trees import trees_of
from ..errors import InvalidModel, NotReady
from ..guidance.advisor import advise as advise_models
from ..guidance.workload import Workload
from ..planning.cost import bytes_text
from ..progress import ProgressOption
from ..store.store import Store
from .app import Json, Models, StoreArgument, find_class, load_models
from .output import Exit, is_unicode, show, table
from .store_reader import open_for_reading

Calls = Annotated[Path, Parameter(name="--workload", help="calls that tm.Workload saved, to be judged, too")]
Classes = Annotated[str, Parameter(help="the names of classes; without one, a line for each")]
_WITHOUT_MODELS = "judged without the models: accept= and factories stand in the code only"


def advise(
    place: StoreArgument | None = None,
    /,
    *,
    models: Models | None = None,
    workload: Calls | None = None,
    json: Json = False,
) -> Exit:
    """Say what is unwise in the models, and with a store, in how it is filled; end with 1 if there is a warning."""
    if place is None:
        if models is None:
            raise InvalidModel("name the models, as in --models shop.models, or a store, or both")
        if workload is not None:
            raise InvalidModel("--workload: calls are judged with the store that they were made of; name that, too")
        advice = advise_models(load_models(models))
    else:
        calls = None if workload is None else Workload.load(workload)
        with open_for_reading(place, models) as store:
            advice = store.advise(workload=calls, progress=not json)
    wise = all(item.level != "warning" for item in advice)
    head = [_WITHOUT_MODELS] if models is None else []
    lines = [str(item) for item in advice] or ["nothing to advise"]
    return show({"ok": wise, "advice": [item.to_dict() for item in advice]}, *head, *lines, json=json, ok=wise)


def stats(place: StoreArgument, /, *classes: Classes, models: Models | None = None, json: Json = False) -> Exit:
    """Count entities, partitions and bytes of each class, or of some classes with their partitions and writes."""
    with open_for_reading(place, models) as store:
        names = classes or tuple(store.classes)
        by_name = [(name, _of(store, name, progress=not json)) for name in names]
    if json:
        documents = [
            {"model": name, "state": statistics} if isinstance(statistics, str) else statistics.to_dict()
            for name, statistics in by_name
        ]
        return show({"ok": True, "statistics": documents}, json=True)
    if classes:
        return show(None, *(str(statistics) for _, statistics in by_name), json=False)
    columns = ("class", "entities", "partitions", "bytes", "with indexes", "largest partition")
    return show(None, table("", columns, [_line(name, statistics) for name, statistics in by_name]), json=False)


def _of(store: Store, name: str, progress: ProgressOption) -> Any:
    """Return the statistics of a class, or why there are none now."""
    try:
        return store.statistics(find_class(store, name), progress=progress)
    except NotReady as error:
        return str(error)


def _line(name: str, statistics: Any) -> tuple[object, ...]:
    if isinstance(statistics, str):
        return name, 0, 0, statistics, "", ""
    largest = next((f"{part.key}  {part.entities:,}" for part in statistics.partitions.largest), "")
    return (
        name,
        statistics.entities,
        statistics.partitions.number,
        bytes_text(statistics.bytes),
        bytes_text(statistics.total_bytes),
        largest,
    )


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
