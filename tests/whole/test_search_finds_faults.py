"""The test of the test: each fault that is put back is found by the random search."""

from __future__ import annotations

import inspect

import pytest

from . import faults
from .faults import FAULTS, Fault
from .search import LOCAL, search

pytestmark = [pytest.mark.one_python, pytest.mark.usefixtures("no_warnings_of_scans")]
MODELS = 300
"""After so many a fault that is there should have been found from anywhere: that takes about a minute."""
LATER = 10_000_000
"""Where a long run begins, which nobody has chosen."""


def test_every_fault_has_a_model_in_which_it_is_found() -> None:
    defined = inspect.getmembers(faults, lambda one: inspect.isfunction(one) and one.__module__ == faults.__name__)
    assert {name for name, _ in defined if not name.startswith("_")} == {fault.__name__ for fault in FAULTS}
    assert all(type(start) is int for start in FAULTS.values())


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_search_finds(fault: Fault, monkeypatch: pytest.MonkeyPatch, full_size: bool) -> None:
    start = LATER + FAULTS[fault] // LOCAL * LOCAL if full_size else FAULTS[fault]
    fault(monkeypatch)
    assert next(search(range(start, start + MODELS)), None) is not None
