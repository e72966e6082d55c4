"""Rows of indexes, and groups elsewhere, of random stores are lost: a check sees it, and a repair puts them back."""

from __future__ import annotations

import random

import pytest

from tablemapper.engines.azure.catalogue.open_classes import OpenClasses
from tablemapper.engines.azure.tables.reserved_names import CATALOGUE, HIDDEN
from tests.stores import repaired
from tests.whole.judges import same_rows

from .memory import Memory
from .random_stores import random_stores

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")


def damage(rng: random.Random, memory: Memory, tables: set[str], classes: OpenClasses) -> int:
    """Delete some rows of indexes, and some groups in other partitions than their entities; return how many."""
    done = 0
    groups = [one.model for one in classes.outer_aggregates if one.model.name not in classes.unready]
    for name, rows in list(memory.tables.items()):
        if name == CATALOGUE:
            continue
        lost = [key for key in rows if name not in tables or key[1].startswith(' "x')]
        lost += [
            key
            for key in rows
            if key[1] < HIDDEN[0] or key[1] >= HIDDEN[1]
            if any(one.table == name and classes.claims(one, *key) for one in groups)
        ]
        for key in lost:
            if rng.random() < 0.2:
                memory.tables[name] = {other: row for other, row in memory.tables[name].items() if other != key}
                done += 1
    return done


@pytest.mark.parametrize("part", range(2))
def test_what_was_lost_is_put_back(part: int, full_size: bool) -> None:
    fixed = tried = 0
    for random_store in random_stores(range(part * 1_000, part * 1_000 + (300 if full_size else 7)), levels=bool(part)):
        trial = random_store.trial
        lost = damage(
            random_store.rng,
            random_store.memory,
            {record.table for record in random_store.model.records},
            random_store.engine._classes,
        )
        tried += lost
        report = repaired(random_store.store)
        assert not report.remaining, (random_store.seed, report.remaining)
        before = trial.state
        trial.take_over()  # (what ever was in a group that was lost is gone)
        for record in random_store.model.entities:
            same_rows(before.written(record.name), trial.state.written(record.name))
        trial.compare_all()
        trial.compare_indexes()
        fixed += len(report.repaired)
    assert fixed >= tried * 0.5 > 10
