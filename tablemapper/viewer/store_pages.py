"""The pages of all that a store holds: the model's picture, partitions, statistics, advice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from ..diagrams.markup import text
from ..diagrams.svg import svg
from ..diagrams.trees import trees_of
from ..engines.statistics import Statistics
from ..planning.cost import bytes_text, money_text
from ..progress import Progress, check_cancelled
from .views import PageRequest, PageResponse

T = TypeVar("T")
_SECONDS = 60.0  # for which what reads much is kept
_PARTITIONS = 50


class TimedCache:
    """What reads much: made by one request at a time, and kept for a minute."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._made: dict[str, tuple[float, Any]] = {}

    def get(self, name: str, make: Callable[[], T]) -> T:
        """Return what was made under a name within the last minute, else make it."""
        with self._lock:
            known = self._made.get(name)
            if known is None or self._monotonic() - known[0] > _SECONDS:
                made = make()
                known = self._made[name] = self._monotonic(), made
            found: T = known[1]
            return found


def picture(ask: PageRequest) -> tuple[str, str]:
    """Return the picture of the store's classes as SVG and as text."""
    states = {one.where: one.state for one in ask.store.status().objects if one.state != "ready"}
    trees = trees_of(ask.store.classes.values(), states)
    return svg(trees), text(trees)


def model(ask: PageRequest) -> PageResponse:
    """The picture of the classes, and the same as text."""
    drawn, written = picture(ask)
    return PageResponse("model.html", {"drawn": drawn, "text": written}, {"text": written})


def _step(_: Progress) -> None:
    check_cancelled()


def _statistics(ask: PageRequest) -> Statistics:
    cls, kept = ask.cls, ask.kept
    found: Statistics = kept.get(
        f"statistics {ask.name}", lambda: ask.store.statistics(cls, top=_PARTITIONS, progress=_step)
    )
    return found


def partitions(ask: PageRequest) -> PageResponse:
    """The largest and the hottest partitions of a class."""
    found = _statistics(ask)
    parts = found.partitions
    most = max([one.entities for one in parts.largest], default=1)
    writes = max([one.writes for one in parts.hottest], default=1)
    shows = {
        "found": found,
        "largest": [(one, 100.0 * one.entities / most) for one in parts.largest],
        "hottest": [(one, 100.0 * one.writes / max(writes, 1)) for one in parts.hottest],
    }
    return PageResponse("partitions.html", shows, found.to_dict())


def statistics(ask: PageRequest) -> PageResponse:
    """How large the entities and the indexes of a class are."""
    found = _statistics(ask)
    shows = {
        "found": found,
        "bytes_text": bytes_text,
        "sizes": attrs.asdict(found.sizes),
        "price": money_text(found.price()),
    }
    return PageResponse("statistics.html", shows, found.to_dict())


def advice(ask: PageRequest) -> PageResponse:
    """What is unwise in the classes, judged by what the store holds."""
    found = ask.kept.get("advice", lambda: ask.store.advise(workload=ask.workload, progress=_step))
    return PageResponse("advice.html", {"advice": found}, {"advice": [one.to_dict() for one in found]})
