"""Queries of a store that is observed: their reads and writes are reported.

Each call runs on an unobserved query of the same form, so that the calls inside of it are not reported again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from itertools import zip_longest
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

    def _begin(self, verb: str, args: tuple[Any, ...] = ()) -> tuple[Call, Any, tuple[Any, ...]]:
        """Return the call, and the plain query on which to make it: one that counts what it examines, if that is due."""
        plain, classes, prepared = self._plain(), self._classes(), list[PreparedPlan]()
        with suppress(TableMapperError):  # (the call itself will raise it)
            prepared = [query._plans.prepared(query._spec, query._wanted)[0] for query in classes]
        paths = dict.fromkeys(map(_path, prepared))
        call = cast(ObservedPlans, self._plans).observer.call(
            f"query.{verb}" if verb else "query", class_names(self), ", ".join(paths) or None
        )
        call.shape, call.shape_data = _words(classes, prepared)
        if not prepared:
            return call, plain, args
        if all(plan.only_results for plan in prepared):
            call.examined = lambda: call.returned
            return call, plain, args
        prepared[0].observed = number = prepared[0].observed + 1
        if self._spec.budget is None and number & (number - 1):  # (the 1st, 2nd, 4th, 8th … call)
            return call, plain, args
        budget = BudgetCounter.within(self._spec.budget)
        call.examined = budget.rows
        return call, self._counting(budget), args

    def __iter__(self) -> Iterator[Any]:
        call, query, _ = self._begin("")
        return call.iterate(lambda: iter(query))


def _words(
    classes: Sequence[ClassResults[Any]], prepared: Sequence[PreparedPlan]
) -> tuple[str, Mapping[str, Any] | None]:
    """Return the form of a query as text and, over one class, as data."""
    words = [_class_words(query, plan) for query, plan in zip_longest(classes, prepared)]
    return " | ".join([text for text, _ in words]), words[0][1] if len(classes) == 1 else None


def _class_words(query: ClassResults[Any], plan: PreparedPlan | None) -> tuple[str, dict[str, Any]]:
    """Return the form of a query over a class, which its plan keeps."""
    words = None if plan is None else plan.words
    if words is None:
        form = wording(query._spec)
        words = form_text(form), form
        if plan is not None:
            plan.words = words
    return words


def report(cls: type[Any], plain: type[Any], verbs: Iterable[str], note: Callable[[Call, Any], None]) -> None:
    """Let verbs of an observed class be reported, with a note of each result.

    ``_begin`` of the class returns the call, the plain object that makes it, and its arguments.
    """
    for name in verbs:
        setattr(cls, name, _reported(name, getattr(plain, name), note))


def _reported(name: str, verb: Callable[..., Any], note: Callable[[Call, Any], None]) -> Callable[..., Any]:
    @wraps(verb)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        call, plain, args = self._begin(name, args)

        def work(call: Call) -> Any:
            result = getattr(plain, name)(*args, **kwargs)
            note(call, result)
            return result

        return call.run(work)

    return method


def returned(size: Callable[[Any], int]) -> Callable[[Call, Any], None]:
    """Return what notes how many entities a result has."""

    def note(call: Call, result: Any) -> None:
        call.returned = size(result)

    return note


def returned_one(call: Call, result: object) -> None:
    """Note whether an entity was there."""
    call.returned = int(result is not None and result is not False)


def _changed(call: Call, result: int) -> None:
    call.returned = call.written = result


class _ObservedQuery(_Observed, Query[Any]):
    __slots__ = ()

    def _plain(self) -> Query[Any]:
        return Query(self._plans, self._spec)

    def _classes(self) -> list[ClassResults[Any]]:
        return [self]

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
        call, query, _ = self._begin(measured)
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


class _ObservedMixed(_Observed, MixedQuery[Any, Any, Any]):
    __slots__ = ()

    def _plain(self) -> MixedQuery[Any, Any, Any]:
        return MixedQuery(self._plans, self._members, self._where, self._base)

    def _classes(self) -> list[ClassResults[Any]]:
        return [member.query for member in self._members]

    def _counting(self, budget: BudgetCounter) -> MixedQuery[Any, Any, Any]:
        return self._plain()._each(lambda query: query._with(attrs.evolve(query._spec, budget=budget)))


def _batches(self: _Observed, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
    call, query, args = self._begin("arrow_batches", args)
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


report(_Observed, Query, ("first", "one", "one_or_none", "exists"), returned_one)
report(_Observed, Query, ["count"], returned(int))
report(_Observed, Query, ["page"], returned(lambda page: len(page.items)))
report(_ObservedQuery, Query, ("update", "delete", "move_to"), _changed)
for _kind in (_ObservedQuery, _ObservedRows):
    report(_kind, Query, ["columns"], returned(lambda columns: len(next(iter(columns.values())))))
    report(_kind, Query, ("to_arrow", "to_polars", "to_pandas"), returned(lambda table: table.shape[0]))
    _kind.arrow_batches = _batches  # type: ignore[method-assign, assignment]


def observed(query: Any) -> Any:
    """Return a query that reports its calls; its plans must be `ObservedPlans`."""
    if isinstance(query, MixedQuery):
        return _ObservedMixed(query._plans, query._members, query._where, query._base)
    return _ObservedQuery(query._plans, query._spec)


def class_names(query: Results[Any]) -> str:
    """Return the names of the classes of a query for an event."""
    return query._names.replace(" | ", ", ")
