"""A few places of a few verbs, other ones for each seed; all of them with --long; and faults that are found so."""

from __future__ import annotations

import inspect
import os
import random
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tablemapper.engines.sqlite.file.database import File
from tablemapper.engines.sqlite.rows.catalogue_cache import CatalogueCache
from tablemapper.engines.sqlite.rows.reads import SqliteReads

from ..conftest import folder_in_memory
from ..interrupts import Where
from . import sweeps
from .sweeps import VERBS, race, sweep, template

pytestmark = [pytest.mark.interrupts, pytest.mark.one_python]
SEED = os.environ.get("TABLEMAPPER_SWEEP_SEED", "1")


@pytest.fixture(scope="module")
def source() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield template(Path(folder))


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize("where", ["delivery", "line", "instruction"])
def test_an_interrupt_at_any_place_of_any_verb_harms_nothing(
    source: Path, where: Where, cold: bool, full_size: bool
) -> None:
    draw = random.Random(f"{SEED} {where} {cold}")
    struck = 0
    for verb in VERBS if full_size else draw.sample(sorted(VERBS), 2):
        _, some, faults = sweep(
            source,
            verb,
            where,
            cold=cold,
            chosen=lambda every: every if full_size and where == "delivery" else draw.sample(every, min(len(every), 3)),
        )
        assert not faults, faults[0]
        struck += some
    assert struck


def test_threads_that_ask_a_new_store_the_same_at_one_time_get_right_answers(source: Path, full_size: bool) -> None:
    first = random.Random(SEED).randrange(1_000_000)
    for seed in range(first, first + (1_000 if full_size else 2)):
        assert race(source, seed) == []


FAULTS: dict[str, tuple[Any, str, str, str, Where]] = {
    "partition": (
        SqliteReads,
        "partition_rows",
        "statement = select, select.partition(layout)",
        'statement = select, ""; statement = select, select.partition(layout)',
        "delivery",
    ),
    "follow": (
        CatalogueCache,
        "catch_up",
        "self.state = self._state(",
        "self.state = CatalogueState(SqliteSchema(self._schema, catalogue, generation, current.ways_back), self.state.gets); "
        "self.state = self._state(",
        "delivery",
    ),
    "get": (File, "seek", "self._reading = 0  # also", "pass  # also", "line"),
}


@pytest.mark.parametrize("verb", FAULTS)
def test_the_sweep_finds_what_is_set_in_two_steps(source: Path, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, whole, in_two_steps, where = FAULTS[verb]
    function = getattr(owner, name)
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(whole) == 1
    scope = dict(function.__globals__)
    exec(compile(text.replace(whole, in_two_steps), function.__code__.co_filename, "exec"), scope)
    monkeypatch.setattr(owner, name, scope[name])
    monkeypatch.setattr(sweeps, "PATIENCE", 1.0)
    _, _, faults = sweep(
        source, verb, where, cold=verb != "get",
        chosen=lambda every: [place for place in every if f" {name}" in place or f".{name}" in place], first=True,
    )  # fmt: skip
    assert faults
