"""What can be done with predicates: take them apart, write them down, replace their constants.

A predicate with `Parameter`s for constants stands for all queries that differ in their constants only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from operator import attrgetter
from typing import Any

from ..errors import InvalidQuery, shown
from .tree import And, Attr, Compare, Contains, In, IsNull, Not, Or, Parameter, Predicate, SameText, StartsWith

__all__ = ["conjuncts", "dump", "filled", "forms", "parametrised"]


def conjuncts(predicates: Iterable[Predicate[Any]]) -> Iterator[Predicate[Any]]:
    """Yield the predicates with every *and* taken apart."""
    for predicate in predicates:
        if isinstance(predicate, And):
            yield from conjuncts(predicate.parts)
        else:
            yield predicate


def forms(*predicates: Predicate[Any] | None) -> list[Any]:
    """Return the conjuncts of predicates that all hold, in forms that are equal where their meaning is."""
    return [dump(part) for part in conjuncts(one for one in predicates if one is not None)]


def dump(predicate: Predicate[Any], label: Callable[[Attr[Any, Any]], str] = attrgetter("label")) -> Any:
    """Return the predicate in builtins that JSON knows; equal predicates give equal forms.

    Args:
        predicate: what is written down.
        label: what an attribute is called there.
    """
    match predicate:
        case And():
            return ["and", *[dump(part, label) for part in conjuncts([predicate])]]
        case Or(parts=parts):
            return ["or", *[dump(part, label) for part in parts]]
        case Not(part=part):
            return ["not", dump(part, label)]
        case Compare(attr=attr, op=op, value=Attr() as other):
            return [op, label(attr), {"field": label(other)}]
        case Compare(attr=attr, op=op, value=value):
            return [op, label(attr), attr.type.dump(value)]
        case In(attr=attr, values=values):
            return ["in", label(attr), [attr.type.dump(value) for value in values]]
        case IsNull(attr=attr):
            return ["null", label(attr)]
        case StartsWith(attr=attr, text=text):
            return ["startswith", label(attr), text]
        case Contains(attr=attr, value=value):
            return ["contains", label(attr), (attr.type.element or attr.type).dump(value)]
        case SameText(attr=attr, specs=specs, value=value):
            slots = ", ".join(f"{label(attr)}:{spec}" for spec in specs)
            return ["is that of", slots, (attr.type.element or attr.type).dump(value)]
    raise InvalidQuery(f"a predicate is needed, not {shown(predicate)}")


def parametrised(predicate: Predicate[Any], first: int = 0) -> tuple[Predicate[Any], int]:
    """Return the predicate with its constants replaced by parameters, and the number of the next one.

    Args:
        predicate: what has constants.
        first: the number of the first parameter; they are numbered as `Predicate.shape` adds the constants.
    """
    numbers = count(first)
    parameters = predicate.with_constants(map(Parameter, numbers))
    return parameters, next(numbers)


def filled(predicate: Predicate[Any], values: Sequence[Any]) -> Predicate[Any]:
    """Return the predicate with the values of its parameters."""
    parameters: list[Any] = []
    predicate.shape(parameters)
    return predicate.with_constants(values[one.number] if isinstance(one, Parameter) else one for one in parameters)
