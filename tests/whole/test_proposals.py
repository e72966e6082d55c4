"""What a refused query is told to declare, over the random models: it can be declared, it serves, nothing else is found."""

from __future__ import annotations

import random
import re

import attrs
import pytest

import tablemapper as tm

from .answers import Trial, random_rows
from .judges import Named
from .questions import Question, random_question
from .random_models import random_model, with_levels, with_undeclared

SEEDS = 15


@pytest.mark.needs("backward", "sorts")
@pytest.mark.long
@pytest.mark.one_python
def test_a_proposal_can_be_declared_and_serves_the_query_with_the_same_answer(full_size: bool) -> None:
    served = 0
    for seed in range(SEEDS * (80 if full_size else 1)):
        draw = random.Random(seed)
        model = with_undeclared(draw, with_levels(draw, random_model(draw, local=seed % 2 == 1)))
        rows = [(record.name, row) for record in model.entities for row in random_rows(draw, record, 14)]
        with Trial.open(model, rows=rows) as trial:
            refused = list[tuple[Question, str, list[Named]]]()
            for _ in range(12):
                question = attrs.evolve(random_question(draw, trial.state), scan=False)
                error = trial.run(f"list({question.text('')})")
                if isinstance(error, tm.ScanRefused) and len(question.of) == 1:
                    wanted = trial.run(f"list({attrs.evolve(question, scan=True).text('')})")
                    assert not isinstance(wanted, Exception), wanted
                    refused.append((question, str(error), trial.rows_of(wanted)))
        for question, text, wanted in refused:
            for declared in re.findall(r"index would serve it:\n    (.+)\n", text):
                name = question.of[0]
                records = [
                    attrs.evolve(one, lines=(*one.lines, f"    {declared}")) if one.name == name else one
                    for one in model.records
                ]
                try:
                    with Trial.open(attrs.evolve(model, records=tuple(records)), rows=rows) as trial:
                        found = trial.run(f"list({question.text('')})")
                        found = found if isinstance(found, Exception) else sorted(trial.rows_of(found), key=repr)
                except tm.InvalidEntity:  # a value that no key can hold
                    continue
                assert not isinstance(found, Exception), f"{seed} {question}\n{text}\n{found}"
                assert question.limit is not None or found == sorted(wanted, key=repr), f"{seed} {text}"
                served += 1
    assert served > SEEDS // 3
