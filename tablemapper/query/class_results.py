"""The results of a query over one class, as entities or as tuples of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

import attrs

from ..engines.protocol import Position
from ..errors import StoreClosed
from ..execution.column_reader import ColumnReader
from ..execution.from_aggregates import mismatches, totals_served
from ..execution.plan_reader import PlanReader
from ..execution.prepared import PreparedPlan, as_read
from ..expressions.foreign_names import refuse_foreign_names
from ..expressions.predicates import conjuncts
from ..expressions.tree import Attr
from ..planning.budget import Budget, start
from ..planning.cost import Cost, cost_of
from ..planning.explanation import MOST_COUNTED, Explanation, order_text, predicate_text
from ..planning.ranges import BoundPlan
from .division import Splittable
from .pages import counted, query_identity
from .results import seconds

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ClassResults(Splittable[T_co]):
    """The results of a query. Iterate them, or ask for `first`, `one`, `exists`, `count`, `page`."""

    __slots__ = ()

    @property
    def _names(self) -> str:
        return self._spec.model.name

    # ------------------------------------------------------------------------------------------ building

    def limit(self, count: int, /) -> Self:
        """Stop after so many results.

        Raises:
            InvalidQuery: it is not a number, 0 or more.
        """
        return self._with(attrs.evolve(self._spec, limit=counted("limit", count, least=0)))

    def allow_scan(self) -> Self:
        """Allow the query to read the whole table where no key or index bounds it.

        A warning is logged once for queries of one form, if the table has more than 10,000 rows.
        """
        return self._with(attrs.evolve(self._spec, scan=True))

    def allow_sort(self) -> Self:
        """Allow the query to read all of its rows and to sort them in memory, on an engine that sorts nothing itself.

        That are at most 100,000 on Azure Tables, or what `budget` allows. SQLite sorts by itself, without this.
        """
        return self._with(attrs.evolve(self._spec, in_memory=True))

    def allow_eventual(self) -> Self:
        """Allow the query to be answered from an index or an aggregate that may be older than the entities.

        On Azure Tables these are the ones in other partitions. On SQLite none is ever older, but an aggregate over a
        class with ``expires=True`` counts what has ended until `Store.expire`.
        """
        return self._with(attrs.evolve(self._spec, eventual=True))

    def budget(self, *, timeout: float | None = None, examined: int | None = None) -> Self:
        """Limit what one run of the query may use; past it, the run raises `QueryStopped`.

        Args:
            timeout: seconds from the start of the run until you take its last row.
            examined: rows that are read, whether they match or not. Conditions are then checked after reading, so set
                it where a runaway query is worse than a slow one.

        Raises:
            InvalidQuery: a limit is not a number, 0 or more.
        """
        if timeout is not None:
            timeout = seconds("budget: timeout=", timeout)
        if examined is not None:
            examined = counted("budget: examined=", examined, least=0)
        budget = None if timeout is None and examined is None else Budget(timeout, examined)
        return self._with(attrs.evolve(self._spec, budget=budget))

    # ------------------------------------------------------------------------------------------ reading

    def _limited(self, limit: int | None) -> Iterator[T_co]:
        prepared, values = self._plans.prepared(self._spec, self._wanted)
        if prepared.key is not None and self._spec.budget is None:
            return iter(prepared.only(self._plans.engine, values) if limit != 0 else ())
        if limit != 0 and prepared.partition is not None and (items := prepared.partition(values, limit)) is not None:
            return iter(items)
        run = self._run(*self._bound(prepared, values, most=limit))
        return run.items(limit) if limit != 0 else iter(())

    def _run(self, prepared: PreparedPlan, bound: BoundPlan) -> PlanReader:
        return PlanReader(self._plans.reads, prepared, bound, prepared.layout, start(self._spec.budget, self))

    def first(self) -> T_co | None:
        """Return the first result, or None.

        Raises:
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        if self._spec.budget is None and self._spec.limit != 0:
            prepared, values = self._plans.prepared(self._spec, self._wanted)
            if prepared.key is not None:
                return next(iter(prepared.only(self._plans.engine, values)), None)
            if prepared.partition is not None and (items := prepared.partition(values, 1)) is not None:
                return items[0] if items else None
            prepared, bound = self._bound(prepared, values, most=1)
            if not prepared.whole:
                return next(self._run(prepared, bound).items(), None)
            row = self._plans.reads.find(bound, prepared.layout)
            return None if row is None else prepared.items((row,), bound, prepared.layout)[0]
        return next(iter(self), None)

    def exists(self) -> bool:
        """Return whether there is a result.

        Raises:
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return Rows[Any](self._plans, self._spec.unordered, ()).first() is not None

    def count(self) -> int:
        """Return the number of results.

        Raises:
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        lean = Rows[Any](self._plans, self._spec.unordered, ())
        limit = self._spec.limit
        if self._spec.budget is not None:
            return sum(1 for _ in lean)
        prepared, bound = lean._find()
        counts = self._plans.counts
        if counts is not None and (count := counts.count(bound)) is not None:
            return count if limit is None else min(count, limit)
        return sum(1 for _ in lean._run(prepared, bound).items(limit))

    def explain(self) -> Explanation:
        """Return how the query is answered: the path, its ranges, what is filtered and sorted, and why.

        Raises:
            ScanRefused: no key or index bounds the query.
        """
        prepared, bound = self._find(warn=False)
        plan = prepared.plan
        residual = {id(predicate) for predicate in prepared.residual}
        texts = [(predicate_text(predicate, bound.values), id(predicate) in residual) for predicate in plan.filter]
        explained = self._plans.reads.explain(bound, prepared.layout, self._spec.limit)
        totals = dict(totals_served(self._plans, self._spec))
        return Explanation(
            str(plan.path),
            plan,
            bound.ranges,
            tuple(text for text, _ in texts),
            tuple(text for text, is_residual in texts if is_residual),
            order_text(plan.sort) or (("key",) if plan.by_key else ()),
            self._plans.between_bounds(bound, MOST_COUNTED),
            self._plans.engine.capabilities,
            tuple(explained.lines),
            explained.requests,
            explained.eventual or any(self._plans.may_lag(self._spec.model, total) for total in totals.values()),
            partial(self._cost, bound),
            totals,
            tuple(mismatches(self._plans, self._spec)),
        )

    def _cost(self, bound: BoundPlan) -> Cost:
        footprint, counts, bound = None, self._plans.counts, as_read(bound, eventual=self._spec.eventual)
        with suppress(StoreClosed):
            footprint = None if counts is None else counts.footprint(bound, MOST_COUNTED)
        return cost_of(bound.plan, footprint, len(bound.ranges), self._spec.limit)

    def __repr__(self) -> str:
        spec = self._spec
        name = spec.model.name
        parts = [name if spec.range is None else f"{name}.{spec.range.name}{spec.range.values}"]
        parts += [predicate_text(predicate, ()) for predicate in conjuncts(spec.where)]
        parts += [] if spec.part is None else [str(spec.part)]
        return f"<Query {', '.join(parts)}>"  # (whichever kind of it)

    # ------------------------------------------------------------------------------------------ how

    def _find(self, *, warn: bool = True, most: int | None = None) -> tuple[PreparedPlan, BoundPlan]:
        return self._bound(*self._plans.prepared(self._spec, self._wanted), warn=warn, most=most)

    def _bound(
        self, prepared: PreparedPlan, values: Sequence[Any], *, warn: bool = True, most: int | None = None
    ) -> tuple[PreparedPlan, BoundPlan]:
        prepared, bound = self._plans.bind(prepared, values, self._spec, self._wanted)
        if warn and prepared.plan.scan:
            limits = [limit for limit in (most, self._spec.limit) if limit is not None]
            self._plans.warn_of_scan(prepared, bound, self.__repr__, min(limits, default=None))
        return prepared, bound

    @property
    def _attributes(self) -> tuple[Attr[Any, Any], ...]:
        if self._wanted is not None:
            return self._wanted
        model = self._spec.model
        return tuple([getattr(model.cls, field.name) for field in model.declaration.fields])

    def _reader(self) -> ColumnReader:
        rows = Rows[Any](self._plans, self._spec, self._attributes)
        return ColumnReader(rows._run(*rows._find()), self._attributes, self._spec.limit)

    def _form(self) -> Any:
        return query_identity(self._plans, self._spec, self._wanted)

    def _positioned(self, after: Position | None, limit: int) -> Iterator[tuple[Position, Any]]:
        return self._placed_run(limit).positioned(after, limit)

    def _placed_run(self, limit: int | None) -> PlanReader:
        """Return a run whose rows tell their positions."""
        run = self._run(*self._find(most=limit))
        if run.prepared.plan.index is not None or run.spending is not None:
            run.layout = run.prepared.placed  # (else a row begins with its keys, which are its place on the key's path)
        return run


@refuse_foreign_names("rows", lambda rows: ("a query after .select(…)", rows._names))
class Rows(ClassResults[T]):
    """Tuples of fields of the entities that a query finds."""

    __slots__ = ()
