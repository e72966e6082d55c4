"""Faults to be put back: the planner, its SQL and what reads its rows, each broken in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import pytest

from tablemapper.edits import assignments
from tablemapper.engines import check
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.rows import maintenance_writer, reads, truncate, write_hooks, writes
from tablemapper.engines.sqlite.sql import filters, select
from tablemapper.entities import class_body, timestamp_attribute
from tablemapper.execution import prepared
from tablemapper.execution.prepared import PreparedPlan
from tablemapper.execution.totals import GroupedQuery
from tablemapper.expressions import tree
from tablemapper.expressions.tree import Compare, In, SameText
from tablemapper.keys import encodings, truncation
from tablemapper.keys.truncation import Truncation
from tablemapper.planning import (
    conditions,
    planner,
    projection,
    query_parts,
    query_spec,
    ranges,
    scan_refusal,
    skip_scan,
)
from tablemapper.planning.bounds import Bound, KeyBounds
from tablemapper.planning.plan import AccessPath, Plan
from tablemapper.planning.skip_scan import SkipScan
from tablemapper.query import mixed
from tablemapper.schema import aggregate_model, rows
from tablemapper.values import parts

from .search import DEEDS, LOCAL, MAINTAINED, RULES, TURNED, UNDECLARED

Patch = pytest.MonkeyPatch
Fault: TypeAlias = Callable[[Patch], None]


def _bounds_with(patch: Patch, change: Callable[[KeyBounds, Bound], Bound]) -> None:
    real = KeyBounds.bound
    patch.setattr(KeyBounds, "bound", lambda self, *rest: change(self, real(self, *rest)))


def _after(patch: Patch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Change what a function returns."""
    real = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **more: change(real(*args, **more)))


def a_bound_made_exclusive(patch: Patch) -> None:
    real = KeyBounds.bound

    def bound(self: KeyBounds, values: Any, compared: Any = (), *rest: Any) -> Bound:
        loose = attrs.evolve(self, ops=self.ops | {">", "<"})
        return real(loose, values, [({">=": ">", "<=": "<"}.get(op, op), value) for op, value in compared], *rest)

    patch.setattr(KeyBounds, "bound", bound)


def an_upper_bound_lost(patch: Patch) -> None:
    _bounds_with(patch, lambda reach, made: attrs.evolve(made, hi=None) if reach.ops and not made.empty else made)


def a_prefix_that_ends_too_late(patch: Patch) -> None:
    _after(patch, encodings, "successor", encodings.successor)


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
    _after(patch, ranges, "_texts", lambda encodings: list(encodings)[:2])


def a_day_forgotten(patch: Patch) -> None:
    _after(patch, ranges, "_buckets", lambda buckets: buckets[:-1])


def a_time_of_day_compared_on_every_day(patch: Patch) -> None:
    patch.setattr(ranges, "_within", lambda access, compared, encodings: compared)


def days_taken_for_hours(patch: Patch) -> None:
    patch.setattr(planner, "is_within", lambda *_: True)


def a_filter_dropped(patch: Patch) -> None:
    patch.setattr(planner, "_is_in_bounds", lambda *given: isinstance(given[-1], Compare))


def a_superset_taken_for_exact(patch: Patch) -> None:
    _after(patch, planner, "reach", lambda made: attrs.evolve(made, inexact=frozenset()))


def a_condition_in_sql_taken_for_exact(patch: Patch) -> None:
    for module in (filters, select):
        _after(patch, module, "lower", lambda made: made and attrs.evolve(made, exact=True))


def a_sparse_index_taken_for_full(patch: Patch) -> None:
    _after(patch, planner, "_unfit", lambda why: None if why and "not in it" in why else why)


def a_partial_index_taken_for_full(patch: Patch) -> None:
    _after(patch, planner, "_unfit", lambda why: None if why and "only some" in why else why)


def an_index_taken_to_hold_everything(patch: Patch) -> None:
    patch.setattr(AccessPath, "holds", lambda *_: True)


def a_direction_ignored(patch: Patch) -> None:
    _after(patch, planner, "_direction", lambda made: made and (False, *made[1:]))


def partitions_not_merged(patch: Patch) -> None:
    _after(patch, planner, "_direction", lambda made: made and (made[0], False, *made[2:]))


def missing_values_compared_as_sql_does(patch: Patch) -> None:
    def lower(made: Any) -> Any:
        return made and attrs.evolve(made, sql=made.sql.replace("IS NOT TRUE", "IS FALSE"))

    for module in (filters, select):
        _after(patch, module, "lower", lower)


