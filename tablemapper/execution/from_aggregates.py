"""Totals of a query that an aggregate over the same entities answers.

The results of the query must be whole groups of the aggregate. Then a query over the aggregate replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import attrs

from ..datetime_types import Builtin
from ..engines.protocol import Reads
from ..errors import ScanRefused
from ..expressions.arithmetic import Computed
from ..expressions.predicates import conjuncts, forms
from ..expressions.tree import And, Attr, Compare, ElementAttr, In, Leaf, Not, Or
from ..keys.encodings import MICROSECOND
from ..keys.truncation import Truncation
from ..owner_cache import cached_on_owner
from ..planning.conditions import AnyPredicate, present, time_comparisons
from ..planning.query_spec import QuerySpec
from ..planning.ranges import BoundPlan
from ..schema.aggregate_model import AggregateModel
from ..schema.model import Model
from ..schema.slots import MeasureState, State, slot_of
from .plan_reader import PlanReader
from .prepared import PlanCache, PreparedPlan
from .totals import COUNT, Measured, States

_MEASURE_PAIRS: tuple[tuple[Measured, Measured], ...] = (("sum", "avg"), ("min", "max"))


@attrs.frozen(eq=False)
class AggregateValue:
    """A value that an aggregate keeps for each of its groups."""

    condition_forms: list[Any]
    """The forms of the conditions that a query must have, so that it is about the same entities."""
    state: Callable[[State], State]
    """From a group's state to the number of its entities and the value. (With a condition, to whether there is one.)"""


@attrs.frozen(eq=False)
class Match:
    """The query over an aggregate that answers a query over its entities."""

    spec: QuerySpec
    """The query over the aggregate."""
    groups: tuple[Attr[Any, Any], ...]
    """The fields of the aggregate that the answer is grouped by."""
    value: AggregateValue


@attrs.frozen(eq=False)
class AggregateRead:
    """An aggregate that answers a query, and the plan to read it."""

    target: Model
    match: Match
    slot: MeasureState
    prepared: PreparedPlan
    bound: BoundPlan

    def states(self, reads: Reads) -> States:
        """Return the states of the query's groups; each is merged from one or more groups of the aggregate."""
        aggregate = self.target.aggregate
        assert aggregate is not None
        states: States = {}
        budget = self.match.spec.budget
        spending = None if budget is None else budget.start(f"a total of {self.target.name}")
        for *group, blob in PlanReader(reads, self.prepared, self.bound, self.prepared.layout, spending).items():
            state = self.match.value.state(aggregate.unpack(blob))
            if state[0]:  # (else the group only has an _ever measure, or entities that do not match)
                so_far = states.get(key := tuple(group))
                states[key] = state if so_far is None else _merged(self.slot, so_far, state)
        return states


def matching_aggregate(
    plans: PlanCache, spec: QuerySpec, groups: tuple[Attr[Any, Any], ...], slot: MeasureState
) -> AggregateRead | None:
    """Return the aggregate that answers a query; None if none fits and is bounded.

    Of several, it is the one with the fewest fields to group by, which has the fewest rows.

    Raises:
        ScanRefused: nothing bounds the query, nor the groups of an aggregate that fits.
    """
    targets = _targets(plans, spec)
    if not targets:
        return None
    fields = {attr.source[0] for part in spec.where for attr in part.attributes()}
    fields.update([attr.source[0] for attr in groups])
    targets = [target for target in targets if fields <= _known_fields(target)]
    unbounded: Model | None = None
    for target in sorted(targets, key=lambda target: len(target.declaration.key_fields)):
        match = _match_aggregate(spec, target, groups, slot)
        if isinstance(match, Match):
            try:
                return AggregateRead(target, match, slot, *plans.find(match.spec, match.groups, state=True))
            except ScanRefused:
                unbounded = unbounded or target
    if unbounded is not None:
        try:
            plans.prepared(spec, groups)
        except ScanRefused as error:
            raise ScanRefused(f"{error}; that reads the groups of {unbounded.name}, which hold this total") from None
    return None


@cached_on_owner
def _known_fields(target: Model) -> frozenset[str]:
    """Return the fields of entities that an aggregate groups by, or has conditions on: all that its groups know."""
    aggregate = target.aggregate
    assert aggregate is not None
    attributes = [attr for group in aggregate.groups.values() for attr in group.attributes()]
    for where in (aggregate.where, *[slot.where for slot in aggregate.slots]):
        attributes += [] if where is None else where.attributes()
    return frozenset([attr.source[0] for attr in attributes])


