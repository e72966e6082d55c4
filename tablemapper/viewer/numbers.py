"""The pages of all that a store holds: the model's picture, partitions, statistics, advice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from ..engines.statistics import Statistics
from ..pictures.svg import svg
from ..pictures.texts import text
from ..pictures.trees import trees_of
from ..planning.cost import bytes_text, money_text
from ..progress import Progress, check_cancelled
from .pages import Answer, Ask

T = TypeVar("T")
_SECONDS = 60.0  # for which what reads much is kept
_PARTITIONS = 50


class Kept:
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


def picture(ask: Ask) -> tuple[str, str]:
    """Return the picture of the store's classes as SVG and as text."""
    states = {one.where: one.state for one in ask.store.status().items if one.state != "ready"}
    trees = trees_of(ask.store.classes.values(), states)
    return svg(trees), text(trees)


def model(ask: Ask) -> Answer:
    """The picture of the classes, and the same as text."""
    drawn, written = picture(ask)
    return Answer("model.html", {"drawn": drawn, "text": written}, {"text": written})


def _step(_: Progress) -> None:
    check_cancelled()


def _statistics(ask: Ask) -> Statistics:
    cls, kept = ask.cls, ask.kept
    found: Statistics = kept.get(
        f"statistics {ask.name}", lambda: ask.store.statistics(cls, top=_PARTITIONS, progress=_step)
    )
    return found


def partitions(ask: Ask) -> Answer:
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
    return Answer("partitions.html", shows, found.to_dict())


def statistics(ask: Ask) -> Answer:
    """How large the entities and the indexes of a class are."""
    found = _statistics(ask)
    shows = {
        "found": found,
        "bytes_text": bytes_text,
        "sizes": attrs.asdict(found.sizes),
        "price": money_text(found.price()),
    }
    return Answer("statistics.html", shows, found.to_dict())


def advice(ask: Ask) -> Answer:
    """What is unwise in the classes, judged by what the store holds."""
    found = ask.kept.get("advice", lambda: ask.store.advise(workload=ask.workload, progress=_step))
    return Answer("advice.html", {"advice": found}, {"advice": [one.to_dict() for one in found]})