def a_page_that_repeats_its_last_row(patch: Patch) -> None:
    def with_the_last(left: Any) -> Any:
        return left and attrs.evolve(left, condition=left.condition.replace(") > ", ") >= ").replace(") < ", ") <= "))

    _after(patch, select, "rest_of", with_the_last)


def a_sorted_page_that_loses_what_comes_after_missing_values(patch: Patch) -> None:
    _after(patch, select, "after_sql", lambda sql: sql.replace("IS NOT NULL", "IS NULL"))


def a_page_that_skips_the_rest_of_its_range(patch: Patch) -> None:
    real = select.rest_of

    def beyond(one: Any, after: Any, *rest: Any) -> Any:
        return None if one.partition.lo == after[0] else real(one, after, *rest)

    patch.setattr(select, "rest_of", beyond)


def classes_that_are_merged_forwards(patch: Patch) -> None:
    real = mixed._ranked
    patch.setattr(mixed, "_ranked", lambda place, order, *, backwards: real(place, order, backwards=False))


def a_partition_without_the_rows_of_other_classes(patch: Patch) -> None:
    real = SqliteEngine.partition

    def partition(self: SqliteEngine, table: str, text: str) -> Any:
        first = None
        for chunk in real(self, table, text):
            first = first or chunk[0][0]
            yield [one for one in chunk if one[0] is first]

    patch.setattr(SqliteEngine, "partition", partition)


# ---------------------------------------------------------------------------------------------- once found from outside


def a_zero_that_groups_as_nothing_does(patch: Patch) -> None:
    def place(self: Any, group: tuple[Any, ...]) -> list[Any]:
        pairs = zip(self._by, group, strict=True)
        return [(one is not None, one and aggregate_model.store_sortable(attr.type, one)) for attr, one in pairs]

    patch.setattr(GroupedQuery, "_place", place)


def a_whole_list_taken_for_an_element(patch: Patch) -> None:
    real = conditions._add

    def add(made: Any, predicate: Any, name: str) -> bool:
        match predicate:
            case Compare(op="==", value=value):
                return made.equal.setdefault(name, value) is value
            case In(values=values):
                return made.among.setdefault(name, values) is values
        return real(made, predicate, name)

    patch.setattr(conditions, "_add", add)


def a_stored_key_field_sought_in_the_index(patch: Patch) -> None:
    real = projection._in_keys

    def in_keys(path: AccessPath, *, covering: bool) -> dict[str, Any]:
        stored = path.model.position if covering else ()
        held = real(path, covering=covering).items()
        return {name: place for name, place in held if name not in stored or place[0] in ("ipk", "irk")}

    patch.setattr(projection, "_in_keys", in_keys)


def a_whole_key_that_forgets_the_other_conditions(patch: Patch) -> None:
    real = PreparedPlan.__init__

    def init(self: PreparedPlan, reader: Any, plan: Plan, *rest: Any, **more: Any) -> None:
        real(self, reader, plan, *rest, **more)
        if self.whole and plan.filter:
            other = object.__new__(PreparedPlan)
            real(other, reader, attrs.evolve(plan, filter=()), *rest, **more)
            self.key = other.key

    patch.setattr(PreparedPlan, "__init__", init)


def values_of_an_index_by_name_that_bound_but_do_not_filter(patch: Patch) -> None:
    given: list[Any] = []
    real = query_spec.call_conditions

    def named(*rest: Any) -> list[Any]:
        found = list(real(*rest))
        given.extend(found)
        return found

    patch.setattr(query_spec, "call_conditions", named)
    _plans_with(
        patch, lambda made: attrs.evolve(made, filter=tuple(p for p in made.filter if not _is_one_of(p, given)))
    )


def several_whole_keys_in_any_order(patch: Patch) -> None:
    real = planner._direction

    def direction(query_spec: Any, path: AccessPath, several: bool, fixed: set[str], varies: Any) -> Any:
        found = real(query_spec, path, several, fixed, varies)
        base = () if path.index is None else path.model.declaration.templates
        own = [slot for template in (path.templates[1], *base) for slot in template.slots]
        if found is None and several and all(slot.field in fixed or not varies(slot) for slot in own):
            return False, True
        return found

    patch.setattr(planner, "_direction", direction)


def a_refusal_that_knows_no_nested_fields(patch: Patch) -> None:
    real = scan_refusal._index

    def index(model: Any, where: Any, order: Any) -> Any:
        for step in order:
            model.declaration.field(".".join((step.attr.name, *step.attr.path)))
        return real(model, where, order)

    patch.setattr(scan_refusal, "_index", index)


