"""Whoever looks into a random store sees all of it: no page of the inspector fails, and a value as it is shown finds its entity."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tablemapper as tm
from tablemapper.interchange.parsing import condition

from ..viewer.visits import links, visit
from .answers import Trial, random_rows
from .random_models import random_model, with_levels, with_maintained, with_undeclared

pytestmark = [pytest.mark.usefixtures("no_warnings_of_scans"), pytest.mark.file]
PAGES = 60  # of a store


def seeds(part: int, full_size: bool) -> range:
    return range(part * 1_000, part * 1_000 + (150 if full_size else 2))


def random_store(seed: int, part: int) -> Any:
    rng = random.Random(seed)
    model = with_undeclared(rng, random_model(rng))
    if part:
        model = with_maintained(rng, with_levels(rng, model))
    rows = tuple((record.name, row) for record in model.entities for row in random_rows(rng, record, 10))
    return Trial.open(model, rows=rows)


def crawl(app: Any) -> int:
    """Follow the links of the overview; return how many pages there were."""
    waiting, seen = deque(["/"]), {"/"}
    while waiting and len(seen) < PAGES:
        url = waiting.popleft()
        answer = visit(app, url)
        # (A condition that a page offers may need a scan, which the next page offers.)
        assert answer.status_code == 200 or "scan=1" in answer.text, (url, answer.text[-600:])
        for link in links(answer) if "html" in answer.headers["content-type"] else ():
            is_empty_form = link.startswith("/entity/") and "?" not in link  # (which asks for a key)
            if link.startswith("/") and link not in seen and not is_empty_form:
                seen.add(link)
                waiting.append(link)
    return len(seen)


@pytest.mark.parametrize("part", range(2))
def test_every_page_of_a_random_store_is_shown(part: int, full_size: bool, tmp_path: Path) -> None:
    for seed in seeds(part, full_size):
        with random_store(seed, part) as trial:
            trial.store.backup(place := tmp_path / f"{seed}.db")
        with tm.open(place, read_only=True) as store:
            assert crawl(tm.inspector(store)) > 8


@pytest.mark.parametrize("part", range(2))
def test_a_value_as_it_is_shown_finds_its_entity(part: int, full_size: bool) -> None:
    found = 0
    for seed in seeds(part, full_size):
        with random_store(seed, part) as trial:
            for record in trial.state.model.records:
                cls = trial.names[record.name]
                for entity in list(trial.store.query(cls).allow_scan()):
                    shown = msgspec.json.decode(tm.to_json(entity))
                    for field in record.fields:
                        if isinstance(getattr(entity, field.name), tm.Extra):
                            continue  # (whose properties stand beside the others)
                        value = shown.get(field.name)
                        if isinstance(value, int) and abs(value) >= 2**63:
                            continue  # (a sum, which no condition compares with so much)
                        text = (
                            f"{field.name} is null"
                            if value is None
                            else f"{field.name}=={msgspec.json.encode(value).decode()}"
                        )
                        try:
                            asked = condition(cls, text)
                        except tm.InvalidQuery as error:
                            assert "compare" in str(error), (text, error)
                            continue
                        keys = [one.key for one in trial.store.query(cls).where(asked).allow_scan()]
                        assert entity.key in keys, (seed, text)
                        found += 1
    assert found > 40
