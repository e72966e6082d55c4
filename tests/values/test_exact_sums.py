"""Sums over a long life: bit for bit those of the live values."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from pathlib import Path

import pytest

import tablemapper as tm


class Point(tm.Entity, table="Points"):
    group: tm.Field[str]
    number: tm.Field[int]
    value: tm.Field[float | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{group}", row="{number}")


class Total(tm.Aggregate, of=Point, table="Totals"):
    group: tm.Field[str] = tm.group_by(Point.group)
    points: tm.Field[int] = tm.count()
    total: tm.Field[float | None] = tm.sum(Point.value)
    mean: tm.Field[float | None] = tm.avg(Point.value)

    key = tm.Key[str](partition="{group}")


def draw(rnd: random.Random) -> float | None:
    kind = rnd.randrange(10)
    if kind == 0:
        return None
    if kind == 1:
        return rnd.choice((5e-324, -5e-324, 1e305, -1e305, 2.0**-1022, 0.1, -0.0))
    return rnd.uniform(-1, 1) * 10.0 ** rnd.randrange(-300, 300) if kind < 5 else round(rnd.uniform(0, 100), 2)


@pytest.mark.needs("across_partitions")
@pytest.mark.long
def test_after_many_mixed_writes_every_sum_is_fsum_of_the_live_values(tmp_path: Path, *, full_size: bool) -> None:
    rnd = random.Random(20)
    live: dict[tuple[str, int], float | None] = {}
    writes, numbers = 0, 2000 if full_size else 200
    with tm.open(tmp_path / "sums.db", models=[Point, Total], durability="relaxed") as store:
        while writes < 50 * numbers:
            with store.transaction(across_partitions=True) as tx:
                touched = set()
                for _ in range(numbers // 4):
                    key = (f"g{rnd.randrange(8)}", rnd.randrange(numbers))
                    if key in touched:
                        continue
                    touched.add(key)
                    writes += 1
                    if key in live and rnd.random() < 0.4:
                        tx.delete(Point.key(*key))
                        del live[key]
                        continue
                    live[key] = draw(rnd)
                    if rnd.random() < 0.5:
                        tx.upsert(Point(*key, live[key]))
                    elif store.exists(Point.key(*key)):
                        tx.merge(Point.key(*key), value=live[key])
                    else:
                        tx.insert(Point(*key, live[key]))
        groups: dict[str, list[float | None]] = defaultdict(list)
        for (group, _), value in live.items():
            groups[group].append(value)
        assert len(groups) == 8
        for group, values in groups.items():
            kept = [value for value in values if value is not None]
            found = store[Total.key(group)]
            assert found.points == len(values)
            assert found.total == math.fsum(kept)
            assert found.mean == math.fsum(kept) / len(kept)
        assert store.check().ok
