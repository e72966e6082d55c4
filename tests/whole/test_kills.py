"""Processes are killed at random over one store; each seeded fault is found so."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from .kills import FAULTS, SCENES, play

pytestmark = pytest.mark.one_python
SECONDS = float(os.environ.get("TABLEMAPPER_KILL_SECONDS", "60"))
"""For how long processes are killed at full size."""


@pytest.mark.parametrize("name", SCENES)
def test_processes_that_are_killed_lose_nothing_that_was_acknowledged(name: str, tmp_path: Path) -> None:
    _, wrong = play(tmp_path, name, "relaxed", 0, 6)
    assert wrong == []


@pytest.mark.long
def test_processes_that_are_killed_for_long_lose_nothing(tmp_path: Path, *, full_size: bool) -> None:
    if not full_size:
        pytest.skip("the tests above do it shortly")
    total = Counter[str]()
    start = time.monotonic()
    for seed in count(1):
        for name in SCENES:
            folder = tmp_path / f"{seed}{name}"
            folder.mkdir()
            counts, wrong = play(folder, name, ("relaxed", "full")[seed % 2], seed, 40)
            assert wrong == [], folder
            shutil.rmtree(folder)
            total += counts
        if time.monotonic() > start + SECONDS:
            break
    assert total["kill"] > SECONDS
    assert min(total["abandonment"], total["kill of build between slices"]) > 0, "of groups ahead of a cursor"


QUICK = ["a write is acknowledged before its commit"]  # found at once, however busy the machine is


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_finds_that(fault: str, tmp_path: Path, *, full_size: bool) -> None:
    if fault not in QUICK and not full_size:
        pytest.skip("takes longer")
    kills = 8 if fault in QUICK else 25
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        if play(folder, FAULTS[fault][0], "relaxed", seed, kills, fault)[1]:
            return
    raise AssertionError("it is not found")
