"""What is measured, and how good it has to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

import attrs

from .contestant import Contestant
from .data import STATUSES

LAPS = 10  # how many times the contestants take turns in a phase

Run = Callable[[Contestant, Any], Any]


@attrs.frozen
class Phase:
    """One kind of work: a number of calls, for each of which the contestants do the same."""

    name: str
    title: str
    run: Run
    """Does the work of one call; what it returns is compared and counted, if the phase ``reads``."""
    calls: Callable[[Any], Iterable[list[Any]]]
    """The arguments of the calls, in laps: contestants take turns after each lap, so that all see the same noise."""
    target: float | None = None
    """What part of the time of by hand ours may take."""
    faster: Mapping[str, float] = MappingProxyType({})
    """How many times the time of ours another contestant has to take at least."""
    operations: Callable[[Any], int] = len
    """How many operations a call with this argument is; of a phase that reads, what was found is counted."""
    reads: bool = False
    after: tuple[str, ...] = ("bulk",)
    """Phases that have to run before it."""


def _one(_: Any) -> int:
    return 1


def laps(calls: list[Any]) -> list[list[Any]]:
    """Return calls in the parts after which the contestants take turns."""
    size = -(-len(calls) // LAPS) or 1
    return [calls[at : at + size] for at in range(0, len(calls), size)]


def _pages(contestant: Contestant, status: str) -> list[Any]:
    return [order for page in islice(contestant.pages(status), 20) for order in page]


def _peers(sqlalchemy: float, peewee: float) -> Mapping[str, float]:
    return MappingProxyType({"sqlalchemy": sqlalchemy, "peewee": peewee})


PHASES = (
    Phase(
        "bulk", "bulk insert, random order",
        lambda c, orders: c.bulk(orders), lambda w: ([orders] for orders in w.slices()),
        1.2, _peers(1.5, 2.8), after=(),
    ),
    Phase(
        "insert", "insert, one a transaction",
        lambda c, order: c.insert(order), lambda w: laps(w.singles),
        1.2, _peers(6, 3), _one,
    ),
    Phase(
        "insert50", "insert, 50 a transaction",
        lambda c, orders: c.insert_batch(orders), lambda w: laps(w.batches),
        1.05, _peers(2.5, 4),
    ),
    Phase(
        "get", "point get",
        lambda c, order: [c.get(order)], lambda w: laps(w.some),
        1.1, _peers(15, 15), reads=True,
    ),
    Phase(
        "partition", "partition query, an entity",
        lambda c, customer: c.partition(customer), lambda w: laps(w.customers),
        1.3, _peers(6, 3.5), reads=True,
    ),
    Phase(
        "index", "index query, an entity",
        lambda c, sku: c.by_sku(sku), lambda w: laps(w.skus),
        1.35, _peers(3, 3), reads=True,
    ),
    Phase(
        "scan", "filtered scan, an entity",
        lambda c, least: c.scan(least), lambda w: laps(w.totals),
        1.1, _peers(2, 2), reads=True,
    ),
    Phase("pages", "page by page, an entity", _pages, lambda w: laps(list(STATUSES)), reads=True),
    Phase("aggregate", "aggregate read", lambda c, day: [c.day(day)], lambda w: laps(w.days * 10), reads=True),
    Phase(
        "update50", "update, 50 a transaction",
        lambda c, orders: c.update_batch(orders, "back"), lambda w: laps(w.batches),
        1.15, _peers(8, 8), after=("bulk", "insert50"),
    ),
    Phase(
        "together50", "update, 50 read together",
        lambda c, orders: c.update_together(orders, "lost"), lambda w: laps(w.batches),
        1.15, after=("bulk", "insert50"),
    ),
    Phase(
        "delete50", "delete, 50 a transaction",
        lambda c, orders: c.delete_batch(orders), lambda w: laps(w.batches),
        1.15, _peers(8, 8), after=("bulk", "insert50"),
    ),
)  # fmt: skip


def chosen(names: Iterable[str]) -> list[Phase]:
    """Return the phases of these names and those that they need, in order; all, if there are no names."""
    by_name = {phase.name: phase for phase in PHASES}
    names = set(names) or set(by_name)
    if unknown := names - set(by_name):
        raise ValueError(f"no phase {', '.join(sorted(unknown))}; there are {', '.join(by_name)}")
    needed = names.union(*(by_name[name].after for name in names))
    return [phase for phase in PHASES if phase.name in needed]
