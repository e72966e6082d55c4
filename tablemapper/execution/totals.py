"""Totals of a query: counts, sums and extremes, of all its results or by group.

Rows are added up with the arithmetic of the maintained aggregates, so both are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload

from ..codegen import Names, compile_functions
from ..engines.optional_protocols import CountsRows
from ..entities.declaration import abstract_declaration
from ..errors import CorruptStore, InvalidQuery, TableMapperError, safe_repr
from ..expressions.arithmetic import AnyOwner, Computed, calculation_fault
from ..expressions.foreign_names import refuse_foreign_names
from ..expressions.python_source import calculation_source
from ..expressions.sortable import store_sortable
from ..expressions.tree import Attr, Expr
from ..planning.ranges import BoundPlan
from ..schema.rows import DAMAGE, Row, unreadable
from ..schema.slots import MeasureState, State, slot_of
from .prepared import PreparedPlan

States: TypeAlias = dict[tuple[Any, ...], State]
"""By group, ``[number of entities, value of the slot]``."""
Measured: TypeAlias = Literal["count", "sum", "avg", "min", "max"]

COUNT = slot_of("count", None)


def value(measured: Measured, slot: MeasureState, state: State) -> Any:
    """Return the total that a state stands for.

    Raises:
        OverflowError: durations that add up to more than ``timedelta.max``.
    """
    number, slot_state = state
    return number if slot is COUNT else slot.show(measured)(slot_state)


def summed_up(rows: Iterable[tuple[Any, ...]], slot: MeasureState) -> States:
    """Return the states of the groups of rows: a row is the group, and the slot's value unless entities are counted."""
    states: States = {}
    include = None if slot is COUNT else slot.adder()
    for row in rows:
        group = row if include is None else row[:-1]
        state = states.get(group)
        if state is None:
            state = states[group] = [0, slot.start()]
        state[0] += 1
        if include is not None and row[-1] is not None:
            state[1] = include(state[1], row[-1])
    return states


_UNLIKE: tuple[type, ...] = (float, Decimal, object)
"""Kinds of which two values that are equal can be stored in two ways."""
_WHOLE_KINDS, _ORDERED = (int, timedelta), (int, timedelta, float, str)
"""Kinds of which any value of the right storage class can be read, and that a database sums, or orders, as Python does."""


def totals_by_engine(
    counts: CountsRows,
    find: Callable[[], tuple[PreparedPlan, BoundPlan]],
    by: tuple[Attr[Any, Any], ...],
    slot: MeasureState,
) -> States | None:
    """Return the states of the groups of a query's results as an engine adds them up; None if that is not the same.

    An engine sums integers exactly, and orders what is stored as its values are. Floats and Decimals are summed here.

    Args:
        find: gives the plan of the query.
    """
    measure = slot.attr
    kinds = _ORDERED if slot.ordered else _WHOLE_KINDS
    if not all(attr.type.kind not in _UNLIKE and _is_whole(attr) for attr in by):
        return None
    if isinstance(measure, Computed):
        return None
    if measure is not None and not (_is_whole(measure) and not measure.type.members and measure.type.kind in kinds):
        return None
    names = tuple([attr.name for attr in by])
    measured = None if measure is None else measure.name
    fields = tuple(dict.fromkeys(names if measured is None else [*names, measured]))
    prepared, bound = find()
    if prepared.layout.fields != fields or prepared.plan.sorted:
        return None
    rows = counts.totals(bound, names, measured, summed=measured is not None and not slot.ordered)
    make, place = partial(prepared.items, bound=bound, layout=prepared.layout), (None,) * prepared.width
    try:
        return None if rows is None else _states_of(list(rows), place, make, slot, len(by), fields)
    except CorruptStore:  # (which names a row if that is read)
        return None


def _states_of(
    rows: list[Row],
    place: Row,
    make: Callable[[list[Row]], list[Any]],
    slot: MeasureState,
    by: int,
    fields: tuple[str, ...],
) -> States:
    states: States = {}
    values = [(*place, *row[:-3]) for row in rows]
    for row, group in zip(rows, make(values), strict=True):
        state = states.setdefault(group[:by], [0, slot.start()])
        state[0] += row[-3]
        if slot.attr is not None and not slot.ordered:
            state[1] = slot.united(state[1], row[-2:])
    if isinstance(slot.attr, Attr) and slot.ordered:
        include, at = slot.adder(), len(place) + fields.index(slot.attr.name)
        for end in (-2, -1):
            ends = [(*value[:at], row[end], *value[at + 1 :]) for value, row in zip(values, rows, strict=True)]
            for item in make(ends):
                if item[-1] is not None:
                    state = states[item[:by]]
                    state[1] = include(state[1], item[-1])
    return states


def _is_whole(attr: Attr[Any, Any]) -> bool:
    return not attr.path and attr.part is None


if TYPE_CHECKING:
    from typing_extensions import TypeVar as Defaulted

    Owner = Defaulted("Owner", default=Any)
else:
    Owner = TypeVar("Owner")
G = TypeVar("G")
T = TypeVar("T")


Compute: TypeAlias = Callable[[Measured, MeasureState], States]


