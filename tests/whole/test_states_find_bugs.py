"""The test of the test: each bug that is seeded in the core is found by the state machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tablemapper.engines.sqlite.driver import timestamps
from tablemapper.engines.sqlite.rows import maintenance_writer, write_hooks, writes
from tablemapper.schema import maintenance as changes
from tablemapper.verbs.operations import Operations

from ..machine import Machine

pytestmark = pytest.mark.one_python
Patch = pytest.MonkeyPatch


def etags_are_ignored(patch: Patch) -> None:
    real = Operations.replace
    patch.setattr(Operations, "_condition", lambda self, operation, entity, if_match: None)
    patch.setattr(Operations, "replace", lambda self, entity, if_match: real(self, entity, "*"))


def a_change_leaves_the_old_index_row(patch: Patch) -> None:
    real = write_hooks.write_indexes

    def write(lowered: Any, writer: Any, change: Any) -> None:
        for one in change.indexes.values():
            if one.puts:
                one.deletes.clear()
        real(lowered, writer, change)

    patch.setattr(write_hooks, "write_indexes", write)


def what_was_there_is_not_taken_off_an_aggregate(patch: Patch) -> None:
    real = changes.aggregate_maintenance

    def maintenance_writer(model: Any, target: Any) -> Any:
        kept = real(model, target)
        return attrs.evolve(kept, collect=lambda rows, groups, sign: sign > 0 and kept.collect(rows, groups, sign))

    patch.setattr(changes, "aggregate_maintenance", maintenance_writer)


def _advance_groups_by(patch: Patch, advance: Callable[..., Any]) -> None:
    """Let a function, which is given the right one, change groups."""
    real = changes.aggregate_maintenance

    def maintenance_writer(model: Any, target: Any) -> Any:
        kept = real(model, target)

        def advanced(pk: str, rk: str, timestamp: int, *given: Any) -> Any:
            return advance(kept.aggregate, lambda *other: kept.advance(pk, rk, timestamp, *other), *given)

        return attrs.evolve(kept, advance=advanced)

    patch.setattr(changes, "aggregate_maintenance", maintenance_writer)


def the_extremum_is_not_sought_again(patch: Patch) -> None:
    def advance(aggregate: Any, go_on: Any, stored: Any, delta: Any, seek: Any) -> Any:
        before = [] if stored is None else aggregate.unpack(stored[-1])
        return go_on(stored, delta, lambda slot, end: before[slot + 1][0 if end == "min" else -1])

    _advance_groups_by(patch, advance)


def entities_are_committed_before_their_indexes(patch: Patch) -> None:
    real = write_hooks.write_indexes

    def write(lowered: Any, writer: Any, change: Any) -> None:
        writer.execute("COMMIT")
        writer.execute("BEGIN IMMEDIATE")
        real(lowered, writer, change)

    patch.setattr(write_hooks, "write_indexes", write)


def unique_values_are_judged_before_the_old_ones_are_gone(patch: Patch) -> None:
    def write(lowered: Any, writer: Any, change: Any) -> None:
        for index, one in change.indexes.items():
            maintenance_writer._put(lowered, index, writer, one)
        for one in change.indexes.values():
            one.puts, one.rewrites = [], []
        real(lowered, writer, change)

    real = write_hooks.write_indexes
    patch.setattr(write_hooks, "write_indexes", write)


def time_starts_again_when_a_store_is_opened(patch: Patch) -> None:
    def begin(self: Any, connection: Any) -> int:
        real(self, connection)
        counts[id(self)] = counts.get(id(self), 0) + 1
        return counts[id(self)]

    counts: dict[int, int] = {}
    real = timestamps.Timestamps.begin
    patch.setattr(timestamps.Timestamps, "begin", begin)


def large_values_stay_when_their_entity_goes(patch: Patch) -> None:
    patch.setattr(writes, "_drop_big", lambda statements, writer, group: None)


def a_group_stays_when_its_entities_go(patch: Patch) -> None:
    _advance_groups_by(patch, lambda aggregate, go_on, stored, delta, seek: go_on(stored, delta, seek) or stored)


def a_projection_is_not_rewritten(patch: Patch) -> None:
    real = changes.ChangeSet._difference

    def difference(self: Any, change: Any, before: Any, after: Any) -> None:
        real(self, change, before, after)
        change.rewrites.clear()

    patch.setattr(changes.ChangeSet, "_difference", difference)


def a_group_that_empties_leaves_its_index_rows(patch: Patch) -> None:
    real = changes.ChangeSet.removed

    def removed(self: Any, kept: Any, rows: Any) -> None:
        if not any(index.owner.aggregate for index in kept.indexes):
            real(self, kept, rows)

    patch.setattr(changes.ChangeSet, "removed", removed)


def ever_forgets_with_its_entities(patch: Patch) -> None:
    def advance(aggregate: Any, go_on: Any, stored: Any, delta: Any, seek: Any) -> Any:
        after = go_on(stored, delta, seek)
        return after if after is not None and aggregate.unpack(after[-1])[0] else None

    _advance_groups_by(patch, advance)


def a_merge_writes_only_what_it_was_given(patch: Patch) -> None:
    real = Operations.merge

    def merging(self: Any, key: Any, assignments: Any, values: Any, if_match: Any) -> Any:
        operation = real(self, key, assignments, values, if_match)
        change = operation.change

        def forgetful(old: Any) -> Any:
            new = change(old)
            return (*new[:-1], None)

        operation.change = forgetful
        return operation

    patch.setattr(Operations, "merge", merging)


BUGS: dict[Callable[[Patch], None], int] = {
    etags_are_ignored: 7, a_change_leaves_the_old_index_row: 6, what_was_there_is_not_taken_off_an_aggregate: 7,
    the_extremum_is_not_sought_again: 7, entities_are_committed_before_their_indexes: 3,
    unique_values_are_judged_before_the_old_ones_are_gone: 6, time_starts_again_when_a_store_is_opened: 6,
    large_values_stay_when_their_entity_goes: 7, a_group_stays_when_its_entities_go: 7,
    a_group_that_empties_leaves_its_index_rows: 7, a_projection_is_not_rewritten: 7,
    ever_forgets_with_its_entities: 7, a_merge_writes_only_what_it_was_given: 7,
}  # fmt: skip
"""Each with the seed that finds it soonest, with most versions of Hypothesis."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_state_machine_finds(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    bug(monkeypatch)
    quick = settings(
        max_examples=15, stateful_step_count=25, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False
    )
    # A run begins with small examples: several short ones find more in the same time.
    for start in (BUGS[bug], *range(1, 11)):
        try:
            run_state_machine_as_test(seed(start)(type("Start", (Machine,), {})), settings=quick)
        except KeyboardInterrupt:
            raise
        except BaseException:
            return
    pytest.fail("it was not found")
