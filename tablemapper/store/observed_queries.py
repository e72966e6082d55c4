"""Queries of a store that is observed: their reads and writes are reported.

Each call runs on an unobserved query of the same form, so that the calls inside of it are not reported again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, cast

import attrs

from ..engines.protocol import Engine
from ..errors import TableMapperError
from ..events import Call, Observer
from ..execution.from_aggregates import matching_aggregate
from ..execution.prepared import PlanCache, PreparedPlan
from ..execution.totals import COUNT, Measured, States
from ..planning.budget import BudgetCounter
from ..planning.query_text import form_text, wording
from ..query.class_results import ClassResults, Rows
from ..query.mixed import MixedQuery
from ..query.pairs import Pairs
from ..query.query import Query
from ..query.results import Results


class ObservedPlans(PlanCache):
    """The plans of a store that is observed."""

    def __init__(self, engine: Engine, observer: Observer) -> None:
        super().__init__(engine)
        self.observer = observer


def _path(prepared: PreparedPlan) -> str:
    return "scan" if prepared.plan.scan else str(prepared.plan.path)


class _Observed(Results[Any]):
    """The methods of every query of an observed store."""

    __slots__ = ()

    _plain: Callable[[], Any]

    def _classes(self) -> list[ClassResults[Any]]:
        """Return the query over each class."""
        raise NotImplementedError

    def _counting(self, budget: BudgetCounter) -> Any:
        """Return the plain query within a budget that counts."""
        return self._plain()._with(attrs.evolve(self._spec, budget=budget))

    def _begin(self, verb: str) -> tuple[Call, Any]:
        """Return the call, and the plain query on which to make it: one that counts what it examines, if that is due."""
        plain, classes, prepared = self._plain(), self._classes(), list[PreparedPlan]()
        with suppress(TableMapperError):  # (the call itself will raise it)
            prepared = [query._plans.prepared(query._spec, query._wanted)[0] for query in classes]
        paths = dict.fromkeys(map(_path, prepared))
        call = cast(ObservedPlans, self._plans).observer.call(verb, class_names(self), ", ".join(paths) or None)
        call.shape, call.shape_data = _words(classes, prepared)
        if not prepared:
            return call, plain
        if all(plan.only_results for plan in prepared):
            call.examined = lambda: call.returned
            return call, plain
        prepared[0].observed = number = prepared[0].observed + 1
        if self._spec.budget is None and number & (number - 1):  # (the 1st, 2nd, 4th, 8th … call)
            return call, plain
        budget = BudgetCounter.within(self._spec.budget)
        call.examined = budget.rows
        return call, self._counting(budget)

    def __iter__(self) -> Iterator[Any]:
        call, query = self._begin("query")
        return call.iterate(lambda: iter(query))


def _words(
    classes: Sequence[ClassResults[Any]], prepared: Sequence[PreparedPlan]
) -> tuple[str, Mapping[str, Any] | None]:
    """Return the form of a query as text and, over one class, as data."""
    cached_words = prepared[0].words if prepared else None
    if cached_words is None:
        words = [wording(query._spec) for query in classes]
        cached_words = " | ".join(map(form_text, words)), words[0]
        if prepared:
            prepared[0].words = cached_words
    return cached_words[0], cached_words[1] if len(classes) == 1 else None


def _reported(name: str, count: Callable[[Call, Any], None]) -> Callable[..., Any]:
    @wraps(getattr(Query, name))
    def method(self: _Observed, *args: Any, **kwargs: Any) -> Any:
        call, query = self._begin(f"query.{name}")

        def work(call: Call) -> Any:
            result = getattr(query, name)(*args, **kwargs)
            count(call, result)
            return result

        return call.run(work)

    return method


def _one(call: Call, result: object) -> None:
    call.returned = int(result is not None)


def _number(call: Call, result: int) -> None:
    call.returned = result


def _page(call: Call, result: Any) -> None:
    call.returned = len(result.items)


def _columns(call: Call, result: dict[str, list[Any]]) -> None:
    call.returned = len(next(iter(result.values())))


def _table(call: Call, result: Any) -> None:
    call.returned = result.shape[0]


def _count_changed(call: Call, result: int) -> None:
    call.returned = call.written = result


for _name, _count in {
    "first": _one, "one": _one, "one_or_none": _one, "exists": _number, "count": _number, "page": _page,
}.items():  # fmt: skip
    setattr(_Observed, _name, _reported(_name, _count))


class _ObservedQuery(_Observed, Query[Any]):
    __slots__ = ()

    def _plain(self) -> Query[Any]:
        return Query(self._plans, self._spec)

    def _classes(self) -> list[ClassResults[Any]]:
        return [self]

    update = _reported("update", _count_changed)
    delete = _reported("delete", _count_changed)
    move_to = _reported("move_to", _count_changed)

    def count(self) -> int:
        if matching_aggregate(self._plans, self._spec, (), COUNT) is not None:
            return sum(int(state[0]) for state in self._states((), "count", COUNT).values())
        return super().count()

    def select(self, *fields: Any) -> Any:
        return _ObservedRows(self._plans, self._plain().select(*fields)._spec, fields)

    def with_(self, other: Any, /, *, by: Any) -> Any:
        pairs = self._plain().with_(other, by=by)
        return _ObservedPairs(self._plans, pairs)

    def _states(self, by: tuple[Any, ...], measured: Measured, slot: Any) -> States:
        call, query = self._begin(f"query.{measured}")
        if by:
            names = [attr.label for attr in by]
            call.shape = f"{call.shape} by {', '.join(map(str, names))}"
            call.shape_data = None if call.shape_data is None else {**call.shape_data, "by": names}

        def work(call: Call) -> States:
            aggregate = matching_aggregate(self._plans, self._spec, by, slot)
            states: States = query._states(by, measured, slot)
            if aggregate is not None:
                call.path = str(aggregate.prepared.plan.path)
                call.examined = None  # (groups are not counted)
            call.returned = len(states) if aggregate is not None else sum(state[0] for state in states.values())
            return states

        return call.run(work)


class _ObservedRows(_Observed, Rows[Any]):
    __slots__ = ()

    def _plain(self) -> Rows[Any]:
        return Rows(self._plans, self._spec, self._wanted)

    def _classes(self) -> list[ClassResults[Any]]:
        return [self]


class _ObservedPairs(_Observed, Pairs[Any, Any]):
    __slots__ = ()

    def __init__(self, plans: PlanCache, pairs: Pairs[Any, Any]) -> None:
        super().__init__(pairs.query, pairs.model, pairs.by)
        self._plans = plans

    def _plain(self) -> Pairs[Any, Any]:
        return Pairs(self.query, self.model, self.by)

    def _classes(self) -> list[ClassResults[Any]]:
        return [self.query]

    def _counting(self, budget: BudgetCounter) -> Pairs[Any, Any]:
        return Pairs(self.query._with(attrs.evolve(self._spec, budget=budget)), self.model, self.by)


class _ObservedMixed(_Observed, MixedQuery[Any, Any, Any, Any, Any]):
    __slots__ = ()

    def _plain(self) -> MixedQuery[Any, Any, Any, Any, Any]:
        return MixedQuery(self._plans, self._members, self._where)

    def _classes(self) -> list[ClassResults[Any]]:
        return [member.query for member in self._members]

    def _counting(self, budget: BudgetCounter) -> MixedQuery[Any, Any, Any, Any, Any]:
        return self._plain()._each(lambda query: query._with(attrs.evolve(query._spec, budget=budget)))


def _batches(self: _Observed, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
    call, query = self._begin("query.arrow_batches")
    batches = query.arrow_batches(*args, **kwargs)

    def stream() -> Iterator[Any]:
        try:
            while True:
                with call:
                    batch = next(batches, None)
                if batch is None:
                    return
                call.returned += batch.num_rows
                yield batch
        finally:
            call.end()

    return stream()


for _kind in (_ObservedQuery, _ObservedRows):
    for _name, _count in {"columns": _columns, "to_arrow": _table, "to_polars": _table, "to_pandas": _table}.items():
        setattr(_kind, _name, _reported(_name, _count))
    _kind.arrow_batches = _batches  # type: ignore[method-assign, assignment]


def observed(query: Any) -> Any:
    """Return a query that reports its calls; its plans must be `ObservedPlans`."""
    if isinstance(query, MixedQuery):
        return _ObservedMixed(query._plans, query._members, query._where)
    return _ObservedQuery(query._plans, query._spec)


def class_names(query: Results[Any]) -> str:
    """Return the names of the classes of a query for an event."""
    return query._names.replace(" | ", ", ")
