"""What the library advises to declare instead, over the random models: queries get the same answers from it."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
import pytest

import tablemapper as tm
from tests.guidance.test_advisor import pasted

from .answers import Trial, random_rows
from .models import Model, compiled
from .questions import random_question
from .random_models import as_told, random_model, with_levels, with_undeclared

SEEDS = 6


@attrs.frozen
class _Pasted(Model):
    """A model of which some lines were replaced in the source."""

    text: str = ""

    def source(self) -> str:
        return self.text


@pytest.mark.long
@pytest.mark.one_python
def test_what_is_pasted_gives_the_same_answers(full_size: bool, lacks: Callable[[str], bool]) -> None:
    told = 0
    for seed in range(SEEDS * (50 if full_size else 1)):
        draw = random.Random(seed)
        model = with_undeclared(draw, with_levels(draw, random_model(draw)))
        model = as_told(model) if lacks("one_commit") else model
        names = compiled(model.source())
        advice = [one for one in tm.advise([names[one.name] for one in model.records]) if one.declaration is not None]
        if not advice:
            continue
        rows = [(record.name, row) for record in model.entities for row in random_rows(draw, record, 14)]
        with Trial.open(model, rows=rows) as trial:
            questions = [attrs.evolve(random_question(draw, trial.state), scan=True, limit=None) for _ in range(12)]
            answers = [trial.run(f"list({one.text('')})") for one in questions]
            wanted = [one if isinstance(one, Exception) else sorted(trial.rows_of(one), key=repr) for one in answers]
        for one in advice:
            text = pasted(f"\n{model.source()}", one.where, one.declaration or "")
            with Trial.open(_Pasted(model.records, text=text), rows=rows) as trial:
                for question, answer in zip(questions, wanted, strict=True):
                    found = trial.run(f"list({question.text('')})")
                    if isinstance(answer, Exception) or isinstance(found, tm.InvalidEntity):
                        continue  # (a value that no key can hold)
                    assert not isinstance(found, Exception), f"{seed} {one}\n{question}\n{found!r}"
                    assert sorted(trial.rows_of(found), key=repr) == answer, f"{seed} {one}\n{question}"
                    told += 1
    assert told > SEEDS // 3
