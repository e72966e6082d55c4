"""The bounds of ranges as SQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ....planning.bounds import EVERYTHING
from ....planning.ranges import KeyRange
from .filters import balanced

_FEW = 50  # conditions that are joined by AND as they are; more are joined in a balanced tree


def all_of(conditions: list[str]) -> str:
    """Return the condition that all of some hold."""
    few = len(conditions) <= _FEW
    return (" AND ".join(conditions) if few else balanced(conditions, " AND ")) or "TRUE"


def alike(ranges: Sequence[KeyRange]) -> bool:
    """Return whether ranges are several partitions with the same row keys: SQLite reads them in order, one by one."""
    return len(ranges) > 1 and all(
        key_range.partition.point and key_range.row == ranges[0].row and key_range.entities is None
        for key_range in ranges
    )


def partitions_sql(ranges: Sequence[KeyRange], at: str) -> tuple[str, list[Any]]:
    """Return the condition that a row is in one of several partitions, and its arguments."""
    rows, args = bounds_sql(KeyRange(EVERYTHING, ranges[0].row), at)
    condition = f'{at}."PartitionKey" IN (SELECT value FROM json_each(?))'
    return f"{condition} AND {rows}" if rows else condition, [
        json.dumps([key_range.partition.lo for key_range in ranges]),
        *args,
    ]


def bounds_sql(key_range: KeyRange, at: str) -> tuple[str, list[Any]]:
    """Return the condition that a row is in a range, and its arguments; ``at``: the alias of the table."""
    conditions: list[str] = []
    args: list[Any] = []
    for bound, column in ((key_range.partition, "PartitionKey"), (key_range.row, "RowKey")):
        if bound.point:
            conditions.append(f'{at}."{column}" = ?')
            args.append(bound.lo)
            continue
        if bound.lo:
            conditions.append(f'{at}."{column}" >= ?')
            args.append(bound.lo)
        if bound.hi is not None:
            conditions.append(f'{at}."{column}" < ?')
            args.append(bound.hi)
    for op, key in zip((">=", "<"), key_range.entities or (), strict=False):
        if key is not None:
            conditions.append(f'({at}."_pk", {at}."_rk") {op} (?, ?)')
            args += key
    return " AND ".join(conditions), args
