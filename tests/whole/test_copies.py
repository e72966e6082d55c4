"""A copy of a random store is the same store, whatever its target held, on a file and in an account."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines import key_order

from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace
from .answers import Trial, random_rows
from .models import Model
from .random_models import random_model, with_levels, with_maintained, with_undeclared
from .stores import opened

pytestmark = [pytest.mark.usefixtures("no_warnings_of_scans"), pytest.mark.file]


def drawn(rng: random.Random, model: Model) -> tuple[Any, ...]:
    return tuple((record.name, row) for record in model.entities for row in random_rows(rng, record, 12))


def content(store: tm.Store, model: Model, names: dict[str, Any]) -> list[str]:
    """Return the entities; what is maintained from them was compared with them."""
    report = store.check()
    assert report.ok, str(report)
    return sorted(
        repr((record.name, [_whole(getattr(one, field.name)) for field in record.own]))
        for record in model.entities
        for one in store.query(names[record.name]).allow_scan()
    )


def _whole(value: Any) -> Any:
    return None if value == tm.Extra() and isinstance(value, tm.Extra) else value  # (an account holds neither)


@pytest.mark.parametrize("part", range(3))
def test_a_copy_of_a_random_store_is_the_same(part: int, full_size: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_order, "_CHUNK", 4)
    accounts = 0
    for seed in range(part * 1_000, part * 1_000 + (300 if full_size else 5)):
        rng = random.Random(seed)
        model = with_undeclared(rng, random_model(rng))
        if part:
            model = with_levels(rng, model)
        if part == 2:
            model = with_maintained(rng, model)
        if any(record.measures and any(one.unique for one in record.indexes) for record in model.records):
            continue  # (two groups can have one value on the way, and for ever if `_ever` keeps what is empty)
        with Trial.open(model, rows=drawn(rng, model)) as source:
            classes = [source.names[record.name] for record in model.records]
            target = opened(":memory:", classes)
            for name, row in drawn(rng, model):
                with suppress(tm.UniqueViolation):
                    target.upsert(source.names[name](**row))

            def same(one: tm.Store, other: tm.Store) -> None:
                tm.copy(one, other)
                assert content(other, model, source.names) == content(one, model, source.names)
                assert tm.copy(one, other).changed == 0

            same(source.store, target)
            try:
                account = tm.open(AzurePlace(memory=Memory()), models=classes)  # type: ignore[arg-type]
            except tm.InvalidModel:
                continue  # (what is not kept there yet)
            with account:
                accounts += 1
                same(source.store, account)
                same(account, target)
    assert accounts > 2 or part == 2
