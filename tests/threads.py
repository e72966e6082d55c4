"""Several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def elsewhere(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start ``work`` in another thread; return that, and where its result or error will be."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Call functions in other threads; return what they return, or raise what one of them raises."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [one.result() for one in [pool.submit(work) for work in works]]
