"""Damaged files and catalogues: whatever is done with them, nothing but the library's own errors comes, and at once."""

from __future__ import annotations

import pytest

from ..hostile.runs import Finding, findings

FILES, CATALOGUES = 10_000, 2_000


def lines(found: list[Finding]) -> str:
    return "\n".join(map(str, found[:50]))


@pytest.mark.long
def test_damaged_files_give_own_errors_only(full_size: bool) -> None:
    found = findings((f"h{n}" for n in range(FILES if full_size else 8)), processes=2 if full_size else 1)
    assert not found, lines(found)


@pytest.mark.long
def test_damaged_catalogues_give_own_errors_only(full_size: bool) -> None:
    numbers = range(CATALOGUES if full_size else 8)
    found = findings((f"{kind}{n}" for n in numbers for kind in "cmb"), processes=2 if full_size else 1)
    assert not found, lines(found)


def test_the_harness_sees_foreign_errors_and_hangs() -> None:
    found = findings([*(f"control h{n}" for n in range(60)), "endless", "h0"])
    assert len({one.case for one in found}) > 10
    assert len({one.error.partition(":")[0] for one in found} - {"hang"}) > 2
    assert [one.error for one in found if one.case == "endless"] == ["hang"]


def test_a_damaged_catalogue_does_not_blame_the_classes_of_the_program() -> None:
    found = findings(["c11", "b118"])
    assert not found, lines(found)
