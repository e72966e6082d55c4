"""Stores of the random search: what its programs open, and what they do with a store in more than one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines import locations
from tablemapper.execution.prepared import BatchLimits
from tablemapper.schema.model import compile_schema

_NOW = 1_767_225_600_000_000
_SMALL: dict[str, dict[str, int]] = {
    "engines.sqlite.rows.atomic_load": {"_CHUNK": 2}, "engines.sqlite.rows.reads": {"_CHUNK": 2, "_FIRST": 2},
    "engines.sqlite.rows.catalogue_cache": {"_FEW": 1, "_MOST_KEYS": 2}, "engines.sqlite.rows.writes": {"_CHUNK": 2},
    "engines.sqlite.sql.filters": {"MAX_LIST": 2}, "engines.sqlite.sql.ranges": {"_FEW": 1},
    "execution.column_reader": {"FEW": 1}, "execution.prepared": {"MAX_PLANS": 3},
    "planning.conditions": {"MAX_ALTERNATIVES": 3}, "planning.planner": {"MAX_RANGES": 2},
    "planning.ranges": {"MAX_RANGES": 2}, "query.arrow_batches": {"ROWS": 2}, "query.column_results": {"ROWS": 2},
    "query.writing": {"MAX_PLANS": 3, "_EXAMINED": 1, "_SPOOL": 64}, "edits.assignments": {"MAX_FUNCTIONS": 2},
}  # fmt: skip
"""How many rows, ranges, values or plans are taken at once, in each module."""


def make_sizes_small(patch: pytest.MonkeyPatch) -> None:
    """Let a few rows cross every border between what is read, planned, kept or written at once."""
    for module, sizes in _SMALL.items():
        for name, size in sizes.items():
            patch.setattr(f"tablemapper.{module}.{name}", size)
    patch.setattr("tablemapper.execution.prepared.BatchLimits", partial(BatchLimits, in_memory=3))


def opened(path: str, models: Sequence[type[tm.Record]]) -> tm.Store:
    """Open a store whose clock stands still, so that the same writes always have the same times."""
    schema = compile_schema(models)
    options: Any = {"durability": "relaxed", "clock": lambda: _NOW}
    return tm.Store(locations.place_of(path).open(schema, **({"timeout": None} | options)))


def if_there(store: tm.Store, required: Any, write: Callable[[tm.Transaction], object]) -> None:
    """Write in a transaction that depends on what is required."""
    with store.transaction(across_partitions=True) as tx:
        tx.require(required)
        write(tx)


def together(store: tm.Store, writes: Sequence[Callable[[tm.Transaction], object]]) -> None:
    """Write in one transaction."""
    with store.transaction(across_partitions=True) as tx:
        for write in writes:
            write(tx)


def back_and_forth(cls: Any, entity: Any) -> list[Any]:
    """Return what comes back of an entity through dicts and JSON; the last two know its ETag."""
    texts = [tm.to_json(entity), tm.to_json(entity, etag=True)]
    dicts = [tm.to_dict(entity), tm.to_dict(entity, etag=True)]
    ways = [tm.from_dict(cls, dicts[0]), tm.from_json(cls, texts[0])]
    return [*ways, tm.from_dict(cls, dicts[1]), tm.from_json(cls, texts[1])]


def outdated(store: tm.Store, key: Any, *assignments: Any, **values: Any) -> Any:
    """Return an entity as it was before a merge."""
    entity = store[key]
    store.merge(key, *assignments, **values)
    return entity
