"""Several threads at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Call functions in other threads; return what they return, or raise what one of them raises."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [one.result() for one in [pool.submit(work) for work in works]]
