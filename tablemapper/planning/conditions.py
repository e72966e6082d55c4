"""Predicates in normal form, by field.

All constants are `Parameter`s here: nothing depends on their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import Any

import attrs

from ..entities.declaration import Declaration
from ..entities.key_and_indexes import IndexModel
from ..expressions import tree
from ..expressions.predicates import conjuncts
from ..expressions.tree import Comparison as Operator
from ..keys.truncation import Truncation
from ..values.extra import indexed_as

MAX_ALTERNATIVES = 64


@attrs.frozen
class Edge(tree.Parameter):
    """The moment at which the cut time begins, or ends, that is given later."""

    part: Truncation
    end: bool
    kind: type
    """Of the times: datetime, or date."""
    for_good: bool

    def moment(self, values: Sequence[Any]) -> date | None:
        """Return it; None if it is after all times."""
        moment: date | None = self.part.edge(values[self.number], self.kind, end=self.end, for_good=self.for_good)
        return moment


_EDGES: dict[str, tuple[tuple[Operator, bool], ...]] = {
    "==": ((">=", False), ("<", True)), "<": (("<", False),), "<=": (("<", True),), ">": ((">=", True),),
    ">=": ((">=", False),),
}  # fmt: skip
"""How a time is compared, with the beginning or the end of a bucket, if what it is cut to is compared so."""


def time_comparisons(op: str, part: Truncation) -> Iterator[tuple[Operator, bool]]:
    """Yield the comparisons of a time for one of its truncation: an operator, and whether with the end of the
    bucket."""
    if part.ordered:
        yield from _EDGES.get(op, ())


def edges(op: str, part: Truncation, number: tree.Parameter, kind: type) -> list[tuple[str, tree.Parameter]]:
    """Return the comparisons of a time for one of its truncation: all times that are cut so lie between these edges."""
    return [(sign, Edge(number.number, part, end, kind, sign == "<")) for sign, end in time_comparisons(op, part)]


Comparison = tuple[str, tree.Parameter]
Window = tuple[Truncation, type, tuple[tree.Parameter, ...]]
"""Buckets of a time: what it is cut to, its type, and the values."""
AnyPredicate = tree.Predicate[Any]


# ---------------------------------------------------------------------------------------------- by name


def call_conditions(declaration: Declaration, index: IndexModel, count: int) -> Iterator[AnyPredicate]:
    """Yield the conditions of an index that is called with values of its first parameters: its slots' texts."""
    slots = (*index.partition.slots, *index.row.slots)
    for number, name in enumerate(index.arguments[:count]):
        head, *path = name.split(".")
        field = declaration.field(head)
        attr: tree.Attr[Any, Any] = tree.Attr(
            declaration.cls, head, indexed_as(field.type.nested(tuple(path))) if path else field.type, tuple(path)
        )
        field_slots = tuple(slot for slot in slots if slot.field == name)
        if all(not slot.lossless for slot in field_slots):
            yield tree.SameText(attr=attr, texts=tuple(slot.text for slot in field_slots), value=tree.Parameter(number))
        elif name == index.fan_out:
            yield tree.Contains(attr=attr, value=tree.Parameter(number))
        else:
            yield tree.Compare(attr=attr, op="==", value=tree.Parameter(number))


# ---------------------------------------------------------------------------------------------- normalise


def normal(where: Iterable[AnyPredicate]) -> tuple[AnyPredicate, ...]:
    """Return predicates that all hold where the given do: *not* stands at leaves, equalities of a field are one."""
    return tuple(conjuncts([_normal(predicate) for predicate in where]))


def _normal(predicate: AnyPredicate) -> AnyPredicate:
    match predicate:
        case tree.And(parts=parts):
            return tree.And(parts=tuple(map(_normal, parts)))
        case tree.Or(parts=parts):
            return _united([_normal(part) for part in parts])
        case tree.Not(part=tree.Not(part=part)):
            return _normal(part)
        case tree.Not(part=tree.And(parts=parts)):  # (predicates are two-valued, so these hold for missing values too)
            return _united([_normal(tree.Not(part=part)) for part in parts])
        case tree.Not(part=tree.Or(parts=parts)):
            return tree.And(parts=tuple([_normal(tree.Not(part=part)) for part in parts]))
        case tree.In(attr=attr, values=(value,)):
            return tree.Compare(attr=attr, op="==", value=value)
    return predicate


def _united(parts: list[AnyPredicate]) -> AnyPredicate:
    """Return one that holds where one of the parts does; equalities of one field become a list of its values."""
    other_parts: list[AnyPredicate] = []
    lists: dict[Any, tree.In[Any]] = {}
    for part in _flat(parts):
        match part:
            case tree.Compare(attr=attr, op="==", value=tree.Parameter() as value):
                values: tuple[Any, ...] = (value,)
            case tree.In(attr=attr, values=values):
                pass
            case _:
                other_parts.append(part)
                continue
        so_far = lists.get(attr.source)
        lists[attr.source] = tree.In(attr=attr, values=values if so_far is None else so_far.values + values)
    equalities = [_normal(predicate) for predicate in lists.values()]
    return equalities[0] if len(equalities) == 1 and not other_parts else tree.Or(parts=(*equalities, *other_parts))


