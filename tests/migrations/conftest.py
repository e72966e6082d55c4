"""Migrations in small steps."""

from __future__ import annotations

import pytest

from tablemapper.migrations import run


@pytest.fixture
def batches_of_seven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each transaction of a migration convert seven entities, however fast it is."""
    monkeypatch.setattr(run, "FIRST", 7)
    monkeypatch.setattr(run, "steered", lambda most, _taken, _hold: min(most, 7))
