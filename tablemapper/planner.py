"""From a question to a plan: which key or index is read, between which bounds, and what is left to do.

A pure function in stages: take the conditions apart; bind them to the key and to every index; choose, by an explicit
order; say what remains to be filtered and sorted. A plan is data, the same for every engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import attrs

from .declaration import IndexModel
from .errors import InvalidQuery, ScanRefused
from .expressions import Attr, Compare, Contains, In, IsNull, Not, Order, Predicate, StartsWith, conjuncts, dump
from .indexes import IndexRange
from .keys import Bound, Slot, Template
from .model import Model

__all__ = ["KeyRange", "Plan", "Question", "candidates", "plan"]

MAX_RANGES = 1000
_LOWER, _UPPER = (">", ">="), ("<", "<=")


@attrs.frozen(eq=False)
class Question:
    """What a query asks."""

    model: Model
    range: IndexRange[Any] | None = None
    where: tuple[Predicate[Any], ...] = ()
    order: tuple[Order[Any], ...] = ()
    scan: bool = False


@attrs.frozen
class KeyRange:
    """Rows of a table between two bounds: of one partition, or of an interval of partitions."""

    partition: Bound
    row: Bound

    def __str__(self) -> str:
        if not self.partition.point:
            return f"partitions {_interval(self.partition)}"
        row = self.row
        where = (
            ""
            if row.lo is None and row.hi is None
            else f", row {row.lo!r}"
            if row.point
            else f", rows {_interval(row)}"
        )
        return f"partition {self.partition.lo!r}{where}"


def _interval(bound: Bound) -> str:
    return f"[{'…' if bound.lo is None else repr(bound.lo)}, {'…' if bound.hi is None else repr(bound.hi)})"


@attrs.frozen(eq=False)
class Plan:
    """How a question is answered."""

    model: Model
    index: IndexModel | None
    """What is read; None is the entity table itself, by its key."""
    ranges: tuple[KeyRange, ...]
    """Disjoint, in key order."""
    filter: tuple[Predicate[Any], ...]
    """What the bounds do not say already."""
    descending: bool
    """Whether the key is followed backwards."""
    merged: bool
    """Whether several partitions are read side by side, in the order of their row keys."""
    sort: tuple[Order[Any], ...]
    """What has to be sorted after reading; empty if the key gives the order."""
    bound_fields: int
    """How many fields the bounds say something about."""
    distinct: bool
    """Whether an entity can come more than once."""
    scan: bool = False
    reasons: tuple[str, ...] = ()
    """Why other paths were not taken."""

    @property
    def path(self) -> str:
        """The key or index that is followed, by name."""
        name = self.model.name
        return f"{name}.key" if self.index is None else f"{name}.{self.index.name}"


@attrs.frozen(eq=False)
class _Facts:
    """The conditions on single fields, by the field's name, dotted where nested."""

    equal: dict[str, Any]
    among: dict[str, tuple[Any, ...]]
    ranges: dict[str, list[Compare[Any]]]
    prefixes: dict[str, str]
    elements: dict[str, Any]
    """Elements that lists are known to hold."""
    present: frozenset[str]
    """Fields that have a value wherever the conditions hold."""
    forms: tuple[Any, ...]


def _name(attr: Attr[Any, Any]) -> str | None:
    return None if attr.part else ".".join((attr.name, *attr.path))


def _facts(where: tuple[Predicate[Any], ...]) -> _Facts:
    equal: dict[str, Any] = {}
    among: dict[str, tuple[Any, ...]] = {}
    ranges: dict[str, list[Compare[Any]]] = {}
    prefixes: dict[str, str] = {}
    elements: dict[str, Any] = {}
    present: set[str] = set()
    for predicate in conjuncts(where):
        match predicate:
            case Compare(attr=attr, value=Attr() as other):
                present |= {attr.name, other.name}
            case Compare(attr=attr, op=op, value=value) if (name := _name(attr)) is not None:
                present.add(name)
                if op == "==":
                    equal.setdefault(name, value)
                elif op != "!=":
                    ranges.setdefault(name, []).append(predicate)
            case Compare(attr=attr):
                present.add(attr.name)
            case In(attr=attr, values=values) if (name := _name(attr)) is not None:
                present.add(name)
                different = tuple(dict.fromkeys(values))
                if len(different) == 1:
                    equal.setdefault(name, different[0])
                else:
                    among.setdefault(name, different)
            case StartsWith(attr=attr, text=text) if (name := _name(attr)) is not None:
                present.add(name)
                prefixes.setdefault(name, text)
            case Contains(attr=attr, value=value) if (name := _name(attr)) is not None:
                present.add(name)
                if attr.type.element is not None:
                    elements.setdefault(name, value)
            case Not(part=IsNull(attr=attr)) if (name := _name(attr)) is not None:
                present.add(name)
    forms = tuple(dump(predicate) for predicate in conjuncts(where))
    return _Facts(equal, among, ranges, prefixes, elements, frozenset(present), forms)


