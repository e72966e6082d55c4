"""Stores that tests open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tablemapper as tm


@contextmanager
def sound_store(where: Any, **options: Any) -> Iterator[tm.Store]:
    """Open a store in which a check has to find nothing wrong when the block is over."""
    with tm.open(where, **options) as store:
        yield store
        report = store.check()
        assert report.problems == (), str(report)
