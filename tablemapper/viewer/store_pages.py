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
    """A cache of expensive results: one request at a time computes them, and they stay for a minute."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._values: dict[str, tuple[float, Any]] = {}

    def get(self, name: str, make: Callable[[], T], *, fresh: bool = False) -> T:
        """Return the value that was made under a name within the last minute; else, or if `fresh`, make it."""
        with self._lock:
            entry = self._values.get(name)
            if fresh or entry is None or self._monotonic() - entry[0] > _SECONDS:
                value = make()
                entry = self._values[name] = self._monotonic(), value
            result: T = entry[1]
            return result

    def age(self, name: str) -> str:
        """Return the age of a value as text."""
        seconds = round(self._monotonic() - self._values[name][0])
        return f"read {seconds} s ago" if seconds else "read just now"


def picture(ask: PageRequest) -> tuple[str, str]:
    """Return the picture of the store's classes as SVG and as text."""
    states = {item.where: item.state for item in ask.store.status().objects if item.state != "ready"}
    trees = trees_of(ask.store.classes.values(), states)
    return svg(trees), text(trees)


def model(ask: PageRequest) -> PageResponse:
    """The picture of the classes, and the same as text."""
    drawn, plain = picture(ask)
    return PageResponse("model.html", {"drawn": drawn, "text": plain}, {"text": plain})


def _step(_: Progress) -> None:
    check_cancelled()


def _cached(ask: PageRequest, name: str, make: Callable[[], T]) -> tuple[T, str]:
    cache: TimedCache = ask.cache
    return cache.get(name, make, fresh=ask.params.get("fresh") == "1"), cache.age(name)


def _statistics(ask: PageRequest) -> tuple[Statistics, str]:
    cls = ask.cls
    return _cached(ask, f"statistics {ask.name}", lambda: ask.store.statistics(cls, top=_PARTITIONS, progress=_step))


def partitions(ask: PageRequest) -> PageResponse:
    """The largest and the hottest partitions of a class."""
    numbers, age = _statistics(ask)
    parts = numbers.partitions
    most = max([part.entities for part in parts.largest], default=1)
    writes = max([part.writes for part in parts.hottest], default=1)
    shows = {
        "found": numbers,
        "age": age,
        "largest": [(part, 100.0 * part.entities / most) for part in parts.largest],
        "hottest": [(part, 100.0 * part.writes / max(writes, 1)) for part in parts.hottest],
    }
    return PageResponse("partitions.html", shows, numbers.to_dict())


def statistics(ask: PageRequest) -> PageResponse:
    """The sizes of the entities and of the indexes of a class."""
    numbers, age = _statistics(ask)
    shows = {
        "found": numbers,
        "age": age,
        "bytes_text": bytes_text,
        "sizes": attrs.asdict(numbers.sizes),
        "price": money_text(numbers.price()),
    }
    return PageResponse("statistics.html", shows, numbers.to_dict())


def advice(ask: PageRequest) -> PageResponse:
    """Advice on the classes, judged by the contents of the store."""
    items, age = _cached(ask, "advice", lambda: ask.store.advise(workload=ask.workload, progress=_step))
    return PageResponse("advice.html", {"advice": items, "age": age}, {"advice": [item.to_dict() for item in items]})
