"""The result of ``explain()``: the plan of a query, and the reasons for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import msgspec

from ..expressions.boolean import Unended
from ..expressions.predicates import dump, filled
from ..expressions.tree import Order
from .capabilities import Capabilities
from .conditions import AnyPredicate
from .cost import Cost
from .plan import Plan
from .query_text import condition_text
from .ranges import KeyRange

MOST_COUNTED = 10_000
_MAX_LISTED = 5


@attrs.frozen
class Explanation:
    """The plan of a query: ``str`` gives text to read, `to_dict` and `to_json` give data."""

    path: str
    """The key or index that is followed, by name."""
    plan: Plan = attrs.field(repr=False)
    ranges: tuple[KeyRange, ...]
    """What is read of it: disjoint, in key order."""
    filter: tuple[str, ...]
    """Conditions on the rows that are read."""
    checked: tuple[str, ...]
    """Those of them that SQL does not say exactly, so that they are checked after reading."""
    sort: tuple[str, ...]
    """What the rows are sorted by, by the database; empty if the path gives the order."""
    rows: int | None
    """How many rows are between the bounds, those of other classes of the table too, counted up to 10,000; None where
    to count them would cost as much as to read them."""
    capabilities: Capabilities = attrs.field(repr=False)
    """What the engine can do."""
    database: tuple[str, ...]
    """What the database itself says of the first range: of SQLite, its EXPLAIN QUERY PLAN."""
    requests: int | None
    """How many requests are sent at least; None where a file is read."""
    eventual: bool
    """Whether what is found, or a total, may be older than the entities: only after ``allow_eventual()``."""
    estimate: Callable[[], Cost] = attrs.field(repr=False, eq=False)
    """Reads what `cost` is made of."""
    totals: Mapping[str, str] = {}
    """What is answered from a declared aggregate instead, as ``{"avg(price)": "PricesByMaker"}``."""
    unfit: tuple[str, ...] = ()
    """Why other aggregates do not answer."""

    @cached_property
    def cost(self) -> Cost:
        """The cost of one run on Azure Tables. It is counted in the store when it is first asked for."""
        return self.estimate()

    @property
    def covering(self) -> bool:
        """Whether the index alone answers it."""
        return self.plan.covering

    @property
    def scan(self) -> bool:
        """Whether the whole table is read."""
        return self.plan.scan

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons why the planner did not choose other paths."""
        return (*self.plan.reasons, *self.unfit)

    def __str__(self) -> str:
        plan = self.plan
        head = f"reads {'the whole table of ' if plan.scan else ''}{self.path}"
        ways = [["forwards", "backwards"][way] for way in (plan.descending, plan.rows_descending)]
        head += f", partitions {ways[0]}, rows {ways[1]}" if plan.turned else ", backwards" if plan.descending else ""
        head += ", which holds all needed fields" if plan.covering else ""
        lines = [head]
        if not plan.scan:
            lines += [f"  {keys}" for keys in self.ranges[:_MAX_LISTED]]
            if len(self.ranges) > _MAX_LISTED:
                lines.append(f"  … {len(self.ranges)} ranges in all")
            if not self.ranges:
                lines.append("  nothing: no row can match")
            if plan.by_partition and any(not keys.partition.point for keys in self.ranges):
                lines.append("  partition by partition")
            if plan.merged:
                lines.append(f"  side by side, merged in the order of {self._merged_by()}")
        lines += [] if self.rows is None else [f"  {_expected(self.rows)}"]
        lines += [f"filters by {predicate}{self._where(predicate)}" for predicate in self.filter]
        lines += [f"sorts by {', '.join(self.sort)} ({self.capabilities.sorts or 'in memory'})"] if self.sort else []
        lines += [f"not {reason}" for reason in self.reasons]
        lines += [f"{self.capabilities.engine}: {detail}" for detail in self.database]
        lines += [f"{total} is answered from {aggregate}" for total, aggregate in self.totals.items()]
        lines.append(str(self.cost))
        return "\n".join(lines)

    def _merged_by(self) -> str:
        partition, row = (template.slots for template in self.plan.path.templates)
        if self.plan.merged == len(partition):
            return "their row keys"
        return f"what follows {(*partition, *row)[self.plan.merged - 1].field} in their keys"

    def _where(self, predicate: str) -> str:
        return ", after reading" if predicate in self.checked else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the same as builtin types that JSON can represent."""
        return {
            "path": self.path,
            "scan": self.scan,
            "covering": self.covering,
            "ranges": [
                {
                    "partition": _bound(keys.partition.lo, keys.partition.hi, point=keys.partition.point),
                    "row": _bound(keys.row.lo, keys.row.hi, point=keys.row.point),
                }
                for keys in self.ranges
            ],
            "descending": self.plan.descending,
            "rows_descending": self.plan.rows_descending,
            "by_partition": self.plan.by_partition,
            "merged": bool(self.plan.merged),
            "filter": list(self.filter),
            "checked": list(self.checked),
            "sort": list(self.sort),
            "rows": self.rows,
            "reasons": list(self.reasons),
            "database": list(self.database),
            "requests": self.requests,
            "eventual": self.eventual,
            "totals": dict(self.totals),
            "cost": self.cost.to_dict(),
        }

    def to_json(self) -> str:
        """Return the result of `to_dict` as text."""
        return msgspec.json.encode(self.to_dict()).decode()


@attrs.frozen
class MixedExplanation:
    """The plan of a query over several classes: class by class, with the rows merged."""

    order: tuple[str, ...]
    """What the rows are merged by."""
    classes: Mapping[str, Explanation]
    """How each class is read, by its name."""
    unread: Mapping[str, str]
    """The classes that are not read, each with a condition that none of its entities satisfies."""

    @property
    def scan(self) -> bool:
        """Whether the whole table is read."""
        return any(explanation.scan for explanation in self.classes.values())

    @property
    def rows(self) -> int | None:
        """The number of rows between the bounds, counted up to 10,000 for each class; None where they are not
        counted."""
        counts = [explanation.rows for explanation in self.classes.values()]
        return None if None in counts else sum(filter(None, counts))

    @property
    def cost(self) -> Cost:
        """The cost of one run on Azure Tables: the sum over the classes."""
        costs = [explanation.cost for explanation in self.classes.values()]
        entities, sizes = [cost.entities for cost in costs], [cost.bytes for cost in costs]
        return Cost(
            sum(cost.requests for cost in costs),
            None if None in entities else sum(filter(None, entities)),
            None if None in sizes else sum(filter(None, sizes)),
            at_least=any(cost.at_least for cost in costs),
        )

    def __str__(self) -> str:
        lines = [f"merges classes in the order of {', '.join(self.order)}"]
        for name, explanation in self.classes.items():
            lines += [f"{name}:", *(f"  {line}" for line in str(explanation).splitlines())]
        lines += [f"{name}: not read, none satisfies {why}" for name, why in self.unread.items()]
        lines.append(str(self.cost))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as builtin types that JSON can represent."""
        return {
            "order": list(self.order),
            "classes": {name: explanation.to_dict() for name, explanation in self.classes.items()},
            "unread": dict(self.unread),
            "cost": self.cost.to_dict(),
        }

    def to_json(self) -> str:
        """Return the result of `to_dict` as text."""
        return msgspec.json.encode(self.to_dict()).decode()


def _expected(rows: int) -> str:
    if rows >= MOST_COUNTED:
        return f"{MOST_COUNTED:,} rows or more"
    return f"{rows:,} row{'' if rows == 1 else 's'}"


def _bound(lo: str, hi: str | None, *, point: bool) -> Any:
    return lo if point else [lo, hi]


def order_text(steps: Iterable[Order[Any]]) -> tuple[str, ...]:
    """Return an order as text, step by step."""
    return tuple(f"{step.attr.label}{' descending' if step.descending else ''}" for step in steps)


def predicate_text(predicate: AnyPredicate, values: Sequence[Any]) -> str:
    """Return a predicate as a user would write it, values filled in."""
    if isinstance(predicate, Unended):
        return "not expired"
    return condition_text(dump(filled(predicate, values)))