def _targets(plans: PlanCache, spec: QuerySpec) -> list[Model]:
    """Return the aggregates of a class that can be read."""
    engine = plans.engine
    aggregates = engine.schema.aggregates_of(spec.model)
    labels = {aggregate: engine.label(aggregate) for aggregate in aggregates}
    return [
        target
        for target, label in labels.items()
        if label not in engine.unready and (spec.eventual or not plans.may_lag(spec.model, label))
    ]


def totals_served(plans: PlanCache, spec: QuerySpec) -> Iterator[tuple[str, str]]:
    """Yield the totals of a query that an aggregate answers, each with the aggregate, as text."""
    slots = {"count()": COUNT}
    for target in _targets(plans, spec):
        for field in target.declaration.fields:
            measure = field.measure
            for kinds in _MEASURE_PAIRS:
                if measure is not None and isinstance(measure.attr, Attr | Computed) and measure.kind in kinds:
                    slots |= {f"{kind}({measure.attr.label})": slot_of(kind, measure.attr) for kind in kinds}
    for label, slot in slots.items():
        if (match := matching_aggregate(plans, spec, (), slot)) is not None:
            yield label, match.target.name


def mismatches(plans: PlanCache, spec: QuerySpec) -> Iterator[str]:
    """Yield the aggregates that do not fit, each with the reason, as text."""
    for target in plans.engine.schema.aggregates_of(spec.model):
        if spec.model.declaration.expiry is not None and not spec.eventual:
            yield f"{target.name}: counts what has ended until store.expire()"
        elif isinstance(why := _match_aggregate(spec, target, (), COUNT), str):
            yield f"{target.name}: {why}"


def _merged(slot: MeasureState, a: State, b: State) -> State:
    return [a[0] + b[0], slot.united(a[1], b[1])]


def _match_aggregate(
    spec: QuerySpec, target: Model, groups: tuple[Attr[Any, Any], ...], slot: MeasureState
) -> Match | str:
    """Return how an aggregate answers a query, or why it does not.

    Each condition of the query must be about the aggregate's groups, or be a condition of the aggregate, too.
    """
    aggregate = target.aggregate
    assert aggregate is not None
    if spec.limit is not None:
        return "the query has a limit"
    if spec.range is not None:
        return "the query follows an index"
    if spec.part is not None:
        return "this is a part of a query"
    plain = {name: attr for name, attr in aggregate.groups.items() if isinstance(attr, Attr)}
    if lists := [attr.list.label for attr in aggregate.groups.values() if isinstance(attr, ElementAttr)]:
        return f"an entity is in one of its groups for each of its {lists[0]}"
    group_fields: dict[Any, Attr[Any, Any]] = {
        attr.source: Attr(target.cls, name, target.declaration.field(name).type) for name, attr in plain.items()
    }
    if missing := [attr.label for attr in groups if attr.source not in group_fields]:
        return f"it is not grouped by {', '.join(missing)}"
    parts = list(conjuncts(spec.where))
    valued = {attr.source[:2] for part in parts for attr in present(part)}
    for attr in plain.values():
        if _optional(attr, spec.model) and attr.source[:2] not in valued:
            return f"entities without {attr.label} are in none of its groups"
    conditions = list(zip(parts, forms(*parts), strict=True))
    reasons: list[str] = []
    for value in _kept_values(aggregate, slot, spec.model):
        where = _conditions_on_groups(value, conditions, group_fields)
        if not isinstance(where, str):
            of_groups = attrs.evolve(spec, model=target, where=where, order=())
            return Match(of_groups, tuple(group_fields[attr.source] for attr in groups), value)
        reasons.append(where)
    subject = "entities" if slot.attr is None else slot.attr.label
    return reasons[0] if reasons else f"it does not keep the {slot.name} of {subject}"


