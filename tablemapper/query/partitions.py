"""The choice of one partition: by itself, or by equalities of the fields that its key is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import attrs

from ..errors import InvalidQuery, safe_repr
from ..expressions.predicates import conjuncts
from ..expressions.tree import Attr, Compare
from ..keys.times import is_within
from ..keys.truncation import Truncation
from ..planning.conditions import AnyPredicate
from ..schema.model import Model

R_co = TypeVar("R_co", covariant=True)


@attrs.frozen
class Partition(Generic[R_co]):
    """A partition of a class, which `Store.partition` reads, and `where` of a query takes as a condition."""

    key: str
    """The partition key, as it is stored."""
    values: dict[str, Any]
    """The fields that the key gives back."""
    cls: type[R_co]
    """The class."""


def equalities(where: Iterable[AnyPredicate], example: str) -> list[tuple[Attr[Any, Any], Any]]:
    """Return the attributes that conditions fix, each with its value.

    Args:
        example: a field, for the message.

    Raises:
        InvalidQuery: one is no equality of a field.
    """
    pairs: list[tuple[Attr[Any, Any], Any]] = []
    for predicate in conjuncts(where):
        if not isinstance(predicate, Compare) or predicate.op != "==" or predicate.attr.path:
            raise InvalidQuery(f"partition: expected equalities, as in {example} == …, got {safe_repr(predicate)}")
        pairs.append((predicate.attr, predicate.value))
    return pairs


def partition_key(model: Model, pairs: Iterable[tuple[Attr[Any, Any], Any]]) -> str:
    """Return the partition key that equalities fix; a cut time will do where the key holds no more of it.

    Raises:
        InvalidQuery: they do not fix one.
    """
    template = model.declaration.templates[0]
    values: dict[str, Any] = {}
    for attr, value in pairs:
        values[attr.name] = value if attr.part is None else _moment(attr, attr.part, value)
        for slot in template.slots:
            if attr.part is not None and slot.field == attr.name and not is_within(slot.interval, attr.part.holder):
                raise InvalidQuery(f"partition: {attr!r} does not fix {slot}; compare {attr.whole!r} itself")
    if set(template.fields) != set(values):
        raise InvalidQuery(
            f"partition: the partition key of {model.name} is made of {', '.join(template.fields) or 'no field'}; "
            f"{', '.join(values) or 'nothing'} was given"
        )
    return template.encode(values)


def _moment(attr: Attr[Any, Any], part: Truncation, value: Any) -> Any:
    """Return the first moment that is cut to a value."""
    first = part.edge(value, attr.time_kind, end=False) if part.ordered else None
    if first is None or part.of(first) != value:
        raise InvalidQuery(
            f"partition: {attr!r} == {safe_repr(value)} is not a span of time; compare {attr.whole!r} itself"
        )
    return first
