"""Operations on predicates and calculations: split, serialise, parametrise.

A predicate with `Parameter`s for constants stands for all queries that differ in their constants only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from itertools import count
from operator import attrgetter
from typing import Any, get_args

import attrs

from ..datetime_types import Builtin
from ..errors import InvalidQuery, safe_repr
from ..keys.truncation import CUT, Truncation, cut_of
from ..values.scalars import ValueType
from . import tree
from .arithmetic import Computed, kind_of

_COMPARISONS: dict[str, tree.Comparison] = {op: op for op in get_args(tree.Comparison)}


def conjuncts(predicates: Iterable[tree.Predicate[Any]]) -> Iterator[tree.Predicate[Any]]:
    """Yield the predicates with every *and* taken apart."""
    for predicate in predicates:
        if isinstance(predicate, tree.And):
            yield from conjuncts(predicate.parts)
        else:
            yield predicate


def forms(*predicates: tree.Predicate[Any] | None) -> list[Any]:
    """Return the conjuncts of predicates that all hold, in forms that are equal where their meaning is."""
    return [dump(part) for part in conjuncts(predicate for predicate in predicates if predicate is not None)]


def dump(
    predicate: tree.Predicate[Any],
    label: Callable[[tree.Attr[Any, Any]], str] = attrgetter("label"),
    constant: Callable[[ValueType, Any], Any] = ValueType.dump,
) -> Any:
    """Return the predicate in builtins that JSON knows; equal predicates give equal forms.

    Args:
        label: what an attribute is called there.
        constant: what stands there for a value, whose type comes first.
    """
    match predicate:
        case tree.And():
            return ["and", *[dump(part, label, constant) for part in conjuncts([predicate])]]
        case tree.Or(parts=parts):
            return ["or", *[dump(part, label, constant) for part in parts]]
        case tree.Not(part=part):
            return ["not", dump(part, label, constant)]
        case tree.Compare(attr=attr, op=op, value=tree.Attr() as right):
            return [op, label(attr), {"field": label(right)}]
        case tree.Compare(attr=attr, op=op, value=value):
            return [op, label(attr), constant(attr.type, value)]
        case tree.In(attr=attr, values=values):
            return ["in", label(attr), [constant(attr.type, value) for value in values]]
        case tree.IsNull(attr=attr):
            return ["null", label(attr)]
        case tree.StartsWith(attr=attr, text=text):
            return ["startswith", label(attr), constant(attr.type, text)]
        case tree.Contains(attr=attr, value=value):
            return ["contains", label(attr), constant(attr.type.element or attr.type, value)]
        case tree.SameText(attr=attr, specs=specs, value=value):
            slots = ", ".join(f"{label(attr)}:{spec}" for spec in specs)
            return ["is that of", slots, constant(attr.type.element or attr.type, value)]
    raise InvalidQuery(f"expected a condition, got {safe_repr(predicate)}")


def load(
    form: Any,
    field: Callable[[str], tree.Attr[Any, Any]],
    constant: Callable[[ValueType, Any], Any] = ValueType.undump,
) -> tree.Predicate[Any]:
    """Return the predicate that `dump` was given.

    Args:
        field: returns the attribute of a field, by what it is called there.
        constant: returns the value for what stands for one, whose type comes first.

    Raises:
        ValueError: no condition on these fields gives such a form.
    """
    op, *operands = form
    if op in ("and", "or"):
        return (tree.And if op == "and" else tree.Or)(parts=tuple([load(part, field, constant) for part in operands]))
    if op == "not":
        return tree.Not(part=load(operands[0], field, constant))
    attr = attribute(operands[0], field)
    if op == "null":
        return tree.IsNull(attr=attr)
    value = operands[1]
    if op == "startswith":
        text = constant(attr.type, value)
        return tree.StartsWith(attr=tree.known_as(attr, text), text=text)
    if op == "in":
        values = tuple([constant(attr.type, item) for item in value])
        return tree.In(attr=tree.known_as(attr, *values), values=values)
    if op == "contains":
        part = constant(attr.type.element or attr.type, value)
        return tree.Contains(attr=tree.known_as(attr, part), value=part)
    if op not in _COMPARISONS:
        raise ValueError(f"{safe_repr(op)} is no condition")
    if isinstance(value, dict) and value.keys() == {"field"}:
        return tree.Compare(attr=attr, op=_COMPARISONS[op], value=attribute(value["field"], field))
    value = constant(attr.type, value)
    return tree.Compare(attr=tree.known_as(attr, value) if op == "==" else attr, op=_COMPARISONS[op], value=value)


_STEP = re.compile(r'\.([^.()\["]+)(?!\()|\["([^"]*)"\]')


def label_parts(label: str) -> tuple[str, tuple[str, ...], Truncation | None]:
    """Return the name of an attribute, the steps to a nested value, and the truncation of a time.

    Raises:
        ValueError: it is no label.
    """
    name = re.split(r'[.\["]', label, maxsplit=1)[0]
    steps: list[str] = []
    at = len(name)
    while at < len(label):
        if (cut := CUT.match(label, at)) is not None:
            return name, tuple(steps), cut_of(cut)
        step = _STEP.match(label, at)
        if step is None:
            raise ValueError(f"{safe_repr(label)} is no field")
        steps.append(str(step[1] or step[2]))
        at = step.end()
    return name, tuple(steps), None


def attribute(label: str, field: Callable[[str], tree.Attr[Any, Any]]) -> tree.Attr[Any, Any]:
    """Return the attribute of a label; arguments and errors as `load` has them."""
    name, steps, cut = label_parts(label)
    attr = field(name)
    for step in steps:
        attr = attrs.evolve(attr, path=(*attr.path, step), type=attr.type.nested((step,)))
    return attr if cut is None else tree.cut_down(attr, cut)


_MICROSECOND = timedelta(microseconds=1)
_CONSTANTS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    int: (lambda value: str(int(value)), int),
    float: (lambda value: repr(float(value)), float),
    Decimal: (str, Decimal),
    timedelta: (lambda value: str(value // _MICROSECOND), lambda text: int(text) * _MICROSECOND),
    Builtin.datetime: (Builtin.datetime.isoformat, Builtin.datetime.fromisoformat),
    Builtin.date: (Builtin.date.isoformat, Builtin.date.fromisoformat),
}
"""How a constant of a calculation is written, and read: JSON has too few types, and ints of 64 bits."""


def dump_value(value: Any, label: Callable[[tree.Attr[Any, Any]], str] = attrgetter("label")) -> Any:
    """Return a field, or what is calculated of fields, in builtins that JSON knows; arguments as `dump` has them."""
    if isinstance(value, Computed):
        return [value.op, dump_value(value.left, label), dump_value(value.right, label)]
    if isinstance(value, tree.Attr):
        return label(value)
    kind = kind_of(value)
    assert kind is not None
    return {kind.__name__: _CONSTANTS[kind][0](value)}


def load_value(form: Any, field: Callable[[str], tree.Attr[Any, Any]]) -> tree.Attr[Any, Any] | Computed[Any, Any]:
    """Return the argument of `dump_value`; arguments and errors as `load` has them."""
    value = _load_operand(form, field)
    if not isinstance(value, tree.Attr | Computed):
        raise ValueError(f"{safe_repr(form)} is no field, and nothing that is calculated of fields")
    return value


def load_group(
    label: str, field: Callable[[str], tree.Attr[Any, Any]]
) -> tree.Attr[Any, Any] | tree.ElementAttr[Any, Any]:
    """Return the attribute that entities are grouped by, by its label; arguments and errors as `load` has them."""
    attribute_label = label.removesuffix(".each()")
    attr = attribute(attribute_label, field)
    return attr if attribute_label == label else attr.each()


def _load_operand(form: Any, field: Callable[[str], tree.Attr[Any, Any]]) -> Any:
    match form:
        case str():
            return attribute(form, field)
        case [("+" | "-" | "*" | "/") as op, left, right]:
            return Computed(op, _load_operand(left, field), _load_operand(right, field))
        case {**constants} if len(constants) == 1:
            return load_constant(form)
    raise ValueError(f"{safe_repr(form)} is no calculation")


def load_constant(form: Any) -> Any:
    """Return a constant of a calculation; raise ValueError if it is none."""
    ((name, text),) = form.items()
    for kind, (_, parse) in _CONSTANTS.items():
        if kind.__name__ == name and isinstance(text, str):
            return parse(text)
    raise ValueError(f"{safe_repr(form)} is no calculation")


def parametrised(predicate: tree.Predicate[Any], first: int = 0) -> tuple[tree.Predicate[Any], int]:
    """Return the predicate with its constants replaced by parameters, and the number of the next one.

    Args:
        first: the number of the first parameter; they are numbered as `Predicate.shape` adds the constants.
    """
    numbers = count(first)
    parameters = predicate.with_constants(map(tree.Parameter, numbers))
    return parameters, next(numbers)


def filled(predicate: tree.Predicate[Any], values: Sequence[Any]) -> tree.Predicate[Any]:
    """Return the predicate with the values of its parameters."""
    parameters: list[Any] = []
    predicate.shape(parameters)
    return predicate.with_constants(
        values[parameter.number] if isinstance(parameter, tree.Parameter) else parameter for parameter in parameters
    )
