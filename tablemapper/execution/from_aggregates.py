"""Questions about entities that an aggregate of them answers.

Its groups must tile the query. Then the aggregate answers instead, by a query like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import attrs

from ..engines.protocol import Reads
from ..errors import ScanRefused
from ..expressions.arithmetic import Computed
from ..expressions.predicates import conjuncts, forms
from ..expressions.tree import And, Attr, Compare, Each, In, Leaf, Not, Or
from ..keys.cuts import Cut
from ..keys.forms import MICROSECOND
from ..planning.conditions import AnyPredicate, present, time_comparisons
from ..planning.question import QuerySpec
from ..planning.ranges import BoundPlan
from ..schema.groups import AggregateModel, Slot, State, slot_of
from ..schema.model import Model
from .prepared import PlanCache, PreparedPlan
from .run import Run
from .totals import COUNT, Measured, States

__all__ = ["AggregateRead", "Match", "match_aggregate", "matching_aggregate", "mismatches", "totals_served"]

_TOGETHER: tuple[tuple[Measured, Measured], ...] = (("sum", "avg"), ("min", "max"))


@attrs.frozen(eq=False)
class KeptValue:
    """A value that an aggregate keeps for each of its groups."""

    query_identity: list[Any]
    """The conditions that a query must have, if the value is to be of the same entities."""
    state: Callable[[State], State]
    """From a group's whole state, the number of entities (of some at least whether there is one) and the value."""


@attrs.frozen(eq=False)
class Match:
    """How an aggregate answers a question about the entities that it is maintained from."""

    spec: QuerySpec
    """The query over the aggregate."""
    groups: tuple[Attr[Any, Any], ...]
    """Its fields that the answer is grouped by."""
    held: KeptValue


@attrs.frozen(eq=False)
class AggregateRead:
    """An aggregate that answers, and where in it."""

    target: Model
    match_aggregate: Match
    slot: Slot
    prepared: PreparedPlan
    bound: BoundPlan

    def states(self, reads: Reads) -> States:
        """Return the states of the query's groups; several of the aggregate's may make up one."""
        aggregate = self.target.aggregate
        assert aggregate is not None
        states: States = {}
        budget = self.match_aggregate.spec.budget
        spending = None if budget is None else budget.start(f"a total of {self.target.name}")
        for *group, blob in Run(reads, self.prepared, self.bound, self.prepared.layout, spending).items():
            state = self.match_aggregate.held.state(aggregate.unpack(blob))
            if state[0]:  # (else it was kept for an _ever measure, or for entities that do not match)
                held = states.get(key := tuple(group))
                states[key] = state if held is None else _merged(self.slot, held, state)
        return states


def matching_aggregate(
    plans: PlanCache, spec: QuerySpec, groups: tuple[Attr[Any, Any], ...], slot: Slot
) -> AggregateRead | None:
    """Return the aggregate that answers; None if none fits and is bounded.

    Of several, the one with the fewest fields to group by is taken: it has the fewest rows.
    """
    for target in sorted(_targets(plans, spec), key=lambda one: len(one.declaration.key_fields)):
        match = match_aggregate(spec, target, groups, slot)
        if isinstance(match, Match):
            try:
                return AggregateRead(target, match, slot, *plans.find(match.spec, match.groups, state=True))
            except ScanRefused:
                continue
    return None


def _targets(plans: PlanCache, spec: QuerySpec) -> list[Model]:
    """Return the aggregates of a class that can be read."""
    engine = plans.engine
    return [one for one in engine.schema.aggregates_of(spec.model) if engine.label(one) not in engine.unready]


def totals_served(plans: PlanCache, spec: QuerySpec) -> Iterator[tuple[str, str]]:
    """Yield the totals of a query that an aggregate answers, each with the aggregate, as text."""
    slots = {"count()": COUNT}
    for target in _targets(plans, spec):
        for field in target.declaration.fields:
            measure = field.measure
            for kinds in _TOGETHER:
                if measure is not None and isinstance(measure.attr, Attr | Computed) and measure.kind in kinds:
                    slots |= {f"{kind}({measure.attr.label})": slot_of(kind, measure.attr) for kind in kinds}
    for label, slot in slots.items():
        if (read := matching_aggregate(plans, spec, (), slot)) is not None:
            yield label, read.target.name


def mismatches(plans: PlanCache, spec: QuerySpec) -> Iterator[str]:
    """Yield the aggregates that do not fit, each with the reason, as text."""
    for target in plans.engine.schema.aggregates_of(spec.model):
        if isinstance(why := match_aggregate(spec, target, (), COUNT), str):
            yield f"{target.name}: {why}"


def _merged(slot: Slot, one: State, other: State) -> State:
    return [one[0] + other[0], slot.united(one[1], other[1])]


