"""Counts, sums and extremes of rows, with the arithmetic of the maintained aggregates: so both are equal bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from ..schema.groups import Slot, State, slot_of

__all__ = ["COUNT", "Measured", "States", "summed_up", "value"]

States: TypeAlias = dict[tuple[Any, ...], State]
"""By group, ``[number of entities, value of the slot]``."""
Measured: TypeAlias = Literal["count", "sum", "avg", "min", "max"]

COUNT = slot_of("count", None)


def value(measured: Measured, slot: Slot, state: State) -> Any:
    """Return what a state says.

    Raises:
        OverflowError: durations that add up to more than ``timedelta.max``.
    """
    number, held = state
    return number if slot is COUNT else slot.show(measured)(held)


def summed_up(rows: Iterable[tuple[Any, ...]], slot: Slot) -> States:
    """Return the states of rows that end in the slot's value, if it is of a field; before that stands the group."""
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
