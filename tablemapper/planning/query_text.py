"""What a query asks without its values: as data that a file can keep, as text to read, and as a form to plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from ..errors import safe_repr
from ..expressions.predicates import attribute, conjuncts, dump, load
from ..expressions.tree import Attr, Order, Parameter
from ..schema.model import Model
from .conditions import named
from .query_spec import QueryShape, QuerySpec

_VALUE = "?"


def wording(spec: QuerySpec) -> dict[str, Any]:
    """Return what a query asks, in builtins that JSON knows, with ``?`` for each value."""
    along = spec.range
    return {
        "model": spec.model.name,
        "along": None if along is None else [along.name, len(along.values)],
        "where": [dump(one, constant=lambda kind, value: _VALUE) for one in conjuncts(spec.where)],
        "order": [[step.attr.label, step.descending] for step in spec.order],
    }


def form_text(words: dict[str, Any]) -> str:
    """Return a wording as text: ``Product where maker == ? and price < ? order by price``."""
    along = words["along"]
    text = str(words["model"]) + ("" if along is None else f".{along[0]}({', '.join([_VALUE] * along[1])})")
    if words["where"]:
        text += " where " + " and ".join([condition_text(one, _placeholder) for one in words["where"]])
    steps = [f"{label}{' descending' if descending else ''}" for label, descending in words["order"]]
    return text + (f" order by {', '.join(steps)}" if steps else "")


def _placeholder(_: object) -> str:
    return _VALUE


def condition_text(form: Any, value: Callable[[Any], str] = safe_repr) -> str:
    """Return a condition as a user would write it.

    Args:
        form: as `dump` gives it.
        value: returns the text of a value, or of a list of them.
    """
    op, *rest = form
    if op in ("and", "or"):
        return "(" + f" {op} ".join([condition_text(one, value) for one in rest]) + ")"
    if op == "not":
        return f"not {condition_text(rest[0], value)}"
    if op == "null":
        return f"{rest[0]} is missing"
    other = rest[1]["field"] if isinstance(rest[1], dict) and "field" in rest[1] else value(rest[1])
    return f"{rest[0]} {op} {other}"


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
        index = {one.name: one for one in model.indexes}[along[0]]
        by_name, numbers = named(model.declaration, index, along[1]), count(along[1])
    where = (*by_name, *(load(one, field, parameter) for one in words["where"]))
    order: tuple[Order[Any], ...] = tuple(
        [Order(attribute(label, field), descending=bool(down)) for label, down in words["order"]]
    )
    return QueryShape(model, where, order, None if along is None else along[0])
