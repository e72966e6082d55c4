"""Counts, sums and extremes of rows, with the arithmetic of the maintained aggregates: so both are equal bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from ..expressions.tree import Attr
from ..schema.groups import Slot, State, load_sortable, store_sortable

__all__ = ["COUNT", "Measured", "States", "summed_up", "value", "wanted_slot"]

States: TypeAlias = dict[tuple[Any, ...], State]
"""By group, ``[number of entities, value of the slot]``."""
Measured: TypeAlias = Literal["count", "sum", "avg", "min", "max"]

COUNT = Slot("count", None, None)


def wanted_slot(measured: Measured, attr: Attr[Any, Any]) -> Slot:
    """Return what a measure of a field is answered from."""
    return Slot("sum" if measured in ("sum", "avg") else "extremes", attr, None)


def value(measured: Measured, slot: Slot, state: State) -> Any:
    """Return what a state says.

    Raises:
        OverflowError: durations that add up to more than ``timedelta.max``.
    """
    number, held = state
    match measured:
        case "count":
            return number
        case "sum":
            return slot.sum.shown(held)
        case "avg":
            return slot.sum.mean(held)
        case _:
            assert slot.attr is not None
            return load_sortable(slot.attr.type, held[0 if measured == "min" else -1]) if held else None


def summed_up(rows: Iterable[tuple[Any, ...]], slot: Slot) -> States:
    """Return the states of rows that end in the slot's value, if it is of a field; before that stands the group."""
    states: States = {}
    attr = slot.attr
    for row in rows:
        group = row if attr is None else row[:-1]
        state = states.get(group)
        if state is None:
            state = states[group] = [0, [] if slot.kind == "extremes" else slot.zero()]
        state[0] += 1
        if attr is None or (one := row[-1]) is None:
            continue
        held = state[1]
        if slot.kind == "sum":
            slot.sum.add(held, one, 1)
            continue
        one = store_sortable(attr.type, one)
        if not held:
            state[1] = [one, one]
        elif one < held[0]:
            held[0] = one
        elif one > held[1]:
            held[1] = one
    return states
