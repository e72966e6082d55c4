"""The test of the test: each bug that is seeded in the planner, or in its SQL, is found by comparing every plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.engines.sqlite import filters as lowering
from tablemapper.engines.sqlite import select
from tablemapper.expressions.tree import Compare
from tablemapper.keys import codec as keytext
from tablemapper.keys import forms as keyforms
from tablemapper.keys.template import Slot
from tablemapper.planning import planner, ranges
from tablemapper.planning.bounds import Bound, Reach
from tablemapper.planning.plan import Path
from tablemapper.query.prepared import PreparedPlan

from . import test_query
from .test_query import Unit

pytestmark = pytest.mark.one_python
Patch = pytest.MonkeyPatch


def _bounds_with(patch: Patch, change: Callable[[Reach, Bound], Bound]) -> None:
    real = Reach.bound
    patch.setattr(Reach, "bound", lambda self, *rest: change(self, real(self, *rest)))


def _after(patch: Patch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Change what a function returns."""
    real = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **more: change(real(*args, **more)))


def a_bound_made_exclusive(patch: Patch) -> None:
    real = Reach.bound

    def bound(self: Reach, values: Any, compared: Any = (), *rest: Any) -> Bound:
        loose = attrs.evolve(self, ops=self.ops | {">", "<"})
        return real(loose, values, [({">=": ">", "<=": "<"}.get(op, op), value) for op, value in compared], *rest)

    patch.setattr(Reach, "bound", bound)


def an_upper_bound_lost(patch: Patch) -> None:
    _bounds_with(patch, lambda reach, made: attrs.evolve(made, hi=None) if reach.ops and not made.empty else made)


def a_prefix_that_ends_too_late(patch: Patch) -> None:
    _after(patch, keytext, "successor", keyforms.successor)


def a_lost_duplicate_check(patch: Patch) -> None:
    patch.setattr(PreparedPlan, "_is_first", lambda *_: True)


def alternatives_that_overlap(patch: Patch) -> None:
    patch.setattr(ranges, "_disjoint", lambda found: sorted(found, key=lambda one: (one.partition.lo, one.row.lo)))


def an_alternative_lost(patch: Patch) -> None:
    _after(patch, planner, "alternatives", lambda ways: ways[:1])


def a_value_of_a_list_lost(patch: Patch) -> None:
    def shorter(made: Any) -> Any:
        return attrs.evolve(made, among={name: values[:1] for name, values in made.among.items()})

    _after(patch, planner, "conditions", shorter)


def a_shard_forgotten(patch: Patch) -> None:
    _after(patch, ranges, "_texts", lambda texts: list(texts)[:2])


def a_day_forgotten(patch: Patch) -> None:
    _after(patch, Slot, "buckets_between", lambda texts: texts and texts[:-1])


def a_filter_dropped(patch: Patch) -> None:
    patch.setattr(planner, "_is_in_bounds", lambda *given: isinstance(given[-1], Compare))


def a_superset_taken_for_exact(patch: Patch) -> None:
    _after(patch, planner, "reach", lambda made: attrs.evolve(made, inexact=frozenset()))


def a_condition_in_sql_taken_for_exact(patch: Patch) -> None:
    for module in (lowering, select):
        _after(patch, module, "lower", lambda made: made and attrs.evolve(made, exact=True))


def a_sparse_index_taken_for_full(patch: Patch) -> None:
    _after(patch, planner, "_unfit", lambda why: None if why and "not in it" in why else why)


def a_partial_index_taken_for_full(patch: Patch) -> None:
    _after(patch, planner, "_unfit", lambda why: None if why and "only some" in why else why)


def an_index_taken_to_hold_everything(patch: Patch) -> None:
    patch.setattr(Path, "holds", lambda *_: True)


def a_direction_ignored(patch: Patch) -> None:
    _after(patch, planner, "_direction", lambda made: made and (False, made[1]))


def partitions_not_merged(patch: Patch) -> None:
    _after(patch, planner, "_direction", lambda made: made and (made[0], False))


