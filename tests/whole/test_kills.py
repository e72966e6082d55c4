"""Processes are killed at random over one store; each seeded fault is found so."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tablemapper as tm

from ..migrations.shapes import OLD, OLD_TOTALS, migrate
from .kills import BARE, FAULTS, REWRITE, SCENES, SHELVES, Log, Round, State, entity, play, replay, write

pytestmark = pytest.mark.one_python
SECONDS = float(os.environ.get("TABLEMAPPER_KILL_SECONDS", "60"))
"""For how long processes are killed at full size."""


@pytest.mark.parametrize("name", SCENES)
def test_processes_that_are_killed_lose_nothing_that_was_acknowledged(name: str, tmp_path: Path) -> None:
    _, wrong = play(tmp_path, name, "relaxed", 0, 3)
    assert wrong == []


def test_a_writer_that_a_switch_refuses_leaves_open_what_a_killed_one_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    round = Round(tmp_path, SCENES["rewrite"], "relaxed")
    stored: State = {5: (1, "m1", ["a"]), 6: (2, None, [])}
    with tm.open(round.path, models=[BARE], durability="relaxed") as store:
        killed = Log(tmp_path, 0)
        killed.note("begin", {**stored})
        store.insert_many([entity(BARE, SHELVES[0], number, of) for number, of in stored.items()])
        killed.note("done")
        killed.note("begin", {5: None})
        store.delete(BARE.key(SHELVES[0], 5))
    with tm.open(round.path, models=[OLD, OLD_TOTALS], durability="relaxed"):
        pass
    opened = Round.opened

    def opened_before_the_switch(*args: Any) -> tm.Store | None:
        store = opened(*args)
        if store is not None:
            assert migrate(round.path, REWRITE.script).ok
        return store

    monkeypatch.setattr(Round, "opened", opened_before_the_switch)
    write(round, Random(0), 0)
    assert replay(killed.path) == (1, [stored, {6: stored[6]}], [])


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


QUICK = ["a write is acknowledged before its commit"]  # found at once, however busy the machine is


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_finds_that(fault: str, tmp_path: Path, *, full_size: bool) -> None:
    if fault not in QUICK and not full_size:
        pytest.skip("takes longer")
    kills = 8 if fault in QUICK else 25
    for seed in range(60):  # (one in five finds the one that is hardest to find)
        folder = tmp_path / str(seed)
        folder.mkdir()
        if play(folder, FAULTS[fault][0], "relaxed", seed, kills, fault)[1]:
            return
    raise AssertionError("it is not found")