def plan(question: Question) -> Plan:
    """Choose how a question is answered.

    Raises:
        ScanRefused: nothing bounds it, and a scan was not allowed.
    """
    possible, refused = candidates(question)
    bounded = [one for one in possible if not one.scan]
    if bounded:
        best = max(bounded, key=lambda one: _rank(one, possible.index(one)))
        others = [
            f"{one.path}: binds {one.bound_fields}, {best.path} {best.bound_fields}"
            for one in bounded
            if one is not best
        ]
        return attrs.evolve(best, reasons=(*others, *refused))
    if question.scan:
        return attrs.evolve(possible[0], reasons=tuple(refused))
    raise ScanRefused(_refusal(question, refused))


def _rank(one: Plan, place: int) -> tuple[Any, ...]:
    # Most bound fields (a shard of a field and the field itself are one); then no sort; then the key, then indexes as they were declared.
    return one.bound_fields, not one.sort, one.index is None, -place


def candidates(question: Question) -> tuple[list[Plan], list[str]]:
    """Return every plan that answers a question, a scan of the entity table among them, and why others do not."""
    model = question.model
    where = question.where
    if question.range is not None:
        chosen = model.index(question.range.name)
        fields = tuple(dict.fromkeys((*chosen.partition.arguments, *chosen.row.arguments)))
        given = dict(zip(fields, question.range.values, strict=False))
        return [_along(question, chosen, _facts(where), given)], []
    facts = _facts(where)
    found: list[Plan] = []
    refused: list[str] = []
    paths: tuple[IndexModel | None, ...] = (None, *model.indexes)
    for index in paths:
        if index is not None and (why := _unfit(model, index, facts)) is not None:
            refused.append(f"{model.name}.{index.name}: {why}")
            continue
        if index is not None and index.partition.slots and not _known(index.partition.slots[0], facts):
            refused.append(f"{model.name}.{index.name}: no condition on {_first(index.partition)}")
            continue
        one = _along(question, index, facts, {})
        if index is None or not one.scan:
            found.append(one)
    return found, refused


def _known(slot: Slot, facts: _Facts) -> bool:
    name = slot.field
    kinds = (facts.equal, facts.among, facts.ranges, facts.prefixes, facts.elements)
    return bool(slot.buckets) or any(name in kind for kind in kinds)


def _first(template: Template) -> str:
    return template.slots[0].field if template.slots else "its partition"


def _unfit(model: Model, index: IndexModel, facts: _Facts) -> str | None:
    """Return why an index may lack rows that a question asks for, or hold them twice."""
    if index.where is not None:
        needed = [dump(part) for part in conjuncts([index.where])]
        if any(form not in facts.forms for form in needed):
            return "it holds only some entities, and the query does not ask for just those"
    if index.fan_out is not None and index.fan_out not in facts.elements:
        return f"it has a row for each element of {index.fan_out}; ask with .contains(…)"
    for name in index.fields:
        field = model.declaration.field(name.partition(".")[0])
        missing = field.optional or "." in name
        if missing and name != index.fan_out and name not in facts.present:
            return f"entities without {name} are not in it"
    return None


def _along(question: Question, index: IndexModel | None, facts: _Facts, given: Mapping[str, Any]) -> Plan:
    """Return the plan that follows the key or an index."""
    model = question.model
    partition, row = model.declaration.templates if index is None else (index.partition, index.row)
    equal = {**facts.equal, **given}
    if index is not None and index.fan_out is not None and index.fan_out in facts.elements:
        equal.setdefault(index.fan_out, facts.elements[index.fan_out])
    ranges = list(_ranges(partition, row, equal, facts))
    sample = ranges[0]
    if len(ranges) > 1:
        ranges = sorted(set(ranges), key=lambda r: (r.partition.lo or "", r.row.lo or ""))
    ranges = [r for r in ranges if not (r.partition.empty or r.row.empty)]
    bounds = (sample.partition, sample.row) if sample.partition.point else (sample.partition,)
    fields = frozenset[str]().union(*(bound.fields for bound in bounds))
    exact = frozenset[str]().union(*(bound.fields - bound.inexact for bound in bounds))
    left = tuple(p for p in conjuncts(question.where) if not _said(p, exact, bounds, equal, facts, index))
    scan = not fields and bool(partition.slots)  # (a constant partition is a whole one, not a scan)
    wholly = index is not None and question.range is not None
    in_order, descending, merged = _order(question, partition, row, ranges, equal, index)
    return Plan(
        model,
        index,
        tuple(ranges),
        left,
        descending and in_order,
        merged and in_order,
        () if in_order else question.order,
        len(fields),
        distinct=index is not None and index.fan_out is not None and index.fan_out not in equal,
        scan=scan and not wholly,
    )


