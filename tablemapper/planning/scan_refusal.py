"""The text of a refused query: why it would read the whole table, and the index that would serve it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, count
from typing import Any

from ..entities.key_and_indexes import index_table
from ..expressions.tree import Attr, Compare, In, Leaf, Order, Parameter
from ..keys.template import Template
from ..limits import check_table_name
from ..schema.model import Model
from ..values.scalars import ValueType
from ..values.type_names import type_name
from .conditions import AnyPredicate, Conditions, alternatives, conditions, field_name, normal
from .plan import MAX_RANGES, AccessPath, Plan
from .query_spec import QueryShape
from .shards import spreading


def lack(field: str, where: Iterable[AnyPredicate]) -> str:
    """Return the reason why conditions do not bound a field, as text."""
    speaking = [attr for p in where for attr in p.attributes() if field == ".".join((attr.name, *attr.path))]
    if not speaking:
        return f"no condition on {field}"
    lists = [predicate for predicate in where if isinstance(predicate, In) and field == field_name(predicate.attr)]
    longest = max([len(predicate.values) for predicate in lists], default=0)
    if longest > MAX_RANGES:
        return f"a list of {longest:,} values does not bound {field}"
    cut = any(attr.part for attr in speaking)
    return f"the condition on {field} does not bound it" + (
        f"; compare {field} itself: {field} >= …, {field} < …" if cut else ""
    )


def wanting(partition: Template, row: Template) -> str:
    """Return the field that a path begins with; shards of one are spread over by themselves, so queries name another."""
    slots = (*partition.slots, *row.slots)
    return next((slot.field for slot in slots if not slot.buckets), slots[0].field)


def refusal(form: QueryShape, rejections: Iterable[str], ask: Callable[..., list[Plan]]) -> str:
    """Return the reasons why a query is refused, and the index that would serve it, ready to paste.

    Args:
        rejections: why indexes cannot be followed.
        ask: returns the plans for the form with some changes.
    """
    model, where = form.model, normal(form.where)
    rejections = tuple(rejections)
    lines = [
        f"{model.name}: no key or index bounds this query, so it would read the whole table",
        f"  {model.name}.key: {lack(wanting(*model.declaration.templates), where)}",
        *(f"  {why}" for why in rejections),
    ]
    lists = [predicate for predicate in where if isinstance(predicate, In) and len(predicate.values) > MAX_RANGES]
    lines += [f"a query for each {MAX_RANGES:,} values of a list could be bounded"] * bool(lists)
    ways = alternatives(where)
    index = _index(model, ways, form.order)
    if suggestion := _more_conditions(model, where, ask) if len(ways) == 1 else None:
        lines.append(suggestion)
    if index is not None and (built := _being_built(model, index, rejections)) is not None:
        lines.append(f"{built} would serve it once it is built: call store.build(), or wait")
    elif index is not None:
        lines += ["or this index would serve it:" if suggestion else "this index would serve it:", f"    {index}"]
    elif len(ways) > 1:
        lines += _one_by_one(model, [way for way in ways if all(candidate.scan for candidate in ask(where=tuple(way)))])
    elif where:
        lines += [] if lists or suggestion else [NO_INDEX]
    else:
        lines += _in_order(form, ask)
    add = "" if index is not None or suggestion or len(ways) > 1 else "add conditions, "
    return "\n".join([*lines, f"{add}or read it all with .allow_scan()"])


NO_INDEX = (
    "no index can serve these conditions; it could serve a bool field that the program sets, and an index with where= "
    "can hold only what matches"
)


def proposal(form: QueryShape, plan: Plan) -> str | None:
    """Return the declaration of an index that serves a form better than a plan does; None if none can."""
    ways = alternatives(normal(form.where))
    index = _index(form.model, ways, form.order)
    if index is None or plan.scan:
        return index
    _, lead, ranged = _common(ways)
    sorts = plan.sorted and index != _index(form.model, ways, ())
    return index if sorts or len(lead) + len(ranged[:1]) > plan.bound_fields else None


def _more_conditions(model: Model, where: tuple[AnyPredicate, ...], ask: Callable[..., list[Plan]]) -> str | None:
    """Return the missing conditions on partitions, where the rows in them are bounded already."""
    stated = conditions(where)
    for path in (AccessPath(model), *(AccessPath(model, index) for index in model.indexes)):
        partition, row = path.templates
        bounded = {*stated.equal, *stated.among, *stated.compared, *stated.windows}
        missing = {slot.field: slot for slot in partition.slots if not slot.buckets and slot.field not in bounded}
        if not missing or not row.slots or row.slots[0].field not in bounded or any("." in name for name in missing):
            continue
        extra: list[Compare[Any]] = [
            Compare(attr=Attr(model.cls, name, model.declaration.field(name).type), op=op, value=Parameter(-number))
            for number, (name, slot) in enumerate(missing.items(), 1)
            for op in ((">=", "<") if slot.text.unit else ("==",))
        ]
        if any(candidate.path.index is path.index and not candidate.scan for candidate in ask(where=(*where, *extra))):
            texts = [f"{model.name}.{condition.attr.name} {condition.op} …" for condition in extra]
            return f"name {' and '.join(missing)}, too: .where({', '.join(texts)})"
    return None


def _one_by_one(model: Model, sides: Iterable[Sequence[AnyPredicate]]) -> list[str]:
    """Return the advice on alternatives that no index bounds together, or that none bounds at all."""
    proposals = [_index(model, [way], ()) for way in sides]
    lines = ["no index bounds all sides of an |: ask a query for each, and take once what several find"]
    if indexes := list(dict.fromkeys([proposal for proposal in proposals if proposal is not None])):
        lines += [f"{'this index' if len(indexes) == 1 else 'these indexes'} would serve what is left:"]
        lines += [f"    {index}" for index in indexes]
    return [*lines, *[NO_INDEX] * (None in proposals)]


def _in_order(form: QueryShape, ask: Callable[..., list[Plan]]) -> list[str]:
    """Return the advice to name an index, from which a query without conditions gets its order."""
    model = form.model
    names = [None if step.attr.part or step.attr.path else step.attr.name for step in form.order]
    if not names or None in names or len({step.descending for step in form.order}) > 1:
        return []
    types = {step.attr.name: step.attr.type for step in form.order}
    if any(model.optional(name) or not kind.keyable for name, kind in types.items()):
        return []  # (entities without it would not be in the index)
    full_indexes = [index for index in model.indexes if index.where is None and index.name not in form.unready]
    for index in full_indexes:
        full = all("." not in name and not model.optional(name) for name in index.fields) and index.fan_out is None
        if full and not ask(along=index.name)[0].sort:
            lines, name = ["an index gives the order, if it is named:"], index.name
            break
    else:
        declaration = _declaration(model, types, [], list(types))
        lines, name = ["this index would give the order, if it is named:", f"    {declaration}"], declaration.split()[0]
    steps = [f"{model.name}.{step.attr.name}{'.desc()' * step.descending}" for step in form.order]
    return [*lines, f"    store.query({model.name}.{name}()).order_by({', '.join(steps)})"]


def _being_built(model: Model, declaration: str, reasons: Iterable[str]) -> str | None:
    """Return the index that begins as a declaration does, if it is only not ready."""
    for index in model.indexes:
        label = f"{model.name}.{index.name}"
        if f'(partition="{index.partition.text}"' in declaration and f"{label}: it is being built" in " ".join(reasons):
            return label
    return None


def _index(model: Model, ways: Sequence[Sequence[AnyPredicate]], order: tuple[Order[Any], ...]) -> str | None:
    """Return the declaration of an index that bounds the query, None if no index can."""
    types, lead, ranged = _common(ways)
    if not lead and not ranged:
        return None
    for attr in (step.attr for step in order):
        name = field_name(attr)
        if name is None or attr.part or attr.path or model.optional(name) or not attr.type.keyable:
            continue  # (what may be missing would not be in the index)
        types.setdefault(name, attr.type)
        ranged += [] if name in lead else [name]
    return _declaration(model, types, lead, ranged[:1])


def _common(ways: Sequence[Sequence[AnyPredicate]]) -> tuple[dict[str, ValueType], list[str], list[str]]:
    """Return the result of `_bounding` for conditions that are all read along one path."""
    types, lead, ranged = _bounding(conditions(ways[0]))
    for way in ways[1:]:
        other_types, leads, ranges = _bounding(conditions(way))
        types |= other_types
        ranged = [f for f in (*lead, *ranged) if f in (*leads, *ranges) and not (f in lead and f in leads)]
        lead = [name for name in lead if name in leads]
    return types, lead, ranged


def _bounding(way: Conditions) -> tuple[dict[str, ValueType], list[str], list[str]]:
    """Return the types of fields that conditions bound in an index, those that may lead it, and those for a range."""
    types = {
        name: leaf.attr.whole.type
        for leaf, name in way.fields.items()
        if isinstance(leaf, Leaf) and _fits(leaf.attr, contains=name in way.elements)
    }
    elements = [name for name in way.elements if name in types][:1]  # (an index fans out over one list)
    lists = [name for name, values in way.among.items() if len(values) <= MAX_RANGES]
    lead = [name for name in dict.fromkeys((*way.equal, *elements, *lists)) if name in types]
    return types, lead, [name for name in (*way.compared, *way.windows) if name in types and name not in lead]


def _declaration(model: Model, types: Mapping[str, ValueType], lead: Sequence[str], ranged: Sequence[str]) -> str:
    """Return the declaration of an index over fields, the last of which may be compared."""
    fields = [*lead, *ranged]
    # (One partition for all would be hot, and serve every query that nothing bounds by reading all of it.)
    slots = [slot for template in model.declaration.templates for slot in template.slots]
    partition = _template(fields[:1]) if lead else _texts(spreading(slots, model.declaration))
    row = fields[1:] if lead else fields
    name = _free(
        "by_" + re.sub(r"\W", "_", "_and_".join(fields)), [*dir(model.cls), *(index.name for index in model.indexes)]
    )
    text = f"partition={partition}" + (f", row={_template(row)}" if row else "")
    if check_table_name(table := index_table(model.table, name)) is not None:
        plain = re.sub("[^A-Za-z0-9]", "", table)[:60]
        text += f', table="{_free(plain, [model.table, *(index.table for index in model.indexes)])}"'
    parameters = [type_name(types[field].element or types[field], model.cls) for field in fields]
    typed = "" if None in parameters else f"[{', '.join(map(str, parameters))}]"
    return f"{name} = tm.Index{typed}({text})"


def _fits(attr: Attr[Any, Any], *, contains: bool) -> bool:
    if any(set("{}[]:!.") & set(step) or not step for step in attr.path):
        return False  # (a template cannot name it)
    element = attr.type.element
    return element is not None if contains else attr.type.keyable


def _template(names: list[str]) -> str:
    return _texts([f"{{{name}}}" for name in names])


def _texts(components: Sequence[str]) -> str:
    texts = [f'"{component}"' for component in components]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _free(name: str, occupied: Iterable[str]) -> str:
    """Return a name that is not taken, not even in other case; with a number if need be."""
    lowered = {text.lower() for text in occupied}
    numbered = (f"{name}{number}" for number in count(2))
    return next(candidate for candidate in chain([name], numbered) if candidate.lower() not in lowered)