def match_aggregate(spec: QuerySpec, target: Model, groups: tuple[Attr[Any, Any], ...], wanted: Slot) -> Match | str:
    """Return how an aggregate answers a question, or why it does not.

    Its groups must tile the query: a condition is on its groups, or one that the aggregate has too.
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
    if lists := [attr.list.label for attr in aggregate.groups.values() if isinstance(attr, Each)]:
        return f"an entity is in one of its groups for each of its {lists[0]}"
    own: dict[Any, Attr[Any, Any]] = {
        attr.source: Attr(target.cls, name, target.declaration.field(name).type) for name, attr in plain.items()
    }
    if strange := [attr.label for attr in groups if attr.source not in own]:
        return f"it is not grouped by {', '.join(strange)}"
    parts = list(conjuncts(spec.where))
    valued = {attr.source[:2] for part in parts for attr in present(part)}
    for attr in plain.values():
        if _optional(attr, spec.model) and attr.source[:2] not in valued:
            return f"entities without {attr.label} are in none of its groups"
    query_identity = forms(*parts)
    reasons: list[str] = []
    for held in _held(aggregate, wanted, spec.model):
        if not all(form in query_identity for form in held.query_identity):
            reasons.append("it is of some entities only, and the query does not repeat its condition")
            continue
        rest = [part for part, form in zip(parts, query_identity, strict=True) if form not in held.query_identity]
        where = [one for part in rest if (one := _translated(part, own)) is not None]
        if len(where) == len(rest):
            of_groups = attrs.evolve(spec, model=target, where=tuple(where), order=())
            return Match(of_groups, tuple(own[attr.source] for attr in groups), held)
        mixed = dict.fromkeys(a.label for part in rest if _translated(part, own) is None for a in part.attributes())
        reasons.append(f"its groups do not tell {', '.join(mixed)} apart")
    subject = "entities" if wanted.attr is None else wanted.attr.label
    return reasons[0] if reasons else f"it does not keep the {wanted.name} of {subject}"


def _held(aggregate: AggregateModel, wanted: Slot, model: Model) -> list[KeptValue]:
    """Return the values that may be what is wanted."""
    every = forms(aggregate.where)
    values = [KeptValue(every, lambda state: [state[0], None])] if wanted.attr is None else []
    for at, slot in enumerate(aggregate.slots, 1):
        if attrs.evolve(slot, where=None).identity != wanted.identity:
            continue
        if slot.where is None:
            values.append(KeptValue(every, lambda state, at=at: [state[0], state[at]]))  # type: ignore[misc]
        elif slot.attr is None or not _optional(slot.attr, model):  # (else a group without values says too little)
            values.append(KeptValue(every + forms(slot.where), lambda state, at=at, slot=slot: slot.of_some(state[at])))  # type: ignore[misc]
    return values


def _optional(value: Attr[Any, Any] | Computed[Any, Any], model: Model) -> bool:
    return any(attr.path or model.declaration.field(attr.name).optional for attr in value.attributes())


def _translated(predicate: AnyPredicate, own: dict[Any, Attr[Any, Any]]) -> AnyPredicate | None:
    """Return what a condition on entities says of their groups; None if a group can have some that satisfy it."""
    match predicate:
        case And(parts=parts) | Or(parts=parts):
            own_parts: list[AnyPredicate] = []
            for part in parts:
                if (one := _translated(part, own)) is None:
                    return None
                own_parts.append(one)
            return attrs.evolve(predicate, parts=tuple(own_parts))
        case Not(part=part):
            inner = _translated(part, own)
            return None if inner is None else Not(part=inner)
        case Leaf():
            if (of_groups := predicate.with_attributes(lambda attr: own.get(attr.source))) is not None:
                return of_groups
    if (of_time := _of_time(predicate)) is not None:
        return _translated(of_time, own)
    if isinstance(predicate, Compare) and isinstance(predicate.value, datetime):
        for (name, path, part), attr in own.items():
            if isinstance(part, Cut) and (name, path, None) == predicate.attr.source:
                bound = _cut_bound(predicate.op, predicate.value, part)
                if bound is not None:
                    return Compare(attr=attr, op=predicate.op, value=bound)
    return None


def _of_time(predicate: AnyPredicate) -> AnyPredicate | None:
    """Return what a comparison of a cut time says of the time; None if it is none, or nothing can be said."""
    match predicate:
        case In(attr=Attr(part=Cut()) as attr, values=values) if values:
            return Or(parts=tuple([Compare(attr=attr, op="==", value=value) for value in values]))
        case Compare(attr=Attr(part=Cut() as part) as attr, op=op, value=value) if not isinstance(value, Attr):
            if attr.time_kind is not datetime:
                return None
            bounds: list[AnyPredicate] = []
            for one, end in time_comparisons(op, part):
                if (at := part.exact_edge(value, end=end)) is None:
                    return None
                bounds.append(Compare(attr=attr.whole, op=one, value=at))
            return And(parts=tuple(bounds)) if bounds else None
    return None


def _cut_bound(op: str, moment: datetime, part: Cut) -> Any:
    """Return what a cut time is compared with, as its time is compared with a moment; None if a group has both sides."""
    if op not in ("<", "<=", ">", ">=") or not part.ordered:
        return None
    if op in ("<=", ">"):  # the first moment beyond must begin a group
        try:
            first = moment + MICROSECOND
        except OverflowError:
            return None
    else:
        first = moment
    if part.exact_edge(part.of(first), end=False) != first:
        return None
    return part.of(moment)
