"""A query shape as data that a file can keep, as text to read, and as a shape to plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from ..errors import safe_repr
from ..expressions.predicates import attribute, conjuncts, dump, load
from ..expressions.tree import Attr, Order, Parameter
from ..schema.model import Model
from .conditions import call_conditions
from .query_spec import QueryShape, QuerySpec

_VALUE = "?"


def wording(spec: QuerySpec) -> dict[str, Any]:
    """Return the shape of a query in builtins that JSON knows, with ``?`` for each value."""
    along = spec.range
    return {
        "model": spec.model.name,
        "along": None if along is None else [along.name, len(along.values)],
        "where": [dump(predicate, constant=lambda kind, value: _VALUE) for predicate in conjuncts(spec.where)],
        "order": [[step.attr.label, step.descending] for step in spec.order],
    }


def form_text(words: dict[str, Any]) -> str:
    """Return a wording as text: ``Product where maker == ? and price < ? order by price``."""
    along = words["along"]
    text = str(words["model"]) + ("" if along is None else f".{along[0]}({', '.join([_VALUE] * along[1])})")
    if words["where"]:
        text += " where " + " and ".join([condition_text(condition, lambda _: _VALUE) for condition in words["where"]])
    steps = [f"{label}{' descending' if descending else ''}" for label, descending in words["order"]]
    return text + (f" order by {', '.join(steps)}" if steps else "")


def condition_text(form: Any, value: Callable[[Any], str] = safe_repr) -> str:
    """Return a condition as a user would write it.

    Args:
        form: as `dump` gives it.
        value: returns the text of a value, or of a list of them.
    """
    op, *operands = form
    if op in ("and", "or"):
        return "(" + f" {op} ".join([condition_text(operand, value) for operand in operands]) + ")"
    if op == "not":
        return f"not {condition_text(operands[0], value)}"
    if op == "null":
        return f"{operands[0]} is missing"
    right = operands[1]["field"] if isinstance(operands[1], dict) and "field" in operands[1] else value(operands[1])
    return f"{operands[0]} {op} {right}"


def form_of(words: dict[str, Any], model: Model) -> QueryShape:
    """Return the form of a query of which there is only a wording.

    Raises:
        LookupError, TypeError, ValueError: the class has other fields or indexes by now, or it is no wording.
    """
    numbers = count()

    def field(name: str) -> Attr[Any, Any]:
        return Attr(model.cls, name, model.declaration.field(name).type)

    def parameter(*_: object) -> Parameter:
        return Parameter(next(numbers))

    along = words["along"]
    by_name: Iterable[Any] = ()
    if along is not None:
        index = {candidate.name: candidate for candidate in model.indexes}[along[0]]
        by_name, numbers = call_conditions(model.declaration, index, along[1]), count(along[1])
    where = (*by_name, *(load(condition, field, parameter) for condition in words["where"]))
    order: tuple[Order[Any], ...] = tuple(
        [Order(attribute(label, field), descending=bool(down)) for label, down in words["order"]]
    )
    return QueryShape(model, where, order, None if along is None else along[0])
