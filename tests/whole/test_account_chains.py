"""Random chains of migrations in an account."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .account_chains import play_in_account

pytestmark = [pytest.mark.one_python, pytest.mark.file]


def test_random_chains_lead_in_an_account_where_they_should(tmp_path: Path, *, full_size: bool) -> None:
    counts: Counter[str] = Counter()
    for seed in range(150 if full_size else 2):
        counts += play_in_account(seed, tmp_path)
    if full_size:
        assert [what for what in ("join", "resolve", "rewrite", "rekey", "convert", "fill") if not counts[what]] == []