def _conditions_on_groups(
    value: AggregateValue, conditions: list[tuple[AnyPredicate, Any]], group_fields: dict[Any, Attr[Any, Any]]
) -> tuple[AnyPredicate, ...] | str:
    """Return the conditions of a query, each given with its form, as conditions on groups, or why that is impossible.

    Those that are a condition of the value itself hold for all that it is of.
    """
    condition_forms = [form for _, form in conditions]
    if not all(form in condition_forms for form in value.condition_forms):
        return "it is of some entities only, and the query does not repeat its condition"
    own_parts = [part for part, form in conditions if form not in value.condition_forms]
    translations = [(part, _translated(part, group_fields)) for part in own_parts]
    where = tuple([translated for _, translated in translations if translated is not None])
    if len(where) == len(own_parts):
        return where
    untranslated = [part for part, translated in translations if translated is None]
    mixed = dict.fromkeys(attr.label for part in untranslated for attr in part.attributes())
    return f"its groups do not distinguish {', '.join(mixed)}"


def _kept_values(aggregate: AggregateModel, wanted_slot: MeasureState, model: Model) -> list[AggregateValue]:
    """Return the values of an aggregate from which a wanted one may be read."""
    common = forms(aggregate.where)
    values = [AggregateValue(common, lambda state: [state[0], None])] if wanted_slot.attr is None else []
    for at, slot in enumerate(aggregate.slots, 1):
        if attrs.evolve(slot, where=None).identity != wanted_slot.identity:
            continue
        if slot.where is None:
            values.append(AggregateValue(common, lambda state, at=at: [state[0], state[at]]))  # type: ignore[misc]
        elif slot.attr is None or not _optional(slot.attr, model):  # (else a group without values may have entities)
            values.append(
                AggregateValue(common + forms(slot.where), lambda state, at=at, slot=slot: slot.of_some(state[at]))  # type: ignore[misc]
            )
    return values


def _optional(value: Attr[Any, Any] | Computed[Any, Any], model: Model) -> bool:
    return any(attr.path or model.declaration.field(attr.name).optional for attr in value.attributes())


def _translated(predicate: AnyPredicate, group_fields: dict[Any, Attr[Any, Any]]) -> AnyPredicate | None:
    """Return a condition on entities as one on their groups; None if a group can have entities on both sides of it."""
    match predicate:
        case And(parts=parts) | Or(parts=parts):
            translated_parts: list[AnyPredicate] = []
            for part in parts:
                if (translated := _translated(part, group_fields)) is None:
                    return None
                translated_parts.append(translated)
            return attrs.evolve(predicate, parts=tuple(translated_parts))
        case Not(part=part):
            negated = _translated(part, group_fields)
            return None if negated is None else Not(part=negated)
        case Leaf():
            if (of_groups := predicate.with_attributes(lambda attr: group_fields.get(attr.source))) is not None:
                return of_groups
    if (of_time := _of_time(predicate)) is not None:
        return _translated(of_time, group_fields)
    if isinstance(predicate, Compare) and isinstance(predicate.value, datetime):
        for (name, path, part), attr in group_fields.items():
            if isinstance(part, Truncation) and (name, path, None) == predicate.attr.source:
                bound = _cut_bound(predicate.op, predicate.value, part)
                if bound is not None:
                    return Compare(attr=attr, op=predicate.op, value=bound)
    return None


def _of_time(predicate: AnyPredicate) -> AnyPredicate | None:
    """Return a comparison of a cut time as one of the whole time; None if it is none, or has no such form."""
    match predicate:
        case In(attr=Attr(part=Truncation()) as attr, values=values) if values:
            return Or(parts=tuple([Compare(attr=attr, op="==", value=value) for value in values]))
        case Compare(attr=Attr(part=Truncation() as part) as attr, op=op, value=value) if not isinstance(value, Attr):
            if attr.time_kind is not Builtin.datetime:
                return None
            bounds: list[AnyPredicate] = []
            for time_op, end in time_comparisons(op, part):
                if (edge := part.exact_edge(value, end=end)) is None:
                    return None
                bounds.append(Compare(attr=attr.whole, op=time_op, value=edge))
            return And(parts=tuple(bounds)) if bounds else None
    return None


def _cut_bound(op: str, moment: datetime, part: Truncation) -> Any:
    """Return the cut time whose comparison equals that of the time with a moment; None within a group."""
    if op not in ("<", "<=", ">", ">=") or not part.ordered:
        return None
    if op in ("<=", ">"):  # the next moment must begin a group
        try:
            first = moment + MICROSECOND
        except OverflowError:
            return None
    else:
        first = moment
    if part.exact_edge(part.of(first), end=False) != first:
        return None
    return part.of(moment)
