"""The power is cut at random moments of programs; each seeded fault is found so."""

from __future__ import annotations

from pathlib import Path

import pytest

from .power import search, without_syncs

CUTS = 20_000
"""At full size."""
OF_ONE = 250


@pytest.mark.long
def test_what_a_power_cut_leaves_opens_and_holds_all_that_was_acknowledged(tmp_path: Path, *, full_size: bool) -> None:
    cuts = distinct = 0
    for seed in range(CUTS // OF_ONE if full_size else 4):
        found = search(tmp_path, seed, OF_ONE if full_size else 30)
        assert found.wrong == []
        cuts, distinct = cuts + found.cuts, distinct + found.distinct
    assert distinct > cuts / 2


def test_the_power_cuts_find_a_store_that_syncs_nothing(tmp_path: Path) -> None:
    with without_syncs():
        assert any(search(tmp_path, seed, 30).wrong for seed in range(10))