def a_first_row_that_is_the_first_of_the_first_range(patch: Patch) -> None:
    def find(self: Any, search: Any, made: Any) -> Any:
        for sql, args in self.select(search.plan).statements(search, made, limit=1):
            if (row := self._file.get(sql, args)) is not None:
                return row
        return None

    patch.setattr(reads.SqliteReads, "find", find)


def a_sum_beyond_64_bits_sorted_as_it_is(patch: Patch) -> None:
    real = select.store_sortable

    def sortable(kind: Any, value: Any) -> Any:
        return int(value) if abs(value) >= 2**63 and value == int(value) else real(kind, value)

    patch.setattr(
        select, "store_sortable", lambda kind, value: (sortable if kind.name == "Decimal" else real)(kind, value)
    )


def an_index_on_an_aggregate_that_is_not_maintained(patch: Patch) -> None:
    for owner, name, at in (
        (maintenance_writer, "_put", 1),
        (maintenance_writer, "delete_rows", 1),
        (maintenance_writer, "put_rows", 1),
    ):
        real = getattr(owner, name)

        def of_entities(*rest: Any, real: Any = real, at: int = at) -> None:
            if rest[at].owner.aggregate is None:
                real(*rest)

        patch.setattr(owner, name, of_entities)
    indexes = check.ConsistencyCheck._indexes
    patch.setattr(
        check.ConsistencyCheck,
        "_indexes",
        lambda self, model, expected: indexes(self, model, {} if model.aggregate is not None else expected),
    )


def an_element_that_gives_its_entity_again(patch: Patch) -> None:
    def once(made: Plan) -> Plan:
        fan_out = None if made.index is None else made.index.fan_out
        return attrs.evolve(made, distinct=made.distinct and fan_out not in made.accesses[0].equal)

    _plans_with(patch, once)


def a_lossy_slot_that_fixes_its_field(patch: Patch) -> None:
    real = planner._direction

    def direction(query_spec: Any, path: AccessPath, several: bool, fixed: set[str], varies: Any) -> Any:
        lossy = {p.attr.name for p in query_spec.where if isinstance(p, SameText)}
        return real(query_spec, path, several, fixed | lossy, varies)

    patch.setattr(planner, "_direction", direction)


def parts_that_overlap(patch: Patch) -> None:
    real = prepared.narrowed
    patch.setattr(prepared, "narrowed", lambda bound, part: real(bound, attrs.evolve(part, high=None)))


def an_entity_that_is_in_two_parts(patch: Patch) -> None:
    _after(patch, prepared, "narrowed", lambda bound: attrs.evolve(bound, whole=None))


def an_index_that_does_not_follow_a_maintained_field(patch: Patch) -> None:
    class Everything(list[Any]):
        def __contains__(self, one: object) -> bool:
            return True

    real = maintenance_writer.write_groups
    for module in (maintenance_writer, write_hooks):
        patch.setattr(module, "write_groups", lambda *rest: real(*rest[:3], Everything()))


def a_maintained_field_that_a_new_entity_does_not_get(patch: Patch) -> None:
    for module in (write_hooks, writes):
        patch.setattr(module, "with_maintained", lambda statements, writer, row: row)


def values_of_other_types_sought_among_texts(patch: Patch) -> None:
    real = tree.known_as

    def known_as(attr: Any, *values: Any) -> Any:
        return real(attr, *[one for one in values if isinstance(one, str)] or values)

    patch.setattr(tree, "known_as", known_as)


