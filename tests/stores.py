"""Stores that tests open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tablemapper as tm
from tablemapper.entities.aggregates import Aggregate


@contextmanager
def sound_store(where: Any, **options: Any) -> Iterator[tm.Store]:
    """Open a store in which a check has to find nothing wrong when the block is over."""
    with tm.open(where, **options) as store:
        yield store
        report = store.check()
        assert report.problems == (), str(report)


def repaired(store: tm.Store) -> Any:
    """Return the report of a repair; where that leaves nothing, what is maintained has to follow the next writes, too."""
    report = store.repair()
    if report.ok and store.status().frozen is None:
        write_again(store)
        after = store.check()
        assert after.ok, str(after)
    return report


def write_again(store: tm.Store) -> None:
    """Delete, insert and replace some entities of each class, which are as they were in the end."""
    for cls in [one for one in store.classes.values() if not issubclass(one, Aggregate)]:
        for one in list(store.query(cls).allow_scan().limit(2)):
            store.delete(one)
            store.insert(one)
            store.replace(store[one.key])