def missing_values_compared_as_sql_does(patch: Patch) -> None:
    def lower(made: Any) -> Any:
        return made and attrs.evolve(made, sql=made.sql.replace("IS NOT TRUE", "IS FALSE"))

    for module in (lowering, select):
        _after(patch, module, "lower", lower)


def a_page_that_repeats_its_last_row(patch: Patch) -> None:
    def with_the_last(left: Any) -> Any:
        return left and attrs.evolve(left, condition=left.condition.replace(") > ", ") >= ").replace(") < ", ") <= "))

    _after(patch, select, "_beyond", with_the_last)


def a_sorted_page_that_loses_what_comes_after_missing_values(patch: Patch) -> None:
    _after(patch, select, "_after_sql", lambda sql: sql.replace("IS NOT NULL", "IS NULL"))


def a_page_that_skips_the_rest_of_its_range(patch: Patch) -> None:
    real = select._beyond

    def beyond(one: Any, after: Any, *rest: Any) -> Any:
        return None if one.partition.lo == after[0] else real(one, after, *rest)

    patch.setattr(select, "_beyond", beyond)


CITY, BUILDING, RENT, OWNER = test_query.CITY, test_query.BUILDING, test_query.RENT, test_query.OWNER
# Each bug with conditions that lead to it, so that few examples find it; all of them lead to it too, in many more.
BUGS: list[tuple[Callable[[Patch], None], tuple[st.SearchStrategy[test_query.Test], ...]]] = [
    (a_bound_made_exclusive, (CITY, BUILDING)),
    (an_upper_bound_lost, (CITY, BUILDING)),
    (a_prefix_that_ends_too_late, (CITY, test_query.STARTS)),
    (a_lost_duplicate_check, (test_query.TAGGED,)),
    (alternatives_that_overlap, (CITY, test_query.EITHER)),
    (an_alternative_lost, (CITY, test_query.EITHER)),
    (a_value_of_a_list_lost, (CITY, BUILDING)),
    (a_shard_forgotten, (test_query.NUMBER,)),
    (a_day_forgotten, (test_query.DAYS,)),
    (a_filter_dropped, (CITY, BUILDING, test_query.NUMBER)),
    (a_superset_taken_for_exact, (OWNER,)),
    (a_condition_in_sql_taken_for_exact, (CITY, RENT)),
    (a_sparse_index_taken_for_full, (OWNER,)),
    (a_partial_index_taken_for_full, (CITY,)),
    (an_index_taken_to_hold_everything, (OWNER,)),
    (a_direction_ignored, (CITY,)),
    (partitions_not_merged, ()),
    (missing_values_compared_as_sql_does, (test_query.combined(OWNER | RENT),)),
    (a_page_that_repeats_its_last_row, (CITY,)),
    (a_sorted_page_that_loses_what_comes_after_missing_values, ()),
    (a_page_that_skips_the_rest_of_its_range, (CITY,)),
]


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Unit]) as opened:
        yield opened


@pytest.mark.parametrize(("bug", "conditions"), BUGS, ids=lambda one: getattr(one, "__name__", ""))
def test_comparing_every_plan_finds(
    bug: Callable[[Patch], None],
    conditions: tuple[st.SearchStrategy[test_query.Test], ...],
    store: tm.Store,
    monkeypatch: Patch,
) -> None:
    bug(monkeypatch)
    properties = [
        (test_query.test_partitions_side_by_side_come_in_one_order, test_query.SIDE_BY_SIDE, 30),
        (
            test_query.test_every_plan_gives_what_a_filter_gives,
            given(
                units=st.lists(test_query.UNITS, min_size=8, max_size=25),
                tests=st.tuples(*conditions),
                order=test_query.ORDERS,
            ),
            1000,
        ),
    ]

    def test(store: tm.Store) -> None:
        for function, examples_of, examples in properties:
            run = function.hypothesis.inner_test  # type: ignore[attr-defined]
            settings(
                max_examples=examples,
                derandomize=True,
                report_multiple_bugs=False,
                phases=[Phase.generate],
            )(examples_of(run))(store)

    with pytest.raises(BaseException) as found:
        test(store)
    assert not isinstance(found.value, KeyboardInterrupt)