def a_timestamp_compared_to_the_millisecond(patch: Patch) -> None:
    real = timestamp_attribute.TIMESTAMP
    patch.setattr(timestamp_attribute, "TIMESTAMP", attrs.evolve(real, store=lambda at: real.store(at) // 1000 * 1000))


def a_part_that_replaces_the_whole(patch: Patch) -> None:
    real = parts.altered
    patch.setattr(
        parts, "altered", lambda kind, held, *rest: real(kind, None if kind.container is dict else held, *rest)
    )


def what_is_required_taken_for_granted(patch: Patch) -> None:
    real = writes._read
    patch.setattr(writes, "_read", lambda *rest: None if rest[-1].verb == "require" else real(*rest))


def a_class_cleared_without_its_groups(patch: Patch) -> None:
    real = truncate._delete_entities
    patch.setattr(truncate, "_delete_entities", lambda *rest: 0 if rest[-1].aggregate is not None else real(*rest))


def a_group_stamped_though_it_shows_the_same(patch: Patch) -> None:
    real = maintenance_writer._write_groups

    def write_groups(sqlite: Any, writer: Any, aggregate: Any, *rest: Any) -> None:
        def advance(pk: str, rk: str, timestamp_attribute: int, *more: Any) -> Any:
            row = aggregate.advance(pk, rk, timestamp_attribute, *more)
            return row and row[0] == pk and (pk, rk, timestamp_attribute, *row[3:])

        real(sqlite, writer, _With(aggregate, advance=advance), *rest)

    patch.setattr(maintenance_writer, "_write_groups", write_groups)


class _With:
    """Something, with other attributes."""

    def __init__(self, what: Any, **other: Any) -> None:
        self._what = what
        self.__dict__.update(other)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._what, name)


def a_day_that_comes_twice_taken_for_one_span(patch: Patch) -> None:
    patch.setattr(truncation, "crosses_back", lambda *_: False)


def an_edge_that_forgets_what_comes_back(patch: Patch) -> None:
    real = truncation.edges
    patch.setattr(truncation, "edges", lambda *given: (real(*given)[0],) * 2)


def a_step_that_ends_where_it_begins(patch: Patch) -> None:
    real = Truncation.edge

    def edge(self: Truncation, value: Any, base: type, *, end: bool, for_good: bool = False) -> Any:
        return self.of(value) if self.step else real(self, value, base, end=end, for_good=for_good)

    patch.setattr(Truncation, "edge", edge)


def a_local_time_cut_as_one_of_utc(patch: Patch) -> None:
    patch.setattr(Truncation, "plain_format", property(lambda self: self.format))


# ---------------------------------------------------------------------------------------------- partition by partition


def a_filter_dropped_behind_a_loose_range(patch: Patch) -> None:
    patch.setattr(KeyBounds, "loose", False)


def a_part_that_begins_behind_more_than_its_place(patch: Patch) -> None:
    real = query_parts._cut

    def cut(bound: Bound, key: str) -> Any:
        for one in real(bound, key):
            yield attrs.evolve(one, lo=key + "!") if one.lo == key + " " else one

    patch.setattr(query_parts, "_cut", cut)


def rows_that_are_not_turned(patch: Patch) -> None:
    patch.setattr(Plan, "rows_descending", property(lambda self: self.descending))


def partitions_of_others_not_passed_over(patch: Patch) -> None:
    _after(patch, SkipScan, "of", lambda skip_scan: SkipScan(skip_scan.backwards))


def a_partition_passed_over_with_those_of_others(patch: Patch) -> None:
    real = skip_scan.raise_last
    patch.setattr(skip_scan, "raise_last", lambda text: real(text[:-1]))


def a_partition_passed_over_backwards(patch: Patch) -> None:
    real = SkipScan.partitions

    def partitions(self: SkipScan, bound: Bound, find: Any) -> Any:
        last = None
        for key in real(self, bound, find):
            if not self.backwards or last is None or key[: self.front + 4] != last[: self.front + 4]:
                yield key
            last = key

    patch.setattr(SkipScan, "partitions", partitions)


def a_page_that_begins_with_the_partition_behind(patch: Patch) -> None:
    real = SkipScan.partitions

    def partitions(self: SkipScan, bound: Bound, find: Any) -> Any:
        keys = list(real(self, bound, find))
        yield from keys[1:] if bound.lo in keys[:1] or (bound.hi or "")[:-1] in keys[:1] else keys

    patch.setattr(SkipScan, "partitions", partitions)


def rows_that_are_merged_as_if_they_were_not_turned(patch: Patch) -> None:
    patch.setattr(select, "_with_turned_key", select._with_merge_key)


def ranges_of_one_partition_read_as_those_of_several(patch: Patch) -> None:
    real = select.Select._one_by_one

    def one_by_one(self: Any, bound: Any, *rest: Any) -> Any:
        found = list(real(self, bound, *rest))
        return sorted(found, key=lambda one: (one.partition.lo, one.row.lo), reverse=self.plan.descending)

    patch.setattr(select.Select, "_one_by_one", one_by_one)


def others_counted_that_are_passed_over(patch: Patch) -> None:
    real = select.Select.counts
    patch.setattr(select.Select, "counts", lambda *args, find=None, **more: real(*args, **more))


def a_rule_that_a_merge_does_not_ask(patch: Patch) -> None:
    apply, check_rule = assignments.Assignments.apply, rows.check_rule
    merged: list[Any] = [None]

    def applied(self: assignments.Assignments, entity: Any) -> None:
        apply(self, entity)
        merged[0] = entity

    patch.setattr(assignments.Assignments, "apply", applied)
    patch.setattr(rows, "check_rule", lambda entity: None if entity is merged[0] else check_rule(entity))


def a_constraint_that_only_msgspec_may_spell(patch: Patch) -> None:
    patch.setattr(class_body, "with_meta", lambda annotation: annotation)


def _plans_with(patch: Patch, change: Callable[[Plan], Plan]) -> None:
    _after(patch, planner, "_along", change)


def _is_one_of(one: object, several: list[Any]) -> bool:
    return any(one is other for other in several)


FAULTS: dict[Fault, int] = {
    a_bound_made_exclusive: 0, an_upper_bound_lost: 2, a_prefix_that_ends_too_late: 281, a_lost_duplicate_check: 21,
    alternatives_that_overlap: 0, an_alternative_lost: 11, a_value_of_a_list_lost: 1, a_shard_forgotten: 48,
    a_day_forgotten: 25, a_time_of_day_compared_on_every_day: 0, days_taken_for_hours: 7, a_filter_dropped: 0,
    a_superset_taken_for_exact: 0, a_condition_in_sql_taken_for_exact: 3, a_sparse_index_taken_for_full: 26,
    a_partial_index_taken_for_full: 3, an_index_taken_to_hold_everything: 0, a_direction_ignored: 0,
    partitions_not_merged: 67, missing_values_compared_as_sql_does: 77, a_page_that_repeats_its_last_row: 0,
    a_sorted_page_that_loses_what_comes_after_missing_values: 85, a_page_that_skips_the_rest_of_its_range: 0,
    classes_that_are_merged_forwards: 42, a_partition_without_the_rows_of_other_classes: 30,
    a_zero_that_groups_as_nothing_does: 45, a_whole_list_taken_for_an_element: 0,
    a_stored_key_field_sought_in_the_index: 1, a_whole_key_that_forgets_the_other_conditions: 7,
    values_of_an_index_by_name_that_bound_but_do_not_filter: 8, several_whole_keys_in_any_order: 7,
    a_refusal_that_knows_no_nested_fields: 68, a_first_row_that_is_the_first_of_the_first_range: 22,
    a_sum_beyond_64_bits_sorted_as_it_is: 22, an_index_on_an_aggregate_that_is_not_maintained: 1,
    an_element_that_gives_its_entity_again: 64, a_lossy_slot_that_fixes_its_field: 174, parts_that_overlap: 4_000_000,
    an_entity_that_is_in_two_parts: 4_000_039, an_index_that_does_not_follow_a_maintained_field: MAINTAINED,
    a_maintained_field_that_a_new_entity_does_not_get: MAINTAINED,
    values_of_other_types_sought_among_texts: UNDECLARED + 30,
    a_timestamp_compared_to_the_millisecond: UNDECLARED + 17, a_part_that_replaces_the_whole: UNDECLARED + 18,
    what_is_required_taken_for_granted: DEEDS + 1, a_class_cleared_without_its_groups: DEEDS + 2,
    a_group_stamped_though_it_shows_the_same: DEEDS + 7, a_rule_that_a_merge_does_not_ask: RULES + 9,
    a_constraint_that_only_msgspec_may_spell: RULES + 15, a_day_that_comes_twice_taken_for_one_span: LOCAL + 106,
    an_edge_that_forgets_what_comes_back: LOCAL + 75, a_step_that_ends_where_it_begins: LOCAL + 7,
    a_local_time_cut_as_one_of_utc: LOCAL, a_filter_dropped_behind_a_loose_range: TURNED + LOCAL + 62,
    a_part_that_begins_behind_more_than_its_place: TURNED + LOCAL + 200,
    rows_that_are_not_turned: TURNED + LOCAL + 23, partitions_of_others_not_passed_over: TURNED + LOCAL + 21,
    a_partition_passed_over_with_those_of_others: TURNED + LOCAL + 52,
    a_partition_passed_over_backwards: TURNED + LOCAL + 62,
    a_page_that_begins_with_the_partition_behind: TURNED + LOCAL + 21,
    rows_that_are_merged_as_if_they_were_not_turned: TURNED + LOCAL + 88,
    ranges_of_one_partition_read_as_those_of_several: TURNED + LOCAL + 220,
    others_counted_that_are_passed_over: TURNED + LOCAL + 21,
}  # fmt: skip
"""Each with a model in which the search finds it."""
