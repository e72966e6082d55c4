"""Rows of indexes, and groups elsewhere, of random stores are lost: a check sees it, and a repair puts them back."""

from __future__ import annotations

import random

import pytest

import tablemapper as tm
from tablemapper.engines.azure.catalogue.open_classes import OpenClasses
from tablemapper.engines.azure.tables.reserved_names import CATALOGUE, HIDDEN
from tests.stores import repaired
from tests.whole.answers import Trial, random_rows
from tests.whole.judges import same_rows
from tests.whole.models import compiled
from tests.whole.oracle import State
from tests.whole.random_models import random_model, with_levels, with_undeclared

from .memory import Memory
from .place import AzurePlace

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
    for seed in range(part * 1_000, part * 1_000 + (300 if full_size else 15)):
        rng = random.Random(seed)
        model = with_undeclared(rng, random_model(rng))
        model = with_levels(rng, model) if part else model
        names = compiled(model.source())
        memory = Memory()
        try:
            store = tm.open(AzurePlace(memory=memory), models=[names[one.name] for one in model.records])  # type: ignore[arg-type]
        except tm.InvalidModel:
            continue
        with store:
            for record in model.entities:
                for row in random_rows(rng, record, 10):
                    try:
                        store.upsert(names[record.name](**row))
                    except tm.UniqueViolation:
                        continue
            trial = Trial(store, names, State(model))
            trial.take_over()
            trial.compare_all()
            lost = damage(rng, memory, {record.table for record in model.records}, store._engine._classes)  # type: ignore[attr-defined]
            tried += lost
            report = repaired(store)
            assert not report.remaining, (seed, report.remaining)
            before = trial.state
            trial.take_over()  # (what ever was in a group that was lost is gone)
            for record in model.entities:
                same_rows(before.written(record.name), trial.state.written(record.name))
            trial.compare_all()
            trial.compare_indexes()
            fixed += len(report.repaired)
    assert fixed >= tried * 0.5 > 10
