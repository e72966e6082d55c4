"""Many writes of all kinds: what is maintained is what a recomputation makes of the rows, bit for bit, however it is asked for.

Maintained fields, indexes over them, groups by day, of places where clocks change too, and indexes on those, all at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

import tablemapper as tm

from .answers import Trial
from .deeds import random_writes
from .models import Model, compiled
from .oracle import State
from .questions import random_asks, random_changes, random_question
from .random_models import as_told, random_model, with_maintained, with_options, with_undeclared

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")
STEPS = 40


def _random_model(seed: int, rng: random.Random) -> Model:
    model = random_model(rng, local=seed % 2 == 1)
    model = with_undeclared(rng, model) if seed % 3 == 2 else model
    model = with_maintained(rng, model, calculated=True)
    return with_options(rng, model) if seed % 4 == 3 else model


def test_what_is_maintained_is_what_a_recomputation_makes(
    tmp_path: Path, full_size: bool, lacks: Callable[[str], bool]
) -> None:
    written = 0
    for seed in range(400 if full_size else 5):
        rng = random.Random(seed)
        model = _random_model(seed, rng)
        if lacks("kept_indexes"):
            bare = [attrs.evolve(one, indexes=()) if one.over else one for one in as_told(model).records]
            model = Model(tuple(bare))
        names = compiled(model.source())
        try:
            store = tm.open(tmp_path / f"{seed}.db", models=[names[one.name] for one in model.records])
        except tm.InvalidModel:
            assert lacks("kept_indexes"), model.source()
            continue
        with store:
            trial = Trial(store, names, State(model))
            for step in range(STEPS):
                writes = random_writes(rng, trial.state)
                if writes is not None and (writes.how == "one" or not lacks("across_partitions")):
                    writes.do(trial)
                    written += 1
                question = random_question(rng, trial.state)
                asks = [*random_asks(rng, trial.state, question), *random_changes(rng, trial.state, question)]
                for ask in asks if question.scan else ():
                    if not lacks("across_partitions" if ask.verb in ("update", "delete") else "sorts"):
                        trial.ask(question, ask)
                if step % 10 == 9:
                    trial.compare_indexes()
                    trial.compare_keys()
    assert written > STEPS
