"""Filters of a service: the bounds of a plan, and of its conditions those that a service understands.

All conditions are evaluated again in Python, so what is sent may let more rows pass, and never fewer. A service sorts by
UTF-16 units, and Python by code points: bounds are widened where that makes a difference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import attrs

from ....datetime_types import Builtin
from ....expressions.tree import And, Attr, Compare, In, Or, Parameter, StartsWith
from ....keys.encodings import SEPARATOR, raise_last
from ....keys.template import Slot, Template
from ....limits import MAX_INT32, MAX_INT64, MIN_DATETIME, MIN_INT32, MIN_INT64
from ....planning.bounds import EVERYTHING, Bound
from ....planning.conditions import AnyPredicate
from ....planning.ranges import KeyRange
from ....schema.model import Model
from ....values.scalars import SCALARS
from ..tables.entity_json import EntityCodec, as_stored
from ..tables.reserved_names import END, HIDDEN
from ..tables.service import PARTITION, ROW, AllOf, AnyOf, Comparison, Filter, Operator, QueryEntities, filter_text

MAX_COMPARISONS = 15  # of a filter; Azure takes no more
MAX_FILTER = 4_000  # characters of a filter, as they travel
MAX_VALUES = 10  # of an is_in
_HIGH = re.compile("[\ud800-\U0010ffff]")
_MILLISECOND = timedelta(milliseconds=1)
_LATEST = Builtin.datetime.max.replace(tzinfo=UTC) - _MILLISECOND
_OPERATORS: dict[str, Operator] = {"==": "eq", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def units(key: str) -> str:
    """Return a text that Python compares as a service compares the given one."""
    if key.isascii() or max(key) < "\U00010000":
        return key
    data = key.encode("utf-16-be", "surrogatepass")
    return "".join([chr(data[at] << 8 | data[at + 1]) for at in range(0, len(data), 2)])


def has_high(*keys: str | None) -> bool:
    """Return whether a text holds a character that a service and Python may sort in two ways."""
    return any(key is not None and not key.isascii() and _HIGH.search(key) for key in keys)


def all_of(parts: Sequence[Filter]) -> Filter | None:
    """Return what holds where all parts do; None if there is none."""
    return None if not parts else parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def text(name: str, op: Operator, value: str) -> Comparison:
    """Return a comparison with a text."""
    return Comparison(name, op, "String", value)


# ---------------------------------------------------------------------------------------------- bounds


def visible() -> Filter:
    """Return what holds of the rows that are entities."""
    return AnyOf((text(ROW, "lt", HIDDEN[0]), text(ROW, "ge", HIDDEN[1])))


def begins_low(template: Template) -> bool:
    """Return whether a row key of a template may be below those that are hidden."""
    first = template.parts[0] if template.parts else ""
    return not first or (isinstance(first, Slot) and (not first.text.shape or first.text.least <= " "))


def below_hidden(row: Bound) -> Bound:
    """Return the part of a bound of row keys that is below what is hidden."""
    return attrs.evolve(row, hi=HIDDEN[0] if row.hi is None else min(row.hi, HIDDEN[0]))


def above_hidden(row: Bound) -> Bound:
    """Return the part that is above."""
    return attrs.evolve(row, lo=max(row.lo, HIDDEN[1]))


def spans_hidden(row: Bound) -> bool:
    """Return whether there may be hidden rows between bounds of row keys."""
    return not row.point and row.lo < HIDDEN[1] and (row.hi is None or row.hi > HIDDEN[0])


def _within(name: str, low: str, high: str | None) -> Iterator[Comparison]:
    if surrogate := _HIGH.search(low):
        low = low[: surrogate.start()] + "\U00010000"
    if high is not None and (surrogate := _HIGH.search(high)):
        high = raise_last(high[: surrogate.start()])
        high = None if high is not None and _HIGH.search(high) else high
    if low:
        yield text(name, "ge", low)
    if high is not None:
        yield text(name, "lt", high)


def _of_bound(name: str, bound: Bound) -> Iterator[Comparison]:
    if bound.point:
        yield text(name, "eq", bound.lo)
    else:
        yield from _within(name, bound.lo, bound.hi)


def in_partitions(partition: Bound, row: Bound = EVERYTHING) -> list[Filter]:
    """Return what says that an entity is in a range."""
    return [*_of_bound(PARTITION, partition), *_of_bound(ROW, row)]


def in_index(key_range: KeyRange, prefix: str, *, is_exact: bool) -> list[Filter]:
    """Return what says that a row of an index is in a range.

    Args:
        key_range: the range of what the index itself gives.
        prefix: what the row keys of the index begin with.
        is_exact: whether nothing follows in the row key what the index gives.
    """
    partition = list(_of_bound(PARTITION, key_range.partition))
    if is_exact:
        return [*partition, *_of_bound(ROW, key_range.row)]
    row = key_range.row
    low = row.lo + END if row.point else _edge_above(row.lo)
    high = row.lo + SEPARATOR if row.point else None if row.hi is None else _edge_above(row.hi)
    above = raise_last(prefix) if prefix else None
    return [*partition, *_within(ROW, prefix + low, above if high is None else prefix + high)]


def _edge_above(edge: str) -> str:
    """Return an edge that lies behind the values that it lay behind, now that an end follows these."""
    return f"{edge}!" if edge.endswith(" ") else edge


# ---------------------------------------------------------------------------------------------- conditions


def conditions(
    predicates: Iterable[AnyPredicate],
    model: Model,
    values: Sequence[Any],
    among: Collection[str] | None,
    codec: EntityCodec,
) -> list[Filter]:
    """Return what holds at least where predicates do.

    Args:
        predicates: all of them hold.
        model: of the entities.
        values: of the parameters.
        among: the properties that rows have; None: all that are stored.
        codec: of the entities.
    """
    lowering = _Lowering(model, values, among, codec)
    return [lowered for predicate in predicates if (lowered := lowering.lowered(predicate)) is not None]


@attrs.frozen
class _Lowering:
    model: Model
    values: Sequence[Any]
    among: Collection[str] | None
    codec: EntityCodec

    def lowered(self, predicate: AnyPredicate) -> Filter | None:
        """Return what holds at least where a predicate does; None if a service knows nothing like it."""
        match predicate:
            case And(parts=parts):
                return all_of([part_filter for part in parts if (part_filter := self.lowered(part)) is not None])
            case Or(parts=parts):
                return _one_of([self.lowered(part) for part in parts])
            case Compare(attr=attr, op=op, value=Parameter() as value):
                return self._compared(attr, op, self.values[value.number])
            case In(attr=attr, values=parameters) if len(parameters) <= MAX_VALUES:
                return _one_of([self._compared(attr, "==", self.values[parameter.number]) for parameter in parameters])
            case StartsWith(attr=attr, text=beginning):
                start = self.values[beginning.number]
                if not isinstance(start, str):  # (the first levels of a hierarchy)
                    return None
                above = raise_last(start)
                bounds = [self._compared(attr, ">=", start)]
                bounds += [] if above is None else [self._compared(attr, "<", above)]
                return all_of([bound for bound in bounds if bound is not None])
        return None

    def _compared(self, attr: Attr[Any, Any], op: str, value: Any) -> Filter | None:
        """Return a comparison, in the types that the property may have."""
        model = self.model
        if attr.path or attr.part or op not in _OPERATORS or model.position.get(attr.name, 2) == 2:
            return None
        field = model.declaration.field(attr.name)
        name, kind, operator = as_stored(field, self.codec.stored).property, field.type, _OPERATORS[op]
        if self.among is not None and name not in self.among:
            return None
        if field.maintained or field.wide or kind.kind is object or self.codec.defaults[field.property] is not None:
            return None  # (text in place of numbers, or nothing in place of the default)
        if not kind.sql_ordered and (kind.enum is None or operator != "eq"):
            return None
        stored_value = kind.store(value)
        match kind.edm:
            case "Int64" if kind.kind is int:
                return _any_of(
                    Comparison(name, operator, "Int64", stored_value), _integer(name, operator, stored_value, "Int32")
                )
            case "Int32":
                return _any_of(
                    Comparison(name, operator, "Int32", stored_value), _integer(name, operator, stored_value, "Int64")
                )
            case "Double":
                return _number(name, operator, stored_value)
            case "Boolean" if operator == "eq":
                return Comparison(name, operator, "Boolean", bool(stored_value))
            case "Guid" if operator == "eq":
                return Comparison(name, operator, "Guid", stored_value)
            case "DateTime":
                return _moment(name, operator, kind.scalar_of(value))
            case "String":
                return None if _HIGH.search(stored_value) else text(name, operator, stored_value)
        return None


def _one_of(parts: Sequence[Filter | None]) -> Filter | None:
    filters = [part for part in parts if part is not None]
    if not filters or len(filters) < len(parts):
        return None
    return filters[0] if len(filters) == 1 else AnyOf(tuple(filters))


_INTEGERS = {"Int32": (MIN_INT32, MAX_INT32), "Int64": (MIN_INT64, MAX_INT64)}


def _integer(name: str, op: Operator, value: float, edm: str) -> Comparison | None:
    """Return a comparison of what others may have written as an integer, which a service compares with its like only.

    None: no integer of this type satisfies it.
    """
    lowest, highest = _INTEGERS[edm]
    least = op in ("gt", "le")  # (5.5 is below what 6 is not above)
    integer = math.floor(value) if least else math.ceil(value)
    if op == "eq" and integer != value:
        return None
    if integer > highest:
        return Comparison(name, "le", edm, highest) if op in ("lt", "le") else None
    if integer < lowest:
        return Comparison(name, "ge", edm, lowest) if op in ("gt", "ge") else None
    return Comparison(name, op, edm, integer)


def _any_of(*parts: Comparison | None) -> Filter:
    comparisons = [part for part in parts if part is not None]
    return comparisons[0] if len(comparisons) == 1 else AnyOf(tuple(comparisons))


def _number(name: str, op: Operator, value: float) -> Filter | None:
    """Return a comparison of a float; a service takes an exponent, or an infinity, for the name of a property."""
    if not math.isfinite(value) or "e" in repr(value):
        return None
    wholes = [_integer(name, op, value, edm) for edm in _INTEGERS]
    return _any_of(Comparison(name, op, "Double", value), *wholes)


def _moment(name: str, op: Operator, value: datetime) -> Filter | None:
    """Return a comparison of a time, a millisecond wider: the emulator compares no finer."""
    store = SCALARS[Builtin.datetime].store
    sides: list[Filter] = []
    if op in ("eq", "gt", "ge") and value >= MIN_DATETIME + _MILLISECOND:
        sides.append(Comparison(name, "ge", "DateTime", store(value - _MILLISECOND)))
    if op in ("eq", "lt", "le") and value <= _LATEST:
        sides.append(Comparison(name, "le", "DateTime", store(value + _MILLISECOND)))
    return all_of(sides)


# ---------------------------------------------------------------------------------------------- room


def narrowed(find: QueryEntities, pushed: Sequence[Filter]) -> QueryEntities:
    """Return a request with as many conditions more as a filter has room for."""
    count = 0 if find.where is None else _comparisons(find.where)
    room = MAX_FILTER - (0 if find.where is None else _travelling(find.where))
    parts: list[Filter] = []
    for part in pushed:
        comparisons, length = _comparisons(part), _travelling(part) + len("%20and%20")
        if count + comparisons <= MAX_COMPARISONS and length <= room:
            parts.append(part)
            count, room = count + comparisons, room - length
    if not parts:
        return find
    own_parts = [] if find.where is None else list(find.where.parts) if isinstance(find.where, AllOf) else [find.where]
    return attrs.evolve(find, where=all_of([*own_parts, *parts]))


def _comparisons(part: Filter) -> int:
    return 1 if isinstance(part, Comparison) else sum(map(_comparisons, part.parts))


def _travelling(part: Filter) -> int:
    return len(quote(filter_text(part), safe=""))
