"""Random questions: the answers are what plain Python says, and SQLite does what the plans say; and the test of that test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tablemapper.engines.sqlite.driver.connections import DatabaseLocation
from tablemapper.engines.sqlite.sql import select

from .database import explaining
from .faults import Fault
from .search import LOCAL, Tally, search, shrunk
from .stores import make_sizes_small

pytestmark = [pytest.mark.one_python, pytest.mark.long, pytest.mark.usefixtures("no_warnings_of_scans")]
PART = 2
"""Models that one test tries."""


@pytest.mark.parametrize("part", [0, 1, 2, 3, 4, 5, 6, 8, 20, 21, 40, 60, 61, 80, 81])
def test_answers_are_right_and_sqlite_reads_by_the_bounds_of_the_plan_and_sorts_only_what_that_says(
    part: int, full_size: bool
) -> None:
    tally, start = Tally(), part * LOCAL
    with explaining() as explained:
        failure = next(search(range(start, start + (PART * 600 if full_size else PART)), tally=tally), None)
    assert failure is None, f"\n{shrunk(failure)}"
    assert min(tally.questions, len(explained.plans)) > PART


@pytest.mark.parametrize("part", [0, 1, 20, 80])
def test_they_are_the_same_where_a_few_rows_cross_every_border(
    part: int, full_size: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_sizes_small(monkeypatch)
    start = part * LOCAL
    with explaining():
        failure = next(search(range(start, start + (PART * 300 if full_size else PART))), None)
    assert failure is None, f"with small sizes:\n{failure}"


# ---------------------------------------------------------------------------------------------- the test of the test


def _written(patch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Change the text of SELECTs."""
    for name in ("_ranged", "_sorted_text"):
        real = getattr(select.Select, name)
        patch.setattr(select.Select, name, lambda *args, real=real, **more: change(real(*args, **more)))


def a_bound_that_sqlite_cannot_search_by(patch: pytest.MonkeyPatch) -> None:
    _written(patch, lambda sql: sql.replace('t."PartitionKey" >=', '+t."PartitionKey" >='))


def a_bound_of_rows_that_is_only_checked(patch: pytest.MonkeyPatch) -> None:
    _written(patch, lambda sql: sql.replace('t."RowKey" <', '+t."RowKey" <'))


def an_order_that_the_path_gives_sorted_again(patch: pytest.MonkeyPatch) -> None:
    _written(patch, lambda sql: sql.replace('ORDER BY t."PartitionKey",', 'ORDER BY +t."PartitionKey",'))


def a_table_joined_by_an_index_of_sqlites_own(patch: pytest.MonkeyPatch) -> None:
    _written(patch, lambda sql: sql.replace('t."PartitionKey" = i.', '+t."PartitionKey" = i.'))
    real = DatabaseLocation._harden

    def harden(self: DatabaseLocation, connection: Any, **more: Any) -> None:
        real(self, connection, **more)
        connection.execute("PRAGMA automatic_index = 1")

    patch.setattr(DatabaseLocation, "_harden", harden)


@pytest.mark.parametrize(
    ("fault", "start"),
    [
        (a_bound_that_sqlite_cannot_search_by, 0),
        (a_bound_of_rows_that_is_only_checked, 0),
        (an_order_that_the_path_gives_sorted_again, 0),
        (a_table_joined_by_an_index_of_sqlites_own, 0),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_sqlite_says_tells_of(fault: Fault, start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with explaining():
        assert next(search(range(start, start + 100)), None) is not None
