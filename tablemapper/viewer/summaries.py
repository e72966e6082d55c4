"""Totals and groups of a query, and counts by value of a field."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import attrs

from ..errors import CorruptStore, InvalidQuery, QueryStopped, safe_repr
from ..execution.from_aggregates import matching_aggregate
from ..execution.totals import COUNT, Measured
from ..expressions.tree import Attr
from ..interchange.parsing import field
from ..schema.slots import slot_of
from .cells import Cell, cell, plain_text
from .snippets import path_source
from .typed_conditions import equal

TOTALS: tuple[Measured, ...] = ("count", "sum", "avg", "min", "max")
MOST_GROUPS = 200
_MOST_VALUES = 20


@attrs.frozen
class Counts:
    """The number of entities by value of a field, or by element of a list: the most frequent ones."""

    attr: Attr[Any, Any]
    pairs: list[tuple[Any, int]]
    distinct: int
    number: int
    """The number of entities that were read."""
    fault: str
    """Why the rest was not."""

    @property
    def rows(self) -> list[tuple[Cell, int, str | None]]:
        """Each value, its number, and the condition that finds it."""
        in_list = self.attr.type.element is not None
        return [(_cell(value), count, equal(self.attr, value, element=in_list)) for value, count in self.pairs]

    def to_dict(self) -> dict[str, Any]:
        """Return the same for a program."""
        values = [{"value": _plain(value), "count": count} for value, count in self.pairs]
        return {"values": values, "distinct": self.distinct, "read": self.number, "stopped": self.fault or None}


def is_countable(attr: Attr[Any, Any]) -> bool:
    """Return whether the values of a field, or the elements of its lists, can be counted."""
    return (attr.type.element or attr.type).keyable


def counts_by_value(query: Any, attr: Attr[Any, Any]) -> Counts:
    """Return the counts by value of a field, or by element of a list, within the budget of a query.

    Raises:
        InvalidQuery: such values are not counted.
    """
    if not is_countable(attr):
        raise InvalidQuery(f"{attr!r} is {attr.type.name}: counts by value are those of scalars, and of lists of them")
    counter, number, fault = Counter[Any](), 0, ""
    try:
        for (value,) in query.select(attr):
            counter.update([value] if attr.type.element is None else set(value or ()))
            number += 1
    except (QueryStopped, CorruptStore) as error:
        fault = str(error)
    return Counts(attr, counter.most_common(_MOST_VALUES), len(counter), number, fault)


@attrs.frozen
class Grouping:
    """A request for groups: the fields that make them, and the total of each."""

    by: list[Attr[Any, Any]]
    measure: Measured
    of: Attr[Any, Any] | None
    greatest_first: bool

    @classmethod
    def from_params(
        cls, owner: type[Any], group: str, measure: str, of: str, *, greatest_first: bool
    ) -> Grouping | None:
        """Return what the parameters of a page ask for; None if they ask for no groups and no total.

        Raises:
            InvalidQuery: there is no such field or total, or the total needs a field.
        """
        by = [field(owner, name.strip()) for name in group.split(",")] if group.strip() else []
        if not by and not measure:
            return None
        totals: dict[str, Measured] = {name: name for name in TOTALS}
        if (total := totals.get(measure or "count")) is None:
            raise InvalidQuery(f"no total {safe_repr(measure)}: expected one of {', '.join(TOTALS)}")
        if total != "count" and not of:
            raise InvalidQuery(f"{total}: name the field, as in of=price")
        return cls(by, total, field(owner, of) if total != "count" else None, greatest_first)

    def source(self, query: str) -> str:
        """Return the Python that asks for it."""
        groups = f".group_by({', '.join(map(path_source, self.by))})" if self.by else ""
        return f"{query}{groups}.{self.label}"

    @property
    def label(self) -> str:
        """The total as a program asks for it."""
        return f"{self.measure}({'' if self.of is None else path_source(self.of)})"

    def aggregate(self, query: Any) -> str:
        """Return the name of the aggregate that answers; empty if the entities are read."""
        slot = COUNT if self.of is None else slot_of(self.measure, self.of)
        match = matching_aggregate(query._plans, query._spec, tuple(self.by), slot)  # noqa: SLF001  as the query does
        return "" if match is None else match.target.name

    def read(self, query: Any) -> dict[tuple[Any, ...], Any]:
        """Return the total of each group; without fields to group by, of one group that has no name.

        Raises:
            InvalidQuery, ScanRefused, QueryStopped: as the query of a program.
        """
        groups = query.group_by(*self.by) if self.by else query
        measure = getattr(groups, self.measure)
        totals = measure() if self.of is None else measure(self.of)
        if not self.by:
            return {(): totals}
        totals = {key if len(self.by) > 1 else (key,): total for key, total in totals.items()}
        if self.greatest_first:
            with suppress(TypeError):  # (Enums)
                pairs = [pair for pair in totals.items() if pair[1] is not None]
                pairs.sort(key=lambda pair: pair[1], reverse=True)
                return dict(pairs) | totals
        return totals

    def rows(self, totals: dict[tuple[Any, ...], Any]) -> list[tuple[list[Cell], list[str] | None, Cell]]:
        """Return the first groups: the values, the conditions that find its entities, and the total."""
        rows = []
        for group, total in list(totals.items())[:MOST_GROUPS]:
            where = [equal(attr, value) for attr, value in zip(self.by, group, strict=True)]
            conditions = [text for text in where if text]
            rows.append((list(map(_cell, group)), conditions if len(conditions) == len(where) else None, _cell(total)))
        return rows

    def to_dict(self, totals: dict[tuple[Any, ...], Any]) -> list[dict[str, Any]]:
        """Return the same for a program."""
        names = [attr.label for attr in self.by]
        return [
            {"group": dict(zip(names, map(_plain, group), strict=True)), "total": _plain(total)}
            for group, total in list(totals.items())[:MOST_GROUPS]
        ]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else plain_text(value)


def _cell(value: Any) -> Cell:
    return cell(value, None if value is None else _plain(value))
