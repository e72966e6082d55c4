"""Orders that no path gives: what rows are sorted by in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from ....expressions.sortable import store_sortable
from ....planning.plan import Plan
from ....planning.projection import RowLayout, layout_of, tuples
from ....planning.skip_scan import Descending
from ....schema.rows import Row
from ....values.scalars import SCALARS
from ...protocol import Position
from .filters import units


def sort_rank(plan: Plan, position: Position, rank: tuple[Any, ...] | None) -> Any:
    """Return what a row is sorted by.

    Args:
        plan: the plan.
        position: the values to sort by, as `sort_values` has them, and the place of the row.
        rank: what rows of the path are merged by; None if that does not matter.
    """
    if plan.sorted:
        steps = [
            Descending((value is not None, value)) if step.descending else (value is not None, value)
            for step, value in zip(plan.sort, position, strict=False)
        ]
        rank = (*steps, *map(units, position[-2:]))
    elif plan.turned:
        assert rank is not None
        rank = (rank[0], Descending(rank[1:]))
    return Descending(rank) if plan.descending and not plan.sort else rank


def sort_values(plan: Plan, lay_out: Callable[[Any, RowLayout], Row]) -> Callable[[Any], Sequence[Any]]:
    """Return the function from what was found to the values that it is sorted by, in the form in which they sort.

    Args:
        plan: the plan.
        lay_out: makes of what was found a row of a layout.
    """
    if not plan.sort:
        return lambda source: ()
    attributes = [step.attr for step in plan.sort]
    layout = layout_of(plan.path, attributes, covering=plan.covering)
    make = tuples(plan.path, layout, attributes, covering=plan.covering)
    kinds = [SCALARS[Decimal] if step.wide else step.attr.type for step in plan.sort]

    def values(source: Any) -> Sequence[Any]:
        ((*laid_out,),) = make((lay_out(source, layout),), ())
        return [
            None if value is None else store_sortable(kind, Decimal(value) if step.wide else value)
            for kind, value, step in zip(kinds, laid_out, plan.sort, strict=True)
        ]

    return values
