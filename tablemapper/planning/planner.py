"""The planner: chooses the key or index, its bounds, the residual filter and the sort.

A pure function in stages. It splits the conditions (`conditions`), bounds the key and every index with them, and
chooses by an explicit order. The plan says which filter and sort remain. A query shape holds no values, only their
numbers, so one plan serves all its queries. `planning.ranges` makes the bounds of one query.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any

import attrs

from ..datetime_types import Builtin
from ..entities.key_and_indexes import IndexModel
from ..errors import InvalidQuery, ScanRefused
from ..expressions.tree import Attr, Compare, Contains, In, IsNull, Not, Order, Parameter, SameText
from ..keys.template import Slot, Template
from ..keys.times import is_within
from ..schema.model import Model
from .bounds import KeyBounds, reach
from .capabilities import Capabilities
from .conditions import AnyPredicate, Conditions, Window, alternatives, conditions, normal, of_elements
from .plan import MAX_RANGES, AccessPath, PathBounds, Plan
from .query_spec import QueryShape
from .scan_refusal import lack, refusal, wanting

# ---------------------------------------------------------------------------------------------- choose


def plan(form: QueryShape, capabilities: Capabilities | None = None) -> Plan:
    """Choose how questions of one form are answered.

    Args:
        capabilities: of the engine; None: it can do all.

    Raises:
        ScanRefused: nothing bounds them, and a scan was not allowed.
        InvalidQuery: the engine cannot follow any path in their order.
        InvalidQuery: they are a part of what another path gave, which cannot be followed.
    """
    possible, rejections = candidates(form)
    if form.part is not None:
        possible = [option for option in possible if (option.index and option.index.name) == form.part[0]]
        if not possible:
            why = "; ".join(reason for reason in rejections if reason.startswith(f"{form.model.name}.{form.part[0]}: "))
            raise InvalidQuery(
                f"this is a part of what {form.model.name}.{form.part[0]} leads to; split the query again ({why})"
            )
    bounded = [option for option in possible if not option.scan]
    if not bounded:
        if not form.scan:
            ask: Any = partial(attrs.evolve, form)
            raise ScanRefused(refusal(form, rejections, lambda **changes: candidates(ask(**changes))[0]))
        able = _able(form, possible, capabilities)
        return attrs.evolve((able or possible)[0], reasons=tuple(rejections))
    able = _able(form, bounded, capabilities)
    if not form.in_memory:
        bounded = able
    partition = next((option for option in bounded if option.whole_partition), None)
    join_costs = capabilities is not None and capabilities.join_costs
    best = max(bounded, key=lambda p: _rank(p, possible.index(p), partition, join_costs, in_order=p in able))
    worse = [f"{option.path}: {_worse(option, best)}" for option in bounded if option is not best]
    return attrs.evolve(best, reasons=(*worse, *rejections))


def plan_by_key(model: Model) -> Plan:
    """Return the plan that reads all entities of a class in the order of their keys, whatever indexes it has."""
    return _along(QueryShape(model, scan=True), AccessPath(model), (), [Conditions()])


def _able(form: QueryShape, plans: list[Plan], capabilities: Capabilities | None) -> list[Plan]:
    """Return the plans whose order an engine gives; there is one, or rows may be sorted in memory.

    Raises:
        InvalidQuery
    """
    if capabilities is None:
        return plans
    able = [
        plan
        for plan in plans
        if (capabilities.sorts or not plan.sorted) and (capabilities.backward or not (plan.descending or plan.turned))
    ]
    if able or form.in_memory:
        return able
    name, order = capabilities.engine, " and ".join([step.attr.label for step in form.order]) or "the entities' keys"
    if plans[0].sorted:
        raise InvalidQuery(
            f"{form.model.name}: no key or index gives the order by {order}, and {name} sorts nothing; declare an index whose "
            "row= begins with it, or call .allow_sort(), which reads all rows and sorts them in memory"
        )
    raise InvalidQuery(
        f"{form.model.name}: {plans[0].path} has the order by {order} backwards, and {name} reads forwards only; declare a "
        "key or an index with {field:desc}, or call .allow_sort(), which reads all rows and reverses them in memory"
    )


def _rank(
    plan: Plan,
    place: int,
    partition: Plan | None,
    join_costs: bool,  # noqa: FBT001
    *,
    in_order: bool,
) -> tuple[Any, ...]:
    # Most bound fields (a shard of a field and the field itself are one); then what needs no sort; then, where that
    # costs much, what needs no join; then an index by
    # other fields, or of some entities only, before a whole partition of entities; then what is read from one table;
    # then the key; then indexes as they were declared.
    narrower = partition is not None and (plan.bound != partition.bound or plan.some)
    local = plan.covering or plan.index is None
    return (
        plan.bound_fields,
        in_order,
        not plan.sorted,
        join_costs and local,
        narrower,
        local,
        plan.index is None,
        -place,
    )


def _worse(plan: Plan, best: Plan) -> str:
    if plan.bound_fields < best.bound_fields:
        fields = f"{plan.bound_fields} field{'' if plan.bound_fields == 1 else 's'}"
        return f"bounds {fields}, {best.path} {best.bound_fields}"
    if plan.sorted and not best.sorted:
        return f"bounds as many fields as {best.path}, but would have to be sorted"
    if best.covering and not plan.covering:
        return f"bounds as many fields as {best.path}, which holds all needed fields"
    if plan.whole_partition and plan.bound != best.bound:
        return f"bounds as many fields as {best.path}, but only to whole partitions"
    if plan.whole_partition and best.some:
        return f"bounds as many fields as {best.path}, which holds only entities that satisfy its condition"
    if best.index is None:
        return "bounds as many fields as the key, but leads to it only"
    return f"as good as {best.path}, which is declared before it"


def candidates(form: QueryShape) -> tuple[list[Plan], list[str]]:
    """Return every plan that answers a question, maybe a scan of the entity table, and why other paths do not."""
    model = form.model
    where = normal(form.where)
    ways = [conditions(conjunction) for conjunction in alternatives(where)]
    if form.along is not None:
        return [_along(form, AccessPath(model, model.index(form.along)), where, ways)], []
    plans: list[Plan] = []
    rejections: list[str] = []
    for path in (AccessPath(model), *(AccessPath(model, index) for index in model.indexes)):
        if path.index is not None:
            why = form.unready.get(path.index.name) or _unfit(form, path.index, where, ways)
            if why is not None:
                rejections.append(f"{path}: {why}")
                continue
        candidate = _along(form, path, where, ways)
        if path.index is not None and candidate.scan:
            rejections.append(f"{path}: {lack(wanting(*path.templates), where)}")
        else:
            plans.append(candidate)
    return plans, rejections


def _unfit(form: QueryShape, index: IndexModel, where: tuple[AnyPredicate, ...], ways: list[Conditions]) -> str | None:
    """Return the reason why an index cannot be followed: it may lack rows that match, or nothing bounds it."""
    if index.where is not None and index.name not in form.implied:
        return "it holds only some entities, and the query does not repeat its condition"
    for way in ways:
        if index.fan_out is not None and index.fan_out not in way.elements:
            return f"it has a row for each element of {index.fan_out}; use .contains(…)"
        for name in index.fields:
            missing = "." in name or form.model.optional(name)
            if missing and name != index.fan_out and name not in way.present:
                mend = f"; add .where({form.model.name}.{name}.is_not_null())" if "." not in name else ""
                return f"entities without {name} are not in it{mend}"
        if index.partition.slots and not _has_condition(index.partition.slots[0], way):
            return lack(index.partition.slots[0].field, where)
    return None


def _has_condition(slot: Slot, way: Conditions) -> bool:
    name = slot.field
    kinds = (way.equal, way.among, way.compared, way.elements, way.windows)
    return bool(slot.buckets) or any(name in kind for kind in kinds)


# ---------------------------------------------------------------------------------------------- along one path


def _along(form: QueryShape, path: AccessPath, where: tuple[AnyPredicate, ...], ways: list[Conditions]) -> Plan:
    """Return the plan that follows the key or an index."""
    way = _PathConditions(form, path, where, ways)
    direction = way.direction()
    if direction is None and way.by_partition:  # (one SELECT sorts all rows between the bounds)
        way = _PathConditions(form, path, where, ways, sorting=True)
        direction = way.direction()
    residual = way.residual if form.unended is None else (*way.residual, form.unended)
    required = [*(form.selected or ()), *(attr for p in residual for attr in p.attributes())]
    required += [step.attr for step in form.order] if direction is None else []
    backwards, merged, turned = direction or (form.backwards, 0, False)
    return Plan(
        path,
        tuple(way.accesses),
        residual,
        descending=backwards,
        merged=merged,
        sort=() if direction is not None else form.order,
        distinct=way.distinct,
        covering=_covers(form, path, required) and not way.distinct,
        scan=way.scan,
        by_key=direction is None and not form.order,
        edges=way.edges(),
        turned=turned,
        by_partition=way.by_partition or turned,
    )


class _PathConditions:
    """One path, as far as the conditions of a question go along it.

    Args:
        ways: these by alternative.
        sorting: whether what is read is known to need sorting.

    Attributes:
        accesses: what is read, by alternative.
        scan: whether that is everything.
        residual: the conditions that the bounds do not say.
        distinct: whether an entity can be met several times.
        by_partition: whether partitions are followed one by one.
    """

    def __init__(
        self,
        form: QueryShape,
        path: AccessPath,
        where: tuple[AnyPredicate, ...],
        ways: list[Conditions],
        *,
        sorting: bool = False,
    ) -> None:
        self._form, self._path = form, path
        self._slots = (*path.templates[0].slots, *path.templates[1].slots)
        fan_out = None if path.index is None else path.index.fan_out
        self._ways = ways if fan_out is None else [of_elements(way, fan_out) for way in ways]
        # (Several values could have one of their partitions between those of another.)
        one_by_one = len(ways) == 1 and bool(path.templates[1].slots) and fan_out is None
        self.accesses = [_access(form, path, way, passing=one_by_one and not sorting) for way in self._ways]
        # (A constant partition is a whole one, not a scan; so is all of an index that the query names.)
        self._partition_fixed = _in_partition(form, path)
        bounded = not path.templates[0].slots or form.along is not None or self._partition_fixed
        self.scan = not bounded and not all(access.fields for access in self.accesses)
        if self.scan:
            self.accesses = [_access(attrs.evolve(form, by_time=False), path, Conditions(), spread=False)]
        self.residual = self._residual(where)
        self.distinct = fan_out is not None and any(
            slot.field == fan_out and self._varies(slot) for slot in self._slots
        )
        self.by_partition = any(access.partition.rest is not None for access in self.accesses)

    def _residual(self, where: tuple[AnyPredicate, ...]) -> tuple[AnyPredicate, ...]:
        path = self._path
        implied = () if path.index is None else self._form.implied.get(path.index.name, ())
        residual = [p for p in where if p not in implied]
        if not self.scan and len(self._ways) == 1:
            residual = [p for p in residual if not _is_in_bounds(path, self.accesses[0], self._ways[0], p)]
        return tuple(residual)

    def edges(self) -> tuple[tuple[AnyPredicate, int, str], ...]:
        """Return the comparisons that are left, and that the bounds say where a bucket begins with the value."""
        return () if self.scan or len(self._ways) > 1 else tuple(_edges(self.accesses[0], self._ways[0], self.residual))

    def _varies(self, slot: Slot) -> bool:
        """Return whether the rows between the bounds can have several texts in a slot."""
        if self._partition_fixed and any(slot is fixed_slot for fixed_slot in self._path.templates[0].slots):
            return False
        text = self.accesses[0].text(slot)
        return text is None or any(access.text(slot) != text for access in self.accesses)

    def direction(self) -> tuple[bool, int, bool] | None:
        """Return the direction of the path for the order of the query; None if rows must be sorted; see
        `_direction`."""
        form = self._form
        if form.mixed:
            return (form.backwards, 0, False) if self._path.index is None and not form.order else None
        has_many_ranges = not self.scan and (len(self.accesses) > 1 or self.accesses[0].several)
        alike = min(access.alike for access in self.accesses) if has_many_ranges else 0
        partition = len(self._path.templates[0].slots)
        fronts = [count for count in range(alike + 1) if not self.distinct or count in (0, partition)]
        equal = [way.equal for way in self._ways]
        fixed = {name for name, number in equal[0].items() if all(values.get(name) == number for values in equal)}
        return _direction(form, self._path, fronts, fixed, self._varies)


def _in_partition(form: QueryShape, path: AccessPath) -> bool:
    """Return whether a path is followed in one partition, of which the key is given."""
    return path.index is None and form.part is not None and form.part[1]


def _covers(form: QueryShape, path: AccessPath, required: Iterable[Attr[Any, Any]]) -> bool:
    selected = form.selected is not None and not form.state
    if path.index is None or not selected:
        return False
    missing = form.missing_fields.get(path.index.name, ())
    # (Where nothing is needed, as for a count, rows that may be older than the entities are no answer either.)
    return missing is not None and all(path.holds(attr) and attr.name not in missing for attr in required)


class _SlotConditions:
    """The conditions of one alternative on the slots of a path, each taken in turn."""

    def __init__(self, form: QueryShape, path: AccessPath, way: Conditions, *, spread: bool) -> None:
        self._way = way
        self._spread = spread
        self._by_time = form.by_time
        self.equal = {**way.equal, **way.texts}
        if path.index is not None and (fan_out := path.index.fan_out) is not None and fan_out in way.elements:
            self.equal.setdefault(fan_out, way.elements[fan_out])
        self.among: dict[str, tuple[Parameter, ...]] = {}
        self.spreading: list[Slot] = []
        self.windows: dict[str, Window] = {}
        self.ranges = 1
        partition, row = path.templates
        is_partition_fixed = _in_partition(form, path)
        if is_partition_fixed or all(self._take(slot, leads=True) for slot in partition.slots):
            for slot in row.slots:
                # (A given partition may say more of a field that its row key holds with a loss.)
                if (is_partition_fixed and not slot.lossless) or not self._take(slot, leads=False):
                    break

    def _take(self, slot: Slot, *, leads: bool) -> bool:
        """Take a slot, which the partition has or not; return whether the next one can be taken behind it."""
        name = slot.field
        if name in self.equal or name in self.among or self._take_values(name):
            return True
        if leads and (self._take_shards(slot) or self._take_times(slot)):
            return True
        if (window := self._window(name)) is not None:
            self.windows[name] = window
        return False

    def _fits(self, values: Collection[object]) -> bool:
        return self.ranges * len(values) <= MAX_RANGES

    def _take_values(self, name: str) -> bool:
        values = self._way.among.get(name)
        if values is None or not self._fits(values):
            return False
        self.among[name] = values
        self.ranges *= len(values)
        return True

    def _take_shards(self, slot: Slot) -> bool:
        if not self._spread or not slot.buckets or not self._fits(slot.buckets):
            return False
        self.spreading.append(slot)
        self.ranges *= len(slot.buckets)
        return True

    def _take_times(self, slot: Slot) -> bool:
        name = slot.field
        window, sides = self._window(name), {op[0] for op, _ in self._way.compared.get(name, ())}
        if not self._by_time or not slot.text.unit or (window is None and not sides >= {"<", ">"}):
            return False
        self.spreading.append(slot)  # (how many buckets there are, only the values say)
        if window is not None and name not in self.windows:
            self.windows[name] = window
            self.ranges *= len(window[2])
        return True

    def _window(self, name: str) -> Window | None:
        window = self._way.windows.get(name)
        return window if window is not None and self._fits(window[2]) else None


def _access(
    form: QueryShape, path: AccessPath, way: Conditions, *, spread: bool = True, passing: bool = False
) -> PathBounds:
    """Return the bounds that the conditions of one alternative give along a path."""
    partition, row = path.templates
    bounded = _SlotConditions(form, path, way, spread=spread)
    compared = {name: {op for op, _ in steps} for name, steps in way.compared.items()}
    for name in bounded.windows:
        compared[name] = compared.get(name, set()) | {">=", "<"}
    equal = bounded.equal.keys() | bounded.among.keys()
    if _in_partition(form, path):
        first = KeyBounds(partition, (), (), None, (), frozenset(), frozenset(), frozenset())
        equal, compared = _lossless(row, equal), {name: ops for name, ops in compared.items() if _lossless(row, {name})}
    else:
        one_by_one = passing and bounded.ranges == 1 and not bounded.spreading
        first = reach(partition, equal, compared, {slot.index for slot in bounded.spreading}, passing=one_by_one)
    turned = {slot.field for slot in bounded.spreading if not slot.interval}
    second = reach(row, equal, compared, turned=turned) if first.point else None
    timed = {slot.field for slot in bounded.spreading} | {key.range_field for key in (first, second) if key is not None}
    bounding = tuple([(name, *window) for name, window in bounded.windows.items() if name in timed])
    edge = None if first.point else reach(row, (), compared)
    if edge is not None and not edge.goes_on(first):
        edge = None
    among, spreading = tuple(bounded.among.items()), tuple(bounded.spreading)
    return PathBounds(first, second, bounded.equal, among, spreading, way.compared, bounding, edge)


def _lossless(template: Template, names: Collection[str]) -> set[str]:
    """Return those of some fields that each slot holds without loss."""
    return {name for name in names if all(slot.lossless for slot in template.slots if slot.field == name)}


def _is_in_bounds(path: AccessPath, access: PathBounds, way: Conditions, predicate: AnyPredicate) -> bool:
    """Return whether the bounds say already, and exactly, what a predicate says."""
    name, index = way.fields.get(predicate), path.index
    match predicate:
        case Not(part=IsNull(attr=missing)) if index is not None:
            return missing.name in index.fields and not missing.path
        case SameText(value=value):
            slots = [slot for template in path.templates for slot in template.slots if slot.field == name]
            return all(access.text(slot) == value for slot in slots)
    if name is None or (access.among and access.loose(name)):
        return False  # (between the bounds of one value can be rows of another one)
    attr: Attr[Any, Any] | None = getattr(predicate, "attr", None)
    if attr is not None and attr.part is not None:
        return _is_part_in_bounds(access, name, predicate, attr.part.edge_unit)
    if name not in access.exact:
        return False
    match predicate:
        case In():
            return name in dict(access.among)
        case Contains():
            return index is not None and index.fan_out == name and access.equal.get(name) is way.elements[name]
    if name in way.equal:  # (then comparisons of the same field are left)
        return access.equal[name] is getattr(predicate, "value", None)
    op = getattr(predicate, "op", "startswith")
    return any(reach.range_field == name and op in reach.ops for reach in access.reaches)


def _is_part_in_bounds(access: PathBounds, name: str, predicate: AnyPredicate, unit: str | None) -> bool:
    """Return whether the bounds say, and exactly, what a predicate says of a part of a field; its unit has an edge."""
    if not unit or name in access.equal or name in dict(access.among):
        return False
    if isinstance(predicate, In) and all(name != window[0] for window in access.windows):
        return False  # (its values are too many)
    return name in access.exact or is_within(unit, access.unit(name))


def _edges(
    access: PathBounds, way: Conditions, residual: Iterable[AnyPredicate]
) -> Iterator[tuple[AnyPredicate, int, str]]:
    """Yield comparisons of times that the bounds say, and exactly, where a bucket begins with the value."""
    for predicate in residual:
        name = way.fields.get(predicate)
        match predicate:
            case Compare(attr=Attr(part=None) as attr, op=">=" | "<", value=Parameter(number=number)):
                is_equated = name in access.equal or name in dict(access.among)
                is_time = attr.time_kind is Builtin.datetime and attr.type.own is None
                if name is None or is_equated or not is_time or (access.among and access.loose(name)):
                    continue
                if unit := access.unit(name):
                    yield predicate, number, unit


# ---------------------------------------------------------------------------------------------- order


def _direction(
    form: QueryShape,
    path: AccessPath,
    fronts: Iterable[int],
    fixed: set[str],
    varies: Callable[[Slot], bool],
) -> tuple[bool, int, bool] | None:
    """Return the direction in which a path has an order.

    That is whether backwards, behind how many slots its ranges are merged, and whether rows go the other way than
    partitions.
    """
    if not form.order:
        return False, 0, False
    if path.index is not None and any(step.attr.name == path.index.fan_out for step in form.order):
        return None  # (it has the elements in order, not the lists)
    partition, row = path.templates
    base = () if path.index is None else tuple(slot for t in path.model.declaration.templates for slot in t.slots)
    all_slots = (*partition.slots, *row.slots)
    for merged in fronts:
        free = [s for s in (*all_slots[merged:], *base, *all_slots[:merged]) if s.field not in fixed and varies(s)]
        # (Rows of several days come by the time of day then.)
        coarser_later = {slot.field for slot in all_slots[:merged] if slot in free}
        directions = _directions(form.order, free, fixed, coarser_later, partition.slots[merged:])
        if directions is not None:
            partitions, rows = directions
            first = rows if partitions is None else partitions
            return bool(first), merged, rows is not None and rows is not first
    return None


def _directions(
    order: tuple[Order[Any], ...],
    slots: list[Slot],
    fixed: set[str],
    coarser_later: set[str],
    leading: Collection[Slot],
) -> tuple[bool | None, bool | None] | None:
    """Return whether the slots, all that differ, are followed backwards; None if they do not give the order.

    There are two answers: for the slots of partitions, and for all others. None is for any direction.

    Args:
        slots: in the order of their texts.
        fixed: fields that have one value.
        coarser_later: fields of which a coarser part of the time comes later.
        leading: the slots of partitions.
    """
    directions: tuple[set[bool], set[bool]] = set(), set()
    seen: set[str] = set()
    pending = iter(slots)
    for step in order:
        attr = step.attr
        if attr.part is not None or attr.path:
            return None
        name = attr.name
        if name in fixed or name in seen:
            continue
        slot = next((candidate for candidate in pending if candidate.field not in seen), None)
        if slot is None:
            break  # every slot is spent: the key is unique, so what follows changes nothing
        while slot is not None:
            if slot.field != name or not slot.usable("<") or (slot.continues and name in coarser_later):
                return None
            part = directions[not any(slot is leading_slot for leading_slot in leading)]
            part.add(step.descending != (slot.text.spec == "desc"))
            if slot.says_all:
                break
            slot = next(pending, None)  # a time cut down, then what is finer: the order of both is that of the time
        seen.add(name)
    if max(map(len, directions)) > 1:
        return None
    partitions, rows = (next(iter(choices), None) for choices in directions)
    return partitions, rows
