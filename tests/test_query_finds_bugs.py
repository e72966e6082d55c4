"""The test of the test: each bug that is seeded in the planner, or in its SQL, is found by comparing every plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from hypothesis import Phase, settings

import tablemapper as tm
from tablemapper import planner
from tablemapper.engines.sqlite import selecting
from tablemapper.expressions import Compare
from tablemapper.keys import Template

from . import test_query
from .test_query import Unit

Patch = pytest.MonkeyPatch


def a_bound_made_exclusive(patch: Patch) -> None:
    real = Template.bound

    def bound(self: Template, equal: Any, op: Any = None, *rest: Any, **more: Any) -> Any:
        return real(self, equal, {">=": ">", "<=": "<"}.get(op, op), *rest, **more)

    patch.setattr(Template, "bound", bound)


def a_lost_duplicate_check(patch: Patch) -> None:
    real = planner._ranges
    patch.setattr(planner, "set", list, raising=False)
    patch.setattr(planner, "_ranges", lambda *a: [r for r in real(*a) for _ in (0, 1)])


def an_upper_bound_lost(patch: Patch) -> None:
    real = Template.bound

    def bound(self: Template, *args: Any, **more: Any) -> Any:
        made = real(self, *args, **more)
        return attrs.evolve(made, hi=None) if made.range_field and not made.empty else made

    patch.setattr(Template, "bound", bound)


def a_filter_dropped(patch: Patch) -> None:
    patch.setattr(planner, "_said", lambda predicate, *rest: isinstance(predicate, Compare))


def a_superset_taken_for_exact(patch: Patch) -> None:
    real = Template.bound

    def bound(self: Template, *args: Any, **more: Any) -> Any:
        return attrs.evolve(real(self, *args, **more), inexact=frozenset())

    patch.setattr(Template, "bound", bound)


def a_sparse_index_taken_for_full(patch: Patch) -> None:
    real = planner._unfit

    def unfit(model: Any, index: Any, facts: Any) -> Any:
        why = real(model, index, facts)
        return None if why and "not in it" in why else why

    patch.setattr(planner, "_unfit", unfit)


def a_partial_index_taken_for_full(patch: Patch) -> None:
    real = planner._unfit

    def unfit(model: Any, index: Any, facts: Any) -> Any:
        why = real(model, index, facts)
        return None if why and "only some" in why else why

    patch.setattr(planner, "_unfit", unfit)


def a_direction_ignored(patch: Patch) -> None:
    real = planner._order
    patch.setattr(planner, "_order", lambda *a: (real(*a)[0], False, real(*a)[2]))


def a_shard_forgotten(patch: Patch) -> None:
    real = planner._texts
    patch.setattr(planner, "_texts", lambda *a: list(real(*a))[:2])


def alternatives_cut_short(patch: Patch) -> None:
    real = planner._facts

    def facts(where: Any) -> Any:
        made = real(where)
        return attrs.evolve(made, among={name: values[:1] for name, values in made.among.items()})

    patch.setattr(planner, "_facts", facts)


def partitions_not_merged(patch: Patch) -> None:
    real = planner._order
    patch.setattr(planner, "_order", lambda *a: (*real(*a)[:2], False))


def missing_values_compared_as_sql_does(patch: Patch) -> None:
    real = selecting._lower

    def lower(predicate: Any, *rest: Any) -> Any:
        made = real(predicate, *rest)
        return made and attrs.evolve(made, sql=made.sql.replace("IS NOT TRUE", "IS FALSE"))

    patch.setattr(selecting, "_lower", lower)


def a_page_that_repeats_its_last_row(patch: Patch) -> None:
    real = selecting._after
    patch.setattr(
        selecting,
        "_after",
        lambda *a: attrs.evolve(real(*a), sql=real(*a).sql.replace(") >", ") >=").replace(") <", ") <=")),
    )


BUGS: list[Callable[[Patch], None]] = [
    a_bound_made_exclusive,
    a_lost_duplicate_check,
    an_upper_bound_lost,
    a_filter_dropped,
    a_superset_taken_for_exact,
    a_sparse_index_taken_for_full,
    a_partial_index_taken_for_full,
    a_direction_ignored,
    a_shard_forgotten,
    alternatives_cut_short,
    partitions_not_merged,
    missing_values_compared_as_sql_does,
    a_page_that_repeats_its_last_row,
]


@pytest.fixture
def store(tmp_path: Any) -> Iterator[tm.Store]:
    with tm.open(tmp_path / "q.db", models=[Unit], durability="relaxed") as opened:
        yield opened


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_comparing_every_plan_finds(bug: Callable[[Patch], None], store: tm.Store, monkeypatch: Patch) -> None:
    bug(monkeypatch)
    properties = [
        (test_query.test_partitions_side_by_side_come_in_one_order, test_query.SIDE_BY_SIDE, 100),
        (test_query.test_every_plan_gives_what_a_filter_gives, test_query.EVERY_PLAN, 4000),
    ]

    def test(store: tm.Store) -> None:
        for function, given, examples in properties:
            run = function.hypothesis.inner_test  # type: ignore[attr-defined]
            settings(
                test_query.FEW,
                max_examples=examples,
                derandomize=True,
                report_multiple_bugs=False,
                phases=[Phase.generate],
            )(given(run))(store)

    with pytest.raises(BaseException) as found:
        test(store)
    assert not isinstance(found.value, KeyboardInterrupt)
