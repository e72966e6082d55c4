"""The pages of all that a store holds: the model's picture, partitions, statistics, advice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import attrs

from ..datetime_types import Builtin
from ..diagrams.markup import text
from ..diagrams.svg import svg
from ..diagrams.trees import trees_of
from ..engines.statistics import Statistics
from ..errors import QueryStopped
from ..planning.cost import bytes_text, money_text
from ..progress import Progress, check_cancelled
from .views import PageRequest, PageResponse, following, page_of_classes

T = TypeVar("T")
_KEPT = timedelta(minutes=1)  # for which what reads much is kept
_LONGEST = 20.0  # seconds that it may take
_PARTITIONS = 50


def _utc_now() -> datetime:
    return Builtin.datetime.now(UTC)


class TimedCache:
    """A cache of expensive results: one request at a time computes them, and they stay for a minute."""

    def __init__(self, now: Callable[[], datetime] = _utc_now) -> None:
        self.now = now
        self._lock = threading.Lock()
        self._values: dict[str, tuple[datetime, Any]] = {}

    def get(self, name: str, make: Callable[[], T], *, fresh: bool = False) -> tuple[T, datetime]:
        """Return the value that was made under a name within the last minute, else a new one; and when it was made.

        Args:
            fresh: whether to make it again.
        """
        with self._lock:
            entry = self._values.get(name)
            if fresh or entry is None or not timedelta() <= self.now() - entry[0] <= _KEPT:
                value = make()
                entry = self._values[name] = self.now(), value
            moment, result = entry
            return result, moment


def picture(ask: PageRequest) -> tuple[str, str]:
    """Return the picture of the classes of a page as SVG and as text."""
    states = {item.where: item.state for item in ask.store.status().objects if item.state != "ready"}
    classes = ask.store.classes
    trees = trees_of([classes[name] for name in page_of_classes(ask)], states)
    return svg(trees), text(trees)


def model(ask: PageRequest) -> PageResponse:
    """The picture of the classes, and the same as text."""
    drawn, plain = picture(ask)
    return PageResponse("model.html", {"drawn": drawn, "text": plain, "next": following(ask)}, {"text": plain})


def _step(verb: str) -> Callable[[Progress], None]:
    """Return what ends a long reading if nobody waits for it any more, or if it keeps others waiting."""
    until = time.monotonic() + _LONGEST

    def step(_: Progress) -> None:
        check_cancelled()
        if time.monotonic() > until:
            raise QueryStopped(f"this takes more than {_LONGEST:g} s here; from a shell: tablemapper {verb}")

    return step


def _cached(ask: PageRequest, name: str, make: Callable[[], T]) -> tuple[T, datetime]:
    cache: TimedCache = ask.cache
    return cache.get(name, make, fresh=ask.params.get("fresh") == "1")


def _statistics(ask: PageRequest) -> tuple[Statistics, datetime]:
    cls = ask.cls
    return _cached(
        ask,
        f"statistics {ask.name}",
        lambda: ask.store.statistics(cls, top=_PARTITIONS, progress=_step(f"stats … {ask.name}")),
    )


def partitions(ask: PageRequest) -> PageResponse:
    """The largest and the hottest partitions of a class."""
    numbers, read = _statistics(ask)
    parts = numbers.partitions
    most = max([part.entities for part in parts.largest], default=1)
    writes = max([part.writes for part in parts.hottest], default=1)
    shows = {
        "found": numbers,
        "largest": [(part, 100.0 * part.entities / most) for part in parts.largest],
        "hottest": [(part, 100.0 * part.writes / max(writes, 1)) for part in parts.hottest],
    }
    return PageResponse("partitions.html", shows, numbers.to_dict(), read=read)


def statistics(ask: PageRequest) -> PageResponse:
    """The sizes of the entities and of the indexes of a class."""
    numbers, read = _statistics(ask)
    shows = {
        "found": numbers,
        "bytes_text": bytes_text,
        "sizes": attrs.asdict(numbers.sizes),
        "price": money_text(numbers.price()),
    }
    return PageResponse("statistics.html", shows, numbers.to_dict(), read=read)


def advice(ask: PageRequest) -> PageResponse:
    """Advice on the classes, judged by the contents of the store."""
    items, read = _cached(ask, "advice", lambda: ask.store.advise(workload=ask.workload, progress=_step("advise …")))
    json = {"advice": [item.to_dict() for item in items]}
    return PageResponse("advice.html", {"advice": items}, json, read=read)
