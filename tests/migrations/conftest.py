"""Migrations in small steps."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import tablemapper as tm
from tablemapper.migrations import runner
from tablemapper.store import builds

from .shapes import BARE, OLD, OLD_TOTALS, STOCK, insert, parts, stocks


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store of the old version, with entities of each class that the cases change."""
    with tm.open(tmp_path / "s.db", models=[OLD, OLD_TOTALS, STOCK], durability="relaxed") as store:
        store.insert_many(parts(30, random.Random(1)))
        store.insert_many(stocks())
    return tmp_path / "s.db"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Return a store of 30 parts, without indexes and aggregates."""
    path = tmp_path / "bare.db"
    insert(path, *[BARE("a", number, price=str(number), maker=None, tags=["x"]) for number in range(30)])
    return path


@pytest.fixture
def batches_of_seven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each transaction of a migration convert seven entities, however fast it is."""
    monkeypatch.setattr(runner, "FIRST", 7)
    monkeypatch.setattr(builds, "steered", lambda most, _taken, _hold: min(most, 7))