def _ranges(partition: Template, row: Template, equal: Mapping[str, Any], facts: _Facts) -> Iterator[KeyRange]:
    """Yield the ranges that hold what matches: one for each combination of alternatives, shards and time buckets."""
    names = [
        name for name in dict.fromkeys((*partition.fields, *row.fields)) if name in facts.among and name not in equal
    ]
    sizes = 1
    used = []
    for name in names:
        sizes *= max(len(facts.among[name]), 1)
        if sizes > MAX_RANGES:
            break
        used.append(name)
    for values in product(*(facts.among[name] for name in used)):
        known = {**equal, **dict(zip(used, values, strict=True))}
        for texts in _texts(partition, known, facts, {}, MAX_RANGES // max(sizes, 1) or 1):
            first = partition.bound(known, **_comparison(partition.first_unbound(known, texts), facts), texts=texts)
            if not first.point:
                yield KeyRange(first, Bound())
                continue
            yield KeyRange(first, row.bound(known, **_comparison(row.first_unbound(known), facts)))
    if any(not facts.among[name] for name in used):
        yield KeyRange(Bound(lo="", hi="", point=True, equal_slots=len(partition.slots), empty=True), Bound(empty=True))


def _comparison(slot: Slot | None, facts: _Facts) -> dict[str, Any]:
    """Return the arguments of `Template.bound` for the slot where equalities end."""
    if slot is None:
        return {}
    name = slot.field
    if name in facts.prefixes and slot.usable("startswith"):
        return {"op": "startswith", "field": name, "value": facts.prefixes[name]}
    low, high = _tightest(facts.ranges.get(name, []))
    ends = [(end.op, end.value) for end in (low, high) if end is not None]
    if not ends:
        return {}
    return {"op": ends[0][0], "field": name, "value": ends[0][1], "upper": ends[1] if len(ends) > 1 else None}


def _tightest(ranges: list[Compare[Any]]) -> tuple[Compare[Any] | None, Compare[Any] | None]:
    low = max((r for r in ranges if r.op in _LOWER), key=lambda r: (r.value, r.op == ">"), default=None)
    high = min((r for r in ranges if r.op in _UPPER), key=lambda r: (r.value, r.op == "<="), default=None)
    return low, high


def _texts(
    partition: Template, known: Mapping[str, Any], facts: _Facts, texts: dict[int, str], limit: int
) -> Iterator[dict[int, str]]:
    """Yield what stands in slots of which the field is unknown, but not many texts are possible."""
    slot = partition.first_unbound(known, texts)
    options: list[str] | tuple[str, ...] | None = None
    if slot is not None and (slot.buckets or slot.field in facts.ranges):
        options = slot.buckets
        if not options and not slot.lossless:
            low, high = _tightest(facts.ranges[slot.field])
            if low is not None and high is not None:
                options = slot.buckets_between(low.value, high.value, limit)
        if options is not None and len(options) > limit:
            options = None
    if slot is None or not options:
        yield texts
        return
    for text in options:
        yield from _texts(partition, known, facts, {**texts, slot.index: text}, max(limit // len(options), 1))


def _said(
    predicate: Predicate[Any],
    exact: frozenset[str],
    bounds: tuple[Bound, ...],
    equal: Mapping[str, Any],
    facts: _Facts,
    index: IndexModel | None,
) -> bool:
    """Tell whether the bounds say already, and exactly, what a predicate says."""
    ranged = {bound.range_field for bound in bounds}
    match predicate:
        case Compare(value=Attr()):
            return False
        case Compare(attr=attr, op="==", value=value):
            name = _name(attr)
            return (
                name is not None
                and name in exact
                and name in equal
                and name not in ranged
                and _same(equal[name], value)
            )
        case Compare(attr=attr, op=op) if op != "!=":
            name = _name(attr)
            return name in exact and name in ranged and name not in equal and name not in facts.prefixes
        case In(attr=attr, values=values):
            name, different = _name(attr), tuple(dict.fromkeys(values))
            if name is None or name not in exact or name in ranged:
                return False
            if name in equal:
                return len(different) == 1 and _same(equal[name], different[0])
            return facts.among.get(name) == different
        case StartsWith(attr=attr, text=text):
            name = _name(attr)
            return name in exact and name in ranged and facts.prefixes.get(name or "") == text
        case Contains(attr=attr, value=value):
            name = _name(attr)
            fixed = index is not None and index.fan_out == name and name in exact
            return fixed and name is not None and name in equal and _same(equal[name], value)
    if index is not None and index.where is not None:
        return dump(predicate) in [dump(part) for part in conjuncts([index.where])]
    return False


def _same(a: Any, b: Any) -> bool:
    return bool(a.__class__ is b.__class__ and a == b)


def _order(
    question: Question,
    partition: Template,
    row: Template,
    ranges: list[KeyRange],
    equal: Mapping[str, Any],
    index: IndexModel | None,
) -> tuple[bool, bool, bool]:
    """Tell whether a path gives the order that is asked for, whether backwards, and whether partitions are merged."""
    if not question.order:
        return True, False, False
    several = len({r.partition.lo for r in ranges}) > 1
    points = all(r.partition.point for r in ranges)
    choices = [((*partition.slots, *row.slots), False)]
    if several and points:
        choices.append((row.slots, True))
    if index is not None:
        base = tuple(slot for template in question.model.declaration.templates for slot in template.slots)
        choices = [((*slots, *base), merged) for slots, merged in choices]
    for slots, merged in choices:
        direction = _direction(question.order, slots, equal)
        if direction is not None:
            return True, direction, merged
    return False, False, False


def _direction(order: tuple[Order[Any], ...], slots: tuple[Slot, ...], equal: Mapping[str, Any]) -> bool | None:
    """Return whether the slots are followed backwards, None if they do not give the order."""
    wanted = [step for step in order if step.attr.part or step.attr.path or step.attr.name not in equal]
    backwards: set[bool] = set()
    seen: set[str] = set()
    rest = iter(slots)
    for step in wanted:
        if step.attr.part or step.attr.path:
            return None
        name = step.attr.name
        if name in seen:
            continue
        slot = next((s for s in rest if s.field not in equal and s.field not in seen), None)
        if slot is None:
            break  # every slot is spent: the key is unique, so what follows changes nothing
        if slot.field != name or not slot.lossless or not slot.usable("<"):
            return None
        seen.add(name)
        backwards.add(step.descending != (slot.text.spec == "desc"))
    return backwards.pop() if len(backwards) == 1 else False if not backwards else None


def _refusal(question: Question, refused: list[str]) -> str:
    model = question.model
    conditions = [p for p in conjuncts(question.where) if isinstance(p, Compare | In | StartsWith)]
    named = [p.attr for p in conditions if not p.attr.part]
    key = model.declaration.templates[0]
    lines = [f"{model.name}: no key or index bounds this query, so it would read the whole table"]
    lines.append(f"  {model.name}.key needs a condition on {_first(key)}")
    lines += [f"  {why}" for why in refused]
    if named:
        equal = [p.attr for p in conditions if isinstance(p, Compare) and p.op == "==" and not p.attr.part] or named[:1]
        first = ".".join((equal[0].name, *equal[0].path))
        rest = [".".join((a.name, *a.path)) for a in named if a.source != equal[0].source]
        if any(isinstance(p, Compare) and p.op == "==" for p in conditions):
            row = f', row="{{{rest[0]}}}"' if rest else ""
            lines.append(f'declare an index, by_{first.replace(".", "_")} = tm.Index(partition="{{{first}}}"{row}),')
        else:
            lines.append(f'declare an index, by_{first.replace(".", "_")} = tm.Index(partition="{{{first}}}"),')
        lines.append("or read it all with .allow_scan()")
    else:
        lines.append("add conditions, or read it all with .allow_scan()")
    return "\n".join(lines)


def check_order(model: Model, order: tuple[Order[Any], ...]) -> None:
    """Raise InvalidQuery for an order that means nothing."""
    for step in order:
        if not step.attr.type.ordered:
            raise InvalidQuery(f"{step.attr!r} is {step.attr.type.name}, which has no order")