@refuse_foreign_names("groups", lambda _: ("a grouped query", "Product"))
class GroupedQuery(AnyOwner, Generic[G, Owner]):
    """The groups of the entities that a query finds.

    Each method reads once, and returns a dict by group, in ascending order.

    The keys of the dict are the values of the field, or tuples if there are several fields; None stands for a missing
    value.
    """

    __slots__ = ("_by", "_compute")

    def __init__(self, by: tuple[Attr[Any, Any], ...], compute: Compute) -> None:
        self._by = by
        self._compute = compute

    def count(self) -> dict[G, int]:
        """Count the entities of each group.

        Raises:
            ScanRefused: no aggregate fits, and no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return self._measured("count", COUNT)

    def sum(self, field: Expr[T | None, Owner], /) -> dict[G, T | None]:
        """Add up a field in each group, exactly; None where no entity has a value.

        Raises:
            InvalidQuery: the field has no sum, or the sum of a group is beyond its type.
            ScanRefused: no aggregate fits, and no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return self._measured("sum", slot_of("sum", _summed("sum", field)))

    @overload
    def avg(self, field: Expr[Decimal | None, Owner], /) -> dict[G, Decimal | None]: ...  # type: ignore[overload-overlap]
    @overload
    def avg(self, field: Expr[timedelta | None, Owner], /) -> dict[G, timedelta | None]: ...  # type: ignore[overload-overlap]
    @overload
    def avg(self, field: Expr[float | None, Owner], /) -> dict[G, float | None]: ...
    def avg(self, field: Expr[Any, Owner], /) -> Any:
        """Divide the sum of a field by the number of its values, in each group.

        Raises:
            InvalidQuery: the field has no sum.
            ScanRefused: no aggregate fits, and no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return self._measured("avg", slot_of("avg", _summed("avg", field)))

    def min(self, field: Expr[T | None, Owner], /) -> dict[G, T | None]:
        """Find the least value of a field in each group.

        Raises:
            InvalidQuery: the field has no order.
            ScanRefused: no aggregate fits, and no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return self._measured("min", slot_of("min", _ordered("min", field)))

    def max(self, field: Expr[T | None, Owner], /) -> dict[G, T | None]:
        """Find the greatest value of a field in each group.

        Raises:
            InvalidQuery: the field has no order.
            ScanRefused: no aggregate fits, and no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return self._measured("max", slot_of("max", _ordered("max", field)))

    def _measured(self, measured: Measured, slot: MeasureState) -> dict[Any, Any]:
        try:
            states = self._compute(measured, slot)
            return {
                group if len(self._by) != 1 else group[0]: value(measured, slot, states[group])
                for group in sorted(states, key=self._place)
            }
        except OverflowError as error:
            assert slot.attr is not None
            raise InvalidQuery(f"{measured}: {slot.attr!r} adds up to more than a {slot.attr.type.name}") from error
        except TableMapperError:
            raise
        except DAMAGE as error:
            raise unreadable(f"{measured} of a query", None, error) from error

    def _place(self, group: tuple[Any, ...]) -> list[Any]:
        return [
            (value is not None, None if value is None else store_sortable(attr.type, value))
            for attr, value in zip(self._by, group, strict=True)
        ]


def calculated(
    rows: Iterable[tuple[Any, ...]], value: Computed[Any, Any], slot: MeasureState, by: int
) -> Iterator[tuple[Any, ...]]:
    """Yield rows that end in a calculated value, for rows that end in its fields, as `fields_of` has them.

    Args:
        rows: the rows: the group, then the fields.
        slot: the slot that the value is added to.
        by: how many values the group has.

    Raises:
        InvalidQuery: the calculation fails for a row.
    """
    names = Names()
    places = {field.name: f"row[{at}]" for at, field in enumerate(fields_of(value), by)}
    lines, result = calculation_source(value, places.__getitem__, partial(names.name, "constant"), names)
    source = "\n".join(["def calculate(row):", *[f"    {line}" for line in lines], f"    return {result}\n"])
    calculate = compile_functions(repr(value), source, names)["calculate"]
    for row in rows:
        try:
            result = calculate(row)
            yield *row[:by], None if result is None else slot.check(result)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise InvalidQuery(f"{value.label}: {calculation_fault(error)}") from error


def fields_of(value: Computed[Any, Any]) -> tuple[Attr[Any, Any], ...]:
    """Return the fields that a calculation reads, each whole and once."""
    attributes = {attr.name: attr for attr in value.attributes()}
    return tuple(
        Attr(attr.owner, name, abstract_declaration(attr.owner).field(name).type) for name, attr in attributes.items()
    )


def _summed(measured: Measured, field: object) -> Attr[Any, Any] | Computed[Any, Any]:
    attr = _attr(measured, field)
    if not attr.type.summable:
        raise InvalidQuery(f"{measured}: {attr!r} is {attr.type.name}; only numbers and timedeltas have a sum")
    return attr


def _ordered(measured: Measured, field: object) -> Attr[Any, Any] | Computed[Any, Any]:
    attr = _attr(measured, field)
    if not attr.type.sortable:
        raise InvalidQuery(f"{measured}: {attr!r} is {attr.type.name}, which has no order")
    return attr


def _attr(measured: Measured, field: object) -> Attr[Any, Any] | Computed[Any, Any]:
    if not isinstance(field, Attr | Computed):
        raise InvalidQuery(f"{measured}: expected a field, as in .{measured}(Product.price), got {safe_repr(field)}")
    return field
