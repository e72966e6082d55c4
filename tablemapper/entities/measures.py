"""The rules of measures and groups of aggregates: every fault of a declaration.

A maintained field of an entity is the measure of an aggregate that nobody sees. That is grouped by the fields of the
entity's key, and the source has fields of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from ..errors import InvalidQuery, safe_repr
from ..expressions.arithmetic import Computed
from ..expressions.tree import TIMESTAMP_NAME, Attr, ElementAttr, ElementOfList, as_predicate
from .declaration import AbstractDeclaration, Declaration, abstract_declaration
from .fields import FieldModel, Measure, SourceName


def measures_of(declaration: Declaration, field: FieldModel) -> dict[str, Measure]:
    """Return the groups and the measure of the aggregate that keeps a maintained field, by the fields of the entity.

    Raises:
        InvalidQuery: the source lacks a field of the key.
    """
    assert field.measure is not None
    source = field.measure.of
    measures = {}
    for name in declaration.arguments:
        attr: Attr[Any, Any] = Attr(source, name, abstract_declaration(source).field(name).type)
        measures[name] = Measure("group", attr, None, declaration.field(name).property)
    return measures | {field.name: attrs.evolve(field.measure, of=None, name=field.property)}


def maintained_faults(declaration: AbstractDeclaration) -> Iterator[str]:
    """Yield what is wrong with the maintained fields of an entity."""
    if not isinstance(declaration, Declaration):
        return
    for field in declaration.maintained:
        assert field.measure is not None
        source = field.measure.of
        if isinstance(source, SourceName):
            continue
        if not isinstance(source, type) or "__declaration__" not in source.__dict__:
            yield f"{field.name}: of={safe_repr(source)}: expected the class of the entities that it measures"
            continue
        if missing := [name for name in declaration.arguments if name not in abstract_declaration(source).properties]:
            yield (
                f"{field.name}: it is over the entities with the values of this key, but {source.__name__} has no field "
                f"{_name_list(set(missing))}"
            )
            continue
        measures = measures_of(declaration, field)
        fields = tuple([attrs.evolve(declaration.field(name), measure=measure) for name, measure in measures.items()])
        faults = aggregate_faults(attrs.evolve(declaration, of=source, fields=fields))
        yield from (fault if fault.startswith(f"{field.name}: ") else f"{field.name}: {fault}" for fault in faults)


def aggregate_faults(declaration: AbstractDeclaration) -> list[str]:
    faults: list[str] = []
    source = declaration.of
    if source is None or "__declaration__" not in getattr(source, "__dict__", {}):
        return ["of= must name the entity class that it is maintained from"]
    if abstract_declaration(source).of is not None:
        return [f"of={source.__name__}: an aggregate of an aggregate is not possible; aggregate its entities"]
    if abstract_declaration(source).table is None:
        return [f"of={source.__name__} has no table; aggregate a class that has one"]
    lists = [f.name for f in declaration.fields if f.measure is not None and isinstance(f.measure.attr, ElementAttr)]
    if len(lists) > 1:
        faults.append(f"{' and '.join(lists)} are elements of lists; an aggregate can group by those of one")
    for field in declaration.fields:
        if field.measure is not None:
            faults += [f"{field.name}: {fault}" for fault in _measure_faults(field, field.measure, source)]
    for attr in () if declaration.where is None else declaration.where.attributes():
        if abstract_declaration(source).field(attr.name).maintained:
            faults.append(f"where=: {attr!r} is maintained itself; nothing can be maintained by it")
    groups = {f.name for f in declaration.fields if f.measure is not None and f.measure.kind == "group"}
    if isinstance(declaration, Declaration):
        lossless = declaration.partition.lossless_fields | declaration.row.lossless_fields
        if declaration.key_fields != groups:
            faults.append(
                f"its key is made of {_name_list(declaration.key_fields)}, but must be of exactly the group_by fields, "
                f"{_name_list(groups)}"
            )
        elif lossy := groups - lossless:
            faults.append(f"its key must hold {_name_list(lossy)} without loss, or two groups would share a row")
    return faults


def _name_list(names: set[str] | frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "no field"


def _measure_faults(field: FieldModel, measure: Measure, source: type[Any]) -> list[str]:
    """Return the first fault of a measure: of what it reads, of what it is of, or of the type of its field."""
    fault = _source_fault(measure, source) or _large_fault(measure, source)
    if fault is None and measure.kind == "count":
        fault = None if field.type.name == "int" else f"a count is an int, not {field.type.name}"
    elif fault is None:
        kind = _kind_of(measure)
        fault = _KIND_FAULTS[measure.kind](field, measure, source, kind)
        if fault is None and field.type.name != kind and (field.type.name, kind) != ("int", "int32"):
            fault = f"{measure.kind} of {measure.attr!r} is {kind}, but the field is {field.type.name}"
    return [] if fault is None else [fault]


def _source_fault(measure: Measure, source: type[Any]) -> str | None:
    """Return why nothing can be maintained from what a measure reads."""
    attr = measure.attr
    try:
        attributes = [
            *(attr.attributes() if isinstance(attr, Computed | ElementAttr) else [] if attr is None else [attr]),
            *([] if measure.where is None else as_predicate(measure.where).attributes()),
        ]
    except InvalidQuery as error:
        return f"where=: {error}"
    for attribute in attributes:
        if not isinstance(attribute, Attr):
            return f"{measure.kind}({safe_repr(attribute)}): expected a field, as in {source.__name__}.name"
        if isinstance(attribute, ElementOfList):
            return f"{attribute!r} is an element of a list, which can only be assigned; .each() gives all of them"
        if not issubclass(source, attribute.owner):
            return f"{safe_repr(attribute)} is not a field of {source.__name__}, the class that it aggregates"
        if attribute.name == TIMESTAMP_NAME:
            return f"{attribute!r} changes with each write; nothing can be maintained by it"
        if abstract_declaration(source).field(attribute.name).maintained:
            return f"{attribute!r} is a maintained field itself; measure its source"
    if isinstance(attr, ElementAttr) and measure.kind != "group":
        return f"{attr!r} is a group field, and cannot be measured"
    return None


def _large_fault(measure: Measure, source: type[Any]) -> str | None:
    for attribute in () if measure.attr is None else measure.attr.attributes():
        if abstract_declaration(source).field(attribute.name).large:
            return f"{attribute.name} is large, and cannot be in a {'group' if measure.kind == 'group' else 'measure'}"
    return None


def _kind_of(measure: Measure) -> str:
    """Return the name of the type that a measure gives."""
    assert measure.attr is not None
    name = measure.attr.type.plain.name
    if measure.kind == "avg" and name in ("int", "int32"):
        return "float"
    return "int" if measure.kind == "sum" and name == "int32" else name


def _group_fault(field: FieldModel, measure: Measure, source: type[Any], kind: str) -> str | None:
    attr = measure.attr
    assert attr is not None
    if isinstance(attr, Computed):
        return f"{attr!r} is calculated; group by a field"
    if not attr.type.keyable:
        hint = f", or by {attr!r}.each()" if attr.type.element is not None else ""
        return f"{attr!r} is {kind}; group by a scalar field{hint}"
    return f"a group is never None; make it Field[{kind}]" if field.optional else None


def _sum_fault(field: FieldModel, measure: Measure, source: type[Any], kind: str) -> str | None:
    attr = measure.attr
    assert attr is not None
    if not attr.type.summable:
        return f"{attr!r} is {attr.type.plain.name}; only numbers and timedeltas have a sum"
    can_lack = measure.where is not None or any(
        attribute.path or abstract_declaration(source).field(attribute.name).optional for attribute in attr.attributes()
    )
    return None if field.optional or not (measure.kind == "avg" or can_lack) else _no_value(attr, kind)


def _extreme_fault(field: FieldModel, measure: Measure, source: type[Any], kind: str) -> str | None:
    attr = measure.attr
    assert attr is not None
    if not attr.type.ordered:
        return f"{attr!r} is {kind}, which has no order"
    return None if field.optional else _no_value(attr, kind)


def _no_value(attr: object, kind: str) -> str:
    return f"a group may hold no value of {attr!r}; make it Field[{kind} | None]"


_KIND_FAULTS: dict[str, Callable[[FieldModel, Measure, type[Any], str], str | None]] = {
    "group": _group_fault,
    **dict.fromkeys(("sum", "avg"), _sum_fault),
    **dict.fromkeys(("min", "max", "min_ever", "max_ever"), _extreme_fault),
}
"""Why a measure of each kind cannot be of an attribute, or be in its field."""
