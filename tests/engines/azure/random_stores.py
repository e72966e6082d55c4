"""Random stores in an account of dicts, with the oracle that knows what is in them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import attrs

import tablemapper as tm
from tablemapper.engines.azure.engine import AzureEngine
from tests.whole.answers import Trial, random_rows
from tests.whole.models import Model, compiled
from tests.whole.oracle import State
from tests.whole.random_models import random_model, with_levels, with_undeclared

from .memory import Memory
from .place import AzurePlace


@attrs.frozen
class RandomStore:
    """A store of a random model with some entities."""

    seed: int
    rng: random.Random
    model: Model
    memory: Memory
    store: tm.Store
    trial: Trial

    @property
    def engine(self) -> AzureEngine:
        assert isinstance(self.store._engine, AzureEngine)
        return self.store._engine


def random_stores(seeds: Iterable[int], *, levels: bool) -> Iterator[RandomStore]:
    """Yield a store for each seed whose model an account takes, with all in it compared once.

    Args:
        levels: whether the models have hierarchies in keys.
    """
    for seed in seeds:
        rng = random.Random(seed)
        model = with_undeclared(rng, random_model(rng))
        model = with_levels(rng, model) if levels else model
        names, memory = compiled(model.source()), Memory()
        try:
            store = tm.open(AzurePlace(memory=memory), models=[names[record.name] for record in model.records])  # type: ignore[arg-type]
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
            yield RandomStore(seed, rng, model, memory, store, trial)