def _flat(parts: Iterable[AnyPredicate]) -> Iterator[AnyPredicate]:
    for part in parts:
        if isinstance(part, tree.Or):
            yield from _flat(part.parts)
        else:
            yield part


def alternatives(where: Iterable[AnyPredicate]) -> list[list[AnyPredicate]]:
    """Return lists of predicates: each result satisfies all of one list. An *or* that multiplies them is left out."""
    conjunctions: list[list[AnyPredicate]] = [[]]
    choices: list[tree.Or[Any]] = []
    for predicate in where:
        if isinstance(predicate, tree.Or):
            choices.append(predicate)
        else:
            conjunctions[0].append(predicate)
    for choice in choices:
        parts = [alternative for part in choice.parts for alternative in alternatives(conjuncts([part]))]
        if len(conjunctions) * len(parts) <= MAX_ALTERNATIVES:
            conjunctions = [[*conjunction, *part] for conjunction in conjunctions for part in parts]
    return conjunctions


# ---------------------------------------------------------------------------------------------- field by field


@attrs.frozen(eq=False)
class Conditions:
    """The conditions of one alternative on single fields, by the field's name, dotted where nested."""

    equal: dict[str, tree.Parameter] = attrs.field(factory=dict)
    among: dict[str, tuple[tree.Parameter, ...]] = attrs.field(factory=dict)
    compared: dict[str, list[Comparison]] = attrs.field(factory=dict)
    windows: dict[str, Window] = attrs.field(factory=dict)
    """Times that are in one of several buckets."""
    elements: dict[str, tree.Parameter] = attrs.field(factory=dict)
    """Elements that lists are known to hold."""
    texts: dict[str, tree.Parameter] = attrs.field(factory=dict)
    """Values that have the same texts in the slots of an index; of fields that have lossy ones only."""
    present: set[str] = attrs.field(factory=set)
    """Fields that have a value wherever the conditions hold."""
    fields: dict[AnyPredicate, str] = attrs.field(factory=dict)
    """The predicates that the five above come from, with the field's name."""


def of_elements(way: Conditions, fan_out: str) -> Conditions:
    """Return the conditions along an index that has a row for each element of a list: none on the list as a whole."""
    if not any(fan_out in values for values in (way.equal, way.among, way.compared)):
        return way

    def without(values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name != fan_out}

    return attrs.evolve(way, equal=without(way.equal), among=without(way.among), compared=without(way.compared))


def field_name(attr: tree.Attr[Any, Any]) -> str | None:
    """Return the name under which a template knows an attribute, or the time that it is cut from.

    None if no template can hold it.
    """
    return None if attr.type.dynamic else ".".join((attr.name, *attr.path))


def conditions(where: Iterable[AnyPredicate]) -> Conditions:
    """Sort predicates that all hold by the field that they are about."""
    way = Conditions()
    for predicate in where:
        way.present.update(field_name(attr) or attr.name for attr in present(predicate))
        match predicate:
            case tree.Compare(value=tree.Attr()):
                pass
            case tree.Compare() | tree.In() | tree.StartsWith() | tree.Contains() | tree.SameText():
                name = field_name(predicate.attr)
                if name is not None and _add(way, predicate, name):
                    way.fields[predicate] = name
    return way


def present(predicate: AnyPredicate) -> tuple[tree.Attr[Any, Any], ...]:
    """Return the attributes that have a value wherever a predicate holds."""
    match predicate:
        case tree.Compare() | tree.In() | tree.StartsWith() | tree.Contains() | tree.SameText():
            return tuple(predicate.attributes())
        case tree.Not(part=tree.IsNull(attr=attr)):
            return (attr,)
    return ()


def _add(way: Conditions, predicate: AnyPredicate, name: str) -> bool:
    """Keep what a predicate says, unless something else is known already; return whether it was new."""
    match predicate:
        case tree.Compare(attr=tree.Attr(part=Truncation() as part) as attr, op=op, value=value):
            between = edges(op, part, value, attr.time_kind)
            if between:
                way.compared.setdefault(name, []).extend(between)
            return bool(between)
        case tree.In(attr=tree.Attr(part=Truncation() as part) as attr, values=values):
            window = way.windows.setdefault(name, (part, attr.time_kind, values)) if part.ordered else None
            return window is not None and window[2] is values
        case tree.Contains(attr=tree.Attr(part=Truncation())) | tree.StartsWith(attr=tree.Attr(part=Truncation())):
            return False
        case tree.Contains(attr=attr, value=value) if attr.type.element is not None:
            return way.elements.setdefault(name, value) is value
        case tree.SameText(value=value):
            return way.texts.setdefault(name, value) is value
        case tree.Compare() | tree.In() if (
            predicate.attr.type.element is not None and not predicate.attr.type.hierarchy
        ):
            return False  # (no slot holds a whole list)
        case tree.Compare(op="==", value=value):
            return way.equal.setdefault(name, value) is value
        case tree.Compare(op=op, value=value) if op != "!=":
            way.compared.setdefault(name, []).append((op, value))
            return True
        case tree.StartsWith(text=text):
            way.compared.setdefault(name, []).append(("startswith", text))
            return True
        case tree.In(values=values):
            return way.among.setdefault(name, values) is values
    return False
